"""The saved run: frozen dataclasses, the JSON Lines file they live in, and its version.

Line 1 is a `Header`, every further line a `Row`. Times are seconds, sizes bytes, rates never stored.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import datetime, timezone
from pathlib import Path
from types import TracebackType
from typing import Literal, TypeVar

import msgspec

from gemmbench.facts.dtypes import DTYPES
from gemmbench.facts.file_lock import lock
from gemmbench.facts.problem import Dimensions
from gemmbench.facts.text import reason_of
from gemmbench.model import schema1

SCHEMA_VERSION = 2
# 1: the first one. What a table or a verdict needed beside the figures stood in the command and in sentences.
# 2: it is typed. The header has `view` and `scope`. A row has `needs_s`, `phase`, `beside` (which was a
#    parameter), `ran_on`, `race` (which were notes), `check_after` and `supersedes`. `model.schema1` fills
#    them in for files of schema 1.

Kind = Literal["gemm", "peak", "bandwidth", "transfer", "latency"]
Status = Literal["ok", "wrong", "unsupported", "skipped", "failed", "crashed", "timed-out"]
Verdict = Literal["ok", "wrong", "suspect", "none"]
RanOn = Literal["device", "matrix", "host"]
Parameters = dict[str, int | float | str]

FAILED: tuple[Status, ...] = ("wrong", "crashed", "failed", "timed-out")
"""What became of a case that ran, and went wrong."""

SCOPES: tuple[str, ...] = ("kernel", "device", "host")

_COUNTS = ("bytes", "width")  # parameters that are whole numbers of 1 or more

MEMORY_MODES: dict[str, str] = {
    "mapped": "buffers the host can map, filled in place: no copy where host and device share memory",
    "staged": "copies between device buffers and pinned host memory",
    "pageable": "copies between device buffers and ordinary, page-aligned host memory",
}


class RunFileError(Exception):
    """A saved run that cannot be read, written or resumed; the message is for the user."""


class BusyError(RunFileError):
    """A saved run that another process is writing."""


@dataclass(frozen=True)
class DeviceFacts:
    """One OpenCL device, as the driver describes it."""

    index: int  # in gemmbench's own list
    platform_index: int
    device_index: int  # within its platform
    platform: str
    vendor: str
    version: str  # the platform's OpenCL version string
    name: str
    device_version: str
    driver: str
    type: str  # cpu, gpu, accelerator, custom
    compute_units: int
    clock_mhz: int  # advisory: some drivers say 0; it never scales a result
    global_mem_bytes: int
    max_alloc_bytes: int
    local_mem_bytes: int
    local_mem_emulated: bool
    cache_bytes: int
    max_work_group_size: int
    max_work_item_sizes: tuple[int, ...]
    timer_resolution_ns: int
    unified_memory: bool
    images: bool
    image2d_max: tuple[int, int]
    dtypes: tuple[str, ...]  # of gemmbench's data types, those the device takes
    vector_widths: dict[str, int]  # native width in elements, by data type
    extensions: tuple[str, ...]
    origin: str  # where the driver was found: "system", "from this environment: intel-opencl-rt 2026.2.0"
    library: str  # the driver's shared library or .icd file, "" if not known
    warnings: tuple[str, ...] = ()
    pci: str = ""  # where it sits, where the driver tells: "0000:17:00.0"
    last_level_cache_bytes: int = 0  # of a CPU, as its system tells; 0 if not known
    compute_capability: tuple[int, int] = (0, 0)  # of an NVIDIA device
    sub_group_sizes: tuple[int, ...] = ()  # that a kernel may require; none where the driver does not tell

    @property
    def address(self) -> str:
        """``platform:device``, as ``--device`` takes it."""
        return f"{self.platform_index}:{self.device_index}"

    @property
    def vector_bits(self) -> int:
        """Width of its vector registers; 0 if the driver does not tell."""
        return 32 * self.vector_widths.get("float", 0)

    @property
    def family(self) -> str:
        """Type and driver, the key of presets: ``cpu-intel``, ``gpu-nvidia``, ``cpu-other``."""
        words = f"{self.platform} {self.version}".lower()
        maker = next((name for name in ("pocl", "intel", "nvidia", "amd") if name in words), "other")
        return f"{self.type}-{maker}"

    @property
    def title(self) -> str:
        """Name and driver in one line, for headings and charts."""
        return f"{' '.join(self.name.split())} | {driver_name(self)}"


def driver_name(device: DeviceFacts) -> str:
    """The driver for people: ``Intel OpenCL 2026.22``, ``PoCL 3.1+debian``."""
    if "pocl" in device.version.lower():
        return f"PoCL {device.driver}"
    platform = " ".join(device.platform.replace("(R)", "").replace("(TM)", "").split())
    return f"{platform} {device.driver}"


BUSY_CORES = 0.3  # that other programs use: from here on rates are low and noisy


@dataclass(frozen=True)
class HostFacts:
    """The machine around the device."""

    cpu: str
    cores: int
    memory_bytes: int
    system: str
    python: str
    numpy: str
    blas: str  # name, version and threads of numpy's BLAS
    busy: float = 0.0  # cores that other programs used just before the run


@dataclass(frozen=True)
class Policy:
    """How long and how often things are measured; see the README's *How it measures*."""

    budget_s: float = 3.0  # sampling time for each row
    settle_s: float = 3.0  # settling never takes longer, nor more than a third of the budget
    batch_s: float = 0.01  # a batch lasts at least this
    max_batch_s: float = 0.2  # and at most this, unless one run takes longer
    min_batches: int = 10
    precision: float = 0.01  # stop when the median's interval is this narrow, either side
    time_limit_s: float = 120.0  # a row that takes longer altogether is killed
    cold: bool = False  # rotate operands past the last-level cache
    memory: str = "auto"  # or one of MEMORY_MODES
    energy: bool = False  # read the energy counter over a window of its own, after the samples


