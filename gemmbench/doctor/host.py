"""What a check is, and those of drivers and of the host: clock, processors, others, BLAS."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Literal, NamedTuple, TypeVar

from gemmbench.doctor.machine import (
    CPU,
    NEAR,
    NO_RATE,
    UNKNOWN,
    Finding,
    Machine,
    NotSeenError,
    ranges,
)
from gemmbench.measure.host import pool_title
from gemmbench.model.device import BUSY_CORES, DeviceFacts
from gemmbench.model.units import by_key, clean, counted, listed, number, percent
from gemmbench.opencl import drivers

_Look = TypeVar("_Look", bound=Callable[..., Iterator[Finding]])


@dataclass(frozen=True)
class Check:
    """A function that looks at the host or a device; docs/doctor.md says what it reads."""

    look: Callable[..., Iterator[Finding]]  # takes the machine; and a device, unless it is `of` the host
    of: Literal["host", "cpu", "gpu"]  # what is checked: the host once, or each such device

    @property
    def name(self) -> str:
        return self.look.__name__.replace("_", "-")


CHECKS: list[Check] = []
"""In the order in which they stand below and in `gemmbench.doctor`, which is that of their table."""


def check(of: Literal["host", "cpu", "gpu"]) -> Callable[[_Look], _Look]:
    """Make a function a check."""

    def enter(look: _Look) -> _Look:
        CHECKS.append(Check(look, of))
        return look

    return enter


# --- drivers: what is missing, what compiles for less -------------------------------------------------------

_STOLEN = 0.02  # of the cores
_TICKS_S = 0.02  # of each core: Linux counts in ticks of a hundredth of a second
_VENDORS = {"0x10de": "nvidia", "0x1002": "amd", "0x8086": "intel"}  # of PCI
_TITLES = {"nvidia": "NVIDIA", "amd": "AMD", "intel": "Intel"}
_WORDS = {"nvidia": ("nvidia",), "amd": ("amd", "advanced micro devices"), "intel": ("intel",)}
_DISPLAY = "0x03"  # PCI's class of GPUs
_PASSED_ON = "in a container of Docker: docker run --gpus all"


@check("host")
def driver_missing(machine: Machine) -> Iterator[Finding]:
    """No device at all, or a GPU in PCI that no OpenCL device belongs to."""
    if machine.trouble:
        raise NotSeenError(machine.trouble)
    if not machine.devices:
        files = machine.matching("etc/OpenCL/vendors/*.icd")
        listed_drivers = [f"/{path}: {machine.optional(path)}" for path in files]
        yield Finding(
            "there is no OpenCL driver with a device",
            f"{NO_RATE}: nothing can be measured",
            ("clGetPlatformIDs: no device", *(listed_drivers or ["/etc/OpenCL/vendors: no .icd file"])),
            drivers.install_command(),
            f"or this system's package: {drivers.GUIDE}",
        )
    for maker, slots in _boards(machine).items():
        words = _WORDS[maker]
        if any(
            device.type == "gpu" and word in f"{device.vendor} {device.platform} {device.name}".lower()
            for device in machine.devices
            for word in words
        ):
            continue
        nodes = [
            path
            for path in machine.matching("dev/dri/renderD*")
            if not os.access(machine.root / path, os.R_OK | os.W_OK)
        ]
        closed = maker != "nvidia" and bool(nodes)
        yield Finding(
            f"the {_TITLES[maker]} GPU has no OpenCL device",
            f"{NO_RATE}: it cannot be measured",
            (
                *(f"/{slot}/vendor: {machine.read(f'{slot}/vendor')}" for slot in slots[:2]),
                *(f"/{path}: this user may not use it" for path in nodes[:1] if closed),
            ),
            "sudo usermod -aG render $USER" if closed else "",
            "then log in again"
            if closed
            else _PASSED_ON
            if maker == "nvidia" and machine.in_container()
            else f"its OpenCL driver is a package of this system: {drivers.GUIDE}",
        )


def _boards(machine: Machine) -> dict[str, list[str]]:
    return by_key(
        (maker, slot)
        for slot in machine.matching("sys/bus/pci/devices/*")
        if (maker := _VENDORS.get(machine.optional(f"{slot}/vendor")))
        if machine.optional(f"{slot}/class").startswith(_DISPLAY)
    )


_INTEL_TARGET = "CL_CONFIG_CPU_TARGET_ARCH"  # the processor that Intel's runtime compiles for


@check("cpu")
def driver_target(machine: Machine, device: DeviceFacts) -> Iterator[Finding]:
    """PoCL says what it compiles for; of Intel's runtime the vectors' width does."""
    offered = drivers.vector_bits(machine.read("proc/cpuinfo"))
    if not offered:
        raise NotSeenError("/proc/cpuinfo names no vectors of x86")
    generic = drivers.generic_target(device.device_version)
    bits = 128 if generic else device.vector_bits
    if not 0 < bits < offered:
        return
    named = f"{clean(generic)}: " if generic else ""
    forced = machine.environ.get(_INTEL_TARGET, "") if device.family == "cpu-intel" else ""
    seen = (
        f"CL_DEVICE_VERSION: {clean(device.device_version)}"
        if generic
        else f"CL_DEVICE_NATIVE_VECTOR_WIDTH_FLOAT: {device.vector_widths.get('float')}"
    )
    yield Finding(
        f"the driver compiles for {named}vectors of {bits} bits where this CPU has {offered}",
        f"up to {percent(1 - bits / offered)} of this device's arithmetic; nothing on processors that split "
        "the wide instructions",
        (
            seen,
            *((f"environment: {_INTEL_TARGET}={clean(forced)}",) if forced else ()),
            f"/proc/cpuinfo: {offered} bits",
        ),
        f"env -u {_INTEL_TARGET} gemmbench peak" if forced else drivers.install_command(),
    )


# --- the host's clock ---------------------------------------------------------------------------------------

_OWN_GOVERNORS = ("intel_pstate", "amd-pstate-epp")  # their powersave is no limit: the processor decides
_SAVING = ("power", "balance_power")


@check("host")
def governor(machine: Machine) -> Iterator[Finding]:
    """intel_pstate's and amd-pstate's own powersave follows the load; the generic one holds the lowest clock.

    Source: Linux, Documentation/admin-guide/pm/intel_pstate.rst and cpufreq.rst.
    """
    folders = [f"{CPU}/cpu{each}/cpufreq" for each in machine.allowed]
    governors = {folder: machine.read(f"{folder}/scaling_governor") for folder in folders}
    slow: list[tuple[str, str]] = []
    ratios: list[float] = []
    for folder, mode in governors.items():
        driver = machine.optional(f"{folder}/scaling_driver")
        if mode == "powersave" and driver in _OWN_GOVERNORS:
            preference = machine.optional(f"{folder}/energy_performance_preference")
            if preference in _SAVING:
                slow.append((f"{folder}/energy_performance_preference", preference))
            continue
        held = {"powersave": "scaling_min_freq", "userspace": "scaling_setspeed"}.get(mode)
        if held is None:
            continue
        most = machine.number(f"{folder}/cpuinfo_max_freq")
        clock = machine.optional(f"{folder}/{held}")
        ratio = int(clock) / most if clock.isdecimal() else None
        if ratio is None or ratio < NEAR:
            slow.append((f"{folder}/scaling_governor", mode))
            ratios += [] if ratio is None else [ratio]
    if not slow:
        return
    path, value = slow[0]
    what = "the governor" if path.endswith("scaling_governor") else "the energy preference"
    yield Finding(
        f"{len(slow)} of {len(folders)} processors have {what} {value}",
        f"up to {percent(1 - min(ratios))}: they are held at {percent(min(ratios))} of their clock"
        if ratios
        else UNKNOWN,
        tuple(f"/{path}: {value}" for path, value in slow[:2]),
        f"echo performance | sudo tee /{CPU}/cpu*/cpufreq/scaling_governor",
    )


@check("host")
def cpu_clock(machine: Machine) -> Iterator[Finding]:
    """A limit above the base clock is no limit of its own where turbo is off."""
    limited = {}
    turbo_is_off = any(machine.optional(path) == off for path, off, _ in _TURBO)
    for each in machine.allowed:
        folder = f"{CPU}/cpu{each}/cpufreq"
        limit, most = (
            machine.number(f"{folder}/{name}") for name in ("scaling_max_freq", "cpuinfo_max_freq")
        )
        base = machine.optional(f"{folder}/base_frequency")
        turbo_only = turbo_is_off and limit >= (int(base) if base.isdecimal() else most)
        if limit < NEAR * most and not turbo_only:
            limited[folder] = (limit, most)
    if not limited:
        return
    folder, (limit, most) = min(limited.items(), key=lambda item: item[1][0] / item[1][1])
    yield Finding(
        f"the clock of {len(limited)} of {len(machine.allowed)} processors is limited to "
        f"{number(limit / 1000)} of {number(most / 1000)} MHz",
        f"up to {percent(1 - limit / most)}",
        (f"/{folder}/scaling_max_freq: {limit}", f"/{folder}/cpuinfo_max_freq: {most}"),
        f"echo {most} | sudo tee /{CPU}/cpu*/cpufreq/scaling_max_freq",
    )


_TURBO = (  # file, its value where turbo is off, and what switches it on
    (f"{CPU}/intel_pstate/no_turbo", "1", "0"),
    (f"{CPU}/cpufreq/boost", "0", "1"),
)


@check("host")
def turbo(machine: Machine) -> Iterator[Finding]:
    """Two files: intel_pstate's, and that of the other drivers (acpi-cpufreq, amd-pstate)."""
    if not any(machine.has(path) for path, _, _ in _TURBO):
        raise NotSeenError(f"there is no /{_TURBO[0][0]} and no /{_TURBO[1][0]}")
    for path, off, on in _TURBO:
        if not machine.has(path) or machine.read(path) != off:
            continue
        folder = f"{CPU}/cpu{machine.allowed[0]}/cpufreq"
        base, most = (machine.optional(f"{folder}/{name}") for name in ("base_frequency", "cpuinfo_max_freq"))
        known = base.isdecimal() and most.isdecimal() and int(base) < int(most)
        seen = (f"/{path}: {off}", *((f"/{folder}/base_frequency: {base}",) if known else ()))
        yield Finding(
            "turbo is switched off",
            f"up to {percent(1 - int(base) / int(most))}: {number(int(base) / 1000)} instead of "
            f"{number(int(most) / 1000)} MHz, which few cores at once reach"
            if known
            else UNKNOWN,
            seen,
            f"echo {on} | sudo tee /{path}",
            "it has no effect where the firmware has switched turbo off",
        )


