"""A real machine on which some sizes go wrong: run in the child process by test_faults."""

from __future__ import annotations

import ctypes
import os
from pathlib import Path
from typing import Any

from gemmbench.measure.machine import OpenCLMachine, default
from gemmbench.model.case import Case
from gemmbench.model.device import DeviceFacts

ENDLESS, SEGFAULT, HUNGRY = 21, 22, 23  # sizes

_LOOP = """
__kernel void loop(__global volatile int *flag) { while (flag[0] == 0) ; }
"""


class FaultyMachine:
    """The real one, but for three sizes."""

    def __init__(self, real: OpenCLMachine) -> None:
        self._real = real
        self.devices, self.host = real.devices, real.host

    def executor(self, case: Case, device: DeviceFacts | None) -> Any:
        assert device is not None
        if case.problem and case.problem.m == ENDLESS:
            self._loop_for_ever(device)
        elif case.problem and case.problem.m == SEGFAULT:
            print("the driver's last words", flush=True)
            ctypes.string_at(0)  # reads address 0
        elif case.problem and case.problem.m == HUNGRY:
            self._ask_for_too_much(device)
        return self._real.executor(case, device)

    def _runtime(self, device: DeviceFacts) -> Any:
        from gemmbench.opencl.runtime import Runtime

        return Runtime(device)

    def _loop_for_ever(self, device: DeviceFacts) -> None:
        import pyopencl as cl

        runtime = self._runtime(device)
        program = cl.Program(runtime.context, _LOOP).build()
        flag = runtime.buffer(64)
        cl.enqueue_fill_buffer(runtime.queue, flag, b"\0\0\0\0", 0, 64)
        Path(os.environ["GEMMBENCH_FAKE_PID"]).write_text(str(os.getpid()))
        program.loop(runtime.queue, (1,), None, flag)
        runtime.queue.finish()

    def _ask_for_too_much(self, device: DeviceFacts) -> None:
        import pyopencl as cl

        runtime = self._runtime(device)
        buffer = runtime.buffer(device.max_alloc_bytes * 16)
        from gemmbench.opencl.runtime import errors

        with errors():
            cl.enqueue_fill_buffer(runtime.queue, buffer, b"\1", 0, 1)
            runtime.queue.finish()


def make() -> FaultyMachine:
    return FaultyMachine(default())
