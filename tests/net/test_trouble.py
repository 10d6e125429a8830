"""The section "When something goes wrong" of docs/concurrent.md, as rows of saved files."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli import stepping_machine
from tests.net import runs
from tests.net.conftest import OpenBook, Use
from tests.net.record import Book

WORDS = ("square", "--sizes", "8", "--kernel", "naive", "--no-peak", "--baseline", "none", "-q")
ALL = (*WORDS, "--device", "all", "--concurrent", "--save", "run.jsonl")


def rows(page: Book, words: tuple[str, ...] = ALL) -> None:
    """Run, and write down the rows: which device, beside which, what became of it and why."""
    page.call(*words, stdout=False)  # of the clock
    _, saved = runs.read("run.jsonl")
    lines = []
    for row in saved:
        beside = row.get("beside") or row["parameters"].get("beside", "nobody")
        enough = all(len(scope["seconds"]) >= 3 for scope in row["samples"].values())
        what = f"{row['device']} beside {beside}: {row['status']} {row['reason']}".rstrip()
        lines.append(what if enough else f"{what}, with too few samples")
    page.write("rows", sorted(lines))


@pytest.fixture
def stepping(use: Use, monkeypatch: pytest.MonkeyPatch) -> None:
    use(stepping_machine)
    monkeypatch.setenv("GEMMBENCH_FAKE_DEVICES", "cpu pocl gpu")


@pytest.mark.usefixtures("stepping")
def test_what_fails_beside_others(book: OpenBook, monkeypatch: pytest.MonkeyPatch) -> None:
    """A crash costs its own row; the others begin again, and say beside whom they ran."""
    page = book("trouble-beside")
    monkeypatch.setenv("GEMMBENCH_FAKE_STEPS", "1 1 sigsegv")
    rows(page)
    Path("run.jsonl").unlink()
    monkeypatch.setenv("GEMMBENCH_FAKE_DEVICES", "cpu pocl")  # with nobody left, the row is skipped
    rows(page)


@pytest.mark.usefixtures("stepping", "skips")
def test_waiting_does_not_count_against_the_time_limit(
    book: OpenBook, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One device hangs until its limit: the others have waited for as long, and are measured all the same."""
    page = book("trouble-waiting")
    monkeypatch.setenv("GEMMBENCH_FAKE_STEPS", "1 0 hang")
    rows(page)


def test_what_failed_alone_is_not_tried_at_once(book: OpenBook, monkeypatch: pytest.MonkeyPatch) -> None:
    """And `--resume` adds what is missing, once."""
    page = book("trouble-alone")
    monkeypatch.setenv("GEMMBENCH_FAKE_FAULTS", "naive 8 exit")
    rows(page)
    monkeypatch.delenv("GEMMBENCH_FAKE_FAULTS")
    rows(page, (*ALL, "--force"))
    lines = Path("run.jsonl").read_bytes().splitlines(keepends=True)
    Path("run.jsonl").write_bytes(b"".join(lines[:-1]))
    rows(page, (*ALL, "--resume"))
