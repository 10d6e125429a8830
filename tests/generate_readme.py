"""The generated part of README.md: the ladder with its figures, from the saved runs in plots/.

``make readme`` writes it; with ``--check``, for ``make check``, a stale one is an error.
"""

from __future__ import annotations

import argparse
import sys
import textwrap
from collections.abc import Sequence
from pathlib import Path

from gemmbench.facts import standing, units
from gemmbench.facts.records import Run, load
from gemmbench.rules.variants import VARIANTS, Variant

ROOT = Path(__file__).resolve().parents[1]
BEGIN = "<!-- The ladder: generated, `make readme` writes it. -->"
END = "<!-- End of the ladder. -->"

#   column  what it was measured on      where it is saved; later runs add what the first lacks
RUNS = (
    ("CPU", "a server CPU (2 cores, AVX-512) under Intel's runtime", ("plots/cpu-intel-square.jsonl",)),
    ("H200", "an NVIDIA H200", ("plots/h200-square.jsonl", "plots/h200-limit.jsonl")),
)
DTYPE = "float"
WIDTH = 118  # of the README's prose


class ReadmeError(Exception):
    """A README or a run that the table cannot be made for."""


def figures(runs: Sequence[Run]) -> tuple[int, dict[str, float]]:
    """The largest size that most variants of the first run have, and each variant's flop/s there.

    Raises:
        ReadmeError: the first run has no squares in `DTYPE`.
    """
    first, *others = runs
    for setting in standing.settings(first):
        problem = standing.common_problem(first, setting) if setting.dtype == DTYPE else None
        if problem and problem.m == problem.n == problem.k:
            found: dict[str, float] = {}
            for run in (*reversed(others), first):
                places = standing.standings(run, setting, problem)
                found |= {name: place.rate.median for name, place in places.items() if place.rate}
            return problem.m, found
    raise ReadmeError(f"{first.path} has no square problem in {DTYPE}")


def table(runs: Sequence[tuple[str, str, Sequence[Run]]], variants: Sequence[Variant] = VARIANTS) -> str:
    """The ladder in markdown: name, idea, GFLOPS on each device; the best of a device in bold."""
    found = [(column, device, *figures(saved)) for column, device, saved in runs]
    sizes = " and ".join(f"{size} on {device}" for _, device, size, _ in found)
    about = (
        f"GFLOPS in {DTYPE} at m = n = k = {sizes}, each the largest size that most kernels have: in the "
        "kernel scope, for `numpy` in the host scope, for other libraries in the device scope; the best in "
        "bold. `-`: not measured there."
    )
    heads = ["kernel", "idea", *(column for column, *_ in found)]
    lines = [
        *textwrap.wrap(about, WIDTH),
        "",
        f"| {' | '.join(heads)} |",
        f"|---|---|{'--:|' * len(found)}",
    ]
    for variant in variants:
        idea = variant.idea.replace("|", r"\|")
        cells = [_cell(rates, variant.name) for *_, rates in found]
        lines.append(f"| `{variant.name}` | {idea} | {' | '.join(cells)} |")
    return "\n".join(lines)


def _cell(rates: dict[str, float], name: str) -> str:
    if name not in rates:
        return "-"
    text = units.gflops(rates[name])
    return f"**{text}**" if rates[name] == max(rates.values()) else text


def replaced(readme: str, generated: str) -> str:
    """A README with the generated part between its markers.

    Raises:
        ReadmeError: it does not have both markers once, in order.
    """
    before, begin, rest = readme.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end or BEGIN in after or END in after:
        raise ReadmeError(f"README.md must have {BEGIN} and {END}, once each")
    return f"{before}{BEGIN}\n\n{generated}\n\n{END}{after}"


def main(arguments: Sequence[str] | None = None) -> int:
    """Write README.md, or say whether it is stale; the exit status."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="write nothing; status 1 if README.md is stale")
    parser.add_argument("--root", type=Path, default=ROOT, help=argparse.SUPPRESS)
    chosen = parser.parse_args(arguments)
    path = chosen.root / "README.md"
    readme = path.read_text(encoding="utf-8")
    runs = [(column, device, [load(chosen.root / file) for file in files]) for column, device, files in RUNS]
    fresh = replaced(readme, table(runs))
    if fresh == readme:
        return 0
    if chosen.check:
        print("README.md: the ladder is stale; make readme writes it", file=sys.stderr)
        return 1
    path.write_text(fresh, encoding="utf-8")
    print("wrote README.md", file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main())
