"""The options of the commands that compare and report runs, and of `doctor`."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar, TypeVar

import click

from gemmbench import UsageError, ladder
from gemmbench.ladder.own import own_kernel
from gemmbench.ladder.variant import Variant
from gemmbench.measure.child import protocol_of
from gemmbench.model.case import DRIVER, KERNEL, MEMORY_MODES, Policy, checkout_of
from gemmbench.model.device import DeviceFacts
from gemmbench.model.dtypes import GEMM_DTYPES
from gemmbench.model.instrument import PROTOCOL
from gemmbench.model.kernel_files import MARK
from gemmbench.model.problem import Gemm as Problem
from gemmbench.model.row import SCOPES
from gemmbench.options import (
    CHART,
    COMPARISON,
    COUNT,
    FILE,
    INPUT,
    KERNELS,
    LENGTH,
    PAGE,
    PROBLEM,
    SIZE,
    TIMING,
    Options,
    Whole,
    flag,
    hidden,
    measuring,
    names,
    option,
)
from gemmbench.options.rules import DIFFERENCES, Rules
from gemmbench.plan import OwnKernels

# ruff: noqa: RUF009  `option` is `dataclasses.field` with a `Spec`


_INTERLEAVED_S = 2.0  # for each row: a ratio within 2.5 % needs 40 pairs of batches
COMPARISON_FORMATS = ("table", "markdown", "junit", "json", "github")


def _threshold_option(help: str) -> Any:
    more = "'5 %', or 'NAME=10 %' for one kernel; comma-separated.  [default: 10 %]"
    return option(f"{help}. {more}", metavar="PERCENT", group=COMPARISON, common=True)


def _scope_option() -> Any:
    help = "Time to compare. finest: the kernel's, or the host's for host libraries."
    return option(help, click.Choice(("finest", *SCOPES)), "finest", group=COMPARISON)


@dataclass(frozen=True, kw_only=True)
class ComparisonOptions(Options):
    """How runs are compared, and what fails."""

    threshold: str | None = _threshold_option("How much longer a row may take")
    scope: str = _scope_option()
    across: str | None = option(
        f"Compare even if these differ: {', '.join(DIFFERENCES)}; comma-separated.",
        metavar="WHAT",
        names=tuple(DIFFERENCES),
        group=COMPARISON,
    )
    missing: str = option(
        "What to do if a baseline row has no new result.",
        click.Choice(("tell", "fail")),
        "tell",
        shell=True,
        group=COMPARISON,
    )
    fail_on: str | None = option(
        "Fail if a kernel uses different registers, spills or local memory.",
        click.Choice(("resources",)),
        group=COMPARISON,
    )
    strict: bool = flag("Exit 3 if a row is possibly slower.", shell=True, group=COMPARISON, common=True)
    format: str = option(
        f"What to print: {', '.join(COMPARISON_FORMATS)}.",
        click.Choice(COMPARISON_FORMATS),
        "table",
        metavar="FORMAT",
        shell=True,
        common=True,
    )
    write: tuple[str, ...] = option(
        "Also write a file: junit=report.xml; repeatable.",
        default=(),
        many=True,
        metavar="FORMAT=FILE",
        shell=True,
        common=True,
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        _ = self.rules, self.written

    @cached_property
    def rules(self) -> Rules:
        """Parse --threshold, --scope, --across and --fail-on into comparison rules."""
        differences = (
            () if self.across is None else names.choose(self.across, tuple(DIFFERENCES), "difference")
        )
        return Rules(
            thresholds=names.threshold_of(self.threshold),
            scope=None if self.scope == "finest" else self.scope,
            across=frozenset(differences),
            fail_on=frozenset({self.fail_on} if self.fail_on else ()),
        )

    @cached_property
    def written(self) -> tuple[tuple[str, Path], ...]:
        return tuple(names.format_and_file(text, COMPARISON_FORMATS) for text in self.write)

    def check_paths(
        self, runs: Iterable[Path], plot: Path | None, save: Path | None = None, report: Path | None = None
    ) -> None:
        """Raise `UsageError` if an output cannot be written, or would replace an input or another output."""
        names.check_plot_path(plot)
        for _, path in self.written:
            names.check_folder("--write", path)
        outputs = names.given(save=save, plot=plot, report=report)
        outputs += [("--write", path) for _, path in self.written]
        names.check_overwriting(outputs, [("", path) for path in runs])


@dataclass(frozen=True, kw_only=True)
class CompareOptions(ComparisonOptions):
    """The options of ``compare``."""

    command: ClassVar[str] = "compare"

    plot: Path | None = option("Draw the changes.", FILE, metavar=CHART, common=True)
    verbose: bool = flag("Also print unchanged rows.", flags=("-v", "--verbose"), shell=True, common=True)


@dataclass(frozen=True, kw_only=True)
class CheckOptions(ComparisonOptions, measuring.MeasurementOptions):
    """The options of ``check``; None means the baseline's."""

    command: ClassVar[str] = "check"

    aa: int | None = option(
        "Measure run-to-run variation; compare nothing.",
        Whole(1),
        metavar="TIMES",
        group=COMPARISON,
        common=True,
    )
    against: Path | None = option(
        "Alternate each kernel with its old version. PATH is a folder of kernels, a checkout (a folder with "
        "gemmbench/), driver:LIBRARY (another OpenCL driver), or the old .cl of a --kernel-file (for several "
        "files, their folder).",
        FILE,
        metavar="PATH",
        group=COMPARISON,
        common=True,
    )
    kernel_files: tuple[Path, ...] = measuring.kernel_files_option(
        "The current version of your own kernel in the baseline; may be repeated."
    )
    device: str = measuring.device_option("the baseline's, by name")
    resume: bool = hidden(False)
    budget: float | None = measuring.seconds_option(
        "Sampling time for each row.  [default: the baseline's; 2 s with --against]", common=True
    )
    time_limit: float | None = measuring.seconds_option(
        "Stop a row after this time, including builds.  [default: the baseline's; with --budget 60 + 20 x "
        "budget]"
    )
    memory: str | None = option(
        f"How operands reach the device: {', '.join(('auto', *MEMORY_MODES))}.  [default: the baseline's]",
        click.Choice(("auto", *MEMORY_MODES)),
        metavar="MODE",
        group=TIMING,
    )
    cold: bool = flag("Rotate operands past the last-level cache.  [default: the baseline's]", group=TIMING)

    def __post_init__(self) -> None:
        """Validate the options. --aa allows no chart, report, JUnit or GitHub output."""
        super().__post_init__()
        if self.aa:
            formats = ("table", "markdown", "json")
            if odd := {self.format, *(form for form, _ in self.written)} - {*formats}:
                raise UsageError(f"--aa compares nothing: it has no {min(odd)}, but {', '.join(formats)}")
            if self.plot:
                raise UsageError("--aa draws no chart: it compares nothing")
            if self.report:
                raise UsageError("--aa writes no report: it compares nothing")
        if self.against is not None:
            self._check_against(self.against)
        _ = self.own

    def policy_of(self, base: Policy) -> Policy:
        """Return the baseline's policy with the options that were given.

        --against raises a budget below 2 s unless --budget is given. --budget sets the time limit to 60 s +
        20 budgets unless --time-limit is given. --cold and the baseline's cold both count. Energy is measured
        only with --energy.
        """
        budget_s = base.budget_s if self.budget is None else self.budget
        if self.against is not None and self.budget is None:
            budget_s = max(budget_s, _INTERLEAVED_S)
        limit_s = base.time_limit_s if self.budget is None else 60 + 20 * budget_s
        return replace(
            base,
            budget_s=budget_s,
            time_limit_s=limit_s if self.time_limit is None else self.time_limit,
            memory=base.memory if self.memory is None else self.memory,
            cold=self.cold or base.cold,
            energy=self.energy,
        )

    @property
    def outputs(self) -> list[tuple[str, Path]]:
        return [*super().outputs, *(("--write", path) for _, path in self.written)]

    @property
    def kernel_inputs(self) -> list[tuple[str, Path]]:
        """The kernel files as they are, and as they were where --against names them."""
        former = self.against
        old = [former / file.name for file in self.kernel_files] if former else []
        old += [former] if former and former.suffix == KERNEL else []
        return names.kernel_inputs(self.kernel_files) + names.kernel_inputs(old, "--against")

    @cached_property
    def rules(self) -> Rules:
        return replace(
            super().rules, interleaved=self.against is not None, old_kernels=frozenset(self.former_kernels)
        )

    @cached_property
    def own(self) -> OwnKernels:
        """The user's own kernels as they are and, where --against names their old files, as they were."""
        now = {each.name: each for each in names.own_kernels(self.kernel_files)}
        return OwnKernels(now, self.former_kernels)

    @cached_property
    def former_kernels(self) -> dict[str, Variant]:
        """Load the old versions of the user's kernels from --against, by their current names.

        Return none without --against or for another driver. A folder may lack some of the files. Raise
        `UsageError` if --against is one .cl file but there is not exactly one --kernel-file.
        """
        if self.against is None or str(self.against).startswith(DRIVER):
            return {}
        now = [
            (each.name, file)
            for each, file in zip(names.own_kernels(self.kernel_files), self.kernel_files, strict=True)
        ]
        try:
            is_file = self.against.suffix == KERNEL and not self.against.is_dir()
        except OSError:  # too long a name
            raise UsageError(f"--against {self.against} cannot be read") from None
        if is_file:
            if len(now) != 1:
                raise UsageError(
                    f"--against {self.against} is the old version of one kernel: give that one --kernel-file"
                    + (", or name a folder" if now else "")
                )
            return {name: own_kernel(self.against) for name, _ in now}
        old = [(name, self.against / file.name) for name, file in now]
        return {name: own_kernel(file) for name, file in old if file.is_file()}

    def _check_against(self, folder: Path) -> None:
        """Check --against: its path is valid, and neither --aa nor --energy is given.

        Otherwise raise `UsageError`.
        """
        try:
            self._check_former(folder)
        except OSError:  # no permission, too long a name
            raise UsageError(f"--against {folder} cannot be read") from None
        if self.aa:
            raise UsageError("--aa compares nothing: it takes no --against")
        if self.energy:
            raise UsageError("--against interleaves two kernels: it takes no --energy")

    def _check_former(self, folder: Path) -> None:
        """Raise `UsageError` unless --against is usable.

        It may be a driver, a checkout with the current protocol, a kernels folder, or old user kernels. A
        driver's library must exist only if it is given as a path.
        """
        former = str(folder)
        if folder.suffix == KERNEL and self.former_kernels:
            return
        if former.startswith(DRIVER):
            library = former.removeprefix(DRIVER)
            if os.sep in library and not Path(library).is_file():
                raise UsageError(f"--against {folder}: there is no driver {library}")
        elif checkout_of(former):
            if protocol_of(folder) != PROTOCOL:
                raise UsageError(
                    f"--against {folder}: that gemmbench is too old to interleave with; name its folder of "
                    "kernels instead"
                )
        elif not (folder / MARK).is_file() and not self.former_kernels:
            raise UsageError(f"--against {folder} is no folder of kernels: it has no {MARK}")


