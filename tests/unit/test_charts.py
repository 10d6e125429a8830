from __future__ import annotations

import xml.etree.ElementTree
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import matplotlib
import pytest
from hypothesis import given
from hypothesis import strategies as st
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.text import Text

from gemmbench import chart_views
from gemmbench.charts import SUFFIXES, add_kind
from gemmbench.charts import pane as charts
from gemmbench.charts.marks import looks, space_apart, thin_out
from gemmbench.gemm import gemm_chart
from gemmbench.ladder.variant import OWN
from gemmbench.model.dtypes import GEMM_DTYPES
from gemmbench.model.row import Check, Problem, Resources
from gemmbench.model.run_file import Run
from gemmbench.probes import peak_chart
from tests import fake_memory
from tests import fake_runs as fake
from tests.drawn import described
from tests.unit.test_tables import changed, in_turn_with_tiled


@pytest.fixture(autouse=True)
def _own_style() -> Iterator[None]:
    with matplotlib.rc_context():
        yield


def draw(run: Run, kind: str, laid_out: bool = False) -> Figure:
    """A chart with the families of the whole ladder; laid out for those that ask where its words stand."""
    figure = chart_views.figure([run], kind, fake.FAMILIES)
    if laid_out:
        figure.draw_without_rendering()
    return figure


def few(run: Run, *variants: str) -> Run:
    """A run without most of the ladder."""
    kept = {*variants, "naive", "register", "nv-mma", "numpy"}
    return replace(run, rows=tuple(row for row in run.rows if row.kind != "gemm" or row.variant in kept))


def without(run: Run, kind: str) -> Run:
    return replace(run, rows=tuple(row for row in run.rows if row.kind != kind))


TYPES = ("float", "double", "half")
SUITED: dict[str, Run] = {  # a run for each kind
    "throughput": fake.fake_troubled(),
    "host-device": fake.fake_troubled(),
    "time": fake.fake_troubled(),
    "energy": few(fake.fake_ladder_k()),
    "workloads": few(fake.fake_layers()),
    "precision": few(fake.fake_ladder(TYPES)),
    "ladder": fake.fake_troubled(),
    "roofline": few(fake.fake_ladder()),
    "host-parts": fake.fake_gemm(),
    "peak": fake.fake_peak(),
    "memory": fake_memory.fake_memory(),
}


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_every_format(suffix: str, tmp_path: Path) -> None:
    path = tmp_path / f"chart{suffix}"
    chart_views.draw_kind([fake.fake_square()], "throughput", path)
    first = path.read_bytes()
    assert first.startswith({".png": b"\x89PNG", ".svg": b"<?xml", ".pdf": b"%PDF"}[suffix])
    chart_views.draw_kind([fake.fake_square()], "throughput", path)
    assert path.read_bytes() == first


def drawn_words(axes: Axes) -> list[Text]:
    """Without the labels of ticks outside the limits: axes keep them, and do not draw them."""
    hidden = set()
    for axis in (axes.xaxis, axes.yaxis):
        low, high = sorted(axis.get_view_interval())
        for tick, place in zip(axis.get_major_ticks(), axis.get_majorticklocs(), strict=True):
            if not low <= place <= high:
                hidden |= {tick.label1, tick.label2}
    words = (item for item in axes.findobj(Text) if item.get_text().strip() and item.get_visible())
    return [item for item in words if item not in hidden]


CROWDED = {
    "sweep": fake.fake_ladder,
    "sweep over k": fake.fake_ladder_k,
    "types": lambda: few(
        fake.fake_ladder(TYPES), "tiled", "rect", "dot-v4", "nv-wgmma", "image-4x8", "cublas", "wide"
    ),
    "layers": fake.fake_layers,
    "layers of one kernel": lambda: replace(
        fake.fake_layers(), rows=tuple(row for row in fake.fake_layers().rows if row.variant == "nv-mma")
    ),
    "troubled": fake.fake_troubled,
    "two devices": fake.fake_many,
    "peak": fake.fake_peak,
    "matrix units": fake.fake_matrix_peak,
    "memory": fake_memory.fake_memory,
}


