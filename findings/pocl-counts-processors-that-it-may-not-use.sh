#!/usr/bin/env bash
# One would guess that a CPU driver counts the processors in its affinity mask, because it runs on no others.
# Instead PoCL reports every processor of the machine as a compute unit, and starts as many threads, which
# share the processors that are allowed. Intel's runtime follows the mask.
# Under taskset, or in a job pinned to some cores, a theoretical peak computed from the compute units is too
# high by that ratio. The script needs two processors, and exits with status 2 if there is only one.
set -eu
[ "$(getconf _NPROCESSORS_ONLN)" -gt 1 ] || { echo "this machine has one processor" >&2; exit 2; }
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
export XDG_CACHE_HOME="$folder/cache" OCL_ICD_VENDORS="$folder/icd" PYOPENCL_NO_CACHE=1 PYTHONWARNINGS=ignore
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet --no-compile --disable-pip-version-check \
  pyopencl==2026.1.4 pytools==2026.1.1 numpy==2.4.6 \
  pocl-binary-distribution==3.0 intel-opencl-rt==2026.2.0 intel-cmplr-lib-rt==2026.2.0
mkdir "$folder/icd" && echo "$folder/env/lib/libintelocl.so" >"$folder/icd/intel.icd"
"$folder/env/bin/python" - <<'EOF'
import os
import sys

os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})

import pyopencl as cl

print(f"pyopencl {cl.VERSION_TEXT}, {os.cpu_count()} processors, 1 of them allowed")
before = len(os.listdir("/proc/self/task"))
platforms = cl.get_platforms()
started = len(os.listdir("/proc/self/task")) - before  # Intel's start with a context
units = {}
for platform in platforms:
    device = platform.get_devices()[0]
    vendor = "Intel" if "Intel" in platform.name else "PoCL"
    units[vendor] = device.max_compute_units
    print(f"{vendor}, driver {device.driver_version}: {units[vendor]} compute units")
print("threads that PoCL started:", started)
if units != {"Intel": 1, "PoCL": os.cpu_count()} or started != os.cpu_count():
    sys.exit("the behaviour has changed")
EOF
