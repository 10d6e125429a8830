"""Planted faults and right kernels on a device, through the launches that are timed.

    python -m tools.device_verification [--device NAME] [--seconds 600] [--right 1000]

Each fault is planted behind the last launch of a shipped kernel, in every type that the device runs. Right
cases have any kernel or library of the device, and shape, scalars, layout, batch and operands at random.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice, product
from pathlib import Path
from typing import Any

import numpy as np

from gemmbench.gemm.verify import poison, widen
from gemmbench.ladder import BY_NAME
from gemmbench.measure.machine import OpenCLMachine
from gemmbench.model.case import Case, Operands, Policy
from gemmbench.model.device import DeviceFacts
from gemmbench.model.dtypes import DTYPES, GEMM_DTYPES, PLAIN_DTYPES, encode
from gemmbench.model.instrument import NotMeasuredError, When
from gemmbench.model.problem import Gemm
from gemmbench.suite.plan import gemm_plan
from gemmbench.suite.selection import select
from tests import rounding

OURS = ("nv-wgmma", "nv-mma", "nv-async", "cpu-packed", "gpu-tile", "tiled", "naive-fp8", "naive")
FAST = (*OURS, "register", "cublas", "clblast")
ON_DEVICE = tuple(name for name, variant in BY_NAME.items() if not variant.on_host)
SMALL = 1e8  # flops that any kernel is given
STEPS = {"first step": 0, "middle step": 0.5, "last step": 1}
FACTORS = {"zero": 0, "minus A B": -1, "alpha 1 % off": 1.01}
FAULTS = (*STEPS, *FACTORS, "last column", "a tile", "nothing the second time", "the first result again")


@dataclass
class Planted:
    """The last launch of a problem, with a fault behind it."""

    step: Any
    problem: Gemm
    buffers: Any
    fault: str
    kept: list[Any]  # every C
    role: str = "multiply"
    name: str = "planted"

    def enqueue(self, queue: Any) -> Any:
        """Run it, and change C."""
        import pyopencl as cl

        result = self.problem.result
        before, event = self._stored(queue, "C"), self.step.enqueue(queue)
        c = self._stored(queue, "C")
        self.kept.append(c)
        if self.fault == "nothing the second time":
            c = c if ((before == poison(result)) | np.isnan(before)).all() else before
        elif self.fault == "the first result again":
            c = self.kept[0]
        else:
            c = encode(self._changed(queue, widen(c, result)), result)
        cl.enqueue_copy(queue, self.buffers["C"], np.ascontiguousarray(c), is_blocking=True)
        return event

    def _stored(self, queue: Any, name: str) -> Any:
        import pyopencl as cl

        problem = self.problem
        shapes = {"A": problem.stored_a, "B": problem.stored_b, "C": (problem.m, problem.n)}
        kind = problem.result if name == "C" else DTYPES[problem.dtype]
        values = np.empty(shapes[name], kind.numpy)
        cl.enqueue_copy(queue, values, self.buffers[name], is_blocking=True)
        return values

    def _changed(self, queue: Any, c: Any) -> Any:
        """C, as numbers, with the fault."""
        problem, fault = self.problem, self.fault
        if fault in STEPS:
            a, b = (rounding.numbers(self._stored(queue, name), problem.dtype) for name in "AB")
            b, step = b.T if problem.trans_b else b, round(STEPS[fault] * (problem.k - 1))
            return c - problem.alpha * np.outer(a[:, step], b[step])
        if fault == "last column":
            c[:, -1] = 0
        elif fault == "a tile":
            c[32:48, 64:80] = c[32:48, 64:80][:, ::-1].copy()
        return FACTORS.get(fault, 1) * c


def verdict(machine: OpenCLMachine, device: DeviceFacts, case: Case, fault: str) -> tuple[str, str]:
    """The verdict on a case and why, before its batches or after them."""
    executor, kept = machine.executor(case, device), list[Any]()
    if fault:
        bind = executor.bind

        def planted(*of: Any, **fixed: Any) -> list[Any]:
            *steps, last = bind(*of, **fixed)
            return [*steps, Planted(last, of[3], of[5], fault, kept)]

        executor.bind = planted
    try:
        bench = executor.prepare(case, Policy())
    finally:
        vars(executor).pop("bind", None)
    whens: tuple[When, ...] = ("before", "after") if fault else ("exact", "before", "after")
    for when in whens:
        for clock in bench.prepared.clocks[:2] if when == "after" else ():
            getattr(bench.start(clock, 3), "finish", str)()  # a batch may be finished already
        check = bench.verify(when).check
        if check.verdict == "wrong":
            break
    bench.release()
    return check.verdict, "; ".join(check.reasons)


def own_operands(folder: Path, problem: Gemm, rng: np.random.Generator) -> Operands:
    """A user's matrices as files; generated ones if a right kernel's sums of those may leave C's type."""
    most, files = abs(problem.alpha) * problem.k, []
    for name, shape in (("a", problem.stored_a), ("b", problem.stored_b)):
        matrix = rounding.drawn(rng, str(rng.choice(rounding.KINDS)), *shape, problem.dtype)
        most *= float(np.abs(matrix).max())
        files.append(str(folder / f"{name}.npy"))
        np.save(files[-1], matrix)
    return Operands(*files) if most + abs(problem.beta) <= problem.result.largest else Operands()


