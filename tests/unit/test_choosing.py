"""What auto takes, from scripted measurements."""

from __future__ import annotations

from dataclasses import replace

import pytest
from msgspec import UNSET

from gemmbench.ladder import BASELINES, BY_NAME, ORDER, VARIANTS
from gemmbench.model.case import Case
from gemmbench.model.problem import Gemm
from gemmbench.model.row import Check, Problem, Row
from gemmbench.suite import auto
from gemmbench.suite.auto import CHOOSABLE, Point, break_even, by_default, ranked, untried
from gemmbench.suite.plan import gemm_plan, likely
from tests import fake_runs as fake


def point(
    variant: str,
    shape: tuple[int, int, int],
    host_gflops: float,
    device_gflops: float | None = None,
    dtype: str = "float",
    **parameters: int | float | str,
) -> Point:
    """What a variant took at these rates; the host's own BLAS has no device scope."""
    m, n, k = shape
    flops = 2 * m * n * k
    device_s = None if variant == "numpy" else flops / ((device_gflops or host_gflops) * 1e9)
    return Point(variant, dtype, parameters, m, n, k, flops / (host_gflops * 1e9), device_s)


def square(size: int) -> tuple[int, int, int]:
    return size, size, size


def best(problem: Gemm, *known: Point) -> tuple[str, str]:
    """The first choice and its reason."""
    first = ranked(problem, known)[0]
    return first.variant, first.reason


SWEEP = tuple(
    point(variant, square(size), rate)
    for size, host, device in ((64, 60.0, 10.0), (128, 100.0, 50.0), (256, 150.0, 200.0), (512, 180.0, 400.0))
    for variant, rate in (("numpy", host), ("gpu-tile", device), ("naive", device / 4))
)


def test_a_measured_problem_is_its_own_answer() -> None:
    assert best(Gemm(512, 512, 512), *SWEEP) == (
        "gpu-tile",
        "the fastest measured at 512x512x512, 400 GFLOPS with transfers",
    )


def test_a_problem_is_predicted_from_its_own_leading_dimensions_alone() -> None:
    tight, apart = Gemm(512, 512, 512), Gemm(512, 512, 512, ld=(544, 512, 512))
    rows = [
        fake.gemm_row(variant, Problem(512, 512, 512, ld=ld), 50.0, transfer=1.0)
        for variant, ld in (("tiled", UNSET), ("naive", (544, 512, 512)))
    ]
    known = auto.points(rows, 0)
    assert [choice.variant for choice in ranked(tight, known)] == ["tiled"]
    assert [choice.variant for choice in ranked(apart, known)] == ["naive"]
    assert untried(apart, known, ("tiled", "naive")) == ("tiled",)
    assert not ranked(replace(apart, ld=(640, 512, 512)), known)


def test_below_the_break_even_size_the_hosts_blas_is_taken() -> None:
    """The kernel has half the rate at 128, 4/3 of it at 256: the lines cross at log 2 / (log 2 + log 4/3)."""
    assert break_even(Gemm(64, 64, 64), SWEEP) == pytest.approx(128 * 2 ** (0.6931 / (0.6931 + 0.2877)), 1e-3)
    assert best(Gemm(64, 64, 64), *SWEEP) == (
        "numpy",
        "below the break-even size, about m = n = k = 209",
    )
    assert best(Gemm(100, 100, 100), *SWEEP)[0] == "numpy"
    assert best(Gemm(230, 230, 230), *SWEEP)[0] == "gpu-tile"


def test_where_no_kernel_is_ahead_there_is_no_break_even() -> None:
    known = SWEEP[:6]  # 64 and 128
    assert break_even(Gemm(64, 64, 64), known) is None
    assert best(Gemm(64, 64, 64), *known)[1] == "the fastest measured at 64x64x64, 60.0 GFLOPS with transfers"
    ahead = [point("numpy", square(64), 10.0), point("naive", square(64), 20.0)]
    assert break_even(Gemm(64, 64, 64), ahead) == pytest.approx(64)
    assert break_even(Gemm(64, 64, 64), []) is None


