from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, cast

import pytest
from rich.cells import cell_len
from rich.console import Console, Group, RenderableType

from gemmbench.cli.kernels import devices_table
from gemmbench.exports.records import format_json, to_csv, to_records
from gemmbench.gemm import shape_tables, sweep_table
from gemmbench.model.case import Policy
from gemmbench.model.device import Conditions
from gemmbench.model.row import Check, Energy, Parameters, Partner, Problem, Row, Scope
from gemmbench.model.run_file import Run
from gemmbench.model.units import clean, clean_lines
from gemmbench.pages import Wanted, report_html
from gemmbench.probes import peak_table
from gemmbench.report.table import Cell, Entry, Sheet, _split_columns, catalogue, entry_page, heading, stack
from gemmbench.stats import rates
from gemmbench.views import format_markdown, show
from tests import fake_memory
from tests import fake_runs as fake

Golden = Callable[[str, str], None]
WIDTHS = (20, 40, 57, 80, 120, 200)
SQUARE_2048 = Problem(2048, 2048, 2048)


def text(renderable: RenderableType, width: int = 80) -> str:
    console = Console(width=width, color_system=None, force_terminal=False)
    with console.capture() as capture:
        console.print(renderable, crop=False)
    return capture.get()


def sweep(
    run: Run, axis: str, scope: str = "kernel", order: Sequence[str] = (), dtype: str = ""
) -> RenderableType:
    shown = replace(run, rows=tuple(row for row in run.rows if dtype in ("", row.dtype)))
    return stack(sweep_table.sweep_sheets(shown, axis, scope, order))


def detail(run: Run, order: Sequence[str] = ()) -> RenderableType:
    return stack(sweep_table.row_sheets(run, order))


def workloads(run: Run, scope: str = "kernel", order: Sequence[str] = ()) -> RenderableType:
    return stack(shape_tables.workloads_sheets(run, scope, order))


def peak(run: Run, verbose: bool = False) -> RenderableType:
    return stack([*peak_table.peak_sheets(run, verbose), *peak_table.memory_sheets(run, verbose)])


def cells(table: str, variant: str) -> list[str]:
    """The entries of the first line that starts with a variant."""
    return next(line.split()[1:] for line in table.splitlines() if line.split()[:1] == [variant])


ENTRIES = (
    Entry("naive", "first steps", "one work-item per element of C"),
    Entry(
        "block2x2-v4",
        "for mobile GPUs",
        "a 2 x 2 block of C per work-item from two rows of each operand [bold]",
        (
            ("source", "GPU Pro 5"),
            ("needs", "cl_khr_fp16"),
            ("passes", "1. transpose: B"),
            ("", "2. multiply"),
            ("parameters", "W: 4: vector width"),
        ),
        ("    A        B\n  +---+    +---+\n  | * | x  | * |\n  +---+    +---+",),
    ),
)


def verbose(name: str) -> RenderableType:
    return show(fake.ALL[name](), fake.ORDER, verbose=name == "gemm")


PAGES: dict[str, Callable[[], RenderableType]] = {
    **{f"run-{name}": partial(verbose, name) for name in fake.ALL},
    "run-memory": lambda: peak(fake_memory.fake_memory()),
    "run-matrix": lambda: peak(fake_memory.fake_matrix()),
    "run-detail": lambda: detail(fake.fake_troubled(), fake.ORDER),
    "run-devices": lambda: devices_table(
        [fake.CPU, replace(fake.POCL, name=fake.HOSTILE), fake.GPU], fake.HOST
    ),
    "run-ladder": lambda: Group(
        *catalogue(ENTRIES, {entry.family: entry.family for entry in ENTRIES}), "", entry_page(ENTRIES[1])
    ),
    "run-energy": lambda: sweep(with_energy(fake.fake_sweep_k()), "k", order=fake.ORDER),
}
MARKDOWN = {**fake.ALL, "memory": fake_memory.fake_memory}


