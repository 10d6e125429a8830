"""What is derived from saved rows: rates, fractions, the break-even size. The only place that divides."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from typing import TypeVar

from gemmbench.model import quiet
from gemmbench.model.device import HOST, DeviceFacts
from gemmbench.model.dtypes import DTYPES
from gemmbench.model.problem import Gemm
from gemmbench.model.row import CHAIN, GRAPH, PARTS, SCOPES, WHOLE, Energy, Row, make_title, moment
from gemmbench.model.run_file import Run
from gemmbench.model.units import GIGA, rate_text, scale
from gemmbench.stats import ceilings
from gemmbench.stats.intervals import Interval, Summary, interleaved_ratio, summarize

_LACKING = 0.1  # at least so much may a row without enough quiet batches be too slow
UNCERTAIN = 0.05  # half-width of the interval, or loss of the control bursts, above which a row is marked ~


def gemm_of(row: Row) -> Gemm:
    """The problem of a gemm row, without its leading dimensions. `ValueError` for other rows."""
    if row.problem is None:
        raise ValueError(f"a {row.kind} row has no problem")
    problem = row.problem
    return Gemm(
        problem.m, problem.n, problem.k, row.dtype, problem.alpha, problem.beta,
        trans_a=bool(problem.trans_a), trans_b=bool(problem.trans_b), batch=problem.count,
    )  # fmt: skip


def flops_of(row: Row) -> int:
    """Operations of one sample's unit: 2 m n k for a GEMM, the counted instructions for a probe."""
    if row.problem and row.kind == "gemm":
        return row.problem.flops
    return row.work.flops if row.work else 0


def intensity(row: Row) -> float:
    """Arithmetic intensity of a gemm row in flop/byte, with A, B and C each moved once."""
    problem = gemm_of(row)
    return problem.flops / problem.operand_bytes if problem.operand_bytes else 0.0


def is_integer(dtype: str) -> bool:
    """Whether operations on a data type are counted in IOPS."""
    return not DTYPES[dtype].is_float


def unit(dtype: str) -> str:
    """What tables show rates of a data type in."""
    return "GIOPS" if is_integer(dtype) else "GFLOPS"


def table_unit(dtype: str, flops_per_second: Iterable[float | None]) -> tuple[float, str]:
    """The divisor and unit of a table's rates, by the largest: 1e9 and ``GFLOPS``, or 1e12 and ``TFLOPS``."""
    divisor, letter = scale(best_of(flops_per_second) or 0.0)
    return divisor, f"{letter}{'IOPS' if is_integer(dtype) else 'FLOPS'}"


def summary(row: Row, scope: str) -> Summary | None:
    """Statistics of one scope in seconds; None if it was not measured."""
    samples = row.samples.get(scope)
    return summarize(samples.counted, samples.tick_s or 0.0) if samples and samples.seconds else None


def finest_scope(row: Row) -> str | None:
    """The innermost scope that was measured: kernel, else device, else host."""
    return next((scope for scope in SCOPES if scope in row.samples and row.samples[scope].seconds), None)


@dataclass(frozen=True)
class Rate(Interval):
    """A rate in flop/s (or bytes/s) with the 95 % confidence interval of its median."""

    best: float  # from the fastest batch


def rate(row: Row, scope: str) -> Rate | None:
    """The rate in one scope; None unless the row is ok, was measured there and does any flops."""
    return rate_from(row, summary(row, scope), flops_of(row))


def rate_from(row: Row, times: Summary | None, work: int) -> Rate | None:
    """A rate from the seconds of this work; None unless the row is ok."""
    if row.status != "ok" or times is None or not work:
        return None
    return Rate(work / times.median, work / times.high, work / times.low, work / times.minimum)


def byte_rate(row: Row) -> Rate | None:
    """The rate of a microbenchmark in bytes/s, in its finest scope; None unless it is ok and moves any."""
    moved = row.work.bytes if row.work else 0
    return rate_from(row, summary(row, finest_scope(row) or ""), moved)


def shown_rate(row: Row, scope: str) -> Rate | None:
    """The rate in a scope, or in the next wider scope that the row has; None unless the row is ok."""
    return rate(row, shown_samples(row, scope))


