"""Notes below a table: what could not run and why, what is noisy, what is wrong with the drivers."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from gemmbench.ladder import BASELINE
from gemmbench.model import units
from gemmbench.model.device import HOST
from gemmbench.model.instrument import is_too_slow
from gemmbench.model.row import BLAS, CHAIN, Row, Status, titled
from gemmbench.model.run_file import Run
from gemmbench.model.units import by_key, clean, clean_lines, listed
from gemmbench.report.table import Cell, Note
from gemmbench.stats import rates

Where = Callable[[Row], str]  # a row's place in the table: "2048"

WORDS: dict[Status, str] = {
    "ok": "ok",
    "wrong": "wrong",
    "unsupported": "unsup",
    "skipped": "skip",
    "failed": "fail",
    "crashed": "crash",
    "timed-out": "t/o",
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
UNCERTAIN = "~"
_CHAIN = "of kernels a chain of launches, from the first start to the last end; of cuBLAS a CUDA graph"
_MOST = 8  # notes of one sort; the rest is counted
_FEW_NAMES = 3  # combinations of a grid; more are counted


def troubles(rows: Iterable[Row], where: Where, each: str = "size") -> list[Note]:
    """Rows without a figure, those of one reason together, the gravest first."""
    rows = tuple(rows)
    every = len(set(map(where, rows)))
    slow = _too_slow(rows)

    def reason_of(row: Row) -> str:
        return slow if slow and is_too_slow(row) else clean_lines(row.reason) or "no reason given"

    groups = by_key(((row.status, reason_of(row)), row) for row in rows if row.status != "ok")
    gravity: list[Status] = ["wrong", "crashed", "timed-out", "failed", "skipped", "unsupported"]
    notes = [
        Note(WORDS[status], f"{places(groups[status, reason], where, every, each)}: {reason}", STYLES[status])
        for status, reason in sorted(groups, key=lambda group: gravity.index(group[0]))
    ]
    notes += [
        Note("suspect", f"{places([row], where)}: {'; '.join(map(clean, row.check.reasons))}", "yellow")
        for row in rows
        if (row.kind, row.status, row.check.verdict) == ("gemm", "ok", "suspect")
    ]
    bare = [row for row in rows if (row.kind, row.status, row.check.verdict) == ("gemm", "ok", "none")]
    if bare:
        notes.append(Note("not verified", places(bare, where, every, each), "yellow"))
    return _some(notes, "more reasons")


def _too_slow(rows: Sequence[Row]) -> str:
    """What several rows need that were skipped for their budget; "" if there are not several."""
    needs = [row.needs_s for row in rows if is_too_slow(row) and row.needs_s is not None]
    if len(needs) < 2:
        return ""
    each = f"{units.seconds(min(needs))} to {units.seconds(max(needs))} each"
    return f"would take {each}; --budget {int(max(needs)) + 1} runs all"


def uncertain(run: Run, rows: Iterable[Row]) -> list[Note]:
    """What the mark ``~`` means, and what to do about it; nothing where no row has it."""
    if not any(rates.is_uncertain(run, row) for row in rows):
        return []
    budget = units.number(run.header.policy.budget_s)
    text = f"uncertain by more than {units.percent(rates.UNCERTAIN)}"
    return [Note(UNCERTAIN, f"{text}: close other programs, or raise --budget (now {budget} s)", "yellow")]


def marked(run: Run, row: Row, figure: str) -> str:
    """A figure for a table, marked if it is uncertain."""
    return f"{UNCERTAIN}{figure}" if rates.is_uncertain(run, row) else figure


def remarks(rows: Iterable[Row], where: Where, each: str = "size") -> list[Note]:
    """What the rows say themselves, equal remarks together."""
    rows = tuple(rows)
    every = len(set(map(where, rows)))
    groups = by_key((clean_lines(note), row) for row in rows for note in row.notes)
    notes = [
        Note("note", f"{places(alike, where, every, each)}: {note}", "dim") for note, alike in groups.items()
    ]
    return _some(notes, "more notes (--save keeps them, show FILE --format json has them all)")


def combinations(rows: Iterable[Row], scope: str, where: Where, each: str = "size") -> list[Note]:
    """Which combination of a grid's parameters was the best, where, and how far it stands out.

    A line for each kernel: combinations are not timed in turn, so others whose intervals overlap the best
    one's are counted, where there are intervals. Arguments as of `remarks`.
    """
    kernels: dict[str, dict[str, list[Row]]] = {}
    for row in rows:
        if row.grid:
            kernel = titled(row.variant, row.parameters)
            kernels.setdefault(kernel, {}).setdefault(where(row), []).append(row)
    lines = []
    for kernel, by_place in kernels.items():
        winners: dict[str, list[str]] = {}
        leads, alike, tried = [], [], 0
        for label, own_rows in by_place.items():
            rated = [(rate, row) for row in own_rows if (rate := rates.shown_rate(row, scope))]
            if not rated:
                continue
            top, best = max(rated, key=lambda pair: pair[0].median)
            winners.setdefault(listed({name: best.parameters[name] for name in best.grid}), []).append(label)
            leads.append(top.median / min(rate.median for rate, _ in rated))
            alike.append(sum(rate.high >= top.low for rate, row in rated if row is not best))
            tried = max(tried, len(rated))
        if not winners:
            continue
        every = len(by_place)
        text = "; ".join(f"{values} at {_at(labels, every, each)}" for values, labels in winners.items())
        text += f": {_range(map(units.number, leads))} times the slowest of {tried}"
        if any(alike):
            text += f"; {_range(map(str, alike))} of them within its interval"
        lines.append(Note(f"best {clean(kernel)}", f"{text}.", "bold"))
    return lines


def _range(texts: Iterable[str]) -> str:
    """``1.3 to 1.5``, or the one that there is."""
    ordered = sorted(texts, key=float)
    return " to ".join(dict.fromkeys((ordered[0], ordered[-1])))


def warnings(run: Run, device: int) -> list[Note]:
    """What is wrong with a device's driver."""
    texts = run.header.devices[device].warnings if device != HOST else ()
    return [Note("warning", clean_lines(text), "yellow") for text in dict.fromkeys(texts)]


