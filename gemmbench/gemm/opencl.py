"""Brings the ladder's variants, and CLBlast, to an OpenCL device: builds, binds, and tests them exactly."""

from __future__ import annotations

import ctypes
import ctypes.util
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyopencl as cl

from gemmbench.gemm import verify
from gemmbench.gemm.opencl_bench import Bind, GemmBench, PreparedLaunch, Step, Timed, WallBench
from gemmbench.gemm.verify import BATCH, ExactTest, Terms, edge_problem
from gemmbench.ladder import variant_of
from gemmbench.ladder.variant import Group, Layout, Pass, Variant, round_up
from gemmbench.model import instrument
from gemmbench.model.case import Case, Operands, Policy
from gemmbench.model.device import DeviceFacts
from gemmbench.model.dtypes import DTYPES, HostArray
from gemmbench.model.instrument import NotMeasuredError
from gemmbench.model.kernel_files import TRANSPOSED, shared_options, shown_name
from gemmbench.model.problem import Gemm
from gemmbench.model.row import NO_CLOCK, Status
from gemmbench.opencl.runtime import SVM, BuiltProgram, Runtime, choose_memory, errors, resources_of


class GemmExecutor:
    """Runs gemm cases on one OpenCL device, each variant after an exact test."""

    bench: type[GemmBench] = GemmBench  # what times a problem
    notes: tuple[str, ...] = ()  # of rows that have samples

    def __init__(self, runtime: Runtime) -> None:
        self.runtime = runtime
        self._exact: dict[tuple[object, ...], str] = {}

    def build(self, case: Case) -> instrument.Built:
        with _refusing_other_folders(case):
            programs = self._programs_of(case)
            return self._built(case, programs, self._smaller_groups(case, programs))

    def prepare(
        self, case: Case, policy: Policy, like: GemmBench | None = None, problem: Gemm | None = None
    ) -> GemmBench:
        """A bench of a case, with its operands or those of `like`; or of a trial `problem`, with beta 0."""
        variant, parameters = _variant(case), self._compiled(case)
        with errors(), _refusing_other_folders(case):
            programs = self._programs_of(case)
            smaller = self._smaller_groups(case, programs)
            bind = partial(self.bind, variant, parameters, programs, fixed=_is_group_chosen(case))
            timed = Timed(
                bind,
                partial(self._exact_error, variant, case, parameters, bind),
                self._built(case, programs, smaller),
                (*self.notes, *([] if self.runtime.has_clock else [NO_CLOCK]), *smaller_notes(smaller)),
                variant.needs.sums.get(case.dtype, ""),
                variant.launches.without,
                self._terms(variant, case.gemm, parameters),
            )
            if like is not None:
                return like.sharing(timed, case)
            if problem is not None:
                case = replace(case, problem=replace(problem, beta=0.0), operands=Operands())
            mode = choose_memory(policy.memory, self.runtime.facts)
            bench = self.bench if self.runtime.has_clock else WallBench
            return bench(self.runtime, variant, case, mode, policy, timed)

    def _programs_of(self, case: Case) -> dict[str, BuiltProgram]:
        return self.programs(_variant(case), case.dtype, self._compiled(case), case.folder)

    def _built(
        self, case: Case, programs: Mapping[str, BuiltProgram], smaller: Iterable[tuple[Pass, Group, Group]]
    ) -> instrument.Built:
        """Seconds, resources and chosen parameters of a case's programs."""
        variant, numbers, is_fixed = _variant(case), case.numbers, _is_group_chosen(case)
        chosen: dict[str, int | float | str] = {**variant.chosen(case.gemm, self.runtime.facts, numbers)}
        for step, _, group in smaller:
            if step.role == "multiply":
                chosen |= dict(zip(("WX", "WY"), group, strict=False))
        return instrument.Built(
            sum(built.seconds for built in programs.values()) if programs else None,
            resources_of(self.runtime, variant, self._compiled(case), programs, case.gemm, is_fixed),
            chosen,
            variant.fingerprint(case.dtype, numbers, case.folder),
        )

    def _smaller_groups(
        self, case: Case, programs: Mapping[str, BuiltProgram]
    ) -> tuple[tuple[Pass, Group, Group], ...]:
        """Passes whose work-group is made smaller for this device: as wanted, and as launched."""
        variant, parameters = _variant(case), self._compiled(case)
        chosen = variant.chosen(case.gemm, self.runtime.facts, parameters)
        values = variant.values(case.gemm, {**parameters, **chosen})

        def launched(step: Pass) -> Group:
            return self.runtime.fitted(programs[step.file], step, values, _is_group_chosen(case))[1]

        groups = ((step, step.group(values), launched(step)) for step in variant.steps(values))
        return tuple(each for each in groups if each[1] != each[2])

    def _compiled(self, case: Case) -> dict[str, int]:
        return variant_of(case).compiled(case.gemm, self.runtime.facts, case.numbers)

    def programs(
        self, variant: Variant, dtype: str, parameters: Mapping[str, int], root: str = ""
    ) -> dict[str, BuiltProgram]:
        """The programs of a variant by file, from the kernels folder `root`; else `NotMeasuredError`."""
        options, programs = variant.options(dtype, parameters), dict[str, BuiltProgram]()
        multiply = {step.file for step in variant.launches.passes if step.role == "multiply"}
        for file in variant.files:
            shared = shared_options(file, options, root)
            for name, (*_, macro) in TRANSPOSED.items():
                if root and file in multiply and macro in options and macro not in shared:
                    why = f"that {file} does not support a transposed {name}"
                    raise NotMeasuredError("unsupported", why)
            built = (options, root, variant.compilation.target) if file in multiply else (shared, root, "")
            programs[file] = self.runtime.build(file, *built)
        for step in variant.launches.passes if variant.own else ():
            _check_name(step, programs[step.file])
        return programs

    def bind(
        self, variant: Variant, parameters: Mapping[str, int], programs: Mapping[str, BuiltProgram],
        problem: Gemm, layout: Layout, buffers: Mapping[str, Any], fixed: bool = False,
    ) -> Sequence[Step]:  # fmt: skip
        """Launches with their arguments set, without passes that have nothing to do.

        Temporaries and images are allocated unless `buffers` has them. `fixed` keeps the planned work-group.
        `NotMeasuredError` if a kernel does not take that group, or a user's kernel these arguments.
        """
        full = {**parameters, **variant.chosen(problem, self.runtime.facts, parameters)}
        values = variant.values(problem, full, layout)
        dtype = DTYPES[problem.dtype]
        scalar = DTYPES[dtype.scalar].numpy.type
        held = {
            name: self.runtime.room(size)
            for name, size in variant.temporary_bytes(problem, full, layout).items()
            if name not in buffers
        }
        held |= {
            name: self.runtime.image(*spec.shape(problem), dtype.numpy)
            for name, spec in variant.launches.images.items()
        }
        held |= buffers
        known: dict[str, Any] = {name: np.int32(value) for name, value in values.items()}
        known |= {"alpha": scalar(problem.alpha), "beta": scalar(problem.beta)} | held
        described = {
            step.arguments[-1]: held[step.arguments[-1]] for step in variant.steps(values) if step.once
        }
        held = {name: buffer for name, buffer in held.items() if name not in described}
        prepared = list[Step]()
        for step in variant.steps(values):
            items = step.items(values)
            if 0 in items or (step.role == "image" and buffers.keys() & variant.launches.images.keys()):
                continue
            kernel, group = self.runtime.fitted(programs[step.file], step, values, fixed)
            with errors():
                if variant.own:
                    _check_arguments(kernel, step, known)
                kernel.set_args(*(known[name] for name in step.arguments))
            rounded = tuple(round_up(*pair) for pair in zip(items, group, strict=True))
            made = PreparedLaunch(step.role, step.kernel, kernel, rounded, group, held, described)
            if step.once:
                with errors():
                    made.enqueue(self.runtime.queue)
            else:
                prepared.append(made)
        return prepared

    def multiple_of(self, dtype: str) -> int:
        """What leading dimensions must be multiples of."""
        return 1

    def _exact_error(self, variant: Variant, case: Case, parameters: Mapping[str, int], bind: Bind) -> str:
        """How a kernel errs on small exact problems, or ""; tested once for each variant."""
        dtype, root, ops = case.dtype, case.folder, case.gemm.ops
        batch = BATCH if case.gemm.batch > 1 else 1
        numbers = tuple(sorted(parameters.items()))
        may_read_c = variant.own is not None and case.gemm.beta != 0
        flags = variant.compilation.flags
        key = (variant.name, variant.files, flags, dtype, ops, batch, numbers, root, may_read_c)
        if key not in self._exact:
            edge = variant.launches.edge(parameters)
            kernel = verify.Kernel(
                partial(self._result, bind=bind),
                edge,
                variant.launches.without,
                self._terms(variant, edge_problem(dtype, edge), parameters),
                # A kernel that nobody has looked at under a simulator may reach far past its operands.
                edge if variant.own else 0,
                ops,
                batch,
                self.multiple_of(dtype),
                may_read_c,
            )
            error = verify.exact_test_error(kernel, dtype)
            doubt = variant.launches.doubt if error else ""
            self._exact[key] = "; ".join(filter(None, (error, doubt)))
        return self._exact[key]

    def _terms(self, variant: Variant, problem: Gemm, parameters: Mapping[str, int]) -> Terms:
        chosen = variant.chosen(problem, self.runtime.facts, parameters)
        return Terms(variant.tile_of({**parameters, **chosen}), variant.launches.by_columns)

    def _result(self, test: ExactTest, bind: Bind) -> HostArray:
        """C of a small exact problem, in buffers of its own."""
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


