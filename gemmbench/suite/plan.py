"""devices x variants x problems -> cases, and rows that need no running. No device is touched."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Literal

from gemmbench import UsageError
from gemmbench.ladder import BASELINES, BY_NAME, FASTER, LADDER, conversion
from gemmbench.ladder.variant import ParameterError, Variant, laid_out
from gemmbench.model.case import Case, Operands, Plan, Skip
from gemmbench.model.device import HOST, DeviceFacts
from gemmbench.model.dtypes import DTYPES
from gemmbench.model.problem import Gemm
from gemmbench.model.row import MATH, Row
from gemmbench.model.units import clean, list_values
from gemmbench.probes import ALL_DTYPES, PROBES, QUICK
from gemmbench.probes.arithmetic import FLOPS, WIDTHS
from gemmbench.probes.memory import FAMILIES, bandwidth_plan, memory_plan
from gemmbench.suite.options import names
from gemmbench.suite.options.measuring import COMPUTE, GemmCommandOptions, MeasurementOptions, PeakOptions
from gemmbench.suite.refusal import smaller_preset, why_no_memory, why_too_large, why_unsupported


@dataclass(frozen=True)
class Tuned:
    """Parameters that replace a shipped preset."""

    parameters: Mapping[str, int]
    note: str  # for the row: where they come from


@dataclass(frozen=True)
class Axes:
    """The math modes and parameter values of a kernel: a row for each combination."""

    maths: tuple[str, ...] = ("",)  # OpenCL kernels, see `model.row.MATHS`; "": as their own flags have it
    grid: Mapping[str, Sequence[int]] = field(default_factory=dict)  # parameters with several values each

    def combinations(self, variant: Variant) -> list[dict[str, int]]:
        own = {name: values for name, values in self.grid.items() if name in variant.parameters}
        return [dict(zip(own, values, strict=True)) for values in itertools.product(*own.values())]


FindTuned = Callable[[DeviceFacts, Variant, str], Tuned | None]  # for a data type
ProbeReach = Literal["plain", "matrix", "quick", "every"]


def gemm_plan(
    devices: Sequence[DeviceFacts],
    chosen: Sequence[Variant],
    problems: Iterable[Gemm],
    overrides: Mapping[str, int] | None = None,
    operands: Operands | None = None,
    tuned: FindTuned = lambda *_: None,
    axes: Axes = Axes(),
) -> Plan:
    """Plan every variant on every problem and device: cases to measure, or rows that say why not.

    `overrides` replace values of the shipped preset; without them, `tuned` ones do. `ParameterError` if a
    parameter does not exist or fit, or alpha or beta is out of range.
    """
    overrides = overrides or {}
    for name in (*overrides, *axes.grid):
        if not any(name in variant.parameters for variant in chosen):
            known = sorted({parameter for variant in chosen for parameter in variant.parameters})
            raise ParameterError(
                f"no chosen kernel has a parameter {name} (there are {', '.join(known) or 'none'})"
            )
    plan: list[Case | Skip] = []
    problems = tuple(problems)
    _check_scalars(problems)
    for index, device in enumerate(devices):
        for problem in problems:
            for variant in chosen:
                if not variant.on_host:
                    maths = axes.maths if variant.executor == "opencl" else ("",)
                    for values in axes.combinations(variant):
                        own, grid = {**overrides, **values}, tuple(values)
                        plan += _alternating_with_first(
                            _gemm_case(index, device, variant, problem, own, operands, tuned, math, grid)
                            for math in maths
                        )
                elif index == 0:  # the host's own BLAS is measured once, among the first device's rows
                    plan.append(_host_case(variant, problem, operands))
    return tuple(plan)


def _alternating_with_first(steps: Iterable[Case | Skip]) -> tuple[Case | Skip, ...]:
    first, *others = steps
    if not isinstance(first, Case):
        return (first, *others)
    return (first, *(replace(step, partner=first) if isinstance(step, Case) else step for step in others))


def alternating_with(
    plan: Plan,
    devices: Sequence[DeviceFacts],
    partner: Variant,
    overrides: Mapping[str, int],
    operands: Operands | None,
    tuned: FindTuned,
    axes: Axes = Axes(),
) -> Plan:
    """Let a plan's kernels alternate with `partner`; `ParameterError` if that runs no problem."""
    own = {name: value for name, value in overrides.items() if name in partner.parameters}
    cases = [step for step in plan if isinstance(step, Case) and step.device != HOST]
    problems = tuple(dict.fromkeys(case.problem for case in cases if case.problem))
    steps = gemm_plan(devices, [partner], problems, own, operands, tuned, replace(axes, grid={}))
    steps *= len(devices) if partner.on_host else 1
    partners = dict(zip(itertools.product(range(len(devices)), problems), steps, strict=True))
    for index in range(len(devices)):
        others = [partners[index, case.problem] for case in cases if case.device == index and case.problem]
        rows = [other.row for other in others if isinstance(other, Skip)]
        if rows and len(rows) == len(others):
            where = f"--versus {partner.name} cannot run on {devices[index].name}"
            raise ParameterError(f"{where}: {rows[0].reason}")

    def with_partner(step: Case | Skip) -> Case | Skip:
        if not isinstance(step, Case) or step.device == HOST:
            return step
        if step.variant == partner.name and not step.grid:
            return step
        assert step.problem is not None
        other = partners[step.device, step.problem]
        if isinstance(other, Case):
            return replace(step, partner=other)
        return replace(step, notes=(*step.notes, f"not interleaved with {partner.name}: {other.row.reason}"))

    return tuple(map(with_partner, plan))


