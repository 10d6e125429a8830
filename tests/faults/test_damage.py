"""Saved runs that were cut short or changed: a sentence or a correct reading, and never a changed file."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest

from gemmbench.model.row import Kind, Row, Scope, Work
from gemmbench.model.run_file import Run, RunFile, RunFileError, encode, load
from tests import fake_runs
from tests.cli.conftest import Call
from tests.faults.ledger import Entry
from tests.faults.process import assert_sentence, keys

# What reads a saved run, but for charts.
READING = (
    "show FILE",
    "show FILE -v",
    "show FILE --format json",
    "show FILE --format csv",
    "show FILE --format markdown",
    "compare good.jsonl FILE -v",
    "compare FILE good.jsonl --format junit",
    "compare good.jsonl FILE --format json --scope host",
    "compare FILE good.jsonl --format markdown --across device,driver,source",
    "compare good.jsonl FILE --format github",
)
ALPHABETS = (b"0123456789", b'0123456789eE+-.,:"{}[]\\ntfu \n', bytes(range(256)))
CHART_EACH = 8  # readings: drawing is slow
EVERY_CHART_EACH = 80


def short(row: Row) -> Row:
    """With three samples: a file whose every byte can be tried."""
    scopes = {name: Scope(scope.seconds[:3], scope.batch, scope.stop) for name, scope in row.samples.items()}
    return replace(row, samples=scopes)


@pytest.fixture
def good(tmp_path: Path) -> Path:
    """A run of each kind of row, some that did not work, on two devices and the host."""
    square, peak = fake_runs.fake_square(), fake_runs.fake_peak()
    gemms = [row for row in square.rows if row.kind == "gemm" and row.variant in ("naive", "numpy")]
    rows = [*[row for row in peak.rows if row.status == "ok"][:2], *gemms[:3], gemms[-1]]
    rows += [row for row in fake_runs.fake_troubled().rows if row.status != "ok"][:1]
    moved = replace(peak.rows[0], kind="transfer", variant="upload-pinned", parameters={"bytes": 4096})
    moved = replace(moved, work=Work(bytes=4096), choice={})
    rows = [replace(row, device=min(row.device, 0)) for row in rows]
    rows += [moved, replace(moved, device=1)]
    path = tmp_path / "good.jsonl"
    header = replace(square.header, devices=(fake_runs.CPU, fake_runs.POCL))
    with RunFile.create(path, header) as file:
        for row in rows:
            file.append(short(row))
    assert {row.kind for row in load(path).rows} == {"peak", "gemm", "transfer"}
    assert {row.device for row in load(path).rows} == {0, 1, -1}
    return path


def positions(length: int, count: int, seed: int) -> Sequence[int]:
    """Where to cut: everywhere, or so many places."""
    return range(length) if not count else sorted(random.Random(seed).sample(range(length), count))


def line_ends(data: bytes) -> list[int]:
    return [place + 1 for place, byte in enumerate(data) if byte == ord("\n")]


@pytest.mark.fault("truncated")
def test_a_run_cut_at_any_byte_is_read_or_refused(
    good: Path, call: Call, tmp_path: Path, entry: Entry
) -> None:
    whole, wanted = good.read_bytes(), keys(good)
    ends, path = line_ends(whole), tmp_path / "cut.jsonl"
    for place in sorted({*positions(len(whole), entry.wanted, 1), *ends[:-1]}):
        path.write_bytes(whole[:place])
        results = [call("show", "cut.jsonl"), call("compare", "good.jsonl", "cut.jsonl")]
        if place not in ends or place % CHART_EACH == 0:
            results.append(call("plot", "cut.jsonl", "-o", "cut.png"))
        for result in results:
            assert "Traceback" not in result.output
            if place not in ends:
                assert result.exit_code == 2
                assert_sentence(result.stderr, "cut.jsonl: line ")
        if place in ends:
            assert results[0].exit_code == 0
            entry.hold(wanted[: ends.index(place)], keys(path), times=0)
        assert path.read_bytes() == whole[:place]
        entry.survived(len(results))


@pytest.mark.fault("truncated-resume")
def test_a_run_cut_at_any_byte_is_resumed(good: Path, tmp_path: Path, entry: Entry) -> None:
    whole, run = good.read_bytes(), load(good)
    ends, path, wanted = line_ends(whole), tmp_path / "cut.jsonl", keys(good)
    for place in sorted({*positions(len(whole), entry.wanted, 2), *ends, 0}):
        path.write_bytes(whole[:place])
        if 0 < place < ends[0]:
            with pytest.raises(RunFileError, match="line 1 is cut short"):
                RunFile.resume(path, run.header)
            assert path.read_bytes() == whole[:place]
            entry.survived()
            continue
        with RunFile.resume(path, run.header) as file:
            assert len(file.done) == max(sum(end <= place for end in ends) - 1, 0)
            for row in run.rows[len(file.done) :]:
                file.append(row)
        assert path.read_bytes() == whole
        entry.hold(wanted, keys(path))


def mutations(whole: bytes, count: int) -> Iterator[bytes]:
    """The file with 1 to 8 bytes changed, to digits, to what JSON is made of, or to anything."""
    draw = random.Random(3)
    for turn in range(count):
        data, alphabet = bytearray(whole), ALPHABETS[turn % len(ALPHABETS)]
        digits = [place for place, byte in enumerate(whole) if byte in alphabet]
        for _ in range(draw.randint(1, 8)):
            data[draw.choice(digits)] = draw.choice(alphabet)
        yield bytes(data)


@pytest.mark.fault("flipped")
def test_random_bytes_are_changed(good: Path, call: Call, tmp_path: Path, entry: Entry) -> None:
    whole, path = good.read_bytes(), tmp_path / "bad.jsonl"
    readings = 0
    for damaged in mutations(whole, entry.wanted):
        path.write_bytes(damaged)
        try:
            run = load(path)
        except RunFileError:
            assert_refused(call, ("show", "bad.jsonl"))
        else:
            readings += 1
            assert_true_reading(run, damaged)
            assert_readable(call, readings)
        assert path.read_bytes() == damaged
        assert good.read_bytes() == whole
        entry.survived()
    assert entry.wanted / 10 < readings < entry.wanted  # both sides were tried


def assert_refused(call: Call, words: Sequence[str]) -> None:
    result = call(*words)
    assert result.exit_code == 2
    assert_sentence(result.stderr, "bad.jsonl: line ")


def assert_true_reading(run: Run, damaged: bytes) -> None:
    """What was read is what stands there, by another reader of JSON."""
    # Bytes that are no UTF-8 may stand in a field that nobody knows any more.
    lines = [json.loads(line.decode("utf-8", "replace")) for line in damaged.split(b"\n")[:-1]]
    for line, record in zip(lines, (run.header, *run.rows), strict=True):
        assert_within(line, msgspec.to_builtins(record))


def assert_within(wanted: Any, found: Any) -> None:
    """Every field that is known is as it stands there; a name that was damaged is another, unknown one."""
    if isinstance(wanted, dict):
        for name in wanted.keys() & found.keys():
            assert_within(wanted[name], found[name])
    elif isinstance(wanted, list):
        for one, other in zip(wanted, found, strict=True):
            assert_within(one, other)
    else:
        assert wanted == found


def assert_readable(call: Call, turn: int) -> None:
    """Some commands of every reading: all of them in turn."""
    chosen = [READING[(turn + step) % len(READING)] for step in (0, 3, 6, 9)]
    if turn % CHART_EACH == 0:
        chosen.append(f"plot FILE -o chart.{('svg', 'png', 'pdf')[turn // CHART_EACH % 3]}")
    if turn % EVERY_CHART_EACH == 0:
        chosen += ["plot FILE --kind all -o chart.svg", "compare good.jsonl FILE --plot ratios.png"]
    for words in chosen:
        result = call(*words.replace("FILE", "bad.jsonl").split())
        assert result.exit_code in (0, 1, 2), words
        assert "Traceback" not in result.output
        if result.exit_code == 2:
            assert_sentence(result.stderr.splitlines(keepends=True)[-1])
        if result.exit_code == 0 and words.endswith("json"):
            json.loads(result.stdout, parse_constant=pytest.fail)


@pytest.mark.parametrize(
    ("kind", "variant"), [("latency", "pointer-chase"), ("bandwidth", "working-set"), ("peak", "flops")]
)
def test_rows_that_no_version_writes_are_readable(kind: Kind, variant: str, good: Path, call: Call) -> None:
    """Without a size."""
    run = load(good)
    odd = replace(run.rows[0], kind=kind, variant=variant, parameters={}, work=Work(bytes=4096), choice={})
    rows = (odd, replace(odd, device=1))
    Path("bad.jsonl").write_bytes(b"".join([encode(run.header), *map(encode, (*run.rows, *rows))]))
    for words in ("show", "show -v", "plot --kind memory -o a.svg"):
        result = call(*words.split(), "bad.jsonl")
        assert result.exit_code == 0 or result.stderr.startswith("gemmbench: nothing to draw: ")


def test_a_line_is_what_encode_makes(good: Path) -> None:
    """The damage above is to a file as gemmbench writes it."""
    run = load(good)
    assert good.read_bytes() == b"".join([encode(run.header), *map(encode, run.rows)])
