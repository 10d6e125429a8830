"""devices x variants x problems -> cases and rows that need no running. Pure: no device is touched."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from gemmbench.facts.dtypes import DTYPES
from gemmbench.facts.problem import Gemm
from gemmbench.facts.records import (
    DeviceFacts,
    Kind,
    Parameters,
    Problem,
    RanOn,
    Row,
    RowKey,
    Status,
    row_key,
)
from gemmbench.facts.units import size
from gemmbench.rules import variants
from gemmbench.rules.probes import FLOPS, PROBES, QUICK, WIDTHS
from gemmbench.rules.reference import could_overflow
from gemmbench.rules.variants import Variant
from gemmbench.rules.variants.pieces import unsupported_type

_INDEX_LIMIT = 2**31 - 1  # kernels count elements in 32-bit integers


@dataclass(frozen=True)
class Operands:
    """The user's own matrices: .npy files; None means generated (A, B) or zeros (C)."""

    a: str | None = None
    b: str | None = None
    c: str | None = None
    out: str | None = None  # where the result goes

    @property
    def given(self) -> bool:
        """Whether any of them is the user's."""
        return any(path is not None for path in (self.a, self.b, self.c))


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
    notes: tuple[str, ...] = ()  # of its row, beside those of the executor
    former: str = ""  # a kernels folder: its kernel is timed in turn with itself as it is there
    ran_on: RanOn = "device"  # of its row
    phase: str = ""  # likewise, of a tuner

    @property
    def key(self) -> RowKey:
        """The key of the row it will become."""
        problem = saved_problem(self.problem) if self.problem else None
        return row_key(self.kind, self.device, self.variant, self.dtype, self.parameters, problem)

    @property
    def numbers(self) -> dict[str, int]:
        """The parameters of a GEMM, all of which are numbers."""
        return {name: int(value) for name, value in self.parameters.items()}

    @property
    def label(self) -> str:
        """For people, in progress lines."""
        if self.problem:
            called = self.problem.label or self.phase
            name = f"{called} " if called else ""
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
            notes=self.notes,
            ran_on=self.ran_on,
            phase=self.phase,
        )


@dataclass(frozen=True)
class Skip:
    """A case that is not worth starting: its row says why."""

    row: Row


@dataclass(frozen=True)
class Tuned:
    """Parameters that take the place of a shipped preset."""

    parameters: Mapping[str, int]
    note: str  # for the row: where they come from


Plan = tuple[Case | Skip, ...]
FindTuned = Callable[[DeviceFacts, Variant, str], Tuned | None]  # for a data type
Reach = Literal["plain", "matrix", "quick", "every"]


def saved_problem(problem: Gemm) -> Problem:
    """The problem as a row stores it (the data type is the row's own field)."""
    return Problem(problem.m, problem.n, problem.k, problem.alpha, problem.beta)


def gemm_plan(
    devices: Sequence[DeviceFacts],
    chosen: Sequence[Variant],
    problems: Iterable[Gemm],
    overrides: Mapping[str, int] | None = None,
    operands: Operands | None = None,
    tuned: FindTuned = lambda *_: None,
) -> Plan:
    """Every variant on every problem and device, problem by problem, so that variants are interleaved.

    Parameters are the user's own over the shipped preset; where there are none, those that the tuner kept.

    Raises:
        variants.ParameterError: an override does not fit a variant that has that parameter, or none has it;
            alpha or beta of an integer problem has a fraction.
    """
    _check_overrides(chosen, overrides or {})
    plan: list[Case | Skip] = []
    problems = tuple(problems)
    _check_scalars(problems)
    for index, device in enumerate(devices):
        for problem in problems:
            for variant in chosen:
                if not variant.on_host:
                    plan.append(_gemm_case(index, device, variant, problem, overrides or {}, operands, tuned))
                elif index == 0:  # the host's own BLAS is measured once, among the first device's rows
                    plan.append(_host_case(variant, problem, operands))
    return tuple(plan)


def fitting(plan: Plan, optional: Collection[str]) -> Plan:
    """A plan without the rows of optional variants that say no more than that a device does not support them.

    Where it supports none of them, the rows stay, to say why; `auto`, which takes one of the others, does not
    count.
    """

    def place(step: Case | Skip) -> tuple[object, ...]:
        _, device, _, dtype, _, problem, _ = step.row.key if isinstance(step, Skip) else step.key
        return device, dtype, problem

    kernels = {name for name in optional if name != variants.AUTO}
    served = {place(step) for step in plan if isinstance(step, Case) and step.variant in kernels}
    return tuple(
        step
        for step in plan
        if isinstance(step, Case)
        or step.row.variant not in optional
        or step.row.status != "unsupported"
        or place(step) not in served
    )


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
        reach: which probes: ``plain`` multiply-adds; ``matrix``: the matrix units that a device has, fed as a
            GEMM feeds them; ``quick``: both, these fed with zeros too; ``every``: all there are, with a row
            for each that a device cannot run.
    """
    chosen = {"plain": (FLOPS,), "matrix": QUICK[1:], "quick": QUICK, "every": tuple(PROBES.values())}[reach]
    plan: list[Case | Skip] = []
    for index, device in enumerate(devices, first):
        for dtype in dtypes:
            for probe in (probe for probe in chosen if dtype in probe.dtypes):
                lacks = probe.lacks(device, dtype)
                if lacks and probe is not FLOPS and reach != "every":
                    continue
                for parameters in probe.cases(dtype, widths):
                    if reach == "matrix" and parameters["operands"] == "zeros":
                        continue
                    source = probe.fingerprint(dtype, parameters)
                    case = Case(
                        "peak", index, probe.name, dtype, parameters, source=source, ran_on=probe.ran_on
                    )
                    plan.append(Skip(case.row("unsupported", lacks)) if lacks else case)
    return tuple(plan)


def quick_widths(device: DeviceFacts, dtype: str) -> tuple[int, ...]:
    """The vector widths likely to hold a device's peak: scalar, its native width, and 16 on a CPU."""
    native = min(device.vector_widths.get(dtype, 1), max(WIDTHS))  # OpenCL C has vectors of 16 at most
    return tuple(sorted({1, *([native, 16] if device.type == "cpu" else [min(native, 4), 2])} - {0}))