def test_between_measured_shapes_rates_are_averaged_by_distance() -> None:
    known = [point("naive", square(128), 10.0), point("naive", square(512), 1000.0)]
    assert ranked(Gemm(192, 192, 192), known)[0].reason == (
        "the fastest at the nearest measured shapes, 10.0 GFLOPS with transfers at 128x128x128"
    )
    # 256 is as far from the one as from the other: the rate is the geometric mean, 100 GFLOPS.
    beaten = point("tiled", square(256), 99.0)
    ahead = point("tiled", square(256), 101.0)
    assert best(Gemm(256, 256, 256), *known, beaten)[0] == "naive"
    assert best(Gemm(256, 256, 256), *known, ahead)[0] == "tiled"


def test_what_a_launch_takes_does_not_shrink_with_the_problem() -> None:
    """A kernel that needs 20 us for a tiny product, and numpy that needs 1: less work is numpy's."""
    near, tiny = (64, 64, 2048), (32, 32, 32)
    known = [point("cpu-packed", near, 117.0), point("numpy", near, 90.0)]
    smaller = Gemm(32, 32, 1024)
    assert best(smaller, *known)[0] == "cpu-packed"
    launches = [
        point("cpu-packed", tiny, 2 * 32**3 / 20e-6 / 1e9),
        point("numpy", tiny, 2 * 32**3 / 1e-6 / 1e9),
    ]
    assert best(smaller, *known, *launches)[0] == "numpy"


def test_what_a_launch_takes_does_not_grow_with_the_problem() -> None:
    """Between 128 and 256, where a kernel with a launch of 20 us is behind and ahead of numpy by as much.

    With rates alone, 189 goes to numpy: the kernel's at 128 is a launch above all.
    """
    times = {32: (20.2, 1.8), 128: (42.0, 32.0), 256: (170.0, 190.0)}
    known = [
        point(variant, square(size), 2 * size**3 / seconds / 1e3)
        for size, both in times.items()
        for variant, seconds in zip(("cpu-packed", "numpy"), both, strict=True)
    ]
    assert best(Gemm(189, 189, 189), *known)[0] == "cpu-packed"
    assert best(Gemm(150, 150, 150), *known)[0] == "numpy"


def test_a_shape_far_away_is_tried_and_else_the_nearest_decides_and_says_so() -> None:
    far = Gemm(1100, 1100, 1100)
    assert untried(far, SWEEP, ("numpy", "gpu-tile")) == ("numpy", "gpu-tile")
    assert best(far, *SWEEP) == (
        "gpu-tile",
        "nothing near 1100x1100x1100 was measured: the fastest at the nearest shape of its kind, 400 GFLOPS "
        "with transfers at 512x512x512",
    )
    assert ranked(replace(far, dtype="double"), SWEEP) == ()


def test_of_shapes_far_away_the_one_of_as_much_work_decides() -> None:
    """26x88x47 x 6 lies between: the largest length says 64, the work says 32."""
    small = replace(point("numpy", square(32), 9.0), batch=8)
    large = replace(point("naive", square(64), 9.0), batch=8)
    assert best(Gemm(26, 88, 47, batch=6), small, large)[0] == "numpy"


def test_batches_and_layouts_are_classes_of_their_own() -> None:
    batched = (
        replace(point("numpy", square(64), 9.0), batch=8),
        replace(point("naive", square(64), 5.0), batch=8),
    )
    single = replace(point("naive", square(64), 90.0))
    turned = replace(point("tiled", square(64), 80.0), trans_b=True)
    known = (single, turned, *batched)
    assert best(Gemm(64, 64, 64, batch=8), *known)[0] == "numpy"
    assert best(Gemm(64, 64, 64, batch=10), *known)[1].endswith("at 64x64x64 batch=8")
    assert best(Gemm(64, 64, 64, batch=64), *known)[1].startswith(
        "nothing near 64x64x64 batch=64 was measured"
    )
    assert best(Gemm(64, 64, 64), *known)[0] == "naive"
    assert best(Gemm(64, 64, 64, trans_b=True), *known)[0] == "tiled"
    assert ranked(Gemm(64, 64, 64, trans_a=True), known) == ()
    assert ranked(Gemm(64, 64, 64, trans_b=True, batch=8), known) == ()
    assert likely(fake.GPU, Gemm(64, 64, 64, batch=8))[0] == "small"
    assert set(likely(fake.CPU, Gemm(64, 64, 64, batch=8))) == {"cpu-packed", "numpy"}
    first = by_default(fake.CPU, Gemm(64, 64, 64, trans_a=True, batch=8), ("numpy",))
    assert first is not None
    assert first.reason.endswith("nothing like 64x64x64 TN batch=8 (TN, in batches) was measured")