# --- processors that may be used ----------------------------------------------------------------------------


@check("host")
def affinity(machine: Machine) -> Iterator[Finding]:
    """Fewer processors than are online, by taskset, numactl or a control group."""
    allowed, online = machine.allowed, machine.online
    missing = len(set(online) - set(allowed))
    if not missing:
        return
    cores = f", {counted(machine.cores(allowed), 'core')}" if _has_smt(machine) else ""
    inherited = _cpuset(machine)
    command = f"taskset -c {ranges(online)} gemmbench peak"
    remark = ""
    if inherited is not None and set(inherited) <= set(allowed):
        command = ""
        remark = (
            "a control group sets them: its owner can give more (Slurm, systemd; on a container's host "
            f"docker update --cpuset-cpus {ranges(online)} CONTAINER)"
        )
    yield Finding(
        f"this process may use {len(allowed)} of {len(online)} processors{cores}",
        f"{percent(missing / len(online))} of the processors, for the host's BLAS and for CPU devices",
        (
            f"/proc/self/status: Cpus_allowed_list {ranges(allowed)}",
            f"/{CPU}/online: {machine.read(f'{CPU}/online')}",
        ),
        command,
        remark,
    )


def _cpuset(machine: Machine) -> tuple[int, ...] | None:
    """The processors that a control group leaves; None if there is no such group."""
    for group in _groups(machine, "cpuset"):
        for name in ("cpuset.cpus.effective", "cpuset.effective_cpus"):
            if machine.optional(f"{group.folder}/{name}"):
                return machine.numbers(f"{group.folder}/{name}")
    return None


