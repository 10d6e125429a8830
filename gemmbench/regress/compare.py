"""Compare runs with baseline runs: pair their rows and decide which became slower.

Interleaved rows have one ratio of times, new over old, with its interval. Between runs, a row fails only if
the ratios of medians and of minima are both high, because other programs raise medians, but rarely every
sample. Several baselines widen the interval by how much they differ. With one, rows only differ or do not.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import astuple, dataclass, replace
from functools import cached_property
from statistics import median

import numpy as np

from gemmbench.ladder import BY_NAME
from gemmbench.ladder.variant import laid_out
from gemmbench.measure.blas import UNKNOWN
from gemmbench.model.case import Case, saved_problem
from gemmbench.model.device import HOST, DeviceFacts
from gemmbench.model.instrument import is_too_slow
from gemmbench.model.row import BLAS, FAILED, MATH, Row, RowKey, row_key
from gemmbench.model.run_file import Header, Run
from gemmbench.model.units import clean, count_noun, list_values, percent
from gemmbench.regress.results import comparison_sheets, conclusion
from gemmbench.report.table import html, stack, stdout
from gemmbench.stats import rates
from gemmbench.stats.intervals import Interval, interleaved_ratio
from gemmbench.stats.rates import has_bursts, is_on_cpu, is_uncertain, on_host, work
from gemmbench.suite.options.comparing import (
    DIFFERENCES,
    ELSEWHERE,
    FAILING,
    LOST,
    VERDICTS,
    Kind,
    RowVerdict,
    Rules,
)

# Replayed on the unchanged runs in tests/data/aa, each against the run before it: 0 of 31 runs fail, and the
# same runs, all rows slowed down 2.5 times, fail in 30 of 31.
RUN_LIMIT = 1.5  # a run fails if half of its rows take longer than this
ROW_LIMIT = 1.5  # a row of a GPU fails above this, as does a row that `check` measured again
CPU_LIMIT = 2.0  # a row of a CPU, if no other program ran
# A kernel on a CPU with enough quiet batches. No pair of certain, unchanged rows of tests/data/quiet
# exceeds 1.05. The host's BLAS is excluded: 1.6 times at 128, before its matrices started on pages.
QUIET_LIMIT = 1.4
_LEAST_PAIRS = 12  # interleaved: six samples are the fewest whose range encloses the median with 95 %
_CONTROL = 0.05  # control bursts that differ by more than this show another program

_NO_RATE = "without a time on either side"
_CACHED = "cached from an earlier run, not measured in the new one"
_NO_KERNEL = "without a kernel that another folder can have"


@dataclass(frozen=True)
class Cost(Interval):
    """Seconds for one unit of a row's work in one replicate: median, 95 % interval, minimum."""

    minimum: float


def cost(row: Row, scope: str | None) -> Cost | None:
    """Seconds for each flop (else byte, else launch), in `scope` or the finest; None without samples."""
    chosen = rates.counted_scope(row, scope)
    times = rates.summary(row, chosen) if chosen else None
    if times is None:
        return None
    done, is_known = work(row), math.isfinite(times.noise)
    low, high = (times.low / done, times.high / done) if is_known else (math.nan, math.nan)
    return Cost(times.median / done, low, high, times.minimum / done)


@dataclass(frozen=True, eq=False)
class BaselineSet:
    """Baseline runs, ready to compare other runs with."""

    runs: tuple[Run, ...]
    rules: Rules

    @property
    def header(self) -> Header:
        """The header of the first run. Device positions in row keys refer to it."""
        return self.runs[0].header

    @cached_property
    def replicates(self) -> tuple[Replicate, ...]:
        return self.replicates_of(self.runs)

    def replicates_of(self, runs: Sequence[Run]) -> tuple[Replicate, ...]:
        """Split runs into replicates, without copies of earlier rows."""
        seen: set[tuple[object, ...]] = set()
        replicates = []
        for each in (each for run in runs for each in replicates_in(run, self.header)):
            rows = {}
            for key, row in each.rows.items():
                copy = key, *((name, scope.seconds) for name, scope in sorted(row.samples.items()))
                if not row.samples or copy not in seen:
                    rows[key] = row
                    seen.add(copy)
            replicates.append(Replicate(each.run, rows))
        return tuple(replicates)

    @cached_property
    def rows(self) -> dict[RowKey, Row]:
        """By key, the first row in all replicates whose status is ok, otherwise the first row."""
        rows: dict[RowKey, Row] = {}
        for each in self.replicates:
            for key, row in each.rows.items():
                if key not in rows or (row.status == "ok" and rows[key].status != "ok"):
                    rows[key] = row
        return rows

    def with_result(self, key: RowKey) -> list[Replicate]:
        return [each for each in self.replicates if key in each.rows and each.rows[key].status == "ok"]

    def comparable(self, key: RowKey, now: Replicate) -> list[Replicate]:
        return [each for each in self.with_result(key) if not self.difference(each, now, key)]

    def costs(self, replicates: Sequence[Replicate], key: RowKey) -> list[Cost]:
        every = (cost(each.rows[key], self.rules.scope) for each in replicates)
        return [each for each in every if each is not None]

    def difference(self, before: Replicate, now: Replicate, key: RowKey, also: Collection[str] = ()) -> str:
        """Why the rows of two replicates are not comparable, or "". `also` allows more."""
        if self.rules.interleaved:
            return ""
        across = {*self.rules.across, *also}
        return difference((before.run, before.rows[key]), (now.run, now.rows[key]), across, self.rules.scope)


