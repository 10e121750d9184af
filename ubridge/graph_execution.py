"""Running a graph operation by operation, through a dispatcher."""

from __future__ import annotations

from dataclasses import dataclass
from time import perf_counter
from typing import TYPE_CHECKING, Any, NamedTuple

from ubridge.graph_calls import Call, with_values
from ubridge.graph_dispatch import DispatchCall, KernelDispatch, LaunchingDispatch, dispatch_one
from ubridge.graph_node import Node
from uhal.interop import StreamLike

if TYPE_CHECKING:
    from ubridge.graph import ComputeGraph


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


def execute_graph(
    graph: ComputeGraph,
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
    dispatch: KernelDispatch = LaunchingDispatch() if dispatcher is None else dispatcher
    given = graph.checked_slots(slots)
    lowering = graph.lowering if steps else None
    start = perf_counter()
    for node, call, arguments in steps:
        if call.slots:
            arguments = with_values(arguments, given)
        assert lowering is not None
        dispatch_one(dispatch, DispatchCall(node, call, arguments, lowering, stream))
    return GraphExecResult(len(steps), (perf_counter() - start) * 1e6)


__all__ = ["GraphExecResult", "Step", "execute_graph"]
