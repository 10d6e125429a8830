"""``gemmbench kernels --resources``."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.cli.conftest import Call


def test_every_kernel_is_built_and_none_is_run(call: Call) -> None:
    done = call("kernels", "--resources", "--device", "intel", "--kernel", "naive,tiled")
    assert done.exit_code == 0, done.stderr
    assert [line.split()[:3] for line in done.stdout.splitlines() if "2.00 KiB" in line] == [
        ["naive", "naive", "256"],
        ["tiled", "tiled", "256"],
    ]


def test_work_groups_are_drawn(call: Call, tmp_path: Path) -> None:
    path = tmp_path / "groups.svg"
    done = call("kernels", "--resources", "--device", "intel", "--kernel", "naive,tiled", "--plot", str(path))
    assert done.exit_code == 0, done.stderr
    assert "the largest that the kernel allows" in path.read_text()


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (("--resources", "--kernel", "numpy"), "--kernel numpy: a library's kernels are its own"),
        (("--resources", "--describe", "naive"), "--describe does not fit"),
        (("--plot", "out.png"), "--plot is for --resources"),
        (("--resources", "--plot", "out.gif"), "--plot out.gif: a chart is a .png"),
    ],
)
def test_what_does_not_fit_is_a_sentence(
    call: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: Any, sentence: str
) -> None:
    monkeypatch.chdir(tmp_path)
    done = call("kernels", *words)
    assert (done.exit_code, done.stdout) == (2, "")
    assert sentence in done.stderr
    assert len(done.stderr.splitlines()) == 1
