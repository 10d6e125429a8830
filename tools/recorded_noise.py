"""``gemmbench/regress/noise.json``: how far unchanged rows lie apart from run to run, from tests/data/aa.

Every run of a recording in turn begins a base of neighbouring runs, and every one of the others the new runs.
Kept are quantiles, over all rows, of the logarithm of new over base: what is `slower` must lie beyond.

Run it to write the file again; ``--check`` says whether it is as it would be written.
"""

from __future__ import annotations

import argparse
import hashlib
import math
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # what follows is imported from there

import msgspec
import numpy as np

from gemmbench.ladder import BASELINES
from gemmbench.model.run_file import load
from gemmbench.regress.baseline import repetitions
from gemmbench.regress.verdict import FEW, Reach, Recordings, measured
from gemmbench.stats.rates import measure

ROOT = Path(__file__).resolve().parents[1]
DATA, RESULT = ROOT / "tests" / "data" / "aa", ROOT / "gemmbench" / "regress" / "noise.json"
LEVELS = (0.05, 0.5, 0.9, 0.95, 0.975, 0.99, 0.995, 0.998, 0.999, 1.0)
BASES, NEWS = (1, 2, 3, 5), (1, 3, 5, 7, 9)

Values = Mapping[Any, np.ndarray]  # a row's figures, run by run


def recorded() -> Recordings:
    """From every recording."""
    sources, kinds = {}, {}
    for path in sorted(DATA.glob("*.jsonl")):
        sources[path.relative_to(ROOT).as_posix()] = hashlib.sha256(path.read_bytes()).hexdigest()
        run = load(path)
        every = repetitions(run, run.header)
        figures = {
            key: np.array([figure.value for each in every if (figure := measure(each.rows[key])) is not None])
            for key in every[0].rows
        }
        kernels = {key: values for key, values in figures.items() if key[2] not in BASELINES}
        libraries = {key: values for key, values in figures.items() if key[2] in BASELINES}
        kinds[run.header.devices[0].family] = {
            "kernels": reaches(kernels),
            "libraries": reaches(libraries),
        }
    return Recordings(sources, LEVELS, kinds)


def reaches(values: Values) -> tuple[Reach, ...]:
    """Every number of base and new runs that a recording has runs for."""
    runs = len(next(iter(values.values())))
    return tuple(
        Reach(base, new, *map(quantiles, jobs(values, base, new)))
        for base in BASES
        for new in NEWS
        if base + new <= runs
    )


def jobs(values: Values, base: int, new: int) -> tuple[list[float], list[float], list[float]]:
    """For each row of each job the logarithm of new over base; in standard errors; of the least new run."""
    apart: list[float] = []
    scaled: list[float] = []
    least: list[float] = []
    rows = np.array(list(values.values()))
    for before, after in _jobs(rows.shape[1], base, new):
        noise = (
            measured({key: [row[before].tolist()] for key, row in values.items()}, "")
            if base >= FEW
            else None
        )
        middle = np.median(rows[:, before], axis=1)
        changes = np.median(rows[:, after], axis=1) - middle
        least += (np.min(rows[:, after], axis=1) - middle).tolist()
        for key, change in zip(values, changes.tolist(), strict=True):
            apart.append(change)
            if noise:
                error = noise.of(key).deviation * math.sqrt(1 / base + 1 / new)
                scaled.append(apart[-1] / error)
    return apart, scaled, least


def _jobs(runs: int, base: int, new: int) -> Iterator[tuple[list[int], list[int]]]:
    """Runs of the base and new runs: neighbours both, after the last the first again."""
    for start in range(runs):
        order = [(start + step) % runs for step in range(runs)]
        rest = order[base:]
        for first in range(len(rest)):
            yield order[:base], [rest[(first + step) % len(rest)] for step in range(new)]


def quantiles(values: list[float]) -> tuple[float, ...]:
    """At `LEVELS`, to four digits; none of nothing."""
    if not values:
        return ()
    return tuple(float(f"{value:.4g}") for value in np.quantile(values, LEVELS))


def text() -> bytes:
    """The file's."""
    return msgspec.json.encode(recorded()).replace(b'{"base"', b'\n{"base"') + b"\n"


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--check", action="store_true", help="1 if the file is another; write nothing")
    if parser.parse_args().check:
        sys.exit(RESULT.read_bytes() != text())
    RESULT.write_bytes(text())
