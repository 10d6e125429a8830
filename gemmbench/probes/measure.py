"""One row of a probe from its plan to its evidence: raced, checked, sampled, judged."""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass, field, replace
from operator import attrgetter
from weakref import WeakKeyDictionary

import numpy as np

from gemmbench.measure.energy import measure_energy
from gemmbench.measure.sampling import Metered, Sampled, alone
from gemmbench.model.case import Case, Policy, Staged
from gemmbench.model.device import Conditions, DeviceFacts, joined
from gemmbench.model.instrument import Batch, Handle, Instrument, NotMeasuredError
from gemmbench.model.row import Parameters, Row, Scope, Work
from gemmbench.model.units import MIB, by_key
from gemmbench.probes import PROBES
from gemmbench.probes import race as races
from gemmbench.probes.arithmetic import CHAINS, MIXED, UNROLLS, ChainProbe, Form, MatrixProbe, kernels_in
from gemmbench.probes.memory import BY_NAME, MemoryProbe, candidates, transfer_sizes
from gemmbench.probes.race import LAUNCH_S, Entry, Evidence, Race, Unit, sized, trips_for
from gemmbench.stats.ceilings import most, most_bytes
from gemmbench.stats.intervals import summarize

_CPU_BATCH_S = 0.03  # several launches: threads that sleep between launches may wake on one core
_RACE_SHARE = 1 / 2  # of a row's budget
_SAMPLING_SHARE = 1 / 6  # for one round of sampling: the best batch is asked for, not the median
_SAMPLING_ROUNDS = 3
_SLOWER = 0.95

_FAVOURITES = 2
_MARGIN = 0.97  # a candidate this close to the best stays in the race for unrolling

_IN_PTX = "{:g} counted instructions in the loop, by the driver's PTX: its machine code was not looked at"

_MEMORY_BATCH_S = 0.02
_HOPELESS = 3.0  # times the best time: not run again
_FINALISTS = 3
_STEP_SHARE = 1 / 8  # of a row's budget for a step of a staircase, which has many
_TRANSFER_SHARE = 1 / 10  # there are many sizes

_MAP_SAMPLE_BYTES = 32 * MIB  # a map that moves this much shows in its time
_MAP_GROWTH = 2.0  # at least, from a quarter of it, if anything is moved

_LAUNCH_SHARE = 1 / 4
_FIRST_LAUNCHES = 50  # not sampled
_MOST_LAUNCHES = 1000  # a distribution wants many
_LEAST_LAUNCHES = 20

Stages = Generator[Staged, None, Row]
Clocked = Callable[[Batch], float]  # seconds of a problem


@dataclass
class Known:
    """What the rows of a device so far have shown."""

    rates: dict[Unit, float] = field(default_factory=dict)  # the best that were believed, per second
    moving: dict[str, bool] = field(default_factory=dict)  # by direction: whether mapping moves anything


_KNOWN: WeakKeyDictionary[Instrument, dict[int, Known]] = WeakKeyDictionary()


@dataclass(frozen=True)
class _Task:
    instrument: Instrument
    case: Case
    device: DeviceFacts
    policy: Policy
    known: Known

    def race(self, budget_s: float = float("inf"), hopeless: float = float("inf")) -> Race:
        return Race(self.instrument, self.case, self.device, self.policy, budget_s, hopeless)

    def judged(self, row: Row, evidence: Evidence) -> Row:
        """The row with the verdict on it; a rate that is believed is known from now on."""
        check = races.judge(evidence)
        if check.verdict == "ok" and evidence.rate:
            rates, unit = self.known.rates, evidence.unit
            rates[unit] = max(evidence.rate, rates.get(unit, 0.0))
        if check.verdict == "wrong":
            return replace(row, check=check, status="wrong", reason="; ".join(check.reasons))
        return replace(row, check=check)

    @property
    def unit(self) -> Unit:
        """What its rate is known of."""
        return self.case.variant, self.case.dtype, int(self.case.parameters.get("width", 0))


def measured(
    instrument: Instrument, case: Case, device: DeviceFacts | None, policy: Policy, known: Known | None = None
) -> Stages:
    """Race, check and sample a case, yielding its stages; `NotMeasuredError` says why there is no rate.

    `known` is what earlier rows have shown; None: those of this instrument.
    """
    task = _task(instrument, case, device, policy, known)
    if case.kind == "peak":
        return (yield from _arithmetic(task))
    if BY_NAME[case.variant].bench == "launch":
        return (yield from _launches(task))
    of_kind = _transfer if case.kind == "transfer" else _memory
    return (yield from of_kind(task, BY_NAME[case.variant]))


