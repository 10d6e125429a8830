"""What the chains of ``kernels/peak`` compute, on the host: their operands, their steps and their sums."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from gemmbench.facts.dtypes import DTYPES, DType
from gemmbench.facts.formats import decode, encode
from gemmbench.rules.reference import Array

SEEDS = 4096  # elements of the seed buffer, as in chains.clh


@dataclass(frozen=True)
class Operands:
    """What a probe's kernels read, as it is stored."""

    seeds: Array  # SEEDS start values
    coefficients: Array  # two for each lane: all of the first kind, then all of the second


@dataclass(frozen=True)
class Lanes:
    """The chains of some work-items, as the host computes them."""

    x: Array  # work-items x chains x lanes
    seeds: Array  # what x began with
    first: Array  # coefficients of the lanes
    second: Array


@dataclass(frozen=True)
class Recurrence:
    """One way from a chain's value to its next."""

    draw: Callable[[DType, int, np.random.Generator], Operands]  # for a type and a number of lanes
    widen: Callable[[Array, DType], Array]  # from what is stored to what the host computes with
    step: Callable[[Lanes, int, DType], Array]  # x after the n-th step, from 0
    sums: str = ""  # the type in which the kernel adds up, where it is not the probe's own

    def sum_type(self, dtype: DType) -> DType:
        """The type of what the kernel stores, for a probe of this type."""
        return DTYPES[self.sums or dtype.name]


def expected_sums(
    recurrence: Recurrence,
    dtype: DType,
    operands: Operands,
    items: int,
    width: int,
    chains: int,
    steps: int,
    merged: bool = False,
) -> Array:
    """What a kernel of ``chains.clh`` stores for each work-item: floating point in double precision.

    Args:
        recurrence: the step.
        dtype: the probe's type.
        operands: what the kernel reads.
        items: work-items.
        width: lanes.
        chains: recurrences.
        steps: of every chain.
        merged: as if all chains of a work-item began with the first one's seed.
    """
    seeds = recurrence.widen(operands.seeds, dtype).reshape(-1, width)
    first, second = recurrence.widen(operands.coefficients, dtype).reshape(2, width)
    vectors = len(seeds)
    unique = min(items, vectors)  # seeds repeat, so few items have sums of their own
    index = (np.arange(unique)[:, None] * chains + np.arange(chains)) % vectors
    if merged:
        index = np.repeat(index[:, :1], chains, axis=1)
    lanes = Lanes(seeds[index], seeds[index], first, second)
    with np.errstate(over="ignore"):
        for n in range(steps):
            lanes = Lanes(recurrence.step(lanes, n, dtype), lanes.seeds, first, second)
        sums = lanes.x.sum(axis=(1, 2), dtype=lanes.x.dtype)
    if not recurrence.sum_type(dtype).is_float:
        sums = sums.astype(recurrence.sum_type(dtype).numpy)
    return np.resize(sums, items)


# --- operands -----------------------------------------------------------------------------------------------


def _draw_floats(dtype: DType, width: int, rng: np.random.Generator) -> Operands:
    """Multipliers above -1 keep a chain moving and finite: by so much that a few steps outdo rounding."""
    seeds = rng.uniform(-1, 1, SEEDS)
    multipliers = -(1 - rng.uniform(0.5, 1, width) * np.clip(64 * dtype.eps, 1e-4, 0.25))
    addends = rng.uniform(-0.5, 0.5, width)
    return Operands(encode(seeds, dtype), encode(np.concatenate([multipliers, addends]), dtype))


def _draw_integers(dtype: DType, width: int, rng: np.random.Generator) -> Operands:
    """Anything: chains wrap around. Coefficients are odd, so that no chain is stuck at 0."""
    unsigned = _unsigned(dtype)
    most = np.iinfo(unsigned).max
    return Operands(
        rng.integers(0, most, SEEDS, dtype=unsigned, endpoint=True),
        rng.integers(0, most, 2 * width, dtype=unsigned, endpoint=True) | unsigned.type(1),
    )


