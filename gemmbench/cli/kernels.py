"""``gemmbench kernels``."""

from __future__ import annotations

from pathlib import Path

import click

from gemmbench import UsageError, api
from gemmbench.cli import running
from gemmbench.cli.options import click_option
from gemmbench.cli.resources import built
from gemmbench.facts.dtypes import GEMM_DTYPES, PLAIN_DTYPES
from gemmbench.facts.kernel_files import opening
from gemmbench.options.measuring import Square
from gemmbench.options.names import choose_dtypes, choose_kernels
from gemmbench.render.ladder import LadderEntry, describe, ladder
from gemmbench.render.resources import sheets
from gemmbench.render.sheet import stack
from gemmbench.rules.variants import VARIANTS, Values, Variant


@click.command()
@click.option("--describe", "name", metavar="NAME", help="Explain one: idea, tiles, passes, parameters.")
@click.option(
    "--run",
    "file",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="A saved run: what each kernel reached there, and its rank.",
)
@click.option(
    "--resources",
    is_flag=True,
    help="Build every kernel for a device: memory, registers, work-group sizes, and how many work-items fit.",
)
@click_option(Square, "device")
@click_option(Square, "kernels")
@click_option(Square, "dtype")
def kernels(
    name: str | None, file: Path | None, resources: bool, device: str, kernels: str, dtype: str
) -> None:
    """List the ladder of GEMM kernels, or describe one.

    --device, --kernel and --dtype are for --resources.
    """
    if resources:
        if name or file:
            raise UsageError(
                "--resources builds kernels and shows what they take: --describe and --run do not fit"
            )
        written = [variant for variant in choose_kernels(kernels) if variant.passes]
        if not written:
            raise UsageError(
                f"--kernel {kernels}: a library's kernels are its own, there is nothing to build"
            )
        made = built(device, written, choose_dtypes(dtype, GEMM_DTYPES), running.command_words())
        running.show(stack(sheets(made)))
        return
    run = api.load(file) if file else None
    if name is None:
        running.show(ladder([entry(variant) for variant in VARIANTS], run))
        return
    for variant in choose_kernels(name):
        running.show(describe(entry(variant), picture(variant), run))


def entry(variant: Variant) -> LadderEntry:
    """What is told of a variant."""
    return LadderEntry(
        variant.name,
        variant.idea,
        variant.source,
        variant.family,
        ", ".join(_needs_of(variant, "default")),
        {name: _parameter(variant, name) for name in variant.parameters},
        tuple(f"{step.role}: {step.file} {step.kernel}" for step in variant.passes),
        _needs_of_presets(variant),
    )


def _needs_of(variant: Variant, kind: str, dtype: str = "") -> list[str]:
    """What a device must have for a variant with the preset of a kind, for its first type unless told."""
    dtype = dtype or variant.dtypes[0]
    return needs(variant, variant.preset(kind, dtype=dtype), dtype)


def needs(variant: Variant, parameters: Values, dtype: str) -> list[str]:
    """What a device must have for a variant with some parameters and a data type, in words."""
    found = [variant.library] if variant.library else []
    found += [name.replace("|", " or ") for name in variant.extensions(parameters)]
    found += [f"{name} for {dtype}" for dtype, names in variant.type_extensions.items() for name in names]
    if variant.images:
        found.append("images")
    local = variant.local_bytes(dtype, parameters)
    if local:
        found.append(f"{local // 1024} KiB of local memory")
    if variant.executor == "opencl" and set(variant.dtypes) != set(PLAIN_DTYPES):
        found.append(" or ".join(variant.dtypes))
    return found


def _needs_of_presets(variant: Variant) -> dict[str, str]:
    """By preset, where it needs something else than the default."""
    default = _needs_of(variant, "default")
    found = {}
    for family in variant.presets:
        kind, _, dtype = family.partition(":")
        mine = _needs_of(variant, kind, dtype)
        if mine != default:
            found[family] = ", ".join(mine) or "nothing special"
    return found


def _parameter(variant: Variant, name: str) -> str:
    """``16: edge of the square tiles (of 8, 16, 32; cpu-intel 32)``; a rule chooses what no preset has."""
    default = variant.presets.get("default", {}).get(name)
    item = variant.parameters[name]
    others = [
        f"{family} {preset[name]}"
        for family, preset in variant.presets.items()
        if name in preset and preset[name] != default
    ]
    known = "; ".join([f"of {', '.join(map(str, item.values))}", *others])
    value = default if default is not None else "by problem and device"
    return f"{value}: {item.idea} ({known})"


def picture(variant: Variant) -> str:
    """The comment that the multiplying kernel's file opens with."""
    for step in variant.passes:
        if step.role == "multiply":
            return opening(step.file)
    return ""
