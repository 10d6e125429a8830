"""A report of saved runs as one HTML page: a summary, comparisons, and a section for each run."""

from __future__ import annotations

import base64
import hashlib
import re
import shlex
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
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
from gemmbench.options.rules import Rules
from gemmbench.regress import baseline, results
from gemmbench.regress.compare import Comparison, compare
from gemmbench.report.table import NOTHING, Cell, Note, Sheet
from gemmbench.stats import rates
from gemmbench.stats.panels import sweep_axis

_SAME_PLAN = 0.8  # smallest fraction of cases that two runs of one plan share
_SENTENCES = 3  # at the top of the page
_TOP_ROWS = 6  # of the table at the top of the page
_WORDY = 28  # characters; longer cells wrap
_PEAKS = ("float", "double", "half")  # in the summary
_LEFT_OUT = ("time",)  # kinds of charts that a report draws only on request: throughput says the same

_Problems = dict[tuple[str, Problem], dict[str, tuple[float, str]]]  # rate and kernel by run


@dataclass(frozen=True)
class Wanted:
    """The options of a report."""

    title: str = ""  # default: the names of the devices
    charts: tuple[str, ...] | None = None  # kinds; None: all that suit, except `_LEFT_OUT`
    rules: Rules = field(default_factory=Rules)
    comparison: Comparison | None = None  # of all runs, if it exists already


@dataclass(frozen=True)
class Chart:
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
    charts: tuple[Chart, ...] = ()
    folded: str = ""  # title of the tables that open on a click
    folds: tuple[Sheet, ...] = ()


@dataclass(frozen=True)
class Page:
    """Everything on the page."""

    title: str
    about: str
    summary: tuple[str, ...]
    chart: Chart | None  # beside the summary; its own section does not repeat it
    table: Sheet | None
    parts: tuple[PageSection, ...]
    css: str  # of the charts
    shared: pane.SharedTexts


def page(runs: Sequence[Run], wanted: Wanted | None = None) -> Page:
    """The content of a report.

    Raises:
        RunFileError: the runs of one plan cannot be put in order.
    """
    wanted = wanted or Wanted()
    names = dict(zip(map(id, runs), names_of(runs), strict=True))
    draw = _Draw(wanted)
    groups = [list(runs)] if wanted.comparison else _groups(runs)
    shown = [group[-1] for group in groups]
    shown.sort(key=lambda run: all(row.kind != "gemm" for row in run.rows))
    parts, summary = [], list(_failures(shown))
    for number, group in enumerate((each for each in groups if len(each) > 1), 1):
        made = wanted.comparison or compare(group[:-1], group[-1:], wanted.rules)
        parts.append(_comparison(made, number, [names[id(run)] for run in group], draw))
        summary.append(f"{parts[-1].title}: {results.conclusion(made)}")
    subjects = list(map(_subject, shown))
    sections = []
    for number, (run, title) in enumerate(zip(shown, subjects, strict=True), 1):
        title += f" ({names[id(run)]})" if subjects.count(title) > 1 else ""
        sections.append(_section(run, f"run-{number}", title, names[id(run)], _lenders(run, runs), draw))
    sheets = [sheet for part in sections for sheet in part.sheets]
    table, sentences = _fastest(shown, runs)
    said = [note.line for sheet in sheets for note in sheet.notes if note.style == "bold"]
    summary += [*sentences, *([] if sentences and len(shown) > 1 else said)] or _peaks(shown)
    tables = (replace(sheet, rows=sheet.rows[:_TOP_ROWS], notes=()) for sheet in sheets if sheet.rows)
    parts += [*side_by_side(shown, names), *sections, _machines(runs, names)]
    charts = [chart for part in parts for chart in part.charts]
    return Page(
        clean(wanted.title) or _title(runs),
        _about(runs),
        tuple(summary[:_SENTENCES]),
        next((each for each in charts if each.kind == "throughput"), charts[0] if charts else None),
        table or next(tables, None),
        tuple(parts),
        draw.css,
        draw.shared,
    )


