"""A comparison as a table, markdown, JSON, GitHub annotations and JUnit."""

from __future__ import annotations

import json
import math
import re
import textwrap
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import PurePath
from statistics import geometric_mean
from typing import TYPE_CHECKING

from gemmbench.model import units
from gemmbench.model.device import HOST
from gemmbench.model.row import MATH, Problem, Row, export_parameters
from gemmbench.model.run_file import Run
from gemmbench.model.units import by_key, clean, clean_lines, count_noun, list_values
from gemmbench.report.notes import mark_uncertain, shape
from gemmbench.report.table import Cell, Note, Sheet, finite, heading, markdown
from gemmbench.stats.claims import best_of_shapes, faster_device
from gemmbench.stats.rates import view_scope
from gemmbench.suite.options.comparing import ELSEWHERE, FAILING, LOST, VERDICTS, RowVerdict

if TYPE_CHECKING:
    from gemmbench.regress.compare import ComparedRow, Comparison

_STYLES: dict[RowVerdict, str] = {
    **dict.fromkeys(FAILING, "bold red"),
    **dict.fromkeys(("possibly slower", "cannot tell", "differs", *LOST), "yellow"),
    "new": "dim",
    ELSEWHERE: "",
    "within": "",
    "unchanged": "",
    "faster": "green",
}
SUMMED_UP: tuple[RowVerdict, ...] = ("unchanged", "within")  # in a note below a table
_REMARKS = 3  # shown below a table
_NAMES = 3  # listed in a remark
_USELESS = 2.0  # a smallest slowdown, as a fraction, from which it does not matter how large it is
_LABEL = 16  # letters of a run's name above a column
_MOST_ANNOTATIONS = 10  # that GitHub shows of one step
# Letters that XML 1.0 does not allow, escaped or not.
_ILLEGAL = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def comparison_markdown(comparison: Comparison, every: bool = False) -> str:
    """A comparison for the summary of a CI job, with the conclusion first."""
    *tables, last = comparison_sheets(comparison, every)
    rest = replace(last, notes=last.notes[1:])
    return f"### gemmbench: {conclusion(comparison)}\n\n{markdown([*tables, rest])}"


def comparison_sheets(comparison: Comparison, every: bool = False) -> list[Sheet]:
    """A table of the changed rows (`every`: of all) for each device, then conclusion and remarks."""
    groups = by_key((line.key[1], line) for line in comparison.lines)
    devices = sorted(groups, key=lambda device: (device == HOST, device))
    devices = devices if comparison.compared or every else []
    failures, remarks = _reasons(comparison, every)
    if not every and len(remarks) > _REMARKS:
        remarks.sort(key=lambda note: note.text not in comparison.remarks[-1:])  # the last one is first
        more = count_noun(len(remarks) - _REMARKS + 1, "more remark")
        remarks = [*remarks[: _REMARKS - 1], Note("", f"{more}: -v shows them.", "dim")]
    last = Sheet(notes=(Note("", conclusion(comparison), "bold"), *failures, *remarks))
    tables = (_lines_sheet(comparison, groups[device], every) for device in devices)
    (base, new), scope = (comparison.bases[0], comparison.news[0]), comparison.rules.scope
    pairs = (s for old, at in comparison.device_pairs for s in two_devices((base, old), (new, at), scope))
    return [*pairs, *(table for table in tables if table.rows or table.notes), last]


