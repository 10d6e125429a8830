"""A comparison as table, markdown, JSON, JUnit and annotations; what drivers say is shown as it is."""

from __future__ import annotations

import json
import math
import re
import xml.etree.ElementTree
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from msgspec import UNSET

from gemmbench.model.row import Check, Partner
from gemmbench.model.run_file import Run
from gemmbench.regress import results as pages
from gemmbench.regress.check import aa_json, aa_report, aa_sheets
from gemmbench.regress.compare import Comparison, compare
from gemmbench.regress.results import comparison_junit
from gemmbench.report.table import stack
from gemmbench.suite.options.comparing import VERDICTS, Rules
from tests import fake_runs as fake
from tests.compare_runs import again, repeated, small
from tests.unit.test_compare import changed, m, status
from tests.unit.test_tables import text

Golden = Callable[[str, str], None]
WIDTHS = (40, 80, 120)
SLOW = {("tiled", 512): 1.15, ("register", 2048): 0.7, ("register", 64): 1.045, ("tiled", 1024): 2.6}


def good() -> Comparison:
    return compare([again(1)], [again(2, SLOW)], Rules(by_name={"tiled": 0.1}))


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
    table, markdown = (
        text(stack(pages.comparison_sheets(CASES[name]()))),
        pages.comparison_markdown(CASES[name]()),
    )
    shown = pages.comparison_annotations(CASES[name]())
    golden(f"{name}.txt", f"{table}\n{markdown}\n{shown}")
    assert all(
        line.startswith(("::error title=", "::warning title=", "::notice title="))
        for line in shown.splitlines()
    )


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("name", CASES)
def test_no_line_is_wider_than_the_terminal(name: str, width: int) -> None:
    assert max(map(len, text(stack(pages.comparison_sheets(CASES[name]())), width).splitlines())) <= width


@pytest.mark.parametrize("name", CASES)
def test_json(name: str) -> None:
    found = CASES[name]()
    data = json.loads(pages.comparison_json(found), parse_constant=pytest.fail)
    assert len(data["rows"]) == len(found.lines)
    assert data["verdicts"] == {verdict: found.counts[verdict] for verdict in VERDICTS}
    assert {row["verdict"] for row in data["rows"]} <= VERDICTS.keys()


def test_json_of_a_row() -> None:
    rows = json.loads(pages.comparison_json(good()))["rows"]
    mine = next(row for row in rows if (row["variant"], row["m"]) == ("tiled", 512))
    assert mine["verdict"] == "slower"
    assert (mine["low"], mine["high"]) == (None, None)  # unknown: there is one baseline
    assert mine["minima"] == pytest.approx(1.15, rel=0.05)
    assert (mine["spread"], mine["base_uncertain"], mine["new_uncertain"]) == (0, False, False)
    assert mine["new_s"] / mine["base_s"] == pytest.approx(mine["ratio"])


def suite(comparison: Comparison, **options: Any) -> xml.etree.ElementTree.Element:
    (found,) = xml.etree.ElementTree.fromstring(comparison_junit(comparison, **options))
    return found


@pytest.mark.parametrize("name", CASES)
def test_junit(name: str) -> None:
    found = CASES[name]()
    root = suite(found)
    assert root.attrib["tests"] == str(len(found.lines))
    assert root.attrib["failures"] == str(sum(line.fails for line in found.lines))
    passed = sum(line.verdict in ("unchanged", "within", "faster") for line in found.lines)
    passed += sum(line.verdict == "differs" and not line.is_inconclusive for line in found.lines)
    assert root.attrib["skipped"] == str(len(found.lines) - passed - sum(line.fails for line in found.lines))


def test_junit_is_named_after_the_command_and_its_classes_are_no_packages() -> None:
    """Readers split the name of a class at its dots."""
    found = good()
    assert suite(found).attrib["name"] == "gemmbench compare"
    made = suite(found, command="check")
    assert made.attrib["name"] == "gemmbench check"
    classes = {case.attrib["classname"] for case in made.iter("testcase")}
    assert classes == {line.device.replace(" | ", ", ").replace(".", "_") for line in found.lines}
    assert not any("." in name or "|" in name for name in classes)


def test_junit_of_strict_and_missing() -> None:
    found = compare([again(1)], [again(2, {("tiled", 512): 1.3})])
    strict = sum(line.is_possibly_slower for line in found.lines)
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
    plain = pages.comparison_annotations(found).splitlines()
    assert sum(line.startswith("::error") for line in plain) == found.counts["broken"]
    strict = pages.comparison_annotations(found, strict=True, missing_fails=True).splitlines()
    assert sum(line.startswith("::error") for line in strict) > found.counts["broken"]
    assert sum(line.startswith("::error") for line in strict) <= 10  # GitHub shows no more
    assert any(line.startswith("::error title=gemmbench::and ") for line in strict)


