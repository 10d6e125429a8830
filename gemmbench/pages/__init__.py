"""A report of saved runs as one HTML page: a summary, comparisons, and a section for each run."""

from __future__ import annotations

import base64
import hashlib
import re
import shlex
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import count
from pathlib import Path, PurePath

import matplotlib
from jinja2 import Environment
from markupsafe import Markup
from matplotlib.figure import Figure

from gemmbench import __version__, chart_views, views
from gemmbench.charts import pane
from gemmbench.gemm.sweep_table import SCOPE_WORDS, row_sheets
from gemmbench.ladder import families, order_of
from gemmbench.model import units
from gemmbench.model.device import HOST
from gemmbench.model.row import FAILED, Problem, Row, moment
from gemmbench.model.run_file import Run, is_tuning
from gemmbench.model.units import clean
from gemmbench.regress import results
from gemmbench.regress.compare import Comparison, compare, match_key
from gemmbench.report import notes
from gemmbench.report.table import Cell, Sheet, table, table_of
from gemmbench.stats import claims, rates
from gemmbench.stats.panels import sweep_axis
from gemmbench.suite.options.comparing import Rules

_SENTENCES = 3  # at the top of the page
_TOP_ROWS = 6  # of the table at the top of the page
_WORDY = 28  # characters; longer cells wrap
_LEFT_OUT = ("time",)  # kinds of charts that a report draws only on request: throughput says the same

_Top = tuple[Run, Row, claims.Claim]  # a rate, and the row that has it
_Problems = dict[tuple[str, Problem], dict[str, list[_Top]]]  # all rates by run


@dataclass(frozen=True)
class Wanted:
    """The options of a report."""

    title: str = ""  # default: the names of the devices
    charts: tuple[str, ...] | None = None  # kinds; None: all that suit, except `_LEFT_OUT`
    rules: Rules = field(default_factory=Rules)
    comparison: Comparison | None = None  # of all runs, if it exists already


@dataclass(frozen=True)
class PageChart:
    """A pane as SVG."""

    kind: str  # "" for charts that belong to no kind
    svg: str
    caption: str


@dataclass(frozen=True)
class PageSection:
    """A section of the page."""

    id: str
    title: str
    lead: str = ""
    command: str = ""
    sheets: tuple[Sheet, ...] = ()
    charts: tuple[PageChart, ...] = ()
    folded: str = ""  # title of the tables that open on a click
    folds: tuple[Sheet, ...] = ()


@dataclass(frozen=True)
class Page:
    """Everything on the page."""

    title: str
    about: str
    summary: tuple[str, ...]
    chart: PageChart | None  # next to the summary; its own section omits it
    table: Sheet | None
    parts: tuple[PageSection, ...]


def page(runs: Sequence[Run], wanted: Wanted | None = None) -> Page:
    """The content of a report: at most three sentences as summary, a chart, a table, and all sections.

    Runs of the same cases on one machine (or all, with `wanted.comparison`) are compared as a group, whose
    last run has a section.
    """
    wanted = wanted or Wanted()
    names = dict(zip(map(id, runs), names_of(runs), strict=True))
    draw = _Draw(wanted)
    groups = [list(runs)] if wanted.comparison else _groups(runs)
    shown = [group[-1] for group in groups]
    shown.sort(key=lambda run: all(row.kind != "gemm" for row in run.rows))
    failed = sum(row.status in FAILED for run in shown for row in run.rows)
    failures = f"{units.count_noun(failed, 'row')} failed or gave wrong results: see below."
    parts, summary = [], [failures] if failed else []
    for number, group in enumerate((each for each in groups if len(each) > 1), 1):
        made = wanted.comparison or compare(group[:-1], group[-1:], wanted.rules)
        parts.append(_comparison(made, number, [names[id(run)] for run in group], draw))
        summary.append(f"{parts[-1].title}: {results.conclusion(made)}")
    subjects = list(map(_subject, shown))
    sections = []
    for number, (run, title) in enumerate(zip(shown, subjects, strict=True), 1):
        title += f" ({names[id(run)]})" if subjects.count(title) > 1 else ""
        sections.append(_section(run, f"run-{number}", title, names[id(run)], _peak_runs(run, runs), draw))
    sheets = [sheet for part in sections for sheet in part.sheets]
    table, sentences = _fastest(shown, runs)
    said = [
        f"{part.title}: {note.line}" if len(shown) > 1 else note.line
        for part in sections
        for sheet in part.sheets
        for note in sheet.notes
        if note.style == "bold"
    ]
    summary += [*sentences, *([] if sentences and len(shown) > 1 else said)]
    tables = (replace(sheet, rows=sheet.rows[:_TOP_ROWS], notes=()) for sheet in sheets if sheet.rows)
    parts += [*side_by_side(shown, names), *sections, _machines_section(runs, names)]
    charts = [chart for part in parts for chart in part.charts]
    devices = list(dict.fromkeys(name for run in runs for name in _devices(run)))
    more = f" and {len(devices) - 3} more" if len(devices) > 3 else ""
    return Page(
        clean(wanted.title) or f"gemmbench: {', '.join(devices[:3])}{more}",
        _about(runs),
        tuple(summary[:_SENTENCES]),
        next((each for each in charts if each.kind == "throughput"), charts[0] if charts else None),
        table or next(tables, None),
        tuple(parts),
    )


