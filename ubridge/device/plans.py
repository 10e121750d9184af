"""Launches that were worked out before: what a program repeats costs a look into a dictionary.

An operation on a few elements is computed in less time than it takes to find its kernel, its
geometry and its result's layout. All of that depends only on the operation, the dtypes and the
layouts, so it is kept as a `Plan` by these.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from math import prod
from typing import Any

from ubridge.core.launch_rows import norm_threads
from ubridge.core.layout import Layout
from ubridge.core.op_table import OPS, Op
from ubridge.core.operand_checks import axis_of, one_shape
from ubridge.device.kernels import DeviceKernels, Kernel
from ubridge.device.slice_ptr import joined_words
from uhal import DeviceBuffer, DType
from uhal._lane import ResultLaunch
from uhal.dtypes import bool_, u8, u32

REMEMBERED = 4096
"""Plans an executor keeps; beyond them it starts anew."""

_GATHER = OPS["gather"]
_WHERE = OPS["where"]


class Plan:
    """How to launch one operation, and what comes out."""

    __slots__ = ("dtype", "launch", "layout")

    def __init__(self, launch: Callable[..., DeviceBuffer], layout: Layout, dtype: DType) -> None:
        self.launch = launch
        """From the stream, the result's buffer or `None` for a new one, and the operands' buffers
        to the result's."""
        self.layout = layout
        self.dtype = dtype


class Plans:
    """The plans of one device whose kernels have Candle's calling convention.

    Who wants one looks for a key of his own among the `known`, and has it made where there is none:
    `plans.known.get(key) or plans.make(key, plans.unary, op, dtype, layout)`. A key begins with the
    operation and says what the plan is made of, and whatever else was checked of the operands
    before: it need not be checked again. Nobody checks buffers against a plan: layouts fit them, as
    every tensor's do. Any thread may use it.

    The methods that say how to make one return `None` for what has no plan: empty tensors, those
    that do not begin with their buffer, and dtypes that become another one first.
    """

    def __init__(self, executor: DeviceKernels) -> None:
        self._executor = executor
        self.known: dict[Hashable, Plan | None] = {}
        """What was asked for; `None` for what has no plan."""

    def make(self, key: Hashable, how: Callable[..., Plan | None], /, *facts: Any) -> Plan | None:
        """Return the plan that `how` makes of the facts, and remember it by a key without one."""
        if key in self.known:
            return None
        plan = how(*facts)
        if len(self.known) >= REMEMBERED:
            self.known.clear()
        self.known[key] = plan
        return plan

    def pair(self, op: Op, dtype: DType, left: Layout, right: Layout) -> Plan | None:
        """Plan an operation on two tensors of one dtype, broadcast."""
        # Booleans, and integers that are divided, become something else first.
        if dtype is bool_ or (op.name == "divide" and dtype.kind != "float"):
            return None
        if left.start_offset or right.start_offset:
            return None
        shape = one_shape(op.name, left.shape, right.shape)
        layouts = (left.broadcast_to(shape), right.broadcast_to(shape))
        compares = op.family.name == "compare"
        return self._elementwise(op, dtype, None, layouts, bool_ if compares else dtype)

    def cast(self, op: Op, dtype: DType, target: DType, layout: Layout) -> Plan | None:
        """Plan a conversion between two dtypes that are not bool."""
        return self._elementwise(op, dtype, target, (layout,), target)

    def unary(self, op: Op, dtype: DType, layout: Layout) -> Plan | None:
        """Plan an operation on one tensor; numbers it takes besides come behind the tensor."""
        if dtype.name not in op.dtypes:
            return None
        return self._elementwise(op, dtype, None, (layout,), dtype)

    def where(
        self, kind: DType, dtype: DType, condition: Layout, x: Layout, y: Layout
    ) -> Plan | None:
        """Plan a choice by a condition of dtype `kind`."""
        layouts = (condition, x, y)
        if any(one.start_offset for one in layouts):
            return None
        first, *others = (one.shape for one in layouts)
        shape = one_shape(_WHERE.name, first, *others)
        spread = tuple(one.broadcast_to(shape) for one in layouts)
        return self._elementwise(_WHERE, dtype, kind, spread, dtype)

    def softmax(self, op: Op, dtype: DType, layout: Layout) -> Plan | None:
        """Plan a softmax along the last axis."""
        return self._rows(op, dtype, layout, (), ())

    def norm(self, op: Op, dtype: DType, layout: Layout, epsilon: float) -> Plan | None:
        """Plan a norm along the last axis by contiguous weights."""
        threads = norm_threads(layout.shape[-1]) if layout.rank else 0
        return self._rows(op, dtype, layout, (threads,), (threads, epsilon))

    def take(
        self, op: Op, dtype: DType, kind: DType, layout: Layout, ids: Layout, axis: int
    ) -> Plan | None:
        """Plan `index_select` or `gather`, of ids of dtype `kind` and a tensor."""
        whole = layout.is_whole and ids.is_whole and layout.size and ids.size
        if not whole or dtype is bool_:
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
        kernel = self._executor.kernel(op, dtype, kind)
        arguments = (head, 2, (left, shape[axis], count, right))
        return self._plan(kernel, (result.size,), arguments, result, dtype)

    def reduction(
        self, op: Op, dtype: DType, layout: Layout, axis: int | None, keepdims: bool
    ) -> Plan | None:
        """Plan a reduction over one axis or all."""
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
        info = self._executor.layouts.get(ordered.words)
        kernel = self._executor.kernel(op, dtype)
        work = (left.size, elements, ordered.is_contiguous)
        arguments = ((layout.size, elements, rank, info), 1, ())
        return self._plan(kernel, work, arguments, left, result)

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
        # The kernels of a choice read the layouts even where everything is contiguous.
        plain = op is not _WHERE and all(one.is_contiguous for one in layouts)
        info = None if plain else self._executor.layouts.get(joined_words(*layouts))
        arguments = ((first.size, first.rank, info), len(layouts), ())
        layout = Layout.contiguous(first.shape)
        return self._plan(kernel, (first.size,), arguments, layout, result)

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
        arguments = ((), 1, (columns, *numbers))
        return self._plan(kernel, (layout.size // columns, *work), arguments, layout, dtype)

    def _plan(
        self,
        kernel: Kernel,
        work: tuple[int, ...],
        arguments: tuple[tuple[Any, ...], int, tuple[Any, ...]],
        layout: Layout,
        result: DType,
    ) -> Plan:
        """What launches a kernel on as much work, into a tensor of this layout and dtype.

        The arguments are those before the operands, how many operands come before the result, and
        those behind.
        """
        grid, block, shared = kernel.configuration(*work)
        head, place, tail = arguments
        stored = u8 if result is bool_ else result
        bound = kernel.function[grid, block, shared]
        launch = ResultLaunch(bound, head, place, layout.size, stored, tail)
        return Plan(launch, layout, result)


class NoPlans(Plans):
    """Of a device whose kernels are called otherwise, and while launches are recorded: none."""

    def __init__(self) -> None:
        self.known = {}

    def make(self, key: Hashable, how: Callable[..., Plan | None], /, *facts: Any) -> Plan | None:
        """Return none."""
        return None
