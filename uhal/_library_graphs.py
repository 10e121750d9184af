"""The verbs of graphs for a driver library whose functions have the shape of CUDA's.

Vendors agree on everything but names, on how a graph is instantiated and on how one is changed.
"""

from __future__ import annotations

import ctypes
from dataclasses import dataclass
from typing import ClassVar

from uhal.abi import Library, LibraryBackend
from uhal.contract import CaptureStatus
from uhal.errors import NotSupportedError

__all__ = ["GraphNames", "GraphVerbs"]


@dataclass(frozen=True)
class GraphNames:
    """What a library calls that which all of them have."""

    begin: str
    end: str
    status: str
    instantiate: str
    launch: str
    destroy: str
    destroy_executable: str
    relaxed: str
    """The constant of the mode in which calls that do not touch the stream stay allowed."""
    statuses: tuple[str, str, str]
    """The constants for a stream that captures nothing, that does, and whose capture is spoilt."""
    advice: str
    """What to do about a library without graphs."""

    def functions(self) -> tuple[str, ...]:
        """Return the functions, all of which are needed."""
        return (
            self.begin,
            self.end,
            self.status,
            self.instantiate,
            self.launch,
            self.destroy,
            self.destroy_executable,
        )


class GraphVerbs(LibraryBackend):
    """The part of a backend that records graphs. Any thread may call any method.

    A subclass fills in `graph_names` and adds `instantiate_graph`. Graphs are launched and changed
    through the hot table.
    """

    graph_names: ClassVar[GraphNames]

    _library: Library

    def begin_capture(self, stream: int) -> None:
        """Record what is launched on the stream, in a library that can also end and launch it.

        In the relaxed mode the pool may still allocate and ask events beside the capture, and any
        thread may end it.
        """
        library = self._library
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

    def capture_status(self, stream: int) -> CaptureStatus:
        """Ask the library, unless it knows no captures."""
        name = self.graph_names.status
        if not self._library.has(name):
            return "none"
        status = ctypes.c_int()
        getattr(self._library, name)(stream, status)
        constants = self._library.header.constants
        none, active, _ = (constants[name] for name in self.graph_names.statuses)
        if status.value == none:
            return "none"
        return "active" if status.value == active else "invalidated"

    def end_capture(self, stream: int) -> int:
        """End the capture; the graph."""
        graph = ctypes.c_void_p()
        getattr(self._library, self.graph_names.end)(stream, graph)
        return graph.value or 0

    def destroy_executable_graph(self, executable: int) -> None:
        """Free it."""
        getattr(self._library, self.graph_names.destroy_executable)(executable)

    def destroy_graph(self, graph: int) -> None:
        """Free it."""
        getattr(self._library, self.graph_names.destroy)(graph)
