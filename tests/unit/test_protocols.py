"""Measuring protocols, taken in turn on an instrument whose problems last as long as a script says."""

from __future__ import annotations

import csv
import itertools
import re
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gemmbench import UsageError, views
from gemmbench.exports.records import to_csv
from gemmbench.gemm import charts, protocols
from gemmbench.gemm.numpy_blas import NumpyExecutor
from gemmbench.gemm.protocols import BY_NAME, NAMES, OWN, StdRel
from gemmbench.model.case import Case, Policy
from gemmbench.model.device import Conditions, DeviceFacts, Readings
from gemmbench.model.instrument import (
    Batch,
    Handle,
    InterruptedRow,
    Manner,
    NotMeasuredError,
    Prepared,
    Verified,
    Watch,
    When,
)
from gemmbench.model.problem import Gemm
from gemmbench.model.row import Check, ProtocolSamples, Row, Scope
from gemmbench.model.run_file import Run, RunFile, RunFileError, load
from gemmbench.options import build
from gemmbench.options.measuring import Protocols
from gemmbench.stats import rates
from gemmbench.suite.session import Steps
from tests import fake_runs
from tests.fake_instrument import FakeInstrument, HotWatch
from tests.in_process import result_of

EACH_S = 0.05
POLICY = Policy(budget_s=10.0, share_s=EACH_S, settle_s=0.3)
MIB = 1 << 20


class Kernel(FakeInstrument):
    """A kernel that takes so long on operands of a kind."""

    def prepare(self, case: Case, *others: Any, **more: Any) -> Handle:
        kind = case.operands.values
        self.seconds[case.variant] = itertools.repeat(self.by_operands.get(kind, 0.001))
        handle = super().prepare(case, *others, **more)
        self.kinds[handle.number] = kind
        return handle

    by_operands: dict[str, float]
    kinds: dict[int, str]

    def launched(self) -> list[tuple[str, int, Manner]]:
        """Operands, count and manner of every request for launches."""
        return [
            (self.kinds[int(str(entry[1]))], int(str(entry[2])), entry[3])
            for entry in self.log
            if entry[0] == "launches" and isinstance(entry[3], Manner)
        ]


def kernel(**by_operands: float) -> Kernel:
    made = Kernel(prepared=Prepared(("device", "host")))
    made.by_operands, made.kinds = by_operands, {}
    return made


def case(*names: str, rounds: int = 2) -> Case:
    problem = Gemm(64, 64, 64, "float")
    return Case("protocols", 0, "naive", "float", {}, problem, protocols=(OWN, *names), rounds=rounds)


def measured(instrument: Kernel, *names: str, rounds: int = 2, device: DeviceFacts | None = None) -> Row:
    clock = instrument.clock
    return result_of(
        protocols.measured(
            instrument,
            case(*names, rounds=rounds),
            device or fake_runs.GPU,
            POLICY,
            now=clock,
            sleep=lambda seconds: setattr(clock, "now", clock.now + seconds),
        )
    )


def entry(row: Row, name: str) -> ProtocolSamples:
    return next(each for each in row.protocols or () if each.name == name)


def line(row: Row, name: str) -> protocols.Line:
    return next(each for each in protocols.lines(row) if each.samples.name == name)


def test_differences_are_of_the_rate_against_the_same_rounds() -> None:
    row = measured(kernel(zeros=0.0008, normal=0.00125), "zeros", "normal")
    assert row.status == "ok"
    for name, expected in (("zeros", 1.25), ("normal", 0.8)):
        ratio = line(row, name).ratio
        assert ratio is not None
        assert (ratio.median, ratio.low, ratio.high) == pytest.approx((expected,) * 3)
    assert line(row, OWN).flops_per_s == pytest.approx(2 * 64**3 / 0.001)
    assert [len(each.rounds) for each in row.protocols or ()] == [2, 2, 2]


def test_protocols_are_taken_in_turn_and_every_other_round_backwards() -> None:
    instrument = kernel()
    planned = case("chain", "wall", rounds=3)
    steps = protocols.measured(instrument, planned, fake_runs.GPU, POLICY, now=instrument.clock)
    stages = [step.stage for step in steps if step.stage.startswith("round")]
    assert [stage.partition(": ")[2] for stage in stages] == [
        *(OWN, "chain", "wall"), *("wall", "chain", OWN), *(OWN, "chain", "wall"),
    ]  # fmt: skip


