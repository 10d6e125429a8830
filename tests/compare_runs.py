"""Made-up runs to hold against each other: one machine, noise from run to run, planted changes."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from gemmbench.model.row import Row, RowKey, Scope
from gemmbench.model.run_file import Run, encode
from gemmbench.regress.compare import match_key
from tests import fake_runs as fake

HOSTILE = (
    "</script><script>window.hit=1</script><img src=x onerror=window.hit=1>"
    "\"'`{{7*7}}{% raw %}&lt;\u202egnp.exe\u2066\u200fא javascript:window.hit=1 $x^2$"
)
Slow = Mapping[tuple[str, int], float]  # by variant and m: how many times as long it takes


def again(
    seed: int, slow: Slow | None = None, noise: float = 0.008, run: Run | None = None, machine: float = 1.0
) -> Run:
    """A run measured again: every row with noise of its own, some slower, the machine at another speed."""
    draw = random.Random(seed)
    run = run or small()
    rows = [_scaled(row, draw, (slow or {}).get(_place(row), 1.0) * machine, noise) for row in run.rows]
    return replace(run, rows=tuple(rows), path=f"run{seed}.jsonl")


def slowed(run: Run, factor: float, only: RowKey | None = None) -> Run:
    """A run whose rows, or one of them, take longer."""
    rows = (
        fake.slower(row, factor) if only in (None, match_key(row, row.device)) else row for row in run.rows
    )
    return replace(run, rows=tuple(rows))


def small(variants: Sequence[str] = ("tiled", "register", "numpy")) -> Run:
    """A few rows of the square sweep, all of them quiet."""
    run = fake.fake_square()
    rows = [row for row in run.rows if row.kind == "gemm" and row.variant in variants and row.status == "ok"]
    quiet = [
        replace(row, samples={name: _quiet(scope) for name, scope in row.samples.items()}) for row in rows
    ]
    return replace(run, rows=tuple(quiet))


def repeated(runs: Sequence[Run]) -> Run:
    """One run in which every case stands several times, as an A/A measurement saves it."""
    return replace(runs[0], rows=tuple(row for run in runs for row in run.rows), path="aa.jsonl")


def repetitions(run: Run) -> list[Run]:
    """An A/A measurement cut into its repetitions, each on a day of its own: the inverse of `repeated`."""
    rows: dict[str, list[Row]] = {}
    for row in run.rows:
        rows.setdefault(str(row.key), []).append(row)
    count = min(map(len, rows.values()))
    return [
        on(replace(run, rows=tuple(same[number] for same in rows.values())), 1 + number)
        for number in range(count)
    ]


def on(run: Run, day: int) -> Run:
    """The same run on another day."""
    return replace(run, header=replace(run.header, started_utc=f"2026-10-{day:02d}T04:30:00Z"))


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


def days(count: int = 9, slower_from: int = 5, factor: float = 1.2) -> list[Run]:
    """The same plan on one machine, a day after the other; from one day on it is slower."""
    base = small()
    factors = [factor if day >= slower_from else 1.0 for day in range(count)]
    runs = [again(day, run=base, noise=0.004, machine=each) for day, each in enumerate(factors)]
    return [replace(on(run, 1 + day), path=f"day-{day}.jsonl") for day, run in enumerate(runs)]


def save(path: str | Path, run: Run) -> None:
    Path(path).write_bytes(encode(run.header) + b"".join(map(encode, run.rows)))


def _quiet(scope: Scope) -> Scope:
    first = scope.seconds[0]
    return fake.scope(first, times=1)


def _place(row: Row) -> tuple[str, int]:
    return row.variant, row.problem.m if row.problem else 0


def _scaled(row: Row, draw: random.Random, factor: float, noise: float) -> Row:
    factor *= 1 + noise * draw.gauss(0, 1)
    samples = fake.scaled(row, lambda: factor * (1 + 0.002 * draw.gauss(0, 1)))
    return replace(row, samples=samples)
