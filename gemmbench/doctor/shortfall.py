"""Whether a run stays so far below what its ceilings say that `gemmbench doctor` may know why."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from gemmbench.doctor.checks import CHECKS, Report
from gemmbench.ladder import NEAR_PEAK
from gemmbench.model.device import DeviceFacts, broad_type
from gemmbench.model.row import THREADS, Row
from gemmbench.model.run_file import Run
from gemmbench.model.units import clean, percent
from gemmbench.stats import ceilings, rates

SHORT = 0.7
"""Of a ceiling: whatever stays below has a reason. The saved runs of an NVIDIA H200 in plots/ are above."""

_LARGE: Mapping[str, int] = {
    "cpu": 1024,
    "gpu": 2048,
}  # m, n and k from here on; smaller ones are slow by nature


@dataclass(frozen=True)
class Shortfall:
    """The best that a device reached of a ceiling."""

    device: DeviceFacts
    fraction: float
    of: str  # the ceiling
    best: str  # what reached it


def shortfalls(run: Run) -> list[Shortfall]:
    """The ceilings of which a run's devices reach less than `SHORT` at best.

    Of probes the derived ceiling counts, where there is one; of GEMMs the measured peak, for kernels and
    libraries that should come near it (`NEAR_PEAK`), from `_LARGE` on, with every thread and no grid of
    parameters. So early rungs, small sizes and what was slowed on purpose never count.
    """
    best: dict[tuple[int, str, str], Shortfall] = {}
    for position, device in enumerate(run.header.devices):
        for row in run.rows:
            if row.device == position or row.device < 0:
                for each in _of(run, device, row):
                    key = (position, row.dtype, each.of)
                    if key not in best or best[key].fraction < each.fraction:
                        best[key] = each
    return [each for each in best.values() if each.fraction < SHORT]


def _of(run: Run, device: DeviceFacts, row: Row) -> Iterator[Shortfall]:
    """What a row reached of the ceiling that is for it."""
    if row.kind == "peak" and row.ran_on != "matrix" and row.variant == "flops":
        top, rate = ceilings.ceiling(device, row.dtype), rates.rate(row, "kernel")
        if top and rate and row.check.verdict == "ok":
            yield Shortfall(device, rate.best / top.per_second, f"the ceiling of {row.dtype}", "the probe")
    if row.kind != "gemm" or row.problem is None or row.grid or THREADS in row.parameters or row.beside:
        return
    smallest = min(row.problem.m, row.problem.n, row.problem.k)
    kind = broad_type(device)
    if row.variant not in NEAR_PEAK[kind] or smallest < _LARGE[kind] or run.header.policy.cold:
        return
    fraction = rates.peak_fraction(run, row, rates.view_scope(run))
    if fraction is not None and (not rates.on_host(row) or kind == "cpu"):
        units = " of matrix units" if row.ran_on == "matrix" else ""
        yield Shortfall(
            device, fraction, f"the {row.dtype} peak{units}", f"{clean(row.title)} at {row.problem.size}"
        )


def sentence(short: list[Shortfall], report: Report) -> str:
    """A line that points to `gemmbench doctor`; "" where it has nothing to say of these devices' rates.

    Args:
        short: at least one.
        report: what came of the checks.
    """
    worst = min(short, key=lambda each: each.fraction)
    on_cpu = worst.device.type == "cpu"
    slowing = {check.name for check in CHECKS if check.slows}
    causes = dict.fromkeys(
        finding.check
        for finding in report.findings
        if finding.check in slowing
        if finding.device == worst.device.index or (on_cpu and finding.device is None)
    )
    if not causes:
        return ""
    return (
        f"{worst.best} reaches {percent(worst.fraction)} of {worst.of}: `gemmbench doctor` says what may "
        f"hold it back ({', '.join(causes)})."
    )
