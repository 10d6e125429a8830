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
from gemmbench.suite import options as o
from gemmbench.suite.options import measuring, names

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


RowVerdict = Literal[
    "slower", "broken", "resources changed", "possibly slower", "missing", "not comparable", "cannot tell",
    "differs", "new", "on another device", "within", "unchanged", "faster",
]  # fmt: skip
VERDICTS: dict[RowVerdict, str] = {  # the worst first
    "slower": "above the limit at which a row fails",
    "broken": "ok in the baseline, and without a correct result now",
    "resources changed": "other registers, spills or local memory, with --fail-on resources",
    "possibly slower": "above the threshold, but not above the limit at which a row fails",
    "missing": "ok in the baseline, and not measured now",
    "not comparable": "something other than the code differs",
    "cannot tell": "too uncertain to compare with the threshold",
    "differs": "above or below the threshold in a single baseline run",
    "new": "the baseline has no time for it",
    "on another device": "with --across device: how fast two devices are, never a regression",
    "within": "within the threshold in a single baseline run",
    "unchanged": "all of its interval is within the threshold",
    "faster": "faster by more than the threshold",
}
ELSEWHERE: RowVerdict = "on another device"
LOST: tuple[RowVerdict, ...] = ("missing", "not comparable")
FAILING: tuple[RowVerdict, ...] = ("slower", "broken", "resources changed")


@dataclass(frozen=True)
class Rules:
    """How runs are compared. A threshold of 0.1 allows 10 % more time."""

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
        is_kernel = row.kind == "gemm" and bool(row.source and row.samples)
        return is_kernel and (not self.old_kernels or row.variant in self.old_kernels)


def parse_thresholds(text: str | None) -> tuple[float | None, dict[str, float]]:
    """Parse a list such as `5 %, register=0.1` into the default (or None) and those by name."""
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
    return o.comparison_option(f"{help}. {more}", metavar="PERCENT", common=True)


