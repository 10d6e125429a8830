"""A folder for a board: gemmbench, its kernels and what it imports, built for another processor.

The board needs Python, an OpenCL driver and no network; pyopencl's wheel brings the OpenCL loader.
"""

from __future__ import annotations

import importlib.metadata
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from gemmbench import UsageError, __version__
from gemmbench.model import kernel_files
from gemmbench.model.units import reason_of

_SITE = "site"  # what Python imports from
_RUN = "run"
_GLIBC = range(17, 32)  # 2.17 to 2.31 (Debian 11): wheels for an older one run on a newer
_NO_WHEEL = "No matching distribution found"
_TIMEOUT_S = 600

_SCRIPT = """\
#!/bin/sh
# gemmbench {version} for Linux on {machine} with Python {python} and glibc: ./run peak
here=$(CDPATH= cd -- "$(dirname -- "$0")" && pwd)
export PYTHONPATH="$here/{site}" PYTHONSAFEPATH=1 PYTHONDONTWRITEBYTECODE=1
python=${{PYTHON:-python3}}
"$python" - {machine} {python} {left_out} <<'PYTHON' || exit 2
import importlib.util, platform, sys
machine, version, *needed = sys.argv[1:]
here = platform.machine(), "%d.%d" % sys.version_info[:2]
if here != (machine, version):
    text = "this bundle is for %s with Python %s, and this is %s with Python %s"
    hint = "" if here[1] == version else ": PYTHON=python%s ./run ... names another" % version
    sys.exit(text % (machine, version, *here) + hint)
missing = [name for name in needed if importlib.util.find_spec(name) is None]
if missing:
    sys.exit("this bundle lacks %s, and so does this system" % ", ".join(missing))
PYTHON
exec "$python" -m gemmbench "$@"
"""


@dataclass(frozen=True)
class Bundle:
    """A folder that was written."""

    path: Path
    packages: tuple[str, ...]  # name and version of what gemmbench imports, sorted
    left_out: tuple[str, ...]  # those that PyPI has no wheel of: the board's system must have them


def write(path: Path, machine: str, python: str, force: bool = False) -> Bundle:
    """Write a bundle; it stands under its name only once it is complete.

    With ``force`` a bundle is replaced. The machine is as uname -m says, Python's version such as ``3.11``.
    `UsageError` if it cannot be written, or the wheels cannot be had.
    """
    path = Path.cwd() / path
    _check(path, force)
    try:
        with tempfile.TemporaryDirectory(prefix=f".{path.name}-", dir=path.parent) as scratch:
            made = Path(scratch, path.name)
            site = made / _SITE
            site.mkdir(parents=True)
            ignored = shutil.ignore_patterns("__pycache__", "_kernels")
            shutil.copytree(Path(__file__).parent, site / "gemmbench", ignore=ignored)
            shutil.copytree(kernel_files.folder(), site / "gemmbench" / "_kernels")
            left_out = _install(site, machine, python)
            script = _SCRIPT.format(
                version=__version__,
                machine=machine,
                python=python,
                site=_SITE,
                left_out=" ".join(_IMPORTS.get(name, name) for name in left_out),
            )
            (made / _RUN).write_text(script, encoding="utf-8")
            (made / _RUN).chmod(0o755)
            if path.exists():
                shutil.rmtree(path)
            made.rename(path)
    except OSError as error:
        raise UsageError(f"cannot write {path}: {reason_of(error)}") from None
    packages = sorted(f"{name} {version}" for name, version in _there(path / _SITE).items())
    return Bundle(path, tuple(packages), left_out)


_IMPORTS = {"pillow": "PIL"}  # where a package's name is not its module's


def _check(path: Path, force: bool) -> None:
    if not path.parent.is_dir():
        raise UsageError(f"there is no folder {path.parent}")
    if not os.path.lexists(path):
        return
    if not force:
        raise UsageError(f"{path} exists already; --force replaces a bundle")
    if path.is_symlink() or not ((path / _RUN).is_file() and (path / _SITE / "gemmbench").is_dir()):
        raise UsageError(f"{path} is no bundle, and --force replaces nothing else")


def _install(site: Path, machine: str, python: str) -> tuple[str, ...]:
    """Put what gemmbench imports into a folder; the names of what PyPI has no wheel of.

    pip is asked without dependencies, which it would choose for this interpreter and not for the board's.
    `UsageError` if pip cannot, or two packages want different versions of a third.
    """
    try:
        asked = importlib.metadata.requires("gemmbench") or []
    except importlib.metadata.PackageNotFoundError:
        raise UsageError("gemmbench was not installed by pip, so what it needs is not known") from None
    left_out: list[str] = []
    needed = _meant(asked, machine, python)
    while needed:
        there = _there(site)
        for requirement in needed:
            version = there.get(canonicalize_name(requirement.name))
            if version and not requirement.specifier.contains(version, prereleases=True):
                raise UsageError(f"{requirement} is needed beside {requirement.name} {version}")
        known = {*there, *left_out}
        missing = {
            name: str(requirement)
            for requirement in needed
            if (name := canonicalize_name(requirement.name)) not in known
        }
        if missing and (reason := _pip(site, tuple(missing.values()), machine, python)):
            if _NO_WHEEL not in reason:
                raise UsageError(f"pip cannot bring what a bundle needs: {reason}")
            left_out += [  # pip names but the first
                name for name, text in missing.items() if _pip(site, (text,), machine, python)
            ]
        brought = (
            text
            for name in missing
            if name not in left_out
            for distribution in importlib.metadata.distributions(path=[str(site)], name=name)
            for text in distribution.requires or ()
        )
        needed = _meant(brought, machine, python)
    return tuple(sorted(left_out))


def _meant(texts: Iterable[str], machine: str, python: str) -> list[Requirement]:
    """Those of some requirements that are for a board; extras are for none."""
    environment = {
        "python_version": python,
        "python_full_version": f"{python}.0",
        "platform_machine": machine,
        "platform_system": "Linux",
        "sys_platform": "linux",
        "os_name": "posix",
        "implementation_name": "cpython",
        "platform_python_implementation": "CPython",
        "extra": "",
    }
    requirements = map(Requirement, texts)
    return [each for each in requirements if each.marker is None or each.marker.evaluate(environment)]


def _there(site: Path) -> dict[str, str]:
    """The version of each package in a folder."""
    return {
        canonicalize_name(distribution.name): distribution.version
        for distribution in importlib.metadata.distributions(path=[str(site)])
    }


def _pip(site: Path, requirements: Sequence[str], machine: str, python: str) -> str:
    """Unpack wheels for a board into a folder; why pip did not, in a sentence, or ""."""
    platforms = (f"--platform=manylinux_2_{minor}_{machine}" for minor in reversed(_GLIBC))
    command = (
        *(sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-input"),
        *("--no-deps", "--no-compile", "--only-binary=:all:", "--implementation=cp"),
        *platforms,
        *(f"--platform=manylinux2014_{machine}", f"--python-version={python}", f"--target={site}"),
        *requirements,
    )
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_TIMEOUT_S, check=False)
    except subprocess.TimeoutExpired:
        return f"no answer in {_TIMEOUT_S} s"
    if done.returncode == 0:
        return ""
    lines = [line.strip() for line in done.stderr.splitlines() if line.strip()]
    errors = [line.removeprefix("ERROR: ") for line in lines if line.startswith("ERROR: ")]
    return (errors or lines or [f"exit status {done.returncode}"])[-1]
