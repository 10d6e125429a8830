"""A saved run in its file, with one writer at a time. Line 1 is a `Header`, every other line a `Row`."""

from __future__ import annotations

import errno
import gc
import os
import shlex
import shutil
import stat
import sys
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TypeVar

import msgspec
from msgspec import UNSET, UnsetType

from gemmbench import UsageError
from gemmbench.model.case import Policy
from gemmbench.model.device import HOST, DeviceFacts, HostFacts
from gemmbench.model.dtypes import DTYPES
from gemmbench.model.row import CHAIN, GRAPH, PARTS, SCOPES, WHOLE, Row, Scope, current, moment
from gemmbench.model.units import clean, count_noun, percent, reason_of

if sys.platform == "win32":
    import msvcrt
else:
    import fcntl

TUNE_VIEW = "tune"  # of its runs
_PAST_THE_END = 1 << 40  # Windows locks bytes, and nobody else could read those that hold rows


def replace_file(path: Path, data: bytes) -> None:
    """Write a file atomically, keeping its mode. Pipes and devices are written to directly.

    If writing raises `OSError`, the old file is unchanged.
    """
    if path.exists() and not path.is_file():
        path.write_bytes(data)
        return
    target = path.resolve()
    beside = target.with_name(f".gemmbench-{os.getpid()}-{threading.get_ident()}")
    try:
        beside.write_bytes(data)
        if target.exists():
            shutil.copymode(target, beside)
        beside.replace(target)
    finally:
        beside.unlink(missing_ok=True)


def lock(descriptor: int) -> bool:
    """Lock an open file until it is closed; False if another has it. True for what cannot be locked."""
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        return True
    with suppress(OSError):
        try:
            if sys.platform == "win32":
                os.lseek(descriptor, _PAST_THE_END, os.SEEK_SET)
                msvcrt.locking(descriptor, msvcrt.LK_NBLCK, 1)
            else:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except (BlockingIOError, PermissionError):
            return False
    return True


SCHEMA_VERSION = 3

_COUNTS = ("bytes", "width")  # parameters that are whole numbers of 1 or more


class RunFileError(UsageError):
    """A saved run that cannot be read, written or resumed; the message is for the user."""


class BusyError(RunFileError):
    """A saved run that another process is writing."""


@dataclass(frozen=True)
class LeftOut:
    """The shapes of a program that ``--top`` excludes."""

    shapes: int
    flops: int  # of all their calls
    share: float  # of the predicted time

    @property
    def sentence(self) -> str:
        what = (
            f"{count_noun(self.shapes, 'shape', ',')} left out, {percent(self.share)} of the predicted time"
        )
        return f"{what}: --top 100 measures all."


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
    named: tuple[str, ...] = ()  # kernels that were asked for by name, not as one of a group
    more_kernels: int = 0  # that can run on the devices, and are not among the default ones
    quiet_s: dict[str, float] = field(default_factory=dict)  # bursts of earlier runs: see `quiet.known`
    left_out: LeftOut | UnsetType = UNSET


@dataclass(frozen=True, eq=False)
class Run:
    """A header and its rows. Equal only to itself."""

    header: Header
    rows: tuple[Row, ...]
    path: str = ""
    whole: Run | None = None  # the run that these rows were selected from; its control bursts count

    def device(self, row: Row) -> DeviceFacts | None:
        return self.header.devices[row.device] if row.device >= 0 else None


_T = TypeVar("_T")


@dataclass(frozen=True)
class _Version:
    schema_version: int


def encode(record: Header | Row) -> bytes:
    """One line of the file, newline included."""
    return msgspec.json.encode(record) + b"\n"


def load(path: str | Path) -> Run:
    """Read a saved run; `RunFileError`, with file, line and field, if it cannot be read or is invalid."""
    with without_collection():
        run, cut = _parse(Path(path))
    if cut:
        raise RunFileError(
            f"{path}: line {cut} is cut short; the run that wrote it was interrupted "
            "(running the same command again with --resume repairs it)"
        )
    return run


@contextmanager
def without_collection() -> Iterator[None]:
    """Turn Python's collector of cycles off in a block that creates many objects."""
    collects = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collects:
            gc.enable()


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise RunFileError(f"{path}: {reason_of(error)}") from None


def _is_run(data: bytes) -> bool:
    return b"schema_version" in data.partition(b"\n")[0]


