"""CUDA and cuBLAS without a GPU: the same C interfaces over the host's memory, matrices read by columns."""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np

from gemmbench.model.dtypes import DTYPES, DType, decode, encode

Array = Any

OUT_OF_MEMORY = 2
NOT_SUPPORTED = 15

# numbers of cudaDataType: what a device stores
_STORED = {0: "float", 1: "double", 2: "half", 14: "bfloat16", 3: "char", 10: "int", 28: "e4m3"}
# numbers of cublasComputeType_t: the type of alpha and beta
_SCALARS = {68: ctypes.c_float, 70: ctypes.c_double, 77: ctypes.c_float, 72: ctypes.c_int32}


class FakeCuda:
    """libcuda: one GPU called NVIDIA H200 in slot 0000:17:00.0, whose memory is the host's."""

    def __init__(self, memory_bytes: int = 1 << 30) -> None:
        self.left = memory_bytes
        self.held: dict[int, Any] = {}
        self.copies: list[str] = []
        self.start_status = 0
        self.capturing: list[Any] | None = None
        self.graphs: list[list[Any]] = []
        self.replayed: list[int] = []
        self.forgotten: list[int] = []
        self.destroyed: list[int] = []  # graphs as captured

    def cuInit(self, flags: int) -> int:
        return self.start_status

    def cuDeviceGetByPCIBusId(self, device: Any, name: bytes) -> int:
        device._obj.value = 0
        return 0 if name == b"0000:17:00.0" else 101

    def cuDeviceGetCount(self, count: Any) -> int:
        count._obj.value = 1
        return 0

    def cuDeviceGet(self, device: Any, index: int) -> int:
        device._obj.value = index
        return 0

    def cuDeviceGetName(self, name: Any, length: int, device: Any) -> int:
        name.value = b"NVIDIA H200"
        return 0

    def cuDevicePrimaryCtxRetain(self, context: Any, device: Any) -> int:
        context._obj.value = 1
        return 0

    def cuCtxSetCurrent(self, context: Any) -> int:
        return 0

    def cuStreamCreate(self, stream: Any, flags: int) -> int:
        stream._obj.value = 7
        return 0

    cuEventCreate = cuStreamCreate  # noqa: N815

    def cuEventRecord(self, event: Any, stream: Any) -> int:
        return 0

    def cuStreamBeginCapture_v2(self, stream: Any, mode: int) -> int:
        self.capturing = []
        return 0

    def cuStreamEndCapture(self, stream: Any, graph: Any) -> int:
        self.graphs.append(self.capturing or [])
        self.capturing = None
        graph._obj.value = len(self.graphs)
        return 0

    def cuGraphInstantiateWithFlags(self, graph: Any, captured: Any, flags: Any) -> int:
        graph._obj.value = captured.value
        return 0

    def cuGraphLaunch(self, graph: Any, stream: Any) -> int:
        self.replayed.append(graph.value)
        for call in self.graphs[graph.value - 1]:
            call()
        return 0

    def cuGraphDestroy(self, graph: Any) -> int:
        self.destroyed.append(graph.value)
        return 0

    def cuGraphExecDestroy(self, graph: Any) -> int:
        self.forgotten.append(graph.value)
        return 0

    def cuEventElapsedTime(self, milliseconds: Any, begin: Any, end: Any) -> int:
        milliseconds._obj.value = 0.01
        return 0

    def cuEventQuery(self, event: Any) -> int:
        return 0

    def cuEventSynchronize(self, event: Any) -> int:
        return 0

    def cuStreamSynchronize(self, stream: Any) -> int:
        return 0

    def cuMemAlloc_v2(self, address: Any, size: Any) -> int:
        if size.value > self.left:
            return OUT_OF_MEMORY
        self.left -= size.value
        block = (ctypes.c_uint8 * size.value)()
        address._obj.value = ctypes.addressof(block)
        self.held[ctypes.addressof(block)] = block
        return 0

    def cuMemFree_v2(self, address: Any) -> int:
        self.left += len(self.held.pop(address.value))
        return 0

    def cuMemHostAlloc(self, address: Any, size: Any, flags: int) -> int:
        return self.cuMemAlloc_v2(address, size)

    def cuMemFreeHost(self, address: Any) -> int:
        return self.cuMemFree_v2(address)

    def cuMemcpyHtoDAsync_v2(self, to: Any, source: Any, size: Any, stream: Any) -> int:
        self.copies.append("up")
        ctypes.memmove(to.value, source.value, size.value)
        return 0

    def cuMemcpyDtoHAsync_v2(self, to: Any, source: Any, size: Any, stream: Any) -> int:
        self.copies.append("down")
        ctypes.memmove(to.value, source.value, size.value)
        return 0

    def cuGetErrorString(self, status: int, text: Any) -> int:
        text._obj.value = (
            b"out of memory" if status == OUT_OF_MEMORY else b"no CUDA-capable device is detected"
        )
        return 0


