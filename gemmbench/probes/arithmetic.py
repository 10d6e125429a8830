"""The compute probes: chains of dependent steps in registers, and the instructions of matrix units."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar

import numpy as np

from gemmbench.model import dtypes
from gemmbench.model.device import DeviceFacts
from gemmbench.model.dtypes import DTYPES, DType, HostArray, Instruction, decode, encode
from gemmbench.model.kernel_files import fingerprint
from gemmbench.model.row import Parameters, RanOn

WIDTHS: tuple[int, ...] = (1, 2, 4, 8, 16)
CHAINS: tuple[int, ...] = (1, 2, 4, 8, 12, 16)  # independent recurrences; a kernel of chains.clh each
UNROLLS: tuple[int, ...] = (4, 16)  # steps of every chain in a trip of the loop


@dataclass(frozen=True)
class Form:
    """One way to write the step of a recurrence: a program of its own, so that it fails alone."""

    name: str  # in rows and tables
    file: str
    define: str  # selects it in the file
    recurrence: str  # what it computes, in `RECURRENCES`
    real: str = ""  # the REAL type of common.clh, where the file leaves it open
    extension: str = ""  # that the device must list
    capability: dtypes.Capability = (0, 0)  # that its PTX needs; (0, 0): it has none
    standard: str = ""  # -cl-std, where 1.2 is not enough

    def lacks(self, device: DeviceFacts) -> str:
        """Why a device cannot run this form, or ""."""
        if self.capability > device.compute_capability:
            return dtypes.lacks_capability(device, self.name, self.capability)
        extension = self.extension
        # NVIDIA's driver compiles half without listing it, but neither fma, nor mad, nor vectors from memory.
        if self.real == "half" or (self.real in DTYPES and self.real not in device.dtypes):
            extension = DTYPES[self.real].extension
        return f"the device does not list {extension}" if extension not in ("", *device.extensions) else ""

    def options(self, width: int, unroll: int, chains: Iterable[int]) -> tuple[str, ...]:
        return (
            *([f"-cl-std={self.standard}"] if self.standard else []),
            *([f"-DREAL_{self.real}"] if self.real else []),
            f"-D{self.define}",
            f"-DWIDTH={width}",
            f"-DUNROLL={unroll}",
            *(f"-DCHAINS_{count}" for count in sorted(chains)),
        )


@dataclass(frozen=True)
class ChainProbe:
    """Chains of dependent steps in registers, raced over forms, numbers of chains and unrolling."""

    name: str
    idea: str
    forms: Mapping[str, tuple[Form, ...]]  # by data type, most promising first
    operations: int = 2  # of one step on one lane: a multiplication and an addition
    widths: tuple[int, ...] = WIDTHS  # at which it makes sense

    ran_on: ClassVar[RanOn] = "device"

    @property
    def dtypes(self) -> tuple[str, ...]:
        return tuple(self.forms)

    @property
    def files(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(form.file for forms in self.forms.values() for form in forms))

    def cases(self, dtype: str, widths: Iterable[int]) -> tuple[Parameters, ...]:
        return tuple({"width": width} for width in widths if width in self.widths)

    def usable(self, device: DeviceFacts, dtype: str) -> tuple[Form, ...]:
        return tuple(form for form in self.forms[dtype] if not form.lacks(device))

    def lacks(self, device: DeviceFacts, dtype: str) -> str:
        return "" if self.usable(device, dtype) else self.forms[dtype][0].lacks(device)

    def fingerprint(self, dtype: str, parameters: Parameters) -> str:
        width, forms = int(parameters["width"]), self.forms[dtype]
        options = (word for form in forms for n in UNROLLS for word in form.options(width, n, CHAINS))
        return fingerprint(tuple(dict.fromkeys(form.file for form in forms)), tuple(options))


_FLOPS = "peak/flops.cl"


def _floating(real: str) -> tuple[Form, ...]:
    steps = (("a*b+c", "EXPRESSION"), ("fma(a,b,c)", "FMA"), ("mad(a,b,c)", "MAD"))
    return tuple(Form(name, _FLOPS, f"FORM_{word}", "linear", real) for name, word in steps)


def _integer(real: str) -> tuple[Form, ...]:
    steps = (("x*x+c", "square"), ("x*y+c", "cross"))
    return tuple(Form(name, _FLOPS, f"FORM_{word.upper()}", word, real) for name, word in steps)


_dot_form = partial(Form, file="peak/dot8.cl", recurrence="dot")
_KHRONOS_DOT: Mapping[str, Any] = {"extension": "cl_khr_integer_dot_product", "standard": "CL3.0"}
_ARM_DOT: Mapping[str, Any] = {"extension": "cl_arm_integer_dot_product_accumulate_int8"}

FLOPS = ChainProbe(
    name="flops",
    idea="chains of dependent multiply-adds in registers: what the arithmetic units can do",
    forms={
        "float": _floating("float"),
        "double": _floating("double"),
        "half": (
            *_floating("half"),
            Form("fma.rn.f16x2", "peak/packed.cl", "FORM_HALF2", "packed", capability=(5, 3)),
        ),
        "bfloat16": (
            *_floating("bfloat16")[:1],  # fma and mad do not take it
            Form("fma.rn.bf16x2", "peak/packed.cl", "FORM_BFLOAT2", "packed", capability=(8, 0)),
        ),
        "long": _integer("ulong"),
        "int": _integer("uint"),
        "short": _integer("ushort"),
        "char": _integer("uchar"),
    },
)

DOT8 = ChainProbe(
    name="dot8",
    idea="dot products of four bytes, added up in an int",
    forms={
        "char": (
            _dot_form("dp4a.s32", define="FORM_DP4A", capability=(6, 1)),
            _dot_form("dot_4x8packed", define="FORM_KHRONOS", **_KHRONOS_DOT),
            _dot_form("dot_acc_sat", define="FORM_KHRONOS_SAT", **_KHRONOS_DOT),
            _dot_form("arm_dot_acc", define="FORM_ARM", **_ARM_DOT),
            _dot_form("four products", define="FORM_PLAIN"),
        )
    },
    operations=8,
    widths=(1,),  # a register of four bytes is the vector
)


OPERANDS: tuple[str, ...] = ("random", "zeros")
"""What matrix units are fed with: zeros draw less power, so that some devices run faster."""


@dataclass(frozen=True)
class MatrixProbe:
    """One family of instructions for short types: NVIDIA's tensor cores through PTX, or units of a CPU."""

    family: dtypes.InstructionFamily
    idea: str
    file: str
    warps: int  # that issue one instruction together; 0: a work-item alone does, in a group of its own
    chains: tuple[int, ...]  # independent products of a warp, raced; a single one needs no telling
    unrolls: tuple[int, ...]  # even, since steps alternate between two operands
    groups: tuple[int, ...]  # work-groups for each compute unit, raced
    tiles: int  # different operands, as in the file

    ran_on: ClassVar[RanOn] = "matrix"

    @property
    def name(self) -> str:
        return self.family.name

    @property
    def dtypes(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(instruction.dtype for instruction in self.family.instructions))

    @property
    def files(self) -> tuple[str, ...]:
        return (self.file,)

    def cases(self, dtype: str, widths: Iterable[int]) -> tuple[Parameters, ...]:
        return tuple(
            {"shape": instruction.shape, "accumulator": instruction.accumulator, "operands": operands}
            for instruction in self.family.instructions
            if instruction.dtype == dtype
            for operands in OPERANDS
        )

    def instruction(self, dtype: str, parameters: Parameters) -> Instruction:
        return next(
            candidate
            for candidate in self.family.instructions
            if (candidate.dtype, candidate.accumulator, candidate.shape)
            == (dtype, parameters["accumulator"], parameters["shape"])
        )

    def options(self, instruction: Instruction, chains: int, unroll: int) -> tuple[str, ...]:
        chosen = f"{self.name.upper()}_{instruction.dtype}_{instruction.accumulator}"
        many = (f"-DCHAINS={chains}",) if self.chains != (1,) else ()
        return (f"-D{chosen}", *many, f"-DUNROLL={unroll}")

    def lacks(self, device: DeviceFacts, dtype: str) -> str:
        return self.family.lacks(device, dtype)

    def fingerprint(self, dtype: str, parameters: Parameters) -> str:
        instruction = self.instruction(dtype, parameters)
        pairs = ((chains, unroll) for chains in self.chains for unroll in self.unrolls)
        options = (word for pair in pairs for word in self.options(instruction, *pair))
        return fingerprint((self.file,), tuple(options))


