"""One row's figure, the noise floor, and the verdict on either side of every border."""

from __future__ import annotations

import math
import random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gemmbench.model.row import Partner, Problem, Row, Scope
from gemmbench.options.rules import Limits
from gemmbench.regress import verdict as floors
from gemmbench.regress.verdict import VERDICTS, Noise, Spread, judge
from gemmbench.stats.intervals import EXACT, Measure, mean
from gemmbench.stats.rates import former, in_turn, measure
from tests import fake_runs as fake

QUIET = Spread(1e-4, 30)


def row(seconds: tuple[float, ...]) -> Row:
    from dataclasses import replace

    made = fake.gemm_row("tiled", Problem(64, 64, 64), 4.0)
    return replace(made, samples={"kernel": Scope(seconds, 4, "stable")})


def exact(ratio: float) -> list[Measure]:
    return [Measure(math.log(ratio), 1e-5, 9)]


# --- the figure --------------------------------------------------------------------------------------------


def test_the_figure_is_the_median_for_each_flop() -> None:
    found = measure(row((1e-3, 3e-3, 2e-3)))
    assert found is not None
    assert found.value == pytest.approx(math.log(2e-3 / (2 * 64**3)))


def test_too_few_samples_have_no_known_error() -> None:
    found = measure(row((1e-3, 2e-3)))
    assert found is not None
    assert math.isinf(found.error)


def test_equal_samples_have_no_error() -> None:
    found = measure(row((1e-3,) * 10))
    assert found is not None
    assert found.error == 0


def test_samples_that_follow_each_other_count_for_less() -> None:
    draw = random.Random(1)
    steps, level = [], 0.0
    for _ in range(40):
        level = 0.9 * level + draw.gauss(0, 0.01)
        steps.append(math.exp(level) * 1e-3)
    shuffled = list(steps)
    draw.shuffle(shuffled)
    wandering, mixed = measure(row(tuple(steps))), measure(row(tuple(shuffled)))
    assert wandering is not None
    assert mixed is not None
    assert wandering.error > 1.5 * mixed.error
    assert wandering.freedom < mixed.freedom


def test_a_scope_that_was_not_measured_falls_back_to_the_finest() -> None:
    made = fake.gemm_row("numpy", Problem(64, 64, 64), 60.0, -1)
    assert measure(made, "kernel") == measure(made, "host")
    assert measure(fake.bad("tiled", Problem(8, 8, 8), "crashed", "")) is None


def test_a_ratio_and_a_mean_of_figures() -> None:
    one, other = Measure(1.0, 0.03, 5), Measure(0.4, 0.04, 9)
    assert one.over(other) == Measure(0.6, 0.05, 5)
    assert mean([one, other]) == Measure(0.7, 0.025, 14)


# --- the floor ---------------------------------------------------------------------------------------------


def test_repetitions_show_the_noise() -> None:
    draw = np.random.default_rng(0)
    groups = {key: [list(draw.normal(0, 0.02, 6))] for key in range(200)}
    found = floors.measured(groups, "A/A")
    assert found is not None
    assert found.typical == pytest.approx(0.02, rel=0.05)
    assert found.worth == 30  # rows of one variance tell all of each other
    assert found.of(0).freedom == 35


def test_rows_of_unlike_noise_tell_little_of_each_other() -> None:
    draw = np.random.default_rng(0)
    groups: dict[int | str, list[list[float]]]
    groups = {key: [list(draw.normal(0, 0.001 * 10 ** draw.uniform(0, 2), 8))] for key in range(100)}
    groups["loud"] = [list(draw.normal(0, 0.2, 8))]
    found = floors.measured(groups, "A/A")
    assert found is not None
    assert found.worth < 4
    assert found.of("loud").deviation > 4 * found.of("never seen").deviation


def test_without_repetitions_nothing_is_measured() -> None:
    assert floors.measured({"a": [[1.0], []], "b": []}, "") is None
    assert floors.scattered([0.1] * 11) is None
    assert floors.assumed().of("any").deviation == floors.ASSUMED


def test_groups_of_a_row_may_lie_apart() -> None:
    """Bases and new runs have means of their own: only what is within a group is noise."""
    found = floors.measured({"a": [[0.0, 0.01, -0.01], [1.0, 1.01, 0.99]]}, "")
    assert found is not None
    assert found.typical == pytest.approx(0.01)


def test_one_sided_changes_do_not_pass_for_noise() -> None:
    draw = np.random.default_rng(0)
    ratios = draw.normal(0, 0.01, 60)
    plain = floors.scattered(list(ratios))
    ratios[:24] += 0.3  # two rows of five have become slower
    changed = floors.scattered(list(ratios))
    assert plain is not None
    assert changed is not None
    assert plain.typical == pytest.approx(0.01, rel=0.3)
    assert changed.typical < 0.02


