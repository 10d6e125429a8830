"""Runs inside Oclgrind: one variant's exact problems in float, at small sizes. It is not a test.

``python run_variant.py VARIANT [NAME=VALUE ...] [FAULT]``: the smallest parameters but these; FAULT
``no-barrier`` leaves the barriers out.
"""

from __future__ import annotations

import sys
from functools import partial
from typing import Any

from gemmbench.gemm.opencl import GemmExecutor
from gemmbench.gemm.opencl_bench import Bind
from gemmbench.gemm.verify import ExactTest
from gemmbench.ladder import BY_NAME
from gemmbench.ladder.variant import Layout, Variant, laid_out
from gemmbench.model import kernel_files
from gemmbench.model.device import DeviceFacts
from gemmbench.model.problem import Gemm
from gemmbench.opencl import runtime as runtime_module
from gemmbench.opencl.discovery import list_devices
from gemmbench.opencl.runtime import Runtime

_LARGEST = 33  # edge that is interpreted, of larger tiles too


class Keeping(Runtime):
    """Frees no buffer: Oclgrind 21.10 takes reused memory for uninitialised, written or not."""

    def __init__(self, facts: DeviceFacts) -> None:
        super().__init__(facts)
        self._kept: list[Any] = []

    def buffer(self, nbytes: int, flags: int = 0) -> Any:
        self._kept.append(super().buffer(nbytes, flags))
        return self._kept[-1]


def smallest(variant: Variant) -> dict[str, int]:
    """Parameters with the smallest tile: an interpreter runs them, and races need no more."""
    spaces = (parameters for parameters in variant.space() if not variant.needs.extensions(parameters))
    return min(spaces, key=lambda parameters: (variant.launches.edge(parameters), sum(parameters.values())))


def exact_run(executor: GemmExecutor, problem: Gemm, bind: Bind, padding: int | None) -> str:
    """What is wrong with one exact problem, or ""; with `padding`, rows begin where so long vectors do."""
    rows = Layout(*(-each % padding + each + padding for each in problem.tight)) if padding else None
    test = ExactTest.of(problem, rows)
    return test.error(executor._result(test, bind))


def main() -> None:
    name, *rest = sys.argv[1:]
    given = {key: int(value) for key, equals, value in (each.partition("=") for each in rest) if equals}
    has_fault = "no-barrier" in rest
    if has_fault:
        text = kernel_files.text
        planted: Any = runtime_module
        planted.text = lambda *file: text(*file).replace("barrier(CLK_LOCAL_MEM_FENCE);", ";")
    (device,) = list_devices()
    assert "Oclgrind" in device.platform, device.platform
    executor = GemmExecutor(Keeping(device))
    variant = BY_NAME[name]
    parameters = {**smallest(variant), **given}
    assert not variant.broken(parameters, "float"), parameters
    programs = {
        file: executor.runtime.build(file, variant.options("float", parameters)) for file in variant.files
    }
    bind = partial(executor.bind, variant, parameters, programs)
    edge = min(variant.launches.edge(parameters), _LARGEST)
    shapes = [(edge + 1, edge + 2, edge + 3), (1, 1, 1), (3, 2, 0)]
    turned_shape, padding = (9, 10, 11), None
    if many := parameters.get("MANY", 0):  # two groups, a block along k and what makes none; vectors fit
        turned_shape = (many + 8, 5, 300) if parameters["COLUMNS"] else (5, many + 8, 300)
        shapes, padding = [turned_shape], 4
    if edge == variant.launches.edge(parameters):  # else it is a part of a tile, as the first is
        shapes.append((edge, edge, edge))
    problems = [Gemm(*shapes[0], "float"), *(Gemm(*shape, "float", 2.0, -1.0) for shape in shapes)]
    for problem in problems[:1] if has_fault else problems:  # every problem of several tiles shows the fault
        if error := exact_run(executor, problem, bind, padding):
            print(f"{problem.shape}: {error}")
    if variant.launches.either and not has_fault:  # its loads of what is stored transposed
        problem = Gemm(*turned_shape, "float", 2.0, -1.0, trans_a=True, trans_b=True)
        turned = laid_out(variant, problem)
        built = executor.programs(turned, "float", parameters)
        if error := exact_run(executor, problem, partial(executor.bind, turned, parameters, built), padding):
            print(f"{problem.shape}: {error}")
    print("done")


if __name__ == "__main__":
    main()
