"""Control bursts around the rows of a CPU, and the rows that are measured again."""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator, Sequence
from dataclasses import replace
from types import SimpleNamespace

import pytest

from gemmbench.model.case import Case, Event, Finished, Planned, Policy, Staged
from gemmbench.model.device import HOST, Conditions, DeviceFacts
from gemmbench.model.instrument import Handle, NotMeasuredError
from gemmbench.model.problem import Gemm
from gemmbench.model.row import Problem, Row, Scope
from gemmbench.model.run_file import Run
from gemmbench.stats import rates
from gemmbench.suite import session
from tests import fake_runs as fake
from tests.fake_probes import FakeProbes


@pytest.fixture(autouse=True)
def _separate(monkeypatch: pytest.MonkeyPatch) -> None:
    """No row shares a burst with the next."""
    monkeypatch.setattr(session, "_FRESH_S", 0.0)


class Machine(FakeProbes):
    """Measures every case, and runs control bursts that take so many times as long, one after the other."""

    def __init__(self, *bursts: float) -> None:
        super().__init__()
        self._bursts = iter(bursts)
        self._slower = 1.0
        self.last = 1000
        self.asked: list[Case] = []
        self.limits: list[float] = []
        self.launched: list[tuple[int, int]] = []  # number of launches, and work of each

    def limit(self, seconds: float) -> None:
        """A burst begins."""
        self.limits.append(seconds)
        self._slower = next(self._bursts, 1.0)

    def prepare(
        self,
        case: Case,
        device: DeviceFacts | None,
        policy: Policy,
        like: int | None = None,
        problem: Gemm | None = None,
    ) -> Handle:
        assert device is None or device.type == "cpu"
        handle = super().prepare(case, device, policy, like, problem)
        self._scripts[handle.number] = self._trips()
        return handle

    def start(self, handle: int, clock: str, count: int, work: int = 1) -> None:
        if len(self.limits) > self.last:
            raise NotMeasuredError("crashed", "the driver's process was killed")
        self.launched.append((count, work))
        super().start(handle, clock, count, work)

    def _trips(self) -> Iterator[float]:
        while True:
            yield 1e-6 * self._slower

    def run(self, case: Case, device: DeviceFacts | None, policy: Policy) -> Generator[Staged, None, Row]:
        self.asked.append(case)
        yield Staged("timing")
        assert case.problem is not None
        scope = Scope((case.problem.m * 1e-6,) * 3, 1, "stable")
        return replace(case.row("ok"), samples={"host": scope}, conditions=Conditions(warm_s=0.05))


class Broken(Machine):
    """Where the control kernel cannot run."""

    def prepare(self, *arguments: object, **options: object) -> Handle:
        self.candidates.append({})
        raise NotMeasuredError("failed", "no float8")


def cases(*devices: int) -> tuple[Case, ...]:
    return tuple(
        Case("gemm", device, "naive", "float", {}, Gemm(64 << number, 64, 64))
        for number, device in enumerate(devices)
    )


def run(
    machine: Machine, plan: Iterable[Case], devices: Sequence[DeviceFacts] = (fake.CPU,)
) -> tuple[list[Event], tuple[Row, ...]]:
    """The events, and the rows in the order of the file."""
    events = list(session.run(tuple(plan), devices, Policy(), machine))  # type: ignore[arg-type]
    return events, tuple(event.row for event in events if isinstance(event, Finished))


def bursts_of(rows: Iterable[Row]) -> list[tuple[float, ...]]:
    """Of each row, as multiples of the scripted burst."""
    each = [row.conditions.control_s if row.conditions else () for row in rows]
    return [tuple(round(seconds / 10, 3) for seconds in bursts) for bursts in each]


def asked(machine: Machine) -> list[int]:
    return [case.gemm.m for case in machine.asked]


