"""Notes below a table: which rows failed and why, which are uncertain, and warnings about drivers."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence

from gemmbench.model import units
from gemmbench.model.device import HOST
from gemmbench.model.instrument import is_too_slow
from gemmbench.model.row import ADDS_IN_HALF, CHAIN, FAILED, NO_CLOCK, Row, Status
from gemmbench.model.run_file import Run
from gemmbench.model.units import by_key, clean, clean_lines, count_noun
from gemmbench.report.table import Cell, Note
from gemmbench.stats import claims, rates

Where = Callable[[Row], str]  # where a row appears in the table, for example its size "2048"

WORDS: dict[Status, str] = {
    "ok": "ok",
    "wrong": "wrong",
    "unsupported": "not supported",
    "skipped": "skipped",
    "failed": "failed",
    "crashed": "crashed",
    "timed-out": "timed out",
}
STYLES: dict[Status, str] = {
    "ok": "",
    "wrong": "bold red",
    "unsupported": "dim",
    "skipped": "dim",
    "failed": "red",
    "crashed": "red",
    "timed-out": "red",
}
TILDE = "~"
_CALM = 0.9  # of the batches: from here on disturbances need no remark
_QUIET = "only what was measured then counts."
_GRAVITY: tuple[Status, ...] = ("wrong", "crashed", "timed-out", "failed", "skipped", "unsupported")
_CHAIN = "of kernels a chain of launches, from the first start to the last end; of cuBLAS a CUDA graph"
_MOST = 8  # notes of one sort; the rest is counted
_FEW_NAMES = 3  # combinations of a grid; more are counted
_ABOVE_PEAK = 1.005  # of the measured peak: shown as 101 %


def failures_by_reason(rows: Iterable[Row], where: Where, each: str = "size") -> list[Note]:
    """A note for each status and reason of rows that are not ok, the worst first; at most eight notes.

    `rows` are all rows of the table, and `where` gives a row's place in it.
    """
    rows = tuple(rows)
    every = len(set(map(where, rows)))
    groups = by_key(
        ((row.status, clean_lines(row.reason) or "no reason given"), row)
        for row in rows
        if row.status != "ok"
    )
    notes = [
        Note(WORDS[status], f"{places(groups[status, reason], where, every, each)}: {reason}", STYLES[status])
        for status, reason in sorted(groups, key=lambda group: _GRAVITY.index(group[0]))
    ]
    return _limited(notes, "more reasons")


def uncertain(run: Run, rows: Iterable[Row], where: Where, *scopes: str) -> list[Note]:
    """What the mark ``~`` means, the widest range of a rate, and what to do, if a row has it."""
    rows = [row for row in rows if row.status == "ok"]
    share = rates.quiet_share(rows)
    calm = [Note(f"quiet for {units.percent(share)} of the time", _QUIET, "dim")] if share < _CALM else []

    def samples(row: Row) -> list[str]:
        return [rates.shown_samples(row, scope) for scope in scopes] or [""]

    unsure = [row for row in rows if any(rates.is_uncertain(run, row, each) for each in samples(row))]
    if not unsure:
        tops = (rates.peak_of_row(run, row) for row in rows)
        has_doubt = any(top and rates.is_uncertain(top.run, top.row) for top in tops)
        text = "the measured peak is uncertain. --remeasure measures it again."
        return [*calm, *([Note(TILDE, text, "yellow")] if has_doubt else [])]
    slowed = [
        row
        for row in unsure
        if any(rates.estimate_slowing(run, row, each) > rates.UNCERTAIN for each in samples(row))
    ]
    spread = count_noun(len(unsure) - len(slowed), "row")
    patience = ", or raise --patience" if any(map(rates.has_bursts, slowed)) else ""
    causes = (
        f"Other programs slowed {count_noun(len(slowed), 'row')}: close those programs{patience}."
        if slowed
        else "",
        f"Samples of {spread} spread: raise --budget (now {run.header.policy.budget_s:g} s)."
        if len(slowed) < len(unsure)
        else "",
    )
    meaning = f"uncertain by more than {100 * rates.UNCERTAIN:g} %{_widest(run, unsure, where, scopes)}."
    return [*calm, Note(TILDE, " ".join(filter(None, (meaning, *causes))), "yellow")]


def _widest(run: Run, rows: Iterable[Row], where: Where, scopes: Sequence[str]) -> str:
    """The widest range of a rate: ``; widest: cpu-packed at 512, 35.2 to 118 GFLOPS``."""
    pairs = ((row, scope) for row in rows for scope in scopes or ("kernel",))
    known = [(each, row) for row, scope in pairs if (each := claims.evidence(run, row, scope))]
    if not known:
        return ""
    widest, row = max(known, key=lambda pair: pair[0].high / pair[0].low if pair[0].low else math.inf)
    if not widest.low:
        return f"; too few samples: {places([row], where)}"
    divisor, unit = rates.table_unit(row.dtype, [widest.high])
    low, high = (units.number(end / divisor) for end in (widest.low, widest.high))
    return f"; widest: {places([row], where)}, {low} to {high} {unit}"


def mark_uncertain(run: Run, row: Row, figure: str, scope: str = "") -> str:
    """A figure with the mark ``~`` in front if the row is uncertain in a scope, by default the finest."""
    return f"{TILDE}{figure}" if rates.is_uncertain(run, row, rates.shown_samples(row, scope)) else figure


def is_ladder(run: Run) -> bool:
    """Whether the command selected the whole ladder. Its tables then keep the ladder's order."""
    words = run.header.command
    values = [words[at + 1] for at, word in enumerate(words[:-1]) if word == "--kernel"]
    values += [word.partition("=")[2] for word in words if word.startswith("--kernel=")]
    return any(name in ("ladder", "all") for value in values for name in value.split(","))