@dataclass(frozen=True, eq=False)
class Replicate:
    """The rows of a run, each case once."""

    run: Run
    rows: Mapping[RowKey, Row]  # device positions in the keys refer to the first baseline's header


def match_key(of: Row | Case, device: int) -> RowKey:
    """The key by which a row or case finds its partner: a preset matches whatever its values."""
    problem = of.problem if isinstance(of, Row) else saved_problem(of.problem) if of.problem else None
    given = of.parameters if of.given is None else of.given
    parameters = {name: of.parameters[name] for name in given if name in of.parameters}
    return row_key(of.kind, device, of.variant, of.dtype, parameters, problem)


def replicates_in(run: Run, reference: Header) -> tuple[Replicate, ...]:
    """Split a run into replicates: the n-th row of each case goes into the n-th replicate."""
    positions = device_map(reference, run.header)
    replicates: list[dict[RowKey, Row]] = []
    counts: dict[RowKey, int] = {}
    for row in run.rows:
        key = match_key(row, positions[row.device] if row.device >= 0 else HOST)
        index = counts[key] = counts.get(key, -1) + 1
        if index == len(replicates):
            replicates.append({})
        replicates[index][key] = row
    return tuple(Replicate(run, rows) for rows in replicates)


def device_map(reference: Header, header: Header) -> tuple[int, ...]:
    """For each device of a header, its position in a reference header, or an unused one."""
    positions, count = exact_positions(header.devices, reference.devices), len(reference.devices)
    rest = iter([index for index in range(count + len(positions)) if index not in positions])
    return tuple(next(rest) if index is None else index for index in positions)


def exact_positions(wanted: Sequence[DeviceFacts], available: Sequence[DeviceFacts]) -> list[int | None]:
    """For each wanted device, the position of an unused equal one, or None."""
    positions: dict[int, int] = {}
    for is_same_chip in (True, False):
        for number, device in enumerate(wanted):
            for index, other in enumerate(available):
                is_equal = (other.platform, other.name) == (device.platform, device.name)
                is_free = number not in positions and index not in positions.values()
                if is_equal and is_free and (not is_same_chip or device.chip == other.chip != ""):
                    positions[number] = index
    return [positions.get(number) for number in range(len(wanted))]


# The kind of a difference (None: `--across` cannot allow it), its name, the old value and the new one.
Fact = tuple[Kind | None, str, str, str]


def device_difference(old: DeviceFacts, new: DeviceFacts, across: Collection[str]) -> tuple[Kind, str] | None:
    """The first difference of two devices that `across` does not allow."""
    differences = _differences(_device_facts(old, new), across)
    return next(((kind, reason) for kind, reason in differences if kind is not None), None)


def difference(
    old: tuple[Run, Row], new: tuple[Run, Row], across: Collection[str] = (), scope: str | None = None
) -> str:
    """Why two rows with one key are not comparable, with a remedy; or ""."""
    kind, reason = next(_differences(_facts(old, new, scope), across), (None, ""))
    if kind is None:
        return reason and f"{reason}; measure both runs alike"
    remedy = DIFFERENCES[kind]
    if kind == "source" and new[1].own:
        remedy = f"check --kernel-file {clean(new[1].own)} --against OLD.cl interleaves the two versions"
    return f"{reason}; {remedy}, or compare anyway with --across {kind}"


