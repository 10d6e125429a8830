"""Find OpenCL drivers, show the loader those that pip installed, and name drivers that fail.

An OpenCL loader reads ``.icd`` files, one line each naming a driver library, from ``/etc/OpenCL/vendors``.
pip cannot write there, and Intel's own ``.icd`` names a folder that exists on no machine. So this module
builds a private folder with a copy of each ``.icd`` file, and one for each driver that the loader would have
missed. ``OCL_ICD_VENDORS`` points to it: ocl-icd and Khronos's loader use it *instead of* the system's
folder. On Windows the loader reads the registry, and adds what ``OCL_ICD_FILENAMES`` lists.

Nothing here imports pyopencl, because the loader reads its environment once, at the first call.
"""

from __future__ import annotations

import atexit
import ctypes
import ctypes.util
import hashlib
import importlib.metadata
import os
import platform
import re
import signal
import subprocess
import sys
import tempfile
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Literal

SYSTEM_VENDORS = Path("/etc/OpenCL/vendors")
NVIDIA = "libnvidia-opencl.so.1"
SKIP = "GEMMBENCH_SKIP_DRIVERS"
"""The environment variable with the libraries to leave out, separated like the folders of a PATH."""

Reach = Literal["listed", "copy", "missed"]
"""How the loader finds a driver: an .icd file or OCL_ICD_VENDORS names it, or a copy of it, or not at all."""


@dataclass(frozen=True)
class Driver:
    """One driver library, and where it was found."""

    library: str  # as the loader gets it: a path, or a bare name for the dynamic linker
    origin: str  # "system", "from this environment: intel-opencl-rt 2026.2.0", ...
    icd: str = ""  # the .icd file that named it, "" if none did
    reach: Reach = field(default="listed", compare=False)

    @property
    def title(self) -> str:
        return f"{self.icd or self.origin}: {self.library}"


@dataclass(frozen=True)
class Registered:
    """The result of `register`."""

    drivers: tuple[Driver, ...] = ()
    warnings: tuple[str, ...] = ()

    def drivers_of(self, platforms: Sequence[str]) -> list[Driver | None]:
        """The driver of each platform, by its name, vendor and version; None if none matches.

        Platforms get several in the loader's order, and further ones the last.
        """
        left: dict[str, list[Driver]] = {}
        seen: set[str] = set()
        for driver in self.drivers:
            if (file := os.path.realpath(driver.library)) not in seen:
                seen.add(file)
                kind = _known_part(_LIBRARIES.values(), Path(driver.library).name)
                left.setdefault(kind, []).append(driver)
        matching: list[Driver | None] = []
        for name in platforms:
            fitting = left.get(_LIBRARIES.get(_known_part(_LIBRARIES, name), ""), [])
            matching.append(fitting.pop(0) if len(fitting) > 1 else next(iter(fitting), None))
        return matching


def _known_part(parts: Iterable[str], name: str) -> str:
    return next((part for part in parts if part in name.lower()), "")


#   in a platform's name      in the name of its library
_LIBRARIES = {
    "pocl": "pocl",
    "oclgrind": "oclgrind",
    "rusticl": "rusticl",
    "opencl graphics": "igdrcl",
    "intel": "intelocl",
    "nvidia": "nvidia",
    "amd": "amdocl",
}


@lru_cache(maxsize=1)
def register() -> Registered:
    """Make every driver of this environment visible to the OpenCL loader, except those in `SKIP`.

    Call it before the process's first OpenCL call; later calls return the same result. If no temporary folder
    is writable, a warning names the missing drivers.
    """
    all_drivers, warnings = _all_drivers()
    skipped = os.environ.get(SKIP, "").split(os.pathsep)
    wanted = [driver for driver in all_drivers if driver.library not in skipped]
    missed = [driver for driver in wanted if driver.reach == "missed"]
    if missed or len(wanted) < len(all_drivers):
        try:
            os.environ.update(_announce([driver for driver in wanted if driver.reach == "listed"], missed))
        except OSError as error:
            names = ", ".join(driver.library for driver in missed)
            warnings.append(
                f"no temporary folder is writable ({error}), so the loader cannot be shown {names}"
            )
            wanted = [driver for driver in wanted if driver not in missed]
    return Registered(tuple(wanted), tuple(warnings))


