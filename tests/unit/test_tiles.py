"""Operands of matrix units, and D after some steps, against products taken one by one."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from gemmbench.model.dtypes import DTYPES, DType, Instruction, decode
from gemmbench.probes import PROBES, reference
from gemmbench.probes.arithmetic import MatrixProbe

PROBES_OF = {
    instruction: probe
    for probe in PROBES.values()
    if isinstance(probe, MatrixProbe)
    for instruction in probe.instructions
}
INSTRUCTIONS = list(PROBES_OF)
NAMES: dict[str, Any] = {
    "argvalues": INSTRUCTIONS,
    "ids": lambda each: f"{each.shape}-{each.dtype}-{each.accumulator}",
}


def drawn(kind: str, instruction: Instruction, count: int = 3) -> reference.Tiles:
    flipped = PROBES_OF[instruction].flipped
    return reference.draw(kind, instruction, count, np.random.default_rng(2), flipped)


@pytest.mark.parametrize("instruction", **NAMES)
def test_operands_of_the_check_are_exact_in_every_type(instruction: Instruction) -> None:
    exact = drawn("exact", instruction)
    a, b = exact.stored(instruction)
    assert a.shape == (3, 1 if exact.flips else 2, instruction.m, instruction.k)
    assert b.shape == (3, instruction.n, instruction.k)
    size = 64 if instruction.dtype == "double" else 32
    assert a.itemsize * instruction.k == b.itemsize * instruction.k == size
    assert (decode(a, DTYPES[instruction.dtype]) == exact.a).all()
    assert (decode(b, DTYPES[instruction.dtype]) == exact.b).all()
    # The longest check: three trips of sixteen steps; every whole number up to 2 / eps is exact.
    most = np.abs(reference.expected(exact, np.array([[0, 1], [2, 0]]), 48, instruction)).max()
    eps = DTYPES[instruction.accumulator].eps
    assert 0 < most < (2 / eps if eps else 2**31)


@pytest.mark.parametrize("instruction", **NAMES)
def test_d_is_what_steps_add_up_to(instruction: Instruction) -> None:
    exact, dtype = drawn("exact", instruction), DTYPES[instruction.dtype]
    steps = [exact.a[2, step % 2] for step in range(4)] if not exact.flips else list(flipped(exact, dtype))
    d = np.zeros((instruction.m, instruction.n))
    for a in steps:
        d += a @ exact.b[1].T
    assert (reference.expected(exact, np.array([[2, 1]]), 4, instruction)[0] == d).all()


def flipped(exact: reference.Tiles, dtype: DType) -> Iterator[np.ndarray]:
    """A of the third tile in four steps, number by number: the sign, or of integers every bit."""
    bits, a = exact.flips, exact.a[2, 0].copy()
    for _ in range(4):
        bits = (bits << 1 | bits >> 31) & 0xFFFFFFFF
        for k in range(a.shape[1]):
            if not dtype.is_float:
                mask = bits >> k % 4 * 8 & 0xFF
                a[:, k] = (a[:, k].astype(np.int8).view(np.uint8) ^ np.uint8(mask)).view(np.int8)
            elif bits >> {1: k % 4 * 8 + 7, 2: k % 2 * 16 + 15}.get(dtype.itemsize, 31) & 1:
                a[:, k] = -a[:, k]
        yield a.copy()


@pytest.mark.parametrize("dtype", ["half", "fp8", "double", "tf32"])
def test_flipped_operands_take_back_what_they_added_and_never_stay(dtype: str) -> None:
    """What stays from step to step can be multiplied once for all: attack 4 of the second review."""
    instruction = next(each for each in INSTRUCTIONS if each.dtype == dtype)
    random = drawn("random", instruction)
    assert bin(random.flips).count("1") % 2 == 1
    pairs = np.array([[0, 0]])
    assert np.allclose(reference.expected(random, pairs, 64, instruction), 0)
    sums = [reference.expected(random, pairs, steps, instruction) for steps in range(33)]
    steps = np.diff(sums, axis=0).round(6)
    assert not any((steps[period:] == steps[:-period]).all() for period in range(1, 32))
    assert not drawn("zeros", instruction).flips
    assert not drawn("zeros", instruction).a.any()


def test_random_pairs_take_back_what_they_added() -> None:
    instruction = next(each for each in INSTRUCTIONS if each.dtype == "half" and each.m == 64)
    random = drawn("random", instruction)
    a, _ = random.stored(instruction)
    values = decode(a, DTYPES["half"]).astype(np.float64)
    assert (values[:, 0] == -values[:, 1]).all()
    assert len(np.unique(values)) > 100
