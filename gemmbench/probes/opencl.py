"""The probes of arithmetic on an OpenCL device, and the executor of all probes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pyopencl as cl

from gemmbench.model.case import Case, Policy
from gemmbench.model.dtypes import DTYPES, HostArray
from gemmbench.model.problem import Gemm
from gemmbench.model.row import Parameters, Work
from gemmbench.opencl.runtime import Runtime, errors
from gemmbench.probes import PROBES, arithmetic
from gemmbench.probes.arithmetic import RECURRENCES, ChainOperands, ChainProbe, MatrixProbe
from gemmbench.probes.memory import BY_NAME, RepeatedTable
from gemmbench.probes.memory_opencl import MAKERS, Make, MemoryRow, ProbeBench, make_launcher
from gemmbench.probes.race import compare_results

_CHECKED_TRIPS = 3
_ON_CPU, _ON_GPU = (8, 64), (32, 256)  # work-groups for each compute unit, work-items in each
_GROUP = 128  # work-items of a GPU: four warps
_WARP = 32
_SEED = 20261121


class ProbeExecutor:
    """Prepares the probes' cases on one OpenCL device: see `measure.instrument.Executor`."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._table = RepeatedTable()

    def prepare(
        self, case: Case, policy: Policy, like: ProbeBench | None, problem: Gemm | None = None
    ) -> ProbeBench:
        """The bench of a candidate, which shares the buffers of `like`. Raises `NotMeasuredError`."""
        with errors():
            make = like.make if like and like.make else self._allocate(case)
            bench = make(case.parameters)
            bench.make = make
            return bench

    def _allocate(self, case: Case) -> Make:
        """The maker of a probe's benches, with its buffers."""
        if case.kind != "peak":
            probe = BY_NAME[case.variant]
            return MAKERS[probe.bench](MemoryRow(self._runtime, probe, case.parameters, self._table))
        units = PROBES[case.variant]
        if isinstance(units, ChainProbe):
            return chains(self._runtime, units, case.dtype, int(case.parameters["width"]))
        return matrix_tiles(self._runtime, units, case.dtype, case.parameters)


def chains(runtime: Runtime, probe: ChainProbe, dtype: str, width: int) -> Make:
    """Chains of steps in registers. A unit of work is an iteration, in which each makes `unroll` steps."""
    kind, facts = DTYPES[dtype], runtime.facts
    groups, wanted_group = _ON_CPU if facts.type == "cpu" else _ON_GPU
    items = max(1, facts.compute_units) * groups * wanted_group
    sums = runtime.buffer(items * max(4, kind.itemsize))
    forms = {form.name: form for form in probe.forms[dtype]}
    drawn: dict[str, tuple[ChainOperands, Any, Any]] = {}

    def operands(name: str) -> tuple[ChainOperands, Any, Any]:
        if name not in drawn:
            host = RECURRENCES[name].draw(kind, width, np.random.default_rng((_SEED, width)))
            drawn[name] = host, runtime.filled(host.seeds), runtime.filled(host.coefficients)
        return drawn[name]

    def make(parameters: Parameters) -> ProbeBench:
        form = forms[str(parameters["form"])]
        count, unroll = int(parameters["chains"]), int(parameters["unroll"])
        options = form.options(width, unroll, map(int, str(parameters["kernels"]).split(",")))
        launcher = make_launcher(
            runtime, form.file, options, f"chains_{count}", items, wanted_group, any_group=True
        )
        recurrence = RECURRENCES[form.recurrence]
        stored = recurrence.sum_type(kind)

        def enqueue(trips: int) -> Any:
            _, seeds, coefficients = operands(form.recurrence)
            return launcher.enqueue((seeds, coefficients, sums, np.int32(trips)))

        def check(_: int, steps: int = unroll) -> str:
            """How the sums of three iterations differ from the host's, or ""."""
            got = np.empty(items, stored.numpy)
            _launch_and_read(runtime, sums, got, lambda: enqueue(_CHECKED_TRIPS))
            host = operands(form.recurrence)[0]

            def differs(trips: int, merged: bool = False) -> str:
                expected = arithmetic.expected_sums(
                    recurrence, kind, host, items, width, count, steps * trips, merged
                )
                return compare_results(got, expected, stored)

            wrong = differs(_CHECKED_TRIPS)
            if not wrong:
                return ""
            if not differs(_CHECKED_TRIPS, merged=True):
                same = "every chain of a work-item has the same sum"
                return f"{same}: equal seeds, which let a compiler merge chains"
            for trips in range(_CHECKED_TRIPS):
                if not differs(trips):
                    counts = f"the sums are those of {trips} trips, not {_CHECKED_TRIPS}"
                    return f"{counts}: the trip count is ignored"
            return wrong

        choice: Parameters = {"chains": count, "form": form.name, "unroll": unroll}
        choice |= {"items": items, "group": launcher.group}
        unit = Work(flops=probe.operations * items * width * count * unroll)
        return launcher.bench(enqueue, check, choice, unit)

    return make


