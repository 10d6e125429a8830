"""What slows a machine down: checks of NVIDIA boards, all checks in order, findings as text and JSON.

A check yields a finding only for what it could read. Costs follow from what was read.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from typing import Any

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from gemmbench.doctor.host import CHECKS, check
from gemmbench.doctor.machine import NEAR, ExaminedMachine, Finding, NotSeen, NotSeenError
from gemmbench.ladder import NEAR_PEAK
from gemmbench.model.device import DeviceFacts, broad_type
from gemmbench.model.row import Row
from gemmbench.model.run_file import Run
from gemmbench.model.units import clean, counted, number, percent, size
from gemmbench.stats import ceilings, rates

# --- NVIDIA's boards ----------------------------------------------------------------------------------------

# Gbit/s of a lane by generation: transfers per second (PCI-SIG) times what the line code leaves of them.
_LANE = {1: 2.5 * 0.8, 2: 5 * 0.8, 3: 8 * 128 / 130, 4: 16 * 128 / 130, 5: 32 * 128 / 130, 6: 64 * 242 / 256}


def _smi(device: DeviceFacts, words: str) -> str:
    """The command of nvidia-smi for a device's board."""
    return f"sudo nvidia-smi -i {device.pci or 0} {words}"


@check("gpu")
def pcie(machine: ExaminedMachine, device: DeviceFacts) -> Iterator[Finding]:
    """A device at rest lowers the generation of its link: it counts in performance state P0 only."""
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


def _beside_default(
    machine: ExaminedMachine, device: DeviceFacts, names: tuple[str, str], unit: str, *arguments: int
) -> tuple[int, int, tuple[str, ...]]:
    """What NVML says of a setting and of its default, and how both were seen."""
    value, default = (int(machine.ask(device, name, *arguments)) for name in names)
    return value, default, (f"{names[0]}: {value} {unit}", f"{names[1]}: {default} {unit}")


@check("gpu")
def gpu_power(machine: ExaminedMachine, device: DeviceFacts) -> Iterator[Finding]:
    """What is enforced, by whoever set it, against the default."""
    names = "nvmlDeviceGetEnforcedPowerLimit", "nvmlDeviceGetPowerManagementDefaultLimit"
    limit, default, seen = _beside_default(machine, device, names, "mW")
    if limit >= NEAR * default:
        return
    yield Finding(
        f"The power limit is {number(limit / 1000)} instead of {number(default / 1000)} W: rates may be low.",
        "Restore it",
        _smi(device, f"-pl {default // 1000}"),
        seen,
    )


_GRAPHICS = 0  # NVML_CLOCK_GRAPHICS


@check("gpu")
def gpu_clock(machine: ExaminedMachine, device: DeviceFacts) -> Iterator[Finding]:
    """The clock for programs (`nvidia-smi -ac`) against its default."""
    names = "nvmlDeviceGetApplicationsClock", "nvmlDeviceGetDefaultApplicationsClock"
    clock, default, seen = _beside_default(machine, device, names, "MHz", _GRAPHICS)
    if clock >= NEAR * default:
        return
    yield Finding(
        f"The application clock is {clock} instead of {default} MHz: up to {percent(1 - clock / default)} "
        "slower.",
        "Restore it",
        _smi(device, "-rac"),
        seen,
    )


@check("gpu")
def mig(machine: ExaminedMachine, device: DeviceFacts) -> Iterator[Finding]:
    """A board that is split."""
    current, _pending = machine.ask(device, "nvmlDeviceGetMigMode")
    if not current:
        return
    yield Finding(
        f"The device is a slice of a board (MIG): {device.compute_units} units, "
        f"{size(device.global_mem_bytes)} of memory.",
        "End all slices, if nobody else uses them",
        _smi(device, "-mig 0"),
        (f"nvmlDeviceGetMigMode: {current}", f"CL_DEVICE_MAX_COMPUTE_UNITS: {device.compute_units}"),
    )


_BUSY_PERCENT = 5


@check("gpu")
def gpu_load(machine: ExaminedMachine, device: DeviceFacts) -> Iterator[Finding]:
    """Utilization while gemmbench runs nothing; without it, whether other programs compute."""
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
        (
            f"nvmlDeviceGetUtilizationRates: gpu {used}",
            f"nvmlDeviceGetComputeRunningProcesses: {names}",
        ),
    )


# --- looking ------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Diagnosis:
    """The result of every check."""

    findings: tuple[Finding, ...]
    not_seen: tuple[NotSeen, ...]
    passed: tuple[str, ...]  # names of checks without a finding, one for each device


def examine(machine: ExaminedMachine) -> Diagnosis:
    """Run every check, in the table's order. Takes half a second, while it watches the processors."""
    findings: list[Finding] = []
    not_seen: list[NotSeen] = []
    passed: list[str] = []
    for each in CHECKS:
        devices = [device for device in machine.chosen if each.of == broad_type(device)]
        for device in (None,) if each.of == "host" else devices:
            index = None if device is None else device.index
            before = len(findings)
            try:
                for finding in each.look(machine, *([] if device is None else [device])):
                    findings.append(replace(finding, check=each.name, device=index))
                passed += [each.name] if len(findings) == before else []
            except NotSeenError as error:
                not_seen.append(NotSeen(each.name, str(error), index))
    return Diagnosis(tuple(findings), tuple(not_seen), tuple(passed))


