"""No sentence, star or chart says more than the intervals of the rows that it is about."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gemmbench import pages, views
from gemmbench.ladder import order_of
from gemmbench.model.device import Conditions
from gemmbench.model.row import Problem, Row
from gemmbench.model.run_file import Run, load
from gemmbench.regress.compare import compare
from gemmbench.stats import claims, rates
from gemmbench.stats.claims import Claim
from gemmbench.stats.intervals import summarize
from gemmbench.stats.panels import break_evens, panels
from tests import fake_runs as fake
from tests.unit.test_tables import text

NOISY = Path(__file__).parents[1] / "data" / "noisy"
KERNELS = ("naive", "tiled", "register", "cpu-packed")
SIZES = (64, 128, 256, 512)
QUIET_S = 0.001  # of a control burst


@st.composite
def rows(draw: st.DrawFn, sizes: tuple[int, ...] = SIZES) -> tuple[Row, ...]:
    """Rows of some kernels and of numpy with random rates, spreads and control bursts."""
    made = []
    for name in (*KERNELS, "numpy"):
        for size in sizes:
            rate = draw(st.sampled_from((10.0, 20.0, 21.0, 22.0, 40.0, 400.0)))
            spread = draw(st.sampled_from((0.001, 0.02, 0.1, 0.7)))
            slowdown = draw(st.sampled_from((1.0, 1.0, 1.02, 1.6)))
            row = fake.gemm_row(
                name, Problem(size, size, size), rate, -1 if name == "numpy" else 0, spread=spread
            )
            if draw(st.integers(0, 9)) == 0:
                short = {at: replace(each, seconds=each.seconds[:2]) for at, each in row.samples.items()}
                row = replace(row, samples=short)
            bursts = (QUIET_S, QUIET_S * slowdown)
            made.append(replace(row, conditions=Conditions(control_s=bursts), source="x" * (name != "numpy")))
    return tuple(made)


def run_of(made: tuple[Row, ...], view: str = "square") -> Run:
    return Run(replace(fake.header(("gemmbench", view)), view=view), made, "run.jsonl")


class Truth:
    """The rates between which a row's true rate lies in a scope, from its samples alone."""

    def __init__(self, row: Row, scope: str) -> None:
        name = scope if scope in row.samples else "host"
        seconds, slowdown = row.samples[name].seconds, max(row.conditions.control_s) / QUIET_S
        times = summarize(seconds)
        flops = 2 * row.problem.m * row.problem.n * row.problem.k
        self.is_unknown = len(seconds) < 3
        self.low = 0.0 if self.is_unknown else flops / times.high
        self.high = float("inf") if self.is_unknown else flops / times.low * slowdown
        self.is_marked = self.is_unknown or times.noise > 0.05 or slowdown > 1.05


def truths(made: tuple[Row, ...], scope: str) -> dict[tuple[str, int], Truth]:
    return {(row.variant, row.problem.m): Truth(row, scope) for row in made}


def holds(known: dict[tuple[str, int], Truth], name: str, size: int, sizes: tuple[int, ...]) -> bool:
    """Whether a kernel's rate at a size is above all rates that other kernels have at some sizes."""
    others = [each for (other, at), each in known.items() if other != name and at in sizes]
    own = known[name, size]
    return not own.is_marked and all(own.low > other.high for other in others)


