"""A folder like Linux's /proc, in which time passes as a test wants."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from pathlib import Path

TICK_S = 1 / os.sysconf("SC_CLK_TCK") if hasattr(os, "sysconf") else 0.01

OWN, CHILD, OTHER = 4000, 4001, 77


@dataclass
class FakeProc:
    """Processes of ours (a parent and its child) and one of others, on some cores.

    Attributes:
        folder: what stands for /proc.
        cores: how many there are.
        now: seconds since it began.
    """

    folder: Path
    cores: int = 2
    now: float = 0.0
    used_s: dict[int, float] = field(default_factory=lambda: {OWN: 5.0, CHILD: 10.0, OTHER: 100.0})
    steal_s: float = 1.0
    switches: int = 40

    def __post_init__(self) -> None:
        self._began_s = sum(self.used_s.values())
        self.write()

    def run(
        self, seconds: float, own: float = 0.0, other: float = 0.0, steal: float = 0.0, switches: int = 0
    ) -> None:
        """Let time pass while processes use so many cores."""
        self.now += seconds
        self.used_s[CHILD] += own * seconds
        self.used_s[OTHER] += other * seconds
        self.steal_s += steal * seconds
        self.switches += switches
        self.write()

    def write(self) -> None:
        """Write what Linux would say now."""
        busy = sum(self.used_s.values())
        total = self._began_s + 1000.0 + self.now * self.cores
        counts = [busy, 0, 0, total - busy - self.steal_s, 0, 0, 0, self.steal_s, 0, 0]
        each = " ".join(str(round(count / self.cores / TICK_S)) for count in counts)
        lines = [f"cpu  {each}", *(f"cpu{core} {each}" for core in range(self.cores)), "intr 1 2", "ctxt 5"]
        (self.folder / "stat").write_text("\n".join(lines) + "\n")
        for number, parent, name in ((OWN, 1, "python"), (CHILD, OWN, "a (b) c"), (OTHER, 1, "other")):
            ticks = round(self.used_s[number] / TICK_S)
            task = self.folder / str(number) / "task" / str(number)
            task.mkdir(parents=True, exist_ok=True)
            fields = f"{number} ({name}) R {parent} 1 1 0 -1 0 1 2 3 4 {ticks} 0 0 0 20 0 1"
            (self.folder / str(number) / "stat").write_text(fields)
            (task / "status").write_text(
                f"Name:\t{name}\nvoluntary_ctxt_switches:\t7\nnonvoluntary_ctxt_switches:\t{self.switches}\n"
            )
