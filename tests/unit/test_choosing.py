"""Which device an option means, twin devices, and what the host has left."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest

from gemmbench import UsageError
from gemmbench.ladder import BY_NAME
from gemmbench.measure import machine
from gemmbench.measure.child import for_threads
from gemmbench.model.case import Skip
from gemmbench.model.device import usable_cores
from gemmbench.model.problem import Gemm
from gemmbench.suite import refusal
from gemmbench.suite.cached import device_key
from gemmbench.suite.plan import gemm_plan
from gemmbench.suite.selection import select
from tests import fake_runs as fake
from tests.unit.test_plan import DEVICE

CARD = replace(
    DEVICE, type="gpu", platform="NVIDIA CUDA", vendor="NVIDIA Corporation", name="NVIDIA GeForce RTX 4090",
    version="OpenCL 3.0 CUDA 12.4", pci="0000:01:00.0", unified_memory=False,
)  # fmt: skip
INTEGRATED = replace(CARD, index=1, platform="Intel(R) OpenCL Graphics", vendor="Intel(R) Corporation",
                     name="Intel(R) UHD Graphics 770", pci="0000:00:02.0", unified_memory=True)  # fmt: skip
OTHERS_DRIVER = replace(CARD, index=2, platform="rusticl", vendor="Mesa", version="OpenCL 3.0 Mesa 24.1")
AMD = replace(CARD, index=3, platform="AMD Accelerated Parallel Processing", vendor="AMD",
              name="AMD Radeon RX 7900 XTX (gfx1100)", pci="0000:03:00.0")  # fmt: skip
CPU = replace(
    DEVICE, index=4, type="cpu", name="AMD EPYC 9004", platform="Portable Computing Language", pci=""
)
EVERY = (INTEGRATED, OTHERS_DRIVER, CPU, CARD, AMD)


@pytest.mark.parametrize(
    ("selector", "chosen"),
    [
        ("", [CARD]),  # discrete, by its maker's driver
        ("4090", [CARD]),
        ("rtx4090", [CARD]),
        ("RTX 4090", [CARD]),
        ("uhd graphics", [INTEGRATED]),
        ("gpu", [CARD]),
        ("cpu", [CPU]),
        ("GPU,cpu", [CARD, CPU]),
        ("7900 xtx", [AMD]),
        ("gfx1100", [AMD]),
        ("2", [OTHERS_DRIVER]),  # an index
        ("rusticl", [OTHERS_DRIVER]),
        ("all", [INTEGRATED, CPU, CARD, AMD]),  # one card once
    ],
)
def test_a_selector_means_the_best_device_that_has_it(selector: str, chosen: list[object]) -> None:
    assert list(select(EVERY, selector)) == chosen


@pytest.mark.parametrize("selector", ["12345", "accelerator", "5090", "9" * 5000])
def test_a_number_that_no_device_has_is_one_sentence(selector: str) -> None:
    with pytest.raises(UsageError, match="no device is "):
        select(EVERY, selector)


def test_twins_have_caches_of_their_own() -> None:
    twin = replace(CPU, index=5, device_index=CPU.device_index + 1)
    assert device_key(twin) != device_key(CPU)
    assert device_key(replace(CARD, index=7, device_index=3)) == device_key(CARD)  # known by its PCI address


def test_what_changes_the_threads_or_vectors_of_a_cpu_has_caches_of_its_own(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("os.sched_getaffinity", lambda _: {0, 1}, raising=False)
    before, card = device_key(CPU), device_key(CARD)
    for name in (
        "DPCPP_CPU_NUM_CUS", "SYCL_CPU_NUM_CUS", "CL_CONFIG_CPU_TBB_NUM_WORKERS", "CL_CONFIG_CPU_TARGET_ARCH",
        "CL_CONFIG_CPU_VECTORIZER_MODE", "POCL_MAX_PTHREAD_COUNT", "POCL_LLVM_CPU_NAME",
        "POCL_AFFINITY", "POCL_VECTORIZER_PREFER_VECTOR_WIDTH", "POCL_WORK_GROUP_METHOD", "DPCPP_CPU_PLACES",
    ):  # fmt: skip
        with monkeypatch.context() as patch:
            patch.setenv(name, "1")
            assert device_key(CPU) != before, name
            assert device_key(CARD) == card
    with monkeypatch.context() as patch:
        for name in ("OPENBLAS_NUM_THREADS", "POCL_CACHE_DIR", "POCL_DEBUG", "POCL_KERNEL_CACHE"):
            patch.setenv(name, "1")  # nothing to a rate on an OpenCL device
        assert device_key(CPU) == before
    keys = set()
    for cores in ({0, 1}, {0}, {1}):
        monkeypatch.setattr("os.sched_getaffinity", lambda _, cores=cores: cores, raising=False)
        keys.add(device_key(CPU))
        assert device_key(CARD) == card
    assert len(keys) == 3


@pytest.mark.parametrize("error", [PermissionError, AttributeError, OSError])
def test_affinity_that_the_system_refuses_means_all_cores(
    error: type[Exception], monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(_: int) -> set[int]:
        raise error

    monkeypatch.setattr("os.sched_getaffinity", refuse, raising=False)
    assert usable_cores() is None
    assert machine.cores() == os.cpu_count()
    assert "POCL_AFFINITY" not in for_threads()
    machine.all_cores.cache_clear()
    assert machine.all_cores() == ()
    machine.all_cores.cache_clear()


GROUP = "sys/fs/cgroup/job"


def memory(root: Path, files: dict[str, str]) -> int:
    for name, text in {"proc/self/cgroup": "0::/job\n", **files}.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    return machine.free_memory_bytes(root)


def test_free_memory_is_what_the_control_group_leaves(tmp_path: Path) -> None:
    limit = {f"{GROUP}/memory.max": "1000\n", f"{GROUP}/memory.current": "700\n"}
    assert memory(tmp_path / "1", {**limit, f"{GROUP}/memory.stat": "anon 5\ninactive_file 100\n"}) == 400
    assert memory(tmp_path / "2", {**limit, f"{GROUP}/memory.max": "max\n"}) > 1000
    outer = {
        "sys/fs/cgroup/memory.max": "600",
        "sys/fs/cgroup/memory.current": "500",
        "sys/fs/cgroup/memory.stat": "",
    }
    assert memory(tmp_path / "3", outer) == 100
    old = "sys/fs/cgroup/memory/job/memory"
    files = {f"{old}.limit_in_bytes": "9", f"{old}.usage_in_bytes": "4", f"{old}.stat": ""}
    assert memory(tmp_path / "4", {"proc/self/cgroup": "3:cpu,memory:/job\n", **files}) == 5
    assert machine.free_memory_bytes(tmp_path / "none") > 0


def test_a_problem_that_the_host_has_no_room_for_is_skipped_with_a_sentence(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(refusal, "free_memory_bytes", lambda: 40 << 20)
    small, large = gemm_plan([fake.GPU], [BY_NAME["naive"]], [Gemm(1024, 1024, 1024), Gemm(2048, 2048, 2048)])
    assert not isinstance(small, Skip)
    assert large.row.reason == "needs 144 MiB of host memory, 40.0 MiB is free"
    monkeypatch.setattr(refusal, "free_memory_bytes", lambda: 140 << 20)
    (on_cpu,) = gemm_plan([fake.CPU], [BY_NAME["naive"]], [Gemm(2048, 2048, 2048)])
    assert isinstance(on_cpu, Skip)  # its buffers are the host's, too
