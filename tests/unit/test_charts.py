from __future__ import annotations

import io
import re
import xml.etree.ElementTree
from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any, cast

import matplotlib
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection
from matplotlib.colors import to_hex
from matplotlib.figure import Figure
from matplotlib.text import Text

from gemmbench import chart_views
from gemmbench.charts import SUFFIXES, named
from gemmbench.charts import pane as charts
from gemmbench.charts.marks import looks, size_axis, spread, thinned
from gemmbench.gemm import gemm_chart
from gemmbench.ladder.variant import OWN
from gemmbench.model.dtypes import GEMM_DTYPES
from gemmbench.model.row import Check, Problem, Resources
from gemmbench.model.run_file import Run
from gemmbench.probes import peak_chart
from gemmbench.stats.rates import versus
from tests import fake_memory
from tests import fake_runs as fake
from tests.unit.test_tables import in_turn_with_tiled


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


def bars(axes: Axes, label: str = "") -> list[tuple[float, float]]:
    """Left end and width of the horizontal bars with a label, or of all."""
    groups = (group for group in axes.containers if label in ("", group.get_label()))
    return [(bar.get_x(), bar.get_width()) for group in groups for bar in cast(Any, group).patches]


def bar_names(axes: Axes) -> list[str]:
    return [label.get_text() for label in axes.get_yticklabels()]


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
    "memory": fake_memory.fake_memory(),
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


def test_throughput_says_what_where_and_which_type_on_a_linear_axis_from_zero() -> None:
    axes = only(chart_views.figure([fake.fake_square()], "throughput"))
    x, y = curve(axes, "register")
    assert list(x) == list(fake.SIZES)
    assert y == pytest.approx([21.0, 31.1, 88.2, 180.0, 241.7, 260.9], rel=0.06)
    assert (axes.get_xscale(), axes.get_yscale()) == ("log", "linear")
    assert axes.get_ylim()[0] == 0
    assert [label.get_text() for label in axes.get_xticklabels()] == [str(size) for size in fake.SIZES]
    assert list(axes.get_xticks(minor=True)) == []
    assert axes.get_title(loc="left") == "float GEMM, Intel(R) Xeon(R) Processor @ 2.10GHz"
    assert axes.get_xlabel() == "m = n = k"
    assert axes.get_ylabel() == "GFLOPS on the device"


def test_the_host_scope_by_part_is_stacked_and_its_map_cycle_below() -> None:
    axes = only(draw(fake.fake_gemm(), "host-parts"))
    first = [bars(axes, name)[0] for name in ("upload", "enqueue", "kernels", "wait", "download")]
    assert [left + width for left, width in first[:-1]] == pytest.approx([left for left, _ in first[1:]])
    assert sum(first[-1]) == pytest.approx(100.0)
    assert [len(bars(axes, name)) for name in ("map", "fill", "kernels")] == [1, 1, 2]
    assert bar_names(axes) == ["padded", "padded, map cycle"]
    assert {"4.20 ms", "kernels", "wait"} <= set(texts(axes))
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
    assert bar_names(axes) == ["naive, 64", "tiled, 128"]
    assert "wait" not in texts(axes)  # nothing is drawn of it


def test_numpy_is_dashed_black_and_the_peak_a_labelled_line() -> None:
    axes = only(chart_views.figure([fake.fake_square()], "throughput"))
    numpy = next(line for line in axes.lines if line.get_label() == "numpy")
    assert numpy.get_color() == "#000000"
    assert numpy.is_dashed()
    _, peak = curve(axes, "peak")
    assert peak == pytest.approx([345.0, 345.0], rel=0.01)
    assert "peak 345 GFLOPS" in texts(axes)


def test_a_peak_that_is_far_above_is_not_drawn() -> None:
    run = fake.fake_square()
    rows = tuple(row for row in run.rows if row.kind != "gemm" or row.variant == "naive")
    axes = only(draw(replace(run, rows=rows), "throughput"))
    assert {line.get_label() for line in axes.lines} == {"naive"}


