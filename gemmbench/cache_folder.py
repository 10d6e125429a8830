"""The user's cache folder: a file for each device and driver, replaced as a whole.

Whatever is wrong with the folder costs a note, never a run.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Generic, TypeVar

import msgspec
import platformdirs

from gemmbench.facts.file_lock import lock
from gemmbench.facts.records import DeviceFacts
from gemmbench.facts.text import reason_of

_T = TypeVar("_T")
_PATIENCE_S = 10.0  # that another process may take to replace a file
_POLL_S = 0.02


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
            self._note(f"{self._words.unread}: {path}: {reason_of(error)}")
            return None

    def write(self, device: DeviceFacts, content: _T) -> bool:
        """Keep this of a device, in the place of what was kept; whether it could be done."""
        path = self._path_to_write(device)
        if path is None:
            return False
        try:
            replace_file(path, msgspec.json.encode(content))
        except OSError as error:
            self._note(f"{self._words.unwritten}: {path}: {reason_of(error)}")
            return False
        return True

    def change(self, device: DeviceFacts, change: Callable[[_T | None], _T]) -> bool:
        """Replace what is kept of a device, one process at a time, for what cannot be measured again at once.

        A file that cannot be read is put aside.

        Args:
            device: whose.
            change: makes the new content of the old; None if there is none.

        Returns:
            Whether it could be done.
        """
        path = self._path_to_write(device)
        if path is None:
            return False
        try:
            with _alone(path.with_suffix(".lock")):
                content = self.read(device)
                if content is None and path.exists():
                    aside = path.with_suffix(".bad")
                    path.replace(aside)
                    self._note(f"what was there is now {aside}")
                return self.write(device, change(content))
        except OSError as error:
            self._note(f"{self._words.unwritten}: {path}: {reason_of(error)}")
            return False

    def _path_to_write(self, device: DeviceFacts) -> Path | None:
        try:
            return self.path(device)
        except NoHomeError as error:
            self._note(f"{self._words.unwritten}: {error}")
            return None

    def _note(self, text: str) -> None:
        if text not in self.notes:
            self.notes.append(text)


@contextlib.contextmanager
def _alone(path: Path) -> Iterator[None]:
    """Hold a lock file; other processes wait.

    Raises:
        OSError: it cannot be made, or another process does not let go of it.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
    try:
        end = time.monotonic() + _PATIENCE_S
        while not lock(descriptor):
            if time.monotonic() > end:
                raise OSError(errno.EBUSY, "another gemmbench is writing it")
            time.sleep(_POLL_S)
        yield
    finally:
        os.close(descriptor)


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
    """Sixteen hex digits of a device and its driver, for the names of files.

    The compute units are part of it: a CPU driver has those cores alone that its process may use.
    """
    words = (device.platform, device.name, device.version, device.driver, device.pci, device.compute_units)
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
