"""``gemmbench gemm``."""

from __future__ import annotations

import click

from gemmbench.cli import running
from gemmbench.cli.options import takes
from gemmbench.options.measuring import Gemm


@click.command()
@takes(Gemm)
def gemm(options: Gemm) -> None:
    """Measure one problem, on generated or on your own matrices.

    Times are split into queued, submitted and running for every launch, and into kernel, device and host
    scope for the whole. --plot draws the kernels as a ladder up to the measured peak.
    """
    running.measure(options)
