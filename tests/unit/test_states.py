"""Settled and burst in rows, fractions, comparisons and tables: they are never mixed."""

from __future__ import annotations

import csv
import io
import json
import math
from dataclasses import replace
from pathlib import Path

import pytest
from msgspec import UNSET

from gemmbench import ladder, views
from gemmbench.exports import records
from gemmbench.model.case import Case, Policy, Skip
from gemmbench.model.device import Conditions, Readings, State
from gemmbench.model.row import Problem, Row, Scope
from gemmbench.model.run_file import Header, Run, RunFile, RunFileError, encode
from gemmbench.options import build, command_line
from gemmbench.options.comparing import Check
from gemmbench.options.measuring import Gemm, Peak, Square, SweepK, Workloads
from gemmbench.regress.compare import compare
from gemmbench.report.progress import sample
from gemmbench.stats import rates
from gemmbench.stats.conditions import limited
from gemmbench.suite.cached import KeptPeaks
from tests import fake_runs as fake
from tests.unit.test_tables import text

LIMITED = Readings(
    begin_s=(1.0, 1.01, 1.02),
    clock_mhz=(1440.0, 1430.0, 1450.0),
    power_w=(690.0, 692.0, 694.0),
    celsius=(54.0, 54.0, 55.0),
    limits=("power", "power", "power"),
    window_s=0.03,
)


SMALL = Problem(256, 256, 256)


def header(state: State, policy: Policy | None = None) -> Header:
    return replace(
        fake.header(["square"], (fake.GPU,)), policy=replace(policy or Policy(), state=state), view="square"
    )


def conditions(state: State) -> Conditions:
    return Conditions(state, 3.0, 1980.0, 16, {"device": LIMITED, "host": Readings(window_s=1.0)})


def gemm(state: State, seconds: float) -> Row:
    row = fake.gemm_row("naive", Problem(512, 512, 512), 1000.0)
    return replace(row, conditions=conditions(state), samples={"kernel": fake.scope(seconds)})


def peak(state: State, seconds: float, burst_s: float = 0.0) -> Row:
    row = replace(fake.peak_row(1, 1000.0), source="abc", conditions=conditions(state))
    burst = {"kernel": fake.scope(burst_s)} if burst_s else {}
    return replace(row, samples={"kernel": fake.scope(seconds)}, burst=burst)


@pytest.mark.parametrize(("state", "ratio"), [("settled", 0.5), ("burst", 0.4)])
def test_a_fraction_takes_the_peak_of_its_state(state: State, ratio: float) -> None:
    top = peak("settled", 0.0010, burst_s=0.0008)
    flops = rates.flops_of(top)
    row = gemm(state, 1.0)
    seconds = rates.flops_of(row) / (flops / min(top.samples["kernel"].seconds)) / 0.5
    row = replace(row, samples={"kernel": fake.scope(seconds, spread=0.0)})
    fraction = rates.peak_fraction(Run(header(state), (top, row)), row)
    assert fraction == pytest.approx(ratio, rel=0.01)


def test_a_settled_row_has_no_fraction_of_a_burst() -> None:
    rows = peak("burst", 0.001), gemm("settled", 0.001)
    assert rates.peak_fraction(Run(header("settled"), rows), rows[1]) is None


def test_rows_of_different_states_are_not_compared() -> None:
    settled = Run(header("settled"), (gemm("settled", 0.001),), "settled.jsonl")
    burst = Run(header("burst"), (gemm("burst", 0.0009),), "burst.jsonl")
    (line,) = compare([settled], [burst]).lines
    assert line.verdict == "incomparable"
    remedy = "give both runs the same --state and --cold, or compare nevertheless with --across sampling"
    assert line.reason == f"other sampling: --state burst, not --state settled; {remedy}"


@pytest.mark.parametrize("kind", [Square, SweepK, Workloads, Gemm, Peak])
def test_every_measuring_command_has_the_state(kind: type[Square]) -> None:
    assert build(kind, {}).policy.state == "settled"
    burst = build(kind, {"state": "burst"})
    assert burst.policy.state == "burst"
    assert command_line(burst)[1:] == ("--state", "burst")


