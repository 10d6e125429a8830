"""Run every check, and show the findings as text and JSON."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from gemmbench.doctor.checks import CHECKS
from gemmbench.doctor.machine import ExaminedMachine, Finding, NotSeen, NotSeenError
from gemmbench.model.device import DeviceFacts, broad_type
from gemmbench.model.units import clean, count_noun


@dataclass(frozen=True)
class Diagnosis:
    """The result of every check."""

    findings: tuple[Finding, ...]
    not_seen: tuple[NotSeen, ...]
    passed: tuple[str, ...]  # names of checks without a finding, one for each device


def examine(machine: ExaminedMachine) -> Diagnosis:
    """Run every check: once for the host, or for each chosen CPU or GPU. Accelerators count as GPUs."""
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


def diagnosis_page(
    report: Diagnosis, devices: Sequence[DeviceFacts], verbose: bool = False
) -> RenderableType:
    """Lay out findings with their fix, for rich. Commands are never wrapped, so that they can be copied."""
    parts: list[RenderableType] = []
    for finding in report.findings:
        named = finding.device is not None and len(devices) > 1
        of = f" (device {finding.device})" if named else ""
        first, *rest = finding.problem.split("\n")
        command = f": {finding.command}" if finding.command else ""
        parts.append(_line("WARN", "\n".join([first + of, *rest]), "yellow"))
        fix = f"      {finding.fix}{command}"
        parts += [Text(fix, no_wrap=True, overflow="ignore")] if finding.fix else []
        parts += [_line("", each, "dim") for each in finding.seen if verbose]
    if verbose:
        parts += [_line("OK", each, "green") for each in report.passed]
        parts += [_line("-", f"{each.check}: {each.reason}", "dim") for each in report.not_seen]
        return Group(*parts)
    checks = count_noun(len(report.passed), "other check" if report.findings else "check") + " passed."
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
    """The result of every check as data for JSON."""
    return {
        "findings": [{"check": each.check, "device": each.device} | asdict(each) for each in report.findings],
        "passed": list(report.passed),
        "not_readable": [asdict(each) for each in report.not_seen],
    }
