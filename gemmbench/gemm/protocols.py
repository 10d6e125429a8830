"""One kernel under several measuring protocols: why a figure is lower, or higher, than somebody else's.

A protocol is an entry of `PROTOCOLS`: gemmbench's own, that with one thing changed, and those of other tools
by name, as their sources describe them. All are measured in turn, round by round, so that whatever the
machine does is in each of them. What is reported is each protocol's rate over that of gemmbench's own in the
same rounds.

Other tools' samples are taken as they take them; what is theirs beside that (a library's choice of a kernel,
a transposed operand) is not.
"""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from statistics import fmean, median, stdev
from typing import Any, Literal

from gemmbench.gemm.measure import WrongError, predict, verified_row, verified_row_after
from gemmbench.ladder import CLBLAST, CUBLAS, variant_of
from gemmbench.measure.sampling import Clock, Settling, Sleep, batch_size, rest
from gemmbench.model import units
from gemmbench.model.case import Case, Operands, Policy, Staged, Values
from gemmbench.model.device import Conditions, DeviceFacts, joined, last_level_cache
from gemmbench.model.instrument import (
    LEAST_SAMPLES,
    Batch,
    Handle,
    Instrument,
    InterruptedRow,
    Manner,
    NotMeasuredError,
)
from gemmbench.model.row import ProtocolSamples, Row
from gemmbench.model.run_file import Run
from gemmbench.model.units import MIB, clean
from gemmbench.report.table import NOTHING, Cell, Note, Sheet, heading
from gemmbench.stats import rates
from gemmbench.stats.conditions import disturbances
from gemmbench.stats.intervals import CONFIDENCE, Interval, student

Statistic = Literal["median", "mean", "minimum"]
State = Literal["settled", "burst", "own"]

_FLUSH_BYTES = 256 * MIB  # what triton and mamf-finder zero
_CACHES = -1  # zeroed: as many bytes as the last-level cache has
_APART, _CHAIN = Manner(), Manner(apart=False)
_REQUEST_S = 0.1  # about how long one request for launches takes
_MOST_LAUNCHES = 1000  # of a request
_BURST_S = 0.1
_ESTIMATES = 5  # launches that tell how long one takes, as triton has it
# A process of another tool's begins on a device that was idle for about so long. An H200 whose last load is
# less than 2 s ago is limited by 2 to 3 % more within the next 0.1 s, though its clock is at its maximum.
_IDLE_S = 3.0


@dataclass(frozen=True)
class Protocol:
    """How a kernel is measured. What is not said is as gemmbench's own protocol has it."""

    name: str
    idea: str  # what it does, in a line
    source: str = ""  # where another tool's is described
    operands: Values = "uniform"
    state: State = "settled"  # that the samples begin in; own: what the protocol's own warming leaves
    transposes_b: bool = False  # cuBLAS is given the transpose of B
    rests: bool = False  # of state own: on a device at rest, as a tool finds it that measures a single time
    warm_s: float = 0.0  # likewise: seconds in the first round; in the others as long as settling takes
    warm_launches: int = 0  # likewise, after these seconds
    warm_each_s: float = 0.0  # likewise, right before the samples: launches that fit, nothing flushed
    manner: Manner | None = None  # of launching and timing; None: gemmbench's batches
    flush_bytes: int = 0  # zeroed before each launch; `_CACHES`: as many as the last-level cache has
    samples: int = 0  # in each round; 0: as many as fit
    sampled_s: float = 0.0  # what they fit; 0: the run's sampling time
    loads_s: float = 0.0  # that the launches which tell how many fit take longer, together
    chain_s: float = 0.0  # how long a chain is, of which there is one; 0: as gemmbench's batches
    most_in_chain: int = 1_000_000
    stop: Literal["", "stdrel"] = ""  # a criterion that ends the samples
    statistic: Statistic = "median"

    @property
    def method(self) -> Protocol:
        """All of it but its name and its statistic: protocols of one method share their samples."""
        return replace(self, name="", idea="", source="", statistic="median")