_Item = TypeVar("_Item")
_LARGE, _HUGE = 1024, 4096  # m = n = k of a search where none is asked for


def _size(help: str, name: str) -> Any:
    return option(help, SIZE, flags=(name,), group=PROBLEM)


@dataclass(frozen=True, kw_only=True)
class TuneOptions(Options):
    """The options of ``tune``."""

    command: ClassVar[str] = "tune"

    kernel: str | None = option(
        "The kernel to tune (see gemmbench kernels).",
        metavar="NAME",
        names=ladder.ORDER,
        group=KERNELS,
        common=True,
    )
    kernel_files: tuple[Path, ...] = measuring.kernel_files_option(
        "Your own kernel, described in its file (see kernels --new)."
    )
    dtype: str | None = option(
        "Data type.  [default: float]", metavar="TYPE", names=GEMM_DTYPES, group=PROBLEM, common=True
    )
    sizes: str | None = option(
        "Comma-separated m = n = k.  [default: 4096 on a graphics card, else 1024]",
        metavar="LIST",
        group=PROBLEM,
        common=True,
    )
    m: int | None = _size("Rows of A and C, for a non-square problem.", "-m")
    n: int | None = _size("Columns of B and C.  [default: m]", "-n")
    k: int | None = _size("Columns of A, rows of B.  [default: m]", "-k")
    trans_a: bool = flag(measuring.TRANS_A, group=PROBLEM)
    trans_b: bool = flag(measuring.TRANS_B, group=PROBLEM)
    batch: int = measuring.batch_option()
    budget: float = measuring.seconds_option(
        "Time for the whole search. Two thirds to search, the rest to retime the best.", 300.0, common=True
    )
    seed: int = option("Seed for the search.", LENGTH, 1, group=TIMING)
    device: str = measuring.device_option()
    cache: Path | None = option(
        "File for all measured configurations. The same command resumes it.  [default: in the user's cache "
        "folder]",
        INPUT,
        metavar="FILE.jsonl",
    )
    force: bool = flag("Discard the measured configurations.")
    time_limit: float = measuring.seconds_option("Stop a configuration after this time.", 30.0)
    builders: int | None = option(
        "Processes that compile ahead.  [default: half the cores, at most 4; none on a CPU device]",
        Whole(0, 8),
        group=TIMING,
    )
    top: int = option("Configurations to show.", SIZE, 10, shell=True, common=True)
    report: Path | None = option("Write a page with all tables.", FILE, metavar=PAGE, common=True)
    dry_run: bool = flag("Show the size of the search space, and stop.", shell=True, common=True)
    forget: bool = flag(
        "Delete the device's tuned parameters; with --kernel or --dtype, only those.", shell=True
    )
    quiet: bool = flag("Print the table only, without progress and advice.", flags=("-q", "--quiet"))
    verbose: int = option(
        "Print a line for every configuration.", COUNT, 0, flags=("-v", "--verbose"), common=True
    )

    def __post_init__(self) -> None:
        """Validate the options. A kernel is required except with --forget."""
        super().__post_init__()
        _ = self.only_dtype
        if self.variant is None and not self.forget:
            raise UsageError("--kernel is missing: which kernel to tune (gemmbench kernels lists them)")
        names.check_report_path(self.report)
        if self.cache:
            names.check_folder("--cache", self.cache)
        outputs = names.given(cache=self.cache, report=self.report)
        names.check_overwriting(outputs, names.kernel_inputs(self.kernel_files))

    @cached_property
    def only_dtype(self) -> str:
        return only(
            names.choose_dtypes("float" if self.dtype is None else self.dtype, GEMM_DTYPES), "--dtype"
        )

    @cached_property
    def variant(self) -> Variant | None:
        """The kernel of --kernel, or the single --kernel-file. None if neither is given."""
        own = {each.name: each for each in names.own_kernels(self.kernel_files)}
        if self.kernel is None:
            return only(tuple(own.values()), "--kernel-file") if own else None
        name = only(names.choose(self.kernel, (*ladder.LADDER, *own), "kernel"), "--kernel")
        return own.get(name) or ladder.BY_NAME[name]

    def problems(self, device: DeviceFacts) -> tuple[Problem, ...]:
        """Return the problems to search: -m, -n, -k, or square problems.

        The default sizes depend on the device. Raise `UsageError` if both are given, -n or -k lacks -m, or
        --batch has neither.
        """
        if self.m is None:
            if self.n is not None or self.k is not None:
                raise UsageError("-n and -k need -m")
            if self.sizes is None and self.batch > 1:
                raise UsageError("--batch says how many problems of a shape: give --sizes or -m too")
            asked = None if self.sizes is None else names.choose_sizes(self.sizes, None, 1)
            return tuple(self._problem(size, size, size) for size in asked or default_sizes(device))
        if self.sizes is not None:
            raise UsageError("--sizes is for square problems and -m for others: choose one")
        return (self._problem(self.m, self.n or self.m, self.k or self.m),)

    def _problem(self, m: int, n: int, k: int) -> Problem:
        return Problem(m, n, k, self.only_dtype, trans_a=self.trans_a, trans_b=self.trans_b, batch=self.batch)


