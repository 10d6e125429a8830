"""run(plan) -> events on several devices: each case on each device alone, then on all of them at once.

Every device has a child process of its own. Those of one case are prepared and verified one after another,
and then sampled at once: see `measure.sampling.together`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Generator, Hashable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import groupby

from gemmbench.measure.child import Ready, Worker
from gemmbench.measure.sampling import AloneError, Sampled, Window, together
from gemmbench.model import units
from gemmbench.model.case import Case, Event, Finished, Plan, Policy, Skip, Staged
from gemmbench.model.device import HOST, DeviceFacts
from gemmbench.model.instrument import NotMeasuredError
from gemmbench.model.row import Energy, Row, RowKey
from gemmbench.model.run_file import Run
from gemmbench.model.units import by_key, clean
from gemmbench.probes import peak_table
from gemmbench.report import notes
from gemmbench.report.notes import shape
from gemmbench.report.table import Cell, Note, Sheet
from gemmbench.stats import rates
from gemmbench.stats.intervals import Interval, Measure
from gemmbench.stats.rates import measure
from gemmbench.suite.session import Steps

_MEMORY_KINDS = ("bandwidth", "transfer")  # run at once where there are no GEMMs
_ENERGY = Energy(why="not measured: with other devices busy a counter may count them too")


@dataclass(frozen=True)
class Group:
    """The steps of one case on every device; `cases` are run at once, and are none if fewer than two."""

    steps: tuple[Case | Skip, ...]
    cases: tuple[Case, ...] = ()

    @property
    def label(self) -> str:
        """For people: ``register float 512x512x512 on 0 and 1 at once``."""
        places = [str(case.device) for case in self.cases]
        return f"{self.cases[0].label} on {', '.join(places[:-1])} and {places[-1]} at once"


def grouped(plan: Plan) -> tuple[Group, ...]:
    """A plan case by case, not device by device: both rows of a ratio are measured close in time.

    GEMMs are run at once; of a plan without them, bandwidth and transfers. What runs on the host, and what
    fewer than two devices can run, is run alone.
    """
    has_gemms = any(isinstance(step, Case) and step.kind == "gemm" for step in plan)
    kinds = ("gemm",) if has_gemms else _MEMORY_KINDS
    rows = (step.row if isinstance(step, Skip) else step.row("ok") for step in plan)
    groups = by_key(
        (same_place(row) if row.kind in kinds and row.device != HOST else number, step)
        for number, (row, step) in enumerate(zip(rows, plan, strict=True))
    )

    def group(steps: Sequence[Case | Skip]) -> Group:
        cases = tuple(
            step
            for step in steps
            if isinstance(step, Case) and step.kind in kinds and step.device != HOST
            if step.problem is None or step.problem.flops
        )
        several = len({case.device for case in cases}) > 1
        return Group(tuple(steps), cases if several else ())

    return tuple(map(group, groups.values()))


WorkerOf = Callable[[int], Worker]  # of a device; the host's cases run in the first device's


@contextmanager
def crew(first: Worker, another: Callable[[], Worker], devices: int) -> Iterator[WorkerOf]:
    """A child process for each device; all but the first, which whoever started it ends, end here.

    Raises `WorkerError` if one cannot list the devices.
    """
    with ExitStack() as stack:
        others = [stack.enter_context(another()) for _ in range(1, devices)]
        for worker in others:
            worker.devices()  # importing a driver is not to count as the time of a case
        workers = [first, *others]
        yield lambda device: workers[max(device, 0)]


def run(groups: Sequence[Group], worker_of: WorkerOf, steps: Steps) -> Generator[Event, None, None]:
    """Run groups one after another: each case on each device alone, then all at once.

    Rows are on the disk before they are yielded. Rows that the file held already are not measured again; of
    a group that lacks some only those are added. Raises `RunFileError` as of `Steps`.
    """
    steps.check(step for group in groups for step in group.steps)
    done = {case_key(row): row for row in steps.done.values() if row.beside}
    every_step = [step for group in groups for step in group.steps]
    alone = sum(isinstance(step, Case) and step.key not in steps.done for step in every_step)
    at_once = sum(case.key not in done for group in groups for case in group.cases)
    yield steps.planned(alone + at_once)
    for group in groups:
        rows: dict[RowKey, Row] = {}
        for step in group.steps:
            device = step.row.device if isinstance(step, Skip) else step.device
            row = yield from steps.take(step, worker_of(device))
            if isinstance(step, Case):
                rows[step.key] = row
        if not group.cases:
            continue
        missing = [case for case in group.cases if case.key not in done]
        yield from (Finished(done[case.key], resumed=True) for case in group.cases if case.key in done)
        if missing:
            joint_rows = yield from _at_once(group, rows, worker_of, steps)
            for case in missing:
                yield steps.finished(joint_rows[case.key])


def _at_once(
    group: Group, alone: dict[RowKey, Row], worker_of: WorkerOf, steps: Steps
) -> Generator[Event, None, dict[RowKey, Row]]:
    """A row for each case of a group: those that were ok alone are run, the others say why they are not."""
    rows: dict[RowKey, Row] = {}
    able: list[Case] = []
    for case in group.cases:
        row = alone[case.key]
        if row.status != "ok":
            rows[case.key] = case.row("skipped", f"alone it is {row.status}")
        else:
            able.append(case)
    if len(able) == 1:
        case = able.pop()
        rows[case.key] = case.row("skipped", "no other device has a figure of its own")
    beside: dict[int, set[int]] = {}
    if able:
        yield steps.started(group.label)
        members = [
            _Member(worker_of(case.device), case, steps.devices[case.device], steps.policy) for case in able
        ]
        yield from _measure(members)
        for case, member in zip(able, members, strict=True):
            assert member.row is not None  # of every member that was measured
            row = member.row
            rows[case.key] = replace(row, energy=_ENERGY) if row.status == "ok" else row
            beside[case.device] = member.beside
    every = {case.device for case in group.cases}
    others = {device: beside.get(device) or every - {device} for device in every}
    return {key: row.placed(row.device, others[row.device]) for key, row in rows.items()}


class _Member:
    def __init__(self, worker: Worker, case: Case, device: DeviceFacts, policy: Policy) -> None:
        self.worker, self.case, self.device = worker, case, device
        self.policy = replace(policy, energy=False)
        self.row: Row | None = None
        self.beside: set[int] = set()  # the devices that were busy through its latest window
        self.ready: Ready | None = None
        self.sampled: list[Sampled] = []

    def begin(self) -> Generator[Staged, None, None]:
        """Bring the child to its first batch; if that fails, its row is made."""
        outcome = yield from self.worker.begun(self.case, self.device, self.policy)
        self.row, self.ready = (outcome, None) if isinstance(outcome, Row) else (None, outcome)

    def end(self) -> None:
        """Release the child's memory, and make its row if there is none yet."""
        if self.ready:
            with self.ready.handle:
                try:
                    self.row = self.row or self.ready.completed(self.sampled)
                except Exception as error:
                    self.row = self.worker.row_of(self.case, error)

    def lose(self, error: Exception, gone: Sequence[_Member]) -> None:
        """End without a figure: the child failed, or no other device is left."""
        if isinstance(error, AloneError):
            statuses = ", ".join(f"{member.row.device} {member.row.status}" for member in gone if member.row)
            error = NotMeasuredError("skipped", f"no other device was left beside it: {statuses}")
        self.row = self.worker.row_of(self.case, error)


