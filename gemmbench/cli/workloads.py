"""``gemmbench workloads``."""

from __future__ import annotations

import click
from rich.text import Text

from gemmbench.cli import running
from gemmbench.cli.options import takes
from gemmbench.options.measuring import Workloads
from gemmbench.rules.workloads import SETS


@click.command()
@takes(Workloads)
def workloads(options: Workloads) -> None:
    """Measure real shapes: AlexNet, a transformer, or your own.

    The layers of AlexNet lowered to GEMM, the projections of a 7B transformer for one token and for a
    prompt, odd and non-square sizes, and a CSV file of your own. The table names the best kernel for each
    shape; -v shows every kernel. --dry-run lists the shapes and where they come from.
    """
    if options.dry_run:
        for name in options.set_names:
            running.show(Text(f"{name}: {SETS[name].idea} ({SETS[name].source}).\n"))
    running.measure(options)
