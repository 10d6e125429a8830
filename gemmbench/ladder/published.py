"""The first steps: the ten kernels of Nugteren's tutorial, in row-major terms."""

from __future__ import annotations

from dataclasses import replace

from gemmbench.ladder.variant import (
    AT,
    AT_EXTENTS,
    BT,
    BT_EXTENTS,
    COLUMNS,
    FAST_MATH,
    OURS,
    PADDED,
    PIXEL,
    ROWS,
    TRANSPOSE_A,
    TRANSPOSE_B,
    WITH_AT,
    WITH_BT,
    Compilation,
    Constraint,
    Image,
    Launches,
    Named,
    Needs,
    Parameter,
    Parameters,
    Pass,
    Values,
    Variant,
    group_of,
    group_shape,
    mobile,
    multiple,
    multiply,
    pad,
    round_up,
    switch,
    tile_edge,
    tile_group,
    tile_items,
    tile_members,
    tile_parameters,
    transpose,
    transpose_padded,
)
from gemmbench.model.device import DeviceFacts
from gemmbench.model.dtypes import DTYPES, FP8_DTYPES
from gemmbench.model.problem import Gemm
from gemmbench.model.units import ceil_div

FAMILY = "first steps"
_SOURCE = "C. Nugteren, Tutorial: OpenCL SGEMM tuning for Kepler, kernel {}"

_SHUFFLES = "cl_khr_subgroup_shuffle|cl_intel_subgroups", "cl_intel_required_subgroup_size"

# A transposed and padded (kp x mp), B padded (kp x np): vectors need no edges.
_PAD_BOTH = (
    transpose_padded("m", "k", "A", "lda", "kp", "mp", "AP", "mp"),
    pad("k", "n", "B", "ldb", "kp", "np", "BP"),
)
_BOTH_PADDED = {"AP": lambda v: v["mp"] * v["kp"], "BP": lambda v: v["kp"] * v["np"]}
_WITH_BOTH = ("m", "n", "alpha", "mp", "np", "kp", "AP", "BP", "beta", "C", "ldc")

_VECTORS = tuple(multiple(name, "WIDTH", ", to be whole vectors") for name in ("TM", "TN"))

