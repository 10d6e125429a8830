"""One GEMM from its plan to its row: predicted, prepared, verified, sampled, its energy read."""

from __future__ import annotations

import itertools
import random
from collections.abc import Collection, Generator, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import replace

import numpy as np

from gemmbench.gemm.operands import LONG_S, MOST_SETS
from gemmbench.ladder import variant_of
from gemmbench.measure.sampling import Metered, Sampled, alone, in_turn
from gemmbench.measure.sensors import measure_energy
from gemmbench.model import instrument as wire
from gemmbench.model.case import Case, Policy, Staged
from gemmbench.model.device import HOST, DeviceFacts, joined_conditions
from gemmbench.model.instrument import Batch, Handle, Instrument, LostError, NotMeasuredError
from gemmbench.model.problem import Gemm
from gemmbench.model.row import BLAS, CHAIN, CYCLE, Check, Energy, Partner, Row, Scope
from gemmbench.stats import rates

_EDGE = 256  # of the trial problem where no smaller problem was measured
_GROWS = 4  # so many times longer are the edges of the next trial
_MORE = 8  # times the flops of the trial problem: a case of fewer is not predicted from it
_TRIALS = 8  # in a batch: one launch of a GPU may take longer than the trial problem
_PARTS, _PARTS_SHARE = 3, 0.1  # problems that are timed part by part, and their share of the budget
_HOST_SHARE = 0.15  # of the time for interleaved batches; the rest is for the clock that decides
INTERLEAVED_S = 1.0  # at least, for interleaved batches
_LEAST_IN_TURN = 40  # pairs: what fewer seem to agree on is often chance
_BATCH_ON_HOST = 4.0  # of one for two, with the host's BLAS: each waits longer than that for free cores
_BATCH_IN_TURN = 0.8  # of a batch's length for two: what disturbs the machine is then in fewer ratios
_LEAST_EVENTS = 1e-4  # of a batch's wall time: less is no launch's, whatever launches cost
_CLOCKS_DIFFER = 0.1  # of a batch's wall time: from here on event and wall clock contradict each other

Stages = Generator[Staged, None, Row]


def _with_samples(
    row: Row, handle: Handle, sampled: Sequence[Sampled], device: DeviceFacts | None, policy: Policy
) -> Row:
    samples, notes = _checked_samples(sampled)
    if policy.cold and handle.prepared.sets > 1:
        most = ", the most: caches may hold them all" if handle.prepared.sets == MOST_SETS else ""
        notes = (*notes, f"cold: rotates among {handle.prepared.sets} operand sets{most}")
    row = replace(
        row,
        samples=samples,
        notes=(*row.notes, *handle.prepared.notes, *notes),
        conditions=joined_conditions([window.conditions for window in sampled]),
    )
    return checked_against_peak(row, device)


def checked_against_peak(row: Row, device: DeviceFacts | None) -> Row:
    """The row, marked wrong if its rate exceeds the peak."""
    reached = rates.shown_rate(row, "kernel")
    if device is None or reached is None:
        return row
    if wrong := rates.why_above_peak(row, device, reached.median):
        reason = f"verified before it was timed, but {wrong}: what was timed was not the whole work"
        check = Check("wrong", row.check.figures, (*row.check.reasons, reason))
        return replace(row, status="wrong", reason=reason, check=check)
    return row


class WrongError(Exception):
    """A kernel's answer is wrong; holds the row."""

    def __init__(self, row: Row) -> None:
        super().__init__()
        self.row = row


def measure_gemm(instrument: Instrument, case: Case, device: DeviceFacts | None, policy: Policy) -> Stages:
    """Verify a case, measure it and verify it again. Yields its stages, and returns its row, even if wrong.

    Batches alternate with those of its `partner`, if it has one. If that of ``--versus`` cannot run, the case
    is timed alone. Raises `NotMeasuredError` if there is no rate.
    """
    try:
        if case.partner:
            try:
                return (yield from _measure_pair(instrument, case, device, policy))
            except _OtherKernelError as error:
                case = replace(case, partner=None, notes=(*case.notes, error.reason))
        return (yield from _measure_alone(instrument, case, device, policy))
    except WrongError as error:
        return error.row


def _measure_alone(instrument: Instrument, case: Case, device: DeviceFacts | None, policy: Policy) -> Stages:
    """Build, verify and sample a case in each of its scopes."""
    yield Staged("building")
    refuse_if_too_slow(instrument, case, device, policy)
    with instrument.prepare(case, device, policy) as handle:
        yield Staged("verifying")
        row = verified_row(case, handle)
        if not case.gemm.flops:
            return _untimed_row(row, handle)
        one_s = sum(launch.running_s for launch in row.launches)
        if error := wire.too_slow(one_s, policy):
            raise error
        windows: list[Sampled] = []
        clocks = _timing_clocks(case, handle, one_s, policy)
        for clock in clocks:
            yield Staged(f"timing {clock}")
            share_s = policy.budget_s / len(clocks)
            windows.append(alone(handle, clock, policy, share_s, not windows, one_s))
        row = _with_samples(row, handle, windows, device, policy)
        return (yield from _after_samples(handle, row, device, policy, windows))


