"""The options of the commands that compare, report, tune and list, and the rules of a comparison."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar, Literal, TypeVar

import click

from gemmbench import UsageError, ladder
from gemmbench.ladder.own import own_kernel
from gemmbench.ladder.variant import Variant
from gemmbench.measure.child import protocol_of
from gemmbench.model.case import DRIVER, KERNEL, Policy, checkout_of
from gemmbench.model.device import DeviceFacts
from gemmbench.model.dtypes import GEMM_DTYPES
from gemmbench.model.instrument import PROTOCOL
from gemmbench.model.kernel_files import MARK
from gemmbench.model.problem import Gemm as Problem
from gemmbench.model.row import SCOPES, Row
from gemmbench.options import (
    CHART,
    COMPARISON,
    COUNT,
    DEVICE,
    FILE,
    KERNELS,
    LENGTH,
    PAGE,
    PROBLEM,
    SIZE,
    TIMING,
    Number,
    Options,
    Output,
    Whole,
    comparison_option,
    flag,
    hidden,
    kernel_option,
    measuring,
    names,
    option,
    problem_option,
    timing_option,
)

# ruff: noqa: RUF009  `option` is `dataclasses.field` with a `Spec`


_INTERLEAVED_S = 2.0  # for each row: a ratio within 2.5 % needs 40 pairs of batches
PATIENCE_S = 60.0  # other programs disturb for seconds at a time, and a job in CI can wait a minute
COMPARISON_FORMATS = ("table", "markdown", "junit", "json", "github")
DEFAULT_THRESHOLD = 0.1
_PERCENT = re.compile(r"\s*([0-9.]+)\s*%\s*")

Kind = Literal["device", "driver", "source", "sampling", "memory"]
DIFFERENCES: dict[Kind, str] = {
    "device": "measure the baseline on this device",
    "driver": "measure the baseline with this driver and as many BLAS threads (OPENBLAS_NUM_THREADS)",
    "source": "check --against interleaves two versions of a kernel",
    "sampling": "give both runs the same --cold",
    "memory": "give both runs the same --memory",
}
"""Differences that make two rows not comparable unless `--across` allows them, and what to do about each."""


@dataclass(frozen=True)
class Rules:
    """How runs are compared. A threshold is how much longer a row may take, as a fraction: 0.1 is 10 %."""

    default: float | None = None  # the threshold of all rows; None: the user gave none
    by_name: Mapping[str, float] = field(default_factory=dict)  # thresholds of single kernels and libraries
    scope: str | None = None  # None: the finest that was measured
    across: frozenset[str] = frozenset()  # of DIFFERENCES
    interleaved: bool = False  # the new run's rows alternated with the baseline's kernels
    fail_on: frozenset[str] = frozenset()  # "resources": other registers, spills or local memory fail
    old_kernels: frozenset[str] = frozenset()  # the variants with an old version; empty: every kernel

    def given_threshold(self, row: Row) -> float | None:
        return self.by_name.get(row.variant, self.default)

    def threshold(self, row: Row) -> float:
        given = self.given_threshold(row)
        return DEFAULT_THRESHOLD if given is None else given

    def has_old_kernel(self, row: Row) -> bool:
        """Whether a row's kernel can have an old version."""
        is_kernel = row.kind == "gemm" and bool(row.source and row.samples)
        return is_kernel and (not self.old_kernels or row.variant in self.old_kernels)


def parse_thresholds(text: str | None) -> tuple[float | None, dict[str, float]]:
    """Parse a --threshold list such as `5 %, register=0.1` into the default and the thresholds by name.

    They are fractions: 5 % is 0.05. The default is None if each part has a name, or if `text` is None. Raise
    `UsageError` unless each is above 0 and below 100 % (below 10,000 % with a percent sign).
    """
    default: float | None = None
    by_name = {}
    for part in text.split(",") if text is not None else ():
        name, equals, word = part.rpartition("=")
        percent = _PERCENT.fullmatch(word)
        try:
            value = float(percent[1]) / 100 if percent else float(word)
        except ValueError:
            raise UsageError(f"--threshold: {word!r} is not a threshold; write '5 %' or 0.05") from None
        if not 0 < value < (100 if percent else 1):
            hint = f"; for {value:g} % write '{value:g} %'" if value >= 1 and not percent else ""
            most = "10,000 %" if percent else "100 %"
            raise UsageError(f"--threshold: a threshold is above 0 and below {most}, not {word}{hint}")
        if equals:
            by_name[name.strip()] = value
        elif default is not None:
            raise UsageError("--threshold: give one threshold for all rows; others need a name (NAME=5%)")
        else:
            default = value
    return default, by_name


