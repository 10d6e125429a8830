"""`make drivers`: a crash or a hang costs one case, and its page is that of its results."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from tools import drivers, drivers_page

WORKER = """
import json, os, sys, time
done = set(sys.stdin.read().split("\\n"))
say = lambda **line: print(json.dumps(line), flush=True)
say(devices=[{"index": 0}])
for name in ("0 gemm one float", "0 gemm two float", "0 gemm three float", "0 gemm four float"):
    if name in done:
        continue
    say(begin=name)
    if "two" in name:
        sys.stderr.write("pointer trouble\\n")
        os.abort()
    if "three" in name:
        time.sleep(60)
    say(end=name, status="ok", reason="")
"""


def worker(text: str) -> drivers.Driver:
    return drivers.Driver("fake", command=(sys.executable, "-c", text))


def test_a_crash_and_a_hang_cost_their_cases_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(drivers, "LIMIT_S", 10.0)  # a worker must start within it
    result = drivers.run(worker(WORKER))
    assert result["rows"] == {
        "0 gemm one float": ["ok", ""],
        "0 gemm two float": ["crashes", "signal 6: pointer trouble"],
        "0 gemm three float": ["hangs", "no answer in 10 s"],
        "0 gemm four float": ["ok", ""],
    }


def test_a_driver_that_cannot_even_be_listed_is_a_line() -> None:
    result = drivers.run(worker("import sys; sys.exit('no such library')"))
    assert (result["devices"], result["trouble"]) == ([], "exit status 1: no such library")
    assert drivers.run(worker("print('{\"devices\": []}')"))["trouble"] == "it shows no device"


def saved() -> dict[str, Any]:
    known: dict[str, Any] = json.loads(drivers.RESULT.read_text(encoding="utf-8"))
    return known


def test_the_page_is_that_of_the_results() -> None:
    assert drivers.DOCUMENT.read_text(encoding="utf-8") == drivers_page.document(saved())


def test_nothing_goes_wrong_on_a_driver_without_a_line_that_explains_it() -> None:
    assert drivers_page.unexplained(saved()) == []
    known = saved()
    key = next(key for key in known if "PoCL" in key)
    known[key]["rows"]["0 gemm naive float"] = ["crashes", "signal 11"]
    assert drivers_page.unexplained(known) == [f"{key}: gemm naive float: crashes: signal 11"]
    assert "**crashes**" in drivers_page.document(known)


def test_a_verdict_of_an_earlier_text_is_marked_and_tried_again(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    known = saved()
    key = next(key for key in known if "aarch64" not in key and known[key]["rows"])
    result = known[key]
    result["texts"] = {name: drivers.text_of(name) for name in result["texts"]}
    result["rows"] = {"0 gemm naive float": ["ok", ""], "0 gemm tiled float": ["ok", ""]}
    assert drivers_page.cell(key, result, ["gemm naive float"]) == "ok"
    result["texts"]["naive"] = "of before"
    assert drivers_page.cell(key, result, ["gemm naive float"]) == "ok, earlier"
    file = tmp_path / "drivers.json"
    file.write_text(json.dumps(known))
    monkeypatch.setattr(drivers, "RESULT", file)
    kept = drivers.earlier(
        drivers.Driver(result["name"], origin=result["origin"]), result["devices"][0]["machine"]
    )
    assert set(kept) == {"0 gemm tiled float"}


def test_all_kernels_that_a_driver_takes_are_right_in_float_on_emulated_aarch64() -> None:
    (key,) = (key for key in saved() if "aarch64" in key)
    rows = drivers_page.cases(saved()[key])
    by_status = {
        status: {name for name, row in rows.items() if row[0] == status} for status in ("ok", "unsupported")
    }
    assert by_status["ok"] | by_status["unsupported"] == set(rows)
    assert {"gemm naive float", "gemm naive double", "gemm cpu-packed double"} <= by_status["ok"]
