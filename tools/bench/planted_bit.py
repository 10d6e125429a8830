"""Whether a long run finds a bit that flips in a result: ``python tools/bench/planted_bit.py --size 4096``.

Runs ``gemmbench gemm --for 60s`` on a machine that flips a bit of C once, after 20,000 results. Ends with
status 0 if exactly that was found. The kernel must be of OpenCL.
"""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from gemmbench import api
from gemmbench.options import build
from gemmbench.options.measuring import Gemm
from tests.device import planted


def main() -> int:
    """Run, and print what was found."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--device", default="")
    parser.add_argument("--kernel", default="best")
    parser.add_argument("--dtype", default="float")
    parser.add_argument("--size", type=int, default=4096)
    parser.add_argument("--for", dest="lasting", default="60s")
    parser.add_argument("--result", type=int, default=20_000, help="which is wrong, counted from 0")
    asked = parser.parse_args()
    os.environ[planted.RESULT] = str(asked.result)
    api.make_machine = planted.make  # type: ignore[assignment]  # a PlantedMachine, for the real one
    values = {"device": asked.device, "kernels": asked.kernel, "m": asked.size, "dtype": asked.dtype}
    options = build(Gemm, {**values, "baseline": "none", "peak": False, "sustain": asked.lasting})
    with api.prepared(options) as measurement:
        _, run = api.follow(measurement, options)
    run.show()
    results = [row.sustained for row in run.rows if row.sustained]
    for each in results:
        print(f"{each.wrong} wrong results of {each.results}, {each.bits} bits: {each.errors}")
    wanted = (1, 1, asked.result)
    is_found = [
        (each.wrong, each.bits, each.errors[0].result if each.errors else -1) == wanted for each in results
    ]
    return 0 if is_found and all(is_found) else 1


if __name__ == "__main__":
    sys.exit(main())
