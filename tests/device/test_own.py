"""A user's own kernel on a device: the one to start from, layouts that it may want, and five wrong ones."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest
from click.testing import CliRunner

from gemmbench.cli import main
from gemmbench.gemm.opencl import GemmExecutor
from gemmbench.ladder.own import own_kernel
from gemmbench.model import kernel_files
from gemmbench.model.case import Policy
from gemmbench.model.device import DeviceFacts
from gemmbench.model.instrument import Batch, NotMeasuredError
from gemmbench.model.problem import Gemm
from gemmbench.model.row import Row
from gemmbench.opencl.runtime import Runtime
from gemmbench.suite.selection import select
from tests import in_process
from tests.device.conftest import all_devices
from tests.in_process import plan_case
from tests.own_kernel import MINE

QUICK = Policy(budget_s=60.0, batch_s=0.0005, min_batches=3, precision=10.0)
EIGHT = [("TS         = [16, 8, 32]", "TS = [8]")]


@pytest.fixture(scope="module")
def one() -> DeviceFacts:
    """Intel's driver where there is one: PoCL runs some kernels right that lack a barrier."""
    assert all_devices(), "no OpenCL device was found"
    return (*[each for each in all_devices() if "Intel" in each.platform], *select(all_devices(), ""))[0]


@pytest.fixture(scope="module")
def runs(one: DeviceFacts) -> GemmExecutor:
    return GemmExecutor(Runtime(one))


def measured(folder: Path, runs: GemmExecutor, changes: list[tuple[str, str]], problem: Gemm) -> Row:
    """The kernel to start from, with something replaced."""
    text = kernel_files.raw(kernel_files.SCAFFOLD)
    for old, new in [*EIGHT, *changes]:
        assert old in text
        text = text.replace(old, new)
    (folder / "mine.cl").write_text(text, encoding="utf-8")
    step = plan_case(runs.runtime.facts, own_kernel(folder / "mine.cl"), problem)
    return in_process.measured(runs, step, QUICK)


def test_the_kernel_to_start_from_is_right(tmp_path: Path, runs: GemmExecutor) -> None:
    row = measured(tmp_path, runs, [], Gemm(30, 20, 10, alpha=2.0, beta=0.5, ld=(11, 22, 23)))
    assert (row.status, row.variant, row.own, row.parameters) == ("ok", "mine", "mine.cl", {"TS": 8})
    assert row.samples.keys() >= {"kernel", "host"}


BEGIN = "__kernel void "
BARRIER = "barrier(CLK_LOCAL_MEM_FENCE);"
WRONG: dict[str, tuple[str, str]] = {  # what is replaced, by what
    "ldc is ignored": ("row * ldc", "row * n"),
    "beta = 0 reads C": ("beta == 0 ? alpha * sum : ", ""),
    "no edge guard": ("if (row < m && column < n)", "if (column < n)"),
    "no barrier": (BARRIER, ""),
    "A transposed": ("A[(size_t)row * lda + p + x]", "A[(size_t)(p + x) * lda + row]"),
}


@pytest.mark.parametrize("fault", WRONG)
def test_a_wrong_kernel_reports_where_it_is_wrong(tmp_path: Path, runs: GemmExecutor, fault: str) -> None:
    row = measured(tmp_path, runs, [WRONG[fault]], Gemm(16, 16, 16))
    assert row.status == "wrong"
    assert row.samples == {}
    assert "on the exact test; " in row.reason
    assert "(m 19, n 13, k 9, " in row.reason
    assert row.reason.startswith("reads C although beta is 0: C held NaN; ") == (fault == "beta = 0 reads C")
    if "cells outside" not in row.reason:
        assert "in the tile of rows 0 to 7 and columns 0 to 7 " in row.reason


LAYOUT = [
    ("tile       =", 'order = "column-major"\ntransposed = ["B"]\npad = true\ntile       ='),
    ("get_global_id(0), row = get_global_id(1)", "get_global_id(1), row = get_global_id(0)"),
    ("row < m && p + x < k ? A[(size_t)row * lda + p + x] : 0", "A[(size_t)(p + x) * lda + row]"),
    ("x = get_local_id(0), y = get_local_id(1)", "x = get_local_id(1), y = get_local_id(0)"),
    ("p + y < k && column < n ? B[(size_t)(p + y) * ldb + column] : 0", "B[(size_t)(p + y) * ldb + column]"),
    ("if (row < m && column < n) {", "{"),
    ("C + (size_t)row * ldc + column", "C + (size_t)column * ldc + row"),
]


