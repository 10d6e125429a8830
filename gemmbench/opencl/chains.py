"""Brings the probes of dependent chains to a device: operands, programs, the race and the host's check."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import pyopencl as cl

from gemmbench.facts.dtypes import DTYPES
from gemmbench.opencl.launching import Launcher
from gemmbench.opencl.racing import Contender, Race
from gemmbench.opencl.runtime import Runtime
from gemmbench.rules.executor import NotMeasuredError
from gemmbench.rules.integrity import compare_results
from gemmbench.rules.probes import CHAINS, UNROLLS, ChainProbe, Form
from gemmbench.rules.recurrences import RECURRENCES, Operands, expected_sums

_FAVOURITES = 2
_MARGIN = 0.97  # a contender this close to the best stays in the race for unrolling
_CHECKED_TRIPS = 3
_CPU_GROUP, _GPU_GROUP = 64, 256
_CPU_ITEMS, _GPU_ITEMS = 8 * _CPU_GROUP, 32 * _GPU_GROUP  # for each compute unit


@dataclass(frozen=True)
class _Drawn:
    """Operands on the host, and the device's buffers of them."""

    host: Operands
    seeds: Any
    coefficients: Any


class ChainBench:
    """One row of a chain probe on one device."""

    def __init__(self, runtime: Runtime, probe: ChainProbe, dtype: str, width: int) -> None:
        self._runtime, self._probe, self._dtype, self._width = runtime, probe, DTYPES[dtype], width
        facts = runtime.facts
        self._group = _CPU_GROUP if facts.type == "cpu" else _GPU_GROUP
        per_unit = _CPU_ITEMS if facts.type == "cpu" else _GPU_ITEMS
        self._items = max(1, facts.compute_units) * per_unit
        self._forms = probe.usable(facts, dtype)
        self._drawn: dict[str, _Drawn] = {}
        self._sums = runtime.buffer(self._items * max(4, self._dtype.itemsize))
        self._failure = ""
        self.build_s = 0.0
        self.bytes = self._dtype.itemsize  # of the narrowest lane that is counted

    def race(self, budget_s: float) -> Race:
        """Race forms, chains and unrolling; whatever comes close in one round goes into the next.

        First every number of chains of one form, then the other forms at the numbers that were best, then
        (if another form won) all its numbers, then the other unroll depths of what is close to the best.
        """
        race = Race(budget_s)
        first, *others = UNROLLS
        for form in self._forms:  # the first that compiles
            if race.enter(partial(self._contenders, form, first, CHAINS)):
                break
        else:
            raise NotMeasuredError("failed", "no form of the probe compiles: " + self._failure)
        favourites = tuple(int(contender.choice["chains"]) for contender in race.ranked()[:_FAVOURITES])
        for other in self._forms:
            if other is not form:
                race.enter(partial(self._contenders, other, first, favourites))
        winner = self._form_of(race.ranked()[0])
        if winner is not form:
            rest = tuple(count for count in CHAINS if count not in favourites)
            race.enter(partial(self._contenders, winner, first, rest))
        close: dict[str, list[int]] = {}
        for contender in race.close_to_best(_MARGIN):
            close.setdefault(str(contender.choice["form"]), []).append(int(contender.choice["chains"]))
        for unroll in others:
            for form in self._forms:
                if form.name in close:
                    race.enter(partial(self._contenders, form, unroll, close[form.name]))
        best = race.ranked()[0]
        if others and race.unrolling(best) is None:  # the verdict on it needs a second depth
            chains = (int(best.choice["chains"]),)
            race.enter(partial(self._contenders, self._form_of(best), others[0], chains), late=True)
        return race

    def summary(self, race: Race) -> tuple[str, ...]:
        """How the race went."""
        return race.summary(form="forms", chains="chains")

    def wrong_result(self, contender: Contender) -> str:
        """How the sums of a short run differ from the host's, or "": where the fault is known, its name."""
        form = self._form_of(contender)
        recurrence = RECURRENCES[form.recurrence]
        stored = recurrence.sum_type(self._dtype)
        got = np.empty(self._items, stored.numpy)
        got.view(np.uint8).fill(0xFF)  # NaN, so that what was not written cannot pass
        cl.enqueue_copy(self._runtime.queue, self._sums, got)
        contender.run(_CHECKED_TRIPS)
        cl.enqueue_copy(self._runtime.queue, got, self._sums)

        def expected(trips: int, merged: bool = False) -> str:
            sums = expected_sums(
                recurrence,
                self._dtype,
                self._operands(form.recurrence).host,
                self._items,
                self._width,
                int(contender.choice["chains"]),
                contender.steps * trips,
                merged,
            )
            return compare_results(got, sums, stored)

        wrong = expected(_CHECKED_TRIPS)
        if not wrong:
            return ""
        if not expected(_CHECKED_TRIPS, merged=True):
            return (
                "every chain of a work-item has the same sum: equal seeds, which let a compiler merge chains"
            )
        for trips in range(_CHECKED_TRIPS):
            if not expected(trips):
                return f"the sums are those of {trips} trips, not {_CHECKED_TRIPS}: the trip count is ignored"
        return wrong

    def _form_of(self, contender: Contender) -> Form:
        return next(form for form in self._forms if form.name == contender.choice["form"])

    def _operands(self, recurrence: str) -> _Drawn:
        """Drawn once for all forms that compute the same."""
        if recurrence not in self._drawn:
            rng = np.random.default_rng((20261121, self._width))
            host = RECURRENCES[recurrence].draw(self._dtype, self._width, rng)
            filled = self._runtime.filled
            self._drawn[recurrence] = _Drawn(host, filled(host.seeds), filled(host.coefficients))
        return self._drawn[recurrence]

    def _contenders(self, form: Form, unroll: int, chains: Iterable[int]) -> Iterable[Contender]:
        """The kernels of one program; none if the device's compiler refuses it."""
        chains = tuple(chains)
        if not chains:
            return
        try:
            built = self._runtime.build(form.file, form.options(self._width, unroll, chains))
        except NotMeasuredError as error:
            self._failure = error.reason
            return
        self.build_s += built.seconds
        drawn = self._operands(form.recurrence)
        for count in chains:
            try:
                kernel = self._runtime.kernel(built, f"chains_{count}", (self._group,))
            except NotMeasuredError:
                continue  # too many registers for the group: other chain counts remain
            yield Contender(
                launcher=Launcher(self._runtime.queue, kernel, self._items, self._group),
                arguments=(drawn.seeds, drawn.coefficients, self._sums),
                choice={
                    "chains": count,
                    "form": form.name,
                    "unroll": unroll,
                    "items": self._items,
                    "group": self._group,
                },
                operations=self._probe.operations * self._items * self._width * count * unroll,
                steps=unroll,
            )
