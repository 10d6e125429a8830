"""Long runs on scripted instruments: windows, wrong bits, several devices at once, Ctrl-C."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeVar, cast

import msgspec
import pytest

from gemmbench import UsageError
from gemmbench.measure.sustained import DONE, INTERRUPTED, sustained, window_s
from gemmbench.model.case import Case, Event, Finished, Policy, Started
from gemmbench.model.device import Conditions, Readings
from gemmbench.model.instrument import (
    Batch,
    Handle,
    LostError,
    Prepared,
    Verified,
    Watch,
    When,
    WrongResult,
)
from gemmbench.model.problem import Gemm
from gemmbench.model.row import Check, Row, Sustained
from gemmbench.model.run_file import Run, RunFile, load
from gemmbench.options import build, measuring
from gemmbench.report import conditions as tables
from gemmbench.suite import charts, run
from gemmbench.suite.session import Steps
from tests import fake_runs
from tests.fake_instrument import FakeClock, FakeInstrument, pass_time

PREPARED = Prepared(("device", "host"), checked=True)
FLOPS = 2 * 64**3
WARMING = 2  # batches before the run begins


class Worker(FakeInstrument):
    """An instrument with a time limit, as a child process has."""

    def limit(self, seconds: float) -> None:
        self.log.append(("limit", seconds))


@dataclass
class Warm(Watch):
    """Says the same of every window."""

    def end(self, clock: str, batches: Sequence[Batch]) -> Conditions | None:
        return Conditions(
            windows={
                clock: Readings(
                    clock_mhz=(1500.0,), power_w=(690.0, 692.0), celsius=(60.0, 61.0), limits=("power",)
                )
            }
        )


def case(device: int = 0, variant: str = "naive") -> Case:
    return Case("gemm", device, variant, "float", {}, Gemm(64, 64, 64, "float"))


def worker(problem_s: float = 0.01, clock: FakeClock | None = None, **more: Any) -> Any:
    seconds: dict[str, Iterable[float]]
    seconds = {name: itertools.repeat(problem_s) for name in ("naive", "tiled")}
    return Worker(clock=clock or FakeClock(), seconds=seconds, prepared=PREPARED, **more)


def handle(instrument: FakeInstrument) -> Handle:
    return instrument.prepare(case(), fake_runs.GPU, Policy())


def ended(handles: Any, flops: Any, seconds: float, instrument: FakeInstrument) -> Any:
    """`sustained` by an instrument's clock."""
    return sustained(handles, flops, seconds, now=instrument.clock, wait=cast(Any, pass_time))


def ran(instruments: Sequence[FakeInstrument], seconds: float) -> list[Sustained]:
    """The figures of each at the end."""
    handles = [handle(instrument) for instrument in instruments]
    last: dict[int, Sustained] = {}
    for number, result in sustained(
        handles, [FLOPS] * len(handles), seconds, now=instruments[0].clock, wait=cast(Any, pass_time)
    ):
        last[number] = result
    return [last[number] for number in range(len(handles))]


def test_a_run_is_a_line_for_each_second_whatever_it_ran() -> None:
    (result,) = ran([worker(0.001)], 10.0)
    assert result.end == DONE
    assert len(result.begin_s) in (9, 10, 11)
    assert sum(result.problems) == result.results == pytest.approx(10_000, rel=0.05)
    assert result.seconds == pytest.approx([0.001] * len(result.seconds))
    assert tables.rate_of(result) == pytest.approx(FLOPS / 0.001)
    assert tables.ran_s(result) == pytest.approx(10.0, abs=0.3)
    assert (result.wrong, result.bits, result.errors) == (0, 0, ())


def test_windows_of_a_day_are_longer() -> None:
    assert window_s(600) == 1.0
    assert window_s(86_400) == 24.0


def test_a_wrong_bit_is_counted_and_its_result_and_moment_known() -> None:
    instrument = worker(0.01)
    size = 20  # of a batch of 0.2 s
    instrument.wrong = {WARMING + 4: (WrongResult(3, 2, 1, 17 * 4),)}
    (result,) = ran([instrument], 3.0)
    assert (result.wrong, result.bits, sum(result.wrong_bits)) == (1, 2, 2)
    (error,) = result.errors
    assert (error.result, error.bits, error.byte) == (WARMING + 4 * size + 3, 2, 68)
    assert error.at_s == pytest.approx((WARMING + 4 * size + 3.5) * 0.01)


