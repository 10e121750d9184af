"""Launches that were worked out before: what a program repeats costs a look into a dictionary.

An operation on a few elements is computed in less time than it takes to find its kernel, its
geometry and its result's layout. All of that depends only on the operation, the dtypes and the
layouts, so it is kept as a `Plan` by these.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import TYPE_CHECKING, NamedTuple

from ubridge.layout import Layout
from ubridge.op_table import OPS, Op
from ubridge.slice_ptr import joined_words
from uhal import DeviceBuffer, DType, launch
from uhal.dtypes import bool_, u8, u32
from uhal.interop import StreamLike

if TYPE_CHECKING:
    from ubridge.executor import DeviceExecutor, Kernel

REMEMBERED = 4096
"""Plans an executor keeps; beyond them it starts anew."""

_ASTYPE = OPS["astype"]
_WHERE = OPS["where"]


class Plan(NamedTuple):
    """How to launch one operation, and what comes out."""

    enqueue: Callable[[tuple[DeviceBuffer, ...], StreamLike | None], DeviceBuffer]
    """From the operands' buffers and the stream to a new buffer with the result."""
    layout: Layout
    dtype: DType


class Plans:
    """The plans of one device whose kernels have Candle's calling convention.

    Each method returns `None` for what has no plan: empty tensors, and those that do not begin with
    their buffer. Nobody checks operands against a plan: their layouts fit their buffers, as every
    tensor's do. Any thread may use it.
    """

    def __init__(self, executor: DeviceExecutor) -> None:
        self._executor = executor
        self._known: dict[Hashable, Plan | None] = {}

    def pair(self, op: Op, dtype: DType, left: Layout, right: Layout) -> Plan | None:
        """Return the plan of an operation on two tensors of one dtype, broadcast."""
        key = (op, dtype.code, left, right)
        try:
            return self._known[key]
        except KeyError:
            return self._keep(key, self._pair(op, dtype, left, right))

    def _pair(self, op: Op, dtype: DType, left: Layout, right: Layout) -> Plan | None:
        # Booleans, and integers that are divided, become something else first.
        if dtype is bool_ or (op.name == "divide" and dtype.kind != "float"):
            return None
        shape = left.shape.broadcast_with(right.shape)
        layouts = (left.broadcast_to(shape), right.broadcast_to(shape))
        compares = op.family.name == "compare"
        return self._elementwise(op, dtype, None, layouts, bool_ if compares else dtype)

    def cast(self, dtype: DType, target: DType, layout: Layout) -> Plan | None:
        """Return the plan of a conversion between two dtypes that are not bool."""
        key = (_ASTYPE, dtype.code, target.code, layout)
        try:
            return self._known[key]
        except KeyError:
            return self._keep(key, self._elementwise(_ASTYPE, dtype, target, (layout,), target))

    def unary(self, op: Op, dtype: DType, layout: Layout) -> Plan | None:
        """Return the plan of an operation on one tensor, of a dtype it has kernels for."""
        key = (op, dtype.code, layout)
        try:
            return self._known[key]
        except KeyError:
            return self._keep(key, self._elementwise(op, dtype, None, (layout,), dtype))

    def where(self, kind: DType, dtype: DType, layouts: tuple[Layout, ...]) -> Plan | None:
        """Return the plan of a choice by a condition of dtype `kind`; layouts of all three."""
        key = (_WHERE, kind.code, dtype.code, layouts)
        try:
            return self._known[key]
        except KeyError:
            first, *others = (one.shape for one in layouts)
            shape = first.broadcast_with(*others)
            spread = tuple(one.broadcast_to(shape) for one in layouts)
            return self._keep(key, self._elementwise(_WHERE, dtype, kind, spread, dtype))

    def reduction(
        self, op: Op, dtype: DType, layout: Layout, axis: int | None, keepdims: bool
    ) -> Plan | None:
        """Return the plan of a reduction over one axis or all."""
        key = (op, dtype.code, layout, axis, keepdims)
        try:
            return self._known[key]
        except KeyError:
            return self._keep(key, self._reduction(op, dtype, layout, axis, keepdims))

    def _keep(self, key: Hashable, plan: Plan | None) -> Plan | None:
        if len(self._known) >= REMEMBERED:
            self._known.clear()
        self._known[key] = plan
        return plan

    def _elementwise(
        self,
        op: Op,
        dtype: DType,
        other: DType | None,
        layouts: tuple[Layout, ...],
        result: DType,
    ) -> Plan | None:
        first = layouts[0]
        if first.size == 0 or any(one.start_offset for one in layouts) or dtype is bool_:
            return None
        kernel = self._executor.kernel(op, dtype, other)
        # The kernels of a choice read the layout even where everything is contiguous.
        plain = op is not _WHERE and all(one.is_contiguous for one in layouts)
        words = None if plain else joined_words(*layouts)
        head = (first.size, first.rank)
        enqueue = self._enqueue(kernel, (first.size,), head, words, first.size, _stored(result))
        return Plan(enqueue, Layout.contiguous(first.shape), result)

    def _reduction(
        self, op: Op, dtype: DType, layout: Layout, axis: int | None, keepdims: bool
    ) -> Plan | None:
        if layout.size == 0 or layout.rank == 0 or layout.start_offset or dtype is bool_:
            return None
        rank = layout.rank
        places = tuple(range(rank)) if axis is None else (layout.axis(axis),)
        kept = tuple(place for place in range(rank) if place not in places)
        ordered = layout.permute((*kept, *places))
        left = Layout.contiguous(
            1 if place in places else length
            for place, length in enumerate(layout.shape)
            if keepdims or place not in places
        )
        elements = layout.size // left.size
        result = u32 if op.family.name == "arg_reduce" else dtype
        kernel = self._executor.kernel(op, dtype)
        head = (layout.size, elements, rank)
        # The kernels read the layout even where everything is contiguous.
        work = (left.size, elements)
        enqueue = self._enqueue(kernel, work, head, ordered.words, left.size, result)
        return Plan(enqueue, left, result)

    def _enqueue(
        self,
        kernel: Kernel,
        work: tuple[int, ...],
        head: tuple[int, ...],
        words: tuple[int, ...] | None,
        size: int,
        stored: DType,
    ) -> Callable[[tuple[DeviceBuffer, ...], StreamLike | None], DeviceBuffer]:
        """What launches a kernel of `head`, layout, operands and the result."""
        function = kernel.function
        grid, block, shared = kernel.configuration(*work)
        device = self._executor.device
        layouts = self._executor.layouts

        def enqueue(operands: tuple[DeviceBuffer, ...], stream: StreamLike | None) -> DeviceBuffer:
            if stream is None:
                out = DeviceBuffer.uninitialized(size, stored, device=device)
            else:
                out = DeviceBuffer.uninitialized_async(size, stored, stream)
            # Asked for each time: a capture keeps what it was given.
            info = None if words is None else layouts.get(words)
            launch(function, grid, block, (*head, info, *operands, out), shared, stream)
            return out

        return enqueue


def _stored(dtype: DType) -> DType:
    """What a buffer of tensors of the dtype holds."""
    return u8 if dtype is bool_ else dtype
