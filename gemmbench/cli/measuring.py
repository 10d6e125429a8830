"""The commands that measure."""

from __future__ import annotations

from collections.abc import Iterable

import click
from rich.console import Group
from rich.text import Text

from gemmbench import api
from gemmbench.cli import EXIT_INTERRUPTED, EXIT_WRONG, running
from gemmbench.cli.running import Grouped, takes
from gemmbench.gemm.workloads import SETS
from gemmbench.model.dtypes import GEMM_DTYPES
from gemmbench.model.kernel_files import opening
from gemmbench.model.units import age, clean, counted, listed
from gemmbench.options import measuring
from gemmbench.options.comparing import TuneOptions
from gemmbench.options.names import choose
from gemmbench.probes import PROBES, memory
from gemmbench.probes.arithmetic import CHAINS, UNROLLS, ChainProbe, MatrixProbe, Probe
from gemmbench.probes.memory import MemoryProbe
from gemmbench.report.table import Entry, catalogue, entry_page, stack, stdout
from gemmbench.suite.cached import TunedPresets
from gemmbench.tune import session as tuning
from gemmbench.tune.result import result, sheets

gemm, square, sweep_k = map(
    running.command, (measuring.GemmOptions, measuring.SquareOptions, measuring.SweepKOptions)
)


def _peak(options: measuring.PeakOptions) -> None:
    """Measure peaks, or explain the probes that --describe names."""
    if options.describe is None:
        running.measure(options)
    elif options.describe == measuring.EVERY_PROBE:
        heads = {family: f"{family}: {idea}" for family, idea in measuring.FAMILIES.items()}
        running.show(Group(*catalogue(entries(), heads)))
    else:
        chosen = choose(options.describe, NAMES, "probe")
        running.show(stack(entry_page(entry(probe)) for probe in chosen))


def _workloads(options: measuring.WorkloadsOptions) -> None:
    if options.dry_run:
        for name in options.set_names:
            running.show(Text(f"{name}: {SETS[name].idea} ({SETS[name].source}).\n"))
        if options.left_out:
            running.say(options.left_out.sentence)
    running.measure(options)


peak = running.command(measuring.PeakOptions, _peak)
workloads = running.command(measuring.WorkloadsOptions, _workloads)


NAMES: tuple[str, ...] = (*PROBES, *memory.BY_NAME)


def entries() -> list[Entry]:
    """List every probe with its family and idea."""
    compute = [Entry(probe.name, measuring.COMPUTE, probe.idea) for probe in PROBES.values()]
    return compute + [Entry(probe.name, probe.family, probe.idea) for probe in memory.PROBES]


def entry(name: str) -> Entry:
    """Describe the probe of a name: idea, facts and the opening comments of its kernel files."""
    if name in PROBES:
        probe = PROBES[name]
        return Entry(name, measuring.COMPUTE, probe.idea, _compute_facts(probe), [*map(opening, probe.files)])
    probed = memory.BY_NAME[name]
    files = (probed.file,) if probed.file else ()
    return Entry(name, probed.family, probed.idea, _memory_facts(probed), [*map(opening, files)])


def _compute_facts(probe: Probe) -> list[tuple[str, str]]:
    """Labels and texts of what an arithmetic probe measures: types, and variants or matrix instructions."""
    facts = {"types": ", ".join(probe.dtypes)}
    if isinstance(probe, ChainProbe):
        forms = dict.fromkeys(form.name for several in probe.forms.values() for form in several)
        facts["variants"] = ", ".join(forms)
        facts["tried"] = f"{_listed(CHAINS)} chains, {_listed(UNROLLS)} steps unrolled, every variant"
        facts["counted"] = f"{probe.operations} operations for each step and lane"
        facts["widths"] = _listed(probe.widths)
    elif isinstance(probe, MatrixProbe):
        facts["instructions"] = ", ".join(
            f"{each.dtype} {each.shape} into {each.accumulator}" for each in probe.family.instructions
        )
        facts["operands"] = "random, and all zeros to show the power limit"
    return [*facts.items()]


