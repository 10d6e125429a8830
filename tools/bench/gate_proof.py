"""Whether ``gemmbench check`` can be trusted: false alarms and planted slowdowns, simulated and live.

The simulation replays recorded A/A runs (tests/data/aa) to the gate; the live part holds this checkout
against its equal, and kernels whose k-loops do more work against those that do not. Live jobs run in as many
processes as there are cores for, each with a file of its own; ``--merge`` counts them. ``--write`` keeps the
results in docs/gate-proof.json and writes docs/gate-proof.md from there.

Exit status: 0 no more than one false alarm in 1,000 simulated rows at the default threshold, and no more than
one in 50 unchanged jobs that fails; 1 more; 2 there is no such device.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import sys
import tempfile
from collections.abc import Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from itertools import permutations, product
from pathlib import Path
from unittest.mock import patch

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))  # what follows is imported from there

import msgspec

from gemmbench.measure.child import WorkerError
from gemmbench.model.run_file import load
from gemmbench.regress import verdict
from gemmbench.regress.gate import MOST_ROUNDS
from gemmbench.suite.plan import SelectionError
from tools import gate_live, gate_replay
from tools.gate_live import PLANTED
from tools.gate_report import (
    Cell,
    Results,
    Turned,
    Unchanged,
    document,
    simulated_table,
    turned,
    turned_text,
    unchanged_table,
    with_counts,
)
from tools.gate_simulation import (
    Command,
    Setting,
    condensed,
    recorded,
    simulate,
    unchanged,
)

ROOT = Path(__file__).resolve().parents[2]
DATA = ROOT / "tests" / "data" / "aa"
RESULT, DOCUMENT = ROOT / "docs" / "gate-proof.json", ROOT / "docs" / "gate-proof.md"
PAGE = ROOT / "docs" / "gate.md"  # has the live counts, too
REFERENCES = {"cpu-intel": "numpy", "cpu-pocl": "numpy", "h200": "cublas"}  # of ratio mode, by recording
JOBS = {"cpu-intel": 30, "cpu-pocl": 30, "h200": 100}  # what noisy rows want again takes time
THRESHOLDS = (0.05, 0.025)
SLOW = (0.0, 0.025, 0.05, 0.1)
KERNELS = "naive,tiled,coarse,dot-v4,dot-v8,block2x2-v4,block4x4-v4,mali-sgemm"
SEED = 20261121
REPLAYED = ("naive", "tiled", "coarse", "dot-v8")  # that slowdowns are added to
MOST_ALARMS = 1.0  # in 1,000 rows


def main() -> int:
    """Parse, simulate, measure, print."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument(
        "--simulated", type=int, help=f"simulated jobs for each setting, 0: none [default: {JOBS}]"
    )
    parser.add_argument(
        "--noise", default=",".join(REFERENCES), help="recordings to simulate with; others are kept"
    )
    parser.add_argument("--live", type=float, default=0.0, help="seconds of live jobs; 0: none")
    parser.add_argument("--out", type=Path, help="a file for the live rows, as they come")
    parser.add_argument("--shard", type=int, default=0, help="number of this process among several")
    parser.add_argument("--device", default="intel", help="of live jobs, as gemmbench --device")
    parser.add_argument("--kernels", default=KERNELS, help="of live jobs, with commas")
    parser.add_argument("--sizes", default="64,128,256", help="of live jobs, with commas")
    parser.add_argument("--thresholds", default="0.05,0.025", help="of unchanged live rows, with commas")
    parser.add_argument("--planted", default="", help=f"slowdowns, of {list(gate_live.PLANTED)}, with commas")
    parser.add_argument(
        "--budget", type=float, default=gate_live.POLICY.budget_s, help="seconds of a live row"
    )
    parser.add_argument("--trials", type=int, default=1, help="planted jobs for each unchanged one")
    parser.add_argument("--merge", nargs="+", metavar="LABEL=FILE", help="count the rows of such files")
    parser.add_argument("--seed", type=int, default=SEED)
    parser.add_argument("--write", action="store_true", help="keep the results and write docs/gate-proof.md")
    parser.add_argument("--condense", nargs="+", metavar="FILE", help="only make a recording, OUT RUN...")
    options = parser.parse_args()
    if options.condense:
        out, *runs = options.condense
        Path(out).write_bytes(condensed([load(path) for path in runs]))
        return 0
    names, cells = options.noise.split(","), []
    jobs_unchanged: list[Unchanged] = []
    if options.simulated != 0:
        jobs_unchanged = unchanged_jobs(names)
        print(unchanged_table(jobs_unchanged))
        jobs = {name: options.simulated or JOBS[name] for name in names}
        cells = simulated(jobs, options.seed)
        print(simulated_table(cells))
    if options.live:
        try:
            live(options)
        except (SelectionError, WorkerError) as error:
            print(f"gate_proof: {error}", file=sys.stderr)
            return 2
    in_turn = merged(options.merge or ())
    if in_turn:
        print(turned_text(in_turn))
    if options.write:
        write(cells, jobs_unchanged, options.seed, in_turn)
    if any(50 * each.failed > each.jobs for each in jobs_unchanged):
        return 1
    still = [cell for cell in cells if not cell.slow and cell.threshold == THRESHOLDS[0]]
    return int(any(cell.alarms_per_thousand > MOST_ALARMS for cell in still))


