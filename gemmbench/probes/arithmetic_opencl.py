"""Brings the probes of dependent chains to a device: operands, programs and the host's check."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import pyopencl as cl

from gemmbench.model.dtypes import DTYPES, ReferenceArray
from gemmbench.model.row import Parameters, Work
from gemmbench.opencl.runtime import Built, Runtime, least_in_loop, ptx, rebuild
from gemmbench.probes import reference
from gemmbench.probes.arithmetic import WIDENING, ChainProbe, Form, MatrixProbe, kernels_of
from gemmbench.probes.integrity import compare_results
from gemmbench.probes.launching import MOST_TRIPS, Bench, Launcher, launcher
from gemmbench.probes.reference import RECURRENCES, expected_sums
from gemmbench.probes.reference import Operands as Drawn

_CHECKED_TRIPS = 3
_CPU_GROUP, _GPU_GROUP = 64, 256
_CPU_ITEMS, _GPU_ITEMS = 8 * _CPU_GROUP, 32 * _GPU_GROUP  # for each compute unit


def in_ptx(built: Built, kernel: str, counted: Mapping[str, int]) -> tuple[str, dict[str, float]]:
    """Whether a kernel's loop has what is counted, where the driver gives its program back as PTX.

    What becomes of it later, when PTX is assembled, is not seen. `counted` says how often a trip must have
    each instruction (a regular expression).

    Returns:
        What is missing, or "", and the number of instructions seen, as ``in_ptx``.
    """
    text = ptx(built) if counted else ""
    if not text:
        return "", {}
    seen = {instruction: least_in_loop(text, kernel, instruction) for instruction in counted}
    missing = [
        f"its loop as PTX has {seen[instruction]} of {count} instructions that are counted"
        for instruction, count in counted.items()
        if seen[instruction] < count
    ]
    return "; ".join(missing), {"in_ptx": float(sum(seen.values()))}


@dataclass(frozen=True)
class _Shared:
    """Operands on the host, and the device's buffers of them."""

    host: Drawn
    seeds: Any
    coefficients: Any


class Chains:
    """The operands of one row of a chain probe, which its candidates share."""

    def __init__(self, runtime: Runtime, probe: ChainProbe, dtype: str, width: int) -> None:
        self.runtime, self._probe, self.dtype, self.width = runtime, probe, DTYPES[dtype], width
        facts = runtime.facts
        self._group = _CPU_GROUP if facts.type == "cpu" else _GPU_GROUP
        per_unit = _CPU_ITEMS if facts.type == "cpu" else _GPU_ITEMS
        self.items = max(1, facts.compute_units) * per_unit
        self.sums = runtime.buffer(self.items * max(4, self.dtype.itemsize))
        self._forms = {form.name: form for form in probe.forms[dtype]}
        self._drawn: dict[str, _Shared] = {}

    def bench(self, parameters: Parameters) -> Bench:
        """One form, number of chains and depth of unrolling."""
        form = self._forms[str(parameters["form"])]
        chains, unroll = int(parameters["chains"]), int(parameters["unroll"])
        options = form.options(self.width, unroll, kernels_of(int(parameters["kernels"])))
        kernel = f"chains_{chains}"
        launched = launcher(self.runtime, form.file, options, kernel, self.items, self._group, any_group=True)
        choice: Parameters = {
            "chains": chains,
            "form": form.name,
            "unroll": unroll,
            "items": self.items,
            "group": launched.group,
        }
        unit = Work(flops=self._probe.operations * self.items * self.width * chains * unroll)
        chain = Chain(self, launched, form, chains, unroll)
        counted = form.in_ptx(self.width, chains * unroll)
        if form.recurrence == "mixed":
            counted |= {WIDENING: unroll * self.width}
        inspect = partial(in_ptx, self.runtime.build(form.file, options), kernel, counted)
        return Bench(self, chain, choice, unit, (1, MOST_TRIPS), inspect=inspect, written=self.sums)

    def drawn(self, recurrence: str) -> _Shared:
        """Drawn once for all forms that compute the same."""
        if recurrence not in self._drawn:
            rng = np.random.default_rng((20261121, self.width))
            host = RECURRENCES[recurrence].draw(self.dtype, self.width, rng)
            filled = self.runtime.filled
            self._drawn[recurrence] = _Shared(host, filled(host.seeds), filled(host.coefficients))
        return self._drawn[recurrence]


@dataclass(frozen=True)
class Chain:
    """One candidate: its work is the trips of the kernel's loop."""

    operands: Chains
    launcher: Launcher
    form: Form
    chains: int
    steps: int  # of every chain in a trip

    def enqueue(self, work: int) -> Any:
        drawn = self.operands.drawn(self.form.recurrence)
        return self.launcher.enqueue((drawn.seeds, drawn.coefficients, self.operands.sums, np.int32(work)))

    def wrong(self, work: int = 0) -> str:
        """How the sums of a short run differ from the host's, or "": where the fault is known, its name."""
        shared, queue = self.operands, self.operands.runtime.queue
        recurrence = RECURRENCES[self.form.recurrence]
        stored = recurrence.sum_type(shared.dtype)
        got = np.empty(shared.items, stored.numpy)
        got.view(np.uint8).fill(0xFF)  # NaN, so that what was not written cannot pass
        cl.enqueue_copy(queue, shared.sums, got)
        self.enqueue(_CHECKED_TRIPS)
        cl.enqueue_copy(queue, got, shared.sums)

        def differs(trips: int, merged: bool = False) -> str:
            sums = expected_sums(
                recurrence,
                shared.dtype,
                shared.drawn(self.form.recurrence).host,
                shared.items,
                shared.width,
                self.chains,
                self.steps * trips,
                merged,
            )
            return compare_results(got, sums, stored)

        wrong = differs(_CHECKED_TRIPS)
        if not wrong:
            return ""
        if not differs(_CHECKED_TRIPS, merged=True):
            return (
                "every chain of a work-item has the same sum: equal seeds, which let a compiler merge chains"
            )
        for trips in range(_CHECKED_TRIPS):
            if not differs(trips):
                return f"the sums are those of {trips} trips, not {_CHECKED_TRIPS}: the trip count is ignored"
        return wrong


