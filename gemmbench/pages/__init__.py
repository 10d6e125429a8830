"""What a report says: which runs belong together, conclusions, tables and charts of each; and its HTML."""

from __future__ import annotations

import base64
import hashlib
import shlex
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path, PurePath

import matplotlib
from jinja2 import Environment
from markupsafe import Markup
from matplotlib.figure import Figure

from gemmbench import __version__, chart_views, views
from gemmbench.charts import pane
from gemmbench.exports.records import COLUMNS, to_flat
from gemmbench.ladder import families, order_of
from gemmbench.model import units
from gemmbench.model.device import BUSY_CORES, HOST
from gemmbench.model.row import FAILED, Problem, Row, moment
from gemmbench.model.run_file import Run, is_tuning
from gemmbench.model.units import clean
from gemmbench.options.rules import Rules
from gemmbench.regress import baseline, results
from gemmbench.regress.compare import Comparison, compare
from gemmbench.report import notes
from gemmbench.report.progress import row_label
from gemmbench.report.table import NOTHING, Cell, Note, Sheet
from gemmbench.stats import panels, rates

_ALIKE = 0.8  # of the cases of two runs of one plan, those that both have
_SERIES = 3  # runs of one plan, from which on only the last has tables of its own


@dataclass(frozen=True)
class Wanted:
    """What a report is asked for."""

    title: str = ""  # instead of the devices' names
    charts: tuple[str, ...] | None = None  # kinds; None for all that suit
    rules: Rules = field(default_factory=Rules)
    comparison: Comparison | None = None  # made already, of all the runs


@dataclass(frozen=True)
class Statement:
    """What is concluded of something."""

    subject: str
    notes: tuple[Note, ...]


@dataclass(frozen=True)
class Chart:
    """One pane."""

    svg: str
    caption: str


@dataclass(frozen=True)
class Fold:
    """Tables that are opened by a click."""

    title: str
    sheets: tuple[Sheet, ...]


@dataclass(frozen=True)
class Part:
    """A section of the page."""

    id: str
    title: str
    lead: tuple[str, ...] = ()
    sheets: tuple[Sheet, ...] = ()
    charts: tuple[Chart, ...] = ()
    folds: tuple[Fold, ...] = ()


@dataclass(frozen=True)
class Page:
    """All of it."""

    title: str
    about: str
    statements: tuple[Statement, ...]
    parts: tuple[Part, ...]
    shared: pane.Shared


def page(runs: Sequence[Run], wanted: Wanted | None = None) -> Page:
    """The content of a report of runs with rows; `RunFileError` if one of a series has no start."""
    wanted = wanted or Wanted()
    names = dict(zip(map(id, runs), names_of(runs), strict=True))
    draw = _Draw(wanted, pane.Shared())
    statements: list[Statement] = []
    parts: list[Part] = []
    if table := side_by_side(runs):
        parts.append(Part("devices", "Devices side by side", sheets=(table,)))
    groups = [list(runs)] if wanted.comparison else _groups(runs)
    for number, group in enumerate((each for each in groups if len(each) > 1), 1):
        made = wanted.comparison or compare(group[:-1], group[-1:], wanted.rules)
        statement, part = _verdicts(made, f"verdicts-{number}", [names[id(run)] for run in group], draw)
        statements.append(statement)
        parts.append(part)
    only_last = 2 if wanted.comparison else _SERIES
    shown = [run for group in groups for run in (group[-1:] if len(group) >= only_last else group)]
    for number, run in enumerate(shown, 1):
        name, lenders = names[id(run)], _lenders(run, runs)
        sheets = views.sheets(run, order_of(run))
        said = list(_said(run, lenders, sheets))
        if said:
            subject = f"{_devices(run)}: {name}" if len(shown) > 1 or statements else ""
            statements.append(Statement(subject, tuple(said)))
        parts.append(_part(run, number, name, lenders, sheets, draw))
    every = tuple(names.values())
    parts.append(Part("surroundings", "Where it was measured", sheets=tuple(surroundings(runs, every))))
    count = sum(len(run.rows) for run in runs)
    fold = Fold(f"{count:,} rows, every figure", tuple(every_row(runs, every)))
    parts.append(Part("rows", "Every row", folds=(fold,) if count else ()))
    return Page(
        clean(wanted.title) or _title(runs), _about(runs), tuple(statements), tuple(parts), draw.shared
    )