@pytest.mark.parametrize(
    ("base", "asked", "state"),
    [("burst", None, "burst"), ("burst", "settled", "settled")],
)
def test_a_check_is_in_the_state_of_its_base_unless_told(
    base: State, asked: State | None, state: State
) -> None:
    assert build(Check, {"state": asked}).policy_of(Policy(state=base)).state == state
    assert build(Check, {}).state is None


def test_a_run_is_not_resumed_in_another_state(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    RunFile.create(path, header("settled")).close()
    RunFile.resume(path, header("settled")).close()
    with pytest.raises(RunFileError, match="another state"):
        RunFile.resume(path, header("burst"))


@pytest.mark.parametrize(
    ("state", "kept", "seconds"),
    [
        ("settled", peak("settled", 0.0010, 0.0008), 0.0010),
        ("burst", peak("settled", 0.0010, 0.0008), 0.0008),
        ("burst", peak("settled", 0.0010), None),
        ("settled", peak("burst", 0.0008), None),
    ],
)
def test_a_kept_peak_serves_runs_of_its_state(
    state: State, kept: Row, seconds: float | None, tmp_path: Path
) -> None:
    peaks = KeptPeaks(tmp_path)
    peaks.keep(Run(header("settled"), (kept,)))
    case = Case("peak", 0, kept.variant, kept.dtype, kept.parameters, source=kept.source)
    (step,) = peaks.fill((case,), [fake.GPU], state)
    if seconds is None:
        assert step == case
    else:
        assert isinstance(step, Skip)
        assert step.row.samples["kernel"].seconds[0] == pytest.approx(seconds, rel=0.01)
        assert step.row.conditions is not None
        assert step.row.conditions.state == state


def test_the_heading_says_what_limited_the_device() -> None:
    run = Run(header("settled"), (gemm("settled", 0.001),))
    assert limited(run, 0, "float") == "1,440 of 1,980 MHz"
    assert limited(run, 0, "double") == ""
    assert "power-limited: 1,440 of 1,980 MHz" in views.to_markdown(run, ladder.ORDER)
    assert "burst" not in views.to_markdown(run, ladder.ORDER)


def test_the_heading_says_that_a_run_is_of_bursts() -> None:
    run = Run(header("burst"), (gemm("burst", 0.001),))
    assert "burst: the first 0.1 s after a rest" in views.to_markdown(run, ladder.ORDER)


def test_peaks_say_how_far_a_burst_is_from_settled() -> None:
    far = Run(replace(header("settled"), view="peak"), (peak("settled", 0.0010, 0.0008),))
    near = Run(replace(header("settled"), view="peak"), (peak("settled", 0.00102, 0.00100),))
    assert "in a burst 25.0 % more" in views.to_markdown(far, ladder.ORDER)
    assert "in a burst" not in views.to_markdown(near, ladder.ORDER)


def disturbed_run() -> Run:
    busy = Conditions("settled", cores=2, windows={"host": Readings(window_s=1.0, other_cores=1.0)})
    row = replace(fake.gemm_row("numpy", SMALL, 2.2, device=-1), conditions=busy)
    return Run(replace(fake.header(["square"]), view="square"), (row, fake.gemm_row("naive", SMALL, 129.0)))


@pytest.mark.parametrize("verbose", [False, True])
def test_a_disturbed_row_is_marked(verbose: bool) -> None:
    table = text(views.show(disturbed_run(), ladder.ORDER, verbose))
    assert "~2.20" in table
    assert "disturbed (~): numpy at 256: other programs used 1.00 of 2 cores" in " ".join(table.split())
    assert "~129" not in table


def test_verbose_tables_end_with_the_conditions() -> None:
    row = gemm("settled", 0.001)
    assert row.conditions is not None
    busy = Readings(window_s=1.0, other_cores=3.5, steal_cores=0.0, switches=41)
    row = replace(row, conditions=replace(row.conditions, windows={"device": LIMITED, "host": busy}))
    run = Run(header("settled"), (row,))
    table = text(views.show(run, ladder.ORDER, True), 160)
    assert table.index("conditions: medians of the batches") > table.index("float GFLOPS by scope")
    device, host = (line.split() for line in table.splitlines() if "naive float 512x512x512" in line)
    assert device[3:] == [
        *("device", "settled", "3.00", "s", "1,440", "1,980", "692", "55.0", "power"),
        *"---",
    ]
    assert host[3:] == ["host", "settled", "3.00", "s", *"-----", "3.50", "0.000", "41"]
    assert device[0] == host[0] == "~naive"
    assert "conditions" not in text(views.show(run, ladder.ORDER), 160)
    without = Run(header("settled"), (replace(row, conditions=None),))
    assert "conditions" not in text(views.show(without, ladder.ORDER, True), 160)


def test_other_programs_get_the_conditions() -> None:
    run = Run(header("settled"), (gemm("settled", 0.001),))
    (record,) = json.loads(records.to_json(run))
    assert record["conditions"]["state"] == "settled"
    assert record["conditions"]["windows"]["device"]["clock_mhz"] == [1440.0, 1430.0, 1450.0]
    assert record["disturbed"] == []
    (line,) = csv.DictReader(io.StringIO(records.to_csv(run)))
    assert (line["state"], line["clock_mhz"], line["limits"]) == ("settled", "1440.0", "power")
    (line,) = csv.DictReader(
        io.StringIO(records.to_csv(Run(header("settled"), (fake.gemm_row("naive", SMALL, 1.0),))))
    )
    assert (line["state"], line["clock_mhz"], line["other_cores"]) == ("", "", "")


def test_conditions_are_saved_and_read(tmp_path: Path) -> None:
    path, rows = tmp_path / "run.jsonl", (gemm("settled", 0.001), peak("settled", 0.001, 0.0008))
    with RunFile.create(path, header("settled")) as file:
        for row in rows:
            file.append(row)
    with RunFile.resume(path, header("settled")) as file:
        assert file.done == rows


# --- rows that power limits ---------------------------------------------------------------------------------


@pytest.mark.parametrize(("last", "told"), [(1.0, False), (1.008, False), (1.02, True), (0.98, True)])
def test_a_limited_row_whose_last_third_lies_off_its_first_is_told(last: float, told: bool) -> None:
    """Single batches lie 5 % apart: no reason to keep quiet about a median that moved by 2 %."""
    jitter = [1.0, 1.05, 0.98, 1.02, 0.96]
    seconds = tuple(0.001 * each for each in jitter * 8) + tuple(0.001 * last * each for each in jitter * 4)
    row = replace(gemm("settled", 0.001), samples={"kernel": Scope(seconds, 1, "stable")})
    shown = " ".join(text(views.show(Run(header("settled"), (row,)), ladder.ORDER), 120).split())
    assert ("not settled (last third > 1.0 % off the first): naive at 512" in shown) is told
    free = replace(row, conditions=Conditions("settled", windows={"device": Readings(window_s=1.0)}))
    assert "last third" not in text(views.show(Run(header("settled"), (free,)), ladder.ORDER), 120)


def test_a_limited_rows_figure_is_the_mean_of_its_samples_everywhere() -> None:
    """Of 40 batches in turn 1 and 1.02 ms long, of which the median would be either."""
    samples = Scope((0.001, 0.00102) * 20, 1, "stable", "mean")
    row = replace(gemm("settled", 0.001), samples={"kernel": samples})
    run, flops = Run(header("settled"), (row,)), rates.flops_of(row)
    reached, cost = rates.rate(row, "kernel"), rates.measure(row)
    assert reached is not None
    assert cost is not None
    assert reached.median == pytest.approx(flops / 0.00101)
    assert math.exp(cost.value) == pytest.approx(0.00101 / flops)
    assert reached.low <= reached.median <= reached.high
    assert "; mean 1.01 ms" in sample(run, row)
    line = json.loads(encode(row))
    assert line["samples"]["kernel"]["middle"] == "mean"
    plain = replace(row, samples={"kernel": replace(samples, middle=UNSET)})
    assert "middle" not in json.loads(encode(plain))["samples"]["kernel"]
    assert "; median 1.0" in sample(run, plain)