def test_a_kernel_may_read_c_if_another_beta_is_asked_for(tmp_path: Path, runs: GemmExecutor) -> None:
    changes = [WRONG["beta = 0 reads C"]]
    assert measured(tmp_path, runs, changes, Gemm(16, 16, 16, beta=0.5)).status == "ok"
    assert measured(tmp_path, runs, changes, Gemm(16, 16, 16)).status == "wrong"


def test_a_launch_in_one_direction_is_named_if_the_kernel_asks_for_two(
    tmp_path: Path, runs: GemmExecutor
) -> None:
    """Only the tiles of the first row of tiles are computed."""
    doubt = "; get_global_id(1) is always 0, because work_group has one direction; [8, 1] has two"
    flat = [('work_group = ["TS", "TS"]', "work_group = [8]"), ('tile       = ["TS", "TS"]', "tile = [1, 8]")]
    loop = measured_loop(tmp_path, runs, flat)
    assert (loop.status, loop.reason.endswith(doubt)) == ("wrong", True)
    assert measured_loop(tmp_path, runs, [*flat, ("[8]", "[8, 1]")]).status == "ok"


def measured_loop(folder: Path, runs: GemmExecutor, changes: list[tuple[str, str]]) -> Row:
    """A kernel without local memory, whose work-items are elements of C."""
    text = MINE.replace("[8, 16]", "[8]")
    for old, new in changes:
        assert old in text
        text = text.replace(old, new)
    (folder / "mine.cl").write_text(text, encoding="utf-8")
    step = plan_case(runs.runtime.facts, own_kernel(folder / "mine.cl"), Gemm(16, 16, 16))
    return in_process.measured(runs, step, QUICK)


def test_layouts_are_brought_to_the_kernel(tmp_path: Path, runs: GemmExecutor) -> None:
    """Column-major, B transposed, no guard anywhere."""
    row = measured(tmp_path, runs, LAYOUT, Gemm(21, 13, 11, alpha=2.0, beta=0.5, ld=(11, 22, 23)))
    assert row.status == "ok", row.reason
    assert [launch.name for launch in row.launches] == ["pad", "transpose", "pad", "sgemm", "unpad"]


def test_a_wrong_column_major_kernel_is_described_as_it_was_called(
    tmp_path: Path, runs: GemmExecutor
) -> None:
    changes = [
        ("tile ", 'order = "column-major"\ntile '),
        ("row = get_global_id(1)", "row = get_global_id(0)"),
        ("column = get_global_id(0)", "column = get_global_id(1)"),
        ("A[row * lda + p]", "A[p * lda + row]"),
        ("B[p * ldb + column]", "B[column * ldb + p]"),
        ("C[row * ldc + column]", "C[column * ldc + row]"),
    ]
    assert measured_loop(tmp_path, runs, changes).status == "ok"
    row = measured_loop(tmp_path, runs, [*changes, ("= sum;", "= sum + (row == 5 && column == 10);")])
    assert "; C[5][10] is " in row.reason  # m is 13 and n is 19: the row-major product has 19 rows of 13
    assert "in the tile of rows 0 to 7 and columns 8 to 15 (m 13, n 19, k 9, alpha 1, beta 0, " in row.reason
    assert row.reason.endswith("lda 18, ldb 12, ldc 20)")


