"""Saved runs that never ran: figures like a real machine's, for golden tables and charts."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cache

from gemmbench.ladder import BY_NAME
from gemmbench.model.case import Policy
from gemmbench.model.device import DeviceFacts, HostFacts
from gemmbench.model.row import (
    WHOLE,
    Check,
    Energy,
    Kind,
    Launch,
    Parameters,
    Problem,
    RanOn,
    Row,
    Scope,
    Status,
    Work,
)
from gemmbench.model.run_file import SCHEMA_VERSION, Header, Run

ORDER = ("naive", "tiled", "register", "padded", "dot-v8", "block2x2-v4", "numpy")
HOSTILE = '[bold]x[/] | <b>&"$x^2$`\n\x1b[31m'
SIZES = (64, 128, 256, 512, 1024, 2048)

CPU = DeviceFacts(
    index=0,
    platform_index=0,
    device_index=0,
    platform="Intel(R) OpenCL",
    vendor="Intel(R) Corporation",
    version="OpenCL 3.0 LINUX",
    name="Intel(R) Xeon(R) Processor @ 2.10GHz",
    device_version="OpenCL 3.0 (Build 0)",
    driver="2026.22.8.0",
    type="cpu",
    compute_units=2,
    clock_mhz=2100,
    global_mem_bytes=8 << 30,
    max_alloc_bytes=4 << 30,
    local_mem_bytes=32 << 10,
    local_mem_emulated=True,
    cache_bytes=2 << 20,
    max_work_group_size=8192,
    max_work_item_sizes=(8192, 8192, 8192),
    timer_resolution_ns=1,
    unified_memory=True,
    images=True,
    image2d_max=(16384, 16384),
    dtypes=("float", "double", "half", "int"),
    vector_widths={"float": 16, "double": 8, "half": 32, "int": 16},
    extensions=("cl_khr_fp64", "cl_khr_fp16"),
    origin="from this environment: intel-opencl-rt 2026.2.0",
    library="/opt/venv/lib/libintelocl.so",
)
POCL = replace(
    CPU,
    index=1,
    platform_index=1,
    platform="Portable Computing Language",
    vendor="GenuineIntel",
    version="OpenCL 3.0 PoCL 3.0-rc2",
    name="pthread-Intel(R) Xeon(R) Processor @ 2.10GHz",
    driver="3.0-rc2",
    clock_mhz=0,
    cache_bytes=0,
    images=False,
    dtypes=("float", "double", "int"),
    vector_widths={"float": 4, "double": 2, "int": 4},
    extensions=("cl_khr_fp64",),
    origin="from this environment: pocl-binary-distribution 3.0",
    library="/opt/venv/lib/libpocl.so",
    warnings=(
        "PoCL compiles for plain x86-64, but this processor has AVX-512: its figures are not the hardware's; "
        "install the system's pocl-opencl-icd or gemmbench[cpu]",
    ),
)
GPU = replace(
    CPU,
    index=2,
    platform_index=2,
    platform="NVIDIA CUDA",
    vendor="NVIDIA Corporation",
    version="OpenCL 3.0 CUDA 13.0",
    name="NVIDIA H200",
    driver="580.95.05",
    type="gpu",
    compute_units=132,
    clock_mhz=1980,
    unified_memory=False,
    local_mem_emulated=False,
    local_mem_bytes=48 << 10,
    global_mem_bytes=140 << 30,
    max_alloc_bytes=35 << 30,
    cache_bytes=60 << 20,
    dtypes=("float", "double", "int"),
    origin="system",
)
HOST = HostFacts(
    cpu="Intel(R) Xeon(R) Processor @ 2.10GHz",
    cores=2,
    memory_bytes=8 << 30,
    system="Linux 6.1 x86_64",
    python="3.11.4",
    numpy="2.4.6",
    blas="OpenBLAS 0.3.30, 2 threads",
)

SOURCE = "0123456789ab"  # hash of every kernel's
NO_SOURCE = ("numpy", "clblast", "cublas")  # what has no kernel source of its own


VIEWS = ("peak", "gemm", "square", "sweep-k", "workloads", "tune")  # commands that measure


def header(command: Sequence[str], devices: Sequence[DeviceFacts] = (CPU,)) -> Header:
    placed = tuple(replace(device, index=place) for place, device in enumerate(devices))
    view = next((word for word in command if word in VIEWS), "")
    scope = command[command.index("--scope") + 1] if "--scope" in command else ""
    started = "2026-11-21T04:30:00Z"
    return Header(SCHEMA_VERSION, "0.1.0", tuple(command), started, placed, HOST, Policy(), view, scope)


def ran_on(variant: str, dtype: str) -> RanOn:
    """As the variant's entry says, of a type that it lacks as of its first; \"device\" for other names."""
    if variant not in BY_NAME:
        return "device"
    entry = BY_NAME[variant]
    return entry.ran_on(dtype if dtype in entry.needs.dtypes else entry.needs.dtypes[0])


