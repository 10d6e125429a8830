"""From options to what the user sees: the part that every measuring command shares."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from rich.console import RenderableType
from rich.text import Text

from gemmbench import UsageError, api, exports
from gemmbench.cli import COMMAND_WORDS, EXIT_INTERRUPTED, EXIT_WRONG, completion
from gemmbench.ladder import order_of
from gemmbench.model.case import Case, Plan, Policy
from gemmbench.model.device import DeviceFacts
from gemmbench.model.run_file import Run
from gemmbench.options.declare import Choice, Count, Duration, File, Flag, Kind, Number, Options, Whole, specs
from gemmbench.options.measuring import Measuring
from gemmbench.report.progress import row_label
from gemmbench.suite.run import Outcome
from gemmbench.suite.together import Group

if TYPE_CHECKING:
    from gemmbench.suite.best_shape import Search

Command = Callable[..., Any]

_MANY = 8  # lines of a chart: what a kernel adds to the one before is hard to see in it


def takes(kind: type[Options]) -> Callable[[Command], Command]:
    """Give a command the options of a class; they arrive as one ``options``."""

    def decorate(command: Command) -> Command:
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
    """The command of a class, whose docstring is the help; without a function of its own it measures."""
    return click.command(kind.command, help=inspect.getdoc(kind))(takes(kind)(run or measure))


def click_option(kind: type[Options], name: str) -> Callable[[Command], Command]:
    """One field of a class as an option."""
    spec, field = specs(kind)[name]
    extra: dict[str, Any] = {}
    if isinstance(spec.kind, Count):
        extra = {"count": True}
    elif isinstance(spec.kind, Flag):
        extra = {"is_flag": True, "show_default": "/" in spec.spellings(name)[0]}
    else:
        shown = not spec.many and field.default not in (None, "")
        extra = {"type": _type(spec.kind, spec.metavar), "metavar": spec.metavar, "show_default": shown}
        extra |= {"multiple": True} if spec.many else {}
        extra |= {"is_flag": False, "flag_value": spec.bare} if spec.bare else {}
        extra |= {"envvar": spec.env, "show_envvar": True} if spec.env else {}
    if spec.names:
        extra["shell_complete"] = (completion.single if spec.single else completion.listed)(spec.names)
    return click.option(*spec.spellings(name), name, default=field.default, help=spec.help or None, **extra)


def _type(kind: Kind, metavar: str | None) -> click.ParamType[Any]:
    """What help shows of a kind; the kind itself converts."""
    if isinstance(kind, Choice):
        return click.Choice(kind.names)
    if isinstance(kind, Whole):
        return click.IntRange(kind.least, kind.most)
    if isinstance(kind, Number | Duration):
        return _Number(kind)
    if isinstance(kind, File):
        return completion.FileName(kind.folder, metavar or "")
    return click.STRING


class _Number(click.types.FloatParamType):
    """A number, or a time: click's own float also takes NaN and infinity."""

    name = "number"

    def __init__(self, kind: Number | Duration) -> None:
        self._kind = kind

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        try:
            return self._kind.convert(value)
        except ValueError as error:
            self.fail(str(error), param, ctx)


# --- From options to exit status: the part that every measuring command shares ------------------------------


def command_words() -> tuple[str, ...]:
    """The words of the command line, for the header of a saved run."""
    words: tuple[str, ...] = click.get_current_context().meta[COMMAND_WORDS]
    return words


def measure(options: Measuring, as_text: Callable[[Run], str] | None = None) -> None:
    """Measure, print and draw as the options say; ends with the command's exit status.

    `as_text` makes what is printed instead of the command's table.
    """
    with api.prepared(options, command_words()) as measurement:
        if options.dry_run:
            header = measurement.header
            print_plan(measurement.plan, header.devices, header.policy, measurement.groups, options.search)
            return
        outcome, run = api.follow(measurement, options)
    if run.rows:
        show(as_text(run) if as_text else run.table(bool(options.verbose)))
    if outcome.error:
        raise UsageError(str(outcome.error))
    if not outcome.interrupted:
        api.point_to_doctor(run, options.quiet)
    _say_where(options, outcome)
    if options.plot and run.rows:
        kind = api.chart_of(run, options)
        draw([run], kind, options.plot, options.quiet)
        if (
            options.save
            and kind is None
            and len({row.title for row in run.rows}) > _MANY
            and not options.quiet
        ):
            click.echo(f"gemmbench plot {options.save} --kind ladder shows what each kernel gains.", err=True)
    if options.report and run.rows:
        api.write_report([run], options.report)
        say_wrote(options.report, options.quiet)
    if outcome.interrupted:
        raise click.exceptions.Exit(EXIT_INTERRUPTED)
    if not run.ok:
        raise click.exceptions.Exit(EXIT_WRONG)
    run.check_measured()


