from __future__ import annotations

import io
import xml.etree.ElementTree
from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import cast

import matplotlib
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection
from matplotlib.container import BarContainer
from matplotlib.figure import Figure
from matplotlib.text import Text

from gemmbench import chart_views
from gemmbench.charts import SUFFIXES, named
from gemmbench.charts import pane as charts
from gemmbench.charts.lines import end_of, spread, thinned
from gemmbench.gemm import ladder_chart
from gemmbench.model.dtypes import GEMM_DTYPES
from gemmbench.model.row import Problem, Resources
from gemmbench.model.run_file import Run
from gemmbench.stats.rates import versus
from tests import fake_runs as fake
from tests.unit.test_tables import in_turn_with_tiled

Patches = list[tuple[float, float]]  # left end and width of horizontal bars


@pytest.fixture(autouse=True)
def _own_style() -> Iterator[None]:
    with matplotlib.rc_context():
        yield


def texts(axes: Axes) -> list[str]:
    return [item.get_text() for item in axes.findobj(Text) if item.get_text()]


def curve(axes: Axes, label: str) -> tuple[np.ndarray, np.ndarray]:
    line = next(line for line in axes.lines if line.get_label() == label)
    return np.asarray(np.asarray(line.get_xdata()), float), np.asarray(np.asarray(line.get_ydata()), float)


def only(figure: Figure) -> Axes:
    (axes,) = figure.axes
    return axes


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


def bars(axes: Axes, label: str) -> Patches:
    return [
        (bar.get_x(), bar.get_width())
        for group in axes.containers
        if group.get_label() == label
        for bar in cast(BarContainer, group).patches
    ]


def words(axes: Axes) -> str:
    return " ".join(texts(axes)).replace("\n", " ")


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
}


@pytest.mark.parametrize("kind", SUITED)
def test_the_same_run_gives_the_same_file(kind: str, tmp_path: Path) -> None:
    path = tmp_path / "chart.svg"
    chart_views.draw([SUITED[kind]], kind, path)
    first = path.read_bytes()
    chart_views.draw([SUITED[kind]], kind, path)
    assert path.read_bytes() == first


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_every_format(suffix: str, tmp_path: Path) -> None:
    path = tmp_path / f"chart{suffix}"
    chart_views.draw([fake.fake_square()], "throughput", path)
    first = path.read_bytes()
    assert first.startswith({".png": b"\x89PNG", ".svg": b"<?xml", ".pdf": b"%PDF"}[suffix])
    chart_views.draw([fake.fake_square()], "throughput", path)
    assert path.read_bytes() == first


def test_throughput_series_axes_and_titles() -> None:
    axes = only(chart_views.figure([fake.fake_square()], "throughput"))
    x, y = curve(axes, "register")
    assert list(x) == list(fake.SIZES)
    assert y == pytest.approx([21.0, 31.1, 88.2, 180.0, 241.7, 260.9], rel=0.06)
    assert (axes.get_xscale(), axes.get_yscale()) == ("log", "log")
    assert list(axes.get_xticks()) == list(fake.SIZES)
    assert list(axes.get_xticks(minor=True)) == []
    assert "Intel(R) Xeon(R)" in axes.get_title(loc="left")
    assert "Intel OpenCL 2026.22.8.0" in axes.get_title(loc="left")
    assert any("float, device scope" in item for item in texts(axes))
    assert axes.get_xlabel() == "m = n = k"
    assert axes.get_ylabel() == "GFLOPS"


def test_the_host_scope_by_part_is_stacked_and_its_map_cycle_below() -> None:
    axes = only(draw(fake.fake_gemm(), "host-parts"))
    order = ["upload", "enqueue", "passes", "kernel", "waiting", "download"]
    first = [bars(axes, name)[0] for name in order]
    assert [left + width for left, width in first[:-1]] == pytest.approx([left for left, _ in first[1:]])
    assert sum(first[-1]) == pytest.approx(100.0)
    assert [len(bars(axes, name)) for name in ("map", "fill", "kernel")] == [1, 1, 2]
    assert {"padded", "map cycle", "whole", "4.20 ms", "48 %"} <= set(texts(axes))
    rows = [replace(row, parts={}) for row in fake.fake_gemm().rows if row.parts]
    with pytest.raises(charts.ChartError, match="no rows whose host scope was timed by part"):
        draw(replace(fake.fake_gemm(), rows=tuple(rows)), "host-parts")


