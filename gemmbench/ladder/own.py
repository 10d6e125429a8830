"""A user's own kernel as a variant, made from the TOML in its file; see docs/own-kernels.md."""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from gemmbench.ladder import variant as entry
from gemmbench.ladder.formulas import MOST_VALUE, FormulaText, formula, holds
from gemmbench.ladder.variant import Constraint, Formula, ParameterError, Pass, Values, Variant, round_up
from gemmbench.model.kernel_files import KernelFileError, OwnFile, own_file
from gemmbench.model.problem import Gemm
from gemmbench.model.units import ceil_div

UNPAD = entry.unpad("m", "n", "CP", "np", "C", "ldc")  # behind a kernel whose operands were padded
_NEEDED = ("A", "B", "C")
_OFFSETS = ("offa", "offb", "offc")
_SWAPPED = {"m": "n", "n": "m", "A": "B", "B": "A", "lda": "ldb", "ldb": "lda"}  # of a column-major kernel
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,39}")
_MACRO = re.compile(r"(?!REAL|(SCALAR|CAT_?)$)[A-Z][A-Z0-9_]{0,39}")  # not those of common.clh
_FLAG = re.compile(r"-(cl-[a-z0-9-]+(=[A-Za-z0-9.]+)?|D[A-Za-z_]\w*(=[\w.+-]+)?|w)")
_COMMENT = re.compile(r"/\*.*?\*/|//[^\n]*", re.DOTALL)
_DIRECTIVE = re.compile(r"^\s*#(?:\\\n|[^\n])*", re.MULTILINE)
_KERNEL, _WORD = re.compile(r"\b(?:__)?kernel\b"), re.compile(r"\s*([A-Za-z_]\w*)\s*")
_LOCAL_MACRO = re.compile(r"#\s*define\s+(\w+)\s[^\n]*\b(?:__)?local\b")
_SECOND = re.compile(r"\b(get_(?:global|group)_id)\s*\(\s*1\s*\)")
_ASKS_SIZE = re.compile(r"\bget_(?:global_size|num_groups)\b")
_MOST_VALUES = 100
_MOST_COMBINATIONS = 250_000  # which take seconds to look through
_LEAST_EDGE, _MOST_EDGE = 8, 256

_Value = Annotated[int, Meta(ge=0, le=MOST_VALUE)]
_Choices = Annotated[tuple[_Value, ...], Meta(min_length=1, max_length=_MOST_VALUES)]
_Sides = Annotated[tuple[FormulaText, ...], Meta(min_length=1, max_length=3)]


class ParameterTable(msgspec.Struct, forbid_unknown_fields=True):
    """A parameter; the default is the first value, if none is given."""

    values: _Choices
    default: int | None = None
    idea: str = ""
    launch: bool = False  # of the launch alone: no -D

    @property
    def preset(self) -> int:
        return self.values[0] if self.default is None else self.default


class Description(msgspec.Struct, forbid_unknown_fields=True):
    """What a user says of a kernel: the keys of the TOML."""

    arguments: tuple[str, ...]
    work_group: _Sides
    # Of C that a work-group computes: rows, columns and, if you like, depth.
    tile: Annotated[tuple[FormulaText, ...], Meta(min_length=2, max_length=3)]
    name: str = ""
    kernel: str = ""
    idea: str = ""
    work_items: Annotated[tuple[FormulaText, ...], Meta(max_length=3)] = ()
    types: Annotated[tuple[Literal["half", "float", "double"], ...], Meta(min_length=1)] = ("float",)
    order: Literal["row-major", "column-major"] = "row-major"
    transposed: tuple[Literal["A", "B"], ...] = ()
    pad: bool = False
    parameters: dict[str, _Choices | ParameterTable] = {}
    presets: dict[str, dict[str, int]] = {}
    constraints: tuple[str, ...] = ()
    local: FormulaText = 0  # elements of local memory
    options: tuple[str, ...] = ()
    extensions: tuple[str, ...] = ()
    device: Literal["", "cpu", "gpu"] = ""


