"""The Containerfile without a container engine: its steps in a folder, then its program in there.

    python -m tools.container [--again] [--root FOLDER] [ARGUMENT...]

The Debian that FROM names is unpacked into FOLDER (build/container); each RUN runs in it by chroot, with ENV
as it is there, then ENTRYPOINT with the arguments, as USER in WORKDIR. ``--again`` keeps the folder of an
earlier call. It is a folder of this machine, not a container: nothing is isolated but the files.

Needs root, the network, and: apt-get install mmdebstrap
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
SOURCE = "/src"  # where --mount=type=bind,target=/src has the checkout
CERTIFICATES = "/run/certificates.crt"
NETWORK = {  # of this machine, whose network may have certificates of its own
    "/etc/resolv.conf": "/etc/resolv.conf",
    "/etc/ssl/certs/ca-certificates.crt": CERTIFICATES,
}


PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


@dataclass
class Image:
    """What a Containerfile asks for."""

    suite: str = ""
    runs: list[tuple[str, dict[str, str]]] = field(default_factory=list)  # with the environment so far
    environment: dict[str, str] = field(default_factory=dict)
    user: str = "root"
    folder: str = "/"
    entrypoint: list[str] = field(default_factory=list)


def instructions(text: str) -> Iterator[tuple[str, str]]:
    """Each instruction and its argument, continued lines joined."""
    lines = "\n".join(line for line in text.splitlines() if not line.lstrip().startswith("#"))
    for line in lines.replace("\\\n", " ").splitlines():
        if words := line.split(maxsplit=1):
            yield words[0], words[1]


def image(text: str) -> Image:
    """What this module understands of a Containerfile, which is what ours uses.

    Raises:
        ValueError: there is an instruction that it does not know.
    """
    made = Image()
    for name, argument in instructions(text):
        if name == "FROM" and (match := re.fullmatch(r"debian:(\w+)-slim", argument)):
            made.suite = match[1]
        elif name == "RUN":
            step = argument.removeprefix(f"--mount=type=bind,target={SOURCE}").strip()
            made.runs.append((step, dict(made.environment)))
        elif name == "ENV":
            key, _, value = argument.partition("=")
            made.environment[key] = value
        elif name == "USER":
            made.user = argument
        elif name == "WORKDIR":
            made.folder = argument
        elif name == "ENTRYPOINT":
            made.entrypoint = json.loads(argument)
        else:
            raise ValueError(f"tools/container.py does not know {name} {argument}")
    return made


def inside(
    root: Path, command: Sequence[str], environment: Mapping[str, str], user: str = "root", folder: str = "/"
) -> int:
    """Run a command in the root; its exit status."""
    words = (
        shutil.which("chroot") or "chroot",
        f"--userspec={user}",
        str(root),
        "env",
        f"--chdir={folder}",
        *command,
    )
    home = "/root" if user == "root" else f"/home/{user}"
    kept = {
        "PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
        "HOME": home,
        **environment,
    }
    return subprocess.run(words, env=kept).returncode


def build(made: Image, root: Path) -> None:
    """Unpack Debian and run the steps.

    Raises:
        subprocess.CalledProcessError: Debian cannot be unpacked.
        SystemExit: a step failed.
    """
    shutil.rmtree(root, ignore_errors=True)
    root.parent.mkdir(parents=True, exist_ok=True)
    subprocess.run(("mmdebstrap", "--variant=minbase", made.suite, str(root)), check=True)
    for source, target in NETWORK.items():
        if Path(source).exists():
            shutil.copy(source, root / target[1:])
    (root / SOURCE[1:]).mkdir()
    network = {"PIP_CERT": CERTIFICATES, "DEBIAN_FRONTEND": "noninteractive"}
    subprocess.run(("mount", "--bind", "-o", "ro", str(ROOT), str(root / SOURCE[1:])), check=True)
    try:
        for step, environment in made.runs:
            print(f"--- RUN {step}", flush=True)
            if status := inside(root, ("sh", "-c", step), environment | network):
                sys.exit(status)
    finally:
        subprocess.run(("umount", str(root / SOURCE[1:])), check=False)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--again", action="store_true", help="keep the folder of an earlier call")
    parser.add_argument("--root", type=Path, default=ROOT / "build" / "container", metavar="FOLDER")
    parser.add_argument("arguments", nargs=argparse.REMAINDER, metavar="ARGUMENT")
    asked = parser.parse_args()
    if os.geteuid() != 0 or shutil.which("mmdebstrap") is None:
        parser.error("it needs root, and mmdebstrap: sudo apt-get install mmdebstrap")
    made = image((ROOT / "Containerfile").read_text(encoding="utf-8"))
    if not (asked.again and asked.root.is_dir()):
        build(made, asked.root)
    mounts = [asked.root / name for name in ("proc", "sys", "dev")]
    for mount in mounts:
        subprocess.run(("mount", "--bind", f"/{mount.name}", str(mount)), check=True)
    try:
        command = (*made.entrypoint, *asked.arguments)
        return inside(asked.root, command, made.environment, made.user, made.folder)
    finally:
        for mount in mounts:
            subprocess.run(("umount", str(mount)), check=False)


if __name__ == "__main__":
    sys.exit(main())
