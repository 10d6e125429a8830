"""The GEMM problem: C = alpha A B + beta C, and how much work it is."""

from __future__ import annotations

from dataclasses import dataclass, field

from gemmbench.model.dtypes import DTYPES, DType


class Dimensions:
    """What everything with an m, an n and a k says of them."""

    m: int
    n: int
    k: int

    @property
    def flops(self) -> int:
        """Operations: 2 m n k, a multiplication and an addition for each product."""
        return 2 * self.m * self.n * self.k

    @property
    def is_square(self) -> bool:
        """Whether m = n = k."""
        return self.m == self.n == self.k

    @property
    def shape(self) -> str:
        """For a sentence: ``96x3025x363``."""
        return f"{self.m}x{self.n}x{self.k}"

    @property
    def size(self) -> str:
        """For a narrow column: ``512`` where m = n = k, else the shape."""
        return str(self.m) if self.is_square else self.shape

    @property
    def title(self) -> str:
        """For a caption: ``m = n = k = 2048``, ``m = 96, n = 3025, k = 363``."""
        return f"m = n = k = {self.m}" if self.is_square else f"m = {self.m}, n = {self.n}, k = {self.k}"


@dataclass(frozen=True)
class Gemm(Dimensions):
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
