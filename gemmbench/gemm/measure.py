"""One GEMM from its plan to its row: predicted, prepared, verified, sampled, its energy read."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import partial
from operator import attrgetter
from types import MappingProxyType
from weakref import WeakKeyDictionary

import numpy as np

from gemmbench.ladder import BY_NAME, variant_of
from gemmbench.measure.energy import measure_energy
from gemmbench.measure.sampling import Metered, Sampled, Window, alone, in_turn, least_s
from gemmbench.model.case import Case, Policy, Staged
from gemmbench.model.device import HOST, Conditions, DeviceFacts, joined
from gemmbench.model.instrument import Batch, Handle, Instrument, LostError, NotMeasuredError, too_slow
from gemmbench.model.problem import Gemm
from gemmbench.model.row import CHAIN, CYCLE, PAGEABLE, Check, Energy, Partner, Row, Scope
from gemmbench.model.units import percent, rate
from gemmbench.stats import ceilings, rates
from gemmbench.stats.conditions import disturbances
from gemmbench.stats.intervals import summarize

_HOST_SHARE = 0.4  # of the budget; the rest is the device's scopes'
_PAGEABLE_SHARE = 0.15  # of the budget, out of the host's, where arrays in ordinary memory are timed too
_PARTS_SHARE = 0.05  # of the budget, beside the others
_LEAST_PARTS, _MOST_PARTS = 3, 10  # problems
_HOST_SHARE_IN_TURN = 0.15  # or the device's: the rest is for the clock that the ratio is wanted of
_LEAST_IN_TURN = 40  # pairs: what fewer seem to agree on is often chance
_BATCH_ON_HOST = 2.0  # of one for two, beside the host's BLAS: each waits longer than that for free cores
_BATCH_IN_TURN = 0.4  # of a batch's length for two: what disturbs the machine is then in fewer ratios
_LEAST_EVENTS = 1e-4  # of a batch's wall time: less is no launch's, whatever launches cost
_CLOCKS_DIFFER = 0.1  # of a batch's wall time: from here on event and wall clock contradict each other

Stages = Generator[Staged, None, Row]


def _with_samples(
    row: Row, handle: Handle, sampled: Sequence[Sampled], device: DeviceFacts | None, policy: Policy
) -> Row:
    """The row with its samples, window by window."""
    samples, notes = _trusted(sampled)
    variant = BY_NAME.get(row.variant)
    if not (variant and variant.images):  # in the host scope a matrix becomes an image on its way
        notes = (*notes, *_impossible(samples))
    if policy.cold and handle.prepared.sets > 1:
        notes = (*notes, f"cold: rotates among {handle.prepared.sets} operand sets")
    notes = (*notes, *dict.fromkeys(window.note for window in sampled if window.note))
    row = replace(
        row,
        samples=samples,
        notes=(*row.notes, *handle.prepared.notes, *notes),
        conditions=joined([window.conditions for window in sampled]),
    )
    return beside_ceiling(row, device)


def beside_ceiling(row: Row, device: DeviceFacts | None) -> Row:
    """Mark a row wrong if the median of its finest scope exceeds the theoretical peak."""
    reached = rates.shown_rate(row, "kernel")
    if device is None or reached is None:
        return row
    top = ceilings.most(device, row.dtype, row.ran_on == "matrix", row.max_mhz)
    wrong = ceilings.why_above(reached.median, top, partial(rate, integer=rates.is_integer(row.dtype)))
    if wrong:
        reason = f"verified before it was timed, but {wrong}: what was timed was not the whole work"
        check = Check("wrong", row.check.figures, (*row.check.reasons, reason))
        return replace(row, status="wrong", reason=reason, check=check)
    return row


class WrongError(Exception):
    """A kernel's answer is wrong; holds the row."""

    def __init__(self, row: Row) -> None:
        super().__init__()
        self.row = row


