"""Options of the measuring commands: what they make of a plan, of operands and of a row."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import msgspec
import numpy as np
import pytest
from msgspec import UNSET

from gemmbench import UsageError, views
from gemmbench.exports.records import to_flat, to_records
from gemmbench.gemm.answers import Answers
from gemmbench.gemm.numpy_blas import NumpyExecutor
from gemmbench.gemm.operands import load_operands
from gemmbench.gemm.verify import GUARD
from gemmbench.gemm.workloads import Shape, heaviest
from gemmbench.ladder import BY_NAME
from gemmbench.ladder.variant import FAST_MATH
from gemmbench.model.case import Case, Operands, Policy, Skip
from gemmbench.model.dtypes import HostArray
from gemmbench.model.problem import Gemm
from gemmbench.model.row import Check, Partner, Problem, Row
from gemmbench.model.run_file import LeftOut, Run, encode
from gemmbench.regress.compare import compare, replicates_in
from gemmbench.suite.options import build, measuring
from gemmbench.suite.plan import Axes, gemm_plan, plan_command, rebuild_plan
from tests import fake_runs as fake
from tests import in_process
from tests.unit.test_answers import Simulated
from tests.unit.test_compare import m
from tests.unit.test_shape_tables import line
from tests.unit.test_tables import text

QUICK = Policy(budget_s=60.0, batch_s=0.001, min_batches=3, precision=10.0)

# --- --math -----------------------------------------------------------------------------------------------

BOTH = Axes(("strict", "fast"))


def planned(names: str, axes: Axes = BOTH) -> list[Case]:
    steps = gemm_plan([fake.CPU], [BY_NAME[name] for name in names.split()], [Gemm(64, 64, 64)], axes=axes)
    return [step for step in steps if isinstance(step, Case)]


@pytest.mark.parametrize("name", ["naive", "image-4x8"])
def test_a_kernel_is_built_with_either_math_and_the_second_takes_turns_with_the_first(name: str) -> None:
    strict, fast = planned(name)
    flags = [BY_NAME[name].with_math(case.math).compilation.flags for case in (strict, fast)]
    assert [FAST_MATH in each for each in flags] == [False, True], "whatever the kernel's own flags say"
    assert len({case.key for case in (strict, fast)}) == len({case.source for case in (strict, fast)}) == 2
    assert fast.versus == strict
    assert strict.versus is None
    assert strict.numbers == planned(name, Axes())[0].numbers, "math is no parameter of the kernel"


def test_a_kernels_own_flags_stay_unless_asked() -> None:
    (image,) = planned("image-4x8", Axes())
    assert image.source == planned("image-4x8")[1].source
    assert FAST_MATH in BY_NAME["image-4x8"].compilation.flags
    assert not image.math


def test_libraries_have_no_math() -> None:
    assert [case.title for case in planned("naive clblast numpy")] == [
        "naive strict",
        "naive fast",
        "clblast",
        "numpy",
    ]


def test_a_row_is_planned_again_with_its_math() -> None:
    row = planned("naive")[1].row("ok")
    (step,) = rebuild_plan([row], [fake.CPU], {0: 0})
    assert (step.key, step.source) == (row.key, row.source)


def test_rows_of_either_math_are_compared_each_with_its_own() -> None:
    given = [case.row("ok").given for case in planned("tiled")]
    rows = [replace(row, given=names) for row, names in zip(math_rows(), given, strict=True)]
    old, new = (Run(fake.header(("square",)), tuple(each), "run.jsonl") for each in (rows, rows[::-1]))
    (repetition,) = replicates_in(old, new.header)
    assert len(repetition.rows) == 2, "not two repetitions of one case"
    lines = compare([old], [new]).lines
    assert [(line.row.title, line.base_s == line.new_s) for line in lines] == [
        ("tiled strict", True),
        ("tiled fast", True),
    ]
    alone = compare([Run(old.header, (rows[0],), "a")], [Run(new.header, (rows[1],), "b")])
    assert not alone.compared


def math_rows() -> tuple[Row, Row]:
    problem = Problem(512, 512, 512)
    strict, fast = (
        replace(
            fake.gemm_row("tiled", problem, rate, parameters={"TS": 16, "math": math}),
            check=Check("ok", {"element": element}),
        )
        for math, rate, element in (("strict", 10.0, 0.1), ("fast", 15.0, 0.12))
    )
    return strict, replace(fast, former=Partner("0", strict.samples, "tiled", strict.parameters))


def test_both_rates_their_ratio_and_both_residuals_are_shown() -> None:
    run = Run(fake.header(("square",)), math_rows(), "run.jsonl")
    shown, detail = text(views.show(run), 120), text(views.show(run, verbose=True), 160)
    assert " x strict" in shown
    assert line(shown, "tiled fast")[-1] == "1.50"
    detail = detail[detail.index("GFLOPS by scope") :]
    assert "1.50 [1.50, 1.50]" in " ".join(line(detail, "tiled fast"))
    columns = next(row.split() for row in detail.splitlines() if "residual" in row)
    for name, residual in (("tiled strict", "0.100"), ("tiled fast", "0.120")):
        assert line(detail, name)[-1] == residual
    assert columns[-1] == "residual"
    record = to_records(run)[1]
    assert (record["versus"], record["residual"]) == ("tiled strict", 0.12)
    assert record["parameters"] == {"TS": 16, "math": "fast"}


@pytest.mark.parametrize(
    ("values", "sentence"),
    [
        ({"math": "quick"}, "unknown math 'quick'"),
        ({"math": "fast", "kernels": "clblast,numpy"}, "--kernel selects none"),
        ({"math": "strict,fast", "versus": "naive"}, "cannot be combined with --versus"),
        ({"seed": -1}, "-1 is not in the range x>=0"),
    ],
)
def test_what_does_not_go_together_is_a_sentence(values: dict[str, object], sentence: str) -> None:
    with pytest.raises(UsageError, match=sentence):
        build(measuring.SquareOptions, values)


# --- --seed, and the numbers of small problems --------------------------------------------------------------


def test_a_seed_draws_other_operands() -> None:
    case = Case("gemm", 0, "naive", "float", {}, Gemm(5, 6, 7))
    first, again, other = (load_operands(case, seed) for seed in (1, 1, 2))
    assert (first.a == again.a).all()
    assert (first.a == load_operands(case).a).all()
    assert not (first.a == other.a).any()
    assert not (first.b == other.b).any()


def test_a_seed_is_part_of_how_a_run_is_measured() -> None:
    assert build(measuring.SquareOptions, {"seed": 7}).policy == replace(
        build(measuring.SquareOptions, {}).policy, seed=7
    )


def test_a_seed_with_a_users_matrices_is_refused(tmp_path: Path) -> None:
    for name in "ab":
        np.save(tmp_path / f"{name}.npy", np.ones((3, 3), np.float32))
    with pytest.raises(UsageError, match="every operand is a file"):
        build(measuring.GemmOptions, {"a": tmp_path / "a.npy", "b": tmp_path / "b.npy", "seed": 2})
    assert build(measuring.GemmOptions, {"a": tmp_path / "a.npy", "k": 3, "n": 3, "seed": 2}).seed == 2


def verified(problem: Gemm, operands: Operands | None = None) -> dict[str, tuple[tuple[float, ...], ...]]:
    case = Case("gemm", 0, "naive", problem.dtype, {}, problem, operands=operands or Operands())
    bench = Simulated(case, problem.dtype, lambda _, right: right)
    return Answers(case, bench.values).verified(bench, "before").matrices


def test_small_problems_keep_their_numbers() -> None:
    matrices = verified(Gemm(4, 3, 2, beta=0.5, alpha=2.0))
    a, b, c0, c = (np.array(matrices[name]) for name in ("A", "B", "C before", "C"))
    np.testing.assert_allclose(c, 2 * a @ b + 0.5 * c0, rtol=1e-5)
    assert verified(Gemm(8, 8, 9)).keys() == {"C"}, "what is longer than eight is left out"
    assert verified(Gemm(9, 9, 9)) == {}


def test_numbers_are_printed_and_saved_and_not_exported() -> None:
    row = fake.gemm_row("naive", Problem(2, 2, 1), 1.0)
    assert b"matrices" not in encode(row)
    small = replace(row, matrices={"A": ((0.25,), (-3.0,)), "C": ((1e-7, 1048576.0), (1.5, 1 / 3))})
    assert msgspec.json.decode(encode(small), type=Row) == small
    run = Run(fake.header(("gemm",)), (small,), "run.jsonl")
    run = replace(run, header=replace(run.header, view="gemm"))
    shown = text(views.show(run, verbose=True))
    assert [line(shown, start) for start in ("0  0.25", "0  1e-07", "1    1.5")] == [
        ["0", "0.25"],
        ["0", "1e-07", "1048576"],
        ["1", "1.5", "0.333333"],
    ]
    assert "matrices" not in to_records(run)[0]


def test_skips_are_alone() -> None:
    steps = gemm_plan([fake.POCL], [BY_NAME["image-4x8"]], [Gemm(64, 64, 64)], axes=BOTH)
    assert [isinstance(step, Skip) for step in steps] == [True, True]


# --- --lda, --ldb, --ldc ----------------------------------------------------------------------------------

APART = Gemm(9, 5, 7, beta=0.5, ld=(10, 5, 8))


class Strided(Simulated):
    """A bench of a problem whose rows are apart: operands and C have the problem's leading dimensions."""

    def __init__(self, case: Case, touches: bool = False) -> None:
        super().__init__(case, "float", lambda _, right: right)
        self._touches = touches
        self.stored = self.values.stored(self.problem)
        self.c = self.stored.c

    def run(self) -> HostArray:
        problem, values = self.problem, self.values
        product = values.a[:, : problem.k] @ values.b[:, : problem.n]
        self.c = self.c.copy()
        self.c[:, : problem.n] = problem.alpha * product + problem.beta * self.c[:, : problem.n]
        self.c[-1, problem.n] += self._touches
        return self.c


