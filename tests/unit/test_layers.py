"""Imports go one way: the table of rooms, held against every import statement of the package.

`python tests/unit/test_layers.py` prints the map of CONTRIBUTING.md from the same table.
"""

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

PACKAGE = Path(__file__).resolve().parents[2] / "gemmbench"


@dataclass(frozen=True)
class Room:
    """A folder (or single file) of the package: what it holds and which rooms it imports."""

    holds: str
    uses: str = ""

    @property
    def imports(self) -> list[str]:
        return self.uses.split()


# From the ground up. Features (gemm, probes, tune, regress) never import each other.
ROOMS: dict[str, Room] = {
    "model": Room("plain data: problem, data types, device, case, instrument protocol, row, run file, units"),
    "stats": Room("statistics of samples: intervals, ratios, rates, peaks, break-even sizes, ranks", "model"),
    "ladder": Room("the GEMM variants as data; no other package knows a kernel's name", "model"),
    "report": Room("builders for tables, notes and progress", "model stats"),
    "charts": Room("builders for panes, bars, lines and log axes", "model ladder"),
    "opencl": Room("drivers, discovery, building and launching, PTX, resources", "model ladder"),
    "measure": Room(
        "the instrument (the child process), sampling, conditions, energy, the host",
        "model stats ladder opencl",
    ),
    "gemm": Room(
        "one GEMM: operands, verification, execution, tables and charts",
        "model stats ladder report charts opencl measure",
    ),
    "probes": Room(
        "arithmetic, memory, transfer and latency probes, their tables and charts",
        "model stats ladder report charts opencl measure",
    ),
    "suite": Room(
        "how a command runs: options, selection of devices, plan, job, session, cached results",
        "model stats ladder report charts opencl measure gemm probes",
    ),
    "tune": Room("the tuner: space, search, session, table", "model stats ladder report measure suite"),
    "regress": Room("`compare` and `check`, with their tables", "model stats ladder report measure suite"),
    "doctor": Room(
        "checks for causes of a slow machine, with their inputs and findings", "model opencl measure"
    ),
    "views": Room(
        "chooses the table that shows a run, in the terminal or as Markdown",
        "model stats report gemm probes tune",
    ),
    "exports": Room(
        "exports to other programs: formats, flat records, schemas", "model stats ladder report gemm views"
    ),
    "chart_views": Room("chooses the charts of a run or a comparison", "model charts gemm probes regress"),
    "pages": Room(
        "a report of saved runs as one HTML page",
        "model stats ladder report charts gemm suite regress views chart_views",
    ),
    "api": Room(
        "the commands as functions: what `import gemmbench` offers",
        "model stats ladder report charts opencl measure suite tune regress doctor views "
        "exports chart_views pages",
    ),
    "cli": Room(
        "the command line: parses options, calls the API, shows the result and exits",
        "model ladder report charts opencl measure gemm probes suite tune doctor exports chart_views api",
    ),
    "__main__": Room("`python -m gemmbench`", "cli"),
    "": Room("the API's names, loaded when first used", "api"),
}

# distribution's import name: the rooms (or modules) that import it
THIRD_PARTY = {
    "numpy": "model stats charts opencl measure gemm probes regress",
    # A kernel's file describes it in TOML, and shapes in CSV: msgspec names the field that is wrong.
    "msgspec": "model ladder.described ladder.own gemm.logs gemm.workloads measure suite exports cli",
    "ml_dtypes": "model",
    "platformdirs": "suite",
    "pyopencl": "opencl gemm probes",
    "click": "suite.options cli",
    "rich": "report suite tune regress doctor views api cli",
    "matplotlib": "charts gemm probes chart_views pages",
    "jinja2": "pages",
    "markupsafe": "pages",
    "scipy": "gemm.numpy_blas",
    "junitparser": "regress",
    "psutil": "measure",
    "threadpoolctl": "measure.machine",
    "pynvml": "measure doctor.machine",
}

