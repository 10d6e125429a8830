"""The gallery in ``plots/``: its pictures are listed, and tables, charts and JSON of its runs agree."""

from __future__ import annotations

import html
import re
from collections.abc import Callable
from dataclasses import replace
from functools import lru_cache
from pathlib import Path

import pytest
from click.testing import CliRunner

from gemmbench import chart_views, cli
from gemmbench.charts import named
from gemmbench.ladder import FAMILIES
from gemmbench.model import units
from gemmbench.model.device import HOST
from gemmbench.model.row import Problem
from gemmbench.model.run_file import load
from gemmbench.stats import panels, rates
from gemmbench.stats.rates import peak_fraction
from tools import gallery

PLOTS = gallery.PLOTS
RUNS = sorted(PLOTS.glob("*.jsonl"))


def peak_of(run: Path) -> Path:
    """The run of ``peak`` on the same machine, which lends the roofline its roofs: ``h200-peak.jsonl``."""
    peaks = [p for p in PLOTS.glob("*-peak.jsonl") if run.name.startswith(p.name.removesuffix("peak.jsonl"))]
    assert len(peaks) == 1, f"{run.name} belongs to {[peak.name for peak in peaks]}: there must be one"
    return peaks[0]


Pictures = Callable[[Path, str], Path]


@pytest.fixture(scope="module")
def pictures(tmp_path_factory: pytest.TempPathFactory) -> Pictures:
    """Draws a chart of a run as SVG, each once."""
    folder = tmp_path_factory.mktemp("pictures")

    def picture(run: Path, kind: str) -> Path:
        path = folder / named(run.with_suffix(".svg"), kind).name
        if not path.exists() and named(run, kind).stem in drawn()[run]:
            files = [str(file) for file in dict.fromkeys((run, peak_of(run)))]
            words = ["plot", *files, "--kind", kind, "--out", str(path)]
            result = CliRunner().invoke(cli.main, words, prog_name="gemmbench")
            assert result.exit_code == 0, result.output
        return path

    return picture


@lru_cache
def drawn() -> dict[Path, list[str]]:
    """The names of each run's charts in the order of their kinds."""
    return {
        run: [
            named(run, kind).stem
            for kind in chart_views.suited(
                [load(file) for file in dict.fromkeys((run, peak_of(run)))], FAMILIES
            )
        ]
        for run in RUNS
    }


def test_the_gallery_holds_its_pictures_and_their_runs_and_nothing_else() -> None:
    wanted = {gallery.name(kind, run) for kind, run, *_ in gallery.PICTURES}
    wanted |= {f"{run}.jsonl" for _, *runs in gallery.PICTURES for run in runs}
    assert {path.name for path in PLOTS.iterdir() if path.is_file()} == wanted | {gallery.PAGE.name}


@pytest.mark.parametrize("run", RUNS, ids=lambda run: run.stem)
def test_the_gallery_is_drawn_from_whole_honest_runs(run: Path) -> None:
    rows = load(run).rows
    assert not {row.status for row in rows} & {"wrong", "failed", "crashed", "timed-out"}
    launches = ("none",)  # of an empty kernel, which leaves nothing to check
    for row in rows:
        believed = ("ok", *(launches if row.kind == "latency" else ()))
        assert row.status != "ok" or row.check.verdict in believed, (row.variant, row.parameters)
    text = run.read_text(encoding="utf-8")
    assert not re.search(r'"/(?:home|root|work|tmp|usr)/', text), "a folder of the machine it was made on"


def test_the_page_lists_every_run_and_chart() -> None:
    _, _, listed = gallery.PAGE.read_text(encoding="utf-8").partition(gallery.MARK)
    assert listed == gallery.page(), "make plots writes it"


# --- one answer: what a table of a run says, its charts and its JSON say ------------------------------------


def said(*words: str, columns: int = 80) -> str:
    """What a command prints."""
    done = CliRunner().invoke(cli.main, list(words), prog_name="gemmbench", env={"COLUMNS": str(columns)})
    assert done.exit_code == 0, done.output
    return done.stdout


def texts(pictures: Pictures, run: Path, kind: str) -> list[tuple[str, bool]]:
    """Every text of a chart, in the order of drawing, and whether it is bold; none without the chart."""
    path = pictures(run, kind)
    if not path.exists():
        return []
    found = re.findall(r'<text style="([^"]*)"[^>]*>([^<]*)</text>', path.read_text(encoding="utf-8"))
    return [(html.unescape(text), "font-weight: 700" in style) for style, text in found]


@pytest.mark.parametrize("run", RUNS, ids=lambda run: run.stem)
def test_table_and_chart_have_one_break_even(run: Path, pictures: Pictures) -> None:
    shown = [text for text, _ in texts(pictures, run, "host-device")]
    sentence = r"(\S+) with transfers beats numpy from (. = \d+)"
    drawn = [match.groups() for text in shown if (match := re.fullmatch(sentence, text))]
    table = said("show", str(run))
    for name, it, size in re.findall(r"With transfers(?:, (\S+)|( it)) beats \S+ from (. = \d+)\.", table):
        kernel = re.findall(r"Fastest \w+: (\S+),", table)[-1] if it else name
        assert all(start == size for winner, start in drawn if winner == kernel)
    if run.stem == "h200-square":
        assert len(drawn) == 1


