"""Options that several commands share, folded into frozen dataclasses at once."""

from __future__ import annotations

import difflib
import math
import os
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import click

from gemmbench.cli import EXIT_USAGE
from gemmbench.facts import chart_files
from gemmbench.facts.dtypes import GEMM_DTYPES
from gemmbench.facts.records import MEMORY_MODES, SCOPES, Policy
from gemmbench.facts.text import reason_of
from gemmbench.rules import variants
from gemmbench.rules.variants import BASELINE, Variant

Command = TypeVar("Command", bound=Callable[..., Any])

DEFAULT_BUDGET_S = 3.0
_ALIASES = {"int8": "char"}  # other names of data types
_BEST = "best"
_GROUPS = {"all": variants.LADDER, "ladder": variants.PUBLISHED, _BEST: variants.BEST}  # of kernels


class UserError(click.ClickException):
    """What the user can put right: one sentence, exit status 2."""

    exit_code = EXIT_USAGE


@dataclass(frozen=True)
class RunOptions:
    """Where a measuring command runs, how long, and what becomes of the result."""

    device: str
    policy: Policy
    save: Path | None
    resume: bool
    force: bool
    plot: Path | None
    dry_run: bool
    quiet: bool
    verbose: int
    concurrent: bool = False


def measuring(command: Command) -> Command:
    """The options of every command that measures; they arrive as one ``options: RunOptions``."""

    def fold(
        device: str,
        budget: float,
        time_limit: float | None,
        memory: str,
        cold: bool,
        energy: bool,
        save: Path | None,
        resume: bool,
        force: bool,
        plot: Path | None,
        dry_run: bool,
        quiet: bool,
        verbose: int,
        concurrent: bool,
        **rest: Any,
    ) -> Any:
        limit = time_limit if time_limit is not None else 60 + 20 * budget
        policy = Policy(budget_s=budget, time_limit_s=limit, memory=memory, cold=cold, energy=energy)
        if resume and save is None:
            raise UserError("--resume needs --save FILE")
        if force and save is None and rest.get("out") is None:  # gemm's --out is a file to replace, too
            raise UserError("--force needs --save FILE")
        if resume and force:
            raise UserError("--resume keeps the rows that a file has and --force drops them: choose one")
        check_plot_path(plot)
        check_save_path(save, resume or force)
        return command(
            options=RunOptions(
                device, policy, save, resume, force, plot, dry_run, quiet, verbose, concurrent
            ),
            **rest,
        )

    fold.__doc__ = command.__doc__
    fold.__name__ = command.__name__
    decorated: Any = fold
    for option in reversed(_MEASURING):
        decorated = option(decorated)
    return decorated  # type: ignore[no-any-return]  # click's decorators keep no signature


class _Number(click.types.FloatParamType):
    """A finite number; click's own float also takes NaN, which is on neither side of any limit."""

    name = "number"

    def __init__(self, above: float = -math.inf) -> None:
        self._above = above

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        number: float = super().convert(value, param, ctx)
        if not math.isfinite(number):
            self.fail(f"{value} is not a finite number", param, ctx)
        if number <= self._above:
            self.fail(f"{value} is not above {self._above:g}", param, ctx)
        return number


positive = _Number(above=0)

device_option = click.option(
    "--device",
    envvar="GEMMBENCH_DEVICE",
    show_envvar=True,
    default="",
    metavar="WHICH",
    help="Index (0), platform:device (0:1), part of a name (pocl, intel, h200), several with commas, or "
    "all.  [default: the best found]",
)