@dataclass(frozen=True)
class Header:
    """What a run was: line 1 of its file."""

    schema_version: int
    gemmbench: str
    command: tuple[str, ...]
    started_utc: str  # ISO 8601
    devices: tuple[DeviceFacts, ...]
    host: HostFacts
    policy: Policy
    view: str = ""  # which tables and charts the run gets: the name of what measured it; "" suits any rows
    scope: str = ""  # that its tables show, or "all"; "" if nothing was asked for


@dataclass(frozen=True)
class Problem(Dimensions):
    """The GEMM of a row: C = alpha A B + beta C."""

    m: int
    n: int
    k: int
    alpha: float = 1.0
    beta: float = 0.0


@dataclass(frozen=True)
class Scope:
    """The raw samples of one clock: one for each batch, in seconds for one problem (or launch)."""

    seconds: tuple[float, ...]
    batch: int  # problems in a batch
    stop: str  # why sampling ended: "stable", "budget"


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

    joules: float | None = None
    why: str = "not measured: not asked for"  # "" where they were
    scope: str = ""  # board, package
    counter: str = ""  # NVML, RAPL
    idle_w: float | None = None  # drawn before the window, with nothing running
    window_s: float | None = None
    problems: int = 0  # finished within the window


@dataclass(frozen=True)
class Launch:
    """The device's stamps of one kernel launch, in seconds: durations between stamps of one kind."""

    name: str
    queued_s: float  # QUEUED to SUBMIT
    submitted_s: float  # SUBMIT to START
    running_s: float  # START to END


@dataclass(frozen=True)
class Resources:
    """What one kernel takes as built for a device; None where the driver does not tell."""

    kernel: str
    role: str  # of its pass: multiply, transpose ...
    group: int  # work-items in a work-group, as launched
    most: int  # work-items in the largest work-group that it can have
    multiple: int  # work-group sizes should be a multiple of this
    private_bytes: int  # of each work-item
    local_bytes: int  # of each work-group
    registers: int | None = None  # of each work-item
    spill_bytes: int | None = None  # stored to memory for want of registers
    fit: int | None = None  # work-items on a compute unit at once
    limit: str = ""  # what keeps there from being more: registers, local memory, work-items