@pytest.mark.parametrize("name", PAGES)
def test_pages(name: str, golden: Golden) -> None:
    golden(f"{name}.txt", text(PAGES[name]()))


@pytest.mark.parametrize("name", MARKDOWN)
def test_markdown(name: str, golden: Golden) -> None:
    golden(f"run-{name}.md", format_markdown(MARKDOWN[name](), fake.ORDER))


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("name", PAGES)
def test_no_line_is_wider_than_the_terminal(name: str, width: int) -> None:
    lines = text(PAGES[name](), width).splitlines()
    assert not [
        line for line in lines if cell_len(line) > width and " " in line.strip()
    ]  # a long word may be


@pytest.mark.parametrize("width", [40, 80])
def test_every_size_survives_a_narrow_terminal(width: int) -> None:
    words = text(show(fake.fake_sweep_k()), width).split()
    for k in (16, 32, 64, 128, 256, 512, 1024, 2048, 4096):
        assert str(k) in words


def test_scope_all_is_the_detail() -> None:
    run = fake.fake_square()
    every = replace(run, header=replace(run.header, scope="all"))
    assert text(show(every, fake.ORDER)).startswith(text(detail(run, fake.ORDER)).rstrip())


def test_a_row_of_two_samples_is_marked() -> None:
    run = fake.fake_square()
    short = replace(run.rows[0], samples={"kernel": Scope((1e-3, 1e-3), 1, "budget")})
    assert rates.is_uncertain(run, short)


def with_energy(run: Run) -> Run:
    """The same, had energy been asked for: a GPU has its joules, a processor's counter is for root only."""
    rows = tuple(
        replace(row, energy=fake.energy(row, run.device(row))) if row.samples else row for row in run.rows
    )
    return replace(run, rows=rows, header=replace(run.header, policy=Policy(energy=True)))


def one_pair(device_gflops: float, sizes: tuple[int, ...] = (128, 512, 2048)) -> Run:
    rows = []
    for size in sizes:
        problem = Problem(size, size, size)
        rows.append(fake.gemm_row("register", problem, device_gflops * size / 512))
        rows.append(fake.gemm_row("numpy", problem, 100.0, -1))
    return Run(fake.header(("square",)), tuple(rows))


def test_shares_of_peak_are_of_the_scope_in_which_rows_are_compared() -> None:
    """Beside a library, which has no kernel scope, that is the device scope: 100 instead of 200 GFLOPS."""
    own = fake.gemm_row("tiled", Problem(512, 512, 512), 200.0)
    own = replace(own, samples={**own.samples, "device": fake.slower(own, 2).samples["kernel"]})
    library = fake.gemm_row("clblast", Problem(512, 512, 512), 150.0)
    library = replace(library, samples={"device": library.samples["device"]})
    run = Run(fake.header(("square",)), (fake.peak_row(1, 400.0), own, library))
    assert "25.0 %" in " ".join(cells(text(detail(run), 120), "tiled"))
    assert to_records(run)[1]["peak_fraction"] == pytest.approx(0.25, rel=0.01)


def test_workloads_mean_the_same_shapes_and_the_fastest_with_transfers_pays() -> None:
    run = fake.fake_workloads()
    assert cells(text(workloads(run), 120), "geometric")[-1] != "-"
    rows = [row for row in run.rows if not (row.variant == "numpy" and row.problem and row.problem.m == 96)]
    mean = cells(text(workloads(replace(run, rows=tuple(rows))), 120), "geometric")
    assert mean[-2:] == ["-", "-"]  # numpy and the ratio lack a shape; the kernels do not
    assert "-" not in mean[:-2]
    shape = Problem(96, 3025, 363)
    pair = [fake.gemm_row("padded", shape, 120.0, transfer=0.1), fake.gemm_row("tiled", shape, 100.0)]
    paid = replace(run, rows=(*pair, fake.gemm_row("numpy", shape, 60.0, -1)))
    assert "the device beats numpy on 1 of 1 shapes" in text(workloads(paid), 120)
    alone = replace(run, rows=tuple(row for row in run.rows if row.variant == "numpy"))
    assert "numpy on" not in text(workloads(alone), 120)


