"""The commands that measure: their help and their options."""

# ruff: noqa: RUF009  `option` is `dataclasses.field` with a `Spec`

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar

import click
from msgspec import UNSET, UnsetType

from gemmbench import UsageError, ladder
from gemmbench.gemm.operands import read_header
from gemmbench.gemm.workloads import PROMPT, SETS, Shape, heaviest, merge_shapes, read_shapes
from gemmbench.ladder.variant import Variant
from gemmbench.model.case import MEMORY_MODES, Operands, Policy
from gemmbench.model.device import DEVICE_TYPES
from gemmbench.model.dtypes import DEVICE_DTYPES, GEMM_DTYPES, GEMM_DTYPES_HELP
from gemmbench.model.problem import MOST_PROBLEMS, Leading, leading
from gemmbench.model.problem import Gemm as Problem
from gemmbench.model.row import MATHS, SCOPES
from gemmbench.model.run_file import LeftOut
from gemmbench.probes import ALL_DTYPES, PROBES, memory
from gemmbench.suite import options as o
from gemmbench.suite.options import names

DEVICE_VARIABLE = "GEMMBENCH_DEVICE"
COMPUTE = "compute"
PROBE_FAMILIES: dict[str, str] = {COMPUTE: "what arithmetic and matrix units can do", **memory.FAMILIES}

TRANS_A = "Store A as k x m: op(A) is its transpose, as in BLAS."
COLD = "Keep caches cold: cycle through more operands than the last-level cache holds."
TRANS_B = "Store B as n x k: op(B) is its transpose."
RUN_FORMATS = ("table", "json", "csv", "markdown", "google-benchmark", "openmetrics")
EVERY_PROBE = "all"  # of --describe without a name
SIZES = "Comma-separated sizes, instead of a range."
DTYPES_HELP = f"Comma-separated data types. {GEMM_DTYPES_HELP}."
_DEFAULT_SIZE = 1024
_TOP = 95.0  # per cent of the predicted time: the rest matters less than most rows' interval


def device_option(default: str = "the best found", group: str = o.PROBLEM, several: bool = True) -> Any:
    """The field of --device; the help shows `default`."""
    more = "all, platform:device (0:1), or several, comma-separated" if several else "platform:device (0:1)"
    return o.option(
        f"Index (0), part of a name (h200), or a type (gpu, cpu). Also {more}.  [default: {default}]",
        default="",
        common=True,
        env=DEVICE_VARIABLE,
        group=group,
        metavar="WHICH",
        names=(*DEVICE_TYPES, "all") if several else DEVICE_TYPES,
    )


def kernels_option(default: str = names.DEFAULT_GROUP) -> Any:
    """The field of --kernel: names or groups of kernels."""
    return o.kernel_option(
        "Comma-separated: names, default, ladder, best or all. default: the ten kernels from naive "
        "to padded, and a selection of the others. ladder: every published kernel. best: gemmbench's own "
        "kernels. all: every kernel that the device can run. own: those of --kernel-file. `gemmbench "
        "kernels` lists the names.",
        default=default,
        flags=("--kernel",),
        metavar="NAMES",
        names=names.KERNEL_NAMES,
        common=True,
    )


def kernel_files_option(
    help: str = "A file with your own kernel and a comment that describes it; may be repeated. It is added "
    "to the kernels that --kernel selects, unless --kernel names it. `gemmbench kernels --new` writes an "
    "example.",
) -> Any:
    """The field of --kernel-file."""
    return o.kernel_option(help, o.FILE, (), flags=("--kernel-file",), many=True, metavar="FILE.cl")


def dtype_option(help: str = DTYPES_HELP, default: str | None = "float") -> Any:
    """Data types of operands."""
    return o.problem_option(help, default=default, metavar="TYPES", names=GEMM_DTYPES, common=True)


def seconds_option(help: str, default: float | None = None, common: bool = False) -> Any:
    """A time above zero."""
    return o.timing_option(help, o.Number(0), default, metavar="SECONDS", common=common)


def memory_option(default: str) -> Any:
    """The field of --memory; the help shows `default`."""
    text = (
        "How operands reach the device. mapped: filled in place. staged, pageable: copied from pinned or "
        "ordinary memory. svm, svm-fine: in coarse- or fine-grained shared virtual memory. auto: mapped if "
        "host and device share memory, otherwise staged."
    )
    modes = click.Choice(("auto", *MEMORY_MODES))
    return o.timing_option(f"{text}  [default: {default}]", modes, metavar="MODE")


def batch_option() -> Any:
    """``--batch``."""
    return o.problem_option(
        "Number of independent problems of this shape in one launch or call.", o.Whole(1, MOST_PROBLEMS), 1
    )


