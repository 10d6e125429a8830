"""The saved file: whole, resumed, damaged."""

from __future__ import annotations

import gc
import json
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from gemmbench.exports.records import format_json
from gemmbench.model.case import Policy
from gemmbench.model.device import HostFacts
from gemmbench.model.row import Energy, Kind, Parameters, Partner, Problem, Row, Scope, current
from gemmbench.model.run_file import SCHEMA_VERSION, Header, RunFile, RunFileError, encode, essential, load
from tests.unit.test_plan import DEVICE

HOST = HostFacts("cpu", 2, 1 << 30, "Linux", "3.11", "2.0", "openblas")
HEADER = Header(
    SCHEMA_VERSION,
    "0.1.0",
    ("square", "--max", "64"),
    "2026-11-21T00:00:00",
    (replace(DEVICE, chip="a"),),
    HOST,
    Policy(),
    view="square",
)
ROWS = tuple(
    Row(
        "gemm",
        0,
        "naive",
        "float",
        {"WX": 16},
        "ok",
        problem=Problem(size, size, size),
        samples={"kernel": Scope((0.1, 0.2, 0.15), 1, "stable")},
        former=Partner("f0", {"kernel": Scope((0.3, 0.4, 0.35), 1, "ok")}) if size == 32 else None,
    )
    for size in (8, 16, 32)
)


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    path = tmp_path / "a run.jsonl"
    with RunFile.create(path, HEADER) as file:
        for row in ROWS:
            file.append(row)
    return path


def test_what_is_written_is_read_back(saved: Path) -> None:
    run = load(saved)
    assert run.header == HEADER
    assert run.rows == ROWS


def test_a_file_from_before_energy_was_measured_is_read(saved: Path) -> None:
    text = saved.read_text()
    energy = '"energy":{"joules":null,"why":"not measured: not asked for","scope":"","counter":""'
    energy += ',"idle_w":null,"window_s":null,"problems":0}'
    for new, old in ((energy, '"energy":{"joules":null}'), (',"energy":false', ""), (',"pci":""', "")):
        assert new in text
        text = text.replace(new, old)
    saved.write_text(text)
    run = load(saved)
    assert (run.header, run.rows) == (HEADER, ROWS)


