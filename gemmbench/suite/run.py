"""One run from its request to its saved rows: select devices, plan, use cached peaks, measure, save."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from datetime import datetime, timezone
from pathlib import Path

from gemmbench import UsageError, __version__
from gemmbench.measure.child import Maker, Worker
from gemmbench.model.case import Event, Finished, Plan, Policy, Skip
from gemmbench.model.device import DeviceFacts, HostFacts
from gemmbench.model.row import Row, RowKey, current
from gemmbench.model.run_file import SCHEMA_VERSION, Header, Run, RunFile, RunFileError, essential
from gemmbench.model.units import spelt_out
from gemmbench.opencl.drivers import Problem, no_device_message, sentence
from gemmbench.options import command_line
from gemmbench.options.measuring import GemmCommandOptions, MeasurementOptions
from gemmbench.plan import leaves_open, select
from gemmbench.suite import session
from gemmbench.suite.cached import CachedBursts, CachedPeaks, TunedPresets

Listen = Callable[[Event], None]


@dataclass
class Outcome:
    """What was measured, and how it ended."""

    run: Run
    interrupted: bool = False
    error: RunFileError | None = None  # a row could not be saved
    notes: tuple[str, ...] = ()  # about files in the user's cache folder that could not be used


@dataclass
class Measurement:
    """What a command measures on this machine, ready to run."""

    options: MeasurementOptions
    header: Header
    plan: Plan
    peaks: CachedPeaks
    presets: TunedPresets
    bursts: CachedBursts
    worker: Worker

    def run(self, listen: Listen = lambda _: None) -> Outcome:
        """Measure the plan, and pass each event to `listen`. Rows are saved if the options name a file.

        A file that exists is continued with `resume`, emptied with `force`, or else refused. Ctrl-C or a
        write error ends the run, and the outcome holds the rows so far. So does a resumed file with rows of
        other kernel sources. New peaks are cached. Raise `RunFileError` if the file cannot be opened.
        """
        header, options = self.header, self.options
        outcome = Outcome(Run(header, (), str(options.save or "")))
        rows: list[Row] = []
        resumed: set[RowKey] = set()
        file = None
        if save := options.save:
            resume = options.resume
            file = RunFile.resume(save, header) if resume else RunFile.create(save, header, options.force)
        try:
            steps = session.run(self.plan, header.devices, header.policy, self.worker, file, header.quiet_s)
            with closing(steps) as events:
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
        outcome.run = replace(outcome.run, rows=current(rows, header.quiet_s))
        self.peaks.keep(outcome.run, resumed)
        self.bursts.keep(outcome.run)
        outcome.notes = (*self.peaks.notes, *self.presets.notes, *self.bursts.notes)
        return outcome


@contextmanager
def prepared(options: MeasurementOptions, make_machine: Maker) -> Iterator[Measurement]:
    """Start a worker process, select devices and make the plan. Yield what is ready to run.

    Commands with GEMMs use cached peaks and tuned presets, unless their options forbid it. The process lives
    as long as the context. Raise `UsageError` if no device matches or the plan cannot be made.
    """
    with Worker(make_machine) as worker:
        devices, host = opened_devices(worker, options.device)
        peaks, presets, bursts = CachedPeaks(), TunedPresets(), CachedBursts()
        ladder = options if isinstance(options, GemmCommandOptions) else None
        plan = options.plan(devices, presets.find if ladder and ladder.tuned else lambda *_: None)
        if ladder and not ladder.remeasure:
            plan = peaks.fill(plan, devices)
        if ladder and not ladder.draws_roofline:  # a bandwidth costs nothing if it is cached
            plan = peaks.fill(plan, devices, ("bandwidth",))
            plan = tuple(step for step in plan if isinstance(step, Skip) or step.kind != "bandwidth")
        header = header_of(devices, host, options.policy, command_line(options), options.command)
        if ladder:
            more = ladder.more_kernels(devices, plan)
            header = replace(header, scope=ladder.scope or "", named=ladder.named_in(plan), more_kernels=more)
            header = replace(header, left_out=ladder.left_out)
        header = replace(header, quiet_s=bursts.find(devices))
        yield Measurement(options, header, plan, peaks, presets, bursts, worker)


def opened_devices(worker: Worker, selector: str) -> tuple[tuple[DeviceFacts, ...], HostFacts]:
    """The devices that a selector names, each open in the measuring process, and the host.

    If one does not open and the selector names no particular device, the others or another one are used, and
    the problem is added to `Worker.failing`. Otherwise, or if no device matches or opens, raise `UsageError`.
    """
    every, host = every_device(worker)
    problems: dict[int, Problem] = {}
    while True:
        devices = select(every, selector)
        broken = {device.index: problem for device in devices if (problem := worker.open(device))}
        if not broken:
            worker.failing += tuple(problems.values())
            return devices, host
        problems |= broken
        every = tuple(device for device in every if device.index not in broken)
        if not every or not leaves_open(selector):
            raise UsageError(sentence(next(iter(problems.values()))))


def every_device(worker: Worker) -> tuple[tuple[DeviceFacts, ...], HostFacts]:
    """The devices of this machine, and the host; `UsageError` with the command that brings a device."""
    devices, host = worker.devices()
    if not devices:
        raise UsageError(no_device_message(worker.problems))
    return devices, host


def header_of(
    devices: Sequence[DeviceFacts],
    host: HostFacts,
    policy: Policy,
    command: Sequence[str],
    view: str = "",
    scope: str = "",
) -> Header:
    """Build the header of a run that starts now, in UTC.

    Of driver libraries only file names are stored. The command loses options that only say where output goes.
    """
    return Header(
        schema_version=SCHEMA_VERSION,
        gemmbench=__version__,
        command=essential(map(spelt_out, command)),
        started_utc=datetime.now(timezone.utc).isoformat(timespec="seconds"),
        devices=tuple(replace(device, library=Path(device.library).name) for device in devices),
        host=host,
        policy=policy,
        view=view,
        scope=scope,
    )
