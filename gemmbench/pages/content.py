"""What a report says: which runs belong together, conclusions, tables and charts of each; and its HTML."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal

import matplotlib
from jinja2 import Environment
from markupsafe import Markup
from matplotlib.figure import Figure

from gemmbench import __version__, chart_views, views
from gemmbench.charts import pane, svg
from gemmbench.ladder import families, order_of
from gemmbench.model import units
from gemmbench.model.device import BUSY_CORES
from gemmbench.model.row import FAILED, Row, moment
from gemmbench.model.run_file import Run, is_tuning
from gemmbench.model.units import clean
from gemmbench.pages import facts
from gemmbench.regress import baseline, chart, compare_table
from gemmbench.regress import compare as comparing
from gemmbench.regress import fleet as fleets
from gemmbench.regress import history as histories
from gemmbench.regress.baseline import Rules
from gemmbench.regress.compare import Comparison
from gemmbench.report import conditions, notes
from gemmbench.report.progress import row_label
from gemmbench.report.table import Cell, Note, Sheet
from gemmbench.stats import panels, rates
from gemmbench.suite.together import alone

_ALIKE = 0.8  # of the cases of two runs of one plan, those that both have
_SERIES = 3  # runs of one plan, from which on they are a history or a fleet

Sort = Literal["single", "pair", "series", "fleet"]


@dataclass(frozen=True)
class Wanted:
    """What a report is asked for."""

    title: str = ""  # instead of the devices' names
    charts: tuple[str, ...] | None = None  # kinds; None for all that suit
    fleet: bool = False  # runs of one plan are of several nodes, whatever their hosts are
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
    shared: svg.Shared

    @property
    def texts(self) -> list[str]:
        """What is said of the points of charts, by their numbers."""
        return list(self.shared.texts)


@dataclass(frozen=True, eq=False)
class Group:
    """Runs of one plan on equal devices, in the order of their starts; most often one run."""

    runs: tuple[Run, ...]
    sort: Sort


def page(runs: Sequence[Run], wanted: Wanted | None = None) -> Page:
    """The content of a report.

    Args:
        runs: one or more, with rows.
        wanted: title, charts, threshold.

    Raises:
        RunFileError: a run of a series does not say when it started.
    """
    wanted = wanted or Wanted()
    names = dict(zip(map(id, runs), facts.names_of(runs), strict=True))
    draw = _Draw(wanted, svg.Shared())
    sides = panels.sides(map(alone, runs))
    statements: list[Statement] = []
    parts: list[Part] = []
    if len(sides) > 1:
        said, tables = facts.beside(sides, tuple(families(runs)))
        if said or tables:
            statements.append(Statement("Devices side by side", tuple(said)))
            parts.append(Part("devices", "Devices side by side", sheets=tuple(tables)))
    groups = _groups(runs, wanted)
    for number, group in enumerate(groups, 1):
        for statement, part in _together(group, number, names, wanted, draw):
            statements.append(statement)
            parts.append(part)
    shown = _shown(groups, names, wanted)
    for number, run in enumerate(shown, 1):
        name, lenders = names[id(run)], _lenders(run, runs)
        sheets = views.sheets(run, order_of(run))
        said = list(_said(run, lenders, sheets))
        if said:
            subject = f"{_devices(run)}: {name}" if len(shown) > 1 or statements else ""
            statements.append(Statement(subject, tuple(said)))
        parts.append(_part(run, number, name, lenders, sheets, draw))
    every = tuple(names.values())
    parts.append(Part("surroundings", "Where it was measured", sheets=tuple(facts.surroundings(runs, every))))
    count = sum(len(run.rows) for run in runs)
    fold = Fold(f"{count:,} rows, every figure", tuple(facts.every_row(runs, every)))
    parts.append(Part("rows", "Every row", folds=(fold,) if count else ()))
    return Page(
        clean(wanted.title) or _title(runs), _about(runs), tuple(statements), tuple(parts), draw.shared
    )


def _title(runs: Sequence[Run]) -> str:
    devices = [(run, position) for run in runs for position in range(len(run.header.devices))]
    names = list(dict.fromkeys(facts.device_name(*each) for each in devices))
    return f"gemmbench: {', '.join(names[:3])}{f' and {len(names) - 3} more' if len(names) > 3 else ''}"


def _about(runs: Sequence[Run]) -> str:
    days = sorted({clean(run.header.started_utc)[:10] for run in runs})
    rows = sum(len(run.rows) for run in runs)
    made = ", ".join(dict.fromkeys(clean(run.header.gemmbench) for run in runs))
    when = days[0] if len(days) == 1 else f"{days[0]} to {days[-1]}"
    count = f"{len(runs)} run{'s' if len(runs) > 1 else ''}"
    return f"{count}, {rows:,} row{'' if rows == 1 else 's'}, measured {when} by gemmbench {made}"


def _devices(run: Run) -> str:
    return ", ".join(clean(device.title) for device in run.header.devices) or clean(run.header.host.cpu)


# --- which runs belong together -----------------------------------------------------------------------------


def _groups(runs: Sequence[Run], wanted: Wanted) -> list[Group]:
    """Runs of one plan together. A baseline and what was compared with it belong together in any case."""
    if wanted.comparison:
        return [Group(tuple(runs), "pair")]
    gathered: list[list[Run]] = []
    for run in runs:
        alike = next((group for group in gathered if _is_same_plan(group[0], run)), None)
        if alike is None:
            gathered.append([run])
        else:
            alike.append(run)
    return [Group(_in_order(group), _sort(group, wanted)) for group in gathered]


def _is_same_plan(first: Run, second: Run) -> bool:
    """Whether two runs measured the same cases, in the same state, on devices of the same name."""
    devices = [[(each.platform, each.name) for each in run.header.devices] for run in (first, second)]
    policies = [(run.header.policy.state, run.header.policy.cold) for run in (first, second)]
    if devices[0] != devices[1] or policies[0] != policies[1] or is_tuning(first) or is_tuning(second):
        return False
    cases = [
        {key for each in baseline.repetitions(run, first.header)[:1] for key in each.rows}
        for run in (first, second)
    ]
    return len(cases[0] & cases[1]) >= _ALIKE * len(cases[0] | cases[1])


def _in_order(runs: Sequence[Run]) -> tuple[Run, ...]:
    try:
        return tuple(sorted(runs, key=lambda run: moment(run.header.started_utc)))
    except ValueError:  # `history` says which run does not tell
        return tuple(runs)


def _sort(runs: Sequence[Run], wanted: Wanted) -> Sort:
    """A fleet if it is said to be one, or if the machines differ; else a history."""
    if len(runs) == 1:
        return "single"
    if wanted.fleet:
        return "fleet"
    if len(runs) < _SERIES:
        return "pair"
    hosts = {(run.header.host.cpu, run.header.host.cores, run.header.host.memory_bytes) for run in runs}
    seats = {tuple(device.pci for device in run.header.devices) for run in runs}
    return "fleet" if len(hosts) > 1 or len(seats) > 1 else "series"


def _shown(groups: Sequence[Group], names: dict[int, str], wanted: Wanted) -> list[Run]:
    """The runs that have tables of their own: of a history the last, of a fleet the middle one."""
    shown: list[Run] = []
    for group in groups:
        if group.sort == "fleet":
            made = fleets.fleet(group.runs, [names[id(run)] for run in group.runs], wanted.rules)
            shown.append(made.middle.run)
        elif group.sort == "series" or wanted.comparison:
            shown.append(group.runs[-1])
        else:
            shown += group.runs
    return shown


def _together(
    group: Group, number: int, names: dict[int, str], wanted: Wanted, draw: _Draw
) -> Iterator[tuple[Statement, Part]]:
    """What several runs of one plan say: verdicts, a history, a fleet's outliers."""
    if group.sort == "single":
        return
    own = [names[id(run)] for run in group.runs]
    if group.sort == "fleet":
        made = fleets.fleet(group.runs, own, wanted.rules)
        said, sheet = fleets.conclusions(made), fleets.sheet(made)
        lead = f"{len(own)} nodes ran the same cases. The tables and charts below are of {made.middle.name}."
        title = f"Fleet of {len(own)} nodes"
        part = Part(f"fleet-{number}", title, (lead,), (replace(sheet, notes=()),))
        yield Statement(title, tuple(said)), part
        return
    followed = histories.history(group.runs, wanted.rules) if group.sort == "series" else None
    if followed:
        sheets = histories.sheets(followed, every=True)
        said = [note for sheet in sheets for note in sheet.notes if note.style == "bold"]
        charts = draw(lambda: chart.tracks(followed), "the row over the runs")
        lead = f"{len(own)} runs of the same cases: {', '.join(own)}. The tables below are of the last."
        part = Part(f"history-{number}", "History", (lead,), tuple(sheets), tuple(charts))
        yield Statement("History", tuple(said)), part
    if not (followed and any(track.shifts for track in followed.tracks)):  # else no run stands for all before
        *bases, new = group.runs
        made_here = wanted.comparison or comparing.compare(bases, [new], wanted.rules)
        yield _verdicts(made_here, f"verdicts-{number}", own, draw)


