"""Operations over the ranks of a group.

They are not in the table of operations: a question needs a communicator, which belongs to this
process. So a question holds the communicator's work. Graphs record the work; files refuse it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from ubridge.core.fits import require
from ubridge.core.layout import Shape
from ubridge.core.operation import REALS, Array, Family, define
from ubridge.core.question import Question

_DTYPES = f"{REALS} i8 u8 i32 u32 i64 u64"
"""Element types of every library of collectives."""
_COMBINED: Mapping[str, Callable[[Array], Array]] = {
    "sum": lambda ranks: np.sum(ranks, 0, ranks.dtype),
    "prod": lambda ranks: np.prod(ranks, 0, ranks.dtype),
    "max": lambda ranks: np.max(ranks, 0),
    "min": lambda ranks: np.min(ranks, 0),
    "avg": lambda ranks: np.mean(ranks, 0),
}


def _reduced(question: Question) -> Shape:
    return question.shape


def _gathered(question: Question) -> Shape:
    shape, (ranks, *each) = question.layout(0).shape, question.shape
    require(tuple(each) == tuple(shape), f"all_gather: expected {ranks} of {shape}, got {each}")
    return question.shape


def _combined(ranks: Sequence[Array], op: str = "sum") -> Array:
    return _COMBINED[op](np.stack(ranks))


ALL_REDUCE = define(
    "all_reduce",
    Family(
        "all_reduce",
        "x",
        "shape of x, overwritten",
        rule=_reduced,
        is_in_place=True,
        is_recorded=True,
        packed=1,
        attributes="op work",
    ),
    "",
    _DTYPES,
    "all ranks' x, combined element by element",
    _combined,
)
"""Its reference takes all ranks' operands."""
ALL_GATHER = define(
    "all_gather",
    Family(
        "all_gather",
        "x",
        "(ranks, shape of x)",
        rule=_gathered,
        is_recorded=True,
        packed=1,
        attributes="work",
    ),
    "",
    _DTYPES,
    "all ranks' x, one after the other",
    lambda ranks: np.stack(ranks),
)
"""Its reference takes all ranks' operands."""
