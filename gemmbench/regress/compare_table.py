"""A comparison as table, markdown, JSON and GitHub annotations."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from rich.console import RenderableType

from gemmbench.model import units
from gemmbench.model.device import HOST
from gemmbench.model.row import Row
from gemmbench.model.units import by_key, clean, clean_lines, listed
from gemmbench.regress.compare import Comparison, Line
from gemmbench.regress.verdict import VERDICTS, Verdict
from gemmbench.report.notes import places, shape
from gemmbench.report.table import Cell, Note, Sheet, finite, sheet_markdown, stack
from gemmbench.stats.rates import problem_fields

if TYPE_CHECKING:
    from junitparser import TestCase

STYLES: dict[Verdict, str] = {
    "slower": "bold red",
    "broken": "bold red",
    "changed": "bold red",
    "inconclusive": "yellow",
    "missing": "yellow",
    "incomparable": "dim",
    "new": "dim",
    "same": "",
    "faster": "green",
}
_MANY = 40  # lines; beyond it those that say nothing new are counted
_ONE_SIDED: tuple[Verdict, ...] = ("missing", "new")  # and these are listed below the table
_SMALL = 0.1  # ratios below it keep their digits
_MOST_ANNOTATIONS = 10  # that GitHub shows of one step


def table(comparison: Comparison, every: bool = False) -> RenderableType:
    """A table for each device, then the conclusion; with `every` also many rows that are the same."""
    return stack(sheets(comparison, every))


def to_markdown(comparison: Comparison, every: bool = False) -> str:
    """The same for a job's summary, the conclusion first."""
    tables = "\n".join(map(sheet_markdown, sheets(comparison, every)))
    return f"### gemmbench: {conclusion(comparison)}\n\n{tables}"


def sheets(comparison: Comparison, every: bool = False) -> list[Sheet]:
    """One table for each device, the remarks and the conclusion below the last."""
    hidden = not every and len(comparison.lines) > _MANY
    names = _names(comparison.lines)
    groups = by_key((line.key[1], line) for line in comparison.lines)
    devices = sorted(groups, key=lambda device: (device == HOST, device))
    every_sheet = (_sheet(comparison, groups[device], names, hidden) for device in devices)
    shown = [sheet for sheet in every_sheet if sheet.rows or sheet.notes]
    same = comparison.counts["same"] if hidden else 0
    last = Sheet(
        notes=(
            *(
                [Note("", f"{same} rows that are the same are not shown; -v shows them", "dim")]
                if same
                else []
            ),
            *_remarks(comparison),
            *([Note("resolution", resolution(comparison), "dim")] if comparison.resolution else []),
            Note("", conclusion(comparison), "bold"),
        )
    )
    return [*shown, last]


def _sheet(comparison: Comparison, lines: Sequence[Line], names: Mapping[int, str], hidden: bool) -> Sheet:
    shown = [line for line in lines if not hidden or line.verdict not in ("same", *_ONE_SIDED)]
    typed = len({line.row.dtype for line in comparison.lines}) > 1

    def cells(line: Line) -> tuple[Cell, ...]:
        judgement = line.judgement
        style = STYLES[line.verdict]
        return (
            Cell(clean(line.row.title)),
            Cell(names[id(line)]),
            *([Cell(line.row.dtype)] if typed else []),
            Cell(change(judgement.ratio) if judgement else "", style=style),
            Cell(line.verdict, style=style),
            Cell(interval(line)),
            Cell(cost(line, line.base_s)),
            Cell(cost(line, line.new_s)),
        )

    return Sheet(
        heading=tuple(map(clean, lines[0].device.split(" | ", 1))),
        caption=_caption(comparison),
        keys=("", "size", *(["type"] if typed else [])),
        blocks=(("change", "verdict"), ("interval",), ("base", "new")),
        rows=tuple(map(cells, shown)),
        left=frozenset({"verdict"}),
        notes=(*(_one_sided(lines, names) if hidden else ()), *_reasons(lines, names)),
    )


def _caption(comparison: Comparison) -> str:
    rules = comparison.rules
    what = f"{rules.scope} scope" if rules.scope else "finest scope"
    if rules.ratio:
        what += f", as ratios to {', '.join(map(clean, rules.ratio))} of the same run"
    if rules.in_turn:
        what += ", batch by batch in turn with its former self"
    return f"change of the time, {what}; + is slower"


