"""A comparison as table, markdown, JSON, JUnit and annotations; what drivers say is shown as it is."""

from __future__ import annotations

import json
import math
import random
import xml.etree.ElementTree
from collections.abc import Callable
from dataclasses import replace

import pytest

from gemmbench.model.run_file import Run
from gemmbench.options.rules import Limits, Rules
from gemmbench.regress import aa
from gemmbench.regress import compare as pages
from gemmbench.regress.aa import carries, floor, serves
from gemmbench.regress.compare import Comparison, compare, to_junit
from gemmbench.regress.verdict import VERDICTS, Noise, conclude, unseen
from gemmbench.report.table import stack
from gemmbench.stats.intervals import Measure
from tests import fake_runs as fake
from tests.compare_runs import again, repeated, small
from tests.unit.test_tables import text

pytestmark = pytest.mark.usefixtures("steady")

Golden = Callable[[str, str], None]
WIDTHS = (40, 80, 120)
SLOW = {("tiled", 512): 1.12, ("register", 2048): 0.7, ("register", 64): 1.045, ("tiled", 1024): 2.6}


def good() -> Comparison:
    return compare([again(1)], [again(2, SLOW)])


def hostile(run: Run) -> Run:
    """A run whose every name is markup."""
    device = replace(fake.CPU, name=fake.HOSTILE)
    rows = tuple(replace(row, variant=fake.HOSTILE, label=f"a,b:c%{fake.HOSTILE}") for row in run.rows[:2])
    return replace(run, header=replace(run.header, devices=(device,)), rows=rows, path=fake.HOSTILE)


def troubled() -> Comparison:
    """Every verdict but faster."""
    trouble = fake.fake_troubled()
    trouble = replace(trouble, header=replace(trouble.header, devices=(fake.CPU,)))
    return compare([again(1, run=fake.fake_square())], [again(2, run=trouble)])


CASES: dict[str, Callable[[], Comparison]] = {
    "compare": good,
    "compare-troubled": troubled,
    "compare-hostile": lambda: compare([hostile(again(1))], [hostile(again(2))]),
}


@pytest.mark.parametrize("name", CASES)
def test_golden(name: str, golden: Golden) -> None:
    table, markdown = text(stack(pages.sheets(CASES[name]()))), pages.to_markdown(CASES[name]())
    shown = pages.to_github(CASES[name]())
    golden(f"{name}.txt", f"{table}\n{markdown}\n{shown}")
    assert all(
        line.startswith(("::error title=", "::warning title=", "::notice title="))
        for line in shown.splitlines()
    )


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("name", CASES)
def test_no_line_is_wider_than_the_terminal(name: str, width: int) -> None:
    assert max(map(len, text(stack(pages.sheets(CASES[name]())), width).splitlines())) <= width


@pytest.mark.parametrize("name", CASES)
def test_json(name: str) -> None:
    found = CASES[name]()
    data = json.loads(pages.to_json(found), parse_constant=pytest.fail)
    assert len(data["rows"]) == len(found.lines)
    assert data["verdicts"] == {verdict: found.counts[verdict] for verdict in VERDICTS}
    assert {row["verdict"] for row in data["rows"]} <= VERDICTS.keys()


def test_json_of_a_row() -> None:
    rows = json.loads(pages.to_json(good()))["rows"]
    mine = next(row for row in rows if (row["variant"], row["m"]) == ("tiled", 512))
    assert mine["verdict"] == "slower"
    assert mine["low"] < 1.12 < mine["high"]
    assert mine["new_s"] / mine["base_s"] == pytest.approx(mine["ratio"])


def suite(comparison: Comparison, **options: bool) -> xml.etree.ElementTree.Element:
    (found,) = xml.etree.ElementTree.fromstring(to_junit(comparison, **options))
    return found


@pytest.mark.parametrize("name", CASES)
def test_junit(name: str) -> None:
    found = CASES[name]()
    root = suite(found)
    assert root.attrib["tests"] == str(len(found.lines))
    assert root.attrib["failures"] == str(sum(line.fails for line in found.lines))
    skipped = len(found.lines) - sum(line.fails or line.verdict in ("same", "faster") for line in found.lines)
    assert root.attrib["skipped"] == str(skipped)


def test_junit_of_strict_and_missing() -> None:
    found = good()
    strict = sum(line.open for line in found.lines)
    assert strict > 0
    assert suite(found, strict=True).attrib["failures"] == str(found.counts["slower"] + strict)
    found = troubled()
    counts = found.counts
    assert suite(found, missing_fails=True).attrib["failures"] == str(counts["broken"] + counts["missing"])


