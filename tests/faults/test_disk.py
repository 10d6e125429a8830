"""Full disks and folders that cannot be written: a sentence, and no row lost that was there."""

from __future__ import annotations

import random
import resource
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

from tests.cli.conftest import Call
from tests.faults.conftest import Start
from tests.faults.ledger import Entry
from tests.faults.process import LIMIT_S, assert_sentence, command, environment, finish, keys, limited

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="limits, mounts and /dev/full are Linux's")

SWEEP = ("square", "--sizes", "8,16", "--kernel", "naive,tiled,register", "--no-peak")
PAGE = 4096


@pytest.fixture
def whole(call: Call, tmp_path: Path) -> bytes:
    """whole.jsonl: the run as it is where nothing goes wrong."""
    assert call(*SWEEP, "--save", "whole.jsonl", "-q").exit_code == 0
    return (tmp_path / "whole.jsonl").read_bytes()


def complete(call: Call, path: Path, entry: Entry) -> None:
    """With room again the run goes on: every row once, those that were there untouched."""
    before = path.read_bytes()
    assert before.endswith(b"\n") or not before  # no row is torn
    assert call(*SWEEP, "--save", str(path), "--resume", "-q").exit_code == 0
    assert path.read_bytes().startswith(before)
    entry.hold(keys(path.parent / "whole.jsonl"), keys(path))


@pytest.mark.fault("disk-full")
def test_a_file_that_cannot_grow(
    start: Start, call: Call, tmp_path: Path, entry: Entry, whole: bytes
) -> None:
    """At any size: within the header, at its end, within a row."""
    header, draw = whole.index(b"\n") + 1, random.Random(5)
    limits = [header // 2, header, *(draw.randrange(header, len(whole)) for _ in range(entry.wanted - 2))]
    for place, limit in enumerate(limits):
        path = tmp_path / f"{place}.jsonl"
        process = start(*SWEEP, "--save", path.name, "-q", setup=limited((resource.RLIMIT_FSIZE, limit)))
        status, out, err = finish(process)
        assert status == 2
        assert_sentence(err, f"cannot write {path.name}: ")  # too large, or no space for all of it
        rows = path.read_bytes().count(b"\n") - 1
        assert ("naive" in out) == (rows > 0)  # the table so far
        complete(call, path, entry)


@cache
def may_mount(*options: str) -> bool:
    """Whether this user may, in a namespace that nobody else sees."""
    script = ["unshare", *options, "sh", "-c", "mount -t tmpfs tmpfs /mnt"]
    return subprocess.run(script, capture_output=True, check=False).returncode == 0


def mounting() -> list[str]:
    """The command that starts a shell whose mounts nobody else sees."""
    for options in (("--mount",), ("--mount", "--map-root-user")):
        if may_mount(*options):
            return ["unshare", *options, "sh", "-c"]
    pytest.skip("this user may not mount")


def run_within(script: str, folder: Path, *words: str, **more: str) -> subprocess.CompletedProcess[str]:
    """A gemmbench in a shell script, where it is ``"$@"``."""
    return subprocess.run(
        [*mounting(), script, "sh", *command(*words)],
        cwd=folder,
        env=environment(**more),
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        check=False,
    )


@pytest.mark.fault("disk-full-tmpfs")
@pytest.mark.usefixtures("whole")
def test_a_disk_that_is_full(call: Call, tmp_path: Path, entry: Entry) -> None:
    (tmp_path / "disk").mkdir()
    script = 'mount -t tmpfs -o size={size} tmpfs disk; "$@"; status=$?; cp disk/run.jsonl .; exit $status'
    for turn in range(entry.wanted):
        size = PAGE * (1 + turn % 2)
        done = run_within(script.format(size=size), tmp_path, *SWEEP, "--save", "disk/run.jsonl", "-q")
        assert done.returncode == 2, done.stderr
        assert_sentence(done.stderr, "cannot write disk/run.jsonl: no space left on device")
        path = tmp_path / "run.jsonl"
        assert 0 < path.stat().st_size <= size
        # That file's command names another --save, which makes no other run of it.
        complete(call, path, entry)


@pytest.mark.fault("output-full")
@pytest.mark.usefixtures("whole")
def test_stdout_on_a_full_disk(tmp_path: Path, entry: Entry) -> None:
    """An exit status of 1 would be a regression to whoever looks at nothing else."""
    outputs: tuple[tuple[str, ...], ...]
    outputs = ((*SWEEP, "--save", "run.jsonl", "-q"), ("--help",), ("show", "whole.jsonl"))
    outputs = (*outputs, ("show", "whole.jsonl", "--format", "json"))
    for words in outputs[: entry.wanted]:
        with Path("/dev/full").open("w") as full:
            done = subprocess.run(
                command(*words),
                cwd=tmp_path,
                env=environment(),
                stdout=full,
                stderr=subprocess.PIPE,
                text=True,
                timeout=LIMIT_S,
                check=False,
            )
        assert done.returncode == 2
        assert done.stderr == "gemmbench: cannot write the output: no space left on device\n"
        entry.survived()
    entry.hold(keys(tmp_path / "whole.jsonl"), keys(tmp_path / "run.jsonl"), times=0)


@pytest.mark.fault("cache-read-only")
def test_a_cache_that_cannot_be_written(
    start: Start, tmp_path: Path, entry: Entry, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Peaks are measured again each time: a note, and the same rows."""
    words = (*(word for word in SWEEP if word != "--no-peak"), "--save")
    (tmp_path / "cache").mkdir()
    monkeypatch.setenv("GEMMBENCH_FAKE_SOURCES", "1")  # so that there is something to keep
    status, table, err = finish(start(*words, "whole.jsonl", XDG_CACHE_HOME=str(tmp_path / "cache")))
    assert (status, err.count("\n")) == (0, 1)
    kept = sorted(path.parent.name for path in (tmp_path / "cache").rglob("*.json"))
    assert "peaks" in kept

    (tmp_path / "file").write_text("no folder")
    status, out, err = finish(start(*words, "file.jsonl", XDG_CACHE_HOME=str(tmp_path / "file")))
    assert (status, out) == (0, table)
    assert_notes(err, "not a directory")
    assert (tmp_path / "file").read_text() == "no folder"
    entry.hold(keys(tmp_path / "whole.jsonl"), keys(tmp_path / "file.jsonl"))

    (tmp_path / "locked").mkdir()
    script = 'mount -t tmpfs -o ro tmpfs locked; exec "$@"'
    done = run_within(script, tmp_path, *words, "ro.jsonl", XDG_CACHE_HOME=str(tmp_path / "locked"))
    assert (done.returncode, done.stdout) == (0, table)
    assert_notes(done.stderr, "read-only file system")
    assert not [*(tmp_path / "locked").iterdir()]
    entry.hold(keys(tmp_path / "whole.jsonl"), keys(tmp_path / "ro.jsonl"))


def assert_notes(err: str, why: str) -> None:
    """One note for each sort of thing that is not cached, then where the rows are."""
    *notes, last = err.splitlines()
    assert notes
    assert len(notes) == len(set(notes)) <= 2
    assert all(note.startswith("cannot cache") and note.endswith(why) for note in notes), notes
    assert last.startswith("Saved ")
