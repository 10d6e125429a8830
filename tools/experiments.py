"""Every experiment of the write-ups: the command that repeats it, its saved runs, the table of figures.

``python -m tools.experiments --device NAME --into plots/experiments/FOLDER`` runs the commands and saves each
run; ``make readme`` writes the table of `docs/experiments.md` from what stands there.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from gemmbench.gemm.workloads import nets
from gemmbench.ladder import LADDER
from gemmbench.model import units
from gemmbench.model.row import Row
from gemmbench.model.run_file import Run, load
from gemmbench.stats import rates

ROOT = Path(__file__).resolve().parents[1]
FOLDER = "plots/experiments"
#   column   folder of its runs
MACHINES = {"Intel's runtime": "cpu-intel", "PoCL": "cpu-pocl", "NVIDIA H200": "h200"}


@dataclass(frozen=True)
class Experiment:
    """One experiment, and how its figure is read from a run."""

    name: str  # of its saved runs
    author: str
    claim: str  # with the author's figure
    command: str
    figure: Callable[[Run], str]


def _rows(run: Run, variant: str = "", kind: str = "gemm") -> list[Row]:
    """The rows with samples, largest problem last."""
    rows = [row for row in run.rows if row.kind == kind and row.samples and row.status == "ok"]
    return sorted((row for row in rows if variant in ("", row.variant)), key=rates.flops_of)


def _versus(run: Run) -> str:
    """The ratio in turn at the largest problem."""
    row = next((row for row in reversed(_rows(run)) if row.former and row.former.variant), None)
    ratio = rates.versus(row) if row else None
    if row is None or ratio is None:
        return _lacking(run)
    return f"{ratio.median:.3g}x ({ratio.low:.3g} to {ratio.high:.3g})"


def _lacking(run: Run) -> str:
    """Why there is no figure."""
    return next((row.status for row in run.rows if row.kind == "gemm" and row.status != "ok"), "no figure")


def _rate(row: Row, scope: str) -> float:
    return rates.median_rate(row, scope) or 0.0


def _helpers(run: Run) -> str:
    shares = {row.variant: rates.helpers_share(row) for row in _rows(run)}
    return ", ".join(
        f"{name} {units.percent(share)}" for name, share in shares.items() if share is not None
    ) or _lacking(run)


def _steps(run: Run) -> str:
    """The best of the tutorial's steps over its first."""
    first, rows = next(iter(_rows(run, "naive")), None), [row for row in _rows(run) if row.variant in LADDER]
    if first is None:
        return _lacking(run)
    best = max(rows, key=lambda row: _rate(row, "kernel"))
    return f"{best.variant} {_rate(best, 'kernel') / _rate(first, 'kernel'):.3g}x naive"


def _host(run: Run) -> str:
    """The host scope's share of the device's rate, and the largest part beside the kernel."""
    for row in _rows(run, "block2x2-v4"):
        if split := rates.split_parts(row.parts):
            share = _rate(row, "host") / _rate(row, "device")
            part = max((name for name in split.seconds if name != "kernel"), key=split.share)
            return f"{units.percent(share)}; {part} {units.percent(split.share(part))} of the time"
    return _lacking(run)


def _cycle(run: Run) -> str:
    for row in _rows(run):
        if split := rates.split_parts(row.cycle):
            whole = split.whole_s or sum(split.seconds.values())
            return f"{units.seconds(whole)}, kernel {units.percent(split.share('kernel'))}"
    return _lacking(run)


def _host_rate(run: Run) -> str:
    """GFLOPS in the host scope by kind of memory."""
    return ", ".join(
        f"{row.variant} {units.rate_text(_rate(row, 'host'))}" for row in _rows(run) if _rate(row, "host")
    ) or _lacking(run)


def _alexnet(run: Run) -> str:
    (net, *_) = nets(run) or [None]
    if net is None or not net.whole_s:
        return _lacking(run)
    return f"{units.percent(net.share)} of {units.seconds(net.whole_s)}"


def _energy(run: Run) -> str:
    """GFLOP/J of each line."""
    known = {row.variant: rates.gflop_per_joule(row) for row in _rows(run)}
    if not any(known.values()):
        return "not measured: no counter can be read"
    return ", ".join(
        f"{name} {units.number(value)} GFLOP/J" if value else f"{name} not measured"
        for name, value in known.items()
    )


