"""Runs the ladder's variants: verify, then sample the kernel, device and host scopes."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pyopencl as cl

from gemmbench.energy import measure_energy
from gemmbench.facts.dtypes import DTYPES
from gemmbench.facts.problem import Gemm
from gemmbench.facts.records import Check, Policy, Row
from gemmbench.opencl import ptx, resources
from gemmbench.opencl.gemm_bench import Bench, Bind, Prepared, Step
from gemmbench.opencl.memory import choose
from gemmbench.opencl.runtime import Built, Runtime, errors
from gemmbench.rules import reference
from gemmbench.rules.exact import ExactTest
from gemmbench.rules.executor import VERIFYING_FORMER, NotMeasuredError, Tell
from gemmbench.rules.gemm_row import completed, in_turn, verified
from gemmbench.rules.plan import Case
from gemmbench.rules.prediction import refuse_if_too_slow
from gemmbench.rules.variants import BY_NAME, Layout, Variant, round_up


class GemmExecutor:
    """Runs gemm cases on one OpenCL device. Exact tests are done once for each variant and data type."""

    bench: type[Bench] = Bench  # what times a problem

    def __init__(self, runtime: Runtime) -> None:
        self.runtime = runtime
        self._exact: dict[tuple[str, str, tuple[tuple[str, int], ...], str], str] = {}
        self._retargeted: dict[tuple[str, tuple[str, ...], str], Built] = {}

    def run(self, case: Case, policy: Policy, tell: Tell) -> Row:
        """See `rules.executor.Executor`."""
        assert case.problem is not None
        variant, problem = BY_NAME[case.variant], case.problem
        parameters = self._compiled(case)

        tell("building")
        programs = self.programs(variant, problem.dtype, parameters)
        row = self._built_row(case, variant, parameters, programs)

        tell("verifying")
        bind = partial(self.bind, variant, parameters, programs)
        exact = self._exact_error(variant, problem.dtype, parameters, bind)
        if exact:
            check = Check("wrong", {}, (exact,))
            return replace(row, status="wrong", reason=exact, check=check)
        if problem.flops:
            refuse_if_too_slow(problem, policy, partial(self._trial, bind=bind))
        mode = choose(policy.memory, self.runtime.facts)
        make = partial(self.bench, self.runtime, variant, case, mode, policy)
        row = replace(row, memory=mode)
        with errors():
            if case.former:
                return self._in_turn(case, row, parameters, make, bind, policy, tell)
            energy = partial(measure_energy, device=self.runtime.facts)
            return completed(row, problem, make(bind), policy, tell, energy)

    def _in_turn(
        self,
        case: Case,
        row: Row,
        parameters: Mapping[str, int],
        make: Callable[[Bind], Bench],
        bind: Bind,
        policy: Policy,
        tell: Tell,
    ) -> Row:
        """Measure a case in turn with its kernel as it is in the case's other folder.

        Raises:
            NotMeasuredError: unsupported: there is nothing to hold the case against.
        """
        assert case.problem is not None
        variant, problem = BY_NAME[case.variant], case.problem
        tell(VERIFYING_FORMER, of_former=True)
        try:
            with _of_former():
                before = self._former(case, variant, parameters)
                # One of them is bound first, and its temporaries lie before the other's: by chance, so that
                # it evens out from process to process.
                flipped = random.random() < 0.5
                first, second = (before, bind) if flipped else (bind, before)
                bench = make(first)
                benches = (bench.sharing(second), bench) if flipped else (bench, bench.sharing(second))
        except NotMeasuredError as error:
            if not error.restart:
                row = verified(row, problem, make(bind))
            if row.status == "wrong":
                return row
            raise
        tell("verifying")
        row = verified(row, problem, benches[0])
        if row.status != "ok" or not problem.flops:
            return row
        tell(VERIFYING_FORMER, of_former=True)
        with _of_former():
            benches[1].blank()
            check = benches[1].verify()
            if check.verdict == "wrong":
                raise NotMeasuredError("unsupported", "; ".join(check.reasons))
        source = variant.fingerprint(problem.dtype, case.numbers, case.former)
        return in_turn(row, benches, source, policy, tell)

    def _former(self, case: Case, variant: Variant, parameters: Mapping[str, int]) -> Bind:
        """The kernel as it is in the case's other folder, known to be right.

        Raises:
            NotMeasuredError: it is not.
        """
        programs = self.programs(variant, case.dtype, parameters, case.former)
        bind = partial(self.bind, variant, parameters, programs)
        wrong = self._exact_error(variant, case.dtype, parameters, bind, case.former)
        if wrong:
            raise NotMeasuredError("unsupported", wrong)
        return bind

    def inspect(self, case: Case) -> Row:
        """A row with what the case's kernels take as built; nothing is run.

        Raises:
            NotMeasuredError: they do not compile.
        """
        variant = BY_NAME[case.variant]
        parameters = self._compiled(case)
        programs = self.programs(variant, case.dtype, parameters)
        return self._built_row(case, variant, parameters, programs)

    def _compiled(self, case: Case) -> dict[str, int]:
        """The parameters of a case, and those with which its variant has kernels compiled for the problem."""
        assert case.problem is not None
        return BY_NAME[case.variant].compiled(case.problem, self.runtime.facts, case.numbers)

    def programs(
        self, variant: Variant, dtype: str, parameters: Mapping[str, int], root: str = ""
    ) -> dict[str, Built]:
        """The programs of a variant by file, each built once.

        Args:
            variant: whose.
            dtype: the data type.
            parameters: the variant's.
            root: another kernels folder than gemmbench's own.

        Raises:
            NotMeasuredError: they do not compile, or not for the variant's target.
        """
        options = variant.options(dtype, parameters)
        return {file: self._program(file, options, variant.target, root) for file in variant.files}

    def _program(self, file: str, options: tuple[str, ...], target: str, root: str) -> Built:
        built = self.runtime.build(file, options, root)
        if not target:
            return built
        key = (file, options, root)
        if key not in self._retargeted:
            self._retargeted[key] = ptx.rebuild(self.runtime, file, built, target)
        return self._retargeted[key]

    def _built_row(
        self, case: Case, variant: Variant, parameters: Mapping[str, int], programs: Mapping[str, Built]
    ) -> Row:
        assert case.problem is not None
        return replace(
            case.row("ok"),
            build_s=sum(built.seconds for built in programs.values()) if programs else None,
            choice=dict(variant.chosen(case.problem, self.runtime.facts, case.numbers)),
            resources=resources.of_variant(self.runtime, variant, parameters, programs, case.problem),
        )

    def bind(
        self,
        variant: Variant,
        parameters: Mapping[str, int],
        programs: Mapping[str, Built],
        problem: Gemm,
        layout: Layout,
        buffers: Mapping[str, Any],
    ) -> Sequence[Step]:
        """Kernels with their arguments set, in launch order; passes with nothing to do are left out.

        Images that ``buffers`` holds under their name are taken as filled.
        """
        full = {**parameters, **variant.chosen(problem, self.runtime.facts, parameters)}
        values = variant.values(problem, full, layout)
        dtype = DTYPES[problem.dtype]
        scalar = DTYPES[dtype.scalar].numpy.type
        held = {
            name: self.runtime.buffer(size)
            for name, size in variant.temporary_bytes(problem, full, layout).items()
        }
        held |= {
            name: self.runtime.image(*spec.shape(problem), dtype.numpy)
            for name, spec in variant.images.items()
        }
        held |= buffers
        known: dict[str, Any] = {name: np.int32(value) for name, value in values.items()}
        known |= {"alpha": scalar(problem.alpha), "beta": scalar(problem.beta)}
        known |= held

        prepared: list[Step] = []
        for step in variant.steps(values):
            items, group = step.items(values), step.group(values)
            if 0 in items or (step.role == "image" and buffers.keys() & variant.images.keys()):
                continue
            kernel = self.runtime.kernel(programs[step.file], step.kernel, group)
            with errors():
                kernel.set_args(*(known[name] for name in step.arguments))
            rounded = tuple(round_up(*pair) for pair in zip(items, group, strict=True))
            prepared.append(Prepared(step.role, step.kernel, kernel, rounded, group, held))
        return prepared

    def _exact_error(
        self, variant: Variant, dtype: str, parameters: Mapping[str, int], bind: Bind, root: str = ""
    ) -> str:
        """What is wrong on shapes around the tile, with guard cells and NaN where nothing may be read."""
        key = (variant.name, dtype, tuple(sorted(parameters.items())), root)
        if key not in self._exact:
            problem = reference.edge_problem(dtype, variant.edge(parameters))
            errors_found = (
                self.exact_run(problem, bind),
                self.exact_run(replace(problem, alpha=1.0, beta=0.0), bind),
            )
            self._exact[key] = next((error for error in errors_found if error), "")
        return self._exact[key]

    def exact_run(self, problem: Gemm, bind: Bind) -> str:
        """Run one exact problem in padded, guarded buffers; what is wrong, or ""."""
        test = ExactTest.of(problem)
        with errors():
            queue = self.runtime.queue
            buffers = {name: self.runtime.buffer(values.nbytes) for name, values in test.host.items()}
            for name, values in test.host.items():
                if values.size:
                    cl.enqueue_copy(queue, buffers[name], values)
            for launch in bind(problem, test.layout, buffers):
                launch.enqueue(queue)
            result = np.empty_like(test.host["C"])
            cl.enqueue_copy(queue, result, buffers["C"])  # never empty: guard cells stand behind it
            queue.finish()
        return test.error(result)

    def _trial(self, problem: Gemm, bind: Bind) -> float:
        """Seconds of one run of a smaller problem, the first and slow one not counted."""
        with errors():
            layout = Layout.tight(problem)
            a, b, _ = reference.random_operands(problem)
            buffers = {name: self.runtime.buffer(nbytes) for name, nbytes in problem.bytes_of.items()}
            queue = self.runtime.queue
            cl.enqueue_copy(queue, buffers["A"], a)
            cl.enqueue_copy(queue, buffers["B"], b)
            launches = bind(replace(problem, beta=0.0), layout, buffers)
            took = 0.0
            for _ in range(2):
                begin = time.perf_counter()
                for launch in launches:
                    launch.enqueue(queue)
                queue.finish()
                took = time.perf_counter() - begin
        return took


@contextmanager
def _of_former() -> Iterator[None]:
    """Whatever goes wrong with a former kernel, or with two at once: nothing is known of the present one.

    It may take other arguments than today's host code gives it, and fail in any way.
    """
    told = "its kernel in the other folder"
    try:
        yield
    except NotMeasuredError as error:
        raise NotMeasuredError("unsupported", f"{told}: {error.reason}", error.restart) from None
    except OSError as error:  # its path is this machine's business
        why = (error.strerror or "cannot be read").lower()
        raise NotMeasuredError("unsupported", f"{told}: {why}") from None
    except UnicodeDecodeError:
        raise NotMeasuredError("unsupported", f"{told}: is not UTF-8") from None
    except Exception as error:
        raise NotMeasuredError("unsupported", f"{told}: {type(error).__name__}: {error}") from None
