"""The GEMM ladder: one entry per variant, in the order of tables and charts.

A variant's ``.cl`` file owns the algorithm; its entry here owns the facts: idea, source, parameters and
their presets, constraints, what it needs, its launch geometry and its passes. Adding a variant means adding
a ``.cl`` file and an entry, nothing else.

Kernels take row-major operands with their leading dimensions. A pass names its arguments; each name is one of

* ``m n k alpha beta A lda B ldb C ldc``: the problem (lengths in elements),
* an extent of the variant (``extents``): a length derived from problem and parameters,
* a temporary of the variant (``temporaries``): a device buffer of that many elements.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import product
from typing import Literal

from gemmbench.facts.dtypes import DTYPES
from gemmbench.facts.kernel_files import fingerprint
from gemmbench.facts.problem import Gemm

Values = Mapping[str, int]  # parameters, and in formulas also m, n, k and the extents
Formula = Callable[[Values], int]
Shape = Callable[[Values], tuple[int, ...]]
Role = Literal["multiply", "transpose", "pad", "pack", "unpad"]


class ParameterError(ValueError):
    """A parameter that a variant does not have, or a value that it cannot take."""


@dataclass(frozen=True)
class Parameter:
    """A tunable: a -D of the variant's kernels."""

    idea: str
    values: tuple[int, ...]  # worth trying; others that meet the constraints are accepted


@dataclass(frozen=True)
class Constraint:
    """A rule that parameters must meet, and the sentence for a user who broke it."""

    rule: Callable[[Values], bool]
    sentence: str


@dataclass(frozen=True)
class Pass:
    """One kernel launch."""

    role: Role
    file: str  # relative to the kernels folder
    kernel: str
    arguments: tuple[str, ...]
    items: Shape  # work-items wanted; rounded up to whole groups
    group: Shape  # work-items in a group


@dataclass(frozen=True)
class Variant:
    """One rung of the ladder."""

    name: str
    family: str
    idea: str
    source: str
    passes: tuple[Pass, ...] = ()
    parameters: Mapping[str, Parameter] = field(default_factory=dict)
    presets: Mapping[str, Values] = field(default_factory=dict)  # "default", "gpu", "cpu-pocl", ...
    constraints: tuple[Constraint, ...] = ()
    extents: Mapping[str, Formula] = field(default_factory=dict)
    temporaries: Mapping[str, Formula] = field(default_factory=dict)  # elements
    local_elements: Formula = lambda _: 0  # of local memory, the most that one pass uses
    extensions: tuple[str, ...] = ()
    dtypes: tuple[str, ...] = ("float", "double", "half")
    edge: Formula = lambda _: 16  # the largest tile edge: shapes around it exercise the edges
    executor: Literal["opencl", "numpy"] = "opencl"

    @property
    def files(self) -> tuple[str, ...]:
        """The ``.cl`` files it is made of, each once."""
        return tuple(dict.fromkeys(step.file for step in self.passes))

    def preset(self, family: str, overrides: Values | None = None) -> dict[str, int]:
        """Its parameters for a family of devices (``cpu-pocl``), with the user's own over them.

        The family's own preset, over that of its type (``cpu``), over the default.

        Raises:
            ParameterError: an override is unknown or breaks a constraint.
        """
        keys = ("default", family.partition("-")[0], family)
        chosen = {name: value for key in keys for name, value in self.presets.get(key, {}).items()}
        for name, value in (overrides or {}).items():
            if name not in self.parameters:
                known = ", ".join(self.parameters) or "none"
                raise ParameterError(f"{self.name} has no parameter {name} (it has {known})")
            chosen[name] = value
        for name, value in chosen.items():
            if value < 1:
                raise ParameterError(f"{self.name}: {name} must be 1 or more, not {value}")
        for constraint in self.constraints:
            if not constraint.rule(chosen):
                raise ParameterError(f"{self.name}: {constraint.sentence} (not with {_listed(chosen)})")
        return chosen

    def space(self) -> Iterator[dict[str, int]]:
        """Every combination of the parameters' values that meets the constraints."""
        for values in product(*(parameter.values for parameter in self.parameters.values())):
            chosen = dict(zip(self.parameters, values, strict=True))
            if all(constraint.rule(chosen) for constraint in self.constraints):
                yield chosen

    def values(self, problem: Gemm, parameters: Values) -> dict[str, int]:
        """What its formulas and kernel arguments may name: parameters, m, n, k and extents."""
        known = {**parameters, "m": problem.m, "n": problem.n, "k": problem.k}
        for name, formula in self.extents.items():
            known[name] = formula(known)
        return known

    def options(self, dtype: str, parameters: Values) -> tuple[str, ...]:
        """The -D list that its kernels compile with."""
        return (f"-DREAL_{dtype}", *(f"-D{name}={value}" for name, value in parameters.items()))

    def temporary_bytes(self, problem: Gemm, parameters: Values) -> dict[str, int]:
        """Bytes of each of its temporaries."""
        known = self.values(problem, parameters)
        itemsize = DTYPES[problem.dtype].itemsize
        return {name: formula(known) * itemsize for name, formula in self.temporaries.items()}

    def fingerprint(self, dtype: str, parameters: Values) -> str:
        """Hash of what would be compiled: rows are comparable only if it is the same."""
        return fingerprint(self.files, self.options(dtype, parameters))


