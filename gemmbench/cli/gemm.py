"""``gemmbench gemm``."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import click
from click.core import ParameterSource

from gemmbench.cli import running
from gemmbench.cli.ladder import peak_steps
from gemmbench.cli.options import (
    RunOptions,
    UserError,
    alpha_option,
    baseline_option,
    beta_option,
    check_folder,
    choose_dtypes,
    choose_kernels,
    choose_params,
    dtype_option,
    kernel_option,
    measuring,
    optional_kernels,
    param_option,
    peak_option,
)
from gemmbench.cli.tuned import find_tuned, tuned_option
from gemmbench.facts.dtypes import GEMM_DTYPES
from gemmbench.facts.problem import Gemm
from gemmbench.facts.records import DeviceFacts
from gemmbench.render.gemm import gemm as table
from gemmbench.rules.operands import OperandError, read_header
from gemmbench.rules.plan import Operands, Plan, fitting, gemm_plan

_DEFAULT = 1024
_file = click.Path(path_type=Path, dir_okay=False)
_length = click.IntRange(min=0)


@click.command()
@click.option("-m", "m", type=_length, help=f"Rows of A and C.  [default: {_DEFAULT}]")
@click.option("-n", "n", type=_length, help="Columns of B and C.  [default: m]")
@click.option("-k", "k", type=_length, help="Columns of A, rows of B.  [default: m]")
@alpha_option
@beta_option
@click.option("--a", "a_file", type=_file, metavar="A.npy", help="Your own A (m x k).")
@click.option("--b", "b_file", type=_file, metavar="B.npy", help="Your own B (k x n).")
@click.option("--c", "c_file", type=_file, metavar="C.npy", help="Your own C (m x n), for beta.")
@click.option("--out", type=_file, metavar="OUT.npy", help="Write the result; needs one --kernel.")
@kernel_option
@dtype_option
@baseline_option
@param_option
@tuned_option
@peak_option
@measuring
def gemm(
    options: RunOptions,
    m: int | None,
    n: int | None,
    k: int | None,
    alpha: float,
    beta: float,
    a_file: Path | None,
    b_file: Path | None,
    c_file: Path | None,
    out: Path | None,
    kernels: str,
    dtype: str,
    baseline: str,
    params: tuple[str, ...],
    with_peak: bool,
) -> None:
    """Measure one problem, on generated or on your own matrices.

    Times are split into queued, submitted and running for every launch, and into kernel, device and host
    scope for the whole. --plot draws the kernels as a ladder up to the measured peak.
    """
    files = (a_file, b_file, c_file)
    own = Operands(*(str(file.absolute()) if file else None for file in files))
    if any(files):
        m, n, k, held = _shape_of(own, m, n, k)
        context = click.get_current_context()
        if dtype != held and context.get_parameter_source("dtype") is not ParameterSource.DEFAULT:
            raise UserError(f"the files hold {held}, but --dtype is {dtype}")
        dtype = held
        _check_beta(own, beta)
    chosen = choose_kernels(kernels, "none" if out else baseline)
    dtypes = choose_dtypes(dtype, GEMM_DTYPES)
    if out:
        if len(chosen) != 1 or len(dtypes) != 1:
            raise UserError("--out needs exactly one --kernel and one --dtype, whose result it holds")
        check_folder("--out", out)
        if out.exists() and not options.force:
            raise UserError(f"--out {out} exists already; --force replaces it")
        own = replace(own, out=str(out.absolute()))
    m = _DEFAULT if m is None else m
    shape = (m, m if n is None else n, m if k is None else k)
    overrides = choose_params(params)

    def plan(devices: Sequence[DeviceFacts]) -> Plan:
        if out and len(devices) > 1:
            raise UserError("--out needs exactly one --device, whose result it holds")
        steps: Plan = ()
        for name in dtypes:
            if with_peak and all(shape):
                steps += peak_steps(devices, name, chosen)
            cases = gemm_plan(devices, chosen, [Gemm(*shape, name, alpha, beta)], overrides, own, find_tuned)
            steps += fitting(cases, optional_kernels(kernels))
        return steps

    running.measure(options, plan, table, "gemm", chart="ladder")


def _check_beta(own: Operands, beta: float) -> None:
    """C of one's own and beta belong together.

    Raises:
        UserError: C would not be read, or a generated one would be added to one's own product.
    """
    if own.c and beta == 0:
        raise UserError("--c is given but beta is 0, so it would not be read; give --beta too")
    if not own.c and beta != 0:
        raise UserError(f"--beta {beta:g} adds to C, but there is no --c; give it, or leave --beta out")


def _shape_of(own: Operands, m: int | None, n: int | None, k: int | None) -> tuple[int, int, int, str]:
    """m, n, k and the data type from the user's files, held against one another and against -m -n -k.

    Only the files' first bytes are read: the elements are the business of the process that multiplies.

    Raises:
        UserError: a file cannot be read, or sizes or types disagree.
    """
    known: dict[str, tuple[int, str]] = {}
    for name, value in (("m", m), ("n", n), ("k", k)):
        if value is not None:
            known[name] = (value, f"-{name}")
    dtype: tuple[str, str] | None = None
    for path, rows, columns in ((own.a, "m", "k"), (own.b, "k", "n"), (own.c, "m", "n")):
        if path is None:
            continue
        try:
            found = read_header(path)
        except OperandError as error:
            raise UserError(str(error)) from None
        if dtype is not None and dtype[0] != found.dtype:
            raise UserError(f"{path} holds {found.dtype}, but {dtype[1]} holds {dtype[0]}")
        dtype = (found.dtype, path)
        for axis, length in ((rows, found.rows), (columns, found.columns)):
            if axis in known and known[axis][0] != length:
                raise UserError(
                    f"{path} makes {axis} {length}, but {known[axis][1]} makes it {known[axis][0]}"
                )
            known[axis] = (length, path)
    missing = [axis for axis in ("m", "n", "k") if axis not in known]
    if missing:
        raise UserError(f"the files do not say how long {' and '.join(missing)} is; give -{missing[0]} too")
    assert dtype is not None
    return known["m"][0], known["n"][0], known["k"][0], dtype[0]
