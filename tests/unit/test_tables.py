from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, cast

import pytest
from rich.cells import cell_len
from rich.console import Console, Group, RenderableType

from gemmbench.cli.kernels import devices_table
from gemmbench.exports.records import to_csv, to_json
from gemmbench.gemm import shape_tables, sweep_table
from gemmbench.model import units
from gemmbench.model.case import Policy
from gemmbench.model.device import Conditions
from gemmbench.model.row import Check, Energy, Parameters, Partner, Problem, Row, Scope, Work
from gemmbench.model.run_file import Run
from gemmbench.model.units import clean, clean_lines
from gemmbench.pages import Wanted, report_html
from gemmbench.probes import peak_table
from gemmbench.report.table import Cell, Entry, Sheet, _split_columns, catalogue, entry_page, stack
from gemmbench.stats import rates
from gemmbench.stats.rates import versus
from gemmbench.views import show, to_markdown
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
    return stack(sweep_table.sheets(shown, axis, scope, order))


def detail(run: Run, order: Sequence[str] = ()) -> RenderableType:
    return stack(sweep_table.row_sheets(run, order))


def workloads(run: Run, scope: str = "kernel", order: Sequence[str] = ()) -> RenderableType:
    return stack(shape_tables.workloads_sheets(run, scope, order))


def peak(run: Run, verbose: bool = False) -> RenderableType:
    return stack([*peak_table.sheets(run, verbose), *peak_table.memory_sheets(run, verbose)])


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
    golden(f"run-{name}.md", to_markdown(MARKDOWN[name](), fake.ORDER))


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


def test_best_of_each_column_is_starred_once() -> None:
    table = text(sweep(fake.fake_square(), "m", "device"), 120)
    grid = [cells(table, variant)[:6] for variant in fake.ORDER]
    grid[-1] = cells(table, "numpy")[1:7]  # numpy (host)
    assert [sum(cell.startswith("*") for cell in column) for column in zip(*grid, strict=True)] == [1] * 6
    assert grid[-1][:4] == ["*60.1", "*141", "*188", "*207"]
    assert cells(table, "register")[4:6] == ["*239", "*258"]


def test_the_fastest_comes_first_and_the_ladder_in_its_order_where_it_was_asked_for() -> None:
    run, order = fake.fake_square(), ("tiled", "naive", "register", "padded", "dot-v8")
    ladder = [*order, "block2x2-v4", "numpy"]
    for options, names in (
        ((), ["register", "numpy", "padded", "block2x2-v4", "dot-v8", "tiled", "naive"]),
        (("--kernel", "best,ladder"), ladder),
        (("--kernel=all",), ladder),
    ):
        asked = replace(run, header=replace(run.header, command=("square", *options)), rows=run.rows[::-1])
        table = text(sweep(asked, "m", "device", order), 120)
        found = [line.split()[0] for line in table.splitlines() if line.split()]
        assert [name for name in found if name in fake.ORDER] == names


def test_scopes_differ_and_host_scope_is_lower() -> None:
    kernel, host = (
        float(cells(text(sweep(fake.fake_square(), "m", scope), 120), "padded")[0])
        for scope in ("kernel", "host")
    )
    assert host < 0.95 * kernel


def test_scope_all_is_the_detail() -> None:
    run = fake.fake_square()
    every = replace(run, header=replace(run.header, scope="all"))
    assert text(show(every, fake.ORDER)).startswith(text(detail(run, fake.ORDER)).rstrip())


def test_dtype_picks_its_tables() -> None:
    run = fake.fake_many()
    assert text(sweep(run, "m")).count("m = n = k, GFLOPS in the kernel alone") == 4  # two devices, two types
    half = text(sweep(run, "m", dtype="half"))
    assert half.count("half GEMM, m = n = k") == 2
    assert "float GEMM" not in half


def test_each_status_is_a_word_and_has_its_reason() -> None:
    table = text(sweep(fake.fake_troubled(), "m", order=fake.ORDER), 120)
    for word in ("skipped", "wrong", "crashed", "failed", "timed out"):
        assert f"\n{word}: " in table
    assert cells(table, "tiled")[2] == "wrong"
    assert "dot-v8" not in table, "it cannot run, and nobody named it"

    assert "warning: PoCL compiles for plain" in table