def test_annotations_are_escaped() -> None:
    line = pages.comparison_annotations(CASES["compare-hostile"]()).splitlines()[0]
    assert (
        pages._command("error", "a:b,c%\n", "x:y,z%\r\n") == "::error title=a%3Ab%2Cc%25%0A::x:y,z%25%0D%0A"
    )
    assert "\x1b" not in line


def test_only_changed_rows_are_shown_unless_every_row_is_asked_for() -> None:
    found = good()
    short, whole = (
        text(stack(pages.comparison_sheets(found))),
        text(stack(pages.comparison_sheets(found, every=True))),
    )
    within = found.counts["within"]
    # numpy has a table of its own
    assert f"{within - 6} more rows within 10 %, the largest +" in short
    assert "  within 10 %" not in short
    assert whole.count("  within 10 %") == within


def uncertain(spread: float) -> Comparison:
    """One interleaved row of an unchanged kernel; the logarithms of its ratios scatter by this much."""
    row = next(row for row in again(1).rows if row.variant == "tiled")
    ratios = [math.exp(spread * (number % 12 - 5.5) / 6) for number in range(48)]
    sides = [replace(row.samples["kernel"], seconds=tuple(seconds)) for seconds in (ratios, [1.0] * 48)]
    row = replace(row, samples={"kernel": sides[0]}, former=Partner("before", {"kernel": sides[1]}))
    run = replace(again(1), rows=(row,))
    return compare([replace(run, path="base.jsonl")], [run], Rules(0.05, interleaved=True))


def test_every_format_has_the_interval_and_the_smallest_change_that_would_be_found() -> None:
    found = uncertain(0.4)
    (line,) = found.lines
    assert line.verdict == "cannot tell"
    interval = pages.interval(line)
    assert re.fullmatch(r"-\d\d\.\d to \+\d\d\.\d %", interval)
    (row,) = json.loads(pages.comparison_json(found))["rows"]
    assert row["low"] < 0.95 < 1.05 < row["high"]
    last = f"1 cannot tell (a slowdown of {math.ceil(100 * row['smallest_slowdown'])} % would be found)."
    table, markdown = text(stack(pages.comparison_sheets(found))), pages.comparison_markdown(found)
    assert f"{interval}  cannot tell" in table
    assert last in table.splitlines()
    assert f"| {interval} | cannot tell |" in markdown
    assert markdown.startswith(f"### gemmbench: {last}\n")
    assert markdown.count("would be found") == 1
    (case,) = suite(found, strict=True).iter("testcase")
    (skipped,) = case
    for said in (
        skipped.attrib["message"],
        pages.comparison_annotations(found, strict=True).replace("%25", "%"),
    ):
        assert f"({interval})" in said
        assert "% would be found" in said
    assert pages.comparison_annotations(found, strict=True).startswith("::warning ")


def test_a_row_that_shows_nothing_has_no_smallest_change() -> None:
    assert pages.conclusion(uncertain(4.0)) == "1 cannot tell (a slowdown of 200 % would be missed)."


def test_at_most_three_remarks_are_shown() -> None:
    new = again(2)
    rows = [replace(row, status="skipped", reason=f"{row.dtype} {row.key}", samples={}) for row in new.rows]
    found = compare([again(1)], [replace(new, rows=tuple(rows))])
    short, whole = (
        text(stack(pages.comparison_sheets(found))),
        text(stack(pages.comparison_sheets(found, every=True))),
    )
    after = short.split(pages.conclusion(found))[1]
    assert after.count("more remarks: -v shows them.") == 1
    assert len([line for line in after.splitlines() if line and not line.startswith(" ")]) == 3
    assert after.count("Only one baseline run: ") == 1
    assert "more remarks" not in whole


def test_what_several_rows_have_in_common_is_said_once() -> None:
    old, new = again(1), again(2)
    found = compare([old], [replace(new, rows=tuple(row for row in new.rows if row.variant == "tiled"))])
    short = text(stack(pages.comparison_sheets(found)))
    assert f"missing: {found.counts['missing']} rows: not in the new run" in short


@pytest.mark.parametrize(
    ("ratio", "shown"),
    [
        (1.0, "+0.0 %"),
        (0.99999, "+0.0 %"),
        (1.102, "+10.2 %"),
        (0.9, "-10.0 %"),
        (2.0, "+100 %"),
        (0.377, "-62.3 %"),
        (14.8, "+1,380 %"),
        (1e9, "-"),
        (math.nan, "-"),
    ],
)
def test_change(ratio: float, shown: str) -> None:
    assert pages.change(ratio) == shown


# --- A/A ---------------------------------------------------------------------------------------------------


def aa_run() -> Run:
    return repeated([again(seed, noise=0.01) for seed in range(8)])