def _measure(members: Sequence[_Member]) -> Iterator[Staged]:
    """Measure the members' case on all of them at once; afterwards each has its row."""
    for member in members:
        for stage in member.begin():
            yield Staged(f"{member.case.device}: {stage.stage}")
    windows = next((member.ready.windows for member in members if member.ready), ())
    for window in windows:
        yield Staged(f"timing {window.clock}")
        _sample([member for member in members if member.row is None], members, window)
    for member in members:
        member.end()


def _sample(live: Sequence[_Member], members: Sequence[_Member], window: Window) -> None:
    devices = {member.case.device for member in live}
    for member in live:
        member.beside = devices - {member.case.device} or member.beside
    handles = [member.ready.handle for member in live if member.ready]
    policy = members[0].policy
    results = together(handles, window.clock, policy, window.budget_s, window.settle)
    outcomes = list(zip(live, results, strict=True))
    left = {member.case.device for member, result in outcomes if isinstance(result, Sampled)}
    # Those that went wrong come first: whoever was left alone names them.
    for member, result in sorted(outcomes, key=lambda outcome: isinstance(outcome[1], AloneError)):
        if isinstance(result, Sampled):
            member.sampled.append(result)
            member.beside = left - {member.case.device}
        else:
            member.lose(result, members)


@dataclass(frozen=True, eq=False)
class Part:
    """One device's row of a case that several ran at once, and its row of the same case alone."""

    together: Row
    alone: Row | None  # None where the file lacks it

    @property
    def device(self) -> int:
        return self.together.device

    def slowdown(self, scope: str) -> Interval | None:
        """Time beside the others over time alone, 2 is half the speed; None unless both were measured."""
        pair = self.measures(scope)
        return pair[0].over(pair[1]).interval() if pair else None

    def measures(self, scope: str) -> tuple[Measure, Measure] | None:
        """Beside the others, and alone; None unless both have a rate there."""
        if not speed(self.together, scope) or self.alone is None or not speed(self.alone, scope):
            return None
        beside, alone = measure(self.together, scope), measure(self.alone, scope)
        return (beside, alone) if beside and alone else None


