"""The tables of docs/gate-proof.md, from results that were counted."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from statistics import median, stdev

import numpy as np

from gemmbench.regress.gate import MOST_ROUNDS
from gemmbench.regress.verdict import robust_deviation
from gemmbench.stats.rates import measure
from tools.gate_live import PLANTED, Judged
from tools.gate_simulation import REFERENCES, Recording, Tally, plantable

COMMAND = "python tools/bench/gate_proof.py --simulated 0 --live 180 --planted 0.1,0.05,0.02 --out FILE"
MERGE = "python tools/bench/gate_proof.py --simulated 0 --merge LABEL=FILE... --write"
MOST_OPEN = 0.5  # of the rows: beyond it, that there is no false alarm is no merit
TARGETS = ((0.1, 0.05, 95), (0.05, 0.025, 80))  # slowdown, threshold, found in 100


@dataclass(frozen=True)
class Cell:
    """What became of so many jobs with one setting of the gate and one planted slowdown."""

    where: str
    mode: str
    threshold: float
    slow: float
    jobs: int
    rows: int  # that were not made slower, and got a verdict
    alarms: int  # of them, called slower
    open: int  # of them, inconclusive
    found: int  # planted rows called slower
    left_open: int  # planted rows inconclusive
    sizes: dict[str, tuple[int, int]]  # by m: planted, found

    @classmethod
    def of(cls, where: str, mode: str, threshold: float, slow: float, tally: Tally) -> Cell:
        """From a tally."""
        return cls(
            where,
            mode,
            threshold,
            slow,
            tally.trials,
            tally.others.total(),
            tally.others["slower"],
            tally.others["inconclusive"],
            tally.planted["slower"],
            tally.planted["inconclusive"],
            {str(size): (count.total(), count["slower"]) for size, count in sorted(tally.sizes.items())},
        )

    @property
    def alarms_per_thousand(self) -> float:
        """False alarms in 1,000 rows."""
        return 1000 * self.alarms / self.rows if self.rows else 0.0

    @property
    def found_of_hundred(self) -> float:
        """Planted slowdowns found, in 100."""
        return 100 * self.found / self.jobs if self.jobs else 0.0


@dataclass(frozen=True)
class Turned:
    """Rows that were measured in turn with another checkout, of one machine, threshold and slowdown."""

    where: str
    threshold: float
    planted: float  # 0.05: 5 % more work; 0: nothing was changed
    jobs: int
    rows: int  # with a verdict
    lost: int  # without one: wrong, crashed, missing
    slower: int
    open: int  # inconclusive, and may be slower
    looks: int  # at all of them together; 0: not counted
    took: float  # the middle row's change, by its latest figures
    apart: float  # standard deviation of the first looks' figures, as a fraction; robust; 0: not counted
    kinds: dict[str, tuple[int, int, float]]  # by kernel and size: rows, slower, and what the middle one took
    is_replayed: bool = False  # see `gate_replay`


@dataclass(frozen=True)
class Unchanged:
    """Jobs on a recording: how many fail though nothing changed, and how many find a row twice as slow."""

    where: str
    command: str
    bases: int  # runs of the base
    threshold: float
    jobs: int
    failed: int
    found: int  # of as many jobs with one row twice as slow


@dataclass
class Results:
    """All that docs/gate-proof.json holds."""

    unchanged: list[Unchanged] = field(default_factory=list)
    simulated: list[Cell] = field(default_factory=list)
    seed: int = 0
    turned: list[Turned] = field(default_factory=list)


def upper_bound(count: int, total: int) -> float:
    """The rate that so many of so many allow: Clopper and Pearson's upper limit, one-sided, 95 %."""
    from scipy.stats import beta

    return float(beta.ppf(0.95, count + 1, total - count)) if count < total else 1.0


def bounded(count: int, total: int) -> str:
    """``0 of 757 (allows 4.0 in 1,000)``."""
    if not total:
        return "untried"
    return f"{count} of {total:,} (allows {1000 * upper_bound(count, total):.1f} in 1,000)"


def turned(where: str, lines: Sequence[Judged], is_replayed: bool = False) -> list[Turned]:
    """Count what became of rows, by threshold and slowdown."""
    groups: dict[tuple[float, float], list[Judged]] = {}
    for line in lines:
        groups.setdefault((line.planted, line.threshold), []).append(line)
    return [_turned(where, *key, group, is_replayed) for key, group in sorted(groups.items())]