@dataclass(frozen=True)
class Former:
    """The same case with the kernel as it was before, its batches taken in turn with the row's own."""

    source: str  # hash of the former kernel's source and its -D list
    samples: dict[str, Scope]  # by scope, one for each of the row's own samples


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
    launches: tuple[Launch, ...] = ()
    check: Check = field(default_factory=Check)
    energy: Energy = field(default_factory=Energy)
    build_s: float | None = None
    resources: tuple[Resources, ...] = ()  # of its kernels, in the order of the passes
    memory: str = ""  # how operands reached the device: mapped, staged, pageable
    source: str = ""  # hash of the kernel source and its -D list
    notes: tuple[str, ...] = ()
    measured_utc: str = ""  # ISO 8601; of a kept row that an earlier run has measured
    former: Former | None = None  # of a check against other kernels
    ran_on: RanOn = "device"  # its ordinary units, or those that only multiply matrices; or the host
    beside: tuple[int, ...] = ()  # positions of the devices that did the same at the same time, sorted
    needs_s: float | None = None  # what a case takes that was skipped because its budget is shorter
    phase: str = ""  # of a tuner: see `facts.tuning`
    race: tuple[str, ...] = ()  # how the candidates of a microbenchmark did, a line for each choice
    check_after: Check | None = None  # the same check again, after the samples
    supersedes: bool = False  # measured again: the earlier rows of its case no longer count

    @property
    def key(self) -> RowKey:
        """What makes this row the same case as a row of another run."""
        return row_key(
            self.kind, self.device, self.variant, self.dtype, self.parameters, self.problem, self.beside
        )

    @property
    def case_parameters(self) -> Parameters:
        """Parameters for people, with the devices beside it: what tells rows of a problem apart."""
        others = {"beside": "+".join(map(str, self.beside))} if self.beside else {}
        return {**self.parameters, **others}

    @property
    def remarks(self) -> tuple[str, ...]:
        """Its notes and how its race went, in the order in which they came up."""
        return (*self.race, *self.notes) if self.kind == "peak" else (*self.notes, *self.race)

    def placed(self, device: int, beside: Iterable[int]) -> Row:
        """The same row on a device, measured while others did the same.

        Args:
            device: its position.
            beside: those of the others; none if it ran alone.
        """
        return replace(self, device=device, beside=tuple(sorted(beside)))


def moment(text: str) -> datetime:
    """A time as headers and rows hold it.

    Raises:
        ValueError: it is not ISO 8601.
    """
    found = datetime.fromisoformat(text.replace("Z", "+00:00"))
    return found if found.tzinfo else found.replace(tzinfo=timezone.utc)


RowKey = tuple[str, int, str, str, tuple[tuple[str, int | float | str], ...], Problem | None, tuple[int, ...]]


def row_key(
    kind: str,
    device: int,
    variant: str,
    dtype: str,
    parameters: Parameters,
    problem: Problem | None,
    beside: tuple[int, ...] = (),
) -> RowKey:
    """The identity of a case, hashable."""
    return kind, device, variant, dtype, tuple(sorted(parameters.items())), problem, beside


def current(rows: Iterable[Row]) -> tuple[Row, ...]:
    """Rows without those that were measured again: the last of a case stands where the first stood.

    Only a row that says so (`Row.supersedes`) takes the place of others: an A/A measurement has every case
    several times, and each of them counts. A tuner's phases are cases of their own.
    """
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
    return tuple(row for row in kept if row is not None)


@dataclass(frozen=True, eq=False)
class Run:
    """A header and its rows: what tables, charts and comparisons are made from. Equal only to itself."""

    header: Header
    rows: tuple[Row, ...]
    path: str = ""

    def device(self, row: Row) -> DeviceFacts | None:
        """The device of a row; None for the host's own BLAS."""
        return self.header.devices[row.device] if row.device >= 0 else None


# --- the file ---------------------------------------------------------------------------------------------


_T = TypeVar("_T")


@dataclass(frozen=True)
class _Version:
    schema_version: int


def encode(record: Header | Row) -> bytes:
    """One line of the file, newline included."""
    return msgspec.json.encode(record) + b"\n"


def load(path: str | Path) -> Run:
    """Read a saved run.

    Raises:
        RunFileError: no such file, a newer schema, a truncated line, a NaN, a wrong type; the message
            names file, line and field.
    """
    run, cut = _parse(Path(path))
    if cut:
        raise RunFileError(
            f"{path}: line {cut} is cut short; the run that wrote it was interrupted "
            "(running the same command again with --resume repairs it)"
        )
    return run


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise RunFileError(f"{path}: {reason_of(error)}") from None


