"""The probes of matrix units: one entry for each family of instructions."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import ClassVar

from gemmbench.facts.kernel_files import fingerprint
from gemmbench.facts.records import DeviceFacts, Parameters, RanOn
from gemmbench.rules.probes.model import Capability, lacks_capability

OPERANDS: tuple[str, ...] = ("random", "zeros")
"""What matrix units are fed with: zeros draw less power, so that some devices run faster."""


@dataclass(frozen=True)
class Instruction:
    """One matrix instruction: D += A B for a tile of m x n by k."""

    dtype: str  # of A and B
    accumulator: str  # of D
    m: int
    n: int
    k: int
    capability: Capability

    @property
    def shape(self) -> str:
        """As PTX writes it: ``m16n8k16``."""
        return f"m{self.m}n{self.n}k{self.k}"

    @property
    def operations(self) -> int:
        """Multiplications and additions."""
        return 2 * self.m * self.n * self.k


@dataclass(frozen=True)
class MatrixProbe:
    """NVIDIA's tensor cores through one family of PTX instructions."""

    name: str
    idea: str
    file: str
    target: str  # of PTX, where the driver's own does not have it and later devices lack it: "sm_90a"
    warps: int  # that issue one instruction together
    instructions: tuple[Instruction, ...]
    chains: tuple[int, ...]  # independent products of a warp, raced; a single one needs no telling
    unrolls: tuple[int, ...]  # even, since steps alternate between two operands
    groups: tuple[int, ...]  # work-groups for each compute unit, raced
    tiles: int  # different operands, as in the file

    ran_on: ClassVar[RanOn] = "matrix"

    @property
    def dtypes(self) -> tuple[str, ...]:
        """See `Probe`."""
        return tuple(dict.fromkeys(instruction.dtype for instruction in self.instructions))

    @property
    def files(self) -> tuple[str, ...]:
        """See `Probe`."""
        return (self.file,)

    def cases(self, dtype: str, widths: Iterable[int]) -> tuple[Parameters, ...]:
        """See `Probe`: every instruction with each kind of operands."""
        return tuple(
            {"shape": mine.shape, "accumulator": mine.accumulator, "operands": operands}
            for mine in self.instructions
            if mine.dtype == dtype
            for operands in OPERANDS
        )

    def instruction(self, dtype: str, parameters: Parameters) -> Instruction:
        """The instruction of a row."""
        return next(
            mine
            for mine in self.instructions
            if (mine.dtype, mine.accumulator, mine.shape)
            == (dtype, parameters["accumulator"], parameters["shape"])
        )

    def options(self, instruction: Instruction, chains: int, unroll: int) -> tuple[str, ...]:
        """The -D list of one program."""
        chosen = f"{self.name.upper()}_{instruction.dtype}_{instruction.accumulator}"
        many = (f"-DCHAINS={chains}",) if self.chains != (1,) else ()
        return (f"-D{chosen}", *many, f"-DUNROLL={unroll}")

    def lacks(self, device: DeviceFacts, dtype: str) -> str:
        """See `Probe`."""
        wanted = min(mine.capability for mine in self.instructions if mine.dtype == dtype)
        return lacks_capability(device, self.name, wanted, only=bool(self.target))

    def fingerprint(self, dtype: str, parameters: Parameters) -> str:
        """See `Probe`."""
        mine = self.instruction(dtype, parameters)
        options = (word for c in self.chains for u in self.unrolls for word in self.options(mine, c, u))
        return fingerprint((self.file,), tuple(options))


MMA = MatrixProbe(
    name="mma",
    idea="tensor cores by mma.sync: a warp multiplies tiles that it holds in registers",
    file="peak/mma.cl",
    target="",
    warps=1,
    instructions=(
        Instruction("half", "float", 16, 8, 16, (8, 0)),
        Instruction("half", "half", 16, 8, 16, (8, 0)),
        Instruction("bfloat16", "float", 16, 8, 16, (8, 0)),
        Instruction("tf32", "float", 16, 8, 8, (8, 0)),
        Instruction("fp8", "float", 16, 8, 32, (8, 9)),
        Instruction("char", "int", 16, 8, 32, (8, 0)),
        Instruction("double", "double", 16, 8, 8, (9, 0)),
    ),
    chains=(2, 4, 8),
    unrolls=(4, 16),
    groups=(6, 8, 12),
    tiles=16,
)

WGMMA = MatrixProbe(
    name="wgmma",
    idea="Hopper's tensor cores: four warps multiply tiles that lie in local memory",
    file="peak/wgmma.cl",
    target="sm_90a",
    warps=4,
    instructions=(
        Instruction("half", "float", 64, 256, 16, (9, 0)),
        Instruction("half", "half", 64, 256, 16, (9, 0)),
        Instruction("bfloat16", "float", 64, 256, 16, (9, 0)),
        Instruction("tf32", "float", 64, 256, 8, (9, 0)),
        Instruction("fp8", "float", 64, 256, 32, (9, 0)),
        Instruction("char", "int", 64, 256, 32, (9, 0)),
    ),
    chains=(1,),
    unrolls=(4, 8),
    groups=(1, 2, 3),
    tiles=8,
)
