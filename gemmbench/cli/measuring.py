"""The commands that measure."""

from __future__ import annotations

from collections.abc import Iterable

from rich.console import Group
from rich.text import Text

from gemmbench.cli import running
from gemmbench.gemm.workloads import SETS
from gemmbench.measure.child import Worker
from gemmbench.model.kernel_files import opening
from gemmbench.probes import PROBES, memory
from gemmbench.probes.arithmetic import CHAINS, UNROLLS, ChainProbe, MatrixProbe, Probe
from gemmbench.probes.memory import MemoryProbe
from gemmbench.report.table import Entry, catalogue, entry_page, stack
from gemmbench.suite.options import measuring
from gemmbench.suite.options.comparing import TuneOptions
from gemmbench.suite.options.names import choose_names
from gemmbench.tune.session import Tuning, forget

gemm_command = running.command(measuring.GemmOptions, running.measure_and_show)
square_command = running.command(measuring.SquareOptions, running.measure_and_show)
sweep_k_command = running.command(measuring.SweepKOptions, running.measure_and_show)


def _peak(options: measuring.PeakOptions) -> None:
    """Measure, or list or explain probes (--describe)."""
    if options.describe is None:
        running.measure_and_show(options)
    elif options.describe == measuring.EVERY_PROBE:
        heads = {family: f"{family}: {idea}" for family, idea in measuring.PROBE_FAMILIES.items()}
        running.print_output(Group(*catalogue(list_probes(), heads)))
    else:
        chosen = choose_names(options.describe, PROBE_NAMES, "probe")
        running.print_output(stack(entry_page(describe_probe(probe)) for probe in chosen))


def _workloads(options: measuring.WorkloadsOptions) -> None:
    if options.dry_run:
        for name in options.set_names:
            running.print_output(Text(f"{name}: {SETS[name].idea} ({SETS[name].source}).\n"))
        if options.left_out:
            running.print_line(options.left_out.sentence)
    running.measure_and_show(options)


peak_command = running.command(measuring.PeakOptions, _peak)
workloads_command = running.command(measuring.WorkloadsOptions, _workloads)


PROBE_NAMES: tuple[str, ...] = (*PROBES, *memory.BY_NAME)


def list_probes() -> list[Entry]:
    """List every probe with its family and idea."""
    compute = [Entry(probe.name, measuring.COMPUTE, probe.idea) for probe in PROBES.values()]
    return compute + [Entry(probe.name, probe.family, probe.idea) for probe in memory.PROBES]


def describe_probe(name: str) -> Entry:
    """Describe a probe: idea, facts and the opening comments of its kernel files."""
    if name in PROBES:
        probe = PROBES[name]
        return Entry(name, measuring.COMPUTE, probe.idea, _compute_facts(probe), [*map(opening, probe.files)])
    probed = memory.BY_NAME[name]
    files = (probed.file,) if probed.file else ()
    return Entry(name, probed.family, probed.idea, _memory_facts(probed), [*map(opening, files)])


def _compute_facts(probe: Probe) -> list[tuple[str, str]]:
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


def _tune(options: TuneOptions) -> None:
    if options.forget:
        with Worker() as worker:
            for line in forget(worker, options):
                running.print_line(line)
        return
    running.execute(Tuning(options))


tune_command = running.command(TuneOptions, _tune)