def _has_smt(machine: Machine) -> bool:
    """Whether cores show as several processors."""
    return machine.optional(f"{CPU}/smt/active") == "1"


class _Group(NamedTuple):
    folder: str
    version: int
    is_root: bool  # of what is mounted here: a limit on it was set from outside, by a container's host


def _groups(machine: Machine, controller: str) -> list[_Group]:
    """This process's control group and those around it, innermost first; `NotSeenError` if not told."""
    groups = []
    for line in machine.read("proc/self/cgroup").splitlines():
        _, _, rest = line.partition(":")
        names, colon, path = rest.partition(":")
        if not colon or (names and controller not in names.split(",")):
            continue
        version = 1 if names else 2
        mounts = [f"sys/fs/cgroup/{names}", f"sys/fs/cgroup/{controller}"] if names else ["sys/fs/cgroup"]
        mount = next((each for each in mounts if machine.has(each)), None)
        if mount is None:
            continue
        parts = [part for part in path.split("/") if part not in ("", "..")]
        for count in range(len(parts), -1, -1):
            groups.append(_Group("/".join([mount, *parts[:count]]), version, count == 0))
    return groups


@check("host")
def cpu_quota(machine: Machine) -> Iterator[Finding]:
    """The tightest quota among the control groups around this process, of either version."""
    tightest: tuple[float, str, str, bool] | None = None
    for group in _groups(machine, "cpu"):
        path = f"{group.folder}/{'cpu.max' if group.version == 2 else 'cpu.cfs_quota_us'}"
        if not machine.has(path):
            continue
        text = machine.read(path)
        quota, _, period = text.partition(" ")
        if group.version == 1:
            period = machine.optional(f"{group.folder}/cpu.cfs_period_us")
        if not quota.isdecimal() or not period.isdecimal() or not int(period):
            continue  # max, or -1
        if tightest is None or int(quota) / int(period) < tightest[0]:
            tightest = int(quota) / int(period), path, text, group.is_root
    processors = len(machine.allowed)
    if tightest is None or tightest[0] >= NEAR * processors:
        return
    cores, path, text, from_outside = tightest
    stat = f"{path.rpartition('/')[0]}/cpu.stat"
    counts = machine.fields(stat, " ")
    periods = counts.get("nr_throttled")
    unlimited = "max" if path.endswith("cpu.max") else "-1"
    yield Finding(
        f"a control group gives this process the time of {number(cores)} of {processors} processors",
        f"{percent(1 - cores / processors)}; threads that wait for a stopped one lose more",
        (
            f"/{path}: {text}",
            *([f"/{stat}: nr_throttled {periods} of {counts.get('nr_periods')}"] if periods else []),
        ),
        f"docker update --cpus {processors} CONTAINER"
        if from_outside
        else f"echo {unlimited} | sudo tee /{path}",
        "on the container's host; in Kubernetes raise resources.limits.cpu" if from_outside else "",
    )


