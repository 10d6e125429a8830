"""Rows of several devices that were measured at once, held against the same rows of each device alone."""

from __future__ import annotations

import math
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

from gemmbench.facts import derive
from gemmbench.facts.compare.measures import measure
from gemmbench.facts.records import DeviceFacts, Row, RowKey, Run
from gemmbench.facts.stats import Interval, Measure


@dataclass(frozen=True, eq=False)
class Part:
    """One device's row of a case that several ran at once, and its row of the same case alone."""

    together: Row
    alone: Row | None  # None where the file lacks it

    @property
    def device(self) -> int:
        """Its position in the header."""
        return self.together.device

    def slowdown(self, scope: str) -> Interval | None:
        """Time beside the others over time alone, 2 is half the speed; None unless both were measured."""
        pair = self.measures(scope)
        return pair[0].over(pair[1]).interval() if pair else None

    def measures(self, scope: str) -> tuple[Measure, Measure] | None:
        """Beside the others, and alone; None unless both have a rate there."""
        if not speed(self.together, scope) or self.alone is None or not speed(self.alone, scope):
            return None
        beside = measure(self.together, scope)
        alone = measure(self.alone, scope)
        return (beside, alone) if beside and alone else None


@dataclass(frozen=True, eq=False)
class Joint:
    """One case on several devices at once; its parts by device."""

    parts: tuple[Part, ...]

    @property
    def row(self) -> Row:
        """Any of its rows: what they have in common."""
        return self.parts[0].together

    @property
    def devices(self) -> tuple[int, ...]:
        """Positions in the header."""
        return tuple(part.device for part in self.parts)

    @property
    def figured(self) -> tuple[Part, ...]:
        """The parts with a figure of both sorts; none if fewer than two devices ran at once."""
        found = tuple(part for part in self.parts if part.measures("kernel"))
        return found if len(found) > 1 else ()

    def aggregate(self, scope: str) -> float | None:
        """All devices at once, in flop/s or bytes/s: the sum of their medians."""
        return _sum([speed(part.together, scope) for part in self.figured])

    def sum_alone(self, scope: str) -> float | None:
        """The sum of the same devices' medians alone."""
        return _sum([speed(part.alone, scope) for part in self.figured if part.alone])

    def total(self, scope: str) -> Interval | None:
        """The sum alone over the aggregate: what all devices at once lose."""
        pairs = [pair for part in self.figured if (pair := part.measures(scope))]
        if not pairs:
            return None
        beside, alone = (_summed([pair[side] for pair in pairs]) for side in (0, 1))
        return beside.over(alone).interval()


@lru_cache(maxsize=64)
def alone(run: Run) -> Run:
    """A run without the rows of several devices at once: what every other table and chart is made from."""
    rows = tuple(row for row in run.rows if not row.beside)
    return run if len(rows) == len(run.rows) else replace(run, rows=rows)


@lru_cache(maxsize=64)
def joints(run: Run) -> tuple[Joint, ...]:
    """Every case that several devices ran at once, in the order of the rows."""
    single = {row.key: row for row in run.rows if not row.beside}
    groups: dict[Hashable, dict[int, Part]] = {}
    for row in run.rows:
        if row.beside:
            part = Part(row, single.get(case_key(row)))
            groups.setdefault(same_place(row), {})[row.device] = part
    return tuple(Joint(tuple(parts[place] for place in sorted(parts))) for parts in groups.values())


def case_key(row: Row) -> RowKey:
    """The key of the case that a row is of, whatever was beside it."""
    return replace(row, beside=()).key


def same_place(row: Row) -> Hashable:
    """What rows of several devices must share to be of one case.

    GEMMs run with presets that differ from device to device; microbenchmarks are told apart by theirs.
    """
    parameters = () if row.kind == "gemm" else tuple(sorted(row.parameters.items()))
    return row.kind, row.variant, row.dtype, row.problem, parameters


def speed(row: Row, scope: str) -> float | None:
    """The median rate of a row in flop/s, of microbenchmarks of memory in bytes/s; None without one."""
    found = derive.shown_rate(row, scope) if row.kind == "gemm" else derive.byte_rate(row)
    return found.median if found else None


def derived(run: Run, row: Row) -> dict[str, object]:
    """What JSON tells of a row of several devices at once; nothing of others."""
    if not row.beside:
        return {}
    part = next((part for joint in joints(run) for part in joint.parts if part.together is row), None)
    found = part.slowdown("kernel") if part else None
    return {
        "slowdown": found.median if found else None,
        "slowdown_low": found.low if found else None,
        "slowdown_high": found.high if found else None,
    }


def shared(devices: Sequence[DeviceFacts], places: Sequence[int]) -> tuple[tuple[int, ...], ...]:
    """Positions of devices that are one piece of hardware: two drivers of it, or parts of it.

    Processors are; other devices where their drivers tell that they sit in the same place.
    """
    homes: dict[str, list[int]] = {}
    for place in places:
        device = devices[place]
        home = "cpu" if device.type == "cpu" else device.pci
        if home:
            homes.setdefault(home, []).append(place)
    return tuple(tuple(found) for found in homes.values() if len(found) > 1)


def _sum(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) if known and len(known) == len(values) else None


def _summed(measures: Sequence[Measure]) -> Measure:
    """The cost of a unit of work when it is spread over devices as their speeds are."""
    speeds = [math.exp(-one.value) for one in measures]
    total = sum(speeds)
    error = math.sqrt(
        sum((one.error * part / total) ** 2 for one, part in zip(measures, speeds, strict=True))
    )
    return Measure(-math.log(total), error, min(one.freedom for one in measures))
