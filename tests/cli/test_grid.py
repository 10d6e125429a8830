"""Several values of ``--param``: a row for each combination, resumed, in tables and charts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from gemmbench import api
from gemmbench.model.row import Row
from gemmbench.model.run_file import load
from tests.cli.conftest import Call

GRID = (
    "--kernel", "naive,register", "--baseline", "none", "--no-peak", "--device", "intel", "--budget", "0.01",
)  # fmt: skip
VALUES = ("--param", "WX=4,8", "--param", "WY=1,2,4", "--param", "BM=32,48,64", "--param", "TM=8,10")


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def combination(row: Row) -> tuple[Any, ...]:
    return row.variant, *(row.parameters[name] for name in row.grid)


def test_every_combination_is_a_row_and_what_a_kernel_does_not_take_says_why(call: Call) -> None:
    done = call("square", *GRID, *VALUES, "--sizes", "64", "--save", "grid.jsonl", "-q")
    assert done.exit_code == 0, done.stderr
    rows = load(Path("grid.jsonl")).rows
    naive = [("naive", x, y) for x in (4, 8) for y in (1, 2, 4)]
    register = [("register", height, micro) for height in (32, 48, 64) for micro in (8, 10)]
    assert [combination(row) for row in rows] == naive + register
    assert {combination(row) for row in rows if row.status != "ok"} == {
        ("register", 32, 10), ("register", 48, 10), ("register", 64, 10),
    }  # fmt: skip
    assert {row.reason for row in rows if row.status != "ok"} == {
        "BM must be a multiple of TM, so that each work-item owns whole rows"
    }
    assert len({row.key for row in rows}) == len(rows)
    lines = done.stdout.splitlines()
    table = lines[: lines.index("", 3)]
    assert sum(line.startswith(("naive WX=", "register BM=")) for line in table) == 12
    assert max(map(len, lines)) <= 80
    assert "is the fastest in the kernel alone: cannot tell at this noise." in " ".join(
        done.stdout.split()
    )  # all are as fast


def test_a_grid_goes_on_where_it_was_stopped(call: Call) -> None:
    whole = ("square", *GRID, *VALUES, "--sizes", "64", "--save", "grid.jsonl", "-q")
    assert call(*whole).exit_code == 0
    path = Path("grid.jsonl")
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join(lines[:5]))
    assert call(*whole, "--resume").exit_code == 0
    again = path.read_bytes().splitlines(keepends=True)
    assert again[:5] == lines[:5]
    assert [combination(row) for row in load(path).rows] == [combination(row) for row in api.load(path).rows]
    assert len(again) == len(lines)


@pytest.mark.parametrize(
    "command",
    [
        ("gemm", "-m", "64"),
        ("sweep-k", "--m", "64", "--n", "64", "--sizes", "32,64"),
        ("workloads", "--set", "odd", "-v"),
    ],
)
def test_every_command_has_a_line_for_each_combination(call: Call, command: Any) -> None:
    words = (*command, *GRID, "--kernel", "naive", "--param", "WX=4,8", "--param", "WY=1,2", "-q")
    done = call(*words)
    assert done.exit_code == 0, done.stderr
    for series in ("naive WX=4 WY=1", "naive WX=4 WY=2", "naive WX=8 WY=1", "naive WX=8 WY=2"):
        assert any(line.strip().startswith(series) for line in done.stdout.splitlines()), series


def test_strict_and_fast_math_have_a_grid_each(call: Call) -> None:
    words = ("--kernel", "naive", "--param", "WX=4,8", "--param", "WY=1,2", "--math", "strict,fast", "-q")
    done = call("square", *GRID, *words, "--sizes", "64")
    assert done.exit_code == 0, done.stderr
    lines = [line.strip() for line in done.stdout.splitlines()]
    assert sum(line.startswith("naive fast WX=") for line in lines) == 4
    assert "or 6 others may be the fastest in" in done.stdout  # all are as fast


def test_python_gives_values_as_lists() -> None:
    run = api.square(
        kernels="naive", baseline="none", peak=False, device="intel", budget=0.01, sizes="64", quiet=True,
        params={"WX": [4, 8], "WY": 2},
    )  # fmt: skip
    assert [(row.parameters["WX"], row.parameters["WY"], row.grid) for row in run.rows] == [
        (4, 2, ("WX",)),
        (8, 2, ("WX",)),
    ]