def test_missing_points_are_gaps() -> None:
    axes = only(chart_views.figure([fake.fake_troubled()], "throughput"))
    assert list(np.isnan(curve(axes, "tiled")[1])) == [False, False, True, False, False, True]
    assert list(np.isnan(curve(axes, "register")[1])) == [False, False, False, True, False, False]
    assert "dot-v8" not in texts(axes)  # no line, no name
    assert "peak" not in [line.get_label() for line in axes.lines]  # not measured in this run


def test_an_interval_is_drawn_at_every_point() -> None:
    run = fake.fake_square()
    axes = only(chart_views.figure([run], "throughput"))
    intervals = axes.collections[1]  # of tiled, the second series, noisy at 64
    assert isinstance(intervals, LineCollection)
    ends = {part[0][0]: sorted(y for _, y in part) for part in intervals.get_segments() if len(part)}
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
    kinds = chart_views.suited([run], fake.FAMILIES)
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


def named_lines(axes: Axes) -> set[str]:
    """The labels of coloured lines, whose names are at their ends."""
    labels = {str(line.get_label()) for line in axes.lines if line.get_color() != charts.PALE}
    return labels - {"peak"}


def test_at_most_eight_lines_have_a_colour_and_a_name() -> None:
    """The best of the slowest family gives way to the second fastest kernel."""
    axes = only(draw(fake.fake_ladder(), "throughput"))
    best = {"prefetch", "image-4x8", "nv-mma", "nv-async"}
    assert named_lines(axes) == {"naive", *best, "numpy", "clblast", "cublas"}
    assert {"naive", *best, "numpy (host)", "clblast", "cublas"} <= set(texts(axes))
    assert not {"tiled", "coarse", "gpu-tile"} & set(texts(axes))
    assert "Grey: 20 other kernels. Pale bars: 95 % intervals." in texts(axes)
    lines = {str(line.get_label()): line for line in axes.lines}
    assert {str(lines[name].get_color()) for name in ("numpy", "clblast", "cublas")} == {"#000000"}
    assert len({str(lines[name].get_color()) for name in ("naive", *best)}) == 5


def test_no_line_is_grey_while_a_colour_is_left() -> None:
    """A sweep of four families and one library, whose second fastest kernel is of the fastest's family."""
    names = (
        "naive",
        "tiled",
        "register",
        "prefetch",
        "dot-v4",
        "gpu-tile",
        "nv-async",
        "numpy",
        "small",
        "rect",
    )
    best = {name: float(number) for number, name in enumerate(names)}
    shown = looks(best, {name: name for name in names}, fake.FAMILIES)
    assert len(shown) == 8
    assert {"naive", "small", "rect", "numpy", "nv-async"} <= shown.keys()
    own = {**dict.fromkeys(("own1", "own2", "own3"), 0.5), **best}
    families = {**fake.FAMILIES, **dict.fromkeys(("own1", "own2", "own3"), OWN)}
    assert "own1" in looks(own, {name: name for name in own}, families)


@pytest.mark.parametrize("kind", ["throughput", "host-device", "time"])
def test_pale_bars_are_explained_where_they_are_drawn(kind: str) -> None:
    note = "Pale bars: 95 % intervals."
    run = fake.fake_square()
    assert note in " ".join(texts(only(draw(run, kind))))
    assert note not in " ".join(texts(only(draw(fake.fake_ladder_k(), "energy"))))


def test_close_sizes_become_categories() -> None:
    sizes = (2048, 4095, 4096, 4097)
    rows = [fake.gemm_row("register", Problem(n, n, n), 100.0) for n in sizes]
    axes = only(draw(Run(fake.header(("square",)), tuple(rows)), "throughput"))
    assert axes.get_xscale() == "linear"
    assert list(curve(axes, "register")[0]) == [0, 1, 2, 3]
    assert [label.get_text() for label in axes.get_xticklabels()] == [str(size) for size in sizes]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("gemmbench.charts.marks._CLOSE", 1.0)
        assert size_axis(Figure().subplots(), sizes) == {size: size for size in sizes}


def test_host_device_shows_the_fastest_two_and_the_host() -> None:
    axes = only(draw(fake.fake_ladder(), "host-device"))
    assert {str(line.get_label()) for line in axes.lines} == {"nv-mma", "nv-async", "numpy", "break-even"}


