"""Options, each declared once: fields of frozen dataclasses, of which command line and API are made.

A field's default and its `Spec` are what ``--help`` shows, what the command line takes, and what a keyword
argument of the API may be. What options say together is checked in `__post_init__`.
"""

# ruff: noqa: RUF009  `option` is `dataclasses.field` with a `Spec`

from __future__ import annotations

import difflib
import inspect
import math
import operator
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import MISSING, Field, dataclass, field, fields
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Protocol, TypeVar

from gemmbench import UsageError
from gemmbench.facts import chart_files
from gemmbench.facts.compare import thresholds
from gemmbench.facts.compare.basis import PEAK, Rules
from gemmbench.facts.compare.gate import LEAST_ROUNDS, MOST_ROUNDS
from gemmbench.facts.compare.pairing import DIFFERENCES
from gemmbench.facts.compare.thresholds import ThresholdError, Thresholds
from gemmbench.facts.derive import on_matrix_units
from gemmbench.facts.dtypes import GEMM_DTYPES
from gemmbench.facts.kernel_files import MARK
from gemmbench.facts.problem import Gemm as Problem
from gemmbench.facts.records import MEMORY_MODES, SCOPES, DeviceFacts, Policy, Run
from gemmbench.render import export
from gemmbench.rules import memory, tuning, variants
from gemmbench.rules.memory import bandwidth_plan, memory_plan
from gemmbench.rules.operands import OperandError, read_header
from gemmbench.rules.plan import (
    Case,
    FindTuned,
    Operands,
    Plan,
    Reach,
    Skip,
    fitting,
    gemm_plan,
    peak_plan,
    quick_widths,
)
from gemmbench.rules.probes import ALL_DTYPES, PEAK_DTYPES, WIDTHS
from gemmbench.rules.shape_file import ShapeFileError, read_shapes
from gemmbench.rules.variants import ORDER, Variant
from gemmbench.rules.workloads import PROMPT, SETS, Shape, merged

if TYPE_CHECKING:
    from rich.console import RenderableType

DEFAULT_BUDGET_S = 3.0
COMPUTE = "compute"
FAMILIES: dict[str, str] = {COMPUTE: "what arithmetic and matrix units can do", **memory.FAMILIES}
"""What ``peak --only`` takes, in the order of the tables."""

RUN_FORMATS = ("table", *export.FORMATS)
COMPARISON_FORMATS = ("table", "markdown", "junit", "json", "github")
HISTORY_FORMATS = ("table", "markdown", "csv", "json")
EVERY_PROBE = "all"  # of --describe without a name

_ALIASES = {"int8": "char"}  # other names of data types
_BEST = "best"
_GROUPS = {"all": variants.LADDER, "ladder": variants.PUBLISHED, _BEST: variants.BEST}  # of kernels
_DEFAULT_SIZE = 1024

# --- what an option may be ----------------------------------------------------------------------------------


class Kind(Protocol):
    """What an option takes."""

    def convert(self, value: Any) -> Any:
        """The value, from a word of the command line or from Python.

        Raises:
            ValueError: it is no such thing; the message is for the user.
        """


@dataclass(frozen=True)
class Text:
    """Words; from Python also a list of them, or a number."""

    def convert(self, value: Any) -> str:
        """Several are joined with commas."""
        if isinstance(value, (str, int, Path)) and not isinstance(value, bool):
            return str(value)
        if isinstance(value, (list, tuple)):
            return ",".join(map(self.convert, value))
        raise ValueError(f"{value!r} is not a valid string.")


@dataclass(frozen=True)
class Flag:
    """Yes or no."""

    def convert(self, value: Any) -> bool:
        """Nothing stands for another."""
        if isinstance(value, bool):
            return value
        raise ValueError(f"{value!r} is not a valid boolean.")


@dataclass(frozen=True)
class Count:
    """How often a flag is given."""

    def convert(self, value: Any) -> int:
        """True is once."""
        return operator.index(value)


@dataclass(frozen=True)
class Whole:
    """A whole number."""

    least: int
    most: int | None = None

    def convert(self, value: Any) -> int:
        """A number with a fraction is none."""
        try:
            number = int(value) if isinstance(value, str) else operator.index(value)
        except (TypeError, ValueError):
            raise ValueError(f"{value!r} is not a valid integer range.") from None
        if number < self.least or (self.most is not None and number > self.most):
            limits = f"x>={self.least}" if self.most is None else f"{self.least}<=x<={self.most}"
            raise ValueError(f"{number} is not in the range {limits}.")
        return number


@dataclass(frozen=True)
class Number:
    """A number."""

    above: float = -math.inf
    finite: bool = True  # otherwise whoever takes it checks

    def convert(self, value: Any) -> float:
        """Text is read as Python reads it."""
        try:
            number = float(value)
        except (TypeError, ValueError):
            raise ValueError(f"{value!r} is not a valid number.") from None
        if self.finite and not math.isfinite(number):
            raise ValueError(f"{value} is not a finite number")
        if number <= self.above:
            raise ValueError(f"{value} is not above {self.above:g}")
        return number


@dataclass(frozen=True)
class Choice:
    """One of several names."""

    names: tuple[str, ...]

    def convert(self, value: Any) -> str:
        """Names are spelt as they are."""
        if value not in self.names:
            raise ValueError(f"{value!r} is not one of {', '.join(map(repr, self.names))}.")
        return str(value)


@dataclass(frozen=True)
class File:
    """A file's name; whether it exists, and must, is for its reader or writer to find out."""

    folder: bool = True  # it may be a folder

    def convert(self, value: Any) -> Path:
        """Says what the command line says."""
        try:
            path = Path(value)
        except TypeError:
            raise ValueError(f"{value!r} is not the name of a file.") from None
        what = "Path" if self.folder else "File"
        try:
            if not self.folder and path.is_dir():
                raise ValueError(f"{what} {str(path)!r} is a directory.")
            readable = not path.exists() or os.access(path, os.R_OK)
        except OSError:  # a name too long
            return path
        if not readable:
            raise ValueError(f"{what} {str(path)!r} is not readable.")
        return path


