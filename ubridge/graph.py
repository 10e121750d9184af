"""`ComputeGraph`: operations described once, checked when described, run as often as wanted.

A graph is leaves, which are tensors in memory, and operations on them and on each other. It is
built node by node with `add_leaf` and `add_op`, or recorded by `ubridge.trace()`. `execute_graph`
runs it operation by operation through a `KernelDispatch` that can be replaced.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from time import perf_counter
from typing import Any, NamedTuple

import numpy as np

from ubridge.executor import DeviceExecutor
from ubridge.graph_calls import Call, Place, ScalarSlot, mapped, with_values
from ubridge.graph_describing import Describer
from ubridge.graph_dispatch import DispatchCall, KernelDispatch, LaunchingDispatch, dispatch_one
from ubridge.graph_memory import Lifetime, MemoryPlan, plan_memory
from ubridge.graph_node import Node
from ubridge.graph_ops import OpParams, TensorOp, table_op
from ubridge.graph_order import ordered, require_fresh
from ubridge.layout import Layout, Shape
from ubridge.op_table import Op
from ubridge.tensor import DeviceTensor
from uhal import Device, DeviceBuffer, as_dtype
from uhal.dtypes import DTypeLike, u8
from uhal.errors import (
    ArgumentTypeError,
    ArgumentValueError,
    NotFoundError,
)
from uhal.interop import StreamLike


class Step(NamedTuple):
    """An operation that is ready to be enqueued."""

    node: Node
    call: Call
    arguments: tuple[Any, ...]
    """Those of the call, with buffers for places; slots are still slots."""


@dataclass(frozen=True)
class GraphExecResult:
    """What one run of a graph was."""

    n_launches: int
    """Operations dispatched, one launch each on the host, ROCm and CUDA."""
    elapsed_us: float
    """Microseconds the host took to enqueue them; the device may still be at work."""


class ComputeGraph:
    """Operations on tensors of one device. Not thread-safe while it is being built.

    It holds the buffers and tensors it was given. What no buffer was given for lies in one arena
    that the graph owns, where memory is used again as soon as its last reader is enqueued.
    """

    def __init__(self, device: Device | None = None) -> None:
        """Make an empty graph; without a device the first leaf says on which it is."""
        self.nodes: list[Node] = []
        self._calls: list[Call | None] = []
        self._describer = Describer(self.nodes)
        self.storages = self._describer.storages
        """The memory of every node."""
        if device is not None:
            self._describer.use(device)
        self._order: list[int] | None = None
        self._memory: MemoryPlan | None = None
        self._program: list[Step] | None = None
        self._names: dict[str, int] = {}
        self.is_recorded = False
        """Whether its order is that of a trace, in which nothing reads what is overwritten."""

    # -- building --------------------------------------------------------------------------------

    def add_leaf(
        self,
        buffer: DeviceBuffer | DeviceTensor,
        shape: int | Iterable[int] | None = None,
        *,
        name: str | None = None,
    ) -> int:
        """Add a tensor in memory, contiguous from the buffer's start, and return its node.

        Raises `ArgumentValueError` when the shape reaches past the buffer or the name is taken, and
        `InvalidHandleError` for a buffer of another device than the graph's.
        """
        tensor = _as_tensor(buffer, shape)
        self._describer.use(tensor.device)
        self._require_free(name)
        place = self.storages.place_of(tensor.buffer)
        node = Node(len(self.nodes), None, tensor.shape, (), OpParams(), name)
        self._append(node)
        self.storages.values[node.index] = place._replace(size=tensor.size)
        self.storages.latest.setdefault(place.storage, node.index)
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

        The result of `shape` goes to `out`, or to memory the graph plans when that is `None`. An
        operation that changes its first input in place (scatter, index_add, fill) takes no other
        `out`. Inputs may be nodes that are yet to be added; shapes and dtypes are checked as soon
        as all are there. Raises what the operation raises for tensors, with the node named, and
        `ArgumentValueError` when the result has another shape.
        """
        params = params or OpParams()
        self._require_free(name)
        index = len(self.nodes)
        kind = table_op(op, len(inputs), params)
        wrong = [one for one in inputs if not isinstance(one, int) or one < 0 or one == index]
        if wrong:
            raise ArgumentValueError(
                f"node {index} ({kind.name}): expected other nodes' numbers as inputs, got "
                f"{wrong[0]!r}"
            )
        node = Node(index, kind, Shape(shape), tuple(inputs), params, name)
        self._append(node)
        self.storages.wanted[index] = _as_buffer(out)
        if all(one in self.storages.values for one in inputs):
            try:
                self._calls[index] = self._describer.describe(node)
            except Exception:
                self._remove_last()
                raise
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
        """Add a tensor of one number that is given anew for each run, and return its node.

        `value` is what it is when none is given. `low` and `high`, both included, are the range it
        is checked for; by default that of the dtype.
        """
        self._require_free(name)
        element = as_dtype(dtype)
        # The range of floats has no ends.
        least = -math.inf if element.min is None else element.min
        most = math.inf if element.max is None else element.max
        slot = ScalarSlot(
            name, value, element, least if low is None else low, most if high is None else high
        )
        number = np.array([slot.checked(value)]).astype(element.dtype)
        device = None if self._describer.is_empty else self.executor.device
        buffer = DeviceBuffer.from_numpy(number, device=device)
        self._describer.use(buffer.device)
        self.executor.note_range(buffer, slot.low, slot.high)
        call = Call("fill", (self.storages.place_of(buffer), Layout.contiguous(1), slot))
        return self.add_call(call, name)

    def scalar(
        self, name: str, value: float, dtype: DTypeLike = "i64", **bounds: Any
    ) -> DeviceTensor:
        """Return the tensor of a new `add_scalar`, for use within a trace."""
        return self._tensor_at(self.add_scalar(name, value, dtype, **bounds))

    def add_call(self, call: Call, name: str | None = None) -> int:
        """Add what an operation enqueues, after all nodes there are; return its node."""
        written = call.written
        latest = self.storages.latest
        inputs = []
        for place in call.places:
            number = place.storage
            if number not in latest and (place is not written or self._changes(call)):
                self._leaf_of(number)
            if number in latest and latest[number] not in inputs:
                inputs.append(latest[number])
        node = Node(len(self.nodes), call.op, call.shape, tuple(inputs), OpParams(), name)
        self._append(node)
        self._calls[node.index] = call
        self.storages.values[node.index] = written
        latest[written.storage] = node.index
        return node.index

    def _changes(self, call: Call) -> bool:
        """Whether something of what was where the result goes is there afterwards."""
        written = call.written
        covers = written.nbytes == self.storages[written.storage].nbytes
        return call.is_in_place and not (call.method == "fill" and covers)

    def _leaf_of(self, number: int) -> None:
        """Add a leaf of a storage that a recorded call reads first."""
        root = self.storages[number].buffer
        if root is not None:
            self.add_leaf(root)

    def name(self, tensor: DeviceTensor, name: str) -> DeviceTensor:
        """Name the leaf or the result a tensor is, while the block that traces it lasts.

        What is in a leaf that has a name can be given anew for each run. Returns the tensor.
        """
        self._require_free(name)
        number = self.storages.place_of(tensor.buffer).storage
        if number not in self.storages.latest:
            self._leaf_of(number)
        index = self.storages.latest[number]
        self.nodes[index] = replace(self.nodes[index], name=name, shape=tensor.shape)
        self._names[name] = index
        return tensor

    @property
    def n_ops(self) -> int:
        """Operations, not counting leaves."""
        return sum(node.op is not None for node in self.nodes)

    @property
    def slots(self) -> dict[str, ScalarSlot]:
        """The numbers that can be given anew for each run."""
        return {slot.name: slot for call in self._calls if call is not None for slot in call.slots}

    def order(self) -> list[int]:
        """Return the nodes so that each comes after its inputs, as added where that is possible.

        Raises `ArgumentValueError` that names the nodes: of a cycle, of an input that was never
        added, and of a value that is overwritten before it is read.
        """
        if self._order is None:
            found = ordered(self.nodes)
            for index in found:
                if self._is_op(index) and self._calls[index] is None:
                    self._calls[index] = self._describer.describe(self.nodes[index])
            if not self.is_recorded:
                require_fresh(self.nodes, self.storages.values, found)
            self._order = found
        return self._order

    # -- results ---------------------------------------------------------------------------------

    def tensor(self, node: int) -> DeviceTensor:
        """Return a leaf or a result as a tensor over the memory it is in.

        Of an operation without `out` that another one reads, that memory is used again by later
        ones: `keep` it first.
        """
        self.prepared()
        place = self.storages.values[node]
        if self.storages[place.storage].is_planned:
            raise ArgumentValueError(
                f"{self.nodes[node]}: its memory is used again once it is read; keep({node}) "
                "before the graph is run"
            )
        return self._tensor_at(node)

    def _tensor_at(self, node: int) -> DeviceTensor:
        buffer = self.storages.resolve(self.storages.values[node])
        return DeviceTensor(buffer, Layout.contiguous(self.nodes[node].shape))

    def keep(self, node: int) -> int:
        """Give a result memory of its own, so that it can be read after a run; return the node."""
        self.order()
        self.storages[self.storages.values[node].storage].is_kept = True
        self._forget_program()
        return node

    @property
    def memory(self) -> MemoryPlan:
        """Where results lie that no buffer was given for, and how much that saves."""
        self._plan()
        assert self._memory is not None
        return self._memory

    @property
    def executor(self) -> DeviceExecutor:
        """What launches on the graph's device; `DeviceError` in an empty graph."""
        return self._describer.executor.real

    # -- running ---------------------------------------------------------------------------------

    def prepared(self) -> list[Step]:
        """Return every operation with its buffers, in the order they run in."""
        if self._program is None:
            self._plan()
            assert self._memory is not None
            if self._memory.peak_bytes:
                arena = self._allocated(self._memory.peak_bytes)
                for number, offset in self._memory.offsets.items():
                    storage = self.storages[number]
                    storage.attach(arena[offset : offset + storage.nbytes])
            self._program = [self._step(index) for index in self.order() if self._is_op(index)]
        return self._program

    def _step(self, index: int) -> Step:
        call = self._calls[index]
        assert call is not None
        resolve = self.storages.resolve
        arguments = mapped(
            call.arguments, lambda one: resolve(one) if isinstance(one, Place) else one
        )
        return Step(self.nodes[index], call, arguments)

    def checked_slots(self, given: Mapping[str, float]) -> dict[str, float]:
        """Return a value for every slot: what was given, checked, or its own.

        Raises `NotFoundError` for a name that is none, `ArgumentTypeError` and
        `ArgumentValueError` for values of another kind or out of the slot's range.
        """
        slots = self.slots
        for name in given:
            if name not in slots:
                raise NotFoundError(
                    f"the graph has no slot {name!r}; it has {', '.join(slots) or 'none'}"
                )
        return {name: slot.checked(given.get(name, slot.value)) for name, slot in slots.items()}

    # -- inside ----------------------------------------------------------------------------------

    def _append(self, node: Node) -> None:
        self.nodes.append(node)
        self._calls.append(None)
        if node.name is not None:
            self._names[node.name] = node.index
        self._order = None
        self._forget_program()

    def _remove_last(self) -> None:
        node = self.nodes.pop()
        self._calls.pop()
        self.storages.wanted.pop(node.index, None)
        if node.name is not None:
            del self._names[node.name]

    def _forget_program(self) -> None:
        self._memory = None
        self._program = None

    def _require_free(self, name: str | None) -> None:
        if name is not None and name in self._names:
            raise ArgumentValueError(f"the graph has a {self.nodes[self._names[name]]} already")

    def _is_op(self, index: int) -> bool:
        return self.nodes[index].op is not None

    def _allocated(self, nbytes: int) -> DeviceBuffer:
        return DeviceBuffer.uninitialized(nbytes, u8, device=self.executor.device)

    def _plan(self) -> None:
        """Find lifetimes of results without memory; those nobody reads get their own."""
        if self._memory is not None:
            return
        order = [index for index in self.order() if self._is_op(index)]
        used: dict[int, list[int]] = {}
        for step, index in enumerate(order):
            call = self._calls[index]
            assert call is not None
            written = call.written
            for place in call.places:
                storage = self.storages[place.storage]
                if storage.buffer is None:
                    first, _, _ = used.setdefault(place.storage, [step, step, 0])
                    used[place.storage] = [first, step, int(place is not written)]
        for number, (_, _, is_read) in used.items():
            storage = self.storages[number]
            if storage.is_kept or not is_read:
                storage.is_kept = True
                storage.buffer = self._allocated(storage.nbytes)
        self._memory = plan_memory(
            Lifetime(number, self.storages[number].nbytes, first, last)
            for number, (first, last, _) in used.items()
            if self.storages[number].is_planned
        )


