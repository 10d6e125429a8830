#!/usr/bin/env bash
# One would guess that the type of `x[i]*c` does not depend on the value of the literal c: always float32 for
# a float32 x, as in numpy, or always double, as in C.
# Instead loopy generates a float literal if the value is exact in float32, and a double literal otherwise.
# `x[i]*0.5` is a float32 kernel. `x[i]*0.1` multiplies in double and writes twice the bytes.
# A kernel timed with alpha = 0.5 and used with alpha = 0.1 is a different kernel.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
export XDG_CACHE_HOME="$folder/cache"
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet --no-compile --disable-pip-version-check \
  loopy==2025.2 islpy==2026.2.2 pymbolic==2025.1 pyopencl==2026.1.4 pytools==2026.1.1 numpy==2.3.5
"$folder/env/bin/python" - <<'EOF'
import sys
from importlib.metadata import version

import loopy as lp
import numpy as np

print("loopy", version("loopy"), "pymbolic", version("pymbolic"))
seen = {}
for literal in ("0.5", "2.0", "0.1", "1e-3"):
    statement = f"y[i] = x[i]*{literal}"
    program = lp.make_kernel("{[i]: 0<=i<n}", statement, target=lp.OpenCLTarget(), lang_version=(2018, 2))
    program = lp.add_and_infer_dtypes(program, {"x": np.float32})
    code = lp.generate_code_v2(program).device_code()
    statement = next(line.strip() for line in code.splitlines() if "y[" in line and "=" in line)
    seen[literal] = "double" if "double *__restrict__ y" in code else "float"
    print(f"x[i]*{literal}: {seen[literal]} y, {statement}")
if seen != {"0.5": "float", "2.0": "float", "0.1": "double", "1e-3": "double"}:
    sys.exit("the behaviour has changed")
EOF
