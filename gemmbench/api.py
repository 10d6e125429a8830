"""The API: what `import gemmbench` offers, and what the command line is made of.

Keyword arguments are the options of the command line, as `options` declares them. Progress, warnings and
advice go to stderr. Ctrl-C ends a call with KeyboardInterrupt; what was measured until then is saved.
"""

from __future__ import annotations

import inspect
import os
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

from gemmbench import NothingMeasured, UsageError, exports
from gemmbench.charts import load_matplotlib
from gemmbench.doctor import Diagnosis, examine
from gemmbench.doctor.machine import ExaminedMachine, Finding
from gemmbench.exports import records as exported
from gemmbench.ladder import families, order_of
from gemmbench.ladder.own import NAME
from gemmbench.measure.child import Worker, WorkerError
from gemmbench.model import run_file
from gemmbench.model.case import KERNEL
from gemmbench.model.device import DeviceFacts, driver_name
from gemmbench.model.kernel_files import SCAFFOLD, raw
from gemmbench.model.units import clean, reason_of, size
from gemmbench.opencl.drivers import Problem
from gemmbench.regress import check as checking
from gemmbench.regress import compare as comparisons
from gemmbench.regress.check import AAReport, aa_report
from gemmbench.regress.compare import Comparison
from gemmbench.report.table import Columns, html, stdout, table
from gemmbench.stats.rates import view_scope, within_ceiling
from gemmbench.suite import job as jobs
from gemmbench.suite.job import Front, Job, print_message, write_output
from gemmbench.suite.options import CHART, PAGE, AnyText, Options, build, comparing, measuring, names, specs
from gemmbench.suite.selection import every_device, select
from gemmbench.tune import session as tuning
from gemmbench.tune.result import Result
from gemmbench.views import axis_of, run_sheets
from gemmbench.views import show as show_table

if TYPE_CHECKING:
    from rich.console import RenderableType

    Show = Callable[[RenderableType], None]

make_patient = ExaminedMachine  # what `doctor` looks at; replaced in tests
_MANY = 3  # runs, whose charts take a while


@dataclass(frozen=True, repr=False)
class Chart:
    """A chart that a notebook shows."""

    png: bytes

    def _repr_png_(self) -> bytes:
        return self.png


