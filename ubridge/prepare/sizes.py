"""Sizes that an operation's kernels take together, by name."""

from __future__ import annotations

from typing import NamedTuple


class BlockSizes(NamedTuple):
    """Of a product of a weight of blocks, (rows, columns), with vectors of `columns` elements."""

    vectors: int
    rows: int
    columns: int


class IndexedSizes(NamedTuple):
    """Of products of vectors with some of several weights of blocks, each (rows, columns)."""

    weights: int
    rows: int
    columns: int
    tokens: int
    used: int
    """Products of a token."""
    vectors: int
    """One for each token, or one for each product."""


class AttentionSizes(NamedTuple):
    """Of an attention: its queries have `heads` heads, its keys and values `kv_heads`."""

    heads: int
    kv_heads: int
    queries: int
    keys: int
    width: int
    mask_batch: int
    """Stride of the mask, in elements, from one batch to the next; its rows are contiguous."""
    mask_head: int
    """And from one head to the next."""


__all__ = ["AttentionSizes", "BlockSizes", "IndexedSizes"]