def _threshold_option(help: str) -> Any:
    more = "'5 %', or 'NAME=10 %' for one kernel; comma-separated.  [default: 10 %]"
    return comparison_option(f"{help}. {more}", metavar="PERCENT", common=True)


@dataclass(frozen=True, kw_only=True)
class ComparisonOptions(Options):
    """How runs are compared, and what fails."""

    threshold: str | None = _threshold_option("How much longer a row may take")
    scope: str = comparison_option(
        "Which time to compare. finest: the kernel's time, or the host's for host libraries.",
        click.Choice(("finest", *SCOPES)),
        "finest",
    )
    across: str | None = comparison_option(
        f"Compare even if these differ: {', '.join(DIFFERENCES)}; comma-separated. device includes driver "
        "and memory, and shows how fast two devices are.",
        metavar="WHAT",
        names=tuple(DIFFERENCES),
    )
    missing: str = comparison_option(
        "What to do if a baseline row has no new result.", click.Choice(("warn", "fail")), "warn", shell=True
    )
    fail_on: str | None = comparison_option(
        "Fail if a kernel uses different registers, spills or local memory.", click.Choice(("resources",))
    )
    strict: bool = flag(
        "Exit with 3 if a row may be slower, or nobody can tell.", shell=True, group=COMPARISON, common=True
    )
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
        _ = self.rules

    @cached_property
    def rules(self) -> Rules:
        """Rules from --threshold, --scope, --across and --fail-on, cached. `UsageError` if one is invalid."""
        differences = (
            () if self.across is None else names.choose(self.across, tuple(DIFFERENCES), "difference")
        )
        return Rules(
            *parse_thresholds(self.threshold),
            scope=None if self.scope == "finest" else self.scope,
            across=frozenset((*differences, *(("driver", "memory") if "device" in differences else ()))),
            fail_on=frozenset({self.fail_on} if self.fail_on else ()),
        )

    @cached_property
    def written(self) -> tuple[tuple[str, Path], ...]:
        """The formats and files of --write. Raise `UsageError` if one is invalid or cannot be written."""
        pairs = [(form, name) for form, _, name in (text.partition("=") for text in self.write)]
        for text, (form, name) in zip(self.write, pairs, strict=True):
            if not name or form not in COMPARISON_FORMATS:
                formats = ", ".join(COMPARISON_FORMATS)
                raise UsageError(f"--write takes FORMAT=FILE with one of {formats}, not {text!r}")
            names.check_folder("--write", Path(name))
        return tuple((form, Path(name)) for form, name in pairs)

    @property
    def outputs(self) -> list[tuple[str, Path]]:
        return [*super().outputs, *(("--write", path) for _, path in self.written)]


@dataclass(frozen=True, kw_only=True)
class CompareOptions(ComparisonOptions):
    """The options of ``compare``."""

    command: ClassVar[str] = "compare"

    plot: Path | None = option("Draw a chart of the changes.", CHART, common=True)
    verbose: bool = flag("Also print unchanged rows.", flags=("-v", "--verbose"), shell=True, common=True)


