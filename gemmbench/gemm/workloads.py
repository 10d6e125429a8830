"""Real shapes with their sources, the odd ones that regressions hide in, and the time of AlexNet's products.

Adding a set is an entry in `SETS`.
"""

from __future__ import annotations

import csv
import io
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import accumulate
from pathlib import Path
from typing import Annotated

import msgspec
from msgspec import UNSET, UnsetType

from gemmbench import UsageError
from gemmbench.gemm import logs
from gemmbench.model import units
from gemmbench.model.device import HOST
from gemmbench.model.dtypes import DTYPES, GEMM_DTYPES
from gemmbench.model.problem import LONGEST, MOST_PROBLEMS, Gemm, Leading, leading
from gemmbench.model.row import Row
from gemmbench.model.run_file import LeftOut, Run
from gemmbench.model.units import by_key, reason_of, spelt_out
from gemmbench.stats import rates

PROMPT = 512  # tokens; long enough for whole tiles, short enough for a CPU


@dataclass(frozen=True)
class Shape:
    """One problem of a set."""

    name: str
    m: int
    n: int
    k: int
    ld: Leading | None = None  # None: rows have nothing between them
    trans_a: bool = False  # A is stored k x m
    trans_b: bool = False  # B is stored n x k
    batch: int = 1  # problems in one launch
    dtype: str | None = None  # None: that of --dtype
    alpha: float | None = None  # None: that of --alpha
    beta: float | None = None
    calls: int = 1  # how often the program made this call

    def problem(self, dtype: str = "float", alpha: float = 1.0, beta: float = 0.0) -> Gemm:
        alpha = alpha if self.alpha is None else self.alpha
        beta = beta if self.beta is None else self.beta
        return Gemm(
            self.m, self.n, self.k, self.dtype or dtype, alpha, beta, self.name, self.ld,
            self.trans_a, self.trans_b, self.batch, self.calls,
        )  # fmt: skip


@dataclass(frozen=True)
class Workload:
    """A set of shapes and where they come from."""

    idea: str
    source: str
    shapes: Callable[[int, int], tuple[Shape, ...]]  # for a batch and a prompt's length in tokens


# fmt: off
CONVOLUTIONS = (  # of one tower
    # name  filters   pixels  channels x filter  towers
    ("conv1",  96, 55 * 55,   3 * 11 * 11, 1),
    ("conv2", 128, 27 * 27,  48 *  5 *  5, 2),
    ("conv3", 384, 13 * 13, 256 *  3 *  3, 1),
    ("conv4", 192, 13 * 13, 192 *  3 *  3, 2),
    ("conv5", 128, 13 * 13, 192 *  3 *  3, 2),
)
DENSE = (
    # name    in    out
    ("fc6", 9216, 4096),  # 256 channels of 6 x 6 pixels
    ("fc7", 4096, 4096),
    ("fc8", 4096, 1000),
)
# fmt: on


def _alexnet(batch: int, _: int) -> tuple[Shape, ...]:
    lowered = (
        Shape(f"alexnet {name}", filters, batch * pixels, depth)
        for name, filters, pixels, depth, _ in CONVOLUTIONS
    )
    dense = (Shape(f"alexnet {name}", batch, outputs, inputs) for name, inputs, outputs in DENSE)
    return (*lowered, *dense)


_DIM, _HIDDEN, _VOCABULARY = 4096, 14336, 32000
_KEYS_AND_VALUES = 8 * 128  # heads x their width

PROJECTIONS = (
    # name     in       out
    ("q/o", _DIM, _DIM),
    ("k/v", _DIM, _KEYS_AND_VALUES),
    ("gate/up", _DIM, _HIDDEN),
    ("down", _HIDDEN, _DIM),
)
HEAD = ("head", _DIM, _VOCABULARY)  # once for each sequence, so never for a whole prompt


def _transformer(batch: int, prompt: int) -> tuple[Shape, ...]:
    token = (Shape(f"token {name}", batch, outputs, inputs) for name, inputs, outputs in (*PROJECTIONS, HEAD))
    tokens = batch * prompt
    whole = (Shape(f"prompt {name}", tokens, outputs, inputs) for name, inputs, outputs in PROJECTIONS)
    return (*token, *whole)


