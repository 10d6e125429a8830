"""Operands between host and device, without either: what is written of them, and how they are mapped."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from gemmbench.opencl.runtime import Operand


class Counted(np.ndarray[Any, Any]):
    """An array that counts the elements that are written."""

    written = 0

    def __setitem__(self, where: Any, values: Any) -> None:
        self.written += self[where].size
        super().__setitem__(where, values)


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
