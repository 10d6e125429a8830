"""The GEMM problem: C = alpha A B + beta C, and how much work it is."""

from __future__ import annotations

from dataclasses import dataclass, field

from msgspec import UnsetType

from gemmbench.model.dtypes import DTYPES, DType

Leading = tuple[int, int, int]  # lda, ldb, ldc: elements from row to row of A, B and C


class Dimensions:
    """What everything with an m, an n and a k says of them."""

    m: int
    n: int
    k: int
    ld: Leading | UnsetType | None = None  # None or unset: rows have nothing between them
    batch: int | UnsetType = 1  # unset: 1

    @property
    def count(self) -> int:
        """Independent problems of this shape that are computed at once."""
        return self.batch or 1

    @property
    def flops(self) -> int:
        """Operations: 2 m n k of every problem, a multiplication and an addition for each product."""
        return 2 * self.m * self.n * self.k * self.count

    @property
    def is_square(self) -> bool:
        """Whether m = n = k."""
        return self.m == self.n == self.k

    @property
    def shape(self) -> str:
        """For a sentence: ``96x3025x363``, ``96x3025x363 lda=400``, ``64x64x64 batch=1024``."""
        return f"{self.m}x{self.n}x{self.k}{self.apart()}"

    @property
    def size(self) -> str:
        """For a narrow column: ``512`` where m = n = k, else the shape."""
        return f"{self.m}{self.apart()}" if self.is_square else self.shape

    def apart(self, between: str = "=", before: str = " ") -> str:
        """Long leading dimensions, and how many problems there are: `` lda=400 ldc=512 batch=8``."""
        wide = zip(("lda", "ldb", "ldc"), self.ld or (), (self.k, self.n, self.n), strict=False)
        parts = [(name, ld) for name, ld, width in wide if ld != width]
        parts += [("batch", self.count)] if self.count > 1 else []
        return "".join(f"{before}{name}{between}{value}" for name, value in parts)

    @property
    def title(self) -> str:
        """For a caption: ``m = n = k = 2048``, ``m = 96, n = 3025, k = 363``."""
        lengths = f"m = n = k = {self.m}" if self.is_square else f"m = {self.m}, n = {self.n}, k = {self.k}"
        return lengths + self.apart(" = ", ", ")


def leading(
    m: int, n: int, k: int, lda: int | None = None, ldb: int | None = None, ldc: int | None = None
) -> Leading | None:
    """Leading dimensions of a problem; None where all rows are tight.

    Raises:
        ValueError: one is less than its matrix is wide; the sentence is for the user.
    """
    widths = {"lda": (lda, k, "A has k"), "ldb": (ldb, n, "B has n"), "ldc": (ldc, n, "C has n")}
    for name, (given, width, whose) in widths.items():
        if given is not None and given < width:
            raise ValueError(f"{name} {given} is less than the row that it leads: {whose} = {width} columns")
    every = tuple(width if given is None else given for given, width, _ in widths.values())
    return None if every == (k, n, n) else (every[0], every[1], every[2])


@dataclass(frozen=True)
class Gemm(Dimensions):
    """One problem: A is m x k, B is k x n, C is m x n, all row-major.

    The data type is that of A and B; it tells C's (``DType.result``).

    A batch is so many problems of one shape, each with operands of its own, that lie one behind the other
    (m lda, k ldb and m ldc elements apart) and are computed in one launch.

    Raises:
        ValueError: a dimension is negative, the batch is empty or the data type is unknown.
    """

    m: int
    n: int
    k: int
    dtype: str = "float"
    alpha: float = 1.0
    beta: float = 0.0
    label: str = field(default="", compare=False)  # its name in a set of workloads: "alexnet conv1"
    ld: Leading | None = None
    batch: int = 1

    def __post_init__(self) -> None:
        for name in ("m", "n", "k"):
            if getattr(self, name) < 0:
                raise ValueError(f"{name} must be 0 or more, not {getattr(self, name)}")
        if self.ld:
            leading(self.m, self.n, self.k, *self.ld)
        if self.batch < 1:
            raise ValueError(f"batch must be 1 or more, not {self.batch}")
        if self.dtype not in DTYPES:
            raise ValueError(f"unknown data type {self.dtype!r}; there are {', '.join(DTYPES)}")

    @property
    def result(self) -> DType:
        """The data type of C."""
        return DTYPES[DTYPES[self.dtype].result]

    @property
    def elements_of(self) -> dict[str, int]:
        """Elements of A, B and C of the whole batch, with those between their rows."""
        lda, ldb, ldc = self.ld or (self.k, self.n, self.n)
        each = {"A": self.m * lda, "B": self.k * ldb, "C": self.m * ldc}
        return {name: self.batch * elements for name, elements in each.items()}

    @property
    def bytes_of(self) -> dict[str, int]:
        """Bytes of A, B and C as they are stored, each in its own type."""
        sizes = {"A": DTYPES[self.dtype].itemsize, "B": DTYPES[self.dtype].itemsize}
        sizes["C"] = self.result.itemsize
        return {name: count * sizes[name] for name, count in self.elements_of.items()}

    @property
    def operand_bytes(self) -> int:
        """Bytes of A, B and C together: the least that a multiplication must hold."""
        return sum(self.bytes_of.values())
