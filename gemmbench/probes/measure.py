"""One row of a probe from its plan to its evidence: raced, checked, sampled, judged."""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass, replace
from itertools import product
from operator import attrgetter
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np

from gemmbench.measure.sampling import Metered, Sampled, alone
from gemmbench.measure.sensors import measure_energy
from gemmbench.model.case import Case, Policy, Staged
from gemmbench.model.device import Conditions, DeviceFacts
from gemmbench.model.instrument import Batch, Handle, Instrument
from gemmbench.model.row import Parameters, Row, Scope, Work
from gemmbench.model.units import MIB
from gemmbench.probes import PROBES
from gemmbench.probes import race as races
from gemmbench.probes.arithmetic import CHAINS, UNROLLS, ChainProbe, MatrixProbe
from gemmbench.probes.memory import BY_NAME, MemoryProbe, candidates, transfer_sizes
from gemmbench.probes.race import FigureEvidence, Race, with_sampled_work
from gemmbench.stats.ceilings import upper_bound, upper_bound_bytes
from gemmbench.stats.intervals import summarize

_FAVOURITES = 2  # numbers of chains that go on from the first form to the others
_FAR = 0.9  # of the best rate of a type: a width below it is raced further; a clock varies by as much

_SAMPLING_SHARE = 1 / 6  # of a row's budget for the clock of a memory probe
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

Known = dict[object, Any]
"""What earlier rows of a device have shown: winners of races, and whether mapping moves anything."""

_KNOWN: WeakKeyDictionary[Instrument, dict[int, Known]] = WeakKeyDictionary()


@dataclass(frozen=True)
class _Task:
    instrument: Instrument
    case: Case
    device: DeviceFacts
    policy: Policy
    known: Known

    def race(self, hopeless: float = float("inf"), failure: str = "") -> Race:
        return Race(self.instrument, self.case, self.device, self.policy, hopeless, failure=failure)


def _with_verdict(row: Row, evidence: FigureEvidence) -> Row:
    check = races.judge_figure(evidence)
    if check.verdict == "wrong":
        return replace(row, check=check, status="wrong", reason="; ".join(check.reasons))
    return replace(row, check=check)


def measure_probe(
    instrument: Instrument, case: Case, device: DeviceFacts | None, policy: Policy, known: Known | None = None
) -> Stages:
    """Measure the case of a probe: yields its stages, and returns its row.

    `known` is what earlier rows of a device have shown. Raises `NotMeasuredError` if there is no rate.
    """
    assert device is not None  # of every probe
    known = _KNOWN.setdefault(instrument, {}).setdefault(device.index, {}) if known is None else known
    task = _Task(instrument, case, device, policy, known)
    if case.kind == "peak":
        return (yield from _measure_arithmetic(task))
    if BY_NAME[case.variant].bench == "launch":
        return (yield from _measure_launches(task))
    of_kind = _measure_transfer if case.kind == "transfer" else _measure_memory
    return (yield from of_kind(task, BY_NAME[case.variant]))


def _event_over_wall(batches: Sequence[Batch]) -> float:
    event, wall = (np.median(times) for times in zip(*((b.finest_s, b.wall_s) for b in batches), strict=True))
    return float(event / wall)


def _measure_arithmetic(task: _Task) -> Stages:
    """Race a compute probe's kernels, check and sample the fastest, and judge its best batch."""
    probe, case, known = PROBES[task.case.variant], task.case, task.known
    yield Staged("trying variants")
    with task.race(_HOPELESS) as race:
        if isinstance(probe, ChainProbe):
            race_chains(race, probe, task.device, case, known)
            words = {"form": "variants", "chains": "chains"}
        else:
            race_matrices(race, probe, case, known)
            words = {"chains": "chains", "unroll": "unroll depths", "groups": "groups per unit"}
        yield Staged("verifying")
        best = race.ranked()[0].handle
        wrong = "; ".join(best.verify("before").check.reasons)
        yield Staged("timing")
        winner = with_sampled_work(best)
        sampled = alone(winner, winner.prepared.clocks[0], task.policy, task.policy.budget_s)
        agreement = _event_over_wall(sampled.batches)
        seconds: Clocked = attrgetter("finest_s" if races.events_agree(agreement) else "wall_s")
        samples = sampled.scope("kernel", wall=not races.events_agree(agreement))
        subject = races.MATRIX if probe.ran_on == "matrix" else races.ARITHMETIC
        work = Work(flops=winner.prepared.unit.flops * winner.work)
        row = replace(
            case.row("ok"),
            work=work,
            choice={**winner.prepared.built.choice, "trips": winner.work},
            samples={"kernel": samples},
            build_s=race.build_s,
            race=race.summary(**words),
            conditions=sampled.conditions,
        )
        evidence = FigureEvidence(
            case.dtype,
            rate=work.flops / min(samples.seconds),
            doubling=races.doubling(winner, 1, subject.tolerance, task.policy.budget_s, seconds=seconds),
            event_over_wall=agreement,
            wrong_result=wrong,
            ceiling=upper_bound(task.device, case.dtype, case.ran_on == "matrix", row.max_mhz),
            unrolling=race.unrolling(winner, subject.unrolling),
            subject=subject,
        )
        row = _with_verdict(row, evidence)
        if not task.policy.energy or row.status != "ok":
            return row
        yield Staged("measuring energy")
        with Metered(winner, winner.prepared.clocks[0]) as run:
            return replace(row, energy=measure_energy(run, device=task.device))