def print_plan(
    plan: Plan,
    devices: Sequence[DeviceFacts],
    policy: Policy,
    groups: Sequence[Group] = (),
    search: Search | None = None,
) -> None:
    """Say what would be measured, on one device after another and, group by group, on several at once.

    Of a search a case is every shape of a kernel.
    """
    console = api.stdout()
    for device in devices:
        console.print(Text(device.title))
    cases = 0
    for step in plan:
        if isinstance(step, Case):
            cases += 1
            console.print(Text(f"  search  {step.title} {step.dtype}" if search else f"  run   {step.label}"))
        else:
            row = step.row
            what = (
                f"kept  {row_label(row)}"
                if row.status == "ok"
                else f"{row.status}  {row_label(row)}: {row.reason}"
            )
            console.print(Text(f"  {what}"))
    for group in groups:
        if group.cases:
            cases += 1
            console.print(Text(f"  run   {group.label}"))
    each_s = cases * (search.budget_s if search else policy.budget_s)
    shares = policy.total_s is not None and policy.total_s < each_s
    time = f"about {policy.total_s:.0f} s" if shares else f"at most about {each_s:.0f} s"
    console.print(Text(f"{cases} cases, {time} of sampling"))


def as_text(form: str, quiet: bool = False) -> Callable[[Run], str] | None:
    """What turns a run into text for machines; None for a table, which is for people.

    Rows that the text leaves out are counted on stderr.
    """
    if form not in exports.FORMATS:
        return None

    def text(run: Run) -> str:
        if (sentence := exports.left_out(run, form)) and not quiet:
            api.say(sentence)
        return exports.FORMATS[form].text(run, order_of(run))

    return text


def show(output: RenderableType) -> None:
    """Print a table, or text for machines as it is."""
    if isinstance(output, str):
        click.echo(output, nl=not output.endswith("\n"))
    else:
        api.stdout().print(output)


def _say_where(options: Measuring, outcome: Outcome) -> None:
    """Where the rows are, and what an interrupted user can do."""
    rows = len(outcome.run.rows)
    if outcome.interrupted:
        where = (
            f"{rows} rows are saved in {options.save}; the same command with --resume goes on"
            if options.save
            else "nothing was saved (--save FILE keeps rows as they come)"
        )
        click.echo(f"gemmbench: interrupted; {where}", err=True)
    elif options.save and not options.quiet:
        click.echo(f"Saved {rows} rows in {options.save}.", err=True)


def write(path: Path, output: RenderableType, quiet: bool = False, inputs: Sequence[Path] = ()) -> None:
    """Write text, or a table, into a file that is none of the inputs, and say so.

    Raises:
        UsageError: it cannot be written.
    """
    if not isinstance(output, str):
        console = api.stdout()
        with console.capture() as capture:
            console.print(output)
        output = capture.get()
    api.write_text(path, output, inputs)
    say_wrote(path, quiet)


def say_wrote(path: Path, quiet: bool = False) -> None:
    """Print where a file was written."""
    if not quiet:
        click.echo(f"Wrote {path}.", err=True)


def draw(runs: Sequence[Run], kind: str | None, path: Path, quiet: bool = False) -> None:
    """Draw a chart of runs and say so.

    Raises:
        UsageError: it cannot be drawn or written.
    """
    api.draw(runs, kind, path)
    say_drawn(path, quiet)


def say_drawn(path: Path, quiet: bool = False) -> None:
    """Print where a chart was written."""
    if not quiet:
        click.echo(f"Drew {path}.", err=True)
