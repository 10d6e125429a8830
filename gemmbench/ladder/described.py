"""The kernels that their ``.cl`` files describe, in the comment that users write in theirs.

`KernelDescription` has more keys than a user's. A new kernel is a new file.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import chain, product
from typing import Literal

import msgspec

from gemmbench.ladder import own
from gemmbench.ladder import variant as entry
from gemmbench.ladder.formulas import FormulaText, holds, published_formula
from gemmbench.ladder.variant import PIXEL, Constraint, Needs, Parameters, Pass, Values, Variant, round_up
from gemmbench.model import kernel_files
from gemmbench.model.device import DeviceFacts
from gemmbench.model.dtypes import DTYPES, FP8_DTYPES, PLAIN_DTYPES
from gemmbench.model.problem import Gemm
from gemmbench.model.units import ceil_div

_LENGTHS = (
    *("m", "n", "k", "lda", "ldb", "ldc", "ta", "tb"),
    *("rows_a", "columns_a", "rows_b", "columns_b", "itemsize"),
)
_TRANSPOSED = ("transpose", "transpose_padded", "transpose_tall", "transpose_bytes")
_COPIES: Mapping[str, Callable[..., Pass]] = {
    name: getattr(entry, name) for name in ("pad", "pad_chunks", "pad_vectors", *_TRANSPOSED)
}
# Phones' cores have a tenth of the registers: a group fits Mali Midgard's 4,096 of 32 bits and Adreno 5xx's
# 12,288. From documents: never timed there.
_PHONES = [f"{family}{dtype}" for family in ("gpu-arm", "gpu-qualcomm") for dtype in ("", ":double")]
_TURNED = {"A": ("m", "k", "A", "lda", "AT", "ldat"), "B": ("k", "n", "B", "ldb", "BT", "ldbt")}  # copies
_ROWS = 8  # of a micro-tile; another kernel is for fewer
_GROUP = 128  # work-items that the article's groups aim at
_MOST_ACROSS = 64


def _article_shape(problem: Gemm, device: DeviceFacts, _: Values) -> dict[str, int]:
    """WX and WY, powers of two, by the article's rules: the fewest work-items past C, then enough groups."""
    across = ceil_div(problem.n, PIXEL)
    rows = 1 if problem.m < _ROWS else _ROWS
    down = ceil_div(problem.m, rows)
    most = min(device.max_work_group_size, _GROUP)
    sides = [1 << bit for bit in range(8)]

    def cost(shape: tuple[int, int]) -> tuple[float, ...]:
        x, y = shape
        started = round_up(max(across, 1), x) * round_up(max(down, 1), y)
        groups = started // (x * y)
        return (started, groups < device.compute_units, -x * y, abs(x * PIXEL - y * rows))

    limits = (*device.max_work_item_sizes, most, most)
    shapes = [
        (x, y)
        for x in sides
        for y in sides
        if x * y <= most and x <= min(limits[0], _MOST_ACROSS) and y <= limits[1]
    ]
    wide, tall = min(shapes, key=cost)
    return {"WX": wide, "WY": tall}


_CHOOSERS: Mapping[str, entry.Chooser] = {
    "": lambda *_: {},
    "python": lambda *_: {},  # a module here has another
    "article_shape": _article_shape,
}


class _Parameter(own.ParameterTable):
    least: int | None = None


class _Copy(msgspec.Struct, forbid_unknown_fields=True):
    """What launches read in place of an operand, if a rule holds."""

    buffer: str
    ld: str
    when: str


class _Launch(msgspec.Struct, forbid_unknown_fields=True):
    """One launch; what it leaves out is the description's own."""

    kernel: str = ""
    file: str = ""
    copy: str = ""  # of `_COPIES`: a kernel that copies an operand, instead
    role: entry.Role = "multiply"
    arguments: tuple[str, ...] = ()
    work_group: tuple[FormulaText, ...] = ()
    work_items: tuple[FormulaText, ...] = ()
    any_group: bool | None = None
    once: bool = False
    when: tuple[str, ...] = ()  # rules, for the problems that it is for


