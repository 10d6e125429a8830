"""One run from its request to its saved rows: select devices, plan, use cached peaks, measure, save."""

from __future__ import annotations

from collections.abc import Callable, Collection, Generator, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, replace
from datetime import datetime, timezone
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from gemmbench import UsageError, __version__
from gemmbench.gemm.measure import verified_row_after
from gemmbench.ladder import AUTO, BASELINES
from gemmbench.measure.child import Maker, Worker
from gemmbench.measure.sustained import DONE, INTERRUPTED, ended, sustained
from gemmbench.model.case import Case, Event, Finished, Plan, Policy, Staged
from gemmbench.model.device import HOST, DeviceFacts, HostFacts
from gemmbench.model.dtypes import DTYPES
from gemmbench.model.instrument import Handle, NotMeasuredError
from gemmbench.model.row import Row, RowKey, Sustained, current
from gemmbench.model.run_file import SCHEMA_VERSION, Header, Run, RunFile, RunFileError, essential
from gemmbench.model.units import by_key, rate, seconds, spelt_out, watts
from gemmbench.probes.race import LAUNCH_S, sized, trips_for, winner
from gemmbench.report.conditions import in_a_sentence, ran_s
from gemmbench.stats import rates
from gemmbench.stats.panels import alone
from gemmbench.suite import session, together
from gemmbench.suite.auto import Automatic
from gemmbench.suite.cached import KeptMeasurements, KeptPeaks, KeptPresets, keep_devices
from gemmbench.suite.plan import FindTuned, select
from gemmbench.suite.session import Steps
from gemmbench.suite.together import Group

if TYPE_CHECKING:
    from gemmbench.suite.best_shape import Search


MakePlan = Callable[[Sequence[DeviceFacts], FindTuned], Plan]
Listen = Callable[[Event], None]

_ONE_DEVICE = "--concurrent needs two devices or more: --device all, or several with commas"
_NOTHING_TOGETHER = (
    "--concurrent finds nothing that two of the devices run: it takes GEMMs, and of peak "
    "--only memory,transfer"
)
_NOTHING_RAN = "--for ran nothing: no kernel that was measured can run on; name one with --kernel"


@dataclass(frozen=True)
class Request:
    """What to measure, where and how long, and what becomes of the rows."""

    command: tuple[str, ...]  # the command line that asks for this
    plan: MakePlan
    device: str  # as --device takes it
    policy: Policy
    view: str = ""  # that `show` gives the saved run
    scope: str = ""  # what --scope chose
    named: tuple[str, ...] = ()  # the kernels that were asked for by name
    save: Path | None = None
    resume: bool = False
    force: bool = False
    concurrent: bool = False  # each case on each device alone, then on all of them at once
    cached_peaks: bool = False  # peaks that an earlier run has measured are not measured again
    tuned: bool = False  # the tuner's presets are used
    sustain_s: float = 0.0  # the fastest row of each device runs on for so long
    search: Search | None = None  # the best shape of each case is searched for


@dataclass
class Outcome:
    """The rows of a request, and how it ended."""

    run: Run
    interrupted: bool = False
    error: RunFileError | None = None  # a row could not be saved
    notes: tuple[str, ...] = ()  # about files in the user's cache folder that could not be used


