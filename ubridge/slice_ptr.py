"""What a kernel takes as its `info` argument: null, or lengths and strides in device memory.

The arrays are few and used over and over, so they are kept by content, one cache a device. A graph
being captured must not upload: within `LayoutCache.capture` a miss is refused.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Literal, NamedTuple

import numpy as np

from ubridge.layout import Layout
from uhal import Device, DeviceBuffer
from uhal.errors import DeviceError

Words = tuple[int, ...]
State = Literal["null", "uploaded", "cached"]

CACHED_ARRAYS = 16384
"""Arrays a device keeps; beyond them the oldest one goes. Each takes 512 bytes of its pool."""


class CacheCounters(NamedTuple):
    """What a cache did since it was made."""

    hits: int
    uploads: int
    dropped: int
    kept: int
    """Arrays in the cache now."""


class LayoutCache:
    """Arrays of u64 in one device's memory, by content. Any thread may use it."""

    def __init__(self, device: Device) -> None:
        self._device = device
        self._arrays: dict[Words, DeviceBuffer] = {}
        self._pinned: set[Words] = set()
        self._capturing = 0
        self._lock = threading.Lock()
        self._hits = 0
        self._uploads = 0
        self._dropped = 0

    def get(self, words: Words) -> DeviceBuffer:
        """Return the array of `words`, uploaded unless it is there. It stays the cache's.

        The first launch on another stream waits for the upload by itself. Raises `DeviceError` when
        it is not there during a capture.
        """
        array = self._arrays.get(words)
        if array is None or self._capturing:
            return self._find(words)
        self._hits += 1
        return array

    def _find(self, words: Words) -> DeviceBuffer:
        with self._lock:
            array = self._arrays.get(words)
            if array is not None:
                self._hits += 1
                if self._capturing:
                    self._pinned.add(words)
                return array
            if self._capturing:
                raise DeviceError(
                    f"the layout {list(words)} is not on {self._device!r} yet, and nothing can be "
                    "uploaded during a capture: the warm-up was incomplete; run the same "
                    "operations on the same shapes once before capturing them"
                )
            array = DeviceBuffer.from_numpy(np.array(words, np.uint64), device=self._device)
            self._uploads += 1
            if len(self._arrays) >= CACHED_ARRAYS:
                self._drop_oldest()
            self._arrays[words] = array
            return array

    def _drop_oldest(self) -> None:
        oldest = next((words for words in self._arrays if words not in self._pinned), None)
        if oldest is not None:
            # Launches still pending keep its memory: the pool knows them.
            del self._arrays[oldest]
            self._dropped += 1

    @contextmanager
    def capture(self) -> Iterator[None]:
        """Within it nothing is uploaded, and what is used stays as long as the cache.

        A graph holds the addresses of the arrays it was captured with.
        """
        with self._lock:
            self._capturing += 1
        try:
            yield
        finally:
            with self._lock:
                self._capturing -= 1

    def counters(self) -> CacheCounters:
        """Return counts since the cache was made; concurrent hits may be counted once."""
        return CacheCounters(self._hits, self._uploads, self._dropped, len(self._arrays))


class SlicePtrOrNull(NamedTuple):
    """An `info` argument and where it came from."""

    pointer: DeviceBuffer | None
    """What to pass to the kernel; the cache owns it."""
    state: State

    @classmethod
    def from_layout(cls, layout: Layout, cache: LayoutCache) -> SlicePtrOrNull:
        """Return null for a contiguous layout, else its lengths and strides."""
        if layout.is_contiguous:
            return cls(None, "null")
        return cls.from_words(layout.words, cache)

    @classmethod
    def from_layouts(cls, cache: LayoutCache, first: Layout, *others: Layout) -> SlicePtrOrNull:
        """Return null when all are contiguous, else the lengths, once, and everyone's strides.

        The layouts have one shape.
        """
        if first.is_contiguous and all(other.is_contiguous for other in others):
            return cls(None, "null")
        return cls.from_words(joined_words(first, *others), cache)

    @classmethod
    def from_words(cls, words: Words, cache: LayoutCache) -> SlicePtrOrNull:
        """Return an array of these words, for kernels that never take null."""
        known = words in cache._arrays
        return cls(cache.get(words), "cached" if known else "uploaded")


def joined_words(first: Layout, *others: Layout) -> Words:
    """Return the lengths and then the strides of each layout, which have one shape."""
    words = first.words
    for other in others:
        words += other.strides
    return words
