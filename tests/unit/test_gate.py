"""The gate's decisions, driven by scripted figures: no clock, no device."""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from gemmbench.options.rules import LEAST_ROUNDS, Limits
from gemmbench.regress.gate import FAILED, Answer, Settled, Suspect, Wanted, controls, settle
from gemmbench.regress.verdict import Noise, Reach, Recorded
from gemmbench.stats.intervals import EXACT, Measure


def known(deviation: float) -> Noise:
    """A floor that repetitions of some other row have shown."""
    return Noise(deviation, 30.0, "measured", {"another": (deviation**2, 1.0)})


NOISE = known(0.005)
Machine = Callable[[Wanted, int], Answer]


def figure(ratio: float) -> Measure:
    return Measure(math.log(ratio), 0.001, 20)


ROW: Any = "row"  # keys
CONTROL: Any = "control"
NUMPY: Any = ["numpy"]
BASE = tuple(figure(1.0) for _ in range(5))


def suspect(key: Any = ROW, control: Any = CONTROL) -> Suspect:
    return Suspect(key, BASE, Limits(), control, BASE if control else ())


def drive(
    suspects: list[Suspect], answer: Machine, noise: Noise = NOISE, spent: Callable[[], bool] = lambda: False
) -> tuple[tuple[Settled, ...], list[Wanted]]:
    """Let the gate have what it wants; what became of the suspects, and what it wanted."""
    steps = settle(suspects, noise, spent)
    asked: list[Wanted] = []
    answered: Answer = None
    while True:
        try:
            wanted = steps.send(answered)
        except StopIteration as ended:
            return ended.value, asked
        asked.append(wanted)
        answered = answer(wanted, len(asked))


def fixed(**ratios: float) -> Machine:
    return lambda wanted, _: figure(ratios[str(wanted.key)])


def verdicts(found: tuple[Settled, ...]) -> list[str]:
    return [one.judgement.verdict if one.judgement else "" for one in found]


def test_rows_stand_between_measurements_of_the_control_in_a_process_of_their_round() -> None:
    _, asked = drive([suspect("a"), suspect("b")], fixed(a=1.0, b=1.2, control=1.0))
    assert [one.key for one in asked[:5]] == ["control", "a", "control", "b", "control"]
    assert [one.fresh for one in asked[:6]] == [True, False, False, False, False, True]


@pytest.mark.parametrize(("ratio", "verdict"), [(1.2, "slower"), (1.0, "same"), (0.5, "faster")])
def test_a_clear_case_is_settled_after_the_least_rounds(ratio: float, verdict: str) -> None:
    found, asked = drive([suspect()], fixed(row=ratio, control=1.0))
    assert verdicts(found) == [verdict]
    assert len(found[0].new) == LEAST_ROUNDS
    assert sum(one.fresh for one in asked) == LEAST_ROUNDS


def test_a_settled_row_is_left_alone_and_an_open_one_goes_on() -> None:
    found, asked = drive([suspect("a"), suspect("b")], fixed(a=1.0, b=1.05, control=1.0))
    assert verdicts(found) == ["same", "inconclusive"]
    assert sum(one.key == "a" for one in asked) == LEAST_ROUNDS
    assert sum(one.key == "b" for one in asked) == 10


def test_slower_takes_more_confidence_the_more_rows_a_job_has() -> None:
    """Each row is a chance of a false alarm: with fifty, 1.07 is past the threshold, and not surely so."""
    wide = Recorded(
        "recorded", (0.0, 1.0), ((Reach(1, 1, *3 * [(-9.0, 9.0)]), Reach(3, 1, *3 * [(-9.0, 9.0)])),)
    )
    for rows, verdict in ((1, "slower"), (50, "inconclusive")):
        noise = replace(known(0.01), recorded=dict.fromkeys(map(str, range(rows)), wide))
        found, _ = drive([suspect()], fixed(row=1.0695, control=1.0), noise, Limit(3 * 3))
        assert verdicts(found) == [verdict]
    assert found[0].judgement is not None
    assert found[0].judgement.reason.startswith("slower, but among such rows")


class Limit:
    """Time for so many questions whether it is over."""

    def __init__(self, times: int) -> None:
        self.left = times

    def __call__(self) -> bool:
        self.left -= 1
        return self.left < 0