@dataclass
class Measurement:
    """A request on this machine, ready to run."""

    request: Request
    header: Header
    plan: Plan
    groups: tuple[Group, ...]  # of cases that run on several devices at once
    peaks: KeptPeaks
    presets: KeptPresets
    worker: Worker
    make_machine: Maker
    asides: tuple[str, ...] = ()  # for the user, on the way

    def run(self, listen: Listen = lambda _: None) -> Outcome:
        """Measure. Ctrl-C and a full disk end the run; the rows before them are in the outcome.

        Raises `RunFileError` if the file cannot be written, or is of another run; nothing was measured.
        """
        header, request, measured = self.header, self.request, KeptMeasurements()
        chooses = any(isinstance(step, Case) and step.variant == AUTO for step in self.plan)
        points = measured.points(header.devices, header.host) if chooses else {}
        automatic = Automatic(points, _preset_finder(self.presets, request.tuned))
        outcome = Outcome(Run(header, (), str(request.save or "")))
        rows: list[Row] = []
        resumed: set[RowKey] = set()
        file = None
        if request.save:
            resume, save = request.resume, request.save
            file = RunFile.resume(save, header) if resume else RunFile.create(save, header, request.force)
        try:
            with closing(self._events(file, automatic)) as events:
                for event in events:
                    if isinstance(event, Finished):
                        rows.append(event.row)
                        if event.resumed:
                            resumed.add(event.row.key)
                    listen(event)
        except KeyboardInterrupt:
            outcome.interrupted = True
        except RunFileError as error:  # a full disk, for example: the rows so far are worth showing
            outcome.error = error
        finally:
            if file:
                file.close()
        outcome.run = replace(outcome.run, rows=current(rows))
        self.peaks.keep(alone(outcome.run), resumed)
        measured.keep(header, automatic.lessons)
        outcome.notes = (*self.peaks.notes, *measured.notes, *self.presets.notes, *self.asides)
        return outcome

    def _events(self, file: RunFile | None, automatic: Automatic) -> Generator[Event, None, None]:
        header, policy = self.header, self.header.policy
        if self.request.search:
            from gemmbench.suite import best_shape

            steps = session.Steps(header.devices, policy, file, automatic)
            yield from best_shape.run(self.plan, steps, self.worker, self.request.search)
            return
        if not self.groups:
            events = session.run(self.plan, header.devices, policy, self.worker, file, automatic)
            yield from self._with_load(events, file, automatic, lambda _: self.worker)
            return
        steps = session.Steps(header.devices, policy, file, automatic)
        another = partial(Worker, self.make_machine)
        with together.crew(self.worker, another, len(header.devices)) as worker_of:
            events = together.run(self.groups, worker_of, steps)
            yield from self._with_load(events, file, automatic, worker_of)

    def _with_load(
        self,
        events: Generator[Event, None, None],
        file: RunFile | None,
        automatic: Automatic,
        worker_of: Callable[[int], Worker],
    ) -> Generator[Event, None, None]:
        """The events of a run, and of the long one that follows it, if it was asked for."""
        rows: list[Row] = []
        for event in events:
            if isinstance(event, Finished):
                rows.append(event.row)
            yield event
        if not self.request.sustain_s:
            return

        header = self.header
        steps = session.Steps(header.devices, header.policy, file, automatic)
        named = self.request.named
        has_run = yield from run(
            self.plan, current(rows), named, steps, worker_of, self.request.sustain_s, bool(self.groups)
        )
        if not has_run:
            self.asides = (_NOTHING_RAN,)


@contextmanager
def prepared(request: Request, make_machine: Maker) -> Iterator[Measurement]:
    """Select devices and plan; the measuring process lives as long as the context.

    Raises `UsageError` if there is no such device, or the plan cannot be made.
    """
    with Worker(make_machine) as worker:
        all_devices, host = every_device(worker)
        devices = select(all_devices, request.device)
        peaks, presets = KeptPeaks(), KeptPresets()
        plan = request.plan(devices, _preset_finder(presets, request.tuned))
        if request.cached_peaks:
            plan = peaks.fill(plan, devices, request.policy.state)
        policy = session.with_budget(request.policy, plan)
        header = header_of(devices, host, policy, request.command, request.view, request.scope)
        header = replace(header, named=request.named)
        groups: tuple[Group, ...] = ()
        if request.concurrent:
            if len(devices) < 2:
                raise UsageError(_ONE_DEVICE)
            groups = together.grouped(plan)
            if not any(group.cases for group in groups):
                raise UsageError(_NOTHING_TOGETHER)
        yield Measurement(request, header, plan, groups, peaks, presets, worker, make_machine)


def every_device(worker: Worker) -> tuple[tuple[DeviceFacts, ...], HostFacts]:
    """The devices of this machine, and the host; `UsageError` with the command that brings a device."""
    from gemmbench.opencl.drivers import no_device_message

    devices, host = worker.devices()
    if not devices:
        raise UsageError(no_device_message())
    keep_devices(devices)
    return devices, host


