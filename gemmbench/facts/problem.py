"""The GEMM problem: C = alpha A B + beta C, and how much work it is."""

from __future__ import annotations

from dataclasses import dataclass, field

from gemmbench.facts.dtypes import DTYPES, DType


@dataclass(frozen=True)
class Gemm:
    """One problem: A is m x k, B is k x n, C is m x n, all row-major.

    The data type is that of A and B; it tells C's (``DType.result``).

    Raises:
        ValueError: a dimension is negative or the data type is unknown.
    """

    m: int
    n: int
    k: int
    dtype: str = "float"
    alpha: float = 1.0
    beta: float = 0.0
    label: str = field(default="", compare=False)  # its name in a set of workloads: "alexnet conv1"

    def __post_init__(self) -> None:
        for name in ("m", "n", "k"):
            if getattr(self, name) < 0:
                raise ValueError(f"{name} must be 0 or more, not {getattr(self, name)}")
        if self.dtype not in DTYPES:
            raise ValueError(f"unknown data type {self.dtype!r}; there are {', '.join(DTYPES)}")

    @property
    def flops(self) -> int:
        """Operations: 2 m n k, a multiplication and an addition for each product."""
        return 2 * self.m * self.n * self.k

    @property
    def result(self) -> DType:
        """The data type of C."""
        return DTYPES[DTYPES[self.dtype].result]

    @property
    def bytes_of(self) -> dict[str, int]:
        """Bytes of A, B and C, each in its own type."""
        itemsize = DTYPES[self.dtype].itemsize
        return {
            "A": self.m * self.k * itemsize,
            "B": self.k * self.n * itemsize,
            "C": self.m * self.n * self.result.itemsize,
        }

    @property
    def operand_bytes(self) -> int:
        """Bytes of A, B and C together: the least that a multiplication must hold."""
        return sum(self.bytes_of.values())

    @property
    def shape(self) -> str:
        """``m x n x k`` for people."""
        return f"{self.m}x{self.n}x{self.k}"
