"""Every form of every compute probe on every device: what it stores is what the host computes."""

from __future__ import annotations

from dataclasses import replace

import pytest

from gemmbench.facts.records import DeviceFacts, Policy
from gemmbench.opencl import chains
from gemmbench.opencl.chains import ChainBench
from gemmbench.opencl.matrix_units import MatrixBench
from gemmbench.opencl.peak import PeakExecutor
from gemmbench.opencl.runtime import Runtime
from gemmbench.rules.executor import NotMeasuredError
from gemmbench.rules.plan import Case, peak_plan
from gemmbench.rules.probes import PROBES, ChainProbe, Form, MatrixProbe
from tests.device.conftest import runtime

QUICK = Policy(budget_s=0.05, settle_s=0.0, batch_s=0.001, min_batches=3)

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


@pytest.mark.parametrize(("probe", "dtype", "form", "width"), CHAIN_FORMS)
def test_a_form_computes_what_it_says(
    device: DeviceFacts,
    probe: ChainProbe,
    dtype: str,
    form: Form,
    width: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    lacks = form.lacks(device)
    if lacks:
        pytest.skip(lacks)
    monkeypatch.setattr(chains, "CHAINS", (1, 2))
    monkeypatch.setattr(chains, "UNROLLS", (4,))
    bench = ChainBench(runtime(device), replace(probe, forms={dtype: (form,)}), dtype, width)
    found = {int(contender.choice["chains"]): contender for contender in bench.race(0.0).ranked()}
    assert set(found) == {1, 2}
    for count, contender in found.items():
        assert bench.wrong_result(contender) == ""
        items = contender.launcher.items
        assert contender.operations == probe.operations * items * width * count * 4
    # A check that finds nothing must be one that can: here with fewer steps in mind.
    assert bench.wrong_result(replace(found[2], steps=1)) != ""


@pytest.mark.parametrize(("probe", "dtype", "parameters"), MATRIX_ROWS)
def test_a_matrix_instruction_computes_products(
    device: DeviceFacts, probe: MatrixProbe, dtype: str, parameters: dict[str, int | float | str]
) -> None:
    lacks = probe.lacks(device, dtype)
    if lacks:
        pytest.skip(lacks)
    few = replace(probe, chains=probe.chains[-1:], unrolls=probe.unrolls[:1], groups=(1,))
    bench = MatrixBench(runtime(device), few, dtype, parameters)
    (contender,) = bench.race(0.0).ranked()
    assert bench.wrong_result(contender) == ""
    assert bench.wrong_result(replace(contender, steps=contender.steps + 2)) != ""


def test_a_row_has_its_work_its_choice_and_its_evidence(device: DeviceFacts) -> None:
    (case,) = peak_plan([device], ["float"], [4], reach="plain")
    assert isinstance(case, Case)
    row = PeakExecutor(runtime(device)).run(case, QUICK, lambda stage: None)
    assert row.status == "ok"
    assert row.work is not None
    loop = ("items", "chains", "unroll", "trips")
    items, count, unroll, trips = (int(row.choice[name]) for name in loop)
    assert row.work.flops == 2 * items * 4 * count * unroll * trips
    assert set(row.samples) == {"kernel"}
    assert {"doubling", "event_over_wall"} <= set(row.check.figures)
    assert row.build_s is not None
    assert row.build_s > 0
    assert [line.split(":")[0] for line in row.race] == ["raced forms (G/s)", "raced chains (G/s)"]


def test_a_race_out_of_budget_says_so(device: DeviceFacts) -> None:
    bench = ChainBench(runtime(device), PROBES["flops"], "float", 4)  # type: ignore[arg-type]
    race = bench.race(0.0)
    assert {contender.choice["form"] for contender in race.ranked()} == {"a*b+c"}
    assert "the race was cut short" in race.notes[-1]


def test_a_probe_that_does_not_compile_is_failed_with_the_drivers_words(
    device: DeviceFacts, monkeypatch: pytest.MonkeyPatch
) -> None:
    broken = '#error "broken on purpose"\n'
    monkeypatch.setattr("gemmbench.opencl.runtime.text", lambda *_: broken)
    bench = ChainBench(Runtime(device), PROBES["mad24"], "int", 1)  # type: ignore[arg-type]
    with pytest.raises(NotMeasuredError, match="no form of the probe compiles") as caught:
        bench.race(1.0)
    assert caught.value.status == "failed"
    assert "broken on purpose" in caught.value.reason