@dataclass(frozen=True)
class Spec:
    """How an option is given."""

    help: str
    kind: Kind
    flags: tuple[str, ...] = ()  # unless ``--`` and the field's name
    metavar: str | None = None
    many: bool = False  # it may be repeated; from Python a sequence
    env: str | None = None  # the environment variable that gives it
    bare: str | None = None  # what it is without a value
    shell: bool = False  # only the command line has it

    def words(self, name: str) -> tuple[str, ...]:
        """The words that give it on the command line."""
        return self.flags or (f"--{name.replace('_', '-')}",)


def option(help: str, kind: Kind | None = None, default: Any = None, **spec: Any) -> Any:
    """A dataclass field that is an option; see `Spec`. Without a kind it is text."""
    return field(default=default, metadata={"spec": Spec(help, kind or Text(), **spec)})


def flag(help: str, **spec: Any) -> Any:
    """An option that is on or off, and off unless given."""
    return option(help, Flag(), False, **spec)


def hidden(default: Any) -> Any:
    """A field that a class inherits, and that is no option of it."""
    return field(default=default, init=False)


def specs(kind: type[Options]) -> dict[str, tuple[Spec, Field[Any]]]:
    """The options of a class by field, its own before those it inherits."""
    first: dict[str, int] = {}
    for depth, base in enumerate(reversed(kind.__mro__)):
        for name in inspect.get_annotations(base):
            first.setdefault(name, depth)
    listed = [each for each in fields(kind) if "spec" in each.metadata]
    listed.sort(key=lambda each: -first[each.name])
    return {each.name: (each.metadata["spec"], each) for each in listed}


_T = TypeVar("_T", bound="Options")
_Item = TypeVar("_Item")


def build(kind: type[_T], values: Mapping[str, Any]) -> _T:
    """Options from keyword arguments; None leaves an option at its default.

    Raises:
        UsageError: there is no such option, or a value cannot be used; the sentence is the command line's.
    """
    known = {name: spec for name, (spec, _) in specs(kind).items() if not spec.shell}
    given: dict[str, Any] = {}
    for name, value in values.items():
        if name not in known:
            close = difflib.get_close_matches(name, known, 1)
            hint = f"did you mean {close[0]}?" if close else f"there are {', '.join(known)}"
            raise UsageError(f"{kind.command} has no option {name!r}; {hint}")
        if value is not None:
            given[name] = _converted(name, known[name], value)
    for name, spec in known.items():
        if name not in given and spec.env and (text := os.environ.get(spec.env)):
            given[name] = _converted(name, spec, text)
    return kind(**given)


def _converted(name: str, spec: Spec, value: Any) -> Any:
    try:
        if not spec.many:
            return spec.kind.convert(value)
        if isinstance(value, Mapping):
            value = [f"{key}={item}" for key, item in value.items()]
        several = [value] if isinstance(value, (str, Path)) else value
        return tuple(map(spec.kind.convert, several))
    except (TypeError, ValueError) as error:
        words = " / ".join(f"'{word}'" for word in spec.words(name))
        hint = f"{words} (env var: '{spec.env}')" if spec.env else words
        raise UsageError(f"Invalid value for {hint}: {str(error).rstrip('.')}") from None


def command_line(options: Options) -> tuple[str, ...]:
    """The words of the command line that gives the same options."""
    words = [options.command]
    for name, (spec, each) in specs(type(options)).items():
        value = getattr(options, name)
        if value == each.default and each.default is not MISSING:
            continue
        first = spec.words(name)[0]
        if isinstance(spec.kind, Flag):
            on, _, off = first.partition("/")
            words.append(on if value else off)
        elif isinstance(spec.kind, Count):
            words += [first] * value
        else:
            for item in value if spec.many else (value,):
                words += [first, str(item)]
    return tuple(words)


@dataclass(frozen=True, kw_only=True)
class Options:
    """The options of one command."""

    command: ClassVar[str]

    def __post_init__(self) -> None:
        """Check what the options say together.

        Raises:
            UsageError: they contradict each other, or a file or a name among them cannot be used.
        """


# --- measuring ----------------------------------------------------------------------------------------------

Paths = tuple[Path, ...]
_FILE, _INPUT, _SIZE, _LENGTH = File(), File(folder=False), Whole(1), Whole(0)
_CHART = "FILE.png|svg|pdf"


@dataclass(frozen=True, kw_only=True)
class Measuring(Options):
    """Where a command measures, how long, and what becomes of the result."""

    chart: ClassVar[str | None] = None  # the kind that --plot draws; None for what suits the run
    cached_peaks: ClassVar[bool] = False  # see `suite.run.Request`

    device: str = option(
        "Index (0), platform:device (0:1), part of a name (pocl, intel, h200), several with commas, or all.  "
        "[default: the best found]",
        default="",
        env="GEMMBENCH_DEVICE",
        metavar="WHICH",
    )
    concurrent: bool = flag(
        "Run GEMMs (of peak: bandwidth, transfers) on each device alone, then on all of them at once."
    )
    save: Path | None = option("Save every sample.", _FILE, metavar="FILE.jsonl")
    resume: bool = flag("Go on with a --save file that was interrupted.")
    force: bool = flag("Replace an existing --save file.")
    plot: Path | None = option("Draw the result.", _FILE, metavar=_CHART)
    budget: float | None = option(
        f"Sampling time for each row.  [default: {DEFAULT_BUDGET_S}]", Number(0), metavar="SECONDS"
    )
    time_limit: float | None = option(
        "Stop a row that takes longer altogether.  [default: 60 + 20 x budget]",
        Number(0),
        metavar="SECONDS",
    )
    memory: str | None = option(
        "How operands reach the device.  [default: auto]", Choice(("auto", *MEMORY_MODES))
    )
    cold: bool = flag("Rotate operands past the last-level cache (default: warm).")
    energy: bool = flag("Joules too, where there is a counter (2 to 3 s more for each row).")
    dry_run: bool = flag("Say what would be measured, and measure nothing.", shell=True)
    quiet: bool = flag("No progress, no advice: the table only.", flags=("-q", "--quiet"))
    verbose: int = option("Details: every row, every scope.", Count(), 0, flags=("-v", "--verbose"))

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.resume and self.save is None:
            raise UsageError("--resume needs --save FILE")
        if self.force and self.save is None and self.other_output is None:
            raise UsageError("--force needs --save FILE")
        if self.resume and self.force:
            raise UsageError("--resume keeps the rows that a file has and --force drops them: choose one")
        check_plot_path(self.plot)
        check_save_path(self.save, self.resume or self.force)

    @property
    def other_output(self) -> Path | None:
        """A file beside --save that --force replaces."""
        return None

    @property
    def policy(self) -> Policy:
        """How rows are sampled."""
        budget = DEFAULT_BUDGET_S if self.budget is None else self.budget
        limit = 60 + 20 * budget if self.time_limit is None else self.time_limit
        memory_mode = self.memory or "auto"
        return Policy(
            budget_s=budget, time_limit_s=limit, memory=memory_mode, cold=self.cold, energy=self.energy
        )

    @property
    def uses_presets(self) -> bool:
        """Whether the tuner's presets are used."""
        return False

    @property
    def uses_cached_peaks(self) -> bool:
        """Whether peaks that an earlier run has measured are not measured again."""
        return False

    def plan(self, devices: Sequence[DeviceFacts], find_tuned: FindTuned) -> Plan:
        """What is measured on these devices.

        Raises:
            ParameterError: a parameter does not fit.
            UsageError: the options do not fit these devices.
        """
        raise NotImplementedError

    def table(self, run: Run, verbose: bool) -> RenderableType:
        """The command's own table of a run."""
        from gemmbench.render.show import show

        return show(run, ORDER, verbose)


