"""The verbs of graphs, which the newer generation of TopsRuntime has.

TopsRuntime has no known function that lists or changes the nodes of a graph.
"""

from __future__ import annotations

import ctypes

from tops_backend._library import TopsLibrary
from uhal.contract import ExecutableGraph
from uhal.library_graphs import GraphNames, GraphVerbs


class TopsGraphVerbs(GraphVerbs):
    """The graph functions of the Tops backend. Any thread may call any method."""

    graph_names = GraphNames(
        begin="topsStreamBeginCapture",
        end="topsStreamEndCapture",
        status="topsStreamIsCapturing",
        instantiate="topsGraphInstantiate",
        launch="topsGraphLaunch",
        destroy="topsGraphDestroy",
        destroy_executable="topsGraphExecDestroy",
        relaxed="topsStreamCaptureModeRelaxed",
        statuses=(
            "topsStreamCaptureStatusNone",
            "topsStreamCaptureStatusActive",
            "topsStreamCaptureStatusInvalidated",
        ),
        advice="TopsRider 3.x has graphs; with an older one, make the launches one by one",
    )

    _library: TopsLibrary

    def instantiate_graph(self, graph: int) -> ExecutableGraph:
        """Instantiate a graph; its kernels are not known."""
        executable = ctypes.c_void_p()
        self._library.topsGraphInstantiate(executable, graph, None, None, 0)
        return ExecutableGraph(executable.value or 0, kernels=None)
