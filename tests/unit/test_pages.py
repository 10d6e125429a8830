"""The report as HTML, without a browser: what it holds, what it concludes, and that no name gets out."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import matplotlib
import pytest
from click.testing import CliRunner
from matplotlib.axes import Axes

import gemmbench as gb
from gemmbench import chart_views, cli, views
from gemmbench import pages as content
from gemmbench.charts import pane
from gemmbench.ladder import ORDER
from gemmbench.model.run_file import Run, encode
from gemmbench.pages import Wanted, report_html
from gemmbench.regress.results import conclusion
from tests import fake_runs as fake
from tests.compare_runs import HOSTILE, again, days, hostile

NO_CHARTS = Wanted(charts=())
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
    return report_html([fake.fake_square()], Wanted(charts=("ladder",)))


def plain(text: str) -> str:
    return " ".join(text.split())


def test_the_page_says_what_the_tables_of_show_say(square: str) -> None:
    parsed = Parsed(square)
    for sheet in views.run_sheets(fake.fake_square(), ORDER):
        rows = [[*(name or "name" for name in sheet.columns)]]
        rows += [[cell.plain for cell in row] for row in sheet.rows]
        if sheet.rows:
            assert rows in [[[plain(cell) for cell in row] for row in table] for table in parsed.tables]
        assert all(plain(note.line.removesuffix("Details: -v")) in parsed.text for note in sheet.notes)
    assert "Details: -v" not in parsed.text


def test_conclusions_are_visible_and_other_notes_are_folded(square: str) -> None:
    visible = re.sub(r"<details>.*?</details>", "", square, flags=re.S)
    notes = [note for sheet in views.run_sheets(fake.fake_square(), ORDER) for note in sheet.notes]
    assert {"bold" in note.style for note in notes if note.text != "Details: -v"} == {True, False}
    for note in notes:
        text = plain(note.text.removesuffix("Details: -v"))
        assert not text or (text in Parsed(visible).text) == ("bold" in note.style), note


def test_every_row_is_there_in_every_scope(square: str) -> None:
    (table,) = (table for table in Parsed(square).tables if table[0][1:3] == ["size", "kernel"])
    assert len(table) == 1 + sum(row.kind == "gemm" for row in fake.fake_square().rows)


def test_the_top_has_a_sentence_a_chart_and_six_rows() -> None:
    page = content.page([fake.fake_square()], Wanted(charts=("throughput", "ladder")))
    assert page.summary == (
        "register is the fastest on Intel Xeon Processor: 258 GFLOPS (float) at m = n = k = 2048, "
        "75 % of the measured peak.",
        "Fastest measured: numpy up to m = 512, register from 1024.",
        "With transfers, register beats numpy from m = 938.",
    )
    assert page.chart.kind == "throughput"
    assert len(page.table.rows) == 6
    assert [cell.best for cell in page.table.rows[0]] == [False, True, False, False]
    shown = Parsed(report_html([fake.fake_square()], Wanted(charts=("throughput", "ladder"))))
    assert len([tag for tag, _ in shown.tags if tag == "svg"]) == 2, "no chart is there twice"


@pytest.mark.parametrize(
    ("run", "caption", "columns"),
    [
        (fake.fake_square(), "Fastest float kernels of Intel Xeon Processor, ", []),
        (fake.fake_many(), "Fastest kernels of Intel Xeon Processor, ", ["type"]),
    ],
)
def test_one_device_or_type_has_no_column(run: Run, caption: str, columns: list[str]) -> None:
    table = content.page([run], NO_CHARTS).table
    assert table.caption.startswith(caption)
    assert list(table.columns) == ["kernel", "best rate", "size", "of peak", *columns]
    both = content.page([run, on_another(fake.fake_square(), 3.0)], NO_CHARTS).table
    assert both.columns[0] == "device"
    assert both.caption.split(" of ")[1].startswith("each device, ")


def test_runs_without_a_fastest_kernel_have_a_table() -> None:
    page = content.page([fake.fake_peak()], NO_CHARTS)
    assert 0 < len(page.table.rows) <= 6


def test_rows_that_failed_come_first() -> None:
    page = content.page([fake.fake_troubled()], NO_CHARTS)
    assert re.fullmatch(r"\d+ rows failed or gave wrong results: see below\.", page.summary[0])


@pytest.mark.parametrize(
    ("make", "title"),
    [
        (fake.fake_square, "float GEMM on Intel Xeon Processor, m = n = k = 64 to 2048"),
        (fake.fake_sweep_k, "float GEMM on NVIDIA H200, m = n = 1024, k = 16 to 4096"),
        (fake.fake_workloads, "float GEMM on Intel Xeon Processor, 4 shapes"),
        (fake.fake_peak, "Peaks of Intel Xeon Processor"),
    ],
)
def test_headings_say_what_a_run_measured(make: Callable[[], Run], title: str) -> None:
    assert [part.title for part in content.page([make()], NO_CHARTS).parts] == [title, "Where and when"]


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


def test_tables_have_names_scopes_and_as_many_cells_as_heads(square: str) -> None:
    parsed = Parsed(square)
    labels = ["aria-label" in each for tag, each in parsed.tags if tag == "table"]
    assert len(labels) - sum(labels) == [tag for tag, _ in parsed.tags].count("caption")
    assert all(each.get("scope") in ("col", "row") for tag, each in parsed.tags if tag == "th")
    assert all(len({len(row) for row in table}) == 1 for table in parsed.tables)
    charts = [each for tag, each in parsed.tags if tag == "svg"]
    assert charts
    assert all(each["role"] == "img" and each["aria-label"] for each in charts)
    ids = [each["id"] for _, each in parsed.tags if "id" in each]
    assert len(ids) == len(set(ids))


def test_every_colour_of_every_chart_has_a_dark_one() -> None:
    runs = [fake.fake_square(), fake.fake_gemm(), fake.fake_workloads()]
    pages = [
        report_html(each, Wanted(charts=tuple(chart_views.KINDS))) for each in (runs, [fake.fake_peak()])
    ]
    used = set(re.findall(r"var\((--c[0-9a-f]{6}),#", "".join(pages)))
    assert len(used) > 10
    dark = pages[0].partition("prefers-color-scheme:dark")[2].partition("}\n}")[0]
    assert used <= set(re.findall(r"(--c[0-9a-f]{6}):", dark))


def test_points_of_charts_have_their_samples(square: str) -> None:
    """A point for each bar of the ladder, but for the peak."""
    samples = re.findall(r'<circle cx="[\d.]+" cy="[\d.]+"><title>([^<]*)</title></circle>', square)
    rungs = {row.variant for row in fake.fake_square().rows if row.problem and row.problem.m == 2048}
    skipped = {row.variant for row in fake.fake_square().rows if row.status == "skipped"}
    assert {sample.split(" ")[0] for sample in samples} == rungs - skipped
    (said,) = (text for text in samples if text.startswith("register "))
    assert re.fullmatch(r"register float 2048x2048x2048: 258 GFLOPS, 66\.\d ms, 74.7 % of peak", said)


def test_hostile_names_are_words() -> None:
    page = report_html([hostile(), hostile(1)], Wanted(f"<i>{HOSTILE}", ()))
    parsed = Parsed(page)
    tags = {tag for tag, _ in parsed.tags}
    assert not tags & {"img", "i"}
    assert [tag for tag, _ in parsed.tags].count("script") == 1
    assert "<script>window.hit=1</script>" in parsed.text
    assert "{{7*7}}{% raw %}" in parsed.text
    assert not set(page) & set("\u202e\u2066\u200f\x1b")


def test_equal_runs_give_equal_pages() -> None:
    once, again = (report_html([fake.fake_gemm()], Wanted(charts=("ladder",))) for _ in range(2))
    assert once == again


# --- several runs -------------------------------------------------------------------------------------------


def on_another(run: Run, factor: float) -> Run:
    """The same cases on a GPU, so many times as fast."""
    other = again(0, run=run, noise=0.004, machine=1 / factor)
    return Run(replace(run.header, devices=(fake.GPU,)), other.rows, "gpu.jsonl")


def test_runs_of_one_device_stand_side_by_side() -> None:
    """Runs of one plan are compared row by row instead; these differ in their device's driver."""
    slow = fake.fake_square()
    fast = again(0, run=slow, noise=0.004, machine=1 / 3)
    driver = replace(fake.CPU, platform="Another", driver="1.0")
    runs = [replace(slow, path="slow"), Run(replace(fast.header, devices=(driver,)), fast.rows, "fast")]
    (part,) = (each for each in content.page(runs, NO_CHARTS).parts if each.title.endswith("side by side"))
    (sheet,) = part.sheets
    assert sheet.columns == ("size", "type", "slow", "fast")
    assert sheet.rows
    for row in sheet.rows:
        assert not any(cell.best for cell in row)  # intervals say nothing about other runs
        slower, faster = (float(cell.text.split()[0]) for cell in row[2:])
        assert faster == pytest.approx(3 * slower, rel=0.05)


