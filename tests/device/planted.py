"""A machine on which a bit of a result flips in the middle of a long run: see tools/bench/planted_bit.py."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Any

import numpy as np

from gemmbench.measure.machine import OpenCLMachine, default
from gemmbench.model.case import Case
from gemmbench.model.device import DeviceFacts

RESULT = "GEMMBENCH_PLANTED_RESULT"  # which is wrong, counted over the checked results


@dataclass
class _Flipping:
    """The last launch of a problem: behind it, once, a bit of C is flipped."""

    step: Any
    buffer: Any
    word: Any
    byte: int
    left: int

    @property
    def role(self) -> str:
        return str(self.step.role)

    @property
    def name(self) -> str:
        return str(self.step.name)

    def enqueue(self, queue: Any) -> Any:
        import pyopencl as cl

        event = self.step.enqueue(queue)
        self.left -= 1
        if self.left == -1:
            cl.enqueue_copy(queue, self.buffer, self.word, dst_offset=self.byte, is_blocking=True)
        return event


def plant(bench: Any, number: int, element: int, bit: int) -> None:
    """Flip a bit of an element of C once so many problems have run from now on."""
    flat = bench._answers.verified_result.reshape(-1)
    word = flat[element : element + 1].copy()
    word.view(np.uint8)[bit // 8] ^= np.uint8(1 << bit % 8)
    steps = list(bench._prepared[0])
    buffer = bench._buffers[0][0]["C"]
    steps[-1] = _Flipping(steps[-1], buffer, word, element * word.itemsize, number)
    bench._prepared[0] = steps


class PlantedMachine:
    """The real one, but that it plants a bit when the results of a GEMM are compared for the first time."""

    def __init__(self, real: OpenCLMachine, number: int) -> None:
        self._real, self._number = real, number
        self.devices, self.host = real.devices, real.host

    def executor(self, case: Case, device: DeviceFacts | None) -> Any:
        executor = self._real.executor(case, device)
        if case.kind == "gemm" and not hasattr(executor, "plants"):
            executor.plants, prepare = True, executor.prepare

            def planting(*arguments: Any, **more: Any) -> Any:
                bench = prepare(*arguments, **more)
                batch = bench._checked_batch

                def first(count: int) -> Any:
                    bench._checked_batch = batch
                    plant(bench, self._number, element=1234, bit=9)
                    return batch(count)

                bench._checked_batch = first
                return bench

            executor.prepare = planting
        return executor


def make() -> PlantedMachine:
    return PlantedMachine(default(), int(os.environ[RESULT]))
