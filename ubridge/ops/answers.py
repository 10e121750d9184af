"""What tensors' operations ask: from dtypes and layouts to a question and the result's layout.

Each function returns `None` where one question is not enough: for empty tensors, booleans, and
dtypes that are cast first. Callers then compute or refuse by their general path. Only shapes that
do not broadcast are refused here.
"""

from __future__ import annotations

from math import prod

from ubridge.buffers import indexed_launches, launches, product_launches, row_launches
from ubridge.core.layout import Layout, Shape
from ubridge.core.op_table import OPS, Op
from ubridge.core.operand_checks import axis_of, one_shape
from ubridge.core.question import Question
from uhal import DType
from uhal.dtypes import bool_, u8, u32

_GATHER = OPS["gather"]
_MATMUL = OPS["matmul"]
_WHERE = OPS["where"]

Asked = tuple[Question, Layout, DType] | None


def _of_each(op: Op, dtype: DType, layouts: tuple[Layout, ...], numbers: int = 0) -> Asked:
    if layouts[0].size == 0 or dtype is bool_:
        return None
    result = bool_ if op.family.name == "compare" else dtype
    stored = u8 if result is bool_ else result
    question = launches.of_each(op, dtype, layouts, stored, numbers)
    return question, question.result[1], result


def unary(op: Op, dtype: DType, layout: Layout, numbers: int = 0) -> Asked:
    """Ask for an operation on one tensor and `numbers` numbers, which come with each call."""
    return _of_each(op, dtype, (layout,), numbers) if dtype.name in op.dtypes else None


def pair(op: Op, dtype: DType, left: Layout, right: Layout) -> Asked:
    """Ask for an operation on two tensors of one dtype, broadcast."""
    # Integers that are divided, or given to a function of floats, are cast first.
    if dtype.kind != "float" and (op.name == "divide" or op.is_of_floats):
        return None
    shape = one_shape(op.name, left.shape, right.shape)
    return _of_each(op, dtype, (left.broadcast_to(shape), right.broadcast_to(shape)))


def cast(op: Op, dtype: DType, target: DType, layout: Layout) -> Asked:
    """Ask for a conversion between two dtypes that are not bool."""
    if layout.size == 0 or dtype is bool_:
        return None
    question = launches.of_each(op, dtype, (layout,), target)
    return question, question.result[1], target


def where(kind: DType, dtype: DType, condition: Layout, x: Layout, y: Layout) -> Asked:
    """Ask for a choice by a condition of dtype `kind`, broadcast."""
    shape = one_shape(_WHERE.name, condition.shape, x.shape, y.shape)
    if shape.size == 0 or dtype is bool_:
        return None
    layouts = (condition.broadcast_to(shape), x.broadcast_to(shape), y.broadcast_to(shape))
    question = launches.of_each(_WHERE, dtype, layouts, dtype, 0, kind)
    return question, question.result[1], dtype


def of_rows(op: Op, dtype: DType, layout: Layout, weights: int = 0, numbers: int = 0) -> Asked:
    """Ask for an operation along the last axis of a contiguous tensor."""
    if layout.size == 0 or layout.rank == 0 or not layout.is_contiguous or dtype is bool_:
        return None
    columns = layout.shape[-1]
    question = row_launches.of_rows(op, dtype, layout.size // columns, columns, weights, numbers)
    return question, Layout.contiguous(layout.shape), dtype


def take(op: Op, dtype: DType, kind: DType, layout: Layout, ids: Layout, axis: int) -> Asked:
    """Ask for `index_select` or `gather`, of a tensor and ids of dtype `kind`."""
    whole = layout.is_contiguous and ids.is_contiguous
    if not whole or layout.size == 0 or ids.size == 0 or dtype is bool_:
        return None
    shape = layout.shape
    sizes = (prod(shape[:axis]), shape[axis], prod(shape[axis + 1 :]))
    if op is _GATHER:
        question = indexed_launches.gathering(dtype, sizes, kind, ids.shape[axis])
        return question, Layout.contiguous(ids.shape), dtype
    question = indexed_launches.selection(dtype, sizes, kind, ids.size)
    taken = (*shape[:axis], *ids.shape, *shape[axis + 1 :])
    return question, Layout.contiguous(taken), dtype


def reduction(op: Op, dtype: DType, layout: Layout, axis: int | None, keepdims: bool) -> Asked:
    """Ask for a reduction over one axis or all."""
    if layout.size == 0 or layout.rank == 0 or dtype is bool_:
        return None
    rank = layout.rank
    axes = tuple(range(rank)) if axis is None else (axis_of(op.name, layout, axis),)
    kept = tuple(one for one in range(rank) if one not in axes)
    question = launches.reduction(op, dtype, layout.permute((*kept, *axes)), len(axes))
    left = Layout.contiguous(
        1 if one in axes else length
        for one, length in enumerate(layout.shape)
        if keepdims or one not in axes
    )
    return question, left, u32 if op.family.name == "arg_reduce" else dtype


def matmul(dtype: DType, left: Layout, right: Layout) -> Asked:
    """Ask for a product of two tensors of one dtype."""
    if not left.rank or not right.rank or not left.size * right.size:
        return None
    a = left if left.rank > 1 else left.expanded(0)
    b = right if right.rank > 1 else right.expanded(1)
    if a.shape[-1] != b.shape[-2]:
        return None
    batch = one_shape(_MATMUL.name, Shape(a.shape[:-2]), Shape(b.shape[:-2]))
    question = product_launches.product(
        dtype, a.broadcast_to((*batch, *a.shape[-2:])), b.broadcast_to((*batch, *b.shape[-2:]))
    )
    rows = a.shape[-2:-1] if left.rank > 1 else ()
    columns = b.shape[-1:] if right.rank > 1 else ()
    return question, Layout.contiguous((*batch, *rows, *columns)), dtype
