"""devices x variants x problems -> cases and rows that need no running. Pure: no device is touched."""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Literal

from gemmbench import UsageError
from gemmbench.gemm.verify import could_overflow
from gemmbench.ladder import BY_NAME, FASTER, conversion
from gemmbench.ladder.variant import Layout, ParameterError, Variant, laid_out
from gemmbench.measure.machine import free_memory_bytes
from gemmbench.model.case import Case, Operands, Plan, Skip
from gemmbench.model.device import HOST, DeviceFacts
from gemmbench.model.dtypes import DTYPES
from gemmbench.model.problem import LONGEST, Gemm
from gemmbench.model.row import MATH, Row
from gemmbench.model.units import clean, listed, size
from gemmbench.probes import ALL_DTYPES, PROBES, QUICK
from gemmbench.probes.arithmetic import FLOPS, WIDTHS
from gemmbench.probes.memory import FAMILIES, memory_plan

_HOST_COPIES = 3  # of A, B and C in host memory: those that are timed, those of verification, results


@dataclass(frozen=True)
class Tuned:
    """Parameters that replace a shipped preset."""

    parameters: Mapping[str, int]
    note: str  # for the row: where they come from


@dataclass(frozen=True)
class Axes:
    """The math modes and parameter values that a kernel is measured with: a row for each combination."""

    maths: tuple[str, ...] = ("",)  # OpenCL kernels, see `model.row.MATHS`; "": as their own flags have it
    grid: Mapping[str, Sequence[int]] = field(default_factory=dict)  # parameters with several values each

    def combinations(self, variant: Variant) -> list[dict[str, int]]:
        """Every combination of the grid's values of a variant's own parameters; the empty one without any."""
        own = {name: values for name, values in self.grid.items() if name in variant.parameters}
        return [dict(zip(own, values, strict=True)) for values in itertools.product(*own.values())]


FindTuned = Callable[[DeviceFacts, Variant, str], Tuned | None]  # for a data type
Reach = Literal["plain", "matrix", "quick", "every"]


def gemm_plan(
    devices: Sequence[DeviceFacts],
    chosen: Sequence[Variant],
    problems: Iterable[Gemm],
    overrides: Mapping[str, int] | None = None,
    operands: Operands | None = None,
    tuned: FindTuned = lambda *_: None,
    axes: Axes = Axes(),
) -> Plan:
    """Plan every variant on every problem and device, problem by problem, so that variants are interleaved.

    A variant is a kernel or a library. A step is a case to measure, or a row that says why not. The host's
    BLAS is planned once. `overrides` replace values of the shipped preset; without them, `tuned` ones do.
    With strict and fast math, batches of fast alternate with strict. A grid combination that breaks a
    constraint is skipped with its sentence. Raise `ParameterError` if no variant has an override's parameter,
    one cannot use it, or alpha or beta is out of range or has a fraction in an integer problem.
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
    """Return steps whose cases after the first alternate with it, if the first is a case."""
    first, *others = steps
    if not isinstance(first, Case):
        return (first, *others)
    return (first, *(replace(step, versus=first) if isinstance(step, Case) else step for step in others))


def alternating_with(
    plan: Plan,
    devices: Sequence[DeviceFacts],
    partner: Variant,
    overrides: Mapping[str, int],
    operands: Operands | None,
    tuned: FindTuned,
    axes: Axes = Axes(),
) -> Plan:
    """Return a plan whose kernels alternate with `partner` batch by batch, as the `versus` of their cases.

    Host cases, skipped rows and the partner's own cases without a grid are unchanged. A case whose partner
    cannot run gets a note with the reason. Raise `ParameterError` if the partner cannot run any problem on a
    device. Other arguments are as for `gemm_plan`; `axes` has one math mode.
    """
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
        """Return a step that alternates with its partner, or has a note why not."""
        if not isinstance(step, Case) or step.device == HOST:
            return step
        if step.variant == partner.name and not step.grid:
            return step
        assert step.problem is not None
        other = partners[step.device, step.problem]
        if isinstance(other, Case):
            return replace(step, versus=other)
        return replace(step, notes=(*step.notes, f"not interleaved with {partner.name}: {other.row.reason}"))

    return tuple(map(with_partner, plan))


def fitting(
    plan: Plan, groups: Sequence[Collection[str]], named: Collection[str], faster: Mapping[str, str] = FASTER
) -> Plan:
    """Drop kernels that are only members of a group, such as "default", where they do not suit the device.

    `groups` has the members of the groups for each device: see `ladder.DEFAULT`. Kernels in `named` stay, and
    on the host members of any group. Other kernels stay if they are members for their device and their
    `faster` kernel does not run the same problem. Then drop unsupported rows that are not in `named`, if some
    case runs that type and problem on the device. For host rows, a case on any device counts.
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


