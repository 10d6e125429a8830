"""nv-async: NVIDIA's asynchronous copies, without matrix units."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

from gemmbench.ladder import variant as entry
from gemmbench.ladder.described import DESCRIBED
from gemmbench.ladder.variant import Constraint, Pass, Values, multiple, multiply, round_up, tile_members
from gemmbench.model.device import DeviceFacts
from gemmbench.model.dtypes import DTYPES
from gemmbench.model.kernel_files import COPIED
from gemmbench.model.problem import Gemm
from gemmbench.model.units import ceil_div
from gemmbench.stats import ceilings

Fits = Callable[[Values], bool]


_ROWS = multiple("BM", "TM", ", so that each work-item owns whole rows")
_COLUMNS = multiple("BN", "TN", ", so that each work-item owns whole columns")
_TALL = multiple("TM", "WIDTH", ", so that rows are whole vectors")
_BROAD = multiple("TN", "WIDTH", ", so that columns are whole vectors")
_ALIGNED = multiple("PAD", "WIDTH", ", so that rows stay aligned")
_SHARED = Constraint(
    lambda p: (
        p["BK"] % p["WIDTH"] == 0
        and p["BM"] * p["BK"] // p["WIDTH"] % tile_members(p) == 0
        and p["BK"] * p["BN"] // p["WIDTH"] % tile_members(p) == 0
    ),
    "the vectors of a tile must be a multiple of the work-items in a group, so that each moves as many",
)


_WARP = 32
_WHOLE_PARTS = Constraint(
    lambda p: (
        _WARP % p["LX"] == 0
        and p["BN"] % (p["LX"] * p["TN"]) == 0
        and p["BM"] % (_WARP // p["LX"] * p["TM"]) == 0
    ),
    "a tile must be whole sub-groups: BN a multiple of LX x TN, BM of the lanes down one x TM",
)
_MOST_PARTS = 64
_LEAST_STEPS = 8  # tiles along k that a part has
_FLOPS_PER_ELEMENT = 60  # that a GPU computes in the time that it moves an element to memory or from it
_LAUNCH = 8e5  # multiply-adds of a unit in the time that a second kernel takes to start and end: 3 us
_LEAST_GAIN = 0.01  # of the time: for less, a second kernel is not worth starting
_SCHEDULERS = 4  # of a unit, each with warps of its own


def _tiles(v: Values) -> int:
    return ceil_div(v["m"], v["BM"]) * ceil_div(v["n"] - v.get("EDGE", 0), v["BN"])


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
_LINE = 8  # copies
_ELEMENTWISE = 8  # steps of tiles that have A copied by elements, as it is stored: the lines of a warp
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
    """The listed configuration that `_plan` predicts to be fastest, with its plan; given parameters stay.

    With `narrow`, the last EDGE columns of C belong to no tile.
    """
    units, forms = max(1, device.compute_units), _forms(p)
    if narrow:
        forms = {rates: {**form, "EDGE": _edge(problem.n, form)} for rates, form in forms.items()}

    def suits(rates: tuple[float, ...], form: Values) -> bool:
        members, local = tile_members(form), _copied(form) * _COPY // form["WIDTH"]
        tiles = problem.batch * _tiles({**form, "m": problem.m, "n": problem.n})
        return (
            ceilings.resident_groups(device, members, local) >= len(rates)
            and (members >= _SCHEDULERS * _WARP or tiles <= units * len(rates))  # else the last round is slow
            and not (_is_segmented(form) and tiles < units * len(rates))  # less never meets the power limit
            and not (problem.trans_a and _is_segmented(form) and problem.n < _LEAST_COLUMNS)
        )

    (*others, last) = forms.items()
    plans = [_plan(problem, units, *form) for form in (*(pair for pair in others if suits(*pair)), last)]
    return min(plans, key=lambda plan: plan[0])[1]


def _plan(problem: Gemm, units: int, rates: tuple[float, ...], form: Values) -> tuple[float, dict[str, int]]:
    """The predicted time of a configuration, and its parameters: WHOLE tiles, the others cut into PARTS of k.

    Time is in multiply-adds of a unit at its peak. `rates` are the shares of the peak that 1, 2, ... groups
    on a unit reach. See docs/notes/nv-async.md.
    """
    k, room = max(1, problem.k), units * len(rates)
    tiles = problem.batch * _tiles({**form, "m": problem.m, "n": problem.n})
    area, most = form["BM"] * form["BN"] * k, min(ceil_div(k, form["BK"]) // _LEAST_STEPS, _MOST_PARTS)

    def took(groups: int) -> float:
        """The time of `groups` tiles; 1 is that of a tile at a unit's peak."""
        rounds, rest = divmod(groups, room)
        resident = ceil_div(rest, units)
        return rounds * len(rates) / rates[-1] + (resident / rates[resident - 1] if rest else 0)

    has_pass = not (problem.trans_a or _by_elements({**form, "ta": 0}))
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