def _memory_facts(probe: MemoryProbe) -> list[tuple[str, str]]:
    """Labels and texts of what a memory probe measures: widths, access variants, counted bytes, checks."""
    facts = {}
    if probe.widths:
        facts["widths"] = _listed(probe.widths)
    if probe.bench in memory.WAYS:
        raced = {
            kind: ", ".join(
                f"{name} {_listed(dict.fromkeys(getattr(way, name) for way in ways))}"
                for name in ("pattern", "unroll", "group", "groups")
                if any(getattr(way, name) for way in ways)
            )
            for kind, ways in memory.WAYS[probe.bench].items()
        }
        facts |= {f"tried, {kind}": text for kind, text in raced.items()}
    if probe.kind == "bandwidth":
        facts["counted"] = f"{probe.loads + probe.stores} x 4 bytes for each element"
    facts["checked"] = _CHECKS[probe.kind] if probe.bench != "launch" else "nothing: there is no result"
    return [*facts.items()]


_CHECKS = {
    "bandwidth": "the sums of the data read, or the data written, equal the host's; twice the "
    "work takes twice the time; event and wall clock agree",
    "latency": "the chase ends where the host says; twice the hops take twice the time; event and wall "
    "clock agree",
    "transfer": "what arrives is what was sent",
}


def _listed(values: Iterable[object]) -> str:
    return ", ".join(map(str, values))


_TUNE_HELP = """Search for a kernel's best parameters on this device.

    The search takes a random sample of the space, then hill-climbs from the best. It verifies every
    configuration in a separate process, so a crash does not end the search. The best few and the shipped
    preset are then measured again, and the winner alternates with the preset. The winner is saved for all
    commands if it is clearly faster. The same command resumes an interrupted search.
    """


@click.command(cls=Grouped, help=_TUNE_HELP)
@takes(TuneOptions)
def tune(options: TuneOptions) -> None:
    """``gemmbench tune``."""
    if options.forget:
        _forget(options)
        return
    with tuning.prepared(options, api.make_machine, api.make_caching_machine) as prepared:
        if options.dry_run:
            _print_space(prepared, options)
            return
        outcome = api.follow_tuning(prepared, options)
    run = outcome.run
    if run.rows:
        running.show(stack(sheets(run, options.top)))
    try:
        api.finish_tuning(prepared, outcome, options, verbose=True)
    except KeyboardInterrupt:
        where = f"{counted(len(run.rows), 'row')} saved in {run.path}; the same command continues"
        api.say(f"gemmbench: interrupted; {where}")
        raise click.exceptions.Exit(EXIT_INTERRUPTED) from None
    api.say(
        f"Saved {counted(len(run.rows), 'row')} in {run.path}; the same command continues.", options.quiet
    )
    first = result(run).default
    if first and first.trouble and first.trouble.status == "wrong":  # the tuner's own failures are table rows
        raise click.exceptions.Exit(EXIT_WRONG)
    api.check_tuned(run)


def _forget(options: TuneOptions) -> None:
    """Delete the device's tuned presets and print each, or say that there are none.

    Without --kernel, forget all kernels; without --dtype, all types. --device must match one device.
    """
    name = options.variant.name if options.variant else None
    dtypes = GEMM_DTYPES if options.dtype is None else (options.only_dtype,)
    with tuning.selected(options.device, api.make_machine) as (_, device, _host):
        gone = tuning.forget(device, name, dtypes)
        for preset in gone:
            running.say(f"Forgot {preset.variant} {preset.dtype}: {listed(preset.parameters)}")
        if not gone:
            running.say(f"Nothing is saved for this in {TunedPresets().path(device)}.")


def _print_space(prepared: tuning.Tuning, options: TuneOptions) -> None:
    """Print the search space: problems, parameter values, counts and the estimated time."""
    console, space, problems = stdout(), prepared.task.space, prepared.task.problems
    console.print(Text(clean(prepared.task.device.title)))
    shapes = ", ".join(problem.shape for problem in problems)
    console.print(Text(f"{prepared.task.variant.name}, {problems[0].dtype} GEMM, {shapes}"))
    for parameter, values in space.values.items():
        marked = ", ".join(f"[{v}]" if v == space.default[parameter] else str(v) for v in values)
        chosen = "; the kernel chooses for each problem" if parameter in space.chosen else ""
        console.print(Text(f"  {parameter}: {marked}{chosen}"))
    console.print(Text("[ ] is the shipped preset."))
    counts = f"{space.combinations:,} combinations, {space.allowed:,} meet the constraints"
    console.print(Text(f"{counts}, {len(space.configurations):,} fit the device."))
    console.print(
        Text(f"At most {counted(len(space.configurations), 'configuration')} and {age(options.budget)}")
    )
