"""One GEMM problem on a device, ready to run repeatedly: launches, operands, clocks."""

from __future__ import annotations

import statistics
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import cycle, pairwise
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import pyopencl as cl

from gemmbench.gemm.answers import Answers
from gemmbench.gemm.operands import (
    LONG_S,
    SPLIT,
    Laps,
    Matrices,
    host_batch,
    load_operands,
    operand_sets,
    same_bits,
)
from gemmbench.gemm.verify import PLAIN, Terms, merge_checks
from gemmbench.ladder.variant import Layout, Variant
from gemmbench.model import instrument
from gemmbench.model.case import Case, Policy
from gemmbench.model.dtypes import HostArray
from gemmbench.model.instrument import Batch, NotMeasuredError
from gemmbench.model.problem import Gemm
from gemmbench.model.row import CHAIN, CYCLE, WHOLE, Check, Launch
from gemmbench.model.units import ceil_div
from gemmbench.opencl.runtime import MAPPED, Operand, Runtime, Shape, errors, operand

if TYPE_CHECKING:
    from gemmbench.measure.instrument import Running

_GUARD = np.uint8(37)  # in each byte behind C
_GUARDS = {"A": 0, "B": 0, "C": 4096}  # bytes behind a matrix


class Step(Protocol):
    """What a problem puts into a queue, with its arguments."""

    @property
    def role(self) -> str: ...

    @property
    def name(self) -> str: ...

    def enqueue(self, queue: Any) -> Any: ...


Bind = Callable[[Gemm, Layout, Mapping[str, Any]], Sequence[Step]]


@dataclass(frozen=True)
class PreparedLaunch:
    """One launch with its arguments set: a `Step`."""

    role: str
    name: str
    kernel: Any
    items: tuple[int, ...]
    group: tuple[int, ...]
    held: Mapping[str, Any]  # its buffers: a kernel does not keep its arguments alive
    described: Mapping[str, Any] = field(default_factory=dict)  # buffers filled with the arguments

    def enqueue(self, queue: Any) -> Any:
        return cl.enqueue_nd_range_kernel(queue, self.kernel, self.items, self.group)


_SHORT_S = 2e-4  # of a problem on its own: of shorter ones a device may finish more than the host enqueues
_STAMPED = 4  # problems at the end of a batch whose launches always have events
_ROOM = 32  # of a device's memory, the share that a C may have to be compared after each batch
_FEW = 3  # problems
# Of a problem on the device whose first batch is the one that is verified. One that seems over budget runs
# again before that: the very first run may be half as fast.
_VERIFIED_BATCH_S = 0.03


@dataclass(frozen=True)
class Timed:
    """What a bench runs on its operands."""

    bind: Bind
    exact_error: Callable[[], str]  # what is wrong on small problems with guard cells, or ""
    built: instrument.Built
    notes: tuple[str, ...] = ()
    sums: str = ""  # the data type that sums are kept in, if it is not C's
    without: tuple[str, ...] = ()  # "alpha", "beta": what the kernel does not take
    terms: Terms = PLAIN  # of the kernel, for sentences about C


class Rotation:
    """The state of operand sets, for all benches that share them."""

    def __init__(self, sets: int) -> None:
        self._sets, self._next = sets, 0
        self.on_device = False  # whether the device has the current operands of every set
        self.are_shared = False  # whether several benches use the sets
        self.last: tuple[int, str, object] | None = None  # set, clock, bench; None if its C was filled since
        self.written = ""  # what launches wrote where nothing may be written, in a sentence

    def index(self, after: int = 0) -> int:
        return (self._next + after) % self._sets

    def skip_to(self, step: int) -> None:
        self._next = ceil_div(self._next % self._sets, step) * step % self._sets

    def took(self, count: int, clock: str, by: object) -> None:
        self.last = self.index(count - 1), clock, by
        self._next += count


