"""The commands that measure: their help, their options, the plan and the table that these ask for."""

# ruff: noqa: RUF009  `option` is `dataclasses.field` with a `Spec`

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar

import click
from msgspec import UNSET, UnsetType

from gemmbench import UsageError, ladder
from gemmbench.gemm.operands import read_header
from gemmbench.gemm.workloads import PROMPT, SETS, Shape, heaviest, merged, read_shapes
from gemmbench.ladder.variant import Variant, laid_out
from gemmbench.model.case import MEMORY_MODES, Operands, Plan, Policy
from gemmbench.model.device import DeviceFacts
from gemmbench.model.dtypes import DEVICE_DTYPES, DTYPES, GEMM_DTYPES, GEMM_DTYPES_HELP
from gemmbench.model.problem import MOST_PROBLEMS, Leading, leading
from gemmbench.model.problem import Gemm as Problem
from gemmbench.model.row import MATHS, SCOPES
from gemmbench.model.run_file import LeftOut
from gemmbench.options import (
    CHART,
    COUNT,
    FILE,
    INPUT,
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
    flag,
    hidden,
    kernel_option,
    names,
    option,
    problem_option,
    specs,
    timing_option,
)
from gemmbench.plan import (
    DEVICE_TYPES,
    Axes,
    FindTuned,
    Reach,
    alternating_with,
    fitting,
    gemm_plan,
    measured_by,
    peak_plan,
    quick_widths,
)
from gemmbench.probes import ALL_DTYPES, PROBES, memory
from gemmbench.probes.arithmetic import WIDTHS
from gemmbench.probes.memory import bandwidth_plan, memory_plan

DEVICE_VARIABLE = "GEMMBENCH_DEVICE"
COMPUTE = "compute"
FAMILIES: dict[str, str] = {COMPUTE: "what arithmetic and matrix units can do", **memory.FAMILIES}
"""What ``peak --only`` takes, in the order of the tables."""

TRANS_A = "Store A as k x m: op(A) is its transpose, as in BLAS."
COLD = "Keep caches cold: cycle through more operands than the last-level cache holds."
TRANS_B = "Store B as n x k: op(B) is its transpose."
RUN_FORMATS = ("table", "json", "csv", "markdown", "google-benchmark", "openmetrics")
EVERY_PROBE = "all"  # of --describe without a name
SIZES = "Comma-separated sizes, instead of a range."
DTYPES_HELP = f"Comma-separated data types. {GEMM_DTYPES_HELP}."
_DEFAULT_SIZE = 1024
_TOP = 95.0  # per cent of the predicted time: the rest matters less than most rows' interval


def device_option(default: str = "the best found", group: str = PROBLEM, several: bool = True) -> Any:
    """The field of --device, "" by default or GEMMBENCH_DEVICE. The help shows `default` in `group`."""
    more = "all, platform:device (0:1), or several, comma-separated" if several else "platform:device (0:1)"
    return option(
        f"Index (0), part of a name (h200), or a type (gpu, cpu). Also {more}.  [default: {default}]",
        default="",
        common=True,
        env=DEVICE_VARIABLE,
        group=group,
        metavar="WHICH",
        names=(*DEVICE_TYPES, "all") if several else DEVICE_TYPES,
    )


def kernels_option(
    help: str = "Comma-separated: names, default, ladder, best or all. default: the ten kernels from naive "
    "to padded, and a selection of the others. ladder: every published kernel. best: gemmbench's own "
    "kernels. all: every kernel that the device can run. own: those of --kernel-file. `gemmbench kernels` "
    "lists the names.",
    default: str = names.DEFAULT,
    **spec: Any,
) -> Any:
    """The dataclass field of --kernel: names or groups of kernels. `spec` sets attributes of its `Spec`."""
    spec = {"metavar": "NAMES", "names": names.KERNELS, "group": KERNELS, "common": True, **spec}
    return option(help, default=default, flags=("--kernel",), **spec)


def kernel_files_option(
    help: str = "A file with your own kernel and a comment that describes it; may be repeated. It is added "
    "to the kernels that --kernel selects, unless --kernel names it. `gemmbench kernels --new` writes an "
    "example.",
) -> Any:
    """The option --kernel-file: files with the user's own kernels."""
    return kernel_option(help, FILE, (), flags=("--kernel-file",), many=True, metavar="FILE.cl")