def _parse(path: Path) -> tuple[Run, int]:
    """The run in a file, and the number of its last line if that is cut short; 0 if it is whole."""
    data = _read(path)
    if not data:
        raise RunFileError(f"{path}: line 1: the file is empty, so it has no header")
    lines = data.split(b"\n")
    tail = lines.pop()  # what follows the last newline: nothing in a whole file
    if not lines:
        raise RunFileError(f"{path}: line 1 is cut short, so there is no header to read")
    version = _decode(path, 1, lines[0], _Version).schema_version
    if version > SCHEMA_VERSION:
        raise RunFileError(
            f"{path}: line 1: schema_version {version} is newer than the {SCHEMA_VERSION} this gemmbench "
            "reads; update gemmbench"
        )
    if version < 1:
        raise RunFileError(f"{path}: line 1: schema_version {version} does not exist")
    header = _decode(path, 1, lines[0], Header)
    if version == 1:
        header = schema1.header(header)
    rows = []
    for number, line in enumerate(lines[1:], 2):
        row = _decode(path, number, line, Row)
        if version == 1:
            try:
                row = schema1.row(row, header.view == "tune")
            except schema1.FieldError as error:
                raise RunFileError(f"{path}: line {number}: {error}") from None
        _check_row(path, number, row, header)
        rows.append(row)
    return Run(header, current(rows), str(path)), len(lines) + 1 if tail else 0


def _decode(path: Path, number: int, line: bytes, kind: type[_T]) -> _T:
    try:
        return msgspec.json.decode(line, type=kind)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError, OverflowError) as error:
        text = str(error)
        if b"NaN" in line or b"Infinity" in line:
            text = "NaN and Infinity are not allowed: " + text
        raise RunFileError(f"{path}: line {number}: {text}") from None


def _check_row(path: Path, number: int, row: Row, header: Header) -> None:
    """What types alone cannot say.

    Raises:
        RunFileError: a device that the header lacks, a time, an energy or a number of bytes that is not
            positive, a GEMM without a problem, a transfer without a size, a former self whose samples
            are not as many.
    """

    def bad(field_name: str, why: str) -> RunFileError:
        return RunFileError(f"{path}: line {number}: {field_name}: {why}")

    if not -1 <= row.device < len(header.devices):
        raise bad("device", f"{row.device} is not in the header's list of {len(header.devices)}")
    if row.dtype not in DTYPES:
        raise bad("dtype", f"{row.dtype!r} is not one of {', '.join(DTYPES)}")
    if not all(0 <= other < len(header.devices) and other != row.device for other in row.beside):
        raise bad("beside", f"{list(row.beside)} does not name other devices")
    if row.needs_s is not None and not 0 < row.needs_s < float("inf"):
        raise bad("needs_s", f"{row.needs_s} is not a positive finite time")
    for name in _COUNTS:
        count = row.parameters.get(name, 1)
        if not isinstance(count, int) or count < 1:
            raise bad(f"parameters.{name}", f"{count!r} is not a whole number of 1 or more")
    if row.kind == "transfer" and "bytes" not in row.parameters:
        raise bad("parameters.bytes", "a transfer row must have it")
    if row.kind == "gemm":
        if row.problem is None:
            raise bad("problem", "a gemm row must have one")
        if min(row.problem.m, row.problem.n, row.problem.k) < 0:
            raise bad("problem", "a dimension is negative")
    elif row.status == "ok" and row.work is None:
        raise bad("work", f"a {row.kind} row must have one")
    for place, samples in (
        ("samples", row.samples),
        ("former.samples", row.former.samples if row.former else {}),
    ):
        for name, scope in samples.items():
            if name not in SCOPES:
                raise bad(place, f"{name!r} is not one of {', '.join(SCOPES)}")
            if scope.batch < 1:
                raise bad(f"{place}.{name}.batch", f"{scope.batch} is not 1 or more")
            for second in scope.seconds:
                if not 0 < second < float("inf"):
                    raise bad(f"{place}.{name}.seconds", f"{second} is not a positive finite time")
    if row.former and _counts(row.former.samples) != _counts(row.samples):
        raise bad("former.samples", "there is not one for each of the row's own")
    if row.measured_utc:
        for name, text in (("measured_utc", row.measured_utc), ("started_utc, line 1", header.started_utc)):
            try:
                moment(text)
            except ValueError:
                raise bad(name, f"{text!r} is not a time as ISO 8601 writes it") from None
    energy = row.energy
    for name, value in (("joules", energy.joules), ("idle_w", energy.idle_w), ("window_s", energy.window_s)):
        if value is not None and not 0 < value < float("inf"):
            raise bad(f"energy.{name}", f"{value} is not a positive finite number")


def _counts(samples: dict[str, Scope]) -> dict[str, int]:
    return {name: len(scope.seconds) for name, scope in samples.items()}