def measured(instrument: Instrument, case: Case, device: DeviceFacts | None, policy: Policy) -> Stages:
    """Verify a case, measure it and verify it again, yielding its stages.

    Raises:
        NotMeasuredError: there is no rate, and why.
    """
    try:
        if case.former or case.versus:
            try:
                return (yield from _in_turn(instrument, case, device, policy))
            except _AloneError as error:
                case = replace(case, versus=None, notes=(*case.notes, error.reason))
        return (yield from _alone(instrument, case, device, policy))
    except WrongError as error:
        return error.row


def _alone(instrument: Instrument, case: Case, device: DeviceFacts | None, policy: Policy) -> Stages:
    """Measure a case that is compared with no other."""
    yield Staged("building")
    predict(instrument, case, device, policy)
    with instrument.prepare(case, device, policy) as handle:
        yield Staged("verifying")
        row = verified_row(case, handle)
        if not case.gemm.flops:
            return _untimed(row, handle)
        windows = []
        for window in _windows(handle, policy, pageable=True):
            yield Staged(f"timing {window.clock}")
            windows.append(alone(handle, window.clock, policy, window.budget_s, window.settle))
        row = _with_samples(row, handle, windows, device, policy)
        return (yield from _beside_samples(handle, row, device, policy))


def _beside_samples(handle: Handle, row: Row, device: DeviceFacts | None, policy: Policy) -> Stages:
    """What is measured once a row has its samples: energy and the host scope's parts; verified after them.

    A map cycle comes last, so that it is its C that is looked at.
    """
    if policy.energy and row.status == "ok":
        yield Staged("measuring energy")
        with Metered(handle, handle.prepared.clocks[0]) as run:
            row = replace(row, energy=measure_energy(run, device=device))
    if handle.prepared.parts and row.status == "ok":
        yield Staged("timing the host scope's parts")
        count = _parts_count(row, policy, 1 + handle.prepared.cycle)
        row = replace(row, parts=dict(handle.batch("parts", count).each))
        if handle.prepared.cycle:
            yield Staged("timing the map cycle")
            row = replace(row, cycle=dict(handle.batch(CYCLE, count).each))
        doubts = {name: rates.doubt(parts) for name, parts in (("host scope", row.parts), (CYCLE, row.cycle))}
        notes = [f"{name} by part: {doubt}" for name, doubt in doubts.items() if doubt]
        if apart := rates.parts_apart(row):
            notes.append(f"host scope by part: {apart}")
        row = replace(row, notes=(*row.notes, *notes))
    yield Staged("verifying")
    return verified_row_after(row, handle)