@dataclass(frozen=True, eq=False)
class Joint:
    """One case on several devices at once; its parts by device."""

    parts: tuple[Part, ...]

    @property
    def row(self) -> Row:
        return self.parts[0].together

    @property
    def devices(self) -> tuple[int, ...]:
        return tuple(part.device for part in self.parts)

    def part(self, device: int) -> Part | None:
        return next((part for part in self.parts if part.device == device), None)

    @property
    def figured(self) -> tuple[Part, ...]:
        """The parts with a figure alone and at once; empty if fewer than two have both."""
        measured = tuple(part for part in self.parts if part.measures("kernel"))
        return measured if len(measured) > 1 else ()

    def aggregate(self, scope: str) -> float | None:
        """All devices at once, in flop/s or bytes/s: the sum of their medians."""
        return _sum([speed(part.together, scope) for part in self.figured])

    def sum_alone(self, scope: str) -> float | None:
        return _sum([speed(part.alone, scope) for part in self.figured if part.alone])

    def total(self, scope: str) -> Interval | None:
        """The sum alone over the aggregate: what all devices at once lose."""
        pairs = [pair for part in self.figured if (pair := part.measures(scope))]
        if not pairs:
            return None
        beside, alone = map(_summed, zip(*pairs, strict=True))
        return beside.over(alone).interval()


@lru_cache(maxsize=64)
def joints_of(run: Run) -> tuple[Joint, ...]:
    """Every case that several devices ran at once, in the order of the rows."""
    single = {row.key: row for row in run.rows if not row.beside}
    groups: dict[Hashable, dict[int, Part]] = {}
    for row in run.rows:
        if row.beside:
            groups.setdefault(same_place(row), {})[row.device] = Part(row, single.get(case_key(row)))
    return tuple(Joint(tuple(parts[device] for device in sorted(parts))) for parts in groups.values())


def case_key(row: Row) -> RowKey:
    """The key of a row's case, whatever ran beside it."""
    return replace(row, beside=()).key


def same_place(row: Row) -> Hashable:
    """What the rows of several devices must have in common to be one case.

    Parameters count for microbenchmarks only: the presets of GEMMs differ from device to device.
    """
    parameters = () if row.kind == "gemm" else tuple(sorted(row.parameters.items()))
    return row.kind, row.title, row.dtype, row.problem, parameters