def is_shown(run: Run, rows: Iterable[Row]) -> bool:
    """Whether the rows of a kernel appear: it can run on the device, or was selected by name."""
    return any(row.status != "unsupported" or row.variant in run.header.named for row in rows)


def remarks(run: Run, device: int, rows: Iterable[Row], where: Where, each: str, *scopes: str) -> list[Note]:
    """Notes on rows that are not ok, doubtful, uncertain or over budget, and on the driver, with places.

    `each` is the word for a place. `scopes` are the table's.
    """
    rows = tuple(rows)
    every = len(set(map(where, rows)))
    kinds = {status: [row for row in rows if row.status == status] for status in _GRAVITY}
    slow = [row for row in kinds["skipped"] if is_too_slow(row)]
    kinds["skipped"] = [row for row in kinds["skipped"] if not is_too_slow(row)]
    lines = []
    for status, alike in ((status, alike) for status, alike in kinds.items() if alike):
        reasons = dict.fromkeys(clean(row.reason) or "no reason given" for row in alike)
        reason = reasons.popitem()[0] if len(reasons) == 1 else "-v has the reasons"
        lines.append(Note(WORDS[status], f"{_few(alike, where, every, each)}: {reason}", STYLES[status]))
    lines += [
        *doubts(rows, where, each),
        *uncertain(run, rows, where, *scopes),
        *_above_peak(run, rows, *scopes[:1]),
    ]
    if any(NO_CLOCK in row.notes for row in rows if row.status == "ok"):
        lines.append(Note("", f"{NO_CLOCK[0].upper()}{NO_CLOCK[1:]}.", "dim"))
    halves = dict.fromkeys((row.title, note) for row in rows for note in row.notes if ADDS_IN_HALF in note)
    lines += [Note("", f"{clean(title)} {clean(note)}.", "yellow") for title, note in halves]
    if slow:
        budget = int(max(row.needs_s or 0.0 for row in slow)) + 1
        about = units.age(len(slow) * budget)
        them = "it" if len(slow) == 1 else "them"
        cells = count_noun(len(slow), "cell" if each == "size" else "result")
        text = f"{cells} over budget: --budget {budget} runs {them}, about {about} more."
        lines.append(Note("", text, "dim"))
    hosts = warnings(run, HOST) if device != HOST and any(map(rates.on_host, rows)) else []
    return [*lines, *warnings(run, device), *hosts]


def _above_peak(run: Run, rows: Iterable[Row], scope: str = "kernel") -> list[Note]:
    """The explanation of shares that are known to be above 100 %, if a table shows any."""
    for row in rows:
        known, top = claims.evidence(run, row, scope), rates.peak_of_row(run, row)
        if known and top and known.low >= _ABOVE_PEAK * top.rate:
            text = "Above 100 % of peak: the measured peak is too low. --remeasure measures it again."
            return [Note("", text, "yellow")]
    return []


def doubts(rows: Sequence[Row], where: Where, each: str = "size") -> list[Note]:
    """Notes that list ok GEMMs with a suspect check and those that were not verified, if there are any."""
    every = len(set(map(where, rows)))
    checks = by_key((row.check.verdict, row) for row in rows if (row.kind, row.status) == ("gemm", "ok"))
    return [
        Note(label, _few(checks[verdict], where, every, each), "yellow")
        for verdict, label in (("suspect", "suspect"), ("none", "not verified"))
        if verdict in checks
    ]


