"""``gemmbench tune``."""

from __future__ import annotations

import os
import tempfile
from contextlib import ExitStack
from dataclasses import dataclass, fields, replace
from datetime import datetime, timezone
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from rich.text import Text

from gemmbench.cache_folder import device_key, subfolder
from gemmbench.cli import EXIT_INTERRUPTED, EXIT_WRONG, running
from gemmbench.cli.options import (
    UserError,
    check_folder,
    check_plot_path,
    choose,
    choose_dtypes,
    choose_sizes,
    device_option,
    positive,
)
from gemmbench.facts.dtypes import GEMM_DTYPES
from gemmbench.facts.problem import Gemm
from gemmbench.facts.records import DeviceFacts, Header, HostFacts, Policy, Run, RunFileError
from gemmbench.facts.text import clean, listed
from gemmbench.facts.tuning import result
from gemmbench.measure.child import Worker
from gemmbench.opencl import machine
from gemmbench.render.sheet import stack
from gemmbench.render.tune import TOP, sheets
from gemmbench.render.tune_progress import TuneProgress
from gemmbench.rules import tuning as rules
from gemmbench.rules.plan import saved_problem
from gemmbench.rules.selection import select
from gemmbench.rules.variants import BY_NAME, LADDER
from gemmbench.tuned import KeptPresets, Preset, source

if TYPE_CHECKING:
    from gemmbench.tuning.session import Ahead, Task

make_caching_machine = machine.caching  # replaced in tests

_BUDGET_S = 300.0
_TIME_LIMIT_S = 30.0  # for a configuration: to build, verify and look
_SEED = 1
_MOST_BUILDERS = 8
_length = click.IntRange(min=1)


@dataclass(frozen=True)
class TuneOptions:
    """What is tuned, how long, and what becomes of it."""

    kernel: str | None
    dtype: str
    sizes: str | None
    m: int | None
    n: int | None
    k: int | None
    budget: float
    strategy: str
    seed: int
    device: str
    cache: Path | None
    force: bool
    time_limit: float
    builders: int | None
    top: int
    plot: Path | None
    dry_run: bool
    forget: bool
    quiet: bool
    verbose: int


@click.command()
@click.option("--kernel", metavar="NAME", help="The kernel to tune (gemmbench kernels lists them).")
@click.option("--dtype", default="float", show_default=True, metavar="TYPE", help="The data type.")
@click.option(
    "--sizes", metavar="LIST", help="m = n = k; several with commas count alike.  [default: by device]"
)
@click.option("-m", "m", type=_length, help="Rows of A and C, for a problem that is not square.")
@click.option("-n", "n", type=_length, help="Columns of B and C.  [default: m]")
@click.option("-k", "k", type=_length, help="Columns of A, rows of B.  [default: m]")
@click.option(
    "--budget",
    type=positive,
    default=_BUDGET_S,
    show_default=True,
    metavar="SECONDS",
    help="For all of it: two thirds to search, the rest to time the best few again.",
)
@click.option(
    "--strategy",
    type=click.Choice([*rules.STRATEGIES]),
    default=next(iter(rules.STRATEGIES)),
    show_default=True,
    help="How to go on after a random sample.",
)
@click.option("--seed", type=click.IntRange(min=0), default=_SEED, show_default=True, help="Of the search.")
@device_option
@click.option(
    "--cache",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE.jsonl",
    help="Every configuration as it is measured; the same command goes on with it.  [default: in the user's "
    "cache folder]",
)
@click.option("--force", is_flag=True, help="Drop what the cache file holds.")
@click.option(
    "--time-limit",
    type=positive,
    default=_TIME_LIMIT_S,
    show_default=True,
    metavar="SECONDS",
    help="Stop a configuration that takes longer altogether.",
)
@click.option(
    "--builders",
    type=click.IntRange(0, _MOST_BUILDERS),
    help="Processes that compile ahead.  [default: half the cores, 4 at most; none on a CPU, which they "
    "would disturb]",
)
@click.option(
    "--top", type=click.IntRange(min=1), default=TOP, show_default=True, help="Configurations shown."
)
@click.option("--plot", type=click.Path(path_type=Path), metavar="FILE.png|svg|pdf", help="Draw the search.")
@click.option("--dry-run", is_flag=True, help="Say how large the space is, and measure nothing.")
@click.option("--forget", is_flag=True, help="Drop what was kept for the device (and --kernel, --dtype).")
@click.option("-q", "--quiet", is_flag=True, help="No progress, no advice: the table only.")
@click.option("-v", "--verbose", count=True, help="A line for every configuration.")
def tune(**words: Any) -> None:
    """Search a kernel's parameters on this device, and keep the winner.

    A random sample of the declared space, then a local search from its best. Every configuration is verified
    and measured in a process of its own, so that a crash, a hang or a wrong answer costs that configuration
    only. The best few are timed again beside the shipped preset; the winner is kept, for every command, if it
    beats the preset beyond doubt. Stopped or killed, the same command goes on where it was.
    """
    options = TuneOptions(**{field.name: words[field.name] for field in fields(TuneOptions)})
    (dtype,) = _only(choose_dtypes(options.dtype, GEMM_DTYPES), "--dtype")
    if options.kernel is None and not options.forget:
        raise UserError("--kernel is missing: which kernel to tune (gemmbench kernels lists them)")
    name = None if options.kernel is None else _only(choose(options.kernel, LADDER, "kernel"), "--kernel")[0]
    check_plot_path(options.plot)
    if options.cache:
        check_folder("--cache", options.cache)
    if not options.forget and not options.dry_run:
        _check_tuner()
    with ExitStack() as held, running.user_errors():
        worker = held.enter_context(Worker(running.make_machine))
        found, host = running.every_device(worker)
        (device,) = _only(select(found, options.device), "--device")
        if options.forget:
            explicit = click.get_current_context().get_parameter_source("dtype")
            given = explicit is not click.core.ParameterSource.DEFAULT
            _forget(device, (name,) if name else LADDER, (dtype,) if given else GEMM_DTYPES)
            return
        assert name is not None
        _tune(options, name, dtype, device, host, worker, held)


