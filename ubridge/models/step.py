"""`Step`: one token through the model, captured once and replayed with other tokens."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from weakref import WeakKeyDictionary

import ubridge as ub
from ubridge.models.body import Body, Tables, TextChunk
from uhal import Device, Stream
from uhal.frameworks import Context

_TRACING: WeakKeyDictionary[Context, threading.Lock] = WeakKeyDictionary()
"""A lock for each open device, as `ubridge.trace` refuses a second trace of a device."""


class Captured:
    """Operations of a device that were recorded once, for replays on its default stream.

    The operations read and write the same memory at each replay. The plan holds this memory until
    it is closed.
    """

    def __init__(
        self, device: Device, operations: Callable[[ub.ComputeGraph], ub.DeviceTensor]
    ) -> None:
        """Run operations and record them; the function may add slots to the graph."""
        lock = _TRACING.setdefault(device.context, threading.Lock())
        with lock, ub.trace(device) as graph:
            self.result = operations(graph)
            """The result, in the same memory after each replay."""
        self.graph = graph
        # Calls use the default stream, which cannot be captured.
        self._captured, self._stream = Stream(device=device), Stream.default(device)
        self.plan = graph.instantiate(self._captured)

    def replay(self, **slots: int) -> None:
        """Enqueue the operations, with other numbers in the slots."""
        self.plan.replay(self._stream, **slots)

    def close(self) -> None:
        """Wait for the last replay and free everything held."""
        self.plan.close()
        self._captured.close()


class Step:
    """One token through all layers, as a plan of the device with two slots.

    The plan belongs to one cache, whose memory it reads and writes. Only the two slots change from
    one replay to the next; the logits are always in the same memory. The step holds the weights and
    the cache's memory until it is closed.
    """

    def __init__(
        self,
        body: Body,
        tensors: Mapping[str, ub.DeviceTensor],
        tables: Tables,
        capacity: int,
        token: int,
        position: int,
    ) -> None:
        """Read a token at a position, operation by operation, and capture these operations."""

        def read(graph: ub.ComputeGraph) -> ub.DeviceTensor:
            slots = (
                graph.scalar("token", token, low=0, high=body.vocabulary - 1),
                graph.scalar("position", position, low=0, high=capacity - 1),
            )
            return body.logits(body(TextChunk(*slots, tables), tensors)).reshape(body.vocabulary)

        self._captured = Captured(body.device, read)
        self.logits = self._captured.result
        self.graph, self.plan = self._captured.graph, self._captured.plan

    def __call__(self, token: int, position: int) -> ub.DeviceTensor:
        """Enqueue a token on the default stream; return its logits."""
        self._captured.replay(token=token, position=position)
        return self.logits

    def close(self) -> None:
        """Wait for the last replay and free everything held."""
        self._captured.close()
