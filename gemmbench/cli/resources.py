"""``gemmbench kernels --resources``: the ladder as built on a device, nothing run."""

from __future__ import annotations

from collections.abc import Sequence

from gemmbench import api
from gemmbench.facts.events import Finished, Planned, Started
from gemmbench.facts.problem import Gemm
from gemmbench.facts.records import Policy, Row, Run
from gemmbench.measure.child import Worker
from gemmbench.render.progress import Progress
from gemmbench.rules.plan import Plan, Skip, gemm_plan
from gemmbench.rules.selection import select
from gemmbench.rules.variants import Variant
from gemmbench.suite.run import every_device, header_of, user_errors

_SIZE = 1024  # of the problem that groups are shaped for
_BUILD_S = 1.0  # for the first estimate of the time left


def built(selector: str, chosen: Sequence[Variant], dtypes: Sequence[str], command: Sequence[str]) -> Run:
    """Build every variant for the devices that a selector names; rows with resources and without samples.

    Raises:
        UsageError: there is no such device.
    """
    policy = Policy()
    with Worker(api.make_machine) as worker, user_errors():
        found, host = every_device(worker)
        devices = select(found, selector)
        header = header_of(devices, host, policy, command)
        plan: Plan = ()
        for dtype in dtypes:
            plan += gemm_plan(devices, chosen, [Gemm(_SIZE, _SIZE, _SIZE, dtype)])
        rows: list[Row] = []
        with Progress(api.stderr(), quiet=False, verbose=0) as progress:
            tell = progress.handle
            tell(Planned(len(plan), len(plan) * _BUILD_S))
            for number, step in enumerate(plan, 1):
                if isinstance(step, Skip):
                    rows.append(step.row)
                else:
                    tell(Started(number, step.label))
                    rows.append(worker.inspect(step, devices[step.device], policy))
                tell(Finished(rows[-1]))
    return Run(header, tuple(rows))
