"""The charts of memory: lines, gaps, labels."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import matplotlib
import numpy as np
import pytest
from matplotlib.axes import Axes

from gemmbench import chart_views
from gemmbench.charts import pane
from gemmbench.model.run_file import Run
from tests import fake_memory
from tests import fake_runs as fake

RUN = fake_memory.fake_memory()


@pytest.fixture(autouse=True)
def _own_style() -> Iterator[None]:
    with matplotlib.rc_context():
        yield


def panes(kind: str, *runs: Run) -> list[Axes]:
    return chart_views.figure(runs or (RUN,), kind).get_axes()


def words(axes: Axes) -> str:
    return " ".join(text.get_text() for text in axes.texts)


def line(axes: Axes, label: str) -> tuple[np.ndarray, np.ndarray]:
    (found,) = [one for one in axes.get_lines() if one.get_label() == label]
    return np.asarray(np.asarray(found.get_xdata())), np.asarray(np.asarray(found.get_ydata()))


@pytest.mark.parametrize("kind", ["staircase", "transfer", "latency"])
def test_the_same_run_gives_the_same_file(kind: str, tmp_path: Path) -> None:
    path = tmp_path / "chart.svg"
    chart_views.draw([RUN], kind, path)
    first = path.read_bytes()
    chart_views.draw([RUN], kind, path)
    assert path.read_bytes() == first


@pytest.mark.parametrize("kind", ["staircase", "transfer", "latency"])
def test_a_run_without_such_rows_is_told_so(kind: str) -> None:
    with pytest.raises(pane.ChartError, match=r"square\.jsonl has no measured \S+ row"):
        chart_views.figure([fake.fake_square()], kind)


def test_a_memory_run_draws_its_staircase_by_default() -> None:
    assert chart_views.default_kind(RUN) == "staircase"


def test_the_staircase_has_a_point_for_each_size() -> None:
    (axes,) = panes("staircase")
    sizes, rates = line(axes, "working-set")
    assert list(sizes) == [4096 << place for place in range(16)]
    assert rates == pytest.approx(fake_memory.STAIRS, rel=0.01)
    assert [
        len(np.asarray(one.get_xdata())) for one in axes.get_lines() if one.get_label() == "_suspect"
    ] == [1]
    assert "Hollow: suspect, at 32 MiB." in words(axes)


def test_the_last_level_cache_is_marked_where_it_is_known() -> None:
    (axes,) = panes("staircase", fake_memory.fake_cpu())
    assert list(line(axes, "cache")[0]) == [48 << 20] * 2
    assert "cache 48 MiB" in words(axes)
    assert "cache" not in words(panes("staircase")[0])


def test_transfers_have_a_line_for_each_way_and_none_for_zero_copy() -> None:
    (axes,) = panes("transfer")
    for name, rates in fake_memory.TRANSFERS.items():
        assert line(axes, name)[1] == pytest.approx(rates, rel=0.05)
    assert "Zero-copy, so that nothing is transferred: upload-mapped, download-mapped." in words(axes)
    assert not [one for one in axes.get_lines() if str(one.get_label()).endswith("mapped")]


def test_latencies_are_a_chase_and_launches() -> None:
    chase, launches = panes("latency")
    sizes, ns = line(chase, "pointer-chase")
    assert [int(size) for size, value in zip(sizes, ns, strict=True) if np.isnan(value)] == [64 << 20]
    assert ns[0] == pytest.approx(20, rel=0.01)
    assert "No point: pointer-chase (timed-out) at 64 MiB" in words(chase)
    assert [label.get_text() for label in launches.get_yticklabels()] == list(fake_memory.LAUNCHES)


def test_several_runs_have_panes_of_their_own() -> None:
    other = replace(RUN, path="other.jsonl")
    first, second = panes("staircase", RUN, other)
    assert "other" in second.get_title("left")
    assert "memory" in first.get_title("left")
