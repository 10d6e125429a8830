"""What the user can put right: one sentence on stderr, exit status 2, nothing changed on the disk."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gemmbench import api
from gemmbench.model.run_file import encode
from gemmbench.opencl import drivers
from tests import fake_runs
from tests.cli import fake_machine
from tests.cli.conftest import Call

QUICK = ("--sizes", "8", "--kernel", "naive", "--no-peak")


@pytest.fixture(autouse=True)
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Everything that the table below names."""
    monkeypatch.chdir(tmp_path)
    run = fake_runs.fake_square()
    header, rows = encode(run.header), [encode(row) for row in run.rows]
    whole = header + b"".join(rows)

    def changed(line: bytes, **fields: Any) -> bytes:
        return json.dumps({**json.loads(line), **fields}).encode() + b"\n"

    Path("good.jsonl").write_bytes(whole)
    Path("cut.jsonl").write_bytes(whole[:-20])
    Path("cut-header.jsonl").write_bytes(header[:50])
    Path("empty.jsonl").write_bytes(b"")
    Path("newer.jsonl").write_bytes(changed(header, schema_version=99))
    Path("nan.jsonl").write_bytes(header + rows[0].replace(b'"batch":4', b'"batch":NaN'))
    Path("type.jsonl").write_bytes(header + changed(rows[0], variant=3))
    Path("picture.jsonl").write_bytes(b"\x89PNG\r\n\x1a\n" + bytes(range(256)))
    Path("no-rows.jsonl").write_bytes(header)
    Path("folder").mkdir()
    np.save("a.npy", np.ones((8, 4), "f4"))
    np.save("c.npy", np.ones((8, 6), "f4"))
    np.save("b.npy", np.ones((4, 6), "f4"))
    np.save("b5.npy", np.ones((5, 6), "f4"))
    np.save("b64.npy", np.ones((4, 6), "f8"))
    np.save("int.npy", np.ones((4, 6), "i4"))
    np.save("vector.npy", np.ones(8, "f4"))
    np.save("objects.npy", np.array([[None]]), allow_pickle=True)
    np.savez("archive.npz", a=np.ones((8, 4), "f4"))
    np.save("complex.npy", np.ones((4, 6), "c8"))
    np.save("number.npy", np.float32(1))
    np.save("cube.npy", np.ones((2, 2, 2), "f4"))
    Path("cut.npy").write_bytes(Path("a.npy").read_bytes()[:-4])
    Path("cut-header.npy").write_bytes(Path("a.npy").read_bytes()[:50])
    Path("empty.npy").write_bytes(b"")
    Path("shapes.csv").write_text("m,n,k\n8,8,8\n")
    Path("word.csv").write_text("m,n,k\n8,8,many\n")
    Path("empty.csv").write_text("")
    Path("lacking.csv").write_text("m,n\n8,8\n")
    Path("negative.csv").write_text("m,n,k\n8,-8,8\n")
    Path("huge.csv").write_text("m,n,k\n8,8,8\n99999999999,8,8\n")


