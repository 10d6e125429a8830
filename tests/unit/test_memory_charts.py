"""The charts of memory: lines, gaps, labels."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

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


def panes(*runs: Run) -> list[Axes]:
    return chart_views.figure(runs or (RUN,), "memory").get_axes()


def line(axes: Axes, label: str) -> tuple[np.ndarray, np.ndarray]:
    (found,) = [one for one in axes.get_lines() if one.get_label() == label]
    return np.asarray(np.asarray(found.get_xdata())), np.asarray(np.asarray(found.get_ydata()))


def test_a_run_without_such_rows_is_refused() -> None:
    with pytest.raises(
        pane.ChartError, match=r"square\.jsonl has no measured memory, transfer or latency row"
    ):
        panes(fake.fake_square())


def test_a_memory_run_draws_it_by_default() -> None:
    assert chart_views.default_kind(RUN) == "memory"


def test_bandwidth_has_a_point_for_each_size_but_suspect_ones() -> None:
    sizes, rates = line(panes()[0], "working-set")
    assert list(sizes) == [4096 << place for place in range(16)]
    (suspect,) = np.flatnonzero(np.isnan(rates))
    assert sizes[suspect] == 32 << 20
    others = [index for index in range(16) if index != suspect]
    assert rates[others] == pytest.approx(np.array(fake_memory.STAIRS)[others], rel=0.01)


def test_the_last_level_cache_is_marked_where_it_is_known() -> None:
    axes = panes(fake_memory.fake_cpu())[0]
    assert list(line(axes, "cache")[0]) == [48 << 20] * 2
    assert "48 MiB cache" in [text.get_text() for text in axes.texts]
    assert "cache" not in [line.get_label() for line in panes()[0].lines]


def test_transfers_have_a_line_for_each_way_and_none_for_zero_copy() -> None:
    axes = panes()[2]
    assert {str(each.get_label()) for each in axes.get_lines()} == fake_memory.TRANSFERS.keys()
    for name, rates in fake_memory.TRANSFERS.items():
        assert line(axes, name)[1] == pytest.approx(rates, rel=0.05)


def test_latencies_are_a_chase_and_launches() -> None:
    _, chase, _, launches = panes()
    sizes, ns = line(chase, "pointer-chase")
    assert [int(size) for size, value in zip(sizes, ns, strict=True) if np.isnan(value)] == [64 << 20]
    assert ns[0] == pytest.approx(20, rel=0.01)
    assert [label.get_text() for label in launches.get_yticklabels()] == list(fake_memory.LAUNCHES)


def test_several_runs_have_panes_of_their_own() -> None:
    first, second, *_ = panes(RUN, replace(RUN, path="other.jsonl"))
    assert second.get_title("left").endswith("(other)")
    assert first.get_title("left").endswith("(memory)")
