"""ChatGLM3 and RWKV 5 in numpy, in double precision, from their equations.

transformers has neither model. This code follows the papers and the published code, reads token by
token instead of in chunks, and shares nothing with `ubridge.models`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from tests.ubridge.models.cases import Array

Weights = Callable[[str], Array]


def silu(x: Array) -> Array:
    return x / (1 + np.exp(-x))


def softmax(x: Array) -> Array:
    powers = np.exp(x - x.max(-1, keepdims=True))
    return np.asarray(powers / powers.sum(-1, keepdims=True))


def rms(x: Array, weight: Array, epsilon: float) -> Array:
    return np.asarray(x / np.sqrt((x * x).mean(-1, keepdims=True) + epsilon) * weight)


def layer_norm(x: Array, weight: Array, bias: Array, epsilon: float = 1e-5) -> Array:
    centered = x - x.mean(-1, keepdims=True)
    return np.asarray(
        centered / np.sqrt((centered**2).mean(-1, keepdims=True) + epsilon) * weight + bias
    )


def chatglm(config: Mapping[str, Any], tensor: Weights, tokens: Sequence[int]) -> Array:
    """Return (tokens, V)."""
    heads, groups = config["num_attention_heads"], config["multi_query_group_num"]
    width, inner = config["kv_channels"], config["ffn_hidden_size"]
    epsilon, turned = config["layernorm_epsilon"], width // 2
    steps = (10000.0 * config.get("rope_ratio", 1)) ** (-np.arange(0, turned, 2) / turned)
    angles = np.outer(np.arange(len(tokens)), steps)[:, None]

    def rotated(x: Array) -> Array:
        one, other = x[..., 0:turned:2], x[..., 1:turned:2]
        found = x.copy()
        found[..., 0:turned:2] = one * np.cos(angles) - other * np.sin(angles)
        found[..., 1:turned:2] = other * np.cos(angles) + one * np.sin(angles)
        return found

    x = tensor("transformer.embedding.word_embeddings.weight")[list(tokens)]
    hidden = np.triu(np.full((len(tokens),) * 2, -np.inf), 1)
    for layer in range(config["num_layers"]):

        def own(name: str, layer: int = layer) -> Array:
            return tensor(f"transformer.encoder.layers.{layer}.{name}")

        normed = rms(x, own("input_layernorm.weight"), epsilon)
        joined = normed @ own("self_attention.query_key_value.weight").T
        joined = joined + own("self_attention.query_key_value.bias")
        ends = heads * width, (heads + groups) * width
        query, key, value = (
            one.reshape(len(tokens), -1, width) for one in np.split(joined, ends, axis=1)
        )
        query, key = rotated(query), rotated(key)
        key, value = (np.repeat(one, heads // groups, axis=1) for one in (key, value))
        scores = np.einsum("qhd,khd->hqk", query, key) / np.sqrt(width) + hidden
        mixed = np.einsum("hqk,khd->qhd", softmax(scores), value).reshape(len(tokens), -1)
        x = x + mixed @ own("self_attention.dense.weight").T
        normed = rms(x, own("post_attention_layernorm.weight"), epsilon)
        both = normed @ own("mlp.dense_h_to_4h.weight").T
        x = x + (silu(both[:, :inner]) * both[:, inner:]) @ own("mlp.dense_4h_to_h.weight").T
    x = rms(x, tensor("transformer.encoder.final_layernorm.weight"), epsilon)
    return np.asarray(x @ tensor("transformer.output_layer.weight").T)


def rwkv5(config: Mapping[str, Any], tensor: Weights, tokens: Sequence[int]) -> Array:
    """Return logits (tokens, V), computed from sums over all earlier tokens, without a state."""
    width, layers = config["head_size"], config["num_hidden_layers"]
    heads = config["hidden_size"] // width

    def norm(x: Array, name: str) -> Array:
        return layer_norm(x, tensor(f"{name}.weight"), tensor(f"{name}.bias"))

    def mixes(x: Array, room: str) -> Callable[[str], Array]:
        before = np.vstack([np.zeros((1, x.shape[1])), x[:-1]])

        def mixed(name: str) -> Array:
            share = tensor(f"{room}.time_mix_{name}").reshape(-1)
            return np.asarray(
                (x * share + before * (1 - share)) @ tensor(f"{room}.{name}.weight").T
            )

        return mixed

    x = norm(tensor("rwkv.embeddings.weight")[list(tokens)], "rwkv.blocks.0.pre_ln")
    count = len(tokens)
    for layer in range(layers):
        block = f"rwkv.blocks.{layer}"

        product = mixes(norm(x, f"{block}.ln1"), f"{block}.attention")
        r, k, v = (
            product(name).reshape(count, heads, width) for name in ("receptance", "key", "value")
        )
        decay = np.exp(-np.exp(tensor(f"{block}.attention.time_decay")))
        bonus = tensor(f"{block}.attention.time_faaaa")
        found = np.zeros((count, heads, width))
        for token in range(count):
            for before in range(token):
                faded = r[token] * decay ** (token - 1 - before) * k[before]
                found[token] += faded.sum(-1, keepdims=True) * v[before]
            found[token] += (r[token] * bonus * k[token]).sum(-1, keepdims=True) * v[token]
        plain = layer_norm(found, np.ones(width), np.zeros(width)).reshape(count, -1)
        plain = plain * tensor(f"{block}.attention.ln_x.weight")
        gated = (plain + tensor(f"{block}.attention.ln_x.bias")) * silu(product("gate"))
        x = x + gated @ tensor(f"{block}.attention.output.weight").T
        name = f"{block}.feed_forward"
        product = mixes(norm(x, f"{block}.ln2"), name)
        share = 1 / (1 + np.exp(-product("receptance")))
        inner = np.maximum(product("key"), 0) ** 2
        x = x + share * (inner @ tensor(f"{name}.value.weight").T)
    return np.asarray(norm(x, "rwkv.ln_out") @ tensor("head.weight").T)
