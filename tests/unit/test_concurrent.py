"""Several devices at once: the ratios, the groups of a plan, tables and charts from rows that never ran."""

from __future__ import annotations

import io
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import matplotlib
import pytest
from rich.console import Console

from gemmbench import chart_views
from gemmbench.exports.records import to_csv, to_json
from gemmbench.ladder import BY_NAME
from gemmbench.model.case import Case
from gemmbench.model.device import DeviceFacts
from gemmbench.model.problem import Gemm
from gemmbench.model.row import Check, Problem, Row, Work
from gemmbench.model.run_file import Run, RunFile, RunFileError, encode, load
from gemmbench.probes.memory import memory_plan
from gemmbench.regress.compare import compare
from gemmbench.report.table import markdown
from gemmbench.stats import panels
from gemmbench.suite import together
from gemmbench.suite import together as tables
from gemmbench.suite.plan import gemm_plan, peak_plan
from gemmbench.suite.together import grouped
from gemmbench.views import show
from tests import fake_runs
from tests.fake_runs import CPU, GPU, POCL, gemm_row, header, scope

H200 = replace(GPU, pci="0000:17:00.0")
OTHER = replace(GPU, pci="0000:65:00.0")
SIZE = 512

Rates = tuple[float, ...]  # of each device: GFLOPS, or GB/s


def beside(row: Row, *places: int) -> Row:
    return replace(row, beside=tuple(places))


def gemms(alone: Rates, at_once: Rates, size: int = SIZE, name: str = "tiled") -> list[Row]:
    problem = Problem(size, size, size)
    rows = [gemm_row(name, problem, rate, device) for device, rate in enumerate(alone)]
    for device, rate in enumerate(at_once):
        others = [place for place in range(len(at_once)) if place != device]
        rows.append(beside(gemm_row(name, problem, rate, device, transfer=0.5), *others))
    return rows


def transfers(way: str, nbytes: int, alone: Rates, at_once: Rates) -> list[Row]:
    def row(device: int, gbps: float) -> Row:
        samples = {"host": scope(nbytes / gbps / 1e9)}
        return Row(
            "transfer", device, way, "float", {"bytes": nbytes}, "ok",
            work=Work(bytes=nbytes), samples=samples, check=Check("ok"),
        )  # fmt: skip

    rows = [row(device, gbps) for device, gbps in enumerate(alone)]
    return rows + [beside(row(device, gbps), 1 - device) for device, gbps in enumerate(at_once)]


def run_of(rows: list[Row], devices: tuple[DeviceFacts, ...] = (H200, OTHER), command: str = "square") -> Run:
    words = ("gemmbench", command, "--device", "all", "--concurrent")
    return Run(header(words, devices), tuple(rows), "both.jsonl")


def test_slowdown_and_sums() -> None:
    (joint,) = together.joints_of(run_of(gemms((100.0, 50.0), (80.0, 25.0))))
    assert joint.devices == (0, 1)
    slowdowns = [part.slowdown("kernel") for part in joint.parts]
    for found, expected in zip(slowdowns, (1.25, 2.0), strict=True):
        assert found is not None
        assert found.median == pytest.approx(expected, rel=0.01)
        assert found.low < found.median < found.high
        assert found.high / found.low < 1.02
    assert joint.aggregate("kernel") == pytest.approx(105e9, rel=0.01)
    assert joint.sum_alone("kernel") == pytest.approx(150e9, rel=0.01)
    total = joint.total("kernel")
    assert total is not None
    assert total.median == pytest.approx(150 / 105, rel=0.01)
    assert total.low < total.median < total.high


def test_a_part_without_a_figure_is_in_no_sum() -> None:
    rows = gemms((100.0, 50.0, 30.0), (80.0, 25.0, 10.0))
    rows[-1] = replace(rows[-1], status="crashed", reason="gone", samples={})
    (joint,) = together.joints_of(run_of(rows, (CPU, POCL, GPU)))
    assert [part.device for part in joint.figured] == [0, 1]
    assert joint.sum_alone("kernel") == pytest.approx(150e9, rel=0.01)
    assert joint.parts[2].slowdown("kernel") is None


def test_one_device_is_no_aggregate() -> None:
    rows = gemms((100.0, 50.0), (80.0, 25.0))
    rows[-1] = replace(rows[-1], status="crashed", reason="gone", samples={})
    (joint,) = together.joints_of(run_of(rows))
    assert joint.aggregate("kernel") is None
    assert joint.total("kernel") is None


def test_what_moves_nothing_has_no_slowdown() -> None:
    rows = [replace(row, work=Work()) for row in transfers("upload-mapped", 1 << 20, (1.0, 1.0), (1.0, 1.0))]
    (joint,) = together.joints_of(run_of(rows))
    assert joint.parts[0].slowdown("kernel") is None
    assert not joint.figured


def test_rows_alone_are_all_that_other_tables_know() -> None:
    rows = gemms((100.0, 50.0), (80.0, 25.0))
    run = run_of(rows)
    assert panels.alone(run).rows == tuple(rows[:2])
    single = run_of(rows[:2])
    assert panels.alone(single) is single


