"""The parts of a tensor, as `uhal._lane` reads them."""

from __future__ import annotations

from ubridge.core.layout import Layout
from ubridge.device.executor import Executor
from uhal import Device, DeviceBuffer, DType
from uhal.frameworks import SlotMaker


class TensorData:
    """The parts of a tensor."""

    __slots__ = ("__weakref__", "_buffer", "_dtype", "_executor", "_layout")

    _buffer: DeviceBuffer
    _layout: Layout
    _dtype: DType
    _executor: Executor

    @property
    def device(self) -> Device:
        """The device the memory is on."""
        return self._executor.device


make = SlotMaker(TensorData, "_buffer", "_layout", "_dtype", "_executor")
"""`make(cls, buffer, layout, dtype, executor)` returns a tensor and checks nothing."""


def start_of(x: TensorData) -> DeviceBuffer:
    """Return the buffer from the tensor's first element on."""
    start = x._layout.start_offset
    return x._buffer[start:] if start else x._buffer
