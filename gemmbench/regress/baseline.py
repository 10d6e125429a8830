"""Baseline runs: which row pairs with which, whether two rows are comparable, and their times."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from gemmbench.ladder import BY_NAME
from gemmbench.ladder.variant import laid_out
from gemmbench.measure.blas import UNKNOWN
from gemmbench.model.case import Case, saved_problem
from gemmbench.model.device import HOST, DeviceFacts
from gemmbench.model.row import BLAS, MATH, Row, RowKey, row_key
from gemmbench.model.run_file import Header, Run
from gemmbench.model.units import clean, counted
from gemmbench.options.comparing import DIFFERENCES, Kind, Rules
from gemmbench.stats import rates
from gemmbench.stats.intervals import Interval


@dataclass(frozen=True)
class Cost(Interval):
    """Seconds for one unit of a row's work in one replicate: the median, its 95 % interval, the minimum."""

    minimum: float


def cost(row: Row, scope: str | None) -> Cost | None:
    """Seconds of a row's samples for each flop (else each byte, else each launch); None without samples.

    The samples are those of `scope`, or of the finest. The interval is NaN below three samples.
    """
    chosen = rates.counted_scope(row, scope)
    times = rates.summary(row, chosen) if chosen else None
    if times is None:
        return None
    work, is_known = rates.work(row), math.isfinite(times.noise)
    low, high = (times.low / work, times.high / work) if is_known else (math.nan, math.nan)
    return Cost(times.median / work, low, high, times.minimum / work)


@dataclass(frozen=True, eq=False)
class BaselineSet:
    """Baseline runs, ready to compare other runs with."""

    runs: tuple[Run, ...]
    rules: Rules

    @property
    def header(self) -> Header:
        """The header of the first run. Device positions in row keys refer to it."""
        return self.runs[0].header

    @cached_property
    def replicates(self) -> tuple[Replicate, ...]:
        return self.replicates_of(self.runs)

    def replicates_of(self, runs: Sequence[Run]) -> tuple[Replicate, ...]:
        """Split runs into replicates. Rows with a key and seconds that an earlier row has are dropped."""
        seen: set[tuple[object, ...]] = set()
        replicates = []
        for each in (each for run in runs for each in replicates_in(run, self.header)):
            rows = {}
            for key, row in each.rows.items():
                copy = key, *((name, scope.seconds) for name, scope in sorted(row.samples.items()))
                if not row.samples or copy not in seen:
                    rows[key] = row
                    seen.add(copy)
            replicates.append(Replicate(each.run, rows))
        return tuple(replicates)

    @cached_property
    def rows(self) -> dict[RowKey, Row]:
        """By key, the first row in all replicates whose status is ok, otherwise the first row."""
        rows: dict[RowKey, Row] = {}
        for each in self.replicates:
            for key, row in each.rows.items():
                if key not in rows or (row.status == "ok" and rows[key].status != "ok"):
                    rows[key] = row
        return rows

    def with_result(self, key: RowKey) -> list[Replicate]:
        return [each for each in self.replicates if key in each.rows and each.rows[key].status == "ok"]

    def comparable(self, key: RowKey, now: Replicate) -> list[Replicate]:
        return [each for each in self.with_result(key) if not self.difference(each, now, key)]

    def costs(self, replicates: Sequence[Replicate], key: RowKey) -> list[Cost]:
        every = (cost(each.rows[key], self.rules.scope) for each in replicates)
        return [each for each in every if each is not None]

    def difference(self, before: Replicate, now: Replicate, key: RowKey, also: Collection[str] = ()) -> str:
        """Why the rows of two replicates are not comparable, or "". `also` allows more differences."""
        if self.rules.interleaved:
            return ""
        across = {*self.rules.across, *also}
        return difference((before.run, before.rows[key]), (now.run, now.rows[key]), across, self.rules.scope)


@dataclass(frozen=True, eq=False)
class Replicate:
    """The rows of a run, each case once."""

    run: Run
    rows: Mapping[RowKey, Row]  # device positions in the keys refer to the first baseline's header


def match_key(of: Row | Case, device: int) -> RowKey:
    """The key by which a row or case finds its partner in another run.

    Of the parameters it has only those in `of.given`, so a preset matches whatever its values. `device` is a
    position in the reference header.
    """
    problem = of.problem if isinstance(of, Row) else saved_problem(of.problem) if of.problem else None
    given = of.parameters if of.given is None else of.given
    parameters = {name: of.parameters[name] for name in given if name in of.parameters}
    return row_key(of.kind, device, of.variant, of.dtype, parameters, problem)


def replicates_in(run: Run, reference: Header) -> tuple[Replicate, ...]:
    """Split a run into replicates: the n-th row of each case goes into the n-th replicate.

    Keys have the positions of the devices in `reference`.
    """
    positions = device_map(reference, run.header)
    replicates: list[dict[RowKey, Row]] = []
    counts: dict[RowKey, int] = {}
    for row in run.rows:
        key = match_key(row, positions[row.device] if row.device >= 0 else HOST)
        index = counts[key] = counts.get(key, -1) + 1
        if index == len(replicates):
            replicates.append({})
        replicates[index][key] = row
    return tuple(Replicate(run, rows) for rows in replicates)


def device_map(reference: Header, header: Header) -> tuple[int, ...]:
    """For each device of a header, the position of the same device in a reference header.

    Others get unused positions in order, so that their rows are paired and refused as not comparable.
    """
    positions, count = exact_positions(header.devices, reference.devices), len(reference.devices)
    rest = iter([index for index in range(count + len(positions)) if index not in positions])
    return tuple(next(rest) if index is None else index for index in positions)