def test_a_row_that_other_programs_slowed_is_marked_and_the_mark_explained() -> None:
    run = fake.fake_square()
    slowed = Conditions(control_s=(0.005, 0.006))
    rows = [replace(row, conditions=slowed if row.variant == "tiled" else None) for row in run.rows]
    table = text(sweep(replace(run, rows=tuple(rows)), "m", order=fake.ORDER), 120)
    assert all(figure.startswith("~") for figure in cells(table, "tiled")[:6])
    shown = " ".join(text(show(replace(run, rows=tuple(rows)))).split())
    assert "~: uncertain by more than 5 %; widest: tiled at 64, 3.68 to 4.64 GFLOPS." in shown
    assert "Other programs slowed 6 rows: close those programs." in shown
    assert "spread" not in shown
    assert "~" not in text(show(run))


def test_the_share_of_quiet_time_is_shown_and_a_row_that_lacks_it_is_marked() -> None:
    def disturbed(row: Row, share: float) -> Row:
        samples = {
            name: replace(scope, bursts_s=(1.0,) * (calm := 2 * round(share * len(scope.seconds)))
            + (1.3,) * (2 * len(scope.seconds) - calm), quiet_s=(0.94, 1.06))
            for name, scope in row.samples.items()
        }  # fmt: skip
        return replace(row, samples=samples)

    run = fake.fake_square()
    rows = [disturbed(row, 0.02 if row.variant == "tiled" else 0.8) for row in run.rows]
    run = replace(run, rows=tuple(rows))
    table = text(sweep(run, "m", order=fake.ORDER), 120)
    assert all(figure.startswith("~") for figure in cells(table, "tiled")[:6])
    shown = " ".join(text(show(run)).split())
    assert re.search(r"quiet for \d\d\.\d % of the time: only what was measured then counts\.", shown)
    assert "close those programs, or raise --patience." in shown


@pytest.mark.parametrize(
    ("run", "shape"), [(fake.fake_square(), "m = n = k"), (fake.fake_sweep_k(), "m = n = 1024")]
)
def test_a_sweep_names_alpha_and_beta_unless_they_are_1_and_0(run: Run, shape: str) -> None:
    assert "alpha" not in text(show(run))
    rows = [replace(row, problem=replace(row.problem, beta=1.0)) for row in run.rows if row.problem]
    assert f"{shape}, alpha = 1, beta = 1" in text(show(replace(run, rows=tuple(rows))))


def test_a_row_of_two_samples_is_marked() -> None:
    run = fake.fake_square()
    short = replace(run.rows[0], samples={"kernel": Scope((1e-3, 1e-3), 1, "budget")})
    assert rates.is_uncertain(run, short)


def test_a_kernel_that_was_asked_for_by_name_says_why_it_cannot_run() -> None:
    run = fake.fake_troubled()
    run = replace(run, header=replace(run.header, named=("dot-v8",)))
    table = text(sweep(run, "m", order=fake.ORDER), 120)
    assert cells(table, "dot-v8")[:2] == ["-", "-"]
    assert "not supported: dot-v8 at every size: needs cl_khr_something" in table


def test_a_run_of_the_default_kernels_says_how_many_more_there_are() -> None:
    run = fake.fake_square()
    assert "--kernel all" not in text(show(run), 120)
    run = replace(run, header=replace(run.header, more_kernels=11))
    assert "\n11 more kernels: --kernel all." in text(show(run), 120)


def test_where_no_kernel_runs_all_say_why() -> None:
    run = fake.fake_troubled()
    run = replace(run, rows=tuple(row for row in run.rows if row.variant == "dot-v8"))
    assert "not supported: dot-v8 at every size: needs cl_khr_something" in text(sweep(run, "m"), 120)


def test_what_several_rows_lack_in_time_is_said_once() -> None:
    run = fake.fake_troubled()
    rows = [
        replace(row, status="skipped", reason="would take about", samples={}, needs_s=row.problem.m / 100)
        if row.variant == "padded" and row.problem and row.problem.m > 500
        else row
        for row in run.rows
    ]
    table = text(sweep(replace(run, rows=tuple(rows)), "m", order=fake.ORDER), 200)
    assert "3 cells over budget: --budget 21 runs them, about 63 s more." in table


