"""Runs the compute probes: race the candidates, check the winner, time it, and judge what was found."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from operator import attrgetter
from typing import Protocol

import numpy as np

from gemmbench.facts.records import Policy, Row, Scope, Work
from gemmbench.measure.sampling import sample
from gemmbench.opencl.chains import ChainBench
from gemmbench.opencl.matrix_units import MatrixBench
from gemmbench.opencl.racing import Contender, Race
from gemmbench.opencl.runtime import Runtime, errors
from gemmbench.opencl.timing import Elapsed, doubling
from gemmbench.rules import integrity
from gemmbench.rules.ceilings import Unit, ceiling
from gemmbench.rules.executor import Tell
from gemmbench.rules.plan import Case
from gemmbench.rules.probes import PROBES, ChainProbe, MatrixProbe

_LAUNCH_S = 0.01  # one launch that is sampled lasts about this
_CPU_BATCH_S = 0.03  # several launches: threads that sleep between launches may wake on one core
_GPU_REST_S = 0.25
_RACE_SHARE = 1 / 2  # of a row's budget
_SAMPLING_SHARE = 1 / 6  # for one round of sampling: the best batch is asked for, not the median
_SAMPLING_ROUNDS = 3
_SLOWER = 0.95


class Bench(Protocol):
    """One row of a probe, brought to a device."""

    @property
    def build_s(self) -> float:
        """What building took so far."""

    @property
    def bytes(self) -> int:
        """Of one operand."""

    def race(self, budget_s: float) -> Race:
        """Race the probe's candidates.

        Raises:
            NotMeasuredError: there is none that the device takes.
        """

    def summary(self, race: Race) -> tuple[str, ...]:
        """How the race went."""

    def wrong_result(self, contender: Contender) -> str:
        """How what a short run stores differs from the host's, or ""."""


@dataclass(frozen=True)
class _Timed:
    """Samples of the winner, by the clock that can be believed."""

    samples: Scope
    event_over_wall: float
    clock: Callable[[Elapsed], float]


class PeakExecutor:
    """Runs peak cases on one OpenCL device.

    `known` collects the rates that were believed, in operations per second, for the ratio check.
    """

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self.known: dict[Unit, float] = {}

    def run(self, case: Case, policy: Policy, tell: Tell) -> Row:
        """See `rules.executor.Executor`."""
        with errors():
            bench = self._bench(case)
            tell("racing")
            race = bench.race(policy.budget_s * _RACE_SHARE)
            best = race.ranked()[0]
            tell("checking")
            wrong = bench.wrong_result(best)
            trips = best.trips_for(_LAUNCH_S)
            tell("timing")
            timed = self._time(best, trips, race.best_rate, policy)
            twice = doubling(
                lambda: timed.clock(best.run(trips)),
                lambda: timed.clock(best.run(2 * trips)),
            )
        work = Work(flops=best.operations * trips)
        rate = work.flops / min(timed.samples.seconds)
        unit = (case.variant, case.dtype, int(case.parameters.get("width", 0)))
        check = integrity.judge(
            integrity.Evidence(
                unit=unit,
                rate=rate,
                doubling=twice,
                unrolling=race.unrolling(best),
                event_over_wall=timed.event_over_wall,
                wrong_result=wrong,
                ceiling=ceiling(self._runtime.facts, bench.bytes),
                known=self.known,
                raced=race.best_rate,
            )
        )
        if check.verdict == "ok":
            self.known[unit] = max(rate, self.known.get(unit, 0.0))
        return replace(
            case.row("ok"),
            work=work,
            choice={**best.choice, "trips": trips},
            samples={"kernel": timed.samples},
            check=check,
            build_s=bench.build_s,
            race=bench.summary(race),
            notes=race.notes,
        )

    def _bench(self, case: Case) -> Bench:
        probe = PROBES[case.variant]
        if isinstance(probe, ChainProbe):
            return ChainBench(self._runtime, probe, case.dtype, int(case.parameters["width"]))
        assert isinstance(probe, MatrixProbe)
        return MatrixBench(self._runtime, probe, case.dtype, case.parameters)

    def _time(self, best: Contender, trips: int, raced: float, policy: Policy) -> _Timed:
        """Sample the winner by both clocks, and take the event clock's samples if it can be believed."""
        samples = self._sample(best, trips, raced, policy)
        events, wall = (float(np.median(samples[name].seconds)) for name in ("kernel", "device"))
        agreement = events / wall
        if integrity.events_agree(agreement):
            return _Timed(samples["kernel"], agreement, attrgetter("event"))
        return _Timed(samples["device"], agreement, attrgetter("wall"))

    def _sample(self, best: Contender, trips: int, raced: float, policy: Policy) -> dict[str, Scope]:
        """Sample the winner; where the machine has become slower since the race, sample on. All is kept.

        A GPU is rested first, not settled: it is fastest before its power limit slows it down, and the best
        batch is asked for.
        """
        slow_s = best.operations * trips / raced / _SLOWER
        cpu = self._runtime.facts.type == "cpu"
        policy = replace(policy, batch_s=_CPU_BATCH_S if cpu else _LAUNCH_S)
        if not cpu:
            time.sleep(_GPU_REST_S)
        samples: dict[str, Scope] = {}
        for _ in range(_SAMPLING_ROUNDS):
            more = sample(
                partial(best.batch, trips),
                policy,
                policy.budget_s * _SAMPLING_SHARE,
                one_s=_LAUNCH_S,
                settle=cpu and not samples,
            )
            for scope, new in more.items():
                old = samples[scope].seconds if scope in samples else ()
                samples[scope] = replace(new, seconds=(*old, *new.seconds))
            if min(samples["kernel"].seconds) <= slow_s:
                break
        return samples
