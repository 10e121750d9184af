"""Hands operations of a graph to the device: a protocol with a method for each kind.

To count, time, print or replace launches, callers implement `KernelDispatch`, or derive from
`LaunchingDispatch`: all of its methods call `dispatch`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from time import perf_counter
from typing import Any, NamedTuple, Protocol

from ubridge.core.layout import Shape
from ubridge.core.operation import Op
from ubridge.core.question import Question
from ubridge.definitions.attention import ATTENTION, ROPE, ROPE_I, ROPE_THD
from ubridge.definitions.elementwise import ADD, COPY, MULTIPLY, SILU, SILU_MUL
from ubridge.definitions.products import MATMUL, QUANTIZED_MATVEC, QUANTIZED_PRODUCT
from ubridge.definitions.rows import RMS_NORM
from ubridge.device.executor import Enqueue, Executor
from ubridge.graph.calls import Call, with_values
from ubridge.graph.ops import Node, OpParams
from uhal import DeviceBuffer
from uhal.interop import StreamLike


class DispatchCall:
    """One operation, with the buffers it is to read and write."""

    # With texts, as `help` and `inspect.getdoc` find them.
    __slots__ = {
        "_enqueuing": "",
        "arguments": "The operands' buffers, then the numbers.",
        "call": "The operation with its operands' and its result's views and layouts.",
        "node": "The node of the graph: its operation, inputs and name.",
        "out": "The buffer that is written.",
        "stream": "The stream to enqueue it on; `None` is the device's default stream.",
    }

    def __init__(
        self,
        step: Step,
        arguments: tuple[Any, ...],
        enqueuing: Enqueue,
        stream: StreamLike | None,
    ) -> None:
        self.node = step.node
        self.call = step.call
        self.out = step.out
        self.arguments = arguments
        self.stream = stream
        self._enqueuing = enqueuing

    @property
    def inputs(self) -> list[DeviceBuffer]:
        """The buffers that are read, in the operation's order."""
        return list(self.arguments[: len(self.call.operands)])

    @property
    def shape(self) -> Shape:
        """The result's shape."""
        return self.node.shape

    @property
    def params(self) -> OpParams:
        """The node's parameters besides inputs."""
        return self.node.params

    def enqueue(self) -> None:
        """Launch the kernels of the operation."""
        self._enqueuing(self.stream, self.out, *self.arguments)


class KernelDispatch(Protocol):
    """Takes the operations of a graph, one call each, in order."""

    def dispatch_mul_mat(self, call: DispatchCall) -> None:
        """Take a product of matrices."""

    def dispatch_rms_norm(self, call: DispatchCall) -> None:
        """Take an RMS norm."""

    def dispatch_add(self, call: DispatchCall) -> None:
        """Take a sum of two tensors."""

    def dispatch_rope(self, call: DispatchCall) -> None:
        """Take a rotation by positions."""

    def dispatch_attention(self, call: DispatchCall) -> None:
        """Take a whole attention."""

    def dispatch_copy(self, call: DispatchCall) -> None:
        """Take a copy."""

    def dispatch_mul(self, call: DispatchCall) -> None:
        """Take a product of elements, with silu of the first or without."""

    def dispatch_silu(self, call: DispatchCall) -> None:
        """Take a silu."""

    def dispatch(self, call: DispatchCall) -> None:
        """Take any other operation."""


