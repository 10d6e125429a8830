"""A machine that measures nothing: scripted rows at once (see `recorded`), and faults on demand.

The environment reaches the child process, so it says what happens there:

- ``GEMMBENCH_FAKE_DEVICES``: ``cpu``, ``pocl``, ``gpu`` or a saved run, several with spaces, nothing, or a
  fault;
- ``GEMMBENCH_FAKE_FAULTS``: ``VARIANT SIZE FAULT`` with semicolons: ``tiled 16 sigsegv; naive 8 hang``; a
  parameter may stand for the size: ``register BM=32 sigsegv``;
  of a fault ``former-sigsegv`` its former self died;
- ``GEMMBENCH_FAKE_GAINS``: ``NAME=VALUE FACTOR`` with semicolons, what parameters do to rates: ``TM=8 1.5``;
- ``GEMMBENCH_FAKE_LOG``: a file that gets a line for each case that is run;
- ``GEMMBENCH_FAKE_CLOSED``: a platform whose devices do not open;
- ``GEMMBENCH_FAKE_PID``: a file for the process id of a child that hangs.
"""

from __future__ import annotations

import os
import signal
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

from gemmbench.ladder import control_case
from gemmbench.model.case import Case, Policy
from gemmbench.model.device import DeviceFacts, HostFacts
from gemmbench.model.instrument import Built, NotMeasuredError
from gemmbench.model.problem import Gemm
from gemmbench.model.row import Check, Resources, Row, Work
from gemmbench.model.run_file import load
from tests import fake_runs
from tests.cli.recorded import Recorded

DEVICES = {"cpu": fake_runs.CPU, "pocl": fake_runs.POCL, "gpu": fake_runs.GPU}
TOP = {"float": 345.0, "double": 176.0, "half": 28.0, "int": 88.0}
OTHER_TOP = 88.0
MEMORY_BYTES = 1 << 30
LAST_WORDS = "fatal error in the driver's compiler"


