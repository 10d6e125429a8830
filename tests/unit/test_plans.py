"""What a problem gets on a device: launches, groups, buffers, and the parameters that a rule chooses.

`tests/golden/plans.txt` shows them for `PLANS`. The rules below hold for every kernel, device and problem.
"""

from __future__ import annotations

import math
import random
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import product

import pytest

from gemmbench.ladder import BY_NAME, LADDER
from gemmbench.ladder.variant import ParameterError, Pass, Variant, laid_out
from gemmbench.model.case import Skip
from gemmbench.model.device import DeviceFacts
from gemmbench.model.problem import Gemm, leading
from gemmbench.model.units import ceil_div
from gemmbench.suite import refusal
from gemmbench.suite.plan import gemm_plan
from tests.unit.test_plan import DEVICE

KIB, MIB = 1 << 10, 1 << 20
HOST = replace(DEVICE, global_mem_bytes=1 << 40, max_alloc_bytes=1 << 40, local_mem_bytes=256 * KIB)


def cpu(bits: int, cores: int, caches: tuple[int, ...], processor: str = "x86_64") -> DeviceFacts:
    """A made-up CPU: bits of its vectors, and bytes of its data caches by level."""
    return replace(
        HOST,
        compute_units=cores,
        vector_widths={"float": bits // 32, "double": bits // 64},
        data_caches=caches,
        cache_bytes=caches[1],
        last_level_cache_bytes=caches[-1],
        processor=processor,
    )


HOPPER = replace(
    HOST,
    type="gpu",
    platform="NVIDIA CUDA",
    compute_units=132,
    compute_capability=(9, 0),
    local_mem_bytes=48 * KIB,
    local_mem_emulated=False,
    unified_memory=False,
    max_work_group_size=1024,
    max_work_item_sizes=(1024, 1024, 64),
    extensions=("cl_khr_fp64", "cl_nv_device_attribute_query"),
)
TURING = replace(HOPPER, compute_capability=(7, 5), dtypes=("float", "double", "half"))
DEVICES = {
    "laptop": cpu(256, 2, (32 * KIB, 256 * KIB, 4 * MIB)),
    "server": cpu(512, 32, (48 * KIB, 2 * MIB, 60 * MIB)),
    "two-cores": cpu(512, 2, (48 * KIB, MIB, 32 * MIB)),
    "fewer-ways": cpu(512, 2, (32 * KIB, MIB, 32 * MIB)),
    "board": cpu(128, 4, (64 * KIB, 512 * KIB), "aarch64"),
    "sse": cpu(128, 4, (64 * KIB, 512 * KIB)),
    "small-local": replace(cpu(512, 32, (48 * KIB, 2 * MIB, 60 * MIB)), local_mem_bytes=32 * KIB),
    "says-nothing": replace(cpu(512, 2, (0, 1 * MIB, 48 * MIB)), vector_widths={}, data_caches=()),
    "hopper": HOPPER,
    "ampere": replace(HOPPER, compute_capability=(8, 6), compute_units=82),
    "blackwell": replace(HOPPER, compute_capability=(10, 0)),
    "turing": TURING,
    "with-half": replace(HOPPER, dtypes=("float", "double", "half")),
    "no-copies": replace(HOPPER, extensions=("cl_khr_fp64",)),
    "groups-of-256": replace(TURING, max_work_group_size=256),
    "groups-of-64": replace(TURING, max_work_group_size=64),
    "local-8-kib": replace(TURING, local_mem_bytes=8 * KIB),
    "local-24-kib": replace(TURING, local_mem_bytes=24 * KIB),
    "intel": replace(
        HOPPER,
        platform="Intel(R) OpenCL Graphics",
        compute_units=32,
        compute_capability=(0, 0),
        max_work_group_size=512,
        local_mem_bytes=64 * KIB,
        extensions=("cl_khr_fp16", "cl_intel_subgroups", "cl_intel_required_subgroup_size"),
        sub_group_sizes=(8, 16, 32),
    ),
}

# Kernel, device, and what is not float or preset; then problems: see `problem`.
# LAYOUTS are the four layouts of a problem with rows of 16 elements; "LAYOUTS tight": with tight ones.
PLANS = """
small hopper: 1; 64; 128; 256; 384; 512; 1000; 1024; 1024x1024x1025; 99x64x64; 64x63x64; 64x63x64 ld=64,64,63
small hopper: 64x64x63 ld=64,64,64; 8 batch=4096; 16 batch=4096; 32 batch=4096; 64 batch=4096
small hopper double: 64; 256; 512; 1000
small hopper half: 512
small with-half half: 64; 256; 512; 1000
small turing: 256; 512
small no-copies: 512
small groups-of-256: 256
small local-8-kib: 64; 256; 1024
small local-8-kib double: 1024
small local-24-kib: 256; 1024
small local-24-kib double: 1024
small local-24-kib half: 1024
small hopper ASYNC=1: 256
small hopper DIRECT=0: 256
small hopper BM=12 TN=16: 1024
thin hopper: 17x17x4096; 1x8192; 2x8192; 3x8192; 4x8192; 8x8192; 16x8192; 8192x1x8192; 8192x9x8192; 16x16x64
thin hopper: 100x50x64; 4x64x63; 4x63x64; 4x63x64 NT; 4x64x63 NT ld=64,64,64; 64x4x63 TN; 64x3x64
thin hopper: 64x4x63 ld=64,4,4; 16x8192 TT; 8192x16x8192 NT; 8192x16x8192 TN; 16x8191x8192; 8192x16x8190
thin hopper: 16x60x8192; 4x256x65536; 1x8192 NT; 8192x2x8192; 1024x1x8192; 8x1x8192 batch=4096; 8192x1x512
thin hopper: 4096x1x4096 TN; 1x2048x4096; 1x4096x8192; 1x6144x4096; 1x32x4096 batch=200; 1x4096x256; 1x4096
thin hopper: 2x4096; 1x128x768; 1x128x65536; 1x128x1048576; 1x128x1048576 batch=1000; 1x4096x14336
thin hopper: 1x8192x1024; 1x28672x4096; 1x512; 2x4096x14336; 16x4096x14336
thin hopper double: 8192x1x8192; 1x28672x4096
thin with-half half: 4x256x4096; 16x8192
thin turing: 16x8192
thin server: 1x128x1048576
thin groups-of-64: 1x8192
thin local-8-kib: 1x4096; 16x4096; 4096x1x4096; 4096x16x4096
thin local-8-kib double: 4096x16x4096
thin hopper LX=24: 1x1024x1024 batch=200
thin hopper LX=512: 1x1024x1024 batch=200
thin hopper WIDE=2: 1x4096
nv-thin hopper bfloat16: 1x28672x4096; 1x6144x4096; 16x4096x14336; 16x8192x1024; 16x1280x8192; 16x64x14336
nv-thin hopper bfloat16: 1x4096x4096
nv-thin hopper half: 4096x1x14336; 17x17x64; 4x64x63; 4x63x64; 4x63x64 NT; 4x64x63 NT ld=64,64,64; 64x4x63 TN
nv-thin hopper half: 64x4x64 ld=65,4,4; 1x28672x64; 16x28672x64; 5x99x64
gpu-tile hopper: 256; 256x256x255; 256x255x256; 256x255x255; 256x256x254 ld=256,256,256
gpu-tile hopper: 256x254x256 ld=256,256,256; LAYOUTS
nv-async hopper: 512; 1024; 1472; 1792; 2048; 2112; 2304; 3072; 4095; 4096; 8192; 4096 TN; 1x1x0
nv-async hopper: 128x8192x1024; 1024 batch=8; 128x128x65536; 128x128x64; 65536x128x4096; 65536x64x4096
nv-async hopper: 8192x100x8192; 65536x128x8192 TN; 8192x100x8192 TN; 8192x100x8192 batch=2; 40000x129x8192
nv-async hopper: 65536x130x4096; 1021x1024x1024; 4097; 4097x4100x4097; 4097x4161x4097; 4097x4096x4097
nv-async hopper: 4097x4097x64 batch=2; 64x256x64; 64x257x64; 63x64x33; 65x4096x1; 4100x4096 TN
nv-async hopper: 4100x4096 TN ld=4128,4096,4096; 9x5x7 TN; LAYOUTS
nv-async hopper double: 4096; 4097x4097x64
nv-async hopper half: 64
nv-async hopper BN=64: 4096; 8192x100x8192
nv-async hopper BK=16: 4096; 8192x100x8192
nv-async hopper BN=128: 4096
nv-async hopper BN=256: 4096
nv-async hopper TM=8 BN=128: 4096
nv-async hopper REGISTERS=168: 4096
nv-async ampere: 4096
nv-async turing: 4096
nv-mma hopper half: 5x64x48; 5x64x49; 5x64x49 ld=64,64,64; 5x65x48; 5x9x7; 300x257x64; 4096
nv-mma hopper tf32: 5x32x24; 5x32x25; 5x33x24; LAYOUTS
nv-mma hopper char: 5x64x48; 5x64x49; 5x65x48; 5x16x7; LAYOUTS
nv-mma hopper double: 5x16x12; 5x16x13; 5x17x12; 1024; 2048; 4096; LAYOUTS
nv-mma hopper: 64
nv-mma hopper bfloat16: LAYOUTS
nv-mma hopper double BN=64: 4096
nv-mma hopper half STAGES=8 BM=128 BN=256 ROW=64 WM=64 WN=64: 64
nv-mma hopper tf32 STAGES=8 BM=128 BN=256 ROW=64 WM=64 WN=64: 64
nv-mma hopper char STAGES=8 BM=128 BN=256 ROW=64 WM=64 WN=64: 64
nv-mma hopper double STAGES=8 BM=128 BN=256 ROW=64 WM=64 WN=64: 64
nv-mma hopper half STAGES=10 BM=128 BN=256 ROW=64 WM=64 WN=64: 64
nv-mma hopper double STAGES=10 BM=128 BN=256 ROW=64 WM=64 WN=64: 64
nv-mma ampere half: 64
nv-mma ampere double: 64
nv-mma turing half: 64
nv-mma intel half: 64
nv-wgmma hopper half: 64; 512; 1024; 2048; 3072; 3328; 4096; 8192; 300x200x64; 64x64x1048576
nv-wgmma hopper half: 64x128x1048576 batch=2; 64x128x1048576 batch=20; 100x64x72; 100x64x71
nv-wgmma hopper half: 100x64x71 ld=72,64,64; LAYOUTS
nv-wgmma hopper bfloat16: 128x1280x8192; 128x4096x14336; 128x4096; 128x8192x1024; 2048x4096; 100x63x72
nv-wgmma hopper double: 64
nv-wgmma hopper tf32: 100x63x64; LAYOUTS
nv-wgmma hopper char: 100x63x64; LAYOUTS
nv-wgmma hopper e4m3: 100x63x64
nv-wgmma hopper e5m2-half: 100x63x64
nv-wgmma hopper half GROUPS=132: 3328
nv-wgmma hopper half BM=64 BN=128 STAGES=3: 4096
nv-wgmma hopper half STAGES=6: 4096
nv-wgmma ampere half: 512
nv-wgmma blackwell half: 512
cpu-packed laptop: 64; 1024; 4096; 2048 TN; 4096x2048x4096; 12x64x8192; 24x110x2596; 8x4096; 9x4096; 6x16x8192
cpu-packed laptop: 1x4096x512; 4096x8192x16; 1x1048576x4096; 1x4096x16
cpu-packed laptop double: 64; 4096
cpu-packed laptop half: 4096
cpu-packed laptop bfloat16: 4096
cpu-packed laptop char: 4096
cpu-packed server: 64; 256; 512; 512 batch=64; 4096; 8x4096x512; 8x4096x512 NT; 1x4096x64; 1x4096; 4096x1x4096
cpu-packed server: 1x1x64; 1x4096x64 NT; 4096x1x64 TN; 12x64x8192; 12x64x8192 batch=64; 1024x1024x2049
cpu-packed server: 6x16x100; 1x14336x4096; 64x64x512
cpu-packed server double: 64; 4096
cpu-packed server bfloat16: 64x64x512
cpu-packed server char: 64x64x512
cpu-packed server DEPTH=16: 1x1048576x4096
cpu-packed board: 64; 256; 4096
cpu-packed board double: 64; 4096
cpu-packed board char: 4096
cpu-packed sse: 64
cpu-packed small-local: 64
cpu-packed says-nothing: 64
cpu-packed two-cores: 256; 300x250x256; 300x256x256 ld=256,260,256; 1024; 256 NT; 96x3025x363; 192x169x1728
cpu-packed two-cores: 96x4096x512; 300x3025x363; 1000x1000x7
cpu-packed two-cores double: 1024; 4096
cpu-packed fewer-ways: 256
naive hopper: LAYOUTS tight
tiled hopper: LAYOUTS tight
rect hopper: LAYOUTS tight
dot-v4 hopper: LAYOUTS tight
padded hopper: LAYOUTS tight
padded hopper FUSED=1: 5x6x7
padded-fused hopper: LAYOUTS tight
padded-160x160 hopper: 1000
padded-160x160 hopper double: 1000
image-4x8 hopper: 1x3x32; 8x64x32; 60x100x32; 4096x4096x32; 300x5x7
buffer-4x8 hopper: 1x3x32; 8x64x32; 60x100x32; 4096x4096x32; 300x5x7
"""


def problem(words: str, dtype: str = "float") -> Gemm:
    """``MxNxK`` (the last length stands for those that are missing), then NT, batch=5 and ld=16,16,16."""
    shape, *rest = words.split()
    lengths = [*map(int, shape.split("x"))]
    m, n, k = lengths + lengths[-1:] * (3 - len(lengths))
    ops = next((word for word in rest if "=" not in word), "NN")
    options = dict(word.split("=") for word in rest if "=" in word)
    a, b = (op == "T" for op in ops)
    lda, ldb, ldc = map(int, options.get("ld", "0,0,0").split(","))
    ld = leading(m, n, k, lda, ldb, ldc, a, b) if "ld" in options else None
    return Gemm(m, n, k, dtype, ld=ld, trans_a=a, trans_b=b, batch=int(options.get("batch", 1)))


@dataclass(frozen=True)
class Planned:
    """What a problem gets: the kernel as it is laid out, and the values that formulas use."""

    variant: Variant
    values: Mapping[str, int]
    full: Mapping[str, int]  # parameters, those that a rule chose included
    chosen: Mapping[str, int]

    @property
    def steps(self) -> list[Pass]:
        """The launches that have work-items."""
        return [step for step in self.variant.steps(self.values) if 0 not in step.items(self.values)]

    @property
    def kernels(self) -> list[str]:
        return [step.kernel for step in self.steps]


def planned(
    name: str, problem: Gemm, device: DeviceFacts = HOPPER, given: Mapping[str, int] | None = None
) -> Planned | str:
    """What a kernel launches; the status and the reason if it does not run."""
    (step,) = gemm_plan([device], [BY_NAME[name]], [problem], given or {})
    if isinstance(step, Skip):
        return f"{step.row.status}: {step.row.reason}"
    variant = laid_out(BY_NAME[name], problem)
    chosen = variant.chosen(problem, device, step.numbers)
    full = {**step.numbers, **chosen}
    return Planned(variant, variant.values(problem, full), full, chosen)


def values(name: str, problem: Gemm, device: DeviceFacts = HOPPER, **given: int) -> Mapping[str, int]:
    """The values of a problem that a kernel runs."""
    made = planned(name, problem, device, given)
    assert isinstance(made, Planned), made
    return made.values


@pytest.fixture(autouse=True)
def _enough_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(refusal, "free_memory_bytes", lambda: 1 << 50)


def described(made: Planned | str, problem: Gemm) -> str:
    """A line of the golden file."""
    if isinstance(made, str):
        return made
    known = {*made.full, "m", "n", "k", "batch", "lda", "ldb", "ldc", "itemsize", "ta", "tb"}
    known |= {"rows_a", "columns_a", "rows_b", "columns_b"}
    derived = {name: value for name, value in made.values.items() if name not in known}
    shown = made.full if made.variant.parameters.derive else made.chosen
    numbers = " ".join(f"{name}={value}" for name, value in {**shown, **derived}.items())
    declared = {name: value for name, value in made.full.items() if name in made.variant.parameters}
    defines = {f"-D{name}={value}" for name, value in declared.items()}
    options = [
        word
        for word in made.variant.options(problem.dtype, declared)
        if word not in {*defines, "-DREAL_float"}
    ]

    def sides(sides: tuple[int, ...]) -> str:
        return "x".join(map(str, sides))

    buffers = {*"ABC", *made.variant.launches.temporaries, *made.variant.launches.images}
    launches = []
    for step in made.steps:
        matrices = ",".join(name for name in step.arguments if name in buffers)
        size = f"{sides(step.items(made.values))}/{sides(step.group(made.values))}"
        launches.append(f"{step.kernel}({matrices}) {size}")
    local = made.variant.local_bytes(problem.dtype, made.full)
    held = made.variant.temporary_bytes(problem, made.full).items()
    room = [f"local {local}"] * (local > 0) + [f"{name} {size}" for name, size in held if size]
    return " | ".join(filter(None, (numbers, ", ".join(launches), ", ".join(room), " ".join(options))))


def test_what_problems_get(golden: Callable[[str, str], None]) -> None:
    lines = []
    for entry in (
        PLANS.replace("LAYOUTS tight", layouts())
        .replace("LAYOUTS", layouts(" ld=16,16,16"))
        .strip()
        .splitlines()
    ):
        head, _, problems = entry.partition(": ")
        name, device, *more = head.split()
        lines += [head] * (head not in lines)
        given = {key: int(value) for key, sign, value in (word.partition("=") for word in more) if sign}
        dtype = next((word for word in more if "=" not in word), "float")
        for words in problems.split("; "):
            each = problem(words, dtype)
            lines.append(f"  {words}: {described(planned(name, each, DEVICES[device], given), each)}")
    golden("plans.txt", "\n".join(lines))


def layouts(rest: str = "") -> str:
    return "; ".join(f"9x5x7 {ops}{rest}" for ops in ("NN", "NT", "TN", "TT"))


# --- what holds for all of them -----------------------------------------------------------------------------

SHAPES = (
    *("1", "1x1x0", "7x5x3", "64", "100x50x64", "97x131x70", "255x257x129", "512", "1000x1x1000", "1x1000"),
    *("16x4096x64", "4097x100x33", "4096", "128x128x65536", "12x64x8192", "300x3025x363", "2112", "4097"),
    *("33 TT", "100x64x71 NT", "63x64x65 TN", "64 batch=5", "8x1x512 batch=40", "9x5x7 TT ld=16,16,16"),
)


LIMITED = ("naive", "tiled", "small", "thin")  # where no preset fits, a large space takes seconds to search


def everything(name: str) -> Iterator[tuple[str, Gemm, Planned]]:
    """A kernel's plans for some devices, shapes and data types: the same ones in every run."""
    devices = [device for device in DEVICES if not (re.search("groups|local", device)) or name in LIMITED]
    every = [*product(devices, SHAPES, BY_NAME[name].needs.dtypes)]
    for device, shape, dtype in random.Random(name).sample(every, min(40, len(every))):
        each = problem(shape, dtype)
        made = planned(name, each, DEVICES[device])
        if isinstance(made, Planned):
            yield device, each, made
        else:
            assert re.fullmatch(r"(unsupported|skipped): .+", made), (name, device, shape, dtype)


@pytest.mark.parametrize("name", [*LADDER, *(each for each in BY_NAME if each.startswith("padded-"))])
def test_a_plan_covers_c_fits_the_device_and_names_what_exists(name: str) -> None:
    """For example, no launch is empty, no group is too large, and every pass has its operands."""
    plans = 0
    for device, each, made in everything(name):
        plans += 1
        facts, known, where = DEVICES[device], made.values, (device, each)
        variant, steps = made.variant, made.steps
        declared = {key: value for key, value in made.full.items() if key in variant.parameters}
        assert not variant.broken(declared, each.dtype), where
        assert variant.local_bytes(each.dtype, made.full) <= variant.needs.local_limit(facts), where
        held = variant.temporary_bytes(each, made.full) if each.k else {}
        names = {*known, *variant.launches.temporaries, *variant.launches.images, *"ABC", "alpha", "beta"}
        for step in steps:
            assert {*step.arguments} <= names, (where, step)
            assert all(held.get(argument, 1) > 0 for argument in step.arguments if step.role != "multiply"), (
                where
            )
            group = step.group_within(known, facts.max_work_group_size, facts.max_work_item_sizes)
            assert 1 <= math.prod(group) <= facts.max_work_group_size, (where, step)
            assert all(side <= most for side, most in zip(group, facts.max_work_item_sizes, strict=False)), (
                where
            )
        multiplying = [step for step in steps if step.role == "multiply"]
        assert multiplying, where
        tile = variant.tile_of(made.full)
        if tile and len(multiplying) == 1:
            (step,) = multiplying
            groups = math.prod(map(ceil_div, step.items(known), step.group(known)))
            persistent = "GROUPS" in known  # a group makes several tiles
            tiles = ceil_div(each.m, tile[0]) * ceil_div(each.n, tile[1]) * each.batch
            assert persistent or groups >= tiles, (where, step)
    assert plans or name in ("cpu-amx", "cpu-vnni", "intel-block"), "no device runs it"


def test_groups_that_wait_for_each_other_all_run_at_once() -> None:
    """Else those that run would wait for ever."""
    shared = [(each, made.values) for _, each, made in everything("nv-wgmma") if made.values["PARTS"] > 1]
    shared += [
        (each, values("nv-wgmma", each))
        for each in (Gemm(64, 128, 1 << 20, "half", batch=batch) for batch in (1, 2, 20))
    ]
    assert all(each.batch * known["GROUPS"] <= HOPPER.compute_units for each, known in shared)


@pytest.mark.parametrize(
    ("name", "dtype", "given", "sentence"),
    [
        ("register", "float", {"TM": 7}, "BM must be a multiple of TM"),
        ("register", "float", {"BOGUS": 7}, "no parameter BOGUS"),
        ("register", "float", {"BK": 0}, "1 or more"),
        ("padded", "float", {"WIDTH": 4, "TM": 10, "BM": 160}, "TM must be a multiple of WIDTH"),
        ("padded", "float", {"WIDTH": 4, "BK": 2}, "BK must be a multiple of WIDTH, so that loads are whole"),
        ("padded", "float", {"FUSED": 2}, r"FUSED is 0 .* or 1"),
        ("dot-v4", "float", {"POINTERS": 2}, r"POINTERS is 1 .* or 0"),
        ("nv-async", "float", {"BM": 128, "BN": 128, "BK": 24, "TM": 8, "TN": 16}, "BK must be 16 at most"),
        ("nv-async", "float", {"BM": 48, "BN": 32, "BK": 8, "TM": 12, "TN": 4, "LX": 8}, "of 256"),
        ("nv-async", "float", {"WIDTH": 2, "PAD": 4}, "a copy moves 16 bytes"),
        ("nv-async", "double", {"WIDTH": 4, "PAD": 4}, "a copy moves 16 bytes"),
        ("nv-mma", "half", {"WM": 48}, "WM must be a multiple of 32"),
        ("nv-mma", "half", {"WM": 64, "WN": 24}, "WN must be a multiple of 16"),
        ("nv-mma", "half", {"BM": 96, "WM": 64, "WN": 64}, "BM must be a multiple of WM"),
        ("nv-mma", "half", {"BN": 96, "WN": 32}, "BN must be a multiple of 64"),
        ("nv-mma", "half", {"ROW": 48}, "ROW must be 32, 64 or 128"),
        ("nv-mma", "half", {"BN": 192}, "powers of two"),
        ("nv-mma", "half", {"BM": 64, "BN": 64, "WM": 64, "WN": 64}, "two warps or more"),
        ("nv-mma", "half", {"STAGES": 1}, "STAGES must be 2 or more"),
        ("nv-mma", "double", {"ROW": 32}, "ROW must be 64 or 128 for double"),
        ("nv-wgmma", "half", {"BN": 160}, "BN 64, 128, 192 or 256"),
        ("nv-wgmma", "half", {"BM": 96}, "BM must be 64, 128 or 256"),
        ("nv-wgmma", "half", {"BM": 256, "BN": 256, "STAGES": 2}, "sums must fit in registers"),
        ("nv-wgmma", "half", {"BM": 128, "BN": 256, "STAGES": 4}, "must fit in 225 KiB"),
        ("cpu-packed", "float", {"PANELS": 2000}, "PANELS must be at most DEPTH"),
        ("cpu-packed", "char", {"DEPTH": 1025}, "DEPTH must be at most 1024 for char"),
    ],
)
def test_parameters_that_a_kernel_cannot_have_are_refused_in_a_sentence(
    name: str, dtype: str, given: dict[str, int], sentence: str
) -> None:
    device = DEVICES["server"] if name == "cpu-packed" else HOPPER
    with pytest.raises(ParameterError, match=sentence):
        BY_NAME[name].preset(device.family, given, dtype, device)
