"""What the host expects of a chain, against the same arithmetic written out one number at a time."""

from __future__ import annotations

import numpy as np
import pytest

from gemmbench.model.dtypes import DTYPES
from gemmbench.probes.arithmetic import RECURRENCES, SEEDS, ChainOperands, expected_sums

CASES = [
    ("linear", "float"),
    ("linear", "double"),
    ("linear", "half"),
    ("linear", "bfloat16"),
    ("packed", "half"),
    ("packed", "bfloat16"),
    ("square", "long"),
    ("square", "int"),
    ("square", "char"),
    ("cross", "short"),
    ("dot", "char"),
]


def drawn(name: str, dtype: str, width: int = 2) -> ChainOperands:
    return RECURRENCES[name].draw(DTYPES[dtype], width, np.random.default_rng(5))


def signed(value: int, bits: int) -> int:
    value %= 1 << bits
    return value - (1 << bits) if value >> (bits - 1) else value


def dot4(x: int, a: int, b: int) -> int:
    parts = zip(np.array([x], np.int32).view(np.int8), np.array([a], np.int32).view(np.int8), strict=True)
    return signed(b + sum(int(p) * int(q) for p, q in parts), 32)


def test_a_linear_step_multiplies_and_adds() -> None:
    dtype = DTYPES["float"]
    operands = ChainOperands(np.arange(1, 9).astype(dtype.numpy), np.array([3, 5, 7, 11]).astype(dtype.numpy))
    got = expected_sums(RECURRENCES["linear"], dtype, operands, items=5, width=2, chains=2, steps=1)
    assert got[0] == 1 * 3 + 7 + 2 * 5 + 11 + 3 * 3 + 7 + 4 * 5 + 11
    assert got[4] == got[0]  # seeds repeat after eight elements


def test_integers_wrap_around() -> None:
    operands = ChainOperands(np.array([200, 3], np.uint8), np.array([1, 77], np.uint8))
    got = expected_sums(RECURRENCES["square"], DTYPES["char"], operands, items=2, width=1, chains=1, steps=2)
    for item, seed in enumerate((200, 3)):
        once = (seed * seed + 77) % 256
        assert got[item] == signed(once * once + 77, 8)
    assert got.dtype == np.int8


def test_a_chain_is_multiplied_by_the_next_and_the_last_by_the_first() -> None:
    operands = ChainOperands(np.array([2, 3, 5, 7], np.uint32), np.array([1, 11], np.uint32))
    got = expected_sums(RECURRENCES["cross"], DTYPES["int"], operands, items=1, width=1, chains=3, steps=1)
    first, second = 2 * 3 + 11, 3 * 5 + 11
    assert got[0] == first + second + (5 * first + 11)


def test_bytes_of_a_result_are_operands_of_the_next() -> None:
    operands = drawn("dot", "char", 1)
    got = expected_sums(RECURRENCES["dot"], DTYPES["char"], operands, items=3, width=1, chains=2, steps=4)
    a, b = map(int, operands.coefficients)
    total = 0
    for seed in operands.seeds[2:4]:  # the second work-item's chains
        x = int(seed)
        for _ in range(4):
            x = dot4(x, a, b)
        total += x
    assert got[1] == signed(total, 32)


@pytest.mark.parametrize("dtype", ["half", "bfloat16"])
def test_packed_numbers_are_rounded_after_every_step(dtype: str) -> None:
    operands = drawn("packed", dtype, 1)
    row = DTYPES[dtype]
    exact = expected_sums(RECURRENCES["linear"], row, operands, items=64, width=1, chains=1, steps=9)
    rounded = expected_sums(RECURRENCES["packed"], row, operands, items=64, width=1, chains=1, steps=9)
    assert (exact != rounded).any()
    assert np.abs(exact - rounded).max() <= 9 * row.eps


@pytest.mark.parametrize(("name", "dtype"), CASES)
def test_operands_tell_chains_and_steps_apart(name: str, dtype: str) -> None:
    """No chain, lane or number of steps can be mistaken for another; nothing overflows or dies out."""
    recurrence, row = RECURRENCES[name], DTYPES[dtype]
    operands = drawn(name, dtype)
    assert operands.seeds.size == SEEDS
    assert operands.seeds.itemsize == (4 if name == "dot" else row.itemsize)
    distinct = min(SEEDS, 256**row.itemsize)
    assert len(np.unique(operands.seeds.view(f"u{operands.seeds.itemsize}"))) > 0.2 * distinct

    def sums(steps: int, merged: bool = False) -> np.ndarray:
        found = expected_sums(recurrence, row, operands, 64, width=2, chains=4, steps=steps, merged=merged)
        assert np.isfinite(found.astype(np.float64)).all()
        return found

    # Eight bits squared again and again soon run in a cycle of two.
    few = [
        sums(steps) for steps in ((0, 1, 2) if (name, dtype) == ("square", "char") else (0, 1, 4, 12, 16, 48))
    ]
    for n, one in enumerate(few):
        assert all((one != other).any() for other in few[:n])
    assert (sums(4) != sums(4, merged=True)).any()
