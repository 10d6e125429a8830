"""Checks of drivers and devices: what is missing, what compiles for less, and what NVML tells of a board."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress

from gemmbench.doctor.host import has_smt, lost, offered_level
from gemmbench.doctor.machine import NEAR, NO_RATE, UNKNOWN, Finding, Machine, NotSeenError, counted, ranges
from gemmbench.measure.conditions import NvmlGauge
from gemmbench.measure.energy import is_nvidia
from gemmbench.model.device import HARDWARE, THERMAL, DeviceFacts
from gemmbench.model.units import clean, listed, number, percent, size
from gemmbench.opencl import drivers

# --- drivers ------------------------------------------------------------------------------------------------

_INTEL_TARGET = "CL_CONFIG_CPU_TARGET_ARCH"  # the processor that Intel's runtime compiles for
_UNIT_VARIABLES = (
    "POCL_MAX_PTHREAD_COUNT",
    "POCL_CPU_MAX_CU_COUNT",
    "DPCPP_CPU_NUM_CUS",
    "CL_CONFIG_CPU_TBB_NUM_WORKERS",
)


def driver_target(machine: Machine, device: DeviceFacts) -> Iterator[Finding]:
    """PoCL says what it compiles for; of Intel's runtime the environment and the vectors' width do."""
    offered = offered_level(machine)
    forced = machine.environ.get(_INTEL_TARGET, "") if device.family == "cpu-intel" else ""
    forced_level, stated = drivers.llvm_level(forced), drivers.target_of(device.device_version)
    command = drivers.install_command()
    if stated:
        processor, level = stated
        seen = f"CL_DEVICE_VERSION: {clean(device.device_version)}"
    elif forced_level and forced_level < offered:
        processor, level = forced, forced_level
        seen, command = (
            f"environment: {_INTEL_TARGET}={clean(forced)}",
            f"env -u {_INTEL_TARGET} gemmbench peak",
        )
    elif 0 < device.vector_bits < offered.bits:
        level = drivers.AVX2 if device.vector_bits >= drivers.AVX2.bits else drivers.SSE
        processor = f"{device.vector_bits}-bit vectors"
        seen = f"CL_DEVICE_NATIVE_VECTOR_WIDTH_FLOAT: {device.vector_widths.get('float')}"
    else:
        return
    if level >= offered:
        return
    yield Finding(
        f"the driver compiles for {clean(processor)}: {level.name} where this CPU offers {offered.name}",
        lost(level, offered, "this device's arithmetic"),
        (seen, f"/proc/cpuinfo: {offered.name}"),
        command,
    )


def driver_units(machine: Machine, device: DeviceFacts) -> Iterator[Finding]:
    """Fewer units than cores that it may use: an environment variable, as a rule."""
    allowed = machine.allowed
    cores = machine.cores(allowed) if has_smt(machine) else len(allowed)
    if device.compute_units >= cores:
        return
    given = {name: machine.environ[name] for name in _UNIT_VARIABLES if machine.environ.get(name)}
    yield Finding(
        f"the driver has {counted(device.compute_units, 'unit')}, and may use {counted(cores, 'core')}",
        f"up to {percent(1 - device.compute_units / cores)} of this device's arithmetic",
        (
            f"CL_DEVICE_MAX_COMPUTE_UNITS: {device.compute_units}",
            f"/proc/self/status: Cpus_allowed_list {ranges(allowed)}",
            *([f"environment: {listed(given)}"] if given else []),
        ),
        f"env {' '.join(f'-u {name}' for name in given)} gemmbench peak" if given else "",
        "" if given else "the driver decides; another may take them all",
    )


def types(machine: Machine, device: DeviceFacts) -> Iterator[Finding]:
    """Half and double of OpenCL C; of NVIDIA double alone, whose half is in PTX."""
    # NVIDIA's driver has no half for OpenCL C; gemmbench's kernels of half are written in its PTX.
    wanted = ("double",) if is_nvidia(device) else ("half", "double")
    missing = [name for name in wanted if name not in device.dtypes]
    if not missing:
        return
    other = next(
        (
            each
            for each in machine.devices
            if each.index != device.index and each.type == device.type and set(missing) <= set(each.dtypes)
        ),
        None,
    )
    on_cpu = device.type == "cpu" and device.family != "cpu-intel"
    command = f"gemmbench precision --device {other.index}" if other else ""
    yield Finding(
        f"the device has no {' and no '.join(missing)}",
        f"{NO_RATE}: rows of {', '.join(missing)} are unsupported",
        (f"CL_DEVICE_EXTENSIONS: no {' and no '.join(_EXTENSIONS[name] for name in missing)}",),
        command or (drivers.install_command() if on_cpu else ""),
        f"another driver here has {'it' if len(missing) == 1 else 'them'}"
        if other
        else "a driver that has more types"
        if on_cpu
        else "the device or its driver lacks it: nothing to switch on",
    )


_EXTENSIONS = {"half": "cl_khr_fp16", "double": "cl_khr_fp64"}

_VENDORS = {"0x10de": "nvidia", "0x1002": "amd", "0x8086": "intel"}  # of PCI
_TITLES = {"nvidia": "NVIDIA", "amd": "AMD", "intel": "Intel"}
_WORDS = {"nvidia": ("nvidia",), "amd": ("amd", "advanced micro devices"), "intel": ("intel",)}
_DISPLAY = "0x03"  # PCI's class of GPUs
_PASSED_ON = "in a container of Docker: docker run --gpus all"


def driver_missing(machine: Machine) -> Iterator[Finding]:
    """No device at all, or a GPU in PCI that no OpenCL device belongs to."""
    if machine.trouble:
        raise NotSeenError(machine.trouble)
    if not machine.devices:
        package = drivers.package_command("cpu", machine.system)
        yield Finding(
            "there is no OpenCL driver with a device",
            f"{NO_RATE}: nothing can be measured",
            ("clGetPlatformIDs: no device", *_listed_drivers(machine)),
            drivers.install_command(),
            f"or: {package}" if package and package != drivers.install_command() else "",
        )
    for maker, slots in _boards(machine).items():
        words = _WORDS[maker]
        if any(
            device.type == "gpu" and word in f"{device.vendor} {device.platform} {device.name}".lower()
            for device in machine.devices
            for word in words
        ):
            continue
        nodes = [path for path in machine.matching("dev/dri/renderD*") if not machine.may_use(path)]
        closed = maker != "nvidia" and bool(nodes)
        command = drivers.package_command(maker, machine.system)
        yield Finding(
            f"the {_TITLES[maker]} GPU has no OpenCL device",
            f"{NO_RATE}: it cannot be measured",
            (
                *(f"/{slot}/vendor: {machine.read(f'{slot}/vendor')}" for slot in slots[:2]),
                *(f"/{path}: this user may not use it" for path in nodes[:1] if closed),
            ),
            "sudo usermod -aG render $USER" if closed else command,
            "then log in again"
            if closed
            else _PASSED_ON
            if maker == "nvidia" and machine.in_container()
            else ""
            if command
            else "its OpenCL driver, by this system's package manager",
        )


def _boards(machine: Machine) -> dict[str, list[str]]:
    """The folders of the PCI slots with a GPU, by maker."""
    slots: dict[str, list[str]] = {}
    for slot in machine.matching("sys/bus/pci/devices/*"):
        maker = _VENDORS.get(machine.optional(f"{slot}/vendor"))
        if maker and machine.optional(f"{slot}/class").startswith(_DISPLAY):
            slots.setdefault(maker, []).append(slot)
    return slots


def _listed_drivers(machine: Machine) -> tuple[str, ...]:
    files = machine.matching("etc/OpenCL/vendors/*.icd")
    return tuple(f"/{path}: {machine.optional(path)}" for path in files) or (
        "/etc/OpenCL/vendors: no .icd file",
    )


# --- NVIDIA's boards ----------------------------------------------------------------------------------------

# Gbit/s of a lane by generation: transfers per second (PCI-SIG) times what the line code leaves of them.
_LANE = {
    1: 2.5 * 8 / 10,
    2: 5 * 8 / 10,
    3: 8 * 128 / 130,
    4: 16 * 128 / 130,
    5: 32 * 128 / 130,
    6: 64 * 242 / 256,
}


def _smi(machine: Machine, device: DeviceFacts, words: str) -> str:
    """The command of nvidia-smi for a device's board."""
    return f"sudo nvidia-smi -i {device.pci or 0} {words}"


