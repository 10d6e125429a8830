"""The average clock of a batch by a GPU's own counters: cycles over nanoseconds of every multiprocessor.

A tiny kernel before the batch and one after it note both counters (``kernels/check/clock.cl``). Neither is in
a timed launch. NVIDIA's GPUs have such counters.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import cycle
from typing import TYPE_CHECKING, Any

import numpy as np
import pyopencl as cl

from gemmbench.model.dtypes import ReferenceArray

if TYPE_CHECKING:
    from gemmbench.opencl.runtime import Runtime

GROUPS_PER_UNIT = 2  # so that every unit has one, however they are dealt
FIELDS = 3  # of a stamp: unit, cycles, nanoseconds
LAUNCHES = 2  # of a span
_FILE = "check/clock.cl"
IN_FLIGHT = 3  # batches: while one is read, the next runs, and another is put behind it
_WORD = np.dtype(np.uint64)


def average_mhz(before: ReferenceArray, after: ReferenceArray) -> float | None:
    """The average clock between two looks, over the units that are in both; None where no unit's time passed.

    Args:
        before: a row for each group, of unit, cycles and nanoseconds.
        after: the same, later.
    """
    first = {int(unit): (int(cycles), int(ns)) for unit, cycles, ns in before[::-1]}
    clocks = []
    for unit, cycles, ns in after:
        past_cycles, past_ns = first.pop(int(unit), (0, int(ns)))
        if int(ns) > past_ns and int(cycles) > past_cycles:
            clocks.append(1e3 * (int(cycles) - past_cycles) / (int(ns) - past_ns))
    return round(float(np.mean(clocks)), 1) if clocks else None


class Counters:
    """The counters of a device.

    `root` is another kernels folder than gemmbench's own.

    Raises:
        NotMeasuredError: the driver does not take the kernel.
    """

    def __init__(self, runtime: Runtime, root: str = "") -> None:
        self._queue, self._groups = runtime.queue, GROUPS_PER_UNIT * max(1, runtime.facts.compute_units)
        self._kernel = runtime.kernel(runtime.build(_FILE, (), root), "stamps", (1,))
        size = LAUNCHES * self._groups * FIELDS
        flags, both = cl.mem_flags, cl.map_flags.READ | cl.map_flags.WRITE
        self._slots = cycle(
            [
                (
                    runtime.buffer(size * _WORD.itemsize),
                    cl.enqueue_map_buffer(
                        runtime.queue,
                        runtime.buffer(size * _WORD.itemsize, flags.READ_WRITE | flags.ALLOC_HOST_PTR),
                        both,
                        0,
                        (LAUNCHES, self._groups, FIELDS),
                        _WORD,
                        is_blocking=True,
                    )[0],
                )
                for _ in range(IN_FLIGHT)
            ]
        )
        trial = self.begin()  # a driver that does not take it says so here, and costs no row
        trial.end()
        trial.mhz()

    def begin(self) -> Span:
        """Note them when the device gets there; a batch is put behind it."""
        buffer, host = next(self._slots)
        self._note(buffer, 0)
        return Span(self, buffer, host)

    def end(self, span: Span) -> None:
        """Note them again."""
        self._note(span.buffer, self._groups)
        span.read = cl.enqueue_copy(self._queue, span.host, span.buffer, is_blocking=False)

    def _note(self, buffer: Any, start: int) -> None:
        self._kernel.set_args(buffer, np.uint32(start))
        cl.enqueue_nd_range_kernel(self._queue, self._kernel, (self._groups,), (1,))


@dataclass
class Span:
    """From one look at the counters to the next."""

    counters: Counters
    buffer: Any
    host: ReferenceArray
    read: Any = None  # the event of reading both

    def end(self) -> None:
        """See `Counters.end`."""
        self.counters.end(self)

    def mhz(self) -> float | None:
        """Wait for both, and the average clock between them."""
        self.read.wait()
        return average_mhz(*self.host)