def test_bursts_are_saved_before_and_after_each_row() -> None:
    machine = Machine(1, 1.01, 1.02, 1.03)
    events, rows = run(machine, cases(0, HOST))
    assert bursts_of(rows) == [(1, 1.01), (1.02, 1.03)]
    assert [row.conditions.warm_s for row in rows if row.conditions] == [0.05, 0.05]
    assert len(machine.candidates) == 1  # prepared once
    assert machine.limits == [Policy().time_limit_s] * 4
    assert [event for event in events if isinstance(event, Planned)] == [Planned(2)]


def test_a_burst_is_a_long_launch_and_many_of_the_least_work() -> None:
    machine = Machine()
    run(machine, cases(0))
    (_, work), *_, (many, least) = machine.launched[-6:]  # three of each
    assert work * 1e-6 == pytest.approx(session._BURST_S, rel=0.5)
    assert (many, least) == (session._LAUNCHES, 1)


def test_rows_on_a_gpu_have_none() -> None:
    machine = Machine()
    _, rows = run(machine, cases(1, 0), (fake.CPU, fake.GPU))
    assert bursts_of(rows) == [(), (1, 1)]
    assert len(machine.candidates) == 1


def test_without_a_cpu_among_the_devices_the_hosts_blas_runs_the_bursts() -> None:
    machine = Machine(1, 1, 1, 1.2)
    _, rows = run(machine, cases(0, HOST, HOST), (fake.GPU,))
    assert bursts_of(rows) == [(), (1, 1), (1, 1.2), (1, 1)]
    assert asked(machine) == [64, 128, 256, 256]
    assert {work for _, work in machine.launched} == {1}
    assert machine.launched[-1][0] * 1e-6 == pytest.approx(session._BURST_S, rel=0.5)


def test_a_slowed_row_is_measured_again_once_at_the_end_and_supersedes() -> None:
    machine = Machine(1, 1, 1, 1.2, 1, 1, 1, 1)
    events, rows = run(machine, cases(0, 0, 0))
    assert asked(machine) == [64, 128, 256, 128]
    assert [event for event in events if isinstance(event, Planned)] == [Planned(3), Planned(1)]
    assert [row.supersedes for row in rows] == [False, False, False, True]
    assert bursts_of(rows[1::2]) == [(1, 1.2), (1, 1)]
    whole = Run(fake.header(["square"]), (rows[0], rows[3], rows[2]))
    assert max(rates.slowed(whole, row) for row in whole.rows) < 1e-6


@pytest.mark.parametrize("again", [1.2, 1.1])
def test_a_row_that_stays_slowed_is_marked(again: float) -> None:
    """The second one takes its place if it was slowed less."""
    machine = Machine(1, 1, 1, 1.2, 1, again)
    _, rows = run(machine, cases(0, 0))
    assert asked(machine) == [64, 128, 128]
    assert len(rows) == (3 if again < 1.2 else 2)
    whole = Run(fake.header(["square"]), (rows[0], rows[-1]))
    assert rates.slowed(whole, rows[-1]) == pytest.approx(again - 1)
    assert [rates.is_uncertain(whole, row) for row in whole.rows] == [False, True]


class WrongAgain(Machine):
    """Whose kernel is wrong when it is measured again."""

    def run(self, case: Case, device: DeviceFacts | None, policy: Policy) -> Generator[Staged, None, Row]:
        is_again = case.gemm.m in asked(self)
        row = yield from super().run(case, device, policy)
        return replace(row, status="wrong", reason="it adds 1", samples={}) if is_again else row


def test_a_row_that_is_wrong_when_measured_again_is_wrong() -> None:
    _, rows = run(WrongAgain(1, 1, 1, 1.2, 1, 1), cases(0, 0))
    assert [(row.status, row.supersedes) for row in rows] == [("ok", False), ("ok", False), ("wrong", True)]


def test_five_percent_is_no_disturbance() -> None:
    machine = Machine(1, 1, 1, 1.04)
    _, rows = run(machine, cases(0, 0))
    assert asked(machine) == [64, 128]
    assert not rates.is_uncertain(Run(fake.header(["square"]), rows), rows[1])