@pytest.mark.parametrize("name", CROWDED)
def test_no_words_overlap_or_leave_the_picture(name: str) -> None:
    """Every kind that suits the run, with thirty variants where it is the whole ladder."""
    run = CROWDED[name]()
    kinds = chart_views.list_suitable([run], fake.FAMILIES)
    assert kinds
    for kind in kinds:
        figure = draw(run, kind, laid_out=True)
        for axes in figure.axes:
            # An annotation's extent takes in its arrow: the words alone matter here.
            extents = [(item.get_text(), Text.get_window_extent(item)) for item in drawn_words(axes)]
            for number, (text, one) in enumerate(extents):
                assert one.x1 <= figure.bbox.x1 + 1, f"{kind}: {text!r} leaves the picture"
                assert one.x0 >= -1, f"{kind}: {text!r} leaves the picture"
                for other_text, other in extents[:number]:
                    across = min(one.x1, other.x1) - max(one.x0, other.x0)
                    down = min(one.y1, other.y1) - max(one.y0, other.y0)
                    assert across < 1 or down < 1.5, f"{kind}: {text!r} is over {other_text!r}"


def test_no_line_is_grey_while_a_colour_is_left() -> None:
    """A sweep of four families and one library, whose second fastest kernel is of the fastest's family."""
    named = "naive tiled register prefetch dot-v4 gpu-tile nv-async numpy small rect"
    names = named.split()
    best = {name: float(number) for number, name in enumerate(names)}
    shown = looks(best, {name: name for name in names}, fake.FAMILIES)
    assert len(shown) == 8
    assert {"naive", "small", "rect", "numpy", "nv-async"} <= shown.keys()
    own = {**dict.fromkeys(("own1", "own2", "own3"), 0.5), **best}
    families = {**fake.FAMILIES, **dict.fromkeys(("own1", "own2", "own3"), OWN)}
    assert "own1" in looks(own, {name: name for name in own}, families)


def test_energy_that_no_row_has_is_refused_with_the_reason() -> None:
    rows = (replace(row, energy=fake.energy(row, None)) for row in fake.fake_square().rows)
    run = replace(fake.fake_square(), rows=tuple(rows))
    with pytest.raises(charts.ChartError, match=r"no measured energy .* \(not measured: .* is for root only"):
        draw(run, "energy")
    with pytest.raises(charts.ChartError, match=r"no measured energy .* varying$"):  # nobody asked for it
        draw(fake.fake_square(), "energy")


def tensor_run() -> tuple[Run, Run]:
    """GEMMs on matrix units but one, without a peak; and a run of the same GPU with peaks of both units."""
    problems = [Problem(size, size, size) for size in (1024, 4096)]
    tops = {"nv-mma": 380e3, "nv-wgmma": 680e3, "gpu-tile": 90e3}
    rows = [fake.gemm_row(name, at, top, dtype="half") for name, top in tops.items() for at in problems]
    rows += [fake.gemm_row("nv-mma", at, 185e3, dtype="tf32") for at in problems]
    run = Run(fake.header(("gemmbench", "square"), (fake.GPU,)), tuple(rows), "tensor.jsonl")
    peaks = [fake.peak_row(2, 132e3, dtype="half")]
    peaks += [
        replace(fake.peak_row(1, top, dtype=dtype), variant="wgmma", ran_on="matrix")
        for dtype, top in (("half", 950e3), ("tf32", 480e3))
    ]
    return run, replace(run, rows=tuple(peaks), path="peak.jsonl")


def integers(run: Run) -> Run:
    rows = (replace(row, dtype="char") if row.dtype == "tf32" else row for row in run.rows)
    return replace(run, rows=tuple(rows))


def scoped(run: Run, scope: str) -> Run:
    return replace(run, header=replace(run.header, scope=scope))


def first_skipped(run: Run, variant: str) -> Run:
    first = next(row for row in run.rows if row.variant == variant)
    rows = (replace(row, status="skipped", samples={}) if row is first else row for row in run.rows)
    return replace(run, rows=tuple(rows))


def close_sizes() -> Run:
    rows = [fake.gemm_row("register", Problem(n, n, n), 100.0) for n in (2048, 4095, 4096, 4097)]
    return Run(fake.header(("square",)), tuple(rows))


def host_parts() -> Run:
    known = fake.parts(upload=1e-3, kernel=3e-3, download=1e-3)
    rows = [
        replace(fake.gemm_row(name, Problem(n, n, n), gflops + n), parts=known)
        for n in (64, 128)
        for name, gflops in (("naive", 200.0), ("tiled", 100.0 if n == 64 else 300.0))
    ]
    return Run(fake.header(["square"]), tuple(rows))


