"""``make drivers``: the exact tests of every kernel, type and probe on every OpenCL driver there is.

    python -m tools.drivers [--install] [NAME...]   run them; NAME is part of a driver's name
    python -m tools.drivers --new [NAME...]         the cases that were not run before, or of an earlier text
    python -m tools.drivers --write | --check       docs/drivers.md from docs/drivers.json; is it stale

Each driver runs in processes of its own that see no other one: a crash or a hang costs one case. A driver's
results replace its earlier ones in docs/drivers.json; those of drivers that are not here stay. The worker
(``drivers.py --worker``) needs nothing but gemmbench, so that it also runs on a board.
"""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import json
import os
import platform
import re
import selectors
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timezone
from functools import cache, partial
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
RESULT, DOCUMENT = ROOT / "docs" / "drivers.json", ROOT / "docs" / "drivers.md"

LIMIT_S = 240.0  # for a case; a simulator or an emulator is slow
SQUARES = (1, 7, 64, 100)
#         m    n    k
EDGES = (
    *((0, 5, 5), (5, 0, 5), (5, 5, 0), (1, 1, 1), (1, 130, 3), (130, 1, 3), (3, 2, 130), (7, 13, 31)),
    *((63, 65, 64), (127, 129, 128), (257, 64, 33)),
)
SMALL = ((0, 5, 5), (5, 5, 0), (7, 13, 31), (33, 34, 35))  # in the place of EDGES, where all is slow
SIMULATED = 64  # squares from here on are too slow for Oclgrind
SCALARS = ((1.0, 0.0), (2.0, -1.0), (0.0, 1.0))


# --- the worker: one driver, case after case; a line of JSON before and after each --------------------------


def worker(done: set[str]) -> None:
    """Run all cases but those that are done, on every device of the drivers that the loader shows."""
    from gemmbench.opencl import discovery, drivers

    devices = discovery.devices(drivers.Registered())
    say({"devices": [facts_of(device) for device in devices]})
    for device in devices:
        for name, run in cases(device):
            key = f"{device.index} {name}"
            if key in done:
                continue
            say({"begin": key})
            status, reason = outcome(run)
            say({"end": key, "status": status, "reason": reason})


def say(line: Mapping[str, Any]) -> None:
    os.write(REAL_STDOUT, (json.dumps(line) + "\n").encode())


REAL_STDOUT = 1


def facts_of(device: Any) -> dict[str, Any]:
    from gemmbench.model.device import driver_name

    return {
        "index": device.index,
        "device": " ".join(device.name.split()),
        "driver": driver_name(device),
        "version": device.version,
        "machine": platform.machine(),
        "work_group": device.max_work_group_size,
        "dtypes": list(device.dtypes),
    }


def outcome(run: Any) -> tuple[str, str]:
    from gemmbench.model.instrument import NotMeasuredError

    try:
        reason = run()
    except NotMeasuredError as error:
        return ("fails" if error.status == "failed" else error.status), error.reason
    except Exception as error:  # the driver's, through pyopencl: a row as any other
        return "fails", f"{type(error).__name__}: {error}"
    return reason if isinstance(reason, tuple) else ("wrong" if reason else "ok", reason)


def cases(device: Any) -> Iterator[tuple[str, Any]]:
    """The name of each case and what runs it: a reason, "" for right, or status and reason."""
    from gemmbench.gemm.opencl import GemmExecutor
    from gemmbench.ladder import BY_NAME, LADDER
    from gemmbench.opencl.runtime import Runtime
    from gemmbench.probes.opencl import ProbeExecutor

    runtime = Runtime(device)
    multiply, probes = GemmExecutor(runtime), ProbeExecutor(runtime)
    for name in LADDER:
        for dtype in BY_NAME[name].dtypes:
            yield f"gemm {name} {dtype}", partial(exact, multiply, device, name, dtype)
    if not is_slow(device):
        yield from probe_cases(probes, device)


def is_slow(device: Any) -> bool:
    """Whether an interpreter runs what it compiles: smaller problems, and no probes."""
    return "oclgrind" in f"{device.platform} {device.name}".lower() or "--few" in sys.argv