def _verdicts(made: Comparison, slug: str, names: Sequence[str], draw: _Draw) -> tuple[Statement, Part]:
    said = [Note("", compare_table.conclusion(made), "bold")]
    said += [
        Note(compare_table.full_name(line), compare_table.sentence(line), compare_table.STYLES[line.verdict])
        for line in made.lines
        if line.fails
    ]
    bases = ", ".join(names[:-1]) if len(names) <= _SERIES else f"the {len(names) - 1} runs before"
    against = f"{names[-1]} against {bases}"
    charts = draw(lambda: chart.ratios(made), "change of each row's time, and its interval")
    sheets = compare_table.sheets(made, every=True)
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
    lead = (_devices(run), facts.command_of(run))
    charts = [each for kind in draw.kinds([run, *lenders]) for each in draw.of_kind([run, *lenders], kind)]
    state = conditions.sheets(alone(run))
    folds = (Fold("Conditions while each row was measured", tuple(state)),) if state else ()
    return Part(f"run-{number}", name, lead, tuple(sheets), tuple(charts), folds)


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
    single = alone(run)
    gemms = [row for row in single.rows if row.kind == "gemm"]
    if is_tuning(run) or not (panels.sweep_axis(gemms) or len({row.problem for row in gemms}) == 1):
        return
    scope = rates.view_scope(single)
    for setting in panels.settings(single):
        problem = panels.common_problem(single, setting)
        if problem is None:
            continue
        ranked = panels.standings(single, setting, problem).values()
        best = sorted((each for each in ranked if each.rank), key=lambda each: each.rank or 0)[:2]
        texts = [
            f"{clean(each.row.title)} with {units.rate(each.rate.median, rates.is_integer(setting.dtype))}"
            for each in best
            if each.rate
        ]
        if texts:
            fraction = rates.peak_fraction(single, best[0].row, scope, lenders)
            texts[0] += f", {units.percent(fraction)} of the measured peak" if fraction is not None else ""
            several = len(run.header.devices) > 1
            on = f" on {facts.device_name(run, setting.device)}" if several and setting.device >= 0 else ""
            where = f"{setting.dtype} at {problem.title}{on}, {scope} scope"
            yield Note("Fastest", f"{where}: {'; then '.join(texts)}.", "bold")


