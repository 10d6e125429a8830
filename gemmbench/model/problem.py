"""The GEMM problem: C = alpha op(A) op(B) + beta C, and how much work it is."""

from __future__ import annotations

from dataclasses import dataclass, field

from msgspec import UnsetType

from gemmbench.model.dtypes import DTYPES, DType

Leading = tuple[int, int, int]  # lda, ldb, ldc: elements from row to row of A, B and C
MOST_PROBLEMS = 65_535  # of a batch: what NVIDIA's GPUs take as the third dimension of a launch
LONGEST = 2**31 - 1  # of m, n, k, lda, ldb and ldc: kernels and libraries count in 32-bit integers


class Dimensions:
    """What everything with an m, an n and a k says of them."""

    m: int
    n: int
    k: int
    alpha: float = 1.0
    beta: float = 0.0
    ld: Leading | UnsetType | None = None  # None or unset: rows have nothing between them
    trans_a: bool | UnsetType = False  # A is stored k x m, and op(A) is its transpose
    trans_b: bool | UnsetType = False  # B is stored n x k, and op(B) is its transpose
    batch: int | UnsetType = 1  # unset: 1

    @property
    def count(self) -> int:
        return self.batch or 1

    @property
    def ops(self) -> str:
        """How A and B are stored: ``NN``, ``NT``, ``TN``, ``TT``."""
        return "".join("T" if transposed else "N" for transposed in (self.trans_a, self.trans_b))

    @property
    def stored_a(self) -> tuple[int, int]:
        return (self.k, self.m) if self.trans_a else (self.m, self.k)

    @property
    def stored_b(self) -> tuple[int, int]:
        return (self.n, self.k) if self.trans_b else (self.k, self.n)

    @property
    def tight(self) -> Leading:
        return self.stored_a[1], self.stored_b[1], self.n

    @property
    def flops(self) -> int:
        """2 m n k for each problem; 0 if alpha is 0: a BLAS reads no A and B then."""
        return 2 * self.m * self.n * self.k * self.count if self.alpha else 0

    @property
    def is_square(self) -> bool:
        return self.m == self.n == self.k

    @property
    def shape(self) -> str:
        """``96x3025x363``, ``96x3025x363 NT lda=400``, ``64x64x64 batch=1024``."""
        return f"{self.m}x{self.n}x{self.k}{self.apart()}"

    @property
    def size(self) -> str:
        """``512`` where m = n = k, else the shape."""
        return f"{self.m}{self.apart()}" if self.is_square else self.shape

    def apart(self, between: str = "=", before: str = " ", gaps: bool = True) -> str:
        """How it differs from one NN problem without gaps: `` NT lda=400 ldc=512``, `` batch=1024``; or "".

        `gaps` includes leading dimensions. Each part is `before`, name, `between`, value.
        """
        ops = f"{before}{self.ops}" if self.ops != "NN" else ""
        wide = zip(("lda", "ldb", "ldc"), self.ld or (), self.tight, strict=False)
        parts = [(name, ld) for name, ld, width in wide if gaps and ld != width]
        parts += [("batch", self.count)] if self.count > 1 else []
        return ops + "".join(f"{before}{name}{between}{value}" for name, value in parts)

    @property
    def title(self) -> str:
        """``m = n = k = 2048``, ``m = 96, n = 3025, k = 363, NT``."""
        lengths = f"m = n = k = {self.m}" if self.is_square else f"m = {self.m}, n = {self.n}, k = {self.k}"
        return lengths + self.apart(" = ", ", ") + self.scalars

    @property
    def scalars(self) -> str:
        """``, alpha = 2, beta = 0.5``; "" for 1 and 0."""
        is_plain = (self.alpha, self.beta) == (1.0, 0.0)
        return "" if is_plain else f", alpha = {self.alpha:g}, beta = {self.beta:g}"

    @property
    def form(self) -> str:
        """For the caption of a sweep: ``, NT, batch = 8, alpha = 2, beta = 0``."""
        return self.apart(" = ", ", ", gaps=False) + self.scalars


def leading(
    m: int, n: int, k: int, lda: int | None = None, ldb: int | None = None, ldc: int | None = None,
    trans_a: bool = False, trans_b: bool = False,
) -> Leading | None:  # fmt: skip
    """The leading dimensions lda, ldb and ldc in elements; None if no row has gaps.

    `ValueError`, for the user, if one is smaller than its matrix's rows as stored.
    """
    a = (m, "the transposed A has m") if trans_a else (k, "A has k")
    b = (k, "the transposed B has k") if trans_b else (n, "B has n")
    widths = {"lda": (lda, *a), "ldb": (ldb, *b), "ldc": (ldc, n, "C has n")}
    for name, (given, width, whose) in widths.items():
        if given is not None and given < width:
            raise ValueError(f"{name} {given} is less than a row: {whose} = {width} columns")
    every = tuple(width if given is None else given for given, width, _ in widths.values())
    return None if every == (a[0], b[0], n) else (every[0], every[1], every[2])


@dataclass(frozen=True)
class Gemm(Dimensions):
    """One problem, C = alpha op(A) op(B) + beta C: op(A) is m x k, op(B) is k x n, C is m x n, all row-major.

    The data type is that of A and B; ``DType.result`` is that of C. A batch is several problems of one shape
    in one launch, with operands one after the other: m lda, k ldb and m ldc elements apart.

    `ValueError` for a negative dimension, an empty batch, a short leading dimension, an unknown type.
    """

    m: int
    n: int
    k: int
    dtype: str = "float"
    alpha: float = 1.0
    beta: float = 0.0
    label: str = field(default="", compare=False)  # its name in a set of workloads: "alexnet conv1"
    ld: Leading | None = None
    trans_a: bool = False
    trans_b: bool = False
    batch: int = 1
    calls: int = field(default=1, compare=False)  # how often a program made this call

    def __post_init__(self) -> None:
        for name in ("m", "n", "k"):
            if getattr(self, name) < 0:
                raise ValueError(f"{name} must be 0 or more, not {getattr(self, name)}")
        if self.ld:
            leading(self.m, self.n, self.k, *self.ld, self.trans_a, self.trans_b)
        if self.batch < 1:
            raise ValueError(f"batch must be 1 or more, not {self.batch}")
        if self.dtype not in DTYPES:
            raise ValueError(f"unknown data type {self.dtype!r}; there are {', '.join(DTYPES)}")

    @property
    def result(self) -> DType:
        return DTYPES[DTYPES[self.dtype].result]

    @property
    def elements_of(self) -> dict[str, int]:
        """Elements of A, B and C of the whole batch, with gaps."""
        lda, ldb, ldc = self.ld or self.tight
        each = {"A": self.stored_a[0] * lda, "B": self.stored_b[0] * ldb, "C": self.m * ldc}
        return {name: self.batch * elements for name, elements in each.items()}

    @property
    def bytes_of(self) -> dict[str, int]:
        kinds = {"A": DTYPES[self.dtype], "B": DTYPES[self.dtype], "C": self.result}
        return {name: count * kinds[name].itemsize for name, count in self.elements_of.items()}

    @property
    def operand_bytes(self) -> int:
        return sum(self.bytes_of.values())
