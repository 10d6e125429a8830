"""How a run's rows share out the time, and what each may take of it."""

from __future__ import annotations

from collections.abc import Generator

import pytest

from gemmbench.model.case import Case, Finished, Planned, Policy, Staged
from gemmbench.model.device import DeviceFacts
from gemmbench.model.problem import Gemm
from gemmbench.model.row import Row, Scope
from gemmbench.suite import session
from gemmbench.suite.session import Shares, with_budget
from tests import fake_runs as fake

SHARED = Policy(total_s=90.0)


def cases(count: int, kind: str = "gemm") -> tuple[Case, ...]:
    return tuple(
        Case(kind, 0, "naive", "float", {}, Gemm(64 << number % 6, 64, 64))  # type: ignore[arg-type]
        for number in range(count)
    )


def test_few_rows_have_the_whole_budget_each_and_many_four_shares() -> None:
    assert with_budget(SHARED, cases(25)).budget_s == 3.0
    assert with_budget(SHARED, cases(144)).budget_s == pytest.approx(2.5)
    assert with_budget(SHARED, (*cases(720), *cases(80, "peak"))).budget_s == pytest.approx(0.5)
    assert with_budget(Policy(budget_s=7.0), cases(720)).budget_s == 7.0  # given: it is every row's


def test_what_a_row_leaves_goes_to_those_after_it() -> None:
    now = 0.0
    shares = Shares(SHARED, 100, lambda: now)
    (case,) = cases(1)
    assert shares.next(case).share_s == pytest.approx(0.9)
    now = 0.2
    assert shares.next(case).share_s == pytest.approx(89.8 / 99)
    now = 80.0
    assert shares.next(case).share_s == pytest.approx(10 / 98, abs=0.02)
    now = 100.0  # slow rows have taken more: the others still have batches enough, if shorter ones
    late = shares.next(case)
    assert late.share_s == pytest.approx(0.12)
    assert late.batch_s * 2 * late.min_batches < 0.12
    assert late.budget_s == 3.0  # what may be skipped does not depend on the hour


def test_a_peak_is_no_sharer_and_a_given_budget_is_not_shared() -> None:
    (gemm,), (peak,) = cases(1), cases(1, "peak")
    policy = with_budget(SHARED, cases(720))
    assert Shares(policy, 720).next(peak).budget_s == 3.0
    assert Shares(policy, 720).next(peak).share_s is None
    given = Policy(budget_s=1.0)
    assert Shares(given, 720).next(gemm) == given


class Child:
    """Runs everything; keeps what it was asked for."""

    def __init__(self) -> None:
        self.asked: list[tuple[Case, Policy]] = []

    def run(self, case: Case, device: DeviceFacts | None, policy: Policy) -> Generator[Staged, None, Row]:
        self.asked.append((case, policy))
        yield Staged("timing")
        row = case.row("ok")
        assert case.problem is not None
        return Row(**{**vars(row), "samples": {"host": Scope((case.problem.m * 1e-6,) * 3, 1, "stable")}})


def test_a_run_tells_each_case_what_was_measured_of_its_kernel_before() -> None:
    child = Child()
    events = list(session.run(cases(3), [fake.CPU], SHARED, child))  # type: ignore[arg-type]
    assert [type(event) for event in events].count(Finished) == 3
    assert events[0] == Planned(3)
    sizes = [[problem.m for problem, _ in case.measured] for case, _ in child.asked]
    assert sizes == [[], [64], [64, 128]]
    assert child.asked[2][0].measured[1][1] == pytest.approx(128e-6)
    assert all(policy.share_s == pytest.approx(policy.budget_s, rel=0.2) for _, policy in child.asked)
