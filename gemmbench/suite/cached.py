"""What the user's cache folder keeps of every device: peaks, control bursts and tuned presets.

Each is a file of rows for each device and driver. A row serves as long as what it was measured with is the
same. Whatever is wrong with the folder costs a note, never a run.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timezone
from pathlib import Path
from typing import Any, ClassVar, Generic, TypeVar

import msgspec
import platformdirs

from gemmbench import UsageError, __version__
from gemmbench.ladder.gpu import EDGE_FILE
from gemmbench.ladder.variant import ParameterError, Variant
from gemmbench.measure.machine import cpu_driver_variables
from gemmbench.model import quiet
from gemmbench.model.case import Case, Plan, Skip
from gemmbench.model.device import HOST, DeviceFacts, usable_cores
from gemmbench.model.kernel_files import fingerprint
from gemmbench.model.row import Problem, Row, RowKey
from gemmbench.model.run_file import SCHEMA_VERSION, Run, replace_file
from gemmbench.model.units import number, reason_of
from gemmbench.stats import rates
from gemmbench.suite.plan import Tuned

_T = TypeVar("_T")


class NoHomeError(UsageError):
    """There is no folder for caches; the message is for users."""


@dataclass(frozen=True)
class _File(Generic[_T]):
    device: str  # for whoever looks into the folder
    rows: tuple[_T, ...]  # oldest first
    gemmbench: str = ""  # the version that wrote it
    schema_version: int = 0
    chip: str = ""  # the device's, where it was known


class _Cache(Generic[_T]):
    """Rows of one sort, a file for each device and driver; `notes` say what went wrong."""

    name: ClassVar[str]  # of the sort's folder
    kind: ClassVar[Any]  # of file
    unread: ClassVar[str]  # "cannot read cached peaks, so they are measured again"
    unwritten: ClassVar[str]  # "cannot cache peaks for the next run"

    def __init__(self, folder: Path | None = None) -> None:
        self._folder = folder
        self.notes: list[str] = []

    def path(self, device: DeviceFacts) -> Path:
        return (self._folder or subfolder(self.name)) / f"{device_key(device)}.json"

    def _read(self, device: DeviceFacts) -> _File[_T] | None:
        try:
            path = self.path(device)
            file: _File[_T] = msgspec.json.decode(path.read_bytes(), type=self.kind)
            return file
        except (NoHomeError, FileNotFoundError, NotADirectoryError):
            return None
        except (OSError, msgspec.MsgspecError, UnicodeDecodeError) as error:
            self._note(f"{self.unread}: {path}: {reason_of(error)}")
            return None

    def _rows(self, device: DeviceFacts) -> tuple[_T, ...]:
        return file.rows if (file := self._read(device)) else ()

    def _write(self, device: DeviceFacts, rows: Iterable[_T]) -> bool:
        chip = device.chip or getattr(self._read(device), "chip", "")
        file = _File(device.title, tuple(rows), __version__, SCHEMA_VERSION, chip)
        path: Path | None = None
        try:
            path = self.path(device)
            path.parent.mkdir(parents=True, exist_ok=True)
            replace_file(path, msgspec.json.encode(file))
        except (NoHomeError, OSError) as error:
            where = f"{path}: {reason_of(error)}" if isinstance(error, OSError) else str(error)
            self._note(f"{self.unwritten}: {where}")
            return False
        return True

    def _note(self, text: str) -> None:
        if text not in self.notes:
            self.notes.append(text)


def subfolder(name: str) -> Path:
    """The user's cache folder for one sort of file; else `NoHomeError`."""
    try:
        folder = platformdirs.user_cache_path("gemmbench")
    except RuntimeError:
        folder = Path("~")  # what older versions of platformdirs answer instead: a folder of that name
    if not folder.is_absolute():
        raise NoHomeError("there is no home folder (set HOME or XDG_CACHE_HOME)")
    return folder / name