def _check_name(step: Pass, built: BuiltProgram) -> None:
    try:
        names = built.program.get_info(cl.program_info.KERNEL_NAMES).split(";")
    except cl.Error:  # OpenCL 1.1 has no names
        return
    if step.kernel not in names:
        what = f"{shown_name(step.file)} has no kernel {step.kernel}, but {', '.join(names) or 'none'}"
        raise NotMeasuredError("failed", f'{what}: kernel = "NAME" in the description says which is launched')


def _check_arguments(kernel: Any, step: Pass, known: Mapping[str, Any]) -> None:
    """Set a user's kernel's arguments, which must be as `step` says."""
    names = ", ".join(step.arguments)
    if kernel.num_args != len(step.arguments):
        counts = f"has {kernel.num_args} arguments, but arguments names {len(step.arguments)}"
        raise NotMeasuredError("failed", f"{step.kernel} {counts}: {names}")
    for number, name in enumerate(step.arguments):
        try:
            kernel.set_arg(number, known[name])
        except cl.Error:
            kind = "a buffer" if isinstance(known[name], cl.MemoryObjectHolder) else known[name].dtype.name
            what = f"argument {number + 1} of {step.kernel} is not {name}, which is {kind}"
            raise NotMeasuredError("failed", f"{what}: arguments says {names}") from None