def exact_positions(wanted: Sequence[DeviceFacts], available: Sequence[DeviceFacts]) -> list[int | None]:
    """For each wanted device, the position of an unused device with equal platform and name, or None.

    Devices with the same known chip match first.
    """
    positions: dict[int, int] = {}
    for is_same_chip in (True, False):
        for number, device in enumerate(wanted):
            for index, other in enumerate(available):
                is_equal = (other.platform, other.name) == (device.platform, device.name)
                is_free = number not in positions and index not in positions.values()
                if is_equal and is_free and (not is_same_chip or device.chip == other.chip != ""):
                    positions[number] = index
    return [positions.get(number) for number in range(len(wanted))]


Fact = tuple[Kind | None, str, str, str]
"""The kind of a difference (None: `--across` cannot allow it), its name, the old value and the new one."""


def device_difference(old: DeviceFacts, new: DeviceFacts, across: Collection[str]) -> tuple[Kind, str] | None:
    """The first difference between two devices that `across` does not allow: its kind and a message."""
    differences = _differences(_device_facts(old, new), across)
    return next(((kind, reason) for kind, reason in differences if kind is not None), None)


def difference(
    old: tuple[Run, Row], new: tuple[Run, Row], across: Collection[str] = (), scope: str | None = None
) -> str:
    """The first difference that makes two rows with one key not comparable, and a remedy; "" without any.

    `across` has the kinds of differences to ignore. `scope` is the timing scope, None or lacking the finest.
    """
    kind, reason = next(_differences(_facts(old, new, scope), across), (None, ""))
    if kind is None:
        return reason and f"{reason}; measure both runs alike"
    remedy = DIFFERENCES[kind]
    if kind == "source" and new[1].own:
        remedy = f"check --kernel-file {clean(new[1].own)} --against OLD.cl interleaves the two versions"
    return f"{reason}; {remedy}, or compare anyway with --across {kind}"


def is_other_device(old: tuple[Run, Row], new: tuple[Run, Row], scope: str | None) -> bool:
    """Whether two rows with one key ran on different devices or hosts."""
    return any(kind == "device" for kind, _ in _differences(_facts(old, new, scope), ()))


def _differences(facts: Iterable[Fact], across: Collection[str]) -> Iterator[tuple[Kind | None, str]]:
    for kind, name, before, after in facts:
        if before != after and kind not in across:
            yield kind, f"{name}: {clean(after) or 'none'}, not {clean(before) or 'none'}"


def _device_facts(old: DeviceFacts, new: DeviceFacts) -> Iterable[Fact]:
    yield "device", "other device", old.name, new.name
    units = [counted(device.compute_units, "compute unit") for device in (old, new)]
    yield "device", "other device", units[0], units[1]
    yield "driver", "other driver", f"{old.platform} {old.driver}", f"{new.platform} {new.driver}"


def _facts(base: tuple[Run, Row], latest: tuple[Run, Row], scope: str | None) -> Iterable[Fact]:
    (then, before), (now, after) = base, latest
    old, new = then.device(before), now.device(after)
    hosts = then.header.host, now.header.host
    if old and new:
        yield from _device_facts(old, new)
        if old.type == "cpu":  # PoCL counts cores that its process may not use as compute units
            cores = [counted(host.cores, "core") for host in hosts]
            yield "device", "other device", cores[0], cores[1]
    else:
        yield "device", "other device", hosts[0].cpu, hosts[1].cpu
        scipy = [str(row.choice.get(BLAS, "")) for row in (before, after)]
        for blas in ((hosts[0].blas, hosts[1].blas), scipy):
            yield "driver", "other BLAS or BLAS threads", *blas
            if UNKNOWN in blas[1]:
                yield "driver", "BLAS that may differ", "a known BLAS", blas[1]
    if not only_preset_differs(before, after):
        yield "source", "other kernel source", before.source, after.source
    warmth = {True: "--cold", False: "warm caches"}
    yield "sampling", "other sampling", warmth[then.header.policy.cold], warmth[now.header.policy.cold]
    if before.memory and after.memory:  # rows that did not run have none
        yield "memory", "other way of passing operands", before.memory, after.memory
    files = [" and ".join(row.operands) if row.operands else "generated" for row in (before, after)]
    yield None, "other operands", files[0], files[1]
    scopes = [rates.counted_scope(row, scope) for row in (before, after)]
    if scopes[0] and scopes[1]:
        yield None, "other scope", scopes[0], scopes[1]
        if "host" in scopes:
            yield "device", "host scope of another host", hosts[0].cpu, hosts[1].cpu


def only_preset_differs(before: Row, after: Row) -> bool:
    """Whether two rows used the kernel source of this gemmbench version, each with other parameters.

    The hash in a row covers source and parameters, so it is computed again for each row's parameters.
    """
    if before.parameters == after.parameters or before.variant not in BY_NAME:
        return False
    try:
        for row in (before, after):
            variant = BY_NAME[row.variant]
            variant = laid_out(variant, rates.gemm_of(row)) if row.problem else variant
            variant = variant.with_math(str(row.parameters.get(MATH, "")))
            values = {name: int(value) for name, value in row.parameters.items() if name != MATH}
            if variant.fingerprint(row.dtype, values) != row.source:
                return False
    except (KeyError, ValueError, TypeError, OSError):  # parameters of another version
        return False
    return True