def test_a_statistic_alone_takes_no_samples_of_its_own() -> None:
    instrument = kernel()
    row = measured(instrument, "mean", "minimum")
    assert not instrument.launched()
    assert [(each.like, bool(each.rounds)) for each in row.protocols or ()] == [
        *(("", True), (OWN, False), (OWN, False)),
    ]
    values = ProtocolSamples(OWN, "uniform", "median", "stamps", ((1.0, 1.0, 4.0), (1.0, 1.0, 4.0)))
    others = [ProtocolSamples(name, "uniform", name, "stamps", like=OWN) for name in ("mean", "minimum")]
    by_name = {each.samples.name: each for each in protocols.lines(replace(row, protocols=(values, *others)))}
    assert [by_name[name].ratio.median for name in ("mean", "minimum")] == pytest.approx([0.5, 1.0])


def test_do_bench_warms_plainly_and_flushes_before_each_launch() -> None:
    instrument = kernel(normal=0.002)
    row = measured(instrument, "do_bench", "do_bench-median", rounds=1)
    flushed = Manner(flush_bytes=256 * MIB)
    # One, five to see how long it takes, and in one request 25 ms of launches and 100 ms that are timed.
    assert instrument.launched() == [
        ("normal", 1, flushed),
        ("normal", 5, flushed),
        ("normal", pytest.approx(50, abs=1), replace(flushed, warms=12)),
    ]
    assert instrument.launched()[-1][1] == len(entry(row, "do_bench").rounds[0])
    assert entry(row, "do_bench-median").like == "do_bench"


def test_the_first_do_bench_of_a_process_loads_a_kernel_while_it_estimates() -> None:
    instrument = kernel(normal=0.00025)
    measured(instrument, "do_bench-first", rounds=1)
    *_, (_, count, manner) = instrument.launched()
    assert (count, manner.warms) == (66, 16)  # 400 and 100 later


def test_who_measures_a_single_time_finds_the_device_at_rest() -> None:
    at_rest = {name for name in NAMES if BY_NAME[name].rests}
    bench = {"do_bench", "do_bench-median", "do_bench-first"}
    assert at_rest == {*bench, "nvbench-cold", "nvbench-batch", "clpeak"}
    instrument = kernel(uniform=0.001)
    begin = instrument.clock.now
    measured(instrument, "clpeak", rounds=1)
    assert 0.8 < instrument.clock.now - begin < 1.5  # its chain, a short rest, and our own samples
    instrument, begin = kernel(uniform=0.001), 0.0
    instrument.watch = HotWatch()
    measured(instrument, "clpeak", rounds=1)
    assert instrument.clock.now > 0.5 + 3  # a GPU rests as long as a process takes to begin


def test_mamf_finder_warms_half_a_minute_once_and_then_fifty_launches() -> None:
    instrument = kernel(normal=0.01)
    begin = instrument.clock.now
    row = measured(instrument, "mamf-finder", rounds=2)
    took_s = instrument.clock.now - begin
    assert 30 + 2 * 1.5 < took_s < 30 + 2 * 1.5 + 2  # nothing limits the device: it is warm already
    hot = kernel(normal=0.01)
    hot.watch = HotWatch()
    measured(hot, "mamf-finder", rounds=2)
    launches = [sum(count for _, count, _ in each.launched()) for each in (instrument, hot)]
    more = launches[1] - launches[0]
    assert (
        POLICY.settle_s / 0.01 <= more < POLICY.settle_s / 0.01 + 10
    )  # where power limits, warmed in every round
    assert all(manner == Manner(flush_bytes=256 * MIB, resets=True) for _, _, manner in instrument.launched())
    assert [len(samples) for samples in entry(row, "mamf-finder").rounds] == [100, 100]


def test_nvbench_holds_and_flushes_the_caches_and_takes_half_a_second_of_kernel_time() -> None:
    instrument = kernel(uniform=0.002)
    device = replace(fake_runs.GPU, cache_bytes=50 * MIB, last_level_cache_bytes=50 * MIB)
    row = measured(instrument, "nvbench-cold", rounds=1, device=device)
    manners = {manner for _, _, manner in instrument.launched()}
    assert manners == {Manner(waits=True, held=True, flush_bytes=50 * MIB)}
    assert 250 < len(entry(row, "nvbench-cold").rounds[0]) <= 300


