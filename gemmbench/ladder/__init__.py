"""The GEMM ladder: one entry per variant, in the order of tables and charts.

A variant's ``.cl`` file owns the algorithm; its entry in one of these modules owns the facts: idea, source,
parameters and their presets, constraints, what it needs, its launch geometry and its passes. Adding a variant
means adding a ``.cl`` file and an entry, nothing else.
"""

from __future__ import annotations

from collections.abc import Mapping

from gemmbench.ladder import cpu, gpu, libraries, nvidia, published
from gemmbench.ladder import cpu as intel
from gemmbench.ladder import libraries as auto
from gemmbench.ladder.variant import OURS, Variant

VARIANTS: tuple[Variant, ...] = (
    *published.VARIANTS,
    *published.MOBILE_VARIANTS,
    *published.VENDOR_VARIANTS,
    *cpu.VARIANTS,
    *gpu.VARIANTS,
    *nvidia.VARIANTS,
    *intel.INTEL_VARIANTS,
    *auto.AUTO_VARIANTS,
    *libraries.VARIANTS,
)

BY_NAME: Mapping[str, Variant] = {variant.name: variant for variant in VARIANTS}
ORDER: tuple[str, ...] = tuple(BY_NAME)
FAMILIES: Mapping[str, str] = {variant.name: variant.family for variant in VARIANTS}
LADDER: tuple[str, ...] = tuple(v.name for v in VARIANTS if v.executor == "opencl")
FIRST_RUNG = LADDER[0]  # what every speed-up is over
BASELINES: tuple[str, ...] = tuple(v.name for v in libraries.VARIANTS)
BEST: tuple[str, ...] = tuple(v.name for v in VARIANTS if v.family == OURS)
PUBLISHED: tuple[str, ...] = tuple(name for name in LADDER if name not in BEST)
