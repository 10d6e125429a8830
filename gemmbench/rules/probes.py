"""The microbenchmarks: one entry per probe, and what makes a peak believable."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from gemmbench.facts.kernel_files import fingerprint
from gemmbench.facts.records import DeviceFacts

WIDTHS: tuple[int, ...] = (1, 2, 4, 8, 16)
CHAINS: tuple[int, ...] = (1, 2, 4, 8, 12, 16)  # independent recurrences; a kernel of flops.cl each
UNROLLS: tuple[int, ...] = (4, 16)  # steps of every chain in a trip of the loop
PEAK_DTYPES: tuple[str, ...] = ("float", "double", "half", "int")


@dataclass(frozen=True)
class Form:
    """One way to write the step of a recurrence, and what the compiler is told."""

    name: str  # in rows and tables
    define: str  # selects it in the .cl file


@dataclass(frozen=True)
class Probe:
    """A compute microbenchmark: chains of dependent multiply-adds, raced over forms, chains and unrolling."""

    name: str
    idea: str
    file: str
    forms: Mapping[str, tuple[Form, ...]]  # by data type, most promising first
    operations: int = 2  # of one step on one lane: a multiplication and an addition

    def options(
        self, dtype: str, width: int, form: Form, unroll: int, chains: tuple[int, ...] = CHAINS
    ) -> tuple[str, ...]:
        """The -D list of one program, which has a kernel for each number of chains."""
        kernels = (f"-DCHAINS_{count}" for count in sorted(chains))
        return (f"-DREAL_{dtype}", f"-DWIDTH={width}", f"-D{form.define}", f"-DUNROLL={unroll}", *kernels)

    def fingerprint(self, dtype: str, width: int) -> str:
        """Hash of everything that may be compiled for a row."""
        every = (self.options(dtype, width, form, unroll) for form in self.forms[dtype] for unroll in UNROLLS)
        return fingerprint((self.file,), tuple(word for options in every for word in options))


_FLOATING = (
    Form("a*b+c", "FORM_EXPRESSION"),
    Form("fma(a,b,c)", "FORM_FMA"),
    Form("mad(a,b,c)", "FORM_MAD"),
)
# Integer recurrences that are linear in x could be folded over unrolled steps; these are quadratic.
_INTEGER = (Form("x*x+c", "FORM_SQUARE"), Form("x*y+c", "FORM_CROSS"))

FLOPS = Probe(
    name="flops",
    idea="chains of dependent multiply-adds in registers: what the arithmetic units can do",
    file="peak/flops.cl",
    forms={"float": _FLOATING, "double": _FLOATING, "half": _FLOATING, "int": _INTEGER},
)

PROBES: Mapping[str, Probe] = {probe.name: probe for probe in (FLOPS,)}

# No device runs the first type faster than this multiple of the second.
RATIO_CEILINGS: tuple[tuple[str, str, float], ...] = (
    ("double", "float", 1.1),
    ("half", "float", 4.5),
    ("int", "float", 2.2),
)

_FASTEST_CLOCK_HZ = 7e9  # no processor sold runs faster: a bound, not an estimate
_VECTOR_BITS = 512
_FMA_PORTS = 2


def ceiling(device: DeviceFacts, dtype_bytes: int) -> float | None:
    """A rate in operations per second that the device cannot exceed; None where none is known.

    For CPUs: two 512-bit multiply-adds a cycle on every unit, at a clock beyond any sold. The clock that the
    driver reports is advisory and is not used.
    """
    if device.type != "cpu" or device.compute_units < 1:
        return None
    lanes = _VECTOR_BITS // 8 // dtype_bytes
    return device.compute_units * _FMA_PORTS * lanes * 2 * _FASTEST_CLOCK_HZ


def impossible_ratio(dtype: str, rate: float, known: Mapping[str, float]) -> str:
    """Why a rate cannot be true beside the other types' rates in operations per second, or ""."""
    for mine, other, limit in RATIO_CEILINGS:
        if mine == dtype and other in known and rate > limit * known[other]:
            return (
                f"{rate / known[other]:.1f} times the rate of {other}, where {limit:g} is the most possible"
            )
    return ""
