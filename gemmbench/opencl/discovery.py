"""Every OpenCL platform and device of this process, as plain facts."""

from __future__ import annotations

import contextlib
import ctypes
import hashlib
import platform as host_platform
import struct
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Any

import pyopencl as cl

from gemmbench.model.device import DeviceFacts, usable_cores
from gemmbench.model.dtypes import CPU_UNITS, DEVICE_DTYPES, DTYPES
from gemmbench.opencl import drivers

_TYPES = (  # an OpenCL device type is a set of bits
    (cl.device_type.GPU, "gpu"),
    (cl.device_type.CPU, "cpu"),
    (cl.device_type.ACCELERATOR, "accelerator"),
)
_LEAST_ALLOC, _LEAST_LOCAL = 128 << 20, 32 << 10  # bytes, of a device with the full profile
_LEAST_IMAGE = 8192  # pixels of a side, of such a device
_HALF_ARITHMETIC = (5, 3)  # the first compute capability that has it
_SUB_GROUP_SIZES_INTEL = 0x4108  # a question that cl_intel_required_subgroup_size adds
_UUID_KHR, _UUID_BYTES = 0x106A, 16  # one of cl_khr_device_uuid
_PCI_BUS_INFO_KHR, _PCI_BYTES = 0x410F, 16  # four numbers, one of cl_khr_pci_bus_info
_NVIDIA_UUID = {"cl_khr_device_uuid", "cl_nv_device_attribute_query"}  # others' may name a model, or a slot


def list_devices(registered: drivers.Registered | None = None) -> tuple[DeviceFacts, ...]:
    """The devices of every platform, in the loader's order; none if there is no driver.

    A wrong or missing answer leaves only that field unknown. The environment that `drivers.register` changed
    is restored.
    """
    registered = registered or drivers.register()
    facts: list[DeviceFacts] = []
    platforms, keys = [*_platforms()], ("NAME", "VENDOR", "VERSION")
    names = [" ".join(_text(platform, key) for key in keys) for _, platform in platforms]
    matching = registered.drivers_of(names)
    for (platform_index, platform), driver in zip(platforms, matching, strict=True):
        source = driver or drivers.Driver("", "system")
        for device_index, device in enumerate(_devices_of(platform)):
            position = len(facts), platform_index, device_index
            facts.append(_facts(*position, platform, device, source, registered.warnings))
    return tuple(facts)


def handle(facts: DeviceFacts) -> Any:
    """The pyopencl device that facts of any process or saved run describe. `LookupError` if there is none.

    It matches by platform, name and driver, preferably at the same position.
    """
    wanted = (facts.platform, facts.name, facts.driver)
    fitting = []
    for platform_index, platform in _platforms():
        name = _text(platform, "NAME")
        for device_index, device in enumerate(_devices_of(platform)):
            if (name, _name(device), _text(device, "DRIVER_VERSION")) == wanted:
                if (platform_index, device_index) == (facts.platform_index, facts.device_index):
                    return device
                fitting.append(device)
    if not fitting:
        raise LookupError(f"the device {facts.title} is gone")
    return fitting[min(facts.device_index, len(fitting) - 1)]


def _platforms() -> Iterator[tuple[int, Any]]:
    """Yield each platform once, with its index. Drop what `register` prepared."""
    try:
        platforms = cl.get_platforms()
    except cl.Error:  # the loader found no driver at all
        return
    finally:
        drivers.release()  # the loader has read it by now
    seen: set[int] = set()
    for index, platform in enumerate(platforms):
        if platform.int_ptr not in seen:
            seen.add(platform.int_ptr)
            yield index, platform


def _devices_of(platform: Any) -> list[Any]:
    try:
        return list(platform.get_devices())
    except cl.Error:  # a driver without its device: NVIDIA's on a machine without a GPU
        return []


def _property(thing: Any, name: str, default: Any = None) -> Any:
    keys = cl.platform_info if isinstance(thing, cl.Platform) else cl.device_info
    try:
        return thing.get_info(getattr(keys, name))
    except UnicodeDecodeError as error:  # a name in Latin-1, for example
        return error.object.decode("utf-8", "replace")
    except Exception:  # drivers and the binding raise anything here
        return default


def _text(thing: Any, name: str) -> str:
    return str(_property(thing, name, "")).strip("\0 ")


def _number(device: Any, name: str, default: int = 0) -> int:
    try:
        return int(_property(device, name, 0)) or default
    except (TypeError, ValueError):
        return default