def _turned(
    where: str, planted: float, threshold: float, lines: Sequence[Judged], is_replayed: bool
) -> Turned:
    right = [
        line
        for line in lines
        if line.figures and line.verdict in ("slower", "same", "faster", "inconclusive")
    ]
    by_kind: dict[str, list[Judged]] = {}
    for line in right:
        by_kind.setdefault(f"{line.variant} {line.size}", []).append(line)
    firsts = [line.figures[0][0] for line in right]
    return Turned(
        where,
        threshold,
        planted,
        len({line.job for line in lines}),
        len(right),
        len(lines) - len(right),
        sum(line.verdict == "slower" for line in right),
        sum(line.verdict == "inconclusive" and line.may_be_slower for line in right),
        sum(line.looks for line in right),
        _took(right),
        robust_deviation(firsts),
        {
            name: (len(of_kind), sum(line.verdict == "slower" for line in of_kind), _took(of_kind))
            for name, of_kind in sorted(by_kind.items())
        },
        is_replayed,
    )


def _took(lines: Sequence[Judged]) -> float:
    """How much longer the middle row took, by its later looks if it has any."""
    values = [median(each[0] for each in line.figures[1:] or line.figures) for line in lines]
    return math.expm1(median(values)) if values else 0.0


def interval(count: int, total: int) -> str:
    """Clopper and Pearson's interval of a rate, 95 %: ``97 of 100 (91 to 99 %)``."""
    from scipy.stats import binomtest

    if not total:
        return "untried"
    both = binomtest(count, total).proportion_ci(0.95, "exact")
    return f"{count} of {total:,} ({100 * both.low:.1f} to {100 * both.high:.1f} %)"


def unchanged_table(cells: Sequence[Unchanged]) -> str:
    """A line for each default."""
    lines = [
        [
            cell.where,
            cell.command,
            str(cell.bases),
            _percent(cell.threshold),
            f"{cell.failed} of {cell.jobs}",
            _met(50 * cell.failed <= cell.jobs, _percent(cell.failed / cell.jobs)),
            _percent(upper_bound(cell.failed, cell.jobs)),
            f"{cell.found} of {cell.jobs}",
        ]
        for cell in cells
    ]
    heads = ["noise of", "command", "base runs", "threshold", "unchanged jobs that failed"]
    heads += ["1 in 50 at most", "it allows", "a row twice as slow: found"]
    return _markdown(heads, lines)


def simulated_table(cells: Sequence[Cell]) -> str:
    """A line for each recording, mode and threshold: false alarms, and what was found by slowdown."""
    planted = sorted({cell.slow for cell in cells if cell.slow})
    heads = [
        "noise of",
        "mode",
        "threshold",
        "jobs",
        "rows unchanged",
        "called slower",
        "allows, in 1,000",
        "left open",
    ]
    heads += [f"{_percent(slow)} slower: found in 100" for slow in planted]
    lines = []
    for group in _groups(cells):
        still = [cell for cell in group if not cell.slow]
        rows, alarms, undecided = (
            sum(getattr(cell, name) for cell in still) for name in ("rows", "alarms", "open")
        )
        first = group[0]
        line = [first.where, first.mode, _percent(first.threshold), str(first.jobs), f"{rows:,}", str(alarms)]
        allowed = f"{1000 * upper_bound(alarms, rows):.1f}"
        line += [allowed, _percent(undecided / rows)] if rows else ["-", "-"]
        by_slow = {cell.slow: cell for cell in group}
        line += [f"{by_slow[slow].found_of_hundred:.0f}" if slow in by_slow else "-" for slow in planted]
        lines.append(line)
    return _markdown(heads, lines)


def size_table(cells: Sequence[Cell]) -> str:
    """What was found of the slowdowns of twice the threshold, by size."""
    chosen = [cell for cell in cells if (cell.slow, cell.threshold) in {target[:2] for target in TARGETS}]
    lines = [
        [
            cell.where,
            cell.mode,
            f"{_percent(cell.slow)} at {_percent(cell.threshold)}",
            ", ".join(f"{size}: {found}/{count}" for size, (count, found) in cell.sizes.items()),
        ]
        for cell in chosen
    ]
    return _markdown(["noise of", "mode", "slower, at threshold", "m: found/planted"], lines)


