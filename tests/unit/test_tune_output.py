"""A tuner's tables, progress and chart."""

from __future__ import annotations

import io
from collections.abc import Callable
from dataclasses import replace

import pytest
from rich.console import Console

from gemmbench.model.run_file import Run
from gemmbench.report.table import stack
from gemmbench.tune.result import FINALIST, TRIAL, preset_line, sheets
from gemmbench.views import show
from tests import fake_runs as fake
from tests import fake_tuner as tuner
from tests.fake_tuner import fake_tune


def printed(run: Run, width: int = 80, top: int = 10) -> str:
    stream = io.StringIO()
    console = Console(file=stream, width=width, highlight=False, markup=False, emoji=False)
    console.print(stack(sheets(run, top)))
    return stream.getvalue()


def flat(text: str) -> str:
    return " ".join(text.split())


def test_golden(golden: Callable[[str, str], None]) -> None:
    golden("run-tune.txt", printed(fake_tune()))


@pytest.mark.parametrize("width", [40, 80, 120])
def test_nothing_is_wider_than_the_terminal(width: int) -> None:
    assert max(map(len, printed(fake_tune(), width).splitlines())) <= width


def test_the_shipped_preset_is_always_there() -> None:
    lines = printed(fake_tune(), top=2).splitlines()
    (shipped,) = [line for line in lines if line.startswith("shipped")]
    assert shipped.split()[1:3] == ["19.8", "1.00"]
    assert [line[:2] for line in lines if line[:3] in ("1  ", "2  ", "3  ")] == ["1 ", "2 "]


def test_the_second_timing_is_shown_and_decides() -> None:
    run = fake_tune()
    stars = [line.split()[0] for line in printed(run).splitlines() if "*" in line]
    assert stars == ["1"]
    assert "Timed again" not in printed(run)

    heat = [row for row in run.rows if row.phase == FINALIST]
    other = next(row for row in heat[2:] if row.variant == "register")
    slow, fast = heat[1], other
    changed = {id(slow): other.samples, id(fast): slow.samples}
    rows = [
        replace(row, samples=changed.get(id(row), row.samples)) if row.phase == FINALIST else row
        for row in run.rows
    ]
    text = printed(replace(run, rows=tuple(rows)))
    (star,) = [line.split()[0] for line in text.splitlines() if "*" in line]
    assert star != "1"
    assert f"Measured again, number {star} was faster than number 1, the best of the search." in flat(text)
    gflops, again = text.splitlines()[4].split()[1], text.splitlines()[4].split()[3]
    assert (gflops, again) == ("25.7", "18.8")

    heat = [
        row if row.parameters == run.rows[0].parameters else replace(row, samples=other.samples)
        for row in heat
    ]
    kept = [row for row in run.rows if row.phase == TRIAL]
    text = flat(printed(replace(run, rows=(*kept, *heat))))
    assert "Measured again, the shipped preset was faster than number 1, the best of the search." in text
    assert "The shipped preset stays: no other configuration was faster when measured again." in text


def test_large_speedups_have_three_digits() -> None:
    assert "The winner is saved: 24.4 times as fast (24.4 to 24.4)" in flat(printed(fake_tune(gain=24.418)))


def test_verdicts() -> None:
    run = fake_tune()
    assert "The winner is saved: 1.30 times as fast (1.30 to 1.30)" in flat(printed(run))
    assert "Slower at 128x128x128 (0.900)." in flat(printed(run))
    same = flat(printed(fake_tune(gain=1.0)))
    assert "The shipped preset stays: the best found is 1.0" in same
    assert "not clearly faster" in same
    assert "Slower" not in same  # what is not kept loses nowhere
    assert "as a preset" not in same
    assert "which is slower." in flat(printed(fake_tune(gain=0.8)))
    searched = replace(run, rows=tuple(row for row in run.rows if row.phase == TRIAL))
    assert "Nothing is saved" in flat(printed(searched))
    heat = tuple(row for row in run.rows if row.phase == FINALIST)
    alone = replace(run, rows=run.rows[:3] + heat[:1])
    assert "no other configuration was faster" in flat(printed(alone))
    only = replace(run, rows=run.rows[:1])
    assert "nothing else was measured." in flat(printed(only))
    nothing = replace(run, rows=(tuner.bad({"BM": 64}, "crashed", "why"),))
    assert "No configuration could be measured." in printed(nothing)
    assert sheets(replace(run, rows=())) == []


@pytest.mark.parametrize(
    ("status", "verdict"),
    [
        ("unsupported", "The winner is saved: the shipped preset does not run on this device."),
        ("failed", "The winner is saved: the shipped preset fails on this device."),
        ("wrong", "The winner is saved: the shipped preset gives wrong answers on this device."),
        ("skipped", "stays: it cannot be compared, because it was not timed: no room"),
        ("crashed", "stays: it cannot be compared, because it crashed: no room"),
        ("timed-out", "stays: it cannot be compared, because it was stopped: no room"),
    ],
)
def test_what_is_said_of_a_shipped_preset_without_a_rate(status: str, verdict: str) -> None:
    text = flat(printed(tuner.without_a_preset(status)))
    assert verdict in text
    assert ("as a preset" in text) == ("is saved" in verdict)


def test_a_winner_that_was_wrong_in_the_rounds_is_reported() -> None:
    run = fake_tune()
    last = replace(run.rows[-1], status="wrong", reason="residual 3.1 times the bound", samples={})
    text = flat(printed(replace(run, rows=(*run.rows[:-1], last))))
    assert (
        "The shipped preset stays: the best found gives wrong answers at 511x511x511: "
        "residual 3.1 times the bound" in text
    )
    assert "as a preset" not in text


def test_rounds_that_the_shipped_preset_has_no_time_in_keep_nothing() -> None:
    run = fake_tune()
    rows = tuple(
        replace(row, former=None, notes=("not interleaved with register: skipped",))
        if row.phase.startswith("round")
        else row
        for row in run.rows
    )
    text = flat(printed(replace(run, rows=rows)))
    assert "The shipped preset stays: it and the best found gave no pair of times." in text
    assert "as a preset" not in text


def test_failures_are_counted() -> None:
    run = fake_tune()
    rows = [
        replace(row, status="failed", reason=fake.HOSTILE, samples={}) if place % 2 else row
        for place, row in enumerate(run.rows[:41])
    ]
    assert "21 of 41 configurations failed: 20 failed, 1 timed out." in flat(
        printed(replace(run, rows=tuple(rows)))
    )


def test_a_type_of_its_own_is_in_the_key() -> None:
    run = fake_tune()
    double = replace(run, rows=tuple(replace(row, dtype="double") for row in run.rows))
    assert 'as a preset: "cpu-intel:double": {"BM": 32,' in flat(printed(double))
    line = preset_line("gpu", {"BM": 64, "BN": 32})
    assert eval("{" + line + "}") == {"gpu": {"BM": 64, "BN": 32}}


def test_show_shows_the_same() -> None:
    stream = io.StringIO()
    Console(file=stream, width=80, highlight=False, markup=False, emoji=False).print(show(fake_tune()))
    assert stream.getvalue() == printed(fake_tune())
