"""What is around a run: drivers, clock, locale, terminal, home folder, names of files."""

from __future__ import annotations

import contextlib
import fcntl
import json
import locale
import os
import re
import struct
import subprocess
import sys
import termios
import threading
import time
from collections.abc import Callable, Iterator
from datetime import datetime, timezone
from pathlib import Path

import pytest
from rich.cells import cell_len

from gemmbench.model.run_file import load
from tests.cli.conftest import Call
from tests.faults.conftest import Start
from tests.faults.ledger import SOAK, Entry
from tests.faults.process import LIMIT_S, assert_sentence, command, environment, finish, keys

pytestmark = pytest.mark.skipif(
    sys.platform != "linux", reason="terminals, locales and clocks as Linux has them"
)

SWEEP = ("square", "--sizes", "8,16", "--kernel", "naive,tiled,register", "--no-peak")
QUICK = ("square", "--sizes", "8", "--kernel", "naive", "--no-peak", "-q")
REQUIRED = "GEMMBENCH_REQUIRE_DRIVERS"  # set where continuous integration counts on what it has installed


def lacking(what: str) -> None:
    """Skip, but fail where everything should be there."""
    if os.environ.get(REQUIRED) or os.environ.get(SOAK):
        pytest.fail(f"there is no {what}")
    pytest.skip(f"there is no {what}")


# --- drivers ------------------------------------------------------------------------------------------------


@pytest.mark.fault("driver-gone")
def test_a_driver_vanishes_between_runs(
    call: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, entry: Entry
) -> None:
    words = (*SWEEP, "--device", "pocl", "-q", "--save")
    assert call(*words, "whole.jsonl").exit_code == 0
    lines = (tmp_path / "whole.jsonl").read_bytes().splitlines(keepends=True)
    path, begun = tmp_path / "run.jsonl", b"".join(lines[:4]) + lines[4][:50]
    path.write_bytes(begun)

    def refused(sentence: str, *words: str) -> None:
        before = (tmp_path / "whole.jsonl").read_bytes()
        result = call(*words)
        assert (result.exit_code, result.stdout) == (2, "")
        assert_sentence(result.stderr, sentence)
        assert path.read_bytes() == begun
        assert (tmp_path / "whole.jsonl").read_bytes() == before
        entry.survived()

    for left, gone, none in (
        ("cpu", "no device is 'pocl'", "the baseline's device is not here"),
        ("gpu cpu", "no device is 'pocl'", "the baseline's device is not here"),
        ("", "no OpenCL device was found", "no OpenCL device was found"),
    ):
        monkeypatch.setenv("GEMMBENCH_FAKE_DEVICES", left)
        refused(gone, *words, "run.jsonl", "--resume")
        refused(none, "check", "whole.jsonl", "-q")
        if left:  # another device in its place is another run
            refused("made by another command", *SWEEP, "-q", "--save", "run.jsonl", "--resume")
    monkeypatch.setenv("GEMMBENCH_FAKE_DEVICES", "sigsegv")
    refused("was killed by SIGSEGV", *words, "run.jsonl", "--resume")

    monkeypatch.setenv("GEMMBENCH_FAKE_DEVICES", "gpu pocl cpu")
    assert call(*words, "run.jsonl", "--resume").exit_code == 0
    entry.hold(keys(tmp_path / "whole.jsonl"), keys(path), times=0)


# --- the clock ----------------------------------------------------------------------------------------------


def stepping_clock() -> str:
    """libfaketime, which shifts a process's clock by what stands in a file."""
    found = [
        *Path("/usr/lib").glob("*/faketime/libfaketimeMT.so.1"),
        *Path("/usr/lib/faketime").glob("*MT.so.1"),
    ]
    if not found:
        lacking("libfaketime (apt-get install faketime)")
    return str(found[0])


STEPS = ("+9y", "-1h", "+0", "-3d", "+1y", "-20y", "+30s", "-30s")


@contextlib.contextmanager
def stepping(path: Path, saved: Path) -> Iterator[None]:
    """Shift the clock to and fro until the block ends: nine years ahead until a run has begun its file."""
    over, shift = threading.Event(), path.with_suffix(".next")

    def step() -> None:
        turn = 0
        while not over.wait(0.1):
            turn += saved.exists() and saved.stat().st_size > 0
            shift.write_text(STEPS[turn % len(STEPS)] + "\n")
            shift.replace(path)

    path.write_text(STEPS[0] + "\n")
    thread = threading.Thread(target=step)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


