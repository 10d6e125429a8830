"""The table of `protocols`: each protocol's figure, and how far it lies from gemmbench's own."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean, stdev
from typing import Any

from gemmbench.gemm.protocols import BY_NAME, OWN, Protocol, figure
from gemmbench.model import units
from gemmbench.model.row import ProtocolSamples, Row
from gemmbench.model.run_file import Run
from gemmbench.model.units import clean
from gemmbench.report.table import NOTHING, Cell, Note, Sheet, heading
from gemmbench.stats import rates
from gemmbench.stats.intervals import CONFIDENCE, Interval, student

ZEROS = "zeros"
MARK = " !"
_WIDE = 10.0  # times the lower end: such an interval says nothing
WARNING = "operands of zeros: shown beside the others here, and in no other table, chart or comparison"


@dataclass(frozen=True)
class Line:
    """One protocol's figure."""

    samples: ProtocolSamples
    flops_per_s: float | None  # by the geometric mean of the rounds' figures; None: not measured
    ratio: Interval | None  # of its rate over that of gemmbench's own, round by round; None: not known
    rounds: int
    count: int  # samples in a round, the median

    @property
    def is_zeros(self) -> bool:
        """Whether it is a figure of no real work."""
        return self.samples.operands == ZEROS

    @property
    def title(self) -> str:
        """Its name, marked where its figure is not to be quoted."""
        return clean(self.samples.name) + (MARK if self.is_zeros else "")

    @property
    def protocol(self) -> Protocol | None:
        """What it is; None of a file of another version's."""
        return BY_NAME.get(self.samples.name)


