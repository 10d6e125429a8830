"""The tables of GEMM rows: sizes across, a line for each row, pages for one problem, energy."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import groupby, starmap
from operator import attrgetter
from typing import TypeVar

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.text import Text

from gemmbench.gemm.workloads import sentences
from gemmbench.ladder import BASELINE
from gemmbench.model import units
from gemmbench.model.device import HOST
from gemmbench.model.row import CHAIN, GRAPH, MATH, SCOPES, Check, Elements, Launch, Row, titled
from gemmbench.model.run_file import Run
from gemmbench.model.units import by_key, clean, clean_lines, listed
from gemmbench.report import notes
from gemmbench.report.notes import STYLES, WORDS, shape
from gemmbench.report.table import Cell, Note, Sheet, heading, stack, unbroken
from gemmbench.stats import rates
from gemmbench.stats.panels import BreakEven, Panel, Series, baseline, break_evens, panels

_T = TypeVar("_T")


def sheets(run: Run, axis: str, scope: str = "kernel", order: Sequence[str] = ()) -> list[Sheet]:
    """One table of GFLOPS for each device and data type, and one of GFLOP/J; scope is not ``all``."""
    tables: tuple[Callable[[Run, Panel, str], Sheet | None], ...] = (_sheet, _versus_sheet, energy_sheet)
    return [s for panel in panels(run, axis, order) for table in tables if (s := table(run, panel, scope))]


def _by_size(
    panel: Panel,
    caption: str,
    cell: Callable[[Row | None], Cell],
    beside: Mapping[str, Callable[[Series], Cell]],
    heading: tuple[str, ...] = (),
    notes: Iterable[Note] = (),
) -> Sheet:
    """A line for each series: an entry for each size, and columns `beside` them."""
    return Sheet(
        heading=heading,
        caption=caption,
        blocks=(tuple(map(str, panel.sizes)), *filter(None, [tuple(beside)])),
        rows=tuple(
            (
                Cell(clean(each.label)),
                *(cell(each.rows.get(size)) for size in panel.sizes),
                *(column(each) for column in beside.values()),
            )
            for each in panel.series
        ),
        notes=tuple(notes),
    )


_COLUMNS_AT = "; of peak at the row's best size, host/device at its largest"


def _sheet(run: Run, panel: Panel, scope: str) -> Sheet:
    rows = panel.rows
    compared = by_key((row.problem, rates.compared_rate(run, panel.device, row, scope)) for row in rows)
    best = {problem: rates.best_of(values) for problem, values in compared.items()}

    def where(row: Row) -> str:
        return str(getattr(row.problem, panel.axis))

    def cell(row: Row | None) -> Cell:
        own = rates.compared_rate(run, panel.device, row, scope)
        is_best = row is not None and own is not None and own == best[row.problem]
        return notes.figure(row, rates.median_rate(row, scope), is_best, run)

    def of_peak(series: Series) -> Cell:
        fractions = (rates.peak_fraction(run, row, scope) for row in series.rows.values())
        return Cell(units.percent(rates.best_of(fractions) or math.nan))

    return _by_size(
        panel,
        f"{panel.dtype} {rates.unit(panel.dtype)}, {scope} scope, over {panel.shape}; "
        f"* best of its column{_COLUMNS_AT if len(panel.sizes) > 1 else ''}",
        cell,
        {"of peak": of_peak, "host/device": lambda series: Cell(_host_over_device(series, scope))},
        heading(run, panel.device, panel.dtype),
        (
            *notes.scopes(run, panel.device, rows, scope),
            *notes.troubles(rows, where),
            *notes.uncertain(run, rows),
            *([] if any_joules(rows) else remarks(run, rows)),
            *notes.remarks(rows, where),
            *notes.warnings(run, panel.device),
            *notes.combinations(rows, scope, where),
            *(_conclusion(panel) if any(rates.median_rate(row, scope) for row in rows) else []),
        ),
    )


def _host_over_device(series: Series, scope: str) -> str:
    """What is left of the device's rate, transfers counted, at the largest size that has both."""
    for row in reversed(series.rows.values()):
        host = rates.rate(row, "host")
        device = rates.own_rate(row, "device") if scope == "device" else rates.rate(row, "device")
        if host and device:
            return units.number(host.median / device.median)
    return "-"


