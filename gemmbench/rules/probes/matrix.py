"""The probes of matrix units: one entry for each family of instructions."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import ClassVar

from gemmbench.facts.kernel_files import fingerprint
from gemmbench.facts.records import DeviceFacts, Parameters, RanOn
from gemmbench.model import instructions
from gemmbench.model.instructions import Instruction, InstructionFamily

OPERANDS: tuple[str, ...] = ("random", "zeros")
"""What matrix units are fed with: zeros draw less power, so that some devices run faster."""


@dataclass(frozen=True)
class MatrixProbe:
    """NVIDIA's tensor cores through one family of PTX instructions."""

    family: InstructionFamily
    idea: str
    file: str
    warps: int  # that issue one instruction together
    chains: tuple[int, ...]  # independent products of a warp, raced; a single one needs no telling
    unrolls: tuple[int, ...]  # even, since steps alternate between two operands
    groups: tuple[int, ...]  # work-groups for each compute unit, raced
    tiles: int  # different operands, as in the file

    ran_on: ClassVar[RanOn] = "matrix"

    @property
    def name(self) -> str:
        """See `Probe`."""
        return self.family.name

    @property
    def target(self) -> str:
        """Of PTX, where the driver's own does not have the instructions."""
        return self.family.target

    @property
    def instructions(self) -> tuple[Instruction, ...]:
        """What is raced, by data type."""
        return self.family.instructions

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
        return self.family.lacks(device, dtype)

    def fingerprint(self, dtype: str, parameters: Parameters) -> str:
        """See `Probe`."""
        mine = self.instruction(dtype, parameters)
        options = (word for c in self.chains for u in self.unrolls for word in self.options(mine, c, u))
        return fingerprint((self.file,), tuple(options))


MMA = MatrixProbe(
    family=instructions.MMA,
    idea="tensor cores by mma.sync: a warp multiplies tiles that it holds in registers",
    file="peak/mma.cl",
    warps=1,
    chains=(2, 4, 8),
    unrolls=(4, 16),
    groups=(6, 8, 12),
    tiles=16,
)

WGMMA = MatrixProbe(
    family=instructions.WGMMA,
    idea="Hopper's tensor cores: four warps multiply tiles that lie in local memory",
    file="peak/wgmma.cl",
    warps=4,
    chains=(1,),
    unrolls=(4, 8),
    groups=(1, 2, 3),
    tiles=8,
)
