"""What a release is made of agrees with the package: container, workflow, notes."""

from __future__ import annotations

from pathlib import Path

import pytest

from gemmbench import __version__
from tools import release_notes

ROOT = Path(__file__).resolve().parents[2]


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
