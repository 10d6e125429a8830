"""What memory probes read, and what the host knows about it: a table of random floats, repeated.

The table's length is prime, so that no stride of a kernel falls into step with it, and the host can tell the
sum of any stretch of any set without holding the set. Values are integers of 22 bits as floats: random enough
for every memory system, and exact in STREAM's triad with or without contraction.
"""

from __future__ import annotations

import numpy as np

from gemmbench.rules.reference import Array

TABLE_ELEMENTS = (1 << 20) - 3  # prime
SCALAR = 3.0  # of the triad, as in global.cl
_LARGEST = 1 << 21  # b + 3 c stays below 2^24
_KNUTH = np.uint64(2654435761)  # as in global.cl
_SPREAD = np.uint64(0x9E3779B1)  # as in working_set.cl
_TILE_SHIFT = 3  # tiles of 8 x 8, as in image.cl
_SEED = 20261121
_WRAP = 1 << 32


class RepeatedTable:
    """The endless sequence of floats that sets are filled with."""

    def __init__(self) -> None:
        draw = np.random.default_rng(_SEED).integers(-_LARGEST + 1, _LARGEST, TABLE_ELEMENTS)
        self.table: Array = draw.astype(np.float32)
        bits = self.table.view(np.uint32)
        self._before: Array = np.append(np.uint64(0), np.cumsum(bits, dtype=np.uint64))

    def values(self, first: int, count: int) -> Array:
        """Elements from a position on."""
        places = (first + np.arange(count)) % TABLE_ELEMENTS
        found: Array = self.table[places]
        return found

    def sum_before(self, count: int) -> int:
        """Sum of the bits of the first elements, modulo 2^32."""
        return int(self._sums_before(np.array([count], np.uint64))[0]) % _WRAP

    def sum_of(self, first: int, count: int) -> int:
        """Sum of the bits of a stretch, modulo 2^32."""
        return (self.sum_before(first + count) - self.sum_before(first)) % _WRAP

    def sum_at(self, places: Array, elements: int) -> int:
        """Sum of the bits of so many elements at each of some places, counted in as many, modulo 2^32."""
        rows = places[:, None] * elements + np.arange(elements)
        found: Array = self.table[rows % TABLE_ELEMENTS]
        return sum_bits(found)

    def sums_of_visits(self, groups: int, block: int, blocks: int, steps: int, visits: int) -> Array:
        """Sums of the bits that the groups of ``working_set`` read, modulo 2^32.

        Args:
            groups: how many.
            block: elements in a block.
            blocks: in the set, a power of two.
            steps: blocks in a visit, one after the other and round again.
            visits: of each group.
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

    def _sums_before(self, counts: Array) -> Array:
        """`sum_before` of several unsigned integers, modulo 2^64."""
        rounds, rest = np.divmod(counts, TABLE_ELEMENTS)
        found: Array = rounds * self._before[-1] + self._before[rest]
        return found


def walked_texels(order: str, count: int, width_shift: int, height_shift: int) -> Array:
    """Where the first texels of a walking order of ``image.cl`` lie in the image, row by row.

    Args:
        order: row, column or tile.
        count: how many.
        width_shift: the image's width as a power of two.
        height_shift: and its height.
    """
    i = np.arange(count)
    if order == "row":
        return i
    if order == "column":
        x, y = i >> height_shift, i & ((1 << height_shift) - 1)
    else:
        tile, across = i >> (2 * _TILE_SHIFT), width_shift - _TILE_SHIFT
        mask = (1 << _TILE_SHIFT) - 1
        x = ((tile & ((1 << across) - 1)) << _TILE_SHIFT) + (i & mask)
        y = ((tile >> across) << _TILE_SHIFT) + ((i >> _TILE_SHIFT) & mask)
    return (y << width_shift) + x


def written(first: int, count: int) -> Array:
    """What ``global_write`` leaves at elements from a position on, as unsigned integers."""
    places: Array = np.arange(first, first + count, dtype=np.uint64) * _KNUTH
    return places.astype(np.uint32)


def sum_bits(words: Array) -> int:
    """Sum of 32-bit words, modulo 2^32."""
    return int(words.view(np.uint32).sum(dtype=np.uint64)) % _WRAP


def _hash(words: Array) -> Array:
    """The hash of ``working_set``, of the lower 32 bits of each word."""
    x = words.astype(np.uint32)
    x = (x ^ x >> 16) * np.uint32(0x85EBCA6B)
    x = (x ^ x >> 13) * np.uint32(0xC2B2AE35)
    found: Array = (x ^ x >> 16).astype(np.uint64)
    return found


def random_cycle(nodes: int, spacing: int) -> tuple[Array, Array]:
    """One random cycle through all nodes.

    Args:
        nodes: how many.
        spacing: elements from a node to its neighbour in memory.

    Returns:
        The elements to put into memory (nodes x spacing, flat, unsigned integers), each node's first holding
        the position of the next node, and the positions in the order of the cycle, which starts at 0.
    """
    order = np.random.default_rng(_SEED).permutation(nodes).astype(np.uint32)
    order = np.roll(order, -int(np.argmin(order)))
    places = order * np.uint32(spacing)
    memory = np.zeros(nodes * spacing, np.uint32)
    memory[places] = np.roll(places, -1)
    return memory, places
