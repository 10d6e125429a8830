"""docs/gemmbench.1, the man page, from what ``--help`` says.

    python -m tools.man_page            write it
    python -m tools.man_page --check    end with status 1 where it is stale

Its date is that of the last change.
"""

from __future__ import annotations

import argparse
import inspect
import sys
import textwrap
from collections.abc import Iterator
from datetime import datetime, timezone
from pathlib import Path

import click

from gemmbench import __version__, cli

PAGE = Path(__file__).resolve().parents[1] / "docs" / "gemmbench.1"

STATUSES = (
    (0, "Done."),
    (cli.EXIT_WRONG, "A regression, or a wrong result."),
    (cli.EXIT_USAGE, "Usage, environment, or nothing compared; one sentence on standard error says which."),
    (cli.EXIT_INCONCLUSIVE, "It could not tell, with --strict."),
    (cli.EXIT_INTERRUPTED, "Interrupted."),
)
FILES = (("~/.cache/gemmbench", "Peaks, tuned parameters and the list of devices; XDG_CACHE_HOME moves it."),)


def escaped(text: str) -> str:
    """A line for roff: hyphens that can be copied, and nothing that looks like a request."""
    text = text.replace("\\", "\\e").replace("-", "\\-")
    return f"\\&{text}" if text.startswith((".", "'")) else text


def filled(text: str) -> Iterator[str]:
    """Words as lines for roff, which are to be short."""
    lines = textwrap.wrap(" ".join(text.split()), 68, break_long_words=False, break_on_hyphens=False)
    return map(escaped, lines)


def bold(text: str) -> str:
    return f"\\fB{escaped(text)}\\fR"


def paragraphs(help: str) -> Iterator[str]:
    """The paragraphs of a help text; what click leaves as it is (after a backspace) stays so here."""
    for number, block in enumerate(inspect.cleandoc(help).split("\n\n")):
        lines = block.splitlines()
        if number:
            yield ".PP"
        if lines[0] == "\b":
            yield ".nf"
            yield from map(escaped, lines[1:])
            yield ".fi"
        else:
            yield from filled(block)


def listed(pairs: list[tuple[str, str]]) -> Iterator[str]:
    for term, text in pairs:
        yield from (".TP", bold(term), *filled(text))


def command_part(name: str, context: click.Context) -> Iterator[str]:
    """A command's usage, text and options."""
    command = cli.main.get_command(context, name)
    assert command is not None
    own = click.Context(command, info_name=name, parent=context)
    yield f".SS {bold(f'gemmbench {name}')} {escaped(' '.join(command.collect_usage_pieces(own)))}"
    yield from paragraphs(command.help or "")
    options = [option for option in command.params if isinstance(option, click.Option)]
    yield from listed([record for option in options if (record := option.get_help_record(own))])


def page(date: str) -> str:
    context = click.Context(cli.main, info_name="gemmbench", **cli.main.context_settings)
    sentence, _, more = inspect.cleandoc(cli.main.help or "").partition("\n\n")
    lines = [
        f'.TH GEMMBENCH 1 "{date}" "gemmbench {escaped(__version__)}" "User Commands"',
        ".SH NAME",
        f"gemmbench \\- {escaped(sentence[0].lower() + sentence[1:].rstrip('?'))}",
        ".SH SYNOPSIS",
        f"{bold('gemmbench')} {escaped('COMMAND [OPTIONS] [ARGUMENTS]')}",
        ".br",
        f"{bold('gemmbench')} {escaped('[COMMAND] --help | --version')}",
        ".SH DESCRIPTION",
        *paragraphs(more),
        ".PP",
        *filled(f"{cli.main.epilog}."),
        ".SH COMMANDS",
        *(line for name in cli.COMMANDS for line in command_part(name, context)),
        ".SH EXIT STATUS",
        *listed([(str(status), text) for status, text in STATUSES]),
        ".SH ENVIRONMENT",
        *listed([("GEMMBENCH_DEVICE", "What --device is where it is not given.")]),
        ".SH FILES",
        *listed([*FILES]),
        ".SH SEE ALSO",
        escaped("clinfo(1)"),
    ]
    return "\n".join(lines) + "\n"


def is_stale(path: Path = PAGE) -> bool:
    """Whether the page says something else than ``--help``, its date aside."""
    if not path.exists():
        return True
    return path.read_text(encoding="utf-8").splitlines()[1:] != page("").splitlines()[1:]


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="docs/gemmbench.1, from --help")
    parser.add_argument("--check", action="store_true", help="end with status 1 where it is stale")
    if not is_stale():
        return 0
    if parser.parse_args(arguments).check:
        print("docs/gemmbench.1 is stale; make man writes it", file=sys.stderr)
        return 1
    PAGE.write_text(page(f"{datetime.now(timezone.utc).date()}"), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
