"""The site that `make docs` builds: the pages in docs/, and those that are generated or stand elsewhere.

A hook of mkdocs. Every file of the repository that a page links to goes with the site, so that no link leads
out of it.
"""

from __future__ import annotations

import inspect
import posixpath
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import gemmbench
from tools import man_page

if TYPE_CHECKING:
    from mkdocs.config.defaults import MkDocsConfig
    from mkdocs.structure.files import Files
    from mkdocs.structure.pages import Page

ROOT = Path(__file__).resolve().parents[1]
LINK = re.compile(r"(?<=\]\()(?![a-z]+:|#)([^)#\s]+)(#[^)\s]*)?(?=\))")

ELSEWHERE = {  # pages of the repository outside of docs/, by their name on the site
    "index.md": "README.md",
    "gallery.md": "plots/README.md",
    "contributing.md": "CONTRIBUTING.md",
    "changelog.md": "CHANGELOG.md",
}
SECTIONS: dict[str, tuple[str, ...]] = {  # pages that none names follow under "More"
    "Start": ("index.md", "getting-started.md", "commands.md", "reading-results.md"),
    "Kernels": ("kernels.md", "experiments.md", "own-kernels.md", "tuning.md"),
    "Use": ("my-shapes.md", "ci.md", "report-and-export.md", "devices.md", "troubleshooting.md"),
    "Method": ("methodology.md", "gallery.md"),
    "Notes": tuple(f"notes/{path.name}" for path in sorted((ROOT / "docs/notes").glob("*.md"))),
    "More": ("help.md", "api.md", "contributing.md", "changelog.md"),
}


# --- Pages that are generated -------------------------------------------------------------------------------


def commands_page() -> str:
    """What ``--help`` prints for every command."""
    lines = ["# Help", "", "What `gemmbench COMMAND --help` prints. `man gemmbench` has it, too.", ""]
    for name, text in man_page.helps(columns=88):
        lines += [f"## {name}" if name else "", "", "```text", text, "```", ""]
    return "\n".join(lines)


def api_page() -> str:
    """Signature and docstring of every name of the API."""
    lines = ["# From Python", "", "```python", "import gemmbench as gb", "```", ""]
    for name in gemmbench.__all__:
        item = getattr(gemmbench, name)
        lines += [f"## gb.{name}", "", "```text", *_described(f"gb.{name}", item)]
        for method, member in vars(item).items() if inspect.isclass(item) else ():
            if not method.startswith("_") and (inspect.isfunction(member) or isinstance(member, property)):
                lines += ["", "", *_described(f".{method}", member)]
        lines += ["```", ""]
    return "\n".join(lines)


def _described(name: str, item: Any) -> list[str]:
    is_function = inspect.isfunction(item)
    signature = str(inspect.signature(item)).replace("'", "") if is_function else ""
    return [f"{name}{signature}", "", inspect.getdoc(item) or ""]


GENERATED: dict[str, Callable[[], str]] = {"help.md": commands_page, "api.md": api_page}


# --- Links --------------------------------------------------------------------------------------------------


def sources() -> dict[str, str]:
    """Every page that is written, by its name on the site: the file in the repository."""
    pages = sorted((ROOT / "docs").rglob("*.md"))
    written = {
        path.relative_to(ROOT / "docs").as_posix(): path.relative_to(ROOT).as_posix() for path in pages
    }
    return {**ELSEWHERE, **written}


def targets(page: str, text: str) -> Iterator[str]:
    """The files of the repository that a page of the repository links to."""
    for match in LINK.finditer(text):
        yield posixpath.normpath(posixpath.join(posixpath.dirname(page), match[1]))


def address(target: str, pages: dict[str, str]) -> str:
    """Where the site has a file or folder of the repository."""
    if (ROOT / target).is_dir():
        target = f"{target}/README.md"
    for name, page in pages.items():
        if page == target:
            return name
    return target.removeprefix("docs/") if target.startswith("docs/") else f"source/{target.lstrip('.')}"


def linked(name: str, page: str, text: str, pages: dict[str, str]) -> str:
    """A page's text whose links are the site's."""

    def replaced(match: re.Match[str]) -> str:
        target = posixpath.normpath(posixpath.join(posixpath.dirname(page), match[1]))
        return posixpath.relpath(address(target, pages), posixpath.dirname(name) or ".") + (match[2] or "")

    return LINK.sub(replaced, text)


def menu(pages: list[str]) -> list[dict[str, list[str]]]:
    """The sections; a page that none names is under "More"."""
    named = {name for names in SECTIONS.values() for name in names}
    others = sorted(set(pages) - named)
    return [
        {title: [*(name for name in names if name in pages), *(others if title == "More" else ())]}
        for title, names in SECTIONS.items()
    ]


# --- What mkdocs calls --------------------------------------------------------------------------------------


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    config.nav = menu([*sources(), *GENERATED])
    return config


def on_files(files: Files, config: MkDocsConfig) -> Files:
    from mkdocs.structure.files import File

    def add(name: str, **given: Any) -> None:
        if files.get_file_from_path(name) is None:
            files.append(File.generated(config, name, **given))

    pages = sources()
    for name, make in GENERATED.items():
        add(name, content=make())
    for name, page in pages.items():
        text = (ROOT / page).read_text(encoding="utf-8")
        add(name, content=text)
        for target in targets(page, text):
            if (ROOT / target).is_file() and address(target, pages) not in pages:
                add(address(target, pages), abs_src_path=str(ROOT / target))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    pages = sources()
    name = page.file.src_uri
    return linked(name, pages[name], markdown, pages) if name in pages else markdown