def default_sizes(device: DeviceFacts) -> tuple[int, ...]:
    """What is searched at (m = n = k) where the user asks for no size: enough to keep the device busy."""
    has_card = device.type == "gpu" and not device.unified_memory
    return (_HUGE if has_card else _LARGE,)


def only(chosen: Sequence[_Item], option: str) -> _Item:
    """The one that a tuner takes; `UsageError` if there are several."""
    if len(chosen) > 1:
        raise UsageError(f"tune takes one {option} at a time, not {len(chosen)}")
    return chosen[0]


@dataclass(frozen=True, kw_only=True)
class ReportOptions(Options):
    """The options of ``report``."""

    command: ClassVar[str] = "report"

    out: Path | None = option(
        "The page; replaced if it exists.  [default: the first file or folder's name, .html]",
        FILE,
        flags=("-o", "--out"),
        metavar=PAGE,
        common=True,
    )
    title: str | None = option("Page title.  [default: the devices]", metavar="TEXT", common=True)
    charts: str = option(
        "all, none, or comma-separated kinds (see plot --kind list).  [default: all but time]",
        default="",
        metavar="KINDS",
        common=True,
    )
    threshold: str | None = _threshold_option("Smallest change to report")

    def __post_init__(self) -> None:
        super().__post_init__()
        names.check_report_path(self.out, "--out")
        _ = self.rules

    @cached_property
    def rules(self) -> Rules:
        return Rules(names.threshold_of(self.threshold))