def peak_plan(
    devices: Sequence[DeviceFacts],
    dtypes: Sequence[str],
    widths: Sequence[int],
    first: int = 0,
    reach: Reach = "quick",
) -> Plan:
    """Plan compute probes for every device, type and vector width; `first` is the first device's position.

    `plain` selects multiply-adds, `matrix` the tensor cores, and `quick` both. Only `every` adds the other
    probes, zero operands, and rows for probes that cannot run. Multiply-adds have these rows in any case.
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
                    if reach != "every" and parameters.get("operands") == "zeros":
                        continue
                    source, ran_on = probe.fingerprint(dtype, parameters), probe.ran_on
                    case = Case("peak", index, probe.name, dtype, parameters, source=source, ran_on=ran_on)
                    plan.append(Skip(case.row("unsupported", lacks)) if lacks else case)
    return tuple(plan)


def quick_widths(device: DeviceFacts, dtype: str) -> tuple[int, ...]:
    """The vector widths likely to hold a device's peak: scalar, its native width, and 16 on a CPU."""
    native = min(device.vector_widths.get(dtype, 1), max(WIDTHS))  # OpenCL C has vectors of 16 at most
    return tuple(sorted({1, *([native, 16] if device.type == "cpu" else [min(native, 4), 2])} - {0}))


def why_not(device: DeviceFacts, variant: Variant, problem: Gemm, parameters: Mapping[str, int]) -> str:
    """Return why a device cannot run a variant with these parameters, or "". Ignore free host memory."""
    variant = laid_out(variant, problem)
    full = {**parameters, **variant.chosen(problem, device, parameters)}
    own = tuple(parameters)
    return _unsupported(device, variant, problem, full, own) or _too_large(device, variant, problem, full)


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
    """Plan a device variant on a problem, or a row with the reason why it cannot run.

    Explicit overrides replace tuned parameters, which replace the preset. If a preset exceeds the device, use
    the nearest one that fits, with a note. The row is "unsupported" if the device or the kernel lacks
    something, "skipped" if the problem exceeds a limit or host memory or a grid point breaks a constraint.
    """
    variant = laid_out(variant, problem).with_math(math)
    own = {name: value for name, value in overrides.items() if name in variant.parameters}
    tuned_preset = None if own else tuned(device, variant, problem.dtype)
    fill = variant.filled if grid else variant.preset
    parameters = fill(device.family, tuned_preset.parameters if tuned_preset else own, problem.dtype, device)
    given = tuple(tuned_preset.parameters) if tuned_preset else tuple(own)
    full = {**parameters, **variant.chosen(problem, device, parameters)}
    broken = variant.broken(parameters, problem.dtype) if grid else ""
    reason = "" if broken else _unsupported(device, variant, problem, full, given)
    tuned_note = tuned_preset.note if tuned_preset else ""
    notes = tuple(filter(None, (tuned_note, variant.limits, _conversion(variant, problem.dtype))))
    if reason and not given and (smaller := _smaller_preset(device, variant, problem, parameters)):
        changed = {name: value for name, value in smaller.items() if value != parameters[name]}
        notes = (*notes, f"{listed(changed)} instead of the preset's, which {reason}")
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
    reason = _too_large(device, variant, problem, full) or _lacks_host_memory(device, variant, problem, full)
    return Skip(case.row("skipped", reason)) if reason else case


def _conversion(variant: Variant, dtype: str) -> str:
    """A note on who makes shorter numbers of the operands, and how; "" if nobody does."""
    notes = {
        "rounded": f"{variant.name} rounds operands to {dtype}, to nearest",
        "cut": f"tensor cores truncate operands to {dtype}: up to twice the error of rounding",
    }
    return notes.get(conversion(variant.name, dtype), "")


def _host_case(variant: Variant, problem: Gemm, operands: Operands | None) -> Case | Skip:
    """Plan a host library on a problem, or an unsupported row if it lacks the data type."""
    case = Case(
        "gemm", HOST, variant.name, problem.dtype, {}, problem, operands=operands or Operands(),
        ran_on=variant.ran_on(problem.dtype), sums=variant.needs.sums.get(problem.dtype, ""),
    )  # fmt: skip
    if problem.dtype not in variant.needs.dtypes:
        return Skip(case.row("unsupported", f"{variant.name} has no BLAS for {problem.dtype}"))
    return case


