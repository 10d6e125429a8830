"""The command line: parse, wire, exit code. Commands are imported only when they are used."""

from __future__ import annotations

import contextlib
import errno
import importlib
import io
import os
import re
import shutil
import signal
import sys
import threading
from collections.abc import Sequence
from types import FrameType
from typing import Any

import click

from gemmbench import NothingMeasured, UsageError, __version__

#            name        module     what it does, one line
COMMANDS: dict[str, tuple[str, str]] = {
    "devices": ("kernels", "List the OpenCL devices and their drivers."),
    "doctor": ("kernels", "Find what is slowing this machine down and how to fix it."),
    "peak": ("measuring", "Measure what the device can do: arithmetic, memory, transfers."),
    "kernels": ("kernels", "List the GEMM kernels, or explain one."),
    "gemm": ("measuring", "Measure one problem, with generated matrices or your own."),
    "square": ("measuring", "Sweep square problems: m = n = k."),
    "sweep-k": ("measuring", "Sweep k with m and n fixed."),
    "workloads": ("measuring", "Measure real-world shapes: AlexNet, a transformer, or your own."),
    "tune": ("measuring", "Search for a kernel's best parameters on this device."),
    "show": ("compare", "Show a saved run as a table, or in a format for other programs."),
    "plot": ("compare", "Draw charts of saved runs."),
    "report": ("compare", "Write an HTML report on saved runs, in a single file."),
    "compare": ("compare", "Compare a saved run with baseline runs."),
    "check": ("compare", "Measure a baseline's cases again and compare the results."),
}

COMMAND_WORDS = "gemmbench.command"  # in the context's meta

EXIT_WRONG = 1
EXIT_USAGE = 2
EXIT_INCONCLUSIVE = 3
EXIT_INTERNAL = 70
EXIT_INTERRUPTED = 130

_STDERR = 2
_IMPORT_S = 0.02  # until Ctrl-C is looked at again
_WIDEST = 100  # columns of help at most
_ALIKE = 0.7  # similarity of a wrong option and a suggestion at least
_FULL = (errno.ENOSPC, errno.EFBIG, errno.EIO, getattr(errno, "EDQUOT", errno.ENOSPC))