def exact(executor: Any, device: Any, name: str, dtype: str) -> str | tuple[str, str]:
    """Every edge and square size, with guard cells, in rows that are longer than they need be."""
    from gemmbench.ladder import BY_NAME
    from gemmbench.model.case import Skip
    from gemmbench.model.problem import Gemm
    from gemmbench.suite.plan import gemm_plan

    variant = BY_NAME[name]
    squares = [(n, n, n) for n in SQUARES if n < SIMULATED or "Oclgrind" not in device.platform]
    shapes = (*squares, *(SMALL if is_slow(device) else EDGES))
    for m, n, k in shapes:
        for alpha, beta in SCALARS:
            problem = Gemm(m, n, k, dtype, alpha, beta)
            if variant.unfit(problem):
                continue
            (step,) = gemm_plan([device], [variant], [problem])
            if isinstance(step, Skip):
                return step.row.status, step.row.reason
            parameters = executor._compiled(step)
            bind = partial(executor.bind, variant, parameters, executor._programs_of(step))
            if error := executor.exact_run(problem, bind):
                return f"{m}x{n}x{k}, alpha {alpha:g}, beta {beta:g}: {error}"
    return ""


def probe_cases(executor: Any, device: Any) -> Iterator[tuple[str, Any]]:
    """Each probe at its smallest size and at vector widths 1 and 4, with every way to run it."""
    from gemmbench.model.case import Skip
    from gemmbench.probes import ALL_DTYPES, PROBES
    from gemmbench.probes.arithmetic import ChainProbe, MatrixProbe, kernels_in
    from gemmbench.probes.memory import BY_NAME as MEMORY
    from gemmbench.probes.memory import FAMILIES, candidates, memory_plan
    from gemmbench.suite.plan import peak_plan

    steps = (*peak_plan([device], ALL_DTYPES, (1, 4), reach="every"), *memory_plan([device], tuple(FAMILIES)))
    seen = set()
    for step in steps:
        row = step.row if isinstance(step, Skip) else step
        width = row.parameters.get("width", "")
        name = f"probe {row.variant} {row.dtype} {width}".rstrip()
        if name in seen:  # a larger working set or transfer
            continue
        seen.add(name)
        if isinstance(step, Skip):
            yield name, partial(lambda each: (each.status, each.reason), step.row)
            continue
        ways: list[dict[str, Any]]
        if step.kind != "peak":
            ways = [dict(way) for way in candidates(MEMORY[step.variant], device, step.parameters)]
        elif isinstance(probe := PROBES[step.variant], ChainProbe):
            base = {"chains": 4, "unroll": 4, "kernels": kernels_in((4,))}
            ways = [{**base, "form": form.name} for form in probe.usable(device, step.dtype)]
        else:
            assert isinstance(probe, MatrixProbe)
            ways = [{"chains": probe.chains[0], "unroll": probe.unrolls[0], "groups": probe.groups[0]}]
        yield name, partial(probed, executor, step, ways)


def probed(executor: Any, case: Any, ways: Sequence[Mapping[str, Any]]) -> str | tuple[str, str]:
    """What every way of a probe computes; a way that the device does not take is none."""
    from gemmbench.model.case import Policy
    from gemmbench.model.instrument import NotMeasuredError

    refusals = []
    ran = 0
    for way in ways:
        try:
            bench = executor.prepare(replace(case, parameters={**case.parameters, **way}), Policy(), None)
            check = bench.verify("before").check
        except NotMeasuredError as error:
            refusals.append(error.reason)
            continue
        ran += 1
        if check.verdict in ("wrong", "suspect"):
            return f"{', '.join(f'{k}={v}' for k, v in way.items())}: {'; '.join(check.reasons)}"
    if not ran:
        return "unsupported", (refusals or ["no way of running it fits this device"])[0]
    return ""


# --- the parent ---------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Driver:
    """A driver, and what a process needs to see it and no other."""

    name: str
    library: str = ""
    origin: str = ""
    environment: Mapping[str, str] = field(default_factory=dict)
    command: tuple[str, ...] = (sys.executable, str(Path(__file__).resolve()), "--worker")
    machine: str = ""  # how it is run, where it is not as it stands


#    name, Debian's package, library, environment
DEBIAN: tuple[tuple[str, str, str, Mapping[str, str]], ...] = (
    ("PoCL", "pocl-opencl-icd", "libpocl.so.2", {}),
    ("Mesa rusticl", "mesa-opencl-icd", "libRusticlOpenCL.so.1", {"RUSTICL_ENABLE": "llvmpipe"}),
    ("Mesa Clover", "mesa-opencl-icd", "libMesaOpenCL.so.1", {"LP_CL": "1"}),
    ("Intel compute runtime", "intel-opencl-icd", "intel-opencl/libigdrcl.so", {}),
    ("Oclgrind", "oclgrind", "oclgrind/liboclgrind-rt-icd.so", {}),
)