def test_the_rows_of_operands_are_apart_and_nothing_between_them_may_be_read_or_written() -> None:
    values = load_operands(Case("gemm", 0, "naive", "float", {}, APART))
    stored = values.stored(APART)
    assert [each.shape for each in (stored.a, stored.b, stored.c)] == [(9, 10), (7, 5), (9, 8)]
    assert np.isnan(stored.a[:, 7:]).all()
    assert (stored.c[:, 5:] == GUARD).all()
    assert stored.b is values.b, "tight rows are not copied"


@pytest.mark.parametrize("touches", [False, True])
def test_a_kernel_that_writes_between_the_rows_of_c_is_wrong(touches: bool) -> None:
    case = Case("gemm", 0, "naive", "float", {}, APART)
    bench = Strided(case, touches)
    answers = Answers(case, load_operands(case))
    for when in ("before", "after"):
        check = answers.verified(bench, when).check
        assert check.verdict == ("wrong" if touches else "ok"), check
        assert not touches or "cells between the rows of C were written" in check.reasons[0]


@pytest.mark.parametrize("beta", [0.0, 0.5])
def test_numpy_multiplies_rows_that_are_apart(beta: float) -> None:
    problem = replace(APART, beta=beta, alpha=2.0)
    row = in_process.measured(NumpyExecutor(), Case("gemm", -1, "numpy", "float", {}, problem), QUICK)
    assert row.status == "ok", row.reason
    assert row.check_after is not None
    assert row.problem == Problem(9, 5, 7, 2.0, beta, (10, 5, 8))


