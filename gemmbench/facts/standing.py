"""How the variants of a saved run stand against each other on one problem."""

from __future__ import annotations

from dataclasses import dataclass

from gemmbench.facts import derive
from gemmbench.facts.records import Problem, Row, Run
from gemmbench.facts.series import HOST


@dataclass(frozen=True)
class Setting:
    """Who ran against whom: one device, one data type."""

    device: int  # -1 if only the host was measured
    dtype: str


@dataclass(frozen=True)
class Standing:
    """One variant's place on one problem."""

    row: Row  # its fastest, where it ran with several sets of parameters
    rate: derive.Rate | None  # kernel scope; the host's own BLAS has only the host scope
    rank: int | None  # 1 is the fastest on the device; None without a rate, and for the host's own BLAS
    speedup: float | None  # over the first rung, in the kernel scope, so never of the host's own BLAS


def settings(run: Run) -> list[Setting]:
    """Every device and data type that GEMMs ran with, by device; the host alone where there is no other."""
    rows = [row for row in run.rows if row.kind == "gemm"]
    found = dict.fromkeys(Setting(row.device, row.dtype) for row in rows if row.device != HOST)
    alone = dict.fromkeys(Setting(HOST, row.dtype) for row in rows)
    return sorted(found or alone, key=lambda setting: setting.device)


def problems(run: Run, setting: Setting) -> list[Problem]:
    """What was asked for there, smallest first."""
    found = {row.problem: derive.flops_of(row) for row in _rows(run, setting) if row.problem}
    return sorted(found, key=lambda problem: found[problem])


def standings(run: Run, setting: Setting, problem: Problem, first_rung: str = "") -> dict[str, Standing]:
    """Each variant's place on a problem, in the order of the rows; the host's own BLAS among them.

    Args:
        run: any.
        setting: device and data type.
        problem: m, n, k.
        first_rung: the variant that speed-ups are over; "" for none.
    """
    best: dict[str, tuple[Row, derive.Rate | None]] = {}
    for row in _rows(run, setting):
        if row.problem != problem:
            continue
        rate = derive.shown_rate(row, "kernel")
        known = best.get(row.variant)
        if known is None or (rate and (known[1] is None or rate.median > known[1].median)):
            best[row.variant] = (row, rate)
    on_device = [rate.median for row, rate in best.values() if rate and _is_ranked(row)]
    order = sorted(on_device, reverse=True)
    first = best.get(first_rung, (None, None))[1]
    return {
        variant: Standing(
            row,
            rate,
            order.index(rate.median) + 1 if rate and _is_ranked(row) else None,
            rate.median / first.median if rate and first and row.device != HOST else None,
        )
        for variant, (row, rate) in best.items()
    }


def _is_ranked(row: Row) -> bool:
    """Not the host's own BLAS, and not what `auto` took of the others."""
    return row.device != HOST and derive.what_ran(row) == row.variant


def common_problem(run: Run, *settings: Setting) -> Problem | None:
    """The problem that variants are shown at, where they are shown at one: in `kernels`, README and charts.

    Args:
        run: the run.
        settings: a device with one data type, or with each of several that are shown beside each other.

    Returns:
        The largest problem that most of the measured variants have a figure for; None if nothing has one.
    """
    figures: dict[Problem, set[tuple[str, str]]] = {}
    for row in (row for setting in settings for row in _rows(run, setting)):
        if row.problem and derive.shown_rate(row, "kernel"):
            figures.setdefault(row.problem, set()).add((row.variant, row.dtype))
    measured = set().union(*figures.values())
    most = max(map(len, figures.values()), default=0)
    least = min(most, len(measured) // 2 + 1)
    enough = [problem for problem, names in figures.items() if len(names) >= least]
    return max(reversed(enough), key=lambda problem: problem.flops, default=None)


def _rows(run: Run, setting: Setting) -> list[Row]:
    return [
        row
        for row in run.rows
        if row.kind == "gemm" and row.dtype == setting.dtype and row.device in (setting.device, HOST)
    ]
