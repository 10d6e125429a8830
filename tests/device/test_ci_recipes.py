"""The recipes in docs/ci are run: their installing is left out, their gemmbench measures tiny cases on a CPU.

They name PoCL, which hosted runners install; here any CPU's driver stands in for it, such as the one of pip.

No rate is asserted: a saved base has its times scaled, so that whatever this machine measures is a million
times faster, and kernels in turn with themselves have a threshold of 900 %.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml
from junitparser import Failure, JUnitXml

from gemmbench import __version__
from gemmbench.model import kernel_files
from gemmbench.model.row import Row
from gemmbench.model.run_file import Run, load
from tests.compare_runs import save
from tests.device.conftest import all_devices
from tests.fake_runs import slower
from tests.own_kernel import MINE

ROOT = Path(__file__).parents[2]
RECIPES = ROOT / "docs" / "ci"
BIN = Path(sys.executable).parent
JOBS = {"my-kernels": "base.jsonl", "my-machine": "bench/base-gpu.jsonl"}
SHELL = {  # the uses that gate.sh names, of either job
    "my-kernels": "--kernel-file kernels/mine.cl --against before/kernels/mine.cl --threshold '5 %'",
    "my-machine": "--threshold '5 %' --fail-on resources",
}
BASE = "--kernel own --kernel-file before/kernels/mine.cl --baseline none --no-peak --device pocl"
WHEEL = f"bench/gemmbench-{__version__}-py3-none-any.whl"
SCALE = 1e6
TINY = "--sizes 16 --kernel naive,tiled --no-peak --device pocl --budget 0.02"


@cache
def here(command: str) -> str:
    """A command with a device of this machine for the one that it names; a CPU's, or the first of all."""
    devices = sorted(all_devices(), key=lambda device: device.type != "cpu")
    assert devices, "no OpenCL device was found"
    if "--against" in command:
        command = command.replace("'5 %'", "'900 %' --patience 0")
    command = command.replace("--sizes 256,512", "--sizes 16 --budget 0.1")
    return re.sub(r"--device (pocl|nvidia)\b", f"--device {devices[0].index}", command)


@cache
def recipe(name: str) -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load((RECIPES / name).read_text(encoding="utf-8"))
    return found


def github(job: str) -> list[tuple[str, bool]]:
    """The scripts of a job's steps, and whether each runs after a failure too."""
    steps = recipe("github-actions.yml")["jobs"][job]["steps"]
    return [(step["run"], step.get("if") == "always()") for step in steps if "run" in step]


def gitlab(job: str) -> list[tuple[str, bool]]:
    """The same: the lines of a job, of which each ends it by failing."""
    found = recipe("gitlab-ci.yml")[job]
    return [("\n".join((*found["before_script"], *found["script"])), False)]


def shell(job: str) -> list[tuple[str, bool]]:
    gate = f"REPORTS=. sh '{RECIPES / 'gate.sh'}' {JOBS[job]} {SHELL[job]}"
    made = f"gemmbench square --sizes 256,512 {BASE} --save base.jsonl\n" if job == "my-kernels" else ""
    return [(made + gate, False)]


SERVERS: dict[str, Callable[[str], list[tuple[str, bool]]]] = {
    "github": github,
    "gitlab": gitlab,
    "shell": shell,
}


def scaled(row: Row, factor: float) -> Row:
    """A row that took so many times as long; naive, which ratios refer to, as it was.

    On a busy machine it was measured again: here it takes no other row's place.
    """
    row = replace(row, supersedes=False)
    return row if row.variant == "naive" else slower(row, factor)


def program(path: Path, text: str = "") -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{text}", encoding="utf-8")
    path.chmod(0o755)


