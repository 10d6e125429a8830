"""NVIDIA's instructions for matrix units: the shapes and types of each, and the devices that have them."""

from __future__ import annotations

from dataclasses import dataclass

from gemmbench.model.device import DeviceFacts

Capability = tuple[int, int]
"""NVIDIA's compute capability: (9, 0)."""


def lacks_capability(device: DeviceFacts, name: str, wanted: Capability, only: bool = False) -> str:
    """Why an instruction of NVIDIA's cannot run on a device, or "".

    Args:
        device: any.
        name: the instruction's.
        wanted: the compute capability that has it.
        only: whether later ones lack it.
    """
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

    @property
    def shape(self) -> str:
        """As PTX writes it: ``m16n8k16``."""
        return f"m{self.m}n{self.n}k{self.k}"

    @property
    def operations(self) -> int:
        """Multiplications and additions."""
        return 2 * self.m * self.n * self.k


@dataclass(frozen=True)
class InstructionFamily:
    """Matrix instructions of one PTX mnemonic."""

    name: str
    target: str  # of PTX, where the driver's own does not have it and later devices lack it: "sm_90a"
    instructions: tuple[Instruction, ...]

    def lacks(self, device: DeviceFacts, dtype: str) -> str:
        """Why a device cannot run it for a type, as far as its description tells; or ""."""
        instructions = [each for each in self.instructions if each.dtype == dtype]
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
