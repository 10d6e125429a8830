"""The table of `best-shape`: each kernel's best shape, and how the search came to it."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from gemmbench.model import units
from gemmbench.model.device import HOST
from gemmbench.model.row import Row
from gemmbench.model.run_file import Run
from gemmbench.model.units import clean, clean_lines
from gemmbench.report import notes
from gemmbench.report.table import NOTHING, Cell, Note, Sheet, heading
from gemmbench.stats import rates
from gemmbench.stats.rates import Rate
from gemmbench.suite.best_shape import BATCHES, FINALIST, FINALISTS, LOOK, ROUNDS, SCOPE, rate_of

VIEW = "best-shape"
_SHOWN = 5


@dataclass(frozen=True, eq=False)
class Hunt:
    """The search for one kernel and data type on one device."""

    looks: tuple[Row, ...]  # in the order of trying
    finals: tuple[Row, ...]  # the few best in turn, the best first
    result: Row | None  # the best of them, measured anew; or why there is none

    @property
    def first(self) -> Row:
        """Any of its rows."""
        return self.result or self.looks[0]

    @property
    def ranked(self) -> tuple[Row, ...]:
        """Its looks that have a rate, the fastest first."""
        return tuple(sorted(filter(rate_of, self.looks), key=rate_of, reverse=True))

    @property
    def burst(self) -> Rate | None:
        """What is reported of bursts."""
        other = rates.in_state(self.result, "burst") if self.result and self.result.burst else None
        return rates.shown_rate(other, SCOPE) if other else None

    @property
    def settled(self) -> Rate | None:
        """What is reported of the settled state."""
        return rates.shown_rate(self.result, SCOPE) if self.result else None

    @property
    def state(self) -> str:
        """That the search compared: burst, settled."""
        return next((row.conditions.state for row in self.looks if row.conditions), "") or "burst"


def hunts(run: Run) -> list[Hunt]:
    """Every search of a run, in its order; none in runs of other commands."""
    groups: dict[tuple[object, ...], list[Row]] = {}
    for row in run.rows if run.header.view == VIEW else ():
        parameters = tuple(sorted(row.parameters.items()))
        groups.setdefault((row.device, row.dtype, row.variant, parameters), []).append(row)
    return [_hunt(rows) for rows in groups.values()]


def _hunt(rows: Sequence[Row]) -> Hunt:
    looks = [row for row in rows if row.kind == LOOK and row.phase != FINALIST]
    # Those of an interrupted call stand before those of the call that went on.
    finals = {row.key: row for row in rows if row.phase == FINALIST}
    latest = sorted([*finals.values()][-FINALISTS:], key=rate_of, reverse=True)
    results = [row for row in rows if row.kind == "gemm"]
    best = [row for row in results if row.status == "ok"] or results
    return Hunt(tuple(looks), tuple(latest), best[-1] if best else None)


# --- as a table ---------------------------------------------------------------------------------------------


def sheets(run: Run) -> list[Sheet]:
    """For each device and type, the best shape of every kernel; then the searches."""
    groups: dict[tuple[int, str], list[Hunt]] = {}
    for hunt in hunts(run):
        groups.setdefault((hunt.first.device, hunt.first.dtype), []).append(hunt)
    made = []
    for (device, dtype), group in groups.items():
        made.append(_best(run, device, dtype, group))
        made += [_search(hunt) for hunt in group if hunt.ranked]
    return made


def _best(run: Run, device: int, dtype: str, group: Sequence[Hunt]) -> Sheet:
    top = max((hunt.burst.median for hunt in group if hunt.burst), default=0.0)
    scope = "host" if device == HOST else SCOPE
    return Sheet(
        heading=heading(run, device),
        caption=f"{dtype} {rates.unit(dtype)} at the best shape of each kernel, {scope} scope, measured anew",
        keys=("",),
        blocks=(("m", "n", "k"), ("burst", "95 %"), ("settled", "95 % ")),
        rows=tuple(_line(hunt, top) for hunt in group if hunt.result),
        notes=(
            *([Note("protocol", _protocol(group[0]), "dim")] if any(hunt.ranked for hunt in group) else []),
            *notes.troubles([hunt.result for hunt in group if hunt.result], notes.shape, "shape"),
            *notes.remarks([hunt.result for hunt in group if hunt.result], notes.shape, "shape"),
            *(
                Note("interrupted", f"{clean(hunt.first.title)}: --resume goes on with the search", "yellow")
                for hunt in group
                if not hunt.result
            ),
            *(Note("best shape", sentence(hunt), "bold") for hunt in group if hunt.settled),
        ),
    )


def _line(hunt: Hunt, top: float) -> tuple[Cell, ...]:
    row = hunt.first
    problem = rates.gemm_of(row)
    shape = [Cell(f"{length:,}") for length in (problem.m, problem.n, problem.k)]
    if hunt.settled is None:
        return (Cell(clean(row.title)), *[NOTHING] * 3, *[NOTHING] * 4)
    return (Cell(clean(row.title)), *shape, *_figures(hunt.burst, top), *_figures(hunt.settled, 0.0))


def _figures(rate: Rate | None, top: float) -> tuple[Cell, Cell]:
    if rate is None:
        return NOTHING, NOTHING
    few = not math.isfinite(rate.high - rate.low)
    within = notes.FEW if few else f"{units.gflops(rate.low)} to {units.gflops(rate.high)}"
    return Cell(units.gflops(rate.median), best=rate.median == top), Cell(within)


def sentence(hunt: Hunt) -> str:
    """The answer: ``register float 1024x512x256: 112 GFLOPS in a burst, 98 GFLOPS settled (12 % less)``."""
    row, burst, settled = hunt.first, hunt.burst, hunt.settled
    assert settled is not None
    integer = rates.is_integer(row.dtype)
    what = f"{clean(row.title)} {row.dtype} {rates.gemm_of(row).shape}"
    if burst is None:
        return f"{what}: {units.rate(settled.median, integer)} settled."
    gap = settled.median / burst.median - 1
    less = f"{units.percent(abs(gap))} {'less' if gap < 0 else 'more'}"
    apart = f" ({less})" if abs(gap) > rates.FAR_STATES else ", the same within 3 %"
    fast = units.rate(burst.median, integer)
    return f"{what}: {fast} in a burst, {units.rate(settled.median, integer)} settled{apart}."


def _protocol(hunt: Hunt) -> str:
    """How figures came about."""
    state = "after a rest" if hunt.state == "burst" else "settled"
    looked = (
        f"each shape looked at for {BATCHES} batches of 10 ms or more, {state} (a block of uniform "
        f"operands repeated, C not verified), the {FINALISTS} best of them in turn in {ROUNDS} rounds"
    )
    return (
        f"{looked}. The best of the rounds was prepared anew with uniform operands, verified before and "
        "after, and measured in bursts and settled: medians, of samples that had no say in it."
    )


def _search(hunt: Hunt) -> Sheet:
    row, ranked = hunt.first, hunt.ranked
    finals = {final.problem: rate_of(final) for final in hunt.finals}
    shown = sorted(ranked[:_SHOWN], key=lambda look: -finals.get(look.problem, 0.0))
    best = max(finals.values(), default=0.0)
    counted = f"{len(shown)} best of {len(hunt.looks)} shapes" if len(hunt.looks) > 1 else "1 shape"
    spent_s = sum(look.took_s or 0.0 for look in hunt.looks)
    return Sheet(
        caption=f"{clean(row.title)} {row.dtype}: {counted} in {units.seconds(spent_s)}; in turn: "
        f"{hunt.state}, the median of {ROUNDS} rounds",
        keys=("m x n x k",),
        blocks=(("search", "in turn", "of the best"),),
        rows=tuple(_final(look, finals.get(look.problem), best) for look in shown),
        notes=tuple(_remarks(hunt)),
    )


def _final(look: Row, rate: float | None, best: float) -> tuple[Cell, ...]:
    shape = Cell(rates.gemm_of(look).shape)
    found_again = (Cell(units.gflops(rate)), Cell(units.percent(rate / best))) if rate else (NOTHING, NOTHING)
    return shape, Cell(units.gflops(rate_of(look))), *found_again


def _remarks(hunt: Hunt) -> Iterator[Note]:
    same = hunt.burst if hunt.state == "burst" else hunt.settled
    if same:
        high = rate_of(hunt.ranked[0])
        text = (
            f"{units.rate(high, rates.is_integer(hunt.first.dtype))} at {rates.gemm_of(hunt.ranked[0]).shape}"
        )
        gap = high / same.median - 1
        more = f", {units.percent(gap)} above what is reported: a maximum of noise, too" if gap > 0 else ""
        yield Note("the search's highest", text + more, "dim")
    failed = [look for look in hunt.looks if look.status != "ok"]
    for look in failed[:_SHOWN]:
        yield Note(
            notes.WORDS[look.status], f"{rates.gemm_of(look).shape}: {clean_lines(look.reason)}", "yellow"
        )
