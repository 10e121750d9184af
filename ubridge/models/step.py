"""`Step`: one token through the model, captured once and replayed with other tokens."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from weakref import WeakKeyDictionary

import ubridge as ub
from ubridge.models.body import Body, Chunk, Tables
from uhal import Stream
from uhal.frameworks import Context

_TRACING: WeakKeyDictionary[Context, threading.Lock] = WeakKeyDictionary()
"""A lock for each open device, as `ubridge.trace` refuses a second trace of a device."""


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
        lock = _TRACING.setdefault(body.device.context, threading.Lock())
        with lock, ub.trace(body.device) as graph:
            slots = (
                graph.scalar("token", token, low=0, high=body.vocabulary - 1),
                graph.scalar("position", position, low=0, high=capacity - 1),
            )
            hidden = body(Chunk(*slots, tables), tensors)
            self.logits = body.logits(hidden).reshape(body.vocabulary)
        self.graph = graph
        # Calls use the default stream, which cannot be captured.
        self._captured, self._stream = Stream(device=body.device), Stream.default(body.device)
        self.plan = graph.instantiate(self._captured)

    def __call__(self, token: int, position: int) -> ub.DeviceTensor:
        """Enqueue a token on the default stream; return its logits."""
        self.plan.replay(self._stream, token=token, position=position)
        return self.logits

    def close(self) -> None:
        """Wait for the last replay and free everything held."""
        self.plan.close()
        self._captured.close()
