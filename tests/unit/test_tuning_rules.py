"""What may be tried, how long a look is, and what the finals hold."""

from __future__ import annotations

from dataclasses import replace

import pytest

from gemmbench.ladder import BY_NAME, LADDER
from gemmbench.ladder.variant import Constraint, Parameters
from gemmbench.model.case import Skip
from gemmbench.model.device import DeviceFacts
from gemmbench.model.dtypes import CPU_UNITS
from gemmbench.model.instrument import too_slow
from gemmbench.model.problem import Gemm
from gemmbench.suite.options.comparing import default_sizes
from gemmbench.tune import space as tuning
from gemmbench.tune.space import TuningError
from tests import fake_runs as fake
from tests.fake_instrument import sample

REGISTER = BY_NAME["register"]
SQUARE = Gemm(512, 512, 512)


def test_the_space_is_what_constraints_and_device_leave() -> None:
    small = replace(fake.GPU, max_work_group_size=256)
    space = tuning.space(REGISTER, small, [SQUARE])
    assert space.combinations == 3 * 3 * 3 * 2 * 2
    assert len(space.configurations) < space.allowed <= space.combinations
    for one in space.configurations:
        assert one["BM"] // one["TM"] * (one["BN"] // one["TN"]) <= 256
    assert len({tuple(one.items()) for one in space.configurations}) == len(space.configurations)
    assert space.default in space.configurations


def test_constraints_count_apart_from_the_device() -> None:
    square = (Constraint(lambda p: p["BM"] == p["BN"], "a square tile"),)
    narrow = replace(REGISTER, parameters=replace(REGISTER.parameters, constraints=square))
    space = tuning.space(narrow, fake.CPU, [SQUARE])
    assert space.allowed == space.combinations // 3
    assert {one["BM"] - one["BN"] for one in space.configurations} == {0}


def test_a_preset_outside_the_declared_values_is_in_the_space() -> None:
    presets = {"default": {"BM": 48, "BN": 64, "BK": 16, "TM": 4, "TN": 4}}
    odd = replace(REGISTER, parameters=replace(REGISTER.parameters, presets=presets))
    space = tuning.space(odd, fake.CPU, [SQUARE])
    assert 48 in space.values["BM"]
    assert space.default in space.configurations


def test_launch_parameters_that_a_variant_chooses_itself_are_searched() -> None:
    image = BY_NAME["image-4x8"]
    space = tuning.space(image, fake.CPU, [SQUARE, Gemm(64, 64, 64)])
    chosen = image.chosen(SQUARE, fake.CPU, {})
    assert space.default == chosen
    assert space.default in space.configurations
    assert len(space.configurations) == 20
    assert space.chosen == {"WX", "WY"}
    assert space.asked(space.default) == {}  # the variant's choice, which differs from problem to problem
    other = next(each for each in space.configurations if each != space.default)
    assert space.asked(other) == other


def test_a_space_that_becomes_too_large_leaves_them_to_the_variant() -> None:
    packed = BY_NAME["cpu-packed"]
    space = tuning.space(packed, fake.CPU, [SQUARE])
    assert set(space.values) == set(packed.preset(fake.CPU.family, device=fake.CPU))
    assert not space.chosen


def test_a_kernel_without_parameters_has_nothing_to_tune() -> None:
    fixed = replace(BY_NAME["naive"], parameters=Parameters())
    with pytest.raises(TuningError, match="naive has no parameters to tune"):
        tuning.space(fixed, fake.CPU, [SQUARE])


@pytest.mark.parametrize(
    ("name", "device", "dtype", "words"),
    [
        ("numpy", fake.CPU, "float", "numpy is a library; there is nothing of it to tune"),
        ("register", fake.GPU, "half", "no configuration of register runs here: the device does not list"),
    ],
)
def test_what_cannot_be_tuned(name: str, device: DeviceFacts, dtype: str, words: str) -> None:
    with pytest.raises(TuningError, match=words):
        tuning.space(BY_NAME[name], device, [Gemm(64, 64, 64, dtype)])


def test_every_problem_must_suit() -> None:
    tight = replace(fake.CPU, max_alloc_bytes=1 << 20)
    assert tuning.space(REGISTER, tight, [SQUARE]).configurations
    with pytest.raises(TuningError, match=r"the device allows 1\.00 MiB in one buffer"):
        tuning.space(REGISTER, tight, [SQUARE, Gemm(2048, 64, 2048)])


_EXTENSIONS = {
    name
    for each in BY_NAME.values()
    for name in (*each.needs.extensions(each.preset("gpu")), *sum(each.needs.type_extensions.values(), ()))
}


