"""From which size on the device pays: one answer for tables and charts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import pytest

from gemmbench.model.row import Row
from gemmbench.model.run_file import Run
from gemmbench.stats.panels import Panel, break_evens, crossing, panels
from tests.unit.test_rates import gemm
from tests.unit.test_run_file import HEADER

SIZES = (64, 128, 256, 512)


def panel(times: Mapping[str, Mapping[int, float]]) -> tuple[Run, Panel]:
    """Seconds in the host scope by variant and size; numpy ran on the host, libraries have no source."""

    def row(variant: str, size: int, seconds: float) -> Row:
        made = gemm(variant, size, seconds, device=-1 if variant == "numpy" else 0)
        return replace(made, source="" if variant in ("numpy", "cublas") else "abc")

    rows = [row(variant, size, s) for variant, line in times.items() for size, s in line.items()]
    run = Run(HEADER, tuple(rows))
    (found,) = panels(run, "m")
    return run, found


KERNEL = {size: 1e-3 + 1e-6 * size for size in SIZES}
HOST = {size: 1e-5 * size for size in SIZES}


def test_it_lies_between_the_sizes_where_the_lead_changes() -> None:
    (even,) = break_evens(*panel({"naive": KERNEL, "numpy": HOST}))
    assert even.size is not None
    assert even.size == pytest.approx(111, rel=0.05)  # 1e-3 + 1e-6 s = 1e-5 s
    assert 64 < (even.low or 0) < even.size < (even.high or 0) < 128
    assert not even.from_start
    assert even.lead == pytest.approx(5.12e-3 / 1.512e-3)
    assert even.sizes[-1] == 512


def test_libraries_have_none() -> None:
    quick = {size: seconds / 2 for size, seconds in KERNEL.items()}
    shown = panel({"cublas": quick, "naive": KERNEL, "tiled": quick, "numpy": HOST})
    assert [even.kernel.variant for even in break_evens(*shown)] == ["tiled", "naive"]
    assert break_evens(*panel({"cublas": quick, "numpy": HOST})) == ()


def test_out_of_range_or_from_the_start() -> None:
    (even,) = break_evens(*panel({"naive": {64: 1.0, 128: 1.0}, "numpy": {64: 0.1, 128: 0.1}}))
    assert (even.size, even.low, even.high) == (None, None, None)
    (even,) = break_evens(*panel({"naive": {64: 0.1, 128: 0.1}, "numpy": {64: 1.0, 128: 1.0}}))
    assert (even.size, even.from_start) == (64, True)


def test_the_earliest_comes_first_and_what_never_wins_last() -> None:
    late, never = dict.fromkeys(SIZES, 2.8e-3), dict.fromkeys(SIZES, 1.0)
    evens = break_evens(*panel({"never": never, "late": late, "naive": KERNEL, "numpy": HOST}))
    assert [even.kernel.variant for even in evens] == ["naive", "late", "never"]


def test_of_two_from_the_start_the_one_with_the_greater_lead_comes_first() -> None:
    halves = {variant: dict.fromkeys(SIZES, seconds) for variant, seconds in (("slow", 2e-4), ("fast", 1e-4))}
    evens = break_evens(*panel({**halves, "numpy": HOST}))
    assert [even.kernel.variant for even in evens] == ["fast", "slow"]


def test_none_without_the_hosts_blas_or_a_size_in_common() -> None:
    assert break_evens(*panel({"naive": KERNEL})) == ()
    assert break_evens(*panel({"naive": {64: 1.0}, "numpy": {128: 1.0}})) == ()


def test_a_lead_that_is_lost_again_is_no_crossing() -> None:
    assert crossing([(64, 0.5), (128, 0.5), (256, -1.5)]) is None
    assert crossing([(64, -1.0), (256, 1.0)]) == pytest.approx(128)
    assert crossing([(64, 0.1), (128, -1.0), (512, 1.0)]) == pytest.approx(256)
    assert crossing([]) is None
