"""What a device's data sheet would say: derived from what its driver tells; never measured, no verdict."""

from __future__ import annotations

from dataclasses import dataclass

from gemmbench.facts.records import DeviceFacts

# NVIDIA's multiply-adds each clock on one unit (a multiprocessor), by compute capability, from the throughput
# table of the CUDA programming guide. 0: done in several steps, so that there is no such figure.
#   capability  float double half  int
_MULTIPLY_ADDS: dict[tuple[int, int], tuple[int, int, int, int]] = {
    (5, 0): (128, 4, 0, 0),
    (5, 2): (128, 4, 0, 0),
    (5, 3): (128, 4, 256, 0),
    (6, 0): (64, 32, 128, 0),
    (6, 1): (128, 4, 2, 0),
    (6, 2): (128, 4, 256, 0),
    (7, 0): (64, 32, 128, 64),
    (7, 2): (64, 32, 128, 64),
    (7, 5): (64, 2, 128, 64),
    (8, 0): (64, 32, 256, 64),
    (8, 6): (128, 2, 128, 64),
    (8, 9): (128, 2, 128, 64),
    (9, 0): (128, 64, 256, 64),
}
_TYPES = ("float", "double", "half", "int")
_PROBE = "flops"  # plain multiply-adds; matrix units and the like have figures of their own


@dataclass(frozen=True)
class Ceiling:
    """A rate that the arithmetic units would have at the clock that the driver reports."""

    flops_per_second: float
    source: str  # what it is derived from


def ceiling(device: DeviceFacts, variant: str, dtype: str) -> Ceiling | None:
    """The ceiling of a compute probe; None where the driver does not tell enough.

    OpenCL tells neither the lanes of a processor nor the clock of its memory: vendors' own queries do, and
    there are such for NVIDIA's arithmetic units alone.
    """
    lanes = _MULTIPLY_ADDS.get(device.compute_capability)
    if lanes is None or variant != _PROBE or dtype not in _TYPES or device.clock_mhz <= 0:
        return None
    count = lanes[_TYPES.index(dtype)]
    if not count:
        return None
    major, minor = device.compute_capability
    return Ceiling(
        2.0 * count * device.compute_units * device.clock_mhz * 1e6,
        f"{device.compute_units} units at {device.clock_mhz} MHz, each with the multiply-adds of compute "
        f"capability {major}.{minor}",
    )
