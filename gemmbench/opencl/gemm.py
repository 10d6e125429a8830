"""Runs the ladder's variants: verify, then sample the kernel, device and host scopes."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np
import pyopencl as cl

from gemmbench.energy import measure_energy
from gemmbench.facts.dtypes import DTYPES
from gemmbench.facts.problem import Gemm
from gemmbench.facts.records import Check, Launch, Policy, Row, Scope
from gemmbench.opencl import resources
from gemmbench.opencl.memory import Operand, choose, operand
from gemmbench.opencl.runtime import Built, Runtime, errors
from gemmbench.rules import reference
from gemmbench.rules.executor import Tell, too_slow
from gemmbench.rules.measure import least_s, sample
from gemmbench.rules.operands import load_operands, save_result
from gemmbench.rules.plan import Case
from gemmbench.rules.reference import Array
from gemmbench.rules.variants import BY_NAME, Layout, Variant, round_up

_DEVICE_SHARE = 0.6  # of the budget; the rest is the host scope's
_SMALL = 256  # the first trial's edge when a case's cost is predicted
_TRIAL_SHARE = 0.15  # of the budget that one trial may take
_LONG_RUN_S = 1e-3  # from here on the enqueueing cannot explain a gap between event and wall clock
_LEAST_CACHE_BYTES = 64 << 20  # drivers tell one core's or one level's cache
_MOST_SETS = 64


@dataclass(frozen=True)
class Prepared:
    """One launch with its arguments set."""

    role: str
    name: str
    kernel: Any
    items: tuple[int, ...]
    group: tuple[int, ...]
    held: Mapping[str, Any]  # its buffers: a kernel does not keep its arguments alive

    def enqueue(self, queue: Any) -> Any:
        """Enqueue it; the event."""
        return cl.enqueue_nd_range_kernel(queue, self.kernel, self.items, self.group)


class GemmExecutor:
    """Runs gemm cases on one OpenCL device. Exact tests are done once for each variant and data type."""

    def __init__(self, runtime: Runtime) -> None:
        self.runtime = runtime
        self._exact: dict[tuple[str, str, tuple[tuple[str, object], ...]], str] = {}

    def run(self, case: Case, policy: Policy, tell: Tell) -> Row:
        """See `rules.executor.Executor`."""
        assert case.problem is not None
        variant, problem = BY_NAME[case.variant], case.problem
        parameters = {name: int(value) for name, value in case.parameters.items()}

        tell("building")
        programs = self._programs(variant, problem.dtype, parameters)
        row = self._built_row(case, variant, parameters, programs)

        tell("verifying")
        bind = partial(self.bind, variant, parameters, programs)
        exact = self._exact_error(case, variant, bind)
        if exact:
            check = Check("wrong", {}, (exact,))
            return replace(row, status="wrong", reason=exact, check=check)
        if problem.flops:
            self._refuse_if_too_slow(problem, policy, bind)
        mode = choose(policy.memory, self.runtime.facts)
        bench = Bench(self.runtime, variant, case, mode, policy, bind)
        with errors():
            row = replace(row, check=bench.verify(), memory=mode, launches=bench.launches())
        if row.check.verdict == "wrong":
            return replace(row, status="wrong", reason="; ".join(row.check.reasons))
        if not problem.flops:
            return replace(row, notes=("nothing to time: the product has no terms",))

        with errors():
            tell("timing device")
            samples = sample(bench.device_batch, policy, policy.budget_s * _DEVICE_SHARE)
            tell("timing host")
            samples |= sample(
                bench.host_batch,
                policy,
                policy.budget_s * (1 - _DEVICE_SHARE),
                settle=False,
            )
        samples, notes = bench.trust_events(samples)
        if policy.cold and bench.sets > 1:
            notes = (*notes, f"cold: rotates among {bench.sets} operand sets")
        if policy.energy:
            tell("measuring energy")
            with errors():
                row = replace(row, energy=measure_energy(bench.device_batch, self.runtime.facts))
        return replace(row, samples=samples, notes=notes)

    def inspect(self, case: Case) -> Row:
        """A row with what the case's kernels take as built; nothing is run.

        Raises:
            NotMeasuredError: they do not compile.
        """
        variant = BY_NAME[case.variant]
        parameters = {name: int(value) for name, value in case.parameters.items()}
        programs = self._programs(variant, case.dtype, parameters)
        return self._built_row(case, variant, parameters, programs)

    def _programs(self, variant: Variant, dtype: str, parameters: Mapping[str, int]) -> dict[str, Built]:
        options = variant.options(dtype, parameters)
        return {file: self.runtime.build(file, options) for file in variant.files}

    def _built_row(
        self, case: Case, variant: Variant, parameters: Mapping[str, int], programs: Mapping[str, Built]
    ) -> Row:
        assert case.problem is not None
        return replace(
            case.row("ok"),
            build_s=sum(built.seconds for built in programs.values()),
            choice=dict(variant.chosen(case.problem, self.runtime.facts, parameters)),
            resources=resources.of_variant(self.runtime, variant, parameters, programs, case.problem),
        )

    def bind(
        self,
        variant: Variant,
        parameters: Mapping[str, int],
        programs: Mapping[str, Built],
        problem: Gemm,
        layout: Layout,
        buffers: Mapping[str, Any],
    ) -> list[Prepared]:
        """Kernels with their arguments set, in launch order; passes with nothing to do are left out.

        Images that ``buffers`` holds under their name are taken as filled.
        """
        full = {**parameters, **variant.chosen(problem, self.runtime.facts, parameters)}
        values = variant.values(problem, full, layout)
        dtype = DTYPES[problem.dtype]
        scalar = np.float64 if dtype.scalar == "double" else np.float32
        held = {
            name: self.runtime.buffer(size)
            for name, size in variant.temporary_bytes(problem, full, layout).items()
        }
        held |= {
            name: self.runtime.image(*spec.shape(problem), dtype.numpy)
            for name, spec in variant.images.items()
        }
        held |= buffers
        known: dict[str, Any] = {name: np.int32(value) for name, value in values.items()}
        known |= {"alpha": scalar(problem.alpha), "beta": scalar(problem.beta)}
        known |= held

        prepared = []
        for step in variant.steps(values):
            items, group = step.items(values), step.group(values)
            if 0 in items or (step.role == "image" and buffers.keys() & variant.images.keys()):
                continue
            kernel = self.runtime.kernel(programs[step.file], step.kernel, group)
            with errors():
                kernel.set_args(*(known[name] for name in step.arguments))
            rounded = tuple(round_up(*pair) for pair in zip(items, group, strict=True))
            prepared.append(Prepared(step.role, step.kernel, kernel, rounded, group, held))
        return prepared

    def _exact_error(self, case: Case, variant: Variant, bind: Callable[..., list[Prepared]]) -> str:
        """What is wrong on shapes around the tile, with guard cells and NaN where nothing may be read."""
        key = (case.variant, case.dtype, tuple(sorted(case.parameters.items())))
        if key not in self._exact:
            edge = variant.edge({name: int(value) for name, value in case.parameters.items()})
            problem = reference.edge_problem(case.dtype, edge)
            errors_found = (
                self.exact_run(problem, bind),
                self.exact_run(replace(problem, alpha=1.0, beta=0.0), bind),
            )
            self._exact[key] = next((error for error in errors_found if error), "")
        return self._exact[key]

    def exact_run(self, problem: Gemm, bind: Callable[..., list[Prepared]]) -> str:
        """Run one exact problem in padded, guarded buffers; what is wrong, or ""."""
        layout = Layout(problem.k + 3, problem.n + 5, problem.n + 7)
        a, b, c = reference.integer_operands(problem)
        dtype = DTYPES[problem.dtype].numpy
        before = c if problem.beta != 0 else np.full_like(c, np.nan)
        host = {
            "A": _embed(a, layout.lda, np.nan),
            "B": _embed(b, layout.ldb, np.nan),
            "C": _embed(before, layout.ldc, reference.GUARD, extra=64),
        }
        with errors():
            queue = self.runtime.queue
            buffers = {name: self.runtime.buffer(values.nbytes) for name, values in host.items()}
            for name, values in host.items():
                if values.size:
                    cl.enqueue_copy(queue, buffers[name], values)
            for launch in bind(problem, layout, buffers):
                launch.enqueue(queue)
            result = np.empty(host["C"].shape, dtype)
            if result.size:
                cl.enqueue_copy(queue, result, buffers["C"])
            queue.finish()
        inside = result[: problem.m * layout.ldc].reshape(problem.m, layout.ldc)
        guard = np.concatenate([inside[:, problem.n :].ravel(), result[problem.m * layout.ldc :]])
        if not (guard == dtype.type(reference.GUARD)).all():
            return "cells outside C were written on the exact test"
        expected = reference.exact_product(problem, a, b, c)
        return reference.compare_exactly(expected, inside[:, : problem.n])

    def _refuse_if_too_slow(self, problem: Gemm, policy: Policy, bind: Callable[..., list[Prepared]]) -> None:
        """Predict the case's cost from growing trials.

        Raises:
            NotMeasuredError: skipped, with the time it would take.
        """
        edge = _SMALL
        while True:
            trial = replace(problem, m=min(problem.m, edge), n=min(problem.n, edge), k=min(problem.k, edge))
            if trial.flops * 2 >= problem.flops:
                return  # the trial would be the case itself
            took = self._trial(trial, bind)
            predicted = least_s(took * problem.flops / trial.flops)
            if predicted <= policy.budget_s:
                return
            if took * 8 > policy.budget_s * _TRIAL_SHARE:
                raise too_slow(predicted, policy)
            edge *= 2

    def _trial(self, problem: Gemm, bind: Callable[..., list[Prepared]]) -> float:
        """Seconds of one run of a smaller problem, the first and slow one not counted."""
        with errors():
            layout = Layout.tight(problem)
            a, b, _ = reference.random_operands(problem)
            buffers = {"A": self.runtime.buffer(a.nbytes), "B": self.runtime.buffer(b.nbytes)}
            buffers["C"] = self.runtime.buffer(problem.m * problem.n * a.itemsize)
            queue = self.runtime.queue
            cl.enqueue_copy(queue, buffers["A"], a)
            cl.enqueue_copy(queue, buffers["B"], b)
            launches = bind(replace(problem, beta=0.0), layout, buffers)
            took = 0.0
            for _ in range(2):
                begin = time.perf_counter()
                for launch in launches:
                    launch.enqueue(queue)
                queue.finish()
                took = time.perf_counter() - begin
        return took


class Bench:
    """One problem on the device, ready to be run again and again."""

    def __init__(
        self,
        runtime: Runtime,
        variant: Variant,
        case: Case,
        mode: str,
        policy: Policy,
        bind: Callable[..., list[Prepared]],
    ) -> None:
        assert case.problem is not None
        problem = case.problem
        self.runtime, self._problem, self._case = runtime, problem, case
        self._values = load_operands(case)
        self.sets = _set_count(problem, runtime, policy)
        self._operands: list[tuple[Operand, Operand, Operand]] = []
        self._prepared: list[list[Prepared]] = []  # for the device scope
        self._hosted: list[list[Prepared]] = []  # for the host scope
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
            layout = Layout.tight(problem)
            self._prepared.append(bind(problem, layout, plain))
            direct = plain | {image: operands[name].buffer for name, image in as_image.items()}
            self._hosted.append(bind(problem, layout, direct) if as_image else self._prepared[-1])
        self._wall: list[tuple[float, float]] = []  # wall and event seconds of each device batch
        self._next = 0
        with errors():
            for a, b, c in self._operands:
                a.fill(self._values.a)
                b.fill(self._values.b)
                c.fill(self._values.c if problem.beta != 0 else np.full_like(self._values.c, np.nan))
                c.keep_on_device(runtime.queue)
            runtime.queue.finish()

    def verify(self) -> Check:
        """Run once as the host scope does and check the answer that came back to the host."""
        problem, values = self._problem, self._values
        self._host_run(0)
        result = self._operands[0][2].read().reshape(problem.m, problem.n)
        found = reference.residual(problem, values.a, values.b, values.c, result, zero_mean=values.generated)
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
        queue = self.runtime.queue
        plan = [self._on_device(index) for index in range(self.sets)]
        events: list[tuple[str, Any]] = []
        begin = time.perf_counter()
        for number in range(count):
            for launch in plan[(self._next + number) % self.sets]:
                events.append((launch.role, launch.enqueue(queue)))
        queue.finish()
        wall = time.perf_counter() - begin
        self._next += count
        kernel = device = 0.0
        for role, event in events:
            took = (event.profile.end - event.profile.start) * 1e-9
            device += took
            if role == "multiply":
                kernel += took
        tick = self.runtime.facts.timer_resolution_ns * 1e-9
        self._wall.append((wall / count, device / count))
        return {"kernel": max(kernel, tick) / count, "device": max(device, tick) / count}

    def host_batch(self, count: int) -> Mapping[str, float]:
        """Run ``count`` problems from host memory to host memory; wall seconds of one."""
        total = 0.0
        for _ in range(count):
            index = self._next % self.sets
            self._next += 1
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
        kept = samples["kernel"]
        walls = tuple(wall for wall, _ in self._wall[-len(kept.seconds) :])
        note = f"events say {ratio:.2g} times the wall clock: kernel and device scope are wall-clock times"
        clocked = Scope(walls, kept.batch, kept.stop)
        return {**samples, "kernel": clocked, "device": clocked}, (note,)

    def _on_device(self, index: int) -> Sequence[Prepared]:
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


def _stamps(event: Any) -> tuple[float, float, float]:
    """Queued, submitted and running durations of an event in seconds, never negative."""
    profile = event.profile
    stamps = (profile.queued, profile.submit, profile.start, profile.end)
    queued, submitted, running = (max(0, b - a) * 1e-9 for a, b in pairwise(stamps))
    return queued, submitted, running


def _embed(matrix: Array, ld: int, fill: float, extra: int = 0) -> Array:
    """A matrix in rows of ``ld`` elements, the rest filled, and ``extra`` more elements behind it; flat."""
    rows, columns = matrix.shape
    flat = np.full(rows * ld + extra, fill, matrix.dtype)
    flat[: rows * ld].reshape(rows, ld)[:, :columns] = matrix
    return flat


def _set_count(problem: Gemm, runtime: Runtime, policy: Policy) -> int:
    """How many operand sets a cold run rotates among: twice what the caches hold."""
    if not policy.cold or not problem.operand_bytes:
        return 1
    wanted = 2 * max(runtime.facts.cache_bytes, _LEAST_CACHE_BYTES)
    room = max(1, runtime.facts.global_mem_bytes // 2 // problem.operand_bytes)
    return max(1, min(-(-wanted // problem.operand_bytes), _MOST_SETS, room))