def _is_group_chosen(case: Case) -> bool:
    return variant_of(case).fixes_group(case.given or ())


def smaller_notes(smaller: Iterable[tuple[Pass, Group, Group]]) -> tuple[str, ...]:
    """Notes on work-groups that are smaller than planned, each once."""
    notes = []
    for step, planned, group in smaller:
        what = "" if step.role == "multiply" else f"{step.kernel} in "
        sides = " instead of ".join("x".join(map(str, each)) for each in (group, planned))
        notes.append(f"{what}work-groups of {sides}: the compiled kernel supports no more")
    return tuple(dict.fromkeys(notes))


def _variant(case: Case) -> Variant:
    return variant_of(case).with_math(case.math)


@contextmanager
def _refusing_other_folders(case: Case) -> Iterator[None]:
    """Turn errors of another folder's kernels into `NotMeasuredError`."""
    try:
        yield
    except Exception as error:
        if isinstance(error, NotMeasuredError) or not case.folder:
            raise
        reason = f"{type(error).__name__}: {error}"
        if isinstance(error, OSError):  # its path is this machine's business
            reason = (error.strerror or "cannot be read").lower()
        elif isinstance(error, UnicodeDecodeError):
            reason = "is not UTF-8"
        raise NotMeasuredError("unsupported", reason) from None


