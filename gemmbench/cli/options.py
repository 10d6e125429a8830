"""The declared options as click's: one `click.option` for each field of a dataclass."""

from __future__ import annotations

import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from gemmbench.options.declare import Choice, Count, File, Flag, Kind, Number, Options, Whole, specs

Command = Callable[..., Any]


def takes(kind: type[Options]) -> Callable[[Command], Command]:
    """Give a command the options of a class; they arrive as one ``options``."""

    def decorate(command: Command) -> Command:
        @functools.wraps(command)
        def folded(**values: Any) -> Any:
            own = {name: values.pop(name) for name in specs(kind)}
            return command(kind(**own), **values)

        decorated: Command = folded
        for name in reversed(specs(kind)):
            decorated = click_option(kind, name)(decorated)
        return decorated

    return decorate


def click_option(kind: type[Options], name: str) -> Callable[[Command], Command]:
    """One field of a class as an option."""
    spec, field = specs(kind)[name]
    extra: dict[str, Any] = {}
    if isinstance(spec.kind, Count):
        extra = {"count": True}
    elif isinstance(spec.kind, Flag):
        extra = {"is_flag": True, "show_default": "/" in spec.words(name)[0]}
    else:
        shown = not spec.many and field.default not in (None, "")
        extra = {"type": _type(spec.kind), "metavar": spec.metavar, "show_default": shown}
        extra |= {"multiple": True} if spec.many else {}
        extra |= {"is_flag": False, "flag_value": spec.bare} if spec.bare else {}
        extra |= {"envvar": spec.env, "show_envvar": True} if spec.env else {}
    return click.option(*spec.words(name), name, default=field.default, help=spec.help or None, **extra)


def _type(kind: Kind) -> click.ParamType[Any]:
    """What help shows of a kind; the kind itself converts."""
    if isinstance(kind, Choice):
        return click.Choice(kind.names)
    if isinstance(kind, Whole):
        return click.IntRange(kind.least, kind.most)
    if isinstance(kind, Number):
        return _Number(kind)
    if isinstance(kind, File):
        return click.Path(path_type=Path, dir_okay=kind.folder)
    return click.STRING


class _Number(click.types.FloatParamType):
    """click's own float also takes NaN and infinity."""

    name = "number"

    def __init__(self, kind: Number) -> None:
        self._kind = kind

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        try:
            return self._kind.convert(value)
        except ValueError as error:
            self.fail(str(error), param, ctx)
