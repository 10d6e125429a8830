"""``gemmbench kernels --resources``."""

from __future__ import annotations

from pathlib import Path

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