def test_smaller_shapes_alone_leave_doubt() -> None:
    """Between shapes or close to one a variant need not be tried; beyond the largest it must be."""
    wanted = ("numpy", "tiled")
    assert untried(Gemm(400, 400, 400), SWEEP, wanted) == ("tiled",)
    assert untried(Gemm(600, 600, 600), SWEEP, wanted) == ("tiled",)
    assert untried(Gemm(1000, 1000, 1000), SWEEP, wanted) == wanted
    known = (*SWEEP, point("tiled", square(1000), 1.0))
    assert best(Gemm(1000, 1000, 1000), *SWEEP)[0] == "gpu-tile"
    assert [choice.variant for choice in ranked(Gemm(1000, 1000, 1000), known)][:2] == ["tiled", "gpu-tile"]


def test_narrow_shapes_are_predicted_from_shapes_as_narrow() -> None:
    wide = point("gpu-tile", (4096, 4096, 32), 9000.0)
    thin = [point("gpu-tile", (4096, 4096, 16), 100.0), point("naive", (4096, 4096, 16), 200.0)]
    assert best(Gemm(4096, 4096, 16), wide, *thin)[0] == "naive"
    assert best(Gemm(4096, 4096, 12), wide, *thin) == (
        "naive",
        "the fastest at the nearest measured shapes as narrow, 200 GFLOPS with transfers at 4096x4096x16",
    )
    nearly = point("tiled", (4096, 4096, 17), 9000.0)
    assert best(Gemm(4096, 4096, 16), nearly, *thin)[0] == "naive"
    assert ranked(Gemm(4096, 16, 4096), [wide, *thin]) == ()  # another dimension is narrow
    # Of batches the nearest decides, however narrow: the first of the order took eight times as long.
    batches = [
        replace(each, batch=8)
        for each in (point("naive", (64, 64, 64), 2.0), point("tiled", (64, 64, 64), 1.0))
    ]
    assert ranked(Gemm(41, 72, 16, batch=6), batches)[0].variant == "naive"
    assert best(Gemm(16, 16, 16), point("tiled", square(24), 1.0))[0] == "tiled"  # small, but not narrow


def test_a_vector_says_nothing_of_two_rows() -> None:
    vector = [point("cpu-packed", (1, 512, 512), 40.0), point("numpy", (1, 512, 512), 30.0)]
    assert best(Gemm(1, 600, 512), *vector)[0] == "cpu-packed"
    assert ranked(Gemm(2, 512, 512), vector) == ()
    four = [point("cpu-packed", (4, 512, 512), 40.0), point("numpy", (4, 512, 512), 60.0)]
    assert best(Gemm(2, 512, 512), *vector, *four)[0] == "numpy"
    assert best(Gemm(1, 512, 600), *vector, *four)[0] == "cpu-packed"


def test_kernels_that_tie_in_the_host_scope_are_told_apart_by_the_device() -> None:
    slow = point("naive", square(512), 102.0, 500.0)
    fast = point("gpu-tile", square(512), 100.0, 5000.0)
    slower = point("tiled", square(512), 90.0, 9000.0)
    assert best(Gemm(512, 512, 512), slow, fast, slower)[0] == "gpu-tile"
    host = point("numpy", square(512), 103.0)
    assert best(Gemm(512, 512, 512), slow, fast, host)[0] == "numpy"


def test_parameters_are_raced_like_variants() -> None:
    known = [
        point("tiled", square(64), 10.0, TS=8),
        point("tiled", square(64), 30.0, TS=16),
        point("tiled", square(64), 20.0, TS=32),
    ]
    assert ranked(Gemm(64, 64, 64), known)[0].parameters == {"TS": 16}
    assert [choice.parameters for choice in ranked(Gemm(64, 64, 64), known)][1:] == [{"TS": 32}, {"TS": 8}]


