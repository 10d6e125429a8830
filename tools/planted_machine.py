"""The real machine with one kernel that does more work: a regression to be found, in nothing that is shipped.

The naive kernel's k-loop is followed by a part of itself, whose sum the result never takes. The kernels are
read from a folder of the caller's, which `plant` writes; the fingerprint in the rows stays the shipped one's,
since the parent computes it.
"""

from __future__ import annotations

import shutil
from pathlib import Path

from gemmbench.measure import machine
from gemmbench.model import kernel_files

VARIANT, FILE = "naive", "gemm/01_naive.cl"
_LOOP = """\
    for (int p = 0; p < k; p++)
        sum += a[p] * b[(size_t)p * ldb];
"""
_MORE = """\
    REAL more = 0;
    for (int p = 0; p < (int)(k * {slow}f); p++)
        more += a[p] * b[(size_t)p * ldb];
    if (more == (REAL)1.25e37f) /* never, but no compiler knows */
        sum = more;
"""


def plant(folder: Path, slow: float) -> None:
    """Copy the kernels into a folder, the naive one with so much more of its k-loop.

    Args:
        folder: does not exist yet.
        slow: 0.1: a tenth.

    Raises:
        ValueError: the kernel has no such loop any more.
    """
    shutil.copytree(kernel_files.folder(), folder)
    source = (folder / FILE).read_text(encoding="utf-8")
    if source.count(_LOOP) != 1:
        raise ValueError(f"{FILE} has another k-loop than the one to plant more work in")
    (folder / FILE).write_text(source.replace(_LOOP, _LOOP + _MORE.format(slow=slow)), encoding="utf-8")


def make(folder: str) -> machine.OpenCLMachine:
    """What the child process makes: the kernels are those of a folder."""
    kernel_files.folder = lambda: Path(folder)  # type: ignore[assignment]
    return machine.default()
