"""The search space of a tuner, its search, and the plan of its finals. No function uses a device."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from gemmbench.ladder.variant import Values, Variant, laid_out
from gemmbench.model.case import Case, Policy, Skip
from gemmbench.model.device import DeviceFacts
from gemmbench.model.instrument import LEAST_SAMPLES
from gemmbench.model.problem import Gemm
from gemmbench.suite.plan import gemm_plan
from gemmbench.suite.refusal import why_not

FINALISTS = 5  # beside the shipped preset
ROUNDS = 3  # of the winner and the shipped preset, in turns

_SAMPLE_SHARE = 1 / 3  # of the search, for the random sample
_FINALS_SHARE = 0.3  # of the budget, at most
_LOOK_S = 0.2  # of samples for a configuration of the search
_FIRST_LOOK_SHARE = 0.1  # of the budget, for the shipped preset, whose speed nobody knows yet
_FAR = 2.0  # a configuration this many times as slow as the shipped preset gets the fewest samples
_SHORT, _FULL = 0.1, Policy().budget_s  # sampling time of a row of the finals, at least and at most
_LARGEST = 10_000  # combinations, with what a variant otherwise chooses: minutes see too little of more


class TuningError(ValueError):
    """A kernel cannot be tuned on this device. The message is for the user."""


@dataclass(frozen=True)
class Space:
    """The configurations of a variant that a device can run."""

    default: dict[str, int]  # the shipped preset
    values: Mapping[str, tuple[int, ...]]  # by parameter, the preset's own among them
    configurations: tuple[dict[str, int], ...]
    combinations: int  # of all values
    allowed: int  # number of combinations that meet the variant's constraints
    chosen: frozenset[str] = frozenset()  # parameters of the default that the variant chooses per problem

    def asked(self, configuration: Values) -> dict[str, int]:
        """The parameters to measure a configuration with. The default leaves `chosen` ones to the variant."""
        left_out = self.chosen if dict(configuration) == self.default else frozenset()
        return {name: value for name, value in configuration.items() if name not in left_out}


@dataclass(frozen=True)
class Finals:
    """How the best few are timed again."""

    policies: Mapping[Gemm, Policy]  # by problem
    others: tuple[Gemm, ...]  # problems besides those of the search
    left_out: tuple[Gemm, ...]  # other problems for which there is no time


def space(variant: Variant, device: DeviceFacts, problems: Sequence[Gemm]) -> Space:
    """The configurations of a variant that can run all problems on a device.

    Launch parameters that the variant chooses vary too, unless that makes over 10,000 combinations. Raises
    `TuningError` if nothing can be tuned, or no configuration runs.
    """
    if variant.executor != "opencl":
        raise TuningError(f"{variant.name} is a library; there is nothing of it to tune")
    dtype = problems[0].dtype
    default = variant.preset(device.family, dtype=dtype, device=device)
    chosen = {
        name: value
        for name, value in laid_out(variant, problems[0]).chosen(problems[0], device, default).items()
        if name in variant.parameters
        and (variant.parameters[name].launch or name in variant.parameters.searched)
    }

    def tried(configuration: Values) -> dict[str, tuple[int, ...]]:
        declared = variant.parameters
        return {name: tuple(sorted({*declared[name].values, value})) for name, value in configuration.items()}

    if math.prod(map(len, tried(default | chosen).values())) > _LARGEST:
        chosen = {name: value for name, value in chosen.items() if not variant.parameters[name].launch}
    default |= chosen
    values = tried(default)
    combinations = math.prod(map(len, values.values()))
    if combinations == 1:
        raise TuningError(f"{variant.name} has no parameters to tune")
    allowed = tuple(variant.space(dtype, values))
    reasons = [
        next(filter(None, (why_not(device, variant, problem, each) for problem in problems)), "")
        for each in allowed
    ]
    suited = tuple(each for each, reason in zip(allowed, reasons, strict=True) if not reason)
    if not suited:
        raise TuningError(f"no configuration of {variant.name} runs here: {reasons[0]}")
    return Space(default, values, suited, combinations, len(allowed), frozenset(chosen))


def other_problems(problems: Sequence[Gemm]) -> tuple[Gemm, ...]:
    """Problems to compare a winner at: the largest with m, n, k divided by 4, reduced by 1, doubled."""
    base = max(problems, key=lambda problem: problem.flops)

    def scaled(length: Callable[[int], int]) -> Gemm:
        return replace(base, m=length(base.m), n=length(base.n), k=length(base.k))

    candidates = (scaled(lambda n: max(1, n // 4)), scaled(lambda n: max(1, n - 1)), scaled(lambda n: 2 * n))
    return tuple(problem for problem in candidates if problem not in problems)


def case(
    device: DeviceFacts, variant: Variant, problem: Gemm, parameters: Values, phase: str = ""
) -> Case | Skip:
    """The case of a configuration and problem in a phase, or why it cannot run."""
    (step,) = gemm_plan([device], [variant], [problem], parameters)
    return Skip(replace(step.row, phase=phase)) if isinstance(step, Skip) else replace(step, phase=phase)


def search_policy(budget_s: float, time_limit_s: float, default_s: float | None = None) -> Policy:
    """The policy of the search: 0.2 s, or enough for twice the preset's time (None: unknown)."""
    enough = _FIRST_LOOK_SHARE * budget_s if default_s is None else _least_s(_FAR * default_s)
    return Policy(budget_s=max(_LOOK_S, enough), batch_s=0.005, min_batches=5, time_limit_s=time_limit_s)


