"""Numbers of thousands of digits are bad input; environment variables that differ are named."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import click
import pytest

from gemmbench.measure.machine import host_facts
from gemmbench.model.run_file import load
from gemmbench.regress.compare import compare
from gemmbench.suite.options import Number
from tests.cli.conftest import ROOT, Call

HUGE = "9" * 5000


@pytest.mark.parametrize(
    "words",
    [
        f"square --sizes {HUGE}", f"square --max {HUGE}", f"square --device {HUGE}",
        f"square --device {HUGE}:0",
        f"square --batch {HUGE}", f"sweep-k --k-max {HUGE}", f"gemm -m {HUGE}", f"gemm --lda {HUGE}",
        f"gemm --param TS={HUGE}", f"gemm --param TS=1,{HUGE}", f"gemm --alpha {HUGE}", f"gemm --seed {HUGE}",
        f"gemm --budget {HUGE}", f"tune --kernel naive --budget {HUGE}", f"workloads --prompt {HUGE}",
    ],
)  # fmt: skip
def test_a_huge_number_is_one_short_sentence(words: str, call: Call) -> None:
    done = call(*words.split(), "--dry-run")
    assert (done.exit_code, done.stdout) == (2, "")
    assert done.stderr.count("\n") == 1
    assert len(done.stderr) < 500


@pytest.mark.parametrize("value", ["nan", "inf", "-inf"])
def test_a_number_with_a_bound_is_finite(value: str) -> None:
    with pytest.raises(click.BadParameter, match=f"{value} is not a finite number"):
        Number(0).convert(value, None, None)


def test_huge_numbers_in_a_file_of_shapes(call: Call, tmp_path: Path) -> None:
    (tmp_path / "shapes.csv").write_text(f"m,n,k\n{HUGE},8,8\n")
    done = call("workloads", "--file", str(tmp_path / "shapes.csv"), "--dry-run")
    assert (done.exit_code, done.stdout) == (2, "")
    assert len(done.stderr) < 500


def test_variables_that_change_what_is_measured_are_saved(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("POCL_AFFINITY", "OPENBLAS_THREAD_TIMEOUT", "OMP_NUM_THREADS", "CUDA_VISIBLE_DEVICES"):
        monkeypatch.delenv(name, raising=False)
    before = host_facts().environment
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    monkeypatch.setenv("POCL_AFFINITY", "1")  # as gemmbench sets it
    monkeypatch.setenv("HOME", "/somewhere")
    assert host_facts().environment == {**before, "OMP_NUM_THREADS": "1"}


def test_compare_names_a_variable_that_differs() -> None:
    run = load(ROOT / "plots" / "cpu-intel-square.jsonl")
    host = replace(run.header.host, environment={"OMP_NUM_THREADS": "1"})
    other = replace(run, header=replace(run.header, host=host))
    sentence = "OMP_NUM_THREADS was not set in the baseline, and is 1 now."
    assert sentence in compare([run], [other]).remarks
    assert "OMP_NUM_THREADS was 1 in the baseline, and is not set now." in compare([other], [run]).remarks
    assert not any("OMP" in remark for remark in compare([other], [other]).remarks)
