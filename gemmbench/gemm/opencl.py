"""Brings the ladder's variants to an OpenCL device: builds, binds, and tests them exactly."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pyopencl as cl

from gemmbench.gemm import verify
from gemmbench.gemm.opencl_bench import Bench, Bind, LoweringBench, Prepared, Step, Timed
from gemmbench.gemm.verify import BATCH, ExactTest, edge_problem
from gemmbench.ladder import variant_of
from gemmbench.ladder.variant import Group, Layout, Pass, Variant, round_up
from gemmbench.model import instrument
from gemmbench.model.case import Case, Operands, Policy
from gemmbench.model.dtypes import DTYPES, ReferenceArray
from gemmbench.model.instrument import NotMeasuredError
from gemmbench.model.kernel_files import TRANSPOSED, text
from gemmbench.model.problem import Gemm
from gemmbench.opencl.runtime import Built, Runtime, choose, errors, rebuild, resources_of


class GemmExecutor:
    """Runs gemm cases on one OpenCL device. Exact tests are done once for each variant and data type."""

    bench: type[Bench] = Bench  # what times a problem
    notes: tuple[str, ...] = ()  # of rows that have samples

    def __init__(self, runtime: Runtime) -> None:
        self.runtime = runtime
        self._exact: dict[tuple[object, ...], str] = {}
        self._retargeted: dict[tuple[str, tuple[str, ...], str], Built] = {}

    def build(self, case: Case) -> instrument.Built:
        with _of_other_folder(case):
            programs = self._programs_of(case)
            return self._built(case, programs, self._smaller_groups(case, programs))

    def prepare(
        self, case: Case, policy: Policy, like: Bench | None = None, problem: Gemm | None = None
    ) -> Bench:
        variant, parameters = _variant(case), self._compiled(case)
        with errors(), _of_other_folder(case):
            programs = self._programs_of(case)
            smaller = self._smaller_groups(case, programs)
            bind = partial(self.bind, variant, parameters, programs, fixed=_fixed(case))
            timed = Timed(
                bind,
                partial(self._exact_error, variant, case, parameters, bind),
                self._built(case, programs, smaller),
                (*self.notes, *smaller_notes(smaller)),
                variant.sums.get(case.dtype, ""),
            )
            if like is not None:
                return like.sharing(timed)
            if problem is not None:
                case = replace(case, problem=replace(problem, beta=0.0), operands=Operands())
            mode = choose(policy.memory, self.runtime.facts)
            return self.bench(self.runtime, variant, case, mode, policy, timed)

    def _programs_of(self, case: Case) -> dict[str, Built]:
        return self.programs(_variant(case), case.dtype, self._compiled(case), case.former)

    def _built(
        self, case: Case, programs: Mapping[str, Built], smaller: Iterable[tuple[Pass, Group, Group]]
    ) -> instrument.Built:
        assert case.problem is not None
        variant, numbers = _variant(case), case.numbers
        return instrument.Built(
            sum(built.seconds for built in programs.values()) if programs else None,
            resources_of(self.runtime, variant, self._compiled(case), programs, case.problem, _fixed(case)),
            {
                **variant.chosen(case.problem, self.runtime.facts, numbers),
                **{
                    name: side
                    for step, _, group in smaller
                    if step.role == "multiply"
                    for name, side in zip(("WX", "WY"), group, strict=False)
                },
            },
            variant.fingerprint(case.dtype, numbers, case.former),
        )

    def _smaller_groups(
        self, case: Case, programs: Mapping[str, Built]
    ) -> tuple[tuple[Pass, Group, Group], ...]:
        """Passes whose work-groups are smaller than planned, with the planned group and the one launched."""
        assert case.problem is not None
        variant, parameters = _variant(case), self._compiled(case)
        chosen = variant.chosen(case.problem, self.runtime.facts, parameters)
        values = variant.values(case.problem, {**parameters, **chosen})
        groups = (
            (
                step,
                step.group(values),
                self.runtime.fitted(programs[step.file], step, values, _fixed(case))[1],
            )
            for step in variant.steps(values)
        )
        return tuple(each for each in groups if each[1] != each[2])

    def _compiled(self, case: Case) -> dict[str, int]:
        """The parameters of a case, and those with which its variant has kernels compiled for the problem."""
        assert case.problem is not None
        return variant_of(case).compiled(case.problem, self.runtime.facts, case.numbers)

    def programs(
        self, variant: Variant, dtype: str, parameters: Mapping[str, int], root: str = ""
    ) -> dict[str, Built]:
        """The programs of a variant by file, each built once.

        `root` is another kernels folder than gemmbench's own.

        Raises:
            NotMeasuredError: they do not compile, or not for the variant's target.
        """
        options = variant.options(dtype, parameters)
        for file in variant.files if root else ():
            for name, (*_, macro) in TRANSPOSED.items():
                multiplies = any(step.file == file and step.role == "multiply" for step in variant.passes)
                if macro in options and multiplies and macro.removeprefix("-D") not in text(file, root):
                    why = f"that {file} takes no {name} that is stored transposed"
                    raise NotMeasuredError("unsupported", why)
        return {file: self._program(file, options, variant.target, root) for file in variant.files}

    def _program(self, file: str, options: tuple[str, ...], target: str, root: str) -> Built:
        built = self.runtime.build(file, options, root)
        if not target:
            return built
        key = (file, options, root)
        if key not in self._retargeted:
            self._retargeted[key] = rebuild(self.runtime, file, built, target)
        return self._retargeted[key]

    def bind(
        self,
        variant: Variant,
        parameters: Mapping[str, int],
        programs: Mapping[str, Built],
        problem: Gemm,
        layout: Layout,
        buffers: Mapping[str, Any],
        fixed: bool = False,
    ) -> Sequence[Step]:
        """Kernels with their arguments set, in launch order; passes with nothing to do are left out.

        Passes that only describe the arguments are enqueued here.

        Images that ``buffers`` holds under their name are taken as filled; ``fixed`` as of `Runtime.fitted`.
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

        described = {
            step.arguments[-1]: held[step.arguments[-1]] for step in variant.steps(values) if step.once
        }
        held = {name: buffer for name, buffer in held.items() if name not in described}
        prepared: list[Step] = []
        for step in variant.steps(values):
            items = step.items(values)
            if 0 in items or (step.role == "image" and buffers.keys() & variant.images.keys()):
                continue
            kernel, group = self.runtime.fitted(programs[step.file], step, values, fixed)
            with errors():
                if variant.own:
                    _check_arguments(kernel, step, known)
                kernel.set_args(*(known[name] for name in step.arguments))
            rounded = tuple(round_up(*pair) for pair in zip(items, group, strict=True))
            made = Prepared(step.role, step.kernel, kernel, rounded, group, held, described)
            if step.once:
                with errors():
                    made.enqueue(self.runtime.queue)
            else:
                prepared.append(made)
        return prepared

    def _exact_error(self, variant: Variant, case: Case, parameters: Mapping[str, int], bind: Bind) -> str:
        """What is wrong on shapes around the tile, with guard cells and NaN where nothing may be read."""
        assert case.problem is not None
        dtype, root, ops = case.dtype, case.former, case.problem.ops
        batch = BATCH if case.problem.batch > 1 else 1
        numbers = tuple(sorted(parameters.items()))
        key = (variant.name, variant.files, variant.flags, dtype, ops, batch, numbers, root)
        if key not in self._exact:
            edge = variant.edge(parameters)
            file = next((step.file for step in variant.passes if step.role == "multiply"), "")
            kernel = verify.Kernel(
                partial(self._result, bind=bind),
                edge,
                variant.without,
                self._tile(variant, dtype, edge, parameters),
                text(file, root) if file else "",
                # A kernel that nobody has looked at under a simulator may reach far past its operands.
                edge if variant.own else 0,
                ops,
                batch,
            )
            self._exact[key] = verify.tested(kernel, dtype)
        return self._exact[key]

    def _tile(
        self, variant: Variant, dtype: str, edge: int, parameters: Mapping[str, int]
    ) -> tuple[int, int] | None:
        """Rows and columns of C that a work-group computes in the exact test, if its groups are tiles."""
        chosen = variant.chosen(edge_problem(dtype, edge), self.runtime.facts, parameters)
        return variant.tile_of({**parameters, **chosen})

    def exact_run(self, problem: Gemm, bind: Bind) -> str:
        """Run one exact problem in padded, guarded buffers; what is wrong, or ""."""
        test = ExactTest.of(problem)
        return test.error(self._result(test, bind))

    def _result(self, test: ExactTest, bind: Bind) -> ReferenceArray:
        """C after a test's problem has run on its operands: flat, with what stands behind it."""
        with errors():
            queue = self.runtime.queue
            buffers = {name: self.runtime.buffer(values.nbytes) for name, values in test.host.items()}
            for name, values in test.host.items():
                if values.size:
                    cl.enqueue_copy(queue, buffers[name], values)
            for launch in bind(test.problem, test.layout, buffers):
                launch.enqueue(queue)
            result = np.empty_like(test.host["C"])
            cl.enqueue_copy(queue, result, buffers["C"])  # never empty: guard cells stand behind it
            queue.finish()
        return result


