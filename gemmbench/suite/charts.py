"""The chart of what kernels take of a core."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial

from matplotlib.axes import Axes

from gemmbench.charts import pane
from gemmbench.model.row import Resources
from gemmbench.model.run_file import Run
from gemmbench.model.units import clean

_FITS, _TIGHT = pane.COLOURS[0], pane.COLOURS[1]


def resource_panes(runs: Sequence[Run], _: pane.Families) -> list[pane.Pane]:
    """A pane for each device and data type whose rows have the resources of their kernels."""
    result = []
    for run in runs:
        rows = [row for row in run.rows if row.kind == "gemm" and row.device >= 0 and row.resources]
        for device, dtype in dict.fromkeys((row.device, row.dtype) for row in rows):
            alike = [row for row in rows if (row.device, row.dtype) == (device, dtype)]
            alike.sort(key=lambda row: row.problem.flops if row.problem else 0)  # the largest counts
            order = dict.fromkeys(row.title for row in rows)
            kernels = {}
            for row in alike:
                multiply = (each for each in row.resources if each.role == "multiply")
                kernels[row.title] = next(multiply, row.resources[-1])
            paint = partial(
                _paint_groups,
                title=pane.own_title(run, device, runs),
                dtype=dtype,
                kernels={name: kernels[name] for name in order if name in kernels},
            )
            result.append(pane.Pane(1.5 + pane.ROW * len(kernels), paint))
    return result


def _paint_groups(axes: Axes, title: str, dtype: str, kernels: Mapping[str, Resources]) -> None:
    """A line for each kernel: its work-group, and the largest that the built kernel can have."""
    names: dict[float, str] = {}
    for y, (name, kernel) in enumerate(kernels.items()):
        tight = kernel.most < kernel.group
        axes.plot([kernel.group, kernel.most], [y, y], color=pane.PALE, linewidth=3, zorder=1)
        axes.plot(kernel.most, y, "|", color=pane.DARK, markersize=9, markeredgewidth=2)
        axes.plot(kernel.group, y, "o", color=_TIGHT if tight else _FITS)
        names[y] = clean(name) + (f" ({kernel.registers})" if kernel.registers else "")
        said = f"{clean(name)}: work-groups of {kernel.group}, of {kernel.most} at most"
        pane.mark(axes, kernel.group, y, said)
    axes.set_ylim(len(kernels) - 0.4, -0.6)
    pane.name_rows(axes, names, {})
    low, high = min(each.group for each in kernels.values()), max(each.most for each in kernels.values())
    pane.log_across(axes, low, high, "work-items of a group", lambda value: f"{value:.0f}")
    below = f"{dtype}: the largest work-group of a kernel as built"
    below += "; in brackets its registers" if any(each.registers for each in kernels.values()) else ""
    pane.titles(axes, title, below, [("o as launched", _FITS), ("| the largest", pane.DARK)])
