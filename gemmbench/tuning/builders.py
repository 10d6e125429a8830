"""Children that compile ahead: when a configuration's turn comes, the driver has it in its cache.

Compiling is most of what a configuration costs on a GPU, and the host's other cores are idle meanwhile.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from types import TracebackType

from gemmbench.facts.records import DeviceFacts, Policy
from gemmbench.measure.child import Worker
from gemmbench.rules.plan import Case

_PATIENCE_S = 10.0  # for children to end


class Builders:
    """A few children that build cases; whatever happens to them, the case is measured all the same.

    Attributes:
        threads: one for each child.
    """

    def __init__(self, make: Callable[[], Worker], count: int, device: DeviceFacts, policy: Policy) -> None:
        self._device, self._policy = device, policy
        self._waiting: deque[Case] = deque()
        self._seen: set[str] = set()  # fingerprints of what was built
        self._news = threading.Condition()
        self._closed = False
        self._workers = [make() for _ in range(count)]
        self.threads = [
            threading.Thread(target=self._serve, args=(worker,), daemon=True) for worker in self._workers
        ]
        for thread in self.threads:
            thread.start()

    def want(self, cases: Sequence[Case]) -> None:
        """Build these, in this order, in the place of whatever still waits."""
        with self._news:
            self._waiting = deque(case for case in cases if case.source not in self._seen)
            self._news.notify_all()

    def close(self) -> None:
        """End the children, at once."""
        with self._news:
            self._closed = True
            self._news.notify_all()
        end = time.monotonic() + _PATIENCE_S
        for worker, thread in zip(self._workers, self.threads, strict=True):
            while thread.is_alive() and time.monotonic() < end:
                worker.kill()  # again, should it have been about to start
                thread.join(0.1)

    def _serve(self, worker: Worker) -> None:
        with worker:
            while (case := self._next()) is not None:
                worker.inspect(case, self._device, self._policy)

    def _next(self) -> Case | None:
        with self._news:
            self._news.wait_for(lambda: self._closed or self._waiting)
            if self._closed:
                return None
            case = self._waiting.popleft()
            self._seen.add(case.source)
            return case

    def __enter__(self) -> Builders:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
