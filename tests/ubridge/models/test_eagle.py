"""EAGLE-3's draft layer and trees against their equations in numpy. Weights are random."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

import ubridge as ub
from ubridge.models.serving.eagle import Eagle3, EagleTree
from uhal import Device
from uhal.errors import ArgumentValueError

Array = npt.NDArray[Any]
SIZE, WIDTH, HEADS, KV_HEADS, INNER, TARGETS = 8, 4, 4, 2, 12, 9


def made(rng: np.random.Generator, drafted: int) -> dict[str, Array]:
    shapes = {
        "fc": (SIZE, 3 * SIZE),
        "embed_tokens": (TARGETS, SIZE),
        "norm": (SIZE,),
        "lm_head": (drafted, SIZE),
        "midlayer.input_layernorm": (SIZE,),
        "midlayer.hidden_norm": (SIZE,),
        "midlayer.post_attention_layernorm": (SIZE,),
        "midlayer.self_attn.q_proj": (HEADS * WIDTH, 2 * SIZE),
        "midlayer.self_attn.k_proj": (KV_HEADS * WIDTH, 2 * SIZE),
        "midlayer.self_attn.v_proj": (KV_HEADS * WIDTH, 2 * SIZE),
        "midlayer.self_attn.o_proj": (SIZE, HEADS * WIDTH),
        "midlayer.mlp.gate_proj": (INNER, SIZE),
        "midlayer.mlp.up_proj": (INNER, SIZE),
        "midlayer.mlp.down_proj": (SIZE, INNER),
    }
    found = {
        f"{name}.weight": (rng.standard_normal(shape) / shape[-1] ** 0.5).astype(np.float32)
        for name, shape in shapes.items()
    }
    kept = np.sort(rng.permutation(TARGETS)[:drafted])
    found["d2t"] = (kept - np.arange(drafted)).astype(np.int64)
    return found


def on(device: Device, weights: dict[str, Array]) -> dict[str, ub.DeviceTensor]:
    return {name: ub.from_numpy(one, device=device) for name, one in weights.items()}


def normed(x: Array, weight: Array) -> Any:
    return x / np.sqrt((x * x).mean(-1, keepdims=True) + 1e-5) * weight


def turned(x: Array) -> Any:
    """Rotary positions of (positions, heads, width)."""
    half = WIDTH // 2
    angles = np.arange(len(x))[:, None] * 10000.0 ** (-np.arange(half) / half)
    pairs = x[..., :half] + 1j * x[..., half:]
    pairs = pairs * np.exp(1j * angles)[:, None]
    return np.concatenate([pairs.real, pairs.imag], -1)


def in_numpy(w: dict[str, Array], features: Array, tokens: list[int]) -> tuple[Array, Array]:
    """The draft layer over a whole text: next features and logits."""

    def part(x: Array, name: str) -> Any:
        return x @ w[f"midlayer.{name}.weight"].astype(np.float64).T

    x = np.concatenate(
        [
            normed(
                w["embed_tokens.weight"][tokens].astype(np.float64),
                w["midlayer.input_layernorm.weight"],
            ),
            normed(features, w["midlayer.hidden_norm.weight"]),
        ],
        -1,
    )
    q, k, v = (part(x, f"self_attn.{one}_proj").reshape(len(tokens), -1, WIDTH) for one in "qkv")
    q, k = turned(q), np.repeat(turned(k), HEADS // KV_HEADS, 1)
    v = np.repeat(v, HEADS // KV_HEADS, 1)
    scores = np.einsum("qhd,khd->hqk", q, k) / WIDTH**0.5
    scores = np.where(np.tri(len(tokens), dtype=bool), scores, -np.inf)
    shares = np.exp(scores - scores.max(-1, keepdims=True))
    shares /= shares.sum(-1, keepdims=True)
    x = features + part(
        np.einsum("hqk,khd->qhd", shares, v).reshape(len(tokens), -1), "self_attn.o_proj"
    )
    inner = normed(x, w["midlayer.post_attention_layernorm.weight"])
    gate = part(inner, "mlp.gate_proj")
    x = x + part(gate / (1 + np.exp(-gate)) * part(inner, "mlp.up_proj"), "mlp.down_proj")
    return x, normed(x, w["norm.weight"]) @ w["lm_head.weight"].astype(np.float64).T


def log_softmax(x: Array) -> Any:
    x = x - x.max()
    return x - np.log(np.exp(x).sum())


def continued(
    w: dict[str, Array], features: Array, tokens: list[int], path: list[int]
) -> tuple[Array, Array]:
    """The log-probabilities after a text and drafted tokens, which feed the layer's own results."""
    for one in path:
        features = np.concatenate([features, in_numpy(w, features, tokens)[0][-1:]])
        tokens = [*tokens, one]
    out, logits = in_numpy(w, features, tokens)
    return out, log_softmax(logits[-1])


