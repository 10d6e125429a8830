"""The GEMM ladder: one entry per variant, in the order of tables and charts.

A variant's ``.cl`` file owns the algorithm; its entry in one of these modules owns the facts: idea, source,
parameters and their presets, constraints, what it needs, its launch geometry and its passes. Adding a variant
means adding a ``.cl`` file and an entry, nothing else.
"""

from __future__ import annotations

from collections.abc import Mapping

from gemmbench.rules.variants import auto, cpu, gpu, intel, libraries, mobile, tensor, tutorial, vendors
from gemmbench.rules.variants.auto import AUTO
from gemmbench.rules.variants.libraries import BASELINE, CLBLAST, CUBLAS
from gemmbench.rules.variants.model import (
    LIBRARIES,
    OURS,
    Constraint,
    Image,
    Layout,
    Likely,
    Parameter,
    ParameterError,
    Pass,
    Values,
    Variant,
    round_up,
)

__all__ = [
    "AUTO",
    "BASELINE",
    "BASELINES",
    "BEST",
    "BY_NAME",
    "CLBLAST",
    "CUBLAS",
    "FAMILIES",
    "FIRST_RUNG",
    "LADDER",
    "LIBRARIES",
    "ORDER",
    "PUBLISHED",
    "VARIANTS",
    "Constraint",
    "Image",
    "Layout",
    "Likely",
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
FIRST_RUNG = LADDER[0]  # what every speed-up is over
BASELINES: tuple[str, ...] = tuple(v.name for v in libraries.VARIANTS)
BEST: tuple[str, ...] = tuple(v.name for v in VARIANTS if v.family == OURS)
PUBLISHED: tuple[str, ...] = tuple(name for name in LADDER if name not in BEST)
