"""A case that ends without a rate, and why."""

from __future__ import annotations

from gemmbench.facts import skips
from gemmbench.facts.records import Policy, Status


class NotMeasuredError(Exception):
    """A case ends without a rate; carries the row's status and the reason for the user.

    Attributes:
        restart: the driver can no longer be trusted: run the next case in a fresh process.
        handle: of an instrument, in whose turn it was raised.
    """

    handle: int | None = None

    def __init__(self, status: Status, reason: str, restart: bool = False) -> None:
        super().__init__(reason)
        self.status = status
        self.reason = reason
        self.restart = restart


def too_slow(predicted_s: float, policy: Policy) -> NotMeasuredError:
    """A case that cannot finish in its budget, with what it would take."""
    return NotMeasuredError("skipped", skips.too_slow(predicted_s, policy.budget_s))
