"""The checks of drivers, the host, and NVIDIA boards. A check reports only what it could read."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import Literal, TypeVar

from gemmbench.doctor.machine import ALMOST, CPU, ExaminedMachine, Finding, NotSeenError, ranges
from gemmbench.measure import blas
from gemmbench.measure.machine import pool_title
from gemmbench.model.device import BUSY_CORES, DeviceFacts
from gemmbench.model.units import by_key, clean, count_noun, list_values, number, percent
from gemmbench.opencl import drivers

_Look = TypeVar("_Look", bound=Callable[..., Iterator[Finding]])


@dataclass(frozen=True)
class HostCheck:
    """A function that looks at the host or a device; docs/troubleshooting.md says what it reads."""

    look: Callable[..., Iterator[Finding]]  # takes the machine; and a device, unless it is `of` the host
    of: Literal["host", "cpu", "gpu"]  # what is checked: the host once, or each such device

    @property
    def name(self) -> str:
        return self.look.__name__.replace("_", "-")


CHECKS: list[HostCheck] = []
"""Every check, in the order below, which is also the order of the table in docs/troubleshooting.md."""


def add_check(of: Literal["host", "cpu", "gpu"]) -> Callable[[_Look], _Look]:
    """Add a function to `CHECKS`."""

    def enter(look: _Look) -> _Look:
        CHECKS.append(HostCheck(look, of))
        return look

    return enter


_STOLEN = 0.02  # of the cores
_TICKS_S = 0.02  # of each core: Linux counts in ticks of a hundredth of a second
_VENDORS = {"0x10de": "nvidia", "0x1002": "amd", "0x8086": "intel"}  # of PCI
_TITLES = {"nvidia": "NVIDIA", "amd": "AMD", "intel": "Intel"}
_WORDS = {"nvidia": ("nvidia",), "amd": ("amd", "advanced micro devices"), "intel": ("intel",)}
_DISPLAY = "0x03"  # PCI's class of GPUs
_INTEL_TARGET = "CL_CONFIG_CPU_TARGET_ARCH"  # the processor that Intel's runtime compiles for
_SHOWN_CORES = 0.05  # a program that uses fewer is not named
_VARIABLES = {"openblas": "OPENBLAS_NUM_THREADS", "mkl": "MKL_NUM_THREADS", "blis": "BLIS_NUM_THREADS"}
_THREAD_VARIABLES = (*_VARIABLES.values(), "OMP_NUM_THREADS", "GOTO_NUM_THREADS")
# Gbit/s of a lane by generation: transfers per second (PCI-SIG) times what the line code leaves of them.
_LANE = {1: 2.5 * 0.8, 2: 5 * 0.8, 3: 8 * 128 / 130, 4: 16 * 128 / 130, 5: 32 * 128 / 130, 6: 64 * 242 / 256}
_GRAPHICS = 0  # NVML_CLOCK_GRAPHICS
_BUSY_PERCENT = 5  # of a GPU


@add_check("host")
def driver_missing(machine: ExaminedMachine) -> Iterator[Finding]:
    """Report why devices could not be listed, or no device, broken drivers, and GPUs without OpenCL."""
    if machine.trouble:
        sentence = f"{machine.trouble[:1].upper()}{machine.trouble[1:]}"
        yield Finding(sentence, "Check the OpenCL drivers", "gemmbench devices")
        return
    if not machine.devices:
        yield Finding(
            "No OpenCL driver has a device, so nothing can be measured.\n"
            f"Packages of this system: {drivers.GUIDE}",
            "Install a driver",
            drivers.install_command(),
            ("clGetPlatformIDs: no device",),
        )
    for problem, fix in machine.problems:
        yield Finding(f"{problem[:1].upper()}{problem[1:]}.", fix)
    for maker, slots in _pci_gpus(machine).items():
        if any(
            device.type == "gpu" and word in f"{device.vendor} {device.platform} {device.name}".lower()
            for device in machine.devices
            for word in _WORDS[maker]
        ):
            continue
        own = {node.rpartition("/")[2] for slot in slots for node in machine.matching(f"{slot}/drm/renderD*")}
        nodes = [] if maker == "nvidia" else machine.matching("dev/dri/renderD*")
        nodes = [path for path in nodes if path.rpartition("/")[2] in own]
        closed = [path for path in nodes if not os.access(machine.root / path, os.R_OK | os.W_OK)]
        fix, command = f"Install its OpenCL driver: {drivers.GUIDE}", ""
        if closed:
            fix, command = "Join its group, then log in again", "sudo usermod -aG render $USER"
        elif maker == "nvidia" and machine.in_container():
            fix, command = "Pass it to the container", "docker run --gpus all"
        yield Finding(
            f"The {_TITLES[maker]} GPU has no OpenCL device, so it cannot be measured.",
            fix,
            command,
            (
                *(f"/{slot}/vendor: {machine.read(f'{slot}/vendor')}" for slot in slots[:2]),
                *(f"/{path}: this user may not use it" for path in closed[:1]),
            ),
        )


def _pci_gpus(machine: ExaminedMachine) -> dict[str, list[str]]:
    return by_key(
        (maker, slot)
        for slot in machine.matching("sys/bus/pci/devices/*")
        if (maker := _VENDORS.get(machine.optional(f"{slot}/vendor")))
        if machine.optional(f"{slot}/class").startswith(_DISPLAY)
    )


@add_check("cpu")
def driver_target(machine: ExaminedMachine, device: DeviceFacts) -> Iterator[Finding]:
    """Report a CPU driver that compiles for narrower vectors than the processor has."""
    offered = drivers.vector_bits(machine.read("proc/cpuinfo"))
    if not offered:
        raise NotSeenError("/proc/cpuinfo names no vectors of x86")
    generic = drivers.generic_target(device.device_version)
    bits = 128 if generic else device.vector_bits
    if not 0 < bits < offered:
        return
    named = f"{clean(generic)}: " if generic else ""
    forced = machine.environ.get(_INTEL_TARGET, "") if device.family == "cpu-intel" else ""
    seen = f"CL_DEVICE_NATIVE_VECTOR_WIDTH_FLOAT: {device.vector_widths.get('float')}"
    if generic:
        seen = f"CL_DEVICE_VERSION: {clean(device.device_version)}"
    yield Finding(
        f"The driver compiles for {named}vectors of {bits} bits, but this CPU has {offered}: arithmetic may "
        f"be up to {percent(1 - bits / offered)} slower.",
        "Unset the variable" if forced else "Install a newer driver",
        f"env -u {_INTEL_TARGET} gemmbench peak" if forced else drivers.install_command(),
        (
            seen,
            *((f"environment: {_INTEL_TARGET}={clean(forced)}",) if forced else ()),
            f"/proc/cpuinfo: {offered} bits",
        ),
    )


@add_check("cpu")
def driver_threads(machine: ExaminedMachine, device: DeviceFacts) -> Iterator[Finding]:
    """Report a CPU driver with fewer threads than allowed cores."""
    threads, cores = device.compute_units, _allowed_cores(machine)
    if threads >= cores:
        return
    names = [name for names in drivers.THREAD_VARIABLES.values() for name in names]
    given = {name: machine.environ[name] for name in names if machine.environ.get(name)}
    yield Finding(
        f"The driver has {count_noun(threads, 'thread')} on {count_noun(cores, 'core')}: up to "
        f"{percent(1 - threads / cores)} slower.",
        "Unset the variable" if given else "Look for a limit in the driver's settings",
        " ".join(["env", *(f"-u {name}" for name in given), "gemmbench peak"]) if given else "",
        (f"compute units: {threads}", *([f"environment: {list_values(given)}"] if given else [])),
    )


_OWN_GOVERNORS = ("intel_pstate", "amd-pstate-epp")  # their powersave is no limit: the processor decides
_SAVING = ("power", "balance_power")


@add_check("host")
def governor(machine: ExaminedMachine) -> Iterator[Finding]:
    """Report all processors whose governor or energy preference keeps the clock low.

    With intel_pstate and amd-pstate, powersave follows the load. Source: Linux,
    Documentation/admin-guide/pm/intel_pstate.rst and cpufreq.rst.
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
        if ratio is None or ratio < ALMOST:
            slow.append((f"{folder}/scaling_governor", mode))
            ratios += [] if ratio is None else [ratio]
    if not slow:
        return
    path, value = slow[0]
    what = "the governor" if path.endswith("scaling_governor") else "the energy preference"
    yield Finding(
        f"{len(slow)} of {len(folders)} processors have {what} {value}: "
        + (f"up to {percent(1 - min(ratios))} slower." if ratios else "their clock may be too low."),
        "Change it",
        f"echo performance | sudo tee /{CPU}/cpu*/cpufreq/scaling_governor",
        tuple(f"/{path}: {value}" for path, value in slow[:2]),
    )