@dataclass(frozen=True, eq=False)
class Run(run_file.Run):
    """A run's header and rows, with the tables, charts and records that are made of them."""

    @property
    def ok(self) -> bool:
        """Whether no result is wrong. What could not be measured is no wrong result: see a row's status."""
        return all(row.status != "wrong" for row in self.rows)

    def show(self, verbose: bool = False) -> None:
        """Print the command's table on stdout, or all tables of a loaded run. `verbose` adds each row."""
        stdout().print(self.table(verbose))

    def select(self, kernels: Any = None, sizes: Any = None, scope: str | None = None) -> Run:
        """A copy of the run with only some of its GEMMs, and the scope that its tables show.

        Args:
            kernels: names of kernels and libraries, or groups of them; a list, or text with commas.
            sizes: sizes of a sweep; a number, a list, or text with commas.
            scope: kernel, device, host or all; without it, that of the whole run.

        Raises:
            UsageError: nothing of that was measured, or the run is not a sweep.
        """
        gemms = [row for row in self.rows if row.kind == "gemm"]
        if kernels is not None:
            measured = names.choose_measured(
                _text(kernels), tuple(dict.fromkeys(row.variant for row in gemms))
            )
            gemms = [row for row in gemms if row.variant in measured]
        if sizes is not None:
            axis, wanted = axis_of(self), names.listed_sizes(_text(sizes))
            if axis is None:
                raise UsageError(f"--sizes needs a sweep, and {self.path or 'this run'} is not a sweep")
            lengths = sorted({getattr(row.problem, axis) for row in gemms if row.problem})
            if missing := [str(size) for size in wanted if size not in lengths]:
                there = ", ".join(map(str, lengths))
                raise UsageError(f"--sizes {', '.join(missing)} was not measured; there are {there}")
            gemms = [row for row in gemms if getattr(row.problem, axis) in wanted]
        named = tuple(dict.fromkeys(row.variant for row in gemms)) if kernels else self.header.named
        header = replace(self.header, scope=scope or view_scope(self), named=named, more_kernels=0)
        chosen = {id(row) for row in gemms}
        rows = tuple(row for row in self.rows if row.kind != "gemm" or id(row) in chosen)
        return Run(header, rows, self.path, self.whole or self)

    def table(self, verbose: bool = False) -> RenderableType:
        """What `show` prints, for rich."""
        return show_table(self, order_of(self), verbose)

    def __repr__(self) -> str:
        counts = Counter(row.status for row in self.rows)
        rows = ", ".join(f"{count} {status}" for status, count in counts.items()) or "no rows"
        devices = dict.fromkeys(device.title for device in self.header.devices)
        return clean(f"<gemmbench.Run {self.header.view}: {rows}; {', '.join(devices) or 'no device'}>")

    def _repr_html_(self) -> str:
        """The tables of `show`, for a notebook."""
        return html(run_sheets(self, order_of(self))) or escape(repr(self))

    def plot(self, path: str | Path | None = None, kind: str | None = None) -> Chart | None:
        """Draw a chart of the run to a file, or return it for a notebook.

        Args:
            path: a .png, .svg or .pdf file; it is replaced. Without it, the chart is returned.
            kind: one of ``gemmbench plot --kind list``; without it, what suits the run.

        Raises:
            UsageError: there is nothing to draw, no such kind, or the file cannot be written.
        """
        load_matplotlib()
        if path is None:
            from gemmbench import chart_views  # matplotlib takes a second to import

            return Chart(chart_views.png([self], kind or chart_views.default_kind(self), families([self])))
        path = Path(path)
        CHART.check("--plot", path)
        draw_runs([self], kind, path)
        return None

    def report(self, path: str | Path, **values: Any) -> None:
        """Write a page with the run's tables and charts, as ``gemmbench report`` does of saved runs.

        Args:
            path: an .html file; it is replaced.
            values: ``title``, ``charts`` and ``threshold``, as of `gemmbench.report`.

        Raises:
            UsageError: the run has no rows, an option cannot be used, or the file cannot be written.
        """
        report(self, out=path, **values)

    columns: ClassVar[Mapping[str, str]] = exported.TYPES
    """The columns of flat records and their types, in Arrow's words: ``string``, ``int64``, ``float64``."""

    def records(self, flat: bool = False) -> list[dict[str, Any]]:
        """A plain dictionary for each row: what ``show --format json`` prints, rates and samples included.

        Args:
            flat: what ``show --format csv`` prints instead: in every row all of `columns`, each a value of
                its type or None, for data frames and Parquet.
        """
        return exported.to_flat(self) if flat else exported.to_records(self)

    def text(self, format: str, repetitions: bool = False) -> str:
        """The run as text, as ``show --format`` prints it.

        With `repetitions`, the format ``google-benchmark`` has every batch. Raise `UsageError` for another
        format, and for an unknown one.
        """
        if repetitions:
            if format != "google-benchmark":
                raise UsageError(f"--repetitions needs --format google-benchmark, not {format}")
            return exports.google_benchmark(self, repetitions)
        if format not in exports.FORMATS:
            raise UsageError(f"unknown format {format!r}; there are {', '.join(exports.FORMATS)}")
        return exports.FORMATS[format](self, order_of(self))

    def export(self, path: str | Path, format: str, repetitions: bool = False) -> None:
        """Write what `text` returns to a file, replacing it, as ``show --format FORMAT --out FILE`` does.

        Raise `UsageError` as `text` does, or if the file is the run's own or cannot be written.
        """
        write_output(Path(path), self.text(format, repetitions), _paths([self]))

    def check_measured(self) -> None:
        """Raise `NothingMeasured`, with the run, if it has rows on devices but none with status ok.

        If such rows include GEMMs, only GEMMs count. A run with rows of the host alone passes.
        """
        jobs.check_measured(self)


def _text(value: Any) -> str:
    return AnyText().convert(value, None, None)


_Function = TypeVar("_Function", bound=Callable[..., Any])


def _shown(run: run_file.Run) -> Run:
    return Run(run.header, run.rows, run.path)


def _takes(kind: type[Options]) -> Callable[[_Function], _Function]:
    """A decorator that shows the options of a class in a function's signature and docstring."""

    def decorate(function: _Function) -> _Function:
        signature = inspect.signature(function)
        own = [each for each in signature.parameters.values() if each.kind is not each.VAR_KEYWORD]
        listed = {name: both for name, both in specs(kind).items() if not both[0].shell}
        only = inspect.Parameter.KEYWORD_ONLY
        keywords = [
            inspect.Parameter(name, only, default=each.default, annotation=spec.accepted or each.type)
            for name, (spec, each) in listed.items()
        ]
        function.__signature__ = signature.replace(parameters=[*own, *keywords])  # type: ignore[attr-defined]  # inspect reads it, mypy does not know it
        lines = [f"    {name}: {spec.help}" for name, (spec, _) in listed.items()]
        function.__doc__ = "\n".join([inspect.getdoc(function) or "", "", "Options:", *lines])
        return function

    return decorate