OWN = "own"
# The first do_bench of a process timed 30 to 69 launches of 0.25 ms on an H200, not 400: 6.3 ms more, mostly.
_LOADING_S = 0.0063
NVBENCH_MIN_S, NVBENCH_NOISE, NVBENCH_TIMEOUT_S, NVBENCH_LEAST = 0.5, 0.005, 15.0, 10
_MAMF = "stas00/ml-engineering, compute/accelerator/benchmarks/mamf-finder.py, benchmark version 2"
_TRITON = "triton 3.5.0, triton/testing.py and backends/nvidia/driver.py"
_NVBENCH = "NVIDIA/nvbench at 66212f1, nvbench/detail/measure_{}, benchmark_base.cuh, stdrel_criterion.cxx"
_CLPEAK = "krrishnarraj/clpeak at a68fbf0, src/opencl/cl_peak.cpp and include/common/common.h"


def _mamf(name: str, statistic: Statistic, reported: str) -> Protocol:
    return Protocol(
        name,
        "30 s of warming, then 50 launches uncounted and 100 timed by events, 256 MiB zeroed and C "
        f"written anew before each; normal operands; reported as {reported}",
        _MAMF,
        operands="normal",
        transposes_b=True,
        state="own",
        warm_s=30.0,
        warm_launches=50,
        manner=replace(_APART, resets=True),
        flush_bytes=_FLUSH_BYTES,
        samples=100,
        statistic=statistic,
    )


def _do_bench(name: str, statistic: Statistic, how: str, loads_s: float = 0.0) -> Protocol:
    return Protocol(
        name,
        "25 ms of launches uncounted, then 100 ms of launches timed by events, 256 MiB zeroed before each; "
        f"normal operands, as in its tutorials; {how}",
        _TRITON,
        operands="normal",
        state="own",
        rests=True,
        warm_each_s=0.025,
        manner=_APART,
        flush_bytes=_FLUSH_BYTES,
        sampled_s=0.1,
        loads_s=loads_s,
        statistic=statistic,
    )


PROTOCOLS: tuple[Protocol, ...] = (
    Protocol(OWN, "gemmbench: settled, batches of 10 ms or more, warm, uniform operands, the median"),
    Protocol("mean", "the mean of the same samples", statistic="mean"),
    Protocol("minimum", "the fastest of the same samples", statistic="minimum"),
    Protocol("burst", "the first 0.1 s after a rest, before power limits the device", state="burst"),
    Protocol("normal", "operands from a normal distribution, as torch.randn makes them", operands="normal"),
    Protocol(
        "zeros",
        "operands of zeros, which switch few transistors: no figure of the kernel's real work",
        operands="zeros",
    ),
    Protocol("chain", "launches in a queue, from the first START to the last END: gaps count", manner=_CHAIN),
    Protocol(
        "graph",
        "the chain replayed: on NVIDIA's devices as a CUDA graph; else a command buffer, by the wall clock",
        manner=replace(_CHAIN, graph=True),
    ),
    Protocol(
        "wall", "the chain by the wall clock: enqueueing and waiting count", manner=replace(_CHAIN, wall=True)
    ),
    Protocol("launch", "each launch timed by itself, and waited for", manner=replace(_APART, waits=True)),
    Protocol(
        "cold",
        "each launch timed by itself, the caches emptied before it",
        manner=_APART,
        flush_bytes=_CACHES,
    ),
    _mamf("mamf-finder", "mean", "the mean"),
    _mamf("mamf-finder-median", "median", "the median"),
    _mamf("mamf-finder-max", "minimum", "the fastest"),
    _do_bench("do_bench", "mean", "the mean, its default"),
    _do_bench("do_bench-median", "median", "the median (return_mode)"),
    _do_bench(
        "do_bench-first",
        "mean",
        "as the first call of a process, which loads the kernel that zeros while it estimates how many "
        "launches fit: 60 and fewer on an H200, before power limits it; the mean",
        loads_s=_LOADING_S,
    ),
    Protocol(
        "nvbench-cold",
        "a launch at a time, the caches zeroed and the stream held until it is enqueued; 0.5 s of kernel "
        "time and 10 samples until their deviation is 0.5 % or steady; the mean. Throttled samples, which it "
        "discards, are kept here",
        _NVBENCH.format("cold.cuh"),
        state="own",
        rests=True,
        warm_launches=1,
        manner=replace(_APART, waits=True, held=True),
        flush_bytes=_CACHES,
        stop="stdrel",
        statistic="mean",
    ),
    Protocol(
        "nvbench-batch",
        "a chain of 0.5 s, warm, by events around it; the mean",
        _NVBENCH.format("hot.cuh"),
        state="own",
        rests=True,
        warm_launches=1,
        manner=_CHAIN,
        chain_s=0.5,
        statistic="mean",
    ),
    Protocol(
        "clpeak",
        "two launches uncounted, then a chain of 0.5 s by the wall clock, 10,000 launches at most; the mean",
        _CLPEAK,
        state="own",
        rests=True,
        warm_launches=2,
        manner=replace(_CHAIN, wall=True),
        chain_s=0.5,
        most_in_chain=10_000,
        statistic="mean",
    ),
)
BY_NAME: Mapping[str, Protocol] = {protocol.name: protocol for protocol in PROTOCOLS}
NAMES: tuple[str, ...] = tuple(BY_NAME)
OTHERS: tuple[str, ...] = tuple(name for name in NAMES if name != OWN)


