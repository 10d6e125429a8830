"""Memory cases on real devices, with sets small enough for a test."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from gemmbench.model.case import Case, Policy
from gemmbench.model.device import DeviceFacts
from gemmbench.model.row import Row
from gemmbench.model.units import GIB, KIB
from gemmbench.opencl.runtime import Runtime
from gemmbench.probes.memory import FAMILIES, memory_plan
from gemmbench.probes.opencl import ProbeExecutor
from tests import in_process

POLICY = Policy(budget_s=0.05, batch_s=0.001, min_batches=3)
WIDTHS = (1, 4, 16)
SIZES = (4 * KIB, 64 * KIB)


def small(device: DeviceFacts) -> DeviceFacts:
    """The device as if its caches were tiny, so that the sets are."""
    return replace(
        device,
        cache_bytes=0,
        last_level_cache_bytes=64 * KIB,
        global_mem_bytes=min(device.global_mem_bytes, GIB // 8),
    )


def cases(device: DeviceFacts) -> Iterator[Case]:
    """Every probe, at some of its widths and sizes."""
    for step in memory_plan([small(device)], tuple(FAMILIES)):
        if (
            isinstance(step, Case)
            and step.parameters.get("width", WIDTHS[0]) in WIDTHS
            and step.parameters.get("bytes", SIZES[0]) in SIZES
        ):
            yield step


def case(device: DeviceFacts, variant: str) -> Case:
    """The last of a probe's cases."""
    return [case for case in cases(device) if case.variant == variant][-1]


def run(device: DeviceFacts, case: Case, fresh: bool = False) -> Row:
    """Run one case in this process; in a context of its own if something was broken for it."""
    opened = Runtime(small(device)) if fresh else _opened(device)
    return in_process.measured(ProbeExecutor(opened), case, POLICY, small(device))


_RUNTIMES: dict[int, Runtime] = {}


def _opened(device: DeviceFacts) -> Runtime:
    if device.index not in _RUNTIMES:
        _RUNTIMES[device.index] = Runtime(small(device))
    return _RUNTIMES[device.index]
