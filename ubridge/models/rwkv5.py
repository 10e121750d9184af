"""RWKV 5: layers that keep a matrix for each head instead of keys and values.

The equations are in Peng et al., "Eagle and Finch" (2024); names follow the files of
RWKV/rwkv-5-world. The state of a text has the same size for any length.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np

import ubridge as ub
from ubridge.files.settings import Settings
from ubridge.models.architecture import Architecture
from ubridge.models.body import Chunk, Part, Tables, Tensor
from uhal import DType
from uhal.dtypes import f32

NAMES = {
    "layer": "rwkv.blocks.{}.",
    "embedding": "rwkv.embeddings",
    "norm": "rwkv.ln_out",
    "head": "head",
    "first_norm": "pre_ln",
    "time_norm": "ln1",
    "channel_norm": "ln2",
    **{
        f"mix_{one[0]}": f"attention.time_mix_{one}"
        for one in ("key", "value", "receptance", "gate")
    },
    "decay": "attention.time_decay",
    "bonus": "attention.time_faaaa",
    **{one[0]: f"attention.{one}" for one in ("key", "value", "receptance", "gate")},
    "output": "attention.output",
    "head_norm": "attention.ln_x",
    "channel_mix_k": "feed_forward.time_mix_key",
    "channel_mix_r": "feed_forward.time_mix_receptance",
    "channel_k": "feed_forward.key",
    "channel_r": "feed_forward.receptance",
    "channel_v": "feed_forward.value",
}
"""Same as `table.ArchitectureRow.names`."""
_HEAD_EPSILON = 1e-5
"""Epsilon of the norm of each head, which configurations lack."""


class Rwkv5(Architecture):
    """RWKV's sizes: `width` is S, a head's elements, `inner` the channel mix's width."""

    def tensors(self) -> Iterator[tuple[int, str, tuple[int, ...]]]:
        """Yield layer, part and shape of each tensor."""
        wide, across = self.hidden, self.heads * self.width
        yield -1, "embedding.weight", (self.vocabulary, wide)
        yield -1, "head.weight", (self.vocabulary, wide)
        yield from self._norm(-1, "norm", (wide,))
        for layer in range(self.layers):
            for part in ("first_norm", "time_norm", "channel_norm"):
                if layer == 0 or part != "first_norm":
                    yield from self._norm(layer, part, (wide,))
            for one in "kvrg":
                yield layer, f"mix_{one}", (1, 1, wide)
                yield layer, f"{one}.weight", (across, wide)
            for part in ("decay", "bonus"):
                yield layer, part, (self.heads, self.width)
            yield layer, "output.weight", (wide, across)
            yield from self._norm(layer, "head_norm", (across,))
            for part in ("channel_mix_k", "channel_mix_r"):
                yield layer, part, (1, 1, wide)
            yield layer, "channel_k.weight", (self.inner, wide)
            yield layer, "channel_r.weight", (wide, wide)
            yield layer, "channel_v.weight", (wide, self.inner)

    def state_bytes(self, capacity: int, itemsize: int) -> int:
        """Return the bytes of the layers' state: f32, for any text."""
        return 4 * self.layers * (2 * self.hidden + self.heads * self.width**2)


