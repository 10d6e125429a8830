"""gemmbench peak beside Debian's clpeak, in turn and on the same driver.

Runs ``clpeak`` and ``gemmbench peak`` alternately, so that both meet the same neighbours and temperatures,
and prints the best figure of each with their ratio, above 1 where gemmbench finds more, or a shorter latency.
clpeak's single dependent chain shows a part of a CPU; its global memory test is small enough to live in large
caches in part, and its transfers come from pageable memory, beside which gemmbench's best way is shown.

Exit status: 0 printed, 1 gemmbench found less arithmetic than clpeak, 2 clpeak or a device is missing.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from xml.etree import ElementTree

from gemmbench.model import units
from gemmbench.model.device import DeviceFacts
from gemmbench.model.row import Row
from gemmbench.model.run_file import load
from gemmbench.model.units import GIGA
from gemmbench.stats import rates

LARGE_BYTES = 1 << 26  # of a transfer: smaller ones of a CPU stay in its caches
FAMILIES = ("compute", "memory", "transfer", "latency")


@dataclass(frozen=True)
class Figure:
    """Something that both measure."""

    family: str
    name: str
    unit: str
    flag: str  # makes clpeak measure it
    places: tuple[str, ...]  # in clpeak's XML, below the device: the best of them counts
    scale: float  # from clpeak's unit
    kind: str  # of gemmbench's rows
    variants: tuple[str, ...]
    dtype: str = ""  # "" for any
    shorter_is_better: bool = False

    def of(self, row: Row) -> float | None:
        """Its value in a row of gemmbench's; None if the row is another's, or not believed."""
        mine = row.kind == self.kind and row.variant in self.variants and self.dtype in ("", row.dtype)
        mine &= int(row.parameters.get("bytes", LARGE_BYTES)) >= LARGE_BYTES
        if not mine or row.status != "ok" or row.check.verdict not in ("ok", "none"):
            return None
        if self.shorter_is_better:
            times = rates.summary(row, rates.finest_scope(row) or "")
            return times.median if times else None
        found = rates.rate(row, "kernel") if row.kind == "peak" else rates.byte_rate(row)
        return found.best if found else None

    def best(self, values: Sequence[float]) -> float | None:
        """The best of several values."""
        if not values:
            return None
        return min(values) if self.shorter_is_better else max(values)

    def ratio(self, ours: float, theirs: float) -> float:
        """Above 1 where ours is better."""
        return theirs / ours if self.shorter_is_better else ours / theirs

    def shown(self, value: float | None) -> str:
        """In its unit."""
        if value is None:
            return "-"
        return units.number(value * 1e6 if self.shorter_is_better else value / GIGA)


def _compute(dtype: str, flag: str, tag: str) -> Figure:
    places = (f"{tag}_precision_compute/*",)
    return Figure("compute", dtype, "GFLOPS", flag, places, GIGA, "peak", ("flops",), dtype)


def _transfer(name: str, direction: str, tags: tuple[str, ...]) -> Figure:
    variants = tuple(f"{direction}-{way}" for way in ("pageable", "pinned"))
    places = tuple(f"transfer_bandwidth/{tag}" for tag in tags)
    return Figure("transfer", name, "GB/s", "transfer-bandwidth", places, GIGA, "transfer", variants)


FIGURES = (
    _compute("float", "compute-sp", "single"),
    _compute("double", "compute-dp", "double"),
    Figure(
        "memory",
        "global read",
        "GB/s",
        "global-bandwidth",
        ("global_memory_bandwidth/*",),
        GIGA,
        "bandwidth",
        ("global-read",),
    ),
    _transfer("upload", "upload", ("enqueuewritebuffer", "enqueuewritebuffer_nonblocking")),
    _transfer("download", "download", ("enqueuereadbuffer", "enqueuereadbuffer_nonblocking")),
    Figure(
        "latency",
        "launch",
        "us",
        "kernel-latency",
        ("kernel_launch_latency",),
        1e-6,
        "latency",
        ("launch-start",),
        shorter_is_better=True,
    ),
)

Values = dict[str, list[float]]  # by the name of the figure


def main() -> int:
    """Parse, run in turn, print."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument(
        "--device", default="all", help="as gemmbench --device (default: all that clpeak can reach)"
    )
    parser.add_argument("--only", default=",".join(FAMILIES), help=f"of {', '.join(FAMILIES)}")
    parser.add_argument("--rounds", type=int, default=1, help="runs of each, in turn")
    parser.add_argument("--budget", type=float, default=1.0, help="seconds for each of gemmbench's rows")
    options = parser.parse_args()
    figures = [figure for figure in FIGURES if figure.family in options.only.split(",")]
    if not figures:
        parser.error(f"--only takes {', '.join(FAMILIES)}")
    if shutil.which("clpeak") is None:
        print("clpeak is not installed: sudo apt-get install clpeak", file=sys.stderr)
        return 2
    devices = list(reachable(options.device))
    if not devices:
        print("no device that both can reach was found", file=sys.stderr)
        return 2

    heading = f"best of {options.rounds}"
    print(f"{heading:<40}{'':>14}{'unit':>8}{'clpeak':>10}{'gemmbench':>11}{'ratio':>8}")
    behind = False
    for device in devices:
        ours: Values = {figure.name: [] for figure in figures}
        theirs: Values = {figure.name: [] for figure in figures}
        for _ in range(options.rounds):
            add(theirs, clpeak(device, figures))
            add(ours, gemmbench(device, figures, options.budget))
        for figure in figures:
            mine, other = figure.best(ours[figure.name]), figure.best(theirs[figure.name])
            ratio = figure.ratio(mine, other) if mine and other else None
            behind |= ratio is not None and ratio < 1 and figure.family == "compute"
            label = device.title.split(" | ")[1][:39]
            text = f"{ratio:.2f}" if ratio else "-"
            print(
                f"{label:<40}{figure.name:>14}{figure.unit:>8}"
                f"{figure.shown(other):>10}{figure.shown(mine):>11}{text:>8}"
            )
    return int(behind)