@dataclass
class QueuedBatch:
    """A batch in the queue: a `measure.instrument.Running`."""

    bench: GemmBench
    events: Sequence[tuple[str, Any]]  # roles and events of all launches with one
    count: int  # problems
    begin: float
    check_last: Callable[[], None] | None = None  # checks the last problem's C
    silent: int = 0  # problems without events, which follow the first
    wait: Any = None  # the event of the kernel that kept the device busy
    enqueued: float = field(default_factory=time.perf_counter)

    def done(self) -> bool:
        with errors():
            status = self.events[-1][1].command_execution_status
        return int(status) <= int(cl.command_execution_status.COMPLETE)

    def finish(self) -> Batch:
        """Wait for the batch; read its events (on a GPU also the chain) and the wall clock."""
        with errors():
            self.events[-1][1].wait()
            end = time.perf_counter()
            # NVIDIA's stamps are Unix time in ns, which as double seconds have steps of 238 ns.
            origin = self.bench.runtime.origin_ns
            stamps = [(r, e.profile.start - origin, e.profile.end - origin) for r, e in self.events]
        steps = len(stamps) // (self.count - self.silent)
        # Not timed of several: the first, which wakes a CPU's threads, and the last, on an erased C.
        is_cpu, is_long = self.bench.runtime.facts.type == "cpu", self.count > _FEW
        first, last = bool(self.silent) or (is_cpu and is_long), bool(self.check_last) and is_long
        timed = stamps[first * steps : len(stamps) - last * steps]
        count, span = len(timed) // steps, (stamps[0][1] * 1e-9, stamps[-1][2] * 1e-9)
        passes = [sum(stop - start for _, start, stop in timed[step::steps]) * 1e-9 for step in range(steps)]
        self.bench.timed.append([seconds / count for seconds in passes])
        device = sum(passes)
        if self.check_last:
            self.check_last()
        roles = (role for role, *_ in stamps)
        kernel = sum(s for s, role in zip(passes, roles, strict=False) if role == "multiply")
        tick = self.bench.runtime.facts.timer_resolution_ns * 1e-9
        seconds = {"kernel": max(kernel, tick) / count, "device": max(device, tick) / count}
        alone = self.count - bool(self.check_last) or 1  # before C was erased
        if self.bench.runtime.facts.type == "gpu":
            chain_end = stamps[(alone - self.silent) * steps - 1][2] * 1e-9
            chain = seconds[CHAIN] = max(chain_end - span[0], tick) / alone
            if self.silent:  # which the time stamps of the others do not lengthen
                seconds |= {"kernel": min(seconds["kernel"], chain), "device": chain}
        launch_s = max(self.enqueued - self.begin, self.count * steps * self.bench.runtime.launch_s)
        if self.wait:
            launch_s += (self.wait.profile.end - self.wait.profile.start) * 1e-9
        if alone < self.count:  # the device erased C, which has no event
            launch_s += (stamps[-steps][1] - stamps[-steps - 1][2]) * 1e-9
        # If C was erased before the only START, the cost of launches is not known.
        known_s = None if self.check_last and self.count == 1 else launch_s
        return Batch(seconds, self.begin, end, self.count, device=span, launch_s=known_s)