def _kernel_time(run: Run) -> str:
    row = next(iter(_rows(run, "mali-sgemm")), None)
    times = rates.summary(row, "kernel") if row else None
    return units.seconds(times.median) if times else _lacking(run)


def _printed(run: Run) -> str:
    row = next(iter(_rows(run, "mali-sgemm")), None)
    return f"printed, {row.check.verdict}" if row and row.matrices else _lacking(run)


def _math(run: Run) -> str:
    """The ratio in turn of each kernel, and the change of its residual."""
    texts = []
    strict = {row.variant: row for row in _rows(run) if row.parameters.get("math") == "strict"}
    for row in _rows(run):
        base = strict.get(row.variant)
        if base and row.parameters.get("math") == "fast" and (ratio := rates.versus(row)):
            before, after = rates.residual(base), rates.residual(row)
            change = f", error {after / before:.3g}x" if before and after is not None else ""
            texts.append(f"{row.variant} {ratio.median:.3g}x{change}")
    return "; ".join(texts) or _lacking(run)


def _grid(run: Run) -> str:
    rows = sorted(_rows(run, "image-4x8"), key=lambda row: _rate(row, "kernel"))
    if not rows:
        return _lacking(run)
    best, ratio = rows[-1], _rate(rows[-1], "kernel") / _rate(rows[0], "kernel")
    return f"best {best.title.removeprefix('image-4x8 ')}, {ratio:.3g}x the worst"


def _precision(run: Run) -> str:
    """The fastest of gemmbench's own kernels in each type."""
    own = [row for row in _rows(run) if row.variant in LADDER]
    best = {
        dtype: max((_rate(row, "kernel") for row in own if row.dtype == dtype), default=0.0)
        for dtype in ("half", "float", "double")
    }
    return ", ".join(f"{dtype} {units.rate_text(rate)}" for dtype, rate in best.items() if rate) or _lacking(
        run
    )


def _widths(run: Run) -> str:
    peaks = {
        int(row.parameters["width"]): _rate(row, "kernel")
        for row in run.rows
        if row.kind == "peak" and row.dtype == "float" and row.status == "ok"
    }
    if len(peaks) < 2:
        return _lacking(run)
    return f"float{max(peaks)} {peaks[max(peaks)] / peaks[min(peaks)]:.3g}x float"