class _LazyGroup(click.Group):
    """Imports a command only when it is used. Help uses `COMMANDS`."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        name, placeholder, rest = super().resolve_command(ctx, args)
        return name, load_command(name) if name and placeholder else None, rest

    def make_context(
        self, info_name: str | None, args: list[str], parent: click.Context | None = None, **extra: Any
    ) -> click.Context:
        """Store the words of the command line. Without any, show the help."""
        words = tuple(args)
        context = super().make_context(info_name, args or ["--help"], parent, **extra)
        context.meta[COMMAND_WORDS] = words
        return context

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except BrokenPipeError:  # the reader went away: `gemmbench show run.jsonl | head`
            drop_output()
            return 0

    # click overloads main() for its standalone mode.
    def main(self, args: Sequence[str] | None = None, **extra: Any) -> Any:  # type: ignore[override]
        """Run the command and exit. Each error is one sentence on stderr."""
        extra["standalone_mode"] = False
        if os.environ.get("COLUMNS") == "0":
            del os.environ["COLUMNS"]  # the width is unknown; rich would print nothing
        _open_closed_streams()
        for stream in (sys.stdout, sys.stderr):
            if isinstance(stream, io.TextIOWrapper):  # names of devices and shapes may have any letter
                stream.reconfigure(errors="replace")
        try:
            status = super().main(args, **extra)
        except click.ClickException as error:
            status = _print_error(_click_sentence(error), error.exit_code)
        except (UsageError, NothingMeasured) as error:
            status = _print_error(str(error), EXIT_USAGE)
        except click.Abort:
            status = _print_error("interrupted", EXIT_INTERRUPTED)
        except OSError as error:
            if "MPLCONFIGDIR" in str(error):  # matplotlib has no folder for its fonts
                status = _print_error(f"no chart was drawn: {error}", EXIT_USAGE)
            elif error.filename is not None or error.errno not in _FULL:
                status = _print_internal_error(error)
            else:
                from gemmbench.model.units import reason_of

                drop_output()
                status = _print_error(f"cannot write the output: {reason_of(error)}", EXIT_USAGE)
        except Exception as error:
            status = _print_internal_error(error)
        sys.exit(status if isinstance(status, int) else 0)


def load_command(name: str) -> click.Command:
    """Import a command of `COMMANDS`. Ctrl-C and SIGTERM raise KeyboardInterrupt from then on."""
    module = importlib.import_module(f"gemmbench.cli.{COMMANDS[name][0]}")
    _install_signal_handlers()
    command: click.Command = getattr(module, f"{name.replace('-', '_')}_command")
    return command


def _print_error(sentence: str, status: int) -> int:
    line = re.sub(r"\d{40,}", lambda digits: f"{digits[0][:20]}...", " ".join(sentence.split()))
    line = f"gemmbench: {line}"
    if sys.stderr.isatty():
        from gemmbench.model.units import wrap

        line = wrap(line, shutil.get_terminal_size().columns)
    with contextlib.suppress(OSError):
        click.echo(line, err=True)
    return status


def _print_internal_error(error: Exception) -> int:
    """Print an unexpected error. Its status is not 1, which means a regression."""
    import traceback  # this and pathlib take 5 % of the time of --help
    from pathlib import Path

    frame = traceback.extract_tb(error.__traceback__)[-1]
    return _print_error(
        f"internal error: {type(error).__name__}: {error} ({Path(frame.filename).name}, line {frame.lineno});"
        " please report this sentence and the command at https://github.com/gemmbench/gemmbench/issues",
        EXIT_INTERNAL,
    )


def drop_output() -> None:
    """Send the rest of stdout to /dev/null: Python would fail to flush it on exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _open_closed_streams() -> None:
    """Open /dev/null for each closed standard stream: libraries would print into other files."""
    while (descriptor := os.open(os.devnull, os.O_RDWR)) <= _STDERR:
        pass
    os.close(descriptor)


def _install_signal_handlers() -> None:
    if threading.current_thread() is threading.main_thread():
        for number in (signal.SIGINT, signal.SIGTERM):
            if signal.getsignal(number) in (signal.SIG_DFL, signal.default_int_handler):
                signal.signal(number, _interrupt)


def _interrupt(number: int, frame: FrameType | None) -> None:
    """Raise KeyboardInterrupt; during an import, which could lose it, 20 ms later."""
    while frame and not frame.f_code.co_filename.startswith("<frozen importlib"):
        frame = frame.f_back
    if frame is None:
        raise KeyboardInterrupt
    again = threading.Timer(_IMPORT_S, signal.raise_signal, [number])
    again.daemon = True
    again.start()


def _click_sentence(error: click.ClickException) -> str:
    """A click error as a sentence. Suggest only similar options."""
    if isinstance(error, click.NoSuchOption) and error.possibilities:
        import difflib

        wrong = error.option_name.strip("-")
        error.possibilities[:] = [
            each
            for each in error.possibilities
            if difflib.SequenceMatcher(None, wrong, each.strip("-")).ratio() >= _ALIKE
        ]
    message = error.format_message().replace("a valid integer range", "a whole number")
    if message.startswith("Got unexpected") and ".cl)" in message:
        message = f"{message.rstrip('.')}: pass your own kernel with --kernel-file"
    if isinstance(error, click.UsageError) and error.ctx is not None:
        end = "" if message.endswith(("?", "?)")) else "."
        return f"{message.rstrip('.')}{end} See {error.ctx.command_path} --help."
    return message


@click.group(
    cls=_LazyGroup,
    help="Measure how fast an OpenCL device is at matrix multiplication.",
    commands={name: click.Command(name, short_help=line) for name, (_, line) in COMMANDS.items()},
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": _WIDEST},
    epilog="Start with: gemmbench peak, then gemmbench square --max 2048",
)
@click.version_option(__version__, "--version", prog_name="gemmbench")
def main() -> None:
    """Run a command."""
