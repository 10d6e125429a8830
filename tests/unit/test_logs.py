"""Logs of real programs, with calls counted by hand, and what damage does to them."""

# ruff: noqa: E501 - a log and its calls are a line each, as long as they are

from __future__ import annotations

import os
import random
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

from gemmbench import UsageError
from gemmbench.gemm import logs
from gemmbench.gemm.workloads import Shape, read_shapes
from tests.faults.ledger import SOAK

DATA = Path(__file__).parents[1] / "data" / "logs"


def text(shape: Shape) -> str:
    """``2 x 96x384x128 NT bfloat16 1 1``: calls, the shape, its type, alpha and beta."""
    assert shape.dtype
    gaps = f"ld={shape.ld}".replace(" ", "") if shape.ld else ""
    batch = f" b{shape.batch}" if shape.batch > 1 else ""
    ops = "NT"[shape.trans_a] + "NT"[shape.trans_b]
    scalars = " ".join("?" if each is None else f"{each:g}" for each in (shape.alpha, shape.beta))
    return f"{shape.calls} {shape.m} {shape.n} {shape.k} {ops} {shape.dtype}{gaps}{batch} {scalars}"


def each(shapes: list[str]) -> Counter[str]:
    """Every call of a log with its count."""
    return Counter({call: int(count) for count, call in (shape.split(" ", 1) for shape in shapes)})


def read(path: Path) -> tuple[list[str], str]:
    remarks: list[str] = []
    return [text(shape) for shape in read_shapes(path, remark=remarks.append)], " ".join(remarks)


# fmt: off
LOGS = {
    "onednn-3.10-torch-2.11.log": ("", [
        "2 96 384 128 NT bfloat16 1 1", "2 48 48 32 NN bfloat16 b8 1 0", "2 48 32 48 NN bfloat16 b8 1 0", "2 96 128 128 NT bfloat16 1 0", "2 96 512 128 NT bfloat16 1 0", "2 96 128 512 NT bfloat16 1 0", "1 2 1000 128 NT bfloat16ld=(6144,128,1000) 1 0", "1 1000 128 2 TN bfloat16ld=(1000,6144,128) 1 0", "1 2 128 1000 NN bfloat16 1 0", "1 128 512 96 TN bfloat16 1 0", "1 96 512 128 NN bfloat16 1 0", "1 512 128 96 TN bfloat16 1 0", "1 96 128 512 NN bfloat16 1 0", "1 128 128 96 TN bfloat16 1 0", "1 96 128 128 NN bfloat16 1 0", "1 48 32 48 TN bfloat16 b8 1 0", "1 48 48 32 NT bfloat16 b8 1 0", "1 32 48 48 TN bfloat16 b8 1 0", "1 48 32 48 NT bfloat16 b8 1 0", "1 96 128 384 NN bfloat16 1 0", "1 384 128 96 TN bfloat16 1 0", "1 48 56 80 TN half 1 0"]),
    "mkl-2026.2.log": ("2 lines not read: types s8 and u8 (1, first line 8); SGEMMT (1, first line 10).", [
        "1 8 9 10 NN float ? ?", "1 8 9 10 NN floatld=(12,9,9) ? ?", "1 8 9 10 TN float ? ?", "1 9 8 10 TN double ? ?", "1 8 9 10 NN bfloat16 ? ?", "2 8 9 10 NN half ? ?", "1 8 9 10 NT float b5 ? ?"]),
    "cublas-13-cupy.log": ("", ["3 96 80 64 NN float ? ?", "2 96 80 64 NN double ? ?", "1 96 80 64 NN half ? ?", "1 24 40 32 NN float b7 ? ?"]),
    "cublaslt-13.1.log": ("1 line not read: type C_32F (1, first line 32).", [
        "1 96 384 128 NT bfloat16 ? 0", "1 48 48 32 NN bfloat16 b8 ? 0", "1 48 32 48 NN bfloat16 b8 ? 0", "1 2 1000 128 NT bfloat16ld=(6144,128,1000) ? 0", "1 64 40 96 NN floatld=(200,40,40) ? 0", "1 30 50 70 NN float ? ?", "1 33 17 65 NN double ? 0", "1 48 56 80 TN half ? 0", "1 40 1 60 NN float ? 0", "1 8 16 24 NN float b5 ? ?", "1 32 48 64 NN char ? 0", "1 32 48 64 NT e4m3-bfloat16 ? 0", "1 72 104 88 NN tf32 ? 0"]),
    # cuBLAS's three calls are in cuBLASLt's log, too; the first is of cuBLASLt alone.
    "cublas-and-cublaslt-13.1.log": ("", ["1 96 384 128 NT bfloat16 ? 0", "1 48 48 32 NN bfloat16 b8 ? ?", "1 48 32 48 NN bfloat16 b8 ? ?", "1 96 128 128 NT bfloat16 ? ?"]),
    "rocblas.log": ("1 line not read: type f32_c (1, first line 6).", ["2 2048 1024 512 TN half 1 0", "1 20 30 10 NN doubleld=(10,32,30) -1 1", "1 9 8 10 NT float b5 1 0"]),
    "hipblaslt.log": ("", ["1 176 48 1024 TN bfloat16 1 0", "1 32 64 16 NT e4m3-half b8 1 0", "1 9 8 10 NN tf32 1 0"]),
    # One of the linear operations contains an addmm, the other an mm.
    "torch-2.11-cuda.json": ("", [
        "1 96 384 128 NT bfloat16 1 0", "1 48 48 32 NN bfloat16 b8 1 0", "1 48 32 48 NN bfloat16 b8 1 0", "1 96 128 128 NT bfloat16 1 0", "1 1000 128 2 TN bfloat16ld=(1000,6144,128) 1 0", "1 30 50 70 NN float 2 0.5", "1 8 16 24 NN float b5 3 0.25", "1 32 48 64 NN char 1 0", "1 32 48 64 NT e4m3-bfloat16 1 0"]),
}

