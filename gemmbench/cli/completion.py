"""`gemmbench completion`, and what shells complete: click's machinery with lists, files, and ``=``."""

from __future__ import annotations

import os
import shlex
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import click
from click.shell_completion import (
    BashComplete,
    CompletionItem,
    FishComplete,
    ShellComplete,
    ZshComplete,
    add_completion_class,
    split_arg_string,
)

from gemmbench.cli import COMPLETE_VAR

Ideas = Callable[[Mapping[str, Any]], Mapping[str, str]]  # names with a line on each, from the other options
Complete = Callable[[click.Context, click.Parameter, str], list[CompletionItem]]

_BREAKS = "=:"  # where bash, and no other shell, splits a word


def single(ideas: Ideas) -> Complete:
    """Completes an option that takes a name."""

    def complete(ctx: click.Context, _: click.Parameter, word: str) -> list[CompletionItem]:
        names = ideas(ctx.params).items()
        return [CompletionItem(name, help=idea or None) for name, idea in names if name.startswith(word)]

    return complete


def listed(ideas: Ideas) -> Complete:
    """Completes an option that takes several names with commas: the last of them, and none twice."""

    def complete(ctx: click.Context, param: click.Parameter, word: str) -> list[CompletionItem]:
        before, comma, last = word.rpartition(",")
        return [
            CompletionItem(f"{before}{comma}{item.value}", help=item.help)
            for item in single(ideas)(ctx, param, last)
            if item.value not in before.split(",")
        ]

    return complete


class FileName(click.Path):
    """A file's name; completed to those with the endings in a metavar: ``FILE.png|svg|pdf``."""

    def __init__(self, folder: bool, metavar: str) -> None:
        super().__init__(path_type=Path, dir_okay=folder)
        self._endings = tuple(f".{ending}" for ending in metavar.rpartition(".")[2].split("|"))

    def shell_complete(
        self, ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> list[CompletionItem]:
        """Files with these endings; where there are none, what the shell itself completes, folders too."""
        head, slash, _ = incomplete.rpartition("/")
        try:
            entries: Iterable[Path] = sorted(Path(head + slash).iterdir())
        except OSError:  # no such folder
            entries = ()
        names = [f"{head}{slash}{path.name}" for path in entries if path.suffix in self._endings]
        names = [name for name in names if name.startswith(incomplete)]
        if names and all(shlex.quote(name) == name for name in names):  # the shell quotes better
            return [CompletionItem(name) for name in names]
        return [CompletionItem(incomplete, type="file")]


def saved_run() -> FileName:
    """The type of an argument that is a saved run."""
    return FileName(True, "FILE.jsonl")


@add_completion_class
class _Bash(BashComplete):
    """Bash hands ``--kernel=na`` over as three words, and replaces the last of them."""

    def get_completion_args(self) -> tuple[list[str], str]:
        words = split_arg_string(os.environ["COMP_WORDS"])
        position = int(os.environ["COMP_CWORD"])
        joined: list[str] = []
        for word in words[1 : position + 1]:
            if joined and (word in _BREAKS or joined[-1][-1:] in tuple(_BREAKS)):
                joined[-1] += word
            else:
                joined.append(word)
        return (joined[:-1], joined[-1]) if position < len(words) else (joined, "")

    def get_completions(self, args: list[str], incomplete: str) -> list[CompletionItem]:
        items = super().get_completions(args, incomplete)
        value = incomplete.partition("=")[2] if incomplete.startswith("-") else incomplete
        kept = max(value.rfind(mark) for mark in _BREAKS) + 1
        return [CompletionItem(item.value[kept:], item.type, item.help) for item in items]


class _WholeWords(ShellComplete):
    """zsh and fish replace ``--kernel=na`` as a whole."""

    def get_completions(self, args: list[str], incomplete: str) -> list[CompletionItem]:
        items = super().get_completions(args, incomplete)
        option, equals, _ = incomplete.partition("=")
        head = option + equals if option.startswith("-") and equals else ""
        return [CompletionItem(head + item.value, item.type, item.help) for item in items]


@add_completion_class
class _Zsh(_WholeWords, ZshComplete):
    pass


@add_completion_class
class _Fish(_WholeWords, FishComplete):
    """click cuts what it hands to fish at every comma: names in a list, and lines on names."""

    source_template = FishComplete.source_template.replace('string split ","', 'string split --max 1 ","')


_SHELLS: dict[str, type[ShellComplete]] = {"bash": _Bash, "zsh": _Zsh, "fish": _Fish}


@click.command()
@click.argument("shell", type=click.Choice((*_SHELLS,)))
def completion(shell: str) -> None:
    """Print what makes bash, zsh or fish complete.

    Commands, options, kernels, data types, devices and saved runs. A line in the shell's own file does it:

    \b
    bash  eval "$(gemmbench completion bash)"      in ~/.bashrc
    zsh   eval "$(gemmbench completion zsh)"       in ~/.zshrc, after compinit
    fish  gemmbench completion fish | source       in ~/.config/fish/config.fish
    """
    root = click.get_current_context().find_root().command
    click.echo(_SHELLS[shell](root, {}, "gemmbench", COMPLETE_VAR).source())
