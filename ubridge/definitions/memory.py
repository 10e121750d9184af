"""Operations that fill and copy memory."""

from __future__ import annotations

from ubridge.core.accuracy import FUNCTION
from ubridge.core.fits import require
from ubridge.core.layout import Shape
from ubridge.core.operation import ALL, FLOATS, Family, define
from ubridge.core.question import Question
from uhal.errors import ArgumentTypeError


def _filled(question: Question) -> Shape:
    aliased = question.result[1].may_alias
    require(not aliased, f"{question.op.name}: the tensor has several elements at one address")
    return question.shape


def _copied(question: Question) -> Shape:
    layouts = (question.layout(0), question.result[1])
    rows = all(one.rank == 2 and one.strides[1] == 1 for one in layouts)
    fits = rows and not layouts[1].may_alias
    require(fits, f"{question.op.name}: expected rows of adjacent elements, apart from each other")
    return layouts[0].shape


def _drawn(question: Question) -> Shape:
    names, given = question.op.dtypes, question.result[0]
    if given.name not in names:
        raise ArgumentTypeError(
            f"{question.op.name}: expected a float type, one of {', '.join(names)}, got {given}"
        )
    return question.shape


FILL = define(
    "fill",
    Family(
        "fill",
        "x",
        "shape of x, overwritten",
        rule=_filled,
        is_in_place=True,
        may_have_gaps=True,
        numbers="value",
    ),
    "const_set",
    ALL,
    "value in every element",
)
COPY2D = define(
    "copy2d",
    Family(
        "copy2d",
        "x source",
        "rows of source, written over rows of x",
        rule=_copied,
        is_in_place=True,
        may_have_gaps=True,
    ),
    "copy2d",
    ALL,
    "rows with a pitch",
)
RANDOM = Family(
    "random", "", "the given shape", rule=_drawn, settings="shape", numbers="seed position"
)
RAND = define("rand", RANDOM, "rand", FLOATS, "uniform numbers in [0, 1)")
RANDN = define(
    "randn", RANDOM, "randn", FLOATS, "normal numbers of mean 0 and variance 1", accuracy=FUNCTION
)
