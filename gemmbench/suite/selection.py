"""Which devices a selector names, and opening them in the measuring process."""

from __future__ import annotations

import re
from collections.abc import Sequence

from gemmbench import UsageError
from gemmbench.measure.child import Worker
from gemmbench.model.device import DEVICE_TYPES, DeviceFacts, HostFacts
from gemmbench.opencl.drivers import Problem, no_device_message, sentence

_OTHERS_DRIVERS = ("pocl", "portable computing", "rusticl", "clover", "mesa")  # not by the card's maker
_SIMULATORS = ("oclgrind", "emulat", "simulat")  # right answers, meaningless times


def select(devices: Sequence[DeviceFacts], selector: str) -> tuple[DeviceFacts, ...]:
    """The devices that a selector names, in its order, none twice. `UsageError` if a term names none.

    Terms are separated by commas, each one of

    - the index in gemmbench's list (``0``), or ``platform:device`` (``0:1``);
    - ``all``: every device, a card with two drivers once;
    - ``gpu``, ``cpu`` or ``accelerator``: the best device of that type;
    - part of a platform, vendor, version, driver, origin or device name (``4090``): the best device that has
      it. The driver comes first: ``intel`` is Intel's driver, not PoCL on an Intel processor.

    Empty: the best device, as `_rank` has it.
    """
    if not devices:
        raise UsageError("there is no OpenCL device to select from")
    ranked = sorted(devices, key=_rank)  # stable: the list's order decides among equals
    terms = [term.strip() for term in selector.split(",")]
    if terms == [""]:
        return (ranked[0],)
    chosen = [device for term in terms for device in _named(devices, ranked, term)]
    return tuple({device.index: device for device in chosen}.values())


def leaves_open(selector: str) -> bool:
    """Whether a selector names only types: another device will do."""
    return all(term.strip().lower() in ("", "all", *DEVICE_TYPES) for term in selector.split(","))


def _rank(device: DeviceFacts) -> tuple[bool, int, bool, int, int]:
    """A sort key: GPUs first, then the maker's drivers with the fewest warnings; simulators last."""
    maker = f"{device.platform} {device.version}".lower()
    words = f"{maker} {device.name}".lower()
    kind = DEVICE_TYPES.index(device.type) if device.type in DEVICE_TYPES else len(DEVICE_TYPES)
    if device.type == "cpu":
        family = 0 if "intel" in maker else 1 if "pocl" in maker else 2
    else:
        family = int(any(word in maker for word in _OTHERS_DRIVERS))
    is_integrated = device.type == "gpu" and device.unified_memory
    return any(word in words for word in _SIMULATORS), kind, is_integrated, len(device.warnings), family


def _named(devices: Sequence[DeviceFacts], ranked: Sequence[DeviceFacts], term: str) -> Sequence[DeviceFacts]:

    def driver_words(device: DeviceFacts) -> str:
        version = re.sub(r"^OpenCL [\d.]+", "", device.version)  # every driver of a year has the same
        return " | ".join((device.platform, device.vendor, version, device.driver, device.origin))

    if term.lower() == "all":
        best = {device.pci or str(device.index): device for device in reversed(ranked)}
        return [device for device in devices if best[device.pci or str(device.index)] is device]
    matches = [device for device in devices if term in (str(device.index), device.address)]
    if not matches and term.lower() in DEVICE_TYPES:
        matches = [device for device in ranked if device.type == term.lower()][:1]
    if not matches and (part := _plain(term)):
        matches = [device for device in ranked if part in _plain(driver_words(device))]
        if not matches or part.isdecimal():  # a number is a model, not part of a version
            matches = [device for device in ranked if part in _plain(device.name)]
    if not matches:
        what = f"no device is {term!r}" if term else "--device has an empty name in its list"
        listing = ", ".join(f"{device.index} ({device.title})" for device in devices)
        raise UsageError(f"{what}; choose {listing} or all")
    return matches[:1]


def _plain(text: str) -> str:
    return "".join(re.sub(r"\((r|tm)\)", "", text.lower()).split())


def opened_devices(worker: Worker, selector: str) -> tuple[tuple[DeviceFacts, ...], HostFacts]:
    """The devices that a selector names, open in the measuring process, and the host.

    If the selector leaves the choice open, broken ones are skipped; else `UsageError`.
    """
    every, host = every_device(worker)
    problems: dict[int, Problem] = {}
    while True:
        devices = select(every, selector)
        broken = {device.index: problem for device in devices if (problem := worker.open(device))}
        if not broken:
            worker.failing += tuple(problems.values())
            return devices, host
        problems |= broken
        every = tuple(device for device in every if device.index not in broken)
        if not every or not leaves_open(selector):
            raise UsageError(sentence(next(iter(problems.values()))))


def every_device(worker: Worker) -> tuple[tuple[DeviceFacts, ...], HostFacts]:
    """The devices and the host; `UsageError` without any."""
    devices, host = worker.devices()
    if not devices:
        raise UsageError(no_device_message(worker.problems))
    return devices, host
