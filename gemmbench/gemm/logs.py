"""The GEMM calls of a program, from the log of its BLAS library or a trace of PyTorch's profiler.

Logs are of oneDNN, MKL, cuBLAS, cuBLASLt, rocblas-bench and hipblaslt-bench, and may be mixed.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from io import BufferedReader
from itertools import pairwise
from pathlib import Path
from typing import Any

import msgspec

from gemmbench import UsageError
from gemmbench.model.dtypes import FP8_DTYPES
from gemmbench.model.problem import LONGEST, MOST_PROBLEMS, Leading, leading
from gemmbench.model.units import clean, count_noun

_MOST = 100_000  # different shapes of a log: more would take days to measure
_LONGEST_LINE = 1 << 20  # bytes; libraries write a few hundred
_MOST_ARGUMENTS = 64  # lines for a function of cuBLAS
_MOST_REASONS = 50  # that are kept; the sentence has four
_STEP = 0.002  # microseconds that a time stamp of a trace may be rounded by
_DAMAGED, _FOREIGN = "cut off or damaged", "not from a library"
_WORDS = {
    #         oneDNN   cuBLAS    rocBLAS  PyTorch
    "float": "f32      R_32F     f32_r s  float",
    "double": "f64     R_64F     f64_r d  double",
    "half": "f16       R_16F     f16_r h  c10::Half",
    "bfloat16": "bf16  R_16BF    bf16_r   c10::BFloat16",
    "char": "s8        R_8I      i8_r     signed_char",
    "e4m3": "f8_e4m3   R_8F_E4M3 f8_r     c10::Float8_e4m3fn",
    "e5m2": "f8_e5m2   R_8F_E5M2 bf8_r    c10::Float8_e5m2",
}
_TYPES = {word.lower(): name for name, words in _WORDS.items() for word in words.split()}
# A row-major product: m, n, k, ld, trans_a, trans_b, batch, dtype, alpha, beta; these None if not logged.
Call = tuple[int, int, int, Leading | None, bool, bool, int, str, float | None, float | None]


class _UnreadError(Exception): ...


def _common_dtype(a: str, b: str, c: str = "", compute: str = "") -> str:
    """gemmbench's type for a library's names of A's, B's and C's types."""
    name = _TYPES.get(a.lower())
    if a != b or name is None:
        raise _UnreadError(f"type {a}" if a == b else f"types {a} and {b}")
    if name == "float" and ("TF32" in compute or "xf32" in compute):
        return "tf32"
    with_c = f"{name}-{_TYPES.get(c.lower())}"
    if name in FP8_DTYPES and c and with_c not in (*FP8_DTYPES, f"{name}-float"):
        raise _UnreadError(f"{name} with C in {c}")
    return with_c if with_c in FP8_DTYPES else name


def _checked_call(
    lengths: Sequence[int], dtype: str, ld: Sequence[int | None], trans: Iterable[bool],
    batch: int = 1, alpha: float | None = None, beta: float | None = None,
) -> Call:  # fmt: skip
    """A logged call of row-major matrices, checked."""
    m, n, k = lengths
    trans_a, trans_b = trans
    if not all(isinstance(length, int) and 1 <= length <= LONGEST for length in (m, n, k, *filter(None, ld))):
        raise _UnreadError("a matrix without elements, or too long")
    if not (isinstance(batch, int) and 1 <= batch <= MOST_PROBLEMS):
        raise _UnreadError(f"a batch that is not of 1 to {MOST_PROBLEMS:,} problems")
    if not all(math.isfinite(scalar or 0) for scalar in (alpha, beta)):
        raise _UnreadError("alpha or beta is not a number")
    try:
        apart = leading(m, n, k, ld[0], ld[1], ld[2], trans_a, trans_b)
    except ValueError:
        raise _UnreadError("a leading dimension less than a row") from None
    return m, n, k, apart, trans_a, trans_b, batch, dtype, alpha, beta


