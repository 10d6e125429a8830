"""One tuning from its request to the preset that is kept: problems, space, child processes, cache file."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from datetime import datetime, timezone
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from gemmbench import UsageError
from gemmbench.ladder import BY_NAME
from gemmbench.measure.child import Maker, Worker
from gemmbench.model.case import Policy, saved_problem
from gemmbench.model.device import DeviceFacts, HostFacts
from gemmbench.model.problem import Gemm
from gemmbench.model.run_file import TUNE_VIEW, Header, Run, RunFileError
from gemmbench.suite.cached import KeptPresets, Preset, device_key, source, subfolder
from gemmbench.suite.plan import select
from gemmbench.suite.run import every_device, header_of, user_errors
from gemmbench.tune import space as rules
from gemmbench.tune.result import Tell, result

if TYPE_CHECKING:
    from gemmbench.tune.session import Ahead, Task

MakeCaching = Callable[[str], object]  # a machine that keeps what it compiles in a folder


@dataclass(frozen=True)
class Request:
    """What to tune, how long, and where its rows go."""

    variant: str
    problems: Callable[[DeviceFacts], tuple[Gemm, ...]]
    device: str  # as --device takes it
    strategy: str
    seed: int
    budget_s: float
    time_limit_s: float
    builders: int | None  # processes that compile ahead; None: by device
    cache: Path | None  # None: in the user's cache folder
    force: bool  # drop what the cache file holds


@dataclass
class TuningOutcome:
    """What came of it."""

    run: Run
    path: Path  # of the cache file
    interrupted: bool = False
    error: RunFileError | None = None  # a row could not be saved


@dataclass
class Tuning:
    """A request on this machine, ready to run."""

    request: Request
    device: DeviceFacts
    host: HostFacts
    problems: tuple[Gemm, ...]
    space: rules.Space
    worker: Worker
    make_caching: MakeCaching

    def run(self, listen: Tell) -> TuningOutcome:
        """Search and time the best again. Ctrl-C and a full disk end it; its rows so far are in the file.

        Raises:
            RunFileError: the cache file cannot be used; nothing was measured.
        """
        from gemmbench.tune import session
        from gemmbench.tune.session import Cache

        task = self._task()
        path = self.request.cache or _default_cache(task)
        with ExitStack() as held:
            cache = held.enter_context(Cache(path, _header(task, self.host), self.request.force))
            interrupted, error = False, None
            try:
                worker, ahead = self._machinery(held)
                measure = session.measured_by(worker, self.device, listen)
                session.tune(task, measure, cache, listen, ahead)
            except KeyboardInterrupt:
                interrupted = True
            except RunFileError as failure:  # a full disk, for example: the rows so far are worth showing
                error = failure
            return TuningOutcome(cache.run(), path, interrupted, error)

    def keep(self, run: Run) -> list[str]:
        """Keep the winner for every command, if there is one to keep; what to say of it."""
        best, store, task = result(run), KeptPresets(), self._task()
        variant, dtype = task.variant, task.problems[0].dtype
        if not best.is_kept or best.winner is None:
            kept_before = store.find(self.device, variant, dtype)
            return ["What was kept earlier stays in use; --forget drops it."] if kept_before else []
        preset = Preset(
            variant.name,
            dtype,
            source(variant),
            {name: int(value) for name, value in best.winner.items()},
            tuple(map(saved_problem, task.problems)),
            best.overall.median if best.overall else None,
            datetime.now(timezone.utc).isoformat(timespec="seconds"),
        )
        kept = store.keep(self.device, preset)
        where = f"Kept in {store.path(self.device)}; every command takes it from there."
        return [*store.notes, *([where] if kept else [])]

    def _task(self) -> Task:
        from gemmbench.tune.session import Task

        request = self.request
        return Task(
            self.device,
            BY_NAME[request.variant],
            self.problems,
            self.space,
            request.strategy,
            request.seed,
            request.budget_s,
            request.time_limit_s,
        )

    def _machinery(self, held: ExitStack) -> tuple[Worker, Ahead]:
        """The child that measures, and what has others compile ahead of it."""
        count = self.request.builders
        if count is None:
            count = 0 if self.device.type == "cpu" else min(4, (os.cpu_count() or 1) // 2)
        if not count:
            return self.worker, lambda _: None
        from gemmbench.tune.session import Builders

        folder = held.enter_context(tempfile.TemporaryDirectory(ignore_cleanup_errors=True))
        make: Maker = partial(self.make_caching, folder)
        self.worker.stop()
        policy = Policy(time_limit_s=self.request.time_limit_s)
        builders = held.enter_context(Builders(partial(Worker, make), count, self.device, policy))
        return held.enter_context(Worker(make)), builders.want


@contextmanager
def prepared(request: Request, make_machine: Maker, make_caching: MakeCaching) -> Iterator[Tuning]:
    """Select the device and lay out the space; the measuring process lives as long as the context.

    Raises:
        UsageError: there is no such device, or nothing in the space suits it.
    """
    with selected(request.device, make_machine) as (worker, device, host):
        problems = request.problems(device)
        try:
            space = rules.space(BY_NAME[request.variant], device, problems)
        except rules.TuningError as error:
            raise UsageError(str(error)) from None
        yield Tuning(request, device, host, problems, space, worker, make_caching)


@contextmanager
def selected(selector: str, make_machine: Maker) -> Iterator[tuple[Worker, DeviceFacts, HostFacts]]:
    """The one device that is tuned, and the process that measures on it.

    Raises:
        UsageError: there is none, or there are several.
    """
    with Worker(make_machine) as worker, user_errors():
        devices, host = every_device(worker)
        chosen = select(devices, selector)
        if len(chosen) > 1:
            raise UsageError(f"tune takes one --device at a time, not {len(chosen)}")
        yield worker, chosen[0], host


def forget(device: DeviceFacts, variants: Sequence[str], dtypes: Sequence[str]) -> tuple[Preset, ...]:
    """Drop the presets that were kept for a device; those that were there.

    Raises:
        UsageError: the file cannot be written.
    """
    store = KeptPresets()
    gone = store.forget(device, variants, dtypes)
    if store.notes:
        raise UsageError(store.notes[0])
    return gone


def check_tuner() -> None:
    """Find out before anything is measured whether there is a kernel-tuner.

    Raises:
        UsageError: there is none.
    """
    try:
        import gemmbench.tune.search  # noqa: F401  whether it can be imported is the question
    except ImportError as error:
        raise UsageError(f"tune needs kernel-tuner ({error}): pip install gemmbench[tune]") from None


def _header(task: Task, host: HostFacts) -> Header:
    """The same for every call that may go on with a file, but for the time and the host's state."""
    words = ["tune", "--kernel", task.variant.name, "--dtype", task.problems[0].dtype]
    for problem in task.problems:
        words += ["-m", str(problem.m), "-n", str(problem.n), "-k", str(problem.k)]
    return replace(header_of([task.device], host, Policy(), (), TUNE_VIEW), command=tuple(words))


def _default_cache(task: Task) -> Path:
    """A file in the user's cache folder for each device, kernel as it is today, and set of problems."""
    shapes = "_".join(problem.shape for problem in task.problems)
    words = (device_key(task.device), task.variant.name, task.problems[0].dtype, shapes, source(task.variant))
    return subfolder("tuning") / f"{'-'.join(words)}.jsonl"