def dtype_option(help: str = DTYPES_HELP, default: str | None = "float") -> Any:
    """Data types of operands."""
    return problem_option(help, default=default, metavar="TYPES", names=GEMM_DTYPES, common=True)


def seconds_option(help: str, default: float | None = None, common: bool = False) -> Any:
    """A time above zero."""
    return timing_option(help, Number(0), default, metavar="SECONDS", common=common)


def memory_option(default: str) -> Any:
    """The dataclass field of --memory, None by default. The help shows `default`."""
    text = (
        "How operands reach the device. mapped: filled in place. staged, pageable: copied from pinned or "
        "ordinary memory. svm, svm-fine: in coarse- or fine-grained shared virtual memory. auto: mapped if "
        "host and device share memory, otherwise staged."
    )
    modes = click.Choice(("auto", *MEMORY_MODES))
    return timing_option(f"{text}  [default: {default}]", modes, metavar="MODE")


def batch_option() -> Any:
    """``--batch``."""
    return problem_option(
        "Number of independent problems of this shape in one launch or call.", Whole(1, MOST_PROBLEMS), 1
    )


@dataclass(frozen=True, kw_only=True)
class MeasurementOptions(Options):
    """Where a command measures, how long, and what becomes of the result."""

    chart: ClassVar[str | None] = None  # the kind that --plot draws; None for what suits the run

    device: str = device_option()
    save: Path | None = option("Save every sample.", Output("FILE.jsonl"), common=True)
    resume: bool = flag("Continue an interrupted --save file.")
    force: bool = flag("Replace an existing --save file.")
    plot: Path | None = option("Draw a chart of the results.", CHART, common=True)
    report: Path | None = option("Write an HTML report with all tables and charts.", PAGE)
    budget: float | None = seconds_option(
        "Sampling time for each row. Problems that take longer than both this and 2 s are skipped.  "
        f"[default: {Policy.budget_s}]",
        common=True,
    )
    time_limit: float | None = seconds_option(
        "Stop a row after this time, including builds.  [default: 60 + 20 x budget]"
    )
    patience: float | None = timing_option(
        "Measure rows of a CPU again, up to this long altogether, if other programs disturbed them.  "
        "[default: as long as the rest took, from 20 s on half of that, 60 at most]",
        Number(0, or_equal=True),
        metavar="SECONDS",
    )
    memory: str | None = memory_option("auto")
    cold: bool = flag(f"{COLD}  [default: warm]", group=TIMING)
    energy: bool = flag("Also measure energy, in joules. Adds 2 to 3 s per row.", group=TIMING)
    dry_run: bool = flag("List what would be measured, and stop.", shell=True, common=True)
    quiet: bool = flag("Print only the table, without progress or advice.", flags=("-q", "--quiet"))
    verbose: int = option("Print every row and scope.", COUNT, 0, flags=("-v", "--verbose"), common=True)

    @cached_property
    def remarks(self) -> list[str]:
        """What the user should know of the options' files, for stderr."""
        return []

    def __post_init__(self) -> None:
        """Raise `UsageError` if an output cannot be written, or --save, --resume and --force do not fit.

        --resume needs --save, --force needs --save or --out. An existing --save file needs --resume or
        --force, not both.
        """
        super().__post_init__()
        if self.resume and self.save is None:
            raise UsageError("--resume needs --save FILE")
        if self.force and not {"--save", "--out"} & {name for name, _ in self.outputs}:
            raise UsageError("--force needs --save FILE")
        if self.resume and self.force:
            raise UsageError("--resume and --force cannot be combined")
        if self.save and self.save.exists() and not self.resume and not self.force:
            resume = "--resume continues it, " if "resume" in specs(type(self)) else ""
            raise UsageError(f"{self.save} exists already; {resume}--force replaces it")

    @property
    def policy(self) -> Policy:
        return self.policy_of(Policy())

    def policy_of(self, base: Policy) -> Policy:
        """Return a policy with the options that were given.

        --budget sets the time limit to 60 s + 20 budgets unless --time-limit is given. --cold and the base's
        cold both count. Energy is measured only with --energy.
        """
        budget_s = base.budget_s if self.budget is None else self.budget
        limit_s = base.time_limit_s if self.budget is None else 60 + 20 * budget_s
        return replace(
            base,
            budget_s=budget_s,
            time_limit_s=limit_s if self.time_limit is None else self.time_limit,
            memory=base.memory if self.memory is None else self.memory,
            cold=self.cold or base.cold,
            patience_s=self.patience,
            energy=self.energy,
        )

    def plan(self, devices: Sequence[DeviceFacts], find_tuned: FindTuned) -> Plan:
        """What is measured on these devices; `UsageError` or `ParameterError` if something does not fit."""
        raise NotImplementedError


