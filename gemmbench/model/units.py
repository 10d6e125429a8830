"""From seconds, bytes and flop/s to text. The only place that scales or rounds."""

from __future__ import annotations

import math
import textwrap
import unicodedata
from collections.abc import Iterable, Mapping
from typing import TypeVar

GIGA = 1e9
_Key = TypeVar("_Key")
_Value = TypeVar("_Value")

_TIMES = ((1.0, "s"), (1e-3, "ms"), (1e-6, "us"), (1e-9, "ns"))
_ENERGIES = ((1.0, "J"), (1e-3, "mJ"), (1e-6, "uJ"))
_AGES = ((86400, "days"), (3600, "h"), (60, "min"))
_BYTES = ((1 << 40, "TiB"), (1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB"))


def number(value: float) -> str:
    """Three significant digits, at most three decimals: ``0.012``, ``1.23``, ``1,234``, ``4e-04``."""
    if not math.isfinite(value):
        return "-"
    size = abs(value)
    if size >= 999.5:
        return f"{value:,.0f}"
    for limit, digits in ((99.95, 0), (9.995, 1), (0.9995, 2)):
        if size >= limit:
            return f"{value:.{digits}f}"
    return f"{value:.3f}" if size >= 0.0005 or size == 0 else f"{value:.0e}"


def gflops(flops_per_second: float) -> str:
    """A rate in flop/s as GFLOPS, without the unit."""
    return number(flops_per_second / GIGA)


def scale(largest: float) -> tuple[float, str]:
    """The divisor and letter for rates by the largest: 1e9 and G, or 1e12 and T from 10 T on."""
    return (1e12, "T") if abs(largest) >= 9.9995e12 else (GIGA, "G")


def rate_text(flops_per_second: float, integer: bool = False) -> str:
    """A rate with its unit: ``345 GFLOPS``, ``65.2 TFLOPS``; ``GIOPS`` for integers."""
    word = "IOPS" if integer else "FLOPS"
    divisor, letter = scale(flops_per_second)
    return f"{number(flops_per_second / divisor)} {letter}{word}"


def seconds(value: float) -> str:
    """A duration in seconds: ``12.3 ms``."""
    return _scaled(value, _TIMES)


def joules(value: float) -> str:
    """An energy in joules: ``12.3 mJ``."""
    return _scaled(value, _ENERGIES)


def watts(value: float) -> str:
    """A power in watts: ``512 W``."""
    return f"{number(value)} W"


def _scaled(value: float, units: tuple[tuple[float, str], ...]) -> str:
    if not math.isfinite(value):
        return "-"
    size, unit = next((each for each in units if abs(value) >= each[0] * 0.9995), units[-1])
    return f"{number(value / size)} {unit}"


def age(elapsed_s: float) -> str:
    """An age in whole units: ``20 s``, ``3 min``, ``5 h``, ``12 days``."""
    for unit_s, unit in _AGES:
        if elapsed_s >= 2 * unit_s:
            return f"{elapsed_s / unit_s:.0f} {unit}"
    return f"{max(elapsed_s, 0):.0f} s"


def size(count: int) -> str:
    """A number of bytes: ``1.25 MiB``, ``512 B``."""
    for scale, unit in _BYTES:
        if count >= scale:
            return f"{number(count / scale)} {unit}"
    return f"{count} B"


def percent(fraction: float) -> str:
    """A fraction as a percentage: ``12.1 %``."""
    return f"{fraction * 100:.1f} %" if math.isfinite(fraction) else "-"


def share(fraction: float | None) -> str:
    """A percentage with two significant digits: ``97 %``, ``4.7 %``; ``-`` for None."""
    if fraction is None or not math.isfinite(fraction):
        return "-"
    return f"{fraction * 100:.{0 if fraction >= 0.0995 else 1}f} %"


_MOST_LINES = 6
_HIDDEN = {"Cc", "Cf", "Cs"}  # control, format (such as right-to-left override), lone surrogates


def clean(text: str) -> str:
    """One line without control and invisible characters."""
    return " ".join((text if text.isprintable() else "".join(map(_shown, text))).split())


def clean_lines(text: str) -> str:
    """The same for several lines: at most six, and the rest counted."""
    lines = [line for line in (clean(line) for line in text.splitlines()) if line]
    if len(lines) > _MOST_LINES:
        lines = [*lines[: _MOST_LINES - 1], f"(and {len(lines) - _MOST_LINES + 1} more lines)"]
    return "\n".join(lines)


def _shown(letter: str) -> str:
    if letter.isspace():
        return letter
    category = unicodedata.category(letter)
    return "\N{REPLACEMENT CHARACTER}" if category == "Cs" else "" if category in _HIDDEN else letter


def spelt_out(text: str) -> str:
    """A file's name as text that can be stored, even if it is not UTF-8."""
    return text.encode("utf-8", "backslashreplace").decode("utf-8")


def ceil_div(value: int, by: int) -> int:
    """A quotient, rounded up."""
    return -(-value // by)


def count_noun(count: int, what: str, form: str = "") -> str:
    """``1 core``, ``2 cores``; the number formatted, as with ``,``."""
    return f"{count:{form}} {what}{'' if count == 1 else 's'}"


def list_values(parameters: Mapping[str, int | float | str]) -> str:
    """Parameters for people: ``TS=16, WPT=4``."""
    return ", ".join(f"{clean(name)}={clean(str(value))}" for name, value in parameters.items())


def reason_of(error: Exception) -> str:
    """What went wrong, to follow a colon; an `OSError` without number and path."""
    if isinstance(error, OSError):
        return (error.strerror or str(error)).lower()
    return str(error)[:1].lower() + str(error)[1:]


KIB, MIB, GIB = 1 << 10, 1 << 20, 1 << 30


def wrap(text: str, width: int) -> str:
    """Wrap a message at spaces only; further lines are indented."""
    return textwrap.fill(
        text, max(8, width - 1), subsequent_indent="  ", break_long_words=False, break_on_hyphens=False
    )


def by_key(pairs: Iterable[tuple[_Key, _Value]]) -> dict[_Key, list[_Value]]:
    """The values grouped by key, in their order."""
    groups: dict[_Key, list[_Value]] = {}
    for key, value in pairs:
        groups.setdefault(key, []).append(value)
    return groups