def test_chains_are_as_long_as_their_tools_make_them() -> None:
    instrument = kernel(uniform=0.00001)
    measured(instrument, "nvbench-batch", "clpeak", rounds=1)
    chains = [count for _, count, manner in instrument.launched() if not manner.apart and count > 2]
    assert chains == [pytest.approx(50_000, abs=1), 10_000]  # 0.5 s, and clpeak's most
    assert {manner.wall for _, count, manner in instrument.launched() if count == 10_000} == {True}


def test_an_interval_that_says_nothing_is_called_wide() -> None:
    row = measured(kernel(), "chain", rounds=1)
    own, chain = row.protocols or ()
    two = replace(own, rounds=((1.0,), (1.0,))), replace(chain, rounds=((0.5,), (4.0,)))
    run = Run(fake_runs.header([], [fake_runs.GPU]), (replace(row, protocols=two),), "")
    (sheet,) = protocols.sheets(run)
    assert sheet.rows[1][sheet.columns.index("95 %")].text == "too wide"


def test_a_burst_rests_and_lasts_a_tenth_of_a_second() -> None:
    instrument = kernel(uniform=0.005)
    row = measured(instrument, "burst", rounds=1)
    samples = entry(row, "burst").rounds[0]
    assert len(samples) == 10  # batches of 10 ms
    assert instrument.clock.now > 0.25


@pytest.mark.parametrize(
    ("script", "least", "most"),
    [
        (itertools.repeat(0.01), 51, 51),  # 0.5 s, without noise
        (itertools.repeat(0.2), 10, 10),  # ten samples
        (itertools.cycle((0.009, 0.011)), 65, 2000),  # a noise of 10 % that stays as it is
    ],
)
def test_stdrel_ends_with_little_or_with_steady_noise(script: Iterable[float], least: int, most: int) -> None:
    rule, count = StdRel(), 0
    for seconds in script:
        rule.add([seconds])
        count += 1
        if rule.is_finished or count > most:
            break
    assert least <= count <= most


def test_what_a_library_cannot_do_is_said_and_not_asked_again() -> None:
    class Without(Kernel):
        def launches(self, handle: int, count: int, manner: Manner) -> Batch:
            self.log.append(("launches", handle, count, manner))
            raise NotMeasuredError("unsupported", "OpenCL has no graphs")

    instrument = Without(prepared=Prepared(("device", "host")))
    instrument.by_operands, instrument.kinds = {}, {}
    row = measured(instrument, "graph", rounds=3)
    assert len(instrument.launched()) == 1
    assert entry(row, "graph").reason == "OpenCL has no graphs"
    assert line(row, "graph").flops_per_s is None
    assert line(row, OWN).rounds == 3


@pytest.mark.parametrize("when", ["exact", "before", "after"])
def test_a_wrong_kernel_has_no_figures(when: str) -> None:
    instrument = kernel()
    instrument.verdicts = {when: Check("wrong", {}, ("C is zero",))}
    row = measured(instrument, "cold", rounds=1)
    assert (row.kind, row.status, row.reason) == ("protocols", "wrong", "C is zero")
    assert not row.protocols
    assert not row.samples


def _interrupted_after(requests: int) -> Row | None:
    class Interrupted(Kernel):
        def launches(self, handle: int, count: int, manner: Manner) -> Batch:
            if len(self.launched()) == requests:
                raise KeyboardInterrupt
            return super().launches(handle, count, manner)

    instrument = Interrupted(prepared=Prepared(("device", "host")))
    instrument.by_operands, instrument.kinds = {}, {}
    try:
        measured(instrument, "clpeak", rounds=5)
    except InterruptedRow as interrupted:
        return interrupted.row
    except KeyboardInterrupt:
        return None
    raise AssertionError


def test_other_programs_beside_it_are_said() -> None:
    class Busy(Watch):
        def end(self, clock: str, batches: Sequence[Batch]) -> Conditions | None:
            return Conditions(
                cores=2, windows={clock: Readings(window_s=1.0, other_cores=1.5, steal_cores=0.0)}
            )

    instrument = kernel()
    instrument.watch = Busy()
    row = measured(instrument, "chain", device=fake_runs.CPU)
    assert row.notes == ("disturbed: other programs used 1.50 of 2 cores",)


