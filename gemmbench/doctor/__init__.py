"""What keeps a machine from its ceiling: NVIDIA's boards, every check in turn, findings as text and JSON.

A check yields a finding only for what it has read; what it cannot read is said, and is no finding. Costs are
derived from what was read, or not known.
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
from gemmbench.doctor.machine import NEAR, UNKNOWN, Finding, Machine, NotSeen, NotSeenError
from gemmbench.ladder import NEAR_PEAK
from gemmbench.model.device import DeviceFacts, broad_type
from gemmbench.model.row import Row
from gemmbench.model.run_file import Run
from gemmbench.model.units import clean, counted, number, percent, size
from gemmbench.report.table import Note, Sheet
from gemmbench.stats import ceilings, rates

# --- NVIDIA's boards ----------------------------------------------------------------------------------------

# Gbit/s of a lane by generation: transfers per second (PCI-SIG) times what the line code leaves of them.
_LANE = {1: 2.5 * 0.8, 2: 5 * 0.8, 3: 8 * 128 / 130, 4: 16 * 128 / 130, 5: 32 * 128 / 130, 6: 64 * 242 / 256}


def _smi(device: DeviceFacts, words: str) -> str:
    """The command of nvidia-smi for a device's board."""
    return f"sudo nvidia-smi -i {device.pci or 0} {words}"


@check("gpu")
def pcie(machine: Machine, device: DeviceFacts) -> Iterator[Finding]:
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
            f"the device is linked by PCIe {used}.0 x{width}, and could be by {most}.0 x{most_width}",
            f"{percent(1 - share) if known else UNKNOWN} of the rate of transfers; kernels do not feel it",
            (
                f"nvmlDeviceGetCurrPcieLinkGeneration: {generation} of {most}",
                f"nvmlDeviceGetCurrPcieLinkWidth: {width} of {most_width}",
            ),
            "sudo lspci -vv -s " + (device.pci or "SLOT"),
            "LnkSta and LnkCap, of it and of its bridge, say which side holds it back: another slot, the "
            "firmware's setting of the slot, a riser",
        )
    if rests:
        raise NotSeenError(
            f"PCIe {generation}.0 of {most}.0 while it rests, which saves power: look under load"
        )


def _beside_default(
    machine: Machine, device: DeviceFacts, names: tuple[str, str], unit: str, *arguments: int
) -> tuple[int, int, tuple[str, ...]]:
    """What NVML says of a setting and of its default, and how both were seen."""
    value, default = (int(machine.ask(device, name, *arguments)) for name in names)
    return value, default, (f"{names[0]}: {value} {unit}", f"{names[1]}: {default} {unit}")


@check("gpu")
def gpu_power(machine: Machine, device: DeviceFacts) -> Iterator[Finding]:
    """What is enforced, by whoever set it, against the default."""
    names = "nvmlDeviceGetEnforcedPowerLimit", "nvmlDeviceGetPowerManagementDefaultLimit"
    limit, default, seen = _beside_default(machine, device, names, "mW")
    if limit >= NEAR * default:
        return
    yield Finding(
        f"the board may draw {number(limit / 1000)} of its {number(default / 1000)} W",
        f"{UNKNOWN}: `gemmbench show -v` says at which clock a row ran",
        seen,
        _smi(device, f"-pl {default // 1000}"),
    )


_GRAPHICS = 0  # NVML_CLOCK_GRAPHICS


@check("gpu")
def gpu_clock(machine: Machine, device: DeviceFacts) -> Iterator[Finding]:
    """The clock for programs (`nvidia-smi -ac`) against its default."""
    names = "nvmlDeviceGetApplicationsClock", "nvmlDeviceGetDefaultApplicationsClock"
    clock, default, seen = _beside_default(machine, device, names, "MHz", _GRAPHICS)
    if clock >= NEAR * default:
        return
    yield Finding(
        f"the board's clock for programs is set to {clock} of {default} MHz",
        f"up to {percent(1 - clock / default)}",
        seen,
        _smi(device, "-rac"),
    )


@check("gpu")
def mig(machine: Machine, device: DeviceFacts) -> Iterator[Finding]:
    """A board that is split."""
    current, _pending = machine.ask(device, "nvmlDeviceGetMigMode")
    if not current:
        return
    yield Finding(
        f"the device is a slice of a board (MIG): {device.compute_units} units, "
        f"{size(device.global_mem_bytes)} of memory",
        f"{UNKNOWN}: what the other slices have",
        (f"nvmlDeviceGetMigMode: {current}", f"CL_DEVICE_MAX_COMPUTE_UNITS: {device.compute_units}"),
        _smi(device, "-mig 0"),
        "ends every slice, those of others, too",
    )


_BUSY_PERCENT = 5


@check("gpu")
def gpu_load(machine: Machine, device: DeviceFacts) -> Iterator[Finding]:
    """Utilization while gemmbench runs nothing."""
    used = int(machine.ask(device, "nvmlDeviceGetUtilizationRates").gpu)
    if used < _BUSY_PERCENT:
        return
    names = "not reported"
    with suppress(NotSeenError):
        processes = machine.ask(device, "nvmlDeviceGetComputeRunningProcesses")
        names = ", ".join(str(each.pid) for each in processes) or "-"
    yield Finding(
        "other programs use the device",
        f"{UNKNOWN}; it was busy for {used} % of the last moment",
        (
            f"nvmlDeviceGetUtilizationRates: gpu {used} %",
            f"nvmlDeviceGetComputeRunningProcesses: {names}",
        ),
        "nvidia-smi" + (f" -i {device.pci}" if device.pci else ""),
        "end them, or wait",
    )


# --- looking ------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Report:
    """What came of every check."""

    findings: tuple[Finding, ...]
    not_seen: tuple[NotSeen, ...]
    looked: int  # checks that could look, each device counted


def examine(machine: Machine) -> Report:
    """Every check, in the table's order. Takes half a second, for which it watches the processors."""
    findings: list[Finding] = []
    not_seen: list[NotSeen] = []
    looked = 0
    for each in CHECKS:
        devices = [device for device in machine.chosen if each.of == broad_type(device)]
        for device in (None,) if each.of == "host" else devices:
            index = None if device is None else device.index
            try:
                for finding in each.look(machine, *([] if device is None else [device])):
                    findings.append(replace(finding, check=each.name, device=index))
                looked += 1
            except NotSeenError as error:
                not_seen.append(NotSeen(each.name, str(error), index))
    return Report(tuple(findings), tuple(not_seen), looked)


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
    what = counted(len(report.findings), "finding") if report.findings else "Nothing found"
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
    yield _lines("what", (f"{finding.tells} ({finding.check})",), "yellow")
    yield _lines("costs", (finding.cost,))
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
    for line, text in enumerate(texts):
        card.add_row(_label("" if line else label), Text(clean(text), style=style))
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
