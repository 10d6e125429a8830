"""The sampling loop, with scripted samples and a scripted clock."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Iterator

import pytest

from gemmbench.measure.sampling import batch_size, least_s
from gemmbench.model.case import Policy
from tests.fake_instrument import sample

POLICY = Policy(budget_s=10, settle_s=3, batch_s=0.01, max_batch_s=0.2, min_batches=10, precision=0.01)


class Script:
    """A batch function that takes the scripted seconds for one problem, and the clock it moves."""

    def __init__(self, seconds: Iterable[float]) -> None:
        self.seconds: Iterator[float] = iter(seconds)
        self.now = 100.0
        self.batches: list[int] = []

    def clock(self) -> float:
        return self.now

    def run(self, count: int) -> dict[str, float]:
        one = next(self.seconds)
        self.now += one * count
        self.batches.append(count)
        return {"kernel": one, "device": 2 * one}


def test_steady_samples_stop_at_the_least_number_of_batches() -> None:
    script = Script(itertools.repeat(0.001))
    samples = sample(script.run, POLICY, 10, script.clock)
    assert samples["kernel"].stop == "stable"
    assert len(samples["kernel"].seconds) == 10
    assert samples["kernel"].batch == 10  # 10 ms of 1 ms problems
    assert samples["device"].seconds == (0.002,) * 10


def test_noisy_samples_use_the_budget_and_say_so() -> None:
    script = Script(itertools.cycle([0.001, 0.004]))
    samples = sample(script.run, POLICY, 1.0, script.clock)
    assert samples["kernel"].stop == "budget"
    assert script.now - 100 == pytest.approx(1.0, abs=0.05)


def test_settling_waits_for_three_batches_that_agree_and_keeps_none() -> None:
    warming = [0.001, 0.001, 0.001, 0.004, 0.003, 0.002, 0.0015]
    script = Script(itertools.chain(warming, itertools.repeat(0.001)))
    samples = sample(script.run, POLICY, 10, script.clock)
    assert set(samples["kernel"].seconds) == {0.001}
    # three to size the batch, four that differ, three that agree, ten samples
    assert len(script.batches) == 3 + 4 + 3 + 10


class Asleep(Script):
    """A device whose first problem takes long, and which is waited for after each batch."""

    def __init__(self, first_s: float, wait_s: float) -> None:
        super().__init__(itertools.chain([first_s], itertools.repeat(1e-5)))
        self.wait_s = wait_s

    def run(self, count: int) -> dict[str, float]:
        self.now += self.wait_s
        return super().run(count)


@pytest.mark.parametrize(("first_s", "wait_s"), [(1e-5, 0.0), (0.02, 0.0), (1e-5, 2e-4), (0.02, 2e-4)])
def test_batches_are_long_whatever_the_first_problem_took(first_s: float, wait_s: float) -> None:
    script = Asleep(first_s, wait_s)
    samples = sample(script.run, POLICY, 1.0, script.clock)
    assert samples["kernel"].batch * (1e-5 + wait_s / samples["kernel"].batch) >= 0.9 * POLICY.batch_s


def test_what_takes_a_tenth_of_the_budget_is_looked_at_once() -> None:
    script = Script(itertools.repeat(0.2))
    sample(script.run, POLICY, 1.0, script.clock)
    assert script.now - 100 == pytest.approx(1.0, abs=0.21)


def test_settling_gives_up_after_a_third_of_the_budget() -> None:
    script = Script(itertools.cycle([0.001, 0.003]))
    sample(script.run, POLICY, 0.6, script.clock)
    assert script.now - 100 < 0.7


def test_a_long_problem_is_sampled_three_times_whatever_the_budget() -> None:
    script = Script(itertools.repeat(2.0))
    samples = sample(script.run, POLICY, 1.0, script.clock)
    assert len(samples["kernel"].seconds) == 3
    assert samples["kernel"].batch == 1


def test_no_batch_is_longer_than_allowed() -> None:
    assert batch_size(0.15, POLICY) == 1
    assert batch_size(0.0001, POLICY) == 100
    assert batch_size(1e-9, POLICY) == 1000
    assert batch_size(0.0, POLICY) == 1000
    assert batch_size(5.0, POLICY) == 1


def test_what_a_row_costs_at_least() -> None:
    assert least_s(1.0) == 7.0


def test_a_sample_that_is_not_a_time_is_refused() -> None:
    script = Script(itertools.repeat(math.nan))
    script.now = 0.0
    with pytest.raises(ValueError, match="positive finite"):
        sample(lambda _: {"kernel": math.nan}, POLICY, 10, lambda: 0.0, one_s=0.01, settle=False)
