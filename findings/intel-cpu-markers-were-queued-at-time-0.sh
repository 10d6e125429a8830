#!/usr/bin/env bash
# One would guess that all four profiling times of an event come from the same clock.
# Instead CL_PROFILING_COMMAND_QUEUED is 0 for markers and barriers on Intel's CPU runtime, while their other
# three times are right. Kernels and copies have all four. So do markers on PoCL.
# If you use a marker to find out how long commands wait, the delay is the time since the machine started.
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

print("pyopencl", cl.VERSION_TEXT)
seen = {}
for platform in cl.get_platforms():
    device = platform.get_devices()[0]
    vendor = "Intel" if "Intel" in platform.name else "PoCL"
    print(f"{vendor}, driver {device.driver_version}")
    context = cl.Context([device])
    queue = cl.CommandQueue(context, properties=cl.command_queue_properties.PROFILING_ENABLE)
    buffer = cl.Buffer(context, cl.mem_flags.READ_WRITE, 4)
    kernel = cl.Program(context, "kernel void one(global float *x) { *x = 1; }").build().one
    for name, event in (
        ("kernel", kernel(queue, (1,), (1,), buffer)),
        ("copy", cl.enqueue_copy(queue, np.empty(1, np.float32), buffer, is_blocking=False)),
        ("marker", cl.enqueue_marker(queue)),
        ("barrier", cl.enqueue_barrier(queue)),
    ):
        event.wait()
        times = [event.profile.queued, event.profile.submit, event.profile.start, event.profile.end]
        seen[vendor, name] = times[0] == 0
        print(f"  {name}: queued at {times[0]} ns, submitted at {times[1]} ns, ended at {times[3]} ns")
        if not 0 < times[1] <= times[2] <= times[3]:
            sys.exit("SUBMIT, START and END are not in order")
expected = {(vendor, name): vendor == "Intel" and name in ("marker", "barrier") for vendor, name in seen}
if seen != expected or len(seen) != 8:
    sys.exit("the behaviour has changed")
EOF
