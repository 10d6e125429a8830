"""The instrument: what a parent asks of the process that holds the drivers, and what that answers.

A request and an answer are one message of JSON each, ``["verb", {...}]``, over `multiprocessing.connection`.
Answers come in the order of the requests.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, Protocol

from gemmbench.model import quiet
from gemmbench.model.case import Case, Policy
from gemmbench.model.device import Conditions, DeviceFacts, HostFacts
from gemmbench.model.problem import Gemm
from gemmbench.model.row import Check, Elements, Launch, Parameters, Resources, Row, Scope, Status, Work
from gemmbench.model.units import seconds

PROTOCOL = 2

When = Literal["exact", "before", "after"]
"""exact: on small integer problems with guard cells; before: the timed operands, before the first batch;
after: what the last batch left, and one more problem."""


@dataclass(frozen=True)
class Open:
    """List the devices, or describe the host and its BLAS, or open a device."""

    host: bool = False  # describe the host: no driver is loaded
    device: DeviceFacts | None = None  # open this one, and list nothing


@dataclass(frozen=True)
class Build:
    """Compile a case's kernels and run nothing."""

    case: Case
    device: DeviceFacts


@dataclass(frozen=True)
class Prepare:
    """Compile a case (from its ``kernels`` folder, if any) and place its operands."""

    handle: int  # that later requests name it by; the parent's choice
    case: Case
    device: DeviceFacts | None  # None: the host
    policy: Policy  # for its ``memory``, its ``cold`` and, where it is verified, its budget
    like: int | None = None  # a handle whose operands it shares
    problem: Gemm | None = None  # the case's kernels on another problem: a trial


@dataclass(frozen=True)
class Verify:
    """Check what the timed launches compute."""

    handle: int
    when: When


@dataclass(frozen=True)
class AskBatch:
    """Run problems back to back."""

    handle: int
    clock: str
    count: int
    work: int = 1  # times the trips of a probe's loop


@dataclass(frozen=True)
class ControlBurst:
    """Fixed work that keeps all cores of a CPU busy for 0.7 ms."""

    handle: int
    clock: str
    count: int
    operations: int  # in one burst


@dataclass(frozen=True)
class AskSeries:
    """Run batches between control bursts, at least one."""

    handle: int
    clock: str
    count: int
    work: int
    control: ControlBurst
    seconds: float


@dataclass(frozen=True)
class Release:
    """Give a handle's memory back."""

    handle: int


Request = Open | Build | Prepare | Verify | AskBatch | AskSeries | Release


@dataclass(frozen=True)
class Opened:
    """What the instrument is, and what it measures on."""

    devices: tuple[DeviceFacts, ...]  # none if the host was asked for
    host: HostFacts | None  # None if the devices were asked for
    protocol: int
    gemmbench: str  # its version
    problems: tuple[tuple[str, str], ...] = ()  # of drivers that show no device, each with its fix or ""


@dataclass(frozen=True)
class Built:
    """A case's kernels as compiled."""

    build_s: float | None = None
    resources: tuple[Resources, ...] = ()
    choice: Parameters = field(default_factory=dict)  # what was chosen for the problem
    source: str = ""  # hash of the kernel source and its -D list


@dataclass(frozen=True)
class Prepared:
    """A case that is ready to run."""

    clocks: tuple[str, ...]  # that batches can be timed by: those of the device, then "host"
    ahead: tuple[str, ...] = ()  # those whose batches can be enqueued while another runs
    built: Built = field(default_factory=Built)
    memory: str = ""  # how operands reach the device: mapped, staged, pageable
    sets: int = 1  # of operands that it rotates among
    notes: tuple[str, ...] = ()  # for the row, where it has samples
    unit: Work = field(default_factory=Work)  # what a problem of a probe or of numpy does with ``work=1``
    parts: bool = False  # whether clock "parts" splits the host's: seconds of every problem, by `row.PARTS`
    cycle: bool = False  # whether clock "cycle" does so of a whole map cycle
    trips: tuple[int, int] = (1, 1)  # the least and the most ``work`` of a probe that is measured


@dataclass(frozen=True)
class Verified:
    """What a verification established."""

    check: Check
    launches: tuple[Launch, ...] = ()  # the device's stamps of one run; none if they are not known
    matrices: dict[str, Elements] = field(default_factory=dict)  # see `Row.matrices`
    notes: tuple[str, ...] = ()  # for the row


@dataclass(frozen=True)
class Batch:
    """One batch. Stamps are in seconds of `time.perf_counter`, which all processes share."""

    seconds: Mapping[str, float]  # of one problem, by scope; the finest scope first
    begin: float
    end: float
    count: int = 1
    each: Mapping[str, tuple[float, ...]] = field(default_factory=dict)  # of every problem, if timed
    device: tuple[float, float] | None = None  # first START and last END in seconds of the device's clock
    launch_s: float | None = None  # what all its launches cost, by the wall clock; None: not timed by events
    ahead_s: float = 0.0  # how long before its begin it was asked for, while another batch ran
    bursts_s: tuple[float, ...] = ()  # the control bursts before and after, in seconds for 10^9 operations
    waited_s: float | None = None  # the longest wait of a thread for a core; None: not known

    @property
    def finest_s(self) -> float:
        """Seconds of one problem in the finest scope, which decides."""
        return next(iter(self.seconds.values()))

    @property
    def wall_s(self) -> float:
        return (self.end - self.begin) / self.count


