"""The measured peak: bars by data type and vector width, and by matrix instruction."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

from matplotlib.axes import Axes
from matplotlib.ticker import FuncFormatter

from gemmbench.charts.lines import HEIGHT
from gemmbench.charts.pane import (
    BLACK,
    COLOURS,
    DARK,
    GREY,
    ROW,
    Families,
    Pane,
    cell,
    footnote,
    heading,
    name_rows,
    own_title,
    short,
    titles,
)
from gemmbench.model import units
from gemmbench.model.device import HOST
from gemmbench.model.dtypes import DTYPES
from gemmbench.model.row import Row
from gemmbench.model.run_file import Run
from gemmbench.model.units import clean
from gemmbench.stats import rates as derive

_PLAIN = "flops"  # the probe that needs no name beside its data type's
_WIDTH_COLOURS = ("#D6E6F2", "#A9CCE3", "#6BA6CD", "#2C7FB8", "#084A77")
_MOST_GROUPS = 4  # of bars in a pane
_BAR = 0.62  # of a line down the page


@dataclass(frozen=True, eq=False)
class Group:
    """One probe with one data type."""

    name: str
    integer: bool
    rows: tuple[Row, ...]

    @property
    def measured(self) -> bool:
        """Whether any of its rows has a figure."""
        return any(derive.rate(row, "kernel") for row in self.rows)


def peak(runs: Sequence[Run], families: Families) -> list[Pane]:
    """Panes for each run and device with a measured peak row: vector widths, then matrix instructions."""
    drawn = []
    beside = [run for run in runs if any(row.kind == "peak" for row in run.rows)]
    for run in beside:
        rows = [row for row in run.rows if row.kind == "peak"]
        for device in dict.fromkeys(row.device for row in rows):
            groups = _groups([row for row in rows if row.device == device])
            title = own_title(run, device, beside)
            facts = run.header.devices[device] if device != HOST else None
            about = f", {facts.compute_units} units" if facts else ""
            by_width = [group for group in groups if "width" in group.rows[0].parameters]
            for chunk in _chunks(by_width):
                if any(group.measured for group in chunk):
                    drawn.append(Pane(HEIGHT, partial(_widths, groups=chunk, title=title, about=about)))
            others = [group for group in groups if group not in by_width]
            if any(group.measured for group in others):
                lines = sum(len(_pairs(group)) + 1 for group in others if group.measured)
                height = 1.6 + ROW * lines
                drawn.append(Pane(height, partial(_instructions, groups=others, title=title, about=about)))
    return drawn


def _groups(rows: Sequence[Row]) -> list[Group]:
    """Floating-point types before integers; apart from that as they were measured."""
    groups: dict[tuple[str, str], list[Row]] = {}
    for row in sorted(rows, key=lambda row: not DTYPES[row.dtype].is_float):
        groups.setdefault((row.dtype, row.variant), []).append(row)
    return [
        Group(
            dtype if probe == _PLAIN else f"{dtype} {clean(probe)}",
            not DTYPES[dtype].is_float,
            tuple(members),
        )
        for (dtype, probe), members in groups.items()
    ]


def _chunks(groups: Sequence[Group]) -> list[list[Group]]:
    """Groups that fit a pane, integers in panes of their own if not all fit one."""
    if len(groups) <= _MOST_GROUPS:
        return [list(groups)]
    chunks = []
    for integer in (False, True):
        alike = [group for group in groups if group.integer == integer]
        count = -(-len(alike) // _MOST_GROUPS)
        chunks += [alike[len(alike) * n // count : len(alike) * (n + 1) // count] for n in range(count)]
    return chunks


def _scale(groups: Sequence[Group]) -> tuple[float, float, str]:
    """The best rate that is believed (or the best, if none is), what to divide by, and the unit's letter."""
    rated = [(row, f.best) for group in groups for row in group.rows if (f := derive.rate(row, "kernel"))]
    sure = [best for row, best in rated if row.check.verdict == "ok"] or [best for _, best in rated]
    return (max(sure), *units.scale(max(sure)))


