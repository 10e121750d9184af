"""Lowerings for CPUs alone: along axes, copies of rows, kinds of floats, pooling and resizing."""

from __future__ import annotations

from ubridge.core.kernel_def import (
    BY_IDS,
    PLAIN,
    KernelDef,
    by_vectors,
    pieces_of_elements,
    pieces_of_lines,
)
from ubridge.core.lowering import Launches, Lowerings, Steps
from ubridge.core.question import Question
from ubridge.definitions import windows
from ubridge.definitions.elementwise import CLIP, ISFINITE, ISINF, ISNAN, SIGNBIT
from ubridge.definitions.indexing import INDEX_SELECT
from ubridge.definitions.memory import COPY2D
from ubridge.definitions.rows import CUMSUM, PROD, SORT, SORT_DESCENDING, SORTING
from ubridge.prepare.candle.elementwise import copy_rows, each
from ubridge.prepare.candle.indexing import BY_ID, choose
from ubridge.prepare.candle.windows import bilinear2d, nearest2d, pool2d

_MODULE = "axes"
_LEAST_LINES = 8
"""Lines for a block, which are added side by side."""
_LEAST_CHOSEN = 4096
"""Elements for a block of a choice, a clamp or a copy."""


def _along(question: Question, steps: Steps) -> None:
    """Add an operation along the middle axis."""
    left, length, right = question.layout(0).shape
    steps.launch(
        (left * right, _LEAST_LINES, left * length * right),
        src=steps.operands[0],
        dst=steps.result,
        left=left,
        length=length,
        right=right,
    )


def _copy_rows(question: Question, steps: Steps) -> None:
    """Add a copy of rows in a few long pieces, each moved at once."""
    copy_rows(question, steps, _LEAST_CHOSEN, question.shape.size)


def _sort(question: Question, steps: Steps) -> None:
    """Add a sort of rows, each by one thread."""
    rows, columns = question.shape
    least = -(-_LEAST_CHOSEN // columns)
    steps.launch(
        (rows, least, rows * columns),
        x=steps.operands[0],
        dst=steps.result,
        rows=rows,
        ncols=columns,
    )


def _clip(question: Question, steps: Steps) -> None:
    """Add a choice between two bounds for each element."""
    size = question.shape.size
    steps.launch(
        (size, _LEAST_CHOSEN, size),
        numel=size,
        inp=steps.operands[0],
        out=steps.result,
        min=steps.number(0),
        max=steps.number(1),
    )


def _choose(question: Question, steps: Steps) -> None:
    """Add a choice of single elements by ids; Candle's kernel moves these one by one."""
    x, ids = steps.operands
    left, count, right = question.shape
    if right > 1:
        choose(question, steps)
        return
    size = left * count
    steps.launch(
        (size, _LEAST_CHOSEN, size),
        x.dtype,
        ids.dtype,
        _CHOICES,
        ids=ids,
        inp=x,
        out=steps.result,
        left=left,
        src_dim=question.layout(0).shape[1],
        ids_dim=count,
        has_none=question.has_flag("has_none"),
    )


_LINES = KernelDef(_MODULE, PLAIN, pieces_of_lines)
_CHOICES = KernelDef(_MODULE, BY_IDS, pieces_of_lines)
_KINDS = KernelDef("kinds", PLAIN, by_vectors)
_IMAGES = KernelDef("images", PLAIN, pieces_of_elements)

LOWERINGS: Lowerings = {
    CUMSUM: Launches(_along, _LINES),
    PROD: Launches(_along, _LINES),
    CLIP: Launches(_clip, _LINES),
    **dict.fromkeys((ISFINITE, ISINF, ISNAN, SIGNBIT), Launches(each, _KINDS)),
    COPY2D: Launches(_copy_rows, _LINES),
    SORTING: Launches(_sort, _LINES),
    SORT: Launches(_sort, _LINES),
    SORT_DESCENDING: Launches(_sort, _LINES),
    INDEX_SELECT: Launches(_choose, BY_ID),
    windows.POOLING: Launches(pool2d, _IMAGES),
    windows.UPSAMPLE_NEAREST2D: Launches(nearest2d, _IMAGES),
    windows.UPSAMPLE_BILINEAR2D: Launches(bilinear2d, _IMAGES),
}
