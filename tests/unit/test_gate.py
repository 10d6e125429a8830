"""What `tools/gate.py --power` counts, from verdicts that were never measured."""

from __future__ import annotations

from collections import Counter

import pytest

from tools import gate


@pytest.mark.parametrize(
    ("slowdowns", "unchanged", "is_right"),
    [
        ({"slower": 54, "cannot tell": 6}, {"unchanged": 600, "cannot tell": 400}, True),
        ({"slower": 53, "cannot tell": 6, "unchanged": 1}, {"unchanged": 1000}, False),
        ({"slower": 60}, {"unchanged": 999, "slower": 1}, False),
        ({"slower": 60}, {"unchanged": 999, "broken": 1}, False),
        ({}, {"unchanged": 1000}, False),
        ({"slower": 60}, {"unchanged": 999}, False),
    ],
)
def test_six_of_60_slowdowns_may_be_missed_and_no_unchanged_row_may_be_slower(
    slowdowns: dict[str, int], unchanged: dict[str, int], is_right: bool
) -> None:
    assert gate.has_power(Counter(slowdowns), Counter(unchanged), 1000) is is_right
