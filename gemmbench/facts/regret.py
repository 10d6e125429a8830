"""What `auto` loses against the best of what it could have taken, size by size."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from statistics import geometric_mean

from gemmbench.facts import derive
from gemmbench.facts.records import Problem, Row, Run
from gemmbench.facts.series import AUTO, HOST


@dataclass(frozen=True)
class Regret:
    """Times of one problem, in the same scope."""

    problem: Problem
    automatic: Row
    best: Row
    own: Row | None  # of the variant that `auto` took, measured under its own name
    automatic_s: float
    best_s: float
    own_s: float | None

    @property
    def ratio(self) -> float:
        """Time of auto's row over the best row's: 1 is none, and noise may make it less."""
        return self.automatic_s / self.best_s

    @property
    def noise(self) -> float | None:
        """The same variant measured twice: auto's time over that of the row of its own name."""
        return self.automatic_s / self.own_s if self.own_s else None


def regrets(
    run: Run, device: int, dtype: str, choosable: Collection[str], scope: str = "host"
) -> tuple[Regret, ...]:
    """The problems that `auto` and a variant that it may take were both measured on.

    Args:
        run: with rows of auto.
        device: its position in the header; rows of the host's BLAS go with every device.
        dtype: of the operands.
        choosable: the variants that auto may take.
        scope: that is compared.
    """
    groups: dict[Problem, list[tuple[float, Row]]] = {}
    for row in run.rows:
        if row.kind != "gemm" or row.dtype != dtype or row.device not in (device, HOST) or not row.problem:
            continue
        times = derive.summary(row, scope)
        if row.status == "ok" and times and (row.variant == AUTO or row.variant in choosable):
            groups.setdefault(row.problem, []).append((times.median, row))
    found = []
    for problem, timed in groups.items():
        automatic = [(seconds, row) for seconds, row in timed if row.variant == AUTO]
        others = [(seconds, row) for seconds, row in timed if row.variant != AUTO]
        if not automatic or not others:
            continue
        best_s, best = min(others, key=lambda pair: pair[0])
        automatic_s, row = automatic[-1]
        ran = derive.what_ran(row)
        own_s, own = next(((s, one) for s, one in others if one.variant == ran), (None, None))
        found.append(Regret(problem, row, best, own, automatic_s, best_s, own_s))
    return tuple(found)


def mean(found: Iterable[Regret]) -> float | None:
    """The geometric mean of the ratios; None if there are none."""
    ratios = [regret.ratio for regret in found]
    return geometric_mean(ratios) if ratios else None