def environment(folder: Path) -> dict[str, str]:
    for name in ("sudo", "apt-get", "git", "python3"):
        program(folder / "stubs" / name)
    program(folder / "stubs" / "python", '[ "$2" != gemmbench ] || { shift 2; exec gemmbench "$@"; }\n')
    program(folder / ".venv" / "bin" / "python")
    (folder / "stubs" / "gemmbench").symlink_to(BIN / "gemmbench")
    return {
        **{name: value for name, value in os.environ.items() if not name.startswith(("GITHUB", "GEMMBENCH"))},
        "PATH": f"{folder / 'stubs'}:/usr/bin:/bin",
        "XDG_CACHE_HOME": str(folder / "cache"),
        "GITHUB_STEP_SUMMARY": str(folder / "job.md"),
        "GITHUB_PATH": str(folder / "path"),
    }


@pytest.fixture(scope="module")
def measured(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """Tiny cases, once."""
    path = tmp_path_factory.mktemp("measured") / "once.jsonl"
    done = subprocess.run(
        [BIN / "gemmbench", "square", *here(TINY).split(), "-q", "--save", path],
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    return load(path)


def run(folder: Path, scripts: list[tuple[str, bool]]) -> tuple[int, str]:
    """Exit status of the first script that fails, or 0; what all have printed."""
    status, printed = 0, ""
    within = environment(folder)
    for script, always in scripts:
        if status and not always:
            continue
        done = subprocess.run(
            ["bash", "-e", "-c", here(script)], cwd=folder, env=within, capture_output=True, text=True
        )
        status = status or done.returncode
        printed += done.stdout + done.stderr
    return status, printed


@pytest.mark.parametrize(
    ("server", "broken", "is_new"),
    [("github", False, True), ("gitlab", True, False), ("gitlab", False, True)],
)
def test_my_kernels(server: str, broken: bool, is_new: bool, tmp_path: Path) -> None:
    """Broken: the kernel of the change is wrong; whether a slower one fails, test_check.py says.

    New: the change adds the kernel.
    """
    for folder in ("kernels", "before/kernels"):
        (tmp_path / folder).mkdir(parents=True)
        (tmp_path / folder / "part.h").write_text("#define PART 1\n", encoding="utf-8")
        (tmp_path / folder / "mine.cl").write_text(f'{MINE}#include "part.h"\n', encoding="utf-8")
    if is_new:
        shutil.rmtree(tmp_path / "before" / "kernels")
    if broken:
        (tmp_path / "kernels" / "mine.cl").write_text(MINE.replace("= sum;", "= sum + 1;"), encoding="utf-8")
    judge(server, "my-kernels", tmp_path, "mine" if broken else "", "broken")


@pytest.mark.parametrize(("server", "broken"), [("github", True), ("shell", False)])
def test_my_machine(server: str, broken: bool, measured: Run, tmp_path: Path) -> None:
    """Broken: this gemmbench lacks a kernel of the base; whether slower rows fail, test_check.py says."""
    (tmp_path / "bench").mkdir()
    # naive's time is as it was, and 5 % of it is no question for a busy machine
    rows = [row for row in measured.rows if row.variant != "naive"]
    if broken:
        rows = [*rows, *(replace(row, variant="gone") for row in rows if row.variant == "tiled")]
    often = tuple(scaled(row, SCALE * (1 + n / 1000)) for n in range(6) for row in rows)  # as of check --aa
    save(str(tmp_path / JOBS["my-machine"]), replace(measured, rows=often))
    judge(server, "my-machine", tmp_path, "gone" if broken else "", "missing")


def judge(server: str, job: str, folder: Path, gone: str, verdict: str) -> None:
    """Run a job: it passes, or fails for a row of the kernel named, which has this verdict."""
    status, printed = run(folder, SERVERS[server](job))
    assert status == bool(gone), printed
    cases = [case for suite in JUnitXml.fromfile(str(folder / "report.xml")) for case in suite]
    failed = {case.name.split()[0] for case in cases if any(isinstance(r, Failure) for r in case.result)}
    assert failed == ({gone} if gone else set())
    summary = (folder / "summary.md").read_text(encoding="utf-8")
    assert summary.startswith("### gemmbench: ")
    assert (f"1 {verdict}" in summary.splitlines()[0]) == bool(gone), summary
    assert load(folder / "new.jsonl").rows
    if server != "gitlab":
        assert (folder / "job.md").read_text(encoding="utf-8") == summary
    if server == "github":
        assert "::notice title=gemmbench::" in printed
        assert bool(re.search(f"^::(error|warning).*{gone}", printed, re.MULTILINE)) == bool(gone)


def test_kernels_are_compared_with_their_old_versions(measured: Run, tmp_path: Path) -> None:
    """gemmbench's own, of a folder; whether slower ones fail, test_check.py says."""
    (tmp_path / "bench").mkdir()
    save(str(tmp_path / "bench" / "base.jsonl"), measured)
    words = f"bench/base.jsonl --against '{kernel_files.folder()}' --threshold '900 %' --patience 0"
    gate = [(f"REPORTS=. sh '{RECIPES / 'gate.sh'}' {words}", False)]
    status, printed = run(tmp_path, gate)
    assert status == 0, printed
    assert all(row.former for row in load(tmp_path / "new.jsonl").rows)
    summary = (tmp_path / "summary.md").read_text(encoding="utf-8")
    assert summary.startswith("### gemmbench: ")
    assert re.search("^### .*(2|1 cannot tell.*1) unchanged|^### .*2 cannot tell", summary), summary


@pytest.mark.parametrize("name", ["github-actions.yml", "gitlab-ci.yml"])
def test_every_job_is_run_here(name: str) -> None:
    found = recipe(name)
    assert set(found.get("jobs", found)) == set(JOBS)


@pytest.mark.parametrize("name", ["github-actions.yml", "gitlab-ci.yml"])
def test_the_bases_are_made_as_the_comments_say(name: str, measured: Run, tmp_path: Path) -> None:
    commands = re.findall(r"^#   (gemmbench .+)$", (RECIPES / name).read_text(encoding="utf-8"), re.MULTILINE)
    assert [command.split()[-1] for command in commands if "bench/" in command] == [JOBS["my-machine"]]
    (tmp_path / "bench").mkdir()
    save(str(tmp_path / "once.jsonl"), measured)
    for command in commands:
        status, printed = run_bare(tmp_path, f"{here(command)} --force --dry-run")
        assert status == 0, printed


def run_bare(folder: Path, command: str) -> tuple[int, str]:
    words = [str(BIN / "gemmbench"), *command.split()[1:]]
    done = subprocess.run(words, cwd=folder, capture_output=True, text=True)
    return done.returncode, done.stdout + done.stderr


def test_the_shell_recipe_is_plain_sh_and_says_how_to_use_it(tmp_path: Path) -> None:
    assert subprocess.run(["sh", "-n", RECIPES / "gate.sh"]).returncode == 0
    done = subprocess.run(["sh", RECIPES / "gate.sh"], cwd=tmp_path, capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "usage: sh gate.sh BASE [OPTION of gemmbench check...]\n"


def test_an_earlier_jobs_reports_do_not_pass_for_this_ones(tmp_path: Path) -> None:
    reports = tmp_path / "an earlier job's"
    reports.mkdir()
    names = ("new.jsonl", "report.xml", "summary.md")
    for name in names:
        (reports / name).write_text("old", encoding="utf-8")
    within = {**environment(tmp_path), "REPORTS": reports.name}

    def gate(base: str) -> subprocess.CompletedProcess[str]:
        words = ["sh", str(RECIPES / "gate.sh"), base]
        return subprocess.run(words, cwd=tmp_path, env=within, capture_output=True, text=True)

    done = gate(f"./{reports.name}/new.jsonl")
    assert done.returncode == 2
    assert done.stderr == (
        f"gate.sh: ./{reports.name}/new.jsonl is removed by every job: keep it outside of {reports.name}\n"
    )
    assert {path.name for path in reports.iterdir()} == set(names)

    done = gate("none.jsonl")
    assert done.returncode == 2
    assert done.stderr.endswith("none.jsonl: no such file or directory\n")
    assert list(reports.iterdir()) == []
    assert not (tmp_path / "job.md").exists()


@pytest.mark.parametrize("name", ["github-actions.yml", "gitlab-ci.yml"])
def test_recipes_install_the_version_that_they_are_of(name: str) -> None:
    installs = re.findall(r"pip install (\S+)", (RECIPES / name).read_text(encoding="utf-8"))
    assert installs == [WHEEL, WHEEL]


@pytest.mark.parametrize("name", ["github-actions.yml", "gitlab-ci.yml"])
def test_recipes_say_first_what_they_guard(name: str) -> None:
    text = " ".join(re.sub(r"^ *#", "", (RECIPES / name).read_text(encoding="utf-8"), flags=re.M).split())
    for job, guards in zip(JOBS, ("my kernels:", "my driver, compiler or machine:"), strict=True):
        before = text.partition(f" {job}: ")[0].rpartition(" This guards ")[2]
        assert before.startswith(guards)


def test_the_shell_recipe_names_both_uses() -> None:
    text = (RECIPES / "gate.sh").read_text(encoding="utf-8")
    assert all(
        f"sh gate.sh {Path(JOBS[job]).with_stem('base')} {words}" in text for job, words in SHELL.items()
    )


def reframe(folder: Path, base: Run, *options: str, within: dict[str, str] | None = None) -> tuple[int, str]:
    """Run the ReFrame check on every node that the local scheduler has: this one."""
    (folder / "bench").mkdir()
    save(str(folder / "bench" / "base.jsonl"), base)
    checks = RECIPES / "reframe"
    done = subprocess.run(
        [
            *(BIN / "reframe", "--prefix=out", "--nocolor", "--distribute=all", "-r"),
            *("-C", checks / "settings.py", "-c", checks / "gemmbench_check.py"),
            *options,
        ],
        cwd=folder,
        env={
            **(within or environment(folder)),
            "GEMMBENCH_BASE": "bench/base.jsonl",
            "HOME": str(folder),
            "TMPDIR": str(folder),
        },
        capture_output=True,
        text=True,
    )
    return done.returncode, done.stdout + done.stderr


def test_reframe_passes_with_a_variable_for_every_row(measured: Run, tmp_path: Path) -> None:
    rows = [scaled(row, SCALE) for row in measured.rows if row.variant != "naive"]
    again = [scaled(row, 1.1) if row.variant == "tiled" else row for row in rows]  # as of `check --aa`

    status, printed = reframe(tmp_path, replace(measured, rows=(*rows, *again)))

    assert status == 0, printed
    assert "Ran 1/1 test case(s)" in printed
    found = re.findall(r"^P: (\S+): \S+ GFLOP/s \(r:\S+, l:None, u:None\)", printed, re.MULTILINE)
    assert set(found) == {"tiled_float_16", "numpy_float_16"}


def test_reframe_fails_for_a_slower_row_and_for_one_that_could_not_run(measured: Run, tmp_path: Path) -> None:
    """A busy machine excuses every row, so the verdict of one is changed in what `gemmbench check` writes."""
    rows = [replace(row, variant="gone") if row.variant == "tiled" else row for row in measured.rows]
    within = environment(tmp_path)
    (tmp_path / "stubs" / "gemmbench").unlink()
    edit = '[ ! -f check.json ] || sed -i \'0,/"verdict": ".*"/s//"verdict": "slower"/\' check.json\n'
    program(tmp_path / "stubs" / "gemmbench", f'"{BIN}/gemmbench" "$@"\nstatus=$?\n{edit}exit $status\n')
    status, printed = reframe(tmp_path, replace(measured, rows=tuple(rows)), within=within)
    assert status == 1
    assert "naive float 16: slower" in printed, printed
    assert re.search(r"gone float 16: missing unsupported: this version has no kernel gone", printed), printed


def test_reframe_without_a_base_says_so(measured: Run, tmp_path: Path) -> None:
    status, printed = reframe(tmp_path, measured, "-S", "base=none.jsonl")
    assert status == 1
    assert "GEMMBENCH_BASE: " in printed
    assert "none.jsonl" in printed
