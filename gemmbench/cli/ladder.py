"""The options of the commands that measure the ladder, folded into one frozen dataclass, and their plan."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from gemmbench.cli.options import (
    alpha_option,
    baseline_option,
    beta_option,
    choose_dtypes,
    choose_kernels,
    choose_params,
    dtype_option,
    kernel_option,
    measuring,
    optional_kernels,
    param_option,
    peak_option,
    scope_option,
)
from gemmbench.cli.tuned import find_tuned, tuned_option
from gemmbench.facts.dtypes import GEMM_DTYPES
from gemmbench.facts.problem import Gemm
from gemmbench.facts.records import DeviceFacts
from gemmbench.rules.memory import bandwidth_plan
from gemmbench.rules.plan import Plan, fitting, gemm_plan, peak_plan, quick_widths
from gemmbench.rules.variants import Variant
from gemmbench.rules.workloads import Shape

Command = Callable[..., Any]


@dataclass(frozen=True)
class LadderOptions:
    """What is measured on every shape, and how it is shown."""

    kernels: tuple[Variant, ...]
    dtypes: tuple[str, ...]
    params: dict[str, int]
    alpha: float
    beta: float
    with_peak: bool
    scope: str  # one of SCOPES, or all
    optional: frozenset[str] = frozenset()  # kernels that need no row where the device does not run them

    def plan(self, devices: Sequence[DeviceFacts], shapes: Iterable[Shape]) -> Plan:
        """The bandwidth and the peaks that rates are held against, then every shape.

        Raises:
            ParameterError: a parameter does not fit.
        """
        steps: Plan = bandwidth_plan(devices) if self.with_peak else ()
        shapes = tuple(shapes)
        for dtype in self.dtypes:
            if self.with_peak:
                steps += peak_steps(devices, dtype, self.kernels)
            problems = [
                Gemm(shape.m, shape.n, shape.k, dtype, self.alpha, self.beta, shape.name) for shape in shapes
            ]
            cases = gemm_plan(devices, self.kernels, problems, self.params, tuned=find_tuned)
            steps += fitting(cases, self.optional)
        return steps


def peak_steps(devices: Sequence[DeviceFacts], dtype: str, kernels: Iterable[Variant]) -> Plan:
    """A short peak for each device that has the type: of the units that the kernels multiply with."""
    steps: Plan = ()
    matrix = any(kernel.ran_on(dtype) == "matrix" for kernel in kernels if dtype in kernel.dtypes)
    for index, device in enumerate(devices):
        if dtype in device.dtypes:
            steps += peak_plan([device], [dtype], quick_widths(device, dtype), first=index, reach="plain")
        if matrix:
            steps += peak_plan([device], [dtype], (), first=index, reach="matrix")
    return steps


def ladder_options(dtypes: Callable[[Command], Command] = dtype_option) -> Callable[[Command], Command]:
    """The options of every command that measures the ladder; they arrive as ``ladder: LadderOptions``.

    The shared options come with them, as ``options: RunOptions``.

    Args:
        dtypes: the ``--dtype`` option, where its default is another.
    """

    def decorate(command: Command) -> Command:
        def fold(
            kernels: str,
            dtype: str,
            baseline: str,
            params: tuple[str, ...],
            alpha: float,
            beta: float,
            scope: str,
            with_peak: bool,
            **rest: Any,
        ) -> Any:
            ladder = LadderOptions(
                choose_kernels(kernels, baseline),
                choose_dtypes(dtype, GEMM_DTYPES),
                choose_params(params),
                alpha,
                beta,
                with_peak,
                scope,
                optional_kernels(kernels),
            )
            return command(ladder=ladder, **rest)

        fold.__doc__ = command.__doc__
        fold.__name__ = command.__name__
        decorated: Command = measuring(fold)
        for option in (
            peak_option, scope_option, beta_option, alpha_option, tuned_option, param_option, baseline_option,
            dtypes, kernel_option,
        ):  # fmt: skip
            decorated = option(decorated)
        return decorated

    return decorate