def install() -> None:
    """Debian's drivers, without the files that would show them to every other program of this machine."""
    packages = sorted({package for _, package, _, _ in DEBIAN})
    hidden = "Dpkg::Options::=--path-exclude=/etc/OpenCL/vendors/*"
    command = ("apt-get", "install", "-y", "--no-install-recommends", "-o", hidden)
    for package in packages:  # one that this release lacks costs no other
        subprocess.run((*command, package), check=False)


def drivers_here() -> list[Driver]:
    """What Debian's packages installed, what pip did, and what the loader would show beside them."""
    from gemmbench.opencl import drivers

    seen: dict[str, Driver] = {}
    for name, package, library, environment in DEBIAN:
        for folder in (Path("/usr/lib") / f"{platform.machine()}-linux-gnu", Path("/usr/lib")):
            if (folder / library).exists():
                path = str((folder / library).resolve())
                seen.setdefault(Path(path).name, Driver(name, path, f"Debian: {package}", environment))
    registered = drivers.register()
    drivers.release()
    for driver in registered.drivers:
        name = Path(os.path.realpath(driver.library)).name if "/" in driver.library else driver.library
        title = "Intel OpenCL" if "intelocl" in name else "NVIDIA" if "nvidia" in name else name
        seen.setdefault(
            name, Driver(title, driver.library, driver.origin.removesuffix(" (no .icd file was installed)"))
        )
    return list(seen.values())


_COMMENTS = re.compile(r"/\*.*?\*/|//[^\n]*", re.DOTALL)


@cache
def text_of(name: str) -> str:
    """A hash of what the exact tests compile of a kernel: no layouts, no batches, no comments, no blanks."""
    from gemmbench.ladder import BY_NAME
    from gemmbench.model.kernel_files import HALF_STORED, source

    text = "".join(source(file, (HALF_STORED,)) for file in BY_NAME[name].files)
    return hashlib.sha256("".join(_COMMENTS.sub("", text).split()).encode()).hexdigest()[:8]


def is_earlier(result: Mapping[str, Any], key: str) -> bool:
    """Whether a case of a driver was run with another text of its kernel than that of now."""
    from gemmbench.ladder import BY_NAME

    _, kind, name, *_ = key.split()
    return kind == "gemm" and name in BY_NAME and result["texts"].get(name) != text_of(name)


def earlier(driver: Driver, machine: str) -> dict[str, tuple[str, str]]:
    """The cases of a driver that were run before, with the texts that kernels have now."""
    known = json.loads(RESULT.read_text())
    for result in known.values():
        same = (result["name"], result["origin"]) == (driver.name, driver.origin)
        if same and result["devices"] and result["devices"][0]["machine"] == machine:
            return {key: row for key, row in result["rows"].items() if not is_earlier(result, key)}
    return {}


def run(driver: Driver, rows: dict[str, tuple[str, str]] | None = None) -> dict[str, Any]:
    """All cases of a driver but those of earlier rows, in a fresh process after one that crashed or hung."""
    from gemmbench.ladder import LADDER

    rows = rows or {}
    devices: list[dict[str, Any]] = []
    trouble = ""
    with tempfile.TemporaryDirectory() as scratch:
        Path(scratch, "only.icd").write_text(driver.library + "\n")
        caches = {"POCL_CACHE_DIR": scratch, "PYOPENCL_NO_CACHE": "1"}
        environment = {**os.environ, **driver.environment, **caches}
        if driver.library:
            environment |= {"OCL_ICD_VENDORS": scratch, "OCL_ICD_FILENAMES": driver.library}
        while True:
            before = len(rows)
            listed, trouble = attend(driver, environment, rows)
            devices = listed or devices
            if not trouble or len(rows) == before:
                break
    return {
        "name": driver.name,
        "origin": driver.origin,
        "how": driver.machine,
        "environment": dict(driver.environment),
        "devices": devices,
        "trouble": "" if devices else trouble or "it shows no device",
        "date": datetime.now(timezone.utc).date().isoformat(),
        "rows": {key: list(row) for key, row in rows.items()},
        "texts": {name: text_of(name) for name in sorted({key.split()[2] for key in rows} & {*LADDER})},
    }