def _columns(
    lengths: Sequence[int], dtype: str, ld: Sequence[int | None], trans: Sequence[str], *rest: Any
) -> Call:
    """A column-major product as row-major: C's transpose is B's times A's."""
    (m, n, k), (lda, ldb, ldc) = lengths, ld
    return _checked_call(
        (n, m, k), dtype, (ldb, lda, ldc), [each.upper() != "N" for each in reversed(trans)], *rest
    )


def _stored(dims: Sequence[int], strides: Sequence[int]) -> tuple[bool, int | None]:
    """Whether a matrix is stored transposed, and its leading dimension."""
    (rows, columns), (row, column) = dims[-2:], strides[-2:]
    is_transposed = column != 1 and columns > 1 and row == 1
    if is_transposed:
        rows, columns, row, column = columns, rows, column, row
    if (column != 1 and columns > 1) or (len(dims) > 2 and 0 < strides[-3] < rows * row):
        return is_transposed, None
    return is_transposed, max(row, columns) if rows > 1 else columns


def _dense(dims: Sequence[int], order: Sequence[int]) -> list[int]:
    strides = [1] * len(dims)
    for inner, outer in pairwise(reversed(order)):
        strides[outer] = strides[inner] * dims[inner]
    return strides


def _match(pattern: re.Pattern[str], text: str) -> re.Match[str]:
    if match := pattern.search(text):
        return match
    raise ValueError(text)


def _number(text: str | None) -> float | None:
    return float(text) if text and re.fullmatch(r"(?i)[-+]?([\d.]+(e[-+]?\d+)?|nan|inf)", text) else None


# src:bf16::blocked:ab:6144x1:f0; oneDNN 2 and older: src_f32::blocked:ab:f0
_OPERAND = re.compile(r"(src|wei|dst)[:_](\w+):\w*:\w+:(\w*)(?::([\dx]*))?:f")
_PRODUCT = re.compile(r",exec,[^,]+,(matmul|inner_product)\b|.*_verbose")  # or two lines in one
_PROBLEM = {
    "matmul": re.compile(r"^(\d+(?:x\d+)+):(\d+(?:x\d+)+)(?::[\dx]+)?$|^(?:b(\d+))?m(\d+)n(\d+)k(\d+)$"),
    "inner_product": re.compile(r"^mb(\d+)ic(\d+)(?:id(\d+))?(?:ih(\d+))?(?:iw(\d+))?oc(\d+)$"),
}
_SUM = re.compile(r"post.ops:\S*?\bsum(?::([-+.\de]+))?")
_SCALE = re.compile(r"oscale:0:([-+.\de]+)")


def _onednn(text: str) -> Call | None:
    """A line from ``,exec`` to the time; None if it is of another primitive."""
    if not _PRODUCT.match(text):
        return None
    _, _, _, primitive, _, kind, operands, attributes, _, problem = text.split(",")
    if "*" in problem or "-" in problem:
        raise _UnreadError("lengths that are not logged")
    lengths = _match(_PROBLEM[primitive], problem).groups()
    each: dict[str, Any] = {match[1]: match.groups()[1:] for match in _OPERAND.finditer(operands)}
    src, wei, dst = each["src"], each["wei"], each["dst"]
    backward = {"backward_data": (dst, wei, src), "backward_weights": (src, dst, wei)}
    dtype = _common_dtype(*(each[0] for each in backward.get(kind, (src, wei, dst))))
    added, scale = _SUM.search(attributes), _SCALE.search(attributes)
    scalars = float(scale[1]) if scale else 1.0, float(added[1] or 1) if added else 0.0
    if primitive == "matmul":
        return _matmul(lengths, [src[1:], wei[1:], dst[1:]], dtype, scalars)
    rows, *inner, outputs = (int(length or 1) for length in lengths)
    # The source is rows x inputs, the weights outputs x inputs, the destination rows x outputs.
    a, b, c = (re.fullmatch("[b-z]+a", tag) is not None for _, tag, _ in (src, wei, dst))
    inputs = math.prod(inner)
    product, trans = (rows, outputs, inputs), (a, not b)
    if kind.startswith("backward"):
        data = kind == "backward_data"
        product, trans = ((rows, inputs, outputs), (c, b)) if data else ((outputs, inputs, rows), (not c, a))
    return _checked_call(product, dtype, (None, None, None), trans, 1, *scalars)