@cache
def scope(
    seconds: float, spread: float = 0.002, count: int = 12, stop: str = "stable", times: int = 3
) -> Scope:
    """Samples around a time, so many times over; they are the same for the same arguments."""
    noise = random.Random(f"{seconds:.6e} {spread}")
    samples = tuple(seconds * (1 + spread * abs(noise.gauss(0, 1))) for _ in range(count))
    return Scope(times * samples, 4, stop)


def gemm_row(
    variant: str,
    problem: Problem,
    gflops: float,
    device: int = 0,
    dtype: str = "float",
    transfer: float = 0.93,
    spread: float = 0.002,
    parameters: Parameters | None = None,
) -> Row:
    """An ok row with this rate in the kernel scope (the host scope for device -1)."""
    seconds = 2 * problem.m * problem.n * problem.k / (gflops * 1e9)
    stop = "stable" if spread < 0.01 else "budget"
    samples = {"host": scope(seconds, spread, stop=stop)}
    if device >= 0:
        samples = {
            "kernel": scope(seconds, spread, stop=stop),
            "device": scope(seconds * 1.01, spread, stop=stop),
            "host": scope(seconds * 1.01 / transfer + 8e-6, spread, stop=stop),
        }
    return Row(
        kind="gemm",
        device=device,
        variant=variant,
        dtype=dtype,
        parameters=parameters or {},
        status="ok",
        problem=problem,
        samples=samples,
        launches=(Launch("multiply", 2.1e-6, 1.4e-6, seconds),) if device >= 0 else (),
        check=Check("ok", {"residual_over_bound": 0.031}),
        build_s=0.21 if device >= 0 else None,
        memory="mapped" if device >= 0 else "",
        source="" if variant in NO_SOURCE else SOURCE,
        ran_on=ran_on(variant, dtype),
    )


def probe_row(
    kind: Kind,
    variant: str,
    parameters: Parameters,
    seconds: float,
    work: Work,
    dtype: str = "float",
    device: int = 0,
    clock: str = "kernel",
    choice: Parameters | None = None,
    check: Check | None = None,
    spread: float = 0.002,
) -> Row:
    """An ok row of a probe."""
    samples = {clock: scope(seconds, spread)}
    row = Row(kind, device, variant, dtype, parameters, "ok", work=work, samples=samples)
    return replace(row, choice=choice or {}, check=check or Check("ok"))


def scaled(row: Row, factor: Callable[[], float]) -> dict[str, Scope]:
    """The samples of a row, each times what a call returns."""
    return {
        name: replace(scope, seconds=tuple(second * factor() for second in scope.seconds))
        for name, scope in row.samples.items()
    }


def slower(row: Row, factor: float) -> Row:
    """A row whose samples all take so many times as long."""
    return replace(row, samples=scaled(row, lambda: factor))


def bad(
    variant: str, problem: Problem | None, status: Status, reason: str, device: int = 0, dtype: str = "float"
) -> Row:
    return Row("gemm", device, variant, dtype, {}, status, reason, problem)


def peak_row(
    width: int,
    gflops: float,
    device: int = 0,
    dtype: str = "float",
    spread: float = 0.002,
    choice: Parameters | None = None,
    check: Check | None = None,
) -> Row:
    choice = choice or {"chains": 8, "form": "fma(a,b,c)", "unroll": 16, "local": 64}
    check = check or Check("ok", {"doubling": 2.0})
    parameters: Parameters = {"width": width}
    work, seconds = Work(flops=10**9), 1 / gflops
    return probe_row(
        "peak", "flops", parameters, seconds, work, dtype, device, choice=choice, check=check, spread=spread
    )


