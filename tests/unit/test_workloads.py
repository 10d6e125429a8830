"""The shapes that are shipped, against what their sources say, and a user's CSV."""

# ruff: noqa: E501

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from gemmbench import UsageError
from gemmbench.gemm.workloads import CONVOLUTIONS, DENSE, PROJECTIONS, SETS, Shape, merge_shapes, read_shapes
from gemmbench.model.problem import Gemm
from gemmbench.suite.options.measuring import WorkloadsOptions
from tests.fake_runs import CPU
from tests.in_process import plan_case


def macs(shape: Shape) -> int:
    return shape.m * shape.n * shape.k


def test_alexnet_does_the_work_that_is_known_of_it() -> None:
    """666 M multiply-adds in the convolutions, 58.6 M in the dense layers, 61 M weights."""
    convolutions = sum(towers * m * n * k for _, m, n, k, towers in CONVOLUTIONS)
    assert convolutions == 665_784_864
    assert sum(inputs * outputs for _, inputs, outputs in DENSE) == 58_621_952
    filters = sum(towers * m * k for _, m, _, k, towers in CONVOLUTIONS)
    assert filters + 58_621_952 == 60_954_656


def test_a_batch_makes_more_pixels_and_more_rows() -> None:
    one, many = (SETS["alexnet"].shapes(batch, 1) for batch in (1, 32))
    assert [(shape.m, shape.n, shape.k) for shape in one][:2] == [(96, 3025, 363), (128, 729, 1200)]
    assert [macs(shape) for shape in many] == [32 * macs(shape) for shape in one]
    assert [shape.n for shape in many[:5]] == [32 * shape.n for shape in one[:5]]
    assert [shape.m for shape in many[5:]] == [32, 32, 32]


def test_the_transformer_has_the_weights_of_its_model() -> None:
    """Table 1 of the Mistral 7B paper: 32 layers, 7.24 G weights with the embedding, norms left out."""
    weights = {name: inputs * outputs for name, inputs, outputs in PROJECTIONS}
    twice = {"q/o": 2, "k/v": 2, "gate/up": 2, "down": 1}
    embedding = 32000 * 4096
    assert 32 * sum(twice[name] * count for name, count in weights.items()) + 2 * embedding == 7_241_465_856
    shapes = SETS["transformer"].shapes(3, 100)
    assert {shape.m for shape in shapes if shape.name.startswith("token")} == {3}
    assert {shape.m for shape in shapes if shape.name.startswith("prompt")} == {300}
    assert "prompt head" not in [shape.name for shape in shapes]


def test_every_set_says_what_it_is_and_has_names_of_its_own() -> None:
    names = [shape.name for one in SETS.values() for shape in one.shapes(1, 512)]
    assert len(set(names)) == len(names)
    assert max(map(len, names)) <= 16  # a line of the table fits 80 columns
    assert all(one.idea and one.source for one in SETS.values())


@pytest.mark.parametrize(
    ("names", "joined"),
    [(["a"], "a"), (["a", "a"], "a"), (["a", "b"], "a = b"), (["a", "b", "c", "d"], "a = b and 2 more")],
)
def test_equal_shapes_are_one_with_the_names_of_all(names: list[str], joined: str) -> None:
    shapes = [Shape(name, 1, 2, 3) for name in names]
    assert merge_shapes([*shapes, Shape("other", 3, 2, 1)]) == (
        Shape(joined, 1, 2, 3),
        Shape("other", 3, 2, 1),
    )


def test_a_name_goes_with_its_row_and_is_no_part_of_its_key() -> None:
    named, plain = Gemm(8, 9, 10, label="alexnet conv1"), Gemm(8, 9, 10)
    assert named == plain
    one, other = (plan_case(CPU, "naive", shape) for shape in (named, plain))
    assert one.row("ok").label == "alexnet conv1"
    assert one.label == "naive float alexnet conv1 8x9x10"
    assert one.key == other.key


# --- a user's file ----------------------------------------------------------------------------------------

Write = Callable[[str | bytes], Path]


