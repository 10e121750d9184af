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


@dataclass(frozen=True)
class Chunk:
    """Tokens that go through the layers at once, and their positions in a text."""

    tokens: Tensor
    """Ids, i64."""
    first: Tensor
    """Position of the first token, one i64."""
    tables: Tables


class Body(Protocol):
    """A model's layers and their weights, of any architecture."""

    device: Device
    vocabulary: int
    is_recurrent: bool
    """Whether the state of a text cannot be truncated."""

    def state(self, capacity: int) -> dict[str, Tensor]:
        """Return memory for the layers' state of a text of `capacity` tokens."""

    def tables(self, positions: int, length: int | None = None) -> Tables:
        """Return tables of positions in a text of `length`, by default each position's own."""

    def __call__(self, chunk: Chunk, state: Mapping[str, Tensor]) -> Tensor:
        """Run (tokens,) ids through all layers and the last norm: (tokens, E)."""

    def logits(self, x: Tensor) -> Tensor:
        """Return the logits of a result of `__call__`: (tokens, V) of f32."""


def products(x: Tensor, weights: Sequence[Weight]) -> tuple[Tensor, ...]:
    """Return `ub.linear` of x and each weight; x is rounded once for all quantized weights."""
    blocks = [one for one in weights if isinstance(one, ub.QuantizedWeight)]
    if len(blocks) == len(weights):
        return ub.quantized_matmul(x, blocks, activations="q8")
    return tuple(ub.linear(x, one) for one in weights)