@pytest.mark.parametrize(
    ("devices", "expected"),
    [
        ((CPU, POCL), ((0, 1),)),
        ((CPU, GPU, POCL), ((0, 2),)),
        ((GPU, GPU), ()),  # their drivers do not tell where they sit
        ((H200, OTHER), ()),
        ((H200, replace(H200, platform="another")), ((0, 1),)),
    ],
)
def test_what_shares_its_hardware(devices: tuple[DeviceFacts, ...], expected: object) -> None:
    assert together.shared(devices, range(len(devices))) == expected


# --- the plan -----------------------------------------------------------------------------------------------


def test_gemms_are_grouped_and_peaks_are_not() -> None:
    devices = (CPU, POCL)
    problems = [Gemm(8, 8, 8), Gemm(16, 16, 16)]
    kernels = [BY_NAME["naive"], BY_NAME["numpy"]]
    plan = peak_plan(devices, ["float"], (1,)) + gemm_plan(devices, kernels, problems)
    groups = grouped(plan)
    kinds = {step.kind for group in groups for step in group.steps if isinstance(step, Case)}
    assert kinds == {"gemm", "peak"}
    together = [group for group in groups if group.cases]
    assert [group.cases[0].problem for group in together] == problems
    assert [[case.device for case in group.cases] for group in together] == [[0, 1], [0, 1]]
    assert together[0].label == "naive float 8x8x8 on 0 and 1 at once"
    assert sorted(map(str, plan)) == sorted(str(step) for group in groups for step in group.steps)


def test_what_one_device_alone_can_run_is_in_no_group() -> None:
    plan = gemm_plan((CPU, POCL), [BY_NAME["image-4x8"]], [Gemm(64, 64, 64)])  # PoCL's has no images
    assert [len(group.steps) for group in grouped(plan)] == [2]
    assert not any(group.cases for group in grouped(plan))


def test_an_empty_product_is_in_no_group() -> None:
    plan = gemm_plan((CPU, POCL), [BY_NAME["naive"]], [Gemm(8, 8, 0)])
    assert not any(group.cases for group in grouped(plan))


def test_transfers_and_bandwidth_are_grouped_where_there_are_no_gemms() -> None:
    plan = memory_plan((GPU, GPU), ("memory", "transfer", "latency"))
    kinds = {group.cases[0].kind for group in grouped(plan) if group.cases}
    assert kinds == {"bandwidth", "transfer"}
    sizes = [group.cases for group in grouped(plan) if group.cases and group.cases[0].kind == "transfer"]
    assert all(len({case.parameters["bytes"] for case in cases}) == 1 for cases in sizes)


# --- compared -----------------------------------------------------------------------------------------------


def test_rows_beside_others_pair_by_what_the_others_are() -> None:
    devices = {name: replace(H200, name=name) for name in "ABC"}
    rates = {("A", "B"): 900.0, ("A", "C"): 500.0, ("B", "AC"): 300.0, ("C", ""): 700.0}

    def listed(order: str, faster: float = 1.0) -> Run:
        rows = [
            gemm_row("tiled", Problem(SIZE, SIZE, SIZE), faster * rate).placed(
                order.index(name), map(order.index, others)
            )
            for (name, others), rate in rates.items()
        ]
        return run_of(rows, tuple(devices[name] for name in order))

    found = compare([listed("ABC")], [listed("ACB", 1.001), listed("BCA", 1.002)])
    assert {line.verdict for line in found.lines} == {"same"}
    assert [line.runs for line in found.lines] == [(1, 2)] * len(rates)
    assert [line.key[-1] for line in found.lines] == [(1,), (2,), (0, 2), ()]


# --- the file -----------------------------------------------------------------------------------------------


def test_a_row_is_told_from_the_same_row_alone_by_its_key(tmp_path: Path) -> None:
    run = run_of(gemms((100.0, 50.0), (80.0, 25.0)))
    path = tmp_path / "run.jsonl"
    with RunFile.create(path, run.header) as file:
        for row in run.rows:
            file.append(row)
    read = load(path).rows
    assert read == run.rows
    assert [row.beside for row in read] == [(), (), (1,), (0,)]
    assert len({row.key for row in read}) == 4


@pytest.mark.parametrize(
    "value", ["", "2", "0+2", "+", "x", "1+", "-1", "1.0", "\N{SUPERSCRIPT ONE}", "0", 9.5]
)
def test_a_row_beside_nobody_is_one_sentence(value: str | float, tmp_path: Path) -> None:
    run = run_of(gemms((100.0, 50.0), (80.0, 25.0)))
    bad = replace(run.rows[0], parameters={"beside": value})
    path = tmp_path / "run.jsonl"
    path.write_bytes(encode(replace(run.header, schema_version=1)) + encode(bad))
    with pytest.raises(RunFileError, match=r"line 2: (parameters\.)?beside: .* does not name other devices"):
        load(path)


