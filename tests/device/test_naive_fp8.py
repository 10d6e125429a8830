"""naive-fp8: every product of two bytes, in each format and type of C."""

from __future__ import annotations

import numpy as np
import pyopencl as cl
import pytest

from gemmbench.ladder import BY_NAME
from gemmbench.model.device import DeviceFacts
from gemmbench.model.dtypes import DTYPES, decode, encode
from tests.device import conftest

VARIANT = BY_NAME["naive-fp8"]
ALPHA = 1 + 2**-8  # 128 + 1/2 is half way between two numbers of bfloat16
BYTES = np.arange(256).astype(np.uint8)


@pytest.mark.parametrize("dtype", ["e4m3-bfloat16", "e5m2"])
def test_every_product_of_two_bytes_is_theirs_and_rounded_once(device: DeviceFacts, dtype: str) -> None:
    row = DTYPES[dtype]
    result = DTYPES[row.result]
    c = np.zeros((256, 256), result.numpy)
    runtime = conftest.runtime(device)
    program = runtime.build(VARIANT.files[0], VARIANT.compilation.of_type(dtype))
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
