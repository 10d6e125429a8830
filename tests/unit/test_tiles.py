"""Operands of matrix units, and D after some steps, against products taken one by one."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from gemmbench.model.dtypes import DTYPES, Instruction, decode
from gemmbench.probes import PROBES, arithmetic
from gemmbench.probes.arithmetic import MatrixProbe

INSTRUCTIONS = [
    instruction
    for probe in PROBES.values()
    if isinstance(probe, MatrixProbe)
    for instruction in probe.family.instructions
]
NAMES: dict[str, Any] = {
    "argvalues": INSTRUCTIONS,
    "ids": lambda each: f"{each.shape}-{each.dtype}-{each.accumulator}",
}


def drawn(kind: str, instruction: Instruction, count: int = 3) -> arithmetic.TileOperands:
    return arithmetic.draw_tiles(kind, instruction, count, np.random.default_rng(2))


@pytest.mark.parametrize("instruction", **NAMES)
def test_operands_of_the_check_are_exact_in_every_type(instruction: Instruction) -> None:
    exact = drawn("exact", instruction)
    a, b = exact.stored(instruction)
    assert a.shape == (3, 2, instruction.m, instruction.k)
    assert b.shape == (3, instruction.n, instruction.k)
    if instruction.unit and instruction.m == 1:  # a register of a CPU
        size = 4 // (instruction.n // 16)
    else:
        size = 64 if instruction.dtype == "double" or instruction.unit else 32
    assert a.itemsize * instruction.k == b.itemsize * instruction.k == size
    assert (decode(a, DTYPES[instruction.dtype]) == exact.a).all()
    assert (decode(b, DTYPES[instruction.dtype]) == exact.b).all()
    # The longest check: three trips of sixteen steps; every whole number up to 2 / eps is exact.
    most = np.abs(arithmetic.expected_product(exact, np.array([[0, 1], [2, 0]]), 48)).max()
    eps = DTYPES[instruction.accumulator].eps
    assert 0 < most < (2 / eps if eps else 2**31)


@pytest.mark.parametrize("instruction", **NAMES)
def test_d_is_what_steps_add_up_to(instruction: Instruction) -> None:
    exact = drawn("exact", instruction)
    d = np.zeros((instruction.m, instruction.n))
    for step in range(4):
        d += exact.a[2, step % 2] @ exact.b[1].T
    assert (arithmetic.expected_product(exact, np.array([[2, 1]]), 4)[0] == d).all()


def test_random_pairs_take_back_what_they_added() -> None:
    instruction = next(each for each in INSTRUCTIONS if each.dtype == "half" and each.m == 64)
    random = drawn("random", instruction)
    a, _ = random.stored(instruction)
    values = decode(a, DTYPES["half"]).astype(np.float64)
    assert (values[:, 0] == -values[:, 1]).all()
    assert len(np.unique(values)) > 100
    assert not drawn("zeros", instruction).a.any()
    assert not drawn("zeros", instruction).b.any()
