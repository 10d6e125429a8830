"""Measure a baseline's cases again: each case once, suspicious rows several times.

`check --aa` instead measures every case several times, to see how much unchanged rows differ between runs.
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from dataclasses import astuple, dataclass, field, replace
from functools import cached_property
from statistics import median

import numpy as np
from rich.console import RenderableType

from gemmbench import NothingMeasured, UsageError
from gemmbench.ladder import BASELINES
from gemmbench.model import units
from gemmbench.model.case import DRIVER, Case, Event, Planned, Skip
from gemmbench.model.device import HOST, DeviceFacts
from gemmbench.model.instrument import NotMeasuredError, is_too_slow
from gemmbench.model.row import FAILED, Row, RowKey
from gemmbench.model.run_file import Run, is_tuning
from gemmbench.model.units import by_key, clean, count_noun
from gemmbench.regress import compare as verdicts
from gemmbench.regress import results
from gemmbench.regress.compare import BaselineSet, ComparedRow, Comparison, cost
from gemmbench.regress.results import rounded_percent, row_name, where
from gemmbench.report.progress import row_label
from gemmbench.report.table import Columns, Note, Sheet, html, markdown, stack, table
from gemmbench.stats.rates import is_on_cpu, work
from gemmbench.suite import session
from gemmbench.suite.cached import CachedBursts
from gemmbench.suite.job import INCONCLUSIVE, WRONG, Job, Tell, header_of, write_output
from gemmbench.suite.options import command_line, comparing
from gemmbench.suite.plan import rebuild_plan
from gemmbench.suite.selection import every_device, select
from gemmbench.suite.session import Listen

LOOKS = 2  # further measurements of a suspicious row
_CHANGED: tuple[comparing.RowVerdict, ...] = ("slower", "faster")
_AA_SHARE = 0.95  # of the rows, for the conclusion
_CONTROL_LIMIT = 1.5  # a control row that changed by more than this shows nothing about other rows


ComparingOptions = comparing.CompareOptions | comparing.CheckOptions


class ComparisonJob(Job):
    """`compare`: new runs and baselines, which are compared already."""

    options: ComparingOptions
    measures = False
    comparison: Comparison

    def __init__(self, options: comparing.CompareOptions, comparison: Comparison) -> None:
        super().__init__(options)
        self.comparison, self.header = comparison, comparison.news[0].header
        self.rows = [row for run in comparison.news for row in run.rows]

    def rendered(self, form: str = "") -> RenderableType:
        """The comparison in a format of --format: text, or tables for rich."""
        comparison, options, form = self.comparison, self.options, form or self.options.format
        strict, missing_fails = options.strict, options.missing == "fail"
        if form == "github":
            return results.comparison_annotations(comparison, strict, missing_fails)
        if form == "junit":
            return results.comparison_junit(comparison, strict, missing_fails, options.command)
        if form == "markdown":
            return results.comparison_markdown(comparison, bool(options.verbose))
        if form == "json":
            return results.comparison_json(comparison)
        return stack(results.comparison_sheets(comparison, bool(options.verbose)))

    def draw(self, tell: Tell) -> None:
        """Write the files of --write, and draw the chart unless no row has a ratio."""
        for form, path in self.options.written:
            write_output(path, self.rendered(form))
            tell(f"Wrote {path}.")
        if self.options.plot and any(line.ratio for line in self.comparison.lines):
            self.front.draw(self.comparison, None, self.options.plot)
            tell(f"Drew {self.options.plot}.")

    def status(self, tell: Tell) -> int:
        """1 for a regression or a missing row (--missing fail), 3 for --strict and a doubt."""
        comparison, options = self.comparison, self.options
        if not comparison.ok or (options.missing == "fail" and comparison.lost):
            return WRONG
        if not comparison.compared:
            raise NothingMeasured(verdicts.why_nothing(comparison), self.run)
        return INCONCLUSIVE if options.strict and comparison.is_inconclusive else 0


class CheckJob(ComparisonJob):
    """`check`. With `--against`, new kernels alternate with old ones, and the time limit doubles."""

    options: comparing.CheckOptions
    measures = tells_partial = True

    def __init__(
        self, options: comparing.CheckOptions, runs: Sequence[Run], command: Sequence[str] = ()
    ) -> None:
        Job.__init__(self, options)
        self.times = options.aa or 1
        self.baseline = BaselineSet(tuple(runs), options.rules)
        self.command = tuple(command) or (*command_line(options), *(run.path for run in runs))
        self.clock: Callable[[], float] = time.monotonic
        self.patience_s = comparing.PATIENCE_S if options.patience is None else options.patience

    def prepare(self) -> None:
        """Plan the baseline's cases again, on today's devices."""
        baseline, options, worker = self.baseline, self.options, self.worker
        against, policy = options.against, options.policy_of(baseline.header.policy)
        if against is not None:  # two kernels are built and verified
            policy = replace(policy, time_limit_s=2 * policy.time_limit_s)
        all_devices, host = every_device(worker)
        devices, positions = _selected_devices(baseline, all_devices, options.device)
        folder = ""  # or what else `Case.kernels` names
        if against and not options.old_kernels:
            folder = str(against if str(against).startswith(DRIVER) else against.absolute())
        rows = [
            replace(row, device=key[1])
            for key, row in baseline.rows.items()
            if row.status == "ok" and (not baseline.rules.interleaved or baseline.rules.has_old_kernel(row))
        ]
        kernels = options.user_kernels, options.old_kernels
        plan = rebuild_plan(rows, devices, positions, folder, *kernels)
        for step in plan:  # the user's own kernels must exist
            if isinstance(step, Skip) and step.row.own and not step.row.source:
                raise UsageError(step.row.reason)
        if not any(isinstance(step, Case) for step in plan):
            how = " interleaved with their old kernels" if baseline.rules.interleaved else ""
            raise UsageError(f"{baseline.runs[0].path} has no rows that can be measured again{how}")
        try:  # start the other version before measuring anything
            for step in plan:
                if isinstance(step, Case) and step.partner and step.device >= 0:
                    worker.for_old(step.partner, devices[step.device])
        except NotMeasuredError as error:
            raise UsageError(f"--against {against}: {error.reason}") from None
        # The baseline's table suits its cases, but not a search, nor every case several times.
        view = "" if options.aa or is_tuning(baseline.runs[0]) else baseline.header.view
        header = header_of(devices, host, policy, self.command, view, baseline.header.scope)
        self.header = replace(header, quiet_s=CachedBursts().find(devices))
        self.plan = plan

    @cached_property
    def steps(self) -> session.Steps:
        return session.Steps(self.header.devices, self.header.policy, self.file, self.header.quiet_s)

    def measure(self, listen: Listen) -> None:
        if not self.options.aa:
            self.comparison = session.drive(check_rows(self), listen)
        for _ in range(self.options.aa or 0):  # each round in a new process
            self.worker.stop()
            session.drive(once(self), listen)

    def take(self, step: Case | Skip) -> Generator[Event, None, Row]:
        row = yield from self.steps.take(step, self.worker)
        self.rows.append(row)
        return row

    def conclude(self) -> None:
        if self.interrupted or self.error:
            self.comparison = verdicts.compare(self.baseline.runs, [self.run], self.baseline.rules)

    def rendered(self, form: str = "") -> RenderableType:
        if not self.options.aa:
            return super().rendered(form)
        sheets = aa_sheets(report := aa_report([self.run], self.options.rules))
        form = form or self.options.format
        if form == "table":
            return stack(sheets)
        return markdown(sheets) if form == "markdown" else aa_json(report)

    def report(self) -> None:
        made = self.comparison
        runs = [*made.bases, *made.news]
        self.front.report(runs, self.options.report, comparison=made, rules=made.rules)

    def interruption(self) -> str:
        return "the result covers the rows measured so far"

    def status(self, tell: Tell) -> int:
        """With --aa, 1 if any row failed."""
        if not self.options.aa:
            return super().status(tell)
        if lost := [row for row in self.rows if row.status in FAILED]:
            more = f" ({len(lost)} measurements of {len(self.rows)} in all)" if len(lost) > 1 else ""
            tell(f"gemmbench: {row_label(lost[0])}: {clean(verdicts.outcome(lost[0]))}{more}")
            return WRONG
        self.check_repeated()
        return 0

    def check_repeated(self) -> None:
        if all(row.status != "ok" for row in self.rows):
            first = self.rows[0]
            what = f"nothing was measured: {row_label(first)}: {clean(verdicts.outcome(first))}"
            raise NothingMeasured(what, self.run)


def once(job: CheckJob) -> Generator[Event, None, None]:
    """Measure every case once."""
    yield Planned(sum(isinstance(step, Case) for step in job.plan))
    for step in job.plan:
        yield from job.take(step)


def check_rows(job: CheckJob) -> Generator[Event, None, Comparison]:
    """Measure every case once, suspicious rows again, and return the comparison."""
    yield from once(job)
    baseline, cases = job.baseline, _cases(job)
    first = verdicts.pair_rows(baseline.runs, [job.run], baseline.rules)
    candidates = [
        Candidate(line, None if baseline.rules.interleaved else _control(job, first, line))
        for line in first.lines
        if line.key in cases and _is_suspicious(baseline.rules, line)
    ]
    if candidates:
        yield from (_alternate if baseline.rules.interleaved else _remeasure)(job, candidates, cases)
    final = (_final_line(job, each) for each in candidates)
    decided = {line.key: line for line in final}
    for each in candidates:  # a control may fail
        for key, row in each.failed.items():
            line = decided.get(key) or next(line for line in first.lines if line.key == key)
            decided[key] = _as_broken(line, row)
    lines = tuple(decided.get(line.key, line) for line in first.lines)
    return verdicts.conclude(replace(first, lines=lines, remarks=tuple(_remarks(first, candidates))))


@dataclass
class Candidate:
    """A suspicious row and what further measurements of it gave."""

    line: ComparedRow
    control: ComparedRow | None  # a row that alternates with it and shows the speed of the machine
    rows: list[tuple[Row, float]] = field(default_factory=list)  # and how much longer the control took
    failed: dict[RowKey, Row] = field(default_factory=dict)  # of the row itself, or of its control
    finding: comparing.RowVerdict = "cannot tell"  # of all its pairs of batches, if interleaved
    found_at: int = 0  # how many further measurements came before this finding

    @property
    def slowdown(self) -> float:
        """The control's time over the baseline's, at its largest change."""
        return max((slowdown for _, slowdown in self.rows), default=1.0, key=_change)

    def pooled(self, rules: comparing.Rules, start: int | None = None) -> ComparedRow | None:
        """Judge the interleaved batches of all measurements, or of the further ones from `start`."""
        further = [row for row, _ in self.rows[start:]]
        rows = [self.line.row, *further] if start is None else further
        usable = [row for row in rows if cost(row, rules.scope)]
        line = replace(self.line, row=usable[0]) if usable else self.line
        return verdicts.judge_interleaved(rules, line, usable)


def _is_suspicious(rules: comparing.Rules, line: ComparedRow) -> bool:
    """Whether a row may be slower, or was too slow to run."""
    if line.ratio is None:
        return is_too_slow(line.row) and line.verdict != "new"
    if rules.interleaved:
        return line.verdict in ("cannot tell", *_CHANGED)
    may_be = line.verdict in ("slower", "possibly slower", "differs", "cannot tell")
    return may_be and line.ratio.smaller > 1 + line.threshold + line.spread


def _cases(job: CheckJob) -> dict[RowKey, Case]:
    positions = verdicts.device_map(job.baseline.header, job.header)
    return {
        verdicts.match_key(step, positions[step.device] if step.device >= 0 else HOST): step
        for step in job.plan
        if isinstance(step, Case)
    }


def _control(job: CheckJob, first: Comparison, suspect: ComparedRow) -> ComparedRow | None:
    """A row that shows the machine's speed: a library, else a steady row."""

    def home(line: ComparedRow) -> int:
        return HOST if is_on_cpu(job.run, line.row) else line.key[1]

    def rank(line: ComparedRow) -> tuple[int, bool]:
        library, is_bad = line.key[2] in BASELINES, line.fails or line.is_inconclusive
        ratio = line.ratio.median if line.ratio and not is_bad else math.inf
        is_steady = 1 / _CONTROL_LIMIT <= ratio <= 1 + line.threshold
        return 0 if library else 1 if is_steady else 2, line.row.problem != suspect.row.problem

    fit = [
        line
        for line in first.lines
        if line.ratio and line.row.kind == "gemm" and line.key != suspect.key and home(line) == home(suspect)
        if rank(line)[0] < 2 or suspect.key[2] in BASELINES
    ]
    return min(fit, key=rank, default=None)


