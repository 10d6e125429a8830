"""Libraries in the same table: variants with another executor."""

from __future__ import annotations

from gemmbench.rules.variants.model import Variant

FAMILY = "libraries"

VARIANTS = (
    Variant(
        name="numpy",
        family=FAMILY,
        idea="the host's own BLAS through numpy.matmul: what the device must beat, transfers included",
        source="NumPy; the BLAS it was built with is named in the run",
        dtypes=("float", "double"),
        executor="numpy",
    ),
)
