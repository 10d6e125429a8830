"""NN, NT, TN, TT: what problem, row and case say of how A and B are stored."""

from __future__ import annotations

from dataclasses import replace

import msgspec
import pytest

from gemmbench.model.case import Case
from gemmbench.model.problem import Gemm, leading
from gemmbench.model.row import Problem, Row
from gemmbench.model.run_file import encode
from gemmbench.suite.plan import rebuild
from tests import fake_runs as fake

OPS = {"NN": (False, False), "NT": (False, True), "TN": (True, False), "TT": (True, True)}
TURNED = Gemm(9, 5, 7, "half", ld=(11, 7, 8), trans_a=True, trans_b=True)


@pytest.mark.parametrize(
    ("ops", "tight"), [("NN", (7, 5, 5)), ("NT", (7, 7, 5)), ("TN", (9, 5, 5)), ("TT", (9, 7, 5))]
)
def test_the_least_leading_dimensions_follow_from_how_a_matrix_is_stored(
    ops: str, tight: tuple[int, int, int]
) -> None:
    problem = Gemm(9, 5, 7, trans_a=OPS[ops][0], trans_b=OPS[ops][1])
    assert (problem.ops, problem.tight) == (ops, tight)
    assert problem.elements_of == {"A": 63, "B": 35, "C": 45}
    assert leading(9, 5, 7, *tight, *OPS[ops]) is None
    wide = replace(problem, ld=(tight[0] + 1, tight[1] + 2, 5))
    assert wide.elements_of["A"] == 63 + problem.stored_a[0]
    assert wide.elements_of["B"] == 35 + 2 * problem.stored_b[0]
    with pytest.raises(ValueError, match="lda"):
        replace(problem, ld=(tight[0] - 1, tight[1], 5))


def test_a_transposed_operand_needs_rows_of_its_own_width() -> None:
    with pytest.raises(ValueError, match=r"lda 8 is less .* the transposed A has m = 9 columns"):
        leading(9, 5, 7, 8, trans_a=True)
    with pytest.raises(ValueError, match=r"ldb 6 is less .* the transposed B has k = 7 columns"):
        leading(9, 5, 7, None, 6, trans_b=True)


def test_the_layout_is_part_of_shape_and_title() -> None:
    assert TURNED.shape == "9x5x7 TT lda=11 ldc=8"
    assert Gemm(8, 8, 8, trans_b=True).size == "8 NT"
    assert Gemm(8, 8, 8, trans_a=True).title == "m = n = k = 8, TN"
    assert Gemm(8, 8, 8).shape == "8x8x8"


def test_a_row_keeps_its_layout_and_one_as_ever_says_nothing() -> None:
    case = Case("gemm", 0, "naive", "half", {}, TURNED)
    row = case.row("ok")
    assert row.key == case.key
    assert msgspec.json.decode(encode(row), type=Row) == row
    assert row.problem == Problem(9, 5, 7, 1.0, 0.0, (11, 7, 8), True, True)
    plain = replace(case, problem=Gemm(9, 5, 7, "half")).row("ok")
    assert b"trans" not in encode(plain)
    assert plain.key != replace(case, problem=Gemm(9, 5, 7, "half", trans_b=True)).key
    (step,) = rebuild([row], [fake.CPU], {0: 0})
    assert isinstance(step, Case)
    assert step.problem == TURNED
