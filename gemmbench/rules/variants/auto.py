"""The chooser as a variant: `rules.choosing` says which of the others runs, `automatic` runs it."""

from __future__ import annotations

from gemmbench.facts.dtypes import GEMM_DTYPES
from gemmbench.rules.variants.model import OURS, Variant

AUTO = "auto"  # whose rows are those of the variant that it took

VARIANTS = (
    Variant(
        name=AUTO,
        family=OURS,
        idea="what a library would do: the host's BLAS or the fastest kernel, by what was measured before",
        source="gemmbench; see docs/auto.md",
        dtypes=GEMM_DTYPES,
        lacks=lambda *_: "",  # what it takes decides, problem by problem
        executor="auto",
    ),
)
