"""Options as fields of frozen dataclasses, of which command line and API are made.

A field's default and its `Spec` are what ``--help`` shows, what the command line takes, and what a keyword
argument of the API may be. What options say together is checked in `__post_init__`.
"""

from __future__ import annotations

import inspect
import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import Field, dataclass, field, fields
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, TypeVar

import click

from gemmbench import UsageError, charts
from gemmbench.model.problem import LONGEST
from gemmbench.suite.options import names


class AnyText(click.types.StringParamType):
    """Text. The API also accepts a number, a path, or a list of them."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        if isinstance(value, (str, int, Path)) and not isinstance(value, bool):
            return str(value)
        if not isinstance(value, (list, tuple)):
            self.fail(f"{value!r} is not a valid string.", param, ctx)
        return ",".join(self.convert(item, param, ctx) for item in value)


class Whole(click.IntRange):
    """A whole number, at most `LONGEST` or a lower maximum. Click would truncate fractions."""

    metavar = "N"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        if isinstance(value, float):
            self.fail(f"{value!r} is not a valid {self.name}.", param, ctx)
        number = int(super().convert(value, param, ctx))
        if self.max is None and number > LONGEST:
            self.fail(names.too_large(number), param, ctx)
        return number


class Number(click.types.FloatParamType):
    """A finite number greater than `above`, or equal to it if `or_equal`."""

    name = "number"

    def __init__(self, above: float = -math.inf, or_equal: bool = False) -> None:
        self._above, self._or_equal = above, or_equal

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        try:
            number = float(value)
        except (TypeError, ValueError):
            self.fail(f"{value!r} is not a valid number.", param, ctx)
        if not math.isfinite(number):
            self.fail(f"{value} is not a finite number", param, ctx)
        if number < self._above or (number == self._above and not self._or_equal):
            self.fail(f"{value} is {'below' if self._or_equal else 'not above'} {self._above:g}", param, ctx)
        return number


class File(click.Path):
    """A file to read. Its reader reports whether it exists."""

    def __init__(self, folder: bool = True) -> None:
        super().__init__(path_type=Path, dir_okay=folder)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if not isinstance(value, (str, Path)) or value == "":
            self.fail(f"{value!r} is not the name of a file.", param, ctx)
        return super().convert(value, param, ctx)


class Output(File):
    """A file to write, with one of `suffixes`, as `what` says."""

    def __init__(
        self, metavar: str = "", folder: bool = True, suffixes: Sequence[str] = (), what: str = ""
    ) -> None:
        super().__init__(folder)
        self.metavar, self._suffixes, self._what = metavar, suffixes, what

    def check(self, option: str, path: Path) -> None:
        """`UsageError` if the file cannot be written, or is a chart without matplotlib."""
        if self._suffixes and path.suffix.lower() not in self._suffixes:
            raise UsageError(f"{option} {path}: {self._what}")
        names.check_folder(option, path)
        if self._suffixes:
            charts.load_matplotlib()


class Flag(click.types.BoolParamType):
    """A flag. The API accepts only True and False."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> bool:
        if not isinstance(value, bool):
            self.fail(f"{value!r} is not a valid boolean.", param, ctx)
        return value


COUNT = Whole(0)  # how often a flag is given
FILE, INPUT, SIZE, LENGTH = File(), File(folder=False), Whole(1), Whole(0)
CHART = Output(
    "FILE.png|svg|pdf", suffixes=charts.SUFFIXES, what=f"a chart is a {', '.join(charts.SUFFIXES)} file"
)
PAGE = Output("FILE.html", suffixes=(".html", ".htm"), what="a report is an .html file")
GROUPS = ("Problem", "Device", "Kernels", "Timing", "Comparison", "Output")  # of options in --help
PROBLEM, DEVICE, KERNELS, TIMING, COMPARISON, OUTPUT = GROUPS


@dataclass(frozen=True)
class Spec:
    """How an option is given."""

    help: str  # ``-h`` shows the first sentence
    kind: click.ParamType[Any]
    group: str = OUTPUT
    common: bool = False  # ``-h`` lists it
    flags: tuple[str, ...] = ()  # unless ``--`` and the field's name
    metavar: str | None = None
    many: bool = False  # it may be repeated; from Python a sequence
    env: str | None = None  # the environment variable that gives it
    bare: str | None = None  # what it is without a value
    shell: bool = False  # only the command line has it
    names: tuple[str, ...] = ()  # what a shell completes

    @property
    def accepted(self) -> str:
        """The annotation of a repeatable option; "" for any other option."""
        if not self.many:
            return ""
        is_text = isinstance(self.kind, AnyText)
        return "dict[str, int | list[int]] | list[str] | str" if is_text else "list[str | Path] | str | Path"

    def spellings(self, name: str) -> tuple[str, ...]:
        return self.flags or (f"--{name.replace('_', '-')}",)


