"""``gemmbench compare``: files, formats, exit status, and one sentence for what is wrong."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from gemmbench.cli import EXIT_INCONCLUSIVE, EXIT_USAGE, EXIT_WRONG
from tests import fake_runs as fake
from tests.cli.conftest import Call
from tests.compare_runs import again, repeated, save

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(autouse=True)
def files(written: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shutil.copytree(written, tmp_path, symlinks=True, dirs_exist_ok=True)
    monkeypatch.chdir(tmp_path)


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("runs")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        _write()
    return folder


def _write() -> None:
    for seed in (1, 2, 3):
        save(f"base{seed}.jsonl", again(seed))
    save("same.jsonl", again(4))
    save("same2.jsonl", again(10))
    save("half.jsonl", again(11, machine=2.5))
    save("slow.jsonl", again(5, {("tiled", 512): 1.2}))
    save("fast.jsonl", again(6, {("tiled", 512): 0.5}))
    save("drifted.jsonl", again(7, machine=1.3))
    save("loud.jsonl", repeated([again(seed, noise=0.1) for seed in range(10, 16)]))
    save("aa.jsonl", repeated([again(seed) for seed in range(10, 16)]))
    less = again(8)
    save("less.jsonl", replace(less, rows=less.rows[1:]))
    crashed = again(9)
    row = replace(crashed.rows[0], status="crashed", reason="SIGSEGV", samples={})
    save("crashed.jsonl", replace(crashed, rows=(row, *crashed.rows[1:])))
    device = replace(fake.CPU, name="NVIDIA H200")
    host = replace(fake.HOST, cpu="another")
    other = again(4)
    save("other.jsonl", replace(other, header=replace(other.header, devices=(device,), host=host)))
    peaks = fake.fake_peak()
    save("peak.jsonl", replace(peaks, rows=tuple(row for row in peaks.rows if row.check.verdict == "ok")))


@pytest.mark.parametrize(
    ("words", "status"),
    [
        ("base1.jsonl same.jsonl", 0),
        ("base1.jsonl slow.jsonl", 0),
        ("base1.jsonl slow.jsonl --strict", EXIT_INCONCLUSIVE),
        ("base1.jsonl slow.jsonl --threshold 5%", EXIT_WRONG),
        ("base1.jsonl half.jsonl", EXIT_WRONG),
        ("base1.jsonl fast.jsonl", 0),
        ("base1.jsonl base2.jsonl base3.jsonl slow.jsonl --threshold 5%", EXIT_WRONG),
        ("--threshold 5% base1.jsonl base2.jsonl -- slow.jsonl same.jsonl same2.jsonl", 0),
        ("aa.jsonl slow.jsonl --threshold 5%", EXIT_WRONG),
        ("base1.jsonl slow.jsonl --threshold 30%", 0),
        ("base1.jsonl slow.jsonl --threshold tiled=40%", 0),
        ("base1.jsonl slow.jsonl --threshold 30%,tiled=5%", EXIT_WRONG),
        ("loud.jsonl slow.jsonl --threshold 5%", 0),
        ("base1.jsonl drifted.jsonl", 0),
        ("base1.jsonl less.jsonl", 0),
        ("base1.jsonl less.jsonl --missing fail", EXIT_WRONG),
        ("base1.jsonl crashed.jsonl", EXIT_WRONG),
        ("base1.jsonl other.jsonl", EXIT_USAGE),
        ("base1.jsonl other.jsonl --across device", 0),
        ("base1.jsonl peak.jsonl", EXIT_USAGE),
        ("aa.jsonl same.jsonl --strict", 0),
    ],
)
def test_exit_status(words: str, status: int, call: Call) -> None:
    result = call("compare", *words.split())
    assert result.exit_code == status, result.output
    assert ("Traceback" in result.output) is False


def test_a_reader_that_went_away_costs_neither_files_nor_the_exit_status() -> None:
    """``compare base slower --write junit=r.xml | true`` ended with 0 and wrote nothing."""
    save("slower.jsonl", again(5, {("tiled", 512): 50.0}))
    reads, writes = os.pipe()
    os.close(reads)
    words = ("compare", "base1.jsonl", "slower.jsonl", "--threshold", "5%", "--write", "junit=r.xml")
    done = subprocess.run(
        [sys.executable, "-m", "gemmbench", *words],
        stdout=writes,
        stderr=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        check=False,
    )
    os.close(writes)
    assert (done.returncode, done.stderr) == (EXIT_WRONG, b"Wrote r.xml.\n")
    assert "<failure" in Path("r.xml").read_text()


@pytest.mark.skipif(sys.platform == "win32", reason="there is no such file")
def test_what_is_no_file_may_be_written_twice(call: Call) -> None:
    words = ("--write", "json=/dev/null", "--write", "junit=/dev/null")
    assert call("compare", "base1.jsonl", "same.jsonl", *words).exit_code == 0


@pytest.mark.parametrize("form", ["table", "markdown", "junit", "json", "github"])
def test_formats_on_stdout(form: str, call: Call) -> None:
    result = call("compare", "base1.jsonl", "same.jsonl", "--format", form)
    assert (result.exit_code, result.stderr) == (0, "")
    assert result.stdout.endswith("\n")


def test_dashes_before_all_files_end_the_options(call: Call) -> None:
    plain = call("compare", "base1.jsonl", "same.jsonl")
    dashed = call("compare", "--", "base1.jsonl", "same.jsonl")
    assert (dashed.exit_code, dashed.stdout) == (plain.exit_code, plain.stdout)
    assert plain.exit_code == 0


def test_a_base_twice_is_one(call: Call) -> None:
    result = call("compare", "base1.jsonl", "base1.jsonl", "same.jsonl", "--format", "json")
    assert json.loads(result.stdout)["bases"] == ["base1.jsonl"]


def test_nothing_compared_draws_nothing(call: Call) -> None:
    assert call("compare", "base1.jsonl", "other.jsonl", "--plot", "c.png").exit_code == EXIT_USAGE
    assert not Path("c.png").exists()
