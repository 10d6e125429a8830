"""The data types: one row each."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class DType:
    """A data type as the command line, numpy and OpenCL C know it."""

    name: str  # on the command line and in saved files; also the OpenCL C name
    numpy: np.dtype[np.generic]
    scalar: str  # how alpha and beta reach a kernel: half is not allowed as a kernel argument
    eps: float  # distance from 1 to the next value; 0 for integers, which are exact
    extension: str  # the OpenCL extension that a device must list, or ""
    blas: bool  # whether numpy hands a product of this type to its BLAS

    @property
    def itemsize(self) -> int:
        """Bytes of one value."""
        return int(self.numpy.itemsize)

    @property
    def is_float(self) -> bool:
        """Whether values have a fraction."""
        return self.eps > 0


def _row(name: str, numpy: type[np.generic], scalar: str, extension: str, blas: bool) -> DType:
    dtype = np.dtype(numpy)
    eps = float(np.finfo(dtype).eps) if dtype.kind == "f" else 0.0
    return DType(name, dtype, scalar, eps, extension, blas)


DTYPES: dict[str, DType] = {
    row.name: row
    for row in (
        #    name      numpy       scalar    extension      BLAS
        _row("float", np.float32, "float", "", True),
        _row("double", np.float64, "double", "cl_khr_fp64", True),
        _row("half", np.float16, "float", "cl_khr_fp16", False),
        _row("int", np.int32, "int", "", False),
    )
}

GEMM_DTYPES: tuple[str, ...] = tuple(name for name, row in DTYPES.items() if row.is_float)
