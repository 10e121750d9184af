"""The verbs of graphs: instantiates a CUDA graph and lists its kernels."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from graphlib import TopologicalSorter

from cuda_backend._library import DriverLibrary, header
from uhal.contract import ExecutableGraph
from uhal.library_graphs import GraphNames, GraphVerbs


class CudaGraphVerbs(GraphVerbs):
    """The part of the CUDA backend that deals with graphs. Any thread may call any method."""

    graph_names = GraphNames(
        begin="cuStreamBeginCapture_v2",
        end="cuStreamEndCapture",
        status="cuStreamIsCapturing",
        instantiate="cuGraphInstantiateWithFlags",
        launch="cuGraphLaunch",
        destroy="cuGraphDestroy",
        destroy_executable="cuGraphExecDestroy",
        relaxed="CU_STREAM_CAPTURE_MODE_RELAXED",
        statuses=(
            "CU_STREAM_CAPTURE_STATUS_NONE",
            "CU_STREAM_CAPTURE_STATUS_ACTIVE",
            "CU_STREAM_CAPTURE_STATUS_INVALIDATED",
        ),
        advice="Update the NVIDIA driver",
    )

    _library: DriverLibrary

    def instantiate_graph(self, graph: int) -> ExecutableGraph:
        """Make a graph ready to be launched, and list its kernels."""
        kernels, others = [], 0
        constants = header().constants
        for node in self._in_order(graph):
            kind = self._kind(node)
            if kind == constants["CU_GRAPH_NODE_TYPE_KERNEL"]:
                kernels.append(node)
            elif kind != constants["CU_GRAPH_NODE_TYPE_EMPTY"]:
                others += 1
        executable = ctypes.c_void_p()
        self._library.cuGraphInstantiateWithFlags(executable, graph, 0)
        return ExecutableGraph(executable.value or 0, tuple(kernels), others)

    def graph_kernel_function(self, node: int) -> int:
        """Return a node's function; 0 for kernels without a function in this context."""
        parameters = header().ctype("CUDA_KERNEL_NODE_PARAMS_v1")()
        if self._library.unchecked("cuGraphKernelNodeGetParams")(node, ctypes.byref(parameters)):
            return 0
        return int(parameters.func or 0)

    def _in_order(self, graph: int) -> Iterator[int]:
        # The driver does not say in which order it lists nodes.
        after = {
            node: self._nodes("cuGraphNodeGetDependencies", node)
            for node in self._nodes("cuGraphGetNodes", graph)
        }
        return iter(TopologicalSorter(after).static_order())

    def _nodes(self, call: str, asked: int) -> list[int]:
        function = getattr(self._library, call)
        count = ctypes.c_size_t()
        function(asked, None, count)
        nodes = (ctypes.c_void_p * count.value)()
        if nodes:
            function(asked, nodes, count)
        return list(nodes)

    def _kind(self, node: int) -> int:
        kind = ctypes.c_int()
        self._library.cuGraphNodeGetType(node, kind)
        return kind.value
