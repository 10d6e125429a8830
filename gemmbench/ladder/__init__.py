"""The GEMM ladder, in the order of tables and charts. Libraries are variants with another executor.

A ``.cl`` file describes its kernel. Launches that follow from problem and device come from a module here.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from gemmbench.ladder import cpu, few, gpu, nvidia, own
from gemmbench.ladder.described import DESCRIBED
from gemmbench.ladder.variant import LIBRARIES, OURS, OWN, Launches, Library, Needs, Variant, laid_out
from gemmbench.model.case import Case
from gemmbench.model.device import HOST, DeviceFacts
from gemmbench.model.dtypes import DTYPES, FP8_DTYPES, GEMM_DTYPES
from gemmbench.model.problem import Gemm
from gemmbench.model.run_file import Run

BASELINE = "numpy"  # the host's own BLAS: what offloading has to beat
MKL = "mkl"
CLBLAST = "clblast"
CUBLAS = "cublas"
_NO_CUBLAS = "cuBLAS runs only on NVIDIA GPUs"

_LIBRARIES = (
    Variant(
        name=BASELINE,
        family=LIBRARIES,
        idea="the host's BLAS, through numpy.matmul",
        source="NumPy; the BLAS it was built with is named in the run",
        launches=Launches(batches=True),
        needs=Needs(dtypes=("float", "double")),
        library=Library("numpy"),
    ),
    Variant(
        name=MKL,
        family=LIBRARIES,
        idea="Intel's MKL, on the host",
        source="Intel, oneAPI Math Kernel Library",
        launches=Launches(batches=True),
        needs=Needs(dtypes=("float", "double", "half", "bfloat16", "char")),
        library=Library("mkl", "libmkl_rt"),
    ),
    Variant(
        name=CLBLAST,
        family=LIBRARIES,
        idea="CLBlast, the tuned OpenCL BLAS",
        source="Nugteren, CLBlast: A Tuned OpenCL BLAS Library, IWOCL 2018; it succeeds ViennaCL and clBLAS",
        launches=Launches(
            # A direct kernel serves small problems, others large ones: from m n k between 450 and 800 cubed
            # on, by device. The exact test is past that.
            edge=lambda _: 1200,
            batches=True,
        ),
        library=Library("clblast", "libclblast"),
    ),
    Variant(
        name=CUBLAS,
        family=LIBRARIES,
        idea="cuBLAS, NVIDIA's BLAS",
        source="NVIDIA, cuBLAS. It uses tensor cores in every type but float, and in char only if B is "
        "stored transposed. It sums half in float. Its only fp8 type is e4m3, with B transposed.",
        launches=Launches(edge=lambda _: 256, batches=True),
        needs=Needs(
            # It multiplies types that NVIDIA's OpenCL does not list.
            lacks=lambda device, _: "" if device.family == "gpu-nvidia" else _NO_CUBLAS,
            dtypes=GEMM_DTYPES,
            sums={"half": "float", **dict.fromkeys(FP8_DTYPES, "fp22")},
            matrix_units=("double", "half", "bfloat16", "tf32", *FP8_DTYPES),
        ),
        library=Library("cublas", "libcublas and an NVIDIA GPU", matrix_layouts={"char": ("NT",)}),
    ),
)

# Kernels whose parameters a module here chooses. The others are as their files describe them.
_CHOSEN = (cpu.CPU_PACKED, gpu.NV_ASYNC, few.SMALL, few.THIN, nvidia.NV_MMA, nvidia.NV_WGMMA, few.NV_THIN)
_BY_FILE: Mapping[str, tuple[Variant, ...]] = {
    **{each.name: (each,) for each in _CHOSEN},
    "cpu-amx": (cpu.CPU_AMX, cpu.CPU_VNNI),
}
VARIANTS: tuple[Variant, ...] = (
    *(variant for name, described in DESCRIBED.items() for variant in _BY_FILE.get(name, (described,))),
    *_LIBRARIES,
)

# Named configurations stand behind their kernel, and are no rungs: they run if they are asked for by name.
BY_NAME: Mapping[str, Variant] = {
    each.name: each for variant in VARIANTS for each in (variant, *variant.configurations)
}
ORDER: tuple[str, ...] = tuple(BY_NAME)
FAMILIES: Mapping[str, str] = {name: variant.family for name, variant in BY_NAME.items()}
LADDER: tuple[str, ...] = tuple(v.name for v in VARIANTS if v.executor == "opencl")
BASELINES: tuple[str, ...] = tuple(v.name for v in _LIBRARIES)
BEST: tuple[str, ...] = tuple(v.name for v in VARIANTS if v.family == OURS)
PUBLISHED: tuple[str, ...] = tuple(name for name in LADDER if name not in BEST)

_STEPS = (
    "naive", "tiled", "coarse", "wide", "rect", "register", "register-wide", "subgroup", "prefetch", "padded",
    "dot-v8", "block2x2-v4", "mali-sgemm", "image-4x8",
)  # fmt: skip
_SPECIAL = ("thin", "nv-thin", "nv-mma", "nv-wgmma", "naive-fp8")  # few rows, types of tensor cores
DEFAULT: Mapping[str, tuple[str, ...]] = {
    "cpu": (*_STEPS, "cpu-packed", "cpu-amx", "cpu-vnni", *_SPECIAL),
    "gpu": (*_STEPS, "gpu-tile", "nv-async", "small", *_SPECIAL, "intel-block"),
}
"""By type of device, the kernels that are measured without ``--kernel``, as far as the device runs them."""

FASTER: Mapping[str, str] = {"nv-mma": "nv-wgmma", "cpu-vnni": "cpu-amx", MKL: BASELINE}
"""What only its name or "all" measures where the other runs: a faster kernel, or the usual baseline."""


def default_libraries(device: DeviceFacts) -> tuple[str, ...]:
    """The libraries measured without ``--baseline``: the host's BLAS, MKL, and cuBLAS or else CLBlast."""
    host = (BASELINE, *[name for name in (MKL,) if name in device.libraries])
    return (*host, *[name for name in (CUBLAS, CLBLAST) if name in device.libraries][:1])