def _facts(
    index: int, platform_index: int, device_index: int, platform: Any, device: Any,
    driver: drivers.Driver, warnings: tuple[str, ...],
) -> DeviceFacts:  # fmt: skip
    extensions = tuple(_text(device, "EXTENSIONS").split())
    return DeviceFacts(
        index=index,
        platform_index=platform_index,
        device_index=device_index,
        platform=_text(platform, "NAME"),
        vendor=_text(platform, "VENDOR"),
        version=_text(platform, "VERSION"),
        name=_name(device),
        device_version=_text(device, "VERSION"),
        driver=_text(device, "DRIVER_VERSION"),
        library=driver.library,
        origin=driver.origin,
        clock_mhz=_number(device, "MAX_CLOCK_FREQUENCY"),
        cache_bytes=_number(device, "GLOBAL_MEM_CACHE_SIZE"),
        timer_resolution_ns=_number(device, "PROFILING_TIMER_RESOLUTION", 1),
        vector_widths={
            name: _number(device, f"NATIVE_VECTOR_WIDTH_{name.upper()}") for name in DEVICE_DTYPES
        },
        extensions=extensions,
        pci=_pci(device, extensions),
        compute_capability=_compute_capability(device),
        sub_group_sizes=_sub_group_sizes(device) if "cl_intel_required_subgroup_size" in extensions else (),
        chip=_chip(device) if set(extensions) >= _NVIDIA_UUID else "",
        dtypes=tuple(name for name in DEVICE_DTYPES if _has_dtype(device, name, extensions)),
        **_limits(device),
        **_kind_of_processor(device, platform, warnings),
    )


def _limits(device: Any) -> dict[str, Any]:
    most_bytes = _number(device, "MAX_MEM_ALLOC_SIZE", _LEAST_ALLOC)
    has_images = bool(_number(device, "IMAGE_SUPPORT"))
    sides = [_number(device, f"IMAGE2D_MAX_{side}", _LEAST_IMAGE) for side in ("WIDTH", "HEIGHT")]
    sizes = _property(device, "MAX_WORK_ITEM_SIZES") or ()
    return {
        "global_mem_bytes": _number(device, "GLOBAL_MEM_SIZE", most_bytes),
        "max_alloc_bytes": most_bytes,
        "local_mem_bytes": _number(device, "LOCAL_MEM_SIZE", _LEAST_LOCAL),
        "max_work_group_size": _number(device, "MAX_WORK_GROUP_SIZE", 1),
        "max_work_item_sizes": tuple(int(size) or 1 for size in sizes) or (1, 1, 1),
        "images": has_images,
        "image2d_max": tuple(sides) if has_images else (0, 0),
    }


def _kind_of_processor(device: Any, platform: Any, warnings: tuple[str, ...]) -> dict[str, Any]:
    """The type, and the fields that depend on it: units, memory, caches, warnings."""
    bits = _number(device, "TYPE")
    kind = next((name for bit, name in _TYPES if bits & bit), "custom")
    is_cpu = kind == "cpu"
    cores = len(usable_cores() or ()) if is_cpu else 1
    limits = [cores, *drivers.thread_limits(_text(platform, "NAME"))] if is_cpu and cores else []
    warning = drivers.target_warning(_text(platform, "VERSION"), _text(device, "VERSION")) if is_cpu else ""
    return {
        "type": kind,
        "compute_units": min([_number(device, "MAX_COMPUTE_UNITS", cores or 1), *limits]),
        # Drivers for a CPU claim local memory of its own, and give a piece of the ordinary one.
        "local_mem_emulated": is_cpu or _number(device, "LOCAL_MEM_TYPE") != cl.device_local_mem_type.LOCAL,
        "unified_memory": is_cpu or bool(_number(device, "HOST_UNIFIED_MEMORY")),
        "warnings": (*((warning,) if warning else ()), *warnings),
        "last_level_cache_bytes": last_level_cache_bytes() if is_cpu else 0,
        "data_caches": data_caches() if is_cpu else (),
        "processor": host_platform.machine() if is_cpu else "",
        "units": cpu_units() if is_cpu else (),
    }


def _has_dtype(device: Any, name: str, extensions: Collection[str]) -> bool:
    """Whether a device computes with a type. NVIDIA's driver does not list half, but compiles it."""
    needed = DTYPES[name].extension
    is_core = needed == "cl_khr_fp64" and bool(_number(device, "DOUBLE_FP_CONFIG"))
    is_unlisted = name == "half" and _compute_capability(device) >= _HALF_ARITHMETIC
    return not needed or needed in extensions or is_core or is_unlisted


def _compute_capability(device: Any) -> tuple[int, int]:
    major, minor = (_number(device, f"COMPUTE_CAPABILITY_{part}_NV") for part in ("MAJOR", "MINOR"))
    return major, minor


