"""The measured peak: bars by data type and vector width."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.ticker import FuncFormatter

from gemmbench.charts.panel import BLACK, GREY, Box, device_title, short, titles
from gemmbench.facts import derive, units
from gemmbench.facts.records import Row, Run
from gemmbench.facts.series import HOST
from gemmbench.facts.text import clean

_WIDTH_COLOURS = ("#D6E6F2", "#A9CCE3", "#6BA6CD", "#2C7FB8", "#084A77")


def boxes(runs: Sequence[Run]) -> list[Box]:
    """The panels of runs with peak rows."""
    groups: dict[str, tuple[Run, int]] = {}
    for run in runs:
        for row in run.rows:
            if row.kind == "peak" and row.status == "ok":
                name = device_title(run, row.device)
                if len(runs) > 1:
                    name += f" | {clean(Path(run.path).stem)}"
                groups.setdefault(name, (run, row.device))
    return [Box(title, "", peaks=(where,)) for title, where in groups.items()]


def peak(axes: Axes, box: Box) -> None:
    """Bars by width for each type, the best batch; a short line across each is its median."""
    run, device = box.peaks[0]
    rows = [row for row in run.rows if row.kind == "peak" and row.device == device]
    dtypes = list(dict.fromkeys(row.dtype for row in rows))
    ticks: list[float] = []
    names: list[str] = []
    rated = [(row, found.best) for row in rows if (found := derive.rate(row, "kernel"))]
    sure = [best for row, best in rated if row.check.verdict == "ok"] or [best for _, best in rated]
    divisor, letter = units.scale(max(sure))
    top = max(sure) / divisor * 1.14  # a suspect bar may leave the picture
    start = 0.0
    for dtype in dtypes:
        mine = sorted((row for row in rows if row.dtype == dtype), key=_width)
        rates = {n: derive.rate(row, "kernel") for n, row in enumerate(mine)}
        sound = [f.best for n, f in rates.items() if f and mine[n].check.verdict == "ok"]
        for n, row in enumerate(mine):
            x, found = start + n, rates[n]
            ticks.append(x)
            names.append(str(_width(row)))
            if found is None:
                if any(rates.values()):
                    _word(axes, x, row)
                continue
            best = found.best == max(sound, default=None)
            _bar(axes, x, row, found, n / max(1, len(mine) - 1), best, top, divisor)
        if not any(rates.values()):
            words = "\n".join(textwrap.wrap(f"{mine[0].status}: {clean(mine[0].reason)}", 22)[:4])
            axes.annotate(
                words,
                (start + (len(mine) - 1) / 2, 0.03),
                xycoords=("data", "axes fraction"),
                ha="center",
                va="bottom",
                fontsize=8,
                color=GREY,
            )
        unit = "" if dtype != "int" else f" ({letter}IOPS)"
        axes.annotate(
            f"{dtype}{unit}",
            (start + (len(mine) - 1) / 2, 0),
            xycoords=("data", "axes fraction"),
            xytext=(0, -17),
            textcoords="offset points",
            ha="center",
            va="top",
            fontweight="bold",
            annotation_clip=False,
        )
        start += len(mine) + 1
    axes.set_xticks(ticks, names)
    axes.tick_params(length=0)
    axes.grid(False, axis="x")
    axes.set_xlim(-0.8, start - 1.2)
    axes.set_ylim(0, top)
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: short(units.number(value))))
    axes.set_ylabel(f"{letter}FLOPS")
    axes.set_xlabel("vector width", labelpad=20)
    facts = run.header.devices[device] if device != HOST else None
    count = f", {facts.compute_units} units" if facts else ""
    suspect = "; hatched: suspect" if any(r.status == "ok" and r.check.verdict != "ok" for r in rows) else ""
    titles(axes, box.title, f"measured peak{count}; best batch of each width, tick: its median{suspect}")


def _bar(
    axes: Axes, x: float, row: Row, found: derive.Rate, place: float, best: bool, top: float, divisor: float
) -> None:
    suspect = row.check.verdict != "ok"
    colour = _WIDTH_COLOURS[round(place * (len(_WIDTH_COLOURS) - 1))]
    height = found.best / divisor
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
    median = found.median / divisor
    axes.hlines(median, x - 0.43, x + 0.43, color=BLACK, linewidth=0.8)
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


def _width(row: Row) -> int:
    width = row.parameters.get("width", 1)
    return width if isinstance(width, int) else 1