def _title(runs: Sequence[Run]) -> str:
    devices = [(run, position) for run in runs for position in range(len(run.header.devices))]
    names = list(dict.fromkeys(device_name(*each) for each in devices))
    return f"gemmbench: {', '.join(names[:3])}{f' and {len(names) - 3} more' if len(names) > 3 else ''}"


def _about(runs: Sequence[Run]) -> str:
    days = sorted({clean(run.header.started_utc)[:10] for run in runs})
    rows = sum(len(run.rows) for run in runs)
    made = ", ".join(dict.fromkeys(clean(run.header.gemmbench) for run in runs))
    when = days[0] if len(days) == 1 else f"{days[0]} to {days[-1]}"
    counts = f"{units.counted(len(runs), 'run')}, {units.counted(rows, 'row', ',')}"
    return f"{counts}, measured {when} by gemmbench {made}"


def _devices(run: Run) -> str:
    return ", ".join(clean(device.title) for device in run.header.devices) or clean(run.header.host.cpu)


# --- which runs belong together -----------------------------------------------------------------------------


def _groups(runs: Sequence[Run]) -> list[list[Run]]:
    """Runs of one plan together, in the order of their starts."""
    groups: list[list[Run]] = []
    for run in runs:
        alike = next((group for group in groups if _is_same_plan(group[0], run)), None)
        if alike is None:
            groups.append(alike := [])
        alike.append(run)
    for group in groups:
        with suppress(ValueError):  # a start that is no time
            group.sort(key=lambda run: moment(run.header.started_utc))
    return groups


def _is_same_plan(first: Run, second: Run) -> bool:
    """Whether two runs measured the same cases, in the same state, on the same machine."""
    if _surroundings(first) != _surroundings(second) or is_tuning(first) or is_tuning(second):
        return False
    cases = [
        {key for each in baseline.replicates_in(run, first.header)[:1] for key in each.rows}
        for run in (first, second)
    ]
    return len(cases[0] & cases[1]) >= _ALIKE * len(cases[0] | cases[1])


def _surroundings(run: Run) -> tuple[object, ...]:
    """The machine and the state that a run was measured in."""
    devices = tuple((each.platform, each.name, each.pci) for each in run.header.devices)
    host, policy = run.header.host, run.header.policy
    return devices, host.cpu, host.cores, host.memory_bytes, policy.cold


def _verdicts(made: Comparison, slug: str, names: Sequence[str], draw: _Draw) -> tuple[Statement, Part]:
    said = [Note("", results.conclusion(made), "bold")]
    said += [
        Note(results.name(line.row), results.sentence(line), results.STYLES[line.verdict])
        for line in made.lines
        if line.fails
    ]
    bases = ", ".join(names[:-1]) if len(names) <= _SERIES else f"the {len(names) - 1} runs before"
    against = f"{names[-1]} against {bases}"
    charts = draw(lambda: chart_views.ratios(made), "change of each row's time, and its range")
    sheets = results.sheets(made, every=True)
    part = Part(slug, f"Verdicts: {against}", (), tuple(sheets), tuple(charts))
    return Statement(f"Verdicts: {against}", tuple(said)), part


# --- one run ------------------------------------------------------------------------------------------------


def _lenders(run: Run, runs: Sequence[Run]) -> list[Run]:
    """Runs of probes alone on the same device, which lend their peak and bandwidth."""
    titles = {device.title for device in run.header.devices}
    return [
        other
        for other in runs
        if other is not run
        and not any(row.kind == "gemm" for row in other.rows)
        and titles & {device.title for device in other.header.devices}
    ]