@dataclass(frozen=True, kw_only=True)
class Peak(Measuring):
    """The options of ``peak``."""

    command: ClassVar[str] = "peak"

    types: str | None = option(
        "Data types of the compute family, several with commas; every probe of a type that is named.  "
        f"[default: {','.join(PEAK_DTYPES)}]",
        metavar="TYPES",
    )
    only: str | None = option(
        f"{', '.join(FAMILIES)}; several with commas.  [default: {COMPUTE}]", metavar="FAMILIES"
    )
    all: bool = flag("Every family, every type, every probe.")
    describe: str | None = option(
        "Say what is measured and how, of every probe or of one, and measure nothing.",
        metavar="[PROBE]",
        bare=EVERY_PROBE,
        shell=True,
    )
    format: str = option("", Choice(RUN_FORMATS), "table", shell=True)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.describe is not None:
            return
        if self.only and self.all:
            raise UsageError("--only chooses families and --all takes every one of them: choose one")
        if self.types is not None and COMPUTE not in self.families:
            raise UsageError(f"--types is for the {COMPUTE} family, which --only leaves out")
        _ = self.dtypes

    @cached_property
    def families(self) -> tuple[str, ...]:
        """The families of probes."""
        return tuple(FAMILIES) if self.all else choose(self.only or COMPUTE, tuple(FAMILIES), "family")

    @cached_property
    def dtypes(self) -> tuple[str, ...]:
        """The data types of the compute family."""
        if self.types is not None:
            return choose_dtypes(self.types, ALL_DTYPES)
        return ALL_DTYPES if self.all else PEAK_DTYPES

    def plan(self, devices: Sequence[DeviceFacts], find_tuned: FindTuned) -> Plan:
        """Compute first, then memory, transfers and latencies."""
        reach: Reach = "every" if self.types is not None or self.all else "quick"
        compute = peak_plan(devices, self.dtypes, WIDTHS, reach=reach) if COMPUTE in self.families else ()
        return compute + memory_plan(devices, self.families)


@dataclass(frozen=True, kw_only=True)
class Ladder(Measuring):
    """What is measured of the GEMM kernels, and how it is shown."""

    kernels: str = option(
        "Several with commas (gemmbench kernels lists them). all: every kernel; ladder: the published ones; "
        "best: gemmbench's own, as far as the device runs them.",
        default="all",
        flags=("--kernel",),
        metavar="NAMES",
    )
    dtype: str | None = option(
        f"{', '.join(GEMM_DTYPES)} (int8); several with commas.", default="float", metavar="TYPES"
    )
    baseline: str = option(
        f"Libraries beside the kernels: {', '.join(variants.BASELINES)}; several with commas, all or none. "
        "numpy is the host's own BLAS, the others run on the device.",
        default="numpy",
        metavar="NAMES",
    )
    params: tuple[str, ...] = option(
        "A kernel parameter other than its preset; may be repeated.",
        default=(),
        flags=("--param",),
        metavar="NAME=VALUE",
        many=True,
    )
    tuned: bool = option(
        "Parameters that `gemmbench tune` has kept for this device, in the place of the shipped ones.",
        Flag(),
        True,
        flags=("--tuned/--no-tuned",),
    )
    alpha: float = option("C = alpha A B + beta C.", Number(), 1.0)
    beta: float = option("C = alpha A B + beta C.", Number(), 0.0)
    scope: str = option(
        "What the table shows: the kernel alone, all device passes, or host memory to host memory.",
        Choice((*SCOPES, "all")),
        "kernel",
    )
    peak: bool = option(
        "Measure peak and bandwidth first, or take them from an earlier run.",
        Flag(),
        True,
        flags=("--peak/--no-peak",),
    )
    remeasure: bool = flag("Measure the peak anew, also if an earlier run has kept it.")

    def __post_init__(self) -> None:
        super().__post_init__()
        _ = self.variants, self.dtypes, choose_params(self.params)

    @cached_property
    def variants(self) -> tuple[Variant, ...]:
        """The kernels and the libraries beside them."""
        return choose_kernels(self.kernels, self.baseline)

    @cached_property
    def dtypes(self) -> tuple[str, ...]:
        """The data types."""
        return choose_dtypes("float" if self.dtype is None else self.dtype, GEMM_DTYPES)

    @property
    def shapes(self) -> tuple[Shape, ...]:
        """The problems, of every data type alike."""
        raise NotImplementedError

    @property
    def uses_presets(self) -> bool:
        """Unless --no-tuned."""
        return self.tuned

    @property
    def uses_cached_peaks(self) -> bool:
        """Unless --remeasure."""
        return not self.remeasure

    def plan(self, devices: Sequence[DeviceFacts], find_tuned: FindTuned) -> Plan:
        """The bandwidth and the peaks that rates are held against, then every shape."""
        steps: Plan = bandwidth_plan(devices) if self.peak else ()
        for dtype in self.dtypes:
            if self.peak:
                steps += peak_steps(devices, dtype, self.variants)
            steps += self._gemms(devices, dtype, find_tuned)
        return steps

    def _gemms(
        self, devices: Sequence[DeviceFacts], dtype: str, find_tuned: FindTuned, own: Operands | None = None
    ) -> Plan:
        problems = [
            Problem(shape.m, shape.n, shape.k, dtype, self.alpha, self.beta, shape.name)
            for shape in self.shapes
        ]
        params = choose_params(self.params)
        cases = gemm_plan(devices, self.variants, problems, params, own, find_tuned)
        return fitting(cases, optional_kernels(self.kernels))

    def every_row(self, verbose: bool) -> bool:
        """Whether the table has a line for each row, with every scope."""
        return verbose or self.scope == "all"


