"""What README, CONTRIBUTING and the gallery say is what the program does."""

from __future__ import annotations

import re
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from gemmbench import cli
from gemmbench.ladder import BY_NAME, VARIANTS
from gemmbench.model import kernel_files, units
from gemmbench.model.row import Row
from gemmbench.model.run_file import load
from tests.cli.conftest import ROOT, Call
from tests.compare_runs import save
from tests.own_kernel import MINE
from tools import generate_readme
from tools.experiments import FOLDER

PAGES = (
    *("README.md", "CONTRIBUTING.md", "plots/README.md"),
    *sorted(f"docs/{path.name}" for path in (ROOT / "docs").glob("*.md") if path.stem != "own-kernels"),
)  # the walk of docs/own-kernels.md is run as it stands
COMMAND = re.compile(r"(?:^|`)(gemmbench [a-z][^`#\n]*)", re.MULTILINE)


SAVED = {  # what a page's earlier command has saved under this name
    "board.json": "tests/data/devices/mali-t760.json",
    "grid.jsonl": "plots/experiments/cpu-intel/groups.jsonl",
    "tests/data/devices/mali-t760.json": "tests/data/devices/mali-t760.json",
    "alexnet.jsonl": "plots/h200-workloads.jsonl",
    **dict.fromkeys(
        ("base.jsonl", "both.jsonl", "monday.jsonl", "new.jsonl", "tuesday.jsonl"), "plots/h200-square.jsonl"
    ),
    "energy.jsonl": "plots/h200-energy.jsonl",
    "h200.jsonl": "plots/h200-limit.jsonl",
    "cpu.jsonl": "plots/cpu-intel-peak.jsonl",
    "runs/run.jsonl": "plots/cpu-intel-peak.jsonl",
    "host.jsonl": "tests/data/host-parts/cpu-pocl.jsonl",
}


def with_source(row: Row) -> Row:
    """A fake machine's row with the hash of the kernel that a real one would have built."""
    parameters = {name: int(value) for name, value in row.parameters.items()}
    return replace(row, source=BY_NAME[row.variant].fingerprint(row.dtype, parameters))


TAKES_FILES = ("show", "plot", "compare", "check", "tune", "report")


def commands(page: str) -> list[str]:
    """The commands of a page, those of a pipe apart; prose that only names one that takes files is none."""
    text = (ROOT / page).read_text(encoding="utf-8")
    lines = (part for match in COMMAND.findall(text) for part in re.split(r" (?:\||&&) ", match))
    return sorted({line.strip() for line in lines if is_command(line.split())})


def is_command(words: list[str]) -> bool:
    """Whether it is one, and not the mere name of one that takes files."""
    if words[0] != "gemmbench" or words[1] not in cli.COMMANDS:
        return False
    return words[1] not in TAKES_FILES or "--forget" in words or any(word[0] != "-" for word in words[2:])


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
    for name in ("LOG", "layers.log"):
        shutil.copy(ROOT / "tests" / "data" / "logs" / "mkl-2026.2.log", name)
    words = ["bash" if word == "SHELL" else word for word in words]
    words = words[: words.index(">")] if ">" in words else words
    if words[0] in ("plot", "kernels", "show", "report"):
        for name in SAVED.keys() & {*words, *(f"{word}run.jsonl" for word in words)}:
            Path(name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / SAVED[name], name)
    words = [
        "register" if words[0] == "tune" and word == "gpu-tile" else word for word in words
    ]  # a small space
    if "--kernel-file" in words:
        if words[0] == "check":
            pytest.skip("tests/device/test_ci_recipes.py runs it, on a real kernel")
        for file in (word for word in words if word.endswith(".cl")):
            Path(file).parent.mkdir(parents=True, exist_ok=True)
            Path(file).write_text(MINE, encoding="utf-8")
    if words[0] in ("compare", "check"):
        base = "square --sizes 8 --kernel naive,register --budget 0.01 --no-peak --save base.jsonl"
        assert call(*base.split()).exit_code == 0
        made = load("base.jsonl")
        save("base.jsonl", replace(made, rows=tuple(map(with_source, made.rows))))
        for name in ("new.jsonl", "once.jsonl"):
            shutil.copy("base.jsonl", name)
        files = {"BASE...": "base.jsonl", "BASE": "base.jsonl", "NEW": "new.jsonl"}
        files |= dict.fromkeys(("../before/kernels", "FOLDER"), str(kernel_files.folder()))
        Path("old.so").touch()
        files["driver:/opt/old/libOpenCL.so"] = f"driver:{Path('old.so').absolute()}"
        words = [files.get(word, word) for word in words]
        words += ["--dry-run"] if words[0] == "check" else []
        words += ["--force"] if "--save" in words else []  # they save in another folder, or later
    words += ["--charts", "none"] if words[0] == "report" else []  # they take seconds
    words = ["0" if word in ("h200", "nvidia") else word for word in words]  # the fake machine has none
    if words[0] in ("peak", "square", "sweep-k", "workloads", "gemm", "tune"):
        words.append("--dry-run")
    result = call(*words)
    if any(word.startswith("driver:") for word in words):  # which is opened, and is none
        assert "does not have the device" in result.stderr
        return
    assert result.exit_code == 0, result.output


