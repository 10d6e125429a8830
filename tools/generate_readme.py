"""The generated parts of README.md and docs/: tables of figures, from the saved runs in plots/.

``make readme`` writes them; with ``--check``, for ``make check``, a stale one is an error.
"""

from __future__ import annotations

import argparse
import io
import sys
import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import geometric_mean, median

from rich.console import Console

from gemmbench import api
from gemmbench.ladder import AUTO, BY_NAME, VARIANTS
from gemmbench.ladder.variant import Variant, laid_out
from gemmbench.model import units
from gemmbench.model.device import HOST
from gemmbench.model.problem import Gemm
from gemmbench.model.row import CHAIN, GRAPH, Row
from gemmbench.model.run_file import Run, load
from gemmbench.report.notes import same_kernel
from gemmbench.stats import panels, rates
from gemmbench.stats.conditions import counted_mhz, disturbed, limited
from gemmbench.suite.auto import CHOOSABLE
from tools import device_verification, experiments
from tools.bench import auto_regret

ROOT = Path(__file__).resolve().parents[1]
LADDER, TENSOR, REGRET = "ladder", "table of tensor cores", "table of what auto loses"  # the parts
ASYNC, MMA, WGMMA = "table of nv-async", "table of nv-mma", "table of nv-wgmma"
STATES = "table of both states"
FAULTS = "table of planted faults"
SMALL, THIN = "table of small", "table of thin"
PACKED, VERSUS = "table of cpu-packed", "table of nv-wgmma in turn"
ASYNC_VERSUS, LAYOUTS = "table of nv-async in turn", "table of layouts"
PACKED_OVER, PACKED_SECOND = "table of cpu-packed by shape", "table of cpu-packed on a second CPU"
EXPERIMENTS, SAMPLE, BEST = "table of experiments", "sample of square", "sample of best-shape"

#   column  what it was measured on      where it is saved; later runs add what the first lacks
RUNS = (
    ("CPU", "a server CPU (2 cores, AVX-512) under Intel's runtime", ("plots/cpu-intel-square.jsonl",)),
    ("H200", "an NVIDIA H200", ("plots/h200-square.jsonl", "plots/h200-limit.jsonl")),
)
DTYPE = "float"
TENSOR_RUN, TENSOR_PEAK = "plots/h200-tensor.jsonl", "plots/h200-peak.jsonl"
REGRET_RUN = "plots/h200-square.jsonl"
LIMIT_RUN = "plots/h200-limit.jsonl"
BEST_RUN = "tests/data/h200-best-shape.jsonl"
STATE_RUNS = ("plots/h200-tensor.jsonl", "plots/h200-burst.jsonl")
SMALL_RUN = "tests/data/h200-small.jsonl"
THIN_RUNS = ("tests/data/h200-versus-thin.jsonl", "tests/data/h200-thin.jsonl")
ASYNC_RUN = "tests/data/h200-versus-float.jsonl"
LAYOUT_RUNS = ("tests/data/h200-shapes.jsonl", "tests/data/h200-layouts-half.jsonl")
PACKED_RUNS = tuple(  # at 4096 a pair takes seconds; a row that was disturbed stands in the run after
    f"tests/data/cpu-{driver}-packed{part}.jsonl"
    for driver in ("intel", "pocl")
    for part in ("", "-again", "-4096", "-4096-double")
)
PACKED_SECOND_RUNS = tuple(  # on another CPU of the same name
    f"tests/data/cpu-{driver}-packed-second{part}.jsonl"
    for driver in ("intel", "pocl")
    for part in ("", "-4096", "-4096-double")
)
PACKED_SHAPES = tuple(
    f"tests/data/cpu-{driver}-workloads{part}.jsonl"
    for driver in ("intel", "pocl")
    for part in ("", "-again")
)
VERSUS_RUNS = tuple(
    f"tests/data/h200-versus-{name}.jsonl"
    for name in ("1024", "tensor", "bfloat16", "bfloat16-8192", "fp8", "int8", "int8-8192", "double")
)
FILES = (
    *(file for *_, files in RUNS for file in files),
    TENSOR_RUN,
    TENSOR_PEAK,
    LIMIT_RUN,
    *STATE_RUNS,
    BEST_RUN,
    SMALL_RUN,
    ASYNC_RUN,
    *(*THIN_RUNS, *LAYOUT_RUNS, *VERSUS_RUNS, *PACKED_SECOND_RUNS),
    *(file for file in (*PACKED_RUNS, *PACKED_SHAPES) if (ROOT / file).exists()),
)
COUNTS = (device_verification.RESULT,)  # no runs
PAGES = {  # where a part stands
    SAMPLE: "README.md",
    LADDER: "docs/ladder.md",
    TENSOR: "docs/ladder.md",
    REGRET: "docs/auto.md",
    ASYNC: "docs/nv-async.md",
    MMA: "docs/nv-mma.md",
    WGMMA: "docs/nv-wgmma.md",
    VERSUS: "docs/nv-wgmma.md",
    ASYNC_VERSUS: "docs/nv-async.md",
    LAYOUTS: "docs/ladder.md",
    SMALL: "docs/small.md",
    THIN: "docs/small.md",
    PACKED: "docs/cpu-packed.md",
    PACKED_OVER: "docs/cpu-packed.md",
    PACKED_SECOND: "docs/cpu-packed.md",
    STATES: "docs/conditions.md",
    EXPERIMENTS: "docs/experiments.md",
    FAULTS: "docs/verification.md",
    BEST: "docs/best-shape.md",
}
#   data type    column
TENSOR_TYPES = {
    "half": "half",
    "bfloat16": "bfloat16 into float",
    "tf32": "tf32",
    "double": "double",
    "char": "int8",
}
WIDTH = 118  # of the README's prose
TERA = 1e12


