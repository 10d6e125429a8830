"""What an entry of the ladder is made of.

Kernels take row-major operands with their leading dimensions. A pass names its arguments; each name is one of

* ``m n k alpha beta A lda B ldb C ldc``: the problem (lengths in elements),
* ``rows_a columns_a rows_b columns_b``: of A and B as its kernels read them (`Variant.either`),
* an extent: a length derived from problem and parameters; a temporary: a buffer of that many elements,
* an image: an operand as a two-dimensional RGBA image.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from heapq import heappop, heappush
from typing import Literal

from gemmbench import UsageError
from gemmbench.model.device import DeviceFacts
from gemmbench.model.dtypes import DTYPES, PLAIN_DTYPES
from gemmbench.model.kernel_files import BATCHED, TRANSPOSED, OwnFile, fingerprint
from gemmbench.model.problem import Gemm
from gemmbench.model.row import RanOn
from gemmbench.model.units import ceil_div, list_values

Values = Mapping[str, int]  # parameters, and in formulas also m, n, k and the extents
Formula = Callable[[Values], int]
Rule = Callable[[Values], bool]
Group = tuple[int, ...]  # work-items in each direction
Shape = Callable[[Values], Group]
Chooser = Callable[[Gemm, DeviceFacts, Values], dict[str, int]]
Role = Literal["multiply", "transpose", "pad", "pack", "image", "unpad", "add", "map"]

OURS = "ours"  # the family of the kernels that are gemmbench's own
LIBRARIES = "libraries"  # no kernels of ours, each on its own
OWN = "own kernels"  # the family of a user's

FAST_MATH = "-cl-fast-relaxed-math"  # of OpenCL's compilers

_LONG = 1 << 20  # a length that makes a tile negligible
ASYNC_COPIES = (8, 0)  # the first compute capability that has NVIDIA's cp.async
PIXEL = 4  # elements in a pixel of an RGBA image


class ParameterError(UsageError, ValueError):
    """An unknown parameter, or a value that it cannot have."""


@dataclass(frozen=True)
class Parameter:
    """A tunable of a variant: a -D of its kernels unless it only shapes the launch."""

    idea: str
    values: tuple[int, ...]  # worth trying; others that meet the constraints are accepted
    launch: bool = False  # of the launch alone: the kernels are compiled without it
    least: int = 1


@dataclass(frozen=True)
class Constraint:
    """A rule for parameters, and the sentence for a user who broke it."""

    rule: Rule  # may name ``itemsize``, too: the bytes of an element of A or B
    sentence: str
    names: frozenset[str] = frozenset()  # all that the rule depends on; empty if that is not known


@dataclass(frozen=True)
class Named:
    """A configuration with a name of its own, on every device."""

    idea: str
    values: Values  # of some parameters; the others are the preset's


@dataclass(frozen=True)
class Layout:
    """Leading dimensions in elements."""

    lda: int
    ldb: int
    ldc: int

    @classmethod
    def tight(cls, problem: Gemm) -> Layout:
        return cls(*problem.tight)

    @classmethod
    def of(cls, problem: Gemm) -> Layout:
        return cls(*(problem.ld or problem.tight))


@dataclass(frozen=True)
class Pass:
    """One kernel launch."""

    role: Role
    file: str  # relative to the kernels folder
    kernel: str
    arguments: tuple[str, ...]
    items: Shape  # work-items wanted; rounded up to whole groups
    group: Shape  # work-items in a group
    when: Rule = lambda _: True  # problems that it is for
    any_group: bool = False  # the kernel does not depend on the group: a smaller one computes the same
    # It reads no operand, and its last argument describes the others: it runs when these are set, before
    # anything is timed.
    once: bool = False

    def group_within(self, values: Values, most: int, sizes: Sequence[int], fixed: bool = False) -> Group:
        """The planned work-group, or a smaller one if needed and the kernel allows any.

        `most` limits its work-items and `sizes` each side. `fixed` keeps a multiplication's planned group.
        """
        group = self.group(values)
        if not self.any_group or (fixed and self.role == "multiply"):
            return group
        return smaller_group(group, most, sizes)


@dataclass(frozen=True)
class Image:
    """An operand as an RGBA image: a row of the matrix in a row of pixels, four columns in each."""

    source: str  # the operand that a pass of role "image" fills it from
    rows: str  # which of m, n, k
    columns: str

    def shape(self, problem: Gemm) -> tuple[int, int]:
        rows, columns = getattr(problem, self.rows), getattr(problem, self.columns)
        return max(1, ceil_div(columns, PIXEL)), max(1, rows)


@dataclass(frozen=True)
class Library:
    """What a library has in place of launches."""

    executor: Literal["numpy", "mkl", "clblast", "cublas"]
    needs: str = ""  # what must be installed for it, in words
    matrix_layouts: Mapping[str, tuple[str, ...]] = field(default_factory=dict)  # of tensor cores, by type


@dataclass(frozen=True)
class Compilation:
    """Compiler options, besides a -D for each parameter."""

    of_type: Callable[[str], tuple[str, ...]] = lambda dtype: (f"-DREAL_{dtype}",)
    flags: tuple[str, ...] = ()
    of_parameters: Callable[[Values], tuple[str, ...]] = lambda _: ()
    target: str = ""  # of PTX, for marked instructions that the driver's own lacks: "sm_90a"; see opencl/ptx


def unsupported_type(device: DeviceFacts, dtype: str) -> str:
    """Why a device cannot compute with a data type, or ""."""
    if dtype in device.dtypes:
        return ""
    extension = DTYPES[dtype].extension
    return f"the device does not list {extension}" if extension else f"the device has no {dtype}"


@dataclass(frozen=True)
class Needs:
    """Data types, what a device must have, and which problems it is not for."""

    dtypes: tuple[str, ...] = PLAIN_DTYPES
    sums: Mapping[str, str] = field(default_factory=dict)  # the type of sums, by data type, if it is not C's
    matrix_units: tuple[str, ...] = ()  # the data types that it multiplies with units for nothing else
    unfit: Callable[[Gemm], str] = lambda _: ""  # why it is not for a problem that it could compute, or ""
    device_type: str = ""  # "cpu"; "" for any
    hardware: str = ""  # what `lacks` looks for, in words: "a CPU with AMX"
    lacks: Callable[[DeviceFacts, str], str] = unsupported_type  # why it cannot multiply a type, or ""
    extensions: Callable[[Values], tuple[str, ...]] = lambda _: ()  # "a|b": one of them is enough
    type_extensions: Mapping[str, tuple[str, ...]] = field(default_factory=dict)  # in addition, by data type
    sub_group: Formula = lambda _: 0  # work-items that its sub-groups must have; 0: it does not matter
    local_elements: Formula = lambda _: 0  # of local memory, the most that one pass uses; see `local_bytes`
    local_limit: Callable[[DeviceFacts], int] = lambda device: device.local_mem_bytes  # for a group

    def unmet(self, device: DeviceFacts, dtype: str, parameters: Values) -> str:
        """The first need of type, extensions or sub-groups that a device lacks, as a sentence; or ""."""
        if reason := self.lacks(device, dtype):
            return reason
        for extension in (*self.extensions(parameters), *self.type_extensions.get(dtype, ())):
            if not any(name in device.extensions for name in extension.split("|")):
                return f"the device does not list {extension.replace('|', ' or ')}"
        wanted, sizes = self.sub_group(parameters), device.sub_group_sizes
        if wanted and sizes and wanted not in sizes:
            return f"needs sub-groups of {wanted}, the device has them of {', '.join(map(str, sizes))}"
        return ""


@dataclass(frozen=True)
class Launches:
    """Passes, the formulas of their arguments, and the memory that they need."""

    passes: tuple[Pass, ...] = ()
    extents: Mapping[str, Formula] = field(default_factory=dict)
    temporaries: Mapping[str, Formula] = field(default_factory=dict)  # elements
    images: Mapping[str, Image] = field(default_factory=dict)
    edge: Formula = lambda _: 16  # the largest tile edge: shapes around it exercise the edges
    tile: Callable[[Values], tuple[int, int] | None] | None = None  # rows and columns of C; see `tile_of`
    batches: bool = False  # whether it computes a batch in one launch: see `batched`
    by_columns: bool = False  # a user's kernel is column-major: it gets the transposed product
    doubt: str = ""  # what may be wrong with a user's description, for the reason of a wrong result
    terms: Mapping[str, Formula] = field(default_factory=dict)  # what formulas of its description name
    without: tuple[str, ...] = ()  # of alpha, beta, lda, ldb, ldc, what it takes for 1, 0 and tight rows
    either: tuple[str, ...] = ()  # operands that its kernels read as they are stored, transposed or not


@dataclass(frozen=True)
class Parameters(Mapping[str, Parameter]):
    """A variant's parameters by name, and where their values come from."""

    declared: Mapping[str, Parameter] = field(default_factory=dict)
    presets: Mapping[str, Values] = field(default_factory=dict)  # see `Variant.filled`
    derive: Callable[[DeviceFacts, str], Values] | None = None  # a preset by a device's facts, for a type
    named: Mapping[str, Named] = field(default_factory=dict)  # see `Variant.configurations`
    constraints: tuple[Constraint, ...] = ()
    choose: Chooser = lambda *_: {}  # parameters that no preset fixes, from problem and device
    searched: tuple[str, ...] = ()  # those of them that `tune` tries in addition to the launch's
    inert: frozenset[str] = frozenset()  # on which no constraint, group or size of memory depends

    def __getitem__(self, name: str) -> Parameter:
        return self.declared[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.declared)

    def __len__(self) -> int:
        return len(self.declared)


