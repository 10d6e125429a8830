from __future__ import annotations

import math

import pytest

from gemmbench.model.row import Problem, Row
from gemmbench.model.run_file import Run
from tests import fake_runs as fake
from tools.bench.auto_regret import mean_ratio, regrets

SMALL, LARGE = Problem(64, 64, 64), Problem(512, 512, 512)
CHOOSABLE = ("tiled", "naive", "numpy")


def row(name: str, problem: Problem, seconds: float, device: int = 0, kernel: str = "") -> Row:
    made = fake.gemm_row(name, problem, 1.0, device, parameters={})
    samples = {"host": fake.scope(seconds, 0.0)}
    return Row(**{**vars(made), "samples": samples, "choice": {"kernel": kernel} if kernel else {}})


def run_of(*rows: Row) -> Run:
    return Run(fake.header(("square",), (fake.CPU, fake.POCL)), rows)


def test_the_ratio_is_of_autos_row_over_the_best_that_it_could_have_taken() -> None:
    run = run_of(
        row("naive", SMALL, 4.0),
        row("tiled", SMALL, 2.0),
        row("clblast", SMALL, 0.1),  # auto may not take it
        row("auto", SMALL, 3.0, kernel="tiled"),
        row("tiled", LARGE, 5.0),
        row("auto", LARGE, 2.0, kernel="numpy"),
        row("numpy", LARGE, 2.5, device=-1),
        row("tiled", SMALL, 0.1, device=1),  # another device
    )
    small, large = regrets(run, 0, "float", CHOOSABLE)
    assert (small.ratio, small.best.variant, small.noise) == (1.5, "tiled", 1.5)
    assert (large.ratio, large.best.variant, large.noise) == (0.8, "numpy", 0.8)
    assert mean_ratio([small, large]) == pytest.approx(math.sqrt(1.5 * 0.8))


def test_noise_is_known_only_where_the_choice_was_measured_by_itself() -> None:
    run = run_of(row("naive", SMALL, 4.0), row("auto", SMALL, 2.0, kernel="tiled"))
    (found,) = regrets(run, 0, "float", CHOOSABLE)
    assert (found.ratio, found.noise, found.own) == (0.5, None, None)


def test_without_auto_or_without_others_there_is_no_regret() -> None:
    assert regrets(run_of(row("naive", SMALL, 1.0)), 0, "float", CHOOSABLE) == ()
    assert regrets(run_of(row("auto", SMALL, 1.0)), 0, "float", CHOOSABLE) == ()
    assert regrets(run_of(row("naive", SMALL, 1.0), row("auto", SMALL, 1.0)), 0, "half", CHOOSABLE) == ()
    assert mean_ratio(()) is None
