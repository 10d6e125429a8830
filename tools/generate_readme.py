"""Write the generated parts of README.md and docs/ from the saved runs; ``--check`` fails if one is stale."""

from __future__ import annotations

import argparse
import io
import sys
import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from rich.console import Console

from gemmbench import api
from gemmbench.ladder import BASELINE, VARIANTS
from gemmbench.model import units
from gemmbench.model.row import GRAPH, Row
from gemmbench.model.run_file import Run, load
from gemmbench.stats import panels, rates
from tools import experiments

ROOT = Path(__file__).resolve().parents[1]
SAMPLE, LADDER, EXPERIMENTS = "sample of peak", "ladder", "table of experiments"
ASYNC, WGMMA = "table of nv-async", "table of nv-wgmma"
SMALL, PACKED = "table of small", "table of cpu-packed"
PAGES = {
    SAMPLE: "README.md",
    LADDER: "docs/kernels.md",
    EXPERIMENTS: "docs/experiments.md",
    ASYNC: "docs/notes/nv-async.md",
    WGMMA: "docs/notes/nv-wgmma.md",
    SMALL: "docs/notes/small.md",
    PACKED: "docs/notes/cpu-packed.md",
}
#   column  device                                               saved runs; later ones add missing kernels
RUNS = (
    ("CPU", "a server CPU (2 cores, AVX-512) with Intel's runtime", ("plots/cpu-intel-square.jsonl",)),
    ("H200", "an NVIDIA H200", ("plots/h200-square.jsonl", "plots/h200-limit.jsonl")),
)
PEAK = "plots/cpu-intel-peak.jsonl"
DTYPE = "float"
_H200_TENSOR = ("1024", "tensor", "bfloat16", "bfloat16-8192", "fp8", "int8", "int8-8192", "double")
VERSUS = {  # interleaved with a library
    ASYNC: ("tests/data/h200-versus-float.jsonl",),
    WGMMA: tuple(f"tests/data/h200-versus-{name}.jsonl" for name in _H200_TENSOR),
    SMALL: ("tests/data/h200-small.jsonl", "tests/data/h200-versus-thin.jsonl"),
    PACKED: tuple(
        f"tests/data/cpu-{driver}-packed-second{part}.jsonl"
        for driver in ("intel", "pocl")
        for part in ("", "-4096", "-4096-double")
    ),
}
FILES = (PEAK, *(file for files in (*(files for *_, files in RUNS), *VERSUS.values()) for file in files))
WIDTH = 118  # of the pages' prose


class ReadmeError(Exception):
    """A page or a run that a table cannot be made for."""


@dataclass(frozen=True)
class Figure:
    """A cell of the ladder."""

    rate: float  # flop/s
    compared: bool = True  # in the scope of the others


def figures(runs: Sequence[Run]) -> tuple[int, str, dict[str, Figure]]:
    """The largest size that most variants of the first run have, the scope, and each variant's figure there.

    Raises:
        ReadmeError: the first run has no squares in `DTYPE`.
    """
    first, *others = runs
    scope = rates.view_scope(*runs)
    for setting in panels.settings(first):
        problem = panels.common_problem(first, setting) if setting.dtype == DTYPE else None
        if problem and problem.is_square:
            ladder: dict[str, Figure] = {}
            for run in (*reversed(others), first):
                for name, standing in panels.standings(run, setting, problem, scope=scope).items():
                    if standing.rate:
                        compared = rates.is_compared(run, setting.device, standing.row, scope)
                        rate = standing.rate.median
                        ladder[name] = Figure(rate, compared)
            return problem.m, scope, ladder
    raise ReadmeError(f"{first.path} has no square problem in {DTYPE}")


def ladder(runs: Sequence[tuple[str, str, Sequence[Run]]]) -> str:
    """The ladder: name, idea, GFLOPS on each device; the best of a device in bold."""
    columns = [(column, device, *figures(saved)) for column, device, saved in runs]
    sizes = ", and at ".join(f"{size} on {device}" for _, device, size, *_ in columns)
    scopes = {scope for *_, scope, _ in columns}
    if len(scopes) > 1:
        raise ReadmeError(f"the columns of the ladder are of several scopes: {', '.join(sorted(scopes))}")
    about = (
        f"Rates are {DTYPE} GFLOPS: at m = n = k = {sizes}. These are the largest sizes at which most "
        f"kernels were measured. The [scope](reading-results.md#scopes) is `{scopes.pop()}`, or `host` for "
        "`numpy`. The best rate is in bold. `-` means not measured."
    )
    lines = _head(["kernel", "idea", *(column for column, *_ in columns)], left=2)
    for variant in VARIANTS:
        cells = [variant.idea.replace("|", r"\|"), *(_cell(shown, variant.name) for *_, shown in columns)]
        lines.append(f"| `{variant.name}` | {' | '.join(cells)} |")
    return "\n".join([*_prose(about), "", *lines])


def _cell(shown: Mapping[str, Figure], name: str) -> str:
    if name not in shown:
        return "-"
    text = units.gflops(shown[name].rate)
    best = max(each.rate for each in shown.values() if each.compared)
    return f"**{text}**" if shown[name].rate == best else text


