"""`gemmbench kernels`, `devices_command` and `doctor_command`: what is there and what holds it back."""

from __future__ import annotations

import json
import textwrap
from collections.abc import Iterable, Sequence

import click
from click.core import ParameterSource
from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from gemmbench import UsageError, api
from gemmbench.cli import running
from gemmbench.cli.running import Grouped
from gemmbench.doctor import diagnosis_page, to_record
from gemmbench.ladder import BASELINE
from gemmbench.ladder.variant import Variant
from gemmbench.measure.child import Worker
from gemmbench.model import units
from gemmbench.model.case import Finished, Planned, Policy, Skip, Started
from gemmbench.model.device import DeviceFacts, HostFacts, driver_name
from gemmbench.model.dtypes import DEVICE_DTYPES, GEMM_DTYPES
from gemmbench.model.kernel_files import opening, shown_name
from gemmbench.model.problem import Gemm
from gemmbench.model.row import Resources, Row
from gemmbench.model.run_file import Run
from gemmbench.model.units import clean, clean_lines
from gemmbench.opencl.drivers import Problem, sentence
from gemmbench.report import notes, table
from gemmbench.report.table import Cell, Entry, Note, Sheet, entry_page, heading, stack
from gemmbench.suite.job import Job, header_of
from gemmbench.suite.options import names
from gemmbench.suite.options.comparing import DoctorOptions, KernelsOptions
from gemmbench.suite.plan import gemm_plan
from gemmbench.suite.selection import every_device, opened_devices
from gemmbench.suite.session import Listen

_DEFAULTS = "These are defaults. A run may use others, for its device or from tune: -v shows them."
_IDEA = 40  # columns, so that a line has 80
_SIZE = 1024  # of the problem that groups are shaped for


def _run_kernels(options: KernelsOptions) -> None:
    """Write an example (--new), show resources, explain kernels or list them."""
    if new := options.new:
        context = click.get_current_context()
        for param in context.command.params:
            is_given = context.get_parameter_source(param.name or "") is ParameterSource.COMMANDLINE
            if is_given and param.name != "new":
                word = max(param.opts, key=len)
                raise UsageError(f"--new writes a file, and does nothing else: {word} does not fit")
        path = api.new_kernel(new)
        running.print_line(
            f"Wrote {path}. Measure it: gemmbench square --kernel-file {path} --kernel {path.stem},tiled"
        )
        return
    user_kernels = names.own_kernels(options.kernel_files)
    chosen = names.choose_kernels(options.kernels, user_kernels=user_kernels)
    dtypes = names.choose_dtypes(options.dtype, GEMM_DTYPES)
    if options.resources:
        _show_resources(options, chosen, dtypes)
        return
    if options.plot:
        raise UsageError("--plot is for --resources")
    if options.describe is None:
        running.print_output(ladder_table(names.choose_kernels("all", "all", user_kernels)))
        return
    for variant in names.choose_kernels(options.describe, "none", user_kernels, add_unnamed=False):
        running.print_output(entry_page(describe_variant(variant)))


kernels_command = running.command(KernelsOptions, _run_kernels)


def _show_resources(options: KernelsOptions, chosen: Sequence[Variant], dtypes: Sequence[str]) -> None:
    if options.describe:
        raise UsageError("--resources builds kernels and shows what they use: --describe does not fit")
    written = [variant for variant in chosen if variant.launches.passes]
    if not written:
        raise UsageError(
            f"--kernel {options.kernels}: a library's kernels are its own, there is nothing to build"
        )
    running.execute(KernelBuild(options, written, dtypes))


def describe_variant(variant: Variant) -> Entry:
    """Describe a variant: source, types, requirements, passes, parameters, picture."""
    needed = ", ".join(_needs_of(variant, "default"))
    passes = [
        f"{n}. {step.role}: {shown_name(step.file)} {step.kernel}"
        for n, step in enumerate(variant.launches.passes, 1)
    ]
    parameters = [f"{name}: {_parameter_line(variant, name)}" for name in variant.parameters]
    facts = [
        ("source", variant.source),
        ("types", ", ".join(variant.needs.dtypes)),
        ("needs", needed or "nothing special"),
        *([("computes", variant.limits)] if variant.limits else []),
        *(("", f"{family}: {text}") for family, text in _needs_of_presets(variant).items()),
        *zip(("passes", *[""] * len(passes)), passes, strict=False),
        *zip(("parameters", *[""] * len(parameters)), parameters, strict=False),
        *([("", _DEFAULTS)] if parameters else []),
        *zip(("named", *[""] * len(variant.parameters.named)), _named(variant), strict=False),
    ]
    pictures = [opening(step.file) for step in variant.launches.passes if step.role == "multiply"][:1]
    return Entry(variant.name, variant.family, variant.idea, facts, pictures)


