"""devices x variants x problems -> cases and rows that need no running. Pure: no device is touched."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from gemmbench.facts.dtypes import DTYPES
from gemmbench.facts.problem import Gemm
from gemmbench.facts.records import DeviceFacts, Kind, Parameters, Problem, Row, RowKey, Status, row_key
from gemmbench.facts.units import size
from gemmbench.rules import variants
from gemmbench.rules.probes import FLOPS, PROBES, QUICK, WIDTHS
from gemmbench.rules.variants import Variant

_INDEX_LIMIT = 2**31 - 1  # kernels count elements in 32-bit integers


@dataclass(frozen=True)
class Operands:
    """The user's own matrices: .npy files; None means generated (A, B) or zeros (C)."""

    a: str | None = None
    b: str | None = None
    c: str | None = None
    out: str | None = None  # where the result goes


@dataclass(frozen=True)
class Case:
    """One thing to verify and measure."""

    kind: Kind
    device: int  # position in the header's devices; -1 for the host
    variant: str
    dtype: str
    parameters: Parameters
    problem: Gemm | None = None
    source: str = ""
    operands: Operands = field(default_factory=Operands)

    @property
    def key(self) -> RowKey:
        """The key of the row it will become."""
        problem = saved_problem(self.problem) if self.problem else None
        return row_key(self.kind, self.device, self.variant, self.dtype, self.parameters, problem)

    @property
    def label(self) -> str:
        """For people, in progress lines."""
        if self.problem:
            name = f"{self.problem.label} " if self.problem.label else ""
            return f"{self.variant} {self.dtype} {name}{self.problem.shape}"
        width = self.parameters.get("width", 1)
        others = [
            f" {size(int(value)) if name == 'bytes' else value}"
            for name, value in self.parameters.items()
            if name != "width"
        ]
        return f"{self.variant} {self.dtype}{width if width != 1 else ''}{''.join(others)}"

    def row(self, status: Status, reason: str = "") -> Row:
        """A row for this case without a result."""
        return Row(
            kind=self.kind,
            device=self.device,
            variant=self.variant,
            dtype=self.dtype,
            parameters=self.parameters,
            status=status,
            reason=reason,
            problem=saved_problem(self.problem) if self.problem else None,
            label=self.problem.label if self.problem else "",
            source=self.source,
        )


@dataclass(frozen=True)
class Skip:
    """A case that is not worth starting: its row says why."""

    row: Row


Plan = tuple[Case | Skip, ...]
Reach = Literal["plain", "quick", "every"]


def saved_problem(problem: Gemm) -> Problem:
    """The problem as a row stores it (the data type is the row's own field)."""
    return Problem(problem.m, problem.n, problem.k, problem.alpha, problem.beta)


def gemm_plan(
    devices: Sequence[DeviceFacts],
    chosen: Sequence[Variant],
    problems: Iterable[Gemm],
    overrides: Mapping[str, int] | None = None,
    operands: Operands | None = None,
) -> Plan:
    """Every variant on every problem and device, problem by problem, so that variants are interleaved.

    Raises:
        variants.ParameterError: an override does not fit a variant that has that parameter, or none has it.
    """
    _check_overrides(chosen, overrides or {})
    plan: list[Case | Skip] = []
    problems = tuple(problems)
    for index, device in enumerate(devices):
        for problem in problems:
            for variant in chosen:
                if variant.executor == "opencl":
                    plan.append(_gemm_case(index, device, variant, problem, overrides or {}, operands))
                elif index == 0:  # the host's own BLAS is measured once, among the first device's rows
                    plan.append(_host_case(variant, problem, operands))
    return tuple(plan)


def peak_plan(
    devices: Sequence[DeviceFacts],
    dtypes: Sequence[str],
    widths: Sequence[int],
    first: int = 0,
    reach: Reach = "quick",
) -> Plan:
    """The compute probes of some types, for every device.

    Args:
        devices: to run on.
        dtypes: operand types.
        widths: vector widths, for the probes that have them.
        first: the first device's position.
        reach: which probes: ``plain`` multiply-adds; ``quick``: these, and the matrix units that a device
            has; ``every``: all there are, with a row for each that a device cannot run.
    """
    chosen = {"plain": (FLOPS,), "quick": QUICK, "every": tuple(PROBES.values())}[reach]
    plan: list[Case | Skip] = []
    for index, device in enumerate(devices, first):
        for dtype in dtypes:
            for probe in (probe for probe in chosen if dtype in probe.dtypes):
                lacks = probe.lacks(device, dtype)
                if lacks and probe is not FLOPS and reach != "every":
                    continue
                for parameters in probe.cases(dtype, widths):
                    source = probe.fingerprint(dtype, parameters)
                    case = Case("peak", index, probe.name, dtype, parameters, source=source)
                    plan.append(Skip(case.row("unsupported", lacks)) if lacks else case)
    return tuple(plan)


