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
