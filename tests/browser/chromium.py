"""A browser driven over its own protocol: JSON through two pipes, no library."""

from __future__ import annotations

import json
import os
import select
import shutil
import subprocess
import sys
import time
from pathlib import Path
from types import TracebackType
from typing import Any

NAMES = ("chromium", "chromium-browser", "google-chrome")
_TIMEOUT_S = 60.0

# The protocol's pipes are descriptors 3 and 4 of the browser.
_LAUNCH = """
import os, sys
reads, writes = map(int, sys.argv[1:3])
spare = [os.dup(fd) for fd in (reads, writes)]
spare = [os.dup(fd) for fd in spare]
for fd, place in zip(spare, (3, 4)):
    os.dup2(fd, place, inheritable=True)
os.execv(sys.argv[3], sys.argv[3:])
"""


def program() -> str | None:
    """The browser of this machine, if it has any."""
    return next(filter(None, map(shutil.which, NAMES)), None)


class Page:
    """One page of one browser; ``with`` ends both."""

    def __init__(self, executable: str, folder: Path) -> None:
        reads, self._to = os.pipe()
        self._from, writes = os.pipe()
        words = [
            executable,
            "--headless",
            "--disable-gpu",
            "--hide-scrollbars",
            "--no-first-run",
            "--disable-background-networking",
            f"--user-data-dir={folder}",
            "--remote-debugging-pipe",
            *(["--no-sandbox"] if os.geteuid() == 0 else []),
            "about:blank",
        ]
        self._process = subprocess.Popen(
            [sys.executable, "-c", _LAUNCH, str(reads), str(writes), *words],
            pass_fds=(reads, writes),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        os.close(reads)
        os.close(writes)
        self._buffer = b""
        self._number = 0
        self._session: str | None = None
        self.events: list[dict[str, Any]] = []
        page = next(each for each in self.call("Target.getTargets")["targetInfos"] if each["type"] == "page")
        attached = self.call("Target.attachToTarget", targetId=page["targetId"], flatten=True)
        self._session = attached["sessionId"]
        for domain in ("Page", "Runtime", "Network", "Log", "Accessibility", "DOM"):
            self.call(f"{domain}.enable")

    def __enter__(self) -> Page:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._process.kill()
        self._process.wait()
        os.close(self._to)
        os.close(self._from)

    def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        """A command of the protocol, and its result.

        Raises:
            RuntimeError: the browser refuses it.
        """
        self._number += 1
        message = {"id": self._number, "method": method, "params": parameters}
        if self._session:
            message["sessionId"] = self._session
        os.write(self._to, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._next()
            if answer.get("id") == self._number:
                if "error" in answer:
                    raise RuntimeError(f"{method}: {answer['error']}")
                result: dict[str, Any] = answer["result"]
                return result
            self.events.append(answer)

    def _next(self) -> dict[str, Any]:
        end = time.monotonic() + _TIMEOUT_S
        while b"\0" not in self._buffer:
            ready, _, _ = select.select([self._from], [], [], max(0.0, end - time.monotonic()))
            if not ready:
                raise TimeoutError("the browser does not answer")
            self._buffer += os.read(self._from, 1 << 20)
        line, _, self._buffer = self._buffer.partition(b"\0")
        message: dict[str, Any] = json.loads(line)
        return message

    def open(self, path: Path) -> None:
        """Load a file; returns when all of it has been laid out."""
        self.events.clear()
        self.call("Page.navigate", url=path.as_uri())
        while not any(event.get("method") == "Page.loadEventFired" for event in self.events):
            self.events.append(self._next())
        self.settle()

    def settle(self) -> None:
        """Wait until what has been changed is drawn."""
        self.run("new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))")

    def run(self, script: str) -> Any:
        """What an expression is worth in the page.

        Raises:
            RuntimeError: it throws.
        """
        done = self.call("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in done:
            raise RuntimeError(done["exceptionDetails"])
        return done["result"].get("value")

    def press(self, key: str) -> None:
        """A key of the keyboard, down and up."""
        codes = {"Enter": (13, "\r"), "Tab": (9, ""), "Escape": (27, "")}
        code, text = codes[key]
        for kind in ("keyDown", "keyUp"):
            typed = {"text": text} if text and kind == "keyDown" else {}
            self.call(
                "Input.dispatchKeyEvent", type=kind, key=key, code=key, windowsVirtualKeyCode=code, **typed
            )

    def point(self, x: float, y: float) -> None:
        """The pointer to a point of the window."""
        self.call("Input.dispatchMouseEvent", type="mouseMoved", x=x, y=y)

    def size(self, width: int, height: int = 900) -> None:
        """How large the window is, in CSS pixels."""
        self.call(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=1,
            mobile=False,
        )

    def colours(self, scheme: str) -> None:
        """What the reader prefers: light or dark."""
        self.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])

    @property
    def requests(self) -> list[str]:
        """What was asked for since the page was opened, but for the page itself and what is in it."""
        urls = [
            event["params"]["request"]["url"]
            for event in self.events
            if event.get("method") == "Network.requestWillBeSent"
        ]
        return [url for url in urls[1:] if not url.startswith("data:")]

    @property
    def complaints(self) -> list[str]:
        """Every line of the console, and whatever the browser has to say."""
        methods = ("Runtime.consoleAPICalled", "Runtime.exceptionThrown", "Log.entryAdded")
        return [json.dumps(event["params"]) for event in self.events if event.get("method") in methods]