@dataclass(frozen=True, kw_only=True)
class PeakOptions(MeasurementOptions):
    """The options of ``peak``."""

    command: ClassVar[str] = "peak"
    help: ClassVar[str] = """Measure what the device can do: arithmetic, memory, transfers.

    For each data type, gemmbench tries several forms of multiply-add, numbers of independent chains and
    unroll depths, and keeps the fastest. A rate is shown only if the results match the host's and twice the
    work takes twice the time. --all adds the other types, bandwidths, caches, transfers and latencies. Peaks
    are cached, so sweeps can show the percentage of peak without measuring it again.
    """

    types: str | None = problem_option(
        f"Comma-separated data types.  [default: {','.join(DEVICE_DTYPES)}, and those of a CPU's units]",
        metavar="TYPES",
        names=ALL_DTYPES,
        common=True,
    )
    only: str | None = problem_option(
        f"Comma-separated: {', '.join(FAMILIES)}.  [default: {COMPUTE}]",
        metavar="FAMILIES",
        names=tuple(FAMILIES),
        common=True,
    )
    all: bool = flag("Measure every family, type and probe.", group=PROBLEM, common=True)
    describe: str | None = option(
        "Explain one probe, or list all of them.",
        common=True,
        metavar="[PROBE]",
        bare=EVERY_PROBE,
        shell=True,
        names=(*PROBES, *memory.BY_NAME),
    )
    format: str = option(
        f"What to print: {', '.join(RUN_FORMATS)}.",
        click.Choice(RUN_FORMATS),
        "table",
        shell=True,
        metavar="FORMAT",
        common=True,
    )

    def __post_init__(self) -> None:
        """Raise `UsageError` for --only with --all, --types without the compute family, or an unknown name.

        With --describe, which only explains probes, do not check these.
        """
        super().__post_init__()
        if self.describe is not None:
            return
        if self.only and self.all:
            raise UsageError("--only and --all cannot be combined")
        if self.types is not None and COMPUTE not in self.families:
            raise UsageError(f"--types is for the {COMPUTE} family, which --only leaves out")
        _ = self.families, self.dtypes

    @cached_property
    def families(self) -> tuple[str, ...]:
        return tuple(FAMILIES) if self.all else names.choose(self.only or COMPUTE, tuple(FAMILIES), "family")

    @cached_property
    def dtypes(self) -> tuple[str, ...]:
        if self.types is not None:
            return names.choose_dtypes(self.types, ALL_DTYPES)
        return ALL_DTYPES if self.all else DEVICE_DTYPES

    def plan(self, devices: Sequence[DeviceFacts], find_tuned: FindTuned) -> Plan:
        """Plan the families of --only: compute alone by default, all with --all. Compute comes first.

        With --types or --all it has every arithmetic probe, else the quick ones: multiply-adds, tensor cores
        and a CPU's units for short types. Memory, transfer and latency probes follow. `find_tuned` is unused.
        """
        reach: Reach = "every" if self.types is not None or self.all else "quick"
        compute = peak_plan(devices, self.dtypes, WIDTHS, reach=reach) if COMPUTE in self.families else ()
        for index, device in enumerate(devices if compute and reach == "quick" else ()):
            if device.units:
                others = [name for name in ALL_DTYPES if name not in self.dtypes]
                compute += peak_plan([device], others, (), first=index, reach="matrix")
        return compute + memory_plan(devices, self.families)


