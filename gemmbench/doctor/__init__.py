"""Run every check, show the findings as text and JSON, and point slow runs to `gemmbench doctor`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from gemmbench.doctor.checks import CHECKS
from gemmbench.doctor.machine import ExaminedMachine, Finding, NotSeen, NotSeenError
from gemmbench.ladder import NEAR_PEAK
from gemmbench.model.device import DeviceFacts, broad_type
from gemmbench.model.row import Row
from gemmbench.model.run_file import Run
from gemmbench.model.units import clean, counted, percent
from gemmbench.stats import ceilings, rates

# --- running ------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Diagnosis:
    """The result of every check."""

    findings: tuple[Finding, ...]
    not_seen: tuple[NotSeen, ...]
    passed: tuple[str, ...]  # names of checks without a finding, one for each device


def examine(machine: ExaminedMachine) -> Diagnosis:
    """Run every check, once for the host or for each chosen device of its type.

    A check passes if it has no finding and could read everything. One that raises NotSeenError keeps the
    findings before it. It takes half a second, while it watches the processors.
    """
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
    """Return a line that suggests `gemmbench doctor`, about the lowest of the best fractions of a peak.

    Return "" unless a device and type has a best fraction below `SHORT`; `_fractions` says which rows count.
    If tensor cores ran a type, its rate on vector units does not count. Host rows count for every device.
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
    """Yield a peak's name, the fraction of it that a row reached, and the row's name, if the row counts.

    A verified arithmetic probe without tensor cores counts against the theoretical peak, if that is known. A
    GEMM counts against the measured peak: kernels of `NEAR_PEAK`, from `_LARGE` on, not in a cold run, and
    without a grid of parameters. The host's BLAS counts only for CPUs.
    """
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
    """Show each finding with its cost and fix, then one line for the checks that passed or could not be read.

    If `verbose`, show what each finding was read from, and a line for each check. Findings name their device
    if there are several `devices`. Commands are never wrapped, so that they can be copied.
    """
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
    checks = counted(len(report.passed), "other check" if report.findings else "check") + " passed."
    unread = ", ".join(dict.fromkeys(each.check for each in report.not_seen))
    parts.append(_line("OK", checks + (f" Could not read: {unread}." if unread else ""), "green"))
    return Group(*parts)


def _line(label: str, text: str, style: str) -> Table:
    line = Table.grid()
    line.add_column(style=style, width=6)
    line.add_column(overflow="fold")
    line.add_row(label, Text("\n".join(map(clean, text.split("\n")))))
    return line


def to_record(report: Diagnosis) -> dict[str, Any]:
    """Return the result of every check as data for JSON: findings, passed and unreadable checks."""
    return {
        "findings": [{"check": each.check, "device": each.device} | asdict(each) for each in report.findings],
        "passed": list(report.passed),
        "not_readable": [asdict(each) for each in report.not_seen],
    }