@settings(max_examples=60, deadline=None)
@given(rows())
def test_every_sentence_and_star_of_a_sweep_holds(made: tuple[Row, ...]) -> None:
    shown = " ".join(text(views.show(run_of(made)), 200).split())
    known, with_transfers = truths(made, "device"), truths(made, "host")
    ends = r"Fastest measured: ([\w-]+) up to m = (\d+), ([\w-]+) from (\d+)\."
    if match := re.search(ends, shown):
        before, until, after, start = match.groups()
        assert all(holds(known, before, size, (size,)) for size in SIZES if size <= int(until))
        assert all(holds(known, after, size, (size,)) for size in SIZES if size >= int(start))
    if match := re.search(
        r"Fastest (measured|kernel): ([\w-]+), [^.]*? at (\d+)(, [\d.]+ x ([\w-]+))?\.", shown
    ):
        what, name, size, ratio, rival = match.groups()
        rivals = {key: each for key, each in known.items() if what == "measured" or key[0] != "numpy"}
        assert holds(rivals, name, int(size), SIZES)
        assert not ratio or not known[rival, int(size)].is_marked
    if match := re.search(r"With transfers, ([\w-]+) beats numpy (from m = (\d+)|at every m)", shown):
        name, _, start = match.groups()
        for size in SIZES:
            if not start or size >= int(start):
                assert holds(
                    {key: with_transfers[key] for key in ((name, size), ("numpy", size))}, name, size, SIZES
                )
    if "With transfers, no kernel beats numpy" in shown:
        for size in SIZES:
            assert holds(
                {key: each for key, each in with_transfers.items() if key[1] == size}, "numpy", size, SIZES
            )
    lines = text(views.show(run_of(made)), 200).splitlines()
    for line in lines:
        if match := re.match(r"([\w-]+)(?: \(host\))? +(.*)", line):
            for size, cell in zip(SIZES, match[2].split(), strict=False):
                if cell.startswith("*") and match[1] in (*KERNELS, "numpy"):
                    assert holds(known, match[1], size, (size,))


@settings(max_examples=60, deadline=None)
@given(rows((64, 128)))
def test_every_sentence_of_shapes_and_of_the_report_holds(made: tuple[Row, ...]) -> None:
    run, known, with_transfers = run_of(made, "workloads"), truths(made, "device"), truths(made, "host")
    shown = " ".join(text(views.show(run), 200).split())
    if match := re.search(r"Best single kernel: ([\w-]+),", shown):
        means = {
            name: (known[name, 64].low * known[name, 128].low, known[name, 64].high * known[name, 128].high)
            for name in KERNELS
        }
        assert all(means[match[1]][0] > high for name, (_, high) in means.items() if name != match[1])
    beaten = sum(
        any(not (own := with_transfers[name, size]).is_marked and own.low > with_transfers["numpy", size].high
            for name in KERNELS)
        for size in (64, 128)
    )  # fmt: skip
    assert f"With transfers, the device beats numpy on {beaten} of 2 shapes" in shown
    summary = " ".join(pages.page([run_of(made)], pages.Wanted(charts=())).summary)
    if match := re.search(r"([\w-]+) is the fastest on .*? at m = n = k = (\d+)", summary):
        assert holds(known, match[1], int(match[2]), (64, 128))


def test_a_sentence_says_which_may_be_the_fastest() -> None:
    def ending(**spreads: float) -> str:
        made = [
            fake.gemm_row(name, Problem(64, 64, 64), 20.0, spread=spread) for name, spread in spreads.items()
        ]
        return text(views.show(run_of(tuple(made), "gemm")), 200)

    assert "tiled or naive is the fastest in the kernel alone: cannot tell at this noise." in ending(
        naive=0.3, tiled=0.2
    )
    assert "or 2 others may be the fastest in the kernel alone: cannot tell at this noise." in ending(
        naive=0.3, tiled=0.3, register=0.3, wide=0.3
    )
    uncertain = fake.gemm_row("tiled", Problem(64, 64, 64), 400.0, spread=0.7)
    rival = fake.gemm_row("naive", Problem(64, 64, 64), 2.0)
    assert "tiled may be the fastest in the kernel alone, but its rate is uncertain." in text(
        views.show(run_of((uncertain, rival), "gemm")), 200
    )


@pytest.mark.parametrize(("own", "other"), [((9, 8, 10), (6, 5, 8)), ((9, 8, 10), (8.5, 7, 9))])
def test_intervals_that_touch_or_overlap_prove_nothing(
    own: tuple[float, float, float], other: tuple[float, float, float]
) -> None:
    known = {"own": Claim(*own, is_certain=True), "other": Claim(*other, is_certain=True)}
    assert claims.fastest(known) is None
    assert claims.contenders(known) == ["own", "other"]
    assert claims.fastest({"own": known["own"]}) is None  # nothing to compare it with


def test_rows_of_too_few_samples_have_a_reason_of_their_own() -> None:
    made = [fake.gemm_row(name, Problem(64, 64, 64), 20.0) for name in ("naive", "tiled")]
    short = {at: replace(each, seconds=each.seconds[:2]) for at, each in made[0].samples.items()}
    shown = text(views.show(run_of((replace(made[0], samples=short), made[1]), "gemm")), 200)
    assert "is the fastest in the kernel alone: too few samples, raise --budget." in shown