def _versus_sheet(_: Run, panel: Panel, scope: str) -> Sheet | None:
    """How many times as fast as the kernel of ``--versus``, by size; None without one."""
    shown = tuple(s for s in panel.series if any(rates.versus(row, scope) for row in s.rows.values()))
    caption = f"{versus_name(panel.rows)}: times its rate over {panel.shape}, {scope} scope if both have it; "
    caption += "batches in turn, 95 % interval"
    panel = replace(panel, series=shown)
    return _by_size(panel, caption, lambda row: versus_cell(row, scope), {}) if shown else None


def _conclusion(panel: Panel) -> list[Note]:
    """From which size a kernel beats the host's BLAS: the earliest, and the fastest if that is another."""
    if not panel.sizes or not any(series.is_kernel for series in panel.series):
        return []
    host, evens = baseline(panel), break_evens(panel)
    if host is None or not evens:
        return []
    rival, fastest = clean(host.label), max(evens, key=lambda even: even.lead)
    sentences = [_sentence(evens, panel.axis, rival)]
    if evens[0].size is not None and fastest is not evens[0] and fastest.size is not None:
        sentences.append(_sentence([fastest], panel.axis, rival))
    return [Note("Break-even", f"{'; '.join(sentences)}.", "bold")]


def _sentence(evens: Sequence[BreakEven], axis: str, rival: str) -> str:
    """From which size the first beats the host's BLAS, or how close it comes."""
    even = evens[0]
    label = clean(even.kernel.label)
    if even.size is None:
        largest = max(each.largest for each in evens)
        close = f"the closest is {label}, at {units.percent(even.lead)} of {rival}"
        return f"none up to {axis} = {largest}; transfers counted, {close}"
    size = round(even.size)
    if even.from_start:
        unsure = ", though within the noise" if even.high != even.size else ""
        return f"{label} beats {rival} from the smallest size on ({axis} = {size}){unsure}"
    low = round(even.low) if even.low is not None else None
    interval = f"{low} to {round(even.high)}" if even.high else f"{low} or more, the noise leaves it open"
    start = unbroken(f"from {axis} = {size}")
    return f"{start} ({interval}) {label} beats {rival}, transfers counted"


# --- Every figure of every row: the verbose table -----------------------------------------------------------


def row_sheets(run: Run, order: Sequence[str] = ()) -> list[Sheet]:
    """One line for each GEMM row, in tables by device and data type; the host's rows with each device."""
    grouped = by_device([row for row in run.rows if row.kind == "gemm"], attrgetter("dtype"), order)
    return [_row_sheet(run, device, name, own_rows) for device, name, own_rows in grouped]


def by_device(
    rows: Sequence[Row], part: Callable[[Row], _T], order: Sequence[str] = ()
) -> Iterator[tuple[int, _T, list[Row]]]:
    """Device, part and rows: those of the device by the order of variants, then the host's."""
    rank = {name: position for position, name in enumerate(order)}
    parts = dict.fromkeys(map(part, rows))
    for device in sorted({row.device for row in rows if row.device != HOST}) or [HOST]:
        for each in parts:
            own_rows = [row for row in rows if part(row) == each and row.device in (device, HOST)]
            if own_rows:
                own_rows.sort(key=lambda row: (row.device == HOST, rank.get(row.variant, len(rank))))
                yield device, each, own_rows


