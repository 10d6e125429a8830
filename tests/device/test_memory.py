"""Every probe of memory, transfers and launches on every device: right answers, whole rows."""

from __future__ import annotations

import pytest

from gemmbench.model import kernel_files
from gemmbench.model.device import DeviceFacts
from gemmbench.model.row import Row
from gemmbench.opencl import runtime
from gemmbench.probes.memory import BY_NAME, FLOAT_BYTES, ONCE, PROBES, WAYS, Way
from gemmbench.stats import rates
from tests.device import memory

CLOCKS = ("doubling the work", "the event clock", "times what reading and writing")  # not asserted in tests


def wrong_answers(row: Row) -> list[str]:
    """What is suspect about an answer, whatever the clocks say."""
    return [reason for reason in row.check.reasons if not any(words in reason for words in CLOCKS)]


@pytest.mark.parametrize("name", [probe.name for probe in PROBES])
def test_answers_are_right_and_rows_whole(device: DeviceFacts, name: str) -> None:
    probe = BY_NAME[name]
    if probe.bench == "image" and not device.images:
        pytest.skip("the device has no images")
    mine = [case for case in memory.cases(device) if case.variant == name]
    assert mine
    for case in mine:
        row = memory.run(device, case)
        assert (row.status, row.key, row.source) == ("ok", case.key, case.source)
        assert wrong_answers(row) == []
        seconds = rates.finest_seconds(row)
        assert len(seconds) >= 3
        assert min(seconds) > 0
        if probe.kind == "bandwidth":
            assert row.work.bytes % ((probe.loads + probe.stores) * FLOAT_BYTES) == 0
            assert rates.byte_rate(row)
            assert row.choice["items"]
            assert row.check.figures.keys() == {"doubling", "event_over_wall"}
            assert row.race[-1].startswith("tried (GB/s): ")
        if probe.kind == "latency":
            assert row.work.bytes == 0
        if probe.kind == "transfer":
            moved = 0 if row.choice["way"] == "zero-copy" else case.parameters["bytes"]
            assert row.work.bytes == moved


@pytest.mark.every_driver
def test_a_map_in_shared_memory_is_called_zero_copy(device: DeviceFacts) -> None:
    if not device.unified_memory:
        pytest.skip("host and device have memories of their own")
    for name in ("upload-mapped", "download-mapped"):
        row = memory.run(device, memory.case(device, name))
        assert row.choice == {"way": "zero-copy"}
        assert rates.byte_rate(row) is None
        assert "nothing is transferred" in row.notes[0]


def test_the_set_is_stated_in_the_row(device: DeviceFacts) -> None:
    row = memory.run(device, memory.case(device, "global-copy"))
    assert row.choice["set_bytes"] == row.work.bytes if row.work else 0
    assert row.notes[0].startswith("working set ")
    assert "last-level cache of 64.0 KiB" in row.notes[0]


@pytest.mark.every_driver
def test_emulated_local_memory_is_called_so(device: DeviceFacts) -> None:
    row = memory.run(device, memory.case(device, "local-read"))
    assert any("emulated" in note for note in row.notes) == device.local_mem_emulated


@pytest.mark.parametrize("name", ["global-read", "global-write", "global-copy", "global-triad"])
@pytest.mark.parametrize(
    ("right", "wrong"), [("", ""), ("UNROLL * apart + get_local_id(0)", "apart + get_local_id(0)")]
)
def test_a_pass_without_a_loop_reaches_every_vector_once(
    device: DeviceFacts, name: str, right: str, wrong: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And it is noticed if groups overlap. GPUs race it; here every device runs it."""
    text = kernel_files.text
    monkeypatch.setattr(
        runtime, "text", lambda *where: text(*where).replace(right, wrong) if right else text(*where)
    )
    way = Way(unroll=4, group=16, groups=0, pattern=ONCE)
    monkeypatch.setitem(WAYS, "global", dict.fromkeys(("cpu", "gpu"), (way,)))
    row = memory.run(device, memory.case(device, name), fresh=True)
    assert (row.choice["pattern"], row.choice["unroll"]) == (ONCE, 4)
    assert bool(wrong_answers(row)) == bool(right)
