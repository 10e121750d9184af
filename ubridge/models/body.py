"""Interface of a model's layers, and their tables of positions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import ubridge as ub
from uhal import Device

Tensor = ub.DeviceTensor
Weight = ub.DeviceTensor | ub.QuantizedWeight
Part = Mapping[str, Weight]
"""The weights of a layer, or of the parts outside layers, by `part.weight` and `part.bias`."""


@dataclass(frozen=True)
class Tables:
    """Tables that depend on positions alone, f32, for the capacity of a cache."""

    cos: Tensor | None = None
    sin: Tensor | None = None
    """Cosines and sines of rotary angles, (positions, half of the rotated elements)."""
    bias: Tensor | None = None
    """ALiBi's bias of scores of a key, (H, positions)."""


class Chunk(Protocol):
    """Tokens that go through the layers at once, and their places in texts."""

    @property
    def tokens(self) -> Tensor:
        """Ids, i64."""

    @property
    def positions(self) -> Tensor:
        """The positions of the tokens, i64."""

    def rotated(self, x: Tensor, interleaved: bool) -> Tensor:
        """Return (tokens, heads, width) rotated by the angles of the positions."""

    def attended(
        self,
        state: Mapping[str, Tensor],
        layer: int,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        *,
        scale: float,
        window: int,
        cap: float,
    ) -> Tensor:
        """Keep keys and values of a layer; return the attention of the queries."""


@dataclass(frozen=True)
class TextChunk:
    """Tokens of one text, one after the other, and its contiguous cache."""

    tokens: Tensor
    """Ids, i64."""
    first: Tensor
    """Position of the first token, one i64."""
    tables: Tables

    @property
    def positions(self) -> Tensor:
        """The positions of the tokens."""
        count = self.tokens.shape[0]
        if count == 1:
            return self.first
        return self.first + ub.arange(count, dtype="i64", device=self.tokens.device)

    def rotated(self, x: Tensor, interleaved: bool) -> Tensor:
        """Return (tokens, heads, width) rotated by the angles of the positions."""
        cos, sin = self.tables.cos, self.tables.sin
        if cos is None or sin is None:
            return x
        return ub.rope_at(x, cos, sin, self.first, interleaved=interleaved)

    def attended(
        self,
        state: Mapping[str, Tensor],
        layer: int,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        *,
        scale: float,
        window: int,
        cap: float,
    ) -> Tensor:
        """Append keys and values to the cache; return the attention of the queries."""
        keys, values = state[f"{layer}.keys"], state[f"{layer}.values"]
        for cache, new in ((keys, key), (values, value)):
            ub.kv_append(cache, new.swapaxes(0, 1).expand_dims(0), self.first)
        return ub.cached_attention(
            query,
            keys[0],
            values[0],
            self.first,
            scale=scale,
            window=window,
            cap=cap,
            bias=self.tables.bias,
        )


class Body(Protocol):
    """A model's layers and their weights, of any architecture."""

    device: Device
    vocabulary: int
    is_recurrent: bool
    """Whether the state of a text cannot be truncated."""

    def state(self, capacity: int) -> dict[str, Tensor]:
        """Return memory for the layers' state of a text of `capacity` tokens."""

    def tables(self, positions: int, length: int | None = None) -> Tables:
        """Return tables of positions; without `length`, each position ends its own text."""

    def __call__(self, chunk: Chunk, state: Mapping[str, Tensor]) -> Tensor:
        """Run (tokens,) ids through all layers and the last norm: (tokens, E)."""

    def logits(self, x: Tensor) -> Tensor:
        """Return the logits of a result of `__call__`: (tokens, V) of f32."""


def products(
    x: Tensor, weights: Sequence[Weight], batch_invariant: bool = False
) -> tuple[Tensor, ...]:
    """Return `ub.linear` of x and each weight; x is rounded once for all quantized weights."""
    blocks = [one for one in weights if isinstance(one, ub.QuantizedWeight)]
    if len(blocks) == len(weights):
        return ub.quantized_matmul(x, blocks, activations="q8", batch_invariant=batch_invariant)
    return tuple(ub.linear(x, one, batch_invariant=batch_invariant) for one in weights)