# --- the verdict -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("ratio", "verdict"),
    [
        (1.0, "same"),
        (1.0495, "same"),
        (1.05, "inconclusive"),
        (1.0505, "slower"),
        (1.2, "slower"),
        (1 / 1.0495, "same"),
        (1 / 1.0505, "faster"),
        (0.5, "faster"),
    ],
)
def test_borders_of_the_threshold(ratio: float, verdict: str) -> None:
    found = judge(exact(1.0), exact(ratio), QUIET, Limits(0.05))
    assert found.verdict == verdict
    assert found.ratio == pytest.approx(ratio)
    assert found.may_be_slower == (ratio >= 1.05)


def test_the_floor_enters_the_verdict() -> None:
    loud = judge(exact(1.0), exact(1.08), Spread(0.04, 30), Limits(0.05))
    assert (loud.verdict, loud.may_be_slower) == ("inconclusive", True)
    assert loud.reason == "the noise from run to run is wider than the threshold"
    assert judge(exact(1.0), exact(1.08), QUIET, Limits(0.05)).verdict == "slower"


def test_more_runs_narrow_the_interval_and_a_stricter_confidence_widens_it() -> None:
    spread = Spread(0.01, 30)
    one = judge(exact(1.0), exact(1.0), spread, Limits())
    many = judge(exact(1.0) * 4, exact(1.0) * 4, spread, Limits())
    sure = judge(exact(1.0), exact(1.0), spread, Limits(0.05, 0.99))
    assert math.log(many.high) == pytest.approx(math.log(one.high) / 2)
    assert sure.high > one.high


def test_noisy_samples_count_where_they_are_noisier_than_the_floor() -> None:
    noisy = [Measure(0.0, 0.1, 9)]
    found = judge(exact(1.0), noisy, QUIET, Limits())
    assert found.reason == "its own samples are noisier than the threshold"
    assert found.low == pytest.approx(math.exp(-0.1 * 2.262), rel=0.001)  # Student's, of 9 degrees of freedom


def test_a_row_of_two_samples_is_never_judged() -> None:
    found = judge(exact(1.0), [Measure(1.0, math.inf, 1)], QUIET, Limits())
    assert (found.verdict, found.may_be_slower) == ("inconclusive", True)
    assert found.reason == "too few samples to tell how certain they are"


def test_what_is_the_same_or_faster_cannot_be_slower() -> None:
    found = judge(exact(1.0), exact(0.96), Spread(0.01, 30), Limits())
    assert (found.verdict, found.may_be_slower) == ("inconclusive", False)
    assert found.reason == "the same or faster, not slower"


@settings(deadline=None)
@given(
    st.lists(st.floats(-20, 20), min_size=1, max_size=4),
    st.lists(st.floats(-20, 20), min_size=1, max_size=4),
    st.floats(1e-5, 1),
    st.floats(0.001, 0.9),
)
def test_a_verdict_is_never_a_nan(
    base: list[float], new: list[float], deviation: float, threshold: float
) -> None:
    before, after = ([Measure(value, 0.01, 9) for value in side] for side in (base, new))
    found = judge(before, after, Spread(deviation, 5), Limits(threshold))
    assert found.low <= found.ratio <= found.high
    assert found.verdict in VERDICTS
    assert all(math.isfinite(value) for value in (found.low, found.ratio, found.high, found.floor))


def test_coverage_of_the_interval_with_noise_from_run_to_run() -> None:
    """Few, correlated samples within a run, and noise between runs that they cannot show."""
    draw = np.random.default_rng(3)

    def run() -> Measure:
        level = draw.normal(0, 0.02)
        drift = np.cumsum(draw.normal(0, 0.002, 10))
        found = measure(row(tuple(1e-3 * np.exp(level + drift + draw.normal(0, 0.005, 10)))))
        assert found is not None
        return found

    groups = {key: [[run().value for _ in range(5)]] for key in range(40)}
    noise = floors.measured(groups, "A/A")
    assert noise is not None
    found = [judge([run()], [run()], noise.of("new"), Limits()) for _ in range(400)]
    covered = sum(one.low <= 1 <= one.high for one in found) / len(found)
    assert covered >= 0.93
    naive = [judge([run()], [run()], Spread(1e-9, 30), Limits()) for _ in range(400)]
    assert sum(one.low <= 1 <= one.high for one in naive) / len(naive) < 0.5  # what the samples alone say


def test_a_moderated_floor_lies_between_the_row_and_the_typical() -> None:
    noise = Noise(0.01, 4.0, "", {"a": (4 * 0.03**2, 4.0)})
    assert 0.01 < noise.of("a").deviation < 0.03
    assert noise.of("a", [[0.0, 0.2]]).deviation > noise.of("a").deviation


# --- in turn with a former self ----------------------------------------------------------------------------


def in_turn_row(pairs: list[tuple[float, float]]) -> Row:
    from dataclasses import replace

    now, before = zip(*pairs, strict=True)
    return replace(row(now), former=Partner("before", {"kernel": Scope(before, 4, "stable")}))


