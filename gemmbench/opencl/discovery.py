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
from gemmbench.model.dtypes import DEVICE_DTYPES, DTYPES
from gemmbench.opencl import drivers

_TYPES = (  # an OpenCL device type is a set of bits
    (cl.device_type.GPU, "gpu"),
    (cl.device_type.CPU, "cpu"),
    (cl.device_type.ACCELERATOR, "accelerator"),
)
_LEAST_ALLOC, _LEAST_LOCAL = 128 << 20, 32 << 10  # bytes, of a device with the full profile
_LEAST_IMAGE = 8192  # pixels of a side, of such a device
_SUB_GROUP_SIZES_INTEL = 0x4108  # a question that cl_intel_required_subgroup_size adds
_UUID_KHR, _UUID_BYTES = 0x106A, 16  # one of cl_khr_device_uuid
_PCI_BUS_INFO_KHR, _PCI_BYTES = 0x410F, 16  # four numbers, one of cl_khr_pci_bus_info
_BOARD_NAME_AMD = 0x4038
_NVIDIA_UUID = {"cl_khr_device_uuid", "cl_nv_device_attribute_query"}  # others' may name a model, or a slot


def devices(registered: drivers.Registered | None = None) -> tuple[DeviceFacts, ...]:
    """The devices of every platform, in the loader's order; none if there is no driver.

    If a driver answers a question wrongly or not at all, only that field is unknown. `registered` is the
    result of `drivers.register`. By default it is called here, which must be before the first use of the
    loader.
    """
    registered = registered or drivers.register()
    facts: list[DeviceFacts] = []
    platforms = [*_platforms()]
    keys = ("NAME", "VENDOR", "VERSION")
    texts = [" ".join(_text(platform, cl.platform_info, key) for key in keys) for _, platform in platforms]
    matching = registered.drivers_of(texts)
    for (platform_index, platform), driver in zip(platforms, matching, strict=True):
        library, origin = (driver.library, driver.origin) if driver else ("", "system")
        for device_index, device in enumerate(_devices_of(platform)):
            position = (len(facts), platform_index, device_index)
            facts.append(_facts(position, platform, device, (library, origin), registered.warnings))
    return tuple(facts)


def handle(facts: DeviceFacts) -> Any:
    """The pyopencl device that facts describe, which may come from another process or a saved run.

    A device matches by platform name, name and driver. The one at the same position is preferred. Otherwise
    the index within the platform decides. Raises `LookupError` if none matches.
    """
    wanted = (facts.platform, facts.name, facts.driver)
    fitting = []
    for platform_index, platform in _platforms():
        name = _text(platform, cl.platform_info, "NAME")
        for device_index, device in enumerate(_devices_of(platform)):
            if (name, _name(device), _text(device, cl.device_info, "DRIVER_VERSION")) == wanted:
                if (platform_index, device_index) == (facts.platform_index, facts.device_index):
                    return device
                fitting.append(device)
    if not fitting:
        raise LookupError(f"the device {facts.title} is gone")
    return fitting[min(facts.device_index, len(fitting) - 1)]


def _platforms() -> Iterator[tuple[int, Any]]:
    """The platforms with their index, each driver once; none if the loader finds no driver."""
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


def _ask(thing: Any, keys: type, name: str, default: Any) -> Any:
    """One property; the default if the driver, or this version of pyopencl, does not know it."""
    try:
        value = thing.get_info(getattr(keys, name))
        return value if default is None else type(default)(value)
    except Exception:  # drivers and the binding raise anything here, undecodable text included
        return default


def _text(thing: Any, keys: type, name: str) -> str:
    return str(_ask(thing, keys, name, "")).strip("\0 ")


