"""A check with a scripted worker: what becomes of rows that fail, or are skipped, when measured again."""

from __future__ import annotations

import math
import random
import time
from collections.abc import Callable, Generator
from dataclasses import replace
from typing import Any

import pytest

from gemmbench.model.case import Case, Policy
from gemmbench.model.device import Conditions, DeviceFacts
from gemmbench.model.row import Partner, Resources, Row, RowKey
from gemmbench.model.run_file import Run
from gemmbench.regress import check
from gemmbench.regress.compare import ComparedRow, Comparison
from gemmbench.suite.options.comparing import Rules
from tests.compare_runs import again, repeated, small
from tests.fake_runs import slower
from tools.gate_simulation import Quiet, check_with

BASE = repeated([again(seed) for seed in range(5)])
Change = Callable[[Row, int], Row]  # a row, and the number of its measurement, from 1


class Scripted(Quiet):
    """In the place of the worker: the base's rows, changed."""

    def __init__(self, change: Change) -> None:
        self.change = change
        self.rows = {row.key: row for row in again(9).rows}
        self.times: dict[RowKey, int] = {}

    def run(self, case: Case, device: DeviceFacts | None, policy: Policy) -> Generator[Any, None, Row]:
        yield from ()
        self.times[case.key] = self.times.get(case.key, 0) + 1
        return self.change(self.rows[case.key], self.times[case.key])


def checked(
    change: Change,
    variants: tuple[str, ...] = ("tiled", "register", "numpy"),
    rules: Rules | None = None,
    patience: float = 0.0,
    clock: Callable[[], float] = time.monotonic,
    baseline: Run = BASE,
) -> Comparison:
    """What a check says; it measures the chosen variants."""
    rules = rules or Rules(0.1)
    base = replace(baseline, rows=tuple(row for row in baseline.rows if row.variant in variants))
    if rules.interleaved:
        base = replace(base, rows=tuple(replace(row, source="before") for row in base.rows))
    return check_with(Scripted(change), [base], rules, small(variants).rows, patience, clock)


def is_(row: Row, variant: str, size: int = 512) -> bool:
    return row.variant == variant and row.problem is not None and row.problem.m == size


def of(found: Comparison, variant: str, size: int = 512) -> ComparedRow:
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


@pytest.mark.parametrize("crash", [2, 3])
def test_a_row_that_crashes_in_a_second_look_is_broken(crash: int) -> None:
    killed = "crashed: the process was killed"

    def change(row: Row, times: int) -> Row:
        if is_(row, "tiled") and times == crash:
            return replace(row, status="crashed", reason="the process was killed", samples={})
        return slower(row, 1.5) if is_(row, "tiled") else row

    mine = of(checked(change), "tiled")
    assert (mine.verdict, mine.reason) == ("broken", f"measured again: {killed}")


def skipped(row: Row, needs_s: float = 99.0) -> Row:
    reason = f"one problem takes about {needs_s} s"
    return replace(row, status="skipped", reason=reason, needs_s=needs_s, samples={})


@pytest.mark.parametrize(("slow_times", "verdict"), [(3, "slower"), (2, "cannot tell"), (0, "unchanged")])
def test_a_row_fails_only_if_every_measurement_of_it_is_slow(slow_times: int, verdict: str) -> None:
    found = checked(lambda row, times: slower(row, 1.5) if is_(row, "tiled") and times <= slow_times else row)
    mine = of(found, "tiled")
    assert mine.verdict == verdict
    assert mine.runs == (5, 3 if slow_times else 1)


@pytest.mark.parametrize(("threshold", "verdict"), [(None, "slower"), (0.1, "slower"), (0.9, "unchanged")])
def test_without_a_given_threshold_one_and_a_half_times_as_long_fails(
    threshold: float | None, verdict: str
) -> None:
    rules = Rules(threshold)
    found = checked(lambda row, times: slower(row, 1.6) if is_(row, "tiled") else row, rules=rules)
    assert of(found, "tiled").verdict == verdict
    less = checked(lambda row, times: slower(row, 1.3) if is_(row, "tiled") else row, rules=Rules())
    assert of(less, "tiled").verdict == "possibly slower"