class _Function:
    """A function with a result type that can be set, as ctypes' have."""

    restype: Any = None

    def __call__(self, status: int) -> bytes:
        return b"the requested functionality is not supported"


class FakeCublas:
    """libcublas: it multiplies column-major matrices, and refuses if told to."""

    def __init__(self, status: int = 0, off_by: float = 0.0, always_reads_c: bool = False) -> None:
        self.status, self.off_by, self.always_reads_c = status, off_by, always_reads_c
        self.driver = FakeCuda()
        self.results: list[int] = []  # the address of every C, in order
        self.lt = FakeCublasLt(self)
        self.cublasGetStatusString = _Function()

    def cublasCreate_v2(self, handle: Any) -> int:
        return 0

    def cublasSetStream_v2(self, handle: Any, stream: Any) -> int:
        return 0 if stream.value == 7 else 14

    def cublasSetWorkspace_v2(self, handle: Any, address: Any, size: Any) -> int:
        return 0 if size.value <= len(self.driver.held[address.value]) else 7

    def cublasGetProperty(self, part: int, value: Any) -> int:
        value._obj.value = (13, 1, 0)[part]
        return 0

    def cublasGemmEx(
        self,
        handle: Any,
        transa: int,
        transb: int,
        m: int,
        n: int,
        k: int,
        alpha: Any,
        a: Any,
        a_type: int,
        lda: int,
        b: Any,
        b_type: int,
        ldb: int,
        beta: Any,
        c: Any,
        c_type: int,
        ldc: int,
        compute: int,
        algorithm: int,
    ) -> int:
        assert transa in (0, 1)
        assert transb in (0, 1)
        assert algorithm == -1
        assert type(alpha._obj) is type(beta._obj) is _SCALARS[compute]
        if self.status:
            return self.status
        if lda < max(1, k if transa else m) or ldb < max(1, n if transb else k) or ldc < max(1, m):
            return 7
        if compute == 72 and (lda % 4 or ldb % 4 or k % 4):
            return NOT_SUPPORTED
        left, right = (DTYPES[_STORED[number]] for number in (a_type, b_type))
        result = DTYPES[_STORED[c_type]]

        def multiply() -> None:
            self.results.append(c.value)
            first = _columns(a, k, m, lda, left).T if transa else _columns(a, m, k, lda, left)
            second = _columns(b, n, k, ldb, right).T if transb else _columns(b, k, n, ldb, right)
            product = _numbers(first, left) @ _numbers(second, right)
            product *= alpha._obj.value
            before = _columns(c, m, n, ldc, result)
            if beta._obj.value != 0 or self.always_reads_c:
                product += beta._obj.value * _numbers(before, result)
            before[...] = encode(product + self.off_by, result)

        if self.driver.capturing is None:
            multiply()
        else:
            self.driver.capturing.append(multiply)
        return 0

    def cublasGemmStridedBatchedEx(self, handle: Any, *rest: Any) -> int:
        sizes, (alpha, a, a_type, lda, step_a, b, b_type, ldb, step_b) = rest[:5], rest[5:14]
        beta, c, c_type, ldc, step_c, count, compute, algorithm = rest[14:]
        kinds = (a, a_type, step_a), (b, b_type, step_b), (c, c_type, step_c)
        for number in range(count):
            first, second, third = (
                ctypes.c_void_p(address.value + number * step.value * DTYPES[_STORED[kind]].itemsize)
                for address, kind, step in kinds
            )
            matrices = alpha, first, a_type, lda, second, b_type, ldb, beta, third, c_type, ldc
            every: tuple[Any, ...] = (handle, *sizes, *matrices, compute, algorithm)
            status = self.cublasGemmEx(*every)
            if status:
                return status
        return 0


