"""The man page says what ``--help`` says."""

from __future__ import annotations

import re
from pathlib import Path

from gemmbench import cli
from tools import man_page


def test_the_page_is_not_stale(tmp_path: Path) -> None:
    copy = tmp_path / "gemmbench.1"
    assert man_page.is_stale(copy)
    text = man_page.PAGE.read_text(encoding="utf-8")
    copy.write_text(re.sub('"[0-9]{4}-[0-9]{2}-[0-9]{2}"', '"1999-01-01"', text), encoding="utf-8")
    assert not man_page.is_stale(copy)  # whatever its date
    copy.write_text(text.replace("Draw a chart of", "Draw"), encoding="utf-8")
    assert man_page.is_stale(copy)


def test_every_command_and_option_is_there() -> None:
    text = man_page.page("")
    assert re.findall(r"^\.SS \\fBgemmbench (\S+)\\fR", text, re.MULTILINE) == [
        name.replace("-", "\\-") for name in cli.COMMANDS
    ]
    assert text.count("\\-\\-device WHICH") >= 8


def test_text_is_no_request() -> None:
    """Of roff, to which a dot or an apostrophe at the start of a line is one, and a backslash an escape."""
    assert man_page.escaped(".toml") == "\\&.toml"
    assert man_page.escaped("'5 %' or \\b --x") == "\\&'5 %' or \\eb \\-\\-x"
    requests = {line.split()[0] for line in man_page.page("").splitlines() if line.startswith((".", "'"))}
    assert requests == {".TH", ".SH", ".SS", ".nf", ".fi"}
