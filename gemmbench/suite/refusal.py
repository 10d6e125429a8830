"""Why a variant cannot run on a device: types, features, groups, memory."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping

from gemmbench.gemm.verify import could_overflow
from gemmbench.ladder.variant import Layout, Variant, laid_out
from gemmbench.measure.machine import free_memory_bytes
from gemmbench.model.device import DeviceFacts
from gemmbench.model.dtypes import DTYPES
from gemmbench.model.problem import LONGEST, Gemm
from gemmbench.model.units import size

_HOST_COPIES = 3  # of A, B and C in host memory: those that are timed, those of verification, results


def why_not(device: DeviceFacts, variant: Variant, problem: Gemm, parameters: Mapping[str, int]) -> str:
    """Why a device cannot run a variant with these parameters, or ""."""
    variant = laid_out(variant, problem)
    full = {**parameters, **variant.chosen(problem, device, parameters)}
    own = tuple(parameters)
    return why_unsupported(device, variant, problem, full, own) or why_too_large(
        device, variant, problem, full
    )


def smaller_preset(
    device: DeviceFacts, variant: Variant, problem: Gemm, preset: Mapping[str, int]
) -> dict[str, int]:
    """The nearest valid parameters that fit the device; {} if none do."""
    if _lacks(device, variant, problem, preset):  # what no size of a group changes
        return {}

    def fits(parameters: Mapping[str, int]) -> bool:
        full = {**parameters, **variant.chosen(problem, device, parameters)}
        return not why_unsupported(device, variant, problem, full)

    return variant.nearest(preset, problem.dtype, fits)


def why_unsupported(
    device: DeviceFacts, variant: Variant, problem: Gemm, own: Mapping[str, int], given: Collection[str] = ()
) -> str:
    """Why a device cannot run a variant at any size, or ""."""
    fixed = variant.fixes_group(given)
    return _lacks(device, variant, problem, own) or _exceeds(device, variant, problem, own, fixed)


def _lacks(device: DeviceFacts, variant: Variant, problem: Gemm, parameters: Mapping[str, int]) -> str:
    """Why a variant cannot run a problem on a device, or ""."""
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
    """Which argument (alpha, beta, leading dimension) a kernel does not have, or ""."""
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
    """Which local memory or work-group limit a variant exceeds, or ""."""
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


def why_too_large(device: DeviceFacts, variant: Variant, problem: Gemm, parameters: Mapping[str, int]) -> str:
    """Which limit of images, integers, buffers or memory a problem exceeds, or ""."""
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


def why_no_memory(device: DeviceFacts, variant: Variant, problem: Gemm, parameters: Mapping[str, int]) -> str:
    """How much host memory is lacking for three copies of the operands, or ""."""
    operands = sum(problem.bytes_of.values())
    temporaries = sum(variant.temporary_bytes(problem, parameters).values())
    on_host = _HOST_COPIES * operands + (operands + temporaries if device.type == "cpu" else 0)
    if on_host > (free := free_memory_bytes()):
        return f"needs {size(on_host)} of host memory, {size(free)} is free"
    return ""