# ruff: noqa: E501
# fmt: off
ERRORS: dict[str, tuple[str, str]] = {
    # what is wrong          command line                                       the sentence has
    "command":              ("nonsense",                                        "No such command 'nonsense'"),
    "option":               ("square --nonsense",                               "No such option"),
    "kernel":               ("square --kernel nonsense",                        "unknown kernel 'nonsense'; gemmbench kernels lists them"),
    "kernel, close":        ("square --kernel naiv",                            "did you mean naive?"),
    "kernel, none":         ("square --kernel ,",                               "no kernel is given"),
    "kernel to describe":   ("kernels --describe nonsense",                     "unknown kernel 'nonsense'"),
    "device":               ("square --device nonsense",                        "no device is 'nonsense'; choose 0 ("),
    "device, index":        ("peak --device 7",                                 "no device is '7'"),
    "device, comma":        ("peak --device 0,",                                "a device is missing beside a comma"),
    "dtype":                ("square --dtype quad",                             "unknown data type 'quad'; there are float, double, half"),
    "types":                ("peak --types quad",                               "unknown data type 'quad'"),
    "save, exists":         ("square --save good.jsonl",                        "good.jsonl exists already; --resume goes on with it, --force replaces it"),
    "save, no folder":      ("square --save none/run.jsonl",                    "there is no folder none"),
    "save, through a file": ("square --save good.jsonl/run.jsonl",              "there is no folder good.jsonl"),
    "save, a folder":       ("square --save folder --force",                    "it is a folder"),
    "save, a long name":    ("square --save " + 300 * "x",                      "file name too long"),
    "resume, no save":      ("square --resume",                                 "--resume needs --save FILE"),
    "force, no save":       ("square --force",                                  "--force needs --save FILE"),
    "resume and force":     ("square --save good.jsonl --resume --force",       "choose one"),
    "resume, other run":    ("square --save good.jsonl --resume",               "cannot resume good.jsonl: it was made by another command"),
    "resume, newer":        ("square --save newer.jsonl --resume",              "schema_version 99 is newer"),
    "resume, no run":       ("square --save picture.jsonl --resume",            "picture.jsonl: line 1: "),
    "max 0":                ("square --max 0",                                  "0 is not in the range x>=1"),
    "max, a word":          ("square --max many",                               "'many' is not a whole number"),
    "min above max":        ("square --min 128 --max 64",                       "the smallest size, 128, is above the largest, 64"),
    "default min by hand":  ("square --min 64 --max 32",                        "the smallest size, 64, is above the largest, 32"),
    "k-min above k-max":    ("sweep-k --k-min 128 --k-max 64",                  "the smallest size, 128, is above the largest, 64"),
    "sizes, a word":        ("square --sizes 8,many",                           "--sizes takes whole numbers of 1 or more with commas, not '8,many'"),
    "sizes, zero":          ("square --sizes 0",                                "--sizes takes whole numbers"),
    "sizes, none":          ("square --sizes ,",                                "--sizes takes whole numbers"),
    "budget 0":             ("square --budget 0",                               "0 is not above 0"),
    "budget -1":            ("square --budget -1",                              "-1 is not above 0"),
    "budget nan":           ("square --budget nan",                             "nan is not a finite number"),
    "budget inf":           ("square --budget inf",                             "inf is not a finite number"),
    "time limit nan":       ("square --time-limit nan",                         "nan is not a finite number"),
    "sizes and min":        ("square --sizes 64 --min 32",                      "--sizes takes the place of a range: leave out its smallest size"),
    "alpha, too large":     ("gemm -m 64 --alpha 1e300",                        "alpha = 1e+300 is beyond the range of float"),
    "tune a file":          ("tune --kernel my.cl",                             "--kernel takes names, and my.cl is a file: --kernel-file my.cl"),
    "alpha nan":            ("square --alpha nan",                              "nan is not a finite number"),
    "beta inf":             ("gemm --beta -inf",                                "-inf is not a finite number"),
    "param":                ("square --kernel tiled --param TS",                "--param takes NAME=VALUE with a whole number, or several with commas, not 'TS'"),
    "param, a fraction":    ("square --kernel tiled --param TS=1.5",            "not 'TS=1.5'"),
    "param, unknown":       ("square --kernel tiled --param NONSENSE=1",        "no chosen kernel has a parameter NONSENSE"),
    "param, constraint":    ("square --kernel register --param BM=3",           "must"),
    "plot, no folder":      ("square --plot none/out.png",                      "there is no folder none"),
    "plot, suffix":         ("square --plot out.gif",                           "a chart is a .png, .svg, .pdf file"),
    "plot file, no folder": ("plot good.jsonl --plot none/out.png",             "there is no folder none"),
    "plot file, suffix":    ("plot good.jsonl -o out.txt",                      "a chart is a .png, .svg, .pdf file"),
    "plot file, none":      ("plot",                                            "Missing argument 'FILES...'"),
    "plot file, kind":      ("plot good.jsonl --kind nonsense",                 "unknown kind of chart 'nonsense'"),
    "plot file, cut":       ("plot cut.jsonl",                                  "cut.jsonl: line 45 is cut short"),
    "plot file, no rows":   ("plot no-rows.jsonl",                              "nothing to draw: no-rows.jsonl has no measured peak row"),
    "precision, sizes":     ("precision --sizes 8,many",                        "--sizes takes whole numbers of 1 or more with commas, not '8,many'"),
    "precision, type":      ("precision --dtype quad",                          "unknown data type 'quad'"),
    "precision, one type":  ("precision --dtype float --plot out.png",          "--plot holds data types against each other; --dtype has only one"),
    "set":                  ("workloads --set alexnot",                         "unknown set of shapes 'alexnot'; did you mean alexnet?"),
    "set, none":            ("workloads --set ,",                               "no set of shapes is given; there are alexnet, transformer, odd, all"),
    "batch 0":              ("workloads --batch 0",                             "0 is not in the range x>=1"),
    "prompt 0":             ("workloads --prompt 0",                            "0 is not in the range x>=1"),
    "shapes, no file":      ("workloads --file none.csv",                       "none.csv: no such file or directory"),
    "shapes, a folder":     ("workloads --file folder",                         "folder: is a directory"),
    "shapes, a picture":    ("workloads --file picture.jsonl",                  "picture.jsonl: not text in UTF-8"),
    "shapes, a word":       ("workloads --file word.csv",                       "word.csv: line 2: k: 'many' is not a whole number"),
    "shapes, empty":        ("workloads --file empty.csv",                      "empty.csv: line 1: the file is empty"),
    "shapes, no k":         ("workloads --file lacking.csv",                    "lacking.csv: line 1: k: no such column in 'm,n'"),
    "shapes, negative":     ("workloads --file negative.csv",                   "negative.csv: line 2: n: -8 is not 1 or more"),
    "shapes, huge":         ("workloads --file huge.csv",                       "huge.csv: line 3: m: 99999999999 is above 2147483647"),
    "shapes, kernel":       ("workloads --file shapes.csv --kernel nonsense",   "unknown kernel 'nonsense'"),
    "show, no file":        ("show none.jsonl",                                 "none.jsonl: no such file or directory"),
    "show, folder":         ("show folder",                                     "folder: is a directory"),
    "show, format":         ("show good.jsonl --format xml",                    "'xml' is not one of"),
    "show, cut":            ("show cut.jsonl",                                  "cut.jsonl: line 45 is cut short"),
    "show, cut header":     ("show cut-header.jsonl",                           "line 1 is cut short"),
    "show, empty":          ("show empty.jsonl",                                "empty.jsonl: line 1: the file is empty"),
    "show, newer":          ("show newer.jsonl",                                "schema_version 99 is newer than the 2 this gemmbench reads; update gemmbench"),
    "show, NaN":            ("show nan.jsonl",                                  "nan.jsonl: line 2: NaN and Infinity are not allowed"),
    "show, type":           ("show type.jsonl",                                 "type.jsonl: line 2: Expected `str`, got `int` - at `$.variant`"),
    "show, no run":         ("show picture.jsonl",                              "picture.jsonl: line 1: "),
    "a, no file":           ("gemm --a none.npy",                               "none.npy: no such file or directory"),
    "a, a folder":          ("gemm --a folder",                                 "'folder' is a directory"),
    "a, no matrix":         ("gemm --a good.jsonl",                             "good.jsonl: not a .npy file of numbers"),
    "a, empty":             ("gemm --a empty.npy",                              "empty.npy: not a .npy file of numbers"),
    "a, cut":               ("gemm --a cut.npy --b b.npy",                      "cut.npy is cut short: 8 x 4 float are 128 bytes, of which it has 124"),
    "a, header cut":        ("gemm --a cut-header.npy --b b.npy",               "cut-header.npy: not a .npy file of numbers"),
    "a, a pickle":          ("gemm --a objects.npy",                            "objects.npy holds Python objects, where numbers are wanted"),
    "a, an archive":        ("gemm --a archive.npz",                            "archive.npz is an archive of arrays (.npz); save the one you mean with numpy.save"),
    "a, a vector":          ("gemm --a vector.npy",                             "vector.npy has 1 dimension, where a matrix has 2"),
    "a, a number":          ("gemm --a number.npy",                             "number.npy has 0 dimensions, where a matrix has 2"),
    "a, a cube":            ("gemm --a cube.npy",                               "cube.npy has 3 dimensions, where a matrix has 2"),
    "b, integers":          ("gemm --a a.npy --b int.npy",                      "int.npy holds int32, where float32, float64 or float16 is wanted (numpy's astype converts)"),
    "b, complex":           ("gemm --a a.npy --b complex.npy",                  "complex.npy holds complex64, where float32"),
    "b, another type":      ("gemm --a a.npy --b b64.npy",                      "b64.npy holds double, but"),
    "b, another k":         ("gemm --a a.npy --b b5.npy",                       "b5.npy makes k 5, but"),
    "a and -m":             ("gemm --a a.npy --b b.npy -m 9",                   "a.npy makes m 8, but -m makes it 9"),
    "a and --dtype":        ("gemm --a a.npy --b b.npy --dtype double",         "the files hold float, but --dtype is double"),
    "a alone":              ("gemm --a a.npy",                                  "the files do not say how long n is; give -n too"),
    "beta without c":       ("gemm --a a.npy --b b.npy --beta 2",               "--beta 2 adds to C, but there is no --c"),
    "c without beta":       ("gemm --a a.npy --b b.npy --c c.npy",              "--c is given but beta is 0"),
    "c, another shape":     ("gemm --a a.npy --b b.npy --c a.npy --beta 1",     "a.npy makes n 4, but"),
    "m below 0":            ("gemm -m -1",                                      "-1 is not in the range x>=0"),
    "out, all kernels":     ("gemm --out c.npy",                                "--out needs exactly one --kernel"),
    "out, two devices":     ("gemm --kernel naive --out d.npy --device all",    "--out needs exactly one --device"),
    "out, a long name":     ("gemm --kernel naive --out " + 300 * "x",          "file name too long"),
    "out, no folder":       ("gemm --kernel naive --out none/c.npy",            "there is no folder none"),
    "out, exists":          ("gemm --kernel naive --out a.npy",                 "--out a.npy exists already"),
    "half without half":    ("square --device pocl --dtype half --sizes 8 --kernel naive", "nothing was measured on the device: naive half: unsupported: the device does not list cl_khr_fp16"),
    "bfloat16, nor half":   ("peak --device pocl --types bfloat16",             "nothing was measured on the device: flops bfloat16: unsupported: the device does not list cl_intel_bfloat16"),
}
# fmt: on


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.mark.parametrize("name", ERRORS)
def test_one_sentence_and_nothing_overwritten(name: str, call: Call, tmp_path: Path) -> None:
    command, sentence = ERRORS[name]
    before = contents(tmp_path)
    result = call(*command.split(" "))
    lines = result.stderr.splitlines()
    assert len(lines) == 1, result.stderr
    assert lines[0].startswith("gemmbench: ")
    assert sentence in lines[0]
    assert result.exit_code == 2
    assert "Traceback" not in result.output
    assert contents(tmp_path) == before