F32 = "src_f32::blocked:{}:f0 wei_f32::blocked:{}:f0 dst_f32::blocked:{}:f0"
AB, NEW = F32.format("ab", "ab", "ab"), "onednn_verbose,v1,primitive,exec,cpu"
FORMS = {
    f"dnnl_verbose,exec,cpu,matmul,gemm:jit,undef,{F32.format('abc', 'acb', 'abc')},,,b10m20n21k30,0.4": "1 20 21 30 NT float b10 1 0",
    f"onednn_verbose,exec,cpu,matmul,brg,undef,{AB},attr-scratchpad:user attr-post-ops:sum:0.5 ,,16x128:128x10:16x10,1": "1 16 10 128 NN float 1 0.5",
    f"onednn_verbose,169.3,primitive,exec,gpu:0,matmul,jit,undef,{AB},attr-oscale:0:2,,8x9:9x7,1": "1 8 7 9 NN float 2 0",
    f"{NEW},matmul,brg,undef,{F32.format('ab', 'AB16b64a', 'ba')},,,8x9:9x7,1": "1 7 8 9 TT float 1 0",
    f"{NEW},matmul,brg,undef,{F32.format('bac', 'abc', 'abc')},,,3x8x9:1x9x7,1": "1 8 7 9 NN float b3 1 0",
    f"{NEW},inner_product,brg,forward_inference,{F32.format('abcd', 'aBcd8b', 'ab')},,,mb2ic3ih4iw5oc7,1": "1 2 7 60 NT float 1 0",
    f"{NEW},inner_product,brg,backward_data,{AB},,,mb2ic3oc7,1": "1 2 3 7 NN float 1 0",
    f"{NEW},inner_product,brg,backward_weights,{AB},,,mb2ic3oc7,1": "1 7 3 2 TN float 1 0",
}
GOOD = next(iter(FORMS))
BAD: dict[str, tuple[str | bytes, str]] = {
    "no GEMM":        (f"onednn_verbose,v1,info,cpu\n{NEW},eltwise,jit,undef,x,,,8x9,1\n", "a log without a GEMM"),
    "created only":   (GOOD.replace("exec", "create:cache_miss"), "a log without a GEMM"),
    "cut":            (GOOD[:-15], "a log without a GEMM; 1 line not read: cut off or damaged (1, first line 1)"),
    "lengths later":  (f"{NEW},matmul,brg,undef,{AB},,,*x9:9x7,1\n", "lengths that are not logged"),
    "empty matrix":   (f"{NEW},matmul,brg,undef,{AB},,,0x9:9x7,1\n", "a matrix without elements"),
    "UTF-16":         (f"{GOOD}\n".encode("utf-16"), "not text in UTF-8"),
    "half a trace":   ((DATA / "torch-2.11-cuda.json").read_bytes()[:3000], "a trace that is cut off or damaged: "),
    "no shapes":      ('{"traceEvents": [{"name": "aten::mm", "pid": 1, "tid": 1, "ts": 1, "dur": 1}]}', "record_shapes=True"),
    "too many":       ("\n".join(FORMS), "more than 3 different shapes"),
}
# fmt: on