def _after_samples(
    handle: Handle, row: Row, device: DeviceFacts | None, policy: Policy, windows: Sequence[Sampled] = ()
) -> Stages:
    """Add energy, parts and the map cycle, and verify again."""
    if policy.energy and row.status == "ok":
        yield Staged("measuring energy")
        with Metered(handle, handle.prepared.clocks[0]) as run:
            row = replace(row, energy=measure_energy(run, device=device))
    if handle.prepared.parts and row.status == "ok":
        fit = policy.budget_s / float(np.median(row.samples["host"].counted))
        count = int(min(_PARTS, max(1.0, fit * _PARTS_SHARE)))
        timed = next((batch.each for window in windows for batch in window.batches if batch.each), None)
        if not timed:
            yield Staged("timing the host scope's parts")
            timed = handle.batch("parts", count).each
        row = replace(row, parts=dict(timed))
        if handle.prepared.cycle:
            yield Staged("timing the map cycle")
            row = replace(row, cycle=dict(handle.batch(CYCLE, count).each))
    yield Staged("verifying")
    return verified_row_after(row, handle)


def _measure_pair(instrument: Instrument, case: Case, device: DeviceFacts | None, policy: Policy) -> Stages:
    """Measure a case interleaved with its `partner`; `_OtherKernelError` if only that one cannot run."""
    yield Staged("building")
    present = replace(case, partner=None)
    name = case.versus.title if case.versus else "the old kernel"
    refuse_if_too_slow(instrument, present, device, policy)
    assert case.partner is not None
    other, past, on = instrument.for_old(case.partner, None if case.partner.device == HOST else device)
    past = replace(past, operands=replace(past.operands, out=None))  # what is written is the case's own
    with ExitStack() as held:
        yield Staged(f"verifying {name}")
        now, former = _prepared_pair(held, case, (instrument, present, device), (other, past, on), policy)
        yield Staged("verifying")
        row = verified_row(present, now)
        if not case.gemm.flops:
            return _untimed_row(row, now)
        try:
            yield Staged(f"verifying {name}")
            verified = _verified_other(former, "before")
            sides, clocks = yield from _timed_in_pairs(now, former, device, policy)
            yield Staged("verifying")
            now.batch(now.prepared.clocks[0], 1)  # where C is shared, it was the last to write it
            row = verified_row_after(row, now)
            if row.status == "wrong":
                return row
            former.batch(former.prepared.clocks[0], 1)
            _verified_other(former, "after")
        except NotMeasuredError as error:
            raise (_other_kernel_error(case, error) if error.handle == former.number else error) from None
        row = _with_pairs(row, case, former, verified, sides, clocks)
        if case.versus:
            row = yield from _after_samples(now, row, device, policy)
    return checked_against_peak(row, device)


_Side = tuple[Instrument, Case, DeviceFacts | None]  # one of two interleaved kernels, and what runs it


def _prepared_pair(
    held: ExitStack, case: Case, own: _Side, other: _Side, policy: Policy
) -> tuple[Handle, Handle]:
    """Prepare both kernels, in random order, because the first gets other memory."""

    def prepare(side: _Side, first: Handle | None) -> Handle:
        instrument, its_case, device = side
        shares = first is not None and first.instrument is instrument and _can_share(own[1], other[1])
        like = first.number if first and shares else None
        return held.enter_context(instrument.prepare(its_case, device, policy, like))

    now = prepare(own, None) if random.random() < 0.5 else None
    former = None
    try:
        if case.versus:
            refuse_if_too_slow(*other, policy)
        former = prepare(other, now)
        _verified_other(former, "exact")
    except (NotMeasuredError, WrongError) as error:
        of_other = _other_kernel_error(case, error)
        if not of_other.restart and not isinstance(error, LostError) and not case.versus:
            # If the kernel is wrong, its former version does not matter.
            verified_row(own[1], now or prepare(own, former))
        raise of_other from None
    return now or prepare(own, former), former


def _verified_other(former: Handle, when: wire.When) -> wire.Verified:
    verified = former.verify(when)
    if verified.check.verdict == "wrong":
        error = NotMeasuredError("unsupported", "; ".join(verified.check.reasons))
        error.handle = former.number
        raise error
    return verified