def test_junit_has_no_letter_that_xml_lacks() -> None:
    made = small()
    names = "a\x00b\x0b\ufffe\ud800<&>\"'"
    run = replace(made, rows=tuple(replace(row, variant=names) for row in made.rows[:1]))
    (case,) = suite(compare([run], [run])).iter("testcase")
    assert "\ufffd<&>\"'" in case.attrib["name"]


def test_annotations_are_errors_where_they_fail() -> None:
    found = troubled()
    plain = pages.to_github(found).splitlines()
    assert sum(line.startswith("::error") for line in plain) == found.counts["broken"]
    strict = pages.to_github(found, strict=True, missing_fails=True).splitlines()
    assert sum(line.startswith("::error") for line in strict) > found.counts["broken"]
    assert sum(line.startswith("::error") for line in strict) <= 10  # GitHub shows no more
    assert any(line.startswith("::error title=gemmbench::and ") for line in strict)


def test_annotations_are_escaped() -> None:
    line = pages.to_github(CASES["compare-hostile"]()).splitlines()[0]
    assert (
        pages._command("error", "a:b,c%\n", "x:y,z%\r\n") == "::error title=a%3Ab%2Cc%25%0A::x:y,z%25%0D%0A"
    )
    assert "\x1b" not in line


def test_many_rows_hide_the_same_ones() -> None:
    found = compare([again(1, run=fake.fake_square())], [again(2, run=fake.fake_square())])
    short, whole = text(stack(pages.sheets(found))), text(stack(pages.sheets(found, every=True)))
    assert f"{found.counts['same']} rows that are the same are not shown; -v shows them" in short
    assert "  same  " not in short.split("rows that are")[0]
    assert whole.count("  same  ") >= found.counts["same"]


def test_many_rows_of_one_run_alone_are_listed_in_few_lines() -> None:
    old, new = again(1, run=fake.fake_square()), again(2, run=fake.fake_square())
    found = compare([old], [replace(new, rows=tuple(row for row in new.rows if row.variant == "tiled"))])
    short, whole = text(stack(pages.sheets(found))), text(stack(pages.sheets(found, every=True)))
    missing = found.counts["missing"]
    assert missing > 20
    assert f"missing: {missing - 6} rows: " in short  # numpy's are below its own heading
    assert "missing: 6 rows: numpy at 64, 128, 256, 512, 1024, 2048; -v shows each" in " ".join(short.split())
    assert len(short.splitlines()) < 30 < len(whole.splitlines())


@pytest.mark.parametrize(
    ("ratio", "shown"),
    [
        (1.0, "+0.0 %"),
        (0.99999, "+0.0 %"),
        (1.102, "+10.2 %"),
        (0.9, "-10.0 %"),
        (2.0, "x 2.00"),
        (0.5, "x 0.500"),
        (1e9, "-"),
    ],
)
def test_change(ratio: float, shown: str) -> None:
    assert pages.change(ratio) == shown


# --- A/A ---------------------------------------------------------------------------------------------------


def aa_run() -> Run:
    return repeated([again(seed, noise=0.01) for seed in range(8)])


def test_aa_table(golden: Golden) -> None:
    golden("aa.txt", text(stack(aa.sheets(floor([aa_run()], Rules())))))


def test_aa_json() -> None:
    data = json.loads(aa.to_json(floor([aa_run()], Rules())))
    assert len(data["rows"]) == len(small().rows)
    assert data["verdicts"] == 8 * len(small().rows)
    assert data["check"] < data["compare"]


def test_a_run_without_repetitions_says_nothing() -> None:
    found = floor([again(1)], Rules())
    assert found.rows == ()
    assert "No row was measured twice" in text(stack(aa.sheets(found)))


def test_the_threshold_that_noise_carries() -> None:
    """At it, twice as much is called slower in 95 of 100 trials."""
    noise = Noise(0.01, 30, "")
    spread = noise.of("row")
    threshold = carries(unseen(6, 1, spread, 0.95, noise, "row"))
    assert threshold is not None
    assert 0.03 < threshold < 0.07
    draw = random.Random(1)

    def runs(factor: float, count: int) -> list[Measure]:
        return [Measure(draw.gauss(math.log(factor), 0.01), 0.001, 9) for _ in range(count)]

    limits = Limits(threshold)
    found = [
        conclude(runs(1, 6), runs(1 + 2 * threshold, 1), spread, limits, noise, "row").verdict
        for _ in range(300)
    ]
    assert 0.92 <= found.count("slower") / 300 <= 0.99
    assert carries(1.0) is None
    assert carries(1e-9) == 1e-4


def test_the_threshold_that_serves_most_rows() -> None:
    assert serves([0.01] * 95 + [None] * 5) == 0.01
    assert serves([0.01] * 94 + [None] * 6) is None
    assert serves([]) is None
