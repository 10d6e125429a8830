"""cuBLAS on an NVIDIA GPU: CUDA's driver interface, cuBLAS's own, and their bench."""

from __future__ import annotations

import ctypes
import ctypes.util
import importlib.util
import math
import os
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from functools import cached_property, partial
from itertools import cycle
from pathlib import Path
from typing import Any

import numpy as np

from gemmbench.gemm.opencl import GemmExecutor, load_library
from gemmbench.gemm.opencl_bench import Bind, GemmBench, Timed, WallBench
from gemmbench.gemm.verify import ExactTest
from gemmbench.ladder.variant import Layout, Variant
from gemmbench.model.case import Case, Policy
from gemmbench.model.device import DeviceFacts
from gemmbench.model.dtypes import FP8_DTYPES, HostArray, allocate_page_aligned
from gemmbench.model.instrument import Batch, NotMeasuredError
from gemmbench.model.problem import Gemm
from gemmbench.opencl.runtime import BuiltProgram, Copied, Operand, Shape

_CUDA_FILES = ("libcuda.so.1", "nvcuda.dll")
_CUDA_ADVICE = "install NVIDIA's driver with CUDA (libcuda1 on Debian)"
_LEAST_BYTES = 16  # CUDA has no empty memory
_NAME_BYTES = 256
_OUT_OF_MEMORY = 2
_NOT_READY = 600
_CAPTURE_OF_THIS_THREAD = 1


Stopwatch = tuple[ctypes.c_void_p, ctypes.c_void_p]  # two events in a stream