def test_energy_is_read_back(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    row = replace(ROWS[0], energy=Energy(0.5, "", "board", "NVML", 61.0, 1.2, 600))
    with RunFile.create(path, HEADER) as file:
        file.append(row)
    assert load(path).rows == (row,)


def test_a_row_is_on_the_disk_before_the_next_is_asked_for(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    file = RunFile.create(path, HEADER)
    file.append(ROWS[0])
    assert load(path).rows == ROWS[:1]
    file.close()
    file.close()


def test_an_existing_file_is_not_touched(saved: Path) -> None:
    before = saved.read_bytes()
    with pytest.raises(RunFileError, match="exists already; --force replaces it"):
        RunFile.create(saved, HEADER)
    assert saved.read_bytes() == before
    RunFile.create(saved, HEADER, force=True).close()
    assert load(saved).rows == ()


def test_a_pipe_that_takes_half_a_line_is_an_error() -> None:
    reads, writes = os.pipe()
    os.set_blocking(writes, False)
    with RunFile(Path("pipe"), writes) as file, pytest.raises(RunFileError, match="cannot write pipe"):
        file._write(bytes(1 << 20))
    os.close(reads)


def test_resuming_keeps_rows_and_drops_a_line_cut_short(saved: Path) -> None:
    whole = saved.read_bytes()
    saved.write_bytes(whole[:-20])
    with pytest.raises(RunFileError, match=r"line 4 is cut short.*--resume"):
        load(saved)
    with RunFile.resume(saved, replace(HEADER, started_utc="later")) as file:
        assert file.done == ROWS[:2]
        file.append(ROWS[2])
    assert saved.read_bytes() == whole


def test_resuming_what_is_not_there_starts_it(tmp_path: Path) -> None:
    with RunFile.resume(tmp_path / "new.jsonl", HEADER) as file:
        assert file.done == ()
    assert load(tmp_path / "new.jsonl").rows == ()


@pytest.mark.parametrize(
    ("change", "what"),
    [
        ({"command": ("square", "--max", "128")}, "another command"),
        ({"devices": (replace(DEVICE, driver="2.0"),)}, "other devices"),
        ({"devices": (replace(DEVICE, compute_units=1),)}, "other devices: .* 1 units"),
        ({"devices": (replace(DEVICE, chip="b"),)}, "another chip of this model: a is not b;"),
        ({"policy": Policy(budget_s=1)}, r"another budget_s: 0\.2 is not 1;"),
        ({"policy": Policy(batch_s=0.1)}, r"another batch_s: 0\.005 is not 0\.1;"),
        ({"policy": Policy(cold=True)}, "another cold: False is not True;"),
        ({"policy": Policy(energy=True)}, "another energy: False is not True;"),
        ({"gemmbench": "9.9"}, r"another gemmbench: .* is not 9\.9;"),
        ({"host": replace(HEADER.host, cpu="Other")}, "another host CPU: .* is not Other;"),
        ({"host": replace(HEADER.host, cores=99)}, "another number of cores: .* is not 99;"),
        (
            {"host": replace(HEADER.host, blas="OpenBLAS, 1 thread")},
            "another BLAS: .* is not OpenBLAS, 1 thread;",
        ),
        ({"host": replace(HEADER.host, numpy="9.9")}, r"another numpy: .* is not 9\.9;"),
    ],
)
def test_only_the_same_run_is_resumed(saved: Path, change: dict[str, Any], what: str) -> None:
    before = saved.read_bytes()
    with pytest.raises(RunFileError, match=what) as caught:
        RunFile.resume(saved, replace(HEADER, **change))
    assert str(caught.value).endswith("; go on as it was begun, or choose another file")
    assert saved.read_bytes() == before


def test_a_run_is_resumed_with_another_patience(saved: Path) -> None:
    command = (*HEADER.command, "--patience", "9")
    header = replace(HEADER, command=essential(command), policy=Policy(patience_s=9))
    with RunFile.resume(saved, header) as file:
        assert file.done


def test_chips_that_are_not_known_make_no_other_run(saved: Path) -> None:
    first, *rows = saved.read_bytes().splitlines(keepends=True)
    header = replace(HEADER, devices=(replace(DEVICE, chip=""), replace(DEVICE, chip="b")))
    saved.write_bytes(encode(header) + b"".join(rows))
    for chips in (("a", "b"), ("a", ""), ("", "b")):
        devices = tuple(replace(DEVICE, chip=chip) for chip in chips)
        RunFile.resume(saved, replace(header, devices=devices)).close()
    assert b'"chip":"a"' in first
    saved.write_bytes(b"".join([first.replace(b',"chip":"a"', b""), *rows]))  # of an older version
    assert load(saved).header.devices[0].chip == ""


def test_how_busy_the_host_was_does_not_make_another_run(saved: Path) -> None:
    RunFile.resume(saved, replace(HEADER, host=replace(HEADER.host, busy=1.5))).close()


def test_where_output_goes_does_not_make_another_command(saved: Path) -> None:
    command = ("square", "--save", "b.jsonl", "--resume", "--max", "64", "--plot=x.png", "-v")
    RunFile.resume(saved, replace(HEADER, command=command)).close()


@pytest.mark.parametrize(
    ("line", "old", "new", "message"),
    [
        (1, b'"schema_version":3', b'"schema_version":9', "reads schema_version 3, not 9; update gemmbench"),
        (1, b'"schema_version":3', b'"schema_version":2', "reads schema_version 3, not 2; measure again"),
        (1, b'"schema_version":3', b'"schema_version":1', "reads schema_version 3, not 1; measure again"),
        (1, b'"schema_version":3', b'"schema_version":"1"', r"line 1: Expected `int`, got `str`"),
        (2, b"0.1,", b"NaN,", "line 2: NaN and Infinity are not allowed"),
        (2, b"0.1,", b"-0.1,", r"line 2: Expected `float` > 0.0 - at `\$.samples\[...\].seconds\[0\]`"),
        (2, b"0.1,", b"1e999,", "line 2: "),
        (3, b'"m":16', b'"m":"16"', r"line 3: Expected `int`, got `str` - at `\$.problem.m`"),
        (3, b'"m":16', b'"m":-16', r"line 3: Expected `int` >= 0 - at `\$.problem.m`"),
        (3, b'"status":"ok"', b'"status":"fine"', r"line 3: Invalid enum value 'fine' - at `\$.status`"),
        (3, b'"device":0', b'"device":7', "line 3: device: 7 is not in the header's list of 1"),
        (3, b'"dtype":"float"', b'"dtype":"quad"', "line 3: dtype: 'quad' is not one of"),
        (4, b'"batch":1', b'"batch":0', r"line 4: Expected `int` >= 1 - at `\$.samples\[...\].batch`"),
        (4, b'"kernel":{', b'"colonel":{', "line 4: samples: 'colonel' is not one of kernel"),
        (4, b"0.3,", b"0,", r"line 4: Expected `float` > 0.0 - at `\$.former.samples"),
        (4, b"0.3,", b"", "line 4: former.samples: there is not one for each of the row's own"),
        (4, b'"joules":null', b'"joules":0', r"line 4: Expected `float` > 0.0 - at `\$.energy.joules`"),
        (4, b'"idle_w":null', b'"idle_w":-3', r"line 4: Expected `float` > 0.0 - at `\$.energy.idle_w`"),
        (4, b'"window_s":null', b'"window_s":"1"', r"line 4: Expected .* - at `\$.energy.window_s`"),
        (1, b'"view":"square"', b'"view":2', r"line 1: Expected `str`, got `int` - at `\$.view`"),
        (1, b'"scope":""', b'"scope":null', r"line 1: Expected `str`, got `null` - at `\$.scope`"),
        (2, b'"ran_on":"device"', b'"ran_on":"moon"', r"line 2: Invalid enum value 'moon' - at `\$.ran_on`"),
        (2, b'"needs_s":null', b'"needs_s":NaN', "line 2: NaN and Infinity are not allowed"),
        (2, b'"needs_s":null', b'"needs_s":0', r"line 2: Expected `float` > 0.0 - at `\$.needs_s`"),
        (2, b'"phase":""', b'"phase":1', r"line 2: Expected `str`, got `int` - at `\$.phase`"),
        (2, b'"race":[]', b'"race":[1]', r"line 2: Expected `str`, got `int` - at `\$.race\[0\]`"),
        (2, b'"check_after":null', b'"check_after":{"verdict":"odd"}', "line 2: Invalid enum value 'odd'"),
        (2, b'"supersedes":false', b'"supersedes":"no"', r"line 2: .* - at `\$.supersedes`"),
        (4, b'{"kind"', b'"kind"', "line 4: "),
    ],
)
def test_a_damaged_file_is_one_sentence_and_is_left_alone(
    saved: Path, line: int, old: bytes, new: bytes, message: str
) -> None:
    lines = saved.read_bytes().split(b"\n")
    assert old in lines[line - 1]
    lines[line - 1] = lines[line - 1].replace(old, new, 1)
    damaged = b"\n".join(lines)
    saved.write_bytes(damaged)
    with pytest.raises(RunFileError, match=message) as caught:
        load(saved)
    assert str(saved) in str(caught.value)
    assert saved.read_bytes() == damaged


@pytest.mark.parametrize(
    ("kind", "parameters", "message"),
    [
        ("transfer", {"bytes": "x"}, "parameters.bytes: 'x' is not a whole number of 1 or more"),
        ("transfer", {"bytes": 4096.5}, "parameters.bytes: 4096.5 is not a whole number of 1 or more"),
        ("latency", {"bytes": 0}, "parameters.bytes: 0 is not a whole number of 1 or more"),
        ("bandwidth", {"width": "1" * 5000}, "parameters.width: '1.*' is not a whole number of 1 or more"),
        ("transfer", {}, "parameters.bytes: a transfer row must have it"),
    ],
)
def test_a_microbenchmark_has_a_size_that_is_one(
    kind: Kind, parameters: Parameters, message: str, tmp_path: Path
) -> None:
    path = tmp_path / "run.jsonl"
    path.write_bytes(encode(HEADER) + encode(Row(kind, 0, "probe", "float", parameters, "skipped")))
    with pytest.raises(RunFileError, match=f"line 2: {message}"):
        load(path)


def test_a_file_that_is_none_is_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(RunFileError, match="no such file"):
        load(tmp_path / "nothing.jsonl")
    with pytest.raises(RunFileError, match="is a directory"):
        load(tmp_path)
    (tmp_path / "empty").write_bytes(b"")
    with pytest.raises(RunFileError, match="line 1: the file is empty"):
        load(tmp_path / "empty")
    (tmp_path / "noise").write_bytes(os.urandom(999) + b"\n")
    with pytest.raises(RunFileError, match="is not a saved run"):
        load(tmp_path / "noise")


def test_every_truncation_is_a_sentence_or_a_whole_prefix(saved: Path) -> None:
    whole = saved.read_bytes()
    starts = {0, *(n + 1 for n, byte in enumerate(whole) if byte == 10)}
    for length in range(0, len(whole), 7):
        saved.write_bytes(whole[:length])
        try:
            rows = load(saved).rows
        except RunFileError:
            assert length not in starts or length == 0
        else:
            assert length in starts
            assert rows == ROWS[: len(rows)]


def test_a_full_disk_loses_only_the_row_in_flight(saved: Path) -> None:
    import resource
    import signal

    size = saved.stat().st_size
    pid = os.fork()
    if pid == 0:  # a limit on file size acts like a full disk, in a child of its own
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (size + 30, size + 30))
        try:
            RunFile.resume(saved, HEADER).append(ROWS[0])
        except RunFileError as error:
            os._exit(0 if "cannot write" in str(error) else 1)
        os._exit(2)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    assert load(saved).rows == ROWS


# --- rows that were measured again --------------------------------------------------------------------------


def again(row: Row, seconds: float, supersedes: bool = True) -> Row:
    return replace(
        row, samples={"kernel": Scope((seconds,), 1, "stable")}, former=None, supersedes=supersedes
    )


def test_of_rows_that_were_measured_again_the_last_counts_where_the_first_stood(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    second, third = again(ROWS[0], 0.5), again(ROWS[0], 0.7)
    with RunFile.create(path, HEADER) as file:
        for row in (*ROWS, second, third):
            file.append(row)
    assert load(path).rows == (third, *ROWS[1:])
    assert [row["m"] for row in json.loads(format_json(load(path)))] == [8, 16, 32]
    with RunFile.resume(path, HEADER) as file:
        assert file.done == (third, *ROWS[1:])


def test_what_was_only_repeated_stays(tmp_path: Path) -> None:
    """An A/A measurement has every case several times; one that supersedes takes the place of all."""
    path = tmp_path / "run.jsonl"
    repeated = again(ROWS[0], 0.5, supersedes=False)
    path.write_bytes(b"".join([encode(HEADER), *map(encode, (ROWS[0], repeated))]))
    assert load(path).rows == (ROWS[0], repeated)
    last = again(ROWS[0], 0.7)
    path.write_bytes(b"".join([encode(HEADER), *map(encode, (ROWS[0], ROWS[1], repeated, last, ROWS[2]))]))
    assert load(path).rows == (last, *ROWS[1:])


def test_another_case_or_phase_is_not_superseded(tmp_path: Path) -> None:
    other = replace(again(ROWS[0], 0.5), device=1)
    finalist = replace(again(ROWS[0], 0.6), phase="finalist")
    assert current((ROWS[0], other, finalist)) == (ROWS[0], other, finalist)


def test_a_line_cut_short_is_named_by_its_number_in_the_file(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    path.write_bytes(b"".join([encode(HEADER), *map(encode, (ROWS[0], again(ROWS[0], 0.5), ROWS[1]))])[:-9])
    with pytest.raises(RunFileError, match="line 4 is cut short"):
        load(path)


@pytest.mark.parametrize(
    ("lost", "between"),
    [(0, b""), (0, b"\n"), (0, b"\xef\xbb\xbf"), (1, b""), (1, b"\r\n"), (9, b"")],
    ids=["cat", "empty line", "byte order mark", "no newline", "carriage return", "cut short"],
)
def test_two_runs_in_one_file_are_two_runs(lost: int, between: bytes, tmp_path: Path) -> None:
    path = tmp_path / "all.jsonl"
    one = b"".join([encode(HEADER), *map(encode, ROWS)])
    path.write_bytes(one[: len(one) - lost] + between + one)
    line = 1 + path.read_bytes()[:-100].count(b"\n") - len(ROWS)
    sentence = f"line {line} starts a second run: pass the runs as separate files$"
    for read in (load, lambda file: RunFile.resume(file, HEADER)):
        with pytest.raises(RunFileError, match=sentence):
            read(path)


def test_a_line_holds_no_rate() -> None:
    assert b"gflops" not in encode(ROWS[0])


def test_loading_leaves_the_collector_of_cycles_as_it_was(tmp_path: Path) -> None:
    broken = tmp_path / "run.jsonl"
    broken.write_text("{}\n")
    for is_on in (True, False):
        (gc.enable if is_on else gc.disable)()
        try:
            with pytest.raises(RunFileError):
                load(broken)
            assert gc.isenabled() == is_on
        finally:
            gc.enable()