# --- Brings the probes of NVIDIA's tensor cores to a device: operands, programs and the host's check --------


_GROUP = 128  # work-items: four warps
_WARP = 32


class Tiles:
    """The operands of one row of a matrix probe, which its candidates share."""

    def __init__(self, runtime: Runtime, probe: MatrixProbe, dtype: str, parameters: Parameters) -> None:
        self.runtime, self.probe = runtime, probe
        self.instruction = probe.instruction(dtype, parameters)
        self.result = DTYPES[self.instruction.accumulator]
        self._units = max(1, runtime.facts.compute_units)
        rng = np.random.default_rng(20261121)
        self.exact, drawn = (
            reference.draw(kind, self.instruction, probe.tiles, rng, probe.flipped)
            for kind in ("exact", str(parameters["operands"]))
        )
        self.checked, self.timed = self._arguments(self.exact), self._arguments(drawn)
        most = max(probe.groups) * self._units * self.products(max(probe.chains))
        self.results = runtime.buffer(most * self.instruction.m * self.instruction.n * self.result.itemsize)
        self._programs: dict[tuple[str, ...], Built] = {}

    def bench(self, parameters: Parameters) -> Bench:
        """One number of chains, depth of unrolling and number of work-groups for each unit."""
        probe, instruction = self.probe, self.instruction
        chains, unroll, groups = (int(parameters[name]) for name in ("chains", "unroll", "groups"))
        options = probe.options(instruction, chains, unroll)
        built, items = self._program(options), groups * self._units * _GROUP
        launched = launcher(self.runtime, probe.file, options, probe.name, items, _GROUP, built)
        choice: Parameters = {
            "form": f"{probe.name} {instruction.shape}",
            "chains": chains,
            "unroll": unroll,
            "groups": groups,
            "items": items,
            "group": _GROUP,
        }
        products = groups * self._units * self.products(chains)
        unit = Work(flops=instruction.operations * products * unroll)
        inspect = partial(in_ptx, built, probe.name, probe.in_ptx(instruction, chains * unroll))
        product = Product(self, launched, chains, unroll)
        return Bench(self, product, choice, unit, (1, MOST_TRIPS), inspect=inspect, written=self.results)

    def products(self, chains: int) -> int:
        """Of one work-group."""
        return chains * (_GROUP // _WARP // self.probe.warps)

    def _program(self, options: tuple[str, ...]) -> Built:
        """Aimed at the probe's target, once for all numbers of work-groups."""
        if options not in self._programs:
            built = self.runtime.build(self.probe.file, options)
            if self.probe.target:
                built = rebuild(self.runtime, self.probe.file, built, self.probe.target)
            self._programs[options] = built
        return self._programs[options]

    def _arguments(self, operands: reference.Tiles) -> Callable[[int], tuple[Any, ...]]:
        """Those of the kernel, from the number of trips."""
        a, b = (self.runtime.filled(stored) for stored in operands.stored(self.instruction))
        flips = (np.uint32(operands.flips),) if self.probe.flipped else ()
        return lambda trips: (a, b, self.results, *flips, np.int32(trips))


@dataclass(frozen=True)
class Product:
    """One candidate: its work is the trips of the kernel's loop."""

    operands: Tiles
    launcher: Launcher
    chains: int
    steps: int  # of every chain in a trip

    def enqueue(self, work: int) -> Any:
        return self.launcher.enqueue(self.operands.timed(work))

    def wrong(self, work: int = 0) -> str:
        """How D of a short run on small whole numbers differs from the host's, or ""."""
        shared, queue = self.operands, self.operands.runtime.queue
        instruction = shared.instruction
        products = self.launcher.items // _GROUP * shared.products(self.chains)
        got: ReferenceArray = np.empty((products, instruction.m, instruction.n), shared.result.numpy)
        got.view(np.uint8).fill(0xFF)  # NaN, so that what was not written cannot pass
        cl.enqueue_copy(queue, shared.results, got)
        self.launcher.enqueue(shared.checked(_CHECKED_TRIPS))
        cl.enqueue_copy(queue, got, shared.results)
        # Which tiles a product took: those of its warp (or work-group), and those of its chain.
        count = shared.probe.tiles
        product = np.arange(products)
        pairs = np.stack([product // self.chains % count, product % count], axis=1)
        unique, where = np.unique(pairs, axis=0, return_inverse=True)
        host = reference.expected(shared.exact, unique, self.steps * _CHECKED_TRIPS, instruction)
        return compare_results(got, host[where.reshape(-1)], shared.result, slack=0)
