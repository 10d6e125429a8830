"""nv-thin: the plan for a problem, the kernel that runs, and its buffers."""

from __future__ import annotations

import pytest

from gemmbench.ladder import BY_NAME
from gemmbench.ladder.variant import Layout, laid_out
from gemmbench.model.case import Skip
from gemmbench.model.problem import Gemm
from gemmbench.plan import gemm_plan
from tests.unit.test_nv_wgmma import HOPPER as H100

VARIANT = BY_NAME["nv-thin"]


def values(problem: Gemm, layout: Layout | None = None) -> dict[str, int]:
    return VARIANT.values(problem, VARIANT.chosen(problem, H100, {}), layout)


@pytest.mark.parametrize(
    ("problem", "warps", "parts"),
    [
        (Gemm(1, 28672, 4096, "bfloat16"), 4, 1),  # many tiles
        (Gemm(1, 6144, 4096, "bfloat16"), 16, 1),
        (Gemm(16, 4096, 14336, "bfloat16"), 16, 1),  # 128 tiles for 132 compute units
        (Gemm(16, 8192, 1024, "bfloat16"), 8, 1),  # two for each
        (Gemm(16, 1280, 8192, "bfloat16"), 4, 13),  # 40 tiles: four groups for each unit
        (Gemm(16, 64, 14336, "bfloat16"), 4, 56),  # as many parts as keep every warp busy
        (Gemm(4096, 1, 14336, "half"), 16, 1),
    ],
)
def test_warps_and_parts_keep_all_compute_units_busy(problem: Gemm, warps: int, parts: int) -> None:
    known = values(problem)
    assert (known["WARPS"], known["PARTS"]) == (warps, parts)
    assert VARIANT.broken({name: known[name] for name in VARIANT.parameters}, problem.dtype) == ""


@pytest.mark.parametrize(
    ("problem", "layout", "kernel"),
    [
        (Gemm(4, 64, 63, "half"), None, "nv_thin"),  # rows of B lie across k
        (Gemm(4, 63, 64, "half"), None, "nv_thin_ragged"),
        (Gemm(4, 63, 64, "half", trans_b=True), None, "nv_thin"),
        (Gemm(4, 64, 63, "half", trans_b=True), Layout(64, 64, 64), "nv_thin_ragged"),
        (Gemm(64, 4, 63, "half", trans_a=True), None, "nv_thin"),
        (Gemm(64, 4, 64, "half"), Layout(65, 4, 4), "nv_thin_ragged"),
    ],
)
def test_rows_that_vectors_do_not_fit_are_read_by_elements(
    problem: Gemm, layout: Layout | None, kernel: str
) -> None:
    steps = laid_out(VARIANT, problem).steps(values(problem, layout))
    assert [step.kernel for step in steps] == ["nv_thin_counts", kernel]


def test_sums_of_parts_have_a_buffer_and_every_tile_a_count() -> None:
    problem = Gemm(16, 1280, 8192, "bfloat16")
    room = VARIANT.temporary_bytes(problem, VARIANT.chosen(problem, H100, {}))
    assert room == {"P": 13 * 40 * 16 * 32 * 4, "COUNTS": 40 * 4}
    problem = Gemm(1, 28672, 4096, "bfloat16")
    assert VARIANT.temporary_bytes(problem, VARIANT.chosen(problem, H100, {}))["P"] == 0


@pytest.mark.parametrize(("n", "kept"), [(4096, 1), (6144, 0)])
def test_caches_keep_only_operands_that_fit(n: int, kept: int) -> None:
    assert values(Gemm(1, n, 4096, "bfloat16"))["KEEP"] == kept


@pytest.mark.parametrize(
    "problem", [Gemm(1, 28672, 64, "half"), Gemm(16, 28672, 64, "half"), Gemm(5, 99, 64, "half")]
)
def test_local_memory_is_within_what_the_driver_lists(problem: Gemm) -> None:
    assert VARIANT.local_bytes("half", VARIANT.chosen(problem, H100, {})) <= 48 << 10


def test_more_rows_and_columns_than_16_are_for_other_kernels() -> None:
    (step,) = gemm_plan([H100], [VARIANT], [Gemm(17, 17, 64, "half")])
    assert isinstance(step, Skip)
    assert step.row.reason == "nv-thin is for m or n of 16 or less"