@add_check("host")
def cpu_clock(machine: ExaminedMachine) -> Iterator[Finding]:
    """Report processors whose highest allowed clock is below 98 % of their maximum.

    If turbo is off, only limits below the base clock count.
    """
    limited = {}
    turbo_is_off = any(machine.optional(path) == off for path, off, _ in _TURBO)
    for each in machine.allowed:
        folder = f"{CPU}/cpu{each}/cpufreq"
        limit = machine.number(f"{folder}/scaling_max_freq")
        most = machine.number(f"{folder}/cpuinfo_max_freq")
        base = machine.optional(f"{folder}/base_frequency")
        turbo_only = turbo_is_off and limit >= (int(base) if base.isdecimal() else most)
        if limit < ALMOST * most and not turbo_only:
            limited[folder] = (limit, most)
    if not limited:
        return
    folder, (limit, most) = min(limited.items(), key=lambda item: item[1][0] / item[1][1])
    yield Finding(
        f"The clock of {len(limited)} of {len(machine.allowed)} processors is limited to "
        f"{number(limit / 1000)} of {number(most / 1000)} MHz: up to {percent(1 - limit / most)} slower.",
        "Raise it",
        f"echo {most} | sudo tee /{CPU}/cpu*/cpufreq/scaling_max_freq",
        (f"/{folder}/scaling_max_freq: {limit}", f"/{folder}/cpuinfo_max_freq: {most}"),
    )


