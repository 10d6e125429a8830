"""AlexNet end to end: what im2col makes of an image, and what the net's rows add up to."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from gemmbench import api
from gemmbench.exports.records import to_csv, to_records
from gemmbench.gemm import opencl_bench, workloads
from gemmbench.gemm.workloads import CONVOLUTIONS, DENSE, SETS, Convolution
from gemmbench.model.case import Case, Policy, Skip
from gemmbench.model.row import Check, Problem, Row, Status, Work
from gemmbench.model.run_file import Run
from gemmbench.options.measuring import Workloads
from gemmbench.report.notes import WORDS
from gemmbench.stats import rates
from gemmbench.views import show
from tests import fake_runs as fake
from tests.unit.test_shape_tables import text
from tools import experiments

LAYERS = [
    #           name    in out size stride pad edge groups
    Convolution("small", 3, 4, 3, 1, 1, 7, 1),
    Convolution("strided", 2, 3, 5, 2, 0, 11, 1),
    Convolution("towers", 4, 6, 3, 2, 1, 8, 2),
]


@pytest.mark.parametrize("layer", LAYERS, ids=lambda layer: layer.name)
def test_a_product_with_the_lowered_images_is_the_convolution(layer: Convolution) -> None:
    from scipy import signal  # a second to import, which only who runs this test should pay

    rng = np.random.default_rng(1)
    channels, shape = layer.channels // layer.groups, layer.shape(2)
    images = rng.integers(-9, 9, (2, channels, layer.edge, layer.edge))
    filters = rng.integers(-9, 9, (shape.m, channels, layer.size, layer.size))
    columns = workloads.lowered(images, layer)
    assert columns.shape == (shape.k, shape.n)
    product = (filters.reshape(shape.m, -1) @ columns).reshape(shape.m, 2, layer.out, layer.out)
    pad, step = layer.pad, layer.stride
    for number, image in enumerate(images):
        padded = np.pad(image, ((0, 0), (pad, pad), (pad, pad)))
        for index, weights in enumerate(filters):
            whole = signal.correlate(padded, weights, mode="valid", method="direct")[0]
            assert (product[index, number] == whole[::step, ::step]).all()


def test_the_plan_lowers_before_it_multiplies_and_only_for_alexnet() -> None:
    options = Workloads(set="alexnet", kernels="naive", peak=False, batch=2)
    steps = options.plan([fake.CPU, fake.GPU], lambda *_: None)
    cases = [step for step in steps if isinstance(step, Case)]
    lowered = [case for case in cases if case.kind == "lowering"]
    assert [(case.device, case.parameters["layer"]) for case in lowered] == [
        (device, layer.name) for device in (0, 1) for layer in CONVOLUTIONS
    ]
    assert cases[: len(lowered)] == lowered
    problem = lowered[1].problem
    assert problem is not None
    assert (problem.m, problem.n, problem.k, problem.label) == (128, 2 * 729, 1200, "alexnet conv2")
    assert lowered[1].source != lowered[1 + len(CONVOLUTIONS)].source  # a GPU copies fewer rows each
    other = Workloads(set="odd", kernels="naive", peak=False).plan([fake.CPU], lambda *_: None)
    assert all((step.row if isinstance(step, Skip) else step).kind == "gemm" for step in other)


def test_a_type_that_no_kernel_multiplies_there_is_not_lowered() -> None:
    options = Workloads(set="alexnet", kernels="naive", peak=False, dtype="half")
    steps = options.plan([replace(fake.CPU, dtypes=("float",))], lambda *_: None)
    assert "lowering" not in {(step.row if isinstance(step, Skip) else step).kind for step in steps}


def test_what_does_not_fit_in_one_piece_is_skipped() -> None:
    options = Workloads(set="alexnet", kernels="naive", peak=False)
    steps = options.plan([replace(fake.CPU, max_alloc_bytes=4_000_000)], lambda *_: None)
    rows = [step.row for step in steps if isinstance(step, Skip) and step.row.kind == "lowering"]
    assert [row.parameters["layer"] for row in rows] == ["conv1"]  # 363 x 3025 floats
    assert rows[0].reason.startswith("needs 4.19 MiB in one piece, the device gives 3.81 MiB")


def net_run(without: str = "", lowered: bool = True, slower: bool = False) -> Run:
    """Every product takes 1 ms, every lowering 0.1 ms; a second kernel is slower."""
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
        if name.startswith("conv") and lowered:
            rows.append(
                Row(
                    "lowering", 0, workloads.IM2COL, "float", {"layer": name, "batch": 1}, "ok",
                    problem=problem, label=shape.name, work=Work(bytes=1000), check=Check("ok"),
                    samples={name: fake.scope(1e-4, 0.0) for name in ("kernel", "device")},
                )
            )  # fmt: skip
    return Run(fake.header(("gemmbench", "workloads", "--set", "alexnet")), tuple(rows), "alexnet.jsonl")


def test_towers_run_twice_and_the_fastest_kernel_counts() -> None:
    (net,) = workloads.nets(net_run(slower=True))
    assert [layer.runs for layer in net.layers] == [1, 2, 1, 2, 2, 1, 1, 1]
    assert {layer.product.variant for layer in net.layers if layer.product} == {"tiled"}
    assert net.lowering_s == pytest.approx(8e-4)
    assert net.convolutions_s == pytest.approx(8e-3 + 8e-4)
    assert net.whole_s == pytest.approx(11e-3 + 8e-4)
    assert net.sentence == "convolutions take 74.6 % of 11.8 ms (lowering 6.8 %, products 67.8 %)"


def test_a_layer_without_a_figure_is_named_and_nothing_is_summed() -> None:
    run = net_run(without="fc6")
    (net,) = workloads.nets(run)
    assert net.sentence == "not summed: no figure of fc6"
    assert "AlexNet: not summed: no figure of fc6." in text(show(run))
    assert all("net_s" not in record for record in to_records(run))


def test_a_run_without_lowering_says_so() -> None:
    (net,) = workloads.nets(net_run(lowered=False))
    assert net.sentence == (
        "convolutions take 72.7 % of 11.0 ms (products 72.7 %); "
        "without the lowering of conv1, conv2, conv3, conv4, conv5"
    )


def unlowered(status: Status, reason: str) -> Run:
    """A run whose second convolution has no lowering."""
    run = net_run()

    def lost(row: Row) -> Row:
        is_it = row.kind == "lowering" and row.parameters["layer"] == "conv2"
        return replace(row, status=status, reason=reason, samples={}) if is_it else row

    return replace(run, rows=tuple(map(lost, run.rows)))


@pytest.mark.parametrize("status", ["wrong", "failed", "skipped"])
def test_a_lowering_without_a_figure_is_named_with_its_reason(status: Status) -> None:
    run = unlowered(status, "3 of 9 elements differ")
    table = " ".join(text(show(run), 120).split())
    assert f"{WORDS[status]}: alexnet conv2: 3 of 9 elements differ" in table
    assert "without the lowering of conv2" in table
    assert api.Run(run.header, run.rows).ok == (status != "wrong")  # what the exit status is made of
    assert experiments._alexnet(run) == status
    assert "74.6" in experiments._alexnet(net_run())


def test_a_run_of_other_shapes_has_no_net() -> None:
    run = net_run()
    assert workloads.nets(replace(run, rows=tuple(row for row in run.rows if "fc8" not in row.label))) == ()
    assert workloads.nets(fake.fake_square()) == ()


def test_the_table_has_every_layer_and_the_share_of_the_convolutions() -> None:
    table = text(show(net_run(slower=True)))
    lines = [line.split() for line in table.splitlines()]
    assert ["conv2", "2", "200", "us", "2.00", "ms", "2.20", "ms", "18.6", "%", "tiled"] in lines
    assert ["fc7", "1", "-", "1.00", "ms", "1.00", "ms", "8.5", "%", "tiled"] in lines
    assert ["convolutions", "800", "us", "8.00", "ms", "8.80", "ms", "74.6", "%"] in lines
    assert ["net", "800", "us", "11.0", "ms", "11.8", "ms", "100.0", "%"] in lines
    assert "AlexNet: convolutions take 74.6 % of 11.8 ms (lowering 6.8 %, products 67.8 %)." in " ".join(
        table.split()
    )
    assert max(map(len, table.splitlines())) <= 80


def test_json_says_what_each_row_adds_and_the_shares_are_a_whole() -> None:
    run = net_run(slower=True)
    records = to_records(run)
    assert sum(record.get("net_share", 0.0) for record in records) == pytest.approx(1.0)
    counted = {(record["variant"], record["label"]) for record in records if "net_s" in record}
    assert len(counted) == len(CONVOLUTIONS) + len(CONVOLUTIONS) + len(DENSE)
    assert ("naive", "alexnet fc6") not in counted
    assert "lowering,im2col,0," in to_csv(run)


def test_a_lowering_has_a_byte_rate_and_no_flops() -> None:
    (row, *_) = [row for row in net_run().rows if row.kind == "lowering"]
    assert (rates.flops_of(row), rates.shown_rate(row, "kernel")) == (0, None)
    rate = rates.byte_rate(row)
    assert rate is not None
    assert rate.median == pytest.approx(1000 / 1e-4)


class LoweringStep:
    """im2col on a device that is not here: writes the matrix until it is broken."""

    role = "multiply"

    def __init__(self, bench: opencl_bench.LoweringBench) -> None:
        self.bench, self.is_broken = bench, False

    def enqueue(self, queue: object) -> object:
        if not self.is_broken:
            copied(queue, self.bench._result, self.bench._expected)
        return SimpleNamespace(wait=lambda: None, profile=SimpleNamespace(start=0, end=1000))


def copied(_: object, to: np.ndarray, values: np.ndarray) -> None:
    to.reshape(-1).view(np.uint8)[:] = values.reshape(-1).view(np.uint8)


@pytest.fixture
def runtime(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setattr("pyopencl.enqueue_copy", copied)
    kernel = SimpleNamespace(set_args=lambda *_: None)
    return SimpleNamespace(
        facts=fake.CPU, queue=None, launch_s=1e-6, filled=np.copy, span=lambda: None,
        buffer=lambda size: np.zeros(size, np.uint8),
        build=lambda *_: SimpleNamespace(seconds=0.1), kernel=lambda *_: kernel,
    )  # fmt: skip


CONV3 = Case("lowering", 0, workloads.IM2COL, "float", {"layer": "conv3", "batch": 1})


def test_a_lowering_is_checked_as_the_last_batch_left_it(runtime: Any) -> None:
    bench = opencl_bench.LoweringBench(runtime, CONV3, Policy())
    bench._step = step = LoweringStep(bench)  # type: ignore[assignment]
    for when in ("before", "after"):
        assert bench.verify(when).check.verdict == "ok"
    step.is_broken = True  # in the batches alone: a run by itself is right
    bench.start("device", 2)
    step.is_broken = False
    check = bench.verify("after").check
    assert (check.verdict, len(check.reasons)) == ("wrong", 1)
    assert check.reasons[0].startswith("after the last batch: ")
    bench.start("device", 2)
    assert bench.verify("after").check.verdict == "ok"


def test_a_lowering_that_is_to_be_cold_says_that_it_is_not(runtime: Any) -> None:
    notes = [
        opencl_bench.LoweringBench(runtime, CONV3, Policy(cold=cold)).prepared.notes for cold in (False, True)
    ]
    assert notes[0] == ()
    assert "stays in the cache" in notes[1][0]