def fitting(
    plan: Plan, groups: Sequence[Collection[str]], named: Collection[str], faster: Mapping[str, str] = FASTER
) -> Plan:
    """Drop kernels that are only members of a group, such as "default", where they do not suit the device.

    `groups` has the members for each device. Kernels in `named` stay. A `faster` kernel replaces a member.
    """
    served: set[tuple[object, ...]] = set()
    asked = []
    keys = (step.key for step in plan if isinstance(step, Case))
    running = {(variant, (device, dtype, problem)) for _, device, variant, dtype, _, problem in keys}
    for step in plan:
        _, device, variant, dtype, _, problem = step.row.key if isinstance(step, Skip) else step.key
        target = device, dtype, problem
        members = groups[device] if device != HOST else {name for group in groups for name in group}
        is_wanted = variant in members and (faster.get(variant), target) not in running
        if variant in named or is_wanted:
            asked.append((step, variant, target))
            if isinstance(step, Case):
                served |= {(device, dtype, problem), (HOST, dtype, problem)}
    return tuple(
        step
        for step, variant, target in asked
        if isinstance(step, Case)
        or variant in named
        or step.row.status != "unsupported"
        or target not in served
    )


def measured_by(plan: Plan) -> set[str]:
    """The kernels and libraries that a plan measures."""
    return {step.variant for step in plan if isinstance(step, Case) and step.kind == "gemm"}


def plan_command(
    options: MeasurementOptions, devices: Sequence[DeviceFacts], tuned: FindTuned = lambda *_: None
) -> Plan:
    """Plan what a command measures."""
    if isinstance(options, PeakOptions):
        return _plan_peaks(options, devices)
    assert isinstance(options, GemmCommandOptions)
    if options.operands.out and len(devices) > 1:
        raise UsageError("--out needs exactly one --device")
    # Kernels come first, because the user waits for them. No peak is repeated: every fp8 type has the same.
    steps = tuple(step for dtype in options.dtypes for step in _plan_kernels(options, devices, dtype, tuned))
    has_peaks = options.peak and any(shape.m and shape.n and shape.k for shape in options.shapes)
    for dtype in options.dtypes if has_peaks else ():
        steps += tuple(step for step in _plan_bounds(options, devices, dtype) if step not in steps)
    return steps + (bandwidth_plan(devices) if has_peaks or options.draws_roofline else ())