_TURBO = (  # file, its value where turbo is off, and what switches it on
    (f"{CPU}/intel_pstate/no_turbo", "1", "0"),
    (f"{CPU}/cpufreq/boost", "0", "1"),
)


@add_check("host")
def turbo(machine: ExaminedMachine) -> Iterator[Finding]:
    """Report each switch that turns turbo off: intel_pstate's no_turbo, or boost of other drivers."""
    if not any(machine.has(path) for path, _, _ in _TURBO):
        raise NotSeenError(f"there is no /{_TURBO[0][0]} and no /{_TURBO[1][0]}")
    for path, off, on in _TURBO:
        if not machine.has(path) or machine.read(path) != off:
            continue
        folder = f"{CPU}/cpu{machine.allowed[0]}/cpufreq"
        base, most = (machine.optional(f"{folder}/{name}") for name in ("base_frequency", "cpuinfo_max_freq"))
        known = base.isdecimal() and most.isdecimal() and int(base) < int(most)
        yield Finding(
            f"Turbo is off: {number(int(base) / 1000)} instead of {number(int(most) / 1000)} MHz, up to "
            f"{percent(1 - int(base) / int(most))} slower."
            if known
            else "Turbo is off, so CPU rates will be too low.",
            "Switch it on, unless the firmware forbids it",
            f"echo {on} | sudo tee /{path}",
            (f"/{path}: {off}", *((f"/{folder}/base_frequency: {base}",) if known else ())),
        )


