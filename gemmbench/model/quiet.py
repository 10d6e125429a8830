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

WITHIN = 0.06  # of the reference a burst is undisturbed; docs/methodology.md compares others
WAITED = 0.02  # of a batch: longer waits of a thread for a core, beyond ordinary ones, disturb it
_ORDINARY = 1.5  # times the 25 % quantile of a row's waits: threads that hand work over wait now and then
_MOST_ORDINARY = 0.2  # of a batch
LEAST, LEAST_LONG = 10, 3  # quiet batches of a complete row; of problems that seldom fit a quiet period
LONG_S = 0.03  # from here on a problem is one of these
BATCH_S = 0.003  # quiet periods of a shared machine last some 10 ms
_FAST = 0.25  # the quantile of bursts that is a reference: up to so many may have been at a higher clock
RUNS = 9  # earlier ones that are remembered
_MOST_ABOVE = 1.1  # a scope's own reference over the run's: cold caches explain no more

References = Mapping[str, float]  # by `key`: seconds of an undisturbed burst, for 10^9 operations


def flags(scope: Scope) -> tuple[bool, ...]:
    """Whether each batch of a scope is quiet; all are without bursts or reference."""
    if not scope.bursts_s or not scope.quiet_s:
        return (True,) * len(scope.seconds)
    low, high = scope.quiet_s
    pairs = zip(scope.bursts_s[::2], scope.bursts_s[1::2], strict=True)
    waits = scope.waited_s or (0.0,) * len(scope.seconds)
    shares = [each / (s * scope.batch) for each, s in zip(waits, scope.seconds, strict=True)]
    most = WAITED + _ORDINARY * min(_MOST_ORDINARY, _quantile(shares, _FAST))
    return tuple(
        low <= min(pair) and max(pair) <= high and share <= most
        for pair, share in zip(pairs, shares, strict=True)
    )


def key(row: Row) -> str:
    """Whose bursts a row has: a device's, by index, or the host's ("-1")."""
    return str(row.device)


def choose_reference(bursts_s: Sequence[float], known_s: float = 0.0) -> float:
    """The reference of a run: the known one, else the 25 % quantile of its bursts."""
    return known_s or _quantile(bursts_s, _FAST)


def known(references_s: Sequence[float]) -> float:
    """The reference of earlier runs: the 25 % quantile of the last nine."""
    return _quantile(references_s[-RUNS:], _FAST)


def settle(scope: Scope, run_s: float) -> Scope:
    """A scope with the range of undisturbed bursts: from the run's reference to the 25 % quantile of its own.

    The quantile counts as at least the reference and at most 10 % more.
    """
    if not scope.bursts_s or not run_s:
        return scope
    own_s = min(max(_quantile(scope.bursts_s, _FAST), run_s), _MOST_ABOVE * run_s)
    return replace(scope, quiet_s=((1 - WITHIN) * run_s, (1 + WITHIN) * own_s))


def references(rows: Iterable[Row], known: References) -> dict[str, float]:
    """The references of a run by `key`, from its own rows and the known ones."""
    bursts: dict[str, list[float]] = {}
    for row in rows:
        if not row.measured_utc:
            found = (scope.bursts_s or () for scope in row.samples.values())
            bursts.setdefault(key(row), []).extend(chain.from_iterable(found))
    return {name: choose_reference(each, known.get(name, 0.0)) for name, each in bursts.items() if each}


def with_references(rows: Sequence[Row], known: References) -> tuple[Row, ...]:
    """The rows with the references of their scopes; those from an earlier run keep theirs."""
    of_run = references(rows, known)

    def of(row: Row) -> Row:
        if row.measured_utc or not of_run.get(key(row)):
            return row
        run_s = of_run[key(row)]
        return replace(row, samples={name: settle(each, run_s) for name, each in row.samples.items()})

    return tuple(map(of, rows))


def loss(scope: Scope) -> float:
    """How much slower the typical burst was than undisturbed ones, as a fraction."""
    if not scope.bursts_s or not scope.quiet_s:
        return 0.0
    return max(0.0, _quantile(scope.bursts_s, 0.5) / scope.quiet_s[1] * (1 + WITHIN) - 1)


def join_visits(before: Scope, after: Scope) -> Scope:
    """The batches of two visits to a row, or the later ones."""
    is_alike = before.batch == after.batch and bool(before.waited_s) == bool(after.waited_s)
    if not is_alike or not before.bursts_s or not after.bursts_s:
        return after
    waits = (before.waited_s or ()) + (after.waited_s or ())
    seconds, bursts = before.seconds + after.seconds, before.bursts_s + after.bursts_s
    return replace(after, seconds=seconds, bursts_s=bursts, waited_s=waits)


def _quantile(values: Sequence[float], share: float) -> float:
    return sorted(values)[int(share * len(values))] if values else 0.0
