#!/usr/bin/env bash
# One would guess that threadpoolctl lists BLAS and OpenMP libraries, and that each has at least one thread.
# Instead the list has one entry more after scipy has written a Matrix Market file: its reader and writer,
# with 0 threads, which stands for all.
# A program that reports the smallest number of threads, or the product of all, then says that the BLAS used 0
# threads. Select only entries whose user_api is "blas".
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet --no-compile --disable-pip-version-check \
  numpy==2.4.6 scipy==1.17.1 threadpoolctl==3.8.0
"$folder/env/bin/python" - <<'EOF'
import io
import sys

import numpy as np
import scipy.io
import scipy.linalg
import threadpoolctl


def pools():
    return sorted((pool["user_api"], pool["num_threads"]) for pool in threadpoolctl.threadpool_info())


print("threadpoolctl", threadpoolctl.__version__, "scipy", scipy.__version__, "numpy", np.__version__)
before = pools()
scipy.io.mmwrite(io.BytesIO(), np.ones((2, 2)))
after = pools()
print("before the first file:", before)
print("after it:", after)
if any(threads < 1 for _, threads in before) or after != [*before, ("scipy", 0)]:
    sys.exit("the behaviour has changed")
EOF