class ReadmeError(Exception):
    """A README or a run that a table cannot be made for."""


@dataclass(frozen=True)
class Figure:
    """A cell of a table."""

    rate: float  # flop/s
    earlier: bool = False  # of an earlier form of the kernel
    compared: bool = True  # in the scope of the others


def is_earlier(run: Run, row: Row) -> bool:
    """Whether the kernels of a row had another source than today's entry, or other parameters,
    derived ones included.
    """
    ran = rates.what_ran(row)
    if row.variant == AUTO != ran:
        alike = (row.problem, row.dtype)
        return any(is_earlier(run, one) for one in run.rows if one.variant == ran and _case(one) == alike)
    variant = BY_NAME.get(ran)
    if variant is None or row.device == HOST or not variant.files:
        return variant is None
    device = run.header.devices[row.device]
    today = variant.preset(device.family, None, row.dtype, device)
    laid = laid_out(variant, rates.gemm_of(row)) if row.problem else variant
    derived = laid.chosen(rates.gemm_of(row), device, today) if row.problem and row.choice else {}
    were = {name: row.choice.get(name) for name in derived}
    return (row.parameters, row.source, were) != (today, laid.fingerprint(row.dtype, today), derived)


def _case(row: Row) -> tuple[object, str]:
    return row.problem, row.dtype


def earlier_forms(names: str) -> str:
    """The sentence that names what was measured with an earlier form of its kernel; "" if nothing was."""
    words = "Measured with an earlier form of the kernel, whose source or parameters are others today"
    return f"{words}: {names}." if names else ""


def figures(runs: Sequence[Run]) -> tuple[int, str, dict[str, Figure]]:
    """The largest size that most variants of the first run have, the scope, and each variant's figure there.

    Raises:
        ReadmeError: the first run has no squares in `DTYPE`.
    """
    first, *others = runs
    scope = rates.view_scope(*runs)
    for setting in panels.settings(first):
        problem = panels.common_problem(first, setting) if setting.dtype == DTYPE else None
        if problem and problem.is_square:
            found: dict[str, Figure] = {}
            for run in (*reversed(others), first):
                places = panels.standings(run, setting, problem, scope=scope)
                found |= {
                    name: Figure(
                        place.rate.median,
                        is_earlier(run, place.row),
                        rates.is_compared(run, setting.device, place.row, scope),
                    )
                    for name, place in places.items()
                    if place.rate
                }
            return problem.m, scope, found
    raise ReadmeError(f"{first.path} has no square problem in {DTYPE}")


