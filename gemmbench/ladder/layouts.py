"""NT, TN, TT: a variant as it multiplies operands that are stored transposed.

What kernels read either way (`Variant.either`) is told to them by -DTRANS_A and -DTRANS_B, and to formulas by
``ta`` and ``tb``. For the others the passes are rewritten:

* a pass that transposes the operand is left out: the operand is its result;
* one that transposes and pads only pads, and one that pads transposes, too;
* where the multiplication itself reads the operand, a pass before it transposes that.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from gemmbench.ladder.variant import (
    PAD,
    TRANSPOSE,
    Pass,
    Values,
    Variant,
    pad,
    round_up,
    transpose_bytes,
    transpose_padded,
    transpose_tall,
)
from gemmbench.model.dtypes import DTYPES
from gemmbench.model.kernel_files import TRANSPOSED
from gemmbench.model.problem import Gemm

_PITCH = 16  # elements: rows of a transposed copy begin at multiples of it, where any vector may
_OPERANDS: Mapping[str, tuple[str, str, str]] = {"A": ("m", "k", "lda"), "B": ("k", "n", "ldb")}
"""Rows and columns of op(A) and op(B), and the leading dimension."""


def laid_out(variant: Variant, problem: Gemm) -> Variant:
    """The variant as it multiplies a problem's operands, all problems of a batch in one launch.

    Itself where neither operand is transposed, and there is one problem.
    """
    if variant.executor != "opencl":
        if problem.ops in variant.matrix_layouts.get(problem.dtype, ()):
            return replace(variant, matrix_units=(*variant.matrix_units, problem.dtype))
        return variant
    for name, transposed in (("A", problem.trans_a), ("B", problem.trans_b)):
        if transposed and name in variant.either(problem.dtype):
            variant = replace(variant, flags=tuple(dict.fromkeys((*variant.flags, *TRANSPOSED[name]))))
        elif transposed:
            variant = _rewritten(variant, name, DTYPES[problem.dtype].itemsize)
    return variant.batched(problem.batch)


def _rewritten(variant: Variant, name: str, itemsize: int) -> Variant:
    """With passes for an operand that none of its kernels reads transposed."""
    readers = [step for step in variant.passes if name in step.arguments]
    if any(step.file not in (PAD, TRANSPOSE) for step in readers):
        return _with_copy(variant, name, itemsize)
    renamed: dict[str, str] = {}
    passes = []
    for step in variant.passes:
        if name not in step.arguments:
            passes.append(step)
        elif step.file == TRANSPOSE and _only_transposes(step):
            *_, target, target_ld = step.arguments
            renamed |= {target: name, target_ld: _OPERANDS[name][2]}
        else:
            passes.append(_dual(step))
    return replace(
        variant,
        passes=tuple(_renamed(step, renamed) for step in passes),
        temporaries={each: size for each, size in variant.temporaries.items() if each not in renamed},
    )


def _only_transposes(step: Pass) -> bool:
    """Whether a pass pads nothing, and has a leading dimension that nothing else is called."""
    rows, columns, _, _, target_rows, target_columns, _, target_ld = step.arguments
    return (target_rows, target_columns) == (columns, rows) and target_ld not in "mnk"


def _dual(step: Pass) -> Pass:
    """The pass that makes the same of an operand that is stored transposed."""
    rows, columns, source, ld, target_rows, target_columns, target, *_ = step.arguments
    make = (columns, rows, source, ld, target_rows, target_columns, target)
    made = pad(*make) if step.file == TRANSPOSE else transpose_padded(*make, target_columns)
    return replace(made, when=step.when)


def _renamed(step: Pass, names: Mapping[str, str]) -> Pass:
    return replace(step, arguments=tuple(names.get(each, each) for each in step.arguments))


def _with_copy(variant: Variant, name: str, itemsize: int) -> Variant:
    """With a pass that transposes the operand before all others, which read its copy.

    The formulas' leading dimension is the copy's, a multiple of `_PITCH`, so that no pass has to pad it.
    """
    rows, columns, ld = _OPERANDS[name]
    copy, stored = f"{name}N", f"{ld}_stored"
    tight = ld in variant.without  # the kernel counts on rows without gaps

    def pitch(v: Values) -> int:
        return v[columns] if tight else round_up(v[columns], _PITCH)

    made = transpose_bytes if itemsize == 1 and not tight else transpose_tall
    return replace(
        variant,
        passes=(
            made(columns, rows, name, stored, copy, ld),
            *(_renamed(step, {name: copy}) for step in variant.passes),
        ),
        extents={stored: lambda v: v[ld], ld: pitch, **variant.extents},
        temporaries={copy: lambda v: v[rows] * v[ld], **variant.temporaries},
        without=tuple(each for each in variant.without if each != ld),
    )
