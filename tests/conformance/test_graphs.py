"""Launches captured into a graph run whenever the graph is launched."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import numpy as np
import pytest

from uhal import Device, DeviceBuffer, Function, Module, Stream
from uhal.abi import LibraryBackend
from uhal.contract import Backend, ExecutableGraph
from uhal.errors import DeviceError
from uhal.registry import backend as opened_backend
from uhal_conformance import faults
from uhal_conformance.children import check_child
from uhal_conformance.row import DeviceRow
from uhal_conformance.sampling import rounds
from uhal_conformance.slots import KernelCall, Slots, launch_graph, update_kernel

BLOCK = 128
GRID = 3


@pytest.fixture
def backend(device: Device) -> Iterator[Backend]:
    """Yield the device's backend; check that every graph is destroyed at the end."""
    backend = opened_backend(device.backend)
    before = graphs_alive(backend)
    yield backend
    assert graphs_alive(backend) == before


def graphs_alive(backend: Backend) -> list[int]:
    """Return the counts of graphs and executable graphs, from the runtime or the simulated
    library."""
    counts = backend.live_counts()
    if "graphs" in counts:
        return [counts["graphs"], counts["executable graphs"]]
    assert isinstance(backend, LibraryBackend)
    path = os.environ.get(backend.library.variable, "")
    count = getattr(ctypes.CDLL(path), "uhal_sim_live", None) if path else None
    return [count(kind) for kind in (b"graph", b"graph_exec")] if count is not None else []


@pytest.fixture
def stream(device: Device) -> Iterator[Stream]:
    with Stream() as stream:
        yield stream


class Chain:
    """Three launches of x → x * multiply + add; a wrong order changes the exact result."""

    def __init__(self, basic: Module, rng: np.random.Generator) -> None:
        self._rng = rng
        self.kernel: Function = basic.get_function("step")
        self.expected = rng.integers(0, 2**32, 1000, "u4")
        self.buffer = DeviceBuffer.from_numpy(self.expected)
        self.factors = [self.draw() for _ in range(3)]

    def use_on(self, stream: Stream) -> None:
        """Launch once, so that the stream waits for the copy that filled the buffer on another
        stream.

        During a capture the stream could not wait, because the copy is not part of the graph.
        """
        self.launch(stream)
        self.advance()
        stream.synchronize()

    def draw(self) -> tuple[int, int]:
        multiply, add = (int(number) for number in self._rng.integers(0, 2**31, 2))
        return 2 * multiply + 1, add

    def launch(self, stream: Stream) -> None:
        for multiply, add in self.factors:
            self.kernel[GRID, BLOCK, 0, stream](self.buffer.size, multiply, add, self.buffer)

    def advance(self) -> None:
        """Update the expected contents for one more run of the launches."""
        for multiply, add in self.factors:
            self.expected = self.expected * np.uint32(multiply) + np.uint32(add)

    def check(self) -> None:
        assert np.array_equal(self.buffer.to_numpy(), self.expected)

    def call(self, index: int) -> KernelCall:
        """Return the parts of the launch with this number."""
        multiply, add = self.factors[index]
        values = (
            np.uint64(self.buffer.size),
            np.uint32(multiply),
            np.uint32(add),
            np.uint64(int(self.buffer.as_device_ptr())),
        )
        return KernelCall(
            function=self.kernel.handle,
            grid=(GRID, 1, 1),
            block=(BLOCK, 1, 1),
            shared_bytes=0,
            parameters=[value.tobytes() for value in values],
        )


@pytest.fixture
def chains(basic: Module, rng: np.random.Generator, stream: Stream) -> Callable[[], Chain]:
    def make() -> Chain:
        chain = Chain(basic, rng)
        chain.use_on(stream)
        return chain

    return make


@contextmanager
def captured(backend: Backend, stream: Stream, chain: Chain) -> Iterator[ExecutableGraph]:
    """The chain's launches, recorded on the stream."""
    backend.begin_capture(stream.handle)
    chain.launch(stream)
    with ExitStack() as stack:
        graph = backend.end_capture(stream.handle)
        stack.callback(backend.destroy_graph, graph)
        executable = backend.instantiate_graph(graph)
        stack.callback(backend.destroy_executable_graph, executable.handle)
        yield executable
        stream.synchronize()


def test_a_graph_repeats_what_was_captured(
    backend: Backend, stream: Stream, chains: Callable[[], Chain]
) -> None:
    chain = chains()
    chain = chains()
    with captured(backend, stream, chain) as executable:
        chain.check()
        for _ in range(rounds(5, 500)):
            launch_graph(backend, executable.handle, stream.handle)
            chain.advance()
        stream.synchronize()
        chain.check()