@pytest.fixture
def write(tmp_path: Path) -> Write:
    def write(text: str | bytes) -> Path:
        path = tmp_path / "shapes.csv"
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
        return path

    return write


TWO = (Shape("a", 1, 2, 3), Shape("shapes.csv:3", 4, 5, 6))


@pytest.mark.parametrize(
    "text",
    [
        "name,m,n,k\na,1,2,3\n,4,5,6\n",
        "name,m,n,k\na,1,2,3\n,4,5,6",  # no newline at the end
        "name,m,n,k\r\na,1,2,3\r\n,4,5,6\r\n",  # Windows
        "\N{BOM}name,m,n,k\na,1,2,3\n,4,5,6\n",  # a spreadsheet's mark
        " Name , M, N ,K\n a , 1 , 2 , 3 \n  , 4, 5,6\n",
        '"name","m","n","k"\n"a","1","2","3"\n"","4","5","6"\n',
        "k,n,m,name\n3,2,1,a\n6,5,4,\n",
        "name,m,n,k\na,1,2,3\n,4,5,6\n\n , , , \n\n",  # blank lines
    ],
)
def test_shapes_of_a_file(text: str, write: Write) -> None:
    assert read_shapes(write(text)) == TWO


def test_names_are_optional_and_may_be_anything(write: Write) -> None:
    assert read_shapes(write("m,n,k\n1,2,3\n")) == (Shape("shapes.csv:2", 1, 2, 3),)
    assert read_shapes(write('m,n,k,name\n1,2,3,"q, k\n and v [bold]"\n'))[0].name == "q, k and v [bold]"


def test_what_a_log_says_can_be_in_a_file(write: Write) -> None:
    shape = Shape("a", 1, 2, 3, dtype="tf32", alpha=2.0, beta=0.5, calls=7)
    assert read_shapes(write("name,m,n,k,dtype,alpha,beta,calls\na,1,2,3,tf32,2,0.5,7\n")) == (shape,)


def test_equal_shapes_of_a_file_are_kept_for_merging(write: Write) -> None:
    found = read_shapes(write("name,m,n,k\na,1,2,3\nb,1,2,3\na,1,2,3\n"))
    assert [shape.name for shape in found] == ["a", "b", "a"]
    assert merge_shapes(found) == (Shape("a = b", 1, 2, 3),)


# fmt: off
NEEDED = "the header of a CSV file needs m, n and k, and may have name, lda, ldb, ldc, trans_a, trans_b, batch, " \
    "dtype, alpha, beta, calls, each once"
