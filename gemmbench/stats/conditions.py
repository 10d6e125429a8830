"""What the conditions of a row say: was it disturbed, and what limited its device."""

from __future__ import annotations

import re
from collections.abc import Sequence
from statistics import fmean, median

from gemmbench.model.device import HARDWARE, HOST, POWER, THERMAL, Conditions, Readings
from gemmbench.model.row import PAGEABLE, Row
from gemmbench.model.run_file import Run
from gemmbench.model.units import number

_OTHERS = 0.1  # of the cores, that processes of others used
STOLEN = 0.02  # of the cores
TICKS_S = 0.02  # of each core: Linux counts in ticks of a hundredth of a second
_HALVES = 0.02  # that the clock of one half of a row may lie from the other's
_LEAST_CLOCKS = 20  # of both halves: a single reading is no steadier than the rate


def disturbances(conditions: Conditions | None, on_cpu: bool) -> tuple[str, ...]:
    """Why a row is not to be relied on; none where nothing is known."""
    if conditions is None:
        return ()
    windows = conditions.windows.items()
    reasons = _of_host([window for clock, window in windows if on_cpu or clock == "host"], conditions.cores)
    for clock, window in () if on_cpu else windows:
        # Between transfers a device rests and its clock rises; in a burst the clock may fall.
        holds_still = clock not in ("host", PAGEABLE) and conditions.state != "burst"
        reasons += _of_device(window, holds_still)
    return tuple(dict.fromkeys(reasons))


def disturbed(run: Run, row: Row) -> tuple[str, ...]:
    """Why a row of a run is not to be relied on; see `disturbances`."""
    return disturbances(row.conditions, is_on_cpu(run, row))


def disturbed_points(rows: Sequence[tuple[Run, Row]]) -> list[str]:
    """That some of the rows of a chart were disturbed, in a sentence; none if none was."""
    every = [(row, why[0]) for run, row in rows if row.status == "ok" and (why := disturbed(run, row))]
    if not every:
        return []
    names = ", ".join(dict.fromkeys(row.variant for row, _ in every))
    kinds = {re.sub(r"[\d.]+", "", why): why for _, why in every}  # one of each, whatever its figure
    return [f"Disturbed: {len(every)} of {len(rows)} points ({names}): {'; '.join(kinds.values())}."]


def is_on_cpu(run: Run, row: Row) -> bool:
    """Whether a row ran on the host's processor."""
    return row.device == HOST or row.ran_on == "host" or run.header.devices[row.device].type == "cpu"


def _of_host(windows: Sequence[Readings], cores: int) -> list[str]:
    """What others took of the cores in the window in which they took most, if that is too much."""
    parts = (
        ("other programs used", _OTHERS, "other_cores"),
        ("the hypervisor gave others", STOLEN, "steal_cores"),
    )
    reasons = []
    for what, share, name in parts:
        too_much = [
            used
            for window in windows
            if (used := getattr(window, name)) is not None and window.window_s
            if used > share * cores + TICKS_S * cores / window.window_s
        ]
        if too_much and cores:
            reasons.append(f"{what} {number(max(too_much))} of {cores} cores")
    return reasons


def _of_device(window: Readings, holds_still: bool) -> list[str]:
    limits = {name for text in window.limits for name in text.split()}
    causes = {THERMAL: "the temperature", HARDWARE: "the board"}
    reasons = [f"{what} limited the clock" for name, what in causes.items() if name in limits]
    clocks = known(window.clock_mhz)
    if holds_still and len(clocks) >= _LEAST_CLOCKS:
        middle = len(clocks) // 2
        first, second = fmean(clocks[:middle]), fmean(clocks[middle:])
        if abs(second / first - 1) > _HALVES:
            reasons.append(f"the clock went from {number(first)} to {number(second)} MHz")
    return reasons


def known(values: Sequence[float | None]) -> list[float]:
    """The values that are known."""
    return [value for value in values if value is not None]


def in_short(row: Row) -> dict[str, float | int | str | None]:
    """A row's conditions in a value each, over all its windows; None where not known."""
    windows = tuple(row.conditions.windows.values()) if row.conditions else ()
    clocks = [clock for window in windows for clock in known(window.clock_mhz)]
    switches = [window.switches for window in windows if window.switches is not None]
    limits = dict.fromkeys(name for window in windows for text in window.limits for name in text.split())
    return {
        "state": state(row),
        "clock_mhz": median(clocks) if clocks else None,
        "limits": " ".join(limits),
        "other_cores": max(known([window.other_cores for window in windows]), default=None),
        "steal_cores": max(known([window.steal_cores for window in windows]), default=None),
        "switches": sum(switches) if switches else None,
    }


def state(row: Row) -> str:
    """The state that a row was measured in; "" if it has none."""
    return row.conditions.state if row.conditions else ""


def limited(run: Run, device: int, dtype: str | None = None) -> str:
    """How power limited a device in the GEMMs of a type: ``1,440 of 1,980 MHz``; "" where it did not.

    The clock is the median of the batches in which power limited it.
    """
    clocks: list[float] = []
    most = 0.0
    for row in run.rows:
        if row.device != device or dtype not in (None, row.dtype) or row.conditions is None:
            continue
        most = max(most, row.conditions.max_mhz or 0.0)
        for window in row.conditions.windows.values():
            clocks += [
                clock
                for clock, limits in zip(window.clock_mhz, window.limits, strict=False)
                if clock is not None and POWER in limits.split()
            ]
    return f"{number(median(clocks))} of {number(most)} MHz" if clocks and most else ""


_CLOCK = "device"  # that the batches of the kernel and the device scope are timed by


def counted_mhz(row: Row) -> float | None:
    """The median of the batches' average clocks, in MHz; None where the device does not count."""
    windows = row.conditions.windows if row.conditions else {}
    clocks = known(windows[_CLOCK].counted_mhz) if _CLOCK in windows else []
    return median(clocks) if clocks else None
