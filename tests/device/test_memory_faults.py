"""Faults planted in the memory probes: each is seen, and the right one named."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from gemmbench.model.device import DeviceFacts
from gemmbench.model.instrument import Batch
from gemmbench.probes import memory_opencl
from gemmbench.probes.memory import BY_NAME
from gemmbench.probes.memory_opencl import Enqueue
from tests.device import memory
from tests.device.conftest import Plant

pytestmark = pytest.mark.usefixtures("unoptimized")

IGNORED = "doubling the work multiplies the time by "

# probe, what its kernel says, what it says with the fault, and the reason
KERNEL_FAULTS = [
    ("working-set", "visit < visits", "visit < 2", IGNORED),
    ("working-set", "visit < visits", "visit < 2", "groups' sums differ from the host's"),
    ("working-set", "sum[u] += TO_BITS", "sum[u] += 1 + TO_BITS", "groups' sums differ from the host's"),
    ("local-read", "trip < trips", "trip < 2", IGNORED),
    ("local-read", "trip < trips", "trip < 2", "groups' sums differ from the host's"),
    ("local-copy", "(BITS)trip", "(BITS)(trip / 2)", "groups' sums differ from the host's"),
    ("pointer-chase", "hop < hops", "hop < 2", IGNORED),
    ("pointer-chase", "hop < hops", "hop < 2", "hops end at "),
    ("global-read", "data += first;", "data += first; if (i == 0) i += 1;", "the sum of all that was read"),
    ("global-write", "to += first;", "to += first; if (i == 0) i += 1;", "is not what the host expects"),
    ("global-copy", "from[i", "2 * from[i", "is not what the host expects"),
    ("global-triad", "3.0f", "2.0f", "is not what the host expects"),
    ("image-read", "i >> width_shift)", "i >> width_shift >> 1)", "the sum of all that was read"),
]


@pytest.mark.parametrize(("variant", "right", "wrong", "reason"), KERNEL_FAULTS)
def test_a_fault_in_a_kernel_is_suspect(
    device: DeviceFacts, variant: str, right: str, wrong: str, reason: str, plant: Plant
) -> None:
    if variant.startswith("image") and not device.images:
        pytest.skip("the device has no images")
    plant((right, wrong), files=(BY_NAME[variant].file,))
    row = memory.run(device, memory.case(device, variant), fresh=True)
    assert row.check.verdict in ("suspect", "wrong")  # wrong where it is above a ceiling, too
    assert any(reason in text for text in row.check.reasons)


@pytest.mark.parametrize("variant", ["global-copy", "working-set", "local-read", "pointer-chase"])
def test_an_event_that_reports_a_fraction_of_the_time_is_suspect(
    device: DeviceFacts, variant: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    honest = memory_opencl.time_launches

    def lying(queue: Any, enqueue: Enqueue, *more: Any) -> Batch:
        batch = honest(queue, enqueue, *more)
        return replace(batch, seconds={"kernel": batch.seconds["kernel"] / 70})

    monkeypatch.setattr(memory_opencl, "time_launches", lying)
    row = memory.run(device, memory.case(device, variant), fresh=True)
    assert row.check.verdict in ("suspect", "wrong")  # wrong where it is above a ceiling, too
    assert any(reason.startswith("the event clock says 0.0") for reason in row.check.reasons)


@pytest.mark.parametrize("variant", ["upload-pageable", "download-pinned"])
def test_a_transfer_that_moves_nothing_is_suspect(
    device: DeviceFacts, variant: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(memory_opencl, "seconds_of", lambda transfer: 1e-6)
    row = memory.run(device, memory.case(device, variant), fresh=True)
    assert row.check.verdict == "suspect"
    assert row.check.reasons == ("what arrived is not what was sent",)