def groups() -> Run:
    rows = []
    for variant, most in (("naive", 256), ("tiled", 32)):
        kernel = Resources(variant, "multiply", 64, most, 4, 0, 0, registers=168 if most == 32 else None)
        rows.append(replace(fake.gemm_row(variant, Problem(64, 64, 64), 1.0, 0), resources=(kernel,)))
    return Run(fake.header(("gemmbench", "square"), (fake.GPU,)), tuple(rows), "mali.jsonl")


def two_runs() -> list[Run]:
    first = fake.fake_square()
    rows = tuple(row for row in first.rows if not row.problem or row.problem.m in (64, 256, 2048))
    return [first, replace(first, rows=rows, path="somewhere/new.jsonl")]


def only_kernels(run: Run, *variants: str) -> Run:
    return replace(run, rows=tuple(row for row in run.rows if row.kind != "gemm" or row.variant in variants))


def rules() -> list[tuple[str, str, Run | Sequence[Run]]]:
    """What to look for, the kind of chart, and its runs."""
    square, ladder, tensor = fake.fake_square(), fake.fake_ladder(), tensor_run()
    roofs = replace(without(ladder, "gemm"), path="peak.jsonl")
    memory = fake_memory.fake_memory()
    other_roofs = replace(roofs, header=fake.header(("gemmbench", "peak"), (fake.CPU,)))
    return [
        (
            "sizes on a log axis, rates on a linear one from zero; numpy dashed and black",
            "throughput",
            square,
        ),
        ("a peak that is far above is not drawn", "throughput", only_kernels(square, "naive")),
        ("missing points are gaps, and a kernel without any has no name", "throughput", fake.fake_troubled()),
        ("eight lines with a colour and a name: the best of families, libraries", "throughput", ladder),
        ("close sizes become categories", "throughput", close_sizes()),
        ("a pane for each device and type", "throughput", fake.fake_many()),
        ("two runs share a pane, each with its own points and markers", "throughput", two_runs()),
        ("the peak of the units in use", "throughput", tensor),
        ("the fastest two and the host", "host-device", ladder),
        ("the break-even is marked", "host-device", square),
        ("not without one, as on PoCL", "host-device", fake.fake_many()),
        ("not of two runs", "host-device", [square, square]),
        ("integers have their unit", "host-device", changed(square, dtype="int")),
        ("time falls with rate", "time", square),
        ("parts are stacked, the map cycle below", "host-parts", fake.fake_gemm()),
        ("of the fastest kernel of each size, without what nothing is drawn of", "host-parts", host_parts()),
        ("joules of each row; no line without any", "energy", few(ladder)),
        ("joules over k", "energy", few(fake.fake_ladder_k())),
        ("sorted, with per cent of the peak; the fastest is bold", "ladder", ladder),
        ("no per cent without a peak", "ladder", without(ladder, "peak")),
        ("another run's peaks, of the units that each kernel ran on", "ladder", tensor),
        ("each type and its peak, the narrowest first", "precision", few(fake.fake_ladder(TYPES))),
        ("at most eight kernels", "precision", fake.fake_ladder(TYPES)),
        ("another run's peaks", "precision", tensor),
        ("none without", "precision", tensor[0]),
        ("integers name both units", "precision", integers(tensor[0])),
        ("both roofs and the ridge; numpy is not under a GPU's roofs", "roofline", few(ladder)),
        ("one roof without bandwidth", "roofline", few(fake.fake_ladder(bandwidth=False))),
        ("roofs from another run, which has no pane", "roofline", [without(ladder, "peak"), roofs]),
        ("but not another device's", "roofline", [few(fake.fake_ladder(bandwidth=False)), other_roofs]),
        ("matrix units have a roof of their own", "roofline", tensor),
        ("a CPU's roofs hold its BLAS; unrelated shapes are not joined", "roofline", fake.fake_workloads()),
        ("the kernels that win most, in the scope of the ranking", "workloads", fake.fake_layers()),
        ("with transfers", "workloads", scoped(fake.fake_layers(), "host")),
        ("no labels", "workloads", fake.fake_workloads()),
        ("a skipped row", "workloads", first_skipped(fake.fake_workloads(), "naive")),
        ("matrix instructions have a pane of their own", "peak", fake.fake_matrix_peak()),
        ("no bar for what is suspect, failed or unsupported", "peak", fake.fake_peak()),
        ("a point for each size but suspect ones, a line for each way of copying", "memory", memory),
        ("a last-level cache that is known is marked", "memory", fake_memory.fake_cpu()),
        ("several runs have panes of their own", "memory", [memory, replace(memory, path="other.jsonl")]),
        ("ratios to another kernel, with a line at one", "versus", in_turn_with_tiled(square)),
        ("a group beyond the largest has another colour", "resources", groups()),
    ]