def energy(row: Row, device: DeviceFacts | None) -> Energy:
    """A GPU's board draws 512 W; nobody but root may read the processors' counter."""
    if device is None or device.type == "cpu":
        return Energy(
            why="not measured: /sys/class/powercap/intel-rapl:0/energy_uj is for root only; until the next "
            "start, sudo chmod a+r /sys/class/powercap/intel-rapl:*/energy_uj opens it"
        )
    seconds = min(next(iter(row.samples.values())).seconds)
    problems = round(1.05 / seconds)
    return Energy(512 * seconds, "", "board", "NVML", 118.0, problems * seconds, problems)


RATES = {
    "naive": (1.1, 1.2, 1.2, 1.1, 0.9, None),
    "tiled": (4.0, 4.4, 4.6, 4.6, 4.5, 4.5),
    "register": (21.0, 33.1, 88.2, 180.0, 241.7, 260.9),
    "padded": (8.0, 24.0, 61.0, 120.0, 150.0, 171.0),
    "dot-v8": (9.1, 13.2, 15.0, 14.2, 11.1, 9.4),
    "block2x2-v4": (11.2, 16.0, 17.1, 17.4, 14.0, 9.8),
    "numpy": (60.2, 141.0, 188.4, 207.2, 214.9, 219.0),
}


def _square_rows(device: int = 0, dtype: str = "float", scale: float = 1.0) -> list[Row]:
    rows = []
    for variant, rates in RATES.items():
        for size, gflops in zip(SIZES, rates, strict=True):
            problem = Problem(size, size, size)
            where = -1 if variant == "numpy" else device
            if gflops is None:
                reason = f"would take about {19 / scale:.0f} s; --budget {20 / scale:.0f} runs it"
                rows.append(bad(variant, problem, "skipped", reason, where, dtype))
                continue
            noisy = (variant, size) in {("tiled", 64), ("register", 128)}
            rows.append(
                gemm_row(variant, problem, gflops * scale, where, dtype, spread=0.06 if noisy else 0.002)
            )
    return rows


def fake_square() -> Run:
    """A good run: one skipped, two noisy rows, a break-even between 512 and 1024."""
    rows = [peak_row(1, 345.0), peak_row(16, 301.0), *_square_rows()]
    return Run(header(("gemmbench", "square", "--max", "2048")), tuple(rows), "square.jsonl")


def fake_troubled() -> Run:
    """A bad day: every status, gaps in the middle, a driver with a name of its own, a warning."""
    device = replace(CPU, name=HOSTILE, warnings=POCL.warnings)
    rows = list(_square_rows())

    def put(variant: str, size: int, status: Status, reason: str) -> None:
        place = next(n for n, r in enumerate(rows) if r.variant == variant and r.problem.m == size)
        rows[place] = bad(variant, Problem(size, size, size), status, reason)

    put("tiled", 256, "wrong", "residual 3.1 times the bound")
    put("tiled", 2048, "crashed", "the driver died with SIGSEGV while timing")
    put("register", 512, "failed", "does not compile:\n<kernel>:12: error: [/nope] `x` | unknown\n1 error")
    put("padded", 1024, "timed-out", "no answer for 120 s")
    for size in SIZES:
        put("dot-v8", size, "unsupported", "needs cl_khr_something, which this device lacks")
    kept = [r for r in rows if not (r.variant == "block2x2-v4" and r.problem.m > 512)]
    return Run(header(("gemmbench", "square"), (device,)), tuple(kept), "bad.jsonl")


def fake_many() -> Run:
    """Two devices, two types; the second device lacks half altogether."""
    rows = [peak_row(16, 345.0), peak_row(1, 128.0, dtype="half"), peak_row(4, 34.0, device=1)]
    rows += _square_rows()
    rows += [row for row in _square_rows(1, scale=0.1) if row.device == 1]
    rows += _square_rows(0, "half", 0.4)
    rows += [
        bad(row.variant, row.problem, "unsupported", "the device lacks cl_khr_fp16 (half)", 1, "half")
        for row in _square_rows(1, "half")
        if row.device == 1
    ]
    return Run(header(("gemmbench", "square", "--device", "all"), (CPU, POCL)), tuple(rows), "many.jsonl")


