"""Draw the gallery in plots/ and list it in plots/README.md: ``python -m tools.gallery``."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from itertools import groupby
from pathlib import Path

from click.testing import CliRunner

from gemmbench import cli
from gemmbench.model.run_file import load

PLOTS = Path(__file__).resolve().parents[1] / "plots"
PAGE = PLOTS / "README.md"
MARK = "<!-- make plots writes what follows -->\n"
# The pictures: kind of chart, run, and the run of `peak` that supplies the roofs. The names follow from both.
PICTURES: tuple[tuple[str, ...], ...] = (
    ("peak", "cpu-intel-peak"),
    ("throughput", "cpu-intel-square", "cpu-intel-peak"),
    ("ladder", "cpu-intel-square", "cpu-intel-peak"),
    ("host-parts", "cpu-intel-square", "cpu-intel-peak"),
    ("throughput", "cpu-intel-sweep-k", "cpu-intel-peak"),
    ("precision", "cpu-intel-precision", "cpu-intel-peak"),
    ("peak", "cpu-pocl-peak"),
    ("throughput", "cpu-pocl-square", "cpu-pocl-peak"),
    ("peak", "h200-peak"),
    ("memory", "h200-peak"),
    ("throughput", "h200-square", "h200-peak"),
    ("time", "h200-square", "h200-peak"),
    ("ladder", "h200-square", "h200-peak"),
    ("roofline", "h200-square", "h200-peak"),
    ("host-device", "h200-square", "h200-peak"),
    ("host-parts", "h200-square", "h200-peak"),
    ("throughput", "h200-limit", "h200-peak"),
    ("throughput", "h200-sweep-k", "h200-peak"),
    ("energy", "h200-energy", "h200-peak"),
    ("precision", "h200-precision", "h200-peak"),
    ("precision", "h200-tensor", "h200-peak"),
    ("workloads", "h200-workloads", "h200-peak"),
)


def name(kind: str, run: str) -> str:
    """The file of a picture: ``h200-square-ladder.png``, but ``h200-peak.png``."""
    return f"{run}.png" if run.endswith(f"-{kind}") else f"{run}-{kind}.png"


def command(kind: str, *runs: str) -> list[str]:
    """The words that draw a picture in plots/."""
    return ["plot", *(f"{run}.jsonl" for run in runs), "--kind", kind, "--out", name(kind, runs[0])]


def page() -> str:
    """The generated part of the page."""
    return "\n".join(_lines()) + "\n"


def _lines() -> Iterator[str]:
    for _, group in groupby(PICTURES, lambda picture: picture[-1]):  # the pictures of a device
        pictures = list(group)
        yield f"\n## {load(PLOTS / f'{pictures[0][1]}.jsonl').header.devices[0].title}\n"
        yield "| run | made by |"
        yield "|---|---|"
        for run in dict.fromkeys(run for _, run, *_ in pictures):
            made = shlex.join(["gemmbench", *load(PLOTS / f"{run}.jsonl").header.command])
            yield f"| [{run}.jsonl]({run}.jsonl) | `{made}` |"
        yield "\n```"
        yield from (f"$ gemmbench {shlex.join(command(*picture))}" for picture in pictures)
        yield "```"
        yield from (f"\n![{kind} of {run}]({name(kind, run)})" for kind, run, *_ in pictures)


def main() -> None:
    """Draw every picture, remove the others, and write the page."""
    for old in PLOTS.glob("*.png"):
        old.unlink()
    for kind, *runs in PICTURES:
        plot, *words = command(kind, *runs)
        words = [word if word.startswith("--") or word == kind else str(PLOTS / word) for word in words]
        done = CliRunner().invoke(cli.main, [plot, *words], prog_name="gemmbench")
        print(done.output, end="")
        if done.exit_code:
            raise SystemExit(done.exit_code)
    top, mark, _ = PAGE.read_text(encoding="utf-8").partition(MARK)
    PAGE.write_text(f"{top}{mark}{page()}", encoding="utf-8")


if __name__ == "__main__":
    main()