def _differences(facts: Iterable[Fact], across: Collection[str]) -> Iterator[tuple[Kind | None, str]]:
    for kind, name, before, after in facts:
        if before != after and kind not in across:
            yield kind, f"{name}: {clean(after) or 'none'}, not {clean(before) or 'none'}"


def _device_facts(old: DeviceFacts, new: DeviceFacts) -> Iterable[Fact]:
    yield "device", "other device", old.name, new.name
    units = [count_noun(device.compute_units, "compute unit") for device in (old, new)]
    yield "device", "other device", units[0], units[1]
    yield "driver", "other driver", f"{old.platform} {old.driver}", f"{new.platform} {new.driver}"


def _facts(base: tuple[Run, Row], latest: tuple[Run, Row], scope: str | None) -> Iterable[Fact]:
    """What must be equal for two rows to be comparable: device, driver, options."""
    (then, before), (now, after) = base, latest
    old, new = then.device(before), now.device(after)
    hosts = then.header.host, now.header.host
    if old and new:
        yield from _device_facts(old, new)
        if old.type == "cpu":  # PoCL counts cores that its process may not use as compute units
            cores = [count_noun(host.cores, "core") for host in hosts]
            yield "device", "other device", cores[0], cores[1]
    else:
        yield "device", "other device", hosts[0].cpu, hosts[1].cpu
        scipy = [str(row.choice.get(BLAS, "")) for row in (before, after)]
        for blas in ((hosts[0].blas, hosts[1].blas), scipy):
            yield "driver", "other BLAS or BLAS threads", *blas
            if UNKNOWN in blas[1]:
                yield "driver", "BLAS that may differ", "a known BLAS", blas[1]
    if not only_preset_differs(before, after):
        yield "source", "other kernel source", before.source, after.source
    warmth = {True: "--cold", False: "warm caches"}
    yield "sampling", "other sampling", warmth[then.header.policy.cold], warmth[now.header.policy.cold]
    if before.memory and after.memory:  # rows that did not run have none
        yield "memory", "other way of passing operands", before.memory, after.memory
    files = [" and ".join(row.operands) if row.operands else "generated" for row in (before, after)]
    yield None, "other operands", files[0], files[1]
    scopes = [rates.counted_scope(row, scope) for row in (before, after)]
    if scopes[0] and scopes[1]:
        yield None, "other scope", scopes[0], scopes[1]
        if "host" in scopes:
            yield "device", "host scope of another host", hosts[0].cpu, hosts[1].cpu


def only_preset_differs(before: Row, after: Row) -> bool:
    """Whether two rows used today's kernel source, with other parameters."""
    if before.parameters == after.parameters or before.variant not in BY_NAME:
        return False
    try:
        for row in (before, after):
            variant = BY_NAME[row.variant]
            variant = laid_out(variant, rates.gemm_of(row)) if row.problem else variant
            variant = variant.with_math(str(row.parameters.get(MATH, "")))
            values = {name: int(value) for name, value in row.parameters.items() if name != MATH}
            if variant.fingerprint(row.dtype, values) != row.source:
                return False
    except (KeyError, ValueError, TypeError, OSError):  # parameters of another version
        return False
    return True


@dataclass(frozen=True)
class Ratio(Interval):
    """A ratio of times, new over old: of medians (its interval may be NaN) and of minima."""

    minima: float

    @property
    def smaller(self) -> float:
        return min(self.median, self.minima)


@dataclass(frozen=True)
class ComparedRow:
    """One row of a comparison."""

    key: RowKey
    row: Row  # the new one; the baseline's if there is none
    device: str  # its title
    verdict: RowVerdict
    reason: str = ""
    threshold: float = 0.0
    ratio: Ratio | None = None  # None if nothing was compared; its interval is unknown with a single baseline
    spread: float = 0.0  # the largest difference between two baselines, by which the interval is widened
    base_s: float | None = None  # seconds for one problem
    new_s: float | None = None
    uncertain: tuple[bool, bool] = (False, False)  # whether the times are marked ~
    runs: tuple[int, int] = (0, 0)  # baseline and new replicates that were used
    resources: str = ""  # the changes of registers, spills and local memory

    @property
    def fails(self) -> bool:
        return self.verdict in FAILING

    @property
    def lost(self) -> bool:
        """Whether the baseline's time was compared with nothing, or a prediction."""
        return self.verdict in LOST or (self.is_possibly_slower and self.ratio is None)

    @property
    def is_possibly_slower(self) -> bool:
        is_above = self.ratio is not None and self.ratio.smaller > 1 + self.threshold
        return self.verdict == "possibly slower" or (self.verdict == "differs" and is_above)

    @property
    def is_inconclusive(self) -> bool:
        return self.is_possibly_slower or self.verdict == "cannot tell"

    @property
    def smallest_slowdown(self) -> float | None:
        """The smallest slowdown that would have been found, of a row whose interval is too wide."""
        if self.verdict != "cannot tell" or self.reason or self.ratio is None:
            return None
        change = self.ratio.smallest_slowdown(self.threshold)
        return change if math.isfinite(change) else None


