"""Operands between host and device, without either: what is written of them, and how they are mapped."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyopencl as cl
import pytest

from gemmbench.gemm.opencl_bench import GemmBench, Rotation, Timed
from gemmbench.gemm.operands import load_operands, same_bits
from gemmbench.model.case import Case, Policy
from gemmbench.model.dtypes import by_parts
from gemmbench.model.instrument import Built
from gemmbench.model.problem import Gemm
from gemmbench.model.row import CYCLE
from gemmbench.opencl.runtime import Copied, Mapped, Operand
from tests import rounding


class Released(np.ndarray[Any, Any]):
    """A map whose base can be released."""

    @property
    def base(self) -> Any:
        return SimpleNamespace(release=lambda queue: None)


class Counted(np.ndarray[Any, Any]):
    """An array that counts the elements that are written."""

    written = 0

    def __setitem__(self, where: Any, values: Any) -> None:
        self.written += self[where].size
        super().__setitem__(where, values)


LARGE = (5, 1 << 19)  # 2.5 times what a thread copies or compares at once


@pytest.mark.parametrize("size", [0, 1, 1 << 20, (1 << 20) + 1, 3 << 20])
def test_parts_cover_every_element_once_and_in_order(size: int) -> None:
    ranges = by_parts(lambda at: range(at.start, min(at.stop, size)), size)
    assert [number for part in ranges for number in part] == list(range(size))


@pytest.mark.parametrize("at", [0, 1 << 20, -1])
def test_one_bit_is_seen_in_every_part_of_a_large_matrix(at: int) -> None:
    values = np.zeros(LARGE, np.float32)
    other = values.copy()
    assert same_bits(values, other)
    other.reshape(-1)[at] = -0.0
    assert not same_bits(values, other)


def test_a_large_operand_is_filled_completely() -> None:
    operand = Copied.__new__(Copied)
    operand._image, operand._changed = False, False
    operand._host = np.full(LARGE[0] * LARGE[1], np.nan, np.float32)
    values = np.arange(operand._host.size, dtype=np.float32).reshape(LARGE)
    operand.fill(values)
    assert np.array_equal(operand._host, values.reshape(-1))
    assert operand._changed


@pytest.mark.parametrize(("rows", "columns", "ld"), [(3, 5, 5), (3, 8, 8), (2, 6, 9), (1, 1, 1), (0, 4, 4)])
def test_an_image_is_filled_once_and_its_last_pixels_with_zeros(rows: int, columns: int, ld: int) -> None:
    image = Operand.__new__(Operand)
    image._queue, image._shape, image._image = None, (rows, columns), True
    width = -(-columns // 4) * 4
    image._host = np.full((max(1, rows), width), np.nan).view(Counted)
    values = np.arange(1.0, rows * ld + 1).reshape(rows, ld)
    image.fill(values)
    expected = np.zeros((max(1, rows), width))
    expected[:rows, :columns] = values[:, :columns]
    np.testing.assert_array_equal(image._host, expected)
    assert image._host.written == image._host.size


@pytest.mark.parametrize("beta", [0.0, 1.0])
def test_a_map_cycle_discards_what_it_overwrites_and_nothing_else(
    beta: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """C without beta is not filled, so that what stands between its rows has to stay."""
    flags: list[tuple[str, int]] = []

    def enqueue_map(queue: Any, buffer: str, how: int, *_: Any, **__: Any) -> tuple[Any, None]:
        flags.append((buffer, how))
        return np.zeros(4).view(Released), None

    monkeypatch.setattr("pyopencl.enqueue_map_buffer", enqueue_map)
    queue = SimpleNamespace(finish=lambda: None)
    matrices = [Mapped.__new__(Mapped) for _ in "ABC"]
    for matrix, name in zip(matrices, "ABC", strict=True):
        matrix._queue, matrix._shape, matrix._image, matrix._held = queue, (2, 2), False, (4,)
        matrix._dtype, matrix.buffer, matrix._host, matrix._advised = np.dtype(float), name, None, True
    values = np.ones((2, 2))
    bench: Any = SimpleNamespace(
        _operands=[matrices], _rotation=SimpleNamespace(), _problem=Gemm(2, 2, 2, beta=beta),
        _stored=SimpleNamespace(a=values, b=values, c=values), stamped=False,
        runtime=SimpleNamespace(queue=queue), _device_s=0.0,
    )  # fmt: skip
    GemmBench._host_run(bench, 0, CYCLE, [])
    kept, lost = cl.map_flags.READ | cl.map_flags.WRITE, cl.map_flags.WRITE_INVALIDATE_REGION
    first = [("A", lost), ("B", lost), ("C", lost if beta else kept)]
    assert flags == [*first, ("A", kept), ("B", kept), ("C", kept)]


def test_kernels_on_shared_operands_are_judged_by_their_own_sums_and_answer_for_their_own_c() -> None:
    """Half products summed in half had the bounds of sums in float where such a kernel was first."""
    problem = Gemm(24, 24, 4096, "half")
    case = Case("gemm", 0, "naive", "half", {}, problem)
    values = load_operands(case)
    bench = GemmBench.__new__(GemmBench)
    vars(bench).update(_problem=problem, _policy=Policy(), _values=values, _buffers=[], _rotation=Rotation(1))
    timed = {sums: Timed(lambda *_: [], str, Built(), sums=sums) for sums in ("float", "half")}
    bench._bind_launches(timed["float"], case)
    other = bench.sharing(timed["half"], replace(case, variant="tiled"))
    c = rounding.product(problem, values.a, values.b, values.c, "half", "sequential")
    for judge, verdict in ((bench, "wrong"), (other, "ok")):
        answers = judge._answers
        assert answers._rows.check(c, values.c, answers._sums).verdict == verdict
    vars(bench).update(_operands=[[SimpleNamespace(read=lambda: c)] * 3], _stored=values)
    other._operands, other._stored = bench._operands, values
    bench._rotation.took(1, "host", bench)
    assert bench.left() is not None
    assert other.left() is None  # the other's C is no fault of its own