def _part(
    run: Run, number: int, name: str, lenders: Sequence[Run], sheets: Sequence[Sheet], draw: _Draw
) -> Part:
    lead = (_devices(run), command_of(run))
    charts = tuple(draw.suited([run, *lenders]))
    state = views.conditions(run)
    folds = (Fold("Conditions while each row was measured", tuple(state)),) if state else ()
    return Part(f"run-{number}", name, lead, tuple(sheets), charts, folds)


def _said(run: Run, lenders: Sequence[Run], sheets: Sequence[Sheet]) -> Iterator[Note]:
    """The conclusions of a run: what is wrong, what is fastest, what its tables conclude, what to doubt."""
    rows = run.rows
    yield from notes.troubles([row for row in rows if row.status in FAILED], _where, "row")
    yield from _fastest(run, lenders)
    if not any(row.kind == "gemm" for row in rows):
        yield from _peaks(run)
    for sheet in sheets:
        yield from (note for note in sheet.notes if note.style == "bold")
    yield from _doubts(run)


def _where(row: Row) -> str:
    return notes.shape(row) if row.problem else row_label(row)


def _fastest(run: Run, lenders: Sequence[Run]) -> Iterator[Note]:
    """The fastest of each device and type at the problem that its kernels are compared at elsewhere."""
    gemms = [row for row in run.rows if row.kind == "gemm"]
    if is_tuning(run) or not (panels.sweep_axis(gemms) or len({row.problem for row in gemms}) == 1):
        return
    scope = rates.view_scope(run)
    for setting in panels.settings(run):
        problem = panels.common_problem(run, setting)
        if problem is None:
            continue
        ranked = panels.standings(run, setting, problem).values()
        best = sorted((each for each in ranked if each.rank), key=lambda each: each.rank or 0)[:2]
        texts = [
            f"{clean(each.row.title)} with {units.rate(each.rate.median, rates.is_integer(setting.dtype))}"
            for each in best
            if each.rate
        ]
        if texts:
            fraction = rates.peak_fraction(run, best[0].row, scope, lenders)
            texts[0] += f", {units.percent(fraction)} of the measured peak" if fraction is not None else ""
            several = len(run.header.devices) > 1
            on = f" on {device_name(run, setting.device)}" if several and setting.device >= 0 else ""
            where = f"{setting.dtype} at {problem.title}{on}, {scope} scope"
            yield Note("Fastest", f"{where}: {'; then '.join(texts)}.", "bold")


def _peaks(run: Run) -> Iterator[Note]:
    """The measured peaks of each device, by data type, and its bandwidth."""
    types = dict.fromkeys(row.dtype for row in run.rows if row.kind == "peak")
    for device in range(len(run.header.devices)):
        texts = [
            f"{dtype} {name} {units.rate(top.rate, rates.is_integer(dtype))}"
            for dtype in types
            for matrix, name in ((False, "peak"), (True, "peak of the matrix units"))
            if (top := rates.peak(run, device, dtype, matrix, sums=""))
        ]
        if best := rates.best_bandwidth(run, device):
            texts.append(f"bandwidth of global memory {units.number(best[0] / units.GIGA)} GB/s")
        if texts:
            yield Note("Measured peaks", f"{'; '.join(texts)}.", "bold")


def _doubts(run: Run) -> Iterator[Note]:
    for device in range(len(run.header.devices)):
        yield from notes.warnings(run, device)
    host = run.header.host
    if host.busy >= BUSY_CORES:
        cores = f"other programs kept {host.busy:.1f} of {host.cores} cores busy when the run began"
        yield Note("busy", f"{cores}: its rates are low and noisy.", "yellow")
    timed = [row for row in run.rows if row.samples]
    yield from notes.uncertain(run, timed)