def _alternate(
    job: CheckJob, candidates: Sequence[Candidate], cases: Mapping[RowKey, Case]
) -> Generator[Event, None, None]:
    """Measure interleaved candidates again, in new processes, until pairs confirm a change."""
    rules, end_s = job.baseline.rules, job.clock() + job.patience_s

    def is_open(each: Candidate) -> bool:
        line = each.pooled(rules)
        if line is None:
            return len(each.rows) < LOOKS
        if line.verdict != each.finding:
            each.finding, each.found_at = line.verdict, len(each.rows)
        further = len(each.rows) - each.found_at if line.verdict in _CHANGED else 2 * LOOKS
        is_patient = further < 2 * LOOKS or job.clock() < end_s
        return further < LOOKS or (is_patient and _final_line(job, each).verdict == "cannot tell")

    while still_open := [each for each in candidates if not each.failed and is_open(each)]:
        yield Planned(len(still_open))
        job.worker.stop()
        for each in still_open:
            row = yield from job.take(cases[each.line.key])
            each.rows.append((row, 1.0))
            if row.status in FAILED:
                each.failed[each.line.key] = row


def _remeasure(
    job: CheckJob, candidates: Sequence[Candidate], cases: Mapping[RowKey, Case]
) -> Generator[Event, None, None]:
    """Measure candidates in two more rounds, with their control before and after."""
    yield Planned(2 * LOOKS * len(candidates))
    for _ in range(LOOKS):
        job.worker.stop()
        before: tuple[RowKey | None, float] = (None, 1.0)
        for each in candidates:
            control = each.control
            if each.failed:
                continue
            if control and before[0] != control.key:
                before = control.key, (yield from _slowdown(job, each, control, cases[control.key]))
            row = yield from job.take(cases[each.line.key])
            after = (yield from _slowdown(job, each, control, cases[control.key])) if control else 1.0
            each.rows.append((row, max(before[1], after, key=_change)))
            before = (control.key if control else None), after
            if row.status in FAILED:
                each.failed[each.line.key] = row