# --- what others take ---------------------------------------------------------------------------------------

_SHOWN_CORES = 0.05


@check("host")
def steal(machine: Machine) -> Iterator[Finding]:
    """An idle machine is not stolen from: what was counted since its start says more than half a second."""
    watched = machine.watched
    before, after = watched.before, watched.after
    taken_s, ran_s = after.steal_s - before.steal_s, after.busy_s - before.busy_s
    now = taken_s / (after.cores * (after.at_s - before.at_s))
    ever = after.steal_s / (after.steal_s + after.busy_s) if after.busy_s else 0.0
    resolution = _TICKS_S / (after.at_s - before.at_s)
    if now <= _STOLEN + resolution and ever <= _STOLEN:
        return
    yield Finding(
        "the hypervisor gives this machine's processors to others",
        f"{percent(max(now, ever))} of the time, and more where threads wait for the slowest",
        (
            f"since the start: steal {number(after.steal_s)} s, work {number(after.busy_s)} s",
            f"over half a second: steal {number(taken_s)} s, work {number(ran_s)} s",
        ),
        "gemmbench check BASE --against OLD",
        "compares in turn, so that both sides lose alike; processors of your own are the provider's to give",
    )


@check("host")
def load(machine: Machine) -> Iterator[Finding]:
    """The processors that this process may use, and whoever uses them most."""
    watched = machine.watched
    others = watched.after.since(watched.before)[0]
    if others is None or others < BUSY_CORES:
        return
    busiest = [each for each in watched.busiest if each[2] >= _SHOWN_CORES][:3]
    names = ", ".join(f"{clean(name)} ({process}) {number(cores)}" for process, name, cores in busiest)
    yield Finding(
        f"other programs use {number(others)} of {counted(watched.after.cores, 'core')}",
        f"up to {percent(min(1.0, others / watched.after.cores))} of the time; a threaded BLAS waits for its "
        "slowest thread and loses more",
        (
            f"processor times over half a second: {number(others)} cores",
            *((f"processes: {names}",) if names else ()),
        ),
        f"ps -o pid,user,etime,args -p {','.join(str(process) for process, _, _ in busiest)}"
        if busiest
        else "top",
        "end them, or wait",
    )