def test_a_control_that_became_slower_too_excuses_a_row() -> None:
    found = checked(lambda row, times: slower(row, 1.4))
    assert found.ok
    assert any("The machine is slower than in the baseline: its control " in each for each in found.remarks)


def test_a_control_that_changed_too_much_shows_nothing() -> None:
    """A kernel that takes 40 times as long, with a control that takes 203 times as long, is not faster."""
    slow = {"numpy": 203.0, "tiled": 40.0}
    found = checked(lambda row, times: slower(row, slow.get(row.variant, 1.0)))
    mine = of(found, "tiled")
    assert (mine.verdict, mine.reason) == (
        "cannot tell",
        "its control numpy float 512 takes 203 times as long",
    )
    assert mine.ratio.median == pytest.approx(40, rel=0.05)
    assert (found.ok, found.is_inconclusive) == (True, True)
    assert any(each.endswith("Stop other programs, or measure a new baseline.") for each in found.remarks)


@pytest.mark.parametrize("first", [True, False])
def test_a_time_shows_nothing_if_its_control_changed_and_no_other_time_counts(first: bool) -> None:
    """The other further measurement, with a steady control, was over its budget."""

    def change(row: Row, times: int) -> Row:
        if is_(row, "tiled"):
            return slower(row, 1.6) if times == 2 or (first and times == 1) else skipped(row)
        return slower(row, 2.0) if row.variant == "numpy" and times in (2, 3) else row

    mine = of(checked(change), "tiled")
    assert (mine.verdict, mine.reason) == (
        "cannot tell",
        "its control numpy float 512 takes 2.00 times as long",
    )


def test_the_times_and_changes_of_a_row_allow_for_its_control() -> None:
    found = checked(lambda row, times: slower(row, 1.4 if row.variant == "numpy" else 1.8))
    mine = of(found, "tiled")
    assert mine.base_s is not None
    assert mine.new_s is not None
    assert mine.ratio.median == pytest.approx(1.8 / 1.4, rel=0.05)
    assert mine.new_s / mine.base_s == pytest.approx(mine.ratio.median)


@pytest.mark.parametrize(("burst_s", "verdict"), [(0.0051, "slower"), (0.0056, "cannot tell")])
def test_other_programs_excuse_a_row_of_a_cpu(burst_s: float, verdict: str) -> None:
    """The kernel alone takes longer, as if only its cores were shared."""
    quiet = Conditions(control_s=(0.005, 0.005))
    base = replace(BASE, rows=tuple(replace(row, conditions=quiet) for row in BASE.rows))

    def change(row: Row, times: int) -> Row:
        row = slower(row, 2.2) if is_(row, "tiled") else row
        return replace(row, conditions=Conditions(control_s=(0.005, burst_s if times == 3 else 0.005)))

    found = checked(change, baseline=base)
    assert of(found, "tiled").verdict == verdict
    assert of(found, "tiled").reason == (
        "" if verdict == "slower" else "control bursts differ by more than 5.0 %: stop other programs"
    )


def test_changed_resources_fail_whatever_further_measurements_show() -> None:
    rules = Rules(0.1, fail_on=frozenset({"resources"}))
    built = Resources("tiled", "multiply", 256, 1024, 32, 0, 2048, registers=32, spill_bytes=0)
    base = replace(BASE, rows=tuple(replace(row, resources=(built,)) for row in BASE.rows))

    def change(row: Row, times: int) -> Row:
        row = replace(row, resources=(replace(built, registers=48 if is_(row, "tiled") else 32),))
        return slower(row, 1.5) if is_(row, "tiled") and times == 1 else row

    mine = of(checked(change, rules=rules, baseline=base), "tiled")
    assert (mine.verdict, mine.reason) == ("resources changed", "tiled: 48 registers, not 32")


def test_slower_kernels_are_not_each_others_control() -> None:
    found = checked(lambda row, times: slower(row, 1.25), ("tiled",))
    assert {line.verdict for line in found.lines} == {"slower"}


