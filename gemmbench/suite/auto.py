"""The cases of `auto`: which variant a library would take for a problem, from what has been measured.

The host scope decides, from operands in host memory to C in host memory: it is what offloading costs, and the
only one that the host's own BLAS has. Kernels that tie there, because transfers hide what they differ in, are
told apart by the device scope.

A problem that was measured is predicted by its own median, another one by shapes around it: their rates are
averaged over the logarithms of m, n and k, the nearest counting most, and what a launch takes stays as it is.
Narrow shapes, with a dimension that is very small, are predicted from shapes as narrow alone: such products
read memory more than they multiply. Batches are predicted from batches, a layout (NN, NT, TN, TT, leading
dimensions) from the same alone: they make a class. What was never measured near the problem is tried first.
Where that is not done, the nearest measured shape of the class decides, by its lengths and its work, and the
reason says that it is far.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Collection, Generator, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from gemmbench.ladder import BASELINE, BY_NAME, LADDER
from gemmbench.ladder.variant import laid_out
from gemmbench.measure.child import Worker
from gemmbench.model import units
from gemmbench.model.case import Case, Operands, Policy, Staged, saved_problem
from gemmbench.model.device import HOST, DeviceFacts
from gemmbench.model.problem import Dimensions, Gemm, Leading
from gemmbench.model.row import MATH, THREADS, Parameters, Row, Status
from gemmbench.model.units import by_key, listed
from gemmbench.stats import rates
from gemmbench.stats.panels import crossing
from gemmbench.suite.plan import NO_CHOICE, FindTuned, gemm_plan, likely, narrow

CHOOSABLE: tuple[str, ...] = (*LADDER, BASELINE)  # libraries that a machine may lack are only baselines

_REACH = 1.0  # powers of two by which a dimension of a shape may differ that still tells something
_CLOSE = 0.25  # powers of two up to which one shape alone tells enough
_LENGTHS = ("m", "n", "k", "batch")
_TINY = 2 * 64**3  # flops of a product that takes as long as its launch
_TIE = 0.03  # host times that differ by less are told apart by the device's


@dataclass(frozen=True)
class Point(Dimensions):
    """The time of one variant on one problem."""

    variant: str
    dtype: str
    parameters: Parameters
    m: int
    n: int
    k: int
    host_s: float  # median, operands and result in host memory
    device_s: float | None  # median over every pass; None for the host's own BLAS
    ld: Leading | None = None  # None: rows have nothing between them
    trans_a: bool = False
    trans_b: bool = False
    batch: int = 1


@dataclass(frozen=True)
class Choice:
    """What to run, and why."""

    variant: str
    parameters: Parameters | None  # None: those of its preset
    reason: str


@dataclass(frozen=True)
class _Prediction:
    host_s: float
    device_s: float | None
    nearest: Point  # measured
    exact: bool  # the problem itself was measured
    sure: bool  # it lies between measured shapes, or close to one
    far: bool = False  # nothing was measured near the problem: it is the nearest of its class


def points(rows: Iterable[Row], device: int) -> tuple[Point, ...]:
    """What verified rows of a device, and of the host's BLAS, say of the variants that `auto` may choose."""
    measured = []
    for row in rows:
        if row.kind != "gemm" or row.status != "ok" or row.check.verdict != "ok" or row.problem is None:
            continue
        if row.device not in (device, HOST) or row.variant not in CHOOSABLE:
            continue
        if row.parameters.keys() & {MATH, THREADS}:  # it chooses kernels and the BLAS as they are
            continue
        host, on_device = rates.summary(row, "host"), rates.summary(row, "device")
        if host is None or not rates.flops_of(row):
            continue
        problem = row.problem
        measured.append(
            Point(
                row.variant,
                row.dtype,
                row.parameters,
                problem.m,
                problem.n,
                problem.k,
                host.median,
                on_device.median if on_device else None,
                problem.ld or None,
                bool(problem.trans_a),
                bool(problem.trans_b),
                problem.count,
            )
        )
    return tuple(measured)


def untried(problem: Gemm, known: Sequence[Point], variants: Collection[str]) -> tuple[str, ...]:
    """The variants whose measured shapes do not suffice to predict their time on a problem."""
    settled = {candidate.nearest.variant for candidate in _predictions(problem, known) if candidate.sure}
    return tuple(variant for variant in variants if variant not in settled)


