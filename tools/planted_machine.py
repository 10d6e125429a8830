"""Plant a regression: a copy of the kernels in which `naive` does more work.

The k-loop first runs a part of itself and discards those sums. Each work-group draws its extra turns
from its group number. Their mean is the planted share, however few turns the loop has.
"""

from __future__ import annotations

import shutil
from pathlib import Path

from gemmbench.model import kernel_files

VARIANT, FILE = "naive", "gemm/01_naive.cl"
LOOP = "    for (int p = 0; p < k; p++)\n        sum += a[p] * b[(size_t)p * ldb];\n"
_MORE_LOOP = """\
    for (int q = -more_turns(k); q < k; q++) {
        const int p = q < 0 ? -q - 1 : q;
        sum = (q == 0 ? 0 : sum) + a[p] * b[(size_t)p * ldb];
    }
"""
_HEAD = '#include "common.clh"\n'
_MORE = """
static inline int more_turns(int turns)
{{
    const uint group = (uint)(get_group_id(0) + get_group_id(1) * get_num_groups(0));
    return (int)((float)turns * (float){share:.9f} + (float)((group * 2654435769u) >> 8) / 16777216.0f);
}}
"""


def plant(folder: Path, share: float) -> None:
    """Copy the kernels into a new folder, `naive` with more work: a share of 0.1 adds a tenth of its loop.

    Raises `ValueError` if the kernel no longer has the loop to change.
    """
    shutil.copytree(kernel_files.folder(), folder)
    path = folder / FILE
    source = path.read_text(encoding="utf-8")
    if source.count(LOOP) != 1:
        raise ValueError(f"{FILE} has another k-loop than the one to plant more work in")
    source = source.replace(LOOP, _MORE_LOOP).replace(_HEAD, _HEAD + _MORE.format(share=share), 1)
    path.write_text(source, encoding="utf-8")