@dataclass(frozen=True, kw_only=True)
class MeasurementOptions(o.Options):
    """Where a command measures, how long, and what becomes of it."""

    chart: ClassVar[str | None] = None  # the kind that --plot draws; None for what suits the run

    device: str = device_option()
    save: Path | None = o.option("Save every sample.", o.Output("FILE.jsonl"), common=True)
    resume: bool = o.flag("Continue an interrupted --save file.")
    force: bool = o.flag("Replace an existing --save file.")
    plot: Path | None = o.option("Draw a chart of the results.", o.CHART, common=True)
    report: Path | None = o.option("Write an HTML report with all tables and charts.", o.PAGE)
    budget: float | None = seconds_option(
        "Sampling time for each row. Problems that take longer than both this and 2 s are skipped.  "
        f"[default: {Policy.budget_s}]",
        common=True,
    )
    time_limit: float | None = seconds_option(
        "Stop a row after this time, including builds.  [default: 60 + 20 x budget]"
    )
    patience: float | None = o.timing_option(
        "Measure uncertain rows of a CPU again, up to this long altogether.  "
        "[default: as long as the rest took, from 20 s on half of that, 60 at most]",
        o.Number(0, or_equal=True),
        metavar="SECONDS",
    )
    memory: str | None = memory_option("auto")
    cold: bool = o.flag(f"{COLD}  [default: warm]", group=o.TIMING)
    energy: bool = o.flag("Also measure energy, in joules. Adds 2 to 3 s per row.", group=o.TIMING)
    dry_run: bool = o.flag("List what would be measured, and stop.", shell=True, common=True)
    quiet: bool = o.flag("Print no progress and no warnings, only the result.", flags=("-q", "--quiet"))
    verbose: int = o.option("Print every row and scope.", o.COUNT, 0, flags=("-v", "--verbose"), common=True)

    @cached_property
    def remarks(self) -> list[str]:
        """What the user should know of the options' files."""
        return []

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.resume and self.save is None:
            raise UsageError("--resume needs --save FILE")
        if self.force and not {"--save", "--out"} & {name for name, _ in self.outputs}:
            raise UsageError("--force needs --save FILE")
        if self.resume and self.force:
            raise UsageError("--resume and --force cannot be combined")
        if self.save and self.save.exists() and not self.resume and not self.force:
            resume = "--resume continues it, " if "resume" in o.specs(type(self)) else ""
            raise UsageError(f"{self.save} exists already; {resume}--force replaces it")

    @property
    def policy(self) -> Policy:
        return self.policy_of(Policy())

    def policy_of(self, base: Policy) -> Policy:
        """A policy with the given options. --budget sets the time limit too."""
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

    types: str | None = o.problem_option(
        f"Comma-separated data types.  [default: {','.join(DEVICE_DTYPES)}, and those of a CPU's units]",
        metavar="TYPES",
        names=ALL_DTYPES,
        common=True,
    )
    only: str | None = o.problem_option(
        f"Comma-separated: {', '.join(PROBE_FAMILIES)}.  [default: {COMPUTE}]",
        metavar="FAMILIES",
        names=tuple(PROBE_FAMILIES),
        common=True,
    )
    all: bool = o.flag("Measure every family, type and probe.", group=o.PROBLEM, common=True)
    describe: str | None = o.option(
        "Explain one probe, or list all of them.",
        common=True,
        metavar="[PROBE]",
        bare=EVERY_PROBE,
        shell=True,
        names=(*PROBES, *memory.BY_NAME),
    )
    format: str = o.option(
        f"What to print: {', '.join(RUN_FORMATS)}.",
        click.Choice(RUN_FORMATS),
        "table",
        shell=True,
        metavar="FORMAT",
        common=True,
    )

    def __post_init__(self) -> None:
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
        return (
            tuple(PROBE_FAMILIES)
            if self.all
            else names.choose_names(self.only or COMPUTE, tuple(PROBE_FAMILIES), "family")
        )

    @cached_property
    def dtypes(self) -> tuple[str, ...]:
        if self.types is not None:
            return names.choose_dtypes(self.types, ALL_DTYPES)
        return ALL_DTYPES if self.all else DEVICE_DTYPES


