"""Charts of ratios: labels, intervals, what is left out."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import matplotlib
import pytest
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.text import Text

from gemmbench.chart_views import ratios
from gemmbench.charts import pane as charts
from gemmbench.charts.pane import Pane
from gemmbench.options.comparing import Rules
from gemmbench.regress.compare import compare
from gemmbench.regress.results import change
from tests import fake_runs as fake
from tests.compare_runs import again

SLOW = {("tiled", 512): 1.2, ("register", 512): 0.7}


@pytest.fixture(autouse=True)
def _own_style() -> Iterator[None]:
    with matplotlib.rc_context():
        yield


def painted(pane: Pane) -> Axes:
    figure = Figure(figsize=(7, pane.height))
    axes = figure.subplots()
    pane.paint(axes)
    return axes


def words(axes: Axes) -> str:
    return " ".join(item.get_text() for item in axes.findobj(Text)).replace("\n", " ")


def test_changes_and_their_intervals_the_slowest_first() -> None:
    found = compare([again(1), again(3)], [again(2, SLOW)], Rules(0.05))
    device, host = ratios(found)
    axes = painted(device)
    names = [label.get_text() for label in axes.get_yticklabels()]
    assert names[0] == "tiled 512"
    assert names[-1] == "register 512"
    changes = [bar.get_width() for group in axes.containers for bar in cast(Any, group).patches]
    assert changes == sorted(changes, reverse=True)
    assert changes[0] == pytest.approx(20, abs=3)
    assert (axes.containers[0].get_label(), axes.containers[-1].get_label()) == ("slower", "faster")
    (slower,) = (line for line in found.lines if line.verdict == "slower")
    assert slower.ratio is not None
    (interval,) = axes.collections[0].get_paths()
    assert list(cast(Any, interval.vertices)[:, 0]) == pytest.approx(
        [100 * (slower.ratio.low - 1), 100 * (slower.ratio.high - 1)]
    )
    assert axes.get_xlim()[0] < -30
    assert {"slower", "faster"} <= set(words(axes).split())
    assert "OpenBLAS" in words(painted(host))


def test_a_long_device_is_whole_in_the_title() -> None:
    """On two lines: a title that is cut does not say which driver was slower."""
    run = fake.fake_square()
    device = replace(run.header.devices[0], driver="2026.22.10.0.01_160000 for a server with many sockets")
    run = replace(run, header=replace(run.header, devices=(device,)))
    pane, _ = ratios(compare([again(1, run=run)], [again(2, SLOW, run=run)]))
    charts.set_style()
    title = painted(pane).get_title(loc="left")
    assert title.replace("\n", " ") == f"Change, {device.title.replace(' | ', ', ')}"
    assert max(map(len, title.split("\n"))) <= 70


def test_changes_have_the_unit_of_the_table_and_one_baseline_has_no_intervals() -> None:
    found = compare([again(1)], [again(2, {("tiled", 512): 3.3, ("register", 512): 0.377})])
    (device, _) = ratios(found)
    axes = painted(device)
    for line in found.lines:
        if line.ratio and line.verdict == "differs":
            assert change(line.ratio.median) in words(axes)
    assert [change(ratio) for ratio in (3.3, 0.377)] == ["+230 %", "-62.3 %"]
    assert not axes.collections
    assert "Black lines" not in words(axes)


def test_small_changes_are_left_out_and_counted() -> None:
    run = fake.fake_square()
    many = replace(run, rows=tuple(replace(row, label=str(n)) for n in range(3) for row in run.rows))
    many = replace(
        many,
        rows=tuple(replace(row, parameters={"N": n}) for n, row in enumerate(many.rows) if row.device == 0),
    )
    found = compare([again(1, run=many)], [again(2, SLOW, run=many)])
    (pane,) = ratios(found)
    axes = painted(pane)
    count = len([line for line in found.lines if line.ratio])
    assert len(axes.get_yticks()) == 12
    assert f"{count - 12} rows changed less." in words(axes)


def test_incomparable_rows_have_no_pane() -> None:
    other = again(2)
    other = replace(other, rows=tuple(replace(row, source="b") for row in other.rows))
    assert ratios(compare([again(1)], [other])) == []


def test_the_same_rows_give_the_same_file(tmp_path: Path) -> None:
    found = compare([again(1)], [again(2, SLOW)], Rules())
    path = tmp_path / "chart.svg"
    charts.draw_panes(lambda: ratios(found), path, "rows")
    first = path.read_bytes()
    charts.draw_panes(lambda: ratios(found), path, "rows")
    assert path.read_bytes() == first


def test_names_from_files_are_data(tmp_path: Path) -> None:
    run = again(1)
    run = replace(run, rows=tuple(replace(row, variant=fake.HOSTILE) for row in run.rows[:3]))
    path = tmp_path / "chart.svg"
    charts.draw_panes(lambda: ratios(compare([run], [run])), path, "rows")
    text = path.read_text(encoding="utf-8")
    assert "<b>" not in text
    assert "\x1b" not in text


def test_nothing_to_draw_is_said(tmp_path: Path) -> None:
    with pytest.raises(charts.ChartError, match="nothing to draw: there are no compared rows"):
        charts.draw_panes(list, tmp_path / "chart.svg", "compared rows")
