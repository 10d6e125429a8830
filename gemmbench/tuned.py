"""Presets that `gemmbench tune` has found, kept in the user's cache folder, in the place of the shipped ones.

A file for each device and driver. A preset serves as long as the variant's kernels are the same.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from gemmbench.cache_folder import DeviceFiles, Words
from gemmbench.facts.kernel_files import fingerprint
from gemmbench.facts.records import DeviceFacts, Problem
from gemmbench.facts.units import number
from gemmbench.rules.plan import Tuned
from gemmbench.rules.variants import ParameterError, Variant

_WORDS = Words("tuned presets cannot be read, so that the shipped ones serve", "the tuned preset is not kept")


@dataclass(frozen=True)
class Preset:
    """What won, and against what."""

    variant: str
    dtype: str
    source: str  # hash of the variant's kernels
    parameters: dict[str, int]
    problems: tuple[Problem, ...]  # of the search
    speedup: float | None  # over the shipped preset; None where that does not run
    found_utc: str  # ISO 8601


@dataclass(frozen=True)
class _File:
    """What is kept of one device and driver."""

    device: str  # for whoever looks into the folder
    presets: tuple[Preset, ...]


class KeptPresets:
    """The presets that were tuned on this machine.

    Attributes:
        notes: what went wrong, for the user.
    """

    def __init__(self, folder: Path | None = None) -> None:
        self._files = DeviceFiles(_File, "tuned", _WORDS, folder)
        self.notes = self._files.notes

    def find(self, device: DeviceFacts, variant: Variant, dtype: str) -> Tuned | None:
        """What is kept of a variant, if its kernels are the same and it still takes such parameters."""
        for preset in self._presets(device):
            if (preset.variant, preset.dtype, preset.source) == (variant.name, dtype, source(variant)):
                try:
                    parameters = variant.preset(device.family, preset.parameters, dtype, device.vector_bits)
                except ParameterError:
                    return None
                return Tuned(parameters, _note(preset, self.path(device)))
        return None

    def keep(self, device: DeviceFacts, preset: Preset) -> bool:
        """Keep a preset in the place of an older one; whether it could be done."""
        mine = (preset.variant, preset.dtype)

        def with_it(old: _File | None) -> _File:
            others = (one for one in (old.presets if old else ()) if (one.variant, one.dtype) != mine)
            return _File(device.title, (*others, preset))

        return self._files.change(device, with_it)

    def forget(
        self, device: DeviceFacts, variants: Sequence[str], dtypes: Sequence[str]
    ) -> tuple[Preset, ...]:
        """Drop the presets of these variants and types; those that were there."""
        gone: list[Preset] = []

        def without(old: _File | None) -> _File:
            presets = old.presets if old else ()
            gone.extend(one for one in presets if one.variant in variants and one.dtype in dtypes)
            return _File(device.title, tuple(one for one in presets if one not in gone))

        if any(one.variant in variants and one.dtype in dtypes for one in self._presets(device)):
            self._files.change(device, without)
        return tuple(gone)

    def path(self, device: DeviceFacts) -> Path:
        """The file of a device and driver; it need not exist."""
        return self._files.path(device)

    def _presets(self, device: DeviceFacts) -> tuple[Preset, ...]:
        found = self._files.read(device)
        return found.presets if found else ()


def source(variant: Variant) -> str:
    """Hash of a variant's kernels, whatever its parameters: a preset for others would be of no use."""
    return fingerprint(variant.files, variant.flags)


def _note(preset: Preset, path: Path) -> str:
    sizes = ", ".join(problem.shape for problem in preset.problems)
    gain = f", {number(preset.speedup)} times the shipped preset's rate" if preset.speedup else ""
    when = f"{preset.found_utc[:10]}, at {sizes}{gain}"
    return f"tuned parameters from {path} ({when}); --no-tuned leaves them out"
