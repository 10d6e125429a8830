"""gemmbench over a cluster: the base's cases on every device of a node, held against the base's rates.

    GEMMBENCH_BASE=base.jsonl reframe -C settings.py -c gemmbench_check.py --distribute=all -r

``--distribute=all`` makes it one test for each node. The base is a saved run on one node, of all its devices:

    gemmbench square --sizes 1024,4096 --kernel best --device all --save once.jsonl
    gemmbench check once.jsonl --aa 10 --device all --save base.jsonl

Each row is a performance variable. The reference is the median of its repetitions, the tolerance three
times their scatter, or `tolerance` where that is more or the base has one repetition. Only `gemmbench` on the
PATH is needed, here and on the nodes: rows are read with `gemmbench show --format json`.
"""

import json
import math
import os
import re
import shlex
import statistics
import subprocess
from pathlib import Path

import reframe as rfm
import reframe.utility.sanity as sn
import reframe.utility.typecheck as typing
from reframe.core.builtins import run_after, run_before, sanity_function, variable

FIGURES = (  # the first that a row has; unit, and whether more is better
    ("kernel_gflops", "GFLOP/s", True),
    ("host_gflops", "GFLOP/s", True),
    ("gflops", "GFLOP/s", True),
    ("gbps", "GB/s", True),
    ("latency_s", "s", False),
)
DEVIATIONS = 3
HOST = -1  # the device of a row that ran on the host: numpy's


def by_name(rows):
    """The repetitions of every row, under a name for ReFrame: ``0_NVIDIA_H200_gemm_naive_float_8x8x8``.

    The number is the device's among those that the run has rows of, so that equal devices differ.
    """
    rows = list(rows)
    devices = sorted({row["device"] for row in rows} - {HOST})
    places = {HOST: "host", **{device: place for place, device in enumerate(devices)}}
    found = {}
    for row in rows:
        shape = "x".join(str(row[side]) for side in "mnk") if row["m"] is not None else ""
        parameters = "_".join(f"{name}{value}" for name, value in sorted(row["parameters"].items()))
        words = (places[row["device"]], row["device_name"], row["kind"], row["variant"], row["dtype"])
        name = "_".join(filter(None, (*map(str, words), shape, row["label"], parameters)))
        found.setdefault(re.sub(r"[^A-Za-z0-9.]+", "_", name), []).append(row)
    return found


def figure(repetitions):
    """Median, scatter from run to run as a fraction, unit, whether more is better; None if it has no rate."""
    for field, unit, more_is_better in FIGURES:
        values = [row[field] for row in repetitions if row["status"] == "ok" and row[field]]
        if values:
            scatter = statistics.stdev(map(math.log, values)) if len(values) > 1 else 0.0
            return statistics.median(values), scatter, unit, more_is_better
    return None


@rfm.simple_test
class GemmbenchCheck(rfm.RunOnlyRegressionTest):
    """One node; ReFrame's ``--distribute`` makes it one for each."""

    descr = "GEMM and peak rates of every OpenCL device of a node, against a saved base"
    valid_systems = ["*"]  # noqa: RUF012  ReFrame asks for lists
    valid_prog_environs = ["*"]  # noqa: RUF012  ReFrame asks for lists
    executable = "gemmbench"
    exclusive_access = True
    time_limit = "2h"

    base = variable(str, value=os.environ.get("GEMMBENCH_BASE", "base.jsonl"))
    tolerance = variable(float, value=0.05)
    options = variable(typing.List[str], value=[])  # of `gemmbench check`, such as --across=driver

    @run_after("init")
    def read_base(self):
        """Rows and references of the base; what the job runs."""
        path = Path(self.base).resolve()
        shown = subprocess.run(
            ["gemmbench", "show", str(path), "--format", "json"], capture_output=True, text=True
        )
        # Not raised: ReFrame would leave the test out, and succeed.
        self._problem = shown.stderr.strip() if shown.returncode else ""
        rows = [] if self._problem else json.loads(shown.stdout)
        self._base = by_name(row for row in rows if row["status"] == "ok")
        self.executable_opts = [
            "check",
            shlex.quote(str(path)),
            *self.options,
            "--save",
            "run.jsonl",
            "--force",
        ]
        self.postrun_cmds = ["gemmbench show run.jsonl --format json >run.json"]
        self.keep_files = ["run.jsonl"]

    @run_before("sanity")
    def read_run(self):
        """What the job has measured; nothing if it could not."""
        written = Path(self.stagedir, "run.json")
        text = written.read_text(encoding="utf-8") if written.is_file() else ""
        self._run = by_name(json.loads(text)) if text else {}

    @sanity_function
    def every_row_is_ok(self):
        """Every row that the base has was measured, verified and right, each time that it was measured."""
        return sn.all(
            [
                sn.assert_true(self._base, f"GEMMBENCH_BASE: {self._problem or 'no row is ok'}"),
                *map(self._is_ok, self._base),
            ]
        )

    def _is_ok(self, name):
        statuses = {row["status"] for row in self._run.get(name, ())}
        return sn.assert_true(statuses == {"ok"}, f"{name}: {self._why(name)}")

    def _why(self, name):
        rows = self._run.get(name, ())
        return (
            "; ".join(f"{row['status']} {row['reason']}" for row in rows if row["status"] != "ok")
            or "missing"
        )

    @run_before("performance")
    def refer_to_the_base(self):
        """A performance variable for every row of the base that has a rate."""
        self.perf_variables, references = {}, {}
        for name, repetitions in self._base.items():
            if (found := figure(repetitions)) is None:
                continue
            value, scatter, unit, more_is_better = found
            # A lower bound is at most all of the value.
            tolerance = min(max(self.tolerance, DEVIATIONS * scatter), 0.99)
            bounds = (-tolerance, None) if more_is_better else (None, tolerance)
            references[name] = (value, *bounds, unit)
            self.perf_variables[name] = sn.make_performance_function(lambda name=name: self._now(name), unit)
        self.reference = {"*": references}

    def _now(self, name):
        return figure(self._run[name])[0]