def _best(group: Group) -> float | None:
    """The best rate of a group that is believed."""
    rates = [f.best for r in group.rows if r.check.verdict == "ok" and (f := derive.rate(r, "kernel"))]
    return max(rates, default=None)


# --- bars by vector width ---------------------------------------------------------------------------------


def _widths(axes: Axes, groups: Sequence[Group], title: str, about: str) -> None:
    """Bars by width for each type, the best batch; a short line across each is its median."""
    largest, divisor, letter = _scale(groups)
    top = largest / divisor * 1.14  # a suspect bar may leave the picture
    ticks: dict[float, str] = {}
    start = 0.0
    for group in groups:
        group_rows = sorted(group.rows, key=_width)
        for n, row in enumerate(group_rows):
            ticks[start + n] = str(_width(row))
            rate = derive.rate(row, "kernel")
            if rate is not None:
                best = rate.best == _best(group)
                shade = n / max(1, len(group_rows) - 1)
                _bar(axes, start + n, row, rate, shade, best, top, divisor)
            elif group.measured:
                _word(axes, start + n, row)
        middle = start + (len(group_rows) - 1) / 2
        if not group.measured:
            _why_no_bars(axes, middle, group_rows[0])
        _below(axes, middle, f"{group.name} ({letter}IOPS)" if group.integer else group.name)
        start += len(group_rows) + 1
    axes.set_xticks(list(ticks), list(ticks.values()))
    axes.tick_params(length=0)
    axes.grid(False, axis="x")
    axes.set_xlim(-0.8, start - 1.2)
    axes.set_ylim(0, top)
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: short(units.number(value))))
    axes.set_ylabel(f"{letter}{'IOPS' if all(group.integer for group in groups) else 'FLOPS'}")
    axes.set_xlabel("vector width", labelpad=20)
    suspect = "; hatched: suspect" if _any_suspect(groups) else ""
    titles(axes, title, f"measured peak{about}; best batch of each width, tick: its median{suspect}")


def _any_suspect(groups: Sequence[Group]) -> bool:
    return any(r.status == "ok" and r.check.verdict != "ok" for group in groups for r in group.rows)


def _bar(
    axes: Axes,
    x: float,
    row: Row,
    rate: derive.Rate,
    shade: float,
    best: bool,
    top: float,
    divisor: float,
) -> None:
    suspect = row.check.verdict != "ok"
    colour = _WIDTH_COLOURS[round(shade * (len(_WIDTH_COLOURS) - 1))]
    height = rate.best / divisor
    axes.bar(
        x,
        height,
        0.86,
        color="white" if suspect else colour,
        edgecolor="#333333",
        linewidth=0.6,
        hatch="////" if suspect else None,
        label=f"{row.dtype} {_width(row)}",
    )
    axes.hlines(rate.median / divisor, x - 0.43, x + 0.43, color=BLACK, linewidth=0.8)
    axes.annotate(
        ("?" if suspect else "") + units.number(height),
        (x, min(height, top * 0.955)),
        xytext=(0, 2),
        textcoords="offset points",
        ha="center",
        va="bottom",
        fontsize=7.5,
        fontweight="bold" if best else "normal",
        bbox={"facecolor": "white", "edgecolor": "none", "pad": 0.8} if height > top else None,
    )


def _word(axes: Axes, x: float, row: Row) -> None:
    """Why there is no bar."""
    axes.annotate(
        row.status,
        (x, 0),
        xytext=(0, 4),
        textcoords="offset points",
        ha="center",
        va="bottom",
        rotation=90,
        fontsize=7.5,
        color=GREY,
    )


def _why_no_bars(axes: Axes, x: float, row: Row) -> None:
    """Why a type has none at all."""
    axes.annotate(
        "\n".join(textwrap.wrap(f"{row.status}: {clean(row.reason)}", 20)[:5]),
        (x, 0.03),
        xycoords=("data", "axes fraction"),
        ha="center",
        va="bottom",
        fontsize=8,
        color=GREY,
    )