class GemmBench:
    """One problem on the device, ready to run repeatedly: a `measure.instrument.Bench`."""

    stamped = True  # whether every launch has an event with its time

    def __init__(
        self, runtime: Runtime, variant: Variant, case: Case, mode: str, policy: Policy, timed: Timed
    ) -> None:
        problem = case.gemm
        self.runtime, self._problem, self._policy = runtime, problem, policy
        self._values = load_operands(case, policy.seed)
        self.sets = operand_sets(problem, runtime.facts, policy)
        self._operands: list[tuple[Operand, Operand, Operand]] = []
        self._buffers: list[tuple[Mapping[str, Any], Mapping[str, Any]]] = []  # of the device and host scope
        self._stored = self._values.stored(problem)
        matrices = {"A": self._stored.a, "B": self._stored.b, "C": self._stored.c}
        as_image = {
            spec.source: name
            for name, spec in variant.launches.images.items()
            if not (problem.trans_a if spec.source == "A" else problem.trans_b)
        }  # what is stored transposed goes into an image by a pass
        tight = {"A": self._values.a, "B": self._values.b}  # an image has nothing between its rows
        shapes = {name: (tight if name in as_image else matrices)[name].shape for name in matrices}
        for _ in range(self.sets):
            operands = {
                name: self._allocate(mode, shapes[name], each.dtype, name in as_image, _GUARDS[name])
                for name, each in matrices.items()
            }
            self._operands.append((operands["A"], operands["B"], operands["C"]))
            # The plain problem has B in a buffer, from which a pass fills the image; from host memory B goes
            # into the image at once.
            plain = {name: operands[name].buffer for name in matrices if name not in as_image}
            plain |= {name: runtime.filled(matrices[name]) for name in as_image}
            direct = plain | {image: operands[name].buffer for name, image in as_image.items()}
            self._buffers.append((plain, direct if as_image else plain))
        self._rotation = Rotation(self.sets)
        self._memory, self._cycles = mode, mode == policy.memory and mode in MAPPED
        self._device_s = 0.0  # of the last verified problem
        self._bind_launches(timed, case)
        self._images = tuple(as_image)
        with errors():
            self._fill_operands()

    def _allocate(self, mode: str, shape: Shape, dtype: np.dtype[Any], image: bool, behind: int) -> Operand:
        return operand(self.runtime, mode, shape, dtype, image, behind)

    def _fill_operands(self) -> None:
        queue, unwritten = self.runtime.queue, self._answers.before
        for index, (_, _, c) in enumerate(self._operands):
            self.put(self._stored, index)
            c.fill(unwritten)
            c.keep_on_device(queue)
            if c.behind:
                cl.enqueue_fill_buffer(queue, c.buffer, _GUARD, self._stored.c.nbytes, c.behind)
        queue.finish()
        self._rotation.last, self._rotation.written = None, ""

    def _bind_launches(self, timed: Timed, case: Case) -> None:
        """Bind the case's launches to all operand sets, for device and host scope."""
        layout = Layout.of(self._problem)
        self._timed = timed
        self._answers = Answers(case, self._values, timed.sums, timed.without, timed.terms)
        self._stamped: tuple[Launch, ...] = ()
        self._comparer: ResultComparer | None = None
        self._batches, self._wrong = 0, Check()  # batches that began; what was seen in one
        self._own: Check | None = Check()  # of the case's own operands, if not by `Answers`; None until then
        self._lefts: Iterator[Any] = iter(())  # buffers for C as batches leave it, which alternate
        # By batch of the device scope: each launch's seconds of a problem. Control bursts run for hours.
        self.timed: deque[list[float]] = deque(maxlen=1000)
        self._prepared: list[Sequence[Step]] = []
        self._hosted: list[Sequence[Step]] = []
        for plain, direct in self._buffers:
            self._prepared.append(timed.bind(self._problem, layout, plain))
            same = direct is plain
            self._hosted.append(self._prepared[-1] if same else timed.bind(self._problem, layout, direct))

    def sharing(self, timed: Timed, case: Case) -> GemmBench:
        other, self._rotation.are_shared = copy(self), True
        other._bind_launches(timed, case)
        return other

    @property
    def prepared(self) -> instrument.Prepared:
        return instrument.Prepared(
            self.scopes,
            self._ahead,
            self._timed.built,
            self._memory,
            self.sets,
            self._timed.notes,
            parts=True,
            cycle=self._cycles,
        )

    @property
    def _ahead(self) -> tuple[str, ...]:
        """The clocks whose batches are enqueued ahead: on a CPU the parent would disturb them."""
        return () if self.runtime.facts.type == "cpu" else ("device",)

    def release(self) -> None:
        """Forget the last batch, which refers to this bench and so to its buffers."""
        if self._rotation.last and self._rotation.last[2] is self:
            self._rotation.last = None

    def verify(self, when: instrument.When) -> instrument.Verified:
        """Check the results, and that A, B and the guards behind C are unchanged.

        ``exact`` runs the small exact problems instead. A forbidden write refills the operands. After the
        batches it raises `NotMeasuredError` if several benches share them.
        """
        if when == "exact":
            wrong = self._timed.exact_error()
            return instrument.Verified(Check("wrong", {}, (wrong,)) if wrong else Check("ok"))
        with errors():
            written = self._rotation.written or next(self._forbidden_writes(), "") if when == "after" else ""
            seen, self._wrong = self._wrong, Check()
            if seen.verdict == "wrong" and not written:
                return instrument.Verified(seen)
            if not written:
                verified = self._answers.verified(self, when)
                if when == "after":
                    verified = replace(verified, check=merge_checks([self._checked_own(), verified.check]))
                elif verified.check.verdict == "ok":
                    written = next(self._forbidden_writes(), "")
                    if self.is_long:
                        self._own = None
                    else:
                        self._begin_comparing()
            if written:
                self._fill_operands()
                if when == "after" and self._rotation.are_shared:
                    raise NotMeasuredError("failed", f"{written}, by it or by the kernel interleaved with it")
                return instrument.Verified(Check("wrong", {}, (written,)))
        medians = map(statistics.median, zip(*self.timed, strict=True))
        timed = (replace(launch, timed_s=s) for launch, s in zip(self._stamped, medians, strict=True))
        return replace(verified, launches=tuple(timed) if self.timed else self._stamped)

    def start(self, clock: str, count: int, work: int = 1) -> Batch | Running:
        with errors():
            if self._own is None and (clock, count) == ("host", 1):
                batch = host_batch(self._first_host_run, clock, 1)
                self._check_own(self._read(0))
                return batch
            self._checked_own()
            if clock == "device":
                return self._device_batch(count)
            if self._rotation.on_device:
                self._rotation.written = self._rotation.written or next(self._forbidden_writes(), "")
            looks = iter([*[False] * (count - 1), self._checks_next(count)])
            return host_batch(lambda: self._next_host_run(clock, next(looks)), clock, count)

    @property
    def is_long(self) -> bool:
        is_alone = self.sets == len(self.distinct) == 1 and not self._rotation.are_shared
        return is_alone and _VERIFIED_BATCH_S <= self._device_s < instrument.LONGEST_S

    @property
    def erases(self) -> bool:
        return self.is_long and self._comparer is not None

    def _checked_own(self) -> Check:
        return self._own or self._check_own(self.answer(self.distinct[0], 0, self._answers.before))

    def _check_own(self, result: HostArray) -> Check:
        self._own = self._answers.check_own(result)
        if self._own.verdict == "wrong":
            self._wrong = self._own
        else:
            self._begin_comparing()
        return self._own

    def _begin_comparing(self) -> None:
        has_room = self._stored.c.nbytes <= self.runtime.facts.global_mem_bytes // _ROOM
        if has_room and "svm" not in self._memory:
            self._compared_with()

    def _compared_with(self) -> ResultComparer:
        if self._comparer is None:
            verified, is_read = self._answers.verified_result, self._problem.beta != 0
            self._comparer = ResultComparer(self.runtime, self.runtime.filled(verified), verified.nbytes)
            self._erased = self.runtime.filled(self._stored.c if is_read else self._answers.erased_result)
            self._lefts = cycle([self.runtime.buffer(verified.nbytes) for _ in 2 * self._ahead])
        return self._comparer

    def _checks_next(self, count: int) -> bool:
        """Count a batch; whether to check its last problem."""
        self._batches += 1
        return self._comparer is not None and (count > 1 or self.is_long or self._batches % 2 == 0)

    def _check_last(self, differs: Callable[[], bool], c: Any) -> None:
        if differs():
            left = np.empty_like(self._stored.c)
            cl.enqueue_copy(self.runtime.queue, left, c)
            self._verify_batch_result(left)

    def _verify_batch_result(self, left: HostArray) -> None:
        if self._wrong.verdict != "wrong" and not same_bits(left, self._answers.verified_result):
            self._wrong = self._answers.check_repeated(left, "in a batch: ")
            self._comparer = None  # wrong, or summed in another order each time

    def _enqueue_compared(self) -> tuple[list[Any], Callable[[], bool]]:
        """Enqueue a problem on an erased C, and the comparison with the verified C."""
        queue, comparer, index = self.runtime.queue, self._compared_with(), self._rotation.index()
        c = self._buffers[index][0]["C"]
        cl.enqueue_copy(queue, c, self._erased, byte_count=self._stored.c.nbytes)
        self._erase_temporaries(index)
        events = [step.enqueue(queue) for step in self._prepared[index]]
        self._rotation.took(1, "device", self)
        return events, comparer.compare(c)

    def _forbidden_writes(self) -> Iterator[str]:
        """Yield a sentence for each write behind C, or into A or B."""
        queue, self._rotation.on_device = self.runtime.queue, False
        for (a, b, c), (plain, _) in zip(self._operands, self._buffers, strict=True):
            behind = np.full(c.behind, _GUARD)
            c.keep_on_device(queue)
            if c.behind:
                cl.enqueue_copy(queue, behind, c.buffer, src_offset=self._stored.c.nbytes)
            if (behind != _GUARD).any():
                yield "cells behind C were written"
            for name, matrix, values in (("A", a, self._stored.a), ("B", b, self._stored.b)):
                if name not in self._images:
                    matrix.keep_on_device(queue)
                    matrix.to_host(queue)
                    held = matrix.read()
                elif (held := np.empty_like(values)).size:  # its pass reads the plain buffer
                    cl.enqueue_copy(queue, held, plain[name])
                if not same_bits(held, values):
                    yield f"{name} was written"

    def _erase_temporaries(self, index: int) -> None:
        """Fill what kernels hold between passes with NaN."""
        held = {
            id(buffer): buffer
            for step in (*self._prepared[index], *self._hosted[index])
            for name, buffer in getattr(step, "held", {}).items()
            if name not in self._buffers[index][0] and isinstance(buffer, cl.Buffer)
        }
        for buffer in held.values():
            pattern = np.uint32(0xFFFFFFFF) if buffer.size % 4 == 0 else np.uint8(0xFF)
            self.runtime.fill(buffer, pattern, buffer.size)

    def _device_batch(self, count: int) -> Batch | Running:
        """Enqueue `count` problems back to back; on a CPU also wait. The last may be checked.

        On NVIDIA GPUs only the first and the last few have events. A kernel keeps the GPU busy until short
        problems are queued. A CPU starts when all launches are enqueued.
        """
        plan, looks = self._on_device(), self._checks_next(count)
        assert self.runtime.launch_s  # measured before the batch, not in it
        begin, look = time.perf_counter(), None
        is_silent = self.runtime.silent and all(isinstance(step, PreparedLaunch) for step in plan[0])
        silent = range(1, count - looks - _STAMPED if is_silent else 1)
        is_short = is_silent and count > 1 and self._device_s < _SHORT_S
        wait = self.runtime.wait(count * len(plan[0]) * self.runtime.launch_s) if is_short else None
        with self.runtime.held():
            events = self._enqueue(plan, count - looks, silent)
            if looks:
                index = self._rotation.index()
                (last, differs), left = self._enqueue_compared(), self._buffers[index][0]["C"]
                events += zip((step.role for step in plan[index]), last, strict=True)
                if self._ahead:  # another batch may come before it is checked
                    c, left = left, next(self._lefts)
                    cl.enqueue_copy(self.runtime.queue, left, c, byte_count=self._stored.c.nbytes)
                look = partial(self._check_last, differs, left)
        queued = QueuedBatch(self, events, count, begin, look, len(silent), wait)
        if not self._ahead:
            return queued.finish()
        self.runtime.queue.flush()
        return queued

    scopes = ("device", "host")

    @property
    def distinct(self) -> tuple[str, ...]:
        """Both scopes if the host fills an image without a pass."""
        return ("device", "host") if self._images else ("device",)

    def put(self, values: Matrices, index: int = 0) -> None:
        a, b, _ = self._operands[index]
        a.fill(values.a)
        b.fill(values.b)
        plain, _ = self._buffers[index]
        for name in self._images:  # its pass reads the plain buffer
            matrix = {"A": values.a, "B": values.b}[name]
            if matrix.size:
                cl.enqueue_copy(self.runtime.queue, plain[name], np.ascontiguousarray(matrix))
        self._rotation.on_device = False

    def answer(self, scope: str, index: int, c: HostArray, problem: Gemm | None = None) -> HostArray:
        queue, self._rotation.last = self.runtime.queue, None
        matrix = self._operands[index][2]
        matrix.fill(c)
        matrix.keep_on_device(queue)
        self._erase_temporaries(index)
        queue.finish()
        if scope == "device":
            launched = self._with_scalars(problem, self._on_device()[index], self._buffers[index][0])
            begin = time.perf_counter()
            events = [(launch.name, launch.enqueue(queue)) for launch in launched]
            queue.finish()
            self._device_s = time.perf_counter() - begin
            stamped = events if self.stamped else ()
            self._stamped = tuple(Launch(name, *_durations(event)) for name, event in stamped if event)
            matrix.to_host(queue)
            self._rotation.on_device = False
        else:
            launches = self._with_scalars(problem, self._hosted[index], self._buffers[index][1])
            self._seconds = self._host_run(index, scope, launches)
        return self._read(index)

    def _with_scalars(
        self, problem: Gemm | None, launches: Sequence[Step], buffers: Mapping[str, Any]
    ) -> Sequence[Step]:
        """The launches of a problem that differs from the bench's in alpha and beta."""
        if problem is None:
            return launches
        held = {
            name: buffer
            for step in launches
            for name, buffer in getattr(step, "held", {}).items()
            if isinstance(buffer, cl.Buffer)  # an image is filled by a pass, unless it is given
        }
        return self._timed.bind(problem, Layout.of(self._problem), {**held, **buffers})

    def left(self) -> HostArray | None:
        """C as the last batch left it; None if this cannot be verified."""
        if self._rotation.last is None or self._rotation.last[2] is not self:
            return None
        index, clock, _ = self._rotation.last
        if clock == "device":
            if self._problem.beta != 0:
                return None
            self._operands[index][2].to_host(self.runtime.queue)
            self._rotation.on_device = False
        return self._read(index)

    def _read(self, index: int) -> HostArray:
        return self._operands[index][2].read().reshape(self._stored.c.shape)

    def _enqueue(self, plan: Sequence[Sequence[Step]], count: int, silent: range) -> list[tuple[str, Any]]:
        """Enqueue problems; roles and events of their launches, those in `silent` without events."""
        events: list[tuple[str, Any]] = []
        for number in range(count):
            for step in plan[self._rotation.index(number)]:
                if number in silent and isinstance(step, PreparedLaunch):
                    self.runtime.enqueue_silently(step.kernel, step.items, step.group)
                else:
                    events.append((step.role, step.enqueue(self.runtime.queue)))
        self._rotation.took(count, "device", self)
        return events

    def _next_host_run(self, clock: str, looks: bool) -> dict[str, float]:
        """Run a problem with transfers; wall seconds by part. `looks` erases and checks C."""
        index = self._rotation.index()
        if looks:
            self._verify_batch_result(self.answer(clock, index, self._answers.before))
        else:
            if self._problem.beta != 0:  # the problem reads C
                c = self._operands[index][2]
                c.reclaim(self.runtime.plain_queue)
                c.fill(self._stored.c)
            self._seconds = self._host_run(index, clock, self._hosted[index])
        self._rotation.took(1, clock, self)
        return self._seconds

    def _first_host_run(self) -> dict[str, float]:
        self.answer("host", 0, self._answers.before)
        self._batches += 1
        self._rotation.took(1, "host", self)
        return self._seconds

    def _on_device(self) -> Sequence[Sequence[Step]]:
        """Put all operands on the device, if they are not there; the launches by operand set."""
        if not self._rotation.on_device:
            for matrices in self._operands:
                for matrix in matrices:
                    matrix.keep_on_device(self.runtime.queue)
            self.runtime.queue.finish()
            self._rotation.on_device = True
        return self._prepared

    def _host_run(self, index: int, clock: str, launches: Sequence[Step]) -> dict[str, float]:
        """Run one problem, or a whole map cycle, from and to host memory: wall seconds by part."""
        a, b, c = operands = self._operands[index]
        self._rotation.on_device = False
        is_long = self._device_s >= LONG_S and not self._images  # an upload that fills images saves a pass
        split, cycle = clock in SPLIT or is_long, clock == CYCLE
        queue = self.runtime.queue if split else self.runtime.plain_queue
        for matrix in operands:
            matrix.hand_over(queue) if cycle else matrix.reclaim(queue)
        queue.finish()
        if not split:  # nothing else in its time: small problems take microseconds
            begin = time.perf_counter()
            # Held: to let go of an event may take longer than it does.
            held = [a.to_device(queue), b.to_device(queue)]
            held.append(c.to_device(queue) if self._problem.beta != 0 else c.hand_over(queue))
            held += [launch.enqueue(queue) for launch in launches]
            c.to_host(queue)
            return {WHOLE: time.perf_counter() - begin}
        laps = Laps(queue.finish)
        if cycle:
            for matrix in operands:
                matrix.to_host(queue, discard=matrix is not c or self._problem.beta != 0)
            laps.lap("map")
            for matrix, values in ((a, self._stored.a), (b, self._stored.b)):
                matrix.fill(values)
            if self._problem.beta != 0:
                c.fill(self._stored.c)
            laps.lap("fill")
        events = [("upload", a.to_device(queue)), ("upload", b.to_device(queue))]
        events.append(("upload", c.to_device(queue) if self._problem.beta != 0 else c.hand_over(queue)))
        laps.lap("upload", wait=not self.stamped)
        events += [(launch.role, launch.enqueue(queue)) for launch in launches]
        laps.launched(partial(_device_seconds, events) if self.stamped else None)
        for matrix in operands if cycle else (c,):
            matrix.to_host(queue)
        return laps.end()