def test_the_layer_gives_the_numbers_of_its_equations(
    host: Device, rng: np.random.Generator
) -> None:
    weights = made(rng, 6)
    layer = Eagle3(on(host, weights), HEADS)
    count = int(rng.integers(1, 9))
    tokens = [int(one) for one in rng.integers(0, TARGETS, count)]
    hidden = rng.standard_normal((count, 3 * SIZE)).astype(np.float32)
    features = hidden.astype(np.float64) @ weights["fc.weight"].astype(np.float64).T
    exact = in_numpy(weights, features, tokens)
    given = layer.features(ub.from_numpy(hidden, device=host))
    out, logits, whole = layer(given, tokens)
    np.testing.assert_allclose(out.to_numpy(), exact[0], rtol=1e-3, atol=1e-3)
    np.testing.assert_allclose(logits.to_numpy(), exact[1], rtol=1e-3, atol=1e-3)
    # Read the text in two parts, connected by the state.
    cut = int(rng.integers(0, count))
    state = layer(given[:cut], tokens[:cut])[2] if cut else None
    _, logits, state = layer(given[cut:].contiguous(), tokens[cut:], state)
    np.testing.assert_allclose(logits.to_numpy(), exact[1][cut:], rtol=1e-3, atol=1e-3)
    assert state.length == whole.length == count
    assert layer.features(given) is given


def test_a_tree_has_the_likeliest_continuations(host: Device, rng: np.random.Generator) -> None:
    """With all children in each depth, only the last choice of nodes can meet equal numbers."""
    drafted, depth, total = 3, 3, 12
    weights = made(rng, drafted)
    layer = Eagle3(on(host, weights), HEADS)
    tokens = [int(one) for one in rng.integers(0, TARGETS, 4)]
    features = rng.standard_normal((4, SIZE)).astype(np.float32)
    out, logits, state = layer(ub.from_numpy(features, device=host), tokens)
    tree = layer.propose(out[3:], logits[3:], state, width=27, depth=depth, total=total)
    offsets = weights["d2t"]
    sums: dict[tuple[int, ...], float] = {(): 0.0}
    for path in [(), *[(a,) for a in range(3)], *[(a, b) for a in range(3) for b in range(3)]]:
        targets = [one + int(offsets[one]) for one in path]
        after = continued(weights, features.astype(np.float64), tokens, targets)[1]
        for one in range(drafted):
            sums[(*path, one)] = sums[path] + float(after[one])
    by_target = {
        tuple(one + int(offsets[one]) for one in path): value for path, value in sums.items()
    }
    del by_target[()]
    nodes = all_paths(tree)
    assert len(nodes) == len(set(nodes)) == total - 1
    best = sorted(by_target.values())[:-total:-1]
    got = sorted((by_target[one] for one in nodes), reverse=True)
    np.testing.assert_allclose(got, best, rtol=1e-3, atol=1e-3)
    assert {path[:-1] for path in nodes} <= {(), *nodes}
    assert all(parent < node for node, parent in enumerate(tree.parents))
    leaves = {tuple(one) for one in tree.paths()}
    assert leaves == {one for one in nodes if not any(o[:-1] == one for o in nodes)}
    # Propose fewer children in each depth.
    few = layer.propose(out[3:], logits[3:], state, width=2, depth=depth, total=100)
    paths = all_paths(few)
    assert [sum(len(one) == depth for one in paths) for depth in (1, 2, 3)] == [2, 4, 4]


def all_paths(tree: EagleTree) -> list[tuple[int, ...]]:
    found: list[tuple[int, ...]] = []
    for token, parent in zip(tree.tokens, tree.parents, strict=True):
        found.append((*(found[parent] if parent >= 0 else ()), token))
    return found


def test_wrong_weights_are_refused(host: Device, rng: np.random.Generator) -> None:
    weights = on(host, made(rng, 6))
    with pytest.raises(ArgumentValueError, match="Eagle3, heads: expected a divisor of 16"):
        Eagle3(weights, 3)
    del weights["norm.weight"]
    with pytest.raises(ArgumentValueError, match=r"got no \['norm.weight'\]"):
        Eagle3(weights, HEADS)