class Cuda:
    """This process's CUDA device with these facts, and one stream. Benches use it as a `Runtime`."""

    def __init__(self, facts: DeviceFacts) -> None:
        self.facts, self.has_clock, self.queue, self.plain_queue = facts, True, self, self
        self._library = load_library("CUDA", _CUDA_FILES, _CUDA_ADVICE)
        self._call("cuInit", 0)
        device = self._find(facts)
        context = ctypes.c_void_p()
        self._call("cuDevicePrimaryCtxRetain", ctypes.byref(context), device)
        self._call("cuCtxSetCurrent", context)
        self.stream = ctypes.c_void_p()
        self._call("cuStreamCreate", ctypes.byref(self.stream), 0)
        # Two: while one batch runs, the next is put behind it.
        self._watches = cycle([(self._event(), self._event()) for _ in range(2)])

    @contextmanager
    def memory(self, nbytes: int) -> Iterator[int]:
        address = ctypes.c_uint64()
        self._call("cuMemAlloc_v2", ctypes.byref(address), ctypes.c_size_t(max(nbytes, _LEAST_BYTES)))
        try:
            yield address.value
        finally:
            self._library.cuMemFree_v2(address)

    @contextmanager
    def pinned(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Iterator[HostArray]:
        nbytes = max(int(np.prod(shape)) * dtype.itemsize, _LEAST_BYTES)
        address = ctypes.c_void_p()
        self._call("cuMemHostAlloc", ctypes.byref(address), ctypes.c_size_t(nbytes), 0)
        try:
            raw = (ctypes.c_uint8 * nbytes).from_address(address.value or 0)
            yield np.frombuffer(memoryview(raw), dtype, int(np.prod(shape))).reshape(shape)
        finally:
            self._library.cuMemFreeHost(address)

    def to_device(self, address: int, values: HostArray) -> None:
        if values.size:
            pointer, length = ctypes.c_void_p(values.ctypes.data), ctypes.c_size_t(values.nbytes)
            self._call("cuMemcpyHtoDAsync_v2", ctypes.c_uint64(address), pointer, length, self.stream)

    def to_host(self, values: HostArray, address: int) -> None:
        if values.size:
            pointer, length = ctypes.c_void_p(values.ctypes.data), ctypes.c_size_t(values.nbytes)
            self._call("cuMemcpyDtoHAsync_v2", pointer, ctypes.c_uint64(address), length, self.stream)
        self.finish()

    def finish(self) -> None:
        """Wait for all enqueued work. `NotMeasuredError` if some failed: CUDA is then beyond use."""
        self._call("cuStreamSynchronize", self.stream)

    def start(self) -> Stopwatch:
        watch = next(self._watches)
        self._call("cuEventRecord", watch[0], self.stream)
        return watch

    def stop(self, watch: Stopwatch) -> None:
        self._call("cuEventRecord", watch[1], self.stream)

    def graph(self, enqueue: Callable[[], None]) -> ctypes.c_void_p:
        """A function's launches as a CUDA graph, for `replay`."""
        captured, graph = ctypes.c_void_p(), ctypes.c_void_p()
        self._call("cuStreamBeginCapture_v2", self.stream, _CAPTURE_OF_THIS_THREAD)
        try:
            try:
                enqueue()
            except BaseException:
                self._library.cuStreamEndCapture(self.stream, ctypes.byref(captured))
                raise
            self._call("cuStreamEndCapture", self.stream, ctypes.byref(captured))
            self._call("cuGraphInstantiateWithFlags", ctypes.byref(graph), captured, ctypes.c_uint64(0))
        finally:
            if captured:
                self._library.cuGraphDestroy(captured)
        return graph

    def replay(self, graph: ctypes.c_void_p) -> None:
        self._call("cuGraphLaunch", graph, self.stream)

    def forget(self, graph: ctypes.c_void_p) -> None:
        self._library.cuGraphExecDestroy(graph)

    def reached(self, watch: Stopwatch) -> bool:
        return int(self._library.cuEventQuery(watch[1])) != _NOT_READY

    def seconds(self, watch: Stopwatch) -> float:
        self._call("cuEventSynchronize", watch[1])
        milliseconds = ctypes.c_float()
        self._call("cuEventElapsedTime", ctypes.byref(milliseconds), *watch)
        return milliseconds.value * 1e-3

    def _event(self) -> ctypes.c_void_p:
        event = ctypes.c_void_p()
        self._call("cuEventCreate", ctypes.byref(event), 0)
        return event

    def _find(self, facts: DeviceFacts) -> ctypes.c_int:
        """The CUDA device of an OpenCL device, by PCI address or else by a name that is unique."""
        device = ctypes.c_int()
        if facts.pci:
            if self._library.cuDeviceGetByPCIBusId(ctypes.byref(device), facts.pci.encode()):
                raise NotMeasuredError("unsupported", f"CUDA does not show the GPU at {facts.pci}")
            return device
        count = ctypes.c_int()
        self._call("cuDeviceGetCount", ctypes.byref(count))
        named = [index for index in range(count.value) if self._name(index) == facts.name]
        if len(named) != 1:
            raise NotMeasuredError("unsupported", f"CUDA shows {len(named)} GPUs called {facts.name}")
        self._call("cuDeviceGet", ctypes.byref(device), named[0])
        return device

    def _name(self, index: int) -> str:
        device, name = ctypes.c_int(), ctypes.create_string_buffer(_NAME_BYTES)
        self._call("cuDeviceGet", ctypes.byref(device), index)
        self._call("cuDeviceGetName", name, _NAME_BYTES, device)
        return name.value.decode(errors="replace")

    def _call(self, function: str, *arguments: Any) -> None:
        status = getattr(self._library, function)(*arguments)
        if status:
            text = ctypes.c_char_p()
            self._library.cuGetErrorString(status, ctypes.byref(text))
            words = (text.value or b"no such error").decode(errors="replace")
            if function == "cuInit":
                raise NotMeasuredError("unsupported", f"CUDA does not start: {words}")
            what = "the device ran out of memory" if status == _OUT_OF_MEMORY else f"{function} failed"
            raise NotMeasuredError("failed", f"{what}: CUDA says {words}", restart=status != _OUT_OF_MEMORY)


_CUBLAS_FILES = ("libcublas.so.13", "libcublas.so.12", "cublas64_13.dll", "cublas64_12.dll")
_CUBLAS_ADVICE = 'pip install "gemmbench[cublas]", or install the CUDA toolkit'

_NOT_TRANSPOSED, _TRANSPOSED = 0, 1
_ANY_ALGORITHM = -1
_VERSION_PARTS = (0, 1, 2)  # major, minor, patch

WORKSPACE_BYTES = 32 << 20  # what cuBLAS takes on Hopper if nobody gives it one; 4 MiB before
_LACKING = (8, 15)  # the statuses that say that it cannot, not that it failed


@dataclass(frozen=True)
class _Form:
    """A data type in cuBLAS: numbers of ``cudaDataType`` and ``cublasComputeType_t``."""

    operands: int
    result: int
    compute: int
    scalar: Any  # ctypes type of alpha and beta
    step: int = 1  # k and the length of rows must be multiples of it


_FORMS: Mapping[str, _Form] = {
    #              A, B   C  compute
    "float": _Form(0, 0, 68, ctypes.c_float),  # in full: tf32 only where it is asked for
    "double": _Form(1, 1, 70, ctypes.c_double),
    "half": _Form(2, 2, 68, ctypes.c_float),
    "bfloat16": _Form(14, 0, 68, ctypes.c_float),
    "tf32": _Form(0, 0, 77, ctypes.c_float),
    "char": _Form(3, 10, 72, ctypes.c_int32, step=4),  # not transposed: its dp4a path, no tensor cores
}


def step(dtype: str) -> int:
    """What n, k and leading dimensions must be multiples of."""
    return _LT_STEP if dtype in FP8_DTYPES else _FORMS[dtype].step


_LT_FILES = ("libcublasLt.so.13", "libcublasLt.so.12", "cublasLt64_13.dll", "cublasLt64_12.dll")
_LT_STEP = 16  # bytes that rows start at, and elements that n and k must be multiples of
_LT_RESULTS = {"float": 0, "half": 2, "bfloat16": 14}  # numbers of cudaDataType
_E4M3, _FLOAT, _SUMS_IN_FLOAT = 28, 0, 68  # numbers of cudaDataType, and of cublasComputeType_t
_TRANSPOSE_FIRST, _FAST_SUMS = 3, 25  # attributes of a cublasLtMatmulDesc_t
_MOST_WORKSPACE = 1  # ... of a cublasLtMatmulPreference_t
_ALGORITHM_BYTES, _HEURISTIC_BYTES = 64, 96  # of a cublasLtMatmulAlgo_t, and of what is said of one


class CublasLt:
    """The part of cuBLAS that multiplies fp8, with sums of about 14 bits."""

    def __init__(self, stream: ctypes.c_void_p, workspace: int) -> None:
        self._library = load_library("cuBLASLt", _candidates(_LT_FILES), _CUBLAS_ADVICE)
        self._stream, self._workspace = stream, ctypes.c_void_p(workspace)
        self._handle = ctypes.c_void_p()
        self._call("Create", ctypes.byref(self._handle))
        self._planned: tuple[Gemm, Layout] | None = None
        self._plan: tuple[Any, ...] = ()
        self._held = ExitStack()  # what the plan is made of

    def enqueue(self, problem: Gemm, layout: Layout, a: int, b: int, c: int) -> None:
        """Enqueue C = alpha A op(B) + beta C of fp8 A and B, given addresses; B is stored transposed."""
        key = replace(problem, alpha=1.0, beta=0.0), layout  # one algorithm, whatever the scalars are
        if key != self._planned:
            self._planned = None
            self._held.close()
            self._plan, self._planned = self._made_plan(problem, layout), key
        matmul, first, second, result, algorithm = self._plan
        alpha, beta = ctypes.c_float(problem.alpha), ctypes.c_float(problem.beta)
        self._call(
            "Matmul",
            *(self._handle, matmul, ctypes.byref(alpha)),
            *(ctypes.c_void_p(b), first, ctypes.c_void_p(a), second),
            *(ctypes.byref(beta), ctypes.c_void_p(c), result, ctypes.c_void_p(c), result),
            *(algorithm, self._workspace, ctypes.c_size_t(WORKSPACE_BYTES), self._stream),
        )

    def _made_plan(self, problem: Gemm, layout: Layout) -> tuple[Any, ...]:
        """Descriptors and the fastest algorithm for an fp8 problem."""
        if lacks := self._lacks(problem, layout):
            raise NotMeasuredError("unsupported", f"cuBLAS supports {problem.dtype} only {lacks}")
        m, n, k = problem.m, problem.n, problem.k
        matmul = self._made("MatmulDesc", _SUMS_IN_FLOAT, _FLOAT)
        attributes = {_TRANSPOSE_FIRST: ctypes.c_int32(_TRANSPOSED), _FAST_SUMS: ctypes.c_int8(1)}
        for attribute, value in attributes.items():
            size = ctypes.c_size_t(ctypes.sizeof(value))
            self._call("MatmulDescSetAttribute", matmul, attribute, ctypes.byref(value), size)

        def matrix(kind: int, rows: int, columns: int, ld: int) -> ctypes.c_void_p:
            lengths = ctypes.c_uint64(rows), ctypes.c_uint64(columns), ctypes.c_int64(ld)
            return self._made("MatrixLayout", kind, *lengths)

        first, second = matrix(_E4M3, k, n, layout.ldb), matrix(_E4M3, k, m, layout.lda)
        result = matrix(_LT_RESULTS[problem.result.name], n, m, layout.ldc)
        preference = self._made("MatmulPreference")
        most, size = ctypes.c_uint64(WORKSPACE_BYTES), ctypes.c_size_t(8)
        self._call("MatmulPreferenceSetAttribute", preference, _MOST_WORKSPACE, ctypes.byref(most), size)
        answer, count = ctypes.create_string_buffer(_HEURISTIC_BYTES), ctypes.c_int()
        described = (self._handle, matmul, first, second, result, result, preference)
        self._call("MatmulAlgoGetHeuristic", *described, 1, ctypes.byref(answer), ctypes.byref(count))
        if not count.value:
            reason = f"cuBLAS has no algorithm for {problem.dtype} of this shape"
            raise NotMeasuredError("unsupported", reason)
        algorithm = ctypes.create_string_buffer(answer.raw[:_ALGORITHM_BYTES], _ALGORITHM_BYTES)
        return matmul, first, second, result, algorithm

    @staticmethod
    def _lacks(problem: Gemm, layout: Layout) -> str:
        """How "cuBLAS supports ... only" ends for this problem, or ""."""
        if not problem.dtype.startswith("e4m3"):
            return "by e4m3, not two matrices of it"
        if problem.batch > 1:
            return "one problem at a time, as it is called here"
        if problem.trans_a or not problem.trans_b:
            return "where B is stored transposed and A is not: --trans-b"
        sizes = (layout.lda, layout.ldb, layout.ldc * problem.result.itemsize, problem.n, problem.k)
        if any(size % _LT_STEP for size in sizes):
            return f"with n, k and rows of A and B that are multiples of {_LT_STEP}"
        return ""

    def _made(self, what: str, *arguments: Any) -> ctypes.c_void_p:
        made = ctypes.c_void_p()
        self._call(f"{what}Create", ctypes.byref(made), *arguments)
        self._held.callback(getattr(self._library, f"cublasLt{what}Destroy"), made)
        return made

    def _call(self, function: str, *arguments: Any) -> None:
        status = getattr(self._library, f"cublasLt{function}")(*arguments)
        if status in _LACKING:
            reason = f"cuBLAS does not do this here (cublasLt{function}: {status})"
            raise NotMeasuredError("unsupported", reason)
        if status:
            raise NotMeasuredError("failed", f"cublasLt{function} failed: status {status}", restart=True)


class Cublas:
    """The library, enqueueing into one stream of the current CUDA device."""

    def __init__(self, stream: ctypes.c_void_p, workspace: int) -> None:
        self._library = load_library("cuBLAS", _candidates(), _CUBLAS_ADVICE)
        self._library.cublasGetStatusString.restype = ctypes.c_char_p
        self._handle = ctypes.c_void_p()
        self._call("cublasCreate_v2", ctypes.byref(self._handle))
        self._call("cublasSetStream_v2", self._handle, stream)
        # Its own workspace would be allocated within every graph, and be one more node of it.
        memory, size = ctypes.c_void_p(workspace), ctypes.c_size_t(WORKSPACE_BYTES)
        self._call("cublasSetWorkspace_v2", self._handle, memory, size)
        self._stream, self._workspace = stream, workspace
        self.title = f"cuBLAS {'.'.join(str(self._property(part)) for part in _VERSION_PARTS)}"

    def enqueue(self, problem: Gemm, layout: Layout, a: int, b: int, c: int) -> None:
        """Enqueue C = alpha op(A) op(B) + beta C, row-major, given device addresses.

        cuBLAS stores columns, so it computes the transpose of C: B is passed first, and n before m.
        `NotMeasuredError` if it lacks the type or shape, or fails.
        """
        if not problem.m or not problem.n:
            return
        if problem.dtype in FP8_DTYPES:
            self._lt.enqueue(problem, layout, a, b, c)
            return
        form = _FORMS[problem.dtype]
        # Where only k is not, it does not refuse: cuBLAS 13.1 reads past the ends of rows, and answers wrong.
        names = ["m"] * problem.trans_a + ["n"] * (not problem.trans_b) + ["k"]  # along stored rows
        odd = *(getattr(problem, name) for name in names), layout.lda, layout.ldb
        if any(length % form.step for length in odd):
            *others, last = [*names, *(["lda", "ldb"] if problem.ld else [])]
            wanted = " and ".join(filter(None, (", ".join(others), last)))
            wanted += f" that are multiples of {form.step}"
            raise NotMeasuredError("unsupported", f"cuBLAS supports {problem.dtype} only with {wanted}")
        several, number = problem.batch > 1, int if form.scalar is ctypes.c_int32 else float

        def matrix(address: int, kind: int, ld: int, rows: int) -> tuple[Any, ...]:
            apart = (ctypes.c_longlong(rows * ld),) if several else ()
            return ctypes.c_void_p(address), kind, max(1, ld), *apart

        self._call(
            "cublasGemmStridedBatchedEx" if several else "cublasGemmEx",
            self._handle,
            _TRANSPOSED if problem.trans_b else _NOT_TRANSPOSED,
            _TRANSPOSED if problem.trans_a else _NOT_TRANSPOSED,
            *(problem.n, problem.m, problem.k),
            ctypes.byref(form.scalar(number(problem.alpha))),
            *matrix(b, form.operands, layout.ldb, problem.stored_b[0]),
            *matrix(a, form.operands, layout.lda, problem.stored_a[0]),
            ctypes.byref(form.scalar(number(problem.beta))),
            *matrix(c, form.result, layout.ldc, problem.m),
            *((problem.batch,) if several else ()),
            *(form.compute, _ANY_ALGORITHM),
        )

    @cached_property
    def _lt(self) -> CublasLt:
        return CublasLt(self._stream, self._workspace)

    def _property(self, part: int) -> int:
        value = ctypes.c_int()
        self._call("cublasGetProperty", part, ctypes.byref(value))
        return value.value

    def _call(self, function: str, *arguments: Any) -> None:
        status = getattr(self._library, function)(*arguments)
        if status:
            words = (self._library.cublasGetStatusString(status) or b"?").decode(errors="replace")
            if status in _LACKING:
                raise NotMeasuredError("unsupported", f"cuBLAS does not do this here: {words} ({function})")
            raise NotMeasuredError("failed", f"{function} failed: cuBLAS says {words}", restart=True)


def _candidates(files: tuple[str, ...] = _CUBLAS_FILES) -> list[str]:
    named = ctypes.util.find_library(files[0].removeprefix("lib").partition(".")[0])
    return [*map(str, _packaged(files)), *files, *([named] if named else []), *map(str, _toolkit(files))]


def _packaged(files: tuple[str, ...]) -> Iterator[Path]:
    """The library in NVIDIA's pip packages of CUDA 12 and 13."""
    spec = importlib.util.find_spec("nvidia")  # a folder without a module: nothing is imported
    for folder in spec.submodule_search_locations or () if spec else ():
        for file in files:
            yield from sorted(Path(folder).glob(f"*/*/{file}"))
            yield from sorted(Path(folder).glob(f"*/*/*/{file}"))


def _toolkit(files: tuple[str, ...]) -> Iterator[Path]:
    for root in filter(None, (os.environ.get("CUDA_HOME"), os.environ.get("CUDA_PATH"), "/usr/local/cuda")):
        for file in files:
            yield from (path for part in ("lib64", "lib", "bin") if (path := Path(root, part, file)).exists())


_CLOCK = "device scope, by CUDA's events around each batch, which is replayed as a CUDA graph"
_TICK_S = 3.2e-8  # of CUDA's events


class CudaOperand(Copied):
    """A matrix in host memory, pinned or pageable, and on the device."""

    def __init__(self, cuda: Any, shape: Shape, dtype: np.dtype[Any], pinned: bool, held: ExitStack) -> None:
        Operand.__init__(self, cuda, shape, dtype, image=False)
        count = math.prod(shape)
        host = (
            held.enter_context(cuda.pinned((count,), dtype))
            if pinned
            else allocate_page_aligned(count, dtype)
        )
        self._host, self._changed = host, True
        self.buffer = held.enter_context(cuda.memory(host.nbytes))

    def to_device(self, queue: Cuda) -> None:
        self._changed = False
        queue.to_device(self.buffer, self._host)

    def to_host(self, queue: Cuda, discard: bool = False) -> None:
        queue.to_host(self._host, self.buffer)


@dataclass(frozen=True)
class CublasCall:
    """One call of cuBLAS: an `opencl_bench.Step`."""

    library: Cublas
    problem: Gemm
    layout: Layout
    buffers: Mapping[str, int]  # addresses
    role: str = "multiply"
    name: str = "cuBLAS"

    def enqueue(self, queue: Cuda) -> None:
        self.library.enqueue(self.problem, self.layout, *(self.buffers[name] for name in "ABC"))


@dataclass(frozen=True)
class _Queued:
    """A batch in the stream: a `measure.instrument.Running`."""

    cuda: Cuda
    watch: Stopwatch
    count: int
    begin: float

    def done(self) -> bool:
        return self.cuda.reached(self.watch)

    def finish(self) -> Batch:
        took, end = self.cuda.seconds(self.watch), time.perf_counter()
        return Batch({"device": max(took, _TICK_S) / self.count}, self.begin, end, self.count)


class CublasBench(WallBench):
    """One problem on the GPU, its batches timed by CUDA's events."""

    is_long = False
    _ahead = ("device",)

    def __init__(
        self, runtime: Any, variant: Variant, case: Case, mode: str, policy: Policy, timed: Timed
    ) -> None:
        self._cuda: Cuda = runtime
        self._graphs: dict[tuple[int, int], ctypes.c_void_p] = {}  # by number of problems and first set
        mode = "pageable" if mode == "pageable" else "staged"
        with ExitStack() as stack:  # closes what there is, should the memory not suffice
            self._held = stack
            super().__init__(runtime, variant, case, mode, policy, timed)
            self._held = stack.pop_all()

    def _allocate(self, mode: str, shape: Shape, dtype: np.dtype[Any], image: bool, behind: int) -> Operand:
        return CudaOperand(self._cuda, shape, dtype, mode == "staged", self._held)

    def release(self) -> None:
        super().release()
        for graph in self._graphs.values():
            self._cuda.forget(graph)
        self._graphs.clear()
        self._operands.clear()
        self._held.close()

    def _begin_comparing(self) -> None:
        """CUDA has no kernel here that compares results."""

    def _forbidden_writes(self) -> Iterator[str]:
        return iter(())

    def _device_batch(self, count: int) -> _Queued:
        """Enqueue a batch, as a CUDA graph unless it is short."""
        self._on_device()
        graph = self._graph(count) if count > max(1, self.sets) else None
        begin = time.perf_counter()
        watch = self._cuda.start()
        if graph:
            self._cuda.replay(graph)
        else:
            self._enqueue_all(count)
        self._cuda.stop(watch)
        self._rotation.took(count, "device", self)
        return _Queued(self._cuda, watch, count, begin)

    def _graph(self, count: int) -> ctypes.c_void_p:
        """The CUDA graph of `count` problems from the next operand set on, captured once.

        A call from Python takes 15 to 20 us, many times what a GPU needs for n = 256. The rotation first
        moves on to set 0 or half-way, so few graphs are captured.
        """
        self._rotation.skip_to(max(1, self.sets // 2))
        key = count, self._rotation.index()
        if key not in self._graphs:
            self._graphs[key] = self._cuda.graph(partial(self._enqueue_all, count))
        return self._graphs[key]

    def _enqueue_all(self, count: int) -> None:
        for number in range(count):
            for call in self._prepared[self._rotation.index(number)]:
                call.enqueue(self._cuda)


class CublasExecutor(GemmExecutor):
    """Runs gemm cases with cuBLAS. `NotMeasuredError` without CUDA, cuBLAS or this GPU."""

    bench = CublasBench

    @staticmethod
    def is_installed(device: DeviceFacts) -> bool:
        """Whether the library's file exists for this GPU: loading it takes long."""
        files = [*_packaged(_CUBLAS_FILES), *_toolkit(_CUBLAS_FILES)]
        return device.family == "gpu-nvidia" and bool(files or ctypes.util.find_library("cublas"))

    def __init__(self, facts: DeviceFacts) -> None:
        runtime: Any = Cuda(facts)  # it has what benches use of one
        super().__init__(runtime)
        self._cuda: Cuda = runtime
        self._held = ExitStack()  # as long as the process lives
        workspace = self._held.enter_context(self._cuda.memory(WORKSPACE_BYTES))
        self._library = Cublas(self._cuda.stream, workspace)
        self.notes = (f"{self._library.title}, {_CLOCK}",)

    def prepare(
        self, case: Case, policy: Policy, like: GemmBench | None = None, problem: Gemm | None = None
    ) -> GemmBench:
        return super().prepare(case, policy, None, problem)

    def multiple_of(self, dtype: str) -> int:
        return step(dtype)

    def bind(
        self, variant: Variant, parameters: Mapping[str, int], programs: Mapping[str, BuiltProgram],
        problem: Gemm, layout: Layout, buffers: Mapping[str, Any], fixed: bool = False,
    ) -> list[CublasCall]:  # fmt: skip
        return [CublasCall(self._library, problem, layout, buffers)]

    def _result(self, test: ExactTest, bind: Bind) -> HostArray:
        """C of a small exact problem, in buffers of its own."""
        result = np.empty_like(test.host["C"])
        with ExitStack() as stack:
            device = dict[str, int]()
            for name, values in test.host.items():
                device[name] = stack.enter_context(self._cuda.memory(values.nbytes))
                self._cuda.to_device(device[name], values)
            for call in bind(test.problem, test.layout, device):
                call.enqueue(self._cuda)
            self._cuda.to_host(result, device["C"])
        return result