@dataclass(frozen=True, kw_only=True)
class CheckOptions(ComparisonOptions, measuring.MeasurementOptions):
    """The options of ``check``; None means the baseline's."""

    command: ClassVar[str] = "check"

    aa: int | None = comparison_option(
        "Measure run-to-run variation; compare nothing.", Whole(1), metavar="TIMES", common=True
    )
    against: Path | None = comparison_option(
        "Alternate each kernel with its old version. PATH is a folder of kernels, or a checkout (a folder "
        "with gemmbench/). It may also be driver:LIBRARY (another OpenCL driver), or the old version "
        "of a --kernel-file. For several files, give their folder.",
        FILE,
        metavar="PATH",
        common=True,
    )
    kernel_files: tuple[Path, ...] = measuring.kernel_files_option(
        "The current source file of a kernel of yours that is in the baseline; may be repeated."
    )
    device: str = measuring.device_option("the baseline's, by name", DEVICE)
    resume: bool = hidden(False)
    budget: float | None = measuring.seconds_option(
        "Sampling time for each row.  [default: the baseline's; 2 s with --against]", common=True
    )
    patience: float | None = timing_option(
        f"Further sampling with --against, for rows that cannot be judged yet.  [default: {PATIENCE_S:g}]",
        Number(0, or_equal=True),
        metavar="SECONDS",
    )
    time_limit: float | None = measuring.seconds_option(
        "Stop a row after this time, including builds.  [default: the baseline's, or 60 + 20 x --budget]"
    )
    memory: str | None = measuring.memory_option("the baseline's")
    cold: bool = flag(f"{measuring.COLD}  [default: the baseline's]", group=TIMING)

    def __post_init__(self) -> None:
        """Raise `UsageError` if --aa has a chart, report, JUnit or GitHub output, or --against is unusable.

        Also load the user's kernels, which may raise too.
        """
        super().__post_init__()
        if self.aa:
            formats = ("table", "markdown", "json")
            if odd := {self.format, *(form for form, _ in self.written)} - {*formats}:
                raise UsageError(f"--aa compares nothing: it has no {min(odd)}, but {', '.join(formats)}")
            if self.plot:
                raise UsageError("--aa draws no chart: it compares nothing")
            if self.report:
                raise UsageError("--aa writes no report: it compares nothing")
        if self.against is None and self.patience is not None:
            raise UsageError("--patience needs --against")
        if self.against is not None:
            try:
                self._check_against(self.against)
            except OSError:  # no permission, too long a name
                raise UsageError(f"--against {self.against} cannot be read") from None
        _ = self.user_kernels

    def policy_of(self, base: Policy) -> Policy:
        """Return the baseline's policy with the options that were given.

        --against raises a sampling budget below 2 s to 2 s unless --budget is given.
        """
        policy = super().policy_of(base)
        if self.against is not None and self.budget is None:
            policy = replace(policy, budget_s=max(policy.budget_s, _INTERLEAVED_S))
        return policy

    @property
    def inputs(self) -> list[tuple[str, Path]]:
        """The kernel files, and their old versions if --against names them."""
        against = self.against
        old = [against / file.name for file in self.kernel_files] if against else []
        old += [against] if against and against.suffix == KERNEL else []
        return super().inputs + names.kernel_inputs(old, "--against")

    @cached_property
    def rules(self) -> Rules:
        return replace(
            super().rules, interleaved=self.against is not None, old_kernels=frozenset(self.old_kernels)
        )

    @cached_property
    def user_kernels(self) -> dict[str, Variant]:
        return {each.name: each for each in names.own_kernels(self.kernel_files)}

    @cached_property
    def old_kernels(self) -> dict[str, Variant]:
        """Load the old versions of the user's kernels from --against, by their current names. Cached.

        Return none without --against or for another driver. Files that a folder lacks are omitted. Raise
        `UsageError` if --against is unreadable, or is one .cl file but there is not exactly one
        --kernel-file.
        """
        if self.against is None or str(self.against).startswith(DRIVER):
            return {}
        try:
            is_file = self.against.suffix == KERNEL and not self.against.is_dir()
        except OSError:  # too long a name
            raise UsageError(f"--against {self.against} cannot be read") from None
        if not is_file:
            files = [self.against / file.name for file in self.kernel_files]
        elif len(self.kernel_files) == 1:
            return {name: own_kernel(self.against) for name in self.user_kernels}
        else:
            raise UsageError(
                f"--against {self.against} is the old version of one kernel: give that one --kernel-file"
                + (", or name a folder" if self.kernel_files else "")
            )
        old = zip(self.user_kernels, files, strict=True)
        return {name: own_kernel(file) for name, file in old if file.is_file()}

    def _check_against(self, path: Path) -> None:
        """Raise `UsageError` unless --against is usable, or with --aa or --energy.

        It may be a driver, a checkout with the current protocol, a kernels folder, or old user kernels. A
        driver's library must exist only if it is given as a path.
        """
        if str(path).startswith(DRIVER):
            library = str(path).removeprefix(DRIVER)
            if not library or (os.sep in library and not Path(library).is_file()):
                raise UsageError(f"--against {path}: there is no driver {library or 'named'}")
        elif path.suffix == KERNEL and self.old_kernels:
            pass
        elif checkout_of(str(path)):
            if protocol_of(path) != PROTOCOL:
                raise UsageError(
                    f"--against {path}: that gemmbench is too old to interleave with; name its folder of "
                    "kernels instead"
                )
        elif not (path / MARK).is_file() and not self.old_kernels:
            lacking = [MARK] if not self.kernel_files else [file.name for file in self.kernel_files]
            why = f"it has no {', '.join(lacking)}" if path.is_dir() else "there is no such folder"
            raise UsageError(f"--against {path} is no folder of kernels: {why}")
        if self.aa:
            raise UsageError("--aa cannot be combined with --against")
        if self.energy:
            raise UsageError("--against cannot be combined with --energy")


