"""The tables of conditions: what a device and its host did while each row was measured."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from statistics import median

from gemmbench.model import units
from gemmbench.model.device import HOST, Readings
from gemmbench.model.row import Row
from gemmbench.model.run_file import Run
from gemmbench.model.units import clean
from gemmbench.report import notes
from gemmbench.report.progress import row_label
from gemmbench.report.table import Cell, Sheet, heading
from gemmbench.stats.conditions import disturbed, known

_DEVICE = ("clock MHz", "of", "power W", "C", "limits")
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
        caption="conditions: medians of the batches, the highest temperature; ~ disturbed",
        keys=("", "timed"),
        blocks=(
            ("state", "warmed"),
            *((_DEVICE,) if speaks else ()),
            *((("counted MHz",),) if counts else ()),
            _HOST,
        ),
        rows=tuple(
            (
                Cell(notes.marked(run, row, row_label(row)), style="yellow" if disturbed(run, row) else ""),
                Cell(clean(clock)),
                *_state(row),
                *(_device(row, window) if speaks else ()),
                *((_number(window.counted_mhz),) if counts else ()),
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


def _host(window: Readings) -> tuple[Cell, ...]:
    switches = "-" if window.switches is None else str(window.switches)
    return _number([window.other_cores]), _number([window.steal_cores]), Cell(switches)


def _limits(texts: Iterable[str]) -> Cell:
    names = dict.fromkeys(name for text in texts for name in text.split())
    return Cell(clean(", ".join(names)) or "-")


def _number(values: Sequence[float | None], middle: Callable[[Iterable[float]], float] = median) -> Cell:
    there = known(values)
    return Cell(units.number(middle(there))) if there else Cell("-")