# --- CLBlast's C interface: one GEMM put into an OpenCL queue. Handles are the numbers that OpenCL gave them

_FILES = ("libclblast.so.1", "libclblast.dylib", "clblast.dll")
_ADVICE = "install CLBlast (libclblast1 on Debian and Ubuntu)"
_CLOCK = "device scope, by the wall clock: its event may be the last pass's alone"

_ROW_MAJOR, _COLUMN_MAJOR = 101, 102
_NOT_TRANSPOSED, _TRANSPOSED = 111, 112

# Its own refusals, as its header names them. The other statuses are OpenCL's, or say that a call is wrong.
_REFUSALS: dict[int, tuple[Status, str]] = {
    -2046: ("unsupported", "its kernel needs more local memory than the device has"),
    -2045: ("unsupported", "the device has no half precision"),
    -2044: ("unsupported", "the device has no double precision"),
    -11: ("failed", "its kernel does not compile"),
    -4: ("failed", "the device has no memory left for its temporary buffer"),
}


# By data type: the function (and of a batch), how alpha and beta are passed, and how they are made.
_FUNCTIONS: Mapping[str, tuple[str, Any, Callable[[float], float]]] = {
    "float": ("CLBlastSgemm", ctypes.c_float, float),
    "double": ("CLBlastDgemm", ctypes.c_double, float),
    "half": ("CLBlastHgemm", ctypes.c_uint16, lambda value: int(np.float16(value).view(np.uint16))),
}


class Clblast:
    """The library in this process; `NotMeasuredError` (unsupported) without it."""

    def __init__(self) -> None:
        files = filter(None, (*_FILES, ctypes.util.find_library("clblast")))
        self._library = load_library("CLBlast", files, _ADVICE)
        self.title = _title(self._library)

    def call(
        self, problem: Gemm, layout: Layout, buffers: Mapping[str, Any], queues: Iterable[Any]
    ) -> ClblastCall:
        """A call of C = alpha op(A) op(B) + beta C, for any of `queues`. No length may be 0.

        CLBlast copies operands that its kernel wants in the other order. So the call is row- or column-major,
        whichever has the smaller temporary buffer.
        """
        name, scalar, made = _FUNCTIONS[problem.dtype]
        memory, length = ctypes.c_void_p, ctypes.c_size_t
        several = problem.batch > 1
        pointers = {queue.int_ptr: ctypes.byref(memory(queue.int_ptr)) for queue in queues}

        def matrix(name: str, rows: int, ld: int) -> tuple[Any, ...]:
            apart = (length(rows * ld),) if several else ()
            return memory(buffers[name].int_ptr), length(0), length(ld), *apart

        op_a, op_b = (_TRANSPOSED if each else _NOT_TRANSPOSED for each in (problem.trans_a, problem.trans_b))
        m, n, k = map(length, (problem.m, problem.n, problem.k))
        a = matrix("A", problem.stored_a[0], layout.lda)
        b = matrix("B", problem.stored_b[0], layout.ldb)
        c = matrix("C", problem.m, layout.ldc)
        shape, operands = min(
            ((_COLUMN_MAJOR, op_b, op_a, n, m, k), (b, a)),
            ((_ROW_MAJOR, op_a, op_b, m, n, k), (a, b)),
            key=lambda each: self._copied_bytes(name, each[0], (*each[1], c), pointers),
        )
        arguments = (
            *shape,
            scalar(made(problem.alpha)),
            *operands[0],
            *operands[1],
            scalar(made(problem.beta)),
            *c,
            *((length(problem.batch),) if several else ()),
        )
        function = getattr(self._library, f"{name}StridedBatched" if several else name)
        return ClblastCall(function, arguments, pointers, buffers)

    def _copied_bytes(
        self, name: str, shape: Sequence[Any], matrices: Sequence[Any], queues: Mapping[int, Any]
    ) -> int:
        """Bytes of temporaries that CLBlast needs for a product; 0 if it does not say."""
        function = getattr(self._library, name.replace("gemm", "GemmTempBufferSize"), None)
        starts = (each for matrix in matrices for each in matrix[1:3])  # offsets and leading dimensions
        size = ctypes.c_size_t()
        queue = next(iter(queues.values()))
        unknown = function is None or function(*shape, *starts, queue, ctypes.byref(size))
        return 0 if unknown else size.value