def test_what_the_errors_of_looks_explain_of_their_scatter_counts_once() -> None:
    """Looks that scatter by their own errors have no floor beside them but the least."""
    suspect = Suspect(ROW, (EXACT,), Limits(0.01), None)
    widths = []
    for error in (0.006, 1e-4):
        draw = random.Random(2)
        looks = [Measure(math.log(1.02) + draw.gauss(0, 0.006), error, 50) for _ in range(10)]
        each = iter(looks)
        found, _ = drive([suspect], lambda *_: next(each), Noise(0.005, 4, ""))  # noqa: B023  # used at once
        assert found[0].judgement is not None
        widths.append(math.log(found[0].judgement.high / found[0].judgement.low))
    assert widths[0] < 1.25 * widths[1]


def test_a_base_of_one_run_is_judged_by_what_recordings_show() -> None:
    """The least of the new runs of unchanged rows of such devices lay up to 22 % from a single base run."""
    reach = Reach(1, 1, apart=(-9.0, 9.0), scaled=(), least=(-0.2, 0.2))
    recorded = Recorded("recorded", (0.0, 1.0), ((reach,),))
    lone = Suspect(ROW, BASE[:1], Limits(), None)
    noise = Noise(0.01, 30.0, "recorded", recorded={"row": recorded})
    for ratio, verdict in ((1.22, "inconclusive"), (1.32, "slower")):
        found, _ = drive([lone], fixed(row=ratio), noise)
        assert verdicts(found) == [verdict]
    found, _ = drive([lone], lambda _, number: figure(1.5 if number > 2 else 1.2), noise)
    assert verdicts(found) == ["inconclusive"]  # other programs make rounds slower, and none faster


def test_a_machine_that_has_become_slower_is_no_regression() -> None:
    found, asked = drive([suspect()], fixed(row=1.1, control=1.1))
    assert verdicts(found) == ["inconclusive"]
    assert found[0].judgement is not None
    assert found[0].judgement.reason == "the machine itself runs at 0.91 of its speed in the base"
    assert found[0].machine is not None
    assert found[0].machine.verdict == "slower"
    assert sum(one.fresh for one in asked) == LEAST_ROUNDS  # measuring on would say no more


def test_a_row_that_is_slower_than_the_slower_machine_is_one() -> None:
    found, _ = drive([suspect()], fixed(row=1.3, control=1.1))
    assert verdicts(found) == ["slower"]


def test_a_faster_machine_does_not_hide_a_slower_row_as_same() -> None:
    found, _ = drive([suspect()], fixed(row=1.0, control=0.85))
    assert verdicts(found) == ["inconclusive"]


def test_the_first_measurement_does_not_count() -> None:
    """It was chosen for being slow: nothing of it is among a suspect's figures."""
    found, _ = drive([suspect()], fixed(row=1.0, control=1.0))
    assert [one.value for one in found[0].new] == [0.0] * LEAST_ROUNDS


def test_a_row_that_fails_when_it_is_measured_again() -> None:
    def answer(wanted: Wanted, number: int) -> Answer:
        return FAILED if number == 7 else figure(1.0)  # the row in the second round

    found, asked = drive([suspect(), suspect("b")], answer)
    assert found[0].failed
    assert verdicts(found) == ["", "same"]
    assert sum(one.key == "row" for one in asked) == 2


@pytest.mark.parametrize("nothing", [None, FAILED])
def test_a_control_that_fails_counts_no_figure(nothing: Answer) -> None:
    found, _ = drive([suspect()], lambda wanted, _: nothing if wanted.key == "control" else figure(1.2))
    assert verdicts(found) == [""]
    assert not found[0].failed


def test_a_row_without_a_figure_for_once_is_measured_another_time() -> None:
    """It was skipped in a busy moment."""

    def answer(wanted: Wanted, number: int) -> Answer:
        return None if number in (2, 8) else figure(1.0)  # the row in the first round and the third

    found, asked = drive([suspect()], answer)
    assert verdicts(found) == ["same"]
    assert len(found[0].new) == LEAST_ROUNDS
    assert sum(one.fresh for one in asked) == LEAST_ROUNDS + 2


