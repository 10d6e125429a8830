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
from gemmbench.model.case import DRIVER, KERNEL, MEMORY_MODES, Policy, checkout_of
from gemmbench.model.device import DeviceFacts
from gemmbench.model.dtypes import GEMM_DTYPES
from gemmbench.model.kernel_files import MARK
from gemmbench.model.problem import Gemm as Problem
from gemmbench.model.row import SCOPES
from gemmbench.options import (
    CHART,
    COUNT,
    FILE,
    INPUT,
    LENGTH,
    PAGE,
    SIZE,
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
    more = "'5 %', or of one kernel 'NAME=10 %'; several with commas.  [default: 10 %]"
    return option(f"{help}: {more}", metavar="PERCENT")


def _scope_option() -> Any:
    help = "Which time is compared; finest: the kernel's, or the host's for what runs there."
    return option(help, click.Choice(("finest", *SCOPES)), "finest")


@dataclass(frozen=True, kw_only=True)
class Comparing(Options):
    """How runs are compared, and what fails."""

    threshold: str | None = _threshold_option("How much longer a row may take")
    scope: str = _scope_option()
    across: str | None = option(
        f"Compare anyway if these differ: {', '.join(DIFFERENCES)}; several with commas.",
        metavar="WHAT",
        names=tuple(DIFFERENCES),
    )
    missing: str = option(
        "Whether a row of the baseline that could not be compared fails.",
        click.Choice(("tell", "fail")),
        "tell",
        shell=True,
    )
    fail_on: str | None = option(
        "What fails at any speed: resources (registers, spills and local memory of each kernel).",
        click.Choice(("resources",)),
    )
    strict: bool = flag("Exit status 3 if a row is possibly slower.", shell=True)
    format: str = option("", click.Choice(COMPARISON_FORMATS), "table", shell=True)
    write: tuple[str, ...] = option(
        "Write a format into a file as well: junit=report.xml; may be repeated.",
        default=(),
        many=True,
        metavar="FORMAT=FILE",
        shell=True,
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        _ = self.rules, self.written

    @cached_property
    def rules(self) -> Rules:
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
        """Find out beforehand that all can be written, and nothing is written over; else `UsageError`."""
        names.check_plot_path(plot)
        for _, path in self.written:
            names.check_folder("--write", path)
        outputs = names.given(save=save, plot=plot, report=report)
        outputs += [("--write", path) for _, path in self.written]
        names.check_overwriting(outputs, [("", path) for path in runs])


@dataclass(frozen=True, kw_only=True)
class Compare(Comparing):
    """The options of ``compare``."""

    command: ClassVar[str] = "compare"

    plot: Path | None = option("Draw the ratios.", FILE, metavar=CHART)
    verbose: bool = flag("Every row, not only the changed ones.", flags=("-v", "--verbose"), shell=True)


@dataclass(frozen=True, kw_only=True)
class Check(Comparing, measuring.Measuring):
    """The options of ``check``; None means the baseline's."""

    command: ClassVar[str] = "check"

    aa: int | None = option(
        "Compare nothing: measure the cases several times, and show how they differ from run to run.",
        Whole(1),
        metavar="TIMES",
    )
    against: Path | None = option(
        "Interleave every kernel with its old version: a folder of kernels, a checkout (a folder with "
        "gemmbench/), driver:LIBRARY (another OpenCL driver), or the old .cl of a --kernel-file (of several: "
        "their folder).",
        FILE,
        metavar="PATH",
    )
    kernel_files: tuple[Path, ...] = measuring.kernel_files_option(
        "A kernel of your own in the baseline, as it is now. May be repeated."
    )
    device: str = measuring.device_option("the baseline's, by name")
    resume: bool = hidden(False)
    budget: float | None = measuring.seconds_option(
        "Sampling time for each row.  [default: the baseline's; 2 s with --against]"
    )
    time_limit: float | None = measuring.seconds_option(
        "Stop a row that takes longer altogether.  [default: the baseline's; with --budget 60 + 20 x budget]"
    )
    memory: str | None = option(
        "How operands reach the device.  [default: as in the baseline]", click.Choice(("auto", *MEMORY_MODES))
    )
    cold: bool = flag("Rotate operands past the last-level cache.  [default: as in the baseline]")

    def __post_init__(self) -> None:
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
        """The baseline's policy with the given options."""
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
            super().rules,
            interleaved=self.against is not None,
            old_kernels=frozenset(self.former_kernels),
        )

    @cached_property
    def own(self) -> OwnKernels:
        """The user's own kernels as they are and, where --against names their old files, as they were."""
        now = {each.name: each for each in names.own_kernels(self.kernel_files)}
        return OwnKernels(now, self.former_kernels)

    @cached_property
    def former_kernels(self) -> dict[str, Variant]:
        """The old versions in ``--against``, by the name that the kernel has now; `UsageError` if unclear."""
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
        try:
            self._check_former(folder)
        except OSError:  # no permission, too long a name
            raise UsageError(f"--against {folder} cannot be read") from None
        if self.aa:
            raise UsageError("--aa compares nothing: it takes no --against")
        if self.energy:
            raise UsageError("--against interleaves two kernels: it takes no --energy")

    def _check_former(self, folder: Path) -> None:
        former = str(folder)
        if folder.suffix == KERNEL and self.former_kernels:
            return
        if former.startswith(DRIVER):
            library = former.removeprefix(DRIVER)
            if os.sep in library and not Path(library).is_file():
                raise UsageError(f"--against {folder}: there is no driver {library}")
        elif checkout_of(former):
            if not (folder / "gemmbench" / "measure" / "instrument.py").is_file():
                raise UsageError(
                    f"--against {folder}: that gemmbench is too old, it has no instrument to interleave "
                    "with; name its folder of kernels instead"
                )
        elif not (folder / MARK).is_file() and not self.former_kernels:
            raise UsageError(f"--against {folder} is no folder of kernels: it has no {MARK}")


_Item = TypeVar("_Item")
_LARGE, _HUGE = 1024, 4096  # m = n = k of a search where none is asked for


@dataclass(frozen=True, kw_only=True)
class Tune(Options):
    """The options of ``tune``."""

    command: ClassVar[str] = "tune"

    kernel: str | None = option(
        "The kernel to tune (gemmbench kernels lists them).", metavar="NAME", names=ladder.ORDER
    )
    kernel_files: tuple[Path, ...] = measuring.kernel_files_option(
        "A kernel of your own, described in the file: see kernels --new."
    )
    dtype: str | None = option("The data type.  [default: float]", metavar="TYPE", names=GEMM_DTYPES)
    sizes: str | None = option(
        "m = n = k; several with commas count alike.  [default: by device]", metavar="LIST"
    )
    m: int | None = option("Rows of A and C, for a problem that is not square.", SIZE, flags=("-m",))
    n: int | None = option("Columns of B and C.  [default: m]", SIZE, flags=("-n",))
    k: int | None = option("Columns of A, rows of B.  [default: m]", SIZE, flags=("-k",))
    trans_a: bool = flag(measuring.TRANS_A)
    trans_b: bool = flag(measuring.TRANS_B)
    batch: int = measuring.batch_option()
    budget: float = measuring.seconds_option(
        "For all of it: two thirds to search, the rest to time the best few again.", 300.0
    )
    seed: int = option("Of the search.", LENGTH, 1)
    device: str = measuring.device_option()
    cache: Path | None = option(
        "Every configuration as it is measured; the same command goes on with it.  [default: in the user's "
        "cache folder]",
        INPUT,
        metavar="FILE.jsonl",
    )
    force: bool = flag("Drop what the cache file holds.")
    time_limit: float = measuring.seconds_option("Stop a configuration that takes longer altogether.", 30.0)
    builders: int | None = option(
        "Processes that compile ahead.  [default: half the cores, 4 at most; none on a CPU, which they would "
        "disturb]",
        Whole(0, 8),
    )
    top: int = option("Configurations shown.", SIZE, 10, shell=True)
    report: Path | None = option("Write a page with all tables.", FILE, metavar=PAGE)
    dry_run: bool = flag("Say how large the space is, and measure nothing.", shell=True)
    forget: bool = flag("Drop what was kept for the device (and --kernel, --dtype).", shell=True)
    quiet: bool = flag("No progress, no advice: the table only.", flags=("-q", "--quiet"))
    verbose: int = option("A line for every configuration.", COUNT, 0, flags=("-v", "--verbose"))

    def __post_init__(self) -> None:
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
        """The kernel; the user's own where no other is named."""
        own = {each.name: each for each in names.own_kernels(self.kernel_files)}
        if self.kernel is None:
            return only(tuple(own.values()), "--kernel-file") if own else None
        name = only(names.choose(self.kernel, (*ladder.LADDER, *own), "kernel"), "--kernel")
        return own.get(name) or ladder.BY_NAME[name]

    def problems(self, device: DeviceFacts) -> tuple[Problem, ...]:
        """What the search measures on a device; `UsageError` if sizes are given twice, or in part."""
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
class Report(Options):
    """The options of ``report``."""

    command: ClassVar[str] = "report"

    out: Path | None = option(
        "The page; it is replaced.  [default: the first file's or folder's name, .html]",
        FILE,
        flags=("-o", "--out"),
        metavar=PAGE,
    )
    title: str | None = option("The title of the page.  [default: the devices]", metavar="TEXT")
    charts: str = option(
        "all, none, or kinds with commas (gemmbench plot --kind list).  [default: all but time]",
        default="",
        metavar="KINDS",
    )
    threshold: str | None = _threshold_option("From which change on a row is possibly slower")

    def __post_init__(self) -> None:
        super().__post_init__()
        names.check_report_path(self.out, "--out")
        _ = self.rules

    @cached_property
    def rules(self) -> Rules:
        return Rules(names.threshold_of(self.threshold))


@dataclass(frozen=True, kw_only=True)
class Doctor(Options):
    """Say what keeps this machine from its ceiling, and what to type.

    Reads the processors' clocks and limits, control groups, the load of others, drivers, numpy's BLAS and, of
    NVIDIA's boards, NVML. Each finding says what it costs where that is known, how it was seen, and the
    command. Nothing is changed and nothing is measured; the exit status is 0 with and without findings.
    """

    command: ClassVar[str] = "doctor"

    device: str = measuring.device_option()
    json: bool = flag("An object with the findings, and with what could not be looked at.", shell=True)


@dataclass(frozen=True, kw_only=True)
class Kernels(Options):
    """The options of ``kernels``."""

    command: ClassVar[str] = "kernels"

    describe: str | None = option(
        "Explain one: idea, tiles, passes, parameters.", metavar="NAME", names=names.KERNELS
    )
    resources: bool = flag(
        "Build every kernel for a device, and show its memory, registers and work-group sizes."
    )
    plot: Path | None = option("For --resources: work-group sizes as a chart.", FILE, metavar=CHART)
    new: Path | None = option(
        "Write a kernel to start from, described and working, into a new file.", FILE, metavar="FILE.cl"
    )
    device: str = measuring.device_option()
    kernels: str = measuring.kernels_option(default="all")
    kernel_files: tuple[Path, ...] = measuring.kernel_files_option()
    dtype: str = measuring.dtype_option()