_TOKENS = (1, 16, 128, 2048)  # decode, decode of 16 sequences, a batch, prefill
LAYERS = {
    # model    name       in     out
    "8B": (("qkv", 4096, 6144), ("o", 4096, 4096), ("gate/up", 4096, 28672), ("down", 14336, 4096)),
    # of a layer that is split over eight GPUs
    "70B": (("qkv", 8192, 1280), ("o", 1024, 8192), ("gate/up", 8192, 7168), ("down", 3584, 8192)),
}


def _language_models(_batch: int, _prompt: int) -> tuple[Shape, ...]:
    return tuple(
        Shape(f"{model} {name} {tokens}", tokens, outputs, inputs)
        for tokens in _TOKENS
        for model, layer in LAYERS.items()
        for name, inputs, outputs in layer
    )


# fmt: off
ODD = (
    #     name         m     n     k
    Shape("2^9",      512,  512,  512),  # to compare the next two with
    Shape("2^9 - 1",  511,  511,  511),  # the last tile of each row and column is not whole
    Shape("2^9 + 1",  513,  513,  513),  # a whole row and column of tiles for one line of C
    Shape("primes",   499,  503,  521),
    Shape("mixed",   1023, 1025,  769),
    Shape("tall",    4096,   16,  512),  # C is tall and skinny
    Shape("wide",      16, 4096,  512),  # C is short and wide
    Shape("deep",      48,   32, 8192),  # few tiles, each with a long sum
    Shape("shallow", 1000, 1000,    7),  # k is below the depth of any tile
    Shape("column",  3001,    1, 2003),  # matrix times vector
    Shape("row",        1, 3001, 2003),  # vector times matrix
)
# fmt: on


SETS: dict[str, Workload] = {
    "alexnet": Workload(
        idea="five convolutions lowered by im2col, and three dense layers. In a convolution, m = output "
        "channels, n = output pixels and k = input channels x filter; in a dense layer, m = images. conv2, "
        "conv4 and conv5 have the shape of one of the original's two towers, which runs twice",
        source="Krizhevsky, Sutskever and Hinton, ImageNet Classification with Deep Convolutional Neural "
        "Networks, NIPS 2012; images of 227 x 227, which its outputs of 55 x 55 require",
        shapes=_alexnet,
    ),
    "transformer": Workload(
        idea="the projections of a decoder layer of Mistral 7B for one token and for a prompt (m = tokens), "
        "and the output head",
        source="Jiang et al., Mistral 7B, arXiv:2310.06825, table 1: dim 4096, hidden_dim 14336, 32 heads "
        "and 8 of keys and values, of 128 each, vocab_size 32000",
        shapes=_transformer,
    ),
    "llm": Workload(
        idea="a decoder layer of Llama 3 8B, and of 70B split over eight GPUs; m = 1, 16, 128, 2048 tokens",
        source="Grattafiori et al., The Llama 3 Herd of Models, arXiv:2407.21783, table 3: model dimensions "
        "4096 and 8192, FFN dimensions 14336 and 28672, 8 key/value heads of 128; without batch and prompt",
        shapes=_language_models,
    ),
    "odd": Workload(
        idea="sizes next to powers of two, primes, tall, wide, deep and shallow shapes, vectors",
        source="the edges that tiles leave over; independent of batch and prompt",
        shapes=lambda _batch, _prompt: ODD,
    ),
}


def merge_shapes(shapes: Iterable[Shape]) -> tuple[Shape, ...]:
    """Each shape once, with the names of all, ``q = k and 2 more``, and calls added up."""
    groups = by_key((replace(shape, name="", calls=1), shape) for shape in shapes)
    are_counted = any(shape.calls > 1 for alike in groups.values() for shape in alike)
    return tuple(
        replace(
            shape,
            name=_joined(list(dict.fromkeys(each.name for each in alike))),
            calls=sum(each.calls for each in alike) if are_counted else 1,
        )
        for shape, alike in groups.items()
    )


_BALANCE = 15  # operations in float while a byte comes from memory: 14.6 on an H200, 12.5 on an A100


def _predicted(shape: Shape) -> float:
    problem = shape.problem()
    operations = problem.flops * DTYPES[problem.dtype].itemsize / DTYPES["float"].itemsize
    return shape.calls * max(operations, _BALANCE * problem.operand_bytes)


