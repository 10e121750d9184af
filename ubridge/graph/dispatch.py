"""Hands operations of a graph to the device: a protocol with a method for each kind.

To count, time, print or replace launches, callers implement `KernelDispatch`, or derive from
`LaunchingDispatch`: all of its methods call `dispatch`. An operation goes to the method named after
its function on tensors, such as `dispatch_softmax`, if there is one.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple, Protocol

from ubridge.core.layout import Shape
from ubridge.core.question import Question
from ubridge.definitions.elementwise import MULTIPLY, SILU_MUL
from ubridge.definitions.products import MATMUL, QUANTIZED_PRODUCT
from ubridge.device.ready import Enqueue
from ubridge.graph.calls import Call
from ubridge.graph.ops import Node, OpParams
from uhal import DeviceBuffer
from uhal.interop import StreamLike


class Step(NamedTuple):
    """An operation with memory for its operands."""

    node: Node
    call: Call
    question: Question
    """The question for the device; its answer must consist of launches."""
    out: DeviceBuffer
    arguments: tuple[Any, ...]
    """The operands' buffers, then the numbers; slots are not replaced yet."""


class DispatchCall:
    """One operation, with its input and output buffers."""

    # A dictionary, so that `help` and `inspect.getdoc` find the texts.
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
        """The node's parameters other than inputs."""
        return self.node.params

    def enqueue(self) -> None:
        """Launch the kernels of the operation."""
        self._enqueuing(self.stream, self.out, *self.arguments)


class KernelDispatch(Protocol):
    """Receives the operations of a graph, one call each, in order."""

    def dispatch(self, call: DispatchCall) -> None:
        """Take any operation without its own method."""

    def dispatch_mul_mat(self, call: DispatchCall) -> None:
        """Take a product of matrices."""
        self.dispatch(call)

    def dispatch_rms_norm(self, call: DispatchCall) -> None:
        """Take an RMS norm."""
        self.dispatch(call)

    def dispatch_add(self, call: DispatchCall) -> None:
        """Take a sum of two tensors."""
        self.dispatch(call)

    def dispatch_rope(self, call: DispatchCall) -> None:
        """Take a rotation by positions."""
        self.dispatch(call)

    def dispatch_attention(self, call: DispatchCall) -> None:
        """Take a whole attention."""
        self.dispatch(call)

    def dispatch_copy(self, call: DispatchCall) -> None:
        """Take a copy."""
        self.dispatch(call)

    def dispatch_mul(self, call: DispatchCall) -> None:
        """Take an elementwise product, with or without silu of the first operand."""
        self.dispatch(call)

    def dispatch_silu(self, call: DispatchCall) -> None:
        """Take a silu."""
        self.dispatch(call)


class LaunchingDispatch(KernelDispatch):
    """Enqueues every operation with the kernels of its device."""

    def dispatch(self, call: DispatchCall) -> None:
        """Enqueue it."""
        call.enqueue()


_NAMES: Mapping[str, str] = {
    **dict.fromkeys((MATMUL.called, QUANTIZED_PRODUCT.called), "mul_mat"),
    **dict.fromkeys((MULTIPLY.called, SILU_MUL.called), "mul"),
}
"""Functions on tensors whose method has the Rust original's name."""


def dispatch_one(dispatcher: KernelDispatch, call: DispatchCall) -> None:
    """Hand an operation to the method for its kind."""
    op = call.node.op
    assert op is not None
    name = _NAMES.get(op.called, op.called)
    getattr(dispatcher, f"dispatch_{name}", dispatcher.dispatch)(call)