def test_leading_dimensions_are_part_of_a_rows_key_and_of_what_is_shown() -> None:
    plain, apart = (fake.gemm_row("naive", Problem(8, 8, 8, ld=ld), 1.0) for ld in (UNSET, (9, 8, 16)))
    assert plain.key != apart.key
    assert b'"ld"' not in encode(plain)
    assert msgspec.json.decode(encode(apart), type=Row) == apart
    run = Run(fake.header(("workloads",)), (plain, replace(apart, label="roomy")), "run.jsonl")
    shown = text(views.show(run), 120)
    assert line(shown, "roomy") == ["roomy", "lda=9", "8", "8", "8", "naive", "0.999", "0.112"]
    assert line(shown, "ldc=16")
    assert "8 lda=9 ldc=16" in text(views.show(run, verbose=True), 120)
    assert [(record["lda"], record["ldb"], record["ldc"]) for record in to_records(run)] == [
        (8, 8, 8),
        (9, 8, 16),
    ]
    page = text(views.show(Run(fake.header(("gemm",)), (apart,), "run.jsonl")), 120)
    assert "m = n = k = 8, lda = 9, ldc = 16" in page
    (step,) = rebuild_plan([apart], [fake.CPU], {0: 0})
    assert step.problem.ld == (9, 8, 16)


def test_what_lies_between_rows_counts_as_memory() -> None:
    assert APART.bytes_of == {"A": 360, "B": 140, "C": 288}
    (step,) = gemm_plan([fake.CPU], [BY_NAME["naive"]], [Gemm(1024, 8, 8, ld=(1 << 22, 8, 8))])
    assert "A has more than 2^31 elements" in step.row.reason


@pytest.mark.parametrize(
    ("values", "sentence"),
    [
        ({"m": 5, "n": 6, "k": 7, "lda": 6}, "--lda 6 is less than a row: A has k = 7"),
        ({"m": 5, "n": 6, "k": 7, "ldb": 5}, "--ldb 5 is less than a row: B has n = 6"),
        ({"m": 5, "n": 6, "k": 7, "ldc": 0}, "--ldc 0 is less than a row: C has n = 6"),
    ],
)
def test_a_leading_dimension_below_the_width_is_a_sentence(values: dict[str, int], sentence: str) -> None:
    with pytest.raises(UsageError, match=sentence):
        build(measuring.GemmOptions, values)


