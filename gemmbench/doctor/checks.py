"""The checks: a row for what each reads and tells, the function that looks, and findings as text and JSON.

A check yields a finding only for what it has read; what it cannot read is said, and is no finding. Costs are
derived from what was read, or published (then with the source), or not known.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from gemmbench.doctor import devices, host
from gemmbench.doctor.machine import Finding, Machine, NotSeen, NotSeenError
from gemmbench.ladder import NEAR_PEAK
from gemmbench.model.device import DeviceFacts, broad_type
from gemmbench.model.row import THREADS, Row
from gemmbench.model.run_file import Run
from gemmbench.model.units import clean, percent
from gemmbench.report.table import Note, Sheet
from gemmbench.stats import ceilings, rates

Look = Callable[[Machine], Iterator[Finding]]
LookAt = Callable[[Machine, DeviceFacts], Iterator[Finding]]


@dataclass(frozen=True)
class Check:
    """A row of the table."""

    look: Look | LookAt
    of: Literal["host", "cpu", "gpu", "device"]  # what is looked at: the host once, or each such device
    reads: str
    tells: str
    slows: bool = True  # whether it lowers the rates of kernels
    at_rest: bool = False  # whether it needs that gemmbench itself is not running anything

    @property
    def name(self) -> str:
        """That of the function."""
        return self.look.__name__.replace("_", "-")


# --- the table ----------------------------------------------------------------------------------------------

CHECKS: tuple[Check, ...] = (
    Check(
        devices.driver_missing,
        "host",
        "OpenCL's devices; PCI's GPUs in /sys/bus/pci; /etc/os-release; the nodes in /dev/dri",
        "no device at all, or a GPU without one: the package for this system",
        slows=False,
    ),
    Check(
        devices.driver_target,
        "cpu",
        "PoCL's device version; CL_CONFIG_CPU_TARGET_ARCH (Intel's runtime); the native vector width; "
        "the flags in /proc/cpuinfo",
        "a driver that compiles for less than the CPU has",
    ),
    Check(
        devices.driver_units,
        "cpu",
        "the device's compute units, and the processors that this process may use",
        "a driver that uses fewer cores than it may",
    ),
    Check(
        devices.types,
        "device",
        "the device's extensions",
        "missing half or double, and which driver here has it",
        slows=False,
    ),
    Check(
        host.governor,
        "host",
        "scaling_governor, scaling_driver and energy_performance_preference of each processor",
        "a governor that holds the clock down; `powersave` of intel_pstate and amd-pstate does not",
    ),
    Check(
        host.cpu_clock,
        "host",
        "scaling_max_freq and cpuinfo_max_freq of each processor",
        "a limit below what the processor can",
    ),
    Check(host.turbo, "host", "intel_pstate/no_turbo, cpufreq/boost, base_frequency", "turbo switched off"),
    Check(
        host.cpu_temperature,
        "host",
        "thermal zones with their trip points; counters of throttling, half a second apart",
        "a clock that heat lowers",
    ),
    Check(
        host.affinity,
        "host",
        "Cpus_allowed_list of /proc/self/status, online processors, the control group's cpuset",
        "processors that this process may not use",
    ),
    Check(
        host.smt,
        "host",
        "smt/active, thread_siblings_list, the threads of numpy's BLAS",
        "two threads of a BLAS on one core",
    ),
    Check(
        host.cpu_quota,
        "host",
        "cpu.max (cpu.cfs_quota_us) of the control groups around this process; nr_throttled",
        "less time than processors",
    ),
    Check(
        host.memory_limit,
        "host",
        "memory.max and memory.current (memory.limit_in_bytes) of the same",
        "less memory than the memory probes take",
        slows=False,
    ),
    Check(
        host.steal, "host", "/proc/stat: since the start, and for half a second", "a hypervisor that shares"
    ),
    Check(host.load, "host", "/proc/stat and /proc/*/stat for half a second", "what other programs use"),
    Check(
        host.numa,
        "host",
        "/sys/devices/system/node, /proc/self/numa_maps, Cpus_allowed_list",
        "buffers on another node than the processors",
    ),
    Check(
        host.blas_threads,
        "host",
        "the threads of numpy's BLAS (threadpoolctl), OPENBLAS_NUM_THREADS and its like",
        "fewer threads than cores, or more than processors",
    ),
    Check(
        host.blas_kernels,
        "host",
        "the architecture of numpy's BLAS (threadpoolctl), OPENBLAS_CORETYPE, /proc/cpuinfo",
        "a BLAS with kernels for less than the CPU has",
    ),
    Check(
        host.device_numa,
        "gpu",
        "numa_node of the device's PCI slot, Cpus_allowed_list",
        "a device on another node than the processors",
        slows=False,
    ),
    Check(
        devices.pcie,
        "gpu",
        "NVML: generation and width of the link, and the most; the generation in state P0 only",
        "a link below the device's maximum",
        slows=False,
    ),
    Check(
        devices.ecc, "gpu", "NVML: ECC's mode; the compute capability", "ECC on memory without room for it"
    ),
    Check(
        devices.gpu_power,
        "gpu",
        "NVML: the enforced power limit, and the default",
        "a limit below the default",
    ),
    Check(
        devices.gpu_clock,
        "gpu",
        "NVML: applications clock, and the default. Locked clocks (`-lgc`) show in a row's conditions only",
        "a clock that was set below the default",
    ),
    Check(
        devices.gpu_temperature,
        "gpu",
        "NVML: what limits the clock; the temperature",
        "a clock that heat, or the board's brake, lowers",
    ),
    Check(
        devices.persistence,
        "gpu",
        "NVML: persistence mode, unless a display is attached",
        "a driver that unloads between two programs",
        slows=False,
    ),
    Check(devices.mig, "gpu", "NVML: MIG's mode", "a slice of a board"),
    Check(
        devices.gpu_load,
        "gpu",
        "NVML: utilization, compute processes",
        "other programs on the device",
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


SHORT = 0.7
"""Of a ceiling: whatever stays below has a reason. The saved runs of an NVIDIA H200 in plots/ are above."""

_LARGE: Mapping[str, int] = {
    "cpu": 1024,
    "gpu": 2048,
}  # m, n and k from here on; smaller ones are slow by nature


@dataclass(frozen=True)
class Shortfall:
    """The best that a device reached of a ceiling."""

    device: DeviceFacts
    fraction: float
    of: str  # the ceiling
    best: str  # what reached it


def shortfalls(run: Run) -> list[Shortfall]:
    """The ceilings of which a run's devices reach less than `SHORT` at best.

    Of probes the derived ceiling counts, where there is one; of GEMMs the measured peak, for kernels and
    libraries that should come near it (`NEAR_PEAK`), from `_LARGE` on, with every thread and no grid of
    parameters. So early rungs, small sizes and what was slowed on purpose never count.
    """
    best: dict[tuple[int, str, str], Shortfall] = {}
    for position, device in enumerate(run.header.devices):
        for row in run.rows:
            if row.device == position or row.device < 0:
                for each in _of(run, device, row):
                    key = (position, row.dtype, each.of)
                    if key not in best or best[key].fraction < each.fraction:
                        best[key] = each
    return [each for each in best.values() if each.fraction < SHORT]


def _of(run: Run, device: DeviceFacts, row: Row) -> Iterator[Shortfall]:
    """What a row reached of the ceiling that is for it."""
    if row.kind == "peak" and row.ran_on != "matrix" and row.variant == "flops":
        top, rate = ceilings.ceiling(device, row.dtype), rates.rate(row, "kernel")
        if top and rate and row.check.verdict == "ok":
            yield Shortfall(device, rate.best / top.per_second, f"the ceiling of {row.dtype}", "the probe")
    if row.kind != "gemm" or row.problem is None or row.grid or THREADS in row.parameters or row.beside:
        return
    smallest = min(row.problem.m, row.problem.n, row.problem.k)
    kind = broad_type(device)
    if row.variant not in NEAR_PEAK[kind] or smallest < _LARGE[kind] or run.header.policy.cold:
        return
    fraction = rates.peak_fraction(run, row, rates.view_scope(run))
    if fraction is not None and (not rates.on_host(row) or kind == "cpu"):
        units = " of matrix units" if row.ran_on == "matrix" else ""
        yield Shortfall(
            device, fraction, f"the {row.dtype} peak{units}", f"{clean(row.title)} at {row.problem.size}"
        )


def sentence(short: list[Shortfall], report: Report) -> str:
    """A line that points to `gemmbench doctor`; "" where it has nothing to say of these devices' rates."""
    worst = min(short, key=lambda each: each.fraction)
    on_cpu = worst.device.type == "cpu"
    slowing = {check.name for check in CHECKS if check.slows}
    causes = dict.fromkeys(
        finding.check
        for finding in report.findings
        if finding.check in slowing
        if finding.device == worst.device.index or (on_cpu and finding.device is None)
    )
    if not causes:
        return ""
    return (
        f"{worst.best} reaches {percent(worst.fraction)} of {worst.of}: `gemmbench doctor` says what may "
        f"hold it back ({', '.join(causes)})."
    )


