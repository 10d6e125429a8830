"""Saved runs of schema 1, read as those of the schema after it.

In schema 1 some state was text: which tables a run gets stood in its command, what a skipped case needs in
its reason, a tuner's phase in the label, how a race went in notes. This module alone reads such text; what it
returns is typed. Its tables are of the day when schema 2 came and do not follow the registries: a variant
that is renamed later keeps its old name in old files.

A file that was begun with schema 1 and resumed later has rows of both schemas: fields that are set stay as
they are.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from gemmbench.model.row import RanOn, Row
    from gemmbench.model.run_file import Header

_VIEWS = ("peak", "gemm", "square", "sweep-k", "precision", "workloads", "tune")  # commands that measured
_SCOPES = ("kernel", "device", "host", "all")

_NEEDS = re.compile(r"(?:^|: )would take about ([\d.,]+(?:e[+-]?\d+)?) (ns|us|ms|s)\b")
_SECONDS = {"ns": 1e-9, "us": 1e-6, "ms": 1e-3, "s": 1.0}
_PHASE = re.compile(r"finalist|round \d+")
_RACED = "raced "  # how a note on the candidates of a race began

_HOST = "numpy"
# Variants and probes that multiply with matrix units, and the types for which they do not.
_MATRIX: Mapping[str, tuple[str, ...]] = {
    "nv-mma": (), "nv-wgmma": (), "cublas": ("float", "char"), "mma": (), "wgmma": ()
}  # fmt: skip

# Those of them that add up in another type than C's, by the type of the operands.
_SUMS: Mapping[tuple[str, str], str] = {(name, "half"): "float" for name in ("nv-mma", "nv-wgmma", "cublas")}

# Instructions that were counted where an assembler makes others of them, by compute capability.
_EMULATED = {("mma", "fp8"): ((9, 0), (10, 0), (10, 3), (11, 0))}


def header(old: Header) -> Header:
    """A header with its view and its scope, from the command that made the run."""
    words = old.command[1:] if old.command[:1] == ("gemmbench",) else old.command
    view = words[0] if words and words[0] in _VIEWS else ""
    return replace(old, view=view, scope=_scope(words))


def _scope(words: tuple[str, ...]) -> str:
    """What ``--scope`` chose, given as one word or as two; the last one counts."""
    scope = ""
    for index, word in enumerate(words):
        name, equals, value = word.partition("=")
        if name == "--scope":
            scope = value if equals else "".join(words[index + 1 : index + 2])
    return scope if scope in _SCOPES else ""


def row(old: Row, header: Header) -> Row:
    """A row, as its line was decoded, with its state in fields; the header is as `header` returned it."""
    races = tuple(note for note in old.notes if note.startswith(_RACED))
    phase = old.label if _PHASE.fullmatch(old.label) else "trial"
    needs = _NEEDS.search(old.reason) if old.status == "skipped" and old.needs_s is None else None
    state: dict[str, Any] = {
        "ran_on": _ran_on(old) if old.ran_on == "device" else old.ran_on,
        "sums": old.sums or (_SUMS.get((old.variant, old.dtype), "") if old.kind == "gemm" else ""),
        "needs_s": float(needs[1].replace(",", "")) * _SECONDS[needs[2]] if needs else old.needs_s,
        "race": (*old.race, *races),
        "notes": tuple(note for note in old.notes if note not in races),
    }
    changed = {name: value for name, value in state.items() if value != getattr(old, name)}
    new = replace(old, **changed) if changed else old
    if header.view == "tune" and not old.phase:
        new = replace(new, phase=phase, label="")
    return _uncounted(new, header)


def _uncounted(old: Row, header: Header) -> Row:
    """A rate of instructions that did not run is none, as of a device that lacks them."""
    where = _EMULATED.get((old.variant, old.dtype), ()) if old.status == "ok" else ()
    devices = header.devices[old.device :][:1] if old.device >= 0 else ()
    if not any(device.compute_capability in where for device in devices):
        return old
    reason = f"the assembler makes {old.variant} {old.dtype} of other instructions there than were counted"
    return replace(old, status="unsupported", reason=reason, samples={})


def _ran_on(old: Row) -> RanOn:
    variant = old.variant
    if variant == _HOST:
        return "host"
    return "matrix" if old.dtype not in _MATRIX.get(variant, (old.dtype,)) else "device"
