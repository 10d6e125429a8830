"""What is left of a chunk of nv-mma's operands at the end of k: plain C, which every device compiles."""

from __future__ import annotations

import re

import numpy as np
import pyopencl as cl
import pytest

from gemmbench.model import kernel_files
from gemmbench.model.device import DeviceFacts
from gemmbench.opencl import runtime as runtime_module
from gemmbench.opencl.runtime import Runtime

CHUNK = 16
SOURCE = """
#define CHUNK 16
#define PER_CHUNK (CHUNK / SIZE)
{macro}
__kernel void left(int k, int p0, int first_chunk, int in_a, __global int *bytes) {{ *bytes = A_LEFT(0); }}
"""


@pytest.mark.parametrize("size", [1, 2, 4, 8])
def test_the_bytes_that_are_left_do_not_overflow(
    device: DeviceFacts, size: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    (macro,) = re.findall(r"^#define A_LEFT.*clamp.*", kernel_files.raw("gemm/20_nv_mma.cl"), re.MULTILINE)
    monkeypatch.setattr(runtime_module, "text", lambda *_: SOURCE.format(macro=macro))
    runtime = Runtime(device)
    kernel = runtime.kernel(runtime.build("left.cl", (f"-DSIZE={size}",)), "left", (1,))
    got = np.zeros(1, np.int32)
    bytes_left = runtime.filled(got)
    for k in (0, 1, 15, 16, 17, 100, 2**28, 2**28 + 1, 2**29 + 2**27 + 3, 2**31 - 1):
        for at in (0, CHUNK // size, 48 // size):  # where a chunk begins
            kernel.set_args(np.int32(k), np.int32(at), np.int32(0), np.int32(1), bytes_left)
            cl.enqueue_nd_range_kernel(runtime.queue, kernel, (1,), (1,))
            cl.enqueue_copy(runtime.queue, got, bytes_left)
            assert got[0] == min(max(k - at, 0) * size, CHUNK), (k, at)
