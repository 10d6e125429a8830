from __future__ import annotations

import argparse
import math
import os
from dataclasses import replace
from pathlib import Path

import pytest

from gemmbench import api
from gemmbench.model.case import saved_problem
from gemmbench.model.device import Conditions, Readings
from gemmbench.model.problem import Gemm
from gemmbench.model.row import Partner, Problem, Row
from gemmbench.model.run_file import Header, Run, encode
from gemmbench.suite.auto import Point
from tests import fake_runs as fake
from tools.bench import auto_regret
from tools.bench.auto_regret import (
    KINDS,
    grid,
    losses,
    main_unseen,
    mean_loss,
    mean_ratio,
    regrets,
    report_unseen,
    unseen,
)

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


# --- on shapes that it has not seen -------------------------------------------------------------------------


def in_turn(name: str, problem: Gemm, ratio: float) -> Row:
    """A kernel in turn with numpy, of whose rate it has so much, in 30 pairs whose spread is 1 %."""
    made = fake.gemm_row(name, saved_problem(problem), 1.0, parameters={})
    partner = Partner("", {"host": fake.scope(1.0, 0.01)}, variant="numpy")
    return replace(made, samples={"host": fake.scope(1.0 / ratio, 0.01)}, former=partner)


def known(name: str, problem: Gemm, seconds: float) -> Point:
    return Point(name, "float", {}, problem.m, problem.n, problem.k, seconds, seconds, batch=problem.batch)


def test_shapes_are_drawn_from_a_seed_over_every_kind_and_none_was_seen() -> None:
    drawn = unseen(50, 1, 1024)
    assert drawn == unseen(50, 1, 1024)
    assert drawn != unseen(50, 2, 1024)
    assert [sum(each.label == kind for each in drawn) for kind in KINDS] == [10] * 5
    assert not set(drawn) & set(grid(1024))
    assert all(min(each.m, each.n) <= 16 for each in drawn if each.label == "thin")
    assert all((each.batch > 1) == (each.label == "batched") for each in drawn)


def test_the_loss_on_an_unseen_shape_is_the_best_rate_over_the_chosen_ones() -> None:
    """Of the shapes around, the cache says naive for one problem and numpy for batches."""
    seen = (
        *(known("naive", Gemm(64, 64, 64), 1.0), known("numpy", Gemm(64, 64, 64), 2.0)),
        *(known("naive", Gemm(64, 64, 64, batch=8), 2.0), known("numpy", Gemm(64, 64, 64, batch=8), 1.0)),
    )
    first, second = Gemm(70, 70, 70, label="square"), Gemm(70, 70, 70, batch=8, label="batched")
    lost = Gemm(70, 70, 71, label="odd")
    rows = (
        *(in_turn("naive", first, 0.8), in_turn("tiled", first, 1.2)),
        *(in_turn("naive", second, 0.9), in_turn("tiled", second, 0.7)),
    )
    run = run_of(*rows)
    one, other = losses((first, second, lost), seen, run, 0, "numpy", "host")
    assert (one.chosen, one.best) == ("naive", "tiled")
    assert one.ratio == pytest.approx(1.5, rel=0.02)
    assert one.low < one.ratio < one.high
    assert one.high - one.low < 0.1
    assert (other.chosen, other.best, other.ratio) == ("numpy", "numpy", 1.0)
    mean, low, high = mean_loss([one.ratio, other.ratio])
    assert mean == pytest.approx(math.sqrt(one.ratio))
    assert (low, high) == pytest.approx((1.0, one.ratio))


def test_how_large_a_loss_is_says_a_second_measurement() -> None:
    """The best of noisy figures is too good: which it is, and how far it is ahead, are measured apart."""
    problem, other = Gemm(70, 70, 70, label="square"), Gemm(80, 80, 80, label="square")
    seen = (known("naive", Gemm(64, 64, 64), 1.0), known("numpy", Gemm(64, 64, 64), 2.0))
    first = run_of(*(in_turn("naive", each, 0.8) for each in (problem, other)))
    again = run_of(in_turn("naive", problem, 1.02))
    noise, loss = losses((problem, other), seen, first, 0, "numpy", "host", again)
    assert (noise.chosen, noise.best) == ("naive", "numpy")
    assert noise.ratio == pytest.approx(1 / 1.02, rel=0.005)
    assert loss.ratio == pytest.approx(1.25, rel=0.01)  # not measured again


def test_the_report_names_the_worst_and_fails_over_the_limit(capsys: pytest.CaptureFixture[str]) -> None:
    first, second = Gemm(70, 70, 70, label="square"), Gemm(9, 9, 9, batch=2, label="batched")
    run = run_of(in_turn("naive", first, 0.8), in_turn("naive", second, 2.0))
    numpy_best = (known("numpy", Gemm(64, 64, 64), 1.0),)
    found = losses((first, second), numpy_best, run, 0, "numpy", "host")
    assert report_unseen(found, (), 2, "host") == 1
    out = capsys.readouterr().out.splitlines()
    assert out[1].split()[:5] == ["square", "70x70x70", "numpy", "numpy", "0.0"]
    assert "worst 100.1 % (99.7 % to 100.5 %)" in out[-1]
    assert (
        "at 9x9x9 batch=2: numpy instead of naive (the first of the order for a cpu: nothing like" in out[-1]
    )
    assert report_unseen(found[:1], (), 2, "host") == 0
    assert report_unseen((), (), 2, "host") == 2


