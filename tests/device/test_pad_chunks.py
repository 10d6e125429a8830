"""The pass that makes rows start at multiples of 16 bytes, for each size of elements."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyopencl as cl
import pytest

from gemmbench.ladder.variant import round_up
from gemmbench.model.device import DeviceFacts
from tests.device import conftest

FILE = "gemm/00_pad_chunks.cl"
GROUP = (32, 8)


@pytest.mark.parametrize(
    ("name", "dtype"), [("uchar", np.uint8), ("ushort", np.uint16), ("float", np.float32)]
)
@pytest.mark.parametrize(("rows", "columns"), [(1, 1), (5, 16), (9, 33), (40, 1000)])
def test_rows_are_copied_and_zeros_stand_behind_them(
    device: DeviceFacts, name: str, dtype: Any, rows: int, columns: int
) -> None:
    width = 16 // np.dtype(dtype).itemsize
    lds, pitch = columns + 3, round_up(columns, width)
    source = np.random.default_rng(columns).integers(1, 200, (rows, lds)).astype(dtype)
    padded = np.full((rows + 1, pitch), 77, dtype)

    runtime = conftest.runtime(device)
    kernel = runtime.kernel(runtime.build(FILE, (f"-DREAL_{name}",)), "pad_chunks", GROUP)
    target = runtime.filled(padded)
    arguments = (np.int32(rows), np.int32(columns), runtime.filled(source), np.int32(lds), np.int32(pitch))
    kernel.set_args(*arguments, target)
    items = (round_up(pitch // width, GROUP[0]), round_up(rows, GROUP[1]))
    cl.enqueue_nd_range_kernel(runtime.queue, kernel, items, GROUP)
    cl.enqueue_copy(runtime.queue, padded, target)

    assert (padded[:rows, :columns] == source[:, :columns]).all()
    assert (padded[:rows, columns:] == 0).all()
    assert (padded[rows] == 77).all()