@pytest.mark.parametrize("name", LADDER)
def test_every_kernel_has_a_space_or_says_why_not(name: str) -> None:
    whole = BY_NAME[name]
    few = {key: replace(one, values=one.values[:2]) for key, one in whole.parameters.items()}
    variant = replace(
        whole, parameters=replace(whole.parameters, declared=few)
    )  # the preset's own values come to these
    dtype = "float" if "float" in variant.needs.dtypes else variant.needs.dtypes[0]
    wanted = {word for names in _EXTENSIONS for word in names.split("|")}
    device = replace(
        fake.GPU,
        type=variant.needs.device_type or "gpu",
        dtypes=(*fake.GPU.dtypes, dtype),
        extensions=(*fake.GPU.extensions, *wanted),
        compute_capability=(9, 0),
        units=CPU_UNITS,
        platform="Intel(R) OpenCL" if variant.needs.device_type else fake.GPU.platform,
    )
    problem = next(each for m in (512, 16) if not variant.needs.unfit(each := Gemm(m, 512, 512, dtype)))
    space = tuning.space(variant, device, [problem])
    for one in (space.configurations[0], space.configurations[-1]):
        step = tuning.case(device, variant, problem, one)
        assert not isinstance(step, Skip)
        assert step.parameters == one


def test_the_other_problems_are_small_odd_and_large() -> None:
    assert [p.shape for p in tuning.other_problems([Gemm(512, 256, 64)])] == [
        "128x64x16", "511x255x63", "1024x512x128",
    ]  # fmt: skip
    both = [SQUARE, Gemm(1024, 1024, 1024)]
    assert SQUARE not in tuning.other_problems(both)
    assert tuning.other_problems([Gemm(1, 1, 1)])[0].m > 0


def test_a_look_is_short_but_long_enough_for_a_slow_device() -> None:
    first = tuning.search_policy(300, 30)
    assert first.budget_s == 30
    fast = tuning.search_policy(300, 30, 1e-4)
    assert fast.budget_s < 1
    slow = tuning.search_policy(300, 30, 1.0)
    assert slow.budget_s == pytest.approx(14)  # seven problems of twice the shipped preset's time
    assert fast.time_limit_s == 30


def test_shares_leave_time_for_the_finals() -> None:
    sample_s, search_s = tuning.shares_s(300)
    assert 0 < sample_s < search_s < 300


def test_finals_fit_their_share() -> None:
    budget_s = 300.0
    found = tuning.finals(tuning.finals_s(budget_s), 30, [SQUARE], 1e-3, 0.3)
    assert len(found.others) == 3
    assert found.left_out == ()
    assert max(policy.budget_s for policy in found.policies.values()) <= 3
    rows = dict.fromkeys(found.policies, 2 * tuning.ROUNDS)
    rows[SQUARE] += tuning.FINALISTS + 1
    spent_s = sum(rows[problem] * (0.3 + policy.budget_s) for problem, policy in found.policies.items())
    assert spent_s <= budget_s - tuning.shares_s(budget_s)[1]


def test_a_short_budget_leaves_the_large_problem_out() -> None:
    found = tuning.finals(12, 30, [SQUARE], 0.02, 0.1)
    assert [p.m for p in found.left_out] == [1024]
    assert [p.m for p in found.others] == [128, 511]
    assert tuning.finals(0.6, 30, [SQUARE], 0.02, 0.3).others == ()


def test_finals_never_refuse_the_shipped_preset() -> None:
    found = tuning.finals(3, 30, [SQUARE], 3.0, 0.3)
    assert too_slow(3.0, found.policies[SQUARE]) is None


def test_a_card_is_searched_with_more_than_a_processor() -> None:
    assert default_sizes(fake.GPU) == (4096,)
    assert default_sizes(replace(fake.GPU, unified_memory=True)) == (1024,)
    assert default_sizes(fake.CPU) == (1024,)


def test_a_patient_measurement_is_never_refused_and_short() -> None:
    policy = tuning.patient_policy(20.0, 30.0)
    assert too_slow(100.0, policy) is None
    now, calls = 0.0, 0

    def batch(count: int) -> dict[str, float]:
        nonlocal now, calls
        calls += 1
        now += 5.0 * count * (1 + calls % 2)
        return {"device": 5.0 * (1 + calls % 2)}

    found = sample(batch, policy, policy.budget_s, lambda: now, one_s=5.0)
    assert len(found["device"].seconds) == calls == 3
