"""Operands of matrix units, and D after some steps, against products taken one by one."""

from __future__ import annotations

import numpy as np
import pytest

from gemmbench.model.dtypes import DTYPES, decode
from gemmbench.model.instructions import Instruction
from gemmbench.probes import PROBES, reference
from gemmbench.probes.arithmetic import MatrixProbe

INSTRUCTIONS = [
    instruction
    for probe in PROBES.values()
    if isinstance(probe, MatrixProbe)
    for instruction in probe.instructions
]


def drawn(kind: str, instruction: Instruction, count: int = 3) -> reference.Tiles:
    return reference.draw(kind, instruction, count, np.random.default_rng(2))


@pytest.mark.parametrize(
    "mine", INSTRUCTIONS, ids=lambda mine: f"{mine.shape}-{mine.dtype}-{mine.accumulator}"
)
def test_operands_of_the_check_are_exact_in_every_type(mine: Instruction) -> None:
    exact = drawn("exact", mine)
    a, b = exact.stored(mine)
    assert a.shape == (3, 2, mine.m, mine.k)
    assert b.shape == (3, mine.n, mine.k)
    assert a.itemsize * mine.k == b.itemsize * mine.k == (64 if mine.dtype == "double" else 32)
    assert (decode(a, DTYPES[mine.dtype]) == exact.a).all()
    assert (decode(b, DTYPES[mine.dtype]) == exact.b).all()
    # The longest check: three trips of sixteen steps; every whole number up to 2 / eps is exact.
    most = np.abs(reference.expected(exact, np.array([[0, 1], [2, 0]]), 48)).max()
    eps = DTYPES[mine.accumulator].eps
    assert 0 < most < (2 / eps if eps else 2**31)


def test_d_is_what_steps_add_up_to() -> None:
    mine = INSTRUCTIONS[0]
    exact = drawn("exact", mine)
    d = np.zeros((mine.m, mine.n))
    for step in range(4):
        d += exact.a[2, step % 2] @ exact.b[1].T
    assert (reference.expected(exact, np.array([[2, 1]]), 4)[0] == d).all()


@pytest.mark.parametrize("dtype", ["half", "char"])
def test_random_operands_take_back_what_they_added(dtype: str) -> None:
    mine = next(mine for mine in INSTRUCTIONS if mine.dtype == dtype)
    random = drawn("random", mine)
    a, _ = random.stored(mine)
    values = decode(a, DTYPES[dtype]).astype(np.float64)
    assert (values[:, 0] == -values[:, 1]).all()
    assert len(np.unique(values)) > 100
    assert not drawn("zeros", mine).a.any()
    assert not drawn("zeros", mine).b.any()
