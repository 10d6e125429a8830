"""A tuner's tables, progress and chart."""

from __future__ import annotations

import io
from collections.abc import Callable
from dataclasses import replace

import msgspec
import pytest
from rich.console import Console

from gemmbench.model.run_file import Run
from gemmbench.report.table import stack
from gemmbench.tune.result import FINALIST, TRIAL, preset_line, tuning_sheets
from gemmbench.views import show
from tests import fake_runs as fake
from tests import fake_tuner as tuner
from tests.fake_tuner import fake_tune


def printed(run: Run, width: int = 80, top: int = 10) -> str:
    stream = io.StringIO()
    console = Console(file=stream, width=width, highlight=False, markup=False, emoji=False)
    console.print(stack(tuning_sheets(run, top)))
    return stream.getvalue()


def test_golden(golden: Callable[[str, str], None]) -> None:
    golden("run-tune.txt", printed(fake_tune()))


@pytest.mark.parametrize("width", [40, 80, 120])
def test_nothing_is_wider_than_the_terminal(width: int) -> None:
    assert max(map(len, printed(fake_tune(), width).splitlines())) <= width


def of_phases(run: Run, *phases: str) -> Run:
    return replace(run, rows=tuple(row for row in run.rows if row.phase in phases))


def timed_again(run: Run) -> Run:
    """The finals time the second of the search faster than the first."""
    _, slow, *rest = (row for row in run.rows if row.phase == FINALIST)
    other = next(row for row in rest if row.variant == "register")
    changed = {id(slow): other.samples, id(other): slow.samples}
    return replace(
        run, rows=tuple(replace(row, samples=changed.get(id(row), row.samples)) for row in run.rows)
    )


def shipped_again(run: Run) -> Run:
    """The finals time the shipped preset faster than the first of the search."""
    heat = [row for row in run.rows if row.phase == FINALIST]
    slow = next(row for row in heat[2:] if row.variant == "register").samples
    shipped = run.rows[0].parameters
    heat = [row if row.parameters == shipped else replace(row, samples=slow) for row in heat]
    return replace(run, rows=(*of_phases(run, TRIAL).rows, *heat))


def unpaired(run: Run) -> Run:
    """The shipped preset has no time in the rounds."""
    note = ("not interleaved with register: skipped",)
    rows = (
        replace(row, former=None, notes=note) if row.phase.startswith("round") else row for row in run.rows
    )
    return replace(run, rows=tuple(rows))


def wrong_last(run: Run) -> Run:
    last = replace(run.rows[-1], status="wrong", reason="residual 3.1 times the bound", samples={})
    return replace(run, rows=(*run.rows[:-1], last))


def half_failed(run: Run) -> Run:
    rows = (
        replace(row, status="failed", reason=fake.HOSTILE, samples={}) if place % 2 else row
        for place, row in enumerate(run.rows[:41])
    )
    return replace(run, rows=tuple(rows))


RUN = fake_tune()
RULES = {
    "the second timing decides": timed_again(RUN),
    "the shipped preset is faster when timed again": shipped_again(RUN),
    "large speedups have three digits": fake_tune(gain=24.418),
    "what is not clearly faster is not kept, and loses nowhere": fake_tune(gain=1.0),
    "the best found is slower": fake_tune(gain=0.8),
    "no finals": of_phases(RUN, TRIAL),
    "no other configuration was faster": replace(RUN, rows=RUN.rows[:3] + of_phases(RUN, FINALIST).rows[:1]),
    "nothing else was measured": replace(RUN, rows=RUN.rows[:1]),
    "nothing could be measured": replace(RUN, rows=(tuner.bad({"BM": 64}, "crashed", "why"),)),
    **{
        f"the shipped preset is {status}": tuner.without_a_preset(status)
        for status in ("unsupported", "failed", "wrong", "skipped", "crashed", "timed-out")
    },
    "a winner that was wrong in the rounds": wrong_last(RUN),
    "no pair of times": unpaired(RUN),
    "failures are counted": half_failed(RUN),
    "a type has a key of its own": replace(RUN, rows=tuple(replace(r, dtype="double") for r in RUN.rows)),
}


def test_rules(golden: Callable[[str, str], None]) -> None:
    """The shipped preset is always there; what is not kept is no preset to paste."""
    pages = [f"--- {title}\n\n{printed(run, top=2)}" for title, run in RULES.items()]
    golden("tune-output.txt", "\n".join(pages))
    assert tuning_sheets(replace(RUN, rows=())) == []


def test_a_preset_is_toml_for_the_file_of_a_kernel() -> None:
    line = preset_line("gpu:half", {"BM": 64, "BN": 32})
    table = msgspec.toml.decode(f"[presets]\n{line}\n")
    assert table == {"presets": {"gpu:half": {"BM": 64, "BN": 32}}}


def test_show_shows_the_same() -> None:
    stream = io.StringIO()
    Console(file=stream, width=80, highlight=False, markup=False, emoji=False).print(show(fake_tune()))
    assert stream.getvalue() == printed(fake_tune())
