"""What `.ci/run` does with a test that fails: once more, alone, and named."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

import pytest

SCRIPT = (Path(__file__).parents[2] / ".ci" / "run").read_text(encoding="utf-8")
MAKE = """#!/bin/sh
echo "$*" >> calls
if [ $(wc -l < calls) -le "$FAILURES" ]; then cat printed; exit 1; fi
echo "== 2 passed in 0.10s =="
"""
RACES = """\
FAILED tests/races/test_races.py::test_one[naive] - assert 1
ERROR tests/races/test_races.py::test_two
"""
GATE = """\
  same          1.00 x  tiled     on CPU
  slower        1.40 x  naive     on CPU  <- gate: it should not be
"""


def run(tmp_path: Path, verb: str, printed: str, failures: int) -> tuple[int, list[str], str]:
    """The exit status of a verb that fails so often, make's calls, and the summary."""
    (tmp_path / "make").write_text(MAKE, encoding="utf-8")
    (tmp_path / "make").chmod(0o755)
    (tmp_path / "printed").write_text(printed, encoding="utf-8")
    functions = re.findall(r"^(?:step|tests)\(\) \{\n.*?^\}\n", SCRIPT, re.DOTALL | re.MULTILINE)
    lines = (
        "set -euo pipefail",
        "scratch=. summary=()",
        'trap \'printf "%s\\n" "${summary[@]}" > summary\' EXIT',
    )
    done = subprocess.run(
        ["bash", "-c", "\n".join((*lines, *functions, f"tests make {verb}"))],
        cwd=tmp_path,
        env={**os.environ, "PATH": f".:{os.environ['PATH']}", "FAILURES": str(failures)},
        capture_output=True,
        check=False,
    )
    calls = (tmp_path / "calls").read_text(encoding="utf-8").splitlines()
    return done.returncode, calls, (tmp_path / "summary").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("verb", "printed", "named"),
    [
        (
            "races",
            RACES,
            ["tests/races/test_races.py::test_one[naive]", "tests/races/test_races.py::test_two"],
        ),
        ("gate", GATE, ["gate: slower        1.40 x  naive     on CPU"]),
    ],
)
def test_what_fails_once_is_run_again_alone_and_named(
    tmp_path: Path, verb: str, printed: str, named: list[str]
) -> None:
    assert f"\ntests make {verb}\n" in SCRIPT
    status, calls, summary = run(tmp_path, verb, printed, 1)
    assert status == 0
    assert calls == [f"{verb} ARGS=--unless-passed=./passed", f"{verb} ARGS=--unless-passed=./passed -n 0"]
    assert summary.splitlines()[-len(named) :] == [f"{name}: passed on the second try" for name in named]


def test_what_fails_twice_or_in_many_places_fails(tmp_path: Path) -> None:
    status, calls, summary = run(tmp_path, "races", RACES, 2)
    assert (status != 0, len(calls)) == (True, 2)
    assert "second try" not in summary
    many = "".join(f"FAILED tests/races/test_races.py::test_{at}\n" for at in range(6))
    (tmp_path / "calls").unlink()
    status, calls, summary = run(tmp_path, "races", many, 1)
    assert (status != 0, len(calls)) == (True, 1)
    (tmp_path / "calls").unlink()
    status, calls, summary = run(tmp_path, "races", "make: *** no rule\n", 1)
    assert (status != 0, len(calls)) == (True, 1)