def _peaks(run: Run) -> Iterator[Note]:
    """What a run of probes alone says of its devices."""
    for side in panels.sides([run]):
        texts = [f"{name} {text}" for name, text in facts.abilities(side)]
        if texts:
            yield Note("Measured peaks", f"{'; '.join(texts)}.", "bold")


def _doubts(run: Run) -> Iterator[Note]:
    """Why not to rely on all of it."""
    for device in range(len(run.header.devices)):
        yield from notes.warnings(run, device)
    host = run.header.host
    if host.busy >= BUSY_CORES:
        cores = f"other programs kept {host.busy:.1f} of {host.cores} cores busy when the run began"
        yield Note("busy", f"{cores}: its rates are low and noisy.", "yellow")
    timed = [row for row in run.rows if row.samples]
    yield from notes.disturbances(run, timed, _where)
    noisy, few = sum(map(rates.is_noisy, timed)), sum(map(rates.is_few, timed))
    counts = [f"{noisy} noisy (> {units.percent(rates.NOISY)})"] if noisy else []
    counts += [f"{few} with {notes.FEW_REASON}"] if few else []
    if counts:
        yield Note("noise", f"{', '.join(counts)}, of {len(timed)} rows; see below the tables.", "dim")


# --- charts -------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Draw:
    """Draws what is wanted, and collects what charts share."""

    wanted: Wanted
    shared: svg.Shared

    def __call__(self, panes: Callable[[], Sequence[pane.Pane]], idea: str) -> list[Chart]:
        """Panes that are of no kind; none where only some kinds are wanted."""
        if self.wanted.charts is not None:
            return []
        with matplotlib.rc_context():
            return [self._chart(figure, idea) for figure in pane.each_alone(panes)]

    def kinds(self, runs: Sequence[Run]) -> list[str]:
        """The kinds that suit the runs and are wanted."""
        chosen = chart_views.KINDS if self.wanted.charts is None else self.wanted.charts
        suited = chart_views.suited(runs, families(runs))
        return [kind for kind, reason in suited.items() if not reason and kind in chosen]

    def of_kind(self, runs: Sequence[Run], kind: str) -> list[Chart]:
        """Every pane of a kind."""
        idea = f"{kind}: {chart_views.KINDS[kind].idea}"
        with matplotlib.rc_context():
            return [self._chart(figure, idea) for figure in chart_views.figures(runs, kind, families(runs))]

    def _chart(self, figure: Figure, idea: str) -> Chart:
        title = " ".join(figure.axes[0].get_title(loc="left").split())
        return Chart(svg.to_svg(figure, self.shared, f"{title}. {idea}"), idea)