_WHOLE_LOADS = Constraint(
    lambda p: all(p["BK"] * p[side] // p["WIDTH"] % tile_members(p) == 0 for side in ("BM", "BN")),
    "the vectors of a tile must be a multiple of the work-items in a group, so that each loads as many",
)

NAIVE = Variant(
    name="naive",
    family=FAMILY,
    idea="one work-item per element of C",
    source=_SOURCE.format(1),
    launches=Launches(passes=(multiply("01_naive.cl", "naive", lambda v: (v["n"], v["m"]), group_of),)),
    parameters=Parameters(
        group_shape("columns of C", "rows of C", (8, 16, 32), (1, 2, 4, 8, 16)),
        presets={"default": {"WX": 16, "WY": 16}, "gpu": {"WX": 32, "WY": 8}, **mobile(WX=8, WY=8)},
    ),
)

TILED = Variant(
    name="tiled",
    family=FAMILY,
    idea="square tiles of A and B in local memory",
    source=_SOURCE.format(2),
    launches=Launches(
        passes=(multiply("02_tiled.cl", "tiled", lambda v: (v["n"], v["m"]), lambda v: (v["TS"], v["TS"])),),
        either=("A", "B"),
        edge=lambda p: p["TS"],
    ),
    parameters=Parameters(
        {"TS": Parameter("edge of the square tiles", (8, 16, 32))},
        presets={"default": {"TS": 16}, "cpu-intel": {"TS": 32}, "gpu-nvidia": {"TS": 32}, **mobile(TS=8)},
    ),
    needs=Needs(local_elements=lambda p: 2 * p["TS"] * p["TS"]),
)

COARSE = replace(
    TILED,
    name="coarse",
    idea="several elements of C per work-item",
    source=_SOURCE.format(3),
    launches=replace(
        TILED.launches,
        passes=(
            multiply(
                "03_coarse.cl",
                "coarse",
                lambda v: (round_up(v["n"], v["TS"]), round_up(v["m"], v["TS"]) // v["WPT"]),
                lambda v: (v["TS"], v["TS"] // v["WPT"]),
            ),
        ),
    ),
    parameters=Parameters(
        {
            "TS": Parameter("edge of the square tiles", (16, 32, 64)),
            "WPT": Parameter("elements of C of a work-item", (2, 4, 8, 16)),
        },
        presets={
            "default": {"TS": 32, "WPT": 8},
            "cpu-intel": {"TS": 64, "WPT": 16},
            "gpu-nvidia": {"TS": 64, "WPT": 16},
            "gpu-nvidia:double": {"TS": 32},
        },
        constraints=(multiple("TS", "WPT"),),
    ),
)

WIDE = replace(
    TILED,
    name="wide",
    idea="vector loads and vector arithmetic",
    source=_SOURCE.format(4),
    launches=Launches(
        passes=(
            multiply(
                "04_wide.cl",
                "wide",
                lambda v: (round_up(v["n"], v["TS"]) // v["WIDTH"], round_up(v["m"], v["TS"])),
                lambda v: (v["TS"] // v["WIDTH"], v["TS"]),
            ),
        ),
        edge=TILED.launches.edge,
    ),
    parameters=Parameters(
        {
            "TS": Parameter("edge of the square tiles", (16, 32, 64)),
            "WIDTH": Parameter("columns of C of a work-item, a vector", (2, 4, 8, 16)),
        },
        presets={
            "default": {"TS": 32, "WIDTH": 4},
            "cpu": {"TS": 64, "WIDTH": 16},
            "gpu-nvidia": {"TS": 64, "WIDTH": 4},
            "gpu-nvidia:double": {"TS": 16, "WIDTH": 2},
            **mobile(TS=16, WIDTH=4),
        },
        constraints=(multiple("TS", "WIDTH"),),
    ),
)

RECT = Variant(
    name="rect",
    family=FAMILY,
    idea="A transposed, rectangular tiles",
    source=_SOURCE.format(5),
    launches=Launches(
        passes=(
            TRANSPOSE_A,
            multiply(
                "05_rect.cl",
                "rect",
                lambda v: (round_up(v["n"], v["BN"]), round_up(v["m"], v["BM"]) // v["TM"]),
                lambda v: (v["BN"], v["BM"] // v["TM"]),
                WITH_AT,
            ),
        ),
        extents=AT_EXTENTS,
        temporaries=AT,
        either=("B",),
        edge=tile_edge,
    ),
    parameters=Parameters(
        {
            "BM": Parameter("rows of C in a work-group's tile", (32, 64, 128)),
            "BN": Parameter("columns of C in a work-group's tile", (32, 64, 128)),
            "BK": Parameter("depth of the tiles of A and B", (8, 16, 32)),
            "TM": Parameter("elements of C of a work-item", (4, 8, 16, 32)),
        },
        presets={
            "default": {"BM": 64, "BN": 64, "BK": 16, "TM": 16},
            "cpu-intel": {"BM": 32, "BN": 128, "BK": 32},
            "gpu-nvidia": {"BM": 128, "BK": 32, "TM": 32},
            "gpu-nvidia:double": {"BM": 32, "TM": 16},
            **mobile(BM=32, BN=32, BK=8, TM=8),
        },
        constraints=(ROWS,),
    ),
    needs=Needs(local_elements=lambda p: p["BK"] * (p["BM"] + p["BN"])),
)

REGISTER = replace(
    RECT,
    name="register",
    idea="two-dimensional register blocking",
    source=_SOURCE.format(6),
    launches=replace(
        RECT.launches,
        passes=(TRANSPOSE_A, multiply("06_register.cl", "register_blocked", tile_items, tile_group, WITH_AT)),
    ),
    parameters=Parameters(
        tile_parameters(),
        presets={
            "default": {"BM": 64, "BN": 64, "BK": 16, "TM": 8, "TN": 8},
            "cpu-intel": {"BM": 128, "BN": 128, "BK": 16, "TM": 4, "TN": 4},
            "gpu": {"BM": 128, "BN": 128, "BK": 16, "TM": 8, "TN": 8},
            "gpu-nvidia": {"BK": 32},
            "gpu-nvidia:double": {"BM": 64, "BK": 16, "TN": 4},
            **mobile(BM=32, BN=32, BK=8, TM=4, TN=4),
        },
        constraints=(ROWS, COLUMNS),
    ),
)

REGISTER_WIDE = Variant(
    name="register-wide",
    family=FAMILY,
    idea="register blocking with vector loads",
    source=_SOURCE.format(7),
    launches=Launches(
        passes=(
            *_PAD_BOTH,
            multiply("07_register_wide.cl", "register_wide", tile_items, tile_group, _WITH_BOTH),
        ),
        extents=PADDED,
        temporaries=_BOTH_PADDED,
        edge=tile_edge,
    ),
    parameters=Parameters(
        {
            **tile_parameters((64, 128), (4, 8, 16)),
            "WIDTH": Parameter("elements of a vector", (2, 4, 8, 16)),
            "PAD": Parameter("vectors that local rows are longer than the tile", (0, 1), least=0),
        },
        presets={
            "default": {"BM": 64, "BN": 64, "BK": 16, "TM": 8, "TN": 8, "WIDTH": 4, "PAD": 0},
            "cpu": {"BK": 32, "TN": 16, "WIDTH": 8},
            "cpu-intel": {"BM": 128, "BN": 128, "BK": 16, "TM": 16, "WIDTH": 16},
            "gpu:double": {"BN": 128, "TM": 4, "WIDTH": 2},
            **mobile(BM=32, BN=32, BK=8, TM=4, TN=4, WIDTH=4),
        },
        constraints=(ROWS, COLUMNS, *_VECTORS),
    ),
    needs=Needs(local_elements=lambda p: p["BK"] * (p["BM"] + p["BN"] + 2 * p["PAD"] * p["WIDTH"])),
)

SUBGROUP = Variant(
    name="subgroup",
    family=FAMILY,
    idea="sub-group shuffles, no local memory",
    source=_SOURCE.format(8),
    launches=Launches(
        passes=(
            pad("m", "k", "A", "lda", "mp", "kp", "AP"),
            pad("k", "n", "B", "ldb", "kp", "np", "BP"),
            multiply(
                "08_subgroup.cl",
                "subgroup",
                lambda v: (v["np"] // v["TN"], v["mp"] // v["TM"]),
                lambda v: (v["LANES"], v["GY"]),
                ("m", "n", "alpha", "np", "kp", "AP", "BP", "beta", "C", "ldc"),
            ),
        ),
        extents={
            "mp": lambda v: round_up(v["m"], v["GY"] * v["TM"]),
            "np": lambda v: round_up(v["n"], v["LANES"] * v["TN"]),
            "kp": lambda v: round_up(v["k"], v["LANES"] if v["EXCHANGE"] == 1 else v["WIDTH"]),
        },
        temporaries={"AP": lambda v: v["mp"] * v["kp"], "BP": lambda v: v["kp"] * v["np"]},
        edge=lambda p: max(p["LANES"] * p["TN"], p["GY"] * p["TM"]),
    ),
    parameters=Parameters(
        {
            "LANES": Parameter("work-items in a row of the group: a sub-group", (8, 16, 32)),
            "GY": Parameter("rows of work-items in a group", (1, 2, 4, 8)),
            "TM": Parameter("rows of C of a work-item", (4, 8, 16)),
            "TN": Parameter("columns of C of a work-item", (4, 8)),
            "WIDTH": Parameter("elements of a vector", (2, 4, 8)),
            "EXCHANGE": Parameter("1: A's values by shuffle; 2: by the read-only path", (1, 2)),
        },
        presets={
            "default": {"LANES": 16, "GY": 4, "TM": 8, "TN": 4, "WIDTH": 4, "EXCHANGE": 2},
            "cpu": {"LANES": 8, "TM": 16, "TN": 8, "WIDTH": 8},
            "cpu-intel": {"TM": 8, "WIDTH": 4},
            "gpu": {"LANES": 32, "GY": 8, "TM": 16},
            "gpu:double": {"LANES": 8, "GY": 4, "TM": 8, "TN": 8},
            "gpu-intel": {"LANES": 16, "EXCHANGE": 1},
            **mobile(LANES=8, GY=8, TM=4, TN=4, WIDTH=4),
        },
        constraints=(
            _VECTORS[1],
            Constraint(lambda p: p["EXCHANGE"] <= 2, "EXCHANGE is 1 (shuffle) or 2 (read-only path)"),
        ),
    ),
    needs=Needs(
        extensions=lambda p: _SHUFFLES if p["EXCHANGE"] == 1 else (),
        sub_group=lambda p: p["LANES"] if p["EXCHANGE"] == 1 else 0,
    ),
)

PREFETCH = replace(
    REGISTER_WIDE,
    name="prefetch",
    idea="double-buffered local memory",
    source=_SOURCE.format(9),
    launches=replace(
        REGISTER_WIDE.launches,
        passes=(*_PAD_BOTH, multiply("09_prefetch.cl", "prefetched", tile_items, tile_group, _WITH_BOTH)),
    ),
    parameters=replace(
        REGISTER_WIDE.parameters,
        presets={
            "default": {"BM": 64, "BN": 64, "BK": 16, "TM": 8, "TN": 8, "WIDTH": 4, "PAD": 0},
            "cpu": {"TN": 16, "WIDTH": 8},
            "gpu": {"BM": 128, "BN": 128, "BK": 8},
            "gpu:double": {"BM": 64, "BK": 8, "WIDTH": 2},
            "gpu-nvidia:double": {"BK": 16},
            **mobile(BM=32, BN=32, BK=8, TM=4, TN=4, WIDTH=4),
        },
        constraints=(ROWS, COLUMNS, *_VECTORS, _WHOLE_LOADS),
    ),
    needs=Needs(local_elements=lambda p: 2 * p["BK"] * (p["BM"] + p["BN"] + 2 * p["PAD"] * p["WIDTH"])),
)

PADDED_TILES = Variant(
    name="padded",
    family=FAMILY,
    idea="pad, multiply whole tiles, unpad",
    source=_SOURCE.format(10),
    launches=Launches(
        passes=(
            pad("m", "k", "A", "lda", "mp", "kp", "AP"),
            replace(transpose("k", "n", "B", "ldb", "BT", "ldbt"), when=lambda v: not v["FUSED"]),
            replace(pad("n", "k", "BT", "ldbt", "np", "kp", "BP"), when=lambda v: not v["FUSED"]),
            replace(
                transpose_padded("k", "n", "B", "ldb", "np", "kp", "BP", "kp"),
                when=lambda v: bool(v["FUSED"]),
            ),
            multiply(
                "10_padded.cl",
                "padded",
                lambda v: (v["np"] // v["TN"], v["mp"] // v["TM"]),
                tile_group,
                ("np", "kp", "AP", "BP", "CP"),
            ),
            Pass(
                "unpad",
                "gemm/10_padded.cl",
                "unpad",
                ("m", "n", "alpha", "CP", "np", "beta", "C", "ldc"),
                lambda v: (v["n"], v["m"]),
                lambda _: (16, 16),
                any_group=True,
            ),
        ),
        extents={**PADDED, "ldbt": lambda v: v["k"]},
        temporaries={
            "AP": lambda v: v["mp"] * v["kp"],
            "BT": lambda v: 0 if v["FUSED"] else v["n"] * v["k"],
            "BP": lambda v: v["np"] * v["kp"],
            "CP": lambda v: v["mp"] * v["np"],
        },
        edge=tile_edge,
    ),
    parameters=Parameters(
        {
            **tile_parameters((64, 80, 128, 160), (4, 8, 10)),
            "WIDTH": Parameter("elements of a vector: of every load and of the stores of C", (1, 2, 4)),
            "PAD": Parameter("vectors that local rows are longer than the tile", (1, 2, 4)),
            "FUSED": switch("1: B is transposed and padded in one launch; 0: in two", launch=True),
        },
        presets={
            "default": {"BM": 64, "BN": 64, "BK": 16, "TM": 8, "TN": 8, "WIDTH": 1, "PAD": 1, "FUSED": 0},
            "cpu-intel": {"BM": 128, "BN": 128, "BK": 16, "TM": 4, "TN": 4},
            "gpu": {"BM": 128, "BN": 128, "BK": 16, "TM": 8, "TN": 8},
            "gpu-nvidia": {"BK": 32},
            "gpu-nvidia:double": {"BN": 64, "BK": 16},
            **mobile(BM=32, BN=32, BK=8, TM=4, TN=4),
        },
        named={
            "160x160": Named(
                "the tutorial's fastest, 160 x 160 tiles, 10 x 10 sums, loads of two",
                {"BM": 160, "BN": 160, "BK": 16, "TM": 10, "TN": 10, "WIDTH": 2, "PAD": 1},
            ),
            "fused": Named("B transposed and padded in one launch", {"FUSED": 1}),
        },
        constraints=(
            ROWS,
            COLUMNS,
            *_VECTORS,
            multiple("BK", "WIDTH", ", so that loads are whole vectors"),
            Constraint(
                lambda p: p["FUSED"] <= 1, "FUSED is 0 (transpose, then pad) or 1 (both in one launch)"
            ),
        ),
    ),
    needs=Needs(local_elements=lambda p: p["BK"] * (p["BM"] + p["BN"] + 2 * p["PAD"] * p["WIDTH"])),
)

VARIANTS = tuple(
    replace(variant, launches=replace(variant.launches, batches=True))
    for variant in (
        NAIVE, TILED, COARSE, WIDE, RECT, REGISTER, REGISTER_WIDE, SUBGROUP, PREFETCH, PADDED_TILES,
    )
)  # fmt: skip


_ANDROID = "Profiling GEMM on Android (Mali-T760); Gronqvist and Lokhotmov, GPU Pro 5"


def _dot_products(name: str, idea: str, file: str, kernel: str, block: int = 1) -> Variant:
    """A variant of dot products, its vector width from ``-vN`` in the name; a first launch transposes B.

    A work-item makes block x block of C. The preset for every device is groups of 8 x 8.
    """
    width = int(name.rpartition("-v")[2])
    across, down = ("columns of C", "rows of C") if block == 1 else ("blocks of C", "blocks of C")
    return Variant(
        name=name,
        family="mobile",
        idea=idea.format(width),
        source=_ANDROID,
        launches=Launches(
            passes=(
                TRANSPOSE_B,
                multiply(
                    file,
                    kernel,
                    lambda v: (ceil_div(v["n"], block), ceil_div(v["m"], block)),
                    group_of,
                    WITH_BT,
                ),
            ),
            batches=True,
            extents=BT_EXTENTS,
            temporaries=BT,
            edge=lambda p: max(p["WIDTH"], block * p["WX"], block * p["WY"]),
        ),
        parameters=Parameters(
            {
                "WIDTH": Parameter("elements of a vector", (width,)),
                **group_shape(across, down, (4, 8, 16), (1, 4, 8, 16)),
            },
            presets={"default": {"WIDTH": width, "WX": 8, "WY": 8}},
            constraints=(Constraint(lambda p: p["WIDTH"] == width, f"WIDTH is {width} in {name}"),),
        ),
    )


def _along_rows(variant: Variant) -> Variant:
    """The variant with the parameter POINTERS, 1 in every preset and 0 in the configuration ``indexed``."""
    how = switch("1: pointers advance along the rows; 0: every load is indexed")
    return replace(
        variant,
        parameters=replace(
            variant.parameters,
            declared={**variant.parameters, "POINTERS": how},
            presets={kind: {**values, "POINTERS": 1} for kind, values in variant.parameters.presets.items()},
            named={"indexed": Named("pointers stay, every load is indexed", {"POINTERS": 0})},
            constraints=(
                *variant.parameters.constraints,
                Constraint(
                    lambda p: p["POINTERS"] <= 1, "POINTERS is 1 (they advance) or 0 (loads are indexed)"
                ),
            ),
        ),
    )


MOBILE_VARIANTS = (
    *(
        _along_rows(_dot_products(f"{name}-v{width}", idea, file, kernel))
        for name, widths, idea, file, kernel in (
            ("dot", (4, 8, 16), "dot products of rows, width {}", "11_dot.cl", "dot_rows"),
            ("dotf", (8, 16), "the same with built-in dot(), width {}", "12_dotf.cl", "dotf_rows"),
        )
        for width in widths
    ),
    *(
        _dot_products(
            f"block{n}x{n}-v{width}", f"{n} x {n} elements of C, width {{}}", file, f"block{n}x{n}", n
        )
        for n, file in ((2, "13_block2x2.cl"), (4, "14_block4x4.cl"))
        for width in (4, 8)
    ),
)


MALI = Variant(
    name="mali-sgemm",
    family="vendor samples",
    idea="four steps along k, B not transposed",
    source="ARM, Mali OpenCL SDK 1.1, SGEMM sample",
    launches=Launches(
        passes=(multiply("15_mali_sgemm.cl", "mali_sgemm", lambda v: (v["n"], v["m"]), group_of),),
        batches=True,
    ),
    parameters=Parameters(
        group_shape("columns of C", "rows of C", (4, 8, 16, 32), (1, 2, 4, 8, 16)),
        presets={"default": {"WX": 16, "WY": 8}, "cpu-intel": {"WX": 16, "WY": 16}},
    ),
)

_ROWS = 8  # of a micro-tile; another kernel is for fewer
_GROUP = 128  # work-items that the article's groups aim at
_MOST_ACROSS = 64


def _article_shape(problem: Gemm, device: DeviceFacts, _: Values) -> dict[str, int]:
    """WX and WY: work-items across and down a group of 128 at most, powers of two, by an article's rules.

    The group is at most 64 across, and within the device's limits. The first rule is fewest work-items past
    C. Then follow a group for every compute unit, most work-items and the squarest area. A work-item has 4
    columns and 8 rows of C; with m below 8, one row.
    """
    across = ceil_div(problem.n, PIXEL)
    rows = 1 if problem.m < _ROWS else _ROWS
    down = ceil_div(problem.m, rows)
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
    wide, tall = min(shapes, key=cost)
    return {"WX": wide, "WY": tall}


def _four_wide(file: str, kernel: str, rows: int, b: tuple[str, ...]) -> Pass:
    """The multiplication with 4 columns and `rows` rows of C for each work-item. `b` is the arguments for B.

    With fewer than 8 rows it is launched only if m is below 8, otherwise only if m is 8 or more.
    """
    step = multiply(
        file,
        kernel,
        lambda v: (ceil_div(v["n"], PIXEL), ceil_div(v["m"], rows)),
        group_of,
        ("m", "n", "k", "alpha", "A", "lda", *b, "beta", "C", "ldc"),
    )
    return replace(step, when=lambda v: (v["m"] < _ROWS) == (rows < _ROWS))


IMAGE = Variant(
    name="image-4x8",
    family="vendor samples",
    idea="B read through the texture cache",
    source="Qualcomm, Matrix Multiply on Adreno GPUs, parts 1 and 2",
    launches=Launches(
        passes=(
            Pass(
                "image",
                "gemm/16_image.cl",
                "fill_image",
                ("k", "n", "B", "ldb", "BI"),
                lambda v: (ceil_div(v["n"], PIXEL), v["k"]),
                lambda _: (16, 8),
                any_group=True,
            ),
            _four_wide("16_image.cl", "image_4x8", _ROWS, ("BI",)),
            _four_wide("16_image.cl", "image_4x1", 1, ("BI",)),
        ),
        images={"BI": Image("B", "k", "n")},
    ),
    parameters=Parameters(
        group_shape("pixels of C", "micro-tiles of C", (4, 8, 16, 32), (1, 2, 4, 8, 16)),
        choose=_article_shape,
    ),
    needs=Needs(dtypes=("float", "half")),
    compilation=Compilation(flags=(FAST_MATH,)),
)


def _whole_pixels(v: Values) -> bool:
    """Whether rows of B start where a vector of PIXEL elements can be loaded."""
    return v["ldb"] % PIXEL == 0


def _buffer_multiply(kernel: str, rows: int, padded: bool) -> Pass:
    step = _four_wide("16_buffer.cl", kernel, rows, ("BP", "nw") if padded else ("B", "ldb"))
    return replace(step, when=lambda v: step.when(v) and _whole_pixels(v) != padded)


BUFFER = replace(
    IMAGE,
    name="buffer-4x8",
    idea="image-4x8 with B in a buffer",
    source="gemmbench, to isolate the image of Qualcomm's Matrix Multiply on Adreno GPUs",
    launches=replace(
        IMAGE.launches,
        passes=(
            replace(pad("k", "n", "B", "ldb", "k", "nw", "BP"), when=lambda v: not _whole_pixels(v)),
            *(
                _buffer_multiply(kernel, rows, padded)
                for kernel, rows in (("buffer_4x8", _ROWS), ("buffer_4x1", 1))
                for padded in (False, True)
            ),
        ),
        images={},
        batches=True,
        extents={"nw": lambda v: round_up(v["n"], PIXEL)},
        temporaries={"BP": lambda v: 0 if _whole_pixels(v) else v["k"] * v["nw"]},
    ),
)

VENDOR_VARIANTS = (MALI, IMAGE, BUFFER)


def _fp8_options(dtype: str) -> tuple[str, ...]:
    """The -D options of a type such as ``e4m3-half``: the format of A and B, and the type of C."""
    stored, _, result = dtype.partition("-")
    return "-DREAL_uchar", f"-DFP8_{stored}", f"-DRESULT_{result or 'float'}"


NAIVE_FP8 = replace(
    NAIVE,
    name="naive-fp8",
    family=OURS,
    idea="naive for fp8, with a lookup table",
    source="gemmbench; the formats as OCP's 8-bit floating point specification defines them",
    launches=replace(
        NAIVE.launches,
        passes=(multiply("23_naive_fp8.cl", "naive_fp8", lambda v: (v["n"], v["m"]), group_of),),
        batches=True,
    ),
    needs=Needs(
        lacks=lambda *_: "",  # bytes and floats are all that it takes
        dtypes=FP8_DTYPES,
        sums={name: "float" for name in FP8_DTYPES if DTYPES[name].result != "float"},
    ),
    compilation=Compilation(_fp8_options),
)