def two_devices(old: tuple[Run, int], new: tuple[Run, int], scope: str | None = None) -> Iterator[Sheet]:
    """A table of the shapes that two devices (run and position) both ran."""
    sides, scope = (old, new), scope or view_scope(old[0], new[0])
    best = [best_of_shapes(run.rows, run, device, scope) for run, device in sides]
    shared = [key for key in best[0] if key in best[1]]
    if not shared:
        return
    types = dict.fromkeys(dtype for dtype, _ in shared)
    peaks = [[peak for dtype in types for peak in heading(*side, dtype)[3:]] for side in sides]
    facts = [(*heading(*side), *peaks[at]) for at, side in enumerate(sides)]
    names = [f"{each[0]}, {each[1]}" if facts[0][0] == facts[1][0] else each[0] for each in facts]

    def cells(key: tuple[str, Problem]) -> Iterator[Cell]:
        pairs = [each[key] for each in best]
        yield from (Cell(where(pairs[1][0])), Cell(key[0]))
        for (run, _), (row, rate) in zip(sides, pairs, strict=True):
            seconds = units.seconds(key[1].flops / rate.median)
            yield Cell(f"{mark_uncertain(run, row, seconds, scope)} {clean(row.title)}")
        yield Cell(units.number(pairs[1][1].median / pairs[0][1].median))

    mean = geometric_mean([best[1][key][1].median / best[0][key][1].median for key in shared])
    is_certain = all(each[key][1].is_certain for each in best for key in shared)
    last = Cell("~" * (not is_certain) + units.number(mean))
    program = faster_device((names[0], names[1]), best[0], best[1])
    yield Sheet(
        heading=facts[1],
        caption=f"compared with {', '.join(facts[0])}; the fastest of each shape that both ran",
        keys=("", "type"),
        blocks=((*(textwrap.fill(name, 2 * _LABEL) for name in names), "times as fast"),),
        rows=(*map(tuple, map(cells, shared)), (Cell("geometric mean"), *[Cell("")] * 3, last)),
        notes=(Note("", program, "bold"),) if program else (),
        left=frozenset({"type"}),
    )


def _lines_sheet(comparison: Comparison, lines: Sequence[ComparedRow], every: bool) -> Sheet:
    order, typed = list(VERDICTS), _is_typed(comparison)
    shown = [line for line in lines if line.ratio and (every or line.verdict not in SUMMED_UP)]
    shown.sort(key=lambda line: (order.index(line.verdict), -_size(line)))
    has_interval = any(map(interval, shown))
    has_minima = every and not comparison.rules.interleaved
    elsewhere = [line for line in shown if line.verdict == ELSEWHERE]
    speeds = [1 / line.ratio.median for line in elsewhere if line.ratio]
    has_results = len(speeds) < len(shown)
    has_thresholds = every and len({line.threshold for line in shown}) > 1

    def cells(line: ComparedRow) -> Iterator[Cell]:
        style = _STYLES[line.verdict]
        marks = ("~" if is_uncertain else "" for is_uncertain in line.uncertain)
        times = zip(marks, (line.base_s, line.new_s), strict=True)
        yield from (
            Cell(row_name(line.row, typed)),
            *(Cell(mark + time_text(value)) for mark, value in times),
        )
        yield Cell(_shown_change(line), style=style)
        yield from [Cell(interval(line), style=style)] if has_interval else []
        yield from [Cell(_words(line), style=style)] if has_results else []
        yield from [Cell(change(line.ratio.minima) if line.ratio else "")] if has_minima else []
        yield from [Cell(units.percent(line.threshold))] if has_thresholds else []

    more = [*(["by minima"] if has_minima else []), *(["threshold"] if has_thresholds else [])]
    columns = (*_side_labels(comparison), "change" if has_results else "rate", *["interval"] * has_interval)
    columns += ("result",) * has_results
    speed = "~" * any(any(line.uncertain) for line in elsewhere) + units.number(geometric_mean(speeds or [1]))
    mean = f"On another device, {len(speeds)} rows: geometric mean {speed} x as fast"
    return Sheet(
        heading=tuple(map(clean, lines[0].device.split(" | ", 1))),
        caption="batches alternate between old and new kernels" if comparison.rules.interleaved else "",
        blocks=(columns, *([tuple(more)] if more else [])),
        rows=tuple(tuple(cells(line)) for line in shown),
        notes=(
            *([Note("", mean, "bold")] if len(speeds) > 1 else []),
            *(Note("", text, "dim") for text in (() if every else _summed_up(lines, bool(shown), typed))),
        ),
        left=frozenset({"result"}),
    )


def _shown_change(line: ComparedRow) -> str:
    if line.ratio and line.verdict == ELSEWHERE:
        return f"{units.number(1 / line.ratio.median)} x"
    return change(line.ratio.median) if line.ratio else ""