def conclusion(comparison: Comparison) -> str:
    """How many rows have which verdict: ``1 slower, 35 same, of 36 rows; threshold 5.0 %``."""
    counts = comparison.counts
    counted = ", ".join(f"{counts[verdict]} {verdict}" for verdict in VERDICTS if counts[verdict]) or "none"
    used = sorted({line.threshold for line in comparison.lines if line.judgement})
    limits = [comparison.rules.thresholds.default] if not used else [used[0], used[-1]]
    threshold = " to ".join(dict.fromkeys(map(units.percent, limits)))
    count = len(comparison.lines)
    verdicts = f"{counted}, of {count} row{'' if count == 1 else 's'}; threshold {threshold}."
    if not (comparison.resolution and comparison.resolution.is_coarse):
        return verdicts
    least = change(1 + comparison.resolution.typical)
    return f"{verdicts} Too coarse for it: in a typical row {least} is the least that would have been found."


def resolution(comparison: Comparison) -> str:
    """``slower by +5.3 % in a typical row, +16.2 % in the worst (naive 64), is found 95 times in 100``."""
    least = comparison.resolution
    assert least is not None  # asked for where something was judged
    row = f"{clean(least.row.row.variant)} {where(least.row.row)}".strip()
    worst = f"{change(1 + least.worst)} in the worst ({row})"
    return f"{change(1 + least.typical)} in a typical row, {worst} would have been found 95 times in 100"


def why_nothing(comparison: Comparison) -> str:
    """Why no row could be compared, for a sentence that says so."""
    reasons = [line.reason or VERDICTS[line.verdict] for line in comparison.lines]
    reasons += [f"{count} rows {why}" for why, count in comparison.left_out.items()]
    return "; ".join(dict.fromkeys(map(clean, reasons))) or "the runs have no rows"


def _one_sided(lines: Sequence[Line], names: Mapping[int, str]) -> list[Note]:
    """The rows that only one of the runs has: what they are of, in a few lines."""
    notes = []
    for verdict in _ONE_SIDED:
        group = [line for line in lines if line.verdict == verdict and not line.reason]
        if group:
            counted = "1 row" if len(group) == 1 else f"{len(group)} rows"
            text = f"{counted}: {_places(group, names)}; -v shows each"
            notes.append(Note(verdict, text, STYLES[verdict]))
    return notes


def _reasons(lines: Sequence[Line], names: Mapping[int, str]) -> list[Note]:
    """Why rows are broken, inconclusive and so on, those of one reason together."""
    groups = by_key(((line.verdict, clean_lines(line.reason)), line) for line in lines if line.reason)
    order = list(VERDICTS)
    notes = []
    for verdict, reason in sorted(groups, key=lambda group: order.index(group[0])):
        where = _places(groups[verdict, reason], names)
        notes.append(Note(verdict, f"{where}: {reason}", STYLES[verdict]))
    changes = by_key(
        (clean(line.resources), line) for line in lines if line.resources and line.verdict != "changed"
    )
    notes += [
        Note("resources", f"{_places(group, names)}: {text}", "yellow") for text, group in changes.items()
    ]
    return notes


def _places(lines: Sequence[Line], names: Mapping[int, str]) -> str:
    """``naive at 1024, 2048; flops width=4``."""
    gemms = {id(line.row): names[id(line)] for line in lines if line.row.kind == "gemm"}
    rows = [line.row for line in lines if id(line.row) in gemms]
    probes = [f"{clean(line.row.variant)} {names[id(line)]}" for line in lines if line.row.kind != "gemm"]
    return "; ".join(filter(None, [places(rows, lambda row: gemms[id(row)]), *dict.fromkeys(probes)]))


def _remarks(comparison: Comparison) -> list[Note]:
    noise = comparison.noise
    floor = f"{units.percent(noise.typical)} from run to run for a typical row ({noise.source})"
    if not noise.rows and not comparison.rules.in_turn:  # of no repetitions
        floor += "; several bases, or --noise FILE with an A/A measurement (check --aa), tell it better"
    notes = [Note("noise floor", floor, "dim")]
    notes += [Note("left out", f"{count} {why}", "dim") for why, count in comparison.left_out.items()]
    return [*notes, *(Note("note", clean(remark), "yellow") for remark in comparison.remarks)]


def change(ratio: float) -> str:
    """A ratio of times as a change: ``+10.2 %``, ``-3.0 %``; from twice or half on ``x 2.4``, ``x 0.3``."""
    if ratio >= 2 or ratio <= 0.5:
        return f"x {units.number(ratio)}" if ratio < 1e6 else "-"
    return f"{(ratio - 1) * 100:+.1f} %".replace("-0.0", "+0.0")