@pytest.mark.parametrize("kind", sorted({*SUITED, "versus", "resources"}))
def test_charts_are_as_they_were(kind: str, golden: Callable[[str, str], None]) -> None:
    sections = []
    for title, of, runs in rules():
        if of == kind:
            figure = chart_views.figure([runs] if isinstance(runs, Run) else list(runs), kind, fake.FAMILIES)
            figure.draw_without_rendering()
            sections.append("\n".join([title, *described(figure, is_styled=True)]))
    golden(f"charts-{kind}.txt", "\n\n".join(sections))


def test_hostile_names_stay_text(tmp_path: Path) -> None:
    path = tmp_path / "chart.svg"
    chart_views.draw_kind([fake.fake_troubled()], "throughput", path)
    words = [item.text for item in xml.etree.ElementTree.parse(path).iter() if item.tag.endswith("text")]
    assert any(word and '[bold]x[/] | <b>&"$x^2$`' in word for word in words)


def test_the_users_own_matplotlib_style_does_not_leak_in_or_out(tmp_path: Path) -> None:
    chart_views.draw_kind([fake.fake_square()], "throughput", tmp_path / "a.png")
    matplotlib.rcParams["lines.linewidth"] = 9.0
    matplotlib.rcParams["axes.facecolor"] = "red"
    chart_views.draw_kind([fake.fake_square()], "throughput", tmp_path / "b.png")
    assert matplotlib.rcParams["lines.linewidth"] == 9.0
    assert (tmp_path / "a.png").read_bytes() == (tmp_path / "b.png").read_bytes()


def test_a_png_is_not_blank_and_readable_in_grey(tmp_path: Path) -> None:
    path = tmp_path / "chart.png"
    chart_views.draw_kind([fake.fake_square()], "throughput", path)
    picture = matplotlib.image.imread(path)
    assert picture.shape[1] >= 1000
    assert picture[..., :3].mean(axis=-1).std() > 0.04


def test_names_in_any_script_are_drawn(tmp_path: Path) -> None:
    run = fake.fake_square()
    named = replace(run, header=replace(run.header, devices=(replace(fake.CPU, name="显卡 ﷽"),)))
    chart_views.draw_kind([named], "throughput", tmp_path / "chart.png")


@pytest.mark.parametrize(
    ("name", "kind", "file", "message"),
    [
        ("square", "throughput", "chart.bmp", "must end in .png, .svg or .pdf"),
        ("square", "throughput", "chart", "must end in .png, .svg or .pdf"),
        ("square", "throughput", "nowhere/chart.png", "cannot write .*: no such file or directory"),
        ("square", "pie", "chart.png", "unknown kind of chart 'pie'; there are throughput"),
        ("peak", "throughput", "chart.png", "nothing to draw: peak.jsonl has no measured GEMM rows at sev"),
        (
            "workloads",
            "time",
            "chart.png",
            "nothing to draw: work.jsonl has no measured GEMM rows at several",
        ),
        ("square", "memory", "chart.png", r"square\.jsonl has no measured memory, transfer or latency row"),
        ("square", "host-parts", "chart.png", "no rows whose host scope was timed by part"),
        ("square", "energy", "chart.png", "nothing to draw: square.jsonl has no measured energy"),
        ("square", "precision", "chart.png", "has no GEMM rows measured in two data types at the same"),
        ("square", "workloads", "chart.png", "has no measured GEMM rows of several shapes that are not a"),
        ("troubled", "roofline", "chart.png", "has no measured GEMM rows with a measured peak of their type"),
        ("peak", "ladder", "chart.png", "has no two kernels measured at the same problem"),
        ("troubled", "peak", "chart.png", "nothing to draw: bad.jsonl has no measured peak row"),
    ],
)
def test_what_cannot_be_drawn_is_one_sentence(
    name: str, kind: str, file: str, message: str, tmp_path: Path
) -> None:
    with pytest.raises(charts.ChartError, match=message) as found:
        chart_views.draw_kind([fake.ALL[name]()], kind, tmp_path / file)
    assert "\n" not in str(found.value)
    assert list(tmp_path.iterdir()) == []


