"""Base runs, ready to be compared with: which row is what, its figures, and the noise floor."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from gemmbench.ladder import BASELINES, BY_NAME
from gemmbench.ladder.variant import laid_out
from gemmbench.model.case import Case, saved_problem
from gemmbench.model.device import HOST, DeviceFacts
from gemmbench.model.row import MATH, Row, RowKey, row_key
from gemmbench.model.run_file import Header, Run
from gemmbench.model.units import clean, counted
from gemmbench.options.rules import DIFFERENCES, Kind, Rules
from gemmbench.regress import verdict as floors
from gemmbench.regress.verdict import LEAST_IN_TURN, Noise, Recorded, is_exact
from gemmbench.stats import rates as derive
from gemmbench.stats.intervals import EXACT, Measure


@dataclass(frozen=True, eq=False)
class Basis:
    """Base runs, ready to be compared with."""

    bases: tuple[Run, ...]
    rules: Rules

    @property
    def header(self) -> Header:
        """The first base's, whose devices keys refer to."""
        return self.bases[0].header

    @cached_property
    def repetitions(self) -> tuple[Repetition, ...]:
        return self.repeated(self.bases)

    def repeated(self, runs: Sequence[Run]) -> tuple[Repetition, ...]:
        """The repetitions in the runs of one side. A row that was kept or copied counts once."""
        every = [each for run in runs for each in repetitions(run, self.header)]
        fresh = {
            _samples(key, row) for each in every for key, row in each.rows.items() if not row.measured_utc
        }
        seen: set[tuple[object, ...]] = set()
        repeated = []
        for each in every:
            samples = {key: _samples(key, row) for key, row in each.rows.items() if row.samples}
            again = {key for key, values in samples.items() if values in seen}
            again |= {key for key in samples if each.rows[key].measured_utc and samples[key] in fresh}
            seen |= {values for key, values in samples.items() if key not in again}
            rows = {key: row for key, row in each.rows.items() if key not in again}
            repeated.append(Repetition(each.run, rows))
        return tuple(repeated)

    @cached_property
    def rows(self) -> dict[RowKey, Row]:
        """Each key's first row that is ok, or its first."""
        rows_by_key: dict[RowKey, Row] = {}
        for each in self.repetitions:
            for key, row in each.rows.items():
                if key not in rows_by_key or (row.status == "ok" and rows_by_key[key].status != "ok"):
                    rows_by_key[key] = row
        return rows_by_key

    def figure(self, rows: Mapping[RowKey, Row], key: RowKey) -> Measure | None:
        """A row's figure in one repetition; None where it has none."""
        return self.rules.measured(rows[key]) if key in rows else None

    def difference(
        self, before: Repetition, now: Repetition, key: RowKey, across: frozenset[str] | None = None
    ) -> str:
        """Why a row that both have may not be compared, or "".

        `before` is of the bases, `now` of the other side; `across` goes before the rules'.
        """
        across = self.rules.across if across is None else across
        if self.rules.in_turn:
            row, former = before.rows[key], now.rows[key].former
            base = before.run in self.bases  # or another new repetition
            then = row.source if base or not row.former else row.former.source
            other = former is not None and former.source != then and "source" not in across
            return f"the other kernels folder has another than the base's {then or 'none'}" if other else ""
        sides = (before.run, before.rows[key]), (now.run, now.rows[key])
        return difference(*sides, across) or _other_times(*sides, self.rules.scope, across)

    def base_figures(self, key: RowKey, against: Repetition | None = None) -> list[Measure]:
        """A row's figures in the bases, or only in those that may be compared with another repetition."""
        if self.rules.in_turn:
            return [EXACT] if any(self.comparable(key, against)) else []
        figures = (self.figure(each.rows, key) for each in self.comparable(key, against))
        return [figure for figure in figures if figure is not None]

    def comparable(self, key: RowKey, against: Repetition | None) -> Iterator[Repetition]:
        for each in self.repetitions:
            if key in each.rows and (
                against is None or key not in against.rows or not self.difference(each, against, key)
            ):
                yield each

    def groups(self, news: Sequence[Repetition] = ()) -> dict[RowKey, list[list[float]]]:
        """Values of what was measured several times, by row, each group of one machine and one version."""
        sides = [news] if self.rules.in_turn else [self.repetitions, news]
        return {key: [group for side in sides for group in self._alike(side, key)] for key in self.rows}

    def _alike(self, side: Sequence[Repetition], key: RowKey) -> list[list[float]]:
        """A row's values, grouped so that within a group only chance differs."""
        classes: list[tuple[Repetition, list[float]]] = []
        for each in side:
            figure = self.figure(each.rows, key)
            if figure is None:
                continue
            same = (values for first, values in classes if not self.difference(first, each, key, frozenset()))
            values = next(same, None)
            if values is None:
                classes.append((each, values := []))
            values.append(figure.value)
        return [values for _, values in classes]

    def noise(self, news: Sequence[Repetition] = ()) -> Noise:
        """The noise floor: from repetitions, or from the scatter of the rows if that is larger."""
        groups = self.groups(news)
        most = max((len(group) for several in groups.values() for group in several), default=0)
        measured = floors.measured(groups, f"measured, {most} runs")
        scaled = (self._scaled(key, news) for key in self.rows)
        scattered = floors.scattered([value for value in scaled if value is not None])
        if scattered and self.rules.in_turn:  # wide for their own errors, which each row counts itself
            figures = [self.figure(each.rows, key) for each in news for key in each.rows]
            scattered = scattered.beyond([figure.error for figure in figures if figure])
        if measured and scattered and scattered.typical > measured.typical:
            measured = replace(measured, typical=scattered.typical, source=scattered.source)
        if not self.rules.in_turn:
            return replace(measured or self._unrepeated(scattered), recorded=self._recorded)
        noise = measured or scattered or floors.assumed(LEAST_IN_TURN)
        return replace(noise, typical=max(noise.typical, LEAST_IN_TURN))

    @cached_property
    def _recorded(self) -> dict[Hashable, Recorded]:
        """For each row that is compared what recordings of unchanged machines show of its kind of device."""
        recorded: dict[Hashable, Recorded] = {}
        devices = self.header.devices
        for key, row in self.rows.items():
            if row.status == "ok" and row.samples:
                family = devices[key[1]].family if HOST < key[1] < len(devices) else "cpu-host"
                what = "libraries" if key[2] in BASELINES else "kernels"
                recorded[key] = floors.recordings().of(family, what)
        return recorded

    def _unrepeated(self, scattered: Noise | None) -> Noise:
        """The floor where nothing was measured twice: as recorded, or as the rows scatter if that is more."""
        kernels = [key for key in self.rows if key in self._recorded and key[2] not in BASELINES]
        every = [self._recorded[key] for key in kernels] or list(self._recorded.values())
        worst = max(every, key=lambda each: each.deviation, default=None)
        noise = floors.assumed()
        if worst:
            source = f"as unchanged runs of {worst.name} show it"
            noise = replace(noise, typical=worst.deviation, source=source)
        return scattered if scattered and scattered.typical > noise.typical else noise

    def _scaled(self, key: RowKey, news: Sequence[Repetition]) -> float | None:
        """A row's ratio in units of what one run's noise would make it scatter by; None if there is none."""
        first = next((each for each in news if key in each.rows), None)
        base = self.base_figures(key, first)
        new = [figure for each in news if (figure := self.figure(each.rows, key)) is not None]
        if not base or not new:
            return None
        apart = sum(each.value for each in new) / len(new) - sum(each.value for each in base) / len(base)
        return apart / math.sqrt((0 if is_exact(base) else 1 / len(base)) + 1 / len(new))