class KernelDescription(msgspec.Struct, forbid_unknown_fields=True):
    """What a published kernel's file says of it. The keys of `own.Description` mean the same here."""

    name: str
    family: str
    idea: str
    source: str
    work_group: tuple[FormulaText, ...]
    tile: tuple[FormulaText, ...] = ()  # of C: rows and columns
    work_items: tuple[FormulaText, ...] = ()
    any_group: bool = False  # the kernel does not depend on the group
    kernel: str = ""
    arguments: tuple[str, ...] = entry.ARGUMENTS
    types: tuple[str, ...] = PLAIN_DTYPES
    before: str = ""  # the kernel that follows it in the ladder, if that is not the next file's
    each: str = ""  # a parameter: there is a kernel for each of its values, {...} in name and idea
    transposed: tuple[Literal["A", "B"], ...] = ()
    either: tuple[Literal["A", "B"], ...] = ()  # operands that it reads as they are stored
    batches: bool = False
    launches: tuple[_Launch, ...] = ()  # if they are several
    copies: dict[Literal["A", "B"], tuple[_Copy, ...]] = {}  # the first one whose rule holds is read
    terms: dict[str, FormulaText] = {}  # that formulas name; a known value of the same name counts instead
    extents: dict[str, FormulaText] = {}  # lengths for arguments and formulas
    temporaries: dict[str, FormulaText] = {}  # buffers: elements
    images: dict[str, entry.Image] = {}
    parameters: dict[str, _Parameter] = {}
    presets: dict[str, dict[str, int]] = {}  # "phone": small enough for their GPUs, see `_PHONES`
    named: dict[str, entry.Named] = {}
    constraints: tuple[tuple[str, ...], ...] = ()  # rules, and the sentence if one of them is broken
    choose: str = ""  # of `_CHOOSERS`: gives the parameters without a default
    chosen: tuple[str, ...] = ()  # what it gives in addition
    edge: FormulaText = ""  # the longest side of a tile, if it has no `tile`
    local: FormulaText = 0
    options: tuple[str, ...] = ()
    device: Literal["", "cpu", "gpu"] = ""
    hardware: str = ""  # that a module of Python looks for
    stored: tuple[str, ...] = ()  # types that are so in memory only, and float in the kernel
    matrix: bool = False  # it multiplies all of its types with matrix units
    sums: dict[str, str] = {}  # the types of sums, by type, if they are not C's
    extensions: tuple[str, ...] = ()
    type_extensions: dict[str, tuple[str, ...]] = {}  # in addition, by type
    sub_group: FormulaText = ""  # work-items of a sub-group; 0 needs none, and no extension either
    not_on: dict[str, str] = {}  # by driver, why not, though it lists the first extension


def _read_variants() -> dict[str, Variant]:
    """The described kernels by name, in the order of the ladder."""
    variants: list[Variant] = []
    for path in sorted((kernel_files.folder() / "gemm").glob("*.cl")):
        file = f"gemm/{path.name}"
        if text := kernel_files.description(file):
            described = msgspec.toml.decode(text, type=KernelDescription)
            names = [each.name for each in variants]
            index = names.index(described.before) if described.before else len(names)
            variants[index:index] = [_Reader(file, each).variant() for each in _each(described)]
    return {variant.name: variant for variant in variants}


def _each(described: KernelDescription) -> Iterator[KernelDescription]:
    """A description for each value of its ``each`` parameter, or just itself."""
    if not (name := described.each):
        yield described
        return
    for value in described.parameters[name].values:
        called, idea = (text.replace(f"{{{name}}}", str(value)) for text in (described.name, described.idea))
        only = msgspec.structs.replace(described.parameters[name], values=(value,), default=value)
        rule = f"{name} == {value}", f"{name} is {value} in {called}"
        yield msgspec.structs.replace(
            described,
            name=called,
            idea=idea,
            parameters={**described.parameters, name: only},
            constraints=(rule, *described.constraints),
        )


