"""All that a user's kernel includes is part of it: the driver reads nothing from the current folder."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

import pytest

from gemmbench.ladder.own import own_kernel
from gemmbench.model import kernel_files
from gemmbench.model.kernel_files import KernelFileError, own_file
from tests.unit.test_own import CODE, described

JOIN = "\\\n"


def written(folder: Path, source: str, headers: Mapping[str, str]) -> Path:
    for name, text in headers.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text, encoding="utf-8")
    (folder / "mine.cl").write_text(source, encoding="utf-8")
    return folder / "mine.cl"


def expanded(folder: Path, source: str, **headers: str) -> str:
    """The text that a driver gets. An underscore in a keyword stands for the dot of a header's name."""
    named = {name.replace("_", "."): text for name, text in headers.items()}
    return kernel_files.text(own_file(written(folder, source, named)).key)


def live(text: str) -> list[str]:
    """The lines that are left for a compiler, without #line."""
    return [line for line in text.splitlines() if line.strip() and not line.startswith("#line")]


SPELLINGS = [
    '#include "work.h"  // passes over k',
    '#include "work.h" /* passes\n over k */',
    '  #  include\t"work.h"\t',
    '#include"work.h"',
    "#include <work.h>",
    '/* a note */ # /* and one more */ include /**/ "work.h"',
    '/* a note\n of two lines */ #include "work.h"',
    f'#inc{JOIN}lude "work.h"',
    f'#include {JOIN} "wo{JOIN}rk.h"',
    f'{JOIN}#include "work.h"',
    '%:include "work.h"',
    '??=include "work.h"',
    '#include "./work.h" // see /* here',
    '#include "sub/../work.h"',
    '#include "sub//../work.h"',
]


@pytest.mark.parametrize("spelling", SPELLINGS)
def test_an_include_is_replaced_however_it_is_written(tmp_path: Path, spelling: str) -> None:
    (tmp_path / "sub").mkdir()
    text = expanded(tmp_path, f"int a;\n{spelling}\nint b;\n", work_h="#define PASSES 8\n")
    assert live(text)[0] == "int a;"
    assert live(text)[-2:] == ["#define PASSES 8", "int b;"]
    assert "include" not in text


@pytest.mark.parametrize("spelling", SPELLINGS)
def test_a_changed_header_is_another_kernel(tmp_path: Path, spelling: str) -> None:
    (tmp_path / "sub").mkdir()
    file = described(tmp_path, code=f"{spelling}\n{CODE}")
    hashes = set()
    for passes in (1, 8):
        (tmp_path / "work.h").write_text(f"#define PASSES {passes}\n")
        hashes.add(own_kernel(file).fingerprint("float", {"TS": 16}))
    assert len(hashes) == 2


def test_the_name_of_a_copy_does_not_make_it_another_kernel(tmp_path: Path) -> None:
    (tmp_path / "work.h").write_text("#define PASSES 8\n")
    copies = (described(tmp_path, name, f'#include "work.h"\n{CODE}') for name in ("mine.cl", "old.cl"))
    assert len({own_kernel(file).fingerprint("float", {"TS": 16}) for file in copies}) == 1


@pytest.mark.parametrize(
    "source",
    [
        '/* the old way:\n#include "lost.h"\n*/\n',
        '// the old way: \\\n#include "lost.h"\n',
        '__constant char *s = "/*"; // */ "\n//#include "lost.h"\n',
        '#define TEXT "\\\n#include <lost.h>\\\n"\n',
        '/* common.clh has comments of its own\n#include "common.clh"\n*/\nint a; // don\'t\n',
    ],
)
def test_a_comment_is_no_include(tmp_path: Path, source: str) -> None:
    assert expanded(tmp_path, source) == source


@pytest.mark.parametrize(
    "begin", ["#ifndef __OPENCL_VERSION__", "#if 0", "#ifdef __cplusplus\n#else\n#endif\n#if A"]
)
@pytest.mark.parametrize(
    "line",
    ['#include "lost.h"', "#include HEADER", "#import <lost.h>", "#include_next <lost.h>", '#embed "x"'],
)
def test_what_an_if_may_exclude_becomes_an_error_of_the_compiler(
    tmp_path: Path, begin: str, line: str
) -> None:
    text = expanded(tmp_path, f"{begin}\n{line} // why\n#endif\nint a;\n")
    number = 2 + begin.count("\n")
    before, error, *after = text.split("\n")[number - 2 :]
    assert (before, after) == (begin.split("\n")[-1], ["#endif", "int a;", ""])
    assert re.fullmatch(rf'#error "mine\.cl (includes|has) [^"]+ on line {number}[,:] [^"]+"', error)


