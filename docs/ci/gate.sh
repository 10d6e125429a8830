#!/bin/sh
# A performance gate for any CI server: sh gate.sh BASE [OPTION...], with the options of `gemmbench check`.
#
# For your kernels, it interleaves them with their old versions. The baseline is a run of the old file in the
# same job:
#   sh gate.sh base.jsonl --kernel-file kernels/mine.cl --against before/kernels/mine.cl --threshold '5 %'
# For your driver, compiler or machine, it measures gemmbench's own kernels, at a pinned version, on your own
# machine. The baseline is that of `gemmbench check once.jsonl --aa 10 --save bench/base.jsonl`, which shows how
# much runs vary. Or it interleaves two drivers:
#   sh gate.sh bench/base.jsonl --threshold '5 %' --fail-on resources
#   sh gate.sh bench/base.jsonl --against driver:/opt/old/libOpenCL.so --threshold '5 %'
#
# It writes new.jsonl (every sample), report.xml (JUnit) and summary.md to $REPORTS (gate-reports). On GitHub,
# it also adds the summary to the job's. The exit status is that of `gemmbench check`: 0 no regression, 1 a
# regression or a wrong result, 2 nothing could be compared. Rows that are too uncertain do not fail: with
# --strict the status is 3 for them.
set -eu

[ "$#" -ge 1 ] || { echo "usage: sh gate.sh BASE [OPTION of gemmbench check...]" >&2; exit 2; }

reports=${REPORTS:-gate-reports}
mkdir -p "$reports"

# An earlier job's reports must not pass for this one's; the base must not be among them.
for old in "$reports/new.jsonl" "$reports/report.xml" "$reports/summary.md"; do
  for word in "$@"; do
    if [ "$word" -ef "$old" ]; then
      echo "gate.sh: $word is removed by every job: keep it outside of $reports" >&2
      exit 2
    fi
  done
done
rm -f "$reports/new.jsonl" "$reports/report.xml" "$reports/summary.md"

status=0
gemmbench check "$@" --missing fail --save "$reports/new.jsonl" --force \
  --write "junit=$reports/report.xml" --write "markdown=$reports/summary.md" || status=$?

if [ -n "${GITHUB_STEP_SUMMARY:-}" ] && [ -f "$reports/summary.md" ]; then
  cat "$reports/summary.md" >>"$GITHUB_STEP_SUMMARY"
fi
exit "$status"
