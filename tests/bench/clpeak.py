"""gemmbench peak beside Debian's clpeak, in turn and on the same driver.

Runs ``clpeak`` and ``gemmbench peak`` alternately, so that both meet the same neighbours and temperatures,
and prints the best GFLOPS of each with their ratio. clpeak's single dependent chain shows a part of a CPU.

Exit status: 0 printed, 1 gemmbench found less than clpeak, 2 clpeak or a device is missing.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from xml.etree import ElementTree

from gemmbench.facts.derive import rate
from gemmbench.facts.records import DeviceFacts, load
from gemmbench.facts.units import GIGA, gflops

CLPEAK_TYPES = {"float": ("compute-sp", "single"), "double": ("compute-dp", "double")}

Best = dict[str, float]  # flop/s by data type


def main() -> int:
    """Parse, run in turn, print."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument(
        "--device", default="all", help="as gemmbench --device (default: all that clpeak can reach)"
    )
    parser.add_argument("--types", default="float,double")
    parser.add_argument("--rounds", type=int, default=1, help="runs of each, in turn")
    parser.add_argument("--budget", type=float, default=1.0, help="seconds for each of gemmbench's rows")
    options = parser.parse_args()
    types = [name for name in options.types.split(",") if name in CLPEAK_TYPES]
    if shutil.which("clpeak") is None:
        print("clpeak is not installed: sudo apt-get install clpeak", file=sys.stderr)
        return 2
    devices = list(reachable(options.device))
    if not devices:
        print("no device that both can reach was found", file=sys.stderr)
        return 2

    heading = f"GFLOPS, best of {options.rounds}"
    print(f"{heading:<40}{'type':>8}{'clpeak':>10}{'gemmbench':>11}{'ratio':>8}")
    behind = False
    for device in devices:
        ours: Best = {}
        theirs: Best = {}
        for _ in range(options.rounds):
            keep_best(theirs, clpeak(device, types))
            keep_best(ours, gemmbench(device, types, options.budget))
        for name in types:
            pair = ours.get(name), theirs.get(name)
            shown = ["-" if value is None else gflops(value) for value in pair]
            ratio = pair[0] / pair[1] if pair[0] and pair[1] else None
            behind |= ratio is not None and ratio < 1
            label = device.title.split(" | ")[1][:39]
            text = f"{ratio:.2f}" if ratio else "-"
            print(f"{label:<40}{name:>8}{shown[1]:>10}{shown[0]:>11}{text:>8}")
    return int(behind)


def reachable(selector: str) -> Iterator[DeviceFacts]:
    """The selected devices whose driver's library is known, which is how clpeak is led to the same one.

    PoCL's wheel is left out: it is made to be loaded by pyopencl's own loader.
    """
    from gemmbench.opencl.discovery import devices
    from gemmbench.rules.selection import select

    yield from (
        device
        for device in select(devices(), selector)
        if device.library and "/pyopencl/" not in device.library
    )


def keep_best(best: Best, found: Best) -> None:
    """Merge one run into the best so far."""
    for name, value in found.items():
        best[name] = max(value, best.get(name, 0.0))


def clpeak(device: DeviceFacts, types: list[str]) -> Best:
    """The best width of each type, as clpeak writes it to its XML file."""
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder, "clpeak.xml")
        flags = [f"--{CLPEAK_TYPES[name][0]}" for name in types]
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
    best = {}
    for name in types:
        rates = [
            float(width.text or 0) for width in found.findall(f"{CLPEAK_TYPES[name][1]}_precision_compute/*")
        ]
        if rates:
            best[name] = max(rates) * GIGA
    return best


def gemmbench(device: DeviceFacts, types: list[str], budget: float) -> Best:
    """The best width of each type whose integrity is ok, from the rows that gemmbench saves."""
    with tempfile.TemporaryDirectory() as folder:
        saved = Path(folder, "peak.jsonl")
        command = [sys.executable, "-m", "gemmbench", "peak", "--quiet", "--types", ",".join(types)]
        subprocess.run(
            [*command, "--device", str(device.index), "--budget", str(budget), "--save", str(saved)],
            stdout=subprocess.DEVNULL,
            check=True,
        )
        best: Best = {}
        for row in load(saved).rows:
            found = rate(row, "kernel")
            if found and row.check.verdict == "ok":
                keep_best(best, {row.dtype: found.best})
    return best


if __name__ == "__main__":
    sys.exit(main())