def test_the_host_scope_by_part_over_sizes_is_of_the_fastest_kernel_of_each() -> None:
    known = fake.parts(upload=1e-3, kernel=3e-3, download=1e-3)
    rows = [
        replace(fake.gemm_row(name, Problem(n, n, n), gflops + n), parts=known)
        for n in (64, 128)
        for name, gflops in (("naive", 200.0), ("tiled", 100.0 if n == 64 else 300.0))
    ]
    axes = only(draw(Run(fake.header(["square"]), tuple(rows)), "host-parts"))
    named = {label for label in texts(axes) if label.split()[0] in ("naive", "tiled")}
    assert named == {"naive 64", "tiled 128"}


def test_numpy_is_dashed_black_and_the_peak_a_labelled_line() -> None:
    axes = only(chart_views.figure([fake.fake_square()], "throughput"))
    numpy = next(line for line in axes.lines if line.get_label() == "numpy")
    assert numpy.get_color() == "#000000"
    assert numpy.is_dashed()
    _, peak = curve(axes, "peak")
    assert peak == pytest.approx([345.0, 345.0], rel=0.01)
    assert "float peak 345" in texts(axes)


def test_missing_points_are_gaps_and_are_named() -> None:
    axes = only(chart_views.figure([fake.fake_troubled()], "throughput"))
    assert list(np.isnan(curve(axes, "tiled")[1])) == [False, False, True, False, False, True]
    assert list(np.isnan(curve(axes, "register")[1])) == [False, False, False, True, False, False]
    assert np.isnan(curve(axes, "dot-v8")[1]).all()
    words = " ".join(texts(axes)).replace("\n", " ")
    assert "tiled at 256 (wrong)" in words
    assert "dot-v8 (unsupported)" in words
    assert "peak" not in [line.get_label() for line in axes.lines]  # not measured in this run


def test_an_interval_is_drawn_at_every_point() -> None:
    run = fake.fake_square()
    axes = only(chart_views.figure([run], "throughput"))
    bars = axes.collections[1]  # of tiled, the second series, noisy at 64
    assert isinstance(bars, LineCollection)
    ends = {part[0][0]: sorted(y for _, y in part) for part in bars.get_segments() if len(part)}
    sizes, rates = curve(axes, "tiled")
    assert sorted(ends) == list(sizes) == list(fake.SIZES)
    assert all(min(ends[n]) <= rate <= max(ends[n]) for n, rate in zip(sizes, rates, strict=True))
    assert min(ends[64]) < rates[0] < max(ends[64])
    assert len(axes.collections) == 7


def test_every_line_differs_in_colour_and_marker() -> None:
    axes = only(chart_views.figure([fake.fake_square()], "throughput"))
    lines = [line for line in axes.lines if line.get_label() not in ("numpy", "peak")]
    assert len({line.get_color() for line in lines}) == len(lines) == 6
    assert len({line.get_marker() for line in lines}) == 6


def test_more_variants_than_colours_still_differ() -> None:
    rows = [
        fake.gemm_row(f"v{number}", Problem(n, n, n), 10.0 + number)
        for number in range(18)
        for n in (64, 128)
    ]
    axes = only(chart_views.figure([Run(fake.header(("square",)), tuple(rows))], "throughput"))
    looks = {
        (str(line.get_color()), str(line.get_linestyle()), str(line.get_marker())) for line in axes.lines
    }
    assert len(looks) == 18


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
    "troubled": fake.fake_troubled,
    "two devices": fake.fake_many,
    "peak": fake.fake_peak,
    "matrix units": fake.fake_matrix_peak,
}


@pytest.mark.parametrize("name", CROWDED)
def test_no_words_overlap_or_leave_the_picture(name: str) -> None:
    """Every kind that suits the run, with thirty variants where it is the whole ladder."""
    run = CROWDED[name]()
    kinds = [kind for kind, why in chart_views.suited([run], fake.FAMILIES).items() if not why]
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


def test_in_a_crowd_a_colour_is_a_family_and_its_fastest_is_strong() -> None:
    axes = only(draw(fake.fake_ladder(), "throughput"))
    lines = {str(line.get_label()): line for line in axes.lines}
    strong = {name for name, line in lines.items() if line.get_linewidth() > 2}
    assert strong == {"prefetch", "block4x4-v4", "image-4x8", "nv-mma"}  # one of each family
    assert lines["naive"].get_color() == lines["tiled"].get_color() != lines["dot-v4"].get_color()
    bold = {item.get_text() for item in axes.findobj(Text) if item.get_fontweight() == "bold"}
    assert strong <= bold
    assert {"first steps", "mobile", "vendor samples", "ours", "libraries"} <= bold  # what the colours mean
    assert "naive" not in bold
    assert {str(lines[name].get_color()) for name in ("numpy", "clblast", "cublas")} == {"#000000"}
    assert lines["numpy"].get_linestyle() == "--"


