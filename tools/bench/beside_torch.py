"""`gemmbench protocols` beside what it follows: Triton's do_bench, and mamf-finder's steps in PyTorch.

    python tools/bench/beside_torch.py --only do_bench --pairs 5 --out FILE.jsonl

PyTorch's product is timed in this process and cuBLAS by gemmbench's instrument, in turn on the same GPU, now
this first, now that. A line of the file is a reading of either. ``do_bench-first`` takes a process for each
reading of Triton's. Needs torch, triton and an NVIDIA GPU.
"""

from __future__ import annotations

import argparse
import json
import math
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from statistics import fmean, median, stdev
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))  # what follows is imported from there

from gemmbench.gemm import protocols
from gemmbench.ladder import BY_NAME
from gemmbench.measure import machine
from gemmbench.measure.child import Worker
from gemmbench.model.case import Case, Policy, Staged
from gemmbench.model.problem import Gemm
from gemmbench.model.row import Row
from gemmbench.stats.intervals import CONFIDENCE, student
from gemmbench.suite.plan import gemm_plan, select

ROOT = Path(__file__).resolve().parents[2]
RESULT = "docs/beside_torch.json"
SIZE = 4096
FIRST, MAMF = "do_bench-first", "mamf-finder"
REST_S = 3.0  # before do_bench
WARM_S, AGAIN_S, WARM_LAUNCHES, LAUNCHES, FLUSH_BYTES = 30.0, 3.0, 50, 100, 256 << 20  # mamf-finder's

Read = Callable[[], list[float]]


def do_bench(rest_s: float = REST_S) -> Read:
    """Triton's do_bench of PyTorch's product: the seconds of each launch, after a rest."""
    torch, testing = import_module("torch"), import_module("triton.testing")
    a, b = (torch.randn(SIZE, SIZE, device="cuda", dtype=torch.half) for _ in range(2))

    def read() -> list[float]:
        time.sleep(rest_s)
        return [ms / 1e3 for ms in testing.do_bench(lambda: torch.matmul(a, b), return_mode="all")]

    return read


def first_call() -> list[float]:
    """The same in a process of its own, which is idle while it imports PyTorch."""
    words = [sys.executable, __file__, "--first"]
    done = subprocess.run(words, stdout=subprocess.PIPE, text=True, check=True)
    seconds: list[float] = json.loads(done.stdout.splitlines()[-1])
    return seconds


def mamf_finder() -> Read:
    """The steps of mamf-finder, benchmark version 2: warming, 50 launches, and 100 that are timed."""
    torch = import_module("torch")

    def drawn() -> Any:
        return torch.randn(SIZE, SIZE, device="cuda", dtype=torch.half)

    a, b, c, before = drawn(), drawn().t(), drawn(), drawn()
    cache = torch.empty(FLUSH_BYTES, dtype=torch.int8, device="cuda")
    warm_s = [WARM_S]

    def launches(count: int) -> list[float]:
        events = [[torch.cuda.Event(enable_timing=True) for _ in range(2)] for _ in range(count)]
        for begin, end in events:
            cache.zero_()
            c.copy_(before)
            begin.record()
            torch.mm(a, b, out=c)
            end.record()
        torch.cuda.synchronize()
        return [begin.elapsed_time(end) / 1e3 for begin, end in events]

    def read() -> list[float]:
        end = time.monotonic() + warm_s[0]
        warm_s[0] = AGAIN_S
        while time.monotonic() < end:
            launches(WARM_LAUNCHES)
        launches(WARM_LAUNCHES)
        return launches(LAUNCHES)

    return read


