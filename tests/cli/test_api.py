"""``import gemmbench``: the same as the command line, from Python."""

from __future__ import annotations

import code
import inspect
import json
import re
import shlex
import signal
import subprocess
import sys
import threading
import xml.etree.ElementTree
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from jsonschema_rs import Draft202012Validator

import gemmbench as gb
from gemmbench import api
from gemmbench.model.case import Event
from gemmbench.model.run_file import load
from gemmbench.regress.check import AAReport, aa_sheets
from gemmbench.regress.results import conclusion
from gemmbench.report.progress import Progress
from gemmbench.report.table import html
from gemmbench.suite.job import print_message
from gemmbench.suite.options import COUNT, Flag, Options, build, command_line, measuring, specs
from gemmbench.suite.options.comparing import TuneOptions
from gemmbench.suite.options.names import choose_params
from tests import fake_runs as fake
from tests.cli.conftest import ROOT, Call
from tests.cli.test_errors import GOLDEN, LONG, files  # noqa: F401  a fixture

QUICK = {"sizes": [8, 16], "kernels": "naive,tiled", "budget": 0.1}
COMMANDS: dict[str, type[Options]] = {
    "peak": measuring.PeakOptions,
    "square": measuring.SquareOptions,
    "sweep-k": measuring.SweepKOptions,
    "gemm": measuring.GemmOptions,
    "workloads": measuring.WorkloadsOptions,
    "tune": TuneOptions,
}


def keywords(words: list[str]) -> dict[str, Any]:
    """The words of a command line as keyword arguments, left as text."""
    by_flag = {
        flag: (name, spec)
        for name, (spec, _) in specs(COMMANDS[words[0]]).items()
        for each in spec.spellings(name)
        for flag in each.split("/")
    }
    values: dict[str, Any] = {}
    rest = iter(words[1:])
    for word in rest:
        name, spec = by_flag.get(word, (word.strip("-"), None))
        if spec is None or isinstance(spec.kind, Flag) or spec.kind is COUNT:
            values[name] = not word.startswith("--no-")
        elif spec.many:
            values.setdefault(name, []).append(next(rest))
        else:
            values[name] = next(rest)
    return values


def function(command: str) -> Callable[..., Any]:
    found: Callable[..., Any] = getattr(gb, command.replace("-", "_"))
    return found


# --- errors -------------------------------------------------------------------------------------------------

SENTENCES = [
    (name, line)
    for name in ("errors-options.txt", "errors-files.txt", "errors-shapes.txt", "errors-matrices.txt")
    for line in (GOLDEN / name).read_text(encoding="utf-8").split("$ gemmbench ")[1:]
    if line.split()[0] in COMMANDS
]


@pytest.mark.usefixtures("files")
@pytest.mark.parametrize("name", sorted({name for name, _ in SENTENCES}))
def test_bad_input_is_the_command_lines_sentence(name: str) -> None:
    for golden, line in SENTENCES:
        if golden != name:
            continue
        command, sentence, *_ = line.splitlines()
        words = shlex.split(command.replace("LONG", LONG))
        sentence = re.sub(r"\. See gemmbench \S+ --help\.$", "", sentence).replace("LONG", LONG)
        with pytest.raises((gb.UsageError, gb.NothingMeasured)) as error:
            function(words[0])(**keywords(words))
        said = " ".join(str(error.value).split()).rstrip(".").replace(f"{Path.cwd()}/", "")
        assert re.sub(r"\d{40,}", lambda digits: f"{digits[0][:20]}...", said) == sentence, command
        assert (error.type is gb.NothingMeasured) == sentence.startswith("nothing was measured"), command


