"""From one problem that is ready to run to its row: verified, then sampled."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Protocol

from gemmbench.facts.problem import Gemm
from gemmbench.facts.records import Check, Energy, Former, Launch, Policy, Row, Scope
from gemmbench.rules.executor import Tell
from gemmbench.rules.measure import Batch, sample

_FORMER, _RATIO = "former ", "ratio"  # of batches that are taken in turn
_DEVICE_SHARE = 0.6  # of the budget; the rest is the host scope's
_DEVICE_SHARE_IN_TURN = 0.85  # it is mostly the kernel's time that a ratio is wanted of
_LEAST_IN_TURN = 40  # pairs: what fewer seem to agree on is often chance
_BATCH_IN_TURN = 0.4  # of a batch's length for two: what disturbs the machine is then in fewer ratios


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


class DeviceBench(Bench, Protocol):
    """One whose device tells by events how long it took."""

    def by_wall_clock(self, samples: Mapping[str, Scope]) -> dict[str, Scope]:
        """Samples of which those of the device are the wall clock's."""


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
    row = verified(row, problem, bench)
    if row.status != "ok" or not problem.flops:
        return row
    samples, notes = bench.trust_events(_sampled(bench.device_batch, bench.host_batch, policy, tell))
    if policy.cold and bench.sets > 1:
        notes = (*notes, f"cold: rotates among {bench.sets} operand sets")
    if policy.energy:
        tell("measuring energy")
        row = replace(row, energy=energy(bench.device_batch))
    return replace(row, samples=samples, notes=(*row.notes, *notes))


def in_turn(
    row: Row, benches: tuple[DeviceBench, DeviceBench], source: str, policy: Policy, tell: Tell
) -> Row:
    """A row that is verified, with its samples and those of its former self.

    Batches of the two are taken in turn, each pair in the other order than the pair before, so that what
    changes the machine's speed for longer than a batch changes both. Sampling ends when the ratio is stable.

    Args:
        row: the case's.
        benches: of its kernel, and of its former self on the same operands, verified, too.
        source: the former kernel's hash.
        policy: how long for both together.
        tell: told each stage.
    """
    now, former = benches
    least = max(policy.min_batches, _LEAST_IN_TURN)
    short = replace(policy, batch_s=policy.batch_s * _BATCH_IN_TURN, settle_s=0.0, min_batches=least)
    device = _alternating(now.device_batch, former.device_batch)
    host = _alternating(now.host_batch, former.host_batch)
    samples = _sampled(device, host, short, tell, _DEVICE_SHARE_IN_TURN)
    both: tuple[dict[str, Scope], dict[str, Scope]] = ({}, {})
    for name, scope in samples.items():
        if name != _RATIO:
            both[name.startswith(_FORMER)][name.removeprefix(_FORMER)] = scope
    (mine, notes), (other, doubts) = now.trust_events(both[0]), former.trust_events(both[1])
    if bool(notes) != bool(doubts):  # one clock for both
        mine, other = now.by_wall_clock(both[0]), former.by_wall_clock(both[1])
    return replace(row, samples=mine, former=Former(source, other), notes=(*row.notes, *(notes or doubts)))


def _alternating(now: Batch, former: Batch) -> Batch:
    """A batch of each in turn; the ratio of the finest scope, which decides when there are enough, first."""
    swapped = False

    def batch(count: int) -> Mapping[str, float]:
        nonlocal swapped
        swapped = not swapped
        if swapped:
            old, new = former(count), now(count)
        else:
            new, old = now(count), former(count)
        finest = next(iter(new))
        ratio = {_RATIO: new[finest] / old[finest]}
        return {**ratio, **new, **{f"{_FORMER}{name}": seconds for name, seconds in old.items()}}

    return batch


def verified(row: Row, problem: Gemm, bench: Bench) -> Row:
    """A row with its check and launches; wrong, or with a note where there is nothing to time."""
    row = replace(row, check=bench.verify(), launches=bench.launches())
    if row.check.verdict == "wrong":
        return replace(row, status="wrong", reason="; ".join(row.check.reasons))
    if not problem.flops:
        return replace(row, notes=(*row.notes, "nothing to time: the product has no terms"))
    return row


def _sampled(
    device: Batch, host: Batch, policy: Policy, tell: Tell, share: float = _DEVICE_SHARE
) -> dict[str, Scope]:
    tell("timing device")
    samples = sample(device, policy, policy.budget_s * share)
    tell("timing host")
    return samples | sample(host, policy, policy.budget_s * (1 - share), settle=False)
