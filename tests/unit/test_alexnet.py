"""AlexNet's products: what the net's rows add up to."""

from __future__ import annotations

from dataclasses import replace

import pytest

from gemmbench.exports.records import to_records
from gemmbench.gemm import workloads
from gemmbench.gemm.workloads import CONVOLUTIONS, DENSE, SETS
from gemmbench.model.row import Problem, Row
from gemmbench.model.run_file import Run
from gemmbench.views import show
from tests import fake_runs as fake
from tests.unit.test_tables import text
from tools import experiments


def net_run(without: str = "", slower: bool = False) -> Run:
    """Every product takes 1 ms; a second kernel is slower."""
    rows: list[Row] = []
    for shape in SETS["alexnet"].shapes(1, 1):
        problem, name = Problem(shape.m, shape.n, shape.k), shape.name.removeprefix("alexnet ")
        if name == without:
            rows.append(replace(fake.bad("tiled", problem, "skipped", "too slow"), label=shape.name))
            continue
        label = f"{shape.name} = token q/o" if name == "fc7" else shape.name
        rate = 1.01 * 2 * shape.m * shape.n * shape.k / 1e-3 * 1e-9  # the device scope takes 1.01 times that
        rows.append(replace(fake.gemm_row("tiled", problem, rate, spread=0.0), label=label))
        if slower:
            rows.append(replace(fake.gemm_row("naive", problem, rate / 2, spread=0.0), label=label))
    return Run(fake.header(("gemmbench", "workloads", "--set", "alexnet")), tuple(rows), "alexnet.jsonl")


def test_towers_run_twice_and_the_fastest_kernel_counts() -> None:
    (net,) = workloads.nets(net_run(slower=True))
    assert list(net.seconds.values()) == pytest.approx([1e-3 * runs for runs in (1, 2, 1, 2, 2, 1, 1, 1)])
    assert {product.variant for product in net.products.values()} == {"tiled"}
    assert net.whole_s == pytest.approx(11e-3)
    assert net.share == pytest.approx(8 / 11)
    assert "72.7" in experiments._alexnet(net_run())


def test_a_layer_without_a_figure_is_named_and_nothing_is_summed() -> None:
    run = net_run(without="fc6")
    (net,) = workloads.nets(run)
    sentence = "AlexNet's GEMMs are not summed, because there is no rate of fc6."
    assert net.sentence == sentence
    assert sentence in text(show(run))
    assert all("net_s" not in record for record in to_records(run))


def test_a_run_of_other_shapes_has_no_net() -> None:
    run = net_run()
    assert workloads.nets(replace(run, rows=tuple(row for row in run.rows if "fc8" not in row.label))) == ()
    assert workloads.nets(fake.fake_square()) == ()


@pytest.mark.parametrize("verbose", [False, True])
def test_the_table_has_the_share_of_the_convolutions(verbose: bool) -> None:
    table = " ".join(text(show(net_run(slower=True), verbose=verbose)).split())
    said = "AlexNet's GEMMs take 11.0 ms on the device, 73 % of it in the convolutions."
    assert table.count(said) == 1 + verbose


def test_json_says_what_each_row_adds_and_the_shares_are_a_whole() -> None:
    run = net_run(slower=True)
    records = to_records(run)
    assert sum(record.get("net_share", 0.0) for record in records) == pytest.approx(1.0)
    counted = {(record["variant"], record["label"]) for record in records if "net_s" in record}
    assert len(counted) == len(CONVOLUTIONS) + len(DENSE)
    assert ("naive", "alexnet fc6") not in counted
