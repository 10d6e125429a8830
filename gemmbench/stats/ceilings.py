"""Theoretical peak rates, derived from what the driver reports."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from gemmbench.model.device import DeviceFacts
from gemmbench.model.dtypes import AMX, DTYPES

ALLOWED = 1.02
"""A rate above this many times the theoretical peak is wrong. An H100's integer peak lay at 1.011."""

_BOOST = 1.25
"""The same where only OpenCL's clock is known: GeForce cards run 5 to 18 % above the clock they list."""

# NVIDIA's multiply-adds each clock on one unit (a multiprocessor), by compute capability, from the throughput
# table of the CUDA programming guide. 0: done in several steps, so that there is no such figure.
#   capability: (float, double, half, int)
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

# The same on matrix units, with dense operands: from NVIDIA's white papers on V100, Turing, A100, GA102, Ada
# and H100, their tables of multiply-adds for each clock and multiprocessor; the most of the chips that have a
# capability (workstation cards add up in float at the rate at which others do in half).
#   capability: (half, tf32, double, fp8, char)
_MATRIX: dict[tuple[int, int], tuple[int, int, int, int, int]] = {
    (7, 0): (512, 0, 0, 0, 0),
    (7, 5): (512, 0, 0, 0, 1024),
    (8, 0): (1024, 512, 64, 0, 2048),
    (8, 6): (512, 256, 0, 0, 1024),
    (8, 9): (512, 256, 0, 1024, 1024),
    (9, 0): (2048, 1024, 128, 4096, 4096),
}
_MATRIX_TYPES = ("half", "tf32", "double", "fp8", "char")
_ALIKE = {"bfloat16": "half"}  # on matrix units

_AMX_CYCLES = 16  # from one product of tiles to the next
_FASTEST_CLOCK_HZ = 7e9  # of CPUs: no processor sold runs faster. A bound, not an estimate
_VECTOR_BITS = 512
_FMA_PORTS = 2
_CORE_BYTES_PER_CYCLE = 3 * 64  # two 512-bit loads and a store


@dataclass(frozen=True)
class Ceiling:
    """A rate that the units would have at the clock that the driver reports, or a bound."""

    per_second: float  # operations or bytes
    source: str  # what it is derived from
    allowed: float = ALLOWED  # times the rate: a rate above that is wrong


def ceiling(
    device: DeviceFacts, dtype: str, matrix: bool = False, max_mhz: float | None = None
) -> Ceiling | None:
    """The theoretical peak of multiply-adds in flop/s, of NVIDIA's devices; None if it is unknown.

    `matrix` means the tensor cores. `max_mhz` is NVML's maximum clock, by default OpenCL's, which may be
    exceeded by up to 25 %.
    """
    types: tuple[str, ...] = _MATRIX_TYPES if matrix else _TYPES
    table: Mapping[tuple[int, int], tuple[int, ...]] = _MATRIX if matrix else _MULTIPLY_ADDS
    name = _ALIKE.get(dtype, DTYPES[dtype].instruction) if matrix else dtype
    count = dict(zip(types, table.get(device.compute_capability, ()), strict=False)).get(name, 0)
    clock_mhz = max_mhz or device.clock_mhz
    if not count or clock_mhz <= 0:
        return None
    major, minor = device.compute_capability
    units = "matrix multiply-adds" if matrix else "multiply-adds"
    return Ceiling(
        2.0 * count * device.compute_units * clock_mhz * 1e6,
        f"{device.compute_units} units at {clock_mhz:.0f} MHz, each with the {units} of compute "
        f"capability {major}.{minor}",
        ALLOWED if max_mhz else _BOOST,
    )


def upper_bound(
    device: DeviceFacts, dtype: str, matrix: bool = False, max_mhz: float | None = None
) -> Ceiling | None:
    """Upper bound for a valid rate: the theoretical peak on GPUs (None if unknown), a generous limit on CPUs.

    That is two 512-bit multiply-adds a cycle, or with `matrix` an AMX product in 16, on every core at 7 GHz.
    """
    if device.type != "cpu" or device.compute_units < 1:
        return ceiling(device, dtype, matrix, max_mhz)
    for product in AMX.instructions if matrix else ():
        if product.dtype == dtype and product.unit in device.units:
            return Ceiling(
                device.compute_units * product.operations / _AMX_CYCLES * _FASTEST_CLOCK_HZ,
                f"{device.compute_units} units, each with an AMX product in {_AMX_CYCLES} cycles at 7 GHz",
            )
    lanes = _VECTOR_BITS // 8 // DTYPES[dtype].itemsize
    return Ceiling(
        device.compute_units * _FMA_PORTS * lanes * 2 * _FASTEST_CLOCK_HZ,
        f"{device.compute_units} units, each with two {_VECTOR_BITS}-bit multiply-adds a cycle at 7 GHz",
    )


def upper_bound_bytes(device: DeviceFacts) -> Ceiling | None:
    """A limit on a CPU's bytes/s: per core 128 loaded and 64 stored a cycle at 7 GHz; None for others."""
    if device.type != "cpu" or device.compute_units < 1:
        return None
    return Ceiling(
        device.compute_units * _CORE_BYTES_PER_CYCLE * _FASTEST_CLOCK_HZ,
        f"{device.compute_units} units, each with two 512-bit loads and a store a cycle at 7 GHz",
    )


def why_above(rate: float, top: Ceiling | None, shown: Callable[[float], str]) -> str:
    """Why a rate is above the upper bound `top` and its tolerance, or "". `shown` formats a rate."""
    if top is None or rate <= top.allowed * top.per_second:
        return ""
    limit = shown(top.per_second)
    return f"{shown(rate)} is above the theoretical peak of {limit}: {top.source}"
