"""A made-up machine for `gemmbench doctor`: a tree like Linux's, a board in NVML, drivers. It is healthy."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from gemmbench.doctor.machine import ExaminedMachine
from gemmbench.model.device import DeviceFacts
from tests import fake_runs
from tests.fake_nvml import FakeNvml
from tests.fake_proc import OWN, FakeProc

CORES = 8
SLOT = "0000:17:00.0"
CPU_DEVICE = replace(fake_runs.CPU, index=0, compute_units=CORES)
GPU_DEVICE = replace(
    fake_runs.GPU, index=1, pci=SLOT, compute_capability=(9, 0), extensions=("cl_khr_fp64", "cl_nv_fence")
)
POCL_DEVICE = replace(
    fake_runs.POCL,
    index=2,
    compute_units=CORES,
    dtypes=("float", "double", "half", "int"),
    device_version="OpenCL 3.0 PoCL HSTR: pthread-x86_64-pc-linux-gnu-skylake-avx512",
    vector_widths={"float": 16},
    warnings=(),
)
BLAS = {
    "user_api": "blas",
    "internal_api": "openblas",
    "num_threads": CORES,
    "version": "0.3.30",
    "architecture": "SkylakeX",
}
BOARD: dict[str, Any] = {
    "nvmlDeviceGetCurrPcieLinkWidth": 16,
    "nvmlDeviceGetMaxPcieLinkWidth": 16,
    "nvmlDeviceGetCurrPcieLinkGeneration": 5,
    "nvmlDeviceGetMaxPcieLinkGeneration": 5,
    "nvmlDeviceGetGpuMaxPcieLinkGeneration": 5,
    "nvmlDeviceGetPerformanceState": 0,
    "nvmlDeviceGetEnforcedPowerLimit": 700_000,
    "nvmlDeviceGetPowerManagementDefaultLimit": 700_000,
    "nvmlDeviceGetApplicationsClock": 1980,
    "nvmlDeviceGetDefaultApplicationsClock": 1980,
    "nvmlDeviceGetMigMode": [0, 0],
    "nvmlDeviceGetUtilizationRates": SimpleNamespace(gpu=0),
    "nvmlDeviceGetComputeRunningProcesses": [],
}
FILES = {
    "etc/os-release": 'NAME="Debian GNU/Linux"\nID=debian\n',
    "etc/OpenCL/vendors/nvidia.icd": "libnvidia-opencl.so.1\n",
    "proc/cpuinfo": "processor\t: 0\nmodel name\t: Some Processor\nflags\t\t: fpu sse2 avx avx2 avx512f\n",
    "proc/self/status": f"Name:\tpython\nCpus_allowed_list:\t0-{CORES - 1}\n",
    "proc/self/cgroup": "0::/user.slice/session-1.scope\n",
    "sys/fs/cgroup/user.slice/session-1.scope/cpu.max": "max 100000\n",
    "sys/fs/cgroup/user.slice/session-1.scope/cpuset.cpus.effective": f"0-{CORES - 1}\n",
    "sys/fs/cgroup/user.slice/cpu.max": "max 100000\n",
    "sys/devices/system/cpu/online": f"0-{CORES - 1}\n",
    "sys/devices/system/cpu/smt/active": "0\n",
    "sys/devices/system/cpu/intel_pstate/no_turbo": "0\n",
    f"sys/bus/pci/devices/{SLOT}/vendor": "0x10de\n",
    f"sys/bus/pci/devices/{SLOT}/class": "0x030200\n",
    "sys/bus/pci/devices/0000:02:00.0/vendor": "0x1a03\n",  # the picture of a server's remote console
    "sys/bus/pci/devices/0000:02:00.0/class": "0x030000\n",
}
CPUFREQ = {
    "scaling_governor": "performance",
    "scaling_driver": "intel_pstate",
    "energy_performance_preference": "performance",
    "scaling_min_freq": "800000",
    "scaling_max_freq": "3900000",
    "cpuinfo_max_freq": "3900000",
    "base_frequency": "2100000",
}


@dataclass
class Patient:
    """The made-up machine; tests change what it is made of before they look.

    Attributes:
        root: the folder that stands for /.
        other: cores that other programs use while it is watched.
        steal: cores that the hypervisor takes meanwhile.
    """

    root: Path
    devices: tuple[DeviceFacts, ...] = (CPU_DEVICE, GPU_DEVICE, POCL_DEVICE)
    chosen: tuple[int, ...] = (0, 1, 2)
    blas: dict[str, Any] | None = field(default_factory=lambda: dict(BLAS))
    environ: dict[str, str] = field(default_factory=dict)
    board: dict[str, Any] = field(default_factory=lambda: dict(BOARD))
    other: float = 0.0
    steal: float = 0.0

    def __post_init__(self) -> None:
        self.proc = FakeProc(CORES, steal_s=0.0)
        for path, text in FILES.items():
            self.write(path, text)
        for core in range(CORES):
            self.write(f"sys/devices/system/cpu/cpu{core}/topology/thread_siblings_list", f"{core}\n")
            if core:  # one policy for all of them
                (self.root / f"sys/devices/system/cpu/cpu{core}/cpufreq").symlink_to("../cpu0/cpufreq")
        self.cpufreq()

    def write(self, path: str, text: str) -> None:
        (self.root / path).parent.mkdir(parents=True, exist_ok=True)
        (self.root / path).write_text(text)

    def cpufreq(self, **values: str) -> None:
        """What cpufreq says of every processor."""
        for name, value in {**CPUFREQ, **values}.items():
            self.write(f"sys/devices/system/cpu/cpu0/cpufreq/{name}", f"{value}\n")

    def change(self, index: int, **values: Any) -> None:
        """Another fact of a device."""
        self.devices = tuple(
            replace(each, **values) if each.index == index else each for each in self.devices
        )

    def machine(self, **values: Any) -> ExaminedMachine:
        """It, as `doctor` sees it."""
        whole = ExaminedMachine(
            self.root,
            self.devices,
            [each for each in self.devices if each.index in self.chosen],
            blas=self.blas,
            environ=self.environ,
            nvml=FakeNvml(self.board),
            open_board=lambda device: None,
            own=OWN,
            sleep=lambda seconds: self.proc.run(seconds, other=self.other, steal=self.steal),
            now=lambda: self.proc.now,
            counters=self.proc,
        )
        return replace(whole, **values)