def _below(axes: Axes, x: float, name: str) -> None:
    """A group's name below its widths."""
    axes.annotate(
        name,
        (x, 0),
        xycoords=("data", "axes fraction"),
        xytext=(0, -17),
        textcoords="offset points",
        ha="center",
        va="top",
        fontweight="bold",
        annotation_clip=False,
    )


def _width(row: Row) -> int:
    width = row.parameters.get("width", 1)
    return width if isinstance(width, int) else 1


# --- bars by matrix instruction ---------------------------------------------------------------------------


def _pairs(group: Group) -> dict[str, dict[str, Row]]:
    """Rows by instruction (``half + float m16n8k16``), then by the operands they are fed."""
    by_instruction: dict[str, dict[str, Row]] = {}
    for row in group.rows:
        rest = {name: clean(str(value)) for name, value in row.parameters.items()}
        operands, sums = rest.pop("operands", ""), rest.pop("accumulator", "")
        name = " ".join([row.dtype, *(["+", sums] if sums else []), *rest.values()])
        by_instruction.setdefault(name, {})[operands] = row
    return by_instruction


def _instructions(axes: Axes, groups: Sequence[Group], title: str, about: str) -> None:
    """A line for each instruction: a bar for each kind of operands, the figures at the right."""
    drawn = [group for group in groups if group.measured]
    largest, divisor, letter = _scale(drawn)
    kinds = list(dict.fromkeys(name for group in drawn for pair in _pairs(group).values() for name in pair))
    names: dict[float, str] = {}
    heads: dict[str, float] = {}
    y = 0.0
    for probe in dict.fromkeys(row.variant for group in drawn for row in group.rows):
        heads[clean(probe)] = y
        y += 1
        for group in drawn:
            for name, pair in _pairs(group).items() if group.rows[0].variant == probe else ():
                names[y] = name
                _line(axes, y, [pair.get(kind) for kind in kinds], divisor)
                y += 1
    name_rows(axes, names, heads)
    for column, kind in enumerate(kinds):
        heading(axes, column, kind or f"{letter}FLOPS", COLOURS[column % len(COLOURS)])
    axes.set_ylim(y, -0.8)
    axes.set_xlim(0, largest / divisor * 1.05)
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: short(units.number(value))))
    axes.grid(False, axis="y")
    axes.set_xlabel(f"{letter}FLOPS, {letter}IOPS for integers")
    suspect = "; hatched: suspect" if _any_suspect(drawn) else ""
    below = f"measured peak of matrix instructions{about}; operands + sums, best batch{suspect}"
    titles(
        axes, title, below, tuple((name, COLOURS[n % len(COLOURS)]) for n, name in enumerate(kinds) if name)
    )
    lacking: dict[str, list[str]] = {}
    for group in groups:
        if not group.measured:
            lacking.setdefault(group.rows[0].status, []).append(group.name)
    footnote(axes, [f"Not measured: {', '.join(names)} ({status})." for status, names in lacking.items()])


def _line(axes: Axes, y: float, rows: Sequence[Row | None], divisor: float) -> None:
    height = _BAR / len(rows)
    for column, row in enumerate(rows):
        rate = derive.rate(row, "kernel") if row is not None else None
        if row is None or rate is None:
            cell(axes, column, y, row.status if row is not None else "-", GREY, small=True)
            continue
        suspect = row.check.verdict != "ok"
        axes.barh(
            y - _BAR / 2 + height * (column + 0.5),
            rate.best / divisor,
            height,
            color="white" if suspect else COLOURS[column % len(COLOURS)],
            edgecolor="#333333" if suspect else "none",
            hatch="////" if suspect else None,
            label=f"{row.variant} {row.dtype}",
        )
        text = ("?" if suspect else "") + units.number(rate.best / divisor)
        cell(axes, column, y, text, DARK)