def test_a_line_that_ends_early_is_named_where_it_would_have_ended() -> None:
    """On steep lines the last point of a short one lies far below its neighbours' at the right."""
    axes = only(draw(fake.fake_ladder(), "time", laid_out=True))
    heights = {item.get_text(): Text.get_window_extent(item).y0 for item in axes.texts}
    assert heights["tiled"] < heights["naive"] < heights["block4x4-v4"]  # slower is higher


def test_host_device_shows_the_fastest_two_and_the_host() -> None:
    axes = only(draw(fake.fake_ladder(), "host-device"))
    assert {str(line.get_label()) for line in axes.lines} == {"nv-mma", "nv-async", "numpy", "break-even"}


def test_host_device_marks_the_break_even() -> None:
    axes = only(chart_views.figure([fake.fake_square()], "host-device"))
    x, _ = curve(axes, "break-even")
    assert 512 < x[0] < 1024
    assert any(item.startswith("break-even m = 9") for item in texts(axes))
    assert {"register, host", "register, device", "numpy"} <= set(texts(axes))
    assert "naive, host" not in texts(axes)  # only the fastest
    register = [line for line in axes.lines if line.get_label() == "register"]
    host, device = (np.asarray(np.asarray(line.get_ydata()), float) for line in register)
    assert (host < device).all()


def test_host_device_without_a_break_even_has_no_mark() -> None:
    run = fake.fake_many()
    pocl = next(a for a in chart_views.figure([run], "host-device").axes if "PoCL" in a.get_title(loc="left"))
    assert "break-even" not in [line.get_label() for line in pocl.lines]


def test_time_falls_with_rate() -> None:
    figure = chart_views.figure([fake.fake_square()], "time")
    axes = only(figure)
    _, y = curve(axes, "tiled")
    assert y[-1] == pytest.approx(2 * 2048**3 / 4.5e9, rel=0.02)
    figure.savefig(io.BytesIO())
    assert "1 ms" in [label.get_text() for label in axes.get_yticklabels()]


def test_a_panel_for_each_device_and_type() -> None:
    figure = chart_views.figure([fake.fake_many()], "throughput")
    titles = [(axes.get_title(loc="left").split("\n")[-1], texts(axes)) for axes in figure.axes]
    pocl = "pthread-Intel(R) Xeon(R) Processor @ 2.10GHz | PoCL 3.0-rc2"  # it fits one line
    assert [title for title, _ in titles] == ["Intel OpenCL 2026.22.8.0"] * 2 + [pocl] * 2
    assert sum(any("half, device" in word for word in words) for _, words in titles) == 2


def test_two_runs_lie_over_each_other_under_their_names() -> None:
    runs = [fake.fake_square(), replace(fake.fake_square(), path="somewhere/new.jsonl")]
    axes = only(chart_views.figure(runs, "throughput"))
    assert {"register (square)", "register (new)", "numpy, host (new)"} <= set(texts(axes))
    first, second = (line for line in axes.lines if line.get_label() == "register")
    assert first.get_color() == second.get_color()
    assert first.get_markerfacecolor() != second.get_markerfacecolor()


def test_energy_has_the_joules_of_each_row() -> None:
    run = few(fake.fake_ladder())
    energy = only(draw(run, "energy"))
    x, joules = curve(energy, "register")
    row = next(row for row in run.rows if row.variant == "register" and row.problem == Problem(512, 512, 512))
    assert joules[list(x).index(512)] == row.energy.joules
    assert energy.get_ylabel() == "energy for one problem"
    assert any("mJ" in label.get_text() for label in energy.get_yticklabels())
    assert "energy of the board, idle draw included" in words(energy)
    assert "naive at 4096 (skipped)" in words(energy)
    assert "numpy (not measured: no permission to read RAPL)" in words(energy)
    assert not [label for label in texts(energy) if label.startswith(("numpy, host", "nv-wgmma"))]  # no line


def test_energy_that_no_row_has_is_refused_with_the_reason() -> None:
    rows = (replace(row, energy=fake.energy(row, None)) for row in fake.fake_square().rows)
    run = replace(fake.fake_square(), rows=tuple(rows))
    with pytest.raises(charts.ChartError, match=r"no measured energy .* \(not measured: .* is for root only"):
        draw(run, "energy")
    with pytest.raises(charts.ChartError, match=r"no measured energy .* varying$"):  # nobody asked for it
        draw(fake.fake_square(), "energy")