def test_an_interrupted_row_keeps_its_whole_rounds() -> None:
    row = _interrupted_after(10)
    assert row
    assert [len(each.rounds) for each in row.protocols or ()] == [2, 2]
    assert "interrupted after 2 of 5 rounds" in row.notes[-1]
    assert row.is_incomplete
    assert row.check.verdict == "ok"
    assert _interrupted_after(2) is None


def test_ctrl_c_while_it_is_verified_again_keeps_the_rounds() -> None:
    class Interrupted(Kernel):
        def verify(self, handle: int, when: When) -> Verified:
            if when == "after" and self.kinds[handle] == "zeros":  # the second to be verified
                raise KeyboardInterrupt
            return super().verify(handle, when)

    instrument = Interrupted(prepared=Prepared(("device", "host")))
    instrument.by_operands, instrument.kinds = {}, {}
    with pytest.raises(InterruptedRow) as interrupted:
        measured(instrument, "zeros")
    row = interrupted.value.row
    assert [len(each.rounds) for each in row.protocols or ()] == [2, 2]
    assert "interrupted after 2 of 2 rounds" in row.notes[-1]
    assert row.is_incomplete


def test_an_interrupted_row_is_measured_anew_by_resume(tmp_path: Path) -> None:
    path, header = tmp_path / "run.jsonl", fake_runs.header(["protocols"], [fake_runs.GPU])
    interrupted, whole = _interrupted_after(10), measured(kernel(), "clpeak", rounds=5)
    assert interrupted
    with RunFile.create(path, header) as file:
        file.append(interrupted)
    with RunFile.resume(path, header) as file:
        steps = Steps([fake_runs.GPU], POLICY, file)
        assert not steps.done
        steps.finished(whole)
    (row,) = load(path).rows
    assert [len(each.rounds) for each in row.protocols or ()] == [5, 5]
    with RunFile.resume(path, header) as file:
        assert list(Steps([fake_runs.GPU], POLICY, file).done) == [whole.key]


# --- what becomes of it ---


@pytest.fixture(scope="module")
def run() -> Run:
    row = measured(kernel(zeros=0.0005), "mean", "zeros", "cold")
    header = replace(fake_runs.header(["protocols"], [fake_runs.GPU]), view="protocols")
    return Run(header, (row,), "run.jsonl")


