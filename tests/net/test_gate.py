"""`check` in all its forms on a fake machine with noise, with rows that are slower, gone or wrong."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from tests.cli import slow_machine
from tests.net import drawn, runs
from tests.net.conftest import ROOT, OpenBook, Use
from tests.net.record import Book, normal

SWEEP = ("square", "--sizes", "8,16", "--kernel", "naive,tiled,register", "--no-peak", "-q")
FORMATS = ("table", "markdown", "junit", "json", "github")


@pytest.fixture(autouse=True)
def slow(use: Use, monkeypatch: pytest.MonkeyPatch) -> None:
    """The fake machine with 1 % of noise, drawn from a count of its cases, so that it is always the same."""
    use(slow_machine)
    monkeypatch.setenv("GEMMBENCH_FAKE_NOISE", "0.01")
    monkeypatch.setenv("GEMMBENCH_FAKE_COUNT", str(Path("count").resolve()))


@pytest.fixture
def page(book: OpenBook, request: pytest.FixtureRequest) -> Book:
    """A golden file named like the test, with a base that is in it: once.jsonl, and aa.jsonl, five times."""
    page = book(request.node.name.removeprefix("test_").replace("_", "-"))
    page.call(*SWEEP, "--save", "once.jsonl")
    page.call("check", "once.jsonl", "--aa", "5", "--save", "aa.jsonl")
    return page


def saved(page: Book, path: str) -> None:
    """Write down which rows a file has, in their order."""
    _, rows = runs.read(path)
    lines = []
    for row in rows:
        words = [row["variant"], (row["problem"] or {}).get("m"), row["status"], row["reason"]]
        words += ["beside its former self"] if row.get("former") else []
        lines.append(" ".join(map(str, filter(None, words))))
    page.write(f"rows of {path}", lines)


def test_check(page: Book, monkeypatch: pytest.MonkeyPatch) -> None:
    saved(page, "aa.jsonl")
    page.call("check", "aa.jsonl")
    monkeypatch.setenv("GEMMBENCH_FAKE_SLOW", "tiled 16 1.10")
    writes = [word for form in FORMATS for word in ("--write", f"{form}=out-{form}")]
    with drawn.captured() as figures:
        page.call("check", "aa.jsonl", "--save", "new.jsonl", "--plot", "out.svg", *writes)
    page.write("chart of check", figures[0])
    for form in FORMATS:
        page.write(f"--write {form}", normal(Path(f"out-{form}").read_text()))
    saved(page, "new.jsonl")
    page.call("check", "once.jsonl", "--noise", "aa.jsonl", "--rounds", "3", "--strict")
    page.call("check", "aa.jsonl", "--patience", "0", "-q")
    page.call("check", "aa.jsonl", "--threshold", "20 %", "-v")


def test_check_of_a_slower_machine(page: Book, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GEMMBENCH_FAKE_SLOW", "* * 1.10")
    page.call("check", "aa.jsonl", "--rounds", "3")
    page.call("check", "aa.jsonl", "--rounds", "3", "--strict", "-q")
    monkeypatch.setenv("GEMMBENCH_FAKE_SLOW", "* * 1.30; tiled 8 1.15")
    page.call("check", "aa.jsonl", "--ratio", "numpy", "--rounds", "3")
    page.call("check", "aa.jsonl", "--ratio", "naive,numpy", "--patience", "0", "--format", "json")


def test_check_of_faults(page: Book, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GEMMBENCH_FAKE_FAULTS", "tiled 16 sigsegv; naive 8 wrong; register 8 skipped")
    page.call("check", "aa.jsonl", "--save", "new.jsonl")
    saved(page, "new.jsonl")
    page.call("check", "aa.jsonl", "--missing", "fail", "--format", "junit")
    page.call("check", "once.jsonl", "--aa", "2")
    monkeypatch.delenv("GEMMBENCH_FAKE_FAULTS")
    header, rows = runs.read("once.jsonl")
    changed = [{**row, "variant": "gone"} if row["variant"] == "tiled" else row for row in rows]
    runs.write("old.jsonl", header, changed)
    page.call("check", "old.jsonl")
    page.call("check", "old.jsonl", "--missing", "fail", "-q")
    monkeypatch.setenv("GEMMBENCH_FAKE_DEVICES", "pocl gpu")
    page.call("check", "aa.jsonl")
    page.call("check", "aa.jsonl", "--device", "h200")
    page.call("check", "aa.jsonl", "--device", "h200", "--across", "device,driver", "-q")


def test_check_against(page: Book, monkeypatch: pytest.MonkeyPatch) -> None:
    shutil.copytree(ROOT / "kernels", "former")
    against = ("check", "once.jsonl", "--against", "former")
    monkeypatch.setenv("GEMMBENCH_FAKE_NOISE", "0.3")
    page.call(*against)
    monkeypatch.setenv("GEMMBENCH_FAKE_SLOW", "tiled 16 1.1")
    page.call(*against, "--save", "new.jsonl")
    saved(page, "new.jsonl")
    page.call(*against, "--format", "json", "-q")
    monkeypatch.delenv("GEMMBENCH_FAKE_SLOW")
    for fault in ("former-sigsegv", "sigsegv"):
        monkeypatch.setenv("GEMMBENCH_FAKE_FAULTS", f"tiled 16 {fault}")
        page.call(*against)
    monkeypatch.delenv("GEMMBENCH_FAKE_FAULTS")
    file = Path("former", "gemm", "01_naive.cl")
    file.write_text(file.read_text() + "/* another */\n")
    page.call(*against, "-v")
    page.call(*against, "--missing", "fail", "-q")
    page.call(*against, "--across", "source", "--strict")


def test_check_aa(page: Book) -> None:
    page.call("check", "once.jsonl", "--aa", "3", "--ratio", "numpy", "--write", "json=aa.json")
    page.write("--write json", json.dumps(json.loads(Path("aa.json").read_text()), indent=1).splitlines())
    for form in ("table", "markdown", "json"):
        page.call("check", "once.jsonl", "--aa", "3", "--format", form, "-q")
    page.call("check", "aa.jsonl", "--dry-run", "--ratio", "numpy")
    page.call("compare", "once.jsonl", "aa.jsonl", "--strict")
    for day, name in enumerate(("once.jsonl", "aa.jsonl"), start=1):
        header, rows = runs.read(name)
        runs.write(name, {**header, "started_utc": f"2026-01-0{day}T12:00:00+00:00"}, rows)
    page.call("history", "once.jsonl", "aa.jsonl")
