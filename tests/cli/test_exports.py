"""`show --format`, `--out` and `--schema`, from Python too, and the exports of docs/report-and-export.md."""

from __future__ import annotations

import json
import os
import re
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

import gemmbench as gb
from gemmbench import exports
from gemmbench.exports import records
from tests.cli.conftest import ROOT, Call

SAVED = ROOT / "plots" / "h200-precision.jsonl"
OTHER = ROOT / "plots" / "h200-tensor.jsonl"


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    header, *rows = SAVED.read_text(encoding="utf-8").splitlines()
    kept = [header, *(row for row in rows if '"status":"ok"' in row)]
    Path("run.jsonl").write_text("\n".join(kept) + "\n", encoding="utf-8")
    return tmp_path


def files() -> dict[str, bytes]:
    """What the folder has, by name."""
    return {path.name: path.read_bytes() for path in Path().iterdir()}


def commands() -> list[str]:
    page = (ROOT / "docs" / "report-and-export.md").read_text(encoding="utf-8")
    return re.findall(r"^(gemmbench show .*)$", page, re.MULTILINE)


@pytest.mark.parametrize("text", commands())
def test_every_command_of_the_page_works(text: str, call: Call, folder: Path) -> None:
    for name in ("base", "new"):
        shutil.copy(OTHER, f"{name}.jsonl")
    words = text.split()[1:]
    done = call(*words)
    assert done.exit_code == 0, done.stderr
    assert bool(done.stdout) == ("--out" not in words)
    if "--out" in words:
        assert Path(words[-1]).stat().st_size > 100


def test_the_page_has_every_format() -> None:
    text = " ".join(commands())
    assert all(f"--format {form} " in text for form in exports.FORMATS if form != "markdown")


@pytest.mark.parametrize("form", exports.FORMATS)
def test_out_has_what_is_printed_and_what_python_gives(form: str, call: Call) -> None:
    printed = call("show", "run.jsonl", "--format", form)
    done = call("show", "run.jsonl", "--format", form, "--out", "out")
    assert (done.exit_code, done.stdout) == (0, "")
    assert done.stderr == "Wrote out.\n"
    run = gb.load("run.jsonl")
    assert Path("out").read_text(encoding="utf-8") == printed.stdout == run.text(form)
    run.export("out2", form)
    assert Path("out2").read_bytes() == Path("out").read_bytes()
    assert sorted(files()) == ["out", "out2", "run.jsonl"]


def test_every_batch_is_an_entry_on_request(call: Call) -> None:
    words = ("show", "run.jsonl", "--format", "google-benchmark")
    brief, long = (json.loads(call(*words, *more).stdout)["benchmarks"] for more in ((), ("--repetitions",)))
    assert {each["run_name"] for each in brief} == {each["run_name"] for each in long}
    assert len(long) > 10 * len(brief) > 0
    run = gb.load("run.jsonl")
    assert json.loads(run.text("google-benchmark", repetitions=True))["benchmarks"] == long
    run.export("out", "google-benchmark", repetitions=True)
    assert json.loads(Path("out").read_text(encoding="utf-8"))["benchmarks"] == long


def test_a_measuring_command_prints_them_and_counts_what_is_left_out(call: Call) -> None:
    words = ("peak", "--types", "float,half", "--device", "pocl", "--format", "google-benchmark")
    done = call(*words)
    assert done.exit_code == 0
    names = {each["run_name"] for each in json.loads(done.stdout)["benchmarks"]}
    assert {name.split("/")[2] for name in names} == {"float"}
    left_out = "google-benchmark cannot represent rows that are not ok: 15 rows excluded (15 unsupported).\n"
    assert done.stderr == left_out
    quiet = call(*words, "-q")
    assert json.loads(quiet.stdout)["benchmarks"] == json.loads(done.stdout)["benchmarks"]
    assert quiet.stderr == ""


