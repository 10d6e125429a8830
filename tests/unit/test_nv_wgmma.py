"""nv-wgmma: the shape that it chooses, the passes that it takes, and the marks in its kernel."""

from __future__ import annotations

import re
from dataclasses import replace
from itertools import product

import pytest

from gemmbench.ladder import BY_NAME
from gemmbench.ladder.variant import Layout, ParameterError
from gemmbench.model import kernel_files
from gemmbench.model.problem import Gemm
from gemmbench.plan import why_not
from tests.unit.test_plan import DEVICE

VARIANT = BY_NAME["nv-wgmma"]
HOPPER = replace(
    DEVICE,
    type="gpu",
    platform="NVIDIA CUDA",
    compute_units=132,
    compute_capability=(9, 0),
    max_work_group_size=1024,
    max_work_item_sizes=(1024, 1024, 64),
)
PRESET = VARIANT.preset("gpu-nvidia")


def passes(problem: Gemm, layout: Layout | None = None) -> list[tuple[str, str]]:
    """Role and first operand of each pass that a problem takes."""
    values = VARIANT.values(problem, PRESET | VARIANT.chosen(problem, HOPPER, PRESET), layout)
    named = ("A", "AP", "B", "BP", "BT")
    steps: list[tuple[str, str]] = [
        (step.role, " ".join(name for name in step.arguments if name in named))
        for step in VARIANT.steps(values)
    ]
    *_, maps, (_, operands) = steps
    assert maps == ("map", operands)
    steps.remove(maps)
    return steps


@pytest.mark.parametrize(
    ("n", "tile"),
    [
        (512, (64, 64)),  # 64 tiles: larger ones would leave more units without any
        (1024, (64, 128)),  # 128 tiles
        (2048, (128, 256)),  # likewise
        (3072, (128, 192)),  # 384 tiles in 3 rounds of 132; 256 columns would take 3 rounds as well
        (4096, (128, 256)),  # 512 tiles in 4 rounds
        (8192, (128, 256)),  # 2048 tiles in 16 rounds
    ],
)
def test_tiles_are_as_large_as_fills_the_last_round(n: int, tile: tuple[int, int]) -> None:
    chosen = VARIANT.chosen(Gemm(n, n, n, "half"), HOPPER, PRESET)
    assert (chosen["BM"], chosen["BN"]) == tile


