"""nv-async with tiles cut along k; where a device has no cp.async, plain copies stand in for it."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import partial

import pytest

from gemmbench.gemm.opencl import GemmExecutor
from gemmbench.ladder import BY_NAME
from gemmbench.model import kernel_files
from gemmbench.model.device import DeviceFacts
from gemmbench.model.problem import Gemm
from gemmbench.opencl import runtime as runtime_module
from gemmbench.opencl.runtime import Runtime

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
THREE = {"BM": 96, "BN": 64, "BK": 32, "TM": 12, "TN": 8, "PAD": 0, "LX": 8}  # segments of a row of A
WIDE = {"BM": 64, "BN": 64, "BK": 8, "TM": 8, "TN": 16, "PAD": 0, "LX": 4}
SIZES = [
    ("float", {"WIDTH": 4, "STAGES": 2}),
    ("double", {"WIDTH": 2, "STAGES": 3}),
    ("float", {**THREE, "WIDTH": 4, "STAGES": 2}),
    ("float", {**WIDE, "WIDTH": 4, "STAGES": 3}),
]

Edit = Callable[[str], str]


def copied_plainly(source: str) -> str:
    """The kernel without instructions of NVIDIA's; there is a barrier before what is copied is read."""
    whole = r'asm volatile\("cp\.async\.cg[^;]*, 16;" ::.*?;'  # vectors; where a kernel copies such
    source = re.sub(whole, "copy_async(to, from, 16);", source)
    source, copies = re.subn(r'(?s)asm volatile\("cp\.async\.cg[^;]*;" ::.*?"memory"\);', COPY, source)
    source, groups = re.subn(r"(#define (?:COMMIT|WAIT_FOR_ALL_BUT\(groups\))) asm .*", r"\1", source)
    assert (copies, groups) == (1, 2)
    return source


def answers(
    device: DeviceFacts, dtype: str, sizes: dict[str, int], monkeypatch: pytest.MonkeyPatch, edit: Edit = str
) -> list[str]:
    """What is wrong with each exact problem, or ""."""
    if dtype not in device.dtypes:
        pytest.skip(f"the device has no {dtype}")
    assert VARIANT.lacks
    plainly = copied_plainly if VARIANT.lacks(device, dtype) else str
    text = kernel_files.source
    changed = edit(text(FILE))

    def replaced(file: str, options: tuple[str, ...], root: str) -> str:
        return plainly(changed) if file == FILE else text(file, options, root)

    monkeypatch.setattr(runtime_module, "source", replaced)

    executor = GemmExecutor(Runtime(device))
    parameters = VARIANT.preset(device.family, {**TILE, **sizes}, dtype)
    programs = executor.programs(VARIANT, dtype, parameters)
    found = []
    for (whole, parts), shape in CUTS:
        m, n, _ = shape
        tiles = -(-m // parameters["BM"]) * -(-n // parameters["BN"])
        cuts = {"WHOLE": min(whole, tiles - 1), "PARTS": parts}
        bind = partial(executor.bind, VARIANT, {**parameters, **cuts}, programs)
        for scalars in ((2.0, -1.0), (1.0, 0.0)):
            found.append(executor.exact_run(Gemm(*shape, dtype, *scalars), bind))
    return found


@pytest.mark.parametrize(("dtype", "sizes"), SIZES, ids=["float", "double", "three", "wide"])
def test_exact_with_tiles_cut_along_k(
    device: DeviceFacts, dtype: str, sizes: dict[str, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """With ldc > n, and NaN in C where beta is 0."""
    assert set(answers(device, dtype, sizes, monkeypatch)) == {""}


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("p < parts; p++", "p < parts - 1; p++"),
        ("(group - whole) % parts * depth", "(group - whole) / parts * depth"),
        ("corner(whole + tile, m, n)", "corner(tile, m, n)"),
        ("ldc % WIDTH == 0, alpha, beta", "ldc % WIDTH == 0, 1, beta"),
        ("scale = cut ? 1 : alpha", "scale = alpha"),
    ],
)
def test_a_broken_cut_is_caught(
    device: DeviceFacts, old: str, new: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(source: str) -> str:
        assert old in source
        return source.replace(old, new)

    dtype, sizes = SIZES[0]
    assert any(answers(device, dtype, sizes, monkeypatch, broken))