def test_a_control_that_is_surely_a_little_slower_tells_of_the_machine() -> None:
    """It stays within the threshold; the row is past it only with the machine's part, or not for it."""
    quiet = known(0.001)
    found, _ = drive([suspect()], fixed(row=1.07, control=1.04), quiet)
    assert verdicts(found) == ["inconclusive"]
    found, _ = drive([suspect()], fixed(row=1.03, control=0.96), quiet)
    assert verdicts(found) == ["inconclusive"]
    found, _ = drive([suspect()], fixed(row=1.12, control=1.04), quiet)
    assert verdicts(found) == ["slower"]


def test_without_a_control_the_row_alone_decides() -> None:
    found, asked = drive([suspect(control=None)], fixed(row=1.2))
    assert verdicts(found) == ["slower"]
    assert {one.key for one in asked} == {"row"}
    assert asked[0].fresh


def test_time_that_is_over_settles_nothing() -> None:
    found, asked = drive([suspect()], fixed(row=1.2, control=1.0), spent=lambda: True)
    assert (verdicts(found), asked) == ([""], [])
    found, _ = drive([suspect("a"), suspect("b")], fixed(a=1.2, b=1.2, control=1.0), spent=Limit(5))
    assert verdicts(found) == ["inconclusive", "inconclusive"]
    assert found[0].judgement is not None
    assert found[0].judgement.reason == "measured again only 2 of the 3 times that a verdict takes"


def test_a_floor_that_no_repetition_showed_counts_for_little() -> None:
    """The row turns out to be five times as noisy as the scatter of the others had it."""
    draw = random.Random(2)

    def loud(wanted: Wanted, number: int) -> Measure:
        return figure(math.exp(draw.gauss(math.log(1.12), 0.05)) if wanted.key == "row" else 1.0)

    scatter = Noise(0.01, 30.0, "from how rows scatter")
    lone = Suspect(ROW, BASE, Limits(), None)
    widths = []
    for noise in (scatter, known(0.01)):
        draw.seed(2)
        found, _ = drive([lone], loud, noise)
        assert found[0].judgement is not None
        widths.append(found[0].judgement.high / found[0].judgement.low)
    assert widths[0] > 1.03 * widths[1]


def test_nothing_suspicious_wants_nothing() -> None:
    assert drive([], fixed()) == ((), [])


def test_the_control_is_one_that_has_not_changed_from_outside_and_quiet() -> None:
    def candidate(verdict: str, error: float) -> tuple[str, Measure]:
        return verdict, Measure(0.0, error, 9)

    rows: dict[Any, tuple[str, Measure]] = {
        "loud": candidate("same", 0.02),
        "quiet": candidate("same", 0.001),
        "slow": candidate("slower", 0.0001),
        "numpy": candidate("same", 0.01),
    }
    assert controls(rows, NUMPY) == ["numpy", "quiet", "loud"]
    assert (
        controls({k: v for k, v in rows.items() if k == "slow"}, []) == []
    )  # two that regressed would excuse each other
    lost: dict[Any, tuple[str, Measure]] = {
        "slow": rows["slow"],
        "numpy": candidate("slower", 0.01),
        "open": candidate("inconclusive", 0.01),
    }
    assert controls(lost, NUMPY) == ["numpy", "open"]  # the library tells of the machine
    assert controls(lost, NUMPY, NUMPY[0]) == ["open", "slow"]  # and is slower with it alone


# --- how often it is right, on a machine that is made up ---------------------------------------------------


def trial(draw: random.Random, slow: float, deviation: float, threshold: float) -> str:
    """One suspicious row with five base runs and known noise; its verdict."""

    def run(factor: float) -> Measure:
        return Measure(draw.gauss(math.log(factor), deviation), 0.003, 9)

    rows = Suspect(
        ROW, tuple(run(1) for _ in range(5)), Limits(threshold), CONTROL, tuple(run(1) for _ in range(5))
    )
    noise = known(deviation)
    found, _ = drive([rows], lambda wanted, _: run(slow if wanted.key == "row" else 1), noise)
    return verdicts(found)[0]


def test_planted_slowdowns_are_found_and_false_alarms_are_not() -> None:
    draw = random.Random(20261121)
    large = [trial(draw, 1.10, 0.01, 0.05) for _ in range(100)]
    small = [trial(draw, 1.05, 0.005, 0.025) for _ in range(100)]
    none = [trial(draw, 1.00, 0.02, 0.05) for _ in range(500)]
    assert large.count("slower") >= 95
    assert small.count("slower") >= 80
    assert none.count("slower") == 0
