"""Brings the probes of dependent chains to a device: operands, programs and the host's check."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pyopencl as cl

from gemmbench.facts.dtypes import DTYPES
from gemmbench.facts.records import Parameters, Work
from gemmbench.opencl.launching import MOST_TRIPS, Bench, Launcher, launcher
from gemmbench.opencl.runtime import Runtime
from gemmbench.rules.integrity import compare_results
from gemmbench.rules.probes import ChainProbe, Form, kernels_of
from gemmbench.rules.recurrences import RECURRENCES, expected_sums
from gemmbench.rules.recurrences import Operands as Drawn

_CHECKED_TRIPS = 3
_CPU_GROUP, _GPU_GROUP = 64, 256
_CPU_ITEMS, _GPU_ITEMS = 8 * _CPU_GROUP, 32 * _GPU_GROUP  # for each compute unit


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
        launched = launcher(self.runtime, form.file, options, kernel, self.items, self._group)
        choice: Parameters = {
            "chains": chains,
            "form": form.name,
            "unroll": unroll,
            "items": self.items,
            "group": self._group,
        }
        unit = Work(flops=self._probe.operations * self.items * self.width * chains * unroll)
        chain = Chain(self, launched, form, chains, unroll)
        return Bench(self, chain, choice, unit, (1, MOST_TRIPS))

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
        """See `launching.Candidate`."""
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
