"""From saved rows back to cases: the same keys and sources, or a row that says why not."""

from __future__ import annotations

from dataclasses import replace

from gemmbench.ladder import LADDER, VARIANTS
from gemmbench.model.case import Case, Plan, Skip
from gemmbench.model.device import HOST, DeviceFacts
from gemmbench.model.dtypes import GEMM_DTYPES
from gemmbench.model.problem import Gemm
from gemmbench.model.row import Problem, Row
from gemmbench.probes import ALL_DTYPES
from gemmbench.probes.arithmetic import WIDTHS
from gemmbench.probes.memory import FAMILIES, memory_plan
from gemmbench.regress.compare import match_key
from gemmbench.suite.plan import Tuned, gemm_plan, peak_plan, rebuild_plan
from tests import fake_runs as fake
from tests.in_process import plan_case


def placed(*devices: DeviceFacts) -> list[DeviceFacts]:
    return [replace(device, index=place) for place, device in enumerate(devices)]


def rows(plan: Plan) -> list[Row]:
    return [step.row("ok") for step in plan if isinstance(step, Case)]


def test_every_case_of_every_plan_is_built_again() -> None:
    for device in (fake.CPU, fake.GPU):
        (one,) = placed(device)
        problems = [Gemm(64, 32, 128, dtype, 2.0, 0.5, "mine") for dtype in GEMM_DTYPES[:3]]
        plan = (
            *gemm_plan([one], VARIANTS, problems),
            *peak_plan([one], ALL_DTYPES, WIDTHS, reach="every"),
            *memory_plan([one], tuple(FAMILIES)),
        )
        cases = [step for step in plan if isinstance(step, Case)]
        assert len(cases) > len(LADDER)
        assert list(rebuild_plan(rows(plan), [one], {0: 0})) == cases


def test_parameters_that_were_asked_for_are_kept() -> None:
    (one,) = placed(fake.CPU)
    case = plan_case(one, "tiled", Gemm(64, 64, 64), {"TS": 8})
    assert rebuild_plan([case.row("ok")], [one], {0: 0}) == (case,)


def test_devices_are_at_other_places_now() -> None:
    row = fake.gemm_row("naive", Problem(8, 8, 8), 1.0, device=2)
    host = fake.gemm_row("numpy", Problem(8, 8, 8), 1.0, device=-1)
    peak = fake.peak_row(1, 100.0, device=2)
    steps = rebuild_plan([row, host, peak], placed(fake.GPU, fake.CPU), {2: 1})
    assert [step.device for step in steps if isinstance(step, Case)] == [1, -1, 1]


def test_rows_of_devices_that_are_not_here_have_no_case() -> None:
    row = fake.gemm_row("naive", Problem(8, 8, 8), 1.0, device=1)
    assert rebuild_plan([row], placed(fake.CPU), {0: 0}) == ()


def test_what_this_version_does_not_have_says_so() -> None:
    problem = Problem(8, 8, 8)
    rows_ = [
        fake.gemm_row("gone", problem, 1.0),
        fake.gemm_row("tiled", problem, 1.0, parameters={"ODD": 8}),
        fake.gemm_row("tiled", problem, 1.0, parameters={"TS": "eight"}),
        fake.gemm_row("tiled", problem, 1.0, parameters={"TS": 0}),
        replace(fake.peak_row(1, 1.0), variant="gone"),
        replace(fake.peak_row(1, 1.0), parameters={"width": 3}),
        replace(fake.peak_row(1, 1.0), device=HOST),
    ]
    steps = rebuild_plan(rows_, placed(fake.CPU), {0: 0})
    assert all(isinstance(step, Skip) for step in steps)
    found = [step.row for step in steps if isinstance(step, Skip)]
    assert {row.status for row in found} == {"unsupported"}
    assert all(row.reason.startswith("this version has no ") for row in found)
    assert [row.key for row in found] == [row.key for row in rows_]


def test_a_preset_is_measured_as_it_is_today_and_what_the_user_gave_as_it_was() -> None:
    """A preset that became twelve times slower is to be seen: the base's parameters were its defaults."""
    (one,) = placed(fake.CPU)
    today = plan_case(one, "tiled", Gemm(64, 64, 64))
    given = plan_case(one, "tiled", Gemm(64, 64, 64), {"TS": 8})
    assert (today.given, given.given) == ((), ("TS",))
    assert today.parameters != {"TS": 8}
    old = replace(today.row("ok"), parameters={"TS": 8})
    assert rebuild_plan([old], [one], {0: 0}) == (today,)
    assert rebuild_plan([given.row("ok")], [one], {0: 0}) == (given,)
    unknown = replace(old, given=None)  # of a file that does not say
    (step,) = rebuild_plan([unknown], [one], {0: 0})
    assert step.parameters == {"TS": 8}


def test_interleaved_the_old_kernel_uses_its_old_presets() -> None:
    (one,) = placed(fake.CPU)
    today = plan_case(one, "tiled", Gemm(64, 64, 64))
    old = replace(today.row("ok"), parameters={"TS": 8})
    (step,) = rebuild_plan([old], [one], {0: 0}, "before/kernels")
    assert (step.kernels, step.parameters) == ("", today.parameters)
    assert step.partner == replace(today, kernels="before/kernels", parameters={"TS": 8})


def test_parameters_that_the_tuner_kept_stay() -> None:
    (one,) = placed(fake.CPU)
    today = plan_case(one, "tiled", Gemm(64, 64, 64), tuned=lambda *_: Tuned({"TS": 8}, "tuned"))
    (step,) = rebuild_plan([today.row("ok")], [one], {0: 0})
    assert step.parameters == {"TS": 8}


def test_a_row_without_a_case_pairs_with_its_old_row() -> None:
    gone = replace(fake.gemm_row("gone", Problem(8, 8, 8), 1.0, parameters={"TS": 16}), given=())
    (step,) = rebuild_plan([gone], placed(fake.CPU), {0: 0})
    assert isinstance(step, Skip)
    assert match_key(step.row, 0) == match_key(gone, 0)