def _samples(key: RowKey, row: Row) -> tuple[object, ...]:
    """What a row that was kept has in common with the one that it was kept from."""
    return key, *((name, scope.seconds) for name, scope in sorted(row.samples.items()))


# --- Which row of one run is which row of another, and whether the two may be compared ----------------------

Fact = tuple[Kind, str, str] | tuple[Kind, str, str, str]
"""Kind, the base's and the new value; and how the difference is called, where not as in `DIFFERENCES`."""


@dataclass(frozen=True)
class Difference:
    """What keeps two devices' rows from being compared."""

    kind: Kind
    reason: str  # for the user
    remedy: str = ""  # other than of `DIFFERENCES`

    @property
    def sentence(self) -> str:
        remedy = self.remedy or DIFFERENCES[self.kind][1]
        return f"{self.reason}; {remedy}, or compare nevertheless with --across {self.kind}"


@dataclass(frozen=True, eq=False)
class Repetition:
    """Every case of a run once."""

    run: Run
    rows: Mapping[RowKey, Row]  # the key's device is a position in the first base's header


def pairing(of: Row | Case, device: int) -> RowKey:
    """The key that a row has a partner by in another run: a preset is the same case whatever its values.

    `device` is a position in the reference header.
    """
    problem = of.problem if isinstance(of, Row) else saved_problem(of.problem) if of.problem else None
    given = of.parameters if of.given is None else of.given
    parameters = {name: of.parameters[name] for name in given if name in of.parameters}
    return row_key(of.kind, device, of.variant, of.dtype, parameters, problem)


