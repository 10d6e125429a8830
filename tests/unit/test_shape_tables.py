"""The table of ``workloads``: what stands in it, and what is concluded."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from statistics import geometric_mean, median
from typing import Any

import pytest
from rich.cells import cell_len
from rich.console import RenderableType

from gemmbench.model import units
from gemmbench.model.row import Check, Problem, Row
from gemmbench.model.run_file import LeftOut, Run, load
from gemmbench.stats.rates import versus
from gemmbench.views import show
from tests import fake_runs as fake
from tests.unit.test_tables import only, text, workloads

CONV, DENSE, TALL = Problem(96, 3025, 363), Problem(1, 4096, 9216), Problem(4096, 16, 512)
NAMES = {CONV: "alexnet conv1", DENSE: "alexnet fc6 = token down", TALL: "tall"}
#                     conv1  fc6   tall
RATES = {
    "naive": (1.0, 1.0, 1.0),
    "register": (100.0, 8.0, 40.0),
    "padded": (120.0, None, 20.0),
    "numpy": (60.0, 10.0, 10.0),
}


def line(table: str, name: str) -> list[str]:
    return next(line.split() for line in table.splitlines() if line.startswith(name))


def shapes_run(command: tuple[str, ...] = ("workloads",)) -> Run:
    rows = [fake.peak_row(1, 200.0)]
    for variant, rates in RATES.items():
        for (problem, name), gflops in zip(NAMES.items(), rates, strict=True):
            where = -1 if variant == "numpy" else 0
            if gflops is None:
                row = fake.bad(variant, problem, "skipped", "would take about 9 s")
            else:
                row = fake.gemm_row(variant, problem, gflops, where, transfer=0.5, spread=0.0)
            rows.append(replace(row, label=name))
    return Run(fake.header(command), tuple(rows), "work.jsonl")


def changed(run: Run, variant: str, problem: Problem, **fields: Any) -> Run:
    def one(row: Row) -> Row:
        return replace(row, **fields) if (row.variant, row.problem) == (variant, problem) else row

    return replace(run, rows=tuple(map(one, run.rows)))


# --- workloads --------------------------------------------------------------------------------------------


def test_each_shape_has_its_best_kernel() -> None:
    table = text(workloads(shapes_run(), "kernel", fake.ORDER))
    *found, host, fraction, _, numpy, ratio = line(table, "alexnet conv1")
    assert found == ["alexnet", "conv1", "96", "3025", "363", "padded", "120"]
    assert (fraction, numpy) == ("60", "60.0")
    assert float(host) == pytest.approx(120 / (1.01 / 0.5), rel=0.05)
    assert float(ratio) == pytest.approx(float(host) / 60, rel=0.01)
    assert line(table, "tall")[4] == "register"


def test_geometric_means_are_over_the_shapes() -> None:
    table = text(workloads(shapes_run(), "kernel", fake.ORDER))
    mean = line(table, "geometric mean")
    assert float(mean[2]) == pytest.approx((120 * 8 * 40) ** (1 / 3), rel=0.01)
    assert float(mean[6]) == pytest.approx((60 * 10 * 10) ** (1 / 3), rel=0.01)


def test_the_mean_is_also_of_the_ratios_to_another_kernel() -> None:
    run = load(Path(__file__).parents[1] / "data" / "cpu-pocl-workloads.jsonl")
    ratios = [ratio.median for row in run.rows if (ratio := versus(row))]
    sheet = workloads(run, "kernel", fake.ORDER)
    assert text(sheet).count(f"{units.number(geometric_mean(ratios))}\n") == 1


@pytest.mark.parametrize("scope", ["kernel", "host"])
def test_show_is_what_the_command_printed(scope: str) -> None:
    run = shapes_run(("workloads", "--scope", scope, "--set", "all"))
    shown = text(show(run, fake.ORDER))
    assert shown.startswith(text(workloads(run, scope, fake.ORDER)))
    assert ("in the kernel alone" in shown) == (scope == "kernel")
    verbose = text(show(run, fake.ORDER, verbose=True))
    assert "* fastest of its problem" in verbose


@pytest.mark.parametrize("width", [20, 40, 57, 80, 120])
def test_no_line_is_wider_than_the_terminal(width: int) -> None:
    shown = text(show(shapes_run(), fake.ORDER), width)
    assert max(map(cell_len, shown.splitlines())) <= width
    for word in ("register", "padded", "numpy"):
        assert word in shown


# --- the calls of a program -------------------------------------------------------------------------------

CALLS = {CONV: 10, DENSE: 20, TALL: 20}
SECONDS = {problem: calls * problem.flops / 1e9 for problem, calls in CALLS.items()}  # at 1 GFLOPS
ALL = {"conv": 60, "dense": 10, "tall": 10}  # of cublas
SUSPECT = Check("suspect", {}, ("x",))


def program_run() -> Run:
    """Calls on a GPU, where register is faster than cublas in conv1 and tall."""
    rows = [fake.peak_row(1, 65000.0)]
    for variant, rates in (("register", (120.0, 8.0, 40.0)), ("cublas", (60.0, 10.0, 10.0))):
        for (problem, name), gflops in zip(NAMES.items(), rates, strict=True):
            row = fake.gemm_row(variant, problem, gflops, spread=0.0)
            samples = dict.fromkeys(("device", "host"), row.samples["device"])
            rows.append(replace(row, label=name, calls=CALLS[problem], samples=samples))
    return Run(fake.header(("workloads",), (fake.GPU,)), tuple(rows), "work.jsonl")


def sums(table: str) -> list[float]:
    """Milliseconds as called, and with the best of each."""
    found = re.search(r"As called with cublas (.*) ms, best of each (.*) ms(?: for|\.)", table)
    assert found, table
    return [float(each.replace(",", "")) for each in found.groups()]


def in_ms(**rates: float) -> float:
    names = {"conv": CONV, "dense": DENSE, "tall": TALL}
    return 1010 * sum(SECONDS[names[name]] / rate for name, rate in rates.items())  # device: 1 % longer


def test_a_program_is_summed_as_called_and_with_the_best_of_each() -> None:
    table = text(show(program_run(), fake.ORDER), 120)
    for name, problem, best in (("alexnet conv1", CONV, "register"), ("alexnet fc6", DENSE, "cublas")):
        words = " ".join(line(table, name))
        share = units.share(SECONDS[problem] / sum(SECONDS.values()))
        assert f" {CALLS[problem]} {share} " in words
        ratio = {"register": "2.00", "cublas": "1.00"}[best]
        assert re.search(rf" {best} [\d.]+ ms {ratio}$", words)
    called, best_of_each = in_ms(**ALL), in_ms(conv=120, dense=10, tall=40)
    assert sums(table) == pytest.approx([called, best_of_each], rel=0.01)


@pytest.mark.parametrize(
    ("variant", "problem", "fault", "called", "best"),
    [
        ("cublas", DENSE, "noisy", {"conv": 60, "tall": 10}, {"conv": 120, "tall": 40}),
        ("cublas", DENSE, "suspect", {"conv": 60, "tall": 10}, {"conv": 120, "tall": 40}),
        ("register", CONV, "suspect", ALL, {**ALL, "tall": 40}),
    ],
)
def test_the_sum_does_not_rest_on_doubtful_rows(
    variant: str, problem: Problem, fault: str, called: dict[str, float], best: dict[str, float]
) -> None:
    run = program_run()
    row = next(row for row in run.rows if (row.variant, row.problem) == (variant, problem))
    noisy = {name: fake.scope(median(each.seconds), 0.6) for name, each in row.samples.items()}
    fields: dict[str, Any] = {"samples": noisy} if fault == "noisy" else {"check": SUSPECT}
    table = text(show(changed(run, variant, problem, **fields), fake.ORDER), 120)
    assert sums(table) == pytest.approx([in_ms(**called), in_ms(**best)], rel=0.01)
    assert ("Certain are 2 of 3 shapes. As called" in table) == (len(called) == 2)


# --- rules, each shown on a run that needs it ---------------------------------------------------------------


def slow_with_transfers() -> Run:
    """The best kernel of a shape is as slow as naive with transfers."""
    run = shapes_run()
    slow, best = (
        next(row.samples for row in run.rows if (row.variant, row.problem) == (name, CONV))
        for name in ("naive", "padded")
    )
    return changed(run, "padded", CONV, samples={**best, "host": slow["host"]})


def noisy(variant: str) -> Run:
    run = shapes_run()
    row = next(row for row in run.rows if (row.variant, row.problem) == (variant, CONV))
    samples = {name: fake.scope(median(each.seconds), 0.2) for name, each in row.samples.items()}
    return changed(run, variant, CONV, samples=samples)


def nothing_runs(status: str) -> Run:
    run = shapes_run()
    for variant in ("naive", "register", "padded"):
        run = changed(run, variant, DENSE, status="skipped", reason="x", samples={})
    return changed(run, "naive", DENSE, status=status, reason="y")


def two_devices_and_types() -> Run:
    run = shapes_run()
    more = [replace(row, device=1) for row in run.rows if row.device == 0]
    more += [replace(row, dtype="double") for row in run.rows]
    return Run(fake.header(("workloads",), (fake.CPU, fake.POCL)), (*run.rows, *more))


def many_shapes(count: int) -> Run:
    run, problem = program_run(), Problem(64, 64, 64)
    rows = [replace(run.rows[4], problem=replace(problem, m=64 * m), label="x") for m in range(1, count + 1)]
    return replace(run, rows=tuple(rows), header=replace(run.header, left_out=LeftOut(5, 10**9, 0.04)))


def two_types(count: int | None, *options: str) -> Run:
    """A program's calls, so many of them in double too."""
    run = program_run()
    double = [replace(row, dtype="double") for row in run.rows if row.problem]
    header = replace(run.header, command=("workloads", *options))
    return replace(run, rows=(*run.rows, *double[:count]), header=header)


