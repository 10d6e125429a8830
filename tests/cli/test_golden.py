"""What the commands print about saved runs, fixed in golden files: tables, charts, plans and comparisons."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from rich.cells import cell_len

from gemmbench.model.run_file import load
from tests import drawn
from tests.cli import slow_machine
from tests.cli.conftest import ROOT, Call, Page
from tests.compare_runs import again, repetitions, save

pytestmark = pytest.mark.usefixtures("saved_runs")

OpenPage = Callable[[str], Page]
MARKDOWN = "--format markdown"
# Each saved run with further ways to show it.
SHOWN = {
    "plots/cpu-intel-peak.jsonl": ("--verbose", MARKDOWN),
    "plots/cpu-intel-precision.jsonl": (),
    "plots/cpu-intel-square.jsonl": (),
    "plots/cpu-pocl-square.jsonl": (),
    "plots/h200-energy.jsonl": ("--verbose",),
    "plots/h200-peak.jsonl": (),
    "plots/h200-precision.jsonl": (MARKDOWN,),
    "plots/h200-square.jsonl": (),
    "plots/h200-sweep-k.jsonl": (),
    "plots/h200-tensor.jsonl": (),
    "plots/h200-workloads.jsonl": (MARKDOWN,),
    "tests/data/aa/h200.jsonl": ("--verbose",),
    "tests/data/ci-base.jsonl": ("--verbose",),
    "tests/data/h200-layouts-half.jsonl": (),
    "tests/data/h200-versus-float.jsonl": (MARKDOWN,),
    "tests/data/host-parts/cpu-intel.jsonl": ("--verbose", MARKDOWN),
}
DRAWN = (
    "plots/h200-energy.jsonl",
    "plots/h200-peak.jsonl",
    "plots/h200-precision.jsonl plots/h200-peak.jsonl",
    "plots/h200-square.jsonl plots/h200-peak.jsonl",
    "plots/h200-sweep-k.jsonl",
    "plots/h200-workloads.jsonl",
    "plots/h200-tensor.jsonl plots/h200-peak.jsonl",
    "plots/cpu-intel-square.jsonl plots/cpu-intel-peak.jsonl",
    "plots/cpu-pocl-square.jsonl plots/cpu-pocl-peak.jsonl",
    "tests/data/h200-versus-float.jsonl",
    "tests/data/host-parts/cpu-intel.jsonl",
)


def name(path: str) -> str:
    return path.replace("plots/", "").removeprefix("tests/data/").removesuffix(".jsonl").replace("/", "-")


@pytest.mark.parametrize("path", SHOWN, ids=name)
def test_show(path: str, page: OpenPage) -> None:
    shown = page(f"show-{name(path)}")
    for words in ("", *SHOWN[path]):
        assert shown.call("show", path, *words.split()).exit_code == 0


@pytest.mark.parametrize("width", [40, 80, 120])
@pytest.mark.parametrize("path", SHOWN, ids=name)
def test_no_line_is_wider_than_the_terminal(
    path: str, width: int, call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", str(width))
    for words in ("", *SHOWN[path]):
        lines = call("show", path, *words.split()).stdout.splitlines()
        assert words == MARKDOWN or max(map(cell_len, lines)) <= width


@pytest.mark.parametrize("paths", DRAWN, ids=lambda paths: name(paths.split()[0]))
def test_plot(paths: str, page: OpenPage, call: Call) -> None:
    """Every kind of chart that a run has data for."""
    plotted = page(f"plot-{name(paths.split()[0])}")
    with drawn.captured() as figures:
        done = call("plot", *paths.split(), "--kind", "all", "--out", "out.svg")
    kinds = re.findall(r"^Drew out-(.*)\.svg\.$", done.stderr, re.MULTILINE)
    for kind, figure in zip(kinds, figures, strict=True):
        plotted.write(f"chart {kind}", "\n".join(figure))


def test_kernels(page: OpenPage) -> None:
    kernels = page("kernels")
    for words in ("kernels", "kernels --describe naive", "kernels --describe cpu-packed", "plot --kind list"):
        assert kernels.call(*words.split()).exit_code == 0


# --- plans, on the devices of saved runs -------------------------------------------------------------------

DEVICES = "plots/cpu-intel-square.jsonl plots/cpu-pocl-square.jsonl plots/h200-square.jsonl"
PLANS = {
    "devices": ("devices",),
    "peak": ("peak", "peak --all --device h200", "peak --types half,bfloat16,char --only compute,latency"),
    "gemm": ("gemm", "gemm -m 100 -n 1 -k 0 --kernel ladder"),
    "square": (
        "square --max 128",
        "square --sizes 8,1000,4096 --kernel best --baseline all --dtype float,half,tf32 --no-peak",
        "square --kernel register --param BM=32 --param TM=2 --cold --memory staged --energy --budget 0.5",
        "square --sizes 64,512 --dtype half,bfloat16,tf32,char,double --kernel nv-mma,nv-wgmma,padded",
    ),
    "sweep-k": ("sweep-k --kernel naive,tiled",),
    "workloads": ("workloads", "workloads --file shapes.csv --set odd --kernel naive,numpy"),
    "check": (
        "check tests/data/ci-base.jsonl --across device,driver",
        "check tests/data/aa/h200.jsonl --aa 3 --device h200",
    ),
    "tune": (
        "tune --device intel --kernel register",
        "tune --device intel --kernel cpu-packed --sizes 64,100",
        "tune --device pocl --kernel register -m 1000 -n 10 -k 1",
        "tune --device h200 --kernel naive --dtype double",
        "tune --device h200 --kernel register --budget 20",
    ),
}


@pytest.mark.parametrize("command", PLANS)
def test_plans(command: str, page: OpenPage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GEMMBENCH_FAKE_DEVICES", DEVICES)
    Path("shapes.csv").write_text("name,m,n,k\nflat,1,4096,64\n,100,10,1\n")
    plans = page(f"plan-{command}")
    for plan in PLANS[command]:
        words = plan.split() if command == "devices" else [*plan.split(), "--dry-run"]
        plans.call(*words, *([] if "--device" in words or command == "devices" else ["--device", "all"]))


# --- compare -----------------------------------------------------------------------------------------------

SLOWER = {("gpu-tile", 256): 1.15, ("register", 2048): 1.6, ("prefetch", 1024): 0.8}
FORMATS = ("table", "markdown", "junit", "json", "github")
FILES = [word for form in FORMATS for word in ("--write", f"{form}=out-{form}")]


def write_files(page: Page) -> None:
    """Write down what ``--write`` has written in every format."""
    for form in FORMATS:
        page.write(f"--write {form}", Path(f"out-{form}").read_text().replace("><", ">\n<"))


def test_compare(page: OpenPage) -> None:
    """The repetitions of a recording, then one in which some rows are slower, gone or crashed."""
    compared = page("compare-saved")
    runs = repetitions(load("tests/data/aa/h200.jsonl"))
    for number, run in enumerate(runs):
        save(f"run{number}.jsonl", run)
    bases = [f"run{number}.jsonl" for number in range(5)]
    save("slow.jsonl", again(0, SLOWER, noise=0, run=runs[5]))
    crashed = replace(runs[5].rows[1], status="crashed", reason="killed by SIGSEGV", samples={})
    save("lame.jsonl", replace(runs[5], rows=(crashed, *runs[5].rows[3:])))
    compared.call("compare", bases[0], "run5.jsonl")
    compared.call("compare", *bases, "run5.jsonl", "--verbose")
    compared.call("compare", "--strict", *bases, "--", "run5.jsonl", "run6.jsonl")
    compared.call("compare", "tests/data/aa/h200.jsonl", "slow.jsonl", "--strict")
    compared.call("compare", *bases, "slow.jsonl", "--threshold", "30 %")
    compared.call("compare", *bases, "slow.jsonl", "--scope", "host")
    compared.call("compare", *bases, "lame.jsonl", "--missing", "fail")
    compared.call("compare", "lame.jsonl", bases[0])
    with drawn.captured() as figures:
        compared.call("compare", *bases, "slow.jsonl", "--plot", "ratios.svg", *FILES)
    compared.write("chart", "\n".join(figures[0]))
    write_files(compared)


def test_compare_of_other_devices(page: OpenPage) -> None:
    compared = page("compare-devices")
    intel, pocl = "plots/cpu-intel-square.jsonl", "plots/cpu-pocl-square.jsonl"
    compared.call("compare", pocl, intel)
    compared.call("compare", "tests/data/ci-base.jsonl", intel, "--across", "device,driver,source")


# --- check, on a fake machine with rows that are slower, gone or wrong -------------------------------------

SWEEP = ("square", "--sizes", "8,16", "--kernel", "naive,tiled,register", "--no-peak", "-q")


@pytest.fixture
def slow(saved_runs: None, monkeypatch: pytest.MonkeyPatch, call: Call) -> None:
    """A machine with 1 % of noise, a base in once.jsonl, and aa.jsonl with five repetitions of it."""
    monkeypatch.setattr("gemmbench.measure.machine.default", slow_machine.make)
    monkeypatch.setenv("GEMMBENCH_FAKE_NOISE", "0.01")
    monkeypatch.setenv("GEMMBENCH_FAKE_COUNT", str(Path("count").resolve()))
    call(*SWEEP, "--save", "once.jsonl")
    call("check", "once.jsonl", "--aa", "5", "--save", "aa.jsonl")


def write_rows(page: Page, path: str) -> None:
    """Write down which rows a run has."""
    rows = [(row.variant, row.problem and row.problem.m, row.status, row.reason) for row in load(path).rows]
    page.write(f"rows of {path}", "\n".join(" ".join(map(str, filter(None, row))) for row in rows))


@pytest.mark.usefixtures("slow")
def test_check(page: OpenPage, monkeypatch: pytest.MonkeyPatch) -> None:
    checked = page("check")
    write_rows(checked, "aa.jsonl")
    checked.call("check", "aa.jsonl")
    monkeypatch.setenv("GEMMBENCH_FAKE_SLOW", "tiled 16 1.70")
    with drawn.captured() as figures:
        checked.call("check", "aa.jsonl", "--save", "new.jsonl", "--plot", "out.svg", *FILES)
    checked.write("chart", "\n".join(figures[0]))
    write_files(checked)
    write_rows(checked, "new.jsonl")
    checked.call("check", "aa.jsonl", "--threshold", "80 %", "-v")
    monkeypatch.setenv("GEMMBENCH_FAKE_SLOW", "tiled 16 1.30")
    checked.call("check", "aa.jsonl", "--strict", "-q")
    monkeypatch.setenv("GEMMBENCH_FAKE_SLOW", "* * 1.40")
    checked.call("check", "aa.jsonl", "-q")


@pytest.mark.usefixtures("slow")
def test_check_of_faults(page: OpenPage, monkeypatch: pytest.MonkeyPatch) -> None:
    checked = page("check-faults")
    monkeypatch.setenv("GEMMBENCH_FAKE_FAULTS", "tiled 16 sigsegv; naive 8 wrong; register 8 skipped")
    checked.call("check", "aa.jsonl", "--save", "new.jsonl")
    write_rows(checked, "new.jsonl")
    checked.call("check", "aa.jsonl", "--missing", "fail", "--format", "junit")
    checked.call("check", "once.jsonl", "--aa", "2")
    monkeypatch.delenv("GEMMBENCH_FAKE_FAULTS")
    Path("old.jsonl").write_text(Path("once.jsonl").read_text().replace('"tiled"', '"gone"'))
    checked.call("check", "old.jsonl")
    checked.call("check", "old.jsonl", "--missing", "fail", "-q")
    monkeypatch.setenv("GEMMBENCH_FAKE_DEVICES", "pocl gpu")
    checked.call("check", "aa.jsonl")
    checked.call("check", "aa.jsonl", "--device", "h200")
    checked.call("check", "aa.jsonl", "--device", "h200", "--across", "device,driver", "-q")


@pytest.mark.usefixtures("slow")
def test_check_against(page: OpenPage, monkeypatch: pytest.MonkeyPatch) -> None:
    checked = page("check-against")
    shutil.copytree(ROOT / "kernels", "former")
    against = ("check", "once.jsonl", "--against", "former")
    monkeypatch.setenv("GEMMBENCH_FAKE_NOISE", "0.3")
    checked.call(*against)
    monkeypatch.setenv("GEMMBENCH_FAKE_SLOW", "tiled 16 1.2")
    checked.call(*against, "--save", "new.jsonl")
    write_rows(checked, "new.jsonl")
    monkeypatch.delenv("GEMMBENCH_FAKE_SLOW")
    for fault in ("former-sigsegv", "sigsegv"):
        monkeypatch.setenv("GEMMBENCH_FAKE_FAULTS", f"tiled 16 {fault}")
        checked.call(*against)
    monkeypatch.delenv("GEMMBENCH_FAKE_FAULTS")
    file = Path("former", "gemm", "01_naive.cl")
    file.write_text(file.read_text() + "/* another */\n")
    checked.call(*against, "-v", "-q")


@pytest.mark.usefixtures("slow")
def test_check_aa(page: OpenPage) -> None:
    checked = page("check-aa")
    for form in ("table", "markdown", "json"):
        checked.call("check", "once.jsonl", "--aa", "3", "--format", form, "-q")
    checked.call("check", "aa.jsonl", "--dry-run")
    checked.call("compare", "once.jsonl", "aa.jsonl", "--strict")
