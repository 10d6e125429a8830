"""Rows and header of a saved run: frozen dataclasses. Times are seconds, sizes bytes, rates never stored."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timezone
from functools import cached_property
from typing import Annotated, Literal

from msgspec import UNSET, Meta, UnsetType

from gemmbench.model import quiet
from gemmbench.model.device import Conditions
from gemmbench.model.problem import Dimensions
from gemmbench.model.units import list_values

SHOWN = 8  # rows and columns of a matrix whose numbers a row keeps

Elements = tuple[tuple[float, ...], ...]  # of a matrix, row by row
Kind = Literal["gemm", "peak", "bandwidth", "transfer", "latency"]
Status = Literal["ok", "wrong", "unsupported", "skipped", "failed", "crashed", "timed-out"]
Verdict = Literal["ok", "wrong", "suspect", "none"]
RanOn = Literal["device", "matrix", "host"]
Parameters = dict[str, int | float | str]
Length = Annotated[int, Meta(ge=0)]
Positive = Annotated[float, Meta(gt=0)]  # a time, or watts and joules
Parts = dict[str, tuple[Annotated[float, Meta(ge=0)], ...]]  # seconds by name, for each problem

FAILED: tuple[Status, ...] = ("wrong", "crashed", "failed", "timed-out")  # of a case that ran

SCOPES: tuple[str, ...] = ("kernel", "device", "host")

CHAIN = "chain"  # samples of a chain of launches on a GPU, first START to last END; see GRAPH
GRAPH = "graph"  # samples of a CUDA graph of launches, in saved runs that compare kernels with cuBLAS
MATH = "math"  # the parameter that a row has in addition to its kernel's own with --math
NO_CLOCK = "the driver has no event times, so the host's clock timed the kernel"  # a row's note

ADDS_IN_HALF = "adds in half"  # how a row's note begins if that has cost a saved result much

# How OpenCL kernels are compiled: ``fast`` with ``-cl-fast-relaxed-math``, ``strict`` without. Either may
# contract a multiplication and an addition to one FMA, rounded once: the kernels allow it.
MATHS: tuple[str, ...] = ("strict", "fast")

# The parts of the host scope, in their order: see `Row.parts`. Upload and download copy; mapped memory they
# unmap and map. Passes and kernel are by the device's stamps, waiting is what the host waits beyond them. If
# a library reports no kernel, passes has all launches. Only a map cycle has map and fill.
PARTS: tuple[str, ...] = ("map", "fill", "upload", "enqueue", "passes", "kernel", "waiting", "download")
WHOLE = "whole"  # next to the parts: the same problems by the wall clock alone
CYCLE = "cycle"  # the clock of a whole map cycle: A, B, C mapped, filled, unmapped, multiplied, mapped back


@dataclass(frozen=True)
class Problem(Dimensions):
    """The GEMM of a row: C = alpha A B + beta C."""

    m: Length
    n: Length
    k: Length
    alpha: float = 1.0
    beta: float = 0.0
    ld: tuple[Length, Length, Length] | UnsetType = UNSET  # lda, ldb, ldc, where rows are not tight
    trans_a: bool | UnsetType = UNSET  # true where A is stored transposed, k x m
    trans_b: bool | UnsetType = UNSET  # true where B is stored transposed, n x k
    batch: Annotated[int, Meta(ge=2)] | UnsetType = UNSET  # problems in a launch, where there are several


@dataclass(frozen=True)
class Scope:
    """The raw samples of one clock: one for each batch, in seconds for one problem (or launch)."""

    seconds: tuple[Positive, ...]
    batch: Annotated[int, Meta(ge=1)]  # problems in a batch
    stop: str  # why sampling ended: "stable", "budget", "disturbed"
    tick_s: Annotated[float, Meta(ge=0)] | UnsetType = UNSET  # resolution of the clock, for one problem
    # On a CPU: two control bursts for each batch, before and after it, in seconds for 10^9 operations; the
    # longest wait of a thread for a core during each batch; the range of undisturbed bursts.
    bursts_s: tuple[Positive, ...] | UnsetType = UNSET
    waited_s: tuple[Annotated[float, Meta(ge=0)], ...] | UnsetType = UNSET
    quiet_s: tuple[Positive, Positive] | UnsetType = UNSET

    @cached_property
    def counted(self) -> tuple[float, ...]:
        """The samples of quiet batches (see `model.quiet`); all of them if fewer than three are quiet."""
        flags = zip(self.seconds, quiet.flags(self), strict=True)
        samples = tuple(each for each, is_quiet in flags if is_quiet)
        return samples if len(samples) >= quiet.LEAST_LONG else self.seconds

    @cached_property
    def is_complete(self) -> bool:
        """Whether enough batches are quiet: ten, or three of long problems, or all of fewer."""
        is_long = bool(self.seconds) and min(self.seconds) > quiet.LONG_S
        least = quiet.LEAST_LONG if is_long else quiet.LEAST
        return sum(quiet.flags(self)) >= min(least, len(self.seconds))


@dataclass(frozen=True)
class Work:
    """What one launch of a microbenchmark does, counted instruction by instruction."""

    flops: int = 0  # also integer operations
    bytes: int = 0


@dataclass(frozen=True)
class Check:
    """How a result was verified, or a peak's integrity established."""

    verdict: Verdict = "none"
    figures: dict[str, float] = field(default_factory=dict)
    reasons: tuple[str, ...] = ()  # why it is wrong or suspect


