"""How often the intervals that are shown hold the true median, where neighbouring batches are alike.

Batches are drawn from an autoregressive process of first order, whose lag-1 correlation is known, and go one
after another through the shipped stopping rule. `python -m tools.interval_coverage` prints the table; a
shorter run of it is a test.
"""

from __future__ import annotations

import argparse
import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from gemmbench.measure.sampling import Rule
from gemmbench.model.case import Policy
from gemmbench.stats.intervals import summarize

CORRELATIONS = (0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9)
SPREADS = (0.003, 0.01, 0.03)  # standard deviation of a batch, as a fraction of the median
LIMITS = (60, 100, 150)  # batches that the budget allows: 150 of 10 ms are the kernel scope's by default
_BATCH_S = 0.01
_SEED = 20261122


@dataclass(frozen=True)
class Coverage:
    """What came of many rows of one kind."""

    rows: int
    drawn: int  # with an interval
    held: int  # whose interval held the true median
    batches: float  # of a row, on average

    @property
    def share(self) -> float:
        """Of the rows, those with an interval."""
        return self.drawn / self.rows

    @property
    def coverage(self) -> float:
        """Of the intervals, those that hold the true median; NaN where there are none."""
        return self.held / self.drawn if self.drawn else math.nan

    @property
    def text(self) -> str:
        """Both in per cent, and the batches: ``97.4 of 15.4 %, 144``."""
        return f"{100 * self.coverage:.1f} of {100 * self.share:.1f} %, {self.batches:.0f}"


def autoregressive(
    correlation: float, rows: int, count: int, random: np.random.Generator
) -> npt.NDArray[np.float64]:
    """Stationary normal series of unit variance, a row each."""
    values = random.standard_normal((rows, count))
    for index in range(1, count):
        values[:, index] *= math.sqrt(1 - correlation**2)
        values[:, index] += correlation * values[:, index - 1]
    return values


def simulate(correlation: float, spread: float, limit: int, rows: int, seed: int = _SEED) -> Coverage:
    """Sample so many rows by the shipped rule.

    Args:
        correlation: of each batch with the one before it.
        spread: standard deviation of a batch, as a fraction of the median.
        limit: batches that the budget allows.
        rows: how many.
        seed: of the random numbers.
    """
    random = np.random.default_rng((seed, round(1000 * correlation), round(1e5 * spread), limit))
    drawn = held = batches = 0
    for series in np.exp(spread * autoregressive(correlation, rows, limit, random)):
        rule = Rule(Policy(), 0.0, (limit + 0.5) * _BATCH_S)
        count = 0
        while not rule.stop:
            rule.add(_BATCH_S * series[count], (count + 1) * _BATCH_S)
            count += 1
        shown = summarize(_BATCH_S * series[:count])
        batches += count
        if math.isfinite(shown.noise):
            drawn += 1
            held += shown.low <= _BATCH_S <= shown.high
    return Coverage(rows, drawn, held, batches / rows)


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=1000, help="for each cell (default: %(default)s)")
    rows = parser.parse_args().rows
    print("Intervals that hold the true median, of those drawn in so many of all rows; batches of a row.")
    print("limit  spread  " + "".join(f"{f'r = {value}':>25}" for value in CORRELATIONS))
    for limit in LIMITS:
        for spread in SPREADS:
            cells = (simulate(value, spread, limit, rows) for value in CORRELATIONS)
            text = "".join(f"{cell.text:>25}" for cell in cells)
            print(f"{limit:5}  {100 * spread:4.1f} %  {text}", flush=True)


if __name__ == "__main__":
    main()