def speed(row: Row, scope: str) -> float | None:
    """The median rate of a row in flop/s, of microbenchmarks of memory in bytes/s; None without one."""
    rate = rates.shown_rate(row, scope) if row.kind == "gemm" else rates.byte_rate(row)
    return rate.median if rate else None


def derived(run: Run, row: Row) -> dict[str, object]:
    """The JSON fields of a row of several devices at once; empty for other rows."""
    if not row.beside:
        return {}
    part = next((part for joint in joints_of(run) for part in joint.parts if part.together is row), None)
    slowdown = part.slowdown("kernel") if part else None
    fields = {"slowdown": "median", "slowdown_low": "low", "slowdown_high": "high"}
    return {name: getattr(slowdown, field, None) for name, field in fields.items()}


def shared(devices: Sequence[DeviceFacts], positions: Sequence[int]) -> tuple[tuple[int, ...], ...]:
    """Positions of devices that are one piece of hardware: two drivers of it, or parts of it.

    CPUs always are. Other devices are where their drivers give the same PCI address.
    """
    homes = ("cpu" if devices[position].type == "cpu" else devices[position].pci for position in positions)
    groups = by_key((home, position) for home, position in zip(homes, positions, strict=True) if home)
    return tuple(tuple(group) for group in groups.values() if len(group) > 1)


def _sum(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) if known and len(known) == len(values) else None


def _summed(measures: Sequence[Measure]) -> Measure:
    """The cost of a unit of work when it is spread over devices as their speeds are."""
    speeds = [math.exp(-measure.value) for measure in measures]
    total = sum(speeds)
    shares = [measure.error * part / total for measure, part in zip(measures, speeds, strict=True)]
    error = math.sqrt(sum(share**2 for share in shares))
    return Measure(-math.log(total), error, min(measure.freedom for measure in measures))


# --- The tables of several devices at once: each device alone and beside the others, and what all reach.


_MANY = 40  # lines; beyond it there is one for each kernel or probe, unless all are asked for


def sheets(run: Run, scope: str, order: Sequence[str] = (), verbose: bool = False) -> list[Sheet]:
    """A table for each kind and data type that several devices ran at once.

    The scope is of GEMMs; ``all`` stands for the run's own. If verbose, every device at every size, however
    many lines that makes.
    """
    scope = rates.view_scope(run) if scope == "all" else scope
    rank = {name: position for position, name in enumerate(order)}
    groups = by_key(((joint.row.kind, joint.row.dtype), joint) for joint in joints_of(run))
    tables = []
    for joints in groups.values():
        joints.sort(key=lambda joint: rank.get(joint.row.variant, len(rank)))
        lines = sum(len(joint.parts) + 1 for joint in joints)
        table = _every_device if verbose or lines <= _MANY else _every_size
        tables.append(table(run, joints, scope))
    return tables


def where(row: Row) -> str:
    """A row's size: the problem, or the bytes that a microbenchmark moves."""
    if row.problem is not None:
        return f"{clean(row.label)} {shape(row)}".strip()
    if "bytes" in row.parameters:
        return units.size(int(row.parameters["bytes"]))
    return f"width {row.parameters['width']}" if "width" in row.parameters else ""


def title(run: Run, positions: Sequence[int]) -> tuple[str, ...]:
    """``2 devices at once``, then each device, those of one name together."""
    named = by_key((clean(run.header.devices[position].title), position) for position in positions)
    pieces = (f"{', '.join(map(str, numbers))}: {name}" for name, numbers in named.items())
    return (f"{len(positions)} devices at once", *pieces)


def devices_of(joints: Sequence[Joint]) -> tuple[int, ...]:
    """The positions of the devices that ran any of these joints."""
    return tuple(sorted({device for joint in joints for device in joint.devices}))


