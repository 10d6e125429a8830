"""Imports go one way: the table of the design, held against every import statement of the package."""

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

PACKAGE = Path(__file__).resolve().parents[2] / "gemmbench"

MACHINES = ("opencl", "baselines", "energy", "model", "measure", "gemm", "probes")
KEPT = ("cache_folder", "peaks", "measured", "tuned")
OUTLINE = ("session", "concurrent", "checking", "suite")
FACES = ("render", "charts", "compare")
LADDER = "rules.variants"  # the variants as plain data

# part of the package: the other parts that it may import; itself and gemmbench.__version__ always
MAY_IMPORT: dict[str, tuple[str, ...]] = {
    "facts": ("model",),
    "model": ("facts",),
    "stats": ("facts",),
    "rules": ("facts", "model", "stats"),
    **dict.fromkeys(MACHINES, ("facts", "rules", *MACHINES)),
    "automatic": ("facts", "rules", *MACHINES),
    "checking": ("facts", "rules", *MACHINES, "session", "suite"),
    "session": ("facts", "rules", *MACHINES, "automatic"),
    "concurrent": ("facts", "rules", *MACHINES, "automatic", "session"),
    "cache_folder": ("facts",),
    "peaks": ("facts", "rules", "cache_folder"),
    "measured": ("facts", "rules", "cache_folder"),
    "tuned": ("facts", "rules", "cache_folder"),
    "suite": ("facts", "rules", *MACHINES, *KEPT, "automatic", "session", "concurrent"),
    "tuning": ("facts", "rules", *MACHINES, *KEPT, "suite"),
    **dict.fromkeys(FACES, ("facts", "stats", LADDER)),
    "options": ("facts", "rules", "render"),
    "api": ("facts", "rules", *MACHINES, *OUTLINE, *KEPT, "tuning", *FACES, "options"),
    "cli": ("facts", "rules", *MACHINES, *OUTLINE, *KEPT, "tuning", *FACES, "options", "api"),
    "__main__": ("cli",),
    "": ("api",),  # gemmbench/__init__.py
}

# distribution's import name: the modules (or parts) that may import it
THIRD_PARTY: dict[str, tuple[str, ...]] = {
    "numpy": ("facts", "rules", *MACHINES, "tuning.search", "charts", "cli"),
    "msgspec": ("facts", "measure", "cache_folder", "render", "cli"),
    "platformdirs": ("cache_folder",),
    "pyopencl": ("opencl",),
    "click": ("cli",),
    "rich": ("render", "options", "api", "cli"),
    "matplotlib": ("charts",),
    "PIL": ("charts",),
    "scipy": ("facts.stats", "facts.compare", "facts.history"),
    "junitparser": ("render.junit",),
    "threadpoolctl": ("baselines",),
    "pynvml": ("energy",),
    "kernel_tuner": ("tuning.search",),
}

# The parent process imports these; pyopencl belongs to the child.
WITHOUT_PYOPENCL = ("opencl", "opencl.drivers", "opencl.machine")


def within(module: str, parts: tuple[str, ...]) -> bool:
    return any(module == part or module.startswith(part + ".") for part in parts)


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
            # ``from gemmbench import charts`` imports a module as much as ``import gemmbench.charts``
            yield from ((node.lineno, f"{base}.{alias.name}") for alias in node.names)


def violations(module: str, source: str, is_package: bool = False) -> list[str]:
    """What a module (named without ``gemmbench.``) imports against the rules."""
    part = module.split(".")[0]
    found = []
    for line, name in imported(module, source, is_package):
        root, _, rest = name.partition(".")
        here = f"gemmbench.{module}:{line} imports {name}"
        if root == "gemmbench":
            target = rest.split(".")[0]
            if target in MAY_IMPORT and target != part and not within(rest, MAY_IMPORT[part]):
                found.append(f"{here}: {part} may import {', '.join(MAY_IMPORT[part]) or 'nothing'}")
        elif root in sys.stdlib_module_names:
            continue
        elif root not in THIRD_PARTY:
            found.append(f"{here}: {root} is in no row of the table")
        elif not within(module, THIRD_PARTY[root]):
            found.append(f"{here}: {root} belongs to {', '.join(THIRD_PARTY[root])}")
        elif root == "pyopencl" and module in WITHOUT_PYOPENCL:
            found.append(f"{here}: it must not import pyopencl")
    return found


