"""The graph verbs for a native library with functions of CUDA's shape.

Vendors differ in names, and in the functions that instantiate and change a graph. uhal's own
runtimes agree in these, too.
"""

from __future__ import annotations

import ctypes
from dataclasses import dataclass
from typing import ClassVar

from uhal.abi import Library, LibraryBackend
from uhal.contract import Backend, CaptureStatus, ExecutableGraph
from uhal.errors import NotSupportedError

__all__ = ["GraphNames", "GraphVerbs", "OwnGraphVerbs", "own_graph_names"]


@dataclass(frozen=True)
class GraphNames:
    """A library's names for functions that all libraries have."""

    begin: str
    end: str
    status: str
    instantiate: str
    launch: str
    destroy: str
    destroy_executable: str
    relaxed: str
    """Constant of the capture mode that allows calls which do not touch the stream."""
    statuses: tuple[str, str, str]
    """Constants for the capture status of a stream: none, active, invalidated."""
    advice: str
    """Advice for a library without graphs."""

    def functions(self) -> tuple[str, ...]:
        """Return the required functions."""
        return (
            self.begin,
            self.end,
            self.status,
            self.instantiate,
            self.launch,
            self.destroy,
            self.destroy_executable,
        )


class _Recorder(Backend):
    """The verbs that differ only in names. Any thread may call any method."""

    graph_names: ClassVar[GraphNames]

    _library: Library

    @property
    def _graph_library(self) -> Library:
        """The library that has the functions."""
        return self._library

    def begin_capture(self, stream: int) -> bool:
        """Begin a capture of the stream, if the library can also end it and launch the graph.

        In the relaxed mode the pool may allocate and query events during the capture, and any
        thread may end it.
        """
        library = self._graph_library
        missing = [name for name in self.graph_names.functions() if not library.has(name)]
        if missing:
            raise NotSupportedError(
                f"{library.path} cannot capture launches into a graph: it lacks "
                f"{', '.join(missing)}. {self.graph_names.advice}",
                backend=self.name,
                call=missing[0],
            )
        mode = library.header.constants[self.graph_names.relaxed]
        getattr(library, self.graph_names.begin)(stream, mode)
        return True

    def capture_status(self, stream: int) -> CaptureStatus:
        """Return the stream's capture status; "none" for a library without captures."""
        name = self.graph_names.status
        library = self._graph_library
        if not library.has(name):
            return "none"
        status = ctypes.c_int()
        getattr(library, name)(stream, status)
        constants = library.header.constants
        none, active, _ = (constants[name] for name in self.graph_names.statuses)
        if status.value == none:
            return "none"
        return "active" if status.value == active else "invalidated"

    def end_capture(self, stream: int) -> int:
        """End the capture; return the graph."""
        graph = ctypes.c_void_p()
        getattr(self._graph_library, self.graph_names.end)(stream, graph)
        return graph.value or 0

    def destroy_executable_graph(self, executable: int) -> None:
        """Free the executable graph."""
        getattr(self._graph_library, self.graph_names.destroy_executable)(executable)

    def destroy_graph(self, graph: int) -> None:
        """Free the graph."""
        getattr(self._graph_library, self.graph_names.destroy)(graph)


class GraphVerbs(_Recorder, LibraryBackend):
    """Graph verbs of a backend over a vendor's library. Any thread may call any method.

    A subclass fills in `graph_names` and adds `instantiate_graph`. Graphs are launched and changed
    through the hot table.
    """


def own_graph_names(prefix: str) -> GraphNames:
    """Return the names in one of uhal's runtimes, by its functions' prefix such as `uhalHost`."""
    constants = f"UHAL_{prefix.removeprefix('uhal').upper()}_STREAM_CAPTURE"
    return GraphNames(
        begin=f"{prefix}StreamBeginCapture",
        end=f"{prefix}StreamEndCapture",
        status=f"{prefix}StreamIsCapturing",
        instantiate=f"{prefix}GraphInstantiate",
        launch=f"{prefix}GraphLaunch",
        destroy=f"{prefix}GraphDestroy",
        destroy_executable=f"{prefix}GraphExecDestroy",
        relaxed=f"{constants}_MODE_RELAXED",
        statuses=(
            f"{constants}_STATUS_NONE",
            f"{constants}_STATUS_ACTIVE",
            f"{constants}_STATUS_INVALIDATED",
        ),
        advice="Build uhal again",
    )


class OwnGraphVerbs(_Recorder):
    """Graph verbs of a backend over uhal's own runtime. Any thread may call any method.

    A subclass fills in `graph_names` with `own_graph_names`.
    """

    def instantiate_graph(self, graph: int) -> ExecutableGraph:
        """Make a graph ready to be launched, and list its kernels."""
        library = self._graph_library
        listed = self.graph_names.instantiate.replace("Instantiate", "GetKernels")
        count = ctypes.c_size_t()
        getattr(library, listed)(graph, None, count)
        nodes = (ctypes.c_void_p * count.value)()
        getattr(library, listed)(graph, nodes, count)
        executable = ctypes.c_void_p()
        getattr(library, self.graph_names.instantiate)(executable, graph)
        kernels = tuple(node or 0 for node in nodes)
        return ExecutableGraph(executable.value or 0, kernels, self._others(graph, len(kernels)))

    def _others(self, graph: int, kernels: int) -> int | None:
        """Number of steps that are not kernels; `None` if only uhal recorded steps."""
        library = self._graph_library
        counting = self.graph_names.instantiate.replace("Instantiate", "GetCounts")
        if not library.has(counting):
            return None
        steps, host_functions = ctypes.c_size_t(), ctypes.c_size_t()
        getattr(library, counting)(graph, steps, host_functions)
        return steps.value - kernels if host_functions.value else None
