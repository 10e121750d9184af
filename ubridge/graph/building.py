"""Builds a graph: nodes are added one by one, and checked as soon as their inputs exist."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import replace

import numpy as np

from ubridge.core.fits import require
from ubridge.core.layout import Layout, Shape
from ubridge.core.operand_checks import require_number, whole_number
from ubridge.core.operation import Op
from ubridge.core.question import Question
from ubridge.core.storage_view import StorageView
from ubridge.definitions.memory import FILL
from ubridge.device.executor import DeviceExecutor
from ubridge.graph.calls import Call, ScalarSlot
from ubridge.graph.describing import Describer
from ubridge.graph.ops import Node, OpParams, TensorOp, table_op
from ubridge.graph.order import ordered, require_fresh
from ubridge.graph.storage import Storages
from ubridge.ops.results import require_tensors
from ubridge.tensor import DeviceTensor
from uhal import Device, DeviceBuffer, as_dtype
from uhal.device import DeviceLike, as_device
from uhal.dtypes import DTypeLike, bool_
from uhal.errors import ArgumentTypeError, ArgumentValueError, DeviceError

_NO_PARAMS = OpParams()


class GraphBuilder:
    """Nodes, their calls and the memory they name. `ComputeGraph` runs them."""

    def __init__(self, device: DeviceLike | None = None) -> None:
        """Make an empty graph, by default on the first leaf's device."""
        self.nodes: list[Node] = []
        """Leaves and operations, in the order they were added; a node's number is its index."""
        self.calls: list[Call | None] = []
        """Launches of each operation, once its inputs exist."""
        self.booleans: set[int] = set()
        """Leaves whose u8 are booleans: 0 or 1."""
        self.storages = Storages()
        """The memory of every node."""
        self._describer: Describer | None = None
        """Describes operations on the graph's device; unset until the device is known."""
        if device is not None:
            self._use(as_device(device))
        self._order: list[int] | None = None
        self._names: dict[str, int] = {}
        self.is_recorded = False
        """Whether a trace made the order, so that no node reads an overwritten value."""

    # -- building --------------------------------------------------------------------------------

    def add_leaf(
        self,
        buffer: DeviceBuffer | DeviceTensor,
        shape: int | Iterable[int] | None = None,
        *,
        name: str | None = None,
    ) -> int:
        """Add a tensor in memory, and return its node.

        The tensor is contiguous from the buffer's start.

        Raises `ArgumentValueError` when the shape reaches past the buffer or the name is taken, and
        `InvalidHandleError` for a buffer of another device than the graph's.
        """
        tensor = _as_tensor(buffer, shape)
        self._use(tensor.device)
        self._require_free(name)
        view = self.storages.view_of(tensor.buffer)
        node = Node(len(self.nodes), None, tensor.shape, (), _NO_PARAMS, name)
        self._append(node)
        self.storages.values[node.index] = view._replace(size=tensor.size)
        self.storages.latest.setdefault(view.storage, node.index)
        if isinstance(buffer, DeviceTensor) and buffer.dtype is bool_:
            self.booleans.add(node.index)
        return node.index

    def add_op(
        self,
        op: TensorOp | Op | str,
        out: DeviceBuffer | DeviceTensor | None,
        shape: int | Iterable[int],
        inputs: Sequence[int] = (),
        params: OpParams | None = None,
        *,
        name: str | None = None,
    ) -> int:
        """Add an operation and return its node.

        The result of `shape` goes to `out`, or to memory planned by the graph if `out` is `None`.
        An operation that changes its first input in place (scatter, index_add, fill) takes no other
        `out`. Inputs may be nodes that are yet to be added; shapes and dtypes are checked as soon
        as all inputs exist. Raises the operation's errors for tensors, with the node named, and
        `ArgumentValueError` when the result has another shape.
        """
        params = params or _NO_PARAMS
        self._require_free(name)
        index = len(self.nodes)
        if not isinstance(inputs, Sequence):
            raise ArgumentTypeError(f"add_op, inputs: expected nodes' numbers, got {inputs!r:.80}")
        kind = table_op(op, len(inputs), params)
        inputs = tuple([whole_number("add_op, inputs", one) for one in inputs])
        require(
            index not in inputs,
            f"node {index} ({kind.name}): expected other nodes' numbers as inputs, got {index}",
        )
        node = Node(index, kind, Shape(shape), inputs, params, name)
        self.storages.wanted[index] = _as_buffer(out)
        is_ready = all(one in self.storages.values for one in inputs)
        call = self._describing.describe(node) if is_ready else None
        self._append(node)
        self.calls[index] = call
        return index

    def add_scalar(
        self,
        name: str,
        value: float,
        dtype: DTypeLike = "i64",
        *,
        low: float | None = None,
        high: float | None = None,
    ) -> int:
        """Add a number that each run can change; return its node.

        The node is a tensor of one element.

        `value` is the default of each run. A given number must lie in `low` to `high`, both
        included; by default in the range of the dtype.
        """
        self._require_free(name)
        for role, bound in (("low", low), ("high", high)):
            if bound is not None:
                require_number(f"add_scalar, {role}", bound)
        element = as_dtype(dtype)
        # Floats have no bounds.
        least = -math.inf if element.min is None else element.min
        most = math.inf if element.max is None else element.max
        slot = ScalarSlot(
            name, value, element, least if low is None else low, most if high is None else high
        )
        number = np.array([slot.checked(value)]).astype(element.dtype)
        device = None if self._describer is None else self._describer.device
        buffer = DeviceBuffer.from_numpy(number, device=device)
        self._use(buffer.device)
        self.executor.note_range(buffer, slot.low, slot.high)
        question = Question(FILL, (), (element, Layout.contiguous(1)), numbers=1)
        return self.add_call(Call(question, (), self.storages.view_of(buffer), (slot,)), name)

    def scalar(
        self, name: str, value: float, dtype: DTypeLike = "i64", **bounds: float
    ) -> DeviceTensor:
        """Return the tensor of a new `add_scalar`, for use within a trace."""
        return self._tensor_at(self.add_scalar(name, value, dtype, **bounds))

    def add_call(self, call: Call, name: str | None = None) -> int:
        """Add an operation's work behind all nodes; return its node."""
        written = call.written
        latest = self.storages.latest
        inputs = []
        for view in self.reads(call):
            if view.storage not in latest:
                self._leaf_of(view.storage)
        for view in call.views:
            if view.storage in latest and latest[view.storage] not in inputs:
                inputs.append(latest[view.storage])
        node = Node(len(self.nodes), call.op, call.shape, tuple(inputs), _NO_PARAMS, name)
        self.take(node, call, written)
        return node.index

    def take(self, node: Node, call: Call | None, view: StorageView) -> None:
        """Add a node with its work and its value's memory."""
        self._append(node)
        self.calls[node.index] = call
        self.storages.values[node.index] = view
        for one in (view,) if call is None else call.writes:
            self.storages.latest[one.storage] = node.index

    def reads(self, call: Call) -> list[StorageView]:
        """Return the views that a call reads.

        The views include those that the call changes only in part.
        """
        written = call.written
        covers = written.nbytes == self.storages[written.storage].nbytes
        changes = call.is_in_place and not (call.op is FILL and covers)
        return [*call.operands, written] if changes else list(call.operands)

    def _leaf_of(self, number: int) -> None:
        """Add a leaf of a storage that a recorded call reads first."""
        root = self.storages[number].buffer
        if root is not None:
            self.add_leaf(root)

    def name(self, tensor: DeviceTensor, name: str) -> DeviceTensor:
        """Name a leaf or a result within the block that traces it.

        A leaf with a name can get new contents for each run. Returns the tensor.
        """
        require_tensors("name", tensor)
        self._require_free(name)
        number = self.storages.view_of(tensor.buffer).storage
        if number not in self.storages.latest:
            self._leaf_of(number)
        index = self.storages.latest[number]
        storage = self.storages[number]
        require(
            self.storages.values[index].storage == number,
            f"name {name!r}: expected a leaf or a result, got memory that {self.nodes[index]} "
            "may write besides its result. Name a copy of it.",
        )
        require(
            self._is_op(index) or tensor.nbytes == storage.nbytes,
            f"name {name!r}: expected a tensor over all of its memory, as another one is to "
            f"take its place, got {tensor.nbytes} of {storage.nbytes} bytes; copy() it first",
        )
        self.nodes[index] = replace(self.nodes[index], name=name, shape=tensor.shape)
        self._names[name] = index
        if not self._is_op(index) and tensor.dtype is bool_:
            self.booleans.add(index)
        return tensor

    @property
    def n_ops(self) -> int:
        """Operations, not counting leaves."""
        return sum(node.op is not None for node in self.nodes)

    @property
    def slots(self) -> dict[str, ScalarSlot]:
        """The numbers that each run can change."""
        return {slot.name: slot for call in self.calls if call is not None for slot in call.slots}

    def order(self) -> list[int]:
        """Return the nodes, each after its inputs.

        Independent nodes keep the order of their addition.

        Raises `ArgumentValueError` that names the nodes: of a cycle, of an input that was never
        added, and of a value that is overwritten before it is read.
        """
        if self._order is None:
            found = ordered(self.nodes)
            for index in found:
                if self._is_op(index) and self.calls[index] is None:
                    self.calls[index] = self._describing.describe(self.nodes[index])
            if not self.is_recorded:
                require_fresh(self.nodes, self.storages.values, found)
            self._order = found
        return self._order

    @property
    def executor(self) -> DeviceExecutor:
        """Executor on the graph's device; `DeviceError` in an empty graph."""
        return self._describing.real

    def is_result(self, storage: int) -> bool:
        """Return whether an operation has written to a storage."""
        index = self.storages.latest.get(whole_number("is_result, storage", storage))
        return index is not None and self._is_op(index)

    def value_of(self, node: int) -> StorageView:
        """Return where a node's value lies, with the dtype that users see."""
        node = self._checked_node("value_of", node)
        view = self.storages.values[node]
        return view._replace(dtype=bool_) if node in self.booleans else view

    def _checked_node(self, name: str, node: int) -> int:
        """Return the number of a node with a value; the error for other nodes names `name`."""
        number = whole_number(f"{name}, node", node)
        require(
            number in self.storages.values,
            f"{name}, node: expected a node of the graph whose inputs were added, got {number} "
            f"of {len(self.nodes)} nodes",
        )
        return number

    # -- inside ----------------------------------------------------------------------------------

    def _use(self, device: Device) -> None:
        """Set the graph's device; `InvalidHandleError` when it has another."""
        if self._describer is None:
            real = DeviceExecutor.of(device)
            self._describer = Describer(real, self.nodes, self.storages, self.booleans)
        self._describer.require_here(device)

    @property
    def _describing(self) -> Describer:
        if self._describer is None:
            raise DeviceError("the graph has no leaf yet, which would say on which device it is")
        return self._describer

    def _append(self, node: Node) -> None:
        self.nodes.append(node)
        self.calls.append(None)
        if node.name is not None:
            self._names[node.name] = node.index
        self._order = None
        self._forget_plans()

    def _require_free(self, name: str | None) -> None:
        require(
            name != "stream",
            "name: expected another one: replay(stream=…) is the stream",
        )
        if name is not None and name in self._names:
            raise ArgumentValueError(f"the graph has a {self.nodes[self._names[name]]} already")

    def _is_op(self, index: int) -> bool:
        return self.nodes[index].op is not None

    def _tensor_at(self, node: int) -> DeviceTensor:
        buffer = self.storages.resolve(self.storages.values[node])
        tensor = DeviceTensor(buffer, Layout.contiguous(self.nodes[node].shape))
        if node not in self.booleans:
            return tensor
        return tensor._made(tensor._buffer, tensor._layout, bool_)

    def _forget_plans(self) -> None:
        """Called whenever the graph changes."""


def _as_tensor(
    buffer: DeviceBuffer | DeviceTensor, shape: int | Iterable[int] | None
) -> DeviceTensor:
    whole = _as_buffer(buffer)
    if not isinstance(whole, DeviceBuffer):
        raise ArgumentTypeError(
            f"add_leaf: expected a DeviceBuffer or a DeviceTensor, got {type(buffer).__name__}"
        )
    if shape is None and isinstance(buffer, DeviceTensor):
        shape = buffer.shape
    return DeviceTensor(whole, None if shape is None else Layout.contiguous(shape))


def _as_buffer(buffer: DeviceBuffer | DeviceTensor | None) -> DeviceBuffer | None:
    """The memory from the first element on."""
    if not isinstance(buffer, DeviceTensor):
        return buffer
    layout = buffer.layout
    require(
        layout.is_contiguous,
        "expected a contiguous tensor, as kernels write and leaves are read, got one of shape "
        f"{layout.shape} with strides {layout.strides}",
    )
    return buffer.buffer[layout.start_offset : layout.start_offset + layout.size]
