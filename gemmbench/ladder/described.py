"""The kernels that their ``.cl`` files describe, in the comment that users write in theirs.

`KernelDescription` has more keys than a user's. A new kernel is a new file.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Literal

import msgspec

from gemmbench.ladder import own
from gemmbench.ladder import variant as entry
from gemmbench.ladder.own import FormulaText
from gemmbench.ladder.variant import PIXEL, Constraint, Needs, Parameters, Pass, Values, Variant, round_up
from gemmbench.model import kernel_files
from gemmbench.model.device import DeviceFacts
from gemmbench.model.dtypes import DTYPES, FP8_DTYPES, PLAIN_DTYPES
from gemmbench.model.problem import Gemm
from gemmbench.model.units import ceil_div

formula = partial(own.formula, most=math.inf)  # buffers may have more than 2^31 elements

_LENGTHS = ("m", "n", "k", "lda", "ldb", "ldc", "ta", "tb", "rows_a", "columns_a", "rows_b", "columns_b")
_COPIES: Mapping[str, Callable[..., Pass]] = {
    "pad": entry.pad,
    "transpose": entry.transpose,
    "transpose_padded": entry.transpose_padded,
}
# Phones' cores have a tenth of the registers: a group fits Mali Midgard's 4,096 of 32 bits and Adreno 5xx's
# 12,288. From documents: never timed there.
_PHONES = [f"{family}{dtype}" for family in ("gpu-arm", "gpu-qualcomm") for dtype in ("", ":double")]
_TURNED = {"A": ("m", "k", "A", "lda", "AT", "ldat"), "B": ("k", "n", "B", "ldb", "BT", "ldbt")}  # copies
_ROWS = 8  # of a micro-tile; another kernel is for fewer
_GROUP = 128  # work-items that the article's groups aim at
_MOST_ACROSS = 64


def _article_shape(problem: Gemm, device: DeviceFacts, _: Values) -> dict[str, int]:
    """WX and WY, powers of two, by an article's rules: at most 128 work-items, at most 64 across.

    Fewest work-items past C count first, then a group for every unit, most work-items and the squarest area.
    """
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


_CHOOSERS: Mapping[str, entry.Chooser] = {"": lambda *_: {}, "article_shape": _article_shape}


class _Parameter(own.ParameterTable):
    least: int | None = None


class _Launch(msgspec.Struct, forbid_unknown_fields=True):
    """One launch; what it leaves out is the description's own."""

    kernel: str = ""
    copy: Literal["", "pad", "transpose", "transpose_padded"] = ""  # a kernel that copies an operand, instead
    role: entry.Role = "multiply"
    arguments: tuple[str, ...] = ()
    work_group: tuple[FormulaText, ...] = ()
    work_items: tuple[FormulaText, ...] = ()
    any_group: bool | None = None
    when: tuple[str, ...] = ()  # rules, for the problems that it is for


class KernelDescription(msgspec.Struct, forbid_unknown_fields=True):
    """What a published kernel's file says of it. The keys of `own.Description` mean the same here."""

    name: str
    family: str
    idea: str
    source: str
    work_group: tuple[FormulaText, ...] = ()  # without one, a module of Python launches it
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
    extents: dict[str, FormulaText] = {}  # lengths for arguments and formulas
    temporaries: dict[str, FormulaText] = {}  # buffers: elements
    images: dict[str, entry.Image] = {}
    parameters: dict[str, _Parameter] = {}
    presets: dict[str, dict[str, int]] = {}  # "phone": small enough for their GPUs, see `_PHONES`
    named: dict[str, entry.Named] = {}
    constraints: tuple[tuple[str, ...], ...] = ()  # rules, and the sentence if one of them is broken
    choose: str = ""  # of `_CHOOSERS`: gives the parameters without a default
    edge: FormulaText = ""  # the longest side of a tile, if it has no `tile`
    local: FormulaText = 0
    options: tuple[str, ...] = ()
    extensions: tuple[str, ...] = ()
    type_extensions: dict[str, tuple[str, ...]] = {}  # in addition, by type
    sub_group: FormulaText = ""  # work-items of a sub-group; 0 needs none, and no extension either
    not_on: dict[str, str] = {}  # by driver, why not, though it lists the first extension


def _read_variants() -> dict[str, Variant]:
    """The described kernels by name, in the order of the ladder. Raises `ValueError` if a file is wrong."""
    variants: list[Variant] = []
    for path in sorted((kernel_files.folder() / "gemm").glob("*.cl")):
        file = f"gemm/{path.name}"
        if text := kernel_files.description(file):
            described = msgspec.toml.decode(text, type=KernelDescription)
            names = [each.name for each in variants]
            index = names.index(described.before) if described.before else len(names)
            variants[index:index] = [_variant(file, each) for each in _each(described)]
    return {variant.name: variant for variant in variants}


def _each(described: KernelDescription) -> Iterator[KernelDescription]:
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