def _in_turn(instrument: Instrument, case: Case, device: DeviceFacts | None, policy: Policy) -> Stages:
    """Measure a case in turn with its kernel as it is in the case's other folder, or with another kernel.

    Raises:
        NotMeasuredError: unsupported: there is nothing to hold the case against.
        _AloneError: the other kernel cannot run; nothing is known of the case's own yet.
    """
    yield Staged("building")
    present = replace(case, former="", former_parameters=None, versus=None)
    name = case.versus.title if case.versus else "the former kernel"
    predict(instrument, present, device, policy)
    if case.versus:
        other, past, on = instrument, case.versus, None if case.versus.device == HOST else device
    else:
        other, past, on = instrument.of_former(case, device)
    past = replace(past, operands=replace(past.operands, out=None))  # what is written is the case's own
    with ExitStack() as held:
        handles: dict[bool, Handle] = {}  # of the other kernel, and of the case's own

        def prepare(of: Instrument, side: Case, its: DeviceFacts | None) -> Handle:
            sides = [handle for handle in handles.values() if handle.instrument is of]
            like = sides[0].number if sides and _share_operands(present, past) else None
            handle = handles[side is present] = of.prepare(side, its, policy, like)
            return held.enter_context(handle)

        def prepare_now() -> Handle:
            return handles.get(True) or prepare(instrument, present, device)

        yield Staged(f"verifying {name}")
        # One of them is prepared first, and its temporaries lie before the other's: by chance, so that it
        # evens out from process to process.
        if random.random() < 0.5:
            prepare_now()
        try:
            if case.versus:
                predict(other, past, on, policy)
            former = prepare(other, past, on)
            exact = former.verify("exact").check
            if exact.verdict == "wrong":
                raise NotMeasuredError("unsupported", "; ".join(exact.reasons))
        except (NotMeasuredError, WrongError) as error:
            of_other = _of_other(case, error)
            if not of_other.restart and not isinstance(error, LostError) and not case.versus:
                # Of a wrong kernel it is of no interest what it was before.
                verified_row(present, prepare_now())
            raise of_other from None
        now = prepare_now()
        yield Staged("verifying")
        row = verified_row(present, now)
        if not case.gemm.flops:
            return _untimed(row, now)
        try:
            yield Staged(f"verifying {name}")
            verified = former.verify("before")
            if verified.check.verdict == "wrong":
                raise _of_other(case, NotMeasuredError("unsupported", "; ".join(verified.check.reasons)))
            least = max(policy.min_batches, _LEAST_IN_TURN)
            on_host = former.prepared.clocks == ("host",)
            clocks, host_share = set(former.prepared.clocks), _HOST_SHARE_IN_TURN
            if on_host and device and device.type == "cpu":  # what they multiply is where the kernel has it
                clocks, host_share = {"device", "host"}, _HOST_SHARE
            elif on_host:
                host_share = 1 - _HOST_SHARE_IN_TURN
            batch_s = policy.batch_s * (_BATCH_ON_HOST if on_host else _BATCH_IN_TURN)
            short = replace(policy, batch_s=batch_s, min_batches=least)
            sides: tuple[list[Sampled], list[Sampled]] = ([], [])
            for window in _windows(now, short, host_share):
                yield Staged(f"timing {window.clock}")
                if window.clock in clocks:
                    pairs = in_turn(now, former, window.clock, short, window.budget_s)
                    sides[0].append(pairs.first)
                    sides[1].append(pairs.second)
                else:  # the host's BLAS beside a GPU's kernel: they have the host's clock in common
                    sides[0].append(alone(now, window.clock, short, window.budget_s, window.settle))
            yield Staged("verifying")
            now.batch(now.prepared.clocks[0], 1)  # where C is shared, it was the last to write it
            row = verified_row_after(row, now)
            if row.status == "wrong":
                return row
            former.batch(former.prepared.clocks[0], 1)
            check = former.verify("after").check
            if check.verdict == "wrong":
                raise _of_other(case, NotMeasuredError("unsupported", "; ".join(check.reasons)))
        except NotMeasuredError as error:
            raise (_of_other(case, error) if error.handle == former.number else error) from None
        (samples, notes), (before, doubts) = map(_trusted, sides)
        if bool(notes) != bool(doubts):  # one clock for both
            samples, before = (_by_wall_clock(side) for side in sides)
        elif on_host:  # whose only clock is the wall's
            samples |= {name: scope for name, scope in _by_wall_clock(sides[0]).items() if name in clocks}
        built = former.prepared.built
        partner = Partner(built.source, before, resources=built.resources, launches=verified.launches)
        if case.versus:
            partner = replace(partner, variant=past.variant, parameters=past.parameters)
        row = replace(
            row,
            samples=samples,
            former=partner,
            notes=(*row.notes, *(notes or doubts)),
            conditions=joined([sampled.conditions for sampled in sides[0]]),
        )
        if case.versus:
            row = yield from _beside_samples(now, row, device, policy)
    return beside_ceiling(row, device)


def _share_operands(present: Case, other: Case) -> bool:
    """Whether two cases can: kernels on one device do, unless one has an operand in an image."""
    kernels = variant_of(present), variant_of(other)
    return kernels[0].executor == kernels[1].executor and (
        kernels[0] is kernels[1] or not any(kernel.images for kernel in kernels)
    )


class _AloneError(NotMeasuredError):
    """The kernel that a case was to be timed in turn with cannot be."""