class FakeMachine:
    device: DeviceFacts | None = None  # of the case that comes
    problems: tuple[tuple[str, str], ...] = ()

    def __init__(self) -> None:
        self._broken = False  # by running out of memory: whoever runs a case here again is wrong

    def devices(self) -> tuple[DeviceFacts, ...]:
        names = _device_names()
        if names and not names[0].endswith(".jsonl") and names[0] not in DEVICES:
            self._fail(names[0])
        devices = [DEVICES.get(name) or load(name).header.devices[0] for name in names]
        return tuple(
            replace(device, index=index, platform_index=index, device_index=0)
            for index, device in enumerate(devices)
        )

    def host(self) -> HostFacts:
        runs = [name for name in _device_names() if name.endswith(".jsonl")]
        return load(runs[0]).header.host if runs else fake_runs.HOST

    def prepare(self, case: Case, policy: Policy, like: object = None, problem: Gemm | None = None) -> Any:
        if case == control_case(self.device, case):
            return Recorded(case.row("ok"))  # without noise or faults
        return Recorded(self.run(case, self.device, policy))

    def run(self, case: Case, device: DeviceFacts | None, policy: Policy) -> Row:
        assert not self._broken, "this process should have been replaced"
        size = case.problem.m if case.problem else case.parameters.get("width", 0)
        for fault in os.environ.get("GEMMBENCH_FAKE_FAULTS", "").split(";"):
            marks = {str(size), *(f"{name}={value}" for name, value in case.parameters.items())}
            if fault and fault.split()[0] == case.variant and fault.split()[1] in marks:
                if fault.split()[2] == "former-sigsegv":
                    died = "the driver's process was killed by SIGSEGV: fatal error in the driver's compiler"
                    raise NotMeasuredError("unsupported", f"its kernel in the other folder: crashed: {died}")
                self._fail(fault.split()[2])
        if log := os.environ.get("GEMMBENCH_FAKE_LOG"):
            with Path(log).open("a") as file:
                print(case.label, dict(case.parameters), file=file)
        if case.kind == "peak":
            width = int(case.parameters.get("width", 1))
            row = fake_runs.peak_row(width, TOP.get(case.dtype, OTHER_TOP) * (1 - width / 64))
            row = replace(row, variant=case.variant)
            if os.environ.get("GEMMBENCH_FAKE_SOURCES"):  # only then the cache keeps it
                row = replace(row, source=case.source)
        elif case.problem is None:
            seconds = fake_runs.scope(1e-6 if case.kind == "latency" else MEMORY_BYTES / 2e10)
            row = replace(case.row("ok"), work=Work(bytes=MEMORY_BYTES), check=Check("ok"))
            row = replace(row, samples={"host" if case.kind == "transfer" else "kernel": seconds}, source="")
        else:
            top = max(rate or 0 for rate in fake_runs.RATES.get(case.variant, (10.0,)))
            top *= TOP[case.dtype] / TOP["float"]  # no multiplication is faster than its type's peak
            gflops = top * case.problem.k / (case.problem.k + 64) * _gain(case)
            row = case.row("ok")
            assert row.problem is not None
            row = fake_runs.gemm_row(case.variant, row.problem, gflops, case.device, transfer=0.5)
            row = replace(row, source=case.source)
        if policy.energy:
            row = replace(row, energy=fake_runs.energy(row, device))
        label = case.problem.label if case.problem else ""
        row = replace(row, label=label, notes=(*case.notes, *row.notes))
        row = replace(row, ran_on=case.ran_on, phase=case.phase, grid=case.grid, own=case.row("ok").own)
        return replace(row, device=case.device, dtype=case.dtype, parameters=case.parameters)

    def executor(self, case: Case, device: DeviceFacts | None) -> FakeMachine:
        if device and device.platform == os.environ.get("GEMMBENCH_FAKE_CLOSED"):
            raise NotMeasuredError("failed", "it failed. Mend it", restart=True)
        self.device = device
        return self

    def build(self, case: Case) -> Built:
        if log := os.environ.get("GEMMBENCH_FAKE_LOG"):
            with Path(log).open("a") as file:
                print("built", dict(case.parameters), file=file)
        kernel = Resources(case.variant.replace("-", "_"), "multiply", 256, 1024, 16, 64, 2048)
        return Built(resources=(kernel,))

    def _fail(self, fault: str) -> None:
        os.write(1, f"{LAST_WORDS}\n".encode())  # as drivers do, on the stdout that they were given
        if fault == "sigsegv":
            os.kill(os.getpid(), signal.SIGSEGV)
        if fault == "exit":
            os._exit(3)
        if fault == "hang":
            if file := os.environ.get("GEMMBENCH_FAKE_PID"):
                Path(file).write_text(str(os.getpid()))
            time.sleep(600)
        if fault == "host-memory":
            self._broken = True
            raise MemoryError
        if fault == "device-memory":
            self._broken = True
            raise NotMeasuredError("failed", "clCreateBuffer failed: out of resources", restart=True)
        if fault == "skipped":
            raise NotMeasuredError("skipped", "would take about 19 s", needs_s=19.0)
        if fault == "unsupported":
            raise NotMeasuredError("unsupported", "install CLBlast")
        if fault == "wrong":
            raise NotMeasuredError("wrong", Check("wrong", {}, ("residual 3.1 times the bound",)).reasons[0])
        if fault == "os-error":
            raise OSError(5, "input/output error")
        raise AssertionError(fault)


def _device_names() -> list[str]:
    return os.environ.get("GEMMBENCH_FAKE_DEVICES", "cpu pocl").split()


def _gain(case: Case) -> float:
    """What the environment says that a case's parameters do to its rate."""
    gain = 1.0
    for entry in filter(None, os.environ.get("GEMMBENCH_FAKE_GAINS", "").split(";")):
        name, value = entry.split()[0].split("=")
        if case.parameters.get(name) == int(value):
            gain *= float(entry.split()[1])
    return gain


class Sourced(FakeMachine):
    """As on real machines, rows hold the hash of the kernels that made them."""

    def run(self, case: Case, device: DeviceFacts | None, policy: Policy) -> Row:
        return replace(super().run(case, device, policy), source=case.source)


def make() -> FakeMachine:
    return FakeMachine()


def make_nothing() -> FakeMachine:
    raise PermissionError(13, "permission denied", "/tmp/gemmbench")
