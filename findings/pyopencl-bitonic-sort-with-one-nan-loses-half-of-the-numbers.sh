#!/usr/bin/env bash
# One would guess that sorting floats with a NaN leaves their order undefined, but keeps all of them.
# Instead pyopencl's BitonicSort overwrites numbers with copies of others, depending on where the NaN is. At
# the end of 1024 numbers, only the NaN vanishes. In the middle, half of the numbers vanish. At the start, all
# become NaN.
# Quantiles of times sorted on the device then describe data that nobody measured, and usually no NaN is left
# to show that a measurement failed.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
export XDG_CACHE_HOME="$folder/cache" OCL_ICD_VENDORS="$folder/none" PYOPENCL_NO_CACHE=1 PYTHONWARNINGS=ignore
mkdir "$folder/none"
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet --no-compile --disable-pip-version-check \
  pyopencl==2026.1.4 pytools==2026.1.1 mako==1.4.3 pocl-binary-distribution==3.0 numpy==2.4.6
"$folder/env/bin/python" - <<'EOF'
import sys

import numpy as np
import pyopencl as cl
import pyopencl.array
from pyopencl.bitonic_sort import BitonicSort

(platform,) = cl.get_platforms()
print("pyopencl", cl.VERSION_TEXT, "on", platform.version.split(",")[0])
context = cl.Context(platform.get_devices())
queue = cl.CommandQueue(context)
sort = BitonicSort(context)
seen = {}
for place in (None, 1023, 512, 0):
    values = np.arange(1024, dtype=np.float32)
    if place is not None:
        values[place] = np.nan
    array, event = sort(cl.array.to_device(queue, values))
    event.wait()
    result = array.get()
    kept = len(np.intersect1d(result, values))
    seen[place] = kept, int(np.isnan(result).sum())
    print(f"1024 numbers, NaN at {place}: {kept} different ones afterwards, {seen[place][1]} NaNs")
if seen[None] != (1024, 0) or seen[1023] != (1023, 0) or seen[512] != (512, 0) or seen[0][1] != 1024:
    sys.exit("the behaviour has changed")
EOF
