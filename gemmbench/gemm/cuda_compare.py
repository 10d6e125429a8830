"""Batches of a CUDA library of which every result is compared with the first, on the GPU: see `CHECKED`.

The comparison is a kernel in PTX (``kernels/check/compare.ptx``), which the driver assembles. Events stand
around each problem, so that the comparisons are not in its time.
"""

from __future__ import annotations

import ctypes
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from gemmbench.model import kernel_files
from gemmbench.model.dtypes import ReferenceArray
from gemmbench.model.instrument import Batch, WrongResult

if TYPE_CHECKING:
    from gemmbench.gemm.cublas import Cuda, Stopwatch

_FILE = "check/compare.ptx"
_MOST = 1000  # problems of a batch
_COUNTERS = 3  # of each problem: words, bits, first
_NONE = (1 << 32) - 1
_WORD = 4  # bytes
_BLOCK, _BLOCKS = 256, 1056  # eight for each of 132 multiprocessors
_SHORTEST_S = 5e-7


@dataclass
class _Slot:
    """What a batch in flight needs of its own."""

    device: int  # address of its counters
    host: ReferenceArray  # pinned
    watches: Sequence[Stopwatch]


class CudaComparer:
    """Compares results with a reference on the GPU.

    Args:
        cuda: of the GPU.
        first: what results are compared with; its bytes are a multiple of four.
        erased: what they hold before each problem: other bits, wherever it writes.
        stack: gives the memory back.

    Raises:
        NotMeasuredError: the driver does not take the comparison.
    """

    def __init__(self, cuda: Cuda, first: ReferenceArray, erased: ReferenceArray, stack: ExitStack) -> None:
        self._cuda, self._words = cuda, first.nbytes // _WORD
        self._first = stack.enter_context(cuda.memory(first.nbytes))
        cuda.to_device(self._first, np.ascontiguousarray(first))
        self._erased = stack.enter_context(cuda.memory(erased.nbytes))
        cuda.to_device(self._erased, np.ascontiguousarray(erased))
        self._function = cuda.function(kernel_files.raw(_FILE), "compare")
        self._clear = stack.enter_context(cuda.pinned((_MOST, _COUNTERS), np.dtype(np.uint32)))
        self._clear[...] = 0, 0, _NONE
        watches = cuda.watches(2 * _MOST)
        # Two: while one batch is read, the next is in the stream.
        self._slots = [
            _Slot(
                stack.enter_context(cuda.memory(self._clear.nbytes)),
                stack.enter_context(cuda.pinned(self._clear.shape, self._clear.dtype)),
                watches[half * _MOST :][:_MOST],
            )
            for half in range(2)
        ]
        cuda.finish()

    def batch(
        self, count: int, result: Callable[[int], int], launch: Callable[[int], object]
    ) -> CheckedBatch:
        """Put problems into the stream, before each its result erased, and behind it compared.

        Args:
            count: of problems, `_MOST` at most.
            result: the address of the result of a problem, by its number.
            launch: enqueues that problem.
        """
        cuda = self._cuda
        self._slots.reverse()
        slot = self._slots[0]
        cuda.to_device(slot.device, self._clear[:count])
        begin = time.monotonic()
        whole = cuda.start()
        for number, watch in enumerate(slot.watches[:count]):
            cuda.copy(result(number), self._erased, self._words * _WORD)
            with cuda.timed(watch):
                launch(number)
            counters = slot.device + number * _COUNTERS * self._clear.itemsize
            cuda.launch(self._function, _BLOCKS, _BLOCK, result(number), self._first, counters, self._words)
        cuda.fetch(slot.host[:count], slot.device)
        cuda.stop(whole)
        return CheckedBatch(cuda, slot, whole, count, begin)


@dataclass(frozen=True)
class CheckedBatch:
    """A batch in the stream: a `measure.instrument.Running`."""

    cuda: Cuda
    slot: _Slot
    whole: Stopwatch
    count: int
    begin: float

    def done(self) -> bool:
        return self.cuda.reached(self.whole)

    def finish(self) -> Batch:
        """Wait for it: seconds of a problem and of its comparison, and the results that differ."""
        whole_s = self.cuda.seconds(self.whole)
        end = time.monotonic()
        spent_s = sum(max(self.cuda.seconds(watch), _SHORTEST_S) for watch in self.slot.watches[: self.count])
        wrong = tuple(
            WrongResult(number, int(bits), int(words), int(first) * _WORD)
            for number, (words, bits, first) in enumerate(self.slot.host[: self.count])
            if words
        )
        check_s = max(0.0, whole_s - spent_s)
        seconds = {"device": spent_s / self.count, "check": check_s / self.count}
        return Batch(seconds, self.begin, end, self.count, wrong=wrong)


def arguments(*values: int) -> Any:
    """Kernel parameters of 64 bits each, as ``cuLaunchKernel`` takes them; they keep their values alive."""
    held = [ctypes.c_uint64(value) for value in values]
    pointers = (ctypes.c_void_p * len(held))(*(ctypes.addressof(each) for each in held))
    pointers.held = held  # type: ignore[attr-defined]  # as long as the array
    return pointers
