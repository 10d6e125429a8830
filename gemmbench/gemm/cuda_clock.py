"""The average clock of a CUDA library's batch by the GPU's own counters: see `opencl.clock`."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass
from itertools import cycle
from typing import TYPE_CHECKING

import numpy as np

from gemmbench.model import kernel_files
from gemmbench.model.device import DeviceFacts
from gemmbench.model.dtypes import ReferenceArray
from gemmbench.opencl.clock import FIELDS, GROUPS_PER_UNIT, IN_FLIGHT, LAUNCHES, average_mhz

if TYPE_CHECKING:
    from gemmbench.gemm.cublas import Cuda, Stopwatch

_FILE = "check/clock.ptx"


class CudaCounters:
    """The counters of a GPU.

    Args:
        cuda: of the GPU.
        facts: its number of units.
        stack: gives the memory back.

    Raises:
        NotMeasuredError: the driver does not take the kernel.
    """

    def __init__(self, cuda: Cuda, facts: DeviceFacts, stack: ExitStack) -> None:
        self._cuda, self._groups = cuda, GROUPS_PER_UNIT * max(1, facts.compute_units)
        self._function = cuda.function(kernel_files.raw(_FILE), "stamps")
        shape, word = (LAUNCHES, self._groups, FIELDS), np.dtype(np.uint64)
        size = LAUNCHES * self._groups * FIELDS * word.itemsize
        self._slots = cycle(
            [
                (stack.enter_context(cuda.memory(size)), stack.enter_context(cuda.pinned(shape, word)), watch)
                for watch in cuda.more_watches(IN_FLIGHT)
            ]
        )
        trial = self.begin()  # a driver that does not take it says so here, and costs no row
        trial.end()
        trial.mhz()

    def begin(self) -> CudaSpan:
        """Note them when the device gets there; a batch is put behind it."""
        span = CudaSpan(self, *next(self._slots))
        self.note(span.address, 0)
        return span

    def note(self, address: int, start: int) -> None:
        """Enqueue writing them, from a group's position on."""
        self._cuda.launch(self._function, self._groups, 1, address, start)

    def end(self, span: CudaSpan) -> None:
        """Note them again."""
        self.note(span.address, self._groups)
        with self._cuda.timed(span.watch):
            self._cuda.fetch(span.host, span.address)

    def wait(self, span: CudaSpan) -> None:
        """Until both are in the host's memory."""
        self._cuda.seconds(span.watch)


@dataclass(frozen=True)
class CudaSpan:
    """From one look at the counters to the next: see `opencl.clock.Span`."""

    counters: CudaCounters
    address: int
    host: ReferenceArray  # pinned
    watch: Stopwatch

    def end(self) -> None:
        """See `CudaCounters.end`."""
        self.counters.end(self)

    def mhz(self) -> float | None:
        """Wait for both, and the average clock between them."""
        self.counters.wait(self)
        return average_mhz(*self.host)
