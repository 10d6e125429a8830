"""Runs for reports: hostile names, and a series."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace

from gemmbench.model.row import Row, Scope
from gemmbench.model.run_file import Run
from tests import fake_runs as fake

HOSTILE = (
    "</script><script>window.hit=1</script><img src=x onerror=window.hit=1>"
    "\"'`{{7*7}}{% raw %}&lt;\u202egnp.exe\u2066\u200fא javascript:window.hit=1 $x^2$"
)


def hostile(number: int = 0) -> Run:
    """A run in which whoever could have chosen a name has chosen a bad one."""
    run = fake.fake_troubled()
    device = replace(
        run.header.devices[0], name=HOSTILE, driver=HOSTILE, platform=HOSTILE, origin=HOSTILE, pci=HOSTILE,
        warnings=(HOSTILE,),
    )  # fmt: skip
    host = replace(run.header.host, cpu=HOSTILE, blas=HOSTILE, system=HOSTILE, python=HOSTILE, busy=1.5)
    header = replace(run.header, devices=(device,), host=host, command=("square", HOSTILE), gemmbench=HOSTILE)
    rows = tuple(
        replace(row, label=HOSTILE, notes=(HOSTILE,), source=HOSTILE, reason=HOSTILE if row.reason else "")
        for row in run.rows
    )
    odd = replace(rows[1], variant=HOSTILE, parameters={HOSTILE: HOSTILE})
    return Run(header, (rows[0], odd, *rows[1:]), f"{HOSTILE.replace('/', '')}{number}.jsonl")


def scaled(run: Run, factor: float, only: Sequence[str] = (), noise: float = 0.004, seed: int = 0) -> Run:
    """A run whose times are so many times as long, in kinds of rows or in all, with a little noise."""
    drawn = random.Random(seed)

    def times(row: Row) -> Row:
        each = (factor if not only or row.kind in only else 1.0) * (1 + drawn.gauss(0, noise))
        samples = {
            name: Scope(tuple(second * each for second in scope.seconds), scope.batch, scope.stop)
            for name, scope in row.samples.items()
        }
        return replace(row, samples=samples)

    return replace(run, rows=tuple(map(times, run.rows)))


def few() -> Run:
    """A sweep of three variants, and the peak."""
    run = fake.fake_square()
    return replace(
        run, rows=tuple(row for row in run.rows if row.variant in ("flops", "tiled", "register", "numpy"))
    )


def days(count: int = 9, slower_from: int = 5, factor: float = 1.2) -> list[Run]:
    """The same plan on one machine, a day after the other; from one day on it is slower."""
    base = few()
    runs = []
    for number in range(count):
        run = scaled(base, factor if number >= slower_from else 1.0, seed=number)
        header = replace(run.header, started_utc=f"2026-11-{1 + number:02d}T04:00:00Z")
        runs.append(Run(header, run.rows, f"day-{number}.jsonl"))
    return runs