def page(report: Report, devices: Sequence[DeviceFacts], host: str) -> RenderableType:
    """Every finding with its cost, how it was seen and what to type; then what could not be looked at."""
    subjects: list[tuple[int | None, str]] = [(None, f"host  {clean(host)}")]
    subjects += [(device.index, f"{device.index}  {clean(device.title)}") for device in devices]
    parts: list[RenderableType] = []
    for index, heading in subjects:
        own = [finding for finding in report.findings if finding.device == index]
        if own:
            parts.append(Text(heading, style="bold"))
            parts += [part for finding in own for part in _card(finding)]
    parts.append(Sheet(notes=(Note("", _conclusion(report), "" if report.findings else "green"),)))
    parts.append(Sheet(notes=tuple(_not_looked_at(report, devices))))
    return Group(*parts)


def _conclusion(report: Report) -> str:
    count = len(report.findings)
    what = f"{count} finding{'s' if count != 1 else ''}" if count else "Nothing found"
    return f"{what} in {report.looked} checks. Nothing was changed."


def _not_looked_at(report: Report, devices: Sequence[DeviceFacts]) -> Iterator[Note]:
    """A line for each reason, with the checks that it kept from looking."""
    names: dict[str, dict[str, None]] = {}
    for each in report.not_seen:
        of = f" ({each.device})" if each.device is not None and len(devices) > 1 else ""
        names.setdefault(clean(each.reason), {})[f"{each.check}{of}"] = None
    for reason, checks in names.items():
        yield Note("not looked at", f"{', '.join(checks)}: {reason}", "dim")


