"""The looks at a device's counters stand around a batch, and in no launch that is timed: on every device.

The kernel is a stand-in, since only NVIDIA's GPUs have such counters: its clock runs at 1,500 MHz.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from gemmbench.gemm.opencl import GemmExecutor
from gemmbench.gemm.opencl_bench import Bench
from gemmbench.ladder import BY_NAME
from gemmbench.model.case import Case
from gemmbench.model.device import DeviceFacts
from gemmbench.model.instrument import Batch
from gemmbench.model.problem import Gemm
from gemmbench.opencl.runtime import Counters, Runtime, has_counters
from gemmbench.plan import gemm_plan
from tests.device.test_verification import QUICK

STAND_IN = """
__kernel void stamps(__global ulong *restrict stamps, uint from)
{
    __global ulong *own = stamps + 3 * (from + (uint)get_group_id(0));
    own[0] = get_group_id(0);
    own[1] = from ? 7 + 15000 : 7;
    own[2] = from ? 10000 : 0;
}
"""


def batch_of(bench: Bench) -> Batch:
    """Three problems, and their batch once they have run: a GPU's is in the queue before."""
    started = bench.start("device", 3, 1)
    return started if isinstance(started, Batch) else started.finish()


def test_a_batch_has_the_clock_of_its_counters_and_its_own_launches_alone(
    device: DeviceFacts, tmp_path: Path
) -> None:
    (tmp_path / "check").mkdir()
    (tmp_path / "check" / "clock.cl").write_text(STAND_IN)
    runtime = Runtime(device)
    runtime.__dict__["_counters"] = None
    assert runtime.span() is None
    (step,) = gemm_plan([device], [BY_NAME["naive"]], [Gemm(16, 16, 16)])
    assert isinstance(step, Case)
    bench = GemmExecutor(runtime).prepare(step, QUICK)
    plain = batch_of(bench)
    runtime.__dict__["_counters"] = Counters(runtime, str(tmp_path))
    counted = [batch_of(bench) for _ in range(5)]  # more than there are slots
    assert plain.mhz is None
    for batch in counted:
        assert batch.mhz == 1500.0
        assert batch.device is not None
        assert batch.device[1] - batch.device[0] <= batch.end - batch.begin
    assert {len(passes) for passes in bench.timed} == {1}


def test_only_nvidias_compiler_is_given_the_kernel(device: DeviceFacts) -> None:
    theirs = replace(device, type="gpu", extensions=("cl_nv_compiler_options",))
    assert has_counters(theirs)
    assert not has_counters(replace(theirs, type="cpu"))
    assert not has_counters(replace(theirs, extensions=()))
