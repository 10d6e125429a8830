"""The search for the best shape, on a landscape that a script makes: no device, no time passes."""

from __future__ import annotations

import io
import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from rich.console import Console

from gemmbench import UsageError, views
from gemmbench.charts.pane import figure_of
from gemmbench.exports.records import series, to_records
from gemmbench.measure import child
from gemmbench.model.case import Case, Event, Finished, Policy
from gemmbench.model.device import DeviceFacts
from gemmbench.model.instrument import Handle, LostError, Prepared
from gemmbench.model.problem import Gemm
from gemmbench.model.row import Check, Row
from gemmbench.model.run_file import Run, RunFile, RunFileError, load
from gemmbench.options import build
from gemmbench.options.measuring import BestShape
from gemmbench.regress.baseline import repetitions
from gemmbench.stats import rates
from gemmbench.suite import best_shape, charts
from gemmbench.suite.best_shape import FINALISTS, ROUNDS, Search, Shape, Space, proposals, rate_of, shape_of
from gemmbench.suite.session import Steps
from tests import fake_runs
from tests.fake_instrument import FakeInstrument

BEST = (5632, 6144, 4096)
RATE = 8e14
SEARCH = Search(budget_s=20.0, most=8192)
POLICY = Policy(state="settled", settle_s=0.1, time_limit_s=100.0)
CASE = Case("gemm", 0, "cublas", "bfloat16", {}, Gemm(1024, 1024, 1024, "bfloat16"))

Landscape = Callable[[Shape], float]


def hill(shape: Shape) -> float:
    """A rate that falls by 2 % for every eighth that a length is off."""
    off = sum(abs(math.log(length / best)) for length, best in zip(shape, BEST, strict=True))
    return RATE * max(0.1, 1 - 0.16 * off)


def space(**others: Any) -> Space:
    return Space.of(replace(SEARCH, **others), fake_runs.GPU, "bfloat16")


def tried(landscape: Landscape, where: Space, most: int, seed: int = 1) -> list[Shape]:
    """The shapes that a search looks at."""
    search = proposals(where, seed)
    shapes = [next(search)]
    try:
        while len(shapes) < most:
            shapes.append(search.send(landscape(shapes[-1])))
    except StopIteration:
        pass
    return shapes


@pytest.mark.parametrize("seed", range(5))
def test_the_search_climbs_to_the_top(seed: int) -> None:
    shapes = tried(hill, space(), 60, seed)
    assert max(map(hill, shapes)) > 0.97 * RATE
    assert max(map(hill, shapes[:4])) < 0.96 * RATE  # squares alone do not
    assert len(set(shapes)) == len(shapes)
    assert shapes == tried(hill, space(), 60, seed)


def test_lengths_are_multiples_within_their_range_or_fixed() -> None:
    shapes = tried(hill, space(step=192, least=1500, most=4000, fixed=(None, None, 77)), 80)
    assert all(k == 77 for *_, k in shapes)
    lengths = {length for m, n, _ in shapes for length in (m, n)}
    assert all(length % 192 == 0 and 1500 <= length <= 4000 for length in lengths)


def test_a_search_ends_when_nothing_is_left() -> None:
    assert tried(hill, space(fixed=(256, 512, 77)), 9) == [(256, 512, 77)]
    assert len(tried(hill, space(least=1024, most=2048, step=1024), 99)) == 8


def test_matrices_fit_the_memory() -> None:
    small = replace(fake_runs.GPU, global_mem_bytes=16 * 4 * 2048**2 * 3)
    shapes = tried(hill, Space.of(SEARCH, small, "float"), 60)
    assert max(Gemm(*shape, "float").operand_bytes for shape in shapes) <= 4 * 2048**2 * 3
    assert (2048, 2048, 2048) in shapes