class LaunchingDispatch:
    """Enqueues every operation with the kernels of its device."""

    def dispatch(self, call: DispatchCall) -> None:
        """Enqueue it."""
        call.enqueue()

    def dispatch_mul_mat(self, call: DispatchCall) -> None:
        """Enqueue a product of matrices."""
        self.dispatch(call)

    def dispatch_rms_norm(self, call: DispatchCall) -> None:
        """Enqueue an RMS norm."""
        self.dispatch(call)

    def dispatch_add(self, call: DispatchCall) -> None:
        """Enqueue a sum."""
        self.dispatch(call)

    def dispatch_rope(self, call: DispatchCall) -> None:
        """Enqueue a rotation."""
        self.dispatch(call)

    def dispatch_attention(self, call: DispatchCall) -> None:
        """Enqueue an attention."""
        self.dispatch(call)

    def dispatch_copy(self, call: DispatchCall) -> None:
        """Enqueue a copy."""
        self.dispatch(call)

    def dispatch_mul(self, call: DispatchCall) -> None:
        """Enqueue a product of elements."""
        self.dispatch(call)

    def dispatch_silu(self, call: DispatchCall) -> None:
        """Enqueue a silu."""
        self.dispatch(call)


_METHODS: Mapping[Op, Callable[[KernelDispatch, DispatchCall], None]] = {
    MATMUL: lambda to, call: to.dispatch_mul_mat(call),
    QUANTIZED_MATVEC: lambda to, call: to.dispatch_mul_mat(call),
    QUANTIZED_PRODUCT: lambda to, call: to.dispatch_mul_mat(call),
    RMS_NORM: lambda to, call: to.dispatch_rms_norm(call),
    ADD: lambda to, call: to.dispatch_add(call),
    ROPE: lambda to, call: to.dispatch_rope(call),
    ROPE_I: lambda to, call: to.dispatch_rope(call),
    ROPE_THD: lambda to, call: to.dispatch_rope(call),
    ATTENTION: lambda to, call: to.dispatch_attention(call),
    COPY: lambda to, call: to.dispatch_copy(call),
    MULTIPLY: lambda to, call: to.dispatch_mul(call),
    SILU_MUL: lambda to, call: to.dispatch_mul(call),
    SILU: lambda to, call: to.dispatch_silu(call),
}
"""Operation to the method that takes it; `dispatch` takes the others."""


def dispatch_one(dispatcher: KernelDispatch, call: DispatchCall) -> None:
    """Hand an operation to the method for its kind."""
    op = call.node.op
    assert op is not None
    method = _METHODS.get(op)
    if method is None:
        dispatcher.dispatch(call)
    else:
        method(dispatcher, call)


# -- running -------------------------------------------------------------------------------------


class Step(NamedTuple):
    """An operation with memory for its operands."""

    node: Node
    call: Call
    question: Question
    """The question for the device, which must be answered by launches alone."""
    out: DeviceBuffer
    arguments: tuple[Any, ...]
    """The operands' buffers, then the numbers; slots are not replaced yet."""


class Runnable(Protocol):
    """The part of a graph that a run needs."""

    @property
    def executor(self) -> Executor:
        """The executor that enqueues the operations."""

    def prepared(self) -> list[Step]:
        """Return every operation with its buffers, in the order they run in."""

    def enqueuing(self) -> list[Enqueue]:
        """Return a function for each operation that enqueues it, in that order."""

    def checked_slots(self, given: Mapping[str, float]) -> dict[str, float]:
        """Return a value for every slot."""


@dataclass(frozen=True)
class GraphExecResult:
    """What one run of a graph did."""

    n_launches: int
    """Operations dispatched, one launch each on the host, ROCm and CUDA."""
    elapsed_us: float
    """Microseconds the host took to enqueue them; the device may still be at work."""


def execute_graph(
    graph: Runnable,
    dispatcher: KernelDispatch | None = None,
    /,
    *,
    stream: StreamLike | None = None,
    **slots: float,
) -> GraphExecResult:
    """Enqueue the operations of a graph in order, one dispatch each and none for leaves.

    `dispatcher` launches the device's kernels unless another is given. Numbers of the graph's slots
    are what they were declared with unless given here. Does not wait.
    """
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


__all__ = [
    "DispatchCall",
    "GraphExecResult",
    "KernelDispatch",
    "LaunchingDispatch",
    "Step",
    "execute_graph",
]
