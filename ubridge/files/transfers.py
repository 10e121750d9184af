"""From files to a device: in pieces, through pinned memory, several files side by side."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from typing import TypeAlias

from ubridge.files.entries import TensorEntry
from uhal import Device, DeviceBuffer, Event, HostBuffer, Stream
from uhal.dtypes import u8
from uhal.errors import OutOfMemoryError
from uhal.progress import Bar, Progress, in_units

PIECE_BYTES = 8 << 20
"""Bytes of pinned memory for a piece, large enough to hide the fixed cost of a copy."""
READERS = 4
"""Threads that read; each has two pieces, one being read while the other is copied."""


def transfer(
    entries: Sequence[TensorEntry], device: Device, progress: Progress
) -> list[DeviceBuffer]:
    """Return the bytes of each entry on a device, after all copies are done."""
    total = sum(entry.nbytes for entry in entries)
    require_room(entries, device, total)
    files = len({entry.file.path for entry in entries})
    words = f"{in_units(total)} of {len(entries)} tensors from {files} files to {device!r}"
    buffers = [DeviceBuffer.uninitialized(one.nbytes, u8, device=device) for one in entries]
    pieces: queue.SimpleQueue[_Piece] = queue.SimpleQueue()
    count = 0
    for entry, buffer in zip(entries, buffers, strict=True):
        for start in range(0, entry.nbytes, PIECE_BYTES):
            pieces.put((entry, buffer, start, min(PIECE_BYTES, entry.nbytes - start)))
            count += 1
    most = min(PIECE_BYTES, max((entry.nbytes for entry in entries), default=0))
    with Bar(progress, total, f"reading {words}") as bar:
        readers = [_Reader(device, pieces, most, bar.add) for _ in range(min(READERS, count))]
        started = []
        for reader in readers:
            try:
                reader.start()
            except RuntimeError:  # no more threads: use fewer, or this thread
                break
            started.append(reader)
        if readers and not started:
            readers[0].run()
        for reader in started:
            reader.join()
        for reader in readers:
            if reader.error is not None:
                raise reader.error
    return buffers


_Piece: TypeAlias = tuple[TensorEntry, DeviceBuffer, int, int]


def require_room(entries: Sequence[TensorEntry], device: Device, total: int) -> None:
    """Refuse tensors that exceed the device's memory, or that the files no longer contain."""
    free = free_bytes(device)
    if total > free:
        raise OutOfMemoryError(
            f"{device!r}: expected room for {total} bytes of {len(entries)} tensors, there are "
            f"{free} bytes free; nothing was read"
        )
    for entry in entries:
        entry.file.require(entry.start, entry.nbytes)


def free_bytes(device: Device) -> int:
    """Return the free bytes of the device for one more model."""
    return device.memory_info().free


class _Reader(threading.Thread):
    """Reads pieces until none remain, or one fails."""

    def __init__(
        self,
        device: Device,
        pieces: queue.SimpleQueue[_Piece],
        most: int,
        done: Callable[[int], None],
    ) -> None:
        super().__init__(name="ubridge files", daemon=True)
        self._device = device
        self._pieces = pieces
        self._most = most
        self._done = done
        self.error: BaseException | None = None

    def run(self) -> None:
        """Take pieces."""
        try:
            with self._device, ExitStack() as stack:
                stream = stack.enter_context(Stream(device=self._device))
                slots = [
                    (
                        stack.enter_context(HostBuffer(self._most, u8, device=self._device)),
                        stack.enter_context(Event(device=self._device)),
                    )
                    for _ in range(2)
                ]
                self._take(stream, slots)
                stream.synchronize()
        except BaseException as error:
            self.error = error
            while not self._pieces.empty():
                try:
                    self._pieces.get_nowait()
                except queue.Empty:
                    break

    def _take(self, stream: Stream, slots: list[tuple[HostBuffer, Event]]) -> None:
        turn = 0
        while True:
            try:
                entry, buffer, start, nbytes = self._pieces.get_nowait()
            except queue.Empty:
                return
            pinned, copied = slots[turn % 2]
            if turn >= 2:
                copied.synchronize()
            turn += 1
            entry.file.read_into(pinned.array[:nbytes], entry.start + start)
            target = buffer[start : start + nbytes]
            if nbytes == self._most:
                target.copy_from_async(pinned, stream)
            else:
                target.copy_from(pinned.array[:nbytes], stream=stream)
            copied.record(stream)
            self._done(nbytes)
