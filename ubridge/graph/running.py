"""A graph that can run: memory is planned, and operations have buffers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from time import perf_counter

from ubridge.core.fits import require
from ubridge.core.storage_view import StorageView
from ubridge.device.ready import Enqueue
from ubridge.graph.building import GraphBuilder
from ubridge.graph.calls import with_values
from ubridge.graph.dispatch import DispatchCall, KernelDispatch, Step, dispatch_one
from ubridge.graph.memory import Lifetime, MemoryPlan, plan_memory
from ubridge.tensor import DeviceTensor
from uhal import DeviceBuffer
from uhal.device import DeviceLike
from uhal.dtypes import u8
from uhal.errors import ArgumentTypeError, NotFoundError
from uhal.interop import StreamLike


class RunnableGraph(GraphBuilder):
    """Operations with memory. `ComputeGraph` captures, prints and writes such graphs."""

    def __init__(self, device: DeviceLike | None = None) -> None:
        """Make an empty graph, by default on the first leaf's device."""
        super().__init__(device)
        self._memory: MemoryPlan | None = None
        self._program: list[Step] | None = None
        self._enqueuing: list[Enqueue] | None = None

    # -- results ---------------------------------------------------------------------------------

    def tensor(self, node: int) -> DeviceTensor:
        """Return a leaf or a result as a tensor over its memory.

        The memory of an intermediate result without `out` is reused by later operations: call
        `keep` for the result first.
        """
        self.prepared()
        node = self._checked_node("tensor", node)
        view = self.storages.values[node]
        require(
            not self.storages[view.storage].is_planned,
            f"{self.nodes[node]}: its memory is used again once it is read; keep({node}) "
            "before the graph is run",
        )
        return self._tensor_at(node)

    def keep(self, node: int) -> int:
        """Give a result its own memory; return the node."""
        self.order()
        node = self._checked_node("keep", node)
        self.storages[self.storages.values[node].storage].is_kept = True
        self._forget_plans()
        return node

    @property
    def memory(self) -> MemoryPlan:
        """The layout of results without a buffer, and the memory it saves."""
        self._plan()
        assert self._memory is not None
        return self._memory

    # -- running ---------------------------------------------------------------------------------

    def prepared(self) -> list[Step]:
        """Return every operation with its buffers, in the order of execution."""
        if self._program is None:
            self._plan()
            assert self._memory is not None
            if self._memory.peak_bytes:
                arena = self._allocated(self._memory.peak_bytes)
                for number, offset in self._memory.offsets.items():
                    storage = self.storages[number]
                    storage.attach(arena[offset : offset + storage.nbytes])
            self._program = list(self._steps())
            for step in self._program:
                for slot in step.call.slots:
                    self.executor.note_range(step.out, slot.low, slot.high)
        return self._program

    def _steps(self) -> Iterator[Step]:
        found: dict[StorageView, DeviceBuffer] = {}

        def resolved(one: StorageView) -> DeviceBuffer:
            buffer = found.get(one)
            if buffer is None:
                buffer = found[one] = self.storages.resolve(one)
            return buffer

        for index in self.order():
            call = self.calls[index]
            if call is not None:
                given = (*(resolved(one) for one in call.operands), *call.numbers)
                question = call.question.for_capture()
                yield Step(self.nodes[index], call, question, resolved(call.written), given)

    def enqueuing(self) -> list[Enqueue]:
        """Return a function for each operation, which enqueues it."""
        steps = self.prepared()
        if self._enqueuing is None:
            self._enqueuing = [self.executor.enqueuing(step.question) for step in steps]
        return self._enqueuing

    def checked_slots(self, given: Mapping[str, float]) -> dict[str, float]:
        """Return each slot's value: given and checked, or declared.

        Raises `NotFoundError` for an unknown name, `ArgumentTypeError` and `ArgumentValueError` for
        values of another kind or out of the slot's range.
        """
        slots = self.slots
        for name in given:
            if name not in slots:
                raise NotFoundError(
                    f"the graph has no slot {name!r}; it has {', '.join(slots) or 'none'}"
                )
        return {name: slot.checked(given.get(name, slot.value)) for name, slot in slots.items()}

    # -- inside ----------------------------------------------------------------------------------

    def _forget_plans(self) -> None:
        self._memory = None
        self._program = None
        self._enqueuing = None

    def _allocated(self, nbytes: int) -> DeviceBuffer:
        return DeviceBuffer.uninitialized(nbytes, u8, device=self.executor.device)

    def _plan(self) -> None:
        """Find lifetimes of results without memory; unread results get their own memory."""
        if self._memory is not None:
            return
        order = [index for index in self.order() if self._is_op(index)]
        used: dict[int, list[int]] = {}
        for step, index in enumerate(order):
            call = self.calls[index]
            assert call is not None
            for is_read, views in ((1, call.operands), (0, (call.written,))):
                for view in views:
                    if self.storages[view.storage].buffer is None:
                        first, _, _ = used.setdefault(view.storage, [step, step, 0])
                        used[view.storage] = [first, step, is_read]
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


@dataclass(frozen=True)
class GraphExecResult:
    """Report of one run of a graph."""

    n_launches: int
    """Operations dispatched, one launch each on the host, ROCm and CUDA."""
    elapsed_us: float
    """Microseconds the host took to enqueue them; the device may still be at work."""


def execute_graph(
    graph: RunnableGraph,
    dispatcher: KernelDispatch | None = None,
    /,
    *,
    stream: StreamLike | None = None,
    **slots: float,
) -> GraphExecResult:
    """Enqueue the operations of a graph in order.

    Each operation is one dispatch; leaves have none.

    `dispatcher` launches the device's kernels unless another is given. Numbers of the graph's slots
    have their declared values unless given here. Does not wait.
    """
    if not isinstance(graph, RunnableGraph):
        raise ArgumentTypeError(
            f"execute_graph: expected a ComputeGraph, got {type(graph).__name__}. "
            "Record one: with ubridge.trace() as graph."
        )
    if dispatcher is not None and not hasattr(dispatcher, "dispatch"):
        raise ArgumentTypeError(
            f"execute_graph: expected a KernelDispatch, got {type(dispatcher).__name__}. "
            "Leaves of a graph take new contents from a plan, plan.replay(x=tensor)."
        )
    steps = graph.prepared()
    ready = graph.enqueuing()
    given = graph.checked_slots(slots)
    start = perf_counter()
    for step, enqueue in zip(steps, ready, strict=True):
        arguments = step.arguments
        if step.call.slots:
            arguments = with_values(arguments, given)
        if dispatcher is None:
            enqueue(stream, step.out, *arguments)
        else:
            dispatch_one(dispatcher, DispatchCall(step, arguments, enqueue, stream))
    return GraphExecResult(len(steps), (perf_counter() - start) * 1e6)
