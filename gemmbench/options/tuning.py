"""The options of ``tune``."""

# ruff: noqa: RUF009  `option` is `dataclasses.field` with a `Spec`

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import ClassVar, TypeVar

from gemmbench import UsageError
from gemmbench.facts.dtypes import GEMM_DTYPES
from gemmbench.facts.problem import Gemm as Problem
from gemmbench.facts.records import DeviceFacts
from gemmbench.options.declare import (
    CHART,
    FILE,
    INPUT,
    LENGTH,
    SIZE,
    Choice,
    Count,
    Number,
    Options,
    Whole,
    flag,
    option,
)
from gemmbench.options.measuring import device_option
from gemmbench.options.names import check_folder, check_plot_path, choose, choose_dtypes, choose_sizes
from gemmbench.rules import tuning, variants

_Item = TypeVar("_Item")

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
    m: int | None = option("Rows of A and C, for a problem that is not square.", SIZE, flags=("-m",))
    n: int | None = option("Columns of B and C.  [default: m]", SIZE, flags=("-n",))
    k: int | None = option("Columns of A, rows of B.  [default: m]", SIZE, flags=("-k",))
    budget: float = option(
        "For all of it: two thirds to search, the rest to time the best few again.",
        Number(0),
        _TUNE_BUDGET_S,
        metavar="SECONDS",
    )
    strategy: str = option(
        "How to go on after a random sample.", Choice((*tuning.STRATEGIES,)), next(iter(tuning.STRATEGIES))
    )
    seed: int = option("Of the search.", LENGTH, 1)
    device: str = device_option()
    cache: Path | None = option(
        "Every configuration as it is measured; the same command goes on with it.  [default: in the user's "
        "cache folder]",
        INPUT,
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
    top: int = option("Configurations shown.", SIZE, 10, shell=True)
    plot: Path | None = option("Draw the search.", FILE, metavar=CHART)
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
