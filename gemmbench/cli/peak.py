"""``gemmbench peak``."""

from __future__ import annotations

import click

from gemmbench.cli import probes, running
from gemmbench.cli.options import takes
from gemmbench.cli.show import as_text
from gemmbench.options.measuring import EVERY_PROBE, FAMILIES, Peak
from gemmbench.options.names import choose
from gemmbench.render import probes as pages


@click.command()
@takes(Peak)
def peak(options: Peak) -> None:
    """Measure what the device can do: arithmetic, memory, transfers.

    For every data type and vector width, several forms of a multiply-add, numbers of independent chains
    and unroll depths are raced; the best is shown with its integrity: ok, or suspect and why. --all adds
    the other types and matrix units, bandwidth of global and local memory and of images, the steps of the
    caches, transfers, and the latencies of memory and of launches. What is measured here is kept, so that
    square and the other sweeps can show fractions without measuring again.
    """
    if options.describe is None:
        running.measure(options, as_text(options.format))
    elif options.describe == EVERY_PROBE:
        running.show(pages.probes(probes.entries(), FAMILIES))
    else:
        chosen = choose(options.describe, probes.NAMES, "probe")
        running.show(pages.described([probes.entry(probe) for probe in chosen]))