def fake_sweep_k() -> Run:
    """m = n = 1024 on a GPU beside the host's BLAS: it wins from the first size on."""
    rows = [peak_row(1, 65000.0)]
    for variant, top in (("naive", 3100.0), ("tiled", 9800.0), ("register", 41000.0), ("numpy", 219.0)):
        for k in (16, 32, 64, 128, 256, 512, 1024, 2048, 4096):
            gflops = top * k / (k + (300 if top > 1000 else 40))
            rows.append(
                gemm_row(
                    variant, Problem(1024, 1024, k), gflops, -1 if variant == "numpy" else 0, transfer=0.4
                )
            )
    return Run(header(("gemmbench", "sweep-k"), (GPU,)), tuple(rows), "k.jsonl")


def fake_peak() -> Run:
    """Four types: half unsupported, one suspect and one failed width, noise."""
    rows = []
    for dtype, top in (("float", 345.0), ("double", 176.0), ("int", 88.0)):
        for width, share in ((1, 1.0), (2, 0.61), (4, 0.8), (8, 0.97), (16, 0.95)):
            choice: Parameters = {"chains": 12 if width < 4 else 8, "form": "a*b+c", "unroll": 4, "local": 64}
            if dtype == "int":
                choice["form"] = "x*x+c"
            rows.append(peak_row(width, top * share, dtype=dtype, choice=choice, spread=0.002))
    rows[6] = peak_row(
        2, 1400.0, dtype="double", check=Check("suspect", {}, ("4.1 times the rate of float",))
    )
    rows[8] = peak_row(8, 170.0, dtype="double", spread=0.05)
    rows[13] = replace(rows[13], status="failed", reason="out of resources", samples={}, choice={})
    reason = "the device lacks cl_khr_fp16 (half)"
    for width in (1, 2, 4, 8, 16):
        rows.append(Row("peak", 0, "flops", "half", {"width": width}, "unsupported", reason))
    return Run(header(("gemmbench", "peak")), tuple(rows), "peak.jsonl")


def parts(**seconds: float) -> dict[str, tuple[float, ...]]:
    """The host scope of three problems by part; the second took the median time."""
    seconds |= {WHOLE: sum(seconds.values())}
    return {name: (1.1 * part, part, 0.9 * part) for name, part in seconds.items()}


def fake_gemm() -> Run:
    """One problem, with passes, alpha and beta; one variant is wrong."""
    problem = Problem(1000, 700, 300, 1.5, 0.5)
    row = gemm_row("padded", problem, 151.0, parameters={"BM": 64, "BN": 64, "TM": 8})
    passes = ("pad A", "transpose B", "pad C", "multiply", "unpad C")
    multiply_s = row.samples["kernel"].seconds[0]  # the device scope is 1 % longer
    launches = tuple(
        Launch(name, 2e-6 * n, 1.3e-6, 1e-4 * n, multiply_s * (1 if name == "multiply" else 0.0025))
        for n, name in enumerate(passes, 1)
    )
    wrong = replace(
        bad("tiled", problem, "wrong", "residual 3.1 times the bound"),
        check=Check("wrong", {"residual_over_bound": 3.1}, ("residual 3.1 times the bound",)),
    )
    rows = (
        peak_row(1, 345.0),
        replace(
            row,
            parts=parts(upload=1e-3, enqueue=1e-4, passes=3e-4, kernel=2e-3, waiting=1e-4, download=7e-4),
            cycle=parts(
                map=2e-4, fill=6e-4, upload=1e-3, enqueue=1e-4, passes=3e-4, kernel=2.8e-3, download=2e-3
            ),
            launches=launches,
            notes=("two-humped samples: something else ran",),
        ),
        wrong,
        gemm_row("numpy", problem, 190.0, -1),
    )
    return Run(header(("gemmbench", "gemm", "-m", "1000")), rows, "gemm.jsonl")


