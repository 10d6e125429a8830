"""The tables of a report that no command prints: devices side by side, surroundings, every row."""

from __future__ import annotations

import math
import re
import shlex
from collections.abc import Callable, Iterator, Sequence
from pathlib import PurePath

from gemmbench.exports.records import COLUMNS, to_flat
from gemmbench.model import units
from gemmbench.model.device import driver_name
from gemmbench.model.run_file import Run
from gemmbench.model.units import clean
from gemmbench.report.table import NOTHING, Cell, Note, Sheet
from gemmbench.stats import panels, rates
from gemmbench.stats.intervals import Interval
from gemmbench.stats.panels import Contest, Entry, Side


def names_of(runs: Sequence[Run]) -> list[str]:
    """What tells runs apart: file names without suffix, with as many folders as it takes."""
    paths = [PurePath(run.path).with_suffix("") if run.path else PurePath("this run") for run in runs]
    for depth in range(1, max((len(path.parts) for path in paths), default=1) + 1):
        names = [clean("/".join(path.parts[-depth:])) for path in paths]
        if len(set(names)) == len(names):
            return names
    return [f"{name} ({number})" for number, name in enumerate(names, 1)]


# --- several devices ----------------------------------------------------------------------------------------


def device_name(run: Run, position: int) -> str:
    """A device for headings: of a CPU the processor's own name, which drivers spell in many ways."""
    device = run.header.devices[position]
    name = run.header.host.cpu if device.type == "cpu" else device.name
    return clean(name.replace("(R)", "").replace("(TM)", "")) or f"device {position}"


def short_names(sides: Sequence[Side]) -> list[str]:
    """The shortest names that tell devices apart: without clock and driver where nobody needs them."""
    homes = [side.homes[0] for side in sides]
    full = [device_name(*home) for home in homes]
    brief = [re.sub(r" (Processor|CPU)\b| @ [\d.]+ ?GHz", "", name) for name in full]
    drivers = [clean(driver_name(run.header.devices[position])) for run, position in homes]
    versions = [re.sub(r"(\d+\.\d+)[.\d_]+", r"\1", driver) for driver in drivers]

    def with_driver(names: Sequence[str], texts: Sequence[str]) -> list[str]:
        return [
            name if names.count(name) == 1 else f"{name}, {text}"
            for name, text in zip(names, texts, strict=True)
        ]

    for names in (brief, with_driver(brief, versions), with_driver(full, versions), full):
        if len(set(names)) == len(names):
            return names
    return with_driver(full, drivers)


def beside(sides: Sequence[Side], order: Sequence[str]) -> tuple[list[Note], list[Sheet]]:
    """What is said of several devices, and their tables: fastest variants, equal variants, peaks."""
    fastest = panels.fastest(sides)
    equal, abilities = panels.variants(sides, order), panels.abilities(sides)
    names, scope = short_names(sides), panels.scope_of(sides)
    over = f"ratio: times the rate of {names[-1]}, with the 95 % interval of these samples"
    gemms, medians = f"GFLOPS, {scope} scope; {over}", f"{over}, of medians"
    tables = [
        _contests(fastest, names, f"each device's fastest variant: {gemms}", _named, _gflops),
        _contests(equal, names, f"the same variant on each device: {gemms}", lambda _: "", _gflops),
        _contests(
            abilities,
            names,
            f"what each device can do, best batch; {medians}",
            lambda _: "",
            _ability,
        ),
    ]
    said = [
        Note(names[side], text, "bold")
        for side in range(len(sides) - 1)
        if (text := _sentence(fastest, abilities, names, side, scope))
    ]
    return said, [sheet for sheet in tables if sheet.rows]


def _sentence(
    fastest: Sequence[Contest], abilities: Sequence[Contest], names: Sequence[str], side: int, scope: str
) -> str:
    parts = []
    if mean := panels.mean_ratio(fastest, side):
        times, least, most, count = mean
        largest = [each for each in fastest if each.ratio(side)][-1]
        last, other = largest.entries[-1], largest.entries[side]
        assert last is not None
        assert other is not None
        assert largest.problem is not None
        spread = f" ({units.number(least)} to {units.number(most)})" if count > 1 else ""
        problems = f"{count} problems" if count > 1 else "one problem"
        parts.append(
            f"with each device's fastest variant {units.number(times)} times the rate of {names[-1]}"
            f"{' in the geometric mean' if count > 1 else ''} over {problems}{spread}, {scope} scope; "
            f"at {largest.problem.title}, {largest.dtype}, {_quick(other)} against {_quick(last)}, "
            f"{interval(largest.ratio(side))} times"
        )
    parts += [
        f"{each.dtype} {each.name} {units.number(ratio.median)} times".strip()
        for each in abilities
        if (ratio := each.ratio(side))
    ]
    return f"{'; '.join(parts)}." if parts else ""