def target_table(cells: Sequence[Cell]) -> str:
    """The aims, and what came of them."""
    lines = []
    for where, mode in dict.fromkeys((cell.where, cell.mode) for cell in cells):
        mine = [cell for cell in cells if (cell.where, cell.mode) == (where, mode)]
        still = [cell for cell in mine if not cell.slow and cell.threshold == TARGETS[0][1]]
        alarms = sum(cell.alarms for cell in still)
        rows, undecided = sum(cell.rows for cell in still), sum(cell.open for cell in still)
        counted = f"{alarms} in {rows:,}"
        if undecided > MOST_OPEN * rows:
            line = [
                where,
                mode,
                f"{counted}, with {_percent(undecided / rows)} left open: **proves nothing**",
            ]
        else:
            allowed = 1000 * upper_bound(alarms, rows) if rows else 1000.0
            line = [
                where,
                mode,
                f"{counted}: {'met' if allowed <= 1 else f'allows {allowed:.1f}, **not shown**'}",
            ]
        for slow, threshold, least in TARGETS:
            found = [cell for cell in mine if (cell.slow, cell.threshold) == (slow, threshold)]
            line += [_met(cell.found_of_hundred >= least, f"{cell.found} of {cell.jobs}") for cell in found]
        lines.append(line)
    heads = ["noise of", "mode", "false alarms at 5 %: 1 in 1,000 at most"]
    heads += [
        f"{_percent(slow)} at {_percent(limit)}: {least} in 100 at least" for slow, limit, least in TARGETS
    ]
    return _markdown(heads, lines)


MOST_SLOWER = 0.001  # of unchanged rows at 2.5 %
FOUND = {0.1: 0.95, 0.05: 0.95, 0.02: 0.9}  # of planted rows, at the threshold of `gate_live.PLANTED`


def still_table(cells: Sequence[Turned]) -> str:
    """Unchanged rows: false alarms, and what is left open."""
    lines = [
        [
            cell.where,
            _percent(cell.threshold),
            str(cell.jobs),
            bounded(cell.slower, cell.rows),
            _percent(cell.open / cell.rows),
            f"{cell.looks / cell.rows:.2f}" if cell.looks else "-",
            _percent(cell.apart) if cell.apart else "-",
            str(cell.lost),
        ]
        for cell in cells
        if not cell.planted
    ]
    heads = ["machine", "threshold", "jobs", "unchanged rows called slower", "left open", "looks at a row"]
    return _markdown([*heads, "first looks apart", "not measured"], lines)


def planted_table(cells: Sequence[Turned]) -> str:
    """Planted rows: what was found."""
    lines = []
    for cell in cells:
        if cell.planted:
            least = FOUND[cell.planted]
            lines.append(
                [
                    cell.where,
                    f"{_percent(cell.planted)} at {_percent(cell.threshold)}",
                    _percent(cell.took),
                    str(cell.jobs),
                    interval(cell.slower, cell.rows),
                    _met(cell.slower >= least * cell.rows, f"{100 * least:.0f} in 100"),
                    str(cell.open),
                    f"{cell.looks / cell.rows:.1f}" if cell.looks else "-",
                ]
            )
    heads = ["machine", "planted, at threshold", "it took longer by", "jobs", "found", "aim", "left open"]
    return _markdown([*heads, "looks at a row"], lines)


def kinds_table(cells: Sequence[Turned]) -> str:
    """What was found, by kernel and size."""
    lines = [
        [
            cell.where,
            f"{_percent(cell.planted)} at {_percent(cell.threshold)}",
            ", ".join(
                f"{name}: {slower}/{rows} ({100 * took:.1f} %)"
                for name, (rows, slower, took) in cell.kinds.items()
            ),
        ]
        for cell in cells
        if cell.planted
    ]
    return _markdown(
        ["machine", "planted, at threshold", "kernel and size: found/planted (it took longer by)"], lines
    )