def line(tool: str, name: str, pair: int, seconds: Sequence[float]) -> dict[str, Any]:
    """A reading: the mean's rate, and how it went within the window."""
    fifth = max(1, len(seconds) // 5)

    def tflops(part: Sequence[float]) -> float:
        return round(2 * SIZE**3 / fmean(part) / 1e12, 2)

    return {
        "protocol": name,
        "tool": tool,
        "pair": pair,
        "tflops": tflops(seconds),
        "first_fifth": tflops(seconds[:fifth]),
        "last_fifth": tflops(seconds[-fifth:]),
        "launches": len(seconds),
    }


def pairs(worker: Worker, name: str, count: int, read: Read) -> Iterator[dict[str, Any]]:
    """The readings of both: PyTorch's before gemmbench's round, and in every other pair behind it."""
    (device,) = select(worker.devices()[0], "NVIDIA")[:1]
    (case,) = gemm_plan([device], [BY_NAME["cublas"]], [Gemm(SIZE, SIZE, SIZE, "half")])
    assert isinstance(case, Case), case
    worker.limit(3600)
    asked = replace(case, kind="protocols", protocols=(name,), rounds=count)
    steps = protocols.measured(worker, asked, device, Policy(budget_s=0.3))
    number, is_late = 0, False

    def reading() -> dict[str, Any]:
        return line("torch", name, number - 1, read())

    while True:
        try:
            stage: Staged = next(steps)
        except StopIteration as end:
            row: Row = end.value
            break
        if is_late:
            is_late = False
            yield reading()
        if stage.stage.startswith("round"):
            number += 1
            is_late = number % 2 == 0
            if not is_late:
                yield reading()
    (entry,) = row.protocols or ()
    for pair, seconds in enumerate(entry.rounds):
        yield line("gemmbench", name, pair, seconds)


def interval(ratios: Sequence[float]) -> tuple[float, float, float]:
    """The geometric mean of the pairs' ratios and Student's interval."""
    logs = [math.log(ratio) for ratio in ratios]
    half = 0.0
    if len(logs) > 1:
        half = student(CONFIDENCE, len(logs) - 1) * stdev(logs) / math.sqrt(len(logs))
    return math.exp(fmean(logs)), math.exp(fmean(logs) - half), math.exp(fmean(logs) + half)


def table(root: Path) -> str:
    """How far the protocols lie from what they follow: a part of docs/protocols.md."""
    return tabulated(json.loads((root / RESULT).read_text()))


def tabulated(lines: Sequence[dict[str, Any]]) -> str:
    """The same, of these lines."""
    by_name: dict[str, dict[str, list[dict[str, Any]]]] = defaultdict(lambda: defaultdict(list))
    for each in lines:
        by_name[each["protocol"]][each["tool"]].append(each)
    text = [
        "| protocol | readings | PyTorch, TFLOPS | first fifth, last | launches "
        "| gemmbench | first fifth, last | launches | of medians | pair by pair, 95 % |",
        "|---|--:|--:|--:|--:|--:|--:|--:|--:|--:|",
    ]
    for name, tools in by_name.items():
        if len(tools) < 2:
            continue
        both = [sorted(tools[tool], key=lambda each: int(each["pair"])) for tool in ("torch", "gemmbench")]
        torch, gemmbench = ([reading["tflops"] for reading in readings] for readings in both)
        cells = [name, ", ".join(sorted({str(len(readings)) for readings in both}))]
        for readings in both:
            rates, counts, first, last = (
                [reading[part] for reading in readings]
                for part in ("tflops", "launches", "first_fifth", "last_fifth")
            )
            cells.append(f"{median(rates):.0f} ({min(rates):.0f} to {max(rates):.0f})")
            cells.append(f"{median(first):.0f}, {median(last):.0f}")
            cells.append(f"{min(counts)} to {max(counts)}" if len({*counts}) > 1 else str(counts[0]))
        cells.append(f"{100 * (median(gemmbench) / median(torch) - 1):+.1f} %")
        if len(torch) == len(gemmbench) > 1:
            ratio, low, high = interval([new / old for old, new in zip(torch, gemmbench, strict=True)])
            percent = [f"{100 * (part - 1):+.1f}" for part in (ratio, low, high)]
            cells.append(f"{percent[0]} % ({percent[1]} to {percent[2]} %)")
        else:
            cells.append("no pairs")
        text.append(f"| {' | '.join(cells)} |")
    return "\n".join(text)


def main() -> int:
    """Take the pairs, and say how far apart they lie."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--only", default=f"do_bench,{FIRST},{MAMF}", help="protocols, with commas")
    parser.add_argument("--pairs", type=int, default=5)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--keep", nargs="+", type=Path, metavar="FILE", help=f"keep such lines in {RESULT}")
    parser.add_argument("--first", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.first:
        print(json.dumps(do_bench(0.0)()))
        return 0
    if options.keep:
        kept = [json.loads(text) for path in options.keep for text in path.read_text().splitlines()]
        (ROOT / RESULT).write_text(json.dumps(kept, indent=1) + "\n")
        return 0
    lines: list[dict[str, Any]] = []
    with Worker(machine.default) as worker:
        for name in options.only.split(","):
            read = first_call if name == FIRST else mamf_finder() if name == MAMF else do_bench()
            if name not in (FIRST, MAMF):
                read()  # the first call of a process is another figure
            for each in pairs(worker, name, options.pairs, read):
                print(json.dumps(each), flush=True)
                lines.append(each)
                if options.out:
                    with options.out.open("a") as file:
                        print(json.dumps(each), file=file)
    print(tabulated(lines))
    return 0


if __name__ == "__main__":
    sys.exit(main())
