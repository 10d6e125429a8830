"""Options as fields of frozen dataclasses, of which command line and API are made.

A field's default and its `Spec` are what ``--help`` shows, what the command line takes, and what a keyword
argument of the API may be. What options say together is checked in `__post_init__`.
"""

from __future__ import annotations

import difflib
import inspect
import math
import operator
import os
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import Field, dataclass, field, fields
from pathlib import Path
from typing import Any, ClassVar, Protocol, TypeVar

from gemmbench import UsageError, charts, ladder
from gemmbench.ladder.own import own_kernel
from gemmbench.ladder.variant import Variant
from gemmbench.model.case import KERNEL
from gemmbench.model.units import reason_of
from gemmbench.options.names import Names
from gemmbench.regress import verdict
from gemmbench.regress.baseline import PEAK
from gemmbench.regress.verdict import ThresholdError, Thresholds


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
class Duration:
    """Seconds, or minutes or hours with their letter: ``90``, ``90s``, ``10m``, ``1.5h``."""

    def convert(self, value: Any) -> float:
        text = str(value).strip().lower()
        scale = {"s": 1.0, "m": 60.0, "h": 3600.0}.get(text[-1:], 0.0)
        try:
            number = float(text[:-1] if scale else text) * (scale or 1.0)
        except ValueError:
            number = math.nan
        if not (0 < number < math.inf):
            raise ValueError(f"{value!r} is not a time such as 90s, 10m or 2h.")
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
    names: Names | None = None  # what a shell completes
    single: bool = False  # it takes a single name, not several with commas

    def spellings(self, name: str) -> tuple[str, ...]:
        """How it is written on the command line: ``--no-peak``, with its short forms."""
        return self.flags or (f"--{name.replace('_', '-')}",)


def option(help: str, kind: Kind | None = None, default: Any = None, **spec: Any) -> Any:
    """A dataclass field that is an option; see `Spec`. Without a kind it is text."""
    return field(default=default, metadata={"spec": Spec(help, kind or Text(), **spec)})


def flag(help: str, **spec: Any) -> Any:
    """An option that is on or off, and off unless given."""
    return option(help, Flag(), False, **spec)


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
            raise UsageError(f"{kind.command} has no option {name!r}; {_hint(name, known)}")
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
        hint = f"{words} (env var: '{spec.env}')" if spec.env else words
        raise UsageError(f"Invalid value for {hint}: {str(error).rstrip('.')}") from None


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


# --- What options name (kernels, data types, sizes, thresholds, files), looked up and checked ---------------

_ALIASES = {"int8": "char"}  # other names of data types
_BEST = "best"
MOST_COMBINATIONS = 100  # of a kernel's parameters, that --param may ask for
_OWN = "own"  # the kernels of --kernel-file
_GROUPS = {"all": ladder.LADDER, "ladder": ladder.PUBLISHED, _BEST: ladder.BEST, "likely": ladder.LIKELY}
_NONE = "none"  # of libraries
_RESERVED = (*_GROUPS, _OWN, _NONE, PEAK)  # what --kernel, --baseline and --ratio take beside names


def choose_dtypes(text: str, known: Sequence[str]) -> tuple[str, ...]:
    """Data types from a comma-separated list, in the order given; `UsageError` if one is unknown."""
    return choose(",".join(_ALIASES.get(word, word) for word in _words(text)), known, "data type")


def kernel_files_option(
    help: str = "A kernel of your own, described in the file (gemmbench kernels --new writes one): it joins "
    "those of --kernel, or stands there by its name. May be repeated.",
) -> Any:
    """Files with the user's own kernels."""
    return option(help, FILE, (), flags=("--kernel-file",), many=True, metavar="FILE.cl")


