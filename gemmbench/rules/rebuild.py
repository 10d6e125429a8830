"""From the rows of a saved run back to the cases that give them. Pure: no device is touched."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from gemmbench.facts.problem import Gemm
from gemmbench.facts.records import DeviceFacts, Row, RowKey
from gemmbench.facts.series import HOST
from gemmbench.rules.memory import FAMILIES, memory_plan
from gemmbench.rules.plan import Case, Plan, Skip, gemm_plan, peak_plan
from gemmbench.rules.probes import ALL_DTYPES, WIDTHS
from gemmbench.rules.variants import BY_NAME, ParameterError


def rebuild(
    rows: Iterable[Row], devices: Sequence[DeviceFacts], places: Mapping[int, int], former: str = ""
) -> Plan:
    """The cases that would measure rows again, in their order.

    Args:
        rows: of a saved run.
        devices: those to measure on.
        places: for each device of the saved run that is here, its position in `devices`.
        former: a kernels folder with whose kernels they are to be timed in turn.

    Returns:
        A case for each row, or a row that says why there is none: a kernel, parameter or probe that this
        version does not have. Rows of devices that are not here have none.
    """
    probes = {place: _probes(devices[place]) for place in set(places.values())}
    steps: list[Case | Skip] = []
    for row in rows:
        if row.device != HOST and row.device not in places:
            continue
        place = places.get(row.device, HOST)
        if row.kind == "gemm":
            step = _gemm(row, devices[max(place, 0)])
        else:
            step = probes[place].get(replace(row, device=0).key) or _unknown(row, f"probe {row.variant} so")
        steps.append(_placed(step, place, former))
    return tuple(steps)


def _probes(device: DeviceFacts) -> dict[RowKey, Case | Skip]:
    """Every microbenchmark of a device, by the key of its row at position 0."""
    plan = (*peak_plan([device], ALL_DTYPES, WIDTHS, reach="every"), *memory_plan([device], tuple(FAMILIES)))
    return {step.key if isinstance(step, Case) else step.row.key: step for step in plan}


def _gemm(row: Row, device: DeviceFacts) -> Case | Skip:
    problem, variant = row.problem, BY_NAME.get(row.variant)
    assert problem is not None  # of every gemm row that was loaded
    if variant is None:
        return _unknown(row, f"kernel {row.variant}")
    try:
        parameters = {name: int(value) for name, value in row.parameters.items()}
        gemm = Gemm(problem.m, problem.n, problem.k, row.dtype, problem.alpha, problem.beta, row.label)
        (step,) = gemm_plan([device], [variant], [gemm], parameters)
    except (ParameterError, ValueError) as error:
        return _unknown(row, f"such case: {error}")
    return step


def _unknown(row: Row, what: str) -> Skip:
    empty = Row(row.kind, row.device, row.variant, row.dtype, row.parameters, "unsupported")
    reason = f"this gemmbench has no {what}"
    return Skip(replace(empty, reason=reason, problem=row.problem, label=row.label))


def _placed(step: Case | Skip, place: int, former: str) -> Case | Skip:
    if isinstance(step, Skip):
        return Skip(replace(step.row, device=place))
    return replace(step, device=place, former=former)