class FakeCublasLt:
    """libcublasLt, as far as fp8 goes: the first matrix transposed, the second not."""

    def __init__(self, library: FakeCublas) -> None:
        self.library = library
        self.made: list[Any] = [None]
        self.asked: list[int] = []  # bytes of workspace that an algorithm may take

    def _make(self, handle: Any, value: Any) -> int:
        handle._obj.value = len(self.made)
        self.made.append(value)
        return 0

    def cublasLtCreate(self, handle: Any) -> int:
        return self._make(handle, "library")

    def _destroy(self, handle: Any) -> int:
        assert self.made[handle.value] is not None
        self.made[handle.value] = None
        return 0

    cublasLtMatmulDescDestroy = cublasLtMatrixLayoutDestroy = _destroy  # noqa: N815
    cublasLtMatmulPreferenceDestroy = _destroy  # noqa: N815

    def cublasLtMatmulDescCreate(self, handle: Any, compute: int, scale: int) -> int:
        assert (compute, scale) == (68, 0)
        return self._make(handle, {})

    def cublasLtMatmulDescSetAttribute(self, matmul: Any, attribute: int, value: Any, size: Any) -> int:
        assert size.value == ctypes.sizeof(value._obj)
        self.made[matmul.value][attribute] = value._obj.value
        return 0

    def cublasLtMatrixLayoutCreate(self, handle: Any, kind: int, rows: Any, columns: Any, ld: Any) -> int:
        return self._make(handle, (DTYPES[_STORED[kind]], rows.value, columns.value, ld.value))

    def cublasLtMatmulPreferenceCreate(self, handle: Any) -> int:
        return self._make(handle, {})

    def cublasLtMatmulPreferenceSetAttribute(
        self, preference: Any, attribute: int, value: Any, size: Any
    ) -> int:
        assert attribute == 1
        self.asked.append(value._obj.value)
        return 0

    def cublasLtMatmulAlgoGetHeuristic(
        self, handle: Any, matmul: Any, a: Any, b: Any, c: Any, d: Any, preference: Any, most: int,
        answers: Any, count: Any,
    ) -> int:  # fmt: skip
        if self.library.status:
            return self.library.status
        (_, k, m, lda), (_, depth, n, ldb), (result, rows, columns, ldc) = (
            self.made[each.value] for each in (a, b, d)
        )
        assert self.made[matmul.value] == {3: 1, 25: 1}
        assert (depth, rows, columns, c.value) == (k, m, n, d.value)
        if any(each % 16 for each in (lda, ldb, ldc * result.itemsize, m, k)):
            return NOT_SUPPORTED
        ctypes.memset(answers._obj, 65, 96)
        count._obj.value = 1
        return 0

    def cublasLtMatmul(
        self, handle: Any, matmul: Any, alpha: Any, a: Any, a_layout: Any, b: Any, b_layout: Any,
        beta: Any, c: Any, c_layout: Any, d: Any, d_layout: Any, algorithm: Any, workspace: Any,
        size: Any, stream: Any,
    ) -> int:  # fmt: skip
        assert algorithm.raw == b"A" * 64
        assert (c.value, stream.value) == (d.value, 7)
        assert size.value <= len(self.library.driver.held[workspace.value])
        (left, k, m, lda), (right, _, n, ldb), (result, *_, ldc) = (
            self.made[each.value] for each in (a_layout, b_layout, d_layout)
        )

        def multiply() -> None:
            product = _numbers(_columns(a, k, m, lda, left).T, left) @ _numbers(
                _columns(b, k, n, ldb, right), right
            )
            product *= alpha._obj.value
            before = _columns(c, m, n, ldc, result)
            if beta._obj.value != 0:
                product += beta._obj.value * _numbers(before, result)
            before[...] = encode(product + self.library.off_by, result)

        if self.library.driver.capturing is None:
            multiply()
        else:
            self.library.driver.capturing.append(multiply)
        return 0


def _columns(address: Any, rows: int, columns: int, ld: int, dtype: DType) -> Array:
    """A view of memory as a column-major matrix."""
    size = ld * columns * dtype.itemsize
    raw = (ctypes.c_uint8 * size).from_address(address.value)
    flat = np.frombuffer(memoryview(raw), dtype.numpy)
    return flat.reshape(columns, ld)[:, :rows].T


def _numbers(stored: Array, dtype: DType) -> Array:
    return np.asarray(decode(stored, dtype), np.float64)
