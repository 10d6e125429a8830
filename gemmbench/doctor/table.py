"""Findings for people, and as JSON."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import Any

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from gemmbench.doctor.checks import Report
from gemmbench.doctor.finding import Finding
from gemmbench.model.device import DeviceFacts
from gemmbench.model.units import clean
from gemmbench.report.table import Note, Sheet


def page(report: Report, devices: Sequence[DeviceFacts], host: str) -> RenderableType:
    """Every finding with its cost, how it was seen and what to type; then what could not be looked at.

    Args:
        report: what came of the checks.
        devices: those that were looked at.
        host: the processor's name.
    """
    subjects: list[tuple[int | None, str]] = [(None, f"host  {clean(host)}")]
    subjects += [(device.index, f"{device.index}  {clean(device.title)}") for device in devices]
    parts: list[RenderableType] = []
    for index, heading in subjects:
        own = [finding for finding in report.findings if finding.device == index]
        if own:
            parts.append(Text(heading, style="bold"))
            parts += [part for finding in own for part in (_card(finding), Text(""))]
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


def _card(finding: Finding) -> Table:
    card = Table.grid(padding=(0, 2, 0, 0))
    card.add_column(style="dim", no_wrap=True, min_width=8)
    card.add_column(overflow="fold")
    cost = f"{finding.cost} ({finding.source})" if finding.source else finding.cost
    card.add_row("   what", Text(clean(f"{finding.tells} ({finding.check})"), style="yellow"))
    card.add_row("   costs", Text(clean(cost)))
    for number, seen in enumerate(finding.seen):
        card.add_row("" if number else "   seen", Text(clean(seen)))
    if finding.command:
        card.add_row("   type", Text(finding.command, style="bold"))
    if finding.remark:
        card.add_row("", Text(finding.remark))
    return card


def to_record(report: Report) -> dict[str, Any]:
    """Findings, and what could not be looked at, as plain data."""
    return {
        "findings": [{"check": each.check, "device": each.device} | asdict(each) for each in report.findings],
        "not_looked_at": [asdict(each) for each in report.not_seen],
        "looked": report.looked,
    }