MMA = MatrixProbe(
    dtypes.MMA, "tensor cores via mma.sync: a warp multiplies tiles that it holds in registers",
    "peak/mma.cl", warps=1, chains=(2, 4, 8), unrolls=(4, 16), groups=(6, 8, 12), tiles=16,
)  # fmt: skip
WGMMA = MatrixProbe(
    dtypes.WGMMA, "Hopper's tensor cores: four warps multiply tiles that lie in local memory",
    "peak/wgmma.cl", warps=4, chains=(1,), unrolls=(4, 8), groups=(1, 2, 3), tiles=8,
)  # fmt: skip
AMX = MatrixProbe(
    dtypes.AMX, "AMX, the matrix unit of a CPU: a work-item multiplies tiles that stay in the unit",
    "peak/amx.cl", warps=0, chains=(4,), unrolls=(2, 8), groups=(1, 4), tiles=2,
)  # fmt: skip
_unit_of_cpu = partial(
    MatrixProbe,
    idea="a CPU's unit for short types: a work-item multiplies vectors that it holds in registers",
    file="peak/units.cl", warps=0, chains=(24,), unrolls=(2, 4), groups=(4, 16), tiles=4,
)  # fmt: skip
OF_CPUS: tuple[MatrixProbe, ...] = (AMX, *(_unit_of_cpu(family=family) for family in dtypes.CPU_FAMILIES))