def _row_sheet(run: Run, device: int, dtype: str, rows: Sequence[Row], about: str = "") -> Sheet:
    """A line for each row, with its size; those of one problem, which `about` names, the fastest first."""
    best: dict[tuple[object, str], float] = {}
    compared = rates.view_scope(run)
    rate_of = rates.own_rate if compared == "device" else rates.rate
    own = [rates.compared_rate(run, device, row, compared) or 0.0 if about else 0.0 for row in rows]
    ranked = sorted(zip(own, rows, strict=True), key=lambda pair: -pair[0])
    fastest = ranked[0][0]
    for row in rows:
        for scope in SCOPES:
            if rate := rate_of(row, scope):
                best[row.problem, scope] = max(best.get((row.problem, scope), 0.0), rate.median)

    def rate_cell(row: Row, scope: str) -> Cell:
        rate = rate_of(row, scope)
        if rate is None:
            return Cell("-" if row.status == "ok" else "", style="dim")
        figure = notes.marked(run, row, units.gflops(rate.median))
        return Cell(figure, rate.median == best[row.problem, scope])

    versus = [name for name in [versus_name(rows)] if name]
    residual = ["residual"] if any(MATH in row.parameters for row in rows) else []
    energy = COLUMNS if any_joules(rows) else ()

    def line(rate: float, row: Row) -> tuple[Cell, ...]:
        fraction, value = rates.peak_fraction(run, row), rates.residual(row)
        size = f"{clean(row.label or row.phase)} {shape(row)}".strip()
        return (
            Cell(clean(row.title)),
            Cell(size if not about else units.percent(rate / fastest) if rate and fastest else "-"),
            *(rate_cell(row, scope) for scope in SCOPES),
            Cell(units.percent(fraction) if fraction is not None else "-"),
            Cell(units.percent(helpers) if (helpers := rates.helpers_share(row)) else "-"),
            notes.noise(row),
            *([versus_cell(row, "kernel")] if versus else []),
            *([Cell("-" if value is None else units.number(value))] if residual else []),
            *(cells(row) if energy else ()),
            Cell(WORDS[row.status], style=STYLES[row.status]),
        )

    caption = (
        f"{rates.unit(dtype)} by scope{', * best of its column' if about else '; * best of its problem'}"
    )
    by = f"{compared} scope" + (", numpy by host" if any(row.variant == BASELINE for row in rows) else "")
    return Sheet(
        heading=heading(run, device, dtype),
        caption=f"{about}\n{caption}; of the best: {by}" if about else f"{dtype} {caption}",
        keys=("", "of the best" if about else "size"),
        blocks=(SCOPES, ("of peak", "helpers", "noise", *versus, *residual, *energy, "status")),
        rows=tuple(starmap(line, ranked)),
        left=frozenset({"status"}),
        notes=(
            *([] if about else _parameters(rows)),
            *(notes.scopes(run, device, rows, compared) if about else notes.gaps(rows, compared)),
            *notes.troubles(rows, shape),
            *notes.uncertain(run, rows),
            *remarks(run, rows),
            *notes.remarks(rows, shape),
            *notes.warnings(run, device),
            *notes.combinations(rows, compared, shape),
            *net_notes(run, device, dtype),
        ),
    )


def net_notes(run: Run, device: int, dtype: str) -> list[Note]:
    """The share of the convolutions in AlexNet's products, where all of them were measured."""
    return [Note("", text, "bold") for text in sentences(run, device, dtype)]


def versus_name(rows: Iterable[Row]) -> str:
    """The kernel that rows were timed in turn with, as a heading: ``x tiled``; "" if they were not."""
    return next((f"x {clean(name)}" for row in rows if (name := rates.partner(row))), "")


def versus_cell(row: Row | None, scope: str) -> Cell:
    """A row's rate over that of the other kernel, and its interval: ``1.07 [1.05, 1.09]``."""
    against = rates.versus(row, scope) if row else None
    if against is None:
        return Cell("")
    figure = units.number(against.median)
    return Cell(f"{figure} [{units.number(against.low)}, {units.number(against.high)}]")


def _parameters(rows: Sequence[Row]) -> list[Note]:
    """What each variant ran with, once if it is the same for all its rows."""
    texts = (listed({**row.kernel_parameters, **row.choice}) for row in rows)
    groups = by_key(((row.variant, text), row) for row, text in zip(rows, texts, strict=True) if text)
    several = {variant for variant, _ in groups if sum(variant == other for other, _ in groups) > 1}
    return [
        Note(notes.places(alike, shape) if variant in several else clean(variant), text, "dim")
        for (variant, text), alike in groups.items()
    ]


# --- ``gemm``: everything that was measured of one problem --------------------------------------------------


_LEAST_COMPARED = 3  # rows: two pages are seen at a glance