def rules() -> dict[str, RenderableType]:
    """What to look for, and the table."""
    run, slow = shapes_run(), slow_with_transfers()
    wrong = {"status": "wrong", "reason": "residual 3 times its bound", "samples": {}}
    return {
        "the best in the kernel alone": workloads(slow, "kernel", fake.ORDER),
        "and with transfers": workloads(slow, "host", fake.ORDER),
        "the best single kernel has run everywhere": workloads(
            changed(run, "padded", DENSE, status="ok"), "kernel", fake.ORDER
        ),
        "no wins without numpy": workloads(
            only(run, lambda row: row.variant != "numpy"), "kernel", fake.ORDER
        ),
        "a shape that no kernel has time for": workloads(nothing_runs("skipped")),
        "or that is not supported": workloads(nothing_runs("unsupported")),
        "wrong rows have their reason": workloads(changed(run, "naive", TALL, **wrong)),
        "a row that is not shown is not called uncertain": show(noisy("naive"), fake.ORDER),
        "the best is": show(noisy("padded"), fake.ORDER),
        "one shape has no mean": workloads(only(run, lambda row: row.problem == CONV)),
        "the host alone": workloads(only(run, lambda row: row.variant == "numpy")),
        "a table for each device and type": workloads(two_devices_and_types()),
        "16 shapes": show(many_shapes(16)),
        "15 of 17 shapes and a line for the rest": show(many_shapes(17)),
        "a table for each type that --dtype asked for": show(two_types(None, "--dtype", "float,double")),
        "one table for the types of a program": show(two_types(None)),
        "each shape in its own type": show(two_types(1)),
    }


def test_rules(golden: Callable[[str, str], None]) -> None:
    pages = [f"--- {title}\n\n{text(each, 120)}" for title, each in rules().items()]
    golden("shape-tables.txt", "\n\n".join(pages))
