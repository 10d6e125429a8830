"""A variant is its ``.cl`` file and one registry entry: nobody else knows it by name."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import gemmbench
from gemmbench import ladder

PACKAGE = Path(gemmbench.__file__).parent
LADDER = Path(ladder.__file__).parent

# What is called like a variant and is none: the lines that it may stand on.
HOMONYMS = {
    "clblast": r"find_library",  # as the linker calls it
    "cublas": r"find_library",
    "wide": r'"high"|Shape\(',
    "mkl": r'"MKL"|MKL_NUM_THREADS',  # as numpy's BLAS
}


def named(source: str) -> Iterator[tuple[int, str]]:
    """Line and name of every variant that stands in quotes."""
    lines = source.splitlines()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Constant) and node.value in ladder.BY_NAME:
            allowed = HOMONYMS.get(str(node.value))
            if not allowed or not re.search(allowed, lines[node.lineno - 1]):
                yield node.lineno, str(node.value)


def test_no_variant_is_known_by_name_outside_the_ladder() -> None:
    modules = [path for path in PACKAGE.rglob("*.py") if LADDER not in path.parents]
    found = [
        f"{path.relative_to(PACKAGE)}:{line}: {name}"
        for path in modules
        for line, name in named(path.read_text(encoding="utf-8"))
    ]
    assert len(modules) > 40
    assert not found, "\n".join(found)


def test_a_name_in_quotes_is_found() -> None:
    assert sorted(named('SOME = ("nv-mma", "tiles")\nkernel = "small"')) == [(1, "nv-mma"), (2, "small")]


def test_matrix_units_take_types_that_their_variant_takes() -> None:
    assert all({*entry.needs.matrix_units} <= {*entry.needs.dtypes} for entry in ladder.VARIANTS)
    assert [entry.name for entry in ladder.VARIANTS if entry.on_host] == [ladder.BASELINE, ladder.MKL]
