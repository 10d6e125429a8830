"""Drivers that lack event times, or answer questions with zeros."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pyopencl as cl
import pytest

from gemmbench.gemm.opencl import GemmExecutor
from gemmbench.ladder import BY_NAME
from gemmbench.model.case import Policy
from gemmbench.model.device import DeviceFacts
from gemmbench.model.instrument import NotMeasuredError
from gemmbench.model.problem import Gemm
from gemmbench.model.row import NO_CLOCK
from gemmbench.opencl import discovery, drivers, runtime
from gemmbench.opencl.runtime import Runtime
from gemmbench.suite.plan import gemm_plan
from gemmbench.suite.selection import select
from tests.in_process import plan_case


class NoProfiling:
    """A queue class that refuses to profile, or whose events have no times."""

    def __init__(self, refuses: bool) -> None:
        self.refuses = refuses

    def __call__(self, context: Any, device: Any, properties: int = 0) -> Any:
        if properties and self.refuses:
            raise cl.LogicError("clCreateCommandQueue", cl.status_code.INVALID_QUEUE_PROPERTIES, "")
        return cl._cl.CommandQueue(context, device)  # its events raise PROFILING_INFO_NOT_AVAILABLE


@pytest.mark.every_driver
@pytest.mark.parametrize("refuses", [True, False])
def test_without_event_times_the_wall_clock_is_used_and_a_note_says_so(
    device: DeviceFacts, refuses: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pyopencl.CommandQueue", NoProfiling(refuses))
    opened = Runtime(device)
    assert not opened.has_clock
    case = plan_case(device, "naive", Gemm(64, 64, 64))
    bench = GemmExecutor(opened).prepare(case, Policy())
    assert bench.prepared.notes == (NO_CLOCK,)
    assert bench.verify("before").check.verdict == "ok"
    for clock in bench.prepared.clocks:
        batch = bench.start(clock, 5)
        assert all(seconds > 0 for seconds in batch.seconds.values())
    assert bench.verify("after").check.verdict == "ok"


def test_zeros_and_empty_lists_mean_the_minimum_of_the_specification() -> None:
    class Silent:
        """Answers every number with 0 and every list with nothing."""

        int_ptr = 0

        def get_info(self, key: int) -> Any:
            texts = (cl.device_info.NAME, cl.device_info.VERSION, cl.device_info.EXTENSIONS)
            return "" if key in texts else () if key == cl.device_info.MAX_WORK_ITEM_SIZES else 0

    platform: Any = SimpleNamespace(get_info=lambda key: "")
    facts = discovery._facts(0, 0, 0, platform, Silent(), drivers.Driver("", "system"), ())
    assert (facts.compute_units, facts.max_work_group_size, facts.max_work_item_sizes) == (1, 1, (1, 1, 1))
    assert (facts.local_mem_bytes, facts.max_alloc_bytes, facts.global_mem_bytes) == (
        32 << 10,
        *[128 << 20] * 2,
    )
    assert select([facts], "") == (facts,)
    for variant in BY_NAME.values():
        gemm_plan([facts], [variant], [Gemm(256, 256, 256)])  # a row or a case for each, and no exception


@pytest.mark.every_driver
def test_a_device_that_makes_no_context_says_so(device: DeviceFacts, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(_: object) -> None:
        raise cl.RuntimeError("Context failed: DEVICE_NOT_AVAILABLE")

    monkeypatch.setattr("pyopencl.Context", fail)
    with pytest.raises(NotMeasuredError, match=r"but Context failed: DEVICE_NOT_AVAILABLE.*Choose another"):
        Runtime(device)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        (b"Radeon\xae Pro", "Radeon\N{REPLACEMENT CHARACTER} Pro"),
        (b"\xb9\xdc\xc0\xed", 4 * "\N{REPLACEMENT CHARACTER}"),
        (b" \0", ""),
    ],
)
def test_a_name_that_is_not_utf_8_is_read_as_far_as_it_is(name: bytes, text: str) -> None:
    thing: Any = SimpleNamespace(get_info=lambda key: name.decode())
    assert discovery._text(thing, "NAME") == text


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        (
            "OUT_OF_RESOURCES",
            "the device ran out of memory or registers, was reset, or a kernel accessed memory outside its "
            "buffers",
        ),
        ("MEM_OBJECT_ALLOCATION_FAILURE", "the device ran out of memory"),
    ],
)
def test_out_of_resources_is_not_called_out_of_memory_alone(
    name: str, sentence: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runtime, "_code", lambda _: name)
    with pytest.raises(NotMeasuredError) as caught, runtime.errors():
        raise cl.RuntimeError("clFinish")
    assert caught.value.reason.startswith(f"{sentence}: ")
    assert caught.value.restart