@dataclass(frozen=True, kw_only=True)
class GemmCommandOptions(MeasurementOptions):
    """What is measured of the GEMM kernels, and how it is shown."""

    kernels: str = kernels_option()
    kernel_files: tuple[Path, ...] = kernel_files_option()
    dtype: str | None = dtype_option()
    baseline: str = kernel_option(
        f"Comma-separated libraries: {', '.join(ladder.BASELINES)}, all or none. default: numpy (the host's "
        "BLAS), or mkl, if installed, for types that numpy has no BLAS for. On a GPU, also cublas if "
        "installed, otherwise clblast.",
        default=names.DEFAULT,
        metavar="NAMES",
        names=names.BASELINES,
    )
    params: tuple[str, ...] = kernel_option(
        "Set a kernel parameter; may be repeated. With comma-separated values, every valid combination is "
        f"measured, at most {names.MOST_COMBINATIONS}.",
        default=(),
        flags=("--param",),
        metavar="NAME=VALUES",
        many=True,
    )
    math: str | None = kernel_option(
        "Compile OpenCL kernels with strict or fast math (-cl-fast-relaxed-math). With both, batches "
        "alternate and the table shows the ratio.  [default: strict, but fast for image-4x8 and buffer-4x8]",
        metavar="strict,fast",
        names=MATHS,
    )
    versus: str | None = kernel_option(
        "Compare with this kernel or library, by alternating batches.",
        metavar="NAME",
        names=ladder.ORDER,
        common=True,
    )
    tuned: bool = flag(
        "Use the parameters that `gemmbench tune` saved for this device.",
        default=True,
        flags=("--tuned/--no-tuned",),
        group=KERNELS,
    )
    alpha: float = problem_option("The factor alpha in C = alpha op(A) op(B) + beta C.", Number(), 1.0)
    beta: float = problem_option("The factor beta in C = alpha op(A) op(B) + beta C.", Number(), 0.0)
    trans_a: bool = flag(TRANS_A, group=PROBLEM)
    trans_b: bool = flag(TRANS_B, group=PROBLEM)
    batch: int = batch_option()
    seed: int = problem_option("Seed for generated operands.", LENGTH, Policy.seed)
    scope: str | None = option(
        "Which time to show: the kernel's alone, that of all device work, or from host memory to host "
        "memory.  "
        "[default: kernel, or device with a library, because libraries report no kernel time]",
        click.Choice((*SCOPES, "all")),
    )
    peak: bool = flag(
        "Measure the device's peak after the kernels, unless it is cached.",
        default=True,
        flags=("--peak/--no-peak",),
        group=TIMING,
    )
    bandwidth: bool = flag(
        "Measure the memory bandwidth too, for the roofline chart. --report does so.", group=TIMING
    )
    remeasure: bool = flag("Measure the peak (with --bandwidth, both) even if it is cached.", group=TIMING)

    def __post_init__(self) -> None:
        """Resolve kernels, types and shapes, and raise `UsageError` if they are invalid.

        --math needs an OpenCL kernel. Both math modes together exclude --versus. --param values have at most
        100 combinations for a kernel.
        """
        super().__post_init__()
        _ = self.variants, self.dtypes, self.partner
        names.check_grid(self.variants, names.choose_params(self.params))
        if self.math is not None and not any(variant.executor == "opencl" for variant in self.variants):
            raise UsageError("--math applies only to OpenCL kernels, and --kernel selects none")
        if len(self.axes.maths) > 1 and self.versus:
            raise UsageError(f"--math {self.math} cannot be combined with --versus")
        _ = self.shapes

    @property
    def policy(self) -> Policy:
        return replace(super().policy, seed=self.seed)

    @cached_property
    def variants(self) -> tuple[Variant, ...]:
        return names.choose_kernels(self.kernels, self.baseline, self.user_kernels)

    @cached_property
    def user_kernels(self) -> tuple[Variant, ...]:
        return names.own_kernels(self.kernel_files)

    @cached_property
    def dtypes(self) -> tuple[str, ...]:
        return names.choose_dtypes("float" if self.dtype is None else self.dtype, GEMM_DTYPES)

    @cached_property
    def axes(self) -> Axes:
        """The math modes, with strict before fast, and the kernel parameters that have several values."""
        maths = names.choose(self.math, MATHS, "math") if self.math is not None else ("",)
        grid = {name: values for name, values in names.choose_params(self.params).items() if len(values) > 1}
        return Axes(tuple(name for name in ("", *MATHS) if name in maths), grid)

    @cached_property
    def partner(self) -> Variant | None:
        """The kernel or library of --versus, which alternates with the others. None without --versus.

        Raise `UsageError` unless it is one known name.
        """
        if self.versus is None:
            return None
        by_name = {**ladder.BY_NAME, **{each.name: each for each in self.user_kernels}}
        chosen = names.choose(self.versus, tuple(by_name), "kernel")
        if len(chosen) != 1:
            raise UsageError(f"--versus takes one kernel, not {self.versus}")
        return by_name[chosen[0]]

    @property
    def named(self) -> tuple[str, ...]:
        """The kernels and libraries asked for by name: tables tell why one of them cannot run."""
        libraries = (name for name in names.split(self.baseline) if name in ladder.BY_NAME)
        return (*names.named_kernels(self.kernels, self.user_kernels), *libraries)

    def named_in(self, plan: Plan) -> tuple[str, ...]:
        """`named`, and with --baseline all the libraries of a plan: a table reports a missing one."""
        every = measured_by(plan) if "all" in names.split(self.baseline) else ()
        return (*self.named, *(name for name in ladder.BASELINES if name in every))

    @property
    def shapes(self) -> tuple[Shape, ...]:
        """The problems. Those without a data type are measured in every type."""
        raise NotImplementedError

    @property
    def left_out(self) -> LeftOut | UnsetType:
        """The shapes that --top excludes, if there are any."""
        return UNSET

    @property
    def operands(self) -> Operands:
        return Operands()

    def plan(self, devices: Sequence[DeviceFacts], find_tuned: FindTuned) -> Plan:
        """Plan the GEMMs of every type, then all peaks that they are compared with, then the bandwidth.

        Figures of kernels come first, because the user waits for them. No peak is repeated: every fp8 type
        has the same. Without peaks (--no-peak, or empty shapes) the bandwidth is planned only if requested.
        """
        steps = tuple(step for dtype in self.dtypes for step in self._gemms(devices, dtype, find_tuned))
        has_peaks = self.peak and any(shape.m and shape.n and shape.k for shape in self.shapes)
        for dtype in self.dtypes if has_peaks else ():
            steps += tuple(step for step in self._peaks(devices, dtype) if step not in steps)
        return steps + (bandwidth_plan(devices) if has_peaks or self.draws_roofline else ())

    @property
    def draws_roofline(self) -> bool:
        """Whether the bandwidth is measured: for --bandwidth, --report, or the chart of a single point.

        Otherwise no output shows it, and a run only gets it from the cache.
        """
        is_single = len(self.shapes) == len(self.variants) == 1 and self.chart is None
        return self.bandwidth or bool(self.report) or (self.plot is not None and is_single)

    def _peaks(self, devices: Sequence[DeviceFacts], dtype: str) -> Plan:
        """Plan the short peak measurements that these kernels are compared with.

        Each device that supports `dtype` gets the plain peak, of multiply-adds. If any kernel uses tensor
        cores for `dtype` in the layouts of the shapes, every device that has these also gets their peak.
        """
        layouts = {replace(each, m=1, n=1, k=1, ld=None) for each in self._problems(dtype)}
        kernels = [laid_out(variant, layout) for layout in layouts for variant in self.variants]
        uses_tensor_cores = any(
            kernel.ran_on(dtype) == "matrix" for kernel in kernels if dtype in kernel.needs.dtypes
        )
        steps: Plan = ()
        for index, device in enumerate(devices):
            if dtype in device.dtypes:
                steps += peak_plan([device], [dtype], quick_widths(device, dtype), first=index, reach="plain")
            if uses_tensor_cores:
                kind = DTYPES[dtype].instruction
                steps += peak_plan([device], [kind], (), first=index, reach="matrix")
        return steps

    def _shape(self, m: int, n: int, k: int, ld: Leading | None = None) -> Shape:
        return Shape("", m, n, k, ld, self.trans_a, self.trans_b, self.batch)

    def _problems(self, dtype: str) -> list[Problem]:
        """The problem of each shape that is to be measured in a data type, with alpha and beta."""
        shapes = (shape for shape in self.shapes if shape.dtype in (None, dtype))
        return [shape.problem(dtype, self.alpha, self.beta) for shape in shapes]

    def _gemms(self, devices: Sequence[DeviceFacts], dtype: str, find_tuned: FindTuned) -> Plan:
        """Plan all kernels and shapes in one data type, alternating with the --versus kernel if there is one.

        Drop kernels of a group that do not suit the device. Unless --kernel, or --baseline for libraries, has
        "all", also drop those that another replaces. --param values are fixed parameters, or a grid if a
        parameter has several.
        """
        problems = self._problems(dtype)
        params = names.choose_params(self.params)
        fixed = {name: values[0] for name, values in params.items() if len(values) == 1}
        cases = gemm_plan(devices, self.variants, problems, fixed, self.operands, find_tuned, self.axes)
        if self.partner:
            cases = alternating_with(
                cases, devices, self.partner, fixed, self.operands, find_tuned, self.axes
            )
        groups = [
            names.of_groups(self.kernels, self.baseline, self.user_kernels, device) for device in devices
        ]
        faster = {
            name: other
            for name, other in ladder.FASTER.items()
            if "all" not in names.split(self.baseline if name in ladder.BASELINES else self.kernels)
        }
        return fitting(cases, groups, self.named, faster)

    def more_kernels(self, devices: Sequence[DeviceFacts], plan: Plan) -> int:
        """Count the built-in OpenCL kernels that could run on the devices but are not in the plan.

        Return 0 unless --kernel includes default.
        """
        if names.DEFAULT not in names.split(self.kernels):
            return 0
        others = [ladder.BY_NAME[name] for name in ladder.LADDER if name not in measured_by(plan)]
        problems = [problem for dtype in self.dtypes for problem in self._problems(dtype)]
        return len(measured_by(gemm_plan(devices, others, problems)))