def _plain(sheet: Sheet) -> Iterator[Note]:
    """The conclusions of a table, which are always visible; its other notes are folded."""
    return (note for note in sheet.notes if "bold" in note.style or "red" in note.style)


def _title(runs: Sequence[Run]) -> str:
    names = list(dict.fromkeys(name for run in runs for name in _devices(run)))
    return f"gemmbench: {', '.join(names[:3])}{f' and {len(names) - 3} more' if len(names) > 3 else ''}"


def _about(runs: Sequence[Run]) -> str:
    days = sorted({clean(run.header.started_utc)[:10] for run in runs})
    when = days[0] if len(days) == 1 else f"{days[0]} to {days[-1]}"
    rows = sum(len(run.rows) for run in runs)
    return f"{units.counted(len(runs), 'run')}, {units.counted(rows, 'row', ',')}, measured {when}"


def names_of(runs: Sequence[Run]) -> list[str]:
    """Different names for runs: file names without suffix, with as many folders as necessary."""
    paths = [PurePath(run.path).with_suffix("") if run.path else PurePath("this run") for run in runs]
    for depth in range(1, max((len(path.parts) for path in paths), default=1) + 1):
        names = [clean("/".join(path.parts[-depth:])) for path in paths]
        if len(set(names)) == len(names):
            return names
    return [f"{name} ({number})" for number, name in enumerate(names, 1)]


def device_name(run: Run, position: int) -> str:
    """A device's name; for CPUs that of the processor, because drivers spell it differently."""
    device = run.header.devices[position]
    name = run.header.host.cpu if device.type == "cpu" else device.name
    return clean(re.sub(r"\(R\)|\(TM\)|@ [\d.]+ ?GHz$", "", name)) or f"device {position}"


def _devices(run: Run) -> list[str]:
    names = [device_name(run, position) for position in range(len(run.header.devices))]
    return list(dict.fromkeys(names)) or [clean(run.header.host.cpu)]


# --- The top of the page ------------------------------------------------------------------------------------


def _failures(runs: Sequence[Run]) -> Iterator[str]:
    count = sum(row.status in FAILED for run in runs for row in run.rows)
    if count:
        yield f"{units.counted(count, 'row')} failed or gave wrong results: see below."


