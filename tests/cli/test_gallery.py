"""The gallery: every chart in ``plots/`` can be drawn from the runs that stand there, and is listed.

``pytest tests/cli/test_gallery.py --update-golden`` writes the lists of ``plots/README.md`` anew.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from itertools import groupby
from pathlib import Path

import pytest
from click.testing import CliRunner

from gemmbench import charts, cli
from gemmbench.facts.chart_files import named
from gemmbench.facts.records import load
from gemmbench.rules.variants import FAMILIES
from tests.cli.conftest import ROOT
from tests.generate_readme import earlier_forms, is_earlier

PLOTS = ROOT / "plots"
PAGE = PLOTS / "README.md"
RUNS = sorted(PLOTS.glob("*.jsonl"))
MARK = "<!-- pytest tests/cli/test_gallery.py --update-golden writes what follows -->\n"


def peak_of(run: Path) -> Path:
    """The run of ``peak`` on the same machine, which lends the roofline its roofs: ``h200-peak.jsonl``."""
    peaks = [p for p in PLOTS.glob("*-peak.jsonl") if run.name.startswith(p.name.removesuffix("peak.jsonl"))]
    assert len(peaks) == 1, f"{run.name} belongs to {[peak.name for peak in peaks]}: there must be one"
    return peaks[0]


def command(run: Path, folder: str = "") -> list[str]:
    """The words that draw every chart of a run."""
    files = dict.fromkeys(f"{folder}{file.name}" for file in (run, peak_of(run)))
    return ["plot", *files, "--kind", "all"]


@pytest.fixture(scope="module")
def drawn() -> dict[Path, list[str]]:
    """What ``make plots`` draws from each run: the names of the charts in the order of their kinds."""
    names = {}
    for run in RUNS:
        suited = charts.suited([load(file) for file in dict.fromkeys((run, peak_of(run)))], FAMILIES)
        names[run] = [named(run, kind).stem for kind, reason in suited.items() if not reason]
    return names


def test_plot_draws_the_charts_that_suit_a_run(drawn: dict[Path, list[str]], tmp_path: Path) -> None:
    """Of the run with the fewest: drawing all of them takes half a minute."""
    run = min(RUNS, key=lambda run: len(drawn[run]))
    words = ["plot", str(run), str(peak_of(run)), "--kind", "all", "--out", str(tmp_path / f"{run.stem}.svg")]
    result = CliRunner().invoke(cli.main, words, prog_name="gemmbench")
    assert result.exit_code == 0, result.output
    assert sorted(path.stem for path in tmp_path.iterdir()) == sorted(drawn[run])


def test_the_gallery_holds_what_make_plots_draws_and_nothing_else(drawn: dict[Path, list[str]]) -> None:
    wanted = {f"{name}.png" for names in drawn.values() for name in names}
    wanted |= {run.name for run in RUNS} | {PAGE.name}
    assert {path.name for path in PLOTS.iterdir()} == wanted, "make plots draws the gallery again"


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


def test_the_page_lists_every_run_and_chart(
    drawn: dict[Path, list[str]], request: pytest.FixtureRequest
) -> None:
    top, mark, listed = PAGE.read_text(encoding="utf-8").partition(MARK)
    assert mark, f"{PAGE} has lost the line {MARK}"
    wanted = "\n".join(lists(drawn)) + "\n"
    if request.config.getoption("--update-golden"):
        PAGE.write_text(top + mark + wanted, encoding="utf-8")
        listed = wanted
    assert listed == wanted, "pytest tests/cli/test_gallery.py --update-golden writes it"


def earlier_in(run: Path) -> str:
    """What a run measured with an earlier form of its kernel; "" if nothing."""
    saved = load(run)
    rows = (row for row in saved.rows if (row.kind, row.status) == ("gemm", "ok"))
    names = dict.fromkeys(f"`{row.variant}`" for row in rows if is_earlier(saved, row))
    return f"{', '.join(names)} in [{run.name}]({run.name})" if names else ""


def lists(drawn: dict[Path, list[str]]) -> Iterator[str]:
    """A section for each machine: its runs, the commands that made and draw them, a picture of each."""
    for peak, group in groupby(RUNS, peak_of):
        runs = list(group)
        yield f"\n## {load(peak).header.devices[0].title}\n"
        yield "| run | made by | charts |"
        yield "|---|---|---|"
        kinds = {
            run: {name: kind for kind in charts.KINDS if (name := named(run, kind).stem) in drawn[run]}
            for run in runs
        }
        for run in runs:
            made = shlex.join(["gemmbench", *load(run).header.command])
            links = ", ".join(f"[{kind}]({name}.png)" for name, kind in kinds[run].items())
            yield f"| [{run.name}]({run.name}) | `{made}` | {links} |"
        if earlier := earlier_forms("; ".join(filter(None, map(earlier_in, runs)))):
            yield f"\n{earlier}"
        yield "\n```"
        yield from (f"$ gemmbench {shlex.join(command(run))}" for run in runs)
        yield "```"
        for run in runs:
            name, kind = next(iter(kinds[run].items()))
            yield f"\n![{run.stem}: {kind}]({name}.png)"