def _quick(entry: Entry) -> str:
    return f"{units.rate(entry.rate, rates.is_integer(entry.row.dtype))} ({clean(entry.row.title)})"


def interval(ratio: Interval | None) -> str:
    """``1.07 [1.05, 1.09]``; the ratio alone where the samples are too few for its interval."""
    if ratio is None:
        return "-"
    if not (math.isfinite(ratio.high) and ratio.low > 0):
        return f"{units.number(ratio.median)} (few: no interval)"
    return f"{units.number(ratio.median)} [{units.number(ratio.low)}, {units.number(ratio.high)}]"


def _named(entry: Entry) -> str:
    return clean(entry.row.title)


def _gflops(entry: Entry) -> str:
    return units.gflops(entry.rate)


def abilities(side: Side) -> Iterator[tuple[str, str]]:
    """What one device can do: the name of each ability, and the figure."""
    for (name, dtype), entry in panels.abilities_of(side).items():
        yield f"{dtype} {name}".strip(), _ability(entry)


def _ability(entry: Entry) -> str:
    if entry.row.kind == "bandwidth":
        return f"{units.number(entry.rate / units.GIGA)} GB/s"
    return units.rate(entry.rate, rates.is_integer(entry.row.dtype))


def _contests(
    contests: Sequence[Contest],
    names: Sequence[str],
    caption: str,
    name: Callable[[Entry], str],
    figure: Callable[[Entry], str],
) -> Sheet:
    """A line for each contest; for each side what it ran if that has a name, its figure, and the ratio."""
    named = any(entry and name(entry) for each in contests for entry in each.entries)
    problems = any(each.problem and each.name != each.problem.size for each in contests)
    last = len(names) - 1
    blocks = [
        (*([f"{each}: variant"] if named else []), each, *([f"{each}: ratio"] if side < last else []))
        for side, each in enumerate(names)
    ]

    def line(each: Contest) -> tuple[Cell, ...]:
        best = rates.best_of(entry.rate for entry in each.entries if entry)
        cells = [Cell(each.name), Cell(each.dtype)]
        cells += [Cell(each.problem.size if each.problem else "")] if problems else []
        for side, entry in enumerate(each.entries):
            cells += [Cell(name(entry)) if entry else NOTHING] if named else []
            cells.append(Cell(figure(entry), entry.rate == best) if entry else NOTHING)
            cells += [Cell(interval(each.ratio(side)))] if side < last else []
        return tuple(cells)

    return Sheet(
        caption=caption + "; * fastest",
        keys=("size" if named else "what", "type", *(["size"] if problems else [])),
        blocks=tuple(blocks),
        rows=tuple(map(line, contests)),
        left=frozenset({"type", *(f"{each}: variant" for each in names)}),
    )


# --- where it was measured ----------------------------------------------------------------------------------


def surroundings(runs: Sequence[Run], names: Sequence[str]) -> list[Sheet]:
    """The runs, the devices, the machines; equal ones stand there once, with the runs that they are of."""
    made = Sheet(
        caption="the saved runs",
        keys=("run",),
        blocks=(("started (UTC)", "command", "rows", "with a result", "gemmbench", "state", "schema"),),
        rows=tuple(_run(run, name) for run, name in zip(runs, names, strict=True)),
        left=frozenset({"started (UTC)", "command", "gemmbench", "state"}),
    )
    devices: dict[tuple[str, ...], list[str]] = {}
    hosts: dict[tuple[str, ...], list[str]] = {}
    for run, name in zip(runs, names, strict=True):
        for facts in dict.fromkeys(_device(run, position) for position in range(len(run.header.devices))):
            devices.setdefault(facts, []).append(name)
        hosts.setdefault(_host(run), []).append(name)
    return [
        made,
        _once("devices, as their drivers describe them", _DEVICE, devices),
        _once("machines around them", _HOST, hosts),
    ]


_DEVICE = (
    "device", "driver", "type", "platform", "units", "MHz", "memory", "last cache", "local memory", "PCI",
    "driver from",
)  # fmt: skip
_HOST = ("processor", "cores", "memory", "system", "Python", "NumPy", "BLAS", "cores busy before")