def conversion(variant: str, dtype: str) -> str:
    """How it shortens numbers of operands: ``rounded``, ``cut``, or "" if they fit."""
    if not DTYPES[dtype].dropped:
        return ""
    return "rounded" if variant in BASELINES else "cut"


def control_case(device: DeviceFacts | None, case: Case) -> Case:
    """A product on all cores, by `naive` or the BLAS: its time shows whether others use them."""
    if device is None:
        return Case("gemm", HOST, case.variant, "float", {}, Gemm(256, 256, 256))
    problem = Gemm(48 * device.compute_units, 96, 96)
    return Case("gemm", device.index, "naive", "float", {"WX": 16, "WY": 16}, problem)


def variant_of(case: Case) -> Variant:
    """The variant of a case, adapted to its layout and batch."""
    variant = own.read_variant(case.own) if case.own else BY_NAME[case.variant]
    return laid_out(variant, case.problem) if case.problem else variant


def order(own_names: Iterable[str]) -> tuple[str, ...]:
    """`ORDER` with a user's own kernels between the ladder's and the libraries."""
    first = ORDER.index(BASELINE)
    return (*ORDER[:first], *own_names, *ORDER[first:])


def order_of(run: Run) -> tuple[str, ...]:
    """The order of a run's variants in tables."""
    return order(dict.fromkeys(row.variant for row in run.rows if row.own))


def families(runs: Iterable[Run]) -> Mapping[str, str]:
    """Families by variant, in `order`, with the runs' own kernels."""
    names = dict.fromkeys(row.variant for run in runs for row in run.rows if row.own)
    return {name: OWN if name in names else FAMILIES[name] for name in order(names)}
