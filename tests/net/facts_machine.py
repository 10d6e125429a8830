"""The fake machine with the devices of saved runs: `GEMMBENCH_FAKE_FACTS` names the runs, with spaces."""

from __future__ import annotations

import os
from dataclasses import replace

from gemmbench.model.device import DeviceFacts, HostFacts
from gemmbench.model.run_file import load
from tests.cli.fake_machine import FakeMachine


class FactsMachine(FakeMachine):
    def devices(self) -> tuple[DeviceFacts, ...]:
        devices = [load(path).header.devices[0] for path in self._runs()]
        return tuple(
            replace(device, index=index, platform_index=index, device_index=0)
            for index, device in enumerate(devices)
        )

    def host(self) -> HostFacts:
        return load(self._runs()[0]).header.host

    def _runs(self) -> list[str]:
        return os.environ["GEMMBENCH_FAKE_FACTS"].split()


def make() -> FactsMachine:
    return FactsMachine()