def _card(finding: Finding) -> Iterator[RenderableType]:
    """A finding; its command stands in a line of its own that is never broken, so that it can be copied."""
    cost = f"{finding.cost} ({finding.source})" if finding.source else finding.cost
    yield _lines("what", (f"{finding.tells} ({finding.check})",), "yellow")
    yield _lines("costs", (cost,))
    yield _lines("seen", finding.seen)
    if finding.command:
        command = Text.assemble((_label("type"), "dim"), (finding.command, "bold"))
        command.no_wrap, command.overflow = True, "ignore"
        yield command
    if finding.remark:
        yield _lines("" if finding.command else "do", (finding.remark,))
    yield Text("")


def _lines(label: str, texts: Sequence[str], style: str = "") -> Table:
    card = Table.grid()
    card.add_column(style="dim", no_wrap=True)
    card.add_column(overflow="fold")
    for number, text in enumerate(texts):
        card.add_row(_label("" if number else label), Text(clean(text), style=style))
    return card


def _label(label: str) -> str:
    return f"   {label:<7}"


def to_record(report: Report) -> dict[str, Any]:
    """Findings, and what could not be looked at, as plain data."""
    return {
        "findings": [{"check": each.check, "device": each.device} | asdict(each) for each in report.findings],
        "not_looked_at": [asdict(each) for each in report.not_seen],
        "looked": report.looked,
    }
