#!/usr/bin/env bash
# One would guess that clEnqueueFillBuffer is at least as fast as a kernel that stores a constant.
# Instead Intel's CPU runtime needs more than five times as long as such a kernel to fill 64 MiB. Each fill
# also causes the page faults of a new allocation of that size: 16,385 with pages of 4 KiB. PoCL needs about
# the same time for both.
# A bandwidth measured with fills is far too low, and clearing a buffer between timed launches can take longer
# than the launches.
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
import resource
import sys

import numpy as np
import pyopencl as cl

SIZE = 64 << 20
print("pyopencl", cl.VERSION_TEXT)
ratios = {}
for platform in cl.get_platforms():
    device = platform.get_devices()[0]
    vendor = "Intel" if "Intel" in platform.name else "PoCL"
    context = cl.Context([device])
    queue = cl.CommandQueue(context, properties=cl.command_queue_properties.PROFILING_ENABLE)
    buffer = cl.Buffer(context, cl.mem_flags.READ_WRITE, SIZE)
    kernel = cl.Program(context, "kernel void one(global float *x) { x[get_global_id(0)] = 1; }").build().one
    best = {}
    for name, enqueue in (
        ("kernel", lambda: kernel(queue, (SIZE // 4,), (256,), buffer)),
        ("fill", lambda: cl.enqueue_fill_buffer(queue, buffer, np.float32(1), 0, SIZE)),
    ):
        for _ in range(8):
            faults = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
            event = enqueue()
            event.wait()
            faults = resource.getrusage(resource.RUSAGE_SELF).ru_minflt - faults
            seconds = (event.profile.end - event.profile.start) * 1e-9
            best[name] = min(best.get(name, (seconds, faults)), (seconds, faults))
    ratios[vendor] = best["fill"][0] / best["kernel"][0]
    print(f"{vendor}, driver {device.driver_version}")
    for name, (seconds, faults) in best.items():
        print(f"  {name}: {seconds * 1e3:.1f} ms, {faults} page faults")
if not (ratios["Intel"] > 5 and ratios["PoCL"] < 3):
    sys.exit("the behaviour has changed")
EOF