def _of_other(case: Case, error: NotMeasuredError | WrongError) -> NotMeasuredError:
    """Whatever goes wrong with the other kernel: nothing is known of the case's own."""
    restart = isinstance(error, NotMeasuredError) and error.restart
    of = error.row if isinstance(error, WrongError) else error
    status, reason = of.status, of.reason
    if case.versus:
        why = f"not in turn with {case.versus.title}: {status}: {reason}"
        return _AloneError("unsupported", why, restart)
    reason = f"{status}: {reason}" if isinstance(error, LostError) else reason
    return NotMeasuredError("unsupported", f"its kernel in the other folder: {reason}", restart)


_remembered: WeakKeyDictionary[Instrument, dict[tuple[object, ...], Trial]] = WeakKeyDictionary()


def predict(instrument: Instrument, case: Case, device: DeviceFacts | None, policy: Policy) -> None:
    """Refuse a case that cannot finish in its budget; its kernels must pass their exact test on the way.

    Raises:
        NotMeasuredError: skipped, with the time it would take.
        WrongError: they do not.
    """
    quick = replace(policy, cold=False)
    remembered = _remembered.setdefault(instrument, {})
    parameters = frozenset(case.parameters.items())
    key = case.variant, case.source, parameters, case.former, case.device, policy.memory, policy.state
    seen: set[Gemm] = set()

    def trial(smaller: Gemm) -> Trial:
        """What a former case's trial of the same problem told, or a new one: a second is always new."""
        like = replace(smaller, beta=0.0)
        if like in seen or (key, like) not in remembered:
            remembered[key, like] = new_trial(smaller)
        seen.add(like)
        return remembered[key, like]

    def new_trial(smaller: Gemm) -> Trial:
        """One run of a smaller problem, the first and slow one not counted."""
        with instrument.prepare(case, device, quick, problem=smaller) as handle:
            check_exact(case, handle)
            clock = handle.prepared.clocks[0]
            handle.watch.begin()
            handle.batch(clock, 1)
            batch = handle.batch(clock, 1)
            conditions = handle.watch.end(clock, [batch])
            # Events of kernels are not believed before they are held against the wall clock.
            took_s = batch.wall_s if "kernel" in batch.seconds else batch.seconds[clock]
            return Trial(took_s, conditions, disturbances(conditions, device is None or device.type == "cpu"))

    if case.kind == "gemm" and case.gemm.flops:
        refuse_if_too_slow(case.gemm, policy, trial, dict(case.measured))


def row_of(case: Case, handle: Handle) -> Row:
    """A case's row as it was prepared, without its samples."""
    prepared = handle.prepared
    return replace(
        case.row("ok"),
        build_s=prepared.built.build_s,
        choice=dict(prepared.built.choice),
        resources=prepared.built.resources,
        memory=prepared.memory,
        work=None if case.kind == "gemm" else prepared.unit,
    )


def check_exact(case: Case, handle: Handle) -> None:
    """Run a case's kernels on shapes around the tile, with guard cells and NaN where nothing may be read.

    Raises:
        WrongError: the answer is wrong.
    """
    check = handle.verify("exact").check
    if check.verdict == "wrong":
        row = replace(row_of(case, handle), memory="")  # the operands were not touched
        raise WrongError(replace(row, status="wrong", reason="; ".join(check.reasons), check=check))


def verified_row(case: Case, handle: Handle) -> Row:
    """A row with its check and launches.

    Raises:
        WrongError: the answer is wrong.
    """
    check_exact(case, handle)
    verified = handle.verify("before")
    row = replace(row_of(case, handle), check=verified.check, launches=verified.launches)
    if verified.matrices:
        row = replace(row, matrices=verified.matrices)
    if row.check.verdict == "wrong":
        raise WrongError(replace(row, status="wrong", reason="; ".join(row.check.reasons)))
    return row


def verified_row_after(row: Row, handle: Handle) -> Row:
    """The row with its second check; without samples if that is wrong."""
    verified = handle.verify("after")
    check = verified.check
    row = replace(row, check_after=check, launches=verified.launches or row.launches)
    if check.verdict != "wrong":
        return row
    reason = "; ".join(check.reasons)
    bare = replace(row, samples={}, former=None, parts={}, cycle={}, energy=Energy())
    return replace(bare, status="wrong", reason=reason)


