"""What README, CONTRIBUTING and the gallery say is what the program does."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from gemmbench import cli
from gemmbench.facts.records import load
from tests.cli.conftest import ROOT, Call

PAGES = ("README.md", "CONTRIBUTING.md", "plots/README.md")
COMMAND = re.compile(r"(?:^|`)(gemmbench [a-z][^`#\n]*)", re.MULTILINE)


def commands(page: str) -> list[str]:
    found = [match.strip() for match in COMMAND.findall((ROOT / page).read_text(encoding="utf-8"))]
    return sorted({text for text in found if text.split()[1] in cli.COMMANDS})


def test_commands_are_found() -> None:
    assert "gemmbench square --max 2048" in commands("README.md")
    assert len(commands("plots/README.md")) >= 6


@pytest.mark.parametrize("text", sorted({text for page in PAGES for text in commands(page)}))
def test_every_command_is_understood(
    text: str, call: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Measuring commands are planned, not run, on the fake machine; the others run on a saved run."""
    monkeypatch.chdir(tmp_path)
    words = text.split()[1:]
    if "FILE" in text or "NAME" in text or "run.jsonl" in text:
        run = str(ROOT / "plots" / "h200-square.jsonl")
        words = [{"FILE": run, "FILE...": run, "run.jsonl": run, "NAME": "naive"}.get(w, w) for w in words]
    if words in (["show"], ["plot"]):
        words.append(str(ROOT / "plots" / "h200-square.jsonl"))
    if "h200" in words:
        words[words.index("h200")] = "0"  # the fake machine has none
    if words[0] in ("peak", "square", "sweep-k", "gemm"):
        words.append("--dry-run")
    result = call(*words)
    assert result.exit_code == 0, result.output


@pytest.mark.parametrize("page", PAGES)
def test_every_link_leads_somewhere(page: str) -> None:
    text = (ROOT / page).read_text(encoding="utf-8")
    for target in re.findall(r"\]\(([^)#]+)\)", text):
        if "://" not in target:
            assert ((ROOT / page).parent / target).exists(), target


def test_every_option_that_the_readme_names_exists(call: Call) -> None:
    helps = " ".join(call(name, "--help").stdout for name in cli.COMMANDS)
    for option in set(re.findall(r"--[a-z][a-z-]+", (ROOT / "README.md").read_text(encoding="utf-8"))):
        assert option in helps, option


@pytest.mark.parametrize("path", sorted((ROOT / "plots").glob("*.jsonl")), ids=lambda path: path.stem)
def test_the_gallery_is_drawn_from_whole_honest_runs(path: Path, call: Call, tmp_path: Path) -> None:
    run = load(path)
    assert not {row.status for row in run.rows} & {"wrong", "failed", "crashed", "timed-out"}
    assert all(row.check.verdict == "ok" for row in run.rows if row.status == "ok")
    assert call("plot", str(path), "-o", str(tmp_path / "chart.svg")).exit_code == 0
    assert (ROOT / "plots" / f"{path.stem}.png").is_file()
    text = path.read_text(encoding="utf-8")
    assert not re.search(r'"/(?:home|root|work|tmp|usr)/', text), "a folder of the machine it was made on"