def reachable(selector: str) -> Iterator[DeviceFacts]:
    """The selected devices whose driver's library is known, which is how clpeak is led to the same one.

    PoCL's wheel is left out: it is made to be loaded by pyopencl's own loader.
    """
    from gemmbench.opencl.discovery import list_devices
    from gemmbench.suite.selection import select

    yield from (
        device
        for device in select(list_devices(), selector)
        if device.library and "/pyopencl/" not in device.library
    )


def add(values: Values, found: Values) -> None:
    """One run's values to the others'."""
    for name, more in found.items():
        values[name] += more


def clpeak(device: DeviceFacts, figures: Sequence[Figure]) -> Values:
    """What clpeak writes to its XML file."""
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder, "clpeak.xml")
        flags = dict.fromkeys(f"--{figure.flag}" for figure in figures)
        # The system's loader then knows this one driver, whose platform is number 0.
        subprocess.run(
            ["clpeak", "-p", "0", "-d", str(device.device_index), *flags, "-f", str(report)],
            env={**os.environ, "OCL_ICD_VENDORS": device.library},
            stdout=subprocess.DEVNULL,
            check=True,
        )
        root = ElementTree.parse(report).getroot()
    found = root.find("platform/device")
    if found is None or found.get("driver_version") != device.driver:
        raise SystemExit(f"clpeak did not run on {device.title}")
    return {
        figure.name: [
            float(entry.text or 0) * figure.scale for place in figure.places for entry in found.findall(place)
        ]
        for figure in figures
    }


def gemmbench(device: DeviceFacts, figures: Sequence[Figure], budget: float) -> Values:
    """What gemmbench saves and believes."""
    families = ",".join(dict.fromkeys(figure.family for figure in figures))
    types = ",".join(figure.dtype for figure in figures if figure.dtype)
    with tempfile.TemporaryDirectory() as folder:
        saved = Path(folder, "peak.jsonl")
        command = [sys.executable, "-m", "gemmbench", "peak", "--quiet", "--only", families]
        command += ["--types", types] if types else []
        subprocess.run(
            [*command, "--device", str(device.index), "--budget", str(budget), "--save", str(saved)],
            stdout=subprocess.DEVNULL,
            check=True,
        )
        rows = load(saved).rows
    return {
        figure.name: [value for row in rows if (value := figure.of(row)) is not None] for figure in figures
    }


if __name__ == "__main__":
    sys.exit(main())