def expected_s(names: Sequence[str], rounds: int, each_s: float) -> float:
    """About how long protocols sample and warm, for the first estimate."""
    total = 0.0
    for protocol in _methods(names):
        own = protocol.sampled_s or protocol.chain_s or (each_s if not protocol.samples else 0.0)
        total += protocol.warm_s + rounds * (
            own + protocol.warm_each_s + (each_s if not protocol.source else 0)
        )
    return total


def figure(statistic: str, seconds: Sequence[float]) -> float:
    """What a protocol makes of the samples of a round, in seconds."""
    if statistic == "minimum":
        return min(seconds)
    return float(median(seconds) if statistic == "median" else fmean(seconds))


def _methods(names: Sequence[str]) -> list[Protocol]:
    """The first protocol of each method."""
    return list({BY_NAME[name].method: BY_NAME[name] for name in reversed(names)}.values())[::-1]


# --- measuring ----------------------------------------------------------------------------------------------


def measured(
    instrument: Instrument,
    case: Case,
    device: DeviceFacts | None,
    policy: Policy,
    now: Clock = time.monotonic,
    sleep: Sleep = time.sleep,
) -> Generator[Staged, None, Row]:
    """Verify a kernel and measure it by its case's protocols, in turn; its row, without samples of its own.

    Args:
        instrument: runs it.
        case: of kind ``protocols``, with protocols and rounds.
        device: None for the host.
        policy: of which `Policy.sampling_s` is for each protocol in each round.
        now: seconds; replaced in tests.
        sleep: waits so many seconds; replaced in tests.

    Raises:
        InterruptedRow: Ctrl-C, after whole rounds.
        NotMeasuredError: there is no rate, and why.
    """
    plain = replace(case, kind="gemm", protocols=(), rounds=0)
    methods = _methods(case.protocols)
    yield Staged("building")
    with ExitStack() as stack:
        handles: dict[Operands, Handle] = {}
        try:
            is_exact = predict(instrument, plain, device, policy)
            for operands in dict.fromkeys(_operands(protocol, case) for protocol in methods):
                of_these = replace(plain, operands=operands)
                handles[operands] = stack.enter_context(instrument.prepare(of_these, device, policy))
                yield Staged(f"verifying, {operands.values} operands")
                row = verified_row(plain, handles[operands], is_exact)
                is_exact = True
        except WrongError as error:
            return _of_kind(error.row)
        rounds = _Rounds(methods, case, device, policy, now, sleep)
        after = row
        try:
            yield from rounds.run(handles)
            for operands, handle in handles.items():
                yield Staged(f"verifying again, {operands.values} operands")
                after = verified_row_after(after, handle)
                if after.status == "wrong":
                    return _of_kind(after)
        except KeyboardInterrupt:
            if not rounds.done:
                raise
            note = f"interrupted after {rounds.done} of {case.rounds} rounds: not verified again"
            raise InterruptedRow(rounds.completed(replace(row, notes=(*row.notes, note)))) from None
    return rounds.completed(after)


def _operands(protocol: Protocol, case: Case) -> Operands:
    takes_transpose = variant_of(case).executor == CUBLAS
    return Operands(values=protocol.operands, transposed_b=protocol.transposes_b and takes_transpose)