@dataclass(frozen=True, kw_only=True)
class GemmCommandOptions(MeasurementOptions):
    """What is measured of the GEMM kernels, and what is shown."""

    kernels: str = kernels_option()
    kernel_files: tuple[Path, ...] = kernel_files_option()
    dtype: str | None = dtype_option()
    baseline: str = o.kernel_option(
        f"Comma-separated libraries: {', '.join(ladder.BASELINES)}, all or none. default: numpy (the host's "
        "BLAS), or mkl, if installed, for types that numpy has no BLAS for. On a GPU, also cublas if "
        "installed, otherwise clblast.",
        default=names.DEFAULT_GROUP,
        metavar="NAMES",
        names=names.BASELINE_NAMES,
    )
    params: tuple[str, ...] = o.kernel_option(
        "Set a kernel parameter; may be repeated. With comma-separated values, every valid combination is "
        f"measured, at most {names.MOST_COMBINATIONS}.",
        default=(),
        flags=("--param",),
        metavar="NAME=VALUES",
        many=True,
    )
    math: str | None = o.kernel_option(
        "Compile OpenCL kernels with strict or fast math (-cl-fast-relaxed-math). With both, batches "
        "alternate and the table shows the ratio.  [default: strict, but fast for image-4x8 and buffer-4x8]",
        metavar="strict,fast",
        names=MATHS,
    )
    versus: str | None = o.kernel_option(
        "Compare with this kernel or library, by alternating batches.",
        metavar="NAME",
        names=ladder.ORDER,
        common=True,
    )
    tuned: bool = o.flag(
        "Use the parameters that `gemmbench tune` saved for this device.",
        default=True,
        flags=("--tuned/--no-tuned",),
        group=o.KERNELS,
    )
    alpha: float = o.problem_option("The factor alpha in C = alpha op(A) op(B) + beta C.", o.Number(), 1.0)
    beta: float = o.problem_option("The factor beta in C = alpha op(A) op(B) + beta C.", o.Number(), 0.0)
    trans_a: bool = o.flag(TRANS_A, group=o.PROBLEM)
    trans_b: bool = o.flag(TRANS_B, group=o.PROBLEM)
    batch: int = batch_option()
    seed: int = o.problem_option("Seed for generated operands.", o.LENGTH, Policy.seed)
    scope: str | None = o.option(
        "Which time to show: the kernel's alone, that of all device work, or from host memory to host "
        "memory.  "
        "[default: kernel, or device with a library, because libraries report no kernel time]",
        click.Choice((*SCOPES, "all")),
    )
    peak: bool = o.flag(
        "Measure the device's peak after the kernels, unless it is cached.",
        default=True,
        flags=("--peak/--no-peak",),
        group=o.TIMING,
    )
    bandwidth: bool = o.flag(
        "Measure the memory bandwidth too, for the roofline chart. --report does so.", group=o.TIMING
    )
    remeasure: bool = o.flag(
        "Measure the peak (with --bandwidth, both) even if it is cached.", group=o.TIMING
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        _ = self.variants, self.dtypes, self.partner
        names.check_grid(self.variants, self.parameters)
        if self.math is not None and not any(variant.executor == "opencl" for variant in self.variants):
            raise UsageError("--math applies only to OpenCL kernels, and --kernel selects none")
        if len(self.maths) > 1 and self.versus:
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
    def maths(self) -> tuple[str, ...]:
        """The math modes, strict first; "" for each kernel's own flags."""
        maths = names.choose_names(self.math, MATHS, "math") if self.math is not None else ("",)
        return tuple(name for name in ("", *MATHS) if name in maths)

    @cached_property
    def parameters(self) -> dict[str, tuple[int, ...]]:
        return names.choose_params(self.params)

    @cached_property
    def partner(self) -> Variant | None:
        if self.versus is None:
            return None
        by_name = {**ladder.BY_NAME, **{each.name: each for each in self.user_kernels}}
        chosen = names.choose_names(self.versus, tuple(by_name), "kernel")
        if len(chosen) != 1:
            raise UsageError(f"--versus takes one kernel, not {self.versus}")
        return by_name[chosen[0]]

    @property
    def named(self) -> tuple[str, ...]:
        """Kernels asked for by name: tables tell why one cannot run."""
        libraries = (name for name in names.split_names(self.baseline) if name in ladder.BY_NAME)
        return (*names.named_kernels(self.kernels, self.user_kernels), *libraries)

    @property
    def shapes(self) -> tuple[Shape, ...]:
        """The problems; those without a data type are of every type."""
        raise NotImplementedError

    @property
    def left_out(self) -> LeftOut | UnsetType:
        return UNSET

    @property
    def operands(self) -> Operands:
        return Operands()

    @property
    def draws_roofline(self) -> bool:
        is_single = len(self.shapes) == len(self.variants) == 1 and self.chart is None
        return self.bandwidth or bool(self.report) or (self.plot is not None and is_single)

    def _shape(self, m: int, n: int, k: int, ld: Leading | None = None) -> Shape:
        return Shape("", m, n, k, ld, self.trans_a, self.trans_b, self.batch)

    def problems(self, dtype: str) -> list[Problem]:
        shapes = (shape for shape in self.shapes if shape.dtype in (None, dtype))
        return [shape.problem(dtype, self.alpha, self.beta) for shape in shapes]


@dataclass(frozen=True, kw_only=True)
class SquareOptions(GemmCommandOptions):
    """The options of ``square``."""

    command: ClassVar[str] = "square"
    help: ClassVar[str] = """Sweep square problems: m = n = k.

    Sizes are --min, --max and the powers of two between them, or those in --sizes. Every kernel is verified
    before it is timed. The summary gives the size at which the device starts to beat the host's BLAS, with
    transfers.
    """

    min: int | None = o.problem_option("Smallest size.  [default: 64]", o.SIZE)
    max: int | None = o.problem_option("Largest size.  [default: 1024]", o.SIZE, common=True)
    sizes: str | None = o.problem_option(SIZES, metavar="LIST", common=True)

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

    m: int = o.problem_option("Rows of op(A) and C.", o.SIZE, 1024, flags=("-m", "--m"), common=True)
    n: int = o.problem_option("Columns of op(B) and C.", o.SIZE, 1024, flags=("-n", "--n"), common=True)
    k_min: int | None = o.problem_option("Smallest k.  [default: 64]", o.SIZE)
    k_max: int | None = o.problem_option("Largest k.  [default: 2048]", o.SIZE, common=True)
    sizes: str | None = o.problem_option(SIZES, metavar="LIST")

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
    set: str | None = o.problem_option(
        f"Comma-separated: {', '.join(SETS)} or all.  [default: all but llm; none with --file]",
        metavar="NAMES",
        names=(*SETS, "all"),
        common=True,
    )
    file: Path | None = o.problem_option(
        "A log of your program, or CSV. Logs of BLAS libraries and PyTorch traces are read. CSV has the "
        "columns m, n, k and optionally name, lda, ldb, ldc, trans_a, trans_b, batch, dtype, alpha, beta, "
        "calls.",
        o.FILE,
        metavar="FILE",
        common=True,
    )
    dtype: str | None = dtype_option(f"{DTYPES_HELP}  [default: that of the file, or float]", None)
    top: float | None = o.problem_option(
        "Measure only the shapes with this percentage of the predicted time.  "
        f"[default: {_TOP:g} if the file counts calls, otherwise 100]",
        o.Number(0),
        metavar="PERCENT",
    )
    batch: int = o.problem_option("Images or sequences per batch.", o.SIZE, 1)
    prompt: int = o.problem_option("Tokens per prompt.", o.SIZE, PROMPT)

    @cached_property
    def set_names(self) -> tuple[str, ...]:
        if self.set is None:
            return () if self.file else tuple(name for name in SETS if name != "llm")
        words = names.choose_names(self.set, (*SETS, "all"), "set of shapes")
        return tuple(name for name in SETS if name in words or "all" in words)

    def __post_init__(self) -> None:
        if self.top is not None and self.top > 100:
            raise UsageError(f"--top is a percentage of the predicted time, at most 100, not {self.top:g}")
        for option, sizes in (("--batch", (self.batch, PROMPT)), ("--prompt", (1, self.prompt))):
            users = {name for name, each in SETS.items() if each.shapes(*sizes) != each.shapes(1, PROMPT)}
            if users and not users.intersection(self.set_names):
                raise UsageError(f"{option} changes only --set {' and '.join(sorted(users))}")
        super().__post_init__()

    @cached_property
    def dtypes(self) -> tuple[str, ...]:
        own = ",".join(dict.fromkeys(shape.dtype or "float" for shape in self.shapes))
        return names.choose_dtypes(own if self.dtype is None else self.dtype, GEMM_DTYPES)

    @property
    def shapes(self) -> tuple[Shape, ...]:
        return self._selected[0]

    @property
    def left_out(self) -> LeftOut | UnsetType:
        return self._selected[1]

    @cached_property
    def _selected(self) -> tuple[tuple[Shape, ...], LeftOut | UnsetType]:
        """The heaviest shapes, and what they leave out."""
        shapes = [
            replace(shape, trans_a=self.trans_a, trans_b=self.trans_b)
            for name in self.set_names
            for shape in SETS[name].shapes(self.batch, self.prompt)
        ]
        if self.file:
            shapes += read_shapes(self.file, self.trans_a, self.trans_b, self.remarks.append)
        is_given = self.dtype is not None
        every = merge_shapes(
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
    return o.problem_option(help, o.LENGTH, **spec)


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
    a: Path | None = o.problem_option("Your own A (m x k; k x m with --trans-a).", o.INPUT, metavar="A.npy")
    b: Path | None = o.problem_option("Your own B (k x n; n x k with --trans-b).", o.INPUT, metavar="B.npy")
    c: Path | None = o.problem_option("Your own C (m x n), with --beta.", o.INPUT, metavar="C.npy")
    out: Path | None = o.option(
        "Write C to a file; needs one --kernel, --dtype and --device.", o.Output("OUT.npy", folder=False)
    )
    dtype: str | None = dtype_option(f"{DTYPES_HELP}  [default: float]", None)
    scope: str | None = o.hidden(None)

    def __post_init__(self) -> None:
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
        """m, n, k and the files' data type, or ""."""
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