@add_check("host")
def affinity(machine: ExaminedMachine) -> Iterator[Finding]:
    """Report that this process may use fewer processors than are online."""
    allowed, online = machine.allowed, machine.online
    missing = len(set(online) - set(allowed))
    if not missing:
        return
    cores = f", {count_noun(machine.cores(allowed), 'core')}" if _has_smt(machine) else ""
    inherited = _cpuset(machine)
    fix, command = "Use all of them", f"taskset -c {ranges(online)} gemmbench peak"
    if inherited is not None and set(inherited) <= set(allowed):
        fix = "Ask the owner of the control group (Slurm, systemd, container) for more"
        command = f"docker update --cpuset-cpus {ranges(online)} CONTAINER" if machine.in_container() else ""
    yield Finding(
        f"This process may use {len(allowed)} of {len(online)} processors{cores}: CPU rates may be up to "
        f"{percent(missing / len(online))} too low.",
        fix,
        command,
        (
            f"/proc/self/status: Cpus_allowed_list {ranges(allowed)}",
            f"/{CPU}/online: {machine.read(f'{CPU}/online')}",
        ),
    )


def _cpuset(machine: ExaminedMachine) -> tuple[int, ...] | None:
    """The processors that the innermost control group with a list allows, or None."""
    for group in machine.control_groups("cpuset"):
        for name in ("cpuset.cpus.effective", "cpuset.effective_cpus"):
            if machine.optional(f"{group.folder}/{name}"):
                return machine.numbers(f"{group.folder}/{name}")
    return None


def _allowed_cores(machine: ExaminedMachine) -> int:
    return machine.cores(machine.allowed) if _has_smt(machine) else len(machine.allowed)


def _has_smt(machine: ExaminedMachine) -> bool:
    return machine.optional(f"{CPU}/smt/active") == "1"


@add_check("host")
def cpu_quota(machine: ExaminedMachine) -> Iterator[Finding]:
    """Report the lowest CPU quota of the control groups around this process (v1 or v2)."""
    tightest: tuple[float, str, str, bool] | None = None
    for group in machine.control_groups("cpu"):
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
    if tightest is None or tightest[0] >= ALMOST * processors:
        return
    cores, path, text, from_outside = tightest
    stat = f"{path.rpartition('/')[0]}/cpu.stat"
    counts = machine.fields(stat, " ")
    periods = counts.get("nr_throttled")
    unlimited = "max" if path.endswith("cpu.max") else "-1"
    yield Finding(
        f"A control group limits this process to {number(cores)} of {processors} processors: CPU rates will "
        f"be at least {percent(1 - cores / processors)} too low.",
        "Raise it on the container's host" if from_outside else "Remove the limit",
        f"docker update --cpus {processors} CONTAINER"
        if from_outside
        else f"echo {unlimited} | sudo tee /{path}",
        (
            f"/{path}: {text}",
            *([f"/{stat}: nr_throttled {periods} of {counts.get('nr_periods')}"] if periods else []),
        ),
    )


@add_check("host")
def steal(machine: ExaminedMachine) -> Iterator[Finding]:
    """Report that the hypervisor gave over 2 % of the time to others, in half a second or since the start."""
    watched = machine.watched
    before, after = watched.before, watched.after
    taken_s, ran_s = after.steal_s - before.steal_s, after.busy_s - before.busy_s
    now = taken_s / (after.cores * (after.at_s - before.at_s))
    ever = after.steal_s / (after.steal_s + after.busy_s) if after.busy_s else 0.0
    resolution = _TICKS_S / (after.at_s - before.at_s)
    if now <= _STOLEN + resolution and ever <= _STOLEN:
        return
    yield Finding(
        f"The hypervisor gives {percent(max(now, ever))} of this machine's processor time to others, so CPU "
        "rates will be too low.",
        "Compare interleaved runs, which lose alike",
        "gemmbench check BASE --against OLD",
        (
            f"since the start: steal {number(after.steal_s)} s, work {number(after.busy_s)} s",
            f"over half a second: steal {number(taken_s)} s, work {number(ran_s)} s",
        ),
    )