def pcie(machine: Machine, device: DeviceFacts) -> Iterator[Finding]:
    """A device at rest lowers the generation of its link: it counts in performance state P0 only."""
    width = int(machine.ask(device, "nvmlDeviceGetCurrPcieLinkWidth"))
    generation = int(machine.ask(device, "nvmlDeviceGetCurrPcieLinkGeneration"))
    most_width = int(machine.ask(device, "nvmlDeviceGetMaxPcieLinkWidth"))
    most = int(machine.ask(device, "nvmlDeviceGetMaxPcieLinkGeneration"))
    with suppress(NotSeenError):  # what the board could have in another slot
        most = max(most, int(machine.ask(device, "nvmlDeviceGetGpuMaxPcieLinkGeneration")))
    rests = generation < most and int(machine.ask(device, "nvmlDeviceGetPerformanceState")) != 0
    used = most if rests else generation
    if used < most or width < most_width:
        known = used in _LANE and most in _LANE and most_width > 0
        share = width * _LANE[used] / (most_width * _LANE[most]) if known else 0.0
        yield Finding(
            f"the device is linked by PCIe {used}.0 x{width}, and could be by {most}.0 x{most_width}",
            f"{percent(1 - share) if known else UNKNOWN} of the rate of transfers; kernels do not feel it",
            (
                f"nvmlDeviceGetCurrPcieLinkGeneration: {generation} of {most}",
                f"nvmlDeviceGetCurrPcieLinkWidth: {width} of {most_width}",
            ),
            "sudo lspci -vv -s " + (device.pci or "SLOT"),
            "LnkSta and LnkCap, of it and of its bridge, say which side holds it back: another slot, the "
            "firmware's setting of the slot, a riser",
        )
    if rests:
        raise NotSeenError(
            f"PCIe {generation}.0 of {most}.0 while it rests, which saves power: look under load"
        )