def own_kernel(path: str | Path) -> Variant:
    """The variant of a user's ``.cl`` file, described in the file or in a ``.toml`` of the same name.

    Raises `KernelFileError`; the sentence names file and field.
    """
    return read_variant(own_file(Path(path)))


@lru_cache(maxsize=32)
def read_variant(file: OwnFile) -> Variant:
    """The variant that a user's file describes. Raises `KernelFileError`."""
    description = file.description
    try:
        return _Reader(file, msgspec.toml.decode(description, type=Description)).variant()
    except msgspec.ValidationError as error:
        text = str(error).replace("Object contains unknown field", "there is no field")
        text = text.replace("Object missing required field", "it lacks the field").replace("`$.", "`")
        raise KernelFileError(f"{file.toml or file.name}: {text[0].lower()}{text[1:]}") from None
    except msgspec.DecodeError as error:
        raise KernelFileError(f"{file.toml or file.name}: {error}") from None
    except ValueError as error:  # of a formula, a parameter
        raise KernelFileError(f"{file.name}: {error}") from None


@dataclass
class _Reader:
    file: OwnFile
    of: Description
    extents: dict[str, Formula] = field(default_factory=dict)
    temporaries: dict[str, Formula] = field(default_factory=dict)
    parameters: dict[str, entry.Parameter] = field(default_factory=dict)

    def variant(self) -> Variant:
        described = self.of
        name = described.name or Path(self.file.name).stem
        if not NAME.fullmatch(name):
            raise ValueError(f"name = {name!r}: letters, digits, dots, dashes and underscores, 40 at most")
        given = {
            name: each if isinstance(each, ParameterTable) else ParameterTable(each)
            for name, each in described.parameters.items()
        }
        self.parameters |= {name: parameter(name, each) for name, each in given.items()}
        combinations = math.prod(len(each.values) for each in self.parameters.values())
        if combinations > _MOST_COMBINATIONS:
            raise ValueError(f"parameters have {combinations:,} combinations, at most {_MOST_COMBINATIONS:,}")
        for flag in described.options:
            if not _FLAG.fullmatch(flag):
                raise ValueError(f"options: {flag!r} is none: they begin with -cl- or -D, one word each")
        group = self._formulas("work_group", described.work_group)
        tile = self._formulas("tile", described.tile)
        local = self._formula("local", described.local)
        sides = tile[:2] if described.order == "row-major" else tile[1::-1]  # of the row-major C
        variant = Variant(
            name=name,
            family=entry.OWN,
            idea=described.idea or f"your own kernel, {self.file.name}",
            source=self.file.name,
            launches=entry.Launches(
                passes=self._passes(group, tile),
                extents=self.extents,
                temporaries=self.temporaries,
                edge=lambda values: min(max(_LEAST_EDGE, *(each(values) for each in tile)), _MOST_EDGE),
                by_columns=described.order == "column-major",
                doubt=self._doubt(),
                without=self._without(),
                tile=lambda values: (sides[0](values), sides[1](values)),
            ),
            parameters=entry.Parameters(
                self.parameters,
                presets=self._presets(given),
                constraints=(
                    *map(self._constraint, described.constraints),
                    _positive("work_group", group),
                    _positive("tile", tile),
                ),
            ),
            needs=entry.Needs(
                device_type=described.device,
                extensions=lambda _: described.extensions,
                local_elements=local,
                dtypes=described.types,
            ),
            compilation=entry.Compilation(flags=described.options),
            own=self.file,
        )
        _try(variant)
        return variant

    def _constraint(self, text: str) -> Constraint:
        rule = self._formula("constraints", text, (*self.parameters, "itemsize"), is_rule=True)
        return Constraint(holds(rule), f"{text} must hold")

    def _presets(self, given: Mapping[str, ParameterTable]) -> dict[str, dict[str, int]]:
        """The presets, and ``default`` with the default or first values."""
        for kind, values_of in self.of.presets.items():
            if not re.fullmatch(r"(cpu|gpu)(-[a-z]+)?(:[a-z0-9]+)?", kind):
                raise ValueError(f"presets: {kind!r} is no kind of device: cpu, gpu, gpu-nvidia, gpu:double")
            if unknown := next((name for name in values_of if name not in given), ""):
                raise ValueError(f"presets: {kind} names {unknown}, which is no parameter")
        return {"default": {name: each.preset for name, each in given.items()}, **self.of.presets}

    def _formula(
        self, key: str, text: FormulaText, names: Collection[str] | None = None, is_rule: bool = False
    ) -> Formula:
        """A formula of `names`, by default of the parameters."""
        try:
            return formula(text, self.parameters if names is None else names, is_rule)
        except ValueError as error:
            raise ValueError(f"{key}: {error}") from None

    def _formulas(self, key: str, texts: Sequence[FormulaText]) -> tuple[Formula, ...]:
        return tuple(self._formula(key, text) for text in texts)

    def _operand(self, name: str) -> str:
        return _SWAPPED.get(name, name) if self.of.order == "column-major" else name

    def _without(self) -> tuple[str, ...]:
        """The arguments of a GEMM that the kernel lacks, except those of copied operands."""
        in_place = {"lda": not self._is_copied("A"), "ldb": not self._is_copied("B"), "ldc": not self.of.pad}
        left_out = (name for name in ("alpha", "beta", "lda", "ldb", "ldc") if name not in self.of.arguments)
        return tuple(self._operand(name) for name in left_out if in_place.get(name, True))

    def _is_copied(self, name: str) -> bool:
        return self.of.pad or name in self.of.transposed

    def _passes(self, group: Sequence[Formula], tile: Sequence[Formula]) -> tuple[Pass, ...]:
        """Copies of operands, the kernel, and unpadding C. Adds to `extents` and `temporaries`."""
        described = self.of
        sides = {"m": tile[0], "n": tile[1], "k": tile[2] if len(tile) > 2 else None}
        lengths = {name: self._operand(name) for name in "mnk"}  # the kernel's, as the problem has them
        if described.pad:
            for name, side in sides.items():
                length = lengths[name]
                lengths[name] = padded = f"{length}p"
                self.extents[padded] = _rounded(length, side)
        self.extents |= {name: lambda _: 0 for name in described.arguments if name in _OFFSETS}
        name = self._kernel()
        before, held = self._copies(lengths)
        arguments = tuple(self._argument(text, lengths, held) for text in described.arguments)
        if missing := [name for name in _NEEDED if name not in described.arguments]:
            raise ValueError(f"arguments: {', '.join(missing)} is missing, without which there is no product")
        twice = sorted({name for name in described.arguments if described.arguments.count(name) > 1})
        if twice and set(twice) & set(_NEEDED):
            raise ValueError(f"arguments: {twice[0]} stands there twice")
        self._check_lengths()
        kernel = Pass(
            "multiply", self.file.key, name, arguments,
            self._items(group, tile, lengths),
            lambda values: tuple(side(values) for side in group),
        )  # fmt: skip
        return (*before, kernel, *([UNPAD] if described.pad else []))

    def _copies(self, lengths: Mapping[str, str]) -> tuple[list[Pass], dict[str, str]]:
        """The launches that copy operands, and the arguments that replace them."""
        held = {name: self._operand(name) for name in ("A", "lda", "B", "ldb", "C", "ldc")}
        passes = []
        by_length = {self._operand(name): length for name, length in lengths.items()}
        for name, ld in (("A", "lda"), ("B", "ldb")):
            if not self._is_copied(name):
                continue
            operand, row = self._operand(name), self._operand(ld)  # as the problem has them
            rows, columns = ("m", "k") if operand == "A" else ("k", "n")
            target = by_length[rows], by_length[columns]
            copy = f"{operand}P"
            if name in self.of.transposed:
                target = target[1], target[0]
                passes.append(entry.transpose_padded(rows, columns, operand, row, *target, copy, target[1]))
            else:
                passes.append(entry.pad(rows, columns, operand, row, *target, copy))
            held[name], held[ld] = copy, target[1]
            self.temporaries[copy] = _area(*target)
        if self.of.pad:
            self.temporaries["CP"] = _area("mp", "np")
            if "beta" in self.of.arguments:
                passes.append(entry.pad("m", "n", "C", "ldc", "mp", "np", "CP"))
            held["C"], held["ldc"] = "CP", "np"
        return passes, held

    def _argument(self, text: str, lengths: Mapping[str, str], held: Mapping[str, str]) -> str:
        """The name of an argument's value; a formula goes to `extents` under its text."""
        if text in ("alpha", "beta", *_OFFSETS):
            return text
        passed = {**lengths, **held}
        if text in passed:
            return passed[text]
        known = {name: passed[name] for name in (*lengths, "lda", "ldb", "ldc")}
        made = self._formula("arguments", text, (*known, *self.parameters))
        self.extents[text] = lambda values: made(_renamed(values, known))
        return text

    def _doubt(self) -> str:
        """A sentence if work_group has one direction, and the code asks for a second one."""
        asked = _SECOND.search(_COMMENT.sub(" ", self.file.text))
        if len(self.of.work_group) > 1 or not asked:
            return ""
        group = f"[{self.of.work_group[0]}, 1]"
        return f"{asked[1]}(1) is always 0, because work_group has one direction; {group} has two"

    def _check_lengths(self) -> None:
        """`ValueError` if the kernel does not get a length that it needs."""
        described = self.of
        given = set(re.findall(r"\w+", " ".join(described.arguments)))
        spare = {"m", "n"}
        if not _ASKS_SIZE.search(self.file.text):
            row, lds = ("n", {"ldb", "ldc"}) if described.order == "row-major" else ("m", {"lda", "ldc"})
            whole = {name for name, side in zip("mn", described.tile, strict=False) if str(side) == "1"}
            spare = (spare if described.pad else whole) - (set() if lds <= given else {row})
        if missing := [name for name in "mnk" if name not in given | spare]:
            verb = "is" if len(missing) == 1 else "are"
            why = "gemmbench runs a kernel at several sizes, so no length can be compiled in"
            raise ValueError(f"arguments: {', '.join(missing)} {verb} missing: {why}")

    def _kernel(self) -> str:
        """The name of the kernel: as described, or the only one."""
        code = _COMMENT.sub(" ", self.file.text)
        macros = re.findall(r"#\s*define\s+(\w+)", code) + re.findall(r"-D(\w+)", " ".join(self.of.options))
        signatures = [
            ("" if name in macros else name, parameters)
            for name, parameters in _signatures(_DIRECTIVE.sub("", code))
        ]
        functions = list(dict.fromkeys(name for name, _ in signatures))
        there = ", ".join(filter(None, functions))
        name = self.of.kernel
        if not name and functions == [""]:
            raise ValueError('a macro makes the name of the kernel: kernel = "NAME" says what it is')
        if not name and len(functions) != 1:
            several = f"has {len(functions)} kernels ({there or 'named by macros'})"
            what = several if functions else "has no visible __kernel void"
            raise ValueError(f'the file {what}: kernel = "NAME" says which is launched')
        if name and not re.search(rf"\b{re.escape(name)}\b|##", f"{code} {' '.join(self.of.options)}"):
            raise ValueError(f"kernel = {name!r} is not in the file (there is {there or 'none visible'})")
        name = name or functions[0]
        of_kernel = [text for other, text in signatures if other == (name if name in functions else "")]
        local = {"local", "__local", *_LOCAL_MACRO.findall(code)}
        if of_kernel and all(local & set(re.findall(r"\w+", text)) for text in of_kernel):
            raise ValueError(
                f"{name}: local memory as an argument is not supported; declare it in the kernel"
            )
        return name

    def _items(
        self, group: Sequence[Formula], tile: Sequence[Formula], lengths: Mapping[str, str]
    ) -> entry.Shape:
        """Work-items: as described, or a work-group for each tile of C."""
        if count := len(self.of.work_items):
            if count != len(group):
                raise ValueError(f"work_items has {count} formulas and work_group {len(group)}")
            names = (*lengths, *self.parameters)
            wanted = [self._formula("work_items", text, names) for text in self.of.work_items]
            return lambda values: tuple(each(_renamed(values, lengths)) for each in wanted)
        if len(group) > 2:
            raise ValueError("work_group has three directions: say with work_items how many items there are")

        def items(values: Values) -> tuple[int, ...]:
            down = ceil_div(values[lengths["m"]], tile[0](values))
            across = ceil_div(values[lengths["n"]], tile[1](values))
            sides = [side(values) for side in group]
            tiles = (down, across) if self.of.order == "row-major" else (across, down)
            return items_of_tiles(*tiles, sides)

        return items