@dataclass(frozen=True, eq=False)
class Comparison:
    """New runs compared with baseline runs, a line for each row, with their table."""

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
    def is_inconclusive(self) -> bool:
        return any(line.is_inconclusive for line in self.lines)

    @property
    def counts(self) -> Counter[RowVerdict]:
        return Counter(line.verdict for line in self.lines)

    @property
    def compared(self) -> int:
        """How many lines have a result; 0 for the host's alone if a device's is lost."""
        stated = [line for line in self.lines if line.ratio is not None or line.verdict == "broken"]
        hosts = all(line.key[1] == HOST for line in stated)
        return 0 if hosts and any(line.lost and line.key[1] != HOST for line in self.lines) else len(stated)

    @property
    def lost(self) -> int:
        return sum(line.lost for line in self.lines)

    @property
    def device_pairs(self) -> list[tuple[int, int]]:
        """Positions of different devices in the first baseline and new run, with --across device."""
        base, new = self.bases[0].header, self.news[0].header
        positions = device_map(base, new) if "device" in self.rules.across else ()
        return [
            (old, at)
            for at, old in enumerate(positions)
            if old < len(base.devices)
            and device_difference(base.devices[old], new.devices[at], frozenset({"driver"}))
        ]

    def show(self, verbose: bool = False) -> None:
        """Print the table of ``gemmbench compare``."""
        stdout().print(stack(comparison_sheets(self, verbose)))

    def __repr__(self) -> str:
        return f"<gemmbench.Comparison: {conclusion(self)}>"

    def _repr_html_(self) -> str:
        """The table of `show`, for a notebook."""
        return html(comparison_sheets(self))


def compare(bases: Sequence[Run], news: Sequence[Run], rules: Rules | None = None) -> Comparison:
    """Pair the rows of baseline runs and new runs, and give each a verdict."""
    return conclude(pair_rows(bases, news, rules or Rules()))


def pair_rows(bases: Sequence[Run], news: Sequence[Run], rules: Rules) -> Comparison:
    """Pair the rows of baseline and new runs by key and judge each alone."""
    baseline = BaselineSet(tuple(bases), rules)
    replicates = baseline.replicates_of(news)
    left_out: Counter[str] = Counter()
    lines = []
    for key in dict.fromkeys([*baseline.rows, *(key for each in replicates for key in each.rows)]):
        line = _line(baseline, key, [each for each in replicates if key in each.rows])
        if isinstance(line, ComparedRow):
            line = _with_resources(baseline, line, replicates)
            lines.append(_of_two_devices(baseline, line, replicates))
        else:
            left_out[line] += 1
    unused = rules.by_name.keys() - {line.row.variant for line in lines}
    remarks = [f"--threshold names {clean(name)}, but no row is of that kernel." for name in sorted(unused)]
    remarks += dict.fromkeys(
        f"The preset of {line.row.variant} is {list_values(line.row.parameters)}, "
        f"not {list_values(before.parameters)}."
        for line in lines
        if (before := baseline.rows.get(line.key)) is not None and before.kind == "gemm"
        if before.parameters != line.row.parameters and line.verdict != ELSEWHERE
    )
    remarks += [] if rules.interleaved else _variable_remarks(bases[0], news[0])
    return Comparison(baseline.runs, tuple(news), rules, tuple(lines), dict(left_out), tuple(remarks))


def _variable_remarks(before: Run, now: Run) -> list[str]:
    """A sentence for each environment variable that differs between two runs."""
    old, new = before.header.host.environment, now.header.host.environment
    return [
        f"{clean(name)} was {clean(old.get(name, 'not set'))} in the baseline, and is "
        f"{clean(new.get(name, 'not set'))} now."
        for name in sorted(old.keys() | new.keys())
        if old.get(name) != new.get(name)
    ]


