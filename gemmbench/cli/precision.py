"""``gemmbench precision``."""

from __future__ import annotations

import click

from gemmbench.cli import running
from gemmbench.cli.options import takes
from gemmbench.options.measuring import Precision


@click.command()
@takes(Precision)
def precision(options: Precision) -> None:
    """Hold half, float and double side by side.

    Every kernel of the ladder in every data type on one square problem: GFLOPS, the fraction of the type's
    own peak, and what half and double are of float. A type that the device lacks says so.
    """
    running.measure(options)
