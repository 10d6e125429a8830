"""``gemmbench square`` and ``gemmbench sweep-k``."""

from __future__ import annotations

import click

from gemmbench.cli import running
from gemmbench.cli.options import takes
from gemmbench.options.measuring import Square, SweepK


@click.command()
@takes(Square)
def square(options: Square) -> None:
    """Sweep square problems: m = n = k.

    Sizes are the powers of two from --min to --max, or those of --sizes. Every kernel is verified before it
    is timed; the host's own BLAS runs beside them, and the break-even size says from where the device
    wins with transfers counted.
    """
    running.measure(options)


@click.command(name="sweep-k")
@takes(SweepK)
def sweep_k(options: SweepK) -> None:
    """Sweep k with m and n fixed.

    The write-ups' second experiment: a = c fixed while b varies. k takes the powers of two from --k-min to
    --k-max, or the values of --sizes.
    """
    running.measure(options)