def _about(runs: Sequence[Run]) -> str:
    days = sorted({clean(run.header.started_utc)[:10] for run in runs})
    when = days[0] if len(days) == 1 else f"{days[0]} to {days[-1]}"
    rows = sum(len(run.rows) for run in runs)
    return f"{units.count_noun(len(runs), 'run')}, {units.count_noun(rows, 'row', ',')}, measured {when}"


def names_of(runs: Sequence[Run]) -> list[str]:
    """Different names for runs: file names with as many folders as necessary, then numbers."""
    paths = [PurePath(run.path).with_suffix("") if run.path else PurePath("this run") for run in runs]
    for depth in range(1, max((len(path.parts) for path in paths), default=1) + 1):
        names = [clean("/".join(path.parts[-depth:])) for path in paths]
        if len(set(names)) == len(names):
            return names
    return [f"{name} ({number})" for number, name in enumerate(names, 1)]


def name_device(run: Run, position: int) -> str:
    """A device's name; for CPUs that of the processor, because drivers spell it differently."""
    device = run.header.devices[position]
    name = run.header.host.cpu if device.type == "cpu" else device.label
    return clean(re.sub(r"\(R\)|\(TM\)|@ [\d.]+ ?GHz$", "", name)) or f"device {position}"


def _devices(run: Run) -> list[str]:
    names = [name_device(run, position) for position in range(len(run.header.devices))]
    return list(dict.fromkeys(names)) or [clean(run.header.host.cpu)]


