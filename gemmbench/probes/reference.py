"""What the chains of ``kernels/peak`` compute, on the host: their operands, their steps and their sums."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from gemmbench.model.dtypes import DTYPES, DType, HostArray, Instruction, decode, encode

SEEDS = 4096  # elements of the seed buffer, as in chains.clh


@dataclass(frozen=True)
class ChainOperands:
    """What a probe's kernels read, as it is stored."""

    seeds: HostArray  # SEEDS start values
    coefficients: HostArray  # two for each lane: all of the first kind, then all of the second


@dataclass(frozen=True)
class Lanes:
    """The chains of some work-items, as the host computes them."""

    x: HostArray  # work-items x chains x lanes
    first: HostArray  # coefficients of the lanes
    second: HostArray


@dataclass(frozen=True)
class Recurrence:
    """One way from a chain's value to its next."""

    draw: Callable[[DType, int, np.random.Generator], ChainOperands]  # for a type and a number of lanes
    widen: Callable[[HostArray, DType], HostArray]  # from stored to what the host computes with
    step: Callable[[Lanes, DType], HostArray]  # x after one more step
    sums: str = ""  # the type in which the kernel adds up, where it is not the probe's own

    def sum_type(self, dtype: DType) -> DType:
        """The type of what the kernel stores, for a probe of this type."""
        return DTYPES[self.sums or dtype.name]


def expected_sums(
    recurrence: Recurrence, dtype: DType, operands: ChainOperands, items: int, width: int, chains: int,
    steps: int,
    merged: bool = False,
) -> HostArray:  # fmt: skip
    """What a kernel of ``chains.clh`` stores for each work-item: floating point in double precision.

    So many steps of every chain, of so many lanes. `merged`: as if all chains of a work-item began with the
    first one's seed.
    """
    seeds = recurrence.widen(operands.seeds, dtype).reshape(-1, width)
    first, second = recurrence.widen(operands.coefficients, dtype).reshape(2, width)
    vectors = len(seeds)
    unique = min(items, vectors)  # seeds repeat, so few items have sums of their own
    index = (np.arange(unique)[:, None] * chains + np.arange(chains)) % vectors
    if merged:
        index = np.repeat(index[:, :1], chains, axis=1)
    lanes = Lanes(seeds[index], first, second)
    with np.errstate(over="ignore"):
        for _ in range(steps):
            lanes = Lanes(recurrence.step(lanes, dtype), first, second)
        sums = lanes.x.sum(axis=(1, 2), dtype=lanes.x.dtype)
    if not recurrence.sum_type(dtype).is_float:
        sums = sums.astype(recurrence.sum_type(dtype).numpy)
    return np.resize(sums, items)


# --- operands -----------------------------------------------------------------------------------------------


def _draw_floats(dtype: DType, width: int, rng: np.random.Generator) -> ChainOperands:
    """Multipliers above -1 keep a chain moving and finite: by so much that a few steps outdo rounding."""
    seeds = rng.uniform(-1, 1, SEEDS)
    multipliers = -(1 - rng.uniform(0.5, 1, width) * np.clip(64 * dtype.eps, 1e-4, 0.25))
    addends = rng.uniform(-0.5, 0.5, width)
    return ChainOperands(encode(seeds, dtype), encode(np.concatenate([multipliers, addends]), dtype))


def _draw_integers(dtype: DType, width: int, rng: np.random.Generator) -> ChainOperands:
    """Anything: chains wrap around. Coefficients are odd, so that no chain is stuck at 0."""
    unsigned = np.dtype(f"u{dtype.itemsize}")
    most = np.iinfo(unsigned).max
    return ChainOperands(
        rng.integers(0, most, SEEDS, dtype=unsigned, endpoint=True),
        rng.integers(0, most, 2 * width, dtype=unsigned, endpoint=True) | unsigned.type(1),
    )


def _draw_bytes(dtype: DType, width: int, rng: np.random.Generator) -> ChainOperands:
    """Registers of four bytes; addends so small that no sum saturates."""
    coefficients = [rng.integers(-(2**31), 2**31, width), rng.integers(-(2**30), 2**30, width)]
    seeds = rng.integers(-(2**31), 2**31, SEEDS)
    return ChainOperands(seeds.astype(np.int32), np.concatenate(coefficients).astype(np.int32))