def heaviest(shapes: Sequence[Shape], percent: float) -> tuple[tuple[Shape, ...], LeftOut | UnsetType]:
    """The fewest shapes with this share of the predicted time, and what is excluded."""
    times = list(map(_predicted, shapes))
    order = sorted(range(len(shapes)), key=lambda index: -times[index])
    before = accumulate((times[index] for index in order), initial=0.0)
    kept = {index for index, time in zip(order, before, strict=False) if time < percent / 100 * sum(times)}
    rest = [index for index in order if index not in kept]
    if not rest or percent >= 100:
        return tuple(shapes), UNSET
    flops = sum(shapes[index].calls * shapes[index].problem().flops for index in rest)
    share = sum(times[index] for index in rest) / sum(times)
    return tuple(shapes[index] for index in sorted(kept)), LeftOut(len(rest), flops, share)


def _joined(names: list[str]) -> str:
    if len(names) <= 2:
        return " = ".join(names)
    return f"{names[0]} = {names[1]} and {len(names) - 2} more"


_AHEAD = 1 << 20  # bytes that decide what a file is
_LONGEST_NAME = 40  # letters
_MISSING = "Object missing required field"
_TOO_LONG = "Integer value out of range"  # of 64 bits
_PLAIN = {"int": "a whole number", "bool": "true or false", "str": "a text", _MISSING: "no value of"}
_PLAIN["float"] = "a number"
Length = Annotated[int, msgspec.Meta(ge=1, le=LONGEST)]
Scalar = Annotated[float, msgspec.Meta(ge=-sys.float_info.max, le=sys.float_info.max)]  # no NaN


class _CsvLine(msgspec.Struct, forbid_unknown_fields=True):
    m: Length
    n: Length
    k: Length
    name: Annotated[str, msgspec.Meta(max_length=_LONGEST_NAME)] = ""
    lda: Length | None = None
    ldb: Length | None = None
    ldc: Length | None = None
    trans_a: bool = False
    trans_b: bool = False
    batch: Annotated[int, msgspec.Meta(ge=1, le=MOST_PROBLEMS)] = 1
    dtype: str | None = None
    alpha: Scalar | None = None
    beta: Scalar | None = None
    calls: Length = 1


def read_shapes(
    path: Path, trans_a: bool = False, trans_b: bool = False, remark: Callable[[str], None] = lambda _: None
) -> tuple[Shape, ...]:
    """The shapes of a CSV file, or the calls of a log (`logs`), each once with its count.

    `trans_a` and `trans_b` are defaults for a CSV file. `remark` gets a sentence if lines of a log were not
    read. `UsageError` if the file cannot be read, or a value is not valid.
    """
    try:
        with io.BufferedReader(io.FileIO(path), _AHEAD) as file:
            head = file.peek(1)
            columns = head.partition(b"\n")[0].decode("utf-8-sig", "replace").lower().split(",")
            is_csv = {"m", "n", "k"} <= {column.strip(' "\r') for column in columns}
            if not is_csv and b"\0" not in head and (log := logs.read_calls(path, file)):
                if log[1]:
                    remark(f"{path}: {log[1]}.")
                return tuple(Shape("", *call, count) for call, count in log[0].items())
            if not is_csv and file.seekable():
                file.seek(0)
            text = io.TextIOWrapper(file, "utf-8-sig", newline="")  # spreadsheets write a mark before it
            lines = csv.DictReader(text, strict=True, skipinitialspace=True)
            try:
                return tuple(_shapes(path, lines, trans_a, trans_b))
            except csv.Error as error:
                raise UsageError(f"{path}: line {lines.reader.line_num}: {error}") from None
    except OSError as error:
        raise UsageError(f"{path}: {reason_of(error)}") from None
    except UnicodeDecodeError:
        raise UsageError(f"{path}: not text in UTF-8, which shapes and logs are") from None