def test_energy_over_k() -> None:
    axes = only(draw(few(fake.fake_ladder_k()), "energy"))
    x, y = curve(axes, "register")
    assert list(x) == [64, 128, 256, 512, 1024, 2048]
    assert (np.diff(y) > 0).all()
    assert axes.get_xlabel() == "k, with m = 1024 and n = 1024"


def test_ladder_is_a_waterfall_that_ends_at_the_peak() -> None:
    whole = fake.fake_ladder()
    assert "m = n = k = 4096" in words(only(draw(whole, "ladder")))  # the largest that most were measured at
    small = tuple(row for row in whole.rows if row.problem is None or row.problem.m < 4096)
    run = replace(whole, rows=small)  # naive was skipped at 4096
    axes = only(draw(run, "ladder"))
    names = [label.get_text() for label in axes.get_yticklabels()]
    assert names[:3] == ["naive", "tiled", "coarse"]
    assert names[-1] == "measured peak"
    assert len(names) == 28  # all but numpy and the two that cannot run, and the peak
    naive, tiled = 5200 / (1 + (130 / 2048) ** 1.7), 6500 / (1 + (130 / 2048) ** 1.7)
    steps = bars(axes, "step")
    assert steps[0] == pytest.approx((1, 0), abs=0.01)
    assert steps[1] == pytest.approx((1, tiled / naive - 1), rel=0.03)  # from where the rung above ended
    assert steps[2][0] == pytest.approx(tiled / naive, rel=0.01)
    first_mobile = names.index("dot-v4")
    assert steps[first_mobile][0] == 1, "a family starts from the first rung again"
    assert steps[first_mobile][1] < 0
    ((left, width),) = bars(axes, "peak")
    assert left + width == pytest.approx(65990 / naive, rel=0.01)
    assert curve(axes, "numpy")[0] == pytest.approx(np.full(2, 2.95 / 5.14), rel=0.02)
    said = words(axes)
    assert "m = n = k = 2048" in said
    assert "unsupported" not in said
    assert {"speed-up", "TFLOPS", "of peak", "36.3x"} <= set(texts(axes))
    assert axes.get_xlabel() == "speed-up over naive"


def test_ladder_without_its_first_rung_or_a_peak() -> None:
    rows = [row for row in fake.fake_ladder().rows if row.variant in ("naive", "tiled", "register")]
    rows = [replace(row, status="skipped", samples={}) if row.variant == "naive" else row for row in rows]
    axes = only(draw(Run(fake.fake_ladder().header, tuple(rows)), "ladder"))
    assert axes.get_xlabel() == "speed-up over tiled, the first that was measured"
    assert "The run has no measured peak of float." in words(axes)
    assert bars(axes, "peak") == []
    assert "m = n = k = 4096" in words(axes)


def test_ladder_follows_the_order_of_the_families_not_of_the_rows() -> None:
    run = fake.fake_ladder()
    axes = only(draw(replace(run, rows=run.rows[::-1]), "ladder"))
    assert [label.get_text() for label in axes.get_yticklabels()][:3] == ["naive", "tiled", "coarse"]


def test_precision_shows_each_type_and_its_peak() -> None:
    axes = only(draw(fake.fake_ladder(TYPES), "precision"))
    (_, (y, *_)), (x, _) = curve(axes, "nv-mma half"), curve(axes, "nv-mma half")
    assert x == pytest.approx([1.9 * 310 / (1 + (1600 / 4096) ** 1.7)], rel=0.02)  # TFLOPS
    assert curve(axes, "nv-mma double")[1] == [y]
    assert curve(axes, "double peak")[0] == pytest.approx([32.9, 32.9], rel=0.01)
    lines = {str(line.get_label()) for line in axes.lines}
    assert {"tiled half", "tiled float", "tiled double"} <= lines
    assert "image-4x8 double" not in lines
    said = texts(axes)
    assert said.index("half") < said.index("float") < said.index("double")  # the narrowest first
    assert said.count("unsupported") == 1  # numpy
    assert "m = n = k = 4096" in words(axes)


def test_a_variant_of_one_type_only_keeps_its_place() -> None:
    run = fake.fake_ladder(("float", "double"))
    rows = tuple(row for row in run.rows if (row.variant, row.dtype) != ("naive", "float"))
    axes = only(draw(replace(run, rows=rows), "precision"))
    assert [label.get_text() for label in axes.get_yticklabels()][:2] == ["naive", "tiled"]


def test_precision_says_which_peak_is_not_known() -> None:
    run = fake.fake_ladder(("float", "double"))
    rows = tuple(row for row in run.rows if row.kind != "peak" or row.dtype == "float")
    axes = only(draw(replace(run, rows=rows), "precision"))
    assert "The run has no measured peak of double." in words(axes)


