"""Brings the probes of NVIDIA's tensor cores to a device: operands, programs, race and the host's check."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pyopencl as cl

from gemmbench.facts.dtypes import DTYPES
from gemmbench.facts.records import Parameters
from gemmbench.opencl import ptx
from gemmbench.opencl.launching import Launcher
from gemmbench.opencl.racing import Contender, Race
from gemmbench.opencl.runtime import Runtime
from gemmbench.rules import tiles
from gemmbench.rules.executor import NotMeasuredError
from gemmbench.rules.integrity import compare_results
from gemmbench.rules.probes import MatrixProbe
from gemmbench.rules.reference import Array

_GROUP = 128  # work-items: four warps
_WARP = 32
_CHECKED_TRIPS = 3


class MatrixBench:
    """One row of a matrix probe on one device."""

    def __init__(self, runtime: Runtime, probe: MatrixProbe, dtype: str, parameters: Parameters) -> None:
        self._runtime, self._probe = runtime, probe
        self._instruction = probe.instruction(dtype, parameters)
        self._result = DTYPES[self._instruction.accumulator]
        self.bytes = DTYPES[dtype].itemsize
        self._units = max(1, runtime.facts.compute_units)
        rng = np.random.default_rng(20261121)
        self._exact = tiles.draw("exact", self._instruction, probe.tiles, rng)
        timed = tiles.draw(str(parameters["operands"]), self._instruction, probe.tiles, rng)
        self._checked, self._timed = self._buffers(self._exact), self._buffers(timed)
        most = max(probe.groups) * self._units * self._products(max(probe.chains))
        self._results = runtime.buffer(most * self._tile_bytes)
        self._failure = ""
        self.build_s = 0.0

    def race(self, budget_s: float) -> Race:
        """Race numbers of chains, unroll depths and work-groups for each unit."""
        race = Race(budget_s)
        for unroll in self._probe.unrolls:
            for chains in self._probe.chains:
                race.enter(partial(self._contenders, chains, unroll))
        if not race.ranked():
            raise NotMeasuredError("failed", self._failure)
        return race

    def summary(self, race: Race) -> tuple[str, ...]:
        """How the race went."""
        return race.summary(chains="chains", unroll="unroll depths", groups="groups a unit")

    def wrong_result(self, contender: Contender) -> str:
        """How D of a short run on small whole numbers differs from the host's, or ""."""
        instruction, chains = self._instruction, int(contender.choice["chains"])
        products = contender.launcher.items // _GROUP * self._products(chains)
        got: Array = np.empty((products, instruction.m, instruction.n), self._result.numpy)
        got.view(np.uint8).fill(0xFF)  # NaN, so that what was not written cannot pass
        cl.enqueue_copy(self._runtime.queue, self._results, got)
        replace(contender, arguments=(*self._checked, self._results)).run(_CHECKED_TRIPS)
        cl.enqueue_copy(self._runtime.queue, got, self._results)
        # Which tiles a product took: those of its warp (or work-group), and those of its chain.
        product = np.arange(products)
        pairs = np.stack([product // chains % self._probe.tiles, product % self._probe.tiles], axis=1)
        unique, where = np.unique(pairs, axis=0, return_inverse=True)
        host = tiles.expected(self._exact, unique, contender.steps * _CHECKED_TRIPS)
        return compare_results(got, host[where.reshape(-1)], self._result, slack=0)

    @property
    def _tile_bytes(self) -> int:
        return self._instruction.m * self._instruction.n * self._result.itemsize

    def _products(self, chains: int) -> int:
        """Of one work-group."""
        return chains * (_GROUP // _WARP // self._probe.warps)

    def _buffers(self, operands: tiles.Tiles) -> tuple[Any, Any]:
        a, b = operands.stored(self._instruction)
        return self._runtime.filled(a), self._runtime.filled(b)

    def _contenders(self, chains: int, unroll: int) -> Iterable[Contender]:
        """One program, launched with several numbers of work-groups; none if it does not assemble."""
        probe, instruction = self._probe, self._instruction
        try:
            built = self._runtime.build(probe.file, probe.options(instruction, chains, unroll))
            if probe.target:
                built = ptx.rebuild(self._runtime, probe.file, built, probe.target)
            kernel = self._runtime.kernel(built, probe.name, (_GROUP,))
        except NotMeasuredError as error:
            self._failure = error.reason
            return
        self.build_s += built.seconds
        for groups in probe.groups:
            all_groups = groups * self._units
            products = all_groups * self._products(chains)
            yield Contender(
                launcher=Launcher(self._runtime.queue, kernel, all_groups * _GROUP, _GROUP),
                arguments=(*self._timed, self._results),
                choice={
                    "form": f"{probe.name} {instruction.shape}",
                    "chains": chains,
                    "unroll": unroll,
                    "groups": groups,
                    "items": all_groups * _GROUP,
                    "group": _GROUP,
                },
                operations=instruction.operations * products * unroll,
                steps=unroll,
            )
