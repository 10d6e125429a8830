"""Names of kernels, devices and drivers are data: shown as text, never evaluated, never opened, escaped."""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, cast
from xml.etree import ElementTree

import pytest

from gemmbench.model.run_file import Run, RunFile
from tests import fake_runs
from tests.cli.conftest import Call
from tests.faults.ledger import Entry
from tests.faults.process import assert_sentence, keys

NAMES = (
    '[red]<script>&"|../../x',
    "[/]]]></text><script>alert(1)</script>",
    "__import__('os').system('touch pwned')",
    "$(touch pwned) `touch pwned` {0.__class__} %n %s",
    "../../../../pwned",
    r"$\frac{1}{0}$ \[bold] | --- |",
    "::error::pwned%0A<!--",
    "=cmd|'/C calc'!A0",
)
FORMATS = ("table", "markdown", "junit", "json", "github")


DEVICE_WORDS = (
    "platform", "vendor", "version", "name", "device_version", "driver", "type", "origin", "library", "pci",
)  # fmt: skip


def hostile(name: str) -> Run:
    """A run in which a file or a driver has chosen every word."""
    run = fake_runs.fake_square()
    device = replace(
        run.header.devices[0],
        **cast(Any, dict.fromkeys(DEVICE_WORDS, name)),
        extensions=(name,),
        warnings=(name,),
    )
    host = replace(
        run.header.host, **cast(Any, dict.fromkeys(("cpu", "system", "python", "numpy", "blas"), name))
    )
    rows = [
        replace(row, variant=name, label=name, parameters={name: name}, choice={name: name}, source=name)
        for row in run.rows
        if row.variant == "naive"
    ]
    rows += [row for row in run.rows if row.variant in ("tiled", "numpy")]
    rows = [replace(row, notes=(name,), memory=name, measured_utc="") for row in rows]
    bad = next(row for row in fake_runs.fake_troubled().rows if row.status == "failed")
    rows.append(replace(bad, device=0, reason=name, check=replace(bad.check, reasons=(name,))))
    rows += [row for row in fake_runs.fake_peak().rows if row.kind == "peak"][:3]
    command = ("square", name, "--save", name)
    return Run(
        replace(run.header, devices=(device,), host=host, command=command, gemmbench=name), tuple(rows)
    )


def save(path: Path, run: Run) -> None:
    with RunFile.create(path, run.header) as file:
        for row in run.rows:
            file.append(row)


@pytest.fixture
def nothing_else(tmp_path: Path) -> Iterator[set[str]]:
    """Names of the files that a test may leave behind; there must be no other."""
    allowed: set[str] = set()
    around = {*tmp_path.parent.iterdir()}
    yield allowed
    found = {str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*") if path.is_file()}
    assert found <= allowed
    assert {*tmp_path.parent.iterdir()} == around


@pytest.mark.fault("names")
def test_hostile_names(
    call: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, nothing_else: set[str], entry: Entry
) -> None:
    monkeypatch.setenv("COLUMNS", "400")  # nothing is folded
    for place, name in enumerate(NAMES[: entry.wanted]):
        base, new = f"base{place}.jsonl", f"new{place}.jsonl"
        run = hostile(name)
        save(tmp_path / base, run)
        save(tmp_path / new, run)
        nothing_else |= {base, new}
        assert_shown(call, base, name)
        assert_compared(call, base, new, name)
        charts = assert_drawn(call, base, new)
        nothing_else |= charts
        before = (tmp_path / base).read_bytes()
        for words in (
            ("square", "--save", base, "--resume"),
            ("check", base, "-q"),
            ("square", "--device", name),
            ("square", "--kernel", name),
            ("kernels", "--describe", name),
            ("plot", base, "--kind", name),
        ):
            result = call(*words)
            assert result.exit_code == 2, words
            assert_sentence(result.stderr)
        assert (tmp_path / base).read_bytes() == before
        entry.hold([row.key for row in run.rows], keys(tmp_path / base))


def assert_shown(call: Call, path: str, name: str) -> None:
    for words in (("show", path), ("show", path, "-v")):
        result = call(*words)
        assert result.exit_code == 0
        assert name in result.stdout  # no markup was taken out of it
    rows = json.loads(call("show", path, "--format", "json").stdout)
    assert name in {row["variant"] for row in rows}
    table = list(csv.DictReader(io.StringIO(call("show", path, "--format", "csv").stdout)))
    assert len(table) == len(rows)
    assert name in {row["variant"] for row in table}
    assert all(None not in row for row in table)
    assert_markdown(call("show", path, "--format", "markdown").stdout)


def assert_markdown(text: str) -> None:
    """No tag outside of code, and every line of a table has its header's number of columns."""
    outside = re.sub(r"(`+)(?!`).*?(?<!`)\1(?!`)", "", text)
    assert not re.search(r"<(?!/?(br|details|summary)\b)[a-zA-Z/!]", outside), outside
    columns = 0
    for line in text.splitlines():
        bars = len(re.findall(r"(?<!\\)\|", line))
        if not line.startswith("|"):
            columns = 0
        elif columns:
            assert bars == columns, line
        else:
            columns = bars


def assert_compared(call: Call, base: str, new: str, name: str) -> None:
    shown = {form: call("compare", base, new, "-v", "--format", form) for form in FORMATS}
    assert {result.exit_code for result in shown.values()} == {0}
    assert name in shown["table"].stdout
    assert_markdown(shown["markdown"].stdout)
    cases = ElementTree.fromstring(shown["junit"].stdout).iter("testcase")
    assert any(name in case.get("name", "") for case in cases)
    assert name in {row["variant"] for row in json.loads(shown["json"].stdout)["rows"]}
    for line in shown["github"].stdout.splitlines():
        assert line.startswith(("::notice", "::warning", "::error title=gemmbench"))


def assert_drawn(call: Call, base: str, new: str) -> set[str]:
    """The charts' names; in the SVGs every name is text."""
    stem = Path(base).stem
    assert call("plot", base, "--kind", "all", "-o", f"{stem}.svg").exit_code == 0
    assert call("plot", base, "-o", f"{stem}.png").exit_code == 0
    assert call("compare", base, new, "--plot", f"{stem}-compare.svg").exit_code == 0
    found = {path.name for path in Path().glob(f"{stem}*.svg")}
    assert len(found) >= 3
    for path in found:
        tags = {element.tag.rpartition("}")[2] for element in ElementTree.parse(path).iter()}
        assert not tags & {"script", "a", "image", "foreignObject"}
    return {*found, f"{stem}.png"}


def test_hostile_drivers(call: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same from the driver, while it runs."""
    monkeypatch.setenv("COLUMNS", "400")
    name = NAMES[0]
    monkeypatch.setenv("GEMMBENCH_FAKE_NAME", name)
    monkeypatch.setenv("GEMMBENCH_FAKE_DEVICES", "cpu")
    assert name in call("devices").stdout
    assert json.loads(call("devices", "--json").stdout)[0]["name"] == name
    words = ("square", "--sizes", "8", "--kernel", "naive", "--save", "run.jsonl", "-v", "--plot", "run.svg")
    result = call(*words)
    assert result.exit_code == 0
    assert name in result.stdout
    ElementTree.parse(tmp_path / "run.svg")
    assert {path.name for path in tmp_path.iterdir()} == {"run.jsonl", "run.svg"}
