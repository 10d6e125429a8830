"""``gemmbench kernels --resources``."""

from __future__ import annotations

from tests.cli.conftest import Call


def test_every_kernel_is_built_and_none_is_run(call: Call) -> None:
    done = call("kernels", "--resources", "--device", "intel", "--kernel", "naive,tiled")
    assert done.exit_code == 0, done.stderr
    assert [line.split()[:3] for line in done.stdout.splitlines() if "2.00 KiB" in line] == [
        ["naive", "naive", "256"],
        ["tiled", "tiled", "256"],
    ]


def test_it_does_not_mix_with_what_shows_no_device(call: Call) -> None:
    done = call("kernels", "--resources", "--describe", "naive")
    assert (done.exit_code, done.stdout) == (2, "")
    assert "--describe and --run do not fit" in done.stderr