def race_chains(race: Race, probe: ChainProbe, device: DeviceFacts, case: Case, known: Known) -> None:
    """Race numbers of chains (recurrences of a work-item), then forms (ways to write a step), then unrolling.

    Further widths of a type race only the first form and the winner, unless they are below 90 % of the best
    so far. `known` keeps what won. Raises `NotMeasuredError` if no form compiles.
    """
    key, width = (probe.name, case.dtype), int(case.parameters["width"])
    depth, *depths = UNROLLS
    won = known.get(key)
    counts = confirmed_chains(won, width) if won else CHAINS
    forms = [form.name for form in probe.usable(device, case.dtype)]

    def enter(form: str, unroll: int, chains: Sequence[int]) -> bool:
        program: Parameters = {"form": form, "unroll": unroll, "kernels": ",".join(map(str, sorted(chains)))}
        return race.enter({**program, "chains": count} for count in chains)

    def deepened() -> Parameters:
        best = race.ranked()[0].choice
        for unroll in depths if best["unroll"] == depth else ():
            enter(str(best["form"]), unroll, [int(best["chains"])])
        return race.ranked()[0].choice

    likely = [form for form in forms if not won or form in (forms[0], won["form"])]
    for form in likely:
        if enter(form, depth, counts) and len(counts) > _FAVOURITES:
            counts = tuple(int(entry.choice["chains"]) for entry in race.ranked()[:_FAVOURITES])
    best = deepened() if race.entries else {}
    if not best or (won and race.best_rate < _FAR * float(won["rate"])):
        for form in (form for form in forms if form not in likely):
            enter(form, depth, counts)
        best = race.ranked("no variant of the probe compiles: ")[0].choice
        rest = [count for count in CHAINS if count not in counts]
        for form in dict.fromkeys((str(best["form"]), forms[0])) if won else ():
            enter(form, depth, rest)
        best = deepened()
    won = won or {"width": width, "chains": best["chains"], "form": best["form"], "rate": 0.0}
    known[key] = {**won, "rate": max(float(won["rate"]), race.best_rate)}


def confirmed_chains(won: Parameters, width: int) -> tuple[int, ...]:
    """The numbers of chains to try at a further width: as many as won before, and as many elements."""
    same, elements = int(won["chains"]), int(won["chains"]) * int(won["width"])
    return tuple({same, min(CHAINS, key=lambda count: (abs(count * width - elements), -count))})


def race_matrices(race: Race, probe: MatrixProbe, case: Case, known: Known) -> None:
    """Race chains (products of a warp) and groups per unit, then unrolling. `known` keeps the winner."""
    key = (probe.name, case.dtype, case.parameters["shape"], case.parameters["accumulator"])
    won = known.get(key)
    pairs = [(int(won["chains"]), int(won["groups"]))] if won else product(probe.chains, probe.groups)
    depth, *depths = probe.unrolls
    race.enter({"chains": chains, "unroll": depth, "groups": groups} for chains, groups in pairs)
    best = race.ranked()[0].choice
    race.enter({"chains": best["chains"], "unroll": unroll, "groups": best["groups"]} for unroll in depths)
    known.setdefault(key, race.ranked()[0].choice)