def _plan_peaks(options: PeakOptions, devices: Sequence[DeviceFacts]) -> Plan:
    """The families of --only: every probe, or the quick ones and a CPU's units."""
    has_compute = COMPUTE in options.families
    reach: ProbeReach = "every" if options.types is not None or options.all else "quick"
    compute = peak_plan(devices, options.dtypes, WIDTHS, reach=reach) if has_compute else ()
    for index, device in enumerate(devices if compute and reach == "quick" else ()):
        if device.units:
            others = [name for name in ALL_DTYPES if name not in options.dtypes]
            compute += peak_plan([device], others, (), first=index, reach="matrix")
    return compute + memory_plan(devices, options.families)


def _plan_kernels(
    options: GemmCommandOptions, devices: Sequence[DeviceFacts], dtype: str, tuned: FindTuned
) -> Plan:
    """All kernels and shapes in one data type that suit the device."""
    fixed = {name: values[0] for name, values in options.parameters.items() if len(values) == 1}
    grid = {name: values for name, values in options.parameters.items() if len(values) > 1}
    more = fixed, options.operands, tuned, Axes(options.maths, grid)
    steps = gemm_plan(devices, options.variants, options.problems(dtype), *more)
    if options.partner:
        steps = alternating_with(steps, devices, options.partner, *more)
    groups = [
        names.of_groups(options.kernels, options.baseline, options.user_kernels, device) for device in devices
    ]
    faster = {
        name: other
        for name, other in FASTER.items()
        if "all" not in names.split_names(options.baseline if name in BASELINES else options.kernels)
    }
    return fitting(steps, groups, options.named, faster)


def _plan_bounds(options: GemmCommandOptions, devices: Sequence[DeviceFacts], dtype: str) -> Plan:
    """The short peak measurements that kernels are compared with."""
    layouts = {replace(each, m=1, n=1, k=1, ld=None) for each in options.problems(dtype)}
    kernels = [laid_out(variant, layout) for layout in layouts for variant in options.variants]
    uses_tensor_cores = any(
        kernel.ran_on(dtype) == "matrix" for kernel in kernels if dtype in kernel.needs.dtypes
    )
    steps: Plan = ()
    for index, device in enumerate(devices):
        if dtype in device.dtypes:
            steps += peak_plan([device], [dtype], quick_widths(device, dtype), first=index, reach="plain")
        if uses_tensor_cores:
            steps += peak_plan([device], [DTYPES[dtype].instruction], (), first=index, reach="matrix")
    return steps


def named_in(options: GemmCommandOptions, plan: Plan) -> tuple[str, ...]:
    """The kernels asked for by name, and with --baseline all the libraries."""
    every = measured_by(plan) if "all" in names.split_names(options.baseline) else ()
    return (*options.named, *(name for name in BASELINES if name in every))


def count_more(options: GemmCommandOptions, devices: Sequence[DeviceFacts], plan: Plan) -> int:
    """How many own kernels could run but are not planned, with --kernel default."""
    if names.DEFAULT_GROUP not in names.split_names(options.kernels):
        return 0
    others = [BY_NAME[name] for name in LADDER if name not in measured_by(plan)]
    problems = [problem for dtype in options.dtypes for problem in options.problems(dtype)]
    return len(measured_by(gemm_plan(devices, others, problems)))


def peak_plan(
    devices: Sequence[DeviceFacts],
    dtypes: Sequence[str],
    widths: Sequence[int],
    first: int = 0,
    reach: ProbeReach = "quick",
) -> Plan:
    """Compute probes for every device, type and width; `every` also has zeros and what cannot run."""
    chosen = {"plain": (FLOPS,), "matrix": QUICK[1:], "quick": QUICK, "every": tuple(PROBES.values())}[reach]
    plan: list[Case | Skip] = []
    for index, device in enumerate(devices, first):
        for dtype in dtypes:
            for probe in (probe for probe in chosen if dtype in probe.dtypes):
                lacks = probe.lacks(device, dtype)
                if lacks and probe is not FLOPS and reach != "every":
                    continue
                for parameters in probe.cases(dtype, widths):
                    if reach != "every" and parameters.get("operands") == "zeros":
                        continue
                    source, ran_on = probe.fingerprint(dtype, parameters), probe.ran_on
                    case = Case("peak", index, probe.name, dtype, parameters, source=source, ran_on=ran_on)
                    plan.append(Skip(case.row("unsupported", lacks)) if lacks else case)
    return tuple(plan)


