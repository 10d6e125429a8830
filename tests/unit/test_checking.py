"""A check with a scripted worker: what becomes of rows that fail, or are skipped, when measured again."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Generator
from dataclasses import replace
from typing import Any, cast

import pytest

from gemmbench.measure.child import Worker
from gemmbench.model.case import Case, Policy
from gemmbench.model.device import Conditions, DeviceFacts
from gemmbench.model.problem import Gemm
from gemmbench.model.row import Partner, Row, RowKey, Scope
from gemmbench.options.rules import Rules
from gemmbench.regress import check
from gemmbench.regress.baseline import Basis
from gemmbench.regress.compare import Comparison, Line, compare
from tests.compare_runs import again, repeated, small
from tests.in_process import NoControl

pytestmark = pytest.mark.usefixtures("steady")

BASE = repeated([again(seed) for seed in range(5)])
Change = Callable[[Row, int], Row]  # a row, and the how manyth measurement of it this is, from 1


class Scripted(NoControl):
    """In the place of the worker: the base's rows, changed."""

    def __init__(self, change: Change) -> None:
        self.change = change
        self.rows = {row.key: row for row in again(9).rows}
        self.times: dict[RowKey, int] = {}

    def stop(self) -> None:
        """Nothing runs."""

    def run(self, case: Case, device: DeviceFacts | None, policy: Policy) -> Generator[Any, None, Row]:
        yield from ()
        self.times[case.key] = self.times.get(case.key, 0) + 1
        return self.change(self.rows[case.key], self.times[case.key])


def slower(row: Row, factor: float) -> Row:
    samples: dict[str, Scope] = {
        name: replace(scope, seconds=tuple(second * factor for second in scope.seconds))
        for name, scope in row.samples.items()
    }
    return replace(row, samples=samples)


def checked(
    change: Change, variants: tuple[str, ...] = ("tiled", "register", "numpy"), rules: Rules | None = None
) -> Comparison:
    """What a check says; it measures the chosen variants."""
    rules = rules or Rules()
    rows = small(variants).rows
    base = replace(BASE, rows=tuple(row for row in BASE.rows if row.variant in variants))
    if rules.in_turn:
        base = replace(base, rows=tuple(replace(row, source="before") for row in base.rows))
    plan = tuple(
        Case(row.kind, row.device, row.variant, row.dtype, row.parameters, gemm(row), row.source)
        for row in rows
    )
    worker = cast(Worker, Scripted(change))
    header = base.header
    job = check.Job(Basis((base,), rules), plan, header, header.policy, worker, clock=lambda: 0.0)
    steps = check.check(job)
    while True:
        try:
            next(steps)
        except StopIteration as ended:
            return cast(Comparison, ended.value)


def gemm(row: Row) -> Gemm:
    assert row.problem is not None
    return Gemm(row.problem.m, row.problem.n, row.problem.k, row.dtype)


def is_(row: Row, variant: str, size: int = 512) -> bool:
    return row.variant == variant and row.problem is not None and row.problem.m == size


def of(found: Comparison, variant: str, size: int = 512) -> Line:
    return next(line for line in found.lines if is_(line.row, variant, size))


def test_a_control_that_crashes_in_a_second_look_is_broken() -> None:
    """At first sight it was as fast as ever; nobody suspects it."""

    def change(row: Row, times: int) -> Row:
        if is_(row, "tiled"):
            return slower(row, 1.2)
        if row.variant == "numpy" and times == 3:
            return replace(row, status="crashed", reason="the process was killed", samples={})
        return row

    found = checked(change)
    (broken,) = (line for line in found.lines if line.verdict == "broken")
    assert broken.row.variant == "numpy"
    assert broken.reason == "measured again: crashed: the process was killed"
    assert of(found, "tiled").verdict == "slower"


@pytest.mark.parametrize(("busy_times", "verdict"), [(99, "inconclusive"), (1, "slower")])
def test_what_other_programs_slow_is_measured_again(busy_times: int, verdict: str) -> None:
    def change(row: Row, times: int) -> Row:
        if not is_(row, "tiled"):
            return row
        control_s = (0.005, 0.006 if times <= busy_times else 0.005)
        return replace(slower(row, 1.2), ran_on="host", conditions=Conditions(control_s=control_s))

    mine = of(checked(change), "tiled")
    assert mine.verdict == verdict
    assert (mine.reason == "other programs slowed the CPU") == (busy_times == 99)


def test_a_control_without_any_figure_is_the_reason() -> None:
    def change(row: Row, times: int) -> Row:
        if is_(row, "tiled"):
            return slower(row, 1.2)
        return replace(row, status="skipped", reason="no time", samples={}) if times > 1 else row

    mine = of(checked(change), "tiled")
    assert mine.verdict == "inconclusive"
    assert mine.reason == "its control numpy gave no figure: skipped: no time"