def test_the_break_even_lies_within_its_band() -> None:
    """At 256 the intervals overlap, so the size is a measured one."""
    kernel = {128: 5.0, 256: 20.0, 512: 40.0}
    made = [
        fake.gemm_row("tiled", Problem(n, n, n), rate, spread=0.1 if n == 256 else 0.001, transfer=1.0)
        for n, rate in kernel.items()
    ]
    host = [fake.gemm_row("numpy", Problem(n, n, n), 20.0, -1, spread=0.001) for n in kernel]
    run = run_of(tuple(replace(row, source="x") for row in made) + tuple(host))
    (even,) = break_evens(run, panels(run, "m")[0])
    assert even.size == 512
    assert even.low is not None
    assert even.high is not None
    assert even.low <= even.size <= even.high


def test_the_loss_of_the_control_bursts_widens_the_interval_upwards() -> None:
    row = fake.gemm_row("tiled", Problem(64, 64, 64), 20.0)
    slow = replace(row, conditions=Conditions(control_s=(QUIET_S, 2 * QUIET_S)))
    quiet = replace(row, variant="naive", conditions=Conditions(control_s=(QUIET_S, QUIET_S)))
    known = claims.evidence(run_of((slow, quiet)), slow, "kernel")
    rate = rates.rate(slow, "kernel")
    assert known.high == pytest.approx(2 * rate.high)
    assert known.low == rate.low
    assert not known.is_certain


def test_a_share_of_an_uncertain_peak_is_marked_and_one_above_it_explained() -> None:
    fast = fake.gemm_row("tiled", Problem(64, 64, 64), 400.0)
    peak = fake.peak_row(1, 345.0)
    shown = text(views.show(run_of((peak, fast), "gemm")), 200)
    assert re.search(r"^tiled .* 1\d\d %$", shown, re.MULTILINE)
    assert "Above 100 % of peak: the measured peak is too low. --remeasure measures it again." in shown
    doubtful = replace(peak, samples={"kernel": replace(peak.samples["kernel"], seconds=(1e-3, 2e-3, 4e-3))})
    assert re.search(
        r"^tiled .* ~\d+ %$", text(views.show(run_of((doubtful, fast), "gemm")), 200), re.MULTILINE
    )


@pytest.mark.parametrize("name", ["square", "sweep-k", "workloads"])
def test_nothing_is_claimed_of_a_run_on_a_busy_machine(name: str) -> None:
    """Recorded while other programs kept both cores busy: every row is uncertain."""
    run = load(NOISY / f"{name}.jsonl")
    assert all(rates.is_uncertain(run, row) for row in run.rows if row.status == "ok")
    shown = text(views.show(run, order_of(run)), 80)
    assert not re.search(r"Fastest|Best single kernel|beats numpy (from|at)|no kernel beats|\*", shown)
    figures = [
        line for line in shown.splitlines() if re.match(r"(cpu-packed|numpy|wide|geometric).*  ", line)
    ]
    assert all("~" in line for line in figures)
    page = pages.page([run], pages.Wanted(charts=("ladder", "throughput")))
    assert "is the fastest on" not in " ".join(page.summary)
    assert not any(cell.best for row in (page.table.rows if page.table else ()) for cell in row)
    (again,) = {line.verdict for line in compare([run], [run]).lines}
    assert again not in ("faster", "slower", "unchanged")


def test_a_share_of_peak_is_marked_in_every_table() -> None:
    fast, doubtful = fake.gemm_row("tiled", Problem(64, 64, 64), 200.0), fake.peak_row(1, 345.0)
    samples = {"kernel": replace(doubtful.samples["kernel"], seconds=(1e-3, 2e-3, 4e-3))}
    for peak, mark in ((doubtful, ""), (replace(doubtful, samples=samples), "~")):
        shown = text(views.show(run_of((peak, fast), "gemm"), verbose=True), 200)
        shares = re.findall(r"^tiled .*? (~?)[\d.]+ %", shown, re.MULTILINE)
        assert len(shares) >= 2
        assert set(shares) == {mark}