def test_a_graph_runs_in_order_with_other_work(
    backend: Backend, stream: Stream, chains: Callable[[], Chain]
) -> None:
    chain = chains()
    with captured(backend, stream, chain) as executable:
        for _ in range(5):
            chain.launch(stream)
            launch_graph(backend, executable.handle, stream.handle)
            chain.advance()
            chain.advance()
        stream.synchronize()
        chain.check()


def test_a_graph_can_be_launched_on_another_stream(
    backend: Backend, stream: Stream, chains: Callable[[], Chain]
) -> None:
    chain = chains()
    with captured(backend, stream, chain) as executable, Stream() as other:
        launch_graph(backend, executable.handle, other.handle)
        chain.advance()
        other.synchronize()
        chain.check()


@pytest.mark.parametrize("number", range(3))
def test_a_graph_takes_other_parameters(
    backend: Backend, stream: Stream, chains: Callable[[], Chain], number: int
) -> None:
    chain = chains()
    with captured(backend, stream, chain) as executable:
        assert executable.kernels is not None
        assert len(set(executable.kernels)) == 3
        for _ in range(5):
            # A launched graph keeps its parameters, whether it has run or not.
            launch_graph(backend, executable.handle, stream.handle)
            chain.advance()
            chain.factors[number] = chain.draw()
            node = executable.kernels[number]
            update_kernel(backend, executable.handle, node, chain.call(number))
        launch_graph(backend, executable.handle, stream.handle)
        chain.advance()
        stream.synchronize()
        chain.check()


def test_a_graph_keeps_what_a_stream_recorded_that_is_gone(
    backend: Backend, stream: Stream, chains: Callable[[], Chain]
) -> None:
    """A stream that joined the capture may be destroyed; the graph keeps its work."""
    chain = chains()
    slots = Slots(backend)
    other, event = ctypes.c_void_p(), ctypes.c_void_p()
    slots("stream_create", ctypes.byref(other), 0, 0)
    slots("event_create", ctypes.byref(event), 0)
    backend.begin_capture(stream.handle)
    slots("event_record", event, stream.handle)
    slots("stream_wait_event", other, event, 0)
    call = chain.call(0)
    values = [ctypes.create_string_buffer(one, len(one)) for one in call.parameters]
    slots.launch(call.function, call.grid, call.block, other, *values)
    slots("event_record", event, other)
    slots("stream_wait_event", stream.handle, event, 0)
    slots("stream_destroy", other)
    assert backend.capture_status(stream.handle) == "active"
    graph = backend.end_capture(stream.handle)
    executable = backend.instantiate_graph(graph)
    launch_graph(backend, executable.handle, stream.handle)
    stream.synchronize()
    chain.factors = chain.factors[:1]
    chain.advance()
    chain.check()
    backend.destroy_executable_graph(executable.handle)
    backend.destroy_graph(graph)
    slots("event_destroy", event)


def test_a_graph_of_an_abandoned_capture_leaves_nothing(
    backend: Backend, stream: Stream, chains: Callable[[], Chain]
) -> None:
    chain = chains()
    assert backend.capture_status(stream.handle) == "none"
    backend.begin_capture(stream.handle)
    chain.launch(stream)
    assert backend.capture_status(stream.handle) == "active"
    backend.destroy_graph(backend.end_capture(stream.handle))
    assert backend.capture_status(stream.handle) == "none"
    chain.check()
    chain.launch(stream)
    chain.advance()
    stream.synchronize()
    chain.check()


def test_a_graph_is_not_made_of_a_spoilt_capture(
    backend: Backend, stream: Stream, chains: Callable[[], Chain]
) -> None:
    chain = chains()
    backend.begin_capture(stream.handle)
    chain.launch(stream)
    with pytest.raises(DeviceError):
        stream.synchronize()
    assert backend.capture_status(stream.handle) == "invalidated"
    with pytest.raises(DeviceError):
        backend.end_capture(stream.handle)
    assert backend.capture_status(stream.handle) == "none"
    chain.launch(stream)
    chain.advance()
    stream.synchronize()
    chain.check()


def test_a_graph_that_faults(row: DeviceRow, image: Callable[[str], Path]) -> None:
    check_child(
        faults.fault_in_a_graph,
        row.backend,
        str(image("fault")),
        environment=row.environment,
        options=("-W", "error"),
    )
