"""The OpenCL C files, and their text with the header put in; a user's own file, whole."""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

from gemmbench import UsageError
from gemmbench.model.units import reason_of

MARK = "common.clh"  # that every folder of kernels has
SCAFFOLD = "own.cl"  # in the kernels folder: what a user starts from

# Directives that read other files, in every spelling that OpenCL C allows. Comments and strings match, too,
# so that nothing in them counts as a directive.
_JOIN = r"(?:(?:\\|\?\?/)[^\S\n]*\n)"  # the end of a line that continues on the next
_COMMENT = r"/\*(?:[^*]|\*(?!/))*\*/"
_GAP = rf"(?:[^\S\n]|{_JOIN}|{_COMMENT})*"
_LINE_COMMENT = rf"//(?:{_JOIN}|[^\n])*"
_REST = rf"(?:{_JOIN}|{_COMMENT}|{_LINE_COMMENT}|[^\n])*"
_FILE = rf'"(?:{_JOIN}|[^"\n])*"|<(?:{_JOIN}|[^>\n])*>'


_BRANCHES = ("else", "elif", "elifdef", "elifndef")


def _words(*words: str) -> str:
    return "(?:" + "|".join(f"{_JOIN}*".join(word) for word in words) + r")(?!\w)"


_TOKEN = re.compile(
    rf"(?<!\\\n)(?<!\?\?/\n)^(?P<lead>{_GAP})(?:\#|%:|\?\?=){_GAP}"
    rf"(?:(?P<begin>{_words('if', 'ifdef', 'ifndef')})|(?P<end>{_words(*_BRANCHES, 'endif')})"
    rf"|(?P<word>{_words('include', 'include_next', 'import', 'embed')}){_GAP}(?P<file>{_FILE})?{_REST}"
    rf"|(?P<once>{_words('pragma')}{_GAP}{_words('once')}){_REST})"
    rf"|\b(?P<asks>__has_(?:include|include_next|embed)){_GAP}\({_GAP}(?:(?P<asked>{_FILE}){_GAP}\))?"
    rf"|{_COMMENT}|/\*.*|{_LINE_COMMENT}|{_JOIN}|(?P<newline>\n)"
    rf'|"(?:{_JOIN}|\\.|[^"\\\n])*"'
    rf"|'(?:{_JOIN}|\\.|[^'\\\n])*'",
    re.MULTILINE | re.DOTALL,
)
_OUR_LINE = re.compile(r'^#line (\d+) "[^"\n]*"$', re.MULTILINE)  # see `_Expansion`


@cache
def folder() -> Path:
    """The ``kernels`` folder, in the package or next to it; else `FileNotFoundError`."""
    package = Path(__file__).resolve().parent.parent
    for candidate in (package / "_kernels", package.parent / "kernels"):
        if (candidate / MARK).is_file():
            return candidate
    raise FileNotFoundError(f"gemmbench's kernels folder is neither in {package} nor next to it")


def raw(file: str, root: str = "") -> str:
    """The text of a kernel file as it stands, from gemmbench's folder or `root`."""
    if file in _OWN:
        return _OWN[file]
    return ((Path(root) if root else folder()) / file).read_text(encoding="utf-8")


def description(file: str) -> str:
    """The TOML that describes a published kernel, or ""."""
    block = _BLOCK.search(raw(file))
    return block["toml"] if block else ""


def opening(file: str) -> str:
    """The text of the first comment of a file, or ""."""
    comment = re.match(r"/\*(.*?)\*/", _BLOCK.sub("", raw(file)).lstrip(), re.DOTALL)
    return re.sub(r"^ \* ?", "", comment[1], flags=re.MULTILINE).strip() if comment else ""


@cache
def text(file: str, root: str = "") -> str:
    """The source of a ``.cl`` file with its includes, since drivers treat paths differently."""

    def replaced(directive: _Directive) -> str:
        if directive.word == "once":
            return ""
        if directive.word != "include" or not directive.file:
            raise directive.refusal(shown_name(file))
        return text(directive.file, root)

    source = raw(file, root)
    return _replaced(source if file in _OWN else _BLOCK.sub("", source), replaced)