@dataclass(frozen=True)
class Energy:
    """Joules for one problem, or why they were not measured.

    All that the counter's scope drew over a window of back-to-back problems: the idle draw is in it.
    """

    joules: Positive | None = None
    why: str = "not measured: not asked for"  # "" where they were
    scope: str = ""  # board, package
    counter: str = ""  # NVML, RAPL
    idle_w: Positive | None = None  # drawn before the window, with nothing running
    window_s: Positive | None = None
    problems: int = 0  # finished within the window


BLAS = "blas"  # the name under which `Row.choice` holds the library that numpy was replaced by


# Probes' parameters under other names in JSON exports: kernels have WIDTH and GROUPS.
EXPORTED: Mapping[str, str] = {"width": "vector_width", "groups": "work_groups"}


def export_parameters(parameters: Parameters) -> Parameters:
    """The parameters of a row under their names in JSON."""
    return {EXPORTED.get(name, name): value for name, value in parameters.items()}


def make_title(variant: str, parameters: Parameters, grid: Iterable[str] = ()) -> str:
    """A kernel or library for people: ``naive fast WX=8``, with the parameters in `grid`."""
    values = [list_values({name: parameters[name]}) for name in grid]
    return " ".join(filter(None, (variant, str(parameters.get(MATH, "")), *values)))


@dataclass(frozen=True)
class Launch:
    """The device's stamps of one kernel launch, in seconds: durations between stamps of one kind."""

    name: str
    queued_s: float  # QUEUED to SUBMIT
    submitted_s: float  # SUBMIT to START
    running_s: float  # START to END
    timed_s: float | None = None  # START to END again: the median of the timed batches; None where not known


@dataclass(frozen=True)
class Resources:
    """What one compiled kernel needs on a device; None if the driver does not report it."""

    kernel: str
    role: str  # of its pass: multiply, transpose ...
    group: int  # work-items in a work-group, as launched
    most: int  # work-items in the largest work-group that it can have
    multiple: int  # work-group sizes should be a multiple of this
    private_bytes: int  # of each work-item on a GPU; on CPUs of a vector (Intel), or a constant (PoCL)
    local_bytes: int  # of each work-group
    registers: int | None = None  # of each work-item
    spill_bytes: int | None = None  # stored to memory for want of registers


@dataclass(frozen=True)
class Partner:
    """The other side of interleaved batches: the kernel's previous version, or another kernel."""

    source: str  # hash of the other kernel's source and its -D list
    samples: dict[str, Scope]  # by scope, one for each of the row's own samples
    variant: str = ""  # the other kernel; "" for the previous version
    parameters: Parameters = field(default_factory=dict)  # of the other kernel
    resources: tuple[Resources, ...] = ()  # of its kernels, as in the row
    launches: tuple[Launch, ...] = ()