def shown_samples(row: Row, scope: str) -> str:
    """The samples that `shown_rate` uses, by name: in the device scope a chain of launches, if measured."""
    return _chained(row.samples, shown_scope(row, scope))


def _chained(samples: Mapping[str, object], scope: str) -> str:
    return CHAIN if scope == "device" and CHAIN in samples else scope


def within_ceiling(row: Row, device: DeviceFacts | None) -> Row:
    """Return an ok GEMM, or row of ``flops``, as wrong if its median rate is above the theoretical peak."""
    scope = finest_scope(row)
    if device is None or scope is None or row.status != "ok":
        return row
    if row.kind != "gemm" and (row.kind, row.variant) != ("peak", "flops"):
        return row
    reason = why_above_peak(row, device, flops_of(row) / statistics.median(row.samples[scope].counted))
    return replace(row, status="wrong", reason=reason) if reason else row


def why_above_peak(row: Row, device: DeviceFacts, flops_per_second: float) -> str:
    """Why a rate of the row is above the theoretical peak of the units that it ran on, or ""."""
    top = ceilings.upper_bound(device, row.dtype, row.ran_on == "matrix", row.max_mhz)
    return ceilings.why_above(flops_per_second, top, partial(rate_text, integer=is_integer(row.dtype)))


@dataclass(frozen=True)
class Split:
    """The parts of the problem with the median total time, because medians of parts would not add up."""

    seconds: Mapping[str, float]
    whole_s: float | None

    def share(self, name: str) -> float:
        """A part as a fraction of the whole, or of the parts' sum if the whole is unknown."""
        return self.seconds[name] / (self.whole_s or sum(self.seconds.values()) or 1.0)


