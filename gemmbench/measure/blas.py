"""BLAS libraries that threadpoolctl does not list, and those that do not use the processor's vectors."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

Pool = dict[str, Any]  # what threadpoolctl says of a library: its file, its version, its threads

REFERENCE, NO_BLAS, UNKNOWN = "reference BLAS", "numpy's own loops", "unknown BLAS"
_PLAIN = (REFERENCE, NO_BLAS)  # without vectors and threads
#   in a folder's or file's name   the library; the first counts
_NAMES = {
    "netlib": REFERENCE, "refblas": REFERENCE, "openblas": "OpenBLAS", "blis": "BLIS", "atlas": "ATLAS",
    "mkl": "MKL", "armpl": "Arm Performance Libraries", "nvpl": "NVPL", "libsci": "LibSci", "essl": "ESSL",
    "gslcblas": "GSL's CBLAS", "flexiblas": "FlexiBLAS", "accelerate": "Accelerate", "veclib": "Accelerate",
}  # fmt: skip
_LIBRARY = re.compile(r"/lib[^/]*(?:blas|blis|atlas|mkl_rt|armpl|nvpl|libsci|essl)[^/]*\.so[^/]*$")
_OF_DEVICES = re.compile("clblas|clblast|cublas|hipblas|rocblas")
_NETLIB = re.compile(r"/libc?blas\.so\.3\.\d+\.\d+$")  # as its own build names it


def find_unlisted(package: ModuleType, maps: Path = Path("/proc/self/maps")) -> Pool | None:
    """The BLAS of a package that threadpoolctl does not list, with its name as ``internal_api``; or None.

    The name is that of a library's file in this process or, if there is none, of the package's build.
    """
    names = {}
    for file in _loaded(maps):
        if _LIBRARY.search(file) and not _OF_DEVICES.search(file):
            names[file] = _name(file)
    if names:
        file = next((file for file, name in names.items() if name), next(iter(names)))
        version = re.search(r"\.so\.(\d+\.\d+\.\d+)$", file) if names[file] else None
        name = names[file] or f"{UNKNOWN} {Path(file).name}"
        return {"internal_api": name, "version": version and version[1], "filepath": file}
    built = _built_with(package)
    return {"internal_api": built} if built else None


def _loaded(maps: Path) -> list[str]:
    try:
        lines = maps.read_text(encoding="utf-8", errors="surrogateescape").splitlines()
    except OSError:
        return []
    fields = (line.split(maxsplit=5) for line in lines)
    return [*dict.fromkeys(each[5] for each in fields if len(each) == 6)]


def _name(file: str) -> str:
    words = "/".join(Path(file).parts[-2:]).lower()
    name = next((name for word, name in _NAMES.items() if word in words), "")
    return name or (REFERENCE if _NETLIB.search(file) else "")


def _built_with(package: ModuleType) -> str:
    """The BLAS that numpy or scipy says it was built with, or ""."""
    try:
        described = package.show_config(mode="dicts")["Build Dependencies"]["blas"]
        if not described.get("found", True):
            return NO_BLAS
    except (AttributeError, KeyError, TypeError):  # before 1.25
        described = getattr(getattr(package, "__config__", None), "blas_opt_info", None)
        if described == {}:
            return NO_BLAS
    return next((name for word, name in _NAMES.items() if word in str(described).lower()), "")


class Trouble(NamedTuple):
    """Why a BLAS is slower than the processor allows, and what to do about it."""

    problem: str  # a sentence with the cost
    fix: str
    setting: str  # the variable that is set wrong, or the one that helps with its value; or ""

    @property
    def advice(self) -> str:
        return f"{self.fix}: {self.setting}" if self.setting else self.fix


# Kernels by the processor that they are for, in floating-point operations of a core for each cycle, relative
# to vectors of 256 bits with multiply-adds. Sources: OpenBLAS, driver/others/dynamic.c and TargetList.txt;
# BLIS, config_registry. A name that is not here says nothing.
_SPEEDS = {
    2.0: "skylakex cooperlake sapphirerapids skx knl zen4 zen5",
    1.0: "haswell zen zen2 zen3 excavator",
    0.5: "sandybridge bulldozer piledriver steamroller",
    0.25: "prescott katmai coppermine northwood banias core2 penryn dunnington nehalem atom opteron "
    "opteron_sse3 barcelona bobcat athlon nano generic",
}
_SPEED_OF = {name: speed for speed, names in _SPEEDS.items() for name in names.split()}
_FEATURES = (({"avx512f"}, 2.0), ({"avx2", "fma"}, 1.0), ({"avx"}, 0.5), ({"sse2"}, 0.25))
_BEST = {2.0: "SkylakeX", 1.0: "Haswell", 0.5: "Sandybridge"}
_INSTALL = "Install OpenBLAS (libopenblas0), or numpy from PyPI, which includes it"
_VARIABLES = {"openblas": "OPENBLAS_CORETYPE", "blis": "BLIS_ARCH_TYPE"}


def trouble(pool: Pool, cpuinfo: str, environ: Mapping[str, str]) -> Trouble | None:
    """What makes a BLAS slower than the processor allows; None if nothing is known to.

    That is the reference BLAS, or kernels for another processor, compared by their peak rates for x86.
    """
    library, core = str(pool.get("internal_api")), str(pool.get("architecture") or "")
    if library in _PLAIN:
        what = f"the {library}" if library == REFERENCE else library
        problem = f"numpy uses {what}: one thread and no vector instructions, so it may be many times slower."
        return Trouble(problem, _INSTALL, "")
    flags = re.search(r"^flags\s*:(.*)$", cpuinfo, re.MULTILINE)
    offered = next((speed for need, speed in _FEATURES if flags and need <= {*flags[1].split()}), 0.0)
    used = _SPEED_OF.get(core.lower())
    variable = _VARIABLES.get(library, "")
    if used is None or used >= offered or not variable:
        return None
    problem = (
        f"numpy's {'OpenBLAS' if library == 'openblas' else 'BLIS'} uses its kernels for {core}, although "
        f"this CPU has newer vector instructions: it may be up to {offered / used:g} times slower."
    )
    if environ.get(variable):
        return Trouble(problem, "Unset the variable", variable)
    if library == "blis":
        return Trouble(problem, "Update numpy", "")
    return Trouble(problem, "Select other kernels, or update numpy", f"{variable}={_BEST[offered]}")