@dataclass(frozen=True, kw_only=True)
class SquareOptions(GemmCommandOptions):
    """The options of ``square``."""

    command: ClassVar[str] = "square"
    help: ClassVar[str] = """Sweep square problems: m = n = k.

    Sizes are --min, --max and the powers of two between them, or those in --sizes. Every kernel is verified
    before it is timed. The summary gives the size at which the device starts to beat the host's BLAS, with
    transfers.
    """

    min: int | None = problem_option("Smallest size.  [default: 64]", SIZE)
    max: int | None = problem_option("Largest size.  [default: 1024]", SIZE, common=True)
    sizes: str | None = problem_option(SIZES, metavar="LIST", common=True)

    @cached_property
    def shapes(self) -> tuple[Shape, ...]:
        sizes = names.choose_sizes(self.sizes, self.min, self.max, 1024, "--min and --max")
        return tuple(self._shape(size, size, size) for size in sizes)


@dataclass(frozen=True, kw_only=True)
class SweepKOptions(GemmCommandOptions):
    """The options of ``sweep-k``."""

    command: ClassVar[str] = "sweep-k"
    help: ClassVar[str] = """Sweep k with m and n fixed.

    The values of k are the powers of two from --k-min to --k-max, or those in --sizes.
    """

    m: int = problem_option("Rows of op(A) and C.", SIZE, 1024, flags=("-m", "--m"), common=True)
    n: int = problem_option("Columns of op(B) and C.", SIZE, 1024, flags=("-n", "--n"), common=True)
    k_min: int | None = problem_option("Smallest k.  [default: 64]", SIZE)
    k_max: int | None = problem_option("Largest k.  [default: 2048]", SIZE, common=True)
    sizes: str | None = problem_option(SIZES, metavar="LIST")

    @cached_property
    def shapes(self) -> tuple[Shape, ...]:
        sizes = names.choose_sizes(self.sizes, self.k_min, self.k_max, 2048, "--k-min and --k-max")
        return tuple(self._shape(self.m, self.n, size) for size in sizes)