def _smaller_preset(
    device: DeviceFacts, variant: Variant, problem: Gemm, preset: Mapping[str, int]
) -> dict[str, int]:
    """Return the nearest valid parameters that fit the device; {} if none do or no smaller group helps."""
    if _lacks(device, variant, problem, preset):  # what no size of a group changes
        return {}

    def fits(parameters: Mapping[str, int]) -> bool:
        full = {**parameters, **variant.chosen(problem, device, parameters)}
        return not _unsupported(device, variant, problem, full)

    return variant.nearest(preset, problem.dtype, fits)


def _unsupported(
    device: DeviceFacts, variant: Variant, problem: Gemm, own: Mapping[str, int], given: Collection[str] = ()
) -> str:
    """Why this device cannot run this variant at any size, or ""; ``given`` are parameters of no preset."""
    fixed = variant.fixes_group(given)
    return _lacks(device, variant, problem, own) or _exceeds(device, variant, problem, own, fixed)


def _lacks(device: DeviceFacts, variant: Variant, problem: Gemm, parameters: Mapping[str, int]) -> str:
    """Return why data or device type, arguments, batches, extensions or images rule out a variant, or ""."""
    if problem.dtype not in variant.needs.dtypes:
        return f"{variant.name} supports only {', '.join(variant.needs.dtypes)}"
    if variant.needs.device_type not in ("", device.type):
        return f"{variant.name} runs only on {variant.needs.device_type.upper()}s"
    if missing := variant.needs.unfit(problem) or _unsupported_argument(variant, problem):
        return missing
    if problem.batch > 1 and not variant.launches.batches:
        return f"{variant.name} does not support batches"
    no_images = "the device has no images" if variant.launches.images and not device.images else ""
    return variant.needs.unmet(device, problem.dtype, parameters) or no_images


def _unsupported_argument(variant: Variant, problem: Gemm) -> str:
    """Return which argument of a problem (alpha, beta, lda, ldb, ldc) a kernel does not support, or ""."""
    layout, tight = vars(Layout.of(problem)), vars(Layout.tight(problem))
    wanted = {"alpha": (problem.alpha, 1), "beta": (problem.beta, 0)}
    wanted |= {name: (ld, tight[name]) for name, ld in layout.items()}
    for name in variant.launches.without:
        value, fixed = wanted[name]
        if value != fixed:
            return f"{variant.name} supports only {name} = {fixed}, not {value:g}"
    return ""


def _exceeds(
    device: DeviceFacts, variant: Variant, problem: Gemm, parameters: Mapping[str, int], fixed: bool
) -> str:
    """Return which local memory or work-group limit a variant exceeds, or "". `fixed`: no group shrinks."""
    local = variant.local_bytes(problem.dtype, parameters)
    if local > (most := variant.needs.local_limit(device)):
        return f"needs {size(local)} of local memory, the device has {size(most)}"
    values = variant.values(problem, parameters)
    for step in variant.steps(values):
        group = step.group_within(values, device.max_work_group_size, device.max_work_item_sizes, fixed)
        if math.prod(group) > device.max_work_group_size:
            return (
                f"needs work-groups of {math.prod(group)}, the device supports {device.max_work_group_size}"
            )
        for wanted, most in zip(group, device.max_work_item_sizes, strict=False):
            if wanted > most:
                return (
                    f"needs {wanted} work-items in one dimension of a work-group, the device supports {most}"
                )
    return ""