def _timed_in_pairs(
    now: Handle, former: Handle, device: DeviceFacts | None, policy: Policy
) -> Generator[Staged, None, tuple[tuple[list[Sampled], list[Sampled]], Collection[str]]]:
    """Sample both kernels in alternating batches, in every clock that both have; also returns these.

    The host clock gets 15 % of the budget, with the host's BLAS 85 %, with that on a CPU half of it.
    """
    on_host = former.prepared.clocks == ("host",)
    clocks, host_share = set(former.prepared.clocks), _HOST_SHARE
    if on_host and device and device.type == "cpu":  # what they multiply is where the kernel has it
        clocks, host_share = {"device", "host"}, 0.5
    elif on_host:
        host_share = 1 - _HOST_SHARE
    batch_s = policy.batch_s * (_BATCH_ON_HOST if on_host else _BATCH_IN_TURN)
    short = replace(policy, batch_s=batch_s, min_batches=max(policy.min_batches, _LEAST_IN_TURN))
    budget_s = max(policy.budget_s, INTERLEAVED_S)
    sides: tuple[list[Sampled], list[Sampled]] = ([], [])
    for clock in now.prepared.clocks:
        yield Staged(f"timing {clock}")
        share_s = budget_s * (host_share if clock == "host" else 1 - host_share)
        if clock in clocks:
            for side, sampled in zip(sides, in_turn(now, former, clock, short, share_s), strict=True):
                side.append(sampled)
        else:  # the host's BLAS and a GPU's kernel have the host's clock in common
            sides[0].append(alone(now, clock, policy, share_s, not sides[0]))
    return sides, clocks


def _with_pairs(
    row: Row, case: Case, former: Handle, verified: wire.Verified,
    sides: tuple[Sequence[Sampled], Sequence[Sampled]], clocks: Collection[str],
) -> Row:  # fmt: skip
    """The row with both sides' samples, by one clock if only one side's events are wrong."""
    name, on_host = (case.versus.title if case.versus else ""), former.prepared.clocks == ("host",)
    (samples, notes), (before, doubts) = map(_checked_samples, sides)
    if bool(notes) != bool(doubts):  # one clock for both
        samples, before = (_by_wall_clock(side) for side in sides)
    elif on_host:  # whose only clock is the wall's
        samples |= {each: scope for each, scope in _by_wall_clock(sides[0]).items() if each in clocks}
    built = former.prepared.built
    library = [f"{name} is {built.choice[BLAS]}"] if BLAS in built.choice else []
    partner = Partner(built.source, before, resources=built.resources, launches=verified.launches)
    if case.versus:
        partner = replace(partner, variant=case.versus.variant, parameters=case.versus.parameters)
    return replace(
        row,
        samples=samples,
        former=partner,
        notes=(*row.notes, *library, *(notes or doubts)),
        conditions=joined_conditions([sampled.conditions for sampled in sides[0]]),
    )


def _can_share(present: Case, other: Case) -> bool:
    kernels = variant_of(present), variant_of(other)
    return kernels[0].executor == kernels[1].executor and (
        kernels[0] is kernels[1] or not any(kernel.launches.images for kernel in kernels)
    )


class _OtherKernelError(NotMeasuredError): ...


def _other_kernel_error(case: Case, error: NotMeasuredError | WrongError) -> NotMeasuredError:
    """An error of the partner, told as one of the case."""
    restart = isinstance(error, NotMeasuredError) and error.restart
    of = error.row if isinstance(error, WrongError) else error
    if case.versus:
        why = f"not interleaved with {case.versus.title}: {of.status}: {of.reason}"
        return _OtherKernelError("unsupported", why, restart)
    reason = f"{of.status}: {of.reason}" if isinstance(error, LostError) else of.reason
    return NotMeasuredError("unsupported", f"its kernel in the other folder: {reason}", restart)


def refuse_if_too_slow(
    instrument: Instrument, case: Case, device: DeviceFacts | None, policy: Policy
) -> None:
    """Refuse a case whose problem is predicted to take longer than the budget (2 s at least).

    The time of a smaller problem is scaled by flops. One with less than a 64th of them may not fill the
    device, so it seldom decides. `WrongError` if the smaller one is wrong.
    """
    problem = case.gemm
    for smaller, took_s in _smaller_times(instrument, case, device, policy):
        if not (error := wire.too_slow(took_s * problem.flops / smaller.flops, policy)):
            return
        is_whole = smaller.flops * problem.batch == problem.flops * smaller.batch
        is_near = problem.flops <= _GROWS**3 * smaller.flops
        if is_whole or is_near or wire.too_slow(took_s * _GROWS**3, policy):
            raise error