def _tune(
    options: TuneOptions,
    name: str,
    dtype: str,
    device: DeviceFacts,
    host: HostFacts,
    worker: Worker,
    held: ExitStack,
) -> None:
    """Tune one kernel on one device; ends with the command's exit status."""
    variant = BY_NAME[name]
    problems = _problems(options, device, dtype)
    try:
        space = rules.space(variant, device, problems)
    except rules.TuningError as error:
        raise UserError(str(error)) from None
    if options.dry_run:
        _say_space(name, device, problems, space, options)
        return
    running.warn_if_busy(host, options.quiet)

    from gemmbench.tuning import session
    from gemmbench.tuning.cache import Cache

    task = session.Task(
        device, variant, problems, space, options.strategy, options.seed, options.budget, options.time_limit
    )
    path = options.cache or _default_cache(task)
    cache = held.enter_context(Cache(path, _header(task, host), options.force))
    interrupted, failure = False, None
    try:
        with TuneProgress(running.stderr(), options.quiet, options.verbose) as progress:
            worker, ahead = _machinery(options, task, worker, host, held)
            session.tune(
                task, session.measured_by(worker, device, progress.handle), cache, progress.handle, ahead
            )
    except KeyboardInterrupt:
        interrupted = True
    except RunFileError as error:  # a full disk, say: the table so far is still worth showing
        failure = error
    run = cache.run()
    if run.rows:
        running.show(stack(sheets(run, options.top)))
    if failure:
        raise failure
    if not interrupted:
        _keep(task, run, options.quiet)
    if options.plot and result(run).ranked:
        running.draw([run], "tune", options.plot, options.quiet)
    if interrupted:
        where = f"{len(run.rows)} rows are saved in {path}; the same command goes on"
        click.echo(f"gemmbench: interrupted; {where}", err=True)
        raise click.exceptions.Exit(EXIT_INTERRUPTED)
    if not options.quiet:
        click.echo(f"{len(run.rows)} rows are in {path}; the same command searches on.", err=True)
    _exit(run)


def _check_tuner() -> None:
    """Find out before anything is measured whether there is a kernel-tuner.

    Raises:
        UserError: there is none.
    """
    try:
        import gemmbench.tuning.search  # noqa: F401  whether it can be imported is the question
    except ImportError as error:
        raise UserError(f"tune needs kernel-tuner ({error}): pip install gemmbench[tune]") from None


def _only(chosen: tuple[Any, ...], option: str) -> tuple[Any]:
    """The one that is chosen.

    Raises:
        UserError: there are several.
    """
    if len(chosen) > 1:
        raise UserError(f"tune takes one {option} at a time, not {len(chosen)}")
    return (chosen[0],)