def _command(kind: type[measuring.MeasurementOptions]) -> Callable[..., Run]:
    """The API function of a measuring command: it measures, draws, reports and returns the run."""

    def measure(**values: Any) -> Run:
        return _shown(_returned(jobs.Measurement(build(kind, values))).run)

    measure.__name__ = measure.__qualname__ = kind.command.replace("-", "_")
    measure.__doc__ = kind.help
    return _takes(kind)(measure)


peak = _command(measuring.PeakOptions)
square = _command(measuring.SquareOptions)
sweep_k = _command(measuring.SweepKOptions)
workloads = _command(measuring.WorkloadsOptions)
gemm = _command(measuring.GemmOptions)


def schema(name: str) -> dict[str, Any]:
    """The JSON Schema of a saved run's ``header`` (line 1), a ``row``, or ``records``; else `UsageError`."""
    if name not in exported.NAMES:
        raise UsageError(f"unknown schema {name!r}; there are {', '.join(exported.NAMES)}")
    return exported.build_schema(name)


class Devices(list[DeviceFacts]):
    """A list that a notebook shows as a table."""

    def _repr_html_(self) -> str:
        """A table of the devices, for a notebook."""
        columns: Columns[DeviceFacts] = {
            "name": lambda device: device.label,
            "driver": driver_name,
            "type": lambda device: clean(device.type),
            "compute units": lambda device: str(device.compute_units),
            "memory": lambda device: size(device.global_mem_bytes),
        }
        left = ("device", "name", "driver", "type")
        return html([table(self, {"device": lambda device: str(device.index)}, columns, left=left)])


def devices() -> Devices:
    """Every OpenCL device, in the order of ``--device``, from a child process. `UsageError` without any."""
    with Worker() as worker:
        return Devices(every_device(worker)[0])


@_takes(comparing.DoctorOptions)
def doctor(**values: Any) -> list[Finding]:
    """Find what slows this machine down, and how to fix it: ``gemmbench doctor``. It changes nothing.

    Takes half a second and the time to list the devices. Each finding has the ``problem``, the ``fix``, its
    ``command``, and what was ``seen``. Raise `UsageError` if there is no such device.
    """
    return list(run_doctor(build(comparing.DoctorOptions, values).device)[0].findings)


def run_doctor(selector: str) -> tuple[Diagnosis, ExaminedMachine]:
    """Run every check of doctor: its findings, and the examined machine.

    If no process can list the devices, the machine holds the reason. If that of the variable GEMMBENCH_DEVICE
    is missing, the first finding says so. `UsageError` if another selector matches no device.
    """
    trouble = missing = ""
    listed: tuple[DeviceFacts, ...] = ()
    chosen: tuple[DeviceFacts, ...] = ()
    broken: tuple[Problem, ...] = ()
    with Worker() as worker:
        try:
            listed, _ = worker.devices()
            chosen = select(listed, selector) if listed else ()
            broken = tuple(problem for device in chosen if (problem := worker.open(device)))
        except WorkerError as error:
            trouble = str(error)
        except UsageError as error:
            if selector != os.environ.get(measuring.DEVICE_VARIABLE):
                raise
            missing = str(error)
    problems = (*worker.problems, *broken)
    machine = make_patient(devices=listed, chosen=chosen, trouble=trouble, problems=problems)
    report = examine(machine)
    if missing:
        finding = Finding(
            f"{measuring.DEVICE_VARIABLE}: {missing}.", "Correct the variable", "gemmbench devices"
        )
        report = replace(report, findings=(finding, *report.findings))
    return report, machine


def load(path: str | Path) -> Run:
    """Read a saved run, without rows that were measured again later.

    A row whose rate exceeds its device's theoretical peak gets the status wrong. Raise `UsageError`, which
    names file, line and field, if the file cannot be read.
    """
    run = run_file.load(path)
    # A row above what its device can do: the file was edited, or is of a version that did not know.
    return _shown(replace(run, rows=tuple(within_ceiling(row, run.device(row)) for row in run.rows)))