def gemm(run: Run, verbose: bool = False) -> RenderableType:
    """Single problems: a table of three rows or more, and of the combinations of a grid.

    Of other rows, and if verbose of all, a page each: scopes, launches, verification, parameters. Of the
    combinations of a grid the fastest has one.
    """
    scope = rates.view_scope(run)
    parts: list[RenderableType] = []
    gemms = [row for row in run.rows if row.kind == "gemm" and row.problem]
    compared: list[Row] = []
    for device, _, rows in by_device(gemms, lambda row: (row.dtype, row.problem)):
        if len(rows) >= _LEAST_COMPARED or any(row.grid for row in rows):
            sheet = _row_sheet(run, device, rows[0].dtype, rows, _about(rows[0]))
            parts.append(sheet if verbose else replace(sheet, notes=(*sheet.notes, _MORE)))
            compared += rows

    def subject(row: Row) -> tuple[int, str, object]:
        return row.device, row.dtype, row.problem

    grids = by_key(
        ((subject(row), titled(row.variant, row.parameters) if row.grid else id(row)), row) for row in gemms
    )
    paged = [max(alike, key=lambda row: rates.median_rate(row, scope) or 0) for alike in grids.values()]
    paged = [row for row in paged if verbose or not any(row is each for each in compared)]
    for (device, dtype, _), alike in groupby(paged, subject):
        first, *others = alike
        parts.append(Sheet(heading=heading(run, device, dtype), caption=_about(first)))
        parts += [_page(run, row) for row in (first, *others)]
    apart = {*range(len(run.header.devices))} - {row.device for row in compared}
    warned = (note for index in sorted(apart) for note in notes.warnings(run, index))
    below = tuple(dict.fromkeys(warned))
    return stack([*parts, *([Sheet(notes=below)] if below else [])])


_MORE = Note("", "-v: a page for each, with times, launches, figures of the checks and parameters", "dim")


def _about(row: Row) -> str:
    problem = row.problem
    assert problem is not None
    dimensions = f"m = {problem.m}, n = {problem.n}, k = {problem.k}{problem.apart(' = ', ', ')}"
    a, b = "A^T" if problem.trans_a else "A", "B^T" if problem.trans_b else "B"
    return f"C = {problem.alpha:g} {a} {b} + {problem.beta:g} C, {row.dtype}, {dimensions}"


def _page(run: Run, row: Row) -> RenderableType:
    scope = rates.view_scope(run)
    rate = rates.median_rate(row, scope)
    shown = f"{units.rate(rate or 0, rates.is_integer(row.dtype))} ({rates.shown_scope(row, scope)} scope)"
    figure = shown if rate else WORDS[row.status]
    parts: list[RenderableType] = []
    if row.samples:
        parts += [_scopes(run, row), Text("")]
    for what, seconds in (("host scope", row.parts), ("map cycle", row.cycle)):
        if split := rates.split(seconds):
            parts += [_parts(what, split), Text("")]
    if row.launches:
        parts += [_launches(row), Text("")]
    for name, elements in (row.matrices or {}).items():
        parts += [_matrix(name, elements), Text("")]
    parts.append(Sheet(notes=tuple(_facts(run, row))))
    title = Text(f"{clean(row.title)}: {figure}", style="bold")
    return Group(
        title,
        *(part if isinstance(part, Text) else Padding(part, (0, 0, 0, 2), expand=False) for part in parts),
    )


def _matrix(name: str, elements: Elements) -> Sheet:
    """The numbers of a small matrix; rows and columns count from 0."""
    columns = tuple(map(str, range(len(elements[0]))))
    return Sheet(
        keys=(clean(name),),
        blocks=tuple(filter(None, (columns[:4], columns[4:]))),
        rows=tuple(
            (Cell(str(index)), *(Cell(_element(value)) for value in row))
            for index, row in enumerate(elements)
        ),
    )


def _element(value: float) -> str:
    return f"{value:.0f}" if value.is_integer() and abs(value) < _LONGEST else f"{value:.6g}"


_LONGEST = 1e9  # a whole number below it is shown whole
_CLOCKS = {CHAIN: "device, with gaps", GRAPH: "device, as a graph"}


