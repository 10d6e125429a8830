"""``--tuned/--no-tuned``: whether a command takes the presets that ``gemmbench tune`` has kept."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import click

from gemmbench.facts.records import DeviceFacts
from gemmbench.rules.plan import Tuned
from gemmbench.rules.variants import Variant
from gemmbench.tuned import KeptPresets

Command = TypeVar("Command", bound=Callable[..., Any])

_WANTED = "gemmbench.tuned"  # in the context's meta: there where a command has the option
_STORE = "gemmbench.presets"


def _remember(context: click.Context, _: click.Parameter, value: bool) -> None:
    context.meta[_WANTED] = value


tuned_option = click.option(
    "--tuned/--no-tuned",
    default=True,
    show_default=True,
    expose_value=False,
    callback=_remember,
    help="Parameters that `gemmbench tune` has kept for this device, in the place of the shipped ones.",
)


def find_tuned(device: DeviceFacts, variant: Variant, dtype: str) -> Tuned | None:
    """What is kept for a variant on a device; nothing with ``--no-tuned``."""
    meta = click.get_current_context().meta
    if not meta.get(_WANTED):
        return None
    store: KeptPresets = meta.setdefault(_STORE, KeptPresets())
    return store.find(device, variant, dtype)


def notes() -> list[str]:
    """What went wrong with the kept presets, for the user."""
    store: KeptPresets | None = click.get_current_context().meta.get(_STORE)
    return store.notes if store else []
