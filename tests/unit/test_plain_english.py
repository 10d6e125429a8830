"""The check of the language of docs and help finds phrases and long sentences, and the pages have none."""

from __future__ import annotations

import pytest

from tools import plain_english

LONG = " ".join(["word"] * 31) + "."


@pytest.mark.parametrize(
    ("page", "problems"),
    [
        ("It is measured anew.", ["avoid 'anew'"]),
        ("A kernel, of\nwhich the time is known.", ["avoid 'of which'"]),
        (f"Short. {LONG}", ["31 words in a sentence"]),
        (f"```\n{LONG}\n```\n\n| {LONG} |\n\n# {LONG}\n", []),  # code, tables and headings
        (f"<!-- The x: generated. -->\n{LONG}\n<!-- End of the x. -->", []),
        (f"- {LONG[:-30]}\n- {LONG[:-30]}", []),  # items of a list are sentences of their own
    ],
)
def test_what_the_check_finds(page: str, problems: list[str]) -> None:
    found = list(plain_english.findings(plain_english.prose(page)))
    assert len(found) == len(problems)
    assert all(each.startswith(problem) for each, problem in zip(found, problems, strict=True))


def test_what_a_reader_sees_of_a_source() -> None:
    source = 'def f(x):\n    """Read it anew."""\n    g = "word"\n    raise Error(f"a {x} of" " which")\n'
    assert list(plain_english.literals(source)) == [(4, "a x of which")]
