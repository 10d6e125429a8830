"""Real shapes with their sources, the odd ones that regressions hide in, and the time of AlexNet's products.

``m n k`` are GEMM's own: C is m x n, k is summed over. Adding a set is an entry in `SETS`.
"""

from __future__ import annotations

import csv
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path

from gemmbench import UsageError
from gemmbench.model import units
from gemmbench.model.device import HOST
from gemmbench.model.problem import Leading, leading
from gemmbench.model.row import Row
from gemmbench.model.run_file import Run
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


@dataclass(frozen=True)
class Workload:
    """A set of shapes and where they come from.

    Attributes:
        shapes: the shapes for a batch (images, or sequences, at once) and a length of prompt in tokens.
    """

    idea: str
    source: str
    shapes: Callable[[int, int], tuple[Shape, ...]]


# --- AlexNet: a convolution lowered by im2col is one product for each group of channels --------------------


@dataclass(frozen=True)
class Convolution:
    """One layer: square images, square filters."""

    name: str
    channels: int  # that come in
    filters: int  # channels that go out
    size: int  # edge of a filter
    stride: int
    pad: int
    edge: int  # of the image that comes in
    groups: int  # towers that do not see each other; one product each, all of one shape

    @property
    def out(self) -> int:
        """Edge of the image that goes out."""
        return (self.edge + 2 * self.pad - self.size) // self.stride + 1

    @property
    def pixels(self) -> int:
        """Pixels of the image that goes out."""
        return self.out * self.out

    def shape(self, batch: int) -> Shape:
        """Filters x pixels, summed over the input channels under a filter, of one group."""
        depth = self.channels // self.groups * self.size * self.size
        return Shape(f"alexnet {self.name}", self.filters // self.groups, batch * self.pixels, depth)


# fmt: off
CONVOLUTIONS = (
    #           name     in   out  size stride pad edge groups
    Convolution("conv1",   3,  96, 11,  4,     0,  227, 1),
    Convolution("conv2",  96, 256,  5,  1,     2,   27, 2),
    Convolution("conv3", 256, 384,  3,  1,     1,   13, 1),
    Convolution("conv4", 384, 384,  3,  1,     1,   13, 2),
    Convolution("conv5", 384, 256,  3,  1,     1,   13, 2),
)
DENSE = (
    # name    in    out
    ("fc6", 9216, 4096),  # 256 channels of 6 x 6 pixels
    ("fc7", 4096, 4096),
    ("fc8", 4096, 1000),
)
# fmt: on


def _alexnet(batch: int, _: int) -> tuple[Shape, ...]:
    dense = (Shape(f"alexnet {name}", batch, outputs, inputs) for name, inputs, outputs in DENSE)
    return (*(layer.shape(batch) for layer in CONVOLUTIONS), *dense)


# --- a transformer's decoder: activations (tokens x inputs) times weights (inputs x outputs) --------------

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


# fmt: off
ODD = (
    #     name         m     n     k
    Shape("2^9",      512,  512,  512),  # what the next two are held against
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
        idea="five convolutions lowered by im2col (m = output channels, n = output pixels, "
        "k = input channels x filter) and three dense layers (m = images); conv2, conv4 and conv5 as the two "
        "towers of the original compute them: the shape of one tower, which runs twice",
        source="Krizhevsky, Sutskever and Hinton, ImageNet Classification with Deep Convolutional Neural "
        "Networks, NIPS 2012; images of 227 x 227, with which its 55 x 55 outputs come out",
        shapes=_alexnet,
    ),
    "transformer": Workload(
        idea="the projections of a decoder layer of Mistral 7B for one token and for a prompt (m = tokens), "
        "and the output head",
        source="Jiang et al., Mistral 7B, arXiv:2310.06825, table 1: dim 4096, hidden_dim 14336, 32 heads "
        "and 8 of keys and values, of 128 each, vocab_size 32000",
        shapes=_transformer,
    ),
    "odd": Workload(
        idea="sizes beside powers of two, primes, tall, wide, deep and shallow shapes, vectors",
        source="the edges that tiles leave over; independent of batch and prompt",
        shapes=lambda _batch, _prompt: ODD,
    ),
}


def merged(shapes: Iterable[Shape]) -> tuple[Shape, ...]:
    """Each m, n, k (and layout) once, in the order of their first, with the names of all.

    Such as ``q = k and 2 more``.
    """
    names = by_key((replace(shape, name=""), shape.name) for shape in shapes)
    return tuple(replace(shape, name=_joined(list(dict.fromkeys(known)))) for shape, known in names.items())


def _joined(names: list[str]) -> str:
    if len(names) <= 2:
        return " = ".join(names)
    return f"{names[0]} = {names[1]} and {len(names) - 2} more"


