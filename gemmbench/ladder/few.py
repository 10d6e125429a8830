"""`small`, for products that last microseconds; `thin` and `nv-thin`, for few rows or columns of C."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace

from gemmbench.ladder.described import DESCRIBED
from gemmbench.ladder.nvidia import NV_MMA, group_local_bytes
from gemmbench.ladder.variant import ASYNC_COPIES, Values, round_up
from gemmbench.model.device import DeviceFacts
from gemmbench.model.dtypes import DTYPES, MMA
from gemmbench.model.problem import Gemm
from gemmbench.model.units import ceil_div

_SMALL, _THIN_KERNEL, _NV_THIN = (DESCRIBED[name] for name in ("small", "thin", "nv-thin"))


def _has_copies(device: DeviceFacts) -> bool:
    return device.compute_capability >= ASYNC_COPIES and _NVIDIA in device.extensions


_MOST = 1024  # m, n or k: beyond, whole units have enough to do with tiles of `gpu-tile`
_COPY = 16  # bytes of an asynchronous copy
_NVIDIA = "cl_nv_device_attribute_query"  # what the driver of a GPU that has such copies lists
_BUSY = 0.9  # of the units that must have a tile


def _form(*values: int) -> Mapping[str, int]:
    return dict(zip(("BM", "BN", "BK", "TM", "TN", "SPLIT", "STAGES", "DIRECT"), values, strict=True))


_FORMS: Mapping[str, tuple[Mapping[str, int], ...]] = {
    "float": (
        #      BM  BN  BK TM TN SPLIT STAGES DIRECT
        _form(64, 64, 32, 8, 4, 1, 3, 0),
        _form(64, 32, 16, 8, 4, 4, 2, 0),
        _form(32, 32, 16, 4, 4, 4, 3, 0),
        _form(16, 32, 4, 4, 4, 16, 1, 1),
        _form(16, 16, 8, 4, 4, 16, 1, 1),
    ),
    "double": (
        _form(64, 64, 8, 8, 4, 2, 2, 0),
        _form(32, 32, 8, 4, 4, 4, 2, 0),
        _form(16, 32, 16, 4, 4, 4, 2, 0),
        _form(16, 16, 8, 2, 4, 8, 2, 0),
    ),
    "half": (
        _form(64, 64, 16, 8, 4, 2, 2, 0),
        _form(32, 32, 16, 4, 4, 4, 2, 0),
        _form(16, 16, 16, 2, 4, 8, 2, 0),
    ),
}
"""From large tiles to small: the first with a tile for nearly every unit is taken (docs/notes/small.md)."""
_PLAIN_STAGES = 2  # where tiles go through registers

_BATCH_FORMS: tuple[Mapping[str, int], ...] = (
    #      BM  BN  BK TM TN SPLIT STAGES DIRECT
    _form(64, 64, 16, 8, 4, 1, 2, 0),
    _form(32, 32, 16, 4, 4, 1, 3, 0),
)
"""Of batches of float, which keep the units busy: k is not cut, and tiles are no larger than needed."""


def _small_form(problem: Gemm, device: DeviceFacts, p: Values) -> dict[str, int]:
    """The largest listed tile with which 90 % of the units get one, changed to fit given parameters."""
    itemsize, room = DTYPES[problem.dtype].itemsize, group_local_bytes(device)
    copies = bool(p.get("ASYNC", _has_copies(device) and problem.dtype != "half"))

    def full(form: Values) -> dict[str, int]:
        """A listed tile with the given parameters, and what fits them."""
        direct = int(p.get("DIRECT", form["DIRECT"] and not p.get("ASYNC", 0)))
        asked = copies and not direct
        stages = form["STAGES"] if direct == form["DIRECT"] and (asked or direct) else _PLAIN_STAGES
        known = {**form, "DIRECT": direct, "ASYNC": int(asked), "STAGES": stages, **p}
        for tile, micro in (("BM", "TM"), ("BN", "TN")):
            while micro not in p and known[tile] % known[micro]:
                known[micro] //= 2
            if tile not in p:
                known[tile] = round_up(known[tile], known[micro])
        if not copies and "STAGES" not in p and not fits(known):
            known["STAGES"] = 1
        return known

    def fits(form: Values) -> bool:
        local = _small_local({**form, "itemsize": itemsize}) * itemsize
        return _SMALL.launches.terms["items"](form) <= device.max_work_group_size and local <= room

    def has_enough(form: Values) -> bool:
        tiles = problem.batch * ceil_div(problem.m, form["BM"]) * ceil_div(problem.n, form["BN"])
        return tiles >= _BUSY * device.compute_units

    edge = max(problem.m, problem.n)
    is_batch = problem.batch > 1 and problem.dtype == "float"
    chosen = (
        *(form for form in _BATCH_FORMS if is_batch and form["BM"] < 2 * edge),
        *_FORMS.get(problem.dtype, _FORMS["float"]),
    )
    forms = [full(form) for form in chosen]
    usable = [form for form in forms if fits(form)] or forms[-1:]
    return next(filter(has_enough, usable), usable[-1])


def _small_local(p: Values) -> int:
    """Elements of a group's local memory, counting half twice; 0 without a tile."""
    if "BM" not in p or "SPLIT" not in p:  # a problem has yet to choose
        return 0
    depth = p["BK"] * p["SPLIT"]
    tiles = p.get("STAGES", _PLAIN_STAGES) * (p["BM"] * (depth + p["PAD"]) + depth * p["BN"])
    rows = p["BM"] if p.get("DIRECT") else p["BM"] // p["TM"]  # whose sums meet at once
    return max(tiles, p["SPLIT"] * rows * p["BN"]) * (2 if p["itemsize"] == 2 else 1)  # half is float there


