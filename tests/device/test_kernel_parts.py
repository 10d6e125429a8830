"""Parts of kernels that every device runs, though most devices cannot run the kernels themselves."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pyopencl as cl
import pytest

from gemmbench.ladder import BY_NAME
from gemmbench.ladder.nvidia import NV_MMA, NV_WGMMA, compiled_for
from gemmbench.ladder.variant import Layout, Pass, Values, round_up
from gemmbench.model import kernel_files
from gemmbench.model.device import DeviceFacts
from gemmbench.model.dtypes import DTYPES, FP8_DTYPES, decode, encode
from gemmbench.model.problem import Gemm
from gemmbench.opencl import runtime as runtime_module
from gemmbench.opencl.runtime import Runtime
from tests.device import conftest

# --- passes around a multiplication on tensor cores --------------------------------------------------------

SHAPES = [(1, 1, 1), (5, 9, 7), (33, 130, 65), (64, 70, 31), (3, 200, 129)]
CASES = [
    (variant.name, dtype)
    for variant in (NV_MMA, NV_WGMMA)
    for dtype in variant.needs.dtypes
    if dtype not in FP8_DTYPES[1:]  # they take the same passes as the first
]


def run(runtime: Runtime, step: Pass, dtype: str, values: Values) -> tuple[np.ndarray, np.ndarray]:
    """A pass on a random operand; what it made, and what it should have."""
    rows, columns = (values[name] for name in step.arguments[:2])
    source, target = (name for name in step.arguments if name in ("A", "B", "AP", "BP", "BT"))
    pitch = values[{"AP": "aw", "BP": "bw", "BT": "kw"}[target]]
    held = np.random.default_rng(1).integers(1, 100, (rows, values["ld" + source.lower()]))
    held = held.astype(DTYPES[dtype].numpy)  # what lies between rows is no zero
    given = held[:, :columns].T if step.role == "transpose" else held[:, :columns]
    want = np.zeros((len(given), pitch), held.dtype)
    want[:, : given.shape[1]] = given
    got = np.full_like(want, 77)
    buffers = {source: runtime.filled(held), target: runtime.filled(got)}
    known = {name: np.int32(value) for name, value in values.items()} | buffers
    group = step.group(values)
    kernel = runtime.kernel(runtime.build(step.file, compiled_for(dtype)), step.kernel, group)
    kernel.set_args(*(known[name] for name in step.arguments))
    items = tuple(round_up(*pair) for pair in zip(step.items(values), group, strict=True))
    cl.enqueue_nd_range_kernel(runtime.queue, kernel, items, group)
    cl.enqueue_copy(runtime.queue, got, buffers[target])
    return got, want


@pytest.mark.parametrize(("name", "dtype"), CASES)
def test_operands_arrive_as_they_should(device: DeviceFacts, name: str, dtype: str) -> None:
    variant, runtime, roles = BY_NAME[name], conftest.runtime(device), set()
    if dtype == "double" and dtype not in device.dtypes:
        pytest.skip("the device has no double")
    for m, n, k in SHAPES:
        problem = Gemm(m, n, k, dtype)
        parameters = variant.preset(device.family, dtype=dtype)
        parameters |= variant.chosen(problem, device, parameters)
        values = variant.values(problem, parameters, Layout(k + 1, n + 2, n))
        for step in variant.steps(values)[:-1]:
            if step.once:
                continue
            roles.add(step.role)
            got, want = run(runtime, step, dtype, values)
            assert (got == want).all(), (step.kernel, m, n, k)
    assert "pad" in roles
    assert ("transpose" in roles) == (dtype in ("char", "e4m3") or (name, dtype) == ("nv-wgmma", "tf32"))


@pytest.mark.parametrize(
    ("name", "dtype"), [("uchar", np.uint8), ("ushort", np.uint16), ("float", np.float32)]
)
@pytest.mark.parametrize(("rows", "columns"), [(1, 1), (5, 16), (9, 33), (40, 1000)])
def test_rows_are_copied_and_zeros_stand_behind_them(
    device: DeviceFacts, name: str, dtype: Any, rows: int, columns: int
) -> None:
    width, group = 16 // np.dtype(dtype).itemsize, (32, 8)
    lds, pitch = columns + 3, round_up(columns, width)
    source = np.random.default_rng(columns).integers(1, 200, (rows, lds)).astype(dtype)
    padded = np.full((rows + 1, pitch), 77, dtype)

    runtime = conftest.runtime(device)
    kernel = runtime.kernel(runtime.build("gemm/00_pad_chunks.cl", (f"-DREAL_{name}",)), "pad_chunks", group)
    target = runtime.filled(padded)
    arguments = (np.int32(rows), np.int32(columns), runtime.filled(source), np.int32(lds), np.int32(pitch))
    kernel.set_args(*arguments, target)
    items = (round_up(pitch // width, group[0]), round_up(rows, group[1]))
    cl.enqueue_nd_range_kernel(runtime.queue, kernel, items, group)
    cl.enqueue_copy(runtime.queue, padded, target)

    assert (padded[:rows, :columns] == source[:, :columns]).all()
    assert (padded[:rows, columns:] == 0).all()
    assert (padded[rows] == 77).all()


# --- nv-mma: what is left of a chunk of its operands at the end of k --------------------------------------

CHUNK = 16
LEFT = """
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
    monkeypatch.setattr(runtime_module, "text", lambda *_: LEFT.format(macro=macro))
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


# --- nv-wgmma: the order in which it makes its tiles -------------------------------------------------------

ORDER = """
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
    monkeypatch.setattr(runtime_module, "text", lambda *_: ORDER.format(function=function))
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


# --- naive-fp8: every product of two bytes -----------------------------------------------------------------

FP8 = BY_NAME["naive-fp8"]
ALPHA = 1 + 2**-8  # 128 + 1/2 is half way between two numbers of bfloat16
BYTES = np.arange(256).astype(np.uint8)


@pytest.mark.parametrize("dtype", ["e4m3-bfloat16", "e5m2"])
def test_every_product_of_two_bytes_is_theirs_and_rounded_once(device: DeviceFacts, dtype: str) -> None:
    row = DTYPES[dtype]
    result = DTYPES[row.result]
    c = np.zeros((256, 256), result.numpy)
    runtime = conftest.runtime(device)
    program = runtime.build(FP8.files[0], FP8.compilation.of_type(dtype))
    kernel = runtime.kernel(program, "naive_fp8", (16, 16))
    a, b, out = (runtime.filled(each) for each in (BYTES, BYTES, c))
    length, alpha, zero = np.int32(256), np.float32(ALPHA), np.float32(0)
    kernel.set_args(length, length, np.int32(1), alpha, a, np.int32(1), b, length, zero, out, length)
    cl.enqueue_nd_range_kernel(runtime.queue, kernel, (256, 256), (16, 16))
    cl.enqueue_copy(runtime.queue, c, out)

    values = decode(BYTES, row)
    with np.errstate(invalid="ignore"):
        products = ALPHA * np.multiply.outer(values, values)
    finite = np.isfinite(products)
    assert finite.sum() > 200**2
    got = decode(c, result)
    assert (got[finite] == decode(encode(products[finite], result), result)).all()
    assert np.array_equal(got[~finite], products[~finite], equal_nan=True)