@dataclass(frozen=True, kw_only=True)
class DoctorOptions(Options):
    """Find what slows this machine down and how to fix it.

    Doctor checks clocks, limits, other programs, drivers, numpy's BLAS and NVIDIA boards. It changes nothing
    and measures nothing. The exit status is 0, with or without warnings.
    """

    command: ClassVar[str] = "doctor"

    device: str = measuring.device_option()
    json: bool = flag("Print a JSON object.", shell=True, common=True)
    verbose: bool = flag(
        "Print every check, and what it read.", flags=("-v", "--verbose"), shell=True, common=True
    )


@dataclass(frozen=True, kw_only=True)
class KernelsOptions(Options):
    """The options of ``kernels``."""

    command: ClassVar[str] = "kernels"

    describe: str | None = option(
        "Explain one kernel: idea, tiles, parameters.",
        metavar="NAME",
        names=names.KERNELS,
        group=KERNELS,
        common=True,
    )
    resources: bool = flag("Build kernels and show registers and memory.", group=KERNELS, common=True)
    plot: Path | None = option("With --resources: draw work-group sizes.", FILE, metavar=CHART, common=True)
    new: Path | None = option(
        "Write an example kernel to start from.", FILE, metavar="FILE.cl", group=KERNELS, common=True
    )
    device: str = measuring.device_option()
    kernels: str = measuring.kernels_option(default="all")
    kernel_files: tuple[Path, ...] = measuring.kernel_files_option()
    dtype: str = measuring.dtype_option()
