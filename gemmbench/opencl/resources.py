"""What kernels take as built: private and local memory, registers, and how many work-items fit."""

from __future__ import annotations

import math
import re
import time
from collections.abc import Mapping
from typing import Any

import pyopencl as cl

from gemmbench.ladder.variant import Pass, Values, Variant
from gemmbench.model.device import DeviceFacts
from gemmbench.model.instrument import NotMeasuredError
from gemmbench.model.problem import Gemm
from gemmbench.model.row import Resources
from gemmbench.opencl.runtime import Built, Runtime, build_failure, errors
from gemmbench.stats import ceilings

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
    registers, spills = registers_and_spills(built.log, step.kernel)
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


def registers_and_spills(log: str, kernel: str) -> tuple[int | None, int | None]:
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
    if known := ceilings.MULTIPROCESSOR.get(facts.compute_capability):
        resident, shared = known
        rooms["work-items"] = resident // group
        if local:
            rooms["local memory"] = shared * 1024 // (local + ceilings.OF_A_GROUP)
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


# --- NVIDIA's binary route: instructions that the driver refuses in OpenCL C, put into the program's
# binary.
#
# The driver compiles OpenCL C for the plain target of the device, ``sm_90``, which has no ``wgmma``. But a
# program's binary is PTX text, and it is compiled again when a program is made from it. So a kernel states
# such
# instructions in ``asm volatile`` as comments; the first compilation passes them on, operands filled in:
#
#     asm volatile("//@sm_90a wgmma.fence.sync.aligned;" ::: "memory");
#
# `rebuild` takes the marks of a target away, aims the text at that target and builds it.


_TARGET = re.compile(r"^\s*\.target\s+(sm_\d+)\w*", re.MULTILINE)


def released(text: str, target: str) -> str:
    """PTX text for a target. Instructions marked for it are no longer comments.

    Args:
        text: PTX, with comments of the form ``//@TARGET instructions``.
        target: ``sm_90a``.

    Raises:
        NotMeasuredError: the text is for another architecture, or is no PTX.
    """
    match = _TARGET.search(text)
    if match is None:
        raise NotMeasuredError("failed", "the driver's program binary is not PTX text")
    if match[1] != target.rstrip("af"):
        raise NotMeasuredError("unsupported", f"the driver compiles for {match[1]}, not for {target}")
    text = text[: match.start(1)] + target + text[match.end() :]
    return re.sub(rf"//@{re.escape(target)}[^\S\n]", "", text)


def rebuild(runtime: Runtime, file: str, built: Built, target: str) -> Built:
    """A program built again from its own PTX, aimed at a target.

    Args:
        runtime: the device, NVIDIA's.
        file: what the program was built from, for messages.
        built: the program as the driver compiled it.
        target: whose marks are taken away.

    Returns:
        The new program; its seconds are those of both builds.

    Raises:
        NotMeasuredError: the binary is not what it is expected to be, or its instructions do not assemble.
    """
    begin = time.perf_counter()
    with errors():
        (binary,) = built.program.get_info(cl.program_info.BINARIES)
        text = released(_as_text(binary), target)
        program = cl.Program(runtime.context, [runtime.device], [text.encode()])
        try:
            program.build(["-cl-nv-verbose"])  # registers and spills
        except cl.Error as error:
            raise NotMeasuredError(
                "failed", build_failure(f"{file} as PTX for {target}", str(error))
            ) from None
        log = program.get_build_info(runtime.device, cl.program_build_info.LOG) or ""
    return Built(program, built.seconds + time.perf_counter() - begin, log.strip())


def _as_text(binary: Any) -> str:
    return bytes(binary).decode("latin-1").rstrip("\0")


def ptx(built: Built) -> str:
    """A program as PTX text; "" where the driver gives something else back."""
    with errors():
        (binary,) = built.program.get_info(cl.program_info.BINARIES)
    text = _as_text(binary)
    return text if _TARGET.search(text) else ""


def least_in_loop(text: str, kernel: str, instruction: str) -> int:
    """The least that an instruction occurs in a kernel's innermost loops, of those that have it.

    A compiler may unroll a loop further and leave a second one for the rest: that has each step once.

    Args:
        text: PTX.
        kernel: its entry.
        instruction: a regular expression; comments are left out.

    Returns:
        0 if no loop has it, or there is no such kernel.
    """
    entry = re.search(rf"\.entry\s+{re.escape(kernel)}\b.*?^}}", text, re.DOTALL | re.MULTILINE)
    lines = [line.partition("//")[0] for line in entry[0].splitlines()] if entry else []
    labels: dict[str, int] = {}
    loops: list[tuple[int, int]] = []
    for number, line in enumerate(lines):
        if label := re.match(r"\s*([$\w]+):", line):
            labels[label[1]] = number
        elif (jump := re.search(r"\bbra(?:\.uni)?\s+([$\w]+)", line)) and jump[1] in labels:
            loops.append((labels[jump[1]], number))
    counts = {
        loop: sum(len(re.findall(instruction, line)) for line in lines[loop[0] : loop[1]]) for loop in loops
    }
    innermost = [
        count
        for (begin, end), count in counts.items()
        if count and not any(begin <= a and b < end and counts[a, b] for a, b in loops)
    ]
    return min(innermost, default=0)