SMALL = replace(
    _SMALL,
    launches=replace(_SMALL.launches, edge=lambda p: max(p.get("BM", 0), p.get("BN", 0), 16)),
    parameters=replace(_SMALL.parameters, choose=_small_form),
    needs=replace(
        _SMALL.needs,
        local_limit=group_local_bytes,
        extensions=lambda p: (_NVIDIA,) if p.get("ASYNC") else (),
        local_elements=_small_local,
        unfit=lambda g: "" if max(g.m, g.n, g.k) <= _MOST else f"small is for m, n and k of {_MOST} or less",
    ),
)

_THIN = 16  # rows or columns
_KEPT = (1, 2, 4, 8, 16)  # sums of a work-item
_MOST_PARTS = 64
_LEAST_STEPS = 256  # along k of a part


def _shape(*values: int) -> Mapping[str, int]:
    return dict(zip(("WIDE", "LX", "LY", "DEEP", "KC", "AHEAD"), values, strict=True))


_SHAPES: Mapping[tuple[bool, int], Mapping[str, int]] = {
    # along k, THIN  WIDE LX LY DEEP KC AHEAD
    (False, 1): _shape(1, 8, 64, 4, 512, 1),
    (False, 4): _shape(1, 8, 64, 4, 256, 0),
    (False, 16): _shape(1, 16, 32, 4, 256, 0),
    (True, 1): _shape(1, 32, 4, 2, 512, 1),
    (True, 4): _shape(1, 64, 4, 8, 256, 0),
    (True, 16): _shape(1, 32, 8, 4, 128, 0),
}
"""How groups are made, by how many sums a work-item keeps at most (docs/notes/small.md)."""
_WIDE_ROWS = _shape(2, 32, 8, 2, 2048, 1)
"""For one sum in float where the large operand's rows run along k, if groups of 16 keep all units busy."""
_MANY = 64  # rows or columns of the large operand that a group of `thin_many` has
_SHALLOW = 4096  # steps along k up to which smaller groups are faster than cutting k


