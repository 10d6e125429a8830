"""A kernel's opening comment in a narrow terminal: nothing is cut off."""

from __future__ import annotations

import pytest

from gemmbench.cli.kernels import picture
from gemmbench.ladder import VARIANTS
from gemmbench.report.table import fitted

DRAWING = """\
tiled: square tiles in local memory.

     +---+---+
     | A | B |     each work-group
     +---+---+     makes one tile

Prose that goes on
over two lines.
"""


def test_what_fits_is_left_alone() -> None:
    assert fitted(DRAWING, 80) == DRAWING.strip("\n")


def test_words_beside_a_drawing_go_below_it() -> None:
    assert fitted(DRAWING, 26).split("\n\n")[1:3] == [
        "     +---+---+\n     | A | B |\n     +---+---+",
        "each work-group\nmakes one tile",
    ]


def test_prose_is_filled_again() -> None:
    assert fitted(DRAWING, 17).split("\n\n")[-1] == "Prose that goes\non over two\nlines."


def test_words_are_not_broken() -> None:
    assert fitted("the sub-group has work-items", 12) == "the\nsub-group\nhas\nwork-items"


def test_a_list_keeps_its_lines() -> None:
    text = "One of:\n  1  by shuffle, from lane to lane\n  2  by loads"
    assert fitted(text, 20) == "One of:\n  1  by shuffle,\n      from lane to\n      lane\n  2  by loads"


@pytest.mark.parametrize("width", [38, 78, 118])
@pytest.mark.parametrize("variant", [one for one in VARIANTS if one.passes], ids=lambda one: one.name)
def test_every_kernel_keeps_its_words(variant: object, width: int) -> None:
    comment = picture(variant)  # type: ignore[arg-type]
    shown = fitted(comment, width)
    assert sorted(shown.split()) == sorted(comment.split())
    if width >= 78:
        assert max(map(len, shown.splitlines())) <= width


def test_a_formula_below_a_drawing_is_no_part_of_it() -> None:
    drawing = DRAWING.strip("\n").split("\n\n")[1]
    made = fitted(f"{drawing}\n  C[i] += A[i] * B[i] for every i in it", 26).split("\n\n")
    assert made == [
        "     +---+---+\n     | A | B |\n     +---+---+",
        "each work-group\nmakes one tile",
        "C[i] += A[i] * B[i] for\nevery i in it",
    ]