def _fastest(shown: Sequence[Run], runs: Sequence[Run]) -> tuple[Sheet | None, list[str]]:
    """The fastest kernels of each device and type at their best problems, with sentences."""
    scope, rated = rates.view_scope(*shown), dict[tuple[str, str], dict[str, list[_Top]]]()
    for run in shown:
        gemms = [row for row in run.rows if row.kind == "gemm"]
        if is_tuning(run) or not (sweep_axis(gemms) or len({row.problem for row in gemms}) == 1):
            continue
        for row in gemms:
            for position in _positions(run, row):
                if known := claims.claim_if_compared(run, position, row, scope):
                    by_title = rated.setdefault((name_device(run, position), row.dtype), {})
                    by_title.setdefault(row.title, []).append((run, row, known))
    order = sorted(rated, key=lambda key: key[1] != "float")
    if not order:
        return None, []
    devices, dtypes = (list(dict.fromkeys(names)) for names in zip(*order, strict=True))
    lines: list[dict[str, Cell]] = []
    sentences = []
    for device, dtype in order[:_TOP_ROWS]:
        by_kernel = rated[device, dtype]
        tops = sorted(map(_top, by_kernel.values()), key=lambda top: -top[2].median)
        # Intervals say nothing about the difference between runs.
        is_one_run = len({id(run) for each in by_kernel.values() for run, *_ in each}) == 1
        first = tops[0][1].title
        others = [known for title, each in by_kernel.items() if title != first for *_, known in each]
        is_known = is_one_run and bool(others) and tops[0][2].is_above_all(others)
        for run, row, known in tops[: max(1, _TOP_ROWS // len(order))]:
            fraction = rates.peak_fraction(run, row, scope, _peak_runs(run, runs))
            rate, name = units.rate_text(known.median, rates.is_integer(dtype)), clean(row.title)
            figure = notes.mark_uncertain(run, row, rate, scope)
            assert row.problem is not None  # it has a rate
            is_fastest = is_known and row.title == first
            lines.append(
                {
                    **({"device": Cell(device)} if len(devices) > 1 else {}),
                    "kernel": Cell(name),
                    "best rate": Cell(figure, is_fastest),
                    "size": Cell(row.problem.size),
                    "of peak": Cell(units.share(fraction)),
                    **({"type": Cell(dtype)} if len(dtypes) > 1 else {}),
                }
            )
            if is_fastest:
                share = f", {units.share(fraction)} of the measured peak" if fraction else ""
                best = f"{figure} ({dtype}) at {row.problem.title}"
                sentences.append(f"{name} is the fastest on {device}: {best}{share}.")
    ranked = "kernels" if len(dtypes) > 1 else f"{dtypes[0]} kernels"
    where = "each device" if len(devices) > 1 else devices[0]
    star = ". * is the fastest." if sentences else ""
    caption = f"Fastest {ranked} of {where}, {SCOPE_WORDS[scope]}{star}"
    return table_of(lines, caption=caption, left=["kernel", "type"]), sentences


def _top(rated: Iterable[_Top]) -> _Top:
    return max(rated, key=lambda top: top[2].median)


def _positions(run: Run, row: Row) -> Sequence[int]:
    """The positions of the devices that a row belongs to. The host's BLAS belongs to every device."""
    return range(len(run.header.devices)) if row.device == HOST else (row.device,)


def _groups(runs: Sequence[Run]) -> list[list[Run]]:
    """Group runs of the same cases on one machine. A tuning run stays alone."""
    groups: dict[object, list[Run]] = {}
    for run in runs:
        host = run.header.host
        devices = tuple((each.platform, each.name, each.pci) for each in run.header.devices)
        machine = devices, host.cpu, host.cores, host.memory_bytes, run.header.policy.cold
        cases = frozenset(match_key(row, row.device) for row in run.rows)
        groups.setdefault(id(run) if is_tuning(run) else (machine, cases), []).append(run)
    for group in groups.values():
        with suppress(ValueError):  # an invalid start time
            group.sort(key=lambda run: moment(run.header.started_utc))
    return list(groups.values())


def _comparison(made: Comparison, number: int, names: Sequence[str], draw: _Draw) -> PageSection:
    bases = ", ".join(names[:-1]) if len(names) <= 3 else f"the {len(names) - 1} runs before"
    charts = draw(lambda: chart_views.ratios(made), "Change of each row's time, with its range.")
    sheets = results.comparison_sheets(made, every=True)
    title = f"{names[-1]} compared with {bases}"
    return PageSection(f"changes-{number}", title, sheets=tuple(sheets), charts=tuple(charts))


def side_by_side(runs: Sequence[Run], names: dict[int, str]) -> Iterator[PageSection]:
    """Yield the fastest kernel of each run at the problems that runs share, for each device."""
    scope, by_device = rates.view_scope(*runs), dict[str, _Problems]()
    tried = [each for each in runs if not is_tuning(each)]
    for run, row in ((each, row) for each in tried for row in each.rows if row.problem):
        for position in _positions(run, row):
            known = claims.claim_if_compared(run, position, row, scope)
            if known and row.problem:
                problems = by_device.setdefault(name_device(run, position), {})
                by_run = problems.setdefault((row.dtype, row.problem), {})
                by_run.setdefault(names[id(run)], []).append((run, row, known))
    for number, (device, problems) in enumerate(by_device.items(), 1):
        shared = {key: by_run for key, by_run in problems.items() if len(by_run) > 1}
        if shared:
            title = f"Runs of {device} side by side"
            yield PageSection(f"device-{number}", title, sheets=(_best_by_run(shared, scope),))
    every = {name_device(run, at): (run, at) for run in tried for at in range(len(run.header.devices))}
    sides = [*every.values()]
    if tables := [table for other in sides[1:] for table in results.two_devices(sides[0], other)]:
        yield PageSection("devices", "Devices side by side", sheets=tuple(tables))


def _best_by_run(shared: _Problems, scope: str) -> Sheet:
    """The best kernel of each run and its rate, for each problem that runs share."""
    names = list(dict.fromkeys(name for by_run in shared.values() for name in by_run))

    def cell(key: tuple[str, Problem], name: str) -> str | None:
        if name not in shared[key]:
            return None
        run, row, known = _top(shared[key][name])
        figure = notes.mark_uncertain(run, row, units.gflops(known.median), scope)
        return f"{figure} {clean(row.title)}"

    units_shown = " or ".join(sorted({rates.unit(dtype) for dtype, _ in shared}))
    return table(
        sorted(shared, key=lambda key: (key[0], key[1].flops, key[1].shape)),
        {"size": lambda key: key[1].size, "type": lambda key: key[0]},
        {name: partial(cell, name=name) for name in names},
        caption=f"Highest rate of each run and its kernel, {units_shown} {SCOPE_WORDS[scope]}",
        left=["type", *names],
    )


def _peak_runs(run: Run, runs: Sequence[Run]) -> list[Run]:
    """The other runs without GEMMs on a device of this run, which provide its peak and bandwidth."""
    titles = {device.title for device in run.header.devices}
    return [
        other
        for other in runs
        if other is not run
        and not any(row.kind == "gemm" for row in other.rows)
        and titles & {device.title for device in other.header.devices}
    ]


def _section(run: Run, id: str, title: str, name: str, peaks: Sequence[Run], draw: _Draw) -> PageSection:
    """The section of a run: its command, tables, charts, and all rows folded."""
    command = run.header.command
    words = command if command[:1] == ("gemmbench",) else ("gemmbench", *command)
    order = order_of(run)
    rows = tuple(replace(sheet, notes=()) for sheet in row_sheets(run, order, intervals=False))
    folded = f"All {sum(len(sheet.rows) for sheet in rows)} rows in every scope" if rows else ""
    sheets = tuple(map(_without_options, views.run_sheets(run, order)))
    charts = tuple(draw.suited([run, *peaks]))
    return PageSection(id, title, name, clean(shlex.join(words)), sheets, charts, folded, rows)


def _without_options(sheet: Sheet) -> Sheet:
    notes = (replace(note, text=note.text.removesuffix("Details: -v").strip()) for note in sheet.notes)
    return replace(sheet, notes=tuple(note for note in notes if note.text))


def _subject(run: Run) -> str:
    """What a run measured: ``float GEMM on NVIDIA H200, m = n = k = 64 to 4096``, ``Peaks of ...``."""
    where = ", ".join(_devices(run))
    gemms = [row for row in run.rows if row.kind == "gemm" and row.problem]
    if is_tuning(run):
        kernels = dict.fromkeys(clean(row.variant) for row in gemms)
        return f"Tuning of {', '.join(kernels)} on {where}"
    problems = sorted({row.problem for row in gemms if row.problem}, key=lambda each: each.flops)
    if not problems:
        return f"Peaks of {where}"
    first, last, axis = problems[0], problems[-1], sweep_axis(gemms)
    text = first.title if len(problems) == 1 else f"{len(problems)} shapes"
    if axis:
        fixed = f"m = n = {first.m}" if first.m == first.n else f"m = {first.m}, n = {first.n}"
        text = f"{'m = n = k' if axis == 'm' else f'{fixed}, k'} = {first.k} to {last.k}"
        text += first.apart(" = ", ", ")
    return f"{', '.join(dict.fromkeys(row.dtype for row in gemms))} GEMM on {where}, {text}"


def _machines_section(runs: Sequence[Run], names: dict[int, str]) -> PageSection:
    lines = []
    for run in runs:
        host, titles = run.header.host, dict.fromkeys(device.title for device in run.header.devices)
        for device in titles or ("host",):
            facts = {
                "run": names[id(run)],
                "started (UTC)": run.header.started_utc[:19].replace("T", " "),
                "device": device,
                "processor": host.cpu,
                "cores": str(host.cores),
                "busy before": f"{host.busy:.1f}",
                "memory": units.size(host.memory_bytes),
                "system": host.system,
                "Python": host.python,
                "NumPy": host.numpy,
                "BLAS": host.blas,
                "gemmbench": run.header.gemmbench,
            }
            lines.append({name: Cell(clean(text)) for name, text in facts.items()})
    sheet = table_of(lines, left=lines[0].keys() - {"cores", "busy before", "memory"})
    return PageSection("machines", "Where and when", sheets=(sheet,))


_STYLE = re.compile(r'style="[^"]*"')
_COLOUR = re.compile(r"#([0-9a-f]{6})")


@dataclass(frozen=True)
class _Draw:
    """Draws the charts of a page as SVG."""

    wanted: Wanted
    numbers: Iterator[int] = field(default_factory=count)  # a new number for each chart

    def __call__(self, panes: Callable[[], Iterable[pane.Pane]], caption: str) -> list[PageChart]:
        if self.wanted.charts is not None:
            return []
        with matplotlib.rc_context():
            return [self._chart("", figure, caption) for figure in pane.separate_figures(panes)]

    def suited(self, runs: Sequence[Run]) -> Iterator[PageChart]:
        """Draw each kind of chart that suits the runs and is wanted, by default all but `_LEFT_OUT`."""
        chosen = self.wanted.charts
        known = families(runs)
        for kind in chart_views.list_suitable(runs, known):
            if kind not in _LEFT_OUT if chosen is None else kind in chosen:
                idea = chart_views.KINDS[kind].idea
                with matplotlib.rc_context():
                    figures = chart_views.figures(runs, kind, known)
                    charts = [self._chart(kind, figure, idea[:1].upper() + idea[1:]) for figure in figures]
                yield from charts

    def _chart(self, kind: str, figure: Figure, caption: str) -> PageChart:
        """Convert a figure to a chart. Its colours are CSS variables, which dark mode replaces."""
        title = " ".join(figure.axes[0].get_title(loc="left").split())
        svg = pane.to_svg(figure, f"{title}. {caption}", next(self.numbers))
        svg = _STYLE.sub(lambda style: _COLOUR.sub(r"var(--c\1,#\1)", style[0]), svg)
        return PageChart(kind, svg, caption)


def report_html(runs: Sequence[Run], wanted: Wanted | None = None) -> str:
    """A report as an HTML page. Equal runs give equal pages. It makes no requests."""
    script, content = _file("report.js"), page(runs, wanted)
    environment = Environment(autoescape=True, trim_blocks=True, lstrip_blocks=True)
    # The conclusions of a table are always visible. Its other notes are folded.
    environment.tests["visible"] = lambda note: "bold" in note.style or "red" in note.style
    return environment.from_string(_file("report.html")).render(
        page=content,
        css=_file("report.css"),
        script=script,
        digest=base64.b64encode(hashlib.sha256(script.encode()).digest()).decode(),
        version=__version__,
        looks=_class_attribute,
    )


def _file(name: str) -> str:
    return Path(__file__).with_name(name).read_text(encoding="utf-8")


def _class_attribute(cell: Cell, is_left: bool = False) -> Markup:
    """The ``class`` of a table cell: its style, ``w`` if it wraps, ``l`` if it is aligned left."""
    names = ["best"] if cell.best else cell.style.split()
    names += ["w"] if len(cell.text) > _WORDY else []
    names += ["l"] if is_left else []
    return Markup(' class="{}"').format(" ".join(names)) if names else Markup("")
