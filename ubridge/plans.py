"""Launches that were worked out before: what a program repeats costs a look into a dictionary.

An operation on a few elements is computed in less time than it takes to find its kernel, its
geometry and its result's layout. All of that depends only on the operation, the dtypes and the
layouts, so it is kept as a `Plan` by these.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from math import prod
from typing import TYPE_CHECKING, Any, NamedTuple

from ubridge.launch_rows import norm_threads
from ubridge.layout import Layout
from ubridge.op_table import OPS, Op
from ubridge.operand_checks import axis_of, one_shape
from ubridge.slice_ptr import joined_words
from uhal import DeviceBuffer, DType, launch
from uhal.dtypes import bool_, u8, u32
from uhal.interop import StreamLike

if TYPE_CHECKING:
    from ubridge.executor import DeviceExecutor, Kernel

REMEMBERED = 4096
"""Plans an executor keeps; beyond them it starts anew."""

Operands = tuple[DeviceBuffer, ...]
Arrange = Callable[[Operands, DeviceBuffer], tuple[Any, ...]]
"""From the operands' buffers and the result's to the arguments of a kernel."""

_ASTYPE = OPS["astype"]
_GATHER = OPS["gather"]
_SOFTMAX = OPS["softmax"]
_WHERE = OPS["where"]


class Plan(NamedTuple):
    """How to launch one operation, and what comes out."""

    enqueue: Callable[[Operands, StreamLike | None], DeviceBuffer]
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
        shape = one_shape(op.name, left.shape, right.shape)
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
            shape = one_shape(_WHERE.name, first, *others)
            spread = tuple(one.broadcast_to(shape) for one in layouts)
            return self._keep(key, self._elementwise(_WHERE, dtype, kind, spread, dtype))

    def softmax(self, dtype: DType, layout: Layout) -> Plan | None:
        """Return the plan of a softmax along the last axis."""
        key = (_SOFTMAX, dtype.code, layout)
        try:
            return self._known[key]
        except KeyError:
            return self._keep(key, self._rows(_SOFTMAX, dtype, layout, (), ()))

    def norm(self, op: Op, dtype: DType, layout: Layout, epsilon: float) -> Plan | None:
        """Return the plan of a norm along the last axis by contiguous weights."""
        key = (op, dtype.code, layout, epsilon)
        try:
            return self._known[key]
        except KeyError:
            threads = norm_threads(layout.shape[-1]) if layout.rank else 0
            plan = self._rows(op, dtype, layout, (threads,), (threads, epsilon))
            return self._keep(key, plan)

    def take(
        self, op: Op, dtype: DType, kind: DType, layout: Layout, ids: Layout, axis: int
    ) -> Plan | None:
        """Return the plan of `index_select` or `gather`, of ids of dtype `kind` and a tensor."""
        key = (op, dtype.code, kind.code, layout, ids, axis)
        try:
            return self._known[key]
        except KeyError:
            return self._keep(key, self._take(op, dtype, kind, layout, ids, axis))

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
        head = (first.size, first.rank)
        layout = Layout.contiguous(first.shape)
        # The kernels of a choice read the layouts even where everything is contiguous.
        if op is not _WHERE and all(one.is_contiguous for one in layouts):
            arrange = _in_order((*head, None), ())
        else:
            arrange = self._with_layout(head, joined_words(*layouts))
        return self._plan(kernel, (first.size,), arrange, layout, result)

    def _reduction(
        self, op: Op, dtype: DType, layout: Layout, axis: int | None, keepdims: bool
    ) -> Plan | None:
        if layout.size == 0 or layout.rank == 0 or layout.start_offset or dtype is bool_:
            return None
        rank = layout.rank
        places = tuple(range(rank)) if axis is None else (axis_of(op.name, layout, axis),)
        kept = tuple(place for place in range(rank) if place not in places)
        ordered = layout.permute((*kept, *places))
        left = Layout.contiguous(
            1 if place in places else length
            for place, length in enumerate(layout.shape)
            if keepdims or place not in places
        )
        elements = layout.size // left.size
        result = u32 if op.family.name == "arg_reduce" else dtype
        # The kernels read the layout even where everything is contiguous.
        arrange = self._with_layout((layout.size, elements, rank), ordered.words)
        kernel = self._executor.kernel(op, dtype)
        work = (left.size, elements, ordered.is_contiguous)
        return self._plan(kernel, work, arrange, left, result)

    def _rows(
        self,
        op: Op,
        dtype: DType,
        layout: Layout,
        work: tuple[int, ...],
        numbers: tuple[float, ...],
    ) -> Plan | None:
        if layout.size == 0 or layout.rank == 0 or not layout.is_whole:
            return None
        columns = layout.shape[-1]
        kernel = self._executor.kernel(op, dtype)

        def arrange(operands: Operands, out: DeviceBuffer) -> tuple[Any, ...]:
            x, *others = operands
            return (x, out, *others, columns, *numbers)

        return self._plan(kernel, (layout.size // columns, *work), arrange, layout, dtype)

    def _take(
        self, op: Op, dtype: DType, kind: DType, layout: Layout, ids: Layout, axis: int
    ) -> Plan | None:
        if not (layout.is_whole and ids.is_whole and layout.size and ids.size) or dtype is bool_:
            return None
        shape = layout.shape
        left, right = prod(shape[:axis]), prod(shape[axis + 1 :])
        head: tuple[int | None, ...]
        if op is _GATHER:
            result = Layout.contiguous(ids.shape)
            count, head = ids.shape[axis], (result.size,)
        else:
            result = Layout.contiguous((*shape[:axis], *ids.shape, *shape[axis + 1 :]))
            # The layout the kernel asks for is that of the ids.
            count, head = ids.size, (result.size, 1, None)
        arrange = _in_order(head, (left, shape[axis], count, right))
        return self._plan(self._executor.kernel(op, dtype, kind), (result.size,), arrange, result,
                          dtype)  # fmt: skip

    def _with_layout(self, head: tuple[int, ...], words: tuple[int, ...]) -> Arrange:
        layouts = self._executor.layouts

        def arrange(operands: Operands, out: DeviceBuffer) -> tuple[Any, ...]:
            # Asked for each time: a capture keeps what it was given.
            return (*head, layouts.get(words), *operands, out)

        return arrange

    def _plan(
        self,
        kernel: Kernel,
        work: tuple[int, ...],
        arrange: Arrange,
        layout: Layout,
        result: DType,
    ) -> Plan:
        """What launches a kernel on as much work, into a new buffer of this layout and dtype."""
        function = kernel.function
        grid, block, shared = kernel.configuration(*work)
        device = self._executor.device
        size, stored = layout.size, u8 if result is bool_ else result

        def enqueue(operands: Operands, stream: StreamLike | None) -> DeviceBuffer:
            if stream is None:
                out = DeviceBuffer.uninitialized(size, stored, device=device)
            else:
                out = DeviceBuffer.uninitialized_async(size, stored, stream)
            launch(function, grid, block, arrange(operands, out), shared, stream)
            return out

        return Plan(enqueue, layout, result)


def _in_order(head: tuple[int | None, ...], tail: tuple[int, ...]) -> Arrange:
    def arrange(operands: Operands, out: DeviceBuffer) -> tuple[Any, ...]:
        return (*head, *operands, out, *tail)

    return arrange