def _matmul(
    lengths: Sequence[str | Any], tags: Sequence[tuple[str, str | None]], dtype: str, scalars: Sequence[float]
) -> Call:
    """``96x128:128x384`` is A and B, with dimensions of batches before; in oneDNN 1 ``b1m96n384k128``."""
    if lengths[0]:
        a, b = ([int(length) for length in side.split("x")] for side in lengths[:2])
        outer, m, n, k = [*map(max, a[:-2], b[:-2])], a[-2], b[-1], a[-1]
        if len(a) != len(b) or k != b[-2]:
            raise ValueError(lengths)
    else:
        outer, (m, n, k) = [int(lengths[2])] if lengths[2] else [], map(int, lengths[3:])
    stored = []
    for ends, (tag, logged) in zip(((m, k), (k, n), (m, n)), tags, strict=True):
        dims = [*outer, *ends]
        order = [ord(letter) - ord("a") for letter in tag]
        if sorted(order) != [*range(len(dims))]:  # blocks, which the library has packed
            order = [*range(len(dims))]
        strides = [int(stride) for stride in logged.split("x")] if logged else _dense(dims, order)
        stored.append(_stored(dims, strides))
    trans, ld = [is_transposed for is_transposed, _ in stored], [length for _, length in stored]
    if trans[2]:  # C is column-major, where a row-major A or B counts as transposed
        letters = ["N" if is_transposed else "T" for is_transposed in trans[:2]]
        return _columns((m, n, k), dtype, ld, letters, math.prod(outer), *scalars)
    return _checked_call((m, n, k), dtype, ld, trans[:2], math.prod(outer), *scalars)


_MKL = re.compile(r"MKL_VERBOSE (\w*GEMM\w*)\((.*?)\) [\d.]+[mun]?s\b")
_MKL_NAME = re.compile(r"([SDHCZ])GEMM(_BATCH_STRIDED)?|GEMM_([A-Z]+\d+)([A-Z]+\d+)[A-Z]+\d+")


def _mkl(text: str) -> Call | None:
    """``MKL_VERBOSE SGEMM(N,N,9,8,10,0x..,0x..,9,0x..,10,0x..,0x..,9) 5us``; alpha and beta are addresses."""
    if "GEMM" not in text:
        return None
    line = _match(_MKL, text)
    name, values = _MKL_NAME.fullmatch(line[1]), line[2].split(",")
    if not name:
        raise _UnreadError(f"{line[1]} without lengths" if line[1].endswith("_BATCH") else line[1])
    dtype = _common_dtype(*(name[1] * 2 if name[1] else (name[3].lower(), name[4].lower())))
    # In a batch, the distance of its matrices follows each leading dimension.
    positions, length = ((7, 10, 14), 17) if name[2] else ((7, 9, 12), 13)
    if len(values) != length:
        raise ValueError(text)
    ld = [int(values[position]) for position in positions]
    batch = int(values[-1]) if name[2] else 1
    return _columns([int(value) for value in values[2:5]], dtype, ld, values[:2], batch)


_PART = re.compile(r"\b(\w+)[dD]esc=\[([^]]*)\]")
_WORD = re.compile(r"(\w+)=(\S+)")