# Their memory has room of its own for the check bits (HBM), by compute capability.
_HBM = ((6, 0), (7, 0), (8, 0), (9, 0), (10, 0), (10, 3))


def ecc(machine: Machine, device: DeviceFacts) -> Iterator[Finding]:
    """Boards with HBM keep the check bits apart, which costs nothing."""
    current, _pending = machine.ask(device, "nvmlDeviceGetEccMode")
    if not current or device.compute_capability in _HBM:
        return
    yield Finding(
        "ECC takes bandwidth of this device's memory, which has no room of its own for it",
        "about 20 % of the bandwidth of memory, and 6.25 % of the memory",
        (
            f"nvmlDeviceGetEccMode: {current}",
            "compute capability " + ".".join(map(str, device.compute_capability)),
        ),
        _smi(machine, device, "-e 0"),
        "after the next start; errors in memory are then neither corrected nor seen",
        "NVIDIA, CUDA C++ Best Practices Guide, Theoretical Bandwidth Calculation",
    )


def gpu_power(machine: Machine, device: DeviceFacts) -> Iterator[Finding]:
    """What is enforced, by whoever set it, against the default."""
    limit, default = (
        int(machine.ask(device, f"nvmlDeviceGet{name}"))
        for name in ("EnforcedPowerLimit", "PowerManagementDefaultLimit")
    )
    if limit >= NEAR * default:
        return
    yield Finding(
        f"the board may draw {number(limit / 1000)} of its {number(default / 1000)} W",
        f"{UNKNOWN}: `gemmbench show -v` says at which clock a row ran",
        (
            f"nvmlDeviceGetEnforcedPowerLimit: {limit} mW",
            f"nvmlDeviceGetPowerManagementDefaultLimit: {default} mW",
        ),
        _smi(machine, device, f"-pl {default // 1000}"),
    )


_GRAPHICS, _SET_BY_USER = 0, 0x2  # NVML_CLOCK_GRAPHICS, nvmlClocksEventReasonApplicationsClocksSetting