def _variant(file: str, described: KernelDescription) -> Variant:
    turned = [_TURNED[name] for name in described.transposed]
    extents = {ld: rows for rows, *_, ld in turned} | described.extents
    areas = {target: f"{rows} * {columns}" for rows, columns, _, _, target, _ in turned}
    known = (*_LENGTHS, *described.parameters, *extents)
    edge = described.edge or ("max({}, {})".format(*described.tile) if described.tile else 16)
    variant = Variant(
        name=described.name,
        family=described.family,
        idea=described.idea,
        source=described.source,
        launches=entry.Launches(
            passes=_passes(file, described, known),
            extents=_formulas(extents, known),
            temporaries=_formulas(areas | described.temporaries, known),
            images=described.images,
            edge=formula(edge, known),
            batches=described.batches,
            either=described.either,
        ),
        parameters=_parameters(described),
        needs=_needs(described),
        compilation=entry.Compilation(flags=described.options),
    )
    return _of_fp8(variant) if set(described.types) <= set(FP8_DTYPES) else variant


def _formulas(texts: Mapping[str, FormulaText], names: Collection[str]) -> dict[str, entry.Formula]:
    return {name: formula(text, names) for name, text in texts.items()}


def _passes(file: str, described: KernelDescription, names: Collection[str]) -> tuple[Pass, ...]:
    if not described.work_group:
        return ()
    return (
        *(entry.transpose(*_TURNED[name]) for name in described.transposed),
        *(_pass(file, described, each, names) for each in described.launches or (_Launch(),)),
    )


def _pass(file: str, described: KernelDescription, launch: _Launch, names: Collection[str]) -> Pass:
    rules = [formula(rule, names, is_rule=True) for rule in launch.when]

    def is_for(values: Values) -> bool:
        return all(rule(values) for rule in rules)

    if launch.copy:
        return replace(_COPIES[launch.copy](*launch.arguments), when=is_for)
    group = [formula(text, names) for text in launch.work_group or described.work_group]
    tile = [formula(text, names) for text in described.tile]
    wanted = [formula(text, names) for text in launch.work_items or described.work_items]

    def items(values: Values) -> tuple[int, ...]:
        if wanted:
            return tuple(each(values) for each in wanted)
        down, across = (ceil_div(values[name], side(values)) for name, side in zip("mn", tile, strict=True))
        return own.items_of_tiles(down, across, [side(values) for side in group])

    copies = [_TURNED[name] for name in described.transposed]
    turned = {name: new for _, _, a, ld, copy, copy_ld in copies for name, new in ((a, copy), (ld, copy_ld))}
    return Pass(
        launch.role,
        file,
        launch.kernel or described.kernel or described.name.replace("-", "_"),
        tuple(turned.get(name, name) for name in launch.arguments or described.arguments),
        items,
        lambda values: tuple(side(values) for side in group),
        is_for,
        any_group=described.any_group if launch.any_group is None else launch.any_group,
    )


def _needs(described: KernelDescription) -> Needs:
    names = (*described.parameters, "itemsize")
    sub_group = formula(described.sub_group or 0, names)

    def lacks(device: DeviceFacts, dtype: str) -> str:
        reason = described.not_on.get(device.family.partition("-")[2], "")
        is_listed = reason and described.extensions[0] in device.extensions
        return reason if is_listed else entry.unsupported_type(device, dtype)

    return Needs(
        dtypes=described.types,
        lacks=lacks if described.not_on else entry.unsupported_type,
        extensions=lambda p: described.extensions if not described.sub_group or sub_group(p) else (),
        type_extensions=described.type_extensions,
        sub_group=sub_group,
        local_elements=formula(described.local, names),
    )


def _of_fp8(variant: Variant) -> Variant:
    """The variant for fp8, whose kernel needs only bytes and floats."""

    def options(dtype: str) -> tuple[str, ...]:
        stored, _, result = dtype.partition("-")
        return "-DREAL_uchar", f"-DFP8_{stored}", f"-DRESULT_{result or 'float'}"

    sums = {name: "float" for name in variant.needs.dtypes if DTYPES[name].result != "float"}
    needs = replace(variant.needs, lacks=lambda *_: "", sums=sums)
    return replace(variant, needs=needs, compilation=replace(variant.compilation, of_type=options))


def _parameters(described: KernelDescription) -> Parameters:
    names = (*described.parameters, "itemsize")
    is_chosen = described.choose or not described.work_group
    default = {
        name: each.preset
        for name, each in described.parameters.items()
        if each.default is not None or not is_chosen
    }
    presets: dict[str, Values] = {"default": default} if default else {}
    for kind, values in described.presets.items():
        presets |= dict.fromkeys(_PHONES, values) if kind == "phone" else {kind: values}
    return Parameters(
        {name: _parameter(name, each) for name, each in described.parameters.items()},
        presets=presets,
        named=described.named,
        constraints=tuple(_constraint(rules, sentence, names) for *rules, sentence in described.constraints),
        choose=_CHOOSERS[described.choose],
    )


def _parameter(name: str, given: _Parameter) -> entry.Parameter:
    made = own.parameter(name, given)
    return made if given.least is None else replace(made, least=given.least)


def _constraint(rules: Sequence[str], sentence: str, names: Collection[str]) -> Constraint:
    tests = [own.holds(formula(rule, names, is_rule=True)) for rule in rules]
    return Constraint(lambda values: all(test(values) for test in tests), sentence)


DESCRIBED: Mapping[str, Variant] = _read_variants()
"""By name, in the order of files; those without passes get their launches from a module here."""
