"""`compare` and `history` of saved runs, of A/A recordings cut into their repetitions, of slower rows."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.net import drawn, runs
from tests.net.conftest import OpenBook
from tests.net.record import normal

#        base                            new
PAIRS = (
    ("plots/h200-square.jsonl", "plots/h200-limit.jsonl"),
    ("tests/data/aa/h200.jsonl", "plots/h200-square.jsonl"),
    ("plots/h200-limit.jsonl", "plots/h200-energy.jsonl"),
    ("plots/h200-sweep-k.jsonl", "plots/h200-energy-k.jsonl"),
    ("plots/h200-precision.jsonl", "plots/h200-tensor.jsonl"),
    ("plots/cpu-intel-square.jsonl", "tests/data/aa/cpu-intel.jsonl"),
    ("plots/cpu-pocl-square.jsonl", "tests/data/aa/cpu-pocl.jsonl"),
    ("tests/data/ci-base.jsonl", "plots/cpu-pocl-square.jsonl"),
    ("plots/cpu-pocl-square.jsonl", "plots/cpu-intel-square.jsonl"),  # another driver
    ("plots/cpu-pocl-square.jsonl", "plots/h200-square.jsonl"),  # another device
)
ACROSS = (
    "plots/cpu-pocl-peak.jsonl plots/cpu-intel-peak.jsonl --across device,driver",
    "plots/cpu-pocl-sweep-k.jsonl plots/h200-sweep-k.jsonl --across device,driver --ratio naive",
    "tests/data/ci-base.jsonl plots/cpu-intel-square.jsonl --across device,driver,source --ratio numpy",
    "tests/data/ci-base.jsonl plots/cpu-intel-square.jsonl --ratio nonsense,naive",
    "plots/h200-square.jsonl plots/h200-limit.jsonl --ratio peak",
)
FORMATS = ("table", "markdown", "junit", "json", "github")
AA = ("cpu-intel", "cpu-pocl", "h200")
SLOWER = {
    "cpu-intel": {("tiled", 256): 1.5, ("dot-v8", 512): 0.6},
    "cpu-pocl": {("tiled", 256): 1.5, ("dot-v8", 512): 0.6},
    "h200": {("gpu-tile", 256): 1.06, ("register", 2048): 1.2, ("prefetch", 1024): 0.9},
}
REFERENCE = {"cpu-intel": "naive", "cpu-pocl": "naive", "h200": "gpu-tile"}
THRESHOLDS = """\
[[row]]
variant = "register"
size = 2048
threshold = "25 %"

[[row]]
variant = "tiled"
threshold = "60 %"

[[row]]
variant = "absent"
threshold = "1 %"
"""


def test_compare_saved_runs(book: OpenBook) -> None:
    page = book("compare-saved")
    for base, new in PAIRS:
        page.call("compare", base, new)
        page.call("compare", new, base, "--format", "json")
    for words in ACROSS:
        page.call("compare", *words.split())


@pytest.fixture
def made(request: pytest.FixtureRequest) -> list[str]:
    """run0.jsonl, ... of an A/A recording, slow.jsonl with slower rows, and lame.jsonl that lacks some."""
    name = request.param
    parts = runs.repetitions(f"tests/data/aa/{name}.jsonl")
    names = [runs.write(f"run{number}.jsonl", *part) for number, part in enumerate(parts)]
    header, rows = parts[-1]
    slow = runs.scaled(rows, SLOWER[name])
    assert slow != rows
    runs.write("slow.jsonl", header, slow)
    crashed = {"status": "crashed", "reason": "the driver's process was killed by SIGSEGV", "samples": {}}
    runs.write("lame.jsonl", header, [{**rows[1], **crashed}, *rows[3:]])
    Path("thresholds.toml").write_text(THRESHOLDS)
    return names


@pytest.mark.parametrize(("name", "made"), [(name, name) for name in AA], indirect=["made"], ids=AA)
def test_compare_repetitions(name: str, made: list[str], book: OpenBook) -> None:
    page = book(f"compare-aa-{name}")
    whole = f"tests/data/aa/{name}.jsonl"
    five, one = made[:5], made[:1]
    page.call("compare", *one, made[5])
    page.call("compare", *five, made[5], "--verbose")
    page.call("compare", "--strict", *five, "--", *made[5:8])
    page.call("compare", *five, "slow.jsonl")
    page.call("compare", whole, "slow.jsonl", "--strict")
    for form in FORMATS:
        page.call("compare", *five, "slow.jsonl", "--format", form)
    page.call("compare", *one, "slow.jsonl", "--noise", whole)
    page.call("compare", *five, "slow.jsonl", "--threshold", "30 %")
    page.call("compare", *five, "slow.jsonl", "--thresholds", "thresholds.toml", "--strict")
    page.call("compare", *five, "slow.jsonl", "--confidence", "99.9")
    page.call("compare", *five, "slow.jsonl", "--scope", "host")
    page.call("compare", *five, "slow.jsonl", "--ratio", REFERENCE[name])
    page.call("compare", *five, "slow.jsonl", "--ratio", "cublas,numpy", "--format", "json")
    page.call("compare", *five, "lame.jsonl")
    page.call("compare", *five, "lame.jsonl", "--missing", "fail", "--format", "junit")
    page.call("compare", "lame.jsonl", *one)
    with drawn.captured() as figures:
        page.call("compare", *five, "slow.jsonl", "--plot", "ratios.svg")
    page.write("chart of compare", figures[0])
    writes = [word for form in FORMATS for word in ("--write", f"{form}=out-{form}")]
    page.call("compare", *five, "slow.jsonl", *writes)
    for form in FORMATS:
        page.write(f"--write {form}", normal(Path(f"out-{form}").read_text()))


@pytest.mark.parametrize(("name", "made"), [(name, name) for name in AA], indirect=["made"], ids=AA)
def test_history(name: str, made: list[str], book: OpenBook, monkeypatch: pytest.MonkeyPatch) -> None:
    """Twelve days; from the seventh on some rows are slower."""
    parts = runs.repetitions(f"tests/data/aa/{name}.jsonl")
    days = []
    for day in range(12):
        header, rows = parts[day % len(parts)]
        header = {**header, "started_utc": f"2026-10-{1 + day:02d}T12:00:00+00:00"}
        others = 1.0 if day < len(parts) else 1.0 + 1e-12  # the same samples would count once
        slow = runs.scaled(rows, SLOWER[name] if day > 5 else {}, others)
        days.append(runs.write(f"day{day}.jsonl", header, slow))
    page = book(f"history-{name}")
    page.call("history", *days)
    page.call("history", *days, "--verbose")
    for form in ("markdown", "csv", "json"):
        page.call("history", *days, "--format", form)
    page.call("history", *days, "--ratio", REFERENCE[name])
    page.call("history", *days, "--scope", "host", "--threshold", "20 %")
    page.call("history", *days[:6], "slow.jsonl")
    monkeypatch.setenv("COLUMNS", "120")
    page.call("history", *days)
    monkeypatch.setenv("COLUMNS", "80")
    with drawn.captured() as figures:
        page.call("history", *days, "--plot", "rows.svg")
    page.write("chart of history", figures[0])


def test_history_of_saved_runs(book: OpenBook) -> None:
    page = book("history-saved")
    page.call("history", *(f"plots/h200-{name}.jsonl" for name in ("square", "limit", "energy", "peak")))
    page.call("history", "plots/cpu-intel-square.jsonl", "plots/cpu-pocl-square.jsonl", "--format", "csv")
