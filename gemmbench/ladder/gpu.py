"""nv-async: NVIDIA's asynchronous copies, without matrix units."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from gemmbench.ladder import variant as entry
from gemmbench.ladder.described import DESCRIBED
from gemmbench.ladder.nvidia import group_local_bytes, resident_groups
from gemmbench.ladder.variant import Constraint, Pass, Values, multiply
from gemmbench.model.device import DeviceFacts
from gemmbench.model.dtypes import DTYPES
from gemmbench.model.kernel_files import COPIED
from gemmbench.model.problem import Gemm
from gemmbench.model.units import ceil_div

_KERNEL = DESCRIBED["nv-async"]
_TERMS = _KERNEL.launches.terms
_TRANSPOSE_A, _PAD_A, _TRANSPOSE_B, _PAD_B = _KERNEL.launches.passes[:4]
_WARP = 32
_MOST_PARTS = 64
_LEAST_STEPS = 8  # tiles along k that a part has
_FLOPS_PER_ELEMENT = 60  # that a GPU computes in the time that it moves an element to memory or from it
_LAUNCH = 8e5  # multiply-adds of a unit in the time that a second kernel takes to start and end: 3 us
_LEAST_GAIN = 0.01  # of the time: for less, a second kernel is not worth starting
_SCHEDULERS = 4  # of a unit, each with warps of its own


_FORMS: Mapping[tuple[float, ...], Values] = {
    rates: dict(zip(("BM", "BN", "BK", "TM", "TN", "PAD", "STAGES", "LX"), sizes, strict=True))
    for rates, sizes in {
        (0.7, 0.78, 0.82): (96, 128, 32, 12, 8, 0, 2, 8),
        (0.36, 0.689, 0.586, 0.772): (64, 128, 8, 8, 16, 0, 3, 4),
        (0.319, 0.598, 0.516, 0.68): (128, 64, 8, 16, 8, 0, 3, 4),
        (0.654, 0.729, 0.795, 0.804): (128, 64, 16, 8, 8, 0, 4, 4),
        (0.427, 0.583, 0.686, 0.727): (128, 64, 16, 8, 8, 0, 3, 4),
    }.items()
}
"""Of float, by the share of a unit's multiply-adds that 1, 2, ... groups do, to as many as it holds."""
(*_, _LAST) = _FORMS.values()  # for any GPU
_BROADEST = max(form["BN"] for form in _FORMS.values())
_UNKNOWN = (1.0,)  # of another form: its tiles take turns
_LEAST_COLUMNS = 1536  # of C, for which a form is worth a pass over A that other forms do not need
_COPY = 16  # bytes
_PASS = 1.2e6  # multiply-adds of a unit in the time that a pass over A takes beside moving it: 5 us


def _forms(p: Values) -> dict[tuple[float, ...], dict[str, int]]:
    """The listed configurations that agree with given parameters, by rates; else the last, changed."""
    fit = {
        rates: {**form, **p}
        for rates, form in _FORMS.items()
        if all(p.get(name, value) == value for name, value in form.items())
    }
    return fit or {_UNKNOWN: {**_LAST, **p}}


def _of_each_form(constraint: Constraint) -> Constraint:
    return replace(constraint, rule=lambda p: all(map(constraint.rule, _forms(p).values())))


def _form(problem: Gemm, device: DeviceFacts, p: Values, narrow: bool = False) -> dict[str, int]:
    """The listed configuration that `_plan` predicts to be fastest, perhaps without the last columns."""
    units, forms = max(1, device.compute_units), _forms(p)
    if narrow:
        forms = {rates: {**form, "EDGE": _edge(problem.n, form)} for rates, form in forms.items()}

    def suits(rates: tuple[float, ...], form: Values) -> bool:
        members, local = _TERMS["members"](form), _copied(form) * _COPY // form["WIDTH"]
        tiles = _tiles(problem, form)
        is_segmented = _TERMS["segmented"](form)
        return (
            resident_groups(device, members, local) >= len(rates)
            and (members >= _SCHEDULERS * _WARP or tiles <= units * len(rates))  # else the last round is slow
            and not (is_segmented and tiles < units * len(rates))  # less never meets the power limit
            and not (problem.trans_a and is_segmented and problem.n < _LEAST_COLUMNS)
        )

    (*others, last) = forms.items()
    plans = [_plan(problem, units, *form) for form in (*(pair for pair in others if suits(*pair)), last)]
    return min(plans, key=lambda plan: plan[0])[1]


def _tiles(problem: Gemm, form: Values) -> int:
    return problem.batch * _TERMS["tiles"]({**form, "m": problem.m, "n": problem.n})


