"""From options to what the user sees, which every measuring command shares."""

from __future__ import annotations

import functools
import inspect
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import click
from rich.console import RenderableType
from rich.text import Text

from gemmbench import api, exports
from gemmbench.cli import COMMAND_WORDS, EXIT_INTERRUPTED, EXIT_WRONG, drop_output
from gemmbench.model import units
from gemmbench.model.case import Case, Plan, Policy
from gemmbench.model.device import HOST, DeviceFacts
from gemmbench.model.row import Row
from gemmbench.model.run_file import Run
from gemmbench.model.units import by_key, counted
from gemmbench.options import COUNT, GROUPS, OUTPUT, Flag, Options, specs
from gemmbench.options.measuring import MeasurementOptions
from gemmbench.report.notes import WORDS
from gemmbench.report.progress import row_label
from gemmbench.report.table import stdout
from gemmbench.suite.run import prepared
from gemmbench.suite.session import estimate

Command = Callable[..., Any]
_LINE = 48  # columns for the text of an option


class Option(click.Option):
    """An option that belongs to a group of the help."""

    def __init__(self, *words: Any, group: str, common: bool, **extra: Any) -> None:
        super().__init__(*words, **extra)
        self.group, self.common = group, common


class Grouped(click.Command):
    """A command whose ``--help`` groups its options; ``-h`` shows a line for each common one."""

    def format_help_text(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        if _is_brief(ctx):
            formatter.write(f"\n  {(self.help or '').splitlines()[0]}\n")
        else:
            super().format_help_text(ctx, formatter)

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the options by group. -h writes only common options, each with its first sentence."""
        groups: dict[str, list[tuple[str, str]]] = {group: [] for group in GROUPS}
        brief = _is_brief(ctx)
        for param in self.get_params(ctx):
            record = param.get_help_record(ctx) if isinstance(param, click.Option) else None
            if record and (not brief or getattr(param, "common", param.expose_value)):
                words, text = record
                groups[getattr(param, "group", OUTPUT)].append((words, _line(text) if brief else text))
        used = {group: records for group, records in groups.items() if records}
        for group, records in used.items():
            with formatter.section(group if len(used) > 1 else "Options"):
                formatter.write_dl(records)
        if brief:
            formatter.write(f"\nAll options: {ctx.command_path} --help\n")


def _is_brief(ctx: click.Context) -> bool:
    return "-h" in ctx.meta.get(COMMAND_WORDS, ())


def _line(text: str) -> str:
    sentence = re.split(r"\.?(?:\s\s|$)|\.\s", text)[0]
    default = re.search(r"\[default: ([^\];]+)", text)
    line = f"{sentence}  [default: {default[1]}]" if default else sentence
    return line if len(line) <= _LINE else sentence


def takes(kind: type[Options]) -> Callable[[Command], Command]:
    """Give a command the options of a class. The command receives them as one object, its first argument."""

    def decorate(command: Command) -> Command:
        """Add the options to a command, whose values it gets as one object."""

        @functools.wraps(command)
        def folded(**values: Any) -> Any:
            own = {name: values.pop(name) for name in specs(kind)}
            return command(kind(**own), **values)

        decorated: Command = folded
        for name in reversed(specs(kind)):
            decorated = click_option(kind, name)(decorated)
        return decorated

    return decorate


def command(kind: type[Options], run: Command | None = None) -> click.Command:
    """The command of a class, with its help; without a function of its own it measures."""
    return click.command(kind.command, Grouped, help=inspect.cleandoc(kind.help))(takes(kind)(run or measure))


def click_option(kind: type[Options], name: str, **changes: Any) -> Callable[[Command], Command]:
    """Return a decorator that adds the click option of a field of an options class: count, flag or value.

    `changes` are arguments of `click.option` that differ from the field's.
    """
    spec, field = specs(kind)[name]
    extra: dict[str, Any] = {"cls": Option, "group": spec.group, "common": spec.common}
    if spec.kind is COUNT:
        extra |= {"count": True}
    elif isinstance(spec.kind, Flag):
        extra |= {"is_flag": True, "show_default": "/" in spec.spellings(name)[0]}
    else:
        shown = not spec.many and field.default not in (None, "")
        metavar = spec.metavar or getattr(spec.kind, "metavar", None)
        extra |= {"type": spec.kind, "metavar": metavar, "show_default": shown}
        extra |= {"multiple": True} if spec.many else {}
        extra |= {"is_flag": False, "flag_value": spec.bare} if spec.bare else {}
        extra |= {"envvar": spec.env, "show_envvar": True} if spec.env else {}
    if spec.names:
        extra["shell_complete"] = completed(spec.names)
    extra |= {"default": field.default, "help": spec.help or None, **changes}
    return click.option(*spec.spellings(name), name, **extra)


def command_words() -> tuple[str, ...]:
    """The words of the command line, for the header of a saved run."""
    words: tuple[str, ...] = click.get_current_context().meta[COMMAND_WORDS]
    return words


def measure(options: MeasurementOptions) -> None:
    """Measure, print, draw and save as the options say.

    With --dry-run, only print the plan. Exit with 130 after Ctrl-C, or 1 for a wrong result. Raise
    `UsageError` if that is impossible, or `NothingMeasured` without a result on the device.
    """
    with prepared(options, api.make_machine) as measurement:
        if options.dry_run:
            header = measurement.header
            print_plan(measurement.plan, header.devices, header.policy)
            for remark in options.remarks:
                api.say(remark, options.quiet)
            return
        outcome, run = api.follow(measurement, options)
    rows = len(run.rows)
    if rows:
        format = getattr(options, "format", "table")
        show(rendered(run, format, bool(options.verbose), options.quiet))
    if outcome.interrupted:
        where = "nothing was saved (--save FILE keeps rows as they come)"
        if options.save:
            where = (
                f"{counted(rows, 'row')} saved in {options.save}; the same command with --resume continues"
            )
        api.say(f"gemmbench: interrupted; {where}")
    try:
        api.finish(outcome, run, options, verbose=True)
    except KeyboardInterrupt:
        raise click.exceptions.Exit(EXIT_INTERRUPTED) from None
    if not run.ok:
        raise click.exceptions.Exit(EXIT_WRONG)


def print_plan(plan: Plan, devices: Sequence[DeviceFacts], policy: Policy, times: int = 1) -> None:
    """Print the planned cases and skipped rows by device, with reasons.

    Then print the number of cases, how many are probably over budget, and the estimated time of measuring the
    plan `times` times.
    """
    lines = by_key(
        (step.device, step.label)
        if isinstance(step, Case)
        else (step.row.device, f"{row_label(step.row)}: {_why_not(step.row)}")
        for step in plan
    )
    for device, labels in lines.items():
        title = "Host" if device == HOST else devices[device].title
        stdout().print(Text("\n  ".join([title, *labels])))
    count = times * sum(isinstance(step, Case) for step in plan)
    expected = estimate(plan, devices, policy)
    text = f"{counted(count, 'result')}, about {units.age(times * expected.seconds)}"
    if expected.over_budget:
        text += f", {times * expected.over_budget} probably over budget"
    stdout().print(Text(text))


def _why_not(row: Row) -> str:
    return "cached" if row.status == "ok" else f"{WORDS[row.status]}: {row.reason}"


def rendered(
    run: api.Run, format: str, verbose: bool, quiet: bool = False, repetitions: bool = False
) -> RenderableType:
    """Return a run in a text format, or its tables for the format `table`. `repetitions` is as of `Run.text`.

    Print how many rows a text format excludes on stderr, unless `quiet`.
    """
    if format not in exports.FORMATS and not repetitions:
        return run.table(verbose)
    if sentence := exports.left_out(run, format):
        api.say(sentence, quiet)
    return run.text(format, repetitions)


def show(output: RenderableType) -> None:
    """Print a table or text on stdout. If the reader has gone, drop the output and continue."""
    try:
        if isinstance(output, str):
            click.echo(output, nl=not output.endswith("\n"))
        else:
            stdout().print(output)
    except BrokenPipeError:
        drop_output()


def say(sentence: str) -> None:
    """Print a sentence on stdout. A terminal's line is wrapped at spaces."""
    console = stdout()
    click.echo(units.wrapped(sentence, console.width) if console.is_terminal else sentence)


def write(path: Path, output: RenderableType, quiet: bool = False, inputs: Sequence[Path] = ()) -> None:
    """Write text or a plain table to a file, and print its name unless `quiet`.

    Raise `UsageError` if it is one of the inputs or cannot be written.
    """
    if not isinstance(output, str):
        console = stdout(plain=True)
        with console.capture() as capture:
            console.print(output)
        output = "\n".join(line.rstrip(" ") for line in capture.get().split("\n"))
    api.write_text(path, output, inputs)
    api.say(f"Wrote {path}.", quiet)


def draw(runs: Sequence[Run], kind: str | None, path: Path, quiet: bool = False) -> None:
    """Draw a chart of runs and say so; `UsageError` if it cannot be drawn or written."""
    api.draw(runs, kind, path)
    api.say(f"Drew {path}.", quiet)


def completed(names: Sequence[str]) -> Callable[[click.Context, click.Parameter, str], list[str]]:
    """Return a shell completion function for comma-separated names.

    It completes the last name, and omits those already given.
    """

    def complete(_: click.Context, __: click.Parameter, word: str) -> list[str]:
        before, comma, last = word.rpartition(",")
        chosen = before.split(",")
        return [f"{before}{comma}{name}" for name in names if name.startswith(last) and name not in chosen]

    return complete