def patient_policy(budget_s: float, time_limit_s: float) -> Policy:
    """The policy for a shipped preset that was skipped: the fewest samples, however slow."""
    short = search_policy(budget_s, time_limit_s + budget_s)
    return replace(short, budget_s=math.inf, min_batches=3, precision=math.inf)


def _least_s(one_s: float) -> float:
    """The minimum seconds of a row: a verified problem, and the fewest samples in two scopes."""
    return (1 + 2 * LEAST_SAMPLES) * one_s


def shares_s(budget_s: float) -> tuple[float, float]:
    """Seconds from the start until the random sample ends, and until the search ends."""
    search_s = budget_s * (1 - _FINALS_SHARE)
    return search_s * _SAMPLE_SHARE, search_s


def finals_s(budget_s: float) -> float:
    """Seconds of the budget that are reserved for the finals."""
    return budget_s * _FINALS_SHARE


def finals(
    share_s: float, time_limit_s: float, problems: Sequence[Gemm], default_s: float, overhead_s: float
) -> Finals:
    """Plan the finals within `share_s` seconds: sampling time, and other problems that fit.

    The preset takes `default_s` for the first problem, a row `overhead_s` besides its samples.
    """
    one_s = {p: default_s * p.flops / problems[0].flops for p in (*problems, *other_problems(problems))}

    least_s = {p: max(_SHORT, _least_s(_FAR * each_s)) for p, each_s in one_s.items()}
    rows = {p: 2 * ROUNDS + (FINALISTS + 1) * (p in problems) for p in one_s}

    def cost(chosen: Sequence[Gemm]) -> float:
        return sum(rows[p] * (overhead_s + least_s[p]) for p in chosen)

    chosen = [*problems]
    for problem in other_problems(problems):
        if cost([*chosen, problem]) <= share_s:
            chosen.append(problem)
    spare_s = (share_s - cost(chosen)) / sum(rows[p] for p in chosen)
    sampling_s = {p: max(min(_FULL, least_s[p] + spare_s), least_s[p]) for p in chosen}
    others = tuple(chosen[len(problems) :])
    left_out = tuple(p for p in other_problems(problems) if p not in others)
    policies = {p: Policy(budget_s=s, time_limit_s=time_limit_s + s) for p, s in sampling_s.items()}
    return Finals(policies, others, left_out)


Configuration = dict[str, int]

_AHEAD = 16  # configurations announced for compiling
_NEAR = 3  # parameters in which a new start differs from the best


@dataclass(frozen=True)
class Hooks:
    """Functions that the search calls."""

    cost: Callable[[Configuration], float | None]  # measures a configuration; None if it failed
    sampled: Callable[[], bool]  # whether the time of the random sample is over
    over: Callable[[], bool]  # whether the time of the search is over
    ahead: Callable[[Sequence[Configuration]], None]  # gets what will probably be measured next


def search(space: Space, seed: int, hooks: Hooks) -> None:
    """Measure the shipped preset, a random sample, then the neighbours of the best, all by `hooks.cost`.

    A climb tries all values of one parameter at a time, until none improves, and starts again near the best.
    The same seed and costs give the same search.
    """
    chance = random.Random(seed)
    shuffled = chance.sample(space.configurations, len(space.configurations))
    untried = {_key(each): each for each in shuffled}
    costs: dict[tuple[int, ...], float] = {}

    def measure(configurations: Iterable[Configuration], over: Callable[[], bool]) -> None:
        """Measure what has no cost yet, until `over()`."""
        waiting = [each for each in configurations if _key(each) not in costs]
        for number, each in enumerate(waiting):
            if over():
                return
            hooks.ahead(waiting[number : number + _AHEAD])
            cost = hooks.cost(each)
            costs[_key(each)] = math.inf if cost is None else cost
            untried.pop(_key(each), None)

    def cost_of(configuration: Configuration) -> float:
        return costs.get(_key(configuration), math.inf)

    measure([space.default], lambda: False)
    measure(list(untried.values()), hooks.sampled)
    here = min([space.default, *space.configurations], key=cost_of)
    best = here
    while untried and not hooks.over():
        before = cost_of(here)
        for name in chance.sample(list(space.values), len(space.values)):
            neighbours = [each for each in space.configurations if {**each, name: here[name]} == here]
            measure(neighbours, hooks.over)
            here = min([here, *neighbours], key=cost_of)
        if cost_of(here) < before:
            continue
        best = min(best, here, key=cost_of)
        near = [each for each in untried.values() if len(each.items() - best.items()) <= _NEAR]
        here = chance.choice(near or list(untried.values())) if untried else best
        measure([here], hooks.over)


def _key(configuration: Configuration) -> tuple[int, ...]:
    return tuple(configuration.values())