def design_of(config: Settings) -> Rwkv5:
    """Return the sizes from a `config.json`. Raises `InvalidFileError`."""
    hidden, width = config.integer("hidden_size", least=1), config.integer("head_size", 64, 1)
    across = config.integer("attention_hidden_size", hidden, width)
    vocabulary = config.integer("vocab_size", least=1)
    positions = config.integer("max_position_embeddings", 4096, 1)
    usual = max(32, int(3.5 * hidden) // 32 * 32)
    # The number of heads follows from the sizes; the head is a separate tensor.
    config.ignore("num_attention_heads", "tie_word_embeddings")
    return Rwkv5(
        name="rwkv5",
        norm="layer",
        end_tokens=config.one_or_more("eos_token_id", (), 0, vocabulary - 1),
        hidden=hidden,
        inner=config.integer("intermediate_size", usual, 1),
        layers=config.integer("num_hidden_layers", least=1),
        heads=across // width,
        kv_heads=across // width,
        width=width,
        vocabulary=vocabulary,
        context=config.integer("context_length", positions, 1),
        epsilon=config.number("epsilon", 1e-5, least=0, most=1),
    )


class Recurrence:
    """The layers of an RWKV 5 model. Any thread may use it: no text's state is kept."""

    is_recurrent = True

    def __init__(self, design: Rwkv5, outside: Part, layers: Sequence[Part], dtype: DType) -> None:
        """Take weights as `loading.py` delivers them; products are of `dtype`, states f32."""
        self.design = design
        self.vocabulary = design.vocabulary
        self.dtype = dtype
        self._outside = outside
        self._layers = [dict(one) for one in layers]
        self.device = outside["head.weight"].device
        heads, width = design.heads, design.width
        ones = {"weight": ub.ones, "bias": ub.zeros}
        self._plain = {
            f"plain.{one}": make((width,), device=self.device) for one, make in ones.items()
        }
        for own in self._layers:
            for part in [name for name in own if "mix_" in name]:
                own[part] = _dense(own, part).reshape(-1).astype(dtype, copy=False)
            decay = _dense(own, "decay").to_numpy().astype(np.float64)
            faded = np.exp(-np.exp(decay)).astype(np.float32)
            own["decay"] = ub.asarray(faded, device=self.device).reshape(heads, width, 1)
            own["bonus"] = _dense(own, "bonus").reshape(heads, width, 1)
            for kind in ("weight", "bias"):
                norm = _dense(own, f"head_norm.{kind}").astype(f32, copy=False)
                own[f"head_norm.{kind}"] = norm.reshape(heads, width)

    def state(self, capacity: int) -> dict[str, Tensor]:
        """Return the layers' state of an empty text: zeros, of the same size for any `capacity`."""
        design = self.design
        shapes = {
            "time": (1, design.hidden),
            "channel": (1, design.hidden),
            "heads": (design.heads, design.width, design.width),
        }
        return {
            f"{layer}.{part}": ub.zeros(shape, device=self.device)
            for layer in range(design.layers)
            for part, shape in shapes.items()
        }

    def tables(self, positions: int, length: int | None = None) -> Tables:
        """Return empty tables: nothing depends on a position."""
        return Tables()

    def __call__(self, chunk: Chunk, state: Mapping[str, Tensor]) -> Tensor:
        """Run (tokens,) ids through all layers and the last norm: (tokens, E)."""
        embedding = self._outside["embedding.weight"]
        if isinstance(embedding, ub.QuantizedWeight):
            x = embedding.take(chunk.tokens, self.dtype)
        else:
            x = ub.embedding(chunk.tokens, embedding)
        x = self._normed(x, self._layers[0], "first_norm")
        for layer, own in enumerate(self._layers):
            kept = {part: state[f"{layer}.{part}"] for part in ("time", "channel", "heads")}
            x = x + self._time_mix(own, self._normed(x, own, "time_norm"), kept)
            x = x + self._channel_mix(own, self._normed(x, own, "channel_norm"), kept)
        return self._normed(x, self._outside, "norm")

    def logits(self, x: Tensor) -> Tensor:
        """Return the logits of a result of `__call__`: (tokens, V) of f32."""
        return ub.linear(x, self._outside["head.weight"]).astype(f32, copy=False)

    # -- a layer ---------------------------------------------------------------------------------

    def _time_mix(self, own: Part, x: Tensor, kept: Mapping[str, Tensor]) -> Tensor:
        design, tokens = self.design, x.shape[0]
        before, change = self._shifted(x, kept["time"])

        def product(part: str) -> Tensor:
            return ub.linear(before + change * _dense(own, f"mix_{part}"), own[f"{part}.weight"])

        r, k, v = (
            product(part).astype(f32, copy=False).reshape(tokens, design.heads, design.width)
            for part in "rkv"
        )
        gate = ub.silu(product("g"))
        decay, bonus, heads = _dense(own, "decay"), _dense(own, "bonus"), kept["heads"]
        found = []
        for token in range(tokens):
            new = k[token].expand_dims(2) * v[token].expand_dims(1)
            found.append(r[token].expand_dims(1) @ (bonus * new + heads))
            heads = new + decay * heads
        kept["heads"].copy_from(heads)
        joined = found[0] if tokens == 1 else ub.concatenate(found, 1)
        joined = joined.swapaxes(0, 1).contiguous()
        normed = ub.layer_norm(
            joined, self._plain["plain.weight"], self._plain["plain.bias"], _HEAD_EPSILON
        )
        normed = normed * _dense(own, "head_norm.weight") + _dense(own, "head_norm.bias")
        mixed = normed.reshape(tokens, -1).astype(x.dtype, copy=False) * gate
        return ub.linear(mixed, own["output.weight"])

    def _channel_mix(self, own: Part, x: Tensor, kept: Mapping[str, Tensor]) -> Tensor:
        before, change = self._shifted(x, kept["channel"])
        k, r = (before + change * _dense(own, f"channel_mix_{part}") for part in "kr")
        inner = ub.square(ub.relu(ub.linear(k, own["channel_k.weight"])))
        gate = ub.sigmoid(ub.linear(r, own["channel_r.weight"]))
        return gate * ub.linear(inner, own["channel_v.weight"])

    def _shifted(self, x: Tensor, last: Tensor) -> tuple[Tensor, Tensor]:
        """Return each token's predecessor and the difference; update `last` for the next call."""
        first = last.astype(x.dtype, copy=False)
        # A copy: `last` is overwritten before it is read for the last time.
        before = first + 0.0 if x.shape[0] == 1 else ub.concatenate([first, x[:-1]], 0)
        last.copy_from(x[-1:])
        return before, x - before

    def _normed(self, x: Tensor, weights: Part, part: str) -> Tensor:
        weight, bias = (_dense(weights, f"{part}.{kind}") for kind in ("weight", "bias"))
        return ub.layer_norm(x, weight, bias, self.design.epsilon)


def _dense(weights: Part, part: str) -> Tensor:
    found = weights[part]
    assert isinstance(found, Tensor)
    return found
