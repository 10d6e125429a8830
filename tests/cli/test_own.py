"""Own kernels on the command line with a fake machine: docs/own-kernels.md, and what is refused."""

from __future__ import annotations

import json
import re
import subprocess
from dataclasses import replace
from pathlib import Path

import jsonschema_rs
import pytest

import gemmbench as gb
from gemmbench import api
from gemmbench.cli import kernels
from gemmbench.model.run_file import load
from gemmbench.suite import job as jobs
from gemmbench.suite.options import build, names
from gemmbench.suite.options.comparing import TuneOptions
from gemmbench.suite.options.measuring import SquareOptions
from tests.cli.conftest import ROOT, Call
from tests.cli.test_tune import flat
from tests.compare_runs import save

PAGE = (ROOT / "docs" / "own-kernels.md").read_text(encoding="utf-8")
(KERNEL,) = re.findall(r"```c\n(.*?)```", PAGE, re.DOTALL)
COMMANDS = re.findall(r"^((?:gemmbench|sed|cp) .*)$", PAGE, re.MULTILINE)
MINE = ("--kernel-file", "mine.cl")


@pytest.fixture(autouse=True)
def mine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    Path("mine.cl").write_text(KERNEL)
    return tmp_path / "mine.cl"


def test_the_kernel_of_the_walk_has_twenty_lines() -> None:
    assert KERNEL.count("\n") == 20
    assert len(COMMANDS) == 10


class _Parsed(BaseException):
    """Instead of measuring."""


def test_the_walk_is_understood_as_written(call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    """What a device has to measure is run by tests/device/test_own.py."""

    def parsed(options: object, *_: object) -> object:
        raise _Parsed(options)

    for module, name in ((jobs, "run_job"), (api, "load")):
        monkeypatch.setattr(module, name, parsed)
    monkeypatch.setattr(kernels, "_show_resources", parsed)
    for command in COMMANDS:
        if not command.startswith("gemmbench"):
            subprocess.run(command, shell=True, check=True)
            continue
        with pytest.raises(_Parsed):
            call(*command.split()[1:])


def test_a_new_kernel_may_be_named_behind_an_equals_sign(call: Call) -> None:
    done = call("kernels", "--new=start.cl")
    assert (done.exit_code, done.stderr) == (0, "")
    assert Path("start.cl").is_file()


def test_own_kernels_join_those_that_are_named() -> None:
    def chosen(kernels: str, baseline: str = "none", **options: object) -> list[str]:
        values = {"kernels": kernels, "kernel_files": ["mine.cl"], "baseline": baseline, **options}
        return [variant.name for variant in build(SquareOptions, values).variants]

    assert chosen("tiled", "numpy") == ["tiled", "mine", "numpy"]
    assert chosen("mine,tiled") == ["tiled", "mine"]
    assert chosen("own") == ["mine"]
    assert chosen("all")[-1] == "mine"
    Path("two.cl").write_text(Path("mine.cl").read_text())
    assert chosen("mine", kernel_files=["two.cl", "mine.cl"]) == ["mine"]
    assert chosen("own", kernel_files=["two.cl", "mine.cl"]) == ["two", "mine"]
    assert chosen("naive,numpy", kernel_files=["two.cl", "mine.cl"]) == ["naive", "two", "mine", "numpy"]
    options = build(SquareOptions, {"kernels": "tiled", "kernel_files": ["mine.cl"], "versus": "mine"})
    assert (options.partner.name, options.named) == ("mine", ("tiled", "mine"))
    with pytest.raises(gb.UsageError, match="none of --kernel-file"):
        build(TuneOptions, {"kernel": "tiled", "kernel_files": ["mine.cl"]})


def test_a_saved_run_needs_no_file_and_detects_a_changed_kernel(call: Call, mine: Path) -> None:
    one = {"kernels": "tiled,mine", "baseline": "none", "peak": False, "budget": 0.01}
    run = gb.square(sizes="16", kernel_files=["mine.cl"], save="a.jsonl", **one)
    assert [row.get("own") for row in run.records()] == [None, "mine.cl"]

    was = mine.read_text()
    mine.unlink()
    assert "mine" in call("show", "a.jsonl").stdout
    jsonschema_rs.validate(
        gb.schema("records"), json.loads(call("show", "a.jsonl", "--format", "json").stdout)
    )
    assert call("compare", "a.jsonl", "a.jsonl").exit_code == 2
    assert call("plot", "a.jsonl", "--kind", "ladder", "-o", "a.svg").exit_code == 0
    assert ">own kernels<" in Path("a.svg").read_text()
    assert "#882255" in Path("a.svg").read_text()
    checked = call("check", "a.jsonl")
    assert checked.exit_code == 2
    assert "mine is your own kernel: pass --kernel-file mine.cl" in checked.stderr

    mine.write_text(was.replace("p += TS", "p = p + TS"))
    with pytest.raises(gb.UsageError, match="of other kernel sources than today's"):
        gb.square(sizes="16", kernel_files=["mine.cl"], save="a.jsonl", resume=True, **one)
    (changed,) = [row for row in load("a.jsonl").rows if row.own]
    changed = replace(changed, source="0123456789abcdef")
    save("b.jsonl", replace(load("a.jsonl"), rows=(changed,)))
    refused = call("compare", "a.jsonl", "b.jsonl")
    remedy = "check --kernel-file mine.cl --against OLD.cl interleaves the two versions"
    assert remedy in flat(refused.stdout + refused.stderr)


def test_a_kernel_is_called_like_no_word_of_the_options(mine: Path) -> None:
    words = {"own", *names.KERNEL_NAMES, *names.BASELINE_NAMES}
    was = mine.read_text()
    for name in sorted(words):
        mine.write_text(was.replace("/* gemmbench\n", f'/* gemmbench\nname = "{name}"\n'))
        with pytest.raises(gb.UsageError, match=rf'name = "my-{re.escape(name)}"'):
            build(SquareOptions, {"kernel_files": ["mine.cl"]})


def test_tune_forgets_them_without_their_file(call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GEMMBENCH_FAKE_GAINS", "TS=32 1.5")
    assert "The winner is saved" in flat(call("tune", *MINE, "--sizes", "64", "--budget", "5").stdout)
    assert call("tune", "--forget").stdout == "Forgot mine float: TS=32\n"
    assert call("tune", "--forget", *MINE).stdout.startswith("Nothing is saved for this in ")


def test_kernels_lists_and_describes_them(call: Call) -> None:
    listed = call("kernels", *MINE).stdout
    assert listed.index("own kernels") < listed.index("libraries")
    described = flat(call("kernels", *MINE, "--describe", "mine").stdout)
    assert "1. multiply: mine.cl mine" in described
    assert "it does not support alpha, beta" in described


def test_the_api_writes_a_kernel_to_start_from(mine: Path) -> None:
    assert gb.new_kernel("start.cl") == Path("start.cl")
    assert "__kernel void sgemm" in Path("start.cl").read_text()
    with pytest.raises(gb.UsageError, match="exists already"):
        gb.new_kernel("mine.cl")
