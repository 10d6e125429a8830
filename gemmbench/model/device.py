"""gemmbench.model.device."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from gemmbench.model.units import MIB

# A word of a platform's name or version, and the maker's key in presets; the first that is there counts.
_MAKERS: Mapping[str, str] = {
    "pocl": "pocl",
    "intel": "intel",
    "nvidia": "nvidia",
    "amd": "amd",
    "qualcomm": "qualcomm",
    "arm platform": "arm",
    "apple": "apple",
}


@dataclass(frozen=True)
class DeviceFacts:
    """One OpenCL device, as the driver describes it."""

    index: int  # in gemmbench's own list
    platform_index: int
    device_index: int  # within its platform
    platform: str
    vendor: str
    version: str  # the platform's OpenCL version string
    name: str
    device_version: str
    driver: str
    type: str  # cpu, gpu, accelerator, custom
    compute_units: int
    clock_mhz: int  # advisory: some drivers say 0; it never scales a result
    global_mem_bytes: int
    max_alloc_bytes: int
    local_mem_bytes: int
    local_mem_emulated: bool
    cache_bytes: int
    max_work_group_size: int
    max_work_item_sizes: tuple[int, ...]
    timer_resolution_ns: int
    unified_memory: bool
    images: bool
    image2d_max: tuple[int, int]
    dtypes: tuple[str, ...]  # of gemmbench's data types, those the device takes
    vector_widths: dict[str, int]  # native width in elements, by data type
    extensions: tuple[str, ...]
    origin: str  # where the driver was found: "system", "from this environment: intel-opencl-rt 2026.2.0"
    library: str  # the driver's shared library or .icd file, "" if not known
    warnings: tuple[str, ...] = ()
    pci: str = ""  # where it sits, where the driver tells: "0000:17:00.0"
    last_level_cache_bytes: int = 0  # of a CPU, as its system tells; 0 if not known
    compute_capability: tuple[int, int] = (0, 0)  # of an NVIDIA device
    sub_group_sizes: tuple[int, ...] = ()  # that a kernel may require; none where the driver does not tell

    data_caches: tuple[int, ...] = ()  # bytes of a CPU core's, by level, as its system tells
    processor: str = ""  # of a CPU, as its system calls it: "x86_64", "aarch64"

    @property
    def address(self) -> str:
        """``platform:device``, as ``--device`` takes it."""
        return f"{self.platform_index}:{self.device_index}"

    @property
    def vector_bits(self) -> int:
        """Width of its vector registers; 0 if the driver does not tell."""
        return 32 * self.vector_widths.get("float", 0)

    @property
    def family(self) -> str:
        """Type and driver, the key of presets: ``cpu-intel``, ``gpu-nvidia``, ``cpu-other``."""
        words = f"{self.platform} {self.version}".lower()
        maker = next((name for word, name in _MAKERS.items() if word in words), "other")
        return f"{self.type}-{maker}"

    @property
    def title(self) -> str:
        """Name and driver in one line, for headings and charts."""
        return f"{' '.join(self.name.split())} | {driver_name(self)}"


def driver_name(device: DeviceFacts) -> str:
    """The driver for people: ``Intel OpenCL 2026.22``, ``PoCL 3.1+debian``."""
    if "pocl" in device.version.lower():
        return f"PoCL {device.driver}"
    platform = " ".join(device.platform.replace("(R)", "").replace("(TM)", "").split())
    return device.driver if device.driver.startswith(platform) else f"{platform} {device.driver}"


BUSY_CORES = 0.3  # that other programs use: from here on rates are low and noisy


@dataclass(frozen=True)
class HostFacts:
    """The machine around the device."""

    cpu: str
    cores: int
    memory_bytes: int
    system: str
    python: str
    numpy: str
    blas: str  # name, version and threads of numpy's BLAS
    busy: float = 0.0  # cores that other programs used just before the run


HOST = -1
"""The position of the host where a device's is asked for."""


def broad_type(device: DeviceFacts) -> str:
    """``cpu`` or ``gpu``, of which the second stands for accelerators, too."""
    return "cpu" if device.type == "cpu" else "gpu"


_LARGEST_CACHE: Mapping[str, int] = {"cpu": 64 * MIB, "gpu": 256 * MIB}


def is_cache_assumed(device: DeviceFacts) -> bool:
    """Whether `last_level_cache` is no more than an assumption for the device's type."""
    return not device.last_level_cache_bytes and device.cache_bytes < last_level_cache(device)


def last_level_cache(device: DeviceFacts) -> int:
    """The bytes of cache to stay clear of: what is known, or the most that such a device may have."""
    return max(device.cache_bytes, device.last_level_cache_bytes or _LARGEST_CACHE[broad_type(device)])
