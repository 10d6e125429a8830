"""small and thin: which form a problem gets, what is read by elements, and which steps a part has."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from gemmbench.ladder import BY_NAME, few
from gemmbench.ladder.variant import Layout, Values, laid_out
from gemmbench.model import kernel_files
from gemmbench.model.case import Skip
from gemmbench.model.device import DeviceFacts
from gemmbench.model.problem import Gemm
from gemmbench.plan import gemm_plan
from tests.unit.test_gpu_variants import GPU as DEVICE

SMALL, THIN = BY_NAME["small"], BY_NAME["thin"]
GPU = replace(DEVICE, extensions=("cl_nv_device_attribute_query",))
OLD = replace(GPU, compute_capability=(7, 5))


def values(
    name: str, problem: Gemm, given: Values | None = None, layout: Layout | None = None
) -> dict[str, int]:
    entry = BY_NAME[name]
    preset = entry.preset("gpu-nvidia", given, problem.dtype)
    return entry.values(problem, {**preset, **entry.chosen(problem, GPU, preset)}, layout)


def tiles(known: Values) -> int:
    return -(-known["m"] // known["BM"]) * -(-known["n"] // known["BN"])


@pytest.mark.parametrize("dtype", ["float", "double", "half"])
@pytest.mark.parametrize("size", [1, 64, 128, 256, 384, 512, 1000, 1024])
def test_nearly_every_unit_has_a_tile_or_tiles_are_the_smallest(dtype: str, size: int) -> None:
    forms = few._FORMS[dtype]
    known = values("small", Gemm(size, size, size, dtype))
    smallest = all(known[name] == forms[-1][name] for name in ("BM", "BN"))
    assert tiles(known) >= 0.9 * GPU.compute_units or smallest
    larger = [form for form in forms if form["BM"] * form["BN"] > known["BM"] * known["BN"]]
    assert all(tiles({**known, **form}) < 0.9 * GPU.compute_units for form in larger)


@pytest.mark.parametrize(
    ("dtype", "form"), [(name, form) for name, forms in few._FORMS.items() for form in forms]
)
def test_forms_keep_the_rules_and_fit_a_group(dtype: str, form: Values) -> None:
    copies = int(dtype != "half" and not form["DIRECT"])
    full = {**SMALL.preset("gpu-nvidia", dtype=dtype), **form, "ASYNC": copies}
    assert SMALL.broken(full, dtype) == ""
    assert few._small_items(full) <= 1024
    assert SMALL.local_bytes(dtype, {**full, "STAGES": 2, "ASYNC": 0}) <= 68 << 10


def test_copies_are_asynchronous_where_a_device_has_them_and_half_is_never_copied() -> None:
    def chosen(device: DeviceFacts, dtype: str) -> int:
        preset = SMALL.preset("gpu-nvidia", dtype=dtype)
        return SMALL.chosen(Gemm(512, 512, 512, dtype), device, preset)["ASYNC"]

    assert (chosen(GPU, "float"), chosen(GPU, "double"), chosen(GPU, "half")) == (1, 1, 0)
    assert chosen(OLD, "float") == 0


def test_small_tiles_go_straight_to_registers_unless_something_else_is_asked_for() -> None:
    def chosen(**given: int) -> tuple[int, ...]:
        known = values("small", Gemm(256, 256, 256), given)
        assert SMALL.broken({name: known[name] for name in SMALL.parameters}, "float") == ""
        return known["DIRECT"], known["ASYNC"], known["STAGES"]

    assert chosen() == (1, 0, 1)
    assert chosen(ASYNC=1) == (0, 1, 2)
    assert chosen(DIRECT=0) == (0, 1, 2)
    small = replace(GPU, max_work_group_size=256)
    form = SMALL.chosen(Gemm(256, 256, 256), small, SMALL.preset("gpu-nvidia"))
    assert few._small_items({**form}) <= 256


def test_given_parameters_stay_and_the_others_follow() -> None:
    known = values("small", Gemm(1024, 1024, 1024), {"BM": 12, "TN": 16})
    assert (known["BM"], known["TN"]) == (12, 16)
    assert known["BM"] % known["TM"] == 0
    assert known["BN"] % known["TN"] == 0


@pytest.mark.parametrize(
    ("name", "problem", "layout", "kernel"),
    [
        ("small", Gemm(99, 64, 64), None, "small"),
        ("small", Gemm(64, 63, 64), Layout(64, 64, 63), "small"),  # what a vector holds past n is no column
        ("small", Gemm(64, 63, 64), None, "small_ragged"),
        ("small", Gemm(64, 64, 63), Layout(64, 64, 64), "small_ragged"),  # past k it would be part of a sum
        ("thin", Gemm(4, 64, 63), None, "thin"),  # the small operand's vectors tell themselves
        ("thin", Gemm(4, 63, 64), None, "thin_ragged"),
        ("thin", Gemm(4, 63, 64, trans_b=True), None, "thin"),
        ("thin", Gemm(4, 64, 63, trans_b=True), Layout(64, 64, 64), "thin_ragged"),
        ("thin", Gemm(64, 4, 63, trans_a=True), None, "thin"),
        ("thin", Gemm(64, 3, 64), None, "thin"),
        ("thin", Gemm(64, 4, 63), Layout(64, 4, 4), "thin_ragged"),
    ],
)
def test_rows_that_vectors_do_not_fit_are_read_by_elements(
    name: str, problem: Gemm, layout: Layout | None, kernel: str
) -> None:
    steps = BY_NAME[name].steps(values(name, problem, layout=layout))
    assert next(step.kernel for step in steps if step.role == "multiply") == kernel


@pytest.mark.parametrize(
    ("name", "problem", "reason"),
    [
        ("small", Gemm(1024, 1024, 1025), "small is for m, n and k of 1024 or less"),
        ("small", Gemm(1024, 1024, 1024), ""),
        ("thin", Gemm(17, 17, 4096), "thin is for m or n of 16 or less"),
        ("thin", Gemm(4096, 16, 4096), ""),
        ("thin", Gemm(1, 4096, 4096), ""),
    ],
)
def test_a_problem_that_a_kernel_is_not_for_is_a_row_that_says_so(
    name: str, problem: Gemm, reason: str
) -> None:
    (step,) = gemm_plan([GPU], [BY_NAME[name]], [problem])
    assert (step.row.reason if isinstance(step, Skip) else "") == reason


@pytest.mark.parametrize(
    ("problem", "columns", "kept"),
    [
        (Gemm(1, 8192, 8192), 0, 1),
        (Gemm(3, 8192, 8192), 0, 4),
        (Gemm(16, 8192, 8192), 0, 16),
        (Gemm(8192, 1, 8192), 1, 1),
        (Gemm(8192, 9, 8192), 1, 16),
        (Gemm(16, 16, 64), 0, 16),
        (Gemm(100, 50, 64), 1, 16),  # of the exact test
    ],
)
def test_the_larger_operand_goes_past(problem: Gemm, columns: int, kept: int) -> None:
    known = values("thin", problem)
    assert (known["COLUMNS"], known["THIN"]) == (columns, kept)
    long, rows = few._thin_items(known)
    down, across = few._thin_blocks(known)
    assert (long // (known["LX"] * known["LY"]), rows // known["PARTS"]) == (
        (down, across) if columns else (across, down)
    )


@pytest.mark.parametrize(
    ("problem", "along"),
    [
        (Gemm(16, 8192, 8192), False),
        (Gemm(16, 8192, 8192, trans_a=True, trans_b=True), True),
        (Gemm(8192, 16, 8192, trans_b=True), True),
        (Gemm(8192, 16, 8192, trans_a=True), False),
    ],
)
def test_operands_are_read_as_they_are_stored(problem: Gemm, along: bool) -> None:
    """In one launch, with groups for how the large operand lies."""
    known = values("thin", problem)
    laid = laid_out(THIN, problem)
    assert [step.kernel for step in laid.steps(known)] == ["thin_many"]
    assert [step.kernel for step in laid.steps({**known, "MANY": 0})] == ["thin"]
    assert few.along_k(known) == along
    long = few._thin_tile(known)[0 if known["COLUMNS"] else 1]
    assert long == (known["LY"] * known["DEEP"] if along else known["LX"] * known["WIDE"] * known["WIDTH"])


def test_a_few_groups_share_k_and_their_sums_are_added_up() -> None:
    known = values("thin", Gemm(4, 256, 65536))
    assert known["PARTS"] > 8
    assert [step.kernel for step in THIN.steps(known)] == ["thin", "thin_sum"]
    assert THIN.temporary_bytes(Gemm(4, 256, 65536), known)["P"] == known["PARTS"] * 4 * 256 * 4
    assert [step.kernel for step in THIN.steps(values("thin", Gemm(1, 8192, 8192)))] == ["thin"]


@pytest.mark.parametrize(
    ("problem", "device", "many"),
    [
        (Gemm(16, 8192, 8192), GPU, True),
        (Gemm(8192, 9, 8192), GPU, True),
        (Gemm(8, 8192, 8192), GPU, False),  # memory alone
        (Gemm(16, 8192, 8192, "half"), GPU, False),
        (Gemm(16, 8192, 8192), OLD, False),  # has no such copies
        (Gemm(16, 8191, 8192), GPU, False),  # its rows begin anywhere
        (Gemm(8192, 16, 8190), GPU, False),
        (Gemm(16, 60, 8192), GPU, False),  # fewer columns than a group has
    ],
)
def test_16_rows_or_columns_in_float_have_a_kernel_of_their_own(
    problem: Gemm, device: DeviceFacts, many: bool
) -> None:
    known = THIN.values(problem, on(device, "thin", problem))
    kernels = [step.kernel for step in THIN.steps(known)]
    assert ("thin_many" in kernels) == many
    if many:
        (step,) = THIN.steps(known)  # in one launch
        assert step.items(known)[0] // step.group(known)[0] * known["MANY"] == 8192
        halves = {**known, "PARTS": 2}
        assert [step.kernel for step in THIN.steps(halves)] == ["thin_many", "thin_sum"]
        assert step.items(halves) == (step.items(known)[0], 2)


DEPTHS = sorted({*re.findall(r"const int depth = (.+);", kernel_files.raw("gemm/24_thin.cl"))})


@pytest.mark.parametrize("depth", DEPTHS)
@pytest.mark.parametrize("parts", [1, 2, 3, 64])
@pytest.mark.parametrize("k", [0, 1, 7, 8, 100, 4096])
def test_the_parts_have_every_step_along_k_once(k: int, parts: int, depth: str) -> None:
    assert len(DEPTHS) == 1
    each = eval(depth.replace("/", "//"), {"k": k, "parts": parts, "UNIT": 128})
    assert [p for part in range(parts) for p in range(part * each, min(part * each + each, k))] == list(
        range(k)
    )


# --- On other devices ---------------------------------------------------------------------------------------


def on(device: DeviceFacts, name: str, problem: Gemm) -> dict[str, int]:
    """The parameters that a problem gets on a device."""
    entry = BY_NAME[name]
    preset = entry.preset("gpu-nvidia", dtype=problem.dtype)
    return {**preset, **entry.chosen(problem, device, preset)}


@pytest.mark.parametrize("kib", [1, 8, 16, 24, 32, 48])
@pytest.mark.parametrize("dtype", ["float", "double", "half"])
def test_tiles_fit_the_local_memory_that_there_is(kib: int, dtype: str) -> None:
    device, smallest = replace(OLD, local_mem_bytes=kib << 10), few._FORMS[dtype][-1]
    for size in (64, 256, 1024):
        known = on(device, "small", Gemm(size, size, size, dtype))
        least = SMALL.local_bytes(dtype, {**known, **smallest, "STAGES": 1})
        fits = SMALL.local_bytes(dtype, known) <= kib << 10
        assert fits or least > kib << 10, known
        assert fits or (known["BM"], known["BN"]) == (smallest["BM"], smallest["BN"]), known
    for m, n in ((1, 4096), (16, 4096), (4096, 1), (4096, 16)):
        known = on(device, "thin", Gemm(m, n, 4096, dtype))
        assert THIN.local_bytes(dtype, known) <= kib << 10 or (kib == 1 and known["LY"] == 1), known


def test_local_memory_is_the_tiles_or_a_round_of_sums_and_half_is_float_there() -> None:
    shape = {"BM": 64, "BN": 64, "TM": 2, "TN": 4, "WIDTH": 4, "PAD": 4, "STAGES": 1, "ASYNC": 0}
    sums, tiles = {**shape, "BK": 4, "SPLIT": 8}, {**shape, "BK": 32, "SPLIT": 4}
    assert SMALL.local_bytes("float", sums) == SMALL.local_bytes("half", sums) == 8 * 32 * 64 * 4
    assert SMALL.local_bytes("float", tiles) == SMALL.local_bytes("half", tiles)
    assert SMALL.local_bytes("float", tiles) == (64 * (128 + 4) + 128 * 64) * 4
    assert SMALL.local_bytes("float", {**tiles, "STAGES": 2}) == 2 * SMALL.local_bytes("float", tiles)


@pytest.mark.parametrize(("size", "batch"), [(64, 4096), (32, 4096), (16, 4096), (8, 4096)])
def test_tiles_of_batches_are_not_much_larger_than_a_problem_and_k_is_not_cut(size: int, batch: int) -> None:
    known = values("small", Gemm(size, size, size, batch=batch))
    (largest, *_), smallest = few._BATCH_FORMS, few._BATCH_FORMS[-1]
    assert known["BM"] == (
        largest["BM"] if size == 64 else 32 if size == 32 else few._FORMS["float"][0]["BM"]
    )
    assert (known["SPLIT"] == 1) == (2 * size > smallest["BM"] or few._FORMS["float"][0]["SPLIT"] == 1)
    alone = values("small", Gemm(size, size, size))
    assert alone["BM"] * alone["BN"] <= known["BM"] * known["BN"]  # a batch has enough of larger tiles
    assert alone["SPLIT"] > 1


def test_copies_need_the_extension() -> None:
    assert on(replace(GPU, extensions=()), "small", Gemm(256, 256, 256))["ASYNC"] == 0


def test_two_sums_take_the_shape_of_four() -> None:
    names = ("LX", "LY", "DEEP", "KC")
    two, four, one = (values("thin", Gemm(m, 8192, 8192)) for m in (2, 4, 1))
    assert two["THIN"] == 2
    assert [two[name] for name in names] == [four[name] for name in names] != [one[name] for name in names]


@pytest.mark.parametrize(
    ("problem", "wide"),
    [
        (Gemm(8192, 1, 8192), True),
        (Gemm(1, 8192, 8192, trans_b=True), True),
        (Gemm(1, 8192, 8192), False),  # its rows lie across k
        (Gemm(8192, 2, 8192), False),
        (Gemm(8192, 1, 8192, "double"), False),
        (Gemm(1024, 1, 8192), False),  # groups of 16 rows are too few
        (Gemm(8, 1, 8192, batch=4096), False),  # which would have half as many
        (Gemm(8192, 1, 512), False),  # local memory would be filled with zeros
    ],
)
def test_one_column_takes_wide_rows_where_there_are_enough(problem: Gemm, wide: bool) -> None:
    known = values("thin", problem)
    form = tuple(known[name] for name in ("WIDE", "LX", "LY", "DEEP", "KC", "AHEAD"))
    assert (form == (2, 32, 8, 2, 2048, 1)) == wide  # as it was raced
    if wide:
        assert [(step.kernel, step.items(known)[0]) for step in THIN.steps(known)] == [("thin", 512 * 256)]


@pytest.mark.parametrize(
    ("problem", "form"),
    [
        (Gemm(1, 4096, 4096), (4, 64, 8, 1)),
        (Gemm(4096, 1, 4096, trans_a=True), (4, 64, 8, 1)),
        (Gemm(1, 2048, 4096), (8, 32, 4, 8)),  # narrow groups are still too few
        (Gemm(1, 4096, 8192), (8, 32, 4, 4)),  # deep
        (Gemm(1, 6144, 4096), (8, 32, 8, 1)),  # enough groups
        (Gemm(1, 32, 4096, batch=200), (8, 32, 8, 1)),
        (Gemm(1, 4096, 256), (8, 64, 4, 1)),  # too short to be cut
        (Gemm(2, 4096, 4096), (8, 64, 4, 2)),
    ],
)
def test_one_row_takes_narrow_groups_rather_than_cut_a_short_k(problem: Gemm, form: tuple[int, ...]) -> None:
    known = values("thin", problem)
    assert tuple(known[name] for name in ("LX", "LY", "DEEP", "PARTS")) == form  # as it was raced


@pytest.mark.parametrize("lx", [24, 512])
def test_a_given_width_of_a_group_leaves_it_rows(lx: int) -> None:
    known = values("thin", Gemm(1, 1024, 1024, batch=200), {"LX": lx})
    assert (known["LX"], known["LY"]) == (lx, max(1, 256 // lx))


def test_given_wide_rows_are_neither_narrow_nor_cut_differently() -> None:
    assert values("thin", Gemm(1, 4096, 4096), {"WIDE": 2})["LX"] == 8


def test_groups_of_thin_are_no_larger_than_the_device_has() -> None:
    known = on(replace(GPU, max_work_group_size=64), "thin", Gemm(1, 8192, 8192))
    assert known["LX"] * known["LY"] == 64


@pytest.mark.parametrize(
    ("problem", "device", "parts"),
    [
        (Gemm(1, 128, 256 * 3), GPU, 3),  # 256 steps each at least
        (Gemm(1, 128, 1 << 20), GPU, 64),  # no more than 64
        (Gemm(1, 128, 1 << 20), replace(GPU, type="cpu"), 1),
        (Gemm(1, 128, 1 << 20, batch=1000), GPU, 1),  # which keep the units busy
    ],
)
def test_k_is_cut_into_parts_where_units_would_be_idle(
    problem: Gemm, device: DeviceFacts, parts: int
) -> None:
    assert on(device, "thin", problem)["PARTS"] == parts


@pytest.mark.parametrize(
    ("problem", "cut"),
    [
        (Gemm(1, 4096, 14336), (4, 32, 4)),  # fewer groups than units: four for each, of half the size
        (Gemm(1, 8192, 1024), (1, 32, 8)),  # without a cut
        (Gemm(1, 28672, 4096), (1, 32, 8)),  # many groups
        (Gemm(1, 512, 512), (2, 64, 4)),  # cut, but units would be idle
        (Gemm(1, 28672, 4096, "double"), (1, 64, 4)),  # measured in float alone
        (Gemm(2, 4096, 14336), (2, 64, 4)),  # two for each
        (Gemm(16, 4096, 14336), (2, 32, 4)),
    ],
)
def test_groups_of_one_row_are_smaller_where_units_have_enough(
    problem: Gemm, cut: tuple[int, int, int]
) -> None:
    known = on(GPU, "thin", problem)
    assert (known["PARTS"], known["LY"], known["DEEP"]) == cut


def test_two_parts_are_added_up_and_of_half_as_floats() -> None:
    for dtype in ("float", "half"):
        problem = Gemm(4, 256, 4096, dtype)
        known = {**on(GPU, "thin", problem), "PARTS": 2}
        assert [step.kernel for step in THIN.steps(THIN.values(problem, known))] == ["thin", "thin_sum"]
        assert THIN.temporary_bytes(problem, known)["P"] == 2 * 4 * 256 * 4


def test_groups_of_thin_hold_the_small_operand_and_make_whole_rows() -> None:
    shape = {"WIDE": 1, "LX": 8, "LY": 2, "DEEP": 4, "KC": 1024, "WIDTH": 4, "THIN": 16, "COLUMNS": 1}
    assert THIN.local_bytes("float", shape) == 2 * 16 * (1024 + 4) * 4  # one is multiplied, one comes
    assert THIN.local_bytes("half", shape) == THIN.local_bytes("float", shape)
    assert THIN.local_bytes("float", {**shape, "LY": 32, "KC": 32}) == 32 * 16 * (8 + 1) * 4  # the sums
    assert THIN.local_bytes("float", {**shape, "LX": 1, "LY": 8, "KC": 60}) == 2 * 16 * (64 + 4) * 4
    known = values("thin", Gemm(8192, 16, 8192))
    assert few._thin_blocks(known)[0] * known["LY"] * known["DEEP"] == 8192