def test_headers_are_those_next_to_the_file(
    tmp_path: Path, runs: GemmExecutor, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The current folder has a header of the same name that would be wrong."""
    for name, text in {
        "elsewhere/part.h": "#define PART(x) 7\n",
        "part.h": "#pragma once\nstruct part { int a; };\n#define PART(x) (x)\n",
        "both.h": '#include "part.h"\n#include <part.h>\n',
    }.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text, encoding="utf-8")
    monkeypatch.chdir(tmp_path / "elsewhere")
    branch = '#ifndef __OPENCL_VERSION__\n#include "lost.h"\n#endif\n'
    begin, product = "__kernel void sgemm", "a[y][q] * b[q][x]"
    changes = [
        (begin, f'#include "part.h" // here\n#include "both.h"\n{branch}{begin}'),
        (product, f"PART({product})"),
    ]
    assert measured(tmp_path, runs, changes, Gemm(16, 16, 16)).status == "ok"
    changes.append((branch, branch.replace("ifndef", "ifdef")))
    with pytest.raises(NotMeasuredError) as caught:
        measured(tmp_path, runs, changes, Gemm(16, 16, 16))
    assert caught.value.reason.count("mine.cl includes 'lost.h' on line ") == 1


def test_the_walk_of_the_page(tmp_path: Path, one: DeviceFacts, monkeypatch: pytest.MonkeyPatch) -> None:
    """docs/own-kernels.md as written, at a small size: wrong, mended, and guarded against its old version."""
    page = (Path(__file__).parents[2] / "docs" / "own-kernels.md").read_text(encoding="utf-8")
    (kernel,) = re.findall(r"```c\n(.*?)```", page, re.DOTALL)
    commands = re.findall(r"^((?:gemmbench (?:gemm|check)|sed|cp) .*)$", page, re.MULTILINE)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    Path("mine.cl").write_text(kernel)
    ends = []
    for command in commands:
        if not command.startswith("gemmbench"):
            subprocess.run(command, shell=True, check=True)
            continue
        words = [*command.replace("-m 256", "-m 24").split()[1:], "--budget", "0.01"]
        quick = ("--baseline", "none", "--no-peak", "--device", str(one.index))
        words += quick if words[0] == "gemm" else ()
        ends.append(CliRunner().invoke(main, words, prog_name="gemmbench"))
    wrong, right, checked = ends
    shown = " ".join(wrong.stdout.split())
    assert wrong.exit_code == 1
    assert shown.count("on the exact test") == 1
    assert right.exit_code == 0
    details = " ".join(
        CliRunner().invoke(main, ["show", "-v", "gate.jsonl"], prog_name="gemmbench").stdout.split()
    )
    assert "verified only for alpha = 1, beta = 0" in details
    assert checked.exit_code == 0, checked.output
    assert "batches alternate between old and new kernels" in " ".join(checked.stdout.split())


def test_arguments_that_do_not_fit_are_named(tmp_path: Path, runs: GemmExecutor) -> None:
    swapped = [('"k", "alpha", "A"', '"k", "A", "alpha"')]
    with pytest.raises(NotMeasuredError, match="argument 4 of sgemm is not A, which is a buffer"):
        measured(tmp_path, runs, swapped, Gemm(8, 8, 8))
    with pytest.raises(NotMeasuredError, match="sgemm has 11 arguments, but arguments names 10"):
        measured(tmp_path, runs, [('"C", "ldc"', '"C"')], Gemm(8, 8, 8))


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        (
            [("__kernel void", "__kernel __attribute__((reqd_work_group_size(4, 4, 1))) void")],
            "sgemm requires work-groups of 4 x 4, work_group says 8 x 8",
        ),
        (
            [
                ("idea ", 'kernel = "mm_f64"\nidea '),
                (BEGIN, f"#define CAT(a, b) a##b\n{BEGIN}"),
                ("sgemm(", "CAT(mm_, f32)("),
            ],
            'mine.cl has no kernel mm_f64, but mm_f32: kernel = "NAME" in the description says which is '
            "launched",
        ),
    ],
)
def test_what_the_built_kernel_is_not_is_one_sentence(
    tmp_path: Path, runs: GemmExecutor, changes: list[tuple[str, str]], sentence: str
) -> None:
    with pytest.raises(NotMeasuredError) as caught:
        measured(tmp_path, runs, changes, Gemm(8, 8, 8))
    assert (caught.value.status, caught.value.reason) == ("failed", sentence)


def test_a_name_that_macros_make_is_launched(tmp_path: Path, runs: GemmExecutor) -> None:
    changes = [
        ("idea ", 'kernel = "mm_f32"\nidea '),
        (BEGIN, f"#define CAT(a, b) a##b\n{BEGIN}"),
        ("sgemm(", "CAT(mm_, f32)("),
    ]
    row = measured(tmp_path, runs, changes, Gemm(16, 16, 16))
    assert (row.status, [launch.name for launch in row.launches]) == ("ok", ["mm_f32"])


def test_a_padded_c_is_erased_before_a_check(tmp_path: Path, runs: GemmExecutor) -> None:
    """What a kernel left in its padded copy of C is no answer of a kernel that then does nothing."""
    (tmp_path / "mine.cl").write_text(MINE.replace("tile ", "pad = true\ntile "), encoding="utf-8")
    case = plan_case(runs.runtime.facts, own_kernel(tmp_path / "mine.cl"), Gemm(7, 9, 8))
    bench = runs.prepare(case, QUICK)
    assert bench.verify("before").check.verdict == "ok"
    for plan in (bench._prepared, bench._hosted):
        plan[0] = [step for step in plan[0] if step.role != "multiply"]
    running = bench.start("device", 2)
    if not isinstance(running, Batch):
        running.finish()
    (reason,) = bench.verify("after").check.reasons
    assert reason.startswith("in a batch: C[0][0] is ")