def test_roofline_has_both_roofs_and_the_ridge() -> None:
    axes = only(draw(few(fake.fake_ladder()), "roofline"))
    x, y = curve(axes, "register")
    assert x[0] == pytest.approx(2 * 64**3 / (3 * 64**2 * 4))  # flop over the bytes of A, B and C
    assert y[-1] == pytest.approx(25500 / (1 + (640 / 4096) ** 1.7), rel=0.01)
    ridge = 65990e9 / 4.35e12
    assert curve(axes, "ridge")[0] == pytest.approx([ridge, ridge], rel=0.01)
    memory_x, memory_y = curve(axes, "memory")
    assert memory_y / memory_x == pytest.approx([4350, 4350], rel=0.01)  # GFLOPS for each flop/byte
    assert memory_x[-1] == pytest.approx(ridge, rel=0.01)
    assert curve(axes, "peak")[1] == pytest.approx([65990, 65990], rel=0.01)
    assert "ridge 15.2 flop/byte" in texts(axes)
    assert (axes.get_xscale(), axes.get_yscale()) == ("log", "log")
    assert "numpy" not in [line.get_label() for line in axes.lines]  # it is not under a GPU's roofs


def test_roofline_without_bandwidth_says_so_and_another_run_may_lend_it() -> None:
    run, whole = few(fake.fake_ladder(bandwidth=False)), fake.fake_ladder()
    axes = only(draw(run, "roofline"))
    assert "memory" not in [line.get_label() for line in axes.lines]
    assert "No memory roof" in words(axes)
    lender = replace(without(whole, "gemm"), path="peak.jsonl")
    axes = only(chart_views.figure([without(run, "peak"), lender], "roofline"))
    assert {"memory", "peak"} <= {line.get_label() for line in axes.lines}
    assert "The float peak is that of peak. The memory roof is that of peak." in words(axes)
    assert "peak" not in axes.get_title(loc="left")  # the lender has no pane, so no names are needed
    other = replace(lender, header=fake.header(("gemmbench", "peak"), (fake.CPU,)))
    axes = only(chart_views.figure([run, other], "roofline"))
    assert "memory" not in [line.get_label() for line in axes.lines], "another device's"


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


def test_kernels_on_matrix_units_are_under_the_roof_of_those() -> None:
    run, lender = tensor_run()
    half = chart_views.figure([run, lender], "roofline").axes[0]
    assert curve(half, "peak")[1] == pytest.approx([950e3, 950e3], rel=0.01)
    assert half.get_ylim()[1] > 950e3


def test_throughput_is_held_against_the_peak_of_the_units_that_were_used() -> None:
    run, lender = tensor_run()
    half, tf32 = chart_views.figure([run, lender], "throughput").axes
    assert curve(half, "peak")[1] == pytest.approx([950e3, 950e3], rel=0.01)
    assert "The half peak is that of peak." in words(half)
    assert curve(tf32, "peak")[1] == pytest.approx([480e3, 480e3], rel=0.01)


def test_what_stands_below_a_title_ends_within_the_picture() -> None:
    runs = []
    for run in tensor_run():
        rows = tuple(replace(row, dtype="bfloat16") if row.dtype == "tf32" else row for row in run.rows)
        more = tuple(replace(row, variant="nv-wgmma") for row in rows if row.dtype == "bfloat16")
        runs.append(replace(run, rows=(*rows, *more) if run.path.startswith("tensor") else rows))
    figure = chart_views.figure(runs, "ladder")
    figure.draw_without_rendering()
    below = [item for axes in figure.axes for item in axes.findobj(Text) if "full colour" in item.get_text()]
    assert len(below) == 2
    assert max(item.get_window_extent().x1 for item in below) <= figure.bbox.x1


def test_ladder_and_precision_take_another_runs_peaks() -> None:
    run, lender = tensor_run()
    half = chart_views.figure([run, lender], "ladder").axes[0]
    assert "The half peak is that of peak." in words(half)
    assert "71.5 %" in texts(half)
    assert "68.1 %" in texts(half)  # gpu-tile is held against the peak of the units that it ran on
    assert "of the units that a kernel runs on" in words(half)
    axes = only(chart_views.figure([run, lender], "precision"))
    assert "The half, tf32 peaks are those of peak." in words(axes)
    assert "The run has no measured peak of half, tf32." in words(only(draw(run, "precision")))


def test_roofline_of_a_cpu_holds_its_blas_and_unrelated_shapes_are_not_joined() -> None:
    axes = only(chart_views.figure([fake.fake_workloads()], "roofline"))
    numpy = next(line for line in axes.lines if line.get_label() == "numpy")
    assert numpy.get_linestyle() == "None"
    x, _ = curve(axes, "numpy")
    assert (np.diff(x) > 0).all()


