"""Attempts to have a wrong number shown: saved runs that were edited by hand."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from statistics import median
from typing import Any

import pytest

import gemmbench as gb
from gemmbench.model.row import Check, Row, Scope
from gemmbench.model.run_file import Header, Run
from gemmbench.regress.compare import Comparison, compare
from gemmbench.report.notes import doubts
from gemmbench.stats.rates import shown_rate
from gemmbench.suite.options.comparing import Rules
from tests import fake_runs as fake
from tests.compare_runs import again, save, small


def edited(run: Run, faster: float, variant: str = "register", kind: str = "gemm") -> Run:
    """A run in whose file some rows' samples were divided."""

    rows = (
        fake.slower(row, 1 / faster) if (row.kind, row.variant) == (kind, variant) else row
        for row in run.rows
    )
    return replace(run, rows=tuple(rows))


def loaded(run: Run, folder: Path) -> gb.Run:
    save(folder / "edited.jsonl", run)
    return gb.load(folder / "edited.jsonl")


@pytest.mark.parametrize(("kind", "variant"), [("gemm", "register"), ("peak", "flops")])
def test_a_rate_that_nothing_can_reach_is_wrong_in_a_saved_run_too(
    kind: str, variant: str, tmp_path: Path
) -> None:
    run = fake.fake_square()
    assert all(row.status in ("ok", "skipped") for row in loaded(run, tmp_path).rows)
    rows = [row for row in loaded(edited(run, 10, variant, kind), tmp_path).rows if row.variant == variant]
    wrong = [row for row in rows if row.status == "wrong"]
    assert wrong
    assert all(" is above the theoretical peak of 896 GFLOPS" in row.reason for row in wrong)
    left = [rate.median for row in rows if (rate := shown_rate(row, "kernel"))]
    assert all(rate < 896e9 for rate in left)


@pytest.mark.parametrize("when", ["check", "check_after"])
def test_a_row_cannot_be_ok_and_its_check_wrong(when: str, tmp_path: Path) -> None:
    run = small()
    first, *others = run.rows
    fields: dict[str, Any] = {when: Check("wrong", {}, ("C is 0",))}
    with pytest.raises(gb.UsageError, match=r"line 2: check: it is wrong, and the row's status ok"):
        loaded(replace(run, rows=(replace(first, **fields), *others)), tmp_path)


def test_a_gemm_without_a_check_is_said_to_be_not_verified() -> None:
    run = small(("tiled",))
    assert doubts(run.rows, lambda row: row.variant) == []
    (note,) = doubts((replace(run.rows[0], check=Check()), *run.rows[1:]), lambda row: row.variant)
    assert (note.label, note.text) == ("not verified", "tiled at tiled")


def verdicts(found: Comparison) -> set[str]:
    return {line.verdict for line in found.lines}


def test_copies_of_a_run_are_no_repetitions() -> None:
    """Five files with the same samples: nothing is known of how far runs lie apart."""
    base = again(1)
    copies = [replace(base, path=f"copy{number}.jsonl") for number in range(5)]
    new = again(2, {("register", 512): 1.5})
    once, copied = compare([base], [new]), compare(copies, [new])
    assert [line.runs for line in copied.lines] == [(1, 1)] * len(copied.lines)
    assert [line.verdict for line in copied.lines] == [line.verdict for line in once.lines]
    doubled = replace(base, rows=(*base.rows, *base.rows))
    assert [line.runs for line in compare([doubled], [new]).lines] == [(1, 1)] * len(once.lines)


def test_rows_of_other_scopes_are_not_compared() -> None:
    def without(row: Row) -> Row:
        return replace(row, samples={"host": row.samples["host"]})

    base = small(("tiled",))
    hosts = replace(base, rows=tuple(map(without, base.rows)))
    assert verdicts(compare([base], [hosts])) == verdicts(compare([hosts], [base])) == {"not comparable"}
    (reason,) = {line.reason for line in compare([base], [hosts]).lines}
    assert reason == "other scope: host, not kernel; measure both runs alike"
    assert "not comparable" not in verdicts(compare([base], [hosts], Rules(scope="host")))


def test_the_host_scope_of_another_host_is_not_compared() -> None:
    base = small(("tiled",))
    moved: Header = replace(base.header, host=replace(fake.HOST, cpu="another"))
    other = replace(again(2, run=base), header=moved)
    rules = Rules(scope="host")
    assert "not comparable" not in verdicts(compare([base], [other]))
    assert verdicts(compare([base], [other], rules)) == {"not comparable"}
    assert compare([base], [other], rules).lines[0].reason.startswith("host scope of another host: another, ")
    assert "not comparable" not in verdicts(
        compare([base], [other], replace(rules, across=frozenset({"device"})))
    )


def test_a_processor_with_other_cores_is_not_compared() -> None:
    """PoCL 3.1 counts two compute units, although its process may use one core."""
    base = small(("tiled",))
    pinned = replace(base, header=replace(base.header, host=replace(fake.HOST, cores=1)))
    assert verdicts(compare([base], [pinned])) == verdicts(compare([pinned], [base])) == {"not comparable"}
    assert compare([base], [pinned]).lines[0].reason.startswith("other device: 1 core, not 2 cores; ")


def test_rows_of_other_matrices_are_not_compared() -> None:
    """Some devices run zeros faster."""
    base = small(("tiled",))
    zeros = replace(base, rows=tuple(replace(row, operands=("z.npy", "z.npy")) for row in base.rows))
    assert verdicts(compare([base], [zeros])) == {"not comparable"}
    assert compare([base], [zeros]).lines[0].reason == (
        "other operands: z.npy and z.npy, not generated; measure both runs alike"
    )
    assert "not comparable" not in verdicts(compare([zeros], [zeros]))


def test_a_few_samples_picked_out_of_a_row_have_their_full_range(tmp_path: Path) -> None:
    """The fastest of each row were kept: no row is better than its samples."""

    def fastest(row: Row) -> Row:
        scopes = row.samples.items()
        return replace(
            row, samples={name: Scope(tuple(sorted(s.seconds)[:4]), s.batch, s.stop) for name, s in scopes}
        )

    run = small(("tiled",))
    for row in loaded(replace(run, rows=tuple(map(fastest, run.rows))), tmp_path).rows:
        rate = shown_rate(row, "kernel")
        seconds = row.samples["kernel"].seconds
        assert rate.median == pytest.approx(row.problem.flops / median(seconds))
        assert (rate.low, rate.high) == pytest.approx(
            (row.problem.flops / max(seconds), row.problem.flops / min(seconds))
        )