def ladder(runs: Sequence[tuple[str, str, Sequence[Run]]], variants: Sequence[Variant] = VARIANTS) -> str:
    """The ladder in markdown: name, idea, GFLOPS on each device; the best of a device in bold."""
    found = [(column, device, *figures(saved)) for column, device, saved in runs]
    sizes = " and ".join(f"{size} on {device}" for _, device, size, *_ in found)
    scopes = {scope for *_, scope, _ in found}
    if len(scopes) > 1:
        raise ReadmeError(f"the columns of the ladder are of several scopes: {', '.join(sorted(scopes))}")
    about = (
        f"GFLOPS in {DTYPE} at m = n = k = {sizes}, each the largest size that most kernels have: in the "
        f"{scopes.pop()} scope, for `numpy` in the host scope; the best in bold (`numpy` takes part on CPUs, "
        "where nothing is transferred). `-`: not measured there."
    )
    heads = ["kernel", "idea", *(column for column, *_ in found)]
    lines = [
        *textwrap.wrap(about, WIDTH),
        "",
        f"| {' | '.join(heads)} |",
        f"|---|---|{'--:|' * len(found)}",
    ]
    for variant in variants:
        idea = variant.idea.replace("|", r"\|")
        cells = [_cell(shown, variant.name) for *_, shown in found]
        lines.append(f"| `{variant.name}` | {idea} | {' | '.join(cells)} |")
    earlier = [
        f"`{variant.name}` ({column})"
        for column, *_, shown in found
        for variant in variants
        if variant.name in shown and shown[variant.name].earlier
    ]
    apart = [
        f"{note.label.capitalize()} on {device}: {note.text}."
        for (_, device, saved), (_, _, size, *_) in zip(runs, found, strict=True)
        for run in saved
        for note in same_kernel(
            [row for row in run.rows if row.dtype == DTYPE and row.problem and row.problem.n == size],
            lambda row: str(rates.gemm_of(row).n),
        )
    ]
    return "\n".join([*lines, *_below(" ".join(apart)), *_below(earlier_forms(", ".join(earlier)))])


def _cell(shown: Mapping[str, Figure], name: str) -> str:
    if name not in shown:
        return "-"
    text = units.gflops(shown[name].rate)
    compared = [each for each in shown.values() if each.compared]
    return f"**{text}**" if shown[name].rate == max(each.rate for each in compared) else text


def _below(text: str) -> list[str]:
    """The lines of a paragraph that stands below a table; none for ""."""
    return ["", *textwrap.wrap(text, WIDTH, break_on_hyphens=False)] if text else []