def interval(line: Line) -> str:
    """The confidence interval of the change: ``+8.1 to +12.3 %``."""
    judgement = line.judgement
    if judgement is None:
        return ""
    if not (judgement.low > 0 and judgement.high < 1e6):
        return "-"
    low, high = change(judgement.low), change(judgement.high)
    return f"{low.removesuffix(' %')} to {high}" if high.endswith("%") else f"{low} to {high}"


def cost(line: Line, value: float | None) -> str:
    """A time, or a ratio of two."""
    if value is None:
        return ""
    if line.reference is None:
        return units.seconds(value)
    return f"x {units.number(value) if value >= _SMALL else f'{value:.3g}'}"


def where(row: Row) -> str:
    """A row's place in the table: its size, or a microbenchmark's parameters."""
    if row.kind == "gemm":
        return f"{clean(row.label)} {shape(row)}".strip()
    if list(row.parameters) == ["bytes"]:
        return units.size(int(row.parameters["bytes"]))
    return listed(row.case_parameters)


def _names(lines: Sequence[Line]) -> dict[int, str]:
    """Each line's place, with its parameters where variant and size alone do not tell it from another."""
    alike = by_key(((line.key[1], line.row.title, line.row.dtype, where(line.row)), line) for line in lines)
    names = {}
    for (*_, size), group in alike.items():
        for line in group:
            more = listed(line.row.case_parameters) if len(group) > 1 and line.row.kind == "gemm" else ""
            names[id(line)] = f"{size} {more}".strip()
    return names


def full_name(line: Line) -> str:
    """A row for machines and annotations: ``register float 512 (BM=64)``."""
    row = line.row
    parameters = listed(row.case_parameters) if row.kind == "gemm" else ""
    name = f"{clean(row.variant)} {row.dtype} {where(row)}".strip()
    return f"{name} ({parameters})" if parameters else name


def sentence(line: Line) -> str:
    """What happened to a row, in a line: ``10.2 % slower (+8.1 to +12.3 %); threshold 5.0 %``."""
    judgement = line.judgement
    if judgement is None:
        return f"{line.verdict}: {clean(line.reason) or VERDICTS[line.verdict]}"
    changes = f"; {clean(line.resources)}" if line.resources and line.verdict != "changed" else ""
    reason = f"; {clean(line.reason)}" if line.reason else ""
    times = f"{cost(line, line.base_s)} to {cost(line, line.new_s)}"
    threshold = units.percent(line.threshold)
    ratio = change(judgement.ratio)
    return f"{line.verdict}: {ratio} ({interval(line)}), {times}, threshold {threshold}{reason}{changes}"


def to_json(comparison: Comparison) -> str:
    """One object: what the comparison was, and its rows in ``rows``, one on each line."""
    noise = comparison.noise
    head: dict[str, object] = {
        "bases": [run.path for run in comparison.bases],
        "news": [run.path for run in comparison.news],
        "confidence": comparison.rules.confidence,
        "scope": comparison.rules.scope,
        "ratio": list(comparison.rules.ratio),
        "in_turn": comparison.rules.in_turn,
        "noise": {"typical": noise.typical, "source": noise.source},
        "resolution": _resolution(comparison),
        "verdicts": {verdict: comparison.counts[verdict] for verdict in VERDICTS},
        "left_out": dict(comparison.left_out),
        "remarks": list(comparison.remarks),
    }
    body = ",\n".join(f"  {_dumped(_flat(line))}" for line in comparison.lines)
    rows = f"[\n{body}\n ]" if body else "[]"
    pieces = [f" {json.dumps(name)}: {_dumped(value)}" for name, value in head.items()]
    return "{\n" + ",\n".join([*pieces, f' "rows": {rows}']) + "\n}\n"


def _resolution(comparison: Comparison) -> dict[str, object] | None:
    least = comparison.resolution
    if least is None:
        return None
    row = f"{least.row.row.variant} {where(least.row.row)}".strip()
    return {"typical": least.typical, "worst": least.worst, "worst_row": row, "is_coarse": least.is_coarse}


def _dumped(value: object) -> str:
    return json.dumps(finite(value), allow_nan=False, ensure_ascii=True)