def _once(caption: str, columns: Sequence[str], lines: dict[tuple[str, ...], list[str]]) -> Sheet:
    return Sheet(
        caption=caption,
        keys=(columns[0],),
        blocks=((*columns[1:], "runs"),),
        rows=tuple((*map(Cell, facts), Cell(", ".join(names))) for facts, names in lines.items()),
        left=frozenset({*columns, "runs"} - {"units", "MHz", "cores"}),
    )


def command_of(run: Run) -> str:
    """The words that made a run."""
    words = run.header.command
    return clean(shlex.join(words if words[:1] == ("gemmbench",) else ("gemmbench", *words)))


def _run(run: Run, name: str) -> tuple[Cell, ...]:
    header = run.header
    started = clean(header.started_utc).replace("T", " ").removesuffix("Z").removesuffix("+00:00")
    return (
        Cell(name),
        Cell(started),
        Cell(command_of(run)),
        Cell(str(len(run.rows))),
        Cell(str(sum(row.status == "ok" for row in run.rows))),
        Cell(clean(header.gemmbench)),
        Cell(", ".join([header.policy.state or "not known", *(["cold"] if header.policy.cold else [])])),
        Cell(str(header.schema_version)),
    )


def _device(run: Run, position: int) -> tuple[str, ...]:
    device = run.header.devices[position]
    size = device.last_level_cache_bytes or device.cache_bytes
    facts = (
        device.name,
        device.driver,
        device.type,
        f"{device.platform}, {device.version}",
        str(device.compute_units),
        str(device.clock_mhz or "-"),
        units.size(device.global_mem_bytes),
        units.size(size) if size else "-",
        units.size(device.local_mem_bytes) + (" (emulated)" if device.local_mem_emulated else ""),
        device.pci or "-",
        device.origin or "-",
    )
    return tuple(map(clean, facts))


def _host(run: Run) -> tuple[str, ...]:
    host = run.header.host
    facts = (
        host.cpu,
        str(host.cores),
        units.size(host.memory_bytes),
        host.system,
        host.python,
        host.numpy,
        host.blas,
        f"{host.busy:.1f}",
    )
    return tuple(map(clean, facts))


# --- every figure -------------------------------------------------------------------------------------------

_LEFT = frozenset({
    "variant", "run", "device_name", "driver", "dtype", "label", "status", "reason", "parameters", "choice",
    "versus", "versus_scope", "scope", "beside", "measured_utc", "state", "limits", "disturbed", "memory",
    "verdict", "source", "notes",
})  # fmt: skip
_FIELDS = tuple(column.name for column in COLUMNS if column.name != "benchmark")  # which the others say
_KEPT = ("variant", "dtype", "m", "n", "k", "status")


def every_row(runs: Sequence[Run], names: Sequence[str]) -> list[Sheet]:
    """Every row with every figure that ``show --format csv`` has: a table of GEMMs, and one of probes.

    A column without a value is left out; of one that is the same throughout, the caption says it.
    """
    records: list[dict[str, object]] = [
        {"run": name, **record} for run, name in zip(runs, names, strict=True) for record in to_flat(run)
    ]
    gemms = [record for record in records if record["kind"] == "gemm"]
    probes = [record for record in records if record["kind"] != "gemm"]
    return [
        _records(title, several)
        for title, several in (("GEMMs", gemms), ("probes of what the device can do", probes))
        if several
    ]


def _records(title: str, records: Sequence[dict[str, object]]) -> Sheet:
    texts = [{name: _text(value) for name, value in record.items()} for record in records]
    values = {name: dict.fromkeys(text[name] for text in texts) for name in ("variant", "run", *_FIELDS)}
    constant = {
        name: text
        for name, several in values.items()
        if len(several) == 1 and len(texts) > 1 and name not in _KEPT and (text := next(iter(several)))
    }
    columns = [name for name, several in values.items() if any(several) and name not in constant]
    everywhere = "; ".join(f"{name} {text}" for name, text in constant.items())
    return Sheet(
        caption=f"{title}, as show --format csv prints them (seconds, 1e9 per second, bytes)"
        + (f"; everywhere: {everywhere}" if everywhere else ""),
        keys=(columns[0],),
        blocks=(tuple(columns[1:]),),
        rows=tuple(tuple(Cell(text[name]) for name in columns) for text in texts),
        left=_LEFT,
    )


def _text(value: object) -> str:
    if value is None or value is False:
        return ""
    if value is True:
        return "yes"
    return f"{value:.6g}" if isinstance(value, float) else str(value)
