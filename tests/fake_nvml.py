"""NVML that answers from a table, with made-up boards."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pynvml
import pytest

Board = tuple[str, str, int | None]  # slot, name, millijoules (None: no counter)
GET = "nvmlDeviceGet"


class FakeNvml:
    """A table's value is the answer, its error is raised, and its function is called.

    What the table lacks is not supported.
    """

    def __init__(self, answers: Mapping[str, Any]) -> None:
        self._answers = answers

    def __getattr__(self, function: str) -> Callable[..., Any]:
        def answer(*arguments: object) -> Any:
            found = self._answers.get(function, pynvml.NVMLError(pynvml.NVML_ERROR_NOT_SUPPORTED))
            if isinstance(found, Exception):
                raise found
            return found(*arguments) if callable(found) else found

        return answer


def install(
    monkeypatch: pytest.MonkeyPatch, *boards: Board, init: Exception | None = None, **answers: Any
) -> None:
    """Let nvidia-ml-py list these boards, and give further answers, by what ``nvmlDeviceGet`` asks for."""

    def by_slot(slot: str) -> int:
        found = [index for index, board in enumerate(boards) if board[0] == slot]
        if not found:
            raise pynvml.NVMLError(pynvml.NVML_ERROR_NOT_FOUND)
        return found[0]

    def energy(index: int) -> int:
        millijoules = boards[index][2]
        if millijoules is None:
            raise pynvml.NVMLError(pynvml.NVML_ERROR_NOT_SUPPORTED)
        return millijoules

    answers = {
        "Count": len(boards), "HandleByIndex": int, "HandleByPciBusId": by_slot,
        "Name": lambda index: boards[index][1], "TotalEnergyConsumption": energy, **answers,
    }  # fmt: skip
    nvml = FakeNvml({"nvmlInit": init, **{GET + name: answer for name, answer in answers.items()}})
    for name in dir(pynvml):
        if name == "nvmlInit" or name.startswith(GET):
            monkeypatch.setattr(pynvml, name, getattr(nvml, name))
