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

import click

import gemmbench
from gemmbench import cli
from gemmbench.cli import kernels
from gemmbench.ladder import VARIANTS

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
SECTIONS: dict[str, tuple[str, ...]] = {  # what is named nowhere is a how-to
    "Getting it": ("index.md", "install.md", "usage.md"),
    "How to": (),
    "Results": ("gallery.md", "experiments.md"),
    "Kernels": (
        "ladder.md",
        "kernels.md",
        "cpu-packed.md",
        "nv-async.md",
        "small.md",
        "nv-mma.md",
        "nv-wgmma.md",
        "intel-block.md",
        "auto.md",
    ),
    "How it measures": ("measuring.md", "conditions.md", "verification.md", "faults.md"),
    "The gate": ("gate.md", "gate-proof.md", "ci.md"),
    "Reference": ("commands.md", "api.md"),
    "Project": ("contributing.md", "changelog.md"),
}


# --- Pages that are generated -------------------------------------------------------------------------------


def kernels_page() -> str:
    """Every variant of the registry, with the picture that its file opens with."""
    lines = ["# Kernels", "", "What `gemmbench kernels --describe NAME` says, from the registry.", ""]
    family = ""
    for variant in VARIANTS:
        if variant.family != family:
            family = variant.family
            lines += [f"## {family[0].upper()}{family[1:]}", ""]
        entry = kernels.entry(variant, kernels.picture(variant))
        lines += [
            f"### {entry.name}",
            "",
            f"{entry.idea[0].upper()}{entry.idea[1:]}.",
            "",
            "| | |",
            "|---|---|",
        ]
        lines += [f"| {word} | {text.replace('|', chr(92) + '|')} |" for word, text in entry.facts]
        for picture in entry.pictures:
            lines += ["", "```text", picture, "```"]
        lines.append("")
    return "\n".join(lines)


def commands_page() -> str:
    """What ``--help`` says of every command."""
    settings = {**cli.main.context_settings, "max_content_width": 88, "terminal_width": 88}
    root = click.Context(cli.main, info_name="gemmbench", **settings)
    lines = ["# Commands", "", "What `gemmbench COMMAND --help` says. `man gemmbench` has it, too.", ""]
    for name in cli.COMMANDS:
        command = cli.main.get_command(root, name)
        assert command is not None
        context = click.Context(command, info_name=name, parent=root)
        lines += [f"## {name}", "", "```text", command.get_help(context), "```", ""]
    return "\n".join(lines)


def api_page() -> str:
    """What ``help()`` says of every name of the API."""
    lines = ["# From Python", "", "```python", "import gemmbench as gb", "```", ""]
    for name in gemmbench.__all__:
        item = getattr(gemmbench, name)
        lines += [f"## gb.{name}", ""]
        if not inspect.isclass(item):
            lines += _described(f"gb.{name}", item)
            continue
        lines += [*_text(inspect.getdoc(item) or ""), ""]
        for own, member in vars(item).items():
            if not own.startswith("_") and (inspect.isfunction(member) or isinstance(member, property)):
                lines += [f"### gb.{name}.{own}", "", *_described(own, member)]
    return "\n".join(lines)


def _described(name: str, item: Any) -> list[str]:
    """Signature and docstring."""
    signature = str(inspect.signature(item)).replace("'", "") if callable(item) else ""
    if len(signature) > 80:
        signature = signature.replace(", ", ",\n    ").replace("(", "(\n    ", 1)
    return ["```python", f"{name}{signature}", "```", "", *_text(inspect.getdoc(item) or ""), ""]


def _text(doc: str) -> list[str]:
    """A docstring as markdown: what stands indented under a word and a colon becomes a list."""
    lines = []
    for line in doc.splitlines():
        if match := re.match(r" {4}(\*{0,2}\w+): (.*)", line):
            lines.append(f"- `{match[1]}`: {match[2]}")
        elif re.fullmatch(r"(Args|Attributes|Options|Raises|Returns):", line):
            lines += [f"**{line}**", ""]
        else:
            lines.append(line.strip() if line.startswith(" " * 8) else line.removeprefix("    "))
    return lines


GENERATED: dict[str, Callable[[], str]] = {
    "kernels.md": kernels_page,
    "commands.md": commands_page,
    "api.md": api_page,
}


# --- Links --------------------------------------------------------------------------------------------------


def sources() -> dict[str, str]:
    """Every page that is written, by its name on the site: the file in the repository."""
    written = {path.name: f"docs/{path.name}" for path in sorted((ROOT / "docs").glob("*.md"))}
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
    """The sections; a page that none names is a how-to."""
    named = {name for names in SECTIONS.values() for name in names}
    others = sorted(set(pages) - named)
    return [
        {title: [*(name for name in names if name in pages), *(others if title == "How to" else ())]}
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
