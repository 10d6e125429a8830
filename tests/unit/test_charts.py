from __future__ import annotations

import io
import xml.etree.ElementTree
from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import matplotlib
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.text import Text
from PIL import Image

from gemmbench import charts
from gemmbench.charts.panel import spread, thinned
from gemmbench.facts.records import Problem, Run
from tests import fake_runs as fake


@pytest.fixture(autouse=True)
def _own_style() -> Iterator[None]:
    with matplotlib.rc_context():
        yield


def texts(axes: Axes) -> list[str]:
    return [item.get_text() for item in axes.findobj(Text) if item.get_text()]


def curve(axes: Axes, label: str) -> tuple[np.ndarray, np.ndarray]:
    line = next(line for line in axes.lines if line.get_label() == label)
    return np.asarray(line.get_xdata(), float), np.asarray(line.get_ydata(), float)


def only(figure: Figure) -> Axes:
    (axes,) = figure.axes
    return axes


@pytest.mark.parametrize("kind", charts.KINDS)
@pytest.mark.parametrize("suffix", charts.SUFFIXES)
def test_every_kind_in_every_format(kind: str, suffix: str, tmp_path: Path) -> None:
    path = tmp_path / f"chart{suffix}"
    run = fake.fake_peak() if kind == "peak" else fake.fake_troubled()
    charts.draw([run], kind, path)
    first = path.read_bytes()
    assert first.startswith({".png": b"\x89PNG", ".svg": b"<?xml", ".pdf": b"%PDF"}[suffix])
    charts.draw([run], kind, path)
    assert path.read_bytes() == first, "the same run must give the same file"


def test_throughput_series_axes_and_titles() -> None:
    axes = only(charts.figure([fake.fake_square()], "throughput"))
    x, y = curve(axes, "register")
    assert list(x) == list(fake.SIZES)
    assert y == pytest.approx([21.0, 33.1, 88.2, 180.0, 241.7, 260.9], rel=0.06)
    assert (axes.get_xscale(), axes.get_yscale()) == ("log", "log")
    assert list(axes.get_xticks()) == list(fake.SIZES)
    assert list(axes.get_xticks(minor=True)) == []
    assert "Intel(R) Xeon(R)" in axes.get_title(loc="left")
    assert "Intel OpenCL 2026.22.8.0" in axes.get_title(loc="left")
    assert any("float, kernel scope" in item for item in texts(axes))
    assert axes.get_xlabel() == "m = n = k"
    assert axes.get_ylabel() == "GFLOPS"


def test_numpy_is_dashed_black_and_the_peak_a_labelled_line() -> None:
    axes = only(charts.figure([fake.fake_square()], "throughput"))
    numpy = next(line for line in axes.lines if line.get_label() == "numpy")
    assert numpy.get_color() == "#000000"
    assert numpy.is_dashed()
    _, peak = curve(axes, "peak")
    assert peak == pytest.approx([345.0, 345.0], rel=0.01)
    assert "float peak 345" in texts(axes)


def test_missing_points_are_gaps_and_are_named() -> None:
    axes = only(charts.figure([fake.fake_troubled()], "throughput"))
    assert list(np.isnan(curve(axes, "tiled")[1])) == [False, False, True, False, False, True]
    assert list(np.isnan(curve(axes, "register")[1])) == [False, False, False, True, False, False]
    assert np.isnan(curve(axes, "dot-v8")[1]).all()
    words = " ".join(texts(axes)).replace("\n", " ")
    assert "tiled at 256 (wrong)" in words
    assert "dot-v8 (unsupported)" in words
    assert "peak" not in [line.get_label() for line in axes.lines]  # not measured in this run


def test_bands_hold_their_lines() -> None:
    axes = only(charts.figure([fake.fake_square()], "throughput"))
    band = axes.collections[1].get_paths()[0].vertices  # of tiled, the second series: 6 % noise at 64
    at_64 = band[np.isclose(band[:, 0], 64), 1]
    assert at_64.min() < curve(axes, "tiled")[1][0] < at_64.max()
    assert len(axes.collections) == 7