def _facts(
    position: tuple[int, int, int], platform: Any, device: Any, source: tuple[str, str],
    warnings: tuple[str, ...],
) -> DeviceFacts:  # fmt: skip
    """A device's facts. `position` is its index, its platform's, and its index within the platform.

    `source` is the driver's library and origin. Values that the driver does not report become the minimum
    that OpenCL requires. Caches and cores of CPUs come from the system.
    """

    def of_platform(name: str) -> str:
        return _text(platform, cl.platform_info, name)

    def text(name: str) -> str:
        return _text(device, cl.device_info, name)

    def number(name: str, least: int = 0) -> int:
        """A property; if it is 0 or missing, `least`."""
        return int(_ask(device, cl.device_info, name, 0)) or least

    bits = number("TYPE")
    kind = next((name for bit, name in _TYPES if bits & bit), "custom")
    extensions = tuple(text("EXTENSIONS").split())
    images = bool(number("IMAGE_SUPPORT"))
    image2d_max = number("IMAGE2D_MAX_WIDTH", _LEAST_IMAGE), number("IMAGE2D_MAX_HEIGHT", _LEAST_IMAGE)
    sizes = _ask(device, cl.device_info, "MAX_WORK_ITEM_SIZES", None) or ()
    cores = len(usable_cores() or ()) if kind == "cpu" else 1
    warning = drivers.target_warning(of_platform("VERSION"), text("VERSION")) if kind == "cpu" else ""
    return DeviceFacts(
        index=position[0],
        platform_index=position[1],
        device_index=position[2],
        platform=of_platform("NAME"),
        vendor=of_platform("VENDOR"),
        version=of_platform("VERSION"),
        name=_name(device),
        device_version=text("VERSION"),
        driver=text("DRIVER_VERSION"),
        type=kind,
        compute_units=number("MAX_COMPUTE_UNITS", cores or 1),
        clock_mhz=number("MAX_CLOCK_FREQUENCY"),
        global_mem_bytes=number("GLOBAL_MEM_SIZE", number("MAX_MEM_ALLOC_SIZE", _LEAST_ALLOC)),
        max_alloc_bytes=number("MAX_MEM_ALLOC_SIZE", _LEAST_ALLOC),
        local_mem_bytes=number("LOCAL_MEM_SIZE", _LEAST_LOCAL),
        # Drivers for a CPU claim local memory of its own, and give a piece of the ordinary one.
        local_mem_emulated=kind == "cpu" or number("LOCAL_MEM_TYPE") != cl.device_local_mem_type.LOCAL,
        cache_bytes=number("GLOBAL_MEM_CACHE_SIZE"),
        max_work_group_size=number("MAX_WORK_GROUP_SIZE", 1),
        max_work_item_sizes=tuple(int(size) or 1 for size in sizes) or (1, 1, 1),
        timer_resolution_ns=number("PROFILING_TIMER_RESOLUTION", 1),
        unified_memory=kind == "cpu" or bool(number("HOST_UNIFIED_MEMORY")),
        images=images,
        image2d_max=image2d_max if images else (0, 0),
        dtypes=tuple(
            name
            for name, row in ((name, DTYPES[name]) for name in DEVICE_DTYPES)
            if not row.extension
            or row.extension in extensions
            or (row.extension == "cl_khr_fp64" and number("DOUBLE_FP_CONFIG"))  # core since OpenCL 1.2
        ),
        vector_widths={name: number(f"NATIVE_VECTOR_WIDTH_{name.upper()}") for name in DEVICE_DTYPES},
        extensions=extensions,
        library=source[0],
        origin=source[1],
        warnings=(*((warning,) if warning else ()), *warnings),
        pci=_pci(device, extensions),
        last_level_cache_bytes=last_level_cache_bytes() if kind == "cpu" else 0,
        data_caches=data_caches() if kind == "cpu" else (),
        processor=host_platform.machine() if kind == "cpu" else "",
        compute_capability=(number("COMPUTE_CAPABILITY_MAJOR_NV"), number("COMPUTE_CAPABILITY_MINOR_NV")),
        sub_group_sizes=_sub_group_sizes(device) if "cl_intel_required_subgroup_size" in extensions else (),
        chip=_chip(device) if set(extensions) >= _NVIDIA_UUID else "",
    )


def _name(device: Any) -> str:
    """The device's name, after its board's name if AMD's driver reports it: ``Radeon ... (gfx1100)``."""
    name, extensions = (_text(device, cl.device_info, key) for key in ("NAME", "EXTENSIONS"))
    answer = _asked(device, _BOARD_NAME_AMD) if "cl_amd_device_attribute_query" in extensions.split() else b""
    board = answer.decode("utf-8", "replace").strip("\0 ")
    return f"{board} ({name})" if board and board != name else name


