"""The command line: parse, wire, exit code. Commands are imported only when they are used."""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Sequence
from typing import Any

import click

from gemmbench import __version__

#            name        module     what it does, one line
COMMANDS: dict[str, tuple[str, str]] = {
    "devices": ("devices", "List every platform and device, and where its driver was found."),
    "peak": ("peak", "Measure what the device can do: arithmetic, memory, transfers."),
    "kernels": ("kernels", "List the ladder of GEMM kernels, or describe one."),
    "gemm": ("gemm", "Measure one problem, on generated or on your own matrices."),
    "square": ("sweeps", "Sweep square problems: m = n = k."),
    "sweep-k": ("sweeps", "Sweep k with m and n fixed."),
    "precision": ("precision", "Hold half, float and double side by side."),
    "workloads": ("workloads", "Measure real shapes: AlexNet, a transformer, or your own."),
    "show": ("show", "Show a saved run as table, JSON, CSV or markdown."),
    "plot": ("plot", "Draw charts from saved runs."),
}

COMMAND_WORDS = "gemmbench.command"  # in the context's meta

EXIT_WRONG = 1
EXIT_USAGE = 2
EXIT_INTERRUPTED = 130


class _Lazy(click.Group):
    """Knows its commands by name; imports one when it is called, or asked for its own help."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        module = importlib.import_module(f"gemmbench.cli.{COMMANDS[cmd_name][0]}")
        command: click.Command = getattr(module, cmd_name.replace("-", "_"))
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, line) for name, (_, line) in COMMANDS.items()])

    def make_context(
        self, info_name: str | None, args: list[str], parent: click.Context | None = None, **extra: Any
    ) -> click.Context:
        """The words of the command line are kept for the header of a saved run."""
        words = tuple(args)
        context = super().make_context(info_name, args or ["--help"], parent, **extra)
        context.meta[COMMAND_WORDS] = words
        return context

    def invoke(self, ctx: click.Context) -> Any:
        """Here, because click's main takes a broken pipe for exit status 1, which is a wrong result's."""
        try:
            return super().invoke(ctx)
        except BrokenPipeError:  # the reader went away: `gemmbench show run.jsonl | head`
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            return 0

    def main(self, args: Sequence[str] | None = None, **extra: Any) -> Any:  # type: ignore[override]  # click overloads it
        """Run; errors are one sentence on stderr and exit status 2, never a traceback."""
        extra["standalone_mode"] = False
        try:
            status = super().main(args, **extra)
        except click.exceptions.Exit as wanted:
            status = wanted.exit_code
        except click.ClickException as error:
            click.echo(f"gemmbench: {_sentence(error)}", err=True)
            status = error.exit_code
        except click.Abort:
            click.echo("gemmbench: interrupted", err=True)
            status = EXIT_INTERRUPTED
        sys.exit(status if isinstance(status, int) else 0)


def _sentence(error: click.ClickException) -> str:
    message = " ".join(error.format_message().split())
    if isinstance(error, click.UsageError) and error.ctx is not None:
        return f"{message.rstrip('.')} ({error.ctx.command_path} --help tells more)"
    return message


@click.group(
    cls=_Lazy,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    epilog="Start with: gemmbench peak; gemmbench square --max 2048; gemmbench sweep-k --plot out.png",
)
@click.version_option(__version__, "--version", prog_name="gemmbench")
def main() -> None:
    """How fast is an OpenCL device really at matrix multiplication?

    Peak microbenchmarks, a ladder of GEMM kernels, and sweeps of device against host: verified before
    they are timed, with every sample saved.
    """
