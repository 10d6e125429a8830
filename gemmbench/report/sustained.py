"""The table of long runs (``--for``): how the rate held, and whether every bit was right."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from statistics import fmean, median

from gemmbench.model import units
from gemmbench.model.row import BitError, Row, Sustained
from gemmbench.model.run_file import Run
from gemmbench.model.units import clean
from gemmbench.report.progress import row_label
from gemmbench.report.table import NOTHING, Cell, Note, Sheet
from gemmbench.stats import rates

_ENDS_S = 10.0  # at most: what the first and the last figures are taken over
_SHOWN_ERRORS = 5
_APART = 0.01  # from here on one of several devices is the slowest


def sheets(run: Run) -> list[Sheet]:
    """A table of all long runs; none where there are none."""
    rows = [row for row in run.rows if row.sustained]
    if not rows:
        return []
    speaks = any(row.sustained and (row.sustained.power_w or row.sustained.clock_mhz) for row in rows)
    conditions = (("MHz", "W", "C", "limits"),) if speaks else ()
    return [
        Sheet(
            heading=("under load for long (--for)",),
            caption="rates of all that was run, of the first and the last seconds, and of the slowest "
            "window; every result compared with the first, bit for bit",
            keys=("", "device"),
            blocks=(
                ("ran", "rate", "first", "last", "lowest"),
                ("results", "wrong", "wrong bits"),
                *conditions,
            ),
            rows=tuple(_cells(row, row.sustained, speaks) for row in rows if row.sustained),
            notes=tuple(_notes(run, rows)),
            left=frozenset({"limits"}),
        )
    ]


def rate_of(result: Sustained, windows: Iterable[int] | None = None) -> float:
    """Operations per second over windows, or over all, by the problems' own time."""
    indices = range(len(result.seconds)) if windows is None else list(windows)
    problems = sum(result.problems[index] for index in indices)
    spent_s = math.fsum(result.problems[index] * result.seconds[index] for index in indices)
    return result.flops * problems / spent_s if spent_s else 0.0


def ran_s(result: Sustained) -> float:
    """How long it ran."""
    return result.begin_s[-1] + result.length_s[-1] if result.begin_s else 0.0


def _ends(result: Sustained) -> tuple[list[int], list[int]]:
    """The windows of the first and of the last seconds."""
    length_s = min(_ENDS_S, ran_s(result) / 4)
    last_s = ran_s(result) - length_s
    first = [index for index, begin in enumerate(result.begin_s) if begin < length_s]
    last = [
        index
        for index, (begin, length) in enumerate(zip(result.begin_s, result.length_s, strict=True))
        if begin + length > last_s
    ]
    return first, last


def _cells(row: Row, result: Sustained, speaks: bool) -> tuple[Cell, ...]:
    integer = rates.is_integer(row.dtype)
    first, last = _ends(result)
    figures: tuple[Cell, ...] = (NOTHING,) * 4
    if result.seconds:
        lowest = result.flops / max(result.seconds)
        values = (rate_of(result), rate_of(result, first), rate_of(result, last), lowest)
        figures = tuple(Cell(units.rate(value, integer)) for value in values)
    style = "bold red" if result.wrong else ""
    counted = (f"{result.results:,}", f"{result.wrong:,}", f"{result.bits:,}")
    said: tuple[Cell, ...] = ()
    if speaks:
        limits = dict.fromkeys(name for text in result.limits for name in text.split())
        said = (
            _middle(result.clock_mhz, median),
            _middle(result.power_w, fmean),
            _middle(result.celsius, max),
            Cell(clean(", ".join(limits)) or "-"),
        )
    ran = units.seconds(ran_s(result))
    return (
        Cell(row_label(row)),
        Cell(str(row.device)),
        Cell(ran),
        *figures,
        *(Cell(text, style=style) for text in counted),
        *said,
    )


def _middle(values: Sequence[float | None], middle: object) -> Cell:
    there = [value for value in values if value is not None]
    return Cell(units.number(middle(there))) if there and callable(middle) else NOTHING


def _notes(run: Run, rows: Sequence[Row]) -> Iterable[Note]:
    if slow := slowest(run, rows):
        yield Note("slowest", slow)
    for row in rows:
        result = row.sustained
        if not result:
            continue
        label = f"{row_label(row)} on {row.device}"
        if result.end != "done":
            wanted = units.seconds(result.wanted_s)
            yield Note(
                label, f"ended after {units.seconds(ran_s(result))} of {wanted}: {result.end}", "yellow"
            )
        for error in result.errors[:_SHOWN_ERRORS]:
            yield Note(label, _told(row, error), "bold red")
        if result.wrong > _SHOWN_ERRORS:
            yield Note(label, f"{result.wrong - _SHOWN_ERRORS:,} more results differ")
    shares = [row.sustained.check_share for row in rows if row.sustained]
    yield Note("comparing", f"took {units.percent(max(shares))} of the time, and is not in the rates")


def _told(row: Row, error: BitError) -> str:
    bits = "bit differs" if error.bits == 1 else "bits differ"
    at = units.seconds(error.at_s)
    return f"{error.bits:,} {bits} at {at}, in result {error.result:,}, first at {place(row, error)}"


def place(row: Row, error: BitError) -> str:
    """Where a result first differed: ``C[3][17]``, or a byte of what a probe writes."""
    if row.problem is None:
        return f"byte {error.byte:,}"
    ld = row.problem.ld or None
    index = error.byte // rates.gemm_of(row).result.itemsize
    line, column = divmod(index, ld[2] if ld else row.problem.n)
    number, line = divmod(line, row.problem.m)
    of = f" of problem {number}" if row.problem.count > 1 else ""
    return f"C[{line}][{column}]{of}"


def in_a_sentence(row: Row, result: Sustained) -> str:
    """What was wrong in a long run: how much, where first, and when; "" if nothing was."""
    if not result.wrong:
        return ""
    first = result.errors[0]
    return (
        f"{_counted(result.bits, 'bit')} of {_counted(result.wrong, 'result')} out of {result.results:,} "
        f"{'differs' if result.bits == 1 else 'differ'} from the first, which was verified; the first at "
        f"{units.seconds(first.at_s)}, in result {first.result:,}, at {place(row, first)}"
    )


def _counted(count: int, what: str) -> str:
    return f"{count:,} {what}{'' if count == 1 else 's'}"


def slowest(run: Run, rows: Sequence[Row]) -> str:
    """Which of several devices was the slowest, and by how much; "" of one device."""
    by_device = {
        row.device: rate_of(row.sustained) for row in rows if row.sustained and row.sustained.seconds
    }
    if len(by_device) < 2:
        return ""
    last, first = min(by_device, key=lambda device: by_device[device]), max(by_device.values())
    behind = 1 - by_device[last] / first
    if behind < _APART:
        return f"none: the devices are within {units.percent(behind)} of each other"
    name = clean(run.header.devices[last].name) if last >= 0 else "the host"
    return f"device {last} ({name}), {units.percent(behind)} below the fastest"