def merged(files: Sequence[str]) -> list[Turned]:
    """What became of the live rows of files, each named after the machine: ``LABEL=FILE``."""
    rows: dict[str, list[gate_live.Judged]] = {}
    for each in files:
        label, _, path = each.partition("=")
        lines = Path(path).read_bytes().splitlines()
        rows.setdefault(label, []).extend(msgspec.json.decode(line, type=gate_live.Judged) for line in lines)
    cells = []
    for label, every in rows.items():
        cells += turned(label, every)
        again = gate_replay.Recorded.of(every)
        if len(again.jobs) > MOST_ROUNDS:
            for slow, threshold in (*((0.0, limit) for limit in PLANTED.values()), *PLANTED.items()):
                cells += turned(label, again.judged(threshold, slow, planted=REPLAYED), True)
    return cells


def write(
    cells: Sequence[Cell], jobs_unchanged: Sequence[Unchanged], seed: int, in_turn: Sequence[Turned]
) -> None:
    """Put what is new in the place of what was kept, and write the document from it."""
    kept = msgspec.json.decode(RESULT.read_bytes(), type=Results) if RESULT.exists() else Results()
    names = {cell.where for cell in cells}
    others = [cell for cell in kept.simulated if cell.where not in names]
    simulated = sorted([*others, *cells], key=lambda cell: cell.where)
    again = {each.where for each in jobs_unchanged}
    machines = {cell.where for cell in in_turn}
    others_turned = [cell for cell in kept.turned if cell.where not in machines]
    still = sorted(
        [*(each for each in kept.unchanged if each.where not in again), *jobs_unchanged],
        key=lambda each: each.where,
    )
    results = Results(still, simulated, seed if cells else kept.seed, [*others_turned, *in_turn])
    RESULT.write_bytes(msgspec.json.format(msgspec.json.encode(results), indent=1) + b"\n")
    PAGE.write_text(with_counts(PAGE.read_text(), results.turned))
    DOCUMENT.write_text(document(results, [recorded(path) for path in sorted(DATA.glob("*.jsonl"))]))


def simulated(jobs: Mapping[str, int], seed: int) -> list[Cell]:
    """Every mode, threshold and slowdown of the recordings, with so many jobs each."""
    tasks = [
        (DATA / f"{name}.jsonl", *rest, count, seed)
        for name, count in jobs.items()
        for rest in product((False, True), THRESHOLDS, SLOW)
    ]
    with ProcessPoolExecutor(min(4, os.cpu_count() or 1)) as pool:
        return list(pool.map(cell, *zip(*tasks, strict=True)))


def unchanged_jobs(names: Sequence[str]) -> list[Unchanged]:
    """Every default on every recording, and the same jobs with a row that takes twice as long."""
    tasks = [
        (DATA / f"{name}.jsonl", *rest, "")
        for name in names
        for rest in product(("compare", "check"), (1, 5), THRESHOLDS)
    ]
    cpus = [name for name in names if name.startswith("cpu")]
    tasks += [
        (DATA / f"{name}.jsonl", "check", 1, threshold, other)
        for name, other in permutations(cpus, 2)
        for threshold in THRESHOLDS
    ]
    with ProcessPoolExecutor(min(4, os.cpu_count() or 1)) as pool:
        return list(pool.map(one_default, *zip(*tasks, strict=True)))


def one_default(path: Path, command: Command, bases: int, threshold: float, margins: str) -> Unchanged:
    """One line of the table of unchanged jobs; by the margins for another device, if one is named."""
    recording, setting = recorded(path), Setting(threshold)
    shipped = verdict.recordings()
    kinds = shipped.kinds
    if margins:
        kinds = {**kinds, path.stem: kinds[margins], margins: kinds[path.stem]}
    with patch.object(verdict, "recordings", lambda: replace(shipped, kinds=kinds)):
        failed, jobs = unchanged(recording, setting, bases, command)
        found, _ = unchanged(recording, setting, bases, command, slow=1.0)
    where = f"{recording.name} by the margins of {margins}" if margins else recording.name
    return Unchanged(where, command, bases, threshold, jobs, failed, found)


def cell(path: Path, ratio: bool, threshold: float, slow: float, trials: int, seed: int) -> Cell:
    """One cell of the simulation's table."""
    recording, reference = recorded(path), REFERENCES[path.stem]
    setting = Setting(threshold, (reference,) if ratio else ())
    tally = simulate(recording, setting, slow, trials, seed, (reference,))
    mode = f"ratio to {reference}" if ratio else "plain"
    return Cell.of(recording.name, mode, threshold, slow, tally)


def live(options: argparse.Namespace) -> None:
    """Run live jobs on this process's cores; their rows go to a file, or to stdout."""
    sizes = tuple(int(size) for size in options.sizes.split(","))
    policy = replace(gate_live.POLICY, budget_s=options.budget)
    what = gate_live.Live(options.device, tuple(options.kernels.split(",")), sizes, policy)
    thresholds = [float(each) for each in options.thresholds.split(",")]
    slows = [float(each) for each in options.planted.split(",") if each]
    with (
        tempfile.TemporaryDirectory(prefix="gemmbench-gate-") as folder,
        gate_live.bench(what, Path(folder)) as bench,
        options.out.open("ab") if options.out else contextlib.nullcontext(sys.stdout.buffer) as out,
    ):
        for line in gate_live.jobs(bench, options.live, options.shard, thresholds, slows, options.trials):
            out.write(msgspec.json.encode(line) + b"\n")
            out.flush()


if __name__ == "__main__":
    sys.exit(main())