@pytest.mark.parametrize(("n", "groups"), [(512, 64), (3072, 128), (3328, 113), (4096, 128), (8192, 128)])
def test_there_are_no_more_groups_than_the_rounds_need(n: int, groups: int) -> None:
    """A unit that works in all rounds but the last draws power, and the others wait for nobody without it."""
    problem = Gemm(n, n, n, "half")
    chosen = VARIANT.chosen(problem, HOPPER, PRESET)
    assert chosen["GROUPS"] == groups
    tiles = -(-n // chosen["BM"]) * -(-n // chosen["BN"])
    assert -(-tiles // groups) == -(-tiles // 132)
    assert VARIANT.chosen(problem, HOPPER, {**PRESET, "GROUPS": 132}).get("GROUPS", 132) == 132


def test_what_the_user_says_is_not_chosen() -> None:
    mine = VARIANT.preset("gpu-nvidia", {"BM": 64, "BN": 128, "STAGES": 3})
    problem = Gemm(4096, 4096, 4096, "half")
    assert VARIANT.chosen(problem, HOPPER, mine) == {"GROUPS": 128, "PARTS": 1}
    assert VARIANT.compiled(problem, HOPPER, mine) == {**mine, "PARTS": 1}
    tile = {"BM": 128, "BN": 256, "STAGES": 3, "PARTS": 1}
    assert VARIANT.compiled(problem, HOPPER, PRESET) == {**PRESET, **tile}
    deep = VARIANT.preset("gpu-nvidia", {"STAGES": 6})  # 256 columns take 3
    assert VARIANT.compiled(problem, HOPPER, deep) == {**deep, "BM": 128, "BN": 128, "PARTS": 1}


@pytest.mark.parametrize(
    ("m", "n", "k", "tile", "parts", "stages"),
    [
        (128, 1280, 8192, (64, 64), 3, 13),  # 40 tiles
        (128, 4096, 14336, (64, 128), 2, 8),  # 64 tiles
        (128, 4096, 4096, (64, 64), 1, 13),  # 128 tiles: to add up parts would take longer
        (128, 8192, 1024, (64, 128), 1, 6),  # k is not deep
        (2048, 4096, 4096, (128, 256), 1, 3),
        (64, 64, 1 << 20, (64, 64), 16, 13),
        (64, 64, 64, (64, 64), 1, 6),
    ],
)
def test_k_is_split_where_that_ends_sooner(
    m: int, n: int, k: int, tile: tuple[int, int], parts: int, stages: int
) -> None:
    problem = Gemm(m, n, k, "bfloat16")
    chosen = VARIANT.chosen(problem, HOPPER, PRESET)
    assert (chosen["BM"], chosen["BN"], chosen["PARTS"], chosen["STAGES"]) == (*tile, parts, stages)
    tiles = -(-m // tile[0]) * -(-n // tile[1])
    assert parts == 1 or chosen["GROUPS"] == tiles * parts <= 132  # which wait for each other
    room = VARIANT.temporary_bytes(problem, {**PRESET, **chosen})
    is_split = parts > 1
    assert room["P"] == is_split * tiles * parts * tile[0] * tile[1] * 4
    assert room["MAPS"] >= 384 + is_split * 8 * tiles


def test_groups_that_share_k_fit_the_device_with_a_batch_too() -> None:
    for batch in (1, 2, 20):
        chosen = VARIANT.chosen(Gemm(64, 128, 1 << 20, "half", batch=batch), HOPPER, PRESET)
        assert chosen["PARTS"] > 1
        assert batch * chosen["GROUPS"] <= 132


def test_local_memory_is_known_with_and_without_a_shape() -> None:
    """The driver lists 48 KiB of the 227."""
    chosen = PRESET | VARIANT.chosen(Gemm(4096, 4096, 4096, "half"), HOPPER, PRESET)
    for parameters in (PRESET, chosen):
        for dtype in VARIANT.needs.dtypes:
            assert 200 << 10 < VARIANT.local_bytes(dtype, parameters) <= 225 << 10


def test_every_choice_meets_the_constraints() -> None:
    for rows, columns in product((64, 128, 256), (64, 128, 192, 256)):
        tile = {**PRESET, "BM": rows, "BN": columns}
        if rows * columns > 256 * 192:
            continue
        full = {**tile, **VARIANT.chosen(Gemm(64, 64, 64, "half"), HOPPER, tile)}
        assert all(constraint.rule(full) for constraint in VARIANT.parameters.constraints), tile
        assert full["STAGES"] >= 3
        deeper = {**full, "STAGES": full["STAGES"] + 1}
        assert full["STAGES"] == 6 or not all(
            constraint.rule(deeper) for constraint in VARIANT.parameters.constraints
        )


@pytest.mark.parametrize(
    ("overrides", "sentence"),
    [
        ({"BN": 160}, "BN 64, 128, 192 or 256"),
        ({"BM": 96}, "BM must be 64, 128 or 256"),
        ({"BM": 256, "BN": 256, "STAGES": 2}, "sums must fit in registers"),
        ({"BM": 128, "BN": 256, "STAGES": 4}, "must fit in 225 KiB"),
    ],
)
def test_a_shape_that_the_hardware_lacks_is_a_sentence(overrides: dict[str, int], sentence: str) -> None:
    with pytest.raises(ParameterError, match=sentence):
        VARIANT.preset("gpu-nvidia", overrides)


def test_operands_of_two_bytes_are_taken_as_they_are() -> None:
    assert passes(Gemm(100, 64, 72, "half")) == [("multiply", "A B")]
    assert passes(Gemm(100, 63, 72, "bfloat16")) == [("pad", "B BP"), ("multiply", "A BP")]
    assert passes(Gemm(100, 64, 71, "half")) == [("pad", "A AP"), ("multiply", "AP B")]
    assert passes(Gemm(100, 64, 71, "half"), Layout(72, 64, 64)) == [("multiply", "A B")]


def test_other_operands_have_b_transposed() -> None:
    for dtype in ("tf32", "char", "e4m3", "e5m2-half"):
        assert passes(Gemm(100, 63, 64, dtype)) == [("transpose", "B BT"), ("multiply", "A BT")]


def test_a_small_problem_has_as_many_groups_as_tiles() -> None:
    problem = Gemm(300, 200, 64, "half")
    values = VARIANT.values(problem, PRESET | VARIANT.chosen(problem, HOPPER, PRESET))
    maps, step = VARIANT.steps(values)
    assert (step.items(values), step.group(values)) == ((5 * 4 * 256,), (256,))  # 64 x 64, four warps copy
    assert (maps.items(values), maps.group(values), maps.once) == ((96,), (96,), True)


def test_it_is_for_hopper_alone() -> None:
    problem = Gemm(512, 512, 512, "half")
    assert why_not(HOPPER, VARIANT, problem, PRESET) == ""
    for capability in ((8, 0), (10, 0)):
        assert why_not(replace(HOPPER, compute_capability=capability), VARIANT, problem, PRESET)
    assert "supports only half" in why_not(HOPPER, VARIANT, replace(problem, dtype="double"), PRESET)


def test_what_plain_sm_90_refuses_is_marked_and_nothing_else() -> None:
    """Unmarked it would not compile; marked without need it would be missing where the mark stays."""
    source = kernel_files.raw(VARIANT.files[-1])
    statements = re.findall(r"(LATER\s+)?((?:\"[^\"\n]*\"\s*(?:\w+\s+)?)+)", source)
    instructions = [(mark, text) for mark, text in statements if re.search(r"[a-z]\w*\.[a-z]", text)]
    assert len(instructions) > 15
    for mark, text in instructions:
        special = re.search(r"wgmma\.|tensormap\.replace|setmaxnreg", text) is not None
        assert bool(mark) == special, text