def parameter(name: str, given: ParameterTable, least: int | None = None) -> entry.Parameter:
    """The parameter; `least` is by default 0 or 1. `ValueError` if name or values are wrong."""
    if not _MACRO.fullmatch(name):
        raise ValueError(
            f"parameters: {name} is no name for one: capital letters, digits and underscores, and not a "
            "macro of common.clh"
        )
    values = tuple(sorted(given.values))
    if len(set(values)) != len(values):
        raise ValueError(f"parameters: {name} has a value twice")
    least = least if least is not None else 0 if 0 in values else 1
    return entry.Parameter(given.idea or "of the file", values, given.launch, least)


def items_of_tiles(down: int, across: int, group: Sequence[int]) -> tuple[int, ...]:
    """Work-items of a group for each tile, in as many directions as a group has, across first."""
    return (down * across * group[0],) if len(group) == 1 else (across * group[0], down * group[1])


def _signatures(code: str) -> Iterator[tuple[str, str]]:
    """Yield name ("" if a macro makes it) and parameters of each kernel in bare code."""
    for keyword in _KERNEL.finditer(code):
        word = _WORD.match(code, keyword.end())
        while word:
            end = word.end()
            if code[end : end + 1] != "(":  # a qualifier
                word = _WORD.match(code, end)
                continue
            close = _closing(code, end)
            following = code[close:].lstrip()
            if word[1] == "__attribute__" or re.match(r"(?!__attribute__)[A-Za-z_]", following):
                word = _WORD.match(code, close)  # an attribute, or a macro for one
                continue
            if following.startswith("("):
                begin = code.index("(", close)
                yield "", code[begin : _closing(code, begin)]
            else:
                yield word[1], code[end:close]
            break


