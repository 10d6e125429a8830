"""Lines of JSON between an instrument and its parent."""

from __future__ import annotations

import contextlib
import json
import select
import socket
import threading
import time
from collections import deque
from typing import IO, Any

import msgspec

from gemmbench.model import instrument

_KINDS: dict[str, type] = {
    kind.__name__: kind
    for kind in (
        *(instrument.Open, instrument.Build, instrument.Prepare, instrument.Verify),
        *(instrument.AskBatch, instrument.Release),
        *(instrument.Opened, instrument.Built, instrument.Prepared, instrument.Verified),
        *(instrument.Batch, instrument.Released, instrument.Refusal),
    )
}


def encode(message: object) -> bytes:
    """A request or an answer as a line."""
    value = (type(message).__name__, message)
    try:
        return msgspec.json.encode(value) + b"\n"
    except UnicodeEncodeError:  # a file's name may hold bytes that are no text
        return json.dumps(msgspec.to_builtins(value)).encode() + b"\n"


def decode(line: bytes) -> Any:
    """The request or answer in a line.

    Raises:
        ValueError: it is none.
    """
    try:
        try:
            kind, value = msgspec.json.decode(line, type=tuple[str, msgspec.Raw])
            return msgspec.json.decode(value, type=_KINDS[kind])
        except msgspec.DecodeError:
            kind, content = json.loads(line)
            return msgspec.convert(content, type=_KINDS[kind])
    except (msgspec.MsgspecError, LookupError, TypeError, ValueError) as error:
        raise ValueError(f"not of protocol {instrument.PROTOCOL} of the instrument: {error}") from None


class Pipe:
    """Both directions of a connection.

    A thread reads and rings a bell, since not every system can wait for a pipe for so long and no longer. The
    bell is a socket: unlike a lock's, its waiting is not disturbed by a clock that is set meanwhile.
    """

    def __init__(self, source: IO[bytes], sink: IO[bytes]) -> None:
        self._source, self._sink = source, sink
        self._bell, self._ringer = socket.socketpair()
        self._lines: deque[bytes] = deque()
        self._next = b""  # a line that was waited for, and not received yet
        self._closed = False
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        line = b"?"
        with self._source, self._ringer, contextlib.suppress(OSError):  # nobody listens any more
            while line:
                line = self._source.readline()
                self._lines.append(line)
                self._ringer.send(b"!")

    def send(self, message: object) -> None:
        """Send a request or an answer.

        Raises:
            OSError: the other end is closed.
        """
        self._sink.write(encode(message))
        self._sink.flush()

    def fileno(self) -> int:
        """What can be selected for a line."""
        return self._bell.fileno()

    def wait(self, seconds: float | None = 0.0) -> bool:
        """Wait for a line, or the other end's closing, for so long at most; whether it is there."""
        if not self._next and not self._closed:
            patience = None if seconds is None else max(0.0, seconds)
            if not select.select([self], [], [], patience)[0]:
                return False
            self._bell.recv(1)
            self._next = self._lines.popleft()
            # An unfinished line: the other end was killed while it wrote.
            self._closed = not self._next.endswith(b"\n")
        return True

    def receive(self) -> Any:
        """The next request or answer, once it is there.

        Raises:
            EOFError: the other end is closed.
            ValueError: it is neither.
        """
        self.wait(None)
        if self._closed:
            raise EOFError
        line, self._next = self._next, b""
        return decode(line)

    def ended(self, seconds: float) -> bool:
        """Whether the other end is closed within so long; what it still says is dropped."""
        end = time.monotonic() + seconds
        while not self._closed and self.wait(end - time.monotonic()):
            self._next = b""
        return self._closed

    def close(self) -> None:
        """Close what is written to; the other end closes the rest."""
        self._bell.close()
        with contextlib.suppress(OSError):  # what was still to be written
            self._sink.close()