def own_kernels(files: Sequence[Path]) -> tuple[Variant, ...]:
    """The kernels of files in the order given; `UsageError` if one cannot be used, or names are equal."""
    made: list[Variant] = []
    for file in files:
        variant = own_kernel(file)
        what = "means something else to --kernel, --baseline or --ratio" if variant.name in _RESERVED else ""
        if variant.name in (*ladder.ORDER, *(each.name for each in made)):
            what = "is another kernel's name"
        if what:
            hint = f'give yours one in its description (name = "my-{variant.name}")'
            raise UsageError(f"{file}: {variant.name} {what}; {hint}")
        made.append(variant)
    return tuple(made)


def choose_kernels(text: str, baseline: str = "none", own: Sequence[Variant] = ()) -> tuple[Variant, ...]:
    """Variants from a comma-separated list, in ladder order, and the baselines of another after them.

    Where the list names none of the user's `own` kernels, all join it. `UsageError` if a name is unknown.
    """
    groups = _groups(own)
    names = {name for word in _kernel_words(text, own) for name in groups.get(word, (word,))}
    by_name = {each.name: each for each in own}
    if names.isdisjoint(by_name):
        names.update(by_name)
    names.update(choose_baselines(baseline))
    return tuple({**ladder.BY_NAME, **by_name}[name] for name in ladder.order(by_name) if name in names)


def named_variants(text: str, own: Sequence[Variant] = ()) -> tuple[Variant, ...]:
    """What a list names, and nothing beside it; otherwise as `choose_kernels`."""
    words = _kernel_words(text, own)
    groups = _groups(own)
    names = {name for word in words for name in groups.get(word, (word,))}
    return tuple(each for each in choose_kernels(text, own=own) if each.name in names)


def _groups(own: Sequence[Variant]) -> Mapping[str, tuple[str, ...]]:
    return {**_GROUPS, _OWN: tuple(each.name for each in own)} if own else _GROUPS


def optional_kernels(text: str, own: Sequence[Variant], of: Sequence[str] = (_BEST, "likely")) -> set[str]:
    """The kernels that only ``best`` or ``likely`` ask for: those that a device does not run need no row."""
    words = _kernel_words(text, own)
    named = {name for word in words if word not in of for name in _GROUPS.get(word, (word,))}
    return {name for word in words if word in of for name in _GROUPS[word]} - named


def named_kernels(text: str, own: Sequence[Variant] = ()) -> tuple[str, ...]:
    """The kernels of a comma-separated list that stand in it under their own name, and the user's own."""
    words = (*_kernel_words(text, own), *(each.name for each in choose_kernels(text, own=own) if each.own))
    return tuple(dict.fromkeys(word for word in words if word not in _groups(own)))


def choose_baselines(text: str) -> tuple[str, ...]:
    """Libraries from a list, ``all`` or ``none``, which stands alone; `UsageError` if one is unknown."""
    words = choose(text, (*ladder.BASELINES, "all", _NONE), "baseline")
    if _NONE in words:
        if len(words) > 1:
            raise UsageError(f"--baseline {text}: none stands alone")
        return ()
    if "all" not in words:
        return words
    from gemmbench.gemm.numpy_blas import second_blas  # looks at the machine

    return tuple(name for name in ladder.BASELINES if name != ladder.CBLAS or second_blas())


def _kernel_words(text: str, own: Sequence[Variant] = ()) -> tuple[str, ...]:
    known = (*ladder.order(each.name for each in own), *_groups(own))
    for word in _words(text):
        if word == _OWN and not own:
            raise UsageError(f"--kernel {_OWN} means the kernels of --kernel-file, and there is none")
    return choose(text, known, "kernel")


def choose_params(texts: Iterable[str]) -> dict[str, tuple[int, ...]]:
    """``NAME=VALUE`` and ``NAME=VALUE,VALUE`` as a dictionary, no value twice; else `UsageError`."""
    chosen = {}
    for text in texts:
        name, equals, values = text.partition("=")
        words = [word.strip() for word in values.split(",")]
        if not equals or not all(word.isdecimal() for word in words):
            raise UsageError(
                f"--param takes NAME=VALUE with a whole number, or several with commas, not {text!r}"
            )
        chosen[name.strip()] = tuple(dict.fromkeys(map(int, words)))
    return chosen


