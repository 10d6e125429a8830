"""Probes: arithmetic, matrix units, memory, transfers and launches."""

from __future__ import annotations

from collections.abc import Mapping

from gemmbench.model.dtypes import DTYPES
from gemmbench.probes.arithmetic import DOT8, FLOPS, MMA, WGMMA, Probe

PROBES: Mapping[str, Probe] = {probe.name: probe for probe in (FLOPS, DOT8, MMA, WGMMA)}
QUICK: tuple[Probe, ...] = (FLOPS, MMA, WGMMA)
"""The probes that ``peak`` runs by default. A device without matrix units gets no row for them."""

ALL_DTYPES: tuple[str, ...] = tuple(
    name for name in DTYPES if any(name in probe.dtypes for probe in PROBES.values())
)
"""Every type that some probe measures."""
