"""`MaskCache` keeps additive masks of attention for parts of the queries and keys."""

from __future__ import annotations

from collections import OrderedDict
from typing import Literal, NamedTuple

import numpy as np

from ubridge.core.operand_checks import whole_number
from ubridge.creation import asarray
from ubridge.tensor import DeviceTensor
from uhal.device import DeviceLike
from uhal.dtypes import DTypeLike, f32

Visible = Literal["all", "none"]
"""A mask that needs no memory: every query sees every key, or none sees any."""


class MaskCounts(NamedTuple):
    """How often a mask was found, made, or needed no memory."""

    hits: int
    misses: int
    plain: int


class MaskCache:
    """Masks for `ubridge.attention`, kept by their shape and offset. One thread may use it.

    A query of a part sees the keys up to its own position. With a `window` a query sees only that
    many keys, up to its own. With `sinks` a query also sees the first keys. Parts with equal
    lengths and distances share a mask. The least recently used masks go first.
    """

    def __init__(
        self,
        capacity: int = 1024,
        *,
        device: DeviceLike | None = None,
        dtype: DTypeLike = f32,
    ) -> None:
        """Keep at most `capacity` masks of a dtype on a device, by default the current one."""
        self._capacity = whole_number("MaskCache, capacity", capacity, 1)
        self._device, self._dtype = device, dtype
        self._masks: OrderedDict[tuple[int, ...], DeviceTensor] = OrderedDict()
        self._hits = self._misses = self._plain = 0

    def mask(
        self,
        queries: int,
        keys: int,
        distance: int = 0,
        *,
        window: int = 0,
        sinks: int = 0,
    ) -> DeviceTensor | Visible:
        """Return the mask of a part, (queries, keys) of 0 and -infinity; "all" or "none" if equal.

        `distance` is the first query's position minus the first key's. `sinks` is the number of the
        part's first keys that stay visible besides the window.
        """
        queries = whole_number("MaskCache.mask, queries", queries, 1)
        keys = whole_number("MaskCache.mask, keys", keys, 1)
        window = whole_number("MaskCache.mask, window", window)
        sinks = min(whole_number("MaskCache.mask, sinks", sinks), keys)
        # Every key that a window of this length hides is behind all queries.
        far = distance + queries
        window = 0 if window >= far else window
        sinks = sinks if window else 0
        if distance >= keys - 1 and not window:
            self._plain += 1
            return "all"
        is_past = window > 0 and distance - window >= keys - 1 and sinks == 0
        if distance <= -queries or is_past:
            self._plain += 1
            return "none"
        key = (queries, keys, distance, window, sinks)
        found = self._masks.get(key)
        if found is not None:
            self._hits += 1
            self._masks.move_to_end(key)
            return found
        self._misses += 1
        row, column = np.ogrid[:queries, :keys]
        at = row + distance
        visible = column <= at
        if window:
            visible &= (column > at - window) | (column < sinks)
        made = asarray(np.where(visible, 0.0, -np.inf).astype(np.float32), device=self._device)
        self._masks[key] = made.astype(self._dtype, copy=False)
        if len(self._masks) > self._capacity:
            self._masks.popitem(last=False)
        return self._masks[key]

    @property
    def counts(self) -> MaskCounts:
        """How often masks were found, made, or needed no memory."""
        return MaskCounts(self._hits, self._misses, self._plain)

    def clear(self) -> None:
        """Drop all masks; the counts stay."""
        self._masks.clear()

    def resize(self, capacity: int) -> None:
        """Keep at most `capacity` masks from now on."""
        self._capacity = whole_number("MaskCache.resize, capacity", capacity, 1)
        while len(self._masks) > self._capacity:
            self._masks.popitem(last=False)

    def __len__(self) -> int:
        return len(self._masks)