def _change(ratio: float) -> float:
    return max(ratio, 1 / ratio)


def _slowdown(
    job: CheckJob, candidate: Candidate, control: ComparedRow, case: Case
) -> Generator[Event, None, float]:
    """Measure a control: its time relative to the baseline; 1 without a time."""
    row = yield from job.take(case)
    if row.status in FAILED:
        candidate.failed[control.key] = row
    now = cost(row, job.baseline.rules.scope)
    return now.median * work(row) / control.base_s if now and control.base_s else 1.0


def _final_line(job: CheckJob, candidate: Candidate) -> ComparedRow:
    """Judge a suspicious row by all its measurements: it is slower only if each of them is.

    Times are first divided by the slowdown of the control. Interleaved pairs are pooled instead, and further
    ones alone must confirm.
    """
    line, rules = candidate.line, job.baseline.rules
    looks = [(line.row, 1.0), *candidate.rows]
    known = [(row, control, now) for row, control in looks if (now := cost(row, rules.scope))]
    if not any(row is not line.row for row, *_ in known):  # over its budget each time
        again = candidate.rows[-1][0] if candidate.rows else line.row
        is_unknown = line.verdict in ("missing", "cannot tell") and is_too_slow(again)
        return line if again.status == "ok" or is_unknown else _as_broken(line, again)
    line = replace(line, row=known[0][0])
    if rules.interleaved:
        line = candidate.pooled(rules) or line
        confirmation = candidate.pooled(rules, candidate.found_at)
        if line.verdict in _CHANGED and (confirmation is None or confirmation.verdict != line.verdict):
            return replace(line, verdict="cannot tell", reason="further measurements do not confirm it")
        return line
    olds = job.baseline.comparable(line.key, verdicts.Replicate(job.run, {line.key: line.row}))
    old = job.baseline.costs(olds, line.key)
    if not old:
        return line
    rows = [(each.run, each.rows[line.key]) for each in olds], [(job.run, row) for row, *_ in known]
    line = replace(line, uncertain=(verdicts.any_uncertain(rows[0]), verdicts.any_uncertain(rows[1])))
    steady = [each for each in known if _change(each[1]) <= _CONTROL_LIMIT]
    if candidate.control and all(row is looks[0][0] for row, *_ in steady):
        control = row_name(candidate.control.row)
        reason = f"its control {control} takes {units.number(candidate.slowdown)} times as long"
        return replace(line, verdict="cannot tell", reason=reason)
    before = verdicts.median_cost(old)
    new = [
        verdicts.Cost(*(value / max(control, 1.0) for value in astuple(now))) for _, control, now in steady
    ]
    ratios = [verdicts.ratio(before, each) for each in new]
    every = verdicts.Ratio(
        median(each.median for each in ratios),
        float(np.min([each.low for each in ratios])),
        float(np.max([each.high for each in ratios])),
        min(each.smaller for each in ratios),
    )
    line = verdicts.with_times(line, old, new)
    why = verdicts.disturbance([pair for pair in (*rows[0], *rows[1]) if is_on_cpu(*pair)])
    why = why and f"{why}: stop other programs"
    return verdicts.judge_times(rules, line, every, verdicts.largest_spread(old), verdicts.ROW_LIMIT, why)