class _Reader:
    """Makes the variant of a description."""

    def __init__(self, file: str, described: KernelDescription) -> None:
        self.file, self.of = file, described
        self.made: dict[FormulaText, entry.Formula] = {}
        turned = [_TURNED[name] for name in described.transposed]
        extents = {ld: rows for rows, *_, ld in turned} | described.extents
        areas = {target: f"{rows} * {columns}" for rows, columns, _, _, target, _ in turned}
        self.names = (*_LENGTHS, *described.parameters, *described.chosen, *extents, *described.terms)
        self.terms: dict[str, entry.Formula] = {}
        self.terms |= self.formulas(described.terms)  # which name each other
        self.extents, self.temporaries = self.formulas(extents), self.formulas(areas | described.temporaries)

    def formula(self, text: FormulaText) -> entry.Formula:
        if text not in self.made:
            self.made[text] = published_formula(text, self.names, self.terms)
        return self.made[text]

    def formulas(self, texts: Mapping[str, FormulaText]) -> dict[str, entry.Formula]:
        return {name: self.formula(text) for name, text in texts.items()}

    def names_in(self, texts: Iterable[FormulaText]) -> frozenset[str]:
        """The names in formulas, and in the terms that they name."""
        names = {name for text in texts for name in re.findall(r"\w+", str(text))}
        terms = [self.of.terms[name] for name in sorted(names & self.of.terms.keys())]
        return frozenset(names) | (self.names_in(terms) if terms else frozenset())

    def sides(self, texts: Sequence[FormulaText]) -> Callable[[Values], tuple[int, ...]]:
        formulas = [self.formula(text) for text in texts]
        return lambda values: tuple(each(values) for each in formulas)

    def tile(self) -> Callable[[Values], tuple[int, int]] | None:
        if not self.of.tile:
            return None
        rows, columns = map(self.formula, self.of.tile)
        return lambda values: (rows(values), columns(values))

    def rule(self, texts: Sequence[str]) -> entry.Rule:
        rules = [self.formula(text) for text in texts]
        return lambda values: all(rule(values) for rule in rules)

    def variant(self) -> Variant:
        described = self.of
        edge = described.edge or ("max({}, {})".format(*described.tile) if described.tile else 16)
        variant = Variant(
            name=described.name,
            family=described.family,
            idea=described.idea,
            source=described.source,
            launches=entry.Launches(
                passes=self.passes(),
                terms=self.terms,
                extents=self.extents,
                temporaries=self.temporaries,
                images=described.images,
                edge=self.formula(edge),
                tile=self.tile() if len(described.work_group) == 2 else None,
                batches=described.batches,
                either=described.either,
            ),
            parameters=self.parameters(),
            needs=self.needs(),
            compilation=entry.Compilation(self.type_options, described.options),
        )
        if described.choose != "python":
            inert = frozenset(described.parameters.keys() - self.names_in(self.made))
            variant = replace(variant, parameters=replace(variant.parameters, inert=inert))
        return _of_fp8(variant) if set(described.types) <= set(FP8_DTYPES) else variant

    def passes(self) -> tuple[Pass, ...]:
        copies = [entry.transpose(*_TURNED[name]) for name in self.of.transposed]
        passes = [self.passes_of(launch) for launch in self.of.launches or (_Launch(),)]
        return (*copies, *chain(*passes))

    def passes_of(self, launch: _Launch) -> Iterator[Pass]:
        """Yield a pass, with its rule, for each choice of operands and copies of them as arguments."""
        if launch.copy:
            yield replace(_COPIES[launch.copy](*launch.arguments), when=self.rule(launch.when))
            return
        described = self.of
        arguments = launch.arguments or described.arguments
        copies = [_TURNED[name] for name in described.transposed]
        turned = {
            name: new for _, _, a, ld, copy, copy_ld in copies for name, new in ((a, copy), (ld, copy_ld))
        }
        choices = [self.choices(name) for name in described.copies if name in arguments]
        for chosen in product(*choices):
            read, rules = dict(turned), [*launch.when]
            for operands, more in chosen:
                read |= operands
                rules += more
            yield Pass(
                launch.role,
                launch.file or self.file,
                launch.kernel or described.kernel or described.name.replace("-", "_"),
                tuple(read.get(name, name) for name in arguments),
                self.items(launch),
                self.sides(launch.work_group or described.work_group),
                self.rule(rules),
                any_group=described.any_group if launch.any_group is None else launch.any_group,
                once=launch.once,
            )

    def choices(self, name: Literal["A", "B"]) -> list[tuple[dict[str, str], list[str]]]:
        """What may be read in place of an operand and its leading dimension, with the rules for that."""
        choices: list[tuple[dict[str, str], list[str]]] = []
        others: list[str] = []
        for copy in self.of.copies[name]:
            choices.append(({name: copy.buffer, f"ld{name.lower()}": copy.ld}, [*others, copy.when]))
            others.append(f"not ({copy.when})")
        return [({}, others), *choices]

    def items(self, launch: _Launch) -> entry.Shape:
        if wanted := launch.work_items or self.of.work_items:
            return self.sides(wanted)
        tile, group = self.tile(), self.sides(launch.work_group or self.of.work_group)
        assert tile is not None  # what has no work-items has tiles

        def items(values: Values) -> tuple[int, ...]:
            rows, columns = tile(values)
            return own.items_of_tiles(
                ceil_div(values["m"], rows), ceil_div(values["n"], columns), group(values)
            )

        return items

    def needs(self) -> Needs:
        described, sub_group = self.of, self.formula(self.of.sub_group or 0)

        def lacks(device: DeviceFacts, dtype: str) -> str:
            if dtype in described.stored:
                return ""
            reason = described.not_on.get(device.family.partition("-")[2], "")
            is_listed = reason and described.extensions[0] in device.extensions
            return reason if is_listed else entry.unsupported_type(device, dtype)

        return Needs(
            dtypes=described.types,
            sums=described.sums,
            matrix_units=described.types if described.matrix else (),
            device_type=described.device,
            hardware=described.hardware,
            lacks=lacks,
            extensions=lambda p: described.extensions if not described.sub_group or sub_group(p) else (),
            type_extensions=described.type_extensions,
            sub_group=sub_group,
            local_elements=self.formula(described.local),
        )

    def type_options(self, dtype: str) -> tuple[str, ...]:
        return ("-DREAL_float", f"-DSTORED_{dtype}") if dtype in self.of.stored else (f"-DREAL_{dtype}",)

    def parameters(self) -> Parameters:
        described, given = self.of, self.of.parameters
        fixed = (name for name, each in given.items() if each.default is not None or not described.choose)
        default = {name: given[name].preset for name in fixed}
        presets: dict[str, Values] = {"default": default} if default else {}
        for kind, values in described.presets.items():
            presets |= dict.fromkeys(_PHONES, values) if kind == "phone" else {kind: values}
        return Parameters(
            {name: own.parameter(name, each, each.least) for name, each in given.items()},
            presets=presets,
            named=described.named,
            constraints=tuple(
                Constraint(holds(*map(self.formula, rules)), sentence, self.names_in(rules))
                for *rules, sentence in described.constraints
            ),
            choose=_CHOOSERS[described.choose],
        )


def _of_fp8(variant: Variant) -> Variant:
    """The variant for fp8, whose kernel needs only bytes and floats."""

    def options(dtype: str) -> tuple[str, ...]:
        stored, _, result = dtype.partition("-")
        return "-DREAL_uchar", f"-DFP8_{stored}", f"-DRESULT_{result or 'float'}"

    sums = {name: "float" for name in variant.needs.dtypes if DTYPES[name].result != "float"}
    needs = replace(variant.needs, lacks=lambda *_: "", sums=sums)
    return replace(variant, needs=needs, compilation=replace(variant.compilation, of_type=options))


DESCRIBED: Mapping[str, Variant] = _read_variants()
"""By name, in the order of files. A module here chooses the parameters of some."""
