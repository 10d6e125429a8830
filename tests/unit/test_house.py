"""The counts of the repository's size."""

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


def test_folders_are_counted_and_an_exceeded_limit_is_reported(tmp_path: Path) -> None:
    for name in (
        "gemmbench/api.py",
        "gemmbench/model/row.py",
        "tests/unit/test_row.py",
        "tools/house.py",
        "plots/a.png",
    ):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(SOURCE)
    folders = house.rooms(tmp_path / "gemmbench")
    assert {name: room.files for name, room in folders.items()} == {".": 1, "model": 1}
    values = house.figures(sum(folders.values(), house.Room()), tmp_path)
    assert [*values.values()] == [14, 2, 8, 4, 14, 0]
    assert house.exceeded(values) == []
    (sentence,) = house.exceeded({**values, "lines of tests/ and tools/": 39_601})
    assert sentence == "39,601 lines of tests/ and tools/, more than 39,600"