def _shapes(path: Path, lines: csv.DictReader[str], trans_a: bool, trans_b: bool) -> list[Shape]:
    columns = [name.strip().lower() for name in lines.fieldnames or ()]
    known = _CsvLine.__struct_fields__
    if not {"m", "n", "k"} <= set(columns) <= set(known) or len(set(columns)) < len(columns):
        if not columns:
            raise UsageError(f"{path}: the file is empty")
        needed = f"m, n and k, and may have {', '.join(known[3:])}, each once"
        first = ",".join(columns)[:_LONGEST_NAME]
        raise UsageError(f"{path}: no BLAS log; line 1: {first!r}: the header of a CSV file needs {needed}")
    lines.fieldnames = columns
    shapes = []
    for values in lines:
        where = f"{path}: line {lines.line_num}"
        if None in values or None in values.values():
            raise UsageError(f"{where}: not as many values as the header has columns ({len(columns)})")
        given = {name: text for name, value in values.items() if (text := " ".join(value.split()))}
        if not given:
            continue
        try:
            line = msgspec.convert({"trans_a": trans_a, "trans_b": trans_b} | given, _CsvLine, strict=False)
        except msgspec.ValidationError as error:
            what, _, column = str(error).replace("`", "").replace(" | null", "").partition(" - at $.")
            value = f"{column}: {given[column][:_LONGEST_NAME]!r}: " if column else ""
            if what == _TOO_LONG:
                what = f"Expected int <= {MOST_PROBLEMS if column == 'batch' else LONGEST}"
            for technical, words in _PLAIN.items():
                what = what.replace(technical, words)
            raise UsageError(f"{where}: {value}{what[0].lower()}{what[1:].partition(', got ')[0]}") from None
        if line.dtype is not None and line.dtype not in GEMM_DTYPES:
            types = ", ".join(GEMM_DTYPES)
            raise UsageError(f"{where}: dtype: {line.dtype[:_LONGEST_NAME]!r}: expected {types}")
        trans = {"trans_a": line.trans_a, "trans_b": line.trans_b}
        try:
            apart = leading(line.m, line.n, line.k, line.lda, line.ldb, line.ldc, **trans)
        except ValueError as error:
            raise UsageError(f"{where}: {error}") from None
        name = line.name or f"{spelt_out(path.name)}:{lines.line_num}"
        fields = (line.batch, line.dtype, line.alpha, line.beta, line.calls)
        shapes.append(Shape(name, line.m, line.n, line.k, apart, line.trans_a, line.trans_b, *fields))
    if not shapes:
        raise UsageError(f"{path}: no shape follows the header")
    return shapes


_RUNS = {name: towers for name, *_, towers in CONVOLUTIONS} | {name: 1 for name, *_ in DENSE}  # of a layer


@dataclass(frozen=True)
class Net:
    """AlexNet's products on one device, in one data type, without lowering (im2col)."""

    device: int
    dtype: str
    products: dict[str, Row]  # of each layer: its fastest row in the device scope
    seconds: dict[str, float]  # of each layer with a figure: of every tower's product

    @property
    def whole_s(self) -> float:
        return sum(self.seconds.values()) if len(self.seconds) == len(_RUNS) else 0.0

    @property
    def share(self) -> float:
        return sum(self.seconds[name] for name, *_ in CONVOLUTIONS) / self.whole_s

    @property
    def sentence(self) -> str:
        if not self.whole_s:
            lacking = ", ".join(name for name in _RUNS if name not in self.seconds)
            return f"AlexNet's GEMMs are not summed, because there is no rate of {lacking}."
        share, whole = units.share(self.share), units.seconds(self.whole_s)
        return f"AlexNet's GEMMs take {whole} on the device, {share} of it in the convolutions."


@lru_cache(maxsize=16)
def nets(run: Run) -> tuple[Net, ...]:
    """AlexNet's products, where a device and a type have all layers."""
    layers: dict[tuple[int, str], dict[str, list[Row]]] = {}
    for row in run.rows:
        for label in row.label.split(" = ") if row.kind == "gemm" and row.device != HOST else ():
            if (name := label.removeprefix("alexnet ")) != label:
                layers.setdefault((row.device, row.dtype), {}).setdefault(name, []).append(row)
    made = []
    for subject, rows in layers.items():
        if rows.keys() >= _RUNS.keys():
            rate = {
                name: [(rates.median_rate(row, "device") or 0.0, row) for row in rows[name]] for name in _RUNS
            }
            best = {name: max(rated, key=lambda pair: pair[0]) for name, rated in rate.items()}
            seconds = {n: _RUNS[n] * rates.flops_of(row) / top for n, (top, row) in best.items() if top}
            made.append(Net(*subject, {name: row for name, (_, row) in best.items()}, seconds))
    return tuple(made)


def net_figures(run: Run, row: Row) -> dict[str, float]:
    """The seconds of a layer's fastest row in AlexNet, and their share; or {}."""
    for net in nets(run):
        for name, product in net.products.items():
            if product is row and net.whole_s:
                return {"net_s": net.seconds[name], "net_share": net.seconds[name] / net.whole_s}
    return {}