@pytest.mark.parametrize(
    ("values", "sentence"),
    [
        ({"kernel": "naive"}, "square has no option 'kernel'; did you mean kernels?"),
        ({"dry_run": True}, "square has no option 'dry_run'; there are"),
        ({"max": 8.5}, "Invalid value for '--max': 8.5 is not a whole number"),
        ({"budget": [1]}, "Invalid value for '--budget': [1] is not a valid number"),
        ({"cold": "yes"}, "Invalid value for '--cold': 'yes' is not a valid boolean"),
        ({"kernels": 3.5}, "Invalid value for '--kernel': 3.5 is not a valid string"),
        ({"scope": "all of them"}, "Invalid value for '--scope': 'all of them' is not one of 'kernel',"),
        ({"save": 3}, "Invalid value for '--save': 3 is not the name of a file"),
        ({"device": "nonsense"}, "no device is 'nonsense'; choose 0 ("),
    ],
)
def test_what_python_can_pass_wrong(values: dict[str, Any], sentence: str) -> None:
    with pytest.raises(gb.UsageError) as error:
        gb.square(**values)
    assert str(error.value).startswith(sentence)


def test_nothing_measured_has_the_rows() -> None:
    with pytest.raises(gb.NothingMeasured, match="naive half: unsupported") as error:
        gb.square(device="pocl", dtype="half", sizes=8, kernels="naive", quiet=True)
    assert [row["status"] for row in error.value.run.records() if row["variant"] == "naive"] == [
        "unsupported"
    ]


def test_a_wrong_result_is_a_run_that_is_not_ok(monkeypatch: pytest.MonkeyPatch) -> None:
    assert gb.square(**QUICK).ok
    monkeypatch.setenv("GEMMBENCH_FAKE_FAULTS", "tiled 16 wrong")
    run = gb.square(**QUICK)
    assert not run.ok
    assert [row["status"] for row in run.records() if row["variant"] == "tiled"] == ["ok", "wrong"]


