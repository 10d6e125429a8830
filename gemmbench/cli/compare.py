"""``gemmbench compare``, and how commands that compare end."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from gemmbench import UsageError, api
from gemmbench.cli import EXIT_INCONCLUSIVE, EXIT_WRONG, running
from gemmbench.cli.options import takes
from gemmbench.facts.compare.comparison import Comparison
from gemmbench.options.comparing import Compare, Comparing
from gemmbench.render import compare as pages


@click.command()
@click.argument("files", nargs=-1, type=click.Path(path_type=Path), metavar="BASE... NEW")
@takes(Compare)
def compare(options: Compare, files: tuple[Path, ...]) -> None:
    """Hold a saved run against base runs: a verdict for each row.

    The last file is the new run, those before it are bases, which are pooled; after `--` there may be several
    new ones: compare base1 base2 -- new1 new2. A row is slower, and fails, only if the whole confidence
    interval of its ratio is past the threshold; the noise from run to run widens the interval. Exit status: 0
    no regression, 1 a regression or a wrong result, 2 nothing compared, 3 inconclusive, with --strict.
    """
    bases, news = _split(files)
    comparison = api.compared(api.runs_of(bases), api.runs_of(news), options)
    present(comparison, options, options.verbose, options.plot)
    end(comparison, options)


def _split(files: tuple[Path, ...]) -> tuple[tuple[Path, ...], tuple[Path, ...]]:
    """The bases and the new runs: what stands after ``--``, or the last.

    Raises:
        UsageError: there are not both.
    """
    words = running.command_words()
    after = len(words) - words.index("--") - 1 if "--" in words else 1
    bases, news = files[: len(files) - after], files[len(files) - after :]
    if not bases or not news:
        raise UsageError("compare takes a base and a new run: gemmbench compare base.jsonl new.jsonl")
    return bases, news


def present(
    comparison: Comparison, options: Comparing, every: bool, plot: Path | None, quiet: bool = False
) -> None:
    """Print, write and draw a comparison.

    Raises:
        UsageError: a file cannot be written, or there is nothing to draw.
    """
    running.show(_rendered(comparison, options.format, options, every))
    for form, path in options.written:
        running.write(path, _rendered(comparison, form, options, every), quiet)
    if plot is not None and api.draw_comparison(comparison, plot):
        running.say_drawn(plot, quiet)


def end(comparison: Comparison, options: Comparing) -> None:
    """End with the command's exit status.

    Raises:
        UsageError: nothing was compared.
    """
    failed = any(line.fails for line in comparison.lines)
    if failed or (options.missing == "fail" and comparison.lost):
        raise click.exceptions.Exit(EXIT_WRONG)
    if not comparison.compared:
        raise UsageError(f"nothing was compared: {pages.why_nothing(comparison)}")
    if options.strict and any(line.open for line in comparison.lines):
        raise click.exceptions.Exit(EXIT_INCONCLUSIVE)


def _rendered(comparison: Comparison, form: str, options: Comparing, every: bool) -> Any:
    """Text for machines, a table for people."""
    missing_fails = options.missing == "fail"
    if form == "json":
        return pages.to_json(comparison)
    if form == "markdown":
        return pages.to_markdown(comparison, every)
    if form == "github":
        return pages.to_github(comparison, options.strict, missing_fails)
    if form == "junit":
        from gemmbench.render.junit import to_junit

        return to_junit(comparison, options.strict, missing_fails)
    return pages.table(comparison, every)