def conclude(comparison: Comparison) -> Comparison:
    """Apply the rule for the whole run, unless it is interleaved. Then fail rows whose resources changed.

    If the median of all ratios exceeds 1.5 (or the general threshold), every row above it is "slower".
    """
    rules = comparison.rules
    comparison = comparison if rules.interleaved else _with_rule_of_run(comparison)
    if "resources" not in rules.fail_on:
        return comparison
    lines = tuple(
        replace(line, verdict="resources changed", reason=line.resources)
        if line.resources and not line.fails
        else line
        for line in comparison.lines
    )
    return replace(comparison, lines=lines)


def _with_rule_of_run(comparison: Comparison) -> Comparison:
    """Every row above the limit is slower if the median ratio is; says why runs cannot be judged."""
    lines, remarks = comparison.lines, comparison.remarks
    ratios = [_counted_ratio(line) for line in lines if line.ratio]
    limit = max(RUN_LIMIT, 1 + (comparison.rules.default or 0))
    if ratios and median(ratios) > limit:
        lines = tuple(
            replace(line, verdict="slower", reason="") if _counted_ratio(line) > limit else line
            for line in lines
        )
        sentence = f"At least half of the rows take over {limit:g} times as long: the run is slower."
        remarks = (sentence, *remarks)
    unfit = why_unfit([line.spread for line in lines if line.ratio and line.runs[0] > 1])
    is_judged = {line.verdict for line in lines if line.ratio} != {ELSEWHERE}
    if is_judged and max((line.runs[0] for line in lines), default=0) == 1:
        unfit = "Only one baseline run: run-to-run variation is unknown. Add more, or use check --against."
    return replace(comparison, lines=lines, remarks=(*remarks, unfit) if unfit else remarks)


def _counted_ratio(line: ComparedRow) -> float:
    is_above = line.verdict == "slower" or line.is_possibly_slower
    is_excused = any(line.uncertain) and has_bursts(line.row)  # which show other programs
    return line.ratio.smaller if line.ratio and is_above and not is_excused else 1.0


def why_unfit(spreads: Sequence[float]) -> str:
    """Why stored times show nothing on a machine whose unchanged runs differ by `spreads`, or ""."""
    typical = median(spreads or [0.0])
    if typical <= ROW_LIMIT - 1:
        return ""
    return (
        f"Unchanged runs differ by {percent(typical)} or more in half of the rows: this machine is unfit for "
        "stored times. Use check --against."
    )


def _line(baseline: BaselineSet, key: RowKey, news: Sequence[Replicate]) -> ComparedRow | str:
    """The line of one key with its verdict, or as text why it has none."""
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
    """The line of a row that did not run now: "missing", or judged by its predicted time."""
    row, rules = line.row, baseline.rules
    olds = baseline.comparable(line.key, now)
    costs = [before for each in olds if (before := cost(each.rows[line.key], "host"))]
    if not is_too_slow(row) or row.needs_s is None or not costs:
        return replace(line, reason=outcome(row))
    predicted = row.needs_s / (median_cost(costs).median * work(baseline.rows[line.key]))
    if predicted <= max(_limit(now.run, row), 1 + rules.threshold(row)):
        return replace(line, verdict="cannot tell", reason="over its budget; raise --budget")
    if rules.interleaved:
        return replace(line, reason=outcome(row))
    verdict: RowVerdict = "possibly slower" if rules.given_threshold(row) is None else "slower"
    return replace(line, verdict=verdict, reason="over its budget; raise --budget")


def _limit(run: Run, row: Row) -> float:
    return CPU_LIMIT if is_on_cpu(run, row) else ROW_LIMIT


def _with_resources(baseline: BaselineSet, line: ComparedRow, news: Sequence[Replicate]) -> ComparedRow:
    """Add changed registers, spills and local memory to a line."""
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
    return replace(line, resources="; ".join(changed_resources(before, row)))


