"""The table-driven decoder: one forward pass for all attention-and-MLP architectures."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from copy import copy

import numpy as np

import ubridge as ub
from ubridge.definitions.attention import row_elements
from ubridge.models.architecture import Architecture
from ubridge.models.body import Chunk, Part, Tables, Tensor, products
from ubridge.models.experts import mixed
from ubridge.models.positions import alibi_bias
from uhal import Device, DType
from uhal.dtypes import f32

_ACTIVATIONS: Mapping[str, Callable[[Tensor], Tensor]] = {
    "silu": ub.silu,
    "gelu": ub.gelu,
    "gelu_erf": ub.gelu_erf,
    "relu": ub.relu,
}


class Decoder:
    """The layers of a model on a device. Any thread may use it: no text's state is kept."""

    is_recurrent = False

    def __init__(
        self, design: Architecture, outside: Part, layers: Sequence[Part], dtype: DType
    ) -> None:
        """Take weights as `loading.py` delivers them; activations are of `dtype`."""
        self.design = design
        self.vocabulary = design.vocabulary
        self.dtype = dtype
        embedding = outside["embedding.weight"]
        self._outside: Part = {"head.weight": embedding, **outside}
        self._layers = layers
        self._activation = _ACTIVATIONS[design.activation]
        self.device: Device = embedding.device
        # If weights are f16 or bf16, the factor is rounded to the same dtype.
        self._embedding_scale = float(np.asarray(design.embedding_scale, dtype.dtype))
        self._is_invariant = False

    def batch_invariant(self) -> Decoder:
        """Return these layers with bit-identical results for a token in every batch."""
        made = copy(self)
        made._is_invariant = True
        return made

    def pools(self, pages: int, page_size: int, dtype: DType | None = None) -> dict[str, Tensor]:
        """Return zeroed pages for keys and values: (pages, page size, K, d) for each layer.

        Pages of i8 and f8e4m3 have rows of d + 4, as `ubridge.paged_append` says.
        """
        design = self.design
        kept = self.dtype if dtype is None else dtype
        elements = row_elements(kept, design.width)
        return self._zeros((pages, page_size, design.kv_heads, elements), kept)

    def state(self, capacity: int) -> dict[str, Tensor]:
        """Return zeroed memory for the keys and values of `capacity` tokens."""
        design = self.design
        return self._zeros((1, design.kv_heads, capacity, design.width), self.dtype)

    def _zeros(self, shape: tuple[int, ...], dtype: DType) -> dict[str, Tensor]:
        """Memory of a shape for the keys and for the values of each layer."""
        return {
            f"{layer}.{part}": ub.zeros(shape, dtype, device=self.device)
            for layer in range(self.design.layers)
            for part in ("keys", "values")
        }

    def tables(self, positions: int, length: int | None = None) -> Tables:
        """Return tables of positions; without `length`, each position ends its own text."""
        design = self.design
        if design.alibi:
            bias = alibi_bias(design.heads, design.width, positions)
            return Tables(bias=ub.asarray(bias, device=self.device))
        if design.rope is None:
            return Tables()
        rope = design.rope
        angles = rope.growing_rows(positions) if length is None else rope.rows(0, positions, length)
        cos, sin = (ub.asarray(one, device=self.device) for one in angles)
        return Tables(cos, sin)

    def __call__(self, chunk: Chunk, state: Mapping[str, Tensor]) -> Tensor:
        """Run (tokens,) ids through all layers and the last norm: (tokens, E)."""
        design = self.design
        embedding = self._outside["embedding.weight"]
        if isinstance(embedding, ub.QuantizedWeight):
            x = embedding.take(chunk.tokens, self.dtype)
        else:
            x = ub.embedding(chunk.tokens, embedding).astype(self.dtype, copy=False)
        if design.embedding_scale != 1:
            x = x * self._embedding_scale
        if design.has_learned_positions:
            table = self._outside["positions.weight"]
            assert isinstance(table, Tensor)
            x = x + ub.embedding(chunk.positions, table)
        for layer, weights in enumerate(self._layers):
            x = self._layer(layer, weights, x, chunk, state)
        return self._normed(x, self._outside, "norm")

    def logits(self, x: Tensor) -> Tensor:
        """Return the logits of a result of `__call__`: (tokens, V) of f32."""
        design = self.design
        found = self._product(x, self._outside, "head").astype(f32, copy=False)
        if design.logit_cap:
            found = ub.tanh(found / design.logit_cap) * design.logit_cap
        return found if design.logit_scale == 1 else found * design.logit_scale

    # -- a layer ---------------------------------------------------------------------------------

    def _layer(
        self, layer: int, weights: Part, x: Tensor, chunk: Chunk, state: Mapping[str, Tensor]
    ) -> Tensor:
        design = self.design
        normed = self._normed(x, weights, "attention_norm")
        attended = self._attention(layer, weights, normed, chunk, state)
        if design.residual == "parallel":
            other = normed if design.norms == 1 else self._normed(x, weights, "mlp_norm")
            return x + attended + self._mlp(layer, weights, other)
        if design.residual == "sandwich":
            attended = self._normed(attended, weights, "attention_after")
        x = x + attended
        after = self._mlp(layer, weights, self._normed(x, weights, "mlp_norm"))
        if design.residual == "sandwich":
            after = self._normed(after, weights, "mlp_after")
        return x + after

    def _attention(
        self, layer: int, weights: Part, x: Tensor, chunk: Chunk, state: Mapping[str, Tensor]
    ) -> Tensor:
        design = self.design
        query, key, value = self._qkv(weights, x)
        if design.qk_norm:
            query = self._head_normed(query, weights, "q_norm")
            key = self._head_normed(key, weights, "k_norm")
        query, key = (chunk.rotated(one, design.is_interleaved) for one in (query, key))
        heads = chunk.attended(
            state,
            layer,
            query,
            key,
            value,
            scale=design.scale,
            window=design.window(layer),
            cap=design.score_cap,
        )
        return self._product(heads.reshape(x.shape[0], -1), weights, "output")

    def _qkv(self, weights: Part, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Queries, keys and values: (tokens, heads, d)."""
        design, tokens = self.design, x.shape[0]
        if "qkv.weight" in weights:
            joined = self._product(x, weights, "qkv")
            at_keys = design.heads * design.width
            at_values = at_keys + design.kv_heads * design.width
            parts = joined[:, :at_keys], joined[:, at_keys:at_values], joined[:, at_values:]
        else:
            parts = self._products(x, weights, "q", "k", "v")  # type: ignore[assignment]
        query, key, value = (one.reshape(tokens, -1, design.width) for one in parts)
        return query, key, value

    def _mlp(self, layer: int, weights: Part, x: Tensor) -> Tensor:
        design = self.design
        if design.has_experts(layer):
            assert design.experts is not None
            return mixed(x, weights, design.experts, self._gated, self._is_invariant)
        if design.mlp == "plain":
            inner = self._activation(self._product(x, weights, "up"))
        else:
            if design.mlp == "fused":
                both = self._product(x, weights, "gate_up")
                gate, up = both[:, : design.inner], both[:, design.inner :]
            else:
                gate, up = self._products(x, weights, "gate", "up")
            inner = self._gated(gate, up)
        return self._product(inner, weights, "down")

    def _gated(self, gate: Tensor, up: Tensor) -> Tensor:
        is_silu = self.design.activation == "silu"
        return ub.silu_mul(gate, up) if is_silu else self._activation(gate) * up

    # -- parts -----------------------------------------------------------------------------------

    def _product(self, x: Tensor, weights: Part, part: str) -> Tensor:
        return self._products(x, weights, part)[0]

    def _products(self, x: Tensor, weights: Part, *parts: str) -> tuple[Tensor, ...]:
        own = [weights[f"{part}.weight"] for part in parts]
        found = products(x, own, self._is_invariant)
        biases = [self._bias(weights, part) for part in parts]
        return tuple(
            one if bias is None else one + bias for one, bias in zip(found, biases, strict=True)
        )

    def _bias(self, weights: Part, part: str) -> Tensor | None:
        found = weights.get(f"{part}.bias")
        assert found is None or isinstance(found, Tensor)
        return found

    def _normed(self, x: Tensor, weights: Part, part: str) -> Tensor:
        """A norm, in the wider dtype of its weight and the activations."""
        weight, bias = weights[f"{part}.weight"], self._bias(weights, part)
        assert isinstance(weight, Tensor)
        wide = x.astype(weight.dtype, copy=False)
        if bias is None:
            return ub.rms_norm(wide, weight, self.design.epsilon).astype(x.dtype, copy=False)
        return ub.layer_norm(wide, weight, bias, self.design.epsilon).astype(x.dtype, copy=False)

    def _head_normed(self, x: Tensor, weights: Part, part: str) -> Tensor:
        if self.design.qk_norm != "heads":
            return self._normed(x, weights, part)
        # Each head has its own weight: normalize with weight 1 and bias 0, then multiply.
        plain = {f"{part}.weight": self._outside["ones"], f"{part}.bias": self._outside["zeros"]}
        weight = weights[f"{part}.weight"]
        assert isinstance(weight, Tensor)
        return self._normed(x, plain, part) * weight
