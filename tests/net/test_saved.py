"""Every saved run: what `show` and `plot --kind all` make of it."""

from __future__ import annotations

import pytest

from tests.net import drawn
from tests.net.conftest import SAVED, OpenBook

FORMATS = ("json", "csv", "markdown")


def name(path: str) -> str:
    return path.removeprefix("tests/data/").removesuffix(".jsonl").replace("plots/", "").replace("/", "-")


@pytest.mark.parametrize("path", SAVED, ids=name)
def test_show(path: str, book: OpenBook, monkeypatch: pytest.MonkeyPatch) -> None:
    page = book(f"show-{name(path)}")
    page.call("show", path)
    page.call("show", path, "--verbose")
    for form in FORMATS:
        page.call("show", path, "--format", form)
    monkeypatch.setenv("COLUMNS", "120")
    page.call("show", path)


@pytest.mark.parametrize("path", SAVED, ids=name)
def test_plot(path: str, book: OpenBook) -> None:
    """Each chart that suits, and why the others do not."""
    page = book(f"plot-{name(path)}")
    with drawn.captured() as figures:
        assert page.call("plot", path, "--kind", "all", "--out", "out.svg") == 0
        kinds = [
            line.split("-", 1)[1] for line in next(iter(page.sections.values())) if line.startswith("! Drew ")
        ]
        assert len(kinds) == len(figures) > 0
        page.call("plot", path, "--out", "out.svg")
        for kind, figure in zip([*kinds, "by default"], figures, strict=True):
            page.write(f"chart {kind.removesuffix('.svg.')}", figure)


def test_kernels(book: OpenBook, monkeypatch: pytest.MonkeyPatch) -> None:
    """The ladder, and every kernel described."""
    page = book("kernels")
    assert page.call("kernels") == 0
    for variant in ("all", "naive", "cpu-packed", "auto", "numpy"):
        page.call("kernels", "--describe", variant)
    monkeypatch.setenv("COLUMNS", "120")
    page.call("kernels")
    page.call("plot", "--kind", "list")
    page.call("--version")


def test_plot_beside_a_peak(book: OpenBook) -> None:
    """Several runs in one chart, as the gallery has them."""
    page = book("plot-several")
    with drawn.captured() as figures:
        for group in (
            ("plots/cpu-intel-square.jsonl", "plots/cpu-pocl-square.jsonl"),
            ("plots/h200-precision.jsonl", "plots/h200-peak.jsonl"),
            ("plots/h200-tensor.jsonl", "plots/h200-peak.jsonl"),
        ):
            figures.clear()
            assert page.call("plot", *group, "--kind", "all", "--out", "out.svg") == 0
            for number, figure in enumerate(figures):
                page.write(f"chart {number} of {' '.join(group)}", figure)