@dataclass(frozen=True)
class Variant:
    """A kernel of the ladder, a library or a user's kernel."""

    name: str
    family: str
    idea: str
    source: str
    launches: Launches = Launches()
    parameters: Parameters = Parameters()
    needs: Needs = Needs()
    compilation: Compilation = Compilation()
    specialize: Callable[[Variant, Gemm], Variant] = lambda variant, _: variant  # see `laid_out`
    library: Library | None = None  # that computes it, if no kernel does
    own: OwnFile | None = None  # of a user's kernel: the file that it is made from

    @property
    def files(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(step.file for step in self.launches.passes))

    @property
    def configurations(self) -> tuple[Variant, ...]:
        """The variant with the values of each named configuration, called ``padded-160x160``."""

        def configured(values: Values) -> Parameters:
            presets = {kind: {**preset, **values} for kind, preset in self.parameters.presets.items()}
            return replace(self.parameters, presets=presets, named={})

        return tuple(
            replace(
                self,
                name=f"{self.name}-{name}",
                idea=f"{self.name}: {each.idea}",
                parameters=configured(each.values),
            )
            for name, each in self.parameters.named.items()
        )

    @property
    def executor(self) -> Literal["opencl", "numpy", "mkl", "clblast", "cublas"]:
        return self.library.executor if self.library else "opencl"

    @property
    def on_host(self) -> bool:
        return self.executor in ("numpy", "mkl")

    @property
    def limits(self) -> str:
        """What a kernel without some arguments of a GEMM is verified for, as a sentence; else ""."""
        without = self.launches.without
        fixed = [f"{name} = {value}" for name, value in (("alpha", 1), ("beta", 0)) if name in without]
        rows = [name[2].upper() for name in without if name.startswith("ld")]
        fixed += [f"rows of {' and '.join(rows)} without gaps"] if rows else []
        sentence = f"verified only for {', '.join(fixed)}: it does not support {', '.join(without)}"
        return sentence if fixed else ""

    def with_math(self, math: str) -> Variant:
        """The variant compiled with ``strict`` or ``fast`` math; "" changes nothing."""
        if not math:
            return self
        others = [flag for flag in self.compilation.flags if flag != FAST_MATH]
        return self.with_flags([*others, *([FAST_MATH] if math == "fast" else [])])

    def with_flags(self, flags: Sequence[str]) -> Variant:
        return replace(self, compilation=replace(self.compilation, flags=tuple(flags)))

    def batched(self, batch: int) -> Variant:
        """The variant for several problems of one shape in a launch, the third dimension."""
        if batch == 1 or not self.files:
            return self

        def of_batch(step: Pass) -> Pass:
            return replace(
                step,
                items=lambda v: (*_flat(step.items(v)), v["batch"]),
                group=lambda v: (*_flat(step.group(v)), 1),
            )

        def of_each(formula: Formula) -> Formula:
            return lambda v: v["batch"] * formula(v)

        launches = replace(
            self.launches,
            passes=tuple(map(of_batch, self.launches.passes)),
            temporaries={name: of_each(formula) for name, formula in self.launches.temporaries.items()},
            tile=self.tile_of,
        )
        return replace(self, launches=launches).with_flags([*self.compilation.flags, BATCHED])

    def ran_on(self, dtype: str) -> RanOn:
        """Where a GEMM of a data type runs: ``host``, ``matrix`` (tensor cores) or ``device``."""
        return "host" if self.on_host else "matrix" if dtype in self.needs.matrix_units else "device"

    def preset(
        self, family: str, overrides: Values | None = None, dtype: str = "float",
        device: DeviceFacts | None = None,
    ) -> dict[str, int]:  # fmt: skip
        """As `filled`. Raises `ParameterError` if a constraint is broken, too."""
        chosen = self.filled(family, overrides, dtype, device)
        if sentence := self.broken(chosen, dtype):
            raise ParameterError(f"{self.name}: {sentence} (not with {list_values(chosen)})")
        return chosen

    def filled(
        self, family: str, overrides: Values | None = None, dtype: str = "float",
        device: DeviceFacts | None = None,
    ) -> dict[str, int]:  # fmt: skip
        """Its parameters for a family of devices (``cpu-pocl``) and a data type; constraints are not checked.

        Presets in the order of `preset_keys`, then values derived from `device`, then `overrides`. Raises
        `ParameterError` if one is unknown or below its minimum.
        """
        keys = self.preset_keys(family, dtype)
        chosen = {name: value for key in keys for name, value in self.parameters.presets[key].items()}
        if self.parameters.derive and device:
            chosen |= self.parameters.derive(device, dtype)
        for name, value in (overrides or {}).items():
            if name not in self.parameters:
                known = ", ".join(self.parameters) or "none"
                raise ParameterError(f"{self.name} has no parameter {name} (it has {known})")
            chosen[name] = value
        for name, value in chosen.items():
            if value < (least := self.parameters[name].least):
                raise ParameterError(f"{self.name}: {name} must be {least} or more, not {value}")
        return chosen

    def preset_keys(self, family: str, dtype: str) -> list[str]:
        """The presets that apply: ``default``, ``cpu``, the family, then those for a type (``gpu:half``)."""
        kinds = ("default", family.partition("-")[0], family)
        keys = (*kinds, *(f"{kind}:{dtype}" for kind in kinds))
        return [key for key in keys if key in self.parameters.presets]

    def broken(self, parameters: Values, dtype: str) -> str:
        """The sentence of the first constraint that parameters break, or ""."""
        known = {**parameters, "itemsize": self._itemsize(dtype)}
        return next((each.sentence for each in self.parameters.constraints if not each.rule(known)), "")

    def _itemsize(self, dtype: str) -> int:
        """That of a data type. One that the variant lacks counts as the first that it has."""
        return DTYPES[dtype if dtype in self.needs.dtypes else self.needs.dtypes[0]].itemsize

    def chosen(self, problem: Gemm, device: DeviceFacts, parameters: Values) -> dict[str, int]:
        """The values that its `choose` rule adds for a problem on a device."""
        values = self.parameters.choose(problem, device, parameters)
        return {name: value for name, value in values.items() if name not in parameters}

    def compiled(self, problem: Gemm, device: DeviceFacts, parameters: Values) -> dict[str, int]:
        """What kernels are compiled with: given parameters, and those of `choose` that become a -D."""
        chosen = self.chosen(problem, device, parameters)
        known = (name for name in chosen if name in self.parameters and not self.parameters[name].launch)
        return {**parameters, **{name: chosen[name] for name in known}}

    def space(
        self, dtype: str = "float", values: Mapping[str, Sequence[int]] | None = None
    ) -> Iterator[dict[str, int]]:
        """Every combination of values (the listed ones) that meets the constraints for a data type."""
        values = values or {name: each.values for name, each in self.parameters.items()}
        return self._combine(values, dtype, {})

    def nearest(
        self, parameters: Values, dtype: str, fits: Callable[[dict[str, int]], bool]
    ) -> dict[str, int]:
        """The configuration that satisfies `fits` and is closest to given parameters; empty if none does.

        The distance is the sum of the absolute binary logarithms of the ratios; 0 counts as 0.5. Of equally
        close ones it is the first of `space`.
        """
        inert = self.parameters.inert  # another value changes nothing, and is farther
        values = {
            name: tuple({*(() if name in inert else self.parameters[name].values), value})
            for name, value in parameters.items()
        }
        return next(filter(fits, self._combine(values, dtype, parameters)), {})

    def _combine(
        self, values: Mapping[str, Sequence[int]], dtype: str, near: Values
    ) -> Iterator[dict[str, int]]:
        """Yield the combinations that meet the constraints, those closest to `near` first, else in order."""
        names, itemsize = list(values), self._itemsize(dtype)
        rules: list[list[Rule]] = [[] for _ in (*names, "")]  # by how many parameters must be known
        for each in self.parameters.constraints:
            counts = (number for number, name in enumerate(names, 1) if name in each.names)
            rules[max(counts, default=len(names))].append(each.rule)
        # The beginnings of combinations, closest first. What continues one is never closer.
        queue: list[tuple[float, tuple[int, ...], tuple[float, ...]]] = [(0.0, (), ())]
        while queue:
            _, indexes, distances = heappop(queue)
            at = len(indexes)
            chosen = {name: values[name][index] for name, index in zip(names, indexes, strict=False)}
            if not all(rule({**chosen, "itemsize": itemsize}) for rule in rules[at]):
                continue
            if at == len(names):
                yield chosen
                continue
            for index, other in enumerate(values[names[at]]):
                ratio = (other or 0.5) / (near.get(names[at], other) or 0.5)
                longer = (*distances, abs(math.log2(ratio)))
                heappush(queue, (sum(longer), (*indexes, index), longer))

    def fixes_group(self, given: Collection[str]) -> bool:
        return any(self.parameters[name].launch for name in given if name in self.parameters)

    def values(self, problem: Gemm, parameters: Values, layout: Layout | None = None) -> dict[str, int]:
        """What formulas and arguments use, by name: parameters, lengths, layout (or the problem's), extents.

        Lengths are in elements. ``ta`` and ``tb`` are 1 if kernels read A and B as stored, transposed.
        """
        known = {**parameters, "m": problem.m, "n": problem.n, "k": problem.k, "batch": problem.batch}
        known |= vars(layout or Layout.of(problem)) | {"itemsize": DTYPES[problem.dtype].itemsize}
        known["ta"] = int("A" in self.launches.either and problem.trans_a)
        known["tb"] = int("B" in self.launches.either and problem.trans_b)
        known["rows_a"], known["columns_a"] = problem.stored_a if known["ta"] else (problem.m, problem.k)
        known["rows_b"], known["columns_b"] = problem.stored_b if known["tb"] else (problem.k, problem.n)
        for name, formula in self.launches.extents.items():
            known[name] = formula(known)
        return known

    def steps(self, values: Values) -> tuple[Pass, ...]:
        return tuple(step for step in self.launches.passes if step.when(values))

    def tile_of(self, parameters: Values) -> tuple[int, int] | None:
        """Rows and columns of C that a work-group computes; None if groups make no such tiles."""
        if self.launches.tile:
            return self.launches.tile(parameters)
        sides = []
        for m, n, direction in ((_LONG, 1, 1), (1, _LONG, 0)):
            known = self.values(Gemm(m, n, 1, self.needs.dtypes[0]), parameters)
            step = next((step for step in self.steps(known) if step.role == "multiply"), None)
            if step is None or step.any_group:  # whose groups are whatever the driver takes
                return None
            items, group = step.items(known), step.group(known)
            groups = [ceil_div(count, side) for count, side in zip(items, group, strict=True)]
            if len(groups) != 2 or not all(groups) or groups[1 - direction] != 1:
                return None
            sides.append(round(_LONG / groups[direction]))
        return sides[0], sides[1]

    def options(self, dtype: str, parameters: Values) -> tuple[str, ...]:
        how, own = self.compilation, (name for name in parameters if not self.parameters[name].launch)
        defines = (f"-D{name}={parameters[name]}" for name in own)
        return (*how.of_type(dtype), *defines, *how.flags, *how.of_parameters(parameters))

    def temporary_bytes(
        self, problem: Gemm, parameters: Values, layout: Layout | None = None
    ) -> dict[str, int]:
        known = self.values(problem, parameters, layout)
        itemsize = DTYPES[problem.dtype].itemsize
        return {name: formula(known) * itemsize for name, formula in self.launches.temporaries.items()}

    def local_bytes(self, dtype: str, parameters: Values) -> int:
        itemsize = DTYPES[dtype].itemsize
        return self.needs.local_elements({**parameters, "itemsize": itemsize}) * itemsize

    def fingerprint(self, dtype: str, parameters: Values, root: str = "") -> str:
        """Hash of sources and options, "" for a library; `root` is another kernels folder."""
        return fingerprint(self.files, self.options(dtype, parameters), root) if self.files else ""