@dataclass(frozen=True)
class _Directive:
    """What makes a compiler read a file, or read it once."""

    word: str  # include, include_next, import, embed, once, or an expression such as __has_include
    file: str  # the file that it names; "" if a macro does
    line: int
    next_line: int
    is_conditional: bool  # whether an #if of the same file is around it

    def refusal(self, name: str) -> KernelFileError:
        """Why this directive cannot be read."""
        if self.word == "include" and self.file:
            what = f'includes "{self.file}" on line {self.line}, which is neither in its folder nor'
            return KernelFileError(f"{name} {what} gemmbench's {MARK}")
        if self.word in ("include", "__has_include"):
            what = f"has {self.word} with a macro instead of a file's name on line {self.line}"
            return KernelFileError(f"{name} {what}: gemmbench needs the name itself")
        return KernelFileError(
            f'{name} has {self.word} on line {self.line}: gemmbench only reads #include "FILE"'
        )


def _replaced(
    source: str, replaced: Callable[[_Directive], str], line_is: Callable[[int], str] = lambda _: ""
) -> str:
    """A source with text in place of its directives; other lines keep their numbers.

    `line_is` returns what sets the next line's number, behind each #else, #elif and #endif after longer
    text: a compiler that skips that text does not count its lines.
    """
    depth, is_shifted, is_due, line, counted = 0, False, False, 1, 0

    def each(match: re.Match[str]) -> str:
        nonlocal depth, is_shifted, is_due, line, counted
        lead = match["lead"] or ""
        begin, end = match.start() + len(lead), match.end()
        line += source.count("\n", counted, begin)
        lines, counted = source.count("\n", begin, end), begin
        if match["begin"] or match["end"]:
            depth += 1 if match["begin"] else -(re.sub(_JOIN, "", match["end"]) == "endif")
            is_due = bool(match["end"]) and is_shifted
            return match[0]
        if match["newline"] and is_due:
            is_due = False
            return line_is(line + 1) + "\n"
        word = "once" if match["once"] else re.sub(_JOIN, "", match["word"] or match["asks"] or "")
        if not word:
            return match[0]
        file = re.sub(_JOIN, "", match["file"] or match["asked"] or "")[1:-1]
        text = replaced(_Directive(word, file, line, line + lines + 1, depth > 0))
        if match["asks"]:
            return text
        is_shifted |= "\n" in text
        return lead + (text if "\n" in text else text + "\n" * lines)

    return _TOKEN.sub(each, source)


# Macros of kernels that read an operand as it is stored, transposed.
TRANSPOSED: dict[str, tuple[str, ...]] = {"A": ("-DTRANS", "-DTRANS_A"), "B": ("-DTRANS", "-DTRANS_B")}
BATCHED = "-DBATCHED"  # of kernels that compute the problems of a batch: see kernels/batch.clh
# Of nv-async, for other ways to copy tiles: see kernels/gemm/19_nv_async.cl.
COPIED: dict[str, str] = {"PLAIN_A": "-DPLAIN_A", "ODD_FIRST": "-DODD_FIRST"}


def shared_options(file: str, options: tuple[str, ...], root: str = "") -> tuple[str, ...]:
    """The options without -D of unused macros: variants share a program."""
    names = set(re.findall(r"\w+", text(file, root)))
    return tuple(option for option in options if option[:2] != "-D" or option[2:].partition("=")[0] in names)


def fingerprint(files: tuple[str, ...], options: tuple[str, ...], root: str = "") -> str:
    """Hash of kernel files and options, sixteen hex digits."""
    digest = hashlib.sha256()
    for part in (*(text(file, root) for file in files), *options):
        digest.update(_OUR_LINE.sub("", part).encode() + b"\0")
    return digest.hexdigest()[:16]