BAD: dict[str, tuple[str | bytes, str]] = {
    #  what is wrong        the file                          the sentence, after the file's name
    "empty":               ("",                               "the file is empty"),
    "blank":               ("\n\n",                           "the file is empty"),
    "header alone":        ("m,n,k\n",                        "no shape follows the header"),
    "no header":           ("1,2,3\n4,5,6\n",                 f"line 1: '1,2,3': {NEEDED}"),
    "a column missing":    ("m,n,name\n1,2,a\n",              f"line 1: 'm,n,name': {NEEDED}"),
    "semicolons":          ("m;n;k\n1;2;3\n",                 f"line 1: 'm;n;k': {NEEDED}"),
    "a column too many":   ("m,n,k,count\n1,2,3,4\n",         f"line 1: 'm,n,k,count': {NEEDED}"),
    "a column twice":      ("m,n,k,m\n1,2,3,4\n",             f"line 1: 'm,n,k,m': {NEEDED}"),
    "a word":              ("m,n,k\n1,2,3\n1,many,3\n",       "line 3: n: 'many': expected a whole number"),
    "a fraction":          ("m,n,k\n1.5,2,3\n",               "line 2: m: '1.5': expected a whole number"),
    "other digits":        ("m,n,k\n\N{ARABIC-INDIC DIGIT ONE},2,3\n", "line 2: m: '\N{ARABIC-INDIC DIGIT ONE}': expected a whole number"),
    "a superscript":       ("m,n,k\n\N{SUPERSCRIPT TWO},2,3\n", "expected a whole number"),
    "NaN":                 ("m,n,k\nnan,2,3\n",               "line 2: m: 'nan': expected a whole number"),
    "nothing":             ("m,n,k\n1,,3\n",                  "line 2: no value of n"),
    "negative":            ("m,n,k\n1,2,-3\n",                "line 2: k: '-3': expected a whole number >= 1"),
    "zero":                ("m,n,k\n1,0,3\n",                 "line 2: n: '0': expected a whole number >= 1"),
    "huge":                ("m,n,k\n2147483648,2,3\n",        "line 2: m: '2147483648': expected a whole number <= 2147483647"),
    "beyond Python's int": ("m,n,k\n" + 5000 * "9" + ",2,3\n", "line 2: m: '9999999999999999999999999999999999999999': expected a whole number <= 2147483647"),
    "a batch beyond 64 bits": ("m,n,k,batch\n1,2,3,18446744073709551616\n", "line 2: batch: '18446744073709551616': expected a whole number <= 65535"),
    "a value missing":     ("m,n,k\n1,2\n",                   "line 2: not as many values as the header has columns (3)"),
    "a value too many":    ("m,n,k\n1,2,3,4\n",               "line 2: not as many values as the header has columns (3)"),
    "blank lines counted": ("m,n,k\n\n\n1,x,3\n",             "line 4: n: 'x': expected a whole number"),
    "a long name":         ("m,n,k,name\n1,2,3," + 41 * "x",  "line 2: name: '" + 40 * "x" + "': expected a text of length <= 40"),
    "no boolean":          ("m,n,k,trans_a\n1,2,3,maybe\n",   "line 2: trans_a: 'maybe': expected true or false"),
    "a type":              ("m,n,k,dtype\n1,2,3,f32\n",       "line 2: dtype: 'f32': expected float, double, half, "),
    "no number":           ("m,n,k,alpha\n1,2,3,nan\n",       "line 2: alpha: 'nan': expected a number"),
    "no calls":            ("m,n,k,calls\n1,2,3,0\n",         "line 2: calls: '0': expected a whole number >= 1"),
    "a quote left open":   ('m,n,k,name\n1,2,3,"a\n',         "line 2: unexpected end of data"),
    "not text":            (b"\x89PNG\r\n\x1a\n\xff\xfe",     "not text in UTF-8"),
    "UTF-16":              ("m,n,k\n1,2,3\n".encode("utf-16"), "not text in UTF-8"),
}  # fmt: skip
# fmt: on


@pytest.mark.parametrize("name", BAD)
def test_what_is_wrong_with_a_file(name: str, write: Write) -> None:
    text, sentence = BAD[name]
    path = write(text)
    with pytest.raises(UsageError) as caught:
        read_shapes(path)
    assert str(caught.value).startswith(f"{path}: ")
    assert sentence in str(caught.value)
    assert "\n" not in str(caught.value)


def test_files_that_cannot_be_opened(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no such file or directory"):
        read_shapes(tmp_path / "none.csv")
    with pytest.raises(UsageError, match="is a directory"):
        read_shapes(tmp_path)


def test_calls_add_up_whether_or_not_a_log_says_alpha_and_beta(tmp_path: Path) -> None:
    path = tmp_path / "calls.csv"
    path.write_text("m,n,k,calls,alpha,beta\n8,9,10,3,,\n8,9,10,2,1,0\n8,9,10,4,2,0\n")
    shapes = WorkloadsOptions(file=path).shapes
    assert [(shape.calls, shape.alpha) for shape in shapes] == [(5, 1.0), (4, 2.0)]


def test_a_pipe_is_read() -> None:
    reader, writer = os.pipe()
    os.write(writer, b"m,n,k\n8,9,10\n")
    os.close(writer)
    (shape,) = read_shapes(Path(f"/dev/fd/{reader}"))
    os.close(reader)
    assert (shape.m, shape.n, shape.k) == (8, 9, 10)