@dataclass(frozen=True, kw_only=True)
class WorkloadsOptions(GemmCommandOptions):
    """The options of ``workloads``."""

    command: ClassVar[str] = "workloads"
    help: ClassVar[str] = """Measure real-world shapes: AlexNet, a transformer, or your own.

    The sets include AlexNet's layers as GEMMs and the projections of a 7B transformer. They also include the
    layers of two language models (llm), and odd sizes. --file reads your own shapes. The table names the best
    kernel for each shape; -v shows every kernel. --dry-run lists the shapes and their sources.
    """

    kernels: str = kernels_option(default="best")
    set: str | None = problem_option(
        f"Comma-separated: {', '.join(SETS)} or all.  [default: all but llm; none with --file]",
        metavar="NAMES",
        names=(*SETS, "all"),
        common=True,
    )
    file: Path | None = problem_option(
        "A log of your program, or CSV. Logs of BLAS libraries and PyTorch traces are read. CSV has the "
        "columns m, n, k and optionally name, lda, ldb, ldc, trans_a, trans_b, batch, dtype, alpha, beta, "
        "calls.",
        FILE,
        metavar="FILE",
        common=True,
    )
    dtype: str | None = dtype_option(f"{DTYPES_HELP}  [default: that of the file, or float]", None)
    top: float | None = problem_option(
        "Measure only the shapes with this percentage of the predicted time.  "
        f"[default: {_TOP:g} if the file counts calls, otherwise 100]",
        Number(0),
        metavar="PERCENT",
    )
    batch: int = problem_option("Images or sequences per batch.", SIZE, 1)
    prompt: int = problem_option("Tokens per prompt.", SIZE, PROMPT)

    @cached_property
    def set_names(self) -> tuple[str, ...]:
        if self.set is None:
            return () if self.file else tuple(name for name in SETS if name != "llm")
        words = names.choose(self.set, (*SETS, "all"), "set of shapes")
        return tuple(name for name in SETS if name in words or "all" in words)

    def __post_init__(self) -> None:
        """Raise `UsageError` if --top is above 100."""
        if self.top is not None and self.top > 100:
            raise UsageError(f"--top is a percentage of the predicted time, at most 100, not {self.top:g}")
        super().__post_init__()

    @cached_property
    def dtypes(self) -> tuple[str, ...]:
        """The types of --dtype, else those of the shapes."""
        own = ",".join(dict.fromkeys(shape.dtype or "float" for shape in self.shapes))
        return names.choose_dtypes(own if self.dtype is None else self.dtype, GEMM_DTYPES)

    @property
    def shapes(self) -> tuple[Shape, ...]:
        """The shapes of the sets and of --file that --top includes, each once, whatever its names."""
        return self._selected[0]

    @property
    def left_out(self) -> LeftOut | UnsetType:
        return self._selected[1]

    @cached_property
    def _selected(self) -> tuple[tuple[Shape, ...], LeftOut | UnsetType]:
        shapes = [
            replace(shape, trans_a=self.trans_a, trans_b=self.trans_b)
            for name in self.set_names
            for shape in SETS[name].shapes(self.batch, self.prompt)
        ]
        if self.file:
            shapes += read_shapes(self.file, self.trans_a, self.trans_b, self.remarks.append)
        is_given = self.dtype is not None
        every = merged(
            replace(
                each,
                dtype=None if is_given else each.dtype or "float",
                alpha=self.alpha if each.alpha is None else each.alpha,
                beta=self.beta if each.beta is None else each.beta,
            )
            for each in shapes
        )
        default = _TOP if any(shape.calls > 1 for shape in every) else 100.0
        return heaviest(every, default if self.top is None else self.top)