def tensor(run: Run, peaks: Run) -> str:
    """The kernels on tensor cores in markdown, cuBLAS beside them: TFLOPS by data type.

    Args:
        run: with all of them at one size.
        peaks: of the same device, with the peak of dp4a.

    Raises:
        ReadmeError: the types have no size in common.
    """
    settings = {setting.dtype: setting for setting in panels.settings(run)}
    places = {
        dtype: (problem, panels.standings(run, settings[dtype], problem))
        for dtype in TENSOR_TYPES
        if dtype in settings and (problem := panels.common_problem(run, settings[dtype]))
    }
    sizes = {problem for problem, _ in places.values()}
    if len(places) < len(TENSOR_TYPES) or len(sizes) > 1:
        raise ReadmeError(f"{run.path} has not one size for {', '.join(TENSOR_TYPES)}")
    (size,) = sizes
    about = (
        f"On tensor cores, TFLOPS (int8: TOPS) at n = {size.n} on an {run.header.devices[0].name}, one "
        f"interleaved run with random operands, {rates.view_scope(run)} scope, the best of each type in bold:"
    )
    lines = [
        *textwrap.wrap(about, WIDTH),
        "",
        f"| kernel | {' | '.join(TENSOR_TYPES.values())} |",
        f"|---|{'--:|' * len(TENSOR_TYPES)}",
    ]
    earlier, text, shown = [], {}, {}
    for name in (variant.name for variant in VARIANTS if variant.matrix_units):
        mine = {dtype: found.get(name) for dtype, (_, found) in places.items()}
        rows = [place.row for place in mine.values() if place and place.rate]
        for dtype, place in mine.items():
            text[name, dtype] = units.number(place.rate.median / TERA) if place and place.rate else "-"
            shown[name, dtype] = (
                f"**{text[name, dtype]}**" if place and place.rank == 1 else text[name, dtype]
            )
        # a library's first note begins with its name and version
        title = rows[0].notes[0].partition(",")[0] if name == "cublas" else f"`{name}`"
        lines.append(f"| {title} | {' | '.join(shown[name, dtype] for dtype in TENSOR_TYPES)} |")
        earlier += [title] if any(is_earlier(run, row) for row in rows) else []
    dp4a = rates.peak(peaks, 0, "char", matrix=False)
    peak = units.number(dp4a.rate / TERA) if dp4a else "-"
    below = (
        "cuBLAS takes its dp4a path for int8 operands that are not transposed, as here, and not the tensor "
        f"cores (the peak of dp4a, measured: {peak} TOPS): {text['nv-wgmma', 'char']} "
        f"against {text['cublas', 'char']} is not tensor core against tensor core."
    )
    return "\n".join([*lines, *_below(below), *_below(earlier_forms(", ".join(earlier)))])


def regret(run: Run) -> str:
    """What `auto` would lose at each size in the host scope, were the others alone measured."""
    lines = ["| size | the fastest | chosen without that size | loss |", "|---|---|---|---|"]
    ratios = []
    for each in auto_regret.regrets(run, 0, DTYPE, CHOOSABLE):
        chosen, ratio = auto_regret.blindly(run, 0, DTYPE, each)
        if ratio is None:
            continue
        ratios.append(ratio)
        lines.append(
            f"| {each.problem.m} | `{each.best.variant}` | `{chosen}` | {units.percent(ratio - 1)} |"
        )
    mean = units.percent(geometric_mean(ratios) - 1)
    lines += ["", f"Geometric mean of the loss: {mean} (`{REGRET_RUN}`, {DTYPE})."]
    return "\n".join(lines)


def beside(run: Run, path: str, names: Sequence[str], libraries: Sequence[str] = ("cublas",)) -> str:
    """Kernels beside libraries at every size of a run that the first kernel was measured at, TFLOPS.

    Args:
        run: any.
        path: where it is saved, for the line below the table.
        names: of the kernels: two columns each, the kernel scope and the device scope.
        libraries: a column each, the device scope.
    """
    rows = {(row.variant, row.dtype, row.problem): row for row in run.rows if row.status == "ok"}

    def cell(row: Row | None, scope: str) -> str:
        reached = rates.rate(row, scope) if row else None
        return units.number(reached.median / TERA) if reached else ""

    heads = [head for name in names for head in (f"`{name}`, kernel", "with its passes")]
    titles = ["cuBLAS" if name == "cublas" else "CLBlast" for name in libraries]
    lines = [f"| | n | {' | '.join([*heads, *titles])} |", f"|---|{'--:|' * (1 + len(heads) + len(titles))}"]
    dtypes: dict[str, None] = {}
    for variant, dtype, problem in rows:
        if variant == names[0] and problem and problem.is_square:
            dtypes[dtype] = None
            kernels = [rows.get((name, dtype, problem)) for name in names]
            cells = [cell(row, scope) for row in kernels for scope in ("kernel", "device")]
            cells += [cell(rows.get((name, dtype, problem)), "device") for name in libraries]
            lines.append(f"| {TENSOR_TYPES.get(dtype, dtype)} | {problem.m} | {' | '.join(cells)} |")
    peaks = {dtype: rates.peak(run, 0, dtype) for dtype in dtypes}
    known = ", ".join(f"{dtype} {units.number(top.rate / TERA)}" for dtype, top in peaks.items() if top)
    about = f"One run (`{path}`); kernels were measured one after the other."
    below = f"{about} Peaks measured in it: {known}." if known else about
    return "\n".join([*lines, *_below(below), *_earlier([run], names)])


