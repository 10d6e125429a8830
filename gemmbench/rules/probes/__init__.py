"""The compute probes: what they need, what they race, and which rows they make."""

from __future__ import annotations

from collections.abc import Mapping

from gemmbench.facts.dtypes import DTYPES
from gemmbench.rules.probes.chains import (
    CHAINS,
    DOT8,
    FLOPS,
    MAD24,
    MIXED,
    UNROLLS,
    WIDTHS,
    ChainProbe,
    Form,
    kernels_in,
    kernels_of,
)
from gemmbench.rules.probes.matrix import MMA, WGMMA, MatrixProbe
from gemmbench.rules.probes.model import Probe

__all__ = [
    "ALL_DTYPES", "CHAINS", "FLOPS", "PEAK_DTYPES", "PROBES", "QUICK", "UNROLLS", "WIDTHS", "ChainProbe",
    "Form", "MatrixProbe", "Probe", "kernels_in", "kernels_of",
]  # fmt: skip

PEAK_DTYPES: tuple[str, ...] = ("float", "double", "half", "int")
"""What ``peak`` measures if it is not told."""

_EVERY: tuple[Probe, ...] = (FLOPS, MIXED, MAD24, DOT8, MMA, WGMMA)
PROBES: Mapping[str, Probe] = {probe.name: probe for probe in _EVERY}
QUICK: tuple[Probe, ...] = (FLOPS, MMA, WGMMA)
"""Those of a ``peak`` that is not told which; where a device has no matrix units, nothing is said of them."""

ALL_DTYPES: tuple[str, ...] = tuple(
    name for name in DTYPES if any(name in probe.dtypes for probe in PROBES.values())
)
"""Every type that some probe measures."""