def test_whole_waves_are_tried_on_a_gpu_and_not_on_a_cpu() -> None:
    gpu = replace(fake_runs.GPU, compute_units=132)
    waves = tried(lambda _: 1.0, Space.of(SEARCH, gpu, "half"), 8)[4:]
    assert all((m // 128) * (n // 128) % 132 == 0 for m, n, _ in waves if max(m, n) < 8192)
    assert any(max(m, n) < 8192 for m, n, _ in waves)
    squares = tried(lambda _: 1.0, Space.of(SEARCH, fake_runs.CPU, "float"), 6)
    assert squares[:5] == [(length,) * 3 for length in (256, 512, 1024, 2048, 4096)]
    assert max(squares[5]) == 512  # and a neighbour of the first


class Worker(FakeInstrument):
    """A child whose problems take what a landscape says."""

    landscape: Landscape = staticmethod(hill)
    lucky: Shape | None = None  # fast once, in the search
    verified: dict[str, int]  # when: how many checks from the first on are wrong
    row_of = child.Worker.row_of

    def limit(self, seconds: float) -> None:
        self.log.append(("limit", seconds))

    def stop(self) -> None:
        self.log.append(("stop",))

    def prepare(
        self,
        case: Case,
        device: DeviceFacts | None,
        policy: Policy,
        like: int | None = None,
        problem: Gemm | None = None,
    ) -> Handle:
        each = problem or case.problem
        assert each is not None
        shape = each.m, each.n, each.k
        one_s = each.flops / self.landscape(shape)
        if shape == self.lucky:
            self.lucky, one_s = None, one_s / 2
        self.seconds[case.variant] = itertools.repeat(one_s)
        self.clock.now += 0.2
        return super().prepare(case, device, policy, like, problem)


def worker(landscape: Landscape = hill, **more: Any) -> Worker:
    made = Worker(prepared=Prepared(("device", "host")), **more)
    made.landscape = landscape
    return made


def ran(
    instrument: Worker,
    search: Search = SEARCH,
    file: RunFile | None = None,
    case: Case = CASE,
    devices: Sequence[DeviceFacts] = (fake_runs.GPU,),
) -> list[Event]:
    clock = instrument.clock
    steps = Steps(devices, POLICY, file)
    return [
        *best_shape.run(
            (case,), steps, instrument, search, clock,  # type: ignore[arg-type]  # a fake instrument
            sleep=lambda seconds: setattr(clock, "now", clock.now + seconds),
        )
    ]  # fmt: skip


def rows_of(events: Sequence[Event]) -> list[Row]:
    return [event.row for event in events if isinstance(event, Finished)]


def run_of(rows: Sequence[Row]) -> Run:
    header = replace(fake_runs.header(("best-shape",), (fake_runs.GPU,)), view="best-shape", scope="device")
    return Run(header, tuple(rows), "best.jsonl")


def hunt_of(rows: Sequence[Row]) -> best_shape.Hunt:
    (hunt,) = best_shape.hunts(run_of(rows))
    return hunt


def test_the_best_is_measured_in_both_states_and_verified_before_and_after() -> None:
    instrument = worker()
    hunt = hunt_of(rows_of(ran(instrument)))
    assert hunt.result is not None
    assert hunt.burst is not None
    assert hunt.settled is not None
    assert hill(shape_of(hunt.result)) > 0.94 * RATE
    assert hunt.burst.median == pytest.approx(hill(shape_of(hunt.result)))
    assert (hunt.result.check.verdict, hunt.result.check_after) == ("ok", Check("ok"))
    assert [entry[2] for entry in instrument.log if entry[0] == "verify"][-3:] == ["exact", "before", "after"]
    assert all(look.check.verdict == "none" for look in hunt.looks)


def test_finalists_are_taken_in_turn_and_every_other_round_backwards() -> None:
    stages = [event.stage for event in ran(worker()) if hasattr(event, "stage")]
    order = [stage.rpartition(" ")[2] for stage in stages if stage.startswith("round")]
    assert len(order) == FINALISTS * ROUNDS
    assert order[FINALISTS : 2 * FINALISTS] == order[:FINALISTS][::-1]


def test_a_figure_that_was_fast_by_chance_is_not_reported() -> None:
    instrument = worker()
    instrument.lucky = (2048, 2048, 2048)
    rows = rows_of(ran(instrument))
    hunt = hunt_of(rows)
    assert shape_of(hunt.ranked[0]) == (2048, 2048, 2048)
    assert hunt.result is not None
    assert hunt.burst is not None
    assert shape_of(hunt.result) != (2048, 2048, 2048)
    assert hunt.burst.median < rate_of(hunt.ranked[0])
    assert "a maximum of noise" in " ".join(shown(rows).split())


def test_the_budget_is_kept_by_the_search_and_long_looks_are_not_taken() -> None:
    instrument = worker(lambda shape: hill(shape) / 20_000)
    hunt = hunt_of(rows_of(ran(instrument, replace(SEARCH, budget_s=30.0, least=256))))
    assert sum(look.took_s or 0 for look in hunt.looks) < 30.0
    assert max(rates.gemm_of(look).flops for look in hunt.looks) * 6 / (RATE / 20_000) < 2 * 0.05 * 30
    assert hunt.settled is not None


def test_a_resumed_search_measures_no_shape_twice(tmp_path: Path) -> None:
    path, header = tmp_path / "best.jsonl", run_of(()).header
    whole = rows_of(ran(worker()))
    looks = [row for row in whole if row.kind == "look" and not row.phase]
    with RunFile.create(path, header) as file:
        for row in looks[:7]:
            file.append(row)
    instrument = worker()
    with RunFile.resume(path, header) as file:
        events = ran(instrument, file=file)
    assert [event.resumed for event in events if isinstance(event, Finished)][:8] == [True] * 7 + [False]
    again = hunt_of(rows_of(events))
    assert [shape_of(look) for look in again.looks[:7]] == [shape_of(look) for look in looks[:7]]
    assert len(again.looks) == pytest.approx(len(looks), abs=2)  # the time of the first counts
    with RunFile.resume(path, header) as file:
        finished = [event for event in ran(worker(), file=file) if isinstance(event, Finished)]
    assert all(event.resumed for event in finished)
    assert hunt_of(load(path).rows).result == again.result
    other = replace(CASE, source="of another kernel")
    with RunFile.create(tmp_path / "other.jsonl", header) as file:
        file.append(replace(looks[0], source="of a kernel"))
    with (
        RunFile.resume(tmp_path / "other.jsonl", header) as file,
        pytest.raises(RunFileError, match="other kernel sources"),
    ):
        ran(worker(), file=file, case=other)


def test_a_wrong_kernel_ends_the_search_at_once() -> None:
    rows = rows_of(ran(worker(verdicts={"exact": Check("wrong", reasons=("C[0][0] is 1, not 2",))})))
    assert [(row.kind, row.status) for row in rows] == [("look", "wrong"), ("gemm", "wrong")]
    assert "C[0][0]" in shown(rows)


def test_where_the_best_is_wrong_the_next_is_taken() -> None:
    instrument = worker()
    right = instrument.verify
    wrong = iter([Check("wrong", reasons=("the last column is zero",))])

    def verify(handle: int, when: Any) -> Any:
        answer = right(handle, when)
        return replace(answer, check=next(wrong, answer.check)) if when == "before" else answer

    instrument.verify = verify  # type: ignore[method-assign]  # of this instance alone
    rows = rows_of(ran(instrument))
    first, second = [row for row in rows if row.kind == "gemm"]
    assert (first.status, second.status) == ("wrong", "ok")
    finals = sorted((row for row in rows if row.phase), key=rate_of, reverse=True)
    assert [shape_of(row) for row in (first, second)] == [shape_of(row) for row in finals[:2]]


def test_a_shape_that_fails_has_a_row_and_the_search_goes_on() -> None:
    instrument = worker(faults={6: LostError("crashed", "out of memory")})
    rows = rows_of(ran(instrument))
    assert [row.reason for row in rows if row.status == "crashed"] == ["out of memory"]
    assert rows[-1].kind == "gemm"
    assert rows[-1].status == "ok"


def shown(rows: Sequence[Row], width: int = 80) -> str:
    console = Console(width=width, record=True, file=io.StringIO())
    console.print(views.show(run_of(rows)))
    return console.export_text()


def test_the_table_names_the_shape_its_protocol_and_both_states() -> None:
    rows = rows_of(ran(worker()))
    text = shown(rows)
    assert max(map(len, text.splitlines())) <= 80
    flat = " ".join(text.split())
    assert "TFLOPS in a burst" in flat
    assert "settled" in flat
    assert "C not verified" in flat
    hunt = hunt_of(rows)
    assert rates.gemm_of(hunt.first).shape in flat


def test_an_interrupted_search_says_how_it_goes_on() -> None:
    looks = [row for row in rows_of(ran(worker())) if row.kind == "look" and not row.phase]
    flat = " ".join(shown(looks).split())
    assert "interrupted: cublas: --resume goes on with the search" in flat


def test_looks_are_in_the_records_and_nowhere_else() -> None:
    run = run_of(rows_of(ran(worker())))
    records = to_records(run)
    looks = [record for record in records if record["kind"] == "look"]
    assert looks
    assert all(record["gflops"] > 0 and record["m"] for record in looks)
    (best,) = [record for record in records if record["kind"] == "gemm"]
    assert best["burst_gflops"] == pytest.approx(best["gflops"], rel=0.05)
    assert {each.row.kind for each in series(run)} == {"gemm"}
    assert {row.kind for each in repetitions(run, run.header) for row in each.rows.values()} == {"gemm"}


def test_the_chart_has_every_look_and_the_best() -> None:
    run = run_of(rows_of(ran(worker())))
    figure = figure_of(lambda: charts.best_shape_panes([run], {}), "", 1)
    (axes,) = figure.axes
    assert len(np.asarray(axes.collections[0].get_offsets())) == len(hunt_of(run.rows).ranked)
    assert len(axes.lines) == 2


@pytest.mark.parametrize(
    ("values", "says"),
    [
        ({"min": 512, "max": 256}, "--min 512 is more than --max 256"),
        ({"step": 512, "max": 256}, "--step 512 is more than --max 256"),
        ({"params": ("TS=8,16",), "kernels": "tiled"}, "one value each"),
        ({"budget": 0}, "not above 0"),
    ],
)
def test_what_cannot_be_searched_is_refused(values: dict[str, Any], says: str) -> None:
    with pytest.raises(UsageError, match=says):
        build(BestShape, values)


def test_best_is_the_first_kernel_that_a_device_runs() -> None:
    def planned(**values: Any) -> list[tuple[str, str]]:
        plan = build(BestShape, values).plan([fake_runs.CPU], lambda *_: None)
        return [(step.variant, step.dtype) for step in plan if isinstance(step, Case)]

    assert planned(dtype="float,double") == [("cpu-packed", "float"), ("cpu-packed", "double")]
    assert planned(kernels="numpy,best,tiled") == [
        (name, "float") for name in ("tiled", "cpu-packed", "numpy")
    ]