def ladder_table(variants: Sequence[Variant]) -> RenderableType:
    """A line for each variant by family: needs, types and the start of the idea."""
    table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False, header_style="dim")
    for column in ("kernel", "needs", "types", "idea"):
        table.add_column(column, no_wrap=column != "idea")
    family = ""
    for variant in variants:
        if variant.family != family:
            family = variant.family
            table.add_row(*([""] if table.rows else []))
            table.add_row(Text(family, style="dim"))
        needed = [each.split(" of ")[0].split(" and ")[0] for each in _needs_of(variant, "default")]
        needed = ["extensions" if each.startswith("cl_") else each for each in needed]
        more = f" +{len(variant.needs.dtypes) - 1}" if variant.needs.dtypes[1:] else ""
        idea = textwrap.shorten(variant.idea, _IDEA, placeholder=" ...")
        cells = (f"  {variant.name}", ", ".join(dict.fromkeys(needed)), variant.needs.dtypes[0] + more, idea)
        table.add_row(*map(Text, cells))
    legend = "KiB: local memory that the kernel needs. float +2: float and two other types"
    return Group(table, Text(f"\n{legend}.\nDetails: gemmbench kernels --describe NAME"))


def _needs_of(variant: Variant, kind: str, dtype: str = "") -> list[str]:
    """What a device needs for a variant with one preset."""
    dtype = dtype or variant.needs.dtypes[0]
    parameters = variant.preset(kind, dtype=dtype)
    needed = [variant.library.needs] if variant.library and variant.library.needs else []
    needed += [variant.needs.hardware] if variant.needs.hardware else []
    needed += [name.replace("|", " or ") for name in variant.needs.extensions(parameters)]
    of_types = variant.needs.type_extensions
    needed += [f"{name} for {dtype}" for dtype, names in of_types.items() for name in names]
    if variant.launches.images:
        needed.append("images")
    if local := variant.local_bytes(dtype, parameters):
        needed.append(f"{local // 1024} KiB of local memory")
    return needed


def _needs_of_presets(variant: Variant) -> dict[str, str]:
    """What presets need, by device family, where it differs from the default's needs."""
    default = _needs_of(variant, "default")
    by_family = {}
    for family in variant.parameters.presets:
        kind, _, dtype = family.partition(":")
        needed = _needs_of(variant, kind, dtype)
        if needed != default:
            by_family[family] = ", ".join(needed) or "nothing special"
    return by_family


def _parameter_line(variant: Variant, name: str) -> str:
    default = variant.parameters.presets.get("default", {}).get(name)
    item = variant.parameters[name]
    families: dict[int, list[str]] = {}
    for family, preset in variant.parameters.presets.items():
        if name in preset and preset[name] != default:
            value = preset[name]
            if (
                variant.parameters.presets.get(family.partition(":")[0], {}).get(name) != value
                or ":" not in family
            ):
                families.setdefault(value, []).append(family)
    others = [f"{', '.join(alike)} {value}" for value, alike in families.items()]
    known = "; ".join([f"of {', '.join(map(str, item.values))}", *others])
    shown = default if default is not None else "by problem and device"
    return f"{shown}: {item.idea} ({known})"


def _named(variant: Variant) -> list[str]:
    """``padded-fused: B transposed and padded in one launch (FUSED=1)``"""
    return [
        f"{variant.name}-{name}: {each.idea} ({units.list_values(each.values)})"
        for name, each in variant.parameters.named.items()
    ]


class KernelBuild(Job):
    """`kernels --resources`: build variants without running them, for m = n = k = 1024."""

    is_timed = False
    chart = "resources"

    def __init__(self, options: KernelsOptions, chosen: Sequence[Variant], dtypes: Sequence[str]) -> None:
        super().__init__(options)
        self._chosen, self._dtypes, self._words = chosen, dtypes, running.command_words()

    def prepare(self) -> None:
        devices, host = opened_devices(self.worker, self.options.device)
        self.header = header_of(devices, host, Policy(), self._words)
        problems = [Gemm(_SIZE, _SIZE, _SIZE, dtype) for dtype in self._dtypes]
        self.plan = gemm_plan(devices, self._chosen, problems)

    def measure(self, listen: Listen) -> None:
        listen(Planned(len(self.plan)))
        for number, step in enumerate(self.plan, 1):
            if isinstance(step, Skip):
                self.rows.append(step.row)
            else:
                listen(Started(number, step.label))
                device = self.header.devices[step.device]
                self.rows.append(self.worker.inspect(step, device, self.header.policy))
            listen(Finished(self.rows[-1]))

    def rendered(self) -> RenderableType:
        return stack(resource_sheets(self.run))


_LEGEND = {
    "group": "work-items in a work-group as launched, of the most that the built kernel can have",
    "multiple": "work-group sizes should be a multiple of it",
    "private": "memory of each work-item",
    "local": "memory of each work-group",
}


def resource_sheets(run: Run) -> list[Sheet]:
    """A table for each device and data type: a line for each kernel of each variant."""
    tables = units.by_key(((row.device, row.dtype), row) for row in run.rows)
    return [_sheet(run, *key, rows) for key, rows in tables.items()]


