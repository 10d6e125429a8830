"""What Python costs for each launch of a prepared kernel, without what the driver costs.

A prepared launch (``set_args`` once, then ``Prepared.enqueue``) is timed as gemmbench makes it. The
driver's share is timed by calling clEnqueueNDRangeKernel and clReleaseEvent through ctypes on the same queue
and kernel, less what ctypes itself costs: the same arguments handed to a C function that does nothing. What
Python costs is the first less the driver's share.

The three take turns, batch by batch. A user event holds the queue back while a batch is timed, so that no
kernel runs beside the launches and takes a lock or a core from them.

Exit status: 0 under the limit on every device, 1 over it, 2 no device.
"""

from __future__ import annotations

import argparse
import ctypes
import ctypes.util
import statistics
import sys
import time
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pyopencl as cl

from gemmbench.gemm.opencl_bench import PreparedLaunch
from gemmbench.model.device import DeviceFacts
from gemmbench.opencl import discovery, drivers
from gemmbench.suite.selection import select

LIMIT_S = 10e-6
BATCH = 200
ROUNDS = 60

SOURCE = "__kernel void one(__global float *a, int n) { a[0] = n; }"


def main() -> int:
    """Measure every selected device and print a line for each."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--device", default="all", help="as gemmbench --device")
    options = parser.parse_args()
    found = discovery.list_devices()
    if not found:
        print(drivers.no_device_message(()), file=sys.stderr)
        return 2
    print(
        f"{'microseconds for each launch (median)':<40}{'prepared':>10}{'driver':>8}{'Python':>8}{'limit':>7}"
    )
    over = False
    for facts in select(found, options.device):
        prepared, driver = measure(facts)
        python = prepared - driver
        over |= python >= LIMIT_S
        times = "".join(
            f"{value * 1e6:>{width}.2f}" for value, width in ((prepared, 10), (driver, 8), (python, 8))
        )
        print(f"{facts.title.split(' | ')[1][:39]:<40}{times}{LIMIT_S * 1e6:>7.0f}")
    return int(over)


def measure(facts: DeviceFacts) -> tuple[float, float]:
    """Seconds for one prepared launch, and the driver's share of them."""
    context = cl.Context([discovery.handle(facts)])
    queue = cl.CommandQueue(context, properties=cl.command_queue_properties.PROFILING_ENABLE)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        kernel = cl.Program(context, SOURCE).build().one
    target = cl.Buffer(context, cl.mem_flags.READ_WRITE, 64)
    kernel.set_args(target, np.int32(7))

    launch = PreparedLaunch("multiply", "one", kernel, (1,), (1,), {"a": target})

    def prepared() -> None:
        for _ in range(BATCH):
            launch.enqueue(queue)

    enqueue, release = loader_functions()
    nothing = do_nothing()
    one = (ctypes.c_size_t * 1)(1)
    event = ctypes.c_void_p()
    launch_args = (
        *(ctypes.c_void_p(handle) for handle in (queue.int_ptr, kernel.int_ptr)),
        *(ctypes.c_uint(1), None, one, one, ctypes.c_uint(0), None, ctypes.byref(event)),
    )

    def direct() -> None:
        for _ in range(BATCH):
            enqueue(*launch_args)
            release(event)

    def empty() -> None:
        for _ in range(BATCH):
            nothing(*launch_args)
            nothing(event)

    times: dict[Callable[[], None], list[float]] = {prepared: [], direct: [], empty: []}
    for _ in range(ROUNDS):
        for batch, taken in times.items():
            gate = cl.UserEvent(context)
            cl.enqueue_barrier(queue, wait_for=[gate])
            begin = time.perf_counter()
            batch()
            taken.append((time.perf_counter() - begin) / BATCH)
            gate.set_status(cl.command_execution_status.COMPLETE)
            queue.finish()
    if enqueue(*launch_args) != 0 or release(event) != 0:
        raise SystemExit("the direct call fails, so that its time means nothing")
    settled = {batch: statistics.median(taken[ROUNDS // 6 :]) for batch, taken in times.items()}
    return settled[prepared], settled[direct] - settled[empty]


def loader_functions() -> tuple[Any, Any]:
    """clEnqueueNDRangeKernel and clReleaseEvent of the loader that pyopencl uses."""
    from pyopencl import _cl

    library = ctypes.CDLL(_cl.__file__)  # its own dependencies are searched, too: the bundled loader
    functions = library.clEnqueueNDRangeKernel, library.clReleaseEvent
    for function in functions:
        function.restype = ctypes.c_int
    return functions


def do_nothing() -> Any:
    """A C function that returns 0 whatever its arguments: glibc's ignores them."""
    function = ctypes.CDLL(ctypes.util.find_library("c")).pthread_condattr_destroy
    function.restype = ctypes.c_int
    return function


if __name__ == "__main__":
    sys.exit(main())
