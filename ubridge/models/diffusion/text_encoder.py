"""CLIP's text encoder: a causal transformer, whose last layer's norm is the result.

Radford et al., "Learning Transferable Visual Models From Natural Language Supervision" (2021).
"""

from __future__ import annotations

import ubridge as ub
from ubridge.models.diffusion import layers as nn
from ubridge.models.diffusion.design import TextDesign
from ubridge.models.diffusion.layers import Layer, Take, Tensor

_PARTS = ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj", "self_attn.out_proj")
_SHARPNESS = 1.702
"""Factor in `quick_gelu`, x * sigmoid(1.702 x)."""


class TextEncoder:
    """The encoder of prompts. Any thread may use it."""

    def __init__(self, design: TextDesign, take: Take) -> None:
        """Take the weights by their names in transformers, without `text_model.`."""
        tables, wide = take / "embeddings", design.hidden
        self._tokens = tables("token_embedding.weight", design.vocabulary, wide)
        self._positions = tables("position_embedding.weight", design.positions, wide)
        self._layers = [_layer(design, take / f"encoder.layers.{n}") for n in range(design.layers)]
        self._norm = nn.layer_norm(take / "final_layer_norm", wide, design.epsilon)

    def __call__(self, ids: Tensor) -> Tensor:
        """Return (batch, positions, E) of (batch, positions) ids, i64."""
        x = ub.embedding(ids, self._tokens) + self._positions[: ids.shape[1]]
        for layer in self._layers:
            x = layer(x)
        return self._norm(x)


def _layer(design: TextDesign, take: Take) -> Layer:
    """Attention and an MLP, each behind a norm."""
    wide, inner = design.hidden, design.inner
    norm1, norm2 = (nn.layer_norm(take / f"layer_norm{n}", wide, design.epsilon) for n in (1, 2))
    attend = nn.attention(take, wide, design.heads, bias=True, parts=_PARTS)
    up, down = nn.linear(take / "mlp.fc1", wide, inner), nn.linear(take / "mlp.fc2", inner, wide)
    activation = _quick_gelu if design.activation == "quick_gelu" else ub.gelu_erf

    def run(x: Tensor) -> Tensor:
        x = x + attend(norm1(x), causal=True)
        return x + down(activation(up(norm2(x))))

    return run


def _quick_gelu(x: Tensor) -> Tensor:
    return x * ub.sigmoid(x * _SHARPNESS)