_OWN: dict[str, str] = {}  # texts by `OwnFile.key`, which is of their content: none ever changes
_MOST_BYTES = 1 << 20
_DEPTH = 8  # of includes
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
    toml: str = ""  # the name of that file

    @property
    def key(self) -> str:
        """The name under which `text` and `raw` know this file, registered by reading it."""
        key = f"own/{hashlib.sha256(self.text.encode()).hexdigest()[:12]}/{self.name}"
        _OWN[key] = self.text
        return key

    @property
    def description(self) -> str:
        """The TOML between ``/* gemmbench`` and ``*/``, on its original line numbers.

        `KernelFileError` if there is none, or more than one.
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
        start, begin, before = blocks[0].start("toml"), 0, 0
        for mark in _OUR_LINE.finditer(self.text, 0, start):
            begin, before = mark.end() + 1, int(mark[1]) - 1
        before = 0 if self.toml else before + self.text.count("\n", begin, start)
        return "\n" * before + re.sub(r"^[^\S\n]*\*(?: |$)", "", blocks[0]["toml"], flags=re.MULTILINE)


def shown_name(file: str) -> str:
    """A kernel file for people."""
    return file.rpartition("/")[2] if file in _OWN else file


def own_file(path: Path) -> OwnFile:
    """Read a user's kernel file with its includes and its TOML file."""
    source = _Expansion().of(path, path.name, (os.path.realpath(path),))
    beside = path.with_suffix(".toml")
    if beside != path and beside.is_file():
        described = _user_text(beside)
        if "*/" in described:
            raise KernelFileError(f"{beside} holds */, which would end the comment that it becomes")
        source = f"{source}\n/* gemmbench\n{described}\n*/\n"
        return OwnFile(path.name, source, beside.name)
    return OwnFile(path.name, source)


def _user_text(path: Path) -> str:
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


@dataclass
class _Expansion:
    """Puts the text of included files into a user's file, with ``#line`` for the compiler."""

    room: int = _MOST_BYTES  # for all files
    once: dict[str, int] = field(default_factory=dict)  # numbers of the files that are read once, by path
    inlined: set[str] = field(default_factory=set)  # those of them whose text is there already
    whole: set[str] = field(default_factory=set)  # those of them whose text is there outside of any #if

    def of(self, path: Path, name: str, above: tuple[str, ...], is_conditional: bool = False) -> str:
        """The text of a file; `above` are its path and its includers'. In an #if, errors become #error."""
        source = _user_text(path)
        self.room -= len(source)
        if self.room < 0:
            raise KernelFileError(f"{name} exceeds 1 MiB with its includes, which no kernel does")

        def line_is(number: int) -> str:
            return f'\n#line {number} "{_quotable(name)}"'

        def replaced(directive: _Directive) -> str:
            if directive.word == "once":
                self.once.setdefault(above[-1], len(self.once))
                return ""
            if directive.word == "__has_include" and directive.file:
                return str(int(directive.file == MARK or _is_file(path.parent / directive.file)))
            if directive.word.startswith("__"):
                raise directive.refusal(name)
            is_optional = is_conditional or directive.is_conditional
            try:
                return self._included(directive, path, name, above, is_optional) + line_is(
                    directive.next_line
                )
            except KernelFileError as error:
                if not is_optional:
                    raise
                return f'#error "{_quotable(str(error))}"'

        return _replaced(source, replaced, line_is)

    def _included(
        self, directive: _Directive, by: Path, name: str, above: tuple[str, ...], is_optional: bool
    ) -> str:
        """The text for an include in the file `by`, if it is not there yet."""
        file, path = by.parent / directive.file, MARK
        is_there = directive.word == "include" and _is_file(file)
        if is_there:
            path = os.path.realpath(file)
        elif directive.word == "include" and directive.file == MARK:
            self.once.setdefault(MARK, len(self.once))
        else:
            raise directive.refusal(name)
        if path in self.once and path in {*above, *self.whole}:
            return ""
        if len(above) > _DEPTH:
            raise KernelFileError(f"{name} includes files more than {_DEPTH} deep")
        text = f'#include "{MARK}"'
        if is_there:
            text = self.of(file, directive.file, (*above, path), is_optional)
            text = f'#line 1 "{_quotable(directive.file)}"\n{text}'
        if path not in self.once:
            return text
        is_first = path not in self.inlined
        self.inlined.add(path)
        if not is_optional:
            self.whole.add(path)
            if is_first:
                return text
        macro = f"GEMMBENCH_ONCE_{self.once[path]}"
        return f"#ifndef {macro}\n#define {macro}\n{text}\n#endif"


def _is_file(path: Path) -> bool:
    try:
        return path.is_file()
    except (OSError, ValueError):  # a name that is too long, or that no file can have
        return False


def _quotable(text: str) -> str:
    return " ".join(text.replace('"', "'").replace("\\", "/").split())