@dataclass(frozen=True)
class Row:
    """One result, or why there is none."""

    kind: Kind
    device: int  # position in the header's devices; -1 for the host
    variant: str  # of the ladder; for microbenchmarks the probe
    dtype: str
    parameters: Parameters  # what was asked for
    status: Status
    reason: str = ""
    problem: Problem | None = None  # for kind gemm
    label: str = ""  # what the problem is called in a set of workloads: "alexnet conv1"
    work: Work | None = None  # for the other kinds
    choice: Parameters = field(default_factory=dict)  # what a race or a heuristic settled on
    samples: dict[str, Scope] = field(default_factory=dict)  # by scope: kernel, device, host
    parts: Parts = field(default_factory=dict)  # of the host scope: seconds by problem
    cycle: Parts = field(default_factory=dict)  # of a whole map cycle: seconds by problem
    launches: tuple[Launch, ...] = ()
    check: Check = field(default_factory=Check)
    energy: Energy = field(default_factory=Energy)
    build_s: float | None = None
    resources: tuple[Resources, ...] = ()  # of its kernels, in the order of the passes
    memory: str = ""  # how operands reached the device: mapped, staged, pageable
    source: str = ""  # hash of the kernel source and its -D list
    notes: tuple[str, ...] = ()
    measured_utc: str = ""  # ISO 8601; of a kept row that an earlier run has measured
    former: Partner | None = None  # of a check against other kernels, or of --versus
    ran_on: RanOn = "device"  # its ordinary units, or those that only multiply matrices; or the host
    sums: str = ""  # of a GEMM, the type that its kernel adds up in; "" where it is C's, or not known
    needs_s: Positive | None = None  # what a case takes that was skipped because its budget is shorter
    phase: str = ""  # of a tuner: see `tune.result`
    race: tuple[str, ...] = ()  # how the candidates of a microbenchmark did, a line for each choice
    check_after: Check | None = None  # the same check again, after the samples
    supersedes: bool = False  # measured again: the earlier rows of its case no longer count
    given: tuple[str, ...] | None = None  # those of no preset: the user's, the tuner's; None: all of them
    grid: tuple[str, ...] = ()  # of these, those that a run tries several values of
    conditions: Conditions | None = None  # of the device and its host; of GEMMs and their peaks
    matrices: dict[str, Elements] | UnsetType = UNSET  # of a verified GEMM: A, B, C before and C, if small
    own: str | UnsetType = UNSET  # of a user's own kernel, the name of its file
    operands: tuple[str, ...] | UnsetType = UNSET  # of a user's own matrices, the names of their files
    calls: Annotated[int, Meta(ge=1)] | UnsetType = UNSET  # that a program made, where they are more than one

    @property
    def key(self) -> RowKey:
        return row_key(self.kind, self.device, self.variant, self.dtype, self.parameters, self.problem)

    @property
    def max_mhz(self) -> float | None:
        return self.conditions.max_mhz if self.conditions else None

    @property
    def name(self) -> str:
        """``naive``, ``naive fast``, ``naive WX=8 WY=4``."""
        return make_title(self.variant, self.parameters, self.grid)

    @property
    def title(self) -> str:
        """Its name for people: ``scipy`` if numpy was replaced."""
        return str(self.choice.get(BLAS, "")).partition(" (")[0] or self.name

    @property
    def kernel_parameters(self) -> Parameters:
        said = (MATH, *self.grid)
        return {name: value for name, value in self.parameters.items() if name not in said}

    @property
    def remarks(self) -> tuple[str, ...]:
        return (*self.race, *self.notes) if self.kind == "peak" else (*self.notes, *self.race)


def moment(text: str) -> datetime:
    """A time in UTC unless it names a zone. `ValueError` if it is not ISO 8601."""
    time = datetime.fromisoformat(text.replace("Z", "+00:00"))
    return time if time.tzinfo else time.replace(tzinfo=timezone.utc)


RowKey = tuple[str, int, str, str, tuple[tuple[str, int | float | str], ...], Problem | None]


def row_key(
    kind: str, device: int, variant: str, dtype: str, parameters: Parameters, problem: Problem | None,
) -> RowKey:  # fmt: skip
    """The hashable identity of a case, whatever the order of its parameters."""
    return kind, device, variant, dtype, tuple(sorted(parameters.items())), problem


def current(rows: Iterable[Row], quiet_s: quiet.References | None = None) -> tuple[Row, ...]:
    """Rows that no later one supersedes, with the references of their bursts and of earlier runs."""
    kept: list[Row | None] = []
    standing: dict[tuple[RowKey, str], list[int]] = {}
    for row in rows:
        earlier = standing.setdefault((row.key, row.phase), [])
        if row.supersedes and earlier:
            for index in earlier[1:]:
                kept[index] = None
            del earlier[1:]
            kept[earlier[0]] = row
        else:
            earlier.append(len(kept))
            kept.append(row)
    return quiet.with_references([row for row in kept if row is not None], quiet_s or {})