def split_parts(parts: Mapping[str, Sequence[float]]) -> Split | None:
    """Select the problem with the median total time (the lower of two); None without parts."""
    names = [name for name in PARTS if name in parts]
    if not names:
        return None
    sums = [sum(each) for each in zip(*(parts[name] for name in names), strict=True)]
    wholes = parts.get(WHOLE, sums)
    typical = sorted(range(len(wholes)), key=wholes.__getitem__)[(len(wholes) - 1) // 2]
    whole_s = wholes[typical] if WHOLE in parts else None
    return Split({name: parts[name][typical] for name in names}, whole_s)


@lru_cache(maxsize=64)
def view_scope(*runs: Run) -> str:
    """The scope in which the GEMM rows of runs are compared, in tables and charts.

    It is their ``--scope`` if they agree on one. Otherwise ``kernel``, or ``device`` if a library ran,
    because libraries report no kernel time. The host's BLAS is such a library if every device is a CPU.
    """
    gemms = [(run, row) for run in runs for row in run.rows if row.kind == "gemm"]
    asked = {run.header.scope for run, _ in gemms}
    if len(asked) == 1 and (scope := asked.pop()) in SCOPES:
        return scope
    libraries = ((run, row) for run, row in gemms if row.status == "ok" and "kernel" not in row.samples)
    return "device" if any(_on_cpus_alone(run) or not on_host(row) for run, row in libraries) else "kernel"


def is_compared(run: Run, device: int, row: Row, scope: str) -> bool:
    """Whether a row is starred and ranked among the rows of a device in a scope.

    The host's BLAS is in the host scope, in a CPU's device scope, and if only the host was measured.
    """
    if on_host(row):
        alone = device == HOST or (scope == "device" and run.header.devices[device].type == "cpu")
        return scope == "host" or alone
    return rate(row, scope) is not None


def compared_rate(run: Run, device: int, row: Row | None, scope: str) -> float | None:
    """The median rate in flop/s of a row that `is_compared`; else None."""
    return median_rate(row, scope) if row and is_compared(run, device, row, scope) else None


def shown_scope(row: Row, scope: str) -> str:
    """The scope that `shown_rate` takes."""
    wider = SCOPES[SCOPES.index(scope) :] if scope in SCOPES else ()
    return next((name for name in wider if name in row.samples), scope)


def median_rate(row: Row | None, scope: str) -> float | None:
    """The median of `shown_rate` in flop/s."""
    reached = shown_rate(row, scope) if row else None
    return reached.median if reached else None


def best_of(values: Iterable[float | None]) -> float | None:
    """The largest of those that are known."""
    return max((value for value in values if value is not None), default=None)


def helpers_share(row: Row) -> float | None:
    """The median share of pre- and post-processing kernels in a GEMM's device scope; None if unknown."""
    kernel, device = row.samples.get("kernel"), row.samples.get("device")
    if row.kind != "gemm" or row.status != "ok" or not kernel or not device:
        return None
    if len(kernel.seconds) != len(device.seconds):
        return None
    if len(row.launches) > 1 and kernel.seconds == device.seconds:  # both by the wall clock
        return None
    shares = (1 - own / whole for own, whole in zip(kernel.seconds, device.seconds, strict=True))
    return max(0.0, statistics.median(shares))


def asked_for_energy(row: Row) -> bool:
    """Whether a row's joules were to be measured."""
    return row.status == "ok" and row.energy.why != Energy().why


def gflop_per_joule(row: Row) -> float | None:
    """1e9 operations for a joule; None unless the row is ok and its energy was measured."""
    joules, flops = row.energy.joules, flops_of(row)
    return flops / joules / GIGA if row.status == "ok" and joules and flops else None


def mean_watts(row: Row) -> float | None:
    """The mean power in watts over the energy window, idle draw included; None if unknown."""
    energy = row.energy
    if energy.joules is None or not energy.window_s:
        return None
    return energy.joules * energy.problems / energy.window_s


def noise(row: Row, scope: str = "") -> float | None:
    """Noise of a scope, by default the finest (half the interval over the median); None if unknown."""
    scope = scope or finest_scope(row) or ""
    times = summary(row, scope)
    return times.noise if times and math.isfinite(times.noise) else None


def is_uncertain(run: Run, row: Row, scope: str = "") -> bool:
    """Whether a row is marked ``~``: its interval is wide, or another program slowed the CPU meanwhile."""
    spread = noise(row, scope) if finest_seconds(row) else 0.0
    return spread is None or spread > UNCERTAIN or estimate_slowing(run, row, scope) > UNCERTAIN


def estimate_slowing(run: Run, row: Row, scope: str = "") -> float:
    """How much other programs may have slowed a scope's samples, as a fraction; 0 if enough are quiet."""
    samples = row.samples.get(scope or finest_scope(row) or "")
    if samples and samples.bursts_s:
        return 0.0 if samples.is_complete else max(_LACKING, quiet.loss(samples))
    return burst_loss(row, _best_burst(run))


def has_bursts(row: Row) -> bool:
    """Whether control bursts ran between the batches of a row."""
    return any(scope.bursts_s for scope in row.samples.values())


def quiet_share(rows: Iterable[Row]) -> float:
    """The share of batches that were quiet, over the finest scopes of rows; 1 without bursts."""
    scopes = [row.samples[scope] for row in rows if (scope := finest_scope(row))]
    flags = [flag for scope in scopes if scope.bursts_s for flag in quiet.flags(scope)]
    return statistics.fmean(flags) if flags else 1.0


_Figure = TypeVar("_Figure", bound=Interval)


def widen_interval(run: Run, row: Row, figure: _Figure, scope: str = "") -> _Figure:
    """Seconds or a rate of a row's scope, whose interval is grown by the loss of its control bursts."""
    factor = 1 + estimate_slowing(run, row, scope)
    if isinstance(figure, Summary):
        return replace(figure, low=figure.low / factor)
    return replace(figure, high=figure.high * factor)


def burst_loss(row: Row, best_s: float) -> float:
    """How much longer a row's slower control burst took than ``best_s``, as a fraction; 0 without bursts."""
    bursts = row.conditions.control_s if row.conditions else ()
    return max(0.0, max(bursts) / best_s - 1) if bursts else 0.0


@lru_cache(maxsize=64)
def _best_burst(run: Run) -> float:
    return best_burst((run.whole or run).rows)


def best_burst(rows: Iterable[Row]) -> float:
    """The seconds of a fast control burst (a fixed CPU kernel around rows); infinite without any.

    It is the 10 % quantile of the run's own, or the median of cached rows if that is faster.
    """
    own: list[float] = []
    cached: list[float] = []
    for row in rows:
        if row.conditions:
            (cached if row.measured_utc else own).extend(row.conditions.control_s)
    best_s = sorted(own)[len(own) // 10] if own else math.inf
    return min(best_s, statistics.median(cached)) if cached else best_s


def finest_seconds(row: Row) -> tuple[float, ...]:
    """The samples that count of an ok row's innermost scope; none if there are none."""
    scope = finest_scope(row)
    return row.samples[scope].counted if scope and row.status == "ok" else ()


def on_host(row: Row) -> bool:
    """Whether a row's figures are of the host's own BLAS."""
    return row.device == HOST or row.ran_on == "host"


@lru_cache(maxsize=64)
def units_used(run: Run, device: int, dtype: str) -> tuple[bool, ...]:
    """Which units a type's ok GEMMs ran on: ordinary (False), tensor cores (True); by default ordinary."""
    ran = {
        row.ran_on == "matrix"
        for row in run.rows
        if (row.kind, row.device, row.dtype, row.status) == ("gemm", device, dtype, "ok")
    }
    return tuple(sorted(ran)) or (False,)


@dataclass(frozen=True)
class Peak:
    """The best measured rate of one kind of a device's units."""

    rate: float  # flop/s
    row: Row
    run: Run  # that the row is of


def peak(
    run: Run, device: int, dtype: str, matrix: bool | None = None, others: Sequence[Run] = (),
    sums: str | None = None,
) -> Peak | None:  # fmt: skip
    """The measured peak for a device's GEMMs of a type; None if there is none, as for the host.

    `matrix` selects tensor cores or ordinary units, None the better of those that the GEMMs used. `others`
    are searched for the same device. `sums` is the type that tensor cores add up in, "" for any, None for
    that of the run's GEMMs.
    """
    if device == HOST:
        return None
    own, sources = run.header.devices[device], [(run, device)]
    for other in (other for other in others if other is not run):
        for at, each in enumerate(other.header.devices):
            if (each.title, each.compute_units) == (own.title, own.compute_units):
                sources.append((other, at))
    tops = [
        next((top for source, at in sources if (top := best_peak(source, at, dtype, units, added))), None)
        for units in (units_used(run, device, dtype) if matrix is None else (matrix,))
        for added in [_sums_used(run, device, dtype, units) if sums is None else sums]
    ]
    return max((top for top in tops if top), key=lambda top: top.rate, default=None)


def peak_of_row(run: Run, row: Row, others: Sequence[Run] = ()) -> Peak | None:
    """The peak of the units that a row ran on, searched in `others` too; None without one, as on the host.

    For the host's BLAS, it is the highest of the run's devices if all are CPUs.
    """
    if not on_host(row):
        devices: Iterable[int] = (row.device,)
    else:
        devices = range(len(run.header.devices)) if _on_cpus_alone(run) else ()
    matrix = row.ran_on == "matrix"
    tops = [top for device in devices if (top := peak(run, device, row.dtype, matrix, others, row.sums))]
    return max(tops, key=lambda top: top.rate, default=None)


def peak_fraction(run: Run, row: Row, scope: str = "", others: Sequence[Run] = ()) -> float | None:
    """The rate of a scope (a GEMM's: the view's) over `peak_of_row`'s peak; None if either is unknown."""
    scope = scope or (view_scope(run) if row.kind == "gemm" else "kernel")
    reached, top = shown_rate(row, scope), peak_of_row(run, row, others)
    return reached.median / top.rate if reached and top else None


@lru_cache(maxsize=64)
def best_peak(run: Run, device: int, dtype: str, matrix: bool, sums: str = "") -> Peak | None:
    """The best rate of a run's verified peak rows, except those fed with zeros. `sums` is as of `peak`."""
    kind = DTYPES[dtype].instruction if matrix else dtype
    sums = sums if kind == dtype else ""
    best = [
        Peak(reached.best, row, run)
        for row in run.rows
        if (row.kind, row.device, row.dtype) == ("peak", device, kind)
        if (row.ran_on == "matrix") == matrix and row.check.verdict == "ok"
        if row.parameters.get("operands") != "zeros"
        if not (matrix and sums) or row.parameters.get("accumulator", sums) == sums
        if (reached := rate(row, "kernel")) is not None
    ]
    return max(best, key=lambda top: top.rate, default=None)


def _sums_used(run: Run, device: int, dtype: str, matrix: bool) -> str:
    """The type that a run's ok GEMMs of a type add up in; "" if none or several."""
    added = {
        row.sums
        for row in run.rows
        if (row.kind, row.device, row.dtype, row.status) == ("gemm", device, dtype, "ok")
        if (row.ran_on == "matrix") == matrix
    }
    return added.pop() if len(added) == 1 else ""


def _on_cpus_alone(run: Run) -> bool:
    return all(device.type == "cpu" for device in run.header.devices)


def age_when_cached(run: Run, row: Row) -> float | None:
    """Seconds from the measurement of a cached row to the run's start; None if the run measured it itself."""
    if not row.measured_utc:
        return None
    return max(0.0, (moment(run.header.started_utc) - moment(row.measured_utc)).total_seconds())


BANDWIDTH_PROBES: tuple[str, ...] = ("global-read", "global-write", "global-copy", "global-triad")


def best_bandwidth(run: Run, device: int) -> tuple[float, Row] | None:
    """The best verified bandwidth of global memory on a device in bytes/s, and its row; None without one."""
    best = [
        (reached.best, row)
        for row in run.rows
        if row.kind == "bandwidth" and row.device == device and row.variant in BANDWIDTH_PROBES
        if row.check.verdict == "ok" and (reached := byte_rate(row)) is not None
    ]
    return max(best, key=lambda pair: pair[0], default=None)


def interleaved_seconds(rows: Iterable[Row], scope: str | None = None) -> tuple[list[float], list[float]]:
    """The seconds of rows of one case, and those of the batches that alternate with them.

    Each row adds an even number of pairs (or its only one), because the order within pairs alternates.
    """
    own: list[float] = []
    other: list[float] = []
    for row in rows:
        chosen = counted_scope(row, scope)
        if chosen and row.former and chosen in row.former.samples:
            sides = row.samples[chosen].seconds, row.former.samples[chosen].seconds
            count = max(len(sides[0]) // 2 * 2, 1)
            own += sides[0][:count]
            other += sides[1][:count]
    return own, other


@dataclass(frozen=True)
class Versus(Interval):
    """The ratio of rates to another kernel, from interleaved batches, with its 95 % confidence interval."""

    variant: str  # the other kernel
    scope: str  # that both were timed in


def versus(row: Row, scope: str = "kernel") -> Versus | None:
    """A row's rate over that of the kernel of ``--versus``; None unless ok and their batches alternated.

    It is in `scope`, or the next wider one of both. Outside the host scope, a CUDA graph has priority.
    """
    if row.former is None or not row.former.variant or scope not in SCOPES:
        return None
    own, other = row.samples, row.former.samples
    wider = [GRAPH, *SCOPES[SCOPES.index(scope) :]] if scope != "host" else ["host"]
    shared = next((name for name in wider if name in own and name in other), None)
    if shared is None or row.status != "ok":
        return None
    times = interleaved_ratio(*(samples[_chained(samples, shared)].seconds for samples in (own, other)))
    title = make_title(row.former.variant, row.former.parameters)
    return Versus(1 / times.median, 1 / times.high, 1 / times.low, title, shared)


def partner(row: Row) -> str:
    """The kernel that a row was interleaved with: ``tiled``, or ``strict`` of the same kernel; or ""."""
    other = row.former
    if other is None or not other.variant:
        return ""
    return make_title("" if other.variant == row.variant else other.variant, other.parameters)


def residual(row: Row, figure: str = "element") -> float | None:
    """The worst element's residual over its bound, or with ``ulp`` in last places of C; None if unknown."""
    checks = (row.check, *([row.check_after] if row.check_after else []))
    return max((check.figures[figure] for check in checks if figure in check.figures), default=None)


def counted_scope(row: Row, scope: str | None) -> str | None:
    """`scope` if the row has samples in it, else its finest scope; None unless the row is ok."""
    if row.status != "ok":
        return None
    return scope if scope in row.samples and row.samples[scope].seconds else finest_scope(row)


def work(row: Row) -> int:
    """The work of one sample of a row: flops, else bytes, else 1."""
    moved = row.parameters.get("bytes", 0) if row.kind == "transfer" else 0  # also if mapping moves nothing
    return flops_of(row) or int(moved) or (row.work.bytes if row.work else 0) or 1


def is_on_cpu(run: Run, row: Row) -> bool:
    """Whether a row ran on the host's processor."""
    return row.device == HOST or row.ran_on == "host" or run.header.devices[row.device].type == "cpu"