@pytest.mark.parametrize(
    ("line", "sentence"),
    [
        ('#include "lost.h"', 'mine.cl includes "lost.h" on line 3, which is neither in its folder nor'),
        ("#include <lost.h>", 'mine.cl includes "lost.h" on line 3, which is neither in its folder nor'),
        (f'#include "{"x" * 999}.h"', "on line 3, which is neither"),
        ('#include "nul\0.h"', "on line 3, which is neither"),
        ("#include HEADER", "mine.cl has include with a macro instead of a file's name on line 3"),
        ("#include", "mine.cl has include with a macro instead of a file's name on line 3"),
        ('#import "work.h"', "mine.cl has import on line 3"),
        ('#include_next "work.h"', "mine.cl has include_next on line 3"),
        ('#embed "work.h"', "mine.cl has embed on line 3"),
        (
            "#if __has_include(HEADER)",
            "mine.cl has __has_include with a macro instead of a file's name on line 3",
        ),
        ('#if __has_embed("work.h")', "mine.cl has __has_embed on line 3"),
        ('#include "a.h"', 'a.h includes "lost.h" on line 2, which is neither'),
        ('#include "self.h"', "self.h includes files more than 8 deep"),
        ('#include "."', "on line 3, which is neither"),
    ],
)
def test_an_include_that_cannot_be_replaced_is_refused(tmp_path: Path, line: str, sentence: str) -> None:
    headers = {"work.h": "int w;\n", "a.h": '\n#include "lost.h"\n', "self.h": '#include "self.h"\n'}
    file = written(tmp_path, f"int a;\n\n{line}\n#endif\n", headers)
    with pytest.raises(KernelFileError) as caught:
        own_file(file)
    assert sentence in str(caught.value)
    assert "\n" not in str(caught.value)


def test_has_include_is_answered_for_the_folder_of_the_file(tmp_path: Path) -> None:
    source = (
        '#if __has_include("work.h") && !__has_include(<lost.h>) && __has_include( "common.clh" )\n#endif\n'
    )
    assert expanded(tmp_path, source, work_h="") == "#if 1 && !0 && 1\n#endif\n"


ONCE = "#pragma once\ntypedef struct { int a; } pt;\n"
TYPE = "typedef struct { int a; } pt;"


@pytest.mark.parametrize("once", [ONCE, ONCE.replace("#pragma once", "# pragma /* only */ once // here")])
def test_a_header_with_pragma_once_is_there_once(tmp_path: Path, once: str) -> None:
    two = {"a1_h": '#include "once.h"\n', "a2_h": '#include "./once.h"\n'}
    text = expanded(tmp_path, '#include "a1.h"\n#include "a2.h"\nint a;\n', once_h=once, **two)
    assert live(text) == [TYPE, "int a;"]


def test_a_header_that_an_if_may_exclude_is_read_where_the_compiler_needs_it(tmp_path: Path) -> None:
    source = '#ifdef A\n#include "once.h"\n#endif\n#include "once.h"\n#include "once.h"\n'
    text = expanded(tmp_path, source, once_h=ONCE)
    guarded = ["#ifndef GEMMBENCH_ONCE_0", "#define GEMMBENCH_ONCE_0", TYPE, "#endif"]
    assert live(text) == ["#ifdef A", *guarded, "#endif", *guarded]


def test_headers_that_include_each_other_end(tmp_path: Path) -> None:
    text = expanded(
        tmp_path,
        '#include "a.h"\n',
        a_h='#pragma once\n#include "b.h"\nint a;\n',
        b_h='#pragma once\n#include "a.h"\nint b;\n',
    )
    assert live(text) == ["int b;", "int a;"]
    guard = '#ifndef {0}\n#define {0}\n#include "{1}"\nint {0};\n#endif\n'
    text = expanded(tmp_path, '#include "a.h"\n', a_h=guard.format("A", "b.h"), b_h=guard.format("B", "a.h"))
    assert text.count("#error") == 1  # where no compiler comes
    assert text.count("int A;") + text.count("int B;") == 8


