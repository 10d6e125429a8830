"""``gemmbench kernels --resources``."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from gemmbench.ladder import LADDER
from tests.cli.conftest import Call


def test_every_kernel_is_built_and_none_is_run(call: Call) -> None:
    done = call("kernels", "--resources", "--device", "intel", "--kernel", "naive,tiled")
    assert done.exit_code == 0, done.stderr
    assert [line.split()[:3] for line in done.stdout.splitlines() if "2.00 KiB" in line] == [
        ["naive", "naive", "256"],
        ["tiled", "tiled", "256"],
    ]


def test_it_does_not_mix_with_what_shows_no_device(call: Call) -> None:
    done = call("kernels", "--resources", "--describe", "naive")
    assert (done.exit_code, done.stdout) == (2, "")
    assert "--describe and --run do not fit" in done.stderr


# --- the ladder as planned for devices that are not here ----------------------------------------------------

DEVICES = Path(__file__).parents[1] / "data" / "devices"


@pytest.mark.parametrize("name", ["mali-t760", "adreno-530", "arc-a770"])
def test_the_ladder_is_planned_for_a_described_device(call: Call, name: str) -> None:
    done = call("kernels", "--explain", "--device-facts", str(DEVICES / f"{name}.json"))
    assert done.exit_code == 0, done.stderr
    lines = done.stdout.splitlines()
    assert max(map(len, lines)) <= 80
    first = {line.split()[0] for line in lines if line.strip()}
    assert set(LADDER) <= first
    assert any("kernels would run; nothing was built" in line for line in lines)
    assert any(line.startswith("source: ") for line in lines)
    (unsup,) = (line for line in lines if line.startswith("nv-wgmma "))
    assert "unsup" in unsup


def test_a_description_may_be_what_devices_prints_or_a_saved_run(call: Call, tmp_path: Path) -> None:
    both = tmp_path / "both.json"
    both.write_text(call("devices", "--json").stdout)
    done = call("kernels", "--explain", "--device-facts", str(both), "--kernel", "naive", "--device", "pocl")
    assert done.exit_code == 0, done.stderr
    assert done.stdout.count("1 of 1 kernels would run") == 1
    run = "plots/h200-square.jsonl"
    done = call("kernels", "--resources", "--device-facts", run, "--kernel", "register")
    assert "NVIDIA 9.0: 2048 with up to 32 registers" in done.stdout


def test_the_constraint_is_drawn(call: Call, tmp_path: Path) -> None:
    here, there = tmp_path / "here.svg", tmp_path / "there.svg"
    facts = str(DEVICES / "mali-t760.json")
    done = call(
        "kernels", "--explain", "--device-facts", facts, "--dtype", "float,double", "--plot", str(there)
    )
    assert (done.exit_code, done.stderr) == (0, f"Drew {there}.\n")
    text = there.read_text()
    assert text.count("work-items in flight on a core") == 2
    assert "a: 256 in flight: naive (1), " in text
    done = call("kernels", "--resources", "--device", "intel", "--kernel", "naive,tiled", "--plot", str(here))
    assert done.exit_code == 0, done.stderr
    assert "the largest group of a kernel as built" in here.read_text()


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (("--explain", "--device-facts", "nowhere.json"), "--device-facts nowhere.json: no such file"),
        (("--explain", "--device-facts", "bad.json"), "bad.json does not describe a device as `gemmbench"),
        (("--explain", "--device-facts", "short.json"), "missing required field `index`"),
        (("--explain", "--device-facts", "none.json"), "--device-facts none.json describes no device"),
        (("--explain", "--describe", "naive"), "--explain plans kernels: --describe and --run do not fit"),
        (("--explain", "--kernel", "numpy"), "--kernel numpy: a library's kernels are its own"),
        (("--explain", "--resources"), "--resources builds kernels and --explain builds none: choose one"),
        (("--plot", "out.png"), "--plot is for --resources and --explain"),
        (("--explain", "--plot", "out.gif"), "--plot out.gif: a chart is a .png"),
    ],
)
def test_what_cannot_be_explained_is_a_sentence(
    call: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: Any, sentence: str
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("bad.json").write_text("{")
    Path("short.json").write_text("{}")
    Path("none.json").write_text("[]")
    done = call("kernels", *words)
    assert (done.exit_code, done.stdout) == (2, "")
    assert sentence in done.stderr
    assert len(done.stderr.splitlines()) == 1