def quick_widths(device: DeviceFacts, dtype: str) -> tuple[int, ...]:
    """The vector widths that are likely to hold a device's peak."""
    native = min(device.vector_widths.get(dtype, 1), max(WIDTHS))  # OpenCL C has vectors of 16 at most
    return tuple(sorted({1, *([native, 16] if device.type == "cpu" else [min(native, 4), 2])} - {0}))


def _gemm_case(
    index: int,
    device: DeviceFacts,
    variant: Variant,
    problem: Gemm,
    overrides: Mapping[str, int],
    operands: Operands | None,
    tuned: FindTuned,
    math: str = "",
    grid: tuple[str, ...] = (),
) -> Case | Skip:
    """Plan a variant on a problem, or a row with why it cannot run."""
    variant = laid_out(variant, problem).with_math(math)
    own = {name: value for name, value in overrides.items() if name in variant.parameters}
    tuned_preset = None if own else tuned(device, variant, problem.dtype)
    fill = variant.filled if grid else variant.preset
    parameters = fill(device.family, tuned_preset.parameters if tuned_preset else own, problem.dtype, device)
    given = tuple(tuned_preset.parameters) if tuned_preset else tuple(own)
    full = {**parameters, **variant.chosen(problem, device, parameters)}
    broken = variant.broken(parameters, problem.dtype) if grid else ""
    reason = "" if broken else why_unsupported(device, variant, problem, full, given)
    tuned_note = tuned_preset.note if tuned_preset else ""
    notes = tuple(filter(None, (tuned_note, variant.limits, _conversion(variant, problem.dtype))))
    if reason and not given and (smaller := smaller_preset(device, variant, problem, parameters)):
        changed = {name: value for name, value in smaller.items() if value != parameters[name]}
        notes = (*notes, f"{list_values(changed)} instead of the preset's, which {reason}")
        parameters, reason = smaller, ""
        full = {**parameters, **variant.chosen(problem, device, parameters)}
    extra = {MATH: math} if math else {}
    source, ran_on = variant.fingerprint(problem.dtype, parameters), variant.ran_on(problem.dtype)
    case = Case(
        "gemm", index, variant.name, problem.dtype, {**parameters, **extra}, problem, source,
        operands or Operands(), notes, ran_on=ran_on, given=(*given, *extra),
        sums=variant.needs.sums.get(problem.dtype, ""), grid=grid, own=variant.own,
    )  # fmt: skip
    if broken:
        return Skip(case.row("skipped", broken))
    if reason:
        return Skip(case.row("unsupported", reason))
    reason = why_too_large(device, variant, problem, full) or why_no_memory(device, variant, problem, full)
    return Skip(case.row("skipped", reason)) if reason else case


def _conversion(variant: Variant, dtype: str) -> str:
    notes = {
        "rounded": f"{variant.name} rounds operands to {dtype}, to nearest",
        "cut": f"tensor cores truncate operands to {dtype}: up to twice the error of rounding",
    }
    return notes.get(conversion(variant.name, dtype), "")


def _host_case(variant: Variant, problem: Gemm, operands: Operands | None) -> Case | Skip:
    """A case for the host's BLAS; a `Skip` for a type that it lacks."""
    case = Case(
        "gemm", HOST, variant.name, problem.dtype, {}, problem, operands=operands or Operands(),
        ran_on=variant.ran_on(problem.dtype), sums=variant.needs.sums.get(problem.dtype, ""),
    )  # fmt: skip
    if problem.dtype not in variant.needs.dtypes:
        return Skip(case.row("unsupported", f"{variant.name} has no BLAS for {problem.dtype}"))
    return case


def _check_scalars(problems: Iterable[Gemm]) -> None:
    for problem in problems:
        for name, value in (("alpha", problem.alpha), ("beta", problem.beta)):
            if not problem.result.is_float and not float(value).is_integer():
                raise ParameterError(
                    f"{name} must be a whole number for {problem.dtype}, whose products are integers, "
                    f"not {value:g}"
                )
            for dtype in (DTYPES[DTYPES[problem.dtype].scalar], problem.result):
                if abs(value) > dtype.largest:
                    raise ParameterError(f"{name} = {value:g} is beyond the range of {dtype.name}")


