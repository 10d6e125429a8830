"""The fake machine with more that the environment decides, in the child process as well:

- ``GEMMBENCH_FAKE_PAUSE``: a file; while it is there each case takes 20 ms: something to hit for a kill;
- ``GEMMBENCH_FAKE_LOCALE``: any text; the process takes the locale of the environment;
- ``GEMMBENCH_FAKE_NOBODY``: any text; the system does not know the user, as in a container;
- ``GEMMBENCH_FAKE_NAME``: what the devices, their driver and their platform are called.
"""

from __future__ import annotations

import locale
import os
import pwd
import time
from dataclasses import replace
from pathlib import Path
from typing import NoReturn

from gemmbench.measure import machine
from gemmbench.measure.instrument import Machine
from gemmbench.model.case import Case, Policy
from gemmbench.model.device import DeviceFacts
from gemmbench.model.row import Row
from tests.cli.fake_machine import FakeMachine

PAUSE_S = 0.02


class FaultMachine(FakeMachine):
    def devices(self) -> tuple[DeviceFacts, ...]:
        name = os.environ.get("GEMMBENCH_FAKE_NAME")
        found = super().devices()
        if name is None:
            return found
        return tuple(
            replace(device, name=name, platform=name, vendor=name, driver=name, origin=name, warnings=(name,))
            for device in found
        )

    def run(self, case: Case, device: DeviceFacts | None, policy: Policy) -> Row:
        pause = os.environ.get("GEMMBENCH_FAKE_PAUSE")
        if pause and Path(pause).exists():
            time.sleep(PAUSE_S)
        row = super().run(case, device, policy)
        name = os.environ.get("GEMMBENCH_FAKE_NAME")
        return row if name is None else replace(row, notes=(name,), reason="" if row.status == "ok" else name)


def prepare() -> None:
    """What the environment asks of a process before anything else runs."""
    if os.environ.get("GEMMBENCH_FAKE_LOCALE"):
        locale.setlocale(locale.LC_ALL, "")
    if os.environ.get("GEMMBENCH_FAKE_NOBODY"):
        pwd.getpwuid = _unknown


def _unknown(uid: int) -> NoReturn:
    raise KeyError(f"getpwuid(): uid not found: {uid}")


def make() -> Machine:
    prepare()
    return FaultMachine()


def make_real() -> Machine:
    prepare()
    return machine.default()
