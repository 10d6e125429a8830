"""Probes: arithmetic, units for short types, memory, transfers and launches."""

from __future__ import annotations

from collections.abc import Mapping

from gemmbench.model.dtypes import DTYPES
from gemmbench.probes.arithmetic import DOT8, FLOPS, MMA, OF_CPUS, WGMMA, Probe

QUICK: tuple[Probe, ...] = (FLOPS, MMA, WGMMA, *OF_CPUS)
"""The probes that ``peak`` runs by default. A device without a unit gets no row for it."""
PROBES: Mapping[str, Probe] = {probe.name: probe for probe in (*QUICK[:1], DOT8, *QUICK[1:])}

ALL_DTYPES: tuple[str, ...] = tuple(
    name for name in DTYPES if any(name in probe.dtypes for probe in PROBES.values())
)
"""Every type that some probe measures."""
