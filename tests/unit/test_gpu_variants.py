"""gpu-tile and nv-async: which operands are padded, and how the last tiles are cut."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from statistics import geometric_mean
from typing import Any

import pytest

from gemmbench.ladder import BY_NAME
from gemmbench.ladder.variant import Layout, ParameterError, laid_out
from gemmbench.model import kernel_files
from gemmbench.model.problem import Gemm
from gemmbench.suite import cached
from gemmbench.tune import space as tuning
from tests.unit.test_plan import DEVICE

ASYNC, TILE = BY_NAME["nv-async"], BY_NAME["gpu-tile"]
GPU = replace(DEVICE, type="gpu", compute_units=132, compute_capability=(9, 0))


def values(variant: str, problem: Gemm, layout: Layout | None = None) -> dict[str, int]:
    entry = BY_NAME[variant]
    preset = entry.preset("gpu-nvidia", dtype=problem.dtype)
    return entry.values(problem, {**preset, **entry.chosen(problem, GPU, preset)}, layout)


def passes(variant: str, problem: Gemm, layout: Layout | None = None) -> list[str]:
    return [step.kernel for step in BY_NAME[variant].steps(values(variant, problem, layout))]


@pytest.mark.parametrize(
    ("problem", "layout", "wanted"),
    [
        (Gemm(256, 256, 256), None, ["gpu_tile"]),
        (Gemm(256, 256, 255), None, ["pad", "gpu_tile"]),
        (Gemm(256, 255, 256), None, ["pad", "gpu_tile"]),
        (Gemm(256, 255, 255), None, ["pad", "pad", "gpu_tile"]),
        # rows of A start where vectors do, but the last vector would hold what lies past k
        (Gemm(256, 256, 254), Layout(256, 256, 256), ["pad", "gpu_tile"]),
        (Gemm(256, 254, 256), Layout(256, 256, 256), ["gpu_tile"]),
    ],
)
def test_operands_that_do_not_fit_whole_vectors_are_padded(
    problem: Gemm, layout: Layout | None, wanted: list[str]
) -> None:
    assert passes("gpu-tile", problem, layout) == wanted


def test_the_tiles_past_whole_rounds_are_cut_along_k() -> None:
    problem = Gemm(4096, 4096, 4096)  # 43 x 32 tiles on 132 units
    found = values("nv-async", problem)
    assert found["WHOLE"] == 10 * 132
    assert found["PARTS"] > 1
    assert passes("nv-async", problem) == ["transpose_tall", "nv_async", "sum_parts"]


@pytest.mark.parametrize("dtype", ["float", "double"])
def test_columns_that_fill_a_vector_at_most_are_no_tiles(dtype: str) -> None:
    """No other shape has another kernel than before: its hash stays what saved rows have."""
    narrow = [n for n in range(8192) if laid_out(ASYNC, Gemm(4096, n, 64, dtype)) is not ASYNC]
    assert narrow == [n for n in range(1024, 8192) if 0 < n % 128 <= (4 if dtype == "float" else 2)]
    assert laid_out(ASYNC, Gemm(4097, 4097, 64, dtype, batch=2)).files == ASYNC.files
    variant = laid_out(ASYNC, Gemm(4096, 4097, 1, dtype))
    preset = ASYNC.preset("gpu-nvidia", dtype=dtype)
    assert variant.fingerprint(dtype, preset) != ASYNC.fingerprint(dtype, preset)
    assert cached.source(variant) == cached.source(ASYNC), "what was tuned for other shapes serves it, too"
    assert laid_out(variant, Gemm(4096, 4097, 1, dtype)).launches.passes == variant.launches.passes
    turned = laid_out(BY_NAME["prefetch"], Gemm(64, 64, 64, trans_b=True))
    assert cached.source(turned) != cached.source(BY_NAME["prefetch"]), "a pass more"


#   n, EDGE
@pytest.mark.parametrize(("n", "edge"), [(4097, 1), (4100, 4), (4096 + 65, 0), (4096, 0), (127, 0), (2, 2)])
def test_the_kernel_has_n_without_them(n: int, edge: int) -> None:
    problem = Gemm(4097, n, 4097)
    variant = laid_out(ASYNC, replace(problem, n=4097))
    preset = variant.preset("gpu-nvidia", MANY)
    found = variant.values(problem, {**preset, **variant.chosen(problem, GPU, preset)})
    assert (found["EDGE"], found["nt"]) == (edge, n - edge)
    steps = [step for step in variant.steps(found) if 0 not in step.items(found)]
    assert ("add_edge" in [step.kernel for step in steps]) == (edge > 0)
    assert all(("nt" in step.arguments) > ("n" in step.arguments) for step in steps[1:])


def test_an_edge_leaves_the_tiles_as_they_are_without_it() -> None:
    odd, even = Gemm(4097, 4097, 4097), Gemm(4096, 4096, 4096)
    preset = ASYNC.preset("gpu-nvidia")
    chosen = laid_out(ASYNC, odd).chosen(odd, GPU, preset)
    assert chosen == {**ASYNC.chosen(even, GPU, preset), "EDGE": 1}
    tall = Gemm(65536, 130, 4096)  # the second column of tiles would be empty
    assert ASYNC.chosen(tall, GPU, preset)["BN"] == 64
    assert laid_out(ASYNC, tall).chosen(tall, GPU, preset)["BN"] == 128


MANY = {"BM": 96, "BN": 128, "BK": 32, "TM": 12, "TN": 8, "PAD": 0, "STAGES": 2, "LX": 8}
MORE = {"BM": 64, "BN": 128, "BK": 8, "TM": 8, "TN": 16, "PAD": 0, "STAGES": 3, "LX": 4}
FEW = {"BM": 128, "BN": 64, "BK": 16, "TM": 8, "TN": 8, "PAD": 0, "STAGES": 4, "LX": 4}
SLIM = {**MORE, "BM": 128, "BN": 64, "TM": 16, "TN": 8}
ANY = {**FEW, "STAGES": 3}


@pytest.mark.parametrize(
    ("problem", "form"),
    [
        (Gemm(1024, 1024, 1024), MORE),
        (Gemm(128, 8192, 1024), MORE),
        (Gemm(1472, 1472, 1472), FEW),
        (Gemm(1792, 1792, 1792), FEW),
        (Gemm(2048, 2048, 2048), FEW),
        (Gemm(2112, 2112, 2112), FEW),  # less than a round of the largest tiles
        (Gemm(2304, 2304, 2304), MANY),
        (Gemm(3072, 3072, 3072), MANY),
        (Gemm(4096, 4096, 4096), MANY),
        (Gemm(4097, 4097, 4097), MANY),
        (Gemm(1024, 1024, 1024, batch=8), FEW),
        (Gemm(65536, 128, 4096), MANY),  # more than a round of groups of two warps
        (Gemm(65536, 64, 4096), SLIM),  # half of a tile of 128 columns lies past the edge
        (Gemm(8192, 100, 8192), MORE),  # cut
        (Gemm(65536, 128, 8192, trans_a=True), FEW),  # tiles of 96 rows would have A copied
        (Gemm(4096, 4096, 4096, trans_a=True), MANY),
        (Gemm(4096, 4096, 4096, "double"), {**FEW, "BM": 64, "PAD": 4, "STAGES": 2, "LX": 8}),
    ],
)
def test_the_form_of_the_tiles_goes_by_how_many_there_are(problem: Gemm, form: dict[str, int]) -> None:
    found = values("nv-async", problem)
    assert {name: found[name] for name in form} == form


def test_the_form_chosen_is_near_the_fastest_of_those_that_were_timed() -> None:
    """Microseconds of 73 shapes on an NVIDIA H200: by form, tiles that stay whole and parts of the others.

    The two slowest are 384 and 512 cubed, which belong to `small`.
    """
    timed = json.loads((Path(__file__).parents[1] / "data/h200-forms.json").read_text())
    losses = {}
    for shape, forms in timed.items():
        m, n, k = map(int, shape.split("x"))
        chosen = values("nv-async", Gemm(m, n, k))
        times = {
            (form, whole > 0, parts): took for form, rows in forms.items() for whole, parts, took in rows
        }
        form = f"{chosen['BM']}x{chosen['BN']}x{chosen['BK']}"
        cut = (form + f" {chosen['STAGES']}" * (form == "128x64x16"), chosen["WHOLE"] > 0)
        parts = {at: took for (*alike, at), took in times.items() if tuple(alike) == cut}
        losses[shape] = parts[min(parts, key=lambda at: abs(at - chosen["PARTS"]))] / min(times.values())
    assert len(losses) == 73
    assert geometric_mean(list(losses.values())) < 1.015
    assert sorted(losses.values())[-3] < 1.15, losses
    assert max(losses.values()) < 1.24, losses


@pytest.mark.parametrize(("capability", "form"), [((8, 6), ANY), ((8, 0), ANY), ((9, 0), MANY)])
def test_a_form_is_for_units_that_hold_its_groups(capability: tuple[int, int], form: dict[str, int]) -> None:
    """An RTX 3090 has 100 KiB, one group of 96 x 128: one warp a scheduler."""
    device = replace(GPU, compute_units=82, compute_capability=capability)
    found = ASYNC.chosen(Gemm(4096, 4096, 4096), device, ASYNC.preset("gpu-nvidia"))
    assert {name: found[name] for name in form} == form


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ({**MORE, "BM": 128, "BK": 24}, "BK must be 16 at most"),  # the loop of 16 steps would leave the tile
        (
            {**FEW, "BM": 48, "BN": 32, "BK": 8, "TM": 12, "TN": 4, "LX": 8},
            "a tile must be a multiple of 256",
        ),
    ],
)
def test_tiles_that_the_loops_do_not_take_are_refused(given: dict[str, int], why: str) -> None:
    with pytest.raises(ParameterError, match=why):
        ASYNC.preset("gpu-nvidia", given)


@pytest.mark.parametrize(
    ("given", "form"),
    [
        ({"BN": 64}, FEW),
        ({"BK": 16}, FEW),
        ({"BN": 128}, MANY),
        ({"TM": 8, "BN": 128}, MORE),
        ({"BN": 256}, {**ANY, "BN": 256}),
    ],
)
def test_what_is_given_of_a_form_says_which(given: dict[str, int], form: dict[str, int]) -> None:
    preset = ASYNC.preset("gpu-nvidia", given)
    assert ASYNC.compiled(Gemm(4096, 4096, 4096), GPU, preset) == {**preset, **form}


def test_parameters_suit_every_form_that_they_leave_open() -> None:
    """The 12 rows of one are no vectors of 8 elements."""
    constraints = ASYNC.parameters.constraints[1:]
    any_width = replace(ASYNC, parameters=replace(ASYNC.parameters, constraints=constraints))
    assert any_width.broken({"WIDTH": 8}, "float").startswith("TM must be a multiple of WIDTH")
    assert not any_width.broken({"WIDTH": 8, "TM": 8, "BN": 128, "BK": 16}, "float").startswith("TM")


@pytest.mark.parametrize(
    ("problem", "wanted"),
    [
        (Gemm(8192, 100, 8192), True),
        (Gemm(8192, 100, 8192, batch=2), True),
        (Gemm(8192, 100, 8192, trans_a=True), False),
        (Gemm(40000, 129, 8192), False),  # the pass over A multiplies the last column
    ],
)
def test_a_is_copied_by_elements_where_its_rows_lie_along_k(problem: Gemm, wanted: bool) -> None:
    variant = laid_out(ASYNC, problem)
    preset = variant.preset("gpu-nvidia", MORE)
    options = variant.options("float", preset)
    assert ("-DPLAIN_A" in options) == wanted
    assert ("-DODD_FIRST" in options) is False
    found = variant.values(problem, {**preset, **variant.chosen(problem, GPU, preset)})
    steps = [step.kernel for step in variant.steps(found)]
    assert ("transpose_tall" in steps or "transpose_with_edge" in steps) == (
        not wanted and not problem.trans_a
    )
    few = variant.options("float", variant.preset("gpu-nvidia", FEW))
    assert "-DODD_FIRST" in few
    assert "-DPLAIN_A" not in few


@pytest.mark.parametrize("given", [{"BN": 64}, {"BK": 16}])
def test_a_is_not_copied_by_elements_in_tiles_that_it_does_not_fill(given: dict[str, int]) -> None:
    """32 work-items would copy four vectors of rows at once; and 16 steps are more than eight lanes have."""
    assert "-DPLAIN_A" not in ASYNC.options("float", ASYNC.preset("gpu-nvidia", {**MORE, **given}))


def test_rows_of_a_are_whole_tiles_where_a_tile_is_no_power_of_two() -> None:
    """Copies of 96 rows are three of 32, of which none looks for the edge."""
    tall = Gemm(4100, 4096, 4096, trans_a=True)
    assert values("nv-async", tall)["mw"] == 43 * 96
    assert passes("nv-async", tall, Layout(4100, 4096, 4096))[0] == "pad_vectors"
    assert passes("nv-async", tall, Layout(43 * 96, 4096, 4096))[0] == "nv_async"
    assert values("nv-async", Gemm(1021, 1024, 1024))["mw"] == 1024


def test_a_tuner_searches_the_forms_too() -> None:
    narrow = {
        key: each if key == "BM" else replace(each, values=each.values[:1])
        for key, each in ASYNC.parameters.items()  # the tile's own values come to these
    }
    space = tuning.space(
        replace(ASYNC, parameters=replace(ASYNC.parameters, declared=narrow)), GPU, [Gemm(4096, 4096, 4096)]
    )
    assert space.chosen == MANY.keys()
    assert space.asked(space.default) == ASYNC.preset("gpu-nvidia")
    assert {one["BM"] for one in space.configurations} == {64, 96, 128, 256}


def test_a_tuner_leaves_to_a_kernel_what_belongs_to_the_problem() -> None:
    """A winner that says which operand is the large one would hold for those of another shape."""
    space = tuning.space(BY_NAME["thin"], GPU, [Gemm(8192, 1, 8192)])
    assert not space.chosen & {"COLUMNS", "THIN", "MANY", "ASYNC"}


@pytest.mark.parametrize(("n", "wanted"), [(256, ["nv_async"]), (257, ["pad_vectors", "nv_async"])])
def test_rows_of_b_that_do_not_fit_copies_are_padded(n: int, wanted: list[str]) -> None:
    assert [step for step in passes("nv-async", Gemm(64, n, 64)) if step != "sum_parts"] == wanted


@pytest.mark.parametrize("m", [1, 63, 64, 65, 4097])
@pytest.mark.parametrize("k", [1, 32, 33])
@pytest.mark.parametrize("n", [64, 4096])
def test_the_transposing_pass_has_work_items_for_every_tile(m: int, k: int, n: int) -> None:
    found = values("nv-async", Gemm(m, n, k))
    step = next(step for step in ASYNC.launches.passes if step.kernel == "transpose_tall")
    (across, down), (wide, tall) = step.items(found), step.group(found)
    assert -(-across // wide) * 32 >= k
    assert down // tall * 64 >= found["mw"] >= m


def test_a_small_c_with_a_long_k_is_cut_whole() -> None:
    found = values("nv-async", Gemm(128, 128, 65536))
    assert found["WHOLE"] == 0
    assert found["PARTS"] > 16


@pytest.mark.parametrize("problem", [Gemm(2048, 2048, 2048), Gemm(128, 128, 64), Gemm(1, 1, 0)])
def test_nothing_is_cut_where_it_does_not_pay(problem: Gemm) -> None:
    assert values("nv-async", problem)["PARTS"] == 1
    assert "sum_parts" not in passes("nv-async", problem)


def in_kernel(pattern: str) -> str:
    """An expression of nv_async, which has no numbers below zero to divide, as Python's."""
    found = re.search(pattern, kernel_files.raw("gemm/19_nv_async.cl"))
    assert found
    return re.sub(r"\bfrom\b", "start", found[1].replace("/", "//"))


