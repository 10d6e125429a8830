"""Brings the probes of NVIDIA's tensor cores to a device: operands, programs and the host's check."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pyopencl as cl

from gemmbench.facts.dtypes import DTYPES
from gemmbench.facts.records import Parameters, Work
from gemmbench.opencl import ptx
from gemmbench.opencl.launching import MOST_TRIPS, Bench, Launcher, launcher
from gemmbench.opencl.runtime import Built, Runtime
from gemmbench.rules import tiles
from gemmbench.rules.integrity import compare_results
from gemmbench.rules.probes import MatrixProbe
from gemmbench.rules.reference import Array

_GROUP = 128  # work-items: four warps
_WARP = 32
_CHECKED_TRIPS = 3


class Tiles:
    """The operands of one row of a matrix probe, which its candidates share."""

    def __init__(self, runtime: Runtime, probe: MatrixProbe, dtype: str, parameters: Parameters) -> None:
        self.runtime, self.probe = runtime, probe
        self.instruction = probe.instruction(dtype, parameters)
        self.result = DTYPES[self.instruction.accumulator]
        self._units = max(1, runtime.facts.compute_units)
        rng = np.random.default_rng(20261121)
        self.exact = tiles.draw("exact", self.instruction, probe.tiles, rng)
        drawn = tiles.draw(str(parameters["operands"]), self.instruction, probe.tiles, rng)
        self.checked, self.timed = self._buffers(self.exact), self._buffers(drawn)
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
        return Bench(self, Product(self, launched, chains, unroll), choice, unit, (1, MOST_TRIPS))

    def products(self, chains: int) -> int:
        """Of one work-group."""
        return chains * (_GROUP // _WARP // self.probe.warps)

    def _program(self, options: tuple[str, ...]) -> Built:
        """Aimed at the probe's target, once for all numbers of work-groups."""
        if options not in self._programs:
            built = self.runtime.build(self.probe.file, options)
            if self.probe.target:
                built = ptx.rebuild(self.runtime, self.probe.file, built, self.probe.target)
            self._programs[options] = built
        return self._programs[options]

    def _buffers(self, operands: tiles.Tiles) -> tuple[Any, Any]:
        a, b = operands.stored(self.instruction)
        return self.runtime.filled(a), self.runtime.filled(b)


@dataclass(frozen=True)
class Product:
    """One candidate: its work is the trips of the kernel's loop."""

    operands: Tiles
    launcher: Launcher
    chains: int
    steps: int  # of every chain in a trip

    def enqueue(self, work: int) -> Any:
        """See `launching.Candidate`."""
        return self.launcher.enqueue((*self.operands.timed, self.operands.results, np.int32(work)))

    def wrong(self, work: int = 0) -> str:
        """How D of a short run on small whole numbers differs from the host's, or ""."""
        shared, queue = self.operands, self.operands.runtime.queue
        instruction = shared.instruction
        products = self.launcher.items // _GROUP * shared.products(self.chains)
        got: Array = np.empty((products, instruction.m, instruction.n), shared.result.numpy)
        got.view(np.uint8).fill(0xFF)  # NaN, so that what was not written cannot pass
        cl.enqueue_copy(queue, shared.results, got)
        self.launcher.enqueue((*shared.checked, shared.results, np.int32(_CHECKED_TRIPS)))
        cl.enqueue_copy(queue, got, shared.results)
        # Which tiles a product took: those of its warp (or work-group), and those of its chain.
        count = shared.probe.tiles
        product = np.arange(products)
        pairs = np.stack([product // self.chains % count, product % count], axis=1)
        unique, where = np.unique(pairs, axis=0, return_inverse=True)
        host = tiles.expected(shared.exact, unique, self.steps * _CHECKED_TRIPS)
        return compare_results(got, host[where.reshape(-1)], shared.result, slack=0)