# --- A user's shapes: a CSV file with the columns m, n, k and perhaps a name and a layout -------------------


REQUIRED = ("m", "n", "k")
LEADING = ("lda", "ldb", "ldc")
BATCH = "batch"
TRANSPOSED = ("trans_a", "trans_b")
KNOWN = (*REQUIRED, "name", *LEADING, *TRANSPOSED, BATCH)
_BOOLEANS = dict.fromkeys(("0", "n", "no", "false"), False) | dict.fromkeys(("1", "t", "yes", "true"), True)
LONGEST = 2**31 - 1  # kernels count in 32-bit integers
MOST_PROBLEMS = 65_535  # of a batch: what NVIDIA's GPUs take as the third dimension of a launch
_LONGEST_NAME = 40  # letters


def read_shapes(path: Path, trans_a: bool = False, trans_b: bool = False) -> tuple[Shape, ...]:
    """The shapes of a file, in its order; one without a name is called after its line: ``shapes.csv:2``.

    `trans_a` and `trans_b` say whether A and B are stored transposed where the file does not.

    Raises:
        UsageError: it cannot be read, a column is missing or not known, a length is not a whole number
            from 1 to 2^31 - 1.
    """
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:  # -sig: spreadsheets write a mark before it
            lines = csv.reader(file, strict=True, skipinitialspace=True)
            return tuple(_shapes(path, lines, {"trans_a": trans_a, "trans_b": trans_b}))
    except OSError as error:
        raise UsageError(f"{path}: {reason_of(error)}") from None
    except UnicodeDecodeError:
        raise UsageError(f"{path}: not text in UTF-8, which a CSV file of shapes is") from None


def _shapes(path: Path, reader: Iterator[list[str]], default: Mapping[str, bool]) -> Iterator[Shape]:
    lines = _lines(path, reader)
    first = next(lines, None)
    if first is None:
        raise UsageError(f"{path}: line 1: the file is empty; its first line names the columns: m,n,k")
    columns = _columns(path, *first)
    count = 0
    for number, values in lines:
        if len(values) != len(columns):
            missing = columns[len(values) :]
            what = f"{', '.join(missing)}: missing" if missing else f"{len(values)} values"
            raise UsageError(f"{path}: line {number}: {what}; the header has {len(columns)} columns")
        fields = dict(zip(columns, values, strict=True))
        where = f"{path}: line {number}"
        m, n, k = (_length(f"{where}: {name}", fields[name]) for name in REQUIRED)
        given = {name: fields[name] for name in (*LEADING, *TRANSPOSED, BATCH) if fields.get(name)}
        ld = {name: _length(f"{where}: {name}", given[name]) for name in LEADING if name in given}
        said = {name: _boolean(f"{where}: {name}", given[name]) for name in TRANSPOSED if name in given}
        transposed = {**default, **said}
        try:
            apart = leading(m, n, k, ld.get("lda"), ld.get("ldb"), ld.get("ldc"), **transposed)
        except ValueError as error:
            raise UsageError(f"{where}: {error}") from None
        batch = _length(f"{where}: {BATCH}", given[BATCH]) if BATCH in given else 1
        if batch > MOST_PROBLEMS:
            raise UsageError(f"{where}: {BATCH}: {batch} is above {MOST_PROBLEMS}")
        name = " ".join(fields.get("name", "").split())
        if len(name) > _LONGEST_NAME:
            raise UsageError(f"{where}: name: more than {_LONGEST_NAME} letters")
        yield Shape(name or f"{spelt_out(path.name)}:{number}", m, n, k, apart, **transposed, batch=batch)
        count += 1
    if not count:
        raise UsageError(f"{path}: line {first[0] + 1}: no shape follows the header")


def _lines(path: Path, reader: Iterator[list[str]]) -> Iterator[tuple[int, list[str]]]:
    number = 0
    try:
        for number, values in enumerate(reader, 1):
            stripped = [value.strip() for value in values]
            if any(stripped):
                yield number, stripped
    except csv.Error as error:
        raise UsageError(f"{path}: line {number + 1}: {error}") from None


def _columns(path: Path, number: int, header: list[str]) -> list[str]:
    """The names of the columns, each once.

    Raises:
        UsageError: one is missing, twice there, or not known: a length it might scale would be ignored.
    """
    columns = [name.lower() for name in header]
    missing = [name for name in REQUIRED if name not in columns]
    if missing:
        given = ",".join(header)[:_LONGEST_NAME]
        raise UsageError(f"{path}: line {number}: {', '.join(missing)}: no such column in {given!r}")
    for index, name in enumerate(columns):
        if name not in KNOWN:
            what = f"column {header[index]!r} is not one of {', '.join(KNOWN)}"
            raise UsageError(f"{path}: line {number}: {what}")
        if name in columns[:index]:
            raise UsageError(f"{path}: line {number}: {name}: there are two such columns")
    return columns


