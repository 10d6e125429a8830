"""What shells complete: through click's classes, as the shells' scripts call them, in this process."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import click
import pytest
from click.shell_completion import get_completion_class

from gemmbench import cli
from gemmbench.cli import running as _registers_the_classes  # noqa: F401 (by being imported)
from gemmbench.ladder import ORDER
from gemmbench.options import names
from gemmbench.suite import cached
from tests.cli.conftest import Call

SHELLS = ("bash", "zsh", "fish")


@pytest.fixture
def complete(monkeypatch: pytest.MonkeyPatch) -> Any:
    def complete(line: str, shell: str = "bash") -> list[str]:
        """The values that a shell is offered where the line ends, as it would put them there."""
        words = line.split(" ")
        monkeypatch.setenv("COMP_WORDS", line)
        position = words[-1] if shell == "fish" else str(len(line.split()) - bool(words[-1]))
        monkeypatch.setenv("COMP_CWORD", position)
        kind = get_completion_class(shell)
        assert kind is not None
        lines = kind(cli.main, {}, "gemmbench", cli.COMPLETE_VAR).complete().splitlines()
        if shell == "zsh":
            return lines[1::3]
        return [line.split(",", 1)[1].split("\t")[0] for line in lines]

    return complete


def listing_by(monkeypatch: pytest.MonkeyPatch, run: Callable[..., None]) -> None:
    """Put a function in the place of the process that lists devices."""
    own = SimpleNamespace(run=run, DEVNULL=subprocess.DEVNULL, TimeoutExpired=subprocess.TimeoutExpired)
    monkeypatch.setattr(names, "subprocess", own)


@pytest.fixture
def no_listing(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any, **__: Any) -> None:
        raise AssertionError("a driver would be opened")

    listing_by(monkeypatch, refuse)


@pytest.mark.parametrize("shell", SHELLS)
@pytest.mark.parametrize(
    ("line", "values"),
    [
        ("gemmbench ", list(cli.COMMANDS)),
        ("gemmbench swe", ["sweep-k"]),
        ("gemmbench square --dry", ["--dry-run"]),
        ("gemmbench square --kernel naive,reg", ["naive,register", "naive,register-wide"]),
        ("gemmbench square --kernel naive,naiv", ["naive,naive-fp8"]),
        ("gemmbench gemm --versus cub", ["cublas"]),
        ("gemmbench gemm --versus naive,cub", []),
        ("gemmbench tune --dtype bf", ["bfloat16"]),
        ("gemmbench gemm --kernel tiled --param TS", ["TS=8", "TS=16", "TS=32"]),
        ("gemmbench peak --only transfer,l", ["transfer,latency"]),
        ("gemmbench peak --describe fl", ["flops"]),
        ("gemmbench workloads --set al", ["alexnet", "all"]),
        ("gemmbench square --baseline no", ["none"]),
        ("gemmbench check --across driver,dev", ["driver,device"]),
        ("gemmbench compare --ratio pe", ["peak"]),
        ("gemmbench compare --write jun", ["junit="]),
        ("gemmbench kernels --describe nai", ["naive", "naive-fp8"]),
        ("gemmbench plot --kind roof", ["roofline"]),
        ("gemmbench show --format cs", ["csv"]),
        ("gemmbench completion f", ["fish"]),
    ],
)
def test_what_is_completed(line: str, values: list[str], shell: str, complete: Any, no_listing: None) -> None:
    assert complete(line, shell) == values


def test_every_kernel_is_completed(complete: Any, no_listing: None) -> None:
    assert complete("gemmbench square --kernel ") == ["all", "ladder", "best", "likely", *ORDER]


@pytest.mark.parametrize(
    ("shell", "line", "values"),
    [
        ("bash", "gemmbench tune --kernel = nv-a", ["nv-async"]),
        ("bash", "gemmbench tune --dtype = half --kernel =", list(ORDER)),
        ("bash", "gemmbench gemm --kernel tiled --param TS =", ["8", "16", "32"]),
        ("bash", "gemmbench gemm --kernel = tiled --param = TS = 1", ["16"]),
        ("zsh", "gemmbench tune --kernel=nv-a", ["--kernel=nv-async"]),
        ("fish", "gemmbench tune --kernel=nv-a", ["--kernel=nv-async"]),
    ],
)
def test_an_equals_sign(shell: str, line: str, values: list[str], complete: Any) -> None:
    """Bash alone splits words at it, and replaces what stands behind it."""
    assert complete(line, shell) == values


@pytest.mark.parametrize("shell", SHELLS)
def test_saved_runs_are_completed(
    shell: str, complete: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "runs").mkdir()
    for name in ("a.jsonl", "b.png", "runs/ab.jsonl", "runs/two words.jsonl"):
        (tmp_path / name).touch()
    for command in ("show ", "compare a.jsonl ", "check --noise ", "history ", "square --save "):
        assert complete(f"gemmbench {command}", shell) == ["a.jsonl"]
    assert complete("gemmbench show runs/a", shell) == ["runs/ab.jsonl"]
    assert complete("gemmbench plot a.jsonl --out ", shell) == ["b.png"]
    for unclear in ("run", "runs/", "none/"):  # a folder, a name to be quoted, nothing: the shell's business
        assert complete(f"gemmbench show {unclear}", shell) == [unclear]


def test_devices_are_completed_from_the_last_list(call: Call, complete: Any, no_listing: None) -> None:
    assert call("devices").exit_code == 0
    assert complete("gemmbench peak --device ") == ["0", "1", "intel", "pocl", "all"]
    assert complete("gemmbench peak --device 0,") == ["0,1", "0,intel", "0,pocl", "0,all"]


def test_devices_are_listed_within_a_time_limit(
    call: Call, complete: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[tuple[list[str], dict[str, Any]]] = []

    def listing(command: list[str], **options: Any) -> None:
        asked.append((command, options))
        if len(asked) > 1:
            raise subprocess.TimeoutExpired(command, options["timeout"])
        assert call("devices").exit_code == 0

    listing_by(monkeypatch, listing)
    assert complete("gemmbench peak --device a") == ["all"]
    ((command, options),) = asked
    assert command[1:] == ["-m", "gemmbench", "devices", "--json"]
    assert options["timeout"] == names.LISTING_S

    path = cached.subfolder("devices.json")
    os.utime(path, (0, time.time() - 2 * 86_400))  # too old
    assert complete("gemmbench peak --device a") == []
    path.write_text("[{]")
    assert complete("gemmbench peak --device a") == []
    assert len(asked) == 3


@pytest.mark.parametrize("shell", SHELLS)
def test_the_script_calls_back(shell: str, call: Call) -> None:
    result = call("completion", shell)
    assert result.exit_code == 0
    assert f"{cli.COMPLETE_VAR}={shell}_complete" in result.stdout
    if shell == "fish":
        assert 'string split --max 1 ","' in result.stdout


def test_another_shell_is_refused(call: Call) -> None:
    result = call("completion", "tcsh")
    assert (result.exit_code, result.stdout) == (2, "")
    assert "'tcsh' is not one of 'bash', 'zsh', 'fish'" in result.stderr


def test_no_command_is_imported_to_list_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cli.main, "get_command", lambda *_: pytest.fail("a command is imported"))
    context = click.Context(
        cli.main, info_name="gemmbench", resilient_parsing=True, **cli.main.context_settings
    )
    offered = {item.value: item.help for item in cli.main.shell_complete(context, "s")}
    assert offered == {name: cli.COMMANDS[name][1] for name in ("square", "sweep-k", "show")}
