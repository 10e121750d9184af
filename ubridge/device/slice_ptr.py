"""A kernel's `info` argument: null, or lengths and strides in device memory.

Few arrays are used many times, so one cache per device keeps them by content.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

import numpy as np

from ubridge.core.layout import Layout
from ubridge.device.content_cache import ContentCache
from uhal import DeviceBuffer

Words = tuple[int, ...]
State = Literal["null", "uploaded", "cached"]


class LayoutCache(ContentCache[Words]):
    """Arrays of u64 in one device's memory, by content.

    Any thread may use it.
    """

    what = "layout"

    def values(self, key: Words) -> np.ndarray[tuple[int], np.dtype[np.uint64]]:
        """Return the words as the array to upload."""
        return np.array(key, np.uint64)


class SlicePtrOrNull(NamedTuple):
    """An `info` argument and where it came from."""

    pointer: DeviceBuffer | None
    """Argument for the kernel; the cache owns it."""
    state: State

    @classmethod
    def from_layout(cls, layout: Layout, cache: LayoutCache) -> SlicePtrOrNull:
        """Return null for a contiguous layout, else its lengths and strides."""
        return cls.from_layouts(cache, layout)

    @classmethod
    def from_layouts(cls, cache: LayoutCache, first: Layout, *others: Layout) -> SlicePtrOrNull:
        """Return null when all layouts are contiguous, else lengths and strides.

        The lengths come once, then each layout's strides.

        The layouts have one shape.
        """
        if first.is_contiguous and all(other.is_contiguous for other in others):
            return cls(None, "null")
        return cls.from_words(joined_words(first, *others), cache)

    @classmethod
    def from_words(cls, words: Words, cache: LayoutCache) -> SlicePtrOrNull:
        """Return an array of these words, for kernels that never take null."""
        known = words in cache
        return cls(cache.get(words), "cached" if known else "uploaded")


def joined_words(first: Layout, *others: Layout) -> Words:
    """Return the lengths and then the strides of each layout, which have one shape."""
    words = first.words
    for other in others:
        words += other.strides
    return words