def _all_drivers() -> tuple[list[Driver], list[str]]:
    """Every driver, those that the loader finds first, and warnings about broken packages."""
    system = tuple(_system_drivers())
    added = tuple(_listed_in_variable())
    packages, warnings = _python_drivers((*system, *added))
    if sys.platform.startswith("linux") and not any("nvidia" in each.library.lower() for each in system):
        if _loads(NVIDIA):
            # Containers get NVIDIA's library mounted from the host, often without the file that names it.
            packages.append(Driver(NVIDIA, f"{NVIDIA} (no .icd file was installed)", reach="missed"))
    # Where an .icd file names the same library, the package says more.
    copies = [driver for driver in packages if driver.reach == "copy"]
    return [*copies, *system, *added, *(each for each in packages if each not in copies)], warnings


def release() -> None:
    """Restore the environment that `register` changed. Can be repeated."""
    for name in tuple(_before):
        if (value := _before.pop(name)) is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = value


_before: dict[str, str | None] = {}  # the variables to restore, with their values
atexit.register(release)


def _system_drivers() -> Iterator[Driver]:
    seen: set[str] = set()
    for icd, origin in _icd_files():
        line = _first_line(icd)
        if line and line not in seen:
            seen.add(line)
            yield Driver(line, origin, str(icd))
    asked = os.environ.get("OCL_ICD_VENDORS", "")
    if asked and not asked.endswith(".icd") and not Path(asked).is_dir() and asked not in seen:
        yield Driver(asked, "from OCL_ICD_VENDORS")  # ocl-icd takes a library there, too


def _icd_files() -> Iterator[tuple[Path, str]]:
    """Yield every ``.icd`` file with its origin."""
    base = Path(os.environ.get("OPENCL_VENDOR_PATH") or SYSTEM_VENDORS)
    asked = os.environ.get("OCL_ICD_VENDORS", "")
    if not asked:
        yield from ((icd, "system") for icd in _icd_files_in(base))
        # conda keeps its own folder, which only conda's loader reads.
        for prefix in dict.fromkeys((sys.prefix, os.environ.get("CONDA_PREFIX") or sys.prefix)):
            folder = Path(prefix, "etc", "OpenCL", "vendors")
            for icd in _icd_files_in(folder) if folder != base else ():
                library = _first_line(icd)
                if library and (not _is_path(library) or Path(library).is_file()):
                    yield icd, f"from this environment: {folder}"
    elif Path(asked).is_dir():
        yield from ((icd, "from OCL_ICD_VENDORS") for icd in _icd_files_in(Path(asked)))
    elif asked.endswith(".icd"):
        # Without a slash ocl-icd looks for the file in the system's folder.
        yield Path(asked) if os.sep in asked else base / asked, "from OCL_ICD_VENDORS"


def _listed_in_variable() -> Iterator[Driver]:
    """The libraries in ``OCL_ICD_FILENAMES``, which ocl-icd does not read."""
    if sys.platform != "win32":  # its loader reads them
        for library in filter(None, os.environ.get("OCL_ICD_FILENAMES", "").split(os.pathsep)):
            yield Driver(library, "from OCL_ICD_FILENAMES", reach="missed")


def _icd_files_in(folder: Path) -> list[Path]:
    try:
        return sorted(path for path in folder.iterdir() if path.suffix == ".icd")
    except OSError:
        return []


def _first_line(icd: Path) -> str:
    try:
        return icd.read_text(encoding="utf-8", errors="surrogateescape").split("\n", 1)[0].strip()
    except OSError:
        return ""


def _is_path(library: str) -> bool:
    return "/" in library or "\\" in library


