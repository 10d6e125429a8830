"""``devices``: a card for each."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from gemmbench.facts import units
from gemmbench.facts.dtypes import DEVICE_DTYPES
from gemmbench.facts.records import DeviceFacts, HostFacts
from gemmbench.facts.text import clean, clean_lines


def devices(found: Sequence[DeviceFacts], host: HostFacts | None = None) -> RenderableType:
    """Every device: what it is, what it has, where its driver came from; the host, if given, at the end."""
    parts: list[RenderableType] = []
    for device in found:
        if parts:
            parts.append(Text(""))
        parts += [Text(f"{device.index}  {clean(device.name)}", style="bold"), _card(device)]
    if host:
        if parts:
            parts.append(Text(""))
        parts += [Text(f"host  {clean(host.cpu)}", style="bold"), _host(host)]
    return Group(*parts)


def _card(device: DeviceFacts) -> Table:
    card = _grid()
    local = f"local {units.size(device.local_mem_bytes)}" + (
        " (emulated)" if device.local_mem_emulated else ""
    )
    cache = f"cache {units.size(device.cache_bytes)}" if device.cache_bytes else "cache -"
    clock = f"{device.clock_mhz} MHz (advisory)" if device.clock_mhz else "-"
    image = f"images to {device.image2d_max[0]} x {device.image2d_max[1]}" if device.images else "no images"
    lines = [
        ("address", f"{device.address} (--device {device.index})"),
        ("platform", f"{clean(device.platform)}, {clean(device.version)}"),
        ("device", clean(device.device_version)),
        ("driver", f"{clean(device.driver)}, {clean(device.origin)}"),
        ("library", clean(device.library) or "-"),
        ("type", f"{clean(device.type)}, {device.compute_units} units"),
        ("clock", clock),
        (
            "memory",
            f"{units.size(device.global_mem_bytes)}"
            f"{' shared with the host' if device.unified_memory else ''}, "
            f"{units.size(device.max_alloc_bytes)} at once, {local}, {cache}",
        ),
        ("groups", f"to {device.max_work_group_size} work-items; {image}"),
        ("types", _types(device)),
    ]
    for name, value in lines:
        card.add_row(f"   {name}", Text(value))
    for warning in device.warnings:
        card.add_row("   warning", Text(clean_lines(warning), style="yellow"))
    return card


def _host(host: HostFacts) -> Table:
    card = _grid()
    card.add_row("   cores", Text(str(host.cores)))
    card.add_row("   memory", Text(units.size(host.memory_bytes)))
    card.add_row("   system", Text(f"{clean(host.system)}, Python {clean(host.python)}"))
    card.add_row("   numpy", Text(f"{clean(host.numpy)}, {clean(host.blas)}"))
    return card


def _grid() -> Table:
    card = Table.grid(padding=(0, 2, 0, 0))
    card.add_column(style="dim", no_wrap=True, min_width=11)
    card.add_column(overflow="fold")
    return card


def _types(device: DeviceFacts) -> str:
    """The types with their native vector widths, then those it lacks."""
    mine = [name for name in DEVICE_DTYPES if name in device.dtypes]
    takes = [f"{name} x{device.vector_widths.get(name, 1)}" for name in mine]
    lacks = [name for name in DEVICE_DTYPES if name not in mine]
    return ", ".join(takes) + (f"; no {', '.join(lacks)}" if lacks else "")
