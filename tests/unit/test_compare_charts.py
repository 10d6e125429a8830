"""Charts of ratios: labels, intervals, what is left out."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import matplotlib
import numpy as np
import pytest
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.text import Text

from gemmbench.chart_views import ratios
from gemmbench.charts import pane as charts
from gemmbench.charts.pane import Pane
from gemmbench.options.rules import Rules, Thresholds
from gemmbench.regress.compare import compare
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


def test_ratios_and_their_intervals() -> None:
    found = compare([again(1)], [again(2, SLOW)], Rules(Thresholds(0.05)))
    device, host = ratios(found)
    axes = painted(device)
    lines = [line for line in found.lines if line.row.device == 0]
    labels = [label.get_text() for label in axes.get_yticklabels()]
    assert labels == [f"{line.row.variant} {line.row.problem.m}" for line in lines if line.row.problem]
    place = labels.index("tiled 512")
    (point,) = (each for each in axes.lines if list(np.asarray(each.get_ydata())) == [place])
    assert np.asarray(point.get_xdata())[0] == pytest.approx(1.2, abs=0.03)
    assert (point.get_label(), point.get_marker()) == ("slower", "D")
    (bar,) = (each for each in axes.lines if list(np.asarray(each.get_ydata())) == [place, place])
    (mine,) = (line for line in lines if line.verdict == "slower")
    assert mine.ratio is not None
    assert list(np.asarray(bar.get_xdata())) == [mine.ratio.low, mine.ratio.high]
    assert axes.get_xlim()[0] < 0.7
    assert "slower" in words(axes)
    assert "faster" in words(axes)
    assert "OpenBLAS" in words(painted(host))


def test_a_pane_says_what_it_leaves_out() -> None:
    run = fake.fake_square()
    many = replace(run, rows=tuple(replace(row, label=str(n)) for n in range(3) for row in run.rows))
    many = replace(
        many,
        rows=tuple(replace(row, parameters={"N": n}) for n, row in enumerate(many.rows) if row.device == 0),
    )
    (pane,) = ratios(compare([again(1, run=many)], [again(2, SLOW, run=many)]))
    axes = painted(pane)
    assert 0 < len(axes.get_yticks()) <= 60
    assert "further rows" in words(axes)


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