def _scopes(run: Run, row: Row) -> Sheet:
    lines = []
    for scope in ("kernel", "device", CHAIN, GRAPH, "host"):
        times = rates.summary(row, scope)
        if times is None:
            continue
        reached, fraction = rates.rate(row, scope), rates.peak_fraction(run, row, scope)
        interval = f"{units.seconds(times.low)} to {units.seconds(times.high)}"
        lines.append(
            (
                Cell(_CLOCKS.get(scope, scope)),
                Cell(units.gflops(reached.median) if reached else "-"),
                Cell(units.percent(fraction) if reached and fraction is not None else "-"),
                Cell(units.seconds(times.median)),
                Cell(interval),
                Cell(units.seconds(times.minimum)),
                Cell(str(times.n)),
                Cell(clean(row.samples[scope].stop)),
            )
        )
    return Sheet(
        keys=("scope",),
        blocks=((rates.unit(row.dtype), "of peak", "median"), ("95 % interval", "best", "n", "stop")),
        rows=tuple(lines),
        left=frozenset({"stop"}),
    )


def _parts(title: str, split: rates.Split) -> Sheet:
    lines = [
        (Cell(part_name(split, name)), Cell(units.seconds(s)), Cell(units.percent(split.share(name))))
        for name, s in split.seconds.items()
    ]
    if split.whole_s is not None:
        lines.append((Cell("whole"), Cell(units.seconds(split.whole_s)), Cell(units.percent(1.0))))
    return Sheet(keys=(f"{title} by part",), blocks=(("time", "share"),), rows=tuple(lines))


def part_name(split: rates.Split, name: str) -> str:
    """A part for people; without the kernel's own time the passes have it."""
    return "passes and kernel" if name == "passes" and "kernel" not in split.seconds else name


def _launches(row: Row) -> Sheet:
    """The stamps of one run, and where the batches were timed by stamps, the share of each launch in them."""
    timed = [launch.timed_s for launch in row.launches if launch.timed_s is not None]
    whole = sum(timed) if rates.helpers_share(row) is not None else 0.0

    def line(launch: Launch) -> tuple[Cell, ...]:
        seconds = [launch.queued_s, launch.submitted_s, launch.running_s]
        share = [] if launch.timed_s is None or not whole else [launch.timed_s]
        return (
            Cell(clean(launch.name)),
            *(Cell(units.seconds(each)) for each in (*seconds, *share)),
            *(Cell(units.percent(each / whole)) for each in share),
        )

    return Sheet(
        keys=("launch",),
        blocks=(("queued", "submitted", "running"), *([("in batches", "share")] if whole else [])),
        rows=tuple(map(line, row.launches)),
    )


def _verified(title: str, check: Check, said: str = "") -> Note:
    """A check: its verdict, its figures as fractions of their bounds, and what is wrong."""
    figures = ", ".join(f"{clean(name)} {units.number(value)}" for name, value in check.figures.items())
    reasons = "; ".join(clean(reason) for reason in check.reasons if reason != said)
    verdict = check.verdict if check.verdict != "none" else "not done"
    style = {"ok": "green", "wrong": "bold red", "suspect": "yellow"}.get(check.verdict, "dim")
    return Note(title, ": ".join(filter(None, (verdict, figures, reasons))), style)


def _facts(run: Run, row: Row) -> list[Note]:
    facts = []
    if row.status != "ok":
        facts.append(Note(WORDS[row.status], clean_lines(row.reason), STYLES[row.status]))
    facts.append(_verified("verified", row.check, row.reason))
    if row.check_after:
        facts.append(_verified("and after", row.check_after, row.reason))
    chosen = {**row.parameters, **row.choice}
    if chosen:
        facts.append(Note("parameters", listed(chosen)))
    if row.memory:
        facts.append(Note("memory", clean(row.memory)))
    if row.build_s is not None:
        facts.append(Note("build", units.seconds(row.build_s)))
    if helpers := rates.helpers_share(row):
        said = f"{units.percent(helpers)} of the device scope: every pass but the multiplication"
        facts.append(Note("helpers", said))
    if against := rates.versus(row):
        said = f"{versus_cell(row, 'kernel').text}, {against.scope} scope, batch by batch in turn"
        facts.append(Note(versus_name([row]), said))
    facts += _energy_facts(run, row)
    facts += notes.uncertain(run, [row])
    facts += [Note("note", clean_lines(text), "dim") for text in row.notes]
    return facts


