#!/usr/bin/env bash
# The OpenMetrics parser of prometheus_client is strict: it refuses 1_000 as a number. One would guess that it
# refuses a series that appears twice with different values, or returns both.
# Instead it returns the first and drops the second, whatever the order of the labels.
# A test that reads an exporter's output with this parser cannot notice that two results share one series.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet --no-compile --disable-pip-version-check prometheus-client==0.26.0
"$folder/env/bin/python" - <<'EOF'
import sys
from importlib.metadata import version

from prometheus_client.openmetrics.parser import text_string_to_metric_families

print("prometheus_client", version("prometheus_client"))


def values(*samples):
    text = "\n".join(["# TYPE seconds gauge", *samples, "# EOF", ""])
    try:
        return [sample.value for family in text_string_to_metric_families(text) for sample in family.samples]
    except ValueError as error:
        return f"ValueError: {error}"


seen = []
for samples in (
    ['seconds{m="64"} 1', 'seconds{m="128"} 2'],
    ['seconds{m="64"} 1', 'seconds{m="64"} 2'],
    ['seconds{m="64",n="8"} 1', 'seconds{n="8",m="64"} 2'],
    ['seconds{m="64"} 1_000'],
):
    seen.append(values(*samples))
    print(*samples, "->", seen[-1])
if seen != [[1, 2], [1], [1], "ValueError: Invalid value: '1_000'"]:
    sys.exit("the behaviour has changed")
EOF