def _cublaslt(text: str) -> Call | None:
    """The call in a line of cuBLASLt's trace; None if there is none."""
    if "[Trace][cublasLt" not in text or "Matmul]" not in text:
        return None
    parts = {match[1]: dict(_WORD.findall(match[2])) for match in _PART.finditer(text)}
    a, b, d, how, scalars = parts["A"], parts["B"], parts["D"], parts["compute"], dict(_WORD.findall(text))
    if any(layout.get("order", "COL").removeprefix("ORDER_") != "COL" for layout in (a, b, d)):
        raise _UnreadError("a layout that is not column-major")
    trans = [how.get(name, "OP_N").removeprefix("OP_") for name in ("transa", "transb")]
    lengths = int(d["rows"]), int(d["cols"]), int(a["cols" if trans[0] == "N" else "rows"])
    dtype = _common_dtype(a["type"], b["type"], d["type"], how["computeType"])
    rest = int(d.get("batchCount", 1)), _number(scalars.get("alpha")), _number(scalars.get("beta"))
    return _columns(lengths, dtype, [int(each["ld"]) for each in (a, b, d)], trans, *rest)


def _bench(text: str) -> Call | None:
    """The call in a command line of rocblas-bench or hipblaslt-bench; None if it is no GEMM."""
    words = text.split()
    options = {name: value for name, value in pairwise(words) if name.startswith("-")}
    if not re.fullmatch("gemm(_strided)?(_batched)?(_ex)?", options.get("-f", "gemm")):
        return None
    if "--grouped_gemm" in words:
        raise _UnreadError("grouped products")
    types = [options.get(f"--{name}_type", options.get("-r", "")) for name in "abc"]
    dtype = _common_dtype(types[0], types[1], types[2], options.get("--compute_type", ""))
    trans = [options.get(f"--transpose{name}") or options[f"--trans{name}"] for name in "AB"]
    lengths, ld = ([int(options[f"{a}{x}"]) for x in names] for a, names in (("-", "mnk"), ("--ld", "abc")))
    alpha, beta = (_number(options.get(name)) for name in ("--alpha", "--beta"))
    return _columns(lengths, dtype, ld, trans, int(options.get("--batch_count", 1)), alpha, beta)


_FUNCTION = re.compile(r"(?s)I! cuBLAS \(v[\d.]+\) function cublasStatus_t cublas(\w+)\(.*Process=")
_ARGUMENT = re.compile(r"i! +(\w+): type=.*?; val=(?:CUDA_|CUBLAS_OP_)?([^\s(]+)")


def _cublas(text: str) -> Call | None:
    """The call in a block of cuBLAS's log; None if it is no GEMM."""
    function = _match(_FUNCTION, text)
    if "gemm" not in function[1].lower():
        return None
    if "Grouped" in function[1]:
        raise _UnreadError("grouped products")
    values = dict(_ARGUMENT.findall(text))
    types = [values.get(f"{name}type", function[1][0]) for name in "ABC"]
    compute = values["computeType"] if function[1].startswith("Gemm") else ""
    compute += dict(_WORD.findall(text)).get("MathMode", "")
    lengths, ld = [int(values[name]) for name in "mnk"], [int(values[f"ld{name}"]) for name in "abc"]
    batch = int(values["batchCount"]) if "Batched" in function[1] else 1
    rest = batch, _number(values.get("alpha")), _number(values.get("beta"))
    trans = [values["transa"], values["transb"]]
    return _columns(lengths, _common_dtype(types[0], types[1], types[2], compute), ld, trans, *rest)


_OPERATION = re.compile(rb'"name"\s*:\s*"aten::(mm|addmm_?|bmm|baddbmm_?|linear|_int_mm|_scaled_mm)"')


_SCALAR_TYPES = {"5": "c10::Half", "6": "float", "15": "c10::BFloat16"}  # PyTorch's numbers of types