def _closing(code: str, begin: int) -> int:
    """The index behind the parenthesis that closes the one at `begin`."""
    depth = 0
    for match in re.compile(r"[()]").finditer(code, begin):
        depth += 1 if match[0] == "(" else -1
        if not depth:
            return match.end()
    return len(code)


def _renamed(values: Values, names: Mapping[str, str]) -> dict[str, int]:
    return {**values, **{name: values[other] for name, other in names.items()}}


def _rounded(length: str, side: Formula | None) -> Formula:
    return lambda values: round_up(values[length], side(values)) if side else values[length]


def _area(rows: str, columns: str) -> Formula:
    return lambda values: values[rows] * values[columns]


def _positive(name: str, sides: Sequence[Formula]) -> Constraint:
    return Constraint(
        lambda values: all(holds(side)(values) and side(values) > 0 for side in sides),
        f"{name} must be 1 or more in every direction",
    )


def _try(variant: Variant) -> None:
    """Evaluate every formula with each preset. `ParameterError` if one fails."""
    for kind in variant.parameters.presets:
        family, _, dtype = kind.partition(":")
        dtype = dtype if dtype in variant.needs.dtypes else variant.needs.dtypes[0]
        values = variant.values(Gemm(64, 64, 64, dtype), variant.preset(family, dtype=dtype))
        variant.local_bytes(dtype, values)
        for step in variant.steps(values):
            if min(step.items(values)) < 1:
                raise ParameterError("work_items is below 1 for a product of 64 x 64 x 64")
            math.prod(step.group(values))