def test_host_device_marks_the_break_even() -> None:
    axes = only(chart_views.figure([fake.fake_square()], "host-device"))
    x, _ = curve(axes, "break-even")
    assert 512 < x[0] < 1024
    assert any(
        re.fullmatch(r"register with transfers beats numpy from m = 9\d\d", item) for item in texts(axes)
    )
    assert {"register, with transfers", "register, on the device", "numpy"} <= set(texts(axes))
    register = [line for line in axes.lines if line.get_label() == "register"]
    host, device = (np.asarray(np.asarray(line.get_ydata()), float) for line in register)
    assert (host < device).all()


def test_host_device_without_a_break_even_has_no_mark() -> None:
    run = fake.fake_many()
    pocl = next(
        a for a in chart_views.figure([run], "host-device").axes if "pthread" in a.get_title(loc="left")
    )
    assert "break-even" not in [line.get_label() for line in pocl.lines]


def test_time_falls_with_rate() -> None:
    figure = chart_views.figure([fake.fake_square()], "time")
    axes = only(figure)
    _, y = curve(axes, "tiled")
    assert y[-1] == pytest.approx(2 * 2048**3 / 4.5e9, rel=0.02)
    figure.savefig(io.BytesIO())
    assert "1 ms" in [label.get_text() for label in axes.get_yticklabels()]


def test_a_pane_for_each_device_and_type() -> None:
    figure = chart_views.figure([fake.fake_many()], "throughput")
    cpu = "Intel(R) Xeon(R) Processor @ 2.10GHz"
    assert [axes.get_title(loc="left") for axes in figure.axes] == [
        f"{dtype} GEMM, {name}" for name in (cpu, f"pthread-{cpu}") for dtype in ("float", "half")
    ]


def test_two_runs_share_a_pane_and_each_line_has_its_own_points() -> None:
    first = fake.fake_square()
    rows = tuple(row for row in first.rows if not row.problem or row.problem.m in (64, 256, 2048))
    runs = [first, replace(first, rows=rows, path="somewhere/new.jsonl")]
    axes = only(chart_views.figure(runs, "throughput", fake.FAMILIES))
    assert {"register (square)", "register (new)"} <= set(texts(axes))
    assert len(named_lines(axes)) == 4
    one, two = (line for line in axes.lines if line.get_label() == "register")
    assert list(np.asarray(two.get_xdata())) == [64, 256, 2048]
    assert np.isfinite(np.asarray(two.get_ydata(), float)).all()
    assert one.get_color() == two.get_color()
    assert one.get_markerfacecolor() != two.get_markerfacecolor()


def test_energy_has_the_joules_of_each_row() -> None:
    run = few(fake.fake_ladder())
    energy = only(draw(run, "energy"))
    x, joules = curve(energy, "register")
    row = next(row for row in run.rows if row.variant == "register" and row.problem == Problem(512, 512, 512))
    assert joules[list(x).index(512)] == row.energy.joules
    assert energy.get_ylabel() == "energy for one problem, board"
    assert any("mJ" in label.get_text() for label in energy.get_yticklabels())
    assert not [label for label in texts(energy) if label.startswith(("numpy", "nv-wgmma"))]  # no line


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


def test_ladder_is_sorted_and_has_per_cent_of_the_peak() -> None:
    axes = only(draw(fake.fake_ladder(), "ladder"))
    names, lengths = bar_names(axes), [width for _, width in bars(axes)]
    assert names[:3] == ["measured peak", "nv-mma", "nv-async"]
    assert lengths[1:] == sorted(lengths[1:], reverse=True)
    assert not {"naive", "numpy", "nv-wgmma"} & set(names)  # skipped, in another scope, unsupported
    assert lengths[2] == pytest.approx(53.8 / (1 + (950 / 4096) ** 1.7), rel=0.01)
    assert f"{lengths[2]:.1f}   {lengths[2] / lengths[0]:.1%}"[:-1] + " %" in texts(axes)
    assert "m = n = k = 4096; per cent of the measured peak; black lines: 95 % intervals" in texts(
        axes
    )  # what most were measured at
    bold = [item.get_text() for item in axes.texts if item.get_fontweight() == "bold"]
    assert [text.split()[0] for text in bold] == [f"{lengths[1]:.0f}"]