def ranked(problem: Gemm, known: Sequence[Point], tried: Collection[str] = ()) -> tuple[Choice, ...]:
    """What measured shapes say of a problem, the best choice first; nothing if none is near.

    Rates grow with the size and then fall, so predictions from only smaller or only larger shapes come last.

    Args:
        problem: with its data type.
        known: what was measured, of any type and shape, the newest last.
        tried: the variants that were just tried on this problem.
    """
    candidates = sorted(_predictions(problem, known), key=lambda each: (not each.sure, each.host_s))
    if candidates and candidates[0].device_s is not None:
        limit_s, sure = candidates[0].host_s * (1 + _TIE), candidates[0].sure
        near = [each for each in candidates if each.sure == sure and each.host_s <= limit_s]
        ties = sorted((each for each in near if each.device_s), key=lambda each: each.device_s or 0.0)
        candidates = [*ties, *(each for each in candidates if each not in ties)]
    return tuple(
        Choice(each.nearest.variant, each.nearest.parameters, _reason(problem, each, known, tried))
        for each in candidates
    )


def by_default(device: DeviceFacts, problem: Gemm, variants: Sequence[str]) -> Choice | None:
    """The most promising variant, where nothing was measured; None if there is no variant."""
    order = [name for name in likely(device, problem) if name in variants]
    if not order:
        return None
    kind = f"{problem.ops}{', in batches' if problem.batch > 1 else ''}"
    reason = f"the first of the order for a {device.type}: nothing like {problem.shape} ({kind}) was measured"
    return Choice(order[0], None, reason)


def break_even(problem: Gemm, known: Sequence[Point]) -> float | None:
    """The size (m = n = k of as many flops) from which a kernel beats the host's BLAS, transfers counted.

    Interpolated as `stats.panels.crossing` does between measured shapes as narrow as the problem.

    Returns:
        None if the two share no shapes, or no kernel is ahead at the largest.
    """
    best: dict[tuple[int, int, int, int], dict[bool, float]] = {}
    for point in _alike(problem, known):
        times = best.setdefault((point.m, point.n, point.k, point.batch), {})
        is_host = point.variant == BASELINE
        times[is_host] = min(point.host_s, times.get(is_host, math.inf))
    leads = sorted(
        (math.prod(lengths) ** (1 / 3), math.log(times[True] / times[False]))
        for lengths, times in best.items()
        if len(times) == 2
    )
    return crossing(leads)


def _alike(problem: Gemm, known: Iterable[Point]) -> list[Point]:
    """The points of a problem's class: its data type, layout, a batch or not, as narrow as it is.

    A product of a vector is a class of its own: a BLAS has another function for it, and kernels another loop.
    """
    kind = _class(problem)
    return [point for point in known if _class(point) == kind]


def _class(shape: Gemm | Point) -> tuple[object, ...]:
    vectors = frozenset(name for name in ("m", "n") if getattr(shape, name) == 1)
    return shape.dtype, shape.ops, shape.ld, shape.batch > 1, narrow(shape), vectors


def _distance(problem: Gemm, point: Point) -> float:
    """The largest difference between two dimensions, or batches, in powers of two."""
    return max(abs(math.log2(getattr(problem, name) / getattr(point, name))) for name in _LENGTHS)


def _far_distance(problem: Gemm, point: Point) -> float:
    """Of lengths, batches and their product, in powers of two: launches and transfers weigh by the work."""
    apart = [math.log2(getattr(problem, name) / getattr(point, name)) for name in _LENGTHS]
    return math.hypot(*apart, sum(apart))


def _predictions(problem: Gemm, known: Sequence[Point]) -> list[_Prediction]:
    """One for each variant and set of parameters that was measured near the problem, or else nearest."""
    if not problem.flops:
        return []
    alike = _alike(problem, known)
    measured = [(_distance(problem, point), point) for point in alike]
    far = all(distance > _REACH for distance, _ in measured)
    if not alike and problem.batch > 1:  # as narrow: the nearest of other batches tells more than nothing
        alike = [point for point in known if _class(point)[:-2] == _class(problem)[:-2]]
    if far:
        measured = [(_far_distance(problem, point), point) for point in alike]
    reach = min((distance for distance, _ in measured), default=0.0) if far else _REACH
    groups = by_key(
        ((point.variant, listed(point.parameters)), (distance, point))
        for distance, point in measured
        if distance <= reach
    )
    predictions = (_predicted(problem, near, _launches(known, near[0][1])) for near in groups.values())
    return [replace(each, sure=each.sure and not far, far=far) for each in predictions]


def _launches(known: Iterable[Point], of: Point) -> dict[str, float]:
    """Seconds of a launch with the variant and parameters of a point, by scope.

    What a tiny product takes, less its flops at the best rate that was measured.
    """
    own = [
        point
        for point in known
        if (point.variant, point.dtype, point.parameters) == (of.variant, of.dtype, of.parameters)
    ]

    def launch(scope: str) -> float:
        timed = [(point.flops, seconds) for point in own if (seconds := getattr(point, scope))]
        best = max((flops / seconds for flops, seconds in timed), default=1.0)
        return min((seconds - flops / best for flops, seconds in timed if flops <= _TINY), default=0.0)

    return {scope: launch(scope) for scope in ("host_s", "device_s")}