# --- Energy in tables and below them: joules, GFLOP/J and watts, what drew them, or why they are not known.


COLUMNS = ("energy", "GFLOP/J")
_LARGEST = (
    "At the largest size: energy of one problem (every pass, no transfers), power over its window, idle "
    "draw before it."
)
NOT_MEASURED = "not measured"  # in place of joules; a note says why


def any_joules(rows: Iterable[Row]) -> bool:
    """Whether any of them has its joules."""
    return any(row.energy.joules is not None for row in rows)


def cells(row: Row | None) -> tuple[Cell, Cell]:
    """A row's entries in `COLUMNS`; empty without a row."""
    empty = "-" if row and row.status == "ok" else ""
    joules, efficiency = (row.energy.joules, rates.gflop_per_joule(row)) if row else (None, None)
    unknown = NOT_MEASURED if row and rates.asked_for_energy(row) else empty
    return (
        Cell(units.joules(joules) if joules is not None else unknown),
        Cell(units.number(efficiency) if efficiency is not None else empty),
    )


def energy_sheet(run: Run, panel: Panel, _: str) -> Sheet | None:
    """GFLOP/J by size, joules and watts at the largest beside them; None if no energy was measured."""
    if not any_joules(panel.rows):
        return None
    values = by_key((row.problem, rates.gflop_per_joule(row)) for row in panel.rows)

    def cell(row: Row | None) -> Cell:
        value = rates.gflop_per_joule(row) if row else None
        if row is None or value is None:
            return Cell("-" if row else "")
        return Cell(units.number(value), value == rates.best_of(values[row.problem]))

    def largest(series: Series) -> Row:
        """The largest with joules, else with a reason why there are none."""
        rows = reversed(series.rows.values())
        return min(rows, key=lambda row: (row.energy.joules is None, not rates.asked_for_energy(row)))

    def power(series: Series, value: Callable[[Row], float | None]) -> Cell:
        known = value(largest(series))
        return Cell("-" if known is None else units.watts(known))

    columns = {
        "energy": lambda series: cells(largest(series))[0],
        "power": lambda series: power(series, rates.watts),
        "idle": lambda series: power(series, lambda row: row.energy.idle_w),
    }
    caption = f"{panel.dtype} GFLOP/J over {panel.shape}; * best of its column"
    said = (Note("", _LARGEST, "dim"), *remarks(run, panel.rows))
    return _by_size(panel, caption, cell, columns, notes=said)


def _energy_facts(run: Run, row: Row) -> list[Note]:
    """All about one row's energy in a line; why it has none, if it was asked for."""
    energy, efficiency, power = row.energy, rates.gflop_per_joule(row), rates.watts(row)
    if energy.joules is None:
        return remarks(run, [row])
    parts = [f"{units.joules(energy.joules)} for each problem"]
    if efficiency is not None:
        parts.append(f"{units.number(efficiency)} GFLOP/J")
    if power is not None and energy.window_s is not None:
        parts.append(f"{units.watts(power)} over {units.seconds(energy.window_s)}")
    if energy.idle_w is not None:
        parts.append(f"{units.watts(energy.idle_w)} idle before")
    return [Note("energy", f"{', '.join(parts)}; {_source(row)}")]


def remarks(run: Run, rows: Iterable[Row]) -> list[Note]:
    """The source of the energy figures, or why there are none, equal ones together; empty if not asked."""
    if not run.header.policy.energy:
        return []
    ran = ((_source(row), clean(row.variant)) for row in rows if row.samples and row.status == "ok")
    groups = {source: ", ".join(dict.fromkeys(names)) for source, names in by_key(ran).items()}
    alone = len(groups) == 1
    return [
        Note("energy", source if alone else f"{names}: {source}", "dim") for source, names in groups.items()
    ]


def _source(row: Row) -> str:
    """What drew a row's joules, by which counter, or why they are not known."""
    energy = row.energy
    if energy.joules is None:
        return clean(energy.why)
    counter = f" ({energy.counter})" if energy.counter else ""
    return clean(f"{energy.scope}{counter}, idle draw included")
