"""Names of memory that may not be allocated yet, for describing a graph's operations."""

from __future__ import annotations

from typing import NamedTuple

from uhal import Device, DType


class StorageView(NamedTuple):
    """Elements in one of a graph's storages."""

    storage: int
    offset: int
    """Bytes before the first element."""
    size: int
    dtype: DType

    @property
    def nbytes(self) -> int:
        """Bytes the elements take."""
        return self.size * self.dtype.itemsize


class Description:
    """Stands for a buffer while an operation is described: no memory is touched."""

    __slots__ = ("device", "dtype", "memory", "size")

    def __init__(self, memory: StorageView, device: Device) -> None:
        self.memory = memory
        self.device = device
        self.size = memory.size
        """The number of elements."""
        self.dtype = memory.dtype
        """The element type."""

    def view(self, dtype: DType) -> Description:
        """Describe the same bytes as elements of another type."""
        size = self.memory.nbytes // dtype.itemsize
        return Description(self.memory._replace(size=size, dtype=dtype), self.device)

    def __getitem__(self, part: slice) -> Description:
        start, stop, _ = part.indices(self.size)
        offset = self.memory.offset + start * self.dtype.itemsize
        memory = self.memory._replace(offset=offset, size=max(stop - start, 0))
        return Description(memory, self.device)
