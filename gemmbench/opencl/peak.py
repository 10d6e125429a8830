"""Runs the compute probes: race forms, chains and unrolling, then establish that the winner is real."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyopencl as cl

from gemmbench.facts.dtypes import DTYPES, DType
from gemmbench.facts.records import Parameters, Policy, Row, Scope, Work
from gemmbench.facts.units import number
from gemmbench.opencl.runtime import Built, Runtime, errors
from gemmbench.rules import integrity
from gemmbench.rules.executor import NotMeasuredError, Tell
from gemmbench.rules.measure import sample
from gemmbench.rules.plan import Case
from gemmbench.rules.probes import CHAINS, PROBES, UNROLLS, Form, Probe, ceiling

_SEEDS = 4096  # as in flops.cl
_RACE_S = 0.004  # one launch in the race lasts about this
_LAUNCH_S = 0.01  # and one that is sampled
_BATCH_S = 0.03  # several launches in a batch: threads that sleep between launches may wake on one core
_BUDGET_SHARE = (
    1 / 6
)  # of a row's budget for one round of sampling: the best batch is asked for, not the median
_SAMPLING_ROUNDS = 3
_SLOWER = 0.95
_FAVOURITES = 2
_RACE_RUNS = 3
_RACE_MARGIN = 0.97  # a contender this close to the best stays in the race for unrolling
_DOUBLING_RUNS = 4
_DOUBLING_MOST = 24
_CHECKED_TRIPS = 3


@dataclass(frozen=True)
class Contender:
    """One form of the probe, built."""

    form: Form
    unroll: int
    chains: int
    kernel: Any
    items: int
    group: int

    def operations(self, probe: Probe, width: int, trips: int) -> int:
        """Every instruction of the loop, over all work-items."""
        return probe.operations * self.items * width * self.chains * self.unroll * trips

    @property
    def choice(self) -> Parameters:
        """For the row."""
        return {
            "chains": self.chains,
            "form": self.form.name,
            "unroll": self.unroll,
            "items": self.items,
            "group": self.group,
        }


class PeakExecutor:
    """Runs peak cases on one OpenCL device.

    `known` collects the best rates by data type in operations per second, for the ratio check.
    """

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self.known: dict[str, float] = {}

    def run(self, case: Case, policy: Policy, tell: Tell) -> Row:
        """See `rules.executor.Executor`."""
        probe, dtype = PROBES[case.variant], DTYPES[case.dtype]
        width = int(case.parameters["width"])
        bench = _Bench(self._runtime, probe, dtype, width)
        with errors():
            tell("racing")
            best = self._race(bench, probe.forms[dtype.name])
            tell("checking")
            one = bench.seconds_per_trip(best, _LAUNCH_S)
            trips = max(1, math.ceil(_LAUNCH_S / one))
            error = bench.wrong_sum(best)
            tell("timing")
            samples = self._sample(bench, best, trips, one * trips, policy)
            doubling = bench.doubling(best, trips)
        work = Work(flops=best.operations(probe, width, trips))
        rate = work.flops / min(samples["kernel"].seconds)
        events = float(np.median(samples["kernel"].seconds) / np.median(samples["device"].seconds))
        samples.pop("device")
        check = integrity.judge(
            integrity.Evidence(
                dtype=case.dtype,
                rate=rate,
                doubling=doubling,
                event_over_wall=events,
                wrong_sum=error,
                ceiling=ceiling(self._runtime.facts, dtype.itemsize),
                known=self.known,
            )
        )
        if check.verdict == "ok":
            self.known[case.dtype] = max(rate, self.known.get(case.dtype, 0.0))
        row = case.row("ok")
        return replace(
            row,
            work=work,
            choice={**best.choice, "trips": trips},
            samples=samples,
            check=check,
            build_s=bench.build_s,
            notes=bench.notes(),
        )

    def _sample(
        self, bench: _Bench, best: Contender, trips: int, one_s: float, policy: Policy
    ) -> dict[str, Scope]:
        """Sample the winner; where the machine has become slower since the race, sample on. All is kept."""
        slow_s = best.operations(bench.probe, bench.width, trips) / bench.best_rate() / _SLOWER
        policy = replace(policy, batch_s=_BATCH_S)
        samples: dict[str, Scope] = {}
        for _ in range(_SAMPLING_ROUNDS):
            more = sample(
                lambda count: bench.batch(best, trips, count),
                policy,
                policy.budget_s * _BUDGET_SHARE,
                one_s=one_s,
                settle=not samples,
            )
            for scope, new in more.items():
                old = samples[scope].seconds if scope in samples else ()
                samples[scope] = replace(new, seconds=(*old, *new.seconds))
            if min(samples["kernel"].seconds) <= slow_s:
                break
        return samples

    def _race(self, bench: _Bench, forms: tuple[Form, ...]) -> Contender:
        """The fastest contender; whatever comes close in one round goes into the next.

        First every number of chains of one form, then the other forms at the numbers that were best, then
        (if another form won) all its numbers, then the other unroll depths of what is close to the best.
        """
        first, *others = UNROLLS
        for form in forms:  # the first that compiles
            if bench.race(bench.contenders(form, first, CHAINS)):
                break
        else:
            raise NotMeasuredError("failed", "no form of the probe compiles: " + bench.failure)
        favourites = bench.best_chains(_FAVOURITES)
        for other in forms:
            if other is not form:
                bench.race(bench.contenders(other, first, favourites))
        winner = bench.best().form
        if winner is not form:
            rest = tuple(count for count in CHAINS if count not in favourites)
            bench.race(bench.contenders(winner, first, rest))
        close = bench.close_to_best(_RACE_MARGIN)
        for unroll in others:
            for form, chains in close:
                bench.race(bench.contenders(form, unroll, chains))
        return bench.best()


class _Bench:
    """Buffers, builds and timings of one (data type, width)."""

    def __init__(self, runtime: Runtime, probe: Probe, dtype: DType, width: int) -> None:
        self._runtime, self.probe, self._dtype, self.width = runtime, probe, dtype, width
        facts = runtime.facts
        self._group = 64 if facts.type == "cpu" else 256
        units = max(1, facts.compute_units)
        self._items = units * (self._group * 8 if facts.type == "cpu" else 2048 * 4)
        self.build_s = 0.0
        self.failure = ""
        self._rates: list[tuple[float, Contender]] = []
        rng = np.random.default_rng((20261121, width))
        # Coefficients near -1 keep the values of a float chain moving; an integer chain wraps around.
        if dtype.is_float:
            self._seeds = rng.uniform(-1, 1, _SEEDS).astype(dtype.numpy)
            multipliers = -(1 - rng.uniform(0.5, 1, width) * max(1e-4, 2 * dtype.eps))
            addends = rng.uniform(-0.5, 0.5, width)
            self._coefficients = np.concatenate([multipliers, addends]).astype(dtype.numpy)
        else:
            self._seeds = rng.integers(-(2**31), 2**31 - 1, _SEEDS).astype(dtype.numpy)
            self._coefficients = rng.integers(1, 2**30, 2 * width).astype(dtype.numpy)
        with errors():
            read = cl.mem_flags.READ_ONLY | cl.mem_flags.COPY_HOST_PTR
            self._seed_buffer = cl.Buffer(runtime.context, read, hostbuf=self._seeds)
            self._coefficient_buffer = cl.Buffer(runtime.context, read, hostbuf=self._coefficients)
            self._sums = runtime.buffer(self._items * dtype.itemsize)

    def contenders(self, form: Form, unroll: int, chains: tuple[int, ...]) -> list[Contender]:
        """The kernels of one program; none if the device's compiler refuses it."""
        if not chains:
            return []
        options = self.probe.options(self._dtype.name, self.width, form, unroll, chains)
        try:
            built: Built = self._runtime.build(self.probe.file, options)
        except NotMeasuredError as error:
            self.failure = error.reason
            return []
        self.build_s += built.seconds
        found = []
        for count in chains:
            try:
                kernel = self._runtime.kernel(built, f"flops_{count}", (self._group,))
            except NotMeasuredError:
                continue  # too many registers for the group: other chain counts remain
            found.append(Contender(form, unroll, count, kernel, self._items, self._group))
        return found

    def race(self, entered: list[Contender]) -> bool:
        """Time each contender for a few launches; whether there was any."""
        for contender in entered:
            trips = max(1, math.ceil(_RACE_S / self.seconds_per_trip(contender, _RACE_S)))
            best = min(self._launch(contender, trips)[0] for _ in range(_RACE_RUNS))
            rate = contender.operations(self.probe, self.width, trips) / best
            self._rates.append((rate, contender))
        return bool(entered)

    def best_rate(self) -> float:
        """Of all contenders, in operations per second."""
        return max(rate for rate, _ in self._rates)

    def best_chains(self, count: int) -> tuple[int, ...]:
        """The numbers of chains of the fastest contenders."""
        ranked = sorted(self._rates, key=lambda entry: entry[0], reverse=True)
        return tuple(contender.chains for _, contender in ranked[:count])

    def best(self) -> Contender:
        """The fastest so far."""
        return max(self._rates, key=lambda entry: entry[0])[1]

    def close_to_best(self, margin: float) -> list[tuple[Form, tuple[int, ...]]]:
        """Forms within a margin of the best rate, each with the chain counts that are."""
        top = self.best_rate()
        close: dict[str, tuple[Form, tuple[int, ...]]] = {}
        for rate, contender in self._rates:
            if rate >= margin * top:
                form, chains = close.get(contender.form.name, (contender.form, ()))
                close[contender.form.name] = (form, (*chains, contender.chains))
        return list(close.values())

    def notes(self) -> tuple[str, ...]:
        """What the race found, best of each form and of each count of chains."""
        by_form: dict[str, float] = {}
        by_chains: dict[int, float] = {}
        for rate, contender in self._rates:
            by_form[contender.form.name] = max(rate, by_form.get(contender.form.name, 0.0))
            by_chains[contender.chains] = max(rate, by_chains.get(contender.chains, 0.0))
        forms = ", ".join(f"{name} {number(rate / 1e9)}" for name, rate in by_form.items())
        chains = ", ".join(f"{count}: {number(rate / 1e9)}" for count, rate in sorted(by_chains.items()))
        return (f"raced forms (G/s): {forms}", f"raced chains (G/s): {chains}")

    def seconds_per_trip(self, contender: Contender, wanted_s: float) -> float:
        """How long one trip of the loop takes, from a launch long enough to tell."""
        trips = 16
        self._launch(contender, 1)  # the first launch may compile
        while True:
            kernel, wall = self._launch(contender, trips)
            took = max(kernel, 1e-9)
            if took >= wanted_s / 8 or wall > wanted_s or trips > 1 << 28:
                return took / trips
            trips *= max(2, min(16, int(wanted_s / took / 2)))

    def batch(self, contender: Contender, trips: int, count: int) -> Mapping[str, float]:
        """Launch so many times; event and wall seconds of one launch (the wall's under ``device``)."""
        kernel, wall = self._launch(contender, trips, count)
        return {"kernel": kernel, "device": wall}

    def doubling(self, contender: Contender, trips: int) -> float:
        """Time of twice the trips over time of the trips; best of several, interleaved.

        A disturbance can only lengthen a run, so that more of them bring the two minima nearer to the truth.
        """
        once: list[float] = []
        twice: list[float] = []
        while True:
            for _ in range(_DOUBLING_RUNS):
                once.append(self._launch(contender, trips)[0])
                twice.append(self._launch(contender, 2 * trips)[0])
            ratio = min(twice) / min(once)
            if abs(ratio / 2 - 1) <= integrity.DOUBLING_TOLERANCE or len(once) >= _DOUBLING_MOST:
                return ratio

    def wrong_sum(self, contender: Contender) -> str:
        """How the sums of a short run differ from the host's, or ""."""
        self._launch(contender, _CHECKED_TRIPS)
        got = np.empty(self._items, self._dtype.numpy)
        cl.enqueue_copy(self._runtime.queue, got, self._sums)
        return integrity.compare_sums(
            got,
            integrity.expected_sums(
                self._dtype,
                contender.form.name,
                self._seeds,
                self._coefficients,
                items=self._items,
                width=self.width,
                chains=contender.chains,
                steps=contender.unroll * _CHECKED_TRIPS,
            ),
            self._dtype,
        )

    def _launch(self, contender: Contender, trips: int, count: int = 1) -> tuple[float, float]:
        """Event and wall seconds of one launch, the mean of ``count`` back to back."""
        queue = self._runtime.queue
        contender.kernel.set_args(self._seed_buffer, self._coefficient_buffer, self._sums, np.int32(trips))
        events = []
        begin = time.perf_counter()
        for _ in range(count):
            events.append(
                cl.enqueue_nd_range_kernel(queue, contender.kernel, (contender.items,), (contender.group,))
            )
        queue.finish()
        wall = (time.perf_counter() - begin) / count
        kernel = sum(event.profile.end - event.profile.start for event in events) * 1e-9 / count
        return max(kernel, 1e-9), wall