def test_different_devices_are_not_compared() -> None:
    run = fake.fake_square()
    page = content.page([run, on_another(run, 3.0)], NO_CHARTS)
    assert not [part for part in page.parts if part.id.startswith("changes")]
    (part,) = (part for part in page.parts if part.title == "Devices side by side")
    assert part.sheets[0].rows[-1][0].text == "geometric mean"
    best = [(row[0].text, row[1].text) for row in page.table.rows if row[2].best]
    assert best == [("Intel Xeon Processor", "register"), (fake.GPU.name, "register")]


def test_two_runs_of_a_plan_are_compared() -> None:
    base, slower = days(2, slower_from=1, factor=1.7)
    page = content.page([slower, base], NO_CHARTS)  # in whatever order: the later is the new one
    assert page.parts[0].title == "day-1 compared with day-0"
    made = gb.compare(base, slower)
    assert made.slower
    assert page.summary[0] == f"day-1 compared with day-0: {conclusion(made)}"


def test_runs_of_other_plans_are_not_compared() -> None:
    run = fake.fake_square()
    page = content.page([run, fake.fake_sweep_k()], NO_CHARTS)
    assert not [part.title for part in page.parts if part.id.startswith("changes")]


def test_of_a_series_the_last_run_is_compared_and_shown() -> None:
    ids = [part.id for part in content.page(days(), NO_CHARTS).parts]
    assert ids == ["changes-1", "run-1", "machines"]


def test_runs_of_several_machines_are_not_compared() -> None:
    first, second = days(2)
    host = replace(second.header.host, memory_bytes=1 << 30)
    other = replace(second, header=replace(second.header, host=host))
    assert "changes-1" in [part.id for part in content.page([first, second], NO_CHARTS).parts]
    assert "changes-1" not in [part.id for part in content.page([first, other], NO_CHARTS).parts]


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

    with matplotlib.rc_context():
        (figure,) = pane.separate_figures(lambda: [pane.Pane(2.0, paint)])
        first, second = pane.to_svg(figure, "a <label>", 0), pane.to_svg(figure, "b", 1)
    assert 'aria-label="a &lt;label&gt;"' in first
    assert "<title>&lt;here&gt;</title>" in first
    names = [set(re.findall(r'id="([^"]*)"', each)) for each in (first, second)]
    assert names[0]
    assert not names[0] & names[1]
    for each, own in zip((first, second), names, strict=True):
        assert set(re.findall(r'(?:href="|url\()#([^")]*)', each)) == own, "whatever is referred to is there"