def choose_threads(text: str, cores: int) -> tuple[int, ...]:
    """Numbers of threads from a list, in order, each once; ``all`` is every core. Else `UsageError`."""
    chosen = set()
    for word in _words(text) or (text,):
        if word != "all" and not (word.isascii() and word.isdecimal() and 1 <= int(word) <= cores):
            few = f"to the {cores} cores of this machine" if cores > 1 else "core of this machine alone"
            raise UsageError(f"--threads takes numbers from 1 {few}, and all, not {word!r}")
        chosen.add(cores if word == "all" else int(word))
    return tuple(sorted(chosen))


def check_grid(variants: Iterable[Variant], params: Mapping[str, Sequence[int]]) -> None:
    """Find out before measuring that no variant has too many combinations; else `UsageError`."""
    for variant in variants:
        count = math.prod(len(values) for name, values in params.items() if name in variant.parameters)
        if count > MOST_COMBINATIONS:
            raise UsageError(
                f"--param asks for {count} combinations of {variant.name}'s parameters, and a grid has at "
                f"most {MOST_COMBINATIONS}: gemmbench tune --kernel {variant.name} searches larger spaces"
            )


def choose_sizes(text: str | None, low: int | None, high: int) -> tuple[int, ...]:
    """Sizes from a list, or the powers of two from ``low``, else from 64, to ``high`` with both ends.

    `UsageError` if a size is not a whole number of 1 or more, or the range is empty.
    """
    if text is not None:
        words = _words(text)
        if not all(word.isdecimal() and int(word) > 0 for word in words) or not words:
            raise UsageError(f"--sizes takes whole numbers of 1 or more with commas, not {text!r}")
        if low is not None:
            raise UsageError("--sizes takes the place of a range: leave out its smallest size")
        return tuple(sorted({int(word) for word in words}))
    if low is None:
        low = min(64, high)
    if low > high:
        raise UsageError(f"the smallest size, {low}, is above the largest, {high}")
    powers = [1 << bit for bit in range(low.bit_length() - 1, high.bit_length()) if low < 1 << bit < high]
    return tuple(sorted({low, *powers, high}))


def _words(text: str) -> list[str]:
    return [word.strip() for word in text.split(",") if word.strip()]


def choose(text: str, known: Sequence[str], what: str) -> tuple[str, ...]:
    """Names from a list, in the order given, none twice; `UsageError` if one is unknown, or for none."""
    words = _words(text)
    if not words:
        raise UsageError(f"no {what} is given; {_hint('', known)}")
    for word in words:
        if what == "kernel" and word not in known and word.endswith(KERNEL):
            raise UsageError(f"--kernel takes names, and {word} is a file: --kernel-file {word}")
        if word not in known:
            raise UsageError(f"unknown {what} {word!r}; {_hint(word, known)}")
    return tuple(dict.fromkeys(words))


def _hint(word: str, known: Collection[str]) -> str:
    """The name that was probably meant, else what there is; kernels are too many for that."""
    if close := difflib.get_close_matches(word, known, 1):
        return f"did you mean {close[0]}?"
    return "gemmbench kernels lists them" if ladder.ORDER[0] in known else f"there are {', '.join(known)}"


def check_plot_path(path: Path | None) -> None:
    """Find out before measuring that a chart can be written, as PNG, SVG or PDF; else `UsageError`."""
    if path is not None:
        if path.suffix.lower() not in charts.SUFFIXES:
            raise UsageError(f"--plot {path}: a chart is a {', '.join(charts.SUFFIXES)} file")
        check_folder("--plot", path)


