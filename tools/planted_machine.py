"""The real machine with kernels that do more work: a regression to be found, in nothing that is shipped.

Each kernel's k-loop is preceded by a part of itself, whose sums the result never takes. How many turns more
a work-group makes is drawn by its number, so that on average it is the share that was planted, however few
turns the loop has. A share of nearly nothing plants the same text without a turn more: the other side.
"""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from pathlib import Path

import gemmbench
from gemmbench.measure import machine
from gemmbench.model import kernel_files

VARIANT, FILE = "naive", "gemm/01_naive.cl"
NOTHING = 1e-9  # of the work: no turn more, but no compiler knows
_HEAD = '#include "common.clh"\n'
_MORE = """
static inline int more_turns(int turns)
{{
    const uint group = (uint)(get_group_id(0) + get_group_id(1) * get_num_groups(0));
    return (int)((float)turns * (float){slow:.9f} + (float)((group * 2654435769u) >> 8) / 16777216.0f);
}}
"""


def _tiled(file: str, k: str, step: str, clear: str) -> tuple[str, str, str]:
    """Of a kernel whose loop walks along tiles: before the first it takes that tile some more times."""
    loop = f"    for (int p0 = 0; p0 < {k}; p0 += {step}) {{\n"
    more = f"""\
    for (int q0 = -{step} * more_turns(({k} + {step} - 1) / {step}); q0 < {k}; q0 += {step}) {{
        const int p0 = q0 < 0 ? 0 : q0;
        if (q0 == 0)
            {clear}
"""
    return file, loop, more


PLANTS = {
    #  by variant: file, what in it is replaced, by what
    VARIANT: (
        FILE,
        "    for (int p = 0; p < k; p++)\n        sum += a[p] * b[(size_t)p * ldb];\n",
        """\
    for (int q = -more_turns(k); q < k; q++) {
        const int p = q < 0 ? -q - 1 : q;
        sum = (q == 0 ? 0 : sum) + a[p] * b[(size_t)p * ldb];
    }
""",
    ),
    "tiled": _tiled("gemm/02_tiled.cl", "k", "TS", "sum = 0;"),
    "dot-v8": (
        "gemm/11_dot.cl",
        "    int p = k;\n    for (; p >= WIDTH; p -= WIDTH) {\n",
        """\
    int p = k + WIDTH * more_turns(k / WIDTH);
    for (; p >= WIDTH; p -= WIDTH) {
        if (p == k) {
            lanes = (VECTOR)(0);
            a = A + (size_t)row * lda;
            b = BT + (size_t)column * ldbt;
        }
""",
    ),
    "block2x2-v4": (
        "gemm/13_block2x2.cl",
        "    int p = 0;\n    for (; p + WIDTH <= k; p += WIDTH) {\n"
        "        const VECTOR x0 = LOAD(a0 + p), x1 = LOAD(a1 + p), y0 = LOAD(b0 + p), y1 = LOAD(b1 + p);\n",
        """\
    int p = -WIDTH * more_turns(k / WIDTH);
    for (; p + WIDTH <= k; p += WIDTH) {
        const int at = max(p, 0);
        if (p == 0)
            s00 = s01 = s10 = s11 = 0;
        const VECTOR x0 = LOAD(a0 + at), x1 = LOAD(a1 + at), y0 = LOAD(b0 + at), y1 = LOAD(b1 + at);
""",
    ),
    "block4x4-v4": (
        "gemm/14_block4x4.cl",
        """\
    int p = 0;
    for (; p + WIDTH <= k; p += WIDTH) {
        VECTOR y[4];
        #pragma unroll
        for (int j = 0; j < 4; j++)
            y[j] = LOAD(b[j] + p);
        #pragma unroll
        for (int i = 0; i < 4; i++) {
            const VECTOR x = LOAD(a[i] + p);
""",
        """\
    int p = -WIDTH * more_turns(k / WIDTH);
    for (; p + WIDTH <= k; p += WIDTH) {
        const int at = max(p, 0);
        VECTOR y[4];
        #pragma unroll
        for (int j = 0; j < 4; j++)
            y[j] = LOAD(b[j] + at);
        #pragma unroll
        for (int i = 0; i < 4; i++) {
            const VECTOR x = LOAD(a[i] + at);
            #pragma unroll
            for (int j = 0; j < 4; j++)
                sum[i][j] = p == 0 ? 0 : sum[i][j];
""",
    ),
    "coarse": _tiled(
        "gemm/03_coarse.cl", "k", "TS", "for (int w = 0; w < WPT; w++)\n                acc[w] = 0;"
    ),
}


def plant(folder: Path, shares: Mapping[str, float]) -> None:
    """Copy the kernels into a folder, some of `PLANTS` with so much more of their k-loops.

    Args:
        folder: does not exist yet.
        shares: by variant, 0.1: a tenth of its loop; the others stay as they are.

    Raises:
        ValueError: a kernel has no such loop any more.
    """
    shutil.copytree(kernel_files.folder(), folder)
    for variant, share in shares.items():
        file, loop, more = PLANTS[variant]
        source = (folder / file).read_text(encoding="utf-8")
        if source.count(loop) != 1:
            raise ValueError(f"{file} has another k-loop than the one to plant more work in")
        source = source.replace(loop, more).replace(_HEAD, _HEAD + _MORE.format(slow=share), 1)
        (folder / file).write_text(source, encoding="utf-8")


def make(now: str, before: str, checkout: str, cache: str) -> machine.OpenCLMachine:
    """What the child processes make: the kernels are those of a folder.

    Args:
        now: the folder.
        before: the folder of the process that runs the checkout's gemmbench.
        checkout: see there.
        cache: of the drivers.
    """
    is_other = Path(gemmbench.__file__).parents[1] == Path(checkout)
    kernel_files.folder = lambda: Path(before if is_other else now)  # type: ignore[assignment]  # plain, for a cached one
    return machine.caching(cache)