def test_ladder_without_a_peak() -> None:
    axes = only(draw(without(fake.fake_ladder(), "peak"), "ladder"))
    assert "measured peak" not in bar_names(axes)
    assert "m = n = k = 4096; black lines: 95 % intervals" in texts(axes)
    assert "of the measured peak" not in words(axes)


def test_precision_shows_each_type_and_its_peak() -> None:
    axes = only(draw(few(fake.fake_ladder(TYPES)), "precision"))
    assert bar_names(axes) == ["measured peak", "nv-mma", "register"]
    assert [width for _, width in bars(axes, "half")] == pytest.approx(
        [964, 1.9 * 310 / (1 + (1600 / 4096) ** 1.7), 1.9 * 25.5 / (1 + (640 / 4096) ** 1.7)], rel=0.02
    )
    said = texts(axes)
    assert said.index("half") < said.index("float") < said.index("double")  # the narrowest first
    assert "m = n = k = 4096" in words(axes)


def test_precision_draws_at_most_eight_kernels() -> None:
    names = bar_names(only(draw(fake.fake_ladder(TYPES), "precision")))
    assert len(names) <= 1 + 8
    assert {"nv-wgmma", "prefetch", "image-4x8", "block4x4-v4", "cublas"} <= set(names)


def test_roofline_has_both_roofs_and_the_ridge() -> None:
    axes = only(draw(few(fake.fake_ladder()), "roofline"))
    x, y = curve(axes, "register")
    assert x[0] == pytest.approx(2 * 64**3 / (3 * 64**2 * 4))  # flop over the bytes of A, B and C
    assert y[-1] == pytest.approx(25.5 / (1 + (640 / 4096) ** 1.7), rel=0.01)
    ridge = 65990e9 / 4.35e12
    memory_x, memory_y = curve(axes, "memory")
    assert memory_y / memory_x == pytest.approx([4.35, 4.35], rel=0.01)  # TFLOPS for each flop per byte
    assert memory_x[-1] == pytest.approx(ridge, rel=0.01)
    assert curve(axes, "peak")[1] == pytest.approx([65.99, 65.99], rel=0.01)
    assert {"memory 4,349 GB/s", "peak 66.0 TFLOPS"} <= set(texts(axes))
    assert (axes.get_xscale(), axes.get_yscale()) == ("log", "log")
    assert "numpy" not in [line.get_label() for line in axes.lines]  # it is not under a GPU's roofs


def test_roofline_without_bandwidth_has_one_roof_unless_another_run_has_it() -> None:
    run, whole = few(fake.fake_ladder(bandwidth=False)), fake.fake_ladder()
    axes = only(draw(run, "roofline"))
    assert "memory" not in [line.get_label() for line in axes.lines]
    lender = replace(without(whole, "gemm"), path="peak.jsonl")
    axes = only(chart_views.figure([without(run, "peak"), lender], "roofline"))
    assert {"memory", "peak"} <= {line.get_label() for line in axes.lines}
    assert "(ladder)" not in axes.get_title(loc="left")  # the lender has no pane, so no names are needed
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
    assert curve(half, "peak")[1] == pytest.approx([950, 950], rel=0.01)
    assert half.get_ylim()[1] > 950


def test_throughput_is_compared_with_the_peak_of_the_units_in_use() -> None:
    run, lender = tensor_run()
    half, tf32 = chart_views.figure([run, lender], "throughput").axes
    assert curve(half, "peak")[1] == pytest.approx([950, 950], rel=0.01)
    assert curve(tf32, "peak")[1] == pytest.approx([480, 480], rel=0.01)


def test_ladder_and_precision_use_another_runs_peaks() -> None:
    run, lender = tensor_run()
    half = chart_views.figure([run, lender], "ladder").axes[0]
    assert "71.5 %" in words(half)
    assert "68.1 %" in words(half)  # gpu-tile is compared with the peak of the units that it ran on
    assert "measured peak" in bar_names(only(chart_views.figure([run, lender], "precision")))
    assert "measured peak" not in bar_names(only(draw(run, "precision")))


