"""This guards your drivers, compilers and machines: it times gemmbench's kernels on every device of a node.

    GEMMBENCH_BASE=base.jsonl reframe -C settings.py -c gemmbench_check.py --distribute=all -r

``--distribute=all`` makes it one test for each node. The baseline is a saved run of all devices of one node:

    gemmbench square --sizes 1024,4096 --kernel best --device all --budget 1 --no-peak --save once.jsonl
    gemmbench check once.jsonl --aa 10 --device all --save base.jsonl

`gemmbench check` decides: the test fails for rows that are slower, wrong or without a result, not for rows
that are too uncertain. Each row is a performance variable, such as `naive_float_1024`, with the device's
position before it if there are several. Its reference is the median of the baseline's repetitions,
without a tolerance. It needs only `gemmbench` on the PATH, here and on the nodes, in the baseline's version.
"""

import json
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

FIGURES = (  # the first that a row has, and its unit
    ("kernel_gflops", "GFLOP/s"),
    ("host_gflops", "GFLOP/s"),
    ("gflops", "GFLOP/s"),
    ("gbps", "GB/s"),
    ("latency_s", "s"),
)
FAILING = ("slower", "broken", "resources changed", "missing", "not comparable")
HOST = -1  # the device of a row that ran on the host: numpy's


def row_name(row, position):
    """The name of a row's performance variable: ``naive_float_1024``, ``1_flops_float_vector_width8``."""
    sides = [row[side] for side in "mnk"] if row["m"] is not None else []
    shape = "x".join(map(str, sides[:1] if len(set(sides)) == 1 else sides))
    # A GEMM's other parameters are presets, and may be others today.
    named = (row["given"] or ()) if row["kind"] == "gemm" else row["parameters"]
    parameters = [f"{name}{row['parameters'][name]}" for name in sorted(named)]
    words = [position, row["variant"], row["dtype"], shape, row["label"], *parameters]
    return re.sub(r"[^A-Za-z0-9.]+", "_", "_".join(filter(None, words)))


def by_name(rows, several):
    """The figures of every row, by name. With `several` devices the device's position is part of the name."""
    devices = sorted({row["device"] for row in rows} - {HOST})
    positions = {device: str(position) if several else "" for position, device in enumerate(devices)}
    named = {}
    for row in rows:
        values = [(row[field], unit) for field, unit in FIGURES if row["status"] == "ok" and row[field]]
        if values:
            named.setdefault(row_name(row, positions.get(row["device"], "")), []).append(values[0])
    return {name: (statistics.median(v for v, _ in each), each[0][1]) for name, each in named.items()}


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
    threshold = variable(str, value="5 %")
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
        self._several = len({row["device"] for row in rows} - {HOST}) > 1
        self._base = by_name(rows, self._several)
        self.executable_opts = [
            *("check", shlex.quote(str(path)), "--quiet", "--threshold", shlex.quote(self.threshold)),
            *self.options,
            *("--save", "run.jsonl", "--force", "--write", "json=check.json"),
        ]
        self.postrun_cmds = ["gemmbench show run.jsonl --format json >run.json"]
        self.keep_files = ["run.jsonl", "check.json"]

    def _read(self, name):
        """A JSON file that the job wrote; None if it could not."""
        written = Path(self.stagedir, name)
        text = written.read_text(encoding="utf-8") if written.is_file() else ""
        return json.loads(text) if text else None

    @sanity_function
    def no_row_fails(self):
        """Every row of the baseline was measured and right, and `gemmbench check` does not call it slower."""
        checked = self._read("check.json")
        rows = checked["rows"] if checked else []
        failing = [
            f"{row['variant']} {row['dtype']} {row['m'] or ''}: {row['verdict']} {row['reason']}".strip()
            for row in rows
            if row["verdict"] in FAILING
        ]
        return sn.all(
            [
                sn.assert_true(self._base, f"GEMMBENCH_BASE: {self._problem or 'no row is ok'}"),
                sn.assert_true(rows, "gemmbench check has no result"),
                sn.assert_false(failing, "; ".join(failing)),
            ]
        )

    @run_before("performance")
    def refer_to_the_base(self):
        """A performance variable for every row that has a rate in the baseline and in this run."""
        now, self.perf_variables, references = by_name(self._read("run.json"), self._several), {}, {}
        for name, (value, unit) in self._base.items():
            if name in now:
                references[name] = (float(f"{value:.4g}"), None, None, unit)
                rate = now[name][0]
                self.perf_variables[name] = sn.make_performance_function(lambda rate=rate: rate, unit)
        self.reference = {"*": references}
