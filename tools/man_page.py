"""Write docs/gemmbench.1, the man page, from ``--help``; ``--check`` fails if it is stale, its date aside."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from datetime import datetime, timezone
from pathlib import Path

import click

from gemmbench import __version__, cli

PAGE = Path(__file__).resolve().parents[1] / "docs" / "gemmbench.1"
COLUMNS = 72
STATUSES = {
    0: "Success.",
    cli.EXIT_WRONG: "A regression, or a wrong result.",
    cli.EXIT_USAGE: "Bad usage, a problem with the environment, or nothing measured; stderr says which.",
    cli.EXIT_INCONCLUSIVE: "Possibly slower, with --strict.",
    cli.EXIT_INTERNAL: "An internal error. Please report it.",
    cli.EXIT_INTERRUPTED: "Interrupted.",
}
FILES = "~/.cache/gemmbench: peaks, tuned parameters and the list of devices. XDG_CACHE_HOME moves it."


def helps(columns: int) -> Iterator[tuple[str, str]]:
    """The help of gemmbench itself, under "", and of each command."""
    settings = {**cli.main.context_settings, "max_content_width": columns, "terminal_width": columns}
    root = click.Context(cli.main, info_name="gemmbench", **settings)
    yield "", cli.main.get_help(root)
    for name in cli.COMMANDS:
        command = cli.load_command(name)
        yield name, command.get_help(click.Context(command, info_name=name, parent=root))


def escaped(line: str) -> str:
    """A line for roff: hyphens that can be copied, and nothing that looks like a request."""
    line = line.replace("\\", "\\e").replace("-", "\\-")
    return f"\\&{line}" if line.startswith((".", "'")) else line


def verbatim(text: str) -> list[str]:
    return [".nf", *map(escaped, text.splitlines()), ".fi"]


def page(date: str) -> str:
    """The page in roff."""
    texts = dict(helps(COLUMNS))
    lines = [
        f'.TH GEMMBENCH 1 "{date}" "gemmbench {escaped(__version__)}" "User Commands"',
        ".SH NAME",
        "gemmbench \\- measure how fast an OpenCL device is at matrix multiplication",
        ".SH DESCRIPTION",
        *verbatim(texts.pop("")),
        ".SH COMMANDS",
    ]
    for name, text in texts.items():
        lines += [f".SS \\fBgemmbench {escaped(name)}\\fR", *verbatim(text)]
    statuses = "\n".join(f"{status:>3}  {text}" for status, text in STATUSES.items())
    lines += [".SH EXIT STATUS", *verbatim(statuses), ".SH ENVIRONMENT"]
    lines += [escaped("GEMMBENCH_DEVICE: the default of --device.")]
    lines += [".SH FILES", escaped(FILES), ".SH SEE ALSO", "clinfo(1)"]
    return "\n".join(lines) + "\n"


def is_stale(path: Path = PAGE) -> bool:
    """Whether the page differs from ``--help``, its date aside."""
    return not path.exists() or path.read_text(encoding="utf-8").splitlines()[1:] != page("").splitlines()[1:]


def main() -> int:
    if not is_stale():
        return 0
    if "--check" in sys.argv:
        print("docs/gemmbench.1 is stale; make man writes it", file=sys.stderr)
        return 1
    PAGE.write_text(page(f"{datetime.now(timezone.utc).date()}"), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
