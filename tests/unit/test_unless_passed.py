"""``pytest --unless-passed FILE``, with which a second pass runs what the first had to leave out."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
TESTS = """
import os, pytest
def test_that_passes(): pass
def test_that_lacks_a_driver():
    if not os.environ["DRIVER"]: pytest.skip("no driver")
@pytest.fixture
def at_its_end():
    yield
    assert os.environ["DRIVER"]
def test_that_leaves_something(at_its_end): pass
@pytest.mark.installed
def test_of_all_that_is_installed(): pass
"""


def test_a_second_run_leaves_out_what_has_passed(tmp_path: Path) -> None:
    (tmp_path / "test_some.py").write_text(TESTS, encoding="utf-8")

    def run(driver: str) -> tuple[int, str]:
        words = "-p xdist.plugin -p tests.conftest -o markers=installed --unless-passed passed -n 1"
        done = subprocess.run(
            [sys.executable, "-m", "pytest", *words.split()],
            cwd=tmp_path,
            env={
                **os.environ,
                "PYTHONPATH": str(ROOT),
                "PYTEST_ADDOPTS": "",
                "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",  # hypothesis takes a second in each of three processes
                "DRIVER": driver,
            },
            capture_output=True,
            text=True,
            check=False,
        )
        found = re.findall(r"\d+ (?:passed|skipped|error)", done.stdout.splitlines()[-1])
        return done.returncode, " ".join(found)

    assert run("") == (1, "3 passed 1 skipped 1 error")
    assert run("there") == (0, "3 passed")
    assert len((tmp_path / "passed").read_text(encoding="utf-8").splitlines()) == 4