@pytest.mark.parametrize("kind", ["throughput", "ladder", "precision", "roofline"])
def test_a_peak_that_was_kept_from_an_earlier_run_says_so(kind: str) -> None:
    run = few(fake.fake_ladder(("float", "double")))
    assert not any("earlier" in words(axes) for axes in draw(run, kind).axes)
    rows = tuple(
        replace(row, measured_utc="2026-11-21T04:10:00Z") if row.kind == "peak" else row for row in run.rows
    )
    said = words(draw(replace(run, rows=rows), kind).axes[0])
    assert "The float peak was measured 20 min earlier." in said


def test_workloads_shows_the_fastest_and_names_the_rest() -> None:
    axes = only(draw(fake.fake_layers(), "workloads"))
    names = [label.get_text() for label in axes.get_yticklabels()]
    assert names[0] == "alexnet conv1\n96x3025x363"
    assert len(names) == len(fake.SHAPES)
    shown = list(dict.fromkeys(group.get_label() for group in axes.containers))
    assert shown == ["register-wide", "prefetch", "gpu-tile", "nv-async", "nv-mma", "cublas", "numpy"]
    bold = [item.get_text() for item in axes.texts if item.get_fontweight() == "bold"]
    best = [width for _, width in bars(axes, "nv-mma")]
    assert [float(text) for text in bold] == pytest.approx(best, rel=0.01)
    assert "slower on most shapes: naive, tiled" in words(axes)
    assert "No figure for any shape: nv-wgmma, intel-block." in words(axes)


def test_a_shape_whose_fastest_kernel_has_no_bar_has_none_in_bold(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ladder_chart, "_MOST_VARIANTS", 2)
    run = fake.fake_layers()
    first, second, third = list(dict.fromkeys(row.problem for row in run.rows if row.variant == "tiled"))[:3]
    quick = {("tiled", first), ("tiled", second), ("naive", third)}
    faster = [
        replace(
            row,
            samples={
                n: replace(s, seconds=tuple(t / 999 for t in s.seconds)) for n, s in row.samples.items()
            },
        )
        if (row.variant, row.problem) in quick
        else row
        for row in run.rows
    ]
    axes = only(draw(replace(run, rows=tuple(faster)), "workloads"))
    assert {group.get_label() for group in axes.containers} == {"nv-mma", "tiled", "numpy"}
    bold = [item for item in axes.texts if item.get_fontweight() == "bold"]
    assert len(bold) == len(fake.SHAPES) - 1


def test_workloads_without_labels_and_with_a_skipped_row() -> None:
    run = fake.fake_workloads()
    rows = [
        replace(row, status="skipped", samples={}) if row.variant == "naive" and n == 1 else row
        for n, row in enumerate(run.rows)
    ]
    axes = only(chart_views.figure([replace(run, rows=tuple(rows))], "workloads"))
    assert axes.get_yticklabels()[0].get_text() == "96x3025x363"
    assert "skipped" in texts(axes)


def test_peak_of_many_types_takes_several_panes_and_matrix_units_their_own() -> None:
    floats, integers, matrix = draw(fake.fake_matrix_peak(), "peak").axes
    assert {"float", "double", "half", "bfloat16"} <= set(texts(floats))
    assert {"int (TIOPS)", "short (TIOPS)", "char (TIOPS)"} <= set(texts(integers))
    assert floats.get_ylim()[1] < 200  # matrix units do not set the scale of the others
    names = [label.get_text() for label in matrix.get_yticklabels()]
    assert names[:2] == ["half + float m16n8k16", "half + half m16n8k16"]
    assert [width for _, width in bars(matrix, "wgmma half")] == pytest.approx([830, 830 * 1.16], rel=0.01)
    assert {"mma", "wgmma", "random", "zeros", "631", "1,262"} <= set(texts(matrix))
    assert "Not measured: half dpas (unsupported)." in words(matrix)


def test_peak_bars_labels_and_what_is_missing() -> None:
    axes = only(chart_views.figure([fake.fake_peak()], "peak"))
    heights = {bars.get_label(): cast(BarContainer, bars).patches[0].get_height() for bars in axes.containers}
    assert heights["float 1"] == pytest.approx(345.0, rel=0.01)
    assert "int 8" not in heights
    assert not any(str(label).startswith("half") for label in heights)
    words = texts(axes)
    assert {"float", "double", "int (GIOPS)", "half", "?1,400", "failed"} <= set(words)
    assert any("unsupported" in word for word in words)
    suspect = next(
        cast(BarContainer, bars).patches[0] for bars in axes.containers if bars.get_label() == "double 2"
    )
    assert suspect.get_hatch()
    assert axes.get_ylim()[1] < 500  # a suspect figure does not set the scale


