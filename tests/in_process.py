"""An instrument in this process: one executor, for tests of what it does to a device."""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Generator
from pkgutil import resolve_name
from typing import Any

import pytest

from gemmbench.ladder import BY_NAME
from gemmbench.ladder.variant import Variant
from gemmbench.measure.child import CONDUCTORS
from gemmbench.measure.instrument import Server
from gemmbench.model.case import Case, Policy, Skip, Staged
from gemmbench.model.device import DeviceFacts
from gemmbench.model.instrument import (
    AskBatch,
    AskSeries,
    Batch,
    Build,
    Built,
    Handle,
    Instrument,
    NotMeasuredError,
    Prepare,
    Refusal,
    Release,
    Request,
    Series,
    Verified,
    Verify,
    When,
)
from gemmbench.model.problem import Gemm
from gemmbench.model.row import Row
from gemmbench.suite.plan import gemm_plan


class _Machine:
    """One executor for whatever is asked."""

    def __init__(self, executor: Any) -> None:
        self._executor = executor

    def executor(self, case: Case, device: DeviceFacts | None) -> Any:
        return self._executor


class NoControl:
    """A worker that runs no control bursts."""

    def limit(self, seconds: float) -> None:
        """Nothing runs."""

    def prepare(self, *_: object) -> Handle:
        raise NotMeasuredError("unsupported", "no control kernel")


class InProcess:
    """See `model.instrument.Instrument`."""

    def __init__(self, executor: Any) -> None:
        self._server = Server(lambda: _Machine(executor))  # type: ignore[arg-type, return-value]  # it asks for no more
        self._numbers = itertools.count()
        self._asked: deque[Any] = deque()

    def _call(self, request: Request) -> Any:
        return self._checked(self._server.answer(request))

    def _checked(self, answer: Any) -> Any:
        if isinstance(answer, Refusal):
            raise NotMeasuredError(answer.status, answer.reason, answer.restart)
        return answer

    def build(self, case: Case, device: DeviceFacts) -> Built:
        built: Built = self._call(Build(case, device))
        return built

    def prepare(
        self,
        case: Case,
        device: DeviceFacts | None,
        policy: Policy,
        like: int | None = None,
        problem: Gemm | None = None,
    ) -> Handle:
        number = next(self._numbers)
        return Handle(self, number, self._call(Prepare(number, case, device, policy, like, problem)))

    def for_old(self, old: Case, device: DeviceFacts | None) -> tuple[Instrument, Case, DeviceFacts | None]:
        return self, old, device

    def verify(self, handle: int, when: When) -> Verified:
        verified: Verified = self._call(Verify(handle, when))
        return verified

    def start(self, handle: int, clock: str, count: int, work: int = 1) -> None:
        self._asked.append(self._server.answer(AskBatch(handle, clock, count, work)))

    def finish(self) -> Batch:
        asked = self._asked.popleft()
        if not isinstance(asked, Batch | Refusal):
            asked = self._server.finish(asked)
        batch: Batch = self._checked(asked)
        return batch

    def series(self, request: AskSeries) -> Series:
        series: Series = self._call(request)
        return series

    def release(self, handle: int) -> None:
        self._call(Release(handle))


def plan_case(
    device: DeviceFacts, kernel: str | Variant, of: Gemm, *given: Any, may_skip: bool = False, **more: Any
) -> Case:
    """What is planned for a kernel, which the device must run, or else the test may be skipped."""
    variant = BY_NAME[kernel] if isinstance(kernel, str) else kernel
    (step,) = gemm_plan([device], [variant], [of], *given, **more)
    if isinstance(step, Skip):
        assert may_skip, step.row.reason
        pytest.skip(step.row.reason)
    return step


def measured(
    executor: Any, case: Case, policy: Policy, device: DeviceFacts | None = None, **more: object
) -> Row:
    """Measure a case as a run does; a conductor may take more.

    Raises:
        NotMeasuredError: there is no rate, and why.
    """
    conduct = resolve_name(CONDUCTORS[case.kind])
    return result_of(conduct(InProcess(executor), case, device, policy, **more))


def result_of(steps: Generator[Staged, None, Row], stages: list[str] | None = None) -> Row:
    """The row of a case that is measured, its stages added to a list."""
    while True:
        try:
            stage = next(steps).stage
        except StopIteration as end:
            row: Row = end.value
            return row
        if stages is not None:
            stages.append(stage)