class WallBench(GemmBench):
    """A bench for steps whose events have no times."""

    _ahead: tuple[str, ...] = ()
    stamped = erases = False

    def _device_batch(self, count: int) -> Batch | Running:
        """Run `count` problems; if the last is checked, it is not timed."""
        plan, looks = self._on_device(), count > 1 and self._checks_next(count)
        count -= looks
        self.runtime.queue.finish()
        begin = time.perf_counter()
        self._enqueue(plan, count, range(0))
        self.runtime.queue.finish()
        end = time.perf_counter()
        if looks:
            c = self._buffers[self._rotation.index()][0]["C"]
            self._check_last(self._enqueue_compared()[1], c)
        return Batch({"device": (end - begin) / count}, begin, end, count)


def _device_seconds(events: Iterable[tuple[str, Any]]) -> dict[str, float]:
    """Device seconds of upload, passes and kernel; uploads without stamps count as 0."""
    seconds = {"upload": 0.0, "passes": 0.0, "kernel": 0.0}
    for role, event in events:
        part = {"upload": "upload", "multiply": "kernel"}.get(role, "passes")
        try:
            seconds[part] += _durations(event)[2] if event else 0.0
        except cl.Error:
            if part != "upload":
                raise
    return seconds


def _durations(event: Any) -> tuple[float, float, float]:
    """Queued, submitted and running seconds of an event, at least 0."""
    profile = event.profile
    stamps = (profile.queued, profile.submit, profile.start, profile.end)
    queued, submitted, running = (max(0, b - a) * 1e-9 for a, b in pairwise(stamps))
    return queued, submitted, running


