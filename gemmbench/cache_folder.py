"""The user's cache folder: a file for each device and driver, replaced as a whole.

Whatever is wrong with the folder costs a note, never a run.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Generic, TypeVar

import msgspec
import platformdirs

from gemmbench.facts.records import DeviceFacts

_T = TypeVar("_T")


@dataclass(frozen=True)
class Words:
    """How a sort of file is spoken of when something is wrong with it."""

    unread: str  # "kept peaks cannot be read, so that they are measured again"
    unwritten: str  # "peaks are not kept for the next run"


class NoHomeError(Exception):
    """There is no folder for caches, as in a container with a made-up user; the message is for users."""


class DeviceFiles(Generic[_T]):
    """Files of one sort, one for each device and driver.

    Attributes:
        notes: what went wrong, for the user.
    """

    def __init__(self, kind: type[_T], name: str, words: Words, folder: Path | None = None) -> None:
        """Open nothing yet.

        Args:
            kind: a frozen dataclass, what a file holds.
            name: of the sort, and of its folder.
            words: for notes.
            folder: another folder than the user's own.
        """
        self._kind, self._words = kind, words
        self._folder, self._name = folder, name
        self.notes: list[str] = []

    def path(self, device: DeviceFacts) -> Path:
        """The file of a device and driver; it need not exist.

        Raises:
            NoHomeError: there is no folder that it could be in.
        """
        return (self._folder or subfolder(self._name)) / f"{device_key(device)}.json"

    def read(self, device: DeviceFacts) -> _T | None:
        """What is kept of a device; None if nothing is, or it cannot be read."""
        try:
            path = self.path(device)
        except NoHomeError:
            return None
        try:
            return msgspec.json.decode(path.read_bytes(), type=self._kind)
        except (FileNotFoundError, NotADirectoryError):
            return None
        except (OSError, msgspec.MsgspecError, UnicodeDecodeError) as error:
            self._note(f"{self._words.unread}: {path}: {why(error)}")
            return None

    def write(self, device: DeviceFacts, content: _T) -> None:
        """Keep this of a device, in the place of what was kept."""
        try:
            path = self.path(device)
        except NoHomeError as error:
            self._note(f"{self._words.unwritten}: {error}")
            return
        try:
            replace_file(path, msgspec.json.encode(content))
        except OSError as error:
            self._note(f"{self._words.unwritten}: {path}: {why(error)}")

    def _note(self, text: str) -> None:
        if text not in self.notes:
            self.notes.append(text)


def subfolder(name: str) -> Path:
    """Where one sort of thing is kept; it need not exist.

    Raises:
        NoHomeError: neither the environment nor the system says where the user's files are.
    """
    try:
        folder = platformdirs.user_cache_path("gemmbench")
    except RuntimeError:
        folder = Path("~")  # what older versions of platformdirs answer instead: a folder of that name
    if not folder.is_absolute():
        raise NoHomeError("there is no home folder (set HOME or XDG_CACHE_HOME)")
    return folder / name


def device_key(device: DeviceFacts) -> str:
    """Sixteen hex digits of a device and its driver, for the names of files."""
    words = (device.platform, device.name, device.version, device.driver, device.pci)
    return hashlib.sha256(repr(words).encode()).hexdigest()[:16]


def replace_file(path: Path, data: bytes) -> None:
    """Put a whole file in the place of another; readers see the one or the other.

    Two runs may end at the same time: whoever comes last wins.

    Raises:
        OSError: it cannot be written; nothing is left behind.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor, name = tempfile.mkstemp(dir=path.parent)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
        Path(name).replace(path)
    except OSError:
        with contextlib.suppress(OSError):
            Path(name).unlink()
        raise


def why(error: Exception) -> str:
    """What went wrong with a file, to stand in a sentence."""
    text = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
    return text[:1].lower() + text[1:]
