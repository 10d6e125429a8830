#!/usr/bin/env bash
# One would guess that operations on two pyopencl arrays pair elements by index, as in numpy, or refuse arrays
# with different memory orders, as pyopencl's assignment does.
# Instead they pair elements by their place in memory. C.T - C is 0 for every square C, and dot and maximum
# pair the wrong elements. C.T.astype() even returns a wrong array.
# If you compare a row-major result with a column-major reference on the device, a transposed result looks
# right and a right one looks wrong. Bring both to one memory order first.
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

(platform,) = cl.get_platforms()
print("pyopencl", cl.VERSION_TEXT, "on", platform.version.split(",")[0])
queue = cl.CommandQueue(cl.Context(platform.get_devices()))
host = np.array([[0, 1], [2, 3]], np.float32)
c = cl.array.to_device(queue, host)
seen = {
    "C.T alone": c.T.get().tolist(),
    "C.T - C": (c.T - c).get().tolist(),
    "maximum(C.T, C)": cl.array.maximum(c.T, c).get().tolist(),
    "dot(C.T, C)": float(cl.array.dot(c.T, c).get()),
    "C.T.astype(double)": c.T.astype(np.float64).get().tolist(),
}
right = {
    "C.T alone": host.T.tolist(),
    "C.T - C": (host.T - host).tolist(),
    "maximum(C.T, C)": np.maximum(host.T, host).tolist(),
    "dot(C.T, C)": float(np.vdot(host.T, host)),
    "C.T.astype(double)": host.T.tolist(),
}
for name in seen:
    print(f"{name}: {seen[name]}, right: {right[name]}")
if list(seen.values()) != [[[0, 2], [1, 3]], [[0, 0], [0, 0]], [[0, 2], [1, 3]], 14, [[0, 1], [2, 3]]]:
    sys.exit("the behaviour has changed")
EOF