def _as_tensor(
    buffer: DeviceBuffer | DeviceTensor, shape: int | Iterable[int] | None
) -> DeviceTensor:
    if isinstance(buffer, DeviceTensor):
        whole = _as_buffer(buffer)
        assert whole is not None
        shape = buffer.shape if shape is None else shape
        buffer = whole
    if not isinstance(buffer, DeviceBuffer):
        raise ArgumentTypeError(
            f"add_leaf: expected a DeviceBuffer or a DeviceTensor, got {type(buffer).__name__}"
        )
    return DeviceTensor(buffer, None if shape is None else Layout.contiguous(shape))


def _as_buffer(buffer: DeviceBuffer | DeviceTensor | None) -> DeviceBuffer | None:
    """The memory from the first element on."""
    if not isinstance(buffer, DeviceTensor):
        return buffer
    layout = buffer.layout
    if not layout.is_contiguous:
        raise ArgumentValueError(
            "expected a contiguous tensor, as kernels write and leaves are read, got one of shape "
            f"{layout.shape} with strides {layout.strides}"
        )
    return buffer.buffer[layout.start_offset : layout.start_offset + layout.size]


def execute_graph(
    graph: ComputeGraph,
    dispatcher: KernelDispatch | None = None,
    *,
    stream: StreamLike | None = None,
    **slots: float,
) -> GraphExecResult:
    """Enqueue the operations of a graph in order, one dispatch each and none for leaves.

    `dispatcher` launches the device's kernels unless another is given. Numbers of the graph's slots
    are what they were declared with unless given here. Does not wait.
    """
    steps = graph.prepared()
    dispatch: KernelDispatch = LaunchingDispatch() if dispatcher is None else dispatcher
    given = graph.checked_slots(slots)
    executor = graph.executor if steps else None
    start = perf_counter()
    for node, call, arguments in steps:
        if call.slots:
            arguments = with_values(arguments, given)
        assert executor is not None
        dispatch_one(dispatch, DispatchCall(node, call, arguments, executor, stream))
    return GraphExecResult(len(steps), (perf_counter() - start) * 1e6)


__all__ = ["ComputeGraph", "GraphExecResult", "Node", "Step", "execute_graph"]
