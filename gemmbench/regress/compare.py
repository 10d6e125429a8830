"""Runs against runs: a line with a verdict for each row; as table, markdown, JSON, annotations and JUnit."""

from __future__ import annotations

import json
import math
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product

from gemmbench.model import units
from gemmbench.model.device import HOST
from gemmbench.model.instrument import LONGEST_S, is_too_slow
from gemmbench.model.row import FAILED, Row, RowKey
from gemmbench.model.run_file import Run
from gemmbench.model.units import by_key, clean, clean_lines, counted, listed
from gemmbench.options.rules import Rules
from gemmbench.regress import verdict as floors
from gemmbench.regress.baseline import Basis, Repetition, slots
from gemmbench.regress.verdict import FAILING, LOST, VERDICTS, Judgement, Noise, Verdict, centre, conclude
from gemmbench.report.notes import places, shape
from gemmbench.report.table import Cell, Note, Sheet, finite, markdown, stack, stdout
from gemmbench.stats import rates
from gemmbench.stats.conditions import is_on_cpu
from gemmbench.stats.intervals import Measure
from gemmbench.stats.rates import former, measure, problem_fields, work

_NO_RATE = "without a rate on either side"
_KEPT = "kept from an earlier run, not measured in the new one"
_NO_KERNEL = "without a kernel that another folder could have"


@dataclass(frozen=True)
class Line:
    """One row of a comparison."""

    key: RowKey
    row: Row  # the new one; the base's where there is none
    device: str  # for people
    verdict: Verdict
    reason: str = ""
    threshold: float = 0.0
    judgement: Judgement | None = None  # None where there was nothing to compare
    base_s: float | None = None  # seconds for one problem; middle of the runs
    new_s: float | None = None
    runs: tuple[int, int] = (0, 0)  # of base and new that went into it
    resolution: float | None = None  # the smallest slowdown that is found 95 times in 100; 0.1 is 10 %
    resources: str = ""  # what has changed of them; they have no noise
    too_slow: bool = False  # it was skipped, since it would have taken more than its budget

    @property
    def fails(self) -> bool:
        return self.verdict in FAILING

    @property
    def lost(self) -> bool:
        """Whether the base has a figure that nothing was held against."""
        return self.verdict in LOST

    @property
    def open(self) -> bool:
        """Whether it may yet be one: an inconclusive row whose interval reaches past the threshold."""
        return self.verdict == "inconclusive" and (self.judgement is None or self.judgement.may_be_slower)


@dataclass(frozen=True)
class Resolution:
    """The smallest slowdown that a job would have found with a probability of 95 %, as a fraction."""

    typical: float  # the middle row's
    worst: float
    row: Line  # the worst
    is_coarse: bool  # in the middle row not even twice the threshold is found: a pass says little


