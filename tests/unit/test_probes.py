"""The registry of compute probes held against their kernels, and the rows that it plans."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from gemmbench.ladder import BY_NAME
from gemmbench.model import kernel_files
from gemmbench.model.case import Case, Skip
from gemmbench.model.device import DeviceFacts
from gemmbench.model.dtypes import DEVICE_DTYPES, DTYPES, GEMM_DTYPES
from gemmbench.opencl import drivers
from gemmbench.opencl.discovery import cpu_units
from gemmbench.probes import ALL_DTYPES, PROBES
from gemmbench.probes.arithmetic import CHAINS, RECURRENCES, SEEDS, WIDTHS, ChainProbe, MatrixProbe
from gemmbench.suite.plan import peak_plan
from tests.unit.test_plan import DEVICE

H200 = replace(DEVICE, type="gpu", compute_capability=(9, 0))
CHAIN_PROBES = [probe for probe in PROBES.values() if isinstance(probe, ChainProbe)]
FORMS = {
    (form.file, form.define): form
    for probe in CHAIN_PROBES
    for forms in probe.forms.values()
    for form in forms
}
MATRIX_PROBES = [probe for probe in PROBES.values() if isinstance(probe, MatrixProbe)]


def rows(device: DeviceFacts, dtype: str, reach: Any = "quick") -> dict[str, list[str]]:
    """Planned rows by probe: "run", or why not."""
    found: dict[str, list[str]] = {}
    for step in peak_plan([device], [dtype], [1, 4], reach=reach):
        name = step.variant if isinstance(step, Case) else step.row.variant
        found.setdefault(name, []).append("run" if isinstance(step, Case) else step.row.reason)
    return found


def test_every_kernel_is_in_the_registry() -> None:
    used = {file for probe in PROBES.values() for file in probe.files}
    assert used == {f"peak/{path.name}" for path in (kernel_files.folder() / "peak").glob("*.cl")}


@pytest.mark.parametrize("form", FORMS.values(), ids=lambda form: form.define)
def test_a_form_is_one_that_its_file_asks_for(form: Any) -> None:
    source = kernel_files.text(form.file)
    assert f"defined({form.define})" in source
    assert not form.real or f"defined(REAL_{form.real})" in source
    assert form.recurrence in RECURRENCES
    options = form.options(4, 16, (8, 1))
    assert options[-4:] == ("-DWIDTH=4", "-DUNROLL=16", "-DCHAINS_1", "-DCHAINS_8")
    needs = set(re.findall(r"!defined\((\w+)\)", source)) - {"CHAINS", "cl_khr_fp16"}
    assert needs <= {word.removeprefix("-D").split("=")[0] for word in options}


def test_every_form_of_a_file_is_raced() -> None:
    for file in {form.file for form in FORMS.values()}:
        there = set(re.findall(r"defined\((FORM_\w+)\)", kernel_files.raw(file)))
        assert there == {define for name, define in FORMS if name == file}


def test_the_skeleton_has_a_kernel_for_every_number_of_chains() -> None:
    source = kernel_files.raw("peak/chains.clh")
    assert tuple(int(count) for count in re.findall(r"#define CHAINS (\d+)", source)) == CHAINS
    assert tuple(int(count) for count in re.findall(r"#ifdef CHAINS_(\d+)", source)) == CHAINS
    assert f"#define SEEDS {SEEDS} " in source


@pytest.mark.parametrize("probe", MATRIX_PROBES, ids=lambda probe: probe.name)
def test_matrix_instructions_are_those_of_the_file(probe: MatrixProbe) -> None:
    source = kernel_files.raw(probe.file)
    for mine in probe.family.instructions:
        chosen, *numbers = probe.options(mine, 4, 8)
        branch = source.partition(f"defined({chosen.removeprefix('-D')})")[2].partition("#elif")[0]
        types = {
            "half": "f16",
            "bfloat16": "bf16",
            "tf32": "tf32",
            "fp8": "e4m3",
            "char": "s8",
            "double": "f64",
        }
        assert mine.shape in branch
        assert mine.unit or f".{types[mine.dtype]}." in branch.replace('"', ".").replace(" ", ".")
        needs = set(re.findall(r"(?:!defined\(|#ifndef )(\w+)", source))
        assert needs == {word.removeprefix("-D").split("=")[0] for word in numbers}
    assert len(re.findall(rf"defined\({probe.name.upper()}_\w+\)", source)) == len(probe.family.instructions)
    assert f"#define TILES {probe.tiles} " in source
    assert all(unroll % 2 == 0 for unroll in probe.unrolls)  # steps alternate between two operands


def test_what_gemm_takes_is_not_what_probes_take() -> None:
    assert GEMM_DTYPES[:6] == ("float", "double", "half", "bfloat16", "tf32", "char")
    results = ("", "-half", "-bfloat16")
    assert GEMM_DTYPES[6:] == tuple(name + result for name in ("e4m3", "e5m2") for result in results)
    assert DEVICE_DTYPES == ("float", "double", "half", "int")
    assert set(ALL_DTYPES) == set(DTYPES) - set(GEMM_DTYPES[6:]) - {"fp22"}


def test_a_cpu_shows_its_own_types_and_says_nothing_of_tensor_cores() -> None:
    assert rows(DEVICE, "double") == {"flops": ["run"] * 2}
    assert rows(DEVICE, "half") == {"flops": ["the device does not list cl_khr_fp16"] * 2}
    assert rows(H200, "double", "plain") == {"flops": ["run"] * 2}


def test_a_cpu_shows_the_units_that_it_and_its_driver_have(tmp_path: Path) -> None:
    cpuinfo = tmp_path / "cpuinfo"
    cpuinfo.write_text(
        "model name : x\nflags\t\t: fpu avx512_vnni avx512f avx512_bf16\nflags : avx512_fp16\n"
    )
    device = replace(DEVICE, version="PoCL 3.1", units=cpu_units(cpuinfo))
    assert device.units == ("avx512_bf16", "avx512_vnni")
    assert rows(device, "char")["vnni"] == rows(device, "bfloat16", "matrix")["bf16"] == ["run"]
    assert "fp16" not in rows(device, "half")
    assert rows(device, "half", "every")["fp16"] == ["fp16 needs a CPU with avx512_fp16"] * 2
    other = replace(device, version="OpenCL 1.2")
    assert rows(other, "char", "every")["vnni"] == ["vnni needs Intel's driver or PoCL"] * 2


def test_every_row_that_a_cpu_lacks_has_its_reason_if_asked_for() -> None:
    found = rows(DEVICE, "half", "every")
    assert found["mma"] == ["mma needs an NVIDIA device of compute capability 8.0 or later"] * 4
    assert found["wgmma"] == ["wgmma needs an NVIDIA device of compute capability 9.0"] * 4
    assert rows(DEVICE, "bfloat16", "every")["flops"] == ["the device does not list cl_intel_bfloat16"] * 2
    assert rows(DEVICE, "char", "every")["dot8"] == ["run"]  # four products written out


def test_a_hopper_gpu_has_them_all_by_ptx() -> None:
    found = rows(H200, "half")
    assert found == {"flops": ["run"] * 2, "mma": ["run"] * 2, "wgmma": ["run"] * 2}
    blackwell, ampere = replace(H200, compute_capability=(10, 0)), replace(H200, compute_capability=(8, 0))
    assert rows(blackwell, "half", "every")["wgmma"][0].endswith("9.0; this one has 10.0")
    assert rows(blackwell, "half")["mma"] == ["run"] * 2
    assert rows(blackwell, "half", "every")["mma"] == ["run"] * 4  # with zeros too
    assert "mma" in rows(ampere, "half")
    assert "mma" not in rows(ampere, "fp8")
    assert "wgmma" not in rows(ampere, "half")


def test_a_gemm_on_matrix_units_is_compared_with_their_random_peak() -> None:
    assert rows(H200, "half", "matrix") == {"mma": ["run"] * 2, "wgmma": ["run"] * 2}
    assert rows(H200, "double", "matrix") == {"mma": ["run"]}
    assert rows(DEVICE, "half", "matrix") == {}


def test_rows_of_one_probe_differ_in_their_parameters() -> None:
    steps = peak_plan([H200], ALL_DTYPES, WIDTHS, reach="every")
    keys = [step.row.key if isinstance(step, Skip) else step.key for step in steps]
    assert len(set(keys)) == len(keys)
    labels = [step.label for step in steps if isinstance(step, Case)]
    assert "flops float width 1" in labels
    assert "flops float width 16" in labels
    assert "wgmma half m64n256k16 float zeros" in labels


def test_sources_tell_what_may_be_compiled() -> None:
    sources = {step.source for step in peak_plan([H200], ["half"], [1, 4]) if isinstance(step, Case)}
    assert len(sources) == 2 + 2 + 2  # widths; accumulators of mma and of wgmma, whatever the operands


@pytest.mark.parametrize("allowed", [True, False])
def test_amx_counts_only_if_the_system_allows_its_tiles(
    allowed: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(drivers, "has_tiles", lambda: allowed)
    cpuinfo = tmp_path / "cpuinfo"
    cpuinfo.write_text("flags\t\t: fpu amx_bf16 avx512_vnni amx_tile\n", encoding="utf-8")
    units = cpu_units(cpuinfo)
    assert units == (("amx_bf16", "avx512_vnni") if allowed else ("avx512_vnni",))
    device = replace(DEVICE, version="PoCL 3.1", units=units)
    reason = BY_NAME["cpu-amx"].needs.lacks(device, "bfloat16")
    assert reason == ("" if allowed else "amx needs a CPU with amx_bf16")