def test_what_auto_took_in_use_decides_the_exit_status(capsys: pytest.CaptureFixture[str]) -> None:
    problem = Gemm(70, 70, 70, label="square")
    run = run_of(in_turn("naive", problem, 2.0))
    known_best = (known("numpy", Gemm(64, 64, 64), 1.0),)
    rule = losses((problem,), known_best, run, 0, "numpy", "host")
    in_use = losses((problem,), known_best, run, 0, "numpy", "host", used={problem: "naive"})
    assert [each.ratio for each in in_use] == [1.0]
    assert report_unseen(rule, in_use, 1, "host") == 0
    by_rule, used = capsys.readouterr().out.splitlines()[-2:]
    assert by_rule.startswith("without a trial: geometric mean 100.1 %")
    assert used.startswith("in use, with its trials: geometric mean 0.0 %")
    assert report_unseen(in_use, rule, 1, "host") == 1


def test_without_a_partner_rates_of_their_own_decide_the_hosts_blas_among_them() -> None:
    problem = Gemm(70, 70, 70, label="square")
    saved = saved_problem(problem)
    run = run_of(row("naive", saved, 4.0), row("tiled", saved, 2.0), row("numpy", saved, 1.0, device=-1))
    (found,) = losses((problem,), (known("naive", Gemm(64, 64, 64), 1.0),), run, 0, "", "host")
    assert (found.chosen, found.best, found.ratio) == ("naive", "numpy", 4.0)


def test_every_drawn_shape_has_a_cache_of_the_grid_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    kept: dict[str, set[str]] = {}

    def measured(folder: Path, name: str, *_: object) -> bool:
        cache = Path(os.environ["XDG_CACHE_HOME"])
        if not name.startswith("grid") or keeps:
            cache.mkdir(exist_ok=True)
            kept[name] = {path.name for path in cache.iterdir()}
            (cache / name).touch()
        return True

    options = argparse.Namespace(
        unseen=3,
        seed=3,
        largest=0,
        type="cpu",
        device="all",
        budget="0.1",
        dtype="float",
        drawn_budget="",
        share=(1, 1),
        folder=tmp_path,
        partner="numpy",
        scope="host",
        saved=False,
    )
    monkeypatch.setenv("XDG_CACHE_HOME", "")
    monkeypatch.setattr(api, "devices", lambda: [fake.CPU])
    monkeypatch.setattr(auto_regret, "_measured", measured)
    keeps = False
    assert main_unseen(options) == 2
    assert capsys.readouterr().err == (
        f"auto_regret: {tmp_path} has a grid and no cache with what was kept of it: take a new folder\n"
    )
    keeps = True
    assert main_unseen(options) == 2
    used = {name: there for name, there in kept.items() if name.startswith("used")}
    grids = {name for name in kept if name.startswith("grid")}
    assert used == dict.fromkeys(("used-3-0", "used-3-1", "used-3-2"), grids)


def test_shares_are_read_together(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Two shares of a grid, and of two drawn shapes, in files of their own."""
    drawn = Gemm(70, 70, 70, label="square"), Gemm(300, 300, 300, label="odd")
    for part, (problem, size) in enumerate(zip(drawn, (64, 256), strict=True), 1):
        end = f"-{part}of2"
        seen = saved_problem(Gemm(size, size, size))
        rows = {
            "grid": (row("naive", seen, 1.0), row("tiled", seen, 2.0)),
            "drawn-3": (in_turn("naive", problem, 2.0), in_turn("tiled", problem, 1.0)),
        }
        for name, those in rows.items():
            records: list[Header | Row] = [run_of().header, *those]
            (tmp_path / f"{name}{end}.jsonl").write_bytes(b"".join(encode(each) for each in records))
        line = f"{problem.label} 0,{problem.m},{problem.n},{problem.k},1\n"
        (tmp_path / f"drawn-3{end}.csv").write_text("name,m,n,k,batch\n" + line)
    options = argparse.Namespace(
        seed=3, saved=True, share=(1, 1), folder=tmp_path, partner="numpy", scope="host"
    )
    assert main_unseen(options) == 0
    assert "2 of 2 shapes" in capsys.readouterr().out
    busy = Conditions(cores=2, windows={"host": Readings(window_s=1.0, other_cores=1.0)})
    records = [run_of().header, replace(in_turn("naive", drawn[1], 2.0), conditions=busy)]
    (tmp_path / "drawn-3-2of2.jsonl").write_bytes(b"".join(encode(each) for each in records))
    assert main_unseen(options) == 0
    assert "1 of 2 shapes" in capsys.readouterr().out  # what other programs disturbed is left out
