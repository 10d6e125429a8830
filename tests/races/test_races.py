"""Every kernel under Oclgrind: no data race, no read of uninitialised memory, nothing out of bounds."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from gemmbench.ladder import BY_NAME, LADDER
from gemmbench.ladder.variant import Variant
from tests.fake_runs import CPU

SCRIPT = Path(__file__).with_name("run_variant.py")

pytestmark = pytest.mark.races


# Optimised code has an instruction (freeze) that Oclgrind 21.10 cannot follow uninitialised values through.
LOCAL = ("--local-mem-size", "65536")  # of its 32 KiB
BOTH = ("--data-races", "--uninitialized", "--build-options", "-cl-opt-disable")
RACES = ("--data-races", "--build-options", "-cl-opt-disable")  # it takes every pixel for uninitialised


def oclgrind(log: Path, *arguments: str, checks: tuple[str, ...] = BOTH) -> tuple[str, str]:
    """What the script prints and what Oclgrind has to say."""
    program = shutil.which("oclgrind")
    assert program, "Oclgrind is not installed: sudo apt-get install oclgrind"
    options = [*checks, "--max-errors", "20", "--log", str(log)]
    done = subprocess.run(
        [program, *options, sys.executable, str(SCRIPT), *arguments],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
        env={**os.environ, "PYOPENCL_NO_CACHE": "1"},
    )
    said = log.read_text() if log.exists() else ""
    return done.stdout + done.stderr, said


def is_plain(variant: Variant) -> bool:
    """Whether a kernel needs no extension with some parameters."""
    return any(not variant.needs.extensions(known) for known in variant.space())


# Oclgrind has no half, no extension that a kernel could need, and nothing of one maker's alone.
PLAIN = [name for name in LADDER if is_plain(BY_NAME[name])]
FLOAT = [name for name in PLAIN if "float" in BY_NAME[name].needs.dtypes]
CASES = [name for name in FLOAT if not BY_NAME[name].needs.lacks(CPU, "float")]


@pytest.mark.parametrize("name", CASES)
def test_a_kernel_is_clean(name: str, tmp_path: Path) -> None:
    """In float: which work-item reads and writes what does not depend on the type."""
    checks = RACES if BY_NAME[name].launches.images else BOTH
    printed, said = oclgrind(tmp_path / "log", name, checks=checks)
    assert said == ""
    assert printed.strip() == "done"


@pytest.mark.parametrize(
    ("name", "parameters"),
    [
        ("small", ("SPLIT=2", "STAGES=2")),  # the smallest has one slice, whose sums stay where they are
        ("small", ("SPLIT=2", "BM=32", "TM=8")),  # sums are added up in two rounds
        ("thin", ("THIN=2", "DEEP=2", "PARTS=2")),
        ("thin", ("COLUMNS=1", "THIN=2", "DEEP=4", "KC=16", "WIDE=2")),
        ("thin", ("AHEAD=1", "THIN=4", "KC=16")),
        ("thin", ("AHEAD=1", "COLUMNS=1", "THIN=2", "DEEP=4", "PARTS=2", "KC=16")),
        ("thin", ("MANY=64", "THIN=4", "KC=16")),
    ],
)
def test_a_kernel_is_clean_with_parameters(name: str, parameters: tuple[str, ...], tmp_path: Path) -> None:
    printed, said = oclgrind(tmp_path / "log", name, *parameters, checks=(*BOTH, *LOCAL))
    assert said == ""
    assert printed.strip() == "done"


@pytest.mark.parametrize(
    "name",
    [
        *("tiled", "coarse", "wide", "rect", "register", "register-wide", "prefetch", "padded"),
        *("gpu-tile", "small", "thin"),
    ],
)
def test_a_missing_barrier_is_seen(name: str, tmp_path: Path) -> None:
    """The same kernels without their barriers, which a CPU driver may well run to the right answer."""
    _, said = oclgrind(tmp_path / "log", name, "no-barrier", checks=("--data-races",))
    assert "data race" in said