def option(help: str, kind: click.ParamType[Any] | None = None, default: Any = None, **spec: Any) -> Any:
    """A dataclass field that is an option, of text without a kind; see `Spec`."""
    return field(default=default, metadata={"spec": Spec(help, kind or AnyText(), **spec)})


def flag(help: str, default: bool = False, **spec: Any) -> Any:
    """An option that is on or off."""
    return option(help, Flag(), default, **spec)


problem_option = partial(option, group=PROBLEM)
kernel_option = partial(option, group=KERNELS)
timing_option = partial(option, group=TIMING)
comparison_option = partial(option, group=COMPARISON)


def hidden(default: Any) -> Any:
    """A field that a class inherits, and that is no option of it."""
    return field(default=default, init=False)


def specs(kind: type[Options]) -> dict[str, tuple[Spec, Field[Any]]]:
    """The options of a class by field name; inherited ones last."""
    first: dict[str, int] = {}
    for depth, base in enumerate(reversed(kind.__mro__)):
        for name in inspect.get_annotations(base):
            first.setdefault(name, depth)
    listed = [each for each in fields(kind) if "spec" in each.metadata]
    listed.sort(key=lambda each: -first[each.name])
    return {each.name: (each.metadata["spec"], each) for each in listed}


_T = TypeVar("_T", bound="Options")


def build(kind: type[_T], values: Mapping[str, Any]) -> _T:
    """Build options from keyword arguments, environment variables and defaults. None is not given.

    `UsageError` for an unknown or command-line-only option, or an invalid value.
    """
    known = {name: spec for name, (spec, _) in specs(kind).items() if not spec.shell}
    given: dict[str, Any] = {}
    for name, value in values.items():
        if name not in known:
            raise UsageError(f"{kind.command} has no option {name!r}; {names.hint(name, known)}")
        if value is not None:
            given[name] = _converted(name, known[name], value)
    for name, spec in known.items():
        if name not in given and spec.env and (text := os.environ.get(spec.env)):
            given[name] = _converted(name, spec, text)
    return kind(**given)


def _converted(name: str, spec: Spec, value: Any) -> Any:
    """Convert a Python value, with the command line's error messages."""

    def convert(item: Any) -> Any:
        return spec.kind.convert(item, None, None)

    try:
        if not spec.many:
            return convert(value)
        if isinstance(value, Mapping):
            value = [f"{key}={convert(item)}" for key, item in value.items()]
        several = [value] if isinstance(value, (str, Path)) else value
        return tuple(map(convert, several))
    except (TypeError, click.BadParameter) as error:
        sentence = error.message if isinstance(error, click.BadParameter) else str(error)
        sentence = sentence.replace("a valid integer range", "a whole number")
        words = " / ".join(f"'{word}'" for word in spec.spellings(name))
        whole = f"{words} (env var: '{spec.env}')" if spec.env else words
        raise UsageError(f"Invalid value for {whole}: {sentence.rstrip('.')}") from None


def command_line(options: Options) -> tuple[str, ...]:
    """The command and the options that differ from their defaults, as words."""
    words = [options.command]
    for name, (spec, each) in specs(type(options)).items():
        value = getattr(options, name)
        if value == each.default:
            continue
        first = spec.spellings(name)[0]
        if isinstance(spec.kind, Flag):
            on, _, off = first.partition("/")
            words.append(on if value else off)
        elif spec.kind is COUNT:
            words += [first] * value
        else:
            for item in value if spec.many else (value,):
                words += [first, f"{item:.15g}" if isinstance(item, float) else str(item)]
    return tuple(words)


@dataclass(frozen=True, kw_only=True)
class Options:
    """The options of one command."""

    command: ClassVar[str]
    help: ClassVar[str]  # of the command; no docstring, because python -OO drops those

    def __post_init__(self) -> None:
        for name, (spec, _) in specs(type(self)).items():
            if isinstance(spec.kind, Output) and (path := getattr(self, name)):
                spec.kind.check(max(spec.spellings(name), key=len), path)
        names.check_overwriting(self.outputs, self.inputs)

    @property
    def outputs(self) -> list[tuple[str, Path]]:
        kinds = {name: spec.kind for name, (spec, _) in specs(type(self)).items()}
        files = {name: getattr(self, name) for name, kind in kinds.items() if isinstance(kind, Output)}
        return [(f"--{name}", path) for name, path in files.items() if path]

    @property
    def inputs(self) -> list[tuple[str, Path]]:
        """The files that must not be replaced, each after its role in an error message."""
        return names.kernel_inputs(getattr(self, "kernel_files", ()))
