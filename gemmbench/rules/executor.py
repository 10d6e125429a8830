"""A case that ends without a rate, and why."""

from __future__ import annotations

from gemmbench.facts import skips
from gemmbench.facts.records import Policy, Status


class NotMeasuredError(Exception):
    """A case ends without a rate; carries the row's status and the reason for the user.

    Attributes:
        restart: the driver can no longer be trusted: run the next case in a fresh process.
        needs_s: what a skipped case would take; None where that is not why.
        handle: of an instrument, in whose turn it was raised.
    """

    handle: int | None = None

    def __init__(
        self, status: Status, reason: str, restart: bool = False, needs_s: float | None = None
    ) -> None:
        super().__init__(reason)
        self.status = status
        self.reason = reason
        self.restart = restart
        self.needs_s = needs_s


def too_slow(predicted_s: float, policy: Policy) -> NotMeasuredError:
    """A case that cannot finish in its budget, with what it would take."""
    reason = skips.too_slow(predicted_s, policy.budget_s)
    return NotMeasuredError("skipped", reason, needs_s=predicted_s)
