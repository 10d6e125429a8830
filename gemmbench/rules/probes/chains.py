"""The probes that run chains of dependent steps in registers: one entry each."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from gemmbench.facts.dtypes import DEVICE_DTYPES, DTYPES
from gemmbench.facts.kernel_files import fingerprint
from gemmbench.facts.records import DeviceFacts, Parameters, RanOn
from gemmbench.model.instructions import Capability, lacks_capability

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
        """Why a device cannot run it, as far as its description tells; or ""."""
        if self.capability > device.compute_capability:
            return lacks_capability(device, self.name, self.capability)
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
        """See `Probe`."""
        return tuple(self.forms)

    @property
    def files(self) -> tuple[str, ...]:
        """See `Probe`."""
        return tuple(dict.fromkeys(form.file for forms in self.forms.values() for form in forms))

    def cases(self, dtype: str, widths: Iterable[int]) -> tuple[Parameters, ...]:
        """See `Probe`."""
        return tuple({"width": width} for width in widths if width in self.widths)

    def usable(self, device: DeviceFacts, dtype: str) -> tuple[Form, ...]:
        """The forms that a device may take, as far as its description tells."""
        return tuple(form for form in self.forms[dtype] if not form.lacks(device))

    def lacks(self, device: DeviceFacts, dtype: str) -> str:
        """See `Probe`: what the first form lacks, if no form is left."""
        return "" if self.usable(device, dtype) else self.forms[dtype][0].lacks(device)

    def fingerprint(self, dtype: str, parameters: Parameters) -> str:
        """See `Probe`."""
        width, forms = int(parameters["width"]), self.forms[dtype]
        options = (word for form in forms for n in UNROLLS for word in form.options(width, n, CHAINS))
        return fingerprint(tuple(dict.fromkeys(form.file for form in forms)), tuple(options))


_FLOPS = "peak/flops.cl"


def _floating(real: str) -> tuple[Form, ...]:
    extension = "" if real in DEVICE_DTYPES else DTYPES[real].extension
    return (
        Form("a*b+c", _FLOPS, "FORM_EXPRESSION", "linear", real, extension),
        Form("fma(a,b,c)", _FLOPS, "FORM_FMA", "linear", real, extension),
        Form("mad(a,b,c)", _FLOPS, "FORM_MAD", "linear", real, extension),
    )


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

MIXED = ChainProbe(
    name="mixed",
    idea="products of halves added up in float, a half widened for each step and shared by the chains",
    forms={
        "half": (
            Form("convert_float", "peak/mixed.cl", "FORM_CONVERT", "mixed", extension="cl_khr_fp16"),
            Form("vload_half", "peak/mixed.cl", "FORM_VLOAD", "mixed"),
        )
    },
)

MAD24 = ChainProbe(
    name="mad24",
    idea="multiply-adds of 24-bit integers, which some devices have faster than those of 32",
    forms={
        "int": (
            Form("mad24(a,b,c)", _FLOPS, "FORM_MAD24", "24 bits", "int"),
            Form("mul24(a,b)+c", _FLOPS, "FORM_MUL24", "24 bits", "int"),
        )
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