def run(job: Job, show: Show | None = None) -> int:
    """Run a command, and return its exit status. With `show`, print what the command line prints."""
    with _showing_run():
        return jobs.run_job(job, _front(show))


def _front(show: Show | None = None) -> Front:
    return Front(draw_subject, write_report, _as_asked, show)


_Job = TypeVar("_Job", bound=Job)


def _returned(job: _Job) -> _Job:
    if run(job) == jobs.INTERRUPTED:
        raise KeyboardInterrupt
    return job


@contextmanager
def _showing_run() -> Iterator[None]:
    """Give a `NothingMeasured` a run that can show itself."""
    try:
        yield
    except NothingMeasured as error:
        error.run = error.run and _shown(error.run)
        raise


def _as_asked(run: run_file.Run, options: Any) -> RenderableType:
    return render_run(_shown(run), getattr(options, "format", "table"), bool(options.verbose), options.quiet)


def render_run(
    run: Run, format: str, verbose: bool, quiet: bool = False, repetitions: bool = False
) -> RenderableType:
    """A run as text, or its tables for the format `table`; print on stderr how many rows are excluded."""
    if format not in exports.FORMATS and not repetitions:
        return run.table(verbose)
    if sentence := exports.left_out(run, format):
        print_message(sentence, quiet)
    return run.text(format, repetitions)


def draw_subject(subject: run_file.Run | Comparison, kind: str | None, path: Path) -> None:
    """Draw a chart of a run or a comparison; `UsageError` if that fails."""
    from gemmbench import chart_views  # matplotlib takes a second to import

    if isinstance(subject, Comparison):
        from gemmbench.charts import pane

        pane.draw_panes(lambda: chart_views.ratios(subject), path, "compared rows")
    else:
        draw_runs([subject], kind, path)


def draw_runs(runs: Sequence[run_file.Run], kind: str | None, path: Path) -> None:
    """Draw runs in one chart; `UsageError` if that fails."""
    from gemmbench import chart_views

    chart_views.draw_kind(runs, kind or chart_views.default_kind(runs[0]), path, families(runs))


Source = run_file.Run | str | Path


@_takes(comparing.CompareOptions)
def compare(baseline: Source | Iterable[Source], new: Source | Iterable[Source], **values: Any) -> Comparison:
    """Compare runs with baseline runs, and draw the changes if asked: ``gemmbench compare``.

    Args:
        baseline: a run or its file, or several, which are pooled.
        new: a run or its file, or several.

    Raises:
        UsageError: an option, or a file, cannot be used.
    """
    job = comparison_job(baseline, new, build(comparing.CompareOptions, values))
    job.front = _front()
    job.draw(lambda _: None)
    return job.comparison


def comparison_job(
    baseline: Source | Iterable[Source], new: Source | Iterable[Source], chosen: comparing.CompareOptions
) -> checking.ComparisonJob:
    """Compare new runs with baselines. `UsageError` if files or outputs overlap, or are empty."""
    baselines, news = runs_of(baseline), runs_of(new)
    resolved = {path.resolve() for path in _paths(baselines)}
    if same := next((path for path in _paths(news) if path.resolve() in resolved), None):
        raise UsageError(f"{same} is both baseline and new run")
    _check_inputs([*baselines, *news], chosen)
    return checking.ComparisonJob(chosen, comparisons.compare(baselines, news, chosen.rules))


def runs_of(sources: Source | Iterable[Source]) -> list[run_file.Run]:
    """Runs as they are, files loaded, each file once."""
    if isinstance(sources, (run_file.Run, str, Path)):
        sources = (sources,)
    return [source if isinstance(source, run_file.Run) else load(source) for source in dict.fromkeys(sources)]


def _paths(runs: Iterable[run_file.Run]) -> list[Path]:
    return [Path(run.path) for run in runs if run.path]


def _check_inputs(runs: Sequence[run_file.Run], chosen: Options) -> None:
    names.check_overwriting(chosen.outputs, [("", path) for path in _paths(runs)])
    for run in runs:
        if not run.rows:
            raise UsageError(f"{run.path} has no rows to compare")


@_takes(comparing.CheckOptions)
def check(*baselines: Source, **values: Any) -> Comparison | AAReport:
    """Measure a baseline run's cases again, compare, draw and report: ``gemmbench check``.

    Args:
        baselines: runs or their files, which are pooled.

    Returns:
        The comparison, also if rows are slower; with ``aa=``, how far unchanged rows differ from run to run.

    Raises:
        KeyboardInterrupt: Ctrl-C; the rows so far are saved.
        NothingMeasured: no case gave a result, or nothing could be compared.
        UsageError: an option, a file or a device cannot be used.
    """
    job = _returned(check_job(baselines, build(comparing.CheckOptions, values)))
    if job.options.aa:
        with _showing_run():
            job.check_repeated()
        return aa_report([job.run], job.options.rules)
    return job.comparison


