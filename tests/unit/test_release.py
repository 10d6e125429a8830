"""What a release is made of agrees with the package: recipe, container, workflow, notes."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from gemmbench import __version__
from tools import container, release_notes

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

ROOT = Path(__file__).resolve().parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
CONDA = {"matplotlib": "matplotlib-base"}  # without its windows, which a chart in a file does not need


def loaded(name: str) -> Any:
    return yaml.safe_load((ROOT / name).read_text(encoding="utf-8"))


def test_the_conda_recipe_has_the_packages_dependencies() -> None:
    recipe = loaded("recipe/recipe.yaml")
    wanted = {"python": PROJECT["requires-python"]}
    for text in PROJECT["dependencies"]:
        match = re.match(r"([a-z0-9-]+)([^ ;]*)", text)
        assert match is not None
        wanted[CONDA.get(match[1], match[1])] = match[2]
    assert dict(line.split() for line in recipe["requirements"]["run"]) == wanted
    assert recipe["context"]["version"] == __version__
    scripts = [f"{name} = {target}" for name, target in PROJECT["scripts"].items()]
    assert recipe["build"]["python"]["entry_points"] == scripts


def test_the_containerfile_is_understood() -> None:
    made = container.image((ROOT / "Containerfile").read_text(encoding="utf-8"))
    assert (made.user, made.folder, made.entrypoint) == ("gemmbench", "/work", ["gemmbench"])
    assert re.fullmatch("[a-z]+", made.suite)
    packages, install = (step for step, _ in made.runs)
    assert "pocl-opencl-icd" in packages
    assert install.startswith("python3 -m venv /opt/gemmbench ")
    assert container.SOURCE in install
    kept = (ROOT / ".dockerignore").read_text(encoding="utf-8").splitlines()
    for name in ("docs/gemmbench.1", "gemmbench", "kernels", "pyproject.toml", "README.md", "LICENSE"):
        assert f"!{name}" in kept  # the wheel is built from these


def test_a_step_has_the_environment_before_it() -> None:
    made = container.image("FROM debian:trixie-slim\n# no\nRUN a \\\n && b\nENV X=1\nRUN c\n")
    assert [(" ".join(step.split()), environment) for step, environment in made.runs] == [
        ("a && b", {}),
        ("c", {"X": "1"}),
    ]


@pytest.mark.parametrize("line", ["FROM alpine:3", "COPY . /src", "CMD x"])
def test_an_instruction_that_the_folder_does_not_know_is_refused(line: str) -> None:
    with pytest.raises(ValueError, match="does not know"):
        container.image(line)


def test_a_release_is_published_without_a_token_and_after_its_checks() -> None:
    workflow = loaded(".github/workflows/release.yml")
    jobs = workflow["jobs"]
    assert {name: job.get("needs") for name, job in jobs.items()} == {
        "build": None,
        "publish": "build",
        "announce": "publish",
    }
    assert workflow["permissions"] == {}
    assert jobs["publish"]["permissions"] == {"id-token": "write"}
    assert jobs["publish"]["environment"]["name"] == "pypi"
    assert jobs["build"]["permissions"] == {"contents": "read"}
    runs = [step["run"] for step in jobs["build"]["steps"] if "run" in step]
    assert [run.split()[:2] for run in runs] == [["python", "tools/release_notes.py"], ["make", "dist"]]


HISTORY = """# Changelog

## [Unreleased]

- later

## [1.2.0] - 2026-01-02

### Added

- this

## [1.1.0] - 2025-01-02
## [1.0.0] (soon)

- that
"""


def test_release_notes_are_the_changelogs() -> None:
    assert release_notes.notes("v1.2.0", "1.2.0", HISTORY) == "### Added\n\n- this\n"


@pytest.mark.parametrize(
    ("tag", "version", "message"),
    [
        ("v1.2.1", "1.2.0", "the tag is v1.2.1, and gemmbench/__init__.py has version 1.2.0"),
        ("v1.1.0", "1.1.0", "CHANGELOG.md has nothing under"),
        ("v1.0.0", "1.0.0", "CHANGELOG.md: '## [1.0.0] (soon)' is not '## [1.0.0] - YYYY-MM-DD'"),
        ("v2.0.0", "2.0.0", "CHANGELOG.md has no section '## [2.0.0] - YYYY-MM-DD'"),
    ],
)
def test_a_release_that_is_not_ready_is_refused(tag: str, version: str, message: str) -> None:
    with pytest.raises(release_notes.ReleaseError) as error:
        release_notes.notes(tag, version, HISTORY)
    assert message in str(error.value)


def test_the_version_is_read_without_importing(capsys: pytest.CaptureFixture[str]) -> None:
    assert release_notes.version() == __version__
    assert release_notes.main(["v0.0.0"]) == 2
    assert capsys.readouterr().err.startswith("release_notes.py: the tag is v0.0.0")