class LoweringExecutor:
    """Lowers convolutions on one OpenCL device: cases of kind ``lowering``."""

    def __init__(self, runtime: Runtime) -> None:
        self.runtime = runtime

    def prepare(
        self, case: Case, policy: Policy, like: object = None, problem: Gemm | None = None
    ) -> LoweringBench:
        with errors():
            return LoweringBench(self.runtime, case, policy)


def _check_arguments(kernel: Any, step: Pass, known: Mapping[str, Any]) -> None:
    """Whether a user's kernel takes the arguments that its description says.

    Raises:
        NotMeasuredError: it does not.
    """
    names = ", ".join(step.arguments)
    if kernel.num_args != len(step.arguments):
        counts = f"takes {kernel.num_args} arguments, and arguments names {len(step.arguments)}"
        raise NotMeasuredError("failed", f"{step.kernel} {counts}: {names}")
    for number, name in enumerate(step.arguments):
        try:
            kernel.set_arg(number, known[name])
        except cl.Error:
            kind = "a buffer" if isinstance(known[name], cl.MemoryObjectHolder) else known[name].dtype.name
            what = f"argument {number + 1} of {step.kernel} is not {name}, which is {kind}"
            raise NotMeasuredError("failed", f"{what}: arguments says {names}") from None


def _batch(case: Case) -> int:
    """Problems of the exact test of a case."""
    return BATCH if case.problem and case.problem.batch > 1 else 1