def lines(row: Row) -> list[Line]:
    """The protocols of a row in their order.

    The ratio's interval is Student's, over the logarithms of the rounds' ratios; of a single round it has
    no width.
    """
    entries = row.protocols or ()
    by_name = {entry.name: entry for entry in entries}
    own = [_log(entry, by_name) for entry in entries if entry.name == OWN]
    flops = rates.gemm_of(row).flops
    made = []
    for entry in entries:
        logs = _log(entry, by_name)
        ratio = None
        if logs and own and len(own[0]) == len(logs):
            ratio = _interval([before - after for before, after in zip(own[0], logs, strict=True)])
        count = sorted(map(len, _rounds(entry, by_name)))
        made.append(
            Line(
                entry,
                flops / math.exp(fmean(logs)) if logs else None,
                ratio,
                len(logs),
                count[len(count) // 2] if count else 0,
            )
        )
    return made


def _rounds(entry: ProtocolSamples, by_name: Mapping[str, ProtocolSamples]) -> tuple[tuple[float, ...], ...]:
    return by_name[entry.like].rounds if entry.like in by_name else entry.rounds


def _log(entry: ProtocolSamples, by_name: Mapping[str, ProtocolSamples]) -> list[float]:
    return [math.log(figure(entry.statistic, seconds)) for seconds in _rounds(entry, by_name)]


def _interval(logs: Sequence[float]) -> Interval:
    centre = fmean(logs)
    half = 0.0
    if len(logs) > 1:
        half = student(CONFIDENCE, len(logs) - 1) * stdev(logs) / math.sqrt(len(logs))
    return Interval(math.exp(centre), math.exp(centre - half), math.exp(centre + half))


# --- as a table ---------------------------------------------------------------------------------------------


def sheets(run: Run) -> list[Sheet]:
    """A table for each kernel."""
    return [_sheet(run, row) for row in run.rows if row.kind == "protocols"]


def _sheet(run: Run, row: Row) -> Sheet:
    shown = lines(row)
    rounds = max((line.rounds for line in shown), default=0)
    speaks = any(line.samples.clock_mhz or line.samples.power_w for line in shown)
    conditions = (("MHz", "W"),) if speaks else ()
    problem = rates.gemm_of(row)
    what = f"{clean(row.title)}, {row.dtype}, {problem.shape}"
    if row.status != "ok":
        return Sheet(heading(run, row.device), f"{what}: {row.status}", notes=(Note(row.status, row.reason),))
    return Sheet(
        heading=heading(run, row.device),
        caption=f"{what}: rates by protocol, and against gemmbench's own in the same {rounds} rounds",
        keys=("protocol",),
        blocks=(
            (rates.unit(row.dtype), "difference", "95 %"),
            ("operands", "timed by", "statistic", "samples"),
            *conditions,
        ),
        rows=tuple(_cells(line, speaks) for line in shown),
        notes=_notes(row, shown),
        left=frozenset({"operands", "timed by", "statistic"}),
    )


def _cells(line: Line, speaks: bool) -> tuple[Cell, ...]:
    entry = line.samples
    style = "yellow" if line.is_zeros else ""
    measured = line.flops_per_s is not None
    figures = (
        Cell(units.gflops(line.flops_per_s or 0.0), style=style) if measured else NOTHING,
        Cell(_difference(line), style=style),
        Cell(_within(line), style=style),
    )
    how = (
        Cell(clean(entry.operands), style=style),
        Cell(clean(entry.clock) or "-"),
        Cell(clean(entry.statistic)),
        Cell(f"{line.rounds} x {line.count}" if measured else "-"),
    )
    said = tuple(_number(value) for value in (entry.clock_mhz, entry.power_w)) if speaks else ()
    return (Cell(line.title, style=style), *figures, *how, *said)


def _number(value: float | None) -> Cell:
    return NOTHING if value is None else Cell(units.number(value))


def _difference(line: Line) -> str:
    if line.ratio is None:
        return "-"
    return "" if line.samples.name == OWN else signed(line.ratio.median - 1)


def _within(line: Line) -> str:
    if line.ratio is None or line.samples.name == OWN or line.rounds < 2:
        return ""
    if line.ratio.high > _WIDE * line.ratio.low:
        return "too wide"
    return f"{signed(line.ratio.low - 1)} to {signed(line.ratio.high - 1)}"


def signed(share: float) -> str:
    """A difference in per cent: ``+1.2 %``."""
    return f"{share * 100:+.1f} %"


def _notes(row: Row, shown: Sequence[Line]) -> tuple[Note, ...]:
    notes = [Note(line.title, line.protocol.idea if line.protocol else "not known here") for line in shown]
    notes += [
        Note(f"{line.title} not measured", line.samples.reason) for line in shown if line.samples.reason
    ]
    unclear = sum(line.ratio is not None and line.ratio.low < 1 < line.ratio.high for line in shown)
    if unclear:
        counted = f"{unclear} of {len(shown)} differences are smaller than their interval"
        notes.append(Note("noise", f"{counted}: more --rounds, or a quieter machine, tell them"))
    if any(line.is_zeros for line in shown):
        notes.append(Note(f"zeros{MARK}", WARNING, style="yellow"))
    return (*notes, *(Note("note", text) for text in row.remarks))


# --- for other programs -------------------------------------------------------------------------------------

# fmt: off
CSV_FIELDS: tuple[str, ...] = (
    "protocol", "variant", "device", "dtype", "m", "n", "k", "gflops", "difference", "low", "high",
    "operands", "zero_operands", "clock", "statistic", "rounds", "samples", "clock_mhz", "power_w", "reason",
    "idea", "described_in", "status", "parameters", "notes",
)
# fmt: on


def records(row: Row) -> list[dict[str, Any]]:
    """A plain dictionary for each protocol: rates in 1e9 per second, differences as shares of our own."""
    about = {name: getattr(row, name) for name in ("variant", "device", "dtype")}
    about |= rates.problem_fields(row.problem, "m", "n", "k", "trans_a", "trans_b")
    made = []
    for line in lines(row):
        entry, ratio = line.samples, line.ratio
        made.append(
            {
                "protocol": entry.name,
                **about,
                "gflops": None if line.flops_per_s is None else line.flops_per_s / 1e9,
                "difference": ratio and ratio.median - 1,
                "low": ratio and ratio.low - 1,
                "high": ratio and ratio.high - 1,
                "operands": entry.operands,
                "zero_operands": line.is_zeros,
                "clock": entry.clock,
                "statistic": entry.statistic,
                "rounds": line.rounds,
                "samples": line.count,
                "clock_mhz": entry.clock_mhz,
                "power_w": entry.power_w,
                "reason": entry.reason,
                "idea": line.protocol.idea if line.protocol else "",
                "described_in": line.protocol.source if line.protocol else "",
            }
        )
    return made