# --- rows that point to doctor ------------------------------------------------------------------------------

SHORT = 0.65
"""Of a peak: the saved runs of an NVIDIA H200 in plots/ are above (half at 2048 has 69 %)."""
_OF_MATRIX = " of matrix units"

_LARGE = {"cpu": 1024, "gpu": 2048}  # m, n and k from here on; smaller ones are slow by nature


def pointer(run: Run) -> str:
    """A line that points to `gemmbench doctor`; "" unless a device's best rate is below `SHORT` of a peak.

    Probes count against the theoretical peak, if there is one. GEMMs count against the measured peak: kernels
    and libraries that should come near it (`NEAR_PEAK`), from `_LARGE` on, with every thread and no grid of
    parameters. Where tensor cores ran a type, its rate on vector units does not count.
    """
    best: dict[tuple[int, str, str], tuple[float, str]] = {}
    for position, device in enumerate(run.header.devices):
        for row in run.rows:
            if row.device == position or row.device < 0:
                for of, fraction, name in _fractions(run, device, row):
                    key = (position, row.dtype, of)
                    best[key] = max(best.get(key, (0.0, "")), (fraction, name))
    short = [
        (fraction, name, of)
        for (position, dtype, of), (fraction, name) in best.items()
        if fraction < SHORT and (position, dtype, of + _OF_MATRIX) not in best
    ]
    if not short:
        return ""
    fraction, name, of = min(short)
    return f"{name} reaches {percent(fraction)} of {of}: `gemmbench doctor` checks this machine for causes."


def _fractions(run: Run, device: DeviceFacts, row: Row) -> Iterator[tuple[str, float, str]]:
    """A peak, the fraction of it that a row reached, and the row's name."""
    if row.kind == "peak" and row.ran_on != "matrix" and row.variant == "flops":
        top, rate = ceilings.ceiling(device, row.dtype, max_mhz=row.max_mhz), rates.rate(row, "kernel")
        if top and rate and row.check.verdict == "ok":
            yield f"the theoretical {row.dtype} peak", rate.best / top.per_second, "the probe"
    if row.kind != "gemm" or row.problem is None or row.grid:
        return
    smallest = min(row.problem.m, row.problem.n, row.problem.k)
    kind = broad_type(device)
    if row.variant not in NEAR_PEAK[kind] or smallest < _LARGE[kind] or run.header.policy.cold:
        return
    fraction = rates.peak_fraction(run, row, rates.view_scope(run))
    if fraction is not None and (not rates.on_host(row) or kind == "cpu"):
        units = _OF_MATRIX if row.ran_on == "matrix" else ""
        yield f"the {row.dtype} peak{units}", fraction, f"{clean(row.title)} at {row.problem.size}"


# --- showing ------------------------------------------------------------------------------------------------


def page(report: Diagnosis, devices: Sequence[DeviceFacts], verbose: bool = False) -> RenderableType:
    """Each finding with its cost and fix, then a line for the other checks; verbose: a line for each."""
    parts: list[RenderableType] = []
    for finding in report.findings:
        named = finding.device is not None and len(devices) > 1
        of = f" (device {finding.device})" if named else ""
        first, *rest = finding.problem.split("\n")
        command = f": {finding.command}" if finding.command else ""
        parts.append(_line("WARN", "\n".join([first + of, *rest]), "yellow"))
        fix = Text(f"      {finding.fix}{command}")
        fix.no_wrap, fix.overflow = True, "ignore"  # a command can be copied
        parts.append(fix)
        parts += [_line("", each, "dim") for each in finding.seen if verbose]
    if verbose:
        parts += [_line("OK", each, "green") for each in report.passed]
        parts += [_line("-", f"{each.check}: {each.reason}", "dim") for each in report.not_seen]
        return Group(*parts)
    checks = counted(len(report.passed), "other check" if report.findings else "check")
    unread = ", ".join(dict.fromkeys(each.check for each in report.not_seen))
    parts.append(_line("OK", f"{checks}." + (f" Not readable here: {unread}." if unread else ""), "green"))
    return Group(*parts)


def _line(label: str, text: str, style: str) -> Table:
    line = Table.grid()
    line.add_column(style=style, width=6)
    line.add_column(overflow="fold")
    line.add_row(label, Text("\n".join(map(clean, text.split("\n")))))
    return line


def to_record(report: Diagnosis) -> dict[str, Any]:
    """The result of every check as plain data."""
    return {
        "findings": [{"check": each.check, "device": each.device} | asdict(each) for each in report.findings],
        "passed": list(report.passed),
        "not_readable": [asdict(each) for each in report.not_seen],
    }
