"""NN, NT, TN, TT: what problem and row say of how A and B are stored, and what is made of it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

from gemmbench import UsageError
from gemmbench.gemm.numpy_blas import NumpyExecutor
from gemmbench.gemm.operands import load_operands
from gemmbench.gemm.verify import ExactTest, Terms
from gemmbench.ladder import BY_NAME, LADDER
from gemmbench.ladder.own import own_kernel
from gemmbench.ladder.variant import Layout, laid_out
from gemmbench.model.case import Case, Operands, Policy
from gemmbench.model.problem import Gemm, leading
from gemmbench.model.row import Problem, Row
from gemmbench.model.run_file import Run, encode
from gemmbench.stats.panels import panels, sweep_axis
from gemmbench.suite.options import build, measuring
from gemmbench.suite.plan import plan_command, rebuild_plan
from tests import fake_runs as fake
from tests import in_process

OPS = {"NN": (False, False), "NT": (False, True), "TN": (True, False), "TT": (True, True)}
QUICK = Policy(budget_s=60.0, min_batches=2, batch_s=0.001, precision=10.0)
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
    (step,) = rebuild_plan([row], [fake.CPU], {0: 0})
    assert step.problem == TURNED


# --- what a variant makes of it ---------------------------------------------------------------------------


def stored(ops: str, dtype: str = "float", **ld: Any) -> Gemm:
    return Gemm(9, 5, 7, dtype, trans_a=OPS[ops][0], trans_b=OPS[ops][1], **ld)


def spread(problem: Gemm, gap: int) -> Gemm:
    """The problem in rows that are longer by so many elements."""
    lda, ldb, ldc = problem.tight
    return replace(problem, ld=(lda + gap, ldb + gap, ldc + gap))


def test_an_own_kernel_gets_its_operands_as_it_takes_them(tmp_path: Path) -> None:
    file = tmp_path / "own.cl"
    file.write_text(
        '/* gemmbench\narguments = ["m", "n", "k", "A", "B", "ldb", "C", "ldc"]\n'
        'work_group = [8, 8]\ntile = [8, 8]\ntransposed = ["B"]\n*/\n__kernel void own(int m) {}\n'
    )
    for ops, kernels in (
        ("NN", "transpose own"),
        ("NT", "transpose_tall transpose own"),
        ("TN", "transpose_tall transpose own"),
        ("TT", "transpose_tall transpose_tall transpose own"),
    ):
        problem = stored(ops)
        variant = laid_out(own_kernel(file), problem)
        values = variant.values(problem, {}, Layout(11, 13, 5))
        assert " ".join(step.kernel for step in variant.steps(values)) == kernels
        if ops[0] == "T":
            assert values["lda"] == 7, "it takes no lda: rows of its copy have no gaps"
            assert "lda" not in variant.launches.without


# --- what is compiled -------------------------------------------------------------------------------------


def test_the_hash_of_a_kernel_depends_on_how_its_operands_are_stored() -> None:
    for name in LADDER:
        variant = BY_NAME[name]
        both = laid_out(variant, stored("TT", variant.needs.dtypes[0]))
        preset = variant.preset("gpu-nvidia", dtype=variant.needs.dtypes[0])
        assert laid_out(variant, stored("NN")) is variant
        prints = [each.fingerprint(variant.needs.dtypes[0], preset) for each in (variant, both)]
        assert (prints[0] != prints[1]) == (
            variant.files != both.files or variant.compilation != both.compilation
        )


# --- operands and libraries -------------------------------------------------------------------------------


@pytest.mark.parametrize("ops", OPS)
def test_operands_are_the_same_however_they_are_stored(ops: str) -> None:
    problem = stored(ops)
    wide = spread(problem, 2)
    plain, values = (
        load_operands(Case("gemm", 0, "naive", "float", {}, each)) for each in (stored("NN"), wide)
    )
    assert np.array_equal(values.a, plain.a)
    assert np.array_equal(values.b, plain.b)
    made = values.stored(wide)
    for matrix, op, turned in ((made.a, plain.a, OPS[ops][0]), (made.b, plain.b, OPS[ops][1])):
        kept = op.T if turned else op
        assert matrix.shape == (kept.shape[0], kept.shape[1] + 2)
        assert np.array_equal(matrix[:, :-2], kept)
        assert np.isnan(matrix[:, -2:]).all()
    test = ExactTest.of(problem)
    assert test.host["A"].size == problem.stored_a[0] * (problem.tight[0] + 3)
    assert (test.described(Terms())[:3] == f"{ops},") == (ops != "NN")


def test_a_users_matrix_is_stored_as_it_says(tmp_path: Path) -> None:
    a, b = np.arange(63, dtype=np.float32).reshape(7, 9), np.ones((5, 7), np.float32)
    for name, values in (("a", a), ("b", b)):
        np.save(tmp_path / f"{name}.npy", values)
    files = {name: tmp_path / f"{name}.npy" for name in "ab"}
    (shape,) = build(measuring.GemmOptions, {**files, "trans_a": True, "trans_b": True}).shapes
    assert (shape.m, shape.n, shape.k) == (9, 5, 7)
    with pytest.raises(UsageError, match=r"makes k 5, but .*a.npy makes it 7"):
        build(measuring.GemmOptions, {**files, "trans_a": True})
    operands = Operands(str(files["a"]), str(files["b"]))
    case = Case("gemm", -1, "numpy", "float", {}, stored("TT"), operands=operands)
    row = in_process.measured(NumpyExecutor(), case, QUICK)
    assert (row.status, row.reason) == ("ok", "")
    assert row.matrices
    assert row.matrices["B"] == tuple(map(tuple, b.tolist())), "as its file has it"
    loaded = load_operands(case)
    assert np.array_equal(loaded.a, a.T)
    assert np.array_equal(loaded.stored(stored("TT")).a, a)


@pytest.mark.parametrize("ops", OPS)
def test_the_hosts_blas_takes_every_layout(ops: str) -> None:
    problem = spread(stored(ops, "double", alpha=2.0, beta=0.5), 3)
    row = in_process.measured(NumpyExecutor(), Case("gemm", -1, "numpy", "double", {}, problem), QUICK)
    assert (row.status, row.reason) == ("ok", "")


# --- options, sets of shapes, sweeps ----------------------------------------------------------------------


def test_a_file_of_shapes_says_how_they_are_stored(tmp_path: Path) -> None:
    path = tmp_path / "shapes.csv"
    path.write_text("m,n,k,lda,trans_a,trans_b\n4,5,6,,,\n4,5,6,7,1,0\n4,5,6,6,false,TRUE\n")
    shapes = build(measuring.WorkloadsOptions, {"file": path, "trans_b": True}).shapes
    assert [(shape.ld, shape.trans_a, shape.trans_b) for shape in shapes] == [
        (None, False, True),
        ((7, 5, 5), True, False),
        (None, False, True),
    ][:2]
    assert shapes[0].name.startswith("shapes.csv:2 = shapes.csv:4")
    path.write_text("m,n,k,lda,trans_a\n4,5,6,5,0\n")
    with pytest.raises(UsageError, match="line 2: lda 5 is less than a row: A has k = 6"):
        build(measuring.WorkloadsOptions, {"file": path})


def test_options_reach_the_plan_of_every_command() -> None:
    for command in (
        measuring.SquareOptions,
        measuring.SweepKOptions,
        measuring.WorkloadsOptions,
        measuring.GemmOptions,
    ):
        made = build(command, {"trans_a": True, "trans_b": True, "peak": False, "kernels": "naive"})
        steps = plan_command(made, [fake.CPU])
        gemms = [step for step in steps if isinstance(step, Case) and step.kind == "gemm"]
        assert {step.problem.ops for step in gemms if step.problem} == {"TT"}


def test_a_sweep_says_its_layout_and_mixed_ones_are_none() -> None:
    rows = [fake.gemm_row("naive", Problem(size, size, size, trans_b=True), 1.0) for size in (8, 16)]
    assert sweep_axis(rows) == "m"
    (panel,) = panels(Run(fake.header(("square",)), tuple(rows), "run.jsonl"), "m")
    assert panel.shape == "m = n = k, NT"
    assert sweep_axis([*rows, fake.gemm_row("naive", Problem(8, 8, 8), 1.0)]) is None
    apart = Problem(8, 8, 8, trans_b=True, ld=(16, 16, 16))  # one size, twice
    assert sweep_axis([*rows, fake.gemm_row("naive", apart, 1.0)]) is None


def test_cublas_multiplies_char_with_tensor_cores_in_one_layout() -> None:
    units = {ops: laid_out(BY_NAME["cublas"], stored(ops, "char")).ran_on("char") for ops in OPS}
    assert units == {"NN": "device", "NT": "matrix", "TN": "device", "TT": "device"}
    assert laid_out(BY_NAME["cublas"], stored("NT")).ran_on("float") == "device"