@pytest.mark.fault("clock")
def test_the_clock_steps(start: Start, tmp_path: Path, entry: Entry) -> None:
    words = ("square", "--sizes", "16,32", "--kernel", "naive,tiled", "--no-peak", "--budget", "0.2", "-q")
    library = stepping_clock()
    for turn in range(entry.wanted):
        path, shift = tmp_path / f"{turn}.jsonl", tmp_path / "shift"
        with stepping(shift, path):
            begin = time.monotonic()
            process = start(
                *words,
                "--save",
                path.name,
                real=True,
                LD_PRELOAD=library,
                FAKETIME_TIMESTAMP_FILE=str(shift),
                FAKETIME_NO_CACHE="1",
                FAKETIME_DONT_FAKE_MONOTONIC="1",
                DONT_FAKE_MONOTONIC="1",
            )
            status, _, err = finish(process)
            took_s = time.monotonic() - begin
        assert (status, err) == (0, "")
        run = load(path)
        ahead = int(run.header.started_utc[:4]) - datetime.now(timezone.utc).year
        assert ahead in (8, 9)  # the clock was shifted: years of 365 days
        for row in run.rows:
            assert row.status == "ok", row.reason
            for scope in row.samples.values():
                assert 0 < sum(scope.seconds) * scope.batch < took_s
        names = [(row.variant, row.problem.m) for row in run.rows if row.problem]
        entry.hold([(name, size) for size in (16, 32) for name in ("naive", "tiled", "numpy")], names)


# --- the locale ---------------------------------------------------------------------------------------------


def german(folder: Path) -> str:
    """A locale with decimal commas, compiled into a folder for LOCPATH."""
    name = "de_DE.UTF-8"
    done = subprocess.run(
        ["localedef", "-i", "de_DE", "-f", "UTF-8", str(folder / name)], capture_output=True, check=False
    )
    if not (folder / name).is_dir():
        lacking(f"source of {name} (apt-get install locales): {done.stderr.decode()}")
    return name


@contextlib.contextmanager
def speaking(name: str) -> Iterator[None]:
    """This process, in a locale."""
    before = locale.setlocale(locale.LC_ALL)
    locale.setlocale(locale.LC_ALL, name)
    try:
        yield
    finally:
        locale.setlocale(locale.LC_ALL, before)


def readings(call: Call, folder: Path) -> dict[str, object]:
    """A run in every format, a chart and a comparison."""
    found: dict[str, object] = {}
    for form in ("table", "json", "csv", "markdown"):
        found[form] = call("show", "run.jsonl", "--format", form).output
    for form in ("table", "json", "junit", "markdown", "github"):
        found[f"compare {form}"] = call("compare", "run.jsonl", "other.jsonl", "--format", form).output
    assert call("plot", "run.jsonl", "-o", "chart.svg").exit_code == 0
    return {**found, "svg": (folder / "chart.svg").read_bytes()}


@pytest.mark.fault("locale")
def test_a_locale_with_decimal_commas(
    start: Start, call: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, entry: Entry
) -> None:
    monkeypatch.setenv("LOCPATH", str(tmp_path))
    name = german(tmp_path)
    in_german = {"LC_ALL": name, "GEMMBENCH_FAKE_LOCALE": "1"}
    table = call(*SWEEP, "--save", "run.jsonl").stdout
    status, out, _ = finish(start(*SWEEP, "--save", "other.jsonl", **in_german))
    assert (status, out) == (0, table)
    entry.hold((tmp_path / "run.jsonl").read_bytes().split(b"\n")[1:],
               (tmp_path / "other.jsonl").read_bytes().split(b"\n")[1:])  # fmt: skip
    plain = readings(call, tmp_path)
    with speaking(name):
        assert locale.localeconv()["decimal_point"] == ","
        assert readings(call, tmp_path) == plain
    # A driver's compiler is given numbers as text.
    words = ("gemm", "-m", "16", "--alpha", "1.5", "--kernel", "tiled", "--no-peak", "--budget", "0.1", "-q")
    status, out, err = finish(start(*words, "--save", "real.jsonl", real=True, **in_german))
    assert (status, err) == (0, "")
    assert {row.status for row in load(tmp_path / "real.jsonl").rows} == {"ok"}


# --- terminals ----------------------------------------------------------------------------------------------

ESCAPE = re.compile(r"\x1b(\[[0-9;?]*[A-Za-z]|[^\[])")


def on_terminal(folder: Path, columns: int, *words: str, **more: str | None) -> str:
    """What a gemmbench prints on a terminal of so many columns."""
    ours, theirs = os.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    process = subprocess.Popen(
        command(*words),
        cwd=folder,
        env=environment(COLUMNS=None, LINES=None, **more),
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        start_new_session=True,
    )
    os.close(theirs)
    pieces = []
    with contextlib.suppress(OSError):  # how a terminal says that nobody is left on it
        while piece := os.read(ours, 65536):
            pieces.append(piece)
    os.close(ours)
    assert process.wait(LIMIT_S) == 0, pieces
    return b"".join(pieces).decode()


def closing(*descriptors: int) -> Callable[[], None]:
    def setup() -> None:
        for descriptor in descriptors:
            os.close(descriptor)

    return setup


CLOSED = ((0, 1, 2), (), (1, 2), (1,), (2,), (0,), (0, 1), (0, 2))