def _as_broken(line: ComparedRow, row: Row) -> ComparedRow:
    reason = f"measured again: {verdicts.outcome(row)}"
    return replace(line, row=row, verdict="broken", reason=reason, ratio=None)


def _remarks(first: Comparison, candidates: Sequence[Candidate]) -> Iterator[str]:
    """What to say about the machine and the kernels of both sides."""
    slowest = max((each for each in candidates if each.control), key=lambda each: each.slowdown, default=None)
    if slowest and slowest.control and slowest.slowdown > 1 + comparing.DEFAULT_THRESHOLD:
        is_usable = slowest.slowdown <= _CONTROL_LIMIT
        allowed = "The times and changes allow for that." if is_usable else "That is too much to allow for."
        yield (
            f"The machine is slower than in the baseline: its control {row_name(slowest.control.row)} takes "
            f"{units.number(slowest.slowdown)} times as long. {allowed} Stop other programs, or measure a "
            "new baseline."
        )
    sources = [(line.row.former.source, line.row.source) for line in first.lines if line.row.former]
    if sources and all(old == new for old, new in sources):
        yield "The other folder has the same kernels."
    yield from first.remarks


def _selected_devices(
    baseline: BaselineSet, available: Sequence[DeviceFacts], selector: str
) -> tuple[tuple[DeviceFacts, ...], dict[int, int]]:
    """The devices to measure on, and their positions by position in the baseline; else `UsageError`."""
    base_devices = baseline.header.devices
    used = sorted({key[1] for key in baseline.rows if HOST < key[1] < len(base_devices)})
    if not used:
        return select(available, selector), {}
    devices = select(available, selector) if selector else available
    positions = verdicts.exact_positions([base_devices[slot] for slot in used], devices)
    others = iter([number for number in range(len(devices)) if selector and number not in positions])
    matched = [number if number is not None else next(others, None) for number in positions]
    pairs = [(slot, devices[at]) for slot, at in zip(used, matched, strict=True) if at is not None]
    if not pairs:
        here = ", ".join(clean(device.title) for device in available)
        raise UsageError(
            f"the baseline's device is not here: {clean(base_devices[used[0]].title)}; there are {here} "
            "(--device chooses one, --across device,driver compares anyway)"
        )
    for slot, device in () if baseline.rules.interleaved else pairs:  # if interleaved, both kernels run here
        if different := verdicts.device_difference(base_devices[slot], device, baseline.rules.across):
            across = "device,driver" if different[0] == "device" else "driver"
            raise UsageError(f"{different[1]} (--across {across} compares anyway)")
    return tuple(device for _, device in pairs), {slot: number for number, (slot, _) in enumerate(pairs)}