def device_key(device: DeviceFacts) -> str:
    """Sixteen hex digits of a device, its driver and what changes a CPU's."""
    position = device.pci or device.device_index
    words: tuple[object, ...] = (
        *(device.platform, device.name, device.version, device.driver, position, device.compute_units),
        *((sorted(usable_cores() or ()), cpu_driver_variables()) if device.type == "cpu" else ()),
    )
    return hashlib.sha256(repr(words).encode()).hexdigest()[:16]


_PEAKS = ("peak", "bandwidth")


class CachedPeaks(_Cache[Row]):
    """The believed peaks of earlier runs, as rows of device 0."""

    name = "peaks"
    kind = _File[Row]
    unread = "cannot read cached peaks, so they are measured again"
    unwritten = "cannot cache peaks for the next run"

    def fill(self, plan: Plan, devices: Sequence[DeviceFacts], kinds: Collection[str] = _PEAKS) -> Plan:
        """Replace cases by cached rows of the same sources, version and chip."""
        wanted = {step.device for step in plan if isinstance(step, Case) and step.kind in kinds}
        cached = {index: self._usable_rows(devices[index]) for index in wanted}
        filled: list[Case | Skip] = []
        for step in plan:
            if isinstance(step, Case) and step.kind in kinds:
                row = cached[step.device].get(replace(step, device=0).key)
                if row and row.source == step.source:
                    filled.append(Skip(replace(row, device=step.device)))
                    continue
            filled.append(step)
        return tuple(filled)

    def keep(self, run: Run, resumed: Collection[RowKey] = (), now: datetime | None = None) -> None:
        """Cache the verified peaks and bandwidths that this run measured itself.

        A slower rate never replaces one of the same sources. Uncertain rows are cached too: noisy machines
        would measure again every time. A GEMM above 1.02 of a peak removes this run's peaks.
        """
        moment = (now or datetime.now(timezone.utc)).isoformat(timespec="seconds")
        for index, device in enumerate(run.header.devices):
            own = [row for row in run.rows if row.device == index]
            kept = cached = self._usable_rows(device)
            kernels = (row for row in own if not rates.on_host(row))
            if any((rates.peak_fraction(run, row, "kernel") or 0.0) > _ABOVE for row in kernels):
                refuted = {replace(row, device=0).key for row in own if row.kind == "peak"}
                kept = {key: row for key, row in cached.items() if key not in refuted}
            else:
                fresh = [
                    replace(row, device=0, measured_utc=moment)
                    for row in own
                    if row.kind in _PEAKS and row.status == "ok" and row.check.verdict == "ok"
                    if row.source and not row.measured_utc and row.key not in resumed
                ]
                better = {row.key: row for row in fresh if not _is_slower(row, cached.get(row.key))}
                kept = {**cached, **better}
            if kept != cached:
                self._write(device, kept.values())

    def _usable_rows(self, device: DeviceFacts) -> dict[RowKey, Row]:
        """The usable cached rows of a device, none above the theoretical peak."""
        file = self._read(device)
        if not file or (file.gemmbench, file.schema_version) != (__version__, SCHEMA_VERSION):
            return {}
        if "" not in (file.chip, device.chip) and file.chip != device.chip:
            return {}
        rows = (rates.within_ceiling(row, device) for row in file.rows)
        return {row.key: row for row in rows if row.status == "ok"}


@dataclass(frozen=True)
class Burst:
    """The reference of a run's control bursts, see `quiet.choose_reference`."""

    is_host: bool  # of the host's BLAS, not of the device
    seconds: float  # for 10^9 operations
    boot: str  # of the system: another machine of this name is no reference


