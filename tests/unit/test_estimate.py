"""The time that --dry-run predicts, compared with times that were measured on quiet machines."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from gemmbench.model.case import Case, Policy, Skip
from gemmbench.model.device import DeviceFacts
from gemmbench.model.problem import Gemm
from gemmbench.model.run_file import load
from gemmbench.suite.options import build, measuring
from gemmbench.suite.plan import plan_command
from gemmbench.suite.session import Estimate, estimate

ROOT = Path(__file__).parents[2]
CPU = load(ROOT / "plots/cpu-intel-square.jsonl").header.devices[0]
GPU = load(ROOT / "plots/h200-square.jsonl").header.devices[0]
RIGHT = 1.5  # times too long or too short, at most

LANGUAGE_MODEL = [  # m, n, k of a language model's layers for several numbers of tokens
    (m, n, k)
    for m in (1, 2, 17, 24, 136, 248, 512, 18432, 32768)
    for n, k in ((6144, 4096), (4096, 4096), (4096, 14336), (28672, 4096))
]


POLICY = Policy()
NAIVE = {"sizes": "64", "kernels": "naive", "baseline": "none", "peak": False}


def predicted(device: DeviceFacts, kind: Any, policy: Policy = POLICY, **options: Any) -> Estimate:
    plan = plan_command(build(kind, options), [device])
    return estimate(tuple(step for step in plan if step_kind(step) != "bandwidth"), [device], policy)


def step_kind(step: Case | Skip) -> str:
    return step.kind if isinstance(step, Case) else step.row.kind


@pytest.mark.parametrize(
    ("device", "kind", "options", "took_s"),
    [
        (CPU, measuring.SquareOptions, {"max": 2048}, 80),
        (CPU, measuring.SquareOptions, {"sizes": "64,512", "peak": False}, 21),
        (CPU, measuring.SquareOptions, NAIVE, 2),
        (CPU, measuring.PeakOptions, {}, 18),
        (GPU, measuring.SquareOptions, {"max": 4096, "baseline": "cublas"}, 63),
        (GPU, measuring.SweepKOptions, {}, 68),
        (GPU, measuring.PeakOptions, {}, 35),
    ],
)
def test_the_time_is_right_within_a_factor(
    device: DeviceFacts, kind: Any, options: dict[str, Any], took_s: float
) -> None:
    assert took_s / RIGHT < predicted(device, kind, **options).seconds < took_s * RIGHT


def test_rows_with_much_data_take_long_and_those_over_budget_are_counted(tmp_path: Path) -> None:
    """69 s on two cores. The eight shapes with the most tokens take more than 2 s for a product."""
    file = tmp_path / "llm.csv"
    lines = [",".join(map(str, shape)) for shape in LANGUAGE_MODEL]
    file.write_text("\n".join(["m,n,k", *lines]))
    options: dict[str, Any] = {"file": str(file), "kernels": "cpu-packed", "baseline": "none", "peak": False}
    result = predicted(CPU, measuring.WorkloadsOptions, **options)
    assert 69 / RIGHT < result.seconds < 69 * RIGHT
    assert result.over_budget == 8
    assert predicted(CPU, measuring.WorkloadsOptions, Policy(budget_s=1000.0), **options).over_budget == 0


@pytest.mark.parametrize("kind", [measuring.SquareOptions, measuring.PeakOptions])
def test_a_smaller_budget_takes_less_time(kind: Any) -> None:
    times = [predicted(CPU, kind, Policy(budget_s=budget_s)).seconds for budget_s in (0.05, 0.3, 2.0)]
    assert times[0] < 0.9 * times[1] < 0.5 * times[2]


def test_a_kernel_is_built_once_and_interleaved_rows_take_at_least_a_second() -> None:
    small, large = (Case("gemm", 0, "naive", "float", {}, Gemm(m, 8, 8)) for m in (8, 16))

    def seconds(*cases: Case) -> float:
        return estimate(cases, [CPU], POLICY).seconds

    one_s = seconds(small)
    further_s = seconds(small, large) - one_s
    assert further_s < seconds(small, replace(large, variant="tiled")) - one_s - 0.3
    assert seconds(replace(small, partner=replace(small, variant="tiled"))) > one_s + 0.7


def test_nothing_to_measure_takes_no_time() -> None:
    skipped = Skip(Case("gemm", 0, "naive", "float", {}, Gemm(8, 8, 8)).row("skipped", "why"))
    assert estimate((skipped,), [CPU], POLICY) == Estimate(0, 0)