def turned_text(cells: Sequence[Turned]) -> str:
    """The tables of all machines, and of unchanged rows all of them together."""
    if not cells:
        return "Nothing: no live rows have been counted.\n"
    together = []
    for threshold in sorted({cell.threshold for cell in cells if not cell.planted and not cell.is_replayed}):
        still = [
            cell
            for cell in cells
            if (cell.planted, cell.threshold, cell.is_replayed) == (0, threshold, False)
        ]
        rows, slower = sum(cell.rows for cell in still), sum(cell.slower for cell in still)
        allowed = upper_bound(slower, rows)
        shown = "shown" if allowed <= MOST_SLOWER else "**not shown**"
        together.append(
            f"At {_percent(threshold)}, all machines together: {bounded(slower, rows)}; that it is at most "
            f"1 in 1,000 is {shown}.\n"
        )
    live = [cell for cell in cells if not cell.is_replayed]
    again = [cell for cell in cells if cell.is_replayed]
    tables = [still_table(live), *together, planted_table(live), kinds_table(live)]
    if again:
        tables += [REPLAYED, still_table(again), planted_table(again)]
    return "\n".join(tables)


BEGIN, END = "<!-- Counted, by tools/bench/gate_proof.py --write. -->", "<!-- End of what is counted. -->"


def counts_text(cells: Sequence[Turned]) -> str:
    """What docs/gate.md says of rows in turn: false alarms and findings, live, all machines together."""
    live = [cell for cell in cells if not cell.is_replayed]
    alarms, found = [], []
    for threshold in sorted({cell.threshold for cell in live}):
        still = [cell for cell in live if (cell.planted, cell.threshold) == (0, threshold)]
        rows, slower, undecided = (
            sum(getattr(cell, name) for cell in still) for name in ("rows", "slower", "open")
        )
        alarms.append(
            f"- at {_percent(threshold)} {bounded(slower, rows)}; {_percent(undecided / rows)} were left open"
        )
    for cell in (cell for slow in PLANTED for cell in live if cell.planted == slow and cell.rows):
        least = FOUND[cell.planted]
        met = _met(cell.slower >= least * cell.rows, f"aim {100 * least:.0f} in 100")
        rate = interval(cell.slower, cell.rows)
        found.append(f"- {_percent(cell.planted)} at {_percent(cell.threshold)}, {cell.where}: {rate}; {met}")
    return "\n".join(
        (
            "Unchanged rows that were measured in turn, on all machines together, called slower:",
            "",
            *alarms,
            "",
            "Slowdowns that were planted in kernels, found:",
            "",
            *found,
        )
    )


def with_counts(page: str, cells: Sequence[Turned]) -> str:
    """docs/gate.md with them between the marks."""
    before, _, rest = page.partition(BEGIN)
    return f"{before}{BEGIN}\n\n{counts_text(cells)}\n\n{END}{rest.partition(END)[2]}"


def document(results: Results, recordings: Sequence[Recording]) -> str:
    """docs/gate-proof.md."""
    parts = [
        TEXT.format(
            recordings=recordings_table(recordings),
            seed=results.seed,
            targets=target_table(results.simulated),
            table=simulated_table(results.simulated),
            unchanged=unchanged_table(results.unchanged),
            sizes=size_table(results.simulated),
            hindsight=hindsight_text(recordings),
            command=COMMAND,
            merge=MERGE,
        )
    ]
    return "".join((*parts, turned_text(results.turned)))


def recordings_table(recordings: Sequence[Recording]) -> str:
    """What the noise was recorded on."""
    lines = [
        [
            one.name,
            str(one.runs),
            str(len(one.rows)),
            str(one.bases),
            _percent(_deviation(one)),
        ]
        for one in recordings
    ]
    return _markdown(
        ["recording", "runs", "rows in each", "of them a job's base", "noise of its middle row"],
        lines,
    )


def hindsight(recording: Recording, slow: float = 1.0) -> tuple[float, float, float]:
    """What no rule can do much better: one margin for every row, chosen after all unchanged jobs were seen.

    A job holds the least of as many new runs as `check` makes against one base run. The margin is the least
    beyond which no unchanged job has a row.

    Returns:
        The margin as a factor, how many rows that take so much longer lie beyond it, and how many would if
        each row had a margin of its own.
    """
    keys = plantable(recording, REFERENCES)
    values = np.array(
        [[figure.value for row in recording.rows[key] if (figure := measure(row))] for key in keys]
    )
    new = [np.min(np.delete(values, base, axis=1)[:, :MOST_ROUNDS], axis=1) for base in range(recording.runs)]
    apart = np.array(new).T - values
    found = apart + math.log1p(slow)
    own = apart.max(axis=1, keepdims=True)
    return math.exp(apart.max()), float((found > apart.max()).mean()), float((found > own).mean())


