"""Lines of JSON between an instrument and its parent."""

from __future__ import annotations

import contextlib
import json
import threading
from queue import Empty, SimpleQueue
from typing import IO, Any

import msgspec

from gemmbench.facts.records import Row
from gemmbench.model import instrument

_KINDS: dict[str, type] = {
    kind.__name__: kind
    for kind in (
        *(instrument.Open, instrument.Build, instrument.Prepare, instrument.Verify),
        *(instrument.AskBatch, instrument.Release, instrument.Run),
        *(instrument.Opened, instrument.Built, instrument.Prepared, instrument.Verified),
        *(instrument.Batch, instrument.Released, instrument.Stage, instrument.Whole, instrument.Refusal),
        Row,
    )
}
_news = threading.Event()  # a line has come, on any pipe of this process


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
        kind, value = msgspec.json.decode(line, type=tuple[str, msgspec.Raw])
        return msgspec.json.decode(value, type=_KINDS[kind])
    except (msgspec.DecodeError, KeyError):
        kind, content = json.loads(line)
        return msgspec.convert(content, type=_KINDS[kind])


class Pipe:
    """Both directions of a connection. A thread reads, so that waiting has an end on every system."""

    def __init__(self, source: IO[bytes], sink: IO[bytes]) -> None:
        self._source, self._sink = source, sink
        self._lines: SimpleQueue[bytes] = SimpleQueue()  # an empty line: the other end is closed
        self._next = b""  # a line that was waited for, and not received yet
        self._closed = False
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        line = b"?"
        with self._source:
            while line:
                line = self._source.readline()
                self._lines.put(line)
                _news.set()

    def send(self, message: object) -> None:
        """Send a request or an answer.

        Raises:
            OSError: the other end is closed.
        """
        self._sink.write(encode(message))
        self._sink.flush()

    def wait(self, seconds: float | None = 0.0) -> bool:
        """Wait for a line, or the other end's closing, for so long at most; whether it is there."""
        if not self._next and not self._closed:
            try:
                self._next = self._lines.get(timeout=None if seconds is None else max(0.0, seconds))
            except Empty:
                return False
            # An unfinished line: the other end was killed while it wrote.
            self._closed = not self._next.endswith(b"\n")
        return True

    def receive(self) -> Any:
        """The next request or answer, once it is there.

        Raises:
            EOFError: the other end is closed.
        """
        self.wait(None)
        if self._closed:
            raise EOFError
        line, self._next = self._next, b""
        return decode(line)

    def close(self) -> None:
        """Close what is written to; the other end closes the rest."""
        with contextlib.suppress(OSError):  # what was still to be written
            self._sink.close()


def wait_for_news(seconds: float) -> None:
    """Wait until a line has come on any pipe of this process since the last call, for so long at most."""
    _news.wait(seconds)
    _news.clear()