def test_precision_with_integers_names_both_units() -> None:
    run, _ = tensor_run()
    rows = tuple(replace(row, dtype="char") if row.dtype == "tf32" else row for row in run.rows)
    unit = only(draw(replace(run, rows=rows), "precision")).get_xlabel()
    assert unit == "TFLOPS (TIOPS of integers) in the kernel alone"


def test_roofline_of_a_cpu_holds_its_blas_and_unrelated_shapes_are_not_joined() -> None:
    axes = only(chart_views.figure([fake.fake_workloads()], "roofline"))
    numpy = next(line for line in axes.lines if line.get_label() == "numpy")
    assert numpy.get_linestyle() == "None"
    x, _ = curve(axes, "numpy")
    assert (np.diff(x) > 0).all()


def test_workloads_shows_the_kernels_that_win_most_in_the_scope_of_the_ranking() -> None:
    axes = only(draw(fake.fake_layers(), "workloads"))
    names = bar_names(axes)
    assert names[0] == "alexnet conv1\n96x3025x363"
    assert len(names) == len(fake.SHAPES)
    shown = {group.get_label() for group in axes.containers}
    assert len(shown) == 5
    assert {"nv-mma", "nv-async", "cublas"} <= shown
    assert "numpy" not in shown  # ranked with transfers only
    bold = [item.get_text() for item in axes.texts if item.get_fontweight() == "bold"]
    best = [width for _, width in bars(axes, "nv-mma")]
    assert [float(text) for text in bold] == pytest.approx(best, rel=0.01)
    assert axes.get_xlabel() == "TFLOPS in the kernel alone"
    by_host = replace(fake.fake_layers(), header=replace(fake.fake_layers().header, scope="host"))
    assert only(draw(by_host, "workloads")).get_xlabel() == "TFLOPS with transfers"


def test_workloads_without_labels_and_with_a_skipped_row() -> None:
    run = fake.fake_workloads()
    rows = [
        replace(row, status="skipped", samples={}) if row.variant == "naive" and n == 1 else row
        for n, row in enumerate(run.rows)
    ]
    before, after = (only(draw(replace(run, rows=tuple(each)), "workloads")) for each in (run.rows, rows))
    assert bar_names(after)[0] == "96x3025x363"
    assert len(bars(after)) <= len(bars(before))


def test_peak_of_matrix_instructions_has_a_pane_of_its_own() -> None:
    widths, matrix = draw(fake.fake_matrix_peak(), "peak").axes
    assert {"float", "double x 2", "bfloat16 x 16", "char x 4"} <= set(bar_names(widths))
    assert widths.get_xlim()[1] < 200  # matrix instructions do not set the scale of the others
    assert bar_names(matrix)[0] == "half + float, mma m16n8k16"
    assert [width for _, width in bars(matrix, "half + float, wgmma m16n8k16")] == pytest.approx(
        [830], rel=0.01
    )
    assert matrix.get_xlabel() == "TFLOPS, TIOPS for integers"


def test_peak_has_no_bar_for_what_is_suspect_or_failed() -> None:
    axes = only(chart_views.figure([fake.fake_peak()], "peak"))
    assert bars(axes, "float")[0][1] == pytest.approx(345.0, rel=0.01)
    names = bar_names(axes)
    assert "double" in names
    assert not {"double x 2", "int x 8"} & set(names)
    assert not any(name.startswith("half") for name in names)
    assert axes.get_xlim()[1] < 500


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
        ("peak", "throughput", "chart.png", "nothing to draw: peak.jsonl has no measured GEMM rows at sev"),
        (
            "workloads",
            "time",
            "chart.png",
            "nothing to draw: work.jsonl has no measured GEMM rows at several",
        ),
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


def test_suited_kinds() -> None:
    square = ["throughput", "host-device", "time", "ladder", "roofline"]
    assert chart_views.suited([fake.fake_square()]) == square
    assert chart_views.suited([fake.fake_peak()]) == ["peak"]
    assert chart_views.suited([fake.fake_square(), fake.fake_peak()]) == square  # it provides the peak
    later = replace(fake.fake_square(), path="later.jsonl")
    assert chart_views.suited([fake.fake_square(), later]) == [*square, "compare"]


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
    kept = thinned(list(range(100, 1101, 10)), 0.075)
    assert kept[0] == 100
    assert kept[-1] == 1100
    assert len(kept) < 20
    assert thinned([64, 128, 256], 0.075) == [64, 128, 256]
    assert thinned([1024, 2048, 2304, 4096, 8192], 0.075) == [1024, 2048, 4096, 8192]


