"""The order in which nv-wgmma makes its tiles: plain C, which every device compiles."""

from __future__ import annotations

import re

import numpy as np
import pyopencl as cl
import pytest

from gemmbench.model import kernel_files
from gemmbench.model.device import DeviceFacts
from gemmbench.opencl import runtime as runtime_module
from gemmbench.opencl.runtime import Runtime

SOURCE = """
#define BM 1
#define BN 1
#define BAND 4
{function}
__kernel void order(int down, int across, __global int2 *places)
{{
    for (int tile = 0; tile < down * across; tile++)
        places[tile] = placed(tile, down, across);
}}
"""


def test_every_tile_is_made_once_and_bands_go_there_and_back(
    device: DeviceFacts, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = kernel_files.raw("gemm/21_nv_wgmma.cl")
    (function,) = re.findall(r"^static inline int2 placed.*?^}", source, re.MULTILINE | re.DOTALL)
    monkeypatch.setattr(runtime_module, "text", lambda *_: SOURCE.format(function=function))
    runtime = Runtime(device)
    kernel = runtime.kernel(runtime.build("order.cl", ()), "order", (1,))
    for down, across in ((1, 1), (3, 5), (4, 5), (9, 2), (12, 3)):
        got = np.zeros((down * across, 2), np.int32)
        places = runtime.filled(got)
        kernel.set_args(np.int32(down), np.int32(across), places)
        cl.enqueue_nd_range_kernel(runtime.queue, kernel, (1,), (1,))
        cl.enqueue_copy(runtime.queue, got, places)
        assert sorted(map(tuple, got.tolist())) == [(i, j) for i in range(down) for j in range(across)]
        columns = [got[4 * across * band : 4 * across * (band + 1), 1] for band in range(-(-down // 4))]
        for band, walked in enumerate(columns):
            assert (np.diff(walked) * (-1) ** band >= 0).all()