# --- each device at each size -------------------------------------------------------------------------------


def _every_device(run: Run, joints: Sequence[Joint], scope: str) -> Sheet:
    """A line for each device, then one for all of them; of GEMMs, with the host scope beside another."""
    row = joints[0].row
    with_host = row.kind == "gemm" and scope != "host"
    lines: list[tuple[Cell, ...]] = []
    for joint in joints:
        name = f"{clean(joint.row.variant)} {where(joint.row)}".strip()
        for part in joint.parts:
            host = _of_part(part, "host")[:-1] if with_host else ()
            lines.append((Cell(name), Cell(str(part.device)), *_of_part(part, scope), *host))
            name = ""
        if joint.figured:
            host = _of_all(joint, "host")[:-1] if with_host else ()
            lines.append((Cell(""), Cell("all"), *_of_all(joint, scope), *host))
    hosts = (("host alone", "host at once", "host slowdown"),) if with_host else ()
    return Sheet(
        heading=title(run, devices_of(joints)),
        caption=f"{_what(row, scope)}: each device alone, then all at once; slowdown: the time at once over "
        "the time alone, with its 95 % interval",
        keys=("", "device"),
        blocks=(("alone", "at once", "slowdown", "interval"), *hosts),
        rows=tuple(lines),
        notes=_below(run, joints, scope, joints[0].row.kind != "gemm"),
    )


def _of_part(part: Part, scope: str) -> tuple[Cell, ...]:
    figures = (notes.figure(row, speed(row, scope) if row else None) for row in (part.alone, part.together))
    return *figures, *_ratio(part.slowdown(scope))


def _of_all(joint: Joint, scope: str) -> tuple[Cell, ...]:
    sums = (joint.sum_alone(scope), joint.aggregate(scope))
    figures = (Cell(units.gflops(value) if value else "-") for value in sums)
    return *figures, *_ratio(joint.total(scope))


def _ratio(slowdown: Interval | None) -> tuple[Cell, Cell]:
    if slowdown is None:
        return Cell("-"), Cell("-")
    interval = f"{units.number(slowdown.low)} to {units.number(slowdown.high)}"
    return Cell(units.number(slowdown.median)), Cell(interval)


# --- all devices together, size by size ---------------------------------------------------------------------


def _every_size(run: Run, joints: Sequence[Joint], scope: str) -> Sheet:
    """Kernels down, sizes across: what all devices reach at once; their slowdowns at the last size."""
    row = joints[0].row
    columns = tuple(dict.fromkeys(where(joint.row) for joint in joints))
    devices = devices_of(joints)
    best = {
        column: rates.best_of(joint.aggregate(scope) for joint in joints if where(joint.row) == column)
        for column in columns
    }
    lines = []
    for variant, of_variant in groupby(joints, key=lambda joint: joint.row.variant):
        by_size = {where(joint.row): joint for joint in of_variant}
        figured = [by_size[column] for column in columns if column in by_size and by_size[column].figured]
        last = figured[-1] if figured else None
        slowdowns = (part.slowdown(scope) if last and (part := last.part(each)) else None for each in devices)
        total = last.total(scope) if last else None
        lines.append(
            (
                Cell(clean(variant)),
                *(_aggregate(by_size.get(column), scope, best[column]) for column in columns),
                Cell(units.percent(1 / total.median) if total else "-"),
                *(_ratio(slowdown)[0] for slowdown in slowdowns),
            )
        )
    return Sheet(
        heading=title(run, devices),
        caption=f"{_what(row, scope)} of all devices at once, their sum; of alone, and the slowdown of each: "
        "at the largest size; * best of its column",
        blocks=(columns, ("of alone", *(f"slowdown {device}" for device in devices))),
        rows=tuple(lines),
        notes=(Note("", "-v shows each device at each size", "dim"), *_below(run, joints, scope, many=True)),
    )


