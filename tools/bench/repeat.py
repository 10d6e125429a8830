"""Settled rows in several processes: how far their medians lie apart, whatever the order and the rest before.

    python tools/bench/repeat.py --rows cublas:half:8192,nv-wgmma:half:4096 --rests 0,1,5 --out FILE.jsonl

Each process warms and samples each row's device scope as the product does (`measure.sampling.alone`), in an
order of its own. A line of the file is one row of one process.
"""

from __future__ import annotations

import argparse
import json
import random
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from statistics import fmean, median
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))  # what follows is imported from there

from gemmbench.ladder import BY_NAME
from gemmbench.measure import machine
from gemmbench.measure.child import Worker
from gemmbench.measure.sampling import alone
from gemmbench.model.case import Case, Policy
from gemmbench.model.device import Readings
from gemmbench.model.problem import Gemm
from gemmbench.stats.conditions import known
from gemmbench.stats.intervals import moved, summarize
from gemmbench.suite.plan import gemm_plan, select


def cut(values: Sequence[float | None]) -> list[Sequence[float | None]]:
    """The first and the last third of what was read, where it was."""
    third = len(values) // 3
    return [part for part in (values[:third], values[-third:]) if known(part)] if third else []


def sampled(names: Sequence[str], device: str, policy: Policy, beside: str = "") -> None:
    """Measure rows in this process and its child; print a line for each."""
    with Worker(machine.default) as worker:
        found, _ = worker.devices()
        (chosen,) = select(found, device)[:1]
        for name in names:
            variant, dtype, size = name.split(":")
            problem = Gemm(int(size), int(size), int(size), dtype)
            (step,) = gemm_plan([chosen], [BY_NAME[variant]], [problem])
            assert isinstance(step, Case), step
            begin = time.monotonic()
            with worker.prepare(step, chosen, policy) as handle:
                clock = handle.prepared.clocks[0]
                handle.batch(clock, 1)  # the first call is never timed: rows were verified before
                result = alone(handle, clock, policy, policy.budget_s, True)
            scope, conditions = result.scopes["device"], result.conditions
            by_mean = scope.middle == "mean"
            times = summarize(scope.seconds, by_mean)
            readings = conditions.windows[clock] if conditions else Readings()
            line = {
                "row": name,
                "state": policy.state,
                "tflops": problem.flops / times.median / 1e12,
                "median_tflops": problem.flops / median(scope.seconds) / 1e12,
                "noise": None if times.is_few else times.noise,
                "seconds": times.median,
                "batches": times.n,
                "last_third_slower": moved(scope.seconds, by_mean),
                "celsius": [median(known(part)) for part in cut(readings.celsius)],
                "watts": [round(fmean(known(part)), 1) for part in cut(readings.power_w)],
                "mhz": [round(fmean(known(part)), 1) for part in cut(readings.counted_mhz)],
                "limited": result.is_limited,
                "warm_s": conditions.warm_s if conditions else None,
                "took_s": round(time.monotonic() - begin, 2),
                "beside": beside,
                "note": result.note,
            }
            print(json.dumps(line), flush=True)


ROOT = Path(__file__).resolve().parents[2]
RESULT = "docs/repeat.json"


def table(root: Path) -> str:
    """How far settled rows lie apart, from the lines that are kept: a part of docs/conditions.md."""
    by_row: dict[tuple[str, str], list[dict[str, Any]]] = defaultdict(list)
    for line in json.loads((root / RESULT).read_text()):
        by_row[line["row"], line["beside"]].append(line)
    heads = [
        "kernel",
        "type",
        "n",
        "beside it",
        "processes",
        "TFLOPS",
        "apart",
        "their medians apart",
        "chip, C",
    ]
    heads.append("last third off the first, at most")
    lines_of = [" | ".join(heads), " | ".join(["---", "---", "--:", "---", *["--:"] * 6])]
    for (name, beside), lines in sorted(by_row.items()):
        variant, dtype, size = name.split(":")
        rates, medians = ([line[key] for line in lines] for key in ("tflops", "median_tflops"))
        apart, medians_apart = (f"{100 * (max(each) / min(each) - 1):.2f} %" for each in (rates, medians))
        warmth = [celsius for line in lines for celsius in line["celsius"]]
        cells = [
            f"`{variant}`",
            dtype,
            size,
            beside,
            str(len(lines)),
            f"{min(rates):.1f} to {max(rates):.1f}",
        ]
        cells += [apart, medians_apart, f"{min(warmth):.0f} to {max(warmth):.0f}" if warmth else ""]
        cells.append(f"{100 * max(abs(line['last_third_slower']) for line in lines):.2f} %")
        lines_of.append(" | ".join(cells))
    text = [f"| {line} |" for line in lines_of]
    held = [
        abs(line["tflops"] / median(each["tflops"] for each in lines) - 1) <= line["noise"]
        for lines in by_row.values()
        for line in lines
        if line["noise"]
    ]
    return "\n".join(
        [*text, "", f"{sum(held)} of {len(held)} intervals hold the median of their line's processes."]
    )


def main() -> int:
    """Start the processes one after the other, each after its rest, and print how far apart they lie."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--rows", default="", help="VARIANT:TYPE:SIZE, with commas")
    parser.add_argument("--device", default="", help="as gemmbench --device")
    parser.add_argument("--rests", default="0,2,0.5,5,1", help="seconds before each process")
    parser.add_argument("--state", default="settled", choices=("settled", "burst"))
    parser.add_argument("--budget", type=float, default=1.0)
    parser.add_argument("--seconds", type=float, default=600.0, help="start no process after so many")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--keep", nargs="+", type=Path, metavar="FILE", help=f"keep such lines in {RESULT}")
    parser.add_argument("--beside", default="", help="what else the machine does, for the table")
    parser.add_argument("--here", action="store_true", help="in this process, in the order given")
    options = parser.parse_args()
    if options.keep:
        kept = [json.loads(line) for path in options.keep for line in path.read_text().splitlines()]
        (ROOT / RESULT).write_text(json.dumps(kept, indent=1) + "\n")
        return 0
    names = options.rows.split(",")
    if options.here:
        sampled(names, options.device, Policy(budget_s=options.budget, state=options.state), options.beside)
        return 0
    begin, draw = time.monotonic(), random.Random(options.seed)
    by_row: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for number, rest in enumerate(map(float, options.rests.split(","))):
        if time.monotonic() - begin > options.seconds:
            break
        time.sleep(rest)
        draw.shuffle(names)
        words = ["--rows", ",".join(names), "--device", options.device, "--state", options.state]
        words += ["--budget", str(options.budget), "--beside", options.beside, "--here"]
        done = subprocess.run(
            [sys.executable, __file__, *words], stdout=subprocess.PIPE, text=True, check=False
        )
        for place, text in enumerate(done.stdout.splitlines()):
            line = json.loads(text) | {"process": number, "rest_s": rest, "place": place}
            by_row[line["row"]].append(line)
            if options.out:
                with options.out.open("a") as file:
                    print(json.dumps(line), file=file)
    for name, lines in sorted(by_row.items()):
        rates = [line["tflops"] for line in lines]
        most = max(abs(line["last_third_slower"]) for line in lines)
        print(
            f"{name} {options.state}: {len(lines)} processes, {min(rates):.2f} to {max(rates):.2f} TFLOPS, "
            f"{100 * (max(rates) / min(rates) - 1):.2f} % apart; "
            f"last third at most {100 * most:.2f} % from the first"
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