def _size(line: ComparedRow) -> float:
    return abs(line.ratio.median - 1) if line.ratio else 0.0


def _is_typed(comparison: Comparison) -> bool:
    return len({line.row.dtype for line in comparison.lines}) > 1


def _side_labels(comparison: Comparison) -> tuple[str, str]:
    """What to call the two sides: file names if they are short and differ."""
    if comparison.rules.interleaved:
        return "old", "new"
    sides = (comparison.bases, "baselines"), (comparison.news, "new runs")
    before, after = (
        clean(PurePath(runs[0].path).stem) if len(runs) == 1 else f"{len(runs)} {what}"
        for runs, what in sides
    )
    usable = before != after and all(0 < len(label) <= _LABEL for label in (before, after))
    return (before, after) if usable else ("baseline", "new")


def _summed_up(lines: Sequence[ComparedRow], are_more: bool, typed: bool) -> Iterator[str]:
    """The rows that are not in a table: ``5 more rows within 10 %, the largest +2.2 % (tiled 64)``."""
    for verdict in SUMMED_UP:
        if alike := [line for line in lines if line.verdict == verdict]:
            rows = count_noun(len(alike), "more row" if are_more else "row")
            what = _within(alike) if verdict == "within" else f"{verdict} ({_within(alike)})"
            largest = max(alike, key=_size)
            changed = change(largest.ratio.median) if largest.ratio else ""
            yield f"{rows} {what}, the largest {changed} ({row_name(largest.row, typed)})"


def _words(line: ComparedRow) -> str:
    return _within([line]) if line.verdict == "within" else line.verdict


def _within(lines: Sequence[ComparedRow]) -> str:
    """``within 10 %``, ``within 5 to 10 %``."""
    used = sorted({line.threshold for line in lines})
    limits = dict.fromkeys(rounded_percent(value) for value in (used[0], used[-1]))
    return f"within {' to '.join(limits)}".replace(" % to", " to")


def conclusion(comparison: Comparison) -> str:
    """The number of rows with each verdict: ``1 slower, 35 within 10 %.``"""
    groups = by_key((line.verdict, line) for line in comparison.lines)
    texts = [
        f"{len(groups[verdict])} {_counted(groups[verdict])}" for verdict in VERDICTS if verdict in groups
    ]
    return f"{', '.join(texts) or 'No rows'}."


def _counted(lines: Sequence[ComparedRow]) -> str:
    """The common verdict of rows, and what slowdown would have been found."""
    if lines[0].verdict == "within":
        return _within(lines)
    smallest = [line.smallest_slowdown for line in lines]
    known = [each for each in smallest if each is not None]
    return lines[0].verdict + (f" ({_would_find(max(known))})" if len(known) == len(lines) else "")


def _would_find(slowdown: float) -> str:
    """``a slowdown of 23 % would be found``"""
    if slowdown > _USELESS:
        return f"a slowdown of {rounded_percent(_USELESS)} would be missed"
    return f"a slowdown of {math.ceil(100 * slowdown)} % would be found"


def _reasons(comparison: Comparison, every: bool) -> tuple[list[Note], list[Note]]:
    """Notes why rows fail, and other notes, the most frequent first."""
    interleaved = comparison.rules.interleaved
    reasons = {
        "missing": "not in the new run",
        "new": "not in the baseline",
        "possibly slower": "above the threshold, but not above the limit for failing",
        "cannot tell": (
            "stop other programs, or raise --patience"
            if interleaved
            else "runs differ too much; use check --against"
        ),
    }
    changed = (line for line in comparison.lines if line.resources and line.verdict != "resources changed")
    pairs = [
        ((line.verdict, line.reason or reasons.get(line.verdict, "")), line) for line in comparison.lines
    ]
    groups = by_key([*pairs, *((("resources", line.resources), line) for line in changed)])
    failures: list[Note] = []
    remarks: list[Note] = []
    for (label, reason), lines in sorted(groups.items(), key=lambda group: -len(group[1])):
        if reason:
            names = [row_name(line.row, _is_typed(comparison)) for line in lines]
            rows = ", ".join(names) if every or len(names) <= _NAMES else count_noun(len(names), "row")
            note = Note(label, f"{rows}: {clean_lines(reason)}", _STYLES[lines[0].verdict] or "yellow")
            (failures if label in FAILING else remarks).append(note)
    remarks += [Note("", remark, "yellow") for remark in comparison.remarks]
    if every:
        left_out = comparison.left_out.items()
        remarks += [Note("not compared", f"{count} {why}", "dim") for why, count in left_out]
    return failures, remarks


