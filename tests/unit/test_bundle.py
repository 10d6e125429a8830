"""A bundle for a board, written with a pip that downloads nothing."""

from __future__ import annotations

import importlib
import os
import platform
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

import gemmbench as gb
from gemmbench.options.comparing import Bundle as Options

bundle = importlib.import_module("gemmbench.bundle")  # its name is the function's
HERE = f"{sys.version_info[0]}.{sys.version_info[1]}"

#          package    version  what it needs
PACKAGES = {
    "numpy": ("2.4", ()),
    "pyopencl": ("2026.1", ("numpy", "pytools>=2025; python_version < '3.13'", "mako; extra == 'mako'")),
    "pytools": ("2026.1", ("siphash24>=1.6", "windows-only; sys_platform == 'win32'")),
    "siphash24": ("1.9", ()),
}


class Pip:
    """Puts packages of a table into the folder; None: the network is down."""

    def __init__(self, packages: dict[str, tuple[str, Sequence[str]]] | None) -> None:
        self.packages, self.asked = packages, list[tuple[str, ...]]()

    def __call__(self, site: Path, requirements: Sequence[str], machine: str, python: str) -> str:
        self.asked.append(tuple(requirements))
        if self.packages is None:
            return "Could not connect"
        names = [bundle.Requirement(text).name for text in requirements]
        for name in names:
            if name not in self.packages:
                return f"No matching distribution found for {name}"
        for name in names:
            version, needs = self.packages[name]
            folder = site / f"{name}-{version}.dist-info"
            folder.mkdir()
            lines = [f"Name: {name}", f"Version: {version}", *(f"Requires-Dist: {each}" for each in needs)]
            (folder / "METADATA").write_text("Metadata-Version: 2.1\n" + "\n".join(lines) + "\n")
        return ""


@pytest.fixture
def pip(monkeypatch: pytest.MonkeyPatch) -> Pip:
    made = Pip(dict(PACKAGES))
    monkeypatch.setattr(bundle, "_pip", made)
    monkeypatch.setattr(bundle.importlib.metadata, "requires", lambda _: ["numpy>=1.24", "pyopencl>=2023"])
    return made


def ran(path: Path, *words: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHON": sys.executable}
    return subprocess.run(
        [path / "run", *words], env=environment, capture_output=True, text=True, timeout=300, check=False
    )


def test_it_runs_from_its_own_folder_alone(pip: Pip, tmp_path: Path) -> None:
    made = gb.bundle(tmp_path / "b", machine=platform.machine(), python=HERE)
    assert made.left_out == ()
    assert (tmp_path / "b" / "site" / "gemmbench" / "_kernels" / "common.clh").is_file()
    done = ran(tmp_path / "b", "--version")
    assert (done.returncode, done.stdout) == (0, f"gemmbench, version {gb.__version__}\n")
    code = "import gemmbench.model.kernel_files as k; print(k.folder())"
    site = tmp_path / "b" / "site"
    said = subprocess.run(
        [sys.executable, "-S", "-c", code],  # an editable install would come first
        env={**os.environ, "PYTHONPATH": str(site)},
        cwd=tmp_path,
        capture_output=True,
        text=True,
    ).stdout
    assert said.strip() == str(site / "gemmbench" / "_kernels")


def test_what_is_needed_is_looked_up_for_the_board_and_not_for_this_python(pip: Pip, tmp_path: Path) -> None:
    made = gb.bundle(tmp_path / "b", python="3.12")
    assert made.packages == ("numpy 2.4", "pyopencl 2026.1", "pytools 2026.1", "siphash24 1.9")
    made = gb.bundle(tmp_path / "c", python="3.13")
    assert made.packages == ("numpy 2.4", "pyopencl 2026.1")


def test_what_has_no_wheel_is_left_to_the_board_and_asked_for_there(pip: Pip, tmp_path: Path) -> None:
    assert pip.packages is not None
    del pip.packages["numpy"]
    made = gb.bundle(tmp_path / "b", machine=platform.machine(), python=HERE)
    assert made.left_out == ("numpy",)
    assert ran(tmp_path / "b", "--version").returncode == 0  # this system has it
    script = (tmp_path / "b" / "run").read_text()
    (tmp_path / "b" / "run").write_text(script.replace(" numpy <<", " numpy nosuch <<"))
    done = ran(tmp_path / "b", "--version")
    assert (done.returncode, done.stderr) == (2, "this bundle lacks nosuch, and so does this system\n")


def test_versions_that_do_not_go_together_are_refused(pip: Pip, tmp_path: Path) -> None:
    assert pip.packages is not None
    pip.packages["pyopencl"] = ("2026.1", ("numpy<2",))
    with pytest.raises(gb.UsageError, match=r"^numpy<2 is needed beside numpy 2\.4$"):
        gb.bundle(tmp_path / "b")


def test_another_machine_or_python_is_told_apart(pip: Pip, tmp_path: Path) -> None:
    other = "x86_64" if platform.machine() != "x86_64" else "aarch64"
    gb.bundle(tmp_path / "b", machine=other, python=HERE)
    done = ran(tmp_path / "b", "peak")
    assert done.returncode == 2
    here = f"this is {platform.machine()} with Python {HERE}"
    assert done.stderr == f"this bundle is for {other} with Python {HERE}, and {here}\n"
    gb.bundle(tmp_path / "c", machine=platform.machine(), python="3.99")
    done = ran(tmp_path / "c", "peak")
    assert done.returncode == 2
    assert done.stderr.endswith(f"{here}: PYTHON=python3.99 ./run ... names another\n")


def test_nothing_is_left_of_one_that_could_not_be_downloaded(pip: Pip, tmp_path: Path) -> None:
    pip.packages = None
    with pytest.raises(gb.UsageError, match="pip cannot bring what a bundle needs: Could not connect"):
        gb.bundle(tmp_path / "b")
    assert list(tmp_path.iterdir()) == []


def test_only_a_bundle_is_replaced_and_only_by_force(pip: Pip, tmp_path: Path) -> None:
    gb.bundle(tmp_path / "b")
    with pytest.raises(gb.UsageError, match="exists already; --force replaces a bundle"):
        gb.bundle(tmp_path / "b")
    (tmp_path / "b" / "old").touch()
    gb.bundle(tmp_path / "b", force=True)
    assert not (tmp_path / "b" / "old").exists()
    (tmp_path / "home").mkdir()
    with pytest.raises(gb.UsageError, match="is no bundle, and --force replaces nothing else"):
        gb.bundle(tmp_path / "home", force=True)
    with pytest.raises(gb.UsageError, match="there is no folder"):
        gb.bundle(tmp_path / "no" / "b")


@pytest.mark.parametrize("version", ["3.9", "3", "2.7", "3.11.2", "three"])
def test_a_python_that_gemmbench_does_not_run_on_is_refused(version: str) -> None:
    with pytest.raises(gb.UsageError, match=r"--python takes 3\.10, 3\.11 and so on, not"):
        Options(python=version)


def test_pip_is_asked_for_the_boards_wheels(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    asked: list[str] = []

    def run(command: Sequence[str], **_: object) -> subprocess.CompletedProcess[str]:
        asked.extend(command)
        return subprocess.CompletedProcess(
            command, 1, "", "note\nERROR: one\nERROR: No matching distribution\n"
        )

    monkeypatch.setattr(subprocess, "run", run)
    assert bundle._pip(tmp_path, ["numpy>=1.24"], "aarch64", "3.12") == "No matching distribution"
    assert {"--platform=manylinux_2_28_aarch64", "--python-version=3.12", "--no-deps", "numpy>=1.24"} <= set(
        asked
    )