def check_report_path(path: Path | None, option: str = "--report") -> None:
    """Find out before measuring that a report can be written, as .html or .htm; else `UsageError`."""
    if path is not None:
        if path.suffix.lower() not in (".html", ".htm"):
            raise UsageError(f"{option} {path}: a report is an .html file")
        check_folder(option, path)


def check_save_path(path: Path | None, overwrite: bool) -> None:
    """Find out before measuring that a run can be saved, and over no other; else `UsageError`."""
    if path is None:
        return
    check_folder("--save", path)
    if path.exists() and not overwrite:
        raise UsageError(f"{path} exists already; --resume goes on with it, --force replaces it")


def check_folder(option: str, path: Path) -> None:
    """Find out before measuring whether a file can be written there; `UsageError` if not."""
    try:
        if not path.parent.is_dir():
            raise UsageError(f"{option} {path}: there is no folder {path.parent}")
        if path.is_dir():
            raise UsageError(f"{option} {path}: it is a folder")
        target = path if path.exists() else path.parent
    except OSError as error:  # a name too long, a folder that may not be entered
        raise UsageError(f"{option} {path}: {reason_of(error)}") from None
    if not os.access(target, os.W_OK):
        raise UsageError(f"{option} {path}: permission denied")


def given(**files: Path | None) -> list[tuple[str, Path]]:
    """Options with their files, of those that are given."""
    return [(f"--{name}", path) for name, path in files.items() if path is not None]


def check_overwriting(outputs: Sequence[tuple[str, Path]], inputs: Sequence[tuple[str, Path]]) -> None:
    """Find out beforehand that nothing is written over an input or another output; else `UsageError`.

    Outputs are options and files; inputs what is said before the file's name, and the file.
    """
    for number, (option, path) in enumerate(outputs):
        if _is_special(path):
            continue
        for role, other in inputs:
            if _same_file(path, other):
                raise UsageError(f"{option} {path} would replace {role}{other}, which is read")
        for role, other in outputs[:number]:
            if _same_file(path, other):
                raise UsageError(f"{option} {path} would replace {role} {other}")


def kernel_inputs(files: Iterable[Path], option: str = "--kernel-file") -> list[tuple[str, Path]]:
    """Users' kernel files and the descriptions beside them, for `check_overwriting`."""
    inputs = []
    for file in files:
        inputs += [(f"{option} ", file), (f"{option}'s ", file.parent / f"{file.stem}.toml")]
    return inputs


def _is_special(path: Path) -> bool:
    """Whether a path is there, and is no file: such as /dev/stdout."""
    try:
        return path.exists() and not path.is_file()
    except OSError:  # too long a name: `check_folder` says so
        return False


def _same_file(path: Path, other: Path) -> bool:
    """Whether two names are of one file, also by a link, and also if it does not exist yet."""
    try:
        return path.samefile(other)
    except OSError:
        return os.path.realpath(path) == os.path.realpath(other)


def references(text: str | None) -> tuple[str, ...]:
    """What ``--ratio`` names; `UsageError` if one is neither a kernel nor a library nor the peak."""
    return choose(text, (*ladder.ORDER, PEAK), "reference") if text is not None else ()


def threshold_of(text: str | None, path: Path | None = None) -> Thresholds:
    """What ``--threshold`` and ``--thresholds`` say; `UsageError` if one cannot be taken."""
    option = "--threshold:"
    try:
        default = verdict.parse(text) if text is not None else None
        option = "--thresholds"
        if path is not None:
            return verdict.load(path, default)
    except ThresholdError as error:
        raise UsageError(f"{option} {error}") from None
    return Thresholds(default) if default is not None else Thresholds()


def format_and_file(text: str, formats: Sequence[str]) -> tuple[str, Path]:
    """The two that ``--write`` names; `UsageError` if it does not name both."""
    form, equals, name = text.partition("=")
    if not equals or not name or form not in formats:
        raise UsageError(f"--write takes FORMAT=FILE with one of {', '.join(formats)}, not {text!r}")
    return form, Path(name)
