"""How a command runs: the measuring process, the saved file, progress, Ctrl-C, what is written, exit status.

A `Job` says what is planned, measured and shown. `run_job` does everything else, for all commands.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime, timezone
from pathlib import Path
from typing import Any, ClassVar

from rich.console import Console, RenderableType
from rich.text import Text

from gemmbench import NothingMeasured, UsageError, __version__
from gemmbench.measure.child import BUILD_OPTIONS, Worker
from gemmbench.model import run_file, units
from gemmbench.model.case import Case, Event, Finished, Plan, Policy, Skip
from gemmbench.model.device import BUSY_CORES, HOST, DeviceFacts, HostFacts
from gemmbench.model.row import Row, RowKey, current
from gemmbench.model.run_file import SCHEMA_VERSION, Header, Run, RunFile, RunFileError, essential
from gemmbench.model.units import by_key, clean, count_noun, spelt_out
from gemmbench.opencl.drivers import sentence
from gemmbench.report.notes import WORDS
from gemmbench.report.progress import Progress, row_label
from gemmbench.report.table import stdout
from gemmbench.suite import session
from gemmbench.suite.cached import CachedBursts, CachedPeaks, TunedPresets
from gemmbench.suite.options import command_line
from gemmbench.suite.options.measuring import GemmCommandOptions, MeasurementOptions
from gemmbench.suite.options.names import check_overwriting
from gemmbench.suite.plan import count_more, named_in, plan_command
from gemmbench.suite.selection import opened_devices

WRONG, INCONCLUSIVE, INTERRUPTED = 1, 3, 130  # exit statuses
Tell = Callable[[str], None]  # prints a line on stderr

_CROWD = 8  # lines of a chart: what a kernel adds to the one before is hard to see in it
_IGNORED = {
    BUILD_OPTIONS: "it would change how kernels are built",
    "PYOPENCL_CTX": "--device selects the device",
}


@dataclass(frozen=True)
class Front:
    """What the API and the command line bring to a job."""

    draw: Callable[[Any, str | None, Path], None]  # a run or comparison, the kind of chart, the file
    report: Callable[..., None]  # runs, the file, and what `pages.Wanted` takes
    render: Callable[[Run, Any], RenderableType]  # a run as the options say
    show: Callable[[RenderableType], None] | None = None  # prints on stdout; None: a call from Python


class Job:
    """What a command measures and what becomes of it."""

    is_timed: ClassVar[bool] = True  # a busy machine makes its results wrong
    next_step: ClassVar[str] = ""  # what follows the number of saved rows
    tells_partial: ClassVar[bool] = False  # that number is printed after Ctrl-C too
    measures: ClassVar[bool] = True  # else the rows are there already
    times = 1  # how often the plan is measured
    front: Front
    worker: Worker
    header: Header

    def __init__(self, options: Any) -> None:
        self.options = options
        self.plan: Plan = ()
        self.rows: list[Row] = []
        self.file: RunFile | None = None
        self.notes: Sequence[str] = ()
        self.interrupted = False
        self.error: RunFileError | None = None  # a row could not be saved

    def option(self, name: str) -> Any:
        return getattr(self.options, name, None)

    @property
    def chart(self) -> str | None:
        """The kind of chart that --plot draws; None for what suits."""
        kind: str | None = self.options.chart
        return kind

    @property
    def path(self) -> Path | None:
        return self.file.path if self.file else self.option("save")

    @property
    def run(self) -> Run:
        return Run(self.header, tuple(self.rows), str(self.path or ""))

    def prepare(self) -> None:
        """Select devices and plan, with the `worker`. `UsageError` if that is impossible."""
        raise NotImplementedError  # a job that does not measure has none

    def describe_plan(self) -> None:
        """Print what --dry-run shows: cases and skipped rows by device, and their time."""
        devices, policy = self.header.devices, self.header.policy

        def line(step: Case | Skip) -> tuple[int, str]:
            if isinstance(step, Case):
                return step.device, step.label
            row = step.row
            why_not = "cached" if row.status == "ok" else f"{WORDS[row.status]}: {row.reason}"
            return row.device, f"{row_label(row)}: {why_not}"

        lines = by_key(map(line, self.plan))
        for device, labels in lines.items():
            title = "Host" if device == HOST else devices[device].title
            stdout().print(Text("\n  ".join([title, *labels])))
        count = self.times * sum(isinstance(step, Case) for step in self.plan)
        expected = session.estimate(self.plan, devices, policy)
        text = f"{count_noun(count, 'result')}, about {units.age(self.times * expected.seconds)}"
        if expected.over_budget:
            text += f", {self.times * expected.over_budget} probably over budget"
        stdout().print(Text(text))

    def open(self) -> None:
        if save := self.option("save"):
            if self.option("resume"):
                self.file = RunFile.resume(save, self.header)
            else:
                self.file = RunFile.create(save, self.header, self.options.force)

    def close(self) -> None:
        if self.file:
            self.file.close()

    def measure(self, listen: session.Listen) -> None:
        """Measure, add to `rows` and pass each event on."""
        raise NotImplementedError  # a job that does not measure has none

    def conclude(self) -> None:
        """Use what was measured, after the measuring process has ended."""

    def keep(self) -> Iterable[str]:
        """Keep a complete result for other commands, and return messages."""
        return ()

    def rendered(self) -> RenderableType:
        return self.front.render(self.run, self.options)

    def draw(self, tell: Tell) -> None:
        if path := self.option("plot"):
            self.front.draw(self.run, self.chart, path)
            tell(f"Drew {path}.")

    def report(self) -> None:
        self.front.report([self.run], self.options.report)

    def interruption(self) -> str:
        return f"{count_noun(len(self.rows), 'row')} saved in {self.path}{self.next_step}"

    def status(self, tell: Tell) -> int:
        """The exit status of a complete run; `NothingMeasured` without a result."""
        return 0


def run_job(job: Job, front: Front) -> int:
    """Run a command from its plan to its output, and return the exit status.

    Rows are saved as they come. After Ctrl-C the rows so far are shown, and the status is 130. `UsageError`
    if something cannot be used or written, `NothingMeasured` without a result.
    """
    job.front = front
    if job.measures:
        _measure(job)
    return 0 if job.option("dry_run") else _finish(job)


def _measure(job: Job) -> None:
    """Plan and measure, with progress and warnings on stderr."""
    quiet, remarks = bool(job.option("quiet")), job.option("remarks") or ()
    with Worker() as job.worker:
        job.prepare()
        if job.option("dry_run"):
            job.describe_plan()
            for remark in remarks:
                print_message(remark, quiet)
            return
        _warn(job, quiet)
        try:
            job.open()
            with Progress(stderr(), quiet, job.option("verbose") or 0) as progress:
                try:
                    job.measure(progress.handle)
                except KeyboardInterrupt:
                    job.interrupted = True
                except RunFileError as error:  # a full disk, for example: the rows so far are worth showing
                    job.error = error
        finally:
            job.close()
    job.conclude()
    for note in (*remarks, *job.notes):
        print_message(note, quiet)


def _finish(job: Job) -> int:
    """Show, keep and draw what a job has; its exit status."""
    quiet, front = bool(job.option("quiet")), job.front

    def tell(line: str) -> None:
        print_message(line, quiet or front.show is None)

    if job.rows and front.show:
        front.show(job.rendered())
    if job.error:
        raise UsageError(str(job.error))
    if not job.interrupted:
        for message in job.keep():
            print_message(message, quiet)
    if job.path and (job.tells_partial or not job.interrupted):
        tell(f"Saved {count_noun(len(job.rows), 'row')} in {job.path}{job.next_step}.")
    if job.rows:
        job.draw(tell)
        if report := job.option("report"):
            job.report()
            tell(f"Wrote {report}.")
    if job.interrupted:
        print_message(f"gemmbench: interrupted; {job.interruption()}", front.show is None)
        return INTERRUPTED
    return job.status(lambda line: print_message(line, front.show is None))


def _warn(job: Job, quiet: bool) -> None:
    for problem in job.worker.failing:
        print_message(f"{sentence(problem)}.", quiet)
    for name, reason in _IGNORED.items() if job.is_timed else ():
        if os.environ.get(name):
            print_message(f"{name} is ignored: {reason}.", quiet)
    host = job.header.host
    if job.is_timed and host.busy >= BUSY_CORES:
        cores = f"{host.busy:.1f} of {host.cores} cores"
        print_message(f"Other programs keep {cores} busy: rates will be low and noisy.", quiet)


class Measurement(Job):
    """A measuring command: GEMMs, peaks or both, with cached peaks and tuned presets."""

    options: MeasurementOptions

    def prepare(self) -> None:
        """Open the devices, and plan what no cache has."""
        options = self.options
        devices, host = opened_devices(self.worker, options.device)
        self.peaks, self.presets, self.bursts = CachedPeaks(), TunedPresets(), CachedBursts()
        self.resumed: set[RowKey] = set()
        ladder = options if isinstance(options, GemmCommandOptions) else None
        find = self.presets.find if ladder and ladder.tuned else lambda *_: None
        plan = plan_command(options, devices, find)
        if ladder and not ladder.remeasure:
            plan = self.peaks.fill(plan, devices)
        if ladder and not ladder.draws_roofline:  # a bandwidth costs nothing if it is cached
            plan = self.peaks.fill(plan, devices, ("bandwidth",))
            plan = tuple(step for step in plan if isinstance(step, Skip) or step.kind != "bandwidth")
        header = header_of(devices, host, options.policy, command_line(options), options.command)
        if ladder:
            more, named = count_more(ladder, devices, plan), named_in(ladder, plan)
            header = replace(header, scope=ladder.scope or "", named=named, more_kernels=more)
            header = replace(header, left_out=ladder.left_out)
        self.plan, self.header = plan, replace(header, quiet_s=self.bursts.find(devices))

    def measure(self, listen: session.Listen) -> None:
        def add(event: Event) -> None:
            if isinstance(event, Finished):
                self.rows.append(event.row)
                self.resumed |= {event.row.key} if event.resumed else set()
            listen(event)

        known_s, devices, policy = self.header.quiet_s, self.header.devices, self.header.policy
        session.drive(session.run_plan(self.plan, devices, policy, self.worker, self.file, known_s), add)

    def conclude(self) -> None:
        self.rows = list(current(self.rows, self.header.quiet_s))
        self.peaks.keep(self.run, self.resumed)
        self.bursts.keep(self.run)
        self.notes = (*self.peaks.notes, *self.presets.notes, *self.bursts.notes)

    def draw(self, tell: Tell) -> None:
        super().draw(tell)
        save, is_crowded = self.options.save, len({row.title for row in self.rows}) > _CROWD
        if self.options.plot and save and self.options.chart is None and is_crowded:
            tell(f"gemmbench plot {save} --kind ladder shows what each kernel gains.")

    def interruption(self) -> str:
        if self.options.save:
            return f"{super().interruption()}; the same command with --resume continues"
        return "nothing was saved (--save FILE keeps rows as they come)"

    def status(self, tell: Tell) -> int:
        if any(row.status == "wrong" for row in self.rows):
            return WRONG
        check_measured(self.run)
        return 0


def check_measured(run: Run) -> None:
    """`NothingMeasured` if no GEMM (or else no row) on a device is ok."""
    on_device = [row for row in run.rows if row.device >= 0]
    asked = [row for row in on_device if row.kind == "gemm"] or on_device
    if asked and all(row.status != "ok" for row in asked):
        first = asked[0]
        what = clean(f"{first.variant} {first.dtype}: {first.status}: {first.reason}")
        raise NothingMeasured(f"nothing was measured on the device: {what}", run)


def header_of(
    devices: Sequence[DeviceFacts],
    host: HostFacts,
    policy: Policy,
    command: Sequence[str],
    view: str = "",
    scope: str = "",
) -> Header:
    """The header of a run that starts now, without local paths."""
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


class _Messages(Console):
    def on_broken_pipe(self) -> None:
        """Discard further messages if nobody reads them: rich would end the process."""
        with suppress(OSError, ValueError):
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stderr.fileno())


def stderr() -> Console:
    """Where progress goes."""
    terminal = sys.stderr is not None and sys.stderr.isatty()
    return _Messages(stderr=True, force_terminal=terminal, highlight=False, markup=False, emoji=False)


def print_message(sentence: str, quiet: bool = False) -> None:
    """Print a line on stderr, unless `quiet`, wrapped on a terminal."""
    if not quiet:
        console = stderr()
        text = units.wrap(sentence, console.width) if console.is_terminal else sentence
        console.print(text, soft_wrap=True)


def write_output(path: Path, output: RenderableType, inputs: Sequence[Path] = ()) -> None:
    """Replace a file by text or plain tables in one step, so that no reader sees half of it.

    `UsageError` if it is one of the inputs or cannot be written.
    """
    if not isinstance(output, str):
        console = stdout(plain=True)
        with console.capture() as capture:
            console.print(output)
        output = "\n".join(line.rstrip(" ") for line in capture.get().split("\n"))
    check_overwriting([("--out", path)], [("", other) for other in inputs])
    try:
        run_file.replace_file(path, output.encode())
    except OSError as error:
        raise UsageError(f"cannot write {path}: {units.reason_of(error)}") from None
