"""Drivers and libraries that compile for less than this CPU offers, by what they say of themselves."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from gemmbench.opencl import drivers


@dataclass(frozen=True, order=True)
class Level:
    """The widest vectors of an x86 processor, or of code for one."""

    rank: int
    name: str
    bits: int  # of its vectors of float
    flops: int  # of float in the instructions of a clock, relative to SSE: by width, and twice with FMA


SSE, AVX = Level(0, "SSE", 128, 1), Level(1, "AVX", 256, 2)
AVX2, AVX512 = Level(2, "AVX2", 256, 4), Level(3, "AVX-512", 512, 8)

# LLVM's names for x86 processors, by the widest vectors that it uses for them. A name that is in none of the
# rows is newer than this table: no warning then.
_TARGETS: tuple[tuple[Level, str], ...] = (
    (
        SSE,
        "generic x86-64 x86-64-v2 i686 pentium4 nocona core2 penryn yonah prescott bonnell silvermont "
        "goldmont goldmont-plus tremont nehalem westmere corei7 atom k8 k8-sse3 opteron opteron-sse3 "
        "athlon64 athlon-fx athlon64-sse3 amdfam10 barcelona btver1 sse2 ssse3 sse41",
    ),
    (AVX, "sandybridge ivybridge corei7-avx core-avx-i btver2 bdver1 bdver2 bdver3 avx avx_f16c avx_fma4"),
    (
        AVX2,
        "haswell broadwell skylake core-avx2 x86-64-v3 alderlake raptorlake meteorlake arrowlake arrowlake-s "
        "lunarlake pantherlake gracemont sierraforest grandridge clearwaterforest bdver4 znver1 znver2 "
        "znver3 avx2",
    ),
    (
        AVX512,
        "skylake-avx512 skx cascadelake cooperlake cannonlake icelake-client icelake-server tigerlake "
        "rocketlake sapphirerapids emeraldrapids graniterapids graniterapids-d diamondrapids knl knm znver4 "
        "znver5 x86-64-v4 avx512",
    ),
)
_LEVELS = {name: level for level, names in _TARGETS for name in names.split()}

# What OpenBLAS and BLIS call the processors that they have kernels for (threadpoolctl's ``architecture``).
_BLAS_CORES: tuple[tuple[Level, str], ...] = (
    (
        SSE,
        "generic katmai coppermine northwood banias prescott core2 penryn dunnington nehalem atom opteron "
        "opteron_sse3 barcelona bobcat",
    ),
    (AVX, "sandybridge bulldozer piledriver steamroller"),
    (AVX2, "haswell excavator zen zen2 zen3"),
    (AVX512, "skylakex cooperlake sapphirerapids skx knl zen4 zen5"),
)
_BLAS_LEVELS = {name: level for level, names in _BLAS_CORES for name in names.split()}

_HOST_STRING = re.compile(
    r"HSTR:\s*[a-z]+-(?:x86_64|i[3-6]86)-[^-\s]+-(?:linux-\w+|[^-\s]+)-(\S+)", re.IGNORECASE
)


CPUINFO = Path("/proc/cpuinfo")


def cpu_level(cpuinfo: Path = CPUINFO) -> Level | None:
    """The widest vectors of this x86 processor; None if unknown."""
    try:
        text = cpuinfo.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
    return level_of_flags(text)


def target_of(device_version: str) -> tuple[str, Level] | None:
    """The processor that PoCL compiles for, by its device version, and its vectors; None if not known."""
    stated = _HOST_STRING.search(device_version)
    level = llvm_level(stated[1]) if stated else None
    return (stated[1], level) if stated and level else None


def llvm_level(processor: str) -> Level | None:
    """The vectors of a processor by LLVM's name for it; None if not known."""
    return _LEVELS.get(processor.lower())


def blas_level(architecture: str) -> Level | None:
    """The vectors of the kernels that a BLAS chose, by its name for the processor; None if not known."""
    return _BLAS_LEVELS.get(architecture.lower())


def level_of_flags(cpuinfo: str) -> Level | None:
    """The same, from the text of /proc/cpuinfo."""
    match = re.search(r"^flags\s*:(.*)$", cpuinfo, re.MULTILINE)
    if match is None:
        return None
    flags = set(match[1].split())
    for flag, level in (("avx512f", AVX512), ("avx2", AVX2), ("avx", AVX)):
        if flag in flags:
            return level
    return SSE


def target_warning(platform_version: str, device_version: str, offered: Level | None) -> str:
    """A sentence about a driver that leaves vector units of this processor idle, "" if it does not.

    PoCL states in its device version the processor that it compiles for.
    """
    stated = target_of(device_version)
    if stated is None or offered is None or stated[1] >= offered:
        return ""
    processor, target = stated
    pocl = re.search(r"pocl\s+([^\s,]+)", platform_version, re.IGNORECASE)
    llvm = re.search(r"LLVM\s+([\d.]+)", platform_version)
    name = f"PoCL {pocl[1]}" if pocl else "this driver"
    age = f" (its LLVM {llvm[1]} does not know this one)" if llvm else ""
    return (
        f"{name} compiles for {processor} processors{age}: {target.name} where this CPU offers "
        f"{offered.name}, so its figures are not the hardware's; a driver that knows it comes with: "
        f"{drivers.install_command()}"
    )