def test_all_wrong_results_are_counted_and_the_first_are_kept() -> None:
    instrument = worker(0.01)
    instrument.wrong = dict.fromkeys(range(2, 200), tuple(WrongResult(n, 1, 1, 0) for n in range(10)))
    (result,) = ran([instrument], 4.0)
    assert len(result.errors) == 100
    assert result.wrong == result.bits > 100


def test_what_the_device_says_has_a_value_for_each_window() -> None:
    (result,) = ran([worker(watch=Warm())], 3.0)
    count = len(result.begin_s)
    assert result.power_w == (691.0,) * count
    assert (result.clock_mhz[0], result.celsius[0], result.limits[0]) == (1500.0, 61.0, "power")
    (silent,) = ran([worker()], 3.0)
    assert (silent.clock_mhz, silent.power_w, silent.limits) == ((), (), ())


def test_devices_run_at_once_and_the_slowest_is_named() -> None:
    clock = FakeClock()
    results = ran([worker(0.01, clock), worker(0.0125, clock)], 4.0)
    assert clock.now < 6
    assert [each.end for each in results] == [DONE, DONE]
    measured = [fake_runs.gemm_row("naive", _problem(), 10.0, device) for device in range(2)]
    rows = [replace(row, sustained=result) for row, result in zip(measured, results, strict=True)]
    run = Run(fake_runs.header([], [fake_runs.CPU, fake_runs.POCL]), tuple(rows), "run.jsonl")
    assert tables.slowest(run, rows).startswith("device 1 (")
    assert "20.0 % below the fastest" in tables.slowest(run, rows)
    assert tables.slowest(run, rows[:1]) == ""


def _problem() -> Any:
    row = case().row("ok")
    assert row.problem
    return row.problem


def test_one_device_that_dies_does_not_end_the_other() -> None:
    clock = FakeClock()
    dying = worker(0.01, clock, faults={WARMING + 3: LostError("crashed", "killed by SIGKILL")})
    first, second = ran([dying, worker(0.01, clock)], 3.0)
    assert first.end == "crashed: killed by SIGKILL"
    assert 0 < first.results < second.results
    assert second.end == DONE


T = TypeVar("T")


def until_ctrl_c(steps: Iterator[T]) -> list[T]:
    """What came before it."""
    seen: list[T] = []
    try:
        for step in steps:
            seen.append(step)
    except KeyboardInterrupt:
        return seen
    raise AssertionError("it was not passed on")


def test_ctrl_c_keeps_what_was_measured() -> None:
    instrument = worker(0.01)
    instrument.faults = {14: KeyboardInterrupt()}  # as a signal would
    loads = sustained([handle(instrument)], [FLOPS], 60.0, now=instrument.clock, wait=cast(Any, pass_time))
    seen = [result for _, result in until_ctrl_c(loads)]
    assert seen[-1].end == INTERRUPTED
    assert sum(seen[-1].problems) == seen[-1].results == WARMING + 12 * 20
    assert tables.ran_s(seen[-1]) == pytest.approx(2.42)


# --- a run with it ---


def steps(policy: Policy | None = None) -> Steps:
    return Steps([fake_runs.GPU, fake_runs.GPU], policy or Policy())


def events(
    instrument: Worker, rows: Sequence[Row], cases: tuple[Case, ...], seconds: float = 3.0
) -> list[Event]:
    return list(run.run(cases, rows, (), steps(), lambda _: cast(Any, instrument), seconds, at_once=False))


def row_of(instrument: Worker, monkeypatch: pytest.MonkeyPatch) -> Row:
    """The row that a run ends with."""
    monkeypatch.setattr(
        run,
        "sustained",
        lambda handles, flops, lasting: sustained(
            handles, flops, lasting, now=instrument.clock, wait=cast(Any, pass_time)
        ),
    )
    measured = replace(fake_runs.gemm_row("naive", _problem(), 10.0), parameters={})
    (last,) = [
        event.row for event in events(instrument, [measured], (case(),)) if isinstance(event, Finished)
    ]
    return last


def test_the_row_has_its_long_run_and_is_verified_after_it(monkeypatch: pytest.MonkeyPatch) -> None:
    instrument = worker()
    row = row_of(instrument, monkeypatch)
    assert (row.status, row.supersedes) == ("ok", True)
    assert row.sustained
    assert row.sustained.end == DONE
    assert row.samples
    asked = [entry[-1] for entry in instrument.log if entry[0] == "verify"]
    assert asked == ["before", "after"]