def hindsight_text(recordings: Sequence[Recording]) -> str:
    """A sentence for each recording of a CPU."""
    return "\n".join(
        f"On {one.name} that margin is a factor of {margin:.2f}; beyond it lie {100 * found:.0f} of 100 rows "
        f"that are twice as slow,\nand {100 * own:.0f} if each row had a margin of its own."
        for one in recordings
        if one.name.startswith("cpu")
        for margin, found, own in [hindsight(one)]
    )


def _deviation(recording: Recording) -> float:
    """Standard deviation of a row's figure from run to run; the median of the rows."""
    found = []
    for rows in recording.rows.values():
        values = [one.value for row in rows if (one := measure(row)) is not None]
        found.append(stdev(values))
    return median(found)


def _groups(cells: Sequence[Cell]) -> Iterator[list[Cell]]:
    for key in dict.fromkeys((cell.where, cell.mode, cell.threshold) for cell in cells):
        yield [cell for cell in cells if (cell.where, cell.mode, cell.threshold) == key]


def _met(met: bool, text: str) -> str:
    return f"{text}: {'met' if met else '**not met**'}"


def _percent(fraction: float) -> str:
    return f"{fraction * 100:.3g} %"


def _markdown(heads: Sequence[str], lines: Sequence[Sequence[str]]) -> str:
    rows = [heads, ["---"] * len(heads), *lines]
    return "".join(f"| {' | '.join(row)} |\n" for row in rows)


REPLAYED = """\
### The same rows, judged again

The first look at every unchanged row, with the first looks that other processes had at the same kernel and size as its later
looks, goes through the shipped code once more: as it was, and with a slowdown added to one row's figures, each row in its
turn. These slowdowns are exact, and far more than could be planted; but the jobs share their later looks.
"""  # noqa: E501  # a page's text