def change(ratio: float) -> str:
    """A ratio of times as a change: ``+10.2 %``, ``-62.3 %``, ``+1,380 %``; ``-`` from 1e6 on."""
    if not ratio < 1e6:
        return "-"
    percentage = 100 * (ratio - 1)
    return f"{percentage:+,.{1 if percentage < 99.95 else 0}f} %".replace("-0.0", "+0.0")


def rounded_percent(fraction: float) -> str:
    """A percentage for a sentence, without a decimal 0: ``10 %``, ``12.1 %``."""
    return units.percent(fraction).replace(".0 %", " %")


def interval(line: ComparedRow) -> str:
    """The interval of the change: ``+8.1 to +12.3 %``; "" if it is unknown."""
    if line.ratio is None or math.isnan(line.ratio.low):
        return ""
    low, high = change(line.ratio.low), change(line.ratio.high)
    return f"{low.removesuffix(' %')} to {high}"


def time_text(value: float | None) -> str:
    """A time for a table; "" for none."""
    return "" if value is None else units.seconds(value)


def where(row: Row) -> str:
    """The label and size of a GEMM row, or the parameters of a probe."""
    if row.kind == "gemm":
        return f"{clean(row.label)} {shape(row)}".strip()
    if list(row.parameters) == ["bytes"]:
        return units.size(int(row.parameters["bytes"]))
    return list_values(row.parameters)


def row_name(row: Row, typed: bool = True) -> str:
    """A row with its type and the parameters that the user gave: ``register float 512 BM=64``."""
    given = (name for name in row.given or () if name in row.parameters and name not in (MATH, *row.grid))
    parameters = list_values({name: row.parameters[name] for name in given}) if row.kind == "gemm" else ""
    return " ".join(filter(None, (clean(row.title), row.dtype if typed else "", where(row), parameters)))


def describe_line(line: ComparedRow) -> str:
    """``slower: +10.2 % (+8.1 to +12.3 %), 1.00 ms to 1.10 ms, threshold 5.0 %``."""
    if line.ratio is None:
        return f"{line.verdict}: {clean(line.reason) or VERDICTS[line.verdict]}"
    smallest = line.smallest_slowdown
    changes = clean(line.resources) if line.verdict != "resources changed" else ""
    more = (clean(line.reason), _would_find(smallest) if smallest is not None else "", changes)
    ends, times = interval(line), f"{time_text(line.base_s)} to {time_text(line.new_s)}"
    shown = f"{_words(line)}: {_shown_change(line)}{f' ({ends})' if ends else ''}"
    return "; ".join(filter(None, (f"{shown}, {times}, threshold {units.percent(line.threshold)}", *more)))


def comparison_json(comparison: Comparison) -> str:
    """A comparison as a JSON object: files, scope, counts of verdicts, remarks and ``rows``."""
    whole = {
        "bases": [run.path for run in comparison.bases],
        "news": [run.path for run in comparison.news],
        "scope": comparison.rules.scope,
        "interleaved": comparison.rules.interleaved,
        "verdicts": {verdict: comparison.counts[verdict] for verdict in VERDICTS},
        "left_out": dict(comparison.left_out),
        "remarks": list(comparison.remarks),
        "rows": [_line_columns(line) for line in comparison.lines],
    }
    return json.dumps(finite(whole), allow_nan=False, indent=1) + "\n"