def _flat(line: Line) -> dict[str, object]:
    row, judgement, reference = line.row, line.judgement, line.reference
    return {
        "kind": row.kind,
        "variant": row.variant,
        "dtype": row.dtype,
        "device": line.device,
        "parameters": row.case_parameters,
        "label": row.label,
        **problem_fields(row.problem, "m", "n", "k", "trans_a", "trans_b", "alpha", "beta"),
        "verdict": line.verdict,
        "reason": line.reason,
        "resources": line.resources,
        "threshold": line.threshold or None,
        **{name: getattr(judgement, name, None) for name in ("ratio", "low", "high", "floor")},
        "resolution": line.resolution,
        "base_s": line.base_s if reference is None else None,
        "new_s": line.new_s if reference is None else None,
        "base_over_reference": line.base_s if reference else None,
        "new_over_reference": line.new_s if reference else None,
        "reference": f"{reference.variant} {where(reference)}".strip() if reference else None,
        "base_runs": line.runs[0],
        "new_runs": line.runs[1],
    }


def to_github(comparison: Comparison, strict: bool = False, missing_fails: bool = False) -> str:
    """Workflow commands: an error for each regression, warnings for what is open or missing, a notice.

    GitHub shows ten of a kind for a step: what is beyond them is counted in the last. With `strict`
    inconclusive rows are errors, with `missing_fails` those that were not compared.
    """
    errors = [line for line in comparison.lines if line.fails]
    errors += [line for line in comparison.lines if strict and line.open]
    errors += [line for line in comparison.lines if missing_fails and line.lost]
    warned: tuple[Verdict, ...] = ("inconclusive", "missing", "incomparable")
    rest = [line for line in comparison.lines if line.verdict in warned and line not in errors]
    commands = [*_commands("error", errors), *_commands("warning", rest)]
    is_coarse = comparison.resolution is not None and comparison.resolution.is_coarse
    level = "error" if strict and is_coarse else "notice"
    commands.append(_command(level, "gemmbench", conclusion(comparison)))
    return "\n".join(commands) + "\n"


def _commands(level: str, lines: Sequence[Line]) -> list[str]:
    shown = lines if len(lines) <= _MOST_ANNOTATIONS else lines[: _MOST_ANNOTATIONS - 1]
    commands = [_command(level, f"gemmbench: {full_name(line)}", sentence(line)) for line in shown]
    if len(shown) < len(lines):
        commands.append(_command(level, "gemmbench", f"and {len(lines) - len(shown)} more rows"))
    return commands


def _command(level: str, title: str, message: str) -> str:
    """GitHub's own escapes: a message is one line, a property has neither colon nor comma."""
    message = message.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")
    title = title.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")
    title = title.replace(":", "%3A").replace(",", "%2C")
    return f"::{level} title={title}::{message}"


# --- A comparison as JUnit's XML, which CI servers show as tests --------------------------------------------


# What XML 1.0 has no way to write; no escape makes it legal.
_ILLEGAL = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def to_junit(comparison: Comparison, strict: bool = False, missing_fails: bool = False) -> str:
    """A test for each row: failed, skipped (nothing could be said), or passed.

    With `strict` inconclusive rows fail, with `missing_fails` those that were not compared.
    """
    from junitparser import JUnitXml, TestSuite  # a tenth of a second, of which no other command has any use

    suite = TestSuite("gemmbench compare")
    suite.add_property("conclusion", _text(conclusion(comparison)))
    for line in comparison.lines:
        fails = line.fails or (strict and line.open) or (missing_fails and line.lost)
        suite.add_testcase(_case(line, fails))
    document = JUnitXml("gemmbench")
    document.add_testsuite(suite)
    written: bytes = document.tostring()  # type: ignore[no-untyped-call]  # junitparser has no types
    return written.decode("utf-8") + "\n"


def _case(line: Line, fails: bool) -> TestCase:
    from junitparser import Failure, Skipped, TestCase

    case = TestCase(_text(full_name(line)), classname=_text(f"gemmbench.{clean(line.device)}"))
    case.time = line.new_s if line.new_s is not None and line.reference is None else 0.0
    if fails:
        case.result = [Failure(_text(sentence(line)), line.verdict)]
    elif line.verdict not in ("same", "faster"):
        case.result = [Skipped(_text(sentence(line)))]
    else:
        case.system_out = _text(sentence(line))
    return case


def _text(text: str) -> str:
    return _ILLEGAL.sub("\N{REPLACEMENT CHARACTER}", text)