def _segment(v: Values) -> int:
    """Vectors of a row of A's tile that are copied together: the largest power of two that divides it."""
    return v["BM"] // v["WIDTH"] & -(v["BM"] // v["WIDTH"])


def _is_segmented(v: Values) -> bool:
    return v["BM"] & v["BM"] - 1 > 0


def _copied(v: Values) -> int:
    """Elements of local memory. With the odd part of k first, tiles begin at multiples of 1 KiB."""
    return v["STAGES"] * v["BK"] * (v["BM"] + v["PAD"] + v["BN"]) + (256 if _is_odd_first(v) else 0)


def _is_odd_first(v: Values) -> bool:
    return v["TM"] * v["TN"] > 64 or (v["PAD"] == 0 and v["WIDTH"] == 4)


def _by_elements(v: Values) -> bool:
    members = tile_members(v)
    is_form = v["BK"] == _ELEMENTWISE and v["TM"] * v["TN"] > 64 and v["WIDTH"] == 4
    is_whole = members % 64 == 0 and v["BM"] % (members // 2) == 0
    return is_form and is_whole and not v["ta"] and "EDGE" not in v


def _flags(p: Values) -> tuple[str, ...]:
    limit = (f"-cl-nv-maxrregcount={p['REGISTERS']}",) if p["REGISTERS"] else ()
    is_small = {"TM", "TN"} <= p.keys() and p["TM"] * p["TN"] <= 64
    return (*limit, COPIED["ODD_FIRST"]) if is_small and _is_odd_first(p) else limit


def _flags_by_elements(p: Values) -> tuple[str, ...]:
    is_whole = {"BM", "BN", "BK", "TM", "TN"} <= p.keys()
    return (*_flags(p), COPIED["PLAIN_A"]) if is_whole and _by_elements({**p, "ta": 0}) else _flags(p)


def _takes_a(v: Values) -> bool:
    """Whether the kernel copies A as it is stored: by elements or, transposed, by vectors."""
    return _by_elements(v) or (bool(v["ta"]) and v["lda"] % v["WIDTH"] == 0 and v["lda"] >= v["mw"])


def _takes_b(v: Values) -> bool:
    return not v["tb"] and v["ldb"] % v["WIDTH"] == 0


def _async_multiply(plain_a: bool, plain_b: bool) -> Pass:
    """The multiplication for A and B as stored, or copied to AT and BP."""
    a = ("A", "lda") if plain_a else ("AT", "mw")
    b = ("B", "ldb") if plain_b else ("BP", "nw")
    step = multiply(
        "19_nv_async.cl",
        "nv_async",
        lambda v: ((v["WHOLE"] + (_tiles(v) - v["WHOLE"]) * v["PARTS"]) * tile_members(v),),
        lambda v: (tile_members(v),),
        ("m", "n", "k", "alpha", *a, *b, "beta", "C", "ldc", "P", "WHOLE", "PARTS"),
    )
    return replace(step, when=lambda v: (_takes_a(v), _takes_b(v)) == (plain_a, plain_b))


def _pad_vectors(columns: str, source: str, ld: str, target: str, width: str, when: Fits) -> Pass:
    """target (k x width) = source (k x columns), padded with zeros."""
    return Pass(
        "pad",
        "gemm/00_pad_vectors.cl",
        "pad_vectors",
        ("k", columns, source, ld, target, width),
        lambda v: (v[width] // v["WIDTH"], v["k"]),
        lambda _: (64, 4),
        when=when,
    )


_COPIES = (
    replace(
        entry.transpose_tall("m", "k", "A", "lda", "AT", "mw"),
        when=lambda v: not v["ta"] and not _by_elements(v),
    ),
    _pad_vectors("m", "A", "lda", "AT", "mw", lambda v: bool(v["ta"]) and not _takes_a(v)),
    replace(entry.transpose_tall("n", "k", "B", "ldb", "BP", "nw"), when=lambda v: bool(v["tb"])),
    _pad_vectors("n", "B", "ldb", "BP", "nw", lambda v: not v["tb"] and not _takes_b(v)),
)

_SUM_PARTS = replace(
    multiply(
        "19_nv_async.cl",
        "sum_parts",
        lambda v: ((_tiles(v) - v["WHOLE"]) * v["BM"] * v["BN"] // v["WIDTH"],),
        lambda _: (256,),
        ("m", "n", "alpha", "beta", "C", "ldc", "P", "WHOLE", "PARTS"),
    ),
    when=lambda v: v["WHOLE"] < _tiles(v),
)

_BY_ROWS = Constraint(
    lambda p: (
        tile_members(p) * p["WIDTH"] % p["BN"] == 0
        and tile_members(p) % _segment(p) == 0
        and p["BK"] % (tile_members(p) // _segment(p)) == 0
    ),
    "the work-items of a group must copy whole rows of B's tile at once, and whole segments of A's",
)

_UNROLLED = Constraint(
    lambda p: not _is_odd_first(p) or p["BK"] <= 16 or p["BK"] % 16 == 0,
    "BK must be 16 at most or a multiple of it where micro-tiles have more than 64 elements or PAD is 0",
)
_SUMMED = Constraint(
    lambda p: p["BM"] * p["BN"] // p["WIDTH"] % 256 == 0,
    "a tile must be a multiple of 256 vectors: groups of 256 add up the parts of one",
)

_LEAST_WITH_EDGE = 1 << 22  # elements of C, for which a column of tiles takes longer than a launch
EDGE_FILE = "19_nv_async_edge.cl"
_NO_COPIES = "asynchronous copies need an NVIDIA GPU of compute capability 8.0 or more"


def _edge(n: int, p: Values) -> int:
    """The columns of C past whole tiles if they fit in a vector; else 0."""
    return n % p["BN"] if n % p["BN"] <= p["WIDTH"] else 0


def _with_edge(variant: entry.Variant, problem: Gemm) -> entry.Variant:
    """For large C, the variant without tiles for the last few columns: the pass over A multiplies them."""
    edge = _edge(problem.n, {"BN": _BROADEST, "WIDTH": _COPY // DTYPES[problem.dtype].itemsize})
    is_large = problem.batch == 1 and problem.m * problem.n >= _LEAST_WITH_EDGE
    compilation = replace(variant.compilation, of_parameters=_flags)
    if problem.trans_a:
        return replace(variant, compilation=compilation)
    if not edge or not is_large or "nt" in variant.launches.extents:
        return variant
    over_a = replace(_COPIES[0], file=f"gemm/{EDGE_FILE}", kernel="transpose_with_edge")
    more = ("m", "k", "alpha", "Q", "mw", "beta", "C", "ldc", "nt", "EDGE")
    add = multiply(EDGE_FILE, "add_edge", lambda v: (v["m"], 8 * v["EDGE"]), lambda _: (32, 8), more)

    def beside(b: tuple[str, str], is_plain: bool) -> Pass:
        arguments = (*over_a.arguments, *b, "nt", "EDGE", "Q")
        return replace(over_a, arguments=arguments, when=lambda v: _takes_b(v) == is_plain)

    tiles = (step for step in variant.launches.passes if step.role == "multiply")
    renamed = (replace(step, arguments=("m", "nt", *step.arguments[2:])) for step in tiles)
    return replace(
        variant,
        launches=replace(
            variant.launches,
            passes=(*_COPIES[2:], beside(("B", "ldb"), True), beside(("BP", "nw"), False), *renamed, add),
            extents={**variant.launches.extents, "nt": lambda v: v["n"] - v["EDGE"]},
            temporaries={
                **variant.launches.temporaries,
                "Q": lambda v: ceil_div(v["k"], 32) * v["EDGE"] * v["mw"],
            },
            edge=lambda p: entry.tile_edge(p) - 3,  # the exact test has five columns more: two past the tiles
        ),
        parameters=replace(
            variant.parameters, choose=lambda problem, device, p: _form(problem, device, p, narrow=True)
        ),
        compilation=compilation,
    )


_NV_ASYNC = DESCRIBED["nv-async"]
NV_ASYNC = replace(
    _NV_ASYNC,
    launches=entry.Launches(
        batches=True,
        passes=(
            *_COPIES,
            *(_async_multiply(plain_a, plain_b) for plain_a in (False, True) for plain_b in (True, False)),
            _SUM_PARTS,
        ),
        extents={
            "mw": lambda v: round_up(v["m"], v["BM" if _is_segmented(v) else "WIDTH"]),
            "nw": lambda v: round_up(v["n"], _LINE * v["WIDTH"]),  # rows of its copy begin on lines of memory
        },
        temporaries={
            "AT": lambda v: 0 if _takes_a(v) else v["k"] * v["mw"],
            "BP": lambda v: 0 if _takes_b(v) else v["k"] * v["nw"],
            "P": lambda v: (_tiles(v) - v["WHOLE"]) * v["PARTS"] * v["BM"] * v["BN"],
        },
        either=("A", "B"),
        edge=entry.tile_edge,
    ),
    parameters=replace(
        _NV_ASYNC.parameters,
        constraints=(
            Constraint(
                lambda p: p["WIDTH"] * p["itemsize"] == _COPY,
                "WIDTH must be 4 for float and 2 for double: a copy moves 16 bytes",
            ),
            *map(_of_each_form, (_ROWS, _COLUMNS, _TALL, _BROAD, _ALIGNED)),
            *map(_of_each_form, (_WHOLE_PARTS, _SHARED, _BY_ROWS, _UNROLLED, _SUMMED)),
        ),
        choose=_form,
        searched=tuple(_LAST),
    ),
    needs=replace(
        _NV_ASYNC.needs,
        lacks=lambda device, _: "" if device.compute_capability >= entry.ASYNC_COPIES else _NO_COPIES,
        local_elements=lambda p: max(map(_copied, _forms(p).values())),
        local_limit=ceilings.group_local_bytes,
    ),
    compilation=entry.Compilation(of_parameters=_flags_by_elements),
    specialize=_with_edge,
)
