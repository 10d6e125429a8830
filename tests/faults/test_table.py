"""The table in docs/faults.md is what the last soak has found, of the faults that there are."""

from __future__ import annotations

import ast
import json
from pathlib import Path

import pytest

from tests.faults.ledger import FAULTS, Entry
from tools import soak


def test_the_document_is_written_from_the_result() -> None:
    result = json.loads(soak.RESULT.read_text())
    assert soak.DOCUMENT.read_text() == soak.document(result)


def test_every_fault_was_tried_in_full_and_lost_nothing() -> None:
    found = json.loads(soak.RESULT.read_text())["faults"]
    assert list(found) == list(FAULTS)
    for key, fault in FAULTS.items():
        assert found[key]["times"] >= max(fault.many, 1)
        assert (found[key]["lost"], found[key]["twice"]) == (0, 0)


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
