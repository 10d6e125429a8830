"""CONTRIBUTING's recipes, followed: a kernel, a probe, a chart and an export each touch at most two files."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]

# Of a file: all of its text, or what is there and what takes its place.
Edit = str | tuple[str, str]


def text(name: str) -> str:
    return (ROOT / name).read_text(encoding="utf-8")


RECIPES: Mapping[str, Mapping[str, Edit]] = {
    "kernel": {
        "kernels/gemm/98_again.cl": text("kernels/gemm/01_naive.cl")
        .replace("naive(", "again(")
        .replace('"naive"', '"again"')
    },
    "probe": {
        "kernels/memory/global.cl": (
            "__kernel void global_triad(",
            "__kernel void global_again() {}\n__kernel void global_triad(",
        ),
        "gemmbench/probes/memory.py": (
            '    _bandwidth("local-read",',
            '    _bandwidth("global-again", "global", "read once more"),\n    _bandwidth("local-read",',
        ),
    },
    "chart": {
        "gemmbench/gemm/gemm_chart.py": (
            "def time_panes(",
            "def again(runs: Sequence[Run], families: pane.Families) -> Iterator[pane.Pane]:\n"
            "    return time_panes(runs, families)\n\n\ndef time_panes(",
        ),
        "gemmbench/chart_views.py": (
            '    "throughput": Kind(',
            '    "again": Kind("time once more", "rows", gemm_chart.again),\n    "throughput": Kind(',
        ),
    },
    "export": {
        "gemmbench/exports/__init__.py": (
            '    "openmetrics": ',
            '    "again": lambda run, _: f"{len(run.rows)} rows",\n    "openmetrics": ',
        ),
        "gemmbench/suite/options/measuring.py": ('"openmetrics")', '"openmetrics", "again")'),
    },
}

# What a user sees of each, where nothing else was touched.
SEEN = """
import json, sys
from gemmbench import api, chart_views
from gemmbench.ladder import BY_NAME, families
from gemmbench.model.case import Case
from gemmbench.model.problem import Gemm
from gemmbench.suite.options import measuring, names
from gemmbench.probes import memory
from gemmbench.suite.plan import gemm_plan
run = api.load(sys.argv[1])
device = run.header.devices[0]
(step,) = gemm_plan([device], [BY_NAME["again"]], [Gemm(8, 8, 8)])
probes = {each.variant for each in memory.memory_plan([device], ["memory"]) if isinstance(each, Case)}
print(json.dumps({
    "kernel": isinstance(step, Case) and bool(step.source) and bool(names.choose_kernels("again")),
    "probe": "global-again" in probes,
    "chart": len([*chart_views.KINDS["again"].panes([run], families([run]))]) > 0,
    "export": run.text("again") == f"{len(run.rows)} rows" and "again" in measuring.RUN_FORMATS,
}))
"""


@pytest.fixture(scope="module")
def seen(tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, bool]:
    """What came of all four in a copy of the package."""
    copy = tmp_path_factory.mktemp("recipes")
    for name in ("gemmbench", "kernels"):
        shutil.copytree(ROOT / name, copy / name)
    for name, edit in (pair for files in RECIPES.values() for pair in files.items()):
        path = copy / name
        if isinstance(edit, str):
            assert not path.exists()
            path.write_text(edit, encoding="utf-8")
            continue
        old = path.read_text(encoding="utf-8")
        assert old.count(edit[0]) == 1, edit[0]
        path.write_text(old.replace(*edit), encoding="utf-8")
    command = [sys.executable, "-c", SEEN, str(ROOT / "plots/cpu-intel-square.jsonl")]
    done = subprocess.run(command, cwd=copy, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    found: Mapping[str, bool] = json.loads(done.stdout)
    return found


@pytest.mark.parametrize("what", RECIPES)
def test_an_addition_is_two_files_or_one(what: str, seen: Mapping[str, bool]) -> None:
    assert len(RECIPES[what]) == (1 if what == "kernel" else 2)
    assert seen[what]


ADDITIONS = re.findall(r"^\| (an? .*) \| (.*) \|$", text("CONTRIBUTING.md"), re.MULTILINE)


@pytest.mark.parametrize(("what", "change"), ADDITIONS)
def test_a_recipe_names_what_exists(what: str, change: str) -> None:
    words = re.findall("`@?(.*?)`", change)
    paths = [ROOT / word for word in words if "/" in word]
    assert paths
    assert all(path.exists() for path in paths), what
    files = [
        file for path in paths for file in (path.rglob("*") if path.is_dir() else [path]) if file.is_file()
    ]
    code = "\n".join(file.read_text(encoding="utf-8", errors="replace") for file in files)
    assert not [word for word in words if "/" not in word and word not in code], what
