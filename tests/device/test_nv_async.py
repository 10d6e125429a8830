"""nv-async with tiles cut along k; where a device has no cp.async, plain copies stand in for it."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import partial

import pytest

from gemmbench.gemm.opencl import GemmExecutor
from gemmbench.ladder import BY_NAME
from gemmbench.ladder.variant import laid_out
from gemmbench.model import kernel_files
from gemmbench.model.device import DeviceFacts
from gemmbench.model.problem import Gemm
from gemmbench.opencl import runtime as runtime_module
from gemmbench.opencl.runtime import Runtime
from tests.device.conftest import exact_error

pytestmark = pytest.mark.usefixtures("unoptimized")

VARIANT = BY_NAME["nv-async"]
FILE = "gemm/19_nv_async.cl"

COPY = """
    for (int i = 0; i < 16 / (int)sizeof(REAL); i++)
        to[i] = i * (int)sizeof(REAL) < bytes ? from[i] : 0;
"""

TILE = {"BM": 32, "BN": 32, "BK": 8, "TM": 4, "TN": 4, "PAD": 4, "LX": 8, "BAND": 2, "REGISTERS": 0}
#   WHOLE, PARTS     m   n   k
CUTS = [
    ((0, 3), (37, 66, 50)),  # 7 tiles along k: parts of 3, 3 and 1, which has 2 elements
    ((0, 3), (32, 32, 48)),
    ((0, 3), (5, 9, 32)),  # nothing left for the last part
    ((0, 3), (9, 35, 3)),
    ((0, 3), (33, 3, 0)),
    ((0, 1), (33, 38, 25)),
    ((2, 2), (66, 61, 45)),  # small tiles: two whole, four cut; rows of C start at multiples of a vector
    ((5, 5), (66, 60, 95)),
    ((0, 2), (130, 70, 131)),
    ((2, 2), (194, 130, 131)),
]
BATCHED = [((0, 1), (37, 61, 50)), ((0, 1), (33, 65, 20))]
NARROW = [  # n past whole tiles by 1 to 4
    ((0, 3), (37, 65, 50)),
    ((0, 3), (1, 66, 33)),
    ((2, 2), (66, 67, 45)),  # of double more than a vector: tiles as ever
    ((5, 5), (66, 68, 95)),
    ((4, 2), (194, 130, 131)),
    ((9, 1), (97, 129, 300)),
    ((0, 1), (33, 65, 0)),
    ((0, 1), (40, 3, 70)),  # no tiles
    ((0, 1), (66, 64, 95)),
    ((0, 2), (33, 71, 33)),
]
THREE = {"BM": 96, "BN": 64, "BK": 32, "TM": 12, "TN": 8, "PAD": 0, "LX": 8}  # segments of a row of A
WIDE = {"BM": 64, "BN": 128, "BK": 8, "TM": 8, "TN": 16, "PAD": 0, "LX": 4}  # A by elements, without a pass
TALL = {**WIDE, "BM": 128, "BN": 64, "TM": 16, "TN": 8}
LINES = {"BM": 64, "BN": 32, "BK": 16, "TM": 8, "TN": 8, "PAD": 0, "LX": 4}  # the odd part of k first
SIZES = [
    ("float", {"WIDTH": 4, "STAGES": 2}),
    ("double", {"WIDTH": 2, "STAGES": 3}),
    ("float", {**THREE, "WIDTH": 4, "STAGES": 2}),
    ("float", {**WIDE, "WIDTH": 4, "STAGES": 3}),
    ("float", {**TALL, "WIDTH": 4, "STAGES": 3}),
    ("float", {**LINES, "WIDTH": 4, "STAGES": 4}),
]
IDS = ["float", "double", "three", "wide", "tall", "lines"]

Edit = Callable[[str], str]


def copied_plainly(source: str) -> str:
    """The kernel without instructions of NVIDIA's; there is a barrier before what is copied is read."""
    whole = r'asm volatile\("cp\.async\.cg[^;]*, 16;" ::.*?;'  # vectors; where a kernel copies such
    source = re.sub(whole, "copy_async(to, from, 16);", source)
    elements = r'asm volatile\("cp\.async\.ca[^;]*, {};" ::.*?;'  # likewise of one element
    source = re.sub(elements.format("4"), "copy_element(to, from, 4);", source)
    source = re.sub("(?s)" + elements.format("4, %2"), "*to = bytes ? *from : 0;", source)
    source, copies = re.subn(r'(?s)asm volatile\("cp\.async\.cg[^;]*;" ::.*?"memory"\);', COPY, source)
    source, groups = re.subn(r"(#define (?:COMMIT|WAIT_FOR_ALL_BUT\(groups\))) asm .*", r"\1", source)
    assert (copies, groups) == (1, 2)
    return source


