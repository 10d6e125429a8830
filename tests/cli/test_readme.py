"""What README, CONTRIBUTING and the gallery say is what the program does."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest

from gemmbench import cli
from gemmbench.facts import units
from gemmbench.facts.records import load
from gemmbench.rules.variants import ORDER
from tests import generate_readme
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
    Path("shapes.csv").write_text("m,n,k\n8,8,8\n")
    if words == ["tune"]:
        words += ["--kernel", "register"]
    if words[0] in ("compare", "check"):
        run = (
            "square",
            "--sizes",
            "8",
            "--kernel",
            "naive,register",
            "--budget",
            "0.01",
            "--no-peak",
            "--save",
        )
        assert call(*run, "base.jsonl").exit_code == 0
        for name in ("new.jsonl", "once.jsonl"):
            shutil.copy("base.jsonl", name)
        words = [{"BASE...": "base.jsonl", "NEW": "new.jsonl"}.get(word, word) for word in words]
        words += ["--dry-run"] if words[0] == "check" else []
        words += ["--force"] if "--save" in words else []  # they save in another folder, or later
    if words in (["show"], ["plot"]):
        words.append(str(ROOT / "plots" / "h200-square.jsonl"))
    words = ["0" if word in ("h200", "nvidia") else word for word in words]  # the fake machine has none
    if words[0] in ("peak", "square", "sweep-k", "precision", "workloads", "gemm", "tune"):
        words.append("--dry-run")
    result = call(*words)
    assert result.exit_code == 0, result.output


def test_the_table_of_commands_has_every_command() -> None:
    table = re.findall(
        r"^\| `gemmbench ([a-z-]+)[^`]*` \|", (ROOT / "README.md").read_text(encoding="utf-8"), re.M
    )
    assert table == list(cli.COMMANDS)


def test_the_ladder_is_not_stale() -> None:
    assert generate_readme.main(["--check"]) == 0, "make readme writes it"


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """A folder with a README and the runs that its ladder is made from."""
    (tmp_path / "plots").mkdir()
    for file in ("README.md", *(file for *_, files in generate_readme.RUNS for file in files)):
        shutil.copy(ROOT / file, tmp_path / file)
    return tmp_path


def test_a_stale_ladder_is_found_and_written(copy: Path, capsys: pytest.CaptureFixture[str]) -> None:
    readme = copy / "README.md"
    fresh = readme.read_text(encoding="utf-8")
    readme.write_text(fresh.replace("| `naive` |", "| `nave` |", 1), encoding="utf-8")
    stale = readme.read_bytes()
    root = ("--root", str(copy))
    assert generate_readme.main(["--check", *root]) == 1
    assert "README.md: the ladder is stale; make readme writes it" in capsys.readouterr().err
    assert readme.read_bytes() == stale
    assert generate_readme.main(root) == 0
    assert readme.read_text(encoding="utf-8") == fresh


def test_the_ladder_has_the_figures_of_the_saved_runs() -> None:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    lines = text.partition(generate_readme.BEGIN)[2].partition(generate_readme.END)[0].splitlines()
    table = {line.split("`")[1]: line.split(" | ")[2:] for line in lines if line.startswith("| `")}
    assert tuple(table) == ORDER
    for place, (_, _, files) in enumerate(generate_readme.RUNS):
        size, rates = generate_readme.figures([load(ROOT / file) for file in files])
        assert f"{size} on " in text
        best = max(rates, key=lambda name: rates[name])
        for name, cells in table.items():
            shown = cells[place].strip(" |")
            assert shown == "-" if name not in rates else shown.strip("*") == units.gflops(rates[name])
            assert shown.startswith("**") == (name == best)


@pytest.mark.parametrize("broken", ["", generate_readme.END + generate_readme.BEGIN, generate_readme.BEGIN])
def test_a_readme_without_its_markers_is_an_error(broken: str) -> None:
    with pytest.raises(generate_readme.ReadmeError, match="once each"):
        generate_readme.replaced(f"# title\n{broken}\n", "table")


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