def repetitions(run: Run, reference: Header) -> tuple[Repetition, ...]:
    """A run as repetitions: one, unless cases stand in it several times, as in an A/A measurement.

    Keys refer to the devices of `reference`.
    """
    positions = slots(reference, run.header)
    by_repetition: list[dict[RowKey, Row]] = []
    times: dict[RowKey, int] = {}
    for row in run.rows:
        device = positions[row.device] if row.device >= 0 else HOST
        key = pairing(row, device)
        index = times[key] = times.get(key, -1) + 1
        if index == len(by_repetition):
            by_repetition.append({})
        by_repetition[index][key] = row
    return tuple(Repetition(run, rows) for rows in by_repetition)


def slots(reference: Header, header: Header) -> tuple[int, ...]:
    """For each device of a header the position of the same device in a reference header.

    Devices are the same if platform and name are; equal ones are matched in order. What is left over is
    matched in order, too: a run on another device is then refused as such, not reported as missing and new
    rows. Devices beyond the reference's have positions of their own.
    """
    positions, count = exact_positions(header.devices, reference.devices), len(reference.devices)
    free = iter([index for index in range(count) if index not in positions])
    beyond = iter(range(count, count + len(positions)))
    return tuple(index if index is not None else next(free, next(beyond)) for index in positions)


def exact_positions(wanted: Sequence[DeviceFacts], available: Sequence[DeviceFacts]) -> list[int | None]:
    """For each wanted device the position of an equal one (platform and name), each used once, or None.

    Those whose chips are known and the same go first.
    """
    positions: dict[int, int] = {}
    for is_same_chip in (True, False):
        for number, device in enumerate(wanted):
            equal = (
                index
                for index, other in enumerate(available)
                if (other.platform, other.name) == (device.platform, device.name)
                if index not in positions.values() and (not is_same_chip or device.chip == other.chip != "")
            )
            if number not in positions and (index := next(equal, None)) is not None:
                positions[number] = index
    return [positions.get(number) for number in range(len(wanted))]


def foreign(base: DeviceFacts, new: DeviceFacts, across: Collection[str] = ()) -> Difference | None:
    """Why no row of one device may be compared with any of another, or None; arguments as of `difference`."""
    return _first(_device_facts(base, new), across)


