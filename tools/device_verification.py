"""Planted faults and drawn right products on a device, through the launches that are timed.

    python -m tools.device_verification [--device NAME] [--seconds 60]

Each fault is planted behind the multiplication of a shipped kernel, in every type that the device runs, at
256, 1024 and 2048, on generated operands and on a user's: all must be called wrong. Right products of drawn
shapes, scalars and operands must not be. A case that is not called what it is gets a line.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from gemmbench.gemm import reference
from gemmbench.ladder import BY_NAME
from gemmbench.measure.machine import OpenCLMachine
from gemmbench.model.case import Case, Operands, Policy
from gemmbench.model.device import DeviceFacts
from gemmbench.model.dtypes import PLAIN_DTYPES, decode, encode
from gemmbench.model.problem import Gemm
from gemmbench.plan import gemm_plan, select
from tests import rounding

POLICY = Policy(budget_s=1.0, settle_s=0.0, batch_s=0.001, min_batches=3)
SIZES = (256, 1024, 2048)
KERNELS = {  # by type, the first of them that a device runs
    "float": ("nv-async", "cpu-packed", "tiled"),
    "double": ("nv-mma", "cpu-packed", "tiled"),
    "half": ("nv-wgmma", "tiled", "naive"),
    "bfloat16": ("nv-wgmma",),
    "tf32": ("nv-mma",),
    "char": ("nv-mma",),
    "e4m3": ("naive-fp8",),
    "e5m2": ("naive-fp8",),
    "e4m3-half": ("nv-wgmma", "naive-fp8"),
    "e4m3-bfloat16": ("nv-wgmma", "naive-fp8"),
    "e5m2-half": ("nv-wgmma", "naive-fp8"),
    "e5m2-bfloat16": ("nv-wgmma", "naive-fp8"),
}
FAULTS = (
    *(
        "zero",
        "minus A B",
        "last column",
        "first step",
        "middle step",
        "last step",
        "alpha 1 % off",
        "a tile",
    ),
    "nothing the second time",
)
DRAWS = ("generated", "normal", "one sign")


def faulty(fault: str, c: Any, operands: tuple[Any, Any], problem: Gemm) -> Any:
    """C, as numbers, with a fault."""
    if fault == "zero":
        c[...] = 0
    elif fault == "minus A B":
        c = -c
    elif fault == "last column":
        c[:, -1] = 0
    elif fault == "alpha 1 % off":
        c = c * 1.01
    elif fault == "a tile":
        c[32:48, 64:80] = c[32:48, 64:80][:, ::-1].copy()
    else:
        step = {"first step": 0, "middle step": problem.k // 2, "last step": problem.k - 1}[fault]
        a, b = (rounding.numbers(each, problem.dtype) for each in operands)
        c = c - problem.alpha * np.outer(a[:, step], b[step])
    return c


@dataclass
class Planted:
    """The last launch of a problem, with a fault behind it."""

    step: Any
    bench: Any
    buffer: Any
    fault: str
    operands: dict[str, Any]
    role: str = "multiply"
    name: str = "planted"
    ran: list[int] = field(default_factory=list)

    def enqueue(self, queue: Any) -> Any:
        """Run it, and spoil C."""
        import pyopencl as cl

        if self.fault == "nothing the second time" and self.ran:
            scratch = cl.Buffer(queue.context, cl.mem_flags.READ_WRITE, 64)
            return cl.enqueue_fill_buffer(queue, scratch, np.uint32(0), 0, 64)
        event = self.step.enqueue(queue)
        self.ran.append(1)
        if self.fault == "nothing the second time":
            return event
        queue.finish()
        problem, stored = self.bench._problem, self.bench._stored
        c = np.empty(stored.c.shape, stored.c.dtype)
        cl.enqueue_copy(queue, c, self.buffer, is_blocking=True)
        kind = problem.result
        part = np.array(decode(c[: problem.m, : problem.n], kind), np.float64)
        c[: problem.m, : problem.n] = encode(faulty(self.fault, part, self.operands["now"], problem), kind)
        cl.enqueue_copy(queue, self.buffer, c, is_blocking=True)
        return event


def plant(bench: Any, fault: str) -> None:
    """Put a fault behind the multiplication of every operand set."""
    values = bench._values
    operands = {"now": (values.a, values.b)}
    put = bench.put

    def noticed(stored: Any, index: int = 0) -> None:
        operands["now"] = stored.a[:, : bench._problem.k], stored.b[:, : bench._problem.n]
        put(stored, index)

    bench.put = noticed
    ran: list[int] = []
    for plan in {id(each): each for each in (bench._prepared, bench._hosted)}.values():
        for index, steps in enumerate(plan):
            buffer = bench._buffers[index][0]["C"]
            plan[index] = [*steps[:-1], Planted(steps[-1], bench, buffer, fault, operands, ran=ran)]


def verdict(executor: Any, step: Case, fault: str) -> tuple[str, str]:
    """What a case is called, and why, before its batches or after them."""
    bench = executor.prepare(step, POLICY)
    if fault:
        plant(bench, fault)
    elif (exact := bench.verify("exact").check).verdict != "ok":
        return exact.verdict, "; ".join(exact.reasons)
    check = bench.verify("before").check
    if check.verdict == "ok":
        batch = bench.start("device", 3, 1)
        if hasattr(batch, "finish"):
            batch.finish()
        check = bench.verify("after").check
    return check.verdict, "; ".join(check.reasons)


def stored_operands(folder: Path, draw: str, problem: Gemm, rng: np.random.Generator) -> Operands:
    """A user's matrices as files, or generated ones."""
    if draw == "generated":
        return Operands()
    files = []
    for name, (rows, columns) in (("a", problem.stored_a), ("b", problem.stored_b)):
        files.append(folder / f"{name}.npy")
        np.save(files[-1], rounding.drawn(rng, draw, rows, columns, problem.dtype))
    return Operands(str(files[0]), str(files[1]))


