"""``gemmbench peak``."""

from __future__ import annotations

from collections.abc import Sequence

import click
from click.core import ParameterSource

from gemmbench.cli import probes, running
from gemmbench.cli.options import RunOptions, UserError, choose, choose_dtypes, measuring
from gemmbench.cli.show import FORMATS, renderer
from gemmbench.facts.records import DeviceFacts
from gemmbench.render import probes as pages
from gemmbench.rules.memory import memory_plan
from gemmbench.rules.plan import Plan, Reach, peak_plan
from gemmbench.rules.probes import ALL_DTYPES, PEAK_DTYPES, WIDTHS

_EVERY_PROBE = "all"


@click.command()
@click.option(
    "--types",
    default=",".join(PEAK_DTYPES),
    show_default=True,
    metavar="TYPES",
    help="Data types of the compute family, several with commas; every probe of a type that is named.",
)
@click.option(
    "--only",
    metavar="FAMILIES",
    help=f"{', '.join(probes.FAMILIES)}; several with commas.  [default: {probes.COMPUTE}]",
)
@click.option("--all", "everything", is_flag=True, help="Every family, every type, every probe.")
@click.option(
    "--describe",
    "probe",
    is_flag=False,
    flag_value=_EVERY_PROBE,
    metavar="[PROBE]",
    help="Say what is measured and how, of every probe or of one, and measure nothing.",
)
@click.option(
    "--format",
    "form",
    type=click.Choice(FORMATS),
    default="table",
    show_default=True,
)
@measuring
def peak(
    options: RunOptions, types: str, only: str | None, everything: bool, probe: str | None, form: str
) -> None:
    """Measure what the device can do: arithmetic, memory, transfers.

    For every data type and vector width, several forms of a multiply-add, numbers of independent chains
    and unroll depths are raced; the best is shown with its integrity: ok, or suspect and why. --all adds
    the other types and matrix units, bandwidth of global and local memory and of images, the steps of the
    caches, transfers, and the latencies of memory and of launches. What is measured here is kept, so that
    square and the other sweeps can show fractions without measuring again.
    """
    if probe is not None:
        _describe(probe)
        return
    if only and everything:
        raise UserError("--only chooses families and --all takes every one of them: choose one")
    families = tuple(probes.FAMILIES)
    if not everything:
        families = choose(only or probes.COMPUTE, families, "family")
    named = click.get_current_context().get_parameter_source("types") is not ParameterSource.DEFAULT
    if named and probes.COMPUTE not in families:
        raise UserError(f"--types is for the {probes.COMPUTE} family, which --only leaves out")
    dtypes = choose_dtypes(types, ALL_DTYPES) if named or not everything else ALL_DTYPES

    def plan(devices: Sequence[DeviceFacts]) -> Plan:
        reach: Reach = "every" if named or everything else "quick"
        compute = peak_plan(devices, dtypes, WIDTHS, reach=reach) if probes.COMPUTE in families else ()
        return compute + memory_plan(devices, families)

    running.measure(options, plan, renderer(form, bool(options.verbose)), "peak")


def _describe(name: str) -> None:
    """The list of every probe, or the page of one."""
    if name == _EVERY_PROBE:
        running.show(pages.probes(probes.entries(), probes.FAMILIES))
        return
    chosen = choose(name, probes.NAMES, "probe")
    running.show(pages.described([probes.entry(probe) for probe in chosen]))