def test_aa_table(golden: Golden) -> None:
    golden("aa.txt", text(stack(aa_sheets(aa_report([aa_run()], Rules())))))


def test_the_difference_of_an_aa_measurement_is_that_by_which_a_comparison_widens_its_intervals() -> None:
    runs = repeated([again(seed, noise=0.01) for seed in range(8)])
    rows = {each.row.key: each.min_threshold for each in aa_report([runs], Rules()).rows}
    found = compare([runs], [again(9)])
    assert {line.row.key: line.spread for line in found.lines} == rows
    assert min(rows.values()) > 0


def test_an_aa_measurement_says_when_a_machine_is_unfit_for_stored_times() -> None:
    for factor, is_unfit in ((1.3, False), (2.8, True)):
        runs = repeated([again(1), again(2, machine=factor)])
        said = text(stack(aa_sheets(aa_report([runs], Rules()))))
        assert ("unfit for stored times. Use check --against." in " ".join(said.split())) == is_unfit
        unfit = [each for each in compare([runs], [again(3)]).remarks if "unfit for stored times" in each]
        assert bool(unfit) == is_unfit
        assert all(each in " ".join(said.split()) for each in unfit)


def test_aa_json() -> None:
    data = json.loads(aa_json(aa_report([aa_run()], Rules())))
    assert len(data["rows"]) == len(small().rows)
    assert 0.01 < data["min_threshold"] < 0.06


def test_a_run_without_repetitions_says_nothing() -> None:
    found = aa_report([again(1)], Rules())
    assert found.rows == ()
    assert "No row was measured twice" in text(stack(aa_sheets(found)))


# --- two devices ------------------------------------------------------------------------------------------

ACROSS = Rules(across=frozenset({"device", "driver", "memory"}))


def moved(run: Run, calls: int = 1) -> Run:
    """The run on a GPU, with its peak, and with as many calls of each shape."""
    rows = [replace(row, calls=calls if calls > 1 else UNSET) for row in run.rows]
    header = replace(run.header, devices=(fake.GPU,), host=replace(fake.HOST, cpu="another"))
    return Run(header, (fake.peak_row(1, 65000.0), *rows), "gpu.jsonl")


@pytest.mark.parametrize("factor", [5.0, 0.2])
def test_another_device_is_never_a_regression(factor: float) -> None:
    base = again(1)
    slow = {(row.variant, m(row)): factor for row in base.rows}
    new = changed(moved(again(2, slow)), "tiled", 512, status("failed", "no memory"))
    made = compare([base], [new], ACROSS)
    assert (made.ok, made.is_inconclusive, made.remarks) == (True, False, ())
    assert made.counts == {"on another device": len(base.rows) - 1, "missing": 1, "new": 1}
    assert made.lines[0].ratio is not None
    shown = text(stack(pages.comparison_sheets(made)))
    count = sum(row.device >= 0 for row in base.rows) - 1
    (mean,) = re.findall(rf"On another device, {count} rows: geometric mean (.*) x as fast", shown)
    assert float(mean) == pytest.approx(1 / factor, rel=0.02)
    assert "float peak 65.0 TFLOPS" in shown
    wrong = changed(new, "tiled", 512, status("wrong", "x"))
    assert not compare([base], [wrong], ACROSS).ok


@pytest.mark.parametrize(("factor", "faster"), [(0.5, "NVIDIA H200"), (3.0, "Intel(R)")])
def test_two_devices_are_compared_by_the_calls_of_a_program(factor: float, faster: str) -> None:
    kernels = small(("tiled", "register"))
    base = replace(kernels, rows=tuple(replace(row, calls=7) for row in kernels.rows))
    new = moved(again(2, machine=factor, run=kernels), 7)
    (sheet,) = pages.two_devices((base, 0), (new, 0))
    assert float(sheet.rows[-1][-1].text) == pytest.approx(1 / factor, rel=0.02)
    (note,) = sheet.notes
    ((ratio, calls),) = re.findall(
        rf"^{re.escape(faster)}.* runs the program (.*) times as fast as (.*)\.$", note.text
    )
    assert float(ratio) == pytest.approx(max(factor, 1 / factor), rel=0.02)
    assert calls.endswith(" for all calls, with the best of each of 6 of 6 shapes")
    suspect = replace(
        new, rows=tuple(replace(row, check=Check("suspect")) if m(row) == 64 else row for row in new.rows)
    )
    assert next(pages.two_devices((base, 0), (suspect, 0))).notes[0].text.endswith("5 of 6 shapes.")
    for other in (
        moved(again(2, run=kernels), 8),
        moved(again(2, run=kernels)),
    ):  # of another program, of none
        (sheet,) = pages.two_devices((base, 0), (other, 0))
        assert sheet.notes == ()
