"""``gemmbench peak``."""

from __future__ import annotations

import click

from gemmbench.cli import running
from gemmbench.cli.options import RunOptions, choose_dtypes, measuring
from gemmbench.cli.show import FORMATS, renderer
from gemmbench.rules.plan import peak_plan
from gemmbench.rules.probes import PEAK_DTYPES, WIDTHS


@click.command()
@click.option(
    "--types",
    default=",".join(PEAK_DTYPES),
    show_default=True,
    metavar="TYPES",
    help="Data types, several with commas.",
)
@click.option(
    "--format",
    "form",
    type=click.Choice(FORMATS),
    default="table",
    show_default=True,
)
@measuring
def peak(options: RunOptions, types: str, form: str) -> None:
    """Measure what the device's arithmetic units can do.

    For every data type and vector width, several forms of a multiply-add, numbers of independent chains
    and unroll depths are raced; the best is shown with its integrity: ok, or suspect and why.
    """
    dtypes = choose_dtypes(types, PEAK_DTYPES)
    running.measure(
        options,
        lambda devices: peak_plan(devices, dtypes, WIDTHS),
        renderer(form, bool(options.verbose)),
        chart="peak",
    )
