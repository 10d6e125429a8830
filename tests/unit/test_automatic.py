"""How auto chooses, tries and runs, with a scripted child."""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import replace
from typing import Any

import pytest

from gemmbench.ladder import BY_NAME
from gemmbench.model.case import Case, Operands, Policy, Skip, Staged
from gemmbench.model.device import DeviceFacts
from gemmbench.model.problem import Gemm
from gemmbench.model.row import Problem, Row
from gemmbench.suite import auto
from gemmbench.suite.auto import Automatic
from gemmbench.suite.plan import Tuned, gemm_plan
from tests import fake_runs as fake

PROBLEM = Gemm(64, 64, 64, label="mine")
POLICY = Policy()
RATES = {"cpu-packed": 500.0, "numpy": 40.0, "tiled": 450.0}


class Child:
    """Runs nothing: rates by variant, faults by variant; remembers what it was asked for."""

    def __init__(self, rates: dict[str, float] | None = None, **faults: str) -> None:
        self.rates = RATES if rates is None else rates
        self.faults = {name.replace("_", "-"): status for name, status in faults.items()}
        self.asked: list[tuple[str, float]] = []
        self.cases: list[Case] = []

    def run(self, case: Case, device: DeviceFacts | None, policy: Policy) -> Generator[Staged, None, Row]:
        assert (device is None) == (case.device < 0) == (case.variant == "numpy")
        self.asked.append((case.variant, policy.budget_s))
        self.cases.append(case)
        yield Staged("timing")
        row = case.row("ok")
        if case.variant in self.faults:
            return replace(row, status=self.faults[case.variant], reason="why")  # type: ignore[arg-type]
        assert row.problem is not None
        made = fake.gemm_row(case.variant, row.problem, self.rates[case.variant], case.device, transfer=1.0)
        return replace(row, samples=made.samples, check=made.check)


def case_of(device: DeviceFacts = fake.CPU, problem: Gemm = PROBLEM, **extra: Any) -> Case:
    (step,) = gemm_plan([device], [BY_NAME["auto"]], [problem], **extra)
    assert isinstance(step, Case)
    return step


def measure(
    automatic: Automatic, child: Child, case: Case | None = None, device: DeviceFacts = fake.CPU
) -> tuple[Row, list[str]]:
    """The row, and the stages on the way."""
    steps = automatic.measure(case or case_of(), device, POLICY, child)  # type: ignore[arg-type]
    stages = []
    while True:
        try:
            stages.append(next(steps).stage)
        except StopIteration as end:
            return end.value, stages


def earlier(name: str, rate: float, **extra: Any) -> Row:
    problem = case_of().row("ok").problem
    assert problem is not None
    return fake.gemm_row(name, problem, rate, -1 if name == "numpy" else 0, transfer=1.0, **extra)


def test_what_nobody_has_measured_is_tried_shortly_and_the_fastest_runs() -> None:
    child = Child()
    row, stages = measure(Automatic(), child)
    short = pytest.approx(POLICY.budget_s / 5)
    assert child.asked == [("cpu-packed", short), ("numpy", short), ("cpu-packed", POLICY.budget_s)]
    assert stages == ["trying cpu-packed", "timing", "trying numpy", "timing", "timing"]
    assert (row.variant, row.device, row.parameters, row.label) == ("auto", 0, {}, "mine")
    assert row.key == case_of().key
    assert row.choice["kernel"] == "cpu-packed"
    assert "the fastest of a trial" in str(row.choice["why"])
    assert set(row.samples) == {"kernel", "device", "host"}


def test_rows_of_the_run_are_believed_and_only_the_rest_is_tried() -> None:
    automatic, child = Automatic(), Child()
    automatic.record(earlier("cpu-packed", 300.0))
    automatic.record(earlier("tiled", 450.0, parameters={"TS": 16}))
    row, _ = measure(automatic, child)
    assert [name for name, _ in child.asked] == ["numpy", "tiled"]
    assert (row.choice["kernel"], row.choice["TS"]) == ("tiled", 16)
    assert child.cases[-1].parameters == {"TS": 16}
    assert "the fastest measured at 64x64x64" in str(row.choice["why"])


def test_what_earlier_runs_have_measured_needs_no_trial() -> None:
    preset = BY_NAME["cpu-packed"].preset("cpu-intel", device=fake.CPU)
    slow = earlier("cpu-packed", 30.0, parameters=preset)
    known = auto.points([slow, earlier("numpy", 90.0)], 0)
    child = Child()
    row, _ = measure(Automatic({0: known}), child)
    assert [name for name, _ in child.asked] == ["numpy"]
    assert (row.choice["kernel"], row.device, set(row.samples)) == ("numpy", 0, {"host"})


def test_what_it_has_run_it_knows_afterwards() -> None:
    preset = dict(BY_NAME["cpu-packed"].preset("cpu-intel", device=fake.CPU))
    fast = earlier("cpu-packed", 900.0, parameters=preset)
    known = auto.points([fast, earlier("numpy", 40.0)], 0)
    automatic, child = Automatic({0: known}), Child({"cpu-packed": 9.0, "numpy": 40.0})
    measure(automatic, child)  # slower than it was
    measure(automatic, child)
    assert [name for name, _ in child.asked] == ["cpu-packed", "numpy"]