def _task(
    instrument: Instrument, case: Case, device: DeviceFacts | None, policy: Policy, known: Known | None
) -> _Task:
    assert device is not None  # of every probe
    if known is None:
        known = _KNOWN.setdefault(instrument, {}).setdefault(device.index, Known())
    return _Task(instrument, case, device, policy, known)


def _event_over_wall(batches: Sequence[Batch]) -> float:
    event, wall = (np.median(times) for times in zip(*((b.finest_s, b.wall_s) for b in batches), strict=True))
    return float(event / wall)


# --- arithmetic ---------------------------------------------------------------------------------------------


def _arithmetic(task: _Task) -> Stages:
    """The compute probes: the winner's best batch counts, so that it is sampled on where it was slower."""
    probe, case = PROBES[task.case.variant], task.case
    yield Staged("racing")
    with task.race(task.policy.budget_s * _RACE_SHARE) as race:
        if isinstance(probe, ChainProbe):
            race_chains(race, probe, task.device, case.dtype)
            words = {"form": "forms", "chains": "chains"}
        else:
            race_matrices(race, probe)
            words = {"chains": "chains", "unroll": "unroll depths", "groups": "groups a unit"}
        best = race.ranked()[0]
        yield Staged("checking")
        verified = best.handle.verify("before").check
        winner = sized(best.handle, trips_for(best.handle, LAUNCH_S))
        work = Work(flops=winner.prepared.unit.flops * winner.work)
        yield Staged("timing")
        batches, last = _sampled_fast(task, winner, work.flops / race.best_rate)
        agreement = _event_over_wall(batches)
        seconds: Clocked = attrgetter("finest_s" if races.events_agree(agreement) else "wall_s")
        samples = {"kernel": Scope(tuple(map(seconds, batches)), last.size, last.stop)}
        burst: dict[str, Scope] = {}
        if last.is_limited:  # the first tenth of a second after a rest, before power limits it
            cold = replace(task.policy, batch_s=LAUNCH_S, state="burst")
            share_s = cold.budget_s * _SAMPLING_SHARE
            cool = alone(winner, winner.prepared.clocks[0], cold, share_s, one_s=LAUNCH_S)
            burst = {"kernel": Scope(tuple(map(seconds, cool.batches)), cool.size, cool.stop)}
        subject = races.MATRIX if probe.ran_on == "matrix" else races.ARITHMETIC
        twice = races.doubling(winner, 1, subject.tolerance, seconds=seconds)
        seen = _IN_PTX.format(verified.figures["in_ptx"]) if "in_ptx" in verified.figures else ""
        counted_as = _COUNTED_AS.get(probe.name, case.dtype)
        row = replace(
            case.row("ok"),
            work=work,
            choice={**best.choice, "trips": winner.work},
            samples=samples,
            build_s=race.build_s,
            race=(*race.summary(**words), *filter(None, [seen])),
            notes=(*race.notes, last.note) if last.note else race.notes,
            conditions=last.conditions,
            burst=burst,
        )
        # A race is run on a device that is as cool as in a burst.
        fastest_s = min(min(scope.seconds) for scope in (*samples.values(), *burst.values()))
        evidence = Evidence(
            unit=task.unit,
            rate=work.flops / fastest_s,
            doubling=twice,
            unrolling=race.unrolling(best, subject.unrolling),
            event_over_wall=agreement,
            wrong_result="; ".join(verified.reasons),
            ceiling=most(task.device, counted_as, case.ran_on == "matrix", row.max_mhz),
            known=task.known.rates,
            raced=race.best_rate,
            subject=subject,
            in_program=seen,
        )
        judged = task.judged(row, evidence)
        judged = replace(judged, check=replace(judged.check, figures=judged.check.figures | verified.figures))
        if not task.policy.energy or judged.status != "ok":
            return judged
        yield Staged("measuring energy")
        with Metered(winner, winner.prepared.clocks[0]) as run:
            return replace(judged, energy=measure_energy(run, device=task.device))


_COUNTED_AS = {MIXED.name: "float"}  # the type of the operations, where it is not the operands'