def _fixed(case: Case) -> bool:
    """Whether the user or the tuner said in which groups it is launched."""
    return variant_of(case).fixes_group(case.given or ())


def smaller_notes(smaller: Iterable[tuple[Pass, Group, Group]]) -> tuple[str, ...]:
    """For a row with passes whose work-groups are smaller than planned; each sentence once."""
    return tuple(dict.fromkeys(_note(*each) for each in smaller))


def _note(step: Pass, planned: Group, group: Group) -> str:
    """For a row whose pass runs in smaller work-groups."""
    what = "" if step.role == "multiply" else f"{step.kernel} in "
    sides = ("x".join(map(str, each)) for each in (group, planned))
    return f"{what}work-groups of {' instead of '.join(sides)}: the driver takes no more as compiled"


def _variant(case: Case) -> Variant:
    """The variant of a case, with the compiler's math that the case asks for."""
    return variant_of(case).with_math(case.math)


@contextmanager
def _of_other_folder(case: Case) -> Iterator[None]:
    """What goes wrong with kernels of another folder is a refusal, and no fault of the process.

    They may take other arguments than today's host code gives them, and fail in any way.
    """
    try:
        yield
    except NotMeasuredError:
        raise
    except Exception as error:
        if not case.former:
            raise
        reason = f"{type(error).__name__}: {error}"
        if isinstance(error, OSError):  # its path is this machine's business
            reason = (error.strerror or "cannot be read").lower()
        elif isinstance(error, UnicodeDecodeError):
            reason = "is not UTF-8"
        raise NotMeasuredError("unsupported", reason) from None
