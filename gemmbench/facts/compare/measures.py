"""What one row says of its speed in one run: a logarithm, and how far its own samples make it uncertain."""

from __future__ import annotations

import math
from dataclasses import replace

from gemmbench.facts import derive
from gemmbench.facts.records import Row
from gemmbench.facts.stats import LEAST_SAMPLES, Measure, log_median, mean


def measure(row: Row, scope: str | None = None) -> Measure | None:
    """The median cost of a row, in seconds for one unit of its work.

    The unit is a flop where the row counts flops, a byte where it counts bytes, else one launch or load:
    the races of a microbenchmark may settle on another length of loop each time.

    Args:
        row: the row.
        scope: ``kernel``, ``device`` or ``host``; None for the finest that was measured. Where it was not
            measured, as for the host's own BLAS, the finest.

    Returns:
        None unless the row is ok and has samples.
    """
    chosen = _scope(row, scope)
    if chosen is None:
        return None
    cost = log_median(row.samples[chosen].seconds)
    return replace(cost, value=cost.value - math.log(work(row)))


def in_turn(row: Row, scope: str | None = None) -> Measure | None:
    """How much longer a row took than its former self: the median of the ratios of neighbouring batches.

    What changes the speed of the machine for longer than two batches is in both, and not in their ratio. What
    came second in one pair came first in the next: pairs of either order have a median of their own, and the
    figure is the mean of the two. Arguments as of `measure`.

    Returns:
        None unless the row is ok and its samples were taken in turn with its former self's.
    """
    chosen = _scope(row, scope)
    if chosen is None or row.former is None or chosen not in row.former.samples:
        return None
    pairs = zip(row.samples[chosen].seconds, row.former.samples[chosen].seconds, strict=True)
    ratios = tuple(now / before for now, before in pairs)
    orders = (ratios[::2], ratios[1::2]) if len(ratios) >= 2 * LEAST_SAMPLES else (ratios,)
    return mean([log_median(one) for one in orders])


def former(row: Row, scope: str | None = None) -> float:
    """Seconds that a row's former self took for one problem; arguments as of `measure`.

    Raises:
        ValueError: it has none.
    """
    chosen = _scope(row, scope)
    if chosen is None or row.former is None or chosen not in row.former.samples:
        raise ValueError(f"{row.variant} was not measured in turn with a former self")
    return math.exp(log_median(row.former.samples[chosen].seconds).value)


def _scope(row: Row, scope: str | None) -> str | None:
    """The scope that counts of a row; None unless it is ok and has samples."""
    if row.status != "ok":
        return None
    return scope if scope in row.samples and row.samples[scope].seconds else derive.finest_scope(row)


def work(row: Row) -> int:
    """Units of work in one sample of a row: flops, else bytes, else 1."""
    return derive.flops_of(row) or (row.work.bytes if row.work else 0) or 1