@pytest.mark.fault("terminal")
def test_terminals_and_none(start: Start, call: Call, tmp_path: Path, entry: Entry) -> None:
    assert call(*SWEEP, "--save", "whole.jsonl").exit_code == 0
    for term in ("xterm-256color", "dumb"):
        text = on_terminal(tmp_path, 40, *SWEEP, "--save", f"{term}.jsonl", TERM=term)
        assert ("\x1b" in text) == (term != "dumb")
        lines = re.split(r"[\r\n]+", ESCAPE.sub("", text))
        assert "naive" in text
        # Of a dumb terminal rich takes for granted that it has 80 columns.
        assert max(map(cell_len, lines)) <= (80 if term == "dumb" else 40), max(lines, key=cell_len)
        entry.hold(keys(tmp_path / "whole.jsonl"), keys(tmp_path / f"{term}.jsonl"))
    for place, closed in enumerate(CLOSED[: entry.wanted - 2]):
        status, out, err = finish(
            start(*SWEEP, "--save", f"{place}.jsonl", TERM=None, setup=closing(*closed))
        )
        assert (status, "\x1b" in out + err) == (0, False), (closed, err)
        entry.hold(keys(tmp_path / "whole.jsonl"), keys(tmp_path / f"{place}.jsonl"))


# --- home folders and names of files ------------------------------------------------------------------------


@pytest.mark.fault("no-home")
def test_no_home_folder(start: Start, tmp_path: Path, entry: Entry) -> None:
    nowhere = {"XDG_CACHE_HOME": None, "XDG_CONFIG_HOME": None}
    cases: tuple[tuple[dict[str, str | None], str], ...] = (
        (
            {"HOME": None, "GEMMBENCH_FAKE_NOBODY": "1"},
            "there is no home folder (set HOME or XDG_CACHE_HOME)",
        ),
        ({"HOME": "/dev/null"}, "not a directory"),
        ({"HOME": "", "GEMMBENCH_FAKE_NOBODY": "1"}, ""),
        ({"HOME": str(tmp_path / "new")}, ""),
    )
    words = [word for word in QUICK if word not in ("-q", "--no-peak")]
    for place, (home, why) in enumerate(cases[: entry.wanted]):
        if home["HOME"] == "":  # a cache folder elsewhere is enough
            home = {**nowhere, **home, "XDG_CACHE_HOME": str(tmp_path / "cache")}
        path = tmp_path / f"{place}.jsonl"
        own = {**nowhere, **home, "GEMMBENCH_FAKE_SOURCES": "1"}  # so that there is something to keep
        status, out, err = finish(start(*words, "--save", path.name, **own))
        assert status == 0, err
        assert "naive" in out
        *notes, last = err.splitlines()
        assert last.startswith("Saved ")
        assert len(notes) == bool(why)
        assert all(note.startswith("cannot cache peaks for the next run: ") for note in notes)
        assert all(note.endswith(why) for note in notes)
        entry.hold(["naive", "numpy"], [row.variant for row in load(path).rows if row.kind == "gemm"])
        if not why and "XDG_CACHE_HOME" not in home:
            assert (Path(str(home["HOME"])) / ".cache" / "gemmbench").is_dir()
    assert not (tmp_path / "~").exists()


NAMES = (
    os.fsdecode("größe ☃ 数 ".encode() + b"caf\xe9 \xff"),
    "größe ☃ 数",
    "with a space",
    "quote ' \" ` $(touch pwned);",
    "-dash %s {0}",
)


@pytest.mark.fault("paths")
def test_names_of_files_and_folders(
    start: Start, call: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, entry: Entry
) -> None:
    for name in NAMES[: entry.wanted]:
        folder = tmp_path / name
        (folder / "cache").mkdir(parents=True)
        saved, chart, shapes = (folder / f"{name}.{suffix}" for suffix in ("jsonl", "svg", "csv"))
        shapes.write_text("m,n,k\n8,8,8\n16,8,8\n")
        words = ("workloads", "--file", str(shapes), "--kernel", "naive", "--no-peak", "--save", str(saved))
        cache = str(folder / "cache")
        status, _, err = finish(start(*words, "--plot", str(chart), XDG_CACHE_HOME=cache))
        assert status == 0, err
        assert [*(folder / "cache").rglob("*.json")]
        assert b"</svg>" in chart.read_bytes()
        # Again, from where the whole of it stands: nothing is left to do.
        before = saved.read_bytes()
        monkeypatch.setenv("XDG_CACHE_HOME", cache)
        assert call(*words, "--resume", "-q").exit_code == 0
        assert saved.read_bytes() == before
        entry.hold([("naive", 8), ("numpy", 8), ("naive", 16), ("numpy", 16)],
                   [(row.variant, row.problem.m) for row in load(saved).rows if row.problem])  # fmt: skip
        monkeypatch.chdir(folder)
        for reading in (("show",), ("show", "--format", "json"), ("show", "--format", "csv"), ("plot",)):
            assert call(*reading, "--", saved.name).exit_code == 0
        assert call("compare", str(saved), str(saved)).exit_code == 2
        other = saved.with_name(f"{name} other.jsonl")
        other.write_bytes(before)
        for form in ("table", "junit", "github", "markdown", "json"):
            assert call("compare", str(saved), str(other), "--format", form).exit_code == 0
        other.write_bytes(before[:-9])
        assert_sentence(call("show", str(other)).stderr, "is cut short")
    assert not [*tmp_path.rglob("pwned")]
    assert json.loads(call("show", str(saved), "--format", "json").stdout)
