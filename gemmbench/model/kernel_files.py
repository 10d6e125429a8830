"""Where the OpenCL C files are, and their text with the one header put in; a user's own file, whole."""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from gemmbench import UsageError
from gemmbench.model.units import reason_of

MARK = "common.clh"  # that every folder of kernels has
SCAFFOLD = "own.cl"  # in the kernels folder: what a user starts from
_INCLUDE = re.compile(r'^#include "([\w./-]+)"[^\S\n]*$', re.MULTILINE)


@cache
def folder() -> Path:
    """The ``kernels`` folder: ``_kernels`` inside an installed package, or next to the package in a checkout.

    Raises `FileNotFoundError` if neither exists.
    """
    package = Path(__file__).resolve().parent.parent
    for candidate in (package / "_kernels", package.parent / "kernels"):
        if (candidate / MARK).is_file():
            return candidate
    raise FileNotFoundError(f"gemmbench's kernels folder is neither in {package} nor next to it")


def raw(file: str, root: str = "") -> str:
    """The text of a kernel file as it stands. `root` is another kernels folder than gemmbench's own."""
    if file in _OWN:
        return _OWN[file]
    return ((Path(root) if root else folder()) / file).read_text(encoding="utf-8")


def opening(file: str) -> str:
    """The text of the comment at the top of a file; "" if there is none."""
    comment = re.match(r"/\*(.*?)\*/", _BLOCK.sub("", raw(file)).lstrip(), re.DOTALL)
    return re.sub(r"^ \* ?", "", comment[1], flags=re.MULTILINE).strip() if comment else ""


@cache
def text(file: str, root: str = "") -> str:
    """The source of a ``.cl`` file with every ``#include`` replaced: drivers treat paths differently."""
    return _INCLUDE.sub(lambda match: text(match[1], root), raw(file, root))


# Macros of kernels that read an operand as it is stored, transposed.
TRANSPOSED: dict[str, tuple[str, ...]] = {"A": ("-DTRANS", "-DTRANS_A"), "B": ("-DTRANS", "-DTRANS_B")}
HALF_STORED = "-DSTORED_half"  # of kernels whose operands are half in memory and float everywhere else
BATCHED = "-DBATCHED"  # of kernels that compute the problems of a batch: see kernels/batch.clh
# Of nv-async, for other ways to copy tiles: see kernels/gemm/19_nv_async.cl.
COPIED: dict[str, str] = {"PLAIN_A": "-DPLAIN_A", "ODD_FIRST": "-DODD_FIRST"}


def shared_options(file: str, options: tuple[str, ...], root: str = "") -> tuple[str, ...]:
    """The options without the -D of macros that the file does not use, so that variants share its program."""
    names = set(re.findall(r"\w+", text(file, root)))
    return tuple(option for option in options if option[:2] != "-D" or option[2:].partition("=")[0] in names)


def fingerprint(files: tuple[str, ...], options: tuple[str, ...], root: str = "") -> str:
    """Hash of the kernel files and their options, sixteen hex digits. Every row stores it."""
    digest = hashlib.sha256()
    for part in (*(text(file, root) for file in files), *options):
        digest.update(part.encode() + b"\0")
    return digest.hexdigest()[:16]


_OWN: dict[str, str] = {}  # texts by `OwnFile.key`, which is of their content: none ever changes
_MOST_BYTES = 1 << 20
_DEPTH = 8  # of includes
_QUOTED = re.compile(r'^[^\S\n]*#[^\S\n]*include[^\S\n]*"([^"\n]+)"[^\S\n]*$', re.MULTILINE)
_BLOCK = re.compile(
    r"^[^\S\n]*/\*+[^\S\n]*gemmbench[^\S\n]*\n(?P<toml>.*?)^[^\S\n]*\*+/[^\S\n]*\n?", re.MULTILINE | re.DOTALL
)


class KernelFileError(UsageError, ValueError):
    """A user's kernel file that cannot be used; the message is for the user."""


