"""The registry and the .cl files, held against each other."""

from __future__ import annotations

import re

import pytest

from gemmbench.facts import kernel_files
from gemmbench.facts.problem import Gemm
from gemmbench.rules.probes import CHAINS, PROBES
from gemmbench.rules.variants import LADDER, VARIANTS, ParameterError, Variant

OPENCL = [variant for variant in VARIANTS if variant.executor == "opencl"]
IDS = [variant.name for variant in OPENCL]


def required(file: str) -> set[str]:
    """The macros that a file refuses to compile without."""
    found = set()
    for condition in re.findall(r"#if(?:n?def)?([^\n]*)\n#error", kernel_files.raw(file)):
        found |= set(re.findall(r"\b[A-Z][A-Z0-9]+\b", condition))
    return found


def test_every_kernel_file_is_used() -> None:
    used = {file for variant in OPENCL for file in variant.files}
    there = {f"gemm/{path.name}" for path in (kernel_files.folder() / "gemm").glob("*.cl")}
    assert there == used
    probes = {probe.file for probe in PROBES.values()}
    assert probes == {f"peak/{path.name}" for path in (kernel_files.folder() / "peak").glob("*.cl")}


@pytest.mark.parametrize("variant", OPENCL, ids=IDS)
def test_every_d_is_declared_and_every_parameter_used(variant: Variant) -> None:
    wanted = set().union(*(required(file) for file in variant.files))
    assert wanted <= set(variant.parameters)
    text = " ".join(kernel_files.raw(file) for file in variant.files)
    for name in variant.parameters:
        geometry = {"WX", "WY"}  # of the launch only
        assert name in geometry or re.search(rf"\b{name}\b", text), f"{name} is not used"


@pytest.mark.parametrize("variant", OPENCL, ids=IDS)
def test_every_kernel_opens_with_its_picture_and_a_formula(variant: Variant) -> None:
    for file in variant.files:
        comment = kernel_files.raw(file).split("*/")[0]
        assert comment.startswith("/*"), file
        assert "+--" in comment, f"{file} has no picture"
        assert re.search(r"\w+\[.+\]", comment), f"{file} has no index formula"


@pytest.mark.parametrize("variant", OPENCL, ids=IDS)
def test_a_pass_names_only_what_exists(variant: Variant) -> None:
    problem = Gemm(5, 6, 7)
    values = variant.values(problem, variant.preset("cpu"))
    known = {*values, *variant.temporaries, "alpha", "beta", "A", "lda", "B", "ldb", "C", "ldc"}
    for step in variant.passes:
        assert set(step.arguments) <= known
        signature = re.search(rf"\b{step.kernel}\s*\(([^)]*)\)", kernel_files.raw(step.file))
        assert signature is not None
        assert len(signature[1].split(",")) == len(step.arguments)
        assert len(step.items(values)) == len(step.group(values))
    assert [step.role for step in variant.passes].count("multiply") == 1


@pytest.mark.parametrize("variant", OPENCL, ids=IDS)
def test_presets_meet_the_constraints_and_lie_in_a_space_that_is_not_empty(variant: Variant) -> None:
    for family in ("cpu-intel", "cpu-pocl", "gpu-nvidia", "accelerator-other"):
        assert set(variant.preset(family)) == set(variant.parameters)
    assert next(variant.space(), None) is not None
    assert all(variant.idea and variant.source and variant.family for variant in OPENCL)


def test_a_broken_constraint_is_a_sentence() -> None:
    register = next(variant for variant in OPENCL if variant.name == "register")
    with pytest.raises(ParameterError, match="BM must be a multiple of TM"):
        register.preset("cpu", {"TM": 7})
    with pytest.raises(ParameterError, match="no parameter BOGUS"):
        register.preset("cpu", {"BOGUS": 7})
    with pytest.raises(ParameterError, match="1 or more"):
        register.preset("cpu", {"BK": 0})


def test_the_fingerprint_follows_source_and_parameters() -> None:
    tiled = next(variant for variant in OPENCL if variant.name == "tiled")
    assert tiled.fingerprint("float", {"TS": 16}) == tiled.fingerprint("float", {"TS": 16})
    assert tiled.fingerprint("float", {"TS": 16}) != tiled.fingerprint("float", {"TS": 8})
    assert tiled.fingerprint("float", {"TS": 16}) != tiled.fingerprint("double", {"TS": 16})


def test_ladder_names_are_unique_and_in_order() -> None:
    assert len(set(LADDER)) == len(LADDER)
    assert LADDER[0] == "naive"


def test_flops_has_a_kernel_for_every_number_of_chains() -> None:
    source = kernel_files.raw("peak/flops.cl")
    assert tuple(int(count) for count in re.findall(r"#define CHAINS (\d+)", source)) == CHAINS
    assert tuple(int(count) for count in re.findall(r"#ifdef CHAINS_(\d+)", source)) == CHAINS
