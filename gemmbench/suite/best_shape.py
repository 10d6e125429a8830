"""Which m, n and k give a kernel its highest rate on a device: ``best-shape``.

The largest of many noisy figures is too large ("winner's curse"). So the search only chooses: its few best
shapes are measured again in turn, the best of these is prepared anew and verified, and what is reported is
the median of new samples, which had no say in the choice.

Rows of kind ``look`` are the search's, and those of phase `FINALIST` the rounds'. The best shape's is an
ordinary row, verified before and after: `Row.samples` are settled, `Row.burst` those of bursts.
"""

from __future__ import annotations

import math
import random
import time
from collections.abc import Generator, Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from itertools import permutations, product

from msgspec import UNSET

from gemmbench.gemm import measure as gemm
from gemmbench.measure.child import Worker
from gemmbench.measure.sampling import Clock, Sampled, Sleep, alone
from gemmbench.model import units
from gemmbench.model.case import Case, Event, Finished, Operands, Plan, Staged
from gemmbench.model.device import HOST, DeviceFacts, State, joined
from gemmbench.model.instrument import Handle, NotMeasuredError
from gemmbench.model.problem import Gemm
from gemmbench.model.row import Kind, Row, RowKey, Scope, Work
from gemmbench.model.run_file import Run
from gemmbench.model.units import by_key, clean, clean_lines
from gemmbench.report import notes
from gemmbench.report.table import NOTHING, Cell, Note, Sheet, heading
from gemmbench.stats import rates
from gemmbench.stats.rates import Rate
from gemmbench.suite.session import Steps

SCOPE = "device"  # that decides: packing and padding count
LOOK: Kind = "look"
FINALIST = "finalist"
FINALISTS, ROUNDS = 3, 5
BATCHES, LEAST_BATCHES = 4, 3  # of a look; of problems that are longer than a batch
BURSTS = 10  # of the best, anew

Shape = tuple[int, int, int]

_SEARCH_SHARE = 0.65  # of the budget; the rest is the finals', which may take longer
_LOOK_SHARE = 0.05  # of the budget, that a look may take
_LOOK_RUNS = 6  # that it has at least
_LOOK_S = {"settled": 0.3, "burst": 3.0}  # at most, by state, with settling or resting
_BURST_S = 0.1
_FACTORS = (2.0, 1.25, 1.1)  # from the best to its neighbours
_DRAWN = 6  # shapes around the best, where no neighbour is better
_IDLE = 50  # times in a row that all that was drawn was known: there are no others
_TILE, _GPU_STEP, _STEP = 128, 128, 32
_CARD_LEAST, _LEAST, _MOST = 1024, 256, 16384
_MEMORY_SHARE = 16  # of a device's memory, that A, B and C may have: one sixteenth
_QUICK = Operands(values="repeated")


@dataclass(frozen=True)
class Search:
    """What is searched for, and how long."""

    budget_s: float  # for each kernel, data type and device
    state: State = "burst"  # that rates are compared in
    least: int | None = None  # m, n and k; None: by device
    most: int = _MOST
    step: int | None = None  # of which they are multiples; None: by device
    fixed: tuple[int | None, int | None, int | None] = (None, None, None)  # m, n and k that stay as they are
    seed: int = 1