def _line_columns(line: ComparedRow) -> dict[str, object]:
    """A compared row as columns for JSON."""
    row, ratio = line.row, line.ratio
    identity = ("kind", "variant", "dtype", "parameters", "label")
    return {
        **{field: getattr(row, field) for field in identity},
        "parameters": export_parameters(row.parameters),
        "device": line.device,
        **{field: getattr(row.problem, field, None) for field in ("m", "n", "k")},
        **{
            field: bool(getattr(row.problem, field)) if row.problem else None
            for field in ("trans_a", "trans_b")
        },
        **{field: getattr(row.problem, field, None) for field in ("alpha", "beta")},
        **{field: getattr(line, field) for field in ("verdict", "reason", "resources")},
        "threshold": line.threshold or None,
        "ratio": ratio.median if ratio else None,
        **{end: getattr(ratio, end, None) for end in ("low", "high", "minima")},
        **{field: getattr(line, field) for field in ("spread", "smallest_slowdown", "base_s", "new_s")},
        **dict(zip(("base_uncertain", "new_uncertain"), line.uncertain, strict=True)),
        **dict(zip(("base_runs", "new_runs"), line.runs, strict=True)),
    }


def _failing_lines(comparison: Comparison, strict: bool, missing_fails: bool) -> list[ComparedRow]:
    return [
        line
        for line in comparison.lines
        if line.fails or (strict and line.is_possibly_slower) or (missing_fails and line.lost)
    ]


def comparison_annotations(comparison: Comparison, strict: bool = False, missing_fails: bool = False) -> str:
    """GitHub workflow commands: errors, warnings for uncertain and missing rows, a notice.

    Possibly slower rows fail if `strict`, lost ones if `missing_fails`.
    """
    errors = _failing_lines(comparison, strict, missing_fails)
    rest = [line for line in comparison.lines if line not in errors]
    commands = [
        *_commands("error", errors),
        *_commands("warning", [line for line in rest if line.lost or line.is_inconclusive]),
        _command("notice", "gemmbench", conclusion(comparison)),
    ]
    return "\n".join(commands) + "\n"


def _commands(level: str, lines: Sequence[ComparedRow]) -> list[str]:
    shown = lines if len(lines) <= _MOST_ANNOTATIONS else lines[: _MOST_ANNOTATIONS - 1]
    commands = [_command(level, f"gemmbench: {row_name(line.row)}", describe_line(line)) for line in shown]
    if len(shown) < len(lines):
        commands.append(_command(level, "gemmbench", f"and {len(lines) - len(shown)} more rows"))
    return commands


def _command(level: str, title: str, message: str) -> str:
    escapes: dict[str, str | int | None] = {"%": "%25", "\r": "%0D", "\n": "%0A"}
    message = message.translate(str.maketrans(escapes))
    title = title.translate(str.maketrans(escapes | {":": "%3A", ",": "%2C"}))
    return f"::{level} title={title}::{message}"


def comparison_junit(
    comparison: Comparison, strict: bool = False, missing_fails: bool = False, command: str = "compare"
) -> str:
    """A JUnit report as XML, with a test for each row. See `comparison_annotations`."""
    # Imported here because it takes a tenth of a second.
    from junitparser import Failure, JUnitXml, Skipped, TestCase, TestSuite

    suite = TestSuite(f"gemmbench {command}")
    suite.add_property("conclusion", _text(conclusion(comparison)))
    failures = _failing_lines(comparison, strict, missing_fails)
    for line in comparison.lines:
        device = clean(line.device).replace(" | ", ", ").replace(".", "_")
        case = TestCase(_text(row_name(line.row)), classname=_text(device))
        case.time = line.new_s or 0.0
        text = _text(describe_line(line))
        if line in failures:
            case.result = [Failure(text, line.verdict)]
        elif line.is_inconclusive or line.verdict not in (*SUMMED_UP, "faster", "differs", ELSEWHERE):
            case.result = [Skipped(text)]
        else:
            case.system_out = text
        suite.add_testcase(case)
    document = JUnitXml("gemmbench")
    document.add_testsuite(suite)
    written: bytes = document.tostring()  # type: ignore[no-untyped-call]  # junitparser has no types
    return written.decode("utf-8") + "\n"


def _text(text: str) -> str:
    return _ILLEGAL.sub("\N{REPLACEMENT CHARACTER}", text)
