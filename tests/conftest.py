"""Golden files: text that a person can read and a test compares; ``pytest --update-golden`` writes them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

GOLDEN = Path(__file__).parent / "golden"


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--update-golden", action="store_true", help="write tests/golden anew")


@pytest.fixture
def golden(request: pytest.FixtureRequest) -> Callable[[str, str], None]:
    """Compare a text with ``tests/golden/NAME``; spaces at line ends do not count."""

    def check(name: str, text: str) -> None:
        text = "\n".join(line.rstrip() for line in text.splitlines()).rstrip() + "\n"
        path = GOLDEN / name
        if request.config.getoption("--update-golden"):
            path.parent.mkdir(exist_ok=True)
            path.write_text(text, encoding="utf-8")
        assert path.exists(), f"no {path}; pytest --update-golden writes it"
        assert text == path.read_text(encoding="utf-8"), f"{path} differs; look, then --update-golden"

    return check
