"""The registry and the .cl files, held against each other."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import replace
from random import Random

import pytest

from gemmbench.ladder import BY_NAME, LADDER, ORDER, VARIANTS, own
from gemmbench.ladder.variant import Constraint, Group, Variant, laid_out, round_up, smaller_group
from gemmbench.model import kernel_files
from gemmbench.model.problem import Gemm
from tests.unit.test_plan import DEVICE
from tests.unit.test_plans import HOPPER

OPENCL = [variant for variant in VARIANTS if variant.executor == "opencl"]
IDS = [variant.name for variant in OPENCL]


def required(file: str) -> set[str]:
    """The macros of others that a file refuses to compile without."""
    found, text = set(), kernel_files.raw(file)
    for condition in re.findall(r"#if(?:n?def)?([^\n]*)\n#error", text):
        found |= set(re.findall(r"\b[A-Z][A-Z0-9]+\b", condition))
    return found - set(re.findall(r"#define (\w+)", text))


def full(variant: Variant, problem: Gemm) -> dict[str, int]:
    """A variant's parameters for a problem, those that it chooses itself included."""
    preset = variant.preset("cpu")
    return {**preset, **variant.chosen(problem, DEVICE, preset)}


def test_every_kernel_file_is_used() -> None:
    used = {file for variant in OPENCL for file in variant.files}
    used |= {*laid_out(BY_NAME["nv-async"], Gemm(4097, 4097, 4097)).files}
    there = {f"gemm/{path.name}" for path in (kernel_files.folder() / "gemm").glob("*.cl")}
    assert there == used | {own.UNPAD.file}


@pytest.mark.parametrize("variant", OPENCL, ids=IDS)
def test_every_d_is_declared_and_every_parameter_used(variant: Variant) -> None:
    wanted = set().union(*(required(file) for file in variant.files))
    assert wanted <= set(variant.parameters)
    text = " ".join(kernel_files.text(file) for file in variant.files)
    for name, parameter in variant.parameters.items():
        used = re.search(rf"\b{name}\b", text) is not None
        assert used != parameter.launch, f"{name}: {'used' if used else 'not used'} by the kernels"


@pytest.mark.parametrize("variant", OPENCL, ids=IDS)
def test_every_kernel_opens_with_its_picture_and_a_formula(variant: Variant) -> None:
    for file in variant.files:
        comment = kernel_files.text(file).split("*/")[0]
        assert comment.startswith("/*"), file
        assert "+--" in comment, f"{file} has no picture"
        assert re.search(r"\w+\[.+\]", comment), f"{file} has no index formula"


@pytest.mark.parametrize("variant", OPENCL, ids=IDS)
def test_any_group_will_do_where_a_kernel_neither_requires_one_nor_looks_at_it(variant: Variant) -> None:
    for step in variant.launches.passes:
        before, _, body = kernel_files.raw(step.file).partition(f" {step.kernel}(")
        attributes = before[before.rindex("__kernel") :]
        own = body.partition("\n}\n")[0]
        tied = "reqd_work_group_size" in attributes + before[-200:] or re.search(
            r"get_(local|group)_|barrier\(|__local|\bALONE\b", attributes + own
        )
        planned = full(variant, Gemm(64, 64, 64))
        alone = math.prod(step.group(variant.values(Gemm(64, 64, 64), planned))) == 1
        assert step.any_group == (not tied and not alone), step.kernel


@pytest.mark.parametrize(
    ("group", "most", "sizes", "smaller"),
    [
        ((16, 16), 256, (256, 256, 64), (16, 16)),
        ((16, 16), 32, (256, 256, 64), (8, 4)),
        ((32, 8), 32, (), (8, 4)),
        ((16, 1), 4, (), (4, 1)),
        ((10, 10), 32, (), (5, 5)),
        ((16, 16), 256, (8, 1024), (8, 16)),
        ((64,), 12, (1024, 1024), (8,)),
        ((16, 16), 0, (), (1, 1)),  # a driver that says nothing
    ],
)
def test_a_smaller_group_fits_and_keeps_its_shape(
    group: Group, most: int, sizes: tuple[int, ...], smaller: Group
) -> None:
    assert smaller_group(group, most, sizes) == smaller


@pytest.mark.parametrize("variant", OPENCL, ids=IDS)
def test_a_pass_names_only_what_exists(variant: Variant) -> None:
    problem = Gemm(5, 6, 7)
    values = variant.values(problem, full(variant, problem))
    known = {*values, *variant.launches.temporaries, *variant.launches.images}
    known |= {"alpha", "beta", "A", "lda", "B", "ldb", "C", "ldc"}
    for step in variant.launches.passes:
        assert set(step.arguments) <= known
        signature, *_ = re.findall(rf"\b{step.kernel}\s*\(([^)]*)\)", kernel_files.raw(step.file))
        assert len(signature.split(",")) == len(step.arguments)
        assert len(step.items(values)) == len(step.group(values))