def _python_drivers(others: Sequence[Driver]) -> tuple[list[Driver], list[str]]:
    """The drivers of Intel's and PoCL's pip packages, and warnings about broken ones."""
    entries: list[Driver] = []
    warnings: list[str] = []
    for name, pattern in (
        ("intel-opencl-rt", r"(libintelocl\.so|intelocl64\.dll)"),
        ("pocl-binary-distribution", r"libpocl(-[0-9a-f]+)?\.(so|dylib)[.\d]*"),
    ):
        try:
            distribution = importlib.metadata.distribution(name)
        except importlib.metadata.PackageNotFoundError:
            continue
        library = _library(distribution, re.compile(pattern))
        if library is None:
            warnings.append(
                f"{name} {distribution.version} is installed but its driver library is missing: "
                f"pip install --force-reinstall {name}"
            )
            continue
        if name == "intel-opencl-rt" and not _has_compiler_support(library):
            warnings.append(
                f"Intel's OpenCL runtime {distribution.version} cannot load without its compiler support "
                "library: pip install intel-cmplr-lib-rt"
            )
        reach: Reach = "copy" if any(_same_build(other.library, library) for other in others) else "missed"
        origin = f"from this environment: {name} {distribution.version}"
        entries.append(Driver(str(library), origin, reach=reach))
    return entries, warnings


def _library(distribution: importlib.metadata.Distribution, pattern: re.Pattern[str]) -> Path | None:
    files = (file for file in distribution.files or () if pattern.fullmatch(file.name))
    paths = (Path(os.path.normpath(str(file.locate()))) for file in files)
    return next(filter(Path.is_file, paths), None)


def _same_build(listed: str, library: Path) -> bool:
    """Whether an ``.icd`` file's path is this library or a copy."""
    if not _is_path(listed):
        return False
    if os.path.realpath(listed) == os.path.realpath(library):
        return True
    with suppress(OSError):
        # Two builds of a hundred megabytes never have the same size.
        return Path(listed).name == library.name and Path(listed).stat().st_size == library.stat().st_size
    return False


def _has_compiler_support(library: Path) -> bool:
    if library.suffix == ".dll":
        return any(library.parent.glob("libmmd*.dll")) or ctypes.util.find_library("libmmd") is not None
    return (library.parent / "libimf.so").exists() or ctypes.util.find_library("imf") is not None


def _loads(library: str) -> bool:
    try:
        ctypes.CDLL(library)
    except OSError:
        return False
    return True


def _announce(system: Iterable[Driver], missed: list[Driver]) -> dict[str, str]:
    """Make a private folder of ``.icd`` files, and return the variables to set. Raises `OSError`."""
    if sys.platform == "win32":
        # The registry's drivers stay: this variable adds. The runtime's other DLLs are found on the PATH,
        # some of them not before a kernel is built, so that this is not taken back.
        listed = [os.environ.get("OCL_ICD_FILENAMES", ""), *(driver.library for driver in missed)]
        folders = [*(str(Path(driver.library).parent) for driver in missed), os.environ.get("PATH", "")]
        return {
            "OCL_ICD_FILENAMES": os.pathsep.join(filter(None, listed)),
            "PATH": os.pathsep.join(filter(None, folders)),
        }
    lines = {}
    for number, driver in enumerate((*system, *missed)):
        name = Path(driver.icd or driver.library).name.removesuffix(".icd")
        lines[f"{number:02}-{name}.icd"] = f"{driver.library}\n".encode(errors="surrogateescape")
    # Later processes use the same folder, so that none is left behind by a process that is killed.
    digest = hashlib.sha256(repr(lines).encode()).hexdigest()[:12]
    folder = Path(tempfile.gettempdir(), f"gemmbench-icd-{os.getuid()}-{digest}")
    folder.mkdir(mode=0o700, exist_ok=True)
    if folder.lstat().st_uid != os.getuid() or folder.is_symlink():
        raise PermissionError(f"{folder} is another user's")
    for name, line in lines.items():
        whole = folder / f"{name}.{os.getpid()}"
        whole.write_bytes(line)
        whole.replace(folder / name)
    _before["OCL_ICD_VENDORS"] = os.environ.get("OCL_ICD_VENDORS")
    return {"OCL_ICD_VENDORS": str(folder)}


_LISTED = 77  # the exit status of a child process that has listed the devices
_ALONE = f"""
import os
from gemmbench.opencl import discovery
print(flush=True)
os.dup2(2, 1)
discovery.list_devices()
os._exit({_LISTED})
"""

Problem = tuple[str, str]  # what is wrong, and the fix, or ""