def test_json_and_csv_have_every_row() -> None:
    run = run_of(gemms((100.0, 50.0), (80.0, 25.0)))
    text = to_json(run)
    assert text.count('"slowdown": ') == 2
    assert text.count('"beside": [0]') == text.count('"beside": [1]') == 1
    assert to_csv(run).count("beside=") == 2


# --- tables and charts --------------------------------------------------------------------------------------


def wide() -> Run:
    rows = [
        row
        for name, share in (("naive", 0.1), ("tiled", 0.4), ("register", 1.0))
        for size in (256, 512, 1024, 2048, 4096)
        for row in gemms((share * size, share * size), (share * size, 0.8 * share * size), size, name)
    ]
    return run_of(rows)


def moved() -> Run:
    rows = []
    for way, share in (("upload-pinned", 1.0), ("download-pinned", 0.9), ("upload-pageable", 0.3)):
        for bits in range(10, 29, 2):
            rate = share * 55 * (1 << bits) / ((1 << bits) + (1 << 18))
            rows += transfers(way, 1 << bits, (rate, rate), (0.8 * rate, 0.7 * rate))
    return run_of(rows, command="peak")


def hostile() -> Run:
    device = replace(CPU, name=fake_runs.HOSTILE)
    rows = gemms((100.0, 50.0), (80.0, 25.0))
    rows[-1] = replace(rows[-1], status="crashed", reason=f"killed {fake_runs.HOSTILE}", samples={})
    return run_of([*rows, *gemms((9.0, 8.0), (4.0, 4.0), 64)], (device, POCL), command="gemm")


RUNS: dict[str, Callable[[], Run]] = {
    "two": lambda: run_of(gemms((100.0, 50.0), (80.0, 25.0))),
    "wide": wide,
    "moved": moved,
    "hostile": hostile,
}


@pytest.mark.parametrize("name", RUNS)
def test_tables(name: str, golden: Callable[[str, str], None]) -> None:
    sheets = tables.sheets(RUNS[name](), "kernel")
    golden(f"concurrent-{name}.md", markdown(sheets))


@pytest.mark.parametrize("name", RUNS)
@pytest.mark.parametrize("width", [40, 80, 120])
def test_tables_keep_to_the_width(name: str, width: int) -> None:
    console = Console(width=width, record=True, file=io.StringIO())
    console.print(show(RUNS[name](), ("naive", "tiled", "register")))
    lines = console.export_text().splitlines()
    assert max(map(len, lines)) <= width
    assert any("devices at once" in line for line in lines)


def test_verbose_shows_each_device_at_each_size() -> None:
    (short,), (long,) = tables.sheets(wide(), "kernel"), tables.sheets(wide(), "kernel", verbose=True)
    assert len(short.rows) == 3
    assert len(long.rows) == 3 * 5 * 3


def test_the_conclusion_is_of_the_scope_and_of_transfers() -> None:
    (sheet,) = tables.sheets(run_of(gemms((100.0, 50.0), (80.0, 25.0))), "kernel")
    (note,) = [note.text for note in sheet.notes if note.label == "At once"]
    assert "105 GFLOPS in the kernel scope with tiled 512, 69.9 % of the 150" in note
    assert "(slowdown 1.25 to 2.00)" in note
    assert "in the host scope" in note
    (host,) = tables.sheets(run_of(gemms((100.0, 50.0), (80.0, 25.0))), "host")
    (note,) = [note.text for note in host.notes if note.label == "At once"]
    assert "kernel" not in note


def test_transfers_conclude_at_the_largest_size() -> None:
    (sheet,) = tables.sheets(moved(), "kernel")
    told = [note.text for note in sheet.notes if note.label == "At once"]
    assert [text.partition(" with ")[2].split(",")[0] for text in told] == [
        "upload-pinned 256 MiB",
        "download-pinned 256 MiB",
    ]


@pytest.mark.parametrize("name", RUNS)
def test_charts(name: str) -> None:
    run = RUNS[name]()
    with matplotlib.rc_context():
        picture = chart_views.figure([run], "concurrent")
        axes = picture.get_axes()
        assert len(axes) == (2 if name == "moved" else 4)
        aggregate, slowdown = axes[:2]
        lines = {line.get_label() for line in aggregate.get_lines()}
        assert any(str(label).endswith(", alone") for label in lines)
        assert slowdown.get_ylabel() == "slowdown"
        points = [line for line in slowdown.get_lines() if " on " in str(line.get_label())]
        assert points


def test_other_charts_leave_rows_at_once_out() -> None:
    runs = [wide(), run_of([row for row in wide().rows if not row.beside])]
    drawn = []
    for run in runs:
        with matplotlib.rc_context():
            axes = chart_views.figure([run], "throughput").get_axes()
            drawn.append([len(one.get_lines()) for one in axes])
    assert drawn[0] == drawn[1]
    assert chart_views.suited(runs[1:])["concurrent"].startswith("both.jsonl has no rows of several devices")