def test_hostile_names_stay_text(tmp_path: Path) -> None:
    path = tmp_path / "chart.svg"
    chart_views.draw([fake.fake_troubled()], "throughput", path)
    words = [item.text for item in xml.etree.ElementTree.parse(path).iter() if item.tag.endswith("text")]
    assert any(word and '[bold]x[/] | <b>&"$x^2$`' in word for word in words)


def test_the_users_own_matplotlib_style_does_not_leak_in_or_out(tmp_path: Path) -> None:
    chart_views.draw([fake.fake_square()], "throughput", tmp_path / "a.png")
    matplotlib.rcParams["lines.linewidth"] = 9.0
    matplotlib.rcParams["axes.facecolor"] = "red"
    chart_views.draw([fake.fake_square()], "throughput", tmp_path / "b.png")
    assert matplotlib.rcParams["lines.linewidth"] == 9.0
    assert (tmp_path / "a.png").read_bytes() == (tmp_path / "b.png").read_bytes()


def test_a_png_is_not_blank_and_readable_in_grey(tmp_path: Path) -> None:
    path = tmp_path / "chart.png"
    chart_views.draw([fake.fake_square()], "throughput", path)
    picture = matplotlib.image.imread(path)
    assert picture.shape[1] >= 1000
    assert picture[..., :3].mean(axis=-1).std() > 0.04


def test_names_in_any_script_are_drawn(tmp_path: Path) -> None:
    run = fake.fake_square()
    named = replace(run, header=replace(run.header, devices=(replace(fake.CPU, name="显卡 ﷽"),)))
    chart_views.draw([named], "throughput", tmp_path / "chart.png")


@pytest.mark.parametrize(
    ("name", "kind", "file", "message"),
    [
        ("square", "throughput", "chart.bmp", "must end in .png, .svg or .pdf"),
        ("square", "throughput", "chart", "must end in .png, .svg or .pdf"),
        ("square", "throughput", "nowhere/chart.png", "cannot write .*: no such file or directory"),
        ("square", "pie", "chart.png", "unknown kind of chart 'pie'; there are throughput"),
        ("peak", "throughput", "chart.png", "nothing to draw: peak.jsonl has no measured GEMM rows over sev"),
        (
            "workloads",
            "time",
            "chart.png",
            "nothing to draw: work.jsonl has no measured GEMM rows over several",
        ),
        ("square", "energy", "chart.png", "nothing to draw: square.jsonl has no measured energy"),
        ("square", "precision", "chart.png", "has no GEMM rows measured in two data types at the same"),
        ("square", "workloads", "chart.png", "has no measured GEMM rows of several shapes that are no sweep"),
        ("troubled", "roofline", "chart.png", "has no measured GEMM rows with a measured peak of their type"),
        ("peak", "ladder", "chart.png", "has no two kernels measured at the same problem"),
        ("troubled", "peak", "chart.png", "nothing to draw: bad.jsonl has no measured peak row"),
    ],
)
def test_what_cannot_be_drawn_is_one_sentence(
    name: str, kind: str, file: str, message: str, tmp_path: Path
) -> None:
    with pytest.raises(charts.ChartError, match=message) as found:
        chart_views.draw([fake.ALL[name]()], kind, tmp_path / file)
    assert "\n" not in str(found.value)
    assert list(tmp_path.iterdir()) == []


def test_a_folder_is_not_a_chart(tmp_path: Path) -> None:
    (tmp_path / "chart.png").mkdir()
    with pytest.raises(charts.ChartError, match="is a directory"):
        chart_views.draw([fake.fake_peak()], "peak", tmp_path / "chart.png")


@pytest.mark.parametrize(
    ("run", "kind"),
    [
        (fake.fake_square(), "throughput"),
        (fake.fake_sweep_k(), "throughput"),
        (fake.fake_peak(), "peak"),
        (fake.fake_workloads(), "workloads"),
        (fake.fake_gemm(), "roofline"),  # one kernel is no ladder
        (replace(fake.fake_ladder(TYPES), rows=fake.fake_ladder(TYPES).rows[::7]), "precision"),
    ],
)
def test_default_kinds(run: Run, kind: str) -> None:
    assert chart_views.default_kind(run) == kind


