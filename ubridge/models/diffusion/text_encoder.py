"""CLIP's text encoder: a causal transformer, whose last layer's norm is the result.

Radford et al., "Learning Transferable Visual Models From Natural Language Supervision" (2021).
"""

from __future__ import annotations

import ubridge as ub
from ubridge.models.diffusion.design import TextDesign
from ubridge.models.diffusion.layers import Attention, LayerNorm, Linear, Take, Tensor

_PARTS = ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj", "self_attn.out_proj")
_SHARPNESS = 1.702
"""Of `quick_gelu`: x * sigmoid(1.702 x)."""


class TextEncoder:
    """The encoder of prompts. Any thread may use it."""

    def __init__(self, design: TextDesign, take: Take) -> None:
        """Take the weights by their names in transformers, without `text_model.`."""
        self._design = design
        embeddings, wide = "embeddings.{}_embedding.weight", design.hidden
        self._tokens = take(embeddings.format("token"), design.vocabulary, wide)
        self._positions = take(embeddings.format("position"), design.positions, wide)
        self._layers = [
            _Layer(design, take, f"encoder.layers.{layer}") for layer in range(design.layers)
        ]
        self._norm = LayerNorm(take, "final_layer_norm", wide, design.epsilon)

    def __call__(self, ids: Tensor) -> Tensor:
        """Return (batch, positions, E) of (batch, positions) ids, i64."""
        x = ub.embedding(ids, self._tokens) + self._positions[: ids.shape[1]]
        for layer in self._layers:
            x = layer(x)
        return self._norm(x)


class _Layer:
    """Attention and an MLP, each behind a norm."""

    def __init__(self, design: TextDesign, take: Take, name: str) -> None:
        wide, inner, epsilon = design.hidden, design.inner, design.epsilon
        self._norm1 = LayerNorm(take, f"{name}.layer_norm1", wide, epsilon)
        self._attention = Attention(take, name, wide, design.heads, bias=True, parts=_PARTS)
        self._norm2 = LayerNorm(take, f"{name}.layer_norm2", wide, epsilon)
        self._up = Linear(take, f"{name}.mlp.fc1", wide, inner)
        self._down = Linear(take, f"{name}.mlp.fc2", inner, wide)
        self._is_quick = design.activation == "quick_gelu"

    def __call__(self, x: Tensor) -> Tensor:
        x = x + self._attention(self._norm1(x), causal=True)
        inner = self._up(self._norm2(x))
        return x + self._down(_quick_gelu(inner) if self._is_quick else ub.gelu_erf(inner))


def _quick_gelu(x: Tensor) -> Tensor:
    return x * ub.sigmoid(x * _SHARPNESS)
