"""The clock by a device's own counters: scripted counters, no device."""

from __future__ import annotations

import csv
import io
import json
from dataclasses import replace

import numpy as np
import pytest

from gemmbench import ladder, views
from gemmbench.exports import records
from gemmbench.measure.conditions import Monitor, assigned
from gemmbench.model.device import Conditions, Reading, Readings, joined
from gemmbench.model.instrument import Batch
from gemmbench.model.row import Problem
from gemmbench.model.run_file import Run
from gemmbench.opencl.runtime import average_mhz
from gemmbench.stats import conditions
from tests import fake_runs as fake
from tests.unit.test_tables import text

NS = 1 << 61  # of a timer that counts from 1970: floating point would lose its last hundreds


def stamps(*units: tuple[int, int, int]) -> np.ndarray:
    return np.array([(unit, counted, NS + ns) for unit, counted, ns in units], np.uint64)


def test_the_clock_is_the_mean_over_units_of_their_cycles_in_their_time() -> None:
    before = stamps((0, 500, 0), (1, 9_000_000, 10))
    after = stamps((1, 9_000_000 + 14_000_000, 10_000_010), (0, 500 + 15_000_000, 10_000_000))
    assert average_mhz(before, after) == 1450.0


def test_units_that_only_one_look_saw_and_second_groups_of_a_unit_do_not_count() -> None:
    before = stamps((0, 0, 0), (0, 7, 7), (3, 1, 1))
    after = stamps((0, 20_000_000, 10_000_000), (0, 21, 10_000_001), (2, 5, 5))
    assert average_mhz(before, after) == 2000.0


@pytest.mark.parametrize("after", [(0, 100, 5), (0, 200, 0), (1, 200, 9)])
def test_counters_that_stand_still_tell_no_clock(after: tuple[int, int, int]) -> None:
    assert average_mhz(stamps((0, 100, 0)), stamps(after)) is None


# --- in the conditions of a row -----------------------------------------------------------------------------


def batch(begin: float, mhz: float | None) -> Batch:
    return Batch({"kernel": 0.001}, begin, begin + 0.01, mhz=mhz)


def test_what_batches_counted_stands_beside_the_readings() -> None:
    batches = batch(1.0, 1451.5), batch(2.0, None)
    alone = assigned([], batches)
    assert (alone.begin_s, alone.counted_mhz, alone.clock_mhz) == ((1.0, 2.0), (1451.5, None), ())
    beside = assigned([Reading(1.005, 1440.0)], batches)
    assert (beside.clock_mhz, beside.counted_mhz) == ((1440.0, None), (1451.5, None))
    assert assigned([Reading(1.005, 1440.0)], [batch(1.0, None)]).counted_mhz == ()
    assert assigned([], [batch(1.0, None)]) == Readings()


def test_counters_need_neither_nvml_nor_proc() -> None:
    monitor = Monitor(fake.CPU, look=lambda now: None)
    monitor.begin()
    read = monitor.end("device", [batch(1.0, 1500.0)])
    assert read is not None
    assert read.windows["device"].counted_mhz == (1500.0,)
    both = joined([read, read])
    assert both is not None
    assert both.windows["device"].counted_mhz == (1500.0, 1500.0)


def test_tables_and_files_have_it() -> None:
    window = Readings(begin_s=(0.0, 1.0, 2.0), counted_mhz=(1500.0, 1500.0, 750.0))
    row = fake.gemm_row("naive", Problem(512, 512, 512), 1.0)
    row = replace(row, conditions=Conditions(windows={"device": window}))
    run = Run(fake.header(["square"], (fake.GPU,)), (row,))
    table = text(views.show(run, ladder.ORDER, True), 160)
    assert "counted MHz" in table
    (line,) = (line for line in table.splitlines() if "naive float 512x512x512" in line and "MHz" not in line)
    assert "1,500" in line
    (flat,) = csv.DictReader(io.StringIO(records.to_csv(run)))
    (record,) = json.loads(records.to_json(run))
    assert float(flat["counted_mhz"]) == record["counted_mhz"] == 1500.0
    assert conditions.counted_mhz(replace(row, conditions=None)) is None