def _thin_shape(problem: Gemm, device: DeviceFacts, p: Values) -> dict[str, int]:
    """All parameters of `thin`; given ones stay, except PARTS (docs/notes/small.md)."""
    by_columns = p.get("COLUMNS", int(problem.n < problem.m))
    few = min(problem.m, problem.n, _THIN)
    kept = p.get("THIN") or next(count for count in _KEPT if count >= few)
    lies = {"ta": int(problem.trans_a), "tb": int(problem.trans_b), "COLUMNS": by_columns}
    along = bool(_THIN_KERNEL.launches.terms["along"](lies))
    shape = _SHAPES[along, 1 if kept == 1 else 4 if kept <= 4 else _THIN]
    long = problem.m if by_columns else problem.n
    is_plain = problem.dtype == "float" and kept == 1 and _has_copies(device)
    if is_plain and along and problem.k >= _WIDE_ROWS["KC"] // 2:
        full_groups = problem.batch * (long // (_WIDE_ROWS["LY"] * _WIDE_ROWS["DEEP"]))
        shape = _WIDE_ROWS if full_groups >= _BUSY * device.compute_units else shape
    elif is_plain and few == 1 and not along and 2 * _LEAST_STEPS <= problem.k <= _SHALLOW:
        wide, narrow = (problem.batch * ceil_div(long, 4 * lx * p.get("WIDE", 1)) for lx in (8, 4))
        shape = {**shape, "LX": 4} if wide < device.compute_units <= narrow else shape
    full = {**shape, **p, "COLUMNS": by_columns, "THIN": kept}
    itemsize = DTYPES[problem.dtype].itemsize

    def is_too_large() -> bool:
        local = _thin_local({**full, "itemsize": itemsize}) * itemsize
        return local > group_local_bytes(device)

    while "LY" not in p and full["LY"] > 1 and full["LX"] * full["LY"] > device.max_work_group_size:
        full["LY"] //= 2
    while is_too_large():
        can = {"KC": full["KC"] > full["LX"] * full["WIDTH"], "LY": full["LY"] > 1, "LX": full["LX"] > 1}
        if not (name := next((name for name in can if can[name] and name not in p), "")):
            break
        full[name] //= 2
    is_many = problem.dtype == "float" and kept == _THIN and _has_copies(device) and long >= _MANY
    full = {"MANY": _MANY * is_many, "ASYNC": int(_has_copies(device)), **full}
    values = {**full, **lies, "m": problem.m, "n": problem.n}
    groups = problem.batch * max(1, _THIN_KERNEL.launches.terms["groups"](values))
    waves = 1 if full["MANY"] or along else 4 if kept == 1 else 2
    is_cut = device.type == "gpu" and groups < device.compute_units
    parts = round(waves * device.compute_units / groups) if is_cut else 1
    full["PARTS"] = max(1, min(parts, _MOST_PARTS, problem.k // _LEAST_STEPS))
    is_crowded = groups * full["PARTS"] >= 3 * device.compute_units
    if is_plain and not along and (is_crowded or not is_cut):
        one_row = {"LY": max(1, min(full["LY"], 256 // full["LX"])), "DEEP": 4 if is_cut else 8}
        full |= {name: value for name, value in one_row.items() if name not in p}
    return full


_MANY_SLICES = 32  # at most, as in the kernel
_MOST_SUMS = 4096  # elements of local memory, as in the kernel


def _thin_local(p: Values) -> int:
    """The most elements of local memory, counting half twice; 0 without LX or THIN."""
    if "LX" not in p or "THIN" not in p:  # a problem has yet to choose
        return 0
    most, each = 0, p["LX"] * p["LY"] * p["WIDE"] * p["WIDTH"]
    rows = next((rows for rows in (p["THIN"], 8, 4, 2) if rows * each <= _MOST_SUMS), 1)  # summed at once
    for step, sums in (
        (p["LX"] * p["WIDE"] * p["WIDTH"], p["LY"] * p["THIN"] * (p["LX"] + 1)),
        (p["LY"] * p["DEEP"], each * rows),
    ):
        chunk = round_up(p["KC"], math.lcm(step, p["WIDTH"]))
        most = max(most, sums, 2 * p["THIN"] * (chunk + p["WIDTH"]))
    many = _MANY_SLICES * ((_THIN if p.get("ASYNC") else 5) * p.get("MANY", 0) + 4)  # sums or, without, S
    return max(many if p.get("MANY") else 0, most * (2 if p["itemsize"] == 2 else 1))  # half is float there


THIN = replace(
    _THIN_KERNEL,
    launches=replace(
        _THIN_KERNEL.launches,
        edge=lambda p: (
            max(_THIN_KERNEL.launches.terms["along_tile"](p), p["THIN"], p.get("MANY", 0))
            if "LX" in p
            else 32
        ),
    ),
    parameters=replace(_THIN_KERNEL.parameters, choose=_thin_shape),
    needs=replace(
        _THIN_KERNEL.needs,
        local_limit=group_local_bytes,
        extensions=lambda p: (_NVIDIA,) if p.get("ASYNC") and p.get("MANY") else (),
        local_elements=_thin_local,
        unfit=lambda g: "" if min(g.m, g.n) <= _THIN else f"thin is for m or n of {_THIN} or less",
    ),
)


_LONG = 32  # rows or columns of the large operand in a tile of nv-thin
_MOST_CACHED = 40 << 20  # bytes of the large operand that an H100's second-level cache of 50 MiB can hold
_STEP = {True: 32, False: 16}  # along k, by whether rows of the large operand run along k


def _nv_thin_plan(problem: Gemm, device: DeviceFacts, p: Values) -> dict[str, int]:
    """COLUMNS, THIN, WARPS, AHEAD, PARTS and KEEP; k is cut if tiles are too few for the units."""
    columns = p.get("COLUMNS", int(problem.n < problem.m))
    long, few = (problem.m, problem.n) if columns else (problem.n, problem.m)
    lies = {"COLUMNS": columns, "ta": int(problem.trans_a), "tb": int(problem.trans_b)}
    along = bool(_NV_THIN.launches.terms["along"](lies))
    units, thin = max(1, device.compute_units), 8 if few <= 8 else _THIN
    tiles = max(1, problem.batch * ceil_div(long, _LONG))
    is_split, is_many = round(units / tiles) > 1, tiles >= 4 * units
    warps, ahead = (16, 4) if tiles <= units else (16, 2) if thin == 8 else (8, 4)
    if is_split or is_many:
        warps, ahead = 4, 4 if is_split else 8 if along else 2
    plan = {"COLUMNS": columns, "THIN": thin, "WARPS": warps, "AHEAD": ahead // (1 + along), **p}
    deepest = problem.k // (_STEP[along] * plan["AHEAD"] * plan["WARPS"])
    parts = max(1, min(round(4 * units / tiles) if is_split else 1, deepest, 64))
    return {"PARTS": parts, "KEEP": int(2 * problem.batch * long * problem.k < _MOST_CACHED), **plan}


NV_THIN = replace(
    _NV_THIN,
    parameters=replace(_NV_THIN.parameters, choose=_nv_thin_plan),
    needs=replace(
        _NV_THIN.needs,
        lacks=MMA.lacks,
        local_elements=lambda p: 2 * p.get("WARPS", 16) * p.get("THIN", _THIN) * (_LONG + 4),
        unfit=lambda g: "" if min(g.m, g.n) <= _THIN else f"nv-thin is for m or n of {_THIN} or less",
    ),
    compilation=NV_MMA.compilation,
)
