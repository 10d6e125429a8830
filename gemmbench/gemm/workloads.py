"""Real shapes with their sources, and the odd ones that regressions hide in: pure data.

``m n k`` are GEMM's own: C is m x n, k is summed over. Adding a set is an entry in `SETS`.
"""

from __future__ import annotations

import csv
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from gemmbench import UsageError
from gemmbench.model.problem import Leading, leading
from gemmbench.model.units import by_key, reason_of, spelt_out

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
    whole = (
        Shape(f"prompt {name}", batch * prompt, outputs, inputs) for name, inputs, outputs in PROJECTIONS
    )
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
_BOOLEANS = {
    "0": False,
    "n": False,
    "no": False,
    "false": False,
    "1": True,
    "t": True,
    "yes": True,
    "true": True,
}
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
        m, n, k = (_length(f"{path}: line {number}: {name}", fields[name]) for name in REQUIRED)
        given = {each: fields[each] for each in LEADING if fields.get(each)}
        ld = {each: _length(f"{path}: line {number}: {each}", text) for each, text in given.items()}
        transposed = {
            each: _boolean(f"{path}: line {number}: {each}", fields[each])
            if fields.get(each)
            else default[each]
            for each in TRANSPOSED
        }
        try:
            apart = leading(m, n, k, ld.get("lda"), ld.get("ldb"), ld.get("ldc"), **transposed)
        except ValueError as error:
            raise UsageError(f"{path}: line {number}: {error}") from None
        batch = 1
        if fields.get(BATCH):
            batch = _length(f"{path}: line {number}: {BATCH}", fields[BATCH])
            if batch > MOST_PROBLEMS:
                raise UsageError(f"{path}: line {number}: {BATCH}: {batch} is above {MOST_PROBLEMS}")
        name = " ".join(fields.get("name", "").split())
        if len(name) > _LONGEST_NAME:
            raise UsageError(f"{path}: line {number}: name: more than {_LONGEST_NAME} letters")
        yield Shape(name or f"{spelt_out(path.name)}:{number}", m, n, k, apart, **transposed, batch=batch)
        count += 1
    if not count:
        raise UsageError(f"{path}: line {first[0] + 1}: no shape follows the header")


def _lines(path: Path, reader: Iterator[list[str]]) -> Iterator[tuple[int, list[str]]]:
    """Line numbers and stripped values of the lines that are not blank."""
    number = 0
    while True:
        number += 1
        try:
            values = next(reader)
        except StopIteration:
            return
        except csv.Error as error:
            raise UsageError(f"{path}: line {number}: {error}") from None
        stripped = [value.strip() for value in values]
        if any(stripped):
            yield number, stripped


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
            raise UsageError(
                f"{path}: line {number}: column {header[index]!r} is not one of {', '.join(KNOWN)}"
            )
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