def answers(
    device: DeviceFacts,
    dtype: str,
    sizes: dict[str, int],
    monkeypatch: pytest.MonkeyPatch,
    edit: Edit = str,
    like: Gemm | None = None,
) -> list[str]:
    """What is wrong with each exact problem, multiplied as another one is, or ""."""
    like = like or Gemm(4096, 4096, 4096, dtype)
    if dtype not in device.dtypes:
        pytest.skip(f"the device has no {dtype}")
    plainly = copied_plainly if VARIANT.needs.lacks(device, dtype) else str
    text, variant = kernel_files.text, laid_out(VARIANT, like)
    edited = variant.launches.passes[-1].file  # of columns past the tiles, where there are such

    def replaced(file: str, root: str) -> str:
        whole = edit(text(file, root)) if file == edited else text(file, root)
        return plainly(whole) if file == FILE else whole

    monkeypatch.setattr(runtime_module, "text", replaced)

    executor = GemmExecutor(Runtime(device))
    parameters = variant.preset(device.family, {**TILE, **sizes}, dtype)
    programs = executor.programs(variant, dtype, parameters)
    found = []
    for (whole, parts), shape in BATCHED if like.batch > 1 else NARROW if like.n % 128 else CUTS:
        m, n, _ = shape
        past = variant.chosen(Gemm(*shape, dtype), device, parameters).get("EDGE", 0)
        tiles = -(-m // parameters["BM"]) * -(-(n - past) // parameters["BN"])
        cuts = {"WHOLE": tiles if like.batch > 1 else max(0, min(whole, tiles - 1)), "PARTS": parts}
        bind = partial(executor.bind, variant, {**parameters, **cuts}, programs)
        for scalars in ((2.0, -1.0), (1.0, 0.0)):
            problem = Gemm(*shape, dtype, *scalars, trans_b=like.trans_b, batch=like.batch)
            found.append(exact_error(executor, problem, bind))
    return found


@pytest.mark.parametrize(("dtype", "sizes"), SIZES, ids=IDS)
def test_exact_with_tiles_cut_along_k(
    device: DeviceFacts, dtype: str, sizes: dict[str, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """With ldc > n, and NaN in C where beta is 0."""
    assert set(answers(device, dtype, sizes, monkeypatch)) == {""}


@pytest.mark.parametrize("trans_b", [False, True])
@pytest.mark.parametrize("sizes", [SIZES[0], SIZES[3]], ids=["float", "wide"])
def test_a_batch_is_exact_with_b_stored_either_way(
    device: DeviceFacts, sizes: tuple[str, dict[str, int]], trans_b: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The pass over a B that is stored transposed leaves k rows for each problem, not n."""
    like = Gemm(64, 64, 64, trans_b=trans_b, batch=3)
    assert set(answers(device, *sizes, monkeypatch, like=like)) == {""}


@pytest.mark.parametrize(
    ("dtype", "sizes", "trans_b"),
    [(*size, index % 2 == 1) for index, size in enumerate(SIZES)] + [(*SIZES[0], True)],
)
def test_exact_with_columns_past_the_tiles(
    device: DeviceFacts, dtype: str, sizes: dict[str, int], trans_b: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    like = Gemm(4096, 4097, 4096, dtype, trans_b=trans_b)
    assert set(answers(device, dtype, sizes, monkeypatch, like=like)) == {""}


LIKE = Gemm(4096, 4097, 4096)  # has columns past the tiles


@pytest.mark.parametrize(
    ("like", "old", "new"),
    [
        (LIKE, "for (int p = 0; p < COLUMNS; p++)", "for (int p = 0; p < COLUMNS - 1; p++)"),
        (LIKE, "ldb + first + y]", "ldb + first]"),
        (LIKE, "+ j) * ldq + row", ") * ldq + row"),
        (LIKE, "for (int t = 1; t < AT_ONCE; t++)", "for (int t = 2; t < AT_ONCE; t++)"),
        (LIKE, "*c = beta == 0 ? alpha * sum :", "*c ="),
        (None, "p < parts; p++", "p < parts - 1; p++"),
        (None, "(group - whole) % parts * depth", "(group - whole) / parts * depth"),
        (None, "corner(whole + tile, m, n)", "corner(tile, m, n)"),
        (None, "ldc % WIDTH == 0, alpha, beta", "ldc % WIDTH == 0, 1, beta"),
        (None, "scale = cut ? 1 : alpha", "scale = alpha"),
    ],
)
def test_broken_columns_past_the_tiles_and_broken_cuts_are_caught(
    device: DeviceFacts, like: Gemm | None, old: str, new: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(source: str) -> str:
        assert old in source
        return source.replace(old, new)

    dtype, sizes = SIZES[0]
    assert any(answers(device, dtype, sizes, monkeypatch, broken, like))
