"""`GraphPlan`: a graph captured into a plan of the device, replayed with one native call."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from ubridge.core.closing import Closing
from ubridge.core.fits import require
from ubridge.core.process_bound import ProcessBound
from ubridge.graph.calls import with_values
from ubridge.graph.dry_run import DryRun, naming
from ubridge.graph.ops import Node
from ubridge.graph.running import RunnableGraph, execute_graph
from ubridge.ops.strided import bytes_of_booleans
from ubridge.tensor import DeviceTensor
from uhal import DeviceBuffer, Plan, Stream
from uhal.dtypes import bool_
from uhal.errors import (
    ArgumentTypeError,
    ArgumentValueError,
    DeviceError,
    NotFoundError,
)
from uhal.habits import Elsewhere
from uhal.interop import StreamLike


@dataclass(frozen=True)
class Verification:
    """Result of `GraphPlan.verify`."""

    differing: tuple[Node, ...]
    """The nodes with memory that differed between the replay and the run, in order."""
    compared_bytes: int

    def __bool__(self) -> bool:
        """Whether all bits were the same."""
        return not self.differing


class GraphPlan(ProcessBound, Closing):
    """A graph ready to be replayed on a device. A context manager; any thread may replay it.

    The plan holds the graph and its memory until the plan is closed. Replays never overlap: they
    use the graph's one arena.
    """

    _instead = "Send the graph as a file; instantiate() it there."
    launch = Elsewhere("launch", "Write plan.replay().")
    run = Elsewhere("run", "Write plan.replay().")

    def __init__(self, graph: RunnableGraph, stream: Stream) -> None:
        """Made by `ComputeGraph.instantiate`."""
        if not isinstance(stream, Stream):
            raise ArgumentTypeError(
                f"instantiate: expected a uhal.Stream, got {type(stream).__name__}. "
                "Make one, uhal.Stream()."
            )
        self.graph = graph
        steps = graph.prepared()
        executor = graph.executor
        dry_run = DryRun(executor, steps)
        self.launches = dry_run.launches
        """Kernel launches of each operation, by node."""
        self._numbers = graph.slots
        self._leaves = {
            node.name: node for node in graph.nodes if node.op is None and node.name is not None
        }
        self._memory = {name: graph.tensor(node.index) for name, node in self._leaves.items()}
        # Only leaves that launches read: a slot of another leaf would have no effect.
        self._followed = {
            name: tensor.buffer
            for name, tensor in self._memory.items()
            if dry_run.reads(tensor.buffer)
        }
        with (
            executor.layouts.capture(),
            executor.constants.capture(),
            stream.capture(f"graph of {graph.n_ops} operations") as plan,
        ):
            values = {name: plan.slot(name, slot.value) for name, slot in self._numbers.items()}
            for name, buffer in self._followed.items():
                plan.slot(name, buffer)
            for step, enqueue in zip(steps, dry_run.enqueuing, strict=True):
                arguments = step.arguments
                if step.call.slots:
                    arguments = with_values(arguments, values)
                with naming(step.node):
                    enqueue(stream, step.out, *arguments)
        self._plan: Plan = plan
        self._stream = stream

    @property
    def plan(self) -> Plan:
        """The plan of the device: its kernels and slots."""
        return self._plan

    def replay(self, stream: StreamLike | None = None, **given: Any) -> None:
        """Enqueue the whole graph with one native call; does not wait.

        Keywords give slots new numbers, and named leaves new tensors of the same shape and dtype.
        Kernels then read these tensors instead of the leaves; an array is copied into the leaf
        first. A given value stays until the next value is given. Raises the errors of
        `ComputeGraph.checked_slots`, and `ArgumentValueError` or `ArgumentTypeError` for tensors of
        another shape or dtype, or for a leaf that no launch reads.
        """
        numbers = {name: value for name, value in given.items() if name not in self._leaves}
        slots: dict[str, Any] = self._checked(numbers)
        at = self._stream if stream is None else stream
        for name, value in given.items():
            if name in self._leaves:
                self._give(name, value, at, slots)
        self._plan.replay(stream, **slots)

    def verify(self, **given: Any) -> Verification:
        """Run the graph operation by operation, replay it on the same values, and compare bits.

        All memory that the graph writes outside its arena is compared, and left as the replay
        leaves it. Waits. Arrays and tensors are copied into named leaves.
        """
        numbers = {name: value for name, value in given.items() if name not in self._leaves}
        for name, value in given.items():
            if name in self._leaves:
                self._memory[name].copy_from(_as_tensor(value, self._memory[name]))
        graph = self.graph
        written = self._written()
        before = {number: _bits(buffer) for number, (_, buffer) in written.items()}
        execute_graph(graph, stream=self._stream, **numbers)
        self._stream.synchronize()
        eager = {number: _bits(buffer) for number, (_, buffer) in written.items()}
        for number, (_, buffer) in written.items():
            buffer.copy_from(before[number])
        slots: dict[str, Any] = dict(self._followed)
        slots.update(graph.checked_slots(numbers))
        self._plan.replay(**slots)
        self._stream.synchronize()
        differing = [
            node
            for number, (node, buffer) in written.items()
            if not np.array_equal(_bits(buffer), eager[number])
        ]
        return Verification(
            tuple(sorted(differing, key=lambda node: node.index)),
            sum(bits.nbytes for bits in eager.values()),
        )

    def close(self) -> None:
        """Wait for the last replay and release everything held.

        Closing twice is fine.
        """
        self._plan.close()

    def __repr__(self) -> str:
        return f"<GraphPlan of {self.graph.n_ops} operations: {self._plan!r}>"

    # -- inside ----------------------------------------------------------------------------------

    def _checked(self, numbers: Mapping[str, float]) -> dict[str, float]:
        """The given slots, with values checked against their ranges."""
        known = self._numbers
        for name in numbers:
            if name not in known:
                names = ", ".join((*known, *self._leaves)) or "none"
                raise NotFoundError(f"the graph has no slot or leaf {name!r}; it has {names}")
        return {name: known[name].checked(value) for name, value in numbers.items()}

    def _give(self, name: str, value: Any, stream: StreamLike, slots: dict[str, Any]) -> None:
        """Record the memory to read instead of a leaf, or copy an array into the leaf."""
        own = self._memory[name]
        if not isinstance(value, DeviceTensor):
            array = _fitting(name, np.asarray(value), own)
            own.buffer.copy_from_async(array.ravel().view(own.buffer.dtype.dtype), stream)
            if name in self._followed:
                slots[name] = own.buffer
            return
        if value.shape != own.shape or value.dtype is not own.dtype:
            raise _unfit(name, own, value.shape, value.dtype)
        require(
            value.is_contiguous,
            f"leaf {name!r}: expected a contiguous tensor, as the kernels were given; copy() "
            "makes one",
        )
        require(
            name in self._followed,
            f"leaf {name!r}: expected an array, which is copied into it, got a tensor; no "
            "launch of the plan reads the leaf, so none could read the tensor instead",
        )
        start = value.layout.start_offset
        slots[name] = value.buffer[start : start + value.size]

    def _written(self) -> dict[int, tuple[Node, DeviceBuffer]]:
        """The storages outside the arena that a run writes, each with its last writer."""
        found: dict[int, tuple[Node, DeviceBuffer]] = {}
        for step in self.graph.prepared():
            for view in step.call.writes:
                storage = self.graph.storages[view.storage]
                if not storage.is_planned:
                    found[view.storage] = step.node, storage.bytes
        return found


def _bits(buffer: DeviceBuffer) -> npt.NDArray[np.uint8]:
    return buffer.to_numpy()


def _as_tensor(value: Any, like: DeviceTensor) -> DeviceTensor:
    if isinstance(value, DeviceTensor):
        return value
    return DeviceTensor.from_numpy(value, like.dtype, device=like.device)


def _fitting(name: str, array: npt.NDArray[Any], own: DeviceTensor) -> npt.NDArray[Any]:
    if array.shape != own.shape or array.dtype != own.dtype.dtype:
        raise _unfit(name, own, array.shape, array.dtype)
    return np.ascontiguousarray(bytes_of_booleans(array) if own.dtype is bool_ else array)


def _unfit(name: str, own: DeviceTensor, shape: object, dtype: object) -> DeviceError:
    kind = ArgumentTypeError if dtype not in (own.dtype, own.dtype.dtype) else ArgumentValueError
    return kind(
        f"leaf {name!r}: expected shape {tuple(own.shape)} of {own.dtype}, got {shape} of {dtype}"
    )