def attend(
    driver: Driver, environment: Mapping[str, str], rows: dict[str, tuple[str, str]]
) -> tuple[list[dict[str, Any]], str]:
    """One process, until it ends or must be ended; its devices, and what became of it.

    Args:
        rows: of this driver; those that it finishes are put in.
    """
    process = subprocess.Popen(
        driver.command, env=dict(environment), stdin=subprocess.PIPE, stdout=subprocess.PIPE,
        stderr=subprocess.PIPE, start_new_session=True,
    )  # fmt: skip
    assert process.stdin is not None
    assert process.stdout is not None
    assert process.stderr is not None
    with contextlib.suppress(BrokenPipeError):  # gone already: stderr tells why
        process.stdin.write(("\n".join(rows) + "\n").encode())
        process.stdin.close()
    devices: list[dict[str, Any]] = []
    current, pending, errors = "", b"", b""
    deadline = time.monotonic() + LIMIT_S
    hung = False
    with selectors.DefaultSelector() as selector:
        selector.register(process.stdout, selectors.EVENT_READ)
        selector.register(process.stderr, selectors.EVENT_READ)
        while selector.get_map():
            ready = selector.select(max(0.0, deadline - time.monotonic()))
            if not ready:
                hung = True
                break
            for key, _ in ready:
                data = os.read(key.fd, 1 << 16)
                if not data:
                    selector.unregister(key.fileobj)
                elif key.fileobj is process.stderr:
                    errors = (errors + data)[-4096:]
                else:
                    pending += data
            *lines, pending = pending.split(b"\n")
            for line in map(json.loads, filter(None, lines)):
                deadline = time.monotonic() + LIMIT_S
                devices = line.get("devices", devices)
                current = line.get("begin", "" if "end" in line else current)
                if "end" in line and os.environ.get("DRIVERS_VERBOSE"):
                    print(line, flush=True)
                if "end" in line:
                    rows[line["end"]] = line["status"], line["reason"]
                    if line["status"] not in ("ok", "unsupported"):
                        print(
                            f"  {driver.name}: {line['end']}: {line['status']}: {line['reason']}", flush=True
                        )
    if hung:
        os.killpg(process.pid, 9)
    code = process.wait()
    process.stdout.close()
    process.stderr.close()
    if not hung and not code:
        return devices, ""
    said = [text.strip() for text in errors.decode(errors="replace").splitlines() if text.strip()]
    what = (
        f"no answer in {LIMIT_S:.0f} s" if hung else f"exit status {code}" if code > 0 else f"signal {-code}"
    )
    reason = f"{what}: {said[-1]}" if said and not hung else what
    if current:
        rows[current] = "hangs" if hung else "crashes", reason
        print(f"  {driver.name}: {current}: {rows[current]}", flush=True)
    return devices, reason


def keep(result: dict[str, Any]) -> None:
    """Put a driver's results in the place of its earlier ones."""
    known = json.loads(RESULT.read_text()) if RESULT.exists() else {}
    drivers = sorted({device["driver"] for device in result["devices"]}) or [result["name"]]
    machine = result["devices"][0]["machine"] if result["devices"] else platform.machine()
    if result["devices"]:  # where there was none, there is one now
        known.pop(f"{result['name']}, {machine}", None)
    known[f"{', '.join(drivers)}, {machine}"] = result
    RESULT.write_text(json.dumps(known, indent=1, sort_keys=True) + "\n")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", metavar="NAME")
    for option in ("new", "install", "write", "check", "worker", "few"):
        parser.add_argument(f"--{option}", action="store_true")
    asked = parser.parse_args()
    if asked.worker:
        worker(set(sys.stdin.read().splitlines()))
        return 0
    if asked.install:
        install()
    if not (asked.write or asked.check):
        for driver in drivers_here():
            if not asked.names or any(name.lower() in driver.name.lower() for name in asked.names):
                print(f"{driver.name} ({driver.origin})", flush=True)
                keep(run(driver, earlier(driver, platform.machine()) if asked.new else None))
    from tools.drivers_page import document

    text = document(json.loads(RESULT.read_text()))
    if asked.check:
        if DOCUMENT.read_text() == text:
            return 0
        print(
            "docs/drivers.md is not what docs/drivers.json gives: python -m tools.drivers --write",
            file=sys.stderr,
        )
        return 1
    DOCUMENT.write_text(text)
    return 0


if __name__ == "__main__":
    sys.path[:1] = [str(ROOT)] if (ROOT / "tools").is_dir() else []
    sys.exit(main())