def _predicted(
    problem: Gemm, near: Sequence[tuple[float, Point]], launches: Mapping[str, float]
) -> _Prediction:
    exact = [point for distance, point in near if distance == 0]
    if exact:
        newest = exact[-1]
        return _Prediction(newest.host_s, newest.device_s, newest, exact=True, sure=True)
    closest, nearest = min(near, key=lambda pair: pair[0])
    work = [point.flops for _, point in near]
    sure = closest <= _CLOSE or min(work) <= problem.flops <= max(work)

    def mean(scope: str) -> float:
        """Seconds from the rates around, weighted by the square of the distance; a launch stays a launch."""
        total = weights = 0.0
        for distance, point in near:
            weight, seconds = distance**-2, getattr(point, scope)
            fixed = min(launches[scope], seconds)
            total += weight * math.log(fixed + (seconds - fixed) * problem.flops / point.flops)
            weights += weight
        return math.exp(total / weights)

    on_device = mean("device_s") if all(point.device_s for _, point in near) else None
    return _Prediction(mean("host_s"), on_device, nearest, exact=False, sure=sure)


def _reason(problem: Gemm, candidate: _Prediction, known: Sequence[Point], tried: Collection[str]) -> str:
    nearest = candidate.nearest
    rate = units.rate(nearest.flops / nearest.host_s)
    if candidate.exact and nearest.variant in tried:
        return f"the fastest of a trial on this problem ({', '.join(tried)}), {rate} with transfers"
    size = break_even(problem, known) if nearest.variant == BASELINE else None
    if size is not None and problem.flops < 2 * size**3:
        return f"below the break-even size, about m = n = k = {round(size)}"
    if candidate.exact:
        return f"the fastest measured at {problem.shape}, {rate} with transfers"
    kind = " as narrow" if narrow(problem) else ""
    if candidate.far:
        return (
            f"nothing near {problem.shape} was measured: the fastest at the nearest shape of its "
            f"kind, {rate} with transfers at {nearest.shape}"
        )
    return f"the fastest at the nearest measured shapes{kind}, {rate} with transfers at {nearest.shape}"


# --- Choosing and running: when the turn of a case comes, not when it is planned, so that earlier rows count


_TRIAL_SHARE = 0.2  # of the budget for a variant that is tried
_LEAST_TRIAL_S = 0.3


