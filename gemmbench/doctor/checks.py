"""The checks: a row for what each reads and tells, and the function that looks.

A check yields a finding only for what it has read; what it cannot read is said, and is no finding. Costs are
derived from what was read, or published (then with the source), or not known.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Literal

from gemmbench.doctor import devices, host
from gemmbench.doctor.finding import Finding, NotSeen
from gemmbench.doctor.machine import Machine, NotSeenError
from gemmbench.model.device import DeviceFacts, broad_type

Look = Callable[[Machine], Iterator[Finding]]
LookAt = Callable[[Machine, DeviceFacts], Iterator[Finding]]


@dataclass(frozen=True)
class Check:
    """A row of the table."""

    name: str
    of: Literal["host", "cpu", "gpu", "device"]  # what is looked at: the host once, or each such device
    reads: str
    tells: str
    look: Look | LookAt
    slows: bool = True  # whether it lowers the rates of kernels
    at_rest: bool = False  # whether it needs that gemmbench itself is not running anything


# --- the table ----------------------------------------------------------------------------------------------

CHECKS: tuple[Check, ...] = (
    Check(
        "driver-missing",
        "host",
        "OpenCL's devices; PCI's GPUs in /sys/bus/pci; /etc/os-release; the nodes in /dev/dri",
        "no device at all, or a GPU without one: the package for this system",
        devices.driver_missing,
        slows=False,
    ),
    Check(
        "driver-target",
        "cpu",
        "PoCL's device version; CL_CONFIG_CPU_TARGET_ARCH (Intel's runtime); the native vector width; "
        "the flags in /proc/cpuinfo",
        "a driver that compiles for less than the CPU has",
        devices.driver_target,
    ),
    Check(
        "driver-units",
        "cpu",
        "the device's compute units, and the processors that this process may use",
        "a driver that uses fewer cores than it may",
        devices.driver_units,
    ),
    Check(
        "types",
        "device",
        "the device's extensions",
        "missing half or double, and which driver here has it",
        devices.types,
        slows=False,
    ),
    Check(
        "governor",
        "host",
        "scaling_governor, scaling_driver and energy_performance_preference of each processor",
        "a governor that holds the clock down; `powersave` of intel_pstate and amd-pstate does not",
        host.governor,
    ),
    Check(
        "cpu-clock",
        "host",
        "scaling_max_freq and cpuinfo_max_freq of each processor",
        "a limit below what the processor can",
        host.cpu_clock,
    ),
    Check(
        "turbo",
        "host",
        "intel_pstate/no_turbo, cpufreq/boost, base_frequency",
        "turbo switched off",
        host.turbo,
    ),
    Check(
        "cpu-temperature",
        "host",
        "thermal zones with their trip points; counters of throttling, half a second apart",
        "a clock that heat lowers",
        host.cpu_temperature,
    ),
    Check(
        "affinity",
        "host",
        "Cpus_allowed_list of /proc/self/status, online processors, the control group's cpuset",
        "processors that this process may not use",
        host.affinity,
    ),
    Check(
        "smt",
        "host",
        "smt/active, thread_siblings_list, the threads of numpy's BLAS",
        "two threads of a BLAS on one core",
        host.smt,
    ),
    Check(
        "cpu-quota",
        "host",
        "cpu.max (cpu.cfs_quota_us) of the control groups around this process; nr_throttled",
        "less time than processors",
        host.cpu_quota,
    ),
    Check(
        "memory-limit",
        "host",
        "memory.max and memory.current (memory.limit_in_bytes) of the same",
        "less memory than the memory probes take",
        host.memory_limit,
        slows=False,
    ),
    Check(
        "steal",
        "host",
        "/proc/stat: since the start, and for half a second",
        "a hypervisor that shares",
        host.steal,
    ),
    Check(
        "load", "host", "/proc/stat and /proc/*/stat for half a second", "what other programs use", host.load
    ),
    Check(
        "numa",
        "host",
        "/sys/devices/system/node, /proc/self/numa_maps, Cpus_allowed_list",
        "buffers on another node than the processors",
        host.numa,
    ),
    Check(
        "blas-threads",
        "host",
        "the threads of numpy's BLAS (threadpoolctl), OPENBLAS_NUM_THREADS and its like",
        "fewer threads than cores, or more than processors",
        host.blas_threads,
    ),
    Check(
        "blas-kernels",
        "host",
        "the architecture of numpy's BLAS (threadpoolctl), OPENBLAS_CORETYPE, /proc/cpuinfo",
        "a BLAS with kernels for less than the CPU has",
        host.blas_kernels,
    ),
    Check(
        "device-numa",
        "gpu",
        "numa_node of the device's PCI slot, Cpus_allowed_list",
        "a device on another node than the processors",
        host.device_numa,
        slows=False,
    ),
    Check(
        "pcie",
        "gpu",
        "NVML: generation and width of the link, and the most; the generation in state P0 only",
        "a link below the device's maximum",
        devices.pcie,
        slows=False,
    ),
    Check(
        "ecc",
        "gpu",
        "NVML: ECC's mode; the compute capability",
        "ECC on memory without room for it",
        devices.ecc,
    ),
    Check(
        "gpu-power",
        "gpu",
        "NVML: the enforced power limit, and the default",
        "a limit below the default",
        devices.gpu_power,
    ),
    Check(
        "gpu-clock",
        "gpu",
        "NVML: applications clock, and the default. Locked clocks (`-lgc`) show in a row's conditions only",
        "a clock that was set below the default",
        devices.gpu_clock,
    ),
    Check(
        "gpu-temperature",
        "gpu",
        "NVML: what limits the clock; the temperature",
        "a clock that heat, or the board's brake, lowers",
        devices.gpu_temperature,
    ),
    Check(
        "persistence",
        "gpu",
        "NVML: persistence mode, unless a display is attached",
        "a driver that unloads between two programs",
        devices.persistence,
        slows=False,
    ),
    Check("mig", "gpu", "NVML: MIG's mode", "a slice of a board", devices.mig),
    Check(
        "gpu-load",
        "gpu",
        "NVML: utilization, compute processes",
        "other programs on the device",
        devices.gpu_load,
        at_rest=True,
    ),
)


# --- looking ------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Report:
    """What came of every check."""

    findings: tuple[Finding, ...]
    not_seen: tuple[NotSeen, ...]
    looked: int  # checks that could look, each device counted


def examine(machine: Machine, at_rest: bool = True) -> Report:
    """Every check, in the table's order. Takes half a second, for which it watches the processors.

    Args:
        machine: what is looked at.
        at_rest: whether gemmbench runs nothing itself; otherwise checks that need that are left out.
    """
    findings: list[Finding] = []
    not_seen: list[NotSeen] = []
    looked = 0
    for check in CHECKS:
        if check.at_rest and not at_rest:
            continue
        subjects: list[DeviceFacts | None] = [None]
        if check.of != "host":
            subjects = [each for each in machine.chosen if check.of in ("device", broad_type(each))]
        for device in subjects:
            index = None if device is None else device.index
            try:
                for finding in check.look(machine) if device is None else check.look(machine, device):  # type: ignore[call-arg]  # by `of`
                    findings.append(replace(finding, check=check.name, device=index))
                looked += 1
            except NotSeenError as error:
                not_seen.append(NotSeen(check.name, str(error), index))
    return Report(tuple(findings), tuple(not_seen), looked)