@dataclass(frozen=True)
class AARow:
    """A row that an A/A measurement measured at least twice."""

    row: Row  # its device is a position in the first run
    device: str  # its title
    runs: int  # measurements with a time
    min_threshold: float  # the largest difference between two runs, as a fraction


@dataclass(frozen=True)
class AAReport:
    """How much the rows of an A/A measurement differ between runs."""

    rows: tuple[AARow, ...]

    def __repr__(self) -> str:
        return f"<AAReport: {count_noun(len(self.rows), 'row')}, min_threshold {self.min_threshold}>"

    def _repr_html_(self) -> str:
        return html(aa_sheets(self))

    @property
    def min_threshold(self) -> float | None:
        """The difference, as a fraction, that 95 % of the rows do not exceed."""
        ordered = sorted(row.min_threshold for row in self.rows)
        return ordered[math.ceil(_AA_SHARE * len(ordered)) - 1] if ordered else None


def aa_report(runs: Sequence[Run], rules: comparing.Rules) -> AAReport:
    """By how much each row's times differ at most between runs of unchanged code."""
    baseline = BaselineSet(tuple(runs), rules)
    rows = []
    for key, first in baseline.rows.items():
        row = replace(first, device=key[1])
        costs = baseline.costs(baseline.with_result(key), key)
        if len(costs) > 1:
            device = verdicts.device_title(baseline.runs[0], row)
            rows.append(AARow(row, device, len(costs), verdicts.largest_spread(costs)))
    return AAReport(tuple(rows))


