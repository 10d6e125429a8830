"""The tables of conditions, and of long runs (``--for``).

What a device and its host did while each row was measured; how a long run's rate held, and whether every bit
was right.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from statistics import fmean, median

from gemmbench.model import units
from gemmbench.model.device import HOST, Readings
from gemmbench.model.row import BitError, Row, Sustained
from gemmbench.model.run_file import Run
from gemmbench.model.units import clean, counted
from gemmbench.report import notes
from gemmbench.report.progress import row_label
from gemmbench.report.table import NOTHING, Cell, Note, Sheet, heading
from gemmbench.stats import conditions, rates
from gemmbench.stats.conditions import disturbed, known

_DEVICE = ("clock MHz", "of", "power W", "C", "limits")
_COUNTED = ("counted MHz", "flop/cycle", "of peak at it")
_HOST = ("other cores", "steal", "switches")


def sheets(run: Run) -> list[Sheet]:
    """A table for each device, a line for each clock of each row; none where nothing was read."""
    devices = sorted({row.device for row in run.rows}, key=lambda device: (device == HOST, device))
    return [sheet for device in devices if (sheet := _sheet(run, device))]


def _sheet(run: Run, device: int) -> Sheet | None:
    lines = [
        (row, clock, window)
        for row in run.rows
        if row.device == device and row.conditions
        for clock, window in row.conditions.windows.items()
    ]
    if not lines:
        return None
    speaks = any(window.clock_mhz or window.power_w for _, _, window in lines)
    counts = any(window.counted_mhz for _, _, window in lines)
    return Sheet(
        heading=heading(run, device),
        caption="conditions: medians of the batches, the highest temperature; ~ disturbed"
        + ("; flop per cycle and unit, and its fraction of the peak's" if counts else ""),
        keys=("", "timed"),
        blocks=(
            ("state", "warmed"),
            *((_DEVICE,) if speaks else ()),
            *((_COUNTED,) if counts else ()),
            _HOST,
        ),
        rows=tuple(
            (
                Cell(notes.marked(run, row, row_label(row)), style="yellow" if disturbed(run, row) else ""),
                Cell(clean(clock)),
                *_state(row),
                *(_device(row, window) if speaks else ()),
                *(_counted(run, row, window) if counts else ()),
                *_host(window),
            )
            for row, clock, window in lines
        ),
        left=frozenset({"timed", "state", "limits"}),
    )


def _state(row: Row) -> tuple[Cell, ...]:
    assert row.conditions is not None
    warm_s = row.conditions.warm_s
    return Cell(row.conditions.state or "-"), Cell(units.seconds(warm_s) if warm_s else "-")


def _device(row: Row, window: Readings) -> tuple[Cell, ...]:
    assert row.conditions is not None
    return (
        _number(window.clock_mhz),
        _number([row.conditions.max_mhz if window.clock_mhz else None]),
        _number(window.power_w),
        _number(window.celsius, max),
        _limits(window.limits),
    )


def _counted(run: Run, row: Row, window: Readings) -> tuple[Cell, ...]:
    """The clock by the device's own counters, and the rate in its cycles."""
    fraction = conditions.at_clock(run, row) if window.counted_mhz else None
    return (
        _number(window.counted_mhz),
        _number([conditions.flop_per_cycle(run, row) if window.counted_mhz else None]),
        Cell(units.percent(fraction) if fraction else "-"),
    )


def _host(window: Readings) -> tuple[Cell, ...]:
    switches = "-" if window.switches is None else str(window.switches)
    return _number([window.other_cores]), _number([window.steal_cores]), Cell(switches)


def _limits(texts: Iterable[str]) -> Cell:
    names = dict.fromkeys(name for text in texts for name in text.split())
    return Cell(clean(", ".join(names)) or "-")


def _number(
    values: Sequence[float | None],
    middle: Callable[[Iterable[float]], float] = median,
    unknown: Cell = Cell("-"),  # noqa: B008  it is frozen
) -> Cell:
    there = known(values)
    return Cell(units.number(middle(there))) if there else unknown


_ENDS_S = 10.0  # at most: what the first and the last figures are taken over
_SHOWN_ERRORS = 5
_APART = 0.01  # from here on one of several devices is the slowest


def sustained_sheets(run: Run) -> list[Sheet]:
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
    ends = [begin + length for begin, length in zip(result.begin_s, result.length_s, strict=True)]
    return first, [index for index, end in enumerate(ends) if end > last_s]


def _cells(row: Row, result: Sustained, speaks: bool) -> tuple[Cell, ...]:
    integer = rates.is_integer(row.dtype)
    first, last = _ends(result)
    figures: tuple[Cell, ...] = (NOTHING,) * 4
    if result.seconds:
        lowest = result.flops / max(result.seconds)
        values = (rate_of(result), rate_of(result, first), rate_of(result, last), lowest)
        figures = tuple(Cell(units.rate(value, integer)) for value in values)
    style = "bold red" if result.wrong else ""
    counts = (f"{result.results:,}", f"{result.wrong:,}", f"{result.bits:,}")
    said: tuple[Cell, ...] = ()
    if speaks:
        ways = ((result.clock_mhz, median), (result.power_w, fmean), (result.celsius, max))
        said = (*(_number(values, middle, NOTHING) for values, middle in ways), _limits(result.limits))
    keys = Cell(row_label(row)), Cell(str(row.device)), Cell(units.seconds(ran_s(result)))
    return (*keys, *figures, *(Cell(text, style=style) for text in counts), *said)


def _notes(run: Run, rows: Sequence[Row]) -> Iterable[Note]:
    if slow := slowest(run, rows):
        yield Note("slowest", slow)
    for row in rows:
        result = row.sustained
        if not result:
            continue
        label = f"{row_label(row)} on {row.device}"
        if result.end != "done":
            ran = f"{units.seconds(ran_s(result))} of {units.seconds(result.wanted_s)}"
            yield Note(label, f"ended after {ran}: {result.end}", "yellow")
        for error in result.errors[:_SHOWN_ERRORS]:
            bits = f"{error.bits:,} {'bit differs' if error.bits == 1 else 'bits differ'}"
            at = f"{units.seconds(error.at_s)}, in result {error.result:,}, first at {place(row, error)}"
            yield Note(label, f"{bits} at {at}", "bold red")
        if result.wrong > _SHOWN_ERRORS:
            yield Note(label, f"{result.wrong - _SHOWN_ERRORS:,} more results differ")
    shares = [row.sustained.check_share for row in rows if row.sustained]
    yield Note("comparing", f"took {units.percent(max(shares))} of the time, and is not in the rates")


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
    bits, results = counted(result.bits, "bit", ","), counted(result.wrong, "result", ",")
    return (
        f"{bits} of {results} out of {result.results:,} {'differs' if result.bits == 1 else 'differ'} from "
        f"the first, which was verified; the first at {units.seconds(first.at_s)}, in result "
        f"{first.result:,}, at {place(row, first)}"
    )


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