def quick_widths(device: DeviceFacts, dtype: str) -> tuple[int, ...]:
    """The vector widths likely to hold a device's peak: scalar, its native width, and 16 on a CPU."""
    native = min(device.vector_widths.get(dtype, 1), max(WIDTHS))  # OpenCL C has vectors of 16 at most
    return tuple(sorted({1, *([native, 16] if device.type == "cpu" else [min(native, 4), 2])} - {0}))


def unsupported_type(device: DeviceFacts, dtype: str) -> str:
    """Why a device cannot compute with a data type, or ""."""
    if dtype in device.dtypes:
        return ""
    extension = DTYPES[dtype].extension
    return f"the device does not list {extension}" if extension else f"the device has no {dtype}"


def _gemm_case(
    index: int,
    device: DeviceFacts,
    variant: Variant,
    problem: Gemm,
    overrides: Mapping[str, int],
    operands: Operands | None,
) -> Case | Skip:
    mine = {name: value for name, value in overrides.items() if name in variant.parameters}
    parameters = variant.preset(device.family, mine, problem.dtype)
    full = {**parameters, **variant.chosen(problem, device, parameters)}
    case = Case(
        "gemm",
        index,
        variant.name,
        problem.dtype,
        dict(parameters),
        problem,
        variant.fingerprint(problem.dtype, parameters),
        operands or Operands(),
    )
    reason = _unsupported(device, variant, problem, full)
    if reason:
        return Skip(case.row("unsupported", reason))
    reason = _too_large(device, variant, problem, full)
    return Skip(case.row("skipped", reason)) if reason else case


def _host_case(variant: Variant, problem: Gemm, operands: Operands | None) -> Case | Skip:
    case = Case("gemm", -1, variant.name, problem.dtype, {}, problem, "", operands or Operands())
    if problem.dtype not in variant.dtypes:
        return Skip(case.row("unsupported", f"{variant.name} has no BLAS for {problem.dtype}"))
    return case


def _unsupported(device: DeviceFacts, variant: Variant, problem: Gemm, parameters: Mapping[str, int]) -> str:
    """Why this device cannot run this variant at any size, or ""."""
    if problem.dtype not in variant.dtypes:
        return f"{variant.name} is written for {', '.join(variant.dtypes)}"
    reason = unsupported_type(device, problem.dtype)
    if reason:
        return reason
    for extension in variant.extensions(parameters):
        if not any(name in device.extensions for name in extension.split("|")):
            return f"the device does not list {extension.replace('|', ' or ')}"
    if variant.images and not device.images:
        return "the device has no images"
    local = variant.local_elements(parameters) * DTYPES[problem.dtype].itemsize
    if local > device.local_mem_bytes:
        return f"needs {size(local)} of local memory, the device has {size(device.local_mem_bytes)}"
    values = variant.values(problem, parameters)
    for step in variant.steps(values):
        group = step.group(values)
        if math.prod(group) > device.max_work_group_size:
            return f"needs work-groups of {math.prod(group)}, the device takes {device.max_work_group_size}"
        for wanted, most in zip(group, device.max_work_item_sizes, strict=False):
            if wanted > most:
                return f"needs {wanted} work-items in one direction of a group, the device takes {most}"
    return ""


def _too_large(device: DeviceFacts, variant: Variant, problem: Gemm, parameters: Mapping[str, int]) -> str:
    """Why this problem does not fit this device, or ""."""
    for image in variant.images.values():
        for pixels, most, side in zip(
            image.shape(problem), device.image2d_max, ("wide", "high"), strict=True
        ):
            if pixels > most:
                return f"{image.source} is an image {pixels} pixels {side}, the device allows {most}"
    itemsize = DTYPES[problem.dtype].itemsize
    operands = {
        "A": problem.m * problem.k * itemsize,
        "B": problem.k * problem.n * itemsize,
        "C": problem.m * problem.n * itemsize,
    }
    buffers = {**operands, **variant.temporary_bytes(problem, parameters)}
    name, largest = max(buffers.items(), key=lambda item: item[1])
    if largest // itemsize > _INDEX_LIMIT:
        return f"{name} has more than 2^31 elements, which 32-bit indexes do not reach"
    if largest > device.max_alloc_bytes:
        return f"{name} needs {size(largest)}, the device allows {size(device.max_alloc_bytes)} in one buffer"
    total = sum(buffers.values())
    if total > device.global_mem_bytes:
        return f"needs {size(total)} of device memory, the device has {size(device.global_mem_bytes)}"
    return ""


def _check_overrides(chosen: Sequence[Variant], overrides: Mapping[str, int]) -> None:
    for name in overrides:
        if not any(name in variant.parameters for variant in chosen):
            known = sorted({parameter for variant in chosen for parameter in variant.parameters})
            raise variants.ParameterError(
                f"no chosen kernel has a parameter {name} (there are {', '.join(known) or 'none'})"
            )