def _of_two_devices(baseline: BaselineSet, line: ComparedRow, news: Sequence[Replicate]) -> ComparedRow:
    """The line without a judgement if its rows ran on different devices."""
    key, rules = line.key, baseline.rules
    olds, latest = ([each for each in side if key in each.rows] for side in (baseline.replicates, news))
    if rules.interleaved or "device" not in rules.across or not (olds and latest):
        return line
    old, new = ((side[0].run, side[0].rows[key]) for side in (olds, latest))
    if all(kind != "device" for kind, _ in _differences(_facts(old, new, rules.scope), ())):
        return line
    if line.ratio:
        ratio = replace(line.ratio, low=math.nan, high=math.nan)
        return replace(line, verdict=ELSEWHERE, reason="", ratio=ratio, resources="")
    is_lost = line.verdict in FAILING and line.row.status != "wrong"
    return replace(line, verdict="missing") if is_lost or line.is_inconclusive else line


_RESOURCES = {
    "registers": "registers",
    "spill_bytes": "bytes spilled",
    "local_bytes": "bytes of local memory",
}


def changed_resources(before: Row, now: Row) -> Iterator[str]:
    """Yield each change of registers, spills or local memory: ``name: 40 registers, not 32``."""
    olds, news = ({each.kernel: each for each in row.resources} for row in (before, now))
    for kernel in (kernel for kernel in news if kernel in olds):
        for name, unit in _RESOURCES.items():
            old, new = getattr(olds[kernel], name), getattr(news[kernel], name)
            if None not in (old, new) and old != new:
                yield f"{kernel}: {new} {unit}, not {old}"


def _compared(baseline: BaselineSet, line: ComparedRow, news: Sequence[Replicate]) -> ComparedRow:
    """A line with its verdict: the comparable old replicates against the new ones."""
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
            return replace(line, verdict="cannot tell", reason=reason)
    if rules.interleaved:
        made = judge_interleaved(rules, line, [each.rows[key] for each in news])
        return made or replace(line, verdict="missing", reason="not interleaved with its old kernel")
    old, new = baseline.costs(olds, key), baseline.costs(news, key)
    if not old or not new:  # no samples, though the row is ok
        return replace(line, verdict="missing", reason="without a time")
    sides = [[(each.run, each.rows[key]) for each in side] for side in (olds, news)]
    line = with_times(line, old, new)
    line = replace(line, uncertain=(any_uncertain(sides[0]), any_uncertain(sides[1])))
    rows = [(run, row) for side in sides for run, row in side if is_on_cpu(run, row)]
    is_quiet = bool(rows) and all(has_bursts(row) and not on_host(row) for _, row in rows)
    limit = QUIET_LIMIT if is_quiet else _limit(first.run, first.rows[key])
    doubts = disturbance(rows), doubt(rows)
    why = (each and f"{each}: measure again with gemmbench check BASE" for each in doubts)
    return judge_times(
        rules, line, ratio(median_cost(old), median_cost(new)), largest_spread(old), limit, *why
    )


def with_times(line: ComparedRow, old: Sequence[Cost], new: Sequence[Cost]) -> ComparedRow:
    """A line with the median times of both sides in seconds, and the number of replicates."""
    base_s, new_s = (median_cost(side).median * work(line.row) if side else None for side in (old, new))
    return replace(line, base_s=base_s, new_s=new_s, runs=(len(old), len(new)))


def median_cost(costs: Sequence[Cost]) -> Cost:
    """The medians over replicates of each field; NaN where a replicate has NaN."""
    return Cost(*map(float, np.median([astuple(each) for each in costs], axis=0)))


def ratio(old: Cost, new: Cost) -> Ratio:
    """The ratios of medians and of minima. The interval is as wide as those within both runs allow."""
    medians = new.over(old)
    return Ratio(medians.median, medians.low, medians.high, new.minimum / old.minimum)


def largest_spread(costs: Sequence[Cost]) -> float:
    """The largest difference between two replicates, as a fraction; 0 for one."""
    sides = [each.median for each in costs], [each.minimum for each in costs]
    return max(max(values) / min(values) for values in sides) - 1


def any_uncertain(rows: Sequence[tuple[Run, Row]]) -> bool:
    """Whether one of the rows is marked ``~``."""
    return any(is_uncertain(run, row) for run, row in rows)


def disturbance(rows: Sequence[tuple[Run, Row]]) -> str:
    """Why a change of rows on a CPU is probably that of other programs, or ""."""
    bursts = [seconds for _, row in rows if row.conditions for seconds in row.conditions.control_s]
    bursts += [scope.quiet_s[0] for _, row in rows for scope in row.samples.values() if scope.quiet_s]
    is_disturbed = bursts and max(bursts) > (1 + _CONTROL) * min(bursts)
    return f"control bursts differ by more than {percent(_CONTROL)}" if is_disturbed else ""