def module_name(path: Path) -> str:
    return ".".join(path.relative_to(PACKAGE).with_suffix("").parts).removesuffix("__init__").rstrip(".")


MODULES = sorted(PACKAGE.rglob("*.py"))


@pytest.mark.parametrize("path", MODULES, ids=lambda path: module_name(path) or "gemmbench")
def test_imports_follow_the_layers(path: Path) -> None:
    found = violations(module_name(path), path.read_text(encoding="utf-8"), path.name == "__init__.py")
    assert not found, "\n".join(found)


def test_every_part_has_its_row() -> None:
    parts = {module_name(path).split(".")[0] for path in MODULES}
    assert parts <= MAY_IMPORT.keys()
    assert {"facts", "rules", "opencl", "measure", "session", "render", "cli"} <= parts


@pytest.mark.parametrize(
    ("module", "source"),
    [
        ("facts.problem", "from gemmbench.rules.plan import Case"),
        ("facts.problem", "from ..rules import plan"),
        ("facts.problem", "from .. import rules"),
        ("facts.problem", "import click"),
        ("facts.problem", "def late():\n    import scipy.stats"),
        ("opencl.gemm", "def late():\n    import pynvml"),
        ("energy", "import pyopencl"),
        ("rules.plan", "import gemmbench.opencl.runtime"),
        ("rules.plan", "import pyopencl as cl"),
        ("rules.plan", "from gemmbench import session"),
        ("opencl.runtime", "from gemmbench.session import run"),
        ("opencl.runtime", "from gemmbench.cli import main"),
        ("opencl.drivers", "import pyopencl"),
        ("opencl.machine", "from pyopencl import Context"),
        ("suite.run", "import click"),
        ("api", "import click"),
        ("api", "from gemmbench.cli import running"),
        ("options", "from gemmbench.suite import run"),
        ("measure.child", "import pyopencl"),
        ("session", "from gemmbench import cli"),
        ("session", "from gemmbench.render.tables import table"),
        ("render.tables", "from gemmbench.rules.plan import Case"),
        ("render.tables", "import click"),
        ("render.tables", "import matplotlib.pyplot as plt"),
        ("charts", "from rich.table import Table"),
        ("compare", "from gemmbench.session import run"),
        ("cli.peak", "import pandas"),
    ],
)
def test_what_is_forbidden_is_found(module: str, source: str) -> None:
    assert violations(module, source)


@pytest.mark.parametrize(
    ("module", "source"),
    [
        ("facts.stats", "from scipy.stats import bootstrap"),
        ("facts.records", "from gemmbench import __version__"),
        ("rules.plan", "from gemmbench.facts.problem import Gemm"),
        ("render.tables", "from gemmbench.rules.variants import ORDER"),
        ("opencl.runtime", "import pyopencl as cl"),
        ("opencl.runtime", "from . import drivers"),
        ("cli.peak", "from gemmbench import charts, session"),
        ("charts", "import matplotlib"),
    ],
)
def test_what_is_allowed_passes(module: str, source: str) -> None:
    assert not violations(module, source)


def test_help_loads_no_heavy_library() -> None:
    """``gemmbench --help`` may take twice the time of importing click; these take seconds."""
    heavy = "{'numpy', 'scipy', 'matplotlib', 'pyopencl', 'rich', 'msgspec'}"
    code = f"import sys, gemmbench.cli; print(*sorted({heavy} & sys.modules.keys()))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == []
