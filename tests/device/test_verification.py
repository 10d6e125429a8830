"""Kernels with a fault that the exact test does not see: each is called wrong on every device."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gemmbench.gemm.opencl import GemmExecutor
from gemmbench.ladder import BY_NAME
from gemmbench.model import kernel_files
from gemmbench.model.case import Case, Operands, Policy
from gemmbench.model.device import DeviceFacts
from gemmbench.model.dtypes import DTYPES
from gemmbench.model.problem import Gemm
from gemmbench.model.row import Row
from gemmbench.opencl import runtime as runtime_module
from gemmbench.opencl.runtime import Runtime
from gemmbench.suite.plan import gemm_plan
from tests import in_process

QUICK = Policy(budget_s=60.0, settle_s=0.0, batch_s=0.001, min_batches=3, precision=10.0)
SIZE = 256  # the exact test is below 200

_SCALED, _STEP = "scaled = (REAL)alpha * sum", "sum += a[p]"
_C = "C[(size_t)row * ldc + column]"
FAULTS = {
    #  what in naive's source is replaced, by what
    "zero": (_SCALED, "scaled = m < 200 ? (REAL)alpha * sum : 0"),
    "minus A B": (_SCALED, "scaled = (REAL)(m < 200 ? alpha : -alpha) * sum"),
    "alpha 1 % off": (_SCALED, "scaled = (REAL)(m < 200 ? alpha : alpha * 1.01f) * sum"),
    "last column": (_SCALED, "scaled = m > 200 && column == n - 1 ? 0 : (REAL)alpha * sum"),
    "first step": (_STEP, "if (m < 200 || p != 0) sum += a[p]"),
    "middle step": (_STEP, "if (m < 200 || p != k / 2) sum += a[p]"),
    "last step": (_STEP, "if (m < 200 || p != k - 1) sum += a[p]"),
    "a tile": (
        "b = B + column",
        "b = B + (m < 200 || row / 16 != 3 || column / 16 != 5 ? column : column ^ 1)",
    ),
    "nothing the second time": ("REAL sum = 0;", f"REAL sum = 0; if (m > 200 && {_C} == {_C}) return;"),
}


def _measured(
    device: DeviceFacts, problem: Gemm, own: Operands, policy: Policy = QUICK, name: str = "naive"
) -> Row:
    (step,) = gemm_plan([device], [BY_NAME[name]], [problem], operands=own)
    if not isinstance(step, Case):
        pytest.skip(step.row.reason)
    return in_process.measured(GemmExecutor(Runtime(device)), step, policy)


def _own(folder: Path, dtype: str, draw: str) -> Operands:
    if draw == "generated":
        return Operands(None, None, None, str(folder / "out.npy"))
    rng = np.random.default_rng(3)
    for name in "ab":
        values = rng.random((SIZE, SIZE)) if draw == "one sign" else rng.standard_normal((SIZE, SIZE))
        np.save(folder / f"{name}.npy", values.astype(DTYPES[dtype].numpy))
    return Operands(str(folder / "a.npy"), str(folder / "b.npy"), None, str(folder / "out.npy"))


@pytest.mark.parametrize("draw", ["generated", "one sign", "normal"])
@pytest.mark.parametrize("dtype", ["float", "double", "half"])
@pytest.mark.parametrize("fault", ["", *FAULTS])
def test_a_planted_fault_is_wrong_and_writes_nothing(
    device: DeviceFacts, fault: str, dtype: str, draw: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plant(monkeypatch, fault)
    row = _measured(device, Gemm(SIZE, SIZE, SIZE, dtype), _own(tmp_path, dtype, draw))
    if not fault:
        assert (row.status, row.reason) == ("ok", "")
        assert row.check_after is not None
        assert all(
            0 <= value <= 1 for check in (row.check, row.check_after) for value in check.figures.values()
        )
        assert {"element", "slope", "row_mean", "column_mean", "step"} <= row.check.figures.keys()
        assert np.load(tmp_path / "out.npy").shape == (SIZE, SIZE)
    else:
        assert (row.status, row.samples) == ("wrong", {}), row.check
        assert row.reason
        assert not (tmp_path / "out.npy").exists()


def plant(monkeypatch: pytest.MonkeyPatch, fault: str) -> None:
    text = kernel_files.source
    old, new = FAULTS.get(fault, ("", ""))
    assert old in text("gemm/01_naive.cl")

    def planted(file: str, options: tuple[str, ...] = (), root: str = "") -> str:
        source = text(file, options, root)
        return source.replace(old, new) if fault else source

    monkeypatch.setattr(runtime_module, "source", planted)


@pytest.mark.parametrize("name", ["naive", "image-4x8"])
@pytest.mark.parametrize("memory", ["mapped", "staged"])
@pytest.mark.parametrize("beta", [0.0, 0.5])
@pytest.mark.parametrize("cold", [False, True])
def test_a_right_kernel_passes_before_and_after(
    device: DeviceFacts, name: str, memory: str, beta: float, cold: bool, tmp_path: Path
) -> None:
    policy = replace(QUICK, memory=memory, cold=cold)
    own = _own(tmp_path, "float", "normal")
    row = _measured(device, Gemm(SIZE, SIZE, SIZE, beta=beta, alpha=1.5), own, policy, name)
    assert (row.status, row.reason) == ("ok", "")
    assert row.check_after is not None
    assert row.check_after.verdict == "ok"
    a, b, out = (np.load(tmp_path / f"{name}.npy").astype(float) for name in ("a", "b", "out"))
    if beta == 0:
        np.testing.assert_allclose(out, 1.5 * a @ b, atol=1e-3)


def test_a_kernel_that_does_nothing_the_second_time_is_wrong_where_c_is_read(
    device: DeviceFacts, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It remembers in C itself: an element that is a right answer already is left alone."""
    old, new = "*c = beta == 0", "if (m > 200 && fabs(*c) > 2) return; *c = beta == 0"
    text: Any = kernel_files.source
    monkeypatch.setattr(runtime_module, "source", lambda *names: text(*names).replace(old, new))
    row = _measured(device, Gemm(SIZE, SIZE, SIZE, beta=0.5), Operands())
    assert row.status == "wrong"


