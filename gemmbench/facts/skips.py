"""Rows that were skipped because they could not finish in their budget."""

from __future__ import annotations

from gemmbench.facts.records import Row
from gemmbench.facts.units import seconds

LEAST_SAMPLES = 3  # that a row must have, however short its budget
LEAST_RUNS = 1 + 2 * LEAST_SAMPLES  # of its problem that it takes: verified once, then as many batches twice


def too_slow(predicted_s: float, budget_s: float) -> str:
    """The reason of a row that cannot finish in its budget, with what it would take."""
    return (
        f"would take about {seconds(predicted_s)}, more than the budget of {seconds(budget_s)}; "
        f"--budget {int(predicted_s) + 1} runs it"
    )


def is_too_slow(row: Row) -> bool:
    """Whether a row was skipped since it would have taken more than its budget."""
    return row.status == "skipped" and row.needs_s is not None