def test_names_of_others_are_no_markup() -> None:
    table = text(show(fake.fake_troubled()), 120)
    assert '[bold]x[/] | <b>&"$x^2$`' in table
    assert "[/nope] `x` | unknown" in table
    assert "\x1b" not in table


def with_energy(run: Run) -> Run:
    """The same, had energy been asked for: a GPU has its joules, a processor's counter is for root only."""
    rows = tuple(
        replace(row, energy=fake.energy(row, run.device(row))) if row.samples else row for row in run.rows
    )
    return replace(run, rows=rows, header=replace(run.header, policy=Policy(energy=True)))


def test_efficiency_has_no_star_because_it_has_no_interval() -> None:
    table = text(sweep(with_energy(fake.fake_sweep_k()), "k"), 120)
    assert "*" not in table[table.index("float GFLOP/J") :]
    assert "*" in table[: table.index("float GFLOP/J")]


def test_energy_that_nobody_measured_is_a_line_below_the_one_table() -> None:
    table = text(sweep(with_energy(fake.fake_square()), "m"), 120)
    assert "GFLOP/J" not in table
    assert table.count("energy: not measured: /sys/class/powercap/intel-rapl:0/energy_uj is for root") == 1


def test_a_peak_has_its_joules_or_says_why_not() -> None:
    run = with_energy(
        replace(fake.fake_peak(), rows=tuple(r for r in fake.fake_peak().rows if r.device == 0))
    )
    lines = text(peak(run), 120)
    assert "GFLOP/J" not in lines
    assert " ".join(lines.split()).count("energy: not measured: /sys/class/powercap/intel-rapl:0") == 1
    board = Energy(0.5, "", "board", "NVML")
    rows = tuple(replace(row, energy=board) if row.dtype == "float" else row for row in run.rows)
    lines = text(peak(replace(run, rows=rows)), 120)
    assert "GFLOP/J" in lines
    assert re.search(r"^energy: double.*: not measured", lines, re.MULTILINE)
    row = next(row for row in rows if row.energy is board)
    assert units.number(rates.gflop_per_joule(row) or 0.0) in lines


def test_energy_that_nobody_asked_for_is_not_spoken_of() -> None:
    for run in (fake.fake_square(), fake.fake_gemm()):
        assert "energy" not in text(show(run), 120)


def test_kernels_of_one_reason_for_no_joules_are_in_one_line() -> None:
    run = with_energy(fake.fake_sweep_k())
    rows = list(run.rows)
    place = next(n for n, row in enumerate(rows) if row.variant == "tiled")
    rows[place] = replace(rows[place], energy=fake.energy(rows[place], None))
    table = text(detail(replace(run, rows=tuple(rows)), fake.ORDER), 200)
    assert "energy: naive, tiled, register: board" in table
    assert "energy: tiled, numpy: not measured" in table


def one_pair(device_gflops: float, sizes: tuple[int, ...] = (128, 512, 2048)) -> Run:
    rows = []
    for size in sizes:
        problem = Problem(size, size, size)
        rows.append(fake.gemm_row("register", problem, device_gflops * size / 512))
        rows.append(fake.gemm_row("numpy", problem, 100.0, -1))
    return Run(fake.header(("square",)), tuple(rows))


@pytest.mark.parametrize(
    ("gflops", "sentence"),
    [
        (1000.0, "With transfers, register beats numpy at every m."),
        (200.0, "With transfers, register beats numpy from m = "),
        (1.0, "With transfers, no kernel beats numpy at 2048: register reaches 3.7 %."),
    ],
)
def test_break_even_in_words(gflops: float, sentence: str) -> None:
    assert sentence in text(sweep(one_pair(gflops), "m"), 120)


def test_break_even_is_said_of_the_sizes_that_both_ran() -> None:
    run = one_pair(1000.0)
    table = text(sweep(replace(run, rows=run.rows[:-1]), "m"), 120)  # without numpy at 2048
    assert "With transfers, register beats numpy at every m that both ran." in table


