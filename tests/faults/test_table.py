"""Every fault of the ledger has a test, and a lost row fails it."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from tests.faults.ledger import FAULTS, Entry


def test_every_fault_has_one_test() -> None:
    marks = []
    for path in Path(__file__).parent.glob("test_*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call) and ast.unparse(node.func) == "pytest.mark.fault":
                marks.append(ast.literal_eval(node.args[0]))
    assert sorted(marks) == sorted(FAULTS)


def test_a_lost_row_and_one_too_many_are_found() -> None:
    entry = Entry("names")
    with pytest.raises(AssertionError, match="lost"):
        entry.hold(["a", "b"], ["a"])
    with pytest.raises(AssertionError, match="more than once"):
        entry.hold(["a"], ["a", "a"])
    entry.hold(["b", "a"], ["a", "b"])
    assert (entry.times, entry.rows, entry.lost, entry.twice) == (3, 5, 1, 1)
