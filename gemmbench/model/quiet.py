"""Quiet windows: which batches of a CPU row count. A pure function of what is saved.

A control burst, fixed work on all cores, runs before and after each batch. A batch counts if both of its
bursts were as fast as undisturbed ones, no thread waited long for a core, and the clock was not higher than
usual.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import chain
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from gemmbench.model.row import Row, Scope

WITHIN = 0.05  # of the reference a burst is undisturbed; docs/methodology.md compares others
WAITED = 0.02  # of a batch: longer waits of a thread for a core, beyond ordinary ones, disturb it
_ORDINARY = 1.5  # times the usual wait of a row: threads that hand work over wait now and then
_MOST_ORDINARY = 0.2  # of a batch
LEAST, LEAST_LONG = 10, 3  # quiet batches of a complete row; of problems that seldom fit a quiet period
LONG_S = 0.03  # from here on a problem is one of these
BATCH_S = 0.003  # quiet periods of a shared machine last some 10 ms
_FAST = 0.1  # the quantile of a run's bursts that is its reference: a clock that is seldom higher is none
_USUAL = 0.25  # the quantile of a row's waits, and of the references of earlier runs, that counts
RUNS = 20  # earlier ones that are remembered

References = Mapping[str, float]  # by device: seconds of an undisturbed burst, for 10^9 operations


def flags(scope: Scope) -> tuple[bool, ...]:
    """Whether each batch of a scope is quiet; all are without bursts or reference."""
    if not scope.bursts_s or not scope.quiet_s:
        return (True,) * len(scope.seconds)
    low, high = scope.quiet_s
    pairs = zip(scope.bursts_s[::2], scope.bursts_s[1::2], strict=True)
    waits = scope.waited_s or (0.0,) * len(scope.seconds)
    shares = [each / (s * scope.batch) for each, s in zip(waits, scope.seconds, strict=True)]
    most = WAITED + _ORDINARY * min(_MOST_ORDINARY, _quantile(shares, _USUAL))
    return tuple(
        low <= min(pair) and max(pair) <= high and share <= most
        for pair, share in zip(pairs, shares, strict=True)
    )


def choose_reference(bursts_s: Sequence[float], known_s: float = 0.0) -> float:
    """The reference of a run: the known one, else the 10 % quantile of its bursts."""
    return known_s or _quantile(bursts_s, _FAST)


def known(references_s: Sequence[float]) -> float:
    """The reference of earlier runs: the 25 % quantile of the last 20."""
    return _quantile(references_s[-RUNS:], _USUAL)


def settle(scope: Scope, run_s: float) -> Scope:
    """A scope with the range of undisturbed bursts: within 5 % of the run's reference."""
    if not scope.bursts_s or not run_s:
        return scope
    return replace(scope, quiet_s=((1 - WITHIN) * run_s, (1 + WITHIN) * run_s))


def references(rows: Iterable[Row], known: References) -> dict[str, float]:
    """The references of a run by device ("-1": the host), from its own rows and the known ones."""
    bursts: dict[str, list[float]] = {}
    for row in rows:
        if not row.measured_utc:
            found = (scope.bursts_s or () for scope in row.samples.values())
            bursts.setdefault(str(row.device), []).extend(chain.from_iterable(found))
    return {name: choose_reference(each, known.get(name, 0.0)) for name, each in bursts.items() if each}


def with_references(rows: Sequence[Row], known: References) -> tuple[Row, ...]:
    """The rows with the references of their scopes; those from an earlier run keep theirs."""
    of_run = references(rows, known)

    def of(row: Row) -> Row:
        run_s = 0.0 if row.measured_utc else of_run.get(str(row.device), 0.0)
        return replace(row, samples={name: settle(each, run_s) for name, each in row.samples.items()})

    return tuple(map(of, rows))


def loss(scope: Scope) -> float:
    """How much slower the typical burst was than undisturbed ones, as a fraction."""
    if not scope.bursts_s or not scope.quiet_s:
        return 0.0
    return max(0.0, _quantile(scope.bursts_s, 0.5) / scope.quiet_s[1] * (1 + WITHIN) - 1)


def join_visits(before: Scope, after: Scope) -> Scope:
    """The batches of two visits to a row; if their sizes differ, of the one with more quiet batches."""
    is_alike = before.batch == after.batch and bool(before.waited_s) == bool(after.waited_s)
    if not is_alike or not before.bursts_s or not after.bursts_s:
        return max(after, before, key=lambda scope: sum(flags(scope)))
    waits = (before.waited_s or ()) + (after.waited_s or ())
    seconds, bursts = before.seconds + after.seconds, before.bursts_s + after.bursts_s
    return replace(after, seconds=seconds, bursts_s=bursts, waited_s=waits)


def _quantile(values: Sequence[float], share: float) -> float:
    return sorted(values)[int(share * len(values))] if values else 0.0