_Item = TypeVar("_Item")
_LARGE, _HUGE = 1024, 4096  # m = n = k of a search where none is asked for


@dataclass(frozen=True, kw_only=True)
class TuneOptions(Options):
    """The options of ``tune``."""

    command: ClassVar[str] = "tune"

    kernel: str | None = kernel_option(
        "The kernel to tune (see gemmbench kernels).", metavar="NAME", names=ladder.ORDER, common=True
    )
    kernel_files: tuple[Path, ...] = measuring.kernel_files_option(
        "A file with your own kernel (see kernels --new)."
    )
    dtype: str | None = problem_option(
        "Data type.  [default: float]", metavar="TYPE", names=GEMM_DTYPES, common=True
    )
    sizes: str | None = problem_option(
        "Comma-separated m = n = k.  [default: 4096 on a GPU with its own memory, else 1024]",
        metavar="LIST",
        common=True,
    )
    m: int | None = problem_option("Rows of A and C, for a non-square problem.", SIZE, flags=("-m",))
    n: int | None = problem_option("Columns of B and C.  [default: m]", SIZE, flags=("-n",))
    k: int | None = problem_option("Columns of A, rows of B.  [default: m]", SIZE, flags=("-k",))
    trans_a: bool = flag(measuring.TRANS_A, group=PROBLEM)
    trans_b: bool = flag(measuring.TRANS_B, group=PROBLEM)
    batch: int = measuring.batch_option()
    budget: float = measuring.seconds_option(
        "Time for the whole search. The last 30 % is for measuring the best few again.", 300.0, common=True
    )
    seed: int = timing_option("Seed for the search.", LENGTH, 1)
    device: str = measuring.device_option(several=False)
    cache: Path | None = option(
        "File that holds all measured configurations. The same command resumes the search.  [default: in the "
        "user's cache folder]",
        Output("FILE.jsonl", folder=False),
    )
    force: bool = flag("Discard the measured configurations.")
    time_limit: float = measuring.seconds_option("Stop a configuration after this time.", 30.0)
    builders: int | None = timing_option(
        "Number of processes that compile ahead.  [default: half the cores, at most 4; none on a CPU device]",
        Whole(0, 8),
    )
    top: int = option("Number of configurations to show.", SIZE, 10, shell=True, common=True)
    report: Path | None = option("Write an HTML report with all tables.", PAGE, common=True)
    dry_run: bool = flag("Show the size of the search space, and stop.", shell=True, common=True)
    forget: bool = flag(
        "Delete this device's tuned parameters, or only those for --kernel or --dtype.", shell=True
    )
    quiet: bool = flag("Print only the table, without progress or advice.", flags=("-q", "--quiet"))
    verbose: int = option(
        "Print a line for every configuration.", COUNT, 0, flags=("-v", "--verbose"), common=True
    )

    def __post_init__(self) -> None:
        """Validate the options. A kernel is required except with --forget."""
        super().__post_init__()
        _ = self.only_dtype
        if self.variant is None and not self.forget:
            raise UsageError("--kernel is missing: which kernel to tune (gemmbench kernels lists them)")

    @cached_property
    def only_dtype(self) -> str:
        return only(
            names.choose_dtypes("float" if self.dtype is None else self.dtype, GEMM_DTYPES), "--dtype"
        )

    @cached_property
    def variant(self) -> Variant | None:
        """The kernel of --kernel, or the single --kernel-file. None if neither is given.

        Raise `UsageError` if there are several, or a name is unknown.
        """
        by_name = {each.name: each for each in names.own_kernels(self.kernel_files)}
        if self.kernel is None:
            return only(tuple(by_name.values()), "--kernel-file") if by_name else None
        name = only(names.choose(self.kernel, (*ladder.LADDER, *by_name), "kernel"), "--kernel")
        if by_name and name not in by_name:
            raise UsageError(f"--kernel {name} is none of --kernel-file: give one of these options")
        return by_name.get(name) or ladder.BY_NAME[name]

    def problems(self, device: DeviceFacts) -> tuple[Problem, ...]:
        """Return the problems to search: the one of -m, -n and -k, else square ones of --sizes.

        Without any size it is one of 4096 on a discrete GPU, else of 1024. n and k default to m. Raise
        `UsageError` if -m and --sizes are both given, -n or -k lacks -m, or --batch has neither.
        """
        if self.m is None:
            if self.n is not None or self.k is not None:
                raise UsageError("-n and -k need -m")
            if self.sizes is None and self.batch > 1:
                raise UsageError("--batch says how many problems of a shape: give --sizes or -m too")
            asked = None if self.sizes is None else names.choose_sizes(self.sizes, None, None, 1)
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
        "File to write; replaced if it exists.  [default: the first file or folder's name, with .html]",
        PAGE,
        flags=("-o", "--out"),
        common=True,
    )
    title: str | None = option("Title of the report.  [default: the devices]", metavar="TEXT", common=True)
    charts: str = option(
        "all, none, or comma-separated kinds (see plot --kind list).  [default: all but time]",
        default="",
        metavar="KINDS",
        common=True,
    )
    threshold: str | None = _threshold_option("Smallest change to report")

    def __post_init__(self) -> None:
        super().__post_init__()
        _ = self.rules

    @cached_property
    def rules(self) -> Rules:
        return Rules(*parse_thresholds(self.threshold))