def packed(runs: Sequence[Run], paths: str) -> str:
    """cpu-packed beside numpy, batch by batch in turn, both by the wall clock."""
    lines = [
        "| driver | | n | GFLOPS | times numpy | host scope: GFLOPS | times numpy |",
        "|---|---|--:|--:|--:|--:|--:|",
    ]
    found: dict[tuple[str, str, int], str] = {}
    for run in runs:
        for row in run.rows:
            if row.problem and rates.versus(row, "host") and not disturbed(run, row):
                figures = [
                    f"{_gflops(row, scope)} | {_times_numpy(row, scope)}" for scope in ("device", "host")
                ]
                about = run.header.devices[row.device].driver, row.dtype, row.problem.n
                found.setdefault(about, " | ".join(figures))
    order = [run.header.devices[0].driver for run in runs], ["float", "double"]
    for about in sorted(found, key=lambda each: (order[0].index(each[0]), order[1].index(each[1]), each[2])):
        lines.append(f"| {' | '.join(map(str, about))} | {found[about]} |")
    text = "Device and host scope, on an {}, with the 95 % interval of the ratio ({}); no disturbed rows."
    below = _below(text.format(runs[0].header.devices[0].name, f"`{paths}`"))
    return "\n".join([*lines, *below, *_earlier(runs, ["cpu-packed"])])


def beside_in_turn(runs: Sequence[Run], paths: Sequence[str]) -> str:
    """Kernels and cuBLAS, settled, in turn: TFLOPS of the device scope, and as a CUDA graph if replayed."""

    def cell(reached: rates.Rate | None) -> str:
        return units.number(reached.median / TERA) if reached else "-"

    lines = ["| | | n | device scope | as a graph | cuBLAS | ratio |", f"|---|---|{'--:|' * 5}"]
    for run in runs:
        for row in run.rows:
            if row.problem and row.former and rates.versus(row, "device"):
                library = replace(row, samples=row.former.samples)
                graph = GRAPH if GRAPH in library.samples else "device"
                cells = (
                    cell(rates.shown_rate(row, "device")),
                    cell(rates.rate(row, GRAPH)),
                    cell(rates.rate(library, graph)),
                    _times_numpy(row, "device"),
                )
                name = f"{TENSOR_TYPES.get(row.dtype, row.dtype)}{', NT' if row.problem.trans_b else ''}"
                lines.append(f"| `{row.variant}` | {name} | {row.problem.n} | {' | '.join(cells)} |")
    device = runs[0].header.devices[0].name
    about = f"On an {device}, in turn, the ratio with its 95 % interval ({_named(paths)})."
    return "\n".join([*lines, *_below(about), *_earlier(runs, ["nv-async", "nv-mma", "nv-wgmma"])])


def layouts(runs: Sequence[Run], paths: Sequence[str]) -> str:
    """Kernels by size and layout, TFLOPS of the device scope, and the share of the shape named NN."""
    lines = ["| | | shape | device scope | of NN |", "|---|---|---|--:|--:|"]
    for run in runs:
        reached = [(row, shown.median) for row in run.rows if (shown := rates.shown_rate(row, "device"))]
        plain = next(rate for row, rate in reached if row.label.endswith("NN"))
        for row, rate in reached:
            cells = units.number(rate / TERA), units.percent(rate / plain)
            lines.append(f"| `{row.variant}` | {row.dtype} | {row.label} | {' | '.join(cells)} |")
    about = f"On an {runs[0].header.devices[0].name}, settled, one after the other ({_named(paths)})."
    return "\n".join([*lines, *_below(about), *_earlier(runs, ["nv-async", "nv-wgmma"])])


