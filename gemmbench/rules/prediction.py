"""Whether a case can finish in its budget, from smaller problems."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from gemmbench.facts.problem import Gemm
from gemmbench.facts.records import Policy
from gemmbench.facts.skips import LEAST_RUNS
from gemmbench.rules.executor import too_slow

_SMALL = 256  # the first trial's edge
_SHARE = 0.15  # of the budget that one trial may take


def least_s(one_s: float) -> float:
    """The least that a row costs whose problem takes ``one_s`` seconds: verified once, then three of each."""
    return LEAST_RUNS * one_s


def refuse_if_too_slow(problem: Gemm, policy: Policy, trial: Callable[[Gemm], float]) -> None:
    """Predict a case's cost from growing trials.

    Args:
        problem: the case's, with some flops.
        policy: its budget.
        trial: runs a smaller problem; seconds that it took.

    Raises:
        NotMeasuredError: skipped, with the time it would take.
    """
    edge = _SMALL
    while True:
        smaller = replace(problem, m=min(problem.m, edge), n=min(problem.n, edge), k=min(problem.k, edge))
        if smaller.flops * 2 >= problem.flops:
            return  # the trial would be the case itself
        took = trial(smaller)
        predicted = least_s(took * problem.flops / smaller.flops)
        if predicted <= policy.budget_s:
            return
        if took * 8 > policy.budget_s * _SHARE:
            raise too_slow(predicted, policy)
        edge *= 2
