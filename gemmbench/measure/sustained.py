"""A load for minutes or hours on one device or several at once: every result compared, figures by window.

The instruments keep their devices busy with checked batches (`model.instrument.CHECKED`), and the parent adds
them up: what is kept is a line for each window of a second or more, however many problems it had.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from statistics import fmean, median
from typing import Any

from gemmbench.measure.sampling import Clock, Stream, Wait, batch_size, stream, wait_for_any
from gemmbench.model.case import Policy
from gemmbench.model.device import Conditions
from gemmbench.model.instrument import CHECKED, Batch, Handle, NotMeasuredError
from gemmbench.model.row import BitError, Sustained

DONE, INTERRUPTED = "done", "interrupted"
WINDOW_S = 1.0
_MOST_WINDOWS = 3600  # of a run: those of longer ones are longer
_MOST_ERRORS = 100  # that are kept one by one
_BATCH_S, _LONG_BATCH_S = 0.05, 0.2  # where the next is put into the queue meanwhile, and where it is not
_WAIT_S = 0.1

Tell = Callable[[int, Sustained], None]


def window_s(seconds: float) -> float:
    """How long the windows of a run are."""
    return max(WINDOW_S, seconds / _MOST_WINDOWS)


@dataclass
class _Window:
    begin: float
    batches: list[Batch] = field(default_factory=list)

    @property
    def problems(self) -> int:
        return sum(batch.count for batch in self.batches)


class _Load:
    """One device's load; `single` are its first batches, of a problem each."""

    def __init__(
        self, handle: Handle, flops: int, single: Sequence[Batch], seconds: float, begin: float
    ) -> None:
        self.handle, self.begin = handle, begin
        one_s = single[-1].wall_s
        batch_s = _BATCH_S if CHECKED in handle.prepared.ahead else _LONG_BATCH_S
        size = batch_size(one_s, Policy(batch_s=batch_s, max_batch_s=_LONG_BATCH_S))
        self.stream: Stream = stream(handle, CHECKED, size, size * one_s)
        self._length_s = window_s(seconds)
        self._window = _Window(begin)
        self._checks_s = self._spent_s = 0.0
        self.result = Sustained(seconds, "", flops)
        self.is_over = False
        handle.watch.begin()
        for batch in single:
            self._add(batch)

    def take(self) -> bool:
        """Take a batch that is there; whether a window ended with it."""
        batch = self.stream.next()
        self._add(batch)
        if batch.end - self._window.begin < self._length_s:
            return False
        self.close(batch.end)
        return True

    def _add(self, batch: Batch) -> None:
        self._window.batches.append(batch)
        result = self.result
        each_s = (batch.end - batch.begin) / batch.count
        first = batch.begin - self.begin
        room = max(0, _MOST_ERRORS - len(result.errors))
        errors = tuple(
            BitError(
                round(first + (wrong.number + 0.5) * each_s, 4),
                result.results + wrong.number,
                wrong.bits,
                wrong.byte,
            )
            for wrong in batch.wrong[:room]
        )
        self._checks_s += batch.seconds.get("check", 0.0) * batch.count
        self._spent_s += batch.finest_s * batch.count
        total_s = self._checks_s + self._spent_s
        self.result = replace(
            result,
            results=result.results + batch.count,
            wrong=result.wrong + len(batch.wrong),
            bits=result.bits + sum(wrong.bits for wrong in batch.wrong),
            errors=result.errors + errors,
            check_share=round(self._checks_s / total_s, 5) if total_s else 0.0,
        )

    def close(self, now: float) -> None:
        window, result = self._window, self.result
        self._window = _Window(now)
        conditions = self.handle.watch.end(CHECKED, window.batches)
        if not self.is_over:
            self.handle.watch.begin()
        if not window.batches:
            return
        said = _said(conditions)
        mean_s = sum(batch.finest_s * batch.count for batch in window.batches) / window.problems
        bits = sum(wrong.bits for batch in window.batches for wrong in batch.wrong)
        self.result = replace(
            result,
            begin_s=(*result.begin_s, round(window.begin - self.begin, 4)),
            length_s=(*result.length_s, round(now - window.begin, 4)),
            problems=(*result.problems, window.problems),
            seconds=(*result.seconds, float(f"{mean_s:.7g}")),
            slowest_s=(*result.slowest_s, float(f"{max(batch.finest_s for batch in window.batches):.7g}")),
            wrong_bits=(*result.wrong_bits, bits),
            clock_mhz=(*result.clock_mhz, said[0]),
            power_w=(*result.power_w, said[1]),
            celsius=(*result.celsius, said[2]),
            limits=(*result.limits, said[3]),
        )

    def finish(self, why: str, is_drained: bool = False) -> None:
        """It is over: the batches in flight count if they are waited for."""
        self.is_over = True
        if is_drained:
            for batch in self.stream.rest():
                self._add(batch)
        batches = self._window.batches
        self.close(batches[-1].end if batches else self._window.begin)
        self.result = ended(self.result, why)