def _torch(name: str, inputs: Mapping[str, Any]) -> Call:
    """The call of a PyTorch trace's operator, from its shapes and strides."""
    first = 1 if "add" in name else 0  # the matrix that is added comes first
    if not inputs.get("Input Dims"):
        raise _UnreadError("recorded without record_shapes=True")
    a, b = inputs["Input Dims"][first : first + 2]
    logged = inputs.get("Input Strides") or [None, None, None]  # of PyTorch 2.1 or older
    strides = [s or _dense(dims, range(len(dims))) for s, dims in zip(logged[first:], (a, b), strict=False)]
    if name == "linear":  # B's rows are outputs, and A may have several dimensions
        a, b, strides = [math.prod(a[:-1]), a[-1]], b[::-1], [[a[-1], 1], strides[1][::-1]]
    if len(a) != len(b) or a[-1] != b[-2]:
        raise ValueError(inputs)
    (trans_a, lda), (trans_b, ldb) = _stored(a, strides[0]), _stored(b, strides[1])
    beta, alpha = map(_number, inputs["Concrete Inputs"][3:5]) if first else (0.0, 1.0)
    if first and len(inputs["Input Dims"][0]) < len(a):  # a bias is added to each row: there is no C to read
        beta = 0.0
    c = _SCALAR_TYPES.get(inputs["Concrete Inputs"][6], "") if name == "_scaled_mm" else ""
    left, right = (word.replace(" ", "_") for word in inputs["Input type"][first : first + 2])
    lengths, rest = (a[-2], b[-1], a[-1]), (math.prod(a[:-2]), alpha, beta)
    return _checked_call(lengths, _common_dtype(left, right, c), (lda, ldb, None), (trans_a, trans_b), *rest)


_READERS: dict[bytes, Callable[[str], Call | None]] = {
    b"nn_verbose,": lambda _: None,  # oneDNN, whose executions are read before
    b"dnnl_verbose,": lambda _: None,
    b"MKL_VERBOSE ": _mkl,
    b"[cublasLt]": _cublaslt,
    b"rocblas-bench ": _bench,
    b"hipblaslt-bench ": _bench,
}


