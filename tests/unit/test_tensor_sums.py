"""The rule of the tensor cores' sums, compared with an H200's bits, and the bound that follows."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from gemmbench.gemm.verify import DrawnRows
from gemmbench.model.dtypes import DTYPES, encode
from gemmbench.model.problem import Gemm
from tools.tensor_sums import CASES, sums, tensor_sum

RECORDED = Path(__file__).parents[1] / "data" / "tensor-sums.npz"


@pytest.mark.parametrize("case", CASES, ids="-".join)
def test_every_recorded_bit_follows_from_the_rule(case: tuple[str, str, str]) -> None:
    with np.load(RECORDED) as arrays:
        expected, got = sums(arrays, case)
    assert got.size >= 384
    assert (expected == got).all(), f"{int((expected != got).sum())} of {got.size} sums differ"


@pytest.mark.parametrize("k", [512, 1024, 4096])
def test_fp8_sums_at_their_worst_are_within_the_bound(k: int) -> None:
    """A product of 256 comes first. The others are below 2^-13 of it, so each sum of 32 drops them."""
    problem = Gemm(1, 1, k, "e4m3")
    a, b = (np.full((1, k), 0.171875) for _ in range(2))
    a[0, 0] = b[0, 0] = 16
    stored_a, stored_b = (encode(matrix, DTYPES["e4m3"]) for matrix in (a, b))
    c = np.zeros((1, 1), np.uint32)
    for part in range(0, k, 32):
        c = tensor_sum(
            "wgmma", "e4m3", "f32", stored_a[:, part : part + 32], stored_b[:, part : part + 32], c
        )
    result = c.view(np.float32)
    assert result == 256
    check = DrawnRows(problem, stored_a, stored_b.T.copy(), generated=False).check(result, result, "fp22")
    assert check.verdict == "ok"
    assert check.figures["element"] > 0.5
