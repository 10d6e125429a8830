#!/usr/bin/env bash
# One would guess that the last of two -cl-std options wins, as with -std of C compilers, or that both are
# refused.
# Instead PoCL uses the first, and Intel's CPU runtime the last.
# If you append -cl-std=CL3.0 to the options of a tool, `__OPENCL_C_VERSION__` differs between drivers, and
# with it the built-in functions and any code that depends on it.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
export XDG_CACHE_HOME="$folder/cache" OCL_ICD_VENDORS="$folder/icd" PYOPENCL_NO_CACHE=1 PYTHONWARNINGS=ignore
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet --no-compile --disable-pip-version-check \
  pyopencl==2026.1.4 pytools==2026.1.1 numpy==2.4.6 \
  pocl-binary-distribution==3.0 intel-opencl-rt==2026.2.0 intel-cmplr-lib-rt==2026.2.0
mkdir "$folder/icd" && echo "$folder/env/lib/libintelocl.so" >"$folder/icd/intel.icd"
"$folder/env/bin/python" - <<'EOF'
import sys

import numpy as np
import pyopencl as cl

SOURCE = "kernel void version(global int *x) { *x = __OPENCL_C_VERSION__; }"
print("pyopencl", cl.VERSION_TEXT)
seen = {}
for platform in cl.get_platforms():
    device = platform.get_devices()[0]
    vendor = "Intel" if "Intel" in platform.name else "PoCL"
    context = cl.Context([device])
    queue = cl.CommandQueue(context)
    buffer = cl.Buffer(context, cl.mem_flags.READ_WRITE, 4)
    for options in (["-cl-std=CL1.2", "-cl-std=CL3.0"], ["-cl-std=CL3.0", "-cl-std=CL1.2"]):
        version = np.zeros(1, np.int32)
        cl.Program(context, SOURCE).build(options).version(queue, (1,), None, buffer)
        cl.enqueue_copy(queue, version, buffer)
        seen[vendor, options[0]] = int(version[0])
        print(f"{vendor}, driver {device.driver_version}:", *options, "->", version[0])
first, last = "-cl-std=CL1.2", "-cl-std=CL3.0"
if seen != {("Intel", first): 300, ("Intel", last): 120, ("PoCL", first): 120, ("PoCL", last): 300}:
    sys.exit("the behaviour has changed")
EOF