def test_columns_that_belong_together_stay_together() -> None:
    widths = [8, 4, *[6] * 8]
    assert _split_columns(widths, [3, 5], (2, 2), 60) == [[2, 3, 4, 5, 6, 7, 8, 9][:3], [5, 6, 7, 8, 9]]
    assert _split_columns(widths, [3, 5], (2, 2), 80) == [[2, 3, 4, 5, 6, 7, 8, 9]]
    assert _split_columns(widths, [8], (2, 1), 40) == [[2, 3, 4], [5, 6, 7, 8], [9]], "too many for a table"


@pytest.mark.parametrize(("names", "keys"), [(("a", "b"), "name"), (("a", "a"), "name size")])
def test_a_further_table_repeats_the_keys_that_tell_rows_apart(names: tuple[str, str], keys: str) -> None:
    lines = tuple(tuple(map(Cell, (name, str(at), "1", "2"))) for at, name in enumerate(names))
    shown = text(Sheet(keys=("name", "size"), blocks=(("first" * 4,), ("second" * 4,)), rows=lines), 40)
    assert [line.split() for line in shown.splitlines() if "name" in line] == [
        ["name", "size", "first" * 4], [*keys.split(), "second" * 4]
    ]  # fmt: skip


def test_verbose_show_has_the_detail() -> None:
    run = fake.fake_square()
    assert text(detail(run, fake.ORDER)).rstrip() in text(show(run, fake.ORDER, verbose=True))


@pytest.mark.parametrize(
    ("raw", "shown"),
    [
        ("  a \n b\t", "a b"),
        ("\x1b[31mred", "[31mred"),
        ("right\u202eleft", "rightleft"),
        ("\ud800", "\N{REPLACEMENT CHARACTER}"),
        ("naïve 中", "naïve 中"),
    ],
)
def test_clean(raw: str, shown: str) -> None:
    assert clean(raw) == shown


def test_long_logs_are_cut_and_say_so() -> None:
    assert clean_lines("\n".join("abcdefgh")) == "a\nb\nc\nd\ne\n(and 3 more lines)"
    assert clean_lines("a\n\nb\r\n") == "a\nb"


def in_turn_with_tiled(run: Run, pairs: int = 40) -> Run:
    """Every kernel on the device but tiled has tiled's samples beside its own."""
    tiled = {row.problem: row.samples["kernel"] for row in run.rows if row.variant == "tiled" and row.samples}

    def beside(row: Row) -> Row:
        if not row.samples or row.device < 0 or row.variant == "tiled" or row.problem not in tiled:
            return row
        own, other = row.samples["kernel"], tiled[row.problem]
        own = replace(own, seconds=tuple(own.seconds[n % len(own.seconds)] for n in range(pairs)))
        other = replace(other, seconds=tuple(other.seconds[n % len(other.seconds)] for n in range(pairs)))
        mine, theirs = ({"kernel": scope, "device": scope} for scope in (own, other))
        return replace(row, samples=mine, former=Partner("t", theirs, "tiled"))

    return replace(run, rows=tuple(map(beside, run.rows)))


# --- rules of tables, each shown on a run that needs it -----------------------------------------------------


def of(*rows: Row, command: str = "square", view: str = "", **header: Any) -> Run:
    made = fake.header((command,))
    return Run(replace(made, view=view or made.view, **header), rows)


def changed(run: Run, variant: str = "", **values: Any) -> Run:
    """A run whose rows, or those of one kernel, have other values."""
    rows = (replace(row, **values) if variant in ("", row.variant) else row for row in run.rows)
    return replace(run, rows=tuple(rows))


