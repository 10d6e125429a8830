"""A psutil that tells of two processes of ours and one of others, in which time passes as a test wants."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from types import SimpleNamespace

OWN, CHILD, OTHER = 4000, 4001, 77
_NAMES = {OWN: "python", CHILD: "a (b) c", OTHER: "other"}


@dataclass
class FakeProc:
    """Processes of ours (a parent and its child) and one of others, on some cores.

    Attributes:
        cores: how many there are.
        now: seconds since it began.
        is_blind: whether nothing can be read.
    """

    cores: int = 2
    now: float = 0.0
    used_s: dict[int, float] = field(default_factory=lambda: {OWN: 5.0, CHILD: 10.0, OTHER: 100.0})
    steal_s: float = 1.0
    is_blind: bool = False

    def __post_init__(self) -> None:
        self._began_s = sum(self.used_s.values())

    def run(self, seconds: float, own: float = 0.0, other: float = 0.0, steal: float = 0.0) -> None:
        """Let time pass while processes use so many cores."""
        self.now += seconds
        self.used_s[CHILD] += own * seconds
        self.used_s[OTHER] += other * seconds
        self.steal_s += steal * seconds

    def cpu_times(self, percpu: bool) -> list[SimpleNamespace]:
        assert percpu
        if self.is_blind:
            raise FileNotFoundError("/proc/stat")
        busy_s = sum(self.used_s.values())
        idle_s = self._began_s + 1000.0 + self.now * self.cores - busy_s - self.steal_s
        each = {"user": busy_s, "idle": idle_s, "steal": self.steal_s}
        times = SimpleNamespace(**{name: seconds / self.cores for name, seconds in each.items()})
        return [times] * self.cores

    def Process(self, pid: int) -> FakeProcess:  # as psutil spells it
        return FakeProcess(self, pid)

    def process_iter(self, attrs: Sequence[str]) -> Iterator[SimpleNamespace]:
        for pid, name in _NAMES.items():
            info = {"name": name, "cpu_times": FakeProcess(self, pid).cpu_times()}
            yield SimpleNamespace(pid=pid, info={each: info[each] for each in attrs})


@dataclass(frozen=True)
class FakeProcess:
    """One process."""

    proc: FakeProc
    pid: int

    def children(self, recursive: bool) -> list[FakeProcess]:
        assert recursive
        return [FakeProcess(self.proc, CHILD)] if self.pid == OWN else []

    def cpu_times(self) -> SimpleNamespace:
        seconds = self.proc.used_s[self.pid]
        return SimpleNamespace(user=seconds - 1.0, system=1.0, children_user=0.0, children_system=0.0)