# fmt: off
REFUSED = {
    "nothing named":      ("show",                                   "Missing argument 'FILE'"),
    "several":            ("show run.jsonl b.jsonl --format csv",    "unexpected extra argument (b.jsonl)"),
    "over its run":       ("show run.jsonl -o run.jsonl",            "--out run.jsonl would replace run"),
    "no folder":          ("show run.jsonl --format csv -o no/r.csv", "cannot write no/r.csv: no such file"),
    "a folder":           ("show run.jsonl --format csv --out .",    "cannot write .: is a directory"),
    "batches of a table": ("show run.jsonl --repetitions",           "--format google-benchmark, not table"),
    "batches in CSV":     ("show run.jsonl --repetitions --format csv", "--format google-benchmark, not csv"),
    "a schema's batches": ("show --repetitions --schema row",        "--schema takes no FILE"),
    "schema of a file":   ("show run.jsonl --schema row",            "--schema takes no FILE"),
    "schema and sizes":   ("show --schema row --sizes 8",            "--schema takes no FILE"),
    "other kernel":       ("show run.jsonl --kernel cpu-packed",     "--kernel cpu-packed was not measured"),
    "unknown kernel":     ("show run.jsonl --kernel nothing",        "--kernel nothing was not measured"),
    "no kernel":          ("show run.jsonl --kernel ,",              "--kernel ',' was not measured"),
    "other size":         ("show run.jsonl --sizes 7",               "--sizes 7 was not measured; there"),
    "no size":            ("show run.jsonl --sizes many",            "--sizes takes whole numbers"),
    "unknown schema":     ("show --schema rows",                     "'rows' is not one of"),
}
# fmt: on


@pytest.mark.parametrize("name", REFUSED)
def test_bad_input_is_one_sentence_and_loses_nothing(name: str, call: Call) -> None:
    Path("notes.txt").write_text("what somebody wrote " * 99)
    before = files()
    words, sentence = REFUSED[name]
    done = call(*words.split())
    assert (done.exit_code, done.stdout) == (2, "")
    assert sentence in done.stderr
    assert len(done.stderr.splitlines()) == 1
    assert files() == before


def test_python_refuses_the_same() -> None:
    run = gb.load("run.jsonl")
    with pytest.raises(gb.UsageError, match="unknown format 'parquet'; there are json, csv"):
        run.text("parquet")
    with pytest.raises(gb.UsageError, match="--repetitions needs --format google-benchmark, not csv"):
        run.text("csv", repetitions=True)
    with pytest.raises(gb.UsageError, match="unknown format"):
        run.export("out", "parquet")
    with pytest.raises(gb.UsageError, match=r"would replace run\.jsonl"):
        run.export("run.jsonl", "csv")
    assert not Path("out").exists()
    assert run.rows == gb.load("run.jsonl").rows


@pytest.mark.parametrize(
    ("words", "suffix"), [("show run.jsonl --format openmetrics", ".prom"), ("plot run.jsonl", ".svg")]
)
def test_the_old_file_is_kept_where_the_new_one_cannot_be_written(
    call: Call, monkeypatch: pytest.MonkeyPatch, words: str, suffix: str
) -> None:
    out = Path(f"out{suffix}")
    out.write_text("old")

    def full(path: Path, data: bytes) -> int:
        with path.open("wb") as file:
            file.write(data[:100])
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "write_bytes", full)
    done = call(*words.split(), "--out", out.name)
    assert done.exit_code == 2
    assert f"cannot write {out}: no space left on device" in done.stderr
    assert out.read_bytes() == b"old"
    assert sorted(files()) == [out.name, "run.jsonl"]


def test_out_follows_a_link_and_writes_to_what_is_no_file(call: Call, folder: Path) -> None:
    Path("real.csv").write_text("old")
    Path("real.csv").chmod(0o640)
    Path("link.csv").symlink_to("real.csv")
    assert call("show", "run.jsonl", "--format", "csv", "--out", "link.csv").exit_code == 0
    assert Path("link.csv").is_symlink()
    assert Path("real.csv").read_text().startswith("kind,variant,")
    assert Path("real.csv").stat().st_mode & 0o777 == 0o640
    assert call("show", "run.jsonl", "--format", "csv", "--out", os.devnull).exit_code == 0
    assert not Path(os.devnull).is_file()


def test_a_table_goes_into_a_file_as_it_is_printed(call: Call) -> None:
    assert call("show", "run.jsonl", "--out", "page.txt").exit_code == 0
    assert Path("page.txt").read_text(encoding="utf-8") == call("show", "run.jsonl").stdout


@pytest.mark.parametrize("name", records.NAMES)
def test_schemas_are_printed(name: str, call: Call, golden: Callable[[str, str], None]) -> None:
    """The golden files change with the contract: look whether it needs a new version."""
    done = call("show", "--schema", name)
    assert json.loads(done.stdout) == json.loads(json.dumps(gb.schema(name)))
    golden(f"schema-{name}.json", done.stdout.replace(gb.__version__, "VERSION"))
    assert call("show", "--schema", name, "--out", "schema.json").exit_code == 0
    assert Path("schema.json").read_text(encoding="utf-8") == done.stdout
