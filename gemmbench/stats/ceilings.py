"""What a device's data sheet would say: derived from what its driver tells; never measured, no verdict."""

from __future__ import annotations

from dataclasses import dataclass

from gemmbench.model.device import DeviceFacts

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

# Work-items and KiB of shared memory of one multiprocessor, by compute capability, from the same guide's
# technical specifications; each resident group takes one KiB for itself.
MULTIPROCESSOR: dict[tuple[int, int], tuple[int, int]] = {
    (7, 0): (2048, 96),
    (7, 5): (1024, 64),
    (8, 0): (2048, 164),
    (8, 6): (1536, 100),
    (8, 7): (1536, 164),
    (8, 9): (1536, 100),
    (9, 0): (2048, 228),
    (10, 0): (2048, 228),
    (10, 3): (2048, 228),
    (12, 0): (1536, 100),
    (12, 1): (1536, 100),
}
OF_A_GROUP = 1024  # bytes
_LARGE_GROUPS = (8, 0)  # from here on a group can be compiled for more than the driver lists
_LEAST_KIB = 100  # of a multiprocessor that has them

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


def group_local_bytes(device: DeviceFacts) -> int:
    """Bytes of local memory that a group can have.

    NVIDIA's driver lists 48 KiB, and does not hold a program to them that is compiled for more.
    """
    if device.compute_capability < _LARGE_GROUPS:
        return device.local_mem_bytes
    _, kib = MULTIPROCESSOR.get(device.compute_capability, (0, _LEAST_KIB))
    return max(device.local_mem_bytes, (kib << 10) - OF_A_GROUP)