def versus(runs: Sequence[Run], paths: Sequence[str]) -> str:
    """Kernels interleaved with a library: rates of both, and their ratio with its interval."""

    def cell(row: Row, scope: str) -> str:
        rate = rates.rate(row, scope) if scope == GRAPH else rates.shown_rate(row, scope)
        return units.number(rate.median / scale) if rate else "-"

    library = next(row.former.variant for run in runs for row in run.rows if row.former)
    scale, unit = (1e9, "GFLOPS") if library == BASELINE else (1e12, "TFLOPS")
    rows: dict[tuple[str, str, str, str], tuple[str, str, str, str]] = {}
    for run in runs:
        for row in run.rows:
            ratio = rates.versus(row, "device")
            if not row.problem or not row.former or not ratio:
                continue
            if library == BASELINE and rates.is_uncertain(run, row):
                continue
            former = replace(row, samples=row.former.samples)
            shape = row.label or f"{row.problem.m}{', B transposed' if row.problem.trans_b else ''}"
            driver = run.header.devices[row.device].driver
            interval = f" ({ratio.low:.2f} to {ratio.high:.2f})"
            clock = GRAPH if ratio.scope == GRAPH else "device"
            cells = (cell(row, "device"), cell(row, GRAPH), cell(former, clock))
            key = driver, row.variant, row.dtype, shape
            rows.setdefault(key, (*cells, f"{ratio.median:.2f}{interval}"))
    several = len({driver for driver, *_ in rows}) > 1
    graphs = any(graph != "-" for _, graph, *_ in rows.values())
    titles = ("driver", "kernel", "type", "size", unit, "as a graph", library, "ratio")
    unused = {"driver": not several, "as a graph": not graphs}
    shown = [title for title in titles if not unused.get(title)]
    lines = _head(shown, left=4 if several else 3)
    for key, values in rows.items():
        both = zip(titles, (*key, *values), strict=True)
        lines.append(f"| {' | '.join(cell for title, cell in both if title in shown)} |")
    about = (
        f"On an {runs[0].header.devices[0].name}, device scope, interleaved, with the 95 % confidence "
        f"interval of the ratio (`{'`, `'.join(paths)}`)."
    )
    return "\n".join([*lines, "", *_prose(about)])


def _head(titles: Sequence[str], left: int) -> list[str]:
    return [f"| {' | '.join(titles)} |", f"|{'---|' * left}{'--:|' * (len(titles) - left)}"]


def _prose(text: str) -> list[str]:
    return textwrap.wrap(text, WIDTH, break_on_hyphens=False)


def sample(path: str, run: api.Run) -> str:
    """What ``show`` prints of a run."""
    console = Console(width=80, file=io.StringIO())
    with console.capture() as printed:
        console.print(run.table())
    return "\n".join(("```", f"$ gemmbench show {path}", *map(str.rstrip, printed.get().splitlines()), "```"))


def markers(part: str) -> tuple[str, str]:
    """The comments of a page around a generated part."""
    return f"<!-- The {part}: generated, `make readme` writes it. -->", f"<!-- End of the {part}. -->"


def between(page: str, part: str) -> str:
    """A generated part as the page has it; `ReadmeError` without both markers, once each and in order."""
    return _split(page, part)[1]


def replaced(page: str, part: str, generated: str) -> str:
    """A page with a new generated part between its markers; see `between`."""
    before, _, after = _split(page, part)
    begin, end = markers(part)
    return f"{before}{begin}\n\n{generated}\n\n{end}{after}"


def _split(page: str, part: str) -> tuple[str, str, str]:
    first, last = markers(part)
    before, begin, rest = page.partition(first)
    inside, end, after = rest.partition(last)
    if not begin or not end or first in after or last in after:
        raise ReadmeError(f"a page must have {first} and {last}, once each")
    return before, inside, after


def generated(root: Path) -> dict[str, str]:
    """Every generated part, from the runs below a folder."""
    runs = [(column, device, [load(root / file) for file in files]) for column, device, files in RUNS]
    return {
        SAMPLE: sample(PEAK, api.load(root / PEAK)),
        LADDER: ladder(runs),
        EXPERIMENTS: experiments.table(root),
        **{part: versus([load(root / file) for file in files], files) for part, files in VERSUS.items()},
    }


def main(arguments: Sequence[str] | None = None) -> int:
    """Write the pages, or report stale ones; the exit status."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="write nothing; status 1 if a page is stale")
    parser.add_argument("--root", type=Path, default=ROOT, help=argparse.SUPPRESS)
    chosen = parser.parse_args(arguments)
    status = 0
    for part, text in generated(chosen.root).items():
        path = chosen.root / PAGES[part]
        before = path.read_text(encoding="utf-8")
        fresh = replaced(before, part, text)
        if fresh == before:
            continue
        if chosen.check:
            print(f"{PAGES[part]}: the {part} is stale; make readme writes it", file=sys.stderr)
            status = 1
        else:
            path.write_text(fresh, encoding="utf-8")
            print(f"wrote the {part} in {PAGES[part]}", file=sys.stderr)
    return status


if __name__ == "__main__":
    sys.exit(main())