def smaller_group(group: Group, most: int, sizes: Sequence[int] = ()) -> Group:
    """A work-group with sides cut to `sizes`, then the longest (or last) halved down to `most` work-items."""
    sides = [min(pair) for pair in zip(group, (*sizes, *group[len(sizes) :]), strict=False)]
    while math.prod(sides) > max(most, 1):
        longest = max(range(len(sides)), key=lambda side: (sides[side], side))
        sides[longest] //= 2
    return tuple(sides)


def _flat(sides: Group) -> Group:
    return (*sides, 1)[:2]


def round_up(value: int, multiple: int) -> int:
    """The smallest multiple that is not below value."""
    return ceil_div(value, multiple) * multiple


ARGUMENTS = ("m", "n", "k", "alpha", "A", "lda", "B", "ldb", "beta", "C", "ldc")


def multiply(
    file: str, kernel: str, items: Shape, group: Shape, arguments: tuple[str, ...] = ARGUMENTS
) -> Pass:
    """The pass that a variant is about."""
    return Pass("multiply", f"gemm/{file}", kernel, arguments, items, group)


def _copying(
    kernel: str, role: Role, items: Callable[..., Group], group: Group, any_group: bool = False
) -> Callable[..., Pass]:
    """A function that makes a pass of ``00_KERNEL.cl`` from names of arguments; `items` gets them, too."""

    def make(*arguments: str) -> Pass:
        shape: tuple[Shape, Shape] = lambda v: items(v, *arguments), lambda _: group
        return Pass(role, f"gemm/00_{kernel}.cl", kernel, arguments, *shape, any_group=any_group)

    return make