def test_a_row_is_compared_with_later_bursts() -> None:
    machine = Machine(1.2, 1.2, 1, 1)
    run(machine, cases(0, 0))
    assert asked(machine) == [64, 128, 64]


def test_measuring_again_ends_on_a_busy_machine() -> None:
    machine = Machine(1, 1, *[1.2] * 20)
    _, rows = run(machine, cases(0, 0, 0, 0, 0))
    assert asked(machine) == [64, 128, 256, 512, 1024, 128, 256, 512]
    assert len(rows) == 5


class Tedious(Machine):
    """Takes a second for every row."""

    def run(self, case: Case, device: DeviceFacts | None, policy: Policy) -> Generator[Staged, None, Row]:
        self.clock.now += 1.0
        return (yield from super().run(case, device, policy))


@pytest.mark.parametrize(("budget_s", "repeated"), [(0.05, 2), (0.3, 8), (2.0, 8)])
def test_a_smaller_budget_repeats_fewer_rows(
    budget_s: float, repeated: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Eight of nine rows were slowed. Four budgets for each row: 1.8 s of repeats, or 10.8 s."""
    machine = Tedious(1, 1, *[1.2, 1.2] * 8)
    monkeypatch.setattr(session, "time", SimpleNamespace(monotonic=machine.clock))
    list(session.run(cases(*[0] * 9), (fake.CPU,), Policy(budget_s=budget_s), machine))  # type: ignore[arg-type]
    assert len(machine.asked) == 9 + repeated


def test_bursts_of_cached_peaks_show_a_machine_that_is_slower_than_it_was() -> None:
    rows = [fake.gemm_row("naive", Problem(64, 64, 64), 1.0) for _ in range(2)]
    old, new = (
        replace(row, conditions=Conditions(control_s=(s, s))) for row, s in zip(rows, (1.0, 2.0), strict=True)
    )
    cached = replace(old, measured_utc="2026-01-01T00:00:00Z")
    assert rates.best_burst((cached, new)) == 1.0
    assert rates.burst_loss(new, 1.0) == 1.0
    assert rates.burst_loss(cached, 0.5) == 1.0


def test_without_a_control_kernel_rows_have_no_bursts() -> None:
    machine = Broken()
    _, rows = run(machine, cases(0, 0))
    assert bursts_of(rows) == [(), ()]
    assert [row.status for row in rows] == ["ok", "ok"]
    assert len(machine.candidates) == 1  # it is tried once


def test_a_case_gets_the_largest_smaller_problem_measured_with_its_kernel() -> None:
    machine = Machine()
    small, middle, large = cases(0, 0, 0)
    other = replace(large, variant="tiled")
    run(machine, (middle, small, large, other))
    found = [case.measured for case in machine.asked]
    assert found == [None, None, (middle.gemm, pytest.approx(128e-6)), None]


def test_of_several_times_of_a_problem_the_least_counts() -> None:
    (small, large), steps = cases(0, 0), session.Steps((fake.CPU,), Policy())
    for seconds in (0.3, 0.1, 0.2):
        row = replace(small.row("ok"), samples={"host": Scope((seconds,) * 3, 1, "stable")})
        steps._remember_time(row)
    assert steps._largest_smaller(large) == (small.gemm, pytest.approx(0.1))


def test_a_row_without_bursts_takes_no_slowed_rows_place() -> None:
    machine = Machine(1, 1, 1, 1.2)
    machine.last = 4  # bursts, before they fail
    _, rows = run(machine, cases(0, 0))
    assert asked(machine) == [64, 128, 128]
    assert bursts_of(rows) == [(1, 1), (1, 1.2)]


def test_the_burst_after_a_row_is_also_that_before_the_next(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session, "_FRESH_S", 60.0)
    machine = Machine(1, 1.02, 1.03)
    _, rows = run(machine, cases(0, 0))
    assert len(machine.limits) == 1  # all within a minute
    assert bursts_of(rows) == [(1, 1), (1, 1)]
