"""From one problem that is ready to run to its row: verified, then sampled."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Protocol

from gemmbench.facts.problem import Gemm
from gemmbench.facts.records import Check, Energy, Launch, Policy, Row, Scope
from gemmbench.rules.executor import Tell
from gemmbench.rules.measure import Batch, sample

_DEVICE_SHARE = 0.6  # of the budget; the rest is the host scope's


class Bench(Protocol):
    """One problem with its operands in place, to be run again and again."""

    sets: int  # of operands that it rotates among

    def verify(self) -> Check:
        """Run once as the host scope does and check the answer that came back to the host."""

    def launches(self) -> tuple[Launch, ...]:
        """The device's stamps of one run; none if they are not known."""

    def device_batch(self, count: int) -> Mapping[str, float]:
        """Run ``count`` problems back to back; seconds of one in the scopes that the device tells of."""

    def host_batch(self, count: int) -> Mapping[str, float]:
        """Run ``count`` problems from host memory to host memory; wall seconds of one."""

    def trust_events(self, samples: Mapping[str, Scope]) -> tuple[dict[str, Scope], tuple[str, ...]]:
        """The samples that can be believed, and what is to be said of them."""


def completed(
    row: Row,
    problem: Gemm,
    bench: Bench,
    policy: Policy,
    tell: Tell,
    energy: Callable[[Batch], Energy],
) -> Row:
    """A row that is ok so far, with its check, its samples and its energy.

    Args:
        row: the case's.
        problem: likewise.
        bench: runs it.
        policy: how long.
        tell: told each stage.
        energy: reads the device's counter while a batch runs; asked only if the policy wants it.
    """
    row = replace(row, check=bench.verify(), launches=bench.launches())
    if row.check.verdict == "wrong":
        return replace(row, status="wrong", reason="; ".join(row.check.reasons))
    if not problem.flops:
        return replace(row, notes=(*row.notes, "nothing to time: the product has no terms"))
    tell("timing device")
    samples = sample(bench.device_batch, policy, policy.budget_s * _DEVICE_SHARE)
    tell("timing host")
    samples |= sample(bench.host_batch, policy, policy.budget_s * (1 - _DEVICE_SHARE), settle=False)
    samples, notes = bench.trust_events(samples)
    if policy.cold and bench.sets > 1:
        notes = (*notes, f"cold: rotates among {bench.sets} operand sets")
    if policy.energy:
        tell("measuring energy")
        row = replace(row, energy=energy(bench.device_batch))
    return replace(row, samples=samples, notes=(*row.notes, *notes))
