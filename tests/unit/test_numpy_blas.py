"""numpy's operands are cold where that is asked for, or the row says that they are not."""

from __future__ import annotations

import errno
import os
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from gemmbench.gemm.numpy_blas import NumpyExecutor
from gemmbench.measure import host, machine
from gemmbench.measure.child import Worker
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
    monkeypatch.setattr(discovery, "last_level_cache_bytes", lambda cores: 4 * BYTES)
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
    monkeypatch.setattr(discovery, "last_level_cache_bytes", lambda cores: 0)
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


@pytest.mark.skipif(sys.platform != "linux" or len(all_cores()) < 2, reason="reads /proc; needs two cores")
def test_numpy_has_a_process_with_a_thread_on_each_core_and_no_driver(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Two threads met on a core, and a product of 512 took 24 ms where it takes 1.3 ms."""
    monkeypatch.delenv("OPENBLAS_NUM_THREADS", raising=False)
    with Worker(machine.default) as worker:
        with worker.prepare(CASE, None, Policy()) as handle:
            assert handle.verify("before").check.verdict == "ok"
            assert handle.batch("host", 3).count == 3
        assert worker._process is None
        assert worker._host._process is not None
        process = Path(f"/proc/{worker._host._process.pid}")
        libraries = {Path(line.split()[-1]).name for line in (process / "maps").read_text().splitlines()}
        threads = [os.sched_getaffinity(int(task.name)) for task in (process / "task").iterdir()]
    assert any("blas" in library for library in libraries)
    assert not any(part in library.lower() for library in libraries for part in ("opencl", "ocl"))
    assert {core for cores in threads if len(cores) == 1 for core in cores} == set(all_cores())
    assert len([cores for cores in threads if len(cores) > 1]) == 1  # the thread that reads requests


def test_numpy_is_measured_where_threads_cannot_be_pinned(monkeypatch: pytest.MonkeyPatch) -> None:
    """Containers may refuse sched_setaffinity."""
    refused: list[object] = []

    def refuse(thread: int, _: object) -> None:
        refused.append(thread)
        raise PermissionError(errno.EPERM, "Operation not permitted")

    threads = [SimpleNamespace(id=number) for number in range(1, len(all_cores()))]
    monkeypatch.setattr("psutil.Process", lambda: SimpleNamespace(threads=lambda: threads))
    monkeypatch.setattr(os, "sched_setaffinity", refuse, raising=False)
    host.pin_blas_threads()
    assert len(refused) == 1


def test_a_blas_is_named_with_its_threads_and_kernels() -> None:
    pool = {"internal_api": "openblas", "version": "0.3.31", "num_threads": 2, "architecture": "Haswell"}
    assert host.pool_title(pool) == "openblas 0.3.31, 2 threads, Haswell"
    assert host.pool_title({**pool, "architecture": ""}) == "openblas 0.3.31, 2 threads"


def test_a_table_in_turn_with_numpy_tells_its_blas() -> None:
    run = fake_runs.fake_square()
    rows = [replace(row, former=Partner("", row.samples, "numpy")) for row in run.rows if row.device == 0]
    (note,) = [note for note in notes.scopes(run, 0, rows, "kernel") if note.label == "numpy"]
    assert note.text == f"{run.header.host.blas}, in turn"
