"""gemmbench: how fast an OpenCL device really is at matrix multiplication.

    import gemmbench as gb

    run = gb.square(max=2048, device="intel", kernels="best", save="run.jsonl")
    run.show()
    rows = run.records()

Functions are the command line's commands, keyword arguments its options. What they need is imported when
one of them is used: importing gemmbench takes no time.
"""

from __future__ import annotations

import sys
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:  # rooms have some of these names: a type checker must take the functions
    from gemmbench.api import (  # isort: skip
        Run, check, compare, devices, doctor, gemm, load, new_kernel, peak,
        report, schema, square, sweep_k, tune, workloads,
    )  # fmt: skip

__version__ = "0.1.0"

__all__ = [
    "NothingMeasured", "Run", "UsageError", "check", "compare", "devices", "doctor",
    "gemm", "load", "new_kernel", "peak", "report", "schema", "square",
    "sweep_k", "tune", "workloads",
]  # fmt: skip


class UsageError(Exception):
    """What the caller can put right: an argument, a file, a device that is not there. One sentence."""


class NothingMeasured(Exception):  # noqa: N818  the name that the API promises
    """No case gave a result on the device; the sentence says why.

    Attributes:
        run: the rows, each with its status and reason; None if there are none.
    """

    def __init__(self, sentence: str, run: Any = None) -> None:
        super().__init__(sentence)
        self.run: Run | None = run


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from gemmbench import api

    return getattr(api, name)


def __dir__() -> list[str]:
    return sorted({*__all__, *(name for name in globals() if name.startswith("__"))})


class _Package(ModuleType):
    """Keeps the functions' names: importing a submodule would otherwise replace the function of its name."""

    def __setattr__(self, name: str, value: object) -> None:
        if not (name in __all__ and isinstance(value, ModuleType)):
            super().__setattr__(name, value)


sys.modules[__name__].__class__ = _Package
