"""What the user can put right: one sentence on stderr, exit status 2, nothing changed on the disk."""

from __future__ import annotations

import json
import math
import re
import shlex
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click
import numpy as np
import pytest

from gemmbench import api
from gemmbench.cli import COMMANDS, load_command
from gemmbench.model.run_file import load
from gemmbench.suite.options import Whole
from tests import fake_runs
from tests.cli import fake_machine
from tests.cli.conftest import ROOT, Call
from tests.compare_runs import repetitions, save
from tests.own_kernel import MINE

GOLDEN = Path(__file__).parents[1] / "golden"
QUICK = ("--sizes", "8", "--kernel", "naive", "--no-peak")
LONG = 300 * "x"
DEVICES = "plots/cpu-intel-square.jsonl plots/cpu-pocl-square.jsonl plots/h200-square.jsonl"
SHAPES = {
    "shapes": "m,n,k\n8,8,8\n",
    "word": "m,n,k\n8,8,many\n",
    "empty": "",
    "lacking": "m,n\n8,8\n",
    "negative": "m,n,k\n8,-8,8\n",
    "huge": "m,n,k\n8,8,8\n99999999999,8,8\n",
    "blank": "\n\n",
    "header": "m,n,k\n",
    "headerless": "1,2,3\n",
    "surplus": "m,n,k,count\n1,2,3,4\n",
    "twice": "m,n,k,m\n1,2,3,4\n",
    "fraction": "m,n,k\n1.5,2,3\n",
    "short-row": "m,n,k\n1,2\n",
    "long-row": "m,n,k\n1,2,3,4\n",
    "long-name": f"m,n,k,name\n1,2,3,{41 * 'x'}\n",
    "quote": 'm,n,k,name\n1,2,3,"a\n',
    "digits": f"m,n,k\n{5000 * '9'},2,3\n",
}
MATRICES = {
    "a": np.ones((8, 4), "f4"),
    "c": np.ones((8, 6), "f4"),
    "b": np.ones((4, 6), "f4"),
    "b5": np.ones((5, 6), "f4"),
    "b64": np.ones((4, 6), "f8"),
    "int": np.ones((4, 6), "i4"),
    "vector": np.ones(8, "f4"),
    "objects": np.array([[None]]),
    "complex": np.ones((4, 6), "c8"),
    "number": np.float32(1),
    "cube": np.ones((2, 2, 2), "f4"),
}