def _fastest(shown: Sequence[Run], runs: Sequence[Run]) -> tuple[Sheet | None, list[str]]:
    """For each device and type the fastest kernels, as a table of six rows, and the first in a sentence.

    Each kernel is at its best problem. Runs of several unrelated shapes do not count.
    """
    scope, best = rates.view_scope(*shown), dict[tuple[str, str], dict[str, tuple[float, Run, Row]]]()
    for run in shown:
        gemms = [row for row in run.rows if row.kind == "gemm"]
        if is_tuning(run) or not (sweep_axis(gemms) or len({row.problem for row in gemms}) == 1):
            continue
        for row in gemms:
            for position in _positions(run, row):
                rate = rates.compared_rate(run, position, row, scope) or 0.0
                kernels = best.setdefault((device_name(run, position), row.dtype), {})
                if rate > kernels.get(row.title, (0.0,))[0]:
                    kernels[row.title] = (rate, run, row)
    groups = {key: sorted(each.values(), key=lambda top: -top[0]) for key, each in best.items() if each}
    order = sorted(groups, key=lambda key: key[1] != "float")
    if not order:
        return None, []
    lines, sentences = [], []
    is_typed = len({dtype for _, dtype in order}) > 1
    for device, dtype in order[:_TOP_ROWS]:
        for rate, run, row in groups[device, dtype][: max(1, _TOP_ROWS // len(order))]:
            fraction = rates.peak_fraction(run, row, scope, _lenders(run, runs))
            of_peak = units.share(fraction)
            figure, name = units.rate(rate, rates.is_integer(dtype)), clean(row.title)
            is_first = row is groups[device, dtype][0][2]
            assert row.problem is not None  # it has a rate
            texts = [name, figure, row.problem.size, of_peak, *([dtype] if is_typed else [])]
            lines.append((Cell(device), *(Cell(text, is_first and text is figure) for text in texts)))
            if is_first:
                share = f", {of_peak} of the measured peak" if fraction else ""
                where = f"{figure} ({dtype}) at {row.problem.title}"
                sentences.append(f"{name} is the fastest on {device}: {where}{share}.")
    return Sheet(
        caption=f"Fastest kernels of each device, {SCOPE_WORDS[scope]}. * is the fastest.",
        keys=("device",),
        blocks=(("kernel", "best rate", "size", "of peak", *(["type"] if is_typed else [])),),
        rows=tuple(lines),
        left=frozenset({"kernel", "type"}),
    ), sentences


def _peaks(runs: Sequence[Run]) -> list[str]:
    """The measured peaks of each device in a sentence."""
    sentences = []
    for run in runs:
        for device in range(len(run.header.devices)):
            tops = ((dtype, rates.best_peak(run, device, dtype, False)) for dtype in _PEAKS)
            texts = [f"{dtype} {units.rate(top.rate, rates.is_integer(dtype))}" for dtype, top in tops if top]
            if texts:
                sentences.append(f"Measured peaks of {device_name(run, device)}: {', '.join(texts)}.")
    return sentences


def _positions(run: Run, row: Row) -> Sequence[int]:
    """The devices with whose kernels a row can be compared: for the host's BLAS every device."""
    return range(len(run.header.devices)) if row.device == HOST else (row.device,)


# --- Several runs: of one plan, and of one device -----------------------------------------------------------


def _groups(runs: Sequence[Run]) -> list[list[Run]]:
    """Group runs of one plan, and sort each group by start time."""
    groups: list[list[Run]] = []
    for run in runs:
        group = next((group for group in groups if _is_same_plan(group[0], run)), None)
        if group is None:
            groups.append(group := [])
        group.append(run)
    for group in groups:
        with suppress(ValueError):  # an invalid start time
            group.sort(key=lambda run: moment(run.header.started_utc))
    return groups


def _is_same_plan(first: Run, second: Run) -> bool:
    """Whether two runs measured the same cases, in the same state, on the same machine."""
    if _machine(first) != _machine(second) or is_tuning(first) or is_tuning(second):
        return False
    cases = [
        {key for each in baseline.replicates_in(run, first.header)[:1] for key in each.rows}
        for run in (first, second)
    ]
    return len(cases[0] & cases[1]) >= _SAME_PLAN * len(cases[0] | cases[1])


def _machine(run: Run) -> tuple[object, ...]:
    devices = tuple((each.platform, each.name, each.pci) for each in run.header.devices)
    host = run.header.host
    return devices, host.cpu, host.cores, host.memory_bytes, run.header.policy.cold


def _comparison(made: Comparison, number: int, names: Sequence[str], draw: _Draw) -> PageSection:
    bases = ", ".join(names[:-1]) if len(names) <= 3 else f"the {len(names) - 1} runs before"
    charts = draw(lambda: chart_views.ratios(made), "Change of each row's time, with its range.")
    sheets = results.sheets(made, every=True)
    title = f"{names[-1]} compared with {bases}"
    return PageSection(f"changes-{number}", title, sheets=tuple(sheets), charts=tuple(charts))


def side_by_side(runs: Sequence[Run], names: dict[int, str]) -> Iterator[PageSection]:
    """Compare the runs of each device: the fastest kernel of each run at the problems that they share."""
    scope, by_device = rates.view_scope(*runs), dict[str, _Problems]()
    tried = [each for each in runs if not is_tuning(each)]
    for run, row in ((each, row) for each in tried for row in each.rows if row.problem):
        for position in _positions(run, row):
            rate = rates.compared_rate(run, position, row, scope)
            if rate and row.problem:
                problems = by_device.setdefault(device_name(run, position), {})
                by_run, name = problems.setdefault((row.dtype, row.problem), {}), names[id(run)]
                by_run[name] = max(by_run.get(name, (0.0, "")), (rate, clean(row.title)))
    for number, (device, problems) in enumerate(by_device.items(), 1):
        shared = {key: by_run for key, by_run in problems.items() if len(by_run) > 1}
        if shared:
            title = f"Runs of {device} side by side"
            yield PageSection(f"device-{number}", title, sheets=(_side_by_side(shared, scope),))


def _side_by_side(shared: _Problems, scope: str) -> Sheet:
    names = list(dict.fromkeys(name for by_run in shared.values() for name in by_run))

    def line(dtype: str, problem: Problem) -> tuple[Cell, ...]:
        by_run = shared[dtype, problem]
        best = max(by_run.values())
        tops = [by_run.get(name) for name in names]
        cells = (Cell(f"{units.gflops(top[0])} {top[1]}", top == best) if top else NOTHING for top in tops)
        return (Cell(problem.size), Cell(dtype), *cells)

    order = sorted(shared, key=lambda each: (each[0], each[1].flops, each[1].shape))
    return Sheet(
        caption=f"Fastest kernel of each run, GFLOPS {SCOPE_WORDS[scope]}. * is the fastest.",
        keys=("size", "type"),
        blocks=(tuple(names),),
        rows=tuple(line(*key) for key in order),
        left=frozenset({"type", *names}),
    )


# --- One run ------------------------------------------------------------------------------------------------


def _lenders(run: Run, runs: Sequence[Run]) -> list[Run]:
    """Runs of probes on the same device, which provide its peak and bandwidth."""
    titles = {device.title for device in run.header.devices}
    return [
        other
        for other in runs
        if other is not run
        and not any(row.kind == "gemm" for row in other.rows)
        and titles & {device.title for device in other.header.devices}
    ]


def _section(run: Run, slug: str, title: str, name: str, lenders: Sequence[Run], draw: _Draw) -> PageSection:
    order = order_of(run)
    rows = tuple(replace(sheet, notes=()) for sheet in row_sheets(run, order))
    folded = f"All {sum(len(sheet.rows) for sheet in rows)} rows in every scope" if rows else ""
    sheets = tuple(map(_without_options, views.sheets(run, order)))
    charts = tuple(draw.suited([run, *lenders]))
    return PageSection(slug, title, name, _command(run), sheets, charts, folded, rows)


def _without_options(sheet: Sheet) -> Sheet:
    """A table without the remark that an option prints more of it."""
    notes = (replace(note, text=note.text.removesuffix("Details: -v").strip()) for note in sheet.notes)
    return replace(sheet, notes=tuple(note for note in notes if note.text))


def _subject(run: Run) -> str:
    """What a run measured: ``float GEMM on NVIDIA H200, m = n = k = 64 to 4096``."""
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


def _command(run: Run) -> str:
    words = run.header.command
    return clean(shlex.join(words if words[:1] == ("gemmbench",) else ("gemmbench", *words)))


_MACHINE = (
    "started (UTC)", "device", "processor", "cores", "busy before", "memory", "system", "Python", "NumPy",
    "BLAS", "gemmbench",
)  # fmt: skip


def _machines(runs: Sequence[Run], names: dict[int, str]) -> PageSection:
    """A line for each run and device: when, with which software, on which machine."""

    def line(run: Run, device: str) -> tuple[Cell, ...]:
        host, started = run.header.host, run.header.started_utc[:19].replace("T", " ")
        texts = (
            names[id(run)], started, device, host.cpu, str(host.cores), f"{host.busy:.1f}",
            units.size(host.memory_bytes), host.system, host.python, host.numpy, host.blas,
            run.header.gemmbench,
        )  # fmt: skip
        return tuple(Cell(clean(text)) for text in texts)

    titles = {id(run): dict.fromkeys(device.title for device in run.header.devices) for run in runs}
    sheet = Sheet(
        keys=("run",),
        blocks=(_MACHINE,),
        rows=tuple(line(run, title) for run in runs for title in titles[id(run)] or ("host",)),
        left=frozenset(_MACHINE) - {"cores", "busy before", "memory"},
    )
    return PageSection("machines", "Where and when", sheets=(sheet,))


# --- Charts -------------------------------------------------------------------------------------------------

_STYLE = re.compile(r'style="([^"]*)"')
_COLOUR = re.compile(r"#([0-9a-f]{6})")
_ID = re.compile(r"\b([mp])[0-9a-f]{10}\b")
_DECIMALS = re.compile(r"\d+\.\d{2,}")


@dataclass(frozen=True)
class _Draw:
    """Draws the charts of a page, and collects their styles and the texts of their points."""

    wanted: Wanted
    shared: pane.SharedTexts = field(default_factory=pane.SharedTexts)
    styles: dict[str, int] = field(default_factory=dict)
    ids: dict[str, int] = field(default_factory=dict)

    def __call__(self, panes: Callable[[], Sequence[pane.Pane]], idea: str) -> list[Chart]:
        """Draw panes that belong to no kind; none if only some kinds are wanted."""
        if self.wanted.charts is not None:
            return []
        with matplotlib.rc_context():
            return [self._chart("", figure, idea) for figure in pane.each_alone(panes)]

    def suited(self, runs: Sequence[Run]) -> Iterator[Chart]:
        """Draw every pane of the wanted kinds that suit the runs."""
        chosen = self.wanted.charts
        known = families(runs)
        for kind in chart_views.suited(runs, known):
            if kind not in _LEFT_OUT if chosen is None else kind in chosen:
                idea = chart_views.KINDS[kind].idea
                with matplotlib.rc_context():
                    figures = chart_views.figures(runs, kind, known)
                    charts = [self._chart(kind, figure, idea[:1].upper() + idea[1:]) for figure in figures]
                yield from charts

    @property
    def css(self) -> str:
        """The styles of the charts; dark mode replaces their colours."""
        rules = (f".s{number}{{{style}}}" for style, number in self.styles.items())
        return _COLOUR.sub(r"var(--c\1,#\1)", "".join(rules))

    def _chart(self, kind: str, figure: Figure, idea: str) -> Chart:
        title = " ".join(figure.axes[0].get_title(loc="left").split())
        svg = pane.to_svg(figure, self.shared, f"{title}. {idea}")
        return Chart(kind, self._smaller(svg), idea)

    def _smaller(self, svg: str) -> str:
        """The same picture at half the size: four digits for coordinates, classes for styles, short ids."""

        def tag(match: re.Match[str]) -> str:
            text = _STYLE.sub(lambda style: f'class="s{_number(self.styles, style[1])}"', match[0])
            text = _ID.sub(lambda name: f"{name[1]}{_number(self.ids, name[0])}", text)
            text = re.sub(r' transform="rotate\(-0 [^"]*"', "", text.replace("xlink:href", "href"))
            return " ".join(_DECIMALS.sub(lambda number: f"{float(number[0]):.4g}", text).split())

        head, _, rest = svg.partition(">")
        return head + ">" + re.sub(r">\s+<", "><", re.sub(r"<[^>]*>", tag, rest))


def _number(numbers: dict[str, int], text: str) -> int:
    return numbers.setdefault(text, len(numbers))


# --- HTML ---------------------------------------------------------------------------------------------------


def html(runs: Sequence[Run], wanted: Wanted | None = None) -> str:
    """A report as HTML. Equal runs give equal pages.

    The page makes no requests: its own policy allows only the script with this hash.

    Raises:
        RunFileError: the runs of one plan cannot be put in order.
    """
    script, content = _file("report.js"), page(runs, wanted)
    environment = Environment(autoescape=True, trim_blocks=True, lstrip_blocks=True)
    environment.policies["json.dumps_kwargs"] = {"separators": (",", ":")}
    return environment.from_string(_file("report.html")).render(
        page=content,
        css=_file("report.css"),
        script=script,
        digest=base64.b64encode(hashlib.sha256(script.encode()).digest()).decode(),
        version=__version__,
        looks=_looks,
        plain=lambda sheet: list(_plain(sheet)),
        folded=lambda sheet: [note for note in sheet.notes if note not in list(_plain(sheet))],
    )


def _file(name: str) -> str:
    return Path(__file__).with_name(name).read_text(encoding="utf-8")


def _looks(cell: Cell, is_left: bool = False) -> Markup:
    names = ["best"] if cell.best else cell.style.split()
    names += ["w"] if len(cell.text) > _WORDY else []
    names += ["l"] if is_left else []
    return Markup(' class="{}"').format(" ".join(names)) if names else Markup("")