def skip_failing(limit_s: float) -> tuple[Problem, ...]:
    """List each driver's devices in a child process; add drivers that crash or hang to `SKIP`.

    Children run at the same time, each for at most `limit_s`. Returns a message for each failing driver.
    """
    skipped = [*filter(None, os.environ.get(SKIP, "").split(os.pathsep))]
    all_drivers = {driver.library: driver for driver in _all_drivers()[0]}
    children = {}
    for library in (each for each in all_drivers if each not in skipped):
        others = os.pathsep.join(each for each in all_drivers if each != library)
        environment = {**os.environ, SKIP: others, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
        children[library] = subprocess.Popen(
            [sys.executable, "-c", _ALONE], env=environment, stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
        )  # fmt: skip
    failures = {library: how for library, child in children.items() if (how := _failure(child, limit_s))}
    if failures:
        os.environ[SKIP] = os.pathsep.join([*skipped, *failures])
    return tuple(
        (
            f"{all_drivers[library].title} {how}, so it is excluded",
            f"{SKIP}={library} excludes it from the start",
        )
        for library, how in failures.items()
    )


def _failure(child: subprocess.Popen[bytes], limit_s: float) -> str:
    """How a child that lists devices failed, or ""; kill it after `limit_s`."""
    assert child.stdout
    with child:
        child.stdout.readline()
        try:
            status = child.wait(limit_s)
        except subprocess.TimeoutExpired:
            child.kill()
            return f"has not listed its devices after {limit_s:g} s"
    if status == _LISTED:
        return ""
    how = f"ends the process with status {status}" if status >= 0 else f"crashes with {signal_name(-status)}"
    return f"{how} while its devices are listed"


def signal_name(number: int) -> str:
    """``SIGABRT``; the number of a signal without a name."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return str(number)


def problems(registered: Registered, shown: Collection[str]) -> tuple[Problem, ...]:
    """Load each driver that is not in `shown`, and return why it shows no device, with a fix or ""."""
    listed = [] if shown else [(warning, "") for warning in registered.warnings]
    unseen = [driver for driver in registered.drivers if driver.library not in shown]
    for driver in unseen if sys.platform != "win32" else ():
        try:
            ctypes.CDLL(driver.library)
        except OSError as error:
            reason = str(error).removeprefix(f"{driver.library}: ")
            fix = f"Install what is missing, or remove {driver.icd or 'the entry'}"
            listed.append((f"{driver.title} cannot be loaded: {reason}", fix))
        else:
            if "rusticl" in driver.library.lower() and not os.environ.get("RUSTICL_ENABLE"):
                fix = "Set it to the names of Mesa's drivers, such as RUSTICL_ENABLE=radeonsi,iris"
                listed.append((f"{driver.title} shows no device without RUSTICL_ENABLE", fix))
            elif not shown:
                fix = "Check that its hardware and kernel driver are there"
                listed.append((f"{driver.title} can be loaded but shows no device", fix))
    return tuple(listed)


THREAD_VARIABLES = {
    "intel": ("DPCPP_CPU_NUM_CUS", "SYCL_CPU_NUM_CUS", "CL_CONFIG_CPU_TBB_NUM_WORKERS"),
    "portable": ("POCL_MAX_PTHREAD_COUNT", "POCL_CPU_MAX_CU_COUNT", "POCL_MAX_COMPUTE_UNITS"),
}
"""The variables that limit the threads of CPU drivers, by a part of the platform's name."""


def thread_limits(platform: str) -> list[int]:
    """The environment's limits for the threads of a platform's CPU driver."""
    names = (name for part, names in THREAD_VARIABLES.items() if part in platform.lower() for name in names)
    values = (os.environ.get(name, "") for name in names)
    return [int(value) for value in values if value.isdecimal() and int(value)]


def no_context(library: str, error: object) -> Problem:
    """Why a context cannot be created, and advice: Intel's runtime fails in a folder with a space."""
    folders = {str(Path(path).parent) for path in (library, os.path.realpath(library)) if _is_path(library)}
    spaced = next((folder for folder in folders if len(folder.split()) > 1), "")
    if spaced and _LIBRARIES["intel"] in Path(library).name:
        why = f"Intel's runtime does not work from a folder whose path has a space, {spaced}"
        return why, "Install it, with gemmbench, in a folder without one"
    return f"the driver lists it, but {error}", "Choose another --device, or install its driver again"


def no_device_message(problems: Iterable[Problem]) -> str:
    """The message for a machine without devices: the problems, and how to install a driver."""
    sentences = ["no OpenCL device was found", *map(sentence, problems)]
    return f"{'. '.join(sentences)}; a driver for this CPU comes with: {install_command()}"


def sentence(problem: Problem) -> str:
    """A problem with its fix."""
    return ". ".join(filter(None, problem))


def install_command() -> str:
    """The command that installs a CPU driver: Intel's by pip or pipx on x86-64, PoCL by brew or conda."""
    machine = platform.machine().lower()
    # Intel's wheel is built for glibc; musl (Alpine) cannot load it.
    is_glibc = sys.platform.startswith("linux") and platform.libc_ver()[0] == "glibc"
    if machine in ("x86_64", "amd64") and (sys.platform == "win32" or is_glibc):
        if "pipx" in Path(sys.prefix).parts:
            return "pipx inject gemmbench intel-opencl-rt intel-cmplr-lib-rt"
        return 'pip install "gemmbench[cpu]"'
    if sys.platform == "darwin":
        return "brew install pocl"
    return "conda install -c conda-forge pocl"


GUIDE = "https://github.com/gemmbench/gemmbench/blob/main/docs/getting-started.md#system-drivers"
"""The drivers and the packages that contain them, by system."""

# PoCL compiles for one of these where its LLVM does not know the processor.
_GENERIC = ("generic", "x86-64")
_HOST_STRING = re.compile(
    r"HSTR:\s*[a-z]+-(?:x86_64|i[3-6]86)-[^-\s]+-(?:linux-\w+|[^-\s]+)-(\S+)", re.IGNORECASE
)
_VECTORS = (("avx512f", 512), ("avx", 256), ("sse", 128))  # flag of /proc/cpuinfo, bits


def vector_bits(cpuinfo: str) -> int:
    """Bits of the widest x86 vectors, by /proc/cpuinfo's text; 0 if unknown."""
    match = re.search(r"^flags\s*:(.*)$", cpuinfo, re.MULTILINE)
    flags = match[1].split() if match else []
    return next((bits for flag, bits in _VECTORS if flag in flags), 0)


_ARCH_PRCTL, _GET, _REQUEST, _TILES = 158, 0x1022, 0x1023, 18  # of x86-64's Linux; AMX's tile data


def _arch_prctl(code: int, argument: object) -> bool:
    """Whether the system call arch_prctl succeeds; False but on Linux on x86-64."""
    if sys.platform != "linux" or platform.machine() != "x86_64":
        return False
    try:
        return bool(ctypes.CDLL(None).syscall(_ARCH_PRCTL, code, argument) == 0)
    except (OSError, AttributeError):
        return False


def ask_for_tiles() -> None:
    """Ask Linux for the tiles of AMX, before a driver starts threads."""
    _arch_prctl(_REQUEST, _TILES)


def has_tiles() -> bool:
    """Whether this process may use the tiles of AMX."""
    allowed = ctypes.c_uint64()
    return _arch_prctl(_GET, ctypes.byref(allowed)) and bool(allowed.value >> _TILES & 1)


def generic_target(device_version: str) -> str:
    """The generic processor that PoCL compiles for; "" if it knows the real one."""
    stated = _HOST_STRING.search(device_version)
    return stated[1] if stated and stated[1].lower() in _GENERIC else ""


def target_warning(platform_version: str, device_version: str) -> str:
    """A warning if PoCL compiles for a generic processor; else ""."""
    target = generic_target(device_version)
    if not target:
        return ""
    pocl = re.search(r"pocl\s+([^\s,]+)", platform_version, re.IGNORECASE)
    llvm = re.search(r"LLVM\s+([\d.]+)", platform_version)
    name = f"PoCL {pocl[1]}" if pocl else "this driver"
    age = f" (its LLVM {llvm[1]} does not know this one)" if llvm else ""
    return (
        f"{name} compiles for {target} processors{age}, so its figures are not the hardware's; a driver that "
        f"knows it comes with: {install_command()}"
    )