@pytest.mark.parametrize("name", LOGS)
def test_calls_of_a_log(name: str) -> None:
    remark, shapes = LOGS[name]
    assert read(DATA / name) == (shapes, f"{DATA / name}: {remark}" if remark else "")


@pytest.mark.parametrize("line", FORMS)
def test_forms_of_a_line(line: str, tmp_path: Path) -> None:
    (tmp_path / "log").write_text(line)
    assert read(tmp_path / "log") == ([FORMS[line]], "")


def test_libraries_and_the_program_write_to_one_file(tmp_path: Path) -> None:
    path, names = tmp_path / "log", ["rocblas.log", "mkl-2026.2.log", "rocblas.log", "cublas-13-cupy.log"]
    path.write_bytes(b"step 1: 3,5 \xb5s\n\n" + b"".join((DATA / name).read_bytes() for name in names))
    shapes, remark = read(path)
    twice = [
        "4 2048 1024 512 TN half 1 0",
        "2 20 30 10 NN doubleld=(10,32,30) -1 1",
        "2 9 8 10 NT float b5 1 0",
    ]
    assert shapes == twice + LOGS["mkl-2026.2.log"][1] + LOGS["cublas-13-cupy.log"][1]
    assert remark.startswith(
        f"{path}: 5 lines not read: not from a library (1, first line 1); type f32_c (2, "
    )


@pytest.mark.parametrize("name", BAD)
def test_what_is_wrong_with_a_log(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(logs, "_MOST", 3)
    content, sentence = BAD[name]
    path = tmp_path / "log"
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(UsageError) as caught:
        read_shapes(path)
    assert str(caught.value).startswith(f"{path}: ")
    assert sentence in str(caught.value)
    assert "\n" not in str(caught.value)


def flipped(data: bytes, chance: random.Random) -> bytes:
    changed = bytearray(data)
    for _ in range(chance.randint(1, 8)):
        changed[chance.randrange(len(data))] = chance.choice(b'0159-.,:[]{}"\n\xff\x00xN')
    return bytes(changed)


def merged(data: bytes, chance: random.Random) -> bytes:
    return b"".join(line + b"\n" * (chance.random() < 0.8) for line in data.split(b"\n"))


DAMAGES: dict[str, Callable[[bytes, random.Random], bytes]] = {
    "truncated": lambda data, chance: data[: chance.randrange(len(data))],
    "merged": merged,
    "reordered": lambda data, chance: b"".join(chance.sample(lines := data.splitlines(True), len(lines))),
    "other locale": lambda data, chance: data.replace(b".", b",").replace(b"us ", b"\xb5s "),
    "flipped": flipped,
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_damaged_logs_give_a_reading_or_a_sentence(damage: str, tmp_path: Path) -> None:
    """A log that is cut, or has two lines in one, has no call that the whole log does not have."""
    chance, path = random.Random(damage), tmp_path / "log"
    for _ in range(2000 if os.environ.get(SOAK) else 60):
        name = chance.choice(list(LOGS))
        path.write_bytes(DAMAGES[damage]((DATA / name).read_bytes(), chance))
        with suppress(UsageError):
            shapes, sentence = read(path)
            assert "\n" not in sentence
            assert damage not in ("truncated", "merged") or each(shapes) <= each(LOGS[name][1]), name