def packed_shapes(runs: Sequence[Run]) -> str:
    """cpu-packed over numpy in turn on the shapes of `workloads`, and the geometric means."""
    tables: dict[str, dict[Gemm, Row]] = {}
    for run in runs:
        table = tables.setdefault(run.header.devices[0].driver, {})
        for row in run.rows:
            if rates.versus(row, "device") and not disturbed(run, row):
                table.setdefault(rates.gemm_of(row), row)
    lines = [f"| m x n x k | {' | '.join(tables)} |", f"|---|{'--:|' * len(tables)}"]
    every = dict.fromkeys(
        rates.gemm_of(row) for run in runs for row in run.rows if rates.versus(row, "device")
    )
    for problem in every:
        cells = [
            _times_numpy(table[problem], "device") if problem in table else "-" for table in tables.values()
        ]
        lines.append(f"| {problem.shape} | {' | '.join(cells)} |")
    found = [
        {at: versus.median for at, row in table.items() if (versus := rates.versus(row, "device"))}
        for table in tables.values()
    ]
    common = set.intersection(*map(set, found))
    means = [f"{geometric_mean(each.values()):.2f} of {len(each)} shapes" for each in found]
    shared = [f"{geometric_mean(each[problem] for problem in common):.2f}" for each in found]
    lines.append(f"| geometric mean | {' | '.join(means)} |")
    lines.append(f"| of the {len(common)} shapes that every column has | {' | '.join(shared)} |")
    about = (
        "Times numpy in float, device scope, in turn, with its 95 % interval "
        "(`tests/data/cpu-*-workloads.jsonl`); no disturbed rows."
    )
    return "\n".join([*lines, *_below(about)])


def _gflops(row: Row, scope: str) -> str:
    figure = rates.rate(row, scope)
    return units.gflops(figure.median) if figure else "-"


def _times_numpy(row: Row, scope: str) -> str:
    """A ratio with its interval; alone if it has none."""
    figure = rates.versus(row, scope)
    if figure is None:
        return "-"
    interval = "" if figure.is_few else f" ({figure.low:.2f} to {figure.high:.2f})"
    return f"{figure.median:.2f}{interval}"


def _named(paths: Sequence[str]) -> str:
    return ", ".join(f"`{path}`" for path in paths)


def _earlier(runs: Sequence[Run], names: Sequence[str]) -> list[str]:
    """The lines below a table that say which of its kernels were others when the runs were made."""
    rows = [(run, row) for run in runs for row in run.rows]
    old = [name for name in names if any(is_earlier(run, row) for run, row in rows if row.variant == name)]
    return _below(earlier_forms(", ".join(f"`{name}`" for name in old)))


