"""``make board``: a bundle on Debian for aarch64, emulated: `square`, `gemm`, `peak` from the bundle alone.

    python -m tools.board [--again] [--skip exact,square,gemm,peak] [OUT]

Debian's packages are unpacked for another processor and never installed, and qemu runs them, in a user
namespace that has no network, its own mounts and its own registration of the emulator (Linux 6.7 or newer).
The saved runs are copied to OUT (build/board), shown and drawn by this machine's gemmbench. ``--again``
keeps the root and the bundle of an earlier call. Emulated, every build takes seconds, so that all kernels
are tried by the exact tests of `make drivers`, and a few are measured.

Needs: apt-get install mmdebstrap qemu-user-static
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
import time
from pathlib import Path

from tools import drivers

ROOT = Path(__file__).resolve().parents[1]
PACKAGES = ("dash", "coreutils", "python3", "pocl-opencl-icd")  # for Debian's: a shell, Python, the driver
QEMU = "/usr/bin/qemu-aarch64-static"
MERGED = "/usr/share/mmdebstrap/hooks/merged-usr"
SAVED = {
    "square": "--sizes 1,7,64,100 --dtype float,double --kernel naive,dot-v8 --no-peak --budget 0.5",
    "gemm": "-m 64 --kernel naive --budget 2",
    "peak": "--types float --budget 2",
}

# As root of a namespace: the emulator is known to this namespace's kernel only, by the head of an ELF file.
ENTER = r"""
set -e
cd "$1"; shift
mount -t binfmt_misc none run
printf '%s' ':aarch64:M::\x7fELF\x02\x01\x01\x00\x00\x00\x00\x00\x00\x00\x00\x00\x02\x00\xb7\x00'\
':\xff\xff\xff\xff\xff\xff\xff\x00\xff\xff\xff\xff\xff\xff\xff\xff\xfe\xff\xff\xff:'"$QEMU:F" > run/register
for each in proc sys dev; do mount --rbind "/$each" "$each"; done
exec env -i PATH=/usr/sbin:/usr/bin HOME=/root LANG=C.UTF-8 chroot . "$@"
"""


def entered(root: Path, *command: str) -> tuple[str, ...]:
    """A command in an emulated root, without a network."""
    unshared = ("unshare", "--user", "--map-root-user", "--mount", "--net")
    return (*unshared, "env", f"QEMU={QEMU}", "sh", "-c", ENTER, "sh", str(root), *command)


def prepare(folder: Path) -> tuple[Path, Path]:
    """A root of Debian 12 for aarch64 with PoCL, and a bundle in it."""
    root = folder / "root"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    (folder / "root.log").touch()
    with (folder / "root.log").open("w") as log:
        subprocess.run(
            ("mmdebstrap", "--variant=extract", "--arch=arm64", f"--hook-dir={MERGED}",
             f"--include={','.join(PACKAGES)}", "bookworm", str(root)),
            stdout=log, stderr=log, check=True,
        )  # fmt: skip
    for name in ("proc", "sys", "dev", "run", "root", "opt", "tmp"):
        (root / name).mkdir(exist_ok=True)
    bundle = root / "opt" / "gemmbench"
    command = (sys.executable, "-m", "gemmbench", "bundle", str(bundle), "--machine", "aarch64")
    subprocess.run((*command, "--python", "3.11"), check=True)
    return root, bundle


def exact_tests(root: Path) -> drivers.Driver:
    """The exact tests of `make drivers`, in the root, with what the bundle holds."""
    inside = ("env", "PYTHONPATH=/opt/gemmbench/site", "python3", "/root/drivers.py", "--worker", "--few")
    how = "emulated by qemu in user mode on x86_64"
    return drivers.Driver("PoCL", "", "Debian: pocl-opencl-icd", {}, entered(root, *inside), how)


def measure(folder: Path, root: Path, name: str, words: str) -> None:
    """Run a command from the bundle; show and draw its saved run here."""
    begin = time.monotonic()
    saved = ("--time-limit", "900", "--save", f"/root/{name}.jsonl", "--force")
    done = subprocess.run(entered(root, "/opt/gemmbench/run", name, *words.split(), *saved), check=False)
    print(f"{name}: exit status {done.returncode} after {time.monotonic() - begin:.0f} s", flush=True)
    file = folder / f"{name}.jsonl"
    shutil.copy(root / "root" / file.name, file)
    here = (sys.executable, "-m", "gemmbench")
    subprocess.run((*here, "show", file), check=False)
    subprocess.run((*here, "plot", file, "--out", file.with_suffix(".png")), check=False)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", nargs="?", type=Path, default=ROOT / "build" / "board", metavar="OUT")
    parser.add_argument("--again", action="store_true")
    parser.add_argument("--skip", default="", metavar="exact,square,gemm,peak")
    asked = parser.parse_args()
    again, folder, skipped = asked.again, asked.folder, asked.skip.split(",")
    root, bundle = folder / "root", folder / "root" / "opt" / "gemmbench"
    if not (again and (bundle / "run").is_file()):
        root, bundle = prepare(folder)
    if "exact" not in skipped:
        shutil.copy(drivers.__file__, root / "root" / "drivers.py")
        driver = exact_tests(root)
        drivers.keep(drivers.run(driver, drivers.earlier(driver, "aarch64") if again else None))
        subprocess.run((sys.executable, "-m", "tools.drivers", "--write"), cwd=ROOT, check=True)
    for name, words in SAVED.items():
        if name not in skipped:
            measure(folder, root, name, words)
    return 0


if __name__ == "__main__":
    sys.exit(main())
