"""Faults planted in our own kernels are found; their exact tests run the launches that are timed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from gemmbench.gemm.opencl import GemmExecutor
from gemmbench.gemm.opencl_bench import GemmBench
from gemmbench.ladder import BY_NAME
from gemmbench.ladder.variant import Layout
from gemmbench.model import kernel_files
from gemmbench.model.case import Policy
from gemmbench.model.device import DeviceFacts
from gemmbench.model.instrument import When
from gemmbench.model.problem import Gemm
from gemmbench.opencl.runtime import Runtime
from tests.device.conftest import Plant
from tests.in_process import plan_case

pytestmark = pytest.mark.usefixtures("unoptimized")

QUICK = Policy(budget_s=60.0, batch_s=0.001, min_batches=3, precision=10.0)


@dataclass(frozen=True)
class Path:
    """A kernel and a timed problem.

    Attributes:
        launches: the names of the problem's launches.
        parameters: given ones; the kernel chooses the others.
    """

    kernel: str
    problem: Gemm
    launches: tuple[str, ...]
    parameters: Mapping[str, int] = field(default_factory=dict)


PATHS = {
    "small": Path("small", Gemm(256, 256, 256), ("small",)),
    "thin": Path("thin", Gemm(8, 512, 1024), ("thin",), {"PARTS": 1}),
    "thin, columns": Path("thin", Gemm(512, 8, 1024), ("thin",), {"PARTS": 1}),
    "thin in parts": Path("thin", Gemm(8, 512, 1024), ("thin", "thin_sum"), {"PARTS": 4}),
    "cpu-packed": Path("cpu-packed", Gemm(256, 512, 256), ("pack_b", "cpu_packed"), {"PACKB": 1}),
    "cpu-packed, B in place": Path("cpu-packed", Gemm(256, 512, 256), ("cpu_packed",), {"PACKB": 0}),
    "cpu-packed in slices": Path(
        "cpu-packed", Gemm(64, 64, 1024), ("cpu_packed", "add"), {"PACKB": 2, "SLICES": 2}
    ),
    "cpu-packed, char": Path(
        "cpu-packed", Gemm(256, 512, 256, "char"), ("pack_a", "pack_b", "cpu_packed"), {"PACKB": 1}
    ),
    "nv-async": Path("nv-async", Gemm(1024, 1024, 128), ("transpose_tall", "nv_async")),
    "nv-mma": Path("nv-mma", Gemm(512, 512, 512, "half"), ("nv_mma",)),
    "nv-thin": Path("nv-thin", Gemm(8, 512, 1024, "half"), ("nv_thin",), {"PARTS": 1}),
    "nv-thin in parts": Path("nv-thin", Gemm(8, 512, 4096, "bfloat16"), ("nv_thin",), {"PARTS": 4}),
    "nv-wgmma": Path("nv-wgmma", Gemm(512, 512, 512, "half"), ("nv_wgmma",)),
    "nv-wgmma in parts": Path("nv-wgmma", Gemm(128, 512, 4096, "half"), ("nv_wgmma",), {"PARTS": 4}),
}


IN_PARTS = Path("nv-async", Gemm(256, 256, 8192), ("nv_async", "sum_parts"))  # not the exact test's small k


def prepared(device: DeviceFacts, path: Path) -> GemmBench:
    case = plan_case(device, path.kernel, path.problem, may_skip=True)
    case = replace(case, parameters={**case.parameters, **path.parameters})
    return GemmExecutor(Runtime(device)).prepare(case, QUICK)


@pytest.mark.parametrize("name", PATHS)
def test_the_exact_test_of_aligned_rows_runs_the_launches_that_are_timed(
    device: DeviceFacts, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    launches: list[tuple[Layout, tuple[str, ...]]] = []
    bind = GemmExecutor.bind

    def noted(self: GemmExecutor, *of: Any, **fixed: Any) -> Sequence[Any]:
        steps = bind(self, *of, **fixed)
        launches.append((of[4], tuple(step.name for step in steps)))
        return steps

    monkeypatch.setattr(GemmExecutor, "bind", noted)
    path = PATHS[name]
    bench = prepared(device, path)
    ((_, timed),) = launches
    assert timed == path.launches
    launches.clear()
    assert bench.verify("exact").check.reasons == ()
    aligned = {names for layout, names in launches if not any(ld % 64 for ld in vars(layout).values())}
    assert aligned == {timed}


FAULTS: dict[str, tuple[str, str, str, tuple[When, ...]]] = {
    # path, what is replaced in its source, by what, the checks that find it
    "A is read past its end": (
        *("small", "multiplied(m, n, k, alpha, A, lda, B, ldb, beta, C, ldc, local_all, 1)"),
        "multiplied(m, n, k, alpha + 0 * A[(size_t)m * lda], A, lda, B, ldb, beta, C, ldc, local_all, 1)",
        ("exact",),
    ),
    "slices are not all added": ("small", "s < SPLIT; s++", "s < SPLIT - 1; s++", ("before",)),
    "a panel of B is not packed": (
        *("cpu-packed", "p0 = get_global_id(1) * steps;\n#ifdef STREAM"),
        "p0 = get_global_id(1) * steps; if (panel == get_global_size(0) - 1) return;\n#ifdef STREAM",
        ("exact", "before"),
    ),
    "a panel of a large B is not packed": (
        *("cpu-packed", "p0 = get_global_id(1) * steps;\n#ifdef STREAM"),
        "p0 = get_global_id(1) * steps; if (panel == 5) return;\n#ifdef STREAM",
        ("before",),
    ),
    "a row of char is packed twice": (
        *("cpu-packed, char", "WIDE(, from[i][p])", "WIDE(, from[i / 2][p])"),
        ("exact", "before"),
    ),
    "a slice is not added": ("cpu-packed in slices", "slice < slices;", "slice < slices - 1;", ("before",)),
    "the first slice is not added": ("cpu-packed in slices", "slice = 0;", "slice = 1;", ("exact", "before")),
    "a part is not added by thin": ("thin in parts", "part < parts;", "part < parts - 1;", ("before",)),
    "the first part is not added by thin": ("thin in parts", "part = 0;", "part = 1;", ("exact", "before")),
    "a part is not added by nv-thin": (
        *("nv-thin in parts", "q + r < parts ?", "q + r < parts - 1 ?"),
        ("before",),
    ),
    "a warp is not added by nv-thin": ("nv-thin", "w < WARPS;", "w < WARPS - 1;", ("before",)),
    "a part is not added by nv-wgmma": (
        *("nv-wgmma in parts", "each = 1; each < PARTS;", "each = 1; each < PARTS - 1;"),
        ("before",),
    ),
    "the second part is not added by nv-async": (
        *("nv-async in parts", "p = 1; p < parts;", "p = 2; p < parts;"),
        ("before",),
    ),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_in_one_launch_is_found(device: DeviceFacts, fault: str, plant: Plant) -> None:
    name, old, new, checks = FAULTS[fault]
    paths = {**PATHS, "nv-async in parts": IN_PARTS}
    files = BY_NAME[paths[name].kernel].files
    assert sum(kernel_files.text(file).count(old) for file in files) == 1
    plant((old, new), files=files)
    bench = prepared(device, paths[name])
    assert [bench.verify(when).check.verdict for when in checks] == ["wrong"] * len(checks)
