#!/usr/bin/env bash
# One would guess that safetensors.numpy saves the elements of a transposed array in index order, as
# numpy.save does, or refuses it.
# Instead it writes the memory as it is, with the transposed shape. The file has the right numbers in the
# wrong places, and there is no warning. The same happens to column-major arrays.
# Transposed operands of a GEMM keep their sum and norm, but give another product. np.ascontiguousarray helps.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet --no-compile --disable-pip-version-check numpy==2.4.6 safetensors==0.8.0
"$folder/env/bin/python" - <<'EOF'
import sys
from importlib.metadata import version

import numpy as np
from safetensors.numpy import load, save

print("safetensors", version("safetensors"), "numpy", np.__version__)
rows = np.arange(6.0).reshape(2, 3)
cases = {
    "row-major": rows,
    "transposed": rows.T,
    "column-major": np.asfortranarray(rows),
    "transposed, then ascontiguousarray": np.ascontiguousarray(rows.T),
}
kept = []
for name, array in cases.items():
    loaded = load(save({"a": array}))["a"]
    kept.append(bool((loaded == array).all()))
    print(f"{name}: saved {array.tolist()}, loaded {loaded.tolist()}")
if kept != [True, False, False, True]:
    sys.exit("the behaviour has changed")
EOF
