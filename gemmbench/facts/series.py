"""Rows as series over size: what the sweep's tables and charts have in common."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from gemmbench.facts.records import Row, Run
from gemmbench.facts.text import listed

HOST = -1


@dataclass(frozen=True, eq=False)
class Series:
    """One variant with one set of parameters, over the sizes of a sweep."""

    label: str  # the variant, with its parameters where they tell it from another series
    variant: str
    device: int  # -1 for the host
    rows: dict[int, Row]  # by size, smallest first

    @property
    def is_host(self) -> bool:
        """Whether it ran on the host, not on an OpenCL device."""
        return self.device == HOST

    @property
    def is_kernel(self) -> bool:
        """Whether it is a kernel of the ladder itself: neither `auto` nor a library, which has no source."""
        return any(row.source and "kernel" not in row.choice for row in self.rows.values())


@dataclass(frozen=True, eq=False)
class Panel:
    """The series of one device and one data type, the host's beside them."""

    device: int  # -1 if only the host was measured
    dtype: str
    axis: str  # m: m = n = k vary together; k: only k does
    series: tuple[Series, ...]

    @property
    def sizes(self) -> tuple[int, ...]:
        """Every size that any of its series has a row for."""
        return tuple(sorted({size for one in self.series for size in one.rows}))

    @property
    def rows(self) -> tuple[Row, ...]:
        """Its rows, series by series."""
        return tuple(row for one in self.series for row in one.rows.values())

    @property
    def shape(self) -> str:
        """What varies and what does not: ``m = n = k``, or ``k, with m = 1024 and n = 1024``."""
        if self.axis == "m":
            return "m = n = k"
        fixed = next((row.problem for row in self.rows if row.problem), None)
        return f"k, with m = {fixed.m} and n = {fixed.n}" if fixed else "k"


def sweep_axis(rows: Iterable[Row]) -> str | None:
    """What varies: ``m`` for squares, ``k`` if only k varies; None if neither, or nothing does."""
    problems = {row.problem for row in rows if row.kind == "gemm" and row.problem}
    if len({(problem.alpha, problem.beta) for problem in problems}) != 1 or len(problems) < 2:
        return None
    if all(problem.is_square for problem in problems):
        return "m"
    if len({(problem.m, problem.n) for problem in problems}) == 1:
        return "k"
    return None


def panels(run: Run, axis: str, order: Sequence[str] = (), dtype: str | None = None) -> list[Panel]:
    """The GEMM rows of a run by device and data type; the host's rows go with every device of their type.

    Args:
        run: the run.
        axis: ``m`` or ``k``: the dimension to take as size.
        order: variants in the order of the ladder; others follow as they come, the host's own last.
        dtype: only this type.
    """
    rows = [row for row in run.rows if row.kind == "gemm" and row.problem and dtype in (None, row.dtype)]
    found = []

    def size(row: Row) -> int:
        return int(getattr(row.problem, axis))

    for name in dict.fromkeys(row.dtype for row in rows):
        typed = [row for row in rows if row.dtype == name]
        devices = sorted({row.device for row in typed if row.device != HOST}) or [HOST]
        found += [
            Panel(device, name, axis, series([r for r in typed if r.device in (device, HOST)], size, order))
            for device in devices
        ]
    return sorted(found, key=lambda panel: panel.device)


def series(rows: Sequence[Row], place: Callable[[Row], int], order: Sequence[str] = ()) -> tuple[Series, ...]:
    """Rows of one device (and the host) and one data type as a series for each variant.

    Args:
        rows: GEMM rows.
        place: a row's size, or whatever number its series are to be sorted by.
        order: variants in the order of the ladder; others follow as they come, the host's own last.
    """
    variants: dict[tuple[int, str], list[Row]] = {}
    for row in sorted(rows, key=place):
        variants.setdefault((row.device, row.variant), []).append(row)
    rank = {name: number for number, name in enumerate(order)}
    first = list(dict.fromkeys((row.device, row.variant) for row in rows))
    found = []
    for device, variant in sorted(first, key=lambda key: (key[0] == HOST, rank.get(key[1], len(rank)))):
        mine = variants[device, variant]
        if len({place(row) for row in mine}) == len(mine):
            found.append(Series(variant, variant, device, {place(row): row for row in mine}))
            continue
        for parameters in dict.fromkeys(listed(row.parameters) for row in mine):
            same = {place(row): row for row in mine if listed(row.parameters) == parameters}
            found.append(Series(f"{variant} {parameters}".strip(), variant, device, same))
    return tuple(found)