@dataclass(frozen=True)
class Space:
    """The shapes that may be tried."""

    dtype: str  # of A and B
    ranges: tuple[tuple[int, int], ...]  # the least and the most of m, n and k; equal where one is fixed
    step: int  # of which lengths that are not fixed are multiples
    units: int = 1  # multiprocessors of the device; 1 where whole waves are no matter
    most_bytes: float = math.inf  # of A, B and C together

    @classmethod
    def of(cls, search: Search, device: DeviceFacts, dtype: str) -> Space:
        """What a search may try on a device, or beside it on its host."""
        is_gpu = device.type == "gpu"
        least = search.least or (_CARD_LEAST if is_gpu and not device.unified_memory else _LEAST)
        lengths = [
            (length, length) if length else (min(least, search.most), search.most) for length in search.fixed
        ]
        step = search.step or (_GPU_STEP if is_gpu else _STEP)
        units_ = device.compute_units if is_gpu else 1
        return cls(dtype, tuple(lengths), step, units_, device.global_mem_bytes / _MEMORY_SHARE)

    def fit(self, lengths: Sequence[float]) -> Shape | None:
        m, n, k = (self._fit(length, *ends) for length, ends in zip(lengths, self.ranges, strict=True))
        return (m, n, k) if Gemm(m, n, k, self.dtype).operand_bytes <= self.most_bytes else None

    def _fit(self, length: float, least: int, most: int) -> int:
        if least == most:
            return least
        return self.step * max(-(-least // self.step), min(round(length / self.step), most // self.step))

    def squares(self) -> Iterator[Sequence[float]]:
        """Powers of two from the least to the most."""
        length = min(low for low, _ in self.ranges)
        while length < 2 * max(high for _, high in self.ranges):
            yield (length,) * 3
            length *= 2

    def waves(self, best: Shape) -> Iterator[Sequence[float]]:
        """About the size of the best, with as many tiles of C as multiprocessors, or some times as many.

        Tiles of 128 x 128 and 128 x 256 are what tensor-core kernels have.
        """
        if self.units < 2:
            return
        rows = max(each for each in range(1, math.isqrt(self.units) + 1) if self.units % each == 0)
        edge = math.sqrt(best[0] * best[1])
        for (across, down), wide in product(permutations((rows, self.units // rows)), (2, 1)):
            m, n = across * _TILE, down * _TILE * wide
            times = max(1, round(edge / math.sqrt(m * n)))
            yield m * times, n * times, best[2]


def proposals(space: Space, seed: int) -> Generator[Shape, float | None, None]:
    """Shapes to look at, one by one; what is sent back is the rate of the last, None if it has none.

    Squares, shapes of whole waves, then from the best to better neighbours in finer and finer steps, and from
    some shapes drawn around it again. It ends when nothing is left. The same rates give the same shapes.
    """
    rng = random.Random(seed)
    known: dict[Shape, float] = {}

    def best() -> Shape:
        return max(known, key=lambda shape: known[shape])

    def attempt(
        shapes: Iterable[Sequence[float]], until_better: bool = False
    ) -> Generator[Shape, float | None, bool]:
        """Look at those that are new; whether one is better than all before."""
        before = max(known.values(), default=0.0)
        for lengths in shapes:
            shape = space.fit(lengths)
            if shape is None or shape in known:
                continue
            known[shape] = (yield shape) or 0.0
            if until_better and known[shape] > before:
                return True
        return max(known.values(), default=0.0) > before

    yield from attempt(space.squares())
    if not any(known.values()):
        return
    yield from attempt(space.waves(best()))
    idle = 0
    while idle < _IDLE:
        for factor in _FACTORS:
            while (yield from attempt(_neighbours(best(), factor, rng), until_better=True)):
                pass
        tried = len(known)
        centre = best()
        drawn = ([length * 2 ** rng.uniform(-1, 1) for length in centre] for _ in range(_DRAWN))
        yield from attempt(drawn)
        idle = 0 if len(known) > tried else idle + 1


def _neighbours(shape: Shape, factor: float, rng: random.Random) -> list[list[float]]:
    """One length longer or shorter, or one longer and another shorter, in a drawn order."""
    moves = [[factor if axis == at else 1.0 for axis in range(3)] for at in range(3)]
    moves += [[1 / each for each in move] for move in moves]
    moves += [
        [factor if axis == up else 1 / factor if axis == down else 1.0 for axis in range(3)]
        for up, down in permutations(range(3), 2)
    ]
    rng.shuffle(moves)
    return [[length * by for length, by in zip(shape, move, strict=True)] for move in moves]


# --- measuring ----------------------------------------------------------------------------------------------


def run(
    plan: Plan,
    steps: Steps,
    worker: Worker,
    search: Search,
    clock: Clock = time.monotonic,
    sleep: Sleep = time.sleep,
) -> Generator[Event, None, None]:
    """Search for the best shape of every case of a plan, whose own problem says only alpha and beta.

    Ctrl-C is raised; the looks so far are saved, and ``--resume`` goes on with them. So is `RunFileError`, if
    a row cannot be written.
    """
    for step in plan:
        if isinstance(step, Case):
            yield from _Hunt(step, steps, worker, search, clock, sleep).run()
        else:
            yield from steps.take(step, worker)


@dataclass
class _Hunt:
    case: Case
    steps: Steps
    worker: Worker
    search: Search
    clock: Clock
    sleep: Sleep
    looks: list[Row] = field(default_factory=list)
    spent_s: float = 0.0  # by the looks, those of earlier calls too

    def __post_init__(self) -> None:
        self.device = self.steps.devices[self.case.device] if self.case.device >= 0 else None
        same = [row for row in self.steps.held if _contender(row.key) == _contender(self.case.key)]
        self.held = {row.key: row for row in same if row.kind == LOOK and not row.phase}
        self.results = [row for row in same if row.kind == "gemm"]
        self.is_exact = bool(self.held)
        self.look_s = _LOOK_SHARE * self.search.budget_s

    def run(self) -> Generator[Event, None, None]:
        """Search, measure the few best in turn, and the best of them anew; nothing where that was done."""
        held = (*self.held.values(), *self.results)
        self.steps.check(self._at(shape_of(row), row.kind) for row in held)
        if any(row.status == "ok" for row in self.results):
            yield from (Finished(row, resumed=True) for row in held)
            return
        yield self.steps.planned(1)
        yield from self._searched()
        ranked = sorted(filter(rate_of, self.looks), key=rate_of, reverse=True)[:FINALISTS]
        if not ranked:
            nothing = "no shape from --min to --max fits the device's memory"
            yield self._finished(self.looks[-1] if self.looks else self.case.row("skipped", nothing))
            return
        for row in (yield from self._finals(ranked)):
            result = yield from self._anew(shape_of(row))
            yield self._finished(result)
            if result.status != "wrong":
                return

    def _at(self, shape: Shape, kind: Kind = "gemm") -> Case:
        m, n, k = shape
        return replace(self.case, kind=kind, problem=replace(self.case.gemm, m=m, n=n, k=k))

    def _finished(self, row: Row) -> Finished:
        """The result, in the place of one of an earlier call."""
        row = replace(row, kind="gemm", work=None, took_s=UNSET)
        again = any(row.key == each.key for each in self.results)
        return self.steps.finished(replace(row, supersedes=again))

    def _searched(self) -> Generator[Event, None, None]:
        """Look at shapes while there is time, and the kernel is right."""
        device = self.device or self.steps.devices[0]
        shapes = proposals(Space.of(self.search, device, self.case.dtype), self.search.seed)
        rate = None
        while self.spent_s < self.search.budget_s * _SEARCH_SHARE:
            try:
                shape = shapes.send(rate)
            except StopIteration:
                return
            rate = yield from self._look(shape)
            if self.looks and self.looks[-1].status == "wrong":
                return

    def _look(self, shape: Shape) -> Generator[Event, None, float | None]:
        """The rate of a shape in flop/s; None where it has none, or would take too long."""
        case, best = self._at(shape), max(map(rate_of, self.looks), default=0.0)
        row = self.held.get(replace(case, kind=LOOK).key)
        if row is not None:
            yield Finished(row, resumed=True)
        elif best and case.gemm.flops / best * _LOOK_RUNS > self.look_s:
            return None
        else:
            yield self.steps.started(f"{case.label}, best {units.rate(best)}" if best else case.label)
            begin = self.clock()
            row = yield from self._looked(replace(case, operands=_QUICK))
            took_s = max(self.clock() - begin, 1e-6)
            row = replace(row, kind=LOOK, work=Work(case.gemm.flops), took_s=round(took_s, 6))
            yield self.steps.finished(row, is_planned=False)
        self.spent_s += row.took_s or 0.0
        self.looks.append(row)
        return rate_of(row) or None

    def _looked(self, case: Case) -> Generator[Staged, None, Row]:
        """A look; before the first, the kernel is held against exact results of small problems."""
        worker, policy = self.worker, replace(self.steps.policy, budget_s=self.look_s)
        worker.limit(policy.time_limit_s)
        try:
            is_exact = self.is_exact or gemm.predict(worker, case, self.device, policy)
            with worker.prepare(case, self.device, policy) as handle:
                if not is_exact:
                    yield Staged("verifying")
                    gemm.check_exact(case, handle)
                self.is_exact = True
                yield Staged("timing")
                sampled = self._sampled(handle, self.search.state)
        except gemm.WrongError as error:
            return error.row
        except Exception as error:
            return worker.row_of(case, error)
        return replace(gemm.row_of(case, handle), samples=sampled.scopes, conditions=sampled.conditions)

    def _sampled(self, handle: Handle, state: State) -> Sampled:
        """Some batches of a handle: of a burst a single one, where they fit it."""
        clock = handle.prepared.clocks[0]
        handle.batch(clock, 1)  # the first launch may compile
        one_s = handle.batch(clock, 1).wall_s
        count = BATCHES if one_s * BATCHES < _BURST_S else LEAST_BATCHES
        policy = replace(self.steps.policy, state=state, min_batches=count, precision=math.inf)
        budget_s = max(_LOOK_S[state], _LOOK_RUNS * one_s)
        return alone(handle, clock, policy, budget_s, one_s=one_s, now=self.clock, sleep=self.sleep)

    def _finals(self, ranked: Sequence[Row]) -> Generator[Event, None, list[Row]]:
        """The few best in turn, every other round in the reverse order; the best of the rounds first."""
        worker, policy = self.worker, self.steps.policy
        rounds: dict[int, list[Sampled]] = {index: [] for index in range(len(ranked))}
        handles: dict[int, Handle] = {}
        with ExitStack() as stack:
            for number in range(ROUNDS):
                for index in [*rounds][:: -1 if number % 2 else 1]:
                    case = replace(self._at(shape_of(ranked[index])), operands=_QUICK)
                    yield Staged(f"round {number + 1} of {ROUNDS}: {case.label}")
                    try:
                        worker.limit(policy.time_limit_s)
                        if index not in handles:
                            handles[index] = stack.enter_context(worker.prepare(case, self.device, policy))
                        rounds[index].append(self._sampled(handles[index], self.search.state))
                    except NotMeasuredError:
                        del rounds[index]  # it had a rate in the search, and what it lacks now is no better
        finals = []
        for index, parts in rounds.items():
            conditions = joined([part.conditions for part in parts])
            row = replace(ranked[index], phase=FINALIST, samples=_pooled(parts), conditions=conditions)
            finals.append(replace(row, took_s=UNSET))
            yield self.steps.finished(finals[-1], is_planned=False)
        return sorted(finals, key=rate_of, reverse=True)

    def _anew(self, shape: Shape) -> Generator[Event, None, Row]:
        """A shape prepared anew, verified, measured in bursts and settled, and verified again."""
        case, policy, worker = self._at(shape), self.steps.policy, self.worker
        yield self.steps.started(f"{case.label} anew")
        worker.limit(policy.time_limit_s)
        try:
            ready = yield from gemm.begun(worker, case, self.device, policy)
            if isinstance(ready, Row):
                return ready
            with ready.handle as handle:
                bursts = []
                for number in range(BURSTS):
                    yield Staged(f"burst {number + 1} of {BURSTS}")
                    bursts.append(self._sampled(handle, "burst"))
                yield Staged("timing, settled")
                clock = handle.prepared.clocks[0]
                settled = alone(handle, clock, policy, policy.sampling_s, now=self.clock, sleep=self.sleep)
                row = ready.sampled([settled])
                row = replace(row, burst=_pooled(bursts))
                in_burst = rates.in_state(row, "burst")
                judged = gemm.beside_ceiling(in_burst, self.device) if in_burst else row
                if judged.status == "wrong":
                    row = replace(row, status="wrong", reason=judged.reason, check=judged.check)
                yield Staged("verifying")
                return gemm.verified_row_after(row, handle)
        except Exception as error:
            return worker.row_of(case, error)


def _contender(key: RowKey) -> tuple[object, ...]:
    _, device, variant, dtype, parameters, _, _ = key
    return device, variant, dtype, parameters


def _pooled(parts: Sequence[Sampled]) -> dict[str, Scope]:
    batches = tuple(batch for part in parts for batch in part.batches)
    return replace(parts[0], batches=batches, stop="rounds").scopes


def shape_of(row: Row) -> Shape:
    """m, n and k."""
    problem = rates.gemm_of(row)
    return problem.m, problem.n, problem.k


def rate_of(row: Row) -> float:
    """The median rate in flop/s that shapes are compared by; 0 where there is none."""
    reached = rates.shown_rate(row, SCOPE)
    return reached.median if reached else 0.0


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
        return self.result or self.looks[0]

    @property
    def ranked(self) -> tuple[Row, ...]:
        return tuple(sorted(filter(rate_of, self.looks), key=rate_of, reverse=True))

    @property
    def burst(self) -> Rate | None:
        other = rates.in_state(self.result, "burst") if self.result and self.result.burst else None
        return rates.shown_rate(other, SCOPE) if other else None

    @property
    def settled(self) -> Rate | None:
        return rates.shown_rate(self.result, SCOPE) if self.result else None

    @property
    def state(self) -> str:
        """That the search compared: burst, settled."""
        return next((row.conditions.state for row in self.looks if row.conditions), "") or "burst"


def hunts(run: Run) -> list[Hunt]:
    """Every search of a run, in its order; none in runs of other commands."""
    groups = by_key(
        ((row.device, row.dtype, row.variant, tuple(sorted(row.parameters.items()))), row)
        for row in run.rows
        if run.header.view == VIEW
    )
    made = []
    for rows in groups.values():
        looks = [row for row in rows if row.kind == LOOK and row.phase != FINALIST]
        # Those of an interrupted call stand before those of the call that went on.
        finals = {row.key: row for row in rows if row.phase == FINALIST}
        latest = sorted([*finals.values()][-FINALISTS:], key=rate_of, reverse=True)
        results = [row for row in rows if row.kind == "gemm"]
        best = [row for row in results if row.status == "ok"] or results
        made.append(Hunt(tuple(looks), tuple(latest), best[-1] if best else None))
    return made


# --- as a table ---------------------------------------------------------------------------------------------


def sheets(run: Run) -> list[Sheet]:
    """For each device and type, the best shape of every kernel; then the searches."""
    groups = by_key(((hunt.first.device, hunt.first.dtype), hunt) for hunt in hunts(run))
    made = []
    for (device, dtype), group in groups.items():
        made.append(_best(run, device, dtype, group))
        made += [_search(hunt) for hunt in group if hunt.ranked]
    return made


def _best(run: Run, device: int, dtype: str, group: Sequence[Hunt]) -> Sheet:
    top = max((hunt.burst.median for hunt in group if hunt.burst), default=0.0)
    scope = "host" if device == HOST else SCOPE
    results = [hunt.result for hunt in group if hunt.result]
    goes_on = "--resume goes on with the search"
    return Sheet(
        heading=heading(run, device),
        caption=f"{dtype} {rates.unit(dtype)} at the best shape of each kernel, {scope} scope, measured anew",
        keys=("",),
        blocks=(("m", "n", "k"), ("burst", "95 %"), ("settled", "95 % ")),
        rows=tuple(_line(hunt, top) for hunt in group if hunt.result),
        notes=(
            *([Note("protocol", _protocol(group[0]), "dim")] if any(hunt.ranked for hunt in group) else []),
            *notes.troubles(results, notes.shape, "shape"),
            *notes.remarks(results, notes.shape, "shape"),
            *(
                Note("interrupted", f"{clean(hunt.first.title)}: {goes_on}", "yellow")
                for hunt in group
                if not hunt.result
            ),
            *(Note("best shape", sentence(hunt), "bold") for hunt in group if hunt.settled),
        ),
    )


def _line(hunt: Hunt, top: float) -> tuple[Cell, ...]:
    name = Cell(clean(hunt.first.title))
    if hunt.settled is None:
        return (name, *[NOTHING] * 7)
    shape = [Cell(f"{length:,}") for length in shape_of(hunt.first)]
    return (name, *shape, *_figures(hunt.burst, top), *_figures(hunt.settled, 0.0))


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
    state = "after a rest" if hunt.state == "burst" else "settled"
    return (
        f"each shape looked at for {BATCHES} batches of 10 ms or more, {state} (a block of uniform "
        f"operands repeated, C not verified), the {FINALISTS} best of them in turn in {ROUNDS} rounds. The "
        "best of the rounds was prepared anew with uniform operands, verified before and after, and "
        "measured in bursts and settled: medians, of samples that had no say in it."
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
        highest = hunt.ranked[0]
        high = rate_of(highest)
        text = f"{units.rate(high, rates.is_integer(highest.dtype))} at {rates.gemm_of(highest).shape}"
        gap = high / same.median - 1
        more = f", {units.percent(gap)} above what is reported: a maximum of noise, too" if gap > 0 else ""
        yield Note("the search's highest", text + more, "dim")
    failed = [look for look in hunt.looks if look.status != "ok"]
    for look in failed[:_SHOWN]:
        text = f"{rates.gemm_of(look).shape}: {clean_lines(look.reason)}"
        yield Note(notes.WORDS[look.status], text, "yellow")
