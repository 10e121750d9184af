"""Lowerings of choices by ids and writes at ids; operands are contiguous (left, axis, right)."""

from __future__ import annotations

from ubridge.core.kernel_def import BY_IDS, KernelDef, strided
from ubridge.core.lowering import Launches, Lowerings, Steps
from ubridge.core.question import Question
from ubridge.definitions.indexing import GATHER, INDEX_ADD, INDEX_SELECT, SCATTERING

SELECT = KernelDef("indexing", BY_IDS, strided)
"""The kernels of `index_select`."""


def _index_select(question: Question, steps: Steps) -> None:
    x, ids = steps.operands
    left, count, right = question.shape
    size = question.shape.size
    # The layout that the kernel takes is the ids', which are contiguous. Candle's reads as many
    # axes as it is given, from null too.
    steps.launch(
        (size,),
        x.dtype,
        ids.dtype,
        numel=size,
        num_dims=0,
        info=None,
        ids=ids,
        inp=x,
        out=steps.result,
        left=left,
        src_dim=question.layout(0).shape[1],
        ids_dim=count,
        right=right,
    )


def _gather(question: Question, steps: Steps) -> None:
    x, ids = steps.operands
    left, count, right = question.shape
    size = question.shape.size
    steps.launch(
        (size,),
        x.dtype,
        ids.dtype,
        numel=size,
        ids=ids,
        inp=x,
        out=steps.result,
        left=left,
        src_dim=question.layout(0).shape[1],
        ids_dim=count,
        right=right,
    )


def _scatter(question: Question, steps: Steps) -> None:
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
        dst_dim=question.shape[1],
        right=right,
    )


def _index_add(question: Question, steps: Steps) -> None:
    ids, source = steps.operands
    left, count, right = question.layout(1).shape
    steps.launch(
        (left * right,),
        source.dtype,
        ids.dtype,
        ids=ids,
        ids_dim=count,
        inp=source,
        out=steps.result,
        left=left,
        src_dim=count,
        dst_dim=question.shape[1],
        right=right,
    )


class _ByIds(Launches):
    """Launches of kernels of `indexing.cu`."""

    marks_no_id = True


LOWERINGS: Lowerings = {
    INDEX_SELECT: _ByIds(_index_select, SELECT),
    GATHER: _ByIds(_gather, KernelDef("indexing", BY_IDS, strided)),
    SCATTERING: _ByIds(_scatter, KernelDef("indexing", BY_IDS, strided)),
    INDEX_ADD: _ByIds(_index_add, KernelDef("indexing", BY_IDS, strided)),
}
