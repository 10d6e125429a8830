"""A tuner's result: the best configurations, what failed, the winner beside the shipped preset."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from gemmbench.facts import units
from gemmbench.facts.records import Row, Run, Status
from gemmbench.facts.stats import Interval
from gemmbench.facts.text import clean, clean_lines, listed
from gemmbench.facts.tuning import Attempt, Comparison, Result, result
from gemmbench.render.heading import heading
from gemmbench.render.notes import STYLES, WORDS
from gemmbench.render.sheet import Cell, Note, Sheet

TOP = 10
_SHIPPED = "shipped"
_AGAIN = "when they took turns"
_FAULTS: Mapping[Status, str] = {
    "wrong": "gives wrong answers",
    "unsupported": "does not run",
    "skipped": "was not timed",
    "failed": "fails",
    "crashed": "crashed",
    "timed-out": "was stopped",
}
_REASONS = 6  # why configurations have no rate, that are told


def sheets(run: Run, top: int = TOP) -> list[Sheet]:
    """The best configurations, and the finals if there were any.

    Args:
        run: a tuner's.
        top: how many configurations.
    """
    if not run.rows:
        return []
    found = result(run)
    first = run.rows[0]
    tables = [_ranking(run, first, found, top)]
    if found.comparisons:
        tables.append(_finals(found))
    verdict = [Note("", _verdict(found), "bold"), *_losses(found)]
    if found.is_kept and found.winner is not None:
        family = run.header.devices[first.device].family
        key = family if first.dtype == "float" else f"{family}:{first.dtype}"
        verdict.append(Note("as a preset", preset_line(key, found.winner)))
    tables.append(Sheet(notes=tuple(verdict)))
    return tables


def preset_line(key: str, parameters: Mapping[str, int | float | str]) -> str:
    """A line for the ``presets`` of a variant's entry in the registry."""
    inside = ", ".join(f'"{clean(name)}": {clean(str(value))}' for name, value in parameters.items())
    return f'"{clean(key)}": {{{inside}}},'


def _ranking(run: Run, first: Row, found: Result, top: int) -> Sheet:
    shipped = found.default
    base = shipped.rate if shipped else None
    shown = list(found.ranked[:top])
    if shipped in found.ranked and shipped not in shown and shipped is not None:
        shown.append(shipped)
    names = tuple(first.parameters)
    sizes = dict.fromkeys(row.problem for one in found.attempts for row in one.rows if row.problem)
    places = {id(one): place for place, one in enumerate(found.ranked, 1)}
    rows = tuple(
        (
            Cell(_SHIPPED if one is shipped else str(places[id(one)])),
            Cell(units.gflops(one.rate or 0), best=places[id(one)] == 1),
            Cell(units.number((one.rate or 0) / base) if base else "-"),
            *(Cell(clean(str(one.parameters.get(name, "-")))) for name in names),
        )
        for one in shown
    )
    at = ", ".join(problem.shape for problem in sizes)
    mean = " (geometric mean)" if len(sizes) > 1 else ""
    failed = f", {len(found.failed)} without a rate" if found.failed else ""
    return Sheet(
        heading=heading(run, first.device),
        caption=f"{clean(first.variant)} {first.dtype} at {at}: GFLOPS of the search's short looks, device "
        f"scope{mean}; {len(found.attempts)} configurations tried{failed}",
        keys=("",),
        blocks=(("GFLOPS", f"x {_SHIPPED}"), names),
        rows=rows,
        notes=tuple(_failures(found.failed)),
    )