def test_a_row_with_a_wrong_bit_is_wrong_and_says_where(monkeypatch: pytest.MonkeyPatch) -> None:
    instrument = worker(wrong={WARMING: (WrongResult(1, 1, 1, 4 * (64 * 5 + 7)),)})
    row = row_of(instrument, monkeypatch)
    assert row.status == "wrong"
    assert "1 bit of 1 result" in row.reason
    assert row.reason.endswith("in result 3, at C[5][7]")
    assert row.samples == {}
    assert row.sustained


def test_a_run_that_cannot_be_verified_after_it_keeps_its_figures(monkeypatch: pytest.MonkeyPatch) -> None:
    class Lost(Worker):
        def verify(self, handle: int, when: When) -> Verified:
            if when == "after":
                raise LostError("timed-out", "it took longer than 5 s")
            return super().verify(handle, when)

    instrument = Lost(clock=FakeClock(), seconds={"naive": itertools.repeat(0.01)}, prepared=PREPARED)
    row = row_of(instrument, monkeypatch)
    assert (row.status, row.supersedes) == ("ok", True)
    assert row.samples
    assert row.sustained
    assert row.sustained.end == DONE
    assert row.notes[-1] == "not verified after the long run: it took longer than 5 s"


def test_a_wrong_verdict_after_it_makes_the_row_wrong(monkeypatch: pytest.MonkeyPatch) -> None:
    row = row_of(worker(verdicts={"after": Check("wrong", {}, ("C is zero",))}), monkeypatch)
    assert (row.status, row.reason, row.samples) == ("wrong", "C is zero", {})
    assert row.sustained


@pytest.mark.parametrize(("status", "has_run"), [("failed", False), ("ok", True)])
def test_whether_there_was_anything_to_run(status: Any, has_run: bool) -> None:
    row = replace(fake_runs.gemm_row("naive", _problem(), 10.0), parameters={}, status=status)
    done = replace(row, sustained=Sustained(1.0, DONE, 1))  # of a run that is resumed
    loads = run.run((case(),), [done], (), steps(), lambda _: worker(), 1.0, at_once=False)
    next(loads)
    with pytest.raises(StopIteration, match=str(has_run)):
        next(loads)


def test_what_cannot_be_compared_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    instrument = replace(worker(), prepared=Prepared(("device",)))
    row = row_of(instrument, monkeypatch)
    assert row.notes[-1] == "not run for longer: its results cannot be compared with the first one's"
    assert not row.sustained
    assert instrument.log[-1] == ("release", 0)  # its operands had stayed on the device


def test_ctrl_c_leaves_the_row_and_ends_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    instrument = worker(faults={14: KeyboardInterrupt()})
    monkeypatch.setattr(
        run,
        "sustained",
        lambda handles, flops, lasting: sustained(
            handles, flops, lasting, now=instrument.clock, wait=cast(Any, pass_time)
        ),
    )
    measured = replace(fake_runs.gemm_row("naive", _problem(), 10.0), parameters={})
    events = run.run((case(),), [measured], (), steps(), lambda _: cast(Any, instrument), 60.0, at_once=False)
    seen = until_ctrl_c(events)
    row = seen[-1].row
    assert (row.sustained.end, row.sustained.results) == (INTERRUPTED, 242)


class Interrupted(Worker):
    """Ctrl-C, or the end of the process, comes while it is verified again."""

    end: BaseException = KeyboardInterrupt()

    def verify(self, handle: int, when: When) -> Verified:
        if when == "after":
            raise self.end
        return super().verify(handle, when)


def _saved(instrument: Worker, seconds: float, path: Path, monkeypatch: pytest.MonkeyPatch) -> list[Row]:
    """The rows that are written to a file, one after another, until Ctrl-C or a fault ends all."""
    monkeypatch.setattr(
        run,
        "sustained",
        lambda handles, flops, lasting: sustained(
            handles, flops, lasting, now=instrument.clock, wait=cast(Any, pass_time)
        ),
    )
    measured = replace(fake_runs.gemm_row("naive", _problem(), 10.0), parameters={})
    with RunFile.create(path, fake_runs.header([], [fake_runs.GPU])) as file:
        saving = Steps([fake_runs.GPU], Policy(), file)
        with pytest.raises((KeyboardInterrupt, SystemError)):
            list(
                run.run(
                    (case(),), [measured], (), saving, lambda _: cast(Any, instrument), seconds, at_once=False
                )
            )
    lines = path.read_bytes().splitlines()[1:]
    return [msgspec.json.decode(line, type=Row) for line in lines]