def _sub_group_sizes(device: Any) -> tuple[int, ...]:
    """The sub-group sizes that a kernel may require; none if the driver does not report them."""
    sizes = _asked(device, _SUB_GROUP_SIZES_INTEL)
    return tuple((ctypes.c_size_t * (len(sizes) // ctypes.sizeof(ctypes.c_size_t))).from_buffer_copy(sizes))


def _chip(device: Any) -> str:
    """Eight hex digits that identify the chip but hide its UUID; "" if the driver reports none."""
    uuid = _asked(device, _UUID_KHR)
    return hashlib.sha256(uuid).hexdigest()[:8] if len(uuid) == _UUID_BYTES and any(uuid) else ""


def c_function(name: str) -> Any:
    """A function of OpenCL's C interface; None where a library's symbols are its own, as on Windows."""
    try:
        return getattr(ctypes.CDLL(cl._cl.__file__), name)
    except (OSError, AttributeError):
        return None


def _asked(device: Any, question: int) -> bytes:
    """The raw answer to a device query that pyopencl does not know; empty if it fails."""
    ask, answer, length = c_function("clGetDeviceInfo"), (ctypes.c_ubyte * 128)(), ctypes.c_size_t()
    handle, room = ctypes.c_void_p(device.int_ptr), ctypes.c_size_t(ctypes.sizeof(answer))
    fails = not ask or ask(handle, question, room, answer, ctypes.byref(length))
    return b"" if fails else bytes(answer)[: length.value]


def _pci(device: Any, extensions: Collection[str]) -> str:
    """The PCI slot as Linux and NVML write it, ``0000:17:00.0``; "" if the driver does not report it.

    From cl_khr_pci_bus_info, else from NVIDIA's attributes. NVIDIA's slot is the number of the device.
    """
    if "cl_khr_pci_bus_info" in extensions and len(answer := _asked(device, _PCI_BUS_INFO_KHR)) == _PCI_BYTES:
        domain, bus, slot, function = struct.unpack("4I", answer)
        return f"{domain:04x}:{bus:02x}:{slot:02x}.{function:x}"
    if "cl_nv_device_attribute_query" not in extensions:
        return ""
    domain, bus, slot = (
        int(_ask(device, cl.device_info, name, -1))
        for name in ("PCI_DOMAIN_ID_NV", "PCI_BUS_ID_NV", "PCI_SLOT_ID_NV")
    )
    if bus < 0 or slot < 0:
        return ""
    return f"{max(domain, 0):04x}:{bus:02x}:{slot:02x}.0"


def data_caches(folder: Path = Path("/sys/devices/system/cpu/cpu0/cache")) -> tuple[int, ...]:
    """Bytes of the data caches of this machine's first core, by level; empty if Linux reports none."""
    sizes = {}
    for entry in folder.glob("index*"):
        with contextlib.suppress(OSError, ValueError):
            kind, level, size = ((entry / name).read_text().strip() for name in ("type", "level", "size"))
            if kind != "Instruction":
                sizes[int(level)] = int(size.removesuffix("K")) << 10
    return tuple(sizes[level] for level in sorted(sizes))


def last_level_cache_bytes(
    folder: Path = Path("/sys/devices/system/cpu"), cores: Collection[int] | None = None
) -> int:
    """Bytes of all last-level caches that this process can use, together; 0 if unknown.

    A CPU may have several, 16 of 32 MiB on an EPYC of 128 cores. `cores` replaces the cores that the system
    lets this process use.
    """
    cores = usable_cores() if cores is None else cores
    caches: dict[tuple[int, str], int] = {}
    for entry in folder.glob("cpu[0-9]*/cache/index*"):
        with contextlib.suppress(OSError, ValueError):
            level, shared, size = (
                (entry / name).read_text().strip() for name in ("level", "shared_cpu_list", "size")
            )
            if cores is None or int(entry.parts[-3].removeprefix("cpu")) in cores:
                caches[int(level), shared] = int(size.removesuffix("K")) << 10
    last = max((level for level, _ in caches), default=0)
    return sum(size for (level, _), size in caches.items() if level == last)