def faster_hosts(run: Run, rows: Iterable[Row], where: Where, each: str = "size") -> list[Note]:
    """The note on rows that are known to be faster with transfers than in their finest scope, if any are."""
    rows = tuple(rows)
    faster = []
    for row in rows:
        inner, host = rates.rate(row, rates.finest_scope(row) or ""), rates.rate(row, "host")
        if inner and host and host.low > rates.widen_interval(run, row, inner).high:
            faster.append(row)
    why = "timed at a faster moment"
    text = _few(faster, where, len(set(map(where, rows))), each)
    return [Note("host scope faster", f"{text}: {why}", "yellow")] if faster else []


def _few(rows: Sequence[Row], where: Where, every: int, each: str) -> str:
    """Where the first three kernels of these rows appear; other kernels are counted."""
    names = list(dict.fromkeys(row.title for row in rows))
    text = places([row for row in rows if row.title in names[:_FEW_NAMES]], where, every, each)
    return text + (f"; {len(names) - _FEW_NAMES} more" if len(names) > _FEW_NAMES else "")


def row_notes(rows: Iterable[Row], where: Where, each: str = "size") -> list[Note]:
    """Notes with the remarks stored in rows, one for each different remark; at most eight notes."""
    rows = tuple(rows)
    every = len(set(map(where, rows)))
    groups = by_key((clean_lines(note), row) for row in rows for note in row.notes)
    notes = [
        Note("note", f"{places(alike, where, every, each)}: {note}", "dim") for note, alike in groups.items()
    ]
    return _limited(notes, "more notes (--save keeps them, show FILE --format json has them all)")


def warnings(run: Run, device: int) -> list[Note]:
    """Notes with the warnings about a device's driver, or about the host's BLAS."""
    texts = run.header.devices[device].warnings if device != HOST else run.header.host.warnings
    return [Note("warning", clean_lines(text), "yellow") for text in dict.fromkeys(texts)]


def gaps(rows: Iterable[Row], scope: str) -> list[Note]:
    """The note that explains the device scope, if a row was timed as a chain of launches in this scope."""
    chains = any(rates.shown_samples(row, scope) == CHAIN for row in rows)
    return [Note("device scope", _CHAIN, "dim")] if chains else []


def rate_cell(run: Run, row: Row | None, scope: str, divisor: float, best: bool = False) -> Cell:
    """A cell with a rate in a scope over a divisor, the word for a failure, or ``-`` if there is no rate."""
    if row is not None and row.status in FAILED:
        return Cell(WORDS[row.status], style=STYLES[row.status])
    rate = rates.median_rate(row, scope)
    if row is None or rate is None:
        return Cell("-", style="dim")
    return Cell(mark_uncertain(run, row, units.number(rate / divisor), scope), best)


def places(rows: Sequence[Row], where: Where, every: int = 0, each: str = "size") -> str:
    """List kernels and where they appear: ``naive at 1024, 2048; tiled at 2048``; for probes only where.

    `every` is the number of all places, or 0 if unknown; all of them are ``every size``.
    """
    if all(row.kind != "gemm" for row in rows):
        # "float, width 2" and "float, width 4" are "float, width 2, 4"
        alike = by_key(where(row).rpartition(" ")[::2] for row in rows)
        return "; ".join(f"{words} {', '.join(dict.fromkeys(last))}".strip() for words, last in alike.items())
    groups = by_key((clean(row.title), where(row)) for row in rows)
    unique = ((name, dict.fromkeys(labels)) for name, labels in groups.items())
    by_place = by_key(
        (f"every {each}" if 1 < every == len(at) else ", ".join(at), name) for name, at in unique
    )
    return "; ".join(f"{', '.join(_counted(names))} at {text}" for text, names in by_place.items())


def _counted(names: Sequence[str]) -> list[str]:
    """The names of kernels. More than three combinations of one become a count."""
    kernels = by_key((name.partition(" ")[0], name) for name in names)
    parts = []
    for kernel, several in kernels.items():
        parts += several if len(several) <= _FEW_NAMES else [f"{len(several)} combinations of {kernel}"]
    return parts


def _limited(notes: list[Note], more: str) -> list[Note]:
    if len(notes) <= _MOST:
        return notes
    return [*notes[: _MOST - 1], Note("", f"... and {len(notes) - _MOST + 1} {more}", "dim")]


def shape(row: Row) -> str:
    """The size of a row's problem, ``512`` or ``8x8x4``, with unusual alpha and beta; ``-`` without one."""
    problem = row.problem
    if problem is None:
        return "-"
    text = problem.size
    if (problem.alpha, problem.beta) != (1.0, 0.0):
        text += f" a={problem.alpha:g} b={problem.beta:g}"
    return text