def few(runs: Sequence[Run], paths: Sequence[str]) -> str:
    """Small, thin and batched products, microseconds a call, beside cuBLAS where it was measured.

    Args:
        runs: of `workloads`.
        paths: where they are saved, for the line below the table.
    """
    rows = [row for run in runs for row in run.rows]
    libraries = {row.problem: row for row in rows if row.variant == "cublas" and row.status == "ok"}

    def took(row: Row | None, scope: str) -> float | None:
        reached = rates.rate(row, scope) if row else None
        return rates.flops_of(row) / reached.median if row and reached else None

    def cell(value: float | None, scale: float = 1e6) -> str:
        return units.number(value * scale) if value else ""

    titles = (
        "kernel, by events, us",
        "in a chain, us",
        "as a graph, us",
        "cuBLAS, us",
        "times cuBLAS' rate",
        "GB/s, by events",
        "clock, MHz",
    )
    table: list[tuple[str, ...]] = []
    for row in rows:
        if row.problem is None or row.variant == "cublas" or row.status != "ok":
            continue
        kernel = took(row, "kernel")
        against = rates.versus(row)
        moved = cell(rates.gemm_of(row).operand_bytes / kernel, 1e-9) if kernel else ""
        library = took(libraries.get(row.problem), "device")
        if row.former and row.former.variant == "cublas" and GRAPH in row.former.samples:
            library = median(row.former.samples[GRAPH].seconds)
        cells = (
            cell(kernel),
            cell(took(row, CHAIN)),
            cell(took(row, GRAPH)),
            cell(library),
            cell(against.median if against else None, 1),
            moved,
            cell(counted_mhz(row), 1),
        )
        what = row.label if row.dtype == "float" else f"{row.label}, {row.dtype}"
        table.append((what, f"`{row.variant}`", *cells))
    shown = [column for column in zip(("", "", *titles), *table, strict=True) if any(column[1:])]
    lines = [f"| {' | '.join(line)} |" for line in zip(*shown, strict=True)]
    lines.insert(1, f"|---|---|{'--:|' * (len(shown) - 2)}")
    limits = "".join(limited(run, 0) for run in runs)
    middle = "Medians, or means where power limits the clock," if limits else "Medians"
    device = runs[0].header.devices[0].name
    about = f"{middle} on an {device} ({_named(paths)}). Operands that fit the cache stay in it."
    if any(rates.versus(row) for row in rows):
        about += (
            " cuBLAS' calls are a CUDA graph. Its rate is compared batch by batch in turn, kernels of less "
            "than a millisecond as a graph, too: of the PTX that OpenCL's driver made."
        )
    return "\n".join([*lines, *_below(about), *_earlier(runs, ["small", "thin"])])


def states(settled: Run, burst: Run) -> str:
    """What the same rows reach settled and in a burst, TFLOPS in the scope that is compared."""
    scope = rates.view_scope(settled, burst)
    cool = {row.key: row for row in burst.rows}
    lines = ["| kernel | type | n | settled | burst | more |", "|---|---|--:|--:|--:|--:|"]
    for row in settled.rows:
        other = cool.get(row.key)
        pair = [rates.median_rate(each, scope) for each in (row, other) if each]
        if row.problem is None or len(pair) < 2 or not all(pair):
            continue
        warm, fast = (rate or 0.0 for rate in pair)
        figures = (
            f"{units.number(warm / TERA)} | {units.number(fast / TERA)} | {units.percent(fast / warm - 1)}"
        )
        lines.append(f"| `{row.variant}` | {row.dtype} | {row.problem.n} | {figures} |")
    about = (
        f"TFLOPS on an {settled.header.devices[0].name}, {scope} scope, a run in each state "
        f"(`{STATE_RUNS[0]}`, `{STATE_RUNS[1]}`):"
    )
    names = dict.fromkeys(row.variant for row in settled.rows if row.problem)
    return "\n".join([*textwrap.wrap(about, WIDTH), "", *lines, *_earlier([settled], tuple(names))])


def sample(path: str, run: api.Run, conclusion: str) -> str:
    """What ``show`` prints of a run: its heading, its table and its conclusion, by how that begins."""
    console = Console(width=80, file=io.StringIO())
    with console.capture() as printed:
        console.print(run.table())
    text = "\n".join(line.rstrip() for line in printed.get().splitlines())
    tables, _, end = text.partition(f"\n{conclusion}: ")
    shown, end = tables.rpartition("\n\n")[0], end.partition("\n\n")[0]
    return "\n".join(("```", f"$ gemmbench show {path}", shown, "...", f"{conclusion}: {end}", "```"))


def markers(part: str) -> tuple[str, str]:
    """The comments of a page that a generated part stands between."""
    return f"<!-- The {part}: generated, `make readme` writes it. -->", f"<!-- End of the {part}. -->"