TUTORIAL, ANDROID, ARM, ADRENO = "the tutorial", "Android", "ARM", "Adreno"
STEPS = "naive,tiled,coarse,wide,rect,register,register-wide,subgroup,prefetch,padded"
EXPERIMENTS = (
    Experiment("steps", TUTORIAL, "ten steps: 139 to 1,563 GFLOPS, 11.2x",
               f"square --sizes 1024 --kernel {STEPS} --budget 10", _steps),
    Experiment("padded-160x160", TUTORIAL, "160 x 160 tiles, 64-bit loads: 1,153 to 1,251 GFLOPS, 1.085x",
               "gemm -m 1024 --kernel padded-160x160 --versus padded --budget 10", _versus),
    Experiment("helpers", TUTORIAL, "the helper kernels take 3 %",
               "gemm -m 2048 --kernel padded,padded-fused --budget 10", _helpers),
    Experiment("pointers", ANDROID, "pointers that advance: 11 versus 10 GFLOPS, 1.1x",
               "gemm -m 1024 --kernel dot-v8 --versus dot-v8-indexed", _versus),
    Experiment("blocks", ANDROID, "blocks of 2 x 2: 17.4 versus 11.1 GFLOPS, 1.56x",
               "gemm -m 1024 --kernel block2x2-v4 --versus dot-v8 --budget 10", _versus),
    Experiment("host", ANDROID, "host to host: 15.6 GFLOPS, 51 % of the device's 30.7",
               "gemm -m 1024 --kernel block2x2-v4", _host),
    Experiment("alexnet", ANDROID, "convolutions take about 90 % of AlexNet's time (lowering excluded)",
               "workloads --set alexnet --batch 16 --kernel best", _alexnet),
    Experiment("widths", ANDROID, "float16 154 GFLOPS, float 12.3: 12.5x", "peak --types float", _widths),
    Experiment("precision", ANDROID, "half, float and double side by side (a chart)",
               "square --sizes 512 --kernel best --dtype half,float,double", _precision),
    Experiment("energy", ANDROID, "energy of CPU and GPU (a chart)",
               "square --sizes 1024 --kernel best --energy", _energy),
    Experiment("numbers", ARM, "a 4 x 4 example: the matrices are printed",
               "gemm -m 4 --kernel mali-sgemm --seed 7", _printed),
    Experiment("mali", ARM, "n = 1024 takes 1,316 ms",
               "gemm -m 1024 --kernel mali-sgemm --budget 10", _kernel_time),
    Experiment("image", ADRENO, "B through the texture cache (no figure)",
               "gemm -m 1024 --kernel image-4x8 --versus buffer-4x8", _versus),
    Experiment("pitches", ADRENO, "row pitches longer than the width (no figure)",
               "gemm -m 1024 --kernel image-4x8 --lda 1056 --ldb 1056 --ldc 1056", _host_rate),
    Experiment("cycle", ADRENO, "the cycle of mapping, filling, running and mapping back (no figure)",
               "gemm -m 1024 --kernel image-4x8 --memory mapped", _cycle),
    Experiment("svm", ADRENO, "shared virtual memory (no figure)",
               "gemm -m 1024 --kernel padded --memory svm", _host_rate),
    Experiment("math", ADRENO, "fast math is recommended (no figure)",
               "gemm -m 512 --kernel naive,tiled,image-4x8 --math strict,fast", _math),
    Experiment("groups", ADRENO, "work-group sizes by trial and error (no figure)",
               "gemm -m 1024 --kernel image-4x8 --param WX=4,8,16,32 --param WY=1,2,4", _grid),
)  # fmt: skip
OTHERS = (
    (ANDROID, "registers times work-items is limited (a chart)", "kernels --resources --plot bound.png"),
    (ARM, "copy the folder to the board ([steps](devices.md)) and run it", "peak"),
)
"""Experiments without a run: what they show is a chart or a folder."""


def table(root: Path = ROOT) -> str:
    """The table of `docs/experiments.md`: the author's figure, the command, and each machine's own."""
    runs = {
        (column, experiment.name): load(path)
        for column, folder in MACHINES.items()
        for experiment in EXPERIMENTS
        if (path := root / FOLDER / folder / f"{experiment.name}.jsonl").exists()
    }
    columns = [column for column in MACHINES if any(name == column for name, _ in runs)]
    lines = [
        f"| from | the author's figure | `gemmbench ...` | {' | '.join(columns)} |",
        "|---|---|---|" + "---|" * len(columns),
    ]
    for experiment in EXPERIMENTS:
        figures = [
            experiment.figure(runs[column, experiment.name])
            if (column, experiment.name) in runs
            else "not measured"
            for column in columns
        ]
        lines.append(
            f"| {experiment.author} | {experiment.claim} | `{experiment.command}` | {' | '.join(figures)} |"
        )
    lines += [
        f"| {author} | {claim} | `{command}` |{' - |' * len(columns)}" for author, claim, command in OTHERS
    ]
    return "\n".join(lines)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run every experiment, or those named, on one device; the exit status."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", default="", help="as for gemmbench")
    parser.add_argument("--into", type=Path, required=True, help="the folder of the saved runs")
    parser.add_argument("names", nargs="*", help="experiments; all without a name")
    chosen = parser.parse_args(arguments)
    chosen.into.mkdir(parents=True, exist_ok=True)
    status = 0
    for experiment in EXPERIMENTS:
        if chosen.names and experiment.name not in chosen.names:
            continue
        device = ["--device", chosen.device] if chosen.device else []
        save = ["--save", str(chosen.into / f"{experiment.name}.jsonl"), "--force"]
        words = [sys.executable, "-m", "gemmbench", *experiment.command.split(), *device, *save]
        status |= subprocess.run(words, check=False).returncode
    return status


if __name__ == "__main__":
    sys.exit(main())
