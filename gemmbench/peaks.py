"""Measured peaks, kept in the user's cache folder: a device and driver need not be measured for every sweep.

A file for each device and driver holds rows as a saved run does. A row serves a case again if kernel sources
and gemmbench's version are the same. Whatever is wrong with the folder costs a note, never a run.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timezone
from pathlib import Path

import msgspec
import platformdirs

from gemmbench import __version__
from gemmbench.facts import derive
from gemmbench.facts.records import BUSY_CORES, DeviceFacts, Row, RowKey, Run
from gemmbench.rules.plan import Case, Plan, Skip

_KINDS = ("peak", "bandwidth")


@dataclass(frozen=True)
class _File:
    """What is kept of one device and driver."""

    gemmbench: str
    device: str  # for whoever looks into the folder
    rows: tuple[Row, ...]  # of device 0


class KeptPeaks:
    """The peaks that earlier runs have measured.

    Attributes:
        notes: what went wrong, for the user.
    """

    def __init__(self, folder: Path | None = None) -> None:
        self._folder = folder or platformdirs.user_cache_path("gemmbench") / "peaks"
        self.notes: list[str] = []

    def fill(self, plan: Plan, devices: Sequence[DeviceFacts]) -> Plan:
        """The plan with the rows that are kept in the place of cases that would measure them again."""
        wanted = {step.device for step in plan if isinstance(step, Case) and step.kind in _KINDS}
        kept = {place: self._by_key(devices[place]) for place in wanted}

        def recalled(step: Case | Skip) -> Case | Skip:
            if not isinstance(step, Case) or step.kind not in _KINDS:
                return step
            row = kept[step.device].get(replace(step, device=0).key)
            if row is None or row.source != step.source:
                return step
            return Skip(replace(row, device=step.device))

        return tuple(map(recalled, plan))

    def keep(self, run: Run, now: datetime | None = None) -> None:
        """Keep the believed peaks that a run has measured itself, in the place of older ones.

        A peak beside busy programs is none to hold later runs against: such a run's are not kept.
        """
        if run.header.host.busy >= BUSY_CORES:
            return
        moment = (now or datetime.now(timezone.utc)).isoformat(timespec="seconds")
        for place, device in enumerate(run.header.devices):
            mine = [
                replace(row, device=0, measured_utc=moment)
                for row in run.rows
                if row.device == place and row.kind in _KINDS and row.status == "ok"
                if row.check.verdict == "ok" and row.source and not row.measured_utc
                if not derive.outdone(run, place, row.dtype)
            ]
            if mine:
                rows = {**self._by_key(device), **{row.key: row for row in mine}}
                self._write(device, tuple(rows.values()))

    def _by_key(self, device: DeviceFacts) -> dict[RowKey, Row]:
        """The rows kept for a device; none if there are none, or they cannot be read."""
        path = self._path(device)
        try:
            found = msgspec.json.decode(path.read_bytes(), type=_File)
        except (FileNotFoundError, NotADirectoryError):
            return {}
        except (OSError, msgspec.MsgspecError, UnicodeDecodeError) as error:
            self._note(f"kept peaks cannot be read, so that they are measured again: {path}: {_why(error)}")
            return {}
        return {row.key: row for row in found.rows} if found.gemmbench == __version__ else {}

    def _write(self, device: DeviceFacts, rows: tuple[Row, ...]) -> None:
        path = self._path(device)
        data = msgspec.json.encode(_File(__version__, device.title, rows))
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            # Two runs may end at the same time: whoever comes last replaces the whole file.
            descriptor, name = tempfile.mkstemp(dir=path.parent)
            try:
                with os.fdopen(descriptor, "wb") as file:
                    file.write(data)
                Path(name).replace(path)
            except OSError:
                with contextlib.suppress(OSError):
                    Path(name).unlink()
                raise
        except OSError as error:
            self._note(f"peaks are not kept for the next run: {path}: {_why(error)}")

    def _path(self, device: DeviceFacts) -> Path:
        """One file for each device and driver."""
        words = (device.platform, device.name, device.version, device.driver, device.pci)
        return self._folder / f"{hashlib.sha256(repr(words).encode()).hexdigest()[:16]}.json"

    def _note(self, text: str) -> None:
        if text not in self.notes:
            self.notes.append(text)


def _why(error: Exception) -> str:
    text = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
    return text[:1].lower() + text[1:]