def with_header(run: Run, **values: Any) -> Run:
    return replace(run, header=replace(run.header, **values))


def only(run: Run, keep: Callable[[Row], object]) -> Run:
    return replace(run, rows=tuple(filter(keep, run.rows)))


def slowed_run() -> Run:
    """Other programs ran while tiled was measured."""
    run = changed(fake.fake_square(), conditions=None)
    return changed(run, "tiled", conditions=Conditions(control_s=(0.005, 0.006)))


def quiet_run() -> Run:
    """tiled had quiet batches for 2 % of the time, the others for 80 %."""

    def disturbed(row: Row) -> Row:
        share = 0.02 if row.variant == "tiled" else 0.8
        samples = {
            name: replace(scope, bursts_s=(1.0,) * (calm := 2 * round(share * len(scope.seconds)))
            + (1.3,) * (2 * len(scope.seconds) - calm), quiet_s=(0.95, 1.05))
            for name, scope in row.samples.items()
        }  # fmt: skip
        return replace(row, samples=samples)

    return replace(fake.fake_square(), rows=tuple(map(disturbed, fake.fake_square().rows)))


def scaled_run() -> Run:
    """With beta = 1."""
    run = fake.fake_square()
    scaled = ((row, replace(row.problem, beta=1.0)) for row in run.rows if row.problem)
    return replace(run, rows=tuple(replace(row, problem=problem) for row, problem in scaled))


def over_budget() -> Run:
    """Three cells of padded lack time, each another one."""
    rows = (
        replace(row, status="skipped", reason="would take about", samples={}, needs_s=row.problem.m / 100)
        if row.variant == "padded" and row.problem and row.problem.m > 500
        else row
        for row in fake.fake_troubled().rows
    )
    return replace(fake.fake_troubled(), rows=tuple(rows))


def one_problem(*more: Row) -> Run:
    problem = Problem(256, 256, 256)
    rates_of = {"tiled": 30.0, "naive": 3.0, "register": 60.0, "prefetch": 61.0}
    names = rates_of.keys() - {row.variant for row in more}
    rows = (fake.gemm_row(name, problem, rate) for name, rate in rates_of.items() if name in names)
    return of(*rows, *more, command="gemm", view="gemm")


def wrong_row() -> Row:
    row = fake.gemm_row("naive", Problem(256, 256, 256), 3.0)
    return replace(row, status="wrong", reason="it adds 1", check=replace(row.check, verdict="wrong"))


def with_edges(*edges: int, sizes: Sequence[int] = (64, 128)) -> Run:
    """tiled with parameters, at some sizes."""
    given: list[tuple[int, Parameters]] = [(n, {"TS": edge, "PAD": 1}) for edge in edges for n in sizes]
    return of(*(fake.gemm_row("tiled", Problem(n, n, n), 2.0, parameters=each) for n, each in given))


def some_energy(run: Run, place: int, energy: Energy) -> Run:
    rows = [replace(row, energy=energy) if at == place else row for at, row in enumerate(run.rows)]
    return replace(run, rows=tuple(rows))


SUSPECT = Check("suspect", {}, ("folded",))
MEMORY = fake_memory.fake_memory()


