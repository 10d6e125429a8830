"""``peak``'s families, its pages on the probes, and the peaks that are kept for the other commands."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import pytest

from gemmbench.model.run_file import load
from gemmbench.probes import PROBES
from gemmbench.probes.memory import BY_NAME, FAMILIES
from tests.cli import fake_machine
from tests.cli.conftest import Call

SQUARE = ("square", "--sizes", "8", "--kernel", "naive", "--baseline", "none", "--device", "0")


@pytest.fixture
def sourced(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gemmbench.measure.machine.default", fake_machine.Sourced)


def test_a_resumed_peak_is_not_kept_as_todays(call: Call, sourced: None, tmp_path: Path) -> None:
    words = ("peak", "--device", "0", "-q", "--save", str(tmp_path / "run.jsonl"))
    cache = Path(os.environ["XDG_CACHE_HOME"]) / "gemmbench"
    assert call(*words).exit_code == 0
    assert list(cache.glob("peaks/*.json"))
    shutil.rmtree(cache)
    assert call(*words, "--resume").exit_code == 0
    assert not list(cache.glob("peaks/*.json"))


# --- families -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("words", "kinds"),
    [
        ("", {"peak"}),
        ("--only memory", {"bandwidth"}),
        ("--only transfer,latency", {"transfer", "latency"}),
        ("--only compute,memory --types float", {"peak", "bandwidth"}),
        ("--all", {"peak", "bandwidth", "transfer", "latency"}),
    ],
)
def test_families_choose_the_rows(words: str, kinds: set[str], call: Call) -> None:
    result = call("peak", "-q", "--device", "0", "--format", "json", *words.split())
    assert result.exit_code == 0
    assert {row["kind"] for row in json.loads(result.stdout)} == kinds


def test_all_measures_every_probe_there_is(call: Call) -> None:
    rows = json.loads(call("peak", "-q", "--device", "0", "--all", "--format", "json").stdout)
    assert {row["variant"] for row in rows} == {*BY_NAME, *PROBES}


@pytest.mark.parametrize("form", ["table", "csv", "markdown"])
def test_every_format_takes_every_family(form: str, call: Call) -> None:
    result = call("peak", "-q", "--device", "0", "--only", "memory,transfer,latency", "--format", form)
    assert (result.exit_code, result.stderr) == (0, "")
    for name in ("global-triad", "upload-pinned", "launch-round-trip"):
        assert name in result.stdout


def test_a_memory_run_draws_its_staircase(call: Call, tmp_path: Path) -> None:
    path = tmp_path / "out.svg"
    assert call("peak", "-q", "--device", "0", "--only", "memory", "--plot", str(path)).exit_code == 0
    assert "working set" in path.read_text()


# --- what is measured ---------------------------------------------------------------------------------------


def test_describe_lists_every_probe_by_family(call: Call) -> None:
    page = call("peak", "--describe").stdout
    for name in (*PROBES, *BY_NAME):
        assert f"  {name} " in page
    for family in ("compute", *FAMILIES):
        assert f"\n{family}: " in f"\n{page}"


@pytest.mark.parametrize("name", [*PROBES, *BY_NAME])
def test_describe_explains_each(name: str, call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "40")
    result = call("peak", "--describe", name)
    assert (result.exit_code, result.stderr) == (0, "")
    assert result.stdout.startswith(f"{name}  ")
    card = result.stdout.partition("\n  ")[0]  # the kernels' comments are not wrapped
    assert max(map(len, card.splitlines())) <= 40


def test_describe_shows_the_picture(call: Call) -> None:
    assert "PATTERN_GRID    0 1 2 3 | 0 1 2 3" in call("peak", "--describe", "global-copy").stdout
    text = call("peak", "--describe", "flops").stdout
    assert "(x*a+b)*a+b -> ...            one multiplication and one addition a step and lane," in text


# --- kept peaks ---------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("sourced")
def test_a_sweep_takes_the_peaks_that_an_earlier_run_has_kept(call: Call, tmp_path: Path) -> None:
    first, second = tmp_path / "first.jsonl", tmp_path / "second.jsonl"
    fresh = call(*SQUARE, "--bandwidth", "--save", str(first)).stdout
    cached = "  flops float width 16: cached\n  global-read float width 16: cached\n  global-copy"
    assert cached in call(*SQUARE, "--dry-run").stdout
    kept = call(*SQUARE, "--save", str(second)).stdout
    assert kept == fresh  # the same rates and fraction
    assert " s earlier " in call("show", "-v", str(second)).stdout
    assert " earlier " not in call("show", "-v", str(first)).stdout

    rows = [row for row in load(second).rows if row.kind != "gemm"]
    assert [row.key for row in rows] == [row.key for row in load(first).rows if row.kind != "gemm"]
    assert all(row.measured_utc for row in rows)
    assert not any(row.measured_utc for row in load(first).rows)
    assert call("show", str(second)).stdout == kept


def kinds(path: Path) -> list[str]:
    return [row.kind for row in load(path).rows]


SWEEP = ("square", "--sizes", "8,16", "--kernel", "naive", "--baseline", "none", "--device", "0")


@pytest.mark.usefixtures("sourced")
@pytest.mark.parametrize(
    ("words", "is_measured"),
    [
        ((*SWEEP,), False),
        ((*SWEEP, "--remeasure"), False),
        ((*SWEEP, "--plot", "c.svg"), False),  # of throughput
        ((*SQUARE, "--plot", "c.svg"), True),  # a single point: its default chart is the roofline
        ((*SWEEP, "--report", "r.html"), True),
        ((*SWEEP, "--bandwidth"), True),
        (("gemm", "-m", "8", "--kernel", "naive", "--device", "0"), False),
        (("gemm", "-m", "8", "--kernel", "naive", "--device", "0", "--bandwidth"), True),
    ],
)
def test_the_bandwidth_is_measured_only_where_it_is_shown(
    words: tuple[str, ...], is_measured: bool, call: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert call(*words, "--save", "run.jsonl").exit_code == 0
    assert ("bandwidth" in kinds(Path("run.jsonl"))) == is_measured


@pytest.mark.usefixtures("sourced")
def test_kernels_are_measured_before_the_peaks(call: Call, tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    call(*SWEEP, "--dtype", "float,double", "--bandwidth", "--save", str(path))
    assert list(dict.fromkeys(kinds(path))) == ["gemm", "peak", "bandwidth"]
    assert kinds(path)[:4] == ["gemm"] * 4


def test_bandwidth_needs_no_peak(call: Call, tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    call(*SQUARE, "--no-peak", "--bandwidth", "--save", str(path))
    assert kinds(path) == ["gemm", "bandwidth", "bandwidth"]


@pytest.mark.usefixtures("sourced")
def test_a_sweep_uses_the_bandwidth_that_peak_all_has_cached(call: Call, tmp_path: Path) -> None:
    call("peak", "--all", "--device", "0", "-q")
    path = tmp_path / "run.jsonl"
    call(*SWEEP, "--save", str(path))
    assert kinds(path).count("bandwidth") == 2


@pytest.mark.usefixtures("sourced")
def test_remeasure_measures_again_and_caches_the_result(call: Call, tmp_path: Path) -> None:
    call(*SQUARE)
    path = tmp_path / "run.jsonl"
    call(*SQUARE, "--remeasure", "--save", str(path))
    assert not any(row.measured_utc for row in load(path).rows)


@pytest.mark.usefixtures("sourced")
def test_remeasure_keeps_a_cached_bandwidth_that_it_does_not_measure(call: Call, tmp_path: Path) -> None:
    call("peak", "--all", "--device", "0", "-q")
    path = tmp_path / "run.jsonl"
    call(*SWEEP, "--remeasure", "--save", str(path))
    cached = {row.kind: bool(row.measured_utc) for row in load(path).rows}
    assert cached == {"gemm": False, "peak": False, "bandwidth": True}


@pytest.mark.usefixtures("sourced")
def test_peak_always_measures(call: Call, tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    for _ in range(2):
        call("peak", "--types", "float", "--device", "0", "--save", str(path), "--force")
        assert not any(row.measured_utc for row in load(path).rows)
    call(*SQUARE, "--save", str(path), "--force")  # uses what peak has cached
    assert any(row.measured_utc for row in load(path).rows)


@pytest.mark.usefixtures("sourced")
def test_another_device_is_measured(call: Call, tmp_path: Path) -> None:
    call(*SQUARE)
    path = tmp_path / "run.jsonl"
    call(*SQUARE[:-1], "1", "--save", str(path))
    assert not any(row.measured_utc for row in load(path).rows)


@pytest.mark.usefixtures("sourced")
def test_a_cache_that_cannot_be_used_costs_a_note(
    call: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    result = call(*SQUARE)
    assert result.exit_code == 0
    assert result.stderr.startswith("cannot cache peaks for the next run: ")
    assert "naive" in result.stdout
    assert call(*SQUARE, "-q").stderr == ""