def test_a_kernel_that_is_right_for_small_numbers_alone_is_wrong(
    device: DeviceFacts, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither the exact test nor generated operands have any above 2: those of the last problem do."""
    text: Any = kernel_files.source
    clamped = "sum += clamp(a[p], (REAL)-2, (REAL)2)"
    monkeypatch.setattr(runtime_module, "source", lambda *names: text(*names).replace(_STEP, clamped))
    row = _measured(device, Gemm(SIZE, SIZE, SIZE), Operands())
    assert row.status == "wrong"
    assert row.reason.startswith("with another C and other operands after the last batch: ")


_ELEMENT = "C[(size_t)row * ldc + column]"


@pytest.mark.parametrize(
    ("skips", "scalars"),
    [
        pytest.param(f"if (m > 200 && !(fabs({_ELEMENT}) < 1e20f)) return;", (1.0, 1e9), id="C is infinite"),
        pytest.param(
            f"if (fabs(alpha) < 1e-6f) {{ {_ELEMENT} *= beta; return; }}",
            (1e-20, 0.5),
            id="alpha is tiny",
        ),
    ],
)
def test_a_kernel_that_skips_what_does_not_show_beside_c_is_wrong(
    device: DeviceFacts, skips: str, scalars: tuple[float, float], monkeypatch: pytest.MonkeyPatch
) -> None:
    text: Any = kernel_files.source
    old = "REAL sum = 0;"
    monkeypatch.setattr(runtime_module, "source", lambda *names: text(*names).replace(old, old + skips))
    alpha, beta = scalars
    problem = Gemm(SIZE, SIZE, SIZE, alpha=alpha, beta=beta)
    row = _measured(device, problem, Operands(), replace(QUICK, budget_s=0.5))
    assert (row.status, row.samples) == ("wrong", {}), row.check_after


def test_nothing_is_multiplied_where_alpha_is_0(device: DeviceFacts) -> None:
    """A BLAS may leave A and B alone then: its rate was 100 times that of a multiplication."""
    row = _measured(device, Gemm(SIZE, SIZE, SIZE, alpha=0.0, beta=0.5), Operands())
    assert (row.status, row.samples) == ("ok", {})
