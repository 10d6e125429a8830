"""Runs the bandwidth probes: race the ways to walk through memory, then establish that the winner is real."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from gemmbench.facts.records import Parameters, Policy, Row, Work
from gemmbench.facts.units import GIGA, number
from gemmbench.opencl.cache_probes import local, working_set
from gemmbench.opencl.launching import Contender, Entered, Load
from gemmbench.opencl.memory_probes import global_memory, image
from gemmbench.opencl.runtime import Runtime, errors
from gemmbench.opencl.timing import doubling, elapsed, sampled
from gemmbench.rules.executor import NotMeasuredError, Tell
from gemmbench.rules.memory import BY_NAME, MemoryProbe
from gemmbench.rules.memory_data import RepeatedTable
from gemmbench.rules.memory_integrity import Evidence, core_ceiling, judge
from gemmbench.rules.plan import Case

_RUNS = 3  # of a contender
_HOPELESS = 3.0  # times the best time: not run again
_FINALISTS = 3
_BUDGET_SHARE = 1 / 6  # of a row's budget: the best batch is asked for, not the median
_STEP_SHARE = 1 / 8  # and of a step of the staircase, which has many

Bench = Callable[[Runtime, MemoryProbe, Parameters, RepeatedTable], Entered]

BENCHES: Mapping[str, Bench] = {
    "global": global_memory,
    "image": image,
    "working-set": working_set,
    "local": local,
}


class BandwidthExecutor:
    """Runs bandwidth cases on one OpenCL device.

    `known` collects the best believed rates by probe in bytes per second, for the ratio check.
    """

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._table = RepeatedTable()
        self.known: dict[str, float] = {}

    def run(self, case: Case, policy: Policy, tell: Tell) -> Row:
        """See `rules.executor.Executor`."""
        probe, queue = BY_NAME[case.variant], self._runtime.queue
        share = _STEP_SHARE if probe.bench == "working-set" else _BUDGET_SHARE
        with errors():
            tell("building")
            entered = BENCHES[probe.bench](self._runtime, probe, case.parameters, self._table)
            if not entered.contenders:
                raise NotMeasuredError("failed", f"the probe cannot be run: {entered.failure}")
            tell("racing")
            race = _Race(queue)
            best = race.winner(entered.contenders)
            tell("checking")
            wrong = best.wrong()
            tell("timing")
            full = best.full()
            found = sampled(queue, full.enqueue, policy, policy.budget_s * share)
            halves = best.halves()
            ratio = doubling(
                lambda: sum(elapsed(queue, half.enqueue).event for half in halves) / 2,
                lambda: elapsed(queue, full.enqueue).event,
            )
        rate = full.bytes / min(found.scope.seconds)
        check = judge(
            Evidence(
                doubling=ratio,
                event_over_wall=found.event_over_wall,
                wrong=wrong,
                probe=probe.name,
                rate=rate,
                ceiling=core_ceiling(self._runtime.facts),
                known=self.known,
            )
        )
        if check.verdict == "ok":
            self.known[probe.name] = max(rate, self.known.get(probe.name, 0.0))
        return replace(
            case.row("ok"),
            work=Work(bytes=full.bytes),
            choice=best.choice,
            samples={"kernel": found.scope},
            check=check,
            build_s=entered.build_s,
            notes=entered.notes,
            race=(race.summary(),),
        )


class _Race:
    """Times contenders until the fastest is known."""

    def __init__(self, queue: Any) -> None:
        self._queue = queue
        self._rates: list[tuple[float, Contender]] = []

    def winner(self, entered: Sequence[Contender]) -> Contender:
        """The fastest: all are timed briefly, the best of them again with the work that is sampled."""
        for contender in entered:
            self._rates.append((self._rate(contender.quick()), contender))
        finalists = sorted(self._rates, key=lambda entry: entry[0], reverse=True)[:_FINALISTS]
        if len(finalists) == 1:
            return finalists[0][1]
        return max(finalists, key=lambda entry: self._rate(entry[1].full()))[1]

    def _rate(self, load: Load) -> float:
        """Bytes per second of the best of a few launches; of fewer where there is no hope."""
        best = max((rate for rate, _ in self._rates), default=0.0)
        mine = 0.0
        for _ in range(_RUNS):
            mine = max(mine, load.bytes / elapsed(self._queue, load.enqueue).event)
            if mine * _HOPELESS < best:
                break
        return mine

    def summary(self) -> str:
        """What the race found: the best rate of each value of each choice that differed."""
        names = dict.fromkeys(name for _, contender in self._rates for name in contender.choice)
        found = []
        for name in names:
            best: dict[int | float | str, float] = {}
            for rate, contender in self._rates:
                value = contender.choice[name]
                best[value] = max(rate, best.get(value, 0.0))
            if len(best) > 1:
                values = ", ".join(f"{value}: {number(rate / GIGA)}" for value, rate in best.items())
                found.append(f"{name} {values}")
        return f"raced (GB/s): {'; '.join(found) or 'one way only'}"