def rules() -> dict[str, RenderableType]:
    """What to look for, and the table."""
    square, troubled = fake.fake_square(), fake.fake_troubled()
    ladder = with_header(square, command=("square", "--kernel", "best,ladder"))
    peaks = with_energy(fake.fake_peak())
    small = Problem(64, 64, 64)
    bad = {
        status: of(*(fake.bad(name, small, status, f"{status} of {name}") for name in fake.ORDER))
        for status in ("failed", "wrong")
    }
    board = Energy(0.5, "", "board", "NVML")
    some_board = (replace(row, energy=board) if row.dtype == "float" else row for row in peaks.rows)
    widths = [fake.peak_row(width, 100.0) for width in (1, 2, 4, 8, 16)]
    failed = [
        replace(row, status="failed", reason=f"reason {n}", samples={}) for n, row in enumerate(widths[:4])
    ]
    versus_tiled = in_turn_with_tiled(square)
    at_2048 = only(versus_tiled, lambda row: row.problem == SQUARE_2048)
    scipy = changed(fake.fake_gemm(), "numpy", choice={"blas": "scipy (OpenBLAS 0.3.30, 4 threads)"})
    aged = replace(fake.peak_row(1, 100.0), measured_utc="2026-11-21T01:30:00+00:00")
    unchecked = changed(only(MEMORY, lambda row: row.variant == "global-read"), check=Check())
    return {
        "the fastest first, one star in each column": sweep(square, "m", "device", fake.ORDER),
        "the ladder in its order where it was asked for": sweep(ladder, "m", "device", fake.ORDER),
        "rates with transfers are lower": sweep(square, "m", "host"),
        "one type": sweep(fake.fake_many(), "m", dtype="half"),
        "~ where other programs slowed a row, and who": show(slowed_run()),
        "~ where a row lacks quiet batches, and the share of quiet time": show(quiet_run()),
        "alpha and beta are named unless they are 1 and 0": show(scaled_run()),
        "a kernel asked for by name says why it cannot run": show(with_header(troubled, named=("dot-v8",))),
        "more kernels": show(with_header(square, more_kernels=11)),
        "where no kernel runs, all say why": show(only(troubled, lambda row: row.variant == "dot-v8")),
        "cells over budget are counted once": show(over_budget()),
        "energy that nobody measured is one line": show(with_energy(square)),
        "joules of a peak, or why not": peak(replace(peaks, rows=tuple(some_board))),
        "kernels with one reason for no joules": detail(
            some_energy(with_energy(fake.fake_sweep_k()), 10, fake.energy(fake.peak_row(1, 1.0), None))
        ),
        "a kernel beats numpy at every size": show(one_pair(1000.0)),
        "from a size on": show(one_pair(200.0)),
        "at none": show(one_pair(1.0)),
        "at every size that both ran": show(replace(one_pair(1000.0), rows=one_pair(1000.0).rows[:-1])),
        "no break-even without numpy": show(only(square, lambda row: row.variant != "numpy")),
        "nor for numpy alone": show(only(square, lambda row: row.variant == "numpy")),
        "no conclusion without a rate": show(changed(square, status="skipped", reason="x", samples={})),
        "one problem: the fastest first": show(one_problem()),
        "and a page for each row if asked for": show(one_problem(), verbose=True),
        "a wrong row has its reason": show(one_problem(wrong_row())),
        "a row without flops has a dash": show(
            of(
                fake.gemm_row("tiled", Problem(64, 64, 64), 1.0, spread=0.0),
                replace(fake.gemm_row("tiled", Problem(0, 0, 1), 1.0), samples={}),
            )
        ),
        "parameters that differ are in the name, the others not": show(with_edges(8, 16)),
        "a kernel that was measured again keeps its name": show(with_edges(8, sizes=(64, 64, 128))),
        "integers are GIOPS, and a suspect never wins": peak(fake.fake_peak(), verbose=True),
        "a peak without a verified figure": peak(of(fake.peak_row(1, 100.0, check=SUSPECT), command="peak")),
        "not measured, failed and not verified differ": peak(
            of(
                widths[0],
                fake.peak_row(2, 300.0, check=SUSPECT),
                replace(widths[2], status="skipped", samples={}),
                replace(widths[3], status="failed", samples={}),
                command="peak",
            )
        ),
        "no more than three remarks": peak(of(*failed, widths[4], command="peak")),
        "unless asked for": peak(of(*failed, widths[4], command="peak"), verbose=True),
        "remarks of rows and what won if asked for": peak(
            of(replace(widths[0], notes=("the wall clock was used",)), command="peak"), verbose=True
        ),
        "a type that a CPU converts to float is emulated": peak(
            of(*(fake.peak_row(1, g, dtype=d) for d, g in (("float", 200.0), ("half", 20.0))), command="peak")
        ),
        "an empty run": show(of()),
        "three names for each kind of trouble": Group(*(sweep(each, "m") for each in bad.values())),
        "many reasons are counted": detail(
            of(*(fake.bad("naive", Problem(n, n, n), "skipped", f"would take {n} s") for n in range(1, 31)))
        ),
        "ratios to another kernel": sweep(versus_tiled, "m", order=fake.ORDER),
        "of one problem": show(with_header(at_2048, view="gemm")),
        "of shapes": workloads(versus_tiled, "kernel", fake.ORDER),
        "scipy is short": show(scipy, fake.ORDER),
        "and its BLAS in the details": show(scipy, fake.ORDER, True),
        "local memory of a CPU is emulated": peak(fake_memory.fake_cpu()),
        "the theoretical peak and what it is derived from": peak(fake_memory.fake_matrix(), verbose=True),
        "how old a cached row is": peak(of(aged), verbose=True),
        "a bandwidth that is not verified is not shown": peak(unchecked),
    }


