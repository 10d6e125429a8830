"""A user's own kernel: its description is data, formulas are whitelisted, a wrong kernel is found."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from gemmbench import ladder
from gemmbench.gemm import verify
from gemmbench.gemm.verify import ExactTest, Terms
from gemmbench.ladder.formulas import formula
from gemmbench.ladder.own import own_kernel, read_variant
from gemmbench.ladder.variant import OWN, ParameterError
from gemmbench.measure.child import decode_message, encode_message
from gemmbench.model import kernel_files
from gemmbench.model.case import Case, Skip
from gemmbench.model.dtypes import HostArray
from gemmbench.model.instrument import Build
from gemmbench.model.kernel_files import KernelFileError
from gemmbench.model.problem import Gemm
from gemmbench.suite.plan import Axes, gemm_plan, rebuild_plan
from tests import fake_runs
from tests.in_process import plan_case

ALL = '["m", "n", "k", "alpha", "A", "lda", "B", "ldb", "beta", "C", "ldc"]'
HEAD = {"arguments": ALL, "work_group": '["TS", "TS"]', "tile": '["TS", "2 * TS", 4]'}
CODE = "__kernel void f(int m) { }\n"


LOCAL = "__kernel void f(int m, __local float *a) { }\n"
SIZED = "__kernel void f(int m) { int n = get_global_size(0); }\n"
CAT = "#define CAT2(a, b) a##_##b\n#define CAT(a, b) CAT2(a, b)\n"


def described(
    folder: Path, file: str = "mine.cl", code: str = CODE, parameters: str = "TS = [16, 8]", **keys: str
) -> Path:
    """A kernel file with a description; a key of "" is left out."""
    lines = [f"{key} = {value}" for key, value in {**HEAD, **keys}.items() if value]
    lines += ["[parameters]", parameters]
    (folder / file).write_text("/* gemmbench\n" + "\n".join(lines) + "\n*/\n" + code, encoding="utf-8")
    return folder / file


# --- formulas ---


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("TS", 16),
        (7, 7),
        ("2 * TS - 1", 31),
        ("-TS + 20", 4),
        ("TS // 3 + TS % 3", 6),
        ("ceil_div(TS, 5)", 4),
        ("round_up(TS, 5)", 20),
        ("min(TS, 3) + max(TS, 3)", 19),
    ],
)
def test_a_formula_is_calculated(text: str | int, value: int) -> None:
    assert formula(text, ["TS"])({"TS": 16}) == value


@pytest.mark.parametrize(
    "text",
    [
        "__import__('os').system('true')", "TS.real", "TS ** 9", "[TS]", "lambda: 1", "1.5", "True", "'TS'",
        "TS if TS else 1", "TS and 1", "min(*[TS])", "min(TS)", "max(TS, default=1)", "TX", "open(TS)", "",
        "TS +", "TS < 1", "TS / 2", "TS << 99", "\0", "(" * 150 + "TS" + ")" * 150, "TS;TS", "TS" * 200,
        "(TS := 3)",
    ],
)  # fmt: skip
def test_what_is_no_formula_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"formula|more than|names TX"):
        formula(text, ["TS"])


def test_a_formula_that_divides_by_zero_or_explodes_says_so() -> None:
    with pytest.raises(ParameterError, match="divides by zero"):
        formula("1 // TS", ["TS"])({"TS": 0})
    with pytest.raises(ParameterError, match="exceeds 32-bit integers"):
        formula("TS * TS * TS * TS", ["TS"])({"TS": 65536})
    with pytest.raises(ParameterError, match="exceeds 32-bit integers"):
        formula(" * ".join(["A"] * 40), ["A"])({"A": 2**31 - 1})  # beyond what a float holds


@pytest.mark.parametrize("text", ["1and 2", r"'\d'", "1is 1"])
def test_what_is_no_formula_brings_no_warning_of_pythons(text: str) -> None:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        with pytest.raises(ValueError, match=r"formula|more than"):
            formula(text, ["TS"])
    assert caught == []


# --- descriptions ---


def test_a_description_becomes_a_variant(tmp_path: Path) -> None:
    made = own_kernel(described(tmp_path, types='["float", "double"]', idea='"mine"', local='"TS * TS"'))
    assert (made.name, made.family, made.idea, made.needs.dtypes) == (
        "mine",
        OWN,
        "mine",
        ("float", "double"),
    )
    assert made.preset("cpu") == {"TS": 16}
    assert list(made.space()) == [{"TS": 8}, {"TS": 16}]
    assert made.local_bytes("double", {"TS": 8}) == 512
    assert made.tile_of({"TS": 8}) == (8, 16)
    values = made.values(Gemm(100, 70, 9), {"TS": 16})
    (step,) = made.steps(values)
    assert (step.kernel, step.group(values), step.items(values)) == ("f", (16, 16), (3 * 16, 7 * 16))
    assert made.launches.without == ()
    assert made.limits == ""


def test_a_description_next_to_the_file_is_the_same_kernel(tmp_path: Path) -> None:
    file = described(tmp_path)
    inside = own_kernel(file)
    toml = "\n".join(f"{key} = {value}" for key, value in HEAD.items()) + "\n[parameters]\nTS = [16, 8]\n"
    file.write_text(CODE)
    file.with_suffix(".toml").write_text(toml)
    beside = own_kernel(file)
    assert beside.parameters.declared == inside.parameters.declared
    before = beside.fingerprint("float", {"TS": 16})
    file.with_suffix(".toml").write_text(toml.replace('"2 * TS"', '"TS"'))
    assert own_kernel(file).fingerprint("float", {"TS": 16}) != before


def test_what_is_left_out_is_fixed_and_said(tmp_path: Path) -> None:
    made = own_kernel(described(tmp_path, arguments='["A", "B", "C", "m", "n", "k", "lda"]'))
    assert made.launches.without == ("alpha", "beta", "ldb", "ldc")
    assert made.limits.startswith("verified only for alpha = 1, beta = 0, rows of B and C without gaps: ")
    plan = gemm_plan(
        [fake_runs.CPU],
        [made],
        [Gemm(8, 8, 8), Gemm(8, 8, 8, beta=1.0), Gemm(8, 8, 8, ld=(9, 8, 8)), Gemm(8, 8, 8, ld=(8, 8, 9))],
    )
    reasons = [step.row.reason if isinstance(step, Skip) else "" for step in plan]
    assert reasons == ["", "mine supports only beta = 0, not 1", "", "mine supports only ldc = 8, not 9"]
    assert isinstance(plan[0], Case)
    assert made.limits in plan[0].notes
    assert plan[0].row("ok").own == "mine.cl"


LAYOUTS: list[tuple[dict[str, str], tuple[str, ...], str]] = [
    ({}, ("A", "lda", "B", "ldb", "C", "ldc"), ""),
    ({"transposed": '["A"]'}, ("AP", "m", "B", "ldb", "C", "ldc"), "transpose"),
    ({"order": '"column-major"'}, ("B", "ldb", "A", "lda", "C", "ldc"), ""),
    ({"order": '"column-major"', "transposed": '["A"]'}, ("BP", "k", "A", "lda", "C", "ldc"), "transpose"),
    ({"pad": "true"}, ("AP", "kp", "BP", "np", "CP", "np"), "pad pad pad unpad"),
    ({"pad": "true", "transposed": '["B"]'}, ("AP", "kp", "BP", "kp", "CP", "np"), "pad transpose pad unpad"),
]


@pytest.mark.parametrize(("keys", "operands", "helpers"), LAYOUTS)
def test_what_a_kernel_wants_of_layouts(
    tmp_path: Path, keys: dict[str, str], operands: tuple[str, ...], helpers: str
) -> None:
    made = own_kernel(described(tmp_path, **keys))
    (kernel,) = [step for step in made.launches.passes if step.role == "multiply"]
    assert tuple(kernel.arguments[number] for number in (4, 5, 6, 7, 9, 10)) == operands
    assert " ".join(step.role for step in made.launches.passes if step is not kernel) == helpers
    values = made.values(Gemm(33, 70, 9), {"TS": 16})
    assert all(
        name in values or name in made.launches.temporaries or name in "ABC alpha beta"
        for name in kernel.arguments
    )
    tiles = {"column-major": (32, 48)}.get(keys.get("order", "").strip('"'))
    across, down = (3, 3)  # 70 columns in tiles of 32, 33 rows in tiles of 16
    if tiles:
        across, down = 5, 2  # the kernel's rows are the columns: 70 in tiles of 16, 33 in tiles of 32
    assert kernel.items(values) == (across * 16, down * 16)


def test_offsets_and_formulas_are_arguments(tmp_path: Path) -> None:
    arguments = '["A", "offa", "B", "C", "ceil_div(k, TS)", "m * n"]'
    made = own_kernel(described(tmp_path, arguments=arguments))
    values = made.values(Gemm(3, 5, 33), {"TS": 16})
    assert [values[name] for name in ("offa", "ceil_div(k, TS)", "m * n")] == [0, 3, 15]


REFUSED: list[tuple[dict[str, str], str]] = [
    ({"arguments": '["A", "B"]'}, "arguments: C is missing"),
    ({"arguments": '["A", "A", "B", "C"]'}, "arguments: A stands there twice"),
    ({"arguments": '["A", "B", "C", "M"]'}, "arguments: 'M' names M"),
    ({"argument": "[]"}, "there is no field `argument`"),
    ({"tile": ""}, "it lacks the field `tile`"),
    ({"tile": '"TS"'}, "expected `array`, got `str` - at `tile`"),
    ({"tile": '["TS"]'}, "expected `array` of length >= 2 - at `tile`"),
    ({"tile": '["TX", 1]'}, "tile: 'TX' names TX, which there is not (there are TS)"),
    ({"tile": '["TS - 16", 1]'}, "tile must be 1 or more"),
    ({"work_group": "[1, 1, 1]"}, "say with work_items"),
    ({"work_items": '["n"]'}, "work_items has 1 formulas and work_group 2"),
    ({"types": '["quad"]'}, "invalid enum value 'quad' - at `types[0]`"),
    ({"types": "[]"}, "expected `array` of length >= 1 - at `types`"),
    ({"options": '["-I/etc"]'}, "options: '-I/etc' is none"),
    ({"name": '"../mine"'}, "name = '../mine'"),
    ({"kernel": '"g"'}, "kernel = 'g' is not in the file (there is f)"),
    ({"order": '"diagonal"'}, "invalid enum value 'diagonal'"),
    ({"constraints": '["TS"]'}, "must compare"),
    ({"constraints": '["TS == 8"]'}, "TS == 8 must hold"),
    ({"parameters": "ts = [1]"}, "parameters: ts is no name"),
    ({"parameters": "REAL = [1]"}, "parameters: REAL is no name"),
    ({"parameters": "TS = []"}, "expected `array` of length >= 1 - at `parameters[...]`"),
    ({"parameters": "TS = [-1]"}, "expected `int` >= 0 - at `parameters[...][0]`"),
    ({"parameters": "TS = ="}, "line 6"),
    (
        {"parameters": "\n".join(f"{name} = {list(range(9))}" for name in ("TS", *"ABCDEF"))},
        "parameters have 4,782,969 combinations, at most 250,000",
    ),
    ({"arguments": '["A", "B", "C"]'}, "arguments: m, n, k are missing: gemmbench runs a kernel at several"),
    ({"arguments": '["A", "lda", "B", "ldb", "C", "ldc"]'}, "arguments: m, n, k are missing"),
    ({"arguments": '["m", "n", "A", "lda", "B", "ldb", "C", "ldc"]'}, "arguments: k is missing"),
    ({"arguments": '["A", "B", "C", "n", "k"]'}, "arguments: m is missing"),
    ({"arguments": '["A", "B", "C", "k"]', "pad": "true"}, "arguments: n is missing"),
    ({"arguments": '["A", "B", "C", "k"]', "pad": "true", "order": '"column-major"'}, "m is missing"),
    ({"arguments": '["A", "B", "C"]', "pad": "true", "code": SIZED}, "arguments: k is missing"),
    ({"code": "void f() {}"}, "has no visible __kernel void"),
    ({"code": "#define K __kernel void\nK f(int m) {}"}, "has no visible __kernel void: kernel = "),
    (
        {"code": f"{CAT}__kernel void CAT(mm, f32)(int m) {{ }}"},
        'a macro makes the name of the kernel: kernel = "',
    ),
    ({"code": "#define f mm\n" + CODE}, "a macro makes the name of the kernel"),
    ({"code": CODE, "options": '["-Df=mm"]'}, "a macro makes the name of the kernel"),
    ({"code": LOCAL}, "f: local memory as an argument is not supported; declare it in the kernel"),
    ({"code": LOCAL, "arguments": ALL.replace('"ldc"', '"ldc", "LA"')}, "f: local memory as an argument"),
    ({"code": "#define S __local\n" + LOCAL.replace("__local", "S")}, "f: local memory as an argument"),
    ({"code": LOCAL.replace(" f(", " CAT(f, g)("), "kernel": '"CAT"'}, "CAT: local memory as an argument"),
    ({"code": CODE + CODE.replace("f(", "g(")}, "has 2 kernels (f, g)"),
]


@pytest.mark.parametrize(("keys", "sentence"), REFUSED, ids=[sentence for _, sentence in REFUSED])
def test_a_description_that_cannot_be_used_is_one_sentence(
    tmp_path: Path, keys: dict[str, str], sentence: str
) -> None:
    with pytest.raises(KernelFileError) as caught:
        own_kernel(described(tmp_path, **keys))
    assert str(caught.value).startswith("mine.cl")
    assert sentence in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "signature",
    [
        "__kernel void mm(",
        "kernel void mm (",
        "void __kernel mm(",
        "void kernel\nmm(",
        "__kernel __attribute__((reqd_work_group_size(16, 16, 1))) void mm(",
        "__kernel void __attribute__((reqd_work_group_size(((TS)), (TS) * (1), 1))) mm(",
        "__attribute__((vec_type_hint(float4))) __kernel void mm(",
        "void __attribute__((vec_type_hint(float4))) __kernel __attribute__((aligned(8))) mm(",
        "static int helper(int kernels) { return 0; }\n__kernel /* the one */ void // of them\nmm(",
        "#define GROUP(x, y) __attribute__((reqd_work_group_size(x, y, 1)))\n__kernel GROUP(16, 16) void mm(",
        "#if A\n#define S 1\n#endif\n__kernel\n#if B\nvoid\n#else\nvoid\n#endif\nmm(",
        "__kernel void mm(int m);\n__kernel void mm(",
        "__kernel void old(__local int *x);\n#define KERNEL mm\n//kernel = mm\n__kernel void mm(",
    ],
)
def test_a_kernel_is_known_in_every_order_of_its_signature(tmp_path: Path, signature: str) -> None:
    keys = {"kernel": '"mm"'} if "old(" in signature else {}
    made = own_kernel(described(tmp_path, code=f"{signature}int m) {{ }}\n", **keys))
    assert [step.kernel for step in made.launches.passes] == ["mm"]


@pytest.mark.parametrize(
    ("code", "options"),
    [
        (f"{CAT}__kernel void CAT(mm, f32)(int m) {{ }}", "[]"),
        ("__kernel void NAME(int m) { }", '["-DNAME=mm_f32"]'),
        ("#define K(name) __kernel void name##_f32(int m) { }\nK(mm)", "[]"),
        (
            "#ifdef A\n__kernel void mm_f32(local int *a) {}\n#else\n__kernel void mm_f32(int m) { }\n#endif",
            "[]",
        ),
    ],
)
def test_the_program_is_asked_for_a_kernel_that_is_described(tmp_path: Path, code: str, options: str) -> None:
    made = own_kernel(described(tmp_path, code=code, options=options, kernel='"mm_f32"'))
    assert [step.kernel for step in made.launches.passes] == ["mm_f32"]


@pytest.mark.parametrize(
    "keys",
    [
        {"arguments": '["A", "B", "C", "n", "k"]', "pad": "true"},
        {"arguments": '["A", "B", "C", "m", "k"]', "pad": "true", "order": '"column-major"'},
        {"arguments": '["A", "lda", "B", "ldb", "C", "ldc", "k"]', "pad": "true"},
        {"arguments": '["A", "B", "C", "n", "k"]', "tile": '["1", "TS"]'},
        {"arguments": '["A", "B", "C", "n", "k"]', "code": SIZED},
        {"arguments": '["A", "B", "C", "ceil_div(m, TS)", "n * 4", "k - 1"]'},
    ],
)
def test_a_length_may_come_from_elsewhere(tmp_path: Path, keys: dict[str, str]) -> None:
    assert own_kernel(described(tmp_path, **keys)).name == "mine"


def test_a_file_that_cannot_be_read_is_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "bytes.cl").write_bytes(b"\xff\xfe\x00")
    (tmp_path / "bare.cl").write_text(CODE)
    (tmp_path / "lost.cl").write_text('#include "lost.h"\n')
    for name, sentence in {
        "none.cl": "no such file",
        "bytes.cl": "UTF-8",
        "bare.cl": "kernels --new",
        "lost.cl": 'includes "lost.h"',
    }.items():
        with pytest.raises(KernelFileError, match=sentence):
            own_kernel(tmp_path / name)


@pytest.mark.parametrize("ending", ["\n", "\r\n"])
def test_a_byte_order_mark_is_no_part_of_a_file(tmp_path: Path, ending: str) -> None:
    (tmp_path / "part.h").write_text("\ufeff#define HALF 2\n", encoding="utf-8")
    file = described(tmp_path, code=f'#include "part.h"\n{CODE}')
    file.write_text("\ufeff" + file.read_text(), encoding="utf-8", newline=ending)
    made = own_kernel(file)
    text = kernel_files.text(made.files[0])
    assert text.startswith("/* gemmbench\n")
    assert "\ufeff" not in text
    file.write_text(CODE)
    toml = "\n".join(f"{key} = {value}" for key, value in HEAD.items()) + "\n[parameters]\nTS = [16, 8]\n"
    file.with_suffix(".toml").write_text("\ufeff" + toml, encoding="utf-8")
    assert own_kernel(file).parameters.declared == made.parameters.declared


def test_an_include_next_to_the_file_is_part_of_it(tmp_path: Path) -> None:
    (tmp_path / "part.h").write_text("#define HALF 2\n")
    made = own_kernel(described(tmp_path, code=f'#include "common.clh"\n#include "part.h"\n{CODE}'))
    text = kernel_files.text(made.files[0])
    assert "#define HALF 2" in text
    assert "#define SCALAR" in text
    before = made.fingerprint("float", {"TS": 16})
    (tmp_path / "part.h").write_text("#define HALF 3\n")
    assert own_kernel(tmp_path / "mine.cl").fingerprint("float", {"TS": 16}) != before


def test_the_scaffold_is_a_kernel(tmp_path: Path) -> None:
    file = tmp_path / "start.cl"
    file.write_text(kernel_files.raw(kernel_files.SCAFFOLD))
    made = own_kernel(file)
    assert (made.name, made.limits, made.preset("gpu")) == ("start", "", {"TS": 16})


# --- cases, plans, order ---


def test_a_case_takes_its_kernel_to_another_process(tmp_path: Path) -> None:
    made = own_kernel(described(tmp_path))
    step = plan_case(fake_runs.CPU, made, Gemm(8, 8, 8))
    kernel_files._OWN.clear()  # another process has none
    read_variant.cache_clear()
    there = decode_message(encode_message(Build(step, fake_runs.CPU))).case
    variant = ladder.variant_of(there)
    assert variant.fingerprint("float", {"TS": 16}) == step.source
    assert "__kernel void f" in kernel_files.text(variant.files[0])


def test_own_kernels_stand_behind_the_ladder() -> None:
    order = ladder.order(["mine"])
    assert order.index("intel-block") < order.index("mine") < order.index("numpy")


def test_a_baseline_is_measured_interleaved_with_the_old_file(tmp_path: Path) -> None:
    (tmp_path / "old").mkdir()
    now = own_kernel(described(tmp_path, parameters="TS = [16, 8]\nWX = [4]"))
    old = own_kernel(described(tmp_path / "old", "before.cl", "// before\n" + CODE))
    step = plan_case(fake_runs.CPU, now, Gemm(8, 8, 8), {"TS": 8})
    row = step.row("ok")
    (lost,) = rebuild_plan([row], [fake_runs.CPU], {0: 0})
    assert lost.row.reason == "mine is your own kernel: pass --kernel-file mine.cl"
    (again,) = rebuild_plan([row], [fake_runs.CPU], {0: 0}, "", {"mine": now}, {"mine": old})
    assert again.source == step.source
    past = again.partner
    assert isinstance(past, Case)
    assert (past.own, past.folder, past.parameters) == (old.own, "", {"TS": 8})
    assert ladder.variant_of(past) is old


def test_the_old_file_runs_with_the_defaults_of_its_time(tmp_path: Path) -> None:
    (tmp_path / "old").mkdir()
    now = own_kernel(described(tmp_path, parameters="TS = [16, 8]"))
    old = own_kernel(described(tmp_path / "old", parameters="TS = [8, 16]"))
    row = plan_case(fake_runs.CPU, old, Gemm(8, 8, 8), axes=Axes(("fast",))).row("ok")
    (again,) = rebuild_plan([row], [fake_runs.CPU], {0: 0}, "", {"mine": now}, {"mine": old})
    assert again.parameters == {"TS": 16, "math": "fast"}
    past = again.partner
    assert isinstance(past, Case)
    assert past.parameters == {"TS": 8, "math": "fast"}
    assert ladder.variant_of(past).with_math(past.math).fingerprint("float", past.numbers) == row.source


# --- the exact test: kernels in Python, each with a fault ---


def simulated(
    test: ExactTest,
    ld: Mapping[str, int] | None = None,
    alpha: float | None = None,
    beta: float | None = None,
    reads_c: bool = False,
    rows: int = 0,
    columns: int = 0,
    steps: int | None = None,
    transposed: str = "",
) -> HostArray:
    """What a kernel leaves in C: right, but for what is given."""
    problem = test.problem
    lengths = {**vars(test.layout), **(ld or {})}
    m, n, k = problem.m, problem.n, problem.k if steps is None else steps
    alpha, beta = problem.alpha if alpha is None else alpha, problem.beta if beta is None else beta
    i, j, p = np.arange(m + rows)[:, None], np.arange(n + columns)[None, :], np.arange(k)
    flat = {
        name: np.append(values, np.full(9999, np.nan, values.dtype)) for name, values in test.host.items()
    }
    at = p[None] * lengths["lda"] + i if "A" in transposed else i * lengths["lda"] + p[None]
    bt = j * lengths["ldb"] + p[:, None] if "B" in transposed else p[:, None] * lengths["ldb"] + j
    product = alpha * (flat["A"][at].astype(float) @ flat["B"][bt].astype(float))
    where = (i * lengths["ldc"] + j).ravel()
    c = test.host["C"].copy()
    kept = where < c.size
    if beta != 0 or reads_c:
        product = product + beta * flat["C"][where].reshape(product.shape)
    c[where[kept]] = product.ravel()[kept]
    return c


def kernel(run: verify.Run, without: tuple[str, ...] = ()) -> verify.Kernel:
    return verify.Kernel(run, 16, without, Terms((16, 16)), room=16)


def whole(length: int) -> int:
    return length - length % 16


FAULTS: dict[str, verify.Run] = {
    "ldc": lambda test: simulated(test, {"ldc": test.problem.n}),
    "lda": lambda test: simulated(test, {"lda": test.problem.k}),
    "reads C": lambda test: simulated(test, reads_c=True),
    "no alpha": lambda test: simulated(test, alpha=1.0),
    "no beta": lambda test: simulated(test, beta=0.0),
    "no guard": lambda test: simulated(test, rows=-test.problem.m % 16),
    "last row": lambda test: simulated(test, rows=-1),
    "last step": lambda test: simulated(test, steps=whole(test.problem.k)),
    "past k": lambda test: simulated(test, steps=test.problem.k + -test.problem.k % 16),
    "A": lambda test: simulated(test, transposed="A"),
    "B": lambda test: simulated(test, transposed="B"),
    "nothing": lambda test: test.host["C"].copy(),
    "past the last row of aligned ones": lambda test: simulated(test, rows=0 if test.layout.lda % 64 else 1),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_wrong_kernel_is_wrong_on_the_exact_test(fault: str) -> None:
    reason = verify.exact_test_error(kernel(FAULTS[fault]), "float")
    assert "on the exact test; " in reason
    cause = "reads C although beta is 0: C held NaN; "
    assert reason.startswith(cause) == (fault == "reads C")


@pytest.mark.parametrize("odd_k", [False, True])
def test_a_kernel_that_only_writes_behind_c_is_wrong(odd_k: bool) -> None:
    def beyond(test: ExactTest) -> HostArray:
        c = simulated(test)
        if not odd_k or test.problem.k % 16:
            c[-1] = 7
        return c

    assert "exact test" in verify.exact_test_error(kernel(beyond), "float")


def test_a_right_kernel_has_no_fault() -> None:
    assert verify.exact_test_error(kernel(simulated), "float") == ""
    bare = kernel(
        lambda test: simulated(test, {"ldc": test.problem.n}, 1.0, 0.0), without=("alpha", "beta", "ldc")
    )
    assert verify.exact_test_error(bare, "float") == ""


def test_a_kernel_that_reads_c_is_right_for_a_user_who_asks_for_another_beta() -> None:
    reads = replace(kernel(FAULTS["reads C"]), may_read_c=True)
    assert verify.exact_test_error(reads, "float") == ""
    wrong = replace(kernel(FAULTS["no beta"]), may_read_c=True)
    assert "on the exact test; " in verify.exact_test_error(wrong, "float")
    nothing = replace(kernel(FAULTS["nothing"]), may_read_c=True)
    assert "on the exact test; " in verify.exact_test_error(nothing, "float")


def test_a_column_major_kernel_is_spoken_of_in_its_own_terms() -> None:
    terms = Terms((16, 32), by_columns=True)
    test = ExactTest.of(Gemm(35, 69, 17, alpha=2.0, beta=-1.0))
    described = "m 69, n 35, k 17, alpha 2, beta -1, lda 74, ldb 20, ldc 76"

    result = simulated(test)
    result[20 * test.layout.ldc + 40] += 1  # row 40 and column 20 of the kernel's C
    reason = test.error(result, terms)
    assert "; C[40][20] is " in reason
    assert reason.endswith(f", in the tile of rows 32 to 63 and columns 16 to 31 ({described})")

    result = simulated(test)
    result[69] = -1
    reason = test.error(result, terms)
    assert f"the first is C[69][0], -1, where C has 69 rows of 35 ({described})" in reason


def test_the_first_wrong_element_is_shown_with_its_tile() -> None:
    def wrong(test: ExactTest) -> HostArray:
        c = simulated(test)
        c[33 * test.layout.ldc + 18] += 1
        return c

    reason = verify.exact_test_error(kernel(wrong), "float")
    assert reason.startswith("1 of 735 elements differ on the exact test; C[33][18] is ")
    assert ", in the tile of rows 32 to 47 and columns 16 to 31 (m 35, n 21, k 17, " in reason


@pytest.mark.parametrize(
    ("name", "tile"),
    [("naive", None), ("tiled", (16, 16)), ("register", (32, 64)), ("padded-160x160", (160, 160))],
)
def test_tiles_of_the_ladders_kernels_are_known(name: str, tile: tuple[int, int] | None) -> None:
    variant = ladder.BY_NAME[name]
    parameters = {**variant.preset("default"), "WX": 8, "WY": 4, "TS": 16}
    if name == "register":
        parameters |= {"BM": 32, "BN": 64}
    assert variant.tile_of(parameters) == tile