def test_the_table_of_commands_has_every_command() -> None:
    table = re.findall(
        r"^\| `gemmbench ([a-z-]+)[^`]*` \|", (ROOT / "docs/commands.md").read_text(encoding="utf-8"), re.M
    )
    assert table == list(cli.COMMANDS)


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """A folder with the pages and the runs that their tables are made from."""
    for folder in ("plots", "docs"):
        (tmp_path / folder).mkdir()
    for file in (*generate_readme.PAGES.values(), *generate_readme.FILES):
        (tmp_path / file).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / file, tmp_path / file)
    shutil.copytree(ROOT / FOLDER, tmp_path / FOLDER)
    return tmp_path


def test_a_stale_table_is_found_and_written(copy: Path, capsys: pytest.CaptureFixture[str]) -> None:
    part = generate_readme.LADDER
    page = generate_readme.PAGES[part]
    readme = copy / page
    fresh = readme.read_text(encoding="utf-8")
    text = generate_readme.between(fresh, part)
    figure = [*re.finditer("[0-8]", text)][-1].start()  # the last digit of the part but 9
    other = text[:figure] + str(int(text[figure]) + 1) + text[figure + 1 :]
    readme.write_text(fresh.replace(text, other, 1), encoding="utf-8")
    stale = readme.read_bytes()
    root = ("--root", str(copy))
    assert generate_readme.main(["--check", *root]) == 1
    assert capsys.readouterr().err == f"{page}: the {part} is stale; make readme writes it\n"
    assert readme.read_bytes() == stale
    assert generate_readme.main(root) == 0
    assert readme.read_text(encoding="utf-8") == fresh


def test_the_ladder_has_the_figures_of_the_saved_runs() -> None:
    text = generated_part(generate_readme.LADDER)
    lines = text.splitlines()
    table = {line.split("`")[1]: line.split(" | ")[2:] for line in lines if line.startswith("| `")}
    assert list(table) == [variant.name for variant in VARIANTS]
    for place, (_, _, files) in enumerate(generate_readme.RUNS):
        size, _, shown_there = generate_readme.figures([load(ROOT / file) for file in files])
        rates = {name: figure.rate for name, figure in shown_there.items()}
        assert f"{size} on " in text
        best = max((name for name in rates if shown_there[name].compared), key=lambda name: rates[name])
        for name, cells in table.items():
            shown = cells[place].strip(" |")
            assert shown == "-" if name not in rates else shown.strip("*") == units.gflops(rates[name])
            assert shown.startswith("**") == (name == best)


def generated_part(part: str) -> str:
    return generate_readme.between((ROOT / generate_readme.PAGES[part]).read_text(encoding="utf-8"), part)


FIRST, LAST = generate_readme.markers(generate_readme.LADDER)


@pytest.mark.parametrize("broken", ["", LAST + FIRST, FIRST])
def test_a_readme_without_its_markers_is_an_error(broken: str) -> None:
    with pytest.raises(generate_readme.ReadmeError, match="once each"):
        generate_readme.replaced(f"# title\n{broken}\n", generate_readme.LADDER, "table")


def test_every_option_that_readme_and_usage_name_exists(call: Call) -> None:
    helps = " ".join(call(name, "--help").stdout for name in cli.COMMANDS)
    text = "".join((ROOT / page).read_text(encoding="utf-8") for page in ("README.md", "docs/commands.md"))
    text = text.replace("uvx --from", "uvx")
    for option in set(re.findall(r"--[a-z][a-z-]+", text)):
        assert option in helps, option