def test_a_ratio_of_neighbouring_batches_does_not_know_the_machines_speed() -> None:
    draw = random.Random(1)
    moods = [math.exp(draw.gauss(0, 0.5)) * 1e-3 for _ in range(41)]
    made = in_turn_row([(1.04 * mood, mood) for mood in moods])
    found = in_turn(made)
    assert found is not None
    assert found.value == pytest.approx(math.log(1.04))
    assert found.error == pytest.approx(0, abs=1e-9)
    assert former(made) == pytest.approx(sorted(moods)[20])
    assert (in_turn(row((1e-3,) * 9)), in_turn(made, "host")) == (None, found)  # none, and the finest


def test_what_has_no_noise_adds_none_to_the_interval() -> None:
    new = [Measure(math.log(1.03), 1e-5, 9)]
    held = judge([EXACT], new, Spread(0.005, 30), Limits())
    measured = judge([Measure(0.0, 1e-5, 9)], new, Spread(0.005, 30), Limits())
    assert math.log(held.high / held.low) == pytest.approx(
        math.log(measured.high / measured.low) / 2**0.5, rel=1e-4
    )
    assert held.floor < measured.floor
    assert held.ratio == pytest.approx(1.03)


def test_the_floor_of_ratios_has_no_figures_own_error_in_it() -> None:
    """Of 40 unchanged rows with a floor and errors of 2 %, one in twenty intervals may miss."""
    draw = random.Random(3)
    missed = 0
    for _ in range(2000):
        new = [Measure(draw.gauss(0, 0.02 * 2**0.5), 0.02, 500)]
        held = judge([EXACT], new, Spread(0.02, 500), Limits())
        missed += not held.low <= 1 <= held.high
    assert 0.04 < missed / 2000 < 0.06


def test_a_look_that_was_disturbed_hardly_widens_the_interval_of_several() -> None:
    """Its error, ten times the others', made a planted slowdown of 5 % inconclusive at 2.5 %."""
    good = [Measure(math.log(1.05), 0.004, 50)] * 3
    spread, limits, noise = Spread(0.005, 6), Limits(0.025), Noise(0.005, 4, "")
    without = floors.conclude([EXACT], good, spread, limits, noise, "row")
    disturbed = [*good, Measure(math.log(1.04), 0.06, 20)]
    made = floors.conclude([EXACT], disturbed, spread, limits, noise, "row")
    assert (without.verdict, made.verdict) == ("slower", "slower")
    assert made.high - made.low == pytest.approx(without.high - without.low, rel=0.15)
    few = floors.conclude([EXACT], disturbed[2:], spread, limits, noise, "row")  # of two, the mean
    assert few.verdict == "inconclusive"


def test_a_median_of_ratios_lies_in_its_interval_as_often_as_it_says() -> None:
    draw = random.Random(4)
    for count in (3, 6, 10):
        missed = 0
        for _ in range(2000):
            new = [Measure(draw.gauss(0, 0.02 * 2**0.5), 0.02, 500) for _ in range(count)]
            held = judge([EXACT], new, Spread(0.02, 500), Limits())
            missed += not held.low <= 1 <= held.high
        assert 0.02 < missed / 2000 < 0.06, count


def test_what_comes_second_in_a_pair_is_no_change() -> None:
    """It takes 4 % longer, whichever of the two it is; of an odd number of pairs too."""
    pairs = [(1.04, 1.0), (1.0, 1.04)] * 6
    for some in (pairs, pairs[:-1]):
        found = in_turn(in_turn_row(some))
        assert found is not None
        assert found.value == pytest.approx(0)
        assert found.error == pytest.approx(0, abs=1e-9)


def test_a_ratio_in_turn_is_slower_at_99_percent() -> None:
    spread, limits, noise = Spread(0.005, 8), Limits(), Noise(0.005, 8, "")
    for ratio, verdict in ((1.07, "slower"), (1.0615, "inconclusive")):
        new = [Measure(math.log(ratio), 0.003, 30)] * 3
        assert floors.judge([EXACT], new, spread, limits).verdict == "slower"
        assert floors.conclude([EXACT], new, spread, limits, noise, "row").verdict == verdict


def test_a_slowdown_of_the_resolution_is_found_in_19_of_20_trials() -> None:
    draw = random.Random(1)
    noise = Noise(0.01, 200.0, "", {"row": (0.0, 0.0)})
    spread = noise.of("row")

    def runs(factor: float, count: int) -> list[Measure]:
        return [Measure(draw.gauss(math.log(factor), 0.01), 0.0, 9) for _ in range(count)]

    least = floors.resolution(runs(1, 2), runs(1, 2), spread, Limits(), noise, "row")
    assert 0.07 < least < 0.12
    found = [
        floors.conclude(runs(1, 2), runs(1 + least, 2), spread, Limits(), noise, "row").verdict
        for _ in range(400)
    ]
    assert 0.92 <= found.count("slower") / 400 <= 0.98


def test_a_scatter_that_errors_explain_leaves_the_least() -> None:
    noise = Noise(0.02, 10, "from how rows scatter")
    assert noise.beyond([0.02, 0.03, 0.01]).typical == floors.LEAST_IN_TURN
    assert noise.beyond([0.0]).typical == pytest.approx(0.02)
    assert noise.beyond([0.012]).typical == pytest.approx(0.016)