def difference(base: tuple[Run, Row], new: tuple[Run, Row], across: Collection[str] = ()) -> str:
    """Why a row of one run and one of another, of one key, may not be compared, or ""; see `DIFFERENCES`."""
    different = _first(_facts(base, new), across)
    if different and different.kind == "source" and new[1].own:
        option = f"--kernel-file {clean(new[1].own)} --against OLD.cl"
        return replace(different, remedy=f"check {option} times the two versions in turn").sentence
    return different.sentence if different else ""


def _other_times(
    base: tuple[Run, Row], new: tuple[Run, Row], scope: str | None, across: Collection[str]
) -> str:
    """Why what counts of two rows is not the same time: other matrices, another scope or host; or ""."""
    files = [" and ".join(row.operands) if row.operands else "generated" for _, row in (base, new)]
    if files[0] != files[1]:
        return f"other operands: {_word(files[1])}, not {_word(files[0])}; give both runs the same matrices"
    then, now = (derive.counted_scope(row, scope) for _, row in (base, new))
    if then and now and then != now:
        return f"other scope: {now}, not {then}; --scope takes one that both have"
    hosts = [run.header.host.cpu for run, _ in (base, new)]
    if "host" not in (then, now) or hosts[0] == hosts[1] or "device" in across:
        return ""
    reason = f"host scope of another host: {hosts[1]}, not {hosts[0]}"
    return Difference("device", reason, "measure the baseline run on this host").sentence


def _first(facts: Iterable[Fact], across: Collection[str]) -> Difference | None:
    for kind, before, after, *name in facts:
        if before != after and kind not in across:
            label = name[0] if name else DIFFERENCES[kind][0]
            return Difference(kind, f"{label}: {_word(after)}, not {_word(before)}")
    return None


def _device_facts(old: DeviceFacts, young: DeviceFacts) -> Iterable[Fact]:
    yield "device", old.name, young.name
    units = [counted(device.compute_units, "compute unit") for device in (old, young)]
    yield "device", units[0], units[1]
    yield "driver", f"{old.platform} {old.driver}", f"{young.platform} {young.driver}"


def only_preset_differs(before: Row, after: Row) -> bool:
    """Whether two rows have other parameters and hashes, but the kernel source that this version has.

    The hash of a kernel is of its source and its parameters, so that a new preset has a new one.
    """
    if before.parameters == after.parameters or before.variant not in BY_NAME:
        return False
    with contextlib.suppress(KeyError, ValueError, TypeError, OSError):
        return all(_fingerprint(row) == row.source for row in (before, after))
    return False


def _fingerprint(row: Row) -> str:
    variant = BY_NAME[row.variant]
    variant = laid_out(variant, derive.gemm_of(row)) if row.problem else variant
    variant = variant.with_math(str(row.parameters.get(MATH, "")))
    values = {name: int(value) for name, value in row.parameters.items() if name != MATH}
    return variant.fingerprint(row.dtype, values)


def _facts(base: tuple[Run, Row], new: tuple[Run, Row]) -> Iterable[Fact]:
    """Kind, base's and new's value of whatever must be the same."""
    (then, before), (now, after) = base, new
    old, young = then.device(before), now.device(after)
    if old and young:
        yield from _device_facts(old, young)
        if old.type == "cpu":  # PoCL counts those that its process may not use, too
            cores = [counted(run.header.host.cores, "core") for run in (then, now)]
            yield "device", cores[0], cores[1]
    else:
        yield "device", then.header.host.cpu, now.header.host.cpu
        yield "driver", then.header.host.blas, now.header.host.blas, "other BLAS or BLAS threads"
    if not only_preset_differs(before, after):
        yield "source", before.source, after.source
    warmth = {True: "--cold", False: "warm caches"}
    yield "sampling", warmth[then.header.policy.cold], warmth[now.header.policy.cold]
    yield "memory", before.memory, after.memory


def _word(text: str) -> str:
    return clean(text) or "none"
