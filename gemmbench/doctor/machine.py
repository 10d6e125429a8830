"""A machine as the checks see it: files below a root, its devices, their boards in NVML, and its BLAS.

Nothing here writes or starts a process. Tests give another root, and boards of their own.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import pynvml

from gemmbench.measure.blas import Pool
from gemmbench.measure.machine import ControlGroup, Usage, control_groups, family, pool_of, processes, usage
from gemmbench.measure.sensors import CounterError, board_of, is_nvidia, nvml_errors
from gemmbench.model.device import DeviceFacts
from gemmbench.model.units import reason_of
from gemmbench.opencl.drivers import Problem

ALMOST = 0.98  # of what it could be: closer is the same


@dataclass(frozen=True)
class Finding:
    """What slows down the machine, or a device."""

    problem: str  # a sentence with the cost; a second line gives details
    fix: str  # what to do
    command: str = ""  # that does it; "" if there is none
    seen: tuple[str, ...] = ()  # files and counters with their values
    check: str = ""  # the check's name
    device: int | None = None  # its index in `gemmbench devices`; None for the host


@dataclass(frozen=True)
class NotSeen:
    """A check that could not read what it needs."""

    check: str
    reason: str
    device: int | None = None


def ranges(values: Sequence[int]) -> str:
    """Write a list of processors or nodes as Linux does, sorted: ``0-3,8``."""
    parts: list[list[int]] = []
    for value in sorted(values):
        if parts and parts[-1][-1] == value - 1:
            parts[-1].append(value)
        else:
            parts.append([value])
    return ",".join(str(part[0]) if len(part) == 1 else f"{part[0]}-{part[-1]}" for part in parts)


_WATCH_S = 0.5  # 50 of Linux's ticks: a core that others use for a tenth of it shows

CPU = "sys/devices/system/cpu"


class NotSeenError(Exception):
    """What a check has to read is not there; the message is for the user."""


@dataclass(frozen=True)
class Watched:
    """What the processors did for half a second, and which processes used them."""

    before: Usage
    after: Usage
    busiest: tuple[tuple[int, str, float], ...]  # number, name and cores of others' processes


@dataclass
class ExaminedMachine:
    """What the checks read."""

    root: Path = Path("/")  # replaces / in tests
    devices: Sequence[DeviceFacts] = ()  # all, each of which may be an answer: "the other driver has half"
    chosen: Sequence[DeviceFacts] = ()  # those to check
    trouble: str = ""  # why the devices could not be listed
    problems: Sequence[Problem] = ()  # of drivers that show no device
    blas: Pool | None = field(default_factory=pool_of)  # None: nothing names numpy's
    environ: Mapping[str, str] = field(default_factory=lambda: os.environ)
    nvml: Any = pynvml
    open_board: Callable[[DeviceFacts], Any] = board_of  # raises CounterError
    own: int = field(default_factory=os.getpid)  # the process whose family's load is its own
    sleep: Callable[[float], None] = time.sleep
    now: Callable[[], float] = time.monotonic
    counters: Any = None  # a replacement for psutil
    _boards: dict[int, Any] = field(default_factory=dict)

    def read(self, path: str) -> str:
        """The stripped text of a file below the root. NotSeenError if it cannot be read."""
        try:
            return (self.root / path).read_text(encoding="utf-8", errors="replace").strip()
        except FileNotFoundError:
            raise NotSeenError(f"there is no /{path}") from None
        except OSError as error:
            raise NotSeenError(f"/{path}: {reason_of(error)}") from None

    def number(self, path: str) -> int:
        text = self.read(path)
        try:
            return int(text)
        except ValueError:
            raise NotSeenError(f"/{path} holds no number") from None

    def numbers(self, path: str) -> tuple[int, ...]:
        return parse_numbers(self.read(path), path)

    def optional(self, path: str) -> str:
        try:
            return self.read(path)
        except NotSeenError:
            return ""

    def has(self, path: str) -> bool:
        try:
            return (self.root / path).exists()
        except OSError:
            return False

    def matching(self, pattern: str) -> list[str]:
        """Files and folders that match a glob, relative to the root, sorted; [] on errors."""
        try:
            return sorted(str(path.relative_to(self.root)) for path in self.root.glob(pattern))
        except OSError:
            return []

    def fields(self, path: str, between: str = ":") -> dict[str, str]:
        """Parse lines ``name: value``, or with another separator. {} if the file cannot be read."""
        pairs = (line.partition(between) for line in self.optional(path).splitlines())
        return {name.strip(): value.strip() for name, sign, value in pairs if sign}

    def control_groups(self, controller: str) -> list[ControlGroup]:
        """The control groups of this process, innermost first; of version 1 with this controller."""
        self.read("proc/self/cgroup")
        groups = control_groups(self.root, controller)
        return [group._replace(folder=group.folder.relative_to(self.root)) for group in groups]

    @cached_property
    def online(self) -> tuple[int, ...]:
        return self.numbers(f"{CPU}/online")

    @cached_property
    def allowed(self) -> tuple[int, ...]:
        """The processors that this process may use."""
        path, name = "proc/self/status", "Cpus_allowed_list"
        self.read(path)  # or there is none
        return parse_numbers(self.fields(path).get(name, ""), f"{path} ({name})")

    def cores(self, processors: Sequence[int]) -> int:
        """The number of cores with these processors; SMT siblings share one."""
        return len({self.read(f"{CPU}/cpu{each}/topology/thread_siblings_list") for each in processors})

    def in_container(self) -> bool:
        files = (".dockerenv", "run/.containerenv")
        return any(map(self.has, files)) or "KUBERNETES_SERVICE_HOST" in self.environ

    @cached_property
    def watched(self) -> Watched:
        """The processor times before and after half a second, and the other processes, busiest first.

        They are of the processors that this process may use. NotSeenError if the time is not counted.
        """
        counted = None
        with suppress(NotSeenError):
            counted = self.allowed

        def look() -> tuple[Usage, dict[int, tuple[str, float]]]:
            counts = usage(self.now(), self.own, counted, self.counters)
            if counts is None:
                raise NotSeenError("the system does not count the time of its processors")
            return counts, processes(self.counters)

        before, then = look()
        self.sleep(_WATCH_S)
        after, now = look()
        if after.since(before)[0] is None:
            raise NotSeenError("the system's count of the time of its processors stands still")
        ours = {process.pid for process in family(self.own, self.counters)}
        used = [
            (number, name, (seconds - then[number][1]) / (after.at_s - before.at_s))
            for number, (name, seconds) in now.items()
            if number in then and number not in ours
        ]
        return Watched(before, after, tuple(sorted(used, key=lambda each: -each[2])))

    def board(self, device: DeviceFacts) -> Any:
        """NVML's handle of a device's board. NotSeenError unless NVIDIA's and available."""
        if not is_nvidia(device):
            raise NotSeenError("only NVIDIA's boards can be asked (NVML)")
        if device.index not in self._boards:
            try:
                self._boards[device.index] = self.open_board(device)
            except CounterError as error:
                raise NotSeenError(str(error)) from None
        return self._boards[device.index]

    def ask(self, device: DeviceFacts, function: str, *arguments: object) -> Any:
        """Call a function of NVML for a device's board. NotSeenError without one."""
        board = self.board(device)
        try:
            with nvml_errors():
                return getattr(self.nvml, function)(board, *arguments)
        except CounterError as error:
            raise NotSeenError(f"{function}: {error}") from None


def parse_numbers(text: str, path: str) -> tuple[int, ...]:
    """Parse a list of processors or nodes such as ``0-3,8``. NotSeenError names the path."""
    listed: list[int] = []
    try:
        for part in text.split(","):
            first, _, last = part.partition("-")
            listed += range(int(first), int(last or first) + 1)
    except ValueError:
        raise NotSeenError(f"/{path} holds no list of numbers") from None
    return tuple(listed)
