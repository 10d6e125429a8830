"""From options to what the user sees, which every measuring command shares."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import click
from rich.console import RenderableType

from gemmbench import api
from gemmbench.cli import COMMAND_WORDS, drop_output
from gemmbench.model import units
from gemmbench.model.run_file import Run
from gemmbench.report.table import stdout
from gemmbench.suite import job
from gemmbench.suite.job import Job, Measurement
from gemmbench.suite.options import COUNT, GROUPS, OUTPUT, Flag, Options, specs
from gemmbench.suite.options.measuring import MeasurementOptions

Command = Callable[..., Any]
_LINE = 48  # columns for the text of an option


class Option(click.Option):
    """An option that belongs to a group of the help."""

    def __init__(self, *words: Any, group: str, common: bool, **extra: Any) -> None:
        super().__init__(*words, **extra)
        self.group, self.common = group, common


class Grouped(click.Command):
    """A command whose ``--help`` groups options, and whose ``-h`` shows common ones."""

    def format_help_text(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        if _is_brief(ctx):
            formatter.write(f"\n  {(self.help or '').splitlines()[0]}\n")
        else:
            super().format_help_text(ctx, formatter)

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
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


def command(kind: type[Options], run: Command, *arguments: click.Argument) -> click.Command:
    """The command of a class; `run` gets the options as one object, and the arguments by name."""

    def folded(**values: Any) -> Any:
        own = {name: values.pop(name) for name in specs(kind)}
        return run(kind(**own), **values)

    decorated: Command = folded
    for name in reversed(specs(kind)):
        decorated = click_option(kind, name)(decorated)
    own_help = inspect.cleandoc(kind.help)
    return click.command(kind.command, Grouped, help=own_help, params=[*arguments])(decorated)


def click_option(kind: type[Options], name: str, **changes: Any) -> Callable[[Command], Command]:
    """The click option of a field of an options class, with other arguments in `changes`."""
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
        extra["shell_complete"] = make_completer(spec.names)
    extra |= {"default": field.default, "help": spec.help or None, **changes}
    return click.option(*spec.spellings(name), name, **extra)


def command_words() -> tuple[str, ...]:
    """The words of the command line, for the header of a saved run."""
    words: tuple[str, ...] = click.get_current_context().meta[COMMAND_WORDS]
    return words


def execute(task: Job) -> None:
    """Run a job, print what came out, and exit with its status."""
    if status := api.run(task, print_output):
        raise click.exceptions.Exit(status)


def measure_and_show(options: MeasurementOptions) -> None:
    """Measure, print, draw and save as the options say."""
    execute(Measurement(options))


def print_output(output: RenderableType) -> None:
    """Print a table or text on stdout. If the reader has gone, drop the output."""
    try:
        if isinstance(output, str):
            click.echo(output, nl=not output.endswith("\n"))
        else:
            stdout().print(output)
    except BrokenPipeError:
        drop_output()


def print_line(sentence: str) -> None:
    """Print a sentence on stdout, wrapped on a terminal."""
    console = stdout()
    click.echo(units.wrap(sentence, console.width) if console.is_terminal else sentence)


def draw_chart(runs: Sequence[Run], kind: str | None, path: Path) -> None:
    """Draw a chart of runs and say so; `UsageError` if that fails."""
    api.draw_runs(runs, kind, path)
    job.print_message(f"Drew {path}.")


def make_completer(names: Sequence[str]) -> Callable[[click.Context, click.Parameter, str], list[str]]:
    """A shell completion function for comma-separated names, which completes the last one."""

    def complete(_: click.Context, __: click.Parameter, word: str) -> list[str]:
        before, comma, last = word.rpartition(",")
        chosen = before.split(",")
        return [f"{before}{comma}{name}" for name in names if name.startswith(last) and name not in chosen]

    return complete