def scopes(run: Run, device: int, rows: Iterable[Row], scope: str) -> list[Note]:
    """The scope of what was not measured in a table's own: the host's BLAS, and libraries."""
    rows, texts = tuple(rows), dict[str, str]()
    for row in rows:
        shown = rates.shown_scope(row, scope)
        if row.status != "ok" or shown == scope:
            continue
        is_numpy = row.variant == BASELINE and BLAS not in row.choice
        name = f"{clean(run.header.host.blas)}, " if is_numpy and device != HOST else ""
        ranked = "" if rates.is_compared(run, device, row, scope) else ", not compared with the others"
        texts.setdefault(clean(row.title), f"{name}{shown} scope{ranked}")
    turned = [] if BASELINE in texts else numpy_in_turn(run, rows)
    return [*(Note(name, text, "dim") for name, text in texts.items()), *turned, *gaps(rows, scope)]


def numpy_in_turn(run: Run, rows: Iterable[Row]) -> list[Note]:
    """Which BLAS numpy has, where rows were taken in turn with it."""
    is_turned = any(row.former and row.former.variant == BASELINE for row in rows)
    return [Note(BASELINE, f"{clean(run.header.host.blas)}, in turn", "dim")] if is_turned else []


def gaps(rows: Iterable[Row], scope: str) -> list[Note]:
    """What the device scope of kernels is beside a library's, whose launches have gaps between them, too."""
    chains = any(rates.shown_samples(row, scope) == CHAIN for row in rows)
    return [Note("device scope", _CHAIN, "dim")] if chains else []


def figure(row: Row | None, rate: float | None, best: bool = False, run: Run | None = None) -> Cell:
    """A row's rate in flop/s as an entry, or its status; nothing without a row.

    If the run is given, the figure is `marked`.
    """
    if row is None or row.status != "ok":
        return Cell(WORDS[row.status], style=STYLES[row.status]) if row else Cell("")
    if rate is None:
        return Cell("-")
    text = units.gflops(rate)
    return Cell(marked(run, row, text) if run else text, best)


def noise(row: Row) -> Cell:
    """Noise of the finest scope as an entry."""
    value = rates.noise(row)
    return Cell("-" if value is None else units.percent(value), style="dim" if value is None else "")


def places(rows: Sequence[Row], where: Where, every: int = 0, each: str = "size") -> str:
    """Variants and where: ``naive at 1024, 2048; tiled at 2048``; of microbenchmarks only where.

    A variant that has `every` place, if so many are known, is ``at every size``, or whatever `each` is.
    """
    if all(row.kind != "gemm" for row in rows):
        # "float, width 2" and "float, width 4" are "float, width 2, 4"
        alike = by_key(where(row).rpartition(" ")[::2] for row in rows)
        return "; ".join(f"{words} {', '.join(last)}".strip() for words, last in alike.items())
    groups = by_key((clean(row.title), where(row)) for row in rows)
    by_place = by_key((_at([*dict.fromkeys(labels)], every, each), name) for name, labels in groups.items())
    return "; ".join(f"{', '.join(_counted(names))} at {text}" for text, names in by_place.items())


def _at(labels: Sequence[str], every: int, each: str) -> str:
    """``512, 1024``, or ``every size`` where these are all there are."""
    return f"every {each}" if every > 1 and len(labels) == every else ", ".join(labels)


def _counted(names: Sequence[str]) -> list[str]:
    """Series by name, but a number for the many combinations of a grid."""
    kernels = by_key((name.partition(" ")[0], name) for name in names)
    parts = []
    for kernel, several in kernels.items():
        parts += several if len(several) <= _FEW_NAMES else [f"{len(several)} combinations of {kernel}"]
    return parts


def _some(notes: list[Note], more: str) -> list[Note]:
    if len(notes) <= _MOST:
        return notes
    return [*notes[: _MOST - 1], Note("", f"... and {len(notes) - _MOST + 1} {more}", "dim")]


def shape(row: Row) -> str:
    """A row's problem, shortly: ``512`` for a square, else ``1024x1024x64``; alpha and beta if odd."""
    problem = row.problem
    if problem is None:
        return "-"
    text = problem.size
    if (problem.alpha, problem.beta) != (1.0, 0.0):
        text += f" a={problem.alpha:g} b={problem.beta:g}"
    return text
