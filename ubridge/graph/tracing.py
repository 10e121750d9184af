"""`trace` records the operations on tensors within a block as a graph that can run again."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from ubridge.core.question import Question
from ubridge.device import recording
from ubridge.device.executor import DeviceExecutor
from ubridge.graph.calls import Call
from ubridge.graph.graph import ComputeGraph
from uhal import Device, DeviceBuffer
from uhal.device import DeviceLike
from uhal.errors import DeviceError


@contextmanager
def trace(device: DeviceLike | None = None) -> Iterator[ComputeGraph]:
    """Run a block and record its operations: `with ubridge.trace() as graph:`.

    Operations of this thread on tensors of the device, the current one unless given, run as always
    and become nodes of the graph. When the block ends, results that are still held keep their
    memory and are written again by each run; all others get memory the graph plans. Tensors from
    before the block and those made of host data are leaves: a run reads what is in them then.

    Copies to the host and launches of one's own kernels are not recorded. Raises `DeviceError` when
    the device is being traced already.
    """
    executor = DeviceExecutor.of(device)
    if recording.listened_to(executor.device):
        raise DeviceError(
            f"trace: operations on {executor.device!r} are being traced already, perhaps by "
            "another thread; one trace a device at a time"
        )
    graph = ComputeGraph(executor.device)
    with recording.listening(_Tracer(graph, executor.device)):
        yield graph
    graph.storages.settle()
    graph.is_recorded = True


class _Tracer(recording.Listener):
    """Makes nodes of operations."""

    def __init__(self, graph: ComputeGraph, device: Device) -> None:
        super().__init__(device)
        self._graph = graph

    def asked(
        self, question: Question, out: DeviceBuffer, is_new: bool, given: tuple[Any, ...]
    ) -> None:
        """Add a node; a buffer not seen yet is a leaf's."""
        count = len(question.operands)
        view_of = self._graph.storages.view_of
        operands = tuple(view_of(one) for one in given[:count])
        if is_new:
            self.allocated(out)
        self._graph.add_call(Call(question, operands, view_of(out), given[count:]))

    def allocated(self, buffer: DeviceBuffer) -> None:
        """Take a new result. Only what computes with it keeps it alive."""
        self._graph.storages.watch(buffer)


__all__ = ["trace"]