def fake_workloads() -> Run:
    """Unrelated shapes: neither square nor one axis."""
    shapes = ((96, 3025, 363), (256, 729, 1200), (1000, 1, 4096), (512, 512, 512))
    rows = [peak_row(1, 345.0)]
    for variant, top in (("naive", 1.1), ("register", 240.0), ("numpy", 210.0)):
        for m, n, k in shapes:
            gflops = top * math.sqrt(min(m, n, k) / 512)
            where = -1 if variant == "numpy" else 0
            parameters: Parameters = {"BM": 64, "TM": 8} if variant == "register" else {}
            rows.append(gemm_row(variant, Problem(m, n, k), gflops, where, parameters=parameters))
    return Run(header(("gemmbench", "workloads")), tuple(rows), "work.jsonl")


# --- the whole ladder, for charts; not in ALL, for which there are golden tables ---------------------------

FAMILIES = {
    variant: family
    for family, names in {
        "first steps": "naive tiled coarse wide rect register register-wide subgroup prefetch padded",
        "mobile": "dot-v4 dot-v8 dot-v16 dotf-v8 dotf-v16 block2x2-v4 block2x2-v8 block4x4-v4 block4x4-v8",
        "vendor samples": "mali-sgemm image-4x8",
        "ours": "cpu-packed gpu-tile nv-async nv-mma nv-wgmma intel-block",
        "libraries": "numpy clblast cublas",
    }.items()
    for variant in names.split()
}
#                float GFLOPS far out, size at which half of it is reached
_TOPS = {
    "naive": (5200, 130), "tiled": (6500, 130), "coarse": (9100, 180), "wide": (11800, 200),
    "rect": (12600, 260), "register": (25500, 640), "register-wide": (31000, 640), "subgroup": (19000, 400),
    "prefetch": (33500, 620), "padded": (29000, 700), "dot-v4": (1500, 90), "dot-v8": (1390, 90),
    "dot-v16": (900, 90), "dotf-v8": (1320, 90), "dotf-v16": (870, 90), "block2x2-v4": (2780, 120),
    "block2x2-v8": (2500, 130), "block4x4-v4": (4600, 190), "block4x4-v8": (3900, 200),
    "mali-sgemm": (2100, 100), "image-4x8": (14800, 310), "cpu-packed": (1900, 150), "gpu-tile": (49500, 900),
    "nv-async": (53800, 950), "nv-mma": (310000, 1600), "nv-wgmma": (0, 1), "intel-block": (0, 1),
    "numpy": (3100, 350), "clblast": (20400, 500), "cublas": (50900, 800),
}  # fmt: skip
_SCALES = {"float": 1.0, "double": 0.52, "half": 1.9}


def _rung(variant: str, problem: Problem, dtype: str) -> Row:
    """A row of the whole ladder on a GPU: measured, or why not."""
    host = variant == "numpy"
    where = -1 if host else 0
    top, middle = _TOPS[variant]
    if variant == "intel-block":
        return bad(
            variant, problem, "unsupported", "needs cl_intel_subgroups, which this device lacks", 0, dtype
        )
    if (variant == "image-4x8" and dtype == "double") or (variant == "nv-wgmma" and dtype != "half"):
        return bad(variant, problem, "unsupported", f"not for {dtype}", 0, dtype)
    if host and dtype == "half":
        return bad(variant, problem, "unsupported", "the host's BLAS has no half", -1, dtype)
    if variant == "naive" and min(problem.m, problem.n, problem.k) >= 4096:
        return bad(variant, problem, "skipped", "would take about 19 s; --budget 20 runs it", 0, dtype)
    if variant == "nv-wgmma":
        top, middle = 480000, 2300
    size = (problem.m * problem.n * problem.k) ** (1 / 3)
    gflops = top * _SCALES[dtype] / (1 + (middle / size) ** 1.7)
    row = gemm_row(variant, problem, gflops, where, dtype, transfer=0.3)
    watts = (280 if host else 200 + 420 * min(1.0, gflops / 60000)) * 1e-9
    joules = watts * 2e9 * problem.m * problem.n * problem.k / (gflops * 1e9)
    if host:
        return replace(row, energy=Energy(None, "not measured: no permission to read RAPL", ""))
    return replace(row, energy=Energy(joules, "", "board"))


def _rungs(problems: Sequence[Problem], dtype: str) -> list[Row]:
    """The rows of a plan: kernels that cannot run have none."""
    rows = [_rung(variant, problem, dtype) for variant in _TOPS for problem in problems]
    return [row for row in rows if row.device < 0 or row.status != "unsupported"]


