"""The report as HTML, without a browser: what it holds, what it concludes, and that no name gets out."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import matplotlib
import pytest
from click.testing import CliRunner
from matplotlib.axes import Axes

import gemmbench as gb
from gemmbench import cli, views
from gemmbench import pages as content
from gemmbench.charts import pane
from gemmbench.exports.records import to_records
from gemmbench.ladder import ORDER
from gemmbench.model.run_file import Run, encode
from gemmbench.pages import Wanted, html
from gemmbench.regress.results import conclusion
from tests import fake_runs as fake
from tests.report_runs import HOSTILE, days, hostile, scaled

NO_CHARTS = Wanted(charts=())
STORED_ONLY = ("needs_s",)  # said in the reason
VOID = {"meta", "link", "img", "input", "br"}
UNCLOSED = {"li", "tr", "td", "th", "thead", "tbody"}  # whose end HTML lets one leave out


class Parsed(HTMLParser):
    """Tags, attributes and words of a page; tags that are never closed are a failure."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.words: list[str] = []
        self.tables: list[list[list[str]]] = []
        self._open: list[str] = []
        self.feed(text)
        self.close()
        assert not self._open

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag not in VOID | UNCLOSED:
            self._open.append(tag)
        if tag == "table":
            self.tables.append([])
        elif tag == "tr":
            self.tables[-1].append([])
        elif tag in ("td", "th"):
            self.tables[-1][-1].append("")

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        if tag not in UNCLOSED:
            assert self._open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self._open[-1:] != ["script"] and self._open[-1:] != ["style"]:
            self.words.append(data)
        if self._open[-1:] == ["table"] and self.tables[-1] and self.tables[-1][-1]:
            self.tables[-1][-1][-1] += data

    @property
    def text(self) -> str:
        return " ".join(" ".join(self.words).split())


@pytest.fixture(scope="module")
def square() -> str:
    return html([fake.fake_square()], Wanted(charts=("ladder",)))


def plain(text: str) -> str:
    return " ".join(text.split())


def test_the_page_says_what_the_tables_of_show_say(square: str) -> None:
    """Each cell, each note; the conclusions stand at the top as well."""
    parsed = Parsed(square)
    for sheet in views.sheets(fake.fake_square(), ORDER):
        rows = [[*(name or "name" for name in sheet.columns)]]
        rows += [[cell.plain for cell in row] for row in sheet.rows]
        assert rows in [[[plain(cell) for cell in row] for row in table] for table in parsed.tables]
        for note in sheet.notes:
            said = plain(f"{note.label}: {note.text}" if note.label else note.text)
            count = 2 if note.style == "bold" else 1
            assert parsed.text.count(said) >= count, said
    break_even = next(
        note
        for sheet in views.sheets(fake.fake_square(), ORDER)
        for note in sheet.notes
        if note.label == "Break-even"
    )
    top = parsed.text.partition("Where it was measured")[2].partition("GFLOPS, kernel scope")[0]
    assert plain(break_even.text) in top


@pytest.mark.parametrize("make", [fake.fake_square, fake.fake_peak, fake.fake_gemm, fake.fake_troubled])
def test_the_page_holds_every_figure_that_show_has(make: object) -> None:
    """What `show --format json` derives for each row, to six digits."""
    run: Run = make()  # type: ignore[operator]
    parsed = Parsed(html([run], NO_CHARTS))
    words = set(re.split(r"[\s;]+", parsed.text))
    for record in to_records(run):
        for name, value in record.items():
            if isinstance(value, (int, float)) and not isinstance(value, bool) and name not in STORED_ONLY:
                assert (f"{value:.6g}" if isinstance(value, float) else str(value)) in words, (name, value)


def test_the_fastest_is_the_one_that_is_ranked_first(square: str) -> None:
    said = (
        "Fastest: float at m = n = k = 2048, device scope: register with 258 GFLOPS, 74.7 % of the measured"
    )
    assert f"{said} peak; then numpy with 219 GFLOPS." in Parsed(square).text


def test_it_fetches_nothing_and_allows_nothing(square: str) -> None:
    tags = Parsed(square).tags
    for tag, attributes in tags:
        assert tag not in ("img", "iframe", "object", "embed", "form", "base"), tag
        for name in ("src", "href", "xlink:href", "action"):
            assert (attributes.get(name) or "#").startswith(("#", "data:")), (tag, attributes)
        assert not any(name.startswith("on") for name in attributes), (tag, attributes)
    policy = next(
        each["content"] for tag, each in tags if each.get("http-equiv") == "Content-Security-Policy"
    )
    assert policy is not None
    assert policy.startswith("default-src 'none'")
    assert "script-src 'sha256-" in policy
    assert "url(http" not in square
    assert "@import" not in square


