"""The compute probes: chains of dependent steps in registers, and the instructions of matrix units."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from gemmbench.model import dtypes
from gemmbench.model.device import DeviceFacts
from gemmbench.model.dtypes import DEVICE_DTYPES, DTYPES, Capability, Instruction, InstructionFamily
from gemmbench.model.kernel_files import fingerprint
from gemmbench.model.row import Parameters, RanOn

# --- The probes that run chains of dependent steps in registers: one entry each -----------------------------

WIDTHS: tuple[int, ...] = (1, 2, 4, 8, 16)
CHAINS: tuple[int, ...] = (1, 2, 4, 8, 12, 16)  # independent recurrences; a kernel of chains.clh each
UNROLLS: tuple[int, ...] = (4, 16)  # steps of every chain in a trip of the loop


def kernels_in(chains: Iterable[int]) -> int:
    """The kernels of one program, as a candidate's parameter: a bit for each number of chains."""
    return sum(1 << count for count in chains)


def kernels_of(bits: int) -> tuple[int, ...]:
    """The numbers of chains that `kernels_in` made bits of."""
    return tuple(count for count in CHAINS if bits >> count & 1)


@dataclass(frozen=True)
class Form:
    """One way to write the step of a recurrence: a program of its own, so that it fails alone."""

    name: str  # in rows and tables
    file: str
    define: str  # selects it in the file
    recurrence: str  # what it computes, in `recurrences.RECURRENCES`
    real: str = ""  # the REAL type of common.clh, where the file leaves it open
    extension: str = ""  # that the device must list
    capability: Capability = (0, 0)  # that its PTX needs; (0, 0): it has none
    standard: str = ""  # -cl-std, where 1.2 is not enough

    def lacks(self, device: DeviceFacts) -> str:
        if self.capability > device.compute_capability:
            return dtypes.lacks_capability(device, self.name, self.capability)
        extension = self.extension
        if self.real in DEVICE_DTYPES and self.real not in device.dtypes:
            extension = DTYPES[self.real].extension
        return f"the device does not list {extension}" if extension not in ("", *device.extensions) else ""

    def options(self, width: int, unroll: int, chains: Iterable[int]) -> tuple[str, ...]:
        """The -D list of one program, which has a kernel for each number of chains."""
        return (
            *([f"-cl-std={self.standard}"] if self.standard else []),
            *([f"-DREAL_{self.real}"] if self.real else []),
            f"-D{self.define}",
            f"-DWIDTH={width}",
            f"-DUNROLL={unroll}",
            *(f"-DCHAINS_{count}" for count in sorted(chains)),
        )


@dataclass(frozen=True)
class ChainProbe:
    """Chains of dependent steps in registers, raced over forms, numbers of chains and unrolling."""

    name: str
    idea: str
    forms: Mapping[str, tuple[Form, ...]]  # by data type, most promising first
    operations: int = 2  # of one step on one lane: a multiplication and an addition
    widths: tuple[int, ...] = WIDTHS  # at which it makes sense

    ran_on: ClassVar[RanOn] = "device"

    @property
    def dtypes(self) -> tuple[str, ...]:
        return tuple(self.forms)

    @property
    def files(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(form.file for forms in self.forms.values() for form in forms))

    def cases(self, dtype: str, widths: Iterable[int]) -> tuple[Parameters, ...]:
        return tuple({"width": width} for width in widths if width in self.widths)

    def usable(self, device: DeviceFacts, dtype: str) -> tuple[Form, ...]:
        """The forms that a device may take, as far as its description tells."""
        return tuple(form for form in self.forms[dtype] if not form.lacks(device))

    def lacks(self, device: DeviceFacts, dtype: str) -> str:
        """What the first form lacks, if no form is left."""
        return "" if self.usable(device, dtype) else self.forms[dtype][0].lacks(device)

    def fingerprint(self, dtype: str, parameters: Parameters) -> str:
        width, forms = int(parameters["width"]), self.forms[dtype]
        options = (word for form in forms for n in UNROLLS for word in form.options(width, n, CHAINS))
        return fingerprint(tuple(dict.fromkeys(form.file for form in forms)), tuple(options))


_FLOPS = "peak/flops.cl"


def _floating(real: str) -> tuple[Form, ...]:
    extension = "" if real in DEVICE_DTYPES else DTYPES[real].extension
    steps = (("a*b+c", "EXPRESSION"), ("fma(a,b,c)", "FMA"), ("mad(a,b,c)", "MAD"))
    return tuple(Form(name, _FLOPS, f"FORM_{word}", "linear", real, extension) for name, word in steps)