def _aggregate(joint: Joint | None, scope: str, best: float | None) -> Cell:
    if joint is None:
        return Cell("")
    rate = joint.aggregate(scope)
    if rate is None:
        bad = next((part.together for part in joint.parts if part.together.status != "ok"), None)
        return notes.figure(bad or joint.row, None)
    return Cell(units.gflops(rate), rate == best)


def _what(row: Row, scope: str) -> str:
    if row.kind == "gemm":
        return f"{row.dtype} GFLOPS, {scope} scope"
    return "GB/s between host and device" if row.kind == "transfer" else "GB/s of memory"


def _below(run: Run, joints: Sequence[Joint], scope: str, many: bool) -> tuple[Note, ...]:
    """What went wrong, what shares its hardware, the conclusion; in few words where there are many rows."""
    parts = [part for joint in joints for part in joint.parts]
    rows = [part.together for part in parts]
    doubts = peak_table.brief_notes(run, rows, _on) if many else notes.noisy(run, rows, _on)
    news = dict.fromkeys(  # that the same case alone does not have
        f"{clean(part.together.variant)} at {_on(part.together)}: {clean(note)}"
        for part in (() if many else parts)
        for note in part.together.notes
        if note not in (part.alone.notes if part.alone else ())
    )
    return (
        *notes.troubles(rows, _on),
        *doubts,
        *(Note("note", text, "dim") for text in news),
        *_shared(run, joints),
        *_conclusions(joints, scope),
    )


def _on(row: Row) -> str:
    """A row's size and device, as notes name them; of a microbenchmark what was measured, too."""
    name = "" if row.kind == "gemm" else clean(row.variant)
    return f"{name} {where(row)} on {row.device}".strip()


def _shared(run: Run, joints: Sequence[Joint]) -> list[Note]:
    return [
        Note(
            "shared",
            f"{', '.join(map(str, others))} and {last} are the same hardware under several drivers, or parts "
            f"of it: they divide it, so a slowdown of about {len(others) + 1} is to be expected",
            "yellow",
        )
        for *others, last in shared(run.header.devices, devices_of(joints))
    ]


def _conclusions(joints: Sequence[Joint], scope: str) -> list[Note]:
    """The best aggregate: of GEMMs with transfers too, of transfers in each direction at the largest size."""
    kind = joints[0].row.kind
    if kind == "gemm":
        scopes = dict.fromkeys((scope, "host"))
        sentences = [sentence for wanted in scopes if (sentence := conclusion(joints, wanted))]
        return [Note("At once", f"{'; '.join(sentences)}.", "bold")] if sentences else []
    ways = [list(joints)]
    if kind == "transfer":
        largest = max(int(joint.row.parameters["bytes"]) for joint in joints)
        last = [joint for joint in joints if joint.row.parameters["bytes"] == largest]
        ways = [[each for each in last if each.row.variant.startswith(way)] for way in ("upload", "download")]
    return [Note("At once", f"{text}.", "bold") for way in ways if (text := conclusion(way, scope))]


def conclusion(joints: Sequence[Joint], scope: str) -> str:
    """The best aggregate of some, and what is left of the sum alone; "" where there is none."""
    reached = [(rate, joint) for joint in joints if (rate := joint.aggregate(scope))]
    if not reached:
        return ""
    best, joint = max(reached, key=lambda pair: pair[0])
    row, total, alone = joint.row, joint.total(scope), joint.sum_alone(scope)
    assert total is not None  # of every joint that has an aggregate
    assert alone is not None
    slowdowns = [ratio.median for part in joint.figured if (ratio := part.slowdown(scope))]
    spread = dict.fromkeys(map(units.number, (min(slowdowns), max(slowdowns))))
    what = f"GFLOPS in the {scope} scope" if row.kind == "gemm" else "GB/s"
    return (
        f"{units.gflops(best)} {what} with {clean(row.variant)} {where(row)}, "
        f"{units.percent(1 / total.median)} of the {units.gflops(alone)} that the devices reach one by one "
        f"(slowdown {' to '.join(spread)})"
    )