def header_of(
    devices: Sequence[DeviceFacts],
    host: HostFacts,
    policy: Policy,
    command: Sequence[str],
    view: str = "",
    scope: str = "",
) -> Header:
    """The first line of a run on these devices, in the order of the rows' positions."""
    return Header(
        schema_version=SCHEMA_VERSION,
        gemmbench=__version__,
        command=essential(map(spelt_out, command)),
        started_utc=datetime.now(timezone.utc).isoformat(timespec="seconds"),
        # Whoever is shown the file has no use for the folders of this machine.
        devices=tuple(replace(device, library=Path(device.library).name) for device in devices),
        host=host,
        policy=policy,
        view=view,
        scope=scope,
    )


def _preset_finder(presets: KeptPresets, wanted: bool) -> FindTuned:
    return presets.find if wanted else lambda *_: None


# --- --for: the fastest row of each device runs on ----------------------------------------------------------

_OVER_S = 60.0  # beside the time that was asked for, to build and to verify
_SAVE_S = 300.0  # from one time that the row is saved to the next, while it runs
_MOST_SAVED = 100  # times: longer runs save it less often
_NOT_VERIFIED = "interrupted before it was verified again"


def chosen(plan: Plan, rows: Sequence[Row], named: Collection[str]) -> list[tuple[Case, Row]]:
    """The fastest row of each device, with its case.

    Of GEMMs, if there are any: a kernel, or a library that was named; otherwise of peaks, on random operands.
    """
    cases = {step.key: step for step in plan if isinstance(step, Case)}
    able = [row for row in rows if row.status == "ok" and row.key in cases]
    gemms = [
        row
        for row in able
        if row.kind == "gemm" and row.variant != AUTO and not row.beside
        if row.variant in named or row.variant not in BASELINES
    ]
    peaks = [row for row in able if row.kind == "peak" and row.parameters.get("operands") != "zeros"]

    def speed(row: Row) -> float:
        reached = rates.shown_rate(row, "device") if row.kind == "gemm" else rates.rate(row, "kernel")
        return reached.median if reached else 0.0

    groups = by_key((row.device, row) for row in gemms or peaks)
    best = [max(groups[device], key=speed) for device in sorted(groups)]
    return [(cases[row.key], row) for row in best]


@dataclass
class _Member:
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
            return replace(row, notes=(*row.notes, f"not verified after the long run: {error.reason}"))


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

    Whether there was a row that can run on, or had already. On Ctrl-C, what was measured is in the rows;
    raises `RunFileError` if a row cannot be written.
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
                handle, flops = _prepared(case, row, worker, steps, held)
                members.append(_Member(case, row, worker, handle, flops))
            except NotMeasuredError as error:
                yield steps.finished(_not_run(row, error))
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
                yield steps.finished(_not_run(each.row, error))
        except KeyboardInterrupt:
            for number, result in results.items():
                yield steps.finished(members[number].so_far(result))
            raise


def _not_run(row: Row, error: NotMeasuredError) -> Row:
    return replace(row, notes=(*row.notes, f"not run for longer: {error.reason}"), supersedes=True)


def _prepared(case: Case, row: Row, worker: Worker, steps: Steps, held: ExitStack) -> tuple[Handle, int]:
    """A verified handle that takes checked batches, which `held` releases; its problem's operations."""
    device = steps.devices[case.device] if case.device != HOST else None
    if case.kind == "gemm":
        plain = replace(case, former="", versus=None)
        handle = held.enter_context(worker.prepare(plain, device, steps.policy))
        flops = rates.gemm_of(row).flops
    else:
        probe = replace(case, parameters=winner(row))
        prepared = held.enter_context(worker.prepare(probe, device, steps.policy))
        work = trips_for(prepared, LAUNCH_S)
        handle, flops = sized(prepared, work), prepared.prepared.unit.flops * work
    check = handle.verify("before").check
    if not handle.prepared.checked:
        raise NotMeasuredError("unsupported", "its results cannot be compared with the first one's")
    if check.verdict == "wrong":
        raise NotMeasuredError("wrong", "; ".join(check.reasons))
    return handle, flops


def _progress(row: Row, result: Sustained) -> str:
    integer = not DTYPES[row.dtype].is_float
    at_s = result.begin_s[-1] + result.length_s[-1]
    said = [f"{at_s:.0f} of {result.wanted_s:.0f} s", rate(result.flops / result.seconds[-1], integer)]
    if power_w := result.power_w[-1]:
        said.append(watts(power_w))
    said.append(f"{result.bits} wrong bits")
    return ", ".join(said)