def test_tables_have_captions_scopes_and_as_many_cells_as_heads(square: str) -> None:
    parsed = Parsed(square)
    names = [tag for tag, _ in parsed.tags]
    assert names.count("table") == names.count("caption")
    assert all(each.get("scope") in ("col", "row") for tag, each in parsed.tags if tag == "th")
    assert all(len({len(row) for row in table}) == 1 for table in parsed.tables)
    charts = [each for tag, each in parsed.tags if tag == "svg"]
    assert charts
    assert all(each["role"] == "img" and each["aria-label"] for each in charts)
    ids = [each["id"] for _, each in parsed.tags if "id" in each]
    assert len(ids) == len(set(ids))


def said_of_points(page: str) -> list[str]:
    samples: list[str] = json.loads(page.partition('id="samples">')[2].partition("</script>")[0])
    return samples


def test_points_of_charts_have_their_samples(square: str) -> None:
    """A point for each rung of the ladder that has a rate at its problem, the host's line aside."""
    (chart,) = re.findall(r"<svg.*?</svg>", square, re.S)
    (points,) = re.findall(r'data-p="([^"]*)"', chart)
    numbers = list(range(points.count(",") + 1))  # each point's text is the next: the chart is the only one
    assert all(re.fullmatch(r"-?[\d.]+ -?[\d.]+", point) for point in points.split(","))
    rungs = {
        row.variant
        for row in fake.fake_square().rows
        if row.problem and row.problem.m == 2048 and row.device == 0
    }
    skipped = {row.variant for row in fake.fake_square().rows if row.status == "skipped"}
    samples = said_of_points(square)
    assert {samples[number].split(" ")[0] for number in numbers} == rungs - skipped
    assert "register float 2048x2048x2048: 258 GFLOPS; 74.7 % of peak" not in samples
    (said,) = (text for text in samples if text.startswith("register "))
    assert re.match(
        r"register float 2048x2048x2048: 258 GFLOPS; median 66\.\d ms \(.*\), best .*; 36 batches of 4, ",
        said,
    )


def test_hostile_names_are_words() -> None:
    page = html([hostile(), hostile(1)], Wanted(f"<i>{HOSTILE}", ()))
    parsed = Parsed(page)
    tags = {tag for tag, _ in parsed.tags}
    assert not tags & {"img", "i"}
    assert [tag for tag, _ in parsed.tags].count("script") == 2
    assert "<script>window.hit=1</script>" in parsed.text
    assert "{{7*7}}{% raw %}" in parsed.text
    assert not set(page) & set("\u202e\u2066\u200f\x1b")


def test_equal_runs_give_equal_pages() -> None:
    once, again = (html([fake.fake_gemm()], Wanted(charts=("ladder",))) for _ in range(2))
    assert once == again


def test_the_tables_of_five_hundred_rows_are_less_than_half_a_megabyte() -> None:
    """`make browser` draws all charts, too: less than a megabyte."""
    run = fake.fake_square()
    whole, one = (len(html([replace(run, rows=rows)], NO_CHARTS)) for rows in (run.rows, run.rows[:1]))
    assert one + 500 * (whole - one) / len(run.rows) < 0.5e6


# --- several runs -------------------------------------------------------------------------------------------


def on_another(run: Run, factor: float) -> Run:
    """The same cases on a GPU, so many times as fast."""
    other = scaled(run, 1 / factor)
    return Run(replace(run.header, devices=(fake.GPU,)), other.rows, "gpu.jsonl")


def test_devices_stand_side_by_side() -> None:
    slow = fake.fake_square()
    (part,) = [
        each
        for each in content.page([slow, on_another(slow, 3.0)], NO_CHARTS).parts
        if each.title == "Devices side by side"
    ]
    (sheet,) = part.sheets
    assert sheet.columns[2:] == (
        *(f"{fake.CPU.title}: kernel", fake.CPU.title),
        *(f"{fake.GPU.title}: kernel", fake.GPU.title),
    )
    alike = [
        row for row in sheet.rows if row[2].text == row[4].text
    ]  # elsewhere the CPU's own BLAS is faster
    assert alike
    for row in alike:
        assert [cell.best for cell in row[2:]] == [False, False, False, True]
        assert float(row[5].text) == pytest.approx(3 * float(row[3].text), rel=0.05)
    assert content.side_by_side([slow]) is None


def test_two_runs_of_a_plan_get_verdicts() -> None:
    base, slower = days(2, slower_from=1, factor=1.7)
    page = content.page([slower, base], NO_CHARTS)  # in whatever order: the later is the new one
    statement = next(
        each for each in page.statements if each.subject.startswith("Verdicts: day-1 against day-0")
    )
    made = gb.compare(base, slower)
    assert statement.notes[0].text == conclusion(made)
    assert len(statement.notes) == 1 + len([line for line in made.lines if line.fails])
    assert made.slower