def _draw_24_bits(dtype: DType, width: int, rng: np.random.Generator) -> Operands:
    """Multipliers of 1, which no compiler knows: a short run stays within the 24 bits that mad24 asks for."""
    coefficients = np.concatenate([np.ones(width), rng.integers(1, 1 << 9, width)])
    return Operands(rng.integers(-(1 << 20), 1 << 20, SEEDS).astype(np.int32), coefficients.astype(np.int32))


def _draw_bytes(dtype: DType, width: int, rng: np.random.Generator) -> Operands:
    """Registers of four bytes; addends so small that no sum saturates."""
    coefficients = [rng.integers(-(2**31), 2**31, width), rng.integers(-(2**30), 2**30, width)]
    return Operands(
        rng.integers(-(2**31), 2**31, SEEDS).astype(np.int32), np.concatenate(coefficients).astype(np.int32)
    )


def _draw_mixed(dtype: DType, width: int, rng: np.random.Generator) -> Operands:
    """A multiplier, and the bits that change with every step: its sign, and some of its mantissa."""
    multipliers = encode(rng.uniform(0.5, 1, width), dtype)
    flips = (0x8000 | rng.integers(1, 64, width)).astype(np.uint16).view(multipliers.dtype)
    return Operands(encode(rng.uniform(-1, 1, SEEDS), dtype), np.concatenate([multipliers, flips]))


# --- steps --------------------------------------------------------------------------------------------------


def _linear(lanes: Lanes, n: int, dtype: DType) -> Array:
    x: Array = lanes.x * lanes.first + lanes.second
    return x


def _rounded(lanes: Lanes, n: int, dtype: DType) -> Array:
    """One rounding for both operations; the product of two 16-bit numbers is exact in double precision."""
    return decode(encode(_linear(lanes, n, dtype), dtype), dtype)


def _square(lanes: Lanes, n: int, dtype: DType) -> Array:
    x: Array = lanes.x * lanes.x + lanes.second
    return x


def _cross(lanes: Lanes, n: int, dtype: DType) -> Array:
    """Chains one after the other: the last one's neighbour is the first, which has made its step."""
    x: Array = lanes.x.copy()
    chains = x.shape[1]
    for chain in range(chains):
        x[:, chain] = x[:, chain] * x[:, (chain + 1) % chains] + lanes.second
    return x


def _dot(lanes: Lanes, n: int, dtype: DType) -> Array:
    mine, others = (np.ascontiguousarray(v.astype(np.int32)).view(np.int8) for v in (lanes.x, lanes.first))
    products = mine.astype(np.int64) * others
    x: Array = lanes.second + products.reshape(*lanes.x.shape, 4).sum(axis=-1)
    return x


def _mixed(lanes: Lanes, n: int, dtype: DType) -> Array:
    """The multiplier changes before every step, and is back after two."""
    bits, flips = (encode(v, dtype).view(np.uint16) for v in (lanes.first, lanes.second))
    changed = decode((bits ^ flips).view(dtype.numpy), dtype)
    x: Array = lanes.x + (changed if n % 2 == 0 else lanes.first) * lanes.seeds
    return x


# --- all of them --------------------------------------------------------------------------------------------


def _unsigned(dtype: DType) -> np.dtype[Any]:
    return np.dtype(f"u{dtype.itemsize}")


def _modulo_2_64(stored: Array, dtype: DType) -> Array:
    return stored.astype(np.uint64)


def _signed(stored: Array, dtype: DType) -> Array:
    return stored.astype(np.int64)


RECURRENCES: dict[str, Recurrence] = {
    #                        operands        host's numbers  step     sums
    "linear": Recurrence(_draw_floats, decode, _linear),
    "packed": Recurrence(_draw_floats, decode, _rounded, "float"),
    "square": Recurrence(_draw_integers, _modulo_2_64, _square),
    "cross": Recurrence(_draw_integers, _modulo_2_64, _cross),
    "24 bits": Recurrence(_draw_24_bits, _signed, _linear),
    "dot": Recurrence(_draw_bytes, _signed, _dot, "int"),
    "mixed": Recurrence(_draw_mixed, decode, _mixed, "float"),
}
"""By name, as the forms of the probes name them."""
