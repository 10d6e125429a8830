#!/usr/bin/env bash
# One would guess that it hardly matters where matrices start: OpenBLAS copies A and B into buffers of its own
# anyway. For A and B that is so, and with one thread for C, too. But two threads each write half of every row of C.
# If C does not start at a multiple of 64 bytes, both write to one cache line in each row, and a product of
# 128 x 128 floats takes 1.25 to 1.4 times as long. Arrays of numpy start at any multiple of 16 bytes, so that about
# one process in four is fast.
# Two runs of one benchmark differ by a third without any other program. Give `out` an address of its own.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet --no-compile --disable-pip-version-check numpy==2.4.6 threadpoolctl==3.6.0
OPENBLAS_NUM_THREADS=2 "$folder/env/bin/python" - <<'EOF'
import sys
import time

import numpy as np
import threadpoolctl

SIZE, PRODUCTS, ROUNDS = 128, 64, 300
library = threadpoolctl.threadpool_info()[0]
threads = library["num_threads"]
print("numpy", np.__version__, "OpenBLAS", library["version"], library["architecture"], threads, "threads")
if threads < 2:
    sys.exit("this needs two processors")


def matrix(offset):
    """Floats that start so many bytes after a page."""
    raw = np.empty(SIZE * SIZE * 4 + 2 * 4096, np.uint8)
    start = -raw.ctypes.data % 4096 + offset
    made = raw[start : start + SIZE * SIZE * 4].view(np.float32).reshape(SIZE, SIZE)
    made[...] = np.random.default_rng(1).random((SIZE, SIZE))
    return made


cases = {"all on a page": (0, 0, 0), "A 16 bytes off": (16, 0, 0), "B 16 bytes off": (0, 16, 0)}
cases |= {f"C {offset} bytes off": (0, 0, offset) for offset in (16, 32, 48, 64)}
matrices = {name: tuple(map(matrix, offsets)) for name, offsets in cases.items()}
best = dict.fromkeys(cases, float("inf"))
for _ in range(ROUNDS):  # in turn, so that the machine's speed is the same for all
    for name, (a, b, c) in matrices.items():
        begin = time.perf_counter()
        for _ in range(PRODUCTS):
            np.matmul(a, b, out=c)
        best[name] = min(best[name], (time.perf_counter() - begin) / PRODUCTS)
ratios = {name: seconds / best["all on a page"] for name, seconds in best.items()}
for name, ratio in ratios.items():
    print(f"{name}: {1e6 * best[name]:.1f} us, {ratio:.2f} times")
slow = [ratios[f"C {offset} bytes off"] for offset in (16, 32, 48)]
rest = [ratio for name, ratio in ratios.items() if ratio not in slow]
if min(slow) < 1.2 or max(rest) > 1.1:
    sys.exit("the behaviour has changed")
EOF