Probe = ChainProbe | MatrixProbe
"""A microbenchmark of arithmetic units: the parameters of each of its rows (widths are for vectors), why a
device cannot run it for a type, and the hash of everything that may be compiled for a row."""


SEEDS = 4096  # elements of the seed buffer, as in chains.clh


@dataclass(frozen=True)
class ChainOperands:
    """What a probe's kernels read, as it is stored."""

    seeds: HostArray  # SEEDS start values
    coefficients: HostArray  # two for each lane: all of the first kind, then all of the second


@dataclass(frozen=True)
class Recurrence:
    """One way from a chain's value to its next."""

    draw: Callable[[DType, int, np.random.Generator], ChainOperands]  # for a type and a number of lanes
    widen: Callable[[HostArray, DType], HostArray]  # from stored to what the host computes with
    # The next value from the last (work-items x chains x lanes) and both coefficients of each lane.
    step: Callable[[HostArray, HostArray, HostArray, DType], HostArray]
    sums: str = ""  # the type in which the kernel adds up, where it is not the probe's own

    def sum_type(self, dtype: DType) -> DType:
        return DTYPES[self.sums or dtype.name]


def expected_sums(
    recurrence: Recurrence, dtype: DType, operands: ChainOperands, items: int, width: int, chains: int,
    steps: int, merged: bool = False,
) -> HostArray:  # fmt: skip
    """The sum over all chains and lanes of each work-item, as a kernel of ``chains.clh`` should store it.

    With `merged`, all chains have the first one's seed, as if a compiler merged them.
    """
    seeds = recurrence.widen(operands.seeds, dtype).reshape(-1, width)
    first, second = recurrence.widen(operands.coefficients, dtype).reshape(2, width)
    vectors = len(seeds)
    unique = min(items, vectors)  # seeds repeat, so few items have sums of their own
    index = (np.arange(unique)[:, None] * chains + np.arange(chains)) % vectors
    if merged:
        index = np.repeat(index[:, :1], chains, axis=1)
    x = seeds[index]
    with np.errstate(over="ignore"):
        for _ in range(steps):
            x = recurrence.step(x, first, second, dtype)
        sums = x.sum(axis=(1, 2), dtype=x.dtype)
    if not recurrence.sum_type(dtype).is_float:
        sums = sums.astype(recurrence.sum_type(dtype).numpy)
    return np.resize(sums, items)


def _draw_floats(dtype: DType, width: int, rng: np.random.Generator) -> ChainOperands:
    """Multipliers just above -1 keep chains moving and finite, and differ from -1 by more than rounding."""
    seeds = rng.uniform(-1, 1, SEEDS)
    multipliers = -(1 - rng.uniform(0.5, 1, width) * np.clip(64 * dtype.eps, 1e-4, 0.25))
    addends = rng.uniform(-0.5, 0.5, width)
    return ChainOperands(encode(seeds, dtype), encode(np.concatenate([multipliers, addends]), dtype))


def _draw_integers(dtype: DType, width: int, rng: np.random.Generator) -> ChainOperands:
    """Random unsigned seeds and odd coefficients (two a lane), so that no chain stays at 0."""
    unsigned = np.dtype(f"u{dtype.itemsize}")
    most = np.iinfo(unsigned).max
    return ChainOperands(
        rng.integers(0, most, SEEDS, dtype=unsigned, endpoint=True),
        rng.integers(0, most, 2 * width, dtype=unsigned, endpoint=True) | unsigned.type(1),
    )