def why_not(device: DeviceFacts, variant: Variant, problem: Gemm, parameters: Mapping[str, int]) -> str:
    """Why a device cannot run a variant on a problem with these parameters, or ""."""
    full = {**parameters, **variant.chosen(problem, device, parameters)}
    return _unsupported(device, variant, problem, full) or _too_large(device, variant, problem, full)


def _gemm_case(
    index: int,
    device: DeviceFacts,
    variant: Variant,
    problem: Gemm,
    overrides: Mapping[str, int],
    operands: Operands | None,
    tuned: FindTuned,
) -> Case | Skip:
    mine = {name: value for name, value in overrides.items() if name in variant.parameters}
    kept = None if mine else tuned(device, variant, problem.dtype)
    parameters = variant.preset(
        device.family, kept.parameters if kept else mine, problem.dtype, device.vector_bits
    )
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
        (kept.note,) if kept else (),
        ran_on=variant.ran_on(problem.dtype),
    )
    reason = _unsupported(device, variant, problem, full)
    if reason:
        return Skip(case.row("unsupported", reason))
    reason = _too_large(device, variant, problem, full)
    return Skip(case.row("skipped", reason)) if reason else case


def _host_case(variant: Variant, problem: Gemm, operands: Operands | None) -> Case | Skip:
    case = Case(
        "gemm",
        -1,
        variant.name,
        problem.dtype,
        {},
        problem,
        operands=operands or Operands(),
        ran_on=variant.ran_on(problem.dtype),
    )
    if problem.dtype not in variant.dtypes:
        return Skip(case.row("unsupported", f"{variant.name} has no BLAS for {problem.dtype}"))
    return case


def _unsupported(device: DeviceFacts, variant: Variant, problem: Gemm, parameters: Mapping[str, int]) -> str:
    """Why this device cannot run this variant at any size, or ""."""
    if problem.dtype not in variant.dtypes:
        return f"{variant.name} is written for {', '.join(variant.dtypes)}"
    if variant.device_type not in ("", device.type):
        return f"{variant.name} is written for a {variant.device_type.upper()}"
    reason = (variant.lacks or unsupported_type)(device, problem.dtype)
    if reason:
        return reason
    for extension in (*variant.extensions(parameters), *variant.type_extensions.get(problem.dtype, ())):
        if not any(name in device.extensions for name in extension.split("|")):
            return f"the device does not list {extension.replace('|', ' or ')}"
    size_wanted, sizes = variant.sub_group(parameters), device.sub_group_sizes
    if size_wanted and sizes and size_wanted not in sizes:
        return f"needs sub-groups of {size_wanted}, the device has them of {', '.join(map(str, sizes))}"
    if variant.images and not device.images:
        return "the device has no images"
    local = variant.local_bytes(problem.dtype, parameters)
    most = variant.local_limit(device)
    if local > most:
        return f"needs {size(local)} of local memory, the device has {size(most)}"
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
    if could_overflow(problem):
        return f"sums of {problem.k} products could leave the integers that C holds"
    temporaries = variant.temporary_bytes(problem, parameters)
    itemsize = DTYPES[problem.dtype].itemsize
    elements = {"A": problem.m * problem.k, "B": problem.k * problem.n, "C": problem.m * problem.n}
    elements |= {name: nbytes // itemsize for name, nbytes in temporaries.items()}
    name, most = max(elements.items(), key=lambda item: item[1])
    if most > _INDEX_LIMIT:
        return f"{name} has more than 2^31 elements, which 32-bit indexes do not reach"
    buffers = {**problem.bytes_of, **temporaries}
    name, largest = max(buffers.items(), key=lambda item: item[1])
    if largest > device.max_alloc_bytes:
        return f"{name} needs {size(largest)}, the device allows {size(device.max_alloc_bytes)} in one buffer"
    total = sum(buffers.values())
    if total > device.global_mem_bytes:
        return f"needs {size(total)} of device memory, the device has {size(device.global_mem_bytes)}"
    return ""


def _check_scalars(problems: Iterable[Gemm]) -> None:
    for problem in problems:
        for name, value in (("alpha", problem.alpha), ("beta", problem.beta)):
            if not problem.result.is_float and not float(value).is_integer():
                raise variants.ParameterError(
                    f"{name} must be a whole number for {problem.dtype}, whose products are integers, "
                    f"not {value:g}"
                )


def _check_overrides(chosen: Sequence[Variant], overrides: Mapping[str, int]) -> None:
    for name in overrides:
        if not any(name in variant.parameters for variant in chosen):
            known = sorted({parameter for variant in chosen for parameter in variant.parameters})
            raise variants.ParameterError(
                f"no chosen kernel has a parameter {name} (there are {', '.join(known) or 'none'})"
            )
