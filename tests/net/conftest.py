"""A net under changes of structure: what every command prints, held against golden files.

Everything goes through `gemmbench.cli.main`; the only names of modules are here and in `record.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from gemmbench import api
from gemmbench.measure import child
from tests import forked
from tests.cli import fake_machine, recorded
from tests.net.record import Book

ROOT = Path(__file__).parents[2]
SAVED = sorted(
    path.relative_to(ROOT).as_posix()
    for folder in ("plots", "tests/data")
    for path in (ROOT / folder).rglob("*.jsonl")
    if "experiments" not in path.parts
)

OpenBook = Callable[[str], Book]
Use = Callable[[Any], None]


@pytest.fixture(autouse=True)
def surroundings(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The same everywhere: 80 columns, no colour, an empty cache, a fake machine.

    The working folder is empty but for links to the saved runs.
    """
    for name in ("FORCE_COLOR", "NO_COLOR", "LINES", "GEMMBENCH_DEVICE", "GEMMBENCH_CACHE", "GITHUB_ACTIONS"):
        monkeypatch.delenv(name, raising=False)
    for name in (
        "DEVICES",
        "FAULTS",
        "GAINS",
        "LOG",
        "PID",
        "NOISE",
        "SLOW",
        "COUNT",
        "STEPS",
        "WINDOWS",
        "FACTS",
    ):
        monkeypatch.delenv(f"GEMMBENCH_FAKE_{name}", raising=False)
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    work = tmp_path / "work"
    (work / "tests").mkdir(parents=True)
    (work / "plots").symlink_to(ROOT / "plots")
    (work / "tests" / "data").symlink_to(ROOT / "tests" / "data")
    monkeypatch.chdir(work)
    monkeypatch.setattr(api, "make_machine", fake_machine.make)
    monkeypatch.setattr(child, "CONDUCTORS", dict(recorded.CONDUCTORS))
    monkeypatch.setattr(child, "subprocess", forked.STARTS)


@pytest.fixture
def use(monkeypatch: pytest.MonkeyPatch) -> Use:
    """Measure with another fake machine: the module that has its ``make``."""

    def use_module(module: Any) -> None:
        monkeypatch.setattr(api, "make_machine", module.make)
        if getattr(module, "RECORDED", recorded.KINDS) != recorded.KINDS:
            monkeypatch.setitem(child.CONDUCTORS, "gemm", "gemmbench.gemm.measure")

    return use_module


@pytest.fixture
def book(request: pytest.FixtureRequest) -> Iterator[OpenBook]:
    """Open a golden file to write into; at the end of the test it is held against what is there."""
    books: list[Book] = []

    def opened(name: str) -> Book:
        books.append(Book(name))
        return books[-1]

    yield opened
    for each in books:
        each.check(request.config.getoption("--update-golden"))
