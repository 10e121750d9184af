"""`ComputeGraph`: operations that are described and checked once, and run many times.

A graph has leaves, which are tensors in memory, and operations on leaves and on results. It is
built node by node with `add_leaf` and `add_op`, or recorded by `ubridge.trace()`. `execute_graph`
runs it operation by operation through a `KernelDispatch` that can be replaced.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from types import MappingProxyType
from typing import NoReturn

from ubridge.core.process_bound import ProcessBound
from ubridge.graph.json import leaf_names, load, save
from ubridge.graph.plan import GraphPlan
from ubridge.graph.running import RunnableGraph
from ubridge.graph.text import dot_of, text_of
from ubridge.tensor import DeviceTensor
from uhal import DeviceBuffer, Stream
from uhal.device import DeviceLike
from uhal.errors import ArgumentTypeError
from uhal.habits import Elsewhere
from uhal.terminal import printable

_RUN = "Write ubridge.execute_graph(graph), or graph.instantiate(stream).replay()."


class ComputeGraph(ProcessBound, RunnableGraph):
    """Operations on tensors of one device.

    Not thread-safe while it is being built.

    The graph holds the buffers and tensors it was given. Results without a buffer lie in one arena
    that the graph owns, where memory is reused as soon as its last reader is enqueued.
    """

    _instead = "Send the file that save() writes; ComputeGraph.load() there."
    launch = Elsewhere("launch", _RUN)
    replay = Elsewhere("replay", _RUN)
    run = Elsewhere("run", _RUN)
    inputs = Elsewhere("inputs", "Write graph.leaves.")
    outputs = Elsewhere("outputs", "Results are tensors of the block: with ubridge.trace().")

    def __call__(self, *given: object, **settings: object) -> NoReturn:
        """Raise the error of a graph that is called, as modules of PyTorch are."""
        raise ArgumentTypeError(f"graph(…): expected a run of the graph, got a call. {_RUN}")

    # -- captures ----------------------------------------------------------------------------------

    def instantiate(self, stream: Stream) -> GraphPlan:
        """Capture the graph on a stream into a plan.

        The plan is replayed with one native call.

        Nothing runs. Kernels are loaded and layouts uploaded first. The plan holds the graph; nodes
        that are added later are not in it. Raises `CaptureError`, which names
        the node, when an operation cannot be captured on this backend. Raises `NotSupportedError`
        if the backend has no graphs.
        """
        return GraphPlan(self, stream)

    # -- text and files --------------------------------------------------------------------------

    def __str__(self) -> str:
        return printable(text_of(self))

    def to_dot(self) -> str:
        """Return the graph in Graphviz's language."""
        return dot_of(self)

    @property
    def leaves(self) -> dict[str, DeviceTensor]:
        """The tensors that a run reads before it writes them, by name.

        These tensors are leaves, weights and caches.
        """
        found = {}
        for name, number in leaf_names(self).items():
            buffer = self.storages[number].buffer
            assert buffer is not None
            found[name] = DeviceTensor(buffer)
        return found

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the graph as JSON: operations, shapes and memory.

        The leaves' contents are not written.
        """
        save(self, path)

    @classmethod
    def load(
        cls,
        path: str | os.PathLike[str],
        leaves: Mapping[str, DeviceTensor | DeviceBuffer] = MappingProxyType({}),
        *,
        device: DeviceLike | None = None,
    ) -> ComputeGraph:
        """Read a saved graph, on any backend.

        `leaves` come from `ComputeGraph.leaves`.

        The graph is on the device of its leaves, else on `device`, by default the current device.
        The file is not trusted: the memory that a call reads or writes must lie in the graph's own
        leaves and results. Raises `ArgumentValueError` for another kind of file and for leaves that
        are too small, and `NotFoundError` for missing leaves.
        """
        return load(cls, path, leaves, device)
