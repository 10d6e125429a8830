"""What kernels take as built: private and local memory, registers, and how many work-items fit."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import Any

import pyopencl as cl

from gemmbench.facts import theory
from gemmbench.facts.problem import Gemm
from gemmbench.facts.records import DeviceFacts, Resources
from gemmbench.opencl.runtime import Built, Runtime, errors
from gemmbench.rules.variants import Pass, Values, Variant

# ptxas hands out registers in this many for each work-item.
_REGISTER_STEP = 8


def of_variant(
    runtime: Runtime, variant: Variant, parameters: Values, programs: Mapping[str, Built], problem: Gemm
) -> tuple[Resources, ...]:
    """The resources of each kernel that a problem takes, in launch order.

    Raises:
        NotMeasuredError: a kernel cannot be made.
    """
    values = variant.values(problem, {**parameters, **variant.chosen(problem, runtime.facts, parameters)})
    return tuple(_of_pass(runtime, step, values, programs[step.file]) for step in variant.steps(values))


def _of_pass(runtime: Runtime, step: Pass, values: Values, built: Built) -> Resources:
    info, device = cl.kernel_work_group_info, runtime.device
    group = math.prod(step.group(values))
    with errors():
        kernel = cl.Kernel(built.program, step.kernel)

        def ask(what: Any) -> int:
            return int(kernel.get_work_group_info(what, device))

        most, local = ask(info.WORK_GROUP_SIZE), ask(info.LOCAL_MEM_SIZE)
        multiple, private = ask(info.PREFERRED_WORK_GROUP_SIZE_MULTIPLE), ask(info.PRIVATE_MEM_SIZE)
    registers, spills = told(built.log, step.kernel)
    there = _attribute(runtime, "registers_per_block_nv")
    items, limit = fit(runtime.facts, group, local, registers, there)
    return Resources(
        kernel=step.kernel,
        role=step.role,
        group=group,
        most=max(most, group),  # some drivers tell their default for a kernel compiled for a larger group
        multiple=multiple,
        private_bytes=private,
        local_bytes=local,
        registers=registers,
        spill_bytes=spills,
        fit=items,
        limit=limit,
    )


def told(log: str, kernel: str) -> tuple[int | None, int | None]:
    """Registers and spilled bytes of a kernel in the build log of NVIDIA's compiler (-cl-nv-verbose)."""
    for part in re.split(r"Compiling entry function '", log)[1:]:
        if part.startswith(f"{kernel}'"):
            used = re.search(r"Used (\d+) registers", part)
            spilled = re.search(r"(\d+) bytes spill stores", part)
            return (int(used[1]) if used else None), (int(spilled[1]) if spilled else None)
    return None, None


def fit(
    facts: DeviceFacts, group: int, local: int, registers: int | None, file: int
) -> tuple[int | None, str]:
    """Work-items that a compute unit of a GPU holds at once, and what limits them.

    Args:
        facts: the device.
        group: work-items in a work-group.
        local: bytes of local memory of a group.
        registers: of a work-item; None if the driver does not tell.
        file: registers of a compute unit; 0 if not known.
    """
    if facts.type != "gpu":
        return None, ""  # a CPU's core runs one work-group after the other
    rooms: dict[str, int] = {}
    if known := theory.MULTIPROCESSOR.get(facts.compute_capability):
        resident, shared = known
        rooms["work-items"] = resident // group
        if local:
            rooms["local memory"] = shared * 1024 // (local + theory.OF_A_GROUP)
    elif local and not facts.local_mem_emulated:
        rooms["local memory"] = facts.local_mem_bytes // local  # what one group may have is the least
    if registers and file:
        rooms["registers"] = file // (-(-registers // _REGISTER_STEP) * _REGISTER_STEP * group)
    if not rooms:
        return None, ""
    limit = min(rooms, key=lambda name: rooms[name])
    return max(1, rooms[limit]) * group, limit


def _attribute(runtime: Runtime, name: str) -> int:
    """A device attribute of NVIDIA's extension; 0 elsewhere."""
    if "cl_nv_device_attribute_query" not in runtime.facts.extensions:
        return 0
    with errors():
        return int(getattr(runtime.device, name))