# --- steps --------------------------------------------------------------------------------------------------


def _linear(lanes: Lanes, dtype: DType) -> HostArray:
    return np.asarray(lanes.x * lanes.first + lanes.second)


def _rounded(lanes: Lanes, dtype: DType) -> HostArray:
    """One rounding for both operations; the product of two 16-bit numbers is exact in double precision."""
    return decode(encode(_linear(lanes, dtype), dtype), dtype)


def _square(lanes: Lanes, dtype: DType) -> HostArray:
    return np.asarray(lanes.x * lanes.x + lanes.second)


def _cross(lanes: Lanes, dtype: DType) -> HostArray:
    """Chains one after the other: the last one's neighbour is the first, which has made its step."""
    x: HostArray = lanes.x.copy()
    chains = x.shape[1]
    for chain in range(chains):
        x[:, chain] = x[:, chain] * x[:, (chain + 1) % chains] + lanes.second
    return x


def _dot(lanes: Lanes, dtype: DType) -> HostArray:
    left, right = (np.ascontiguousarray(v.astype(np.int32)).view(np.int8) for v in (lanes.x, lanes.first))
    products = left.astype(np.int64) * right
    return np.asarray(lanes.second + products.reshape(*lanes.x.shape, 4).sum(axis=-1))


# --- all of them --------------------------------------------------------------------------------------------


def _modulo_2_64(stored: HostArray, dtype: DType) -> HostArray:
    return stored.astype(np.uint64)


def _signed(stored: HostArray, dtype: DType) -> HostArray:
    return stored.astype(np.int64)


RECURRENCES: dict[str, Recurrence] = {
    #                        operands        host's numbers  step     sums
    "linear": Recurrence(_draw_floats, decode, _linear),
    "packed": Recurrence(_draw_floats, decode, _rounded, "float"),
    "square": Recurrence(_draw_integers, _modulo_2_64, _square),
    "cross": Recurrence(_draw_integers, _modulo_2_64, _cross),
    "dot": Recurrence(_draw_bytes, _signed, _dot, "int"),
}
"""By name, as the forms of the probes name them."""


# --- What memory probes read, and what the host knows about it: a table of random floats, repeated ----------
# The table's length is prime, so that no stride of a kernel falls into step with it, and the host can tell
# the sum of any stretch of any set without holding the set. Values are integers of 22 bits as floats: random
# enough for every memory system, and exact in STREAM's triad with or without contraction.

TABLE_ELEMENTS = (1 << 20) - 3  # prime
SCALAR = 3.0  # of the triad, as in global.cl
_LARGEST = 1 << 21  # b + 3 c stays below 2^24
_KNUTH = np.uint64(2654435761)  # as in global.cl
_SPREAD = np.uint64(0x9E3779B1)  # as in working_set.cl
_SEED = 20261121
_WRAP = 1 << 32


class RepeatedTable:
    """The endless sequence of floats that sets are filled with."""

    def __init__(self) -> None:
        draw = np.random.default_rng(_SEED).integers(-_LARGEST + 1, _LARGEST, TABLE_ELEMENTS)
        self.table: HostArray = draw.astype(np.float32)
        bits = self.table.view(np.uint32)
        self._before: HostArray = np.append(np.uint64(0), np.cumsum(bits, dtype=np.uint64))

    def values(self, first: int, count: int) -> HostArray:
        positions = (first + np.arange(count)) % TABLE_ELEMENTS
        return np.asarray(self.table[positions])

    def sum_before(self, count: int) -> int:
        """Sum of the bits of the first elements, modulo 2^32."""
        return int(self._sums_before(np.array([count], np.uint64))[0]) % _WRAP

    def sum_of(self, first: int, count: int) -> int:
        """Sum of the bits of a stretch, modulo 2^32."""
        return (self.sum_before(first + count) - self.sum_before(first)) % _WRAP

    def sums_of_visits(self, groups: int, block: int, blocks: int, steps: int, visits: int) -> HostArray:
        """Sums of the bits that the groups of ``working_set`` read, modulo 2^32.

        A set has so many blocks, a power of two; a visit is so many steps, a block each, one after the other
        and round again.
        """
        number = np.arange(groups, dtype=np.uint64)
        rounds, rest = divmod(steps, blocks)
        total = np.full(groups, visits * rounds * self.sum_before(block * blocks) % _WRAP, np.uint64)
        for visit in range(visits):
            first = _hash(number * _SPREAD + np.uint64(visit)) % np.uint64(blocks)
            end = first + np.uint64(rest)
            over = np.where(end > blocks, end - np.uint64(blocks), np.uint64(0))
            total += self._sums_before((end - over) * block) - self._sums_before(first * block)
            total += self._sums_before(over * block)
        return (total % _WRAP).astype(np.uint32)

    def _sums_before(self, counts: HostArray) -> HostArray:
        """`sum_before` of several unsigned integers, modulo 2^64."""
        rounds, rest = np.divmod(counts, TABLE_ELEMENTS)
        return np.asarray(rounds * self._before[-1] + self._before[rest])


