"""``--for``: the fastest row of each device runs on, for minutes or hours, every result compared."""

from __future__ import annotations

from collections.abc import Callable, Collection, Generator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace

from gemmbench.gemm.measure import verified_row_after
from gemmbench.ladder import AUTO, BASELINES
from gemmbench.measure.child import Worker
from gemmbench.measure.sustained import DONE, INTERRUPTED, ended, sustained
from gemmbench.model.case import Case, Event, Plan, Staged
from gemmbench.model.device import HOST
from gemmbench.model.dtypes import DTYPES
from gemmbench.model.instrument import Handle, NotMeasuredError
from gemmbench.model.row import Row, Sustained
from gemmbench.model.units import rate, seconds, watts
from gemmbench.probes.race import LAUNCH_S, sized, trips_for, winner
from gemmbench.report.conditions import in_a_sentence, ran_s
from gemmbench.stats import rates
from gemmbench.suite.session import Steps

_OVER_S = 60.0  # beside the time that was asked for, to build and to verify
_SAVE_S = 300.0  # from one time that the row is saved to the next, while it runs
_MOST_SAVED = 100  # times: longer runs save it less often
_NOT_VERIFIED = "interrupted before it was verified again"


def chosen(plan: Plan, rows: Sequence[Row], named: Collection[str]) -> list[tuple[Case, Row]]:
    """The fastest row of each device, with its case.

    Of GEMMs, if there are any: a kernel, or a library that was named; otherwise of peaks, on random operands.
    """
    cases = {step.key: step for step in plan if isinstance(step, Case)}
    able = [(case, row) for row in rows if row.status == "ok" and (case := cases.get(row.key))]
    gemms = [
        (case, row)
        for case, row in able
        if row.kind == "gemm"
        and row.variant != AUTO
        and (row.variant in named or row.variant not in BASELINES)
        and not row.beside
    ]
    peaks = [
        (case, row) for case, row in able if row.kind == "peak" and row.parameters.get("operands") != "zeros"
    ]
    best: dict[int, tuple[Case, Row]] = {}
    for case, row in gemms or peaks:
        at = best.get(row.device)
        if at is None or _speed(row) > _speed(at[1]):
            best[row.device] = case, row
    return [best[device] for device in sorted(best)]


def _speed(row: Row) -> float:
    reached = rates.shown_rate(row, "device") if row.kind == "gemm" else rates.rate(row, "kernel")
    return reached.median if reached else 0.0


@dataclass
class _Member:
    """One device's part."""

    case: Case
    row: Row
    worker: Worker
    handle: Handle
    flops: int
    saved_s: float = 0.0  # how far its run was when its row was last saved

    def so_far(self, result: Sustained) -> Row:
        """The row with its long run as it is now: what stands if nothing comes after it."""
        end = {"": INTERRUPTED, DONE: _NOT_VERIFIED}.get(result.end, result.end)
        return self._with(ended(result, end))

    def _with(self, result: Sustained) -> Row:
        row = replace(self.row, sustained=result, supersedes=True)
        return _wrong(row, in_a_sentence(row, result)) if result.wrong else row

    def completed(self, result: Sustained) -> Row:
        """The row with its long run, verified once more; where that is not possible a note says so."""
        row = self._with(result)
        if result.wrong or result.end != DONE:
            return row
        try:
            return verified_row_after(row, self.handle)
        except NotMeasuredError as error:
            if error.status == "wrong":
                return _wrong(row, error.reason)
            note = f"not verified after the long run: {error.reason}"
            return replace(row, notes=(*row.notes, note))


def _wrong(row: Row, reason: str) -> Row:
    return replace(row, status="wrong", reason=reason, samples={}, former=None, parts={}, cycle={})