_WORDY = 28  # letters, from which on a cell may be broken over lines
_MOST = 300  # rows of a table that are HTML: a browser takes seconds to read thousands


def html(runs: Sequence[Run], wanted: Wanted | None = None) -> str:
    """A report of runs; equal runs give an equal page.

    The page fetches nothing, and its own policy forbids it: no script but the one with this hash is run.

    Raises:
        RunFileError: a run of a series does not say when it started.
    """
    script = _file("report.js")
    environment = Environment(autoescape=True, trim_blocks=True, lstrip_blocks=True)
    return environment.from_string(_file("report.html")).render(
        page=page(runs, wanted),
        css=_file("report.css"),
        script=script,
        digest=base64.b64encode(hashlib.sha256(script.encode()).digest()).decode(),
        version=__version__,
        looks=_looks,
        rest=_rest,
        most=_MOST,
    )


def _file(name: str) -> str:
    return Path(__file__).with_name(name).read_text(encoding="utf-8")


def _looks(cell: Cell, is_left: bool = False) -> Markup:
    """The class of a cell as an attribute, if it has any."""
    names = " ".join(["l", *_classes(cell)] if is_left else _classes(cell))
    return Markup(' class="{}"').format(names) if names else Markup("")


def _classes(cell: Cell) -> list[str]:
    names = ["best"] if cell.best else cell.style.split()
    return [*names, "w"] if len(cell.text) > _WORDY else names


def _rest(sheet: Sheet) -> list[list[str | list[str]]]:
    """The rows of a table that are no HTML: a text for each cell, or text and classes."""
    return [
        [[cell.plain, " ".join(names)] if (names := _classes(cell)) else cell.plain for cell in row]
        for row in sheet.rows[_MOST:]
    ]
