"""What `tools/gate.py --power` counts, from verdicts that were never measured."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

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


@pytest.mark.parametrize("alarm", [False, True])
def test_unchanged_rows_are_measured_until_there_are_enough(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str], alarm: bool
) -> None:
    def rows(checkout: Path, base: Path, old: Path, threshold: float, *words: str) -> gate.Rows:
        assert threshold == 0.025
        assert (checkout == gate.ROOT) == (old == gate.ROOT / "kernels")
        verdict = "slower" if alarm or checkout != gate.ROOT else "unchanged"
        return [{"verdict": verdict} for _ in gate.SIZES]

    monkeypatch.setattr(gate, "rows", rows)
    monkeypatch.setattr(gate, "measured", lambda *_: None)
    monkeypatch.setattr(gate, "planted", lambda folder, share: folder)
    assert gate.power(tmp_path, 1000) is not alarm
    printed = capsys.readouterr().out
    assert "60 slowdowns of 5%: 60 slower" in printed
    assert f"1020 unchanged rows: 1020 {'slower' if alarm else 'unchanged'}" in printed.splitlines()[-1]