def run(
    plan: Plan,
    rows: Sequence[Row],
    named: Collection[str],
    steps: Steps,
    worker_of: Callable[[int], Worker],
    wanted_s: float,
    at_once: bool,
) -> Generator[Event, None, bool]:
    """Run the fastest row of each device for so long; one device after another, or all at once.

    Returns:
        Whether there was a row that can run on, or had already.

    Raises:
        KeyboardInterrupt: Ctrl-C; what was measured until then is in the rows.
        RunFileError: a row cannot be written.
    """
    fastest = chosen(plan, rows, named)
    able = [(case, row) for case, row in fastest if not (row.sustained and row.sustained.end == DONE)]
    groups = [able] if at_once else [[pair] for pair in able]
    yield steps.planned(len(groups), len(groups) * (wanted_s + 1))
    for group in filter(None, groups):
        labels = " and ".join(f"{case.label} on {case.device}" for case, _ in group)
        yield steps.started(f"{labels} for {seconds(wanted_s)}")
        yield from _group(group, steps, worker_of, wanted_s)
    return bool(fastest)


def _group(
    group: Sequence[tuple[Case, Row]], steps: Steps, worker_of: Callable[[int], Worker], wanted_s: float
) -> Generator[Event, None, None]:
    with ExitStack() as held:
        members = []
        for case, row in group:
            worker = worker_of(case.device)
            worker.limit(wanted_s + _OVER_S + steps.policy.time_limit_s)
            try:
                yield Staged("building")
                handle, flops = _prepared(case, row, worker, steps)
                held.enter_context(handle)
                members.append(_Member(case, row, worker, handle, flops))
            except NotMeasuredError as error:
                note = f"not run for longer: {error.reason}"
                yield steps.finished(replace(row, notes=(*row.notes, note), supersedes=True))
        results: dict[int, Sustained] = {}  # of rows that are not finished
        every_s = max(_SAVE_S, wanted_s / _MOST_SAVED)
        try:
            loads = sustained([each.handle for each in members], [each.flops for each in members], wanted_s)
            for number, result in loads if members else ():
                results[number], member = result, members[number]
                if not result.end:
                    yield Staged(_progress(member.row, result))
                    if ran_s(result) - member.saved_s >= every_s:
                        member.saved_s = ran_s(result)
                        steps.save(member.so_far(result))
            for number, member in enumerate(members):
                steps.save(member.so_far(results[number]))
            for number, member in enumerate(members):
                yield Staged("verifying")
                row = member.completed(results[number])
                del results[number]
                yield steps.finished(row)
        except NotMeasuredError as error:
            for each in members:
                note = f"not run for longer: {error.reason}"
                yield steps.finished(replace(each.row, notes=(*each.row.notes, note), supersedes=True))
        except KeyboardInterrupt:
            for number, result in results.items():
                yield steps.finished(members[number].so_far(result))
            raise


def _prepared(case: Case, row: Row, worker: Worker, steps: Steps) -> tuple[Handle, int]:
    """A handle that is verified and takes checked batches, and the operations of its problem.

    Raises:
        NotMeasuredError: it cannot be prepared, is not right, or takes none.
    """
    device = steps.devices[case.device] if case.device != HOST else None
    if case.kind == "gemm":
        plain = replace(case, former="", versus=None)
        handle = worker.prepare(plain, device, steps.policy)
        checks = [handle.verify("before").check]
        flops = rates.gemm_of(row).flops
    else:
        probe = replace(case, parameters=winner(row))
        prepared = worker.prepare(probe, device, steps.policy)
        work = trips_for(prepared, LAUNCH_S)
        handle, flops = sized(prepared, work), prepared.prepared.unit.flops * work
        checks = [handle.verify("before").check]
    if not handle.prepared.checked:
        raise NotMeasuredError("unsupported", "its results cannot be compared with the first one's")
    for check in checks:
        if check.verdict == "wrong":
            raise NotMeasuredError("wrong", "; ".join(check.reasons))
    return handle, flops


def _progress(row: Row, result: Sustained) -> str:
    """The latest window, for people."""
    integer = not DTYPES[row.dtype].is_float
    at_s = result.begin_s[-1] + result.length_s[-1]
    said = [f"{at_s:.0f} of {result.wanted_s:.0f} s", rate(result.flops / result.seconds[-1], integer)]
    if power_w := result.power_w[-1]:
        said.append(watts(power_w))
    said.append(f"{result.bits} wrong bits")
    return ", ".join(said)
