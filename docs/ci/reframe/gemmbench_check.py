"""This guards your drivers, compilers and machines: it times gemmbench's kernels on every device of a node.

    GEMMBENCH_BASE=base.jsonl reframe -C settings.py -c gemmbench_check.py --distribute=all -r

``--distribute=all`` makes it one test for each node. The base is a saved run on one node, of all its devices:

    gemmbench square --sizes 1024,4096 --kernel best --device all --budget 1 --no-peak --save once.jsonl
    gemmbench check once.jsonl --aa 10 --device all --save base.jsonl

gemmbench measures each case once, and ReFrame compares. Each row is a performance variable, such as
`naive_float_1024`, with the device's position before it where there are several. The reference is the median
of its repetitions, the tolerance three times their scatter, or `tolerance` where that is more or the base has
one repetition. Only `gemmbench` on the PATH is needed, here and on the nodes, of the version of the base.
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


def row_name(row, position):
    """A row for people, as ReFrame takes it: ``naive_float_1024``, ``1_flops_float_vector_width8``."""
    sides = [row[side] for side in "mnk"] if row["m"] is not None else []
    shape = "x".join(map(str, sides[:1] if len(set(sides)) == 1 else sides))
    # A GEMM's other parameters are presets, and may be others today.
    named = (row["given"] or ()) if row["kind"] == "gemm" else row["parameters"]
    parameters = [f"{name}{row['parameters'][name]}" for name in sorted(named)]
    words = [position, row["variant"], row["dtype"], shape, row["label"], *parameters]
    return re.sub(r"[^A-Za-z0-9.]+", "_", "_".join(filter(None, words)))


def by_name(rows, several):
    """The repetitions of every row. With `several` devices the device's position stands in the name."""
    rows = list(rows)
    devices = sorted({row["device"] for row in rows} - {HOST})
    positions = {device: str(position) if several else "" for position, device in enumerate(devices)}
    named = {}
    for row in rows:
        named.setdefault(row_name(row, positions.get(row["device"], "")), []).append(row)
    return named


def figure(repetitions):
    """Median, scatter from run to run as a fraction, unit, whether more is better; None if it has no rate.

    The median has four digits: more would tell nothing.
    """
    for field, unit, more_is_better in FIGURES:
        values = [row[field] for row in repetitions if row["status"] == "ok" and row[field]]
        if values:
            scatter = statistics.stdev(map(math.log, values)) if len(values) > 1 else 0.0
            return float(f"{statistics.median(values):.4g}"), scatter, unit, more_is_better
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
        measured = [row for row in rows if row["status"] == "ok"]
        self._several = len({row["device"] for row in measured} - {HOST}) > 1
        self._base = by_name(measured, self._several)
        self.executable_opts = [
            *("check", shlex.quote(str(path)), "--aa", "1", "--quiet"),
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
        self._run = by_name(json.loads(text), self._several) if text else {}

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
            if (reference := figure(repetitions)) is None:
                continue
            value, scatter, unit, more_is_better = reference
            # A lower bound is at most all of the value.
            tolerance = min(max(self.tolerance, DEVIATIONS * scatter), 0.99)
            bounds = (-tolerance, None) if more_is_better else (None, tolerance)
            references[name] = (value, *bounds, unit)
            self.perf_variables[name] = sn.make_performance_function(lambda name=name: self._now(name), unit)
        self.reference = {"*": references}

    def _now(self, name):
        return figure(self._run[name])[0]