TEXT = """\
# Whether the gate can be trusted

What works where: on a GPU `compare` and `check` against saved runs; on a CPU whose speed changes, `check --against`,
each kernel in turn with itself as it was. From one base run of such a CPU hardly anything under twice slower is found, and
every job says so. A rate of no alarms is quoted with what it allows: its upper bound at 95 % confidence.

Written by `tools/bench/gate_proof.py --write`; how the gate decides is in [gate.md](gate.md).

## Recorded noise

{recordings}
The CPU recordings are A/A runs of `square --sizes 64,128,256,512 --kernel naive,tiled,dot-v8,register-wide,cpu-packed
--budget 0.3` on a server CPU (2 cores, AVX-512), PoCL and Intel's runtime in turn, other programs beside the first few alone. That
machine is a virtual one, and **not a quiet one**: its two processors are now and then on one physical core, for seconds or
minutes, so that what multiply-adds limit takes twice as long, and what latency limits does not. Kept are the rows
that all runs have.

The H200's is one A/A measurement, `check once.jsonl --aa 10` of five kernels at 256, 1024 and 2048, 0.3 s a row, ten
processes within some minutes: of what changes from day to day it knows nothing. cuBLAS at 256 lies 13 % from run to run
there, which is why ratios to it find less than rates as they are.

## Jobs in which nothing changed

A job fails if any of its rows is called slower. Here each recorded run in turn begins the base, of one run or of five
neighbours, and each of the others the new runs, which `compare` takes one of and `check` as many as it wants, as they
were recorded. For the last column one row, another in each job, takes twice as long.

{unchanged}
The margins that verdicts take (`gemmbench/regress/noise.json`, written by `tools/recorded_noise.py`) are from these very
recordings. So each CPU's recording was also judged by the margins for the kernels of the other's. From one base run a row is slower
if the least of its new runs is, beyond the margin and a tenth more: that tenth was chosen so that the other's margins do. For
the host's BLAS they do not: in one run beside PoCL numpy's product of 64 was half as fast again as ever, more than any on
Intel's recording, and what the host does is judged by the worse of both. Five
base runs or `check --aa` on the machine itself know better. The jobs share runs: they are fewer than they look, and the
bounds are those of as many independent ones. Thresholds other than these were not tried on unchanged jobs.

**From one base run `compare` does not tell what is twice as slow on these CPUs**: a single run there may be four times as
slow by itself. `check`, which measures ten times, finds it in most jobs on either recording. With `--strict` none of these
jobs is green.

Nor could another rule do much better, from these recordings. Were one margin for every row chosen *afterwards*, the least
beyond which the least of ten new runs of no unchanged row lies, then twice as slow would not be found in 9 of 10 everywhere.
{hindsight}
The base run itself lies that far off. What finds more is a base of more than one hour (`--aa`), or both versions in turn
(`--against`). Also tried, each with the least margin
that lets 1 unchanged job in 50 fail: the median, the lower quartile or the least of the new runs, of each run's median, lower
quartile or least sample; less what the rows of a run have in common, all of it or a part, of all rows, of those of the same
kernel or of the same size; over the scatter of all rows, of the row's own new runs, or of the base's samples. None finds 9 of
10 on both recordings, and by the other recording's margin all that find more let more than 1 unchanged job in 50 fail.

## Simulated jobs

Each job takes neighbouring recorded runs as its base and replays the others, in their order, to `checking.check`: the
shipped code compares, chooses controls, asks for second looks and decides. Each measurement draws its batches from
the recorded run's in blocks as long as the root of their number. A planted slowdown multiplies the samples of one
row, each row of the device in its turn; the row that ratios refer to is never planted. Seed {seed}.

The aims, and what came of them:

{targets}
False alarms and findings by threshold; `jobs` are those of each slowdown, and `called slower` and `left open` are of
rows in the jobs where nothing was planted. The two belong together: **a gate that leaves every row open raises no
false alarm, and proves nothing by it**. That is what becomes of rows whose noise from run to run is many times the
threshold.
`gemmbench check --aa` says which threshold a machine carries: for most rows of this CPU it says none.

{table}
Findings by size:

{sizes}
What is not like a real job: jobs are drawn from few recorded runs, so that they are no independent evidence and the
counts no confidence; and a control that stands beside its row within a second is here one of the same recorded run,
which makes ratio mode look worse than it is where the machine's speed changes within a run.

## Two checkouts in turn

`check --against` a checkout: every row of a job is measured in turn with the same kernel of a second checkout, in another
process, as long as the command does by default; suspicious rows again, up to ten times, in new processes. The same
samples are judged at each threshold: what was measured once is given again, and only what a stricter threshold wants
more of is measured more often.

Planted are four kernels, at one size in each job: the k-loop of each is preceded by a part of itself. The other side is the
same text without a turn more, so that the compiler has made nothing else of it. A loop is not all of a kernel's time: a
trial with half of it more says how much more it takes for a given slowdown, and further ones in three processes, how far
that was off; since 2026-11-23 up to four, until all four kernels are within a tenth of what is wanted. Tried again with two
trials, `coarse` at 160 took 3 % longer in all its jobs where 5 % were wanted, and was left open at 2.5 %: no fault of the gate's. Of
the 14 rows that were missed over Intel's runtime before, 4 were of it, and 5 of `naive` at 224, whose looks were not kept. How much longer a planted row took is the middle of
its own figures. Beside the four are the job's unchanged rows. Where tiles are large, turns are few: `coarse` at 160 took 1.3 %
longer where 2 % were wanted, and is counted by itself. `tiled` is planted in no more, but for the first jobs of all (`shares not tried twice`):
over PoCL the two sides of its planted text lay 5 % apart from process to process, whatever was planted.

    {command}
    {merge}

Where a machine's name has a length, its rows were sampled for so long, not for the 3 s of the command: less is found of them.
Jobs run side by side on one machine, each pinned to cores of its own (`taskset`), or on one GPU one after the other; where
so many seconds were over, the job that ran then is not counted.
`first looks apart` is the standard deviation of an unchanged row's figure at its first look (robust). Rows of before 2026-11-23
were judged by a wider interval: of several looks it counted a disturbed one as much as any, and the looks' errors twice.

"""  # noqa: E501  # a page's text