def test_every_line_differs_in_colour_and_marker() -> None:
    axes = only(charts.figure([fake.fake_square()], "throughput"))
    lines = [line for line in axes.lines if line.get_label() not in ("numpy", "peak")]
    assert len({line.get_color() for line in lines}) == len(lines) == 6
    assert len({line.get_marker() for line in lines}) == 6


def test_more_variants_than_colours_still_differ() -> None:
    rows = [
        fake.gemm_row(f"v{number}", Problem(n, n, n), 10.0 + number)
        for number in range(18)
        for n in (64, 128)
    ]
    axes = only(charts.figure([Run(fake.header(("square",)), tuple(rows))], "throughput"))
    looks = {
        (str(line.get_color()), str(line.get_linestyle()), str(line.get_marker())) for line in axes.lines
    }
    assert len(looks) == 18


@pytest.mark.parametrize("kind", ["throughput", "host-device", "time"])
@pytest.mark.parametrize("name", ["square", "troubled", "sweep-k"])
def test_words_at_the_line_ends_do_not_overlap(kind: str, name: str) -> None:
    figure = charts.figure([fake.ALL[name]()], kind)
    figure.draw_without_rendering()
    axes = only(figure)
    extents = [Text.get_window_extent(item) for item in axes.texts]  # of the words, not the lines to them
    boxes = [extent for extent in extents if extent.x0 > axes.bbox.x1]
    assert len(boxes) >= 3
    for number, one in enumerate(boxes):
        assert one.x1 <= figure.bbox.x1
        for other in boxes[:number]:
            assert min(one.y1, other.y1) - max(one.y0, other.y0) < 0


def test_host_device_marks_the_break_even() -> None:
    axes = only(charts.figure([fake.fake_square()], "host-device"))
    x, _ = curve(axes, "break-even")
    assert 512 < x[0] < 1024
    assert any(item.startswith("break-even m = 9") for item in texts(axes))
    assert {"register, host", "register, device", "numpy"} <= set(texts(axes))
    assert "naive, host" not in texts(axes)  # only the fastest
    register = [line for line in axes.lines if line.get_label() == "register"]
    host, device = (np.asarray(line.get_ydata(), float) for line in register)
    assert (host < device).all()


def test_host_device_without_a_break_even_has_no_mark() -> None:
    run = fake.fake_many()
    pocl = next(a for a in charts.figure([run], "host-device").axes if "PoCL" in a.get_title(loc="left"))
    assert "break-even" not in [line.get_label() for line in pocl.lines]


def test_time_falls_with_rate() -> None:
    axes = only(charts.figure([fake.fake_square()], "time"))
    _, y = curve(axes, "tiled")
    assert y[-1] == pytest.approx(2 * 2048**3 / 4.5e9, rel=0.02)
    figure = axes.get_figure()
    assert figure is not None
    figure.savefig(io.BytesIO())
    assert "1 ms" in [label.get_text() for label in axes.get_yticklabels()]


def test_a_panel_for_each_device_and_type() -> None:
    figure = charts.figure([fake.fake_many()], "throughput")
    titles = [(axes.get_title(loc="left").split(" | ")[1], texts(axes)) for axes in figure.axes]
    assert [title for title, _ in titles] == ["Intel OpenCL 2026.22.8.0"] * 2 + ["PoCL 3.0-rc2"] * 2
    assert sum(any("half, kernel" in word for word in words) for _, words in titles) == 2


def test_two_runs_lie_over_each_other_under_their_names() -> None:
    runs = [fake.fake_square(), replace(fake.fake_square(), path="somewhere/new.jsonl")]
    axes = only(charts.figure(runs, "throughput"))
    assert {"register (square)", "register (new)", "numpy, host (new)"} <= set(texts(axes))
    first, second = (line for line in axes.lines if line.get_label() == "register")
    assert first.get_color() == second.get_color()
    assert first.get_markerfacecolor() != second.get_markerfacecolor()


