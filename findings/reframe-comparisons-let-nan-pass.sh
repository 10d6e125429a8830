#!/usr/bin/env bash
# One would guess that assert_lt(residual, 1e-6) of ReFrame fails if the residual is NaN, because `nan < 1e-6`
# is false.
# Instead it passes. assert_lt, assert_le, assert_gt and assert_ge only fail if the opposite comparison is
# true. assert_bounded and assert_reference do refuse NaN.
# A benchmark that checks its residual this way accepts a product full of NaN.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet --no-compile --disable-pip-version-check reframe-hpc==4.10.4
cat >"$folder/residual.py" <<'EOF'
import reframe as rfm
import reframe.utility.sanity as sn


class residual_test(rfm.RunOnlyRegressionTest):
    valid_systems = ["*"]
    valid_prog_environs = ["*"]
    executable = "echo residual: nan"

    @deferrable
    def residual(self):
        return sn.extractsingle(r"residual: (\S+)", self.stdout, 1, float)


@rfm.simple_test
class less_than(residual_test):
    @sanity_function
    def small(self):
        return sn.assert_lt(self.residual(), 1e-6)


@rfm.simple_test
class not_greater(residual_test):
    @sanity_function
    def small(self):
        return sn.assert_le(self.residual(), 1e-6)


@rfm.simple_test
class bounded(residual_test):
    @sanity_function
    def small(self):
        return sn.assert_bounded(self.residual(), 0, 1e-6)
EOF
cd "$folder"
export HOME="$folder" TMPDIR="$folder"
env/bin/reframe --version
env/bin/reframe --prefix "$folder" --nocolor --checkpath residual.py --run >log 2>&1 || true
results=$(sed -n 's/^\[ *\(OK\|FAIL\) *\] ([0-9/]*) \([a-z_]*\) .*/\2 \1/p' log | sort)
echo "$results"
expected=$(printf '%s\n' 'bounded FAIL' 'less_than OK' 'not_greater OK')
[ "$results" = "$expected" ] || { cat log; echo "the behaviour has changed" >&2; exit 1; }