def _problems(options: TuneOptions, device: DeviceFacts, dtype: str) -> tuple[Gemm, ...]:
    """What the search measures."""
    if options.m is None:
        if options.n is not None or options.k is not None:
            raise UserError("-n and -k need -m")
        if options.sizes is None:
            return rules.default_problems(device, dtype)
        return tuple(Gemm(size, size, size, dtype) for size in choose_sizes(options.sizes, None, 1))
    if options.sizes is not None:
        raise UserError("--sizes is for square problems and -m for others: choose one")
    return (Gemm(options.m, options.n or options.m, options.k or options.m, dtype),)


def _header(task: Task, host: HostFacts) -> Header:
    """The same for every call that may go on with a file, but for the time and the host's state."""
    words = ["tune", "--kernel", task.variant.name, "--dtype", task.problems[0].dtype]
    for problem in task.problems:
        words += ["-m", str(problem.m), "-n", str(problem.n), "-k", str(problem.k)]
    return replace(running.header_of([task.device], host, Policy()), command=tuple(words))


def _default_cache(task: Task) -> Path:
    """A file in the user's cache folder for each device, kernel as it is today, and set of problems."""
    shapes = "_".join(problem.shape for problem in task.problems)
    words = (device_key(task.device), task.variant.name, task.problems[0].dtype, shapes, source(task.variant))
    return subfolder("tuning") / f"{'-'.join(words)}.jsonl"


def _machinery(
    options: TuneOptions, task: Task, worker: Worker, host: HostFacts, held: ExitStack
) -> tuple[Worker, Ahead]:
    """The child that measures, and what has others compile ahead of it."""
    count = options.builders
    if count is None:
        count = 0 if task.device.type == "cpu" else min(4, (os.cpu_count() or 1) // 2)
    if not count:
        return worker, lambda _: None
    from gemmbench.tuning.builders import Builders

    folder = held.enter_context(tempfile.TemporaryDirectory(ignore_cleanup_errors=True))
    make = partial(make_caching_machine, folder)
    worker.stop()
    policy = Policy(time_limit_s=options.time_limit)
    builders = held.enter_context(Builders(partial(Worker, make), count, task.device, policy))
    return held.enter_context(Worker(make)), builders.want


def _keep(task: Task, run: Run, quiet: bool) -> None:
    """Keep the winner, if there is one to keep, and say where."""
    found, store = result(run), KeptPresets()
    if not found.is_kept or found.winner is None:
        if store.find(task.device, task.variant, task.problems[0].dtype) and not quiet:
            click.echo("What was kept earlier stays in use; --forget drops it.", err=True)
        return
    kept = store.keep(
        task.device,
        Preset(
            task.variant.name,
            task.problems[0].dtype,
            source(task.variant),
            {name: int(value) for name, value in found.winner.items()},
            tuple(map(saved_problem, task.problems)),
            found.overall.median if found.overall else None,
            datetime.now(timezone.utc).isoformat(timespec="seconds"),
        ),
    )
    if not quiet:
        for note in store.notes:
            click.echo(note, err=True)
        if kept:
            click.echo(f"Kept in {store.path(task.device)}; every command takes it from there.", err=True)


def _forget(device: DeviceFacts, names: tuple[str, ...], dtypes: tuple[str, ...]) -> None:
    store = KeptPresets()
    gone = store.forget(device, names, dtypes)
    for preset in gone:
        click.echo(f"Forgot {preset.variant} {preset.dtype}: {listed(preset.parameters)}")
    if store.notes:
        raise UserError(store.notes[0])
    if not gone:
        click.echo(f"Nothing is kept for this in {store.path(device)}.")


def _say_space(
    name: str, device: DeviceFacts, problems: tuple[Gemm, ...], space: rules.Space, options: TuneOptions
) -> None:
    console = running.stdout()
    console.print(Text(clean(device.title)))
    console.print(Text(f"{name} {problems[0].dtype} at {', '.join(problem.shape for problem in problems)}"))
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


def _exit(run: Run) -> None:
    """Exit status 1 where the shipped preset is wrong; a tuner's own failures are rows in its table."""
    found = result(run)
    first = found.default
    if first is not None and first.trouble is not None and first.trouble.status == "wrong":
        raise click.exceptions.Exit(EXIT_WRONG)
    if not found.ranked:
        trouble = first.trouble if first else None
        why = f": {trouble.status}: {clean(trouble.reason)}" if trouble else ""
        raise UserError(f"no configuration could be measured{why}")