@pytest.mark.parametrize("run", RUNS, ids=lambda run: run.stem)
def test_the_ladder_chart_has_each_kernels_rate_and_share_of_the_peak(run: Path, pictures: Pictures) -> None:
    saved, lender = load(run), load(peak_of(run))
    chart = texts(pictures, run, "ladder")
    expected = []
    for setting in panels.settings(saved):
        if problem := panels.common_problem(saved, setting):
            ranked = [each for each in panels.standings(saved, setting, problem).values() if each.rank]
            if sum(each.row.device != HOST for each in ranked) < 2:
                continue
            divisor, _ = units.scale(max(each.rate.median for each in ranked if each.rate))
            for each in sorted(ranked, key=lambda each: each.rank or 0):
                share = peak_fraction(saved, each.row, rates.view_scope(saved), [lender])
                samples = rates.shown_samples(each.row, rates.view_scope(saved))
                mark = "~" if rates.is_uncertain(saved, each.row, samples) else ""
                figures = [mark + units.number(each.rate.median / divisor)] if each.rate else []
                figures += [units.percent(share)] if share is not None else []
                expected.append((" ".join(figures), each.is_fastest))
    bars = [(" ".join(text.split()), bold) for text, bold in chart if re.match(r"~?[\d.,]+   [\d.]+ %", text)]
    assert bars == [each for each in expected if "%" in each[0]]
    assert bool(chart) == bool(expected)


@pytest.mark.parametrize("run", RUNS, ids=lambda run: run.stem)
def test_table_and_chart_have_one_peak(run: Path, pictures: Pictures) -> None:
    def scaled(value: str, letter: str) -> float:
        return float(value.replace(",", "")) * {"G": 1.0, "T": 1e3}[letter]

    chart = [text for text, _ in texts(pictures, run, "throughput")]
    table = " ".join(said("show", str(run), columns=200).split())
    tops = [match for text in chart if (match := re.fullmatch(r"peak ([\d.,]+) ([GT])FLOPS", text))]
    told = re.findall(r"float peak (?:of the matrix units )?([\d.,]+) ([GT])", table)
    for top in tops:
        assert max(scaled(*each) for each in told) == pytest.approx(scaled(*top.groups()), rel=0.01)
    if run.stem == "h200-square":
        assert len(tops) == 1


# --- one scope: whoever is compared is compared in one, and it is named -------------------------------------


def starred(table: str, dtype: str) -> str:
    """The variant whose figure is starred in the first column of a problem's table."""
    _, caption, rest = table.partition(f"\n{dtype} G")
    _, *lines = rest.partition("\n\n")[2].partition("\n\n")[0].splitlines()
    names = [cells[0] for line in lines if (cells := line.split())[1].startswith("*")]
    assert caption
    assert len(names) == 1, lines
    return names[0]


def fastest_in_tf32() -> str:
    """At 8192, in the device scope."""
    rows = [row for row in load(PLOTS / "h200-tensor.jsonl").rows if row.dtype == "tf32" and row.problem]
    return max(
        (row for row in rows if row.problem == Problem(8192, 8192, 8192)),
        key=lambda row: rates.median_rate(row, "device") or 0.0,
    ).variant


def test_a_library_is_compared_in_the_scope_that_it_has() -> None:
    """tf32 at 8192: 376 TFLOPS of the kernel alone are no lead over the 367 of all of cuBLAS' passes."""
    table = said("show", str(PLOTS / "h200-tensor.jsonl"), columns=200)
    assert starred(table, "tf32") == fastest_in_tf32()
    assert "in the kernel alone" not in table
    assert "tf32 GEMM, m = n = k = 8192, TFLOPS" in table
    assert "on the device" in table


def test_charts_compare_a_library_in_the_scope_that_it_has(pictures: Pictures) -> None:
    run = PLOTS / "h200-tensor.jsonl"
    kinds = ("throughput", "time", "precision", "ladder", "roofline")
    written = {kind: words for kind in kinds if (words := [text for text, _ in texts(pictures, run, kind)])}
    assert {"precision", "ladder", "roofline"} <= written.keys()  # the others want several sizes
    for kind, words in written.items():
        assert any("on the device" in text for text in words), kind
        assert not any("in the kernel alone" in text for text in words), kind


def test_numpy_is_ranked_with_a_gpu_in_the_host_scope_only() -> None:
    """Without transfers it has less to do: at 64 its 60 GFLOPS are no lead over kernels on the GPU."""
    for run in ("h200-sweep-k", "h200-square", "h200-energy"):
        table = said("show", str(PLOTS / f"{run}.jsonl"), columns=250)
        line = next(line for line in table.splitlines() if line.startswith("numpy "))
        assert "*" not in line, run


def test_numpy_on_a_cpu_is_ranked_with_kernels_with_all_their_passes() -> None:
    run = load(PLOTS / "cpu-pocl-square.jsonl")
    numpy = tuple(row for row in run.rows if rates.on_host(row))
    assert {rates.view_scope(run), rates.view_scope(replace(run, rows=numpy))} == {"device"}
    setting = panels.settings(run)[0]
    problem = panels.common_problem(run, setting)
    assert problem
    assert panels.standings(run, setting, problem)["numpy"].rank
