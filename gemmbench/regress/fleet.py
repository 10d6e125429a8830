"""Nodes of a fleet that ran the same cases: which of them are not like the others."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

from gemmbench.model import units
from gemmbench.model.device import HOST
from gemmbench.model.row import RowKey
from gemmbench.model.run_file import Run
from gemmbench.model.units import clean
from gemmbench.regress.baseline import Basis, Rules
from gemmbench.regress.compare_table import change
from gemmbench.regress.verdict import OUTLYING, robust_deviation
from gemmbench.report.table import Cell, Note, Sheet

LEAST_NODES = 4  # of fewer the middle is too easily one of the odd

WHAT = {
    "gemm": "GEMMs",
    "peak": "arithmetic peaks",
    "bandwidth": "memory bandwidth",
    "transfer": "transfers",
    "latency": "latencies",
    "lowering": "lowerings",
}


@dataclass(frozen=True)
class Standing:
    """One node in one sort of rows."""

    ratio: float  # its time over that of the middle node, the middle of its rows; above 1 is slower
    rows: int
    beyond: int  # rows that are outliers among the same row of the other nodes
    is_outlier: bool


@dataclass(frozen=True, eq=False)
class Node:
    """One machine of the fleet."""

    name: str
    run: Run
    standings: dict[str, Standing]  # by sort of rows: those of a kind, the host's apart
    differences: tuple[str, ...]  # what it is, and what most of the others are

    @property
    def outlying(self) -> dict[str, Standing]:
        """The sorts in which it is an outlier."""
        return {what: each for what, each in self.standings.items() if each.is_outlier}


@dataclass(frozen=True, eq=False)
class Fleet:
    """Every node beside the others."""

    nodes: tuple[Node, ...]
    threshold: float  # how far an outlier lies off at least; 0.05 is 5 %

    @property
    def middle(self) -> Node:
        """The node whose rows lie closest to the middle."""

        def apart(node: Node) -> float:
            return max((abs(math.log(each.ratio)) for each in node.standings.values()), default=math.inf)

        return min(self.nodes, key=apart)


def fleet(runs: Sequence[Run], names: Sequence[str], rules: Rules | None = None) -> Fleet:
    """Hold every node against the middle one, row by row.

    A node is an outlier in a sort of rows (GEMMs, transfers, ...) if the median of its rows lies more than
    `OUTLYING` robust standard deviations (by the median absolute deviation over the nodes) from the middle,
    and more than the threshold.

    Args:
        runs: one of each node; rows are paired by their cases, as in a comparison.
        names: of the nodes.
        rules: whose threshold and scope count.
    """
    rules = rules or Rules()
    figures = _figures(Basis(tuple(runs), rules))
    apart: dict[str, list[list[float]]] = {}  # by sort of rows, then node
    beyond: dict[str, Counter[int]] = {}
    limit = math.log1p(rules.thresholds.default)
    for key, values in figures.items():
        if len(values) < LEAST_NODES:
            continue
        what = WHAT[key[0]] + (" on the host" if key[1] == HOST else "")
        middle = median(values.values())
        far = max(limit, OUTLYING * robust_deviation([*values.values()]))
        for node, value in values.items():
            apart.setdefault(what, [[] for _ in runs])[node].append(value - middle)
            beyond.setdefault(what, Counter())[node] += abs(value - middle) > far
    standings: list[dict[str, Standing]] = [{} for _ in runs]
    for what, by_node in apart.items():
        middles = {node: median(values) for node, values in enumerate(by_node) if values}
        centre, spread = median(middles.values()), robust_deviation([*middles.values()])
        for node, value in middles.items():
            is_outlier = abs(value - centre) > max(limit, OUTLYING * spread)
            rows = len(by_node[node])
            standings[node][what] = Standing(math.exp(value - centre), rows, beyond[what][node], is_outlier)
    odd = _differences(runs)
    nodes = zip(names, runs, standings, odd, strict=True)
    return Fleet(tuple(Node(*each) for each in nodes), rules.thresholds.default)


def _figures(basis: Basis) -> dict[RowKey, dict[int, float]]:
    """The logarithm of each row's cost by node."""
    figures: dict[RowKey, dict[int, float]] = {}
    for number, run in enumerate(basis.bases):
        for each in basis.repeated([run])[:1]:
            for key in each.rows:
                figure = basis.figure(each.rows, key)
                if figure is not None and not each.rows[key].measured_utc:
                    figures.setdefault(key, {})[number] = figure.value
    return figures


