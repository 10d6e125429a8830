"""One GEMM problem on a device, ready to be run again and again: launches, operands, clocks."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from copy import copy
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Protocol

import numpy as np
import pyopencl as cl

from gemmbench.facts.problem import Gemm
from gemmbench.facts.records import Check, Launch, Policy, Scope
from gemmbench.opencl.memory import Operand, operand
from gemmbench.opencl.runtime import Runtime, errors
from gemmbench.rules import reference
from gemmbench.rules.memory import operand_sets
from gemmbench.rules.operands import load_operands, save_result
from gemmbench.rules.plan import Case
from gemmbench.rules.variants import Layout, Variant

_LONG_RUN_S = 1e-3  # from here on the enqueueing cannot explain a gap between event and wall clock


class Step(Protocol):
    """One thing that a problem puts into a queue, its arguments set."""

    @property
    def role(self) -> str:
        """Of its pass."""

    @property
    def name(self) -> str:
        """For people."""

    def enqueue(self, queue: Any) -> Any:
        """Enqueue it; the event, if it has one."""


Bind = Callable[[Gemm, Layout, Mapping[str, Any]], Sequence[Step]]


@dataclass(frozen=True)
class Prepared:
    """One launch with its arguments set: a `Step`."""

    role: str
    name: str
    kernel: Any
    items: tuple[int, ...]
    group: tuple[int, ...]
    held: Mapping[str, Any]  # its buffers: a kernel does not keep its arguments alive

    def enqueue(self, queue: Any) -> Any:
        """Enqueue it; the event."""
        return cl.enqueue_nd_range_kernel(queue, self.kernel, self.items, self.group)


class Turns:
    """Whose turn it is among operand sets; benches that share them share it: none finds what another left."""

    def __init__(self, sets: int) -> None:
        self._sets, self._next = sets, 0

    def place(self, after: int = 0) -> int:
        """The set of the problem after so many further ones."""
        return (self._next + after) % self._sets

    def took(self, count: int) -> None:
        """So many problems were run."""
        self._next += count


class Bench:
    """One problem on the device, ready to be run again and again."""

    def __init__(
        self,
        runtime: Runtime,
        variant: Variant,
        case: Case,
        mode: str,
        policy: Policy,
        bind: Bind,
    ) -> None:
        assert case.problem is not None
        problem = case.problem
        self.runtime, self._problem, self._case = runtime, problem, case
        self._values = load_operands(case)
        self.sets = operand_sets(problem, runtime.facts, policy)
        self._operands: list[tuple[Operand, Operand, Operand]] = []
        self._buffers: list[tuple[Mapping[str, Any], Mapping[str, Any]]] = []  # of the device and host scope
        matrices = {"A": self._values.a, "B": self._values.b, "C": self._values.c}
        as_image = {spec.source: name for name, spec in variant.images.items()}
        for _ in range(self.sets):
            operands = {
                name: operand(runtime, mode, values.shape, values.dtype, image=name in as_image)
                for name, values in matrices.items()
            }
            self._operands.append((operands["A"], operands["B"], operands["C"]))
            # The plain problem has B in a buffer, from which a pass fills the image; from host memory B goes
            # into the image at once.
            plain = {name: operands[name].buffer for name in matrices if name not in as_image}
            plain |= {name: runtime.filled(matrices[name]) for name in as_image}
            direct = plain | {image: operands[name].buffer for name, image in as_image.items()}
            self._buffers.append((plain, direct if as_image else plain))
        self._turns = Turns(self.sets)
        self._bound(bind)
        self._sums = variant.sums.get(problem.dtype, "")
        unwritten = reference.poison(problem.result)
        beta = problem.beta != 0
        self._unwritten = self._values.c if beta else np.full_like(self._values.c, unwritten)
        with errors():
            for a, b, _ in self._operands:
                a.fill(self._values.a)
                b.fill(self._values.b)
            self.blank()

    def _bound(self, bind: Bind) -> None:
        """Prepare the launches, for the device and the host scope, of every operand set."""
        layout = Layout.tight(self._problem)
        self._prepared: list[Sequence[Step]] = []
        self._hosted: list[Sequence[Step]] = []
        for plain, direct in self._buffers:
            self._prepared.append(bind(self._problem, layout, plain))
            same = direct is plain
            self._hosted.append(self._prepared[-1] if same else bind(self._problem, layout, direct))
        self._wall: list[tuple[float, float]] = []  # wall and event seconds of each device batch

    def sharing(self, bind: Bind) -> Bench:
        """Another bench of the same problem on the same operands, with other launches."""
        other = copy(self)
        other._bound(bind)
        return other

    def blank(self) -> None:
        """Put every C back as it was before any run, also of another bench: its values, or poison."""
        for *_, c in self._operands:
            c.fill(self._unwritten)
            c.keep_on_device(self.runtime.queue)
        self.runtime.queue.finish()

    def verify(self) -> Check:
        """Run once as the host scope does and check the answer that came back to the host."""
        problem, values = self._problem, self._values
        self._host_run(0)
        result = self._operands[0][2].read().reshape(problem.m, problem.n)
        found = reference.residual(
            problem, values.a, values.b, values.c, result, self._sums, zero_mean=values.generated
        )
        check = reference.judge(found, "")
        if check.verdict == "ok" and self._case.operands.out:
            save_result(self._case.operands.out, result)
        self._restore_c(0)
        return check

    def launches(self) -> tuple[Launch, ...]:
        """The device's stamps of one run."""
        events = [(launch.name, launch.enqueue(self.runtime.queue)) for launch in self._on_device(0)]
        self.runtime.queue.finish()
        return tuple(Launch(name, *_stamps(event)) for name, event in events)

    def device_batch(self, count: int) -> Mapping[str, float]:
        """Run ``count`` problems back to back; seconds of one in the kernel and the device scope."""
        wall, events = self._back_to_back(count)
        kernel = device = 0.0
        for role, event in events:
            took = (event.profile.end - event.profile.start) * 1e-9
            device += took
            if role == "multiply":
                kernel += took
        tick = self.runtime.facts.timer_resolution_ns * 1e-9
        self._wall.append((wall / count, device / count))
        return {"kernel": max(kernel, tick) / count, "device": max(device, tick) / count}

    def _back_to_back(self, count: int) -> tuple[float, list[tuple[str, Any]]]:
        """Run ``count`` problems; wall seconds of all, and each step's role and event."""
        queue = self.runtime.queue
        plan = [self._on_device(index) for index in range(self.sets)]
        events: list[tuple[str, Any]] = []
        begin = time.perf_counter()
        for number in range(count):
            for step in plan[self._turns.place(number)]:
                events.append((step.role, step.enqueue(queue)))
        queue.finish()
        wall = time.perf_counter() - begin
        self._turns.took(count)
        return wall, events

    def host_batch(self, count: int) -> Mapping[str, float]:
        """Run ``count`` problems from host memory to host memory; wall seconds of one."""
        total = 0.0
        for _ in range(count):
            index = self._turns.place()
            self._turns.took(1)
            total += self._host_run(index)
            self._restore_c(index)
        return {"host": total / count}

    def trust_events(self, samples: Mapping[str, Scope]) -> tuple[dict[str, Scope], tuple[str, ...]]:
        """Hold the event clock against the wall clock; where they cannot both be right, take the wall's.

        Only batches whose problems are long enough for the enqueueing not to explain a gap are held.
        """
        held = [(wall, event) for wall, event in self._wall if wall >= _LONG_RUN_S]
        if not held:
            return dict(samples), ()
        ratio = float(np.median([event / wall for wall, event in held]))
        if 0.5 <= ratio <= 1.05:
            return dict(samples), ()
        note = f"events say {ratio:.2g} times the wall clock: kernel and device scope are wall-clock times"
        return self.by_wall_clock(samples), (note,)

    def by_wall_clock(self, samples: Mapping[str, Scope]) -> dict[str, Scope]:
        """Samples of which those of the device are the wall clock's."""
        kept = samples["kernel"]
        walls = tuple(wall for wall, _ in self._wall[-len(kept.seconds) :])
        clocked = Scope(walls, kept.batch, kept.stop)
        return {**samples, "kernel": clocked, "device": clocked}

    def _on_device(self, index: int) -> Sequence[Step]:
        """The launches of one operand set, its operands being the device's."""
        for matrix in self._operands[index]:
            matrix.keep_on_device(self.runtime.queue)
        self.runtime.queue.finish()
        return self._prepared[index]

    def _host_run(self, index: int) -> float:
        """From operands in host memory to C in host memory; wall seconds."""
        a, b, c = self._operands[index]
        queue = self.runtime.plain_queue
        for matrix in (a, b, c):
            matrix.reclaim(queue)
        queue.finish()
        begin = time.perf_counter()
        a.to_device(queue)
        b.to_device(queue)
        if self._problem.beta != 0:
            c.to_device(queue)
        else:
            c.lend(queue)
        for launch in self._hosted[index]:
            launch.enqueue(queue)
        c.to_host(queue)
        return time.perf_counter() - begin

    def _restore_c(self, index: int) -> None:
        """Put C back as it was before, where the next problem reads it."""
        if self._problem.beta != 0:
            c = self._operands[index][2]
            c.reclaim(self.runtime.plain_queue)
            c.fill(self._values.c)


class WallBench(Bench):
    """A bench for steps whose events do not tell: wall clock, and no kernel scope."""

    def launches(self) -> tuple[Launch, ...]:
        """None that are known."""
        return ()

    def device_batch(self, count: int) -> Mapping[str, float]:
        """Run ``count`` problems back to back; wall seconds of one as the device scope."""
        wall, _ = self._back_to_back(count)
        return {"device": wall / count}

    def trust_events(self, samples: Mapping[str, Scope]) -> tuple[dict[str, Scope], tuple[str, ...]]:
        """There are none to hold against the wall clock."""
        return dict(samples), ()


def _stamps(event: Any) -> tuple[float, float, float]:
    """Queued, submitted and running durations of an event in seconds, never negative."""
    profile = event.profile
    stamps = (profile.queued, profile.submit, profile.start, profile.end)
    queued, submitted, running = (max(0, b - a) * 1e-9 for a, b in pairwise(stamps))
    return queued, submitted, running
