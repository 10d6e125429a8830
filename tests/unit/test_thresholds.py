"""Files of thresholds: which row has which, and one sentence for each thing that is wrong with one."""

from __future__ import annotations

from pathlib import Path

import pytest

from gemmbench.model.row import Problem, Row
from gemmbench.options.rules import ThresholdError, Thresholds, load, parse
from tests import fake_runs as fake

GOOD = """
default = "4 %"

[[row]]
variant = "dot-*"
dtype = "half"
size = "..64"
threshold = "20 %"

[[row]]
variant = "dot-*"
threshold = 0.1

[[row]]
kind = "peak"
threshold = "3%"

[[row]]
size = "256..512"
threshold = "2 %"

[[row]]
size = 1024
threshold = "1.5 %"
"""


def written(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "t.toml"
    path.write_text(text, encoding="utf-8")
    return path


def gemm(variant: str, size: int, dtype: str = "float") -> Row:
    return fake.gemm_row(variant, Problem(size, size, size), 4.0, dtype=dtype)


@pytest.mark.parametrize(
    ("row", "threshold"),
    [
        (gemm("dot-v8", 64, "half"), 0.2),
        (gemm("dot-v8", 65, "half"), 0.1),
        (gemm("dot-v8", 64), 0.1),
        (gemm("tiled", 128), 0.04),
        (gemm("tiled", 255), 0.04),
        (gemm("tiled", 256), 0.02),
        (gemm("tiled", 512), 0.02),
        (gemm("tiled", 1024), 0.015),
        (fake.peak_row(4, 34.0), 0.03),
    ],
)
def test_the_first_row_that_fits_counts(row: Row, threshold: float, tmp_path: Path) -> None:
    assert load(written(tmp_path, GOOD)).of(row) == threshold


def test_the_command_line_goes_before_the_files_default(tmp_path: Path) -> None:
    assert load(written(tmp_path, GOOD), 0.08).of(gemm("tiled", 128)) == 0.08
    assert load(written(tmp_path, "")).default == Thresholds().default == 0.05


def test_rules_for_no_row_are_known(tmp_path: Path) -> None:
    found = load(written(tmp_path, GOOD))
    assert found.unused([gemm("tiled", 256), gemm("dot-v8", 8), gemm("naive", 2)]) == (1, 3, 5)


ERRORS = {  # what the sentence has after the file's name
    "default =\n": "at line 1",
    '[[row]]\nvariant = 3\nthreshold = 0.1': "row 1: variant: Expected `str`, got `int`",
    '[[row]]\nthreshold = 0.1\n[[row]]\nvariant = "x"': "row 2: Object missing required field `threshold`",
    '[[row]]\nvarint = "x"\nthreshold = 0.1': "row 1: Object contains unknown field `varint`",
    "defualt = 0.1": "Object contains unknown field `defualt`",
    "default = 5": "default: a threshold is above 0 and below 100 %, not 5; for 5 % write '5 %'",
    "default = nan": "default: a threshold is above 0",
    'default = "-5 %"': "default: '-5 %' is not a threshold; write '5 %' or 0.05",
    'default = "5.5.5 %"': "default: '5.5.5 %' is not a threshold",
    'default = "0 %"': "default: a threshold is above 0 and below 10,000 %, not 0 %",
    "[[row]]\nthreshold = 0.1\nsize = 'big'": "row 1: size: 'big' is not a size or a range",
    "[[row]]\nthreshold = 0.1\nsize = '64..8'": "row 1: size: the range 64..8 is empty",
    "[[row]]\nthreshold = 0.1\nsize = ''": "row 1: size: '' is not a size",
    "row = 3": "row: Expected `array`, got `int`",
}  # fmt: skip


@pytest.mark.parametrize("text", ERRORS)
def test_errors_name_file_and_key(text: str, tmp_path: Path) -> None:
    path = written(tmp_path, text)
    with pytest.raises(ThresholdError) as caught:
        load(path)
    assert str(caught.value).startswith(f"{path}: ")
    assert ERRORS[text] in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_file_that_is_not_there_or_no_text(tmp_path: Path) -> None:
    with pytest.raises(ThresholdError, match="no such file"):
        load(tmp_path / "none.toml")
    path = tmp_path / "picture.toml"
    path.write_bytes(b"\x89PNG\xff\xfe")
    with pytest.raises(ThresholdError, match=r"picture\.toml: "):
        load(path)


@pytest.mark.parametrize(
    ("text", "value"), [("5 %", 0.05), ("5%", 0.05), (" 2.5 % ", 0.025), ("0.05", 0.05), ("400 %", 4)]
)
def test_parse(text: str, value: float) -> None:
    assert parse(text) == pytest.approx(value)


@pytest.mark.parametrize("text", ["", "5 percent", "nan", "inf", "%", "1e999", "1", "4", "10000 %"])
def test_parse_refuses(text: str) -> None:
    with pytest.raises(ThresholdError):
        parse(text)