def test_shares_of_peak_are_of_the_scope_in_which_rows_are_compared() -> None:
    """Beside a library, which has no kernel scope, that is the device scope: 100 instead of 200 GFLOPS."""
    own = fake.gemm_row("tiled", Problem(512, 512, 512), 200.0)
    kernel = own.samples["kernel"]
    twice = replace(kernel, seconds=tuple(2 * second for second in kernel.seconds))
    own = replace(own, samples={**own.samples, "device": twice})
    library = fake.gemm_row("clblast", Problem(512, 512, 512), 150.0)
    library = replace(library, samples={"device": library.samples["device"]})
    run = Run(fake.header(("square",)), (fake.peak_row(1, 400.0), own, library))
    assert "25.0 %" in " ".join(cells(text(detail(run), 120), "tiled"))
    assert rates.derived(run, own)["peak_fraction"] == pytest.approx(0.25, rel=0.01)


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


def test_one_problem_is_a_table_the_fastest_first_and_pages_if_asked_for() -> None:
    problem = Problem(256, 256, 256)
    rates_of = {"tiled": 30.0, "naive": 3.0, "register": 60.0, "prefetch": 61.0}
    rows = [fake.gemm_row(name, problem, rate) for name, rate in rates_of.items()]
    run = Run(replace(fake.header(("gemm",)), view="gemm"), tuple(rows))
    short, long = text(show(run)), text(show(run, verbose=True))
    for page in (short, long):
        assert re.findall(
            r"^(\w+) +[*]?[\d.]+ \[[\d., ]+\] +[*]?[\d.]+ \[[\d., ]+\]$", page, re.MULTILINE
        ) == ["prefetch", "register", "tiled", "naive"]
        assert "Fastest measured in the kernel alone: prefetch, 60.9 GFLOPS, 1.02 x register." in page
    pages = [re.findall(r"^(\w+) float 256: [\d.]+ GFLOPS", each, re.MULTILINE) for each in (short, long)]
    assert pages == [[], list(rates_of)]
    assert len(short.splitlines()) < 12
    check = replace(rows[1].check, verdict="wrong")
    wrong = replace(rows[1], status="wrong", reason="it adds 1", check=check)
    assert "wrong: naive at 256: it adds 1" in text(show(replace(run, rows=(*rows[2:], wrong))))


def test_no_break_even_without_the_baseline() -> None:
    run = fake.fake_square()
    alone = replace(run, rows=tuple(row for row in run.rows if row.variant != "numpy"))
    assert "With transfers" not in text(sweep(alone, "m"), 120)


def test_host_alone_is_a_table_without_break_even() -> None:
    run = fake.fake_square()
    host = replace(run, rows=tuple(row for row in run.rows if row.variant == "numpy"))
    table = text(sweep(host, "m"), 120)
    assert "host, OpenBLAS" in table
    assert "With transfers" not in table


def test_nothing_measured_gives_no_conclusion() -> None:
    run = fake.fake_square()
    rows = tuple(replace(row, status="skipped", reason="x", samples={}) for row in run.rows)
    table = text(sweep(replace(run, rows=rows), "m"), 120)
    assert "With transfers" not in table
    assert "*" not in table


def test_a_row_without_flops_has_a_dash() -> None:
    row = fake.gemm_row("tiled", Problem(64, 64, 64), 1.0, spread=0.0)
    empty = replace(row, problem=Problem(0, 0, 0), samples={})
    table = text(sweep(Run(fake.header(("square",)), (row, empty)), "m"), 120)
    assert cells(table, "tiled")[:2] == ["-", "1.00"]


def test_parameters_tell_series_of_one_variant_apart() -> None:
    rows = [
        fake.gemm_row("tiled", Problem(n, n, n), rate, parameters={"TS": edge})
        for n in (64, 128)
        for edge, rate in ((8, 2.0), (16, 3.0))
    ]
    table = text(sweep(Run(fake.header(("square",)), tuple(rows)), "m"), 120)
    assert "tiled TS=8  " in table
    assert "tiled TS=16 " in table


def test_a_kernel_that_was_measured_again_keeps_its_name() -> None:
    def rows(edge: int) -> tuple[Row, ...]:
        given: Parameters = {"TS": edge, "PAD": 1}
        return tuple(fake.gemm_row("tiled", Problem(n, n, n), 2.0, parameters=given) for n in (64, 64, 128))

    table = text(sweep(Run(fake.header(("square",)), rows(8)), "m"), 120)
    assert [each.strip("*") for each in cells(table, "tiled")] == ["2.00", "2.00"]
    both = text(sweep(Run(fake.header(("square",)), (*rows(8), *rows(16))), "m"), 120)
    assert "tiled TS=8 " in both, "only what differs"
    assert "PAD" not in both