@dataclass(frozen=True)
class _Draw:
    """Draws what is wanted, and collects what charts share."""

    wanted: Wanted
    shared: pane.Shared

    def __call__(self, panes: Callable[[], Sequence[pane.Pane]], idea: str) -> list[Chart]:
        """Panes that are of no kind; none where only some kinds are wanted."""
        if self.wanted.charts is not None:
            return []
        with matplotlib.rc_context():
            return [self._chart(figure, idea) for figure in pane.each_alone(panes)]

    def suited(self, runs: Sequence[Run]) -> Iterator[Chart]:
        """Every pane of the kinds that suit the runs and are wanted."""
        chosen = chart_views.KINDS if self.wanted.charts is None else self.wanted.charts
        known = families(runs)
        for kind, reason in chart_views.suited(runs, known).items():
            if not reason and kind in chosen:
                idea = f"{kind}: {chart_views.KINDS[kind].idea}"
                with matplotlib.rc_context():
                    figures = chart_views.figures(runs, kind, known)
                    charts = [self._chart(figure, idea) for figure in figures]
                yield from charts

    def _chart(self, figure: Figure, idea: str) -> Chart:
        title = " ".join(figure.axes[0].get_title(loc="left").split())
        return Chart(pane.to_svg(figure, self.shared, f"{title}. {idea}"), idea)


_WORDY = 28  # letters, from which on a cell may be broken over lines
_MOST = 300  # rows of a table that are HTML: a browser takes seconds to read thousands


def html(runs: Sequence[Run], wanted: Wanted | None = None) -> str:
    """A report of runs; equal runs give an equal page. `RunFileError` as of `page`.

    The page fetches nothing, and its own policy forbids it: no script but the one with this hash is run.
    """
    script, content = _file("report.js"), page(runs, wanted)
    sheets = [sheet for part in content.parts for sheet in part.sheets]
    sheets += [sheet for part in content.parts for fold in part.folds for sheet in fold.sheets]
    left = {n for sheet in sheets for n in _left(sheet)}
    environment = Environment(autoescape=True, trim_blocks=True, lstrip_blocks=True)
    environment.policies["json.dumps_kwargs"] = {"separators": (",", ":")}
    return environment.from_string(_file("report.html")).render(
        page=content,
        css=_file("report.css"),
        script=script,
        digest=base64.b64encode(hashlib.sha256(script.encode()).digest()).decode(),
        version=__version__,
        left=",".join(f".l{n} td:nth-child({n})" for n in sorted(left)) + "{text-align:left}",
        looks=lambda cell: _class(_classes(cell)),
        sides=lambda sheet: _class([f"l{n}" for n in _left(sheet)]),
        rest=_rest,
        most=_MOST,
    )


def _file(name: str) -> str:
    return Path(__file__).with_name(name).read_text(encoding="utf-8")


def _left(sheet: Sheet) -> list[int]:
    """The columns, counted from 1, whose cells begin at the left; the first's are heads."""
    return [n for n, name in enumerate(sheet.columns, 1) if n > 1 and name in sheet.left]


def _class(names: Sequence[str]) -> Markup:
    return Markup(' class="{}"').format(" ".join(names)) if names else Markup("")


def _classes(cell: Cell) -> list[str]:
    names = ["best"] if cell.best else cell.style.split()
    return [*names, "w"] if len(cell.text) > _WORDY else names


def _rest(sheet: Sheet) -> list[list[str | list[str]]]:
    """The rows of a table that are no HTML: a text for each cell, or text and classes."""
    return [
        [[cell.plain, " ".join(names)] if (names := _classes(cell)) else cell.plain for cell in row]
        for row in sheet.rows[_MOST:]
    ]


# --- The tables of a report that no command prints: devices side by side, surroundings, every row -----------


def names_of(runs: Sequence[Run]) -> list[str]:
    """What tells runs apart: file names without suffix, with as many folders as it takes."""
    paths = [PurePath(run.path).with_suffix("") if run.path else PurePath("this run") for run in runs]
    for depth in range(1, max((len(path.parts) for path in paths), default=1) + 1):
        names = [clean("/".join(path.parts[-depth:])) for path in paths]
        if len(set(names)) == len(names):
            return names
    return [f"{name} ({number})" for number, name in enumerate(names, 1)]