@dataclass(frozen=True)
class OwnFile:
    """A user's kernel file as another process needs it."""

    name: str  # without its folder: "mine.cl"
    text: str  # includes replaced; a description in a file of its own follows as a comment

    @property
    def key(self) -> str:
        """The name under which `text` and `raw` know this file. Reading the property registers the text."""
        key = f"own/{hashlib.sha256(self.text.encode()).hexdigest()[:12]}/{self.name}"
        _OWN[key] = self.text
        return key

    @property
    def description(self) -> str:
        """The TOML between the file's ``/* gemmbench`` and ``*/`` lines, on its original line numbers.

        Raises `KernelFileError` if there is none, or more than one.
        """
        blocks = list(_BLOCK.finditer(self.text))
        if len(blocks) > 1:
            raise KernelFileError(
                f"{self.name} is described {len(blocks)} times: one /* gemmbench block, or one "
                f"{Path(self.name).stem}.toml next to it"
            )
        if not blocks:
            raise KernelFileError(
                f"{self.name} does not say what arguments it has: it needs a block from a line /* gemmbench"
                f" to a line */, or a {Path(self.name).stem}.toml next to it (gemmbench kernels --new FILE.cl"
                " writes an example)"
            )
        before = self.text[: blocks[0].start("toml")].count("\n")
        return "\n" * before + re.sub(r"^[^\S\n]*\*(?: |$)", "", blocks[0]["toml"], flags=re.MULTILINE)


def shown_name(file: str) -> str:
    """A kernel file for people: relative to the kernels folder, or the name of a user's own."""
    return file.rpartition("/")[2] if file in _OWN else file


def own_file(path: Path) -> OwnFile:
    """Read a user's kernel file with its includes. A TOML file of the same name is added as a comment.

    Raises `KernelFileError` if a file cannot be read, or the TOML holds ``*/``.
    """
    source = _expanded(_user_text(path), path.parent, path.name)
    beside = path.with_suffix(".toml")
    if beside != path and beside.is_file():
        described = _user_text(beside)
        if "*/" in described:
            raise KernelFileError(f"{beside} holds */, which would end the comment that it becomes")
        source = f"{source}\n/* gemmbench\n{described}\n*/\n"
    return OwnFile(path.name, source)


def _user_text(path: Path) -> str:
    """The text of a user's file. `KernelFileError` if it is unreadable, over 1 MiB or not UTF-8."""
    try:
        if path.stat().st_size > _MOST_BYTES:
            raise KernelFileError(f"{path} is larger than 1 MiB, which no kernel is")
        return path.read_text(encoding="utf-8-sig")  # editors on Windows put a byte-order mark before it
    except OSError as error:
        raise KernelFileError(f"cannot read {path}: {reason_of(error).lower()}") from None
    except ValueError as error:
        if isinstance(error, KernelFileError):
            raise
        raise KernelFileError(f"{path} is no text in UTF-8") from None


def _expanded(source: str, near: Path, name: str, depth: int = 0) -> str:
    """A source with every ``#include "FILE"`` replaced, relative to the folder `near`.

    gemmbench's own header stays, for `text` to replace. ``#line`` keeps the user's line numbers in the log of
    the driver. Raises `KernelFileError` if a file is missing, or includes are more than 8 deep.
    """

    def after(match: re.Match[str]) -> str:
        """A ``#line`` that restores the file's own line number; "" inside an included file."""
        return "" if depth else f"\n#line {source.count(chr(10), 0, match.start()) + 2}"

    def replaced(match: re.Match[str]) -> str:
        file = near / match[1]
        if file.is_file():
            if depth >= _DEPTH:
                raise KernelFileError(f"{name} includes files more than {_DEPTH} deep")
            return _expanded(_user_text(file), file.parent, match[1], depth + 1) + after(match)
        if match[1] == MARK:
            return f'#include "{MARK}"{after(match)}'
        raise KernelFileError(
            f'{name} includes "{match[1]}", which is neither in its folder nor gemmbench\'s {MARK}'
        )

    return _QUOTED.sub(replaced, source)