def between(readme: str, part: str) -> str:
    """A generated part of a page as it stands there.

    Raises:
        ReadmeError: it does not have both markers once, in order.
    """
    return _split(readme, part)[1]


def replaced(readme: str, part: str, generated: str) -> str:
    """A page with a generated part between its markers; see `between`."""
    before, _, after = _split(readme, part)
    begin, end = markers(part)
    return f"{before}{begin}\n\n{generated}\n\n{end}{after}"


def _split(readme: str, part: str) -> tuple[str, str, str]:
    first, last = markers(part)
    before, begin, rest = readme.partition(first)
    inside, end, after = rest.partition(last)
    if not begin or not end or first in after or last in after:
        raise ReadmeError(f"a page must have {first} and {last}, once each")
    return before, inside, after


def _there(root: Path, files: Sequence[str]) -> Sequence[str]:
    """Those that were measured; all if none was."""
    return [file for file in files if (root / file).exists()] or files


def generated(root: Path) -> dict[str, str]:
    """Every generated part, from the runs below a folder."""
    runs = [(column, device, [load(root / file) for file in files]) for column, device, files in RUNS]
    return {
        SAMPLE: sample(RUNS[0][2][0], api.load(root / RUNS[0][2][0]), "Break-even"),
        BEST: sample(BEST_RUN, api.load(root / BEST_RUN), "best shape"),
        LADDER: ladder(runs),
        TENSOR: tensor(load(root / TENSOR_RUN), load(root / TENSOR_PEAK)),
        REGRET: regret(load(root / REGRET_RUN)),
        ASYNC: beside(load(root / LIMIT_RUN), LIMIT_RUN, ("nv-async", "gpu-tile"), ("cublas", "clblast")),
        MMA: beside(load(root / TENSOR_RUN), TENSOR_RUN, ("nv-mma",)),
        WGMMA: beside(load(root / TENSOR_RUN), TENSOR_RUN, ("nv-wgmma",)),
        VERSUS: beside_in_turn([load(root / file) for file in VERSUS_RUNS], VERSUS_RUNS),
        ASYNC_VERSUS: beside_in_turn([load(root / ASYNC_RUN)], [ASYNC_RUN]),
        LAYOUTS: layouts([load(root / file) for file in LAYOUT_RUNS], LAYOUT_RUNS),
        THIN: few([load(root / file) for file in THIN_RUNS], THIN_RUNS),
        SMALL: few([load(root / SMALL_RUN)], [SMALL_RUN]),
        PACKED: packed(
            [load(root / file) for file in _there(root, PACKED_RUNS)], "tests/data/cpu-*-packed*.jsonl"
        ),
        PACKED_SECOND: packed(
            [load(root / file) for file in PACKED_SECOND_RUNS], "tests/data/cpu-*-packed-second*.jsonl"
        ),
        PACKED_OVER: packed_shapes([load(root / file) for file in _there(root, PACKED_SHAPES)]),
        EXPERIMENTS: experiments.table(root),
        FAULTS: device_verification.table(root),
        STATES: states(*(load(root / file) for file in STATE_RUNS)),
    }


def main(arguments: Sequence[str] | None = None) -> int:
    """Write the pages, or say whether one is stale; the exit status."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="write nothing; status 1 if a page is stale")
    parser.add_argument("--root", type=Path, default=ROOT, help=argparse.SUPPRESS)
    chosen = parser.parse_args(arguments)
    status = 0
    for part, text in generated(chosen.root).items():
        page = PAGES[part]
        path = chosen.root / page
        before = path.read_text(encoding="utf-8")
        fresh = replaced(before, part, text)
        if fresh == before:
            continue
        if chosen.check:
            print(f"{page}: the {part} is stale; make readme writes it", file=sys.stderr)
            status = 1
        else:
            path.write_text(fresh, encoding="utf-8")
            print(f"wrote the {part} in {page}", file=sys.stderr)
    return status


if __name__ == "__main__":
    sys.exit(main())
