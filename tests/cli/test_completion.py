"""What a shell completes, through click's own classes."""

from __future__ import annotations

from typing import Any

import click
import pytest
from click.shell_completion import BashComplete

from gemmbench import cli
from gemmbench.suite.options.names import KERNEL_NAMES


@pytest.fixture
def complete(monkeypatch: pytest.MonkeyPatch) -> Any:
    def complete(line: str) -> list[str]:
        """The values that bash offers where the line ends."""
        monkeypatch.setenv("COMP_WORDS", line)
        monkeypatch.setenv("COMP_CWORD", str(len(line.split(" ")) - 1))
        lines = BashComplete(cli.main, {}, "gemmbench", "_GEMMBENCH_COMPLETE").complete().splitlines()
        return [line.split(",", 1)[1] for line in lines]

    return complete


@pytest.mark.parametrize(
    ("line", "values"),
    [
        ("gemmbench ", list(cli.COMMANDS)),
        ("gemmbench swe", ["sweep-k"]),
        ("gemmbench square --dry", ["--dry-run"]),
        ("gemmbench square --kernel ", list(KERNEL_NAMES)),
        ("gemmbench square --kernel naive,reg", ["naive,register", "naive,register-wide"]),
        ("gemmbench square --kernel naive,naiv", ["naive,naive-fp8"]),
        ("gemmbench gemm --versus cub", ["cublas"]),
        ("gemmbench tune --dtype bf", ["bfloat16"]),
        ("gemmbench peak --only transfer,l", ["transfer,latency"]),
        ("gemmbench workloads --set al", ["alexnet", "all"]),
        ("gemmbench show --format cs", ["csv"]),
        ("gemmbench square --device ", ["gpu", "accelerator", "cpu", "all"]),
        ("gemmbench peak --device gpu,c", ["gpu,cpu"]),
        ("gemmbench tune --device a", ["accelerator"]),
        ("gemmbench plot --kind li", ["list"]),
        ("gemmbench plot run.jsonl --kind p", ["precision", "peak"]),
    ],
)
def test_what_is_completed(line: str, values: list[str], complete: Any) -> None:
    assert complete(line) == values


def test_no_command_is_imported_to_list_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cli, "load_command", lambda *_: pytest.fail("a command is imported"))
    context = click.Context(
        cli.main, info_name="gemmbench", resilient_parsing=True, **cli.main.context_settings
    )
    offered = {item.value: item.help for item in cli.main.shell_complete(context, "s")}
    assert offered == {name: cli.COMMANDS[name][1] for name in ("square", "sweep-k", "show")}