def _untimed(row: Row, handle: Handle) -> Row:
    """The row of a product without terms."""
    row = verified_row_after(row, handle)
    return replace(row, notes=(*row.notes, "nothing to time: the product has no terms"))


def _windows(
    handle: Handle, policy: Policy, host_share: float = _HOST_SHARE, pageable: bool = False
) -> tuple[Window, ...]:
    """The clocks of a handle with their shares of the budget."""
    clocks = [clock for clock in handle.prepared.clocks if pageable or clock != PAGEABLE]
    if clocks == ["host"]:
        return (Window("host", policy.sampling_s, True),)
    pageable_share = _PAGEABLE_SHARE if PAGEABLE in clocks else 0.0
    shares = {"host": host_share - pageable_share, PAGEABLE: pageable_share}
    finer = [clock for clock in clocks if clock not in shares]
    shares |= dict.fromkeys(finer, (1 - host_share) / max(1, len(finer)))
    return tuple(Window(clock, policy.sampling_s * shares[clock], clock == finer[0]) for clock in clocks)


def _parts_count(row: Row, policy: Policy, kinds: int) -> int:
    """How many problems are timed part by part: few, since each is as long as the host scope's.

    Where a row's time allows, three at least: of fewer, none took a median time. `kinds`: 2 with a map cycle.
    """
    host_s = float(np.median(row.samples["host"].seconds))
    least = min(_LEAST_PARTS, int(policy.sampling_s / kinds / host_s))
    return max(1, least, min(_MOST_PARTS, int(_PARTS_SHARE * policy.sampling_s / host_s)))


def _trusted(windows: Sequence[Sampled]) -> tuple[dict[str, Scope], tuple[str, ...]]:
    """Hold the event clock against the wall clock; where they cannot both be right, take the wall's.

    A batch's events sum up to its wall time at most, and to no less than it without the cost of its launches.
    The span from first START to last END lacks at most what launches cost that were made since it began.
    """
    samples = {name: scope for sampled in reversed(windows) for name, scope in sampled.scopes.items()}
    events = [batch for sampled in windows for batch in sampled.batches if batch.launch_s is not None]
    if not events or np.median([_clocks_agree(batch) for batch in events]) > 0:
        return samples, ()
    ratio = float(np.median([batch.seconds["device"] / batch.wall_s for batch in events]))
    note = f"events say {ratio:.2g} times the wall clock: kernel and device scope are wall-clock times"
    return _by_wall_clock(windows), (note,)


def _impossible(samples: Mapping[str, Scope]) -> tuple[str, ...]:
    """A remark where the host scope is faster than the device scope, which is a part of it.

    They are sampled one after the other: then the machine has changed its speed between them.
    """
    if "device" not in samples or "host" not in samples:
        return ()
    device, host = summarize(samples["device"].seconds), summarize(samples["host"].seconds)
    slowest = max(samples["host"].seconds) if host.is_few else host.high
    fastest = device.minimum if device.is_few else device.low
    if slowest >= fastest:
        return ()
    faster = percent(device.median / host.median - 1)
    return (
        f"the host scope is {faster} faster than the device scope, which cannot be: the machine's speed "
        "changed between them; measure again",
    )


def _clocks_agree(batch: Batch) -> bool:
    """Whether the events of a batch that is timed by them fit in its wall time, and fill it."""
    wall, events = batch.end - batch.begin, batch.seconds["device"] * batch.count
    slack = _CLOCKS_DIFFER * wall
    launch_s, (start, stop) = batch.launch_s or 0.0, batch.device or (0.0, wall)
    least = max(wall - launch_s - slack, _LEAST_EVENTS * wall)
    is_filled = stop - start >= wall - max(0.0, launch_s - batch.ahead_s) - slack
    return is_filled and least <= events <= wall + slack


