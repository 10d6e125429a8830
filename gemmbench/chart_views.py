"""The kinds of charts, which of them suit a run, and how they are drawn."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

from matplotlib.figure import Figure

from gemmbench.charts import pane
from gemmbench.charts.marks import Bar, bar, bar_pane
from gemmbench.charts.pane import ChartError, Families, Pane, drawn_as, figure_of, separate_figures, write
from gemmbench.gemm import gemm_chart
from gemmbench.model.device import HOST
from gemmbench.model.row import Row
from gemmbench.model.run_file import Run, is_tuning
from gemmbench.model.units import by_key, clean, count_noun, list_values
from gemmbench.probes import peak_chart
from gemmbench.regress.compare import ComparedRow, Comparison, compare
from gemmbench.regress.results import SUMMED_UP, change, describe_line, interval, row_name


@dataclass(frozen=True)
class Kind:
    """One kind of chart."""

    idea: str  # one line for help and captions
    needs: str  # what runs must have, in words that follow "no"
    panes: Callable[[Sequence[Run], Families], Iterable[Pane]]  # empty if runs lack what the chart needs
    of_device: bool = False  # whether it shows what a device can do, not kernels
    across: int = 2  # panes side by side


def _compared(runs: Sequence[Run], _: Families) -> Iterable[Pane]:
    """Compare the last run with the others, unless only some have GEMMs."""
    alike = len({any(row.kind == "gemm" for row in run.rows) for run in runs}) == 1
    return ratios(compare(runs[:-1], runs[-1:])) if len(runs) > 1 and alike else []


_SIZES = "at several sizes, square or with only k varying"
# If several suit a run, the first is its default.
# fmt: off
KINDS: dict[str, Kind] = {
    "throughput": Kind("GFLOPS versus size, with libraries and the measured peak",
                       f"measured GEMM rows {_SIZES}", gemm_chart.throughput),
    "host-device": Kind("GFLOPS versus size, with and without transfers, and the break-even size",
                        f"GEMM rows measured in the host scope {_SIZES}", gemm_chart.host_device),
    "time": Kind("time for one problem versus size", f"measured GEMM rows {_SIZES}", gemm_chart.time_panes),
    "energy": Kind("joules for one problem versus size", f"measured energy {_SIZES}", gemm_chart.energy),
    "versus": Kind("the rate relative to that of the --versus kernel, at each size",
                   f"rows measured with --versus {_SIZES}", gemm_chart.versus_panes),
    "workloads": Kind("GFLOPS of the fastest kernels for each shape",
                      "measured GEMM rows of several shapes that are not a sweep",
                      gemm_chart.workloads_panes),
    "precision": Kind("GFLOPS of the fastest kernels in each data type, with each type's measured peak",
                      "GEMM rows measured in two data types at the same problem", gemm_chart.precision),
    "ladder": Kind("every kernel at one size, fastest first, with the percentage of measured peak",
                   "two kernels measured at the same problem", gemm_chart.ladder_panes),
    "roofline": Kind("GFLOPS versus arithmetic intensity, under the measured bandwidth and peak",
                     "measured GEMM rows with a measured peak of their type", gemm_chart.roofline),
    "host-parts": Kind("where the time goes with transfers: upload, enqueue, kernels, wait, download",
                       "rows whose host scope was timed by part", gemm_chart.host_parts, across=1),
    "peak": Kind("the device's measured peak by data type, vector width and matrix instruction",
                 "measured peak row", peak_chart.peak_panes, of_device=True, across=1),
    "memory": Kind("bandwidth and latency versus working set, transfers versus size, launches",
                   "measured memory, transfer or latency row", peak_chart.memory, of_device=True),
    "resources": Kind("work-group sizes as launched, and the largest that each built kernel allows",
                      "rows with the resources of their kernels", gemm_chart.resource_panes, of_device=True),
    "compare": Kind("the change in each row's time from the other runs to the last",
                    "row in common with another run", _compared, across=1),
}
# fmt: on
_NONE: Families = MappingProxyType({})


def list_suitable(runs: Sequence[Run], families: Families = _NONE) -> list[str]:
    """The kinds that have a pane for the runs. With GEMMs, charts of a device are excluded."""
    if any(map(is_tuning, runs)):
        return []
    with_gemm = any(row.kind == "gemm" for run in runs for row in run.rows)
    kinds = {name: kind for name, kind in KINDS.items() if not (kind.of_device and with_gemm)}
    return [name for name, kind in kinds.items() if next(iter(kind.panes(runs, families)), None)]


def default_kind(run: Run) -> str:
    """The first kind of chart that suits a run, or ``peak``."""
    return next(iter(list_suitable([run])), "peak")


def draw_kind(runs: Sequence[Run], kind: str, path: Path, families: Families = _NONE) -> None:
    """Draw saved runs into one file. Raises `ChartError` without rows for the kind, or if writing fails."""
    write(lambda: figure(runs, kind, families), path)


def png(runs: Sequence[Run], kind: str, families: Families = _NONE) -> bytes:
    """Draw saved runs as `draw_kind` does, and return the PNG."""
    return drawn_as(".png", lambda: figure(runs, kind, families))


def figures(runs: Sequence[Run], kind: str, families: Families = _NONE) -> list[Figure]:
    """Draw every pane of a chart as a separate figure. See `figure`."""
    return separate_figures(lambda: KINDS[kind].panes(runs, families))


def figure(runs: Sequence[Run], kind: str, families: Families = _NONE) -> Figure:
    """A chart of all panes of a kind, inside ``rc_context``. `ChartError` without rows to draw."""
    if kind not in KINDS:
        raise ChartError(f"unknown kind of chart {clean(kind)!r}; there are {', '.join(KINDS)}")
    names = ", ".join(clean(run.path) or "this run" for run in runs) or "no run"
    why = gemm_chart.why_no_energy(runs) if kind == "energy" else ""
    reason = f" ({why})" if why else ""
    lacks = f"{names} {'have' if len(runs) > 1 else 'has'} no {KINDS[kind].needs}{reason}"
    return figure_of(lambda: KINDS[kind].panes(runs, families), lacks, KINDS[kind].across)


_COLOURS: Mapping[str, str] = {
    "slower": pane.COLOURS[1],
    "possibly slower": pane.COLOURS[4],
    "differs": pane.COLOURS[4],
    "cannot tell": pane.PALE,
    "on another device": pane.GREY,
    "within": pane.GREY,
    "unchanged": pane.GREY,
    "faster": pane.COLOURS[2],
}
_MOST, _ENOUGH = 40, 12  # rows of a pane, and without rows that changed


def ratios(comparison: Comparison) -> Iterator[Pane]:
    """Yield a pane for each device with a bar for each row, the largest slowdown first.

    A pane has at most 40 rows, those that changed most. Unchanged rows fill it only up to 12.
    """
    groups = by_key(
        (line.key[1], line)
        for line in comparison.lines
        if line.ratio and line.verdict in _COLOURS and 0 < line.ratio.median < 1e6
    )
    for device in sorted(groups, key=lambda device: (device == HOST, device)):
        ordered = sorted(groups[device], key=lambda line: (line.verdict in SUMMED_UP, -abs(_change(line))))
        changed = sum(line.verdict not in SUMMED_UP for line in ordered)
        lines = sorted(ordered[: min(_MOST, max(_ENOUGH, changed))], key=_change, reverse=True)
        verdicts = {line.verdict for line in lines}
        below = "Grey band: threshold." + (" Black lines: intervals." if any(map(interval, lines)) else "")
        hidden = len(ordered) - len(lines)
        below += f" {count_noun(hidden, 'row')} changed less." if hidden else ""
        yield bar_pane(
            f"Change, {clean(lines[0].device).replace(' | ', ', ')}",
            below,
            list(map(_bar, lines)),
            "change of the time, %; right is slower",
            [(verdict, colour) for verdict, colour in _COLOURS.items() if verdict in verdicts],
            lambda value: f"{value:+g}" if value else "0",
            100 * max(line.threshold for line in lines),
        )


def _change(line: ComparedRow) -> float:
    return 100 * (line.ratio.median - 1) if line.ratio else 0.0


def _bar(line: ComparedRow) -> Bar:
    assert line.ratio is not None  # others have no bar
    ends = (100 * (line.ratio.low - 1), 100 * (line.ratio.high - 1)) if interval(line) else None
    said = f"{row_name(line.row)}: {describe_line(line)}"
    text, name = change(line.ratio.median), row_text(line.row)
    return bar(_change(line), _COLOURS[line.verdict], line.verdict, text, name, said=said, interval=ends)


def row_text(row: Row) -> str:
    """A row's name with at most 48 letters: title, type unless float, and label or size."""
    where = row.problem.size if row.problem else list_values(row.parameters)
    parts = (clean(row.title), "" if row.dtype == "float" else row.dtype, clean(row.label) or where)
    return " ".join(filter(None, parts))[:48]
