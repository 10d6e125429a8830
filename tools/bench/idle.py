"""How long a device waits for the parent: from a batch's last END to the next batch's first START.

GEMMs of several lengths are sampled as a run samples them, alone and in turn with the same kernel in the same
process. The gap is told as a part of a batch. CPU devices are shown and exempt: what the parent does must not
run beside their batches.

Exit status: 0 under the limits on every device, 1 over one, 2 no device.
"""

from __future__ import annotations

import argparse
import statistics
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import cycle, pairwise

from gemmbench.ladder import BY_NAME
from gemmbench.measure import machine
from gemmbench.measure.child import Worker
from gemmbench.measure.sampling import Stream, batch_size
from gemmbench.model.case import Case, Policy
from gemmbench.model.device import DeviceFacts
from gemmbench.model.instrument import Batch, Handle
from gemmbench.model.problem import Gemm
from gemmbench.opencl.drivers import no_device_message
from gemmbench.suite.plan import gemm_plan, select

LIMITS = {"alone": 0.002, "in turn": 0.01}  # of a batch
SIZES = (128, 512, 1024, 2048, 4096)
BATCHES = 60
WARMING = 5
LONGEST_S = 0.1


@dataclass(frozen=True)
class Idle:
    """What was seen of one way of asking."""

    way: str
    size: int
    batch_s: float  # the device's, median
    idle: float  # of it, median
    worst: float  # of it, the 95th percentile


def main() -> int:
    """Measure every selected device and print a line for each problem."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--device", default="all", help="as gemmbench --device")
    parser.add_argument("--kernel", default="tiled", help="as gemmbench --kernel, one of them")
    options = parser.parse_args()
    over = False
    with Worker(machine.default) as worker:
        devices, _ = worker.devices()
        if not devices:
            print(no_device_message(), file=sys.stderr)
            return 2
        for device in select(devices, options.device):
            print(f"{device.title}")
            print(f"  {'':<8}{'n':>6}{'batch ms':>10}{'idle %':>8}{'95th %':>8}{'limit %':>9}")
            for idle in measure(worker, device, options.kernel):
                limit = LIMITS[idle.way]
                over |= idle.idle >= limit and device.type != "cpu"
                print(
                    f"  {idle.way:<8}{idle.size:>6}{idle.batch_s * 1e3:>10.2f}{idle.idle * 100:>8.3f}"
                    f"{idle.worst * 100:>8.3f}{limit * 100:>9.1f}"
                    + ("  (exempt: a CPU)" if device.type == "cpu" else "")
                )
    return int(over)


def measure(worker: Worker, device: DeviceFacts, kernel: str) -> Iterator[Idle]:
    """The idle time at every size, alone and in turn."""
    policy = Policy()
    for size in SIZES:
        (case,) = gemm_plan([device], [BY_NAME[kernel]], [Gemm(size, size, size)])
        if not isinstance(case, Case):
            return
        worker.limit(policy.time_limit_s)
        with ExitStack() as held:
            first = held.enter_context(worker.prepare(case, device, policy))
            second = held.enter_context(worker.prepare(case, device, policy, first.number))
            for handle in (first, second):
                handle.batch("device", 1)
            one_s = first.batch("device", 1).wall_s
            if one_s > LONGEST_S:  # nobody asks ahead of such: beside them the parent takes no time
                return
            count = batch_size(one_s, policy)
            for way, handles in (("alone", (first,)), ("in turn", (second, first, first, second))):
                yield _idle(way, size, _taken(cycle(handles), count, one_s * count))


def _taken(order: Iterator[Handle], count: int, batch_s: float) -> list[Batch]:
    batches = Stream(order, "device", count, batch_s)
    taken = [batches.next() for _ in range(WARMING + BATCHES)]
    batches.rest()
    return taken[WARMING:]


def _idle(way: str, size: int, batches: list[Batch]) -> Idle:
    spans = [batch.device for batch in batches if batch.device]
    length = statistics.median(end - begin for begin, end in spans)
    gaps = sorted((begin - end) / length for (_, end), (begin, _) in pairwise(spans))
    return Idle(way, size, length, statistics.median(gaps), gaps[int(0.95 * len(gaps))])


if __name__ == "__main__":
    sys.exit(main())
