"""Which row of one run is which row of another, and whether the two may be compared."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from gemmbench.facts.records import DeviceFacts, Header, Row, RowKey, Run
from gemmbench.facts.series import HOST
from gemmbench.facts.text import clean

Kind = Literal["device", "driver", "source", "sampling", "memory"]

DIFFERENCES: dict[Kind, str] = {
    "device": "other device",
    "driver": "other driver",
    "source": "other kernel source",
    "sampling": "other sampling",
    "memory": "operands reached the device in another way",
}
"""What makes two rows incomparable, unless a comparison is told to go across it."""


@dataclass(frozen=True)
class Difference:
    """What keeps two devices' rows from being compared."""

    kind: Kind
    reason: str  # for the user


@dataclass(frozen=True, eq=False)
class Repetition:
    """Every case of a run once."""

    run: Run
    rows: Mapping[RowKey, Row]  # the key's device is a position in the first base's header


def repetitions(run: Run, reference: Header) -> tuple[Repetition, ...]:
    """A run as repetitions: one, unless cases stand in it several times, as in an A/A measurement.

    Args:
        run: the run.
        reference: whose devices keys refer to.
    """
    places = slots(reference, run.header)
    found: list[dict[RowKey, Row]] = []
    times: dict[RowKey, int] = {}
    for row in run.rows:
        device = places[row.device] if row.device >= 0 else HOST
        key = row.placed(device, [places[other] for other in row.beside]).key
        place = times[key] = times.get(key, -1) + 1
        if place == len(found):
            found.append({})
        found[place][key] = row
    return tuple(Repetition(run, rows) for rows in found)


def slots(reference: Header, header: Header) -> tuple[int, ...]:
    """For each device of a header the position of the same one in a reference.

    The same are those of one name under one platform, in their order. What is left over is matched in order,
    so that a run on another device is refused as such and not told as a list of missing and new rows; devices
    beyond the reference's have positions of their own.
    """
    theirs = [_identity(device) for device in reference.devices]
    found: list[int | None] = []
    for device in header.devices:
        name = _identity(device)
        same = [place for place, other in enumerate(theirs) if other == name and place not in found]
        found.append(same[0] if same else None)
    free = iter([place for place in range(len(theirs)) if place not in found])
    beyond = iter(range(len(theirs), len(theirs) + len(found)))
    return tuple(place if place is not None else next(free, next(beyond)) for place in found)


def strictly(wanted: Sequence[DeviceFacts], found: Sequence[DeviceFacts]) -> list[int | None]:
    """For each wanted device the position of one of the same platform and name, none twice; or None."""
    names = [_identity(device) for device in found]
    places: list[int | None] = []
    for device in wanted:
        name = _identity(device)
        free = (place for place, other in enumerate(names) if other == name and place not in places)
        places.append(next(free, None))
    return places


def foreign(base: DeviceFacts, new: DeviceFacts, across: Collection[str] = ()) -> Difference | None:
    """Why no row of one device may be compared with any of another, or None; arguments as of `difference`."""
    return _first(_device_facts(base, new), across)


def _identity(device: DeviceFacts) -> tuple[str, str]:
    return device.platform, device.name


def difference(base: tuple[Run, Row], new: tuple[Run, Row], across: Collection[str] = ()) -> str:
    """Why two rows of one key may not be compared, or "".

    Args:
        base: a run and its row.
        new: another run and its row.
        across: names of `DIFFERENCES` that do not matter.
    """
    different = _first(_facts(base, new), across)
    return different.reason if different else ""


def _first(facts: Iterable[tuple[Kind, str, str]], across: Collection[str]) -> Difference | None:
    """The first difference."""
    for kind, before, after in facts:
        if before != after and kind not in across:
            return Difference(kind, f"{DIFFERENCES[kind]}: {_word(after)}, not {_word(before)}")
    return None


def _device_facts(old: DeviceFacts, young: DeviceFacts) -> Iterable[tuple[Kind, str, str]]:
    yield "device", old.name, young.name
    yield "driver", f"{old.platform} {old.driver}", f"{young.platform} {young.driver}"


def _facts(base: tuple[Run, Row], new: tuple[Run, Row]) -> Iterable[tuple[Kind, str, str]]:
    """Name, base's and new's value of whatever must be the same."""
    (then, before), (now, after) = base, new
    old, young = then.device(before), now.device(after)
    if old and young:
        yield from _device_facts(old, young)
    else:
        yield "device", then.header.host.cpu, now.header.host.cpu
        yield "driver", then.header.host.blas, now.header.host.blas
    yield "source", before.source, after.source
    yield "sampling", _warmth(then), _warmth(now)
    yield "memory", before.memory, after.memory


def _warmth(run: Run) -> str:
    return "--cold" if run.header.policy.cold else "warm caches"


def _word(text: str) -> str:
    return clean(text) or "none"