@add_check("host")
def load(machine: ExaminedMachine) -> Iterator[Finding]:
    """Report that other processes used at least 0.3 cores in half a second, and name the busiest two."""
    watched = machine.watched
    others = watched.after.since(watched.before)[0]
    if others is None or others < BUSY_CORES:
        return
    busiest = [each for each in watched.busiest if each[2] >= _SHOWN_CORES][:2]
    names = ", ".join(f"{clean(name)} ({process}) {number(cores)}" for process, name, cores in busiest)
    yield Finding(
        f"Other programs use {number(others)} of {count_noun(watched.after.cores, 'core')}, so results will "
        "be too low." + (f"\nMainly: {names} cores" if names else ""),
        "Stop them or wait",
        f"ps -o pid,user,etime,args -p {','.join(str(process) for process, _, _ in busiest)}"
        if busiest
        else "top",
        (f"processor times over half a second: {number(others)} cores",),
    )


@add_check("host")
def blas_threads(machine: ExaminedMachine) -> Iterator[Finding]:
    """Report that numpy's BLAS has fewer threads than allowed cores, or more than processors."""
    if machine.blas is None or not machine.blas.get("num_threads"):
        name = f": {pool_title(machine.blas)}" if machine.blas else ""
        raise NotSeenError(f"threadpoolctl does not know numpy's BLAS{name}")
    threads, processors = int(machine.blas["num_threads"]), len(machine.allowed)
    cores = _allowed_cores(machine)
    if cores <= threads <= processors:
        return
    fewer = threads < cores
    given = {name: machine.environ[name] for name in _THREAD_VARIABLES if machine.environ.get(name)}
    variable = _VARIABLES.get(str(machine.blas.get("internal_api")), "OMP_NUM_THREADS")
    setting = " ".join(["env", *(f"-u {name}" for name in given)]) if given else f"{variable}={cores}"
    title = re.sub(r"(\d+\.\d+\.\d+)(\.0)+\b", r"\1", pool_title(machine.blas))  # 0.3.34.0.0
    yield Finding(
        f"numpy's BLAS runs {count_noun(threads, 'thread')} on {count_noun(cores, 'core')}: "
        + (f"up to {percent(1 - threads / cores)} slower." if fewer else "threads wait for each other."),
        "Unset the variable" if given else "Set the threads",
        f"{setting} gemmbench square --kernel numpy",
        (f"threadpoolctl: {title}", *([f"environment: {list_values(given)}"] if given else [])),
    )


@add_check("host")
def blas_target(machine: ExaminedMachine) -> Iterator[Finding]:
    """Report the reference BLAS, and a BLAS whose kernels do not use all vectors of the processor."""
    if machine.blas is None:
        raise NotSeenError("the name of numpy's BLAS is not known")
    trouble = blas.trouble(machine.blas, machine.optional("proc/cpuinfo"), machine.environ)
    if trouble is None:
        return
    is_set = "=" in trouble.setting
    setting = trouble.setting if is_set else f"env -u {trouble.setting}"
    yield Finding(
        trouble.problem,
        trouble.fix,
        f"{setting} gemmbench square --kernel numpy" if trouble.setting else "",
        (f"numpy's BLAS: {pool_title(machine.blas)}, {machine.blas.get('filepath') or 'file not known'}",),
    )


def _smi(device: DeviceFacts, words: str) -> str:
    return f"sudo nvidia-smi -i {device.pci or 0} {words}"


