"""OpenCL devices, the host, and their state during a measurement."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from gemmbench.model.units import MIB, clean

# In a platform's name or version; the first that is there is the maker's key in presets, up to a space.
_MAKERS = ("pocl", "intel", "nvidia", "amd", "qualcomm", "arm platform", "apple")
_LARGEST_CACHE: Mapping[str, int] = {"cpu": 64 * MIB, "gpu": 256 * MIB}


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
    pci: str = ""  # where it sits, if the driver reports it: "0000:17:00.0"
    last_level_cache_bytes: int = 0  # of a CPU, as the system reports it; 0 if not known
    compute_capability: tuple[int, int] = (0, 0)  # of an NVIDIA device
    sub_group_sizes: tuple[int, ...] = ()  # that a kernel may require; none if the driver does not report it
    data_caches: tuple[int, ...] = ()  # bytes of a CPU core's, by level, as the system reports them
    processor: str = ""  # of a CPU, as its system calls it: "x86_64", "aarch64"
    units: tuple[str, ...] = ()  # of a CPU, for short types, as Linux names them: "avx512_vnni"
    chip: str = ""  # which of its model a GPU is: a hash of its UUID, if known
    libraries: tuple[str, ...] = ()  # installed BLAS libraries for it: "mkl", "cublas", "clblast"

    def __repr__(self) -> str:
        return f"DeviceFacts({self.index}, {self.title!r}, {self.type!r}, {self.compute_units} compute units)"

    @property
    def address(self) -> str:
        """``platform:device``, as ``--device`` takes it."""
        return f"{self.platform_index}:{self.device_index}"

    @property
    def vector_bits(self) -> int:
        return 32 * self.vector_widths.get("float", 0)

    @property
    def largest_buffer_bytes(self) -> int:
        """NVIDIA's driver exceeds the limit that it reports."""
        return self.global_mem_bytes if self.family == "gpu-nvidia" else self.max_alloc_bytes

    @property
    def family(self) -> str:
        """The key of presets: ``cpu-intel``, ``gpu-nvidia``, ``cpu-other``."""
        words = f"{self.platform} {self.version}".lower()
        maker = next((maker for maker in _MAKERS if maker in words), "other").split()[0]
        return f"{self.type}-{maker}"

    @property
    def label(self) -> str:
        return clean(self.name) or clean(self.vendor) or "unnamed device"

    @property
    def title(self) -> str:
        return f"{self.label} | {driver_name(self)}"


def driver_name(device: DeviceFacts) -> str:
    """The driver for people: ``Intel OpenCL 2026.22``, ``PoCL 3.1+debian``."""
    version = clean(device.driver)
    platform = clean(device.platform.replace("(R)", "").replace("(TM)", ""))
    platform = "PoCL" if "pocl" in device.version.lower() else platform
    return f"{'' if version.startswith(platform) else platform} {version}".strip() or "unnamed driver"


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
    environment: dict[str, str] = field(default_factory=dict)  # variables that change what is measured
    warnings: tuple[str, ...] = ()  # why its BLAS is slower than the processor allows

    @property
    def label(self) -> str:
        return clean(self.cpu) or "unnamed processor"


DEVICE_TYPES = ("gpu", "accelerator", "cpu")  # in the order of the default; what is not listed comes last
HOST = -1  # the position of the host where a device's is asked for


def usable_cores() -> frozenset[int] | None:
    """Processors that this process may use; None if unknown."""
    try:
        return frozenset(os.sched_getaffinity(0))
    except (AttributeError, OSError):
        return None


def broad_type(device: DeviceFacts) -> str:
    """``cpu`` for CPUs, ``gpu`` for everything else."""
    return "cpu" if device.type == "cpu" else "gpu"


def is_cache_assumed(device: DeviceFacts) -> bool:
    """Whether the driver reports less than `last_level_cache`, or nothing."""
    return not device.last_level_cache_bytes and device.cache_bytes < last_level_cache(device)


def last_level_cache(device: DeviceFacts) -> int:
    """Bytes of the last-level cache. If unknown, the most that such a device may have."""
    return max(device.cache_bytes, device.last_level_cache_bytes or _LARGEST_CACHE[broad_type(device)])


POWER, THERMAL, HARDWARE = "power", "thermal", "hardware"  # limits of a clock; the last is the board's own
INSTANT, MEAN = "instant", "mean"  # a reading of power: of the moment, or over the last second


@dataclass(frozen=True)
class Reading:
    """What a device said at one moment; None where it does not say."""

    at_s: float  # of `time.perf_counter`
    clock_mhz: float | None = None
    max_mhz: float | None = None  # that the clock can have
    power_w: float | None = None
    celsius: float | None = None
    limits: tuple[str, ...] = ()
    power: str = ""  # what `power_w` is: INSTANT or MEAN


@dataclass(frozen=True)
class Readings:
    """What was read while the batches of one window ran.

    A tuple has a value for each batch, in their order. It is empty if the device reports no such value.
    """

    begin_s: tuple[float, ...] = ()  # of the batches, by `time.perf_counter`
    clock_mhz: tuple[float | None, ...] = ()
    power_w: tuple[float | None, ...] = ()
    celsius: tuple[float | None, ...] = ()
    limits: tuple[str, ...] = ()  # "power thermal"; "" where nothing limited the clock
    window_s: float = 0.0  # from the first batch's begin to the last one's end
    other_cores: float | None = None  # that processes of others used; None if unknown
    steal_cores: float | None = None  # that the hypervisor gave to others


@dataclass(frozen=True)
class Conditions:
    """The state of the device and its host while a row was measured."""

    warm_s: float = 0.0  # warm-up with the row's own work before the samples
    power_limited: bool = False  # the samples were taken under a power or thermal limit
    control_s: tuple[float, ...] = ()  # for 10^9 operations of a control burst on a CPU, before and after
    max_mhz: float | None = None  # that the device's clock can have
    power: str = ""  # what the readings of power are: INSTANT or MEAN; "" if none, or not known
    cores: int = 0  # of the host that this process may use; 0 where not known
    windows: dict[str, Readings] = field(default_factory=dict)  # by the clock that timed the batches


def joined_conditions(parts: Sequence[Conditions | None]) -> Conditions | None:
    """The conditions of a row from those of its windows; None if nothing is known."""
    known = [part for part in parts if part is not None]
    if not known:
        return None
    windows = {clock: readings for part in known for clock, readings in part.windows.items()}
    return replace(known[0], windows=windows, power_limited=any(part.power_limited for part in known))