def test_integers_are_giops_and_suspects_never_win() -> None:
    table = text(peak(fake.fake_peak()), 120)
    assert "int (GIOPS)" in table
    assert cells(table, "double") == ["176", "?", "141", "168", "167", "176"]
    assert (
        "?: not verified, so it does not count: double, width 2: close other programs and run again; -v has"
        in table
    )
    assert "13 of 15 verified. Not supported: half. Memory, transfers, latency: --all. Details: -v" in table
    details = text(peak(fake.fake_peak(), verbose=True), 120)
    assert "?: not verified, so it does not count: double, width 2: 4.1 times the rate of float" in details
    assert "not supported: half, width 1, 2, 4, 8, 16: the device lacks cl_khr_fp16 (half)" in details


def test_a_peak_without_a_verified_figure_shows_none() -> None:
    suspect = Check("suspect", {}, ("folded",))
    run = Run(fake.header(("peak",)), (fake.peak_row(1, 100.0, check=suspect),))
    assert cells(text(peak(run), 120), "float") == ["?", "-"]
    assert "?: not verified, so it does not count: float, width 1: folded" in text(
        peak(run, verbose=True), 120
    )


def test_what_was_not_measured_failed_or_is_not_verified_differs() -> None:
    suspect = Check("suspect", {}, ("folded",))
    rows = (
        fake.peak_row(1, 100.0),
        fake.peak_row(2, 300.0, check=suspect),
        replace(fake.peak_row(4, 100.0), status="skipped", samples={}),
        replace(fake.peak_row(8, 100.0), status="failed", samples={}),
    )
    table = text(peak(Run(fake.header(("peak",)), rows)), 120)
    assert cells(table, "float") == ["100", "?", "-", "failed", "100"]
    assert "?: not verified, so it does not count: float, width 2: " in table


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


def test_remarks_of_rows_and_what_won_are_shown_when_asked_for() -> None:
    row = replace(fake.peak_row(1, 100.0), notes=("the wall clock was used",))
    run = Run(fake.header(("peak",)), (row,))
    assert "wall clock" not in text(peak(run))
    details = text(peak(run, verbose=True), 120)
    assert "note: float, width 1: the wall clock was used" in details
    assert re.search(r"^float, width 1 +100 .* fma\(a,b,c\) +8 +16 +2.00 ", details, re.MULTILINE)


def test_no_more_than_three_remarks_unless_asked_for() -> None:
    failed = [
        replace(fake.peak_row(width, 100.0), status="failed", reason=f"reason {width}", samples={})
        for width in (1, 2, 4, 8)
    ]
    run = Run(fake.header(("peak",)), (*failed, fake.peak_row(16, 100.0)))
    lines = text(peak(run), 120).splitlines()
    assert [line for line in lines if "reason" in line or "more" in line][-1] == "2 more remarks: -v"
    assert sum("failed: " in line for line in lines) == 2
    assert text(peak(run, verbose=True), 120).count("failed: ") == 4


def test_a_type_that_a_cpu_converts_to_float_is_called_emulated() -> None:
    figures = {"float": 200.0, "half": 20.0, "double": 99.0}
    rows = tuple(fake.peak_row(1, gflops, dtype=dtype) for dtype, gflops in figures.items())
    table = text(peak(Run(fake.header(("peak",)), rows)), 120)
    assert cells(table, "half") == ["20.0", "20.0", "emulated"]
    assert table.count("emulated") == 1


def test_bandwidth_and_latency_have_their_units() -> None:
    rows = (
        Row(
            "bandwidth",
            0,
            "copy",
            "float",
            {},
            "ok",
            work=Work(bytes=10**9),
            samples={"kernel": fake.scope(0.1)},
        ),
        Row("latency", 0, "launch", "float", {}, "ok", work=Work(), samples={"host": fake.scope(7e-6)}),
    )
    table = text(peak(Run(fake.header(("peak", "--all")), rows)))
    assert "Memory, GB/s" in table
    assert cells(table, "copy") == ["?", "-"]
    assert "7.01 us" in table


def test_an_empty_run_says_so() -> None:
    assert (
        text(show(Run(fake.header(("square",)), ()))) == "No rows: the run ended before its first result.\n"
    )


