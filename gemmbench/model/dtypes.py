"""The data types, one row each, and instructions for short types with their shapes and devices."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np
import numpy.typing as npt

from gemmbench.model.device import DeviceFacts


@dataclass(frozen=True)
class DType:
    """A data type as the command line, numpy and OpenCL C know it."""

    name: str  # of A and B on the command line and in saved files; also OpenCL C's name, where it has one
    numpy: np.dtype[np.generic]  # what a value is stored in
    result: str  # the type of C: matrix units keep sums, and give them back, in a wider one
    scalar: str  # how alpha and beta reach a kernel: half is not allowed as a kernel argument
    eps: float  # distance from 1 to the next value; 0 for integers, which are exact
    extension: str  # the OpenCL extension that a device must list, or ""
    blas: bool  # whether numpy hands a product of this type to its BLAS

    @property
    def itemsize(self) -> int:
        return int(self.numpy.itemsize)

    @property
    def is_float(self) -> bool:
        return self.eps > 0

    @property
    def dropped(self) -> float:
        """The relative error if a multiplier cuts stored values short, as for tf32; else 0."""
        cut_short = self.numpy == np.float32 and self.eps > np.finfo(np.float32).eps
        return self.eps if cut_short else 0.0

    @property
    def instruction(self) -> str:
        """The type's name in instructions: ``fp8`` for every e4m3 and e5m2."""
        return "fp8" if self.name.startswith(("e4m3", "e5m2")) else self.name

    @property
    def largest(self) -> float:
        """The largest finite value; for types that numpy lacks, the largest integer of as many bytes."""
        if self.numpy.kind == "f":
            return float(np.finfo(self.numpy.name).max)
        return int(2 ** (8 * self.itemsize - 1)) - 1


def _row(
    name: str, numpy: type[np.generic], result: str, scalar: str, mantissa: int, extension: str, blas: bool
) -> DType:
    eps = 2.0**-mantissa if mantissa else 0.0
    return DType(name, np.dtype(numpy), result, scalar, eps, extension, blas)


DTYPES: dict[str, DType] = {
    row.name: row
    for row in (
        #    name      stored in   C's type  scalar  mantissa  extension  BLAS; no mantissa: an integer
        _row("float", np.float32, "float", "float", 23, "", True),
        _row("double", np.float64, "double", "double", 52, "cl_khr_fp64", True),
        _row("half", np.float16, "half", "float", 10, "cl_khr_fp16", False),
        _row("bfloat16", np.uint16, "float", "float", 7, "cl_intel_bfloat16", False),
        _row("tf32", np.float32, "float", "float", 10, "", False),  # matrix units only
        _row("fp8", np.uint8, "float", "float", 3, "", False),  # e4m3, as probes of instructions call it
        _row("e4m3", np.uint8, "float", "float", 3, "", False),
        _row("e4m3-half", np.uint8, "half", "float", 3, "", False),
        _row("e4m3-bfloat16", np.uint8, "bfloat16", "float", 3, "", False),
        _row("e5m2", np.uint8, "float", "float", 2, "", False),
        _row("e5m2-half", np.uint8, "half", "float", 2, "", False),
        _row("e5m2-bfloat16", np.uint8, "bfloat16", "float", 2, "", False),
        _row("fp22", np.float32, "float", "float", 13, "", False),  # only sums are kept in it, of fp8
        _row("long", np.int64, "long", "long", 0, "", False),
        _row("int", np.int32, "int", "int", 0, "", False),
        _row("short", np.int16, "int", "int", 0, "", False),
        _row("char", np.int8, "int", "int", 0, "", False),
    )
}

PLAIN_DTYPES: tuple[str, ...] = ("float", "double", "half")  # that a kernel multiplies unless it says others
FP8_DTYPES: tuple[str, ...] = tuple(name for name in DTYPES if name.startswith(("e4m3", "e5m2")))
GEMM_DTYPES: tuple[str, ...] = (*PLAIN_DTYPES, "bfloat16", "tf32", "char", *FP8_DTYPES)
GEMM_DTYPES_HELP = (
    "float, double, half, bfloat16, tf32, char (int8), e4m3, e5m2 (fp8 with C in float), "
    "e4m3-half, e4m3-bfloat16, e5m2-half, e5m2-bfloat16 (fp8 with C in that type)"
)
DEVICE_DTYPES: tuple[str, ...] = ("float", "double", "half", "int")  # of `DeviceFacts.dtypes`


