"""Runs the latency probes: a chase through memory, and launches of a kernel that does nothing."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pyopencl as cl

from gemmbench.facts.records import Policy, Row, Scope, Work
from gemmbench.facts.stats import summarize
from gemmbench.opencl.launching import Launcher, Loop
from gemmbench.opencl.runtime import Built, Runtime, errors
from gemmbench.opencl.timing import doubling, elapsed, sampled
from gemmbench.rules.executor import Tell
from gemmbench.rules.memory import BY_NAME, MemoryProbe
from gemmbench.rules.memory_data import random_cycle
from gemmbench.rules.memory_integrity import Evidence, judge
from gemmbench.rules.plan import Case

_WORD = np.dtype(np.uint32)
_STEP_SHARE = 1 / 8  # of a row's budget for a step of the staircase, which has many
_MOST_WARMING = 1 << 20  # hops: a set with more nodes fits no cache
_LAUNCH_SHARE = 1 / 4
_FIRST_LAUNCHES = 50  # not sampled
_MOST_LAUNCHES = 1000  # a distribution wants many
_LEAST_LAUNCHES = 20
_CHAIN = 500  # kernels enqueued in one go


class LatencyExecutor:
    """Runs latency cases on one OpenCL device."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime

    def run(self, case: Case, policy: Policy, tell: Tell) -> Row:
        """See `rules.executor.Executor`."""
        probe = BY_NAME[case.variant]
        with errors():
            tell("building")
            built = self._runtime.build(probe.file, probe.options)
            measure = self._chase if probe.bench == "chase" else self._launches
            return replace(measure(case, probe, built, policy, tell), build_s=built.seconds, work=Work())

    def _chase(self, case: Case, probe: MemoryProbe, built: Built, policy: Policy, tell: Tell) -> Row:
        """Seconds for each hop through a set of one size."""
        runtime, queue = self._runtime, self._runtime.queue
        spacing = 64 if runtime.facts.type == "cpu" else 128  # bytes: a line of a cache
        memory, places = random_cycle(int(case.parameters["bytes"]) // spacing, spacing // _WORD.itemsize)
        nodes = cl.Buffer(
            runtime.context, cl.mem_flags.READ_ONLY | cl.mem_flags.COPY_HOST_PTR, hostbuf=memory
        )
        where = runtime.buffer(_WORD.itemsize)

        def start() -> None:
            cl.enqueue_copy(queue, where, np.zeros(1, _WORD))

        def arguments(hops: int) -> Sequence[Any]:
            return nodes, where, np.uint32(hops)

        def check(loop: Loop, hops: int) -> str:
            start()
            loop.load(hops).enqueue()
            got, expected = np.empty(1, _WORD), int(places[hops % places.size])
            cl.enqueue_copy(queue, got, where)
            return "" if got[0] == expected else f"{hops} hops end at {int(got[0])}, not at {expected}"

        start()
        loop = Loop(Launcher(queue, runtime.kernel(built, probe.kernel, (1,)), 1, 1), {}, arguments, 0, check)
        tell("checking")
        if places.size <= _MOST_WARMING:
            elapsed(queue, loop.load(places.size).enqueue)
        wrong = loop.wrong()
        tell("timing")
        full, (half, _), hops = loop.full(), loop.halves(), loop.full_trips
        found = sampled(queue, full.enqueue, policy, policy.budget_s * _STEP_SHARE)
        ratio = doubling(
            lambda: elapsed(queue, half.enqueue).event, lambda: elapsed(queue, full.enqueue).event
        )
        each = tuple(seconds / hops for seconds in found.scope.seconds)
        return replace(
            case.row("ok"),
            choice={"spacing": spacing, "hops": hops},
            samples={"kernel": Scope(each, found.scope.batch * hops, found.scope.stop)},
            check=judge(Evidence(doubling=ratio, event_over_wall=found.event_over_wall, wrong=wrong)),
        )

    def _launches(self, case: Case, probe: MemoryProbe, built: Built, policy: Policy, tell: Tell) -> Row:
        """Seconds for each launch of an empty kernel."""
        kernel = self._runtime.kernel(built, probe.kernel, (1,))
        launch, batch = _LAUNCHES[probe.name]
        tell("timing")
        for _ in range(max(1, _FIRST_LAUNCHES // batch)):
            launch(self._runtime, kernel)
        end = time.perf_counter() + policy.budget_s * _LAUNCH_SHARE
        samples: list[float] = []
        while len(samples) < _MOST_LAUNCHES and (len(samples) < _LEAST_LAUNCHES or time.perf_counter() < end):
            samples.append(launch(self._runtime, kernel))
        stop = "stable" if summarize(samples).noise <= policy.precision else "budget"
        return replace(case.row("ok"), samples={"host": Scope(tuple(samples), batch, stop)})


# --- one launch, or a chain of them: seconds for each -------------------------------------------------------

_SHORTEST_S = 1e-9  # stamps without a difference are closer than the clock's tick


def _enqueue(queue: Any, kernel: Any) -> Any:
    return cl.enqueue_nd_range_kernel(queue, kernel, (1,), (1,))


def _dispatch(runtime: Runtime, kernel: Any) -> float:
    queue = runtime.plain_queue
    begin = time.perf_counter()
    _enqueue(queue, kernel)
    spent = time.perf_counter() - begin
    queue.finish()
    return spent


def _start(runtime: Runtime, kernel: Any) -> float:
    event = _enqueue(runtime.queue, kernel)
    runtime.queue.finish()
    spent: int = event.profile.start - event.profile.queued
    return max(spent * 1e-9, _SHORTEST_S)


def _round_trip(runtime: Runtime, kernel: Any) -> float:
    queue = runtime.plain_queue
    begin = time.perf_counter()
    _enqueue(queue, kernel)
    queue.finish()
    return time.perf_counter() - begin


def _chain(runtime: Runtime, kernel: Any) -> float:
    queue = runtime.plain_queue
    begin = time.perf_counter()
    for _ in range(_CHAIN):
        _enqueue(queue, kernel)
    queue.finish()
    return (time.perf_counter() - begin) / _CHAIN


_LAUNCHES: Mapping[str, tuple[Callable[[Runtime, Any], float], int]] = {
    "launch-dispatch": (_dispatch, 1),
    "launch-start": (_start, 1),
    "launch-round-trip": (_round_trip, 1),
    "launch-chain": (_chain, _CHAIN),
}
