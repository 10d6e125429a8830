"""What dashboards follow from run to run: named series of times and rates."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache

from gemmbench.model.row import Row
from gemmbench.model.run_file import Run
from gemmbench.model.units import GIGA, clean
from gemmbench.stats import rates
from gemmbench.stats.intervals import Interval, Summary
from gemmbench.stats.rates import Rate


@dataclass(frozen=True)
class Series:
    """The figures of an ok row in one scope.

    The intervals are those that tables show; their ends are NaN where the samples are too few.
    """

    name: str  # of the row and the scope: gemm/tiled/float/512/kernel
    benchmark: str  # of the row alone
    row: Row
    scope: str
    times: Summary  # seconds for one problem or launch
    operations: Rate | None  # per second
    bytes: Rate | None  # per second

    @property
    def is_fixed(self) -> bool:
        """Whether a problem or launch is the same work in every run; races choose how much a probe does."""
        return self.row.kind not in ("peak", "bandwidth")

    @property
    def seconds(self) -> Sequence[float]:
        """The samples, one for each batch."""
        return self.row.samples[self.scope].seconds

    def rates(self, of: Rate) -> list[float]:
        """One of its rates, batch by batch."""
        return [of.median * (self.times.median / seconds) for seconds in self.seconds]


def standing(row: Row) -> str:
    """Its status, but ``suspect`` where it has a figure that is not believed."""
    return row.check.verdict if row.status == "ok" and row.check.verdict == "suspect" else row.status


def series(run: Run) -> Iterator[Series]:
    """Every series of a run: the ok rows in each scope that was measured, innermost first."""
    for row, benchmark in zip(run.rows, labels(run), strict=True):
        for scope in row.samples if standing(row) == "ok" and row.kind != "look" else ():
            if times := rates.summary(row, scope):
                moved = rates.byte_rate(row) if scope == rates.finest_scope(row) else None
                yield Series(
                    f"{benchmark}/{scope}", benchmark, row, scope, times, rates.rate(row, scope), moved
                )


@lru_cache(maxsize=16)
def labels(run: Run) -> tuple[str, ...]:
    """A name for each row, the same in other runs of the same case.

    ``gemm/tiled/float/512``: kind, variant, data type, then what tells rows apart. Where a run has a case
    several times, as an A/A measurement has, all but the first get a number: ``...#2``.
    """
    several = len(run.header.devices) > 1
    seen: Counter[str] = Counter()
    made = []
    for row in run.rows:
        name = _label(row, several)
        seen[name] += 1
        made.append(name if seen[name] == 1 else f"{name}#{seen[name]}")
    return tuple(made)


def _label(row: Row, several: bool) -> str:
    """A row's name; with its device's position where the run has several."""
    words = [row.kind, *row.title.split(), row.dtype]
    if row.problem:
        words += row.problem.size.split()
        words += [f"alpha={row.problem.alpha:g}"] if row.problem.alpha != 1 else []
        words += [f"beta={row.problem.beta:g}"] if row.problem.beta != 0 else []
    apart = row.parameters if row.kind != "gemm" or row.phase else dict.fromkeys(row.given or ())
    words += [f"{name}={row.parameters[name]}" for name in sorted(apart) if name in row.kernel_parameters]
    words += [row.label, row.phase]
    words += [f"device={row.device}"] if several and row.device >= 0 else []
    words += ["beside=" + "+".join(map(str, row.beside))] if row.beside else []
    return "/".join("_".join(clean(word).replace("/", "_").split()) for word in words if word)


def rate_of(series: Series) -> tuple[Interval, str, float] | None:
    """The rate of a series, its unit, and what to divide it by; None if it has none."""
    if series.operations:
        return series.operations, rates.unit(series.row.dtype), GIGA
    return (series.bytes, "GB/s", GIGA) if series.bytes else None