def _said(conditions: Conditions | None) -> tuple[float | None, float | None, float | None, str]:
    """Clock, power, temperature and limits of a window; None where the device does not say."""
    windows = [*conditions.windows.values()] if conditions else []
    clocks, powers, celsius = (
        [value for window in windows for value in getattr(window, name) if value is not None]
        for name in ("clock_mhz", "power_w", "celsius")
    )
    limits = dict.fromkeys(name for window in windows for text in window.limits for name in text.split())
    return (
        round(median(clocks), 1) if clocks else None,
        round(fmean(powers), 1) if powers else None,
        max(celsius) if celsius else None,
        " ".join(limits),
    )


def ended(result: Sustained, why: str) -> Sustained:
    """Figures as a row has them: with an end, and without the columns of what the device never said."""
    empty: dict[str, Any] = {
        name: ()
        for name in ("clock_mhz", "power_w", "celsius")
        if all(value is None for value in getattr(result, name))
    }
    if not any(result.limits):
        empty["limits"] = ()
    return replace(result, end=why, **empty)


def sustained(
    handles: Sequence[Handle],
    flops: Sequence[int],
    seconds: float,
    now: Clock = time.monotonic,
    wait: Wait = wait_for_any,
) -> Iterator[tuple[int, Sustained]]:
    """Keep devices busy for so long, all at once.

    Yields the position of a device and its figures so far, after each of its windows; and at the end, or
    after Ctrl-C, once more for each device, whose `Sustained.end` says how it ended.

    Args:
        handles: of an instrument each, prepared and verified; their prepared benches take checked batches.
        flops: of a problem of each.
        seconds: how long.
        now: seconds; replaced in tests.
        wait: returns when one of the instruments may have answered; replaced in tests.

    Raises:
        KeyboardInterrupt: Ctrl-C, after all was yielded. The instruments may still be at work then.
    """
    begin = now()
    # The first one of each may compile the comparison: the second tells how long a problem takes.
    single = [[handle.batch(CHECKED, 1) for _ in range(2)] for handle in handles]
    loads = [
        _Load(handle, count, batches, seconds, begin)
        for handle, count, batches in zip(handles, flops, single, strict=True)
    ]
    try:
        for load in loads:
            load.stream.ask()
        while any(not load.is_over for load in loads):
            running = [load for load in loads if not load.is_over]
            answered = [load for load in running if load.handle.instrument.answered()]
            if not answered:
                wait([load.handle.instrument for load in running], _WAIT_S)
            for load in answered:
                try:
                    if load.take():
                        yield loads.index(load), load.result
                    if now() - begin >= seconds:
                        load.finish(DONE, is_drained=True)
                    else:
                        load.stream.ask()
                except NotMeasuredError as error:
                    load.finish(f"{error.status}: {error.reason}")
    except KeyboardInterrupt:
        for load in loads:
            if not load.is_over:
                load.finish(INTERRUPTED)
        yield from ((number, load.result) for number, load in enumerate(loads))
        raise
    yield from ((number, load.result) for number, load in enumerate(loads))
