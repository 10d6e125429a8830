"""kernel-tuner's space and strategies, with gemmbench's own measuring under them.

The only module that imports kernel-tuner, an extra: import it when a search starts. Its strategies ask a
runner for the cost of configurations and a budget whether to go on; both stand here. What it compiles,
launches and times itself is never used: it knows neither passes nor a driver that dies.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import numpy as np
from kernel_tuner.interface import Options
from kernel_tuner.searchspace import Searchspace
from kernel_tuner.strategies import greedy_ils, mls, random_sample, simulated_annealing
from kernel_tuner.strategies.common import CostFunc
from kernel_tuner.util import RuntimeFailedConfig, StopCriterionReached

from gemmbench.tune.space import Space

Configuration = tuple[int, ...]
Cost = Callable[[dict[str, int]], float | None]  # None where it failed

_ADOPTED = {"greedy_ils": greedy_ils, "mls": mls, "simulated_annealing": simulated_annealing}
_IDLE = 2000  # configurations asked for in a row that are known already: the strategy has run dry
_AHEAD = 16  # configurations announced
_STEPS = (2, 3, 4)  # from the best, to begin anew


@dataclass(frozen=True)
class Hooks:
    """What the search asks of its surroundings."""

    cost: Cost  # measures a configuration
    sampled: Callable[[], bool]  # whether the random sample has had its share
    over: Callable[[], bool]  # whether the search has
    ahead: Callable[[Sequence[dict[str, int]]], None]  # told what will probably be asked for next


def search(space: Space, strategy: str, seed: int, hooks: Hooks) -> None:
    """Try the shipped preset and a random sample, run the strategy from their best, then what is left.

    The same seed and the same costs give the same search.
    """
    # kernel-tuner draws from both libraries' shared generators.
    random.seed(seed)
    np.random.seed(seed % 2**32)
    known = {
        "tune_params": {name: list(values) for name, values in space.values.items()},
        "cache": {str(number): configuration for number, configuration in enumerate(space.configurations)},
    }
    searchspace = Searchspace(None, None, None, from_cache=known)
    runner = _Runner(tuple(space.values), hooks)
    runner.run([tuple(space.default.values())], None)
    _run(random_sample, searchspace, runner, hooks.sampled)
    if strategy != "random_sample" and runner.best:
        climber = _Local(runner) if strategy == "local" else _ADOPTED[strategy]
        _run(climber, searchspace, runner, hooks.over, runner.best)
    _run(random_sample, searchspace, runner, hooks.over)


def _run(
    strategy: Any,
    space: Searchspace,
    runner: _Runner,
    over: Callable[[], bool],
    start: Configuration | None = None,
) -> None:
    runner.over, runner.idle = over, 0
    tuning = Options(
        strategy_options=Options(max_fevals=space.size, **({"x0": list(start)} if start else {})),
        max_fevals=space.size,  # where random_sample looks for it
        objective=["time"],
        objective_higher_is_better=[False],
        budget=_Budget(runner.is_over),
        verbose=False,
    )
    with suppress(StopCriterionReached), np.errstate(over="ignore"):  # annealing divides costs of failures
        strategy.tune(space, runner, tuning)


class _Budget:
    """kernel-tuner's budget, as a function that says whether to stop."""

    def __init__(self, over: Callable[[], bool]) -> None:
        self.is_done = over

    def raise_exception_if_done(self) -> None:
        if self.is_done():
            raise StopCriterionReached("the budget is spent")

    def get_fraction_consumed(self) -> float:
        return float(self.is_done())


class _Runner:
    """What kernel-tuner's strategies ask for costs. Each configuration is measured once.

    Attributes:
        best: the cheapest configuration so far.
        over: whether the strategy at work has had its share.
        idle: how many in a row were known.
    """

    def __init__(self, names: tuple[str, ...], hooks: Hooks) -> None:
        self.best: Configuration | None = None
        self.over = hooks.over
        self.idle = 0
        self._names, self._hooks = names, hooks
        self._costs: dict[Configuration, float | None] = {}

    def is_over(self) -> bool:
        """Whether to stop: by time, or because nothing new comes."""
        return self.over() or self.idle > _IDLE

    def run(self, configurations: Sequence[Sequence[int]], _: object) -> list[dict[str, object] | None]:
        """kernel-tuner's call: a result for each; None for those that there was no time for."""
        asked = [tuple(values) for values in configurations]
        results = []
        for index, values in enumerate(asked):
            if len(asked) > 1 and values not in self._costs and not self.is_over():
                self.announce(asked[index : index + _AHEAD])
            results.append(self._result(values))
        return results

    def announce(self, configurations: Sequence[Configuration]) -> None:
        self._hooks.ahead([self._by_name(values) for values in configurations if values not in self._costs])

    def add_strategy_time(self, seconds: float) -> None:
        """kernel-tuner's call: of no interest here."""

    def _result(self, values: Configuration) -> dict[str, object] | None:
        if values not in self._costs:
            if self.is_over():
                return None
            self.idle = 0
            cost = self._costs[values] = self._hooks.cost(self._by_name(values))
            if cost is not None and (self.best is None or cost < (self._costs[self.best] or 0)):
                self.best = values
        else:
            self.idle += 1
        cost = self._costs[values]
        if cost is None:
            return {**self._by_name(values), "__error__": RuntimeFailedConfig()}
        return {**self._by_name(values), "time": cost}

    def again(self, values: Configuration) -> float | None:
        """The cost of a known configuration; None if it is to be measured. Ends a strategy that is over.

        kernel-tuner's `CostFunc` knows it too, and takes thirty times as long: most neighbours are known.
        """
        if (cost := self._costs.get(values)) is not None:
            self.idle += 1
            if self.is_over():
                raise StopCriterionReached("the budget is spent")
        return cost

    def _by_name(self, values: Configuration) -> dict[str, int]:
        return dict(zip(self._names, values, strict=True))


class _Local:
    """An iterated local search, as one of kernel-tuner's user-defined strategies.

    The hill climbers of kernel-tuner 1.5 build each neighbour on the one before it, so that what they try
    soon differs in many parameters at once: on made-up landscapes of 70,000 configurations they were 20 %
    off the best after 120, this one within 1 %.
    """

    def __init__(self, runner: _Runner) -> None:
        self._runner = runner

    def tune(self, space: Searchspace, runner: _Runner, options: Options) -> None:
        cost = CostFunc(space, options, runner, snap=False)
        assert runner.best is not None
        here, lowest = runner.best, cost(runner.best, check_restrictions=False)
        while True:
            better = self._step(space, cost, here, lowest)
            if better is None:
                here = runner.best
                for _ in range(random.choice(_STEPS)):
                    here = space.get_random_neighbor(here, "Hamming") or here
                lowest = cost(here, check_restrictions=False)
            else:
                here, lowest = better

    def _step(
        self, space: Searchspace, cost: CostFunc, here: Configuration, lowest: float
    ) -> tuple[Configuration, float] | None:
        neighbours = space.get_neighbors(here, "Hamming")
        random.shuffle(neighbours)
        for index, neighbour in enumerate(neighbours):
            reached = self._runner.again(neighbour)
            if reached is None:
                self._runner.announce(neighbours[index : index + _AHEAD])
                reached = cost(neighbour, check_restrictions=False)
            if reached < lowest:
                return neighbour, reached
        return None
