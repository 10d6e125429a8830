"""The counts of the package's size: what is counted, and that a passed limit is told."""

from __future__ import annotations

from pathlib import Path

from tools import house

SOURCE = """import os
from pathlib import (
    Path,
)

found = os.sep
other = found + "found"  # found
"""


def test_lines_imports_and_vague_names_are_counted() -> None:
    room = house.measured(SOURCE)
    assert (room.lines, room.files, room.imports) == (7, 1, 4)
    assert room.vague == 2, "neither in text nor in comments"


def test_rooms_are_folders(tmp_path: Path) -> None:
    (tmp_path / "model").mkdir()
    for name in ("api.py", "model/row.py", "model/case.py"):
        (tmp_path / name).write_text(SOURCE)
    assert {name: room.files for name, room in house.rooms(tmp_path).items()} == {".": 1, "model": 2}


def test_a_limit_that_is_passed_is_told() -> None:
    total = sum(house.rooms().values(), house.Room())
    assert house.too_much(total) == []
    (sentence,) = house.too_much(house.Room(100, house.MOST_FILES + 1, 0, 0))
    assert sentence.endswith(f"files, more than {house.MOST_FILES:,}")
