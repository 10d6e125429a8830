"""The kernels are found from a wheel, from an editable install and from a checkout."""

import json
import os
import shutil
import subprocess
import sys
import venv
from pathlib import Path
from zipfile import ZipFile

import pytest

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

ROOT = Path(__file__).resolve().parents[2]

PROBE = """
import json
from gemmbench.model import kernel_files
folder = kernel_files.folder()
files = sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file())
text = {name: kernel_files.text(name) for name in files}
print(json.dumps({"folder": str(folder), "text": text}))
"""


@pytest.fixture(scope="module")
def checkout(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the whole tree, so that a build leaves nothing in the real one."""
    copy = tmp_path_factory.mktemp("checkout") / "gemmbench"
    ignored = shutil.ignore_patterns("__pycache__", ".*", "build", "dist", "*.jsonl", "*.png")
    shutil.copytree(ROOT, copy, ignore=ignored)
    return copy


def build(hook: str, checkout: Path, folder: Path) -> Path:
    """Run one of the build backend's hooks, as pip would: no network, no environment of its own."""
    code = f"import sys; from hatchling.build import {hook}; print({hook}(sys.argv[1]))"
    done = subprocess.run(
        [sys.executable, "-c", code, str(folder)], cwd=checkout, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return folder / done.stdout.split()[-1]


@pytest.fixture(scope="module")
def wheel(checkout: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build("build_wheel", checkout, tmp_path_factory.mktemp("wheel"))


def installed(wheel: Path, folder: Path) -> Path:
    """The interpreter of a fresh environment that holds this wheel and nothing else."""
    venv.create(folder, with_pip=False, symlinks=os.name != "nt")
    python = folder / ("Scripts/python.exe" if os.name == "nt" else "bin/python")
    code = "import sysconfig; print(sysconfig.get_path('purelib'))"
    site = subprocess.run([str(python), "-I", "-c", code], capture_output=True, text=True, check=True)
    # This environment's pip, because a pip of its own takes an environment four seconds.
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "install", "--quiet"]
    where = ["--target", site.stdout.strip(), "--no-deps", "--no-index"]
    subprocess.run([*pip, *where, str(wheel)], check=True)
    return python


def probe(python: str | Path, *flags: str, cwd: Path) -> tuple[Path, dict[str, str]]:
    done = subprocess.run(
        [str(python), *flags, "-c", PROBE], cwd=cwd, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    return Path(found["folder"]), found["text"]


@pytest.fixture(scope="module")
def expected(checkout: Path) -> dict[str, str]:
    """What a checkout gives, run in place."""
    folder, text = probe(sys.executable, cwd=checkout)
    assert folder == (checkout / "kernels").resolve()
    assert "common.clh" in text
    assert any(name.startswith("gemm/") for name in text)
    assert not any("#include" in source for name, source in text.items() if name.endswith(".cl"))
    return text


def test_a_wheel_holds_the_kernels(wheel: Path, expected: dict[str, str], tmp_path: Path) -> None:
    python = installed(wheel, tmp_path / "env")
    folder, text = probe(python, "-I", cwd=tmp_path)
    assert tmp_path.resolve() in folder.parents
    assert folder.name == "_kernels"
    assert text == expected


def test_an_editable_install_reads_the_checkout(
    checkout: Path, expected: dict[str, str], tmp_path: Path
) -> None:
    python = installed(build("build_editable", checkout, tmp_path), tmp_path / "env")
    folder, text = probe(python, "-I", cwd=tmp_path)
    # Not a copy: a kernel edited there must be the kernel that runs.
    assert folder == (checkout / "kernels").resolve()
    assert text == expected


def test_the_wheel_is_typed_and_complete(wheel: Path) -> None:
    with ZipFile(wheel) as archive:
        names = set(archive.namelist())
    assert "gemmbench/py.typed" in names
    assert any(name.endswith(".data/data/share/man/man1/gemmbench.1") for name in names)
    assert any(name.endswith("licenses/LICENSE") for name in names)
    version = next(name for name in names if name.endswith(".dist-info/METADATA")).partition("/")[0]
    assert {name.partition("/")[0] for name in names} == {
        "gemmbench",
        version,
        version.replace("dist-info", "data"),
    }
    modules = {path.relative_to(ROOT).as_posix() for path in (ROOT / "gemmbench").rglob("*.py")}
    assert modules <= names


def test_the_sdist_has_all_that_git_has() -> None:
    """An sdist tests itself: whatever the tests and the Makefile read is in it. `make dist` tries it."""
    if not (ROOT / ".git").exists():
        pytest.skip("this is no checkout")
    with (ROOT / "pyproject.toml").open("rb") as file:
        include = tomllib.load(file)["tool"]["hatch"]["build"]["targets"]["sdist"]["include"]
    done = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True)
    tracked = {name.partition("/")[0] for name in done.stdout.splitlines()}
    assert tracked - {"pyproject.toml"} == set(include)


def test_a_broken_installation_says_so(checkout: Path, tmp_path: Path) -> None:
    shutil.copytree(checkout / "gemmbench", tmp_path / "gemmbench")
    code = "from gemmbench.model import kernel_files; kernel_files.folder()"
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.returncode != 0
    assert "kernels folder is neither in" in done.stderr
