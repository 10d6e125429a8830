"""NVIDIA's binary route: instructions that the driver refuses in OpenCL C, put into the program's binary.

The driver compiles OpenCL C for the plain target of the device, ``sm_90``, which has no ``wgmma``. But a
program's binary is PTX text, and it is compiled again when a program is made from it. So a kernel states such
instructions in ``asm volatile`` as comments; the first compilation passes them on, operands filled in:

    asm volatile("//@sm_90a wgmma.fence.sync.aligned;" ::: "memory");

`rebuild` takes the marks of a target away, aims the text at that target and builds it.
"""

from __future__ import annotations

import re
import time
from typing import Any

import pyopencl as cl

from gemmbench.opencl.runtime import Built, Runtime, build_failure, errors
from gemmbench.rules.executor import NotMeasuredError

_TARGET = re.compile(r"^\s*\.target\s+(sm_\d+)\w*", re.MULTILINE)


def released(text: str, target: str) -> str:
    """PTX text aimed at a target, the instructions marked for it no longer comments.

    Args:
        text: PTX, with comments of the form ``//@TARGET instructions``.
        target: ``sm_90a``.

    Raises:
        NotMeasuredError: the text is for another architecture, or is no PTX.
    """
    found = _TARGET.search(text)
    if found is None:
        raise NotMeasuredError("failed", "the driver's program binary is not PTX text")
    if found[1] != target.rstrip("af"):
        raise NotMeasuredError("unsupported", f"the driver compiles for {found[1]}, not for {target}")
    text = text[: found.start(1)] + target + text[found.end() :]
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
