"""What options name (kernels, data types, sizes, thresholds, files), looked up and checked."""

from __future__ import annotations

import difflib
import os
from collections.abc import Iterable, Sequence
from pathlib import Path

from gemmbench import UsageError
from gemmbench.facts import chart_files
from gemmbench.facts.compare import thresholds
from gemmbench.facts.compare.basis import PEAK
from gemmbench.facts.compare.thresholds import ThresholdError, Thresholds
from gemmbench.facts.text import reason_of
from gemmbench.rules import variants
from gemmbench.rules.variants import Variant

_ALIASES = {"int8": "char"}  # other names of data types
_BEST = "best"
_GROUPS = {"all": variants.LADDER, "ladder": variants.PUBLISHED, _BEST: variants.BEST}  # of kernels


def choose_dtypes(text: str, known: Sequence[str]) -> tuple[str, ...]:
    """Data types from a comma-separated list, in the order given.

    Raises:
        UsageError: one is unknown.
    """
    return choose(",".join(_ALIASES.get(word, word) for word in _words(text)), known, "data type")


def choose_kernels(text: str, baseline: str = "none") -> tuple[Variant, ...]:
    """Variants from a comma-separated list, in ladder order, and the baselines of another after them.

    Raises:
        UsageError: one is unknown.
    """
    names = {name for word in _kernel_words(text) for name in _GROUPS.get(word, (word,))}
    names.update(choose_baselines(baseline))
    return tuple(variants.BY_NAME[name] for name in variants.ORDER if name in names)


def optional_kernels(text: str) -> frozenset[str]:
    """The kernels that only ``best`` asks for: those that a device does not run need no row."""
    words = _kernel_words(text)
    named = {name for word in words if word != _BEST for name in _GROUPS.get(word, (word,))}
    return frozenset(variants.BEST) - named if _BEST in words else frozenset()


def choose_baselines(text: str) -> tuple[str, ...]:
    """Libraries from a comma-separated list, ``all`` or ``none``.

    Raises:
        UsageError: one is unknown, or ``none`` is not alone.
    """
    words = choose(text, (*variants.BASELINES, "all", "none"), "baseline")
    if "none" in words:
        if len(words) > 1:
            raise UsageError(f"--baseline {text}: none stands alone")
        return ()
    return variants.BASELINES if "all" in words else words


def _kernel_words(text: str) -> tuple[str, ...]:
    return choose(text, (*variants.ORDER, *_GROUPS), "kernel")


def choose_params(texts: Iterable[str]) -> dict[str, int]:
    """``NAME=VALUE`` options as a dictionary.

    Raises:
        UsageError: one has no ``=`` or its value is not a whole number.
    """
    chosen = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals or not value.strip().isdecimal():
            raise UsageError(f"--param takes NAME=VALUE with a whole number, not {text!r}")
        chosen[name.strip()] = int(value)
    return chosen


def choose_sizes(text: str | None, low: int | None, high: int, default_low: int = 64) -> tuple[int, ...]:
    """Sizes from a list, or the powers of two from ``low`` to ``high`` with both ends.

    Where no ``low`` is asked for, ``default_low`` gives way to a smaller ``high``.

    Raises:
        UsageError: a size is not a whole number of 1 or more, or the range is empty.
    """
    if text is not None:
        words = _words(text)
        if not all(word.isdecimal() and int(word) > 0 for word in words) or not words:
            raise UsageError(f"--sizes takes whole numbers of 1 or more with commas, not {text!r}")
        return tuple(sorted({int(word) for word in words}))
    if low is None:
        low = min(default_low, high)
    if low > high:
        raise UsageError(f"the smallest size, {low}, is above the largest, {high}")
    powers = [1 << bit for bit in range(low.bit_length() - 1, high.bit_length()) if low < 1 << bit < high]
    return tuple(sorted({low, *powers, high}))


def _words(text: str) -> list[str]:
    return [word.strip() for word in text.split(",") if word.strip()]