@dataclass(frozen=True, kw_only=True)
class ComparisonOptions(o.Options):
    """How runs are compared, and what fails."""

    threshold: str | None = _threshold_option("How much longer a row may take")
    scope: str = o.comparison_option(
        "Which time to compare. finest: the kernel's time, or the host's for host libraries.",
        click.Choice(("finest", *SCOPES)),
        "finest",
    )
    across: str | None = o.comparison_option(
        f"Compare even if these differ: {', '.join(DIFFERENCES)}; comma-separated. device includes driver "
        "and memory, and shows how fast two devices are.",
        metavar="WHAT",
        names=tuple(DIFFERENCES),
    )
    missing: str = o.comparison_option(
        "What to do if a baseline row has no new result.", click.Choice(("warn", "fail")), "warn", shell=True
    )
    fail_on: str | None = o.comparison_option(
        "Fail if a kernel uses different registers, spills or local memory.", click.Choice(("resources",))
    )
    strict: bool = o.flag(
        "Exit with 3 if a row may be slower, or nobody can tell.", shell=True, group=o.COMPARISON, common=True
    )
    format: str = o.option(
        f"What to print: {', '.join(COMPARISON_FORMATS)}.",
        click.Choice(COMPARISON_FORMATS),
        "table",
        metavar="FORMAT",
        shell=True,
        common=True,
    )
    write: tuple[str, ...] = o.option(
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
        differences = (
            () if self.across is None else names.choose_names(self.across, tuple(DIFFERENCES), "difference")
        )
        return Rules(
            *parse_thresholds(self.threshold),
            scope=None if self.scope == "finest" else self.scope,
            across=frozenset((*differences, *(("driver", "memory") if "device" in differences else ()))),
            fail_on=frozenset({self.fail_on} if self.fail_on else ()),
        )

    @cached_property
    def written(self) -> tuple[tuple[str, Path], ...]:
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
    help: ClassVar[str] = """Compare a saved run with baseline runs.

    The last file is the new run and the others are baselines. For several new runs, use `--`: compare
    base1 base2 -- new1 new2. A row fails if it takes over 1.5 times as long on a GPU, or over twice as long
    on a CPU without interference. It also fails if it exceeds a --threshold that you give. Without one, a row
    over 10 % is only possibly slower. With one baseline, it differs. The run fails if at least half of its
    rows take over 1.5 times as long. Exit status: 0 no regression, 1 a regression or a wrong result, 2
    nothing compared, 3 possibly slower or nobody can tell (with --strict).
    """

    plot: Path | None = o.option("Draw a chart of the changes.", o.CHART, common=True)
    verbose: bool = o.flag("Also print unchanged rows.", flags=("-v", "--verbose"), shell=True, common=True)


@dataclass(frozen=True, kw_only=True)
class CheckOptions(ComparisonOptions, measuring.MeasurementOptions):
    """The options of ``check``; None means the baseline's."""

    command: ClassVar[str] = "check"
    help: ClassVar[str] = """Measure a baseline's cases again and compare the results.

    Suspicious rows are measured twice more, alternating with a control row. A row fails if every
    measurement takes over 1.5 times as long, or exceeds a --threshold that you give. --against
    interleaves each kernel with its old version, which finds much smaller changes. It samples rows that
    cannot be judged for up to a minute more. --aa measures how much rows vary from run to run on this
    machine. The file that it saves (--save) makes a good baseline.
    Devices, budget, --cold and --memory default to the baseline's. The exit status is the same as for
    compare.
    """

    aa: int | None = o.comparison_option(
        "Measure run-to-run variation; compare nothing.", o.Whole(1), metavar="TIMES", common=True
    )
    against: Path | None = o.comparison_option(
        "Alternate each kernel with its old version. PATH is a folder of kernels, or a checkout (a folder "
        "with gemmbench/). It may also be driver:LIBRARY (another OpenCL driver), or the old version "
        "of a --kernel-file. For several files, give their folder.",
        o.FILE,
        metavar="PATH",
        common=True,
    )
    kernel_files: tuple[Path, ...] = measuring.kernel_files_option(
        "The current source file of a kernel of yours that is in the baseline; may be repeated."
    )
    device: str = measuring.device_option("the baseline's, by name", o.DEVICE)
    resume: bool = o.hidden(False)
    budget: float | None = measuring.seconds_option(
        "Sampling time for each row.  [default: the baseline's; 2 s with --against]", common=True
    )
    patience: float | None = o.timing_option(
        f"Further sampling with --against, for rows that cannot be judged yet.  [default: {PATIENCE_S:g}]",
        o.Number(0, or_equal=True),
        metavar="SECONDS",
    )
    time_limit: float | None = measuring.seconds_option(
        "Stop a row after this time, including builds.  [default: the baseline's, or 60 + 20 x --budget]"
    )
    memory: str | None = measuring.memory_option("the baseline's")
    cold: bool = o.flag(f"{measuring.COLD}  [default: the baseline's]", group=o.TIMING)

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
        if self.against is None and self.patience is not None:
            raise UsageError("--patience needs --against")
        if self.against is not None:
            try:
                self._check_against(self.against)
            except OSError:  # no permission, too long a name
                raise UsageError(f"--against {self.against} cannot be read") from None
        _ = self.user_kernels

    def policy_of(self, base: Policy) -> Policy:
        """The baseline's policy with the given options; --against samples longer."""
        policy = super().policy_of(base)
        if self.against is not None and self.budget is None:
            policy = replace(policy, budget_s=max(policy.budget_s, _INTERLEAVED_S))
        return policy

    @property
    def inputs(self) -> list[tuple[str, Path]]:
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
        """The old versions of the user's kernels in --against, by current name."""
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
class TuneOptions(o.Options):
    """The options of ``tune``."""

    command: ClassVar[str] = "tune"
    help: ClassVar[str] = """Search for a kernel's best parameters on this device.

    The search takes a random sample of the space, then hill-climbs from the best. It verifies every
    configuration in a separate process, so a crash does not end the search. The best few and the shipped
    preset are then measured again, and the winner alternates with the preset. The winner is saved for all
    commands if it is clearly faster. The same command resumes an interrupted search.
    """

    kernel: str | None = o.kernel_option(
        "The kernel to tune (see gemmbench kernels).", metavar="NAME", names=ladder.ORDER, common=True
    )
    kernel_files: tuple[Path, ...] = measuring.kernel_files_option(
        "A file with your own kernel (see kernels --new)."
    )
    dtype: str | None = o.problem_option(
        "Data type.  [default: float]", metavar="TYPE", names=GEMM_DTYPES, common=True
    )
    sizes: str | None = o.problem_option(
        "Comma-separated m = n = k.  [default: 4096 on a GPU with its own memory, else 1024]",
        metavar="LIST",
        common=True,
    )
    m: int | None = o.problem_option("Rows of A and C, for a non-square problem.", o.SIZE, flags=("-m",))
    n: int | None = o.problem_option("Columns of B and C.  [default: m]", o.SIZE, flags=("-n",))
    k: int | None = o.problem_option("Columns of A, rows of B.  [default: m]", o.SIZE, flags=("-k",))
    trans_a: bool = o.flag(measuring.TRANS_A, group=o.PROBLEM)
    trans_b: bool = o.flag(measuring.TRANS_B, group=o.PROBLEM)
    batch: int = measuring.batch_option()
    budget: float = measuring.seconds_option(
        "Time for the whole search. The last 30 % is for measuring the best few again.", 300.0, common=True
    )
    seed: int = o.timing_option("Seed for the search.", o.LENGTH, 1)
    device: str = measuring.device_option(several=False)
    cache: Path | None = o.option(
        "File that holds all measured configurations. The same command resumes the search.  [default: in the "
        "user's cache folder]",
        o.Output("FILE.jsonl", folder=False),
    )
    force: bool = o.flag("Discard the measured configurations.")
    time_limit: float = measuring.seconds_option("Stop a configuration after this time.", 30.0)
    builders: int | None = o.timing_option(
        "Number of processes that compile ahead.  [default: half the cores, at most 4; none on a CPU device]",
        o.Whole(0, 8),
    )
    top: int = o.option("Number of configurations to show.", o.SIZE, 10, shell=True, common=True)
    report: Path | None = o.option("Write an HTML report with all tables.", o.PAGE, common=True)
    dry_run: bool = o.flag("Show the size of the search space, and stop.", shell=True, common=True)
    forget: bool = o.flag(
        "Delete this device's tuned parameters, or only those for --kernel or --dtype.", shell=True
    )
    quiet: bool = o.flag("Print no progress and no warnings, only the result.", flags=("-q", "--quiet"))
    verbose: int = o.option(
        "Print a line for every configuration.", o.COUNT, 0, flags=("-v", "--verbose"), common=True
    )

    def __post_init__(self) -> None:
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
        by_name = {each.name: each for each in names.own_kernels(self.kernel_files)}
        if self.kernel is None:
            return only(tuple(by_name.values()), "--kernel-file") if by_name else None
        name = only(names.choose_names(self.kernel, (*ladder.LADDER, *by_name), "kernel"), "--kernel")
        if by_name and name not in by_name:
            raise UsageError(f"--kernel {name} is none of --kernel-file: give one of these options")
        return by_name.get(name) or ladder.BY_NAME[name]

    def problems(self, device: DeviceFacts) -> tuple[Problem, ...]:
        """The problem of -m, -n and -k, else square ones of --sizes or a default."""
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
    """m = n = k that keep the device busy."""
    has_card = device.type == "gpu" and not device.unified_memory
    return (_HUGE if has_card else _LARGE,)


def only(chosen: Sequence[_Item], option: str) -> _Item:
    """The one that a tuner takes; `UsageError` if there are several."""
    if len(chosen) > 1:
        raise UsageError(f"tune takes one {option} at a time, not {len(chosen)}")
    return chosen[0]


@dataclass(frozen=True, kw_only=True)
class ReportOptions(o.Options):
    """The options of ``report``."""

    command: ClassVar[str] = "report"
    help: ClassVar[str] = """Write an HTML report on saved runs, in a single file.

    It starts with a summary, a chart and the fastest kernels. Comparisons of runs on the same device follow,
    then a section for each run. The report makes no network requests. A folder means all .jsonl files in it.
    """

    out: Path | None = o.option(
        "File to write; replaced if it exists.  [default: the first file or folder's name, with .html]",
        o.PAGE,
        flags=("-o", "--out"),
        common=True,
    )
    title: str | None = o.option("Title of the report.  [default: the devices]", metavar="TEXT", common=True)
    charts: str = o.option(
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
class DoctorOptions(o.Options):
    """The options of ``doctor``."""

    command: ClassVar[str] = "doctor"
    help: ClassVar[str] = """Find what is slowing this machine down and how to fix it.

    Doctor checks clocks, limits, other programs, drivers, numpy's BLAS and NVIDIA boards. It changes nothing
    and measures nothing. The exit status is 0, with or without warnings.
    """

    device: str = measuring.device_option(group=o.DEVICE)
    json: bool = o.flag("Print a JSON object.", shell=True, common=True)
    verbose: bool = o.flag(
        "Print every check, and what it read.", flags=("-v", "--verbose"), shell=True, common=True
    )


@dataclass(frozen=True, kw_only=True)
class KernelsOptions(o.Options):
    """The options of ``kernels``."""

    command: ClassVar[str] = "kernels"
    help: ClassVar[str] = """List the GEMM kernels, or explain one.

    --device, --kernel and --dtype apply only to --resources.
    """

    describe: str | None = o.kernel_option(
        "Explain one kernel: idea, tiles, parameters.", metavar="NAME", names=names.KERNEL_NAMES, common=True
    )
    resources: bool = o.flag("Build the kernels and show registers and memory.", group=o.KERNELS, common=True)
    plot: Path | None = o.option("With --resources: plot work-group sizes.", o.CHART, common=True)
    new: Path | None = o.kernel_option(
        "Write an example kernel to start from.", o.FILE, metavar="FILE.cl", common=True
    )
    device: str = measuring.device_option()
    kernels: str = measuring.kernels_option(default="all")
    kernel_files: tuple[Path, ...] = measuring.kernel_files_option()
    dtype: str = measuring.dtype_option()
