"""Small arrays kept in a device's memory by content, so that each is uploaded once.

A thread that captures a stream of the device, or is within `ContentCache.capture`, cannot upload: a
miss is refused. Other threads still upload.
"""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Hashable, Iterator
from contextlib import contextmanager
from typing import Any, ClassVar, Generic, NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt

from uhal import Device, DeviceBuffer, as_dtype
from uhal.errors import CaptureError
from uhal.frameworks import call_site

Key = TypeVar("Key", bound=Hashable)

CACHED_ARRAYS = 16384
"""Capacity of a cache in arrays; a full cache drops the oldest. Each array takes 512 bytes of the
pool."""


class CacheCounters(NamedTuple):
    """Counters of a cache since its creation."""

    hits: int
    uploads: int
    dropped: int
    kept: int
    """Arrays in the cache now."""


class ContentCache(ABC, Generic[Key]):
    """Arrays in one device's memory, by content. Any thread may use it."""

    what: ClassVar[str]
    """The word for a key in messages."""

    def __init__(self, device: Device) -> None:
        self._device = device
        self._arrays: dict[Key, DeviceBuffer] = {}
        self._pinned: set[Key] = set()
        self._capturing: Counter[int] = Counter()
        """Number of active captures, by thread."""
        self._lock = threading.Lock()
        self._hits = 0
        self._uploads = 0
        self._dropped = 0

    @abstractmethod
    def values(self, key: Key) -> npt.NDArray[Any]:
        """Return the array to upload for a key."""

    def get(self, key: Key) -> DeviceBuffer:
        """Return the array of a key, uploaded if necessary.

        The cache keeps it.

        The first launch on another stream waits for the upload automatically. Raises `CaptureError`
        when this needs an upload during a capture.
        """
        array = self._arrays.get(key)
        if array is None or self._capturing:
            return self._find(key)
        self._hits += 1
        return array

    def __contains__(self, key: Key) -> bool:
        return key in self._arrays

    def _find(self, key: Key) -> DeviceBuffer:
        with self._lock:
            array = self._arrays.get(key)
            if array is not None:
                self._hits += 1
                if self.capturing:
                    self._pinned.add(key)
                return array
            if self.capturing or self._device.context.capturing:
                raise CaptureError(
                    f"the {self.what} {key!r} is not on {self._device!r} yet, and nothing can "
                    "be uploaded during a capture: the warm-up was incomplete; run the same "
                    f"operations on the same shapes once before capturing them. [{call_site()}]"
                )
            array = DeviceBuffer.from_numpy(self.values(key), device=self._device)
            self._uploads += 1
            if len(self._arrays) >= CACHED_ARRAYS:
                self._drop_oldest()
            self._arrays[key] = array
            return array

    def _drop_oldest(self) -> None:
        oldest = next((key for key in self._arrays if key not in self._pinned), None)
        if oldest is not None:
            # The pool keeps the array's memory until pending launches have ended.
            del self._arrays[oldest]
            self._dropped += 1

    @contextmanager
    def capture(self) -> Iterator[None]:
        """Forbid uploads by this thread within a context manager.

        Arrays used within the context stay as long as the cache, because a captured graph holds
        their addresses.
        """
        thread = threading.get_ident()
        with self._lock:
            self._capturing[thread] += 1
        try:
            yield
        finally:
            with self._lock:
                self._capturing[thread] -= 1
                if not self._capturing[thread]:
                    del self._capturing[thread]

    @property
    def capturing(self) -> bool:
        """Whether the calling thread is capturing."""
        return threading.get_ident() in self._capturing

    def counters(self) -> CacheCounters:
        """Return counts since the cache was made.

        Concurrent hits may be counted once.
        """
        return CacheCounters(self._hits, self._uploads, self._dropped, len(self._arrays))


class ConstantCache(ContentCache[tuple[str, bytes | int]]):
    """Single elements in one device's memory, by dtype name and bytes, and descending numbers."""

    what = "constant"

    def values(self, key: tuple[str, bytes | int]) -> npt.NDArray[Any]:
        """Return the element, or as many descending numbers, as the array to upload."""
        name, content = key
        if isinstance(content, int):
            found: npt.NDArray[Any] = np.arange(content, dtype=as_dtype(name).dtype)[::-1].copy()
            return found
        return np.frombuffer(content, as_dtype(name).dtype)

    def descending(self, length: int) -> DeviceBuffer:
        """Return length - 1, ..., 1, 0 as i64.

        Lengths up to a power of two share one array.
        """
        whole = 1 << max(length - 1, 0).bit_length()
        return self.get(("i64", whole))[whole - length :]