def _listed(parameters: Values) -> str:
    return ", ".join(f"{name}={value}" for name, value in parameters.items())


def round_up(value: int, multiple: int) -> int:
    """The smallest multiple that is not below value."""
    return -(-value // multiple) * multiple


# --- pieces that several variants are made of -------------------------------------------------------------

_PLAIN = ("m", "n", "k", "alpha", "A", "lda", "B", "ldb", "beta", "C", "ldc")
_WITH_BT = ("m", "n", "k", "alpha", "A", "lda", "BT", "ldbt", "beta", "C", "ldc")


def _multiply(
    file: str, kernel: str, items: Shape, group: Shape, arguments: tuple[str, ...] = _PLAIN
) -> Pass:
    return Pass("multiply", f"gemm/{file}", kernel, arguments, items, group)


def _transpose(rows: str, columns: str, source: str, ld: str, target: str, target_ld: str) -> Pass:
    """target (columns x rows) = source (rows x columns) transposed, by 16 x 16 tiles in local memory."""
    return Pass(
        "transpose",
        "gemm/00_transpose.cl",
        "transpose",
        (rows, columns, source, ld, target, target_ld),
        lambda v: (v[columns], v[rows]),
        lambda _: (16, 16),
    )


_TRANSPOSE_B = _transpose("k", "n", "B", "ldb", "BT", "ldbt")
_BT_EXTENTS: Mapping[str, Formula] = {"ldbt": lambda v: v["k"]}
_BT: Mapping[str, Formula] = {"BT": lambda v: v["n"] * v["k"]}

_TUTORIAL = "C. Nugteren, Tutorial: OpenCL SGEMM tuning for Kepler, kernel {}"
_ANDROID = "Profiling GEMM on Android (Mali-T760); Gronqvist and Lokhotmov, GPU Pro 5"

_TILE_CONSTRAINTS = (
    Constraint(
        lambda p: p["BM"] % p["TM"] == 0,
        "BM must be a multiple of TM, so that each work-item owns whole rows",
    ),
    Constraint(
        lambda p: p["BN"] % p["TN"] == 0,
        "BN must be a multiple of TN, so that each work-item owns whole columns",
    ),
)

_TILE_PARAMETERS: Mapping[str, Parameter] = {
    "BM": Parameter("rows of C in a work-group's tile", (32, 64, 128)),
    "BN": Parameter("columns of C in a work-group's tile", (32, 64, 128)),
    "BK": Parameter("depth of the tiles of A and B", (8, 16, 32)),
    "TM": Parameter("rows of C in a work-item's micro-tile", (4, 8)),
    "TN": Parameter("columns of C in a work-item's micro-tile", (4, 8)),
}

VARIANTS: tuple[Variant, ...] = (
    Variant(
        name="naive",
        family="first steps",
        idea="one work-item per element of C, the k-loop over global memory",
        source=_TUTORIAL.format(1),
        passes=(_multiply("01_naive.cl", "naive", lambda v: (v["n"], v["m"]), lambda v: (v["WX"], v["WY"])),),
        parameters={
            "WX": Parameter("columns of C in a work-group", (8, 16, 32)),
            "WY": Parameter("rows of C in a work-group", (1, 2, 4, 8, 16)),
        },
        presets={"default": {"WX": 16, "WY": 16}},
    ),
    Variant(
        name="tiled",
        family="first steps",
        idea="square tiles of A and B staged in local memory by the work-group",
        source=_TUTORIAL.format(2),
        passes=(_multiply("02_tiled.cl", "tiled", lambda v: (v["n"], v["m"]), lambda v: (v["TS"], v["TS"])),),
        parameters={"TS": Parameter("edge of the square tiles", (8, 16, 32))},
        presets={"default": {"TS": 16}, "cpu-intel": {"TS": 32}},
        local_elements=lambda p: 2 * p["TS"] * p["TS"],
        edge=lambda p: p["TS"],
    ),
    Variant(
        name="register",
        family="first steps",
        idea="two-dimensional register blocking: each work-item owns a TM x TN micro-tile",
        source=_TUTORIAL.format(6),
        passes=(
            _multiply(
                "06_register.cl",
                "register_blocked",
                lambda v: (
                    round_up(v["n"], v["BN"]) // v["TN"],
                    round_up(v["m"], v["BM"]) // v["TM"],
                ),
                lambda v: (v["BN"] // v["TN"], v["BM"] // v["TM"]),
            ),
        ),
        parameters=_TILE_PARAMETERS,
        presets={
            "default": {"BM": 64, "BN": 64, "BK": 16, "TM": 8, "TN": 8},
            "cpu-intel": {"BM": 128, "BN": 128, "BK": 16, "TM": 4, "TN": 4},
            "gpu": {"BM": 128, "BN": 128, "BK": 16, "TM": 8, "TN": 8},
        },
        constraints=_TILE_CONSTRAINTS,
        local_elements=lambda p: p["BK"] * (p["BM"] + p["BN"]),
        edge=lambda p: max(p["BM"], p["BN"]),
    ),
    Variant(
        name="padded",
        family="first steps",
        idea="incomplete tiles: pad A and B with zeros, transpose B, multiply whole tiles, unpad C",
        source=_TUTORIAL.format(10),
        passes=(
            Pass(
                "pad",
                "gemm/10_padded.cl",
                "pad",
                ("m", "k", "A", "lda", "mp", "kp", "AP"),
                lambda v: (v["kp"], v["mp"]),
                lambda _: (16, 16),
            ),
            _transpose("k", "n", "B", "ldb", "BT", "ldbt"),
            Pass(
                "pad",
                "gemm/10_padded.cl",
                "pad",
                ("n", "k", "BT", "ldbt", "np", "kp", "BP"),
                lambda v: (v["kp"], v["np"]),
                lambda _: (16, 16),
            ),
            Pass(
                "multiply",
                "gemm/10_padded.cl",
                "padded",
                ("np", "kp", "AP", "BP", "CP"),
                lambda v: (v["np"] // v["TN"], v["mp"] // v["TM"]),
                lambda v: (v["BN"] // v["TN"], v["BM"] // v["TM"]),
            ),
            Pass(
                "unpad",
                "gemm/10_padded.cl",
                "unpad",
                ("m", "n", "alpha", "CP", "np", "beta", "C", "ldc"),
                lambda v: (v["n"], v["m"]),
                lambda _: (16, 16),
            ),
        ),
        parameters={
            "BM": Parameter("rows of C in a work-group's tile", (64, 80, 128, 160)),
            "BN": Parameter("columns of C in a work-group's tile", (64, 80, 128, 160)),
            "BK": Parameter("depth of the tiles of A and B", (8, 16, 32)),
            "TM": Parameter("rows of C in a work-item's micro-tile", (4, 8, 10)),
            "TN": Parameter("columns of C in a work-item's micro-tile", (4, 8, 10)),
        },
        presets={
            "default": {"BM": 64, "BN": 64, "BK": 16, "TM": 8, "TN": 8},
            "cpu-intel": {"BM": 128, "BN": 128, "BK": 16, "TM": 4, "TN": 4},
            "gpu": {"BM": 128, "BN": 128, "BK": 16, "TM": 8, "TN": 8},
        },
        constraints=_TILE_CONSTRAINTS,
        extents={
            "mp": lambda v: round_up(v["m"], v["BM"]),
            "np": lambda v: round_up(v["n"], v["BN"]),
            "kp": lambda v: round_up(v["k"], v["BK"]),
            "ldbt": lambda v: v["k"],
        },
        temporaries={
            "AP": lambda v: v["mp"] * v["kp"],
            "BT": lambda v: v["n"] * v["k"],
            "BP": lambda v: v["np"] * v["kp"],
            "CP": lambda v: v["mp"] * v["np"],
        },
        local_elements=lambda p: p["BK"] * (p["BM"] + p["BN"]),
        edge=lambda p: max(p["BM"], p["BN"]),
    ),
    Variant(
        name="dot-v8",
        family="mobile",
        idea="B transposed: each element of C is a dot product of two rows, by vectors of 8",
        source=_ANDROID,
        passes=(
            _TRANSPOSE_B,
            _multiply(
                "11_dot.cl",
                "dot_rows",
                lambda v: (v["n"], v["m"]),
                lambda v: (v["WX"], v["WY"]),
                _WITH_BT,
            ),
        ),
        parameters={
            "WIDTH": Parameter("elements of a vector", (8,)),
            "WX": Parameter("columns of C in a work-group", (4, 8, 16)),
            "WY": Parameter("rows of C in a work-group", (1, 4, 8, 16)),
        },
        presets={"default": {"WIDTH": 8, "WX": 8, "WY": 8}},
        constraints=(Constraint(lambda p: p["WIDTH"] == 8, "WIDTH is 8 in dot-v8"),),
        extents=_BT_EXTENTS,
        temporaries=_BT,
        edge=lambda p: max(p["WIDTH"], p["WX"], p["WY"]),
    ),
    Variant(
        name="block2x2-v4",
        family="mobile",
        idea="a 2 x 2 block of C per work-item: four dot products share the rows they load, by vectors of 4",
        source=_ANDROID,
        passes=(
            _TRANSPOSE_B,
            _multiply(
                "13_block2x2.cl",
                "block2x2",
                lambda v: ((v["n"] + 1) // 2, (v["m"] + 1) // 2),
                lambda v: (v["WX"], v["WY"]),
                _WITH_BT,
            ),
        ),
        parameters={
            "WIDTH": Parameter("elements of a vector", (4,)),
            "WX": Parameter("blocks of C across a work-group", (4, 8, 16)),
            "WY": Parameter("blocks of C down a work-group", (1, 4, 8)),
        },
        presets={"default": {"WIDTH": 4, "WX": 8, "WY": 8}},
        constraints=(Constraint(lambda p: p["WIDTH"] == 4, "WIDTH is 4 in block2x2-v4"),),
        extents=_BT_EXTENTS,
        temporaries=_BT,
        edge=lambda p: max(p["WIDTH"], 2 * p["WX"], 2 * p["WY"]),
    ),
    Variant(
        name="numpy",
        family="libraries",
        idea="the host's own BLAS through numpy.matmul: what the device must beat, transfers included",
        source="NumPy; the BLAS it was built with is named in the run",
        dtypes=("float", "double"),
        executor="numpy",
    ),
)

BY_NAME: Mapping[str, Variant] = {variant.name: variant for variant in VARIANTS}
ORDER: tuple[str, ...] = tuple(BY_NAME)
LADDER: tuple[str, ...] = tuple(v.name for v in VARIANTS if v.executor == "opencl")
BASELINES: tuple[str, ...] = tuple(v.name for v in VARIANTS if v.executor != "opencl")
