"""Rates in flop per cycle: what remains of a rate when the clock it was measured at is taken out.

The clock is the average of each batch by the device's own counters, where it has them (`Batch.mhz`).
"""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median

from gemmbench.model.device import HOST
from gemmbench.model.row import Row
from gemmbench.model.run_file import Run
from gemmbench.stats import rates
from gemmbench.stats.conditions import known

_CLOCK = "device"  # that the batches of the kernel and the device scope are timed by


def counted_mhz(row: Row) -> float | None:
    """The median of the batches' average clocks, in MHz; None where the device does not count."""
    clocks = known(_clocks(row))
    return median(clocks) if clocks else None


def flop_per_cycle(run: Run, row: Row, scope: str = "kernel") -> float | None:
    """Operations of a compute unit in a cycle, as the median of the batches; None where unknown.

    Args:
        run: that the row is of.
        row: a GEMM's or a peak's.
        scope: of its seconds, or the next wider one that was measured.
    """
    reached = rates.shown_rate(row, scope) if row.kind in ("gemm", "peak") else None
    middle = counted_mhz(row)
    if reached is None or middle is None or row.device == HOST:
        return None
    units = max(1, run.header.devices[row.device].compute_units)
    seconds, clocks = row.samples[rates.shown_samples(row, scope)].seconds, _clocks(row)
    if len(seconds) != len(clocks):
        return reached.median / (middle * 1e6 * units)
    cycles = [each * mhz * 1e6 for each, mhz in zip(seconds, clocks, strict=True) if mhz]
    return rates.flops_of(row) / (median(cycles) * units)


def at_clock(run: Run, row: Row, scope: str = "kernel", others: Sequence[Run] = ()) -> float | None:
    """The fraction of the peak at the clock that was had; None where either clock is unknown.

    It is the ratio of their flop per cycle: power that limits the clock of a GEMM, and not of the peak, is no
    fault of the kernel's. Arguments as of `rates.peak_fraction`.
    """
    own = flop_per_cycle(run, row, scope) if row.kind == "gemm" else None
    top = rates.held_against(run, row, others) if own else None
    most = flop_per_cycle(top.run, top.row) if top else None
    return own / most if own and most else None


def derived(run: Run, row: Row) -> dict[str, object]:
    """The fields that ``show --format json`` and CSV put beside the stored ones; null where unknown."""
    return {
        "counted_mhz": counted_mhz(row),
        "flop_per_cycle": flop_per_cycle(run, row),
        "peak_fraction_at_clock": at_clock(run, row),
    }


def _clocks(row: Row) -> tuple[float | None, ...]:
    windows = row.conditions.windows if row.conditions else {}
    return windows[_CLOCK].counted_mhz if _CLOCK in windows else ()