# --- the host's BLAS ----------------------------------------------------------------------------------------

_VARIABLES = {"openblas": "OPENBLAS_NUM_THREADS", "mkl": "MKL_NUM_THREADS", "blis": "BLIS_NUM_THREADS"}
_THREAD_VARIABLES = (*_VARIABLES.values(), "OMP_NUM_THREADS", "GOTO_NUM_THREADS")


def _variable(machine: Machine) -> str:
    return _VARIABLES.get(str((machine.blas or {}).get("internal_api")), "OMP_NUM_THREADS")


def _threads(machine: Machine) -> int:
    if machine.blas is None:
        raise NotSeenError("threadpoolctl does not know numpy's BLAS")
    return int(machine.blas.get("num_threads") or 1)


@check("host")
def blas_threads(machine: Machine) -> Iterator[Finding]:
    """Fewer threads than cores, or more than processors."""
    threads, processors = _threads(machine), len(machine.allowed)
    cores = machine.cores(machine.allowed) if _has_smt(machine) else processors
    if cores <= threads <= processors:
        return
    fewer = threads < cores
    given = {name: machine.environ[name] for name in _THREAD_VARIABLES if machine.environ.get(name)}
    names = " ".join(f"-u {name}" for name in given)
    yield Finding(
        f"numpy's BLAS runs {counted(threads, 'thread')} on {counted(cores, 'core')}",
        f"up to {percent(1 - threads / cores)} of the host's BLAS"
        if fewer
        else f"{UNKNOWN}: threads wait for others that have no core",
        (
            f"threadpoolctl: {pool_title(machine.blas or {})}",
            *([f"environment: {listed(given)}"] if given else []),
        ),
        f"env {names} gemmbench square --kernel numpy"
        if given
        else f"{_variable(machine)}={cores} gemmbench square --kernel numpy",
    )
