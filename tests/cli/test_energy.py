"""``--energy``: asked for, shown, saved; and what is said where there is no counter."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from gemmbench.model.run_file import load
from tests.cli.conftest import Call, Page

PAGES = (
    "square --sizes 8,16 --kernel naive,tiled",
    "square --sizes 8,16 --kernel naive,tiled --scope all",
    "sweep-k --m 8 --n 16 --k-max 100 --kernel naive,tiled --baseline none",
    "gemm -m 8 --kernel naive",
)


@pytest.mark.parametrize("device", ["gpu", "cpu"])
def test_pages(device: str, page: Callable[[str], Page], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GEMMBENCH_FAKE_DEVICES", device)
    for words in PAGES:
        assert page(f"command-energy-{device}").call(*words.split(), "--energy", "--no-peak").exit_code == 0


@pytest.mark.parametrize("asked", [True, False])
def test_joules_are_saved_if_asked_for(
    asked: bool, call: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GEMMBENCH_FAKE_DEVICES", "gpu")
    path = str(tmp_path / "run.jsonl")
    result = call("square", "--sizes", "8", "--no-peak", "--save", path, *["--energy"] * asked)
    assert result.exit_code == 0
    assert ("GFLOP/J" in result.stdout) == asked
    run = load(path)
    assert run.header.policy.energy is asked
    measured = [row for row in run.rows if row.status == "ok"]
    assert len(measured) > 10
    assert all((row.energy.joules is not None) == (asked and row.device >= 0) for row in measured)
    for row in json.loads(call("show", path, "--format", "json").stdout):
        found = asked and row["device"] >= 0 and row["status"] == "ok"
        assert (row["gflop_per_j"] is not None) == found


def test_a_run_goes_on_only_as_it_began(call: Call, tmp_path: Path) -> None:
    given = "square --sizes 8 --kernel naive --no-peak --save"
    words = (*given.split(), str(tmp_path / "run.jsonl"))
    assert call(*words, "--energy").exit_code == 0
    resumed = call(*words, "--resume")
    assert resumed.exit_code == 2
    assert "cannot resume" in resumed.stderr
    assert call(*words, "--energy", "--resume").exit_code == 0