_BYTES_EDGE, _BYTES_WORDS = 64, 16  # of a tile of transpose_bytes: bytes, and words in a row

# target (target_rows x target_columns) = source (rows x columns), or transposed; padded with zeros. Of
# pad_chunks pitch is whole chunks of 16 bytes, of pad_vectors whole vectors, of transpose_bytes words of 4.
pad = _copying(
    "pad", "pad",
    lambda v, rows, columns, source, ld, target_rows, target_columns, _: (v[target_columns], v[target_rows]),
    (16, 16), any_group=True,
)  # fmt: skip
pad_chunks = _copying(
    "pad_chunks", "pad",
    lambda v, rows, columns, source, ld, pitch, target: (v[pitch] * v["itemsize"] // 16, v[rows]),
    (32, 8), any_group=True,
)  # fmt: skip
pad_vectors = _copying(
    "pad_vectors", "pad",
    lambda v, rows, columns, source, ld, target, pitch: (v[pitch] // v["WIDTH"], v[rows]),
    (64, 4),
)  # fmt: skip
unpad = _copying("unpad", "unpad", lambda v, m, n, *_: (v[n], v[m]), (16, 16), any_group=True)
transpose_padded = _copying(
    "transpose", "transpose",
    lambda v, rows, columns, source, ld, target_rows, target_columns, *_: (v[target_rows], v[target_columns]),
    (16, 16),
)  # fmt: skip
transpose_tall = _copying(
    "transpose_tall", "transpose",
    lambda v, rows, columns, source, ld, target, pitch: (v[columns], ceil_div(v[pitch], 64) * 8),
    (32, 8),
)  # fmt: skip
_transpose_bytes = _copying(
    "transpose_bytes", "transpose",
    lambda v, rows, columns, source, ld, *target: tuple(
        ceil_div(v[edge], _BYTES_EDGE) * _BYTES_WORDS for edge in target[:2]
    ),
    (_BYTES_WORDS, _BYTES_WORDS),
)  # fmt: skip


def transpose(rows: str, columns: str, source: str, ld: str, target: str, pitch: str) -> Pass:
    """target (columns x rows) = source (rows x columns) transposed."""
    return transpose_padded(rows, columns, source, ld, columns, rows, target, pitch)


def transpose_bytes(rows: str, columns: str, source: str, ld: str, target: str, pitch: str) -> Pass:
    """As `transpose_tall`, for elements of one byte."""
    return _transpose_bytes(rows, columns, source, ld, columns, pitch, target, pitch)


# --- NT, TN, TT: a variant as it multiplies operands that are stored transposed -----------------------------
# Kernels learn what they read transposed (`Variant.either`) from -DTRANS_A and -DTRANS_B, and
# formulas from ``ta`` and ``tb``. For other kernels a first pass transposes the operand.

_PITCH = 16  # elements: rows of a transposed copy begin at multiples of it, where any vector may
_OPERANDS: Mapping[str, tuple[str, str, str]] = {"A": ("m", "k", "lda"), "B": ("k", "n", "ldb")}
"""Rows and columns of op(A) and op(B), and the leading dimension."""


def laid_out(variant: Variant, problem: Gemm) -> Variant:
    """The variant for a problem's layout and batch. Operands that it cannot read transposed are copied."""
    if variant.library:
        if problem.ops in variant.library.matrix_layouts.get(problem.dtype, ()):
            units = (*variant.needs.matrix_units, problem.dtype)
            return replace(variant, needs=replace(variant.needs, matrix_units=units))
        return variant
    variant = variant.specialize(variant, problem)
    for name, transposed in (("A", problem.trans_a), ("B", problem.trans_b)):
        if transposed and name in variant.launches.either:
            variant = variant.with_flags([*dict.fromkeys((*variant.compilation.flags, *TRANSPOSED[name]))])
        elif transposed:
            variant = _with_transposed_copy(variant, name, DTYPES[problem.dtype].itemsize)
    return variant.batched(problem.batch)


def _with_transposed_copy(variant: Variant, name: str, itemsize: int) -> Variant:
    """The variant with a first launch that transposes an operand, for the other kernels."""
    rows, columns, ld = _OPERANDS[name]
    copy, stored = f"{name}N", f"{ld}_stored"
    tight = ld in variant.launches.without  # the kernel counts on rows without gaps

    def pitch(v: Values) -> int:
        return v[columns] if tight else round_up(v[columns], _PITCH)

    def reading_copy(step: Pass) -> Pass:
        return replace(step, arguments=tuple(copy if each == name else each for each in step.arguments))

    made = transpose_bytes if itemsize == 1 and not tight else transpose_tall
    launches = variant.launches
    launches = replace(
        launches,
        passes=(made(columns, rows, name, stored, copy, ld), *map(reading_copy, launches.passes)),
        extents={stored: lambda v: v[ld], ld: pitch, **launches.extents},
        temporaries={copy: lambda v: v[rows] * v[ld], **launches.temporaries},
        without=tuple(each for each in launches.without if each != ld),
    )
    return replace(variant, launches=launches)
