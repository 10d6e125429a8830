"""A comparison as JUnit's XML, which CI servers show as tests."""

from __future__ import annotations

import re

from junitparser import Failure, JUnitXml, Skipped, TestCase, TestSuite

from gemmbench.facts.compare.comparison import Comparison, Line
from gemmbench.facts.text import clean
from gemmbench.render.compare import conclusion, full_name, sentence

# What XML 1.0 has no way to write; no escape makes it legal.
_ILLEGAL = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def to_junit(comparison: Comparison, strict: bool = False, missing_fails: bool = False) -> str:
    """A test for each row: failed, skipped (nothing could be said), or passed.

    Args:
        comparison: what came out.
        strict: inconclusive rows fail.
        missing_fails: rows that were not compared fail.
    """
    suite = TestSuite("gemmbench compare")
    suite.add_property("conclusion", _text(conclusion(comparison)))
    for line in comparison.lines:
        fails = line.fails or (strict and line.open) or (missing_fails and line.lost)
        suite.add_testcase(_case(line, fails))
    found = JUnitXml("gemmbench")
    found.add_testsuite(suite)
    written: bytes = found.tostring()  # type: ignore[no-untyped-call]  # junitparser has no types
    return written.decode("utf-8") + "\n"


def _case(line: Line, fails: bool) -> TestCase:
    case = TestCase(_text(full_name(line)), classname=_text(f"gemmbench.{clean(line.device)}"))
    case.time = line.new_s if line.new_s is not None and line.reference is None else 0.0
    if fails:
        case.result = [Failure(_text(sentence(line)), line.verdict)]
    elif line.verdict not in ("same", "faster"):
        case.result = [Skipped(_text(sentence(line)))]
    else:
        case.system_out = _text(sentence(line))
    return case


def _text(text: str) -> str:
    return _ILLEGAL.sub("\N{REPLACEMENT CHARACTER}", text)