def test_rules(golden: Golden) -> None:
    golden("tables.txt", "\n\n".join(f"--- {title}\n\n{text(each, 120)}" for title, each in rules().items()))


def test_exports_have_the_ratio_and_null_where_there_is_none() -> None:
    rows = json.loads(format_json(in_turn_with_tiled(fake.fake_square())))
    (register,) = [row for row in rows if row["variant"] == "register" and row["m"] == 2048]
    assert register["versus"] == "tiled"
    assert register["versus_low"] <= register["versus_ratio"] <= register["versus_high"]
    assert register["versus_scope"] == "kernel"
    (tiled,) = [row for row in rows if row["variant"] == "tiled" and row["m"] == 2048]
    assert {tiled[name] for name in tiled if name.startswith("versus")} == {None}
    assert "versus,versus_ratio,versus_low,versus_high,versus_scope" in to_csv(fake.fake_square())


NAMELESS = ["", " ", "\t\x01\n", "\u202e\ufeff", "\ud800", "a | b"]


@pytest.mark.parametrize("name", NAMELESS, ids=map(ascii, NAMELESS))
@pytest.mark.parametrize("field", ["name", "platform", "driver", "cpu"])
def test_a_device_may_have_any_name_or_none(field: str, name: str) -> None:
    run = only(fake.fake_square(), lambda row: row.kind != "gemm" or row.variant in ("naive", "register"))
    device, host = run.header.devices[0], run.header.host
    if field == "cpu":
        host = replace(host, cpu=name)
    else:
        device = replace(device, **cast(Any, {field: name}))
    run = replace(run, header=replace(run.header, devices=(device,), host=host))
    pages = [text(show(run, fake.ORDER, verbose)) for verbose in (False, True)]
    pages += [
        format_markdown(run, fake.ORDER),
        text(devices_table([device], host)),
        report_html([run], Wanted(charts=())),
    ]
    assert all(pages)
    assert ", ," not in pages[0]
    assert "  ," not in pages[3]
    if field == "name" and not clean(name):
        stand_in = "Intel(R) Corporation"
        assert pages[0].startswith(f"{stand_in}, Intel OpenCL 2026.22, 2 compute units, ")
        assert f"0  {stand_in}, cpu" in pages[3]
        assert to_csv(run).count(stand_in) == sum(row.device >= 0 for row in run.rows)
        assert replace(device, vendor=name).label == "unnamed device"


def test_two_equal_cards_have_their_numbers() -> None:
    cards = tuple(replace(fake.GPU, index=index) for index in (0, 1))
    one, two = (Run(fake.header(("peak",), devices), ()) for devices in (cards[:1], cards))
    assert heading(two, 1) == (f"{heading(one, 0)[0]} (1)", *heading(one, 0)[1:])