def matrix_tiles(runtime: Runtime, probe: MatrixProbe, dtype: str, parameters: Parameters) -> Make:
    """Products of tiles by matrix units. A unit of work is an iteration of `unroll` steps."""
    instruction = probe.instruction(dtype, parameters)
    result = DTYPES[instruction.accumulator]
    units, group = max(1, runtime.facts.compute_units), _GROUP if probe.warps else 1
    rng = np.random.default_rng(_SEED)
    exact = arithmetic.draw_tiles("exact", instruction, probe.tiles, rng)
    drawn = arithmetic.draw_tiles(str(parameters["operands"]), instruction, probe.tiles, rng)
    checked, timed = (tuple(map(runtime.filled, each.stored(instruction))) for each in (exact, drawn))

    def products_of(count: int) -> int:
        return count * (_GROUP // _WARP // probe.warps if probe.warps else 1)

    most = max(probe.groups) * units * products_of(max(probe.chains))
    results = runtime.buffer(most * instruction.m * instruction.n * result.itemsize)

    def make(parameters: Parameters) -> ProbeBench:
        count, unroll, groups = (int(parameters[name]) for name in ("chains", "unroll", "groups"))
        options = probe.options(instruction, count, unroll)
        built = runtime.build(probe.file, options, target=probe.family.target)
        items, products = groups * units * group, groups * units * products_of(count)
        launcher = make_launcher(runtime, probe.file, options, probe.name, items, group, built)

        def enqueue(trips: int) -> Any:
            return launcher.enqueue((*timed, results, np.int32(trips)))

        def check(_: int, steps: int = unroll) -> str:
            got: HostArray = np.empty((products, instruction.m, instruction.n), result.numpy)
            arguments = *checked, results, np.int32(_CHECKED_TRIPS)
            _launch_and_read(runtime, results, got, lambda: launcher.enqueue(arguments))
            # Which tiles a product took: those of its warp (or work-group), and those of its chain.
            product = np.arange(products)
            pairs = np.stack([product // count, product], axis=1) % probe.tiles
            unique, where = np.unique(pairs, axis=0, return_inverse=True)
            host = arithmetic.expected_product(exact, unique, steps * _CHECKED_TRIPS)
            return compare_results(got, host[where.reshape(-1)], result, slack=0)

        choice: Parameters = {"form": f"{probe.name} {instruction.shape}", "chains": count, "unroll": unroll}
        choice |= {"groups": groups, "items": items, "group": group}
        return launcher.bench(enqueue, check, choice, Work(flops=instruction.operations * products * unroll))

    return make


def _launch_and_read(runtime: Runtime, results: Any, got: HostArray, launch: Callable[[], Any]) -> None:
    """Launch a kernel and read `got`. What is not written is NaN, which cannot pass."""
    got.view(np.uint8).fill(0xFF)
    cl.enqueue_copy(runtime.queue, results, got)
    launch()
    cl.enqueue_copy(runtime.queue, got, results)