def test_no_device(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GEMMBENCH_FAKE_DEVICES", "")
    with pytest.raises(gb.UsageError, match="no OpenCL"):
        gb.devices()


# --- runs ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "command",
    [
        "square --sizes 8,16 --kernel naive,tiled",
        "square --sizes 8,16 --kernel naive,tiled --scope all --dtype float,double",
        "square --sizes 8 --kernel naive --device all",
        "sweep-k --k-max 128 --kernel tiled --no-peak --param TS=8 --remeasure",
        "peak --types float --energy",
        "gemm -m 8 -k 4 --kernel naive --no-tuned",
        "workloads --set odd --kernel naive --baseline none",
    ],
)
def test_show_is_the_commands_own_table(
    command: str, call: Call, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    words = command.split()
    table = call(*words, "--save", str(tmp_path / "line.jsonl"))
    assert table.exit_code == 0, table.stderr
    run = function(words[0])(**keywords(words), save=tmp_path / "api.jsonl")
    run.show()
    assert capsys.readouterr().out == table.stdout
    saved = load(tmp_path / "api.jsonl")
    assert [row.key for row in saved.rows] == [row.key for row in load(tmp_path / "line.jsonl").rows]
    loaded = gb.load(tmp_path / "api.jsonl")
    loaded.show(verbose=True)
    assert capsys.readouterr().out == call("show", str(tmp_path / "api.jsonl"), "-v").stdout


def test_the_saved_command_line_asks_for_the_same(call: Call, tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    gb.gemm(m=8, kernels=["naive", "tiled"], params={"TS": 8}, peak=False, cold=True, save=path)
    words = load(path).header.command
    assert words == (
        "gemm", "-m", "8", "--kernel", "naive,tiled", "--param", "TS=8", "--no-peak", "--cold",
    )  # fmt: skip
    resumed = call(*words, "--save", str(path), "--resume")
    assert (resumed.exit_code, len(load(path).rows)) == (0, 3), resumed.stderr


@pytest.mark.parametrize("kind", COMMANDS.values())
def test_a_command_line_says_every_option(kind: type[Options]) -> None:
    values: dict[str, Any] = {}
    for name, (spec, field) in specs(kind).items():
        if not spec.shell and isinstance(spec.kind, Flag):
            values[name] = not field.default
    for name in ("resume", "force", "all"):
        values.pop(name, None)
    values |= {"device": "1", "quiet": True, "verbose": 2, "budget": 0.5}
    values |= {"kernel": "tiled"} if kind is TuneOptions else {}
    chosen = build(kind, values)
    again = keywords(list(command_line(chosen)))
    assert again.pop("verbose") is True
    assert build(kind, {**again, "verbose": 2}) == chosen


def test_records_are_what_show_prints_as_json(call: Call, tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    run = gb.square(**QUICK, device="all", energy=True, save=path)
    assert run.records() == json.loads(call("show", str(path), "--format", "json").stdout)
    assert gb.load(path).records() == run.records()


@pytest.mark.parametrize("path", sorted((ROOT / "plots").glob("*.jsonl")), ids=lambda path: path.stem)
def test_records_of_every_saved_run(path: Path, call: Call) -> None:
    records = json.loads(call("show", str(path), "--format", "json").stdout)
    assert gb.load(path).records() == records
    Draft202012Validator(gb.schema("records")).validate(records)


def test_a_run_measures_nothing_twice(call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    """Presets and cached peaks, which no command line is needed for."""
    monkeypatch.setenv("GEMMBENCH_FAKE_SOURCES", "1")
    call("tune", "--kernel", "tiled", "--sizes", "64", "--budget", "3")
    gb.square(sizes=64, kernels="tiled")
    again = gb.square(sizes=64, kernels="tiled")
    assert all(row.measured_utc for row in again.rows if row.kind == "peak")
    assert gb.square(sizes=64, kernels="tiled", tuned=False).records()


def test_plot(tmp_path: Path) -> None:
    run = gb.square(**QUICK)
    run.plot(tmp_path / "out.svg", kind="host-device")
    assert (tmp_path / "out.svg").read_bytes().startswith(b"<?xml")
    gb.square(**QUICK, plot=tmp_path / "own.png")
    assert (tmp_path / "own.png").exists()
    with pytest.raises(gb.UsageError, match="unknown kind of chart 'nonsense'; there are"):
        run.plot(tmp_path / "out.svg", kind="nonsense")
    with pytest.raises(gb.UsageError, match=r"a chart is a \.png"):
        run.plot("out.gif")


def test_a_chart_without_a_path_is_shown_in_the_notebook(tmp_path: Path) -> None:
    run = gb.square(**QUICK)
    chart = run.plot(kind="host-device")
    run.plot(tmp_path / "out.png", kind="host-device")
    assert chart._repr_png_() == (tmp_path / "out.png").read_bytes()
    assert len(repr(chart)) < 100
    default = run.plot()
    assert default._repr_png_() not in (b"", chart._repr_png_())
    with pytest.raises(gb.UsageError, match="unknown kind of chart 'nonsense'; there are"):
        run.plot(kind="nonsense")


@pytest.mark.parametrize("path", [None, "out.svg"])
def test_a_plot_without_matplotlib_is_one_sentence(
    path: str | None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def refuse() -> None:
        raise gb.UsageError("matplotlib does not start")

    run = gb.square(**QUICK)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("gemmbench.api.load_matplotlib", refuse)
    monkeypatch.setattr("gemmbench.charts.load_matplotlib", refuse)
    with pytest.raises(gb.UsageError, match="matplotlib does not start"):
        run.plot(path, kind="host-device")


def cells(text: str) -> list[list[str]]:
    """The rows of the tables in a piece of HTML, which must be well-formed."""
    root = xml.etree.ElementTree.fromstring(f"<div>{text}</div>")
    return [["".join(cell.itertext()) for cell in row] for row in root.iter("tr")]


def test_a_notebook_shows_short_texts_and_tables(tmp_path: Path) -> None:
    run = gb.square(**QUICK, baseline="none", save=tmp_path / "run.jsonl")
    head, *lines = cells(run._repr_html_())
    assert head[1:3] == ["8", "16"]
    assert [line[0] for line in lines] == ["tiled", "naive"]
    assert repr(run) == f"<gemmbench.Run square: {len(run.rows)} ok; {run.header.devices[0].title}>"
    compared = gb.compare(gb.load(tmp_path / "run.jsonl"), gb.square(**QUICK, baseline="none"))
    assert repr(compared) == f"<gemmbench.Comparison: {conclusion(compared)}>"
    assert conclusion(compared) in compared._repr_html_()
    listed = gb.devices()
    assert [line[1] for line in cells(listed._repr_html_())[1:]] == [device.name for device in listed]
    assert all(device.driver in repr(device) for device in listed)
    repeated = gb.check(run, aa=2, quiet=True)
    assert isinstance(repeated, AAReport)
    assert repeated._repr_html_() == html(aa_sheets(repeated)) != ""
    result = gb.tune(kernel="tiled", sizes=64, budget=2, cache=tmp_path / "cache.jsonl", quiet=True)
    for shown in (run, compared, listed[0], repeated, result):
        assert len(repr(shown)) < 200
        assert "\n" not in repr(shown)


def test_html_of_hostile_names_is_text() -> None:
    run = api._shown(fake.ALL["troubled"]())
    assert cells(run._repr_html_())
    assert "<script" not in run._repr_html_()
    assert cells(api._shown(replace(run, rows=()))._repr_html_()) == []


def test_devices(call: Call) -> None:
    assert [device.name for device in gb.devices()] == [
        device["name"] for device in json.loads(call("devices", "--json").stdout)
    ]


# --- runs against runs --------------------------------------------------------------------------------------


def test_compare_and_check(call: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    base = gb.square(**QUICK, save="base.jsonl")
    run = gb.square(**QUICK)
    same = gb.compare(gb.load("base.jsonl"), run)
    assert (same.ok, same.slower) == (True, ())
    again = gb.compare("base.jsonl", run, threshold="10 %")
    assert again.counts == same.counts
    checked = gb.check(base, budget=0.05, quiet=True)
    assert checked.news[0].header.policy.budget_s == 0.05
    assert isinstance(gb.check("base.jsonl", aa=2), AAReport)
    with pytest.raises(gb.UsageError, match="is both baseline and new run"):
        gb.compare("base.jsonl", "base.jsonl")
    with pytest.raises(gb.UsageError, match=r"would replace base\.jsonl, which is read"):
        gb.check("base.jsonl", save="base.jsonl", force=True)


def test_a_slower_run_is_slower(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GEMMBENCH_FAKE_GAINS", "TS=8 1.0")
    params = {"params": {"TS": 8}, "sizes": "64,128", "kernels": "tiled"}
    base = gb.square(**params)
    monkeypatch.setenv("GEMMBENCH_FAKE_GAINS", "TS=8 0.5")
    comparison = gb.compare(base, gb.square(**params), threshold="10 %")
    assert {line.row.variant for line in comparison.slower} == {"tiled"}
    assert not comparison.ok


def test_tune(tmp_path: Path) -> None:
    result = gb.tune(kernel="tiled", sizes=64, budget=2, cache=tmp_path / "cache.jsonl", quiet=True)
    assert result.ranked
    with pytest.raises(gb.UsageError, match="tune takes one --kernel at a time, not 2"):
        gb.tune(kernel="tiled,naive")


# --- surroundings -------------------------------------------------------------------------------------------


def test_off_the_main_thread_no_signal_handler_is_set(monkeypatch: pytest.MonkeyPatch) -> None:
    before = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)]
    threads: list[bool] = []
    real = signal.signal

    def spied(*arguments: Any) -> Any:
        threads.append(threading.current_thread() is threading.main_thread())
        return real(*arguments)

    monkeypatch.setattr(signal, "signal", spied)
    results: list[Any] = []

    def work() -> None:
        try:
            results.append(gb.square(**QUICK))
        except BaseException as error:
            results.append(error)

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert isinstance(results[0], gb.Run), results
    assert results[0].ok
    assert threads == []
    assert [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)] == before


def test_without_stderr_nothing_of_it_is_on_stdout(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """As under pythonw, where print and rich would take stdout instead."""
    with monkeypatch.context() as patch:
        patch.setattr(sys, "stderr", None)
        print_message("a note")
        gb.square(**QUICK, verbose=1)
    assert capsys.readouterr().out == ""


def test_ctrl_c_leaves_what_was_saved(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "run.jsonl"
    handle = Progress.handle
    finished = 0

    def interrupting(self: Progress, event: Event) -> None:
        nonlocal finished
        handle(self, event)
        finished += type(event).__name__ == "Finished"
        if finished == 3:
            raise KeyboardInterrupt

    monkeypatch.setattr(Progress, "handle", interrupting)
    with pytest.raises(KeyboardInterrupt):
        gb.square(**QUICK, peak=False, save=path)
    assert len(load(path).rows) == 3
    monkeypatch.setattr(Progress, "handle", handle)
    assert len(gb.square(**QUICK, peak=False, save=path, resume=True).rows) == 6


def test_importing_is_cheap_and_names_stay(tmp_path: Path) -> None:
    heavy = "{'numpy', 'scipy', 'matplotlib', 'pyopencl', 'rich', 'msgspec', 'click', 'gemmbench.api'}"
    script = f"""
import sys, types, gemmbench
assert not {heavy} & sys.modules.keys(), sys.modules.keys()
assert set(gemmbench.__all__) <= set(dir(gemmbench))
gemmbench.gemm, gemmbench.tune
assert 'pyopencl' not in sys.modules and 'matplotlib' not in sys.modules
gemmbench.tune = types.ModuleType('gemmbench.tune')  # as the import of a submodule of that name does
assert callable(gemmbench.tune)
gemmbench.probes = types.ModuleType('gemmbench.probes')
assert not callable(gemmbench.probes)
try: gemmbench.nonsense
except AttributeError as error: print(error)
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert (done.stdout, done.stderr) == ("module 'gemmbench' has no attribute 'nonsense'\n", "")


def test_the_package_lists_what_it_promises_and_nothing_else() -> None:
    assert [name for name in dir(gb) if not name.startswith("__")] == sorted(gb.__all__)


@pytest.mark.parametrize("value", [{"TS": 16}, {"TS": [16, 32]}, ["TS=16,32"], "TS=16"])
def test_the_signature_says_what_a_repeatable_option_accepts(value: Any) -> None:
    functions = (gb.square, gb.sweep_k, gb.workloads, gb.gemm)
    (stated,) = {inspect.signature(each).parameters["params"].annotation for each in functions}
    assert type(value).__name__ in stated
    options = build(measuring.SquareOptions, {"params": value})
    assert choose_params(options.params)["TS"][0] == 16


def test_the_functions_are_documented() -> None:
    for name in gb.__all__:
        assert inspect.getdoc(getattr(gb, name)), name
    assert "max" in inspect.signature(gb.square).parameters
    assert "Largest size." in (gb.square.__doc__ or "")


# --- what README says ---------------------------------------------------------------------------------------


def readme_lines() -> list[str]:
    text = (ROOT / "docs/commands.md").read_text(encoding="utf-8")
    (block,) = re.findall(r"^```python\n(.*?)^```$", text, re.M | re.S)
    return block.splitlines()


def test_readmes_lines_in_a_console(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Line by line, as in a notebook: nothing asks for a ``__main__`` guard."""
    monkeypatch.chdir(tmp_path)
    lines = readme_lines()
    assert lines[0] == "import gemmbench as gb"
    gb.square(max=128, kernels="best", save="base.jsonl", quiet=True)
    console = code.InteractiveConsole()
    for line in lines:
        assert not console.push(line), line
    captured = capsys.readouterr()
    assert all("`gemmbench doctor`" in line for line in captured.err.splitlines())  # the fake machine is slow
    assert "cpu-packed" in captured.out
    assert isinstance(console.locals["run"], gb.Run)
    assert console.locals["rows"]
    assert Path("out.png").exists()
    assert Path("run.jsonl").exists()
