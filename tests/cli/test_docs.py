"""The pages as a site: menu, links, generated parts, install lines. `make docs` builds it with mkdocs."""

from __future__ import annotations

import re

import pytest

from tests.cli.conftest import ROOT
from tools import site

PAGES = site.sources()


def without_code(text: str) -> str:
    return re.sub(r"^```.*?^```$", "", text, flags=re.MULTILINE | re.DOTALL)


def anchors(text: str) -> set[str]:
    """Of the headings, as GitHub and mkdocs make them."""
    headings = re.findall(r"^#+ (.+)$", without_code(text), re.MULTILINE)
    plain = (re.sub(r"[^\w\s-]", "", heading.lower()).strip() for heading in headings)
    return {re.sub(r"[\s]", "-", heading) for heading in plain}


def test_every_page_is_on_the_menu_once() -> None:
    listed = [
        name
        for section in site.menu([*PAGES, *site.GENERATED])
        for names in section.values()
        for name in names
    ]
    assert sorted(listed) == sorted({*PAGES, *site.GENERATED})
    assert {"help.md", "api.md", "contributing.md"} <= set(site.menu([*PAGES, *site.GENERATED])[-1]["More"])


@pytest.mark.parametrize("page", [*PAGES.values(), "tools/release.md"])
def test_every_link_leads_somewhere(page: str) -> None:
    text = (ROOT / page).read_text(encoding="utf-8")
    for target, anchor in re.findall(r"\]\((?![a-z]+:)([^)#\s]*)(?:#([^)\s]*))?\)", text):
        file = (ROOT / page).parent / target if target else ROOT / page
        assert file.exists(), target
        if anchor:
            assert anchor in anchors(file.read_text(encoding="utf-8")), f"{target}#{anchor}"


def test_links_are_the_sites() -> None:
    pages = {"index.md": "README.md", "gallery.md": "plots/README.md", "gate.md": "docs/gate.md"}
    text = "[a](docs/gate.md#b) [c](plots/) ![d](plots/x.png) [e](docs/ci/gate.sh) [f](https://g.org) [i](#j)"
    assert site.linked("index.md", "README.md", text, pages) == (
        "[a](gate.md#b) [c](gallery.md) ![d](source/plots/x.png) [e](ci/gate.sh) [f](https://g.org) [i](#j)"
    )
    back = "[a](../README.md) [b](../kernels/gemm/01_naive.cl) [c](../.ci/run)"
    assert site.linked("gate.md", "docs/gate.md", back, pages) == (
        "[a](index.md) [b](source/kernels/gemm/01_naive.cl) [c](source/ci/run)"
    )


PAGES_AND_RECIPES = sorted(
    path.relative_to(ROOT).as_posix()
    for path in (ROOT / "README.md", ROOT / "Containerfile", *(ROOT / "docs").rglob("*"))
    if path.suffix in (".md", ".yml", ".sh", ".py", "") and path.is_file()
)
INSTALL = re.compile(r"(?:pip install|pipx install|uvx --from)((?: +-[-\w]+)*) +[\"']?([^\s\"'`]+)")
# Where gemmbench is installed already, this adds to it, and needs no index that has it.
ADDS = {"docs/getting-started.md": {"gemmbench[cublas]"}}


@pytest.mark.parametrize("page", PAGES_AND_RECIPES)
def test_install_lines_work_before_a_release(page: str) -> None:
    """They install from a checkout, a wheel or an address: gemmbench is not on PyPI."""
    text = " ".join((ROOT / page).read_text(encoding="utf-8").split())
    for _, what in INSTALL.findall(text):
        assert not what.startswith("gemmbench") or what in ADDS.get(page, ()), what


RATES = re.compile(r"\d\s?(?:[TG]?FLOPS|[TG]?I?OPS|[TG]B/s|GFLOP/J)\b")
NOTES = "no saved run is behind them, and nothing measures them again"
PUBLISHED = "docs/experiments.md"  # authors' figures, each with its source
OWN_CLAIM = "docs/notes/cpu-packed.md"  # says itself what its figures are of
RECORD = "CHANGELOG.md"  # what was seen at the time


@pytest.mark.parametrize("page", sorted({*PAGES.values()} - {PUBLISHED, OWN_CLAIM, RECORD}))
def test_rates_on_a_page_are_generated_or_called_notes(page: str) -> None:
    """Tables typed by hand contradicted the saved runs; `make check` finds a generated one stale."""
    text = (ROOT / page).read_text(encoding="utf-8")
    generated = r"<!-- The [^\n]*: generated.*?<!-- End of the [^\n]*-->"
    typed = RATES.findall(without_code(re.sub(generated, "", text, flags=re.DOTALL)))
    assert not typed or NOTES in " ".join(text.split())


@pytest.mark.parametrize(
    "path", ["ci.md", "ci/github-actions.yml", "ci/gitlab-ci.yml", "ci/reframe/gemmbench_check.py"]
)
def test_the_baselines_of_recipes_have_no_probes_that_a_check_could_fail_for(path: str) -> None:
    text = " ".join((ROOT / "docs" / path).read_text(encoding="utf-8").split())
    commands = re.findall(r"gemmbench square [^`#]*?--save (?:once|base)\.jsonl", text)
    assert commands
    assert all(" --no-peak " in command for command in commands)
