"""A neighbour to measure with: a load on one core that switches on and off at random.

`python -m tools.neighbour --kind stream --core 0 --seconds 60`. It also ends when its parent process does.
"""

from __future__ import annotations

import argparse
import os
import random
import time
from collections.abc import Callable, Iterable, Iterator
from itertools import cycle

Load = Callable[[], object]  # works for less than a millisecond

KINDS = ("multiply", "stream")
SHORTEST_S, LONGEST_S = 0.02, 0.3  # of a period, on or off
ON = 0.6  # of the time
_CHUNK = 1 << 16  # floats, one call changes them
_LEAST_CHUNKS, _CACHES = 1 << 8, 2  # to stream: 64 MB, or twice the last-level cache


def schedule(seed: int) -> Iterator[tuple[float, float]]:
    """Yield seconds on and seconds off, without end. They are the same for the same seed.

    The mean of a triangular distribution is (low + high + mode) / 3. The modes are chosen for the share `ON`.
    """
    draw = random.Random(seed)
    ends = SHORTEST_S, LONGEST_S
    on_mode, off_mode = ((3 * share - 1) * sum(ends) for share in (ON, 1 - ON))
    while True:
        yield draw.triangular(*ends, on_mode), draw.triangular(*ends, off_mode)


def play(
    periods: Iterable[tuple[float, float]], work: Load, seconds: float, is_wanted: Callable[[], bool],
    now: Callable[[], float] = time.perf_counter, sleep: Callable[[float], None] = time.sleep,
) -> None:  # fmt: skip
    """Work and sleep alternately, for so many seconds, or until nobody wants it. Tests replace the clock."""
    begin = now()
    end = begin + seconds
    for on_s, off_s in periods:
        if begin >= end or not is_wanted():
            break
        while now() < min(begin + on_s, end):
            work()
        begin += on_s + off_s
        sleep(max(0.0, min(begin, end) - now()))


def load(kind: str) -> Load:
    """Return a load: small products in the caches, or memory beyond them that is read and written.

    Nothing may have imported numpy before, so that its BLAS has one thread.
    """
    os.environ |= dict.fromkeys(("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"), "1")
    import numpy as np

    from gemmbench.opencl.discovery import last_level_cache_bytes

    if kind == "multiply":
        a, b, c = (np.ones((64, 64), np.float32) for _ in range(3))
        return lambda: [np.matmul(a, b, out=c) for _ in range(20)]
    count = max(_LEAST_CHUNKS, _CACHES * last_level_cache_bytes() // (4 * _CHUNK))
    chunks = cycle(np.ones((count, _CHUNK), np.float32))
    return lambda: np.negative(chunk := next(chunks), out=chunk)


def main() -> None:
    """Pin this process to a core and play a schedule."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--kind", choices=KINDS, default=KINDS[0])
    parser.add_argument("--seed", type=int, default=1, help="of the schedule")
    last = max(os.sched_getaffinity(0))
    parser.add_argument("--core", type=int, default=last, help="default: the last one")
    parser.add_argument("--seconds", type=float, default=60.0, help="until it ends (default: 60)")
    options = parser.parse_args()
    parent = os.getppid()
    os.sched_setaffinity(0, {options.core})
    play(schedule(options.seed), load(options.kind), options.seconds, lambda: os.getppid() == parent)


if __name__ == "__main__":
    main()