def gpu_clock(machine: Machine, device: DeviceFacts) -> Iterator[Finding]:
    """The clock for programs (`nvidia-smi -ac`) against its default."""
    clock, default = (
        int(machine.ask(device, f"nvmlDeviceGet{name}", _GRAPHICS))
        for name in ("ApplicationsClock", "DefaultApplicationsClock")
    )
    if clock >= NEAR * default:
        return
    yield Finding(
        f"the board's clock for programs is set to {clock} of {default} MHz",
        f"up to {percent(1 - clock / default)}",
        (
            f"nvmlDeviceGetApplicationsClock: {clock} MHz",
            f"nvmlDeviceGetDefaultApplicationsClock: {default} MHz",
        ),
        _smi(machine, device, "-rac"),
    )


def gpu_temperature(machine: Machine, device: DeviceFacts) -> Iterator[Finding]:
    """What limits the clock at this moment; power is no fault."""
    reading = NvmlGauge(device, machine.board(device)).read(machine.now())
    if reading.celsius is None:
        raise NotSeenError("NVML does not tell the temperature")
    limits = [each for each in reading.limits if each in (THERMAL, HARDWARE)]
    if not limits:
        return
    yield Finding(
        "the temperature limits the board's clock"
        if THERMAL in limits
        else "the board's own brake limits its clock",
        f"up to {percent(1 - reading.clock_mhz / reading.max_mhz)} at this moment"
        if reading.clock_mhz and reading.max_mhz
        else UNKNOWN,
        (
            f"nvmlDeviceGetCurrentClocksEventReasons: {', '.join(limits)}",
            f"nvmlDeviceGetTemperature: {reading.celsius:g} C",
        ),
        "nvidia-smi -q -d TEMPERATURE,PERFORMANCE" + (f" -i {device.pci}" if device.pci else ""),
        "more air" if THERMAL in limits else "its power supply or cables",
    )


def persistence(machine: Machine, device: DeviceFacts) -> Iterator[Finding]:
    """Off, where no display keeps the driver loaded."""
    if machine.ask(device, "nvmlDeviceGetPersistenceMode"):
        return
    with suppress(NotSeenError):
        if machine.ask(device, "nvmlDeviceGetDisplayActive"):
            return  # the display's server keeps the driver loaded
    yield Finding(
        "the driver forgets the board between two programs: persistence mode is off",
        f"{NO_RATE}: each program starts later, and limits of power and clock that were set are lost",
        ("nvmlDeviceGetPersistenceMode: 0",),
        _smi(machine, device, "-pm 1"),
    )


def mig(machine: Machine, device: DeviceFacts) -> Iterator[Finding]:
    """A board that is split."""
    current, _pending = machine.ask(device, "nvmlDeviceGetMigMode")
    if not current:
        return
    yield Finding(
        f"the device is a slice of a board (MIG): {device.compute_units} units, "
        f"{size(device.global_mem_bytes)} of memory",
        f"{UNKNOWN}: what the other slices have",
        (f"nvmlDeviceGetMigMode: {current}", f"CL_DEVICE_MAX_COMPUTE_UNITS: {device.compute_units}"),
        _smi(machine, device, "-mig 0"),
        "ends every slice, those of others, too",
    )


_BUSY_PERCENT = 5


def gpu_load(machine: Machine, device: DeviceFacts) -> Iterator[Finding]:
    """Utilization while gemmbench runs nothing."""
    used = int(machine.ask(device, "nvmlDeviceGetUtilizationRates").gpu)
    if used < _BUSY_PERCENT:
        return
    with suppress(NotSeenError):
        processes = machine.ask(device, "nvmlDeviceGetComputeRunningProcesses")
        names = ", ".join(str(each.pid) for each in processes)
        yield Finding(
            "other programs use the device",
            f"{UNKNOWN}; it was busy for {used} % of the last moment",
            (
                f"nvmlDeviceGetUtilizationRates: gpu {used} %",
                f"nvmlDeviceGetComputeRunningProcesses: {names or '-'}",
            ),
            "nvidia-smi" + (f" -i {device.pci}" if device.pci else ""),
            "end them, or wait",
        )