def _of_kind(row: Row) -> Row:
    """A row of the measured kernel as one of protocols: it has no samples that another table could take."""
    return replace(row, kind="protocols", samples={}, resources=(), launches=(), conditions=None)


@dataclass
class _Method:
    """What one method has measured so far."""

    rounds: list[tuple[float, ...]] = field(default_factory=list)
    clock: str = ""
    reason: str = ""
    clocks_mhz: list[float] = field(default_factory=list)
    powers_w: list[float] = field(default_factory=list)

    def add(self, samples: Sequence[float], clock: str, conditions: Conditions | None) -> None:
        self.rounds.append(tuple(float(f"{seconds:.7g}") for seconds in samples))
        self.clock = clock
        for window in conditions.windows.values() if conditions else ():
            self.clocks_mhz += [value for value in window.clock_mhz if value is not None]
            self.powers_w += [value for value in window.power_w if value is not None]


@dataclass
class _Rounds:
    """Takes the methods in turn, every other round in the reverse order."""

    methods: Sequence[Protocol]
    case: Case
    device: DeviceFacts | None
    policy: Policy
    now: Clock
    sleep: Sleep
    done: int = 0  # whole rounds
    conditions: list[Conditions | None] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.results = {protocol.method: _Method() for protocol in self.methods}

    def run(self, handles: Mapping[Operands, Handle]) -> Iterator[Staged]:
        for number in range(self.case.rounds):
            for protocol in self.methods[:: -1 if number % 2 else 1]:
                result = self.results[protocol.method]
                if result.reason:
                    continue
                yield Staged(f"round {number + 1} of {self.case.rounds}: {protocol.name}")
                handle = handles[_operands(protocol, self.case)]
                taking = _Taking(protocol, self._manner(protocol), handle, self.policy, self.now)
                try:
                    samples, clock, conditions = taking.round(number == 0, self.sleep)
                    is_wall = variant_of(self.case).executor == CLBLAST  # its batches' clock
                    result.add(samples, "wall" if is_wall else clock, conditions)
                    self.conditions.append(conditions)
                except NotMeasuredError as error:
                    if error.status != "unsupported" or error.restart:
                        raise
                    result.reason = error.reason
            self.done += 1

    def completed(self, row: Row) -> Row:
        """The row with the protocols' samples of whole rounds."""
        entries: list[ProtocolSamples] = []
        first: dict[Protocol, str] = {}
        for name in self.case.protocols:
            protocol = BY_NAME[name]
            result, like = self.results[protocol.method], first.setdefault(protocol.method, name)
            entries.append(
                ProtocolSamples(
                    name,
                    protocol.operands,
                    protocol.statistic,
                    result.clock,
                    rounds=() if like != name else tuple(result.rounds[: self.done]),
                    like="" if like == name else like,
                    reason=result.reason,
                    clock_mhz=round(median(result.clocks_mhz), 1) if result.clocks_mhz else None,
                    power_w=round(median(result.powers_w), 1) if result.powers_w else None,
                )
            )
        on_cpu = self.device is None or self.device.type == "cpu"
        disturbed = disturbances(joined(self.conditions), on_cpu)
        notes = [f"disturbed: {', '.join(disturbed)}"] if disturbed else []
        return replace(_of_kind(row), protocols=tuple(entries), notes=(*row.notes, *notes))

    def _manner(self, protocol: Protocol) -> Manner | None:
        """The protocol's, with the bytes that it flushes on this device."""
        flushed = protocol.flush_bytes
        if flushed == _CACHES:
            flushed = last_level_cache(self.device) if self.device else _FLUSH_BYTES
        return protocol.manner and replace(protocol.manner, flush_bytes=flushed)


