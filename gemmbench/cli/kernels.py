"""``gemmbench kernels``."""

from __future__ import annotations

import re

import click

from gemmbench.cli import running
from gemmbench.cli.options import choose_kernels
from gemmbench.facts.dtypes import DTYPES
from gemmbench.facts.kernel_files import raw
from gemmbench.render.ladder import LadderEntry, describe, ladder
from gemmbench.rules.variants import VARIANTS, Variant


@click.command()
@click.option("--describe", "name", metavar="NAME", help="Explain one: idea, tiles, passes, parameters.")
def kernels(name: str | None) -> None:
    """List the ladder of GEMM kernels, or describe one."""
    console = running.stdout()
    if name is None:
        console.print(ladder([entry(variant) for variant in VARIANTS]))
        return
    for variant in choose_kernels(name):
        console.print(describe(entry(variant), picture(variant)))


def entry(variant: Variant) -> LadderEntry:
    """What the ladder's table shows of a variant."""
    needs = list(variant.extensions)
    preset = variant.preset("default")
    local = variant.local_elements(preset)
    if local:
        needs.append(f"{local * DTYPES['float'].itemsize // 1024} KiB of local memory")
    passes = tuple(f"{step.role}: {step.file} {step.kernel}" for step in variant.passes)
    parameters = {name: f"{preset[name]}: {item.idea}" for name, item in variant.parameters.items()}
    return LadderEntry(
        variant.name, variant.idea, variant.source, variant.family, ", ".join(needs), parameters, passes
    )


def picture(variant: Variant) -> str:
    """The comment that the multiplying kernel's file opens with."""
    for step in variant.passes:
        if step.role == "multiply":
            comment = re.match(r"/\*(.*?)\*/", raw(step.file), re.DOTALL)
            return re.sub(r"^ \* ?", "", comment[1], flags=re.MULTILINE).strip() if comment else ""
    return ""
