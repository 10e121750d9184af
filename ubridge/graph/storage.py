"""The memory of a graph: given buffers, and memory of results that is not yet planned."""

from __future__ import annotations

from weakref import ref

from ubridge.core.overlap import Span, conflict
from ubridge.core.storage_view import Description, StorageView
from ubridge.graph.calls import Call
from uhal import DeviceBuffer
from uhal.dtypes import u8
from uhal.frameworks import address_of


class Storage:
    """A run of memory, parts of which nodes read and write."""

    __slots__ = ("_bytes", "address", "buffer", "is_kept", "nbytes", "weak")

    def __init__(self, nbytes: int, buffer: DeviceBuffer | None = None) -> None:
        self.nbytes = nbytes
        self.buffer = buffer
        """The owner of the memory; `None` before it exists, or while only its user holds it."""
        self.weak: ref[DeviceBuffer] | None = None
        """The owner, for a result recorded in a trace that has not ended."""
        self.is_kept = False
        """Whether the storage gets its own memory, for results that are read after a run."""
        self.address = 0 if buffer is None else address_of(buffer)
        """Address of the owner, held or watched, else 0; never dereferenced."""
        self._bytes: DeviceBuffer | None = None

    @property
    def is_planned(self) -> bool:
        """Whether the storage lies in the graph's arena."""
        return self.buffer is None and not self.is_kept

    def attach(self, buffer: DeviceBuffer) -> None:
        """Take memory of at least `nbytes`."""
        self._bytes = buffer if buffer.dtype is u8 else buffer.view(u8)

    @property
    def bytes(self) -> DeviceBuffer:
        """The memory, byte by byte."""
        if self._bytes is None:
            assert self.buffer is not None
            self._bytes = self.buffer.view(u8)
        return self._bytes


class Storages(list[Storage]):
    """The storages of one graph, by number and by the buffer that owns them."""

    def __init__(self) -> None:
        self._numbers: dict[int, int] = {}
        self.values: dict[int, StorageView] = {}
        """Maps a node to the view that holds its value."""
        self.latest: dict[int, int] = {}
        """Maps a storage to its last writer among recorded nodes, or to its leaf."""
        self.wanted: dict[int, DeviceBuffer | None] = {}
        """Memory given for results, by nodes that are not described yet."""

    def number_of(self, root: DeviceBuffer) -> int | None:
        """Return the storage of a buffer that owns its memory, or `None` for a new buffer."""
        return self._numbers.get(id(root))

    def add(self, nbytes: int, root: DeviceBuffer | None = None) -> int:
        """Add memory that is not yet planned, or a buffer's memory, which is kept alive."""
        self.append(Storage(nbytes, root))
        if root is not None:
            self._numbers[id(root)] = len(self) - 1
        return len(self) - 1

    def watch(self, root: DeviceBuffer) -> int:
        """Add the memory of a buffer without keeping the buffer alive."""
        number = self.add(root.nbytes)
        key = id(root)
        self._numbers[key] = number
        self[number].address = address_of(root)
        # Another buffer may get the same id afterwards.
        self[number].weak = ref(root, lambda _: self._numbers.pop(key, None))
        return number

    def settle(self) -> None:
        """Hold the watched buffers that are still alive, and plan the memory of the others."""
        for storage in self:
            if storage.weak is not None:
                storage.buffer = storage.weak()
                storage.weak = None

    def view_of(self, buffer: DeviceBuffer | Description) -> StorageView:
        """Return the view of a buffer; a new buffer is held.

        A buffer over another buffer's memory, as from DLPack, is a view of the other buffer's
        storage.
        """
        if isinstance(buffer, Description):
            return buffer.memory
        base, offset = buffer.base, buffer.byte_offset
        number = self._numbers.get(id(base))
        if number is None:
            number = self._around(base)
            if number is None:
                number = self.add(base.nbytes, base)
            else:
                offset = address_of(buffer) - self[number].address
        return StorageView(number, offset, buffer.size, buffer.dtype)

    def _around(self, base: DeviceBuffer) -> int | None:
        """Return the storage whose memory holds all of a buffer's, if any.

        Storages that share memory with the buffer keep their memory: the buffer's user may read it.
        """
        start = address_of(base)
        stop = start + base.nbytes
        for number, storage in enumerate(self):
            at = storage.address
            if not at or at >= stop or start >= at + storage.nbytes:
                continue
            owner = storage.weak() if storage.weak is not None else storage.buffer
            if owner is not None and not owner.closed:
                storage.buffer, storage.weak = owner, None
                if 0 <= start - at <= owner.nbytes - base.nbytes:
                    return number
        return None

    def conflict(self, call: Call) -> int | None:
        """Return the first operand in whose memory a call must not write its result, if any."""
        spans = [
            Span(self._address(view), layout, view.dtype.itemsize)
            for (_, layout), view in zip(
                (call.question.result, *call.question.operands),
                (call.written, *call.operands),
                strict=True,
            )
        ]
        return conflict(call.op, spans[0], spans[1:])

    def _address(self, view: StorageView) -> int:
        """Return the address of a view; each storage without memory has a unique address."""
        buffer = self[view.storage].buffer
        whole = (view.storage + 1) << 64 if buffer is None else address_of(buffer)
        return whole + view.offset

    def resolve(self, view: StorageView) -> DeviceBuffer:
        """Return the buffer of a view that has memory."""
        return _part(self[view.storage].bytes, view)


def _part(whole: DeviceBuffer, view: StorageView) -> DeviceBuffer:
    if view.nbytes != whole.nbytes:
        whole = whole[view.offset : view.offset + view.nbytes]
    return whole.view(view.dtype)
