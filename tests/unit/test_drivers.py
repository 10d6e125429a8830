"""Registering drivers: fake prefixes and a fake environment, no driver and no loader."""

import _ctypes
import importlib.metadata
import importlib.util
import os
import stat
import subprocess
import sys
import tempfile
from pathlib import Path
from types import SimpleNamespace
from typing import NoReturn

import pytest

from gemmbench.opencl import drivers
from gemmbench.opencl.drivers import Driver, Registered

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="the loader reads the registry there")


class Machine:
    """A fake machine: a system folder, a Python environment, a temporary folder, an environment."""

    def __init__(self, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.system = root / "etc" / "OpenCL" / "vendors"
        self.prefix = root / "env"
        self.site = self.prefix / "lib" / "python3" / "site-packages"
        self.temporary = root / "tmp"
        self.environ: dict[str, str] = {}
        for folder in (self.system, self.site, self.temporary):
            folder.mkdir(parents=True)
        monkeypatch.setattr(drivers, "SYSTEM_VENDORS", self.system)
        monkeypatch.setattr(drivers, "_loads", lambda library: False)
        monkeypatch.setattr(sys, "prefix", str(self.prefix))
        monkeypatch.setattr(os, "environ", self.environ)
        monkeypatch.setattr(tempfile, "tempdir", str(self.temporary))
        monkeypatch.setattr(importlib.metadata, "distribution", self._distribution)
        monkeypatch.setattr(importlib.util, "find_spec", self._find_spec)
        monkeypatch.setattr("ctypes.util.find_library", lambda name: None)

    def _distribution(self, name: str) -> importlib.metadata.Distribution:
        found = importlib.metadata.Distribution.discover(name=name, path=[str(self.site)])
        try:
            return next(iter(found))
        except StopIteration:
            raise importlib.metadata.PackageNotFoundError(name) from None

    def _find_spec(self, name: str) -> "SimpleNamespace | None":
        module = self.site / name / "__init__.py"
        return SimpleNamespace(origin=str(module)) if module.exists() else None

    def icd(self, name: str, library: str, folder: "Path | None" = None) -> Path:
        path = (folder or self.system) / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(library)
        return path

    def install(self, name: str, version: str, *files: str, there: bool = True) -> None:
        """A distribution whose files are named relative to site-packages, as RECORD has them."""
        info = self.site / f"{name.replace('-', '_')}-{version}.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
        (info / "RECORD").write_text("".join(f"{file},,\n" for file in files))
        for file in files if there else ():
            path = Path(os.path.normpath(self.site / file))
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(b"a library")

    def install_intel(self) -> str:
        self.install(
            "intel-opencl-rt",
            "2026.2.0",
            "../../libintelocl.so-gdb.py",
            "../../libintelocl.so",
            "../../../etc/OpenCL/vendors/intel-cpu.icd",
        )
        # As shipped: a folder that exists nowhere.
        self.icd("intel-cpu.icd", "/opt/placeholder/libintelocl.so", self.prefix / "etc/OpenCL/vendors")
        (self.prefix / "lib" / "libimf.so").write_bytes(b"")
        return str(self.prefix / "lib" / "libintelocl.so")

    def install_pocl(self) -> str:
        self.install("pocl-binary-distribution", "3.0", "pyopencl/.libs/libpocl-21062cec.so")
        self.icd("pocl.icd", "libpocl-21062cec.so", self.site / "pyopencl" / ".libs")
        return str(self.site / "pyopencl" / ".libs" / "libpocl-21062cec.so")

    @property
    def changed(self) -> dict[str, str]:
        return {name: value for name, value in self.environ.items() if not name.startswith("PYTEST_")}

    def register(self) -> Registered:
        return drivers.register.__wrapped__()

    def shown(self) -> list[str]:
        """The libraries in the folder that the loader was pointed at, in order."""
        return [icd.read_text().strip() for icd in sorted(Path(self.environ["OCL_ICD_VENDORS"]).iterdir())]


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Machine:
    monkeypatch.setattr(drivers, "_before", {})
    return Machine(tmp_path, monkeypatch)


def test_nothing_to_do_leaves_the_environment_alone(machine: Machine) -> None:
    machine.icd("pocl.icd", "libpocl.so.2.10.0")
    registered = machine.register()
    assert machine.changed == {}
    assert registered == Registered(
        (Driver("libpocl.so.2.10.0", "system", str(machine.system / "pocl.icd")),), ()
    )
    assert list(machine.temporary.iterdir()) == []


def test_intel_is_shown_with_the_system(machine: Machine) -> None:
    machine.icd("nvidia.icd", "libnvidia-opencl.so.1\n")
    machine.icd("pocl.icd", "libpocl.so.2.10.0")
    intel = machine.install_intel()
    registered = machine.register()
    assert machine.shown() == ["libnvidia-opencl.so.1", "libpocl.so.2.10.0", intel]
    assert registered.warnings == ()
    driver = Driver(intel, "from this environment: intel-opencl-rt 2026.2.0")
    assert registered.drivers_of(["Intel(R) OpenCL"]) == [driver]


def test_the_folder_is_private_and_used_again(machine: Machine) -> None:
    """A folder for each process was left behind by those that were killed."""
    machine.install_intel()
    machine.register()
    folder = Path(machine.environ["OCL_ICD_VENDORS"])
    assert folder.parent == machine.temporary
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    drivers.release()
    assert machine.changed == {}
    drivers.release()  # again is nothing
    machine.register()
    assert Path(machine.environ["OCL_ICD_VENDORS"]) == folder
    assert list(machine.temporary.iterdir()) == [folder]
    assert all(icd.suffix == ".icd" for icd in folder.iterdir())


def test_a_folder_of_another_user_is_not_used(machine: Machine, tmp_path: Path) -> None:
    machine.install_intel()
    machine.register()
    folder = Path(machine.environ["OCL_ICD_VENDORS"])
    drivers.release()
    folder.rename(tmp_path / "theirs")
    folder.symlink_to(tmp_path / "theirs")
    (warning,) = machine.register().warnings
    assert "is another user's" in warning
    assert machine.changed == {}


def test_the_users_own_setting_comes_back(machine: Machine, tmp_path: Path) -> None:
    machine.environ["OCL_ICD_VENDORS"] = str(tmp_path)
    machine.install_intel()
    machine.register()
    assert machine.environ["OCL_ICD_VENDORS"] != str(tmp_path)
    drivers.release()
    assert machine.environ["OCL_ICD_VENDORS"] == str(tmp_path)


def test_unwritable_temporary_folders_are_a_warning(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full() -> NoReturn:
        raise FileNotFoundError("no usable temporary directory")

    machine.icd("pocl.icd", "libpocl.so.2.10.0")
    intel = machine.install_intel()
    monkeypatch.setattr(tempfile, "gettempdir", full)
    registered = machine.register()
    assert machine.changed == {}
    assert [driver.library for driver in registered.drivers] == ["libpocl.so.2.10.0"]
    assert len(registered.warnings) == 1
    assert intel in registered.warnings[0]


@pytest.mark.parametrize("how", ["folder", "file", "bare file", "library"])
def test_the_users_own_setting_is_honoured(machine: Machine, tmp_path: Path, how: str) -> None:
    machine.icd("system.icd", "libsystem.so")
    own = machine.icd("own.icd", "libown.so", tmp_path / "own")
    machine.icd("bare.icd", "libown.so")
    machine.environ["OCL_ICD_VENDORS"] = {
        "folder": str(own.parent),
        "file": str(own),
        "bare file": "bare.icd",  # looked for in the system's folder
        "library": "libown.so",
    }[how]
    intel = machine.install_intel()
    registered = machine.register()
    assert machine.shown() == ["libown.so", intel]
    found, ours = registered.drivers_of(["Somebody's own", "Intel(R) OpenCL"])
    assert (found.library, ours.library) == ("libown.so", intel)
    assert found.origin == "from OCL_ICD_VENDORS"


def test_drivers_of_oneapi_and_drivers_to_leave_out(machine: Machine) -> None:
    """setvars.sh of oneAPI sets a variable that ocl-icd does not read."""
    machine.icd("bad.icd", "libbad.so")
    machine.icd("good.icd", "libgood.so")
    intel = machine.install_intel()
    machine.environ["OCL_ICD_FILENAMES"] = f"libintelocl_emu.so:{intel}"
    machine.environ[drivers.SKIP] = "libbad.so:/other/libbad.so"
    registered = machine.register()
    assert machine.shown() == ["libgood.so", "libintelocl_emu.so", intel]
    assert [driver.origin for driver in registered.drivers].count("from OCL_ICD_FILENAMES") == 2


def test_opencl_vendor_path_replaces_the_system_folder(machine: Machine, tmp_path: Path) -> None:
    machine.icd("hidden.icd", "libhidden.so")
    machine.icd("own.icd", "libown.so", tmp_path / "own")
    machine.environ["OPENCL_VENDOR_PATH"] = str(tmp_path / "own")
    intel = machine.install_intel()
    machine.register()
    assert machine.shown() == ["libown.so", intel]


@pytest.mark.parametrize(
    "listed", ["{intel}", "{other}/libintelocl.so"], ids=["the same file", "a copy elsewhere"]
)
def test_a_listed_driver_is_not_listed_again(machine: Machine, tmp_path: Path, listed: str) -> None:
    intel = machine.install_intel()
    (tmp_path / "libintelocl.so").write_bytes(Path(intel).read_bytes())
    machine.icd("intel.icd", listed.format(intel=intel, other=tmp_path))
    machine.register()
    assert machine.changed == {}


def test_another_build_is_shown_too(machine: Machine, tmp_path: Path) -> None:
    (tmp_path / "libintelocl.so").write_bytes(b"an older library")
    machine.icd("intel.icd", str(tmp_path / "libintelocl.so"))
    intel = machine.install_intel()
    machine.register()
    assert machine.shown() == [str(tmp_path / "libintelocl.so"), intel]


def test_a_system_entry_that_leads_nowhere_hides_nothing(machine: Machine) -> None:
    machine.icd("intel.icd", "/opt/intel/gone/libintelocl.so")
    (machine.system / "broken.icd").symlink_to("nowhere")
    (machine.system / "empty.icd").write_text("")
    (machine.system / "notes.txt").write_text("libnotes.so")
    intel = machine.install_intel()
    machine.register()
    assert machine.shown() == ["/opt/intel/gone/libintelocl.so", intel]


def test_pocls_wheel_is_shown(machine: Machine) -> None:
    pocl = machine.install_pocl()
    registered = machine.register()
    assert [driver.library for driver in registered.drivers] == [pocl]
    assert registered.drivers[0].origin == "from this environment: pocl-binary-distribution 3.0"
    assert machine.shown() == [pocl]


def test_conda_keeps_its_own_folder(machine: Machine, tmp_path: Path) -> None:
    conda = tmp_path / "conda"
    (conda / "lib").mkdir(parents=True)
    (conda / "lib" / "libpocl.so").write_bytes(b"")
    machine.icd("pocl.icd", str(conda / "lib" / "libpocl.so"), conda / "etc" / "OpenCL" / "vendors")
    machine.environ["CONDA_PREFIX"] = str(conda)
    intel = machine.install_intel()
    machine.register()
    assert machine.shown() == [str(conda / "lib" / "libpocl.so"), intel]


@pytest.mark.parametrize("entry", [None, "libnvidia-opencl.so.1", "/usr/lib/libnvidia-opencl.so.580"])
def test_nvidia_in_a_container(
    machine: Machine, monkeypatch: pytest.MonkeyPatch, entry: "str | None"
) -> None:
    monkeypatch.setattr(sys, "platform", "linux")
    monkeypatch.setattr(drivers, "_loads", lambda library: library == drivers.NVIDIA)
    if entry:
        machine.icd("nvidia.icd", entry)
    registered = machine.register()
    if entry:
        assert machine.changed == {}
    else:
        assert machine.shown() == [drivers.NVIDIA]
        (found,) = registered.drivers_of(["NVIDIA CUDA NVIDIA Corporation OpenCL 3.0 CUDA 13.0"])
        assert found.origin == "libnvidia-opencl.so.1 (no .icd file was installed)"


def test_missing_compiler_support_is_named_with_its_command(machine: Machine) -> None:
    machine.install_intel()
    (machine.prefix / "lib" / "libimf.so").unlink()
    (warning,) = machine.register().warnings
    assert "pip install intel-cmplr-lib-rt" in warning


def test_a_missing_library_is_named_with_its_command(machine: Machine) -> None:
    machine.install("intel-opencl-rt", "2026.2.0", "../libintelocl.so", there=False)
    registered = machine.register()
    assert machine.changed == {}
    assert registered.drivers == ()
    (warning,) = registered.warnings
    assert "pip install --force-reinstall intel-opencl-rt" in warning


def test_platforms_have_their_drivers_by_name_and_of_one_name_in_the_loaders_order(tmp_path: Path) -> None:
    real = tmp_path / "libpocl.so.2.10.0"
    real.write_bytes(b"")
    (tmp_path / "libpocl.so.2").symlink_to(real)
    pip = Driver(str(tmp_path / "libpocl.so.2"), "from this environment: pocl-binary-distribution 3.0")
    again, other = Driver(str(real), "system"), Driver("/opt/libpocl.so.1", "system")
    intel, graphics = Driver("libintelocl.so", "system"), Driver("libigdrcl.so", "system")
    registered = Registered((pip, again, graphics, other, intel))
    pocl = "Portable Computing Language The pocl project OpenCL 3.0 PoCL 3.1 Linux"
    platforms = [
        pocl,
        "Intel(R) OpenCL Intel(R) Corporation",
        "Intel(R) OpenCL Graphics",
        pocl,
        "Clover Mesa",
    ]
    assert registered.drivers_of(platforms) == [pip, intel, graphics, other, None]


@pytest.mark.parametrize(
    ("system", "machine_name", "libc", "expected"),
    [
        ("linux", "x86_64", "glibc", 'pip install "gemmbench[cpu]"'),
        ("win32", "AMD64", "", 'pip install "gemmbench[cpu]"'),
        ("linux", "aarch64", "glibc", "conda install -c conda-forge pocl"),
        ("linux", "x86_64", "", "conda install -c conda-forge pocl"),  # musl
        ("darwin", "arm64", "", "brew install pocl"),
    ],
)
def test_the_command_fits_the_system(
    machine: Machine,
    monkeypatch: pytest.MonkeyPatch,
    system: str,
    machine_name: str,
    libc: str,
    expected: str,
) -> None:
    monkeypatch.setattr(sys, "platform", system)
    monkeypatch.setattr("platform.machine", lambda: machine_name)
    monkeypatch.setattr("platform.libc_ver", lambda: (libc, ""))
    assert drivers.install_command() == expected
    assert drivers.no_device_message(()) == (
        f"no OpenCL device was found; a driver for this CPU comes with: {expected}"
    )


def test_pipx_gets_its_own_command(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "platform", "linux")
    monkeypatch.setattr(sys, "prefix", "/home/me/.local/share/pipx/venvs/gemmbench")
    monkeypatch.setattr("platform.machine", lambda: "x86_64")
    monkeypatch.setattr("platform.libc_ver", lambda: ("glibc", "2.36"))
    assert drivers.install_command() == "pipx inject gemmbench intel-opencl-rt intel-cmplr-lib-rt"


def test_drivers_without_a_device_are_problems(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The loader skips them without a word: a library that is missing, rusticl, a GPU that is gone."""
    monkeypatch.delenv("RUSTICL_ENABLE", raising=False)
    library = _ctypes.__file__  # any library that can be loaded
    gone, works = Driver("/gone/libgone.so", "", "/etc/gone.icd"), Driver(library, "", "works.icd")
    rusticl = Driver(str(tmp_path / "libRusticlOpenCL.so.1"), "system", "rusticl.icd")
    Path(rusticl.library).symlink_to(library)
    registered = Registered((gone, works, rusticl), warnings=("Intel's runtime cannot load",))
    missing, disabled = drivers.problems(registered, {library})
    assert missing == (
        "/etc/gone.icd: /gone/libgone.so cannot be loaded: cannot open shared object file: "
        "No such file or directory",
        "Install what is missing, or remove /etc/gone.icd",
    )
    assert "no device without RUSTICL_ENABLE" in disabled[0]
    message = drivers.no_device_message(drivers.problems(registered, ()))
    assert message.startswith("no OpenCL device was found. Intel's runtime cannot load. /etc/gone.icd: ")
    assert f"works.icd: {library} can be loaded but shows no device. Check that its hardware" in message
    monkeypatch.setenv("RUSTICL_ENABLE", "radeonsi")
    assert drivers.problems(registered, {library}) == (missing,)


def test_register_answers_once(machine: Machine) -> None:
    machine.install_intel()
    drivers.register.cache_clear()
    try:
        first = drivers.register()
        assert drivers.register() is first
    finally:
        drivers.register.cache_clear()


def test_a_grandchild_registers_nothing_more(machine: Machine) -> None:
    machine.icd("pocl.icd", "libpocl.so.2.10.0")
    intel = machine.install_intel()
    machine.register()
    inherited = machine.changed
    again = machine.register()
    assert machine.changed == inherited
    assert again.drivers[0] == Driver(intel, "from this environment: intel-opencl-rt 2026.2.0")


def test_it_does_not_import_pyopencl() -> None:
    code = "import sys; from gemmbench.opencl import drivers; drivers.register(); print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "gemmbench.opencl.drivers" in done.stdout.split()
    assert "pyopencl" not in done.stdout.split()


@pytest.mark.parametrize(
    ("library", "sentence"),
    [
        (
            "/a b/lib/libintelocl.so",
            "Intel's runtime does not work from a folder whose path has a space, /a b/lib",
        ),
        (
            "/a\tb/libintelocl.so.2",
            "Intel's runtime does not work from a folder whose path has a space, /a\tb",
        ),
        ("/ab/lib/libintelocl.so", "the driver lists it, but Context failed: OUT_OF_RESOURCES"),
        ("/a b/libpocl.so.2", "the driver lists it, but Context failed: OUT_OF_RESOURCES"),
        ("libintelocl.so", "the driver lists it, but Context failed: OUT_OF_RESOURCES"),
        ("", "the driver lists it, but Context failed: OUT_OF_RESOURCES"),
    ],
)
def test_why_a_listed_device_makes_no_context(library: str, sentence: str) -> None:
    problem, fix = drivers.no_context(library, "Context failed: OUT_OF_RESOURCES")
    assert (problem, fix != "") == (sentence, True)


def test_a_link_into_a_folder_with_a_space_is_followed(tmp_path: Path) -> None:
    (tmp_path / "my bench").mkdir()
    (tmp_path / "libintelocl.so").symlink_to(tmp_path / "my bench" / "libintelocl.so")
    assert "has a space" in drivers.no_context(str(tmp_path / "libintelocl.so"), "")[0]