@dataclass(frozen=True, kw_only=True)
class DoctorOptions(Options):
    """The options of ``doctor``."""

    command: ClassVar[str] = "doctor"
    help: ClassVar[str] = """Find what is slowing this machine down and how to fix it.

    Doctor checks clocks, limits, other programs, drivers, numpy's BLAS and NVIDIA boards. It changes nothing
    and measures nothing. The exit status is 0, with or without warnings.
    """

    device: str = measuring.device_option(group=DEVICE)
    json: bool = flag("Print a JSON object.", shell=True, common=True)
    verbose: bool = flag(
        "Print every check, and what it read.", flags=("-v", "--verbose"), shell=True, common=True
    )


@dataclass(frozen=True, kw_only=True)
class KernelsOptions(Options):
    """The options of ``kernels``."""

    command: ClassVar[str] = "kernels"

    describe: str | None = kernel_option(
        "Explain one kernel: idea, tiles, parameters.", metavar="NAME", names=names.KERNELS, common=True
    )
    resources: bool = flag("Build the kernels and show registers and memory.", group=KERNELS, common=True)
    plot: Path | None = option("With --resources: plot work-group sizes.", CHART, common=True)
    new: Path | None = kernel_option(
        "Write an example kernel to start from.", FILE, metavar="FILE.cl", common=True
    )
    device: str = measuring.device_option()
    kernels: str = measuring.kernels_option(default="all")
    kernel_files: tuple[Path, ...] = measuring.kernel_files_option()
    dtype: str = measuring.dtype_option()