def leaves_range(operands: Operands, problem: Gemm) -> bool:
    """Whether a right kernel's sums of a user's matrices may leave the type that they are kept in."""
    if not operands.a or not operands.b or not problem.result.is_float:
        return False
    a, b = (np.abs(np.load(path).astype(float)) for path in (operands.a, operands.b))
    product = (a.T if problem.trans_a else a) @ (b.T if problem.trans_b else b)
    most = abs(problem.alpha) * product.max(initial=0) + abs(problem.beta)
    return bool(most > reference._limits(problem.result).max)


Planned = tuple[str, Gemm, tuple[str, ...]]  # operands, problem, faults ("": none)


def planted_cases(sizes: Sequence[int], dtypes: Sequence[str]) -> Iterator[Planned]:
    """Every fault in every type, on every kind of operands."""
    for size in sizes:
        for dtype in dtypes:
            for draw in DRAWS if dtype in PLAIN_DTYPES else DRAWS[:1]:
                yield draw, Gemm(size, size, size, dtype), ("", *FAULTS)


def right_cases(rng: np.random.Generator, count: int, dtypes: Sequence[str]) -> Iterator[Planned]:
    """Drawn shapes, scalars, layouts and operands."""
    for _ in range(count):
        dtype = str(rng.choice(dtypes))
        m, n = (int(each) for each in rng.integers(1, 400, 2))
        k = int(rng.choice((*rounding.DEPTHS, 4096)))
        alpha, beta = rounding._SCALARS[rng.integers(len(rounding._SCALARS))]
        if dtype == "char":
            alpha, beta = int(2 * alpha), int(4 * beta)
        draw = (
            str(rng.choice(rounding.KINDS)) if dtype in PLAIN_DTYPES and rng.random() < 0.6 else "generated"
        )
        trans_a, trans_b = (bool(each) for each in rng.integers(0, 2, 2))
        yield draw, Gemm(m, n, k, dtype, alpha, beta, trans_a=trans_a, trans_b=trans_b), ("",)


def tried(
    device: DeviceFacts, executor: Any, planned: Planned, rng: np.random.Generator
) -> Iterator[dict[str, Any]]:
    """Cases on the same operands."""
    draw, problem, faults = planned
    with tempfile.TemporaryDirectory() as folder:
        operands, reason = stored_operands(Path(folder), draw, problem, rng), ""
        if leaves_range(operands, problem):
            yield case_line("", draw, problem, "", "unsupported", "sums may leave C's type")
            return
        for name in KERNELS[problem.dtype]:
            (step,) = gemm_plan([device], [BY_NAME[name]], [problem], operands=operands)
            if isinstance(step, Case):
                break
            reason = step.row.reason
        else:
            yield case_line("", draw, problem, "", "unsupported", reason)
            return
        for fault in faults:
            try:
                called, why = verdict(executor, step, fault)
            except Exception as error:  # what a driver may raise is no verdict
                called, why = "failed", f"{type(error).__name__}: {error}"
            yield case_line(name, draw, problem, fault, called, why)


def case_line(kernel: str, draw: str, p: Gemm, fault: str, called: str, why: str) -> dict[str, Any]:
    """A case and what it was called."""
    shape = [p.m, p.n, p.k, p.alpha, p.beta, p.ops]
    return {
        "kernel": kernel, "dtype": p.dtype, "shape": shape, "operands": draw, "fault": fault,
        "called": called, "why": why[:160],
    }  # fmt: skip


def is_right(line: dict[str, Any]) -> bool:
    """Whether a case was called what it is."""
    return line["called"] in ("unsupported", "wrong" if line["fault"] else "ok")


def main() -> int:
    """1 if anything was called what it is not."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--device", default="", help="as gemmbench --device")
    parser.add_argument("--seconds", type=float, default=600.0, help="begin no case after so many")
    parser.add_argument("--right", type=int, default=1000, help="right products")
    parser.add_argument("--sizes", default=",".join(map(str, SIZES)), help="of the faults, with commas")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--types", default=",".join(KERNELS), help="data types, with commas")
    options = parser.parse_args()
    from gemmbench.gemm.opencl import GemmExecutor
    from gemmbench.opencl.runtime import Runtime

    begin = time.monotonic()
    device = select(OpenCLMachine().devices(), options.device)[0]
    executor = GemmExecutor(Runtime(device))
    rng = np.random.default_rng(options.seed)
    sizes, dtypes = [int(size) for size in options.sizes.split(",") if size], options.types.split(",")
    counts: Counter[tuple[str, str]] = Counter()
    for planned in (*planted_cases(sizes, dtypes), *right_cases(rng, options.right, dtypes)):
        if time.monotonic() - begin > options.seconds:
            print(f"time was over at {planned}")
            break
        for line in tried(device, executor, planned, rng):
            counts["a fault" if line["fault"] else "right", line["called"]] += 1
            if not is_right(line):
                print(line, flush=True)
    print(f"{device.title}: {time.monotonic() - begin:.0f} s")
    for (what, called), count in sorted(counts.items()):
        print(f"  {what}: {called} {count}")
    wanted = {("a fault", "wrong"), ("right", "ok")}
    return int(any(called != "unsupported" and (what, called) not in wanted for what, called in counts))


if __name__ == "__main__":
    sys.exit(main())
