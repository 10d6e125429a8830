"""What a report says: which runs belong together, conclusions, tables and charts of each; and its HTML."""

from __future__ import annotations

import base64
import hashlib
import itertools
import math
import re
import shlex
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from os.path import commonprefix
from pathlib import Path, PurePath
from typing import Literal

import matplotlib
from jinja2 import Environment
from markupsafe import Markup
from matplotlib.figure import Figure

from gemmbench import __version__, chart_views, views
from gemmbench.charts import pane
from gemmbench.exports.records import COLUMNS, to_flat
from gemmbench.ladder import families, order_of
from gemmbench.model import units
from gemmbench.model.device import BUSY_CORES, driver_name
from gemmbench.model.row import FAILED, Row, moment
from gemmbench.model.run_file import Run, is_tuning
from gemmbench.model.units import clean
from gemmbench.regress import baseline, chart
from gemmbench.regress import compare as comparing
from gemmbench.regress import history as histories
from gemmbench.regress.baseline import Rules
from gemmbench.regress.compare import Comparison
from gemmbench.report import conditions, notes
from gemmbench.report.progress import row_label
from gemmbench.report.table import NOTHING, Cell, Note, Sheet
from gemmbench.stats import panels, rates
from gemmbench.stats.intervals import Interval
from gemmbench.stats.panels import Contest, Entry, Side

_ALIKE = 0.8  # of the cases of two runs of one plan, those that both have
_SERIES = 3  # runs of one plan, from which on they are a history or a fleet

PageKind = Literal["single", "pair", "series", "fleet"]


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
    shared: pane.Shared


@dataclass(frozen=True, eq=False)
class Group:
    """Runs of one plan on equal devices, in the order of their starts; most often one run."""

    runs: tuple[Run, ...]
    kind: PageKind


def page(runs: Sequence[Run], wanted: Wanted | None = None) -> Page:
    """The content of a report of runs with rows; `RunFileError` if one of a series has no start."""
    wanted = wanted or Wanted()
    names = dict(zip(map(id, runs), names_of(runs), strict=True))
    draw = _Draw(wanted, pane.Shared())
    sides = panels.sides(runs)
    statements: list[Statement] = []
    parts: list[Part] = []
    if len(sides) > 1:
        said, tables = beside(sides, tuple(families(runs)))
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


def _groups(runs: Sequence[Run], wanted: Wanted) -> list[Group]:
    """Runs of one plan together. A baseline and what was compared with it belong together in any case."""
    if wanted.comparison:
        return [Group(tuple(runs), "pair")]
    gathered: list[list[Run]] = []
    for run in runs:
        alike = next((group for group in gathered if _is_same_plan(group[0], run)), None)
        if alike is None:
            gathered.append(alike := [])
        alike.append(run)
    for group in gathered:
        with suppress(ValueError):  # `history` says which run does not tell when it started
            group[:] = sorted(group, key=lambda run: moment(run.header.started_utc))
    return [Group(tuple(group), _page_kind(group, wanted)) for group in gathered]


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


def _page_kind(runs: Sequence[Run], wanted: Wanted) -> PageKind:
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
        if group.kind == "fleet":
            made = histories.fleet(group.runs, [names[id(run)] for run in group.runs], wanted.rules)
            shown.append(made.middle.run)
        elif group.kind == "series" or wanted.comparison:
            shown.append(group.runs[-1])
        else:
            shown += group.runs
    return shown


def _together(
    group: Group, number: int, names: dict[int, str], wanted: Wanted, draw: _Draw
) -> Iterator[tuple[Statement, Part]]:
    """What several runs of one plan say: verdicts, a history, a fleet's outliers."""
    if group.kind == "single":
        return
    own = [names[id(run)] for run in group.runs]
    if group.kind == "fleet":
        made = histories.fleet(group.runs, own, wanted.rules)
        said, sheet = histories.conclusions(made), histories.sheet(made)
        lead = f"{len(own)} nodes ran the same cases. The tables and charts below are of {made.middle.name}."
        title = f"Fleet of {len(own)} nodes"
        part = Part(f"fleet-{number}", title, (lead,), (replace(sheet, notes=()),))
        yield Statement(title, tuple(said)), part
        return
    followed = histories.history(group.runs, wanted.rules) if group.kind == "series" else None
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
    said = [Note("", comparing.conclusion(made), "bold")]
    said += [
        Note(comparing.full_name(line), comparing.sentence(line), comparing.STYLES[line.verdict])
        for line in made.lines
        if line.fails
    ]
    bases = ", ".join(names[:-1]) if len(names) <= _SERIES else f"the {len(names) - 1} runs before"
    against = f"{names[-1]} against {bases}"
    charts = draw(lambda: chart.ratios(made), "change of each row's time, and its interval")
    sheets = comparing.sheets(made, every=True)
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
    state = conditions.sheets(run)
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
    for side in panels.sides([run]):
        texts = [f"{name} {text}" for name, text in abilities(side)]
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
    yield from notes.disturbances(run, timed, _where)
    noisy, few = sum(map(rates.is_noisy, timed)), sum(map(rates.is_few, timed))
    counts = [f"{noisy} noisy (> {units.percent(rates.NOISY)})"] if noisy else []
    counts += [f"{few} with {notes.FEW_REASON}"] if few else []
    if counts:
        yield Note("noise", f"{', '.join(counts)}, of {len(timed)} rows; see below the tables.", "dim")


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
        brief=_brief,
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


def _rest(sheet: Sheet) -> list[list[str | list[str] | int]]:
    """The rows of a table that are no HTML: a text for each cell, or text and classes; 0 is the one above."""
    rows = [
        [[cell.plain, " ".join(names)] if (names := _classes(cell)) else cell.plain for cell in row]
        for row in sheet.rows[_MOST:]
    ]
    above: list[Sequence[object]] = [(), *rows]
    return [
        [0 if each == before else each for each, before in itertools.zip_longest(row, last)]
        for row, last in zip(rows, above, strict=False)
    ]


def _brief(texts: Iterable[str]) -> list[str | int]:
    """Texts, flat: letters at the start as in the one before, the text between, letters at the end."""
    result: list[str | int] = []
    last = ""
    for text in texts:
        start = _letters_alike(last, text)
        end = min(_letters_alike(last[::-1], text[::-1]), len(last) - start, len(text) - start)
        result += [start, text[start : len(text) - end], end]
        last = text
    return result


def _letters_alike(text: str, other: str) -> int:
    """How many letters two texts begin with alike."""
    return len(commonprefix([text, other]))  # noqa: RUF071 - letters are meant, these are no paths


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
        _contests(fastest, names, f"each device's fastest variant: {gemms}", named=True),
        _contests(equal, names, f"the same variant on each device: {gemms}"),
        _contests(abilities, names, f"what each device can do, best batch; {medians}", _ability),
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
    figure: Callable[[Entry], str] = lambda entry: units.gflops(entry.rate),
    named: bool = False,
) -> Sheet:
    """A line for each contest: for each side, if `named`, what it ran; its figure, and the ratio."""
    named = named and any(entry for each in contests for entry in each.entries)
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
            cells += [Cell(clean(entry.row.title)) if entry else NOTHING] if named else []
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
        (header.policy.state or "not known") + (", cold" if header.policy.cold else ""),
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
    "versus", "versus_scope", "scope", "measured_utc", "state", "limits", "disturbed", "memory",
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
