"""The parent's side of the fake machine: whole rows, which its child tells in answer to `Prepare`."""

from __future__ import annotations

from collections.abc import Generator, Iterable
from dataclasses import dataclass, replace
from itertools import count

import msgspec

from gemmbench.measure import child
from gemmbench.model.case import Case, Policy, Staged
from gemmbench.model.device import DeviceFacts
from gemmbench.model.instrument import Batch, Instrument, Prepared, Verified, When
from gemmbench.model.row import Partner, Row, Work

KINDS = ("gemm", "peak", "bandwidth", "transfer", "latency")
CONDUCTORS = dict.fromkeys(KINDS, f"{__name__}:measured")


def install(kinds: Iterable[str] = KINDS) -> None:
    """Have cases of some kinds conducted by this module."""
    child.CONDUCTORS.update(dict.fromkeys(kinds, f"{__name__}:measured"))


@dataclass(frozen=True)
class Recorded:
    """The child's side: see `measure.instrument.Bench`."""

    row: Row

    @property
    def prepared(self) -> Prepared:
        """With the row in a note."""
        return Prepared(
            ("device",), unit=Work(flops=5_000_000), notes=(msgspec.json.encode(self.row).decode(),)
        )

    def release(self) -> None:
        """Nothing to do."""

    def verify(self, when: When) -> Verified:
        """Nobody asks."""
        raise NotImplementedError

    def start(self, clock: str, problems: int, work: int) -> Batch:
        """A control burst: all take the same time."""
        begin = float(next(_begins))
        return Batch({clock: _BURST_S}, begin, begin + _BURST_S * problems, problems)


_begins = count(start=0, step=10)  # seconds
_BURST_S = 2**-8  # exact, so that files of all tests have the same digits


def measured(
    instrument: Instrument, case: Case, device: DeviceFacts | None, policy: Policy
) -> Generator[Staged, None, Row]:
    """What `measure.child.CONDUCTORS` name."""
    yield Staged("timing")
    with instrument.prepare(case, device, policy) as handle:
        row = msgspec.json.decode(handle.prepared.notes[0], type=Row)
    if case.versus is None or not case.phase:  # only a tuner's rounds have a partner here
        return row
    other = yield from measured(instrument, case.versus, device, policy)
    return replace(row, former=Partner(other.source, other.samples, other.variant, other.parameters))