@dataclass(frozen=True, eq=False)
class Comparison:
    """Verdicts of new runs against baseline runs, a line for each row."""

    bases: tuple[Run, ...]
    news: tuple[Run, ...]
    rules: Rules
    noise: Noise
    lines: tuple[Line, ...]
    left_out: Mapping[str, int]  # rows without a line, by why
    remarks: tuple[str, ...] = ()

    @property
    def slower(self) -> tuple[Line, ...]:
        """The rows that have become slower beyond doubt."""
        return tuple(line for line in self.lines if line.verdict == "slower")

    @property
    def ok(self) -> bool:
        """Whether there is no regression: nothing slower, nothing that broke."""
        return not any(line.fails for line in self.lines)

    def show(self, verbose: bool = False) -> None:
        """Print the table of ``gemmbench compare``."""
        stdout().print(stack(sheets(self, verbose)))

    @property
    def counts(self) -> Counter[Verdict]:
        return Counter(line.verdict for line in self.lines)

    @property
    def compared(self) -> int:
        """Lines that are a statement about the new runs' speed, or its loss.

        None if there are only the host's, beside a device's that could not be compared: a host's BLAS that is
        as fast as ever says nothing of any kernel.
        """
        stated = [line for line in self.lines if line.judgement is not None or line.verdict == "broken"]
        hosts = all(line.key[1] == HOST for line in stated)
        return 0 if hosts and any(line.lost and line.key[1] != HOST for line in self.lines) else len(stated)

    @property
    def resolution(self) -> Resolution | None:
        """What slowdown the job would have found; None where nothing was judged."""
        values = sorted(
            (line.resolution, line.threshold, number)
            for number, line in enumerate(self.lines)
            if line.resolution is not None
        )
        if not values:
            return None
        typical, worst = values[(len(values) - 1) // 2], values[-1]
        coarse = sorted(least / (2 * threshold) for least, threshold, _ in values)[(len(values) - 1) // 2] > 1
        return Resolution(typical[0], worst[0], self.lines[worst[2]], coarse)

    @property
    def lost(self) -> int:
        """Lines that the base has a figure of, and that were not compared."""
        return sum(line.lost for line in self.lines)


def compare(bases: Sequence[Run], news: Sequence[Run], rules: Rules | None = None) -> Comparison:
    """Every row of the bases and of the new runs, paired by key, with a verdict.

    The repetitions of a row are pooled over all bases.
    """
    rules = rules or Rules()
    basis = Basis(tuple(bases), rules)
    again = basis.repeated(news)
    noise = basis.noise(again)
    left_out: Counter[str] = Counter()
    lines = []
    for key in dict.fromkeys([*basis.rows, *(key for each in again for key in each.rows)]):
        line = _line(basis, noise, key, [each for each in again if key in each.rows])
        if isinstance(line, Line):
            lines.append(_with_resources(basis, line, again))
        else:
            left_out[line] += 1
    unused = rules.thresholds.by_name.keys() - {line.row.variant for line in lines}
    remarks = [f"--threshold names {clean(name)}, which none of these rows is of" for name in sorted(unused)]
    remarks += dict.fromkeys(
        f"preset of {line.row.variant}: {listed(line.row.parameters)}, not {listed(before.parameters)}"
        for line in lines
        if (before := basis.rows.get(line.key)) is not None and before.kind == "gemm"
        if before.parameters != line.row.parameters
    )
    remarks += _other_choices(basis, lines)
    remarks += dict.fromkeys(_other_chips(basis, news))
    return Comparison(basis.bases, tuple(news), rules, noise, tuple(lines), dict(left_out), tuple(remarks))


def _other_choices(basis: Basis, lines: Sequence[Line]) -> Iterator[str]:
    """What kernels derived otherwise, by device and shape, from the same sources and parameters."""
    others: dict[str, list[str]] = {}
    for line in lines:
        now, before = line.row, basis.rows.get(line.key, line.row)
        were, are = ({k: v for k, v in row.choice.items() if isinstance(v, int)} for row in (before, now))
        is_same = now.source and (now.source, now.parameters) == (before.source, before.parameters)
        if line.judgement and now.kind == "gemm" and is_same and were and are and were != are:
            others.setdefault(now.variant, []).append(f"{listed(are)}, not {listed(were)} at {where(now)}")
    for variant, texts in others.items():
        yield f"derived by {variant}, in {counted(len(texts), 'row')}: {texts[0]}"


def _other_chips(basis: Basis, news: Sequence[Run]) -> Iterator[str]:
    """What to know where a base is of another chip than a new run; in turn, both sides are of one."""
    for base, new in product(() if basis.rules.in_turn else basis.bases, news):
        devices = dict(enumerate(base.header.devices))
        for position, device in zip(slots(base.header, new.header), new.header.devices, strict=True):
            old = devices.get(position, device)
            if old.name == device.name and old.chip != device.chip and old.chip and device.chip:
                chips = f"another chip of this model ({old.chip}, not {device.chip})"
                yield f"{device.name}: the base is of {chips}, which may itself be faster or slower"


def _line(basis: Basis, noise: Noise, key: RowKey, news: Sequence[Repetition]) -> Line | str:
    """One row's line, or why it has none."""
    olds = [each for each in basis.repetitions if key in each.rows]
    statuses = {each.rows[key].status for each in olds}
    was_ok = "ok" in statuses
    latest = news[0] if news else olds[0]
    line = Line(key, latest.rows[key], title(latest.run, latest.rows[key]), "missing")
    failed = next((each.rows[key] for each in news if each.rows[key].status in FAILED), None)
    if failed and (was_ok or (failed.status == "wrong" and "wrong" not in statuses)):
        return replace(line, row=failed, verdict="broken", reason=outcome(failed))
    if was_ok and not basis.rows[key].samples:  # a product without terms
        return _NO_RATE
    if was_ok and basis.rules.in_turn and not basis.rules.has_former(basis.rows[key]):
        return _NO_KERNEL
    if not news:
        return line if was_ok else _NO_RATE
    right = _right(news, key)
    if not right:
        return _unmeasured(basis, line, news[0]) if was_ok else _NO_RATE
    if all(each.rows[key].measured_utc for each in right):
        return _KEPT
    line = replace(line, row=right[0].rows[key], device=title(right[0].run, right[0].rows[key]))
    if not was_ok:
        before = f"in the base it was {outcome(olds[0].rows[key])}" if olds else ""
        return replace(line, verdict="new", reason=before)
    return _compared(basis, noise, line, right)


def _with_resources(basis: Basis, line: Line, news: Sequence[Repetition]) -> Line:
    """A line that says what its kernels take now and did not before, whatever their speed."""
    alike = basis.rules.across | {"source", "sampling", "memory"}
    now = next(iter(_right(news, line.key)), None)
    olds = _right(basis.repetitions, line.key)
    if now is None or not olds:
        return line
    row, before = now.rows[line.key], olds[0].rows[line.key]
    if basis.rules.in_turn:
        if row.former is None:
            return line
        before = replace(before, resources=row.former.resources, launches=row.former.launches)
    elif all(basis.difference(each, now, line.key, alike) for each in olds):
        return line
    changes = "; ".join(changed_resources(before, row))
    if changes and "resources" in basis.rules.fail_on and line.verdict not in FAILING:
        return replace(line, resources=changes, verdict="changed", reason=changes)
    return replace(line, resources=changes)


def _right(side: Sequence[Repetition], key: RowKey) -> list[Repetition]:
    return [each for each in side if key in each.rows and each.rows[key].status == "ok"]


_RESOURCES = {
    "registers": "registers",
    "spill_bytes": "bytes spilled",
    "private_bytes": "bytes of private memory",
    "local_bytes": "bytes of local memory",
}


def changed_resources(before: Row, now: Row) -> Iterator[str]:
    """What the driver tells of a row's kernels and launches, where both rows know it and it differs."""
    counts = (("launches", before.launches, now.launches), ("kernels", before.resources, now.resources))
    for name, were, are in counts:
        if were and are and len(were) != len(are):
            yield f"{len(are)} {name}, not {len(were)}"
    olds = list(before.resources)
    for each in now.resources:
        was = next((other for other in olds if other.kernel == each.kernel), None)
        if was is None:
            continue
        olds.remove(was)  # a kernel may be launched twice
        for name, unit in _RESOURCES.items():
            old, new = getattr(was, name), getattr(each, name)
            if None not in (old, new) and old != new:
                yield f"{each.kernel}: {new} {unit}, not {old}"


def _unmeasured(basis: Basis, line: Line, now: Repetition) -> Line:
    """The line of a row that was ok in the base, and in the new run was not measured.

    A row is skipped if one problem takes longer than 2 s and the budget: a lower bound of its time.
    """
    line = replace(line, reason=outcome(line.row))
    costs = (measure(each.rows[line.key], basis.rules.scope) for each in basis.comparable(line.key, now))
    before = [cost.value for cost in costs if cost is not None]
    if not is_too_slow(line.row) or not before:
        return line
    one_s = math.exp(sum(before) / len(before)) * work(basis.rows[line.key])
    longer = max(LONGEST_S, now.run.header.policy.budget_s) / one_s
    if longer < 1:
        return line
    # In turn, a machine that has become slower does not matter.
    sure = longer > 1 + basis.rules.limits(line.row).threshold and not basis.rules.in_turn
    return replace(line, verdict="broken" if sure else "inconclusive", too_slow=True)


def _compared(basis: Basis, noise: Noise, line: Line, right: Sequence[Repetition]) -> Line | str:
    key = line.key
    olds = _right(basis.repetitions, key)
    reasons = {each: [basis.difference(old, each, key) for old in olds] for each in right}
    fit = next((each for each in right if not all(reasons[each])), None)
    if fit is None:
        return replace(line, verdict="incomparable", reason=reasons[right[0]][-1])
    right = [each for each in right if not basis.difference(fit, each, key)]
    line = replace(line, row=fit.rows[key], device=title(fit.run, fit.rows[key]))
    base = basis.base_figures(key, fit)
    new = [figure for each in right if (figure := basis.figure(each.rows, key)) is not None]
    if not base or not new:  # the row itself is ok on both sides
        return replace(line, verdict="missing", reason="not measured in turn with its former self")
    for each in (*olds, *right):
        check = each.rows[key].check
        if check.verdict == "suspect":
            reason = f"its integrity is suspect: {'; '.join(check.reasons) or 'no reason given'}"
            return replace(line, verdict="inconclusive", reason=reason)
    line = judged(basis, noise, line, base, new)
    return doubted(basis.rules, line, [(each.run, each.rows[key]) for each in right])


def doubted(rules: Rules, line: Line, looks: Sequence[tuple[Run, Row]]) -> Line:
    """The same; inconclusive if it is slower, and most looks at it on a processor were uncertain."""
    unsure = [rates.slowed(run, row) > rates.UNCERTAIN for run, row in looks if is_on_cpu(run, row)]
    if rules.in_turn or line.verdict != "slower" or 2 * sum(unsure) <= len(unsure):
        return line
    return replace(line, verdict="inconclusive", reason="other programs slowed the CPU")


def judged(basis: Basis, noise: Noise, line: Line, base: Sequence[Measure], new: Sequence[Measure]) -> Line:
    """A line with the verdict that its figures give."""
    limits = basis.rules.limits(line.row)
    spread = noise.of(line.key)
    judgement = conclude(base, new, spread, limits, noise, line.key)
    amount = former(line.row, basis.rules.scope) if basis.rules.in_turn else work(line.row)
    return replace(
        line,
        verdict=judgement.verdict,
        reason=judgement.reason,
        threshold=limits.threshold,
        judgement=judgement,
        base_s=math.exp(centre(base)) * amount,
        new_s=math.exp(centre(new)) * amount,
        runs=(len(base), len(new)),
        resolution=floors.resolution(base, new, spread, limits, noise, line.key, basis.rules.rounds),
    )


def title(run: Run, row: Row) -> str:
    """The device of a row; processor and BLAS of the host."""
    device = run.device(row)
    return device.title if device else f"{run.header.host.cpu} | {run.header.host.blas}"


def outcome(row: Row) -> str:
    """A row's status and reason."""
    return f"{row.status}: {row.reason}".removesuffix(": ")


# --- A comparison as table, markdown, JSON and GitHub annotations -------------------------------------------

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
_MOST_ANNOTATIONS = 10  # that GitHub shows of one step


def to_markdown(comparison: Comparison, every: bool = False) -> str:
    """For a job's summary, the conclusion first."""
    return f"### gemmbench: {conclusion(comparison)}\n\n{markdown(sheets(comparison, every))}"


def sheets(comparison: Comparison, every: bool = False) -> list[Sheet]:
    """A table for each device, then the conclusion; with `every` also many rows that are the same."""
    hidden = not every and len(comparison.lines) > _MANY
    names = _names(comparison.lines)
    groups = by_key((line.key[1], line) for line in comparison.lines)
    devices = sorted(groups, key=lambda device: (device == HOST, device))
    every_sheet = (_sheet(comparison, groups[device], names, hidden) for device in devices)
    shown = [sheet for sheet in every_sheet if sheet.rows or sheet.notes]
    notes = []
    if hidden and (same := comparison.counts["same"]):
        notes.append(Note("", f"{same} rows that are the same are not shown; -v shows them", "dim"))
    notes += _remarks(comparison)
    if comparison.resolution:
        notes.append(Note("resolution", resolution(comparison.resolution), "dim"))
    return [*shown, Sheet(notes=(*notes, Note("", conclusion(comparison), "bold")))]


def _sheet(comparison: Comparison, lines: Sequence[Line], names: Mapping[int, str], hidden: bool) -> Sheet:
    shown = [line for line in lines if not hidden or line.verdict not in ("same", *_ONE_SIDED)]
    rules = comparison.rules
    what = f"{rules.scope} scope" if rules.scope else "finest scope"
    if rules.in_turn:
        what += ", batch by batch in turn with its former self"

    def cells(line: Line) -> tuple[Cell, ...]:
        judgement, style = line.judgement, STYLES[line.verdict]
        return (
            Cell(change(judgement.ratio) if judgement else "", style=style),
            Cell(line.verdict, style=style),
            Cell(interval(line)),
            Cell(cost(line.base_s)),
            Cell(cost(line.new_s)),
        )

    table = row_sheet(
        lines[0].device,
        f"change of the time, {what}; + is slower",
        (("change", "verdict"), ("interval",), ("base", "new")),
        [(line.row.title, names[id(line)], line.row.dtype, cells(line)) for line in shown],
        len({line.row.dtype for line in comparison.lines}) > 1,
    )
    notes = *(_one_sided(lines, names) if hidden else ()), *_reasons(lines, names)
    return replace(table, notes=notes)


def row_sheet(
    device: str,
    caption: str,
    blocks: tuple[tuple[str, ...], ...],
    lines: Sequence[tuple[str, str, str, tuple[Cell, ...]]],
    typed: bool,
) -> Sheet:
    """A device's rows: of each its name, its size and, if `typed`, its type, then the cells of the blocks."""
    return Sheet(
        heading=tuple(map(clean, device.split(" | ", 1))),
        caption=caption,
        keys=("", "size", *(["type"] if typed else [])),
        blocks=blocks,
        rows=tuple(
            (Cell(clean(name)), Cell(size), *([Cell(dtype)] if typed else []), *cells)
            for name, size, dtype, cells in lines
        ),
        left=frozenset({"verdict", "changes"}),
    )


def conclusion(comparison: Comparison) -> str:
    """How many rows have which verdict: ``1 slower, 35 same, of 36 rows; threshold 5.0 %``."""
    counts = comparison.counts
    each = ", ".join(f"{counts[verdict]} {verdict}" for verdict in VERDICTS if counts[verdict]) or "none"
    used = sorted({line.threshold for line in comparison.lines if line.judgement})
    limits = [comparison.rules.thresholds.default] if not used else [used[0], used[-1]]
    threshold = " to ".join(dict.fromkeys(map(units.percent, limits)))
    verdicts = f"{each}, of {counted(len(comparison.lines), 'row')}; threshold {threshold}."
    if not (comparison.resolution and comparison.resolution.is_coarse):
        return verdicts
    least = change(1 + comparison.resolution.typical)
    return f"{verdicts} Too coarse for it: in a typical row {least} is the least that would have been found."


def resolution(least: Resolution) -> str:
    """``slower by +5.3 % in a typical row, +16.2 % in the worst (naive 64), is found 95 times in 100``."""
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
            text = f"{counted(len(group), 'row')}: {_places(group, names)}; -v shows each"
            notes.append(Note(verdict, text, STYLES[verdict]))
    return notes


def _reasons(lines: Sequence[Line], names: Mapping[int, str]) -> list[Note]:
    """Why rows are broken, inconclusive and so on, those of one reason together."""
    groups = by_key(((line.verdict, clean_lines(line.reason)), line) for line in lines if line.reason)
    order = list(VERDICTS)
    notes = [
        Note(verdict, f"{_places(groups[verdict, reason], names)}: {reason}", STYLES[verdict])
        for verdict, reason in sorted(groups, key=lambda group: order.index(group[0]))
    ]
    changed = (line for line in lines if line.resources and line.verdict != "changed")
    for text, group in by_key((clean(line.resources), line) for line in changed).items():
        notes.append(Note("resources", f"{_places(group, names)}: {text}", "yellow"))
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
        floor += "; several bases, or an A/A measurement as base (check --aa), tell it better"
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


def cost(value: float | None) -> str:
    """A time for a table; "" for none."""
    return "" if value is None else units.seconds(value)


def where(row: Row) -> str:
    """A row's place in the table: its size, or a microbenchmark's parameters."""
    if row.kind == "gemm":
        return f"{clean(row.label)} {shape(row)}".strip()
    if list(row.parameters) == ["bytes"]:
        return units.size(int(row.parameters["bytes"]))
    return listed(row.parameters)


def _names(lines: Sequence[Line]) -> dict[int, str]:
    """Each line's place, with its parameters where variant and size alone do not tell it from another."""
    alike = by_key(((line.key[1], line.row.title, line.row.dtype, where(line.row)), line) for line in lines)
    names = {}
    for (*_, size), group in alike.items():
        for line in group:
            more = listed(line.row.parameters) if len(group) > 1 and line.row.kind == "gemm" else ""
            names[id(line)] = f"{size} {more}".strip()
    return names


def full_name(line: Line) -> str:
    """A row for machines and annotations: ``register float 512 (BM=64)``."""
    row = line.row
    parameters = listed(row.parameters) if row.kind == "gemm" else ""
    name = f"{clean(row.variant)} {row.dtype} {where(row)}".strip()
    return f"{name} ({parameters})" if parameters else name


def sentence(line: Line) -> str:
    """What happened to a row, in a line: ``10.2 % slower (+8.1 to +12.3 %); threshold 5.0 %``."""
    judgement = line.judgement
    if judgement is None:
        return f"{line.verdict}: {clean(line.reason) or VERDICTS[line.verdict]}"
    changes = f"; {clean(line.resources)}" if line.resources and line.verdict != "changed" else ""
    reason = f"; {clean(line.reason)}" if line.reason else ""
    times = f"{cost(line.base_s)} to {cost(line.new_s)}"
    threshold = units.percent(line.threshold)
    ratio = change(judgement.ratio)
    return f"{line.verdict}: {ratio} ({interval(line)}), {times}, threshold {threshold}{reason}{changes}"


def to_json(comparison: Comparison) -> str:
    """One object: what the comparison was, and its rows in ``rows``, one on each line."""
    noise, least = comparison.noise, comparison.resolution
    head: dict[str, object] = {
        "bases": [run.path for run in comparison.bases],
        "news": [run.path for run in comparison.news],
        "confidence": comparison.rules.confidence,
        "scope": comparison.rules.scope,
        "in_turn": comparison.rules.in_turn,
        "noise": {"typical": noise.typical, "source": noise.source},
        "resolution": {
            "typical": least.typical,
            "worst": least.worst,
            "worst_row": f"{least.row.row.variant} {where(least.row.row)}".strip(),
            "is_coarse": least.is_coarse,
        }
        if least
        else None,
        "verdicts": {verdict: comparison.counts[verdict] for verdict in VERDICTS},
        "left_out": dict(comparison.left_out),
        "remarks": list(comparison.remarks),
    }
    body = ",\n".join(f"  {_dumped(_flat(line))}" for line in comparison.lines)
    rows = f"[\n{body}\n ]" if body else "[]"
    pieces = [f" {json.dumps(name)}: {_dumped(value)}" for name, value in head.items()]
    return "{\n" + ",\n".join([*pieces, f' "rows": {rows}']) + "\n}\n"


def _dumped(value: object) -> str:
    return json.dumps(finite(value), allow_nan=False, ensure_ascii=True)


def _flat(line: Line) -> dict[str, object]:
    row, judgement = line.row, line.judgement
    return {
        "kind": row.kind,
        "variant": row.variant,
        "dtype": row.dtype,
        "device": line.device,
        "parameters": row.parameters,
        "label": row.label,
        **problem_fields(row.problem, "m", "n", "k", "trans_a", "trans_b", "alpha", "beta"),
        "verdict": line.verdict,
        "reason": line.reason,
        "resources": line.resources,
        "threshold": line.threshold or None,
        **{name: getattr(judgement, name, None) for name in ("ratio", "low", "high", "floor")},
        "resolution": line.resolution,
        "base_s": line.base_s,
        "new_s": line.new_s,
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
    escapes: dict[str, str | int | None] = {"%": "%25", "\r": "%0D", "\n": "%0A"}
    message = message.translate(str.maketrans(escapes))
    title = title.translate(str.maketrans(escapes | {":": "%3A", ",": "%2C"}))
    return f"::{level} title={title}::{message}"


# --- A comparison as JUnit's XML, which CI servers show as tests --------------------------------------------

# What XML 1.0 has no way to write; no escape makes it legal.
_ILLEGAL = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def to_junit(comparison: Comparison, strict: bool = False, missing_fails: bool = False) -> str:
    """A test for each row: failed, skipped (nothing could be said), or passed.

    With `strict` inconclusive rows fail, with `missing_fails` those that were not compared.
    """
    # A tenth of a second, of which no other command has any use.
    from junitparser import Failure, JUnitXml, Skipped, TestCase, TestSuite

    suite = TestSuite("gemmbench compare")
    suite.add_property("conclusion", _text(conclusion(comparison)))
    for line in comparison.lines:
        case = TestCase(_text(full_name(line)), classname=_text(f"gemmbench.{clean(line.device)}"))
        case.time = line.new_s or 0.0
        text = _text(sentence(line))
        if line.fails or (strict and line.open) or (missing_fails and line.lost):
            case.result = [Failure(text, line.verdict)]
        elif line.verdict not in ("same", "faster"):
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
