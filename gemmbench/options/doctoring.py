"""The options of ``doctor``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from gemmbench.options.declare import Options, flag
from gemmbench.options.measuring import device_option


@dataclass(frozen=True, kw_only=True)
class Doctor(Options):
    """Say what keeps this machine from its ceiling, and what to type.

    Reads the processors' clocks and limits, control groups, the load of others, drivers, numpy's BLAS and, of
    NVIDIA's boards, NVML. Each finding says what it costs where that is known, how it was seen, and the
    command. Nothing is changed and nothing is measured; the exit status is 0 with and without findings.
    """

    command: ClassVar[str] = "doctor"

    device: str = device_option()
    json: bool = flag("An object with the findings, and with what could not be looked at.", shell=True)
