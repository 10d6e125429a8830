"""The operands of matrix units, and what they make of them: tiles of A and B, and D after some steps."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from gemmbench.facts.dtypes import DTYPES
from gemmbench.facts.formats import encode
from gemmbench.model.instructions import Instruction
from gemmbench.rules.reference import Array

_EXACT = 2  # the check's operands are whole numbers of at most this, so that every sum is exact


@dataclass(frozen=True)
class Tiles:
    """Operands of a matrix probe as numbers: what a kernel reads is `stored` of them."""

    a: Array  # tiles x 2 x m x k: the two that steps alternate between
    b: Array  # tiles x n x k: columns lie contiguous

    def stored(self, instruction: Instruction) -> tuple[Array, Array]:
        """A and B as the device reads them."""
        dtype = DTYPES[instruction.dtype]
        return encode(self.a, dtype), encode(self.b, dtype)


def draw(kind: str, instruction: Instruction, tiles: int, rng: np.random.Generator) -> Tiles:
    """Operands of one kind.

    Args:
        kind: ``random`` or ``zeros``, to be timed; ``exact``, to be checked: small whole numbers.
        instruction: whose shapes and type they have.
        tiles: how many different ones.
        rng: randomness.

    Returns:
        Random pairs of A are each other's negative, so that D stays bounded however many steps there are.
    """
    a_shape, b_shape = (tiles, 2, instruction.m, instruction.k), (tiles, instruction.n, instruction.k)
    if kind == "zeros":
        return Tiles(np.zeros(a_shape), np.zeros(b_shape))
    if kind == "exact":
        a = rng.integers(-_EXACT, _EXACT, a_shape, endpoint=True).astype(np.float64)
        return Tiles(a, rng.integers(-1, 1, b_shape, endpoint=True).astype(np.float64))
    most = 127.0 if not DTYPES[instruction.dtype].is_float else 1.0
    a, b = rng.uniform(-most, most, a_shape), rng.uniform(-most, most, b_shape)
    a[:, 1] = -a[:, 0]
    return Tiles(a, b)


def expected(tiles: Tiles, pairs: Array, steps: int) -> Array:
    """D of some products after an even number of steps: which tile of A by which of B.

    Args:
        tiles: the operands; exact if the result is to be.
        pairs: products x 2: indexes of the tiles of A and of B.
        steps: of each product; every other one takes the second A.

    Returns:
        products x m x n, in double precision.
    """
    both = tiles.a.sum(axis=1)
    d: Array = steps // 2 * (both[pairs[:, 0]] @ tiles.b[pairs[:, 1]].transpose(0, 2, 1))
    return d
