"""`trace`: what tensors compute within a block, as a graph that computes it again."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from ubridge.device.executor import DeviceExecutor
from ubridge.graph.calls import Call, Place, recorded
from ubridge.graph.graph import ComputeGraph
from uhal import Device, DeviceBuffer


@contextmanager
def trace(device: Device | None = None) -> Iterator[ComputeGraph]:
    """Compute what is in the block, and record it: `with ubridge.trace() as graph:`.

    Operations of this thread on tensors of the device, the current one unless given, run as always
    and become nodes of the graph. When the block ends, results that are still held keep their
    memory and are written again by each run; all others get memory the graph plans. Tensors from
    before the block and those made of host data are leaves: a run reads what is in them then.

    Copies to the host and launches of one's own kernels are not recorded. Raises `DeviceError` when
    the device is being traced already.
    """
    executor = DeviceExecutor.of(device)
    graph = ComputeGraph(executor.device)
    with recorded(executor, _Tracer(graph)):
        yield graph
    graph.storages.settle()
    graph.is_recorded = True


class _Tracer:
    """Makes nodes of calls."""

    def __init__(self, graph: ComputeGraph) -> None:
        self._graph = graph

    def described(self, buffer: DeviceBuffer) -> None:
        """Take a new result. Only who computes with it keeps it alive."""
        self._graph.storages.watch(buffer)

    def place_of(self, buffer: DeviceBuffer) -> Place:
        """Return where a buffer lies; one not seen yet is a leaf's."""
        return self._graph.storages.place_of(buffer)

    def recorded(self, call: Call) -> None:
        """Add a node."""
        self._graph.add_call(call)


__all__ = ["trace"]