@pytest.fixture
def files(saved_runs: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Everything that the commands in the golden files name."""
    monkeypatch.setenv("GEMMBENCH_FAKE_DEVICES", DEVICES)
    runs = repetitions(load("tests/data/aa/cpu-intel.jsonl"))
    for name, run in zip(("base1", "base2", "good", "same", "once", "dead"), runs, strict=False):
        save(f"{name}.jsonl", run)
    save("run.svg", runs[4])
    for name, path in (("aa", "tests/data/aa/cpu-intel.jsonl"), ("peak", "plots/cpu-intel-peak.jsonl")):
        shutil.copy(path, f"{name}.jsonl")
    Path("link.jsonl").symlink_to("base1.jsonl")
    Path("folder").mkdir()
    for name, text in SHAPES.items():
        Path(f"{name}.csv").write_text(text)
    for name, matrix in MATRICES.items():
        np.save(f"{name}.npy", matrix, allow_pickle=True)
    np.savez("archive.npz", a=MATRICES["a"])
    Path("cut.npy").write_bytes(Path("a.npy").read_bytes()[:-4])
    Path("cut-header.npy").write_bytes(Path("a.npy").read_bytes()[:50])
    Path("empty.npy").write_bytes(b"")
    Path("old").mkdir()
    for name in ("mine.cl", "two.cl", "old/mine.cl", "drawn.svg", "page.html", "kernel.npy"):
        Path(name).write_text(MINE)
    damaged(Path("good.jsonl").read_bytes())


def damaged(whole: bytes) -> None:
    """Runs that cannot be read, or that nothing can be done with."""
    lines = whole.splitlines(keepends=True)
    header, first, *others = map(json.loads, lines)

    def write(name: str, header: Any, *rows: Any) -> None:
        Path(f"{name}.jsonl").write_text("".join(f"{json.dumps(line)}\n" for line in (header, *rows)))

    Path("cut.jsonl").write_bytes(whole[:-20])
    Path("cut-row.jsonl").write_bytes(lines[0] + lines[1][:40] + b"\n" + lines[2])
    Path("cut-header.jsonl").write_bytes(lines[0][:50])
    Path("empty.jsonl").write_bytes(b"")
    Path("picture.jsonl").write_bytes(b"\x89PNG\r\n\x1a\n" + bytes(range(256)))
    write("no-rows", header)
    write("list", [])
    write("number", 3)
    write("nan", header, {**first, "samples": {"kernel": {"seconds": [math.nan], "batch": 4}}})
    write("infinity", header, {**first, "samples": {"kernel": {"seconds": [math.inf], "batch": 4}}})
    write("no-version", {name: header[name] for name in header if name != "schema_version"}, first)
    for name, version in (("newer", 99), ("version-0", 0), ("version-word", "one")):
        write(name, {**header, "schema_version": version}, first)
    device = header["devices"][0]
    host = {**header["host"], "cpu": "another"}
    write("other", {**header, "devices": [{**device, "name": "NVIDIA H200"}], "host": host}, first, *others)
    write("elsewhere", {**header, "devices": [{**device, "name": "a device of another machine"}]}, first)
    for name, field, value in (
        ("type", "variant", 3),
        ("type-in-problem", "problem", {**first["problem"], "m": "many"}),
        ("type-of-samples", "samples", [1]),
        ("unknown-kind", "kind", "nonsense"),
        ("unknown-status", "status", "nonsense"),
        ("unknown-device", "device", 7),
        ("zero-time", "samples", _samples(first, 0.0)),
        ("negative-time", "samples", _samples(first, -1e-3)),
    ):
        write(name, header, {**first, field: value}, *others)
    write("lacking-field", header, {name: first[name] for name in first if name != "status"})
    rows = [{**row, "status": "crashed", "reason": "gone", "samples": {}} for row in (first, *others)]
    write("dead", header, *rows)


def _samples(row: Any, seconds: float) -> Any:
    return {name: {**scope, "seconds": [seconds]} for name, scope in row["samples"].items()}


def contents() -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in Path().rglob("*") if path.is_file()}


@pytest.mark.usefixtures("files")
@pytest.mark.parametrize("name", sorted(path.name for path in GOLDEN.glob("errors-*.txt")))
def test_one_sentence_and_nothing_overwritten(
    name: str, call: Call, golden: Callable[[str, str], None]
) -> None:
    """The commands are those of the golden file: to add one, write it there and update the file."""
    lines, before = [], contents()
    for line in (GOLDEN / name).read_text(encoding="utf-8").splitlines():
        if not line.startswith("$ gemmbench "):
            continue
        words = shlex.split(line.replace("LONG", LONG).replace("KERNELS", str(ROOT / "kernels")))
        result = call(*words[2:])
        assert result.exit_code == 2, line
        (sentence,) = re.findall(r"^gemmbench: (.*\n)", result.stderr, re.MULTILINE)
        is_late = sentence.startswith("nothing was ")  # after a table and its remarks
        assert is_late or (result.stdout, result.stderr) == ("", f"gemmbench: {sentence}"), line
        assert contents() == before, line
        sentence = (
            result.stderr.removeprefix("gemmbench: ").replace(f"{Path.cwd()}/", "").replace(LONG, "LONG")
        )
        lines += [line, sentence]
    golden(name, "\n".join(lines))


@pytest.mark.parametrize("number", [2**31, 2**63, 2**64, 10**30])
def test_every_whole_number_has_a_maximum_that_is_named(number: int) -> None:
    commands = map(load_command, COMMANDS)
    types = [param.type for command in commands for param in command.params]
    numbers = [kind for kind in types if isinstance(kind, Whole)]
    assert len(numbers) > 20
    for kind in numbers:
        with pytest.raises(click.BadParameter, match=rf"{number} is .*(2147483647|65535|8)\.?$"):
            kind.convert(str(number), None, None)


def test_no_device_says_what_to_install(call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GEMMBENCH_FAKE_DEVICES", "")
    monkeypatch.setattr(
        "gemmbench.suite.selection.no_device_message", lambda _: "no OpenCL device was found; type: install"
    )
    for command in ("devices", "peak", "square", "sweep-k", "workloads", "gemm"):
        result = call(command)
        assert result.stderr == "gemmbench: no OpenCL device was found; type: install\n"
        assert (result.exit_code, result.stdout) == (2, "")


@pytest.mark.parametrize(
    ("fault", "sentence"),
    [
        ("sigsegv", f"the driver's process was killed by SIGSEGV: {fake_machine.LAST_WORDS}"),
        ("exit", f"the driver's process ended with status 3: {fake_machine.LAST_WORDS}"),
        ("os-error", "OSError: [Errno 5] input/output error"),
    ],
)
def test_drivers_that_fail_while_they_are_listed(
    fault: str, sentence: str, call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GEMMBENCH_FAKE_DEVICES", fault)
    result = call("devices")
    assert result.stderr == f"gemmbench: listing the OpenCL devices failed: {sentence}\n"
    assert (result.exit_code, result.stdout) == (2, "")


def test_a_device_that_does_not_open_is_named_and_another_is_measured(
    call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GEMMBENCH_FAKE_DEVICES", "cpu pocl")
    monkeypatch.setenv("GEMMBENCH_FAKE_CLOSED", "Intel(R) OpenCL")
    sentence = f"device 0 ({fake_runs.CPU.title}) cannot be used: it failed. Mend it"
    for command in ("devices", "doctor"):
        assert sentence[1:] in " ".join(call(command).stdout.split())
    result = call("square", *QUICK)
    assert result.stderr.startswith(f"{sentence}.\n")
    assert "PoCL" in result.stdout
    assert call("kernels", "--resources", "--kernel", "naive").stderr.startswith(f"{sentence}.\n")
    for command in ("square", "tune", "kernels --resources"):
        result = call(*command.split(), "--kernel", "naive", "--device", "0")
        assert (result.stderr, result.exit_code) == (f"gemmbench: {sentence}\n", 2)


def test_a_child_that_cannot_start(call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gemmbench.measure.machine.default", fake_machine.make_nothing)
    result = call("devices")
    assert result.stderr.count("\n") == 1
    assert "PermissionError: [Errno 13] permission denied: '/tmp/gemmbench'" in result.stderr
    assert result.exit_code == 2


def test_an_unsupported_type_has_rows_and_others_are_measured(call: Call) -> None:
    result = call("square", "--device", "pocl", "--dtype", "float,half", *QUICK)
    assert result.exit_code == 0
    assert "not supported" in result.stdout
    assert result.stderr == ""


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("PYOPENCL_BUILD_OPTIONS", "it would change how kernels are built"),
        ("PYOPENCL_CTX", "--device selects the device"),
    ],
)
def test_variables_of_pyopencl_are_ignored(
    name: str, reason: str, call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(name, "0")
    assert call("square", *QUICK).stderr.splitlines().count(f"{name} is ignored: {reason}.") == 1


def test_an_internal_error_is_one_sentence_and_no_regression(
    call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    """CI reads exit status 1 as a regression."""

    def fail(*_: object) -> None:
        raise KeyError("no such row")

    monkeypatch.setattr(api, "load", fail)
    result = call("show", "good.jsonl")
    assert (result.exit_code, result.stdout) == (70, "")
    assert result.stderr.count("\n") == 1
    assert "internal error: KeyError: 'no such row' (test_errors.py, line " in result.stderr
    assert "please report" in result.stderr


@pytest.mark.parametrize("command", [(), ("--help",), ("-h",)])
def test_no_command_is_help(command: tuple[str, ...], call: Call) -> None:
    result = call(*command)
    assert result.exit_code == 0
    assert result.stdout.startswith("Usage: gemmbench [OPTIONS] COMMAND")
    assert result.stderr == ""


@pytest.mark.usefixtures("files")
def test_a_run_that_exists_is_replaced_only_by_force(call: Call) -> None:
    path = Path("good.jsonl")
    before = path.read_bytes()
    assert call("square", *QUICK, "--save", str(path)).exit_code == 2
    assert path.read_bytes() == before
    assert call("square", *QUICK, "--save", str(path), "--force").exit_code == 0
    assert len(path.read_bytes().splitlines()) == 3


@pytest.mark.usefixtures("files")
def test_a_result_that_exists_is_replaced_only_by_force(call: Call, tmp_path: Path) -> None:
    words = ("gemm", "-m", "8", "--kernel", "naive", "--no-peak", "--out", "a.npy")
    assert call(*words).exit_code == 2
    assert call(*words, "--force").exit_code == 0


def test_help_of_every_option_is_there(call: Call, golden: Callable[[str, str], None]) -> None:
    from gemmbench import cli

    for name in cli.COMMANDS:
        result = call(name, "--help")
        assert result.exit_code == 0
        brief = call(name, "-h").stdout
        assert brief.count("\n") <= 25
        assert max(map(len, brief.splitlines())) <= 80
        golden(f"help-{name}.txt", f"{brief}\n{result.stdout}")
    assert call().stdout.count("\n") <= 25
