"""Ranks among the variants of a saved run, and the problem that they are compared on."""

from __future__ import annotations

from dataclasses import replace

from gemmbench.model.row import Problem, Row
from gemmbench.model.run_file import Run
from gemmbench.stats.panels import Setting, common_problem, settings, standings
from tests import fake_runs as fake

FLOAT = Setting(0, "float")


def squares(**rates: tuple[float | None, ...]) -> Run:
    """Variants by size 64, 128 ...; None is a skipped row."""
    rows: list[Row] = []
    for variant, gflops in rates.items():
        for place, one in enumerate(gflops):
            size = 64 << place
            problem, where = Problem(size, size, size), -1 if variant == "numpy" else 0
            if one is None:
                rows.append(fake.bad(variant, problem, "skipped", "too slow", where))
            else:
                rows.append(fake.gemm_row(variant, problem, one, where, spread=0.0))
    return Run(fake.header(("square",)), tuple(rows), "run.jsonl")


def test_the_fastest_is_first_and_the_host_is_ranked_on_a_cpu() -> None:
    run = squares(naive=(2.0,), tiled=(8.0,), register=(6.0,), padded=(None,), numpy=(100.0,))
    places = standings(run, FLOAT, Problem(64, 64, 64))
    assert {name: place.rank for name, place in places.items()} == {
        "naive": 4,
        "tiled": 2,
        "register": 3,
        "padded": None,
        "numpy": 1,
    }
    assert places["numpy"].rate is not None


def test_the_best_parameters_count() -> None:
    run = squares(naive=(2.0,), tiled=(8.0,))
    slower = replace(fake.gemm_row("tiled", Problem(64, 64, 64), 3.0), parameters={"TS": 8})
    for rows in ((*run.rows, slower), (slower, *run.rows)):
        place = standings(replace(run, rows=rows), FLOAT, Problem(64, 64, 64))["tiled"]
        assert place.row.parameters == {}
        assert place.rank == 1


def test_the_common_problem_is_the_largest_that_most_have() -> None:
    run = squares(naive=(1.0, None, None), tiled=(1.0, 1.0, None), register=(1.0, 1.0, 1.0))
    assert common_problem(run, FLOAT) == Problem(128, 128, 128)
    assert common_problem(squares(naive=(1.0, 1.0, None)), FLOAT) == Problem(128, 128, 128)
    assert common_problem(squares(naive=(None,)), FLOAT) is None
    assert common_problem(fake.fake_peak(), FLOAT) is None


def test_where_no_problem_is_shared_it_is_the_largest_with_a_figure() -> None:
    run = squares(naive=(1.0, None, None), tiled=(None, 1.0, None), register=(None, None, None))
    assert common_problem(run, FLOAT) == Problem(128, 128, 128)


def test_a_variant_that_never_ran_does_not_count() -> None:
    never: tuple[None, ...] = (None, None)
    run = squares(naive=(1.0, None), tiled=(1.0, 1.0), register=(1.0, 1.0), a=never, b=never, c=never)
    assert common_problem(run, FLOAT) == Problem(128, 128, 128)


def test_settings() -> None:
    run = fake.fake_many()
    assert settings(run) == [Setting(0, "float"), Setting(0, "half"), Setting(1, "float"), Setting(1, "half")]
    host = squares(numpy=(1.0,))
    assert settings(host) == [Setting(-1, "float")]
    assert common_problem(host, Setting(-1, "float")) == Problem(64, 64, 64)
    assert settings(fake.fake_peak()) == []