@dataclass(frozen=True)
class Series:
    """Batches with the control bursts between them, oldest first."""

    batches: tuple[Batch, ...]


@dataclass(frozen=True)
class Released:
    """A handle is gone."""


@dataclass(frozen=True)
class Refusal:
    """`NotMeasuredError` as a message."""

    status: Status
    reason: str
    restart: bool = False
    needs_s: float | None = None


Answer = Opened | Built | Prepared | Verified | Batch | Series | Released | Refusal


class NotMeasuredError(Exception):
    """A case ends without a rate: the row's status, and the reason for the user.

    `restart`: the next case needs a new process. `needs_s`: the predicted seconds of a case that is over
    budget. `handle`: whose answer was waited for.
    """

    handle: int | None = None

    def __init__(
        self, status: Status, reason: str, restart: bool = False, needs_s: float | None = None
    ) -> None:
        super().__init__(reason)
        self.status, self.reason, self.restart, self.needs_s = status, reason, restart, needs_s


LEAST_SAMPLES = 3  # of each scope of a row, even if they take longer than its budget
LONGEST_S = 2.0  # of a problem: a longer one is over budget, unless --budget is larger


def too_slow(predicted_s: float, policy: Policy) -> NotMeasuredError | None:
    """The error for a problem that takes longer than the budget (2 s at least), or None."""
    if predicted_s <= max(LONGEST_S, policy.budget_s):
        return None
    reason = f"one problem takes about {seconds(predicted_s)}; --budget {math.ceil(predicted_s)} runs it"
    return NotMeasuredError("skipped", reason, needs_s=predicted_s)


def is_too_slow(row: Row) -> bool:
    """Whether a row is over budget."""
    return row.status == "skipped" and row.needs_s is not None


class LostError(NotMeasuredError):
    """The instrument died or outlasted its time; its handles are prepared again when next used."""


class Instrument(Protocol):
    """Prepares, verifies and times cases. `measure.child.Worker` is the real one.

    Every method raises `NotMeasuredError` if the instrument refuses, `LostError` if it is gone.
    """

    def build(self, case: Case, device: DeviceFacts) -> Built: ...

    def prepare(
        self, case: Case, device: DeviceFacts | None, policy: Policy, like: int | None = None,
        problem: Gemm | None = None,
    ) -> Handle:  # fmt: skip
        ...

    def for_old(self, old: Case, device: DeviceFacts | None) -> tuple[Instrument, Case, DeviceFacts | None]:
        """What times an old version, with the case and the device as it knows them; a process of its own."""

    def verify(self, handle: int, when: When) -> Verified: ...

    def start(self, handle: int, clock: str, count: int, work: int = 1) -> None: ...

    def finish(self) -> Batch: ...

    def series(self, request: AskSeries) -> Series: ...

    def release(self, handle: int) -> None:
        """Free a handle's memory. Do nothing if the instrument's process is gone."""


class Watch:
    """Reads what a device and its host do while batches run. This one reads nothing, `Monitor` does."""

    warm_s = 0.05  # how long a row is warmed up
    limit_s = 0.0  # how long a load runs until the device reports that it is limited; 0: it reports nothing
    load = ("", 0.0, 0.0)  # the last load that may be limited: see `Handle.load`; its begin and end
    tick_s = 0.0  # the resolution of the clocks that time batches

    def begin(self) -> None: ...

    def end(self, clock: str, batches: Sequence[Batch]) -> Conditions | None:
        return None


@dataclass
class Bursts:
    """The control bursts of one process: what makes one, and those that were seen."""

    control: ControlBurst
    known_s: float = 0.0  # the reference of earlier runs, see `quiet.known`; 0 if unknown
    seen_s: list[float] = field(default_factory=list)

    def settled(self, scope: Scope) -> Scope:
        return quiet.settle(scope, quiet.choose_reference(self.seen_s, self.known_s))


@dataclass(frozen=True)
class Handle:
    """A prepared case of an instrument."""

    instrument: Instrument
    number: int
    prepared: Prepared
    watch: Watch = field(default_factory=Watch, kw_only=True)
    work: int = field(default=1, kw_only=True)  # of a probe: the units of work in a problem
    load: str = field(default="", kw_only=True)  # kernel and type; "" of float, which no device limits
    bursts: Bursts | None = field(default=None, kw_only=True)  # on a CPU

    def verify(self, when: When) -> Verified:
        return self.instrument.verify(self.number, when)

    def start(self, clock: str, count: int, work: int = 1) -> None:
        self.instrument.start(self.number, clock, count, work * self.work)

    def finish(self) -> Batch:
        return self.instrument.finish()

    def batch(self, clock: str, count: int, work: int = 1) -> Batch:
        self.start(clock, count, work)
        return self.finish()

    def series(self, clock: str, count: int, seconds: float) -> tuple[Batch, ...]:
        assert self.bursts is not None
        request = AskSeries(self.number, clock, count, self.work, self.bursts.control, seconds)
        batches = self.instrument.series(request).batches
        for batch in batches:
            self.bursts.seen_s.extend(batch.bursts_s)
        return batches

    def release(self) -> None:
        self.instrument.release(self.number)

    def __enter__(self) -> Handle:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is None or issubclass(kind, Exception):  # who interrupts does not wait for an answer
            self.release()
