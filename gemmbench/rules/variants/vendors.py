"""What the makers of mobile GPUs published: ARM's sample, Qualcomm's articles."""

from __future__ import annotations

from dataclasses import replace

from gemmbench.facts.problem import Gemm
from gemmbench.facts.records import DeviceFacts
from gemmbench.rules.variants.model import PIXEL, Image, Pass, Values, Variant, round_up
from gemmbench.rules.variants.pieces import group_of, group_shape, multiply

MALI = Variant(
    name="mali-sgemm",
    family="vendor samples",
    idea="four steps along k by vectors: A's row loaded, B's column gathered; B is not transposed",
    source="ARM, Mali OpenCL SDK 1.1, SGEMM sample",
    passes=(multiply("15_mali_sgemm.cl", "mali_sgemm", lambda v: (v["n"], v["m"]), group_of),),
    parameters=group_shape("columns of C", "rows of C", (4, 8, 16, 32), (1, 2, 4, 8, 16)),
    presets={"default": {"WX": 16, "WY": 8}},
)

_FEW_ROWS = 8  # fewer rows than a micro-tile has: another kernel
_ROWS = 8
_GROUP = 128  # work-items that the article's groups aim at
_MOST_ACROSS = 64


def _article_shape(problem: Gemm, device: DeviceFacts, _: Values) -> dict[str, int]:
    """The article's rules for a work-group: few part-filled groups, and heuristics by size.

    Among the powers of two for either side: first the shape that starts the fewest work-items past the edges
    of C, then one that gives every compute unit a group, then the one closest to 128 work-items, then the
    squarest micro-tile area, which reads least of A and B.
    """
    across = -(-problem.n // PIXEL)
    rows = 1 if problem.m < _FEW_ROWS else _ROWS
    down = -(-problem.m // rows)
    most = min(device.max_work_group_size, _GROUP)
    sides = [1 << bit for bit in range(8)]

    def cost(shape: tuple[int, int]) -> tuple[float, ...]:
        x, y = shape
        started = round_up(max(across, 1), x) * round_up(max(down, 1), y)
        groups = started // (x * y)
        return (started, groups < device.compute_units, -x * y, abs(x * PIXEL - y * rows))

    limits = (*device.max_work_item_sizes, most, most)
    shapes = [
        (x, y)
        for x in sides
        for y in sides
        if x * y <= most and x <= min(limits[0], _MOST_ACROSS) and y <= limits[1]
    ]
    best = min(shapes, key=cost)
    return {"WX": best[0], "WY": best[1]}


def _image_multiply(kernel: str, rows: int) -> Pass:
    step = multiply(
        "16_image.cl",
        kernel,
        lambda v: (-(-v["n"] // PIXEL), -(-v["m"] // rows)),
        group_of,
        ("m", "n", "k", "alpha", "A", "lda", "BI", "beta", "C", "ldc"),
    )
    few = rows < _ROWS
    return replace(step, when=lambda v: (v["m"] < _FEW_ROWS) == few)


IMAGE = Variant(
    name="image-4x8",
    family="vendor samples",
    idea="B as an image through the texture cache, A and C as buffers; 4 columns by 8 rows per work-item",
    source="Qualcomm, Matrix Multiply on Adreno GPUs, parts 1 and 2",
    passes=(
        Pass(
            "image",
            "gemm/16_image.cl",
            "fill_image",
            ("k", "n", "B", "ldb", "BI"),
            lambda v: (-(-v["n"] // PIXEL), v["k"]),
            lambda _: (16, 8),
        ),
        _image_multiply("image_4x8", _ROWS),
        _image_multiply("image_4x1", 1),
    ),
    parameters=group_shape("pixels of C", "micro-tiles of C", (4, 8, 16, 32), (1, 2, 4, 8, 16)),
    choose=_article_shape,
    images={"BI": Image("B", "k", "n")},
    flags=("-cl-fast-relaxed-math",),
    dtypes=("float", "half"),
)

VARIANTS = (MALI, IMAGE)
