"""The API on every device: measured in this process's child, without a command line."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

import gemmbench as gb
from gemmbench.model.device import DeviceFacts

TINY = {"sizes": "32,64", "kernels": "naive,tiled", "budget": 0.05, "peak": False, "quiet": True}


@pytest.fixture(autouse=True)
def _own_cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.delenv("GEMMBENCH_DEVICE", raising=False)


@pytest.mark.every_driver
def test_devices_are_those_of_the_machine(device: DeviceFacts) -> None:
    assert gb.devices()[device.index].name == device.name


def test_a_run(device: DeviceFacts, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "run.jsonl"
    base = gb.square(device=device.index, save=path, **TINY)
    assert base.ok
    base.show()
    assert "naive" in capsys.readouterr().out
    rows = base.records()
    assert all(row["kernel_gflops"] > 0 for row in rows if row["variant"] == "naive")
    assert gb.load(path).records() == rows
    base.plot(tmp_path / "out.png", kind="host-device")

    again: list[gb.Run] = []
    thread = threading.Thread(target=lambda: again.append(gb.square(device=device.index, **TINY)))
    thread.start()
    thread.join()
    comparison = gb.compare(path, again[0], across="sampling")
    assert comparison.compared
    comparison.show()