_MEASURING = (
    device_option,
    click.option(
        "--concurrent",
        is_flag=True,
        help="Run GEMMs (of peak: bandwidth, transfers) on each device alone, then on all of them at once.",
    ),
    click.option("--save", type=click.Path(path_type=Path), metavar="FILE.jsonl", help="Save every sample."),
    click.option("--resume", is_flag=True, help="Go on with a --save file that was interrupted."),
    click.option("--force", is_flag=True, help="Replace an existing --save file."),
    click.option(
        "--plot", type=click.Path(path_type=Path), metavar="FILE.png|svg|pdf", help="Draw the result."
    ),
    click.option(
        "--budget",
        type=positive,
        default=DEFAULT_BUDGET_S,
        show_default=True,
        metavar="SECONDS",
        help="Sampling time for each row.",
    ),
    click.option(
        "--time-limit",
        type=positive,
        metavar="SECONDS",
        help="Stop a row that takes longer altogether.  [default: 60 + 20 x budget]",
    ),
    click.option(
        "--memory",
        type=click.Choice(["auto", *MEMORY_MODES]),
        default="auto",
        show_default=True,
        help="How operands reach the device.",
    ),
    click.option("--cold", is_flag=True, help="Rotate operands past the last-level cache (default: warm)."),
    click.option(
        "--energy", is_flag=True, help="Joules too, where there is a counter (2 to 3 s more for each row)."
    ),
    click.option("--dry-run", is_flag=True, help="Say what would be measured, and measure nothing."),
    click.option("-q", "--quiet", is_flag=True, help="No progress, no advice: the table only."),
    click.option("-v", "--verbose", count=True, help="Details: every row, every scope."),
)

dtype_option = click.option(
    "--dtype",
    default="float",
    show_default=True,
    metavar="TYPES",
    help=f"{', '.join(GEMM_DTYPES)} (int8); several with commas.",
)
kernel_option = click.option(
    "--kernel",
    "kernels",
    default="all",
    show_default=True,
    metavar="NAMES",
    help="Several with commas (gemmbench kernels lists them). all: every kernel; ladder: the published ones; "
    "best: gemmbench's own, as far as the device runs them.",
)
baseline_option = click.option(
    "--baseline",
    default=BASELINE,
    show_default=True,
    metavar="NAMES",
    help=f"Libraries beside the kernels: {', '.join(variants.BASELINES)}; several with commas, all or none. "
    "numpy is the host's own BLAS, the others run on the device.",
)
param_option = click.option(
    "--param",
    "params",
    multiple=True,
    metavar="NAME=VALUE",
    help="A kernel parameter other than its preset; may be repeated.",
)
scope_option = click.option(
    "--scope",
    type=click.Choice([*SCOPES, "all"]),
    default="kernel",
    show_default=True,
    help="What the table shows: the kernel alone, all device passes, or host memory to host memory.",
)
REMEASURE = "gemmbench.remeasure"  # in the context's meta: there where a command may take kept peaks


def _remember_remeasure(context: click.Context, _: click.Parameter, value: bool) -> None:
    context.meta[REMEASURE] = value


def peak_option(command: Command) -> Command:
    """``--peak/--no-peak`` and ``--remeasure``: the first arrives as ``with_peak``."""
    with_peak = click.option(
        "--peak/--no-peak",
        "with_peak",
        default=True,
        show_default=True,
        help="Measure peak and bandwidth first, or take them from an earlier run.",
    )
    remeasure = click.option(
        "--remeasure",
        is_flag=True,
        expose_value=False,
        callback=_remember_remeasure,
        help="Measure the peak anew, also if an earlier run has kept it.",
    )
    return with_peak(remeasure(command))


alpha_option = click.option(
    "--alpha", type=_Number(), default=1.0, show_default=True, help="C = alpha A B + beta C."
)
beta_option = click.option(
    "--beta", type=_Number(), default=0.0, show_default=True, help="C = alpha A B + beta C."
)


def choose_dtypes(text: str, known: Sequence[str]) -> tuple[str, ...]:
    """Data types from a comma-separated list, in the order given.

    Raises:
        UserError: one is unknown.
    """
    return choose(",".join(_ALIASES.get(word, word) for word in _words(text)), known, "data type")


def choose_kernels(text: str, baseline: str = "none") -> tuple[Variant, ...]:
    """Variants from a comma-separated list, in ladder order, and the baselines of another after them.

    Raises:
        UserError: one is unknown.
    """
    names = {name for word in _kernel_words(text) for name in _GROUPS.get(word, (word,))}
    names.update(choose_baselines(baseline))
    return tuple(variants.BY_NAME[name] for name in variants.ORDER if name in names)


def optional_kernels(text: str) -> frozenset[str]:
    """The kernels that only ``best`` asks for: those that a device does not run need no row."""
    words = _kernel_words(text)
    named = {name for word in words if word != _BEST for name in _GROUPS.get(word, (word,))}
    return frozenset(variants.BEST) - named if _BEST in words else frozenset()


