"""Which devices ``--device`` means."""

from __future__ import annotations

import re
from collections.abc import Sequence

from gemmbench.facts.records import DeviceFacts

_KINDS = ("gpu", "accelerator", "cpu")  # in the order of the default; what is not listed comes last
_SIMULATORS = ("oclgrind", "emulat", "simulat")  # right answers, meaningless times


class SelectionError(ValueError):
    """No device is meant; the message is one sentence for the user."""


def select(devices: Sequence[DeviceFacts], selector: str) -> tuple[DeviceFacts, ...]:
    """The devices that a selector names, in its order, none twice.

    Args:
        devices: what `discovery.devices` found.
        selector: terms separated by commas, each one of

            - a number: the index in gemmbench's list (``0``);
            - ``platform:device`` (``0:1``);
            - ``all``;
            - part of a platform, vendor, version, driver, origin or device name, in any case: the *best*
              device that has it. Platform and driver come before the device's own name, so that ``intel``
              means Intel's driver and not PoCL on an Intel processor; then as in the default.

            Empty: the default, which is the first GPU, else accelerator, else CPU; of the CPU's drivers those
            with the fewest warnings come first, then Intel's, then PoCL; simulators last.

    Raises:
        SelectionError: a term names no device, or there are none.
    """
    if not devices:
        raise SelectionError("there is no OpenCL device to select from")
    ranked = sorted(devices, key=_rank)  # stable: the list's order decides among equals
    terms = [term.strip() for term in selector.split(",")]
    if terms == [""]:
        return (ranked[0],)
    chosen = [device for term in terms for device in _named(devices, ranked, term)]
    return tuple({device.index: device for device in chosen}.values())


def _rank(device: DeviceFacts) -> tuple[bool, int, int, int]:
    """Smaller is better."""
    maker = f"{device.platform} {device.version}".lower()
    words = f"{maker} {device.name}".lower()
    kind = _KINDS.index(device.type) if device.type in _KINDS else len(_KINDS)
    family = 0 if device.type != "cpu" or "intel" in maker else 1 if "pocl" in maker else 2
    return any(word in words for word in _SIMULATORS), kind, len(device.warnings), family


def _named(devices: Sequence[DeviceFacts], ranked: Sequence[DeviceFacts], term: str) -> Sequence[DeviceFacts]:
    if term.lower() == "all":
        return devices
    if re.fullmatch(r"[0-9]+", term):
        found = [device for device in devices if device.index == int(term)]
    elif re.fullmatch(r"[0-9]+:[0-9]+", term):
        platform, number = map(int, term.split(":"))
        found = [
            device for device in devices if (device.platform_index, device.device_index) == (platform, number)
        ]
    elif term:
        part = _plain(term)
        found = [device for device in ranked if part in _plain(_driver_words(device))]
        found = (found or [device for device in ranked if part in _plain(device.name)])[:1]
    else:
        raise SelectionError(f"a device is missing beside a comma; {_listing(devices)}")
    if not found:
        raise SelectionError(f"no device is {term!r}; {_listing(devices)}")
    return found


def _driver_words(device: DeviceFacts) -> str:
    version = re.sub(r"^OpenCL [\d.]+", "", device.version)  # every driver of a year has the same
    return " | ".join((device.platform, device.vendor, version, device.driver, device.origin))


def _plain(text: str) -> str:
    """For comparing: lower case, trademarks and repeated spaces gone."""
    return " ".join(re.sub(r"\((r|tm)\)", "", text.lower()).split())


def _listing(devices: Sequence[DeviceFacts]) -> str:
    return "choose " + ", ".join(f"{device.index} ({device.title})" for device in devices) + " or all"
