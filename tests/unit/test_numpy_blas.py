"""numpy's operands are cold where that is asked for, or the row says that they are not."""

from __future__ import annotations

import ctypes
import errno
import itertools
import os
import sys
import time
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import threadpoolctl

from gemmbench.gemm import numpy_blas, opencl
from gemmbench.gemm.numpy_blas import NumpyExecutor
from gemmbench.ladder import BY_NAME
from gemmbench.measure import blas, machine
from gemmbench.measure.child import Worker
from gemmbench.measure.machine import all_cores
from gemmbench.model.case import Case, Policy
from gemmbench.model.device import DeviceFacts
from gemmbench.model.dtypes import PAGE
from gemmbench.model.instrument import NotMeasuredError
from gemmbench.model.problem import Gemm
from gemmbench.opencl import discovery
from gemmbench.opencl.discovery import last_level_cache_bytes
from gemmbench.views import format_markdown
from tests import fake_runs

CASE = Case("gemm", -1, "numpy", "float", {}, Gemm(64, 64, 64))
BYTES = 3 * 64 * 64 * 4


def test_cold_rotates_among_sets_of_twice_the_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(discovery, "last_level_cache_bytes", lambda cores: 4 * BYTES)
    bench = NumpyExecutor().prepare(CASE, Policy(cold=True))
    assert bench.prepared.sets == 8
    assert bench.start("host", 8).count == 8
    starts = {matrix.ctypes.data for a, b, _, out in bench._sets for matrix in (a, b, out)}
    assert len(starts) == 8 * 3
    assert not any(start % PAGE for start in starts)  # else OpenBLAS is slower in some processes
    assert (bench.left() != 0).any()
    assert NumpyExecutor().prepare(CASE, Policy()).prepared.sets == 1