def choose(text: str, known: Sequence[str], what: str) -> tuple[str, ...]:
    """Names from a comma-separated list, in the order given, none twice.

    Raises:
        UsageError: one is unknown, or there are none.
    """
    words = _words(text)
    if not words:
        raise UsageError(f"no {what} is given; there are {', '.join(known)}")
    for word in words:
        if word not in known:
            close = difflib.get_close_matches(word, known, 1)
            hint = f"did you mean {close[0]}?" if close else f"there are {', '.join(known)}"
            raise UsageError(f"unknown {what} {word!r}; {hint}")
    return tuple(dict.fromkeys(words))


def check_plot_path(path: Path | None) -> None:
    """Find out before measuring whether a chart can be written there.

    Raises:
        UsageError: another format than PNG, SVG or PDF, or a folder that does not exist.
    """
    if path is None:
        return
    if path.suffix.lower() not in chart_files.SUFFIXES:
        raise UsageError(f"--plot {path}: a chart is a {', '.join(chart_files.SUFFIXES)} file")
    check_folder("--plot", path)


def check_save_path(path: Path | None, overwrite: bool) -> None:
    """Find out before measuring whether a run can be saved there.

    Raises:
        UsageError: the file exists, or its folder does not.
    """
    if path is None:
        return
    check_folder("--save", path)
    if path.exists() and not overwrite:
        raise UsageError(f"{path} exists already; --resume goes on with it, --force replaces it")


def check_folder(option: str, path: Path) -> None:
    """Find out before measuring whether a file can be written there.

    Raises:
        UsageError: its folder does not exist or may not be written to, or it is a folder itself.
    """
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


def check_overwriting(outputs: Sequence[tuple[str, Path]], inputs: Sequence[tuple[str, Path]]) -> None:
    """Find out beforehand that no file is written over another that is read or written, too.

    Args:
        outputs: option and file.
        inputs: what is said before the file's name, and the file.

    Raises:
        UsageError: one would be.
    """
    for number, (option, path) in enumerate(outputs):
        if path.exists() and not path.is_file():  # such as /dev/stdout
            continue
        for role, other in inputs:
            if _same_file(path, other):
                raise UsageError(f"{option} {path} would replace {role}{other}, which is read")
        for role, other in outputs[:number]:
            if _same_file(path, other):
                raise UsageError(f"{option} {path} would replace {role} {other}")


def _same_file(one: Path, other: Path) -> bool:
    """Whether two names are of one file, also by a link, and also if it does not exist yet."""
    try:
        return one.samefile(other)
    except OSError:
        return os.path.realpath(one) == os.path.realpath(other)


def time_scope(name: str) -> str | None:
    """What ``--scope`` means to a comparison."""
    return None if name == "finest" else name


def references(text: str | None) -> tuple[str, ...]:
    """What ``--ratio`` names.

    Raises:
        UsageError: one is neither a kernel nor a library nor the peak.
    """
    return choose(text, (*variants.ORDER, PEAK), "reference") if text is not None else ()


def threshold_of(text: str | None, path: Path | None = None) -> Thresholds:
    """What ``--threshold`` and ``--thresholds`` say.

    Raises:
        UsageError: one cannot be taken.
    """
    try:
        default = thresholds.parse(text) if text is not None else None
    except ThresholdError as error:
        raise UsageError(f"--threshold: {error}") from None
    try:
        if path is not None:
            return thresholds.load(path, default)
    except ThresholdError as error:
        raise UsageError(f"--thresholds {error}") from None
    return Thresholds(default) if default is not None else Thresholds()


def format_and_file(text: str, formats: Sequence[str]) -> tuple[str, Path]:
    """The two that ``--write`` names.

    Raises:
        UsageError: it does not name both.
    """
    form, equals, name = text.partition("=")
    if not equals or not name or form not in formats:
        raise UsageError(f"--write takes FORMAT=FILE with one of {', '.join(formats)}, not {text!r}")
    return form, Path(name)
