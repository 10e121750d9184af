"""Operations that fill and copy memory."""

from __future__ import annotations

from ubridge.core.accuracy import FUNCTION
from ubridge.core.fits import one_shape, parts, same
from ubridge.core.operation import ALL, FLOATS, Family, define
from ubridge.core.question import Question


def _filled(question: Question) -> bool:
    return not question.result[1].may_alias


def _copied(question: Question) -> bool:
    dtypes, layouts = parts(question)
    rows = all(one.rank == 2 and one.strides[1] == 1 for one in layouts)
    return rows and same(*dtypes) and one_shape(layouts) and not layouts[0].may_alias


def _drawn(question: Question) -> bool:
    return question.result[0].name in question.op.dtypes


FILL = define(
    "fill",
    Family(
        "fill",
        "x",
        "shape of x, overwritten",
        check=_filled,
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
        check=_copied,
        is_in_place=True,
        may_have_gaps=True,
    ),
    "copy2d",
    ALL,
    "rows with a pitch",
)
RANDOM = Family(
    "random", "", "the given shape", check=_drawn, settings="shape", numbers="seed position"
)
RAND = define("rand", RANDOM, "rand", FLOATS, "uniform numbers in [0, 1)")
RANDN = define(
    "randn", RANDOM, "randn", FLOATS, "normal numbers of mean 0 and variance 1", accuracy=FUNCTION
)