def rebuild_plan(
    rows: Iterable[Row],
    devices: Sequence[DeviceFacts],
    positions: Mapping[int, int],
    kernels: str = "",
    user_kernels: Mapping[str, Variant] = MappingProxyType({}),
    old_kernels: Mapping[str, Variant] = MappingProxyType({}),
) -> Plan:
    """The cases that would measure rows of a saved run again on `devices`, or why not.

    Presets are today's. `positions` maps the saved run's devices to `devices`. `kernels` is as of
    `Case.kernels`, `old_kernels` are the user's old versions.
    """
    probes = {}  # every microbenchmark of a device, by the key of its row at position 0
    for position in set(positions.values()):
        device = [devices[position]]
        plan = (*peak_plan(device, ALL_DTYPES, WIDTHS, reach="every"), *memory_plan(device, tuple(FAMILIES)))
        probes[position] = {each.key if isinstance(each, Case) else each.row.key: each for each in plan}
    steps: list[Case | Skip] = []
    for row in rows:
        if row.device != HOST and row.device not in positions:
            continue
        position = positions.get(row.device, HOST)
        if row.kind == "gemm":
            step = _rebuild_gemm(row, devices[max(position, 0)], user_kernels)
        else:
            known = probes.get(position, {})  # of the host there are none
            step = known.get(replace(row, device=0).key) or _unknown(
                row, f"probe {row.variant} with these parameters"
            )
        if isinstance(step, Skip):
            steps.append(Skip(replace(step.row, device=position, given=row.given)))
            continue
        step = replace(step, device=position, given=row.given)
        if kernels:
            step = replace(step, partner=replace(step, parameters=row.parameters, kernels=kernels))
        old = old_kernels.get(step.variant) if position != HOST else None
        steps.append(_alternating_with_old(step, old, devices[position], row) if old else step)
    return tuple(steps)


def _alternating_with_old(step: Case, old: Variant, device: DeviceFacts, row: Row) -> Case:
    shared = {name: int(value) for name, value in row.parameters.items() if name in old.parameters}
    parameters = old.preset(device.family, shared, step.dtype, device)
    math = {MATH: row.parameters[MATH]} if MATH in row.parameters else {}
    partner = replace(step, parameters={**parameters, **math}, kernels=old.source, own=old.own)
    return replace(step, partner=partner)


def _rebuild_gemm(row: Row, device: DeviceFacts, user_kernels: Mapping[str, Variant]) -> Case | Skip:
    """The case that measures a saved row again; a `Skip` says why there is none."""
    problem, variant = row.problem, (user_kernels if row.own else BY_NAME).get(row.variant)
    assert problem is not None  # of every gemm row that was loaded
    if variant is None and row.own:
        reason = f"{clean(row.variant)} is your own kernel: pass --kernel-file {clean(row.own)}"
        return Skip(replace(_unknown(row, "").row, reason=reason, own=row.own))
    if variant is None:
        return _unknown(row, f"kernel {row.variant}")
    try:
        given = row.parameters if row.given is None else row.given
        parameters = {name: int(row.parameters[name]) for name in given if name != MATH}
        axes = Axes((str(row.parameters.get(MATH, "")),))
        lengths = problem.m, problem.n, problem.k
        layout = problem.ld or None, bool(problem.trans_a), bool(problem.trans_b)
        gemm = Gemm(*lengths, row.dtype, problem.alpha, problem.beta, row.label, *layout, batch=problem.count)
        gemm = replace(gemm, calls=row.calls or 1)
        (step,) = gemm_plan([device], [variant], [gemm], parameters, axes=axes)
    except (ParameterError, ValueError) as error:
        return _unknown(row, f"such case: {error}")
    return step


def _unknown(row: Row, what: str) -> Skip:
    empty = Row(row.kind, row.device, row.variant, row.dtype, row.parameters, "unsupported")
    reason = f"this version has no {what}"
    return Skip(replace(empty, reason=reason, problem=row.problem, label=row.label))