class Automatic:
    """Chooses and runs the variants of `auto`, and remembers their rows, through one run.

    Attributes:
        rows: what choices may rest on: what this run has measured, trials included, and what it resumed.
        gemms: the GEMM rows among them by variant, device and data type.
        lessons: those of them that tell later runs something, too.
    """

    def __init__(
        self, known: Mapping[int, Sequence[Point]] | None = None, tuned: FindTuned = lambda *_: None
    ) -> None:
        """Start a run.

        Args:
            known: what earlier runs have measured, by the position of the device.
            tuned: the tuner's presets.
        """
        self._known = dict(known or {})
        self._tuned = tuned
        self.rows: list[Row] = []
        self.gemms = defaultdict[tuple[str, int, str], list[Row]](list)
        self.lessons: list[Row] = []

    def record(self, row: Row, case: Case | None = None) -> None:
        """Record a finished row, whoever measured it.

        Args:
            case: what was measured; None if an earlier run measured it. Rows of the user's own matrices (all
                zeros, denormal numbers) are no lesson: their time may differ from that of generated ones. Nor
                are those of leading dimensions longer than the rows.
        """
        self.rows.append(row)
        if row.kind == "gemm":
            self.gemms[row.variant, row.device, row.dtype].append(row)
        if case and not case.operands.given and not (row.problem and row.problem.ld):
            self.lessons.append(row)

    def measure(
        self, case: Case, device: DeviceFacts, policy: Policy, worker: Worker
    ) -> Generator[Staged, None, Row]:
        """Choose and run; the row is the case's own, and says in `choice` what ran and why."""
        able = self._able(case, device)
        tried = untried(case.gemm, self._points(case, device), tuple(able))
        tried = tuple(name for name in tried if name not in self._without_figure(case))
        for variant in tried if case.gemm.flops else ():
            yield Staged(f"trying {variant}")
            trial = replace(able[variant], operands=Operands())
            self.record((yield from worker.run(trial, _home(trial, device), _shortly(policy))), trial)
        chosen = self._chosen(case, device, able, tried if len(tried) == len(able) else ())
        if chosen is None:
            return case.row("unsupported", NO_CHOICE)
        inner, reason = chosen
        row = yield from worker.run(inner, _home(inner, device), policy)
        self.record(row, inner)
        return auto_row(case, inner, reason, row)

    def ran(self, case: Case, device: DeviceFacts, row: Row) -> Case | None:
        """The case that `auto` ran for a row; None if the device did not run it."""
        variant = str(row.choice.get("kernel", ""))
        if variant not in BY_NAME:
            return None
        parameters = {name: row.choice[name] for name in BY_NAME[variant].parameters if name in row.choice}
        inner = self._planned(case, device, Choice(variant, parameters, ""))
        return inner if inner and inner.device != HOST else None

    def _points(self, case: Case, device: DeviceFacts) -> tuple[Point, ...]:
        """Points of the case's type. Those of earlier runs count only with the parameters of a preset."""
        earlier = [point for point in self._known.get(case.device, ()) if point.dtype == case.dtype]
        presets = {name: self._presets(name, device, case) for name in {point.variant for point in earlier}}
        known = (point for point in earlier if point.parameters in presets[point.variant])
        return (*known, *points(self.rows, case.device))

    def _presets(self, variant: str, device: DeviceFacts, case: Case) -> list[Mapping[str, int]]:
        """The shipped parameters of a variant, and those that the tuner kept for the case's layout."""
        entry = laid_out(BY_NAME[variant], case.gemm)
        kept = self._tuned(device, entry, case.dtype)
        shipped = entry.preset(device.family, dtype=case.dtype, device=device)
        return [shipped, kept.parameters] if kept else [shipped]

    def _without_figure(self, case: Case, but: Status = "ok") -> set[str]:
        """The variants that this run could not measure on a case's problem; they are not tried again."""
        problem = saved_problem(case.gemm)
        return {
            row.variant
            for row in self.rows
            if (row.kind, row.problem, row.dtype) == ("gemm", problem, case.dtype)
            if row.device in (case.device, HOST) and row.status not in ("ok", but)
        }

    def _able(self, case: Case, device: DeviceFacts) -> dict[str, Case]:
        """The likely variants that can run the problem, with their presets; where none can, any that does."""
        for names in (likely(device, case.gemm), CHOOSABLE):
            planned = {name: self._planned(case, device, Choice(name, None, "")) for name in names}
            if able := {name: step for name, step in planned.items() if step}:
                return able
        return {}

    def _chosen(
        self, case: Case, device: DeviceFacts, able: Mapping[str, Case], tried: Sequence[str]
    ) -> tuple[Case, str] | None:
        """The best choice that the device can run on this problem, and its reason."""
        bad = self._without_figure(case, but="skipped")  # with more time it may do
        for choice in ranked(case.gemm, self._points(case, device), tried):
            if choice.variant not in bad and (inner := self._planned(case, device, choice)):
                return inner, choice.reason
        fallback = by_default(device, case.gemm, [name for name in able if name not in bad])
        return (able[fallback.variant], fallback.reason) if fallback else None

    def _planned(self, case: Case, device: DeviceFacts, choice: Choice) -> Case | None:
        """The case of a choice, None if the device cannot run it."""
        overrides = {name: int(value) for name, value in (choice.parameters or {}).items()}
        variant = BY_NAME[choice.variant]
        kept = self._tuned(device, laid_out(variant, case.gemm), case.dtype)
        if kept and overrides == kept.parameters:
            overrides = {}  # so that the row says where they come from
        (step,) = gemm_plan([device], [variant], [case.gemm], overrides, case.operands, self._tuned)
        if not isinstance(step, Case):
            return None
        return step if step.device == HOST else replace(step, device=case.device)


def auto_row(case: Case, inner: Case, reason: str, row: Row) -> Row:
    """The row of what `auto` chose for a case (`inner`), rewritten as its own."""
    return replace(
        row,
        device=case.device,
        variant=case.variant,
        parameters=case.parameters,
        source=case.source,
        reason=f"{inner.variant}: {row.reason}" if row.reason else "",
        choice={"kernel": inner.variant, "why": reason, **inner.parameters, **row.choice},
    )


def _home(case: Case, device: DeviceFacts) -> DeviceFacts | None:
    return None if case.device == HOST else device


def _shortly(policy: Policy) -> Policy:
    """A policy for a look: the budget of a row that is measured for its own sake is too much for each."""
    budget_s = max(_LEAST_TRIAL_S, _TRIAL_SHARE * policy.budget_s)
    settle_s, share_s = min(policy.settle_s, budget_s / 3), policy.share_s and min(policy.share_s, budget_s)
    return replace(policy, budget_s=budget_s, share_s=share_s, settle_s=settle_s, energy=False)