class _Log:
    def __init__(self) -> None:
        self.is_log = self.has_cublas = False
        self.calls: dict[Call, list[int]] = {}  # calls by the program, and cuBLAS's own of cuBLASLt
        self.unread: dict[str, list[int]] = {}  # the same by the reason, and the first line
        self._function: list[str] = []  # of cuBLAS, with the lines of its arguments
        self._from = 0

    def counter(self, reader: Callable[[Any], Call | None], text: object, number: int) -> list[int]:
        """The counts of the call that `reader` finds; of an unreadable one, those of its reason."""
        self.is_log = True
        try:
            call = reader(text)
        except _UnreadError as error:
            return self.left(clean(str(error))[:60], number)
        except (ValueError, KeyError, IndexError, TypeError, AttributeError, OverflowError):
            return self.left(_DAMAGED, number)
        if call is None:
            return [0, 0]
        if len(self.calls) == _MOST and call not in self.calls:
            raise UsageError(f"more than {_MOST:,} different shapes")
        return self.calls.setdefault(call, [0, 0])

    def left(self, reason: str, number: int) -> list[int]:
        is_named = reason in self.unread or len(self.unread) < _MOST_REASONS
        return self.unread.setdefault(reason if is_named else "other", [0, 0, number])

    def line(self, line: bytes, number: int) -> None:
        if line.startswith(b"i!") and b"I! cuBLAS" not in line:  # an argument of cuBLAS
            self._function += [line.decode("latin-1")] if 0 < len(self._function) < _MOST_ARGUMENTS else []
            return
        self.end()
        if b"I! cuBLAS" in line:
            self._function, self._from = [line.decode("latin-1")], number
            return
        mark = next((mark for mark in _READERS if mark in line), b"")
        self.is_log |= bool(mark)
        if line.count(mark) == 1 and line.endswith(b"\n"):
            is_inner = mark == b"[cublasLt]" and b"[cublasLtMatmul]" not in line
            self.counter(_READERS[mark], line.decode("latin-1"), number)[is_inner] += 1
        elif not line.isspace():
            self.left(_DAMAGED if mark else _FOREIGN, number)[0] += 1  # or two lines in one

    def end(self) -> None:
        if self._function:
            self.has_cublas |= "gemm" in self._function[0].lower()
            self.counter(_cublas, "".join(self._function), self._from)[0] += 1
            self._function = []

    def read(self, file: BufferedReader[Any]) -> None:
        """Count every line. Equal executions of oneDNN are parsed once."""
        known: dict[bytes, list[int]] = {}
        for number, line in enumerate(iter(partial(file.readline, _LONGEST_LINE), b""), 1):
            start = line.find(b",exec,")
            text = line[start : line.rfind(b",")]
            counter = known.get(text) if start >= 0 else None
            if counter is None:
                if start < 0 or not (b"onednn_verbose," in line or b"dnnl_verbose," in line):
                    self.line(line, number)
                    continue
                if len(known) >= _MOST:
                    known.clear()
                counter = known[text] = self.counter(_onednn, text.decode("latin-1"), number)
            counter[0] += 1
        self.end()

    def read_trace(self, data: bytes) -> None:
        """Count a trace's innermost operations: linear contains addmm, the product."""
        events: list[tuple[Any, ...]] = []
        self.is_log = True
        raw = msgspec.json.decode(data, type=dict[str, msgspec.Raw])["traceEvents"]
        for number, event in enumerate(msgspec.json.decode(raw, type=list[msgspec.Raw]), 1):
            if operation := _OPERATION.search(bytes(event)):
                fields = msgspec.json.decode(event)
                thread, start = f"{fields['pid']} {fields['tid']}", fields["ts"]
                name, inputs = operation[1].decode().rstrip("_"), fields.get("args", {})
                events.append((thread, start, -start - fields["dur"], number, name, inputs))
        events.sort(key=lambda event: event[:4])
        inner = [a for a, b in pairwise([*events, ("", 0, 0)]) if b[0] != a[0] or b[1] >= -a[2] - _STEP]
        for _, _, _, number, name, inputs in sorted(inner, key=lambda event: event[1]):
            self.counter(partial(_torch, name), inputs, number)[0] += 1

    def lacking(self, what: str) -> str:
        counts = {reason: (own + inner, first) for reason, (own, inner, first) in self.unread.items()}
        parts = [f"{reason} ({count:,}, first {what} {first:,})" for reason, (count, first) in counts.items()]
        parts[4:] = ["other reasons"] if len(parts) > 4 else []
        total = count_noun(sum(count for count, _ in counts.values()), what, ",")
        return f"{total} not read: {'; '.join(parts)}" if parts else ""


def read_calls(path: Path, file: BufferedReader[Any]) -> tuple[dict[Call, int], str] | None:
    """Each call of a log with its count, and what was not read; None without a log.

    Raises `UsageError` if there is no GEMM that can be read, or too many, or the trace is cut off.
    """
    log, head = _Log(), file.peek(1)
    is_trace = head.lstrip().startswith(b"{") and b'"traceEvents"' in head
    try:
        log.read_trace(file.read()) if is_trace else log.read(file)
    except (msgspec.MsgspecError, KeyError, TypeError, RecursionError) as error:
        why = f"an event has no {error.args[0]}" if isinstance(error, KeyError) else str(error)
        raise UsageError(f"{path}: a trace that is cut off or damaged: {why}") from None
    except UsageError as error:
        raise UsageError(f"{path}: {error}") from None
    if not log.is_log:
        return None
    lacking = log.lacking("event" if is_trace else "line")
    calls = {call: direct + (0 if log.has_cublas else inner) for call, (direct, inner) in log.calls.items()}
    calls = {call: count for call, count in calls.items() if count}
    if not calls:
        raise UsageError(f"{path}: a log without a GEMM{lacking and f'; {lacking}'}")
    return calls, lacking
