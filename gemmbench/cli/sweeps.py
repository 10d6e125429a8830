"""``gemmbench square`` and ``gemmbench sweep-k``."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import click
from rich.console import RenderableType

from gemmbench.cli import running
from gemmbench.cli.options import (
    RunOptions,
    alpha_option,
    baseline_option,
    beta_option,
    choose_dtypes,
    choose_kernels,
    choose_params,
    choose_sizes,
    dtype_option,
    kernel_option,
    measuring,
    param_option,
    scope_option,
)
from gemmbench.facts.dtypes import GEMM_DTYPES
from gemmbench.facts.problem import Gemm
from gemmbench.facts.records import DeviceFacts, Run
from gemmbench.render import sweep as tables
from gemmbench.rules.plan import Plan, gemm_plan, peak_plan, quick_widths
from gemmbench.rules.variants import ORDER, Variant

Command = TypeVar("Command", bound=Callable[..., Any])


@dataclass(frozen=True)
class Sweep:
    """What is swept: problems by size, over kernels and data types."""

    axis: str  # m or k
    kernels: tuple[Variant, ...]
    dtypes: tuple[str, ...]
    params: dict[str, int]
    shapes: tuple[tuple[int, int, int], ...]  # m, n, k
    alpha: float
    beta: float
    with_peak: bool

    def plan(self, devices: Sequence[DeviceFacts]) -> Plan:
        """The peaks that rates are held against, then every problem.

        Raises:
            ParameterError: a parameter does not fit.
        """
        steps: Plan = ()
        for dtype in self.dtypes:
            if self.with_peak:
                steps += peak_steps(devices, dtype)
            problems = [Gemm(m, n, k, dtype, self.alpha, self.beta) for m, n, k in self.shapes]
            steps += gemm_plan(devices, self.kernels, problems, self.params)
        return steps


def peak_steps(devices: Sequence[DeviceFacts], dtype: str) -> Plan:
    """A short peak for each device that has the type."""
    steps: Plan = ()
    for index, device in enumerate(devices):
        if dtype in device.dtypes:
            steps += peak_plan([device], [dtype], quick_widths(device, dtype), first=index)
    return steps


def sweep_options(command: Command) -> Command:
    """What both sweeps take beside the shared options."""
    decorated: Any = measuring(command)
    peak_option = click.option(
        "--peak/--no-peak", "with_peak", default=True, show_default=True, help="Measure the peak first."
    )
    sizes_option = click.option(
        "--sizes", metavar="LIST", help="These sizes, with commas, instead of a range."
    )
    for option in (
        peak_option, scope_option, beta_option, alpha_option, param_option, baseline_option, dtype_option,
        kernel_option, sizes_option,
    ):  # fmt: skip
        decorated = option(decorated)
    return decorated  # type: ignore[no-any-return]  # click's decorators keep no signature


def _run(
    options: RunOptions,
    axis: str,
    shapes: tuple[tuple[int, int, int], ...],
    scope: str,
    kernels: str,
    baseline: str,
    dtype: str,
    params: tuple[str, ...],
    alpha: float,
    beta: float,
    with_peak: bool,
) -> None:
    sweep = Sweep(
        axis,
        choose_kernels(kernels, baseline),
        choose_dtypes(dtype, GEMM_DTYPES),
        choose_params(params),
        shapes,
        alpha,
        beta,
        with_peak,
    )

    def table(run: Run) -> RenderableType:
        if scope == "all" or options.verbose:
            return tables.detail(run, ORDER)
        return tables.sweep(run, axis, scope, ORDER)

    running.measure(options, sweep.plan, table)


_size = click.IntRange(min=1)


@click.command()
@click.option("--min", "low", type=_size, help="The smallest size.  [default: 64]")
@click.option("--max", "high", type=_size, default=1024, show_default=True, help="The largest size.")
@sweep_options
def square(options: RunOptions, low: int | None, high: int, sizes: str | None, **rest: Any) -> None:
    """Sweep square problems: m = n = k.

    Sizes are the powers of two from --min to --max, or those of --sizes. Every kernel is verified before it
    is timed; the host's own BLAS runs beside them, and the break-even size says from where the device
    wins with transfers counted.
    """
    chosen = choose_sizes(sizes, low, high)
    _run(options, "m", tuple((size, size, size) for size in chosen), **rest)


@click.command(name="sweep-k")
@click.option("--m", "m", type=_size, default=1024, show_default=True, help="Rows of A and C.")
@click.option("--n", "n", type=_size, default=1024, show_default=True, help="Columns of B and C.")
@click.option("--k-min", "low", type=_size, help="The smallest k.  [default: 64]")
@click.option("--k-max", "high", type=_size, default=2048, show_default=True, help="The largest k.")
@sweep_options
def sweep_k(
    options: RunOptions, m: int, n: int, low: int | None, high: int, sizes: str | None, **rest: Any
) -> None:
    """Sweep k with m and n fixed.

    The write-ups' second experiment: a = c fixed while b varies. k takes the powers of two from --k-min to
    --k-max, or the values of --sizes.
    """
    chosen = choose_sizes(sizes, low, high)
    _run(options, "k", tuple((m, n, size) for size in chosen), **rest)
