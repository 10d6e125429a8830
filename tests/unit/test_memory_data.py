"""What the host knows of a set, against the set itself."""

from __future__ import annotations

import numpy as np
import pytest

from gemmbench.probes.memory import SCALAR, TABLE_ELEMENTS, RepeatedTable, random_cycle, sum_bits, written

TABLE = RepeatedTable()


@pytest.mark.parametrize(
    ("first", "count"), [(0, 1), (5, 1000), (TABLE_ELEMENTS - 3, 10), (0, TABLE_ELEMENTS + 7)]
)
def test_sums_of_a_stretch(first: int, count: int) -> None:
    assert TABLE.sum_of(first, count) == sum_bits(TABLE.values(first, count))


def test_the_table_repeats_itself() -> None:
    assert (TABLE.values(TABLE_ELEMENTS - 2, 4) == np.append(TABLE.table[-2:], TABLE.table[:2])).all()


def test_values_are_exact_in_the_triad_and_random() -> None:
    b, c = TABLE.table, np.roll(TABLE.table, 7)
    exact = b.astype(np.float64) + SCALAR * c.astype(np.float64)
    assert (b + np.float32(SCALAR) * c == exact).all()
    assert len(np.unique(TABLE.table)) > 0.7 * TABLE_ELEMENTS
    assert np.isfinite(TABLE.table).all()


def test_what_is_written_depends_on_the_place_alone() -> None:
    assert (written(100, 50) == written(0, 150)[100:]).all()
    assert written(3, 1)[0] == 3 * 2654435761 % 2**32


@pytest.mark.parametrize(
    ("groups", "block", "blocks", "steps", "visits"), [(3, 8, 1, 5, 3), (5, 16, 8, 3, 8), (2, 64, 64, 100, 7)]
)
def test_sums_of_visits(groups: int, block: int, blocks: int, steps: int, visits: int) -> None:
    got = TABLE.sums_of_visits(groups, block, blocks, steps, visits)
    data = TABLE.values(0, block * blocks)
    for group in range(groups):  # as in working_set.cl, with 32-bit unsigned integers
        total = 0
        for visit in range(visits):
            x = (group * 0x9E3779B1 + visit) % 2**32
            x = (x ^ x >> 16) * 0x85EBCA6B % 2**32
            x = (x ^ x >> 13) * 0xC2B2AE35 % 2**32
            first = (x ^ x >> 16) % blocks
            for step in range(steps):
                place = (first + step) % blocks * block
                total += sum_bits(data[place : place + block])
        assert got[group] == total % 2**32


def test_sums_of_sets_of_gigabytes_are_exact() -> None:
    rounds, rest = divmod(1 << 30, TABLE_ELEMENTS)
    bits = TABLE.table.view(np.uint32)
    exact = rounds * sum(map(int, bits)) + sum(map(int, bits[:rest]))  # as Python counts
    assert TABLE.sum_of(0, 1 << 30) == exact % 2**32


def test_a_random_cycle_goes_through_every_node() -> None:
    memory, places = random_cycle(100, 16)
    assert memory.size == 1600
    assert sorted(places) == list(range(0, 1600, 16))
    here = 0
    for place in places:
        assert here == place
        here = int(memory[here])
    assert here == 0