def test_a_saved_row_comes_back_as_it_was(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    with RunFile.create(path, run.header) as file:
        file.append(run.rows[0])
    assert load(path).rows == run.rows


def test_a_figure_of_zeros_is_marked_and_nowhere_else(run: Run) -> None:
    (sheet,) = views.sheets(run)
    names = [cells[0].text for cells in sheet.rows]
    assert names == [OWN, "mean", "zeros !", "cold"]
    assert any("in no other table" in note.text for note in sheet.notes)
    assert [record["zero_operands"] for record in protocols.records(run.rows[0])] == [
        False,
        False,
        True,
        False,
    ]
    row = run.rows[0]
    assert not row.samples
    assert rates.derived(run, row)["device_gflops"] is None
    assert all(rates.summary(row, scope) is None for scope in ("kernel", "device", "host"))
    assert rates.best_peak([row], 0, "float", False, "", "settled") is None
    elsewhere = replace(run, header=replace(run.header, view="gemm"))
    assert not [sheet for sheet in views.sheets(elsewhere, verbose=True) if sheet.rows]


def test_a_row_of_protocols_with_samples_of_its_own_is_refused(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    with RunFile.create(path, run.header) as file:
        file.append(replace(run.rows[0], samples={"device": Scope((0.001,), 1, "stable")}))
    with pytest.raises(RunFileError, match="line 2: samples"):
        load(path)


def test_the_csv_has_a_line_for_each_protocol(run: Run) -> None:
    first, *others = to_csv(run).splitlines()
    assert first.split(",")[0] == "protocol"
    assert [text.split(",")[0] for text in others] == [OWN, "mean", "zeros", "cold"]


def test_the_csv_has_a_line_for_a_kernel_that_is_wrong(run: Run) -> None:
    instrument = kernel()
    instrument.verdicts = {"before": Check("wrong", {}, ("C is zero",))}
    wrong = replace(measured(instrument, "cold"), parameters={"TS": 8})
    first, *_, last = csv.DictReader(to_csv(replace(run, rows=(*run.rows, wrong))).splitlines())
    assert (first["protocol"], first["status"], first["reason"]) == (OWN, "ok", "")
    assert (last["protocol"], last["variant"], last["m"], last["gflops"]) == ("", "naive", "64", "")
    assert (last["status"], last["reason"], last["parameters"]) == ("wrong", "C is zero", '{"TS": 8}')


def test_every_protocol_of_another_tool_says_where_it_is_described() -> None:
    assert len(NAMES) == len(BY_NAME)
    assert {name for name in NAMES if BY_NAME[name].source} == {
        *("mamf-finder", "mamf-finder-median", "mamf-finder-max"),
        *("do_bench", "do_bench-median", "do_bench-first", "nvbench-cold", "nvbench-batch", "clpeak"),
    }


@pytest.mark.parametrize(
    ("values", "sentence"),
    [
        ({"kernels": "naive,tiled"}, "protocols measures one kernel: --kernel names 2"),
        ({"kernels": "auto"}, "auto takes another kernel for each problem"),
        ({"dtype": "float,double"}, "protocols measures one data type"),
        ({"only": "colt"}, "unknown protocol 'colt'; did you mean cold?"),
        ({"params": ("TS=8,16",), "kernels": "tiled"}, "--param, --math and --threads take one value each"),
        ({"beta": 1.0}, "no option 'beta'"),
    ],
)
def test_options_that_do_not_fit(values: dict[str, Any], sentence: str) -> None:
    with pytest.raises(UsageError, match=sentence.replace("?", r"\?")):
        build(Protocols, values)


def test_the_plan_is_one_kernel_on_each_device_with_its_protocols() -> None:
    chosen = build(Protocols, {"only": "cold,mean", "rounds": 3, "m": 100, "k": 50})
    (step,) = chosen.plan([fake_runs.CPU], lambda *_: None)
    assert isinstance(step, Case)
    assert (step.kind, step.protocols, step.rounds) == ("protocols", (OWN, "mean", "cold"), 3)
    assert step.problem is not None
    assert (step.problem.m, step.problem.n, step.problem.k) == (100, 100, 50)


def test_generated_operands_of_other_kinds() -> None:
    from gemmbench.gemm.verify import random_operands

    problem = Gemm(40, 50, 60, "float")
    zeros, normal = random_operands(problem, 1, "zeros"), random_operands(problem, 1, "normal")
    assert not any(matrix.any() for matrix in zeros)
    assert 0.9 < float(np.std(normal[0])) < 1.1
    assert float(np.abs(normal[0]).max()) > 2


def test_the_host_is_timed_by_the_wall_clock_and_stays_verified() -> None:
    executor = NumpyExecutor()
    host = replace(case("launch"), kind="gemm", variant="numpy", device=-1, problem=Gemm(8, 9, 10, "float"))
    bench = executor.prepare(host, Policy(budget_s=1.0))
    batch = bench.launches(3, Manner(flush_bytes=64, resets=True, warms=2))
    assert list(batch.each) == ["host"]
    assert len(batch.each["host"]) == 3
    assert bench.launches(4, Manner(apart=False)).count == 4
    assert bench.verify("after").check.verdict == "ok"
    with pytest.raises(NotMeasuredError, match="no graphs"):
        bench.launches(1, Manner(apart=False, graph=True))


def test_the_chart_hatches_zeros_and_names_both_groups(run: Run) -> None:
    from matplotlib.figure import Figure

    (pane,) = charts.protocol_panes([run], {})
    axes = Figure().add_subplot()
    pane.paint(axes)
    assert [label.get_text() for label in axes.get_yticklabels()] == [OWN, "mean", "zeros !", "cold"]
    assert [number for number, bar in enumerate(axes.patches) if bar.get_hatch()] == [2]
    assert any("+100.0 % (zeros)" in text.get_text() for text in axes.texts)


def test_the_page_names_every_protocol() -> None:
    page = (Path(__file__).parents[2] / "docs" / "protocols.md").read_text(encoding="utf-8")
    cells = [row.split("|")[1] for row in page.splitlines() if row.startswith("| `")]
    listed: list[str] = []
    for cell in cells:
        first, *others = re.findall("`([^`]+)`", cell)
        listed += [first, *(first + other if other.startswith("-") else other for other in others)]
    assert listed == [*NAMES]