def test_headers_are_bounded_together(tmp_path: Path) -> None:
    twice = {f"h{n}_h": f'#include "h{n + 1}.h"\n' * 9 for n in range(7)}
    with pytest.raises(KernelFileError, match="exceeds 1 MiB with its includes"):
        expanded(tmp_path, '#include "h0.h"\n', h7_h="/* much */\n" * 99, **twice)


def test_common_clh_is_there_once(tmp_path: Path) -> None:
    source = '#include "common.clh" // types\n#include "a.h"\n'
    text = expanded(tmp_path, source, a_h='#include "common.clh"\nREAL r;\n')
    assert text.count("#define SCALAR REAL") == 1
    assert live(text)[-1] == "REAL r;"


def test_a_header_is_found_next_to_the_file_that_includes_it(tmp_path: Path) -> None:
    headers = {"lib/a.h": '#include "b.h"\n', "lib/b.h": "int inner;\n", "b.h": "int outer;\n"}
    text = own_file(written(tmp_path, '#include "lib/a.h"\n', headers)).text
    assert live(text) == ["int inner;"]


def test_the_compiler_gets_the_lines_of_the_users_files(tmp_path: Path) -> None:
    source = 'int a;\n#ifdef A\n#include "a.h" /* of\n two */\n#else // other\nint c;\n#endif\nint d;\n'
    text = expanded(tmp_path, source, a_h='int b;\n#include "b.h"\nint e;\n', b_h="int f;")
    placed, name, number = {}, "", 1
    for line in text.splitlines():
        if match := re.fullmatch(r'#line (\d+) "(.*)"', line):
            number, name = int(match[1]), match[2]
            continue
        placed[line] = (name, number)
        number += 1
    assert {line: placed[f"int {line};"] for line in "abefcd"} == {
        "a": ("", 1),
        "b": ("a.h", 1),
        "f": ("b.h", 1),
        "e": ("a.h", 3),
        "c": ("mine.cl", 6),
        "d": ("mine.cl", 8),
    }


@pytest.mark.parametrize("otherwise", ["elif B", "elifdef B", "elifndef B", "el\\\nif /* a\n b */ B", "else"])
def test_the_lines_after_another_branch_have_their_numbers(tmp_path: Path, otherwise: str) -> None:
    source = f'#ifdef A\n#include "a.h"\n#{otherwise} // "B"\nint c;\n#endif\nint d;\n'
    text = expanded(tmp_path, source, a_h="int a;\nint b;\n")
    for line in ("int c;", "int d;"):
        number = 1 + source[: source.index(line)].count("\n")
        if line == "int d;":
            assert f'#endif\n#line {number} "mine.cl"\n{line}' in text
        else:
            assert f'\n#line {number} "mine.cl"\n{line}' in text


def test_an_elif_asks_for_a_header(tmp_path: Path) -> None:
    source = '#ifdef A\n#include "a.h"\n#elif __has_include("a.h")\nint c;\n#endif'
    text = expanded(tmp_path, source, a_h="int a;\nint b;\n")
    assert '#elif 1\n#line 4 "mine.cl"\nint c;\n#endif' in text


def test_a_fault_in_a_description_of_its_own_has_that_files_name_and_line(tmp_path: Path) -> None:
    file = written(tmp_path, f'#include "work.h"\n{CODE}', {"work.h": "int a;\n", "mine.toml": "\nTS = =\n"})
    with pytest.raises(KernelFileError, match=r"^mine\.toml: .*line 2\b"):
        own_kernel(file)


def test_a_fault_in_a_description_has_its_line_number_behind_includes(tmp_path: Path) -> None:
    file = described(tmp_path, parameters="TS = =")
    (tmp_path / "work.h").write_text("int a;\nint b;\nint c;\n")
    file.write_text('#include "work.h"\n' + file.read_text())
    with pytest.raises(KernelFileError, match=r"line 7\b"):
        own_kernel(file)


def test_the_description_may_stand_before_an_include(tmp_path: Path) -> None:
    file = described(tmp_path, code=CODE)
    file.write_text(file.read_text().replace("*/\n", '*/ #include "work.h"\n', 1))
    (tmp_path / "work.h").write_text("int w;\n")
    assert "int w;" in kernel_files.text(own_kernel(file).files[0])
