"""Options of the measuring commands: what they make of a plan, of operands and of a row."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import msgspec
import numpy as np
import pytest

from gemmbench import UsageError, views
from gemmbench.gemm.answers import Answers
from gemmbench.gemm.operands import load_operands
from gemmbench.ladder import BY_NAME
from gemmbench.ladder.variant import FAST_MATH
from gemmbench.model.case import Case, Operands, Policy, Skip
from gemmbench.model.problem import Gemm
from gemmbench.model.row import Check, Partner, Problem, Row
from gemmbench.model.run_file import Run, encode
from gemmbench.options import measuring
from gemmbench.options.declare import build
from gemmbench.suite import auto
from gemmbench.suite.plan import Axes, gemm_plan, rebuild
from tests import fake_runs as fake
from tests.unit.test_answers import Simulated
from tests.unit.test_shape_tables import line, text

# --- --math -----------------------------------------------------------------------------------------------

BOTH = Axes(("strict", "fast"))


def planned(names: str, axes: Axes = BOTH) -> list[Case]:
    steps = gemm_plan([fake.CPU], [BY_NAME[name] for name in names.split()], [Gemm(64, 64, 64)], axes=axes)
    return [step for step in steps if isinstance(step, Case)]


@pytest.mark.parametrize("name", ["naive", "image-4x8"])
def test_a_kernel_is_built_with_either_math_and_the_second_takes_turns_with_the_first(name: str) -> None:
    strict, fast = planned(name)
    flags = [BY_NAME[name].with_math(case.math).flags for case in (strict, fast)]
    assert [FAST_MATH in each for each in flags] == [False, True], "whatever the kernel's own flags say"
    assert len({case.key for case in (strict, fast)}) == len({case.source for case in (strict, fast)}) == 2
    assert fast.versus == strict
    assert strict.versus is None
    assert strict.numbers == planned(name, Axes())[0].numbers, "math is no parameter of the kernel"


def test_a_kernels_own_flags_stay_unless_asked() -> None:
    (image,) = planned("image-4x8", Axes())
    assert image.source == planned("image-4x8")[1].source
    assert FAST_MATH in BY_NAME["image-4x8"].flags
    assert not image.math


def test_libraries_have_no_math() -> None:
    assert [case.title for case in planned("naive clblast numpy auto")] == [
        "naive strict",
        "naive fast",
        "clblast",
        "numpy",
        "auto",
    ]


def test_a_row_is_planned_again_with_its_math() -> None:
    row = planned("naive")[1].row("ok")
    (step,) = rebuild([row], [fake.CPU], {0: 0})
    assert isinstance(step, Case)
    assert (step.key, step.source) == (row.key, row.source)


def test_auto_does_not_learn_from_rows_with_another_math() -> None:
    rows = [replace(row, problem=Problem(64, 64, 64)) for row in math_rows()]
    plain = replace(rows[0], parameters={"WX": 16})
    assert len(auto.points([plain], 0)) == 1
    assert not auto.points(rows, 0)


def math_rows(after: float = 0.12) -> tuple[Row, Row]:
    problem = Problem(512, 512, 512)
    strict, fast = (
        replace(
            fake.gemm_row("tiled", problem, rate, parameters={"TS": 16, "math": math}),
            check=Check("ok", {"element": element}),
        )
        for math, rate, element in (("strict", 10.0, 0.1), ("fast", 15.0, after))
    )
    return strict, replace(fast, former=Partner("0", strict.samples, "tiled", strict.parameters))


def test_both_rates_their_ratio_and_the_change_of_the_residual_are_shown() -> None:
    run = Run(fake.header(("square",)), math_rows(), "run.jsonl")
    shown = text(views.show(run), 120)
    assert line(shown, "tiled fast")[-3:] == ["1.50", "[1.50,", "1.50]"]
    last = shown[shown.index("strict and fast math") :]
    assert line(last, "tiled") == [
        "tiled",
        "512",
        "9.99",
        "15.0",
        "1.50",
        "[1.50,",
        "1.50]",
        "0.100",
        "0.120",
        "+20.0",
        "%",
    ]
    record = views.to_records(run)[1]
    assert (record["versus"], record["residual"]) == ("tiled strict", 0.12)
    assert record["parameters"] == {"TS": 16, "math": "fast"}


def test_an_unchanged_residual_is_called_so() -> None:
    run = Run(fake.header(("square",)), math_rows(0.1), "run.jsonl")
    assert line(text(views.show(run), 120).partition("strict and fast math")[2], "tiled")[-1] == "none"


@pytest.mark.parametrize(
    ("values", "sentence"),
    [
        ({"math": "quick"}, "unknown math 'quick'"),
        ({"math": "fast", "kernels": "auto,numpy"}, "--kernel names none"),
        ({"math": "strict,fast", "versus": "naive"}, "goes without --versus"),
        ({"math": "strict,fast", "concurrent": True}, "goes without --concurrent"),
        ({"seed": -1}, "-1 is not in the range x>=0"),
    ],
)
def test_what_does_not_go_together_is_a_sentence(values: dict[str, object], sentence: str) -> None:
    with pytest.raises(UsageError, match=sentence):
        build(measuring.Square, values)


# --- --seed, and the numbers of small problems --------------------------------------------------------------


def test_a_seed_draws_other_operands() -> None:
    case = Case("gemm", 0, "naive", "float", {}, Gemm(5, 6, 7))
    first, again, other = (load_operands(case, seed) for seed in (1, 1, 2))
    assert (first.a == again.a).all()
    assert (first.a == load_operands(case).a).all()
    assert not (first.a == other.a).any()
    assert not (first.b == other.b).any()


def test_a_seed_is_part_of_how_a_run_is_measured() -> None:
    assert build(measuring.Square, {"seed": 7}).policy == replace(build(measuring.Square, {}).policy, seed=7)


def test_a_seed_beside_a_users_own_matrices_is_refused(tmp_path: Path) -> None:
    for name in "ab":
        np.save(tmp_path / f"{name}.npy", np.ones((3, 3), np.float32))
    with pytest.raises(UsageError, match="all of them are yours"):
        build(measuring.Gemm, {"a": tmp_path / "a.npy", "b": tmp_path / "b.npy", "seed": 2})
    assert build(measuring.Gemm, {"a": tmp_path / "a.npy", "k": 3, "n": 3, "seed": 2}).seed == 2


def verified(problem: Gemm, operands: Operands | None = None) -> dict[str, tuple[tuple[float, ...], ...]]:
    case = Case("gemm", 0, "naive", problem.dtype, {}, problem, operands=operands or Operands())
    bench = Simulated(case, problem.dtype, lambda _, right: right)
    return Answers(case, bench.values, Policy(), "").verified(bench, "before").matrices


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
    shown = text(views.show(run))
    assert [line(shown, f"  {start}") for start in ("0  0.25", "0  1e-07", "1    1.5")] == [
        ["0", "0.25"],
        ["0", "1e-07", "1048576"],
        ["1", "1.5", "0.333333"],
    ]
    assert "matrices" not in views.to_records(run)[0]


def test_skips_are_alone() -> None:
    steps = gemm_plan([fake.POCL], [BY_NAME["image-4x8"]], [Gemm(64, 64, 64)], axes=BOTH)
    assert [isinstance(step, Skip) for step in steps] == [True, True]
