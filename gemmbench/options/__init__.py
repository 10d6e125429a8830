"""Options as fields of frozen dataclasses, of which command line and API are made.

A field's default and its `Spec` are what ``--help`` shows, what the command line takes, and what a keyword
argument of the API may be. What options say together is checked in `__post_init__`.
"""

from __future__ import annotations

import inspect
import math
import operator
import os
from collections.abc import Mapping
from dataclasses import Field, dataclass, field, fields
from pathlib import Path
from typing import Any, ClassVar, Protocol, TypeVar

from gemmbench import UsageError
from gemmbench.options.names import hint


class Kind(Protocol):
    """What an option takes."""

    def convert(self, value: Any) -> Any:
        """The value of a word of the command line, or from Python; `ValueError` is for the user."""


class Text:
    """Words; from Python also a list of them, or a number."""

    def convert(self, value: Any) -> str:
        """Several are joined with commas."""
        if isinstance(value, (str, int, Path)) and not isinstance(value, bool):
            return str(value)
        if isinstance(value, (list, tuple)):
            return ",".join(map(self.convert, value))
        raise ValueError(f"{value!r} is not a valid string.")


class Flag:
    """Yes or no."""

    def convert(self, value: Any) -> bool:
        if isinstance(value, bool):
            return value
        raise ValueError(f"{value!r} is not a valid boolean.")


class Count:
    """How often a flag is given."""

    def convert(self, value: Any) -> int:
        return operator.index(value)


@dataclass(frozen=True)
class Whole:
    """A whole number."""

    least: int
    most: int | None = None

    def convert(self, value: Any) -> int:
        try:
            number = int(value) if isinstance(value, str) else operator.index(value)
        except (TypeError, ValueError):
            raise ValueError(f"{value!r} is not a whole number.") from None
        if number < self.least or (self.most is not None and number > self.most):
            limits = f"x>={self.least}" if self.most is None else f"{self.least}<=x<={self.most}"
            raise ValueError(f"{number} is not in the range {limits}.")
        return number


@dataclass(frozen=True)
class Number:
    """A number."""

    above: float = -math.inf
    finite: bool = True  # otherwise whoever takes it checks

    def convert(self, value: Any) -> float:
        try:
            number = float(value)
        except (TypeError, ValueError):
            raise ValueError(f"{value!r} is not a valid number.") from None
        if self.finite and not math.isfinite(number):
            raise ValueError(f"{value} is not a finite number")
        if number <= self.above:
            raise ValueError(f"{value} is not above {self.above:g}")
        return number


@dataclass(frozen=True)
class Choice:
    """One of several names."""

    names: tuple[str, ...]

    def convert(self, value: Any) -> str:
        if value not in self.names:
            raise ValueError(f"{value!r} is not one of {', '.join(map(repr, self.names))}.")
        return str(value)


@dataclass(frozen=True)
class File:
    """A file's name; whether it exists, and must, is for its reader or writer to find out."""

    folder: bool = True  # it may be a folder

    def convert(self, value: Any) -> Path:
        try:
            path = Path(value)
        except TypeError:
            raise ValueError(f"{value!r} is not the name of a file.") from None
        what = "Path" if self.folder else "File"
        try:
            if not self.folder and path.is_dir():
                raise ValueError(f"{what} {str(path)!r} is a directory.")
            readable = not path.exists() or os.access(path, os.R_OK)
        except OSError:  # a name too long
            return path
        if not readable:
            raise ValueError(f"{what} {str(path)!r} is not readable.")
        return path


FILE, INPUT, SIZE, LENGTH = File(), File(folder=False), Whole(1), Whole(0)
CHART = "FILE.png|svg|pdf"
PAGE = "FILE.html"


@dataclass(frozen=True)
class Spec:
    """How an option is given."""

    help: str
    kind: Kind
    flags: tuple[str, ...] = ()  # unless ``--`` and the field's name
    metavar: str | None = None
    many: bool = False  # it may be repeated; from Python a sequence
    env: str | None = None  # the environment variable that gives it
    bare: str | None = None  # what it is without a value
    shell: bool = False  # only the command line has it
    names: tuple[str, ...] = ()  # what a shell completes

    def spellings(self, name: str) -> tuple[str, ...]:
        """How it is written on the command line: ``--no-peak``, with its short forms."""
        return self.flags or (f"--{name.replace('_', '-')}",)


def option(help: str, kind: Kind | None = None, default: Any = None, **spec: Any) -> Any:
    """A dataclass field that is an option; see `Spec`. Without a kind it is text."""
    return field(default=default, metadata={"spec": Spec(help, kind or Text(), **spec)})


def flag(help: str, default: bool = False, **spec: Any) -> Any:
    """An option that is on or off."""
    return option(help, Flag(), default, **spec)


def hidden(default: Any) -> Any:
    """A field that a class inherits, and that is no option of it."""
    return field(default=default, init=False)


def specs(kind: type[Options]) -> dict[str, tuple[Spec, Field[Any]]]:
    """The options of a class by field, its own before those it inherits."""
    first: dict[str, int] = {}
    for depth, base in enumerate(reversed(kind.__mro__)):
        for name in inspect.get_annotations(base):
            first.setdefault(name, depth)
    listed = [each for each in fields(kind) if "spec" in each.metadata]
    listed.sort(key=lambda each: -first[each.name])
    return {each.name: (each.metadata["spec"], each) for each in listed}


_T = TypeVar("_T", bound="Options")


def build(kind: type[_T], values: Mapping[str, Any]) -> _T:
    """Options from keyword arguments; None leaves an option at its default.

    `UsageError` if there is no such option, or a value cannot be used; the sentence is the command line's.
    """
    known = {name: spec for name, (spec, _) in specs(kind).items() if not spec.shell}
    given: dict[str, Any] = {}
    for name, value in values.items():
        if name not in known:
            raise UsageError(f"{kind.command} has no option {name!r}; {hint(name, known)}")
        if value is not None:
            given[name] = _converted(name, known[name], value)
    for name, spec in known.items():
        if name not in given and spec.env and (text := os.environ.get(spec.env)):
            given[name] = _converted(name, spec, text)
    return kind(**given)


def _converted(name: str, spec: Spec, value: Any) -> Any:
    try:
        if not spec.many:
            return spec.kind.convert(value)
        if isinstance(value, Mapping):
            value = [f"{key}={spec.kind.convert(item)}" for key, item in value.items()]
        several = [value] if isinstance(value, (str, Path)) else value
        return tuple(map(spec.kind.convert, several))
    except (TypeError, ValueError) as error:
        words = " / ".join(f"'{word}'" for word in spec.spellings(name))
        whole = f"{words} (env var: '{spec.env}')" if spec.env else words
        raise UsageError(f"Invalid value for {whole}: {str(error).rstrip('.')}") from None


def command_line(options: Options) -> tuple[str, ...]:
    """The words of the command line that gives the same options."""
    words = [options.command]
    for name, (spec, each) in specs(type(options)).items():
        value = getattr(options, name)
        if value == each.default:
            continue
        first = spec.spellings(name)[0]
        if isinstance(spec.kind, Flag):
            on, _, off = first.partition("/")
            words.append(on if value else off)
        elif isinstance(spec.kind, Count):
            words += [first] * value
        else:
            for item in value if spec.many else (value,):
                words += [first, str(item)]
    return tuple(words)


@dataclass(frozen=True, kw_only=True)
class Options:
    """The options of one command."""

    command: ClassVar[str]

    def __post_init__(self) -> None:
        """Check what the options say together; `UsageError` if they contradict each other."""
