"""``gemmbench compare``."""

from __future__ import annotations

from pathlib import Path

import click

from gemmbench.cli import COMMAND_WORDS, running
from gemmbench.cli.comparing import CompareOptions, check_paths, comparing, end, load_all, present
from gemmbench.cli.options import UserError
from gemmbench.facts.compare.comparison import compare as compared


@click.command()
@click.argument("files", nargs=-1, type=click.Path(path_type=Path), metavar="BASE... NEW")
@click.option("--plot", type=click.Path(path_type=Path), metavar="FILE.png|svg|pdf", help="Draw the ratios.")
@click.option("-v", "--verbose", is_flag=True, help="Every row, also where many are the same.")
@comparing
def compare(files: tuple[Path, ...], comparison: CompareOptions, plot: Path | None, verbose: bool) -> None:
    """Hold a saved run against base runs: a verdict for each row.

    The last file is the new run, those before it are bases, which are pooled; after `--` there may be several
    new ones: compare base1 base2 -- new1 new2. A row is slower, and fails, only if the whole confidence
    interval of its ratio is past the threshold; the noise from run to run widens the interval. Exit status: 0
    no regression, 1 a regression or a wrong result, 2 nothing compared, 3 inconclusive, with --strict.
    """
    bases, news = _split(files)
    check_paths(files, plot, options=comparison)
    with running.user_errors():
        found = compared(load_all(bases), load_all(news), comparison.rules, comparison.noise_runs())
    present(found, comparison, verbose, plot)
    end(found, comparison)


def _split(files: tuple[Path, ...]) -> tuple[tuple[Path, ...], tuple[Path, ...]]:
    """The bases and the new runs: what stands after ``--``, or the last.

    Raises:
        UserError: there are not both, or a file is on both sides.
    """
    words: tuple[str, ...] = click.get_current_context().meta[COMMAND_WORDS]
    after = len(words) - words.index("--") - 1 if "--" in words else 1
    bases, news = files[: len(files) - after], files[len(files) - after :]
    if not bases or not news:
        raise UserError("compare takes a base and a new run: gemmbench compare base.jsonl new.jsonl")
    both = {path.resolve() for path in bases} & {path.resolve() for path in news}
    if both:
        same = next(path for path in news if path.resolve() in both)
        raise UserError(f"{same} is both base and new: a run is no slower than itself")
    return bases, news