def _by_wall_clock(windows: Sequence[Sampled]) -> dict[str, Scope]:
    """Samples of which those of the device are the wall clock's."""
    samples: dict[str, Scope] = {}
    for sampled in reversed(windows):
        walls = tuple(batch.wall_s for batch in sampled.batches)
        samples |= sampled.scopes
        for name in sampled.scopes.keys() & {"kernel", "device", CHAIN}:
            samples[name] = replace(samples[name], seconds=walls)
    return samples


# --- Whether a case can finish in its budget, from smaller problems -----------------------------------------


_SMALL = 256  # the first trial's edge
_SHARE = 0.15  # of the budget that one trial may take


_TRIALS = 3  # at most, of one size, until there is an undisturbed one
_QUIET_S = 0.5  # between a disturbed trial and the next

_sleep = time.sleep  # replaced in tests


@dataclass(frozen=True)
class Trial:
    """One run of a smaller problem."""

    seconds: float
    conditions: Conditions | None = None
    disturbances: tuple[str, ...] = ()  # why it may have taken longer than it should


def refuse_if_too_slow(
    problem: Gemm,
    policy: Policy,
    trial: Callable[[Gemm], Trial],
    measured: Mapping[Gemm, float] = MappingProxyType({}),
) -> None:
    """Predict a case's cost from growing trials; what would skip it is tried twice, undisturbed if possible.

    Args:
        problem: the case's, with some flops.
        policy: its budget.
        trial: runs a smaller problem.
        measured: smaller problems that need no trial, and seconds that they took.

    Raises:
        NotMeasuredError: skipped, with the time it would take.
    """
    known = max((each for each in measured if _is_like(each, problem)), key=attrgetter("flops"), default=None)
    if known:
        predicted = least_s(measured[known] * problem.flops / known.flops)
        if predicted <= policy.budget_s:
            return
        if known.flops * 8 >= problem.flops:
            raise _skipped(Trial(measured[known]), predicted, policy)
    edge = _SMALL
    while True:
        smaller = _within(problem, edge)
        if smaller.flops * 2 >= problem.flops:
            return  # the trial would be the case itself
        trials: list[Trial] = []
        while True:
            trials.append(trial(smaller))
            best = min(trials, key=lambda each: (bool(each.disturbances), each.seconds))
            predicted = least_s(best.seconds * problem.flops / smaller.flops)
            if predicted <= policy.budget_s:
                return
            if best.seconds * 8 <= policy.budget_s * _SHARE:
                break
            if len(trials) >= (_TRIALS if best.disturbances else 2):
                raise _skipped(best, predicted, policy)
            if best.disturbances:
                _sleep(_QUIET_S)
        edge *= 2


def _is_like(smaller: Gemm, problem: Gemm) -> bool:
    """Whether the time for a problem tells that for a larger one: of up to 64 times the work, in one shape.

    One dimension is longer, or all are by the same factor: then what a flop costs is about the same.
    """
    if (smaller.trans_a, smaller.trans_b, smaller.batch) != (problem.trans_a, problem.trans_b, problem.batch):
        return False
    if not 0 < smaller.flops < problem.flops <= 64 * smaller.flops:
        return False
    longer = {problem.m / smaller.m, problem.n / smaller.n, problem.k / smaller.k}
    return min(longer) >= 1 and len(longer - {1.0}) == 1


def _skipped(trial: Trial, predicted_s: float, policy: Policy) -> NotMeasuredError:
    """Why a case is not measured; that of a disturbed trial is not the last word."""
    error = too_slow(predicted_s, policy)
    if not trial.disturbances:
        return error
    reason = f"{error.reason}; {', '.join(trial.disturbances)} meanwhile"
    return NotMeasuredError("skipped", reason, needs_s=predicted_s, conditions=trial.conditions)


def _within(problem: Gemm, edge: int) -> Gemm:
    """The problem with no dimension longer than an edge, and no more of a batch than is a cube of that."""
    cube = replace(problem, m=min(problem.m, edge), n=min(problem.n, edge), k=min(problem.k, edge))
    most = edge**3 // max(1, cube.m * cube.n * cube.k)
    return replace(cube, batch=max(1, min(problem.batch, most)))