def _plan(problem: Gemm, units: int, rates: tuple[float, ...], form: Values) -> tuple[float, dict[str, int]]:
    """The time of WHOLE tiles and others cut into PARTS of k, in multiply-adds: docs/notes/nv-async.md."""
    k, room = max(1, problem.k), units * len(rates)
    tiles = _tiles(problem, form)
    area, most = form["BM"] * form["BN"] * k, min(ceil_div(k, form["BK"]) // _LEAST_STEPS, _MOST_PARTS)

    def took(groups: int) -> float:
        """The time of `groups` tiles, in that of one at a unit's peak."""
        rounds, rest = divmod(groups, room)
        resident = ceil_div(rest, units)
        return rounds * len(rates) / rates[-1] + (resident / rates[resident - 1] if rest else 0)

    has_pass = not (problem.trans_a or _by_elements(form))
    over_a = problem.batch * problem.m * k * _FLOPS_PER_ELEMENT / units + _PASS if has_pass else 0
    best, chosen = area * took(tiles) + over_a, {"WHOLE": tiles // problem.batch, "PARTS": 1}
    limit = best * (1 - _LEAST_GAIN)
    wholes = {tiles - tiles % units, tiles - tiles % units if rates == _UNKNOWN or tiles > room else 0}
    for whole in wholes - {tiles} if problem.batch == 1 else ():
        for parts in range(2, most + 1):
            groups = (tiles - whole) * parts
            if 0 < whole < room and groups >= units:  # units do not get as many whole tiles each, then
                continue
            moved = (tiles - whole) * (2 * parts + 1) * _FLOPS_PER_ELEMENT / (2 * k * units)
            time = area * (took(whole) + took(groups) / parts + moved) + _LAUNCH + over_a
            if time < min(best, limit):
                best, chosen = time, {"WHOLE": whole, "PARTS": parts}
    return best, {**form, **chosen}


def _copied(v: Values) -> int:
    """Elements of local memory. With the odd part of k first, tiles begin at multiples of 1 KiB."""
    return v["STAGES"] * v["BK"] * (v["BM"] + v["PAD"] + v["BN"]) + (256 if _TERMS["odd_first"](v) else 0)


def _by_elements(v: Values) -> bool:
    """Whether tiles have A copied by elements, as it is stored not transposed."""
    return "EDGE" not in v and bool(_TERMS["by_elements"]({**v, "ta": 0}))


def _flags(p: Values) -> tuple[str, ...]:
    limit = (f"-cl-nv-maxrregcount={p['REGISTERS']}",) if p["REGISTERS"] else ()
    is_small = {"TM", "TN"} <= p.keys() and p["TM"] * p["TN"] <= 64
    return (*limit, COPIED["ODD_FIRST"]) if is_small and _TERMS["odd_first"](p) else limit


def _flags_by_elements(p: Values) -> tuple[str, ...]:
    is_whole = {"BM", "BN", "BK", "TM", "TN"} <= p.keys()
    return (*_flags(p), COPIED["PLAIN_A"]) if is_whole and _by_elements(p) else _flags(p)


_LEAST_WITH_EDGE = 1 << 22  # elements of C, for which a column of tiles takes longer than a launch
EDGE_FILE = "19_nv_async_edge.cl"
_NO_COPIES = "asynchronous copies need an NVIDIA GPU of compute capability 8.0 or more"


def _edge(n: int, p: Values) -> int:
    """The columns of C past whole tiles if they fit in a vector; else 0."""
    return n % p["BN"] if n % p["BN"] <= p["WIDTH"] else 0


def _with_edge(variant: entry.Variant, problem: Gemm) -> entry.Variant:
    """For large C without batches, the variant whose pass over A multiplies the last few columns."""
    edge = _edge(problem.n, {"BN": _BROADEST, "WIDTH": _COPY // DTYPES[problem.dtype].itemsize})
    is_large = problem.batch == 1 and problem.m * problem.n >= _LEAST_WITH_EDGE
    compilation = replace(variant.compilation, of_parameters=_flags)
    if problem.trans_a:
        return replace(variant, compilation=compilation)
    if not edge or not is_large or "nt" in variant.launches.extents:
        return variant
    over_a = replace(_TRANSPOSE_A, file=f"gemm/{EDGE_FILE}", kernel="transpose_with_edge")
    more = ("m", "k", "alpha", "Q", "mw", "beta", "C", "ldc", "nt", "EDGE")
    add = multiply(EDGE_FILE, "add_edge", lambda v: (v["m"], 8 * v["EDGE"]), lambda _: (32, 8), more)

    def beside(b: tuple[str, str], is_plain: bool) -> Pass:
        arguments = (*over_a.arguments, *b, "nt", "EDGE", "Q")
        return replace(over_a, arguments=arguments, when=lambda v: _TERMS["takes_b"](v) == is_plain)

    tiles = (step for step in variant.launches.passes if step.role == "multiply")
    renamed = (replace(step, arguments=("m", "nt", *step.arguments[2:])) for step in tiles)
    return replace(
        variant,
        launches=replace(
            variant.launches,
            passes=(
                _TRANSPOSE_B,
                _PAD_B,
                beside(("B", "ldb"), True),
                beside(("BP", "nw"), False),
                *renamed,
                add,
            ),
            extents={**variant.launches.extents, "nt": lambda v: v["n"] - v["EDGE"]},
            temporaries={
                **variant.launches.temporaries,
                "Q": lambda v: ceil_div(v["k"], 32) * v["EDGE"] * v["mw"],
            },
            edge=lambda p: (
                max(p["BM"], p["BN"]) - 3
            ),  # the exact test has five columns more: two past the tiles
        ),
        parameters=replace(
            variant.parameters, choose=lambda problem, device, p: _form(problem, device, p, narrow=True)
        ),
        compilation=compilation,
    )


NV_ASYNC = replace(
    _KERNEL,
    parameters=replace(
        _KERNEL.parameters,
        constraints=tuple(map(_of_each_form, _KERNEL.parameters.constraints)),
        choose=_form,
        searched=tuple(_LAST),
        inert=frozenset({"BAND", "REGISTERS"}),
    ),
    needs=replace(
        _KERNEL.needs,
        lacks=lambda device, _: "" if device.compute_capability >= entry.ASYNC_COPIES else _NO_COPIES,
        local_elements=lambda p: max(map(_copied, _forms(p).values())),
        local_limit=group_local_bytes,
    ),
    compilation=entry.Compilation(of_parameters=_flags_by_elements),
    specialize=_with_edge,
)
