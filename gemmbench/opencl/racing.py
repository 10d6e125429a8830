"""Times candidates of a compute probe against each other, within a budget."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from gemmbench.facts.records import Parameters
from gemmbench.facts.units import GIGA, number
from gemmbench.opencl.launching import Launcher
from gemmbench.opencl.timing import Elapsed, elapsed
from gemmbench.rules.integrity import events_agree

_RACE_S = 0.004  # one launch in the race lasts about this
_RACE_RUNS = 3
_FIRST_TRIPS = 16
_MOST_TRIPS = 1 << 29  # twice as many still fit the kernels' int


@dataclass(frozen=True)
class Contender:
    """One candidate, built: a kernel that takes its number of trips as the last argument."""

    launcher: Launcher
    arguments: tuple[Any, ...]  # before the trips
    choice: Parameters  # what is told of it in the row
    operations: int  # of one trip, over all work-items: every instruction of the loop is counted
    steps: int  # of one trip

    def run(self, trips: int, count: int = 1) -> Elapsed:
        """Launch so many times back to back; the mean of one launch."""
        arguments = (*self.arguments, np.int32(trips))
        return elapsed(self.launcher.queue, lambda: self.launcher.enqueue(arguments), count)

    def batch(self, trips: int, count: int) -> Mapping[str, float]:
        """Launch so many times; event and wall seconds of one launch (the wall's under ``device``)."""
        spent = self.run(trips, count)
        return {"kernel": spent.event, "device": spent.wall}

    def trips_for(self, wanted_s: float) -> int:
        """How many trips of the loop last so long, by a launch long enough to tell."""
        trips = _FIRST_TRIPS
        self.run(1)  # the first launch may compile
        while True:
            spent = self.run(trips)
            if spent.event >= wanted_s / 8 or spent.wall > wanted_s or trips >= _MOST_TRIPS:
                took = spent.event if events_agree(spent.event / spent.wall) else spent.wall
                return max(1, min(math.ceil(wanted_s / took * trips), _MOST_TRIPS))
            trips = min(_MOST_TRIPS, trips * max(2, min(16, int(wanted_s / spent.event / 2))))


class Race:
    """Contenders and their rates. Once its budget is spent, whoever has not entered stays out."""

    def __init__(self, budget_s: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._end = clock() + budget_s
        self._entries: list[tuple[float, Contender]] = []
        self._cut_short = False

    def enter(self, build: Callable[[], Iterable[Contender]], late: bool = False) -> bool:
        """Build contenders and time each for a few launches; whether there was any.

        Building takes most of the time, so that nothing is built any more when the budget is spent, unless
        what comes late is needed as evidence.
        """
        if self._entries and not late and self._clock() > self._end:
            self._cut_short = True
            return False
        entered = list(build())
        for contender in entered:
            trips = contender.trips_for(_RACE_S)
            best_s = min(contender.run(trips).event for _ in range(_RACE_RUNS))
            self._entries.append((contender.operations * trips / best_s, contender))
        return bool(entered)

    @property
    def best_rate(self) -> float:
        """Of all contenders, in operations per second."""
        return max(rate for rate, _ in self._entries)

    def ranked(self) -> list[Contender]:
        """All so far, the fastest first."""
        return [contender for _, contender in sorted(self._entries, key=lambda entry: -entry[0])]

    def close_to_best(self, margin: float) -> list[Contender]:
        """Those within a margin of the best rate."""
        least = margin * self.best_rate
        return [contender for rate, contender in self._entries if rate >= least]

    def unrolling(self, contender: Contender) -> float | None:
        """Its rate with the deepest unrolling over that with the shallowest; None if only one was raced."""
        depths = {
            entered.steps: rate
            for rate, entered in self._entries
            if {**entered.choice, "unroll": contender.steps} == contender.choice
        }
        return depths[max(depths)] / depths[min(depths)] if len(depths) > 1 else None

    def summary(self, **words: str) -> tuple[str, ...]:
        """What the race found: the best rate of each value of some choices, in the words for them."""
        lines = []
        for choice, word in words.items():
            best: dict[Any, float] = {}
            for rate, contender in self._entries:
                value = contender.choice[choice]
                best[value] = max(rate, best.get(value, 0.0))
            separator = " " if any(isinstance(value, str) for value in best) else ": "
            order = best if separator == " " else sorted(best)
            shown = ", ".join(f"{value}{separator}{number(best[value] / GIGA)}" for value in order)
            lines.append(f"raced {word} (G/s): {shown}")
        return tuple(lines)

    @property
    def notes(self) -> tuple[str, ...]:
        """What is to be said of its figures."""
        if not self._cut_short:
            return ()
        return ("the race was cut short by its budget: a larger --budget tries more",)
