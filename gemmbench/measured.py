"""What earlier runs have measured of GEMM variants, kept in the user's cache folder for `auto` to choose by.

A file for each device and driver. What was measured of a variant serves as long as its kernels and parameters
compile to the same, of the host's BLAS as long as that is the same.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from gemmbench.cache_folder import DeviceFiles, Words
from gemmbench.facts.records import BUSY_CORES, DeviceFacts, Header, HostFacts, Row
from gemmbench.facts.text import listed
from gemmbench.rules import choosing
from gemmbench.rules.choosing import CHOOSABLE, Point
from gemmbench.rules.variants import BY_NAME

_WORDS = Words(
    "kept measurements cannot be read, so that auto goes without", "measurements are not kept for auto"
)
_MOST = 5000  # points of a device; the oldest go first


@dataclass(frozen=True)
class _Kept:
    source: str  # what it was measured with: hash of kernels and options, or the host's BLAS
    point: Point


@dataclass(frozen=True)
class _File:
    """What is kept of one device and driver."""

    device: str  # for whoever looks into the folder
    points: tuple[_Kept, ...]  # oldest first


class KeptMeasurements:
    """The medians that earlier runs have measured.

    Attributes:
        notes: what went wrong, for the user.
    """

    def __init__(self, folder: Path | None = None) -> None:
        self._files = DeviceFiles(_File, "measured", _WORDS, folder)
        self.notes = self._files.notes

    def points(self, devices: Sequence[DeviceFacts], host: HostFacts) -> dict[int, tuple[Point, ...]]:
        """What still holds of each device, and of the host's BLAS beside it, by the device's position."""
        return {
            place: tuple(
                kept.point for kept in self._read(device) if kept.source == _source(kept.point, host)
            )
            for place, device in enumerate(devices)
        }

    def keep(self, header: Header, rows: Iterable[Row]) -> None:
        """Keep what a run has measured, in the place of older measurements of the same.

        Of a run beside busy programs, on cold operands or on memory that the user has chosen nothing is
        kept: others would be held against it.
        """
        policy, host = header.policy, header.host
        if host.busy >= BUSY_CORES or policy.cold or policy.memory != "auto":
            return
        rows = tuple(rows)
        for place, device in enumerate(header.devices):
            fresh = [_Kept(_source(point, host), point) for point in choosing.points(rows, place)]
            if any(kept.point.device_s is not None for kept in fresh):
                known = {_key(kept.point): kept for kept in self._read(device)}
                for kept in fresh:
                    known.pop(_key(kept.point), None)  # the newest stands last
                    known[_key(kept.point)] = kept
                self._files.write(device, _File(device.title, tuple(known.values())[-_MOST:]))

    def _read(self, device: DeviceFacts) -> tuple[_Kept, ...]:
        found = self._files.read(device)
        return found.points if found else ()


def _key(point: Point) -> tuple[object, ...]:
    return point.variant, point.dtype, listed(point.parameters), point.m, point.n, point.k


def _source(point: Point, host: HostFacts) -> str:
    """What a point would be measured with now; "" if that no longer exists."""
    if point.variant not in CHOOSABLE:
        return ""
    variant = BY_NAME[point.variant]
    if variant.executor != "opencl":
        return f"numpy {host.numpy}, {host.blas}"
    if not point.parameters.keys() <= variant.parameters.keys():
        return ""
    return _fingerprint(point.variant, point.dtype, tuple(sorted(point.parameters.items())))


@cache
def _fingerprint(variant: str, dtype: str, parameters: tuple[tuple[str, int | float | str], ...]) -> str:
    return BY_NAME[variant].fingerprint(dtype, {name: int(value) for name, value in parameters})