@pytest.mark.parametrize(
    ("factor", "control"), [(0.8, 512), (0.5, 64), (1.2, 64)], ids=["faster", "too fast", "slower"]
)
def test_with_one_baseline_a_kernel_that_became_a_little_faster_is_a_control(
    factor: float, control: int
) -> None:
    """The control is of the same problem, if that kernel is fit."""
    order: list[tuple[str, int]] = []

    def change(row: Row, times: int) -> Row:
        order.append((row.variant, row.problem.m))
        if is_(row, "tiled"):
            return slower(row, 1.5)
        return slower(row, factor) if is_(row, "register") else row

    kernels = ("tiled", "register")
    checked(change, kernels, Rules(), baseline=again(1))
    looks = order[len(small(kernels).rows) :]
    around = looks[looks.index(("tiled", 512)) - 1]
    assert around[1] == control


def test_only_suspicious_rows_are_measured_again_between_two_measurements_of_their_control() -> None:
    order: list[tuple[str, int]] = []

    def change(row: Row, times: int) -> Row:
        order.append((row.variant, row.problem.m))
        return slower(row, 1.5) if is_(row, "tiled") else row

    checked(change)
    assert order[len(small().rows) :] == [("numpy", 512), ("tiled", 512), ("numpy", 512)] * 2


@pytest.mark.parametrize(("always", "verdict"), [(True, "broken"), (False, "unchanged")])
def test_a_row_that_was_too_slow_for_its_budget_is_measured_again(always: bool, verdict: str) -> None:
    found = checked(lambda row, times: skipped(row) if is_(row, "tiled") and (always or times == 1) else row)
    mine = of(found, "tiled")
    assert mine.verdict == verdict
    assert mine.reason.startswith("measured again: skipped: one problem takes" if always else "")
    assert not any(line.fails for line in found.lines if line is not mine)


def test_a_row_over_its_budget_that_needs_no_more_time_than_before_is_not_broken() -> None:
    found = checked(lambda row, times: skipped(row, 1e-6) if is_(row, "tiled") else row)
    mine = of(found, "tiled")
    assert (mine.verdict, mine.reason) == ("cannot tell", "over its budget; raise --budget")
    assert not mine.lost


def test_interleaved_a_suspicious_row_needs_no_control() -> None:
    """The machine becomes slower all the while; the base's rates are no matter."""
    draw = random.Random(1)

    def change(row: Row, times: int) -> Row:
        pairs = [1.5 + draw.random() for _ in range(40)]
        factor = 1.08 if is_(row, "tiled") else 1.0
        first = [mood * factor * math.exp(draw.gauss(0, 0.003)) for mood in pairs]
        samples, before = (
            {name: replace(scope, seconds=tuple(seconds)) for name, scope in row.samples.items()}
            for seconds in (first, pairs)
        )
        return replace(row, samples=samples, former=Partner("before", before))

    found = checked(change, ("tiled", "register"), Rules(0.05, interleaved=True))
    assert of(found, "tiled").verdict == "slower"
    ratio = of(found, "tiled").ratio
    assert ratio.median == pytest.approx(1.08, rel=0.01)
    assert {line.verdict for line in found.lines if not is_(line.row, "tiled")} == {"unchanged"}
    assert not any("control" in remark for remark in found.remarks)


def alternating(row: Row, factor: float, draw: random.Random, spread: float, pairs: int = 40) -> Row:
    """A row whose batches alternate with those of an old kernel, each with noise of its own."""
    sides = [
        {
            name: replace(scope, seconds=tuple(level * math.exp(draw.gauss(0, spread)) for _ in range(pairs)))
            for name, scope in row.samples.items()
        }
        for level in (factor, 1.0)
    ]
    return replace(row, samples=sides[0], former=Partner("before", sides[1]))


def test_interleaved_a_row_that_crashes_in_a_second_look_is_broken() -> None:
    draw = random.Random(1)

    def change(row: Row, times: int) -> Row:
        if is_(row, "tiled") and times == 2:
            return replace(row, status="crashed", reason="the process was killed", samples={})
        return alternating(row, 1.5 if is_(row, "tiled") else 1.0, draw, 0.003)

    mine = of(checked(change, ("tiled", "register"), Rules(0.05, interleaved=True)), "tiled")
    assert (mine.verdict, mine.reason) == ("broken", "measured again: crashed: the process was killed")


