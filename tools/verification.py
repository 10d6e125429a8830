"""Verification in full: drawn right products, and planted faults at 256, 1024 and 2048, in every type.

    python -m tools.verification [COUNT [SEED]]

No right product may be called wrong, and every fault must be.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections import defaultdict
from pathlib import Path

import numpy as np

from gemmbench.gemm import reference
from tests.rounding import DEPTHS, judged, right_cases
from tests.unit.test_answers import SETTINGS, faults_that_passed

_DEEP = (*DEPTHS, 4096, 8192)


def right_called_wrong(count: int, seed: int) -> int:
    """How many right cases were called wrong; prints the worst of each figure by type."""
    worst: dict[tuple[str, str, bool], dict[str, float]] = defaultdict(dict)
    wrong = 0
    rng = np.random.default_rng(seed)
    most, drawn = reference._MOST_ELEMENTS, reference.DRAWN
    for case in right_cases(rng, count, _DEEP):
        # A third of them as where the host cannot make all of C.
        reference._MOST_ELEMENTS, reference.DRAWN = (0, 8) if rng.random() < 1 / 3 else (most, drawn)
        check = judged(case)
        if check.verdict != "ok":
            wrong += 1
            print(f"WRONG {case.problem} {case.operands} {case.sums} {case.order}: {check.reasons}")
        figures = worst[case.problem.dtype, case.sums, case.operands == "generated"]
        for name, value in check.figures.items():
            figures[name] = max(figures.get(name, 0.0), value)
    reference._MOST_ELEMENTS, reference.DRAWN = most, drawn
    for (dtype, sums, generated), figures in sorted(worst.items()):
        shown = ", ".join(f"{name} {value:.2f}" for name, value in figures.items())
        print(f"{dtype} in {sums}, {'generated' if generated else 'own'} operands: {shown}")
    print(f"{wrong} of {count} right cases called wrong")
    return wrong


def faults_not_found() -> int:
    """How many planted faults passed."""
    count = 0
    with tempfile.TemporaryDirectory() as folder:
        for setting in SETTINGS:
            passed = faults_that_passed(*setting, Path(folder))
            count += len(passed)
            print(*setting, f"not found: {', '.join(passed)}" if passed else "every fault was found")
    return count


def main() -> int:
    """1 if anything was called what it is not."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("count", nargs="?", type=int, default=1000, help="of right products")
    parser.add_argument("seed", nargs="?", type=int, default=1, help="of what is drawn")
    options = parser.parse_args()
    return int(bool(right_called_wrong(options.count, options.seed) + faults_not_found()))


if __name__ == "__main__":
    sys.exit(main())
