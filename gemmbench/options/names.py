"""The names that options take, each with a line on it: what a shell offers to complete.

Each function takes the values of the command's other options, and opens no driver. `devices` alone may have
them listed, in a process of its own with a time limit.
"""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Callable, Mapping
from typing import Any

from gemmbench import ladder
from gemmbench.model.dtypes import GEMM_DTYPES
from gemmbench.regress.baseline import PEAK
from gemmbench.suite.cached import kept_devices
from gemmbench.suite.plan import SelectionError, select

Names = Callable[[Mapping[str, Any]], Mapping[str, str]]

LISTING_S = 2.0  # that a shell may be kept waiting for devices
_GROUPS = {
    "all": "every kernel",
    "ladder": "the published kernels",
    "best": "gemmbench's own, as far as the device runs them",
    "likely": "those that may be the fastest on the device: what auto chooses among",
}


def each(names: Mapping[str, str] | tuple[str, ...]) -> Names:
    """Names that are always the same."""
    ideas = names if isinstance(names, Mapping) else dict.fromkeys(names, "")
    return lambda _: ideas


def kernel(_: Mapping[str, Any]) -> Mapping[str, str]:
    """Single kernels and libraries."""
    return {name: ladder.BY_NAME[name].idea for name in ladder.ORDER}


def kernels(values: Mapping[str, Any]) -> Mapping[str, str]:
    """Kernels, libraries, and the groups of kernels; of the user's own files, if there are any."""
    own = {"own": "your kernels, of --kernel-file"} if values.get("kernel_files") else {}
    return {**_GROUPS, **own, **kernel(values)}


def references(_: Mapping[str, Any]) -> Mapping[str, str]:
    """What ratios inside a run are over."""
    return {PEAK: "the peak measured in the run", **kernel(_)}


def baselines(_: Mapping[str, Any]) -> Mapping[str, str]:
    """Libraries beside the kernels."""
    ideas = {name: ladder.BY_NAME[name].idea for name in ladder.BASELINES}
    return {**ideas, "all": "every library", "none": "no library"}


def parameters(values: Mapping[str, Any]) -> Mapping[str, str]:
    """``TS=16`` and so on, of the kernels that ``--kernel`` names."""
    words = str(values.get("kernels") or values.get("kernel") or "").split(",")
    chosen = [ladder.BY_NAME[word] for word in words if word in ladder.BY_NAME] or ladder.VARIANTS
    return {
        f"{name}={value}": parameter.idea
        for variant in chosen
        for name, parameter in variant.parameters.items()
        for value in parameter.values
    }


def devices(_: Mapping[str, Any]) -> Mapping[str, str]:
    """Indices and short names of the devices listed in the last day, or now within `LISTING_S`."""
    listed = kept_devices()
    if not listed:
        command = [sys.executable, "-m", "gemmbench", "devices", "--json"]
        try:
            subprocess.run(command, timeout=LISTING_S, capture_output=True, stdin=subprocess.DEVNULL)
        except (OSError, subprocess.TimeoutExpired):
            return {}
        listed = kept_devices()
    titles = {str(device.index): device.title for device in listed}
    for device in listed:
        kind, maker = device.family.rsplit("-", 1)
        models = re.findall(r"\b[a-z]+[0-9]+[a-z]*\b", device.name.lower())  # h200, t760
        for short in (maker, *(models if kind != "cpu" else ())):
            try:
                chosen = select(listed, short)
            except SelectionError:  # a maker that no driver names
                continue
            titles.setdefault(short, chosen[0].title)
    return {**titles, "all": "every device"} if listed else {}


DTYPES = each(GEMM_DTYPES)
