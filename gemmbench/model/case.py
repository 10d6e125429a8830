"""What is asked for (cases, plans, policies), and what a session reports meanwhile."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from msgspec import UNSET

from gemmbench.model.kernel_files import OwnFile
from gemmbench.model.problem import Gemm
from gemmbench.model.row import (
    MATH,
    Kind,
    Parameters,
    Problem,
    RanOn,
    Row,
    RowKey,
    Status,
    make_title,
    row_key,
)
from gemmbench.model.units import size

MEMORY_MODES: dict[str, str] = {
    "mapped": "buffers the host can map, filled in place: no copy where host and device share memory",
    "staged": "copies between device buffers and pinned host memory",
    "pageable": "copies between device buffers and ordinary, page-aligned host memory",
    "svm": "coarse-grained shared virtual memory: one address for both, mapped and unmapped in place",
    "svm-fine": "fine-grained shared virtual memory: one address for both, never mapped",
}


@dataclass(frozen=True)
class Policy:
    """How long and how often a row is measured; docs/methodology.md describes the method."""

    budget_s: float = 0.2  # for the samples of a row, all scopes together
    batch_s: float = 0.005  # a batch lasts at least this, and no longer unless one problem does
    min_batches: int = 10  # of each scope, if they fit in the budget
    precision: float = 0.01  # stop when the half-width of the median's interval is this small
    time_limit_s: float = 66.0  # a row that takes longer altogether is killed
    cold: bool = False  # rotate operands past the last-level cache
    memory: str = "auto"  # or one of MEMORY_MODES
    seed: int = 1  # of generated operands
    patience_s: float | None = None  # to measure uncertain rows again; None: see `suite.session`
    energy: bool = False  # read the energy counter over a window of its own, after the samples


@dataclass(frozen=True)
class Operands:
    """The user's own matrices: .npy files; None means generated."""

    a: str | None = None
    b: str | None = None
    c: str | None = None
    out: str | None = None  # where the result goes

    @property
    def given(self) -> bool:
        return bool(self.names)

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(Path(path).name for path in (self.a, self.b, self.c) if path is not None)


KERNEL = ".cl"  # of a user's own kernel file
DRIVER = "driver:"  # before the library of another driver, which a case is compared with


def checkout_of(kernels: str) -> str:
    """The checkout that `Case.kernels` names: a folder with a ``gemmbench/`` of its own; or ""."""
    return kernels if not kernels.startswith(DRIVER) and (Path(kernels) / "gemmbench").is_dir() else ""


@dataclass(frozen=True)
class Case:
    """One thing to verify and measure."""

    kind: Kind
    device: int  # position in the header's devices; -1 for the host
    variant: str
    dtype: str
    parameters: Parameters
    problem: Gemm | None = None
    source: str = ""
    operands: Operands = field(default_factory=Operands)
    notes: tuple[str, ...] = ()  # of its row, before those of the executor
    partner: Case | None = None  # another kernel or an old version, with which its batches alternate
    kernels: str = ""  # of an old version: its kernels folder, checkout, driver:LIBRARY or .cl file
    ran_on: RanOn = "device"  # of its row
    sums: str = ""  # of its row
    phase: str = ""  # of its row, for a tuner
    given: tuple[str, ...] | None = None  # of its row: the parameters that are no preset's; None: all
    grid: tuple[str, ...] = ()  # of its row: those of them with several values in a run
    measured: tuple[Gemm, float] | None = None  # a smaller problem of its kernel, and its seconds
    own: OwnFile | None = None  # the user's own kernel that it runs

    @property
    def key(self) -> RowKey:
        problem = saved_problem(self.problem) if self.problem else None
        return row_key(self.kind, self.device, self.variant, self.dtype, self.parameters, problem)

    @property
    def gemm(self) -> Gemm:
        assert self.problem is not None
        return self.problem

    @property
    def versus(self) -> Case | None:
        """The partner, unless it is an old version of the case's own kernel."""
        return self.partner if self.partner and not self.partner.kernels else None

    @property
    def folder(self) -> str:
        """The folder that the kernel is read from; "" for today's, and for the user's own."""
        return "" if self.own else self.kernels

    @property
    def numbers(self) -> dict[str, int]:
        return {name: int(value) for name, value in self.parameters.items() if name != MATH}

    @property
    def title(self) -> str:
        return make_title(self.variant, self.parameters, self.grid)

    @property
    def math(self) -> str:
        """``strict``, ``fast``, or "" for the kernel's own flags."""
        return str(self.parameters.get(MATH, ""))

    @property
    def label(self) -> str:
        """For a progress line: ``tiled float 512x512x512``, ``flops float width 4``."""
        if self.problem:
            called = self.problem.label or self.phase
            name = f"{called} " if called else ""
            return f"{self.title} {self.dtype} {name}{self.problem.shape}"
        forms = {"bytes": lambda value: size(int(value)), "width": lambda value: f"width {value}"}
        parameters = [forms.get(name, str)(value) for name, value in self.parameters.items()]
        return " ".join((self.variant, self.dtype, *parameters))

    def row(self, status: Status, reason: str = "") -> Row:
        shared = ("kind", "device", "variant", "dtype", "parameters", "source", "notes", "ran_on", "sums")
        return Row(
            **{name: getattr(self, name) for name in (*shared, "phase", "given", "grid")},
            status=status,
            reason=reason,
            problem=saved_problem(self.problem) if self.problem else None,
            label=self.problem.label if self.problem else "",
            own=self.own.name if self.own else UNSET,
            operands=self.operands.names or UNSET,
            calls=self.problem.calls if self.problem and self.problem.calls > 1 else UNSET,
        )


@dataclass(frozen=True)
class Skip:
    """A case that is not started."""

    row: Row


Plan = tuple[Case | Skip, ...]


def saved_problem(problem: Gemm) -> Problem:
    """The problem as a row stores it, without the data type."""
    lengths = problem.m, problem.n, problem.k
    layout = problem.ld or UNSET, problem.trans_a or UNSET, problem.trans_b or UNSET
    several = problem.batch if problem.batch > 1 else UNSET
    return Problem(*lengths, problem.alpha, problem.beta, *layout, several)


@dataclass(frozen=True)
class Planned:
    """The run is about to start."""

    cases: int  # to be measured


@dataclass(frozen=True)
class Started:
    """A case goes to the executor."""

    number: int  # from 1
    label: str  # "register float 512x512x512"


@dataclass(frozen=True)
class Staged:
    """The case in flight reached a stage: building, verifying, settling, timing."""

    stage: str


@dataclass(frozen=True)
class Finished:
    """A row is on the disk."""

    row: Row
    resumed: bool = False  # it was in the file already
    is_planned: bool = True  # one of the cases that `Planned` counts


Event = Planned | Started | Staged | Finished