def _parse(path: Path) -> tuple[Run, int]:
    """Header, rows, and the number of a truncated last line or 0."""
    data = _read(path).removeprefix(b"\xef\xbb\xbf")  # the mark that some editors write
    if not data:
        raise RunFileError(f"{path}: line 1: the file is empty, so it has no header")
    lines = data.split(b"\n")
    tail = lines.pop().strip()  # what follows the last newline: nothing in a whole file
    if not lines:
        raise RunFileError(f"{path}: line 1 is cut short, so there is no header to read")
    if not _is_run(lines[0]):
        raise RunFileError(f"{path} is not a saved run: its first line has no schema_version")
    version = _decode(path, 1, lines[0], _Version).schema_version
    if version != SCHEMA_VERSION:
        advice = "update gemmbench" if version > SCHEMA_VERSION else "measure again"
        raise RunFileError(
            f"{path}: line 1: this gemmbench reads schema_version {SCHEMA_VERSION}, not {version}; {advice}"
        )
    header = _decode(path, 1, lines[0], Header)
    rows = []
    for number, line in enumerate(lines[1:], 2):
        if line.strip():
            rows.append(_decode(path, number, line, Row))
            _check_row(path, number, rows[-1], header)
    return Run(header, current(rows, header.quiet_s), str(path)), len(lines) + 1 if tail else 0


def _decode(path: Path, number: int, line: bytes, kind: type[_T]) -> _T:
    """A line of a run as `kind`; `RunFileError` says what is wrong with it."""
    try:
        return msgspec.json.decode(line, type=kind)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError, OverflowError) as error:
        text = str(error)
        if kind is Row and _is_run(line):
            raise RunFileError(
                f"{path}: line {number} starts a second run: pass the runs as separate files"
            ) from None
        if b"NaN" in line or b"Infinity" in line:
            text = "NaN and Infinity are not allowed: " + text
        raise RunFileError(f"{path}: line {number}: {text}") from None


def _check_row(path: Path, number: int, row: Row, header: Header) -> None:
    """Raise `RunFileError` if values contradict each other or the header."""

    def bad(field_name: str, why: str) -> RunFileError:
        return RunFileError(f"{path}: line {number}: {field_name}: {why}")

    if not -1 <= row.device < len(header.devices):
        raise bad("device", f"{row.device} is not in the header's list of {len(header.devices)}")
    if row.dtype not in DTYPES:
        raise bad("dtype", f"{row.dtype!r} is not one of {', '.join(DTYPES)}")
    for name in _COUNTS:
        count = row.parameters.get(name, 1)
        if not isinstance(count, int) or count < 1:
            raise bad(f"parameters.{name}", f"{count!r} is not a whole number of 1 or more")
    if row.kind == "transfer" and "bytes" not in row.parameters:
        raise bad("parameters.bytes", "a transfer row must have it")
    if row.kind == "gemm" and row.problem is None:
        raise bad("problem", "a gemm row must have one")
    if row.kind != "gemm" and row.status == "ok" and row.work is None:
        raise bad("work", f"a {row.kind} row must have one")
    if row.status == "ok" and "wrong" in (row.check.verdict, row.check_after and row.check_after.verdict):
        raise bad("check", "it is wrong, and the row's status ok")
    clocks = (*SCOPES, CHAIN, GRAPH)
    if odd := next((name for name in row.samples if name not in clocks), None):
        raise bad("samples", f"{odd!r} is not one of {', '.join(clocks)}")
    for where, parts in (("parts", row.parts), ("cycle", row.cycle)):
        if odd := next((name for name in parts if name not in (*PARTS, WHOLE)), None):
            raise bad(where, f"{odd!r} is not one of {', '.join((*PARTS, WHOLE))}")
    for name, scope in row.samples.items():
        count = len(scope.seconds)
        if len(scope.bursts_s or ()) not in (0, 2 * count) or len(scope.waited_s or ()) not in (0, count):
            raise bad(f"samples.{name}", f"its {count} batches need two bursts and one wait each")
    if row.former and not _counts(row.former.samples).items() <= _counts(row.samples).items():
        raise bad("former.samples", "there is not one for each of the row's own")
    if row.measured_utc:
        for name, text in (("measured_utc", row.measured_utc), ("started_utc, line 1", header.started_utc)):
            try:
                moment(text)
            except ValueError:
                raise bad(name, f"{text!r} is not a time as ISO 8601 writes it") from None


def _counts(samples: dict[str, Scope]) -> dict[str, int]:
    return {name: len(scope.seconds) for name, scope in samples.items()}


