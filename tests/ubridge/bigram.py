"""A small real model: a table on the device maps the last token to the next."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import numpy as np

import ubridge as ub
from uhal import Device


class BigramCache:
    """The tokens read so far, and the tensors of the cache."""

    def __init__(self, capacity: int) -> None:
        self.capacity = capacity
        self.tokens: list[int] = []
        self.kept = 0
        self.tensors = {"read": ub.zeros((capacity,), "f32")}

    @property
    def length(self) -> int:
        return len(self.tokens)

    @property
    def room(self) -> int:
        return self.capacity

    def make_room(self, length: int) -> None:
        assert length <= self.capacity

    def truncate(self, length: int) -> None:
        del self.tokens[length:]
        self.kept = length

    def close(self) -> None:
        self.tensors = {}


class Bigram:
    """Logits (vocabulary, vocabulary): a row for each token."""

    architecture = "bigram"

    def __init__(self, table: np.ndarray, capacity: int = 64) -> None:
        self.table = ub.asarray(table.astype(np.float32))
        self.vocabulary = len(table)
        self.capacity = capacity
        self.end_tokens: tuple[int, ...] = ()
        self.device = Device.current()
        self.read: list[list[int]] = []
        """The tokens of each call."""

    def cache(self, capacity: int | None = None) -> BigramCache:
        return BigramCache(capacity or self.capacity)

    def logits(
        self, tokens: Sequence[int], cache: BigramCache, *, every: bool = False
    ) -> ub.DeviceTensor:
        assert 0 < len(tokens) <= cache.capacity - cache.length
        self.read.append(list(tokens))
        cache.tensors["read"][cache.length : cache.length + len(tokens)] = np.array(tokens, "f4")
        cache.tokens += tokens
        cache.kept = len(cache.tokens)
        rows = ub.take(self.table, np.array(tokens))
        return rows if every else rows[-1]

    def follow(self, tokens: Sequence[int]) -> None:
        """Make each token follow the token before it with nearly all probability."""
        table = self.table.to_numpy()
        for first, second in pairwise(tokens):
            table[first, second] = 50
        self.table = ub.asarray(table)
