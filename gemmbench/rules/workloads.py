"""Real shapes with their sources, and the odd ones that regressions hide in: pure data.

``m n k`` are GEMM's own: C is m x n, k is summed over. Adding a set is an entry in `SETS`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

PROMPT = 512  # tokens; long enough for whole tiles, short enough for a CPU


@dataclass(frozen=True)
class Shape:
    """One problem of a set."""

    name: str
    m: int
    n: int
    k: int


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
    def pixels(self) -> int:
        """Pixels of the image that goes out."""
        edge = (self.edge + 2 * self.pad - self.size) // self.stride + 1
        return edge * edge

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
    """Each m, n, k once, in the order of their first, with the names of all: ``q = k and 2 more``."""
    names: dict[tuple[int, int, int], list[str]] = {}
    for shape in shapes:
        names.setdefault((shape.m, shape.n, shape.k), []).append(shape.name)
    return tuple(Shape(_joined(list(dict.fromkeys(known))), *lengths) for lengths, known in names.items())


def _joined(names: list[str]) -> str:
    if len(names) <= 2:
        return " = ".join(names)
    return f"{names[0]} = {names[1]} and {len(names) - 2} more"
