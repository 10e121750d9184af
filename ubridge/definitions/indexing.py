"""Operations by ids."""

from __future__ import annotations

import numpy as np

from ubridge.core.fits import lies, parts, require
from ubridge.core.layout import Shape
from ubridge.core.operation import ALL, Family, define
from ubridge.core.question import Question


def _selected(question: Question) -> bool:
    (left, length, right), x, ids = _of_ids(question, 1)
    return len(x) == 3 and ids == (length,) and (left, right) == (x[0], x[2])


def _gathered(question: Question) -> bool:
    shape, x, ids = _of_ids(question, 1)
    return len(x) == 3 and ids == shape and (shape[0], shape[2]) == (x[0], x[2])


def _scattered(question: Question) -> bool:
    shape, ids, source = _of_ids(question, 2)
    return len(ids) == 3 and ids == source and (shape[0], shape[2]) == (ids[0], ids[2])


def _added(question: Question) -> bool:
    shape, ids, source = _of_ids(question, 2)
    return len(ids) == 1 and source == (shape[0], ids[0], shape[2])


def _of_ids(question: Question, of_data: int) -> tuple[Shape, Shape, Shape]:
    """The shapes, of the result first; data is of the result's dtype."""
    dtypes, (result, *layouts) = parts(question)
    require(
        lies(*layouts) and dtypes[0] is dtypes[of_data] and result.rank == 3,
        f"{question.op.name}: {question!r} do not fit",
    )
    first, second = layouts
    return result.shape, first.shape, second.shape


INDEX_SELECT = define(
    "index_select",
    Family(
        "index_select",
        "x ids",
        "shape of x; the axis has one entry per id",
        check=_selected,
        settings="axis",
    ),
    "is",
    ALL,
    "x at ids of an axis",
    lambda x, ids, axis: np.take(x, ids, axis),
    called="take",
)
GATHER = define(
    "gather",
    Family("gather", "x ids", "shape of ids", check=_gathered, settings="axis"),
    "gather",
    ALL,
    "x at one id for each element",
    lambda x, ids, axis: np.take_along_axis(x, ids, axis),
)
SCATTERING = Family(
    "scatter",
    "x ids source",
    "shape of x, changed in place",
    check=_scattered,
    is_in_place=True,
    settings="axis",
)
SCATTER = define("scatter", SCATTERING, "s", ALL, "source to one id for each of its elements")
SCATTER_ADD = define(
    "scatter_add", SCATTERING, "sa", ALL, "source added at one id for each element"
)
INDEX_ADD = define(
    "index_add",
    Family(
        "index_add",
        "x ids source",
        "shape of x, changed in place",
        check=_added,
        is_in_place=True,
        settings="axis",
    ),
    "ia",
    ALL,
    "slices of source added at ids of an axis",
)