def test_suited_kinds_and_why_the_others_are_not() -> None:
    found = chart_views.suited([fake.fake_square()])
    assert list(found) == list(chart_views.KINDS)
    assert [kind for kind, why in found.items() if not why] == [
        "throughput", "host-device", "time", "ladder", "roofline",
    ]  # fmt: skip
    assert found["peak"] == "beside GEMM rows only --kind peak draws it"
    assert found["energy"].startswith("square.jsonl has no measured energy over several sizes")
    pair = chart_views.suited([fake.fake_square(), fake.fake_workloads()])
    assert pair["energy"].startswith("square.jsonl, work.jsonl have no measured energy")
    assert [kind for kind, why in chart_views.suited([fake.fake_peak()]).items() if not why] == ["peak"]


def test_the_files_of_several_kinds() -> None:
    assert named(Path("a/out.png"), "ladder") == Path("a/out-ladder.png")
    assert named(Path("h200-peak.svg"), "peak") == Path("h200-peak.svg")
    assert named(Path("h200-peak.svg"), "ladder") == Path("h200-peak-ladder.svg")


@given(st.lists(st.floats(0, 1), max_size=18))
def test_spread_keeps_order_distance_and_bounds(heights: list[float]) -> None:
    found = spread(heights, 0.05, 0.0, 1.0)
    order = sorted(range(len(heights)), key=lambda n: heights[n])
    placed = [found[n] for n in order]
    assert all(b - a >= 0.05 - 1e-9 for a, b in pairwise(placed))
    assert all(-1e-9 <= place <= 1 + 1e-9 for place in placed)


def test_spread_leaves_alone_what_does_not_collide() -> None:
    assert spread([0.9, 0.1, 0.5], 0.05, 0.0, 1.0) == [0.9, 0.1, 0.5]


def test_crowded_sizes_lose_labels_not_the_ends() -> None:
    kept = thinned(list(range(100, 1101, 10)))
    assert kept[0] == 100
    assert kept[-1] == 1100
    assert len(kept) < 20
    assert thinned([64, 128, 256]) == [64, 128, 256]
    assert thinned([1024, 2048, 2304, 4096, 8192]) == [1024, 2048, 4096, 8192]


def test_words_aim_where_a_line_goes_not_where_its_last_step_does() -> None:
    """From 4096 to 4097 a kernel may lose a tenth."""
    end = end_of([1024, 2048, 4096, 4097, 8192], [10.0, 20.0, 22.0, 20.0, np.nan])
    assert end
    assert end.aim == pytest.approx(20.0)


def test_no_two_gemm_types_look_alike() -> None:
    assert len({ladder_chart.look(dtype) for dtype in GEMM_DTYPES}) == len(GEMM_DTYPES)


def test_ratios_to_another_kernel_over_size_with_a_line_at_one() -> None:
    run = in_turn_with_tiled(fake.fake_square())
    axes = only(draw(run, "versus"))
    sizes, ratios = curve(axes, "register")
    expected = [versus(row) for row in run.rows if row.variant == "register"]
    assert ratios == pytest.approx([ratio.median for ratio in expected if ratio])
    assert list(sizes) == [64, 128, 256, 512, 1024, 2048]
    assert curve(axes, "1")[1] == pytest.approx([1, 1])
    assert axes.get_ylabel() == "times the rate of tiled"
    assert len(axes.collections) >= 2  # intervals
    assert "versus" not in [kind for kind, why in chart_views.suited([fake.fake_square()]).items() if not why]


# --- work-groups against the largest ------------------------------------------------------------------------


def test_a_group_beyond_the_largest_is_drawn_in_another_colour() -> None:
    rows = []
    for variant, most in (("naive", 256), ("tiled", 32)):
        kernel = Resources(variant, "multiply", 64, most, 4, 0, 0, registers=168 if most == 32 else None)
        rows.append(replace(fake.gemm_row(variant, Problem(64, 64, 64), 1.0, 0), resources=(kernel,)))
    run = Run(fake.header(("gemmbench", "square"), (fake.GPU,)), tuple(rows), "mali.jsonl")
    axes = only(draw(run, "resources"))
    assert axes.get_xlabel() == "work-items of a group"
    assert {"naive", "tiled (168)"} <= set(texts(axes))
    assert [line.get_color() for line in axes.lines if line.get_marker() == "o"] == list(charts.COLOURS[:2])


def test_a_narrow_axis_of_ratios_has_more_ticks_than_one() -> None:
    """0.99 to 1.08 times cuBLAS: nothing could be read off an axis whose only tick was 1."""
    axes = Figure().subplots()
    axes.set_yscale("log")
    axes.set_ylim(0.98, 1.09)
    charts.log_ticks(axes.yaxis, str)
    seen = [tick for tick in axes.get_yticks() if 0.98 <= tick <= 1.09]
    assert len(seen) > 3