class RunFile:
    """A run being written, locked against others: each row is one write, flushed to disk."""

    def __init__(self, path: Path, descriptor: int) -> None:
        self.path = path
        self.done: tuple[Row, ...] = ()  # rows already there, when resuming
        self._descriptor = descriptor

    @classmethod
    def create(cls, path: str | Path, header: Header, force: bool = False) -> RunFile:
        """Start a new file with its header, in place of an existing run with `force`; else `RunFileError`."""
        path = Path(path)
        if force and path.is_file() and (old := _read(path)) and not _is_run(old):
            raise RunFileError(f"{path} is not a saved run: --force does not replace it")
        with cls._opened(path, os.O_WRONLY | (0 if force else os.O_EXCL)) as file:
            if force:
                file._cut(0)
            file._write(encode(header))
        return file

    @classmethod
    def resume(cls, path: str | Path, header: Header) -> RunFile:
        """Continue a file, new or with complete rows in `done`; a truncated last line is removed.

        `RunFileError` if it is invalid, busy, or of another command, version, device, host or policy.
        """
        path = Path(path)
        with cls._opened(path, os.O_WRONLY) as file:
            if os.fstat(file._descriptor).st_size == 0:  # new, or killed before its header was written
                file._write(encode(header))
                return file
            run, cut = _parse(path)
            then, now = _conditions(run.header, header), _conditions(header, run.header)
            if changed := next((what for what in now if then[what] != now[what]), ""):
                raise RunFileError(
                    f"cannot resume {path}: it was made by {changed}: {then[changed]} is not {now[changed]}; "
                    "go on as it was begun, or choose another file"
                )
            if cut:
                file._cut(_read(path).rindex(b"\n") + 1)
            file.done = run.rows
        return file

    @classmethod
    @contextmanager
    def _opened(cls, path: Path, flags: int) -> Iterator[RunFile]:
        """Open and lock a file for appending; on an error it is closed again."""
        try:
            file = cls(path, os.open(path, flags | os.O_CREAT | os.O_APPEND, 0o666))
        except FileExistsError:
            raise RunFileError(f"{path} exists already; --force replaces it") from None
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
        if not stat.S_ISREG(os.fstat(self._descriptor).st_mode):
            return
        try:
            os.ftruncate(self._descriptor, length)
        except OSError as error:
            raise RunFileError(f"cannot write {self.path}: {reason_of(error)}") from None

    def append(self, row: Row) -> None:
        self._write(encode(row))

    def _write(self, line: bytes) -> None:
        """Append a line in one write, flushed to disk; undo a partial one."""
        try:
            start = os.fstat(self._descriptor).st_size
            written = os.write(self._descriptor, line)
            if written != len(line):
                self._cut(start)
                raise OSError(errno.ENOSPC, "no space left on device")
            os.fsync(self._descriptor)
        except OSError as error:
            if error.errno == errno.EINVAL:  # a pipe or /dev/stdout cannot be synced
                return
            raise RunFileError(f"cannot write {self.path}: {reason_of(error)}") from None

    def close(self) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1

    def __enter__(self) -> RunFile:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


# What only says where output goes, or how long rows may be measured again, and how many words follow it.
_OUTPUT_OPTIONS = {
    **dict.fromkeys(("--save", "--plot", "--report", "--format", "--patience"), 1),
    **dict.fromkeys(("--resume", "--force", "--quiet", "--verbose", "-q", "-v", "-vv", "-qv", "-vq"), 0),
}


def device_name(run: Run, device: int) -> str:
    """The name of a device, with its number if another one has the same name. For the host, its processor."""
    if device == HOST:
        return clean(run.header.host.cpu)
    names = [each.name for each in run.header.devices]
    number = f" ({device})" if names.count(names[device]) > 1 else ""
    return run.header.devices[device].label + number


def essential(command: Iterable[str]) -> tuple[str, ...]:
    """A command's words without the options that only say where output goes."""
    kept, words = [], iter(command)
    for word in words:
        name, equals, _ = word.partition("=")
        if name not in _OUTPUT_OPTIONS:
            kept.append(word)
        elif _OUTPUT_OPTIONS[name] and not equals:
            next(words, None)
    return tuple(kept)


def _conditions(header: Header, other: Header) -> dict[str, object]:
    """What of `header` must equal that of `other` to resume it, by a phrase after "made by"."""
    host = header.host
    pairs = zip(header.devices, other.devices, strict=False)
    return {
        "another command": shlex.join(("gemmbench", *essential(header.command))),
        "another gemmbench": header.gemmbench,
        "other devices": tuple(
            f"{device.name} | {device.platform} {device.driver} | {device.compute_units} units"
            for device in header.devices
        ),
        "another chip of this model": ", ".join(own.chip for own, match in pairs if own.chip and match.chip),
        "another host CPU": host.cpu,
        "another number of cores": host.cores,
        "another numpy": host.numpy,
        "another BLAS": host.blas,
        **{f"another {name}": value for name, value in asdict(header.policy).items() if name != "patience_s"},
    }


def is_tuning(run: Run) -> bool:
    """Whether a tuner has made it."""
    return run.header.view == TUNE_VIEW