def test_leading_dimensions_as_long_as_the_rows_are_none() -> None:
    assert (
        build(measuring.GemmOptions, {"m": 5, "lda": 5, "ldc": 5}).shapes
        == build(measuring.GemmOptions, {"m": 5}).shapes
    )
    assert build(measuring.GemmOptions, {"m": 5, "ldc": 6}).shapes[0].ld == (5, 5, 6)


def test_a_file_of_shapes_may_have_leading_dimensions(tmp_path: Path) -> None:
    path = tmp_path / "shapes.csv"
    path.write_text("ldb,m,n,k,name\n,4,5,6,tight\n8,4,5,6,apart\n5,4,5,6,tight again\n")
    shapes = build(measuring.WorkloadsOptions, {"file": path}).shapes
    assert [(shape.name, shape.ld) for shape in shapes] == [
        ("tight = tight again", None),
        ("apart", (6, 8, 5)),
    ]
    path.write_text("m,n,k,lda\n4,5,6,5\n")
    with pytest.raises(UsageError, match="line 2: lda 5 is less than a row: A has k = 6"):
        build(measuring.WorkloadsOptions, {"file": path})


COUNTED = "m,n,k,dtype,calls\n256,256,256,double,2\n256,256,256,,3\n256,256,256,double,1\n8,8,8,,1\n"


@pytest.mark.parametrize(
    ("values", "shapes", "left_out"),
    [
        ({"top": 100}, "double 256 3, float 256 3, float 8 None", 0),
        ({}, "double 256 3, float 256 3", 1),
        ({"top": 60}, "double 256 3", 2),
        ({"dtype": "half"}, "half 256 6", 1),
        ({"dtype": "half,float", "top": 100}, "float 256 6, float 8 None, half 256 6, half 8 None", 0),
    ],
    ids=str,
)
def test_a_file_has_types_and_calls(
    values: dict[str, object], shapes: str, left_out: int, tmp_path: Path
) -> None:
    path = tmp_path / "log.csv"
    path.write_text(COUNTED)
    values = {"file": path, "kernels": "naive", "baseline": "none", **values}
    options = build(measuring.WorkloadsOptions, values)
    cases = [step for step in plan_command(options, [fake.CPU]) if isinstance(step, Case)]
    rows = [case.row("ok") for case in cases if case.kind == "gemm"]
    assert ", ".join(sorted(f"{row.dtype} {m(row)} {row.calls or None}" for row in rows)) == shapes
    assert (options.left_out.shapes if options.left_out else 0) == left_out
    (again,) = rebuild_plan(rows[:1], [fake.CPU], {0: 0})
    assert isinstance(again, Case)
    assert again.row("ok").calls == rows[0].calls


def test_the_time_of_what_is_left_out_is_predicted() -> None:
    tiny, large = Shape("", 8, 8, 8, calls=1), Shape("", 256, 256, 256, calls=3)
    (kept, left_out) = heaviest([tiny, large, replace(large, dtype="double")], 60)
    times = 3 * 2 * 256**3, 15 * 3 * 4 * 8**2  # by operations, and by bytes
    assert kept == (replace(large, dtype="double"),)
    assert left_out == LeftOut(2, 3 * 2 * 256**3 + 2 * 8**3, sum(times) / (sum(times) + 2 * times[0]))
    with pytest.raises(UsageError, match="--top is a percentage of the predicted time, at most 100, not 101"):
        build(measuring.WorkloadsOptions, {"top": 101})


@pytest.mark.parametrize(("variant", "how"), [("cublas", "rounded"), ("nv-wgmma", "cut")])
def test_errors_are_next_to_rates_and_in_markdown(variant: str, how: str) -> None:
    row = replace(
        fake.gemm_row(variant, Problem(512, 512, 512), 10.0, dtype="tf32"),
        check=Check("ok", {"element": 0.1, "ulp": 1234.0}),
        check_after=Check("ok", {"element": 0.25}),
    )
    run = Run(fake.header(("gemm",), (fake.GPU,)), (row,))
    assert line(text(views.show(run, verbose=True), 160).partition("by scope")[2], variant)[-3:] == [
        "0.250",
        "1,234",
        how,
    ]
    assert f"| {variant} | 512 | 0.250 | 1,234 | {how} |" in views.format_markdown(run)
    assert (to_flat(run)[0]["residual_ulp"], to_flat(run)[0]["conversion"]) == (1234.0, how)