# What only the child process imports: pyopencl stands in no other module.
CHILD = (
    "opencl.discovery", "opencl.runtime", "gemm.opencl", "gemm.opencl_bench",
    "gemm.cublas", "probes.opencl", "probes.memory_opencl",
)  # fmt: skip
OPEN = ("UsageError", "NothingMeasured", "__version__")  # that every room may take from gemmbench itself


def within(module: str, rooms: str) -> bool:
    return any(module == room or module.startswith(room + ".") for room in rooms.split())


def imported(module: str, source: str, is_package: bool = False) -> Iterator[tuple[int, str]]:
    """Line and full dotted name of everything that a module imports, wherever the statement stands."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                above = ["gemmbench", *filter(None, module.split("."))]
                above = above[: len(above) - node.level + is_package]
                base = ".".join([*above, *filter(None, [node.module])])
            # ``from gemmbench import charts`` imports a module as much as ``import gemmbench.charts.pane``
            yield from ((node.lineno, f"{base}.{alias.name}") for alias in node.names)


def violations(module: str, source: str, is_package: bool = False) -> list[str]:
    """What a module (named without ``gemmbench.``) imports against the rules."""
    room = module.split(".")[0]
    broken = []
    for line, name in imported(module, source, is_package):
        root, _, rest = name.partition(".")
        here = f"gemmbench.{module}:{line} imports {name}"
        if root == "gemmbench":
            target = rest.split(".")[0]
            if target in ROOMS and target != room and target not in ROOMS[room].imports:
                broken.append(f"{here}: {room} may import {ROOMS[room].uses or 'nothing'}")
            elif target not in (*ROOMS, *OPEN):
                broken.append(f"{here}: there is no such room")
        elif root in sys.stdlib_module_names:
            continue
        elif root not in THIRD_PARTY:
            broken.append(f"{here}: {root} is in no row of the table")
        elif not within(module, THIRD_PARTY[root]):
            broken.append(f"{here}: {root} belongs to {THIRD_PARTY[root]}")
        elif root == "pyopencl" and module not in CHILD:
            broken.append(f"{here}: it must not import pyopencl")
    return broken


def module_name(path: Path) -> str:
    return ".".join(path.relative_to(PACKAGE).with_suffix("").parts).removesuffix("__init__").rstrip(".")


MODULES = sorted(PACKAGE.rglob("*.py"))


@pytest.mark.parametrize("path", MODULES, ids=lambda path: module_name(path) or "gemmbench")
def test_imports_follow_the_layers(path: Path) -> None:
    broken = violations(module_name(path), path.read_text(encoding="utf-8"), path.name == "__init__.py")
    assert not broken, "\n".join(broken)


def test_every_permission_is_used() -> None:
    """A permission without an import says nothing about where a line may go."""
    names = {
        (module_name(path), name)
        for path in MODULES
        for _, name in imported(module_name(path), path.read_text(encoding="utf-8"))
    }
    used = {(module.split(".")[0], name.removeprefix("gemmbench.").split(".")[0]) for module, name in names}
    granted = {(name, other) for name, room in ROOMS.items() for other in room.imports}
    assert not sorted(granted - used)
    for library, rooms in THIRD_PARTY.items():
        users = {module for module, name in names if name.split(".")[0] == library}
        assert all(any(within(user, room) for user in users) for room in rooms.split()), library


def test_every_room_is_there() -> None:
    assert {module_name(path).split(".")[0] for path in MODULES} == ROOMS.keys()


def test_no_room_imports_one_below_it() -> None:
    order = list(ROOMS)
    for name, room in ROOMS.items():
        if name:
            assert all(order.index(other) < order.index(name) for other in room.imports), name


def room_map() -> str:
    """The table of CONTRIBUTING.md."""
    rows = [
        f"| `{name}` | {room.holds} |" for name, room in ROOMS.items() if name and not name.startswith("_")
    ]
    return "\n".join(["| package | holds |", "|---|---|", *rows])


def test_the_map_in_contributing_is_that_of_the_table() -> None:
    assert room_map() in (PACKAGE.parent / "CONTRIBUTING.md").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("module", "source"),
    [
        ("model.problem", "from gemmbench.suite.plan import gemm_plan"),
        ("model.problem", "from ..suite import plan"),
        ("model.problem", "from .. import suite"),
        ("model.problem", "import click"),
        ("model.problem", "def late():\n    import scipy.stats"),
        ("model.problem", "from gemmbench.facts import units"),
        ("gemm.measure", "def late():\n    import pynvml"),
        ("measure.sensors", "import pyopencl"),
        ("measure.child", "import pyopencl"),
        ("suite.plan", "import gemmbench.api"),
        ("suite.plan", "import pyopencl as cl"),
        ("gemm.measure", "from gemmbench.probes import measure"),
        ("probes.measure", "from gemmbench.gemm.measure import measured"),
        ("regress.compare", "from gemmbench.tune.result import result"),
        ("opencl.runtime", "from gemmbench.suite.session import run"),
        ("opencl.runtime", "from gemmbench.cli import main"),
        ("opencl.drivers", "import pyopencl"),
        ("measure.machine", "from pyopencl import Context"),
        ("suite.job", "import click"),
        ("api", "import click"),
        ("api", "from gemmbench.cli import running"),
        ("suite.options.measuring", "from gemmbench.api import Run"),
        ("report.table", "from gemmbench.suite.plan import gemm_plan"),
        ("report.table", "import matplotlib.pyplot as plt"),
        ("charts.pane", "from rich.table import Table"),
        ("stats.rates", "from gemmbench.ladder import ORDER"),
        ("cli.measuring", "import pandas"),
    ],
)
def test_what_is_forbidden_is_found(module: str, source: str) -> None:
    assert violations(module, source)


@pytest.mark.parametrize(
    ("module", "source"),
    [
        ("stats.intervals", "import numpy as np"),
        ("model.row", "from gemmbench import __version__"),
        ("suite.plan", "from gemmbench.model.problem import Gemm"),
        ("report.table", "from gemmbench.stats import rates"),
        ("opencl.runtime", "import pyopencl as cl"),
        ("opencl.runtime", "from . import drivers"),
        ("cli.compare", "from gemmbench import api, suite"),
        ("charts.pane", "import matplotlib"),
    ],
)
def test_what_is_allowed_passes(module: str, source: str) -> None:
    assert not violations(module, source)


def test_no_files_import_each_other_in_a_cycle() -> None:
    """Imports within functions count, those for type checkers alone do not."""
    files = {f"gemmbench.{module_name(path)}": path for path in MODULES if module_name(path)}
    graph: dict[str, set[str]] = {}
    for name, path in files.items():
        text = re.sub(
            r"^if TYPE_CHECKING:.*?^(?=\S)", "", path.read_text(encoding="utf-8"), flags=re.M | re.S
        )
        targets = [target for _, target in imported(module_name(path), text, path.name == "__init__.py")]
        nearest = (each if each in files else each.rpartition(".")[0] for each in targets)
        graph[name] = {each for each in nearest if each in files} - {name}
    ends = {""}
    while ends:  # what imports nothing that is left, or is imported by nothing that is left
        used = set().union(*graph.values())
        ends = {name for name, others in graph.items() if not others & graph.keys() or name not in used}
        graph = {name: others for name, others in graph.items() if name not in ends}
    assert not graph, f"these files import each other: {', '.join(sorted(graph))}"


def test_help_loads_no_heavy_library() -> None:
    """``gemmbench --help`` may take 1.2 times the time of importing click; these take seconds."""
    heavy = "{'numpy', 'scipy', 'matplotlib', 'pyopencl', 'rich', 'msgspec'}"
    code = f"import sys, gemmbench.cli; print(*sorted({heavy} & sys.modules.keys()))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == []


if __name__ == "__main__":
    print(room_map())
