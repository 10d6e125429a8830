"""Verification without a device: right products at random, and planted faults at 256, 1024 and 2048.

    python -m tools.verification [COUNT [SEED]]

No right product may be called wrong, and every fault must be, in every type.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections import defaultdict
from pathlib import Path

import numpy as np

from gemmbench.gemm import answers
from tests import rounding
from tests.unit.test_answers import SETTINGS, faults_that_passed

_DEEP = (*rounding.DEPTHS, 4096, 8192)


def right_called_wrong(count: int, seed: int) -> int:
    """How many right cases were called wrong; prints how near the bounds they came, by type."""
    nearest: dict[tuple[str, str, bool], float] = defaultdict(float)
    wrong = 0
    for case in rounding.right_cases(np.random.default_rng(seed), count, _DEEP):
        check = rounding.judged(case)
        exact = answers.exact_operands(case.problem, case.sums)
        c = rounding.product(
            exact.problem, exact.operands.a, exact.operands.b, exact.operands.c, case.sums, case.order
        )
        reasons = [*check.reasons, *filter(None, [exact.error(c)])]
        if reasons:
            wrong += 1
            print(f"WRONG {case.problem} {case.operands} {case.sums} {case.order}: {reasons}")
        key = case.problem.dtype, case.sums, case.operands == "generated"
        nearest[key] = max(nearest[key], check.figures.get("element", 0.0))
    for (dtype, sums, generated), figure in sorted(nearest.items()):
        print(f"{dtype} in {sums}, {'generated' if generated else 'own'} operands: {figure:.2f} of the bound")
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
    """1 if any verdict was wrong."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("count", nargs="?", type=int, default=1000, help="of right products")
    parser.add_argument("seed", nargs="?", type=int, default=1, help="of what is drawn")
    options = parser.parse_args()
    return int(bool(right_called_wrong(options.count, options.seed) + faults_not_found()))


if __name__ == "__main__":
    sys.exit(main())