def _failures(failed: Sequence[Attempt]) -> list[Note]:
    """What became of the others: how many for each reason, the most frequent first, and one of them."""
    groups: dict[tuple[Status, str], list[Row]] = {}
    for row in (row for one in failed if (row := one.trouble)):
        groups.setdefault((row.status, clean_lines(row.reason) or "no reason given"), []).append(row)
    ordered = sorted(groups, key=lambda group: -len(groups[group]))
    notes = []
    for status, reason in ordered[:_REASONS]:
        mine = groups[status, reason]
        first = listed(mine[0].parameters)
        which = first if len(mine) == 1 else f"{len(mine)} configurations ({first}, ...)"
        notes.append(Note(WORDS[status], f"{which}: {reason}", STYLES[status]))
    rest = sum(len(groups[group]) for group in ordered[_REASONS:])
    return (
        [*notes, Note("", f"... and {rest} more for other reasons (-v shows them)", "dim")] if rest else notes
    )


def _finals(found: Result) -> Sheet:
    rounds = "times as fast as the shipped preset, in turns"
    return Sheet(
        caption=f"The winner ({listed(found.winner or {})}): {rounds}",
        keys=("m x n x k",),
        blocks=(("times", "95 % interval", "verdict"),),
        rows=tuple(_final(one) for one in found.comparisons),
        notes=tuple(Note(one.problem.shape, one.reason, "dim") for one in found.comparisons if one.reason),
    )


def _final(one: Comparison) -> tuple[Cell, ...]:
    size = Cell(one.problem.shape + ("" if one.searched else " (not searched)"))
    if one.speedup is None:
        return size, Cell("-"), Cell("-"), Cell("not timed", style="dim")
    style = "green" if one.speedup.is_above(1) else "red" if one.speedup.is_below(1) else ""
    return (
        size,
        Cell(units.ratio(one.speedup.median)),
        Cell(_interval(one.speedup)),
        Cell(_word(one.speedup), style=style),
    )


def _word(speedup: Interval) -> str:
    return "faster" if speedup.is_above(1) else "slower" if speedup.is_below(1) else "not beyond doubt"


def _interval(speedup: Interval) -> str:
    return f"{units.ratio(speedup.low)} to {units.ratio(speedup.high)}"


def _verdict(found: Result) -> str:
    """The answer in a sentence."""
    if not found.ranked:
        return "No configuration could be measured."
    if found.ranked == (found.default,):
        return "The shipped preset stays: nothing else was measured beside it. A longer --budget tries more."
    if not found.finished:
        return "The best few have not been timed against the shipped preset yet, so that nothing is kept."
    if found.winner is None:
        return "The shipped preset stays: none of the best few was faster when they were timed again."
    if found.fault is not None:
        at = f" at {found.fault.problem.shape}" if found.fault.problem else ""
        what = f"{_FAULTS[found.fault.status]}{at}, {_AGAIN}"
        return f"The shipped preset stays: the best found {what}: {clean_lines(found.fault.reason)}"
    trouble = found.default.trouble if found.default else None
    if trouble is not None and found.is_kept:
        return f"The winner is kept: the shipped preset {_FAULTS[trouble.status]} on this device."
    if trouble is not None:
        why = f"it {_FAULTS[trouble.status]}: {clean_lines(trouble.reason)}"
        return f"The shipped preset stays: nothing can be held against it, since {why}"
    if found.overall is None:
        return f"The shipped preset stays: it and the best found gave no pair of times {_AGAIN}."
    how = f"{units.ratio(found.overall.median)} times as fast ({_interval(found.overall)})"
    if found.is_kept:
        return f"The winner is kept: {how} as the shipped preset."
    what = "slower" if found.overall.is_below(1) else "not faster beyond doubt"
    return f"The shipped preset stays: the best found is {how}, which is {what}."


def _losses(found: Result) -> list[Note]:
    """Where the winner is slower, for whoever works at other sizes than those of the search."""
    lost = [one for one in found.comparisons if one.speedup and one.speedup.is_below(1)]
    if not lost or not found.is_kept:
        return []
    where = ", ".join(
        f"{one.problem.shape} ({units.ratio(one.speedup.median)})" for one in lost if one.speedup
    )
    return [Note("slower", f"at {where}; gemmbench tune --forget brings the shipped preset back", "yellow")]
