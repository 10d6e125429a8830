"""Compare runs with baseline runs: pair their rows and decide which became slower.

Two ratios of times, new over old, describe a row: that of the medians and that of the minima. Another
program raises medians, but rarely every sample, so a row counts as slower only if both ratios are high.
Interleaved rows have one ratio with its 95 % interval instead.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import median
from typing import Literal

from gemmbench.model.device import HOST
from gemmbench.model.instrument import is_too_slow
from gemmbench.model.row import FAILED, Row, RowKey
from gemmbench.model.run_file import Run
from gemmbench.model.units import clean, counted, listed, percent
from gemmbench.options.comparing import Rules
from gemmbench.regress.baseline import BaselineSet, Cost, Replicate, cost
from gemmbench.stats.intervals import Interval, interleaved_ratio
from gemmbench.stats.rates import interleaved_seconds, is_on_cpu, is_uncertain, work

# Replayed on the unchanged runs in tests/data/aa, each against the run before it: 0 of 31 runs fail, and the
# same runs, all rows slowed down 2.5 times, fail in 30 of 31.
RUN_LIMIT = 1.5  # a run fails if half of its rows take longer than this
ROW_LIMIT = 1.5  # a row of a GPU fails above this, as does a row that `check` measured again
CPU_LIMIT = 2.0  # a row of a CPU, if no other program ran
_LEAST_PAIRS = 12  # interleaved: six samples are the fewest whose range encloses the median with 95 %
_CONTROL = 0.05  # control bursts that differ by more than this show another program

Verdict = Literal[
    "slower", "broken", "resources changed", "possibly slower", "missing", "not comparable", "new",
    "unchanged", "faster",
]  # fmt: skip
VERDICTS: dict[Verdict, str] = {
    "slower": "above the limit at which a row fails",
    "broken": "ok in the baseline, and without a correct result now",
    "resources changed": "other registers, spills or local memory, with --fail-on resources",
    "possibly slower": "above the threshold, but not above the limit at which a row fails",
    "missing": "ok in the baseline, and not measured now",
    "not comparable": "something other than the code differs",
    "new": "the baseline has no time for it",
    "unchanged": "within the threshold",
    "faster": "faster by more than the threshold",
}
"""Every verdict, the worst first."""

LOST: tuple[Verdict, ...] = ("missing", "not comparable")
FAILING: tuple[Verdict, ...] = ("slower", "broken", "resources changed")

_NO_RATE = "without a time on either side"
_CACHED = "cached from an earlier run, not measured in the new one"
_NO_KERNEL = "without a kernel that another folder can have"


@dataclass(frozen=True)
class ComparedRow:
    """One row of a comparison."""

    key: RowKey
    row: Row  # the new one; the baseline's if there is none
    device: str  # its title
    verdict: Verdict
    reason: str = ""
    threshold: float = 0.0  # including the differences between several baselines
    # New time over old; None if nothing was compared. The interval is that of an interleaved ratio; between
    # runs it reaches from the smaller ratio (of medians, or of minima) to the larger.
    ratio: Interval | None = None
    base_s: float | None = None  # seconds for one problem
    new_s: float | None = None
    runs: tuple[int, int] = (0, 0)  # baseline and new replicates that were used
    resources: str = ""  # the changes of registers, spills and local memory

    @property
    def fails(self) -> bool:
        return self.verdict in FAILING

    @property
    def lost(self) -> bool:
        """Whether the baseline has a time that was compared with nothing, or with a prediction alone."""
        return self.verdict in LOST or (self.is_possibly_slower and self.ratio is None)

    @property
    def is_possibly_slower(self) -> bool:
        return self.verdict == "possibly slower"


@dataclass(frozen=True, eq=False)
class Comparison:
    """New runs compared with baseline runs, a line for each row."""

    bases: tuple[Run, ...]
    news: tuple[Run, ...]
    rules: Rules
    lines: tuple[ComparedRow, ...]
    left_out: Mapping[str, int]  # rows without a line, by reason
    remarks: tuple[str, ...] = ()

    @property
    def slower(self) -> tuple[ComparedRow, ...]:
        return tuple(line for line in self.lines if line.verdict == "slower")

    @property
    def ok(self) -> bool:
        """Whether there is no regression: nothing slower, nothing broken."""
        return not any(line.fails for line in self.lines)

    @property
    def counts(self) -> Counter[Verdict]:
        return Counter(line.verdict for line in self.lines)

    @property
    def compared(self) -> int:
        """The number of lines with a ratio of times or the verdict "broken".

        0 if all of these are rows of the host, and a device's row is "missing" or "not comparable". An
        unchanged host BLAS says nothing about any kernel.
        """
        stated = [line for line in self.lines if line.ratio is not None or line.verdict == "broken"]
        hosts = all(line.key[1] == HOST for line in stated)
        return 0 if hosts and any(line.lost and line.key[1] != HOST for line in self.lines) else len(stated)

    @property
    def lost(self) -> int:
        """The number of lines with a time in the baseline that was compared with nothing."""
        return sum(line.lost for line in self.lines)


def compare(bases: Sequence[Run], news: Sequence[Run], rules: Rules | None = None) -> Comparison:
    """Pair the rows of baseline runs and new runs, and give each a verdict."""
    return concluded(paired(bases, news, rules or Rules()))


def paired(bases: Sequence[Run], news: Sequence[Run], rules: Rules) -> Comparison:
    """Pair the rows of baseline and new runs by key and judge each alone, without the rule of `concluded`.

    `left_out` counts the keys that cannot be compared, by reason. Remarks report unused thresholds, changed
    presets and, unless interleaved, environment variables that differ between the first runs.
    """
    baseline = BaselineSet(tuple(bases), rules)
    replicates = baseline.replicates_of(news)
    left_out: Counter[str] = Counter()
    lines = []
    for key in dict.fromkeys([*baseline.rows, *(key for each in replicates for key in each.rows)]):
        line = _line(baseline, key, [each for each in replicates if key in each.rows])
        if isinstance(line, ComparedRow):
            lines.append(_with_resources(baseline, line, replicates))
        else:
            left_out[line] += 1
    unused = rules.by_name.keys() - {line.row.variant for line in lines}
    remarks = [f"--threshold names {clean(name)}, but no row is of that kernel." for name in sorted(unused)]
    remarks += dict.fromkeys(
        f"The preset of {line.row.variant} is {listed(line.row.parameters)}, not {listed(before.parameters)}."
        for line in lines
        if (before := baseline.rows.get(line.key)) is not None and before.kind == "gemm"
        if before.parameters != line.row.parameters
    )
    remarks += [] if rules.interleaved else _environments(bases[0], news[0])
    return Comparison(baseline.runs, tuple(news), rules, tuple(lines), dict(left_out), tuple(remarks))


def _environments(before: Run, now: Run) -> list[str]:
    """A remark for each recorded environment variable that differs between two runs, sorted by name."""
    old, new = before.header.host.environment, now.header.host.environment
    return [
        f"{clean(name)} was {clean(old.get(name, 'not set'))} in the baseline, and is "
        f"{clean(new.get(name, 'not set'))} now."
        for name in sorted(old.keys() | new.keys())
        if old.get(name) != new.get(name)
    ]


def concluded(comparison: Comparison) -> Comparison:
    """Return the comparison with the rule for the whole run applied, unless interleaved.

    Each row's ratio is the smaller one, of medians or of minima. The limit is 1.5, or 1 plus the general
    threshold if that is more. If the median of all ratios exceeds it, every row above it becomes "slower",
    and a first remark reports this. A last remark reports that no row has more than one baseline run.
    """
    rules, lines, remarks = comparison.rules, comparison.lines, comparison.remarks
    ratios = [line.ratio.low for line in lines if line.ratio]
    limit = max(RUN_LIMIT, 1 + (rules.default or 0))
    if ratios and not rules.interleaved and median(ratios) > limit:
        lines = tuple(
            replace(line, verdict="slower", reason="") if line.ratio and line.ratio.low > limit else line
            for line in lines
        )
        remarks = (
            f"At least half of the rows take over {limit:g} times as long: the run is slower.",
            *remarks,
        )
    if not rules.interleaved and max((line.runs[0] for line in lines), default=0) == 1:
        alone = "Only one baseline run: run-to-run variation is unknown. Add more, or use check --against."
        remarks = (*remarks, alone)
    return replace(comparison, lines=lines, remarks=remarks)


def _line(baseline: BaselineSet, key: RowKey, news: Sequence[Replicate]) -> ComparedRow | str:
    """The line of one key with its verdict, or as text why it has none.

    "broken": a new row failed, and the baseline was ok (or was not wrong, and the new row is). "missing": ok
    in the baseline, without a new row. "new": only the new row is ok. `_not_run` and `_compared` judge the
    rest. A key has no line without a time, with cached new times, or (interleaved) without an old kernel.
    """
    olds = [each for each in baseline.replicates if key in each.rows]
    statuses = {each.rows[key].status for each in olds}
    was_ok = "ok" in statuses
    latest = news[0] if news else olds[0]
    line = ComparedRow(key, latest.rows[key], device_title(latest.run, latest.rows[key]), "missing")
    line = with_times(line, baseline.costs(olds, key), baseline.costs(news, key))
    failed = next((each.rows[key] for each in news if each.rows[key].status in FAILED), None)
    if failed and (was_ok or (failed.status == "wrong" and "wrong" not in statuses)):
        return replace(line, row=failed, verdict="broken", reason=outcome(failed))
    if was_ok and not baseline.rows[key].samples:  # a product without terms
        return _NO_RATE
    if was_ok and baseline.rules.interleaved and not baseline.rules.has_old_kernel(baseline.rows[key]):
        return _NO_KERNEL
    if not news:
        return line if was_ok else _NO_RATE
    good = [each for each in news if each.rows[key].status == "ok"]
    if not good:
        return _not_run(baseline, line, news[0]) if was_ok else _NO_RATE
    good = [each for each in good if not each.rows[key].measured_utc]
    if not good:
        return _CACHED
    line = replace(line, row=good[0].rows[key], device=device_title(good[0].run, good[0].rows[key]))
    if not was_ok:
        before = f"in the baseline it was {outcome(olds[0].rows[key])}" if olds else ""
        return replace(line, verdict="new", reason=before)
    return _compared(baseline, line, good)


def _not_run(baseline: BaselineSet, line: ComparedRow, now: Replicate) -> ComparedRow:
    """The line of a row that was ok in the baseline, and is skipped or not supported now: "missing".

    A row over its time budget states the time that it needs, with transfers. Unless interleaved, it is
    "possibly slower" if this exceeds the baseline's by more than the threshold, or "slower" if the user gave
    the threshold.
    """
    row, rules = line.row, baseline.rules
    olds = baseline.comparable(line.key, now)
    costs = [before for each in olds if (before := cost(each.rows[line.key], "host"))]
    if not is_too_slow(row) or row.needs_s is None or not costs or rules.interleaved:
        return replace(line, reason=outcome(row))
    line = replace(line, reason="over its budget; raise --budget")
    ratio = row.needs_s / (median_cost(costs).median * work(baseline.rows[line.key]))
    if ratio <= 1 + rules.threshold(row):
        return line
    return replace(line, verdict="possibly slower" if rules.given_threshold(row) is None else "slower")


def _with_resources(baseline: BaselineSet, line: ComparedRow, news: Sequence[Replicate]) -> ComparedRow:
    """Add changed registers, spills and local memory to a line, from the first ok row of `news`.

    With `--fail-on resources` the verdict becomes "resources changed", unless the line fails already. A line
    without a comparable baseline row (source, `--cold` and memory may differ) stays the same.
    """
    also = ("source", "sampling", "memory")
    now = next((each for each in news if line.key in each.rows and each.rows[line.key].status == "ok"), None)
    olds = baseline.with_result(line.key)
    if now is None or not olds:
        return line
    row, before = now.rows[line.key], olds[0].rows[line.key]
    if baseline.rules.interleaved:
        if row.former is None:
            return line
        before = replace(before, resources=row.former.resources)
    elif all(baseline.difference(each, now, line.key, also) for each in olds):
        return line
    changes = "; ".join(changed_resources(before, row))
    if changes and "resources" in baseline.rules.fail_on and line.verdict not in FAILING:
        return replace(line, resources=changes, verdict="resources changed", reason=changes)
    return replace(line, resources=changes)


_RESOURCES = {
    "registers": "registers",
    "spill_bytes": "bytes spilled",
    "local_bytes": "bytes of local memory",
}


def changed_resources(before: Row, now: Row) -> Iterator[str]:
    """Yield each change of registers, spilled bytes or local memory: ``name: 40 registers, not 32``.

    Kernels match by name. Kernels of one row only and values that are not reported are skipped.
    """
    olds, news = ({each.kernel: each for each in row.resources} for row in (before, now))
    for kernel in (kernel for kernel in news if kernel in olds):
        for name, unit in _RESOURCES.items():
            old, new = getattr(olds[kernel], name), getattr(news[kernel], name)
            if None not in (old, new) and old != new:
                yield f"{kernel}: {new} {unit}, not {old}"


def _compared(baseline: BaselineSet, line: ComparedRow, news: Sequence[Replicate]) -> ComparedRow:
    """Judge a row that is ok on both sides, from all comparable replicates.

    It is "not comparable" if no new replicate is comparable with the baseline, or a verification was suspect.
    It is "missing" if a side has no time, or interleaved rows have no pairs, by which they are judged.
    Otherwise `judge` decides, with a limit of 1.5 times the time, or 2 on a CPU. If other programs may have
    slowed down a CPU row (`_doubt`), it is at most "possibly slower", unless its threshold is the user's.
    """
    key, rules = line.key, baseline.rules
    first = next((each for each in news if baseline.comparable(key, each)), None)
    if first is None:
        reason = baseline.difference(baseline.with_result(key)[-1], news[0], key)
        return replace(line, verdict="not comparable", reason=reason)
    olds = baseline.comparable(key, first)
    news = [each for each in news if not baseline.difference(first, each, key)]
    line = replace(line, row=first.rows[key], device=device_title(first.run, first.rows[key]))
    for each in (*olds, *news):
        check = each.rows[key].check
        if check.verdict == "suspect":
            reason = f"its integrity is suspect: {'; '.join(check.reasons) or 'no reason given'}"
            return replace(line, verdict="not comparable", reason=reason)
    if rules.interleaved:
        made = judge_interleaved(rules, line, [each.rows[key] for each in news])
        return made or replace(line, verdict="missing", reason="not interleaved with its old kernel")
    old, new = baseline.costs(olds, key), baseline.costs(news, key)
    if not old or not new:  # no samples, though the row is ok
        return replace(line, verdict="missing", reason="without a time")
    rows = [(each.run, each.rows[key]) for each in (*olds, *news)]
    doubt = "" if rules.given_threshold(line.row) is not None else _doubt(rows)
    line = with_times(line, old, new)
    limit = CPU_LIMIT if is_on_cpu(first.run, first.rows[key]) else ROW_LIMIT
    change = ratio(median_cost(old), median_cost(new))
    judged = judge(rules, line, change, spread(old), math.inf if doubt else limit)
    return replace(judged, reason=doubt) if judged.is_possibly_slower and change.low > limit else judged


def with_times(line: ComparedRow, old: Sequence[Cost], new: Sequence[Cost]) -> ComparedRow:
    """A line with the median times of both sides in seconds, or None, and the number of replicates."""
    base_s, new_s = (median_cost(side).median * work(line.row) if side else None for side in (old, new))
    return replace(line, base_s=base_s, new_s=new_s, runs=(len(old), len(new)))


def median_cost(costs: Sequence[Cost]) -> Cost:
    """The median over replicates of their medians, and of their minima."""
    return Cost(median(each.median for each in costs), median(each.minimum for each in costs))


def ratio(old: Cost, new: Cost) -> Interval:
    """The ratio of medians, between the smaller and the larger of the ratios of medians and minima."""
    ratios = new.median / old.median, new.minimum / old.minimum
    return Interval(ratios[0], min(ratios), max(ratios))


def spread(costs: Sequence[Cost]) -> float:
    """The largest difference between two replicates, as a fraction; 0 for one."""
    sides = [each.median for each in costs], [each.minimum for each in costs]
    return max(max(values) / min(values) for values in sides) - 1


def _doubt(rows: Sequence[tuple[Run, Row]]) -> str:
    """Why rows on a CPU may be slow because of other programs, or "". Other rows do not count.

    The reasons are an uncertain figure, missing control bursts, or control bursts over 5 % apart. A control
    burst is a short run of a fixed kernel before and after a row.
    """
    rows = [(run, row) for run, row in rows if is_on_cpu(run, row)]
    bursts = [row.conditions.control_s if row.conditions else () for _, row in rows]
    every = [seconds for several in bursts for seconds in several]
    if any(is_uncertain(run, row) for run, row in rows):
        why = "an uncertain figure"
    elif not all(bursts):
        why = "no control bursts show whether other programs ran"
    elif every and max(every) > (1 + _CONTROL) * min(every):
        why = f"control bursts differ by more than {percent(_CONTROL)}"
    else:
        return ""
    return f"{why}: measure again with gemmbench check BASE"


def judge(rules: Rules, line: ComparedRow, ratio: Interval, spread: float, limit: float) -> ComparedRow:
    """Give a line the verdict of its ratio, new time over old. `spread` adds to the threshold.

    Slower: the low end is above the threshold if it is given or interleaved, otherwise also above `limit`.
    Possibly slower: the low end (interleaved: the median) is above the threshold. Faster: the high end is
    below 1 / (1 + threshold). Otherwise unchanged. Any earlier reason is removed.
    """
    threshold = rules.threshold(line.row) + spread
    is_given = rules.interleaved or rules.given_threshold(line.row) is not None
    fails = 1 + threshold if is_given else max(limit, 1 + threshold)
    verdict: Verdict = "unchanged"
    if ratio.low > fails:
        verdict = "slower"
    elif (ratio.median if rules.interleaved else ratio.low) > 1 + threshold:
        verdict = "possibly slower"
    elif ratio.high < 1 / (1 + threshold):
        verdict = "faster"
    return replace(line, verdict=verdict, reason="", threshold=threshold, ratio=ratio)


def judge_interleaved(rules: Rules, line: ComparedRow, rows: Sequence[Row]) -> ComparedRow | None:
    """Judge a line by the pooled batches that alternated between new and old kernel; None without any.

    The line also gets both median times. With fewer than 12 pairs it is "unchanged" or "possibly slower".
    """
    new, old = interleaved_seconds(rows, rules.scope)
    if not new:
        return None
    line = replace(line, base_s=median(old), new_s=median(new), runs=(1, len(rows)))
    made: Interval = interleaved_ratio(new, old)
    if len(new) < _LEAST_PAIRS:  # neither slower nor faster
        made = Interval(made.median, math.nan, math.nan)
    return judge(rules, line, made, 0.0, math.inf)


def device_title(run: Run, row: Row) -> str:
    """The device of a row; for the host, its processor and BLAS."""
    device = run.device(row)
    return device.title if device else f"{run.header.host.cpu} | {run.header.host.blas}"


def outcome(row: Row) -> str:
    """A row's status and reason."""
    return f"{row.status}: {row.reason}".removesuffix(": ")


def why_nothing(comparison: Comparison) -> str:
    """The first two different reasons why no row could be compared."""
    lost = [line for line in comparison.lines if line.lost] or comparison.lines
    reasons = [line.reason or VERDICTS[line.verdict] for line in lost]
    reasons += [f"{counted(count, 'row')} {why}" for why, count in comparison.left_out.items()]
    return "; ".join([*dict.fromkeys(map(clean, reasons))][:2]) or "the runs have no rows"