def test_peak_bars_labels_and_what_is_missing() -> None:
    axes = only(charts.figure([fake.fake_peak()], "peak"))
    heights = {bars.get_label(): bars.patches[0].get_height() for bars in axes.containers}
    assert heights["float 1"] == pytest.approx(345.0, rel=0.01)
    assert "int 8" not in heights
    assert not any(str(label).startswith("half") for label in heights)
    words = texts(axes)
    assert {"float", "double", "int (GIOPS)", "half", "?1,400", "failed"} <= set(words)
    assert any("unsupported" in word for word in words)
    suspect = next(bars.patches[0] for bars in axes.containers if bars.get_label() == "double 2")
    assert suspect.get_hatch()
    assert axes.get_ylim()[1] < 500  # a suspect figure does not set the scale


def test_hostile_names_stay_text(tmp_path: Path) -> None:
    path = tmp_path / "chart.svg"
    charts.draw([fake.fake_troubled()], "throughput", path)
    words = [item.text for item in xml.etree.ElementTree.parse(path).iter() if item.tag.endswith("text")]
    assert any(word and '[bold]x[/] | <b>&"$x^2$`' in word for word in words)


def test_the_users_own_matplotlib_style_does_not_leak_in_or_out(tmp_path: Path) -> None:
    charts.draw([fake.fake_square()], "throughput", tmp_path / "a.png")
    matplotlib.rcParams["lines.linewidth"] = 9.0
    matplotlib.rcParams["axes.facecolor"] = "red"
    charts.draw([fake.fake_square()], "throughput", tmp_path / "b.png")
    assert matplotlib.rcParams["lines.linewidth"] == 9.0
    assert (tmp_path / "a.png").read_bytes() == (tmp_path / "b.png").read_bytes()


def test_a_png_is_not_blank_and_readable_in_grey(tmp_path: Path) -> None:
    path = tmp_path / "chart.png"
    charts.draw([fake.fake_square()], "throughput", path)
    with Image.open(path) as picture:
        assert picture.width >= 1200
        assert np.asarray(picture.convert("L")).std() > 10


def test_names_in_any_script_are_drawn(tmp_path: Path) -> None:
    run = fake.fake_square()
    named = replace(run, header=replace(run.header, devices=(replace(fake.CPU, name="显卡 ﷽"),)))
    charts.draw([named], "throughput", tmp_path / "chart.png")


@pytest.mark.parametrize(
    ("name", "kind", "file", "message"),
    [
        ("square", "throughput", "chart.bmp", "must end in .png, .svg or .pdf"),
        ("square", "throughput", "chart", "must end in .png, .svg or .pdf"),
        ("square", "throughput", "nowhere/chart.png", "does not exist"),
        ("square", "pie", "chart.png", "unknown chart 'pie'; there are throughput"),
        ("peak", "throughput", "chart.png", "nothing to draw: peak.jsonl has no measured GEMM row"),
        ("workloads", "time", "chart.png", "nothing to draw: time needs several sizes"),
        ("troubled", "peak", "chart.png", "nothing to draw: bad.jsonl has no measured peak row"),
    ],
)
def test_what_cannot_be_drawn_is_one_sentence(
    name: str, kind: str, file: str, message: str, tmp_path: Path
) -> None:
    with pytest.raises(charts.ChartError, match=message) as found:
        charts.draw([fake.ALL[name]()], kind, tmp_path / file)
    assert "\n" not in str(found.value)
    assert list(tmp_path.iterdir()) == []


def test_a_folder_is_not_a_chart(tmp_path: Path) -> None:
    (tmp_path / "chart.png").mkdir()
    with pytest.raises(charts.ChartError, match="is a folder"):
        charts.check_path(tmp_path / "chart.png")


def test_default_kinds() -> None:
    assert charts.default_kind(fake.fake_square()) == "throughput"
    assert charts.default_kind(fake.fake_peak()) == "peak"


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