def _sampled_fast(task: _Task, winner: Handle, raced_s: float) -> tuple[list[Batch], Sampled]:
    """Sample the winner; where the machine has become slower since the race, sample on. All is kept.

    The batches, and how the sampling ended, with the conditions of all of them.
    """
    policy = replace(task.policy, batch_s=_CPU_BATCH_S if task.device.type == "cpu" else LAUNCH_S)
    windows: list[Sampled] = []
    batches: list[Batch] = []
    for _ in range(_SAMPLING_ROUNDS):
        share_s = policy.budget_s * _SAMPLING_SHARE
        clock = winner.prepared.clocks[0]
        windows.append(alone(winner, clock, policy, share_s, settle=not batches, one_s=LAUNCH_S))
        batches += windows[-1].batches
        if windows[-1].is_limited or min(batch.finest_s for batch in batches) <= raced_s / _SLOWER:
            break
    return batches, replace(windows[-1], conditions=joined([sampled.conditions for sampled in windows]))


def race_chains(race: Race, probe: ChainProbe, device: DeviceFacts, dtype: str) -> None:
    """Race forms, chains and unrolling; whatever comes close in one round goes into the next.

    First every number of chains of one form, then the other forms at the numbers that were best, then
    (if another form won) all its numbers, then the other unroll depths of what is close to the best.
    Raises `NotMeasuredError` if no form compiles.
    """
    forms = probe.usable(device, dtype)
    first, *others = UNROLLS

    def enter(form: Form, unroll: int, chains: Sequence[int], late: bool = False) -> bool:
        program: Parameters = {"form": form.name, "unroll": unroll, "kernels": kernels_in(chains)}
        return race.enter([{**program, "chains": count} for count in chains], late)

    def form_of(entry: Entry) -> Form:
        return next(form for form in forms if form.name == entry.choice["form"])

    for form in forms:  # the first that compiles
        if enter(form, first, CHAINS):
            break
    else:
        raise NotMeasuredError("failed", "no form of the probe compiles: " + race.failure)
    favourites = tuple(int(entry.choice["chains"]) for entry in race.ranked()[:_FAVOURITES])
    for other in forms:
        if other is not form:
            enter(other, first, favourites)
    winner = form_of(race.ranked()[0])
    if winner is not form:
        enter(winner, first, [count for count in CHAINS if count not in favourites])
    close = by_key(
        (str(entry.choice["form"]), int(entry.choice["chains"])) for entry in race.close_to_best(_MARGIN)
    )
    for unroll in others:
        for form in forms:
            if form.name in close:
                enter(form, unroll, close[form.name])
    best = race.ranked()[0]
    if others and race.unrolling(best) is None:  # the verdict on it needs a second depth
        enter(form_of(best), others[0], [int(best.choice["chains"])], late=True)


def race_matrices(race: Race, probe: MatrixProbe) -> None:
    """Race chains, unroll depths and work-groups a unit; `NotMeasuredError` if nothing assembles."""
    for unroll in probe.unrolls:
        for chains in probe.chains:
            race.enter([{"chains": chains, "unroll": unroll, "groups": groups} for groups in probe.groups])
    if not race.entries:
        raise NotMeasuredError("failed", race.failure)


# --- memory, transfers, latencies ---------------------------------------------------------------------------


