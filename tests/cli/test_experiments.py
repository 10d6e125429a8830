"""The experiments of the write-ups: their commands are understood, and their figures are the saved runs'."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from gemmbench.ladder import LADDER
from gemmbench.model.run_file import encode, load
from gemmbench.stats import rates
from tests.cli.conftest import ROOT, Call
from tests.fake_runs import slower
from tools import experiments
from tools.experiments import EXPERIMENTS, FOLDER, Experiment


@pytest.mark.parametrize("experiment", EXPERIMENTS, ids=lambda experiment: experiment.name)
def test_the_command_is_understood(experiment: Experiment, call: Call) -> None:
    words = experiment.command.split()
    dry = ["--describe"] if words[0] == "peak" else ["--dry-run"]
    result = call(words[0], *dry) if words[0] == "peak" else call(*words, *dry)
    assert result.exit_code == 0, result.stderr


def test_a_figure_is_that_of_the_run_and_a_missing_run_is_said(tmp_path: Path) -> None:
    folder = tmp_path / FOLDER / "cpu-intel"
    folder.mkdir(parents=True)
    known = load(ROOT / FOLDER / "cpu-intel" / "image.jsonl")
    row = next(row for row in known.rows if row.former and row.former.variant == "buffer-4x8")
    wrong = replace(row, status="wrong")
    for shown in (row, slower(row, 2), wrong):
        (folder / "image.jsonl").write_bytes(encode(known.header) + encode(shown))
        line = next(line for line in experiments.table(tmp_path).splitlines() if "image-4x8 --versus" in line)
        ratio = rates.versus(shown)
        text = f"{ratio.median:.3g}x ({ratio.low:.3g} to {ratio.high:.3g})" if ratio else "wrong"
        assert line.endswith(f"| {text} |")
    assert ratio is None
    assert experiments.table(tmp_path).count("| not measured |") == len(EXPERIMENTS) - 1
    shutil.rmtree(folder)
    assert "measured" not in experiments.table(tmp_path)


def test_the_steps_of_the_tutorial_are_its_ten_kernels() -> None:
    (steps,) = (each for each in EXPERIMENTS if each.name == "steps")
    assert tuple(experiments.STEPS.split(",")) == LADDER[:10]
    assert steps.command.split()[4] == experiments.STEPS