def test_verbose_show_has_the_detail() -> None:
    run = fake.fake_square()
    assert text(detail(run, fake.ORDER)).rstrip() in text(show(run, fake.ORDER, verbose=True))


def test_kinds_of_trouble_have_a_line_each_with_at_most_three_names() -> None:
    rows = [
        fake.bad(name, Problem(64, 64, 64), status, f"{status} of {name}")
        for status in ("failed", "wrong")
        for name in ("naive", "tiled", "register", "padded", "dot-v8")
    ]
    wrong, failed = (Run(fake.header(("square",)), tuple(part)) for part in (rows[5:], rows[:5]))
    lines = [line for run in (wrong, failed) for line in text(sweep(run, "m"), 120).splitlines()]
    assert "wrong: naive, tiled, register at 64; 2 more: -v has the reasons" in lines
    assert "failed: naive, tiled, register at 64; 2 more: -v has the reasons" in lines


def test_many_reasons_are_counted_not_scrolled() -> None:
    rows = [fake.bad("naive", Problem(n, n, n), "skipped", f"would take {n} s") for n in range(1, 31)]
    table = text(detail(Run(fake.header(("square",)), tuple(rows))), 120)
    assert table.count("skipped: ") == 7
    assert "... and 23 more reasons" in table


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


def test_an_interleaved_sweep_has_the_ratio_at_every_size() -> None:
    run = in_turn_with_tiled(fake.fake_square())
    table = text(sweep(run, "m", order=fake.ORDER), 160)
    register = next(row for row in run.rows if row.variant == "register" and row.problem == SQUARE_2048)
    ratio = versus(register)
    assert ratio is not None
    lines = [line for line in table.splitlines() if line.startswith("register ")]
    assert [line.rstrip().endswith(f" {ratio.median:.1f}") for line in lines] == [False, True]
    assert "Times the rate of tiled, in the kernel alone, batches interleaved" in table
    assert sum(line.startswith("tiled ") for line in table.splitlines()) == 1
    assert "Times the rate" not in text(sweep(fake.fake_square(), "m"))


def test_every_table_of_gemms_has_the_ratio() -> None:
    run = in_turn_with_tiled(fake.fake_square())
    assert text(detail(run, fake.ORDER), 160).count("x tiled") == 1
    one = replace(run, rows=tuple(row for row in run.rows if row.problem == SQUARE_2048))
    one = replace(one, header=replace(one.header, view="gemm"))
    for table in (show(one), stack(shape_tables.workloads_sheets(run, "kernel", fake.ORDER))):
        assert "x tiled" in text(table, 160)
    ratios = text(stack(shape_tables.workloads_sheets(run, "kernel", fake.ORDER)), 160).splitlines()
    place = next(at for at, line in enumerate(ratios) if line.startswith("Times the rate of tiled"))
    assert {"naive", "register", "padded", "dot-v8", "block2x2-v4"} < {*ratios[place + 2].split()}


def test_exports_have_the_ratio_and_null_where_there_is_none() -> None:
    rows = json.loads(to_json(in_turn_with_tiled(fake.fake_square())))
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
    run = fake.fake_square()
    device, host = run.header.devices[0], run.header.host
    if field == "cpu":
        host = replace(host, cpu=name)
    else:
        device = replace(device, **cast(Any, {field: name}))
    run = replace(run, header=replace(run.header, devices=(device,), host=host))
    pages = [text(show(run, fake.ORDER, verbose)) for verbose in (False, True)]
    pages += [
        to_markdown(run, fake.ORDER),
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


def test_scipy_is_short_in_tables_and_its_blas_in_the_details() -> None:
    """``scipy (OpenBLAS 0.3.30, 2 threads)`` wrapped the table, and was repeated four times below it."""
    run, blas = fake.fake_gemm(), "OpenBLAS 0.3.30, 4 threads"
    rows = (
        replace(row, choice={"blas": f"scipy ({blas})"}) if row.variant == "numpy" else row
        for row in run.rows
    )
    run = replace(run, rows=tuple(rows))
    brief, whole = (text(show(run, fake.ORDER, verbose)) for verbose in (False, True))
    assert "scipy (host)" in brief
    assert blas not in brief
    assert blas in " ".join(whole.split())
