"""A search of a space: a random sample, then hill climbing from its best, one parameter at a time."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from gemmbench.tune.space import Space

Configuration = dict[str, int]

_AHEAD = 16  # configurations announced
_NEAR = 3  # parameters in which a new start differs from the best


@dataclass(frozen=True)
class Hooks:
    """What the search asks of its surroundings."""

    cost: Callable[[Configuration], float | None]  # measures a configuration; None if it failed
    sampled: Callable[[], bool]  # whether the random sample has had its share of the time
    over: Callable[[], bool]  # whether the search has
    ahead: Callable[[Sequence[Configuration]], None]  # gets what will probably be measured next


def search(space: Space, seed: int, hooks: Hooks) -> None:
    """Measure the shipped preset, a random sample, then the neighbours of the best.

    No configuration is measured twice. A climb tries all values of one parameter at a time, until no
    parameter improves. The next climb starts at a random configuration near the best. Without a time limit
    the whole space is measured. The same seed and costs give the same search.
    """
    chance = random.Random(seed)
    known = {_key(each): each for each in space.configurations}
    untried = {_key(each): each for each in chance.sample(space.configurations, len(known))}
    costs: dict[tuple[int, ...], float] = {}

    def measure(configurations: Iterable[Configuration], over: Callable[[], bool]) -> None:
        """Measure those that are not measured yet, until the time is over."""
        waiting = [each for each in configurations if _key(each) not in costs]
        for number, each in enumerate(waiting):
            if over():
                return
            hooks.ahead(waiting[number : number + _AHEAD])
            cost = hooks.cost(each)
            costs[_key(each)] = math.inf if cost is None else cost
            untried.pop(_key(each), None)

    def line(here: Configuration, name: str) -> list[Configuration]:
        """The configurations that differ from `here` in one parameter, and `here`."""
        keys = (_key({**here, name: value}) for value in space.values[name])
        return [known[key] for key in keys if key in known]

    def cost_of(configuration: Configuration) -> float:
        return costs.get(_key(configuration), math.inf)

    measure([space.default], lambda: False)
    measure(list(untried.values()), hooks.sampled)
    here = min([space.default, *space.configurations], key=cost_of)
    best = here
    while untried and not hooks.over():
        before = cost_of(here)
        for name in chance.sample(list(space.values), len(space.values)):
            neighbours = line(here, name)
            measure(neighbours, hooks.over)
            here = min([here, *neighbours], key=cost_of)
        if cost_of(here) < before:
            continue
        best = min(best, here, key=cost_of)
        near = [each for each in untried.values() if _distance(each, best) <= _NEAR]
        here = chance.choice(near or list(untried.values())) if untried else best
        measure([here], hooks.over)


def _key(configuration: Configuration) -> tuple[int, ...]:
    return tuple(configuration.values())


def _distance(first: Configuration, second: Configuration) -> int:
    """In how many parameters two configurations differ."""
    return sum(value != second[name] for name, value in first.items())
