"""No format of a comparison claims what the interval of a row contradicts."""

from __future__ import annotations

import json
import re
import xml.etree.ElementTree
from collections.abc import Iterator
from dataclasses import replace
from itertools import permutations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gemmbench.model.row import Partner, Problem, Row, Scope
from gemmbench.model.run_file import Run
from gemmbench.regress import results
from gemmbench.regress.compare import Comparison, compare
from gemmbench.report.table import stack
from gemmbench.stats.intervals import Interval, interleaved_ratio, summarize
from gemmbench.suite.options.comparing import Rules
from tests import fake_runs as fake
from tests.unit.test_tables import text

Samples = tuple[float, ...]
SIZES = (64, 128, 256, 512)
WORDS = "possibly slower|slower|faster|unchanged|differs|within [0-9.]+ %|cannot tell"


@st.composite
def samples(draw: st.DrawFn, count: int = 12) -> Samples:
    """Times around 1 ms, that scatter by little or much."""
    level = draw(st.sampled_from([0.6, 0.97, 1.0, 1.04, 1.2, 2.6]))
    scatter = draw(st.sampled_from([0.002, 0.05, 0.6]))
    parts = draw(st.lists(st.floats(0, 1), min_size=count, max_size=count))
    return tuple(1e-3 * level * (1 + scatter * part) for part in parts)


@st.composite
def comparisons(draw: st.DrawFn) -> tuple[Comparison, dict[int, Interval]]:
    """A comparison, and the interval of each row by its size, from the samples alone."""
    threshold = draw(st.sampled_from([None, 0.05, 0.3]))
    interleaved, count = draw(st.booleans()), draw(st.sampled_from([1, 3]))
    devices = (draw(st.sampled_from([fake.CPU, fake.GPU])),)

    def row(size: int, seconds: Samples, old: Samples = ()) -> Row:
        before = Partner("before", {"kernel": Scope(old, 1, "budget")}) if old else None
        made = fake.gemm_row("tiled", Problem(size, size, size), 1.0)
        return replace(made, samples={"kernel": Scope(seconds, 1, "budget")}, former=before)

    def run(rows: list[Row], name: str) -> Run:
        return Run(fake.header(("square",), devices), tuple(rows), name)

    sizes = SIZES[: draw(st.integers(1, len(SIZES)))]
    news = {size: draw(samples()) for size in sizes}
    count = 1 if interleaved else count
    distinct = st.lists(samples(), min_size=count, max_size=count, unique=True)  # copies do not count
    olds = {size: draw(distinct) for size in sizes}
    bases = [
        run([row(size, each[number]) for size, each in olds.items()], f"base{number}.jsonl")
        for number in range(count)
    ]
    now = run([row(size, news[size], olds[size][0] if interleaved else ()) for size in sizes], "new.jsonl")
    intervals = {
        size: interleaved_ratio(news[size], olds[size][0])
        if interleaved
        else between_runs(news[size], olds[size])
        for size in sizes
    }
    return compare(bases, [now], Rules(threshold, interleaved=interleaved)), intervals


def between_runs(new: Samples, olds: list[Samples]) -> Interval:
    """The narrowest interval that the samples and the differences between the baselines allow."""
    now, before = summarize(new), [summarize(old) for old in olds]
    apart = max((a.median / b.median for a, b in permutations(before, 2)), default=1.0)
    ends = ("low", "median", "high")
    low, middle, high = (sorted(getattr(each, end) for each in before)[len(before) // 2] for end in ends)
    return Interval(now.median / middle, now.low / high / apart, now.high / low * apart)


def allows(interval: Interval, words: str, threshold: float) -> bool:
    """Whether an interval allows what is said of a row."""
    above, below = interval.low > 1 + threshold, interval.high < 1 - threshold
    within = interval.low >= 1 - threshold and interval.high <= 1 + threshold
    if words.startswith("within"):
        assert words == f"within {results.rounded_percent(threshold)}"
    allowed = {"slower": above, "possibly slower": above, "faster": below, "differs": above or below}
    allowed |= {"unchanged": within, "within": within, "cannot tell": True}
    return allowed[re.sub(" [0-9.]+ %", "", words)]


@settings(deadline=None, max_examples=60)
@given(comparisons())
def test_no_format_claims_what_an_interval_contradicts(drawn: tuple[Comparison, dict[int, Interval]]) -> None:
    found, intervals = drawn
    threshold = found.rules.default or 0.1
    for name, words in claims(found):
        assert allows(intervals[int(name.split()[-1])], words, threshold), (name, words)

    rows = json.loads(results.comparison_json(found))["rows"]
    for row in rows:
        interval = intervals[row["m"]]
        assert row["ratio"] == pytest.approx(interval.median)
        if row["low"] is not None:
            assert row["low"] <= 1.001 * interval.low
            assert row["high"] >= 0.999 * interval.high
    counts = {
        words: int(count) for count, words in re.findall(f"([0-9]+) ({WORDS})", results.conclusion(found))
    }
    for words, count in counts.items():
        assert count <= sum(allows(interval, words, threshold) for interval in intervals.values())
    if smallest := re.search("a slowdown of ([0-9]+) % would be found", results.conclusion(found)):
        factor = 1 + int(smallest[1]) / 100
        wide = [intervals[row["m"]] for row in rows if row["verdict"] == "cannot tell"]
        assert all(factor * interval.low / interval.median > 0.999 * (1 + threshold) for interval in wide)
    if any("the run is slower" in remark for remark in found.remarks):
        assert sum(each.low > 1 + threshold and each.median > 1.5 for each in intervals.values()) * 2 >= len(
            rows
        )


def claims(found: Comparison) -> Iterator[tuple[str, str]]:
    """What every format says of rows: a row's name, and the words."""
    for row in json.loads(results.comparison_json(found))["rows"]:
        words = row["verdict"]
        yield (
            f"tiled {row['m']}",
            f"within {results.rounded_percent(row['threshold'])}" if words == "within" else words,
        )
    (suite,) = xml.etree.ElementTree.fromstring(results.comparison_junit(found))
    for case in suite.iter("testcase"):
        failure, skipped = case.find("failure"), case.find("skipped")
        outcome = next(each for each in (failure, skipped, case.find("system-out")) if each is not None)
        yield case.attrib["name"], (outcome.attrib.get("message") or outcome.text or "").split(":")[0]
        assert failure is None or outcome.attrib["type"] == "slower"
    for line in results.comparison_annotations(found).splitlines():
        if words := re.match(r"::(error|warning) title=gemmbench%3A (tiled float \d+)::([a-z ]+)", line):
            yield words[2], words[3]
    for every in (False, True):
        shown = text(stack(results.comparison_sheets(found, every)), 200)
        for line in (
            shown.splitlines() + results.comparison_markdown(found, every).replace("|", " ").splitlines()
        ):
            if words := re.match(f" *(tiled [0-9]+) .* ({WORDS})", line):
                yield words[1], words[2]
            if words := re.search(f"(?:rows?) ({WORDS})[^(]*.*the largest .*\\((tiled [0-9]+)\\)", line):
                yield words[2], words[1]