def test_kernels_that_all_became_slower_do_not_excuse_each_other() -> None:
    """No library was measured: nothing tells the machine from the code, which is told."""
    found = checked(lambda row, times: slower(row, 1.25), ("tiled",))
    assert {line.verdict for line in found.lines} == {"slower"}
    assert any("without a control" in remark for remark in found.remarks)


def test_rows_of_one_kernel_of_which_some_are_uncertain_excuse_no_other() -> None:
    def change(row: Row, times: int) -> Row:
        return slower(row, 1.25 if row.problem and row.problem.m >= 512 else 1.05)

    found = checked(change, ("tiled",))
    assert {line.verdict for line in found.lines if line.row.problem and line.row.problem.m >= 512} == {
        "slower"
    }


def skipped(row: Row, needs_s: float = 99.0) -> Row:
    reason = f"one problem takes about {needs_s} s"
    return replace(row, status="skipped", reason=reason, needs_s=needs_s, samples={})


@pytest.mark.parametrize(("always", "verdict"), [(True, "broken"), (False, "same")])
def test_a_row_that_was_too_slow_for_its_budget_is_measured_again(always: bool, verdict: str) -> None:
    found = checked(lambda row, times: skipped(row) if is_(row, "tiled") and (always or times == 1) else row)
    mine = of(found, "tiled")
    assert mine.verdict == verdict
    assert mine.reason.startswith("measured again: skipped: one problem takes" if always else "")
    assert not any(line.fails for line in found.lines if line is not mine)


def test_a_row_that_is_skipped_for_once_in_its_second_looks_goes_on() -> None:
    def change(row: Row, times: int) -> Row:
        if not is_(row, "tiled"):
            return row
        return skipped(row) if times == 3 else slower(row, 1.2)

    assert of(checked(change), "tiled").verdict == "slower"


def test_in_turn_a_suspicious_row_needs_no_control() -> None:
    """The machine becomes slower all the while; the base's rates are no matter."""
    draw = random.Random(1)

    def change(row: Row, times: int) -> Row:
        mood = 1.5 + draw.random()
        before = slower(row, mood * math.exp(draw.gauss(0, 0.003))).samples
        now = slower(row, mood * (1.08 if is_(row, "tiled") else 1.0))
        return replace(now, former=Partner("before", before))

    found = checked(change, ("tiled", "register"), Rules(in_turn=True))
    assert of(found, "tiled").verdict == "slower"
    judgement = of(found, "tiled").judgement
    assert judgement is not None
    assert judgement.ratio == pytest.approx(1.08, rel=0.01)
    assert {line.verdict for line in found.lines if not is_(line.row, "tiled")} == {"same"}
    assert not any("control" in remark for remark in found.remarks)


def test_in_turn_a_row_without_a_former_self_is_missing() -> None:
    def change(row: Row, times: int) -> Row:
        return replace(row, status="unsupported", reason="the kernel in old is wrong", samples={})

    found = checked(change, ("tiled", "register"), Rules(in_turn=True))
    assert {(line.verdict, line.reason) for line in found.lines} == {
        ("missing", "unsupported: the kernel in old is wrong")
    }
    plain = checked(lambda row, times: row, ("tiled", "register"), Rules(in_turn=True))
    assert {(line.verdict, line.reason) for line in plain.lines} == {
        ("missing", "not measured in turn with its former self")
    }


@pytest.mark.parametrize("rules", [Rules(), Rules(in_turn=True)], ids=["plain", "in turn"])
def test_a_row_that_was_too_slow_has_the_figures_of_its_second_looks(rules: Rules) -> None:
    def change(row: Row, times: int) -> Row:
        if is_(row, "tiled") and times == 1:
            return skipped(row, 9.0)
        return replace(row, former=Partner("before", row.samples))

    mine = of(checked(change, rules=rules), "tiled")
    assert mine.verdict == "same"
    assert mine.row.status == "ok"
    assert mine.new_s is not None


def test_a_file_of_a_check_is_the_base_of_the_next() -> None:
    """Its rows' own kernels count, not their former ones."""
    before = {row.key: replace(row, source="v2", former=Partner("v1", row.samples)) for row in again(1).rows}
    base = replace(again(1), rows=tuple(row for row in before.values() if row.variant == "tiled"))
    new = replace(
        again(2),
        rows=tuple(
            replace(row, source="v3", former=Partner("v2", row.samples))
            for row in again(2).rows
            if row.variant == "tiled"
        ),
    )
    found = compare([base], [new], Rules(in_turn=True))
    assert {line.verdict for line in found.lines} == {"same"}
    found = compare([replace(base, rows=new.rows)], [new], Rules(in_turn=True))
    assert {line.verdict for line in found.lines} == {"incomparable"}


def test_equal_kernels_are_told() -> None:
    found = checked(
        lambda row, _: replace(row, source="before", former=Partner("before", row.samples)),
        rules=Rules(in_turn=True),
    )
    assert any(
        remark.endswith("have the same kernel in the other folder as here") for remark in found.remarks
    )