def _name(device: Any) -> str:
    """The device's name, after its board's name if AMD's driver reports it."""
    name, extensions = _text(device, "NAME"), _text(device, "EXTENSIONS").split()
    board = _text(device, "BOARD_NAME_AMD") if "cl_amd_device_attribute_query" in extensions else ""
    return f"{board} ({name})" if board and board != name else name


def _sub_group_sizes(device: Any) -> tuple[int, ...]:
    sizes = _query(device, _SUB_GROUP_SIZES_INTEL)
    return tuple((ctypes.c_size_t * (len(sizes) // ctypes.sizeof(ctypes.c_size_t))).from_buffer_copy(sizes))


def _chip(device: Any) -> str:
    """Eight hex digits that identify the chip but hide its UUID; or ""."""
    uuid = _query(device, _UUID_KHR)
    return hashlib.sha256(uuid).hexdigest()[:8] if len(uuid) == _UUID_BYTES and any(uuid) else ""


def c_function(name: str) -> Any:
    """A function of OpenCL's C interface; None where a library's symbols are its own, as on Windows."""
    try:
        return getattr(ctypes.CDLL(cl._cl.__file__), name)
    except (OSError, AttributeError):
        return None


def _query(device: Any, question: int) -> bytes:
    """The raw answer to a query that pyopencl does not know."""
    ask, answer, length = c_function("clGetDeviceInfo"), (ctypes.c_ubyte * 128)(), ctypes.c_size_t()
    handle, room = ctypes.c_void_p(device.int_ptr), ctypes.c_size_t(ctypes.sizeof(answer))
    fails = not ask or ask(handle, question, room, answer, ctypes.byref(length))
    return b"" if fails else bytes(answer)[: length.value]


def _pci(device: Any, extensions: Collection[str]) -> str:
    """The PCI slot as Linux and NVML write it, ``0000:17:00.0``; "" if unknown."""
    if "cl_khr_pci_bus_info" in extensions and len(answer := _query(device, _PCI_BUS_INFO_KHR)) == _PCI_BYTES:
        domain, bus, slot, function = struct.unpack("4I", answer)
        return f"{domain:04x}:{bus:02x}:{slot:02x}.{function:x}"
    if "cl_nv_device_attribute_query" not in extensions:
        return ""
    keys = ("PCI_DOMAIN_ID_NV", "PCI_BUS_ID_NV", "PCI_SLOT_ID_NV")
    domain, bus, slot = (int(_property(device, key, -1)) for key in keys)
    return f"{max(domain, 0):04x}:{bus:02x}:{slot:02x}.0" if min(bus, slot) >= 0 else ""


def data_caches(folder: Path = Path("/sys/devices/system/cpu/cpu0/cache")) -> tuple[int, ...]:
    """Bytes of the data caches of the first core, by level; empty if Linux reports none."""
    sizes = {}
    for entry in folder.glob("index*"):
        with contextlib.suppress(OSError, ValueError):
            kind, level, size = ((entry / name).read_text().strip() for name in ("type", "level", "size"))
            if kind != "Instruction":
                sizes[int(level)] = int(size.removesuffix("K")) << 10
    return tuple(sizes[level] for level in sorted(sizes))


def cpu_units(cpuinfo: Path = Path("/proc/cpuinfo")) -> tuple[str, ...]:
    """The units for short types of the first core, such as ``avx512_vnni``; AMX's only if allowed."""
    with contextlib.suppress(OSError):
        for line in cpuinfo.read_text(encoding="utf-8", errors="replace").splitlines():
            if line.startswith("flags"):
                units = sorted({*line.split()} & {*CPU_UNITS})
                return tuple(unit for unit in units if not unit.startswith("amx") or drivers.has_tiles())
    return ()


def last_level_cache_bytes(
    folder: Path = Path("/sys/devices/system/cpu"), cores: Collection[int] | None = None
) -> int:
    """Bytes of all last-level caches that this process (or `cores`) can use; 0 if unknown."""
    cores = usable_cores() if cores is None else cores
    caches: dict[tuple[int, str], int] = {}
    names = ("level", "shared_cpu_list", "size")
    for entry in folder.glob("cpu[0-9]*/cache/index*"):
        with contextlib.suppress(OSError, ValueError):
            level, shared, size = ((entry / name).read_text().strip() for name in names)
            if cores is None or int(entry.parts[-3].removeprefix("cpu")) in cores:
                caches[int(level), shared] = int(size.removesuffix("K")) << 10
    last = max((level for level, _ in caches), default=0)
    return sum(size for (level, _), size in caches.items() if level == last)
