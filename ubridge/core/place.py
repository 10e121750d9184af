"""Memory that is named but may not be there yet: what operations of a graph are described with."""

from __future__ import annotations

from typing import NamedTuple

from uhal import Device, DType


class Place(NamedTuple):
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

    def overlaps(self, other: Place) -> bool:
        """Return whether both have a byte in common."""
        if self.storage != other.storage:
            return False
        return (
            self.offset < other.offset + other.nbytes and other.offset < self.offset + self.nbytes
        )


class Description:
    """What stands for a buffer at a place while an operation is described: no memory is touched."""

    __slots__ = ("device", "place")

    def __init__(self, place: Place, device: Device) -> None:
        self.place = place
        self.device = device

    @property
    def size(self) -> int:
        """The number of elements."""
        return self.place.size

    @property
    def nbytes(self) -> int:
        """Bytes the elements take."""
        return self.place.nbytes

    @property
    def dtype(self) -> DType:
        """The element type."""
        return self.place.dtype

    def view(self, dtype: DType) -> Description:
        """Describe the same bytes as elements of another type."""
        size = self.nbytes // dtype.itemsize
        return Description(self.place._replace(size=size, dtype=dtype), self.device)

    def __getitem__(self, part: slice) -> Description:
        start, stop, _ = part.indices(self.size)
        offset = self.place.offset + start * self.dtype.itemsize
        place = self.place._replace(offset=offset, size=max(stop - start, 0))
        return Description(place, self.device)


__all__ = ["Description", "Place"]
