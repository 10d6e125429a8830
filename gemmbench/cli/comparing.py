"""The options of the commands that hold runs against each other, and how they end."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import click

from gemmbench.cli import EXIT_INCONCLUSIVE, EXIT_WRONG, running
from gemmbench.cli.options import UserError, check_folder, check_plot_path, choose
from gemmbench.facts.compare import thresholds
from gemmbench.facts.compare.basis import PEAK, Rules
from gemmbench.facts.compare.comparison import Comparison
from gemmbench.facts.compare.pairing import DIFFERENCES
from gemmbench.facts.compare.thresholds import ThresholdError, Thresholds
from gemmbench.facts.records import SCOPES, Run, load
from gemmbench.facts.text import reason_of
from gemmbench.render import compare as pages
from gemmbench.rules import variants

Command = TypeVar("Command", bound=Callable[..., Any])

FORMATS = ("table", "markdown", "junit", "json", "github")
_MISSING = ("tell", "fail")


@dataclass(frozen=True)
class CompareOptions:
    """How runs are compared, and what becomes of the verdicts."""

    rules: Rules
    noises: tuple[Path, ...]
    threshold_file: Path | None
    strict: bool
    missing_fails: bool
    form: str
    write: tuple[tuple[str, Path], ...]  # formats and their files

    def noise_runs(self) -> list[Run]:
        """The runs of ``--noise``.

        Raises:
            RunFileError: one cannot be read.
        """
        return [load(path) for path in self.noises]


def comparing(command: Command) -> Command:
    """The options of commands that compare; they arrive as one ``comparison: CompareOptions``."""

    def fold(
        threshold: str | None,
        threshold_file: Path | None,
        noises: tuple[Path, ...],
        confidence: float,
        scope: str,
        ratio: str | None,
        across: str | None,
        missing: str,
        strict: bool,
        form: str,
        write: tuple[str, ...],
        **rest: Any,
    ) -> Any:
        if not 50 < confidence < 100:  # NaN is on neither side
            raise UserError(f"--confidence is above 50 and below 100, not {confidence:g}")
        rules = Rules(
            thresholds=threshold_of(threshold, threshold_file),
            confidence=confidence / 100,
            scope=the_scope(scope),
            ratio=references(ratio),
            across=frozenset(choose(across, tuple(DIFFERENCES), "difference") if across is not None else ()),
        )
        files = tuple(map(_format_and_file, write))
        options = CompareOptions(rules, noises, threshold_file, strict, missing == "fail", form, files)
        return command(comparison=options, **rest)

    fold.__doc__ = command.__doc__
    fold.__name__ = command.__name__
    decorated: Any = fold
    decorated.__click_params__ = getattr(command, "__click_params__", [])  # the options below this one
    for option in reversed(_COMPARING):
        decorated = option(decorated)
    return decorated  # type: ignore[no-any-return]  # click's decorators keep no signature


scope_option = click.option(
    "--scope",
    type=click.Choice(["finest", *SCOPES]),
    default="finest",
    show_default=True,
    help="Which time is compared; finest: the kernel's, or the host's for what runs there.",
)
ratio_option = click.option(
    "--ratio",
    metavar="NAMES",
    help="Compare ratios inside one run: every row over this kernel, numpy, or peak; of several names the "
    "first that a row has.",
)

_COMPARING = (
    click.option(
        "--threshold",
        metavar="PERCENT",
        help="How much longer a row may take: '5 %' or 0.05.  [default: 5 %]",
    ),
    click.option(
        "--thresholds",
        "threshold_file",
        type=click.Path(path_type=Path),
        metavar="FILE.toml",
        help="Thresholds for single rows, by variant, type and size.",
    ),
    click.option(
        "--noise",
        "noises",
        multiple=True,
        type=click.Path(path_type=Path),
        metavar="FILE.jsonl",
        help="An A/A measurement of this machine (check --aa --save) for the noise floor; may be repeated.",
    ),
    click.option(
        "--confidence",
        type=float,
        default=95.0,
        show_default=True,
        metavar="PERCENT",
        help="Of the interval of each ratio.",
    ),
    scope_option,
    ratio_option,
    click.option(
        "--across",
        metavar="WHAT",
        help=f"Compare although these differ: {', '.join(DIFFERENCES)}; several with commas.",
    ),
    click.option(
        "--missing",
        type=click.Choice(_MISSING),
        default="tell",
        show_default=True,
        help="Whether a row of the base that could not be compared fails.",
    ),
    click.option("--strict", is_flag=True, help="Rows that may be slower fail too, with exit status 3."),
    click.option("--format", "form", type=click.Choice(FORMATS), default="table", show_default=True),
    click.option(
        "--write",
        multiple=True,
        metavar="FORMAT=FILE",
        help="Write a format into a file as well: junit=report.xml; may be repeated.",
    ),
)


def present(
    comparison: Comparison, options: CompareOptions, every: bool, plot: Path | None, quiet: bool = False
) -> None:
    """Print, write and draw a comparison.

    Raises:
        UserError: a file cannot be written, or there is nothing to draw.
    """
    running.show(_rendered(comparison, options.form, options, every))
    for form, path in options.write:
        write(path, _rendered(comparison, form, options, every), quiet)
    if plot is not None and any(line.judgement for line in comparison.lines):
        _draw(comparison, plot, quiet)


def end(comparison: Comparison, options: CompareOptions) -> None:
    """End with the command's exit status.

    Raises:
        UserError: nothing was compared.
    """
    failed = any(line.fails for line in comparison.lines)
    if failed or (options.missing_fails and comparison.lost):
        raise click.exceptions.Exit(EXIT_WRONG)
    if not comparison.compared:
        raise UserError(f"nothing was compared: {pages.why_nothing(comparison)}")
    if options.strict and any(line.open for line in comparison.lines):
        raise click.exceptions.Exit(EXIT_INCONCLUSIVE)


def _rendered(comparison: Comparison, form: str, options: CompareOptions, every: bool) -> Any:
    """Text for machines, a table for people."""
    if form == "json":
        return pages.to_json(comparison)
    if form == "markdown":
        return pages.to_markdown(comparison, every)
    if form == "github":
        return pages.to_github(comparison, options.strict, options.missing_fails)
    if form == "junit":
        from gemmbench.render.junit import to_junit

        return to_junit(comparison, options.strict, options.missing_fails)
    return pages.table(comparison, every)


def write(path: Path, output: Any, quiet: bool = False) -> None:
    """Write text, or a table, into a file, and say so.

    Raises:
        UserError: it cannot be written.
    """
    text = output if isinstance(output, str) else running.as_text(output)
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise UserError(f"cannot write {path}: {reason_of(error)}") from None
    if not quiet:
        click.echo(f"Wrote {path}.", err=True)


def _draw(comparison: Comparison, path: Path, quiet: bool) -> None:
    from gemmbench import charts
    from gemmbench.charts.compare import ratios

    running.drawn(lambda: charts.draw_panes(lambda: ratios(comparison), path, "compared rows"), path, quiet)


def load_all(paths: Sequence[Path]) -> list[Run]:
    """Saved runs, each file once.

    Raises:
        RunFileError: one cannot be read.
        UserError: one has no rows.
    """
    found = [load(path) for path in dict.fromkeys(paths)]
    for run in found:
        if not run.rows:
            raise UserError(f"{run.path} has no rows to compare")
    return found


def check_paths(
    runs: Sequence[Path], plot: Path | None, save: Path | None = None, options: CompareOptions | None = None
) -> None:
    """Find out beforehand whether everything can be written, and that nothing is written over.

    Args:
        runs: files that are compared.
        plot: ``--plot``.
        save: ``--save``.
        options: their other files.

    Raises:
        UserError: a file cannot be written, or is also read, or also written by another option.
    """
    check_plot_path(plot)
    outputs = [(option, path) for option, path in (("--save", save), ("--plot", plot)) if path is not None]
    inputs = [("", path) for path in runs]
    if options:
        for _, path in options.write:
            check_folder("--write", path)
        outputs += [("--write", path) for _, path in options.write]
        inputs += [("--noise ", path) for path in options.noises]
        inputs += [("--thresholds ", path) for path in (options.threshold_file,) if path is not None]
    _check_overwriting(outputs, inputs)


def _check_overwriting(outputs: Sequence[tuple[str, Path]], inputs: Sequence[tuple[str, Path]]) -> None:
    for number, (option, path) in enumerate(outputs):
        if path.exists() and not path.is_file():  # such as /dev/stdout
            continue
        for role, other in inputs:
            if _same_file(path, other):
                raise UserError(f"{option} {path} would replace {role}{other}, which is read")
        for role, other in outputs[:number]:
            if _same_file(path, other):
                raise UserError(f"{option} {path} would replace {role} {other}")


def _same_file(one: Path, other: Path) -> bool:
    """Whether two names are of one file, also by a link, and also if it does not exist yet."""
    try:
        return one.samefile(other)
    except OSError:
        return os.path.realpath(one) == os.path.realpath(other)


def the_scope(name: str) -> str | None:
    """What ``--scope`` means to a comparison."""
    return None if name == "finest" else name


def references(text: str | None) -> tuple[str, ...]:
    """What ``--ratio`` names.

    Raises:
        UserError: one is neither a kernel nor a library nor the peak.
    """
    return choose(text, (*variants.ORDER, PEAK), "reference") if text is not None else ()


def threshold_of(text: str | None, path: Path | None = None) -> Thresholds:
    """What ``--threshold`` and ``--thresholds`` say.

    Raises:
        UserError: one cannot be taken.
    """
    try:
        default = thresholds.parse(text) if text is not None else None
    except ThresholdError as error:
        raise UserError(f"--threshold: {error}") from None
    try:
        if path is not None:
            return thresholds.load(path, default)
    except ThresholdError as error:
        raise UserError(f"--thresholds {error}") from None
    return Thresholds(default) if default is not None else Thresholds()


def _format_and_file(text: str) -> tuple[str, Path]:
    form, equals, name = text.partition("=")
    if not equals or not name or form not in FORMATS:
        raise UserError(f"--write takes FORMAT=FILE with one of {', '.join(FORMATS)}, not {text!r}")
    return form, Path(name)
