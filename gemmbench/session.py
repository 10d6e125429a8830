"""run(plan) -> events: cases go to the child process, rows to the file, events to the caller."""

from __future__ import annotations

from collections.abc import Generator, Sequence

from gemmbench.facts.events import Event, Finished, Planned, Started
from gemmbench.facts.records import DeviceFacts, Policy, RunFile
from gemmbench.rules.plan import Case, Plan, Skip
from gemmbench.worker import Worker

_OVERHEAD_S = 0.5  # building and verifying, for the first estimate of the time left
_ENERGY_S = 2.5  # resting, warming up and the window


def run(
    plan: Plan,
    devices: Sequence[DeviceFacts],
    policy: Policy,
    worker: Worker,
    file: RunFile | None = None,
) -> Generator[Event, None, None]:
    """Run a plan, case by case.

    Rows are appended to the file, and flushed, before they are yielded; rows that the file already holds
    (``--resume``) are yielded again and not measured again.

    Raises:
        RunFileError: a row cannot be written; the rows before it are safe.
    """
    done = {row.key: row for row in file.done} if file else {}
    cases = [step for step in plan if isinstance(step, Case) and step.key not in done]
    each_s = policy.budget_s + _OVERHEAD_S + (_ENERGY_S if policy.energy else 0.0)
    yield Planned(len(cases), len(cases) * each_s)

    number = 0
    for step in plan:
        key = step.row.key if isinstance(step, Skip) else step.key
        if key in done:
            yield Finished(done[key], resumed=True)
            continue
        if isinstance(step, Skip):
            row = step.row
        else:
            number += 1
            yield Started(number, step.label)
            device = devices[step.device] if step.device >= 0 else None
            row = yield from worker.run(step, device, policy)
        if file:
            file.append(row)
        yield Finished(row)