def _boolean(where: str, text: str) -> bool:
    try:
        return _BOOLEANS[text.lower()]
    except KeyError:
        raise UsageError(f"{where}: {text[:_LONGEST_NAME]!r} is neither 1 (transposed) nor 0") from None


def _length(where: str, text: str) -> int:
    digits = text.removeprefix("-")
    if not (digits.isascii() and digits.isdecimal()):
        raise UsageError(f"{where}: {text[:_LONGEST_NAME]!r} is not a whole number")
    if text.startswith("-") or not digits.strip("0"):
        raise UsageError(f"{where}: {text[:_LONGEST_NAME]} is not 1 or more")
    if len(digits.lstrip("0")) > len(str(LONGEST)) or int(digits) > LONGEST:
        shown = text if len(text) <= _LONGEST_NAME else f"a number of {len(text)} digits"
        raise UsageError(f"{where}: {shown} is above {LONGEST}, the most a kernel counts to")
    return int(digits)


# --- The net as its rows have it ----------------------------------------------------------------------------


NET = "alexnet"  # its set of shapes


@dataclass(frozen=True)
class Layer:
    """One layer of the net.

    Attributes:
        runs: how often it runs: once for each tower.
        product: the row of the fastest kernel on the device, in the device scope; None if there is none.
    """

    name: str
    runs: int
    is_convolution: bool
    product: Row | None

    @property
    def product_s(self) -> float | None:
        """Seconds of its products, every tower's."""
        rate = rates.median_rate(self.product, "device")
        return self.runs * rates.flops_of(self.product) / rate if self.product and rate else None


@dataclass(frozen=True)
class Net:
    """AlexNet's products on one device, in one data type; lowering (im2col) is excluded."""

    device: int
    dtype: str
    layers: tuple[Layer, ...]

    @property
    def missing(self) -> tuple[str, ...]:
        """The layers without a product that was measured."""
        return tuple(layer.name for layer in self.layers if layer.product_s is None)

    @property
    def convolutions_s(self) -> float:
        """Seconds of the convolutions' products."""
        return sum(layer.product_s or 0.0 for layer in self.layers if layer.is_convolution)

    @property
    def whole_s(self) -> float:
        """Seconds of every layer's products."""
        return sum(layer.product_s or 0.0 for layer in self.layers)

    @property
    def sentence(self) -> str:
        """The share of the convolutions in the time, or why it is not known."""
        if self.missing:
            return f"not summed: no figure of {', '.join(self.missing)}"
        share = units.percent(self.convolutions_s / self.whole_s)
        return f"convolutions take {share} of {units.seconds(self.whole_s)} of GEMM, lowering excluded"


@lru_cache(maxsize=16)
def nets(run: Run) -> tuple[Net, ...]:
    """The net on every device and in every data type whose run has all of its layers."""
    rows = [row for row in run.rows if row.kind == "gemm" and row.problem and row.device != HOST]
    subjects = dict.fromkeys((row.device, row.dtype) for row in rows)
    made = []
    for device, dtype in subjects:
        own_rows = [row for row in rows if (row.device, row.dtype) == (device, dtype)]
        layers = [
            *(_layer(own_rows, layer.name, layer.groups, True) for layer in CONVOLUTIONS),
            *(_layer(own_rows, name, 1, False) for name, _, _ in DENSE),
        ]
        known = [layer for layer in layers if layer]
        if len(known) == len(layers):
            made.append(Net(device, dtype, tuple(known)))
    return tuple(made)


def _layer(rows: Iterable[Row], name: str, runs: int, is_convolution: bool) -> Layer | None:
    """A layer with the fastest of its rows; None if nobody asked for it."""
    products = [row for row in rows if f"{NET} {name}" in row.label.split(" = ")]
    if not products:
        return None
    rated = [(rate, row) for row in products if (rate := rates.median_rate(row, "device"))]
    best = max(rated, key=lambda pair: pair[0], default=(0.0, None))[1]
    return Layer(name, runs, is_convolution, best)


def derived(run: Run, row: Row) -> dict[str, float]:
    """What a row adds to the net: seconds, and its share of the time; nothing where it does not count."""
    return _parts(run).get(id(row), {})


@lru_cache(maxsize=16)
def _parts(run: Run) -> dict[int, dict[str, float]]:
    """What each row that counts adds to its net, by the row's identity: the run keeps it."""
    parts: dict[int, dict[str, float]] = {}
    for net in nets(run):
        for layer in net.layers if not net.missing else ():
            if layer.product and layer.product_s:
                share = layer.product_s / net.whole_s
                parts.setdefault(id(layer.product), {"net_s": layer.product_s, "net_share": share})
    return parts