@dataclass
class _Taking:
    """One round of one protocol."""

    protocol: Protocol
    manner: Manner | None  # of the protocol, with the bytes that it flushes
    handle: Handle
    policy: Policy
    now: Clock
    size: int = 1  # launches in a sample
    batches: list[Batch] = field(default_factory=list)
    clock: str = ""

    def round(self, is_first: bool, sleep: Sleep) -> tuple[list[float], str, Conditions | None]:
        """Warm or rest, and sample: the seconds of each sample, the clock that told them, the conditions."""
        protocol, watch = self.protocol, self.handle.watch
        apart = self.manner is not None and self.manner.apart
        watch.begin()
        if protocol.rests and watch.load_s:
            rest(watch, self.now, sleep, _IDLE_S)
        elif protocol.rests or protocol.state == "burst":
            rest(watch, self.now, sleep)
        if apart:
            self._run(1)
        self._run(_ESTIMATES if apart else 1)
        one_s = self.batches[-1].wall_s  # of one launch in the protocol's manner
        if not apart:
            one_s = max(one_s, 1e-9)
            wanted = int(protocol.chain_s / one_s) + 1 if protocol.chain_s else batch_size(one_s, self.policy)
            self.size = min(wanted, protocol.most_in_chain)
        each = max(1, min(_MOST_LAUNCHES, int(_REQUEST_S / one_s))) if apart else 1
        if protocol.state == "settled":
            self._settle(each, one_s * (each if apart else self.size))
        elif protocol.state == "own":
            self._warm(is_first, each)
        one_s += protocol.loads_s / _ESTIMATES
        if protocol.warm_each_s and self.manner:
            self.manner = replace(self.manner, warms=max(1, int(protocol.warm_each_s / one_s)))
        self.batches = []
        samples = self._sampled(one_s, each)
        return samples, self.clock, watch.end(self.clock, self.batches)

    def _sampled(self, one_s: float, each: int) -> list[float]:
        protocol, policy, samples = self.protocol, self.policy, list[float]()
        begin = self.now()
        if protocol.chain_s:
            return self._run(1)
        if protocol.stop:
            rule = StdRel()
            while not rule.is_finished and self.now() - begin < NVBENCH_TIMEOUT_S:
                samples += self._run(each)
                rule.add(samples[-each:])
            return samples
        wanted = protocol.samples
        if not wanted and protocol.sampled_s:
            wanted = max(1, int(protocol.sampled_s / one_s))
        limit_s = _BURST_S if protocol.state == "burst" else policy.sampling_s
        while len(samples) < (wanted or LEAST_SAMPLES) or (not wanted and self.now() - begin < limit_s):
            samples += self._run(min(each, wanted - len(samples)) if wanted else each)
        return samples

    def _settle(self, each: int, batch_s: float) -> None:
        settling = Settling(self.policy, batch_s, self.now(), self.policy.sampling_s, self.handle.watch)
        while not settling.over(self.now()):
            self._run(each)
            settling.add(self.batches[-1])

    def _warm(self, is_first: bool, each: int) -> None:
        protocol = self.protocol
        again_s = min(protocol.warm_s, self.policy.settle_s if self.handle.watch.load_s else 0.0)
        end = self.now() + (protocol.warm_s if is_first else again_s)
        while self.now() < end:
            self._run(each)
        left = protocol.warm_launches
        size, self.size = self.size, 1
        while left > 0:
            self._run(min(left, each))
            left -= min(left, each)
        self.size = size

    def _run(self, count: int) -> list[float]:
        """So many samples; of what is no launch by itself, one."""
        if self.manner is None:
            batch = self.handle.batch(self.handle.prepared.clocks[0], self.size)
            scope = "device" if "device" in batch.seconds else "host"
        else:
            batch = self.handle.launches(count if self.manner.apart else self.size, self.manner)
            scope = next(iter(batch.seconds))
            self.manner = replace(self.manner, warms=0)
        self.batches.append(batch)
        self.clock = "wall" if scope == "host" else "stamps"
        return list(batch.each.get(scope, (batch.seconds[scope],)))


class StdRel:
    """nvbench's criterion ``stdrel`` with its defaults: enough time, and little or steady noise."""

    _KEPT, _LEAST_KEPT, _STEADY = 512, 64, 0.05

    def __init__(self) -> None:
        self._count, self._mean, self._squares = 0, 0.0, 0.0
        self._noises: deque[float] = deque(maxlen=self._KEPT)

    def add(self, samples: Sequence[float]) -> None:
        """More samples, in seconds."""
        for seconds in samples:
            self._count += 1
            off = seconds - self._mean
            self._mean += off / self._count
            self._squares += off * (seconds - self._mean)
            if self._count > 1:
                self._noises.append(math.sqrt(self._squares / (self._count - 1)) / self._mean)

    @property
    def is_finished(self) -> bool:
        """Whether there are samples enough."""
        if self._count < NVBENCH_LEAST or self._count * self._mean <= NVBENCH_MIN_S:
            return False
        last = self._noises[-1]
        if last < NVBENCH_NOISE:
            return True
        around = math.sqrt(fmean([(noise - last) ** 2 for noise in self._noises]))
        return len(self._noises) > self._LEAST_KEPT and around < self._STEADY * last