def written(first: int, count: int) -> HostArray:
    """What ``global_write`` leaves at elements from a position on, as unsigned integers."""
    places: HostArray = np.arange(first, first + count, dtype=np.uint64) * _KNUTH
    return places.astype(np.uint32)


def sum_bits(words: HostArray) -> int:
    """Sum of 32-bit words, modulo 2^32."""
    return int(words.view(np.uint32).sum(dtype=np.uint64)) % _WRAP


def _hash(words: HostArray) -> HostArray:
    """The hash of ``working_set``, of the lower 32 bits of each word."""
    x = words.astype(np.uint32)
    x = (x ^ x >> 16) * np.uint32(0x85EBCA6B)
    x = (x ^ x >> 13) * np.uint32(0xC2B2AE35)
    return np.asarray((x ^ x >> 16).astype(np.uint64))


def random_cycle(nodes: int, spacing: int) -> tuple[HostArray, HostArray]:
    """One random cycle through so many nodes, each `spacing` elements from its neighbour in memory.

    The elements to put into memory (nodes x spacing, flat, unsigned integers), each node's first holding
    the position of the next node, and the positions in the order of the cycle, which starts at 0.
    """
    order = np.random.default_rng(_SEED).permutation(nodes).astype(np.uint32)
    order = np.roll(order, -int(np.argmin(order)))
    places = order * np.uint32(spacing)
    memory = np.zeros(nodes * spacing, np.uint32)
    memory[places] = np.roll(places, -1)
    return memory, places


# --- The operands of matrix units, and what they make of them: tiles of A and B, and D after some steps.

_EXACT = 2  # the check's operands are whole numbers of at most this, so that every sum is exact


@dataclass(frozen=True)
class TileOperands:
    """Operands of a matrix probe as numbers: what a kernel reads is `stored` of them."""

    a: HostArray  # tiles x 2 x m x k: steps alternate between the two
    b: HostArray  # tiles x n x k: columns lie contiguous

    def stored(self, instruction: Instruction) -> tuple[HostArray, HostArray]:
        dtype = DTYPES[instruction.dtype]
        return encode(self.a, dtype), encode(self.b, dtype)


def draw(kind: str, instruction: Instruction, tiles: int, rng: np.random.Generator) -> TileOperands:
    """Operands of a kind: ``random`` or ``zeros`` are timed; ``exact``, small whole numbers, are checked.

    Random pairs of A are each other's negative, so that D stays bounded however many steps there are.
    """
    a_shape, b_shape = (tiles, 2, instruction.m, instruction.k), (tiles, instruction.n, instruction.k)
    if kind == "zeros":
        return TileOperands(np.zeros(a_shape), np.zeros(b_shape))
    if kind == "exact":
        a = rng.integers(-_EXACT, _EXACT, a_shape, endpoint=True).astype(np.float64)
        return TileOperands(a, rng.integers(-1, 1, b_shape, endpoint=True).astype(np.float64))
    most = 127.0 if not DTYPES[instruction.dtype].is_float else 1.0
    a, b = rng.uniform(-most, most, a_shape), rng.uniform(-most, most, b_shape)
    a[:, 1] = -a[:, 0]
    return TileOperands(a, b)


def expected(tiles: TileOperands, pairs: HostArray, steps: int) -> HostArray:
    """D of some products after an even number of steps, products x m x n in double precision.

    `pairs`, products x 2, has the indexes of their tiles of A and of B.
    """
    summed = steps // 2 * tiles.a.sum(axis=1)
    return np.asarray(summed[pairs[:, 0]] @ tiles.b[pairs[:, 1]].transpose(0, 2, 1))