def _differences(runs: Sequence[Run]) -> list[tuple[str, ...]]:
    """What each node has that most others have not; nothing where there is no majority."""
    texts: list[list[str]] = [[] for _ in runs]
    facts = [_facts(run) for run in runs]
    for name in facts[0]:
        values = [each.get(name, "none") for each in facts]
        usual, count = Counter(values).most_common(1)[0]
        if count * 2 <= len(runs):
            continue
        for node, value in enumerate(values):
            if value != usual:
                texts[node].append(f"{name} {value}, not {usual}")
    return [tuple(each) for each in texts]


def _facts(run: Run) -> dict[str, str]:
    host = run.header.host
    facts = {
        "gemmbench": run.header.gemmbench,
        "processor": host.cpu,
        "cores": str(host.cores),
        "system": host.system,
        "Python": host.python,
        "NumPy": host.numpy,
        "BLAS": host.blas,
    }
    for device in run.header.devices:
        facts[f"driver of {device.name}"] = device.driver
        facts[f"units of {device.name}"] = str(device.compute_units)
    return {name: clean(value) for name, value in facts.items()}


# --- what is said of a fleet --------------------------------------------------------------------------------


def conclusions(made: Fleet) -> list[Note]:
    """The outliers by name, how far off each is, and what is different about it."""
    count, limit = len(made.nodes), units.percent(made.threshold)
    if count < LEAST_NODES:
        return [Note("Fleet", f"{count} nodes; outliers are named from {LEAST_NODES} on.", "bold")]
    odd = [node for node in made.nodes if node.outlying]
    if not odd:
        text = f"no outliers among {count} nodes: all within {limit} or 3 robust deviations of the middle."
        return [Note("Fleet", text, "bold")]
    rule = f"beyond {limit} and {OUTLYING:g} robust deviations of the middle"
    head = f"{len(odd)} of {count} nodes {'is an outlier' if len(odd) == 1 else 'are outliers'}, {rule}."
    return [Note("Fleet", head, "bold"), *(Note(clean(node.name), _about(node), "bold red") for node in odd)]


def _about(node: Node) -> str:
    parts = [
        f"{what}: {change(each.ratio)} of time against the middle node ({each.beyond} of {each.rows} rows)"
        for what, each in node.outlying.items()
    ]
    return "; ".join([*parts, *node.differences]) + "."


def sheet(made: Fleet) -> Sheet:
    """A line for each node: its time against the middle node's, by sort of rows."""
    sorts = list(dict.fromkeys(what for node in made.nodes for what in node.standings))

    def cell(node: Node, what: str) -> Cell:
        each = node.standings.get(what)
        return Cell(change(each.ratio), style="bold red" if each.is_outlier else "") if each else Cell("-")

    return Sheet(
        caption="change of the time against the middle node, the median of its rows; + is slower",
        keys=("node",),
        blocks=(tuple(sorts), ("rows beyond", "of", "verdict", "differs in")),
        rows=tuple(
            (
                Cell(clean(node.name)),
                *(cell(node, what) for what in sorts),
                Cell(str(sum(each.beyond for each in node.standings.values()))),
                Cell(str(sum(each.rows for each in node.standings.values()))),
                Cell("outlier", style="bold red") if node.outlying else Cell("alike"),
                Cell("; ".join(node.differences) or "-"),
            )
            for node in made.nodes
        ),
        notes=tuple(conclusions(made)),
        left=frozenset({"verdict", "differs in"}),
    )