def _smaller_times(
    instrument: Instrument, case: Case, device: DeviceFacts | None, policy: Policy
) -> Iterator[tuple[Gemm, float]]:
    """Times of smaller problems, growing: what predicts whether the case is over budget."""
    if case.measured:
        yield case.measured
    for edge in (_EDGE * _GROWS**power for power in itertools.count()):
        m, n, k = (min(side, edge) for side in (case.gemm.m, case.gemm.n, case.gemm.k))
        smaller = replace(case.gemm, m=m, n=n, k=k, batch=1)
        if not smaller.flops or _MORE * smaller.flops > case.gemm.flops:
            return
        with instrument.prepare(case, device, replace(policy, cold=False), problem=smaller) as handle:
            check_exact(case, handle)
            clock = handle.prepared.clocks[0]
            handle.batch(clock, 1)  # the first run is slow
            took_s = handle.batch(clock, _TRIALS).seconds[clock]  # not wall time: a GPU may be waking up
        yield smaller, took_s


def row_of(case: Case, handle: Handle) -> Row:
    """The ok row of a prepared case, without samples."""
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
    """Run the exact tests of a case's kernels; `WrongError` if one fails."""
    check = handle.verify("exact").check
    if check.verdict == "wrong":
        row = replace(row_of(case, handle), memory="")  # the operands were not touched
        raise WrongError(replace(row, status="wrong", reason="; ".join(check.reasons), check=check))


def verified_row(case: Case, handle: Handle) -> Row:
    """The row after the exact tests and the checks before timing. `WrongError` if it is wrong."""
    check_exact(case, handle)
    verified = handle.verify("before")
    row = replace(row_of(case, handle), check=verified.check, launches=verified.launches)
    if verified.matrices:
        row = replace(row, matrices=verified.matrices)
    if row.check.verdict == "wrong":
        raise WrongError(replace(row, status="wrong", reason="; ".join(row.check.reasons)))
    return row


def verified_row_after(row: Row, handle: Handle) -> Row:
    """Verify after the batches. A wrong row loses its samples and energy."""
    verified = handle.verify("after")
    check = verified.check
    notes = (*row.notes, *verified.notes)
    row = replace(row, check_after=check, launches=verified.launches or row.launches, notes=notes)
    if check.verdict != "wrong":
        return row
    bare = replace(row, samples={}, former=None, parts={}, cycle={}, energy=Energy())
    return replace(bare, status="wrong", reason="; ".join(check.reasons))


def _untimed_row(row: Row, handle: Handle) -> Row:
    row = verified_row_after(row, handle)
    return replace(row, notes=(*row.notes, "nothing to time: the product has no terms"))


def _timing_clocks(case: Case, handle: Handle, one_s: float, policy: Policy) -> tuple[str, ...]:
    clocks = handle.prepared.clocks
    fits = len(clocks) * policy.min_batches * one_s <= policy.budget_s or one_s < LONG_S
    return clocks if fits or "host" not in clocks or variant_of(case).launches.images else ("host",)


def _checked_samples(windows: Sequence[Sampled]) -> tuple[dict[str, Scope], tuple[str, ...]]:
    """The samples by scope; by the wall clock, with a note, if events contradict it."""
    samples = {name: scope for sampled in reversed(windows) for name, scope in sampled.scopes.items()}
    events = [batch for sampled in windows for batch in sampled.batches if batch.launch_s is not None]
    if not events or np.median([_clocks_agree(batch) for batch in events]) > 0:
        return samples, ()
    ratio = float(np.median([batch.seconds["device"] / batch.wall_s for batch in events]))
    note = f"events say {ratio:.2g} times the wall clock: kernel and device scope are wall-clock times"
    return _by_wall_clock(windows), (note,)


def _clocks_agree(batch: Batch) -> bool:
    """Whether a batch's events fit in its wall time and fill it, but for launches."""
    wall, events = batch.end - batch.begin, batch.seconds["device"] * batch.count
    slack = _CLOCKS_DIFFER * wall
    launch_s, (start, stop) = batch.launch_s or 0.0, batch.device or (0.0, wall)
    least = max(wall - launch_s - slack, _LEAST_EVENTS * wall)
    is_filled = stop - start >= wall - max(0.0, launch_s - batch.ahead_s) - slack
    return is_filled and least <= events <= wall + slack


def _by_wall_clock(windows: Sequence[Sampled]) -> dict[str, Scope]:
    samples: dict[str, Scope] = {}
    for sampled in reversed(windows):
        samples |= sampled.scopes
        for name in sampled.scopes.keys() & {"kernel", "device", CHAIN}:
            samples[name] = sampled.scope(name, wall=True)
    return samples
