"""The GEMM ladder: one entry per variant, in the order of tables and charts.

A variant's ``.cl`` file owns the algorithm; its entry in one of these modules owns the facts: idea, source,
parameters and their presets, constraints, what it needs, its launch geometry and its passes. Adding a variant
means adding a ``.cl`` file and an entry, nothing else.
"""

from __future__ import annotations

from collections.abc import Mapping

from gemmbench.rules.variants import auto, cpu, gpu, intel, libraries, mobile, tensor, tutorial, vendors
from gemmbench.rules.variants.model import (
    OURS,
    Constraint,
    Image,
    Layout,
    Parameter,
    ParameterError,
    Pass,
    Values,
    Variant,
    round_up,
)

__all__ = [
    "BASELINES",
    "BEST",
    "BY_NAME",
    "FAMILIES",
    "LADDER",
    "ORDER",
    "PUBLISHED",
    "VARIANTS",
    "Constraint",
    "Image",
    "Layout",
    "Parameter",
    "ParameterError",
    "Pass",
    "Values",
    "Variant",
    "round_up",
]

VARIANTS: tuple[Variant, ...] = (
    *tutorial.VARIANTS,
    *mobile.VARIANTS,
    *vendors.VARIANTS,
    *cpu.VARIANTS,
    *gpu.VARIANTS,
    *tensor.VARIANTS,
    *intel.VARIANTS,
    *auto.VARIANTS,
    *libraries.VARIANTS,
)

BY_NAME: Mapping[str, Variant] = {variant.name: variant for variant in VARIANTS}
ORDER: tuple[str, ...] = tuple(BY_NAME)
FAMILIES: Mapping[str, str] = {variant.name: variant.family for variant in VARIANTS}
LADDER: tuple[str, ...] = tuple(v.name for v in VARIANTS if v.executor == "opencl")
BASELINES: tuple[str, ...] = tuple(v.name for v in libraries.VARIANTS)
BEST: tuple[str, ...] = tuple(v.name for v in VARIANTS if v.family == OURS)
PUBLISHED: tuple[str, ...] = tuple(name for name in LADDER if name not in BEST)
