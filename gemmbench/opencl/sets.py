"""Working sets on a device: buffers of the repeated table, and what kernels found or left there."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pyopencl as cl

from gemmbench.opencl.runtime import Runtime
from gemmbench.rules.memory_data import TABLE_ELEMENTS, RepeatedTable, sum_bits
from gemmbench.rules.reference import Array

_FILL = "memory/fill.cl"
_GROUPS_PER_UNIT = 8
_WORD = np.dtype(np.uint32)
_SLICES = 64
_SLICE_ELEMENTS = 4096


class Sets:
    """Makes buffers on one device and reads them back."""

    def __init__(self, runtime: Runtime, table: RepeatedTable) -> None:
        self._runtime, self.table = runtime, table

    def filled(self, elements: int, offset: int = 0) -> Any:
        """A buffer of floats that holds the table's sequence from an offset on."""
        facts = self._runtime.facts
        buffer = self._runtime.buffer(elements * _WORD.itemsize)
        flags = cl.mem_flags.READ_ONLY | cl.mem_flags.COPY_HOST_PTR
        source = cl.Buffer(self._runtime.context, flags, hostbuf=self.table.table)
        group = 1 if facts.type == "cpu" else min(256, facts.max_work_group_size)
        kernel = self._runtime.kernel(self._runtime.build(_FILL, ()), "fill", (group,))
        numbers = map(np.uint32, (TABLE_ELEMENTS, offset, elements))
        kernel.set_args(source, buffer, *numbers)
        items = max(1, facts.compute_units) * _GROUPS_PER_UNIT * group
        cl.enqueue_nd_range_kernel(self._runtime.queue, kernel, (items,), (group,))
        self._runtime.queue.finish()
        return buffer

    def blank(self, elements: int) -> Any:
        """A buffer of words that no probe writes."""
        buffer = self._runtime.buffer(elements * _WORD.itemsize)
        self.erase(buffer, elements)
        return buffer

    def erase(self, buffer: Any, elements: int) -> None:
        """Make it blank again."""
        size = elements * _WORD.itemsize
        cl.enqueue_fill_buffer(self._runtime.queue, buffer, b"\xff" * _WORD.itemsize, 0, size)
        self._runtime.queue.finish()

    def read(self, buffer: Any, first: int, count: int) -> Array:
        """Words of a buffer."""
        words = np.empty(count, _WORD)
        cl.enqueue_copy(self._runtime.queue, words, buffer, src_offset=first * _WORD.itemsize)
        return words

    def wrong_sum(self, sums: Any, items: int, expected: int) -> str:
        """How the sum over all work-items' sums differs from the host's, or ""."""
        got = sum_bits(self.read(sums, 0, items))
        if got == expected:
            return ""
        return f"the sum of all that was read is {got:#010x}, not {expected:#010x}"

    def wrong_group_sums(self, sums: Any, expected: Array, group: int) -> str:
        """How the work-groups' sums differ from the host's, or "".

        Args:
            sums: a word for each work-item.
            expected: a word for each group.
            group: work-items in a group.
        """
        items = expected.size * group
        got = self.read(sums, 0, items).reshape(-1, group).sum(axis=1, dtype=np.uint64).astype(_WORD)
        right = got == expected
        if right.all():
            return ""
        wrong, first = int((~right).sum()), int(np.argmin(right))
        return (
            f"{wrong} of {expected.size} groups' sums differ from the host's; "
            f"group {first} has {int(got[first]):#010x}, not {int(expected[first]):#010x}"
        )

    def wrong_words(self, buffer: Any, elements: int, expected: Callable[[int, int], Array]) -> str:
        """How what a kernel left differs from what the host expects, in evenly spread slices; or "".

        Args:
            buffer: words.
            elements: how many.
            expected: words from a position on.
        """
        length = min(elements, _SLICE_ELEMENTS)
        for first in np.unique(np.linspace(0, elements - length, _SLICES).astype(np.int64)):
            right = self.read(buffer, int(first), length) == expected(int(first), length).view(_WORD)
            if not right.all():
                place = int(first) + int(np.argmin(right))
                return f"word {place} of {elements} is not what the host expects"
        return ""
