"""One row in a sentence, as the pointer on a chart is told it."""

from __future__ import annotations

from gemmbench.model import units
from gemmbench.model.row import Row
from gemmbench.model.run_file import Run
from gemmbench.model.units import clean
from gemmbench.report.notes import FEW, WORDS
from gemmbench.report.progress import row_label
from gemmbench.stats import rates
from gemmbench.stats.conditions import disturbed


def sample(run: Run, row: Row, scope: str = "kernel") -> str:
    """What was measured: rate, time, interval, number of batches, and what is wrong with it.

    Args:
        run: that the row is of.
        row: any.
        scope: that a GEMM's rate is shown in, or the next wider one that it has.
    """
    label = " ".join(filter(None, (clean(row.label), row_label(row))))
    if row.status != "ok":
        return f"{label}: {WORDS[row.status]}, {clean(row.reason) or 'no reason given'}"
    shown = rates.shown_samples(row, scope) if row.kind == "gemm" else rates.finest_scope(row) or ""
    times = rates.summary(row, shown)
    parts = [*_rate(row, shown)]
    if times is not None:
        between = FEW if times.is_few else f"{units.seconds(times.low)} to {units.seconds(times.high)}"
        parts.append(f"median {units.seconds(times.median)} ({between}), best {units.seconds(times.minimum)}")
        parts.append(f"{times.n} batches of {row.samples[shown].batch}, {clean(shown)} scope")
    fraction = rates.peak_fraction(run, row, scope) if row.kind == "gemm" else None
    parts += [f"{units.percent(fraction)} of peak"] if fraction is not None else []
    parts += [f"verified: {row.check.verdict}"] if row.check.verdict != "none" else []
    parts += [f"disturbed: {reason}" for reason in disturbed(run, row)]
    return f"{label}: {'; '.join(parts)}"


def _rate(row: Row, scope: str) -> list[str]:
    if row.kind == "gemm":
        reached = rates.rate(row, scope)
        return [units.rate(reached.median, rates.is_integer(row.dtype))] if reached else []
    if row.kind == "peak":
        best = rates.rate(row, scope)
        return [f"best {units.rate(best.best, rates.is_integer(row.dtype))}"] if best else []
    moved = rates.byte_rate(row)
    return [f"best {units.number(moved.best / units.GIGA)} GB/s"] if moved else []