def test_the_newest_measurement_counts_and_other_types_do_not() -> None:
    known = [
        point("naive", square(64), 500.0),
        point("naive", square(64), 5.0),
        point("tiled", square(64), 9.0),
    ]
    assert best(Gemm(64, 64, 64), *known)[0] == "tiled"
    assert ranked(Gemm(64, 64, 64, "double"), known) == ()


def test_a_trial_is_told() -> None:
    known = [point("cpu-packed", square(64), 30.0), point("numpy", square(64), 20.0)]
    first = ranked(Gemm(64, 64, 64), known, tried=("cpu-packed", "numpy"))[0]
    assert first.reason == (
        "the fastest of a trial on this problem (cpu-packed, numpy), 30.0 GFLOPS with transfers"
    )


def test_nothing_is_predicted_of_an_empty_product() -> None:
    assert ranked(Gemm(64, 64, 0), SWEEP) == ()


def test_by_default_the_likeliest_that_runs_is_taken() -> None:
    gpu = replace(fake.GPU, type="gpu")
    choice = by_default(gpu, Gemm(64, 64, 64), ["numpy", "gpu-tile"])
    assert choice is not None
    assert (choice.variant, choice.parameters) == ("gpu-tile", None)
    assert "first of the order for a gpu" in choice.reason
    assert by_default(gpu, Gemm(64, 64, 64), []) is None


@pytest.mark.parametrize("shape", [square(64), (4096, 4096, 1)])
@pytest.mark.parametrize("device", [fake.CPU, fake.GPU, replace(fake.GPU, type="accelerator")])
def test_what_is_likely_exists_and_ends_at_the_hosts_blas(
    device: object, shape: tuple[int, int, int]
) -> None:
    found = likely(device, Gemm(*shape))  # type: ignore[arg-type]
    assert set(found) <= set(CHOOSABLE)
    assert found[-1] == "numpy"


@pytest.mark.parametrize("shape", [(4096, 4096, 16), (8, 4096, 4096), (4096, 1, 4096)])
@pytest.mark.parametrize("dtype", ["float", "double", "half", "bfloat16", "tf32", "char"])
def test_narrow_shapes_have_a_kernel_on_nvidia_gpus_in_every_type(
    dtype: str, shape: tuple[int, int, int]
) -> None:
    h200 = replace(fake.GPU, compute_capability=(9, 0))
    assert "half" not in h200.dtypes
    problem = Gemm(*shape, dtype)
    kernels = [BY_NAME[name] for name in likely(h200, problem) if name != "numpy"]
    steps = gemm_plan([h200], kernels, [problem])
    assert [step.variant for step in steps if isinstance(step, Case)]


def test_only_what_runs_on_every_machine_is_chosen() -> None:
    configurations = {each.name for variant in VARIANTS for each in variant.configurations}
    assert set(CHOOSABLE) == set(ORDER) - configurations - {"auto"} - (set(BASELINES) - {"numpy"})


def test_points_come_from_verified_rows_of_the_device_and_the_host() -> None:
    problem = Problem(64, 64, 64)
    good = fake.gemm_row("tiled", problem, 40.0, parameters={"TS": 16})
    host = fake.gemm_row("numpy", problem, 20.0, device=-1)
    rows: list[Row] = [
        good,
        host,
        replace(good, device=1),
        replace(good, status="wrong"),
        replace(good, check=Check("none")),
        replace(good, variant="clblast"),
        replace(good, variant="auto"),
        replace(good, problem=Problem(64, 64, 0)),
        replace(good, samples={"kernel": good.samples["kernel"]}),
        fake.peak_row(4, 300.0),
    ]
    assert [(one.variant, one.device_s is None) for one in auto.points(rows, 0)] == [
        ("tiled", False),
        ("numpy", True),
    ]
    assert auto.points(rows, 0)[0].parameters == {"TS": 16}
    assert [one.variant for one in auto.points(rows, 1)] == ["numpy", "tiled"]