@pytest.mark.parametrize("name", ERRORS)
def test_an_error_leaves_stdout_alone(name: str, call: Call) -> None:
    """Except where rows say what is unsupported."""
    result = call(*ERRORS[name][0].split(" "))
    assert ("unsup" in result.stdout) if "half" in name else (result.stdout == "")


def test_no_device_says_what_to_install(call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GEMMBENCH_FAKE_DEVICES", "")
    monkeypatch.setattr(drivers, "no_device_message", lambda: "no OpenCL device was found; type: install")
    for command in ("devices", "peak", "square", "sweep-k", "precision", "workloads", "gemm"):
        result = call(command)
        assert result.stderr == "gemmbench: no OpenCL device was found; type: install\n"
        assert (result.exit_code, result.stdout) == (2, "")


@pytest.mark.parametrize(
    ("fault", "sentence"),
    [
        ("sigsegv", f"the driver's process was killed by SIGSEGV: {fake_machine.LAST_WORDS}"),
        ("exit", f"the driver's process ended with status 3: {fake_machine.LAST_WORDS}"),
        ("os-error", "OSError: [Errno 5] input/output error"),
    ],
)
def test_drivers_that_fail_while_they_are_listed(
    fault: str, sentence: str, call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GEMMBENCH_FAKE_DEVICES", fault)
    result = call("devices")
    assert result.stderr == f"gemmbench: listing the OpenCL devices failed: {sentence}\n"
    assert (result.exit_code, result.stdout) == (2, "")


def test_a_child_that_cannot_start(call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(api, "make_machine", fake_machine.make_nothing)
    result = call("devices")
    assert result.stderr.count("\n") == 1
    assert "PermissionError: [Errno 13] permission denied: '/tmp/gemmbench'" in result.stderr
    assert result.exit_code == 2


def test_an_unsupported_type_is_rows_beside_others(call: Call) -> None:
    result = call("square", "--device", "pocl", "--dtype", "float,half", *QUICK)
    assert result.exit_code == 0
    assert "unsup" in result.stdout
    assert result.stderr == ""


def test_build_options_that_pyopencl_would_add_are_ignored(
    call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYOPENCL_BUILD_OPTIONS", "-cl-opt-disable")
    said = "PYOPENCL_BUILD_OPTIONS is ignored: it would change how kernels are built."
    assert call("square", *QUICK).stderr.splitlines().count(said) == 1


def test_an_internal_error_is_one_sentence_and_no_regression(
    call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    """CI reads exit status 1 as a regression."""

    def fail(*_: object) -> None:
        raise KeyError("no such row")

    monkeypatch.setattr(api, "load", fail)
    result = call("show", "good.jsonl")
    assert (result.exit_code, result.stdout) == (70, "")
    assert result.stderr.count("\n") == 1
    assert "internal error: KeyError: 'no such row' (test_errors.py, line " in result.stderr
    assert "please report" in result.stderr


@pytest.mark.parametrize("command", [(), ("--help",), ("-h",)])
def test_no_command_is_help(command: tuple[str, ...], call: Call) -> None:
    result = call(*command)
    assert result.exit_code == 0
    assert result.stdout.startswith("Usage: gemmbench [OPTIONS] COMMAND")
    assert result.stderr == ""


def test_a_run_that_exists_is_replaced_only_by_force(call: Call, tmp_path: Path) -> None:
    path = tmp_path / "good.jsonl"
    before = path.read_bytes()
    assert call("square", *QUICK, "--save", str(path)).exit_code == 2
    assert path.read_bytes() == before
    assert call("square", *QUICK, "--save", str(path), "--force").exit_code == 0
    assert len(path.read_bytes().splitlines()) == 3


def test_a_result_that_exists_is_replaced_only_by_force(call: Call, tmp_path: Path) -> None:
    words = ("gemm", "-m", "8", "--kernel", "naive", "--no-peak", "--out", "a.npy")
    assert call(*words).exit_code == 2
    assert call(*words, "--force").exit_code == 0


def test_help_of_every_option_is_there(call: Call, golden: Callable[[str, str], None]) -> None:
    from gemmbench import cli

    for name in cli.COMMANDS:
        result = call(name, "--help")
        assert result.exit_code == 0
        golden(f"cli/help-{name}.txt", result.stdout)