@pytest.mark.parametrize(
    ("patience", "factor", "rounds", "verdict"),
    [
        (0, 1.03, 1, "cannot tell"),
        (9, 1.03, 10, "cannot tell"),
        (99, 1.0, 0, "unchanged"),
        (0, 1.2, 3, "slower"),
    ],
)
def test_interleaved_a_row_that_cannot_be_judged_is_sampled_within_the_patience(
    patience: float, factor: float, rounds: int, verdict: str
) -> None:
    """Each measurement takes a second. A row that is slower is confirmed twice, without any patience."""
    draw, counts = random.Random(1), [0]

    def change(row: Row, times: int) -> Row:
        if not is_(row, "tiled"):
            return alternating(row, 1.0, draw, 0.001)
        counts[0] = times
        return alternating(row, factor, draw, 0.07)

    rules = Rules(0.03, interleaved=True)
    found = checked(change, ("tiled", "register"), rules, patience, clock=lambda: counts[0])
    mine = of(found, "tiled")
    assert mine.verdict == verdict
    assert counts[0] == rounds or (rounds == 0 and 1 < counts[0] < 99)
    assert mine.runs == (1, counts[0])
    assert mine.ratio.low < factor < mine.ratio.high
    assert mine.base_s is not None
    assert mine.new_s is not None
    assert mine.new_s / mine.base_s == pytest.approx(mine.ratio.median)


@pytest.mark.parametrize("factor", [0.8, 1.2])
def test_interleaved_a_change_that_further_measurements_do_not_confirm_is_none(factor: float) -> None:
    """The first measurement has so many pairs that all of them together still show it."""
    draw, counts = random.Random(1), [0]

    def change(row: Row, times: int) -> Row:
        if not is_(row, "tiled"):
            return alternating(row, 1.0, draw, 0.001)
        counts[0] = times
        return alternating(row, factor if times == 1 else 1.0, draw, 0.001, 400 if times == 1 else 40)

    mine = of(checked(change, ("tiled", "register"), Rules(0.05, interleaved=True)), "tiled")
    assert (mine.verdict, mine.reason) == ("cannot tell", "further measurements do not confirm it")
    assert mine.ratio.median == pytest.approx(factor, rel=0.01)
    assert counts[0] == 1 + 2 * check.LOOKS


def test_interleaved_a_row_without_an_old_kernel_is_missing() -> None:
    def change(row: Row, times: int) -> Row:
        return replace(row, status="unsupported", reason="the kernel in old is wrong", samples={})

    found = checked(change, ("tiled", "register"), Rules(0.05, interleaved=True))
    assert {(line.verdict, line.reason) for line in found.lines} == {
        ("missing", "unsupported: the kernel in old is wrong")
    }
    plain = checked(lambda row, times: row, ("tiled", "register"), Rules(0.05, interleaved=True))
    assert {(line.verdict, line.reason) for line in plain.lines} == {
        ("missing", "not interleaved with its old kernel")
    }


@pytest.mark.parametrize("rules", [Rules(), Rules(0.05, interleaved=True)], ids=["plain", "interleaved"])
def test_a_row_that_was_too_slow_has_the_figures_of_its_second_looks(rules: Rules) -> None:
    def change(row: Row, times: int) -> Row:
        if is_(row, "tiled") and times == 1:
            return skipped(row, 9.0)
        return replace(row, former=Partner("before", row.samples))

    mine = of(checked(change, rules=rules), "tiled")
    assert mine.verdict == "unchanged"
    assert mine.row.status == "ok"
    assert mine.new_s is not None


def test_equal_kernels_are_reported() -> None:
    found = checked(
        lambda row, _: replace(row, source="before", former=Partner("before", row.samples)),
        rules=Rules(0.05, interleaved=True),
    )
    assert any(remark == "The other folder has the same kernels." for remark in found.remarks)
