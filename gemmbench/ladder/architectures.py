"""What makers and driver authors document of a GPU's cores: registers, waves, local memory, group sizes.

A core is what shares local memory: Mali's shader core, Adreno's SP, Intel's subslice (Xe-core), AMD's compute
unit, NVIDIA's multiprocessor. Work-items in flight on a core times the registers of each are bounded (the
*I x R* of Gronqvist and Lokhmotov); how registers are handed out differs by maker, and stands here.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cached_property

from gemmbench.model.device import DeviceFacts
from gemmbench.stats import ceilings

Steps = tuple[tuple[int, int], ...]  # 32-bit registers of a work-item at most, work-items in flight then


@dataclass(frozen=True)
class Architecture:
    """A family of GPUs. None: its documents do not tell."""

    name: str
    devices: str  # regular expression of the names that its drivers give
    waves: tuple[int, ...]  # work-items that go in step; the compiler chooses where there are several
    steps: Steps  # by registers, fewest first; past the last a kernel spills
    core_kib: int | None  # local memory of a core; None also where it is main memory
    group_kib: int | None  # of that, what a group can have
    group: int | None  # work-items of the largest group that OpenCL drivers list
    half: bool | None  # whether its arithmetic units take half, also where a driver does not list it
    source: str

    @property
    def resident(self) -> int:
        """Work-items that a core holds at most."""
        return self.steps[0][1]

    @cached_property
    def product(self) -> int:
        """The bound of work-items in flight times registers."""
        return max(registers * items for registers, items in self.steps)

    @property
    def formula(self) -> str:
        """The steps for people: ``256 with up to 16 registers, 128 with 32, 64 with 64``."""
        (first, items), *others = self.steps
        rest = [f"{n} with {most}" for most, n in others]
        rest = [*rest[:2], "...", rest[-1]] if len(rest) > 4 else rest
        return ", ".join([f"{items} with up to {first} registers", *rest])

    def in_flight(self, registers: int) -> int:
        """Work-items that a core holds, of so many 32-bit registers each; 0: it has not so many for one."""
        return next((items for most, items in self.steps if registers <= most), 0)


_MOST_OF_ADRENO = 192  # 32-bit registers of a work-item


def _handed_out(registers: int, step: int, waves: int, items: int, most: int = 256) -> Steps:
    """The steps where every wave takes registers from the file of its own part of a core.

    Args:
        registers: of that file, for each lane.
        step: registers are handed out in so many.
        waves: that a part holds at most.
        items: work-items of a wave, times the parts of a core.
        most: registers that instructions can name.
    """
    by_count = {min(waves, registers // given): given for given in range(step, most + step, step)}
    steps = [(min(given, most), count * items) for count, given in by_count.items() if count]
    return tuple(sorted(steps))


def _fibers(vectors: int, wave: int) -> Steps:
    """Adreno's: 16 waves in pairs, of one size or twice that, share a file of registers of 128 bits.

    Args:
        vectors: registers of 128 bits, for each work-item of a pair of waves.
        wave: work-items of the smaller wave.
    """
    by_items: dict[int, int] = {}
    for own in range(1, _MOST_OF_ADRENO // 4 + 1):
        items = max(min(16, vectors // (own * size) * 2) * wave * size for size in (1, 2))
        by_items[items] = 4 * own
    return tuple(sorted((registers, items) for items, registers in by_items.items() if items))


def _simd(threads: int) -> Steps:
    """Intel's: a hardware thread has 1,024 registers, and runs 32, 16 or 8 work-items with them."""
    return tuple((1024 // width, threads * width) for width in (32, 16, 8))


# Where the figures are from, and how registers are handed out. Mesa's drivers are reverse-engineered. What
# OpenCL drivers list is from the logs of their users, named by project and number on GitHub.
_MALI = "Arm, Mali GPU Datasheet 2021; Mesa, panfrost_kmod.c, pan_compute_max_thread_count; "
_MIDGARD = _MALI + "Gronqvist and Lokhmotov, GPU Pro 5; drivers: plaidml#182, #227"
_GUIDE = _MALI + "Arm, OpenCL Developer Guide 101574, 3.8 and 9.6; "
_BIFROST_1 = _GUIDE + "drivers: 96boards-hikey/linux#59"
_WARPS = _GUIDE + "Arm, performance counter WARP_REG_SIZE_64"
_IR3 = "Mesa, freedreno: freedreno_devices.py, ir3_compiler.c, ir3_get_reg_dependent_max_waves"
_ADRENO_5 = _IR3 + "; driver: a log of openpilot on an Adreno 530"
_AGX = "Mesa, asahi: agx_performance.c; drivers: GPGPUTasks2025#43, #148"
_GEN = (
    "Intel, GPU Occupancy Calculator (oneAPI-samples); GPU Optimization Guide, registers; "
    "compute-runtime: deviceExtensionsList"
)
_LLVM = "LLVM, AMDGPUBaseInfo.cpp and AMDGPU.td"
_GCN_2 = _LLVM + "; drivers: ROCm#784"
_GCN = _LLVM + "; drivers: plaidml#257, ROCR-Runtime#180"
_CDNA_1 = _LLVM + "; drivers: CLRX-mirror#34"
_RDNA_2 = _LLVM + "; drivers: ROCm#1575"
_CUDA = "NVIDIA, CUDA programming guide, technical specifications"

_AGX_STEPS: Steps = (
    (52, 1024), (56, 896), (64, 832), (68, 768), (72, 704), (80, 640), (92, 576), (104, 512), (116, 448),
    (128, 384),
)  # fmt: skip

# Left out: Mali-G52, whose name does not tell which it is (512 or 768 work-items); Intel's HD and UHD
# Graphics 500, 505, 510, 600, 605, 610: 6 units in a subslice by compute-runtime, 8 by the calculator.
# AMD's RDNA: of a compute unit, which is half of a work-group processor.
# fmt: off
#                names of devices (a pattern)
#     waves         work-items in flight by registers    core  group  largest half  source
#                                                        KiB   KiB    group
ARCHITECTURES: tuple[Architecture, ...] = (
    Architecture("Mali Midgard", r"Mali-T[678]\d",
        (1,),         ((16, 256), (32, 128), (64, 64)),    None, 32,   256,    True, _MIDGARD),
    Architecture("Mali-G71, G72", r"Mali-G7[12]\b",
        (4,),         ((64, 384),),                        None, None, 384,    True, _BIFROST_1),
    Architecture("Mali-G51", r"Mali-G51\b",
        (4,),         ((32, 768), (64, 384)),              None, None, None,   True, _WARPS),
    Architecture("Mali-G76", r"Mali-G76\b",
        (8,),         ((32, 768), (64, 384)),              None, None, None,   True, _WARPS),
    Architecture("Mali Valhall", r"Mali-G(57|68|77|78)\b",
        (16,),        ((32, 1024), (64, 512)),             None, None, None,   True, _WARPS),
    Architecture("Adreno 5xx", r"Adreno\(TM\) 5\d\d",
        (32, 64),     _fibers(48, 32),                     32,   32,   1024,   True, _ADRENO_5),
    Architecture("Adreno 6xx, gen 1 and 2", r"Adreno\(TM\) 6(1[5689]|[2348]0)\b",
        (64, 128),    _fibers(96, 64),                     32,   32,   None,   True, _IR3),
    Architecture("Adreno 6xx, gen 3 and 4", r"Adreno\(TM\) 6(2[13]|4[34]|[569]0|63)\b",
        (64, 128),    _fibers(64, 64),                     32,   32,   None,   True, _IR3),
    Architecture("Adreno 7xx", r"Adreno\(TM\) (7(25|3[05]|[45]0)\b|X1)",
        (64, 128),    _fibers(96, 64),                     32,   32,   None,   True, _IR3),
    Architecture("Apple M1, M2", r"Apple M[12]\b",
        (32,),        _AGX_STEPS,                          None, 32,   256,    True, _AGX),
    Architecture("Intel Gen9", r"Graphics P?(5(15|[2-8]\d)|6(1[57]|[2-5]\d))\b",
        (8, 16, 32),  _simd(56),                           64,   64,   256,    True, _GEN),
    Architecture("Intel Xe-LP", r"Iris.* Xe|UHD Graphics 7\d\d",
        (8, 16, 32),  _simd(112),                          64,   64,   512,    True, _GEN),
    Architecture("Intel Xe-HPG", r"Arc.* A\d{3}|0x56[9a]\w",
        (8, 16, 32),  _simd(128),                          128,  64,   1024,   True, _GEN),
    Architecture("AMD GCN 2", r"gfx7\d\d\b",
        (64,),        _handed_out(256, 4, 10, 256),        64,   64,   None,   False, _GCN_2),
    Architecture("AMD GCN 3 to 5", r"gfx(8\d\d|90[0246])\b",
        (64,),        _handed_out(256, 4, 10, 256),        64,   64,   256,    True, _GCN),
    Architecture("AMD CDNA 1", r"gfx908\b",
        (64,),        _handed_out(256, 4, 10, 256),        64,   64,   256,    True, _CDNA_1),
    Architecture("AMD CDNA 2, 3", r"gfx9(0a|4[012])\b",
        (64,),        _handed_out(512, 8, 8, 256, 512),    64,   64,   None,   True, _LLVM),
    Architecture("AMD RDNA 2", r"gfx103\d\b",
        (32, 64),     _handed_out(1024, 16, 16, 64),       64,   64,   256,    True, _RDNA_2),
    Architecture("AMD RDNA 3", r"gfx110[01]\b",
        (32, 64),     _handed_out(1536, 24, 16, 64),       64,   64,   None,   True, _LLVM),
)
# fmt: on


def of(device: DeviceFacts) -> Architecture | None:
    """The architecture of a GPU; None if there is no document of it here."""
    if device.type != "gpu":
        return None  # a CPU's core runs one work-group after the other
    if known := ceilings.MULTIPROCESSOR.get(device.compute_capability):
        return _nvidia(device.compute_capability, *known)
    names = f"{device.name} {device.device_version}"
    return next((each for each in ARCHITECTURES if re.search(each.devices, names)), None)


def _nvidia(capability: tuple[int, int], resident: int, shared_kib: int) -> Architecture:
    """A multiprocessor: 65,536 registers in four parts, handed out to warps in eights."""
    version = ".".join(map(str, capability))
    steps = _handed_out(512, 8, resident // 128, 128, 255)
    return Architecture(f"NVIDIA {version}", "", (32,), steps, shared_kib, 48, 1024, True, _CUDA)


@dataclass(frozen=True)
class Fit:
    """How many work-items of a kernel a core holds at once."""

    items: int | None  # None: not known; 0: not one group
    limit: str = ""  # what keeps there from being more: registers, local memory, work-items


def fit(device: DeviceFacts, group: int, local: int, registers: int | None, file: int = 0) -> Fit:
    """Work-items that a core of a GPU holds at once, and what limits them.

    Args:
        device: any; of a CPU nothing is known, since its core runs one group after the other.
        group: work-items in a work-group.
        local: bytes of local memory of a group.
        registers: 32-bit registers of a work-item; None if not known.
        file: registers of a core, where no document of the device is known here; 0 if not known.
    """
    if device.type != "gpu":
        return Fit(None)
    rooms: dict[str, int] = {}
    known = of(device)
    if known:
        rooms["work-items"] = known.resident // group
    if local and known and known.core_kib:
        each = local + (ceilings.OF_A_GROUP if device.compute_capability != (0, 0) else 0)
        rooms["local memory"] = known.core_kib * 1024 // each
    elif local and not known and not device.local_mem_emulated:
        rooms["local memory"] = device.local_mem_bytes // local  # what one group may have is the least
    if registers and known:
        rooms["registers"] = known.in_flight(registers) // group
    elif registers and file:
        rooms["registers"] = file // (-(-registers // _STEP) * _STEP * group)
    if not rooms:
        return Fit(None)
    limit = min(rooms, key=lambda name: rooms[name])
    return Fit(rooms[limit] * group, limit)


_STEP = 8  # registers are handed out in so many on NVIDIA's devices
