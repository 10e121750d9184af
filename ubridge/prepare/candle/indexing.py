"""Lowerings of choices by ids and writes at ids; operands are contiguous (left, axis, right)."""

from __future__ import annotations

from ubridge.core.kernel_def import BY_IDS, KernelDef, strided
from ubridge.core.lowering import Given, Launches, Lowerings, Steps
from ubridge.core.question import Question
from ubridge.definitions.indexing import GATHER, INDEX_ADD, INDEX_SELECT, SCATTERING

BY_ID = KernelDef("indexing", BY_IDS, strided)
"""The kernels that take ids."""
EVERY_ID = 1 << 63
"""Top bit of an axis' length: no id means "none"."""


def _length(question: Question, length: int) -> int:
    """The length of the axis, with the flag that the kernel expects."""
    return length if question.has_flag("has_none") else length | EVERY_ID


def choose(question: Question, steps: Steps) -> None:
    """Add a choice by ids: of slices, or of an element for each id."""
    x, ids = steps.operands
    left, count, right = question.shape
    size = question.shape.size
    # The kernel of slices takes the ids' layout, which is contiguous. Candle's kernel reads
    # `num_dims` axes even from a null pointer.
    layout: dict[str, Given] = {"num_dims": 0, "info": None}
    steps.launch(
        (size,),
        x.dtype,
        ids.dtype,
        numel=size,
        ids=ids,
        inp=x,
        out=steps.result,
        left=left,
        src_dim=_length(question, question.layout(0).shape[1]),
        ids_dim=count,
        right=right,
        **(layout if question.op is INDEX_SELECT else {}),
    )


def _change(question: Question, steps: Steps) -> None:
    """Add writes at ids: of slices, or of an element for each id."""
    ids, source = steps.operands
    left, count, right = question.layout(1).shape
    steps.launch(
        (left * right,),
        source.dtype,
        ids.dtype,
        ids=ids,
        inp=source,
        out=steps.result,
        left=left,
        src_dim=count,
        dst_dim=_length(question, question.shape[1]),
        right=right,
        **({"ids_dim": count} if question.op is INDEX_ADD else {}),
    )


LOWERINGS: Lowerings = {
    INDEX_SELECT: Launches(choose, BY_ID),
    GATHER: Launches(choose, BY_ID),
    SCATTERING: Launches(_change, BY_ID),
    INDEX_ADD: Launches(_change, BY_ID),
}