def test_no_two_of_the_common_types_have_one_colour() -> None:
    assert len({gemm_chart.colour_of(dtype) for dtype in GEMM_DTYPES[:8]}) == 8


def test_host_and_device_have_the_unit_of_their_type_and_one_runs_break_even() -> None:
    run = fake.fake_square()
    one, two = (chart_views.figure(runs, "host-device", fake.FAMILIES) for runs in ([run], [run, run]))
    assert [line.get_label() for line in only(one).lines].count("break-even") == 1
    assert "break-even" not in [line.get_label() for line in only(two).lines]
    whole = replace(run, rows=tuple(replace(row, dtype="int") for row in run.rows))
    assert only(draw(whole, "host-device")).get_ylabel() == "GIOPS"


def test_rows_that_differ_in_math_or_parameters_have_names_of_their_own() -> None:
    row = fake.gemm_row("naive", Problem(512, 512, 512), 1.0)
    assert chart_views.row_text(replace(row, parameters={"math": "fast"})) == "naive fast 512"
    assert chart_views.row_text(replace(row, parameters={"TS": 8}, grid=("TS",))) == "naive TS=8 512"


def test_a_latency_that_is_not_verified_is_not_drawn() -> None:
    row = fake_memory.row("latency", "pointer-chase", {"bytes": 4096}, 1e-7)
    assert peak_chart._nanoseconds(row) == pytest.approx(100, rel=0.01)
    assert peak_chart._nanoseconds(replace(row, check=Check("suspect"))) is None


def test_ratios_to_another_kernel_over_size_with_a_line_at_one() -> None:
    run = in_turn_with_tiled(fake.fake_square())
    axes = only(draw(run, "versus"))
    sizes, ratios = curve(axes, "register")
    expected = [versus(row) for row in run.rows if row.variant == "register"]
    assert ratios == pytest.approx([ratio.median for ratio in expected if ratio])
    assert list(sizes) == [64, 128, 256, 512, 1024, 2048]
    assert curve(axes, "1")[1] == pytest.approx([1, 1])
    assert axes.get_ylabel() == "times the rate of tiled, on the device"
    assert len(axes.collections) >= 2  # intervals


# --- work-groups against the largest ------------------------------------------------------------------------


def test_a_group_beyond_the_largest_is_drawn_in_another_colour() -> None:
    rows = []
    for variant, most in (("naive", 256), ("tiled", 32)):
        kernel = Resources(variant, "multiply", 64, most, 4, 0, 0, registers=168 if most == 32 else None)
        rows.append(replace(fake.gemm_row(variant, Problem(64, 64, 64), 1.0, 0), resources=(kernel,)))
    run = Run(fake.header(("gemmbench", "square"), (fake.GPU,)), tuple(rows), "mali.jsonl")
    axes = only(draw(run, "resources"))
    assert axes.get_xlabel() == "work-items"
    assert bar_names(axes) == ["naive", "tiled"]
    assert {"64 of 256", "64 of 32, 168 registers", "larger than allowed"} <= set(texts(axes))
    patches = [cast(Any, group).patches[0] for group in axes.containers if group.get_label() == "group"]
    assert [to_hex(patch.get_facecolor()).upper() for patch in patches] == list(charts.COLOURS[:2])


def test_a_narrow_axis_of_ratios_has_more_ticks_than_one() -> None:
    """0.99 to 1.08 times cuBLAS: nothing could be read off an axis whose only tick was 1."""
    axes = Figure().subplots()
    axes.set_yscale("log")
    axes.set_ylim(0.98, 1.09)
    charts.log_ticks(axes.yaxis, str)
    seen = [tick for tick in axes.get_yticks() if 0.98 <= tick <= 1.09]
    assert len(seen) > 3