def test_ctrl_c_while_it_is_verified_again_keeps_the_figures_and_resume_runs_it_anew(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    instrument = Interrupted(seconds={"naive": itertools.repeat(0.01)}, prepared=PREPARED)
    *_, row = _saved(instrument, 3.0, tmp_path / "run.jsonl", monkeypatch)
    assert (row.status, row.supersedes) == ("ok", True)
    assert row.sustained
    assert tables.ran_s(row.sustained) == pytest.approx(3.0, abs=0.3)
    assert row.sustained.end == "interrupted before it was verified again"
    again = run.run((case(),), [row], (), steps(), lambda _: worker(), 1.0, at_once=False)
    assert isinstance(list(itertools.islice(again, 2))[-1], Started)


def test_a_process_that_is_killed_leaves_what_it_had(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    instrument = Interrupted(seconds={"naive": itertools.repeat(5.0)}, prepared=PREPARED)
    instrument.end = SystemError("killed")
    rows = _saved(instrument, 1000.0, tmp_path / "run.jsonl", monkeypatch)
    ran = [tables.ran_s(row.sustained) for row in rows if row.sustained]
    assert ran == pytest.approx([300, 600, 900, 1000], abs=20)
    ends = [row.sustained.end for row in rows if row.sustained]
    assert ends == [*[INTERRUPTED] * 3, "interrupted before it was verified again"]
    (kept,) = load(tmp_path / "run.jsonl").rows
    assert kept == rows[-1]


def test_the_fastest_kernel_is_taken_and_a_library_only_if_it_was_named() -> None:
    problem = _problem()
    rows = [
        replace(fake_runs.gemm_row(name, problem, gflops), parameters={})
        for name, gflops in (("naive", 10.0), ("tiled", 20.0), ("clblast", 90.0))
    ]
    plan = tuple(case(variant=name) for name in ("naive", "tiled", "clblast"))
    assert [row.variant for _, row in run.chosen(plan, rows, ())] == ["tiled"]
    assert [row.variant for _, row in run.chosen(plan, rows, ("clblast",))] == ["clblast"]


def test_zeros_are_never_taken_for_a_peak() -> None:
    peaks = [
        replace(fake_runs.peak_row(1, rate), parameters={"width": 1, "operands": kind})
        for kind, rate in (("random", 50.0), ("zeros", 90.0))
    ]
    plan = tuple(Case("peak", 0, row.variant, row.dtype, row.parameters) for row in peaks)
    assert [row.parameters["operands"] for _, row in run.chosen(plan, peaks, ())] == ["random"]


def test_it_comes_back_from_the_file_and_has_a_table_and_a_chart(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Any
) -> None:
    from matplotlib.figure import Figure

    row = row_of(worker(watch=Warm(), wrong={4: (WrongResult(0, 1, 1, 0),)}), monkeypatch)
    header = fake_runs.header([], [fake_runs.GPU])
    with RunFile.create(tmp_path / "run.jsonl", header) as file:
        file.append(row)
    run = load(tmp_path / "run.jsonl")
    assert run.rows == (row,)
    (sheet,) = tables.sustained_sheets(run)
    assert sheet.rows[0][sheet.columns.index("W")].text == "691"
    assert any("1 bit differs" in note.text for note in sheet.notes)
    (pane,) = charts.sustained_panes([run], {})
    axes = Figure().add_subplot()
    pane.paint(axes)
    assert [line.get_label() for line in axes.lines][:1] == ["rate"]
    (right,) = [other for other in axes.figure.axes if other is not axes]
    assert [line.get_label() for line in right.lines] == ["clock", "power", "temperature"]


@pytest.mark.parametrize(
    ("text", "seconds"), [("90", 90.0), ("90s", 90.0), ("10m", 600.0), ("1.5h", 5400.0), (7, 7.0)]
)
def test_durations(text: object, seconds: float) -> None:
    assert build(measuring.Gemm, {"sustain": text}).sustain_s == seconds


@pytest.mark.parametrize(
    ("command", "values", "sentence"),
    [
        (measuring.Gemm, {"sustain": "10x"}, "not a time such as 90s"),
        (measuring.Gemm, {"sustain": "nan"}, "not a time"),
        (measuring.Gemm, {"sustain": "1m", "dtype": "float,double"}, "runs one row on"),
        (measuring.Peak, {"sustain": "1m", "only": "memory"}, "compute family"),
        (measuring.Square, {"sustain": "1m"}, "no option 'sustain'"),
    ],
)
def test_what_cannot_run_on(command: Any, values: dict[str, Any], sentence: str) -> None:
    with pytest.raises(UsageError, match=sentence):
        build(command, values)