def _length(help: str, **spec: Any) -> Any:
    return problem_option(help, LENGTH, **spec)


@dataclass(frozen=True, kw_only=True)
class GemmOptions(GemmCommandOptions):
    """The options of ``gemm``."""

    command: ClassVar[str] = "gemm"
    help: ClassVar[str] = """Measure one problem, with generated matrices or your own.

    The table lists the fastest kernel first; --kernel all and ladder keep the ladder's order. -v adds the
    time of every scope and launch. --plot draws the kernels as bars against the measured peak.
    """
    chart: ClassVar[str | None] = "ladder"

    m: int | None = _length(f"Rows of op(A) and C.  [default: {_DEFAULT_SIZE}]", flags=("-m",), common=True)
    n: int | None = _length("Columns of op(B) and C.  [default: m]", flags=("-n",), common=True)
    k: int | None = _length("Columns of op(A), rows of op(B).  [default: m]", flags=("-k",), common=True)
    lda: int | None = _length("Row stride of A as stored, in elements.  [default: k; m with --trans-a]")
    ldb: int | None = _length("Row stride of B as stored, in elements.  [default: n; k with --trans-b]")
    ldc: int | None = _length("Row stride of C, in elements.  [default: n]")
    a: Path | None = problem_option("Your own A (m x k; k x m with --trans-a).", INPUT, metavar="A.npy")
    b: Path | None = problem_option("Your own B (k x n; n x k with --trans-b).", INPUT, metavar="B.npy")
    c: Path | None = problem_option("Your own C (m x n), with --beta.", INPUT, metavar="C.npy")
    out: Path | None = option(
        "Write C to a file; needs one --kernel, --dtype and --device.", Output("OUT.npy", folder=False)
    )
    dtype: str | None = dtype_option(f"{DTYPES_HELP}  [default: float]", None)
    scope: str | None = hidden(None)

    def __post_init__(self) -> None:
        """Raise `UsageError` if the options for operand files and --out contradict each other.

        Operand files must match --dtype. --c and a nonzero --beta need each other if any file is given.
        --seed needs a generated operand. --batch excludes files and --out. --out needs one kernel and one
        type, and --force to replace a file.
        """
        super().__post_init__()
        if self._files:
            if self.dtype not in (None, self._size[3]):
                raise UsageError(f"the files hold {self._size[3]}, but --dtype is {self.dtype}")
            if self.seed != Policy.seed and self.a and self.b and (self.c or self.beta == 0):
                raise UsageError("--seed is for generated operands, and every operand is a file")
            if self.c and self.beta == 0:
                raise UsageError("--c is given but beta is 0, so it would not be read; give --beta too")
            if not self.c and self.beta != 0:
                raise UsageError(
                    f"--beta {self.beta:g} adds to C, but there is no --c; give it, or leave --beta out"
                )
        if self.batch > 1 and (self._files or self.out):
            raise UsageError("--batch generates its operands: --a, --b, --c and --out are of one problem")
        if self.out:
            if len(self.variants) != 1 or len(self.dtypes) != 1:
                raise UsageError("--out needs exactly one --kernel and one --dtype")
            if self.out.exists() and not self.force:
                raise UsageError(f"--out {self.out} exists already; --force replaces it")

    @cached_property
    def variants(self) -> tuple[Variant, ...]:
        """The kernels and libraries; no library where a result is written."""
        return names.choose_kernels(self.kernels, "none" if self.out else self.baseline, self.user_kernels)

    @cached_property
    def dtypes(self) -> tuple[str, ...]:
        dtype = self._size[3] or self.dtype
        return names.choose_dtypes(dtype or "float", GEMM_DTYPES)

    @property
    def shapes(self) -> tuple[Shape, ...]:
        """The single problem, with its row strides. Raise `UsageError` if a stride is too short."""
        lengths = self._size[:3]
        try:
            ld = leading(*lengths, self.lda, self.ldb, self.ldc, self.trans_a, self.trans_b)
            return (self._shape(*lengths, ld),)
        except ValueError as error:
            raise UsageError(f"--{error}") from None

    @property
    def _files(self) -> bool:
        return any((self.a, self.b, self.c))

    @cached_property
    def _size(self) -> tuple[int, int, int, str]:
        """Return m, n, k and the files' data type.

        Without files, use -m, -n and -k with their defaults, and an empty type. With files, read only their
        headers. Raise `UsageError` if a file cannot be read, sizes or types disagree, or a length is missing.
        """
        if not self._files:
            m = _DEFAULT_SIZE if self.m is None else self.m
            return m, m if self.n is None else self.n, m if self.k is None else self.k, ""
        given = (("m", self.m), ("n", self.n), ("k", self.k))
        lengths = {axis: (length, f"-{axis}") for axis, length in given if length is not None}
        dtype: tuple[str, Path] | None = None
        a = ("k", "m") if self.trans_a else ("m", "k")
        b = ("n", "k") if self.trans_b else ("k", "n")
        for path, rows, columns in ((self.a, *a), (self.b, *b), (self.c, "m", "n")):
            if path is None:
                continue
            path = path.absolute()
            header = read_header(str(path))
            if dtype is not None and dtype[0] != header.dtype:
                raise UsageError(f"{path} holds {header.dtype}, but {dtype[1]} holds {dtype[0]}")
            dtype = (header.dtype, path)
            for axis, length in ((rows, header.rows), (columns, header.columns)):
                if axis in lengths and lengths[axis][0] != length:
                    raise UsageError(
                        f"{path} makes {axis} {length}, but {lengths[axis][1]} makes it {lengths[axis][0]}"
                    )
                lengths[axis] = (length, str(path))
        missing = [axis for axis in ("m", "n", "k") if axis not in lengths]
        if missing:
            raise UsageError(
                f"the files do not say how long {' and '.join(missing)} is; give -{missing[0]} too"
            )
        assert dtype is not None
        return lengths["m"][0], lengths["n"][0], lengths["k"][0], dtype[0]

    @property
    def operands(self) -> Operands:
        files = (self.a, self.b, self.c, self.out)
        return Operands(*(str(file.absolute()) if file else None for file in files))

    def plan(self, devices: Sequence[DeviceFacts], find_tuned: FindTuned) -> Plan:
        """Plan the peaks and every kernel. Raise `UsageError` if --out has several devices."""
        if self.out and len(devices) > 1:
            raise UsageError("--out needs exactly one --device")
        return super().plan(devices, find_tuned)