def peak_steps(devices: Sequence[DeviceFacts], dtype: str, kernels: Iterable[Variant]) -> Plan:
    """A short peak for each device that has the type: of the units that the kernels multiply with."""
    steps: Plan = ()
    matrix = any(on_matrix_units(kernel.name, dtype) for kernel in kernels if dtype in kernel.dtypes)
    for index, device in enumerate(devices):
        if dtype in device.dtypes:
            steps += peak_plan([device], [dtype], quick_widths(device, dtype), first=index, reach="plain")
        if matrix:
            steps += peak_plan([device], [dtype], (), first=index, reach="matrix")
    return steps


@dataclass(frozen=True, kw_only=True)
class Sweep(Ladder):
    """Shapes of which one dimension varies, or all of them together."""

    axis: ClassVar[str]  # m with n and k, or k alone

    def __post_init__(self) -> None:
        super().__post_init__()
        _ = self.shapes

    def table(self, run: Run, verbose: bool) -> RenderableType:
        """A line for each size."""
        from gemmbench.render import sweep

        if self.every_row(verbose):
            return sweep.detail(run, ORDER)
        return sweep.sweep(run, self.axis, self.scope, ORDER)


@dataclass(frozen=True, kw_only=True)
class Square(Sweep):
    """The options of ``square``."""

    command: ClassVar[str] = "square"
    axis: ClassVar[str] = "m"

    min: int | None = option("The smallest size.  [default: 64]", _SIZE)
    max: int = option("The largest size.", _SIZE, 1024)
    sizes: str | None = option("These sizes, with commas, instead of a range.", metavar="LIST")

    @cached_property
    def shapes(self) -> tuple[Shape, ...]:
        """m = n = k."""
        return tuple(Shape("", size, size, size) for size in choose_sizes(self.sizes, self.min, self.max))


@dataclass(frozen=True, kw_only=True)
class SweepK(Sweep):
    """The options of ``sweep-k``."""

    command: ClassVar[str] = "sweep-k"
    axis: ClassVar[str] = "k"

    m: int = option("Rows of A and C.", _SIZE, 1024)
    n: int = option("Columns of B and C.", _SIZE, 1024)
    k_min: int | None = option("The smallest k.  [default: 64]", _SIZE)
    k_max: int = option("The largest k.", _SIZE, 2048)
    sizes: str | None = option("These sizes, with commas, instead of a range.", metavar="LIST")

    @cached_property
    def shapes(self) -> tuple[Shape, ...]:
        """m and n are the same for all."""
        sizes = choose_sizes(self.sizes, self.k_min, self.k_max)
        return tuple(Shape("", self.m, self.n, size) for size in sizes)