def test_a_folder_is_not_a_chart(tmp_path: Path) -> None:
    (tmp_path / "chart.png").mkdir()
    with pytest.raises(charts.ChartError, match="is a directory"):
        chart_views.draw_kind([fake.fake_peak()], "peak", tmp_path / "chart.png")


@pytest.mark.parametrize(
    ("run", "kind"),
    [
        (fake.fake_square(), "throughput"),
        (fake.fake_sweep_k(), "throughput"),
        (fake.fake_peak(), "peak"),
        (fake_memory.fake_memory(), "memory"),
        (fake.fake_workloads(), "workloads"),
        (fake.fake_gemm(), "roofline"),  # one kernel is no ladder
        (replace(fake.fake_ladder(TYPES), rows=fake.fake_ladder(TYPES).rows[::7]), "precision"),
    ],
)
def test_default_kinds(run: Run, kind: str) -> None:
    assert chart_views.default_kind(run) == kind


def test_suited_kinds() -> None:
    square = ["throughput", "host-device", "time", "ladder", "roofline"]
    assert chart_views.list_suitable([fake.fake_square()]) == square
    assert chart_views.list_suitable([fake.fake_peak()]) == ["peak"]
    assert chart_views.list_suitable([fake.fake_square(), fake.fake_peak()]) == square  # it provides the peak
    later = replace(fake.fake_square(), path="later.jsonl")
    assert chart_views.list_suitable([fake.fake_square(), later]) == [*square, "compare"]


def test_the_files_of_several_kinds() -> None:
    assert add_kind(Path("a/out.png"), "ladder") == Path("a/out-ladder.png")
    assert add_kind(Path("h200-peak.svg"), "peak") == Path("h200-peak.svg")
    assert add_kind(Path("h200-peak.svg"), "ladder") == Path("h200-peak-ladder.svg")


@given(st.lists(st.floats(0, 1), max_size=18))
def test_spread_keeps_order_distance_and_bounds(heights: list[float]) -> None:
    found = space_apart(heights, 0.05, 0.0, 1.0)
    order = sorted(range(len(heights)), key=lambda n: heights[n])
    placed = [found[n] for n in order]
    assert all(b - a >= 0.05 - 1e-9 for a, b in pairwise(placed))
    assert all(-1e-9 <= place <= 1 + 1e-9 for place in placed)


def test_spread_leaves_alone_what_does_not_collide() -> None:
    assert space_apart([0.9, 0.1, 0.5], 0.05, 0.0, 1.0) == [0.9, 0.1, 0.5]


def test_crowded_sizes_lose_labels_not_the_ends() -> None:
    kept = thin_out(list(range(100, 1101, 10)), 0.075)
    assert kept[0] == 100
    assert kept[-1] == 1100
    assert len(kept) < 20
    assert thin_out([64, 128, 256], 0.075) == [64, 128, 256]
    assert thin_out([1024, 2048, 2304, 4096, 8192], 0.075) == [1024, 2048, 4096, 8192]


def test_no_two_of_the_common_types_have_one_colour() -> None:
    assert len({gemm_chart.colour_of(dtype) for dtype in GEMM_DTYPES[:8]}) == 8


def test_rows_that_differ_in_math_or_parameters_have_names_of_their_own() -> None:
    row = fake.gemm_row("naive", Problem(512, 512, 512), 1.0)
    assert chart_views.row_text(replace(row, parameters={"math": "fast"})) == "naive fast 512"
    assert chart_views.row_text(replace(row, parameters={"TS": 8}, grid=("TS",))) == "naive TS=8 512"


def test_a_latency_that_is_not_verified_is_not_drawn() -> None:
    row = fake_memory.row("latency", "pointer-chase", {"bytes": 4096}, 1e-7)
    assert peak_chart._nanoseconds(row) == pytest.approx(100, rel=0.01)
    assert peak_chart._nanoseconds(replace(row, check=Check("suspect"))) is None


def test_a_narrow_axis_of_ratios_has_more_ticks_than_one() -> None:
    """0.99 to 1.08 times cuBLAS: nothing could be read off an axis whose only tick was 1."""
    axes = Figure().subplots()
    axes.set_yscale("log")
    axes.set_ylim(0.98, 1.09)
    charts.log_ticks(axes.yaxis, str)
    seen = [tick for tick in axes.get_yticks() if 0.98 <= tick <= 1.09]
    assert len(seen) > 3