def _too_large(device: DeviceFacts, variant: Variant, problem: Gemm, parameters: Mapping[str, int]) -> str:
    """Which limit of images, integers, 32-bit indexes, buffers or device memory a problem exceeds, or ""."""
    for image in variant.launches.images.values():
        sides = zip(image.shape(problem), device.image2d_max, ("wide", "high"), strict=True)
        for pixels, most, side in sides:
            if pixels > most:
                return f"{image.source} is an image {pixels} pixels {side}, the device allows {most}"
    if could_overflow(problem):
        return f"sums of {problem.k} products could overflow C"
    temporaries = variant.temporary_bytes(problem, parameters)
    itemsize = DTYPES[problem.dtype].itemsize
    elements = dict(problem.elements_of)
    elements |= {name: nbytes // itemsize for name, nbytes in temporaries.items()}
    name, most = max(elements.items(), key=lambda item: item[1])
    if most > LONGEST * problem.batch:  # from problem to problem of a batch they count in 64 bits
        return f"{name} has more than 2^31 elements, and so exceeds 32-bit indexing"
    buffers = {**problem.bytes_of, **temporaries}
    name, largest = max(buffers.items(), key=lambda item: item[1])
    if largest > (most := device.largest_buffer_bytes):
        return f"{name} needs {size(largest)}, the device allows {size(most)} in one buffer"
    total = sum(buffers.values())
    if total > device.global_mem_bytes:
        return f"needs {size(total)} of device memory, the device has {size(device.global_mem_bytes)}"
    return ""


def _lacks_host_memory(
    device: DeviceFacts, variant: Variant, problem: Gemm, parameters: Mapping[str, int]
) -> str:
    """Return the required and the free host memory as text, or "" if the case fits.

    Three copies of the operands are required. On a CPU device, its buffers count too.
    """
    operands = sum(problem.bytes_of.values())
    temporaries = sum(variant.temporary_bytes(problem, parameters).values())
    on_host = _HOST_COPIES * operands + (operands + temporaries if device.type == "cpu" else 0)
    if on_host > (free := free_memory_bytes()):
        return f"needs {size(on_host)} of host memory, {size(free)} is free"
    return ""


def _check_scalars(problems: Iterable[Gemm]) -> None:
    """Raise `ParameterError` if alpha or beta is out of range, or has a fraction in an integer problem."""
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


DEVICE_TYPES = ("gpu", "accelerator", "cpu")  # in the order of the default; what is not listed comes last
_OTHERS_DRIVERS = ("pocl", "portable computing", "rusticl", "clover", "mesa")  # not by the card's maker
_SIMULATORS = ("oclgrind", "emulat", "simulat")  # right answers, meaningless times


def select(devices: Sequence[DeviceFacts], selector: str) -> tuple[DeviceFacts, ...]:
    """Return the devices that a selector names, in its order, none twice. `UsageError` if a term names none.

    Terms are separated by commas, each one of

    - the index in gemmbench's list (``0``), or ``platform:device`` (``0:1``);
    - ``all``: every device, a card with two drivers once;
    - ``gpu``, ``cpu`` or ``accelerator``: the best device of that type;
    - part of a platform, vendor, version, driver, origin or device name (``4090``), in any case and with any
      spaces: the best device that has it. Platform and driver come before the device's own name, so that
      ``intel`` means Intel's driver and not PoCL on an Intel processor.

    Empty: the best device. GPUs come before accelerators and CPUs, discrete GPUs before integrated ones, the
    maker's driver before another one, and simulators last. Of a CPU's drivers those with the fewest warnings
    come first, then Intel's, then PoCL.
    """
    if not devices:
        raise UsageError("there is no OpenCL device to select from")
    ranked = sorted(devices, key=_rank)  # stable: the list's order decides among equals
    terms = [term.strip() for term in selector.split(",")]
    if terms == [""]:
        return (ranked[0],)
    chosen = [device for term in terms for device in _named(devices, ranked, term)]
    return tuple({device.index: device for device in chosen}.values())


def leaves_open(selector: str) -> bool:
    """Whether a selector names only types, or nothing: then another device will do if the best is broken."""
    return all(term.strip().lower() in ("", "all", *DEVICE_TYPES) for term in selector.split(","))


def _rank(device: DeviceFacts) -> tuple[bool, int, bool, int, int]:
    """Return the sort key that orders devices from best to worst, as documented in `select`."""
    maker = f"{device.platform} {device.version}".lower()
    words = f"{maker} {device.name}".lower()
    kind = DEVICE_TYPES.index(device.type) if device.type in DEVICE_TYPES else len(DEVICE_TYPES)
    if device.type == "cpu":
        family = 0 if "intel" in maker else 1 if "pocl" in maker else 2
    else:
        family = int(any(word in maker for word in _OTHERS_DRIVERS))
    is_integrated = device.type == "gpu" and device.unified_memory
    return any(word in words for word in _SIMULATORS), kind, is_integrated, len(device.warnings), family


def _named(devices: Sequence[DeviceFacts], ranked: Sequence[DeviceFacts], term: str) -> Sequence[DeviceFacts]:
    """Return the device that a term names as `select` says; `all` names several. `UsageError` if none."""

    def driver_words(device: DeviceFacts) -> str:
        version = re.sub(r"^OpenCL [\d.]+", "", device.version)  # every driver of a year has the same
        return " | ".join((device.platform, device.vendor, version, device.driver, device.origin))

    if term.lower() == "all":
        best = {device.pci or str(device.index): device for device in reversed(ranked)}
        return [device for device in devices if best[device.pci or str(device.index)] is device]
    matches = [device for device in devices if term in (str(device.index), device.address)]
    if not matches and term.lower() in DEVICE_TYPES:
        matches = [device for device in ranked if device.type == term.lower()][:1]
    if not matches and (part := _plain(term)):
        matches = [device for device in ranked if part in _plain(driver_words(device))]
        if not matches or part.isdecimal():  # a number is a model, not part of a version
            matches = [device for device in ranked if part in _plain(device.name)]
    if not matches:
        what = f"no device is {term!r}" if term else "--device has an empty name in its list"
        listing = ", ".join(f"{device.index} ({device.title})" for device in devices)
        raise UsageError(f"{what}; choose {listing} or all")
    return matches[:1]


def _plain(text: str) -> str:
    """For comparing: lower case, without trademarks and spaces."""
    return "".join(re.sub(r"\((r|tm)\)", "", text.lower()).split())


def rebuild(
    rows: Iterable[Row],
    devices: Sequence[DeviceFacts],
    positions: Mapping[int, int],
    former: str = "",
    user_kernels: Mapping[str, Variant] = MappingProxyType({}),
    old_kernels: Mapping[str, Variant] = MappingProxyType({}),
) -> Plan:
    """Return the cases that would measure rows of a saved run again on `devices`, in their order.

    Instead of a case there is a row with the reason if this version lacks its kernel, parameter or probe.
    Rows of devices that are not here are excluded. Parameters from the preset use the current preset, and
    those that the user gave stay. `positions` maps the saved run's devices that are here to positions in
    `devices`. `former` is what every kernel alternates with, as in `Case.former`. `user_kernels` are the
    user's, by name. `old_kernels` are old versions of these, by current name, to alternate with them.
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
            step = _rebuilt_gemm(row, devices[max(position, 0)], user_kernels)
        else:
            known = probes.get(position, {})  # of the host there are none
            step = known.get(replace(row, device=0).key) or _unknown(
                row, f"probe {row.variant} with these parameters"
            )
        if isinstance(step, Skip):
            steps.append(Skip(replace(step.row, device=position, given=row.given)))
            continue
        values = row.parameters if former and row.parameters != step.parameters else None
        step = replace(step, device=position, former=former, given=row.given, former_parameters=values)
        old = old_kernels.get(step.variant) if position != HOST else None
        steps.append(_alternating_with_old(step, old, devices[position], row) if old else step)
    return tuple(steps)


def _alternating_with_old(step: Case, old: Variant, device: DeviceFacts, row: Row) -> Case:
    """Return the case with an old version of its kernel in `former`, so that their batches alternate.

    The old version uses the saved row's parameters and math mode. Raise `ParameterError` if it cannot.
    """
    shared = {name: int(value) for name, value in row.parameters.items() if name in old.parameters}
    parameters = old.preset(device.family, shared, step.dtype, device)
    math = {MATH: row.parameters[MATH]} if MATH in row.parameters else {}
    return replace(step, former=old.source, former_own=old.own, former_parameters={**parameters, **math})


def _rebuilt_gemm(row: Row, device: DeviceFacts, user_kernels: Mapping[str, Variant]) -> Case | Skip:
    """Plan the case of a saved GEMM row; an unsupported row if its kernel is missing or it is not valid.

    Explicit parameters are kept; the others use the current preset.
    """
    problem, variant = row.problem, (user_kernels if row.own else BY_NAME).get(row.variant)
    assert problem is not None  # of every gemm row that was loaded
    if variant is None and row.own:
        reason = f"{clean(row.variant)} is your own kernel: pass --kernel-file {clean(row.own)}"
        return Skip(replace(_unknown(row, "").row, reason=reason, own=row.own))
    if variant is None:
        return _unknown(row, f"kernel {row.variant}")
    try:
        names = row.parameters if row.given is None else row.given
        parameters = {name: int(row.parameters[name]) for name in names if name != MATH}
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
    """Return an unsupported row: this gemmbench has no `what`."""
    empty = Row(row.kind, row.device, row.variant, row.dtype, row.parameters, "unsupported")
    reason = f"this version has no {what}"
    return Skip(replace(empty, reason=reason, problem=row.problem, label=row.label))
