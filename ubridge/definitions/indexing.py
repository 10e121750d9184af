"""Operations by ids.

With the attribute `has_none`, the highest id of the ids' type selects nothing: a read gives 0, and
a write changes nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

import numpy as np

from ubridge.core.fits import require, shapes
from ubridge.core.layout import Shape
from ubridge.core.operation import ALL, Family, define
from ubridge.core.question import Question


def slices_of(x: Shape, ids: Sequence[int], axis: int) -> Shape:
    """Return the shape of slices at ids of an axis; the axes of the ids replace that axis."""
    # Lengths of shapes are not checked again.
    return tuple.__new__(Shape, (*x[:axis], *ids, *x[axis + 1 :]))


def elements_of(name: str, x: Shape, ids: Shape, axis: int) -> Shape:
    """Return the shape of ids for elements of an axis; the other axes must have x's lengths."""
    require(
        len(ids) == len(x) and slices_of(ids, (), axis) == slices_of(x, (), axis),
        f"{name}: expected ids of the tensor's shape but for axis {axis}, got {ids} for {x}",
    )
    return ids


@lru_cache(maxsize=4096)
def require_elements(name: str, x: Shape, ids: Shape, source: Shape, axis: int) -> Shape:
    """Return the shape of x; refuse ids and a source that do not fit it."""
    require(
        ids == source,
        f"{name}: expected an id for each element of the source, got {ids} for {source}",
    )
    elements_of(name, x, ids, axis)
    return x


@lru_cache(maxsize=4096)
def require_slices(name: str, x: Shape, ids: Shape, source: Shape, axis: int) -> Shape:
    """Return the shape of x; refuse ids and slices of a source that do not fit it."""
    expected = slices_of(x, ids, axis)
    require(
        len(ids) == 1 and source == expected,
        f"{name}: expected a slice of the source for each id along axis {axis}, so shape "
        f"{expected}, got {source} for ids of shape {ids}",
    )
    return x


def _of_three(shape: Shape, question: Question) -> Shape:
    require(len(shape) == 3, f"{question.op.name}: expected three axes, got {shape}")
    return shape


def _selected(question: Question) -> Shape:
    x, ids = shapes(question)
    require(len(ids) == 1, f"{question.op.name}: expected ids of one axis, got {ids}")
    return slices_of(_of_three(x, question), ids, 1)


def _gathered(question: Question) -> Shape:
    x, ids = shapes(question)
    return elements_of(question.op.name, _of_three(x, question), ids, 1)


def _scattered(question: Question) -> Shape:
    ids, source = shapes(question)
    return require_elements(question.op.name, _of_three(question.shape, question), ids, source, 1)


def _added(question: Question) -> Shape:
    ids, source = shapes(question)
    return require_slices(question.op.name, _of_three(question.shape, question), ids, source, 1)


INDEX_SELECT = define(
    "index_select",
    Family(
        "index_select",
        "x ids",
        "shape of x; the axis has one entry per id",
        rule=_selected,
        kinds="T * -> T",
        packed=2,
        settings="axis",
        attributes="[has_none]",
    ),
    "is",
    ALL,
    "x at ids of an axis",
    lambda x, ids, axis: np.take(x, ids, axis),
    called="take",
)
GATHER = define(
    "gather",
    Family(
        "gather",
        "x ids",
        "shape of ids",
        rule=_gathered,
        kinds="T * -> T",
        packed=2,
        settings="axis",
        attributes="[has_none]",
    ),
    "gather",
    ALL,
    "x at one id for each element",
    lambda x, ids, axis: np.take_along_axis(x, ids, axis),
)
SCATTERING = Family(
    "scatter",
    "x ids source",
    "shape of x, changed in place",
    rule=_scattered,
    kinds="* T -> T",
    packed=2,
    is_in_place=True,
    settings="axis",
    attributes="[has_none]",
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
        rule=_added,
        kinds="* T -> T",
        packed=2,
        is_in_place=True,
        settings="axis",
        attributes="[has_none]",
    ),
    "ia",
    ALL,
    "slices of source added at ids of an axis",
)
