"""Every form of every compute probe on every device: what it stores is what the host computes."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from gemmbench.gemm.numpy_blas import NumpyExecutor
from gemmbench.gemm.opencl import GemmExecutor
from gemmbench.ladder import control_case
from gemmbench.model.case import Case, Policy
from gemmbench.model.device import HOST, DeviceFacts
from gemmbench.model.instrument import NotMeasuredError
from gemmbench.opencl.runtime import Runtime
from gemmbench.probes import PROBES
from gemmbench.probes.arithmetic import ChainProbe, Form, MatrixProbe
from gemmbench.probes.opencl import ProbeExecutor, chains, matrix_tiles
from gemmbench.suite.plan import peak_plan
from tests import in_process
from tests.device.conftest import runtime

QUICK = Policy(budget_s=60.0, batch_s=0.001, min_batches=3, precision=10.0)

CHAIN_FORMS = [
    pytest.param(probe, dtype, form, width, id=f"{probe.name}-{dtype}{width}-{form.define}")
    for probe in PROBES.values()
    if isinstance(probe, ChainProbe)
    for dtype, forms in probe.forms.items()
    for form in forms
    for width in (1, 4)
    if width in probe.widths
]
MATRIX_ROWS = [
    pytest.param(
        probe, dtype, parameters, id=f"{probe.name}-{dtype}-{'-'.join(map(str, parameters.values()))}"
    )
    for probe in PROBES.values()
    if isinstance(probe, MatrixProbe)
    for dtype in probe.dtypes
    for parameters in probe.cases(dtype, ())
]


@pytest.mark.every_driver
@pytest.mark.parametrize(("probe", "dtype", "form", "width"), CHAIN_FORMS)
def test_a_form_computes_what_it_says(
    device: DeviceFacts, probe: ChainProbe, dtype: str, form: Form, width: int
) -> None:
    lacks = form.lacks(device)
    if lacks:
        pytest.skip(lacks)
    make = chains(runtime(device), replace(probe, forms={dtype: (form,)}), dtype, width)
    for count in (1, 2):
        program: dict[str, Any] = {"form": form.name, "unroll": 4, "kernels": "1,2"}
        bench = make({**program, "chains": count})
        assert bench.check(1) == ""
        items = int(bench.prepared.built.choice["items"])
        assert bench.prepared.unit.flops == probe.operations * items * width * count * 4
    # A check that finds nothing must be one that can: here with fewer steps in mind.
    assert bench.check(1, steps=1) != ""


@pytest.mark.parametrize(("probe", "dtype", "parameters"), MATRIX_ROWS)
def test_a_matrix_instruction_computes_products(
    device: DeviceFacts, probe: MatrixProbe, dtype: str, parameters: dict[str, int | float | str]
) -> None:
    lacks = probe.lacks(device, dtype)
    if lacks:
        pytest.skip(lacks)
    make = matrix_tiles(runtime(device), probe, dtype, parameters)
    bench = make({"chains": probe.chains[-1], "unroll": probe.unrolls[0], "groups": 1})
    assert bench.check(1) == ""
    # A check that finds nothing must be one that can: here with more steps in mind.
    assert bench.check(1, steps=probe.unrolls[0] + 2) != ""


def test_a_row_has_its_work_its_choice_and_its_evidence(device: DeviceFacts) -> None:
    (case,) = peak_plan([device], ["float"], [4], reach="plain")
    assert isinstance(case, Case)
    row = in_process.measured(ProbeExecutor(runtime(device)), case, QUICK, device)
    assert row.status == "ok"
    loop = ("items", "chains", "unroll", "trips")
    items, count, unroll, trips = (int(row.choice[name]) for name in loop)
    assert row.work.flops == 2 * items * 4 * count * unroll * trips
    assert set(row.samples) == {"kernel"}
    assert {"doubling", "event_over_wall"} <= set(row.check.figures)
    assert row.build_s is not None
    assert row.build_s > 0
    assert [line.split(":")[0] for line in row.race[:2]] == ["tried variants (G/s)", "tried chains (G/s)"]


def test_the_control_case_is_a_product_that_is_right(device: DeviceFacts) -> None:
    instrument = in_process.InProcess(GemmExecutor(runtime(device)))
    case = control_case(device, Case("peak", device.index, "flops", "double", {"width": 8}))
    with instrument.prepare(case, device, QUICK) as handle:
        assert handle.prepared.clocks[0] == "device"
        assert handle.batch("device", 4).count == 4
        assert handle.verify("before").check.verdict == "ok"


def test_without_a_device_the_control_case_is_a_product_of_the_hosts_blas() -> None:
    case = control_case(None, Case("gemm", HOST, "numpy", "double", {}))
    with in_process.InProcess(NumpyExecutor()).prepare(case, None, QUICK) as handle:
        assert handle.prepared.unit.flops == 2 * 256**3
        assert handle.batch(handle.prepared.clocks[0], 2).count == 2
        assert handle.verify("before").check.verdict == "ok"


def test_a_probe_that_does_not_compile_is_failed_with_the_drivers_words(
    device: DeviceFacts, monkeypatch: pytest.MonkeyPatch
) -> None:
    broken = '#error "broken on purpose"\n'
    monkeypatch.setattr("gemmbench.opencl.runtime.text", lambda *_: broken)
    case = Case("peak", device.index, "dot8", "char", {"width": 1})
    with pytest.raises(NotMeasuredError, match="no variant of the probe compiles") as caught:
        in_process.measured(ProbeExecutor(Runtime(device)), case, QUICK, device)
    assert caught.value.status == "failed"
    assert "broken on purpose" in caught.value.reason