class _SymbolFile(ctypes.Structure):
    _fields_ = (
        ("file", ctypes.c_char_p),
        ("base", ctypes.c_void_p),
        ("symbol", ctypes.c_char_p),
        ("address", ctypes.c_void_p),
    )


def file_of(function: Any) -> Path | None:
    """The file of a library's function, with links resolved; None if unknown."""
    symbol = _SymbolFile()
    try:
        known = ctypes.CDLL(None).dladdr(ctypes.cast(function, ctypes.c_void_p), ctypes.byref(symbol))
    except (OSError, AttributeError, TypeError):  # Windows has no dladdr, and no library without a name
        return None
    return Path(symbol.file.decode(errors="replace")).resolve() if known and symbol.file else None


def _title(library: ctypes.CDLL) -> str:
    file = file_of(library.CLBlastSgemm)
    if file is None:
        return "CLBlast"
    version = re.search(r"\d+(\.\d+)+", file.name)
    return f"CLBlast {version[0]}" if version else f"CLBlast ({file.name})"


@dataclass(frozen=True)
class ClblastCall:
    """One call with its arguments: a `opencl_bench.Step`."""

    function: Callable[..., int]
    arguments: tuple[Any, ...]
    queues: Mapping[int, Any]  # pointers to them, by their handles
    buffers: Mapping[str, Any]  # held: the arguments do not keep them alive
    role: str = "multiply"
    name: str = "CLBlast"

    def enqueue(self, queue: Any) -> None:
        # No event: it would be the last pass's alone.
        if status := self.function(*self.arguments, self.queues[queue.int_ptr], None):
            outcome, why = _REFUSALS.get(status, ("failed", "see clblast_c.h"))
            raise NotMeasuredError(outcome, f"CLBlast answers with status {status}: {why}")


class ClblastExecutor(GemmExecutor):
    """Runs gemm cases with CLBlast, by the wall clock. `NotMeasuredError` without it."""

    bench = WallBench

    @staticmethod
    def is_installed(_: DeviceFacts) -> bool:
        return ctypes.util.find_library("clblast") is not None

    def __init__(self, runtime: Runtime) -> None:
        super().__init__(runtime)
        self._library = Clblast()
        self.notes = (f"{self._library.title}, {_CLOCK}",)

    def prepare(
        self, case: Case, policy: Policy, like: GemmBench | None = None, problem: Gemm | None = None
    ) -> GemmBench:
        if case.problem is not None and not case.problem.flops:
            raise NotMeasuredError("unsupported", "CLBlast does not support empty matrices")
        if policy.memory in SVM:
            raise NotMeasuredError("unsupported", "CLBlast does not support shared virtual memory")
        return super().prepare(case, policy, like, problem)

    def bind(
        self, variant: Variant, parameters: Mapping[str, int], programs: Mapping[str, BuiltProgram],
        problem: Gemm, layout: Layout, buffers: Mapping[str, Any], fixed: bool = False,
    ) -> list[ClblastCall]:  # fmt: skip
        return [self._library.call(problem, layout, buffers, (self.runtime.queue, self.runtime.plain_queue))]


def load_library(what: str, candidates: Iterable[str], advice: str) -> ctypes.CDLL:
    """The first library that loads; else `NotMeasuredError` (unsupported) with an advice."""
    broken = ""
    for candidate in candidates:
        try:
            return ctypes.CDLL(candidate)
        except OSError as error:
            if Path(candidate).is_file():  # it is there, and lacks something
                broken = f" ({error})"
    raise NotMeasuredError("unsupported", f"{what} is not there{broken}: {advice}")
