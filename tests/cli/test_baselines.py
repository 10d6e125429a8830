"""--baseline and the groups of --kernel: what is planned, measured and refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from gemmbench.ladder import BEST, LADDER, PUBLISHED
from gemmbench.model.run_file import load
from tests.cli.conftest import Call

SQUARE = ("square", "--sizes", "8", "--no-peak", "--device", "0")


def asked(call: Call, tmp_path: Path, *words: str) -> list[tuple[str, int, str]]:
    """Variant, device and status of each row."""
    path = tmp_path / "run.jsonl"
    result = call(*SQUARE, "--save", str(path), *words)
    assert result.exit_code == 0, result.stderr
    return [(row.variant, row.device, row.status) for row in load(path).rows]


@pytest.mark.parametrize("baseline", ["all", "clblast"])
def test_a_library_that_is_not_installed_is_reported(
    baseline: str, call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GEMMBENCH_FAKE_FAULTS", "clblast 8 unsupported")
    result = call("square", "--sizes", "8", "--kernel", "naive", "--baseline", baseline, "--no-peak")
    assert result.exit_code == 0
    assert "not supported: clblast at 8: install CLBlast" in result.stdout
    assert "cublas" not in result.stdout  # which runs on NVIDIA's GPUs alone


LIBRARIES = ["numpy", "clblast"]  # those that run on a CPU


def test_every_library_runs_after_the_kernels_of_each_problem(call: Call, tmp_path: Path) -> None:
    rows = asked(call, tmp_path, "--kernel", "tiled,naive", "--baseline", "all", "--sizes", "8,16")
    host = [("numpy", -1, "ok"), ("mkl", -1, "ok")]
    assert rows == [("naive", 0, "ok"), ("tiled", 0, "ok"), *host, ("clblast", 0, "ok")] * 2


@pytest.mark.parametrize(
    ("baseline", "names"),
    [
        ("none", []),
        ("numpy", ["numpy"]),
        ("clblast,numpy", ["numpy", "clblast"]),
        ("all", ["numpy", "mkl", "clblast"]),
    ],
)
def test_libraries_by_name(call: Call, tmp_path: Path, baseline: str, names: list[str]) -> None:
    rows = asked(call, tmp_path, "--kernel", "naive", "--baseline", baseline)
    assert [variant for variant, *_ in rows] == ["naive", *names]


def test_each_device_has_its_libraries_and_the_host_one(call: Call) -> None:
    result = call("square", "--sizes", "8", "--kernel", "naive", "--baseline", "clblast,numpy", "--no-peak",
                  "--device", "all", "--dry-run")  # fmt: skip
    lines = [line.split()[0] for line in result.stdout.splitlines() if line[0] == " " or line == "Host"]
    assert lines == ["naive", "clblast", "Host", "numpy", "naive", "clblast"]


def test_the_ladder_and_the_best_are_all() -> None:
    assert {*PUBLISHED, *BEST} >= {*LADDER}
    assert not {*PUBLISHED} & {*BEST}
    assert PUBLISHED[0] == "naive"
    assert {"cpu-packed", "gpu-tile", "nv-async"} <= {*BEST}


def test_the_best_are_those_that_the_device_runs(call: Call, tmp_path: Path) -> None:
    rows = asked(call, tmp_path, "--kernel", "best", "--baseline", "none")
    assert rows
    assert {status for *_, status in rows} == {"ok"}
    assert "nv-async" not in [variant for variant, *_ in rows]
    named = asked(call, tmp_path, "--kernel", "best,nv-async", "--baseline", "none", "--force")
    assert ("nv-async", 0, "unsupported") in named, "who names a kernel is told why it does not run"


def test_the_ladder_and_the_best_together(call: Call, tmp_path: Path) -> None:
    rows = asked(call, tmp_path, "--kernel", "ladder,best", "--baseline", "none")
    names = [variant for variant, *_ in rows]
    assert names[: len(PUBLISHED)] == list(PUBLISHED)
    assert "cpu-packed" in names[len(PUBLISHED) :]


def test_where_none_of_the_best_runs_each_says_why(call: Call) -> None:
    result = call("square", "--sizes", "8", "--no-peak", "--device", "pocl", "--dtype", "tf32",
                  "--kernel", "best", "--baseline", "none", "--dry-run")  # fmt: skip
    assert "  cpu-packed tf32 8x8x8: not supported: cpu-packed supports only" in result.stdout


def test_a_single_problem_takes_them_too(call: Call) -> None:
    result = call("gemm", "-m", "8", "--kernel", "best", "--baseline", "clblast", "--no-peak", "--dry-run")
    assert "  clblast float 8x8x8" in result.stdout
    assert "nv-async" not in result.stdout


def test_there_is_nothing_to_build_for_a_library(call: Call) -> None:
    result = call("kernels", "--resources", "--kernel", "clblast,numpy")
    assert result.exit_code == 2
    assert "tiled" in call("kernels", "--resources", "--kernel", "tiled,numpy").stdout
