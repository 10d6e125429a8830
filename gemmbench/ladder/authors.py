"""What the authors of the write-ups published: the shape of a run is compared with it, never its rates."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class Published:
    """One author's figures on one device, in float."""

    title: str
    device: str
    source: str
    gflops: Mapping[str, Mapping[int, float]]  # by variant, then by m = n = k

    @property
    def size(self) -> int:
        """The size that most of the kernels have a figure for."""
        sizes = [size for curve in self.gflops.values() for size in curve]
        return max(dict.fromkeys(sizes), key=sizes.count)

    def at(self, size: int) -> dict[str, float]:
        """Each kernel's GFLOPS at a size, where there is a figure."""
        return {name: curve[size] for name, curve in self.gflops.items() if size in curve}


_STEPS = (
    "naive",
    "tiled",
    "coarse",
    "wide",
    "rect",
    "register",
    "register-wide",
    "subgroup",
    "prefetch",
    "padded",
)
_TUTORIAL = "C. Nugteren, Tutorial: OpenCL SGEMM tuning for Kepler"


def _steps(*gflops: float) -> dict[str, dict[int, float]]:
    return {name: {4096: rate} for name, rate in zip(_STEPS, gflops, strict=True)}


PUBLISHED = (
    Published(
        "the tutorial",
        "Tesla K40m",
        f"{_TUTORIAL}, page 12 (steps 8 to 10 built as CUDA)",
        _steps(139, 373, 689, 729, 740, 1371, 1361, 1563, 1153, 1251),
    ),
    Published(
        "the tutorial, on AMD",
        "Radeon R9 280X",
        f"{_TUTORIAL}, page 15 (the first two with groups of 16 x 16)",
        _steps(292, 951, 1573, 1029, 244, 649, 1960, 1960, 1656, 1606),
    ),
    Published(
        "Profiling GEMM on Android",
        "Mali-T760",
        "T. Shi, gemm-android (2016), main and other results",
        {
            "dot-v8": {1024: 11.14, 2048: 15.45, 4096: 15.6},
            "dot-v16": {1024: 6.46, 2048: 6.09},
            "dotf-v16": {1024: 11.50, 2048: 15.10},
            "block2x2-v4": {1024: 17.4, 2048: 27.3, 4096: 4.4},
            "block4x4-v4": {2048: 10.6},
            "block4x4-v8": {2048: 17.2},
        },
    ),
)
