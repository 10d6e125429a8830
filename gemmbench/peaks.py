"""Measured peaks, kept in the user's cache folder: a device and driver need not be measured for every sweep.

A file for each device and driver holds rows as a saved run does. A row serves a case again if kernel sources
and the versions of gemmbench and of its rows are the same.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timezone
from pathlib import Path

from gemmbench import __version__
from gemmbench.cache_folder import DeviceFiles, Words
from gemmbench.facts import derive
from gemmbench.facts.records import BUSY_CORES, SCHEMA_VERSION, DeviceFacts, Row, RowKey, Run
from gemmbench.rules.plan import Case, Plan, Skip

_KINDS = ("peak", "bandwidth")
_WORDS = Words(
    "kept peaks cannot be read, so that they are measured again", "peaks are not kept for the next run"
)


@dataclass(frozen=True)
class _File:
    """What is kept of one device and driver."""

    gemmbench: str
    device: str  # for whoever looks into the folder
    rows: tuple[Row, ...]  # of device 0
    schema_version: int = 1  # of the rows


class KeptPeaks:
    """The peaks that earlier runs have measured.

    Attributes:
        notes: what went wrong, for the user.
    """

    def __init__(self, folder: Path | None = None) -> None:
        self._files = DeviceFiles(_File, "peaks", _WORDS, folder)
        self.notes = self._files.notes

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

    def keep(self, run: Run, resumed: Collection[RowKey] = (), now: datetime | None = None) -> None:
        """Keep the believed peaks that a run has measured itself, in the place of older ones.

        A peak beside busy programs is none to hold later runs against: such a run's are not kept.

        Args:
            run: with all its rows.
            resumed: the keys of those that it did not measure itself.
            now: replaced in tests.
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
                if row.key not in resumed
                if not derive.outdone(run, place, row.dtype, row.ran_on == "matrix")
            ]
            if mine:
                rows = {**self._by_key(device), **{row.key: row for row in mine}}
                self._files.write(
                    device, _File(__version__, device.title, tuple(rows.values()), SCHEMA_VERSION)
                )

    def _by_key(self, device: DeviceFacts) -> dict[RowKey, Row]:
        """The rows kept for a device."""
        found = self._files.read(device)
        if not found or (found.gemmbench, found.schema_version) != (__version__, SCHEMA_VERSION):
            return {}
        return {row.key: row for row in found.rows}
