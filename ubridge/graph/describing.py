"""Describes an operation: its function is called on tensors that compute nothing.

So the graph has the function's own checks and shapes, and enqueues the same launches.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace
from typing import Any

from ubridge.core.fits import require
from ubridge.core.layout import Layout
from ubridge.core.product import MatmulChoice
from ubridge.core.question import Question
from ubridge.core.storage_view import Description, StorageView
from ubridge.device.executor import DeviceExecutor, Executor
from ubridge.device.ready import Enqueue
from ubridge.device.tensor_data import make
from ubridge.graph.calls import Call
from ubridge.graph.ops import Node, compute
from ubridge.graph.storage import Storages
from ubridge.quantized import QuantizedWeight
from ubridge.tensor import DeviceTensor
from uhal import Device, DType
from uhal.dtypes import bool_
from uhal.errors import ArgumentTypeError, ArgumentValueError, DeviceError, InvalidHandleError


class Describer(Executor):
    """Describes the nodes of one graph: an executor that records questions and enqueues nothing.

    Functions on its tensors check their operands; their results are descriptions.
    """

    def __init__(
        self,
        real: DeviceExecutor,
        nodes: Sequence[Node],
        storages: Storages,
        booleans: Collection[int],
    ) -> None:
        """`booleans` are the leaves that hold booleans, as u8."""
        self.real = real
        self.device = real.device
        self.constants = real.constants
        self.remembered = None
        self._nodes = nodes
        self._storages = storages
        self._booleans = booleans
        self._calls: list[Call] = []

    def enqueuing(self, question: Question) -> Enqueue:
        """Return a function that records the question and describes its result."""

        def note(stream: object, out: Any, *given: Any) -> Any:
            dtype, layout = question.result
            if out is None:
                out = self.allocate(layout.size, dtype)
            count = len(question.operands)
            views = tuple(self._storages.view_of(one) for one in given[:count])
            self._calls.append(Call(question, views, self._storages.view_of(out), given[count:]))
            return out

        return note

    def allocate(self, size: int, dtype: DType, stream: object = None) -> Any:
        """Describe memory for a result."""
        number = self._storages.add(size * dtype.itemsize)
        return Description(StorageView(number, 0, size, dtype), self.device)

    def explain(self, question: Question) -> MatmulChoice:
        """Return the kernel for a question on the device."""
        return self.real.explain(question)

    def require_here(self, device: Device) -> None:
        """Raise `InvalidHandleError` for another device than the graph's."""
        if device != self.device:
            raise InvalidHandleError(
                f"expected a buffer on {self.device!r}, like the graph's other buffers, got one on "
                f"{device!r}"
            )

    def describe(self, node: Node) -> Call:
        """Return the call of a node whose inputs are known, and record its result's memory.

        Raises the operation's errors for tensors, with the node named.
        """
        assert node.op is not None
        calls = self._calls
        calls.clear()
        try:
            result = compute(node.op, self._operands(node), node.params)
        except (DeviceError, IndexError) as error:
            raise type(error)(f"{node}: {error}") from error
        except TypeError as error:
            # The function takes no such operand or option.
            raise ArgumentTypeError(f"{node}: {error}") from error
        if len(calls) != 1:
            made = ", ".join(call.op.name for call in calls) or "nothing"
            raise ArgumentValueError(
                f"{node}: expected one launch, got {len(calls)} ({made}); what dtypes and layouts "
                "need besides are nodes of their own: Astype, Copy"
            )
        require(
            result.shape == node.shape,
            f"{node}: expected the shape {node.shape} it was added with, but its inputs give "
            f"{result.shape}",
        )
        call = self._with_output(node, calls[0])
        if self._storages.conflict(call) is not None:
            raise ArgumentValueError(
                f"{node}, out: lies in the memory of an input, which would be overwritten "
                "while it is read"
            )
        self._storages.values[node.index] = call.written
        return call

    def _operands(self, node: Node) -> list[DeviceTensor | QuantizedWeight]:
        """The inputs of a node and the graph's constants, over this executor."""
        params = node.params
        found: list[DeviceTensor | QuantizedWeight] = []
        for one in node.inputs:
            view = self._storages.values[one]
            buffer: Any = Description(view, self.device)
            layout = Layout.contiguous(self._nodes[one].shape)
            dtype = bool_ if one in self._booleans else view.dtype
            found.append(make(DeviceTensor, buffer, layout, dtype, self))
        for constant in (params.weight, params.gamma, params.beta):
            if constant is not None:
                self.require_here(constant.device)
                if isinstance(constant, DeviceTensor):
                    constant = constant._described_by(self)
                found.append(constant)
        return found

    def _with_output(self, node: Node, call: Call) -> Call:
        """The call with its result in the node's memory."""
        found = call.written
        wanted = self._storages.wanted.pop(node.index, None)
        if wanted is None:
            return call
        require(
            wanted.dtype is found.dtype and wanted.size >= found.size,
            f"{node}, out: expected at least {found.size} elements of {found.dtype}, got "
            f"{wanted.size} of {wanted.dtype}",
        )
        view = self._storages.view_of(wanted)._replace(size=found.size)
        if all(self._storages.values[one].storage != found.storage for one in node.inputs):
            return replace(call, written=view)
        require(
            view == found,
            f"{node}, out: the operation changes its input in place; expected None or that "
            "input's memory",
        )
        return call