def aa_sheets(report: AAReport) -> list[Sheet]:
    """A table of rows for each device, and a sheet with one sentence about all rows."""
    groups = by_key((row.row.device, row) for row in report.rows)
    typed = len({row.row.dtype for row in report.rows}) > 1
    columns: Columns[AARow] = {
        "runs": lambda row: str(row.runs),
        "difference": lambda row: units.percent(row.min_threshold),
    }
    tables = [
        table(
            groups[device],
            {"": lambda row: row_name(row.row, typed)},
            columns,
            heading=tuple(map(clean, groups[device][0].device.split(" | ", 1))),
            caption="the largest difference between two unchanged runs, by medians or by minima",
        )
        for device in sorted(groups, key=lambda device: (device == HOST, device))
    ]
    text = "No row was measured twice: run-to-run variation is unknown."
    if report.min_threshold is not None:
        threshold, rows = rounded_percent(report.min_threshold), count_noun(len(report.rows), "row")
        text = f"{rounded_percent(_AA_SHARE)} of {rows} differ by at most {threshold} from run to run."
    unfit = verdicts.why_unfit([row.min_threshold for row in report.rows])
    advice = unfit or "With these runs as baselines, check adds a row's difference to its --threshold."
    notes = (Note("", text, "bold"), *([Note("", advice, "yellow" if unfit else "")] if report.rows else []))
    return [*tables, Sheet(notes=notes)]


def aa_json(report: AAReport) -> str:
    """The report as a JSON object with ``min_threshold`` and ``rows``. Thresholds are fractions."""
    rows = [
        {
            **{field: getattr(each.row, field) for field in ("kind", "variant", "dtype")},
            "device": each.device,
            "where": where(each.row),
            "runs": each.runs,
            "min_threshold": each.min_threshold,
        }
        for each in report.rows
    ]
    return json.dumps({"min_threshold": report.min_threshold, "rows": rows}, indent=1) + "\n"