DEPTH = in_kernel(r"depth = cut \? (.+) : k;")
START = in_kernel(r"from = cut \? (.+) : 0,")
STEPS = in_kernel(r"steps = (min\(.+\));")


def steps_of_parts(k: int, bk: int, whole: int, parts: int, tile: int) -> list[int]:
    """The steps along k of each part of a tile that is cut, one part after the other."""
    found: list[int] = []
    for group in range(whole + tile * parts, whole + (tile + 1) * parts):
        known: dict[str, Any] = {"k": k, "BK": bk, "whole": whole, "parts": parts, "group": group, "min": min}
        known["depth"] = eval(DEPTH, known)
        known["start"] = eval(START, known)
        found += range(known["start"], known["start"] + eval(STEPS, known))  # below zero: none
    return found


@pytest.mark.parametrize("tile", [0, 3])
@pytest.mark.parametrize("parts", [1, 2, 3, 5, 33, 64])
@pytest.mark.parametrize("k", [0, 1, 15, 16, 17, 64, 100, 513, 4095, 4096])
def test_the_parts_of_a_tile_have_every_step_along_k_once(k: int, parts: int, tile: int) -> None:
    for whole in (0, 7):
        assert steps_of_parts(k, 16, whole, parts, tile) == list(range(k))


@pytest.mark.parametrize("size", [64, 512, 2048, 4095, 4096, 8192])
def test_as_many_groups_start_as_there_are_tiles_and_parts(size: int) -> None:
    found = values("nv-async", Gemm(size, size, size))
    assert steps_of_parts(size, found["BK"], found["WHOLE"], found["PARTS"], 0) == list(range(size))
    tiles = (-(-size // found["BM"])) * (-(-size // found["BN"]))
    items = next(step for step in ASYNC.launches.passes if step.kernel == "nv_async").items(found)
    group = found["BM"] // found["TM"] * (found["BN"] // found["TN"])
    assert items == ((found["WHOLE"] + (tiles - found["WHOLE"]) * found["PARTS"]) * group,)


def test_what_is_chosen_for_the_launch_is_not_compiled_in() -> None:
    preset = ASYNC.preset("gpu-nvidia")
    assert ASYNC.compiled(Gemm(4096, 4096, 4096), GPU, preset) == {**preset, **MANY}


def test_asynchronous_copies_need_a_gpu_that_has_them() -> None:
    assert "8.0" in ASYNC.needs.lacks(replace(GPU, compute_capability=(7, 5)), "float")
    assert ASYNC.needs.lacks(GPU, "float") == ""


@pytest.mark.parametrize(("dtype", "width"), [("float", 4), ("double", 2)])
def test_a_copy_is_16_bytes(dtype: str, width: int) -> None:
    other = 6 - width
    assert ASYNC.preset("gpu-nvidia", {"WIDTH": width}, dtype)["WIDTH"] == width
    with pytest.raises(ParameterError, match="a copy moves 16 bytes"):
        ASYNC.preset("gpu-nvidia", {"WIDTH": other, "PAD": 4}, dtype)
    few = {name: replace(one, values=one.values[:2]) for name, one in ASYNC.parameters.items()}
    space = tuning.space(
        replace(ASYNC, parameters=replace(ASYNC.parameters, declared=few)), GPU, [Gemm(512, 512, 512, dtype)]
    )
    assert {one["WIDTH"] for one in space.configurations} == {width}


def test_a_type_that_it_is_not_for_is_no_error_of_its_parameters() -> None:
    assert ASYNC.preset("gpu-nvidia", dtype="half")["WIDTH"] == 4


def test_a_limit_of_registers_is_a_compiler_option() -> None:
    assert "-cl-nv-maxrregcount=168" in ASYNC.options("float", ASYNC.preset("gpu-nvidia", {"REGISTERS": 168}))
    assert not any(
        "maxrregcount" in word for word in ASYNC.options("double", ASYNC.preset("gpu", dtype="double"))
    )
