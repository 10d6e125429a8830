"""The user's own matrices, in every layout that numpy saves, through every device."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from gemmbench.gemm.numpy_blas import NumpyExecutor
from gemmbench.gemm.operands import read_header
from gemmbench.model.case import Case, Operands, Policy
from gemmbench.model.device import DeviceFacts
from gemmbench.model.dtypes import DTYPES
from gemmbench.model.instrument import NotMeasuredError
from gemmbench.model.problem import Gemm
from gemmbench.model.row import Row
from tests import in_process
from tests.device.conftest import executor
from tests.in_process import plan_case

Array = npt.NDArray[Any]

QUICK = Policy(budget_s=60.0, batch_s=0.001, min_batches=3, precision=10.0)
M, N, K = 21, 13, 34

BIG_ENDIAN = np.dtype(">f4")
#        layout                   what makes it                                            written by columns
LAYOUTS: dict[str, tuple[Callable[[Array], Array], bool]] = {
    "row-major": (np.ascontiguousarray, False),
    "column-major": (np.asfortranarray, True),
    "transposed": (lambda matrix: np.ascontiguousarray(matrix.T).T, True),
    "every second column": (lambda matrix: np.repeat(matrix, 2, axis=1)[:, ::2], False),
    "big-endian": (lambda matrix: matrix.astype(BIG_ENDIAN), False),
    "big-endian by columns": (lambda matrix: np.asfortranarray(matrix.astype(BIG_ENDIAN)), True),
}


def matrices(dtype: str, m: int = M, n: int = N, k: int = K) -> dict[str, Array]:
    """Whole numbers, so that the product is exact in every data type."""
    rng = np.random.default_rng(7)
    shapes = {"a": (m, k), "b": (k, n), "c": (m, n)}
    return {name: rng.integers(-4, 5, shape).astype(DTYPES[dtype].numpy) for name, shape in shapes.items()}


def saved(folder: Path, values: dict[str, Array]) -> Operands:
    for name, matrix in values.items():
        np.save(folder / f"{name}.npy", matrix)
    a, b, c = (str(folder / f"{name}.npy") for name in "abc")
    return Operands(a, b, c, str(folder / "out.npy"))


def case(device: DeviceFacts, variant: str, problem: Gemm, own: Operands) -> Case:
    return plan_case(device, variant, problem, operands=own)


def run(device: DeviceFacts, variant: str, problem: Gemm, own: Operands) -> Row:
    step = case(device, variant, problem, own)
    machine = NumpyExecutor() if variant == "numpy" else executor(device)
    return in_process.measured(machine, step, QUICK)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("variant", ["naive", "padded", "numpy"])
def test_a_b_and_c_in_every_layout(device: DeviceFacts, variant: str, layout: str, tmp_path: Path) -> None:
    values = matrices("float")
    arrange, by_columns = LAYOUTS[layout]
    own = saved(tmp_path, {name: arrange(matrix) for name, matrix in values.items()})
    assert (b"'fortran_order': True" in (tmp_path / "a.npy").read_bytes()) is by_columns
    row = run(device, variant, Gemm(M, N, K, "float", 2.0, -3.0), own)
    assert (row.status, row.check.verdict) == ("ok", "ok")
    result = np.load(tmp_path / "out.npy")
    assert (result == 2 * values["a"] @ values["b"] - 3 * values["c"]).all()
    assert result.dtype == np.float32
    assert result.flags.c_contiguous


@pytest.mark.parametrize("dtype", ["half", "float", "double"])
def test_every_data_type(device: DeviceFacts, dtype: str, tmp_path: Path) -> None:
    if dtype not in device.dtypes:
        pytest.skip(f"the device has no {dtype}")
    values = matrices(dtype)
    own = saved(tmp_path, {name: np.asfortranarray(matrix) for name, matrix in values.items()})
    run(device, "tiled", Gemm(M, N, K, dtype, 1.0, 0.5), own)
    result = np.load(tmp_path / "out.npy")
    a, b, c = (values[name].astype(float) for name in "abc")
    assert result.dtype == DTYPES[dtype].numpy
    assert (result == a @ b + 0.5 * c).all()


@pytest.mark.parametrize("variant", ["naive", "padded", "numpy"])
@pytest.mark.parametrize(("m", "n", "k"), [(0, 3, 4), (3, 0, 4), (3, 4, 0), (0, 0, 0)])
def test_matrices_without_elements(
    device: DeviceFacts, variant: str, m: int, n: int, k: int, tmp_path: Path
) -> None:
    values = matrices("float", m, n, k)
    row = run(device, variant, Gemm(m, n, k, "float", 1.0, 2.0), saved(tmp_path, values))
    assert (row.status, row.samples) == ("ok", {})
    result = np.load(tmp_path / "out.npy")
    assert result.shape == (m, n)
    assert (result == 2 * values["c"]).all()


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("name", ["a", "b", "c"])
def test_what_no_result_can_be_verified_with_is_named(
    device: DeviceFacts, name: str, value: float, tmp_path: Path
) -> None:
    values = matrices("float")
    values[name][2, 1] = value
    own = saved(tmp_path, values)
    with pytest.raises(NotMeasuredError, match=rf"{name}\.npy holds {value} at \[2, 1\]") as caught:
        run(device, "naive", Gemm(M, N, K, "float", 1.0, 1.0), own)
    assert (caught.value.status, caught.value.restart) == ("failed", False)
    assert not (tmp_path / "out.npy").exists()


@pytest.mark.parametrize("variant", ["naive", "padded", "numpy"])
@pytest.mark.parametrize("name", ["a", "c"])
def test_a_product_beyond_its_type_is_named(
    device: DeviceFacts, variant: str, name: str, tmp_path: Path
) -> None:
    values = matrices("float")
    values[name][2] = 1e38
    values["b"][:] = 1
    sentence = r"^the product exceeds float \(3.40282e\+38\), so nothing can be verified$"
    with pytest.raises(NotMeasuredError, match=sentence) as caught:
        run(device, variant, Gemm(M, N, K, "float", 1.0, 4.0), saved(tmp_path, values))
    assert (caught.value.status, caught.value.restart) == ("failed", False)
    assert not (tmp_path / "out.npy").exists()


def test_a_file_that_changes_under_way_is_named(device: DeviceFacts, tmp_path: Path) -> None:
    own = saved(tmp_path, matrices("float"))
    step = case(device, "naive", Gemm(M, N, K, beta=1.0), own)
    np.save(tmp_path / "b.npy", np.ones((K, N + 1), "f4"))
    with pytest.raises(NotMeasuredError, match=r"b\.npy changed while it was in use: 34 x 13 float"):
        in_process.measured(executor(device), step, QUICK)


def test_a_result_that_cannot_be_written_is_a_row(device: DeviceFacts, tmp_path: Path) -> None:
    own = saved(tmp_path, matrices("float"))
    (tmp_path / "out.npy").mkdir()
    with pytest.raises(NotMeasuredError, match=r"cannot write .*out\.npy: is a directory") as caught:
        run(device, "naive", Gemm(M, N, K, beta=1.0), own)
    assert not caught.value.restart


def test_the_header_is_read_without_the_elements(tmp_path: Path) -> None:
    """A file of 40 GB that holds no block: reading its elements would not go unnoticed."""
    path = tmp_path / "huge.npy"
    header = np.lib.format.header_data_from_array_1_0(np.ones((1, 1), "f4")) | {"shape": (100_000, 100_000)}
    with path.open("wb") as file:
        np.lib.format.write_array_header_1_0(file, header)
        file.truncate(file.tell() + 4 * 100_000**2)
    found = read_header(str(path))
    assert (found.rows, found.columns, found.dtype) == (100_000, 100_000, "float")