def test_runs_of_other_plans_are_not_compared() -> None:
    run = fake.fake_square()
    page = content.page([run, fake.fake_sweep_k()], NO_CHARTS)
    assert not [part.title for part in page.parts if part.id.startswith("verdicts")]


def test_of_a_series_the_last_run_is_compared_and_shown() -> None:
    ids = [part.id for part in content.page(days(), NO_CHARTS).parts]
    assert ids == ["verdicts-1", "run-1", "surroundings", "rows"]


def test_runs_of_several_machines_are_not_compared() -> None:
    first, second = days(2)
    host = replace(second.header.host, memory_bytes=1 << 30)
    other = replace(second, header=replace(second.header, host=host))
    assert "verdicts-1" in [part.id for part in content.page([first, second], NO_CHARTS).parts]
    assert "verdicts-1" not in [part.id for part in content.page([first, other], NO_CHARTS).parts]


def test_runs_are_named_by_as_many_folders_as_it_takes() -> None:
    runs = [Run(fake.fake_square().header, (), path) for path in ("a/x/s.jsonl", "b/x/s.jsonl")]
    assert content.names_of(runs) == ["a/x/s", "b/x/s"]
    assert content.names_of(runs[:1]) == ["s"]
    assert content.names_of([runs[0], replace(runs[0], path="")]) == ["s", "this run"]
    assert content.names_of([runs[0], runs[0]]) == ["a/x/s (1)", "a/x/s (2)"]


# --- the command, and the API -------------------------------------------------------------------------------


@pytest.fixture
def saved(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "runs").mkdir()
    for name, run in (("one", fake.fake_square()), ("two", fake.fake_sweep_k())):
        (tmp_path / "runs" / f"{name}.jsonl").write_bytes(
            b"".join([encode(run.header), *map(encode, run.rows)])
        )
    return tmp_path


def call(*words: str) -> tuple[int, str]:
    result = CliRunner().invoke(cli.main, list(words), prog_name="gemmbench")
    return result.exit_code, result.stderr


def test_files_and_folders_become_a_page(saved: Path) -> None:
    assert call("report", "runs", "--charts", "none") == (0, "Wrote runs.html.\n")
    text = (saved / "runs.html").read_text(encoding="utf-8")
    assert "2 runs" in text
    assert call("report", "runs/one.jsonl", "-o", "x.html", "--title", "A & B", "--charts", "none")[0] == 0
    assert "<title>A &amp; B</title>" in (saved / "x.html").read_text(encoding="utf-8")
    gb.load("runs/one.jsonl").report("y.html", title="A & B", charts="none")
    assert (saved / "y.html").read_text(encoding="utf-8") == (saved / "x.html").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ("report", "Missing argument 'FILE|FOLDER...'"),
        ("report nothing.jsonl", "nothing.jsonl: no such file or directory"),
        ("report runs -o page.pdf", "--out page.pdf: a report is an .html file"),
        ("report runs -o none/page.html", "--out none/page.html: there is no folder none"),
        ("report runs --charts ladders", "unknown kind of chart 'ladders'; did you mean ladder?"),
        ("report runs --threshold x", "--threshold:"),
        ("report empty", "empty has no saved runs: no file in it ends in .jsonl"),
        ("report header.jsonl", "header.jsonl has no rows to report"),
        ("report page.html -o page.html", "--out page.html would replace page.html, which is read"),
        ("square --sizes 8 --report page.png", "--report page.png: a report is an .html file"),
    ],
)
def test_bad_input_is_a_sentence(saved: Path, words: str, says: str) -> None:
    (saved / "empty").mkdir()
    header = encode(fake.fake_square().header)
    (saved / "header.jsonl").write_bytes(header)
    row = encode(fake.fake_square().rows[0])
    (saved / "page.html").write_bytes(header + row)
    status, text = call(*words.split())
    assert status == 2
    assert says in text
    assert len(text.splitlines()) == 1
    assert (saved / "page.html").read_bytes() == header + row


# --- charts as SVG ------------------------------------------------------------------------------------------


def test_an_svg_keeps_its_words_and_its_points_and_no_names_of_others() -> None:
    def paint(axes: Axes) -> None:
        axes.plot([1, 2], [3, 4], "o")
        pane.mark(axes, 2, 4, "<here>")

    shared = pane.Shared()
    with matplotlib.rc_context():
        (figure,) = pane.each_alone(lambda: [pane.Pane(2.0, paint)])
        first, second = pane.to_svg(figure, shared, "a <label>"), pane.to_svg(figure, shared, "b")
    assert 'aria-label="a &lt;label&gt;"' in first
    assert shared.texts == {"<here>": 0}
    names = [set(re.findall(r'id="([^"]*)"', each)) for each in (first, second)]
    assert names[0]
    assert not names[0] & names[1]
    for each, own in zip((first, second), names, strict=True):
        assert set(re.findall(r'(?:href="|url\()#([^")]*)', each)) == own, "whatever is referred to is there"