@dataclass(frozen=True, kw_only=True)
class Precision(Ladder):
    """The options of ``precision``."""

    command: ClassVar[str] = "precision"
    chart: ClassVar[str | None] = "precision"

    sizes: str = option(
        "m = n = k; several with commas give a table each.",
        default=str(_DEFAULT_SIZE),
        flags=("--sizes", "--size"),
        metavar="LIST",
    )
    dtype: str | None = option(
        "Data types, the columns of the table; several with commas.",
        default="half,float,double",
        metavar="TYPES",
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.plot and len(self.dtypes) < 2:
            raise UsageError("--plot holds data types against each other; --dtype has only one")
        _ = self.shapes

    @cached_property
    def shapes(self) -> tuple[Shape, ...]:
        """m = n = k."""
        sizes = choose_sizes(self.sizes, None, _DEFAULT_SIZE)
        return tuple(Shape("", size, size, size) for size in sizes)

    def plan(self, devices: Sequence[DeviceFacts], find_tuned: FindTuned) -> Plan:
        """A kernel's data types one after another, so that both sides of a ratio are close in time."""

        def position(step: Case | Skip) -> tuple[bool, int, int, int]:
            what = step.row if isinstance(step, Skip) else step
            if what.problem is None:
                return False, 0, 0, 0
            return True, max(what.device, 0), what.problem.m, ORDER.index(what.variant)

        return tuple(sorted(super().plan(devices, find_tuned), key=position))

    def table(self, run: Run, verbose: bool) -> RenderableType:
        """Data types side by side."""
        from gemmbench.render import detail, precision

        if self.every_row(verbose):
            return detail.detail(run, ORDER)
        return precision.precision(run, self.scope, ORDER)


@dataclass(frozen=True, kw_only=True)
class Workloads(Ladder):
    """The options of ``workloads``."""

    command: ClassVar[str] = "workloads"

    set: str | None = option(
        f"{', '.join(SETS)} or all; several with commas.  [default: all, or none beside --file]",
        metavar="NAMES",
    )
    file: Path | None = option(
        "Your own shapes: columns m, n, k and, if you like, name.", _FILE, metavar="FILE.csv"
    )
    batch: int = option("Images, or sequences, at once.", _SIZE, 1)
    prompt: int = option("Tokens of a prompt.", _SIZE, PROMPT)

    def __post_init__(self) -> None:
        super().__post_init__()
        _ = self.shapes

    @cached_property
    def set_names(self) -> tuple[str, ...]:
        """The sets, in their own order."""
        if self.set is None:
            return () if self.file else tuple(SETS)
        words = choose(self.set, (*SETS, "all"), "set of shapes")
        return tuple(name for name in SETS if name in words or "all" in words)

    @cached_property
    def shapes(self) -> tuple[Shape, ...]:
        """The shapes of the sets and of the file, each m, n, k once."""
        shapes = [shape for name in self.set_names for shape in SETS[name].shapes(self.batch, self.prompt)]
        if self.file:
            try:
                shapes += read_shapes(self.file)
            except ShapeFileError as error:
                raise UsageError(str(error)) from None
        return merged(shapes)

    def table(self, run: Run, verbose: bool) -> RenderableType:
        """The best kernel for each shape."""
        from gemmbench.render import detail, workloads

        if self.every_row(verbose):
            return detail.detail(run, ORDER)
        return workloads.workloads(run, self.scope, ORDER)


@dataclass(frozen=True, kw_only=True)
class Gemm(Ladder):
    """The options of ``gemm``."""

    command: ClassVar[str] = "gemm"
    chart: ClassVar[str | None] = "ladder"

    m: int | None = option(f"Rows of A and C.  [default: {_DEFAULT_SIZE}]", _LENGTH, flags=("-m",))
    n: int | None = option("Columns of B and C.  [default: m]", _LENGTH, flags=("-n",))
    k: int | None = option("Columns of A, rows of B.  [default: m]", _LENGTH, flags=("-k",))
    a: Path | None = option("Your own A (m x k).", _INPUT, metavar="A.npy")
    b: Path | None = option("Your own B (k x n).", _INPUT, metavar="B.npy")
    c: Path | None = option("Your own C (m x n), for beta.", _INPUT, metavar="C.npy")
    out: Path | None = option("Write the result; needs one --kernel.", _INPUT, metavar="OUT.npy")
    dtype: str | None = option(
        f"{', '.join(GEMM_DTYPES)} (int8); several with commas.  [default: float]", metavar="TYPES"
    )
    scope: str = hidden("kernel")

    def __post_init__(self) -> None:
        super().__post_init__()
        if any((self.a, self.b, self.c)):
            if self.dtype not in (None, self._size[3]):
                raise UsageError(f"the files hold {self._size[3]}, but --dtype is {self.dtype}")
            if self.c and self.beta == 0:
                raise UsageError("--c is given but beta is 0, so it would not be read; give --beta too")
            if not self.c and self.beta != 0:
                raise UsageError(
                    f"--beta {self.beta:g} adds to C, but there is no --c; give it, or leave --beta out"
                )
        if self.out:
            if len(self.variants) != 1 or len(self.dtypes) != 1:
                raise UsageError("--out needs exactly one --kernel and one --dtype, whose result it holds")
            check_folder("--out", self.out)
            if self.out.exists() and not self.force:
                raise UsageError(f"--out {self.out} exists already; --force replaces it")

    @property
    def other_output(self) -> Path | None:
        """The result."""
        return self.out

    @cached_property
    def variants(self) -> tuple[Variant, ...]:
        """The kernels and libraries; no library where a result is written."""
        return choose_kernels(self.kernels, "none" if self.out else self.baseline)

    @cached_property
    def dtypes(self) -> tuple[str, ...]:
        """The data types, or that of the files."""
        dtype = self._size[3] if any((self.a, self.b, self.c)) else self.dtype
        return choose_dtypes(dtype or "float", GEMM_DTYPES)

    @property
    def shapes(self) -> tuple[Shape, ...]:
        """One."""
        return (Shape("", *self._size[:3]),)

    @cached_property
    def _size(self) -> tuple[int, int, int, str]:
        """m, n, k and the data type of the files, if there are any.

        Only the files' first bytes are read: the elements are the business of the process that multiplies.

        Raises:
            UsageError: a file cannot be read, or sizes or types disagree.
        """
        if not any((self.a, self.b, self.c)):
            m = _DEFAULT_SIZE if self.m is None else self.m
            return m, m if self.n is None else self.n, m if self.k is None else self.k, ""
        given = (("m", self.m), ("n", self.n), ("k", self.k))
        lengths = {axis: (length, f"-{axis}") for axis, length in given if length is not None}
        dtype: tuple[str, Path] | None = None
        for path, rows, columns in ((self.a, "m", "k"), (self.b, "k", "n"), (self.c, "m", "n")):
            if path is None:
                continue
            path = path.absolute()
            try:
                header = read_header(str(path))
            except OperandError as error:
                raise UsageError(str(error)) from None
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

    def plan(self, devices: Sequence[DeviceFacts], find_tuned: FindTuned) -> Plan:
        """The peaks that rates are held against, unless there is nothing to multiply, then every kernel."""
        if self.out and len(devices) > 1:
            raise UsageError("--out needs exactly one --device, whose result it holds")
        files = (self.a, self.b, self.c, self.out)
        own = Operands(*(str(file.absolute()) if file else None for file in files))
        steps: Plan = ()
        for dtype in self.dtypes:
            if self.peak and all(self._size[:3]):
                steps += peak_steps(devices, dtype, self.variants)
            steps += self._gemms(devices, dtype, find_tuned, own)
        return steps

    def table(self, run: Run, verbose: bool) -> RenderableType:
        """A page for each kernel."""
        from gemmbench.render.gemm import gemm

        return gemm(run)


# --- comparing ----------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class Comparing(Options):
    """How runs are compared, and what becomes of the verdicts."""

    threshold: str | None = option(
        "How much longer a row may take: '5 %' or 0.05.  [default: 5 %]", metavar="PERCENT"
    )
    thresholds: Path | None = option(
        "Thresholds for single rows, by variant, type and size.", _FILE, metavar="FILE.toml"
    )
    noise: Paths = option(
        "An A/A measurement of this machine (check --aa --save) for the noise floor; may be repeated.",
        _FILE,
        (),
        many=True,
        metavar="FILE.jsonl",
    )
    confidence: float = option(
        "Of the interval of each ratio.", Number(finite=False), 95.0, metavar="PERCENT"
    )
    scope: str = option(
        "Which time is compared; finest: the kernel's, or the host's for what runs there.",
        Choice(("finest", *SCOPES)),
        "finest",
    )
    ratio: str | None = option(
        "Compare ratios inside one run: every row over this kernel, numpy, or peak; of several names the "
        "first that a row has.",
        metavar="NAMES",
    )
    across: str | None = option(
        f"Compare although these differ: {', '.join(DIFFERENCES)}; several with commas.", metavar="WHAT"
    )
    missing: str = option(
        "Whether a row of the base that could not be compared fails.",
        Choice(("tell", "fail")),
        "tell",
        shell=True,
    )
    strict: bool = flag("Rows that may be slower fail too, with exit status 3.", shell=True)
    format: str = option("", Choice(COMPARISON_FORMATS), "table", shell=True)
    write: tuple[str, ...] = option(
        "Write a format into a file as well: junit=report.xml; may be repeated.",
        default=(),
        many=True,
        metavar="FORMAT=FILE",
        shell=True,
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 50 < self.confidence < 100:  # NaN is on neither side
            raise UsageError(f"--confidence is above 50 and below 100, not {self.confidence:g}")
        _ = self.rules, self.written

    @cached_property
    def rules(self) -> Rules:
        """Thresholds, confidence, scope and mode."""
        differences = () if self.across is None else choose(self.across, tuple(DIFFERENCES), "difference")
        return Rules(
            thresholds=threshold_of(self.threshold, self.thresholds),
            confidence=self.confidence / 100,
            scope=time_scope(self.scope),
            ratio=references(self.ratio),
            across=frozenset(differences),
            in_turn=self.in_turn,
        )

    @property
    def in_turn(self) -> bool:
        """Whether each kernel takes turns with its previous version."""
        return False

    @cached_property
    def written(self) -> tuple[tuple[str, Path], ...]:
        """The formats of --write, and their files."""
        return tuple(map(_format_and_file, self.write))

    def check_paths(self, runs: Iterable[Path], plot: Path | None, save: Path | None = None) -> None:
        """Find out beforehand whether everything can be written, and that nothing is written over.

        Args:
            runs: files that are compared.
            plot: ``--plot``.
            save: ``--save``.

        Raises:
            UsageError: a file cannot be written, or is also read, or also written by another option.
        """
        check_plot_path(plot)
        for _, path in self.written:
            check_folder("--write", path)
        outputs = [(name, path) for name, path in (("--save", save), ("--plot", plot)) if path is not None]
        outputs += [("--write", path) for _, path in self.written]
        inputs = [("", path) for path in runs] + [("--noise ", path) for path in self.noise]
        inputs += [("--thresholds ", self.thresholds)] if self.thresholds else []
        check_overwriting(outputs, inputs)


@dataclass(frozen=True, kw_only=True)
class Compare(Comparing):
    """The options of ``compare``."""

    command: ClassVar[str] = "compare"

    plot: Path | None = option("Draw the ratios.", _FILE, metavar=_CHART)
    verbose: bool = flag("Every row, also where many are the same.", flags=("-v", "--verbose"), shell=True)


@dataclass(frozen=True, kw_only=True)
class Check(Comparing, Measuring):
    """The options of ``check``; what is None is the base's."""

    command: ClassVar[str] = "check"

    aa: int | None = option(
        "Compare nothing: measure the cases so many times, and say which threshold this machine carries.",
        Whole(2),
        metavar="TIMES",
    )
    rounds: int = option(
        "Measure a suspicious row again at most so many times.", Whole(LEAST_ROUNDS), MOST_ROUNDS
    )
    patience: float = option(
        "Measure suspicious rows again for at most so long altogether.",
        Number(finite=False),
        600.0,
        metavar="SECONDS",
    )
    against: Path | None = option(
        "Time every kernel in turn with itself as it is in this folder: the kernels that the base was "
        "measured with.",
        _FILE,
        metavar="FOLDER",
    )
    device: str = option(
        "Index (0), platform:device (0:1), part of a name (pocl, intel, h200), several with commas, or all.  "
        "[default: the base's, by name]",
        default="",
        env="GEMMBENCH_DEVICE",
        metavar="WHICH",
    )
    concurrent: bool = hidden(False)
    resume: bool = hidden(False)
    budget: float | None = option(
        "Sampling time for each row.  [default: the base's]", Number(0), metavar="SECONDS"
    )
    time_limit: float | None = option(
        "Stop a row that takes longer altogether.  [default: the base's; with --budget 60 + 20 x budget]",
        Number(0),
        metavar="SECONDS",
    )
    memory: str | None = option(
        "How operands reach the device.  [default: as in the base]", Choice(("auto", *MEMORY_MODES))
    )
    cold: bool = flag("Rotate operands past the last-level cache.  [default: as in the base]")

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.patience >= 0:  # NaN is on neither side
            raise UsageError(f"--patience is 0 or more, not {self.patience:g}")
        if self.aa:
            formats = ("table", "markdown", "json")
            if odd := {self.format, *(form for form, _ in self.written)} - {*formats}:
                raise UsageError(
                    f"--aa compares nothing: it has no {sorted(odd)[0]}, but {', '.join(formats)}"
                )
            if self.plot:
                raise UsageError("--aa draws no chart: it compares nothing")
        if self.against is not None:
            self._check_against(self.against)

    @property
    def in_turn(self) -> bool:
        """With --against."""
        return self.against is not None

    def _check_against(self, folder: Path) -> None:
        try:
            has_kernels = (folder / MARK).is_file()
        except OSError:  # no permission, too long a name
            has_kernels = False
        if not has_kernels:
            raise UsageError(f"--against {folder} is no folder of kernels: it has no {MARK}")
        if self.aa:
            raise UsageError("--aa compares nothing: it takes no --against")
        if self.rules.ratio:
            raise UsageError("--against holds each kernel against its former self: it takes no --ratio")
        if self.noise:
            raise UsageError("--against shows its own noise: it takes no --noise")
        if self.energy:
            raise UsageError("--against runs two kernels in turn: it takes no --energy")


@dataclass(frozen=True, kw_only=True)
class History(Options):
    """The options of ``history``."""

    command: ClassVar[str] = "history"

    threshold: str | None = option(
        "How large a change must be to count: '5 %' or 0.05.  [default: 5 %]", metavar="PERCENT"
    )
    scope: str = option(
        "Which time is compared; finest: the kernel's, or the host's for what runs there.",
        Choice(("finest", *SCOPES)),
        "finest",
    )
    ratio: str | None = option(
        "Compare ratios inside one run: every row over this kernel, numpy, or peak; of several names the "
        "first that a row has.",
        metavar="NAMES",
    )
    format: str = option("", Choice(HISTORY_FORMATS), "table", shell=True)
    plot: Path | None = option("Draw the rows.", _FILE, metavar=_CHART)
    verbose: bool = flag("Every row, also where many are steady.", flags=("-v", "--verbose"), shell=True)

    def __post_init__(self) -> None:
        super().__post_init__()
        check_plot_path(self.plot)
        _ = self.rules

    @cached_property
    def rules(self) -> Rules:
        """Thresholds, scope and mode."""
        return Rules(threshold_of(self.threshold), scope=time_scope(self.scope), ratio=references(self.ratio))


# --- tuning -------------------------------------------------------------------------------------------------

_TUNE_BUDGET_S = 300.0
_CONFIGURATION_LIMIT_S = 30.0  # to build, verify and look
_MOST_BUILDERS = 8


@dataclass(frozen=True, kw_only=True)
class Tune(Options):
    """The options of ``tune``."""

    command: ClassVar[str] = "tune"

    kernel: str | None = option("The kernel to tune (gemmbench kernels lists them).", metavar="NAME")
    dtype: str | None = option("The data type.  [default: float]", metavar="TYPE")
    sizes: str | None = option(
        "m = n = k; several with commas count alike.  [default: by device]", metavar="LIST"
    )
    m: int | None = option("Rows of A and C, for a problem that is not square.", _SIZE, flags=("-m",))
    n: int | None = option("Columns of B and C.  [default: m]", _SIZE, flags=("-n",))
    k: int | None = option("Columns of A, rows of B.  [default: m]", _SIZE, flags=("-k",))
    budget: float = option(
        "For all of it: two thirds to search, the rest to time the best few again.",
        Number(0),
        _TUNE_BUDGET_S,
        metavar="SECONDS",
    )
    strategy: str = option(
        "How to go on after a random sample.", Choice((*tuning.STRATEGIES,)), next(iter(tuning.STRATEGIES))
    )
    seed: int = option("Of the search.", _LENGTH, 1)
    device: str = option(
        "Index (0), platform:device (0:1), part of a name (pocl, intel, h200), several with commas, or all.  "
        "[default: the best found]",
        default="",
        env="GEMMBENCH_DEVICE",
        metavar="WHICH",
    )
    cache: Path | None = option(
        "Every configuration as it is measured; the same command goes on with it.  [default: in the user's "
        "cache folder]",
        _INPUT,
        metavar="FILE.jsonl",
    )
    force: bool = flag("Drop what the cache file holds.")
    time_limit: float = option(
        "Stop a configuration that takes longer altogether.",
        Number(0),
        _CONFIGURATION_LIMIT_S,
        metavar="SECONDS",
    )
    builders: int | None = option(
        "Processes that compile ahead.  [default: half the cores, 4 at most; none on a CPU, which they would "
        "disturb]",
        Whole(0, _MOST_BUILDERS),
    )
    top: int = option("Configurations shown.", _SIZE, 10, shell=True)
    plot: Path | None = option("Draw the search.", _FILE, metavar=_CHART)
    dry_run: bool = flag("Say how large the space is, and measure nothing.", shell=True)
    forget: bool = flag("Drop what was kept for the device (and --kernel, --dtype).", shell=True)
    quiet: bool = flag("No progress, no advice: the table only.", flags=("-q", "--quiet"))
    verbose: int = option("A line for every configuration.", Count(), 0, flags=("-v", "--verbose"))

    def __post_init__(self) -> None:
        super().__post_init__()
        _ = self.only_dtype
        if self.kernel is None and not self.forget:
            raise UsageError("--kernel is missing: which kernel to tune (gemmbench kernels lists them)")
        _ = self.variant
        check_plot_path(self.plot)
        if self.cache:
            check_folder("--cache", self.cache)

    @cached_property
    def only_dtype(self) -> str:
        """The data type."""
        return only(choose_dtypes("float" if self.dtype is None else self.dtype, GEMM_DTYPES), "--dtype")

    @cached_property
    def variant(self) -> str | None:
        """The kernel's name."""
        if self.kernel is None:
            return None
        return only(choose(self.kernel, variants.LADDER, "kernel"), "--kernel")

    def problems(self, device: DeviceFacts) -> tuple[Problem, ...]:
        """What the search measures on a device.

        Raises:
            UsageError: sizes are given twice, or in part.
        """
        dtype = self.only_dtype
        if self.m is None:
            if self.n is not None or self.k is not None:
                raise UsageError("-n and -k need -m")
            if self.sizes is None:
                return tuning.default_problems(device, dtype)
            return tuple(Problem(size, size, size, dtype) for size in choose_sizes(self.sizes, None, 1))
        if self.sizes is not None:
            raise UsageError("--sizes is for square problems and -m for others: choose one")
        return (Problem(self.m, self.n or self.m, self.k or self.m, dtype),)


def only(chosen: Sequence[_Item], option: str) -> _Item:
    """The one that a tuner takes.

    Raises:
        UsageError: there are several.
    """
    if len(chosen) > 1:
        raise UsageError(f"tune takes one {option} at a time, not {len(chosen)}")
    return chosen[0]


# --- names, sizes and files ---------------------------------------------------------------------------------


def choose_dtypes(text: str, known: Sequence[str]) -> tuple[str, ...]:
    """Data types from a comma-separated list, in the order given.

    Raises:
        UsageError: one is unknown.
    """
    return choose(",".join(_ALIASES.get(word, word) for word in _words(text)), known, "data type")


def choose_kernels(text: str, baseline: str = "none") -> tuple[Variant, ...]:
    """Variants from a comma-separated list, in ladder order, and the baselines of another after them.

    Raises:
        UsageError: one is unknown.
    """
    names = {name for word in _kernel_words(text) for name in _GROUPS.get(word, (word,))}
    names.update(choose_baselines(baseline))
    return tuple(variants.BY_NAME[name] for name in variants.ORDER if name in names)


def optional_kernels(text: str) -> frozenset[str]:
    """The kernels that only ``best`` asks for: those that a device does not run need no row."""
    words = _kernel_words(text)
    named = {name for word in words if word != _BEST for name in _GROUPS.get(word, (word,))}
    return frozenset(variants.BEST) - named if _BEST in words else frozenset()


def choose_baselines(text: str) -> tuple[str, ...]:
    """Libraries from a comma-separated list, ``all`` or ``none``.

    Raises:
        UsageError: one is unknown, or ``none`` is not alone.
    """
    words = choose(text, (*variants.BASELINES, "all", "none"), "baseline")
    if "none" in words:
        if len(words) > 1:
            raise UsageError(f"--baseline {text}: none stands alone")
        return ()
    return variants.BASELINES if "all" in words else words


def _kernel_words(text: str) -> tuple[str, ...]:
    return choose(text, (*variants.ORDER, *_GROUPS), "kernel")


def choose_params(texts: Iterable[str]) -> dict[str, int]:
    """``NAME=VALUE`` options as a dictionary.

    Raises:
        UsageError: one has no ``=`` or its value is not a whole number.
    """
    chosen = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals or not value.strip().isdecimal():
            raise UsageError(f"--param takes NAME=VALUE with a whole number, not {text!r}")
        chosen[name.strip()] = int(value)
    return chosen


def choose_sizes(text: str | None, low: int | None, high: int, default_low: int = 64) -> tuple[int, ...]:
    """Sizes from a list, or the powers of two from ``low`` to ``high`` with both ends.

    Where no ``low`` is asked for, ``default_low`` gives way to a smaller ``high``.

    Raises:
        UsageError: a size is not a whole number of 1 or more, or the range is empty.
    """
    if text is not None:
        words = _words(text)
        if not all(word.isdecimal() and int(word) > 0 for word in words) or not words:
            raise UsageError(f"--sizes takes whole numbers of 1 or more with commas, not {text!r}")
        return tuple(sorted({int(word) for word in words}))
    if low is None:
        low = min(default_low, high)
    if low > high:
        raise UsageError(f"the smallest size, {low}, is above the largest, {high}")
    powers = [1 << bit for bit in range(low.bit_length() - 1, high.bit_length()) if low < 1 << bit < high]
    return tuple(sorted({low, *powers, high}))


def _words(text: str) -> list[str]:
    return [word.strip() for word in text.split(",") if word.strip()]


def choose(text: str, known: Sequence[str], what: str) -> tuple[str, ...]:
    """Names from a comma-separated list, in the order given, none twice.

    Raises:
        UsageError: one is unknown, or there are none.
    """
    words = _words(text)
    if not words:
        raise UsageError(f"no {what} is given; there are {', '.join(known)}")
    for word in words:
        if word not in known:
            close = difflib.get_close_matches(word, known, 1)
            hint = f"did you mean {close[0]}?" if close else f"there are {', '.join(known)}"
            raise UsageError(f"unknown {what} {word!r}; {hint}")
    return tuple(dict.fromkeys(words))


def check_plot_path(path: Path | None) -> None:
    """Find out before measuring whether a chart can be written there.

    Raises:
        UsageError: another format than PNG, SVG or PDF, or a folder that does not exist.
    """
    if path is None:
        return
    if path.suffix.lower() not in chart_files.SUFFIXES:
        raise UsageError(f"--plot {path}: a chart is a {', '.join(chart_files.SUFFIXES)} file")
    check_folder("--plot", path)


def check_save_path(path: Path | None, overwrite: bool) -> None:
    """Find out before measuring whether a run can be saved there.

    Raises:
        UsageError: the file exists, or its folder does not.
    """
    if path is None:
        return
    check_folder("--save", path)
    if path.exists() and not overwrite:
        raise UsageError(f"{path} exists already; --resume goes on with it, --force replaces it")


def check_folder(option: str, path: Path) -> None:
    """Find out before measuring whether a file can be written there.

    Raises:
        UsageError: its folder does not exist or may not be written to, or it is a folder itself.
    """
    try:
        if not path.parent.is_dir():
            raise UsageError(f"{option} {path}: there is no folder {path.parent}")
        if path.is_dir():
            raise UsageError(f"{option} {path}: it is a folder")
        target = path if path.exists() else path.parent
    except OSError as error:  # a name too long, a folder that may not be entered
        raise UsageError(f"{option} {path}: {(error.strerror or str(error)).lower()}") from None
    if not os.access(target, os.W_OK):
        raise UsageError(f"{option} {path}: permission denied")


def check_overwriting(outputs: Sequence[tuple[str, Path]], inputs: Sequence[tuple[str, Path]]) -> None:
    """Find out beforehand that no file is written over another that is read or written, too.

    Args:
        outputs: option and file.
        inputs: what is said before the file's name, and the file.

    Raises:
        UsageError: one would be.
    """
    for number, (option, path) in enumerate(outputs):
        if path.exists() and not path.is_file():  # such as /dev/stdout
            continue
        for role, other in inputs:
            if _same_file(path, other):
                raise UsageError(f"{option} {path} would replace {role}{other}, which is read")
        for role, other in outputs[:number]:
            if _same_file(path, other):
                raise UsageError(f"{option} {path} would replace {role} {other}")


def _same_file(one: Path, other: Path) -> bool:
    """Whether two names are of one file, also by a link, and also if it does not exist yet."""
    try:
        return one.samefile(other)
    except OSError:
        return os.path.realpath(one) == os.path.realpath(other)


def time_scope(name: str) -> str | None:
    """What ``--scope`` means to a comparison."""
    return None if name == "finest" else name


def references(text: str | None) -> tuple[str, ...]:
    """What ``--ratio`` names.

    Raises:
        UsageError: one is neither a kernel nor a library nor the peak.
    """
    return choose(text, (*variants.ORDER, PEAK), "reference") if text is not None else ()


def threshold_of(text: str | None, path: Path | None = None) -> Thresholds:
    """What ``--threshold`` and ``--thresholds`` say.

    Raises:
        UsageError: one cannot be taken.
    """
    try:
        default = thresholds.parse(text) if text is not None else None
    except ThresholdError as error:
        raise UsageError(f"--threshold: {error}") from None
    try:
        if path is not None:
            return thresholds.load(path, default)
    except ThresholdError as error:
        raise UsageError(f"--thresholds {error}") from None
    return Thresholds(default) if default is not None else Thresholds()


def _format_and_file(text: str) -> tuple[str, Path]:
    form, equals, name = text.partition("=")
    if not equals or not name or form not in COMPARISON_FORMATS:
        raise UsageError(
            f"--write takes FORMAT=FILE with one of {', '.join(COMPARISON_FORMATS)}, not {text!r}"
        )
    return form, Path(name)