def device_name(run: Run, position: int) -> str:
    """A device for headings: of a CPU the processor's own name, which drivers spell in many ways."""
    device = run.header.devices[position]
    name = run.header.host.cpu if device.type == "cpu" else device.name
    return clean(name.replace("(R)", "").replace("(TM)", "")) or f"device {position}"


def side_by_side(runs: Sequence[Run]) -> Sheet | None:
    """Each device's fastest kernel for every type and problem that several devices ran; None without any.

    On a CPU the host's own BLAS is one of the kernels: `rates.is_compared`.
    """
    scope = rates.view_scope(*runs)
    fastest: dict[tuple[str, Problem], dict[str, tuple[float, str]]] = {}
    for run, row in ((each, row) for each in runs for row in each.rows if row.kind == "gemm"):
        devices = range(len(run.header.devices)) if row.device == HOST else (row.device,)
        for device in devices:
            rate = rates.compared_rate(run, device, row, scope)
            if rate and row.problem:
                by_device = fastest.setdefault((row.dtype, row.problem), {})
                title = run.header.devices[device].title
                by_device[title] = max(by_device.get(title, (0.0, "")), (rate, clean(row.title)))
    shared = {key: by_device for key, by_device in fastest.items() if len(by_device) > 1}
    if not shared:
        return None
    titles = list(dict.fromkeys(title for by_device in shared.values() for title in by_device))

    def line(dtype: str, problem: Problem) -> tuple[Cell, ...]:
        by_device = shared[dtype, problem]
        best = max(rate for rate, _ in by_device.values())
        cells = [Cell(problem.size), Cell(dtype)]
        for title in titles:
            rate, name = by_device.get(title, (0.0, ""))
            cells += [Cell(name), Cell(units.gflops(rate), rate == best)] if name else [NOTHING, NOTHING]
        return tuple(cells)

    order = sorted(shared, key=lambda each: (each[0], each[1].flops, each[1].shape))
    blocks = [(f"{clean(title)}: kernel", clean(title)) for title in titles]
    return Sheet(
        caption=f"each device's fastest kernel: GFLOPS, {scope} scope; * fastest",
        keys=("size", "type"),
        blocks=tuple(blocks),
        rows=tuple(line(*key) for key in order),
        left=frozenset({"type", *(kernel for kernel, _ in blocks)}),
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
    devices = units.by_key(
        (facts, name)
        for run, name in zip(runs, names, strict=True)
        for facts in dict.fromkeys(_device(run, position) for position in range(len(run.header.devices)))
    )
    hosts = units.by_key((_host(run), name) for run, name in zip(runs, names, strict=True))
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
    texts = (
        name,
        clean(header.started_utc).replace("T", " ").removesuffix("Z").removesuffix("+00:00"),
        command_of(run),
        str(len(run.rows)),
        str(sum(row.status == "ok" for row in run.rows)),
        clean(header.gemmbench),
        "cold" if header.policy.cold else "warm",
        str(header.schema_version),
    )
    return tuple(map(Cell, texts))


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
    memory, busy = units.size(host.memory_bytes), f"{host.busy:.1f}"
    facts = (host.cpu, str(host.cores), memory, host.system, host.python, host.numpy, host.blas, busy)
    return tuple(map(clean, facts))


# --- every figure -------------------------------------------------------------------------------------------

_LEFT = frozenset({
    "variant", "run", "device_name", "driver", "dtype", "label", "status", "reason", "parameters", "choice",
    "versus", "versus_scope", "scope", "measured_utc", "limits", "uncertain", "memory",
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
    titles = {True: "GEMMs", False: "probes of what the device can do"}
    kinds = units.by_key((record["kind"] == "gemm", record) for record in records)
    return [_records(title, kinds[is_gemm]) for is_gemm, title in titles.items() if is_gemm in kinds]


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
