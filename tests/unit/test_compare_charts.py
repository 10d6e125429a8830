"""Charts of ratios: labels, intervals, what is left out."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import cast

import matplotlib
import pytest
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from gemmbench.chart_views import ratios
from gemmbench.charts import pane as charts
from gemmbench.charts.pane import Pane
from gemmbench.model.run_file import Run
from gemmbench.regress.compare import Comparison, compare
from gemmbench.suite.options.comparing import Rules
from tests import drawn
from tests import fake_runs as fake
from tests.compare_runs import Slow, again

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


def many(seed: int, slow: Slow | None = None) -> Run:
    """Three times the rows of a device."""
    run = fake.fake_square()
    rows = [replace(row, label=str(n)) for n in range(3) for row in run.rows if row.device == 0]
    run = replace(run, rows=tuple(replace(row, parameters={"N": n}) for n, row in enumerate(rows)))
    return again(seed, slow, run=run)


COMPARED: dict[str, Callable[[], Comparison]] = {
    "the slowest first, with intervals": lambda: compare([again(1), again(3)], [again(2, SLOW)], Rules(0.05)),
    "one baseline has no intervals; large changes are per cent too": lambda: compare(
        [again(1)], [again(2, {("tiled", 512): 3.3, ("register", 512): 0.377})]
    ),
    "small changes are excluded and counted": lambda: compare([many(1)], [many(2, SLOW)]),
}


def test_charts_are_as_they_were(golden: Callable[[str, str], None]) -> None:
    sections = []
    for title, made in COMPARED.items():
        figures = [cast(Figure, painted(pane).figure) for pane in ratios(made())]
        described = (line for figure in figures for line in drawn.described(figure, is_styled=True))
        sections.append("\n".join([title, *described]))
    golden("compare-charts.txt", "\n\n".join(sections))


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


def test_incomparable_rows_have_no_pane() -> None:
    other = again(2)
    other = replace(other, rows=tuple(replace(row, source="b") for row in other.rows))
    assert [*ratios(compare([again(1)], [other]))] == []


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
