"""Predicts how long a plan takes, for --dry-run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from gemmbench.gemm.measure import INTERLEAVED_S
from gemmbench.model.case import Case, Plan, Policy
from gemmbench.model.device import HOST, DeviceFacts
from gemmbench.model.instrument import LEAST_SAMPLES, too_slow
from gemmbench.stats.ceilings import upper_bound

# Measured on two quiet cores of a server with Intel's CPU driver. An H200 differs by less than a third.
_START_S = 2.0  # Python, the drivers, two processes, the first control burst
_BUILD_S = 0.4  # of a kernel, once for all its rows: 0.05 s for naive, 1.8 s for cpu-packed
_ROW_S = 0.15  # exact tests, warm-up and control bursts
_ELEMENT_S = 25e-9  # to generate, copy and verify an element of A, B or C, mostly in numpy on one core
_PRODUCTS = 4  # of a row in addition to its samples, most of them verified
_SHARE = 0.1  # of the upper bound for rates, which a kernel reaches on average
_RACE_S = 1.1  # the builds and launches of an arithmetic probe's race, without its samples
_MEMORY_S = 0.7  # of another probe
_ENERGY_S = 2.5


@dataclass(frozen=True)
class Estimate:
    """The time that a plan takes, and how many of its cases are probably over budget."""

    seconds: float
    over_budget: int


def estimate(plan: Plan, devices: Sequence[DeviceFacts], policy: Policy) -> Estimate:
    """Predict the time of a plan on a quiet machine. Cases that are over budget take almost none."""
    cases = [step for step in plan if isinstance(step, Case)]
    gemms = [case for case in cases if case.kind == "gemm"]
    product_s = [_product_s(case, devices) for case in gemms]
    slow = [too_slow(seconds, policy) is not None for seconds in product_s]
    sides = [case for gemm in gemms for case in (gemm, gemm.versus) if case and case.device != HOST]
    kernels = {(case.variant, case.device, case.dtype, *sorted(case.parameters.items())) for case in sides}
    parts = [_START_S * bool(cases), _BUILD_S * len(kernels)]
    for case, seconds, is_over in zip(gemms, product_s, slow, strict=True):
        parts.append(_ROW_S if is_over else _gemm_s(case, seconds, policy))
    for case in cases:
        if case.kind != "gemm":
            parts.append(_RACE_S + policy.budget_s if case.kind == "peak" else _MEMORY_S)
            parts.append(_ENERGY_S * (policy.energy and case.kind == "peak" and not gemms))
    return Estimate(sum(parts), sum(slow))


def _gemm_s(case: Case, product_s: float, policy: Policy) -> float:
    """Predict the time of a row whose product takes `product_s`, without builds."""
    is_pair = bool(case.versus or case.former)
    samples_s = max(policy.budget_s, INTERLEAVED_S * is_pair, LEAST_SAMPLES * product_s)
    verified_s = _ROW_S + _ELEMENT_S * sum(case.gemm.elements_of.values()) + _PRODUCTS * product_s
    return samples_s + verified_s * (2 if is_pair else 1) + _ENERGY_S * policy.energy


def _product_s(case: Case, devices: Sequence[DeviceFacts]) -> float:
    """Guess the time of a case's product from a share of the upper bound; 0 where there is no bound."""
    cpus = [device for device in devices if device.type == "cpu"]
    device = devices[case.device] if case.device != HOST else next(iter(cpus), None)
    bound = upper_bound(device, case.dtype, case.ran_on == "matrix") if device else None
    return case.gemm.flops / (_SHARE * bound.per_second) if bound else 0.0