class RunFile:
    """A run being written: each row is one write, flushed to disk before the next case starts.

    The file is locked against other writers until it is closed or its process is gone.

    Raises:
        BusyError: another process is writing it.
        RunFileError: the file exists (without `force`), cannot be written, or, for `resume`, was made by
            another command, on other devices or with another sampling policy.
    """

    def __init__(self, path: Path, descriptor: int) -> None:
        self.path = path
        self.done: tuple[Row, ...] = ()  # rows already there, when resuming
        self._descriptor = descriptor

    @classmethod
    def create(cls, path: str | Path, header: Header, force: bool = False) -> RunFile:
        """Start a new file; an existing one is an error unless `force`."""
        path = Path(path)
        with cls._opened(path, os.O_WRONLY | (0 if force else os.O_EXCL)) as file:
            if force:
                file._cut(0)
            file._write(encode(header))
        return file

    @classmethod
    def resume(cls, path: str | Path, header: Header) -> RunFile:
        """Go on with a file: its whole rows are kept, a line cut short by a crash is dropped."""
        path = Path(path)
        with cls._opened(path, os.O_WRONLY) as file:
            if os.fstat(file._descriptor).st_size == 0:  # new, or killed before its header was written
                file._write(encode(header))
                return file
            run, cut = _parse(path)
            for what, then, now in (
                ("another command", essential(run.header.command), essential(header.command)),
                ("other devices", _devices(run.header), _devices(header)),
                ("another sampling policy", run.header.policy, header.policy),
            ):
                if then != now:
                    raise RunFileError(f"cannot resume {path}: it was made by {what}: {then} is not {now}")
            if cut:
                file._cut(_read(path).rindex(b"\n") + 1)
            file.done = run.rows
        return file

    @classmethod
    @contextmanager
    def _opened(cls, path: Path, flags: int) -> Iterator[RunFile]:
        """A file opened for appending and locked; closed again if what is done with it fails."""
        try:
            file = cls(path, os.open(path, flags | os.O_CREAT | os.O_APPEND, 0o666))
        except FileExistsError:
            raise RunFileError(
                f"{path} exists already; --resume goes on with it, --force replaces it"
            ) from None
        except OSError as error:
            raise RunFileError(f"cannot write {path}: {reason_of(error)}") from None
        try:
            if not lock(file._descriptor):
                raise BusyError(f"another gemmbench is writing {path}; wait for it, or choose another file")
            yield file
        except BaseException:
            file.close()
            raise

    def _cut(self, length: int) -> None:
        """Drop what stands after so many bytes; what is no file has nothing to drop."""
        if not stat.S_ISREG(os.fstat(self._descriptor).st_mode):
            return
        try:
            os.ftruncate(self._descriptor, length)
        except OSError as error:
            raise RunFileError(f"cannot write {self.path}: {reason_of(error)}") from None

    def append(self, row: Row) -> None:
        """Add one row and put it on the disk."""
        self._write(encode(row))

    def _write(self, line: bytes) -> None:
        try:
            start = os.fstat(self._descriptor).st_size
            written = os.write(self._descriptor, line)
            if written != len(line):
                os.ftruncate(self._descriptor, start)
                raise OSError(errno.ENOSPC, "no space left on device")
            os.fsync(self._descriptor)
        except OSError as error:
            if error.errno == errno.EINVAL:  # a pipe or /dev/stdout cannot be synced
                return
            raise RunFileError(f"cannot write {self.path}: {reason_of(error)}") from None

    def close(self) -> None:
        """Close the file; closing twice is fine."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1

    def __enter__(self) -> RunFile:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


# What only says where output goes, and how many words follow it.
_OUTPUT_OPTIONS = {
    **dict.fromkeys(("--save", "--plot"), 1),
    **dict.fromkeys(("--resume", "--force", "--quiet", "--verbose", "-q", "-v", "-vv", "-qv", "-vq"), 0),
}


def essential(command: Iterable[str]) -> tuple[str, ...]:
    """A command without the options that only say where its output goes."""
    return tuple(_without_output(command))


def _without_output(command: Iterable[str]) -> Iterator[str]:
    words = iter(command)
    for word in words:
        name = word.split("=", 1)[0]
        if name in _OUTPUT_OPTIONS:
            if "=" not in word and _OUTPUT_OPTIONS[name]:
                next(words, None)
            continue
        yield word


def _devices(header: Header) -> tuple[str, ...]:
    return tuple(
        f"{device.name} | {device.platform} {device.driver} | {device.compute_units} units"
        for device in header.devices
    )