def choose_baselines(text: str) -> tuple[str, ...]:
    """Libraries from a comma-separated list, ``all`` or ``none``.

    Raises:
        UserError: one is unknown, or ``none`` is not alone.
    """
    words = choose(text, (*variants.BASELINES, "all", "none"), "baseline")
    if "none" in words:
        if len(words) > 1:
            raise UserError(f"--baseline {text}: none stands alone")
        return ()
    return variants.BASELINES if "all" in words else words


def _kernel_words(text: str) -> tuple[str, ...]:
    return choose(text, (*variants.ORDER, *_GROUPS), "kernel")


def choose_params(texts: Iterable[str]) -> dict[str, int]:
    """``NAME=VALUE`` options as a dictionary.

    Raises:
        UserError: one has no ``=`` or its value is not a whole number.
    """
    chosen = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals or not value.strip().isdecimal():
            raise UserError(f"--param takes NAME=VALUE with a whole number, not {text!r}")
        chosen[name.strip()] = int(value)
    return chosen


def choose_sizes(text: str | None, low: int | None, high: int, default_low: int = 64) -> tuple[int, ...]:
    """Sizes from a list, or the powers of two from ``low`` to ``high`` with both ends.

    Where no ``low`` is asked for, ``default_low`` gives way to a smaller ``high``.

    Raises:
        UserError: a size is not a whole number of 1 or more, or the range is empty.
    """
    if text is not None:
        words = _words(text)
        if not all(word.isdecimal() and int(word) > 0 for word in words) or not words:
            raise UserError(f"--sizes takes whole numbers of 1 or more with commas, not {text!r}")
        return tuple(sorted({int(word) for word in words}))
    if low is None:
        low = min(default_low, high)
    if low > high:
        raise UserError(f"the smallest size, {low}, is above the largest, {high}")
    powers = [1 << bit for bit in range(low.bit_length() - 1, high.bit_length()) if low < 1 << bit < high]
    return tuple(sorted({low, *powers, high}))


def _words(text: str) -> list[str]:
    return [word.strip() for word in text.split(",") if word.strip()]


def choose(text: str, known: Sequence[str], what: str) -> tuple[str, ...]:
    """Names from a comma-separated list, in the order given, none twice.

    Raises:
        UserError: one is unknown, or there are none.
    """
    words = _words(text)
    if not words:
        raise UserError(f"no {what} is given; there are {', '.join(known)}")
    for word in words:
        if word not in known:
            close = difflib.get_close_matches(word, known, 1)
            hint = f"did you mean {close[0]}?" if close else f"there are {', '.join(known)}"
            raise UserError(f"unknown {what} {word!r}; {hint}")
    return tuple(dict.fromkeys(words))


def check_plot_path(path: Path | None) -> None:
    """Find out before measuring whether a chart can be written there.

    Raises:
        UserError: another format than PNG, SVG or PDF, or a folder that does not exist.
    """
    if path is None:
        return
    if path.suffix.lower() not in chart_files.SUFFIXES:
        raise UserError(f"--plot {path}: a chart is a {', '.join(chart_files.SUFFIXES)} file")
    check_folder("--plot", path)


def check_save_path(path: Path | None, overwrite: bool) -> None:
    """Find out before measuring whether a run can be saved there.

    Raises:
        UserError: the file exists, or its folder does not.
    """
    if path is None:
        return
    check_folder("--save", path)
    if path.exists() and not overwrite:
        raise UserError(f"{path} exists already; --resume goes on with it, --force replaces it")


def check_folder(option: str, path: Path) -> None:
    """Find out before measuring whether a file can be written there.

    Raises:
        UserError: its folder does not exist or may not be written to, or it is a folder itself.
    """
    try:
        if not path.parent.is_dir():
            raise UserError(f"{option} {path}: there is no folder {path.parent}")
        if path.is_dir():
            raise UserError(f"{option} {path}: it is a folder")
        target = path if path.exists() else path.parent
    except OSError as error:  # a name too long, a folder that may not be entered
        raise UserError(f"{option} {path}: {reason_of(error)}") from None
    if not os.access(target, os.W_OK):
        raise UserError(f"{option} {path}: permission denied")