def check_job(
    baselines: Iterable[Source], chosen: comparing.CheckOptions, command: Sequence[str] = ()
) -> checking.CheckJob:
    """Prepare `gemmbench check`. `command` is for the header, by default that of the options."""
    runs = runs_of(baselines)
    _check_inputs(runs, chosen)
    return checking.CheckJob(chosen, runs, command)


@_takes(comparing.ReportOptions)
def report(*runs: Source, **values: Any) -> Path:
    """Write one .html page of several runs, with all that it needs inside, and return its path.

    This is ``gemmbench report``. `runs` are runs, their files, or folders with files. Raise `UsageError` if
    an option, or a file, cannot be used.
    """
    return save_report(runs, build(comparing.ReportOptions, values))


def save_report(sources: Sequence[Source], chosen: comparing.ReportOptions) -> Path:
    """Write a page about runs, files and folders, and return its path.

    The default path is in the current folder: the first source that has a name, with .html. `UsageError` if a
    source is invalid or no run has rows.
    """
    load_matplotlib()
    from gemmbench import chart_views

    every, charts = tuple(chart_views.KINDS), chosen.charts
    known = {"": None, "all": every, "none": ()}
    kinds = known[charts] if charts in known else names.choose_names(charts, every, "kind of chart")
    runs = runs_of([each for source in sources for each in _saved_in(source)])
    if not runs:
        raise UsageError("report takes saved runs: gemmbench report run.jsonl")
    paths = (Path(each.path if isinstance(each, run_file.Run) else each) for each in sources)
    stems = (path.resolve().stem for path in paths)
    if len(runs) > _MANY and kinds != ():
        print_message(f"Drawing the charts of {len(runs)} runs; --charts none leaves them out.")
    path = chosen.out or Path(f"{next(filter(None, stems), 'report')}.html")
    write_report(runs, path, title=chosen.title or "", charts=kinds, rules=chosen.rules)
    return path


def _saved_in(source: Source) -> list[Source]:
    if isinstance(source, run_file.Run) or not Path(source).is_dir():
        return [source]
    files: list[Source] = [*sorted(Path(source).glob("*.jsonl"))]
    if not files:
        raise UsageError(f"{source} has no saved runs: no file in it ends in .jsonl")
    return files


def write_report(runs: Sequence[run_file.Run], path: Path, **wanted: Any) -> None:
    """Write or replace an .html page about runs. `wanted` are arguments of `pages.Wanted`."""
    PAGE.check("--out", path)
    from gemmbench.pages import Wanted, report_html  # matplotlib takes a second to import

    if not any(run.rows for run in runs):
        raise UsageError(f"{', '.join(run.path for run in runs) or 'the run'} has no rows to report")
    write_output(path, report_html(runs, Wanted(**wanted)), _paths(runs))


@_takes(comparing.TuneOptions)
def tune(**values: Any) -> Result:
    """Search a kernel's parameters, save the best if it beats the preset, and return the results.

    Raises:
        KeyboardInterrupt: Ctrl-C; the same call goes on where it was.
        NothingMeasured: no configuration could be measured.
        UsageError: an option, a file or a device cannot be used.
    """
    job = _returned(tuning.Tuning(build(comparing.TuneOptions, values)))
    with _showing_run():
        return job.result()


def new_kernel(path: str | Path) -> Path:
    """Write a new file with a described, working kernel to start from, and return its path.

    As ``gemmbench kernels --new``. `UsageError` if it does not end in .cl, exists or cannot be written.
    """
    path = Path(path)
    if path.suffix != KERNEL or not NAME.fullmatch(path.stem):
        raise UsageError(f"--new {path}: a kernel is a {KERNEL} file with a plain name, such as mine{KERNEL}")
    names.check_folder("--new", path)
    try:
        with path.open("x", encoding="utf-8") as file:
            file.write(raw(SCAFFOLD))
    except FileExistsError:
        raise UsageError(f"{path} exists already: --new replaces nothing") from None
    except OSError as error:
        raise UsageError(f"cannot write {path}: {reason_of(error)}") from None
    return path