def _sheet(run: Run, device: int, dtype: str, rows: Sequence[Row]) -> Sheet:
    """The resource table of a device and type. CPU drivers report no useful private memory."""
    every = [kernel for row in rows for kernel in row.resources]
    reported = any(kernel.registers is not None for kernel in every)
    memory = ("local",) if run.header.devices[device].type == "cpu" else ("private", "local")
    legend = {name: text for name, text in _LEGEND.items() if name != "private" or name in memory}
    lines = [
        (
            Cell("" if index else clean(row.variant)),
            Cell(clean(kernel.kernel), style="" if kernel.role == "multiply" else "dim"),
            *_resource_cells(kernel, reported, memory),
        )
        for row in rows
        for index, kernel in enumerate(row.resources)
    ]
    columns = [("group", "most", "multiple"), memory]
    columns += [("registers", "spills")] if reported else []
    advice = [] if reported else [Note("registers", "this driver reports no registers and spills", "dim")]
    return Sheet(
        heading=heading(run, device),
        caption=f"{dtype}: kernels as built, with the parameters preset for this device",
        keys=("", "kernel"),
        blocks=tuple(columns),
        rows=tuple(lines),
        left=frozenset({"kernel"}),
        notes=(
            *(Note(name, text, "dim") for name, text in legend.items()),
            *advice,
            *notes.failures_by_reason(rows, lambda row: row.dtype),
        ),
    )


def _resource_cells(kernel: Resources, reported: bool, memory: Sequence[str]) -> tuple[Cell, ...]:
    cells = [Cell(str(figure)) for figure in (kernel.group, kernel.most, kernel.multiple)]
    cells += [Cell(units.size(getattr(kernel, f"{name}_bytes"))) for name in memory]
    if reported:
        registers = "-" if kernel.registers is None else str(kernel.registers)
        spilled = "-" if kernel.spill_bytes is None else units.size(kernel.spill_bytes)
        cells += [Cell(registers), Cell(spilled, style="yellow" if kernel.spill_bytes else "")]
    return tuple(cells)


@click.command("devices", Grouped, help="List the OpenCL devices and their drivers.")
@click.option("--json", "as_json", is_flag=True, help="Print a JSON array with one object per device.")
def devices_command(as_json: bool) -> None:
    """``gemmbench devices``."""
    with Worker() as worker:
        listed, host = every_device(worker)
        broken = [problem for device in listed if device.type == "cpu" and (problem := worker.open(device))]
    if as_json:
        import msgspec

        click.echo(msgspec.json.format(msgspec.json.encode(listed), indent=2).decode())
        return
    content = devices_table(listed, host, (*worker.problems, *broken))
    table.stdout().print(stack([content, Text("More: gemmbench devices --json")]))


def devices_table(
    listed: Sequence[DeviceFacts], host: HostFacts | None = None, problems: Iterable[Problem] = ()
) -> RenderableType:
    """List every device, then the host and the problems of other drivers."""
    blocks = [_block(*_device_lines(device), *map(clean_lines, device.warnings)) for device in listed]
    if host is not None:
        title = f"host  {host.label}, {units.count_noun(host.cores, 'core')}"
        system = f"{units.size(host.memory_bytes)}, {clean(host.system)}, Python {clean(host.python)}"
        blocks.append(_block(title, system, f"{BASELINE} {clean(host.numpy)}, {clean(host.blas)}"))
    blocks += [Text(f"{clean(sentence(problem))}.", "yellow") for problem in problems]
    return stack(blocks)


def _block(title: str, *lines: str) -> RenderableType:
    return Group(Text(title, style="bold"), *(Padding(Text(line), (0, 0, 0, 3)) for line in lines))


def _device_lines(device: DeviceFacts) -> tuple[str, ...]:
    unit = units.count_noun(device.compute_units, "compute unit")
    shared = " shared with the host" if device.unified_memory else ""
    emulated = " (emulated)" if device.local_mem_emulated else ""
    cache = f", cache {units.size(device.cache_bytes)}" if device.cache_bytes else ""
    local = f"local {units.size(device.local_mem_bytes)}{emulated}"
    return (
        f"{device.index}  {device.label}, {clean(device.type)}, {unit} ({device.address})",
        f"{driver_name(device)}, {clean(device.origin)}",
        f"{units.size(device.global_mem_bytes)}{shared}, {local}{cache}",
        _types(device),
    )


def _types(device: DeviceFacts) -> str:
    supported = [name for name in DEVICE_DTYPES if name in device.dtypes]
    takes = [f"{name} x{device.vector_widths.get(name, 1)}" for name in supported]
    lacks = [name for name in DEVICE_DTYPES if name not in supported]
    return ", ".join(takes) + (f"; no {', '.join(lacks)}" if lacks else "")


def _doctor(options: DoctorOptions) -> None:
    report, machine = api.run_doctor(options.device)
    if options.json:
        click.echo(json.dumps(to_record(report), indent=2))
    else:
        content = diagnosis_page(report, machine.chosen, options.verbose)
        table.stdout().print(content, crop=False)  # commands are longer than lines may be


doctor_command = running.command(DoctorOptions, _doctor)