def test_a_variant_that_failed_in_the_run_is_neither_tried_nor_taken() -> None:
    automatic, child = Automatic(), Child()
    automatic.record(replace(earlier("cpu-packed", 1.0), status="timed-out", samples={}))
    measure(automatic, child)
    assert [name for name, _ in child.asked] == ["numpy", "numpy"]
    near = replace(earlier("cpu-packed", 900.0), problem=Problem(60, 60, 60))
    automatic.record(near)  # what it would be at this problem is no comfort
    measure(automatic, child)
    assert [name for name, _ in child.asked] == ["numpy", "numpy", "numpy"]
    other = case_of(problem=Gemm(32, 32, 32))
    measure(automatic, child, other)
    assert "cpu-packed" in [name for name, _ in child.asked]


def test_where_no_trial_succeeds_the_first_of_the_order_gets_the_whole_budget() -> None:
    """Too slow for a trial may be quick enough for a row; what crashes is not asked again."""
    child = Child(cpu_packed="skipped", numpy="skipped")
    row, _ = measure(Automatic(), child)
    assert child.asked[-1] == ("cpu-packed", POLICY.budget_s)
    assert (row.status, row.reason) == ("skipped", "cpu-packed: why")
    assert "the first of the order for a cpu" in str(row.choice["why"])
    child = Child(cpu_packed="crashed")
    row, _ = measure(Automatic(), child)
    assert [name for name, _ in child.asked] == ["cpu-packed", "numpy", "numpy"]


def test_where_nothing_can_run_it_is_not_planned_and_a_row_says_so() -> None:
    problem = Gemm(8, 8, 8, "bfloat16")
    (step,) = gemm_plan([fake.POCL], [BY_NAME["auto"]], [problem])
    assert isinstance(step, Skip)
    row, _ = measure(Automatic(), Child(), replace(case_of(), dtype="bfloat16", problem=problem), fake.POCL)
    for each in (step.row, row):
        assert (each.status, each.reason) == ("unsupported", "no variant that could be chosen runs here")


def test_where_nothing_likely_runs_whatever_else_does_is_tried() -> None:
    child = Child({"naive-fp8": 1.0})
    row, _ = measure(Automatic(), child, case_of(fake.POCL, Gemm(8, 8, 8, "e4m3")), fake.POCL)
    assert [name for name, _ in child.asked] == ["naive-fp8", "naive-fp8"]
    assert row.choice["kernel"] == "naive-fp8"


def test_an_empty_product_is_not_tried() -> None:
    child = Child()
    measure(Automatic(), child, case_of(problem=Gemm(8, 8, 0)))
    assert [name for name, _ in child.asked] == ["cpu-packed"]


def test_the_users_matrices_are_for_the_choice_not_for_trials() -> None:
    own = Operands("a.npy", "b.npy", None, "out.npy")
    child = Child()
    measure(Automatic(), child, case_of(operands=own))
    assert [case.operands for case in child.cases] == [Operands(), Operands(), own]


def test_tuned_presets_serve_where_no_measurement_names_parameters() -> None:
    packed = BY_NAME["cpu-packed"]
    parameters = packed.preset("cpu-intel", device=fake.CPU)
    child = Child()
    measure(Automatic(tuned=lambda *_: Tuned(parameters, "tuned parameters")), child)
    assert child.cases[0].notes == ("tuned parameters",)


def test_a_choice_of_tuned_parameters_says_so_and_without_them_it_is_none() -> None:
    packed = BY_NAME["cpu-packed"]
    shipped = packed.preset("cpu-intel", device=fake.CPU)
    name = next(iter(shipped))
    mine = {
        **shipped,
        name: next(value for value in packed.parameters[name].values if value != shipped[name]),
    }
    known = auto.points([earlier("cpu-packed", 900.0, parameters=mine), earlier("numpy", 40.0)], 0)
    child = Child()
    row, _ = measure(Automatic({0: known}, lambda *_: Tuned(mine, "tuned parameters")), child)
    assert child.asked == [("cpu-packed", POLICY.budget_s)]
    assert (child.cases[0].parameters, row.notes) == (mine, ("tuned parameters",))
    child = Child()
    measure(Automatic({0: known}), child)
    assert [(case.variant, case.parameters, case.notes) for case in child.cases] == [
        ("cpu-packed", shipped, ()),  # tried: of the shipped preset nothing is known
        ("cpu-packed", shipped, ()),
    ]


def test_lessons_are_what_this_run_has_measured_on_generated_matrices() -> None:
    automatic, child = Automatic(), Child()
    automatic.record(earlier("tiled", 4.0, parameters={"TS": 16}))
    measure(automatic, child)
    assert [row.variant for row in automatic.lessons] == ["cpu-packed", "numpy", "cpu-packed"]
    automatic = Automatic()
    measure(automatic, child, case_of(operands=Operands(b="b.npy")))
    assert [row.variant for row in automatic.lessons] == ["cpu-packed", "numpy"]  # the trials
    assert len(automatic.rows) == 3
    automatic = Automatic()
    measure(automatic, child, case_of(operands=Operands(out="out.npy")))
    assert len(automatic.lessons) == 3


@pytest.mark.parametrize("place", [0, 2])
def test_the_row_is_of_the_device_of_the_case(place: int) -> None:
    child = Child()
    row, _ = measure(Automatic(), child, replace(case_of(), device=place))
    assert {case.device for case in child.cases} == {place, -1}
    assert row.device == place
