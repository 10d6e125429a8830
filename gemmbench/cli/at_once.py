"""What ``--concurrent`` adds to a measuring command."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Group as Page
from rich.console import RenderableType
from rich.text import Text

from gemmbench.cli.options import UserError
from gemmbench.concurrent import Group, grouped
from gemmbench.facts.records import DeviceFacts, Run
from gemmbench.render.sheet import stack
from gemmbench.render.show import concurrent_sheets
from gemmbench.rules.plan import Plan
from gemmbench.rules.variants import ORDER


def choose_groups(plan: Plan, devices: Sequence[DeviceFacts]) -> tuple[Group, ...]:
    """A plan in groups of which each is run on every device alone, then on all at once.

    Raises:
        UserError: there are not two devices, or no case that two of them run.
    """
    if len(devices) < 2:
        raise UserError("--concurrent needs two devices or more: --device all, or several with commas")
    groups = grouped(plan)
    if not any(group.cases for group in groups):
        raise UserError(
            "--concurrent finds nothing that two of the devices run: it takes GEMMs, and of peak --only "
            "memory,transfer"
        )
    return groups


def page(table: RenderableType, run: Run, verbose: bool) -> RenderableType:
    """A command's own table; below it what devices did at once."""
    below = concurrent_sheets(run, ORDER, verbose)
    return Page(table, *([Text(""), stack(below)] if below else []))