@add_check("gpu")
def pcie(machine: ExaminedMachine, device: DeviceFacts) -> Iterator[Finding]:
    """Report a PCIe link with fewer lanes or a lower generation than board or slot allow.

    An idle board lowers the generation to save power. Then only the lanes count.
    """
    width = int(machine.ask(device, "nvmlDeviceGetCurrPcieLinkWidth"))
    generation = int(machine.ask(device, "nvmlDeviceGetCurrPcieLinkGeneration"))
    most_width = int(machine.ask(device, "nvmlDeviceGetMaxPcieLinkWidth"))
    most = int(machine.ask(device, "nvmlDeviceGetMaxPcieLinkGeneration"))
    with suppress(NotSeenError):  # what the board could have in another slot
        most = max(most, int(machine.ask(device, "nvmlDeviceGetGpuMaxPcieLinkGeneration")))
    rests = generation < most and int(machine.ask(device, "nvmlDeviceGetPerformanceState")) != 0
    used = most if rests else generation
    if used < most or width < most_width:
        known = used in _LANE and most in _LANE and most_width > 0
        share = width * _LANE[used] / (most_width * _LANE[most]) if known else 0.0
        yield Finding(
            f"PCIe runs at {used}.0 x{width} instead of {most}.0 x{most_width}: transfers are "
            f"{percent(1 - share) if known else 'up to some'} slower, kernels are not.",
            "Compare LnkSta with LnkCap, then try another slot or riser",
            "sudo lspci -vv -s " + (device.pci or "SLOT"),
            (
                f"nvmlDeviceGetCurrPcieLinkGeneration: {generation} of {most}",
                f"nvmlDeviceGetCurrPcieLinkWidth: {width} of {most_width}",
            ),
        )
    if rests:
        raise NotSeenError(
            f"PCIe {generation}.0 of {most}.0 on an idle device, which saves power: check under load"
        )


def _setting_and_default(
    machine: ExaminedMachine, device: DeviceFacts, names: tuple[str, str], unit: str, *arguments: int
) -> tuple[int, int, tuple[str, ...]]:
    """Ask NVML for a setting and its default, with texts for what was seen."""
    value, default = (int(machine.ask(device, name, *arguments)) for name in names)
    return value, default, (f"{names[0]}: {value} {unit}", f"{names[1]}: {default} {unit}")


@add_check("gpu")
def gpu_power(machine: ExaminedMachine, device: DeviceFacts) -> Iterator[Finding]:
    """Report an enforced power limit below 98 % of its default, in watts."""
    names = "nvmlDeviceGetEnforcedPowerLimit", "nvmlDeviceGetPowerManagementDefaultLimit"
    limit, default, seen = _setting_and_default(machine, device, names, "mW")
    if limit >= ALMOST * default:
        return
    yield Finding(
        f"The power limit is {number(limit / 1000)} instead of {number(default / 1000)} W: rates may be low.",
        "Restore it",
        _smi(device, f"-pl {default // 1000}"),
        seen,
    )


@add_check("gpu")
def gpu_clock(machine: ExaminedMachine, device: DeviceFacts) -> Iterator[Finding]:
    """Report an application clock (``nvidia-smi -ac``) below 98 % of its default."""
    names = "nvmlDeviceGetApplicationsClock", "nvmlDeviceGetDefaultApplicationsClock"
    clock, default, seen = _setting_and_default(machine, device, names, "MHz", _GRAPHICS)
    if clock >= ALMOST * default:
        return
    yield Finding(
        f"The application clock is {clock} instead of {default} MHz: "
        f"up to {percent(1 - clock / default)} slower.",
        "Restore it",
        _smi(device, "-rac"),
        seen,
    )


@add_check("gpu")
def gpu_load(machine: ExaminedMachine, device: DeviceFacts) -> Iterator[Finding]:
    """Report a GPU that other programs keep busy: 5 % or more, without that figure any compute process."""
    names = "not reported"
    with suppress(NotSeenError):
        processes = machine.ask(device, "nvmlDeviceGetComputeRunningProcesses")
        names = ", ".join(str(each.pid) for each in processes) or "-"
    try:
        used = f"{(percent := int(machine.ask(device, 'nvmlDeviceGetUtilizationRates').gpu))} %"
        is_busy = percent >= _BUSY_PERCENT
    except NotSeenError:
        if names == "not reported":
            raise
        used, is_busy = "not reported", names != "-"
    if not is_busy:
        return
    share = "" if used == "not reported" else f" {used}"
    yield Finding(
        f"Other programs keep the GPU{share} busy, so results will be too low.",
        "Stop them or wait",
        "nvidia-smi" + (f" -i {device.pci}" if device.pci else ""),
        (f"nvmlDeviceGetUtilizationRates: gpu {used}", f"nvmlDeviceGetComputeRunningProcesses: {names}"),
    )