_COMPARE = "check/compare.cl"
_GROUPS_PER_CORE = 8
_GROUP = 256  # on a GPU
_WORDS = {4: "uint", 2: "ushort", 1: "uchar"}


class ResultComparer:
    """Compares buffers of one size with a reference, on the device."""

    def __init__(self, runtime: Runtime, reference: Any, nbytes: int) -> None:
        self._queue, self._reference = runtime.queue, reference
        width = next(width for width in _WORDS if nbytes % width == 0)
        self._words = np.uint32(nbytes // width)
        self._group = 1 if runtime.facts.type == "cpu" else min(_GROUP, runtime.facts.max_work_group_size)
        built = runtime.build(_COMPARE, (f"-DWORD={_WORDS[width]}",))
        self._kernel = runtime.kernel(built, "compare", (self._group,))
        self._items = max(1, runtime.facts.compute_units) * _GROUPS_PER_CORE * self._group
        # Two: while one comparison is read, the next is in the queue.
        count = np.dtype(np.uint32)
        self._counts = cycle([(runtime.buffer(4), runtime.pinned((1,), count)) for _ in range(2)])

    def compare(self, result: Any) -> Callable[[], bool]:
        """Enqueue a comparison. The returned function waits: whether any bit differs."""
        on_device, on_host = next(self._counts)
        cl.enqueue_fill_buffer(self._queue, on_device, np.uint32(0), 0, on_device.size)
        self._kernel.set_args(result, self._reference, on_device, self._words)
        cl.enqueue_nd_range_kernel(self._queue, self._kernel, (self._items,), (self._group,))
        read = cl.enqueue_copy(self._queue, on_host, on_device, is_blocking=False)

        def differs() -> bool:
            with errors():
                read.wait()
            return bool(on_host[0])

        return differs
