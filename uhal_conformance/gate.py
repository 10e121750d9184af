"""Work that stays pending until the test sets a flag in pinned memory."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from uhal import DeviceBuffer, DevicePointer, HostBuffer, Module, Stream


class Gate:
    """Holds streams back with `hold`; `open` releases them all."""

    def __init__(self, basic: Module) -> None:
        self._kernel = basic.get_function("gate")
        self._flag = HostBuffer(1, "u32")
        self._flag.array[0] = 0
        self._opened: list[DeviceBuffer] = []
        self._streams: list[Stream] = []

    @property
    def flag(self) -> npt.NDArray[np.uint32]:
        """Host array of one flag; 1 opens the gate, without a call of the driver."""
        array: npt.NDArray[np.uint32] = self._flag.array
        return array

    def hold(self, stream: Stream) -> None:
        """Make later work of the stream wait until `open`."""
        opened = DeviceBuffer.from_numpy(np.full(1, 7, "u4"), stream=stream)
        self._kernel[1, 1, 0, stream](DevicePointer(self._flag.address), opened)
        self._opened.append(opened)
        self._streams.append(stream)

    def open(self) -> None:
        """Release the held streams."""
        self._flag.array[0] = 1

    def close(self) -> None:
        """Open, wait, and check that no stream timed out."""
        self.open()
        for stream in self._streams:
            if not stream.closed:
                stream.synchronize()
        assert all(opened.to_numpy()[0] == 1 for opened in self._opened)
        self._opened.clear()
        self._streams.clear()