def _draw_bytes(dtype: DType, width: int, rng: np.random.Generator) -> ChainOperands:
    """Registers of four bytes; addends are so small that no sum saturates."""
    coefficients = [rng.integers(-(2**31), 2**31, width), rng.integers(-(2**30), 2**30, width)]
    seeds = rng.integers(-(2**31), 2**31, SEEDS)
    return ChainOperands(seeds.astype(np.int32), np.concatenate(coefficients).astype(np.int32))


def _rounded(x: HostArray, a: HostArray, b: HostArray, dtype: DType) -> HostArray:
    """One rounding for both operations: the product of two 16-bit numbers is exact in double precision."""
    return decode(encode(x * a + b, dtype), dtype)


def _cross(x: HostArray, _: HostArray, b: HostArray, dtype: DType) -> HostArray:
    """Multiply each chain by the next, in order; the last by the first, which has made its step."""
    x, chains = x.copy(), x.shape[1]
    for chain in range(chains):
        x[:, chain] = x[:, chain] * x[:, (chain + 1) % chains] + b
    return x


def _dot_step(x: HostArray, a: HostArray, b: HostArray, dtype: DType) -> HostArray:
    left, right = (np.ascontiguousarray(words.astype(np.int32)).view(np.int8) for words in (x, a))
    products = left.astype(np.int64) * right
    return np.asarray(b + products.reshape(*x.shape, 4).sum(axis=-1))


def _to_uint64(stored: HostArray, dtype: DType) -> HostArray:
    return stored.astype(np.uint64)


RECURRENCES: dict[str, Recurrence] = {
    "linear": Recurrence(_draw_floats, decode, lambda x, a, b, _: x * a + b),
    "packed": Recurrence(_draw_floats, decode, _rounded, "float"),
    "square": Recurrence(_draw_integers, _to_uint64, lambda x, _, b, dtype: x * x + b),
    "cross": Recurrence(_draw_integers, _to_uint64, _cross),
    "dot": Recurrence(_draw_bytes, lambda stored, _: stored.astype(np.int64), _dot_step, "int"),
}
"""By name, as the forms of the probes name them."""


# --- The operands of matrix units, and what they make of them: tiles of A and B, and D after some steps.

_EXACT = 2  # the check's operands are whole numbers of at most this, so that every sum is exact


@dataclass(frozen=True)
class TileOperands:
    """Operands of a matrix probe as numbers."""

    a: HostArray  # tiles x 2 x m x k: steps alternate between the two
    b: HostArray  # tiles x n x k: columns lie contiguous

    def stored(self, instruction: Instruction) -> tuple[HostArray, HostArray]:
        dtype = DTYPES[instruction.dtype]
        return encode(self.a, dtype), encode(self.b, dtype)


def draw_tiles(kind: str, instruction: Instruction, tiles: int, rng: np.random.Generator) -> TileOperands:
    """Tiles of A, in pairs, and of B: ``random`` or ``zeros`` to be timed, ``exact`` to be checked.

    A random A's second tile is the negative of the first, so that sums stay bounded.
    """
    a_shape, b_shape = (tiles, 2, instruction.m, instruction.k), (tiles, instruction.n, instruction.k)
    if kind == "zeros":
        return TileOperands(np.zeros(a_shape), np.zeros(b_shape))
    if kind == "exact":
        a = rng.integers(-_EXACT, _EXACT, a_shape, endpoint=True).astype(np.float64)
        least = 0 if instruction.unit else -1  # a CPU's B may be unsigned
        return TileOperands(a, rng.integers(least, 1, b_shape, endpoint=True).astype(np.float64))
    most = 127.0 if not DTYPES[instruction.dtype].is_float else 1.0
    a, b = rng.uniform(-most, most, a_shape), rng.uniform(-most, most, b_shape)
    a[:, 1] = -a[:, 0]
    return TileOperands(a, b)


def expected_product(tiles: TileOperands, pairs: HostArray, steps: int) -> HostArray:
    """D after an even number of steps, products x m x n in double precision, from pairs of tiles."""
    summed = steps // 2 * tiles.a.sum(axis=1)
    return np.asarray(summed[pairs[:, 0]] @ tiles.b[pairs[:, 1]].transpose(0, 2, 1))