def _roofs(dtypes: Sequence[str], bandwidth: bool = True) -> list[Row]:
    rows = []
    for dtype in dtypes:
        rows.append(peak_row(1, {"float": 65990.0, "double": 32900.0, "half": 964000.0}[dtype], dtype=dtype))
    for probe, rate in (("global-read", 4.35e12), ("global-write", 3.9e12), ("global-copy", 4.1e12)):
        size = 1 << 32
        rows.append(probe_row("bandwidth", probe, {}, size / rate, Work(bytes=size)))
    return rows if bandwidth else [row for row in rows if row.kind == "peak"]


def fake_ladder(dtypes: Sequence[str] = ("float",), bandwidth: bool = True) -> Run:
    """Every kernel that is planned, on a GPU, with energy and roofs."""
    problems = [Problem(size, size, size) for size in (64, 128, 256, 512, 1024, 2048, 4096)]
    rows = _roofs(dtypes, bandwidth)
    rows += [row for dtype in dtypes for row in _rungs(problems, dtype)]
    return Run(header(("gemmbench", "square", "--max", "4096"), (GPU,)), tuple(rows), "ladder.jsonl")


def fake_ladder_k() -> Run:
    """The same over k, with m = n = 1024."""
    problems = [Problem(1024, 1024, k) for k in (64, 128, 256, 512, 1024, 2048)]
    rows = _roofs(("float",), bandwidth=False)
    rows += _rungs(problems, "float")
    return Run(header(("gemmbench", "sweep-k"), (GPU,)), tuple(rows), "ladder-k.jsonl")


SHAPES = {
    "alexnet conv1": (96, 3025, 363),
    "alexnet conv2": (256, 729, 1200),
    "alexnet conv3": (384, 169, 2304),
    "alexnet fc6": (4096, 1, 9216),
    "llama qkv, prompt": (6144, 2048, 4096),
    "llama up, prompt": (14336, 2048, 4096),
    "llama up, token": (14336, 1, 4096),
}


def fake_layers(dtypes: Sequence[str] = ("float",)) -> Run:
    """The whole ladder over layers of networks."""
    rows = _roofs(dtypes)
    for dtype in dtypes:
        for label, shape in SHAPES.items():
            rows += [replace(_rung(variant, Problem(*shape), dtype), label=label) for variant in _TOPS]
    return Run(header(("gemmbench", "workloads"), (GPU,)), tuple(rows), "layers.jsonl")


def fake_matrix_peak() -> Run:
    """A GPU with matrix units: more types than fit a pane, instructions without a width, one unsupported."""
    rows = []
    for dtype, top in (("float", 65900.0), ("double", 32900.0), ("half", 125000.0), ("bfloat16", 124000.0)):
        rows += [peak_row(width, top * (1 - width / 200), dtype=dtype) for width in (1, 2, 4, 8, 16)]
    for dtype, top in (("int", 33400.0), ("short", 33300.0), ("char", 33000.0)):
        rows += [peak_row(width, top * (1 - width / 200), dtype=dtype) for width in (1, 2, 4, 8, 16)]
    for probe, dtype, sums, top in (
        ("mma", "half", "float", 631000.0),
        ("mma", "half", "half", 640000.0),
        ("mma", "double", "double", 66400.0),
        ("mma", "char", "int", 1263000.0),
        ("wgmma", "half", "float", 830000.0),
        ("wgmma", "tf32", "float", 410000.0),
    ):
        for operands, share in (("random", 1.0), ("zeros", 1.16)):
            parameters: Parameters = {"shape": "m16n8k16", "accumulator": sums, "operands": operands}
            row = peak_row(1, top * share, dtype=dtype)
            rows.append(replace(row, variant=probe, parameters=parameters, ran_on="matrix"))
    parameters = {"extension": "cl_intel_subgroup_matrix_multiply_accumulate"}
    rows.append(Row("peak", 0, "dpas", "half", parameters, "unsupported", "the device does not list it"))
    return Run(header(("gemmbench", "peak"), (GPU,)), tuple(rows), "matrix.jsonl")


ALL = {
    "square": fake_square,
    "troubled": fake_troubled,
    "many": fake_many,
    "sweep-k": fake_sweep_k,
    "peak": fake_peak,
    "gemm": fake_gemm,
    "workloads": fake_workloads,
}
