"""``gemmbench tune``."""

from __future__ import annotations

import click
from rich.text import Text

from gemmbench import api
from gemmbench.cli import EXIT_INTERRUPTED, EXIT_WRONG, running
from gemmbench.cli.options import takes
from gemmbench.facts.dtypes import GEMM_DTYPES
from gemmbench.facts.text import clean, listed
from gemmbench.facts.tuning import result
from gemmbench.options.tuning import Tune
from gemmbench.render.sheet import stack
from gemmbench.render.tune import sheets
from gemmbench.rules.variants import LADDER
from gemmbench.tuned import KeptPresets
from gemmbench.tuning import run as tuning


@click.command()
@takes(Tune)
def tune(options: Tune) -> None:
    """Search a kernel's parameters on this device, and keep the winner.

    A random sample of the declared space, then a local search from its best. Every configuration is verified
    and measured in a process of its own, so that a crash, a hang or a wrong answer costs that configuration
    only. The best few are timed again beside the shipped preset; the winner is kept, for every command, if it
    beats the preset beyond doubt. Stopped or killed, the same command goes on where it was.
    """
    if options.forget:
        _forget(options)
        return
    if not options.dry_run:
        tuning.check_tuner()
    with api.tuning(options) as prepared:
        if options.dry_run:
            _say_space(prepared, options)
            return
        outcome = api.follow_tuning(prepared, options)
        run = outcome.run
        if run.rows:
            running.show(stack(sheets(run, options.top)))
        if outcome.error:
            raise outcome.error
        for note in () if outcome.interrupted else prepared.keep(run):
            if not options.quiet:
                click.echo(note, err=True)
    if options.plot and result(run).ranked:
        running.draw([run], "tune", options.plot, options.quiet)
    if outcome.interrupted:
        where = f"{len(run.rows)} rows are saved in {outcome.path}; the same command goes on"
        click.echo(f"gemmbench: interrupted; {where}", err=True)
        raise click.exceptions.Exit(EXIT_INTERRUPTED)
    if not options.quiet:
        click.echo(f"{len(run.rows)} rows are in {outcome.path}; the same command searches on.", err=True)
    first = result(run).default
    if first and first.trouble and first.trouble.status == "wrong":  # the tuner's own failures are table rows
        raise click.exceptions.Exit(EXIT_WRONG)
    api.check_tuned(run)


def _forget(options: Tune) -> None:
    names = (options.variant,) if options.variant else LADDER
    dtypes = GEMM_DTYPES if options.dtype is None else (options.only_dtype,)
    with tuning.selected(options.device, api.make_machine) as (_, device, _host):
        gone = tuning.forget(device, names, dtypes)
        for preset in gone:
            click.echo(f"Forgot {preset.variant} {preset.dtype}: {listed(preset.parameters)}")
        if not gone:
            click.echo(f"Nothing is kept for this in {KeptPresets().path(device)}.")


def _say_space(prepared: tuning.Tuning, options: Tune) -> None:
    console, space, problems = api.stdout(), prepared.space, prepared.problems
    console.print(Text(clean(prepared.device.title)))
    shapes = ", ".join(problem.shape for problem in problems)
    console.print(Text(f"{options.variant} {problems[0].dtype} at {shapes}"))
    for count, what in (
        (space.combinations, "combinations of the values of its parameters"),
        (space.allowed, "meet its constraints"),
        (len(space.configurations), "suit the device"),
    ):
        console.print(Text(f"{count:>12,} {what}"))
    for parameter, values in space.values.items():
        marked = ", ".join(f"[{v}]" if v == space.default[parameter] else str(v) for v in values)
        console.print(Text(f"  {parameter}: {marked}"))
    console.print(Text(f"[ ] is the shipped preset; searched for about {options.budget:g} s (--budget)"))
