"""What every compute probe tells of itself."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

from gemmbench.facts.records import DeviceFacts, Parameters, RanOn


class Probe(Protocol):
    """A microbenchmark of arithmetic units."""

    @property
    def name(self) -> str:
        """In rows and on the command line."""

    @property
    def idea(self) -> str:
        """One line."""

    @property
    def ran_on(self) -> RanOn:
        """The units that its rows are of."""

    @property
    def dtypes(self) -> tuple[str, ...]:
        """The operand types it measures."""

    @property
    def files(self) -> tuple[str, ...]:
        """Its kernels, named relative to the kernels folder."""

    def cases(self, dtype: str, widths: Iterable[int]) -> tuple[Parameters, ...]:
        """The parameters of each of its rows for a type; widths are for probes of vectors."""

    def lacks(self, device: DeviceFacts, dtype: str) -> str:
        """Why a device cannot run it for a type, as far as its description tells; or ""."""

    def fingerprint(self, dtype: str, parameters: Parameters) -> str:
        """Hash of everything that may be compiled for a row."""
