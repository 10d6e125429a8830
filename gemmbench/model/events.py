"""What a session tells whoever is watching, as it happens."""

from __future__ import annotations

from dataclasses import dataclass

from gemmbench.model.row import Row


@dataclass(frozen=True)
class Planned:
    """The run is about to start."""

    cases: int  # to be measured
    seconds: float  # the longest they should take, for the first estimate


@dataclass(frozen=True)
class Started:
    """A case goes to the executor."""

    number: int  # from 1
    label: str  # "register float 512x512x512"


@dataclass(frozen=True)
class Staged:
    """The case in flight reached a stage: building, verifying, settling, timing."""

    stage: str


@dataclass(frozen=True)
class Finished:
    """A row is on the disk."""

    row: Row
    resumed: bool = False  # it was in the file already


Event = Planned | Started | Staged | Finished