# --- The table of `protocols`: each protocol's figure, and how far it lies from gemmbench's own -------------


ZEROS = "zeros"
MARK = " !"
_WIDE = 10.0  # times the lower end: such an interval says nothing
WARNING = "operands of zeros: shown beside the others here, and in no other table, chart or comparison"


@dataclass(frozen=True)
class Line:
    """One protocol's figure."""

    samples: ProtocolSamples
    flops_per_s: float | None  # by the geometric mean of the rounds' figures; None: not measured
    ratio: Interval | None  # of its rate over that of gemmbench's own, round by round; None: not known
    rounds: int
    count: int  # samples in a round, the median

    @property
    def is_zeros(self) -> bool:
        """Whether it is a figure of no real work."""
        return self.samples.operands == ZEROS

    @property
    def title(self) -> str:
        """Its name, marked where its figure is not to be quoted."""
        return clean(self.samples.name) + (MARK if self.is_zeros else "")

    @property
    def protocol(self) -> Protocol | None:
        """What it is; None of a file of another version's."""
        return BY_NAME.get(self.samples.name)


def lines(row: Row) -> list[Line]:
    """The protocols of a row in their order.

    The ratio's interval is Student's, over the logarithms of the rounds' ratios; of a single round it has
    no width.
    """
    entries = row.protocols or ()
    by_name = {entry.name: entry for entry in entries}
    own = [_log(entry, by_name) for entry in entries if entry.name == OWN]
    flops = rates.gemm_of(row).flops
    made = []
    for entry in entries:
        logs = _log(entry, by_name)
        ratio = None
        if logs and own and len(own[0]) == len(logs):
            ratio = _interval([before - after for before, after in zip(own[0], logs, strict=True)])
        count = sorted(map(len, _rounds(entry, by_name)))
        made.append(
            Line(
                entry,
                flops / math.exp(fmean(logs)) if logs else None,
                ratio,
                len(logs),
                count[len(count) // 2] if count else 0,
            )
        )
    return made


def _rounds(entry: ProtocolSamples, by_name: Mapping[str, ProtocolSamples]) -> tuple[tuple[float, ...], ...]:
    return by_name[entry.like].rounds if entry.like in by_name else entry.rounds


def _log(entry: ProtocolSamples, by_name: Mapping[str, ProtocolSamples]) -> list[float]:
    return [math.log(figure(entry.statistic, seconds)) for seconds in _rounds(entry, by_name)]


def _interval(logs: Sequence[float]) -> Interval:
    centre = fmean(logs)
    half = 0.0
    if len(logs) > 1:
        half = student(CONFIDENCE, len(logs) - 1) * stdev(logs) / math.sqrt(len(logs))
    return Interval(math.exp(centre), math.exp(centre - half), math.exp(centre + half))


# --- as a table ---------------------------------------------------------------------------------------------


def sheets(run: Run) -> list[Sheet]:
    """A table for each kernel."""
    return [_sheet(run, row) for row in run.rows if row.kind == "protocols"]


def _sheet(run: Run, row: Row) -> Sheet:
    shown = lines(row)
    rounds = max((line.rounds for line in shown), default=0)
    speaks = any(line.samples.clock_mhz or line.samples.power_w for line in shown)
    conditions = (("MHz", "W"),) if speaks else ()
    problem = rates.gemm_of(row)
    what = f"{clean(row.title)}, {row.dtype}, {problem.shape}"
    if row.status != "ok":
        return Sheet(heading(run, row.device), f"{what}: {row.status}", notes=(Note(row.status, row.reason),))
    return Sheet(
        heading=heading(run, row.device),
        caption=f"{what}: rates by protocol, and against gemmbench's own in the same {rounds} rounds",
        keys=("protocol",),
        blocks=(
            (rates.unit(row.dtype), "difference", "95 %"),
            ("operands", "timed by", "statistic", "samples"),
            *conditions,
        ),
        rows=tuple(_cells(line, speaks) for line in shown),
        notes=_notes(row, shown),
        left=frozenset({"operands", "timed by", "statistic"}),
    )


def _cells(line: Line, speaks: bool) -> tuple[Cell, ...]:
    entry = line.samples
    style = "yellow" if line.is_zeros else ""
    measured = line.flops_per_s is not None
    figures = (
        Cell(units.gflops(line.flops_per_s or 0.0), style=style) if measured else NOTHING,
        Cell(_difference(line), style=style),
        Cell(_within(line), style=style),
    )
    how = (
        Cell(clean(entry.operands), style=style),
        Cell(clean(entry.clock) or "-"),
        Cell(clean(entry.statistic)),
        Cell(f"{line.rounds} x {line.count}" if measured else "-"),
    )
    reported = (entry.clock_mhz, entry.power_w) if speaks else ()
    said = (NOTHING if value is None else Cell(units.number(value)) for value in reported)
    return (Cell(line.title, style=style), *figures, *how, *said)


def _difference(line: Line) -> str:
    if line.ratio is None:
        return "-"
    return "" if line.samples.name == OWN else signed(line.ratio.median - 1)


def _within(line: Line) -> str:
    if line.ratio is None or line.samples.name == OWN or line.rounds < 2:
        return ""
    if line.ratio.high > _WIDE * line.ratio.low:
        return "too wide"
    return f"{signed(line.ratio.low - 1)} to {signed(line.ratio.high - 1)}"


def signed(share: float) -> str:
    """A difference in per cent: ``+1.2 %``."""
    return f"{share * 100:+.1f} %"


def _notes(row: Row, shown: Sequence[Line]) -> tuple[Note, ...]:
    notes = [Note(line.title, line.protocol.idea if line.protocol else "not known here") for line in shown]
    notes += [
        Note(f"{line.title} not measured", line.samples.reason) for line in shown if line.samples.reason
    ]
    unclear = sum(line.ratio is not None and line.ratio.low < 1 < line.ratio.high for line in shown)
    if unclear:
        counted = f"{unclear} of {len(shown)} differences are smaller than their interval"
        notes.append(Note("noise", f"{counted}: more --rounds, or a quieter machine, tell them"))
    if any(line.is_zeros for line in shown):
        notes.append(Note(f"zeros{MARK}", WARNING, style="yellow"))
    return (*notes, *(Note("note", text) for text in row.remarks))


# --- for other programs -------------------------------------------------------------------------------------

# fmt: off
CSV_FIELDS: tuple[str, ...] = (
    "protocol", "variant", "device", "dtype", "m", "n", "k", "gflops", "difference", "low", "high",
    "operands", "zero_operands", "clock", "statistic", "rounds", "samples", "clock_mhz", "power_w", "reason",
    "idea", "described_in", "status", "parameters", "notes",
)
# fmt: on


def records(row: Row) -> list[dict[str, Any]]:
    """A plain dictionary for each protocol: rates in 1e9 per second, differences as shares of our own."""
    about = {name: getattr(row, name) for name in ("variant", "device", "dtype")}
    about |= rates.problem_fields(row.problem, "m", "n", "k", "trans_a", "trans_b")
    made = []
    for line in lines(row):
        entry, ratio = line.samples, line.ratio
        made.append(
            {
                "protocol": entry.name,
                **about,
                "gflops": None if line.flops_per_s is None else line.flops_per_s / 1e9,
                "difference": ratio and ratio.median - 1,
                "low": ratio and ratio.low - 1,
                "high": ratio and ratio.high - 1,
                "operands": entry.operands,
                "zero_operands": line.is_zeros,
                "clock": entry.clock,
                "statistic": entry.statistic,
                "rounds": line.rounds,
                "samples": line.count,
                "clock_mhz": entry.clock_mhz,
                "power_w": entry.power_w,
                "reason": entry.reason,
                "idea": line.protocol.idea if line.protocol else "",
                "described_in": line.protocol.source if line.protocol else "",
            }
        )
    return made
