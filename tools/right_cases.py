"""Verifies drawn right products, summed in every type and order: none may be called wrong.

python -m tools.right_cases [COUNT [SEED]]
"""

from __future__ import annotations

import sys
from collections import defaultdict

import numpy as np

from gemmbench.gemm import reference
from tests.rounding import DEPTHS, judged, right_cases

_DEEP = (*DEPTHS, 4096, 8192)


def main(count: int = 1000, seed: int = 1) -> int:
    """How many right cases were called wrong; prints the worst of each figure by type."""
    worst: dict[tuple[str, str, bool], dict[str, float]] = defaultdict(dict)
    wrong = 0
    rng = np.random.default_rng(seed)
    most = reference._MOST_ELEMENTS
    for case in right_cases(rng, count, _DEEP):
        # A third of them as where the host cannot make all of C.
        reference._MOST_ELEMENTS, reference.DRAWN = (0, 8) if rng.random() < 1 / 3 else (most, 64)
        check = judged(case)
        if check.verdict != "ok":
            wrong += 1
            print(f"WRONG {case.problem} {case.operands} {case.sums} {case.order}: {check.reasons}")
        figures = worst[case.problem.dtype, case.sums, case.operands == "generated"]
        for name, value in check.figures.items():
            figures[name] = max(figures.get(name, 0.0), value)
    for (dtype, sums, generated), figures in sorted(worst.items()):
        shown = ", ".join(f"{name} {value:.2f}" for name, value in figures.items())
        print(f"{dtype} in {sums}, {'generated' if generated else 'own'} operands: {shown}")
    print(f"{wrong} of {count} right cases called wrong")
    return wrong


if __name__ == "__main__":
    sys.exit(bool(main(*map(int, sys.argv[1:]))))
