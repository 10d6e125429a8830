"""What ``peak --describe`` tells of every probe, from the registries."""

from __future__ import annotations

from collections.abc import Iterable

from gemmbench.facts.kernel_files import opening
from gemmbench.options.measuring import COMPUTE
from gemmbench.render.probes import ProbeEntry
from gemmbench.rules import memory
from gemmbench.rules.memory import MemoryProbe
from gemmbench.rules.probes import CHAINS, PROBES, UNROLLS, ChainProbe, MatrixProbe, Probe

NAMES: tuple[str, ...] = (*PROBES, *memory.BY_NAME)


def entries() -> list[ProbeEntry]:
    """Every probe, without its pictures."""
    compute = [ProbeEntry(probe.name, COMPUTE, probe.idea) for probe in PROBES.values()]
    others = [ProbeEntry(probe.name, probe.family, probe.idea) for probe in memory.PROBES]
    return compute + others


def entry(name: str) -> ProbeEntry:
    """One probe, with all there is to tell."""
    if name in PROBES:
        probe = PROBES[name]
        return ProbeEntry(name, COMPUTE, probe.idea, _compute_facts(probe), _pictures(probe.files))
    mine = memory.BY_NAME[name]
    files = (mine.file,) if mine.file else ()
    return ProbeEntry(name, mine.family, mine.idea, _memory_facts(mine), _pictures(files))


def _pictures(files: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(map(opening, files))


def _compute_facts(probe: Probe) -> dict[str, str]:
    found = {"types": ", ".join(probe.dtypes)}
    if isinstance(probe, ChainProbe):
        forms = dict.fromkeys(form.name for several in probe.forms.values() for form in several)
        found["forms"] = ", ".join(forms)
        found["raced"] = f"{_listed(CHAINS)} chains, {_listed(UNROLLS)} steps unrolled, every form"
        found["counted"] = f"{probe.operations} operations for each step and lane"
        found["widths"] = _listed(probe.widths)
    elif isinstance(probe, MatrixProbe):
        found["instructions"] = ", ".join(
            f"{mine.dtype} {mine.shape} into {mine.accumulator}" for mine in probe.instructions
        )
        found["operands"] = "random, and zeros beside them: power decides"
    return found


def _memory_facts(probe: MemoryProbe) -> dict[str, str]:
    found = {}
    if probe.widths:
        found["widths"] = _listed(probe.widths)
    if probe.bench in memory.WAYS:
        raced = {
            kind: ", ".join(
                f"{name} {_listed(dict.fromkeys(getattr(way, name) for way in ways))}"
                for name in ("pattern", "unroll", "group", "groups")
                if any(getattr(way, name) for way in ways)
            )
            for kind, ways in memory.WAYS[probe.bench].items()
        }
        found |= {f"raced, {kind}": text for kind, text in raced.items()}
    if probe.kind == "bandwidth":
        found["counted"] = f"{probe.loads + probe.stores} x 4 bytes for each element"
    found["checked"] = _CHECKS[probe.kind] if probe.bench != "launch" else "nothing: there is no result"
    return found


_CHECKS = {
    "bandwidth": "sums of the bits that were read, or words that were written, equal the host's; twice the "
    "work takes twice the time; event and wall clock agree",
    "latency": "the chase ends where the host says; twice the hops take twice the time; event and wall clock "
    "agree",
    "transfer": "what arrives is what was sent",
}


def _listed(values: Iterable[object]) -> str:
    return ", ".join(map(str, values))