def doubt(rows: Sequence[tuple[Run, Row]]) -> str:
    """Why a change of rows on a CPU may be that of other programs, or ""."""
    if any_uncertain(rows):
        return "an uncertain figure"
    known = all(has_bursts(row) or (row.conditions and row.conditions.control_s) for _, row in rows)
    return "" if known else "no control bursts show whether other programs ran"


def judge_times(
    rules: Rules,
    line: ComparedRow,
    ratio: Ratio,
    spread: float,
    limit: float,
    disturbance: str,
    doubt: str = "",
) -> ComparedRow:
    """Give a line of two runs the verdict of its ratio, new time over old. `spread` widens the interval.

    A row that is slower fails if both ratios exceed `limit` (or the given threshold) and nothing raises a
    `doubt`, which a given threshold overrules. After a disturbance nobody can tell. With a single baseline,
    other rows differ or do not, and intervals are unknown: runs differ by more than their samples show.
    """
    threshold, several = rules.threshold(line.row), line.runs[0] > 1
    is_given = rules.given_threshold(line.row) is not None
    widened = replace(ratio, low=ratio.low / (1 + spread), high=ratio.high * (1 + spread))
    above = 1 + threshold + spread
    would_fail = ratio.smaller > (above if is_given else max(limit, above))
    verdict: RowVerdict = widened.finding(threshold)
    reason = ""
    if verdict in ("slower", "faster") and disturbance:
        verdict, reason = "cannot tell", disturbance
    elif verdict == "slower" and ((doubt and not is_given) or not would_fail):
        verdict, reason = "possibly slower" if several else "differs", doubt if would_fail else ""
    elif verdict == "faster" and several and doubt and not is_given:
        verdict, reason = "cannot tell", doubt
    elif verdict == "faster" and not several and (doubt or max(ratio.median, ratio.minima) >= 1 / limit):
        verdict = "differs"
    elif verdict == "unchanged" and not several:
        verdict = "within"
    elif verdict == "cannot tell" and not several:
        reason = "its samples spread too much"
    ends = (widened.low, widened.high) if several else (math.nan, math.nan)
    ratio = replace(ratio, low=ends[0], high=ends[1])
    return replace(line, verdict=verdict, reason=reason, threshold=threshold, ratio=ratio, spread=spread)


def judge_interleaved(rules: Rules, line: ComparedRow, rows: Sequence[Row]) -> ComparedRow | None:
    """Judge a line by pooled interleaved batches; None without any."""
    new, old = rates.interleaved_seconds(rows, rules.scope)
    if not new:
        return None
    made, threshold, reason = interleaved_ratio(new, old), rules.threshold(line.row), ""
    ratio = Ratio(made.median, made.low, made.high, made.median)
    if len(new) < _LEAST_PAIRS:
        ratio = replace(ratio, low=math.nan, high=math.nan)
        reason = f"only {count_noun(len(new), 'pair')} of batches: raise --budget"
    middle_s, half = math.sqrt(median(old) * median(new)), math.sqrt(ratio.median)
    return replace(
        line, verdict=ratio.finding(threshold), reason=reason, threshold=threshold, ratio=ratio,
        base_s=middle_s / half, new_s=middle_s * half, runs=(1, len(rows)),
    )  # fmt: skip


def device_title(run: Run, row: Row) -> str:
    """The device of a row; for the host, its processor and BLAS."""
    device = run.device(row)
    return device.title if device else f"{run.header.host.cpu} | {run.header.host.blas}"


def outcome(row: Row) -> str:
    """A row's status and reason."""
    return f"{row.status}: {row.reason}".removesuffix(": ")


def why_nothing(comparison: Comparison) -> str:
    """Why nothing could be compared, or only rows of the host."""
    lost = [line for line in comparison.lines if line.lost] or comparison.lines
    reasons = [line.reason or VERDICTS[line.verdict] for line in lost]
    reasons += [f"{count_noun(count, 'row')} {why}" for why, count in comparison.left_out.items()]
    hosts = any(line.ratio for line in comparison.lines)
    what = "no kernel was compared, only the host's BLAS" if hosts else "nothing was compared"
    why = "; ".join([*dict.fromkeys(map(clean, reasons))][:2]) or "the runs have no rows"
    return f"{what}: {why}"