class CachedBursts(_Cache[Burst]):
    """The references of earlier runs: a run that is always disturbed would seem undisturbed."""

    name = "naive-bursts"  # bursts of other work are no reference
    kind = _File[Burst]
    unread = "cannot read the control bursts of earlier runs"
    unwritten = "cannot keep the control bursts for the next run"

    def find(self, devices: Sequence[DeviceFacts]) -> dict[str, float]:
        known: dict[str, list[float]] = {}
        for index, device in enumerate(devices):
            for row in self._since_boot(device):
                known.setdefault(str(HOST) if row.is_host else str(index), []).append(row.seconds)
        return {key: quiet.known(each) for key, each in known.items()}

    def keep(self, run: Run) -> None:
        found = quiet.references(run.rows, {})
        for index, device in enumerate(run.header.devices):
            own = {key: found[key] for key in (str(index), str(HOST)) if key in found}
            if device.type == "cpu" and own and _boot():
                rows = [Burst(key == str(HOST), seconds, _boot()) for key, seconds in own.items()]
                self._write(device, [*self._since_boot(device), *rows][-2 * quiet.RUNS :])

    def _since_boot(self, device: DeviceFacts) -> list[Burst]:
        return (
            [row for row in self._rows(device) if row.boot == _boot() != ""] if device.type == "cpu" else []
        )


def _boot() -> str:
    """What identifies this start of the system; "" where that is unknown."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return ""


_ABOVE = 1.02  # of the measured peak, for a GEMM


def _is_slower(row: Row, cached: Row | None) -> bool:
    if cached is None or cached.source != row.source:
        return False
    rate, before = (rates.rate(each, "kernel") or rates.byte_rate(each) for each in (row, cached))
    return (rate.best if rate else 0.0) < (before.best if before else 0.0)


@dataclass(frozen=True)
class Preset:
    """What won in `gemmbench tune`, and against what."""

    variant: str
    dtype: str
    source: str  # hash of the variant's kernels
    parameters: dict[str, int]
    problems: tuple[Problem, ...]  # of the search
    speedup: float | None  # over the shipped preset; None where that does not run
    found_utc: str  # ISO 8601

    @property
    def purpose(self) -> tuple[str, str, str, bool]:
        """What a preset must have in common to be replaced."""
        layout = self.problems[0].ops if self.problems else ""
        return self.variant, self.dtype, layout, any(problem.count > 1 for problem in self.problems)


class TunedPresets(_Cache[Preset]):
    """The presets tuned on this machine, used while the kernels are the same."""

    name = "tuned"
    kind = _File[Preset]
    unread = "cannot read tuned presets, so the shipped ones are used"
    unwritten = "cannot save the tuned preset"

    def find(self, device: DeviceFacts, variant: Variant, dtype: str) -> Tuned | None:
        """The tuned parameters for a variant and data type, with a note."""
        for preset in self._rows(device):
            if (preset.variant, preset.dtype, preset.source) == (variant.name, dtype, source(variant)):
                try:
                    parameters = variant.preset(device.family, preset.parameters, dtype, device)
                except ParameterError:
                    return None
                sizes = ", ".join(problem.shape for problem in preset.problems)
                gain = f", {number(preset.speedup)} times the shipped preset's rate" if preset.speedup else ""
                when = f"{preset.found_utc[:10]}, at {sizes}{gain}"
                where = f"saved in {self.path(device)}; --no-tuned uses the shipped one"
                return Tuned(parameters, f"preset: tuned {when}, {where}")
        return None

    def keep(self, device: DeviceFacts, preset: Preset) -> bool:
        others = (other for other in self._rows(device) if other.purpose != preset.purpose)
        return self._write(device, (*others, preset))

    def forget(self, device: DeviceFacts, variant: str | None, dtypes: Sequence[str]) -> tuple[Preset, ...]:
        rows = self._rows(device)
        deleted = tuple(each for each in rows if variant in (None, each.variant) and each.dtype in dtypes)
        if deleted:
            self._write(device, (each for each in rows if each not in deleted))
        return deleted


def source(variant: Variant) -> str:
    """Hash of a variant's kernels, without parameters and edges."""
    files = tuple(file for file in variant.files if not file.endswith(EDGE_FILE))
    return fingerprint(files, variant.compilation.flags)
