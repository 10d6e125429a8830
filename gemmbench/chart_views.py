"""Which charts a run or a comparison gets, and how they come into a file."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import MappingProxyType

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter, NullLocator

from gemmbench.charts import pane
from gemmbench.charts.pane import ChartError, Families, Pane, each_alone, figure_of, write
from gemmbench.gemm import ladder_chart, sweep_chart
from gemmbench.model.device import HOST
from gemmbench.model.row import Row
from gemmbench.model.run_file import Run, is_tuning
from gemmbench.model.units import by_key, clean, listed
from gemmbench.probes import charts as probe_charts
from gemmbench.regress.compare import Comparison, Line, Verdict
from gemmbench.regress.results import name, sentence


@dataclass(frozen=True)
class Kind:
    """One kind of chart."""

    idea: str  # in a line
    needs: str  # what runs must have for it, to follow "no"
    panes: Callable[[Sequence[Run], Families], list[Pane]]  # none if the runs lack what it needs
    of_device: bool = False  # what the device can do, not what kernels reach
    across: int = 2  # panes beside each other, if there are several


_SIZES = "over several sizes, square or with only k varying"
# Where several suit a run the first is its default.
KINDS: dict[str, Kind] = {
    "throughput": Kind(
        "GFLOPS over size in the scope of the table, with the host's BLAS and the measured peak",
        f"measured GEMM rows {_SIZES}",
        sweep_chart.throughput,
    ),
    "host-device": Kind(
        "GFLOPS over size with and without transfers, and the break-even size",
        f"GEMM rows measured in the host scope {_SIZES}",
        sweep_chart.host_device,
    ),
    "time": Kind(
        "time over size in the scope of the table", f"measured GEMM rows {_SIZES}", sweep_chart.time
    ),
    "energy": Kind("joules for one problem over size", f"measured energy {_SIZES}", sweep_chart.energy),
    "versus": Kind(
        "the rate over that of another kernel, batch by batch in turn, over size",
        f"rows timed in turn (--versus) {_SIZES}",
        sweep_chart.versus,
    ),
    "workloads": Kind(
        "GFLOPS of the fastest kernels at every shape",
        "measured GEMM rows of several shapes that are no sweep",
        ladder_chart.workloads,
    ),
    "precision": Kind(
        "GFLOPS of every kernel in each data type, beside each type's measured peak",
        "GEMM rows measured in two data types at the same problem",
        ladder_chart.precision,
    ),
    "ladder": Kind(
        "every kernel's speed-up over the first, step by step, up to the measured peak",
        "two kernels measured at the same problem",
        ladder_chart.ladder,
    ),
    "roofline": Kind(
        "GFLOPS over arithmetic intensity, under the measured bandwidth and peak",
        "measured GEMM rows with a measured peak of their type",
        sweep_chart.roofline,
    ),
    "host-parts": Kind(
        "where the time of the host scope goes: upload, enqueueing, passes, kernel, waiting, download",
        "rows whose host scope was timed by part",
        ladder_chart.host_parts,
        across=1,
    ),
    "peak": Kind(
        "the device's measured peak by data type and vector width",
        "measured peak row",
        probe_charts.peak,
        of_device=True,
        across=1,
    ),
    "staircase": Kind(
        "GB/s over the size of the working set: a step for each cache",
        "measured working-set row",
        probe_charts.staircase,
        of_device=True,
    ),
    "transfer": Kind(
        "GB/s between host and device over the size of a transfer",
        "measured transfer row",
        probe_charts.transfer,
        of_device=True,
    ),
    "latency": Kind(
        "nanoseconds of a load over the size of its set, and the distribution of launches",
        "measured latency row",
        probe_charts.latency,
        of_device=True,
    ),
    "resources": Kind(
        "work-groups as launched, and the largest that each kernel as built can have",
        "rows that tell what their kernels take",
        ladder_chart.resource_panes,
        of_device=True,
    ),
}
_NONE: Families = MappingProxyType({})


def suited(runs: Sequence[Run], families: Families = _NONE) -> dict[str, str]:
    """Every kind, in the order of `KINDS`: why it does not suit the runs, or "" where it does.

    Rows of microbenchmarks beside GEMM rows are marks in the other charts and ask for none of their own.
    """
    return {name: _unsuited(runs, name, families) for name in KINDS}


def default_kind(run: Run) -> str:
    """The chart that suits the rows of a run."""
    return next((name for name in KINDS if not _unsuited([run], name)), "peak")


def _unsuited(runs: Sequence[Run], kind: str, families: Families = _NONE) -> str:
    if not KINDS[kind].panes(runs, families):
        return _lacks(runs, kind)
    if any(map(is_tuning, runs)):
        return "a tuner's rows have no chart"
    beside = KINDS[kind].of_device and any(row.kind == "gemm" for run in runs for row in run.rows)
    return f"beside GEMM rows only --kind {kind} draws it" if beside else ""


def draw(runs: Sequence[Run], kind: str, path: Path, families: Families = _NONE) -> None:
    """Draw saved runs into one file; `ChartError` without rows for the kind, or if it cannot be written.

    Sweeps of several runs lie over each other, their file names at the lines; other kinds have panes of their
    own for each run. `families` has the family of each variant, in the order of the ladder.
    """
    write(lambda: figure(runs, kind, families), path)


def figures(runs: Sequence[Run], kind: str, families: Families = _NONE) -> list[Figure]:
    """Every pane of a chart as a figure of its own; none without the rows for it. As of `figure`."""
    return each_alone(lambda: KINDS[kind].panes(runs, families))


def figure(runs: Sequence[Run], kind: str, families: Families = _NONE) -> Figure:
    """The chart as a matplotlib figure; `ChartError` if there is no such kind, or no rows to draw.

    It sets matplotlib's style, so call it inside ``rc_context``.
    """
    if kind not in KINDS:
        raise ChartError(f"unknown kind of chart {clean(kind)!r}; there are {', '.join(KINDS)}")
    return figure_of(lambda: KINDS[kind].panes(runs, families), _lacks(runs, kind), KINDS[kind].across)


def _lacks(runs: Sequence[Run], kind: str) -> str:
    names = ", ".join(clean(run.path) or "this run" for run in runs) or "no run"
    why = sweep_chart.why_no_energy(runs) if kind == "energy" else ""
    reason = f" ({why})" if why else ""
    return f"{names} {'have' if len(runs) > 1 else 'has'} no {KINDS[kind].needs}{reason}"


# --- a comparison: the ratio of every row with its range, and the threshold ---

# Colour and marker: each verdict can be told in grey.
LOOKS: Mapping[Verdict, tuple[str, str]] = {
    "slower": (pane.COLOURS[1], "D"),
    "possibly slower": (pane.COLOURS[4], "s"),
    "unchanged": (pane.GREY, "o"),
    "faster": (pane.COLOURS[2], "^"),
}
_MOST = 60  # rows of a pane
_LINE = 0.19  # inches for each
_CLOSE = 0.02  # of the axis beyond the outermost end


def ratios(comparison: Comparison) -> list[pane.Pane]:
    """A pane for each device: rows down, the new time over the base's across.

    Where there are more rows than a page holds, unchanged rows go first.
    """
    groups = by_key(
        (line.key[1], line)
        for line in comparison.lines
        if line.ratio and line.verdict in LOOKS and line.ratio.low > 0 and line.ratio.high < 1e6
    )
    panes = []
    for device in sorted(groups, key=lambda device: (device == HOST, device)):
        lines = groups[device]
        graver = [line for line in lines if line.verdict != "unchanged"]
        kept = lines if len(lines) <= _MOST else graver[:_MOST]
        if kept:
            hidden = len(lines) - len(kept)
            paint = partial(_paint, comparison=comparison, lines=kept, hidden=hidden)
            panes.append(pane.Pane(1.7 + _LINE * len(kept), paint))
    return panes


def _paint(axes: Axes, comparison: Comparison, lines: Sequence[Line], hidden: int) -> None:
    axes.set_xscale("log")
    for y, line in enumerate(lines):
        ratio = line.ratio
        assert ratio is not None  # of `ratios`
        colour, marker = LOOKS[line.verdict]
        edges = (1 / (1 + line.threshold), 1 + line.threshold)
        axes.fill_betweenx((y - 0.5, y + 0.5), *edges, color=pane.PALE, alpha=0.45, linewidth=0)
        axes.plot((ratio.low, ratio.high), (y, y), color=colour, linewidth=1.6, solid_capstyle="butt")
        axes.plot(ratio.median, y, color=colour, marker=marker, linestyle="none", label=line.verdict)
        pane.mark(axes, ratio.median, y, f"{name(line.row)}: {sentence(line)}")
    axes.axvline(1.0, color=pane.BLACK, linewidth=0.8)
    axes.set_ylim(len(lines) - 0.5, -0.5)
    axes.set_yticks(range(len(lines)), [row_text(line.row) for line in lines], fontsize=7.5)
    axes.tick_params(axis="y", length=0)
    axes.grid(visible=False, axis="y")
    _across(axes, lines)
    verdicts = dict.fromkeys(line.verdict for line in lines)
    keys = [(verdict, colour) for verdict, (colour, _) in LOOKS.items() if verdict in verdicts]
    interval = "its 95 % interval" if comparison.rules.interleaved else "the ratios of medians and minima"
    below = f"time, new over baseline, with {interval}; right is slower; grey: within the threshold"
    pane.titles(axes, clean(lines[0].device), below, keys)
    if hidden:
        pane.footnote(axes, [f"Not drawn: {hidden} further rows, unchanged or beyond the page."])


def _across(axes: Axes, lines: Sequence[Line]) -> None:
    """The axis of ratios: ticks are changes, or factors on a wide axis; both thresholds are visible."""
    ranges = [line.ratio for line in lines if line.ratio]
    edge = 1 + max(line.threshold for line in lines)
    low = min([1 / edge, *(each.low for each in ranges)]) * (1 - _CLOSE)
    high = max([edge, *(each.high for each in ranges)]) * (1 + _CLOSE)
    axes.set_xlim(low, high)
    if high / low < 4:
        step = next(step for step in (0.02, 0.05, 0.1, 0.2, 0.5, 1) if (high - low) / step < 9)
        first = round(low / step)
        ticks = [tick * step for tick in range(first, round(high / step) + 1) if low <= tick * step <= high]
        axes.set_xticks(ticks)
        axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{(value - 1) * 100:+.0f} %"))
    else:
        axes.xaxis.set_major_locator(LogLocator(10, subs=(1.0, 1.5, 2.0, 3.0, 5.0, 7.0)))
        axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"x {value:g}"))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_minor_formatter(NullFormatter())


def row_text(row: Row) -> str:
    """A row's name: variant, size, and the type where it is not float."""
    where = row.problem.size if row.problem else listed(row.parameters)
    parts = (clean(row.variant), "" if row.dtype == "float" else row.dtype, clean(row.label) or where)
    return " ".join(filter(None, parts))[:48]
