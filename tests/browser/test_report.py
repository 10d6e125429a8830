"""A report in Chromium: no requests, sorting, its first screen, narrow and dark pages, hostile names.

``make browser`` runs them. They are skipped without Chromium, unless GEMMBENCH_REQUIRE_BROWSER is set.
"""

from __future__ import annotations

import base64
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

import gemmbench as gb
from gemmbench.pages import Wanted, report_html
from tests import fake_runs as fake
from tests.browser.chromium import Page, program
from tests.compare_runs import HOSTILE, hostile

pytestmark = pytest.mark.browser

ROOT = Path(__file__).parents[2]
PLOTS = ROOT / "plots"
RUNS = (PLOTS / "h200-square.jsonl", ROOT / "tests/data/h100-limit.jsonl", PLOTS / "cpu-intel-square.jsonl")
MOST_BYTES = 410_000


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Page]:
    executable = program()
    if executable is None:
        if os.environ.get("GEMMBENCH_REQUIRE_BROWSER"):
            pytest.fail("there is no Chromium: apt-get install chromium")
        pytest.skip("there is no Chromium: apt-get install chromium")
    with Page(executable, tmp_path_factory.mktemp("profile")) as opened:
        opened.size(1600)
        yield opened


@pytest.fixture(scope="module")
def gallery(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The report of all of plots/."""
    return gb.report(PLOTS, out=tmp_path_factory.mktemp("gallery") / "plots.html", charts="ladder,throughput")


@pytest.fixture(scope="module")
def three(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The sweeps of two GPUs and of a CPU, with every chart that a report has by default."""
    return gb.report(*RUNS, out=tmp_path_factory.mktemp("three") / "three.html")


@pytest.mark.parametrize("which", ["gallery", "three"])
def test_it_asks_for_nothing_and_says_nothing(page: Page, which: str, request: pytest.FixtureRequest) -> None:
    page.open(request.getfixturevalue(which))
    page.run("document.querySelectorAll('details').forEach(each => { each.open = true; })")
    page.run("scrollTo(0, document.body.scrollHeight)")
    page.settle()
    assert page.requests == []
    assert page.complaints == []


def test_three_runs_are_small(three: Path) -> None:
    assert three.stat().st_size < MOST_BYTES


def test_the_first_screen_has_the_summary_a_chart_and_a_table(page: Page, three: Path) -> None:
    page.size(1280, 800)
    page.open(three)
    for what in (".summary", "#summary figure svg", "#summary tbody tr:last-child"):
        bottoms = f"[...document.querySelectorAll('{what}')].map(each => each.getBoundingClientRect().bottom)"
        assert 0 < max(page.run(bottoms)) < 800, what
    page.size(1600)


def test_only_tables_scroll_sideways(page: Page, three: Path) -> None:
    page.size(400)
    page.open(three)
    page.run("document.querySelectorAll('details').forEach(each => { each.open = true; })")
    assert page.run("document.documentElement.scrollWidth") <= 400
    wide = "[...document.querySelectorAll('*')].filter(each => each.scrollWidth > each.clientWidth + 1"
    wide += " && each.clientWidth && getComputedStyle(each).overflowX === 'auto').map(each => each.className)"
    assert set(page.run(wide)) == {"scroll"}
    page.size(1600)


@pytest.mark.parametrize(("width", "where"), [(1200, "main"), (400, "#summary")])
def test_no_column_is_cut(page: Page, three: Path, tmp_path: Path, width: int, where: str) -> None:
    """On a window of 1200 px in no table, on a telephone in none of the summary."""
    files = {"three": three}
    for name, run in {
        "square": fake.fake_square(),
        "many": fake.fake_many(),
        "peak": fake.fake_peak(),
    }.items():
        files[name] = tmp_path / f"{name}.html"
        files[name].write_text(report_html([run]), encoding="utf-8")
    page.size(width)
    for name, file in files.items():
        page.open(file)
        tables = f"[...document.querySelectorAll('{where} .scroll')].filter(each => each.clientWidth)"
        cut = page.run(
            f"{tables}.filter(each => each.scrollWidth > each.clientWidth + 1).map(each => each.innerText)"
        )
        assert cut == [], name
        assert page.run(f"{tables}.length") > 0
    page.size(1600)


def column(page: Page, table: int, index: int) -> list[str]:
    rows = f"[...document.querySelectorAll('table')[{table}].tBodies[0].rows]"
    cells: list[str] = page.run(f"{rows}.map(row => row.cells[{index}].textContent)")
    return cells


def test_a_click_and_a_key_sort(page: Page, three: Path) -> None:
    page.open(three)
    before, sizes = column(page, 0, 1), column(page, 0, 3)
    heading = "document.querySelectorAll('table')[0].tHead.rows[0].cells[3]"
    page.run(f"{heading}.querySelector('button').click()")
    assert page.run(f"{heading}.getAttribute('aria-sort')") == "descending"
    assert column(page, 0, 3) == sorted(sizes, key=int, reverse=True)
    page.run(f"{heading}.querySelector('button').focus()")
    page.press("Enter")
    assert page.run(f"{heading}.getAttribute('aria-sort')") == "ascending"
    assert column(page, 0, 3) == sorted(sizes, key=int)
    page.press("Enter")
    assert page.run(f"{heading}.getAttribute('aria-sort')") is None
    assert column(page, 0, 1) == before


def test_figures_are_sorted_by_value_and_words_come_last(page: Page, three: Path) -> None:
    """``*68.8`` before ``9,997``; ``skip`` and ``-`` are no numbers, whichever way."""
    page.open(three)
    heads = page.run("[...document.querySelectorAll('table')].map(each => each.tHead.textContent)")
    table = next(n for n, head in enumerate(heads) if "64" in head and "4096" in head)
    button = f"document.querySelectorAll('table')[{table}].tHead.rows[0].cells[7].querySelector('button')"
    for is_reversed in (True, False):
        page.run(f"{button}.click()")
        shown = [text.lstrip("*~").replace(",", "") for text in column(page, table, 7)]
        numbers = [float(text) for text in shown if text[:1].isdigit()]
        assert 0 < len(numbers) < len(shown)
        assert numbers == sorted(numbers, reverse=is_reversed)
        assert all(text[:1].isdigit() for text in shown[: len(numbers)])


def test_the_pointer_on_a_point_shows_its_sample(page: Page, three: Path) -> None:
    page.open(three)
    said = page.run(
        "(() => { const circle = document.querySelector('figure circle');"
        " circle.scrollIntoView({block: 'center'}); const at = circle.getBoundingClientRect();"
        " const top = document.elementFromPoint(at.x + at.width / 2, at.y + at.height / 2);"
        " return top.querySelector('title').textContent; })()"
    )
    assert " float 64x64x64: " in said


def test_hostile_names_do_nothing(page: Page, tmp_path: Path) -> None:
    path = tmp_path / "hostile.html"
    wanted = Wanted(f"<i>{HOSTILE}</i>", ("throughput", "ladder"))
    path.write_text(report_html([hostile(), hostile(1)], wanted), encoding="utf-8")
    page.open(path)
    page.run("document.querySelectorAll('details').forEach(each => { each.open = true; })")
    page.run("document.querySelectorAll('th button').forEach(each => each.click())")
    assert page.run("typeof window.hit") == "undefined"
    assert page.run("document.querySelectorAll('img, iframe, object, form, i, script[src]').length") == 0
    assert page.run("document.querySelectorAll('script:not([type])').length") == 1
    assert page.run("document.title").startswith("<i>")
    text = page.run("document.documentElement.textContent")
    assert "<script>window.hit" in text
    assert "{{7*7}}" in text
    assert not set(text) & set("\u202e\u2066\u200f")
    assert page.requests == []
    assert page.complaints == []


@pytest.mark.parametrize("width", [360, 900, 1600])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_page_fits_and_its_words_can_be_read(page: Page, three: Path, width: int, scheme: str) -> None:
    page.size(width)
    page.colours(scheme)
    page.open(three)
    assert page.run("document.documentElement.scrollWidth") <= width
    words = "p, li, th, td, a, caption, h1, h2, summary" + (", svg text" if scheme == "dark" else "")
    worst = page.run(
        """(() => {
        const light = text => {
          const parts = text.match(/[\\d.]+/g).slice(0, 3).map(Number).map(
            each => (each /= 255) <= .04045 ? each / 12.92 : ((each + .055) / 1.055) ** 2.4);
          return .2126 * parts[0] + .7152 * parts[1] + .0722 * parts[2];
        };
        const paper = light(getComputedStyle(document.body).backgroundColor);
        const inks = [...document.querySelectorAll('WORDS')].map(
          each => light(getComputedStyle(each)[each.closest('svg') ? 'fill' : 'color']));
        return Math.min(...inks.filter(ink => ink !== paper).map(  // on bars: the paper's colour
          ink => (Math.max(ink, paper) + .05) / (Math.min(ink, paper) + .05)));
        })()""".replace("WORDS", words)
    )
    assert worst >= 4.5, "WCAG AA"
    page.size(1600)
    page.colours("light")


def test_a_screen_reader_reads_everything(page: Page, three: Path) -> None:
    page.open(three)
    nodes = [node for node in page.call("Accessibility.getFullAXTree")["nodes"] if not node["ignored"]]

    def named(role: str) -> list[str]:
        return [str(node.get("name", {}).get("value", "")) for node in nodes if node["role"]["value"] == role]

    for role in ("table", "button", "image", "navigation", "link", "columnheader", "rowheader"):
        names = named(role)
        assert names, role
        assert all(names), role
    charts = page.run("document.querySelectorAll('figure svg').length")
    assert len(named("image")) == charts
    assert page.run("[...document.querySelectorAll('thead th')].every(each => each.scope === 'col')")
    ids = page.run("[...document.querySelectorAll('[id]')].map(each => each.id)")
    assert len(ids) == len(set(ids))


def test_the_first_stops_of_the_tab_key_are_in_order(page: Page, three: Path) -> None:
    page.open(three)
    stops = []
    for _ in range(3):
        page.press("Tab")
        stops.append(page.run("document.activeElement.textContent.trim()"))
    assert stops[:2] == ["Skip to the summary", "device"]
    outline = page.run("getComputedStyle(document.activeElement).outlineStyle")
    assert outline == "solid"


def test_it_prints(page: Page, three: Path) -> None:
    page.open(three)
    printed = base64.b64decode(page.call("Page.printToPDF")["data"])
    assert printed.startswith(b"%PDF")
    pages = printed.count(b"/Type /Page\n") + printed.count(b"/Type /Page ")
    assert 3 <= pages <= 60
