"""The options of ``bundle``."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import ClassVar

from gemmbench import UsageError
from gemmbench.options.declare import Choice, Options, flag, option

MACHINES = ("aarch64", "armv7l", "x86_64")  # as uname -m says


@dataclass(frozen=True, kw_only=True)
class Bundle(Options):
    """The options of ``bundle``."""

    command: ClassVar[str] = "bundle"

    machine: str = option("The board's processor, as uname -m says.", Choice(MACHINES), MACHINES[0])
    python: str = option("The board's Python, 3.10 or newer.", default="3.11", metavar="VERSION")
    force: bool = flag("Replace an existing bundle.")

    def __post_init__(self) -> None:
        super().__post_init__()
        match = re.fullmatch(r"3\.([0-9]{1,3})", self.python)
        if not match or int(match[1]) < 10:
            raise UsageError(f"--python takes 3.10, 3.11 and so on, not {self.python!r}")