@pytest.mark.parametrize("variant", OPENCL, ids=IDS)
def test_presets_meet_the_constraints_and_lie_in_a_space_that_is_not_empty(variant: Variant) -> None:
    for family in ("cpu-intel", "cpu-pocl", "gpu-nvidia", "gpu-intel", "accelerator-other"):
        for dtype in variant.needs.dtypes:
            preset = variant.preset(family, dtype=dtype)
            preset |= variant.chosen(Gemm(64, 64, 64, dtype), DEVICE, preset)
            assert set(preset) >= set(variant.parameters)  # rules may choose what is no parameter too
    assert next(variant.space(), None) is not None
    assert all(variant.idea and variant.source and variant.family for variant in OPENCL)


def test_the_fingerprint_follows_source_and_parameters() -> None:
    tiled = next(variant for variant in OPENCL if variant.name == "tiled")
    assert tiled.fingerprint("float", {"TS": 16}) == tiled.fingerprint("float", {"TS": 16})
    assert tiled.fingerprint("float", {"TS": 16}) != tiled.fingerprint("float", {"TS": 8})
    assert tiled.fingerprint("float", {"TS": 16}) != tiled.fingerprint("double", {"TS": 16})


def test_the_ladder_has_every_published_step_in_order() -> None:
    assert " ".join(LADDER).startswith(
        "naive tiled coarse wide rect register register-wide subgroup prefetch padded "
        "dot-v4 dot-v8 dot-v16 dotf-v8 dotf-v16 block2x2-v4 block2x2-v8 block4x4-v4 block4x4-v8 "
        "mali-sgemm image-4x8 buffer-4x8"
    )
    assert len(set(LADDER)) == len(LADDER)


def test_presets_go_from_the_general_to_the_particular() -> None:
    rect = BY_NAME["rect"]
    assert rect.preset("gpu-other")["BM"] == 64
    assert rect.preset("gpu-nvidia")["BM"] == 128
    assert rect.preset("gpu-nvidia", dtype="double")["BM"] == 32
    assert rect.preset("gpu-nvidia", {"BM": 64}, "double")["BM"] == 64


