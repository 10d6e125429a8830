"""The gallery in ``plots/``: its pictures are listed, its runs are whole, rows are compared in one scope."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner

from gemmbench import cli
from gemmbench.model.row import Problem
from gemmbench.model.run_file import load
from gemmbench.stats import panels, rates
from tools import gallery

PLOTS = gallery.PLOTS
RUNS = sorted(PLOTS.glob("*.jsonl"))


def test_the_gallery_holds_its_pictures_and_their_runs_and_nothing_else() -> None:
    wanted = {gallery.name(kind, run) for kind, run, *_ in gallery.PICTURES}
    wanted |= {f"{run}.jsonl" for _, *runs in gallery.PICTURES for run in runs}
    assert {path.name for path in PLOTS.iterdir() if path.is_file()} == wanted | {gallery.PAGE.name}


@pytest.mark.parametrize("run", RUNS, ids=lambda run: run.stem)
def test_the_gallery_is_drawn_from_whole_honest_runs(run: Path) -> None:
    rows = load(run).rows
    assert not {row.status for row in rows} & {"wrong", "failed", "crashed", "timed-out"}
    launches = ("none",)  # of an empty kernel, which leaves nothing to check
    for row in rows:
        believed = ("ok", *(launches if row.kind == "latency" else ()))
        assert row.status != "ok" or row.check.verdict in believed, (row.variant, row.parameters)
    text = run.read_text(encoding="utf-8")
    assert not re.search(r'"/(?:home|root|work|tmp|usr)/', text), "a folder of the machine it was made on"


def test_the_page_lists_every_run_and_chart() -> None:
    _, _, listed = gallery.PAGE.read_text(encoding="utf-8").partition(gallery.MARK)
    assert listed == gallery.page(), "make plots writes it"


def said(*words: str, columns: int = 80) -> str:
    """What a command prints."""
    done = CliRunner().invoke(cli.main, list(words), prog_name="gemmbench", env={"COLUMNS": str(columns)})
    assert done.exit_code == 0, done.output
    return done.stdout


# --- one scope: whoever is compared is compared in one, and it is named -------------------------------------


def starred(table: str, dtype: str) -> str:
    """The variant whose figure is starred in the first column of a problem's table."""
    _, caption, rest = table.partition(f"\n{dtype} G")
    _, *lines = rest.partition("\n\n")[2].partition("\n\n")[0].splitlines()
    names = [cells[0] for line in lines if (cells := line.split())[1].startswith("*")]
    assert caption
    assert len(names) == 1, lines
    return names[0]


def fastest_in_tf32() -> str:
    """At 8192, in the device scope."""
    rows = [row for row in load(PLOTS / "h200-tensor.jsonl").rows if row.dtype == "tf32" and row.problem]
    return max(
        (row for row in rows if row.problem == Problem(8192, 8192, 8192)),
        key=lambda row: rates.median_rate(row, "device") or 0.0,
    ).variant


def test_a_library_is_compared_in_the_scope_that_it_has() -> None:
    """tf32 at 8192: 376 TFLOPS of the kernel alone are no lead over the 367 of all of cuBLAS' passes."""
    table = said("show", str(PLOTS / "h200-tensor.jsonl"), columns=200)
    assert starred(table, "tf32") == fastest_in_tf32()
    assert "in the kernel alone" not in table
    assert "tf32 GEMM, m = n = k = 8192, TFLOPS" in table
    assert "on the device" in table


def test_numpy_is_ranked_with_a_gpu_in_the_host_scope_only() -> None:
    """Without transfers it has less to do: at 64 its 60 GFLOPS are no lead over kernels on the GPU."""
    for run in ("h200-sweep-k", "h200-square", "h200-energy"):
        table = said("show", str(PLOTS / f"{run}.jsonl"), columns=250)
        line = next(line for line in table.splitlines() if line.startswith("numpy "))
        assert "*" not in line, run


def test_numpy_on_a_cpu_is_ranked_with_kernels_with_all_their_passes() -> None:
    run = load(PLOTS / "cpu-pocl-square.jsonl")
    numpy = tuple(row for row in run.rows if rates.on_host(row))
    assert {rates.view_scope(run), rates.view_scope(replace(run, rows=numpy))} == {"device"}
    setting = panels.settings(run)[0]
    problem = panels.common_problem(run, setting)
    assert problem
    assert panels.standings(run, setting, problem)["numpy"].rank