def _memory(task: _Task, probe: MemoryProbe) -> Stages:
    """Race the ways to walk through memory, and establish that the winner is real."""
    case, device = task.case, task.device
    yield Staged("racing")
    with task.race(hopeless=_HOPELESS) as race:
        race.enter(candidates(probe, device, case.parameters))
        if not race.entries:
            failure = race.failure or f"{device.local_mem_bytes} bytes of local memory hold no array to read"
            raise NotMeasuredError("failed", f"the probe cannot be run: {failure}")
        winner = race.final(_FINALISTS)
        yield Staged("checking")
        wrong = "; ".join(winner.verify("before").check.reasons)
        twice = races.doubling(sized(winner, 1), winner.work // 2, races.MEMORY.tolerance, launches=2)
        race.kept = winner
    prepared, is_latency = winner.prepared, probe.kind == "latency"
    work = Work(bytes=prepared.unit.bytes * winner.work)
    top = None if is_latency else most_bytes(device)

    staircase = probe.bench in ("working-set", "chase")
    sampled = yield from _sampled(task, winner, _STEP_SHARE if staircase else _SAMPLING_SHARE)
    scope, hops = sampled.scopes["kernel"], winner.work if is_latency else 1
    each_s = tuple(seconds / hops for seconds in scope.seconds)
    each = replace(scope, seconds=each_s, batch=scope.batch * hops)
    row = replace(
        case.row("ok"),
        work=work,
        choice={**prepared.built.choice, **({"hops": hops} if is_latency else {})},
        samples={"kernel": each},
        build_s=race.build_s,
        race=() if is_latency else (race.note(),),
        notes=() if is_latency else prepared.notes,
        conditions=sampled.conditions,
    )
    rate, agreement = work.bytes / min(each.seconds), _event_over_wall(sampled.batches)
    known = task.known.rates
    evidence = Evidence(task.unit, rate, twice, None, agreement, wrong, top, known, subject=races.MEMORY)
    return task.judged(row, evidence)


def _sampled(task: _Task, handle: Handle, share: float) -> Generator[Staged, None, Sampled]:
    """Sample a handle for a share of the budget, and release it."""
    clock = handle.prepared.clocks[0]
    policy = task.policy if clock == "host" else replace(task.policy, batch_s=_MEMORY_BATCH_S)
    with handle:
        yield Staged("timing")
        return alone(handle, clock, policy, task.policy.budget_s * share)


def _transfer(task: _Task, probe: MemoryProbe) -> Stages:
    case = task.case
    yield Staged("racing")
    with task.race() as race:
        race.enter(candidates(probe, task.device, case.parameters))
        if not race.entries:
            raise NotMeasuredError("failed", race.failure)
        best = race.ranked()[0]
        moved = probe.bench != "map" or _map_moves(task, probe)
        yield Staged("checking")
        check = best.handle.verify("before").check
        race.kept = best.handle

    sampled = yield from _sampled(task, best.handle, _TRANSFER_SHARE)
    note = "zero-copy: the buffer is mapped where it is, and nothing is transferred"
    return replace(
        case.row("ok"),
        work=Work(bytes=int(case.parameters["bytes"]) if moved else 0),
        choice=best.choice if moved else {"way": "zero-copy"},
        samples=sampled.scopes,
        check=check,
        memory=probe.name.partition("-")[2],
        notes=() if moved else (note,),
        conditions=sampled.conditions,
    )


def _map_moves(task: _Task, probe: MemoryProbe) -> bool:
    """Whether mapping transfers anything: if so, it takes longer the more there is."""
    if task.device.unified_memory:
        return False
    moving = task.known.moving
    if probe.direction not in moving:
        seconds = []
        most = min(_MAP_SAMPLE_BYTES, max(transfer_sizes(task.device)))
        for nbytes in (most // 4, most):
            sample = replace(task, case=replace(task.case, parameters={"bytes": nbytes}))
            with sample.race() as race:
                race.enter(candidates(probe, task.device, {}))
                if not race.entries:
                    raise NotMeasuredError("failed", race.failure)
                seconds.append(nbytes / race.best_rate)
        moving[probe.direction] = seconds[1] > _MAP_GROWTH * seconds[0]
    return moving[probe.direction]


def _launches(task: _Task) -> Stages:
    policy, chain = task.policy, BY_NAME[task.case.variant].chain
    yield Staged("building")
    with task.instrument.prepare(task.case, task.device, policy) as handle:
        yield Staged("timing")
        handle.batch("host", chain or _FIRST_LAUNCHES)
        handle.watch.begin()
        end = time.monotonic() + policy.budget_s * _LAUNCH_SHARE
        samples: list[float] = []
        while len(samples) < _MOST_LAUNCHES and (len(samples) < _LEAST_LAUNCHES or time.monotonic() < end):
            batch = handle.batch("host", chain or _LEAST_LAUNCHES)
            samples += batch.each.get("host", (batch.seconds["host"],))
        conditions = handle.watch.end("host", ()) or Conditions()
        stop = "stable" if summarize(samples).noise <= policy.precision else "budget"
        scopes = {"host": Scope(tuple(samples), max(1, chain), stop)}
        build_s = handle.prepared.built.build_s
        row = replace(task.case.row("ok"), work=Work(), samples=scopes, build_s=build_s)
        return replace(row, conditions=replace(conditions, state=policy.state))