def _measure_memory(task: _Task, probe: MemoryProbe) -> Stages:
    """Race a bandwidth or latency probe's variants, check and sample the fastest."""
    case, device = task.case, task.device
    yield Staged("trying variants")
    without_candidate = f"{device.local_mem_bytes} bytes of local memory hold no array to read"
    with task.race(_HOPELESS, without_candidate) as race:
        race.enter(candidates(probe, device, case.parameters))
        winner = race.final(_FINALISTS, "the probe cannot be run: ")
        yield Staged("verifying")
        wrong = "; ".join(winner.verify("before").check.reasons)
        single, tolerance = replace(winner, work=1), races.MEMORY.tolerance
        twice = races.doubling(single, winner.work // 2, tolerance, task.policy.budget_s, launches=2)
        race.survivor = winner
    prepared, is_latency = winner.prepared, probe.kind == "latency"
    work = Work(bytes=prepared.unit.bytes * winner.work)
    top = None if is_latency else upper_bound_bytes(device)

    staircase = probe.bench in ("working-set", "chase")
    sampled = yield from _sampled(task, winner, _STEP_SHARE if staircase else _SAMPLING_SHARE)
    scope, hops = sampled.scopes["kernel"], winner.work if is_latency else 1
    seconds, tick_s = tuple(value / hops for value in scope.seconds), (scope.tick_s or 0.0) / hops
    each = replace(scope, seconds=seconds, batch=scope.batch * hops, tick_s=tick_s)
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
    return _with_verdict(
        row, FigureEvidence(case.dtype, rate, twice, agreement, wrong, top, subject=races.MEMORY)
    )


def _sampled(task: _Task, handle: Handle, share: float) -> Generator[Staged, None, Sampled]:
    clock = handle.prepared.clocks[0]
    policy = task.policy if clock == "host" else replace(task.policy, batch_s=_MEMORY_BATCH_S)
    with handle:
        yield Staged("timing")
        return alone(handle, clock, policy, task.policy.budget_s * share)


def _measure_transfer(task: _Task, probe: MemoryProbe) -> Stages:
    """Race the ways to transfer, verify and sample the fastest."""
    case = task.case
    yield Staged("trying variants")
    with task.race() as race:
        race.enter(candidates(probe, task.device, case.parameters))
        best = race.ranked()[0]
        moved = probe.bench != "map" or _mapping_moves_data(task, probe)
        yield Staged("verifying")
        check = best.handle.verify("before").check
        race.survivor = best.handle

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


def _mapping_moves_data(task: _Task, probe: MemoryProbe) -> bool:
    """Whether mapping four times the bytes takes more than twice as long."""
    if task.device.unified_memory:
        return False
    key = ("mapping moves data", probe.direction)
    if key not in task.known:
        seconds = []
        most = min(_MAP_SAMPLE_BYTES, max(transfer_sizes(task.device)))
        for nbytes in (most // 4, most):
            sample = replace(task, case=replace(task.case, parameters={"bytes": nbytes}))
            with sample.race() as race:
                race.enter(candidates(probe, task.device, {}))
                seconds.append(nbytes / race.best_rate)
        task.known[key] = seconds[1] > _MAP_GROWTH * seconds[0]
    return bool(task.known[key])


def _measure_launches(task: _Task) -> Stages:
    """Time single launches, or chains of them, by the host's clock."""
    policy, chain = task.policy, BY_NAME[task.case.variant].chain
    yield Staged("building")
    with task.instrument.prepare(task.case, task.device, policy) as handle:
        yield Staged("timing")
        handle.batch("host", 1 if chain else _FIRST_LAUNCHES)
        handle.watch.begin()
        end = time.perf_counter() + policy.budget_s * _LAUNCH_SHARE
        samples: list[float] = []
        while len(samples) < _MOST_LAUNCHES and (len(samples) < _LEAST_LAUNCHES or time.perf_counter() < end):
            samples += handle.batch("host", 1 if chain else _LEAST_LAUNCHES).each["host"]
        conditions = handle.watch.end("host", ()) or Conditions()
        stop = "stable" if summarize(samples).noise <= policy.precision else "budget"
        count = max(1, chain)
        scopes = {"host": Scope(tuple(samples), count, stop, handle.watch.tick_s / count)}
        build_s = handle.prepared.built.build_s
        row = replace(task.case.row("ok"), work=Work(), samples=scopes, build_s=build_s)
        return replace(row, conditions=conditions)
