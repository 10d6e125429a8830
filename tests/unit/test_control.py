"""Control bursts of the processes of a run, and uncertain rows, which are measured again."""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

from gemmbench.measure.child import Worker
from gemmbench.model.case import Case, Event, Finished, Planned, Policy, Staged
from gemmbench.model.device import HOST, Conditions, DeviceFacts
from gemmbench.model.instrument import Bursts, Handle, NotMeasuredError
from gemmbench.model.problem import Gemm
from gemmbench.model.row import Problem, Row, Scope, Work, current
from gemmbench.model.run_file import RunFile, load
from gemmbench.stats import rates
from gemmbench.suite import session
from tests import fake_runs as fake
from tests.fake_instrument import FakeProbes
from tests.unit.test_run_file import HEADER


class Machine(FakeProbes):
    """Measures every case in a second; the bursts of each row take so many times as long, row by row."""

    def __init__(self, *slower: float) -> None:
        super().__init__()
        self._slower = iter(slower)
        self.asked: list[Case] = []
        self.wide: set[int] = set()  # the visits whose batches differ, though nothing disturbs them
        self.works: Iterator[Work] = iter(())
        self.bursts: dict[int | None, Bursts] = {}

    def run(self, case: Case, device: DeviceFacts | None, policy: Policy) -> Generator[Staged, None, Row]:
        self.asked.append(case)
        self.clock.now += 1.0
        yield Staged("timing")
        slower, count = next(self._slower, 1.0), 12
        one_s = case.problem.m * 1e-6 * slower
        others_s = 1.3 * one_s if len(self.asked) in self.wide else one_s
        seconds = (one_s, others_s) * (count // 2)
        scope = Scope(seconds, 1, "stable", bursts_s=(10.0 * slower,) * 2 * count, waited_s=(0.0,) * count)
        row = replace(case.row("ok"), samples={"host": scope}, conditions=Conditions(warm_s=0.05))
        return replace(row, work=next(self.works, None))


@pytest.fixture(autouse=True)
def _clock(monkeypatch: pytest.MonkeyPatch) -> None:
    """Time passes when a case is measured."""
    clock = SimpleNamespace(now=None)
    monkeypatch.setattr(session, "time", SimpleNamespace(monotonic=lambda: clock.now.now))
    monkeypatch.setattr(Machine, "__post_init__", lambda self: _started(self, clock))


def _started(machine: Machine, clock: SimpleNamespace) -> None:
    super(Machine, machine).__post_init__()
    clock.now = machine.clock


def cases(*devices: int) -> tuple[Case, ...]:
    return tuple(
        Case("gemm", device, "naive", "float", {}, Gemm(64 << number, 64, 64))
        for number, device in enumerate(devices)
    )


def run(
    machine: Machine, plan: Iterable[Case], devices: Sequence[DeviceFacts] = (fake.CPU,),
    patience_s: float | None = None,
) -> tuple[list[Event], tuple[Row, ...]]:  # fmt: skip
    """The events, and the rows in the order of the file. The reference of earlier runs is 10 s."""
    policy, known_s = Policy(patience_s=patience_s), {"0": 10.0}
    events = list(session.run_plan(tuple(plan), devices, policy, cast(Worker, machine), None, known_s))
    return events, tuple(event.row for event in events if isinstance(event, Finished))


def asked(machine: Machine) -> list[int]:
    return [case.gemm.m for case in machine.asked]


def test_each_process_has_bursts_of_its_own() -> None:
    machine = Machine()
    run(machine, cases(0, HOST, 0))
    assert set(machine.bursts) == {0, None}
    device, host = (each.control for each in machine.bursts.values())
    assert device.count == host.count == pytest.approx(session._BURST_S / 1e-6, abs=1)  # products of 1 us
    assert device.operations == device.count * 2 * 48 * fake.CPU.compute_units * 96 * 96
    assert host.operations == host.count * 2 * 256**3


def test_a_burst_has_no_more_products_than_the_wall_clock_allows() -> None:
    machine = Machine()
    machine.event_share = 1e-6
    run(machine, cases(0))
    assert machine.bursts[0].control.count == pytest.approx(10 * session._BURST_S / 1e-6, abs=1)


def test_rows_on_a_gpu_have_none() -> None:
    machine = Machine()
    run(machine, cases(1, 0), (fake.CPU, fake.GPU))
    assert set(machine.bursts) == {0}


def test_of_a_case_and_its_versus_both_have_bursts() -> None:
    machine = Machine()
    (case,) = cases(0)
    run(machine, [replace(case, partner=replace(case, device=HOST))])
    assert set(machine.bursts) == {0, None}


class Broken(Machine):
    """Where the control kernel cannot run."""

    def prepare(self, *arguments: object, **options: object) -> Handle:
        self.candidates.append({})
        raise NotMeasuredError("failed", "no float8")


def test_without_a_control_kernel_there_are_no_bursts() -> None:
    machine = Broken()
    _, rows = run(machine, cases(0, 0))
    assert machine.bursts == {}
    assert [row.status for row in rows] == ["ok", "ok"]
    assert len(machine.candidates) == 1  # it is tried once


def test_rows_that_lack_quiet_batches_are_measured_again_one_by_one() -> None:
    machine = Machine(1, 1.5, 1.5, 1, 1.5, 1.5, 1, 1)
    events, rows = run(machine, cases(0, 0, 0, 0))
    assert asked(machine) == [64, 128, 256, 512, 128, 256, 128, 256]
    assert [event for event in events if isinstance(event, Planned)] == [Planned(4), *[Planned(1)] * 4]
    assert [row.supersedes for row in rows] == [False] * 4 + [True] * 4
    last = current(rows)
    assert [len(row.samples["host"].seconds) for row in last] == [12, 36, 36, 12]
    assert all(row.samples["host"].is_complete for row in last)
    assert rates.summary(last[1], "host").median == pytest.approx(128e-6)


@pytest.mark.parametrize(("wide", "visits"), [({1}, 1), ({1, *range(3, 99)}, 3)])
def test_rows_with_a_wide_interval_are_measured_again_three_times_at_most(
    wide: set[int], visits: int
) -> None:
    """The interval may be the kernel's own."""
    machine = Machine()
    machine.wide = wide
    _, rows = run(machine, cases(0, 0), patience_s=100)
    assert asked(machine) == [64, 128, *[64] * visits]
    assert len(current(rows)[0].samples["host"].seconds) == 12 * (1 + visits)


def test_rows_that_lack_quiet_batches_come_before_those_with_a_wide_interval() -> None:
    machine = Machine(1, 1.5)
    machine.wide = {1}
    run(machine, cases(0, 0))
    assert asked(machine) == [64, 128, 128, 64]


def test_visits_with_other_work_are_not_joined() -> None:
    """Each race chooses the loop count again, so launches of two visits do different work."""
    machine = Machine(1.5, 1)
    machine.works = iter((Work(flops=100), Work(flops=200)))
    _, rows = run(machine, cases(0))
    (last,) = current(rows)
    assert (last.work, len(last.samples["host"].seconds)) == (Work(flops=200), 12)
    assert last.samples["host"].is_complete


def test_a_row_is_compared_with_later_bursts() -> None:
    machine = Machine(1.2, 1)
    run(machine, cases(0, 0))
    assert asked(machine) == [64, 128, 64]


@pytest.mark.parametrize(("planned", "more"), [(5, 6), (14, 10), (30, 16)])
def test_patience_is_as_long_as_the_plan_and_half_as_long_as_a_long_one(planned: int, more: int) -> None:
    """Each case takes a second. The last may begin just before the end."""
    machine = Machine(1, *[1.5] * 90)
    run(machine, [replace(case, variant=str(n)) for n, case in enumerate(cases(*[0] * planned))])
    assert len(machine.asked) == planned + more


@pytest.mark.parametrize(("patience_s", "more"), [(0.0, 0), (2.5, 3), (8.0, 8)])
def test_patience_that_is_asked_for(patience_s: float, more: int) -> None:
    machine = Machine(1, 1, *[1.5] * 40)
    run(machine, cases(*[0] * 5), patience_s=patience_s)
    assert len(machine.asked) == 5 + more


def test_resumed_rows_that_lack_quiet_batches_are_measured_again(tmp_path: Path) -> None:
    path, known_s = tmp_path / "run.jsonl", {"0": 10.0}
    for machine, expected in ((Machine(1, 1.5), [64, 128]), (Machine(), [128]), (Machine(), [])):
        with RunFile.resume(path, HEADER) as file:
            policy = Policy(patience_s=0.0 if expected == [64, 128] else None)
            list(session.run_plan(cases(0, 0), (fake.CPU,), policy, cast(Worker, machine), file, known_s))
        assert asked(machine) == expected
    assert [len(row.samples["host"].seconds) for row in load(path).rows] == [12, 24]


class WrongAgain(Machine):
    """Whose kernel is wrong when it is measured again."""

    def run(self, case: Case, device: DeviceFacts | None, policy: Policy) -> Generator[Staged, None, Row]:
        is_again = case.gemm.m in asked(self)
        row = yield from super().run(case, device, policy)
        return replace(row, status="wrong", reason="it adds 1", samples={}) if is_again else row


def test_a_row_that_is_wrong_when_measured_again_is_wrong() -> None:
    _, rows = run(WrongAgain(1, 1.5, 1), cases(0, 0))
    assert [(row.status, row.supersedes) for row in rows] == [("ok", False), ("ok", False), ("wrong", True)]


def test_bursts_of_earlier_versions_show_a_machine_that_is_slower_than_it_was() -> None:
    rows = [fake.gemm_row("naive", Problem(64, 64, 64), 1.0) for _ in range(2)]
    old, new = (
        replace(row, conditions=Conditions(control_s=(s, s))) for row, s in zip(rows, (1.0, 2.0), strict=True)
    )
    cached = replace(old, measured_utc="2026-01-01T00:00:00Z")
    assert rates.best_burst((cached, new)) == 1.0
    assert rates.burst_loss(new, 1.0) == 1.0
    assert rates.burst_loss(cached, 0.5) == 1.0


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