def right_problem(rng: np.random.Generator) -> Gemm:
    """Any type, layout, scalars and shape: lengths from 1 to 3000, of every magnitude."""
    dtype = str(rng.choice(GEMM_DTYPES))
    m, n, k = (int(length) for length in np.exp(rng.uniform(0, np.log(3001), 3)))
    alpha, beta = rng.choice((1.0, -0.5, 4.0, rng.normal())), rng.choice((0.0, 0.0, 1.0, rng.normal()))
    if dtype == "char":
        alpha, beta = np.rint(2 * alpha), np.rint(2 * beta)
    trans_a, trans_b = (bool(each) for each in rng.integers(0, 2, 2))
    batch = int(rng.choice((1, 1, 2, 5))) if 2 * m * n * k < SMALL else 1
    return Gemm(m, n, k, dtype, float(alpha), float(beta), trans_a=trans_a, trans_b=trans_b, batch=batch)


def cases(device: DeviceFacts, options: argparse.Namespace, folder: Path) -> Iterator[tuple[Case, str]]:
    """Every case with its fault, or "". What no kernel takes is left out."""

    def first(names: Sequence[str], problem: Gemm, operands: Operands) -> list[Case]:
        plan = (gemm_plan([device], [BY_NAME[name]], [problem], operands=operands)[0] for name in names)
        return list(islice((step for step in plan if isinstance(step, Case)), 1))

    rng, count = np.random.default_rng(options.seed), 0
    for size, dtype in product(map(int, filter(None, options.sizes.split(","))), GEMM_DTYPES):
        problem = Gemm(size, size, size, dtype, trans_b=dtype.startswith("e"))
        yield from product(first(OURS, problem, Operands()), FAULTS)
    while count < options.right:
        problem = right_problem(rng)
        is_own = problem.dtype in PLAIN_DTYPES and problem.batch == 1 and rng.random() < 0.5
        operands = own_operands(folder, problem, rng) if is_own else Operands()
        names = rng.permutation(ON_DEVICE if problem.flops < SMALL else FAST).tolist()
        found = first(names, problem, operands)
        yield from product(found, [""])
        count += len(found)


def main() -> int:
    """1 if any verdict was wrong."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--device", default="", help="as gemmbench --device")
    parser.add_argument("--seconds", type=float, default=600.0, help="start no case after so many")
    parser.add_argument("--right", type=int, default=1000, help="right cases")
    parser.add_argument("--sizes", default="256,1024,2048", help="of the faults, with commas")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    begin, machine, wrong = time.monotonic(), OpenCLMachine(), 0
    device = select(machine.devices(), options.device)[0]
    counts: Counter[tuple[str, str, str]] = Counter()
    with tempfile.TemporaryDirectory() as folder:
        for case, fault in cases(device, options, Path(folder)):
            if time.monotonic() - begin > options.seconds:
                print("time is up")
                break
            try:
                called, why = verdict(machine, device, case, fault)
            except NotMeasuredError as error:
                called, why = error.status, error.reason
            counts["fault" if fault else "right", case.dtype, called] += 1
            if called not in ("unsupported", "wrong" if fault else "ok"):
                wrong += 1
                print(f"{fault or 'right'}: {called}: {why[:200]}", case.variant, case.gemm, flush=True)
    print(f"{device.title}: {time.monotonic() - begin:.0f} s, {wrong} wrong verdicts")
    for (what, dtype, called), count in sorted(counts.items()):
        print(f"  {what} {dtype}: {called} {count}")
    return int(bool(wrong))


if __name__ == "__main__":
    sys.exit(main())