def _integer(real: str) -> tuple[Form, ...]:
    return (
        Form("x*x+c", _FLOPS, "FORM_SQUARE", "square", real),
        Form("x*y+c", _FLOPS, "FORM_CROSS", "cross", real),
    )


def _dot(name: str, define: str, **needs: Any) -> Form:
    return Form(name, "peak/dot8.cl", define, "dot", **needs)


_KHRONOS_DOT = {"extension": "cl_khr_integer_dot_product", "standard": "CL3.0"}
_ARM_DOT = {"extension": "cl_arm_integer_dot_product_accumulate_int8"}

FLOPS = ChainProbe(
    name="flops",
    idea="chains of dependent multiply-adds in registers: what the arithmetic units can do",
    forms={
        "float": _floating("float"),
        "double": _floating("double"),
        "half": (
            *_floating("half"),
            Form("fma.rn.f16x2", "peak/packed.cl", "FORM_HALF2", "packed", capability=(5, 3)),
        ),
        "bfloat16": (
            *_floating("bfloat16")[:1],  # fma and mad do not take it
            Form("fma.rn.bf16x2", "peak/packed.cl", "FORM_BFLOAT2", "packed", capability=(8, 0)),
        ),
        "long": _integer("ulong"),
        "int": _integer("uint"),
        "short": _integer("ushort"),
        "char": _integer("uchar"),
    },
)

DOT8 = ChainProbe(
    name="dot8",
    idea="dot products of four bytes, added up in an int",
    forms={
        "char": (
            _dot("dp4a.s32", "FORM_DP4A", capability=(6, 1)),
            _dot("dot_4x8packed", "FORM_KHRONOS", **_KHRONOS_DOT),
            _dot("dot_acc_sat", "FORM_KHRONOS_SAT", **_KHRONOS_DOT),
            _dot("arm_dot_acc", "FORM_ARM", **_ARM_DOT),
            _dot("four products", "FORM_PLAIN"),
        )
    },
    operations=8,
    widths=(1,),  # a register of four bytes is the vector
)


# --- The probes of matrix units: one entry for each family of instructions ----------------------------------

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
        return tuple(dict.fromkeys(instruction.dtype for instruction in self.instructions))

    @property
    def files(self) -> tuple[str, ...]:
        return (self.file,)

    def cases(self, dtype: str, widths: Iterable[int]) -> tuple[Parameters, ...]:
        return tuple(
            {"shape": instruction.shape, "accumulator": instruction.accumulator, "operands": operands}
            for instruction in self.instructions
            if instruction.dtype == dtype
            for operands in OPERANDS
        )

    def instruction(self, dtype: str, parameters: Parameters) -> Instruction:
        return next(
            candidate
            for candidate in self.instructions
            if (candidate.dtype, candidate.accumulator, candidate.shape)
            == (dtype, parameters["accumulator"], parameters["shape"])
        )

    def options(self, instruction: Instruction, chains: int, unroll: int) -> tuple[str, ...]:
        chosen = f"{self.name.upper()}_{instruction.dtype}_{instruction.accumulator}"
        many = (f"-DCHAINS={chains}",) if self.chains != (1,) else ()
        return (f"-D{chosen}", *many, f"-DUNROLL={unroll}")

    def lacks(self, device: DeviceFacts, dtype: str) -> str:
        return self.family.lacks(device, dtype)

    def fingerprint(self, dtype: str, parameters: Parameters) -> str:
        instruction = self.instruction(dtype, parameters)
        pairs = ((chains, unroll) for chains in self.chains for unroll in self.unrolls)
        options = (word for pair in pairs for word in self.options(instruction, *pair))
        return fingerprint((self.file,), tuple(options))


MMA = MatrixProbe(
    family=dtypes.MMA,
    idea="tensor cores by mma.sync: a warp multiplies tiles that it holds in registers",
    file="peak/mma.cl",
    warps=1,
    chains=(2, 4, 8),
    unrolls=(4, 16),
    groups=(6, 8, 12),
    tiles=16,
)

WGMMA = MatrixProbe(
    family=dtypes.WGMMA,
    idea="Hopper's tensor cores: four warps multiply tiles that lie in local memory",
    file="peak/wgmma.cl",
    warps=4,
    chains=(1,),
    unrolls=(4, 8),
    groups=(1, 2, 3),
    tiles=8,
)

Probe = ChainProbe | MatrixProbe
"""A microbenchmark of arithmetic units: the parameters of each of its rows (widths are for vectors), why a
device cannot run it for a type, and the hash of everything that may be compiled for a row."""