def test_a_cache_of_unknown_size_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
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
@pytest.mark.parametrize("beta", [0.0, 1.0], ids=["numpy", "scipy"])
def test_a_blas_has_a_process_with_a_thread_on_each_core_and_no_driver(
    beta: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two threads met on a core, and a product of 512 took 24 ms where it takes 1.3 ms."""
    monkeypatch.delenv("OPENBLAS_NUM_THREADS", raising=False)
    with Worker(machine.default) as worker:
        with worker.prepare(replace(CASE, problem=Gemm(64, 64, 64, beta=beta)), None, Policy()) as handle:
            assert handle.verify("before").check.verdict == "ok"
            assert handle.batch("host", 3).count == 3
        assert worker._process is None
        process = Path(f"/proc/{worker._host._process.pid}")
        libraries = {Path(line.split()[-1]).name for line in (process / "maps").read_text().splitlines()}
        threads = [os.sched_getaffinity(int(task.name)) for task in (process / "task").iterdir()]
    assert any("fblas" in library for library in libraries) == bool(beta)
    assert not any(part in library.lower() for library in libraries for part in ("opencl", "ocl"))
    assert {core for cores in threads if len(cores) == 1 for core in cores} == set(all_cores())
    assert all(len(cores) == 1 for cores in threads)


def test_numpy_is_measured_where_threads_cannot_be_pinned(monkeypatch: pytest.MonkeyPatch) -> None:
    """Containers may refuse sched_setaffinity."""
    refused: list[object] = []

    def refuse(thread: int, _: object) -> None:
        refused.append(thread)
        raise PermissionError(errno.EPERM, "Operation not permitted")

    threads = [SimpleNamespace(id=number) for number in range(1, len(all_cores()))]
    monkeypatch.setattr("psutil.Process", lambda: SimpleNamespace(threads=lambda: threads))
    monkeypatch.setattr(os, "sched_setaffinity", refuse, raising=False)
    machine.pin_blas_threads()
    assert len(refused) == 1
    threads.clear()  # the BLAS starts them later, and they would inherit the caller's one core
    machine.pin_blas_threads()
    assert len(refused) == 1


SCALED = [
    Gemm(5, 7, 3, dtype, alpha, beta, trans_a=trans_a, trans_b=trans_b, batch=batch)
    for dtype in ("float", "double")
    for alpha, beta in ((2.0, 0.0), (1.0, 1.0), (-0.5, 0.25))
    for trans_a, trans_b, batch in ((False, False, 1), (True, False, 3), (False, True, 1), (True, True, 2))
]


@pytest.mark.parametrize("problem", SCALED, ids=str)
def test_scipy_applies_alpha_and_beta_in_place(problem: Gemm) -> None:
    """numpy made three passes over C after its product, inside the clock."""
    bench = NumpyExecutor().prepare(replace(CASE, problem=problem, dtype=problem.dtype), Policy())
    assert bench.verify("before").check.verdict == "ok"
    for count in (1, 3):
        assert bench.start("host", count).count == count
        left = bench.left()
        assert left is not None
        assert (left == bench._answers.verified_result).all()
    assert bench.verify("after").check.verdict == "ok"
    calls = bench._calls(problem, *bench._sets[0])
    assert len(calls) == problem.batch
    for call in calls:
        assert np.shares_memory(call(), bench._sets[0][-1])  # nothing was copied


def test_c_is_restored_outside_the_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    seconds = itertools.count()  # each look at the clock takes one
    bench = NumpyExecutor().prepare(replace(CASE, problem=Gemm(64, 64, 64, beta=1.0)), Policy())
    monkeypatch.setattr(numpy_blas, "time", SimpleNamespace(perf_counter=lambda: float(next(seconds))))
    batch = bench.start("host", 4)
    assert (batch.seconds["host"], batch.wall_s) == (2 / 4, 2 / 4)  # of three, one of which restored C


def test_rows_with_gaps_are_numpys_and_say_so() -> None:
    problem = Gemm(5, 7, 3, beta=1.0, ld=(4, 8, 9))
    bench = NumpyExecutor().prepare(replace(CASE, problem=problem), Policy())
    assert (bench.prepared.built.choice, bench.prepared.notes) == ({}, (numpy_blas._GAPS,))
    assert bench.verify("before").check.verdict == "ok"


def test_batches_are_timed_by_a_clock_of_high_resolution(monkeypatch: pytest.MonkeyPatch) -> None:
    """time.monotonic ticks every 15.6 ms on Windows before Python 3.13: batches took no time."""
    monkeypatch.setattr(time, "monotonic", lambda: 0.0)
    batch = NumpyExecutor().prepare(CASE, Policy()).start("host", 3)
    assert batch.seconds["host"] > 0
    assert batch.end > batch.begin


def test_each_library_is_called_by_its_own_blas(monkeypatch: pytest.MonkeyPatch) -> None:
    folder = Path(np.__file__).resolve().parents[1]
    files = {"9.1": "scipy.libs/libscipy_openblas.so", "9.2": "numpy.libs/libscipy_openblas64_.so"}
    pools = [
        {"internal_api": "openblas", "version": version, "num_threads": 8, "filepath": str(folder / file)}
        for version, file in files.items()
    ]
    monkeypatch.setattr(machine, "blas_pools", lambda: pools)
    assert numpy_blas.scipy_title() == "scipy (OpenBLAS 9.1, 8 threads)"
    assert machine.pool_of() == pools[1]
    pools[1]["filepath"] = "/usr/lib/libopenblas.so"  # as conda has it
    assert machine.pool_of() == pools[1]


def test_a_row_of_scipy_is_called_so() -> None:
    row = replace(fake_runs.fake_square().rows[0], choice={"blas": "scipy (OpenBLAS 0.3.30, 2 threads)"})
    assert (row.title, row.name) == ("scipy", row.variant)  # in tables; -v has its BLAS


def test_a_blas_is_named_with_its_threads_and_kernels() -> None:
    pool = {"internal_api": "openblas", "version": "0.3.31", "num_threads": 2, "architecture": "Haswell"}
    assert machine.pool_title(pool) == "openblas 0.3.31, 2 threads, Haswell"
    assert machine.pool_title({**pool, "architecture": ""}) == "openblas 0.3.31, 2 threads"


LIBRARIES = {
    "/usr/lib/x86_64-linux-gnu/blas/libblas.so.3.11.0": "reference BLAS 3.11.0",  # Debian
    "/usr/lib64/libblas.so.3.12.0": "reference BLAS 3.12.0",  # Fedora
    "/usr/lib/x86_64-linux-gnu/blis-pthread/libblas.so.3": "BLIS",
    "/usr/lib64/libblis.so.4.0.0": "BLIS 4.0.0",
    "/usr/lib/x86_64-linux-gnu/atlas/libblas.so.3.10.3": "ATLAS 3.10.3",
    "/usr/lib64/atlas/libtatlas.so.3.10": "ATLAS",
    "/usr/lib64/flexiblas/libflexiblas_netlib.so": "reference BLAS",
    "/usr/lib64/libflexiblas.so.3.4": "FlexiBLAS",
    "/opt/arm/lib/libarmpl_lp64_mp.so": "Arm Performance Libraries",
    "/usr/lib/libgslcblas.so.0": "GSL's CBLAS",
    "/home/atlas/lib/libblas.so": "unknown BLAS libblas.so",  # the user's name says nothing
    "/home/u/lib/libmyblas.so.1": "unknown BLAS libmyblas.so.1",
}


@pytest.mark.parametrize(("file", "title"), LIBRARIES.items())
def test_a_blas_that_threadpoolctl_does_not_list_is_named_by_its_file(
    file: str, title: str, tmp_path: Path
) -> None:
    others = ["/usr/lib/libcublas.so.12", "/usr/lib/libclblast.so.1", "/usr/lib/libc.so.6", "[heap]"]
    lines = (f"7f00-7f10 r-xp 00001000 fe:00 1234   {name}" for name in (*others, file, file))
    (tmp_path / "maps").write_text("\n".join([*lines, "7f20-7f30 rw-p 00000000 00:00 0", ""]))
    pool = blas.find_unlisted(np, tmp_path / "maps")
    assert pool is not None
    assert machine.pool_title(pool) == title
    assert pool["filepath"] == file


def test_a_library_with_a_name_comes_before_one_without(tmp_path: Path) -> None:
    files = "libcblas.so.3", "blis/libblas.so.3", "liblapack.so.3"
    (tmp_path / "maps").write_text("".join(f"0-1 r-xp 0 fe:00 1 /usr/lib/{file}\n" for file in files))
    assert (blas.find_unlisted(np, tmp_path / "maps") or {})["internal_api"] == "BLIS"


def described(name: str, found: bool = True) -> object:
    blas_of = {"name": name, "found": found}
    return SimpleNamespace(show_config=lambda mode: {"Build Dependencies": {"blas": blas_of}})


@pytest.mark.parametrize(
    ("package", "name"),
    [
        (described("accelerate"), "Accelerate"),
        (described("scipy-openblas"), "OpenBLAS"),
        (described("auto", found=False), "numpy's own loops"),
        (described("blas"), None),
        (SimpleNamespace(__config__=SimpleNamespace(blas_opt_info={"libraries": ["mkl_rt"]})), "MKL"),
        (SimpleNamespace(__config__=SimpleNamespace(blas_opt_info={})), "numpy's own loops"),
        (SimpleNamespace(), None),
    ],
)
def test_without_a_library_in_the_process_the_build_names_it(
    package: Any, name: str | None, tmp_path: Path
) -> None:
    (tmp_path / "maps").write_text("0-1 r-xp 0 fe:00 1 /usr/lib/libc.so.6\n")
    for maps in (tmp_path / "maps", tmp_path / "none"):
        pool = blas.find_unlisted(package, maps)
        assert (pool and machine.pool_title(pool)) == name


def test_a_process_without_a_listed_blas_has_an_unlisted_one(monkeypatch: pytest.MonkeyPatch) -> None:
    pool = {"internal_api": "reference BLAS", "version": "3.11.0"}
    monkeypatch.setattr(machine, "blas_pools", list)
    monkeypatch.setattr(blas, "find_unlisted", lambda package: pool)
    monkeypatch.setattr(machine, "_busy_cores", lambda: 0.0)
    host = machine.host_facts()
    assert host.blas == "reference BLAS 3.11.0"
    assert host.warnings == (
        "numpy uses the reference BLAS: one thread and no vector instructions, so it may be many times "
        "slower. Install OpenBLAS (libopenblas0), or numpy from PyPI, which includes it.",
    )
    run = fake_runs.fake_square()
    run = replace(run, header=replace(run.header, host=host))
    assert "warning: numpy uses the reference BLAS" in " ".join(format_markdown(run, fake_runs.ORDER).split())
    monkeypatch.setattr(blas, "find_unlisted", lambda package: None)
    host = machine.host_facts()
    assert (host.blas, host.warnings) == ("unknown BLAS", ())


def flags(words: str) -> str:
    return f"processor : 0\nmodel name : avx512f\nflags\t\t: fpu {words} ht\n"


AVX512 = flags("sse2 avx avx2 fma avx512f")
AVX2 = flags("sse2 avx avx2 fma")


@pytest.mark.parametrize(
    ("library", "core", "cpuinfo", "variable", "times", "advice"),
    [
        ("openblas", "Prescott", AVX512, "", "8", "OPENBLAS_CORETYPE=SkylakeX"),
        ("openblas", "Katmai", AVX512, "Prescott", "8", "Unset the variable: OPENBLAS_CORETYPE"),
        ("openblas", "Haswell", AVX512, "", "2", "OPENBLAS_CORETYPE=SkylakeX"),
        ("openblas", "Nehalem", AVX2, "", "4", "OPENBLAS_CORETYPE=Haswell"),
        ("openblas", "Sandybridge", AVX2, "", "2", "OPENBLAS_CORETYPE=Haswell"),
        ("openblas", "Core2", flags("sse2 avx"), "", "2", "OPENBLAS_CORETYPE=Sandybridge"),
        ("openblas", "Prescott", flags("sse2"), "", None, ""),
        ("openblas", "SkylakeX", AVX512, "", None, ""),
        ("openblas", "SapphireRapids", AVX512, "", None, ""),
        ("openblas", "Zen", AVX2, "", None, ""),
        ("openblas", "Zen9", AVX512, "", None, ""),  # newer than this list
        ("openblas", "neoversen1", "Features : fp asimd", "", None, ""),
        ("openblas", "Prescott", "", "", None, ""),
        ("blis", "generic", AVX512, "", "8", "Update numpy"),
        ("blis", "haswell", AVX512, "haswell", "2", "Unset the variable: BLIS_ARCH_TYPE"),
        ("blis", "skx", AVX512, "", None, ""),
        ("mkl", "", AVX512, "", None, ""),
    ],
)
def test_kernels_for_another_processor_are_trouble(
    library: str, core: str, cpuinfo: str, variable: str, times: str | None, advice: str
) -> None:
    name = {"openblas": "OPENBLAS_CORETYPE", "blis": "BLIS_ARCH_TYPE"}.get(library, "NONE")
    pool = {"internal_api": library, "architecture": core}
    trouble = blas.trouble(pool, cpuinfo, {name: variable})
    assert (trouble is None) == (times is None)
    if trouble:
        assert f"kernels for {core}, " in trouble.problem
        assert f"up to {times} times slower" in trouble.problem
        assert advice in trouble.advice


@pytest.mark.parametrize(("device", "limits"), [(fake_runs.CPU, 1), (fake_runs.GPU, 0)], ids=["cpu", "gpu"])
def test_verification_on_a_cpu_leaves_no_threads_that_spin(
    device: DeviceFacts, limits: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """numpy's threads spun on the device's cores, in the batches that followed a verification."""
    calls: list[int] = []
    monkeypatch.setattr(machine, "limit_blas_threads", lambda: calls.append(1))
    monkeypatch.setattr("gemmbench.opencl.drivers.register", lambda: None)
    monkeypatch.setattr("gemmbench.opencl.runtime.Runtime", lambda _: None)
    monkeypatch.setattr(opencl, "GemmExecutor", lambda _: None)
    machine.OpenCLMachine().executor(replace(CASE, variant="naive"), device)
    assert len(calls) == limits


def test_one_thread_of_numpys_blas() -> None:
    with threadpoolctl.threadpool_limits(None, "blas"):  # put back afterwards
        machine.limit_blas_threads()
        assert (machine.pool_of() or {})["num_threads"] == 1


class FakeMkl:
    """MKL's C interface as far as it is called; `pairs` is the largest sum of two products of char."""

    pairs = 1 << 31

    def cblas_sgemm(self, *_: Any) -> None: ...

    def mkl_get_max_threads(self) -> int:
        return 3

    def mkl_get_version_string(self, text: Any, size: int) -> None:
        text.value = b"Intel(R) oneAPI Math Kernel Library Version 2026.2-Product Build"

    def cblas_gemm_s8u8s32(self, *arguments: Any) -> None:
        order, op_a, op_b, kind, m, n, k, alpha, a, lda, a0, b, ldb, b0, beta, c, ldc, c0 = arguments
        assert (order, kind) == (101, 173)

        def matrix(pointer: Any, of: Any, rows: int, ld: int) -> np.ndarray[Any, Any]:
            return np.ctypeslib.as_array(ctypes.cast(pointer, ctypes.POINTER(of)), (rows, ld))

        stored_a = matrix(a, ctypes.c_uint8, k if op_a == 112 else m, lda).astype(np.int64)
        stored_b = matrix(b, ctypes.c_int8, n if op_b == 112 else k, ldb).astype(np.int64)
        op_of_a = (stored_a.T if op_a == 112 else stored_a)[:m, :k]
        op_of_b = (stored_b.T if op_b == 112 else stored_b)[:k, :n]
        steps = (op_of_a[:, p : p + 2] @ op_of_b[p : p + 2] for p in range(0, k, 2))
        sums = sum(np.clip(step, -self.pairs, self.pairs - 1) for step in steps)
        sums += a0.value * op_of_b.sum(axis=0) + b0.value * op_of_a.sum(axis=1)[:, None]
        result = matrix(c, ctypes.c_int32, m, ldc)[:, :n]
        result[...] = alpha.value * (sums + k * a0.value * b0.value) + beta.value * result
        assert matrix(c0, ctypes.c_int32, 1, 1)[0, 0] == 0


def char_case(ops: str, beta: float) -> Case:
    problem = Gemm(5, 7, 12, "char", 2.0, beta, ld=(14, 15, 9), trans_a=ops[0] == "T", trans_b=ops[1] == "T")
    return replace(CASE, variant="mkl", dtype="char", problem=replace(problem, batch=2))


@pytest.mark.parametrize(("ops", "beta"), [("NN", 0.0), ("TT", -1.0)])
def test_mkl_gets_a_plus_128_and_its_offset(ops: str, beta: float, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(numpy_blas, "mkl_file", lambda: "libmkl_rt.so")
    monkeypatch.setattr(ctypes, "CDLL", lambda _: FakeMkl())
    bench = numpy_blas.MklExecutor().prepare(char_case(ops, beta), Policy())
    assert bench.prepared.notes[0] == "MKL 2026.2, 3 threads"
    assert bench.verify("before").check.reasons == ()
    assert bench.start("host", 3).count == 3
    assert bench.verify("after").check.reasons == ()
    monkeypatch.setattr(numpy_blas, "_OFFSET", 127)
    assert bench.verify("before").check.verdict == "wrong"


def test_mkl_that_saturates_or_is_not_there_is_not_supported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(numpy_blas, "mkl_file", lambda: "libmkl_rt.so")
    monkeypatch.setattr(ctypes, "CDLL", lambda _: FakeMkl())
    monkeypatch.setattr(FakeMkl, "pairs", 1 << 15)
    with pytest.raises(NotMeasuredError, match="pairs saturate in 16 bits"):
        numpy_blas.MklExecutor().prepare(char_case("NN", 0.0), Policy())
    monkeypatch.setattr(numpy_blas, "mkl_file", lambda: "")
    with pytest.raises(NotMeasuredError, match=r"MKL is not there: pip install"):
        numpy_blas.MklExecutor()


@pytest.mark.skipif(not numpy_blas.mkl_file(), reason="MKL is not installed")
@pytest.mark.parametrize("dtype", BY_NAME["mkl"].needs.dtypes)
def test_mkl_is_exact(dtype: str) -> None:
    problem = Gemm(65, 33, 70, dtype, 2.0, -1.0, ld=(71, 40, 33), trans_b=False)
    bench = numpy_blas.MklExecutor().prepare(
        replace(CASE, variant="mkl", dtype=dtype, problem=problem), Policy()
    )
    assert [bench.verify(when).check.verdict for when in ("before", "after")] == ["ok", "ok"]
