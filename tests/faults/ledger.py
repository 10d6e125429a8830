"""The list of faults: what is tried, how often, and what must hold."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Hashable, Iterable
from dataclasses import dataclass

SOAK = "GEMMBENCH_SOAK"  # if it is set, every fault is tried in full


@dataclass(frozen=True)
class Fault:
    title: str
    promise: str  # what the tests assert
    few: int  # times in `make faults`
    many: int  # times in `make soak`


# ruff: noqa: E501
# fmt: off
FAULTS: dict[str, Fault] = {
    "child-killed":    Fault("the driver's process is killed (SIGKILL) at a random moment of one `square` run", "every row is there once, ok or crashed; a kill costs at most one", 4, 100),
    "child-killed-cl": Fault("the same on a real driver", "the same", 1, 20),
    "ctrl-c":          Fault("Ctrl-C at a random moment, start-up included", "no traceback, no orphan, exit status 130; `--resume` completes the file", 1, 50),
    "sigterm":         Fault("SIGTERM at a random moment, start-up included", "the same", 1, 50),
    "two-writers":     Fault("two `gemmbench` on one file: new, `--resume`, `--force`", "one writes, the other says so in a sentence", 1, 8),
    "disk-full":       Fault("the disk is full after a random number of bytes (file-size limit)", "a sentence, exit status 2; with room again `--resume` completes the file", 2, 40),
    "disk-full-tmpfs": Fault("the same on a tiny tmpfs that really is full", "the same", 1, 5),
    "output-full":     Fault("stdout on a full disk", "a sentence, exit status 2, rows saved", 2, 4),
    "cache-read-only": Fault("the cache folder is a file, or mounted read-only", "one note, same table, every row", 2, 2),
    "truncated":       Fault("a saved run cut at every byte: `show`, `plot`, `compare`", "a sentence or a whole prefix; the file is unchanged", 30, 0),
    "truncated-resume": Fault("the same, then `--resume`", "whole rows are kept, every row once", 60, 0),
    "flipped":         Fault("1 to 8 random bytes of a saved run changed: every reading command, format and chart", "a sentence or a correct reading, no traceback, the file is unchanged", 100, 1000),
    "driver-gone":     Fault("a driver vanishes between runs: `--resume`, `check`, `--device`", "a sentence, exit status 2; the file is unchanged and completes once the driver is back", 9, 9),
    "clock":           Fault("the clock steps by hours and years, back and forth, during a run", "every time is positive and shorter than the run, by a clock that does not step", 1, 6),
    "locale":          Fault("a locale with decimal commas, in both processes", "same rows, tables, exports and charts, byte by byte", 1, 1),
    "terminal":        Fault("a terminal of 40 columns, `TERM=dumb`, no terminal, closed stdin, stdout, stderr", "no line is wider (rich gives a dumb one 80 columns), no escape on a dumb one; every row", 3, 10),
    "no-home":         Fault("no home folder: missing, a file, or a user whom the system does not know", "one note at most; every row", 1, 4),
    "paths":           Fault("spaces, quotes, non-ASCII and bytes that are not UTF-8 in names of files and folders", "every file is where it was asked for", 1, 5),
    "names":           Fault("hostile names of kernels, devices and drivers: each format, chart and command", "shown as text: nothing evaluated, opened or left unescaped", 1, 8),
}
# fmt: on


class Entry:
    """What one fault has cost so far."""

    def __init__(self, key: str) -> None:
        self._key = key
        self.times = self.rows = self.lost = self.twice = 0

    @property
    def wanted(self) -> int:
        """How often it is to be tried; 0 for everywhere."""
        fault = FAULTS[self._key]
        return fault.many if os.environ.get(SOAK) else fault.few

    def hold(self, wanted: Iterable[Hashable], found: Iterable[Hashable], times: int = 1) -> None:
        """Count rows that should be there against rows that are; each must be there exactly once."""
        expected, actual = Counter(wanted), Counter(found)
        lost, more = expected - actual, actual - expected
        self.times += times
        self.rows += expected.total()
        self.lost += lost.total()
        self.twice += more.total()
        assert not lost, f"lost: {lost}"
        assert not more, f"there more than once, or not wanted: {more}"

    def survived(self, times: int = 1) -> None:
        """Count a fault that no rows hung on."""
        self.times += times
