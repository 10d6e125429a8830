"""numpy's operands are cold where that is asked for, or the row says that they are not."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from gemmbench.gemm.numpy_blas import NumpyExecutor
from gemmbench.measure import host
from gemmbench.measure.host import all_cores
from gemmbench.model.case import Case, Policy
from gemmbench.model.problem import Gemm
from gemmbench.model.row import Partner
from gemmbench.opencl import discovery
from gemmbench.opencl.discovery import last_level_cache_bytes
from gemmbench.report import notes
from tests import fake_runs

CASE = Case("gemm", -1, "numpy", "float", {}, Gemm(64, 64, 64))
BYTES = 3 * 64 * 64 * 4


def test_cold_rotates_among_sets_of_twice_the_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(discovery, "last_level_cache_bytes", lambda: 4 * BYTES)
    bench = NumpyExecutor().prepare(CASE, Policy(cold=True))
    assert bench.prepared.sets == 8
    assert bench.start("host", 8).count == 8
    matrices = [id(matrix) for operands in bench._others for matrix in operands]
    assert len(set(matrices)) == 7 * 4
    left = bench.left()
    assert left is not None
    assert (left != 0).any()
    assert NumpyExecutor().prepare(CASE, Policy()).prepared.sets == 1


def test_a_cache_of_unknown_size_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(discovery, "last_level_cache_bytes", lambda: 0)
    prepared = NumpyExecutor().prepare(CASE, Policy(cold=True)).prepared
    assert prepared.sets == 1
    assert prepared.notes == (
        "cold: its operands stay in the cache, since the size of the host's caches is not known",
    )


def test_the_last_level_caches_that_can_be_used_add_up(tmp_path: Path) -> None:
    """An EPYC has 16 of 32 MiB; a set of twice one of them would be timed in the others."""
    for cpu in range(128):
        first = cpu // 8 * 8
        levels = [("1", str(cpu), "32K"), ("2", str(cpu), "512K"), ("3", f"{first}-{first + 7}", "32768K")]
        for index, (level, shared, size) in enumerate(levels):
            folder = tmp_path / f"cpu{cpu}" / "cache" / f"index{index}"
            folder.mkdir(parents=True)
            for name, text in (("level", level), ("shared_cpu_list", shared), ("size", size)):
                (folder / name).write_text(text + "\n")
    assert last_level_cache_bytes(tmp_path, range(128)) == 16 * 32 << 20
    assert last_level_cache_bytes(tmp_path, (0, 7, 8)) == 2 * 32 << 20
    assert last_level_cache_bytes(tmp_path / "none") == 0


# In a process that begins as an instrument's does; then a driver keeps the caller on the last core.
APART = """
import os
import gemmbench.measure.instrument
from gemmbench.gemm.numpy_blas import own_cores
from gemmbench.measure import host

assert host.numpy_is_apart()
first, *others = host.all_cores()
os.sched_setaffinity(0, others[-1:])
with own_cores():
    assert os.sched_getaffinity(0) == {first}
    on = [os.sched_getaffinity(thread) for thread in host.other_threads()]
assert sorted(map(list, on)) == [[core] for core in others], on
assert os.sched_getaffinity(0) == {others[-1]}
"""


@pytest.mark.skipif(len(all_cores()) < 2, reason="one core is nothing to be apart on")
def test_the_threads_of_numpy_do_not_meet_on_a_core() -> None:
    """Two did, and a product of 512 took 24 ms where it takes 1.3 ms."""
    free = {name: value for name, value in os.environ.items() if name != "OPENBLAS_NUM_THREADS"}
    done = subprocess.run(
        [sys.executable, "-c", APART], env=free, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")


def test_numpy_is_measured_where_threads_cannot_be_pinned(monkeypatch: pytest.MonkeyPatch) -> None:
    """Containers may refuse sched_setaffinity."""

    def refuse(*_: object) -> None:
        raise PermissionError(errno.EPERM, "Operation not permitted")

    monkeypatch.setattr(os, "sched_setaffinity", refuse)
    assert not host.keep_apart(range(1, len(all_cores())))
    assert NumpyExecutor().prepare(CASE, Policy()).start("host", 3).count == 3


def test_a_blas_is_named_with_its_threads_and_kernels() -> None:
    pool = {"internal_api": "openblas", "version": "0.3.31", "num_threads": 2, "architecture": "Haswell"}
    assert host.pool_title(pool) == "openblas 0.3.31, 2 threads, Haswell"
    assert host.pool_title({**pool, "architecture": ""}) == "openblas 0.3.31, 2 threads"


def test_a_table_in_turn_with_numpy_tells_its_blas() -> None:
    run = fake_runs.fake_square()
    rows = [replace(row, former=Partner("", row.samples, "numpy")) for row in run.rows if row.device == 0]
    (note,) = [note for note in notes.scopes(run, 0, rows, "kernel") if note.label == "numpy"]
    assert note.text == f"{run.header.host.blas}, in turn"
