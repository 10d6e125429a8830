"""The counts of the repository's size."""

from __future__ import annotations

from pathlib import Path

from tools import house

SOURCE = '''"""Two words."""
import os
from gemmbench.model.row import Row
from pathlib import (
    Path,
)

found = os.sep
other = found + "found"  # found


def show(): ...
'''


def test_lines_imports_and_vague_names_are_counted() -> None:
    room = house.measured(SOURCE)
    assert (room.lines, room.files, room.imports) == (12, 1, 5)
    assert room.vague == 2, "neither in text nor in comments"


def test_folders_are_counted_and_an_exceeded_limit_is_reported(tmp_path: Path) -> None:
    names = "gemmbench/api.py gemmbench/model/row.py tests/unit/test_row.py tools/house.py plots/a.png"
    for name in names.split():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(SOURCE)
    folders = house.rooms(tmp_path / "gemmbench")
    assert {name: room.files for name, room in folders.items()} == {".": 1, "model": 1}
    values = house.figures(sum(folders.values(), house.Room()), tmp_path)
    assert [*values.values()] == [24, 2, 10, 4, 4, 1, 2, 24, 0]
    assert house.longest_chain(house.trees(tmp_path / "gemmbench")) == ["api", "model"]
    assert house.exceeded(values) == []
    (sentence,) = house.exceeded({**values, "MB of plots/": 11})
    assert sentence == "11 MB of plots/, more than 10"