# --- Numbers in the formats that numpy lacks: bfloat16, tf32 and fp8, encoded and decoded on the host.

HostArray = npt.NDArray[Any]  # in host memory, of any type
PAGE = 4096  # bytes
_AT_ONCE = 1 << 20  # elements: as doubles 8 MiB, which caches hold
_THREADS = ThreadPoolExecutor(4)  # which start with the first parts


def allocate_page_aligned(count: int, dtype: np.dtype[Any]) -> HostArray:
    """An uninitialised host array that starts on a page."""
    raw = np.empty(count * dtype.itemsize + PAGE, np.uint8)
    start = -raw.ctypes.data % PAGE
    return raw[start : start + count * dtype.itemsize].view(dtype)


def blocks(length: int, size: int, times: int = 1) -> list[slice]:
    """Slices of a length, of `times` 1 Mi elements at most (`size` for each index)."""
    step = max(1, times * _AT_ONCE // max(1, size))
    return [slice(start, min(start + step, length)) for start in range(0, length, step)]


def by_parts(work: Callable[[slice], Any], size: int) -> list[Any]:
    """The results of `work` on blocks, on four threads: one is slower than memory."""
    parts = blocks(size, 1)
    return list((_THREADS.map if len(parts) > 1 else map)(work, parts))


_ML_DTYPES = {"bfloat16": ml_dtypes.bfloat16} | {
    name: ml_dtypes.float8_e5m2 if name.startswith("e5m2") else ml_dtypes.float8_e4m3fn
    for name in ("fp8", *FP8_DTYPES)
}
_TF32_DROPS = np.uint32(13)  # of a float's 23 bits of mantissa


def encode(values: HostArray, dtype: DType) -> HostArray:
    """Values, finite and in range, as a device stores them, rounded to nearest, ties to even."""
    if dtype.name == "tf32":
        bits = _rounded_to_odd(values).view(np.uint32)
        half = np.uint32(1 << 12)
        bits = bits + (half - np.uint32(1)) + ((bits >> _TF32_DROPS) & np.uint32(1))
        return np.asarray((bits >> _TF32_DROPS << _TF32_DROPS).view(np.float32))
    if kind := _ML_DTYPES.get(dtype.name):
        return np.asarray(_rounded_to_odd(values).astype(kind).view(dtype.numpy))
    return values.astype(dtype.numpy)


def decode(stored: HostArray, dtype: DType) -> HostArray:
    """Stored values as numbers: floating-point types as doubles, integers unchanged."""
    if kind := _ML_DTYPES.get(dtype.name):
        return np.asarray(stored.view(kind).astype(np.float64))
    return stored.astype(np.float64) if dtype.is_float else stored


def _rounded_to_odd(values: HostArray) -> HostArray:
    """Doubles as floats, rounded to odd: rounded again, they give what the doubles give."""
    floats = values.astype(np.float32)
    if values.dtype == np.float64:
        moved = (floats != values) & (floats.view(np.uint32) & np.uint32(1) == 0)
        towards = np.where(values[moved] > floats[moved], np.float32(np.inf), np.float32(-np.inf))
        floats[moved] = np.nextafter(floats[moved], towards)
    return floats


Capability = tuple[int, int]  # NVIDIA's compute capability: (9, 0)


def lacks_capability(device: DeviceFacts, name: str, wanted: Capability, only: bool = False) -> str:
    """Why a device cannot run NVIDIA's instruction `name`, or ""; with `only`, later ones lack it."""
    available = device.compute_capability
    if available == wanted or (available > wanted and not only):
        return ""
    needs = f"{name} needs an NVIDIA device of compute capability {wanted[0]}.{wanted[1]}"
    has = f"; this one has {available[0]}.{available[1]}" if available > (0, 0) else ""
    return needs + ("" if only else " or later") + has


@dataclass(frozen=True)
class Instruction:
    """One matrix instruction: D += A B for a tile of m x n by k."""

    dtype: str  # of A and B
    accumulator: str  # of D
    m: int
    n: int
    k: int
    capability: Capability
    emulated: tuple[Capability, ...] = ()  # where the assembler makes it of other instructions
    unit: str = ""  # of a CPU, as Linux names it, instead of a capability

    @property
    def shape(self) -> str:
        """As PTX writes it: ``m16n8k16``."""
        return f"m{self.m}n{self.n}k{self.k}"

    @property
    def operations(self) -> int:
        return 2 * self.m * self.n * self.k


@dataclass(frozen=True)
class InstructionFamily:
    """Instructions of one PTX mnemonic, or of one kind of CPU unit."""

    name: str
    target: str  # of PTX, where the driver's own does not have it and later devices lack it: "sm_90a"
    instructions: tuple[Instruction, ...]

    def lacks(self, device: DeviceFacts, dtype: str) -> str:
        """Why a device cannot run it for a data type, or is emulating it; or ""."""
        instructions = [each for each in self.instructions if each.dtype == dtype]
        if unit := instructions[0].unit:
            if unit not in device.units:
                return f"{self.name} needs a CPU with {unit}"
            has_assembly = device.family in ("cpu-intel", "cpu-pocl")
            return "" if has_assembly else f"{self.name} needs Intel's driver or PoCL"
        wanted = min(each.capability for each in instructions)
        lacks = lacks_capability(device, self.name, wanted, only=bool(self.target))
        if lacks or not all(device.compute_capability in each.emulated for each in instructions):
            return lacks
        major, minor = device.compute_capability
        other = "; see wgmma" if (major, minor) == (9, 0) else ""
        return f"sm_{major}{minor} has no {dtype} {self.name}.sync: the compiler emulates it{other}"


MMA = InstructionFamily(
    "mma",
    "",
    (
        Instruction("half", "float", 16, 8, 16, (8, 0)),
        Instruction("half", "half", 16, 8, 16, (8, 0)),
        Instruction("bfloat16", "float", 16, 8, 16, (8, 0)),
        Instruction("tf32", "float", 16, 8, 8, (8, 0)),
        # ptxas 13.0 makes two products of halves, conversions and additions of it on these.
        Instruction("fp8", "float", 16, 8, 32, (8, 9), emulated=((9, 0), (10, 0), (10, 3), (11, 0))),
        Instruction("char", "int", 16, 8, 32, (8, 0)),
        Instruction("double", "double", 16, 8, 8, (9, 0)),
    ),
)
WGMMA = InstructionFamily(
    "wgmma",
    "sm_90a",
    (
        Instruction("half", "float", 64, 256, 16, (9, 0)),
        Instruction("half", "half", 64, 256, 16, (9, 0)),
        Instruction("bfloat16", "float", 64, 256, 16, (9, 0)),
        Instruction("tf32", "float", 64, 256, 8, (9, 0)),
        Instruction("fp8", "float", 64, 256, 32, (9, 0)),
        Instruction("char", "int", 64, 256, 32, (9, 0)),
    ),
)
_OF_CPU = (0, 0)  # no capability of NVIDIA's
VNNI = InstructionFamily("vnni", "", (Instruction("char", "int", 1, 16, 4, _OF_CPU, unit="avx512_vnni"),))
CPU_FAMILIES = (  # a row of A times 16 or 32 columns of B; of char, B is unsigned
    VNNI,
    InstructionFamily("bf16", "", (Instruction("bfloat16", "float", 1, 16, 2, _OF_CPU, unit="avx512_bf16"),)),
    InstructionFamily("fp16", "", (Instruction("half", "half", 1, 32, 1, _OF_CPU, unit="avx512_fp16"),)),
)
AMX = InstructionFamily(
    "amx",
    "",
    (
        Instruction("bfloat16", "float", 16, 16, 32, _OF_CPU, unit="amx_bf16"),
        Instruction("char", "int", 16, 16, 64, _OF_CPU, unit="amx_int8"),
    ),
)
CPU_UNITS = tuple(each.unit for family in (AMX, *CPU_FAMILIES) for each in family.instructions)