@pytest.mark.parametrize("n", [1, 3, 64, 100, 4096])
@pytest.mark.parametrize("m", [1, 8, 60, 4096])
def test_the_articles_groups_fit_the_device_and_waste_little(m: int, n: int) -> None:
    image = BY_NAME["image-4x8"]
    problem = Gemm(m, n, 32)
    chosen = image.chosen(problem, DEVICE, {})
    assert 1 <= chosen["WX"] * chosen["WY"] <= min(128, DEVICE.max_work_group_size)
    down, across = -(-m // (1 if m < 8 else 8)), -(-n // 4)
    started = round_up(across, chosen["WX"]) * round_up(down, chosen["WY"])
    assert started < 2 * across * down  # few part-filled groups
    assert image.chosen(problem, DEVICE, {"WX": 4}) == {"WY": image.chosen(problem, DEVICE, {})["WY"]}


@pytest.mark.parametrize("m", [3, 8, 300])
@pytest.mark.parametrize("n", [5, 64])
def test_the_buffer_differs_from_the_image_in_nothing_but_b(m: int, n: int) -> None:
    image, buffer, problem = BY_NAME["image-4x8"], BY_NAME["buffer-4x8"], Gemm(m, n, 7)
    assert image.chosen(problem, DEVICE, {}) == buffer.chosen(problem, DEVICE, {})
    assert image.needs.dtypes == buffer.needs.dtypes
    assert all(image.options(each, {}) == buffer.options(each, {}) for each in image.needs.dtypes)
    pairs = []
    for variant in (image, buffer):
        values = variant.values(problem, full(variant, problem))
        *helpers, step = variant.steps(values)
        pairs.append((step.kernel[-4:], step.items(values), step.group(values)))
        assert [helper.role for helper in helpers] == (
            ["image"] if variant is image else ["pad"] if n % 4 else []
        )
    assert pairs[0] == pairs[1]


@pytest.mark.parametrize("name", ["dot-v4", "dot-v8", "dot-v16", "dotf-v8", "dotf-v16"])
def test_pointers_of_dot_products_advance_unless_they_are_to_be_indexed(name: str) -> None:
    assert BY_NAME[name].preset("gpu-other")["POINTERS"] == 1
    assert BY_NAME[f"{name}-indexed"].preset("gpu-other")["POINTERS"] == 0


NAMED = [each for variant in OPENCL for each in variant.configurations]


@pytest.mark.parametrize("each", NAMED, ids=[each.name for each in NAMED])
def test_a_named_configuration_is_no_rung_and_holds_everywhere(each: Variant) -> None:
    base = next(variant for variant in OPENCL if each in variant.configurations)
    name = each.name.removeprefix(f"{base.name}-")
    assert BY_NAME[each.name] == each
    assert each.name not in LADDER
    assert ORDER.index(base.name) < ORDER.index(each.name) < ORDER.index(base.name) + 3
    for family in ("cpu-intel", "cpu-pocl", "gpu-nvidia", "gpu-intel", "accelerator-other"):
        for dtype in each.needs.dtypes:
            preset = each.preset(family, dtype=dtype)
            assert preset == base.preset(family, base.parameters.named[name].values, dtype)


def test_a_temporary_may_have_more_elements_than_an_int_counts() -> None:
    problem = Gemm(70_000, 70_000, 70_000)
    padded = BY_NAME["padded"]
    assert max(padded.temporary_bytes(problem, full(padded, problem)).values()) >= 4 * 70_000**2


def distance(given: Mapping[str, int], other: Mapping[str, int]) -> float:
    return sum(abs(math.log2((other[name] or 0.5) / (value or 0.5))) for name, value in given.items())


@pytest.mark.parametrize("name", ["tiled", "rect", "coarse", "register"])
def test_the_nearest_configuration_is_the_first_of_the_whole_space(name: str) -> None:
    variant, random = BY_NAME[name], Random(1)
    preset = variant.preset("gpu")
    every = [each for each in variant.space() if each.keys() == preset.keys()]
    for _ in range(20):
        some = random.sample(every, min(len(every), 5))
        wanted = sorted(some, key=lambda each: distance(preset, each))
        found = variant.nearest(preset, "float", some.__contains__)
        assert distance(preset, found) == distance(preset, wanted[0])
        assert found in some
    assert variant.nearest(preset, "float", lambda _: False) == {}


@pytest.mark.parametrize("name", ["gpu-tile", "padded"])
def test_the_nearest_configuration_is_found_without_a_look_at_all(name: str) -> None:
    looks = []

    def look(_: Mapping[str, int]) -> bool:
        looks.append(1)
        return True

    declared = BY_NAME[name].parameters
    counting = replace(declared, constraints=(Constraint(look, ""), *declared.constraints))
    variant = replace(BY_NAME[name], parameters=counting)
    preset = variant.preset("gpu")
    near = variant.nearest(preset, "float", lambda each: each["BM"] < preset["BM"])
    assert near["BM"] in (64, 80)
    assert len(looks) < 0.05 * math.prod(len(declared[each].values) for each in preset)


def some_parameters(variant: Variant, random: Random) -> dict[str, int]:
    """Values that are worth trying, and others."""
    return {
        name: random.choice((*each.values, random.choice((1, 2, 3, 24, 96)) + each.least))
        for name, each in variant.parameters.items()
    }


@pytest.mark.parametrize("variant", OPENCL, ids=IDS)
def test_a_constraint_depends_on_the_names_that_it_states(variant: Variant) -> None:
    random = Random(2)
    for _ in range(50):
        known = {**some_parameters(variant, random), "itemsize": random.choice((1, 2, 4, 8))}
        for each in variant.parameters.constraints:
            stated = {name: value for name, value in known.items() if name in (*each.names, "itemsize")}
            assert not each.names or each.rule(stated) == each.rule(known), each.sentence


@pytest.mark.parametrize("variant", [each for each in OPENCL if each.parameters.inert], ids=lambda v: v.name)
def test_inert_parameters_change_neither_groups_nor_memory(variant: Variant) -> None:
    random, problem = Random(3), Gemm(300, 301, 302)
    for _ in range(50):
        first, second = (some_parameters(variant, random) for _ in range(2))
        second = {name: (second if name in variant.parameters.inert else first)[name] for name in first}
        needs = []
        for known in (first, second):
            if variant.broken(known, "float"):
                continue
            values = variant.values(problem, {**known, **variant.chosen(problem, HOPPER, known)})
            groups = [step.group(values) for step in variant.steps(values)]
            needs.append(
                (groups, variant.local_bytes("float", values), variant.temporary_bytes(problem, values))
            )
        assert not needs or needs[0] == needs[-1]
        assert variant.broken(first, "float") == variant.broken(second, "float")
